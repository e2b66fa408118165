"""kernels/compaction.py: exactly the codes and cells of some features, by the CPU and by CUDA."""

import numpy as np
import pytest
from cuda_runners import assert_same, each_runner
from hypothesis import given, settings
from hypothesis import strategies as st
from test_sparse_kernels import Table

from gpuboost.kernels import compaction
from gpuboost.kernels.histogram import record_bytes

UNTOUCHED = 77


def room(n_rows, n_codes, dtype):
    return np.full((n_rows, record_bytes(n_codes * np.dtype(dtype).itemsize) // np.dtype(dtype).itemsize), UNTOUCHED, dtype)


def drawn_rows(rng, n_rows):
    """(a list of rows, how many of its first are drawn)."""
    return rng.permutation(n_rows).astype(np.int32), int(rng.integers(0, n_rows + 1))


def some_features(rng, n_features):
    return np.sort(rng.choice(n_features, rng.integers(1, n_features + 1), replace=False)).astype(np.int32)


def records_of(rng, n_rows, n_features, dtype):
    records = room(n_rows, n_features, dtype)
    records[:, :n_features] = rng.integers(0, np.iinfo(dtype).max, (n_rows, n_features), endpoint=True)
    return records


def test_two_rows_by_hand():
    records = np.array([[10, 11, 12, 13], [20, 21, 22, 23], [30, 31, 32, 33]], np.uint8)
    selected = np.zeros((3, 4), np.uint8)
    compaction.compact_codes_cpu(records, np.array([0, 2, 3], np.int32), np.array([2, 0], np.int32), selected, 1)
    assert selected.tolist() == [[10, 12, 13, 0], [0, 0, 0, 0], [30, 32, 33, 0]]
    #   row 0 lists cells 0, 4, 5; row 1 none; row 2 cells 1, 3. Cells 0 and 5 become 0 and 1; 1, 3 are not drawn; 4 becomes 2
    row_begin, cells, new = np.array([0, 3, 3, 5]), np.array([0, 4, 5, 1, 3], np.int32), np.array([0, -1, -1, -1, 2, 1], np.int32)
    copied, row_end = np.full(5, UNTOUCHED, np.int32), np.full(3, UNTOUCHED, np.int64)
    compaction.compact_cells_cpu(row_begin, cells, new, np.array([0, 2], np.int32), copied, row_end, 1)
    assert copied[: row_end[0]].tolist() == [0, 2, 1] and row_end.tolist() == [3, UNTOUCHED, 3]


@settings(max_examples=40)
@given(
    st.integers(0, 2**32), st.one_of(st.integers(0, 50), st.just(3 * compaction.CHUNK + 5)), st.integers(1, 40),
    st.sampled_from([np.uint8, np.uint16]), st.sampled_from([np.uint8, np.uint16]), st.sampled_from([1, 3]),
)  # fmt: skip
def test_codes_are_replaced_and_nothing_else(seed, n_rows, n_features, dtype, new_dtype, n_threads):
    rng = np.random.default_rng(seed)
    features, n_bins = some_features(rng, n_features), rng.integers(1, 200, n_features)
    records = room(n_rows, n_features, dtype)
    records[:, :n_features] = rng.integers(0, n_bins, (n_rows, n_features), endpoint=True)
    offsets = np.concatenate([[0], np.cumsum(n_bins[features])]).astype(np.int32)
    codes = [rng.integers(0, 256, n + 1).astype(new_dtype) for n in n_bins[features]]
    rows, n_drawn = drawn_rows(rng, n_rows)
    selected = room(n_rows, len(features), new_dtype)
    expected = selected.copy()
    for j, feature in enumerate(features):
        expected[rows[:n_drawn], j] = codes[j][records[rows[:n_drawn], feature]]
    compaction.recode_cpu(records, features, offsets, np.concatenate(codes), rows[:n_drawn], selected, n_threads)
    assert_same(selected, expected)


@settings(max_examples=40)
@given(
    st.integers(0, 2**32), st.one_of(st.integers(0, 50), st.just(3 * compaction.CHUNK + 5)), st.integers(1, 200),
    st.sampled_from([np.uint8, np.uint16]), st.sampled_from([1, 3]),
)  # fmt: skip
def test_codes_are_copied_and_nothing_else(seed, n_rows, n_features, dtype, n_threads):
    """What is left of the last sixteen bytes may become 0."""
    rng = np.random.default_rng(seed)
    records, features = records_of(rng, n_rows, n_features, dtype), some_features(rng, n_features)
    rows, n_drawn = drawn_rows(rng, n_rows)
    selected = room(n_rows, len(features), dtype)
    expected, k, per_sixteen = selected.copy(), len(features), 16 // selected.itemsize
    expected[rows[:n_drawn], :k] = records[rows[:n_drawn]][:, features]
    compaction.compact_codes_cpu(records, features, rows[:n_drawn], selected, n_threads)
    left = selected[rows[:n_drawn], k : -(-k // per_sixteen) * per_sixteen]
    assert np.isin(left, [0, UNTOUCHED]).all()
    expected[rows[:n_drawn], k : k + left.shape[1]] = left
    assert_same(selected, expected)


@settings(max_examples=15)
@given(st.integers(0, 2**32), st.integers(0, 40), st.integers(1, 20), st.sampled_from([np.uint8, np.uint16]))
@each_runner
def test_codes_are_copied_on_cuda(run, seed, n_rows, n_features, dtype):
    """What is left of a word becomes 0; other words, and rows that are not drawn, stay."""
    rng = np.random.default_rng(seed)
    records, features = records_of(rng, n_rows, n_features, dtype), some_features(rng, n_features)
    rows, n_drawn = drawn_rows(rng, n_rows)
    selected = room(n_rows, len(features), dtype)
    per_word = 4 // selected.itemsize
    n_written = -(-len(features) // per_word) * per_word
    expected = selected.copy()
    expected[rows[:n_drawn], :n_written] = 0
    expected[rows[:n_drawn], : len(features)] = records[rows[:n_drawn]][:, features]
    run(
        compaction.compact_codes_kernel, records.view(np.uint32), 8 * selected.itemsize, features, rows,
        np.array([n_drawn, n_rows - n_drawn]), words := selected.view(np.uint32), threads=n_rows * n_written // per_word,
    )  # fmt: skip
    assert_same(words, expected.view(np.uint32))


def renumbered(table, features):
    """int32 by cell: its number where only these features are; −1 for others."""
    n_cells = int(table.offsets[-1])
    feature_of = [*np.repeat(np.arange(len(table.n_bins)), table.n_bins).tolist(), *range(len(table.n_bins))]
    own = [cell for cell in range(n_cells + len(table.n_bins)) if feature_of[cell] in features]
    return np.array([own.index(cell) if cell in own else -1 for cell in range(len(feature_of))], np.int32)


@pytest.mark.parametrize("n_threads", [1, 3])
@settings(max_examples=25)
@given(st.integers(0, 2**32), st.one_of(st.integers(1, 60), st.just(2 * compaction.CHUNK + 5)), st.booleans())
def test_cells_are_copied_and_nothing_else(n_threads, seed, n_rows, absent_is_zero):
    table, rng = Table(seed, n_rows, absent_is_zero), np.random.default_rng(seed)
    features = some_features(rng, len(table.n_bins))
    rows, n_drawn = drawn_rows(rng, n_rows)
    new, selected, row_end = renumbered(table, features), np.full_like(table.cells, UNTOUCHED), np.full(n_rows, -1)
    compaction.compact_cells_cpu(table.row_begin, table.cells, new, rows[:n_drawn], selected, row_end, n_threads)
    is_written = np.zeros(len(selected), bool)
    for row in rows[:n_drawn]:
        begin, end = table.row_begin[row : row + 2]
        expected = [new[cell] for cell in table.cells[begin:end] if new[cell] >= 0]
        assert selected[begin : row_end[row]].tolist() == expected == sorted(expected)
        is_written[begin : row_end[row]] = True
    assert (selected[~is_written] == UNTOUCHED).all() and (row_end[rows[n_drawn:]] == -1).all()


@settings(max_examples=15)
@given(st.integers(0, 2**32), st.integers(1, 60), st.booleans())
@each_runner
def test_cells_on_cuda_are_the_cpus(run, seed, n_rows, absent_is_zero):
    table, rng = Table(seed, n_rows, absent_is_zero), np.random.default_rng(seed)
    new = renumbered(table, some_features(rng, len(table.n_bins)))
    rows, n_drawn = drawn_rows(rng, n_rows)
    results = []
    for on_cuda in (False, True):
        selected, row_end = np.full_like(table.cells, UNTOUCHED), np.full(n_rows, -1)
        lists = table.row_begin, table.cells, new
        if on_cuda:
            n_listed = np.array([n_drawn, n_rows - n_drawn])
            run(compaction.compact_cells_kernel, *lists, rows, n_listed, selected, row_end, threads=n_rows)
        else:
            compaction.compact_cells_cpu(*lists, rows[:n_drawn], selected, row_end, 1)
        results.append((selected, row_end))
    for here, there in zip(*results):
        assert_same(there, here)
