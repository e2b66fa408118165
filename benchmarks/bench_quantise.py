"""Rounding gradients to fixed point (kernels/quantise.py).

Floor of a row: 8 bytes read and 4 written (8 with two limbs).
"""

from typing import Any

from ceilings import Ceilings
from kernel_bench import DENSE, Kernel, main


def quantise(a: Any, c: Ceilings) -> tuple[float, float]:
    n, n_bytes = a.grad.size, 8 + 4 * a.gpair.shape[1]
    return n, c.stream(n_bytes * n, n_bytes * n)


KERNELS = [
    Kernel("quantise_cpu", "row", quantise, "three hashes of two mixing steps; float64 conversions and floors", DENSE)
]


if __name__ == "__main__":
    main("kernels-quantise", __doc__, KERNELS)
