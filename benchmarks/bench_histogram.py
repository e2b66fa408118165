"""Building histograms, and those of siblings by subtraction (kernels/histogram.py).

Floor of a row: an update in the first-level cache for each feature, or, if that takes longer, the gather of its record and of its
pair of gradients from rows as sparse as the node's. To that, 16 bytes written for each bin of a histogram.
Of a bin subtracted: 32 bytes read and 16 written.
"""

from typing import Any

import numpy as np
from ceilings import Ceilings
from kernel_bench import DENSE, Kernel, main


def build_histograms(a: Any, c: Ceilings) -> tuple[float, float]:
    n_features, n_total, record = a.offsets.size - 1, a.gpair.shape[2], a.words.shape[1] * a.words.itemsize
    n_rows = np.bincount(a.items[:, 0] - a.items[:, 0].min(), a.items[:, 5] - a.items[:, 4])  # of each node
    sizes, ns = n_rows[n_rows > 0] * a.n_limbs.max(), 0.0
    for size in sizes:
        gathered = sum(c.gather(n, n_total, n_total / size) for n in (record, 4))
        ns += size * max(n_features * c.update(256), gathered)
    written = 16 * int(a.offsets[-1]) * len(sizes)
    return sizes.sum() * n_features, ns + c.stream(written, written)


def subtract_histograms(a: Any, c: Ceilings) -> tuple[float, float]:
    n = a.parents.size * a.hist[0].size // 2
    return n, c.stream(48 * n, 32 * n)


KERNELS = [
    Kernel(
        "build_histograms_cpu", "row × feature", build_histograms,
        "records are copied before they are added; few rows: private sums are read, written and cleared bin by bin",
        (*DENSE, "half of rows, columns"),
    ),
    Kernel("subtract_histograms_cpu", "bin", subtract_histograms, "lines of the child come from the cache of the build", DENSE),
]  # fmt: skip


if __name__ == "__main__":
    main("kernels-histogram", __doc__, KERNELS)
