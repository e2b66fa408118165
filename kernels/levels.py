"""Trees level by level, as parts of one call (kernels/whole_trees.py).

Below some depth a thread grows one subtree after another, depth first. Its rows and histograms stay in the thread's cache, and
threads do not wait for each other. What a node is split by depends on its own rows and way from the root, not on when it is.
One thread of an AMD EPYC, processor's ms a tree, level by level -> by subtrees: 450,000 × 28 of depth 6 34 -> 32, 8 56 -> 51,
10 102 -> 75; 7,000 × 28 of depth 6 2.3 -> 1.5, 10 5.4 -> 4.1 (busy machine).
"""

import numpy as np
from numba import int64

from gpuboost.kernels.allocation import empty
from gpuboost.kernels.jit import launch, parallel_kernel
from gpuboost.kernels.nodes import select_depthwise
from gpuboost.kernels.shares import claim_near, new_counters
from gpuboost.kernels.tree_steps import number_nodes, own_scratch, search_frontier, split_nodes

__all__ = ["count_slots", "grow_levels", "subtree_depth"]

PAIRS_PER_THREAD = 8  # subtrees that a thread finds at least, for balance


def subtree_depth(n_trees, max_depth, n_threads):
    """The depth from which on every thread grows one pair of siblings after another to the end. (Not with max_leaves: who comes
    first is counted by levels.)"""
    n_pairs = PAIRS_PER_THREAD * n_threads if n_threads > 1 else 1
    depth = 1
    while n_trees << (depth - 1) < n_pairs:
        depth += 1
    return min(depth, max_depth)


def count_slots(n_trees, max_depth, first_depth, n_threads):
    """Histograms that are held: of the levels above first_depth, and in each thread one for every level from there on."""
    return (n_trees << (first_depth - 1)) + n_threads * (max_depth - first_depth)


@parallel_kernel.part
def grow_levels(n_leaves, first_depth, scratch, n_threads, given):
    """Grow trees from their roots, which are the first nodes, to max_depth (> 0), and number the nodes level by level; returns
    how many there are. first_depth : subtree_depth, from 1 to max_depth. As far as there is room for histograms, trees of which a
    thread would get more than its share of the rows as one subtree grow by further levels."""
    max_depth, nodes = given.max_depth, given.nodes
    begin, n_nodes, held = int64(0), int64(n_leaves.size), int64(0)  # the frontier's first node; nodes; histograms held
    while begin < n_nodes and nodes[begin].depth < max_depth and _may_grow(n_leaves, given.max_leaves):
        if nodes[begin].depth >= first_depth:
            further = (n_nodes - begin) // 2 + n_threads * (max_depth - nodes[begin].depth - 1)
            if _has_share_for_all(begin, n_nodes, given.counts, n_threads) or held + further > given.hist.shape[0]:
                launch(n_threads, _grow_subtrees, (new_counters(n_threads), begin, n_nodes, held, n_leaves, scratch, given))
                return _number_by_levels(n_leaves.size, given)
        frontier, subtract = empty(n_nodes - begin, np.int32), held > 0
        for i in range(frontier.size):
            frontier[i] = begin + i
        n_selected = _split_frontier(frontier, n_nodes, held, subtract, n_leaves, scratch, n_threads, given).size
        held += frontier.size // 2 if subtract else frontier.size
        begin, n_nodes = n_nodes, n_nodes + 2 * n_selected
    return n_nodes


@parallel_kernel.part
def _may_grow(n_leaves, max_leaves):
    """Whether a tree has fewer leaves than it may have."""
    for tree in range(n_leaves.size):
        if max_leaves == 0 or n_leaves[tree] < max_leaves:
            return True
    return False


@parallel_kernel.part
def _has_share_for_all(begin, end, counts, n_threads):
    """Whether no pair of siblings has more rows than a thread's share."""
    largest, total = int64(0), int64(0)
    for left in range(begin, end, 2):
        n_rows = counts[left] + counts[left + 1]
        largest, total = max(largest, n_rows), total + n_rows
    return largest * n_threads <= total


@parallel_kernel.part
def _split_frontier(frontier, n_nodes, held, subtract, n_leaves, scratch, n_threads, given):
    """Search the nodes of a frontier, and split those that have one; their children's numbers begin at n_nodes. Returns which."""
    max_depth, max_leaves, nodes = given.max_depth, given.max_leaves, given.nodes
    search_frontier(frontier, held, subtract, scratch, n_threads, given)
    chosen = empty(frontier.size, np.int32)
    selected = chosen[: select_depthwise(frontier, nodes, max_depth, max_leaves, n_leaves, chosen)]
    split_nodes(selected, n_nodes, scratch, n_threads, given)
    return selected


@parallel_kernel.part
def _grow_subtrees(thread, counters, begin, end, held, n_leaves, scratch, given):
    """Grow what is below the pairs of siblings from begin to end, each in numbers of its own: as many as a whole subtree takes.

    Of a pair the left node's children come first, then the right one's. So histograms are wanted of one pair a level:

        slots   held above | first level | … | max_depth − 1         of each thread

    where the child that is built lies in its level's slot, and the other one takes its parent's.
    """
    max_depth, nodes, n_leaves = given.max_depth, given.nodes, n_leaves.copy()
    scratch = own_scratch(scratch, thread)
    first_depth = nodes[begin].depth
    room = (int64(4) << (max_depth - first_depth)) - 4
    first_slot = held + thread * (max_depth - first_depth) - first_depth
    waiting, frontier = empty(max_depth + 1, np.int64), empty(2, np.int32)  # left nodes of pairs
    while True:
        pair = claim_near(counters, thread, (end - begin) // 2)
        if 2 * pair >= end - begin:
            return
        n_nodes, n_waiting = end + pair * room, 1
        waiting[0] = begin + 2 * pair
        while n_waiting > 0:
            n_waiting -= 1
            left = waiting[n_waiting]
            frontier[0], frontier[1] = left, left + 1
            slot = first_slot + nodes[left].depth
            selected = _split_frontier(frontier, n_nodes, slot, np.bool_(True), n_leaves, scratch, int64(1), given)
            n_nodes += 2 * selected.size
            if nodes[left].depth + 1 < max_depth:
                for i in range(selected.size - 1, -1, -1):
                    waiting[n_waiting] = nodes[selected[i]].left
                    n_waiting += 1


@parallel_kernel.part
def _number_by_levels(n_trees, given):
    """Number the nodes below the roots as they come level by level; returns how many there are. The children of a node come when
    those of all before it have come."""
    nodes = given.nodes
    order, n = empty(nodes.size, np.int64), n_trees
    for i in range(n):
        order[i] = i
    i = 0
    while i < n:
        left = nodes[order[i]].left
        if left >= 0:
            order[n], order[n + 1] = left, left + 1
            n += 2
        i += 1
    number_nodes(order[:n], given)
    return n
