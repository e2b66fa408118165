"""Packing several features into one code of a record, and taking histograms of such codes apart (kernels/packing.py). Records
that are not packed are written with the columns: bench_binning.py.

Floor of packing: a byte read per feature and row, a byte written per code of a record, or, if that takes longer, a lookup per
feature. Of packing sparse rows: per cell 4 bytes, or two lookups and an update. Of histograms: 16 bytes read a packed code, 16
written a bin.
"""

from typing import Any

from ceilings import Ceilings
from kernel_bench import Kernel, main


def pack_records(a: Any, c: Ceilings) -> tuple[float, float]:
    n, moved = a.columns.size, a.columns.nbytes + a.records.nbytes
    return n, max(c.stream(moved, moved), n * c.lookup(256))


def pack_cells(a: Any, c: Ceilings) -> tuple[float, float]:
    moved = a.cells.nbytes + a.row_begin.nbytes + a.records.nbytes
    return a.cells.size, max(c.stream(moved, moved), a.cells.size * (2 * c.lookup(a.groups.size) + c.update(len(a.base))))


def unpack_histograms(a: Any, c: Ceilings) -> tuple[float, float]:
    n_slots, n_bins = len(a.hist), int(a.own_offsets[-1])
    moved = 16 * n_slots * (n_bins + a.packed.shape[2])
    return n_slots * n_bins, c.stream(moved, moved)


KERNELS = [
    Kernel(
        "pack_records_cpu", "feature and row", pack_records, "bytes go a record apart; every feature is a pass over a block",
        ("binning covertype",),
    ),
    Kernel("pack_cells_cpu", "cell", pack_cells, "rows of few cells: a loop of unknown length each", ("binning one-hot",)),
    Kernel(
        "unpack_histograms_cpu", "bin", unpack_histograms, "each bin's list of sources is a loop of unknown, short length",
        ("one-hot, packed",),
    ),
]  # fmt: skip


if __name__ == "__main__":
    main("kernels-records", __doc__, KERNELS)
