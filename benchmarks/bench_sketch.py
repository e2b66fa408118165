"""Counting key prefixes for the cuts (kernels/sketch.py), three passes over the table: what each of several workers does.

Floor of a value and pass: its 4 bytes from memory, or, if that takes longer, what is done with it in a column's own tables: pass
0 adds to one of some 4096 counts that normal numbers reach; pass 1 looks up a slot, pass 2 two, and adds to one of its counts.
"""

from typing import Any

from ceilings import Ceilings
from kernel_bench import Kernel, main


def count_digits(a: Any, c: Ceilings) -> tuple[float, float]:
    n = a.batch.shape[0] * a.features.size
    slots = 0.0 if a.level == 0 else c.lookup(4096) + (a.level - 1) * c.lookup(a.slots1.size // a.features.size)
    each = slots + c.update(a.counts.size // a.features.size if a.level else 4096)
    return n, max(c.stream(a.batch.itemsize * n, a.batch.nbytes), n * each)


KERNELS = [
    Kernel(
        "count_digits_cpu", "value and pass", count_digits,
        "passes 1 and 2 count in 1 MB a column (512 digits are wanted), cold for every batch of rows and group of columns",
        ("counting 450k", "counting 7k"),
    )
]  # fmt: skip


if __name__ == "__main__":
    main("kernels-sketch", __doc__, KERNELS)
