"""backend/cpu/cells.py: the rows of a sparse page's cells, by column."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from packed_tables import KINDS, columns_of, cuts_of, same_blocks, sparse_of

from gpuboost.backend.cpu.cells import CellLists
from gpuboost.binned.pages import SparsePage


@pytest.mark.parametrize("n_threads", [1, 2])
def test_four_rows_by_hand(n_threads):
    #  bins 2 and 3: cells 0 1 | 2 3 4, missing cells 5 | 6; what is absent is zero, of code 0
    cells = np.array([1, 4, 6, 3, 5, 1], np.int32)
    page = SparsePage.of(cuts_of([2, 3]), np.array([0, 2, 3, 5, 6]), cells, np.zeros(2, np.int32))
    lists, rows = CellLists(page, n_threads), np.zeros(6, np.int32)
    assert lists.by_number.tolist() == [0, 2, 0, 1, 1, 1, 1] and lists.by_feature.tolist() == [3, 3]
    assert lists.list_rows(slice(0, 2), rows).tolist() == [[0, 3], [3, 6]]
    assert rows.tolist() == [0, 3, 2, 2, 0, 1], "by code, those of missing cells last, then by row"
    assert lists.list_rows(slice(1, 2), rows[:3]).tolist() == [[0, 3]] and rows[:3].tolist() == [2, 0, 1]
    assert lists.sorted_columns().codes.tolist() == [1, 1, 2, 1, 2, 3]


@settings(max_examples=60)
@given(
    st.lists(st.sampled_from(sorted(KINDS)), min_size=1, max_size=6), st.integers(1, 100), st.booleans(), st.integers(1, 3),
    st.integers(0, 2**32),
)  # fmt: skip
def test_sorted_columns_are_those_written_out(kinds, n_rows, absent_is_zero, n_threads, seed):
    columns, n_bins = columns_of(kinds, n_rows, seed)
    absent = [0 if absent_is_zero else min(n, 255) for n in n_bins]
    blocks, page = sparse_of(columns, n_bins, absent)
    assert same_blocks(CellLists(page, n_threads).sorted_columns(), blocks)


def test_a_page_without_cells():
    page = SparsePage.of(cuts_of([2, 3]), np.zeros(4, np.int64), np.zeros(0, np.int32), np.array([2, 3], np.int32))
    assert CellLists(page, 2).sorted_columns().bounds.tolist() == [[0, 0], [0, 0]]
