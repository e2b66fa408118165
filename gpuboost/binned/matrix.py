"""A table as bin numbers: the codes of all its rows under some cuts, in a store of pages."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

import numpy as np

from gpuboost.arrays import on_device_of
from gpuboost.binned.cuts import Cuts
from gpuboost.binned.packing import Packing
from gpuboost.binned.pages import Array, DensePage, PageStore, Put, ResidentPages, SortedColumns, SparsePage

__all__ = ["BinnedMatrix", "Representation"]


class Representation(Enum):
    """What histograms read of a table. A backend has a class for each."""

    DENSE = "records of a code for each feature"
    PACKED = "records of a code for each group of features"
    SPARSE = "lists of the cells that are not absent"
    PACKED_SPARSE = "packed records, beside such lists"
    SORTED = "no histograms: sorted columns alone are walked"


@dataclass(frozen=True, eq=False)
class BinnedMatrix:
    """Codes of a table under some cuts: bin b of a feature as code b, a missing value as the feature's number of bins.

    memory : Memory.name of where the pages lie.
    sorted_columns : the same cells by column, in host memory, where binning had to make them (data/columns.py); then there is one
        page. packing : of the records.
    """

    cuts: Cuts
    pages: PageStore
    memory: str = "host"
    sorted_columns: SortedColumns | None = None
    packing: Packing | None = None

    @property
    def is_sparse(self) -> bool:
        return self.pages.is_sparse

    @property
    def has_no_histograms(self) -> bool:
        """Whether splits are found by walking columns only: exact search. Sparse columns of one or two values, as those of
        one-hot tables, have no middle that a cut could be moved to, so histograms find what exact search finds."""
        return self.cuts.has_every_value and not (self.is_sparse and int(self.cuts.n_bins.max()) <= 2)

    @property
    def representation(self) -> Representation:
        if self.has_no_histograms:
            return Representation.SORTED
        if self.is_sparse:
            return Representation.SPARSE if self.packing is None else Representation.PACKED_SPARSE
        return Representation.DENSE if self.packing is None else Representation.PACKED

    @property
    def n_rows(self) -> int:
        return sum(self.pages.page_rows)

    @property
    def dtype(self) -> np.dtype:
        """Of the codes that histograms read."""
        return self.pages.dtype

    @property
    def n_codes(self) -> int:
        """How many codes a pass over the table reads."""
        if self.representation in (Representation.DENSE, Representation.PACKED, Representation.PACKED_SPARSE):
            return self.n_rows * (len(self.record_offsets) - 1)
        if not self.is_sparse:
            return self.n_rows * self.cuts.n_features
        return self.n_cells

    @property
    def n_cells(self) -> int:
        """How many cells a sparse table lists."""
        return sum(len(page.cells) for page in self.pages if isinstance(page, SparsePage))

    @property
    def record_offsets(self) -> Array:
        """int32 (codes of a record + 1,): where the sums of each begin in a histogram of records."""
        return self.cuts.offsets if self.packing is None else self.packing.offsets

    def count_present(self) -> int:
        """How many values are not missing."""
        return sum(page.count_present(self.cuts) for page in self.pages)

    def dense_columns(self) -> Iterator[Array]:
        """The codes of every feature of a dense table, one after another, each page by page."""
        for f in range(self.cuts.n_features):
            for _, page in self.pages.walk(np.array([f])):
                assert isinstance(page, DensePage)
                yield page.columns[f]

    def holds_values(self, features: Array, codes: Array) -> Array:
        """int64 (n,): whether each of these features, which have one code if any, is not missing in every row."""
        found = np.zeros(len(features), np.int64)
        for _, page in self.pages.walk(np.sort(features)):
            found |= page.hold_codes(features, codes)
        return found

    def taken(self, rows: Array) -> "BinnedMatrix":
        """Those rows of a dense table of one page. rows : intp (n,), in the memory of the codes."""
        (page,) = self.pages
        assert isinstance(page, DensePage)
        with on_device_of(page.columns):
            taken = DensePage(page.columns.take(rows, axis=1), page.records.take(rows, axis=0))
            return replace(self, pages=ResidentPages([taken]))

    def __getstate__(self) -> dict[str, Any]:
        """Pages are pickled where they come from."""
        is_home = self.pages.home is self.pages
        return vars(self) if is_home else {**vars(self), "pages": self.pages.home, "memory": "host"}

    def moved(self, memory: str, put: Put) -> "BinnedMatrix":
        """The same codes in the memory of that name."""
        return self if self.memory == memory else replace(self, pages=self.pages.moved(put), memory=memory)
