"""Area under the ROC curve, from exact integer sums over sorted predictions.

Written in NumPy's functions, which hand arrays on a GPU to CuPy: sort, running sums and dot products of integers, the same
anywhere.
"""

import math

import numpy as np

from gpuboost.backend.contract import Array
from gpuboost.backend.row_sums import RowSums
from gpuboost.communicator import Communicator
from gpuboost.metrics import register
from gpuboost.metrics.base import Metric


@register
class AreaUnderCurve(Metric):
    """P(prediction of a positive row > that of a negative one), ties counting half, pairs weighted by both rows' weights.

    Several classes: each class against the rest, averaged by the weight of the classes (XGBoost's default). NaN where a class
    or its complement is empty.
    """

    family = "auc"
    maximize = True

    def __call__(self, rows: RowSums) -> float:
        if len(rows.label) > 1:
            raise ValueError(f"auc takes one label column, got {len(rows.label)}. Evaluate logloss, or one column at a time.")
        label, prediction = rows.label[0], rows.prediction
        weight = _integer_weights(rows.weight, label, rows.comm)
        if len(prediction) == 1:
            # A label between 0 and 1 is part positive, part negative, in 1024ths.
            positive = np.round(label.astype(np.float64) * 1024.0).astype(np.int64)
            return _area(prediction[0], weight * positive, weight * (1024 - positive), rows.comm)[0]
        total, areas = 0, 0.0
        for k in range(len(prediction)):
            is_class = (label == k).astype(np.int64)
            area, positives = _area(prediction[k], weight * is_class, weight * (1 - is_class), rows.comm)
            areas += area * positives if positives else 0.0
            total += positives
        return areas / total if total else math.nan


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


def _area(prediction: Array, positive: Array, negative: Array, comm: Communicator) -> tuple[float, int]:
    """(area, summed positive weight) over all workers' rows."""
    rows = np.stack([prediction.astype(np.float32).view(np.int32).astype(np.int64), positive, negative])
    if comm.size > 1:
        rows = _gather_columns(rows, comm)
    prediction = rows[0].astype(np.int32).view(np.float32)
    order = np.argsort(prediction)
    ordered = prediction[order]
    is_last = np.ones_like(ordered, dtype=bool)  # of the rows of one prediction
    is_last[:-1] = ordered[1:] != ordered[:-1]
    sums = np.cumsum(rows[1:, order], axis=1)[:, is_last]
    positives, negatives = sums.copy()
    positives[1:] -= sums[0, :-1]
    negatives[1:] -= sums[1, :-1]
    n_positive, n_negative = int(positives.sum()), int(negatives.sum())
    if n_positive == 0 or n_negative == 0:
        return math.nan, n_positive
    # Twice the negatives below plus half of the ties, for each positive.
    below = 2 * np.cumsum(negatives) - negatives
    if 2 * n_positive * n_negative < 2**63:
        twice = int(positives @ below)
    else:
        twice = sum(p * b for p, b in zip(positives.tolist(), below.tolist()))
    return twice / (2 * n_positive * n_negative), n_positive


def _gather_columns(rows: Array, comm: Communicator) -> Array:
    """All workers' columns side by side: int64 (k, Σ n)."""
    lengths = comm.allgather(np.array([rows.shape[1]], np.int64))[:, 0]
    padded = np.zeros_like(rows, shape=(rows.shape[0], int(lengths.max())))
    padded[:, : rows.shape[1]] = rows
    gathered = comm.allgather(padded)
    return np.concatenate([part[:, :n] for part, n in zip(gathered, lengths)], axis=1)
