"""Replacing values by the numbers of their bins (kernels/binning.py).

Floor of a value: 4 bytes read and 2 codes written, or, if that takes longer, a load from a table of some 4096 cells that normal
numbers reach and one of a threshold.
"""

from typing import Any

import numpy as np
from ceilings import Ceilings
from kernel_bench import Kernel, main


def bin_rows(a: Any, c: Ceilings) -> tuple[float, float]:
    n, n_bins = a.batch.size, int(np.diff(a.offsets).max())
    written = a.columns.itemsize * (2 if len(a.words) else 1)
    moved = c.stream((a.batch.itemsize + written) * n, a.batch.nbytes)
    return n, max(moved, n * (c.lookup(4096) + c.lookup(n_bins)))


KERNELS = [
    Kernel(
        "bin_rows_cpu", "value", bin_rows,
        "with AVX-512 some 50 instructions for 16 values, in long chains; else 15 a value: cells are bytes, not gathered",
        ("binning 450k", "binning 7k"),
    )
]  # fmt: skip


if __name__ == "__main__":
    main("kernels-binning", __doc__, KERNELS)
