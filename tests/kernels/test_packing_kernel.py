"""kernels/packing.py: records are the sums of their look-up tables, and histograms come back as those of the features."""

import numpy as np
import pytest
from cuda_runners import assert_same, each_runner
from hypothesis import given, settings
from hypothesis import strategies as st
from packed_tables import KINDS, columns_of, cuts_of, pack, pages_of, sparse_of

from gpuboost.backend.cpu import CpuBackend
from gpuboost.backend.cpu.cells import CellLists
from gpuboost.data.packing import find_packing, find_sparse_packing
from gpuboost.kernels import packing as kernels
from gpuboost.kernels.histogram import ADD, ADD_SHARED, ASSIGN, BYTE_STRIDE
from gpuboost.kernels.partition import list_chunks, mark_rows_cpu
from gpuboost.kernels.structs import CATEGORICAL, NODE, NUMERIC

ANY_KINDS = st.lists(st.sampled_from(sorted(KINDS)), min_size=1, max_size=5)
ALL_KINDS = sorted(KINDS)


def packed_columns(kinds, n_rows, seed):
    columns, n_bins = columns_of(kinds, n_rows, seed)
    return columns, n_bins, find_packing(pages_of(columns), cuts_of(n_bins), CpuBackend(1))


# ---- records


def records_by_cpu(columns, packing, width, n_threads=1):
    records = np.zeros((columns.shape[1], width), np.uint8)
    kernels.pack_records_cpu(columns, packing.luts, packing.members, packing.first_member, records, n_threads)
    return records


def width_of(packing):
    return -(-packing.n_groups // 8) * 8


@pytest.mark.parametrize("n_rows", [1, kernels.ROW_BLOCK, kernels.ROW_BLOCK + 1, 3000])
@pytest.mark.parametrize("n_threads", [1, 3])
def test_records_are_sums_of_look_up_tables(n_rows, n_threads):
    columns, _, packing = packed_columns(ALL_KINDS, n_rows, 1)
    records = records_by_cpu(columns, packing, width_of(packing), n_threads)
    np.testing.assert_array_equal(records[:, : packing.n_groups], pack(packing, columns).T)
    assert not records[:, packing.n_groups :].any()


@settings(max_examples=10)
@given(ANY_KINDS, st.integers(1, 100), st.integers(0, 2**32))
@each_runner
def test_records_on_cuda_are_the_cpus(run, kinds, n_rows, seed):
    columns, _, packing = packed_columns(kinds, n_rows, seed)
    records = np.zeros((n_rows, width_of(packing)), np.uint8)
    words = records.view(np.uint32)
    run(kernels.pack_records_kernel, columns, packing.luts, packing.members, packing.first_member, words, threads=n_rows)
    assert_same(words.view(np.uint8), records_by_cpu(columns, packing, width_of(packing)))


@pytest.mark.parametrize("n_rows", [1, kernels.ROW_BLOCK + 1])
@pytest.mark.parametrize("n_threads", [1, 3])
def test_records_of_cells_are_those_of_the_columns(n_rows, n_threads):
    """Whatever the lists leave out, and where they leave out nothing."""
    columns, n_bins = columns_of(ALL_KINDS, n_rows, 1)
    for absent in (np.minimum(n_bins, 255), columns[:, 0].astype(int)):
        _, page = sparse_of(columns, n_bins, absent)
        packing = find_sparse_packing(page, CellLists(page, n_threads))
        records = np.full((n_rows, width_of(packing)), 99, np.uint8)
        kernels.pack_cells_cpu(page.row_begin, page.cells, *packing.of_cells(page.cuts), records, n_threads)
        assert_same(records, records_by_cpu(columns, packing, width_of(packing)))


@settings(max_examples=40)
@given(ANY_KINDS, st.integers(1, 200), st.sampled_from([1, 3]), st.integers(0, 2**32))
def test_rows_go_where_their_columns_send_them(kinds, n_rows, n_threads, seed):
    columns, n_bins, packing = packed_columns(kinds, n_rows, seed)
    rng, n_nodes = np.random.default_rng(seed), 3
    cats = rng.integers(0, 2**32, (n_nodes, 9), dtype=np.uint32)
    nodes, segments, selected = np.zeros(n_nodes, NODE), np.zeros((n_nodes, 3), np.int64), np.array([2, 0], np.int32)
    nodes["feature"], nodes["default_left"] = rng.integers(0, len(columns), n_nodes), rng.integers(0, 2, n_nodes)
    nodes["bin"], nodes["kind"] = rng.integers(0, np.array(n_bins)[nodes["feature"]]), rng.choice([NUMERIC, CATEGORICAL], n_nodes)
    segments[:, 0], segments[:, 1], segments[:, 2] = [0, n_rows // 3, n_rows // 2], [n_rows // 3, n_rows // 2, n_rows], [1, 0, 1]
    rows = np.stack([rng.permutation(n_rows), rng.permutation(n_rows)]).astype(np.int32)
    chunks = list_chunks(selected, segments, 1)
    expected, expected_chunks, marks = np.full(n_rows, 9, np.uint8), chunks.copy(), np.full(n_rows, 9, np.uint8)
    mark_rows_cpu(
        selected, nodes, cats, expected_chunks, columns, np.array(n_bins, np.int32), rows, segments, expected, n_threads
    )
    kernels.mark_packed_rows_cpu(
        selected, nodes, cats, chunks, records_by_cpu(columns, packing, width_of(packing)), packing.groups, packing.offsets,
        cuts_of(n_bins).offsets, *packing.undo, rows, segments, marks, n_threads,
    )  # fmt: skip
    assert_same(marks, expected)
    assert_same(chunks, expected_chunks)


def test_rows_are_taken_once():
    """All of them or none."""
    taken = np.zeros(3, np.uint8)
    take = lambda *rows: kernels.take_rows_cpu(np.array(rows, np.int32), taken)
    assert take(0, 9, 23) and not take(2, 9) and take(2, 8) and take() and not take(23)
    assert np.flatnonzero(np.unpackbits(taken, bitorder="little")).tolist() == [0, 2, 8, 9, 23]


# ---- histograms


def histograms(codes, offsets, pairs, rows_of):
    """int64 (n_nodes, n_outputs, total, 2) by NumPy; a code beyond its feature's is missing."""
    hist = np.zeros((len(rows_of), len(pairs), offsets[-1], 2), np.int64)
    for own, rows in zip(hist, rows_of):
        for out, output in zip(own, pairs):
            for first, last, column in zip(offsets, offsets[1:], codes):
                present = rows[column[rows] < last - first]
                np.add.at(out, first + column[present].astype(int), output[present])
    return hist


def case(kinds, n_rows, n_nodes, n_outputs, seed):
    """(histograms of groups, packing, offsets of the features, their histograms) of some nodes."""
    columns, n_bins, packing = packed_columns(kinds, n_rows, seed)
    rng = np.random.default_rng(seed)
    pairs = rng.integers(-(2**40), 2**40, (n_outputs, n_rows, 2))
    owner = rng.integers(0, n_nodes, n_rows)
    rows_of = [np.flatnonzero(owner == node) for node in range(n_nodes)]
    offsets = cuts_of(n_bins).offsets
    packed = histograms(pack(packing, columns), packing.offsets, pairs, rows_of)
    return packed, packing, offsets, histograms(columns, offsets, pairs, rows_of)


def unpack_by_cpu(packed, packing, offsets, n_threads=1, features=None):
    """Of all features or some."""
    features = np.arange(len(offsets) - 1, dtype=np.int32) if features is None else features
    own_offsets = np.concatenate([[0], np.cumsum(np.diff(offsets)[features])]).astype(np.int32)
    hist = np.full((*packed.shape[:2], own_offsets[-1], 2), 77, np.int64)  # all of it is written
    kernels.unpack_histograms_cpu(
        packed, int(packing.offsets[1]), features, own_offsets, offsets, *packing.undo, hist, n_threads
    )
    return hist


def some_features(offsets, seed):
    """(every other feature or so, int32 ascending; their bins in a histogram of all)."""
    n_features = len(offsets) - 1
    features = np.flatnonzero(np.random.default_rng(seed).random(n_features) < 0.5).astype(np.int32)
    features = features if len(features) else np.array([n_features - 1], np.int32)
    return features, np.concatenate([np.arange(offsets[f], offsets[f + 1]) for f in features])


def test_one_hot_by_hand():
    """Rows of a or b or neither: 1, 2, 4 · 2 gradients. Bin 1 of a has a's, bin 0 the others'."""
    columns = np.array([[0, 1, 0, 0], [0, 0, 1, 0]], np.uint8)
    packing = find_packing(pages_of(columns), cuts_of([2, 2]), CpuBackend(1))
    packed = np.array([[[[8, 2], [1, 1], [2, 1]]]])
    assert unpack_by_cpu(packed, packing, cuts_of([2, 2]).offsets)[0, 0].tolist() == [[10, 3], [1, 1], [9, 3], [2, 1]]


@settings(max_examples=60)
@given(ANY_KINDS, st.integers(1, 200), st.integers(1, 4), st.integers(1, 3), st.sampled_from([1, 3]), st.integers(0, 2**32))
def test_histograms_come_back(kinds, n_rows, n_nodes, n_outputs, n_threads, seed):
    packed, packing, offsets, expected = case(kinds, n_rows, n_nodes, n_outputs, seed)
    np.testing.assert_array_equal(unpack_by_cpu(packed, packing, offsets, n_threads), expected)
    features, bins = some_features(offsets, seed)
    np.testing.assert_array_equal(unpack_by_cpu(packed, packing, offsets, n_threads, features), expected[:, :, bins])


def build_unpacked(codes, packing, offsets, records, pairs, size, mode, n_threads, repeats=1):
    """Histogram of all rows of one node, in slices of ``size`` rows, each ``repeats`` times; pairs : int64 (n_rows, 2)."""
    n_rows = codes.shape[1]
    slices = [[0, 0, 0, 0, begin, min(begin + size, n_rows), mode, 1] for begin in range(0, n_rows, size)] * repeats
    private = np.zeros((n_threads, records.shape[1] * BYTE_STRIDE), np.int64)
    hist = np.full((1, 1, offsets[-1], 2), 77 if mode == ASSIGN else 0, np.int64)
    gpair = (pairs[:, 0] * 2**16 + pairs[:, 1]).astype(np.int32).reshape(1, 1, n_rows)
    features, of_packing = np.arange(len(codes), dtype=np.int32), (packing.groups, packing.offsets, offsets, *packing.undo, False)
    kernels.build_unpacked_cpu(
        records.view(np.uint64), np.stack([np.arange(n_rows, dtype=np.int32)] * 2), gpair, features, offsets, of_packing,
        np.array(slices, np.int64), hist, private, n_threads,
    )  # fmt: skip
    assert not private.any(), "zero on return"
    return hist[0, 0]


def test_slices_of_a_node_add_up_to_its_histogram():
    """At once, one after another, and by threads that come together: of 6,000 short slices some do in most runs."""
    columns, n_bins, packing = packed_columns(sorted(KINDS), 3000, 1)
    offsets, rng = cuts_of(n_bins).offsets, np.random.default_rng(0)
    records = records_by_cpu(columns, packing, width_of(packing))
    pairs = np.stack([rng.integers(-20_000, 20_000, 3000), rng.integers(0, 20_000, 3000)], axis=1)
    expected = histograms(columns, offsets, pairs[None], [np.arange(3000)])[0, 0]
    of = columns, packing, offsets, records, pairs
    np.testing.assert_array_equal(build_unpacked(*of, 3000, ASSIGN, 1), expected)
    np.testing.assert_array_equal(build_unpacked(*of, 700, ADD, 1), expected)
    for _ in range(30):
        np.testing.assert_array_equal(build_unpacked(*of, 10, ADD_SHARED, 2, 20), 20 * expected)


def test_more_features_than_a_work_item_holds():
    kinds = ["one-hot", "binary", "few", "one-hot, some missing"] * 10
    packed, packing, offsets, expected = case(kinds, 500, 3, 2, 2)
    assert len(offsets) > 2 * kernels.FEATURE_BLOCK
    np.testing.assert_array_equal(unpack_by_cpu(packed, packing, offsets, 2), expected)


@settings(max_examples=6)
@given(ANY_KINDS, st.integers(1, 60), st.integers(1, 3), st.integers(1, 2), st.integers(0, 2**32))
@each_runner
def test_histograms_on_cuda_are_the_cpus(run, kinds, n_rows, n_nodes, n_outputs, seed):
    """The slots from the second on; those around them are not touched."""
    packed, packing, offsets, _ = case(kinds, n_rows, n_nodes, n_outputs, seed)
    slots = np.full((n_nodes + 2, *packed.shape[1:]), 55, np.int64)
    slots[1:-1] = packed
    for features in (np.arange(len(offsets) - 1, dtype=np.int32), some_features(offsets, seed)[0]):
        own_offsets = np.concatenate([[0], np.cumsum(np.diff(offsets)[features])]).astype(np.int32)
        hist = np.full((n_nodes + 2, n_outputs, offsets[-1], 2), 77, np.int64)  # with room for all features
        run(
            kernels.unpack_histograms_kernel, 1, n_nodes, slots, int(packing.offsets[1]), features, own_offsets, offsets,
            *packing.undo, hist, warps=n_nodes * n_outputs * len(features),
        )  # fmt: skip
        n_bins = own_offsets[-1]
        assert_same(hist[1:-1, :, :n_bins], unpack_by_cpu(packed, packing, offsets, features=features))
        assert (hist[[0, -1]] == 77).all() and (hist[:, :, n_bins:] == 77).all()
