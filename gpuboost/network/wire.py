"""What goes over the wire: a header, then int64 values, each block of them in as few bytes as its largest value needs.

    header    magic, kind, operation, sequence, n_values, n_bytes                                       20 bytes
    payload   a byte for each block, its width: 1, 2, 4 or 8 | all blocks of width 1 | … of width 8     n_bytes

Histograms are sums of 16-bit gradients: most of their bins fit 32 bits, those of small nodes 16, and empty ones 8.
"""

from struct import Struct
from typing import Any, NamedTuple

import numpy as np

__all__ = ["ABORT", "DATA", "HEADER", "Header", "MAGIC", "PULSE", "largest_payload", "pack_values", "unpack_values"]

MAGIC = b"gb"
DATA, PULSE, ABORT = 0, 1, 2  # kinds: values; a sign of life; the sender gives up, and the payload says why
HEADER = Struct("!2sBBIIQ")
BLOCK = 1024  # values of one width. Bins of a feature are neighbours, and alike
WIDTHS = (1, 2, 4, 8)
TYPES: dict[int, np.dtype[np.signedinteger[Any]]] = {width: np.dtype(f"<i{width}") for width in WIDTHS}


class Header(NamedTuple):
    """Of a frame. operation, sequence : which sum or maximum of the job the values belong to."""

    magic: bytes
    kind: int
    operation: int
    sequence: int
    n_values: int
    n_bytes: int


def pack_values(values: np.ndarray) -> list[memoryview]:
    """int64 (n,), n at least 1, as the parts of a payload."""
    size = min(len(values), BLOCK)
    if lacking := -len(values) % size:
        values = np.concatenate([values, np.zeros(lacking, np.int64)])
    blocks = values.reshape(-1, size)
    low, high = blocks.min(axis=1), blocks.max(axis=1)
    exponent = np.zeros(len(blocks), np.uint8)
    for width in WIDTHS[:-1]:
        limits = np.iinfo(TYPES[width])
        exponent += (low < limits.min) | (high > limits.max)
    parts: list[np.ndarray] = [np.left_shift(1, exponent).astype(np.uint8)]
    for power, width in enumerate(WIDTHS):
        is_own = exponent == power
        if is_own.any():
            parts.append((blocks if is_own.all() else blocks[is_own]).astype(TYPES[width]))
    return [np.ascontiguousarray(part).data.cast("B") for part in parts]


def unpack_values(payload: bytes | bytearray, n_values: int) -> np.ndarray:
    """int64 (n_values,) of the bytes that pack_values made. Raises ValueError for any others."""
    size = min(n_values, BLOCK)
    n_blocks = -(-n_values // size)
    width = np.frombuffer(payload, np.uint8, min(n_blocks, len(payload)))
    is_whole = len(payload) == n_blocks + size * int(width.sum(dtype=np.int64))
    if len(width) < n_blocks or not is_whole or not np.isin(width, WIDTHS).all():
        raise ValueError(f"{len(payload)} bytes are no payload of {n_values} values.")
    blocks, begin = np.empty((n_blocks, size), np.int64), n_blocks
    for own in WIDTHS:
        is_own = width == own
        if n_own := int(np.count_nonzero(is_own)):
            blocks[is_own] = np.frombuffer(payload, TYPES[own], n_own * size, begin).reshape(n_own, size)
            begin += n_own * size * own
    return blocks.reshape(-1)[:n_values]


def largest_payload(n_values: int) -> int:
    """Bytes that a payload of so many values can have at most."""
    size = min(n_values, BLOCK)
    n_blocks = -(-n_values // size)
    return n_blocks * (1 + 8 * size)
