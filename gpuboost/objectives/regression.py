"""Losses of real-valued labels."""

from numba import float32, float64

from gpuboost.backend.row_sums import RowSums
from gpuboost.kernels.jit import scalar
from gpuboost.objectives import register
from gpuboost.objectives.base import Objective


@scalar
def squared_error_gradient(margin, label, weight, output, parameters):
    """½(margin − label)²: g = margin − label, h = 1."""
    return float32(margin - label), float32(1.0)


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
