"""Asymmetric squared error: models of expectiles, which are to the mean as quantiles are to the median."""

import math
from collections.abc import Callable
from itertools import pairwise

import numpy as np
from numba import float32, float64

from gpuboost.backend.row_sums import RowSums
from gpuboost.kernels.gradients import put_gradient
from gpuboost.kernels.jit import scalar
from gpuboost.kernels.scalar import exp_float, larger, log1p_float, sigmoid_float, smaller
from gpuboost.objectives import register
from gpuboost.objectives.base import Parameter
from gpuboost.objectives.quantile import OfAlphas
from gpuboost.objectives.regression import constant_minimiser

SMALLEST_STEP = 1e-6  # as XGBoost has it: each expectile is above the one before
FARTHEST = 1e37  # of an expectile, so that sums over outputs are finite


@scalar
def step_above(margin):
    """SMALLEST_STEP + ln(1 + e^margin): how far an expectile lies above the one before."""
    margin = smaller(margin, float32(FARTHEST))
    step = float32(larger(margin, float32(0.0)) + log1p_float(exp_float(-abs(margin))))
    return float32(step + float32(SMALLEST_STEP))


@scalar
def expectile_gradient(margin, label, weight, i, parameters, grad, hess):
    """Σ over k of ½·|α_k − [y < q_k]|·(q_k − y)² (Newey & Powell 1987) with α_k = parameters[k], and q_k the expectiles:

    q_0 = margin_0,  q_k = q_{k−1} + 1e-6 + ln(1 + e^margin_k)     so that they never cross

    g_k = σ_k·Σ_{j ≥ k} ∂_j,  h_k = σ_k²·Σ_{j ≥ k} ∂²_j (Gauss–Newton), with σ_0 = 1, σ_k = 1/(1 + e^−margin_k). As XGBoost.
    """
    n, expectile = margin.shape[0], float32(0.0)
    for k in range(n):
        expectile = margin[0, i] if k == 0 else float32(expectile + step_above(margin[k, i]))
        expectile = smaller(larger(expectile, float32(-FARTHEST)), float32(FARTHEST))
        difference = float32(expectile - label[0, i])
        side = float32(float32(1.0) - parameters[k]) if difference >= float32(0.0) else parameters[k]
        grad[k, i], hess[k, i] = float32(side * difference), side
    g, h = float32(0.0), float32(0.0)
    for k in range(n - 1, -1, -1):
        g, h = float32(g + grad[k, i]), float32(h + hess[k, i])
        slope = float32(1.0) if k == 0 else sigmoid_float(margin[k, i])
        put_gradient(grad, hess, k, i, float32(g * slope), float32(float32(h * slope) * slope), weight)


@scalar
def expectiles_row(margin, i, out):
    """The expectiles of row i."""
    out[0, i] = margin[0, i]
    for k in range(1, margin.shape[0]):
        out[k, i] = float32(out[k - 1, i] + step_above(margin[k, i]))


@scalar
def expectile_slope(prediction, label, i, parameters):
    """g of α = parameters[0] at the constant parameters[1]."""
    alpha, difference = float64(parameters[0]), float64(parameters[1]) - float64(label[0, i])
    return (float64(1.0) - alpha if difference >= float64(0.0) else alpha) * difference


@register
class ExpectileError(OfAlphas):
    """reg:expectileerror, one output for each of expectile_alpha. Its constant minimisers are the expectiles of the label.

    Margins are the lowest expectile and logarithms of the steps to the others (expectile_gradient).
    """

    name = "reg:expectileerror"
    default_metric = "expectile"
    takes = (Parameter("expectile_alpha", "expectile_loss_param", instead=""),)
    row_gradient = staticmethod(expectile_gradient)

    def n_outputs(self, n_label_rows: int) -> int:
        if not all(0 < alpha < 1 for alpha in self.alphas):
            raise ValueError(f"expectile_alpha must lie between 0 and 1, both excluded, got {list(self.alphas)}.")
        return super().n_outputs(n_label_rows)

    def base_score(self, labels: RowSums, n_outputs: int) -> list[float]:
        def slope_of(alpha: float) -> Callable[[float], float]:
            return lambda constant: labels.sum_of(expectile_slope, alpha, constant)

        return [constant_minimiser(slope_of(alpha)) for alpha in self.alphas]

    def base_margin(self, base_score: np.ndarray) -> np.ndarray:
        steps = [max(float(b) - float(a) - SMALLEST_STEP, SMALLEST_STEP) for a, b in pairwise(base_score)]
        return np.array([base_score[0], *(math.log(math.expm1(step)) if step < 30 else step for step in steps)], np.float32)

    @property
    def row_map(self):
        return expectiles_row if len(self.alphas) > 1 else None
