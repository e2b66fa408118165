"""Arrays of NumPy or CuPy, for whoever computes on them outside a backend."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

__all__ = ["on_device_of"]


def on_device_of(array: Any) -> AbstractContextManager[Any]:
    """``with on_device_of(a): b = a + 1`` computes where ``a`` lies: CuPy works on the current device, which may be another one.

    Nothing changes for an array of NumPy.
    """
    device: Any = getattr(array, "device", None)  # "cpu" of NumPy's arrays, of CuPy's what can be made the current one
    return device if hasattr(device, "__enter__") else nullcontext()
