"""cudf's frames and columns, as frames.read_frame asks them; they are read on their GPU."""

import sys
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from gpuboost.data.tables.batches import Array, Read, Rows
from gpuboost.data.tables.device import cupy_module

__all__ = ["CudfColumn", "CudfFrame"]


class CudfFrame:
    """A cudf DataFrame as frames.read_frame asks it. host_frames.HostFrame is its twin."""

    def __init__(self, frame: Any) -> None:
        self._frame = frame
        self.shape = frame.shape
        self.names = list(frame)

    @property
    def xp(self) -> Any:
        """The module of its arrays."""
        return cupy_module()

    def columns(self) -> Iterator["CudfColumn"]:
        return (CudfColumn(self._frame.iloc[:, j]) for j in range(self.shape[1]))

    def whole_array(self) -> None:
        """None: cudf stores each column by itself."""


class CudfColumn:
    """A cudf Series as frames.read_frame asks it. host_frames.HostColumn is its twin."""

    library = "pandas"  # whose methods cudf has

    def __init__(self, series: Any) -> None:
        self._series = series.astype("float64") if str(series.dtype).startswith("decimal") else series
        self.dtype = self._series.dtype
        self.is_categorical = isinstance(self.dtype, sys.modules["cudf"].CategoricalDtype)

    @property
    def kind(self) -> str:
        """NumPy's letter for the values; U for text, V for lists and structs."""
        if str(self.dtype) in ("object", "str", "string"):
            return "U"
        kind = getattr(self.dtype, "kind", "V")
        return kind if kind in "biufMm" else "V"

    def is_null(self) -> bool:
        """Whether there is no value at all."""
        return self._series.null_count == len(self._series)

    def number_reader(self, name: str) -> Read:
        """rows → (n,) numbers, NaN where missing."""
        if self.kind not in "biuf":  # nothing but nulls
            return partial(_read_nulls, self._series)
        return partial(_read_nullable if self._series.null_count else _read_plain, self._series)

    def present_integers(self, rows: Any) -> Array:
        """What a column of integers holds in these rows; what stands for its nulls fits float32."""
        return _filled(self._series.iloc[rows])[0]

    def dictionary(self) -> tuple[list[Any], Read]:
        """The values of a categorical column, on the host, and its reader: rows → int (n,) codes into them, -1 where null."""
        codes = self._series.cat.codes
        return self._series.cat.categories.to_pandas().tolist(), partial(_read_codes, codes)


def _read_nulls(series: Any, rows: Rows) -> Array:
    return cupy_module().full(len(series.iloc[rows]), np.nan, np.float32)


def _read_plain(series: Any, rows: Rows) -> Array:
    return series.iloc[rows].values


def _read_nullable(series: Any, rows: Rows) -> Array:
    values, is_null = _filled(series.iloc[rows])
    values = values if values.dtype.kind == "f" else values.astype(np.float32)  # integers are rounded once
    return cupy_module().where(is_null, values.dtype.type(np.nan), values)


def _read_codes(codes: Any, rows: Rows) -> Array:
    values, is_null = _filled(codes.iloc[rows])
    return cupy_module().where(is_null, np.int64(-1), values.astype(np.int64))


def _filled(series: Any) -> tuple[Array, Array]:
    """The values of a cudf Series with 0 in the place of nulls, and where it is null (bool)."""
    filled = series.fillna(series.dtype.type(0)) if series.null_count else series
    return filled.values, series.isnull().values
