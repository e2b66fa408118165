"""kernels/quantise.py: stochastic rounding that is unbiased, and depends on nothing but the pair itself."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from round_facts import scales_16

from gpuboost.kernels.quantise import LIGHT_BITS, N_SUMS, needs_two_limbs, quantise_cpu


def quantise(grad, hess, scales, *, n_limbs=1, keys=None, n_threads=1):
    """Adapter: (q_g, q_h, sums) with q int64 (n_outputs, n_rows) recombined from the packed limbs.

    grad, hess : (n_outputs, n_rows). scales : (grad_scale, hess_scale) of all outputs.
    """
    grad, hess = np.atleast_2d(np.asarray(grad, np.float32)), np.atleast_2d(np.asarray(hess, np.float32))
    n_outputs, n_rows = grad.shape
    keys = np.arange(n_outputs, dtype=np.uint32) if keys is None else np.asarray(keys, np.uint32)
    gpair = np.zeros((n_outputs, n_limbs, n_rows), np.int32)
    sums = np.zeros((n_threads, n_outputs, N_SUMS), np.int64)
    limbs = np.full(n_outputs, n_limbs, np.int32)
    quantise_cpu(grad, hess, keys, np.tile(np.float64(scales), (n_outputs, 1)), limbs, gpair, sums, n_threads)
    packed = gpair.astype(np.int64)
    q_g, q_h = packed >> 16, packed & 0xFFFF
    if n_limbs == 2:
        q_g, q_h = q_g[:, :1] * 65536 + q_g[:, 1:], q_h[:, :1] * 65536 + q_h[:, 1:]
    return q_g[:, 0], q_h[:, 0], sums.sum(axis=0)


def test_whole_numbers_stay_themselves():
    q_g, q_h, sums = quantise([30, -20, 0, -10], [10, 0, 50, 20], (1, 1))
    assert q_g.tolist() == [[30, -20, 0, -10]] and q_h.tolist() == [[10, 0, 50, 20]]
    assert sums.tolist() == [[0, 80, 0, 80 << LIGHT_BITS]]


def test_scales_multiply():
    q_g, q_h, _ = quantise([0.5, -0.25], [0.125, 1], (4, 8))
    assert q_g.tolist() == [[2, -1]] and q_h.tolist() == [[1, 8]]


def test_values_beyond_the_range_are_clamped():
    q_g, q_h, _ = quantise([40000, -40000, 32767, -32767], [70000, 65535, 0, 1], (1, 1))
    assert q_g.tolist() == [[32767, -32767, 32767, -32767]] and q_h.tolist() == [[65535, 65535, 0, 1]]
    q_g, q_h, _ = quantise([1, -1], [2, 2], (2.0**32, 2.0**32), n_limbs=2)
    assert q_g.tolist() == [[2**31 - 2**16, -(2**31) + 2**16]] and q_h.tolist() == [[2**32 - 1, 2**32 - 1]]


@pytest.mark.parametrize("grad, hess", [(0.3, 0.7), (-0.3, 0.01), (123.456, 1000.9), (-17.99, 0.5)])
def test_rounding_is_unbiased_over_the_keys_of_rounds(grad, hess):
    n = 20000  # one output each, so one key each
    q_g, q_h, _ = quantise(np.full((n, 1), grad), np.full((n, 1), hess), (1, 1), keys=np.arange(n) * 2654435761 % 2**32)
    for q, x in ((q_g, np.float32(grad)), (q_h, np.float32(hess))):
        assert set(np.unique(q)) <= {math.floor(x), math.floor(x) + 1}
        assert abs(q.mean() - x) < 5 * 0.5 / math.sqrt(n)  # 5 standard errors; a rounding's deviation is at most ½
    if grad % 1 and hess % 1:
        assert abs(np.corrcoef(q_g[:, 0], q_h[:, 0])[0, 1]) < 5 / math.sqrt(n), "gradient and hessian share a draw"


def test_rounding_is_unbiased_over_rows():
    rng = np.random.default_rng(13)
    n = 100_000
    grad, hess = rng.normal(size=n).astype(np.float32), rng.random(n).astype(np.float32)
    q_g, q_h, _ = quantise(grad, hess, (8, 8))
    for q, x in ((q_g[0], grad), (q_h[0], hess)):
        error = q - x.astype(np.float64) * 8
        assert np.abs(error).max() < 1
        assert abs(error.mean()) < 5 * 0.5 / math.sqrt(n)


FLOATS = st.one_of(st.sampled_from([0.0, -0.0, 1.0, 1e-30]), st.floats(-1, 1, width=32))
PAIRS = hnp.arrays(np.float32, st.tuples(st.just(2), st.integers(0, 50)), elements=FLOATS)


@settings(max_examples=60)
@given(PAIRS, st.integers(0, 2**32 - 1), st.sampled_from([1, 2]), st.integers(0, 2**32))
def test_equal_pairs_round_alike_wherever_they_stand(pairs, key, n_limbs, seed):
    grad, hess = pairs[0], np.abs(pairs[1])
    scale = 2.0**14 * (65536 if n_limbs == 2 else 1)
    q_g, q_h, sums = quantise(grad, hess, (scale, scale), n_limbs=n_limbs, keys=[key])
    order = np.random.default_rng(seed).integers(0, max(len(grad), 1), 2 * len(grad))
    again = quantise(grad[order], hess[order], (scale, scale), n_limbs=n_limbs, keys=[key])
    np.testing.assert_array_equal(again[0], q_g[:, order])
    np.testing.assert_array_equal(again[1], q_h[:, order])
    assert sums[0, 0] == q_g.sum() and sums[0, 1] == q_h.sum()


@settings(max_examples=60)
@given(PAIRS, st.sampled_from([1, 2]))
def test_rounding_moves_a_value_by_less_than_one_unit(pairs, n_limbs):
    grad, hess = pairs[0], np.abs(pairs[1])
    scale = 2.0**14 * (65536 if n_limbs == 2 else 1)
    q_g, q_h, _ = quantise(grad, hess, (scale, scale), n_limbs=n_limbs)
    assert (np.abs(q_g[0] - grad.astype(np.float64) * scale) < 1).all()
    assert (np.abs(q_h[0] - hess.astype(np.float64) * scale) < 1).all()


def test_two_limbs_hold_32_bits_exactly():
    whole = np.array([0, 1, -1, 32767, 32768, -32768, -32769, 65535, 65536, 2**24 - 1, -(2**24) + 1, 2**30, -(2**30)], np.float64)
    q_g, q_h, sums = quantise(whole, np.abs(whole), (1, 1), n_limbs=2)
    assert q_g[0].tolist() == whole.tolist() and q_h[0].tolist() == np.abs(whole).tolist()
    assert sums[0, :2].tolist() == [whole.sum(), np.abs(whole).sum()]


def test_quiet_rows_are_counted_and_light_ones_added_up():
    # in units: 4 is not below 4; 0 needs none; only rows with 128 or more of hessian are quiet; only those with less are light
    grad = [900, 4.0, 3.9, -3.9, 0.01, 0.0, 3.9, 0.01]
    hess = [900, 200, 128, 200., 200., 200, 127.5, 0.25]
    assert quantise(grad, hess, (1, 1))[2][0, 2:].tolist() == [3, int(127.75 * 2**LIGHT_BITS)]


def test_the_key_decides_the_rounding():
    rng = np.random.default_rng(14)
    grad, hess = rng.normal(size=1000), rng.random(1000)
    first, second = (quantise(grad, hess, (1, 1), keys=[key])[0] for key in (1, 2))
    # two independent roundings of a fraction f differ with probability 2·f·(1 − f), ⅓ on average; 5 standard deviations
    assert abs((first != second).mean() - 1 / 3) < 5 * 0.5 / math.sqrt(1000)


@pytest.mark.parametrize("n_limbs", [1, 2])
def test_threads_and_pages_change_nothing(n_limbs):
    rng = np.random.default_rng(15)
    grad, hess = rng.normal(size=(3, 10000)), rng.random((3, 10000))  # more than one chunk
    one = quantise(grad, hess, (100, 200), n_limbs=n_limbs)
    three = quantise(grad, hess, (100, 200), n_limbs=n_limbs, n_threads=3)
    pages = [quantise(grad[:, part], hess[:, part], (100, 200), n_limbs=n_limbs) for part in (slice(0, 4097), slice(4097, None))]
    for a, b, first, second in zip(one, three, *pages):
        np.testing.assert_array_equal(a, b)
        np.testing.assert_array_equal(a, first + second if a.shape == (3, N_SUMS) else np.concatenate([first, second], axis=1))


@pytest.mark.parametrize("limbs", [(1, 2, 2), (2, 1, 2), (1, 1, 2), (2, 2, 2), (1, 1, 1)])
@pytest.mark.parametrize("n_threads", [1, 3])
def test_every_output_has_its_own_limbs(limbs, n_threads):
    rng = np.random.default_rng(16)
    grad, hess = rng.normal(size=(3, 5000)).astype(np.float32), rng.random((3, 5000)).astype(np.float32)
    gpair, sums = np.zeros((3, 2, 5000), np.int32), np.zeros((n_threads, 3, N_SUMS), np.int64)
    n_limbs, scales = np.array(limbs, np.int32), np.full((3, 2), 100.0)
    quantise_cpu(grad, hess, np.arange(3, dtype=np.uint32), scales, n_limbs, gpair, sums, n_threads)
    for output, n in enumerate(limbs):
        q_g, q_h, alone = quantise(grad[output], hess[output], (100, 100), n_limbs=n, keys=[output])
        high, low = gpair[output].astype(np.int64)
        found = np.array([high >> 16, high & 0xFFFF])
        if n == 2:
            found = found * 65536 + [low >> 16, low & 0xFFFF]
        np.testing.assert_array_equal(found, [q_g[0], q_h[0]])
        assert sums.sum(axis=0)[output].tolist() == alone[0].tolist()
        assert alone[0, :2].tolist() == [q_g.sum(), q_h.sum()]


# ---- what asks for two limbs


def sums_of(grad, hess):
    """Σ of quiet rows and of light ones, in units of the scales that such a table gets."""
    largest = np.array([[np.abs(x).max() for x in (grad, hess)]], np.float32)
    scales = scales_16(largest.view(np.int32).astype(np.int64))[0].tolist()
    return quantise(grad, hess, scales)[2][0, 2:].tolist(), scales[1]


def test_rows_with_small_gradients_are_quiet_where_their_hessians_are_large():
    grad, hess = np.array([1e6, 1, -1, 0, 200], np.float32), np.ones(5, np.float32)
    assert sums_of(grad, hess)[0] == [2, 0]  # a unit is 32: of 1, -1 and 0, a gradient of 0 needs no units


def test_settled_rows_of_logistic_loss_are_light_but_never_ask_for_more():
    """p − y and p·(1 − p) of rows settled to any degree, with default penalties."""
    p = 2.0 ** -np.arange(2, 60).repeat(2000)
    (quiet, light), scale = sums_of(np.append(p, 0.5), np.append(p * (1 - p), 0.25))
    assert quiet == 0 and light > 0
    assert not needs_two_limbs.py_func(quiet, light, p.size + 1, scale, 1.0, 1.0)


@pytest.mark.parametrize("ratio, is_coarse", [(10, False), (1e4, True), (1e5, True), (1e9, True)])
@pytest.mark.parametrize("reg_lambda, min_child_weight", [(1.0, 1.0), (0.0, 500.0)])
def test_weights_over_decades_ask_for_more(ratio, is_coarse, reg_lambda, min_child_weight):
    weight = np.repeat([ratio, 1.0], [6000, 4000])
    grad = weight * np.random.default_rng(0).normal(size=10_000)
    (quiet, light), scale = sums_of(grad, weight)
    assert needs_two_limbs.py_func(quiet, light, 10_000, scale, reg_lambda, min_child_weight) == is_coarse


def test_light_rows_that_cannot_fill_a_leaf_ask_for_nothing():
    weight = np.repeat([1e5, 1.0], [6000, 400])
    (quiet, light), scale = sums_of(weight, weight)
    assert needs_two_limbs.py_func(quiet, light, 6400, scale, 0.0, 400.0)
    assert not needs_two_limbs.py_func(quiet, light, 6400, scale, 0.0, 401.0)
