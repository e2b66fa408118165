"""Metrics of survival times."""

import math

import numpy as np
from numba import float64

from gpuboost.backend.row_sums import RowSums
from gpuboost.kernels.accelerated_failure import EXTREME, LOGISTIC, NORMAL, density, mass_between, standardised
from gpuboost.kernels.cox import cox_loss, sum_at_risk
from gpuboost.kernels.jit import scalar
from gpuboost.kernels.scalar import larger, log_double
from gpuboost.metrics import register
from gpuboost.metrics.base import DEFAULTS, Metric, rows_together
from gpuboost.metrics.pointwise import MeanTerm
from gpuboost.params import Params

LAWS = {"normal": NORMAL, "logistic": LOGISTIC, "extreme": EXTREME}
SMALLEST_LIKELIHOOD = 1e-12  # XGBoost's floor


@scalar
def aft_term(prediction, label, i, parameters):
    """Σ over outputs of −ln of the likelihood (kernels/accelerated_failure.py); law parameters[0], scale parameters[1]."""
    total, law, scale = float64(0.0), int(parameters[0]), float64(parameters[1])
    for output in range(prediction.shape[0]):
        first = min(2 * output, label.shape[0] - 2)
        below, above = float64(label[first, i]), float64(label[first + 1, i])
        margin = log_double(float64(prediction[output, i]))
        low, high = standardised(below, margin, scale), standardised(above, margin, scale)
        likelihood = density(low, law) / (scale * below) if below == above else mass_between(low, high, law)
        total -= log_double(larger(likelihood, SMALLEST_LIKELIHOOD))
    return total


@scalar
def inside_term(prediction, label, i, parameters):
    """How many outputs lie within their bounds."""
    total = float64(0.0)
    for output in range(prediction.shape[0]):
        first = min(2 * output, label.shape[0] - 2)
        if label[first, i] <= prediction[output, i] and prediction[output, i] <= label[first + 1, i]:
            total += float64(1.0)
    return total


class IntervalMetric(MeanTerm):
    """Of times within two label rows each."""

    is_of_pairs = False

    def __call__(self, rows: RowSums) -> float:
        if len(rows.label) != 2 * len(rows.prediction):
            raise ValueError(f"eval_metric {self.family!r} needs label_lower_bound and label_upper_bound. Use survival:aft.")
        return super().__call__(rows)


@register
class AftLogLikelihood(IntervalMetric):
    """By the parameters aft_loss_distribution and aft_loss_distribution_scale."""

    family = "aft-nloglik"
    row_term = staticmethod(aft_term)

    def __init__(self, argument: str | None = None, params: Params = DEFAULTS) -> None:
        super().__init__(argument)
        self.parameters = LAWS[params.aft_loss_distribution], params.aft_loss_distribution_scale


@register
class IntervalAccuracy(IntervalMetric):
    """Share of predicted times within the bounds."""

    family = "interval-regression-accuracy"
    maximize = True
    row_term = staticmethod(inside_term)


@register
class CoxLogLikelihood(Metric):
    """−ln of the partial likelihood per event (kernels/cox.py), over the rows of all workers, which come together for it."""

    family = "cox-nloglik"

    def __call__(self, rows: RowSums) -> float:
        label, prediction, weight = rows_together(rows, self.family)
        if not (label[weight > 0] > 0).any():
            return math.nan
        order, at_risk = np.argsort(np.abs(label), kind="stable"), np.empty(len(label))
        label, hazard, weight = label[order], prediction[order].astype(np.float64), weight[order]
        sum_at_risk(label, weight, hazard, at_risk)
        return float(cox_loss(label, weight, hazard, at_risk))
