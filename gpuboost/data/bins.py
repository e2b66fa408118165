"""A table's bins: its codes, kept under the cuts they were made with."""

from dataclasses import dataclass, replace

import numpy as np

from gpuboost.backend import Backend
from gpuboost.binned.cuts import Cuts
from gpuboost.binned.matrix import BinnedMatrix, Representation
from gpuboost.communicator import Communicator, SingleProcess
from gpuboost.config import warn
from gpuboost.data.binning import MakeShelf, add_records, bin_table
from gpuboost.data.category_bins import are_categories, check_category_codes, cut_by_category
from gpuboost.data.columns import bin_columns
from gpuboost.data.sketch import sketch_columns
from gpuboost.data.tables.batches import Array, Rows
from gpuboost.data.tables.names import listing
from gpuboost.data.tables.source import ColumnSource
from gpuboost.params import EVERY_VALUE

__all__ = ["Bins", "bin_by_cuts", "bin_by_own_cuts"]

SKETCH_WEIGHT_BITS = 46  # the global sum of integer sketch weights stays below 2^46 (data/sketch.py)


@dataclass
class Bins:
    """Codes for one max_bin, in the memory of the backend that asked for them last."""

    max_bin: int
    binned: BinnedMatrix
    by_category: bool = False  # whether columns of categories have a bin for each

    def on(self, backend: Backend) -> BinnedMatrix:
        """The codes, moved there."""
        self.binned = binned = backend.memory.move_table(self.binned)
        return binned  # another thread may have moved them elsewhere since

    def taken(self, rows: np.ndarray, source: ColumnSource, backend: Backend) -> "Bins":
        """Those of the rows with the given numbers, intp (n,), under the same cuts. source : these rows."""
        if self.binned.representation in (Representation.DENSE, Representation.PACKED):
            binned = self.on(backend).taken(backend.memory.put(rows))
        else:  # lists of cells are as quickly made anew
            binned = bin_by_cuts(source, self.binned.cuts, backend, SingleProcess())
        return replace(self, binned=add_records(binned, backend))

    def with_records(self, backend: Backend) -> BinnedMatrix:
        """The codes with the records that training reads, moved there."""
        self.binned = binned = add_records(self.binned, backend)
        return binned


def bin_by_own_cuts(
    source: ColumnSource, weight: np.ndarray, max_bin: int, backend: Backend, comm: Communicator, page_rows: int | None = None,
    by_category: bool = False, make_shelf: MakeShelf | None = None,
) -> BinnedMatrix:  # fmt: skip
    """Codes under cuts sketched from this table (all workers' rows of positive weight), with records, as training reads them.

    weight : float32 (n_rows,) or empty. by_category : whether columns of categories get a bin for each. make_shelf : as
    bin_table, for dense tables. A UserWarning names
    columns without any value; ValueError a column of numbers declared to be categories that are none, or of too many
    categories.
    """
    check_category_codes(source, backend.n_threads)
    weights = _sketch_weights(weight, source.n_rows, comm)
    if max_bin == EVERY_VALUE or _stays_sparse(source, backend):
        binned = add_records(  # nobody else holds the lists, which go as soon as they are written out
            bin_columns(source, weights, max_bin, None, backend.n_threads, comm, by_category), backend
        )
    else:
        source = _kept(source, backend)
        cuts = sketch_columns(source, weights, max_bin, backend, comm, are_categories(source) & by_category)
        cuts = cut_by_category(cuts, source) if by_category else cuts
        binned = bin_table(source, cuts, backend, with_records=True, page_rows=page_rows, make_shelf=make_shelf)
    _warn_of_empty_columns(binned, source, comm)
    return binned


def _kept(source: ColumnSource, backend: Backend) -> ColumnSource:
    """The table as the passes of the sketch and binning read it: where there is room, one of the host comes to a GPU once."""
    n_bytes = source.n_rows * source.n_features * np.dtype(np.float64).itemsize
    if source.device is not None or not backend.memory.may_keep(n_bytes):
        return source
    batches: dict[tuple[int, int], Array] = {}

    def read(rows: Rows) -> Array:
        assert isinstance(rows, slice)
        if (key := (rows.start, rows.stop)) not in batches:
            batches[key] = backend.memory.put(source.read(rows))
        return batches[key]

    return replace(source, read=read, keeps=True)


def bin_by_cuts(
    source: ColumnSource, cuts: Cuts, backend: Backend, comm: Communicator, page_rows: int | None = None,
    make_shelf: MakeShelf | None = None,
) -> BinnedMatrix:  # fmt: skip
    """Codes under another table's cuts, to be evaluated: most such tables are nothing else, and only training reads records.
    (On a shelf they have them: there is no adding them later.)"""
    check_category_codes(source, backend.n_threads, cuts)
    if _stays_sparse(source, backend):
        return bin_columns(source, None, cuts.max_bin, cuts, backend.n_threads, comm)
    return bin_table(source, cuts, backend, with_records=make_shelf is not None, page_rows=page_rows, make_shelf=make_shelf)


def _stays_sparse(source: ColumnSource, backend: Backend) -> bool:
    return source.stored is not None and backend.takes_sparse


def _warn_of_empty_columns(binned: BinnedMatrix, source: ColumnSource, comm: Communicator) -> None:
    cuts = binned.cuts
    assert cuts.extremes is not None
    low, high = cuts.extremes.T
    suspects = np.flatnonzero(cuts.has_missing & ((cuts.n_bins == 1) | (cuts.n_categories > 0) & (low == high)))
    if len(suspects):  # on all workers or on none; else they hold one value
        occurs = binned.holds_values(suspects, np.where(cuts.n_categories > 0, low, 0).astype(np.int64)[suspects])
        comm.allreduce_max(occurs)
        empty = [source.feature_names[f] if source.feature_names else str(f) for f in suspects[occurs == 0]]
        if empty:
            all_or_some = "All columns" if len(empty) == source.n_features else "Some columns"
            message = f"{all_or_some} hold nothing but missing values, so no split can use them: {listing(empty)}."
            warn(message)


def _sketch_weights(weight: np.ndarray, n_rows: int, comm: Communicator) -> np.ndarray | None:
    """Integer weights for the sketch: the largest sum of all workers' rows stays below 2^46; positive weights stay positive."""
    facts = np.array([len(weight) > 0], np.int64)
    comm.allreduce_max(facts)
    if not facts[0]:
        return None
    if len(weight) == 0:
        weight = np.ones(n_rows, np.float32)
    global_rows = np.array([np.count_nonzero(weight)], np.int64)
    comm.allreduce_sum(global_rows)
    bits = weight.max(initial=0.0).reshape(1).astype(np.float32).view(np.int32).astype(np.int64)
    comm.allreduce_max(bits)
    largest = float(bits.astype(np.int32).view(np.float32)[0])
    exponent = SKETCH_WEIGHT_BITS - int(global_rows[0]).bit_length() - int(np.frexp(largest)[1])
    scaled = np.floor(np.ldexp(weight.astype(np.float64), exponent) + 0.5).astype(np.int64)
    return np.where(weight > 0, np.maximum(scaled, 1), 0)
