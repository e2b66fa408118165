"""What trainings of trees (training/running.py), linear models and updates of trees have in common while they are under way."""

from abc import ABC, abstractmethod

from gpuboost.custom_objective import GivenGradients
from gpuboost.data.dmatrix import DMatrix

__all__ = ["UnderWay"]


class UnderWay(ABC):
    """A training on a matrix, as this is when the training begins."""

    def __init__(self, dtrain: DMatrix) -> None:
        self.dtrain, self._version = dtrain, dtrain.version

    def trains_on(self, dtrain: DMatrix) -> bool:
        """Whether this is the training on that matrix, with the labels, weights and margins that it has now."""
        return self.dtrain is dtrain and self._version == dtrain.version

    @abstractmethod
    def boost(self, obj: GivenGradients | None = None) -> None:
        """Boost one round. obj : a user's objective, instead of the model's own."""

    def boost_rounds(self, n_rounds: int) -> int:
        """Boost up to n_rounds rounds that nobody looks at in between: as many as go at once, at least one. Returns how many."""
        self.boost()
        return 1
