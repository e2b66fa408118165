"""kernels/predict.py and predict_codes.py: rows walk down trees, on values or on codes."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuboost.backend.contract import FlatTrees
from gpuboost.backend.cpu import CpuBackend
from gpuboost.binned.cuts import SENTINEL, Cuts
from gpuboost.binned.matrix import BinnedMatrix
from gpuboost.binned.pages import DensePage, ResidentPages
from gpuboost.kernels.few_rows import copy_row, pack_forest, predict_rows
from gpuboost.kernels.predict import ROW_BLOCK, predict_values_cpu
from gpuboost.kernels.predict_codes import predict_codes_cpu
from gpuboost.kernels.structs import FLAT_NODE, NUMERIC
from gpuboost.objectives.multiclass import argmax_row


def predict_values(batch, flat, n_outputs=1, *, missing=np.nan, n_threads=1, with_leaves=True, start=0.0):
    """Adapter: (margin (n_outputs, n_rows), leaves (n_rows, n_trees))."""
    margin = np.full((n_outputs, len(batch)), start, np.float32)
    leaves = np.full((len(batch), len(flat.first_node)), -1, np.int32)
    CpuBackend(n_threads).predictor.predict_values(batch, missing, flat, 0, margin, leaves if with_leaves else None)
    return margin, leaves


def predict_codes(columns, cuts, flat, n_outputs=1, *, n_threads=1):
    """Adapter: the same for codes, in two pages."""
    n_rows = columns.shape[1]
    half, none = n_rows // 2, np.empty((0, 8), columns.dtype)
    pages = [DensePage(np.ascontiguousarray(part), none) for part in (columns[:, :half], columns[:, half:])]
    margin, leaves = np.zeros((n_outputs, n_rows), np.float32), np.full((n_rows, len(flat.first_node)), -1, np.int32)
    CpuBackend(n_threads).predictor.predict_codes(BinnedMatrix(cuts, ResidentPages(tuple(pages))), flat, margin, leaves)
    return margin, leaves


def predict_few(batch, flat, n_outputs=1, *, missing=np.nan, start=0.0, row_map=copy_row):
    """Adapter: what the kernel without threads writes, or None where it refuses a value."""
    base, out = np.full(n_outputs, start, np.float32), np.full((n_outputs, len(batch)), -1, np.float32)
    words = pack_forest(*flat, base, batch.shape[1])
    return out if predict_rows(row_map)(batch, float(missing), words if flat.sets is None else words[None], out) else None


def forest(*trees, groups=None):
    """The flat layout of trees given as lists of (feature, threshold or value, left, default_left, bin)."""
    every = [node for tree in trees for node in tree]
    nodes = np.array([(t if f >= 0 else 0, f, b, NUMERIC, d, left) for f, t, left, d, b in every], FLAT_NODE)
    leaf_values = np.array([t if f < 0 else UNREAD for f, t, *_ in every], np.float32)[:, None]
    begin = np.cumsum([0, *map(len, trees)])[:-1].astype(np.int64)
    return FlatTrees(nodes, leaf_values, begin, np.array(groups or [0] * len(trees), np.int32), None)


UNREAD = 77.0  # the leaf value of a split
STUMP = [(0, 1.5, 1, 1, 0), (-1, 10.0, -1, 0, -1), (-1, 20.0, -1, 0, -1)]
DEEP = [(1, 0.0, 1, 0, 0), (-1, 1.0, -1, 0, -1), (0, 3.0, 3, 0, 1), (-1, 2.0, -1, 0, -1), (-1, 4.0, -1, 0, -1)]


def test_two_trees_by_hand():
    batch = np.array([[1.0, -1.0], [1.5, 0.0], [np.nan, np.nan], [9.0, 5.0]], np.float32)
    margin, leaves = predict_values(batch, forest(STUMP, DEEP))
    #   x₀ < 1.5: 10, else 20, missing left.   x₁ < 0: 1; else x₀ < 3: 2, else 4; missing right
    assert margin.tolist() == [[11, 22, 14, 24]]
    assert leaves.tolist() == [[1, 1], [2, 3], [1, 4], [2, 4]]


def test_few_rows_by_hand_and_through_a_row_map():
    batch = np.array([[1.0, -1.0], [1.5, 0.0], [np.nan, np.nan]], np.float32)
    assert predict_few(batch, forest(STUMP, DEEP), start=0.5).tolist() == [[11.5, 22.5, 14.5]]
    classes = predict_few(batch, forest(STUMP, DEEP, groups=[0, 1]), 2, start=[0.0, 15.0], row_map=argmax_row)
    assert classes[0].tolist() == [1, 0, 1]  # margins 10 | 16, 20 | 17, 10 | 19
    assert predict_few(np.array([[-999.0]]), forest(STUMP), missing=-999.0).tolist() == [[10]]
    assert predict_few(np.array([[0.0, -0.1]]), forest(DEEP), missing=-0.1).tolist() == [[2]]  # a float32 after rounding
    assert predict_few(np.array([[0.0, -0.1]]), forest(DEEP)).tolist() == [[1]]


@pytest.mark.parametrize("value", [np.inf, -np.inf, 3.5e38, 1e39, float(np.finfo(np.float32).max)])
def test_few_rows_with_values_beyond_float32_are_refused(value):
    assert predict_few(np.array([[1.0, 0.0], [0.0, value]]), forest(STUMP)) is None


def test_a_vector_leaf_adds_each_value_to_an_output_of_its_own():
    flat = forest(STUMP)
    flat = replace(flat, leaf_values=np.hstack([flat.leaf_values, flat.leaf_values + 1, -flat.leaf_values]))
    batch = np.array([[1.0], [1.5]], np.float32)
    for margin in (predict_values(batch, flat, 3, start=0.5)[0], predict_few(batch, flat, 3, start=0.5)):
        assert margin.tolist() == [[10.5, 20.5], [11.5, 21.5], [-9.5, -19.5]]


def test_trees_add_to_their_groups_margins():
    margin, _ = predict_values(np.array([[1.0, -1.0]], np.float32), forest(STUMP, DEEP, STUMP, groups=[1, 0, 1]), 2, start=0.5)
    assert margin.tolist() == [[1.5], [20.5]]


def test_a_threshold_goes_right_and_the_missing_value_by_default():
    batch = np.array([[1.5], [np.nextafter(np.float32(1.5), np.float32(0))], [-999.0]], np.float32)
    assert predict_values(batch, forest(STUMP))[1][:, 0].tolist() == [2, 1, 1]
    assert predict_values(np.array([[999.0]]), forest(STUMP), missing=999.0)[1].tolist() == [[1]]


def test_float64_values_are_rounded_to_float32_first():
    just_below = np.array([[1.5 - 1e-12]])
    assert predict_values(just_below, forest(STUMP))[1].tolist() == [[2]]


def test_a_tree_that_is_one_leaf():
    assert predict_values(np.zeros((2, 1)), forest([(-1, 7.0, -1, 0, -1)]))[0].tolist() == [[7, 7]]


def test_batches_of_rows_are_predicted_where_they_lie_by_the_kernel_of_all_rows():
    """Of several outputs, whose margins are then no array of one piece: another kernel would be compiled for seconds."""
    batch = np.random.default_rng(0).normal(size=(500, 3)).astype(np.float32)
    flat, predictor = forest(STUMP, DEEP, STUMP, groups=[1, 0, 1]), CpuBackend(2).predictor
    expected, expected_leaves = predict_values(batch, flat, 2, start=0.5)
    known = list(predict_values_cpu.dispatcher.signatures)
    margin, leaves = np.full((2, 500), 0.5, np.float32), np.full((500, 3), -1, np.int32)
    for own in (slice(0, 130), slice(130, 131), slice(131, 500)):
        assert predictor.predict_values(batch[own], np.nan, flat, own.start, margin, leaves)
        assert (margin[:, own.stop :] == 0.5).all() and (leaves[own.stop :] == -1).all()
    np.testing.assert_array_equal(margin, expected)
    np.testing.assert_array_equal(leaves, expected_leaves)
    assert predict_values_cpu.dispatcher.signatures == known


def test_leaves_are_optional():
    margin, leaves = predict_values(np.zeros((3, 2)), forest(STUMP), with_leaves=False)
    assert margin.tolist() == [[10, 10, 10]] and (leaves == -1).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    "value, is_held", [(np.inf, False), (-np.inf, False), (-3.4028235e38, False), (3.4e38, True), (np.nan, True)]
)
def test_values_beyond_float32_are_told_of_in_any_row_and_column(value, is_held, dtype):
    for row, column in [(0, 0), (ROW_BLOCK + 17, 1), (2 * ROW_BLOCK, 2)]:  # the stump reads column 0 only
        batch = np.zeros((2 * ROW_BLOCK + 1, 3), dtype)
        batch[row, column] = value
        for table in (batch, np.asfortranarray(batch)):
            margin = np.zeros((1, len(batch)), np.float32)
            told = CpuBackend(2).predictor.predict_values(table, np.nan, forest(STUMP), 0, margin, None)
            assert told is is_held and np.delete(margin[0], row).tolist() == [10.0] * (len(batch) - 1)


@pytest.mark.parametrize("lowest", [0, 3, 7, 8, 9, 15, 16, 29])
def test_rows_that_arrive_early_wait_for_those_that_go_down_a_lopsided_tree(lowest):
    n_levels = 29  # the split of level k sends x < k + 1 to leaf 2k + 1, others on to node 2k + 2
    pairs = [[(-1, float(k), -1, 0, -1), (0, k + 2.0, 2 * k + 3, 0, k + 1)] for k in range(n_levels)]
    tree = [(0, 1.0, 1, 0, 0), *(node for pair in pairs for node in pair)]
    tree[-1] = (-1, float(n_levels), -1, 0, -1)
    x = np.minimum(np.arange(8 * (lowest + 1)) // 8, lowest).astype(np.float32)
    margin, leaves = predict_values(x[:, None], forest(tree))
    assert margin[0].tolist() == x.tolist()
    assert leaves[:, 0].tolist() == [2 * int(k) + 1 if k < n_levels else 2 * n_levels for k in x]
    for place in (0, 7, 8):
        trees, groups = [STUMP] * 9, [0] * 9
        trees.insert(place, tree)
        groups.insert(place, 1)
        few = predict_few(x[:, None], forest(*trees, groups=groups), 2)
        assert few[1].tolist() == x.tolist() and few[0].tolist() == np.where(x < 1.5, 90.0, 180.0).tolist()


def test_margins_add_up_tree_by_tree_in_float32():
    tiny = [(-1, 2.0**-24, -1, 0, -1)]
    one = [(-1, 1.0, -1, 0, -1)]
    assert predict_values(np.zeros((1, 1)), forest(one, *[tiny] * 8))[0][0, 0] == 1  # each one alone is lost
    assert predict_values(np.zeros((1, 1)), forest(*[tiny] * 8, one))[0][0, 0] == np.float32(1 + 2.0**-21)


def random_forest(rng, cuts, n_trees):
    """Trees whose thresholds are cuts, bins included."""
    trees = []
    for _ in range(n_trees):
        tree = [None]
        open_nodes = [0]
        for _ in range(rng.integers(0, 8)):
            node = open_nodes.pop(rng.integers(0, len(open_nodes)))
            f = int(rng.integers(0, cuts.n_features))
            b = int(rng.integers(0, cuts.n_bins[f]))
            tree[node] = (f, cuts.of(f)[b], len(tree), int(rng.integers(0, 2)), b)
            open_nodes += [len(tree), len(tree) + 1]
            tree += [None, None]
        for node in open_nodes:
            tree[node] = (-1, np.float32(rng.normal()), -1, 0, -1)
        trees.append(tree)
    return forest(*trees, groups=rng.integers(0, 2, n_trees).tolist()), trees


def walk(tree, row):
    node = 0
    while tree[node][0] >= 0:
        feature, threshold, left, default_left, _ = tree[node]
        x = row[feature]
        node = left + (1 - default_left if np.isnan(x) else int(not x < threshold))
    return node


def check(rng, n_rows, n_bins, n_trees, n_threads):
    each = [np.append(np.unique(rng.normal(size=n - 1)).astype(np.float32), SENTINEL) for n in n_bins]
    offsets = np.cumsum([0, *map(len, each)]).astype(np.int32)
    cuts = Cuts(np.concatenate(each), offsets, np.zeros(len(each), bool), 256)
    batch = rng.normal(size=(n_rows, len(each))).astype(np.float32)
    batch[rng.random(batch.shape) < 0.2] = np.nan
    on_cut = rng.random(batch.shape) < 0.2
    batch[on_cut] = rng.choice(np.append(cuts.thresholds[cuts.thresholds < SENTINEL], np.float32(0)), on_cut.sum())
    flat, trees = random_forest(rng, cuts, n_trees)
    leaves = np.array([[walk(tree, row) for tree in trees] for row in batch], np.int32).reshape(n_rows, n_trees)
    margin = np.zeros((2, n_rows), np.float32)
    for t, tree in enumerate(trees):
        margin[flat.first_output[t]] += np.array([tree[leaf][1] for leaf in leaves[:, t]], np.float32)
    codes = [np.searchsorted(cuts.of(f)[:-1], batch[:, f], side="right") for f in range(cuts.n_features)]
    columns = np.where(np.isnan(batch.T), cuts.n_bins[:, None], codes)
    dtype = np.uint8 if columns.max(initial=0) < 256 else np.uint16
    results = [
        predict_values(batch, flat, 2, n_threads=n_threads),
        predict_values(np.asfortranarray(batch.astype(np.float64)), flat, 2, n_threads=n_threads),
        predict_codes(columns.astype(dtype), cuts, flat, 2, n_threads=n_threads),
    ]
    for table in (batch, batch.astype(np.float64)[::-1][::-1], np.asfortranarray(batch)):
        np.testing.assert_array_equal(predict_few(table, flat, 2), margin)
    for got_margin, got_leaves in results:
        np.testing.assert_array_equal(got_leaves, leaves)
        np.testing.assert_array_equal(got_margin, margin)


@settings(max_examples=40)
@given(
    st.integers(0, 2**32), st.integers(0, 20), st.lists(st.integers(1, 6), min_size=1, max_size=4),
    st.sampled_from([1, 2, 3, 4, 8, 9, 17]), st.sampled_from([1, 3]),
)  # fmt: skip
def test_values_and_codes_equal_a_walk_in_python(seed, n_rows, n_bins, n_trees, n_threads):
    check(np.random.default_rng(seed), n_rows, n_bins, n_trees, n_threads)


def grown_together(rng, n_bins, n_trees, n_splits, leaf_size=1):
    """Trees as leaves.flatten_trees_cpu lays them out: roots first, then children in pairs, the trees' in turns; and nodes
    that no row meets, as pruning leaves them."""
    nodes = np.zeros(n_trees, FLAT_NODE)
    owner, is_open = list(range(n_trees)), list(range(n_trees))
    for _ in range(n_splits):
        node = is_open.pop(rng.integers(0, len(is_open)))
        f = int(rng.integers(0, len(n_bins)))
        nodes[node] = (0, f, rng.integers(0, n_bins[f]), NUMERIC, rng.integers(0, 2), len(nodes) - owner[node])
        is_open += [len(nodes), len(nodes) + 1]
        owner += [owner[node]] * 2
        nodes = np.append(nodes, np.zeros(2, FLAT_NODE))
    pruned = is_open + ([n_trees] if len(nodes) > n_trees else [])
    nodes["feature"][pruned], nodes["left"][pruned] = -1, -1
    leaf_values = np.where(nodes["feature"] < 0, rng.normal(size=(leaf_size, len(nodes))), UNREAD).T.astype(np.float32, order="C")
    return FlatTrees(nodes, leaf_values, np.arange(n_trees), rng.integers(0, 2, n_trees).astype(np.int32), None)


def walk_codes(flat, columns, n_bins, rows, start):
    """Margins and leaves, row by row in plain Python."""
    margin, leaves = start.copy(), np.full((columns.shape[1], len(flat.first_node)), -1, np.int32)
    for row in rows:
        for t, begin in enumerate(flat.first_node):
            node = 0
            while (at := flat.nodes[begin + node])["feature"] >= 0:
                code = columns[at["feature"], row]
                is_left = at["default_left"] == 1 if code == n_bins[at["feature"]] else code <= at["bin"]
                node = at["left"] + (not is_left)
            leaves[row, t] = node
            for own, value in enumerate(flat.leaf_values[begin + node]):
                margin[flat.first_output[t] + own, row] += value
    return margin, leaves


@settings(max_examples=40)
@given(
    st.integers(0, 2**32), st.integers(1, 40), st.integers(1, 4), st.integers(1, 5), st.integers(0, 12),
    st.sampled_from([np.uint8, np.uint16, np.uint32]), st.sampled_from([1, 3]), st.sampled_from([1, 3]),
)  # fmt: skip
def test_listed_rows_through_trees_that_grew_together(seed, n_rows, n_features, n_trees, n_splits, dtype, leaf_size, n_threads):
    rng = np.random.default_rng(seed)
    n_bins = rng.integers(1, 6, n_features).astype(np.int32)
    columns = np.stack([rng.integers(0, n + 1, n_rows) for n in n_bins]).astype(dtype)  # n is missing
    flat = grown_together(rng, n_bins, n_trees, n_splits, leaf_size)
    rows = rng.permutation(n_rows)[: rng.integers(0, n_rows + 1)].astype(np.int32)
    start = rng.normal(size=(1 + leaf_size, n_rows)).astype(np.float32)
    expected, expected_leaves = walk_codes(flat, columns, n_bins, rows if len(rows) else range(n_rows), start)
    margin, leaves = start.copy(), np.full_like(expected_leaves, -1)
    predict_codes_cpu(columns, n_bins, rows, *flat, margin, leaves, n_threads)
    np.testing.assert_array_equal(margin, expected)
    np.testing.assert_array_equal(leaves, expected_leaves)


@pytest.mark.parametrize("n_threads", [1, 3])
def test_more_rows_than_a_block_and_more_bins_than_a_byte(n_threads):
    check(np.random.default_rng(24), 3 * ROW_BLOCK + 1, [2, 300, 256], 3, n_threads)
