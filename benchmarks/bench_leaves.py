"""Summing the gradients of leaves, and adding leaf values to margins, by lists (kernels/leaves.py) or row by row (row_leaves.py).

Floor of a row: summing gathers two floats, adding one (and writes it to the same line), by row numbers of 4 bytes, from rows as
sparse as the leaf's. Row by row the leaf is scattered once, and everything else streams.
"""

from typing import Any

import numpy as np
from ceilings import Ceilings
from kernel_bench import DENSE, Kernel, main


def gathers(n_rows: np.ndarray, n_total: int, c: Ceilings) -> tuple[float, float]:
    """Rows of all leaves, of n_rows each, and the nanoseconds to gather a float of each."""
    return n_rows.sum(), sum(size * c.gather(4, n_total, n_total / size) for size in n_rows[n_rows > 0])


def sum_leaves(a: Any, c: Ceilings) -> tuple[float, float]:
    n_rows = np.bincount(a.chunks[:, 0], a.chunks[:, 2] - a.chunks[:, 1])
    n, gathered = gathers(n_rows, a.grad.shape[1], c)
    return n, max(c.stream(12 * n, 12 * n), 2 * gathered)


def sum_found(a: Any, c: Ceilings) -> tuple[float, float]:
    own = a.segments[: len(a.leaf_sums)][a.nodes["left"][: len(a.leaf_sums)] < 0]
    n, scattered = gathers(own[:, 1] - own[:, 0], a.grad.shape[1], c)
    return n, c.stream(4 * n, 4 * n) + scattered + c.stream(12 * n, 12 * n)


def add_found(a: Any, c: Ceilings) -> tuple[float, float]:
    n = a.margin.shape[1]
    return n, c.stream(12 * n, 8 * n)


KERNELS = [
    Kernel("sum_leaves_cpu", "row", sum_leaves, "float64 products, floors and conversions, one row at a time",
           ("half of rows, columns",)),  # fmt: skip
    Kernel("sum_found_cpu", "row", sum_found, "adds to sums of nodes, one row at a time: two loads and two stores", DENSE),
    Kernel("add_found_cpu", "row", add_found, "values are looked up one row at a time", DENSE),
]


if __name__ == "__main__":
    main("kernels-leaves", __doc__, KERNELS)
