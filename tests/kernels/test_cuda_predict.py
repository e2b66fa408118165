"""kernels/predict.py and predict_codes.py on a GPU: rows end in the leaves, and margins in the floats, of the CPU twin."""

from dataclasses import replace

import numpy as np
import pytest
from cuda_runners import assert_same, each_runner
from hypothesis import given, settings
from hypothesis import strategies as st
from test_predict_kernel import DEEP, STUMP, forest

from gpuboost.kernels import predict_words
from gpuboost.kernels.predict import predict_values_cpu, predict_values_kernel
from gpuboost.kernels.predict_codes import predict_codes_cpu, predict_codes_kernel

NO_LIST = np.zeros(0, np.int32)


def on_device(flat):
    """Trees as the GPU's kernels take them: sets are an array, empty where there are none."""
    return flat if flat.sets is not None else replace(flat, sets=np.zeros(0, np.uint32))


@each_runner
def test_two_trees_by_hand(run):
    values = np.array([[1.0, 1.5, np.nan, 9.0, -999], [-1.0, 0.0, np.nan, 5.0, -1.0]], np.float32)
    margin, leaves = np.full((2, 7), 0.5, np.float32), np.full((7, 2), -1, np.int32)
    run(predict_values_kernel, values, -999.0, *on_device(forest(STUMP, DEEP, groups=[1, 0])), 2, margin, leaves, threads=5)
    #   x₀ < 1.5: 10, else 20, missing left.   x₁ < 0: 1; else x₀ < 3: 2, else 4; missing right
    assert margin.tolist() == [[0.5, 0.5, 1.5, 2.5, 4.5, 4.5, 1.5], [0.5, 0.5, 10.5, 20.5, 10.5, 20.5, 10.5]]
    assert leaves.tolist() == [[-1, -1], [-1, -1], [1, 1], [2, 3], [1, 4], [2, 4], [1, 1]]
    #   the same rows as codes; feature 0 has thresholds 1.5, 3, above: bins 0, 1, 2 and missing 3
    codes = np.array([[0, 1, 3, 2, 3], [0, 1, 2, 1, 0]], np.uint8)
    again, again_leaves = np.full((2, 7), 0.5, np.float32), np.full((7, 2), -1, np.int32)
    n_bins, flat = np.array([3, 2], np.int32), forest(STUMP, DEEP, groups=[1, 0])
    run(predict_codes_kernel, codes, n_bins, NO_LIST, np.array([0, 5]), *on_device(flat), 2, again, again_leaves, threads=5)
    assert_same(again, margin)
    assert_same(again_leaves, leaves)


def random_forest(rng, thresholds, n_trees, n_outputs, leaf_size=1):
    """Trees that split on these thresholds (a list of ascending values for each feature), bins included."""
    trees = []
    for _ in range(n_trees):
        tree, is_open = [None], [0]
        for _ in range(rng.integers(0, 8)):
            node = is_open.pop(rng.integers(0, len(is_open)))
            f = int(rng.integers(0, len(thresholds)))
            b = int(rng.integers(0, len(thresholds[f])))
            tree[node] = (f, thresholds[f][b], len(tree), int(rng.integers(0, 2)), b)
            is_open += [len(tree), len(tree) + 1]
            tree += [None, None]
        for node in is_open:
            tree[node] = (-1, np.float32(rng.normal()), -1, 0, -1)
        trees.append(tree)
    flat = forest(*trees, groups=rng.integers(0, n_outputs - leaf_size + 1, n_trees).tolist())
    others = rng.normal(size=(len(flat.nodes), leaf_size - 1)).astype(np.float32)
    return replace(flat, leaf_values=np.hstack([flat.leaf_values, others]))


def run_by_words(run, flat, table, missing, n_bins, first_row, margin, leaves, has_cells):
    """predict_words.py, the first trees and then the others. n_bins : of codes."""
    n_trees, kernel = len(flat.first_node), predict_words.predict_by_words_kernel(n_bins is not None, has_cells)
    begin = np.append(flat.first_node, len(flat.nodes))
    assert predict_words.have_words(flat.nodes, 1, np.diff(begin).max(initial=0))
    for first, end in ((0, n_trees // 3), (n_trees // 3, n_trees)):
        own = slice(begin[first], begin[end])
        feature = flat.nodes["feature"][own]
        features = np.unique(feature[feature >= 0]).astype(np.int32) if has_cells else np.zeros(0, np.int32)
        words = predict_words.split_words(flat.nodes[own], flat.leaf_values[own], n_bins, features)
        run(
            kernel, table, missing, words, begin[first:end] - begin[first], flat.first_output[first:end], features, first_row,
            margin, first, leaves, threads=-(-table.shape[1] // predict_words.ROWS_PER_THREAD),
            shared=predict_words.shared_bytes(len(words), len(features), kernel.block),
        )  # fmt: skip


def check_values(run, flat, values, missing, margin, first_row, with_leaves):
    """Margins and leaves of a batch equal the CPU's; other rows stay. values : float32 (n_features, rows)."""
    start = margin.copy()
    expected, own = margin.copy(), slice(first_row, first_row + values.shape[1])
    leaves = np.full((margin.shape[1] if with_leaves else 0, len(flat.first_node)), -7, np.int32)
    expected_leaves = leaves.copy()
    predict_values_cpu(values.T, np.float32(missing), *flat, own.start, expected, expected_leaves, 1)
    run(predict_values_kernel, values, missing, *on_device(flat), first_row, margin, leaves, threads=values.shape[1])
    assert_same(margin, expected)
    assert_same(leaves, expected_leaves)
    for has_cells in (True, False) if flat.leaf_values.shape[1] == 1 else ():
        again, leaves[...] = start.copy(), -7
        run_by_words(run, flat, values, missing, None, first_row, again, leaves, has_cells)
        assert_same(again, expected)
        assert_same(leaves, expected_leaves)


def check_codes(run, flat, columns, n_bins, margin, first_row, with_leaves):
    expected, own = margin.copy(), slice(first_row, first_row + columns.shape[1])
    leaves = np.full((margin.shape[1] if with_leaves else 0, len(flat.first_node)), -7, np.int32)
    expected_leaves = leaves.copy()
    n_rows = columns.shape[1]
    rows, start = np.arange(n_rows, dtype=np.int32), margin.copy()
    predict_codes_cpu(columns, n_bins, rows, *flat, expected[:, own], expected_leaves[own], 1)
    counts = np.array([3, n_rows])
    run(predict_codes_kernel, columns, n_bins, NO_LIST, counts, *on_device(flat), first_row, margin, leaves, threads=n_rows)
    assert_same(margin, expected)
    assert_same(leaves, expected_leaves)
    for has_cells in (True, False) if flat.leaf_values.shape[1] == 1 else ():
        again, leaves[...] = start.copy(), -7
        run_by_words(run, flat, columns, np.nan, n_bins, first_row, again, leaves, has_cells)
        assert_same(again, expected)
        assert_same(leaves, expected_leaves)
    #   and some of them, from the back of a list
    listed = np.random.default_rng(n_rows).permutation(n_rows).astype(np.int32)
    n_listed = n_rows // 3
    is_listed = np.isin(np.arange(margin.shape[1]) - first_row, listed[n_rows - n_listed :])
    counts = np.array([n_rows - n_listed, n_listed])
    some = np.full_like(leaves, -7)
    margin[...] = start
    run(predict_codes_kernel, columns, n_bins, listed, counts, *on_device(flat), first_row, margin, some, threads=n_rows)
    assert_same(margin, np.where(is_listed, expected, start))
    if with_leaves:
        assert_same(some, np.where(is_listed[:, None], expected_leaves, np.int32(-7)))


def check(run, rng, n_rows, bins, n_trees, n_outputs, leaf_size=1, missing=np.nan, first_row=0, with_leaves=True):
    """Random trees on random rows, by values and by codes of both widths. bins : number of bins of each feature."""
    thresholds = [np.sort(rng.normal(size=n).astype(np.float32)) for n in bins]
    flat = random_forest(rng, thresholds, n_trees, n_outputs, leaf_size)
    special = np.concatenate([*thresholds, np.float32([0.0, -0.0, np.nan, np.inf, -np.inf, missing])])
    shape = len(bins), n_rows
    values = np.where(rng.random(shape) < 0.5, rng.choice(special, shape), rng.normal(size=shape))
    start = rng.normal(size=(n_outputs, first_row + n_rows + 1)).astype(np.float32)
    check_values(run, flat, values.astype(np.float32), missing, start.copy(), first_row, with_leaves)
    n_bins = np.array(bins, np.int32)
    codes = (rng.random(shape) * (n_bins[:, None] + 1)).astype(np.int64)  # n_bins is the missing code
    for dtype in (np.uint8, np.uint16):
        if codes.max(initial=0) <= np.iinfo(dtype).max:
            check_codes(run, flat, codes.astype(dtype), n_bins, start.copy(), first_row, with_leaves)


@pytest.mark.sweep(1)
@each_runner
@settings(max_examples=15)
@given(
    st.integers(0, 2**32), st.integers(0, 40), st.lists(st.integers(1, 6), min_size=1, max_size=4), st.integers(0, 4),
    st.sampled_from([(1, 1), (3, 1), (2, 2), (3, 2)]), st.sampled_from([np.nan, -999.0, 0.0]), st.integers(0, 3), st.booleans(),
)  # fmt: skip
def test_random_trees_send_rows_where_the_cpu_does(run, seed, n_rows, bins, n_trees, outputs, missing, first_row, with_leaves):
    """outputs : of all trees, and of each."""
    check(run, np.random.default_rng(seed), n_rows, bins, n_trees, *outputs, missing, first_row, with_leaves)


@each_runner
@pytest.mark.parametrize("n_rows, bins", [(0, [2]), (1, [1]), (310, [3, 2]), (40, [2] * 33), (50, [255, 256, 300, 40000])])
def test_tables_at_the_edge(run, n_rows, bins):
    check(run, np.random.default_rng(n_rows), n_rows, bins, 4, 2)


@each_runner
def test_rows_without_a_value_follow_the_default(run):
    flat = random_forest(np.random.default_rng(11), [np.float32([0.0]), np.float32([1.0, 2.0])], 5, 1)
    for absent, missing in ((np.nan, np.nan), (4.0, 4.0), (np.nan, 4.0)):
        check_values(run, flat, np.full((2, 5), absent, np.float32), missing, np.zeros((1, 5), np.float32), 0, True)
    codes, n_bins = np.array([[1] * 5, [2] * 5], np.uint8), np.array([1, 2], np.int32)
    check_codes(run, flat, codes, n_bins, np.zeros((1, 5), np.float32), 0, True)


@each_runner
def test_margins_add_up_tree_by_tree_in_float32(run):
    tiny, one = [(-1, 2.0**-24, -1, 0, -1)], [(-1, 1.0, -1, 0, -1)]
    for trees, expected in (((one, *[tiny] * 8), 1.0), ((*[tiny] * 8, one), 1 + 2.0**-21)):  # each tiny one alone is lost
        margin, leaves = np.zeros((1, 1), np.float32), np.zeros((0, 0), np.int32)
        flat = on_device(forest(*trees))
        run(predict_values_kernel, np.zeros((1, 1), np.float32), np.nan, *flat, 0, margin, leaves, threads=1)
        assert margin[0, 0] == np.float32(expected)
