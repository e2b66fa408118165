"""A table as bin numbers, in pages."""

from dataclasses import dataclass, replace

import numpy as np

from gpuboost.data.cuts import Cuts
from gpuboost.data.packing import Packing, choose_packing, may_pack

__all__ = ["BinnedMatrix", "Page", "add_records", "bin_table"]


def record_bytes(n_codes: int) -> int:
    """Bytes of a record of so many bytes of codes: 8, 16 or a multiple of 32. No record of up to 32 bytes then crosses a sector
    of GPU memory (32 bytes) or a cache line, and none is read in more of them than it fills."""
    return 8 if n_codes <= 8 else 16 if n_codes <= 16 else -(-n_codes // 32) * 32


@dataclass(frozen=True, eq=False)
class Page:
    """A range of rows, in both layouts.

    columns : uint8 or uint16 (n_features, n_rows), for partition and prediction.
    records : same dtype (n_rows, width, record_bytes), zero-padded, for histograms; 0 rows when not trained on. A code for each
        feature, or for each group of a packing (data/packing.py).
    """

    columns: np.ndarray
    records: np.ndarray

    @property
    def n_rows(self) -> int:
        return self.columns.shape[1]

    @property
    def words(self) -> np.ndarray:
        """The records as uint64 (n_rows, words)."""
        return self.records.view(np.uint64)


@dataclass(frozen=True, eq=False)
class BinnedMatrix:
    """Codes of a table under some cuts: bin b of a feature as code b, a missing value as the feature's number of bins."""

    cuts: Cuts
    pages: list[Page]
    memory: str = "host"  # Backend.memory: where the pages lie
    packing: Packing | None = None  # of the records

    @property
    def n_rows(self) -> int:
        return sum(page.n_rows for page in self.pages)

    @property
    def dtype(self) -> np.dtype:
        return self.pages[0].columns.dtype

    @property
    def record_offsets(self) -> np.ndarray:
        """int32 (codes of a record + 1,): where the sums of each begin in a histogram of records."""
        return self.cuts.offsets if self.packing is None else self.packing.offsets

    def on(self, backend) -> "BinnedMatrix":
        """The same codes in a backend's memory."""
        if self.memory == backend.memory:
            return self
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
    """The same codes, which lie in the backend's memory, with the records that training reads."""
    if all(len(page.records) == page.n_rows for page in binned.pages):
        return binned
    packing, size, pages = choose_packing(binned.pages, binned.cuts, backend), binned.dtype.itemsize, []
    n_codes = binned.cuts.n_features if packing is None else packing.n_groups
    for page in binned.pages:
        pages.append(Page(page.columns, backend.zeros((page.n_rows, record_bytes(n_codes * size) // size), binned.dtype)))
        backend.write_records(packing, pages[-1])
    return replace(binned, pages=pages, packing=packing)


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
