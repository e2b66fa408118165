"""kernels/row_sampling.py on CUDA: counts, thresholds, rows drawn, gradients and maxima of the CPU twins, to the bit."""

import numpy as np
import pytest
from cuda_runners import assert_same, each_runner, progress_of
from hypothesis import given, settings
from hypothesis import strategies as st
from test_row_sampling import KINDS, counted, draw, pairs, threshold_of

from gpuboost.kernels import row_sampling


def draw_on_cuda(run, grad, hess, n_drawn, ends, *, threshold, seed=3, round_number=0, kept=None, first_id=0, n_rows=None):
    """(rows drawn, rows not drawn, gradients, hessians, maxima) of pages that end where ``ends`` says; rows in their order.
    first_id, n_rows : as test_row_sampling.draw."""
    grad, hess, progress = grad.copy(), hess.copy(), progress_of(seed=seed % 2**64, round=round_number)
    kept = np.arange(grad.shape[1], dtype=np.int32) if kept is None else kept
    n_rows, maxima, lists = n_rows or len(kept), np.zeros((len(grad), 2), np.int64), [[], []]
    kernel, which = row_sampling.draw_by_gradient_kernel, [progress, np.array([threshold])]
    if threshold == row_sampling.UNIFORM:
        kernel, which = row_sampling.draw_rows_kernel, [n_drawn, progress]
    for begin, end in zip([0, *ends], ends):
        own = kept[(kept >= begin) & (kept < end)] - np.int32(begin)
        listed, n_listed = np.full(len(own), -1, np.int32), np.zeros(2, np.int64)
        run(
            kernel, own, first_id, n_rows, *which, begin, grad, hess, listed, n_listed, maxima,
            threads=-(-len(own) // row_sampling.ROWS_PER_THREAD),
        )  # fmt: skip
        assert n_listed.sum() == len(own)
        first_id += len(own)
        for rows, part in zip(lists, np.split(listed, n_listed[:1])):
            rows.append(begin + np.sort(part))
    return *(np.concatenate(rows) for rows in lists), grad, hess, maxima


def check(run, grad, hess, n_drawn, ends, **arguments):
    expected = draw(grad, hess, n_drawn, **arguments)
    actual = draw_on_cuda(run, grad, hess, n_drawn, ends, **arguments)
    for here, there in zip(actual, expected):
        np.testing.assert_array_equal(here, there)
    for here, there in zip(actual[2:4], expected[2:4]):
        assert_same(here, there)
    return expected


def check_threshold(run, grad, hess, n_drawn, kept, ends):
    """Counts of pages, and μ of them; returns it."""
    counts, threshold = np.zeros((row_sampling.MAGNITUDE_BINS, 2), np.int64), np.full(1, -7.0)
    for begin, end in zip([0, *ends], ends):
        own = kept[(kept >= begin) & (kept < end)] - np.int32(begin)
        run(
            row_sampling.count_magnitudes_kernel, own, begin, grad, hess, counts, blocks=-(-len(own) // row_sampling.COUNTED_ROWS)
        )
    expected = counted(kept, grad, hess)
    assert_same(counts, expected)
    run(row_sampling.choose_threshold_kernel, counts, n_drawn, threshold, blocks=1)
    assert_same(threshold, np.array([row_sampling.choose_threshold_cpu(expected, n_drawn)]))
    return float(threshold[0])


@each_runner
@pytest.mark.parametrize("n, n_drawn", [(1, 1), (2, 1), (3, 2), (100, 37), (257, 256), (1500, 400)])
def test_uniform_draws(run, n, n_drawn):
    grad, hess = pairs(np.random.default_rng(n), n, 1, "heavy")
    drawn, *_ = check(run, grad, hess, n_drawn, [n], threshold=row_sampling.UNIFORM)
    assert len(drawn) == n_drawn


@each_runner
@pytest.mark.parametrize("n_rows", [2**16, 2**32 - 1, 2**32, 2**32 + 1, 2**33, 2**40])
def test_draws_of_a_large_table(run, n_rows):
    """A page of some rows; from 2^32 rows on π takes 64 bits."""
    grad, hess = pairs(np.random.default_rng(7), 40, 1, "heavy")
    for threshold in (row_sampling.UNIFORM, 1.0):
        for first_id in (0, n_rows // 2, n_rows - 40):
            check(run, grad, hess, n_rows // 2, [40], threshold=threshold, first_id=first_id, n_rows=n_rows)


@pytest.mark.sweep(1)
@settings(max_examples=10)
@given(
    st.integers(0, 2**32), st.sampled_from(KINDS), st.integers(1, 300), st.floats(0, 1), st.integers(1, 3), st.booleans(),
    st.integers(-(2**63), 2**64 - 1), st.integers(0, 2**31 - 1),
)  # fmt: skip
@each_runner
def test_random_draws_equal_the_cpus(run, random, kind, n, share, n_outputs, by_gradient, seed, round_number):
    """In up to three pages, and where some rows take no part."""
    rng = np.random.default_rng(random)
    grad, hess = pairs(rng, n, n_outputs, kind)
    kept = np.flatnonzero(rng.random(n) < rng.choice([0.6, 1])).astype(np.int32)
    kept = kept if len(kept) else np.zeros(1, np.int32)
    ends, n_drawn = [*np.sort(rng.integers(0, n + 1, rng.integers(0, 3))).tolist(), n], max(1, int(share * len(kept)))
    mu = check_threshold(run, grad, hess, n_drawn, kept, ends)
    check(
        run, grad, hess, n_drawn, ends, threshold=mu if by_gradient else row_sampling.UNIFORM, seed=seed,
        round_number=round_number, kept=kept,
    )  # fmt: skip


@pytest.mark.sweep(6)
@each_runner
@pytest.mark.parametrize("bad", [np.nan, -np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("by_gradient", [False, True])
def test_what_is_not_finite(run, bad, by_gradient):
    n = 60
    for which in (0, 1):
        values = pairs(np.random.default_rng(which), n, 2, "equal")
        values[which][1, [5, 6, 7]] = bad
        mu = check_threshold(run, *values, 20, np.arange(n, dtype=np.int32), [n])
        assert not by_gradient or mu == threshold_of(*values, 20)
        maxima = draw(*values, 20, threshold=mu if by_gradient else row_sampling.UNIFORM)[4]
        actual = draw_on_cuda(run, *values, 20, [n], threshold=mu if by_gradient else row_sampling.UNIFORM)
        is_finite = maxima < np.float32(np.inf).view(np.int32)
        np.testing.assert_array_equal(actual[4] < np.float32(np.inf).view(np.int32), is_finite)
        assert not is_finite.all()


@each_runner
def test_a_page_without_rows_draws_none(run):
    nothing = np.zeros((2, 5), np.float32)
    drawn, others, *_, maxima = draw_on_cuda(run, nothing, nothing, 1, [5], threshold=0.5, kept=np.zeros(0, np.int32))
    assert len(drawn) == len(others) == 0 and not maxima.any()
