"""How much gradients vary beyond what their hessians say, before the first round: the default of cat_noise for a table.

    s² = s²(objective) · min(1, Σ w² / Σ w) · min(1, Σ w·(y − ȳ)² / Σ w·ȳ)

with scale_pos_weight in the weights w, and the last factor of counts only.

Sets of categories are braked by what chance gains where the variance of a gradient is s² times its hessian
(kernels/category_splits.py). So it is for classes and for counts of Poisson's distribution, of rows that weigh 1. Weights below
1 shrink a variance by their square, hessians by themselves. Counts of less variance than their mean, as years and heights are,
leave chance less to gain; those of more are left to the user, as weights above 1 are, which may stand for as many rows.

Loss on other rows after 100 rounds, with s² of the objective alone -> so (with s² = 0; XGBoost), once: years by country,
Poisson deviance, of gapminder 0.060 -> 0.055 (0.025; 0.032), of bokeh's emissions 0.133 -> 0.100 (0.072; 0.073). Log loss of 40
categories, weights and λ a tenth: 0.675 -> 0.533, as with weights of 1 (0.596; 0.584).
"""

from dataclasses import replace
from math import fsum

import numpy as np

from gpuboost.backend import Backend
from gpuboost.backend.contract import TrainingRows
from gpuboost.backend.row_sums import RowSums
from gpuboost.communicator import Communicator
from gpuboost.objectives.regression import label_term, squared_label_term
from gpuboost.params import Params

__all__ = ["usual_noise"]


def usual_noise(params: Params, rows: TrainingRows, backend: Backend, comm: Communicator) -> float:
    """cat_noise of a training on these rows, of which none is given."""
    noise, put, weight = params.usual_cat_noise, backend.memory.put, rows.weight
    are_weighed, are_counts = comm.any(len(weight) > 0 or params.scale_pos_weight != 1), params.objective == "count:poisson"
    if noise == 0 or not (are_weighed or are_counts):
        return noise
    if are_weighed:
        weight = weight if len(weight) else np.ones(rows.label.shape[1], np.float32)
        weight = np.where(rows.label[0] > 0, weight * np.float32(params.scale_pos_weight), weight)
    label = put(np.ascontiguousarray(rows.label))
    sums = RowSums(backend, comm, label, label, put(weight))
    total = sums.total_weight
    if are_weighed:
        noise *= _at_most_1(replace(sums, label=put(weight[None])).sum_of(label_term, 0.0), total)
    if are_counts:
        means = [sums.sum_of(label_term, k) / total for k in range(len(rows.label))]
        squares = [sums.sum_of(squared_label_term, k) / total for k in range(len(rows.label))]
        noise *= _at_most_1(fsum(square - mean * mean for square, mean in zip(squares, means)), fsum(means))
    return noise


def _at_most_1(part: float, whole: float) -> float:
    """The ratio; 1 of what is not known, as where labels are missing. part : of differences, may be below 0."""
    return max(part / whole, 0.0) if part < whole else 1.0
