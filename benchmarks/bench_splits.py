"""Finding the best split of nodes (kernels/splits.py), on a table without missing values: one direction.

Floor of a bin: 16 bytes read, or, if that takes longer, two divisions.
"""

from typing import Any

from ceilings import Ceilings
from kernel_bench import DENSE, Kernel, main


def evaluate_splits(a: Any, c: Ceilings) -> tuple[float, float]:
    n = a.frontier.size * int(a.offsets[-1])
    return n, c.stream(16 * n, 16 * n)


KERNELS = [
    Kernel(
        "evaluate_splits_cpu", "bin", evaluate_splits,
        "two loops: running sums (each waits for the last), and whether any candidate may win (conversions, 12 operations); "
        "for a fifth of the features two more, gains and the best one; the histograms come from the third-level cache",
        DENSE,
    )
]  # fmt: skip


if __name__ == "__main__":
    main("kernels-splits", __doc__, KERNELS)
