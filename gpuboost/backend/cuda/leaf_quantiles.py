"""Leaves that are quantiles of residuals, on a GPU."""

from collections.abc import Iterable
from itertools import product

import numpy as np

from gpuboost.backend.contract import Array, LeafQuantiles
from gpuboost.backend.cuda.gradients import CudaGradients
from gpuboost.backend.cuda.memory import Launcher, on_device
from gpuboost.backend.cuda.plan import QUANTILE_NODES
from gpuboost.backend.cuda.rows import PageRows
from gpuboost.backend.cuda.trees import CudaTrees
from gpuboost.backend.fixed_point import as_ratios, weight_factor
from gpuboost.kernels import leaf_quantiles as kernels
from gpuboost.kernels import leaves

__all__ = ["CudaLeafQuantiles"]


@on_device(LeafQuantiles)
class CudaLeafQuantiles(LeafQuantiles):
    """As the contract has it, for the trees of one training."""

    def __init__(
        self, launch: Launcher, global_rows: int, alphas: tuple[float, ...], margin: Array, gradients: CudaGradients,
        trees: CudaTrees, pages: list[PageRows], progress: Array,
    ) -> None:  # fmt: skip
        self.device = device = launch.device
        self._launch, self._progress, self._factor = launch, progress, weight_factor(global_rows)
        self._margin, self._alphas = margin, device.put(as_ratios(alphas))
        self._gradients, self._trees, self._pages = gradients, trees, pages
        # of each page: keys and weights, uint32 (leaf_size, n) beside its row lists
        shapes = [(trees.leaf_size, page.lists.shape[1]) for page in pages]
        self._residuals = [(device.empty(shape, np.uint32), device.empty(shape, np.uint32)) for shape in shapes]
        slots = QUANTILE_NODES, trees.leaf_size, 2
        self._prefixes, self._targets = device.empty(slots, np.int64), device.empty(slots, np.int64)
        self._counts = device.empty((*slots, kernels.DIGITS), np.int64)
        self._values = device.empty((0, trees.leaf_size), np.float64)

    def start(self) -> Iterable[tuple[int, int]]:
        trees, gradients = self._trees, self._gradients
        if len(self._values) < trees.arrays.capacity:
            self._values = self.device.empty((trees.arrays.capacity, trees.leaf_size), np.float64)
            n = trees.arrays.capacity if trees.has_order else 0
            self._low, self._high, self._cuts = (self.device.empty(n, np.float64) for _ in range(3))
            self._launch.forget()
        for p, residuals in enumerate(self._residuals):
            trees.over_leaves(
                p, kernels.list_residuals_kernel, gradients.label, self._margin, gradients.hess, gradients.leaf_scales,
                self._factor, trees.first_output, *residuals,
            )  # fmt: skip
        return product(range(0, trees.node_bound, QUANTILE_NODES), range(kernels.N_LEVELS))

    def count(self, first_node: int, level: int) -> Array:
        trees = self._trees
        if level == 0:
            self.device.clear(self._prefixes)
        self.device.clear(self._counts)
        for p, (page, residuals) in enumerate(zip(self._pages, self._residuals)):
            self._launch(
                kernels.count_residuals_kernel, trees.arrays.segments[p], trees.arrays.nodes, self._progress,
                page.first_leaf_chunk, first_node, level, *residuals, self._prefixes, self._counts,
                blocks=page.lists.shape[1] // leaves.CHUNK_ROWS + trees.node_bound,
            )  # fmt: skip
        return self._counts[: trees.node_bound - first_node]

    def choose(self, first_node: int, level: int) -> None:
        trees = self._trees
        self._launch(
            kernels.choose_digits_kernel, first_node, level, self._alphas, trees.first_output, trees.arrays.nodes, self._progress,
            self._counts, self._prefixes, self._targets, warps=min(QUANTILE_NODES, trees.node_bound) * trees.leaf_size,
        )  # fmt: skip
        if level == kernels.N_LEVELS - 1:
            self._launch(
                kernels.take_quantiles_kernel, first_node, self._progress, self._prefixes, self._values,
                threads=min(QUANTILE_NODES, trees.node_bound),
            )  # fmt: skip

    def set_leaves(self) -> None:
        trees, own = self._trees, self._trees.arrays
        if trees.has_order:
            self._launch(
                kernels.find_cuts_kernel, self._progress, own.nodes, trees.monotone, self._values, self._low, self._high,
                self._cuts, blocks=1,
            )  # fmt: skip
        self._launch(
            kernels.weigh_quantiles_kernel, self._progress, own.nodes, trees.monotone, self._values, self._cuts, own.weights,
            own.leaf_values, threads=trees.node_bound,
        )  # fmt: skip
