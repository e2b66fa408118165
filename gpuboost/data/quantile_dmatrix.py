"""QuantileDMatrix: a DMatrix that is binned at once and forgets its table."""

from copy import copy
from dataclasses import replace
from typing import Any

import numpy as np

import gpuboost.backend as backends
from gpuboost.backend import Backend
from gpuboost.binned.cuts import SENTINEL, Cuts
from gpuboost.binned.matrix import BinnedMatrix
from gpuboost.binned.pages import DensePage, SparsePage
from gpuboost.communicator import Communicator, current_communicator
from gpuboost.data.binning import MakeShelf
from gpuboost.data.bins import Bins, bin_by_cuts, bin_by_own_cuts
from gpuboost.data.dmatrix import DMatrix
from gpuboost.data.tables.batches import Rows
from gpuboost.data.tables.device import host_array
from gpuboost.data.tables.source import ColumnSource
from gpuboost.data.tables.sparse import scipy_sparse
from gpuboost.data.view import TableView
from gpuboost.errors import kind_of
from gpuboost.params import EVERY_VALUE, check_param
from gpuboost.positional import also_by_position

__all__ = ["QuantileDMatrix"]


class QuantileDMatrix(DMatrix):
    """A DMatrix that is binned at once and forgets the table: about 2 bytes per value. A DataIter is read once.

    max_bin : as in training, 256 by default; training with another max_bin raises ValueError.
    cat_encoding : as in training, for columns of categories; "sets" and "statistics" have the same codes, training with
        others raises ValueError.
    ref : a QuantileDMatrix whose cuts to use: the training matrix, for an evaluation matrix.
    page_rows : rows of one page of codes; None keeps all in one. The model does not depend on it. A sparse table has one page.
    device : where to bin, as in training; None: where the table lies. The codes do not depend on it.
    max_quantile_batches : accepted for XGBoost's sake: quantiles are exact.

    The cuts follow the weights given here; a later set_weight does not move them.
    """

    @also_by_position("weight", "base_margin", "missing", "silent", "feature_names", "feature_types", "nthread", "max_bin", "ref")
    def __init__(
        self, data: Any, label: Any = None, *, max_bin: int | None = None, ref: DMatrix | None = None,
        page_rows: int | None = None, device: str | None = None, cat_encoding: str | None = None,
        max_quantile_batches: int | None = None, **info: Any,
    ) -> None:  # fmt: skip
        super().__init__(data, label, **info)
        place = ("cpu" if self.device is None else "cuda") if device is None else check_param("device", device)
        backend = self._binning_backend(place)
        if ref is not None and not isinstance(ref, DMatrix):
            raise TypeError(f"ref must be a DMatrix, got {kind_of(ref)}. Pass the training QuantileDMatrix.")
        if page_rows is not None and page_rows < 1:
            raise ValueError(f"page_rows must be at least 1, got {page_rows}. Leave it out for one page.")
        checked, comm = check_param("max_bin", max_bin), current_communicator()
        assert self._table is not None
        page_rows, make_shelf = self._storage(page_rows)
        if ref is None:
            self.require_same_columns(comm)
            by_category = _bins_categories(cat_encoding) and self.has_categories
            binned = bin_by_own_cuts(self._table.source, self.weights, checked, backend, comm, page_rows, by_category, make_shelf)
            if self.is_sparse:
                self._features = replace(self._features, sparse_absent=self.sparse_absent or "missing")
        else:
            if ref.num_col() != self.num_col() and not (self._table.may_widen and ref.num_col() > self.num_col()):
                raise ValueError(f"ref has {ref.num_col()} columns, data has {self.num_col()}. Both need the same columns.")
            source = self.source(ref.feature_names, ref.categories, ref.num_col(), ref.sparse_absent or "missing")
            assert source is not None
            cuts = _lent_cuts(ref, max_bin, checked, cat_encoding, backend, comm)
            binned = bin_by_cuts(source, cuts, backend, comm, page_rows, make_shelf)
            self._features = self._features.aligned_with(ref._features)
        self._bins: Bins = Bins(binned.cuts.max_bin, binned, binned.cuts.categorical is not None)
        self._table = None

    def get_data(self) -> Any:
        """In the place of every value that is not missing the smallest that its bin may hold, of the first bin the lowest of the
        column: float32 scipy.sparse.csr_matrix (n_rows, n_features), which has the same codes under these cuts. (A zero that a
        sparse table does not store stays 0.)"""
        return self.lowest_values().to_csr()

    def lowest_values(self) -> ColumnSource:
        """The table of get_data, read by rows: trees whose thresholds are these cuts lead it the ways of the original one."""
        binned = self._bins.binned
        if binned.is_sparse:
            (page,) = binned.pages
            assert isinstance(page, SparsePage)
            stored, lowest = page.stored, binned.cuts.lowest_values[binned.cuts.offsets[:-1]]
            values = np.where(stored.values == -SENTINEL, lowest[stored.columns], stored.values)
            shape = page.n_rows, stored.n_features
            listed = scipy_sparse("get_data()").csr_matrix((values, stored.columns, stored.row_begin), shape)
            return TableView.open(listed, None, None, None, self.sparse_absent, False).source
        table = DecodedTable(binned)
        return ColumnSource(*table.shape, None, None, {}, np.nan, table.read)

    def masked(self, rows: np.ndarray) -> "QuantileDMatrix":
        """The same codes, of which only the rows with the given numbers weigh what they weighed, times how often they are named:
        the others take no part."""
        times = np.bincount(rows, minlength=self.num_row()).astype(np.float32)
        part = copy(self)
        part._info = self._info.updated(self.num_col(), weight=times * self.weights if len(self.weights) else times)
        return part

    def info_of(self, rows: np.ndarray) -> "QuantileDMatrix":
        """What is known of the rows with the given numbers: a matrix without codes, to be asked for labels and the like."""
        part = copy(self)
        part._info, part.row_name = self._info.taken(rows), None
        del part._bins
        return part

    def _binning_backend(self, place: str) -> Backend:
        n_values = self.num_row() * self.num_col()
        return backends.choose_backend(place, self.nthread, n_values=n_values, table_device=self.device)

    def _storage(self, page_rows: int | None) -> tuple[int | None, MakeShelf | None]:
        """Rows of a page, and what makes shelves for pages; None: they stay in memory."""
        return page_rows, None

    @property
    def max_bin(self) -> int:
        """What it was binned with."""
        return self._bins.max_bin

    def binned(self, max_bin: int, backend: Backend, comm: Communicator, by_category: bool = False) -> BinnedMatrix:
        return self.bins(max_bin, backend, comm, by_category).with_records(backend)

    def bins(self, max_bin: int, backend: Backend, comm: Communicator, by_category: bool = False) -> Bins:
        if max_bin == EVERY_VALUE:
            raise ValueError(
                "tree_method='exact' searches the values themselves, of which a QuantileDMatrix keeps only bin numbers. "
                "Use a DMatrix."
            )
        if max_bin != self.max_bin:
            raise ValueError(
                f"max_bin={max_bin} in the training parameters, but the QuantileDMatrix was built with {self.max_bin}. "
                "Use the same value in both."
            )
        if by_category != self._bins.by_category:
            names = {True: "'sets' or 'statistics'", False: "'ordinal'"}
            raise ValueError(
                f"cat_encoding={names[by_category]} in the training parameters, but the QuantileDMatrix was built with "
                f"{names[not by_category]}. Use the same value in both."
            )
        return self._bins


class DecodedTable:
    """The pages of a dense table, with the smallest value of each bin in the place of its code."""

    def __init__(self, binned: BinnedMatrix) -> None:
        cuts, pages = binned.cuts, binned.pages.home
        self.shape = binned.n_rows, cuts.n_features
        self._begin = np.cumsum([0, *pages.page_rows])
        self._values = [np.append(own, np.float32(np.nan)) for own in np.split(cuts.lowest_values, cuts.offsets[1:-1])]
        self._pages, self._held = pages, (-1, np.zeros((0, 0), np.uint8))  # the last page: rows are asked for in their order

    def _codes_of(self, number: int) -> np.ndarray:
        held, codes = self._held
        if held != number:
            page = self._pages[number]
            assert isinstance(page, DensePage)
            codes = host_array(page.columns)
            self._held = number, codes
        return codes

    def read(self, rows: Rows) -> np.ndarray:
        """float32 (n, n_features), NaN where a value is missing."""
        numbers = np.arange(*rows.indices(self.shape[0])) if isinstance(rows, slice) else rows
        out, pages = np.empty((self.shape[1], len(numbers)), np.float32), np.searchsorted(self._begin, numbers, side="right") - 1
        for page in np.unique(pages).tolist():
            here = pages == page
            codes = self._codes_of(page)[:, numbers[here] - self._begin[page]]
            for own, values, of_bins in zip(out, codes, self._values):
                own[here] = of_bins[values]
        return out.T


def _bins_categories(cat_encoding: str | None) -> bool:
    return check_param("cat_encoding", cat_encoding) != "ordinal"


def _lent_cuts(
    ref: DMatrix, given: int | None, max_bin: int, cat_encoding: str | None, backend: Backend, comm: Communicator
) -> Cuts:
    """The cuts of ref, which is binned by max_bin if it is not yet. Raises ValueError where another one was given."""
    known = ref.any_binned()
    if known is None or known.cuts.has_every_value:
        known = ref.binned(max_bin, backend, comm, _bins_categories(cat_encoding))
    if given is not None and max_bin != known.cuts.max_bin:
        raise ValueError(f"max_bin={given}, but ref was binned with {known.cuts.max_bin}. Leave max_bin out.")
    return known.cuts
