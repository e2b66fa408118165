"""Small queries for tests of rankings: their backends' rows, and pairs of every option."""

from itertools import product

import numpy as np

from gpuboost.backend.queries import Pairs, Queries
from gpuboost.backend.query_rows import QueryRows
from gpuboost.kernels.ranked_documents import MAP, NDCG, PAIRWISE

SIZES = (1, 2, 7, 31, 33, 64, 95, 3)
TOP, SAMPLED = (None, 5), (77, 2)  # key and n_pairs
OPTIONS = [
    {"kind": kind, "key": key, "n_pairs": n_pairs, "divides": divides, "is_normalised": is_normalised, "is_unbiased": is_unbiased}
    for kind, (key, n_pairs), (divides, is_normalised), is_unbiased in product(
        (PAIRWISE, NDCG, MAP), (TOP, SAMPLED), ((True, True), (False, False)), (False, True)
    )
]  # fmt: skip


def query_rows(backend, kind, sizes=SIZES, seed=0, n_levels=5):
    """(rows by query, margins with ties, of the last query all equal)."""
    rng = np.random.default_rng(seed)
    first = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    n_rows = int(first[-1])
    label = rng.integers(0, 2 if kind == MAP else n_levels, n_rows).astype(np.float32)
    margin = (np.round(rng.normal(size=n_rows) * 8) / 4).astype(np.float32)
    margin[first[-2] :] = 1.5
    put = backend.memory.put
    return QueryRows(backend, Queries(first, np.zeros(0, np.float32), True), put(label)), put(margin)


def pairs_of(rows, kind, key, n_pairs, divides, is_normalised, is_unbiased, is_exponential=True):
    rng, n, put = np.random.default_rng(1), len(rows.queries), rows.backend.memory.put
    bias = np.zeros((2, 0))
    if is_unbiased:  # of the first 20 positions, some of them too rare
        bias = np.where(rng.random((2, 20)) < 0.2, 0.0, 0.5 + rng.random((2, 20)))
    return Pairs(
        kind, n_pairs, is_exponential, divides, is_normalised, put(rng.integers(0, 4, n) / 2), put(rng.random(n)), put(bias),
        put(rows.queries.first[:-1] + 2**33), key,
    )  # fmt: skip
