"""Rows query by query on the CPU: a query belongs to one thread."""

import numpy as np

from gpuboost.backend.contract import Array, Ranker, RowsByQuery
from gpuboost.backend.queries import Pairs
from gpuboost.kernels.lambdarank_sampled import sampled_lambdas_cpu
from gpuboost.kernels.lambdarank_top import top_lambdas_cpu
from gpuboost.kernels.query_terms import order_documents_cpu, query_terms_cpu

__all__ = ["CpuRanker"]

# Rows for each thread; an estimate: ordering and comparing 1,000 rows of queries of 100 takes some 0.1 ms.
ROWS_PER_THREAD = 5_000


class CpuRanker(Ranker):
    """NumPy arrays, and kernels on as many threads as the rows keep busy."""

    def __init__(self, n_threads: int) -> None:
        self._n_threads = n_threads

    def order(self, rows: RowsByQuery, values: Array) -> Array:
        order = np.empty(len(values), np.int32)
        order_documents_cpu(rows.first, values, order, self._threads(rows))
        return order

    def terms(self, rows: RowsByQuery, kind: int, order: Array, top: int, is_exponential: bool) -> Array:
        terms = np.empty(len(rows.queries))
        query_terms_cpu(kind, rows.first, order, rows.label, rows.discounts, top, is_exponential, terms, self._threads(rows))
        return terms

    def lambdas(self, rows: RowsByQuery, margin: Array, pairs: Pairs) -> tuple[Array, Array, Array]:
        n_rows, order, n_threads = len(margin), self.order(rows, margin), self._threads(rows)
        grad, hess = np.empty(n_rows, np.float32), np.empty(n_rows, np.float32)
        losses = np.empty((2, n_rows if pairs.bias.shape[1] else 0))
        given = (
            rows.first, order, margin, rows.label, pairs.factor, pairs.unit, rows.discounts, pairs.bias, pairs.kind,
            pairs.n_pairs, pairs.is_exponential, pairs.divides,
        )  # fmt: skip
        if pairs.key is None:
            top_lambdas_cpu(*given, pairs.is_normalised, grad, hess, losses, n_threads)
        else:
            place_of = np.empty(n_rows, np.int32)
            place_of[order] = rows.position
            key = np.uint32(pairs.key)
            sampled_lambdas_cpu(
                *given, pairs.ids, key, rows.by_label, rows.bucket, place_of, grad, hess, losses, n_threads
            )  # fmt: skip
        return grad, hess, losses

    def _threads(self, rows: RowsByQuery) -> int:
        return max(1, min(self._n_threads, len(rows.label) // ROWS_PER_THREAD, len(rows.queries)))
