"""Metrics that are a weighted mean of one term per row."""

import math
from typing import Any, ClassVar

from numba import float32, float64, int64

from gpuboost.backend.row_sums import RowSums
from gpuboost.kernels.jit import scalar
from gpuboost.kernels.reduce import elementwise_terms, labelled_term
from gpuboost.kernels.scalar import larger, log1p_double, log_double
from gpuboost.metrics import register
from gpuboost.metrics.base import DEFAULTS, Metric
from gpuboost.params import Params

SMALLEST_PROBABILITY = 1e-16  # XGBoost's floor inside the logarithms


@scalar
def squared_error(prediction, label, parameters):
    difference = float64(prediction) - float64(label)
    return difference * difference


@scalar
def absolute_error(prediction, label, parameters):
    return abs(float64(prediction) - float64(label))


@scalar
def squared_log_error(prediction, label, parameters):
    """(ln(1 + prediction) − ln(1 + label))²; NaN where a logarithm is not defined."""
    if not (prediction > float32(-1.0) and label > float32(-1.0)):
        return float64(math.nan)
    difference = log1p_double(prediction) - log1p_double(label)
    return difference * difference


@scalar
def relative_error(prediction, label, parameters):
    return abs((float64(label) - float64(prediction)) / float64(label))


@scalar
def pseudo_huber_error(prediction, label, parameters):
    """s²·(√(1 + (difference/s)²) − 1) with s = parameters[0], written without the cancellation near 0."""
    difference, slope = float64(prediction) - float64(label), float64(parameters[0])
    ratio = difference / slope
    return difference * difference / (float64(1.0) + math.sqrt(float64(1.0) + ratio * ratio))


@scalar
def cross_entropy(prediction, label, parameters):
    """−y·ln p − (1 − y)·ln(1 − p), both probabilities at least SMALLEST_PROBABILITY."""
    p, y = float64(prediction), float64(label)
    inside = log_double(larger(p, SMALLEST_PROBABILITY))
    outside = log_double(larger(float64(1.0) - p, SMALLEST_PROBABILITY))
    return -(y * inside) - (float64(1.0) - y) * outside


@scalar
def binary_error(prediction, label, parameters):
    """1 where the prediction falls on the wrong side of parameters[0]; a label in between counts in part, as in XGBoost."""
    return float64(float32(1.0) - label) if prediction > parameters[0] else float64(label)


@scalar
def class_error(prediction, label, i, parameters):
    """1 where the most probable class (the lowest of equals) is not the label."""
    best = 0
    for k in range(1, prediction.shape[0]):
        if prediction[k, i] > prediction[best, i]:
            best = k
    return float64(0.0) if int64(label[0, i]) == best else float64(1.0)


@scalar
def class_cross_entropy(prediction, label, i, parameters):
    """−ln of the probability given to the row's class; 0 where there is no such class, as rows of weight 0 may say."""
    if not (label[0, i] >= float32(0.0) and label[0, i] < float32(prediction.shape[0])):
        return float64(0.0)
    return -log_double(larger(float64(prediction[int64(label[0, i]), i]), SMALLEST_PROBABILITY))


squared_error_row = elementwise_terms(squared_error)
absolute_error_row = elementwise_terms(absolute_error)
squared_log_error_row = elementwise_terms(squared_log_error)
relative_error_row = elementwise_terms(relative_error)
pseudo_huber_error_row = elementwise_terms(pseudo_huber_error)
cross_entropy_row = elementwise_terms(cross_entropy)
binary_error_row = elementwise_terms(binary_error)


class MeanTerm(Metric):
    """Σ weight·term / Σ weight, averaged over outputs. Where labels are missing, sums and weights are of those that are there.

    is_of_pairs : whether each prediction has a label of its own. of_infinite : the mean where a row's term is infinite.
    """

    takes_missing_labels = True
    is_of_pairs: ClassVar[bool] = True
    of_infinite: ClassVar[float] = math.nan
    row_term: ClassVar[Any]
    parameters: tuple[float, ...] = ()

    def __call__(self, rows: RowSums) -> float:
        n_labels, n_predictions = len(rows.label), len(rows.prediction)
        if self.is_of_pairs and n_labels < n_predictions:
            fix = f"m{self.family} for classes, or " if self.family in ("error", "logloss") else ""
            raise ValueError(
                f"eval_metric {self.name!r} takes a label for each prediction, got {n_labels} for {n_predictions}. Use {fix}a "
                "metric of the objective."
            )
        total = rows.sum_of(labelled_term) if rows.masks_labels else rows.total_weight
        if not total > 0.0:
            return math.nan
        summed = rows.sum_of(self.row_term, *self.parameters, of_infinite=self.of_infinite)
        return summed / total / (1 if rows.masks_labels else self.terms_per_row(rows))

    def terms_per_row(self, rows: RowSums) -> int:
        return rows.prediction.shape[0]


@register
class RootMeanSquaredError(MeanTerm):
    family = "rmse"
    row_term = staticmethod(squared_error_row)

    def __call__(self, rows: RowSums) -> float:
        return math.sqrt(super().__call__(rows))


@register
class MeanAbsoluteError(MeanTerm):
    family = "mae"
    row_term = staticmethod(absolute_error_row)


@register
class RootMeanSquaredLogError(RootMeanSquaredError):
    family = "rmsle"
    row_term = staticmethod(squared_log_error_row)


@register
class MeanAbsolutePercentageError(MeanTerm):
    """As a share, not in percent. Infinite where a label is 0, as XGBoost's."""

    family = "mape"
    of_infinite = math.inf
    row_term = staticmethod(relative_error_row)


@register
class MeanPseudoHuberError(MeanTerm):
    """The loss of reg:pseudohubererror, by the parameter huber_slope."""

    family = "mphe"
    row_term = staticmethod(pseudo_huber_error_row)

    def __init__(self, argument: str | None = None, params: Params = DEFAULTS) -> None:
        super().__init__(argument)
        self.parameters = (params.huber_slope,)


@register
class LogLoss(MeanTerm):
    family = "logloss"
    row_term = staticmethod(cross_entropy_row)


@register
class BinaryError(MeanTerm):
    """Share of rows on the wrong side of 0.5, or of t in ``error@t``."""

    family = "error"
    row_term = staticmethod(binary_error_row)

    def __init__(self, argument: str | None = None, params: Params = DEFAULTS) -> None:
        super().__init__()
        try:
            self.parameters = (0.5 if argument is None else float(argument),)
        except ValueError:
            raise ValueError(f"eval_metric 'error@t' needs a number for t, got {argument!r}. Use error@0.7, say.") from None
        short = f"{self.parameters[0]:g}"  # as XGBoost writes it, which makes some different ones the same
        name = f"error@{short if float(short) == self.parameters[0] else argument}"
        self.name = "error" if argument is None or self.parameters == (0.5,) else name


class ClassMetric(MeanTerm):
    """Metrics of multi-class probabilities: one term per row, whatever the number of classes."""

    is_of_pairs = False

    def __call__(self, rows: RowSums) -> float:
        if self.n_classes < 2:
            raise ValueError(f"eval_metric {self.family!r} needs a multi-class objective. Use logloss or error for two classes.")
        return super().__call__(rows)

    def terms_per_row(self, rows: RowSums) -> int:
        return 1


@register
class ClassError(ClassMetric):
    family = "merror"
    row_term = staticmethod(class_error)


@register
class ClassLogLoss(ClassMetric):
    family = "mlogloss"
    row_term = staticmethod(class_cross_entropy)
