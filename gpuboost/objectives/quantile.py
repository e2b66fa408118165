"""Losses without curvature, whose leaves are quantiles of the residuals: gradients only choose the splits."""

from itertools import pairwise

from numba import float32

from gpuboost.backend.row_sums import RowSums
from gpuboost.kernels.jit import scalar
from gpuboost.objectives import register
from gpuboost.objectives.base import Objective, Parameter


@scalar
def absolute_error_gradient(margin, label, weight, output, parameters):
    """|margin − label|: g = sign(margin − label), h = 1."""
    sign = float32(1.0) if margin > label else float32(margin - label)  # 0, or a NaN that must be found
    return float32(-1.0) if margin < label else sign, float32(1.0)


@scalar
def quantile_gradient(margin, label, weight, output, parameters):
    """Pinball loss of α = parameters[output], (α − [label < margin])·(label − margin) (Koenker & Bassett 1978): g = 1 − α
    where the margin is not below the label, else −α; h = 1."""
    alpha = parameters[output]
    above = float32(float32(1.0) - alpha) if margin >= label else float32(margin - label)  # a NaN must be found
    return float32(-alpha) if margin < label else above, float32(1.0)


@scalar
def sort_row(margin, i, out):
    """The margins of row i in ascending order."""
    for k in range(margin.shape[0]):
        x, place = margin[k, i], k
        while place > 0 and out[place - 1, i] > x:
            out[place, i] = out[place - 1, i]
            place -= 1
        out[place, i] = x


@register
class AbsoluteError(Objective):
    """reg:absoluteerror, one output per label column: a model of the median. Its constant minimiser is the weighted median."""

    name = "reg:absoluteerror"
    default_metric = "mae"
    gradient = staticmethod(absolute_error_gradient)

    def leaf_alphas(self, n_outputs: int) -> tuple[float, ...]:
        return (0.5,) * n_outputs

    def base_score(self, labels: RowSums, n_outputs: int) -> list[float]:
        return [labels.label_quantile(k, 0.5) for k in range(n_outputs)]


class OfAlphas(Objective):
    """One label column, and an output for each α of the one parameter that it takes, in ascending order."""

    @property
    def alphas(self) -> tuple[float, ...]:
        return getattr(self.params, self.takes[0].name) or ()

    def n_outputs(self, n_label_rows: int) -> int:
        name = self.takes[0].name
        if not self.alphas:
            raise ValueError(f"{self.name} needs {name}, such as 0.5 or [0.1, 0.5, 0.9].")
        if any(a >= b for a, b in pairwise(self.alphas)):
            raise ValueError(f"{name} must ascend, got {list(self.alphas)}. Sort it: predictions come in the same order.")
        if n_label_rows != 1:
            raise ValueError(f"{self.name} takes one label column, got {n_label_rows}. Train a model for each.")
        return len(self.alphas)

    def n_label_rows(self, n_targets: int) -> int:
        return 1


@register
class QuantileError(OfAlphas):
    """reg:quantileerror, one output for each of quantile_alpha. Its constant minimisers are the weighted quantiles of the label.

    Each output is trained on its own, and predictions of a row are sorted, so that quantiles never cross: sorting raises the
    summed pinball loss of no row (Chernozhukov, Fernández-Val & Galichon 2010, Proposition 4). Margins stay as the trees sum to
    them, so that training goes on from them, and output_margin=True predicts these.
    """

    name = "reg:quantileerror"
    default_metric = "quantile"
    takes = (Parameter("quantile_alpha", "quantile_loss_param", instead=""),)
    gradient = staticmethod(quantile_gradient)

    def leaf_alphas(self, n_outputs: int) -> tuple[float, ...]:
        return tuple(float(str(alpha)) for alpha in self.parameters)  # 0.1 and not the float32 next to it: a tenth of ten is one

    def base_score(self, labels: RowSums, n_outputs: int) -> list[float]:
        return [labels.label_quantile(0, alpha) for alpha in self.leaf_alphas(n_outputs)]

    @property
    def row_map(self):
        return sort_row if len(self.alphas) > 1 and all(a < b for a, b in pairwise(self.alphas)) else None
