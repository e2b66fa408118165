"""Growing trees on the CPU."""

import math
from typing import Any

import numpy as np

from gpuboost.backend.contract import Array, FlatTrees, Formula, Trees
from gpuboost.backend.cpu.candidates import Candidates, is_worth_narrowing, most_candidates
from gpuboost.backend.cpu.columns import ColumnWalk
from gpuboost.backend.cpu.gradients import CpuGradients
from gpuboost.backend.cpu.nodes import NodeArrays
from gpuboost.backend.cpu.rows import PageRows
from gpuboost.backend.cpu.tables import CpuTable
from gpuboost.backend.draws import most_bins
from gpuboost.backend.plans import ColumnDraw, FrontierBatch, Round
from gpuboost.backend.trees import Grown, as_words, category_rules
from gpuboost.binned.matrix import BinnedMatrix, Representation
from gpuboost.kernels import histogram, nodes, partition
from gpuboost.kernels.best_first import room_for_leaves
from gpuboost.kernels.category_splits import count_words, evaluate_category_splits
from gpuboost.kernels.category_vectors import evaluate_category_vectors_cpu
from gpuboost.kernels.column_sampling import mask_features_cpu, member_words, node_counts
from gpuboost.kernels.gradient_noise import choose_noise_cpu
from gpuboost.kernels.leaves import flatten_trees_cpu, list_leaf_chunks, sum_leaves_cpu, update_margin_cpu, weigh_trees
from gpuboost.kernels.levels import count_slots, subtree_depth
from gpuboost.kernels.proposals import propose_candidates_cpu
from gpuboost.kernels.rounds import grow_rounds_cpu
from gpuboost.kernels.row_leaves import FEWEST_ROWS, MOST_SUMS, add_found_cpu, sum_found_cpu
from gpuboost.kernels.short_sorts import ROOM
from gpuboost.kernels.splits import CANDIDATE, CHUNK, count_blocks, evaluate_splits
from gpuboost.kernels.structs import FLAT_NODE, NO_GAIN, NODE
from gpuboost.kernels.whole_trees import grow_trees_cpu
from gpuboost.params import Params, most_leaves

__all__ = ["HISTOGRAM_MEMORY", "CpuTrees"]

HISTOGRAM_MEMORY = 2**29  # bytes, where no parameter says otherwise
# Bytes of histograms, up to which all levels are grown in one call; leaf by leaf these are held anyway. Steps hold more of them:
# 20,000 × 2,000, one thread and two of an AMD EPYC (Zen 5), 94 -> 78 and 62 -> 47 ms a round.
WHOLE_MEMORY = 2**28
# And above which threads part as early as there is a subtree for each: 1,000 × 500 on two threads 4.3 -> 3.8, × 200 2.1 -> 1.6.
NEAR_MEMORY = 2**24
FURTHER_MEMORY = 2**23  # bytes of histograms, up to which lopsided trees grow by further levels before threads part (levels.py)
WHOLE_NODES = 2**16  # nodes up to which trees are grown in one call; of sets of several words, that many words
LEVELS_CACHE = 2**20  # bytes of histograms that lie near anyway, so that all levels are grown one after another
LAST_MEMORY = 2**24  # bytes of histograms of the last level that are worked on together, those of LAST_NODES at least
LAST_NODES = 4  # for each thread
ROOM_FOR_ROUNDS = 1536  # nodes, of rounds that are grown in one call; with 4096 1,000 × 7 take as long and 2 MB more
BIN_VISITS = 1  # entries that a walk over columns visits in the time that histograms take for one bin of one node; half of it,
CACHED_BINS = 2**17  # where a node has so few that they stay in a cache, and all nodes' take little memory: 2 MB
PACKED_NODE_ROWS = 128  # of a node of the last level, where a packed table has many: of 70,000 × 40 ones and zeros whole trees of
# depth 6 take 0.6 of the steps' time, of depth 10 as long, of depth 12 1.15 times as long
LIGHT_VISITS = 6  # bins of a histogram that it costs to look at a cell of a node without one


class CpuTrees(Trees):
    """first_output : int32 (n_trees,), of the trees that grow.
    arrays : by node. leaf_values, weights : float32 (n_nodes, leaf_size); covers : float64 (n_nodes,)."""

    first_output: np.ndarray
    leaf_values: np.ndarray
    weights: np.ndarray
    covers: np.ndarray
    plan: Round

    def __init__(
        self, binned: BinnedMatrix, params: Params, n_trees: int, leaf_size: int, gradients: CpuGradients, table: CpuTable,
        pages: list[PageRows], n_threads: int,
    ) -> None:  # fmt: skip
        self._binned, self._cuts, self._params = binned, binned.cuts, params
        self._gradients, self._table, self._pages, self._n_threads = gradients, table, pages, n_threads
        searched = params.searched_outputs(leaf_size)
        self.arrays = NodeArrays(
            len(pages), searched, count_words(binned.cuts.n_categories), params.bounds_outputs(leaf_size)
        )
        self._roots = np.arange(n_trees, dtype=np.int32)
        self.first_output = self._first_outputs = self._roots * np.int32(leaf_size)
        self.leaf_size = leaf_size
        self._most_found = MOST_SUMS // leaf_size if gradients.n_rows >= FEWEST_ROWS else 0
        n_bins = most_bins(params, binned.cuts)
        self._histogram_bytes = histogram_bytes = searched * (n_bins + table.n_packed_codes) * 16
        self.histogram_capacity = max(2, (params.histogram_memory or HISTOGRAM_MEMORY) // histogram_bytes)
        self.nodes_at_once = max(LAST_NODES * n_threads, LAST_MEMORY // histogram_bytes // 2 * 2)
        self._hist = self._fine_hist = np.empty((0, searched, n_bins, 2), np.int64)
        self._candidates: Candidates | None = None  # of which histograms hold the bins; none: fine ones
        self._most_candidates = most_candidates(params.max_bin, binned.cuts)
        n_narrow = min(int(self._most_candidates.sum()), n_bins) if params.proposals == "global" else 0
        self._narrow_hist = np.empty((0, searched, n_narrow, 2), np.int64)
        self._packed = np.empty((0, 0, 0), np.int64)  # histograms as kernels/whole_trees.py may have them
        self._proposed = np.empty((0, n_bins), np.uint8)  # split candidates; without rows every bin is one
        self.monotone = np.array(params.monotone_constraints, np.int8)
        self._feature_weights = np.array(params.feature_weights, np.float32)
        self._member = member_words(params.interaction_constraints, binned.cuts.n_features)
        self._walk = None
        if (binned.is_sparse or binned.sorted_columns is not None) and binned.cuts.categorical is None:
            self._walk = ColumnWalk(binned, pages[0], self.monotone, n_threads)
        if binned.representation is not Representation.SORTED:
            most = int(binned.cuts.n_bins.max()) + CHUNK
            self._prefix = np.empty((2, n_threads, searched * most), np.int64)
            n_ordered = 0 if binned.cuts.categorical is None else max(ROOM, int(binned.cuts.n_categories.max()))
            self._order, self._keys = np.empty((n_threads, n_ordered), np.int32), np.empty((n_threads, n_ordered), np.float64)
            self._gains, self._bins = np.empty((n_threads, 3, most), np.float64), np.empty((n_threads, most), np.int32)
        self._rules = category_rules(params)
        self._light = np.zeros((n_threads, 0, 2), np.int64), np.zeros((n_threads, 0), np.uint64)
        self._flat: FlatTrees | None = None  # the trees grown last, once somebody has asked for them
        has_steps = (
            self._has_histograms() and len(pages) == 1 and binned.pages.is_resident and params.proposals is None
            and params.split_gain is None
        )
        # Histograms that kernels/whole_trees.py may hold; none where there is a step that it does not have.
        self._whole_capacity = min(self.histogram_capacity, WHOLE_MEMORY // histogram_bytes) if has_steps else 0
        self._leaves_capacity = self.histogram_capacity if has_steps and WHOLE_MEMORY else 0  # likewise, leaf by leaf
        self._levels_in_cache = LEVELS_CACHE // histogram_bytes

    def _has_histograms(self) -> bool:
        """Whether kernels/whole_trees.py has histograms for the table: of packed records as packed sums only."""
        if self._binned.packing is None:
            return self._binned.representation in (Representation.DENSE, Representation.SPARSE)
        width = histogram.record_bytes(self._binned.packing.n_groups) // 8
        return width <= histogram.REGISTERS and self._hist.shape[1] == 1

    def start(self, sums: Array) -> None:
        if not self.plan.goes_on or self._candidates is not None:
            self._table.draw_columns(self.plan.columns)
            if self._walk is not None and self.plan.rows is not None and self._binned.representation is Representation.SORTED:
                self._walk.draw_rows(self.plan.columns)
        self._take_up_plan()
        n_trees, arrays = len(self.plan.trees), self.arrays
        nodes.start_trees(n_trees, sums, self.first_output, arrays.nodes, arrays.sums, self._n_leaves)
        arrays.counts[:n_trees] = sum(page.n_drawn for page in self._pages)  # of this worker: nothing is compared with a root's
        for p, page in enumerate(self._pages):
            partition.start_rows_cpu(n_trees, page.drawn, page.n_drawn, page.lists, arrays.segments[p], self._n_threads)
        arrays.n_nodes = self._n_ordered = n_trees
        self._frontier = self._roots[:n_trees]
        self._best_limits: tuple[int, int] | None = None

    def _take_up_plan(self) -> None:
        n_trees, arrays, plan = len(self.plan.trees), self.arrays, self.plan
        self.first_output = self._first_outputs[plan.first_tree : plan.first_tree + n_trees]
        arrays.n_nodes = 0
        arrays.reserve(n_trees)
        self._n_leaves = np.empty(n_trees, np.int64)
        self._columns, self._candidates, self._hist = plan.columns, None, self._fine_hist

    def choose_noise(self, squares: Array, sums: Array) -> None:
        most, times, gradients = self._params.usual_cat_noise, self._params.chance, self._gradients
        choose_noise_cpu(
            most, times, gradients.n_rows, gradients.leaf_scales, squares, sums, gradients.scales, self._rules
        )  # fmt: skip

    def grow_rounds(
        self, n_rounds: int, max_depth: int, max_leaves: int, best_first: bool, objective: Formula
    ) -> list[Grown]:
        """Training.grow_rounds, of a plan that kernels/rounds.py may grow."""
        gradients, page, arrays, penalty = self._gradients, self._pages[0], self.arrays, self.plan.penalty
        gradients.start_rounds()
        draws = self._take_up_draws()
        if (of_trees := self._whole_trees(max_depth, max_leaves, best_first)) is None:
            return []
        room, leaf_size = len(arrays.nodes) + (ROOM_FOR_ROUNDS if n_rounds > 1 else 0), self.leaf_size
        ends, grown, covers = np.empty(n_rounds, np.int64), np.empty(room, NODE), np.empty(room, np.float64)
        weights, leaf_values = np.empty((2, room, leaf_size), np.float32)
        cats, params = np.empty((room, arrays.cats.shape[1]), np.uint32), self._params
        noise = np.array([params.usual_cat_noise, params.chance] if self.plan.chooses_noise else [], np.float64)
        n_grown = grow_rounds_cpu(
            self.plan.number, gradients.seed, *gradients.to_compute(objective), gradients.scales, gradients.n_limbs, page.gpair,
            page.by_row, self._n_leaves, self.first_output, arrays.nodes, arrays.sums, arrays.cats, arrays.counts,
            arrays.segments[0], page.drawn, page.lists, draws, of_trees, noise, self._rules, penalty.reg_lambda,
            penalty.reg_alpha, penalty.max_delta_step, penalty.min_child_weight, penalty.gamma, self.plan.learning_rate,
            self._most_found, ends, grown, cats, weights, leaf_values, covers, self._n_threads,
        )  # fmt: skip
        if n_grown == 0:
            return []
        bounds = [0, *ends[:n_grown].tolist()]
        # Copies: of trees with few of the nodes that they might have, rounds that wait to be collected would hold all the room.
        end = bounds[-1]
        grown, cats, covers = as_words(grown[:end]).copy().view(NODE), cats[:end].copy(), covers[:end].copy()
        leaf_values, weights = leaf_values[:end].copy(), weights[:end].copy()
        parts, n_trees = [slice(*both) for both in zip(bounds, bounds[1:])], len(self.first_output)
        arrays.n_nodes, self.leaf_values, self._flat = end - bounds[-2], leaf_values[parts[-1]], None
        has_sets = self._cuts.categorical is not None
        return [
            Grown(n_trees, grown[own], leaf_values[own], weights[own], covers[own], cats[own] if has_sets else None)
            for own in parts
        ]

    def _take_up_draws(self) -> tuple[tuple[Any, ...], ...]:
        """Take up the plan, and what kernels/rounds.py draws rows and columns by; none where all take part."""
        self._take_up_plan()
        draw, page, cuts = self.plan.rows, self._pages[0], self._cuts
        if draw is None and self._params.colsample_bytree == 1:
            self._table.draw_columns(self._columns)
            return ()
        self._columns = ColumnDraw(self._columns.features.copy(), self._columns.offsets.copy())  # others in every round
        of_columns = self._feature_weights, cuts.n_bins, *self._table.room_for_columns(self._columns)
        of_rows = (0, False) if draw is None else (draw.n_drawn, draw.by_gradient)
        _, (codes, *_) = self._table.in_one_page()
        return (*of_rows, page.kept, page.marks), of_columns, (codes, cuts.n_bins, cuts.thresholds, cuts.offsets)

    def grow_at_once(self, max_depth: int, max_leaves: int, best_first: bool) -> bool:
        if (of_trees := self._whole_trees(max_depth, max_leaves, best_first)) is None:
            return False
        n_grown = np.empty(2, np.int64)
        grow_trees_cpu(self.plan.key, n_grown, *of_trees)
        self.arrays.n_nodes, self._n_ordered = n_grown.tolist()
        return True

    def _whole_trees(self, max_depth: int, max_leaves: int, best_first: bool) -> tuple[Any, ...] | None:
        """The arguments of grow_trees_cpu behind n_grown; None where it does not grow these trees."""
        n_trees, arrays, page, gradients = len(self.first_output), self.arrays, self._pages[0], self._gradients
        columns, penalty = self._columns, self.plan.penalty
        most, first_depth, light_rows = most_leaves(max_depth, max_leaves, page.n_rows), 0, 0
        if self._binned.packing is not None and gradients.is_refined:
            return None
        if best_first:
            light_rows = self._light_rows()
            most_heavy = max(page.n_rows // (light_rows + 1), 1)
            n_nodes, n_slots = room_for_leaves(n_trees, most, most_heavy, self._n_threads)
            n_held, capacity = n_slots, self._leaves_capacity
        else:
            first_depth = max_depth = max_depth or most
            n_wide = n_trees << min(max_depth - 1, 60)  # nodes of the last level but one
            if self._binned.packing is None:
                goes_by_steps = self._walks(min(n_wide, n_trees * most))  # its widest level may be a walk
            else:
                goes_by_steps = histogram.FLUSH_ROWS <= page.n_rows < PACKED_NODE_ROWS * n_wide // n_trees
            if goes_by_steps:
                return None
            n_nodes, n_slots, n_full = 2 * n_trees * most, min(n_trees * most, n_wide), 4 * n_wide
            if n_full <= WHOLE_NODES and max_leaves == 0 and (self._n_threads > 1 or n_full > 4 * self._levels_in_cache):
                first_depth, n_nodes = self._first_depth(n_trees, max_depth), n_full
                n_slots = count_slots(n_trees, max_depth, first_depth, self._n_threads)
            capacity, n_held = self._whole_capacity, n_slots
            if self._n_threads > 1:
                n_held = max(n_slots, min(n_nodes // 4, FURTHER_MEMORY // self._histogram_bytes, capacity))
        if n_slots > capacity or n_nodes * arrays.cats.shape[1] > WHOLE_NODES:
            return None
        arrays.reserve(n_nodes)
        words, (columns_read, packing, cells, *records) = self._table.in_one_page()
        hist = self._whole_histograms(n_held, words)
        return (
            best_first, most, first_depth, self._n_leaves, max_depth, max_leaves, arrays.nodes, arrays.sums, arrays.left_sums,
            arrays.cats, arrays.counts, arrays.segments[0], page.lists, page.marks, words, columns_read, packing, cells,
            light_rows, *records, self._cuts.n_bins, page.gpair, page.by_row, gradients.n_limbs, hist, columns.offsets,
            columns.features, self.monotone, gradients.scales, self.first_output, penalty.reg_lambda, penalty.reg_alpha,
            penalty.max_delta_step, penalty.min_child_weight, self._feature_weights, self._member, *self._node_counts(),
            self._columns_of_sets(columns), self._rules, *self._prefix, self._gains, self._bins, self._order, self._keys,
            *self._light, self._table.notes, self._n_threads,
        )  # fmt: skip

    def _first_depth(self, n_trees: int, max_depth: int) -> int:
        """Where threads part (kernels/levels.py): earlier than subtree_depth says, if histograms are large, but not before there
        is a pair of siblings for each."""
        depth, n_threads = subtree_depth(n_trees, max_depth, self._n_threads), self._n_threads
        while depth > 1 and n_trees << (depth - 2) >= n_threads:
            if count_slots(n_trees, max_depth, depth, n_threads) * self._histogram_bytes <= NEAR_MEMORY:
                break
            depth -= 1
        return depth

    def _light_rows(self) -> int:
        """Rows up to which nodes of a sparse table have no histogram (kernels/light_nodes.py)."""
        if self._binned.representation is not Representation.SPARSE or self._walk is None or self.leaf_size > 1:
            return 0
        n_cells = int(self._cuts.offsets[-1]) + self._cuts.n_features
        if self._light[0].shape[1] < n_cells:
            shape = self._n_threads, n_cells // 64 + 1
            self._light = np.zeros((self._n_threads, n_cells, 2), np.int64), np.zeros(shape, np.uint64)
        columns = self._columns
        n_rows, n_entries = self._pages[0].n_rows, max(self._walk.n_entries(columns), 1)
        return int(columns.offsets[-1]) * n_rows // (LIGHT_VISITS * n_entries)

    def _whole_histograms(self, n: int, words: np.ndarray) -> np.ndarray:
        """Room for n histograms: packed ones where the sums of all rows are certain to stay within 32 bits, and these, which have
        as many bins for every feature, are not larger."""
        packs = self._binned.representation is Representation.DENSE and self._cuts.categorical is None
        packs &= self._binned.dtype == np.uint8
        packs = packs and self._hist.shape[1] == 1
        shape = histogram.packed_shape(len(self._columns.features))
        packs = packs and math.prod(shape) <= 2 * self._hist.shape[2] and self._pages[0].n_rows < histogram.FLUSH_ROWS
        if packs and not self._gradients.is_refined:
            if self._packed.shape[1:] != shape or len(self._packed) < n:
                self._packed = np.empty((n, *shape), np.int64)
            return self._packed
        if len(self._hist) < n:
            self._hist = self._fine_hist = np.empty((n, *self._hist.shape[1:]), np.int64)
        return self._hist

    def _node_counts(self) -> tuple[int, int]:
        """Features that a level draws, and a node of those."""
        return node_counts(len(self.plan.columns.features), self._params.colsample_bylevel, self._params.colsample_bynode)

    def frontier_size(self) -> int:
        return len(self._frontier)

    # -- Histograms -------------------------------------------------------------------------------------------------

    def build_histograms(self, batch: FrontierBatch) -> Array:
        frontier, arrays, first_slot = self._frontier[batch.begin : batch.end], self.arrays, batch.first_slot
        build, parents = np.empty(len(frontier), np.int32), np.empty(len(frontier), np.int32)
        n = nodes.choose_built(frontier, arrays.nodes, arrays.counts, first_slot, batch.subtract, build, parents)
        self._parents = parents[:n]
        if len(self._hist) < first_slot + n:  # in place, never held twice; zeros: workers exchange what lies beyond the bins, too
            size = min(self.histogram_capacity, (first_slot + n) * 9 // 8)
            self._hist.resize((size, *self._hist.shape[1:]), refcheck=False)
        built = self._hist[first_slot : first_slot + n]
        self._table.build(arrays, self.first_output, self._gradients.n_limbs, build[:n], first_slot, built)
        return built

    def subtract_histograms(self, batch: FrontierBatch) -> None:
        histogram.subtract_histograms_cpu(self._parents, batch.first_slot, self._hist, self._n_threads)

    def propose_candidates(self, batch: FrontierBatch) -> None:
        by_tree = self._params.proposals == "global"
        n_rows = len(self.first_output) if by_tree else len(self._hist)
        if len(self._proposed) < n_rows:  # a node's row is read before the next call only
            self._proposed = np.empty((n_rows, self._hist.shape[2]), np.uint8)
        propose_candidates_cpu(
            self._frontier[batch.begin : batch.end], self.arrays.nodes, by_tree, self._hist, self.plan.columns.offsets,
            self._params.max_bin, self._proposed, np.empty((self._n_threads, int(self._cuts.n_bins.max())), np.int64),
            self._n_threads,
        )  # fmt: skip

    def keep_candidates(self) -> None:
        if len(self.first_output) > 1:
            return
        candidates = Candidates.proposed(self._proposed[0], self.plan.columns, self._cuts)
        n_bins = len(candidates.ends)
        is_worth_it = is_worth_narrowing(n_bins, len(candidates.bins)) and candidates.fits(self._most_candidates)
        if not (is_worth_it and self._table.narrow(candidates)):
            return
        slot = int(self.arrays.nodes["slot"][0])
        if len(self._narrow_hist) <= slot:
            self._narrow_hist.resize((slot + 1, *self._narrow_hist.shape[1:]), refcheck=False)
        self._narrow_hist[slot, :, :n_bins] = candidates.sum_up(self._hist[slot])
        self._columns, self._candidates, self._hist = candidates.columns, candidates, self._narrow_hist

    # -- Splits -----------------------------------------------------------------------------------------------------

    def evaluate_splits(self, batch: FrontierBatch) -> None:
        frontier, arrays = self._frontier[batch.begin : batch.end], self.arrays
        columns, penalty, gain = self._columns, self.plan.penalty, self.plan.gain
        proposed = self._proposed if self._candidates is None else self._proposed[:0]
        n_blocks = count_blocks(len(frontier), len(columns.features), self._n_threads)
        mask = of_numbers = self._feature_mask(frontier)
        if len(columns_of_sets := self._columns_of_sets(columns)):
            of_numbers = mask.copy() if len(mask) else np.ones((1, len(columns.features)), np.uint8)
            of_numbers[:, columns_of_sets] = 0
        units, parameters = 1.0 / self._gradients.scales, np.array(gain.parameters, np.float64)
        evaluate_splits(gain.function)(
            frontier, arrays.nodes, arrays.sums, arrays.left_sums, self._hist, columns.offsets, columns.features, self.monotone,
            of_numbers, proposed, self._params.proposals == "global", units, self.first_output, penalty.reg_lambda,
            penalty.reg_alpha, penalty.max_delta_step, penalty.min_child_weight, parameters,
            np.empty((len(frontier), n_blocks), CANDIDATE), *self._prefix, self._gains, self._bins, self._n_threads,
        )  # fmt: skip
        if self._candidates is not None:
            found = frontier[arrays.nodes["gain"][frontier] != NO_GAIN]
            of_found = arrays.nodes["feature"][found], arrays.nodes["bin"][found]
            arrays.nodes["bin"][found] = self._candidates.fine_bins(*of_found)
        if len(columns_of_sets) == 0:
            return
        n_found = len(frontier), len(columns_of_sets)
        is_one = self._hist.shape[1] == 1
        evaluate_sets = evaluate_category_splits(gain.function) if is_one else evaluate_category_vectors_cpu
        of_gain = [parameters] if is_one else []
        evaluate_sets(
            frontier, arrays.nodes, arrays.sums, arrays.left_sums, arrays.cats, self._hist,
            columns_of_sets, columns.offsets, columns.features, mask, units, self.first_output,
            penalty.reg_lambda, penalty.reg_alpha, penalty.max_delta_step, penalty.min_child_weight, self._rules, *of_gain,
            np.empty(n_found, np.float64), np.empty(n_found, np.int64), self._order, self._keys, self._n_threads,
        )  # fmt: skip

    def _columns_of_sets(self, columns: ColumnDraw) -> np.ndarray:
        """int32: which of the columns drawn are split by sets."""
        categorical = self._cuts.categorical
        return np.flatnonzero([] if categorical is None else categorical[columns.features]).astype(np.int32)

    def _feature_mask(self, frontier: np.ndarray) -> np.ndarray:
        """uint8 (n, k): the features that these nodes may split on; without rows all of them."""
        s, features = self._params, self.plan.columns.features
        if not s.masks_features:
            return np.empty((0, len(features)), np.uint8)
        mask = np.empty((len(frontier), len(features)), np.uint8)
        mask_features_cpu(
            frontier, self.arrays.nodes, features, self._feature_weights, self._member, self.plan.key,
            *self._node_counts(), mask,
        )  # fmt: skip
        return mask

    def walks_columns(self, n_workers: int) -> bool:
        return n_workers == 1 and self._params.proposals is None and self._walks(len(self._frontier))

    def _walks(self, n_frontier: int) -> bool:
        """Whether a frontier of so many nodes, all on this worker, is searched by sorted columns."""
        if self._walk is None or self.leaf_size > 1:
            return False
        # Histograms visit half of the entries, and every bin of every node some three times; a walk visits every entry twice, one
        # far from another. Packed ones hardly notice the entries, but are undone bin by bin: measured, the two break even where
        # plain ones do. One thread of an Intel Xeon (2026-11-25), ms a round with 4, 1, ½ visits for a bin, and without walks:
        # 200k × 2000, one cell in 200 stored, depth 6 137, 124, 117, 130, depth 10 225, 212, 211, 279; one in a hundred 225, 177,
        # 159, 159; 20k × 30,000 111, 113, 128, 142; 100k × 200, one in 20, 51, 36, 33, 33. Of two threads ½ is the slower one.
        # Walks need no memory: 200k × 2000 of depth 10, 252 -> 175 MB. One-hot categories, packed, walks only -> with histograms:
        # 316 -> 42 ms. On an AMD EPYC (Zen 4, 2026-11-28), 1 -> ½ visits, one thread and two: 200k × 500, one cell in 50, depth 6
        # 54 -> 39, 34 -> 25, depth 10, of labels hard to learn, 110 -> 75, 71 -> 60. But of wider histograms 200k × 2000, one in
        # 200, 91 -> 74, 50 -> 49 and 100 MB more; 20k × 30,000, one in 500, 91 -> 100, 55 -> 62.
        n_bins = int(self.plan.columns.offsets[-1])
        n_visits = n_frontier * n_bins * BIN_VISITS // (2 if n_bins <= CACHED_BINS else 1)
        return self._binned.representation is Representation.SORTED or n_visits > self._walk.n_entries(self.plan.columns)

    def walk_columns(self) -> None:
        assert self._walk is not None
        tree_of, penalty, gain = self.arrays.nodes["tree"][self._frontier], self.plan.penalty, self.plan.gain
        for tree in np.unique(tree_of):
            frontier, output = self._frontier[tree_of == tree], int(self.first_output[tree])
            frontier = self._walk.worth_searching(frontier, output, self.arrays, self._gradients, penalty)
            if len(frontier):
                self._walk.search(
                    frontier, output, self.arrays, self._gradients, self.plan.columns, self._feature_mask(frontier), penalty, gain
                )

    def select_level(self, max_depth: int, max_leaves: int) -> None:
        chosen = np.empty(len(self._frontier), np.int32)
        n = nodes.select_depthwise(self._frontier, self.arrays.nodes, max_depth, max_leaves, self._n_leaves, chosen)
        self._selected = chosen[:n]

    def select_best(self, max_depth: int, max_leaves: int) -> None:
        """And of the next ones, as they look now, which _order_leaves drops where others came first."""
        n, self._best_limits = self.arrays.n_nodes, (max_depth, max_leaves)
        chosen, order = np.empty((2, n), np.int32)
        n_chosen, _ = nodes.select_lossguide(len(self.first_output), self.arrays.nodes, max_depth, max_leaves, chosen, order)
        self._selected = chosen[:n_chosen]

    def _order_leaves(self, max_depth: int, max_leaves: int) -> None:
        """Number the nodes as growth leaf by leaf makes them; those behind are split too early."""
        n, arrays = self.arrays.n_nodes, self.arrays
        chosen, order = np.empty((2, n), np.int32)
        _, self._n_ordered = nodes.select_lossguide(len(self.first_output), arrays.nodes, max_depth, max_leaves, chosen, order)
        is_early = np.ones(n, np.bool_)
        is_early[order[: self._n_ordered]] = False
        order[self._n_ordered :] = np.flatnonzero(is_early)
        arrays.renumber(order)

    def apply_splits(self) -> None:
        n, arrays, penalty = len(self._selected), self.arrays, self.plan.penalty
        arrays.reserve(arrays.n_nodes + 2 * n)
        nodes.apply_splits(
            self._selected, arrays.n_nodes, arrays.nodes, arrays.sums, arrays.left_sums, self.monotone, self._gradients.scales,
            self.first_output, penalty.reg_lambda, penalty.reg_alpha, penalty.max_delta_step,
        )  # fmt: skip
        self._frontier = np.arange(arrays.n_nodes, arrays.n_nodes + 2 * n, dtype=np.int32)
        arrays.n_nodes = self._n_ordered = arrays.n_nodes + 2 * n

    def partition_rows(self) -> Array:
        arrays, selected = self.arrays, self._selected
        children = slice(arrays.n_nodes - 2 * len(selected), arrays.n_nodes)
        arrays.counts[children] = 0
        chunks_of = [partition.list_chunks(selected, segments, self._n_threads) for segments in arrays.segments]
        numbers = [p for p, chunks in enumerate(chunks_of) if len(chunks)]  # pages without a row of these nodes are not read
        pages = self._table.walk(np.unique(arrays.nodes["feature"][selected]), numbers)
        for rows, chunks, segments in zip(self._pages, chunks_of, arrays.segments):
            if len(chunks):
                self._table.mark(*next(pages), arrays, selected, chunks)
            partition.place_children(selected, arrays.nodes, chunks, segments, arrays.counts)
            partition.move_rows_cpu(selected, arrays.nodes, chunks, rows.lists, segments, rows.marks, self._n_threads)
        next(pages, None)  # to its end: a walk that is ended as garbage swallows an interrupt
        return arrays.counts[children]

    # -- Leaves -----------------------------------------------------------------------------------------------------

    def sum_leaves(self) -> Array:
        arrays, gradients = self.arrays, self._gradients
        if self._best_limits is not None:
            self._order_leaves(*self._best_limits)
        self._leaf_sums = np.zeros((arrays.n_nodes, self.leaf_size, 2), np.int64)
        self.leaf_chunks, self._row_by_row = [], [self._goes_row_by_row(page) for page in self._pages]
        for p, page in enumerate(self._pages):
            chunks = list_leaf_chunks(arrays.n_nodes, arrays.nodes, arrays.segments[p])
            self.leaf_chunks.append(chunks)
            of_page = (
                arrays.nodes, arrays.segments[p], page.lists, gradients.grad[:, page.own], gradients.hess[:, page.own],
                gradients.leaf_scales, self.first_output,
            )  # fmt: skip
            if self._row_by_row[p]:
                sum_found_cpu(*of_page, page.gpair, self._leaf_sums, self._n_threads)
            else:
                sum_leaves_cpu(chunks, *of_page, self._leaf_sums, self._n_threads)
        return self._leaf_sums

    def _goes_row_by_row(self, page: PageRows) -> bool:
        """Whether the leaves of the page's rows are gone through row by row (kernels/row_leaves.py), not list by list. They are
        written over its gradients in fixed point, each row's, so that none may be left out."""
        return page.n_drawn == page.n_rows and self.arrays.n_nodes <= self._most_found

    def weigh_leaves(self) -> None:
        n, penalty, self._flat = self.arrays.n_nodes, self.plan.penalty, None
        self.weights = np.empty((n, self.leaf_size), np.float32)
        self.leaf_values = np.empty((n, self.leaf_size), np.float32)
        self.covers = np.empty(n, np.float64)
        weigh_trees(
            n, self._n_ordered, self.arrays.nodes, self.arrays.sums, self._leaf_sums, self._gradients.leaf_scales,
            self.first_output, penalty.gamma, penalty.min_child_weight, penalty.reg_lambda, penalty.reg_alpha,
            penalty.max_delta_step, self.plan.learning_rate, self.weights, self.leaf_values, self.covers,
        )  # fmt: skip

    def add_to_margin(self, p: int, margin: np.ndarray) -> None:
        """Add the leaf values to the margins of the rows of page p that the trees were grown on; before the next gradients are
        quantised."""
        arrays, page = self.arrays, self._pages[p]
        if self._row_by_row[p]:
            add_found_cpu(arrays.nodes, self.leaf_values, self.first_output, page.gpair, margin, self._n_threads)
            return
        update_margin_cpu(
            self.leaf_chunks[p], arrays.nodes, arrays.segments[p], page.lists, self.leaf_values, self.first_output, margin,
            self._n_threads,
        )  # fmt: skip

    @property
    def depth(self) -> int:
        """Of the deepest node."""
        return int(self.arrays.nodes["depth"][: self.arrays.n_nodes].max())

    def flat(self) -> FlatTrees:
        if self._flat is None:
            n_trees, cats, cuts = len(self.first_output), self.arrays.cats, self._cuts
            sets, nodes = None if cuts.categorical is None else cats.reshape(-1), np.empty(self.arrays.n_nodes, FLAT_NODE)
            flatten_trees_cpu(self.arrays.nodes, cuts.thresholds, cuts.offsets, cats.shape[1], nodes)
            self._flat = FlatTrees(nodes, self.leaf_values, np.arange(n_trees), self.first_output, sets)
        return self._flat
