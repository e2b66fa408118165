"""Tables to codes on a GPU."""

import numpy as np

from gpuboost.backend.contract import Array, Coder
from gpuboost.backend.cuda.device import Device
from gpuboost.backend.cuda.memory import on_device
from gpuboost.binned.cuts import Cuts
from gpuboost.binned.packing import Packing
from gpuboost.binned.pages import DensePage
from gpuboost.kernels import binning, sketch
from gpuboost.kernels.packing import pack_records_kernel

__all__ = ["CudaCoder", "columns_of"]


def columns_of(device: Device, batch: Array, features: Array | None = None) -> Array:
    """Columns of a batch as float32 (n, n_rows), contiguous, on the device."""
    columns = device.put(batch).T
    if features is not None and len(features) != len(columns):
        columns = columns[device.put(features)]
    return device.put(columns, np.float32)


@on_device(Coder)
class CudaCoder(Coder):
    """A kernel a batch."""

    def __init__(self, device: Device) -> None:
        self.device = device

    def count_digits(
        self, batch: Array, missing: float, weights: Array, features: Array, level: int, slots0: Array | None,
        slots1: Array | None, counts: Array,
    ) -> None:  # fmt: skip
        device = self.device
        values = columns_of(device, batch, features)
        none = np.zeros((0, 1), np.int32)
        device.launch(
            sketch.count_digits_kernel, values, missing, device.put(weights), level,
            device.put(none if slots0 is None else slots0), device.put(none if slots1 is None else slots1), counts,
            blocks=len(features) * -(-values.shape[1] // sketch.ROWS_PER_BLOCK),
        )  # fmt: skip

    def bin_rows(self, batch: Array, missing: float, cuts: Cuts, first_row: int, page: DensePage) -> int:
        device = self.device
        values, n_lost = columns_of(device, batch), device.zeros(1, np.int64)
        device.launch(
            binning.bin_rows_kernel, values, missing, device.put(cuts.thresholds), device.put(cuts.offsets), first_row,
            page.columns, page.records, n_lost, threads=values.shape[1] * -(-len(values) // binning.TILE_FEATURES),
        )  # fmt: skip
        return int(device.fetch(n_lost)[0])

    def write_records(self, packing: Packing | None, page: DensePage) -> None:
        if packing is None:
            page.records[:, : len(page.columns)] = page.columns.T
            return
        put = self.device.put
        self.device.launch(
            pack_records_kernel, page.columns, put(packing.luts), put(packing.members), put(packing.first_member),
            page.records.view(np.uint32), threads=page.n_rows,
        )  # fmt: skip
