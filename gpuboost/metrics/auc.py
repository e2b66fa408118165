"""Areas under the ROC and the precision-recall curve, from exact integer sums over sorted predictions.

Of several workers each sorts its own rows and sums the weights of equal predictions. What travels is how many distinct ones each
has in 2^16 parts of their range (512 KB), and then 24 bytes of each, AT_ONCE or so in all at a time, from the largest
predictions down: no worker ever has all rows, and the sums go on where the last ones ended.

Written in NumPy's functions, which hand arrays on a GPU to CuPy: running sums and dot products of integers, the same anywhere.
"""

import math
from abc import abstractmethod
from collections.abc import Iterable, Iterator
from functools import partial
from typing import ClassVar

import numpy as np

from gpuboost.backend.by_prediction import sum_equal
from gpuboost.backend.contract import Array
from gpuboost.backend.row_sums import RowSums
from gpuboost.communicator import Communicator
from gpuboost.config import warn
from gpuboost.kernels.jit import kernel
from gpuboost.kernels.scalar import log_double
from gpuboost.metrics import register
from gpuboost.metrics.base import Metric

N_PARTS = 2**16
AT_ONCE = 2**20
SUM_BITS, WEIGHT_BITS = 61, 30  # of a sum over all rows, which is taken twice, and of one weight
LIMB_BITS, DOT_AT_ONCE = 21, 2**21  # 42 bits of a product, and 2^21 of those


class CurveArea(Metric):
    """Of two classes; of several: each class against the rest, averaged as XGBoost does; of several labels: their plain average.
    NaN where a class or its complement is empty.

    weighs_classes : whether a class counts by its weight in that average.
    """

    maximize = True
    weighs_classes: ClassVar[bool]

    @abstractmethod
    def area(self, rows: RowSums, sums: Iterable[Array], n_positive: int, n_negative: int) -> float:
        """sums : int64 (2, n), of positive and negative weight by falling prediction, part after part, in the memory of
        rows.backend; n_positive and n_negative in all, neither of them 0."""

    def __call__(self, rows: RowSums) -> float:
        label, prediction = rows.label, rows.prediction
        total, areas = 0, 0.0
        if len(label) == len(prediction):
            is_in_between = rows.keep("labels in between", partial(self._is_in_between, label, rows.weight, rows.comm))
            return sum(self._area(rows, *own, is_in_between)[0] for own in zip(prediction, label)) / len(label)
        if len(label) > 1 or self.n_classes < 2:
            raise ValueError(
                f"eval_metric {self.family!r} takes a prediction for each label, or for each class, got {len(prediction)} for "
                f"{len(label)} label columns. Use a metric of the objective, or one of your own."
            )
        for k in range(len(prediction)):
            area, positives = self._area(rows, prediction[k], (label[0] == k).astype(np.float32), False)
            share = positives if self.weighs_classes else 1
            areas += area * share  # NaN of an empty class
            total += share
        return areas / total if total else math.nan

    def _is_in_between(self, label: Array, weight: Array, comm: Communicator) -> bool:
        """Whether a label lies between 0 and 1: its row is part positive, part negative. Raises ValueError for one outside."""
        counts = weight > 0 if len(weight) else np.ones_like(label[0], dtype=bool)
        outside = ((label < 0) | (label > 1)) & counts
        if outside.any():
            message = f"eval_metric {self.family!r} needs labels from 0 to 1, got {float(label[outside][0]):g}."
            raise ValueError(f"{message} Use ndcg for grades of relevance, another metric for regression.")
        return comm.any(bool(((label > 0) & (label < 1) & counts).any()))

    def _area(self, rows: RowSums, prediction: Array, label: Array, is_in_between: bool) -> tuple[float, int]:
        """(area, summed positive weight) over all workers' rows."""
        sum_by = rows.backend.reducer.sum_by_prediction
        if is_in_between:
            every, shares = np.ones_like(label), (label.astype(np.float64), 1 - label.astype(np.float64))
            parts = [sum_by(prediction, every, _integer_weights(rows.weight, share, SUM_BITS, rows.comm)) for share in shares]
            own = np.stack([*parts[0][:2], parts[1][1]])
        else:
            own = sum_by(prediction, label, rows.keep("integer weights", partial(_whole_weights, rows.weight, label, rows.comm)))
        totals = np.array([int(own[1].sum()), int(own[2].sum())], np.int64)
        rows.comm.allreduce_sum(totals)
        n_positive, n_negative = totals.tolist()
        if n_positive == 0 or n_negative == 0:
            if self.n_classes < 2:
                warn(f"{self.family} is NaN: the rows are all of one class, or none. Evaluate on rows of both.")
            return math.nan, n_positive
        return self.area(rows, _of_all_workers(own, rows.comm), n_positive, n_negative), n_positive


@register
class AreaUnderCurve(CurveArea):
    """P(prediction of a positive row > that of a negative one), ties counting half, pairs weighted by both rows' weights."""

    family = "auc"
    weighs_classes = True

    def area(self, rows: RowSums, sums: Iterable[Array], n_positive: int, n_negative: int) -> float:
        twice, left = 0, n_negative
        for positives, negatives in sums:
            # Twice the negatives below plus half of the ties, for each positive.
            below = 2 * (left - np.cumsum(negatives)) + negatives
            twice += exact_dot(positives, below, 2 * n_positive * n_negative)
            left -= int(negatives.sum())
        return twice / (2 * n_positive * n_negative)


@register
class AreaUnderPrecisionRecall(CurveArea):
    """∫ precision d recall, where between two predictions the negatives rise in step with the positives (Davis & Goadrich 2006),
    as in XGBoost. scikit-learn's average_precision takes steps instead."""

    family = "aucpr"
    weighs_classes = False

    def area(self, rows: RowSums, sums: Iterable[Array], n_positive: int, n_negative: int) -> float:
        so_far = 0.0, 0.0, 0.0
        for part in sums:
            so_far = _add_precision_recall_area(*rows.backend.memory.fetch(part), *so_far)
        return so_far[2] / so_far[0]


@kernel
def _add_precision_recall_area(positives, negatives, p, n, area):
    """From the largest prediction down, with p positives and n negatives so far and steps dp, dn, h = dn/dp, b = n − h·p:

    ∫ t/((1 + h)·t + b) dt from p to p + dp  =  (dp − b/(1 + h)·ln((p + dp + n + dn)/(p + n)))/(1 + h)

    Returns (p, n, area) after these steps.
    """
    for i in range(positives.size):
        dp, dn = float(positives[i]), float(negatives[i])
        if dp > 0.0:
            h = dn / dp
            bent = (n - h * p) / (1.0 + h) * log_double((p + dp + n + dn) / (p + n)) if p + n > 0.0 else 0.0
            area += (dp - bent) / (1.0 + h)
        p, n = p + dp, n + dn
    return p, n, area


def exact_dot(a: Array, b: Array, bound: int) -> int:
    """Σ a·b, of int64 (n,) from 0 on. bound : that it does not exceed."""
    if bound < 2**63:
        return int(a @ b)
    total = 0
    for begin in range(0, len(a), DOT_AT_ONCE):
        parts = [x[begin : begin + DOT_AT_ONCE] for x in (a, b)]
        shifts = [range(0, int(x.max()).bit_length(), LIMB_BITS) for x in parts]
        x_limbs, y_limbs = ([(k, x >> k & (2**LIMB_BITS - 1)) for k in own] for x, own in zip(parts, shifts))
        total += sum(int(x @ y) << (i + j) for i, x in x_limbs for j, y in y_limbs)
    return total


def _whole_weights(weight: Array, label: Array, comm: Communicator) -> Array:
    """int64 weights of 30 bits, which are fast to multiply. (0,) where no worker has some."""
    is_weighted = max(comm.allgather_int(len(weight))) > 0
    every = np.ones_like(label, dtype=np.float64)
    return _integer_weights(weight, every, WEIGHT_BITS, comm) if is_weighted else np.zeros_like(label[:0], dtype=np.int64)


def _integer_weights(weight: Array, share: Array, bits: int, comm: Communicator) -> Array:
    """int64 shares of weights, of so many bits, or fewer, so that their sum over all rows stays below 2^SUM_BITS. share : float64
    (n_rows,), from 0 to 1."""
    weight = weight.astype(np.float64) if len(weight) else np.ones_like(share, dtype=np.float64)
    key = np.array([np.float32(float(weight.max()) if len(weight) else 0.0)]).view(np.int32).astype(np.int64)
    comm.allreduce_max(key)
    largest, global_rows = float(key.astype(np.int32).view(np.float32)[0]), sum(comm.allgather_int(len(share)))
    scale = 2.0 ** (min(bits, SUM_BITS - global_rows.bit_length()) - math.frexp(largest)[1])
    return np.floor(weight * share * scale + 0.5).astype(np.int64)


def _of_all_workers(own: Array, comm: Communicator) -> Iterator[Array]:
    """int64 (2, n): all workers' positives and negatives of each prediction, by falling prediction, part after part. own : of
    this worker, with what rises as they fall."""
    if comm.size == 1:
        yield own[1:]
        return
    ends = np.array([-int(own[0, 0]), int(own[0, -1])] if own.shape[1] else [-(2**31), -(2**31)], np.int64)
    comm.allreduce_max(ends)
    low, high = -int(ends[0]), int(ends[1])
    part = (own[0] - low) * N_PARTS // (high - low + 1)
    counts = np.bincount(part, minlength=N_PARTS).astype(np.int64)
    comm.allreduce_sum(counts)
    up_to, first = np.cumsum(counts), 0
    while first < N_PARTS:
        before = int(up_to[first - 1]) if first else 0
        last = max(int(np.searchsorted(up_to, before + AT_ONCE, side="right")), first + 1)
        is_here = (part >= first) & (part < last)
        yield sum_equal(comm.gather_columns(own[:, is_here]))[1:]
        first = last
