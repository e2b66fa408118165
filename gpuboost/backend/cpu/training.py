"""One training on the CPU."""

from collections.abc import Sequence

import numpy as np

from gpuboost.backend.contract import Array, Formula, Training, TrainingRows
from gpuboost.backend.cpu.candidates import is_worth_narrowing, most_candidates
from gpuboost.backend.cpu.gradients import CpuGradients
from gpuboost.backend.cpu.leaf_quantiles import CpuLeafQuantiles
from gpuboost.backend.cpu.predictor import ALL_ROWS
from gpuboost.backend.cpu.rows import list_page_rows, make_room, make_room_by_row
from gpuboost.backend.cpu.tables import open_table
from gpuboost.backend.cpu.trees import HISTOGRAM_MEMORY, CpuTrees
from gpuboost.backend.plans import Round
from gpuboost.backend.trees import Grown, as_words, collect_trees
from gpuboost.binned.matrix import BinnedMatrix, Representation
from gpuboost.kernels.predict_codes import finds_all_sooner
from gpuboost.kernels.structs import NODE
from gpuboost.model.tree import Tree
from gpuboost.params import Params, most_leaves
from gpuboost.storage.mapped import row_allocator
from gpuboost.storage.room import free_memory

__all__ = ["CODES_PER_THREAD", "CpuTraining", "busy_threads", "trainings_abreast"]

# Codes of a table for each thread that trains on it. Measured on two cores, ms a round of depth 6 with one thread -> with two. An
# AMD EPYC (2026-11-24): 7,000 × 7 0.28 -> 0.27, 20,000 × 7 0.44 -> 0.38, 3,000 × 28 0.42 -> 0.33, 7,000 × 28 0.57 -> 0.40. An
# Intel Xeon (2026-11-25), whose cores take longer to wake each other: 6,500 × 16 packed 0.53 -> 0.71, 20,000 × 7 0.81 -> 0.86,
# 7,000 × 28 0.86 -> 0.87, 20,000 × 28 1.69 -> 1.33. Less gains with leaf by leaf (1.77 -> 1.58), more with depth 10 (1.7 -> 1.1),
# five classes, exact and approximate search (1.5 times each).
CODES_PER_THREAD = 60_000
# A category is as much work as so many codes. The EPYC (2026-11-29): 5,000 × 20, of 30 categories each, 1.03 -> 0.77, leaf by
# leaf 2.2 -> 1.5; 2,000 × 10 likewise 0.50 -> 0.46, leaf by leaf 0.93 -> 0.95; 2,000 × 6 of 500 each 0.51 -> 0.46, 1.4 -> 1.1.
SET_CODES = 100
# In the lists of trees that grow together. 200,000 × 54, a tree for each of 7 classes, two threads: the peak of memory is 81 MB
# with all at once, 50 with two; the time is the same.
ROWS_AT_ONCE = 2**19
LIST_BYTES = 8  # a row and tree
# Rounds that are grown in one call (kernels/rounds.py): what takes some 200 ms, in which nobody can stop them, and at least one.
# The work of a tree is counted in codes, some 1.6 ns each where it is of depth 6: those of the rows, half of a leaf's bins, and
# what a row and a tree take besides. (20,000 × 28 1.1 ms a round, 1,000,000 × 1 16, 1,000 × 7 0.1; 5,000 × 10 with 255 leaves 2.)
# What Python does between kernels lies in no cache when they have gone through a large table. 450,000 × 28, ms a round one by one
# -> eight at once: of two threads of an AMD EPYC (Zen 5) 7.2 -> 6.4, of one 13.7 -> 13.3; 2,000,000 × 28, two 42.2 -> 41.7.
WORK_AT_ONCE, ROW_WORK, TREE_WORK = 2**27, 8, 2**15
ROUNDS_ALONE = 32  # one by one, after a round that could not be grown so
NODES_AT_ONCE = 2048  # that wait to become trees of the model. 1,000 × 7, one thread of an Intel Xeon: 0.21 -> 0.20 ms a round


def busy_threads(binned: BinnedMatrix, n_outputs: int, n_threads: int) -> int:
    """How many of n_threads a training on this table, of so many outputs, keeps busy."""
    return max(1, min(n_threads, n_outputs * _n_codes(binned) // CODES_PER_THREAD))


def _n_codes(binned: BinnedMatrix) -> int:
    """Of a table, and what sets of categories are as much work as."""
    if binned.cuts.categorical is None:
        return binned.n_codes
    return binned.n_codes + SET_CODES * int(np.clip(binned.cuts.n_categories, 0, binned.n_rows).sum())


def trainings_abreast(n_plans: int, rows: TrainingRows, params: Params, n_threads: int) -> int:
    """How many trainings grow n_plans plans of a round side by side: one for each thread that the table keeps busy, as far as
    half of the free memory goes. Pages in files are read for one alone."""
    binned = rows.binned
    if n_plans == 1 or not binned.pages.is_resident:
        return 1
    # Each has row lists and gradients, for every output, what it may copy of the records, and histograms.
    n_copies = 2 if params.proposals == "global" else 1  # with other codes, too
    n_bytes = 28 * len(rows.margin) * binned.n_rows + n_copies * binned.n_codes * binned.dtype.itemsize
    n_bytes += params.histogram_memory or HISTOGRAM_MEMORY
    return max(1, min(n_plans, busy_threads(binned, len(rows.margin), n_threads), free_memory() // (2 * n_bytes)))


def trees_at_once(binned: BinnedMatrix, params: Params, n_trees: int, n_threads: int) -> int:
    """How many of a round's trees grow together: so many that each thread has one, and more where their lists are short.

    One, where histograms are to hold the candidates that a tree has proposed for itself (candidates.py). All, where pages are
    read from files, once for every tree that does not grow with the others; and where features are drawn for a level or node,
    by a hash of the tree's number among those that grow together.
    """
    draws_features = min(params.colsample_bylevel, params.colsample_bynode) < 1
    if draws_features or not binned.pages.is_resident:
        return n_trees
    if params.proposals == "global" and is_worth_narrowing(
        int(most_candidates(params.max_bin, binned.cuts).sum()), binned.cuts.total_bins
    ):
        return 1
    return min(n_trees, max(n_threads, ROWS_AT_ONCE // max(binned.n_rows, 1)))


class CpuTraining(Training[Grown]):
    """NumPy arrays, and kernels on as many threads as the table keeps busy."""

    gradients: CpuGradients
    trees: CpuTrees
    trees_at_once: int

    def __init__(
        self, rows: TrainingRows, params: Params, n_trees: int, leaf_size: int, leaf_alphas: tuple[float, ...], n_threads: int
    ) -> None:
        binned = rows.binned
        self._cuts, self._leaf_size = binned.cuts, leaf_size
        self._first_outputs = range(0, n_trees * leaf_size, leaf_size)
        self._n_threads = n_threads = busy_threads(binned, len(rows.margin), n_threads)
        self.trees_at_once, self._n_trees = trees_at_once(binned, params, n_trees, n_threads), 0
        searched = params.searched_outputs(leaf_size)
        n_copies = 2 if searched > 1 else 1  # of what is in fixed point; beside it gradients and hessians
        self._row_bytes = 4 * (n_copies * n_trees * searched + 2 * len(rows.margin)) * binned.n_rows
        allocate = row_allocator(self._row_bytes + LIST_BYTES * self.trees_at_once * binned.n_rows)
        self._pages = list_page_rows(rows, n_trees * searched, params.sampling is not None, allocate)
        self._table = open_table(binned, params, self._pages, searched, n_threads)
        if self._table.lanes > 1:
            make_room_by_row(self._pages, n_trees * searched, allocate)
        self.margin = np.ascontiguousarray(rows.margin)
        self.gradients = CpuGradients(rows, params, self.margin, self._pages, n_threads, allocate)
        self.trees = CpuTrees(binned, params, n_trees, leaf_size, self.gradients, self._table, self._pages, n_threads)
        if leaf_alphas:
            self.leaf_quantiles = CpuLeafQuantiles(
                rows, leaf_alphas, self.margin, self.gradients, self.trees, self._pages, n_threads
            )
        is_whole = len(self._pages) == 1 and not len(self._pages[0].idle) and self.leaf_quantiles is None
        is_whole &= binned.pages.is_resident
        if params.sampling is not None or params.colsample_bytree < 1:
            is_whole &= binned.representation is Representation.DENSE and binned.cuts.categorical is None
        self._has_rounds, self._rounds_alone = is_whole and n_trees <= self.trees_at_once, 0
        self._n_rows = binned.n_rows
        self._tree_work = leaf_size * (_n_codes(binned) + ROW_WORK * binned.n_rows) + TREE_WORK

    def start_round(self, plan: Round) -> None:
        plan.require_outputs(self._first_outputs[plan.first_tree :][: len(plan.trees)], self._leaf_size)
        if self._n_trees < len(plan.trees):
            n_trees, n_rows = len(plan.trees), sum(page.n_rows for page in self._pages)
            make_room(self._pages, n_trees, row_allocator(self._row_bytes + LIST_BYTES * n_trees * n_rows))
            self._n_trees = n_trees
        self.gradients.plan = self.trees.plan = plan
        if not plan.goes_on:
            self._rounds_alone = max(self._rounds_alone - 1, 0)

    @property
    def may_grow_rounds(self) -> bool:
        return self._has_rounds and self._rounds_alone == 0

    def grow_rounds(
        self, plan: Round, n_rounds: int, max_depth: int, max_leaves: int, best_first: bool, objective: Formula
    ) -> list[Grown]:
        n_leaves = most_leaves(max_depth, max_leaves, self._n_rows)
        of_leaves = self._leaf_size * n_leaves * self._cuts.total_bins // 2
        n_at_once = WORK_AT_ONCE // (len(plan.trees) * (self._tree_work + of_leaves))
        self.start_round(plan)
        grown = self.trees.grow_rounds(max(min(n_rounds, n_at_once), 1), max_depth, max_leaves, best_first, objective)
        if not grown:
            self._rounds_alone = ROUNDS_ALONE
            return []
        self.plans_at_once = max(1, NODES_AT_ONCE // self.trees.arrays.n_nodes)
        return grown

    def update_margin(self, margin: Array) -> None:
        left_out = [p for p, rows in enumerate(self._pages) if rows.n_drawn < rows.n_rows]  # pages of which some are not drawn
        in_order = bool(left_out) and self._finds_all_sooner()
        for p, rows in enumerate(self._pages):
            if not in_order or rows.n_drawn == rows.n_rows:
                self.trees.add_to_margin(p, margin[:, rows.own])
        if not left_out:
            return
        flat = self.trees.flat()
        for p, page in self._table.walk(flat.features, left_out):
            rows = self._pages[p]
            for listed in [ALL_ROWS] if in_order else filter(len, (rows.idle, rows.drawn[rows.n_drawn :])):
                self._table.predict(p, page, flat, listed, margin[:, rows.own])

    def _finds_all_sooner(self) -> bool:
        """finds_all_sooner, where the table can."""
        n_rows, n_drawn = (sum(getattr(rows, name) for rows in self._pages) for name in ("n_rows", "n_drawn"))
        if not self._table.finds_runs:
            return False
        return bool(finds_all_sooner.py_func(n_rows, n_rows - n_drawn, self.trees.depth, self._leaf_size))

    def finish_trees(self) -> Grown:
        trees, arrays, n = self.trees, self.trees.arrays, self.trees.arrays.n_nodes
        self.plans_at_once = max(1, NODES_AT_ONCE // n)
        cats = None if self._cuts.categorical is None else arrays.cats[:n].copy()
        nodes = as_words(arrays.nodes[:n]).copy().view(NODE)
        return Grown(len(trees.first_output), nodes, trees.leaf_values, trees.weights, trees.covers, cats)

    def fetch_trees(self, pending: Sequence[Grown]) -> list[Tree]:
        return collect_trees(pending, self._cuts)
