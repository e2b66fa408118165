"""Arrays by row that are larger than memory together: then they lie in files without names, which are mapped.

The system keeps in memory what is worked on, page by page, and a file goes away with its array, however the process ends.
"""

import mmap
import os
import tempfile
from collections.abc import Callable

import numpy as np

from gpuboost.storage.room import free_memory

__all__ = ["Allocate", "row_allocator"]

Allocate = Callable[[tuple[int, ...], type], np.ndarray]  # shape, dtype → a new C-contiguous array of unspecified content

LEAST_BYTES = 2**26  # for which it is worth a look at how much memory is free
RESERVE_BYTES = 2**28  # of memory that is left free: for histograms, and for pages that are read


def row_allocator(n_bytes: int) -> Allocate:
    """Where arrays of so many bytes in all are to lie: np.empty as far as they fit in memory."""
    fits = n_bytes < LEAST_BYTES or n_bytes + RESERVE_BYTES <= free_memory()
    return np.empty if fits else _empty_mapped


def _empty_mapped(shape: tuple[int, ...], dtype: type) -> np.ndarray:
    """Raises OSError where the disk of the folder for temporary files has no room."""
    n_items = int(np.prod(shape))
    n_bytes = max(n_items, 1) * np.dtype(dtype).itemsize
    with tempfile.TemporaryFile() as file:
        try:
            os.truncate(file.fileno(), n_bytes)
            if hasattr(os, "posix_fallocate"):  # a full disk is told now, not by a signal when it is written to
                os.posix_fallocate(file.fileno(), 0, n_bytes)
        except OSError as error:
            raise OSError(
                f"{tempfile.gettempdir()} cannot take {n_bytes} more bytes for rows that do not fit in memory: {error.strerror}. "
                "Make room there, or name another folder by the environment variable TMPDIR."
            ) from None
        return np.frombuffer(mmap.mmap(file.fileno(), n_bytes), dtype, n_items).reshape(shape)
