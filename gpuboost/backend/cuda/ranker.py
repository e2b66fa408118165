"""Rows query by query on a GPU: CuPy sorts all queries at once, and a block, or a warp, takes one of them."""

import numpy as np

from gpuboost.backend.contract import Array, Ranker, RowsByQuery
from gpuboost.backend.cuda.device import Device
from gpuboost.backend.cuda.memory import on_device
from gpuboost.backend.queries import Pairs
from gpuboost.kernels.lambdarank_sampled import sampled_lambdas_kernel
from gpuboost.kernels.lambdarank_top import top_lambdas_kernel
from gpuboost.kernels.query_terms import query_terms_kernel
from gpuboost.kernels.ranked_documents import MAP, N_FIELDS, N_PLAIN

__all__ = ["CudaRanker"]


@on_device(Ranker)
class CudaRanker(Ranker):
    """CuPy arrays and launches; nothing is waited for."""

    def __init__(self, device: Device) -> None:
        self.device = device

    def order(self, rows: RowsByQuery, values: Array) -> Array:
        bits = (values + np.float32(0)).view(np.int32).astype(np.int64)  # −0 is 0
        falling = np.where(bits < 0, bits + 2**31, -bits)  # of 32 bits, in the order of falling values
        numbers = self.device.put(np.repeat(np.arange(len(rows.queries)), rows.queries.sizes))
        return np.argsort(numbers * 2**33 + falling, kind="stable").astype(np.int32)

    def terms(self, rows: RowsByQuery, kind: int, order: Array, top: int, is_exponential: bool) -> Array:
        terms = self.device.empty(len(rows.queries), np.float64)
        self.device.launch(
            query_terms_kernel, kind, rows.first, order, rows.label, rows.discounts, top, int(is_exponential), terms,
            warps=len(rows.queries),
        )  # fmt: skip
        return terms

    def lambdas(self, rows: RowsByQuery, margin: Array, pairs: Pairs) -> tuple[Array, Array, Array]:
        device, n_rows, order = self.device, margin.shape[0], self.order(rows, margin)
        grad, hess = device.empty(n_rows, np.float32), device.empty(n_rows, np.float32)
        is_unbiased = pairs.bias.shape[1] > 0
        losses = device.empty((2, n_rows if is_unbiased else 0), np.float64)
        facts = device.empty((N_FIELDS if is_unbiased or pairs.kind == MAP else N_PLAIN, n_rows), np.float64)
        given = (
            rows.first, order, margin, rows.label, pairs.factor, pairs.unit, rows.discounts, pairs.bias, pairs.kind,
            pairs.n_pairs, int(pairs.is_exponential), int(pairs.divides),
        )  # fmt: skip
        n_queries = len(rows.queries)
        if pairs.key is None:
            device.launch(top_lambdas_kernel, *given, int(pairs.is_normalised), facts, grad, hess, losses, blocks=n_queries)
        else:
            place_of, sums = device.empty(n_rows, np.int32), device.zeros((4 if is_unbiased else 2, n_rows), np.int64)
            place_of[order] = rows.position
            device.launch(
                sampled_lambdas_kernel, *given, pairs.ids, pairs.key, rows.by_label, rows.bucket, place_of, facts, sums, grad,
                hess, losses, blocks=n_queries,
            )  # fmt: skip
        return grad, hess, losses
