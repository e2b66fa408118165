"""What a table is to the rest: a ColumnSource, which is read any number of times, in row order and batch by batch."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from gpuboost.arrays import on_device_of
from gpuboost.binned.pages import StoredRows
from gpuboost.data.tables.batches import DEVICE_FACTOR, MIN_BATCH_ROWS, Array, Read, Rows, default_rows, row_slices
from gpuboost.data.tables.device import current_device, host_array
from gpuboost.data.tables.names import quoted
from gpuboost.data.tables.sparse import float32_values, scipy_sparse, stored_reader
from gpuboost.errors import RowError
from gpuboost.storage.ahead import read_ahead

__all__ = ["ColumnSource"]

LARGEST = float(np.finfo(np.float32).max)  # as the sketch, which takes values of this size for infinite


@dataclass(frozen=True, eq=False)
class ColumnSource:
    """A table that can be read any number of times, in row order.

    feature_names, feature_types : None for plain arrays. Types are XGBoost's letters.
    categories : column name → its category values in code order, for columns that hold categories.
    missing : the float32 value that means missing besides NaN, for the reader of the batches to apply; NaN when only NaN does.
    read : rows → float32 or float64 (n, n_features), any strides, possibly read-only.
    device : number of the CUDA device that the batches lie on, as CuPy arrays; None: they are NumPy arrays.
    stored : the table as scipy.sparse.csr_array, where it is sparse; its batches, written out, cost memory that it does not.
    absent : the value of what it does not store: NaN (missing), or 0.
    read_unchecked : of a source that finite() made: read without the check.
    block_rows : rows that are best read together, from a multiple of so many on; None: any.
    read_columns : (rows, columns first to last) → those columns alone, where that is less work than reading all.
    keeps : whether batches that have been read stay where they are binned.
    reads_views : whether a batch is a part of an array of the host, which takes no memory there, and as many rows as one likes
        may be read at once.
    """

    n_rows: int
    n_features: int
    feature_names: list[str] | None
    feature_types: list[str] | None
    categories: dict[str, list[Any]]
    missing: float
    read: Read = field(repr=False)
    device: int | None = None
    stored: Any = field(default=None, repr=False)
    absent: float = np.nan
    read_unchecked: Read | None = field(default=None, repr=False)
    block_rows: int | None = None
    read_columns: Callable[[slice, slice], Array] | None = field(default=None, repr=False)
    keeps: bool = False
    reads_views: bool = False

    @property
    def is_near(self) -> bool:
        """Whether it may be read again and again: a GPU's table, or one that is kept there."""
        return self.keeps or self.device is not None

    def batches(self, batch_rows: int | None = None) -> Iterator[Array]:
        """The rows from first to last, as float32 or float64 (at most batch_rows, n_features) arrays.

        batch_rows : None chooses about 8 MB, 256 MB on a GPU. The batches of an aligned native float32 or float64 array are
            views of it.
        """
        if batch_rows is not None and batch_rows < 1:
            raise ValueError(f"batch_rows must be at least 1, got {batch_rows}. Leave it out for batches of about 8 MB.")
        slices = self.batch_slices(batch_rows)
        return map(self.read, slices) if self.block_rows is None else read_ahead(partial(self.read, rows) for rows in slices)

    def batch_slices(self, batch_rows: int | None = None, least: int = MIN_BATCH_ROWS) -> Iterator[slice]:
        """The rows of each batch. least : rows of one, where the table is not sparse and batch_rows is None."""
        default = default_rows(self.n_features, least if self.stored is None else 1)
        default *= 1 if self.device is None else DEVICE_FACTOR
        return row_slices(self.n_rows, batch_rows or self.block_rows or default)

    def column_batches(self, columns: slice) -> Iterator[Array]:
        """The batches of some columns, of a table that is read by columns."""
        assert self.read_columns is not None
        return read_ahead(partial(self.read_columns, rows, columns) for rows in self.batch_slices())

    def rows(self, index: Any) -> Array:
        """The rows with the given numbers (int (n,)), as float32 or float64 (n, n_features): a copy."""
        return self.read(np.asarray(index, dtype=np.intp))

    def taken(self, index: Array) -> "ColumnSource":
        """The table of the rows with the given numbers, intp (n,), in that order."""
        stored = None if self.stored is None else self.stored[index]
        read = partial(_read_taken, self.read, index)
        return replace(
            self, n_rows=len(index), read=read, stored=stored, read_unchecked=None, block_rows=None, read_columns=None,
            reads_views=False,
        )  # fmt: skip

    def absent_as(self, value: float) -> "ColumnSource":
        """The same table with that value, NaN or 0, for what a sparse one does not store."""
        if self.stored is None or value == self.absent or value != value and self.absent != self.absent:
            return self
        return replace(self, absent=value, read=stored_reader(self.stored, value), read_unchecked=None)

    def stored_rows(self, looks: bool = True) -> StoredRows:
        """All rows of a sparse table. looks : whether for values that are infinite or too large for float32; ValueError for the
        first one."""
        matrix, values = self.stored, float32_values(self.stored)
        if looks:
            self.refuse_large(values)
        row_begin, columns = matrix.indptr.astype(np.int64, copy=False), matrix.indices.astype(np.int32, copy=False)
        return StoredRows(row_begin, columns, values, self.missing, self.absent, self.n_features)

    def refuse_large(self, values: np.ndarray) -> None:
        """Raise the ValueError of stored_rows for its values, if they hold such a one."""
        for i in np.flatnonzero((abs(values) >= LARGEST) & (values != np.float32(self.missing)))[:1]:
            row = int(np.searchsorted(self.stored.indptr, i, side="right")) - 1
            raise self._infinite(int(self.stored.indices[i]), row, self.stored.data[i])

    def count_present(self) -> int:
        """How many values are not missing. Reads the whole table."""
        return sum(int(is_present.sum()) for _, is_present in self.present_values())

    def to_csr(self) -> Any:
        """The values that are not missing: float32 scipy.sparse.csr_matrix (n_rows, n_features)."""
        values, columns, counts = [np.zeros(0, np.float32)], [np.zeros(0, np.intp)], [np.zeros(1, np.intp)]
        for batch, is_present in self.present_values():
            values.append(batch[is_present])
            columns.append(np.nonzero(is_present)[1])
            counts.append(is_present.sum(axis=1))
        data = np.concatenate(values), np.concatenate(columns), np.concatenate(counts).cumsum()
        return scipy_sparse("get_data()").csr_matrix(data, shape=(self.n_rows, self.n_features))

    def present_values(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """(float32 batch, which of it is not missing), on the host."""
        for batch in self.batches():
            with np.errstate(over="ignore"):
                batch = np.asarray(host_array(batch), np.float32)
            yield batch, ~np.isnan(batch) & (batch != np.float32(self.missing))

    def finite(self) -> "ColumnSource":
        """The same table, whose reader raises ValueError for the first value that is infinite or too large for float32."""
        return replace(self, read=self._read_checked, read_unchecked=self.read)

    def infinite_row(self, column: int) -> int | None:
        """The first row that finite() would refuse for a column; None where there is none."""
        for rows in self.batch_slices():
            batch = self.read(rows)
            with on_device_of(batch):  # that of the training, where it reads a table of the host
                found = np.flatnonzero(self._is_outside(batch[:, column]))
            if len(found):
                return int(rows.start + found[0])
        return None

    def _is_outside(self, values: Array) -> np.ndarray:
        """bool: whether they are infinite or too large for float32, and not missing."""
        with np.errstate(over="ignore"):
            return host_array((abs(values) >= LARGEST) & (values.astype(np.float32) != np.float32(self.missing)))

    def _read_checked(self, rows: Rows) -> Array:
        batch = self.read(rows)
        with current_device(self.device):
            if (abs(batch) >= LARGEST).any():
                for i, j in np.argwhere(self._is_outside(batch))[:1]:
                    row = int(np.arange(self.n_rows)[rows][i]) if isinstance(rows, slice) else int(rows[i])
                    raise self._infinite(j, row, batch[i, j])
        return batch

    def _infinite(self, column: int, row: int, value: Any) -> RowError:
        name = quoted(self.feature_names[column] if self.feature_names else str(column))
        return RowError(
            f"{name} holds a value that is infinite or at least 3.4028235e38 in size, outside float32, in ", row,
            f": {float(value)}. Replace it, or set it to NaN to treat it as missing.",
        )  # fmt: skip


def _read_taken(read: Read, index: Array, rows: Rows) -> Array:
    return read(index[rows])
