"""Cuts of whole columns (kernels/quantiles.py, kernels/selection.py): their keys, and the thresholds of each.

Floor of a key: 4 bytes read and written. Of a value in a sorted column: 4 bytes read and written for each of three digits and for
its weight, or, if that takes longer, three updates to count its digits and three to deal by them. Of a value in a selected one: 4
bytes read three times, or two updates of counts.
"""

from typing import Any

from ceilings import Ceilings
from kernel_bench import Kernel, main


def list_keys(a: Any, c: Ceilings) -> tuple[float, float]:
    n = a.block.size
    return n, c.stream((a.block.itemsize + a.keys.itemsize) * n, a.keys.nbytes)


def cut_columns(a: Any, c: Ceilings) -> tuple[float, float]:
    n = a.keys.size
    return n, n * max(4 * c.stream(2 * a.keys.itemsize, 2 * a.keys[0].nbytes), 6 * c.update(2048))


def select_cuts(a: Any, c: Ceilings) -> tuple[float, float]:
    n = a.keys.size
    return n, n * max(3 * c.stream(a.keys.itemsize, a.keys[0].nbytes), 2 * c.update(4096))


KERNELS = [
    Kernel(
        "list_keys_cpu", "value", list_keys, "values of a column lie a row apart, keys on pages never touched",
        ("binning 450k", "binning 7k"),
    ),
    Kernel(
        "cut_columns_cpu", "value", cut_columns, "equal digits wait for each other; values and weights are listed",
        ("binning 7k",),
    ),
    Kernel("select_cuts_cpu", "value", select_cuts, "one in a hundred keys is sorted", ("binning 450k",)),
]  # fmt: skip


if __name__ == "__main__":
    main("kernels-quantiles", __doc__, KERNELS)
