"""kernels/scalar.py: the maths that both devices share, against exact arithmetic."""

import math
import random
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import cache
from types import FunctionType

import numba
import numpy as np
import pytest
import scipy.special
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gpuboost.kernels import scalar as s
from gpuboost.kernels.structs import CATEGORICAL, FLAT_NODE, NODE, NUMERIC

FLOAT32 = st.floats(width=32, allow_nan=False)
WORD = st.integers(0, 2**32 - 1)
MASK = 0xFFFFFFFF
GRADS = st.floats(-1e3, 1e3)
SUMS = st.floats(1e-3, 1e3)
PENALTIES = st.floats(0, 100)


@cache
def loop(function):
    """A compiled loop over arrays of arguments."""

    @numba.njit
    def apply(x, out):
        for i in range(x.size):
            out[i] = function(x[i])

    return apply


def mapped(function, values, dtype):
    x = np.asarray(values, dtype)
    out = np.empty_like(x)
    loop(function)(x, out)
    return out


def largest_error(got, exact, ulp):
    """Largest |got − exact| in units in the last place of the exact value (Decimal)."""
    return max(abs(Decimal(float(g)) - e) / Decimal(float(ulp(float(e)))) for g, e in zip(got, exact))


# ---- fma


@numba.njit
def fused(a, b, c):
    return s.fma(a, b, c)


def test_fma_rounds_once():
    a = 1 + 2.0**-30  # a·a = 1 + 2⁻²⁹ + 2⁻⁶⁰; rounding the product first would lose the last term
    assert fused(a, a, -1 - 2.0**-29) == 2.0**-60


@settings(max_examples=50)
@given(*[st.floats(-1e10, 1e10)] * 3)
def test_fma_is_the_rounded_exact_value(a, b, c):
    assert fused(a, b, c) == float(Fraction(a) * Fraction(b) + Fraction(c))


# ---- exp and log


def test_exp_and_log_of_simple_arguments():
    for function, dtype in [(s.exp_float, np.float32), (s.exp_double, np.float64)]:
        np.testing.assert_array_equal(mapped(function, [0.0, -0.0], dtype), [1, 1])
    assert mapped(s.log_double, [1.0], np.float64)[0] == 0
    assert mapped(s.sigmoid_float, [0.0], np.float32)[0] == 0.5


def test_exp_float_is_within_two_ulp():
    rng = np.random.default_rng(1)
    near = np.arange(-126, 127)[:, None] * math.log(2) / 2 + np.linspace(-1e-5, 1e-5, 9)  # where the reduction changes
    x = np.concatenate([rng.uniform(-87, 88, 20000), near.ravel(), [-87, 88, 1e-30, -1e-45]]).astype(np.float32).clip(-87, 88)
    exact = np.exp(x.astype(np.float64))  # its own error is 2⁻²⁹ of a float32 ulp
    error = np.abs(mapped(s.exp_float, x, np.float32) - exact) / np.spacing(exact.astype(np.float32))
    assert error.max() <= 2


def test_exp_double_is_within_two_ulp():
    draw = random.Random(2)
    x = [draw.uniform(-708, 709) for _ in range(1000)] + [draw.uniform(-1, 1) for _ in range(500)]
    x += [k * math.log(2) / 2 + d for k in range(-20, 20) for d in (-1e-12, 0, 1e-12)] + [-708, 709, 5e-324, -1e-17]
    with localcontext(prec=40):
        exact = [Decimal(v).exp() for v in x]
        assert largest_error(mapped(s.exp_double, x, np.float64), exact, math.ulp) <= 2


def test_log_double_is_within_two_ulp():
    draw = random.Random(3)
    x = [math.ldexp(draw.uniform(1, 2), draw.randint(-1022, 1023)) for _ in range(1000)]
    x += [draw.uniform(0.5, 2) for _ in range(500)]
    near_one = [1 + sign * math.ldexp(draw.uniform(1, 2), -k) for k in range(1, 53) for sign in (-1, 1)]
    near_sqrt2 = [math.sqrt(2) * (1 + k * 2.0**-52) for k in range(-4, 5)]
    x += [v for v in near_one if v != 1] + near_sqrt2
    x += [2.0**-1022, np.finfo(float).max, math.nextafter(1, 0), math.nextafter(1, 2)]
    with localcontext(prec=40):
        exact = [Decimal(v).ln() for v in x]
        assert largest_error(mapped(s.log_double, x, np.float64), exact, math.ulp) <= 2


def test_log_float_is_within_two_ulp():
    rng = np.random.default_rng(4)
    x = np.concatenate([np.ldexp(rng.uniform(1, 2, 20000), rng.integers(-126, 127, 20000)), rng.uniform(0.5, 2, 20000)])
    near_one = 1 + np.ldexp(rng.uniform(-1, 1, 500), -rng.integers(1, 24, 500))
    x = np.concatenate([x, near_one, [2.0**-126, 3.4e38, 1.4142135, 1.4142137]]).astype(np.float32)
    exact = np.log(x.astype(np.float64))
    error = np.abs(mapped(s.log_float, x, np.float32) - exact) / np.spacing(np.abs(exact).astype(np.float32))
    assert error[x != 1].max() <= 2 and (mapped(s.log_float, [1], np.float32) == 0).all()


@pytest.mark.parametrize("function, dtype, ulps", [(s.log1p_float, np.float32, 3), (s.log1p_double, np.float64, 4)])
def test_log1p_is_within_a_few_ulp_also_near_zero(function, dtype, ulps):
    rng = np.random.default_rng(5)
    small = rng.uniform(1, 2, 2000) * 10.0 ** rng.integers(-18, 0, 2000) * rng.choice([-1, 1], 2000)
    x = np.concatenate([small, rng.uniform(-0.999, 5, 2000), 10.0 ** rng.uniform(0, 30, 500)])
    x = x[x > -1].astype(dtype)
    exact = np.log1p(x.astype(np.longdouble))
    error = np.abs(mapped(function, x, dtype) - exact) / np.spacing(np.abs(exact).astype(dtype))
    assert error.max() <= ulps


@pytest.mark.parametrize("function, exact, low, high, tolerance", [
    (s.erfcx_double, scipy.special.erfcx, -26, 30, 4e-15), (s.expm1_double, np.expm1, -40, 700, 2e-11),
])  # fmt: skip
def test_erfcx_and_expm1_are_those_of_scipy(function, exact, low, high, tolerance):
    x = np.concatenate([np.linspace(low, high, 4001), np.linspace(-0.5, 0.5, 1001), 10.0 ** np.linspace(-12, 1, 200)])
    np.testing.assert_allclose(mapped(function, x, np.float64), exact(x), rtol=tolerance)


def test_erfcx_far_out_is_finite():
    got = mapped(s.erfcx_double, [1e8, 1e150, -1e8], np.float64)
    np.testing.assert_allclose(got[:2], 1 / np.sqrt(np.pi) / np.array([1e8, 1e150]), rtol=1e-15)
    assert np.isfinite(got).all() and np.isnan(mapped(s.erfcx_double, [np.nan], np.float64)[0])


def test_log_gamma_is_that_of_the_c_library():
    x = np.concatenate([np.arange(1, 40), np.linspace(1, 30, 2001), 10.0 ** np.linspace(1.5, 15, 300)])
    got, exact = mapped(s.log_gamma_double, x, np.float64), scipy.special.gammaln(x)
    # near 1 and 2, where it is 0, the error is that of ln Γ(10) = 12.8
    np.testing.assert_allclose(got, exact, rtol=4e-15, atol=1e-14)
    factorials = [math.log(math.factorial(n)) for n in range(30)]
    np.testing.assert_allclose(mapped(s.log_gamma_double, np.arange(1, 31), np.float64), factorials, rtol=4e-15, atol=1e-14)


@pytest.mark.parametrize("function, dtype, low, high", [
    (s.exp_float, np.float32, -87, 88), (s.exp_double, np.float64, -708, 709),
])  # fmt: skip
def test_exp_stays_normal_and_finite_beyond_its_range(function, dtype, low, high):
    edges, beyond = mapped(function, [low, high], dtype), mapped(function, [-np.inf, np.inf], dtype)
    np.testing.assert_array_equal(edges, beyond)
    assert np.finfo(dtype).smallest_normal <= edges[0] and np.isfinite(edges[1])


def in_python(function):
    """The formula as Python runs it, where a NaN has no integer: LLVM leaves open what it casts to."""
    own = {
        "fma": lambda a, b, c: a * b + c,
        "bits_float": lambda x: np.uint32(x).view(np.float32),
        "bits_double": lambda x: np.uint64(x).view(np.float64),
    }
    return FunctionType(function.py_func.__code__, function.py_func.__globals__ | own)


@pytest.mark.parametrize("function, dtype", [(s.exp_float, np.float32), (s.exp_double, np.float64)])
def test_exp_of_nan_is_nan_and_casts_no_nan_to_an_integer(function, dtype):
    assert np.isnan(mapped(function, [np.nan], dtype)).all()
    assert np.isnan(in_python(function)(dtype(np.nan)))
    assert in_python(function)(dtype(1)) == pytest.approx(math.e, rel=1e-6)


def test_sigmoid_float_is_close_and_within_zero_and_one():
    x = np.linspace(-100, 100, 20001).astype(np.float32)
    got, exact = mapped(s.sigmoid_float, x, np.float32), 1 / (1 + np.exp(-x.astype(np.float64)))
    inside = np.abs(x) <= 87
    # 2 ulp of exp, half an ulp each of the sum and the quotient; an ulp is at most 2⁻²³ of the value
    np.testing.assert_allclose(got[inside], exact[inside], rtol=4 * 2.0**-23)
    assert got.min() > 0 and got.max() <= 1


# ---- float keys


def test_keys_of_simple_floats():
    np.testing.assert_array_equal(
        [float_key(v) for v in (-np.inf, -1.0, -0.0, 0.0, 1.0, np.inf)],
        [0x007FFFFF, 0x407FFFFF, 0x80000000, 0x80000000, 0xBF800000, 0xFF800000],
    )


@numba.njit
def float_key(x):
    return s.float_key(x)


@numba.njit
def key_float(key):
    return s.key_float(key)


@settings(max_examples=200)
@given(FLOAT32, FLOAT32)
@example(-0.0, 0.0)
@example(1e-45, 0.0)
@example(-1e-45, -0.0)
def test_float_keys_keep_the_order(x, y):
    key_x, key_y = float_key(np.float32(x)), float_key(np.float32(y))
    assert (x < y, x == y) == (key_x < key_y, key_x == key_y)


@settings(max_examples=100)
@given(FLOAT32)
@example(1e-45)
@example(-1.1754942e-38)
@example(-np.inf)
def test_key_float_undoes_float_key(x):
    assert key_float(float_key(np.float32(x))) == np.float32(x)


# ---- hashes


@numba.njit
def mix32(x):
    return s.mix32(x)


def unmixed(x):
    """MurmurHash3's finaliser run backwards, in exact integers."""
    x ^= x >> 16
    x = x * pow(0xC2B2AE35, -1, 2**32) & MASK
    x ^= x >> 13 ^ x >> 26
    x = x * pow(0x85EBCA6B, -1, 2**32) & MASK
    return x ^ x >> 16


def test_mix32_of_known_words():
    assert [int(mix32(np.uint32(x))) for x in (0, 1, MASK)] == [0, 0x514E28B7, 0x81F16F39]


@settings(max_examples=200)
@given(WORD)
def test_mix32_is_a_bijection(x):
    assert unmixed(int(mix32(np.uint32(x)))) == x


def test_mix32_flips_each_output_bit_with_every_input_bit_half_the_time():
    words = np.random.default_rng(4).integers(0, 2**32, 4000, dtype=np.uint32)
    mixed = mapped(s.mix32, words, np.uint32)
    for bit in range(32):
        changed = mixed ^ mapped(s.mix32, words ^ np.uint32(1 << bit), np.uint32)
        share = (changed[:, None] >> np.arange(32, dtype=np.uint32) & 1).mean(axis=0)
        # 32·32 shares of 4000 fair coins: 6 standard deviations of 0.5/√4000
        assert np.abs(share - 0.5).max() < 6 * 0.5 / math.sqrt(4000)


# ---- gain and weight


@numba.njit
def soft_threshold(grad, alpha):
    return s.soft_threshold(grad, alpha)


@numba.njit
def optimal_weight(grad, hess, reg_lambda, alpha, max_delta_step, lower, upper):
    return s.optimal_weight(grad, hess, reg_lambda, alpha, max_delta_step, lower, upper)


@numba.njit
def node_score(grad, hess, reg_lambda, alpha):
    return s.node_score(grad, hess, reg_lambda, alpha)


@numba.njit
def node_score_at(grad, hess, weight, reg_lambda, alpha):
    return s.node_score_at(grad, hess, weight, reg_lambda, alpha)


NO_CATS = np.zeros((2, 1), np.uint32)
FREE = (0.0, -np.inf, np.inf)  # no max_delta_step, no bounds


@pytest.mark.parametrize("grad, alpha, expected", [(3.0, 1.0, 2.0), (-3.0, 1.0, -2.0), (0.5, 1.0, 0.0), (-3.0, 0.0, -3.0)])
def test_soft_threshold(grad, alpha, expected):
    assert soft_threshold(grad, alpha) == expected


def test_weight_and_score_of_a_hand_sized_leaf():
    # G = 6, H = 2, λ = 1, α = 0: w = −6/3 = −2, score 36/3 = 12. With α = 3: w = −3/3 = −1, score 9/3 = 3.
    assert optimal_weight(6.0, 2.0, 1.0, 0.0, *FREE) == -2 and node_score(6.0, 2.0, 1.0, 0.0) == 12
    assert optimal_weight(6.0, 2.0, 1.0, 3.0, *FREE) == -1 and node_score(6.0, 2.0, 1.0, 3.0) == 3
    assert optimal_weight(6.0, 2.0, 1.0, 0.0, 0.5, -np.inf, np.inf) == -0.5  # max_delta_step
    assert optimal_weight(6.0, 2.0, 1.0, 0.0, 0.0, -1.5, np.inf) == -1.5
    assert optimal_weight(6.0, 2.0, 1.0, 0.0, 0.0, -np.inf, -2.5) == -2.5
    assert node_score_at(6.0, 2.0, -1.0, 1.0, 0.0) == 9  # −(2·6·(−1) + 3·1)


def test_a_leaf_without_hessian_has_weight_zero_or_the_bound_next_to_it():
    assert optimal_weight(5.0, 0.0, 0.0, 0.0, *FREE) == 0
    for lower, upper, nearest in [(0.5, 2.0, 0.5), (-2.0, -0.5, -0.5)]:
        assert optimal_weight(5.0, 0.0, 0.0, 0.0, 0.0, lower, upper) == nearest


@settings(max_examples=150)
@given(GRADS, SUMS, PENALTIES, PENALTIES, st.sampled_from([0.0, 0.3]), st.floats(-2, 0), st.floats(0, 2), st.floats(0, 1))
def test_no_allowed_weight_scores_higher_than_the_optimal_one(grad, hess, lam, alpha, step, lower, upper, share):
    """The optimal weight maximises node_score_at, which is −2 × Eq. 5's loss with α|w| added, over the allowed interval."""
    weight = optimal_weight(grad, hess, lam, alpha, step, lower, upper)
    low, high = (max(lower, -step), min(upper, step)) if step else (lower, upper)
    assert low <= weight <= high
    other = low + share * (high - low)
    best, at = node_score_at(grad, hess, weight, lam, alpha), node_score_at(grad, hess, other, lam, alpha)
    assert at <= best + 1e-9 * (1 + abs(best) + abs(grad) + hess + lam)  # rounding of the three terms


@settings(max_examples=150)
@given(GRADS, SUMS, PENALTIES, PENALTIES)
def test_score_is_the_score_at_the_optimal_weight(grad, hess, lam, alpha):
    weight = optimal_weight(grad, hess, lam, alpha, *FREE)
    # node_score_at subtracts terms as large as 2·G·w; below 1e-300 the squares lose bits to underflow
    tolerance = 1e-14 * abs(grad * weight) + 1e-300
    expected = node_score_at(grad, hess, weight, lam, alpha)
    assert node_score(grad, hess, lam, alpha) == pytest.approx(expected, rel=1e-12, abs=tolerance)


# ---- where a row goes


@numba.njit
def go_left(code, split_bin, missing_code, default_left):
    return s.go_left(code, split_bin, s.also_left(split_bin, missing_code, default_left))


@numba.njit
def split_goes_left(code, nodes, cats, node, missing_code):
    return s.split_goes_left(code, nodes, cats, node, missing_code)


@numba.njit
def value_goes_left(x, trees, missing):
    return s.value_goes_left(x, trees, 0, missing, None)


def split_node(split_bin, default_left, kind=NUMERIC):
    """Two records of growing nodes, the second of which is split so."""
    nodes = np.zeros(2, NODE)
    nodes["bin"][1], nodes["default_left"][1], nodes["kind"][1] = split_bin, default_left, kind
    return nodes


@pytest.mark.parametrize("code, default_left, expected", [
    (0, 0, True), (1, 0, True), (2, 0, False), (3, 0, False), (3, 1, True), (2, 1, False),
])  # fmt: skip
def test_codes_up_to_the_split_bin_go_left_and_missing_ones_by_default(code, default_left, expected):
    assert bool(go_left(np.uint8(code), np.int32(1), np.int32(3), np.int32(default_left))) is expected
    assert bool(split_goes_left(np.uint8(code), split_node(1, default_left), NO_CATS, 1, np.int32(3))) is expected


def test_no_byte_is_missing_where_a_feature_has_256_bins():
    assert not go_left(np.uint8(0), np.int32(-1), np.int32(256), np.int32(1))
    assert go_left(np.uint8(255), np.int32(255), np.int32(256), np.int32(0))
    assert not split_goes_left(np.uint8(0), split_node(-1, 1), NO_CATS, 1, np.int32(256))
    assert split_goes_left(np.uint8(255), split_node(255, 0), NO_CATS, 1, np.int32(256))


@pytest.mark.parametrize("default_left", [0, 1])
def test_categories_of_the_set_go_right_and_missing_ones_by_default(default_left):
    """Of 40 categories, in two words; the bin of such a split says nothing."""
    in_set, cats = {0, 5, 31, 32, 39}, np.full((2, 3), MASK, np.uint32)
    cats[1] = [64, sum(1 << c for c in in_set if c < 32), sum(1 << c - 32 for c in in_set if c >= 32)]
    nodes = split_node(7, default_left, CATEGORICAL)
    goes = [bool(split_goes_left(np.uint8(code), nodes, cats, 1, np.int32(40))) for code in range(41)]
    assert goes == [code not in in_set for code in range(40)] + [default_left == 1]


@pytest.mark.parametrize("default_left", [0, 1])
@pytest.mark.parametrize("x, missing, expected", [
    (0.5, np.nan, True), (1.0, np.nan, False), (np.nextafter(np.float32(1), np.float32(0)), np.nan, True), (2.0, np.nan, False),
    (-0.0, 0.0, None), (-999.0, -999.0, None), (-999.0, np.nan, True), (np.nan, np.nan, None), (np.nan, -999.0, None),
    (1.0, 1.0, None), (np.inf, np.nan, False), (-np.inf, np.nan, True),
])  # fmt: skip
def test_values_below_the_threshold_go_left_and_missing_ones_by_default(x, missing, expected, default_left):
    """expected : None where the value is missing."""
    trees = np.zeros(1, FLAT_NODE)
    trees["threshold"], trees["default_left"] = 1, default_left
    goes = value_goes_left(np.float32(x), trees, np.float32(missing))
    assert bool(goes) is (default_left == 1 if expected is None else expected)
