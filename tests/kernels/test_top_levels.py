"""kernels/top_levels.py: rows that choose among the first levels of a tree end where rows end that walk it node by node."""

import numpy as np
import pytest
import scipy.sparse
from test_predict_kernel import forest, predict_few, predict_values
from test_predict_sets import walk

from gpuboost.backend.cpu import CpuBackend
from gpuboost.binned.pages import StoredRows
from gpuboost.kernels.predict import ROW_BLOCK

N_FEATURES = 5
VALUES = np.array([-3.0e38, -2.0, -1e-40, -0.0, 0.0, 1e-45, 0.5, 1.0, 2.0, 3.0e38], np.float32)  # thresholds and cells


def random_tree(rng, depth, chance):
    """A tree of at most so many levels of splits; a node splits by ``chance``. As test_predict_kernel.forest takes it."""
    tree, open_nodes = [None], [(0, 0)]
    while open_nodes:
        at, level = open_nodes.pop(rng.integers(len(open_nodes)))
        if level == depth or (level > 0 and rng.random() >= chance):
            tree[at] = (-1, float(np.float32(rng.normal())), -1, 0, -1)
            continue
        tree[at] = (int(rng.integers(N_FEATURES)), float(rng.choice(VALUES)), len(tree), int(rng.integers(2)), 0)
        open_nodes += [(len(tree), level + 1), (len(tree) + 1, level + 1)]
        tree += [None, None]
    return tree


def random_batch(rng, n_rows):
    return rng.choice(np.append(VALUES, np.float32(np.nan)), (n_rows, N_FEATURES))


@pytest.mark.parametrize("depth", range(1, 10))
@pytest.mark.parametrize("chance", [1.0, 0.7])
def test_rows_end_where_a_walk_ends(depth, chance):
    rng = np.random.default_rng(100 * depth + int(10 * chance))
    flat = forest(*[random_tree(rng, rng.integers(1, depth + 1) if k else depth, chance) for k in range(12)])
    for n_rows in (1, 15, 17, ROW_BLOCK, 2 * ROW_BLOCK + 33):
        batch = random_batch(rng, n_rows)
        margin, leaves = predict_values(batch, flat, n_threads=2)
        assert leaves.tolist() == [walk(flat, {}, row, np.nan) for row in batch]
        alone, _ = predict_values(batch, flat, with_leaves=False)  # from the bits of values, where a tree is chosen to its end
        assert alone.tobytes() == margin.tobytes() == predict_few(batch, flat).tobytes()


@pytest.mark.parametrize("lefts", [0, 1])
def test_missing_values_go_where_every_split_of_a_feature_sends_them(lefts):
    """Columns of one kind only."""
    rng = np.random.default_rng(7)
    trees = [[(f, t, left, lefts if f >= 0 else d, b) for f, t, left, d, b in random_tree(rng, 6, 0.9)] for _ in range(5)]
    flat, batch = forest(*trees), random_batch(rng, 200)
    assert predict_values(batch, flat, with_leaves=False)[0].tobytes() == predict_few(batch, flat).tobytes()


@pytest.mark.parametrize("absent", [np.nan, 0.0])
@pytest.mark.parametrize("share", [0.05, 0.9])  # keys are cleared cell by cell, or all of them
def test_sparse_rows_end_where_dense_ones_end(absent, share):
    rng = np.random.default_rng(3)
    flat = forest(*[random_tree(rng, 1 + k % 8, 0.8) for k in range(20)])
    stored = rng.random((3 * ROW_BLOCK + 5, N_FEATURES)) < share
    batch = np.where(stored, random_batch(rng, len(stored)), np.float32(absent))
    csr = scipy.sparse.csr_matrix((batch[stored], np.nonzero(stored)), stored.shape)
    rows = StoredRows(csr.indptr, csr.indices, csr.data, np.nan, absent, N_FEATURES)
    for leaves in (None, np.zeros((len(batch), 20), np.int32)):
        margin = np.zeros((1, len(batch)), np.float32)
        CpuBackend(2).predictor.predict_sparse(rows, flat, margin, leaves)
        assert margin.tobytes() == predict_few(batch, flat).tobytes()
        if leaves is not None:
            assert leaves.tolist() == predict_values(batch, flat)[1].tolist()
