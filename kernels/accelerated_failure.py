"""The likelihood of a time, ln T = margin + σ·Z, that is known or within bounds, for three laws of Z (Barnwal et al. 2022).

With z = (ln bound − margin)/σ of either bound, F and f the law's distribution and density:

    loss = −ln(F(z_u) − F(z_l)),  or −ln(f(z)/(σ·t)) where both bounds are one time t
    normal    F = Φ(z)                    logistic    F = 1/(1 + e^−z)                    extreme    F = 1 − e^(−e^z)

Derivatives by −margin/σ in forms without differences of small numbers or quotients of them, so that no tail gives NaN. Both
devices compute them in float64.
"""

import math

from numba import float64

from gpuboost.kernels.jit import long_scalar
from gpuboost.kernels.scalar import erfcx_double, exp_double, expm1_double, larger, log_double, smaller

NORMAL, LOGISTIC, EXTREME = range(3)
FAR = 1e8  # as good as infinitely many σ away
LARGEST_RATE = 1e100
ROOT_HALF = math.sqrt(0.5)
DENSITY_AT_0 = 1 / math.sqrt(2 * math.pi)


@long_scalar
def standardised(time, margin, scale):
    """z of a time, within ±FAR: also of 0 and less, and of infinity."""
    if not time > float64(0.0):
        return -FAR
    return FAR if time > float64(1e300) else larger(smaller((log_double(time) - margin) / scale, FAR), -FAR)


@long_scalar
def normal_tail(low, high):
    """(Φ(high) − Φ(low))·e^(low²/2) and e^−(high² − low²)/2, for |low| <= high."""
    fall = exp_double(float64(-0.5) * (high - low) * (high + low))
    return float64(0.5) * (erfcx_double(low * ROOT_HALF) - fall * erfcx_double(high * ROOT_HALF)), fall


@long_scalar
def upper_tail(z):
    """1 − Φ(z), for z >= 0."""
    return float64(0.5) * erfcx_double(z * ROOT_HALF) * exp_double(float64(-0.5) * z * z)


@long_scalar
def normal_derivatives(low, high):
    """First and second derivative of the loss by −z, of both bounds together."""
    if low == high:
        return -low, float64(1.0)
    is_left = low + high < float64(0.0)
    near, far = (-high, -low) if is_left else (low, high)
    mass, fall = normal_tail(near, far)
    if not mass > float64(0.0):  # bounds so near that float64 cannot tell them apart
        return -low, float64(1.0)
    slope = (fall - float64(1.0)) * DENSITY_AT_0 / mass
    bend = slope * slope + (far * fall - near) * DENSITY_AT_0 / mass
    return -slope if is_left else slope, bend


@long_scalar
def sigmoid_double(z):
    return float64(1.0) / (float64(1.0) + exp_double(-z))


@long_scalar
def logistic_derivatives(low, high):
    """(f_u − f_l)/(F_u − F_l) is 1 − F_u − F_l, for equal bounds as well."""
    first, above_first = sigmoid_double(low), sigmoid_double(-low)
    if low == high:
        return above_first - first, first * above_first + first * above_first
    second, above_second = sigmoid_double(high), sigmoid_double(-high)
    return above_second - first, first * above_first + second * above_second


@long_scalar
def rates(low, high):
    """w_l = e^low, and δ = e^high − e^low."""
    first = smaller(exp_double(low), LARGEST_RATE)
    if low == high:
        return first, float64(0.0)
    return first, larger(smaller(exp_double(high), LARGEST_RATE) - first, float64(0.0))


@long_scalar
def extreme_derivatives(low, high):
    """r − w_l and w_l + r·(r + δ − 1) with r = δ/(e^δ − 1), which is 1 for equal bounds."""
    first, gap = rates(low, high)
    ratio = gap / expm1_double(gap) if gap > float64(0.0) else float64(1.0)
    return ratio - first, first + ratio * (ratio + gap - float64(1.0))


@long_scalar
def derivatives(low, high, law):
    if law == NORMAL:
        return normal_derivatives(low, high)
    if law == LOGISTIC:
        return logistic_derivatives(low, high)
    return extreme_derivatives(low, high)


@long_scalar
def density(z, law):
    if law == NORMAL:
        return DENSITY_AT_0 * exp_double(float64(-0.5) * z * z)
    if law == LOGISTIC:
        return sigmoid_double(z) * sigmoid_double(-z)
    rate = smaller(exp_double(z), LARGEST_RATE)
    return rate * exp_double(-rate)


@long_scalar
def mass_between(low, high, law):
    """F(high) − F(low)."""
    if law == EXTREME:
        first, gap = rates(low, high)
        return -exp_double(-first) * expm1_double(-gap)
    is_left = low + high < float64(0.0)
    near, far = (-high, -low) if is_left else (low, high)
    if law == NORMAL and near < float64(0.0):  # all but both tails
        return float64(1.0) - upper_tail(-near) - upper_tail(far)
    if law == NORMAL:
        return normal_tail(near, far)[0] * exp_double(float64(-0.5) * near * near)
    return sigmoid_double(-near) - sigmoid_double(-far)
