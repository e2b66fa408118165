"""What a user gives beside a table (labels, weights, queries, row numbers) as checked NumPy arrays."""

from typing import Any

import numpy as np

from gpuboost.config import warn
from gpuboost.data.tables.device import host_array
from gpuboost.data.tables.numbers import as_floats
from gpuboost.errors import RowError

__all__ = [
    "as_bound", "as_columns", "as_feature_weights", "as_integers", "as_weights", "group_ptr", "is_empty", "query_integers",
    "row_numbers", "sizes_of_queries", "unmasked",
]  # fmt: skip

LARGEST_USUAL_WEIGHT = 1e6


def is_empty(values: Any) -> bool:
    """Whether this is an array or list of nothing, which takes back what was given; of two dimensions it is meant for rows."""
    return values.shape == (0,) if isinstance(values, np.ndarray) else isinstance(values, list | tuple) and not values


def as_columns(name: str, values: Any, n_rows: int, takes_nan: bool = False) -> np.ndarray:
    """Anything array-like as float32 (n_rows, k). Raises ValueError naming count and first row of what does not fit."""
    array = _numbers(name, values)
    if array.ndim not in (1, 2) or array.shape[1:] == (0,):
        raise ValueError(f"{name} must have shape (n_rows,) or (n_rows, k), k at least 1, got {array.shape}.")
    if name == "base_margin" and array.ndim == 1 and len(array) > n_rows > 0 and len(array) % n_rows == 0:
        array = array.reshape(n_rows, -1)  # of several outputs, row by row
    array = array[:, None] if array.ndim == 1 else array
    if len(array) != n_rows:
        raise ValueError(f"{name} has {len(array)} rows, data has {n_rows}. Both need the same rows.")
    with np.errstate(over="ignore"):
        result = array.astype(np.float32)
    is_taken = np.isfinite(result)
    if takes_nan:
        is_taken |= np.isnan(result)
    if not is_taken.all():
        bad = ~is_taken.all(axis=1)
        first = int(np.argmax(bad))
        value = array[first][~is_taken[first]][0]
        raise RowError(
            f"{name} must be finite float32 numbers: {int(bad.sum())} rows are NaN, infinite or beyond 3.4e38, the first at ",
            first,
            f": {value}. Remove or replace them"
            + (", or pass missing_labels='mask' to the DMatrix." if name == "label" and np.isnan(value) else "."),
        )
    return result


def as_bound(name: str, values: Any, n_rows: int) -> np.ndarray:
    """float32 (n_rows,) that may be infinite, but not NaN."""
    bound = _numbers(name, values)
    if bound.shape not in ((n_rows,), (n_rows, 1)):
        raise ValueError(f"{name} must have one value per row ({n_rows}), got shape {bound.shape}.")
    with np.errstate(over="ignore"):
        bound = bound.reshape(n_rows).astype(np.float32)
    if (bad := np.isnan(bound)).any():
        raise RowError(f"{name} must not be NaN: {bad.sum()} values are, the first at ", int(np.argmax(bad)), ". Use infinity.")
    return bound


def as_weights(values: Any, n_rows: int, first_rows: np.ndarray) -> np.ndarray:
    """float32 (n_rows,), none negative; a UserWarning where one is huge, or too small for float32. first_rows : group_ptr of the
    queries, or empty: there may be one weight for each.

    (Of others that are tiny training warns if it learns nothing.)
    """
    given = _numbers("weight", values)
    if given.ndim == 1 and len(given) == len(first_rows) - 1 != n_rows:
        given = np.repeat(given, np.diff(first_rows))
    if given.ndim == 1 and len(given) != n_rows:
        fix = "Give one for each row; one for each query goes beside group= or qid=, or is set after them."
        raise ValueError(f"weight has {len(given)} rows, data has {n_rows}. {fix}")
    columns = as_columns("weight", given, n_rows)
    if columns.shape[1] != 1:
        raise ValueError(f"weight must have one value per row, got {columns.shape[1]} columns.")
    weight = np.ascontiguousarray(columns[:, 0])
    if (bad := weight < 0).any():
        raise RowError(f"weight must not be negative: {bad.sum()} values are, the first at ", int(np.argmax(bad)), ".")
    if (largest := float(weight.max(initial=0.0))) > LARGEST_USUAL_WEIGHT:
        warn(
            f"weight is {largest:g} at most, which is unusual: reg_lambda, reg_alpha, gamma and min_child_weight are compared "
            "with sums over weighted rows. Divide the weights by their mean.",
        )
    if n_lost := np.count_nonzero(given) - np.count_nonzero(weight):
        message = f"{n_lost} weights are so small that float32 rounds them to 0, and their rows do not count. Use larger ones."
        warn(message)
    return weight


def group_ptr(group: Any, n_rows: int) -> np.ndarray:
    """uint32 (n_groups + 1,), first rows, of the numbers of rows in each group."""
    sizes = query_integers("group", group)
    total = sum(sizes.tolist())  # of Python's integers, which do not overflow
    if (sizes < 0).any():
        raise ValueError(f"group must hold the rows of each query, got {sizes.min()} for query {sizes.argmin()}. Count anew.")
    if total != n_rows:
        raise ValueError(f"group must hold the rows of each query, {n_rows} together, got a sum of {total}.")
    return np.concatenate([[0], sizes.cumsum()]).astype(np.uint32)


def sizes_of_queries(qid: Any, n_rows: int) -> np.ndarray:
    """Rows of each query, of one number per row that never decreases."""
    values = query_integers("qid", qid)
    if len(values) != n_rows:
        raise ValueError(f"qid has {len(values)} rows, data has {n_rows}. Both need the same rows.")
    falls = values[1:] < values[:-1]
    if falls.any():
        row = int(np.argmax(falls)) + 1
        raise RowError("qid must not decrease, but does at ", row, f": {values[row]}. Sort the rows by query.")
    return np.unique(values, return_counts=True)[1]


def as_feature_weights(weights: Any, n_features: int) -> np.ndarray:
    """float32 (n_features,), none negative."""
    with np.errstate(over="ignore"):
        values = _numbers("feature_weights", weights).astype(np.float32)
    values = values.reshape(-1) if values.shape == (n_features, 1) else values
    if values.shape != (n_features,):
        raise ValueError(f"feature_weights must hold one number per column ({n_features}), got shape {values.shape}.")
    if (bad := ~(np.isfinite(values) & (values >= 0))).any():
        j = int(np.argmax(bad))
        raise ValueError(f"feature_weights must be finite and not negative, got {values[j]} for column {j}.")
    return values


def row_numbers(rindex: Any, n_rows: int, name: str = "rindex") -> np.ndarray:
    """intp (n,). Raises ValueError for a mask of the wrong length, IndexError for rows that do not exist.

    name : what they are called where they are given.
    """
    index = _as_array(name, rindex)
    if index.dtype == bool and index.shape != (n_rows,):
        raise ValueError(f"a boolean {name} must have one value per row ({n_rows}), got shape {index.shape}.")
    rows = np.flatnonzero(index) if index.dtype == bool else as_integers(name, index)
    outside = (rows < 0) | (rows >= n_rows)
    if outside.any():
        raise IndexError(f"{name} must lie in [0, {n_rows - 1}], got {rows[outside][0]}.")
    return rows.astype(np.intp)


def query_integers(name: str, values: Any) -> np.ndarray:
    """as_integers, also of one column."""
    array = _as_array(name, values)
    return as_integers(name, array.reshape(-1) if array.ndim == 2 and array.shape[1] == 1 else array)


def as_integers(name: str, values: Any) -> np.ndarray:
    """int64 (n,). Raises ValueError for anything but one dimension of whole numbers."""
    array = _as_array(name, values)
    if array.ndim != 1 or (len(array) and array.dtype.kind not in "biuf"):
        raise ValueError(f"{name} must hold integers in one dimension, got shape {array.shape} of dtype {array.dtype}.")
    if array.dtype.kind == "f" and not (array == np.floor(array)).all():
        raise ValueError(f"{name} must hold integers, got {array[array != np.floor(array)][0]}.")
    if array.dtype.kind in "uf" and len(array) and abs(array).max() >= 2**63:
        raise ValueError(f"{name} must hold integers below 2^63, got {array[abs(array) >= 2**63][0]}.")
    return array.astype(np.int64)


def _numbers(name: str, values: Any) -> np.ndarray:
    """Anything array-like as an array of numbers or booleans of any shape; ValueError where it holds anything else."""
    array = _as_array(name, values)
    if array.dtype.kind in "OUST":
        try:
            return as_floats(array)
        except (TypeError, ValueError):
            pass
    if array.dtype.kind not in "biuf":
        column = f" Pass the values, data[{values!r}]: a name is for a DMatrix of a file, a dataset or a lazy frame."
        raise ValueError(f"{name} must hold numbers, got dtype {array.dtype}.{column if isinstance(values, str) else ''}")
    return array


def unmasked(values: Any) -> Any:
    """The same, masked entries as NaN."""
    return np.ma.filled(values.astype(np.float64), np.nan) if np.ma.is_masked(values) else values


def _as_array(name: str, values: Any) -> np.ndarray:
    """Anything array-like as NumPy makes an array of it, masked entries as NaN; ValueError where it cannot."""
    values = host_array(values)
    try:
        return np.asarray(unmasked(values))
    except Exception as error:  # every library has its own
        raise ValueError(f"{name} must hold numbers in rows of equal length: {error}. Pass a NumPy array.") from None
