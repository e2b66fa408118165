"""Sums over the rows of all workers that come out the same to the last bit on any device and for any sharding."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from gpuboost.arrays import on_device_of
from gpuboost.backend.contract import Array, Backend
from gpuboost.backend.fixed_point import as_ratios, sum_scale
from gpuboost.backend.query_rows import QueryRows
from gpuboost.communicator import Communicator
from gpuboost.kernels.leaf_quantiles import DIGIT_BITS, DIGITS, N_LEVELS, WEIGHT_BITS, first_target, middle_residual
from gpuboost.kernels.reduce import unit_term

__all__ = ["RowSums"]

Kept = TypeVar("Kept")


@dataclass(frozen=True)
class RowSums:
    """Predictions and labels of a table, and how to sum over them.

    prediction : float32 (n_outputs, n_rows). label : float32 (n_targets, n_rows). weight : float32 (n_rows,) or empty (1 each).
        All in the backend's memory.
    masks_labels : whether some labels may be NaN, which count nowhere. queries : the rows by query, for what ranks them.
    """

    backend: Backend
    comm: Communicator
    prediction: Array
    label: Array
    weight: Array
    masks_labels: bool = False
    queries: QueryRows | None = None
    _kept: dict[str, Any] = field(default_factory=dict, compare=False, repr=False)

    def keep(self, name: str, find: Callable[[], Kept]) -> Kept:
        """What find() says of labels and weights, which stay as they are while predictions change. Of several workers others may
        have to find it anew, so all do."""
        if self.comm.size > 1:
            return find()
        if name not in self._kept:
            self._kept[name] = find()
        return self._kept[name]

    def sum_of(self, row_term: Callable[..., Any], *parameters: float, of_infinite: float = math.nan) -> float:
        """Σ weight · row_term over all rows of all workers.

        row_term : scalar function (prediction, label, i, parameters) -> float64 (kernels/reduce.py).
        NaN when a term is; of_infinite when one is infinite.
        """
        p = tuple(np.float32(value) for value in parameters or (0.0,))
        rows = (self.prediction, self.label, self.weight, row_term, p)
        with on_device_of(self.weight):
            n_rows = np.array([int(np.count_nonzero(self.weight)) if len(self.weight) else self.label.shape[1]], np.int64)
        largest = self.backend.reducer.largest_term(*rows)
        self.comm.allreduce_max(largest)
        self.comm.allreduce_sum(n_rows)
        maximum = float(self.backend.memory.fetch(largest).view(np.float64)[0])
        if not np.isfinite(maximum):
            return of_infinite if np.isinf(maximum) else math.nan
        scale = sum_scale(maximum, int(n_rows[0]))
        total = self.backend.reducer.sum_terms(*rows, scale)
        self.comm.allreduce_sum(total)
        return int(self.backend.memory.fetch(total)[0]) / scale

    def label_quantile(self, target: int, alpha: float) -> float:
        """The weighted quantile of a target's labels, over all rows of all workers, as that of the residuals in a leaf: radix
        selection in NumPy (kernels/leaf_quantiles.py)."""
        fetch, comm = self.backend.memory.fetch, self.comm
        label = fetch(self.label[target])
        weight = fetch(self.weight) if len(self.weight) else np.ones(len(label), np.float32)
        bits = (label[weight > 0] + np.float32(0)).view(np.uint32)
        keys = np.where(bits >> 31, ~bits, bits | np.uint32(2**31)).astype(np.int64)
        largest = np.array([int(weight.max(initial=0).view(np.uint32))], np.int64)
        comm.allreduce_max(largest)
        scale = sum_scale(float(largest.astype(np.uint32).view(np.float32)[0]), 2 ** (62 - WEIGHT_BITS))
        units = np.maximum(np.floor(weight[weight > 0].astype(np.float64) * scale + 0.5).astype(np.int64), 1)
        ends, (numerator, denominator) = [], as_ratios([alpha])[0].tolist()
        for k in range(2):
            prefix, goal = 0, -1
            for level in range(N_LEVELS):
                shift = 32 - DIGIT_BITS * (level + 1)
                is_own, counts = keys >> (shift + DIGIT_BITS) == prefix, np.zeros(DIGITS, np.int64)
                np.add.at(counts, keys[is_own] >> shift & (DIGITS - 1), units[is_own])
                comm.allreduce_sum(counts)
                if level == 0:
                    goal = first_target.py_func(int(counts.sum()), numerator, denominator, k)
                up_to = np.cumsum(counts)
                digit = int(np.searchsorted(up_to, goal))
                prefix, goal = prefix * DIGITS + digit, goal - int(up_to[digit] - counts[digit])
            ends.append(prefix)
        return float(middle_residual(*ends))

    @property
    def total_weight(self) -> float:
        """Σ weight."""
        if len(self.weight) or self.comm.size > 1:
            return self.keep("total weight", lambda: self.sum_of(unit_term))
        return float(self.label.shape[1])
