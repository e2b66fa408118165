"""What a user's formula may call, the same to the bit on every device: functions of one number, and jets.

A jet is a number with its first two derivatives by the margin, (v, v′, v″), three float64; arithmetic on jets is forward-mode
automatic differentiation (Griewank & Walther 2008, §3.1 and Table 13.2):

    (u·v)″ = u″·v + 2·u′·v′ + u·v″                f(u)″ = f″(u)·u′² + f′(u)·u″

gpuboost/formulas/translate.py rewrites a loss into calls of these. Unlike kernels/scalar.py they are defined for all arguments.
"""

import math

from numba import float32, float64, int64

from gpuboost.kernels.jit import long_scalar
from gpuboost.kernels.scalar import exp_double, exp_float, larger, log1p_double, log_double, smaller

# ---------------------------------------------------------------------------------------------------------------------
# Functions of one number, float64


@long_scalar
def exp(x):
    """e^x; 0 below −708 and infinity above 709."""
    if x < float64(-708.0):
        return float64(0.0)
    return float64(math.inf) if x > float64(709.0) else exp_double(x)


@long_scalar
def log(x):
    """ln x; −infinity at 0, NaN below."""
    if x == math.inf or x != x:
        return float64(x)
    if x < float64(2.3e-308):  # not normal
        if x <= float64(0.0):
            return float64(-math.inf) if x == float64(0.0) else float64(math.nan)
        return log_double(float64(x) * float64(2.0**60)) - float64(41.58883083359672)
    return log_double(x)


@long_scalar
def log1p(x):
    """ln(1 + x); −infinity at −1, NaN below."""
    if x > float64(-1.0) and x < float64(1e300):
        return log1p_double(x)
    return log(float64(1.0) + x)


@long_scalar
def expm1(x):
    """e^x − 1 without cancellation near 0 (Kahan): (u − 1)·x/ln u of u = e^x."""
    u = exp(x)
    if u == float64(1.0) or u == math.inf or x < float64(-40.0):
        return float64(x) if u == float64(1.0) else u - float64(1.0)
    return (u - float64(1.0)) * float64(x) / log_double(u)


@long_scalar
def tanh(x):
    """(e^2x − 1)/(e^2x + 1)."""
    t = expm1(float64(2.0) * smaller(larger(float64(x), float64(-20.0)), float64(20.0)))
    return t / (t + float64(2.0))


@long_scalar
def sqrt(x):
    """√x; NaN below 0."""
    return math.sqrt(x) if x >= float64(0.0) else float64(math.nan)


@long_scalar
def sign(x):
    """−1, 0 or 1."""
    return float64(x > float64(0.0)) - float64(x < float64(0.0))


@long_scalar
def power(x, y):
    """x^y: by squaring where y is a whole number up to 64, else e^(y·ln x), NaN for x below 0."""
    if y == math.floor(y) and abs(y) <= float64(64.0):
        n, square, result = int64(abs(y)), float64(x), float64(1.0)
        while n > int64(0):
            if n & int64(1) == int64(1):
                result = result * square
            square = square * square
            n = n >> int64(1)
        return result if y >= float64(0.0) else float64(1.0) / result
    if x == float64(0.0):
        return float64(0.0) if y > float64(0.0) else float64(math.inf)
    return exp(float64(y) * log(x))


# ---------------------------------------------------------------------------------------------------------------------
# The same in float32


@long_scalar
def log_32(x):
    return float32(log(float64(x)))


@long_scalar
def log1p_32(x):
    return float32(log1p(float64(x)))


@long_scalar
def expm1_32(x):
    return float32(expm1(float64(x)))


@long_scalar
def tanh_32(x):
    return float32(tanh(float64(x)))


@long_scalar
def sqrt_32(x):
    return float32(math.sqrt(x)) if x >= float32(0.0) else float32(math.nan)


@long_scalar
def power_32(x, y):
    return float32(power(float64(x), float64(y)))


exp_32 = exp_float


# ---------------------------------------------------------------------------------------------------------------------
# Jets


@long_scalar
def jet(x):
    """A number that does not depend on the margin."""
    return float64(x), float64(0.0), float64(0.0)


@long_scalar
def jet_variable(x):
    """The margin itself."""
    return float64(x), float64(1.0), float64(0.0)


@long_scalar
def jet_of(u, value, slope, curvature):
    """f(u) from f(v), f′(v) and f″(v)."""
    return value, slope * u[1], curvature * u[1] * u[1] + slope * u[2]


@long_scalar
def jet_add(u, v):
    return u[0] + v[0], u[1] + v[1], u[2] + v[2]


@long_scalar
def jet_sub(u, v):
    return u[0] - v[0], u[1] - v[1], u[2] - v[2]


@long_scalar
def jet_mul(u, v):
    return u[0] * v[0], u[1] * v[0] + u[0] * v[1], u[2] * v[0] + float64(2.0) * u[1] * v[1] + u[0] * v[2]


@long_scalar
def jet_scale(u, a):
    """u·a of a plain number."""
    return u[0] * a, u[1] * a, u[2] * a


@long_scalar
def jet_div(u, v):
    q = u[0] / v[0]
    slope = (u[1] - q * v[1]) / v[0]
    return q, slope, (u[2] - float64(2.0) * slope * v[1] - q * v[2]) / v[0]


@long_scalar
def jet_neg(u):
    return -u[0], -u[1], -u[2]


@long_scalar
def jet_exp(u):
    e = exp(u[0])
    return jet_of(u, e, e, e)


@long_scalar
def jet_log(u):
    slope = float64(1.0) / u[0]
    return jet_of(u, log(u[0]), slope, -slope * slope)


@long_scalar
def jet_log1p(u):
    slope = float64(1.0) / (float64(1.0) + u[0])
    return jet_of(u, log1p(u[0]), slope, -slope * slope)


@long_scalar
def jet_expm1(u):
    e = exp(u[0])
    return jet_of(u, expm1(u[0]), e, e)


@long_scalar
def jet_tanh(u):
    t = tanh(u[0])
    slope = float64(1.0) - t * t
    return jet_of(u, t, slope, float64(-2.0) * t * slope)


@long_scalar
def jet_sqrt(u):
    root = sqrt(u[0])
    slope = float64(0.5) / root
    return jet_of(u, root, slope, float64(-0.5) * slope / u[0])


@long_scalar
def jet_abs(u):
    return jet_of(u, abs(u[0]), sign(u[0]), float64(0.0))


@long_scalar
def jet_power(u, y):
    """u^y of a plain exponent. A factor y or y − 1 that is 0 makes a term 0, whatever the power beside it is."""
    slope = y * power(u[0], y - float64(1.0)) if y != float64(0.0) else float64(0.0)
    factor = y * (y - float64(1.0))
    curvature = factor * power(u[0], y - float64(2.0)) if factor != float64(0.0) else float64(0.0)
    return jet_of(u, power(u[0], y), slope, curvature)


@long_scalar
def jet_power_of(u, w):
    """u^w, both jets."""
    return jet_exp(jet_mul(w, jet_log(u)))


@long_scalar
def jet_larger(u, v):
    """The larger of two, the first where they are equal."""
    return v if v[0] > u[0] else u


@long_scalar
def jet_smaller(u, v):
    return v if v[0] < u[0] else u
