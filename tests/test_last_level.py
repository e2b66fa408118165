"""The last level's nodes, of which few histograms are there at once (growing/pool.py): the same trees."""

import numpy as np
import pytest
from scipy.sparse import csr_matrix

import gpuboost as gb
from gpuboost.backend.cpu import training, trees
from gpuboost.model_io import digest

RNG = np.random.default_rng(2)
X = RNG.normal(size=(900, 5)).astype(np.float32)
X[RNG.random(X.shape) < 0.1] = np.nan
CODES = RNG.integers(0, 12, X.shape).astype(np.float32)
Y = np.nan_to_num(X[:, 0]) * np.nan_to_num(X[:, 1]) + CODES[:, 2] / 6 + np.nan_to_num(X[:, 3])
KINDS = {
    "hist": {},
    "approx": {"tree_method": "approx", "max_bin": 16},
    "local": {"tree_method": "approx", "max_bin": 16, "sketch_proposals": "local"},
    "few leaves": {"max_leaves": 20},
    "vector": {"multi_strategy": "multi_output_tree"},
    "targets": {},
    "nodes": {"colsample_bynode": 0.6, "subsample": 0.7},
    "sets": {},
    "sparse": {},
    "packed": {},
    "pages": {},
}


def train(kind, n_threads):
    y = np.stack([Y, Y**2, X[:, 4]], axis=1) if kind in ("vector", "targets") else Y
    y = np.nan_to_num(y)
    info = {"feature_types": ["c"] * 5} if kind == "sets" else {}
    one_hot, rare = np.eye(12)[CODES.astype(int)].reshape(900, -1), csr_matrix(np.where(X > 0.5, X, 0))
    table = {"sets": CODES, "sparse": rare, "packed": one_hot}.get(kind, X)
    data = gb.QuantileDMatrix(table, y, page_rows=400) if kind == "pages" else gb.DMatrix(table, y, **info)
    params = {"max_depth": 6, "min_child_weight": 0, "nthread": n_threads, **KINDS[kind]}
    return digest(gb.train(params, data, 3).model)


@pytest.mark.parametrize("n_threads", [1, 2])
@pytest.mark.parametrize("kind", KINDS)
def test_a_few_nodes_of_the_last_level_at_once_change_nothing(kind, n_threads, monkeypatch):
    expected, batches, evaluate = train(kind, n_threads), [], trees.CpuTrees.evaluate_splits

    def counted(self, batch):
        batches.append((batch.end - batch.begin, batch.first_slot))
        evaluate(self, batch)

    monkeypatch.setattr(trees.CpuTrees, "evaluate_splits", counted)
    monkeypatch.setattr(trees, "WHOLE_MEMORY", 0)  # step by step, not in one call
    monkeypatch.setattr(trees, "BIN_VISITS", 0)  # nor by sorted columns
    monkeypatch.setattr(training, "CODES_PER_THREAD", 1)  # else so small a table has one thread
    assert train(kind, n_threads) == expected
    whole = [*batches]
    batches.clear()
    monkeypatch.setattr(trees, "LAST_MEMORY", 0)
    monkeypatch.setattr(trees, "LAST_NODES", 2)
    assert train(kind, n_threads) == expected
    assert len(batches) > len(whole) and max(batches)[0] <= max(whole)[0]
    assert sum(n for n, _ in batches) == sum(n for n, _ in whole)
