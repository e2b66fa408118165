"""Sums over the rows of all workers that come out the same to the last bit on any device and for any sharding."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpuboost.backend.contract import Array, Backend
from gpuboost.backend.fixed_point import sum_scale
from gpuboost.communicator import Communicator
from gpuboost.kernels.reduce import unit_term

__all__ = ["RowSums"]


@dataclass(frozen=True)
class RowSums:
    """Predictions and labels of a table, and how to sum over them.

    prediction : float32 (n_outputs, n_rows). label : float32 (n_targets, n_rows). weight : float32 (n_rows,) or empty (1 each).
        All in the backend's memory.
    """

    backend: Backend
    comm: Communicator
    prediction: Array
    label: Array
    weight: Array

    def sum_of(self, row_term: Callable[..., Any], *parameters: float) -> float:
        """Σ weight · row_term over all rows of all workers.

        row_term : scalar function (prediction, label, i, parameters) -> float64 (kernels/reduce.py).
        NaN when a term is not finite.
        """
        p = tuple(np.float32(value) for value in parameters or (0.0,))
        rows = (self.prediction, self.label, self.weight, row_term, p)
        n_rows = np.array([int(np.count_nonzero(self.weight)) if len(self.weight) else self.label.shape[1]], np.int64)
        largest = self.backend.reducer.largest_term(*rows)
        self.comm.allreduce_max(largest)
        self.comm.allreduce_sum(n_rows)
        maximum = float(self.backend.memory.fetch(largest).view(np.float64)[0])
        if not np.isfinite(maximum):
            return float("nan")
        scale = sum_scale(maximum, int(n_rows[0]))
        total = self.backend.reducer.sum_terms(*rows, scale)
        self.comm.allreduce_sum(total)
        return int(self.backend.memory.fetch(total)[0]) / scale

    @property
    def total_weight(self) -> float:
        """Σ weight."""
        return self.sum_of(unit_term)
