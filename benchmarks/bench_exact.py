"""Exact search: walking sorted columns (kernels/exact.py).

Floor of an entry: 8 bytes read and the gather of 8 more, of a row anywhere, or, if that takes longer, two updates of its node's
sums. Placing rows, once a level: 8 bytes written for every row, and its pair gathered, 4 bytes.
"""

from typing import Any

from ceilings import Ceilings
from kernel_bench import Kernel, main

from gpuboost.kernels import exact


def walk_columns(a: Any, c: Ceilings) -> tuple[float, float]:
    n = (a.bounds[a.features, 1] - a.bounds[a.features, 0]).sum()
    return n, max(c.stream(8 * n, 8 * n) + n * c.gather(8, a.places.size, 0), 2 * n * c.update(8 * len(a.searched)))


def place_rows(a: Any, c: Ceilings) -> tuple[float, float]:
    n = a.places.size
    return n, max(c.stream(16 * n, 16 * n), n * c.gather(4, n, a.frontier.size))


KERNELS = [
    Kernel(
        "walk_columns_cpu", "entry", walk_columns,
        "distinct values: every entry is a candidate, compared in twenty operations of one lane, of a node known only then",
        ("exact 450k",),
    ),
    Kernel("place_rows_cpu", "row", place_rows, "one thread; clears all places first", ("exact 450k",), exact),
]  # fmt: skip


if __name__ == "__main__":
    main("kernels-scan", __doc__, KERNELS)
