"""Coordinate descent on the weights of a linear model, one round of it: for every output the bias, then columns one by one
(coord_descent) or some at a time from the same gradients (shotgun; Bradley et al. 2011).

At gradients g, h the loss is taken for a parabola. Along column j, with G = Σ g·v and H = Σ h·v², and λ, α times the sum of all
rows' weights, so that they do not depend on the number of rows:

    δ = −(G + λ·w ± α) / (H + λ), but never past 0;      w += η·δ;      g += h·v·η·δ       the bias: δ = −G / H

XGBoost's shotgun lets threads race for the gradients. Here blocks of columns are fixed, the steps of one come from the same sums,
and all of them are shortened by

    t = min(1, Σ_j (H_j + λ)·δ_j² / (C + λ·Σ_j δ_j²)),        C = Σ_i h_i·(Σ_j v_ij·δ_j)²

with which the loss falls by at least t times what the steps promise one by one (it is convex along them), however alike the
columns are. Sums are integers (kernels/linear.py): one model for any number of threads and workers.
"""

from collections.abc import Iterator

import numpy as np

from gpuboost.backend.fixed_point import check_finite, magnitudes, round_key, sum_scale, sum_scales
from gpuboost.communicator import Communicator
from gpuboost.data.column_lists import ColumnLists
from gpuboost.kernels.linear import curve_cpu, shift_gradients_cpu, sum_columns_cpu
from gpuboost.params import Params

__all__ = ["Descent"]

BLOCK = 16  # columns of shotgun at a time
LEAST_HESSIAN = 1e-5  # XGBoost's: a column below it keeps its weight
SHUFFLE, RANDOM = 0x11EA0001, 0x11EA0002  # words that are no number of an output
NOT_ALONG = np.zeros(0)


class Descent:
    """Rounds over one table. total_weight : of the rows of all workers. grad, hess : float32 (n_rows,), of the output at hand."""

    def __init__(self, columns: ColumnLists, total_weight: float, comm: Communicator, n_threads: int) -> None:
        self._columns, self._total_weight, self._comm, self._n_threads = columns, total_weight, comm, n_threads
        counts = np.diff(columns.first)
        largest = np.maximum.reduceat(np.append(abs(columns.values), np.float32(0)), columns.first[:-1])
        largest = np.where(counts > 0, largest, np.float32(0))
        bits = largest.view(np.int32).astype(np.int64)
        comm.allreduce_sum(counts)
        comm.allreduce_max(bits)
        self._counts, self._largest = counts, magnitudes(bits)
        self._along = np.zeros(columns.n_rows)

    def fit(
        self, params: Params, number: int, output: int, grad: np.ndarray, hess: np.ndarray, largest: np.ndarray,
        weights: np.ndarray,
    ) -> None:  # fmt: skip
        """One round of an output. grad : INOUT, its gradients after the steps. largest : float64 (2,), the largest |g| and h of
        all workers. weights : float32 (n_features + 1,), INOUT."""
        self._grad, self._hess, self._weights = grad, hess, weights
        self._penalties = params.reg_alpha * self._total_weight, params.reg_lambda * self._total_weight
        self._rate = params.learning_rate
        self._largest_grad, self._largest_hess = largest.tolist()
        bias = np.array([self._columns.n_features])
        sum_grad, sum_hess = self._sums(bias)
        self._step(bias, -sum_grad / np.where(sum_hess > 0, sum_hess, np.inf))
        size = BLOCK if params.updater == "shotgun" else 1
        for block in self._blocks(params, number, output, size):
            steps, sum_hess = self._best_steps(block)
            if len(block) > 1:  # of a column alone the step is its own
                steps *= self._share(block, steps, sum_hess)
            self._step(block, steps)

    # -- Which columns ------------------------------------------------------------------------------------------------

    def _blocks(self, params: Params, number: int, output: int, size: int) -> Iterator[np.ndarray]:
        """int64 column numbers, some at a time, in the order that feature_selector asks for."""
        n = self._columns.n_features
        everything, most = np.arange(n), min(params.top_k or n, n)
        if params.feature_selector == "greedy":
            for _ in range(most):
                steps, _ = self._best_steps(everything)
                if not steps.any():
                    return
                yield np.array([np.argmax(abs(steps))])
            return
        order = everything
        if params.feature_selector == "thrifty":
            order = np.argsort(-abs(self._best_steps(everything)[0]), kind="stable")[:most]
        elif params.feature_selector == "shuffle":
            order = np.argsort(round_key(params.seed, number, SHUFFLE, everything.astype(np.uint64)), kind="stable")
        elif params.feature_selector == "random":
            drawn = round_key(params.seed, number, RANDOM, output, everything.astype(np.uint64))
            order = (drawn * np.uint64(n) >> np.uint64(32)).astype(np.int64)
        for first in range(0, n, size):
            if len(block := order[first : first + size]):
                yield block

    # -- What a step is -----------------------------------------------------------------------------------------------

    def _best_steps(self, features: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """δ of each of these columns, and their H; float64 (n,)."""
        (alpha, reg_lambda), weights = self._penalties, self._weights[features].astype(np.float64)
        sum_grad, sum_hess = self._sums(features)
        grad, hess = sum_grad + reg_lambda * weights, sum_hess + reg_lambda
        hess = np.where(sum_hess < LEAST_HESSIAN, np.inf, hess)
        up = np.maximum(-(grad + alpha) / hess, -weights)
        down = np.minimum(-(grad - alpha) / hess, -weights)
        return np.where(np.isinf(hess), 0.0, np.where(weights - grad / hess >= 0, up, down)), sum_hess

    def _sums(self, features: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """G and H of each of these columns over all workers, float64 (n,)."""
        largest, n_terms = self._largest[features], self._counts[features]
        most = self._largest_grad * largest, self._largest_hess * largest**2
        scales = np.stack([sum_scales(own, n_terms) for own in most], axis=1)
        sums = np.zeros(scales.size, np.int64)
        sum_columns_cpu(*self._columns, features, self._grad, self._hess, scales, sums, self._n_threads)
        self._comm.allreduce_sum(sums)
        grad, hess = (sums.reshape(-1, 2) / scales).T
        return grad, hess

    def _share(self, features: np.ndarray, steps: np.ndarray, sum_hess: np.ndarray) -> float:
        """t."""
        reach = sum((self._largest[features] * abs(steps)).tolist())
        if not 0 < reach < np.inf:
            return 1.0
        n_terms = int(self._counts[features].sum())
        scale, curvature = sum_scale(2 * self._largest_hess * reach**2, n_terms), np.zeros(1, np.int64)
        curve_cpu(*self._columns, features, steps, self._hess, scale, self._along, curvature, self._n_threads)
        self._comm.allreduce_sum(curvature)
        squares = [step * step for step in steps.tolist()]
        penalty = self._penalties[1] * sum(squares)
        apart = sum(h * square for h, square in zip(sum_hess.tolist(), squares)) + penalty
        together = int(curvature[0]) / scale + penalty
        return apart / together if apart < together else 1.0

    def _step(self, features: np.ndarray, steps: np.ndarray) -> None:
        """Go η of these steps."""
        if not steps.any():
            return
        with np.errstate(over="ignore"):  # told of below
            taken = (self._rate * steps).astype(np.float32)
        self._weights[features] += taken
        largest = np.zeros(self._n_threads, np.float32)
        along = self._along if len(features) > 1 else NOT_ALONG
        shift_gradients_cpu(
            *self._columns, features, taken.astype(np.float64), self._hess, along, self._grad, largest, self._n_threads
        )  # fmt: skip
        self._largest_grad = max(self._largest_grad, self._magnitude(largest))

    def _magnitude(self, values: np.ndarray) -> float:
        """The largest of float32 values of all workers, none negative. Raises FloatingPointError where one is not finite."""
        bits = values.view(np.int32).max(initial=0).astype(np.int64).reshape(1, 1)
        self._comm.allreduce_max(bits)
        check_finite(bits)
        return float(magnitudes(bits)[0, 0])
