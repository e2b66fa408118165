"""Gradients of a training whose rounds are made on the host: of the objective, or of a user's own function."""

import numpy as np

from gpuboost.backend.fixed_point import check_finite, magnitudes, not_negative
from gpuboost.backend.row_sums import RowSums
from gpuboost.custom_objective import Given, GivenGradients, custom_gradients, warn_of_negative_hessians
from gpuboost.data.dmatrix import DMatrix
from gpuboost.objectives import Objective

__all__ = ["HostGradients"]


class HostGradients:
    """Remembers whether it has warned of negative hessians, which count as 0."""

    def __init__(self, objective: Objective, dtrain: DMatrix, verbosity: int | None, n_threads: int) -> None:
        self._objective, self._dtrain, self._verbosity, self._n_threads = objective, dtrain, verbosity, n_threads
        self._has_warned = False

    def compute(self, rows: RowSums, n_rounds: int, obj: GivenGradients | None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Gradients and hessians, float32 (n_outputs, n_rows), at the margins of the rows; float64 (n_outputs, 2), the largest
        |g| and h of all workers.

        n_rounds : so far. obj : instead of the objective. Raises FloatingPointError on all workers where one's are not finite."""
        objective, margin = self._objective, rows.prediction
        if obj is None and objective.stage is None:
            grad, hess = np.empty_like(margin), np.empty_like(margin)
            maxima = np.zeros((self._n_threads, len(margin), 2), np.int64)
            objective.gradients_cpu(margin, rows.label, rows.weight, objective.parameters, grad, hess, maxima, self._n_threads)
        else:
            given = Given(*objective.stage(rows, n_rounds)) if obj is None else custom_gradients(obj, margin, self._dtrain)
            if given.few is not None:
                raise ValueError("split_grad of a TreeObjective is for growing trees, and none are grown here. Return None.")
            grad, hess = given.grad, given.hess
            if obj is not None and not self._has_warned:
                self._has_warned = warn_of_negative_hessians(hess, self._verbosity)
            grad, hess = grad.copy(), not_negative(hess)
            sizes = np.stack([abs(values).max(axis=1, initial=np.float32(0)) for values in (grad, hess)], axis=1)
            maxima = sizes.view(np.uint32).astype(np.int64)[None]
        largest = maxima.max(axis=0)
        rows.comm.allreduce_max(largest)
        check_finite(largest)
        return grad, hess, magnitudes(largest)
