"""The cells of a sparse page by column: the rows that list them."""

import numpy as np

from gpuboost.binned.pages import SortedColumns, SparsePage
from gpuboost.kernels.sparse import count_cells_cpu, list_cell_rows_cpu

__all__ = ["CellLists"]


class CellLists:
    """Which rows of a page in host memory list the cells of some neighbouring features: listed when they are asked for.

    by_number : int64 (total_bins + n_features,). How many rows list each cell.
    """

    def __init__(self, page: SparsePage, n_threads: int) -> None:
        self._page, self._n_threads = page, n_threads
        cuts = page.cuts
        n_numbers = cuts.total_bins + cuts.n_features
        n_parts = min(n_threads, max(1, len(page.cells) // n_numbers))
        self._counts = np.zeros((n_parts, n_numbers), np.int64)
        count_cells_cpu(page.row_begin, page.cells, self._counts, n_threads)
        self.by_number = self._counts.sum(axis=0)

    @property
    def by_feature(self) -> np.ndarray:
        """int64 (n_features,): how many cells of each are listed, missing ones included."""
        cuts = self._page.cuts
        return np.add.reduceat(self.by_number[: cuts.total_bins], cuts.offsets[:-1]) + self.by_number[cuts.total_bins :]

    def list_rows(self, features: slice, rows: np.ndarray) -> np.ndarray:
        """Where the rows of each of these features begin and end: int64 (n, 2). rows : int32 (at least as many as are
        listed,), OUT. By feature, code and row."""
        numbers, n_codes = self._numbers(features)
        counts = self._counts[:, numbers]
        ends = np.cumsum(self.by_number[numbers])
        places = np.full_like(self._counts, -1)
        places[:, numbers] = ends - self.by_number[numbers] + np.cumsum(counts, axis=0) - counts
        list_cell_rows_cpu(self._page.row_begin, self._page.cells, places, rows, self._n_threads)
        ends = ends[np.cumsum(n_codes) - 1]
        return np.stack([np.append(0, ends[:-1]), ends], axis=1)

    def sorted_columns(self) -> SortedColumns:
        """All of them, with their codes."""
        every, rows = slice(0, self._page.cuts.n_features), np.empty(len(self._page.cells), np.int32)
        bounds = self.list_rows(every, rows)
        numbers, n_codes = self._numbers(every)
        codes = np.arange(len(numbers), dtype=np.uint32) - np.repeat(np.cumsum(n_codes) - n_codes, n_codes).astype(np.uint32)
        return SortedColumns(bounds, rows, np.repeat(codes, self.by_number[numbers]), self._page.absent)

    def _numbers(self, features: slice) -> tuple[np.ndarray, np.ndarray]:
        """The cells of some features by feature, then code, missing last; and how many each has."""
        cuts = self._page.cuts
        ends = cuts.offsets[features.start + 1 : features.stop + 1]
        bins = np.arange(cuts.offsets[features.start], ends[-1])
        missing = cuts.total_bins + np.arange(features.start, features.stop)
        return np.insert(bins, ends - cuts.offsets[features.start], missing), cuts.n_bins[features] + 1
