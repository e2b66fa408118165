"""Finding the best split of nodes (kernels/splits.py), on a table without missing values: one direction.

Floor of a bin: 16 bytes read, or, if that takes longer, two divisions.
"""

from typing import Any

from ceilings import Ceilings
from kernel_bench import DENSE, Kernel, main


def evaluate_splits(a: Any, c: Ceilings) -> tuple[float, float]:
    n = a.frontier.size * int(a.offsets[-1])
    return n, max(c.stream(16 * n, 16 * n), 2 * n * c.divide())


KERNELS = [
    Kernel(
        "evaluate_splits_cpu", "bin", evaluate_splits,
        "three loops: running sums (each waits for the last), gains (conversions, 20 operations), the best one (ties by rule, so "
        "not a vector's maximum); the histograms come from the third-level cache",
        DENSE,
    )
]  # fmt: skip


if __name__ == "__main__":
    main("kernels-splits", __doc__, KERNELS)
