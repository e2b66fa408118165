"""Gradients of the logistic loss (kernels/gradients.py).

Floor of a row: 8 bytes read and 8 written, or, if that takes longer, one exp.
"""

from typing import Any

from ceilings import Ceilings
from kernel_bench import DENSE, Kernel, main


def gradients(a: Any, c: Ceilings) -> tuple[float, float]:
    n = a.margin.size
    return n, max(c.stream((16 + 4 * (a.weight.size > 0)) * n, 16 * n), n * c.exp())


KERNELS = [Kernel("gradients_cpu", "row", gradients, "exact rounding of exp; a division; the maxima are a second loop", DENSE)]


if __name__ == "__main__":
    main("kernels-gradients", __doc__, KERNELS)
