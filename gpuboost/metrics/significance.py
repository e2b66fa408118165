"""The approximate median significance of the Higgs boson machine learning challenge (Adam-Bourdarios et al. 2014)."""

import math

import numpy as np

from gpuboost.backend.row_sums import RowSums
from gpuboost.kernels.jit import kernel
from gpuboost.kernels.scalar import log1p_double
from gpuboost.metrics import register
from gpuboost.metrics.base import DEFAULTS, Metric
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
        if len(rows.label) > 1 or len(rows.prediction) > 1:
            raise ValueError(f"eval_metric 'ams' takes one label column and one prediction, got {len(rows.prediction)}.")
        fetch = rows.backend.memory.fetch
        label, prediction, weight = fetch(rows.label)[0], fetch(rows.prediction)[0], fetch(rows.weight)
        weight = weight if len(weight) else np.ones(len(label), np.float32)
        columns = np.stack([label, prediction, weight])[:, weight > 0].view(np.int32).astype(np.int64)
        label, prediction, weight = rows.comm.gather_columns(columns).astype(np.int32).view(np.float32)
        order = np.argsort(-prediction, kind="stable")
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
