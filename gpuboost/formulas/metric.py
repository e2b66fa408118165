"""A user's metric as one like any other: ``@gpuboost.metric``."""

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

from numba import float64

from gpuboost.formulas.parameters import Parametrised, check_name, parse_arguments, split_arguments
from gpuboost.formulas.translate import Formula, read_formula
from gpuboost.kernels.jit import scalar
from gpuboost.kernels.reduce import elementwise_terms
from gpuboost.metrics import _registry, metric_names, register
from gpuboost.metrics.base import DEFAULTS
from gpuboost.metrics.pointwise import MeanTerm
from gpuboost.params import Params

__all__ = ["metric"]


def metric(function: Callable[..., Any] | None = None, *, name: str | None = None, maximize: bool = False) -> Any:
    """Make a scalar function a metric: the weighted mean of its values over rows and outputs, computed where the predictions are.

        @gpuboost.metric
        def within(prediction, label, distance=1.0):
            return abs(prediction - label) <= distance

        gpuboost.train({"eval_metric": [within, within.using(distance=0.5), "within@2"]}, dtrain, evals=[(dtest, "test")])

    The function gets the prediction, as predict returns it, and the label of a row and output, and its own parameters, which have
    defaults; it computes in float64. name : under which it is registered; None: the function's. maximize : whether larger is
    better. Raises FormulaError (a TypeError) that shows the line which cannot be compiled, ValueError for a name that is taken.
    """
    if function is None:
        return partial(metric, name=name, maximize=maximize)
    formula = read_formula(function)
    names = list(formula.arguments)
    if len(names) < 2 or formula.returns_pair:
        formula.fail(None, "It is no metric.", "A metric takes a prediction and a label, and returns one number.")
    family, defaults = check_name(name or formula.name), formula.numbers(names[2:])
    body = {
        "family": family, "registered": family, "formula": formula, "maximize": maximize, "defaults": defaults,
        "row_term": staticmethod(_row_term(formula)),
        "__module__": formula.function.__module__, "__qualname__": formula.function.__qualname__, "__doc__": function.__doc__,
    }  # fmt: skip
    metric_names()  # gpuboost's own come first
    cls = type(formula.name, (_FormulaMetric,), body)
    register(cls)
    return Parametrised(cls, _registry.find)


class _FormulaMetric(MeanTerm):
    """What all of them have in common."""

    defaults: ClassVar[dict[str, float]]

    def __init__(self, argument: str | None = None, params: Params = DEFAULTS) -> None:
        super().__init__(None, params)
        given = split_arguments(argument or "", self.defaults)
        self.parameters = tuple(parse_arguments(self.family, given, self.defaults).values())
        if argument:
            self.name = f"{self.family}@{argument}"


def _row_term(formula: Formula) -> Any:
    own = "".join(f", float64(parameters[{k}])" for k in range(len(formula.arguments) - 2))
    space: dict[str, Any] = {"float64": float64, "formula": formula.compiled(float64)}
    text = f"def term(prediction, label, parameters):\n    return float64(formula(float64(prediction), float64(label){own}))\n"
    exec(text, space)  # noqa: S102 - the text is ours, and holds no word of the user's
    term = space["term"]
    term.__module__, term.__qualname__ = formula.function.__module__, f"{formula.function.__qualname__}.term"
    return elementwise_terms(scalar(term))
