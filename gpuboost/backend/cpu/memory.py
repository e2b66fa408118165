"""Host memory: NumPy arrays."""

import numpy as np

from gpuboost.arrays import usual_form, zeros_from_a_line
from gpuboost.backend.contract import Array, Memory

__all__ = ["HostMemory", "host_array", "host_batch"]


def host_array(array: Array) -> np.ndarray:
    """A batch of a table as a NumPy array: a copy where it lies on a GPU."""
    return array.get() if hasattr(array, "get") else array


def host_batch(batch: Array) -> np.ndarray:
    """The same, for a kernel that only reads it."""
    return usual_form(host_array(batch))


class HostMemory(Memory):
    """NumPy arrays."""

    name = "host"

    def zeros(self, shape: tuple[int, ...], dtype: np.dtype | type | str) -> Array:
        return zeros_from_a_line(shape, dtype)

    def put(self, array: Array) -> Array:
        return np.ascontiguousarray(host_array(array))

    def fetch(self, array: Array) -> np.ndarray:
        return array
