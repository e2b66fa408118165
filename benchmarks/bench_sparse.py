"""Histograms and partition of sparse rows (kernels/sparse.py, packing.py); sparse_tables.py times whole trainings.

Floor of a listed cell: 4 bytes read, or, if that takes longer, two updates among all sums. Of a row to be marked: its record (or
where its cells begin, and one cell) gathered from rows as sparse as the node's, and 5 bytes moved.
"""

from typing import Any

import numpy as np
from ceilings import Ceilings
from kernel_bench import Kernel, main


def build_sparse_histograms(a: Any, c: Ceilings) -> tuple[float, float]:
    n = a.cells.size / a.row_end.size * (a.items[:, 5] - a.items[:, 4]).sum()
    return n, max(c.stream(4 * n, a.cells.nbytes), 2 * n * (1 + (a.zero_bins.size > 0)) * c.update(2 * a.total_bins))


def marked(chunks: np.ndarray, n_total: int, sizes: tuple[int, ...], c: Ceilings) -> tuple[float, float]:
    """sizes : bytes of the records that are gathered of each row."""
    n_rows = np.bincount(chunks[:, 0], chunks[:, 2] - chunks[:, 1])
    n = n_rows.sum()
    gathered = sum(size * sum(c.gather(s, n_total, n_total / size) for s in sizes) for size in n_rows[n_rows > 0])
    return n, max(c.stream(5 * n, 5 * n_total), gathered)


def mark_sparse_rows(a: Any, c: Ceilings) -> tuple[float, float]:
    n_total = a.row_begin.size - 1
    if len(a.entries[0]):  # bits of the rows, which lie in a cache
        return marked(a.chunks, n_total, (), c)
    return marked(a.chunks, n_total, (8, max(4 * a.cells.size // n_total, 4)), c)


def mark_packed_rows(a: Any, c: Ceilings) -> tuple[float, float]:
    return marked(a.chunks, len(a.records), (a.records.shape[1],), c)


KERNELS = [
    Kernel(
        "build_sparse_histograms_cpu", "cell", build_sparse_histograms,
        "rows of few cells: a loop of unknown length each; cells are gathered where they are added", ("sparse numbers",),
    ),
    Kernel("mark_sparse_rows_cpu", "row", mark_sparse_rows, "bits, one by one; a column's entries", ("sparse numbers",)),
    Kernel("mark_packed_rows_cpu", "row", mark_packed_rows, "one line of memory for one byte; a lookup", ("one-hot, packed",)),
]  # fmt: skip


if __name__ == "__main__":
    main("kernels-sparse", __doc__, KERNELS)
