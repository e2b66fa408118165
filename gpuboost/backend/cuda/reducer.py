"""Sums over rows on a GPU."""

import numpy as np

from gpuboost.backend.contract import Array, RowReducer, RowTerm
from gpuboost.backend.cuda.device import Device
from gpuboost.backend.cuda.memory import on_device
from gpuboost.kernels.reduce import reduce_rows_kernel

__all__ = ["CudaReducer"]


@on_device(RowReducer)
class CudaReducer(RowReducer):
    """Integer atomics: no order shows."""

    def __init__(self, device: Device) -> None:
        self.device = device

    def largest_term(
        self, prediction: Array, label: Array, weight: Array, row_term: RowTerm, parameters: tuple[np.float32, ...]
    ) -> Array:
        return self._reduce(prediction, label, weight, row_term, parameters, 0.0)

    def sum_terms(
        self, prediction: Array, label: Array, weight: Array, row_term: RowTerm, parameters: tuple[np.float32, ...], scale: float
    ) -> Array:
        return self._reduce(prediction, label, weight, row_term, parameters, scale)

    def _reduce(
        self, prediction: Array, label: Array, weight: Array, row_term: RowTerm, parameters: tuple[np.float32, ...], scale: float
    ) -> Array:
        put, out = self.device.put, self.device.zeros(1, np.int64)
        self.device.launch(
            reduce_rows_kernel(row_term), put(prediction), put(label), put(weight), put(np.array(parameters, np.float32)), scale,
            out, threads=prediction.shape[1],
        )  # fmt: skip
        return out
