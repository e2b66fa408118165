"""Pages: ranges of a table's rows as codes, in each of the ways that a table is kept; and the store that holds them.

    DensePage       a code for every cell, by column, and (to be trained on) by row as records
    SparsePage      of every row the cells that are not absent; where that is less work, records of packed columns as well
    SortedColumns   beside one page: the cells of every column by ascending code, to be walked instead of histograms
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from gpuboost.arrays import on_device_of
from gpuboost.binned.cuts import SENTINEL, Cuts

__all__ = ["DensePage", "Page", "PageStore", "ResidentPages", "SortedColumns", "SparsePage", "StoredRows", "cell_dtype"]

Array = np.ndarray  # or CuPy's, with the same methods
Put = Callable[[Array], Array]  # an array in another memory

FEW_CELLS = 2**16  # in which most codes are found that a sparse table has at all


@dataclass(frozen=True)
class StoredRows:
    """A sparse table's rows, listed as SciPy's csr does.

    row_begin : int64 (n_rows + 1,). columns : int32 (n_stored,), ascending in a row. values : float32 (n_stored,).
    missing : a value equal to it is missing, as NaN is. absent : the value of what is not stored: NaN or 0.
    """

    row_begin: Array
    columns: Array
    values: Array
    missing: float
    absent: float
    n_features: int

    def moved(self, put: Put) -> "StoredRows":
        """The same rows in another memory."""
        return replace(self, row_begin=put(self.row_begin), columns=put(self.columns), values=put(self.values))


@dataclass(frozen=True, eq=False)
class DensePage:
    """A range of rows, in both layouts.

    columns : uint8, uint16 or uint32 (n_features, n_rows), for partition and prediction.
    records : same dtype (n_rows, record_bytes), zero-padded, for histograms; 0 rows when not trained on. A code for each
        feature, or for each group of a packing (binned/packing.py).
    """

    columns: Array
    records: Array

    @property
    def n_rows(self) -> int:
        return self.columns.shape[1]

    @property
    def words(self) -> Array:
        """The records as uint64 (n_rows, words)."""
        return self.records.view(np.uint64)

    @property
    def dtype(self) -> np.dtype:
        """Of the codes that histograms read."""
        return self.columns.dtype

    def moved(self, put: Put) -> "DensePage":
        """The same codes in another memory."""
        return DensePage(put(self.columns), put(self.records))

    def count_present(self, cuts: Cuts) -> int:
        """How many values are not missing."""
        with on_device_of(self.columns):
            return sum(int((codes < n).sum()) for codes, n in zip(self.columns, cuts.n_bins))

    def hold_codes(self, features: np.ndarray, codes: np.ndarray) -> np.ndarray:
        """bool (n,): whether a row has this code of each of the features."""
        with on_device_of(self.columns):
            return np.array([bool((self.columns[f] == code).any()) for f, code in zip(features.tolist(), codes.tolist())])


def cell_dtype(cuts: Cuts) -> np.dtype:
    """Of a sparse page's cells in host memory: uint16 where it has all their numbers, else int32. Of 500,000 rows of 20 cells
    they take 20 MB instead of 40."""
    return np.dtype(np.uint16 if cuts.total_bins + cuts.n_features <= 2**16 else np.int32)


@dataclass(frozen=True, eq=False)
class SparsePage:
    """All rows as lists of the cells that are not absent (kernels/sparse.py).

    cells : (n_cells,), ascending in a row; row r lists cells[row_begin[r]:row_begin[r + 1]]. In host memory cell_dtype, on a
        device int32.
    row_begin : int64 (n_rows + 1,). absent : int32 (n_features,), as SortedColumns.
    zero_bins : int32 (total_bins + n_features,), for each cell the bin of zero of its feature; (0,) where absent is missing.
    host : the same page in host memory, where this one is on a device.
    records : uint8 (n_rows, width), packed, where histograms are to read those instead of the cells; else (0, width). None before
        anybody wants to train.
    """

    cuts: Cuts
    row_begin: Array
    cells: Array
    absent: Array
    zero_bins: Array
    host: "SparsePage | None" = None
    records: Array | None = None

    @staticmethod
    def of(cuts: Cuts, row_begin: Array, cells: Array, absent: Array) -> "SparsePage":
        """A page in host memory."""
        zero_bins = np.zeros(0, np.int32)
        if (absent != cuts.n_bins).any():
            by_feature = cuts.offsets[:-1] + absent
            zero_bins = np.concatenate([np.repeat(by_feature, cuts.n_bins), by_feature]).astype(np.int32)
        return SparsePage(cuts, row_begin, cells, absent, zero_bins)

    def moved(self, put: Put) -> "SparsePage":
        """The same page in another memory."""
        host = self.host or self
        arrays = {name: put(getattr(host, name)) for name in ("row_begin", "absent", "zero_bins")}
        arrays["cells"] = put(host.cells.astype(np.int32, copy=False))
        records = None if host.records is None else put(host.records)
        return SparsePage(self.cuts, **arrays, host=host, records=records)

    @property
    def n_rows(self) -> int:
        return len(self.row_begin) - 1

    @property
    def dtype(self) -> np.dtype:
        """Of the codes that histograms read."""
        return np.dtype(np.uint16 if self.records is None or not len(self.records) else np.uint8)

    @property
    def absent_is_zero(self) -> bool:
        return len(self.zero_bins) > 0

    @property
    def words(self) -> Array:
        """The packed records as uint64 (n_rows, words)."""
        assert self.records is not None
        return self.records.view(np.uint64)

    def count_present(self, cuts: Cuts) -> int:
        """How many values are not missing."""
        page = self.host or self
        n_listed = int(np.count_nonzero(page.cells < cuts.total_bins))
        n_missing = len(page.cells) - n_listed
        return page.n_rows * cuts.n_features - n_missing if page.absent_is_zero else n_listed

    def hold_codes(self, features: np.ndarray, codes: np.ndarray) -> np.ndarray:
        """bool (n,): whether a row has this code of each of the features, which have no other but that of missing cells."""
        page, total_bins = self.host or self, self.cuts.total_bins
        if page.absent_is_zero:
            missing = page.cells[page.cells >= total_bins] - total_bins
            return np.bincount(missing, minlength=self.cuts.n_features)[features] < page.n_rows
        wanted, occurs = self.cuts.offsets[features] + codes, np.zeros(total_bins, bool)
        begin, end = 0, FEW_CELLS
        while begin < len(page.cells) and not occurs[wanted].all():  # looked at as often as the cells can be doubled
            occurs[page.cells[begin:end]] = True
            begin, end = end, 2 * end
        return occurs[wanted]

    @cached_property
    def stored(self) -> StoredRows:
        """The same cells as values with these codes, the smallest of their bins; NaN where missing. In host memory."""
        if self.host is not None:
            return self.host.stored
        offsets, n_features = self.cuts.offsets, self.cuts.n_features
        smallest = np.concatenate([[-SENTINEL], self.cuts.thresholds, np.full(n_features, np.nan)]).astype(np.float32)
        is_category = self.cuts.categorical
        smallest[offsets[:-1]] = -SENTINEL if is_category is None else np.where(is_category, 0, -SENTINEL)  # the first code is 0
        smallest = np.delete(smallest, offsets[-1])  # total_bins of them, then one a feature for its missing cells
        features = np.concatenate([np.repeat(np.arange(n_features), self.cuts.n_bins), np.arange(n_features)]).astype(np.int32)
        columns, values = features[self.cells], smallest[self.cells]
        if (self.cells >= self.cuts.total_bins).any():  # missing cells stand behind those of all columns
            order = np.lexsort([columns, np.repeat(np.arange(self.n_rows), np.diff(self.row_begin))])
            columns, values = columns[order], values[order]
        absent = 0.0 if self.absent_is_zero else np.nan
        return StoredRows(self.row_begin, columns, values, np.nan, absent, n_features)


Page = DensePage | SparsePage
Features = np.ndarray | Callable[[], np.ndarray] | None  # of a walk; a function where it takes time to know them


@dataclass(frozen=True, eq=False)
class SortedColumns:
    """The cells of every column that are not absent, by ascending code (Chen & Guestrin 2016, §4.1: column blocks).

    bounds : int64 (n_features, 2). Where a column's entries begin and end.
    rows : int32 (n_entries,). codes : uint32 (n_entries,), as BinnedMatrix has them.
    absent : int32 (n_features,). The code of all other cells: that of a missing value, or of zero.
    """

    bounds: Array
    rows: Array
    codes: Array
    absent: Array

    @cached_property
    def n_entries(self) -> int:
        return int((self.bounds[:, 1] - self.bounds[:, 0]).sum())


class PageStore(ABC):
    """The pages of a table, of one kind, in the order of their rows.

    Who trains on pages or predicts from them asks here for one at a time, and does not know where they come from. A page that is
    held is the caller's; one of ``walk`` may be overwritten when the next is asked for.
    """

    @property
    @abstractmethod
    def page_rows(self) -> tuple[int, ...]:
        """Rows of each page, known without reading any."""

    @property
    @abstractmethod
    def dtype(self) -> np.dtype:
        """Of the codes that histograms read."""

    @property
    @abstractmethod
    def is_sparse(self) -> bool:
        """Whether these are sparse pages."""

    def __len__(self) -> int:
        return len(self.page_rows)

    @abstractmethod
    def __getitem__(self, p: int) -> Page:
        """Page p, whole."""

    def __iter__(self) -> Iterator[Page]:
        return (self[p] for p in range(len(self)))

    @property
    @abstractmethod
    def is_resident(self) -> bool:
        """Whether all pages are in memory, so that asking for one costs nothing."""

    @abstractmethod
    def walk(self, features: Features = None, numbers: Iterable[int] | None = None) -> Iterator[tuple[int, Page]]:
        """Pages with their numbers. Of the columns of a dense page those of some features, ascending, or with None its records:
        what else it holds is undefined. A function is asked for them only where pages have to be brought. numbers : of the pages
        that are wanted, ascending; None: of all."""

    @property
    def home(self) -> "PageStore":
        """The same pages where they come from."""
        return self

    def moved(self, put: Put) -> "PageStore":
        """The same pages in another memory, all of them held there."""
        return ResidentPages(tuple(page.moved(put) for page in self))


class ResidentPages(PageStore):
    """Pages that are held, in one memory."""

    def __init__(self, pages: Iterable[Page]) -> None:
        self._pages = tuple(pages)

    @property
    def page_rows(self) -> tuple[int, ...]:
        return tuple(page.n_rows for page in self._pages)

    @property
    def dtype(self) -> np.dtype:
        return self._pages[0].dtype

    @property
    def is_sparse(self) -> bool:
        return isinstance(self._pages[0], SparsePage)

    @property
    def is_resident(self) -> bool:
        return True

    def __getitem__(self, p: int) -> Page:
        return self._pages[p]

    def walk(self, features: Features = None, numbers: Iterable[int] | None = None) -> Iterator[tuple[int, Page]]:
        return ((p, self._pages[p]) for p in (range(len(self._pages)) if numbers is None else numbers))
