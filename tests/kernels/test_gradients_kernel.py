"""kernels/gradients.py: the loop around an objective's formula, its weights, and the maxima it reports."""

import numpy as np
import pytest
from numba import float32

from gpuboost.kernels.gradients import NON_FINITE_BITS, elementwise_gradients, softmax_gradients_cpu
from gpuboost.kernels.jit import scalar

NO_WEIGHT = np.zeros(0, np.float32)


@scalar
def formula(margin, label, weight, output, parameters):
    """g = (margin − label)·p₀ and h = p₁ − label: negative for large labels."""
    return float32(float32(margin - label) * parameters[0]), float32(parameters[1] - label)


@scalar
def as_given(margin, label, weight, output, parameters):
    """g and h are the margin and the label: to feed any value in."""
    return margin, label


@scalar
def hessian_as_given(margin, label, weight, output, parameters):
    """h is the margin."""
    return label, margin


def run(kernel, margin, label, weight=NO_WEIGHT, parameters=(2.0, 1.0), n_threads=1):
    """Adapter: (grad, hess, maxima as float32 (n_outputs, 2))."""
    margin, label = np.atleast_2d(np.asarray(margin, np.float32)), np.atleast_2d(np.asarray(label, np.float32))
    grad, hess = np.empty_like(margin), np.empty_like(margin)
    maxima = np.zeros((n_threads, len(margin), 2), np.int64)
    kernel(margin, label, np.asarray(weight, np.float32), np.array(parameters, np.float32), grad, hess, maxima, n_threads)
    return grad, hess, maxima.max(axis=0)


def elementwise(*args, **kwargs):
    return run(elementwise_gradients(formula), *args, **kwargs)


def raw(*args, **kwargs):
    return run(elementwise_gradients(as_given), *args, **kwargs)


def cut(x):
    """float32 in 20 significant bits, towards 0."""
    mantissa, exponent = np.frexp(x)
    return np.ldexp(np.trunc(mantissa * np.float32(2**20)), exponent - 20)


def values(maxima):
    return maxima.astype(np.uint32).view(np.float32)


def test_a_hand_sized_case_with_weights():
    grad, hess, maxima = elementwise([1, 2, -3], [0, 3, 0.5], [1, 2, 4])
    assert grad.tolist() == [[2, -4, -28]]
    assert hess.tolist() == [[1, 0, 2]], "a negative hessian counts as 0"
    assert values(maxima).tolist() == [[28, 2]]


def test_outputs_share_one_label_or_have_their_own():
    margin = [[1, 2], [3, 4]]
    assert elementwise(margin, [[1, 1]])[0].tolist() == [[0, 2], [4, 6]]
    assert elementwise(margin, [[1, 1], [3, 3]])[0].tolist() == [[0, 2], [0, 2]]
    assert values(elementwise(margin, [[1, 1], [3, 3]])[2])[:, 0].tolist() == [2, 2]


@pytest.mark.parametrize("n_threads", [1, 3])
def test_many_rows_equal_numpy(n_threads):
    rng = np.random.default_rng(16)
    margin, label = rng.normal(size=(2, 9000)).astype(np.float32), rng.normal(size=(2, 9000)).astype(np.float32)
    weight = rng.random(9000).astype(np.float32)
    grad, hess, maxima = elementwise(margin, label, weight, n_threads=n_threads)
    np.testing.assert_array_equal(grad, cut((margin - label) * np.float32(2)) * weight)
    np.testing.assert_array_equal(hess, cut(np.maximum(np.float32(1) - label, 0)) * weight)
    np.testing.assert_array_equal(values(maxima), np.stack([np.abs(grad).max(axis=1), hess.max(axis=1)], axis=1))


def test_whole_weights_up_to_16_multiply_exactly():
    rng = np.random.default_rng(18)
    margin, label, weight = rng.normal(size=500), rng.normal(size=500), rng.integers(1, 17, 500)
    plain, weighted = (elementwise(margin, label, w)[:2] for w in (NO_WEIGHT, weight))
    for one, many in zip(plain, weighted):
        np.testing.assert_array_equal(many.astype(np.float64), one.astype(np.float64) * weight)


@pytest.mark.parametrize("bad", [np.nan, -np.nan, np.inf, -np.inf])
def test_a_gradient_that_is_not_finite_shows_in_the_maxima(bad):
    assert raw([1, bad, 3], [1, 1, 1])[2][0, 0] >= NON_FINITE_BITS


@pytest.mark.parametrize("bad", [np.nan, -np.nan, np.inf])
def test_a_hessian_that_is_not_finite_shows_in_the_maxima(bad):
    assert run(elementwise_gradients(hessian_as_given), [1, bad, 1], [1, 2, 3])[2][0, 1] >= NON_FINITE_BITS


def test_a_row_without_a_label_weighs_nothing():
    grad, hess, maxima = elementwise([1, 2, -3], [0, np.nan, 0.5], [1, 2, 4])
    assert grad.tolist() == [[2, 0, -28]] and hess.tolist() == [[1, 0, 2]] and values(maxima).tolist() == [[28, 2]]


def test_minus_zero_is_finite():
    maxima = raw([-0.0, 0.0], [-0.0, 0.0])[2]
    assert (maxima < NON_FINITE_BITS).all() and (values(maxima) == 0).all()


def test_weights_of_zero_silence_a_row():
    grad, hess, maxima = elementwise([1e30, 1], [0, 0], [0, 1])
    assert grad.tolist() == [[0, 2]] and hess.tolist() == [[0, 1]] and values(maxima).tolist() == [[2, 1]]


def test_softmax_of_equal_margins():
    # three classes with p = ⅓ each: g = p − [label], h = 2·p·(1 − p) = 4/9
    grad, hess, _ = run(softmax_gradients_cpu, np.zeros((3, 2)), [[0, 2]])
    np.testing.assert_allclose(grad, [[-2 / 3, 1 / 3], [1 / 3, 1 / 3], [1 / 3, -2 / 3]], rtol=3e-7 + 2.0**-19)
    np.testing.assert_allclose(hess, np.full((3, 2), 4 / 9), rtol=3e-7 + 2.0**-19)  # 20 bits are kept


@pytest.mark.parametrize("n_threads", [1, 3])
def test_softmax_equals_numpy(n_threads):
    rng = np.random.default_rng(17)
    margin = (rng.normal(size=(5, 9000)) * 10).astype(np.float32)
    label, weight = rng.integers(0, 5, 9000), rng.random(9000).astype(np.float32)
    grad, hess, maxima = run(softmax_gradients_cpu, margin, label, weight, n_threads=n_threads)
    e = np.exp(margin.astype(np.float64) - margin.max(axis=0))
    p = e / e.sum(axis=0)
    # float32: 2 ulp of each exp, 4 additions, a division, and the cancellation of p − 1; 20 bits are kept
    np.testing.assert_allclose(grad, (p - (np.arange(5)[:, None] == label)) * weight, atol=1e-6, rtol=2.0**-19)
    np.testing.assert_allclose(hess, 2 * p * (1 - p) * weight, atol=1e-6, rtol=2.0**-19)
    np.testing.assert_array_equal(values(maxima), np.stack([np.abs(grad).max(axis=1), hess.max(axis=1)], axis=1))


def test_softmax_of_large_margins_is_finite():
    grad, hess, maxima = run(softmax_gradients_cpu, [[3e38], [-3e38], [0]], [[1]])
    assert grad[:, 0].tolist() == [1, -1, 0] or np.abs(grad[:, 0] - [1, -1, 0]).max() < 1e-30
    assert (hess > 0).all() and (maxima < NON_FINITE_BITS).all()
