"""A table's values as float32 numbers, each rounded once: from any number, object or text; and what is refused or lost there."""

import datetime
from contextlib import suppress
from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np

from gpuboost.config import warn
from gpuboost.data.tables.batches import Array
from gpuboost.data.tables.names import listing, quoted

__all__ = ["as_floats", "check_objects", "exceeds_float32", "to_float32", "unusable", "warn_lossy"]

HINTS = {  # NumPy kind → what to do about it, where no library has its own way
    "U": "Pass a data frame whose columns of text are categories.",
    "M": 'Use .astype("int64"), or extract parts such as the year or the weekday.',
    "c": "Pass the real and the imaginary part as two columns.",
    "V": "Convert it to columns of numbers, for example with pandas.DataFrame(X).",
}
OWN_HINTS = {  # the same of a library's columns
    ("pandas", "U"): 'Convert it to categories: df["{0}"] = df["{0}"].astype("category").',
    ("polars", "U"): 'Convert it to categories: df = df.with_columns(pl.col("{0}").cast(pl.Categorical)).',
    ("pyarrow", "U"): 'Convert it to categories: df = df.set_column(df.column_names.index("{0}"), "{0}", '
    'df["{0}"].dictionary_encode()).',
    ("polars", "M"): "Use .cast(pl.Int64), or extract parts such as the year or the weekday.",
    ("pyarrow", "M"): "Convert it to integers, or extract parts such as the year or the weekday.",
}


def to_float32(values: Array) -> Array:
    """A float32 copy, rounded once from the source's own precision; None and pandas.NA become NaN."""
    with np.errstate(over="ignore", invalid="ignore"):  # 1e39 becomes inf, which training reports
        return (as_floats(values) if values.dtype.kind == "O" else values).astype(np.float32)


def as_floats(values: Array) -> Array:
    """float64 of objects or text: None, pandas.NA and any NaN become NaN, what float64 cannot hold infinite.

    Raises TypeError or ValueError where one is no number.
    """
    with suppress(TypeError, ValueError, OverflowError):
        return values.astype(np.float64)  # fast, and enough for most
    return np.array([_float(value) for value in values.flat], np.float64).reshape(values.shape)


def _float(value: Any) -> float:
    if value is None or type(value).__name__ == "NAType" or (isinstance(value, Decimal) and value.is_nan()):
        return np.nan
    try:
        return float(value)
    except OverflowError:
        return np.inf if value > 0 else -np.inf


def check_objects(values: Array, name: str, library: str = "") -> None:
    """Raise ValueError unless every object is a number, a boolean, None or pandas.NA. name, library : as for unusable."""
    for kind in set(map(type, values.tolist())):
        if not (issubclass(kind, Real | Decimal | np.bool_ | type(None)) or kind.__name__ == "NAType"):
            is_date = issubclass(kind, datetime.date | datetime.time | datetime.timedelta | np.datetime64 | np.timedelta64)
            letter = "U" if issubclass(kind, str | bytes) else "M" if is_date else "V"
            raise unusable(quoted(name), kind.__name__, letter, name, library)


def unusable(
    where: str, dtype: Any, kind: str, name: str = "", library: str = "", but: str = "must hold numbers, booleans or categories"
) -> ValueError:
    """The error for a table or column of values that cannot be used. kind : NumPy's letter for them. name, library : of a column
    of a frame, to say what to do there."""
    kind = {"S": "U", "T": "U", "m": "M"}.get(kind, kind)
    hint = OWN_HINTS.get((library, kind), HINTS[kind]).format(name)
    return ValueError(f"{where} holds {dtype}, but {but}. {hint}")


def exceeds_float32(integers: Array) -> Array:
    """Which integers are no float32 values, bool of the same shape.

    m = q · 2**z with q odd is a float32 value iff q < 2**24, that is, iff m >> 24 is below its lowest set bit 2**z.
    """
    if integers.dtype.itemsize < 4 or not integers.size or max(-int(integers.min()), int(integers.max())) <= 1 << 24:
        return np.zeros(integers.shape, bool)
    m = (np.abs(integers.astype(np.int64)) if integers.dtype.kind == "i" else integers).astype(np.uint64)
    lowest_bit = m & (~m + np.uint64(1))
    return (m >> np.uint64(24) >= lowest_bit) & (m != 0)


def warn_lossy(names: list[str]) -> None:
    """A UserWarning that integers of these columns, if any, become equal as float32."""
    if names:
        text = f"Integers in {listing(names)} have more digits than float32, so neighbours become equal"
        text += ": thresholds in the model file are float32. If they must stay apart, subtract an offset first."
        warn(text)
