"""Arrays that the system itself maps, rather than malloc.

Arrays by row that are larger than memory together lie in files without names: the system keeps in memory what is worked on, page
by page, and a file goes away with its array, however the process ends. Large arrays for a passing need go back with them.
"""

import math
import mmap
import os
import tempfile
from collections.abc import Callable
from contextlib import suppress

import numpy as np

from gpuboost.arrays import empty_from_a_line
from gpuboost.storage.room import free_memory

__all__ = ["Allocate", "row_allocator", "scratch"]

Allocate = Callable[[tuple[int, ...], type], np.ndarray]  # shape, dtype → a new C-contiguous array of unspecified content

LEAST_BYTES = 2**26  # for which it is worth a look at how much memory is free
LEAST_SCRATCH = 2**22  # bytes that are mapped for a passing need
RESERVE_BYTES = 2**28  # of memory that is left free: for histograms, and for pages that are read


def row_allocator(n_bytes: int) -> Allocate:
    """Where arrays of so many bytes in all are to lie: in memory as far as they fit."""
    fits = n_bytes < LEAST_BYTES or n_bytes + RESERVE_BYTES <= free_memory()
    return empty_from_a_line if fits else _empty_mapped


def scratch(shape: tuple[int, ...], dtype: np.dtype | type) -> np.ndarray:
    """A new array of unspecified content for a passing need, whose memory goes back to the system with it. (malloc would keep up
    to 32 MiB, in which what comes next does not always fit.) Raises MemoryError where there is no room."""
    n_items = math.prod(shape)
    n_bytes = n_items * np.dtype(dtype).itemsize
    if n_bytes < LEAST_SCRATCH:
        return np.empty(shape, dtype)
    is_posix = hasattr(mmap, "MAP_ANONYMOUS")
    try:
        memory = mmap.mmap(-1, n_bytes, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) if is_posix else mmap.mmap(-1, n_bytes)
    except (OSError, OverflowError):
        return np.empty(shape, dtype)  # which has room after all, or says how much was asked for
    if hasattr(mmap, "MADV_HUGEPAGE"):  # as NumPy asks for its own: a fault for 2 MiB instead of 512
        with suppress(OSError):  # a kernel without them
            memory.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(memory, dtype, n_items).reshape(shape)


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
