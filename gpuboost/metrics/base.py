"""What a metric is: a name, a direction, and a number computed from sums over rows."""

from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np

from gpuboost.backend.row_sums import RowSums
from gpuboost.params import Params

__all__ = ["DEFAULTS", "Metric", "rows_together"]

DEFAULTS = Params()


class Metric(ABC):
    """One evaluation metric. ``rows.prediction`` holds transformed predictions (probabilities for a classifier).

    argument : what follows the @ of its name. params : of the training, where the metric shares some with an objective.
    name : as printed, with its argument ("error@0.7"). maximize : whether larger is better. n_classes : that the predictions of a
        row stand for, 0 where they stand for none.
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
        self.name, self.n_classes = self.family, params.num_class

    @abstractmethod
    def __call__(self, rows: RowSums) -> float:
        """The value over the rows of all workers; NaN where it is not defined."""


def rows_together(rows: RowSums, family: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Label, prediction and weight (1 where none is given) of the rows of all workers, for a metric that is no sum over them.

    float32 (n,) each, on the host. Raises ValueError where there are several labels or predictions of a row.
    """
    if len(rows.label) > 1 or len(rows.prediction) > 1:
        counts = f"got {len(rows.label)} and {len(rows.prediction)}"
        raise ValueError(f"eval_metric {family!r} takes one label column and one prediction of a row, {counts}.")
    fetch = rows.backend.memory.fetch
    label, prediction, weight = fetch(rows.label)[0], fetch(rows.prediction)[0], fetch(rows.weight)
    weight = weight if len(weight) else np.ones(len(label), np.float32)
    columns = np.stack([label, prediction, weight]).view(np.int32).astype(np.int64)
    label, prediction, weight = rows.comm.gather_columns(columns).astype(np.int32).view(np.float32)
    return label, prediction, weight
