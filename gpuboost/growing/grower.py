"""Grow the trees of one boosting round: the algorithm, once, for every device, way to search, growth policy and number of
workers.

Chen & Guestrin 2016, Algorithms 1–3 on binned values: histograms of fixed-point gradients with the sibling of each built node by
subtraction, or sorted columns (tree_method="exact": each distinct value has a bin); best splits with missing values on either
side. Algorithm 2 (tree_method="approx") adds one step, which proposes a few of the bins as candidates, from the root or from
every node. Rows may be drawn for a round (kernels/sampling.py). What a line computes is in the kernel of the same name.
"""

from typing import Any

from gpuboost.backend.base import Backend, GrowthSettings
from gpuboost.communicator import Communicator

__all__ = ["grow_trees"]


def grow_trees(
    backend: Backend, comm: Communicator, state: Any, settings: GrowthSettings, maxima: Any, round_number: int, capacity: int,
    learning_rate: float,
) -> Any:  # fmt: skip
    """Grow one tree per output from the state's gradients and add them to its margins; returns what backend.fetch_trees takes.

    maxima : bits of this worker's largest |g| and h. capacity : histograms that fit on every worker.
    The result does not depend on capacity: it only decides which histograms are built rather than subtracted.
    """
    backend.start_round(state, round_number, learning_rate)
    if settings.sampling is not None:
        maxima = draw_rows(backend, comm, state, settings.sampling)
    comm.allreduce_max(maxima)
    start_roots(backend, comm, state, maxima)
    held = False  # whether the histograms of all open leaves are at hand
    is_all = True  # whether the frontier is all open leaves: so are the roots, and levels
    proposes = settings.proposals is not None  # whether the nodes at hand propose candidates
    while (n_frontier := backend.frontier_size(state)) > 0:
        if backend.walks_columns(state, comm.size):
            backend.scan_columns(state)
            held = False
        else:
            held = search_histograms(backend, comm, state, n_frontier, capacity, held, is_all, proposes)
            proposes = settings.proposals == "local"
        is_all = settings.grow_policy == "depthwise"
        backend.select_splits(state)
        backend.apply_splits(state)
        comm.allreduce_sum(backend.partition_rows(state))
    comm.allreduce_sum(backend.sum_leaves(state))
    backend.prune(state)
    backend.weigh_leaves(state)
    backend.update_margin(state)
    return backend.finish_trees(state)


def search_histograms(
    backend: Backend, comm: Communicator, state: Any, n_frontier: int, capacity: int, held: bool, is_all: bool, proposes: bool
) -> bool:
    """Best splits of the frontier from histograms, in batches that fit; whether those of all open leaves are held for their
    children to come. Holding begins at a frontier of all open leaves (is_all): the siblings of others could not be subtracted."""
    n_held = backend.held_histograms(state)
    hold = n_held + n_frontier <= capacity and (held or (is_all and n_held == 0))
    batch = n_frontier if hold else max(2, capacity)
    for begin in range(0, n_frontier, batch):
        end = min(begin + batch, n_frontier)
        subtract = hold and held
        built = backend.build_histograms(state, begin, end, subtract, hold)
        comm.allreduce_sum(built)
        if subtract:
            backend.subtract_histograms(state)
        if proposes:
            backend.propose_candidates(state, begin, end)
        backend.evaluate_splits(state, begin, end)
    return hold


def draw_rows(backend: Backend, comm: Communicator, state: Any, sampling: str) -> Any:
    """Draw the rows of the round; returns the bits of this worker's largest |g| and h among them."""
    counts = None
    if sampling == "gradient_based":
        counts = backend.count_magnitudes(state)
        comm.allreduce_sum(counts)
    return backend.draw_rows(state, counts)


def start_roots(backend: Backend, comm: Communicator, state: Any, maxima: Any) -> None:
    """Round the gradients to fixed point and make the root of every tree."""
    sums = backend.quantise(state, maxima)
    comm.allreduce_sum(sums)
    refined = backend.refine_fixed_point(state, sums)
    if refined is not None:
        comm.allreduce_sum(refined)
        sums = refined
    backend.start_trees(state, sums)
