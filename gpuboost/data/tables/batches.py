"""Which rows of a table are read together: batches of about 8 MB, and readers of them."""

from collections.abc import Callable, Iterator
from typing import Any

__all__ = ["Array", "Read", "Rows", "default_rows", "row_slices"]

Array = Any  # NumPy or CuPy
Rows = slice | Array  # a range of rows, or int (n,) row numbers
Read = Callable[[Rows], Array]  # rows → their values

BATCH_BYTES = 8 << 20  # of a float32 batch: small beside any table worth batching
DEVICE_FACTOR = 32  # times as many on a GPU (256 MB): a batch is a few kernel launches there, whatever its size
MIN_BATCH_ROWS = 1024  # keeps the cost per column and batch small in wide tables
SCAN_ROWS = 1 << 18  # rows of one column that a check looks at together


def default_rows(n_features: int, least: int = MIN_BATCH_ROWS) -> int:
    """Rows of a batch in host memory, ``least`` at least."""
    return max(least, BATCH_BYTES // (4 * n_features))


def row_slices(n_rows: int, step: int) -> Iterator[slice]:
    """All rows, ``step`` at a time."""
    return (slice(start, min(start + step, n_rows)) for start in range(0, n_rows, step))
