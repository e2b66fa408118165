"""Which sparse tables are trained on as dense ones: with a code for every cell, listed or absent.

A listed cell is added to a histogram in about the time of eight codes of a record, and to tell on which side of a split a row
goes its list is searched, which takes thirty times as long as looking at a code. 2 cores of an Intel Xeon with AVX-512
(2026-11-25), two threads, ms a round of depth 6, lists -> codes: 30,000 × 784 of which 19 % are listed 125 -> 46, 100,000 × 50
20 % 28 -> 6.3, 100,000 × 200 10 % 51 -> 17, 5 % 30 -> 15, 20,000 × 500 5 % 20 -> 15. But of a wide and short one, 300 × 5,000
of ones, 10 %, one thread, 3.8 -> 6.2.

Codes take two bytes for every cell (columns and records), lists four for each listed one.
"""

from dataclasses import replace

import numpy as np

from gpuboost.arrays import empty_from_a_line
from gpuboost.binned.matrix import BinnedMatrix
from gpuboost.binned.pages import DensePage, ResidentPages, SparsePage
from gpuboost.kernels.sparse import write_out_cells_cpu

__all__ = ["written_out"]

CODES_OF_A_CELL = 16  # that may be written out for each listed cell: eight times the bytes of its list
COLUMNS_OF_A_ROW = 4  # at most: where rows are few beside columns, walks over these (kernels/exact.py) are as fast
# Of a table for whose memory nobody asks: its codes, those for each cell, and the rows that it has for each column at least.
SMALL_TABLE, CODES_OF_A_SMALL_CELL, ROWS_OF_A_SMALL_COLUMN = 2**25, 32, 4


def written_out(binned: BinnedMatrix, n_threads: int) -> BinnedMatrix:
    """A sparse table with a code for every cell, where that is worth it; else the same. Without records, in host memory.

    Exact search walks lists, and a table whose codes do not fit in bytes keeps its lists, too.
    """
    (page,) = binned.pages
    assert isinstance(page, SparsePage)
    page, cuts = page.host or page, binned.cuts
    n_codes, n_cells = page.n_rows * cuts.n_features, len(page.cells)
    if n_codes <= SMALL_TABLE and page.n_rows >= ROWS_OF_A_SMALL_COLUMN * cuts.n_features:
        is_worth_it = n_codes <= CODES_OF_A_SMALL_CELL * n_cells
    else:
        is_worth_it = n_codes <= CODES_OF_A_CELL * n_cells and cuts.n_features <= COLUMNS_OF_A_ROW * page.n_rows
    if not is_worth_it or cuts.has_every_value or _largest_code(page) > np.iinfo(np.uint8).max:
        return binned
    columns = empty_from_a_line((cuts.n_features, page.n_rows), np.uint8)
    features = np.repeat(np.arange(cuts.n_features, dtype=np.int32), cuts.n_bins)
    write_out_cells_cpu(page.row_begin, page.cells, features, cuts.offsets, page.absent, columns, n_threads)
    pages = ResidentPages((DensePage(columns, np.zeros((0, 8), np.uint8)),))
    return replace(binned, pages=pages, memory="host", sorted_columns=None)


def _largest_code(page: SparsePage) -> int:
    """That may occur, with those of missing cells."""
    n_bins, lists_missing = page.cuts.n_bins, bool((page.cells >= page.cuts.total_bins).any())
    return max(int(page.absent.max()), int(n_bins.max()) - 1 + lists_missing)
