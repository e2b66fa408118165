"""What an objective is: all that training, prediction and the model file ask of a loss, in one class.

One class under ``@objectives.register`` is a whole objective. It is asked for

    name, default_metric            what it is called, and the metric reported where none is chosen
    link, row_map, predict_map      what margins stand for: base_score, what metrics see, what predict returns
    takes                           its parameters of training: handed to the formulas, written to the model file, read back
    is_classifier, n_classes, n_outputs, check_labels     what its labels are
    base_score                      the best constant
    gradient, or row_gradient       its formula, compiled into the kernels of either device
    leaf_alphas                     whether its leaves are quantiles of the residuals, and which
    stage                           instead of a formula, where rows depend on each other; ranks_queries: by queries
    carried, carry                  what it remembers from round to round
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from gpuboost.backend.queries import Queries
from gpuboost.backend.row_sums import RowSums
from gpuboost.errors import RowError
from gpuboost.kernels.gradients import (
    elementwise_gradients,
    elementwise_gradients_kernel,
    rowwise_gradients,
    rowwise_gradients_kernel,
)
from gpuboost.objectives.links import IDENTITY, Link

__all__ = ["Objective", "Parameter", "invalid_labels"]

NOT_GIVEN = str(2**32 - 1)  # XGBoost's number of pairs where none is given


@dataclass(frozen=True)
class Parameter:
    """A number, a tuple of them, or a choice that is in no formula, among the parameters of training (params.Params) that an
    objective takes.

    section : of XGBoost's model file, that holds it under its own name: {section: {name: text}}.
    in_formula : whether the formulas get it; those that do follow each other in their ``parameters``.
    instead : what to do where it is given to an objective that does not take it, a sentence; "": nobody minds.
    """

    name: str
    section: str
    in_formula: bool = True
    instead: str = "Leave it out."

    def text(self, value: float | str | tuple[float, ...] | None) -> str:
        """As the model file has it."""
        if isinstance(value, tuple):
            return f"[{','.join(map(self.text, value))}]"
        if value is None:
            return NOT_GIVEN
        if isinstance(value, (int, str)):
            return str(int(value) if isinstance(value, bool) else value)
        short, exact = f"{np.float32(value):g}", np.float32(value)
        return short if np.float32(short) == exact else str(exact)


class Objective(ABC):
    """A loss. Subclasses are registered under their XGBoost names by ``objectives.register``.

    parameters : the values of ``takes``, a tuple of float32, handed to the scalar functions; one 0 where there are none.
    """

    name: ClassVar[str]
    default_metric: str
    takes: ClassVar[tuple[Parameter, ...]] = ()
    #: Between margins and the space in which the model file has base_score.
    link: ClassVar[Link] = IDENTITY
    #: Whether labels are classes, and not quantities.
    is_classifier: ClassVar[bool] = False
    #: Whether more than margins can be predicted.
    predicts: ClassVar[bool] = True
    #: Whether predict returns class numbers, and then the objective that grows the same trees and predicts probabilities, if any.
    predicts_classes: ClassVar[bool] = False
    probability_twin: ClassVar[str | None] = None
    n_classes: int = 0  # of a multi-class objective
    #: Rows of the label matrix that make up the label of one target: 2 for the bounds of an interval.
    label_rows: ClassVar[int] = 1
    #: Scalar function (margin, label, weight, output, parameters) -> (g, h) of kernels/gradients.py, as a staticmethod; with
    #: label_rows = 2 its label is a pair.
    gradient: Any = None
    #: Instead, where the outputs of a row depend on each other: (margin, label, weight, i, parameters, grad, hess), see there.
    row_gradient: ClassVar[Any] = None
    #: Whether the formula computes in float64.
    uses_double: ClassVar[bool] = False
    #: Instead of a formula, where a gradient depends on other rows, as in survival:cox: method (rows, round number) ->
    #: (grad, hess), float32 (n_outputs, n_rows) on the host or in the backend's memory, weights applied. ``rows`` (RowSums) is
    #: the same object in every round of a training; its prediction holds the margins.
    stage: Any = None
    #: Whether the rows of a query are ranked against each other.
    ranks_queries: ClassVar[bool] = False
    #: What predict returns where that is not what metrics see: as row_map; the prediction is then row 0 of the result.
    predict_map: ClassVar[Any] = None

    def __init__(self, params: Any) -> None:
        self.params = params
        given = [getattr(params, p.name) for p in self.takes if p.in_formula]
        values = np.array([x for value in given if value is not None for x in np.atleast_1d(value)], np.float32)
        self.parameters: tuple[np.float32, ...] = tuple(values) or (np.float32(0.0),)

    @classmethod
    def takes_parameter(cls, name: str) -> bool:
        return any(parameter.name == name for parameter in cls.takes)

    def file_params(self) -> dict[str, dict[str, str]]:
        """What the objective takes, as XGBoost's model file has it: section → name → text."""
        sections: dict[str, dict[str, str]] = {}
        for p in self.takes:
            sections.setdefault(p.section, {})[p.name] = p.text(getattr(self.params, p.name))
        return sections

    @classmethod
    def recorded_params(cls, sections: Mapping[str, Any]) -> dict[str, str]:
        """The way back: name → text, as params.parse_params takes it, of what the model file holds of it."""
        return {p.name: sections[p.section][p.name] for p in cls.takes if p.name in sections.get(p.section, ())}

    def n_outputs(self, n_label_rows: int) -> int:
        """Margins per row, for a label matrix of so many rows. Raises ValueError where these make up no whole targets."""
        if n_label_rows % self.label_rows:
            raise ValueError(
                f"{self.name} takes {self.label_rows} label columns for a target, got {n_label_rows}. Pass label_lower_bound and "
                "label_upper_bound."
            )
        return n_label_rows // self.label_rows

    def n_label_rows(self, n_targets: int) -> int:
        """Rows of the label matrix for a model of so many targets."""
        return n_targets * self.label_rows

    def leaf_alphas(self, n_outputs: int) -> tuple[float, ...]:
        """Of each output, which quantile of its rows' residuals a leaf is (kernels/leaf_quantiles.py); empty where leaves are
        what gradients and hessians make them."""
        return ()

    def check_labels(self, label: np.ndarray) -> None:  # noqa: B027 - most objectives accept any finite label
        """ValueError naming count and first index where float32 labels (n_label_rows, n_rows) are outside the loss's domain."""

    def check_queries(self, queries: Queries) -> None:  # noqa: B027 - most objectives ask for none
        """ValueError where the loss cannot tell which rows are ranked against each other, or what they weigh."""

    def carried(self) -> dict[str, list[float]]:
        """What the loss remembers from round to round: lists of float32 that the model file has beside its parameters."""
        return {}

    def carry(self, recorded: Mapping[str, Any]) -> None:  # noqa: B027 - as a rule nothing
        """Go on with what a model has recorded."""

    @abstractmethod
    def base_score(self, labels: RowSums, n_outputs: int) -> Iterable[float]:
        """argmin of the summed loss over one constant per output, in the space of the model file (see link).

        labels : sums over the labels of all training rows of all workers; its ``prediction`` is not to be used.
        """

    def base_margin(self, base_score: np.ndarray) -> np.ndarray:
        """float32 margins of float32 base scores, one per output. Raises ValueError where there is none."""
        bad = self.link.refused(base_score)
        if bad.any():
            raise ValueError(f"base_score of {self.name} must {self.link.allowed}, got {base_score[bad][0]:g}. Leave it out.")
        return self.link.to_margin(base_score)

    @property
    def gradients_cpu(self) -> Any:
        """The compiled kernel of kernels/gradients.py."""
        if self.row_gradient:
            return rowwise_gradients(self.row_gradient)
        return elementwise_gradients(self.gradient, self.label_rows)

    @property
    def gradients_kernel(self) -> Any:
        """The same as a CUDA kernel."""
        if self.row_gradient:
            return rowwise_gradients_kernel(self.row_gradient)
        return elementwise_gradients_kernel(self.gradient, self.label_rows, self.uses_double)

    @property
    def row_map(self) -> Any:
        """Scalar function (margin, i, out) of kernels/reduce.py, from margins to what metrics see; None: they are the same."""
        return self.link.row_map


def invalid_labels(label: np.ndarray, is_bad: np.ndarray, name: str, allowed: str, fix: str) -> RowError:
    """The error for labels outside an objective's domain: how many, and where the first one is."""
    first = int(np.flatnonzero(is_bad.any(axis=0))[0])
    value = label[:, first][is_bad[:, first]][0]
    return RowError(
        f"{name} needs labels that are {allowed}; {int(is_bad.sum())} of {label.size} are not, the first at ", first,
        f": {value:g}. {fix}",
    )  # fmt: skip
