"""What a user's formula may call, the same to the bit on every device: functions of one number, and jets.

A jet is a number with its first two derivatives by the margin, (v, v′, v″), three float64; arithmetic on jets is forward-mode
automatic differentiation (Griewank & Walther 2008, §3.1 and Table 13.2):

    (u·v)″ = u″·v + 2·u′·v′ + u·v″                f(u)″ = f″(u)·u′² + f′(u)·u″

An exponential stops at e^±700 there: a logistic loss of a margin of 1000 then has the derivatives of its asymptote, and no ∞/∞.

gpuboost/formulas/translate.py rewrites a loss into calls of these. Unlike kernels/scalar.py they are defined for all arguments.
"""

import math

from numba import float32, float64, int64

from gpuboost.kernels.jit import long_scalar, scalar
from gpuboost.kernels.scalar import exp_double, exp_float, larger, log_double, smaller

LARGEST_EXPONENT = 700.0  # of a jet: e^700 is 1e304

# ---------------------------------------------------------------------------------------------------------------------
# Functions of one number, float64. Without a branch around what takes long, so that LLVM vectorises loops over rows: each
# computes with a number that it is defined for, and then chooses (a logistic loss alone: 29 -> 4 ns a row, AVX-512).


@long_scalar
def exp(x):
    """e^x; 0 below −708 and infinity above 709."""
    value = exp_double(x)
    value = float64(0.0) if x < float64(-708.0) else value
    return float64(math.inf) if x > float64(709.0) else value


@long_scalar
def log(x):
    """ln x; −infinity at 0, NaN below."""
    is_normal = (x >= float64(2.3e-308)) & (x < math.inf)
    is_tiny = (x > float64(0.0)) & (x < float64(2.3e-308))
    sure = float64(x) if is_normal | is_tiny else float64(1.0)
    value = log_double(sure * float64(2.0**60) if is_tiny else sure)
    value = value - float64(41.58883083359672) if is_tiny else value
    value = float64(-math.inf) if x == float64(0.0) else value
    value = float64(math.nan) if x < float64(0.0) else value
    return value if x < math.inf else float64(x)


@long_scalar
def log1p(x):
    """ln(1 + x); −infinity at −1, NaN below."""
    is_usual = (x > float64(-1.0)) & (x < float64(1e300))
    sure = float64(x) if is_usual else float64(0.0)
    u = float64(1.0) + sure
    return log(float64(1.0) + float64(x)) + (sure - (u - float64(1.0))) / u  # as log1p_double


@long_scalar
def expm1(x):
    """e^x − 1 without cancellation near 0 (Kahan): (u − 1)·x/ln u of u = e^x."""
    u = exp(x)
    is_usual = (u != float64(1.0)) & (u < math.inf) & (x >= float64(-40.0))
    sure = u if is_usual else float64(2.0)
    value = (sure - float64(1.0)) * (float64(x) if is_usual else float64(0.0)) / log_double(sure)
    value = value if is_usual else u - float64(1.0)
    return float64(x) if u == float64(1.0) else value


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
def square(x):
    return x * x


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
def square_32(x):
    return float32(x * x)


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


@scalar
def bounded_exp(x):
    """e^x, x within ±LARGEST_EXPONENT, so that a product or quotient with its reciprocal stays finite."""
    return exp_double(smaller(larger(x, float64(-LARGEST_EXPONENT)), float64(LARGEST_EXPONENT)))


@long_scalar
def jet_exp(u):
    e = bounded_exp(u[0])
    return jet_of(u, e, e, e)


@long_scalar
def jet_log(u):
    return jet_of_logarithm(u, log(u[0]), float64(1.0) / u[0])


@long_scalar
def jet_log1p(u):
    return jet_of_logarithm(u, log1p(u[0]), float64(1.0) / (float64(1.0) + u[0]))


@long_scalar
def jet_of_logarithm(u, value, slope):
    """As jet_of with curvature −slope², which alone would underflow where u is large."""
    first = slope * u[1]
    return value, first, slope * u[2] - first * first


@long_scalar
def jet_expm1(u):
    e = bounded_exp(u[0])
    return jet_of(u, expm1(smaller(u[0], float64(LARGEST_EXPONENT))), e, e)


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
def jet_square(u):
    return jet_mul(u, u)


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
