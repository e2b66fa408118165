"""Gradients of a training on a GPU, the rows drawn, and both in fixed point."""

import numpy as np

from gpuboost.backend.contract import Array, Formula, Gradients, TrainingRows
from gpuboost.backend.cuda.memory import Launcher, on_device
from gpuboost.backend.cuda.rows import PageRows
from gpuboost.backend.plans import Round
from gpuboost.kernels import output_sketch, quantise, row_sampling
from gpuboost.params import Params

__all__ = ["CudaGradients"]


@on_device(Gradients)
class CudaGradients(Gradients):
    """As backend/cpu/gradients.py has them; scales, limbs and outputs of a sketch are chosen on the device."""

    plan: Round

    def __init__(
        self, launch: Launcher, rows: TrainingRows, params: Params, n_searched: int, margin: Array, pages: list[PageRows],
        progress: Array,
    ) -> None:  # fmt: skip
        self.device = device = launch.device
        self._launch, self._pages, self._progress = launch, pages, progress
        self._margin, self.label, self._weight = margin, device.put(rows.label), device.put(rows.weight)
        self.global_rows = rows.global_rows
        n_outputs, empty = len(margin), device.empty
        self.grad, self.hess = empty(margin.shape, np.float32), empty(margin.shape, np.float32)
        self._parameters: dict[tuple[np.float32, ...], Array] = {}
        self._counts = empty((row_sampling.MAGNITUDE_BINS, 2), np.int64)
        self._threshold = device.empty(1, np.float64)
        self.searched, self._maxima = (self.grad, self.hess), empty((n_outputs, 2), np.int64)
        self._squares = empty(n_outputs, np.int64)
        if params.is_sketched(n_outputs):
            few = n_searched, margin.shape[1]
            self.searched = empty(few, np.float32), empty(few, np.float32)
            self._sketched = empty((n_searched, 2), np.int64)
            combined = n_searched, n_outputs if params.sketch_method == "random_projection" else 1
            self._unsorted, self._combined = empty(n_searched, np.int32), (empty(combined, np.int32), empty(combined, np.float64))
        self._keys, self.n_limbs = empty(n_searched, np.uint32), empty(n_searched, np.int32)
        self.scales, self.leaf_scales = empty((n_searched, 2), np.float64), empty((n_outputs, 2), np.float64)
        self._rough_scales = empty((n_searched, 2), np.float64)
        self._sums = empty((3, n_searched, quantise.N_SUMS), np.int64)
        self._rough_sums, self._final_sums = self._sums[quantise.ROUGH], self._sums[quantise.FINAL]  # launches keep these objects
        self._are_maxima_clear = False

    def take_plan(self, plan: Round) -> None:
        """Take up what is to be grown from the gradients at hand. That ends with their maxima 0 (quantise)."""
        self.plan, self._are_maxima_clear = plan, True

    def compute(self, objective: Formula) -> Array:
        device = self.device
        if objective.parameters not in self._parameters:
            self._parameters[objective.parameters] = device.put(np.array(objective.parameters, np.float32))
        if not self._are_maxima_clear:
            device.clear(self._maxima)
        self._are_maxima_clear = False
        device.launch(
            objective.gradients_kernel, self._margin, self.label, self._weight, self._parameters[objective.parameters],
            self.grad, self.hess, self._maxima, threads=self._margin.shape[1],
        )  # fmt: skip
        return self._maxima

    def set(self, grad: np.ndarray, hess: np.ndarray, few: tuple[np.ndarray, np.ndarray] | None = None) -> Array:
        self._are_maxima_clear = False
        self._copy((grad, hess), (self.grad, self.hess), self._maxima)
        if few is not None:
            self._copy(few, self.searched, self._sketched)
        return self._maxima

    def _copy(self, given: tuple[np.ndarray, np.ndarray], own: tuple[Array, Array], maxima: Array) -> None:
        """Take up gradients and hessians of a user's, and their largest. maxima : int64 (n, 2) bits, OUT."""
        device, xp = self.device, self.device.xp
        grad, hess = (device.put(values, np.float32) for values in given)
        own[0][...] = grad
        own[1][...] = xp.where((hess <= 0) & xp.isfinite(hess), np.float32(0), hess)  # NaN and infinities stay
        for k, values in enumerate(own):
            maxima[:, k] = xp.abs(values).view(np.int32).max(axis=1) if values.shape[1] else 0

    def count_magnitudes(self) -> Array:
        self.device.clear(self._counts)
        for page in self._pages:
            self._launch(
                row_sampling.count_magnitudes_kernel, page.kept, page.first, self.grad, self.hess, self._counts,
                blocks=-(-len(page.kept) // row_sampling.COUNTED_ROWS),
            )  # fmt: skip
        return self._counts

    def draw_rows(self, counts: Array | None) -> Array:
        if self.plan.searches_given:
            self._draw_rows(None, *self.searched, self._sketched)  # the same rows, uniformly
        self._draw_rows(counts, self.grad, self.hess, self._maxima)
        return self._maxima

    def _draw_rows(self, counts: Array | None, grad: Array, hess: Array, maxima: Array) -> None:
        """Draw them, and take these gradients of all others away. maxima : of those drawn, OUT."""
        assert self.plan.rows is not None
        n_rows, n_drawn = self.global_rows, self.plan.rows.n_drawn
        kernel, which = row_sampling.draw_rows_kernel, [n_drawn, self._progress]
        if counts is not None:
            kernel, which = row_sampling.draw_by_gradient_kernel, [self._progress, self._threshold]
            self._launch(row_sampling.choose_threshold_kernel, counts, n_drawn, self._threshold, blocks=1)
        self.device.clear(maxima)
        for page in self._pages:
            self.device.clear(page.n_listed)
            self._launch(
                kernel, page.kept, page.first_id, n_rows, *which, page.first, grad, hess, page.drawn, page.n_listed, maxima,
                threads=-(-len(page.kept) // row_sampling.ROWS_PER_THREAD),
            )  # fmt: skip

    def sum_squares(self, maxima: Array) -> Array:
        self.device.clear(self._squares)
        self._launch(
            output_sketch.sum_squares_kernel, self.grad, maxima, self.global_rows, self._squares, threads=self.grad.shape[1]
        )
        return self._squares

    def sketch(self, squares: Array | None) -> Array:
        assert self.plan.sketch is not None
        if squares is None or self.plan.searches_given:
            return self._sketched
        method, combined = output_sketch.METHODS.index(self.plan.sketch.method), self._combined
        self._launch(output_sketch.choose_outputs_kernel, method, self._progress, squares, self._unsorted, *combined, blocks=1)
        self.device.clear(self._sketched)
        self._launch(
            output_sketch.combine_outputs_kernel, self.grad, self.hess, *combined, *self.searched, self._sketched,
            threads=self.grad.shape[1],
        )  # fmt: skip
        return self._sketched

    def quantise(self, maxima: Array, sketched: Array | None = None) -> Array:
        searched = maxima if sketched is None else sketched
        self._launch(
            quantise.choose_scales_kernel, maxima, searched, self.global_rows, self._progress, self._keys, self._rough_scales,
            self.leaf_scales, self._sums, threads=max(len(maxima), len(searched)),
        )  # fmt: skip
        self._quantise(1)
        return self._rough_sums

    def refine(self, sums: Array) -> Array | None:
        self._quantise(2)
        return self._final_sums

    def _quantise(self, limbs: int) -> None:
        n_rows = self.global_rows if self.plan.rows is None else self.plan.rows.n_drawn
        penalty = self.plan.penalty
        for page in self._pages:
            self._launch(
                quantise.quantise_kernel, *self.searched, page.first, n_rows, penalty.reg_lambda, penalty.min_child_weight,
                self._progress, self._keys, self._rough_scales, limbs, page.gpair, self._sums, self.scales, self.n_limbs,
                threads=page.n_rows,
            )  # fmt: skip
