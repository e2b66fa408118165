"""Drawing rows by their gradients (kernels/row_sampling.py) and copying the columns drawn (kernels/compaction.py), half of both.

Floor of a row: counting reads 8 bytes and makes two updates. Drawing mixes 64 bits four times for each try of its permutation, up
to two on average, and reads and writes 8 bytes; listing reads 5 and writes 4. Of a code copied: the record is read, the code
written, or, if that takes longer, a lookup. bench_sampling.py tells what this saves a training.
"""

from typing import Any

from ceilings import Ceilings
from kernel_bench import Kernel, main

DRAWN = ("half of rows, columns",)


def count_magnitudes(a: Any, c: Ceilings) -> tuple[float, float]:
    n = a.kept.size
    return n, max(c.stream(8 * a.grad.size, 8 * a.grad.size), 2 * n * c.update(2048))


def draw_rows(a: Any, c: Ceilings) -> tuple[float, float]:
    n = a.kept.size
    tries = 2 ** (a.n_rows - 1).bit_length() / a.n_rows
    listed = c.stream(9 * n, 9 * n)
    return n, max(c.stream(16 * a.grad.size + n, 8 * a.grad.size), 4 * tries * n * c.mix(64)) + listed


def compact_codes(a: Any, c: Ceilings) -> tuple[float, float]:
    n, record = a.rows.size * a.features.size, a.records.shape[1] * a.records.itemsize
    moved = a.rows.size * record + n * a.records.itemsize
    return n, max(c.stream(moved, moved), n * c.lookup(64))


KERNELS = [
    Kernel("count_magnitudes_cpu", "row", count_magnitudes, "a square root; rows of like gradients wait for one count", DRAWN),
    Kernel("draw_rows_cpu", "row", draw_rows, "two divisions by p; one by one, what to try again and list", DRAWN),
    Kernel("compact_codes_cpu", "code", compact_codes, "the whole record is read; a byte at a time where it is of 8", DRAWN),
]


if __name__ == "__main__":
    main("kernels-selection", __doc__, KERNELS)
