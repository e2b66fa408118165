"""A round's trees that grow one part after another, as many at once as lists are short for: the same models and scores."""

import numpy as np
import pytest
from scipy.sparse import csr_matrix

import gpuboost as gb
from gpuboost.backend.cpu import training
from gpuboost.backend.cpu.trees import CpuTrees
from gpuboost.model_io import digest

N_ROWS, N_CLASSES = 1200, 5
RNG = np.random.default_rng(9)
X = RNG.normal(size=(N_ROWS, 6)).astype(np.float32)
X[RNG.random(X.shape) < 0.1] = np.nan
SCORE = np.nan_to_num(X[:, 0]) * np.nan_to_num(X[:, 1]) + np.nan_to_num(X[:, 2])
Y = np.digitize(SCORE, [-1, -0.3, 0.4, 1.2]).astype(np.float32)
WEIGHT = (RNG.random(N_ROWS) < 0.9).astype(np.float32)
CLASSES = {"objective": "multi:softprob", "num_class": N_CLASSES}
KINDS = {
    "plain": CLASSES,
    "rows": {**CLASSES, "subsample": 0.5},
    "rows by gradient": {**CLASSES, "subsample": 0.3, "sampling_method": "gradient_based"},
    "columns": {**CLASSES, "colsample_bytree": 0.5},
    "columns of a node": {**CLASSES, "colsample_bynode": 0.5, "colsample_bylevel": 0.8},
    "constraints": {**CLASSES, "interaction_constraints": [[0, 1], [2, 3, 4]], "monotone_constraints": (1, 0, -1)},
    "by loss": {**CLASSES, "grow_policy": "lossguide", "max_leaves": 12, "max_depth": 0},
    "exact": {**CLASSES, "tree_method": "exact", "subsample": 0.7},
    "approx": {**CLASSES, "tree_method": "approx", "max_bin": 16},
    "forest": {**CLASSES, "num_parallel_tree": 3, "subsample": 0.5},
    "dart": {**CLASSES, "booster": "dart", "rate_drop": 0.4},
    "quantiles": {"objective": "reg:quantileerror", "quantile_alpha": [0.1, 0.3, 0.5, 0.7, 0.9]},
    "median": {"objective": "reg:absoluteerror", "subsample": 0.6},
    "targets": {"objective": "reg:squarederror"},
    "sparse": CLASSES,
    "many rows": CLASSES,
}


def train(kind, n_threads):
    """(digest, scores, predictions) of a training that evaluates its own table and another one."""
    x, y, weight = X, Y, WEIGHT
    if kind == "many rows":  # leaves are gone through row by row (kernels/row_leaves.py)
        x, y, weight = np.tile(X, (4, 1)), np.tile(Y, 4), None
    if kind in ("median", "targets"):
        y = np.stack([SCORE * k + np.nan_to_num(X[:, k]) for k in range(4)], axis=1)
    table = csr_matrix(np.nan_to_num(x)) if kind == "sparse" else x
    data, other, scores = gb.DMatrix(table, y, weight=weight), gb.DMatrix(table[:300], y[:300]), {}
    params = {"max_depth": 4, "nthread": n_threads, "learning_rate": 0.5, **KINDS[kind]}
    evals = [(data, "train"), (other, "other")]
    model = gb.train(params, data, 3, evals=evals, evals_result=scores, verbose_eval=False)
    return digest(model.model), scores, model.predict(other).tolist()


@pytest.mark.parametrize("n_threads", [1, 2])
@pytest.mark.parametrize("kind", KINDS)
def test_parts_are_of_the_model_of_all_at_once(kind, n_threads, monkeypatch):
    grown, start = [], CpuTrees.start

    def counted(self, sums):
        start(self, sums)
        grown.append(self.first_output.tolist())

    expected = train(kind, n_threads)
    monkeypatch.setattr(training, "ROWS_AT_ONCE", 0)
    monkeypatch.setattr(training, "CODES_PER_THREAD", 1)  # else so small a table has one
    monkeypatch.setattr(CpuTrees, "start", counted)
    assert train(kind, n_threads) == expected
    n_outputs = 4 if kind in ("median", "targets") else 5
    alone = n_threads == 1 or kind != "forest"  # else a training on each of two threads
    in_parts = kind != "columns of a node" and alone  # whose draws are hashed by the numbers of trees that grow together
    n_at_once = n_threads if in_parts else n_outputs
    assert {len(outputs) for outputs in grown} <= {n_at_once, n_outputs % n_at_once or n_at_once}
    assert sorted({output for outputs in grown for output in outputs}) == list(range(n_outputs))


def test_the_gradients_of_a_round_are_computed_once(monkeypatch):
    """Those of softmax need the margins of all classes, to which the first part has been added when the second begins."""
    n_computed, compute = [], training.CpuGradients.compute
    monkeypatch.setattr(training, "ROWS_AT_ONCE", 0)
    monkeypatch.setattr(training.CpuGradients, "compute", lambda self, formula: n_computed.append(1) or compute(self, formula))
    gb.train({**CLASSES, "nthread": 1}, gb.DMatrix(X, Y), 4)
    assert len(n_computed) == 4
