"""Sums over rows on the CPU."""

import numpy as np

from gpuboost.backend.contract import Array, RowReducer, RowTerm
from gpuboost.kernels.prediction_order import ROWS_OF_THREAD, sum_by_prediction_cpu
from gpuboost.kernels.reduce import reduce_rows

__all__ = ["CpuReducer"]


class CpuReducer(RowReducer):
    """One partial result a thread."""

    def __init__(self, n_threads: int) -> None:
        self._n_threads = n_threads

    def largest_term(
        self, prediction: Array, label: Array, weight: Array, row_term: RowTerm, parameters: tuple[np.float32, ...]
    ) -> Array:
        return self._reduce(prediction, label, weight, row_term, parameters, 0.0).max(keepdims=True)

    def sum_terms(
        self, prediction: Array, label: Array, weight: Array, row_term: RowTerm, parameters: tuple[np.float32, ...], scale: float
    ) -> Array:
        return self._reduce(prediction, label, weight, row_term, parameters, scale).sum(keepdims=True)

    def sum_by_prediction(self, prediction: Array, label: Array, weight: Array) -> Array:
        words, sums = np.empty((2, n := len(prediction)), np.uint64), np.empty((3, n), np.int64)
        n_threads = min(self._n_threads, 1 + n // ROWS_OF_THREAD)
        return sums[:, : sum_by_prediction_cpu(prediction, label, weight, *words, sums, n_threads)]

    def _reduce(
        self, prediction: Array, label: Array, weight: Array, row_term: RowTerm, parameters: tuple[np.float32, ...], scale: float
    ) -> Array:
        out = np.zeros(self._n_threads, np.int64)
        reduce_rows(row_term)(prediction, label, weight, parameters, scale, out, self._n_threads)
        return out
