"""A table column by column: its present values in ascending order, and what training makes of them.

    source → entries sorted by value → cuts → column blocks (row, code) → binned page

Exact search reads the column blocks themselves, with a bin for every distinct value. A sparse table is always read this way: its
lists are short. The entries of some columns are listed at a time, and let go once these have their cuts; where bins are few, the
page is made without blocks, by searching for every value's bin.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from gpuboost.binned.cuts import SENTINEL, Cuts
from gpuboost.binned.matrix import BinnedMatrix
from gpuboost.binned.pages import DensePage, ResidentPages, SortedColumns, SparsePage, cell_dtype
from gpuboost.communicator import Communicator
from gpuboost.data.category_bins import cut_by_category
from gpuboost.data.column_groups import neighbours
from gpuboost.data.sketch import ZERO_KEY, midway, require_finite, values_of
from gpuboost.data.tables.device import host_array
from gpuboost.data.tables.source import ColumnSource
from gpuboost.data.tables.sparse import float32_values
from gpuboost.kernels.columns import (
    code_entries_cpu,
    count_stored_cpu,
    count_values_cpu,
    fill_columns_cpu,
    list_batch_cpu,
    list_stored_cpu,
    sort_entries_cpu,
    weigh_values_cpu,
)
from gpuboost.kernels.cuts import end_bins_cpu
from gpuboost.kernels.sparse import SEARCHED_BINS, code_stored_cpu, join_rows_cpu, list_cells_cpu
from gpuboost.params import EVERY_VALUE
from gpuboost.storage.mapped import scratch

__all__ = ["bin_columns"]

# Entries of a sparse table that a worker lists at once, of one column at least: 32 MB, where the cells of so many take 16 later.
# Or a part of all, as the whole table is read for each group: these are then half as large as the cells.
GROUP_ENTRIES, MOST_GROUPS = 2**22, 4
GROUP_VALUES = 2**17  # distinct values that are merged at once, of one column at least: 3 MB, and as much again while they are


class PartCuts(NamedTuple):
    """Cuts of some neighbouring columns: as those of a table, but for n_bins : int64 (n_columns,), the thresholds of each, and
    extremes : uint32 (n_columns, 2), keys."""

    n_bins: np.ndarray
    thresholds: np.ndarray
    has_missing: np.ndarray
    extremes: np.ndarray


@dataclass(frozen=True, eq=False)
class Entries:
    """The present values of some neighbouring columns, by ascending key (scalar.float_key), then row.

    bounds : int64 (n_columns, 2). keys : uint32 (n_entries,). rows : int32 (n_entries,).
    absent_is_zero : whether cells without an entry are zeros; missing cells then have entries.
    """

    n_rows: int
    bounds: np.ndarray
    keys: np.ndarray
    rows: np.ndarray
    absent_is_zero: bool
    n_threads: int

    def ordered(self) -> "Entries":
        """The same, once they have been sorted."""
        longest = int((self.bounds[:, 1] - self.bounds[:, 0]).max())
        spare = np.empty((self.n_threads, longest), np.uint32), np.empty((self.n_threads, longest), np.int32)
        sort_entries_cpu(self.bounds, self.keys, self.rows, *spare, self.n_threads)
        return self

    def every(self) -> "Entries":
        """As StoredColumns.every."""
        return self

    def cuts(self, weights: np.ndarray | None, max_bin: int, comm: Communicator) -> tuple[Cuts, "Entries"]:
        """As StoredColumns.cuts, where these are all columns."""
        return join_cuts([self.part_cuts(weights, max_bin, comm)], max_bin), self

    def part_cuts(self, weights: np.ndarray | None, max_bin: int, comm: Communicator) -> PartCuts:
        """The cuts that sketch_columns makes of the same columns; with EVERY_VALUE, one between any two values.

        weights : int64 (n_rows,) row weights (0: the row does not exist) with a global sum of at most 2^46, or None for 1 each.
        """
        n_features = len(self.bounds)
        n_values, total = np.empty(n_features, np.int64), self.n_rows if weights is None else int(weights.sum())
        count_values_cpu(self.bounds, self.keys, n_values, self.n_threads)
        n_known = n_values.copy()  # on all workers, of which several may know the same
        comm.allreduce_sum(n_known)
        has_missing, n_bins, n_thresholds = np.empty(n_features, bool), np.empty(n_features, np.int64), 0
        thresholds = np.empty(np.minimum(n_known + 1, max_bin).sum(), np.float32)  # a zero may come on top
        extremes = np.empty((n_features, 2), np.uint32)
        for group in neighbours(n_known, GROUP_VALUES):
            values, missing = self._weighed(group, n_values[group], weights)
            absent = total - np.bincount(values[0], values[2], len(missing)).astype(np.int64) - missing
            if self.absent_is_zero:
                zeros = np.stack([np.arange(len(absent)), np.full(len(absent), ZERO_KEY), absent])
                values = np.concatenate([values, zeros[:, absent > 0]], axis=1)
                absent = missing
            comm.allreduce_sum(absent)
            has_missing[group] = absent > 0
            most = np.where(has_missing[group] & (max_bin == 256), 255, max_bin)  # as the sketch: the missing code fits in a byte
            part, n_bins[group], extremes[group] = _thresholds(*_merged(values, comm), most, self.n_threads)
            thresholds[n_thresholds : n_thresholds + len(part)] = part
            n_thresholds += len(part)
        return PartCuts(n_bins, thresholds[:n_thresholds], has_missing, extremes)

    def _weighed(self, group: slice, n_values: np.ndarray, weights: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
        """Feature (0 for the group's first), key and weight of each distinct value that some row has: int64 (3, n); and the
        weight of each feature's missing entries: int64 (n_features,)."""
        values, missing = np.empty((3, n_values.sum()), np.int64), np.empty(len(n_values), np.int64)
        values[0] = np.repeat(np.arange(len(n_values)), n_values)
        given, first = np.zeros(0, np.int64) if weights is None else weights, np.cumsum(n_values) - n_values
        bounds = self.bounds[group]
        weigh_values_cpu(bounds, self.keys, self.rows, given, first, values[1], values[2], missing, self.n_threads)
        return values if weights is None else values[:, values[2] > 0], missing

    def blocks(self, cuts: Cuts) -> SortedColumns:
        """The entries of all columns with codes for keys, which they replace: these Entries are then used up."""
        absent, bounds = absent_codes(cuts, self.absent_is_zero), self.bounds.copy()
        code_entries_cpu(bounds, self.keys, self.rows, cuts.thresholds, cuts.offsets, absent, self.n_threads)
        return SortedColumns(bounds, self.rows, self.keys, absent)


@dataclass(frozen=True, eq=False)
class StoredColumns:
    """A sparse table whose entries have been counted, to be listed for some columns at a time.

    counts : int64 (n_parts, n_features). Entries of each column in each part of the rows. absent_is_zero : as Entries.
    """

    source: ColumnSource
    counts: np.ndarray
    absent_is_zero: bool
    n_threads: int

    def entries(self, columns: slice) -> Entries:
        """Those of some neighbouring columns."""
        source, stored, counts = self.source, self.source.stored, self.counts[:, columns]
        n_entries = counts.sum(axis=0)
        ends = np.cumsum(n_entries)
        bounds = np.stack([ends - n_entries, ends], axis=1)
        keys, rows = scratch((int(ends[-1]),), np.uint32), scratch((int(ends[-1]),), np.int32)
        list_stored_cpu(
            stored.indptr, stored.indices, float32_values(stored), np.float32(source.missing), self.absent_is_zero,
            columns.start, bounds[:, 0] + np.cumsum(counts, axis=0) - counts, keys, rows, self.n_threads,
        )  # fmt: skip
        return Entries(source.n_rows, bounds, keys, rows, self.absent_is_zero, self.n_threads).ordered()

    def every(self) -> Entries:
        """Those of all columns."""
        return self.entries(slice(0, self.source.n_features))

    def cuts(self, weights: np.ndarray | None, max_bin: int, comm: Communicator) -> tuple[Cuts, Entries | None]:
        """Entries.part_cuts of all columns; and their entries, where those have been listed all at once: of a small table, and
        where blocks are going to be made of them, for exact search or as there are too many bins to search."""
        most = self.counts.sum(axis=0)
        comm.allreduce_max(most)  # so that all workers form the same groups
        groups = list(neighbours(most, max(GROUP_ENTRIES, int(most.sum()) // MOST_GROUPS)))
        if len(groups) == 1 or max_bin == EVERY_VALUE:
            return self.every().cuts(weights, max_bin, comm)
        parts: list[PartCuts] = []
        for group in groups:
            if sum(len(part.thresholds) for part in parts) > SEARCHED_BINS:
                every = self.every()
                rest = replace(every, bounds=every.bounds[group.start :])
                return join_cuts([*parts, rest.part_cuts(weights, max_bin, comm)], max_bin), every
            parts.append(self.entries(group).part_cuts(weights, max_bin, comm))
        return join_cuts(parts, max_bin), None


def bin_columns(
    source: ColumnSource, weights: np.ndarray | None, max_bin: int, cuts: Cuts | None, n_threads: int, comm: Communicator,
    by_category: bool = False,
) -> BinnedMatrix:  # fmt: skip
    """Codes and column blocks of a table, in host memory, under its own cuts or under others.

    weights : as Entries.part_cuts. max_bin : EVERY_VALUE for exact search. cuts : None makes them. by_category : as
    cut_by_category. A sparse table becomes a SparsePage, a dense one a DensePage of uint32 columns. The blocks of a sparse one
    are kept for exact search, and where its cells are made of them.
    """
    columns, entries, blocks = open_columns(source, n_threads, comm), None, None
    if cuts is None:
        cuts, entries = columns.cuts(weights, max_bin, comm)
        cuts = cut_by_category(cuts, source) if by_category else cuts
    if source.stored is None or cuts.has_every_value or cuts.total_bins > SEARCHED_BINS:
        blocks = (entries or columns.every()).blocks(cuts)
    entries = None  # used up, or of no more use
    page: DensePage | SparsePage
    if source.stored is None:
        assert blocks is not None
        codes = np.repeat(cuts.n_bins.astype(np.uint32)[:, None], source.n_rows, axis=1)
        fill_columns_cpu(blocks.bounds, blocks.rows, blocks.codes, codes, n_threads)
        page = DensePage(codes, np.zeros((0, 1), np.uint32))
    else:
        absent = absent_codes(cuts, columns.absent_is_zero)
        page = SparsePage.of(cuts, *list_cells(source, blocks, cuts, absent, n_threads), absent)
    return BinnedMatrix(cuts, ResidentPages((page,)), "host", blocks)


def open_columns(source: ColumnSource, n_threads: int, comm: Communicator) -> Entries | StoredColumns:
    """The columns of a table: of a dense one all entries. Raises ValueError where any worker's column holds ±inf."""
    n_infinite = np.zeros(source.n_features, np.int64)
    columns = (_list_batches if source.stored is None else _count_stored)(source, n_infinite, n_threads)
    comm.allreduce_sum(n_infinite)
    require_finite(source, np.arange(source.n_features), n_infinite, comm)
    return columns


def _list_batches(source: ColumnSource, n_infinite: np.ndarray, n_threads: int) -> Entries:
    """The entries of a dense table, in host memory. n_infinite : int64 (n_features,), INOUT. Values that are too large."""
    n_features = source.n_features
    bounds = np.repeat(np.arange(n_features, dtype=np.int64)[:, None] * source.n_rows, 2, axis=1)
    keys, rows = np.empty(n_features * source.n_rows, np.uint32), np.empty(n_features * source.n_rows, np.int32)
    first = 0
    for batch in source.batches():
        list_batch_cpu(host_array(batch), np.float32(source.missing), first, bounds, keys, rows, n_infinite, n_threads)
        first += len(batch)
    return Entries(source.n_rows, bounds, keys, rows, False, n_threads).ordered()


def _count_stored(source: ColumnSource, n_infinite: np.ndarray, n_threads: int) -> StoredColumns:
    """The columns of a sparse table. n_infinite : int64 (n_features,), INOUT. Infinite values of each."""
    # With missing=0, what is not stored and 0 is missing after all.
    stored, absent_is_zero = source.stored, source.absent == 0 and source.missing != 0
    n_parts = min(n_threads, max(1, stored.nnz // source.n_features))
    counts, infinite = np.zeros((2, n_parts, source.n_features), np.int64)
    count_stored_cpu(
        stored.indptr, stored.indices, float32_values(stored), np.float32(source.missing), absent_is_zero, counts, infinite,
        n_threads,
    )  # fmt: skip
    n_infinite += infinite.sum(axis=0)
    return StoredColumns(source, counts, absent_is_zero, n_threads)


def list_cells(
    source: ColumnSource, blocks: SortedColumns | None, cuts: Cuts, absent: np.ndarray, n_threads: int
) -> tuple[np.ndarray, np.ndarray]:
    """(row_begin, cells) of a sparse table, as kernels/sparse.py reads them. blocks : of the same table, where it has more than
    SEARCHED_BINS bins. absent : int32 (n_features,). The codes of what is not listed."""
    row_begin = np.empty(source.n_rows + 1, np.int64)
    if cuts.total_bins > SEARCHED_BINS:
        assert blocks is not None
        cells = np.empty(blocks.n_entries, cell_dtype(cuts))
        list_cells_cpu(blocks.bounds, blocks.rows, blocks.codes, cuts.n_bins, cuts.offsets, row_begin, cells)
        return row_begin, cells
    stored, keeps_missing = source.stored, bool((absent < cuts.n_bins).any())
    n_cells, cells = row_begin[1:], np.empty(stored.nnz, cell_dtype(cuts))
    code_stored_cpu(
        stored.indptr, stored.indices, float32_values(stored), np.float32(source.missing), keeps_missing, cuts.thresholds,
        cuts.offsets, absent, n_cells, cells, n_threads,
    )  # fmt: skip
    join_rows_cpu(stored.indptr, n_cells, row_begin, cells)
    return row_begin, cells[: row_begin[-1]]


def absent_codes(cuts: Cuts, absent_is_zero: bool) -> np.ndarray:
    """int32 (n_features,): the code of a zero in each column, or of a missing cell."""
    return np.add.reduceat(cuts.thresholds <= 0, cuts.offsets[:-1], dtype=np.int32) if absent_is_zero else cuts.n_bins


def join_cuts(parts: list[PartCuts], max_bin: int) -> Cuts:
    """The cuts of a table from those of all its columns."""
    n_bins, thresholds, has_missing, extremes = (of[0] if len(parts) == 1 else np.concatenate(of) for of in zip(*parts))
    offsets = np.append(0, np.cumsum(n_bins))
    if offsets[-1] >= 2**31 - len(n_bins):
        raise ValueError(
            f"the table has {offsets[-1]} bins, but at most 2^31 can be numbered. Use a smaller max_bin, or "
            "tree_method='hist' instead of 'exact'."
        )
    return Cuts(thresholds, offsets.astype(np.int32), has_missing, max_bin, values_of(extremes))


def _merged(values: np.ndarray, comm: Communicator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """All workers' values: feature, key and weight, each int64 (n,), in order and each value once. values : int64 (3, n)."""
    gathered = values
    if comm.size > 1:
        sizes = comm.allgather_int(values.shape[1])
        begin = sum(sizes[: comm.rank])
        gathered = np.zeros((3, sum(sizes)), np.int64)
        gathered[:, begin : begin + values.shape[1]] = values
        comm.allreduce_sum(gathered)
    place = gathered[0] << 32 | gathered[1]
    if not (np.diff(place) > 0).all():
        order = np.argsort(place, kind="stable")
        gathered, place = gathered[:, order], place[order]
        first = np.flatnonzero(np.diff(place, prepend=-1))
        gathered = np.stack([gathered[0, first], gathered[1, first], np.add.reduceat(gathered[2], first)])
    return gathered[0], gathered[1], gathered[2]


def _thresholds(
    features: np.ndarray, keys: np.ndarray, weights: np.ndarray, n_bins: np.ndarray, n_threads: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The thresholds of the columns of a group, one after another; how many each has; and the keys of its extreme values.

    features, keys, weights : as _merged gives them. n_bins : int64, most bins of each column.
    """
    begin = np.searchsorted(features, np.arange(len(n_bins) + 1)).astype(np.int64)
    ends = np.zeros(len(keys), bool)
    end_bins_cpu(begin, weights, n_bins, ends, n_threads)
    after = np.flatnonzero(ends)
    n_ends = np.bincount(features[after], minlength=len(n_bins))
    extremes = np.full((len(n_bins), 2), ZERO_KEY, np.int64)
    has_values = begin[1:] > begin[:-1]
    extremes[has_values] = np.stack([keys[begin[:-1][has_values]], keys[begin[1:][has_values] - 1]], axis=1)
    return np.insert(midway(keys[after], keys[after + 1]), np.cumsum(n_ends), SENTINEL), n_ends + 1, extremes
