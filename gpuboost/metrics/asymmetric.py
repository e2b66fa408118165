"""Losses of quantiles and expectiles: errors above and below count differently."""

from typing import ClassVar

from numba import float64

from gpuboost.backend.row_sums import RowSums
from gpuboost.kernels.jit import scalar
from gpuboost.metrics import register
from gpuboost.metrics.base import DEFAULTS
from gpuboost.metrics.pointwise import MeanTerm
from gpuboost.params import Params


@scalar
def pinball_term(prediction, label, i, parameters):
    """Σ over outputs k of α·(y − p) where p is below y, else (1 − α)·(p − y), with α = parameters[k]."""
    total = float64(0.0)
    for k in range(prediction.shape[0]):
        difference = float64(prediction[k, i]) - float64(label[min(k, label.shape[0] - 1), i])
        alpha = float64(parameters[k])
        total += (float64(1.0) - alpha) * difference if difference >= float64(0.0) else -alpha * difference
    return total


@scalar
def expectile_term(prediction, label, i, parameters):
    """The same of squared differences."""
    total = float64(0.0)
    for k in range(prediction.shape[0]):
        difference = float64(prediction[k, i]) - float64(label[min(k, label.shape[0] - 1), i])
        alpha = float64(parameters[k])
        side = float64(1.0) - alpha if difference >= float64(0.0) else alpha
        total += side * difference * difference
    return total


class ByAlpha(MeanTerm):
    """One α for all outputs, or one each: those of the parameter ``takes``."""

    is_of_pairs = False
    takes: ClassVar[str]

    def __init__(self, argument: str | None = None, params: Params = DEFAULTS) -> None:
        super().__init__(argument)
        alphas = getattr(params, self.takes)
        if alphas is None:
            raise ValueError(f"eval_metric {self.family!r} needs the parameter {self.takes}. Give it, such as {self.takes}=0.5.")
        self.parameters = alphas

    def __call__(self, rows: RowSums) -> float:
        n_outputs, alphas = len(rows.prediction), self.parameters
        if len(alphas) not in (1, n_outputs):
            raise ValueError(f"{self.takes} has {len(alphas)} values for {n_outputs} outputs. Give one, or one for each.")
        self.parameters = alphas if len(alphas) == n_outputs else alphas * n_outputs
        return super().__call__(rows)


@register
class PinballLoss(ByAlpha):
    family = "quantile"
    takes = "quantile_alpha"
    row_term = staticmethod(pinball_term)


@register
class ExpectileLoss(ByAlpha):
    family = "expectile"
    takes = "expectile_alpha"
    row_term = staticmethod(expectile_term)
