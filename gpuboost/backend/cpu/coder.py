"""Tables to codes on the CPU."""

import numpy as np

from gpuboost.backend.contract import Array, Coder
from gpuboost.backend.cpu.memory import host_batch
from gpuboost.binned.cuts import Cuts
from gpuboost.binned.packing import Packing
from gpuboost.binned.pages import DensePage
from gpuboost.kernels.binning import bin_rows_cpu, write_records_cpu
from gpuboost.kernels.packing import pack_records_cpu
from gpuboost.kernels.sketch import count_digits_cpu

__all__ = ["CpuCoder"]

_NO_SLOTS = np.zeros((0, 1), np.int32)


class CpuCoder(Coder):
    """numba kernels on some threads."""

    sorts_columns = True

    def __init__(self, n_threads: int) -> None:
        self._n_threads = n_threads

    def count_digits(
        self, batch: Array, missing: float, weights: Array, features: Array, level: int, slots0: Array | None,
        slots1: Array | None, counts: Array,
    ) -> None:  # fmt: skip
        slots0 = _NO_SLOTS if slots0 is None else slots0
        slots1 = _NO_SLOTS if slots1 is None else slots1
        batch = host_batch(batch)
        count_digits_cpu(batch, np.float32(missing), weights, features, level, slots0, slots1, counts, self._n_threads)

    def bin_rows(self, batch: Array, missing: float, cuts: Cuts, first_row: int, page: DensePage) -> int:
        n_lost = np.zeros(self._n_threads, np.int64)
        bin_rows_cpu(
            host_batch(batch), np.float32(missing), cuts.thresholds, cuts.offsets, first_row, page.columns, page.words, n_lost,
            self._n_threads,
        )  # fmt: skip
        return int(n_lost.sum())

    def write_records(self, packing: Packing | None, page: DensePage) -> None:
        if packing is None:
            write_records_cpu(page.columns, page.words, self._n_threads)
        else:
            pack_records_cpu(page.columns, packing.luts, packing.members, packing.first_member, page.records, self._n_threads)
