"""Losses of labels that are not negative, whose mean is e^margin: counts, amounts, and amounts that are mostly 0."""

import numpy as np
from numba import float32

from gpuboost.backend.row_sums import RowSums
from gpuboost.kernels.jit import scalar
from gpuboost.kernels.scalar import exp_float, larger, smaller
from gpuboost.objectives import register
from gpuboost.objectives.base import Objective, Parameter, invalid_labels
from gpuboost.objectives.links import LOG
from gpuboost.objectives.regression import label_term

SMALLEST_MEAN = 1e-16  # of labels that are all 0, whose minimiser is a margin of −∞


@scalar
def poisson_gradient(margin, label, weight, output, parameters):
    """e^margin − label·margin: g = e^margin − label. h = e^(margin + max_delta_step) instead of e^margin, which bounds it for as
    long a step (parameters[0])."""
    return float32(exp_float(margin) - label), exp_float(float32(margin + parameters[0]))


@scalar
def times_exp(factor, x):
    """factor·e^x of a factor that is not negative, at most 1e30."""
    return float32(factor * smaller(exp_float(x), float32(float32(1e30) / larger(factor, float32(1.0)))))


@scalar
def gamma_gradient(margin, label, weight, output, parameters):
    """margin + label·e^−margin: g = 1 − label·e^−margin, h = label·e^−margin."""
    ratio = times_exp(label, -margin)
    return float32(float32(1.0) - ratio), ratio


@scalar
def tweedie_gradient(margin, label, weight, output, parameters):
    """e^((2 − ρ)·margin)/(2 − ρ) − label·e^((1 − ρ)·margin)/(1 − ρ) with ρ = tweedie_variance_power (parameters[0])."""
    first, second = float32(float32(1.0) - parameters[0]), float32(float32(2.0) - parameters[0])
    pull = times_exp(label, float32(first * margin))
    mean = exp_float(float32(second * margin))
    return float32(mean - pull), float32(float32(second * mean) - float32(first * pull))


class PositiveMean(Objective):
    """The constant minimiser of all of these is the logarithm of the weighted mean."""

    link = LOG

    def check_labels(self, label: np.ndarray) -> None:
        bad = ~(label >= 0)
        if bad.any():
            raise invalid_labels(label, bad, self.name, "at least 0", "Use reg:squarederror for labels of either sign.")

    def base_score(self, labels: RowSums, n_outputs: int) -> list[float]:
        total = labels.total_weight
        return [max(labels.sum_of(label_term, k) / total, SMALLEST_MEAN) for k in range(n_outputs)]


@register
class Poisson(PositiveMean):
    """count:poisson, one output per label column."""

    name = "count:poisson"
    default_metric = "poisson-nloglik"
    takes = (Parameter("max_delta_step", "poisson_regression_param", instead=""),)
    gradient = staticmethod(poisson_gradient)


@register
class Gamma(PositiveMean):
    """reg:gamma, one output per label column, labels above 0."""

    name = "reg:gamma"
    default_metric = "gamma-deviance"
    gradient = staticmethod(gamma_gradient)

    def check_labels(self, label: np.ndarray) -> None:
        bad = ~(label > 0)
        if bad.any():
            raise invalid_labels(label, bad, self.name, "above 0", "Use reg:tweedie where labels may be 0.")

    def file_params(self) -> dict[str, dict[str, str]]:
        """XGBoost writes the section of another family, and its reader wants it."""
        return {"reg_loss_param": {"scale_pos_weight": "1"}}


@register
class Tweedie(PositiveMean):
    """reg:tweedie, one output per label column: Poisson at a tweedie_variance_power of 1, nearly gamma below 2."""

    name = "reg:tweedie"
    takes = (Parameter("tweedie_variance_power", "tweedie_regression_param"),)
    gradient = staticmethod(tweedie_gradient)

    def __init__(self, params) -> None:
        super().__init__(params)
        self.default_metric = f"tweedie-nloglik@{params.tweedie_variance_power:g}"
