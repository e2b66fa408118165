"""Two-dimensional arrays as tables, on the host or on a GPU: which are, and how their rows are read."""

from collections.abc import Callable
from functools import partial

import numpy as np

from gpuboost.data.tables.batches import Array, Read, Rows, default_rows, row_slices
from gpuboost.data.tables.device import host_array
from gpuboost.data.tables.numbers import check_objects, exceeds_float32, to_float32, unusable, warn_lossy

__all__ = ["array_reader", "checked_array"]


def checked_array(table: Array) -> Array:
    """The array, if it is 2-D and holds numbers (it may be a MaskedArray) or objects; copied only when objects are masked."""
    if table.dtype.kind not in "biufO":
        raise unusable("data", table.dtype, table.dtype.kind)
    if table.ndim < 2:
        hint = "Use X.reshape(-1, 1) for one column (of a pandas Series X.to_frame()), X.reshape(1, -1) for one row."
        raise ValueError(f"data must be 2-D, got {table.ndim}-D of shape {table.shape}. {hint}")
    if table.ndim > 2:
        raise ValueError(f"data must be 2-D, got {table.ndim}-D of shape {table.shape}. Use X.reshape(len(X), -1).")
    if table.dtype.kind == "O" and np.ma.is_masked(table):
        objects = np.array(np.ma.getdata(table))
        objects[np.ma.getmask(table)] = None
        return objects
    return table


def array_reader(table: Array, label_of: Callable[[int], str], is_training: bool) -> Read:
    """rows → float32 or float64 (n, n_features): views of an aligned native float array, else rounded copies.

    table : what checked_array returned. label_of : a column's name in messages. is_training : whether lost digits are worth a
    UserWarning. Raises ValueError naming the column where objects are no numbers.
    """
    kind, is_masked, is_host = table.dtype.kind, isinstance(table, np.ma.MaskedArray), isinstance(table, np.ndarray)
    is_usable = not is_host or (table.dtype.isnative and table.flags.aligned and not is_masked)
    if table.dtype in (np.float32, np.float64) and is_usable:
        return table.__getitem__
    if kind == "O":
        for j in range(table.shape[1]):
            check_objects(table[:, j], label_of(j))
    if kind in "iu" and is_training:
        parts = (table[rows] for rows in row_slices(len(table), default_rows(table.shape[1])))
        parts = (np.ma.filled(part, 0) if is_masked else part for part in parts)
        lossy = {j for part in parts for j in np.flatnonzero(host_array(exceeds_float32(part).any(axis=0)))}
        warn_lossy([label_of(int(j)) for j in sorted(lossy)])
    return partial(_read_host if is_host else _read_device, table)


def _read_host(table: np.ndarray, rows: Rows) -> np.ndarray:
    return np.ma.filled(to_float32(table[rows]), np.nan)


def _read_device(table: Array, rows: Rows) -> Array:
    return table[rows].astype(np.float32)
