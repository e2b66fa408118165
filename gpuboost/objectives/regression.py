"""Losses of real-valued labels."""

import math
from collections.abc import Callable

import numpy as np
from numba import float32, float64

from gpuboost.backend.row_sums import RowSums
from gpuboost.kernels.jit import scalar
from gpuboost.kernels.scalar import exp_on_host, float_key, key_float, larger, log1p_double, log1p_float, smaller
from gpuboost.objectives import register
from gpuboost.objectives.base import Objective, Parameter, invalid_labels

LARGEST = float(np.finfo(np.float32).max)
LOWEST_MARGIN = -1.0 + 1e-6  # of a logarithm of 1 + margin


@scalar
def squared_error_gradient(margin, label, weight, output, parameters):
    """½(margin − label)²: g = margin − label, h = 1."""
    return float32(margin - label), float32(1.0)


@scalar
def squared_log_error_gradient(margin, label, weight, output, parameters):
    """½·d² of d = ln(1 + margin) − ln(1 + label): g = d/(1 + margin), h = max((1 − d)/(1 + margin)², 1e-6). Margins below
    −1 + 1e-6 count as that."""
    margin = larger(margin, float32(LOWEST_MARGIN))
    difference = float32(log1p_float(margin) - log1p_float(label))
    slope = float32(float32(1.0) / float32(margin + float32(1.0)))
    hess = float32(float32(float32(float32(1.0) - difference) * slope) * slope)
    return float32(difference * slope), larger(hess, float32(1e-6))


@scalar
def pseudo_huber_gradient(margin, label, weight, output, parameters):
    """s²·(√(1 + z²/s²) − 1) of z = margin − label with s = huber_slope (parameters[0]):

    g = z/√(1 + z²/s²),  h = (1 + z²/s²)^−3/2
    """
    slope = parameters[0]
    limit = float32(slope * float32(1e9))  # where g is s in float32, and squares are finite
    z = larger(smaller(float32(margin - label), limit), -limit)
    ratio = float32(z / slope)
    square = float32(float32(1.0) + float32(ratio * ratio))
    root = float32(math.sqrt(square))
    return float32(z / root), float32(float32(1.0) / float32(square * root))


@scalar
def log1p_term(prediction, label, i, parameters):
    """ln(1 + label) of target parameters[0]."""
    return log1p_double(float64(label[int(parameters[0]), i]))


@scalar
def squared_log_curvature(prediction, label, i, parameters):
    """h of the squared log error of target parameters[0] at margin 0."""
    return larger(float64(1.0) + log1p_double(float64(label[int(parameters[0]), i])), float64(1e-6))


@scalar
def pseudo_huber_slope(prediction, label, i, parameters):
    """g of the pseudo-Huber loss of target parameters[0] at the constant parameters[1], by huber_slope = parameters[2]."""
    z = float64(parameters[1]) - float64(label[int(parameters[0]), i])
    ratio = z / float64(parameters[2])
    return z / math.sqrt(float64(1.0) + ratio * ratio)


@scalar
def label_term(prediction, label, i, parameters):
    """The label of target parameters[0]."""
    return float64(label[int(parameters[0]), i])


@register
class SquaredError(Objective):
    """reg:squarederror, one output per label column. Its constant minimiser is the weighted mean."""

    name = "reg:squarederror"
    default_metric = "rmse"
    gradient = staticmethod(squared_error_gradient)

    def base_score(self, labels: RowSums, n_outputs: int) -> list[float]:
        total = labels.total_weight
        return [labels.sum_of(label_term, k) / total for k in range(n_outputs)]

    def file_params(self) -> dict[str, dict[str, str]]:
        """XGBoost's reader wants the section that this family shares; the loss has no such weight."""
        return {"reg_loss_param": {"scale_pos_weight": "1"}}


@register
class SquaredLogError(Objective):
    """reg:squaredlogerror, one output per label column, labels above −1.

    base_score is XGBoost's, one Newton step from 0: L/(1 + L) of the mean L of ln(1 + label), where L ≥ 0. From the constant
    minimiser e^L − 1 steps lead beyond: the loss is concave where ln(1 + margin) − ln(1 + label) > 1, and steps there are of 1e6
    gradients. For L < 0 it is the minimiser: the Newton step lies below it, and beyond −1 from L = −½ on.
    """

    name = "reg:squaredlogerror"
    default_metric = "rmsle"
    gradient = staticmethod(squared_log_error_gradient)

    def check_labels(self, label: np.ndarray) -> None:
        bad = ~(label > -1)
        if bad.any():
            raise invalid_labels(label, bad, self.name, "above -1", "Shift them, or use reg:squarederror.")

    def base_score(self, labels: RowSums, n_outputs: int) -> list[float]:
        return [self._start(labels, k) for k in range(n_outputs)]

    def _start(self, labels: RowSums, row: int) -> float:
        total = labels.sum_of(log1p_term, row)
        if total < 0:
            return max(exp_on_host(total / labels.total_weight) - 1.0, LOWEST_MARGIN)
        return total / labels.sum_of(squared_log_curvature, row)


@register
class PseudoHuberError(Objective):
    """reg:pseudohubererror, one output per label column: squared error near the label, linear beyond huber_slope."""

    name = "reg:pseudohubererror"
    default_metric = "mphe"
    takes = (Parameter("huber_slope", "pseudo_huber_param", instead=""),)  # which the metric mphe takes, too
    gradient = staticmethod(pseudo_huber_gradient)

    def base_score(self, labels: RowSums, n_outputs: int) -> list[float]:
        def slope_of(output: int) -> Callable[[float], float]:
            return lambda constant: labels.sum_of(pseudo_huber_slope, output, constant, float(self.parameters[0]))

        return [constant_minimiser(slope_of(k)) for k in range(n_outputs)]


def constant_minimiser(slope: Callable[[float], float], low: float = -LARGEST, high: float = LARGEST) -> float:
    """The first float32 between low and high at which the slope of a convex function is not negative; high where there is none.

    By halving the float32 numbers between, so that it depends on nothing but the signs of the slope: at most 32 calls.
    """
    first, last = int(float_key(np.float32(low))), int(float_key(np.float32(high)))
    while first < last:
        middle = (first + last) // 2
        if slope(float(key_float(np.uint32(middle)))) < 0:
            first = middle + 1
        else:
            last = middle
    return float(key_float(np.uint32(first)))
