"""Areas under the ROC and the precision-recall curve, from exact integer sums over sorted predictions.

Written in NumPy's functions, which hand arrays on a GPU to CuPy: sort, running sums and dot products of integers, the same
anywhere.
"""

import math
from abc import abstractmethod
from typing import ClassVar

import numpy as np

from gpuboost.backend.contract import Array
from gpuboost.backend.row_sums import RowSums
from gpuboost.communicator import Communicator
from gpuboost.kernels.jit import kernel
from gpuboost.kernels.scalar import log_double
from gpuboost.metrics import register
from gpuboost.metrics.base import Metric


class CurveArea(Metric):
    """Of two classes; of several: each class against the rest, averaged as XGBoost does. NaN where a class or its complement is
    empty.

    weighs_classes : whether a class counts by its weight in that average.
    """

    maximize = True
    weighs_classes: ClassVar[bool]

    @abstractmethod
    def area(self, rows: RowSums, positives: Array, negatives: Array) -> float:
        """Of int64 sums of weight of either kind, by rising prediction, in the memory of rows.backend. Neither is all 0."""

    def __call__(self, rows: RowSums) -> float:
        if len(rows.label) > 1:
            message = f"{self.family} takes one label column, got {len(rows.label)}."
            raise ValueError(f"{message} Evaluate logloss, or one column at a time.")
        label, prediction = rows.label[0], rows.prediction
        weight = _integer_weights(rows.weight, label, rows.comm)
        if len(prediction) == 1:
            # A label between 0 and 1 is part positive, part negative, in 1024ths.
            positive = np.round(label.astype(np.float64) * 1024.0).astype(np.int64)
            return self._area(rows, prediction[0], weight * positive, weight * (1024 - positive))[0]
        total, areas = 0, 0.0
        for k in range(len(prediction)):
            is_class = (label == k).astype(np.int64)
            area, positives = self._area(rows, prediction[k], weight * is_class, weight * (1 - is_class))
            share = positives if self.weighs_classes else 1
            areas += area * share if share else 0.0
            total += share
        return areas / total if total else math.nan

    def _area(self, rows: RowSums, prediction: Array, positive: Array, negative: Array) -> tuple[float, int]:
        """(area, summed positive weight) over all workers' rows."""
        positives, negatives = _sums_by_prediction(prediction, positive, negative, rows.comm)
        n_positive = int(positives.sum())
        if n_positive == 0 or int(negatives.sum()) == 0:
            return math.nan, n_positive
        return self.area(rows, positives, negatives), n_positive


@register
class AreaUnderCurve(CurveArea):
    """P(prediction of a positive row > that of a negative one), ties counting half, pairs weighted by both rows' weights."""

    family = "auc"
    weighs_classes = True

    def area(self, rows: RowSums, positives: Array, negatives: Array) -> float:
        n_positive, n_negative = int(positives.sum()), int(negatives.sum())
        # Twice the negatives below plus half of the ties, for each positive.
        below = 2 * np.cumsum(negatives) - negatives
        if 2 * n_positive * n_negative < 2**63:
            twice = int(positives @ below)
        else:
            twice = sum(p * b for p, b in zip(positives.tolist(), below.tolist()))
        return twice / (2 * n_positive * n_negative)


@register
class AreaUnderPrecisionRecall(CurveArea):
    """∫ precision d recall, where between two predictions the negatives rise in step with the positives (Davis & Goadrich 2006),
    as in XGBoost. scikit-learn's average_precision takes steps instead."""

    family = "aucpr"
    weighs_classes = False

    def area(self, rows: RowSums, positives: Array, negatives: Array) -> float:
        fetch = rows.backend.memory.fetch
        return float(_precision_recall_area(fetch(positives), fetch(negatives)))


@kernel
def _precision_recall_area(positives, negatives):
    """From the largest prediction down, with p positives and n negatives so far and steps dp, dn, h = dn/dp, b = n − h·p:

    ∫ t/((1 + h)·t + b) dt from p to p + dp  =  (dp − b/(1 + h)·ln((p + dp + n + dn)/(p + n)))/(1 + h)
    """
    p, n, area = 0.0, 0.0, 0.0
    for i in range(positives.size - 1, -1, -1):
        dp, dn = float(positives[i]), float(negatives[i])
        if dp > 0.0:
            h = dn / dp
            bent = (n - h * p) / (1.0 + h) * log_double((p + dp + n + dn) / (p + n)) if p + n > 0.0 else 0.0
            area += (dp - bent) / (1.0 + h)
        p, n = p + dp, n + dn
    return area / p


def _integer_weights(weight: Array, label: Array, comm: Communicator) -> Array:
    """int64 weights of at most 30 bits, fewer from 2^21 rows on: twice their sum in 1024ths stays below 2^63. 1 each without."""
    is_weighted = max(comm.allgather_int(len(weight))) > 0
    if not is_weighted:
        return np.ones_like(label, dtype=np.int64)
    if len(weight) == 0:  # another worker has some
        weight = np.ones_like(label)
    bits = np.array([np.float32(float(weight.max()) if len(weight) else 0.0)]).view(np.int32).astype(np.int64)
    comm.allreduce_max(bits)
    largest = float(bits.astype(np.int32).view(np.float32)[0])
    global_rows = sum(comm.allgather_int(len(label)))
    scale = 2.0 ** (min(30, 51 - global_rows.bit_length()) - math.frexp(largest)[1])
    return np.floor(weight.astype(np.float64) * scale + 0.5).astype(np.int64)


def _sums_by_prediction(prediction: Array, positive: Array, negative: Array, comm: Communicator) -> tuple[Array, Array]:
    """int64 sums of all workers' positives and negatives of each prediction, by rising prediction."""
    rows = np.stack([prediction.astype(np.float32).view(np.int32).astype(np.int64), positive, negative])
    rows = comm.gather_columns(rows)
    prediction = rows[0].astype(np.int32).view(np.float32)
    order = np.argsort(prediction)
    ordered = prediction[order]
    is_last = np.ones_like(ordered, dtype=bool)  # of the rows of one prediction
    is_last[:-1] = ordered[1:] != ordered[:-1]
    sums = np.cumsum(rows[1:, order], axis=1)[:, is_last]
    positives, negatives = sums.copy()
    positives[1:] -= sums[0, :-1]
    negatives[1:] -= sums[1, :-1]
    return positives, negatives
