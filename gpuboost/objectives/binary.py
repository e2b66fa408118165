"""Losses of two-class labels."""

import numpy as np
from numba import float32, float64

from gpuboost.backend.row_sums import RowSums
from gpuboost.kernels.jit import scalar
from gpuboost.kernels.reduce import elementwise_map
from gpuboost.kernels.scalar import larger, sigmoid_float
from gpuboost.objectives import register
from gpuboost.objectives.base import Objective, Parameter, invalid_labels
from gpuboost.objectives.links import IDENTITY, LOGIT, MIN_PROBABILITY, sigmoid_row


@scalar
def logistic_gradient(margin, label, weight, output, parameters):
    """Cross-entropy of p = σ(margin): g = p − y, h = max(p(1 − p), 1e-16); positives count scale_pos_weight (parameters[0])."""
    p = sigmoid_float(margin)
    times = parameters[0] if label == float32(1.0) else float32(1.0)
    hess = larger(float32(p * float32(float32(1.0) - p)), float32(1e-16))
    return float32(float32(p - label) * times), float32(hess * times)


@scalar
def class_term(prediction, label, i, parameters):
    """The part of a row that belongs to class parameters[1], 0 or 1, of target parameters[0]: 1 − y or y. A row of it alone
    counts parameters[2] times."""
    y = float64(label[int(parameters[0]), i])
    part = y if parameters[1] == float32(1.0) else float64(1.0) - y
    return float64(parameters[2]) if part == float64(1.0) else part


@scalar
def hinge_gradient(margin, label, weight, output, parameters):
    """max(0, 1 − y·margin) of y = ±1: g = −y, h = 1 where it is above 0; else nothing."""
    y = float32(1.0) if label > float32(0.0) else float32(-1.0)
    product = float32(margin * y)
    if product >= float32(1.0):
        return float32(0.0), float32(0.0)
    return -y if product < float32(1.0) else margin, float32(1.0)  # the margin: a NaN, to be found


@scalar
def is_positive(margin):
    return float32(1.0) if margin > float32(0.0) else float32(0.0)


@scalar
def same(margin):
    return margin


positive_row = elementwise_map(is_positive)
same_row = elementwise_map(same)


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
        sums = ((labels.sum_of(class_term, k, 1, spw), labels.sum_of(class_term, k, 0, 1)) for k in range(n_outputs))
        return [min(max(pos / (neg + pos), MIN_PROBABILITY), 1.0 - MIN_PROBABILITY) for pos, neg in sums]


@register
class RegLogistic(BinaryLogistic):
    """reg:logistic: the same model of labels that are probabilities, judged by its squared error."""

    name = "reg:logistic"
    default_metric = "rmse"
    is_classifier = False


@register
class LogitRaw(BinaryLogistic):
    """binary:logitraw: the same trees, predicting margins, as which base_score counts, too. Metrics see probabilities (XGBoost's
    see margins, of which logloss and error mean nothing)."""

    name = "binary:logitraw"
    link = IDENTITY
    predict_map = staticmethod(same_row)

    @property
    def row_map(self):
        return sigmoid_row

    def base_score(self, labels: RowSums, n_outputs: int) -> list[float]:
        return LOGIT.to_margin(np.array(super().base_score(labels, n_outputs), np.float32)).tolist()


@register
class Hinge(Objective):
    """binary:hinge: the side of a margin, 0 or 1, and no probability.

    base_score is 0, as XGBoost's: at the constant minimisers ±1 the larger class has no gradient, and no split gains.
    """

    name = "binary:hinge"
    default_metric = "error"
    is_classifier = True
    predicts_classes = True
    gradient = staticmethod(hinge_gradient)

    def check_labels(self, label: np.ndarray) -> None:
        bad = (label != 0) & (label != 1)
        if bad.any():
            raise invalid_labels(label, bad, self.name, "0 or 1", "Encode the two classes as 0 and 1.")

    @property
    def row_map(self):
        return positive_row

    def base_score(self, labels: RowSums, n_outputs: int) -> list[float]:
        return [0.0] * n_outputs
