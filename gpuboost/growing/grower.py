"""Grow the trees of one boosting round: the algorithm, once, for every device, way to search, growth policy and number of
workers.

Chen & Guestrin 2016, Algorithms 1–3 on binned values: histograms of fixed-point gradients with the sibling of each built node by
subtraction, or sorted columns (tree_method="exact": each distinct value has a bin); best splits with missing values on either
side. Algorithm 2 (tree_method="approx") adds one step, which proposes a few of the bins as candidates, from the root or from
every node. Rows may be drawn for a round (kernels/row_sampling.py). What a line computes is in the kernel of the same name.
"""

from collections.abc import Sequence

from gpuboost.backend.contract import Array, Formula, Gradients, LeafQuantiles, Training, Trees
from gpuboost.backend.plans import Round
from gpuboost.communicator import Communicator
from gpuboost.growing.policy import GrowthPolicy
from gpuboost.growing.pool import HistogramPool

__all__ = ["Grower"]


class Grower:
    """Grows rounds of trees on a training.

    proposals : whose histograms propose split candidates: "global" the roots', "local" every node's. None: every bin is one.
    """

    def __init__(self, training: Training, comm: Communicator, policy: GrowthPolicy, proposals: str | None) -> None:
        self._training, self._comm, self._policy, self._proposals = training, comm, policy, proposals
        at_once = training.trees.nodes_at_once if comm.size == 1 else None  # workers exchange all at once
        self._pool = HistogramPool(min(comm.allgather_int(training.trees.histogram_capacity)), at_once)

    def grow(self, plan: Round, maxima: Array | None, margin: Array | None = None) -> None:
        """Grow the trees of a plan from the training's gradients, and add them to these margins, if any.

        maxima : bits of this worker's largest |g| and h; None where the plan goes on.
        """
        training = self._training
        training.start_round(plan)
        if self._comm.size > 1:
            self._grow(plan, maxima, margin)
        else:
            training.grow(plan, margin, lambda: self._grow(plan, maxima, margin))

    @property
    def may_grow_rounds(self) -> bool:
        """Whether grow_rounds is worth asking for."""
        return self._comm.size == 1 and self._training.may_grow_rounds

    def grow_rounds(self, plan: Round, n_rounds: int, objective: Formula) -> Sequence[object]:
        """Grow several rounds in one go, as far as the training does that; returns their trees, as Training.finish_trees. (What
        kernels/rounds.py does in one call are the lines below, and the gradients before them.)"""
        return self._policy.grow_rounds(self._training, plan, n_rounds, objective)

    def _grow(self, plan: Round, maxima: Array | None, margin: Array | None) -> None:
        training, trees, comm = self._training, self._training.trees, self._comm
        if maxima is not None:
            self._sums = self._start_sums(training.gradients, plan, maxima)
        trees.start(self._sums)
        if comm.size > 1 or not self._policy.grow_at_once(trees):
            self._grow_by_steps(trees)
        comm.allreduce_sum(trees.sum_leaves())
        trees.weigh_leaves()
        if plan.refreshes_leaves and training.leaf_quantiles is not None:
            self._refresh_leaves(training.leaf_quantiles)
        if margin is not None:
            training.update_margin(margin)

    def _grow_by_steps(self, trees: Trees) -> None:
        """Level by level, or leaf by leaf. (What kernels/whole_trees.py does in one call are these lines.)"""
        comm, n_steps = self._comm, 0
        self._pool.start_round()
        while not self._policy.is_done(n_steps) and (n_frontier := trees.frontier_size()) > 0:
            if trees.walks_columns(comm.size):
                trees.walk_columns()
                self._pool.skip()
            else:
                self._search_histograms(trees, n_frontier, n_steps)
            self._policy.select(trees)
            trees.apply_splits()
            comm.allreduce_sum(trees.partition_rows())
            n_steps += 1

    def _start_sums(self, gradients: Gradients, plan: Round, maxima: Array) -> Array:
        """Draw the rows, round the gradients to fixed point, and sum them over all workers."""
        comm = self._comm
        if plan.rows is not None:
            counts = None
            if plan.rows.by_gradient:
                counts = gradients.count_magnitudes()
                comm.allreduce_sum(counts)
            maxima = gradients.draw_rows(counts)
        comm.allreduce_max(maxima)
        squares = sketched = None
        if plan.asks_for_squares:
            squares = gradients.sum_squares(maxima)
            comm.allreduce_sum(squares)
        if plan.sketch is not None:
            sketched = gradients.sketch(squares)
            comm.allreduce_max(sketched)
        sums = gradients.quantise(maxima, sketched)
        comm.allreduce_sum(sums)
        if (refined := gradients.refine(sums)) is not None:
            sums = refined
            comm.allreduce_sum(sums)
        if plan.chooses_noise and squares is not None:
            self._training.trees.choose_noise(squares, sums)
        return sums

    def _refresh_leaves(self, quantiles: LeafQuantiles) -> None:
        """Make the leaves quantiles of the residuals of all workers' rows."""
        for first_node, level in quantiles.start():
            self._comm.allreduce_sum(quantiles.count(first_node, level))
            quantiles.choose(first_node, level)
        quantiles.set_leaves()

    def _search_histograms(self, trees: Trees, n_frontier: int, n_steps: int) -> None:
        """Best splits of the frontier from histograms."""
        proposes = self._proposals == "local" or (self._proposals == "global" and n_steps == 0)
        policy = self._policy
        for batch in self._pool.batches(n_frontier, policy.has_all_leaves(n_steps), policy.is_done(n_steps + 1)):
            self._comm.allreduce_sum(trees.build_histograms(batch))
            if batch.subtract:
                trees.subtract_histograms(batch)
            if proposes:
                trees.propose_candidates(batch)
            trees.evaluate_splits(batch)
        if proposes and self._proposals == "global" and self._comm.size == 1 and not policy.is_done(n_steps + 1):
            trees.keep_candidates()
