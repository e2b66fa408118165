"""Metrics of rankings: means over queries, of documents in the order of their predictions, equal ones in row order."""

import re
from abc import abstractmethod
from typing import ClassVar

import numpy as np

from gpuboost.backend.fixed_point import exact_sum, largest_of, sum_scale
from gpuboost.backend.query_rows import QueryRows
from gpuboost.backend.row_sums import RowSums
from gpuboost.kernels.query_terms import AVERAGE_PRECISION, DCG, PRECISION
from gpuboost.metrics import register
from gpuboost.metrics.base import DEFAULTS, Metric
from gpuboost.params import Params

FIX = "Use ndcg_exp_gain=False for gains of your own, or another metric."


class RankingMetric(Metric):
    """Σ weight · term / Σ weight over the queries of all workers, terms between 0 and 1. Without queries all rows are one.

    argument : "5" counts the first 5 documents of each query; "5-" and "-" give queries without relevant documents 0, not 1.
    """

    maximize = True
    takes_minus = True
    #: Whether labels must be 0 or 1.
    is_binary: ClassVar[bool] = True

    def __init__(self, argument: str | None = None, params: Params = DEFAULTS) -> None:
        super().__init__()
        match = re.fullmatch(r"([1-9][0-9]{0,8})?(-?)", argument or "")
        if match is None or argument == "":
            raise ValueError(f"eval_metric {self.family}@n needs a number of documents, got {argument!r}. Use {self.family}@10.")
        self.top = int(match[1]) if match[1] else None
        self.empty = 0.0 if match[2] else 1.0
        self.name = f"{self.family}{'@' if match[1] else ''}{argument or ''}"
        self.is_exponential = params.ndcg_exp_gain

    @abstractmethod
    def terms(self, rows: QueryRows, order: np.ndarray) -> np.ndarray:
        """float64 (n_queries,). order : of the documents, in the backend's memory."""

    def __call__(self, rows: RowSums) -> float:
        queries, comm = rows.queries, rows.comm
        if queries is None or len(rows.label) > 1 or len(rows.prediction) > 1:
            raise ValueError(f"eval_metric {self.family!r} takes one label column and one prediction. Evaluate one at a time.")
        if not queries.queries.is_given and comm.size > 1:
            raise ValueError(f"eval_metric {self.family!r} of several workers needs queries. Pass qid= or group= to the DMatrix.")
        self._check_labels(queries.host_label)
        terms = self.terms(queries, queries.order(rows.prediction[0]))
        weight = queries.queries.weight.astype(np.float64)
        scale = sum_scale(largest_of(weight, comm), sum(comm.allgather_int(len(weight))))
        total, of_weights = exact_sum(terms * weight, scale, comm), exact_sum(weight, scale, comm)
        return total / of_weights if of_weights else float("nan")

    def _check_labels(self, label: np.ndarray) -> None:
        bad = (label != 0) & (label != 1) if self.is_binary else label < 0
        if not self.is_binary and self.is_exponential:
            bad = bad | (label != np.floor(label)) | (label > 31)
        if bad.any():
            allowed = "0 or 1" if self.is_binary else "whole numbers from 0 to 31 with ndcg_exp_gain, else not negative"
            raise ValueError(
                f"eval_metric {self.family!r} needs labels that are {allowed}, got {label[bad][0]:g} at row "
                f"{int(np.argmax(bad))}. {'Use ndcg.' if self.is_binary else FIX}"
            )


@register
class DiscountedGain(RankingMetric):
    """DCG of the ranking over that of the best one (Järvelin & Kekäläinen 2002), gains 2^label − 1 or, without ndcg_exp_gain, the
    labels."""

    family = "ndcg"
    is_binary = False

    def terms(self, rows: QueryRows, order: np.ndarray) -> np.ndarray:
        own, best = (rows.terms(DCG, by, self.top, self.is_exponential) for by in (order, rows.by_label))
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(best > 0, np.minimum(own / best, 1.0), self.empty)


@register
class AveragePrecision(RankingMetric):
    """Mean of the precisions at the relevant documents."""

    family = "map"

    def terms(self, rows: QueryRows, order: np.ndarray) -> np.ndarray:
        terms = rows.terms(AVERAGE_PRECISION, order, self.top, False)
        return np.where(terms < 0, self.empty, terms)


@register
class Precision(RankingMetric):
    """Share of relevant documents."""

    family = "pre"

    def terms(self, rows: QueryRows, order: np.ndarray) -> np.ndarray:
        return rows.terms(PRECISION, order, self.top, False)
