"""Losses of two-class labels."""

import numpy as np
from numba import float32, float64

from gpuboost.backend.row_sums import RowSums
from gpuboost.kernels.jit import scalar
from gpuboost.kernels.scalar import larger, sigmoid_float
from gpuboost.objectives import register
from gpuboost.objectives.base import Objective, Parameter, invalid_labels
from gpuboost.objectives.links import LOGIT, MIN_PROBABILITY


@scalar
def logistic_gradient(margin, label, weight, output, parameters):
    """Cross-entropy of p = σ(margin): g = p − y, h = max(p(1 − p), 1e-16); positives count scale_pos_weight (parameters[0])."""
    p = sigmoid_float(margin)
    times = parameters[0] if label == float32(1.0) else float32(1.0)
    hess = larger(float32(p * float32(float32(1.0) - p)), float32(1e-16))
    return float32(float32(p - label) * times), float32(hess * times)


@scalar
def positive_term(prediction, label, i, parameters):
    """y, the positive part of the row in target parameters[0]; a positive row counts scale_pos_weight = parameters[1] times."""
    y = float64(label[int(parameters[0]), i])
    return float64(parameters[1]) if y == float64(1.0) else y


@scalar
def negative_term(prediction, label, i, parameters):
    """1 − y, the negative part of the row in target parameters[0]."""
    return float64(1.0) - float64(label[int(parameters[0]), i])


@register
class BinaryLogistic(Objective):
    """binary:logistic, one output per label column. Labels may be any probability in [0, 1]; the constant minimiser is the logit
    of their weighted mean."""

    name = "binary:logistic"
    default_metric = "logloss"
    takes = (Parameter("scale_pos_weight", "reg_loss_param", instead="Weigh the rows instead."),)
    link = LOGIT
    is_classifier = True
    gradient = staticmethod(logistic_gradient)

    def check_labels(self, label: np.ndarray) -> None:
        bad = ~((label >= 0) & (label <= 1))
        if bad.any():
            raise invalid_labels(label, bad, self.name, "between 0 and 1", "Encode the two classes as 0 and 1.")

    def base_score(self, labels: RowSums, n_outputs: int) -> list[float]:
        spw = float(self.parameters[0])
        sums = ((labels.sum_of(positive_term, k, spw), labels.sum_of(negative_term, k)) for k in range(n_outputs))
        return [min(max(pos / (neg + pos), MIN_PROBABILITY), 1.0 - MIN_PROBABILITY) for pos, neg in sums]
