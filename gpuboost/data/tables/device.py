"""What lies on a GPU (CuPy arrays, whatever CuPy can view as one, cudf frames), and the ways between there and the host.

Tables are read where they lie; labels come to the host, predictions return to the table's device. CuPy is imported only where
such a table is opened; cudf never is: a cudf frame exists only once its user has imported it (cudf_frames.py reads it).
"""

import sys
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import numpy as np

from gpuboost.data.tables.batches import Array, Read, Rows
from gpuboost.errors import install

__all__ = [
    "cupy_module", "current_device", "host_array", "is_cudf", "is_device_table", "like", "open_device_table",
    "put_on", "read_on",
]  # fmt: skip

# DLPack's numbers of the kinds of devices.
DLPACK_CUDA = 2, 13  # CUDA memory, CUDA managed memory
DLPACK_HOST = 1, 3  # memory of the host, the same pinned for CUDA


def is_device_table(data: Any) -> bool:
    """Whether this is an array, a Series or a frame on a CUDA device."""
    return is_cudf(data) or hasattr(data, "__cuda_array_interface__") or _dlpack_kind(data) in DLPACK_CUDA


def open_device_table(data: Any) -> tuple[Any, int]:
    """What is_device_table says yes to, and the number of its device. Raises ImportError where CuPy is missing.

    cudf's frames and Series stay such, all else is a view of any shape and kind as a CuPy array. Nothing is copied.
    """
    cupy = cupy_module()
    if is_cudf(data):  # cudf works on the current device
        return data, cupy.cuda.Device().id
    array = as_device_array(data)
    return array, array.device.id


def as_device_array(data: Any) -> Array:
    """A CuPy array that views an array on a CUDA device."""
    cupy = cupy_module()
    if isinstance(data, cupy.ndarray):
        return data
    if _dlpack_kind(data) in DLPACK_CUDA:  # before the array interface, as its producer orders the two libraries' streams
        return cupy.from_dlpack(data)
    return cupy.asarray(data)


def host_array(values: Any) -> Any:
    """A copy on the host: NumPy arrays of device arrays, pandas objects of cudf ones.

    Arrays on the host that speak nothing but DLPack become NumPy views; all else is returned as it is.
    """
    if is_cudf(values):
        return values.to_pandas()
    if is_device_table(values):
        return as_device_array(values).get()
    if _dlpack_kind(values) in DLPACK_HOST and not hasattr(values, "__array__"):
        return np.from_dlpack(values)
    return values


def current_device(device: int | None) -> AbstractContextManager[Any]:
    """``with current_device(1): …`` computes there; None changes nothing."""
    return nullcontext() if device is None else cupy_module().cuda.Device(device)


def put_on(device: int | None, values: Array) -> Array:
    """The array on a CUDA device, as a CuPy array; None: as it is."""
    with current_device(device):
        return values if device is None else cupy_module().asarray(values)


def like(table: Any, values: np.ndarray) -> Array:
    """Predictions for a table: a CuPy array on the table's device if it lies on one and they are numbers, else as they are."""
    is_wanted = is_device_table(table) and values.dtype.kind in "biuf"
    return put_on(open_device_table(table)[1], values) if is_wanted else values


def read_on(device: int, read: Read) -> Read:
    """A reader for rows given on the host (slice or int (n,)) that computes with its table's device as the current one."""
    return partial(_read_there, device, read)


def _read_there(device: int, read: Read, rows: Rows) -> Array:
    with current_device(device):
        return read(rows if isinstance(rows, slice) else cupy_module().asarray(rows))


def cupy_module() -> Any:
    """CuPy; ImportError saying how to install it."""
    try:
        import cupy
    except ImportError as error:
        raise ImportError(
            f"a table on a GPU is read through CuPy ({error}): {install('cuda13')} (or [cuda12] for CUDA 12). "
            "Or pass a copy on the host."
        ) from None
    return cupy


def is_cudf(data: Any, *kinds: str) -> bool:
    """Whether this is one of these classes of cudf; of any that holds data where none is named."""
    cudf = sys.modules.get("cudf")
    return cudf is not None and isinstance(data, tuple(getattr(cudf, kind) for kind in kinds or ("DataFrame", "Series", "Index")))


def _dlpack_kind(data: Any) -> int | None:
    return int(data.__dlpack_device__()[0]) if hasattr(data, "__dlpack_device__") and hasattr(data, "__dlpack__") else None
