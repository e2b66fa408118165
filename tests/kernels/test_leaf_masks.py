"""kernels/leaf_masks.py: rows that strike out leaves end where a walk in Python ends, of values and of codes."""

import numpy as np
import pytest
import scipy.sparse
from numba import njit
from test_predict_kernel import forest, predict_few, predict_values, walk_codes
from test_predict_sets import walk
from test_top_levels import N_FEATURES, VALUES, random_batch

from gpuboost.backend.contract import FlatTrees
from gpuboost.backend.cpu import CpuBackend
from gpuboost.binned.pages import StoredRows
from gpuboost.kernels.leaf_masks import LEAVES, MOST_WORDS, lay_out_masks, n_leaf_words
from gpuboost.kernels.predict import ROW_BLOCK, lay_out, missing_keys
from gpuboost.kernels.predict_codes import predict_codes_cpu
from gpuboost.kernels.structs import FLAT_NODE, NUMERIC
from gpuboost.kernels.top_codes import RUN
from gpuboost.kernels.top_levels import MOST

FEWEST_ROWS = 2 * (2 * LEAVES * MOST_WORDS - 1)  # from which on every tree of few leaves has masks


def tree_of(rng, n_leaves, side):
    """As test_predict_kernel.forest takes it: the leaf that splits next is the first, the last or any one, from left to right."""
    tree, leaves = [(-1, 0.0, -1, 0, -1)], [0]
    while len(leaves) < n_leaves:
        k = {"left": 0, "right": len(leaves) - 1}.get(side, int(rng.integers(len(leaves))))
        at, left = leaves[k], len(tree)
        tree[at] = (int(rng.integers(N_FEATURES)), float(rng.choice(VALUES)), left, int(rng.integers(2)), 0)
        tree += [(-1, 0.0, -1, 0, -1)] * 2
        leaves[k : k + 1] = [left, left + 1]
    return [node if node[0] >= 0 else (-1, float(np.float32(rng.normal())), -1, 0, -1) for node in tree]


def trees_of(rng, side):
    return [tree_of(rng, n, side) for n in (8, 31, 32, 33, 63, 64, 65, 20, 1, 9)]


@njit
def n_mask_words(trees, leaf_values, tree_begin, columns, n_features, n_rows):
    nodes, n_levels, n_nodes = lay_out(trees, leaf_values, tree_begin, columns, missing_keys(n_features), True)
    masks, begin = lay_out_masks(nodes, 64, tree_begin, n_nodes, n_levels, n_rows, True)
    return n_levels, [masks[first] if first < end else 0 for first, end in zip(begin[:-1], begin[1:])]


@pytest.mark.parametrize("side", ["left", "right", "any"])
def test_trees_of_few_leaves_in_many_levels_have_masks(side):
    flat = forest(*trees_of(np.random.default_rng(1), side))
    args = flat.nodes, flat.leaf_values, flat.first_node, np.zeros(N_FEATURES, np.uint32), N_FEATURES
    n_levels, words = n_mask_words(*args, FEWEST_ROWS)
    expected = [1, 1, 1, 2, 2, 2, 0, 1, 0, 1]
    assert words == [n if levels > MOST else 0 for n, levels in zip(expected, n_levels)]
    assert side == "any" or [levels > MOST for levels in n_levels] == [True] * 8 + [False, True]
    assert sum(n_mask_words(*args, 14)[1]) == 0


def test_which_trees_have_masks():
    """Full trees of few levels have none, nor have trees of more leaves, or of more nodes than rows make up for."""
    assert n_leaf_words(MOST, 2 * LEAVES - 1, 10**6) == 0
    assert [n_leaf_words(MOST + 1, 2 * n - 1, 10**6) for n in (8, 32, 33, 64, 65, 128)] == [1, 1, 2, 2, 0, 0]
    assert [n_leaf_words(20, 2 * 32 - 1, n_rows) for n_rows in (1, 125, 126)] == [0, 0, 1]


@pytest.mark.parametrize("side", ["left", "right", "any"])
@pytest.mark.parametrize("n_rows", [FEWEST_ROWS, 5 * ROW_BLOCK, 5 * ROW_BLOCK + 3])
def test_rows_end_where_a_walk_ends(side, n_rows):
    rng = np.random.default_rng(len(side) * n_rows)
    flat, batch = forest(*trees_of(rng, side)), random_batch(rng, n_rows)
    expected = [walk(flat, {}, row, np.nan) for row in batch]
    margin, leaves = predict_values(batch, flat, n_threads=2)
    assert leaves.tolist() == expected
    summed = np.zeros((1, n_rows), np.float32)
    for root, ends in zip(flat.first_node, np.transpose(expected)):
        summed[0] += flat.leaf_values[root + ends, 0]
    alone, _ = predict_values(batch, flat, with_leaves=False)  # from the bits of values
    for result in (margin, alone, predict_few(batch, flat)):
        assert result.tobytes() == summed.tobytes()


@pytest.mark.parametrize("absent", [np.nan, 0.0])
def test_sparse_rows_end_where_a_walk_ends(absent):
    rng = np.random.default_rng(2)
    flat, stored = forest(*trees_of(rng, "any")), rng.random((FEWEST_ROWS + 7, N_FEATURES)) < 0.5
    batch = np.where(stored, random_batch(rng, len(stored)), np.float32(absent))
    csr = scipy.sparse.csr_matrix((batch[stored], np.nonzero(stored)), stored.shape)
    rows = StoredRows(csr.indptr, csr.indices, csr.data, np.nan, absent, N_FEATURES)
    margin, leaves = np.zeros((1, len(batch)), np.float32), np.zeros((len(batch), len(flat.first_node)), np.int32)
    CpuBackend(2).predictor.predict_sparse(rows, flat, margin, leaves)
    assert leaves.tolist() == [walk(flat, {}, row, np.nan) for row in batch]
    assert margin.tobytes() == predict_few(batch, flat).tobytes()


@pytest.mark.parametrize("lefts", [0, 1])
def test_missing_values_below_the_first_levels_go_where_a_split_sends_them(lefts):
    """The deepest splits alone send them elsewhere: their keys are of a kind that no split above asks for."""
    rng = np.random.default_rng(9)
    tree = tree_of(rng, 20, "right")
    last = max(k for k, node in enumerate(tree) if node[0] >= 0)
    tree = [(f, t, left, lefts if k == last else 1 - lefts, b) for k, (f, t, left, _, b) in enumerate(tree)]
    batch = random_batch(rng, FEWEST_ROWS)
    assert predict_values(batch, forest(tree))[1].tolist() == [walk(forest(tree), {}, row, np.nan) for row in batch]


@pytest.mark.parametrize("dtype, n_bins", [
    (np.uint8, [1, 2, 100, 255]), (np.uint8, [256, 3, 256]), (np.uint16, [1, 300, 65535]), (np.uint32, [7, 70000]),
])  # fmt: skip
@pytest.mark.parametrize("side", ["left", "right", "any"])
@pytest.mark.parametrize("leaf_size", [1, 2])
def test_codes_end_where_a_walk_ends(dtype, n_bins, side, leaf_size):
    rng, n_bins, n_rows = np.random.default_rng(len(n_bins) + len(side)), np.array(n_bins, np.int32), 2 * RUN + 33
    nodes, begin = [], []
    for tree in trees_of(rng, side):
        begin.append(len(nodes))
        for feature, _, left, default_left, _ in tree:
            own = feature % len(n_bins) if feature >= 0 else -1
            split_bin = int(rng.integers(n_bins[own])) if feature >= 0 else -1
            nodes.append((0.0, own, split_bin, NUMERIC, default_left, left))
    values, groups = rng.normal(size=(len(nodes), leaf_size)).astype(np.float32), rng.integers(0, 2, len(begin)).astype(np.int32)
    flat = FlatTrees(np.array(nodes, FLAT_NODE), values, np.array(begin), groups, None)
    most = np.iinfo(dtype).max
    columns = np.stack([rng.integers(0, min(n, most) + 1, n_rows) for n in n_bins]).astype(dtype)
    start = rng.normal(size=(1 + leaf_size, n_rows)).astype(np.float32)
    for rows in (np.zeros(0, np.int32), np.arange(3, 3 + 2 * RUN + 1), rng.permutation(n_rows)):
        expected, expected_leaves = walk_codes(flat, columns, n_bins, rows if len(rows) else range(n_rows), start)
        for n_threads in (1, 3):
            margin, leaves, alone = start.copy(), np.full_like(expected_leaves, -1), start.copy()
            predict_codes_cpu(columns, n_bins, rows.astype(np.int32), *flat, margin, leaves, n_threads)
            predict_codes_cpu(columns, n_bins, rows.astype(np.int32), *flat, alone, np.zeros((0, 0), np.int32), n_threads)
            np.testing.assert_array_equal(leaves, expected_leaves)
            assert margin.tobytes() == alone.tobytes() == expected.tobytes()
