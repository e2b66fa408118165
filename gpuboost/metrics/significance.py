"""The approximate median significance of the Higgs boson machine learning challenge (Adam-Bourdarios et al. 2014)."""

import math

import numpy as np

from gpuboost.backend.row_sums import RowSums
from gpuboost.kernels.jit import kernel
from gpuboost.kernels.scalar import log1p_double
from gpuboost.metrics import register
from gpuboost.metrics.base import DEFAULTS, Metric, rows_together
from gpuboost.params import Params

REGULARISATION = 10.0  # the challenge's b_r, added to the background


@register
class MedianSignificance(Metric):
    """√(2·((s + b + 10)·ln(1 + s/(b + 10)) − s)) of selected rows: s is the weight of those with labels above ½, b the others'.

    ``ams@k`` selects the ⌊k·n⌋ rows with the largest predictions, equal ones in row order; with k = 0 or 1, or none, it is the
    largest value of all thresholds that leave a row out. Rows of weight 0 are as good as absent. All workers' rows come together.
    """

    family = "ams"
    maximize = True

    def __init__(self, argument: str | None = None, params: Params = DEFAULTS) -> None:
        super().__init__()
        try:
            self.share = float(argument or 0)
        except ValueError:
            self.share = math.nan
        if not 0 <= self.share <= 1:
            raise ValueError(f"eval_metric 'ams@k' needs a share of the rows between 0 and 1, got {argument!r}. Use ams@0.15.")
        self.name = "ams" if argument is None else f"ams@{self.share:g}"

    def __call__(self, rows: RowSums) -> float:
        label, prediction, weight = rows_together(rows, self.family)
        order = np.argsort(-prediction, kind="stable")
        order = order[weight[order] > 0]
        n_selected = int(np.float32(self.share) * np.float32(len(order)))  # in float32, as XGBoost counts
        return float(_significance(label[order], prediction[order], weight[order], n_selected))


@kernel
def _significance(label, prediction, weight, n_selected):
    """Of the first n_selected rows by falling prediction; the largest of all thresholds where they are none or all."""
    s, b, largest = 0.0, 0.0, 0.0
    is_best = n_selected == 0 or n_selected == label.size
    for i in range(label.size - 1 if is_best else n_selected):
        if label[i] > 0.5:
            s += float(weight[i])
        else:
            b += float(weight[i])
        if i == n_selected - 1 or is_best and prediction[i] != prediction[i + 1]:
            background = b + REGULARISATION
            of_two = 2.0 * ((s + background) * log1p_double(s / background) - s)
            largest = max(largest, math.sqrt(max(of_two, 0.0)))  # rounded below 0 where s is small
    return largest
