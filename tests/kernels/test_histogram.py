"""kernels/histogram.py: sums of packed pairs per bin, exact in integers."""

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuboost.backend.contract import TrainingRows
from gpuboost.backend.cpu import CpuBackend
from gpuboost.backend.plans import FrontierBatch
from gpuboost.binned.cuts import SENTINEL, Cuts
from gpuboost.binned.matrix import BinnedMatrix
from gpuboost.binned.pages import DensePage, ResidentPages
from gpuboost.growing.plan import Planner
from gpuboost.kernels import histogram
from gpuboost.kernels.jit import launch, parallel_kernel
from gpuboost.kernels.structs import NODE
from gpuboost.params import Params


def build(columns, n_bins, pairs, rows_of, *, n_limbs=1, vector=False, page_rows=None, n_threads=1):
    """Adapter: int64 (n_nodes, n_outputs, total_bins, 2), the histograms of some nodes.

    columns : integers (n_features, n_rows); code n_bins[f] is missing. pairs : integers (n_outputs, n_rows, 2).
    rows_of : (tree, rows) of each node. Each output has a tree of its own, or with ``vector`` all are outputs of one tree.
    """
    n_outputs, n_rows = pairs.shape[:2]
    dtype = np.uint8 if columns.max(initial=0) < 256 and max(n_bins) <= 256 else np.uint16
    offsets = np.cumsum([0, *n_bins]).astype(np.int32)
    cuts = Cuts(np.full(offsets[-1], SENTINEL), offsets, np.zeros(len(n_bins), bool), 256)
    bounds = list(range(0, max(n_rows, 1), page_rows or max(n_rows, 1))) + [n_rows]
    pages = []
    for first, last in zip(bounds, bounds[1:]):
        records = np.zeros((last - first, -(-len(n_bins) // 8) * 8), dtype)
        records[:, : len(n_bins)] = columns[:, first:last].T
        pages.append(DensePage(columns[:, first:last].astype(dtype), records))
    rows = TrainingRows(BinnedMatrix(cuts, ResidentPages(pages)), np.zeros((1, n_rows), np.float32), np.zeros(0, np.float32),
                        np.zeros((n_outputs, n_rows), np.float32), n_rows)  # fmt: skip
    params = Params(histogram_memory=2**30)
    backend = CpuBackend(n_threads)
    n_trees, leaf_size = (1, n_outputs) if vector else (n_outputs, 1)
    training = backend.start_training(rows, params, n_trees, leaf_size)
    trees, arrays = training.trees, training.trees.arrays
    training.gradients.n_limbs = np.full(n_outputs, n_limbs, np.int32)
    grad, hess = pairs[..., 0], pairs[..., 1]
    low = (grad + 32768 & 0xFFFF) - 32768  # signed low limb
    limbs = [(grad, hess)]
    if np.any(n_limbs != 1):
        is_fine = np.reshape(n_limbs == 2, (-1, 1))
        limbs = [(np.where(is_fine, grad - low >> 16, grad), np.where(is_fine, hess >> 16, hess)), (low, hess & 0xFFFF)]
    packed = np.stack([((g & 0xFFFF) << 16 | h).astype(np.uint32).view(np.int32) for g, h in limbs], axis=1)
    training.gradients.scales = np.ones((n_outputs, 2))
    training.start_round(Planner(params, cuts, n_rows, n_trees, leaf_size).plan(0, 0.3))
    trees.start(np.zeros((n_outputs, 3), np.int64))
    arrays.reserve(max(len(rows_of), 1))
    arrays.nodes["tree"][: len(rows_of)] = [tree for tree, _ in rows_of]
    for p, (first, last) in enumerate(zip(bounds, bounds[1:])):
        part = training._pages[p]
        part.gpair = np.ascontiguousarray(packed[:, :, first:last])
        if len(part.by_row):
            histogram.lay_out_by_row_cpu(part.gpair, part.by_row, 2)
        part.lists = np.full((2, sum(len(members) for _, members in rows_of) + 1), -1, np.int32)
        filled = [0, 0]
        for node, (_, members) in enumerate(rows_of):
            own, side = members[(members >= first) & (members < last)] - first, node % 2
            arrays.segments[p, node] = filled[side], filled[side] + len(own), side
            part.lists[side, filled[side] : filled[side] + len(own)] = own
            filled[side] += len(own)
    trees._frontier = np.arange(len(rows_of), dtype=np.int32)
    for _ in range(2):  # the second time finds the scratch as the first left it
        built = trees.build_histograms(FrontierBatch(0, len(rows_of), 0, False)).copy()
    return built


def by_numpy(columns, n_bins, pairs, rows_of, vector=False):
    offsets = np.cumsum([0, *n_bins])
    outputs = [range(len(pairs)) if vector else [tree] for tree, _ in rows_of]
    hist = np.zeros((len(rows_of), len(pairs) if vector else 1, offsets[-1], 2), np.int64)
    for node, (_, members) in enumerate(rows_of):
        for own, output in enumerate(outputs[node]):
            for f, n in enumerate(n_bins):
                present = members[columns[f, members] < n]
                np.add.at(hist[node, own], offsets[f] + columns[f, present], pairs[output, present])
    return hist


def check(columns, n_bins, pairs, rows_of, **arguments):
    expected = by_numpy(columns, n_bins, pairs, rows_of, arguments.get("vector", False))
    np.testing.assert_array_equal(build(columns, n_bins, pairs, rows_of, **arguments), expected)


def test_six_rows_by_hand():
    columns = np.array([[0, 1, 0, 2, 1, 0], [0, 0, 0, 0, 1, 1]])  # feature 0 has 2 bins: code 2 is missing
    pairs = np.array([[[1, 10], [2, 20], [3, 30], [4, 40], [5, 50], [-6, 60]]])
    hist = build(columns, [2, 1], pairs, [(0, np.arange(6)), (0, np.array([0, 5]))])
    assert hist[0, 0].tolist() == [[1 + 3 - 6, 100], [2 + 5, 70], [1 + 2 + 3 + 4, 100]]
    assert hist[1, 0].tolist() == [[1 - 6, 70], [0, 0], [1, 10]]


def test_a_node_without_rows_is_zero():
    columns, pairs = np.array([[0, 1]]), np.array([[[5, 5], [6, 6]]])
    hist = build(columns, [2], pairs, [(0, np.arange(0)), (0, np.arange(2)), (0, np.arange(0))])
    assert not hist[0].any() and not hist[2].any() and hist[1].any()


def random_case(rng, n_rows, n_bins, n_outputs, n_nodes, missing, vector, limit=(32767, 65535)):
    columns = np.stack([np.where(rng.random(n_rows) < missing, n, rng.integers(0, n, n_rows)) for n in n_bins])
    grad = rng.integers(-limit[0], limit[0] + 1, (n_outputs, n_rows))
    pairs = np.stack([grad, rng.integers(0, limit[1] + 1, (n_outputs, n_rows))], axis=-1)
    trees = [0] if vector else list(range(n_outputs))
    rows_of = []
    for tree in trees:
        owner = rng.integers(0, n_nodes, n_rows)
        rows_of += [(tree, np.flatnonzero(owner == node)) for node in range(n_nodes - 1)]  # the last node is not built
    return columns, n_bins, pairs, rows_of


@settings(max_examples=60)
@given(
    st.integers(0, 2**32), st.integers(0, 40), st.lists(st.integers(1, 6), min_size=1, max_size=10), st.integers(1, 3),
    st.integers(2, 5), st.sampled_from([0.0, 0.3, 1.0]), st.booleans(), st.sampled_from([None, 7]), st.sampled_from([1, 3]),
)  # fmt: skip
def test_random_nodes_equal_numpy(seed, n_rows, n_bins, n_outputs, n_nodes, missing, vector, page_rows, n_threads):
    case = random_case(np.random.default_rng(seed), n_rows, n_bins, n_outputs, n_nodes, missing, vector)
    check(*case, vector=vector, page_rows=page_rows, n_threads=n_threads)


@pytest.mark.parametrize("n_bins", [[3] * 33, [255] * 9, [256] * 3, [2, 300, 70], [4] * 130, [300] * 129, [65535]])
@pytest.mark.parametrize("n_threads", [1, 3])
def test_many_features_and_bins(n_bins, n_threads):
    missing = 0.0 if max(n_bins) == 256 else 0.1
    check(*random_case(np.random.default_rng(26), 1500, n_bins, 1, 3, missing, False), n_threads=n_threads)


@pytest.mark.parametrize("n_outputs", [2, 4, 5, 8, 9, 21])
@pytest.mark.parametrize("n_bins", [[3] * 33, [255] * 9 + [4], [2, 300, 70, 9, 5]])
@pytest.mark.parametrize("n_threads", [1, 3])
def test_outputs_are_added_together(n_outputs, n_bins, n_threads):
    """Some or all of as many as are added at once, and of the next ones; more rows than are gathered at once."""
    case = random_case(np.random.default_rng(25), 2100, n_bins, n_outputs, 3, 0.1, True)
    check(*case, vector=True, n_threads=n_threads)
    check(*case, vector=True, n_threads=n_threads, page_rows=1500)


@pytest.mark.parametrize("n_outputs", [3, 6])
def test_outputs_of_a_node_shared_by_several_work_items(n_outputs, monkeypatch):
    monkeypatch.setattr(histogram, "MIN_SLICE_ROWS", 100)
    case = random_case(np.random.default_rng(24), 5000, [7, 3, 12], n_outputs, 3, 0.1, True)
    for _ in range(2):  # with the same scratch
        check(*case, vector=True, n_threads=3)


def test_outputs_of_one_limb_beside_some_of_two():
    """Those of one limb are added together as far as they are neighbours."""
    columns, n_bins, pairs, rows_of = random_case(np.random.default_rng(23), 900, [5, 2, 40], 9, 3, 0.1, True)
    is_fine = np.isin(np.arange(9), [2, 3, 8])
    pairs[~is_fine] = np.sign(pairs[~is_fine]) * (abs(pairs[~is_fine]) >> 4)
    pairs[is_fine] <<= 12
    check(columns, n_bins, pairs, rows_of, n_limbs=np.where(is_fine, 2, 1), vector=True, n_threads=2)


@pytest.mark.parametrize("n_rows", [1023, 1024, 1025, 2048, 2100])
@pytest.mark.parametrize("n_bins", [[3] * 20, [255] * 9, [300] * 9])
def test_rows_at_the_borders_of_gathered_blocks(n_rows, n_bins):
    columns, _, pairs, _ = random_case(np.random.default_rng(n_rows), n_rows, n_bins, 1, 2, 0.1, False)
    check(columns, n_bins, pairs, [(0, np.arange(n_rows)), (0, np.arange(0, n_rows, 2))])


@pytest.mark.parametrize("n_threads", [1, 3])
@pytest.mark.parametrize("vector", [False, True])
def test_two_limbs_add_up_to_32_bits(vector, n_threads):
    case = random_case(np.random.default_rng(27), 3000, [5, 2, 40], 2, 3, 0.1, vector, limit=(2**31 - 2**16, 2**32 - 1))
    check(*case, n_limbs=2, vector=vector, n_threads=n_threads)


@pytest.mark.parametrize("n_threads", [1, 3])
def test_a_node_shared_by_several_work_items(n_threads, monkeypatch):
    monkeypatch.setattr(histogram, "MIN_SLICE_ROWS", 100)
    case = random_case(np.random.default_rng(28), 5000, [7, 3, 12], 2, 3, 0.1, False)
    check(*case, n_threads=n_threads)
    check(*case, n_threads=n_threads, page_rows=1777)


@pytest.mark.parametrize("n_limbs, grad, hess", [
    (1, 32767, 65535), (1, -32767, 65535), (2, -32768, 65535), (2, -(2**31) + 2**16, 2**32 - 1),
])  # fmt: skip
def test_the_largest_pairs_do_not_overflow_in_one_bin(n_limbs, grad, hess):
    n_rows = 2 * histogram.FLUSH_ROWS + 5
    pairs = np.empty((1, n_rows, 2), np.int64)
    pairs[...] = grad, hess
    hist = build(np.zeros((1, n_rows), np.int64), [2], pairs, [(0, np.arange(n_rows))], n_limbs=n_limbs)
    assert hist[0, 0].tolist() == [[n_rows * grad, n_rows * hess], [0, 0]]


def test_sibling_equals_parent_minus_child():
    rng = np.random.default_rng(29)
    columns, n_bins, pairs, _ = random_case(rng, 1000, [5, 3, 8], 1, 2, 0.2, False)
    goes_left = rng.random(1000) < 0.3
    nodes = [(0, np.arange(1000)), (0, np.flatnonzero(goes_left)), (0, np.flatnonzero(~goes_left))]
    parent, left, right = hist = build(columns, n_bins, pairs, nodes)
    histogram.subtract_histograms_cpu(np.array([0], np.int32), 1, hist, 2)
    np.testing.assert_array_equal(parent, right)
    assert left.any() and right.any()


@pytest.mark.parametrize("n_threads", [1, 3])
def test_subtraction_changes_the_parents_slots_only(n_threads):
    hist = np.random.default_rng(30).integers(-(2**62), 2**62, (9, 2, 50, 2)) // 4
    before = hist.copy()
    parents = np.array([0, 7, 8], np.int32)
    histogram.subtract_histograms_cpu(parents, 2, hist, n_threads)
    before[parents] -= before[2:5]
    np.testing.assert_array_equal(hist, before)


@pytest.mark.parametrize("n_threads", [1, 2, 3, 5])
@pytest.mark.parametrize("n_codes", [1, 7, 13, 28])
@pytest.mark.parametrize("sizes", [[histogram.FLUSH_ROWS - 1], [19_000, 5_000, 0], [7, 9, 30]])
def test_packed_sums_of_few_large_nodes_are_added_up_from_slices(sizes, n_codes, n_threads):
    """Of the largest pairs there are, in part; and taken from their parents', whose slots are behind theirs."""
    rng, n, n_rows = np.random.default_rng(27), len(sizes), sum(sizes)
    codes = np.zeros((n_rows, histogram.record_bytes(n_codes)), np.uint8)
    codes[:, :n_codes] = rng.integers(0, 3, (n_rows, n_codes)) * 127
    grad, hess = rng.choice([-32767, 0, 32767], n_rows), rng.choice([0, 65535], n_rows)
    gpair = ((grad & 0xFFFF) << 16 | hess).astype(np.uint32).view(np.int32).reshape(1, 1, -1)
    shuffled, ends = rng.permutation(n_rows).astype(np.int32), np.cumsum(sizes)
    nodes, segments = np.zeros(n, NODE), np.zeros((n, 3), np.int64)
    nodes["slot"], segments[:, 0], segments[:, 1], segments[:, 2] = np.arange(n), ends - sizes, ends, np.arange(n) % 2
    rows = np.full((2, n_rows), -1, np.int32)
    for begin, end, side in segments:
        rows[side, begin:end] = shuffled[begin:end]
    shape = histogram.packed_shape(n_codes)
    before = rng.integers(-(2**40), 2**40, (n, *shape))
    hist = np.concatenate([np.full((n, *shape), 77), before])
    histogram.build_packed_cpu(
        np.arange(n, dtype=np.int32), np.arange(n, 2 * n, dtype=np.int32), nodes, segments, np.zeros(1, np.int32), n_codes,
        codes.view(np.uint64), rows, gpair, hist, n_threads,
    )  # fmt: skip
    for node, (begin, end) in enumerate(zip(ends - sizes, ends)):
        own = shuffled[begin:end]
        for column in range(n_codes):
            expected = np.zeros(shape[1], np.int64)
            np.add.at(expected, codes[own, column].astype(int), grad[own] * 2**32 + hess[own])
            np.testing.assert_array_equal(hist[node, column], expected)
            np.testing.assert_array_equal(hist[n + node, column], before[node, column] - expected)


def test_a_node_is_cut_where_that_is_less_work():
    """n slices take as long as rows / n + 1024 · n rows: two from 4096 rows on, seven of 65535. Each thread has one at most."""
    count = histogram.count_slices.py_func
    assert [count(n_rows, 1, 64) for n_rows in (0, 4095, 4096, 9216, 65535)] == [1, 1, 2, 3, 7]
    assert [count(65535, n_histograms, 8) for n_histograms in (1, 2, 3, 4, 7, 8, 20)] == [7, 4, 3, 2, 2, 1, 1]
    assert count(65535, 1, 1) == 1 and count(0, 0, 2) == 1


WORD = 8 * histogram.BYTE_STRIDE


@parallel_kernel.part
def _add_slices(thread, sums, totals, parents, n_added, locks, n_threads):
    for item in range(totals.shape[0]):
        own = totals[item].reshape(-1)
        histogram._add_slice(sums[thread], own, parents[item], item * (own.size // WORD), n_added, locks, n_threads)


@parallel_kernel
def add_slices_cpu(sums, totals, parents, n_added, locks, n_threads):
    launch(n_threads, _add_slices, (sums, totals, parents, n_added, locks, n_threads))


def test_slices_that_are_ready_together_are_added_one_at_a_time():
    """All threads add to the same totals at once, and one of them takes each from its parent's, when it is whole."""
    n_threads, n_items, n_words = numba.config.NUMBA_NUM_THREADS, 1000, 2
    sums = np.arange(n_threads * n_words * WORD).reshape(n_threads, -1)
    totals, parents = np.full((n_items, n_words * WORD), 7), np.full((n_items, n_words * WORD), 5)
    n_added, locks = np.zeros(n_items * n_words, np.int64), np.zeros(n_items * n_words, np.uint8)
    add_slices_cpu(sums, totals, parents, n_added, locks, n_threads)
    np.testing.assert_array_equal(totals, np.broadcast_to(sums.sum(axis=0), totals.shape))
    np.testing.assert_array_equal(parents, 5 - totals)
    assert (n_added == n_threads).all() and not locks.any()
