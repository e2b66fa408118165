"""Growing trees on a GPU."""

from dataclasses import astuple

import numpy as np

from gpuboost.backend.contract import Array, FlatTrees, Trees
from gpuboost.backend.cuda import plan as bounds
from gpuboost.backend.cuda.device import PendingCopy
from gpuboost.backend.cuda.gradients import CudaGradients
from gpuboost.backend.cuda.memory import Launcher, on_device
from gpuboost.backend.cuda.nodes import NodeArrays
from gpuboost.backend.cuda.plan import MemoryPlan
from gpuboost.backend.cuda.rows import PageRows
from gpuboost.backend.cuda.tables import CudaTable
from gpuboost.backend.draws import most_bins
from gpuboost.backend.plans import FrontierBatch, Round
from gpuboost.backend.trees import category_rules
from gpuboost.binned.cuts import Cuts
from gpuboost.kernels import (
    category_splits,
    category_vectors,
    column_sampling,
    gradient_noise,
    growth,
    histogram,
    leaves,
    partition,
    proposals,
    row_leaves,
    splits,
)
from gpuboost.kernels.category_splits import count_words
from gpuboost.kernels.cuda_common import CudaKernel
from gpuboost.kernels.structs import PENALTY
from gpuboost.params import Params, most_leaves

__all__ = ["CudaTrees"]

LEAVES_AT_ONCE = 512  # leaf by leaf, without asking the device whether there are more: a step in vain costs it some 12 µs
LEAVES_BETWEEN_READS = 16  # where there may be more of them


@on_device(Trees)
class CudaTrees(Trees):
    """arrays : by node. needs_lists : whether anybody reads the lists of the leaves' rows. Bounds, on the host: there are at most
    node_bound nodes, frontier_bound of them wait for evaluation."""

    plan: Round

    def __init__(
        self, launch: Launcher, cuts: Cuts, params: Params, memory: MemoryPlan, first_output: Array, leaf_size: int,
        gradients: CudaGradients, table: CudaTable, pages: list[PageRows], progress: Array, needs_lists: bool,
    ) -> None:  # fmt: skip
        self.device = device = launch.device
        put, empty = device.put, device.empty
        self._launch, self._params, self._progress = launch, params, progress
        self._gradients, self._table, self._pages = gradients, table, pages
        self._n_trees, self.first_output, self.leaf_size = len(first_output), first_output, leaf_size
        self._tree_numbers, self._no_sets = put(np.arange(self._n_trees)), put(np.zeros(0, np.uint32))
        self._no_categories = put(np.zeros(0, np.uint8))
        self._thresholds, self._offsets = put(cuts.thresholds), put(cuts.offsets)
        self.histogram_capacity, n_bins = memory.capacity, most_bins(params, cuts)
        self._searched_size = params.searched_outputs(leaf_size)
        self._hist = empty((memory.capacity, self._searched_size, n_bins, 2), np.int64)
        self._flat_hist = self._hist.reshape(memory.capacity, -1)  # all values of a histogram in a row
        table.reserve(self._hist)
        n_proposed = {None: 0, "global": self._n_trees, "local": memory.capacity}[params.proposals]
        self._proposed = empty((n_proposed, n_bins), np.uint8)  # split candidates; without rows every bin is one
        n_features = len(table.columns.features)
        self._gains = empty((memory.nodes_at_once, n_features), np.float64)  # the best split of every feature
        self._choices = empty((memory.nodes_at_once, n_features), np.int32)
        self.has_order = len(params.monotone_constraints) > 0
        self.monotone = put(np.array(params.monotone_constraints, np.int8))
        self._feature_weights = put(np.array(params.feature_weights, np.float32))
        self._member = put(column_sampling.member_words(params.interaction_constraints, cuts.n_features))
        self._categorical = None if cuts.categorical is None else put(cuts.categorical.astype(np.uint8))
        self._rules = put(category_rules(params))
        sorted_shape = memory.sorted_at_once, memory.sorted_size
        self._order, self._keys = empty(sorted_shape, np.int32), empty(sorted_shape, np.float64)
        self._vectors: list[Array] = []  # scratch of sets for several outputs
        if self._categorical is not None and self._searched_size > 1:
            n_vectors = category_vectors.scratch_size(memory.sorted_size, self._searched_size)
            self._vectors = [empty((memory.sorted_at_once, n_vectors), np.float64)]
        self._feature_mask = empty((memory.nodes_at_once if params.masks_features else 0, n_features), np.uint8)
        self._penalty = empty(1, PENALTY)
        self._gain_parameters = empty(0, np.float64)
        self._told: object = None  # the penalty and gain that the device has
        self._leaving: PendingCopy | None = None  # of the arrays by node, which the next trees overwrite
        self._n_leaves, self._first_rank = empty(self._n_trees, np.int64), empty(self._n_trees, np.int64)
        self._found: list[Array] = []  # by page uint16 (n_trees, rows), the leaves that rows end in; empty where lists say that
        if not needs_lists and self._ends_are_known():
            self._found = [empty((self._n_trees, len(page.kept)), np.uint16) for page in pages]
        self._bounds_outputs = params.bounds_outputs(leaf_size)
        n_words = count_words(cuts.n_categories)
        self.arrays = NodeArrays(device, len(pages), leaf_size, self._searched_size, n_words, self._bounds_outputs)
        self._reserve(memory.n_nodes)

    def _reserve(self, n_nodes: int) -> None:
        if self.arrays.reserve(n_nodes):
            for page in self._pages:
                page.reserve(self.device, self.arrays.capacity)
            self._launch.forget()  # launches hold the old arrays

    def take_plan(self, plan: Round) -> None:
        """Take up what is to be grown next."""
        self.plan = plan
        if (plan.penalty, plan.gain) != self._told:
            self._told, put = (plan.penalty, plan.gain), self.device.put
            self._penalty = put(np.array([astuple(plan.penalty)], PENALTY))
            self._gain_parameters = put(np.array(plan.gain.parameters, np.float64))
            self._launch.forget()
        self._table.draw_columns(plan.columns)
        if self._leaving is not None:
            self.device.order_behind(self._leaving)

    @property
    def runs_ahead(self) -> bool:
        """Whether the host launches a tree by upper bounds alone, and asks the device nothing."""
        s = self._params
        n_steps, most = s.max_depth, bounds.SYNC_FREE_DEPTH
        if s.grow_policy == "lossguide":
            n_steps, most = most_leaves(s.max_depth, s.max_leaves) - 1, LEAVES_AT_ONCE - 1
        return self._table.stays and 0 < n_steps <= most

    def _ends_are_known(self) -> bool:
        """Whether it is known which splits are the last, and row_leaves.py can find the leaves below."""
        s = self._params
        n_nodes = self._n_trees * (2 ** (s.max_depth + 1) - 1) if self.runs_ahead and s.grow_policy == "depthwise" else 0
        fits = n_nodes * row_leaves.LINE_BYTES <= self.device.shared_limit and n_nodes <= row_leaves.MAX_NODES
        return n_nodes > 0 and fits and self._table.can_find_leaves

    def choose_noise(self, squares: Array, sums: Array) -> None:
        most, times, gradients = self._params.usual_cat_noise, self._params.chance, self._gradients
        self._launch(
            gradient_noise.choose_noise_kernel, most, times, gradients.global_rows, gradients.leaf_scales, squares, sums,
            gradients.scales, self._rules, blocks=1,
        )  # fmt: skip

    def start(self, sums: Array) -> None:
        own = self.arrays
        for p, page in enumerate(self._pages):
            rows = page.drawn, page.n_listed, page.lists, own.segments[p]
            threads = max(len(page.kept), self._n_trees)
            if p == 0:
                self._launch(
                    growth.start_trees_kernel, sums, self.first_output, self._progress, own.nodes, own.sums, self._n_leaves,
                    *rows, threads=threads,
                )  # fmt: skip
            else:
                self._launch(partition.start_rows_kernel, self._n_trees, self._progress, *rows, threads=threads)
        self._table.copy_drawn()
        self._n_steps, self._took_levels = 0, False
        self.node_bound = self.frontier_bound = self._n_trees

    def frontier_size(self) -> int:
        has_loose_bounds = self._n_steps > bounds.SYNC_FREE_DEPTH  # levels of twice as many nodes each
        if not self._took_levels:
            has_loose_bounds = self._n_steps > 0 and self._n_steps % LEAVES_BETWEEN_READS == 0 and not self.runs_ahead
        if has_loose_bounds:
            progress = self.device.fetch(self._progress)[0]
            self.node_bound = int(progress["n_nodes"])
            self.frontier_bound = self.node_bound - int(progress["frontier"])
        return self.frontier_bound

    # -- Histograms -------------------------------------------------------------------------------------------------

    def build_histograms(self, batch: FrontierBatch) -> Array:
        size = batch.end - batch.begin
        n = size // 2 if batch.subtract else size
        self._table.build(self.arrays, self._gradients.n_limbs, n, batch, self._params.max_depth, self._hist)
        return self._hist[batch.first_slot : batch.first_slot + n]

    def subtract_histograms(self, batch: FrontierBatch) -> None:
        own = self.arrays
        self._launch(
            histogram.subtract_histograms_kernel, own.parents, own.build, own.nodes, self._progress, self._flat_hist,
            blocks=self.frontier_bound // 2 * -(-self._flat_hist.shape[1] // histogram.SUBTRACT_CHUNK),
        )  # fmt: skip

    def propose_candidates(self, batch: FrontierBatch) -> None:
        s, n = self._params, batch.end - batch.begin
        self._launch(
            proposals.propose_candidates_kernel, batch.begin, n, s.max_depth, int(s.proposals == "global"), s.max_bin,
            self._progress, self.arrays.nodes, self._hist, self._table.columns.offsets, self._proposed,
            warps=n * self._gains.shape[1],
        )  # fmt: skip

    # -- Splits -----------------------------------------------------------------------------------------------------

    def evaluate_splits(self, batch: FrontierBatch) -> None:
        at_once = len(self._gains)
        for first in range(batch.begin, batch.end, at_once):
            self._evaluate(first, min(at_once, batch.end - first))

    def _evaluate(self, first: int, n: int) -> None:
        """The same for n nodes of the frontier."""
        own, s, launch, columns = self.arrays, self._params, self._launch, self._table.columns
        if s.masks_features:
            n_drawn = column_sampling.node_counts(len(columns.features), s.colsample_bylevel, s.colsample_bynode)
            launch(
                column_sampling.mask_features_kernel, first, n, s.max_depth, *n_drawn, self._progress, own.nodes,
                columns.features, self._feature_weights, self._member, self._feature_mask, blocks=n,
            )  # fmt: skip
        is_bounded, gain, warps = s.max_delta_step > 0 or self.has_order, self.plan.gain.function, n * len(columns.features)
        if self._searched_size == 1 and not is_bounded and gain is None and s.proposals is None:
            launch(
                splits.evaluate_plain_splits_kernel, first, n, s.max_depth, self._progress, own.nodes, own.sums, self._hist,
                columns.offsets, self._feature_mask, self._gradients.scales, self.first_output, self._penalty, self._gains,
                self._choices, warps=warps,
            )  # fmt: skip
        else:
            kernel = splits.evaluate_splits_kernel(is_bounded, gain, self._bounds_outputs)
            launch(
                kernel, first, n, s.max_depth, int(s.proposals == "global"), self._progress, own.nodes, own.sums, self._hist,
                columns.offsets, columns.features, self.monotone, self._feature_mask, self._proposed, self._gradients.scales,
                self.first_output, self._penalty, self._gain_parameters, self._gains, self._choices, warps=warps,
                shared=self.device.block(kernel) // 32 * self._searched_size * splits.CARRY_BYTES,
            )  # fmt: skip
        if self._categorical is not None:
            of_gain = [] if self._vectors else [self._gain_parameters]
            launch(
                self._of_categories(), first, n, s.max_depth, self._progress, own.nodes, own.sums, self._hist, columns.offsets,
                columns.features, self._categorical, self._feature_mask, self._gradients.scales, self.first_output, self._penalty,
                self._rules, *of_gain, self._gains, self._choices, self._order, self._keys, *self._vectors,
                blocks=min(n * len(columns.features), len(self._order)),
            )  # fmt: skip
        launch(
            splits.choose_splits_kernel, first, n, int(s.proposals == "global"), self._progress, own.nodes, own.sums,
            own.left_sums, self._hist, columns.offsets, columns.features,
            self._no_categories if self._categorical is None else self._categorical, self._proposed, self._gains, self._choices,
            warps=n,
        )  # fmt: skip
        if self._categorical is not None:
            list_sets = category_vectors.list_category_vectors_kernel if self._vectors else category_splits.list_categories_kernel
            launch(
                list_sets, first, n, self._progress, own.nodes, own.sums, own.left_sums, own.cats, self._hist, columns.offsets,
                columns.features, self._categorical, self._gradients.scales, self.first_output, self._penalty, self._rules,
                self._order, self._keys, *self._vectors, blocks=min(n, len(self._order)),
            )  # fmt: skip

    def _of_categories(self) -> CudaKernel:
        if self._vectors:
            return category_vectors.evaluate_category_vectors_kernel
        is_bounded = self._params.max_delta_step > 0 or self.has_order
        return category_splits.evaluate_category_splits_kernel(is_bounded, self.plan.gain.function)

    def select_level(self, max_depth: int, max_leaves: int) -> None:
        self._selected_bound, self._took_levels = self.frontier_bound, True
        self._limits = max_depth, max_leaves

    def select_best(self, max_depth: int, max_leaves: int) -> None:
        self._selected_bound, self._took_levels = self._n_trees, False
        self._limits = max_depth, max_leaves

    def apply_splits(self) -> None:
        """What was selected is found out and split in one launch."""
        self._reserve(self.node_bound + 2 * self._selected_bound)
        own = self.arrays
        kernel, ranks = growth.split_lossguide_kernel, list[Array]()
        if self._took_levels:
            kernel, ranks = growth.split_depthwise_kernel, [own.rank, self._first_rank]
        self._launch(
            kernel, *self._limits, self._progress, own.nodes, self._n_leaves, *ranks, own.selected, own.sums, own.left_sums,
            self.monotone, self._gradients.scales, self.first_output, self._penalty, own.segments[0], own.first_item,
            self._pages[0].moved, own.counts, blocks=1, threads=self._selected_bound if self._took_levels else self.node_bound,
        )  # fmt: skip
        self._n_steps += 1

    def partition_rows(self) -> Array:
        """The last splits move no rows where their leaves are found without."""
        own = self.arrays
        for p, codes in () if self._found and self._n_steps == self._params.max_depth else self._table.walk(self._features_split):
            page = self._pages[p]
            n_chunks = page.lists.shape[1] // partition.CHUNK_ROWS + self._selected_bound
            if p > 0:
                self._launch(
                    partition.list_chunks_kernel, 0, own.selected, own.nodes, own.segments[p], self._progress, own.first_item,
                    page.moved, own.counts, blocks=1, threads=self._selected_bound,
                )  # fmt: skip
            self._table.move(p, codes, own, n_chunks)
        self.node_bound += 2 * self._selected_bound
        self.frontier_bound = 2 * self._selected_bound
        return own.counts[: self.frontier_bound]

    def _features_split(self) -> np.ndarray:
        """Of the nodes chosen; for pages that come from the host, which has to wait for the device to know."""
        copies = [self.device.start_copy(array) for array in (self._progress, self.arrays.selected, self.arrays.nodes)]
        nodes, selected, progress = (copy.wait() for copy in reversed(copies))  # with the last come the others
        return np.unique(nodes["feature"][selected[: int(progress["n_selected"][0])]])

    # -- Leaves -----------------------------------------------------------------------------------------------------

    def sum_leaves(self) -> Array:
        if self._found:
            return self._sum_found_leaves()
        own, gradients = self.arrays, self._gradients
        for p, page in enumerate(self._pages):
            lists = own.segments[p], own.nodes, self._progress, page.first_leaf_chunk
            if p == 0:
                self._launch(growth.list_leaves_kernel, *lists, own.leaf_sums, blocks=1, threads=self.node_bound)
            else:
                self._launch(leaves.list_leaf_chunks_kernel, *lists, blocks=1, threads=self.node_bound)
            self.over_leaves(
                p, leaves.sum_leaves_kernel, gradients.grad, gradients.hess, gradients.leaf_scales, self.first_output,
                own.leaf_sums,
            )  # fmt: skip
        return own.leaf_sums[: self.node_bound]

    def _sum_found_leaves(self) -> Array:
        own, gradients, kernel = self.arrays, self._gradients, row_leaves.sum_found_kernel
        self.device.clear(own.leaf_sums)
        for p, codes in self._table.walk():
            page, found = self._pages[p], self._found[p]
            self._table.find_leaves(p, codes, own, self.node_bound, found)
            n_blocks = kernel.blocks_per_sm * self.device.n_multiprocessors
            self._launch(
                kernel, max(n_blocks, -(-len(page.kept) // row_leaves.MAX_PART_ROWS)), self._progress, page.subset, page.first,
                found, gradients.grad, gradients.hess, gradients.leaf_scales, self.first_output, own.leaf_sums,
                blocks=n_blocks, shared=self.node_bound * row_leaves.LINE_BYTES,
            )  # fmt: skip
        return own.leaf_sums[: self.node_bound]

    def over_leaves(self, p: int, kernel: CudaKernel, *arguments: object) -> None:
        """Launch a kernel whose blocks take chunks of the leaves' rows."""
        page, own = self._pages[p], self.arrays
        self._launch(
            kernel, own.segments[p], own.nodes, self._progress, page.first_leaf_chunk, page.lists, page.first, *arguments,
            blocks=page.lists.shape[1] // leaves.CHUNK_ROWS + self.node_bound,
        )  # fmt: skip

    def weigh_leaves(self) -> None:
        own = self.arrays
        self._launch(
            growth.weigh_trees_kernel, self._progress, own.nodes, own.sums, own.leaf_sums, self._gradients.leaf_scales,
            self.first_output, self._penalty, own.weights, own.leaf_values, own.covers, own.state, blocks=1,
            threads=self.node_bound,
        )  # fmt: skip

    @property
    def finds_all(self) -> bool:
        """Whether add_to_margin adds to the margins of rows that were not drawn, too."""
        return bool(self._found)

    def add_to_margin(self, p: int, margin: Array) -> None:
        """Add the leaf values to the margins of the rows of page p that the trees were grown on. margin : of all rows."""
        own, page = self.arrays, self._pages[p]
        if not self._found:
            self.over_leaves(p, leaves.update_margin_kernel, own.leaf_values, self.first_output, margin)
            return
        self._launch(
            row_leaves.add_found_kernel, own.nodes, self._progress, page.subset, page.first, self._found[p], own.leaf_values,
            self.first_output, margin, threads=len(page.kept), shared=self.node_bound * row_leaves.VALUE_BYTES,
        )  # fmt: skip

    def start_copy(self) -> PendingCopy:
        """Begin to bring the arrays of finished trees to the host."""
        self._leaving = self.device.start_copy(self.arrays.finished)
        return self._leaving

    def flat(self) -> FlatTrees:
        own = self.arrays
        self._launch(
            leaves.flatten_trees_kernel, self._progress, own.nodes, self._thresholds, self._offsets, own.cats.shape[1], own.flat,
            threads=self.node_bound,
        )  # fmt: skip
        sets = self._no_sets if self._categorical is None else own.cats.reshape(-1)
        return FlatTrees(own.flat, own.leaf_values, self._tree_numbers, self.first_output, sets)
