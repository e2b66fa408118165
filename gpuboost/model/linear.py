"""What a model of booster="gblinear" has instead of trees."""

from dataclasses import dataclass

import numpy as np

__all__ = ["Linear"]


@dataclass(frozen=True, eq=False)
class Linear:
    """weights : float32 (n_features + 1, n_outputs). A weight for each column, then the bias. n_rounds : that made them."""

    weights: np.ndarray
    n_rounds: int = 0

    @staticmethod
    def zeros(n_features: int, n_outputs: int) -> "Linear":
        """Before the first round."""
        return Linear(np.zeros((n_features + 1, n_outputs), np.float32))

    def after(self, weights: np.ndarray) -> "Linear":
        """One round later."""
        return Linear(weights, self.n_rounds + 1)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Linear):
            return NotImplemented
        return self.n_rounds == other.n_rounds and self.weights.tobytes() == other.weights.tobytes()

    __hash__ = None  # type: ignore[assignment]
