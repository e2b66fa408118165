"""kernels/heap_levels.py: rows that step down heaps end where a walk in Python ends, of deep and lopsided trees, or with sets."""

import numpy as np
import pytest
import scipy.sparse
from numba import njit
from test_predict_kernel import forest, grown_together, predict_few, predict_values
from test_predict_sets import random_sets, walk, with_sets
from test_top_levels import N_FEATURES, VALUES, random_batch, random_tree

from gpuboost.backend.cpu import CpuBackend
from gpuboost.binned.pages import StoredRows
from gpuboost.kernels.heap_levels import MISSING_CODE, NO_CODE, code_of_key, lay_out_heaps, n_heap_levels
from gpuboost.kernels.predict import MISSING_KEY, lay_out, value_key
from gpuboost.kernels.top_levels import MOST

N_ROWS, REPEATS = 203, 43  # of different rows, which are walked in Python; so many rows in all make heaps worth while


def lopsided_tree(rng, depth, side):
    """A tree that goes on on one side of every split, and ends on the other. It begins with all splits of six levels: it has too
    many leaves for masks."""
    tree = random_tree(rng, 6, 1.0)
    at = next(i for i, node in enumerate(tree) if node[0] < 0)
    for _ in range(depth - 6):
        leaf, left = tree[at], len(tree)
        tree[at] = (int(rng.integers(N_FEATURES)), float(rng.choice(VALUES)), left, int(rng.integers(2)), 0)
        tree += [leaf, (-1, float(np.float32(rng.normal())), -1, 0, -1)]
        at = left + side
    return tree


def forests(rng):
    """A name and trees: all of one shape, and of all shapes together."""
    deep = [random_tree(rng, depth, 1.0) for depth in (7, 8, 11)]
    thin = [random_tree(rng, depth, 0.7) for depth in (7, 9, 12, 15)]
    lopsided = [lopsided_tree(rng, depth, side) for depth in (7, 10, 30) for side in (0, 1)]
    small = [random_tree(rng, depth, 1.0) for depth in (1, 5, 6)] + [[(-1, 2.5, -1, 0, -1)]]
    return {"deep": deep, "thin": thin, "lopsided": lopsided, "all": deep + small + lopsided + thin + small}


def expected_of(flat, sets, batch):
    """Leaves and margins, added tree by tree in float32, of a walk in Python, of all repeats of the rows."""
    leaves, margin = [walk(flat, sets, row, np.nan) for row in batch], np.zeros((1, len(batch)), np.float32)
    for row, ends in enumerate(leaves):
        for root, leaf in zip(flat.first_node, ends):
            margin[0, row] += flat.leaf_values[root + leaf, 0]
    return leaves * REPEATS, np.tile(margin, REPEATS)


@pytest.mark.sweep(2)
@pytest.mark.parametrize("with_categories", [False, True])
@pytest.mark.parametrize("shape", ["deep", "thin", "lopsided", "all"])
def test_rows_end_where_a_walk_ends(shape, with_categories):
    rng = np.random.default_rng(len(shape))
    flat, sets, batch = forest(*forests(rng)[shape]), {}, random_batch(rng, N_ROWS)
    if with_categories:
        sets = random_sets(rng, flat)
        flat = with_sets(flat, sets)
        batch[rng.random(batch.shape) < 0.5] = rng.integers(-2, 100)
    leaves, margin = expected_of(flat, sets, batch)
    batch = np.tile(batch, (REPEATS, 1))
    assert len(batch) >= 2 * np.diff([*flat.first_node, len(flat.nodes)]).max()
    assert predict_values(batch, flat, n_threads=2)[1].tolist() == leaves
    for result in (*(predict_values(batch, flat, with_leaves=own)[0] for own in (False, True)), predict_few(batch, flat)):
        assert result.tobytes() == margin.tobytes()
    absent = np.float32(1.0)
    stored = batch != absent
    csr = scipy.sparse.csr_matrix((batch[stored], np.nonzero(stored)), stored.shape)
    rows, result = StoredRows(csr.indptr, csr.indices, csr.data, np.nan, absent, N_FEATURES), np.zeros_like(margin)
    CpuBackend(2).predictor.predict_sparse(rows, flat, result, None)
    assert result.tobytes() == margin.tobytes()


def splits_below(flat, root, node):
    at = flat.nodes[node]
    if at["feature"] < 0:
        return []
    left = root + int(at["left"])
    return [node, *splits_below(flat, root, left), *splits_below(flat, root, left + 1)]


@njit
def count_nodes(trees, leaf_values, tree_begin, columns, keys):
    nodes, n_levels, n_nodes = lay_out(trees, leaf_values, tree_begin, columns, keys, True)
    none = np.zeros(tree_begin.size + 1, np.int64)
    return n_nodes, lay_out_heaps(nodes, 64, tree_begin, n_nodes, n_levels, none, 2**20, True, False)[1]


def test_trees_that_grew_together_have_heaps_of_their_own_size():
    """Their nodes lie in turns, so that where the next tree begins says nothing of how many there are."""
    flat = grown_together(np.random.default_rng(5), np.full(N_FEATURES, 6), 3, 700)
    columns, keys = np.zeros(N_FEATURES, np.uint32), np.full(N_FEATURES, MISSING_KEY, np.uint32)
    n_nodes, begin = count_nodes(flat.nodes, flat.leaf_values, flat.first_node, columns, keys)
    assert n_nodes.tolist() == [1 + 2 * len(splits_below(flat, root, root)) for root in flat.first_node]
    assert (np.diff(begin) > 0).all() and (np.diff(begin) <= 6 * n_nodes).all()


@pytest.mark.parametrize("has_sets", [False, True])
def test_a_heap_takes_at_most_six_words_a_node(has_sets):
    for n_levels in range(40):
        for n_nodes in (2 * n_levels + 1, 1000, 2 ** (min(n_levels, 20) + 1) - 1):
            n = n_heap_levels(n_levels, n_nodes, 2**30, has_sets)
            assert n <= n_levels and (n == 0 or 3 << n <= 6 * n_nodes)
            assert n == 0 or has_sets or n_levels > MOST
    assert n_heap_levels(10, 2047, 4094, has_sets) == 10  # a full tree is all heap
    assert n_heap_levels(10, 2047, 4093, has_sets) == 0


def test_codes_of_keys():
    values = [0.0, -0.0, 1.0, 1.9, 70.0, 16777216.0, -1.0, -0.5, 2.0**31, 3e38, -3e38, 1e-45, np.nan]
    codes = [0, 0, 1, 1, 70, 16777216, NO_CODE, NO_CODE, NO_CODE, NO_CODE, NO_CODE, 0, MISSING_CODE]
    assert [int(code_of_key(value_key(np.float32(x), np.float32(np.nan)))) for x in values] == codes
