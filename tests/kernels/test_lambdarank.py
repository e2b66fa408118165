"""kernels/lambdarank.py, lambdarank_sampled.py and query_terms.py: a case by hand, losses whose slopes they are, plain loops over
all pairs, any number of threads, long queries."""

import numpy as np
import pytest
from naive_backend import NaiveBackend
from query_tables import OPTIONS, SIZES, pairs_of, query_rows

from gpuboost.backend import CpuBackend
from gpuboost.backend.cpu import ranker
from gpuboost.backend.queries import Queries
from gpuboost.backend.query_rows import QueryRows
from gpuboost.kernels.query_terms import AVERAGE_PRECISION, DCG, PRECISION
from gpuboost.kernels.ranked_documents import MAP, NDCG, PAIRWISE


def name_of(option):
    return "-".join(map(str, option.values()))


def lambdas(backend, margin=None, **options):
    rows, usual = query_rows(backend, options["kind"])
    return backend.ranker.lambdas(rows, usual if margin is None else margin, pairs_of(rows, **options))


def test_a_pair_by_hand():
    """Two documents at scores 0 and ln 3, the worse one on top: σ of the better one is ¼, the gain 2³ − 1 of it at the first
    place instead of the second is 7·(1 − 1/log2 3), of an IDCG of 7."""
    backend = CpuBackend(1)
    rows = QueryRows(backend, Queries(np.array([0, 2]), np.zeros(0, np.float32), True), np.array([3, 0], np.float32))
    margin = np.array([0, np.log(3)], np.float32)
    option = dict(kind=NDCG, key=None, n_pairs=1, divides=False, is_normalised=False, is_unbiased=False)
    pairs = pairs_of(rows, **option)
    pairs.factor[:], pairs.unit[:] = 1, 1 / 7
    grad, hess, _ = backend.ranker.lambdas(rows, margin, pairs)
    change = 1 - 1 / np.log2(3)
    np.testing.assert_allclose(grad, [-0.75 * change, 0.75 * change], rtol=1e-6)
    np.testing.assert_allclose(hess, 2 * [2 * 0.25 * 0.75 * change], rtol=1e-6)


@pytest.mark.parametrize("option", OPTIONS, ids=name_of)
def test_all_options_are_those_of_plain_loops_to_the_bit(option):
    for ours, plain in zip(lambdas(CpuBackend(1), **option), lambdas(NaiveBackend(), **option)):
        assert ours.tobytes() == plain.tobytes() and (ours != 0).any() == (ours.size > 0)


@pytest.mark.parametrize("option", OPTIONS[::5], ids=name_of)
def test_the_number_of_threads_does_not_show(option, monkeypatch):
    monkeypatch.setattr(ranker, "ROWS_PER_THREAD", 1)
    for one, several in zip(lambdas(CpuBackend(1), **option), lambdas(CpuBackend(2), **option)):
        assert one.tobytes() == several.tobytes()


def test_pairwise_gradients_are_slopes_of_the_logistic_loss_of_all_pairs():
    """Written with all differences of scores as a matrix."""
    option = dict(kind=PAIRWISE, key=None, n_pairs=1000, divides=False, is_normalised=False, is_unbiased=False)
    backend = CpuBackend(1)
    rows, margin = query_rows(backend, PAIRWISE)
    grad, hess, _ = backend.ranker.lambdas(rows, margin, pairs_of(rows, **option))
    for (begin, end), factor in zip(zip(rows.queries.first, rows.queries.first[1:]), pairs_of(rows, **option).factor):
        s, y = margin[begin:end].astype(np.float64), rows.label[begin:end]
        better = y[:, None] > y
        sigma = 1 / (1 + np.exp(s - s[:, None]))  # of the row's document before the column's
        slopes = better * (sigma - 1)
        expected = factor * (slopes.sum(axis=1) - slopes.sum(axis=0))
        np.testing.assert_allclose(grad[begin:end], expected, rtol=1e-5, atol=1e-5)
        weights = (better + better.T) * sigma * (1 - sigma)
        np.testing.assert_allclose(hess[begin:end], factor * 2 * weights.sum(axis=1), rtol=1e-5, atol=1e-12)


def test_far_margins_are_finite():
    for size in (1.0, 1e3, 1e38):
        for option in OPTIONS:
            backend = CpuBackend(1)
            rows, margin = query_rows(backend, option["kind"])
            grad, hess, losses = backend.ranker.lambdas(rows, margin * np.float32(size / 8), pairs_of(rows, **option))
            assert np.isfinite(grad).all() and np.isfinite(hess).all() and (hess >= 0).all() and np.isfinite(losses).all()


def test_partners_are_drawn_evenly_among_the_documents_of_other_labels():
    """Of 40 documents, half of them relevant, 500 draws each: a document is drawn 500 times by the others, and gets the gradient
    of 1,000 pairs of σ = ½, to ± 5 standard deviations."""
    backend = CpuBackend(1)
    label = np.arange(40, dtype=np.float32) % 2
    rows = QueryRows(backend, Queries(np.array([0, 40]), np.zeros(0, np.float32), True), label)
    option = dict(kind=PAIRWISE, key=3, n_pairs=500, divides=False, is_normalised=False, is_unbiased=False)
    pairs = pairs_of(rows, **option)
    pairs.factor[:] = 1
    grad, _, _ = backend.ranker.lambdas(rows, np.zeros(40, np.float32), pairs)
    assert (np.abs(grad * np.where(label, -1, 1) - 500) < 5 * 0.5 * np.sqrt(500)).all() and np.ptp(grad[label == 1]) > 0
    assert grad.sum() == 0


@pytest.mark.parametrize("kind", [DCG, AVERAGE_PRECISION, PRECISION])
@pytest.mark.parametrize("top", [1, 5, 32, 33, 10**6])
def test_terms_are_those_of_plain_loops_to_the_bit(kind, top):
    terms = []
    for backend in (CpuBackend(1), NaiveBackend()):
        rows, margin = query_rows(backend, NDCG if kind == DCG else MAP, sizes=(*SIZES, 70))
        top = min(top, 95) if kind == DCG else top
        terms.append(backend.ranker.terms(rows, kind, rows.order(margin), top, kind == DCG))
    assert terms[0].tobytes() == terms[1].tobytes()


def test_order_is_by_falling_value_and_stable():
    backend = CpuBackend(1)
    rows, _ = query_rows(backend, NDCG, sizes=(500, 1, 17))
    values = np.random.default_rng(0).choice([3.0, -0.0, 0.0, -2.5, 1e38, -1e38, 1e-45], 518).astype(np.float32)
    ends = (0, 500), (500, 501), (501, 518)
    expected = [begin + np.argsort(-values[begin:end].astype(float), kind="stable") for begin, end in ends]
    assert rows.order(values).tolist() == np.concatenate(expected).tolist()


def test_a_query_of_many_documents_takes_memory_by_document():
    """50,000 documents: pairs by pairs would take 20 GB."""
    backend = CpuBackend(1)
    for key, n_pairs in ((None, 32), (5, 1)):
        option = dict(kind=NDCG, key=key, n_pairs=n_pairs, divides=True, is_normalised=True, is_unbiased=False)
        rows, margin = query_rows(backend, NDCG, sizes=(50_000,))
        margin = margin + rows.queries.position.astype(np.float32) * np.float32(1e-4)
        grad, _, _ = backend.ranker.lambdas(rows, margin, pairs_of(rows, **option))
        assert abs(grad.sum(dtype=np.float64)) < 1e-6 * np.abs(grad).sum(dtype=np.float64)
