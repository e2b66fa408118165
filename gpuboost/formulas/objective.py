"""A user's loss as an objective like any other: ``@gpuboost.objective``."""

import math
from collections.abc import Callable
from functools import partial
from types import FunctionType
from typing import Any, ClassVar

import numpy as np
from numba import float32, float64

from gpuboost.backend.row_sums import RowSums
from gpuboost.config import warn
from gpuboost.formulas.parameters import Parametrised, check_name, parse_arguments, split_arguments, with_arguments
from gpuboost.formulas.translate import Formula, read_formula
from gpuboost.kernels.formulas import jet_variable
from gpuboost.kernels.jit import scalar
from gpuboost.objectives import IDENTITY, LOG, LOGIT, Objective, find_objective, objective_names, register
from gpuboost.objectives.base import invalid_labels

__all__ = ["objective"]

BESIDE = 2.0**-7  # a margin next to 0
LINKS = {"identity": (IDENTITY, "rmse"), "logit": (LOGIT, "logloss"), "log": (LOG, "rmse")}


def objective(
    function: Callable[..., Any] | None = None, *, name: str | None = None, link: str = "identity", metric: str | None = None,
    labels: tuple[float, float] = (-math.inf, math.inf),
) -> Any:  # fmt: skip
    """Make a scalar function an objective that is compiled into the kernels of either device.

        @gpuboost.objective(link="logit", labels=(0, 1))
        def focal(margin, label, gamma=2.0):
            p = 1 / (1 + math.exp(-margin))
            right = p if label == 1 else 1 - p
            return -((1 - right) ** gamma) * math.log(max(right, 1e-15))

        gpuboost.train({"objective": focal}, dtrain)                      # by object
        gpuboost.train({"objective": focal.using(gamma=1.5)}, dtrain)     # with parameters
        gpuboost.train({"objective": "focal@gamma=1.5"}, dtrain)          # by name

    The function gets the margin and the label of a row and output, its weight if the third argument is called so, and its own
    parameters, which have defaults. It returns the loss, which is differentiated twice in float64 (kernels/formulas.py), or the
    pair (gradient, hessian), which is computed in float32 as the built-in ones are. Either is without the weight, by which the
    kernel multiplies. Negative hessians count as 0.

    name : under which it is registered and written to model files; None: the function's.
    link : what predict makes of margins: "identity", "logit" (1/(1 + e^−m)) or "log" (e^m). base_score is a margin, and by
        default one Newton step from 0.
    metric : the default one; None: by the link. labels : smallest and largest that are allowed.
    Raises FormulaError (a TypeError) that shows the line which cannot be compiled, ValueError for a name that is taken.
    """
    if link not in LINKS:
        raise ValueError(f"link must be {', '.join(map(repr, LINKS))}, got {link!r}.")
    if function is None:
        return partial(objective, name=name, link=link, metric=metric, labels=labels)
    formula = read_formula(function)
    names = list(formula.arguments)
    if len(names) < 2:
        formula.fail(None, f"It takes {len(names)} arguments.", "The first two are the margin and the label of a row.")
    sees_weight = names[2:3] == ["weight"]
    defaults = formula.numbers(names[3 if sees_weight else 2 :])
    if not labels[0] <= labels[1]:
        raise ValueError(f"labels must be the smallest and the largest that are allowed, got {labels}.")
    registered = check_name(name or formula.name)
    body = {
        "name": registered, "registered": registered, "default_metric": metric or LINKS[link][1], "formula": formula,
        "defaults": defaults,
        "value_link": LINKS[link][0], "is_classifier": link == "logit", "labels": tuple(map(float, labels)),
        "__module__": formula.function.__module__, "__qualname__": formula.function.__qualname__,
        "__doc__": formula.function.__doc__, **_compiled(formula, sees_weight),
    }  # fmt: skip
    objective_names()  # gpuboost's own come first
    cls = type(formula.name, (_FormulaObjective,), body)
    register(cls)
    return Parametrised(cls, find_objective)


class _FormulaObjective(Objective):
    """What all of them have in common. name : with the parameters that are not the defaults, "focal@gamma=1.5"."""

    registered: ClassVar[str]
    formula: ClassVar[Formula]
    defaults: ClassVar[dict[str, float]]
    value_link: ClassVar[Any]
    labels: ClassVar[tuple[float, float]]
    first_terms: ClassVar[tuple[Any, Any, Any]]

    def __init__(self, params: Any) -> None:
        super().__init__(params)
        values = self._values(params.objective)
        self.name = self.canonical(params.objective)  # type: ignore[misc]
        self.parameters = tuple(map(np.float32, values.values())) or (np.float32(0.0),)

    @classmethod
    def _values(cls, name: str) -> dict[str, float]:
        return parse_arguments(cls.registered, split_arguments(name.partition("@")[2], cls.defaults), cls.defaults)

    @classmethod
    def canonical(cls, name: str) -> str:
        """The one name that stands for the same formula and values."""
        return with_arguments(cls.registered, cls._values(name), cls.defaults)

    def check_labels(self, label: np.ndarray) -> None:
        low, high = self.labels
        bad = ~((label >= low) & (label <= high))
        if bad.any():
            allowed = f"between {low:g} and {high:g}"
            raise invalid_labels(label, bad, self.name, allowed, "Change them, or the decorator's labels.")

    def base_score(self, labels: RowSums, n_outputs: int) -> list[float]:
        """One Newton step from margin 0, as XGBoost takes for losses whose minimiser it does not know; from beside it where a
        kink, as abs(margin) has, hides the curvature there: all rows would stay for ever."""
        starts = []
        for k in range(n_outputs):
            slope, curvature, n_negative = self._sums_at(0.0, labels, k)
            if not math.isfinite(slope + curvature):
                raise FloatingPointError(
                    f"{self.formula.place()}\nthe derivatives of {self.name} are not finite at margin 0 for some label. Keep "
                    "logarithms, roots and divisors away from 0, such as by max(p, 1e-15)."
                )
            if n_negative > 0:
                share = n_negative / labels.total_weight
                warn(
                    f"{self.formula.place()}\n{share:.0%} of the hessians of {self.name} are negative at margin 0. They count as "
                    "0: sums of hessians are weights. Return (gradient, hessian) with a bound from above instead."
                )
            if curvature == 0:
                starts.append(self._start_beside(labels, k))
            else:
                starts.append(-slope / curvature if curvature > 0 else 0.0)
        return starts

    def _start_beside(self, labels: RowSums, output: int) -> float:
        """A Newton step from next to margin 0, not back to it; 0 where there is no kink: the curvature falls towards it."""
        (slope, curvature, _), (_, nearer, _) = (self._sums_at(margin, labels, output) for margin in (BESIDE, BESIDE / 2))
        if not (0 < curvature < 1.5 * nearer and math.isfinite(slope)):
            return 0.0
        return BESIDE - slope / curvature or BESIDE

    def _sums_at(self, margin: float, labels: RowSums, output: int) -> list[float]:
        """Σ g, Σ h, and the weight of rows with h < 0, of rows with that margin."""
        return [labels.sum_of(term, output, margin, *map(float, self.parameters)) for term in self.first_terms]

    @property
    def row_map(self) -> Any:
        return self.value_link.row_map


def _compiled(formula: Formula, sees_weight: bool) -> dict[str, Any]:
    """The scalar functions of an objective: gradient, and three terms of rows at one margin, parameters[1]: g, h, and 1 where h
    is negative."""
    n_parameters = len(formula.arguments) - 2 - sees_weight
    weight = ["weight"] if sees_weight else []
    own = [f"parameters[{k}]" for k in range(n_parameters)]
    if formula.returns_pair:
        call = f"formula({', '.join(['margin', 'label', *weight, *own])})"
        lines = f"    g, h = {call}\n"
        compiled = formula.compiled(float32)
    else:
        plain = [f"float64({value})" for value in ("label", *weight, *own)]
        lines = f"    value, g, h = formula(jet_variable(margin), {', '.join(plain)})\n"
        compiled = formula.jets()
    text = f"def gradient(margin, label, weight, output, parameters):\n{lines}    return float32(g), float32(h)\n"
    shifted = f"({', '.join(f'parameters[{k + 2}]' for k in range(n_parameters))},)" if n_parameters else "parameters"
    for name, value in (("slope", "float64(g)"), ("curvature", "float64(h)"), ("negative", "float64(h < float32(0.0))")):
        text += (
            f"def {name}_term(prediction, label, i, parameters):\n"
            f"    at = float32(parameters[1]), label[int(parameters[0]), i]\n"
            f"    g, h = gradient(at[0], at[1], float32(1.0), 0, {shifted})\n    return {value}\n"
        )
    space: dict[str, Any] = {"float32": float32, "float64": float64, "formula": compiled, "jet_variable": jet_variable}
    exec(text, space)  # noqa: S102 - the text is ours, and holds no word of the user's

    def finished(function: FunctionType) -> Any:
        function.__module__ = formula.function.__module__
        function.__qualname__ = f"{formula.function.__qualname__}.{function.__name__}"
        return scalar(function)

    space["gradient"] = finished(space["gradient"])
    terms = tuple(finished(space[f"{name}_term"]) for name in ("slope", "curvature", "negative"))
    return {"gradient": staticmethod(space["gradient"]), "first_terms": terms}


