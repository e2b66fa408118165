"""Leaves that are quantiles of residuals, on the CPU."""

from collections.abc import Iterable
from itertools import product

import numpy as np

from gpuboost.backend.contract import Array, LeafQuantiles, TrainingRows
from gpuboost.backend.cpu.gradients import CpuGradients
from gpuboost.backend.cpu.rows import PageRows
from gpuboost.backend.cpu.trees import CpuTrees
from gpuboost.backend.fixed_point import as_ratios, weight_factor
from gpuboost.kernels import leaf_quantiles as kernels

__all__ = ["CpuLeafQuantiles"]

NODES_AT_ONCE = 4096  # 4 KB of counts each


class CpuLeafQuantiles(LeafQuantiles):
    """As the contract has it, for the trees of one training."""

    def __init__(
        self, rows: TrainingRows, alphas: tuple[float, ...], margin: np.ndarray, gradients: CpuGradients, trees: CpuTrees,
        pages: list[PageRows], n_threads: int,
    ) -> None:  # fmt: skip
        self._label, self._margin, self._alphas = rows.label, margin, as_ratios(alphas)
        self._factor = weight_factor(rows.global_rows)
        self._gradients, self._trees, self._pages, self._n_threads = gradients, trees, pages, n_threads
        self._residuals: list[np.ndarray] = []  # of each page: keys and weights, uint32 (2, leaf_size, n) beside its row lists

    def start(self) -> Iterable[tuple[int, int]]:
        trees, gradients = self._trees, self._gradients
        shapes = [(2, trees.leaf_size, page.lists.shape[1]) for page in self._pages]
        if [residuals.shape for residuals in self._residuals] != shapes:
            self._residuals = [np.empty(shape, np.uint32) for shape in shapes]
        for p, page in enumerate(self._pages):
            kernels.list_residuals_cpu(
                trees.leaf_chunks[p], trees.arrays.nodes, trees.arrays.segments[p], page.lists, self._label[:, page.own],
                self._margin[:, page.own], gradients.hess[:, page.own], gradients.leaf_scales[:, 1] * self._factor,
                trees.first_output, *self._residuals[p], self._n_threads,
            )  # fmt: skip
        self._values = np.empty((trees.arrays.n_nodes, trees.leaf_size), np.float64)
        return product(range(0, trees.arrays.n_nodes, NODES_AT_ONCE), range(kernels.N_LEVELS))

    def count(self, first_node: int, level: int) -> Array:
        trees = self._trees
        n_slots = min(NODES_AT_ONCE, trees.arrays.n_nodes - first_node)
        if level == 0:
            self._prefixes, self._targets = np.zeros((2, n_slots, trees.leaf_size, 2), np.int64)
        self._counts = np.zeros((n_slots, trees.leaf_size, 2, kernels.DIGITS), np.int64)
        for chunks, residuals in zip(trees.leaf_chunks, self._residuals):
            kernels.count_residuals_cpu(
                chunks, trees.arrays.nodes, first_node, level, *residuals, self._prefixes, self._counts, self._n_threads
            )
        return self._counts

    def choose(self, first_node: int, level: int) -> None:
        trees = self._trees
        kernels.choose_digits(
            first_node, level, self._alphas, trees.first_output, trees.arrays.nodes, self._counts, self._prefixes, self._targets
        )
        if level == kernels.N_LEVELS - 1:
            kernels.take_quantiles(first_node, self._prefixes, self._values)

    def set_leaves(self) -> None:
        trees, n = self._trees, self._trees.arrays.n_nodes
        cuts = np.empty(n if len(trees.monotone) else 0, np.float64)
        if len(cuts):
            kernels.find_cuts(n, trees.arrays.nodes, trees.monotone, self._values, *np.empty((2, n), np.float64), cuts)
        kernels.weigh_quantiles(
            n, trees.arrays.nodes, trees.monotone, self._values, cuts, trees.plan.learning_rate, trees.weights, trees.leaf_values
        )
