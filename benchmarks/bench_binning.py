"""Replacing values by the numbers of their bins (kernels/binning.py).

Floor of a value: 4 bytes read and 2 codes written, or, if that takes longer, the log₂(bins) loads of a binary search, from the
first-level cache.
"""

from typing import Any

import numpy as np
from ceilings import Ceilings
from kernel_bench import Kernel, main


def bin_rows(a: Any, c: Ceilings) -> tuple[float, float]:
    n, n_bins = a.block.size, int(np.diff(a.offsets).max())
    written = a.columns.itemsize * (2 if len(a.records) else 1)
    moved = c.stream((a.block.itemsize + written) * n, a.block.nbytes)
    return n, max(moved, n * np.ceil(np.log2(n_bins)) * c.lookup(n_bins))


KERNELS = [
    Kernel(
        "bin_rows_cpu", "value", bin_rows,
        "vector gathers of AVX-512 take a load per lane all the same; values and records a row apart",
        ("binning 450k", "binning 7k"),
    )
]  # fmt: skip


if __name__ == "__main__":
    main("kernels-binning", __doc__, KERNELS)
