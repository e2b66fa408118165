"""A table as lists of what each column holds: what a linear model reads, for which a missing value is as good as zero."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from gpuboost.data.tables.device import host_array
from gpuboost.data.tables.source import ColumnSource

__all__ = ["ColumnLists", "list_batches", "list_columns"]


@dataclass(frozen=True, eq=False)
class ColumnLists:
    """The entries of every column that are neither missing nor zero, rows ascending; behind them a column of ones, for the bias.

    first : int64 (n_features + 2,). Column j has the entries first[j] ≤ i < first[j + 1]. rows : int32 (n_entries,).
    values : float32 (n_entries,).
    """

    n_rows: int
    first: np.ndarray
    rows: np.ndarray
    values: np.ndarray

    @property
    def n_features(self) -> int:
        return len(self.first) - 2

    def __iter__(self):
        """As kernels/linear.py takes them."""
        return iter((self.first, self.rows, self.values))


def list_columns(source: ColumnSource) -> ColumnLists:
    """All of a table. Raises what reading it raises."""
    if source.stored is not None:
        parts = [_part_of_stored(source)]
    else:
        parts = [_part_of(host_array(batch), source.missing) for batch in source.batches()]
    return _joined(source.n_rows, source.n_features, parts)


def list_batches(source: ColumnSource) -> Iterator[tuple[slice, ColumnLists]]:
    """The rows of one batch after another, and its lists; of a sparse table all at once."""
    if source.stored is not None:
        yield slice(0, source.n_rows), list_columns(source)
        return
    for rows in source.batch_slices():
        batch = host_array(source.read(rows))
        yield rows, _joined(len(batch), source.n_features, [_part_of(batch, source.missing)])


Part = tuple[int, np.ndarray, np.ndarray, np.ndarray]  # rows of a batch; entries of each column, their rows, their values


def _part_of(batch: np.ndarray, missing: float) -> Part:
    with np.errstate(over="ignore"):
        columns = np.ascontiguousarray(batch.T, np.float32)
    is_entry = _is_entry(columns, missing)
    return len(batch), is_entry.sum(axis=1), np.nonzero(is_entry)[1], columns[is_entry]


def _part_of_stored(source: ColumnSource) -> Part:
    import scipy.sparse

    stored, shape = source.stored_rows(), (source.n_rows, source.n_features)
    columns = scipy.sparse.csr_array((stored.values, stored.columns, stored.row_begin), shape).tocsc()
    is_entry = _is_entry(columns.data, source.missing)
    owner = np.repeat(np.arange(source.n_features), np.diff(columns.indptr))
    return source.n_rows, np.bincount(owner[is_entry], minlength=shape[1]), columns.indices[is_entry], columns.data[is_entry]


def _is_entry(values: np.ndarray, missing: float) -> np.ndarray:
    return (values == values) & (values != 0) & (values != np.float32(missing))


def _joined(n_rows: int, n_features: int, parts: Sequence[Part]) -> ColumnLists:
    """Batches one below the other."""
    counts = np.sum([count for _, count, _, _ in parts], axis=0, dtype=np.int64) if parts else np.zeros(n_features, np.int64)
    first = np.concatenate([[0], np.cumsum(np.append(counts, n_rows))])
    rows, values = np.empty(first[-1], np.int32), np.empty(first[-1], np.float32)
    place, done = first[:-2].copy(), 0
    for n, count, own_rows, own_values in parts:
        at = np.repeat(place - (np.cumsum(count) - count), count) + np.arange(len(own_rows))
        rows[at], values[at] = own_rows + done, own_values
        place, done = place + count, done + n
    rows[first[-2] :], values[first[-2] :] = np.arange(n_rows), 1
    return ColumnLists(n_rows, first, rows, values)
