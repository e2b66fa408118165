"""Formulas as kernels compute them: the values of the user's function, and derivatives by automatic differentiation."""

import math
from functools import cache

import numpy as np
import pytest
from numba import float32, float64

from gpuboost import FormulaError
from gpuboost.formulas.translate import read_formula
from gpuboost.kernels import formulas
from gpuboost.kernels.formulas import jet_variable

SCALE = 1.75


def softplus(x, y):
    return math.log1p(math.exp(x)) - y * x


def rational(x, y):
    """Every operator, numbers of all kinds, and names that change."""
    z = -x * SCALE + 3
    z /= 1 + x * x
    z -= y
    z *= +z
    return z - x / (y + 2) + 2 / (x * x + 1) - (7 - x)


def powers(x, y):
    return x**2 + (x * x + 1) ** 0.5 + math.pow(x * x + 0.5, y) + 2.0 ** (x / 3) + (x * x + 1) ** (x / 4) + x**-1


def branches(x, y):
    if x > 1 and not y > 2:
        a = x * x
    elif x < -1 or y == 0.25:
        a = 3.0
    else:
        a = math.exp(-x * x)
    return (a if -1 <= x <= 1 else a * a - x) + max(x, y, 0.5) * min(x, 1) + abs(x - y) + (x > y)


def series(x, y):
    total = 0
    for k in range(1, 6):
        total += (x / 3) ** 2 / k - y * k
    total, y = y * x, total
    return total - 2 * y


def helper(a, b):
    return a * b + np.tanh(a)


def calls(x, y):
    return helper(x, y) * helper(y, 2.0) + helper(y, x) + np.sqrt(np.exp(x)) + float(math.expm1(x / 5)) + math.fabs(math.tanh(x))


FUNCTIONS = [softplus, rational, powers, branches, series, calls]
POINTS = [(x, y) for x in (-2.7, -1.3, -0.4, 0.3, 0.77, 1.9, 4.2) for y in (0.25, 1.5, 2.75)]
each_function = pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)


@cache
def jets_of(function):
    return read_formula(function).jets()


def slope(f, x, step):
    """The derivative by Richardson's extrapolation of central differences: the error is of step^6."""
    differences = [(f(x + h) - f(x - h)) / (2 * h) for h in (step, step / 2, step / 4)]
    first = [(4 * b - a) / 3 for a, b in zip(differences, differences[1:])]
    return (16 * first[1] - first[0]) / 15


@each_function
def test_values_are_those_of_python(function):
    in_double, in_float = (read_formula(function).compiled(dtype) for dtype in (float64, float32))
    for x, y in POINTS:
        expected = function(x, y)
        assert in_double(float64(x), float64(y)) == pytest.approx(expected, rel=1e-13, abs=1e-13)
        own = in_float(float32(x), float32(y))
        assert own == pytest.approx(function(float(np.float32(x)), float(np.float32(y))), rel=2e-5, abs=2e-5)


@each_function
def test_derivatives_are_those_of_differences(function):
    jets = jets_of(function)
    for x, y in POINTS:
        value, first, second = jets(jet_variable(x), float(y))
        assert value == pytest.approx(function(x, y), rel=1e-13, abs=1e-13)
        assert first == pytest.approx(slope(lambda x: function(x, y), x, 0.02), rel=1e-6, abs=1e-7)  # noqa: B023 - used at once
        by_first = slope(lambda x: jets(jet_variable(x), float(y))[1], x, 0.02)  # noqa: B023
        assert second == pytest.approx(by_first, rel=1e-6, abs=1e-7)


@each_function
def test_python_and_compiled_code_agree_to_the_bit(function):
    """The simulator of CUDA runs the text as Python."""
    jets = jets_of(function)
    for x, y in POINTS:
        margin = jet_variable(float64(x))
        assert jets(margin, float64(y)) == jets.py_func(margin, float64(y))


def odds(x, y):
    return math.log(1 + math.exp(-x)) + (1 - y) * x


@pytest.mark.parametrize("function", [softplus, odds], ids=lambda f: f.__name__)
@pytest.mark.parametrize("x", [-1e30, -1000.0, -720.0, -699.0, 699.0, 720.0, 1000.0, 1e30])
def test_derivatives_beyond_the_largest_exponent_are_those_of_the_asymptote(function, x):
    """Both are the logistic loss: g = p − y with p at 0 or 1, h = 0."""
    value, first, second = jets_of(function)(jet_variable(x), 0.25)
    assert math.isfinite(value) and first == pytest.approx(float(x > 0) - 0.25, abs=1e-12)
    assert second == pytest.approx(0, abs=1e-12)


SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, 1e-310, 5e-324, 1e-8, -1e-8, 1e300, -1e300, 709.5, -709.5, math.inf, -math.inf, math.nan]


@pytest.mark.parametrize("name", ["exp", "log", "log1p", "expm1", "tanh"])
def test_functions_are_defined_everywhere(name):
    function, reference = getattr(formulas, name), getattr(np, name)
    rng = np.random.default_rng(0)
    points = [*SPECIAL, *(10.0 ** rng.uniform(-12, 2.5, 300) * rng.choice([-1, 1], 300))]
    with np.errstate(all="ignore"):
        for x in points:
            expected = float(reference(x))
            if name in ("exp", "expm1") and x > 709:
                expected = math.inf
            if name == "exp" and x < -708:
                expected = 0.0
            assert function(float64(x)) == pytest.approx(expected, rel=4e-15, nan_ok=True)


@pytest.mark.parametrize("x", [-2.0, -0.5, 0.0, 1.0, 3.5])
@pytest.mark.parametrize("y", [-3.0, -1.0, 0.0, 0.5, 1.0, 2.0, 2.5, 63.0])
def test_powers(x, y):
    with np.errstate(all="ignore"):
        expected = float(np.power(np.float64(x), np.float64(y)))
    assert formulas.power(float64(x), float64(y)) == pytest.approx(expected, rel=1e-13, nan_ok=True)


def test_a_power_of_zero_has_derivatives():
    square = formulas.jet_power(jet_variable(0.0), 2.0)
    assert square == (0.0, 0.0, 2.0) and formulas.jet_power(jet_variable(0.0), 1.0) == (0.0, 1.0, 0.0)
    assert formulas.jet_power(jet_variable(0.0), 0.0) == (1.0, 0.0, 0.0)


TABLE = [1, 2]


def calls_sine(x, y):
    return x * math.sin(y)


def indexes(x, y):
    z = x
    return z * TABLE[0]


def takes_a_list(x, y):
    return x * TABLE


def loops_for_ever(x, y):
    while x > 0:
        x -= 1
    return x


def unknown_name(x, y):
    return x * nowhere  # noqa: F821


def sometimes_a_pair(x, y):
    if y > 0:
        return x, 1.0
    return x


def returns_nothing(x, y):
    pass


def any_number(x, *rest):
    return x


def three_values(x, y):
    return x, y, 1.0


def range_without_a_step(x, y):
    for _ in range(1, 5, 0):
        x = x + y
    return x


def range_of_nothing(x, y):
    for _ in range():
        x = x + y
    return x


def set_in_no_step(x, y):
    for _ in range(0):
        z = x * y
    return z


def range_of_a_variable(x, y):
    for k in range(y):
        x += k
    return x


def wrong_number_of_arguments(x, y):
    return helper(x)


def or_as_a_number(x, y):
    return x * (y or 7.0)


def no_return_below(x, y):
    if y > 0:
        return x


def set_in_a_branch(x, y):
    if y > 0:
        z = x
    return z


def pair(x, y):
    return x, y


def pair_of_a_helper(x, y):
    return pair(x, y)


def calls_itself(x, y):
    return calls_itself(x - 1, y)


def shadows(power, exp, log=2.0):
    """Names of what the formula is compiled from, as a user's own."""
    jet, float64, larger = power * exp, math.exp(-exp * exp), log
    for abs in range(3, 0, -1):
        jet += abs
    if power > 1:
        tanh = jet
    elif power < -1:
        tanh = 2 * jet
    else:
        return jet**2 + larger
    return tanh * float64 + max(jet, larger) ** 1.5


def test_names_of_the_users_own_are_free():
    compiled, jets = read_formula(shadows).compiled(float64), jets_of(shadows)
    for x, y in POINTS:
        expected = shadows(x, y)
        assert compiled(float64(x), float64(y), 2.0) == pytest.approx(expected, rel=1e-13)
        assert jets(jet_variable(x), float(y), 2.0)[0] == pytest.approx(expected, rel=1e-13)


@pytest.mark.parametrize(
    "function, line, message",
    [
        (calls_sine, "return x * math.sin(y)", r"math\.sin\(\) cannot be compiled.*math\.exp"),
        (indexes, "return z * TABLE[0]", r"'TABLE\[0\]' cannot be compiled"),
        (takes_a_list, "return x * TABLE", "'TABLE' is list, not a number"),
        (loops_for_ever, "while x > 0:", "This statement cannot be compiled"),
        (unknown_name, "return x * nowhere", "'nowhere' is not known where the function is defined"),
        (sometimes_a_pair, "return x", "Some lines return two numbers, this one one"),
        (returns_nothing, "def returns_nothing(x, y):", "The function returns nothing"),
        (any_number, "def any_number(x, *rest):", "takes any number of values"),
        (three_values, "return x, y, 1.0", "It returns 3 values"),
        (range_of_a_variable, "for k in range(y):", r"range\(\) needs whole constants, not 'y'"),
        (range_without_a_step, "for _ in range(1, 5, 0):", r"range\(\) takes one to three bounds, and no step of 0"),
        (range_of_nothing, "for _ in range():", r"range\(\) takes one to three bounds"),
        (set_in_no_step, "return z", "'z' may not be set here"),
        (wrong_number_of_arguments, "return helper(x)", "helper takes 2 arguments, got 1"),
        (or_as_a_number, "return x * (y or 7.0)", "'y or 7.0' is used as a number"),
        (no_return_below, "def no_return_below(x, y):", "Some path through it returns nothing"),
        (set_in_a_branch, "return z", "'z' may not be set here"),
        (pair_of_a_helper, "return pair(x, y)", "pair returns two numbers"),
        (calls_itself, "return calls_itself(x - 1, y)", "calls_itself calls itself"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)  # fmt: skip
def test_what_cannot_be_compiled_is_shown(function, line, message):
    first = function.__code__.co_firstlineno
    with pytest.raises(FormulaError, match=f"(?s)test_translate.py.*{message}") as error:
        read_formula(function).compiled(float64)
    place, text = str(error.value).splitlines()[:2]
    assert text.strip().startswith(line)
    assert first <= int(place.split("line ")[1].split(",")[0]) <= first + 3


def test_text_that_is_not_to_be_had():
    space = {}
    exec("def f(x, y):\n    return x", space)
    with pytest.raises(FormulaError, match="text of f, which is compiled, is not to be had"):
        read_formula(space["f"])
    with pytest.raises(FormulaError, match="made by def"):
        read_formula(lambda x, y: x)
    with pytest.raises(FormulaError, match="made by def, got <built-in"):
        read_formula(math.exp)
