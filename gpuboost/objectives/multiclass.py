"""Multi-class cross-entropy: one tree per class and round, grown together."""

import numpy as np
from numba import float32, float64, int64

from gpuboost.backend.row_sums import RowSums
from gpuboost.kernels.gradients import put_gradient, softmax_gradients_cpu
from gpuboost.kernels.jit import scalar
from gpuboost.kernels.scalar import exp_float, larger, log_on_host
from gpuboost.objectives import register
from gpuboost.objectives.base import Objective, Parameter, invalid_labels

MIN_PROBABILITY = 1e-6  # of a class without rows, whose log prior would be −infinity


@scalar
def softmax_gradient(margin, label, weight, i, parameters, grad, hess):
    """Cross-entropy of p = softmax(margins of the row): g_k = p_k − [label = k], h_k = max(2·p_k·(1 − p_k), 1e-16).

    The factor 2 of the hessian is XGBoost's (it bounds the full Hessian's diagonal dominance), so that leaf sizes and
    min_child_weight agree with it. e^(m_k − max m) waits in grad until the row's sum is known.
    """
    largest = margin[0, i]
    for k in range(1, margin.shape[0]):
        largest = larger(largest, margin[k, i])
    total = float32(0.0)
    for k in range(margin.shape[0]):
        e = exp_float(float32(margin[k, i] - largest))
        grad[k, i] = e
        total = float32(total + e)
    for k in range(margin.shape[0]):
        p = float32(grad[k, i] / total)
        h = float32(float32(float32(2.0) * p) * float32(float32(1.0) - p))
        g = float32(p - float32(1.0)) if int64(label[0, i]) == k else p
        put_gradient(grad, hess, k, i, g, larger(h, float32(1e-16)), weight)


@scalar
def class_term(prediction, label, i, parameters):
    """1 for rows of class parameters[0]."""
    return float64(1.0) if label[0, i] == parameters[0] else float64(0.0)


@scalar
def softmax_row(margin, i, out):
    """p_k = exp(m_k − max m) / Σ."""
    largest = margin[0, i]
    for k in range(1, margin.shape[0]):
        largest = larger(largest, margin[k, i])
    total = float32(0.0)
    for k in range(margin.shape[0]):
        out[k, i] = exp_float(float32(margin[k, i] - largest))
        total = float32(total + out[k, i])
    for k in range(margin.shape[0]):
        out[k, i] = float32(out[k, i] / total)


@scalar
def argmax_row(margin, i, out):
    """The class with the largest margin (the lowest of equals), in row 0 of out."""
    best = 0
    for k in range(1, margin.shape[0]):
        if margin[k, i] > margin[best, i]:
            best = k
    out[0, i] = float32(best)


@register
class SoftProb(Objective):
    """multi:softprob: class probabilities. The constant minimiser is the log prior of each class."""

    name = "multi:softprob"
    default_metric = "mlogloss"
    takes = (Parameter("num_class", "softmax_multiclass_param", in_formula=False, instead=""),)
    is_classifier = True
    row_gradient = staticmethod(softmax_gradient)

    def __init__(self, params) -> None:
        super().__init__(params)
        if params.num_class < 2:
            raise ValueError(f"num_class must be at least 2 for {self.name}, got {params.num_class}. Give the number of classes.")
        self.n_classes = params.num_class

    def n_outputs(self, n_label_rows: int) -> int:
        if n_label_rows != 1:
            raise ValueError(f"{self.name} takes one label column of class numbers, got {n_label_rows}.")
        return self.n_classes

    def check_labels(self, label: np.ndarray) -> None:
        bad = ~((label >= 0) & (label < self.n_classes) & (label == np.floor(label)))
        if bad.any():
            allowed = f"whole numbers from 0 to num_class − 1 = {self.n_classes - 1}"
            raise invalid_labels(label, bad, self.name, allowed, "Number the classes from 0, or raise num_class.")

    @property
    def row_map(self):
        return softmax_row

    @property
    def gradients_cpu(self):
        return softmax_gradients_cpu  # the same by loops that are vectorised

    def base_score(self, labels: RowSums, n_outputs: int) -> list[float]:
        """Log priors; the model file holds the margins of this objective, as XGBoost's does."""
        total = labels.total_weight
        priors = [labels.sum_of(class_term, k) / total for k in range(n_outputs)]
        return [log_on_host(max(p, MIN_PROBABILITY)) for p in priors]


@register
class SoftMax(SoftProb):
    """multi:softmax: the same model, predicting the most probable class."""

    name = "multi:softmax"
    predicts_classes = True
    probability_twin = "multi:softprob"
    predict_map = staticmethod(argmax_row)
