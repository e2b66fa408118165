"""A table as bin numbers, in pages."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from gpuboost.backend.base import StoredRows
from gpuboost.data.cuts import SENTINEL, Cuts
from gpuboost.data.packing import Packing, choose_packing, choose_sparse_packing, may_pack
from gpuboost.kernels.histogram import record_bytes
from gpuboost.kernels.packing import pack_cells_cpu

__all__ = ["BinnedMatrix", "ColumnBlocks", "Page", "SparsePage", "add_records", "bin_table"]


class _Records:
    """What histograms read of a page."""

    records: Any

    @property
    def words(self) -> np.ndarray:
        """The records as uint64 (n_rows, words)."""
        return self.records.view(np.uint64)


@dataclass(frozen=True, eq=False)
class Page(_Records):
    """A range of rows, in both layouts.

    columns : uint8, uint16 or uint32 (n_features, n_rows), for partition and prediction.
    records : same dtype (n_rows, width, record_bytes), zero-padded, for histograms; 0 rows when not trained on. A code for each
        feature, or for each group of a packing (data/packing.py).
    """

    columns: np.ndarray
    records: np.ndarray

    @property
    def n_rows(self) -> int:
        return self.columns.shape[1]


@dataclass(frozen=True, eq=False)
class SparsePage(_Records):
    """All rows as lists of the cells that are not absent (kernels/sparse.py).

    cells : int32 (n_cells,), ascending in a row; row r lists cells[row_begin[r]:row_begin[r + 1]].
    row_begin : int64 (n_rows + 1,). absent : int32 (n_features,), as ColumnBlocks.
    zero_bins : int32 (total_bins + n_features,), for each cell the bin of zero of its feature; (0,) where absent is missing.
    host : the same page in host memory, where this one is on a device.
    records : uint8 (n_rows, width), packed, where histograms are to read those instead of the cells; else (0, width). None before
        anybody wants to train.
    """

    cuts: Cuts
    row_begin: np.ndarray
    cells: np.ndarray
    absent: np.ndarray
    zero_bins: np.ndarray
    host: "SparsePage | None" = None
    records: Any = None

    @staticmethod
    def of(cuts: Cuts, row_begin: np.ndarray, cells: np.ndarray, absent: np.ndarray) -> "SparsePage":
        """A page in host memory."""
        zero_bins = np.zeros(0, np.int32)
        if (absent != cuts.n_bins).any():
            by_feature = cuts.offsets[:-1] + absent
            zero_bins = np.concatenate([np.repeat(by_feature, cuts.n_bins), by_feature]).astype(np.int32)
        return SparsePage(cuts, row_begin, cells, absent, zero_bins)

    def on(self, backend) -> "SparsePage":
        """The same page in a backend's memory."""
        put = backend.put
        return SparsePage(self.cuts, put(self.row_begin), put(self.cells), put(self.absent), put(self.zero_bins), self)

    @property
    def n_rows(self) -> int:
        return len(self.row_begin) - 1

    @property
    def absent_is_zero(self) -> bool:
        return len(self.zero_bins) > 0

    @cached_property
    def stored(self) -> StoredRows:
        """The same cells as values with these codes, the smallest of their bins; NaN where missing. In host memory."""
        if self.host is not None:
            return self.host.stored
        offsets, n_features = self.cuts.offsets, self.cuts.n_features
        smallest = np.concatenate([[-SENTINEL], self.cuts.thresholds, np.full(n_features, np.nan)]).astype(np.float32)
        smallest[offsets[:-1]] = -SENTINEL
        smallest = np.delete(smallest, offsets[-1])  # total_bins of them, then one a feature for its missing cells
        features = np.concatenate([np.repeat(np.arange(n_features), self.cuts.n_bins), np.arange(n_features)]).astype(np.int32)
        columns, values = features[self.cells], smallest[self.cells]
        if (self.cells >= self.cuts.total_bins).any():  # missing cells stand behind those of all columns
            order = np.lexsort([columns, np.repeat(np.arange(self.n_rows), np.diff(self.row_begin))])
            columns, values = columns[order], values[order]
        absent = 0.0 if self.absent_is_zero else np.nan
        return StoredRows(self.row_begin, columns, values, np.nan, absent, n_features)


@dataclass(frozen=True, eq=False)
class ColumnBlocks:
    """The cells of every column that are not absent, by ascending code, then row (Chen & Guestrin 2016, §4.1).

    bounds : int64 (n_features, 2). Where a column's entries begin and end.
    rows : int32 (n_entries,). codes : uint32 (n_entries,), as BinnedMatrix has them.
    absent : int32 (n_features,). The code of all other cells: that of a missing value, or of zero.
    """

    bounds: np.ndarray
    rows: np.ndarray
    codes: np.ndarray
    absent: np.ndarray

    @cached_property
    def n_entries(self) -> int:
        return int((self.bounds[:, 1] - self.bounds[:, 0]).sum())


@dataclass(frozen=True, eq=False)
class BinnedMatrix:
    """Codes of a table under some cuts: bin b of a feature as code b, a missing value as the feature's number of bins.

    blocks : the same cells by column, where training may walk them (data/columns.py); then there is one page.
    """

    cuts: Cuts
    pages: list
    memory: str = "host"  # Backend.memory: where the pages lie
    blocks: ColumnBlocks | None = None
    packing: Packing | None = None  # of the records

    @property
    def is_sparse(self) -> bool:
        return isinstance(self.pages[0], SparsePage)

    @property
    def has_no_histograms(self) -> bool:
        """Whether splits are found by walking columns only: exact search. Sparse columns of one or two values, as those of
        one-hot tables, have no middle that a cut could be moved to, so histograms find what exact search finds."""
        return self.cuts.has_every_value and not (self.is_sparse and int(self.cuts.n_bins.max()) <= 2)

    @property
    def n_rows(self) -> int:
        return sum(page.n_rows for page in self.pages)

    @property
    def dtype(self) -> np.dtype:
        """Of the codes that histograms read."""
        if self.is_sparse:
            return np.dtype(np.uint16 if self.packing is None else np.uint8)
        return self.pages[0].columns.dtype

    def count_present(self) -> int:
        """How many values are not missing."""
        n_present = 0
        for page in self.pages:
            if isinstance(page, SparsePage):
                page = page.host or page
                n_listed = int(np.count_nonzero(page.cells < self.cuts.total_bins))
                n_missing = len(page.cells) - n_listed
                n_present += page.n_rows * self.cuts.n_features - n_missing if page.absent_is_zero else n_listed
            else:
                n_present += sum(int((codes < n).sum()) for codes, n in zip(page.columns, self.cuts.n_bins))
        return n_present

    def holds_values(self, features: np.ndarray) -> np.ndarray:
        """int64 (n,): whether each of these features, which have a single bin, is not missing in every row."""
        if self.blocks is None:
            occurs = [any(int((page.columns[f] == 0).any()) for page in self.pages) for f in features.tolist()]
            return np.array(occurs, np.int64)
        begin, end = self.blocks.bounds[features].T
        if (self.blocks.absent[features] == self.cuts.n_bins[features]).all():
            return (begin < end).astype(np.int64)
        return (end - begin < self.n_rows).astype(np.int64)  # the only entries are missing ones: absent cells are zeros

    @property
    def record_offsets(self) -> np.ndarray:
        """int32 (codes of a record + 1,): where the sums of each begin in a histogram of records."""
        return self.cuts.offsets if self.packing is None else self.packing.offsets

    def on(self, backend) -> "BinnedMatrix":
        """The same codes in a backend's memory."""
        if self.memory == backend.memory:
            return self
        if self.is_sparse:
            pages = [(page.host or page).on(backend) for page in self.pages]
            return replace(self, pages=pages, memory=backend.memory, packing=None)
        pages = [Page(backend.put(page.columns), backend.put(page.records)) for page in self.pages]
        return replace(self, pages=pages, memory=backend.memory)


def bin_table(source, cuts: Cuts, backend, *, with_records: bool, page_rows: int | None = None) -> BinnedMatrix:
    """Bin every row of a source (ingest.ColumnSource).

    with_records : also write the row-major copy that histograms read, packed where that is worth it. page_rows : rows of a page;
    None puts all in one. One byte per code where all codes fit, the missing ones that occur included, else two.
    """
    if int(cuts.n_bins.max()) <= 256:
        later = with_records and may_pack(cuts, source.n_rows)  # a packing is chosen by the columns
        binned, n_lost = _bin(source, cuts, backend, np.uint8, with_records and not later, page_rows)
        if n_lost == 0:
            return add_records(binned, backend) if later else binned
    return _bin(source, cuts, backend, np.uint16, with_records, page_rows)[0]


def add_records(binned: BinnedMatrix, backend) -> BinnedMatrix:
    """The same codes, which lie in the backend's memory, with the records that training reads: none in exact search."""
    if binned.has_no_histograms:
        return binned
    if binned.is_sparse:
        return _add_sparse_records(binned, backend.n_threads)
    if all(len(page.records) == page.n_rows for page in binned.pages):
        return binned
    packing, size, pages = choose_packing(binned.pages, binned.cuts, backend), binned.dtype.itemsize, []
    n_codes = binned.cuts.n_features if packing is None else packing.n_groups
    for page in binned.pages:
        pages.append(Page(page.columns, backend.zeros((page.n_rows, record_bytes(n_codes * size) // size), binned.dtype)))
        backend.write_records(packing, pages[-1])
    return replace(binned, pages=pages, packing=packing)


def _add_sparse_records(binned: BinnedMatrix, n_threads: int) -> BinnedMatrix:
    """The same on the host, where packed records are worth it, unless that has been found out before."""
    (page,) = binned.pages
    if binned.memory != "host" or page.records is not None:
        return binned
    packing = choose_sparse_packing(binned.blocks, binned.cuts, page.n_rows)
    if packing is None:
        return replace(binned, pages=[replace(page, records=np.zeros((0, 8), np.uint8))])
    records = np.empty((page.n_rows, record_bytes(packing.n_groups)), np.uint8)
    groups, steps, base = packing.of_cells(binned.cuts)
    pack_cells_cpu(page.row_begin, page.cells, groups, steps, base, records, n_threads)
    return replace(binned, pages=[replace(page, records=records)], packing=packing)


def _bin(source, cuts, backend, dtype, with_records, page_rows) -> tuple[BinnedMatrix, int]:
    page_rows = min(page_rows or source.n_rows, max(source.n_rows, 1)) or 1
    width = record_bytes(cuts.n_features * np.dtype(dtype).itemsize) // np.dtype(dtype).itemsize
    pages = []
    for first in range(0, max(source.n_rows, 1), page_rows):
        n = min(page_rows, source.n_rows - first)
        pages.append(
            Page(backend.zeros((cuts.n_features, n), dtype), backend.zeros((n if with_records else 0, width), dtype))
        )
    n_lost, row = 0, 0
    for block in source.batches():
        done = 0
        while done < len(block):  # a batch may cross the end of a page
            page = pages[(row + done) // page_rows]
            at = (row + done) % page_rows
            part = block[done : done + page.n_rows - at]
            n_lost += backend.bin_rows(part, source.missing, cuts, at, page)
            done += len(part)
        row += done
    return BinnedMatrix(cuts, pages, backend.memory), n_lost
