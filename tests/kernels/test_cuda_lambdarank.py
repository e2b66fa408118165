"""kernels/lambdarank.py, lambdarank_sampled.py and query_terms.py on a GPU, to the bit of their CPU twins."""

import numpy as np
import pytest
from cuda_runners import assert_same, each_runner
from query_tables import OPTIONS, pairs_of, query_rows

from gpuboost.backend import CpuBackend
from gpuboost.kernels.lambdarank_sampled import sampled_lambdas_kernel
from gpuboost.kernels.lambdarank_top import top_lambdas_kernel
from gpuboost.kernels.query_terms import AVERAGE_PRECISION, DCG, PRECISION, query_terms_kernel
from gpuboost.kernels.ranked_documents import MAP, N_FIELDS, N_PLAIN, NDCG

SIZES = (1, 2, 7, 33, 40)


def name_of(option):
    return "-".join(map(str, option.values()))


@pytest.mark.sweep(12)
@each_runner
@pytest.mark.parametrize("option", OPTIONS, ids=name_of)
def test_gradients_differ_from_the_cpu_in_no_bit(run, option):
    backend = CpuBackend(1)
    rows, margin = query_rows(backend, option["kind"], SIZES)
    pairs, n_rows, is_unbiased = pairs_of(rows, **option), len(margin), option["is_unbiased"]
    grad, hess = np.full(n_rows, 77, np.float32), np.full(n_rows, 77, np.float32)
    losses = np.full((2, n_rows if is_unbiased else 0), 77.0)
    facts = np.full((N_FIELDS if is_unbiased or option["kind"] == MAP else N_PLAIN, n_rows), 77.0)
    order = rows.order(margin)
    given = (
        rows.first, order, margin, rows.label, pairs.factor, pairs.unit, rows.discounts, pairs.bias, pairs.kind, pairs.n_pairs, 1,
        int(pairs.divides),
    )  # fmt: skip
    if pairs.key is None:
        run(top_lambdas_kernel, *given, int(pairs.is_normalised), facts, grad, hess, losses, blocks=len(SIZES))
    else:
        place_of, sums = np.empty(n_rows, np.int32), np.zeros((4 if is_unbiased else 2, n_rows), np.int64)
        place_of[order] = rows.position
        run(
            sampled_lambdas_kernel, *given, pairs.ids, pairs.key, rows.by_label, rows.bucket, place_of, facts, sums, grad, hess,
            losses, blocks=len(SIZES),
        )  # fmt: skip
    for actual, expected in zip((grad, hess, losses), backend.ranker.lambdas(rows, margin, pairs)):
        assert_same(actual, expected)


@pytest.mark.sweep(6)
@each_runner
@pytest.mark.parametrize("kind", [DCG, AVERAGE_PRECISION, PRECISION])
@pytest.mark.parametrize("top", [3, 34, 100])
def test_terms_differ_from_the_cpu_in_no_bit(run, kind, top):
    backend = CpuBackend(1)
    rows, margin = query_rows(backend, NDCG if kind == DCG else MAP, SIZES)
    top, order, terms = min(top, max(SIZES)), rows.order(margin), np.full(len(SIZES), 77.0)
    run(
        query_terms_kernel, kind, rows.first, order, rows.label, rows.discounts, top, int(kind == DCG), terms, warps=len(SIZES)
    )  # fmt: skip
    assert_same(terms, backend.ranker.terms(rows, kind, order, top, kind == DCG))
