"""A user's gain of a split in place of the built-in one: ``@gpuboost.split_gain``."""

import itertools
import math
from collections.abc import Callable
from difflib import get_close_matches
from functools import partial
from inspect import Parameter
from types import FunctionType
from typing import Any

import numpy as np
from numba import float64

from gpuboost.backend.plans import BUILT_IN_GAIN, SplitGain
from gpuboost.formulas.parameters import Parametrised, check_name, parse_arguments, split_arguments, with_arguments
from gpuboost.formulas.translate import Formula, read_formula
from gpuboost.kernels.candidates import node_term
from gpuboost.kernels.jit import scalar
from gpuboost.kernels.scalar import optimal_weight
from gpuboost.kernels.structs import NO_GAIN
from gpuboost.registry import Registry

__all__ = ["find_gain", "split_gain"]

# What a gain may ask for, and how kernels get it: from what they know of a candidate (kernels.splits.evaluate_splits).
_PENALTIES = "reg_lambda, reg_alpha, max_delta_step, lower, upper"
_OF_A_SPLIT = {f"{side}_{of}": f"{side}_{of}" for side in ("left", "right") for of in ("grad", "hess")} | {
    "left_weight": f"optimal_weight(left_grad, left_hess, {_PENALTIES})",
    "right_weight": f"optimal_weight(right_grad, right_hess, {_PENALTIES})",
    "gain": " ".join(
        f"{sign} node_term({side}_grad, {side}_hess, {_PENALTIES})"
        for sign, side in (("", "left"), ("+", "right"), ("-", "node"))
    ).strip(),
}
_GIVEN = _OF_A_SPLIT | {
    "node_grad": "node_grad", "node_hess": "node_hess", "node_weight": f"optimal_weight(node_grad, node_hess, {_PENALTIES})",
    "feature": "feature", "reg_lambda": "reg_lambda", "reg_alpha": "reg_alpha", "max_delta_step": "max_delta_step",
}  # fmt: skip

_registry: Registry[Any] = Registry("split_gain", None)  # there are none but the users'


def split_gain(function: Callable[..., Any] | None = None, *, name: str | None = None) -> Any:
    """Make a scalar function the gain by which splits are chosen, compiled into the kernels of either device.

        @gpuboost.split_gain
        def careful(gain, feature, proxy=0, price=0.5):
            return gain * (1 - price) if feature == proxy else gain

        gpuboost.train({"split_gain": careful}, dtrain)                  # by object
        gpuboost.train({"split_gain": careful.using(proxy=3)}, dtrain)   # with parameters
        gpuboost.train({"split_gain": "careful@proxy=3"}, dtrain)        # by name

    The function sees one candidate split. It gets, by their names, those of these numbers that it names, as float64:

        left_grad, left_hess, right_grad, right_hess    sums of gradients and hessians of both children
        node_grad, node_hess                            and of the node
        left_weight, right_weight, node_weight          the leaf weights that these would have, within all bounds
        gain                                            the built-in gain: score(left) + score(right) - score(node)
        feature                                         number of the column that is split
        reg_lambda, reg_alpha, max_delta_step           parameters of training

    and its own parameters, which have defaults. It returns the gain: the largest of a node wins, if it is above 1e-6 (and above
    2^-44 of the node's own score); a split that must not be gets -math.inf. ``gamma`` prunes by it, and the model keeps it as
    the split's gain. Leaf weights, min_child_weight and constraints are what they are without it. Of trees with several outputs
    the gains of the outputs add up.

    name : under which it is registered; None: the function's. A model does not depend on it once it is trained.
    Raises FormulaError (a TypeError) that shows the line which cannot be compiled, ValueError for a name that is taken.
    """
    if function is None:
        return partial(split_gain, name=name)
    formula = read_formula(function)
    if formula.returns_pair:
        formula.fail(None, "It returns two numbers.", "A gain is one.")
    asked = [given for given in formula.arguments if given in _GIVEN]
    own = [given for given in formula.arguments if given not in _GIVEN]
    for given in own:
        if formula.arguments[given] is Parameter.empty:
            close = get_close_matches(given, _GIVEN, n=1)
            hint = f"Did you mean {close[0]!r}?" if close else f"Known are {', '.join(_GIVEN)}; others need a default."
            formula.fail(None, f"{given!r} is not known of a split.", hint)
    for given in asked:
        if formula.arguments[given] is not Parameter.empty:
            formula.fail(None, f"{given!r} is what training says of a split.", "Leave out its default, or choose another name.")
    if not _OF_A_SPLIT.keys() & asked:
        formula.fail(None, "It is the same for all splits of a node.", f"Let it depend on some of {', '.join(_OF_A_SPLIT)}.")
    registered = check_name(name or formula.name)
    body = {
        "registered": registered, "formula": formula, "defaults": formula.numbers(own), **_compiled(formula, own),
        "__module__": formula.function.__module__, "__qualname__": formula.function.__qualname__,
    }  # fmt: skip
    cls = type(formula.name, (), body)
    _registry.register(registered, cls)
    return Parametrised(cls, _registry.find)


def find_gain(name: str | None, *penalties: float) -> SplitGain:
    """The gain of this name, "name@price=0.5"; the built-in one for None. penalties : lambda, alpha and max_delta_step of the
    training.

    Raises ValueError for a name or parameters that nobody has defined, FloatingPointError for a gain that is not defined for
    ordinary splits.
    """
    if name is None:
        return BUILT_IN_GAIN
    family, _, argument = name.partition("@")
    cls = _registry.find(family)
    if cls is None:
        known = ", ".join(_registry.names()) or "none"
        raise ValueError(
            f"split_gain={name!r} is not known here; known are: {known}. Import the module that defines it by "
            "@gpuboost.split_gain, or leave it out."
        )
    values = parse_arguments(family, split_arguments(argument, cls.defaults), cls.defaults)
    gain = SplitGain(with_arguments(family, values, cls.defaults), cls.gain, tuple(values.values()))
    _check_values(gain, cls, penalties)
    return gain


def _check_values(gain: SplitGain, cls: Any, penalties: tuple[float, ...]) -> None:
    """FloatingPointError where some ordinary split has no gain."""
    parameters = np.array(gain.parameters, np.float64)
    numbers = itertools.product((-2.0, 0.0, 3.0), (0.75, 4.0), repeat=2)
    for (left_grad, left_hess, right_grad, right_hess), feature in itertools.product(numbers, (0, 1)):
        sums = left_grad, left_hess, right_grad, right_hess, left_grad + right_grad, left_hess + right_hess
        value = cls.value(*sums, *map(float, penalties), -math.inf, math.inf, np.int32(feature), parameters)
        if not value < math.inf:
            at = f"left_grad={left_grad}, left_hess={left_hess}, right_grad={right_grad}, right_hess={right_hess}"
            at += f", feature={feature}"
            raise FloatingPointError(
                f"{cls.formula.place()}\n{gain.name} is {value} at {at}. Keep logarithms, roots and divisors away from 0, "
                "such as by max(x, 1e-15), and return -math.inf for a split that must not be."
            )


def _compiled(formula: Formula, own: list[str]) -> dict[str, Any]:
    """Scalar functions of a candidate and an output: its value, and the gain that kernels get, −inf where that is no number."""
    known = _GIVEN | {given: f"parameters[{k}]" for k, given in enumerate(own)}
    values = [f"float64({known[given]})" for given in formula.arguments]
    given = f"left_grad, left_hess, right_grad, right_hess, node_grad, node_hess, {_PENALTIES}, feature, parameters"
    text = (
        f"def value({given}):\n    return float64(formula({', '.join(values)}))\n"
        f"def gain({given}):\n    found = value({given})\n    return found if found < infinity else no_gain\n"
    )
    space: dict[str, Any] = {
        "float64": float64, "formula": formula.compiled(float64), "optimal_weight": optimal_weight, "node_term": node_term,
        "no_gain": NO_GAIN, "infinity": math.inf,
    }  # fmt: skip
    exec(text, space)  # noqa: S102 - the text is ours, and holds no word of the user's
    for name in ("value", "gain"):
        function: FunctionType = space[name]
        function.__module__, function.__qualname__ = formula.function.__module__, f"{formula.function.__qualname__}.{name}"
        space[name] = scalar(function)
    return {name: staticmethod(space[name]) for name in ("value", "gain")}
