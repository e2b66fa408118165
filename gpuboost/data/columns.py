"""A table column by column: its present values in ascending order, and what training makes of them.

    source → entries sorted by value → cuts → column blocks (row, code) → binned page

Exact search reads the column blocks themselves, with a bin for every distinct value. A sparse table is always read this way: its
lists are short, and nothing of it ever takes more room than its entries.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from gpuboost.binned.cuts import SENTINEL, Cuts
from gpuboost.binned.matrix import BinnedMatrix
from gpuboost.binned.pages import DensePage, ResidentPages, SortedColumns, SparsePage
from gpuboost.communicator import Communicator
from gpuboost.data.category_bins import cut_by_category
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

__all__ = ["bin_columns"]

GROUP_VALUES = 2**19  # distinct values that are merged at once, of one column at least: 12 MB, and as much again while they are


@dataclass(frozen=True, eq=False)
class Entries:
    """The present values of every column, by ascending key (scalar.float_key), then row.

    bounds : int64 (n_features, 2). keys : uint32 (n_entries,). rows : int32 (n_entries,).
    absent_is_zero : whether cells without an entry are zeros; missing cells then have entries.
    """

    n_rows: int
    bounds: np.ndarray
    keys: np.ndarray
    rows: np.ndarray
    absent_is_zero: bool
    n_threads: int

    def cuts(self, weights: np.ndarray | None, max_bin: int, comm: Communicator) -> Cuts:
        """The cuts that sketch_columns makes of the same table; with EVERY_VALUE, one between any two values.

        weights : int64 (n_rows,) row weights (0: the row does not exist) with a global sum of at most 2^46, or None for 1 each.
        """
        n_features = len(self.bounds)
        n_values, total = np.empty(n_features, np.int64), self.n_rows if weights is None else int(weights.sum())
        count_values_cpu(self.bounds, self.keys, n_values, self.n_threads)
        n_known = n_values.copy()  # on all workers, of which several may know the same
        comm.allreduce_sum(n_known)
        has_missing, offsets = np.empty(n_features, bool), np.zeros(n_features + 1, np.int64)
        thresholds = np.empty(np.minimum(n_known + 1, max_bin).sum(), np.float32)  # a zero may come on top
        extremes = np.empty((n_features, 2), np.uint32)
        for group in _groups(n_known):
            values, missing = self._weighed(group, n_values[group], weights)
            absent = total - np.bincount(values[0], values[2], len(missing)).astype(np.int64) - missing
            if self.absent_is_zero:
                zeros = np.stack([np.arange(len(absent)), np.full(len(absent), ZERO_KEY), absent])
                values = np.concatenate([values, zeros[:, absent > 0]], axis=1)
                absent = missing
            comm.allreduce_sum(absent)
            has_missing[group] = absent > 0
            most = np.where(has_missing[group] & (max_bin == 256), 255, max_bin)  # as the sketch: the missing code fits in a byte
            part, sizes, extremes[group] = _thresholds(*_merged(values, comm), most, self.n_threads)
            begin = offsets[group.start]
            offsets[group.start + 1 : group.stop + 1] = begin + np.cumsum(sizes)
            thresholds[begin : begin + len(part)] = part
        if offsets[-1] >= 2**31 - n_features:
            raise ValueError(
                f"the table has {offsets[-1]} bins, but at most 2^31 can be numbered. Use a smaller max_bin, or "
                "tree_method='hist' instead of 'exact'."
            )
        return Cuts(thresholds[: offsets[-1]], offsets.astype(np.int32), has_missing, max_bin, values_of(extremes))

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
        """The entries with codes for keys, which they replace: these Entries are then used up."""
        absent = zero_codes(cuts) if self.absent_is_zero else cuts.n_bins
        bounds = self.bounds.copy()
        code_entries_cpu(bounds, self.keys, self.rows, cuts.thresholds, cuts.offsets, absent, self.n_threads)
        return SortedColumns(bounds, self.rows, self.keys, absent)


def bin_columns(
    source: ColumnSource, weights: np.ndarray | None, max_bin: int, cuts: Cuts | None, n_threads: int, comm: Communicator,
    by_category: bool = False,
) -> BinnedMatrix:  # fmt: skip
    """Codes and column blocks of a table, in host memory, under its own cuts or under others.

    weights : as Entries.cuts. max_bin : EVERY_VALUE for exact search. cuts : None makes them. by_category : as cut_by_category.
    A sparse table becomes a SparsePage, a dense one a DensePage of uint32 columns.
    """
    entries = list_entries(source, n_threads, comm)
    if cuts is None:
        cuts = entries.cuts(weights, max_bin, comm)
        cuts = cut_by_category(cuts, source) if by_category else cuts
    blocks = entries.blocks(cuts)
    page: DensePage | SparsePage
    if source.stored is None:
        columns = np.repeat(cuts.n_bins.astype(np.uint32)[:, None], source.n_rows, axis=1)
        fill_columns_cpu(blocks.bounds, blocks.rows, blocks.codes, columns, n_threads)
        page = DensePage(columns, np.zeros((0, 1), np.uint32))
    else:
        page = SparsePage.of(cuts, *list_cells(source, blocks, cuts, n_threads), blocks.absent)
    return BinnedMatrix(cuts, ResidentPages((page,)), "host", blocks)


def list_entries(source: ColumnSource, n_threads: int, comm: Communicator) -> Entries:
    """The entries of a table, in host memory. Raises ValueError where any worker's column holds ±inf."""
    # With missing=0, what is not stored and 0 is missing after all.
    absent_is_zero = source.stored is not None and source.absent == 0 and source.missing != 0
    n_features, missing = source.n_features, np.float32(source.missing)
    n_infinite = np.zeros(n_features, np.int64)
    if source.stored is None:
        bounds = np.repeat(np.arange(n_features, dtype=np.int64)[:, None] * source.n_rows, 2, axis=1)
        keys, rows = np.empty(n_features * source.n_rows, np.uint32), np.empty(n_features * source.n_rows, np.int32)
        first = 0
        for batch in source.batches():
            list_batch_cpu(host_array(batch), missing, first, bounds, keys, rows, n_infinite, n_threads)
            first += len(batch)
    else:
        stored, values = source.stored, float32_values(source.stored)
        n_parts = min(n_threads, max(1, stored.nnz // n_features))
        counts, infinite = np.zeros((2, n_parts, n_features), np.int64)
        table = stored.indptr, stored.indices, values, missing, absent_is_zero
        count_stored_cpu(*table, counts, infinite, n_threads)
        ends = np.cumsum(counts.sum(axis=0))
        bounds = np.stack([ends - counts.sum(axis=0), ends], axis=1)
        keys, rows = np.empty(ends[-1], np.uint32), np.empty(ends[-1], np.int32)
        list_stored_cpu(*table, bounds[:, 0] + np.cumsum(counts, axis=0) - counts, keys, rows, n_threads)
        n_infinite += infinite.sum(axis=0)
    comm.allreduce_sum(n_infinite)
    require_finite(source, np.arange(n_features), n_infinite, comm)
    longest = int((bounds[:, 1] - bounds[:, 0]).max())
    spare = np.empty((n_threads, longest), np.uint32), np.empty((n_threads, longest), np.int32)
    sort_entries_cpu(bounds, keys, rows, *spare, n_threads)
    return Entries(source.n_rows, bounds, keys, rows, absent_is_zero, n_threads)


def list_cells(source: ColumnSource, blocks: SortedColumns, cuts: Cuts, n_threads: int) -> tuple[np.ndarray, np.ndarray]:
    """(row_begin, cells) of a sparse table, as kernels/sparse.py reads them. blocks : of the same table."""
    row_begin = np.empty(source.n_rows + 1, np.int64)
    if cuts.total_bins > SEARCHED_BINS:
        cells = np.empty(blocks.n_entries, np.int32)
        list_cells_cpu(blocks.bounds, blocks.rows, blocks.codes, cuts.n_bins, cuts.offsets, row_begin, cells)
        return row_begin, cells
    stored, keeps_missing = source.stored, bool((blocks.absent < cuts.n_bins).any())
    n_cells, cells = np.empty(source.n_rows, np.int64), np.empty(stored.nnz, np.int32)
    code_stored_cpu(
        stored.indptr, stored.indices, float32_values(stored), np.float32(source.missing), keeps_missing, cuts.thresholds,
        cuts.offsets, blocks.absent, n_cells, cells, n_threads,
    )  # fmt: skip
    join_rows_cpu(stored.indptr, n_cells, row_begin, cells)
    return row_begin, cells[: row_begin[-1]]


def zero_codes(cuts: Cuts) -> np.ndarray:
    """int32 (n_features,): the code of a zero in each column."""
    return np.add.reduceat(cuts.thresholds <= 0, cuts.offsets[:-1], dtype=np.int32)


def _groups(n_values: np.ndarray) -> Iterator[slice]:
    """Neighbouring columns with about GROUP_VALUES values on all workers together: what is merged at once."""
    owner = np.cumsum(n_values) // GROUP_VALUES
    ends = np.flatnonzero(np.diff(owner, append=-1)) + 1
    yield from map(slice, np.append(0, ends[:-1]).tolist(), ends.tolist())


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
