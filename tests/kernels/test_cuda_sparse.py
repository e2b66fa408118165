"""kernels/sparse.py on CUDA: histograms, partition and prediction of sparse pages equal the CPU's, which equal dense ones."""

import numpy as np
import pytest
from cuda_runners import each_runner, progress_of
from hypothesis import given, settings
from hypothesis import strategies as st
from test_cuda_histogram import list_slices, slices_by_hand
from test_cuda_predict import on_device
from test_predict_kernel import grown_together
from test_sparse_kernels import Table, random_forest, random_pairs, random_rows

from gpuboost.kernels import histogram, partition, sparse
from gpuboost.kernels.structs import CATEGORICAL, NUMERIC

cases = given(st.integers(0, 2**32), st.integers(1, 80), st.booleans())


@pytest.mark.sweep(1)
@settings(max_examples=12)
@given(st.integers(0, 2**32), st.integers(1, 80), st.booleans(), st.integers(1, 2))
@each_runner
def test_histograms_equal_the_cpus(run, seed, n_rows, absent_is_zero, limbs):
    table, rng = Table(seed, n_rows, absent_is_zero), np.random.default_rng(seed)
    _, _, gpair = random_pairs(rng, limbs, n_rows)
    gpair = np.concatenate([gpair, np.zeros((2, 2 - limbs, n_rows), np.int32)], axis=1)  # room for two limbs on CUDA
    nodes, segments, rows = random_rows(rng, n_rows)
    build, first_output, n_limbs = np.array([2, 0, -1, 1], np.int32), np.array([0, 1], np.int32), np.full(2, limbs, np.int32)
    expected = np.full((3, 1, table.offsets[-1], 2), 77)
    parts = build[build >= 0], nodes, segments, first_output, n_limbs
    items = histogram.list_build_items(*parts, 1, True, 1, 10**6, 0, expected)
    sparse.build_sparse_histograms_cpu(
        *table.lists, int(table.offsets[-1]), table.zero_bins, rows, gpair, n_limbs, items, expected, 1
    )
    hist = np.zeros_like(expected)
    parts = build, nodes, first_output, segments
    for work in (list_slices(run, *parts, 2), slices_by_hand(*parts, 7)):
        hist[:] = 0
        run(
            sparse.build_sparse_histograms_kernel, *table.lists, table.zero_bins, rows, gpair, n_limbs, table.offsets, *work,
            hist, blocks=3,
        )  # fmt: skip
    np.testing.assert_array_equal(hist, expected)


@settings(max_examples=12)
@cases
@each_runner
def test_rows_go_where_the_cpu_sends_them(run, seed, n_rows, absent_is_zero):
    table, rng = Table(seed, n_rows, absent_is_zero), np.random.default_rng(seed)
    nodes, segments, rows = random_rows(rng, n_rows)
    for node in nodes:
        f = rng.integers(len(table.n_bins))
        node["feature"], node["bin"], node["default_left"] = f, rng.integers(table.n_bins[f]), rng.integers(2)
        node["kind"] = rng.choice([NUMERIC, CATEGORICAL])
    selected = np.array([1, 2], np.int32)
    chunks = partition.list_chunks(selected, segments, 1)
    is_left, cats = np.zeros(n_rows, np.uint8), rng.integers(0, 2**5, (3, 2)).astype(np.uint32)
    sparse.mark_sparse_rows_cpu(
        selected, nodes, cats, chunks, table.row_begin, table.cells, table.offsets, table.absent, *table.entries(), rows,
        segments, is_left, 1,
    )  # fmt: skip
    progress, first_chunk = progress_of(n_selected=2), np.full(4, -7, np.int64)
    moved, was = np.full(3, -7, np.int64), rows.copy()
    nodes, segments = (np.concatenate([of, np.zeros_like(of, shape=(4, *of.shape[1:]))]) for of in (nodes, segments))
    nodes["left"][selected], counts = [3, 5], np.full(4, -7, np.int64)
    run(partition.list_chunks_kernel, 1, selected, nodes, segments, progress, first_chunk, moved, counts, blocks=1)
    run(
        sparse.move_sparse_rows_kernel, selected, nodes, cats, table.row_begin, table.cells, table.offsets, table.absent, rows,
        segments, progress, first_chunk, moved, counts, blocks=3,
    )  # fmt: skip
    for node in selected:
        begin, end, side = segments[node]
        goes, middle = is_left[begin:end] != 0, begin + int(moved[node]) // 2**32
        own = was[side, begin:end]
        assert moved[node] == 2**32 * goes.sum() + (~goes).sum()
        left = nodes["left"][node]
        assert segments[left : left + 2].tolist() == [[begin, middle, 1 - side], [middle, end, 1 - side]]
        assert counts[left - 3 : left - 1].tolist() == [goes.sum(), (~goes).sum()]
        assert set(rows[1 - side, begin:middle]) == set(own[goes]) and set(rows[1 - side, middle:end]) == set(own[~goes])


@each_runner
@pytest.mark.parametrize("absent", [np.nan, 0.0])
def test_predictions_equal_the_cpus(run, absent):
    block, stored, flat = random_forest(absent)
    n_rows = len(block)
    expected = np.zeros((3, n_rows), np.float32), np.zeros((n_rows, 2), np.int32)
    sparse.predict_sparse_cpu(*stored, np.float32(5), np.float32(absent), block.shape[1], *flat, *expected, 1)
    margin, leaves = np.zeros((3, n_rows), np.float32), np.full((n_rows, 2), -1, np.int32)
    run(sparse.predict_sparse_kernel, *stored, 5.0, absent, *on_device(flat), margin, leaves, threads=n_rows)
    np.testing.assert_array_equal(margin, expected[0])
    np.testing.assert_array_equal(leaves, expected[1])
    run(sparse.predict_sparse_kernel, *stored, 5.0, absent, *on_device(flat), margin, np.zeros((0, 0), np.int32), threads=n_rows)
    sparse.predict_sparse_cpu(*stored, np.float32(5), np.float32(absent), block.shape[1], *flat, *expected, 1)
    np.testing.assert_array_equal(margin, expected[0])


@settings(max_examples=12)
@cases
@each_runner
def test_predictions_of_listed_rows_equal_the_cpus(run, seed, n_rows, absent_is_zero):
    """From the back of the list; margins of other pages stay."""
    table, rng = Table(seed, n_rows, absent_is_zero), np.random.default_rng(seed)
    flat, rows = grown_together(rng, table.n_bins, 3, 8, 2), rng.permutation(n_rows).astype(np.int32)
    n_listed, margin = int(rng.integers(0, n_rows + 1)), rng.normal(size=(3, n_rows + 5)).astype(np.float32)
    expected, page = margin.copy(), (table.row_begin, table.cells, table.offsets, table.absent)
    sparse.predict_cells_cpu(*page, rows[n_rows - n_listed :], *flat, expected[:, 3:-2], 1)
    counts = np.array([n_rows - n_listed, n_listed])
    run(sparse.predict_cells_kernel, *page, rows, counts, *on_device(flat), 3, margin, threads=n_rows)
    np.testing.assert_array_equal(margin, expected)
