"""Losses of survival times: accelerated failure time, and proportional hazards."""

from typing import Any

import numpy as np
from numba import float32, float64

from gpuboost.backend.row_sums import RowSums
from gpuboost.communicator import Communicator
from gpuboost.kernels.accelerated_failure import (
    EXTREME,
    LOGISTIC,
    NORMAL,
    derivatives,
    extreme_derivatives,
    logistic_derivatives,
    normal_derivatives,
    standardised,
)
from gpuboost.kernels.cox import cox_gradients, hazards, sum_at_risk
from gpuboost.kernels.jit import long_scalar, scalar
from gpuboost.kernels.scalar import exp_on_host, larger, smaller
from gpuboost.objectives import register
from gpuboost.objectives.base import Objective, Parameter, invalid_labels
from gpuboost.objectives.links import LOG
from gpuboost.objectives.regression import constant_minimiser

LAWS = {"normal": NORMAL, "logistic": LOGISTIC, "extreme": EXTREME}
LARGEST = 15.0  # of a gradient or hessian, as in XGBoost
LARGEST_MARGIN = 80.0  # of base_score: e^80 is a float32, and so is e^−80


@long_scalar
def limited(slopes, scale):
    """(g, h) of derivatives by −z, within XGBoost's limits."""
    g, h = slopes[0] / scale, slopes[1] / (scale * scale)
    return float32(larger(smaller(g, LARGEST), -LARGEST)), float32(larger(smaller(h, LARGEST), float64(1e-16)))


@long_scalar
def standardised_bounds(margin, bounds, scale):
    low, high = bounds
    first = standardised(float64(low), float64(margin), scale)
    return first, first if high == low else standardised(float64(high), float64(margin), scale)


@scalar
def aft_normal_gradient(margin, bounds, weight, output, parameters):
    """scale σ : parameters[0]. The loss is in kernels/accelerated_failure.py."""
    low, high = standardised_bounds(margin, bounds, float64(parameters[0]))
    return limited(normal_derivatives(low, high), float64(parameters[0]))


@scalar
def aft_logistic_gradient(margin, bounds, weight, output, parameters):
    low, high = standardised_bounds(margin, bounds, float64(parameters[0]))
    return limited(logistic_derivatives(low, high), float64(parameters[0]))


@scalar
def aft_extreme_gradient(margin, bounds, weight, output, parameters):
    low, high = standardised_bounds(margin, bounds, float64(parameters[0]))
    return limited(extreme_derivatives(low, high), float64(parameters[0]))


GRADIENTS = {"normal": aft_normal_gradient, "logistic": aft_logistic_gradient, "extreme": aft_extreme_gradient}


@scalar
def aft_slope(prediction, label, i, parameters):
    """g of target parameters[0] at the constant margin parameters[1], law parameters[2], within the limits of gradients."""
    first, scale = 2 * int(parameters[0]), float64(parameters[3])
    low, high = standardised_bounds(parameters[1], (label[first, i], label[first + 1, i]), scale)
    slope = derivatives(low, high, int(parameters[2]))[0] / scale
    return larger(smaller(slope, LARGEST), -LARGEST)


@register
class AcceleratedFailureTime(Objective):
    """survival:aft. Two label rows: the bounds of a time. Equal ones: it is known; an upper one of infinity: it is later; a lower
    one of 0 or less: it is earlier."""

    name = "survival:aft"
    default_metric = "aft-nloglik"
    takes = (
        Parameter("aft_loss_distribution_scale", "aft_loss_param", instead=""),  # both also of the metric aft-nloglik
        Parameter("aft_loss_distribution", "aft_loss_param", in_formula=False, instead=""),
    )
    link = LOG
    label_rows = 2
    uses_double = True

    def __init__(self, params: Any) -> None:
        super().__init__(params)
        self.gradient = GRADIENTS[params.aft_loss_distribution]

    def check_labels(self, label: np.ndarray) -> None:
        low, high = label[::2], label[1::2]
        bad = ~((low <= high) & (high > 0) & (low < np.inf))
        if bad.any():
            allowed = "bounds of a time, the lower finite and not above the upper, which is above 0"
            raise invalid_labels(low, bad, self.name, allowed, "Check label_lower_bound and label_upper_bound there.")

    def base_score(self, labels: RowSums, n_outputs: int) -> list[float]:
        law, scale = LAWS[self.params.aft_loss_distribution], float(self.parameters[0])

        def slope_of(output: int) -> Any:
            return lambda margin: labels.sum_of(aft_slope, output, margin, law, scale)

        return [exp_on_host(constant_minimiser(slope_of(k), -LARGEST_MARGIN, LARGEST_MARGIN)) for k in range(n_outputs)]


@register
class ProportionalHazards(Objective):
    """survival:cox. A label is a time, of a row without an event its negative.

    A constant changes no likelihood: base_score is 1. Of rows with early times hessians are small and steps long: where margins
    run away, as XGBoost's do then, max_delta_step holds them.
    """

    name = "survival:cox"
    default_metric = "cox-nloglik"
    link = LOG

    def __init__(self, params: Any) -> None:
        super().__init__(params)
        self._order: tuple[RowSums, TimeOrder] | None = None

    def n_outputs(self, n_label_rows: int) -> int:
        if n_label_rows != 1:
            raise ValueError(f"{self.name} takes one label column of times, got {n_label_rows}.")
        return 1

    def base_score(self, labels: RowSums, n_outputs: int) -> list[float]:
        return [1.0]

    def stage(self, rows: RowSums, round_number: int) -> tuple[np.ndarray, np.ndarray]:
        fetch = rows.backend.memory.fetch
        if self._order is None or self._order[0] is not rows:
            self._order = rows, TimeOrder(fetch(rows.label), fetch(rows.weight), rows.comm)
        return self._order[1].gradients(fetch(rows.prediction), rows.comm)


class TimeOrder:
    """The rows of all workers by time. label : float32 (1, n_rows) of this worker; weight : float32 (n_rows,), or empty."""

    def __init__(self, label: np.ndarray, weight: np.ndarray, comm: Communicator) -> None:
        n_rows = label.shape[1]
        weight = weight if len(weight) else np.ones(n_rows, np.float32)
        labels, weights = _gather(np.stack([label[0], weight]), comm)
        self._first = sum(comm.allgather_int(n_rows)[: comm.rank])  # of this worker
        self._order = np.argsort(np.abs(labels), kind="stable")
        self._labels, self._weights = labels[self._order], weights[self._order]

    def gradients(self, margin: np.ndarray, comm: Communicator) -> tuple[np.ndarray, np.ndarray]:
        """float32 (1, n_rows) each, of this worker's rows."""
        margins = _gather(margin, comm)[0]
        hazard, at_risk = np.empty(len(margins)), np.empty(len(margins))
        hazards(self._order, margins, margins.max(initial=-np.inf), hazard)
        sum_at_risk(self._labels, self._weights, hazard, at_risk)
        grad, hess = np.empty_like(margins), np.empty_like(margins)
        cox_gradients(self._order, self._labels, self._weights, hazard, at_risk, grad, hess)
        own = slice(self._first, self._first + margin.shape[1])
        return grad[None, own], hess[None, own]


def _gather(rows: np.ndarray, comm: Communicator) -> np.ndarray:
    """float32 (k, n_rows) of all workers, side by side."""
    return comm.gather_columns(rows.view(np.int32).astype(np.int64)).astype(np.int32).view(np.float32)
