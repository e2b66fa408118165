"""Gradients of a training on the CPU, the rows drawn, and both in fixed point."""

from typing import Any

import numpy as np

from gpuboost.backend.contract import Array, Formula, Gradients, TrainingRows
from gpuboost.backend.cpu.rows import PageRows
from gpuboost.backend.fixed_point import check_finite, not_negative
from gpuboost.backend.output_sketch import choose_outputs
from gpuboost.backend.plans import Round, RowDraw
from gpuboost.kernels import row_sampling
from gpuboost.kernels.histogram import lay_out_by_row_cpu
from gpuboost.kernels.jit import find_address
from gpuboost.kernels.output_sketch import combine_outputs_cpu, sum_squares_cpu
from gpuboost.kernels.quantise import N_SUMS, choose_limbs_cpu, choose_scales_cpu, quantise_cpu
from gpuboost.params import Params
from gpuboost.storage.mapped import Allocate

__all__ = ["CpuGradients"]


class CpuGradients(Gradients):
    """grad, hess : float32 (n_outputs, n_rows), by which leaves are weighed. searched : the pair of arrays by which splits are
    searched, the same two without a sketch. scales, leaf_scales : float64 (n_outputs, 2), from float to fixed point of either.
    n_limbs : int32 (n_searched,), how many words of gpair hold a gradient. is_refined : whether any has two."""

    grad: np.ndarray
    hess: np.ndarray
    searched: tuple[np.ndarray, np.ndarray]
    scales: np.ndarray
    leaf_scales: np.ndarray
    n_limbs: np.ndarray
    is_refined = False
    plan: Round

    def __init__(
        self, rows: TrainingRows, params: Params, margin: Array, pages: list[PageRows], n_threads: int, allocate: Allocate
    ) -> None:
        self._rows, self._margin, self._pages, self._n_threads = rows, margin, pages, n_threads
        self.seed = np.uint64(params.seed & 0xFFFFFFFFFFFFFFFF)
        self.grad, self.hess = allocate(margin.shape, np.float32), allocate(margin.shape, np.float32)
        self.searched = self.grad, self.hess
        self._found: tuple[Any, int] | None = None  # an objective's kernel, and the address of its machine code

    @property
    def n_rows(self) -> int:
        """Rows that take part, over all workers."""
        return self._rows.global_rows

    def compute(self, objective: Formula) -> Array:
        maxima = np.zeros((self._n_threads, len(self._margin), 2), np.int64)
        objective.gradients_cpu(*self._arguments(objective), maxima, self._n_threads)
        return _over_threads(np.maximum, maxima)

    def start_rounds(self) -> None:
        """Make room for the facts of a round (choose_scales_cpu), which several may share."""
        n, self.is_refined = len(self._margin), False
        self.scales, self.n_limbs = np.empty((n, 2)), np.empty(n, np.int32)

    def to_compute(self, objective: Formula) -> tuple[Any, ...]:
        """What kernels/rounds.py computes gradients by: the kernel's address, and its arguments from margin to hess."""
        kernel, arguments = objective.gradients_cpu, self._arguments(objective)
        if self._found is None or self._found[0] is not kernel:  # types take numba 70 µs
            maxima = np.empty((self._n_threads, len(self._margin), 2), np.int64)
            self._found = kernel, find_address(kernel, *arguments, maxima, self._n_threads)
        return self._found[1], *arguments

    def _arguments(self, objective: Formula) -> tuple[Any, ...]:
        """Of an objective's kernel, before the maxima."""
        return self._margin, self._rows.label, self._rows.weight, objective.parameters, self.grad, self.hess

    def set(self, grad: np.ndarray, hess: np.ndarray, few: tuple[np.ndarray, np.ndarray] | None = None) -> Array:
        self.grad[...], self.hess[...] = grad, not_negative(hess)
        if few is not None:
            self.searched = few[0].copy(), not_negative(few[1])
            self._largest_given = self._largest(*self.searched)
        return self._largest(self.grad, self.hess)

    def _largest(self, grad: np.ndarray, hess: np.ndarray) -> Array:
        """int64 (n, 2) bits. abs: NaN and infinity may have a sign."""
        bits = [np.abs(x).view(np.int32).max(axis=1, initial=0) for x in (grad, hess)]
        return np.stack(bits, axis=-1).astype(np.int64)

    def count_magnitudes(self) -> Array:
        counts = np.zeros((self._n_threads, row_sampling.MAGNITUDE_BINS, 2), np.int64)
        for page in self._pages:
            row_sampling.count_magnitudes_cpu(
                page.kept, self.grad[:, page.own], self.hess[:, page.own], counts, self._n_threads
            )
        return _over_threads(np.add, counts)

    def draw_rows(self, counts: Array | None) -> Array:
        draw = self.plan.rows
        assert draw is not None
        threshold = row_sampling.UNIFORM if counts is None else row_sampling.choose_threshold_cpu(counts, draw.n_drawn)
        if self.plan.searches_given:
            self._largest_given = self._draw_rows(draw, threshold, *self.searched)  # the same rows, uniformly
        return self._draw_rows(draw, threshold, self.grad, self.hess)

    def _draw_rows(self, draw: RowDraw, threshold: float, grad: np.ndarray, hess: np.ndarray) -> Array:
        """Draw them, and take these gradients of all others away. Returns the maxima of those drawn."""
        n_threads, keys = self._n_threads, np.array(draw.keys, np.uint64)
        maxima = np.zeros((n_threads, len(grad), 2), np.int64)
        for page in self._pages:
            n_listed = np.empty(1, np.int64)
            row_sampling.draw_rows_cpu(
                page.kept, page.first_id, self._rows.global_rows, draw.n_drawn, keys, threshold, grad[:, page.own],
                hess[:, page.own], page.marks, page.drawn, n_listed, maxima, n_threads,
            )  # fmt: skip
            page.n_drawn = int(n_listed[0])
        return _over_threads(np.maximum, maxima)

    def sum_squares(self, maxima: Array) -> Array:
        check_finite(maxima)
        sums = np.zeros((self._n_threads, len(self.grad)), np.int64)
        largest = float(maxima[:, 0].astype(np.uint32).view(np.float32).max())
        sum_squares_cpu(self.grad, largest, self._rows.global_rows, sums, self._n_threads)
        return _over_threads(np.add, sums)

    def sketch(self, squares: Array | None) -> Array:
        assert self.plan.sketch is not None
        if squares is None or self.plan.searches_given:
            return self._largest_given
        shape = self.plan.sketch.size, self.grad.shape[1]
        if self.searched[0].shape != shape:
            self.searched = np.empty(shape, np.float32), np.empty(shape, np.float32)
        combinations, (grad, hess) = choose_outputs(self.plan.sketch, squares.tolist()), self.searched
        combine_outputs_cpu(self.grad, self.hess, *combinations, grad, hess, self._n_threads)
        return self._largest(grad, hess)

    def quantise(self, maxima: Array, sketched: Array | None = None) -> Array:
        searched = maxima if sketched is None else sketched
        n, self.is_refined = len(searched), False
        self._keys, self.n_limbs = np.empty(n, np.uint32), np.empty(n, np.int32)
        self.scales, self.leaf_scales = np.empty((n, 2)), np.empty((len(maxima), 2))
        if not choose_scales_cpu(
            maxima, searched, self.seed, self.plan.number, self._rows.global_rows, self._keys, self.scales, self.n_limbs,
            self.leaf_scales,
        ):  # fmt: skip
            check_finite(maxima)
            check_finite(searched)
        return self._quantise()

    def refine(self, sums: Array) -> Array | None:
        n_rows, penalty = self._rows.global_rows if self.plan.rows is None else self.plan.rows.n_drawn, self.plan.penalty
        self.is_refined = choose_limbs_cpu(
            sums, n_rows, penalty.reg_lambda, penalty.min_child_weight, self.scales, self.n_limbs
        )  # fmt: skip
        if not self.is_refined:
            return None
        for page in self._pages:
            if page.gpair.shape[1] == 1:
                page.gpair = np.empty((page.gpair.shape[0], 2, page.gpair.shape[2]), np.int32)
        return self._quantise()

    def _quantise(self) -> Array:
        sums = np.zeros((self._n_threads, len(self.scales), N_SUMS), np.int64)
        grad, hess = self.searched
        for page in self._pages:
            quantise_cpu(
                grad[:, page.own], hess[:, page.own], self._keys, self.scales, self.n_limbs, page.gpair, sums,
                self._n_threads,
            )  # fmt: skip
            if len(page.by_row):
                lay_out_by_row_cpu(page.gpair, page.by_row, self._n_threads)
        return _over_threads(np.add, sums)


def _over_threads(combine: np.ufunc, parts: np.ndarray) -> np.ndarray:
    """What the threads have found, together."""
    return parts[0] if len(parts) == 1 else combine.reduce(parts, axis=0)
