"""Moving rows to the children of split nodes (kernels/partition.py), two passes.

Floor of a row: marking reads its number, 4 bytes, and writes a byte, or, if that takes longer, gathers a code from rows as sparse
as the node's. Moving reads 5 bytes and writes 4.
"""

from typing import Any

import numpy as np
from ceilings import Ceilings
from kernel_bench import DENSE, Kernel, main


def mark_rows(a: Any, c: Ceilings) -> tuple[float, float]:
    n_rows, n_total = np.bincount(a.chunks[:, 0], a.chunks[:, 2] - a.chunks[:, 1]), a.columns.shape[1]
    n = n_rows.sum()
    gathered = sum(size * c.gather(a.columns.itemsize, n_total, n_total / size) for size in n_rows[n_rows > 0])
    return n, max(c.stream(5 * n, 5 * n_total), gathered)


def move_rows(a: Any, c: Ceilings) -> tuple[float, float]:
    n = (a.chunks[:, 2] - a.chunks[:, 1]).sum()
    return n, c.stream(9 * n, 9 * a.rows.shape[1])


KERNELS = [
    Kernel("mark_rows_cpu", "row", mark_rows, "a byte at a time is gathered; then two more loops over it", DENSE),
    Kernel("move_rows_cpu", "row", move_rows, "two ends to choose between, one by one where there is no AVX-512", DENSE),
]


if __name__ == "__main__":
    main("kernels-partition", __doc__, KERNELS)
