"""Tables that lie on a GPU: CuPy arrays, whatever CuPy can view as one, and cudf frames. They are read where they lie.

Also what goes the other way: labels that must come to the host, and predictions that must return to the device.
CuPy is imported only where such a table is opened; cudf never is: a cudf frame exists only once its user has imported it.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

__all__ = [
    "CudfColumn", "CudfFrame", "as_device_array", "current_device", "host_array", "is_device_table", "like", "open_device_table",
    "put_on", "read_on",
]  # fmt: skip

Array = Any
Read = Callable[[Any], Array]

# DLPack's numbers of the kinds of devices.
DLPACK_CUDA = 2, 13  # CUDA memory, CUDA managed memory
DLPACK_HOST = 1, 3  # memory of the host, the same pinned for CUDA


def is_device_table(data: Any) -> bool:
    """Whether this is an array, a Series or a frame on a CUDA device."""
    return _is_cudf(data) or hasattr(data, "__cuda_array_interface__") or _dlpack_kind(data) in DLPACK_CUDA


def open_device_table(data: Any) -> tuple[Any, int]:
    """What is_device_table says yes to, as a CudfFrame or an array of any shape and kind, and the number of its device.

    The array is CuPy's; a cudf Series, which has the wrong shape for a table, stays one. Nothing is copied. Raises ImportError
    where CuPy is missing.
    """
    cupy = _cupy()
    if _is_cudf(data):  # cudf works on the current device
        return CudfFrame(data) if _is_cudf(data, "DataFrame") else data, cupy.cuda.Device().id
    array = as_device_array(data)
    return array, array.device.id


def as_device_array(data: Any) -> Array:
    """A CuPy array that views an array on a CUDA device."""
    cupy = _cupy()
    if isinstance(data, cupy.ndarray):
        return data
    if _dlpack_kind(data) in DLPACK_CUDA:  # before the array interface, as its producer orders the two libraries' streams
        return cupy.from_dlpack(data)
    return cupy.asarray(data)


def host_array(values: Any) -> Any:
    """A copy on the host: NumPy arrays of device arrays, pandas objects of cudf ones.

    Arrays on the host that speak nothing but DLPack become NumPy views; all else is returned as it is.
    """
    if _is_cudf(values):
        return values.to_pandas()
    if is_device_table(values):
        return as_device_array(values).get()
    if _dlpack_kind(values) in DLPACK_HOST and not hasattr(values, "__array__"):
        return np.from_dlpack(values)
    return values


def current_device(device: int | None) -> AbstractContextManager[Any]:
    """``with current_device(1): …`` computes there; None changes nothing."""
    return nullcontext() if device is None else _cupy().cuda.Device(device)


def put_on(device: int | None, values: Array) -> Array:
    """The array on a CUDA device, as a CuPy array; None: as it is."""
    with current_device(device):
        return values if device is None else _cupy().asarray(values)


def like(table: Any, values: np.ndarray) -> Array:
    """Predictions for a table: a CuPy array on the table's device if it lies on one and they are numbers, else as they are."""
    is_wanted = is_device_table(table) and values.dtype.kind in "biuf"
    return put_on(open_device_table(table)[1], values) if is_wanted else values


def read_on(device: int, read: Read) -> Read:
    """A reader for rows given on the host (slice or int (n,)) that computes with its table's device as the current one."""

    def read_there(rows: Any) -> Array:
        with current_device(device):
            return read(rows if isinstance(rows, slice) else _cupy().asarray(rows))

    return read_there


# ---- cudf


class CudfFrame:
    """A cudf DataFrame as ingest._read_frame asks it. ingest._HostFrame is its twin."""

    def __init__(self, frame: Any) -> None:
        self.xp = _cupy()
        self._frame = frame
        self.shape = frame.shape
        self.names = list(frame)

    def columns(self) -> Iterator["CudfColumn"]:
        return (CudfColumn(self._frame.iloc[:, j]) for j in range(self.shape[1]))

    def whole_array(self) -> None:
        """None: cudf stores each column by itself."""


class CudfColumn:
    """A cudf Series as ingest._read_frame asks it. ingest._HostColumn is its twin."""

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
        series, cupy = self._series, _cupy()
        if self.kind not in "biuf":  # nothing but nulls
            return lambda rows: cupy.full(len(series.iloc[rows]), np.nan, np.float32)
        if not series.null_count:
            return lambda rows: series.iloc[rows].values

        def read(rows: Any) -> Array:
            values, is_null = _filled(series.iloc[rows])
            values = values if self.kind == "f" else values.astype(np.float32)  # integers are rounded once
            return cupy.where(is_null, values.dtype.type(np.nan), values)

        return read

    def present_integers(self, rows: Any) -> Array:
        """What a column of integers holds in these rows; what stands for its nulls fits float32."""
        return _filled(self._series.iloc[rows])[0]

    def dictionary(self) -> tuple[list[Any], Read]:
        """The values of a categorical column, on the host, and its reader: rows → int (n,) codes into them, -1 where null."""
        codes, cupy = self._series.cat.codes, _cupy()

        def read(rows: Any) -> Array:
            values, is_null = _filled(codes.iloc[rows])
            return cupy.where(is_null, np.int64(-1), values.astype(np.int64))

        return self._series.cat.categories.to_pandas().tolist(), read


def _filled(series: Any) -> tuple[Array, Array]:
    """The values of a cudf Series with 0 in the place of nulls, and where it is null (bool)."""
    filled = series.fillna(series.dtype.type(0)) if series.null_count else series
    return filled.values, series.isnull().values


# ---- what there is


def _cupy() -> Any:
    try:
        import cupy
    except ImportError as error:
        raise ImportError(
            f"a table on a GPU is read through CuPy ({error}): pip install 'gpuboost[cuda13]' (or [cuda12] for CUDA 12). "
            "Or pass a copy on the host."
        ) from None
    return cupy


def _is_cudf(data: Any, *kinds: str) -> bool:
    cudf = sys.modules.get("cudf")
    return cudf is not None and isinstance(data, tuple(getattr(cudf, kind) for kind in kinds or ("DataFrame", "Series", "Index")))


def _dlpack_kind(data: Any) -> int | None:
    return int(data.__dlpack_device__()[0]) if hasattr(data, "__dlpack_device__") and hasattr(data, "__dlpack__") else None
