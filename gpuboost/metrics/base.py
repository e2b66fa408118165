"""What a metric is: a name, a direction, and a number computed from sums over rows."""

from abc import ABC, abstractmethod
from typing import ClassVar

from gpuboost.backend.row_sums import RowSums
from gpuboost.params import Params

__all__ = ["DEFAULTS", "Metric"]

DEFAULTS = Params()


class Metric(ABC):
    """One evaluation metric. ``rows.prediction`` holds transformed predictions (probabilities for a classifier).

    argument : what follows the @ of its name. params : of the training, where the metric shares some with an objective.
    name : as printed, with its argument ("error@0.7"). maximize : whether larger is better.
    """

    family: ClassVar[str]  # name without argument, under which it is registered
    maximize: ClassVar[bool] = False
    #: Whether rows may lack some of their labels.
    takes_missing_labels: ClassVar[bool] = False
    #: Whether its name may end in a minus, which is then the argument.
    takes_minus: ClassVar[bool] = False

    def __init__(self, argument: str | None = None, params: Params = DEFAULTS) -> None:
        if argument is not None:
            raise ValueError(f"eval_metric {self.family!r} takes no argument, got {argument!r} after '@'.")
        self.name = self.family

    @abstractmethod
    def __call__(self, rows: RowSums) -> float:
        """The value over the rows of all workers; NaN where it is not defined."""
