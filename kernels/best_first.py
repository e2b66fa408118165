"""Trees leaf by leaf, of each the leaf of the largest gain next, as parts of one call (kernels/whole_trees.py).

A thread grows one tree after another; where there are fewer trees than threads, all work on several leaves at once, and some are
split too early (nodes.select_lossguide).
"""

import numpy as np
from numba import int64

from gpuboost.kernels.allocation import empty, zeros
from gpuboost.kernels.jit import claim, launch, parallel_kernel
from gpuboost.kernels.nodes import may_split, select_lossguide
from gpuboost.kernels.scalar import gain_rank
from gpuboost.kernels.tree_steps import number_nodes, own_scratch, search_frontier, split_nodes

__all__ = ["grow_best_first", "grows_ahead", "room_for_leaves"]


def grows_ahead(n_trees, n_threads):
    """Whether leaves are split before it is known that they are the next ones."""
    return n_trees < n_threads


def room_for_leaves(n_trees, most_leaves, n_threads):
    """(n_nodes, n_slots): nodes that there may be, of trees of so many leaves, and histograms that are held of them."""
    if grows_ahead(n_trees, n_threads):  # no more than most_leaves splits that are not certain, of each tree
        return 4 * n_trees * most_leaves, 2 * n_trees * most_leaves
    return 2 * n_trees * most_leaves, n_threads * most_leaves


@parallel_kernel.part
def grow_best_first(n_leaves, most_leaves, scratch, n_threads, given):
    """Grow trees from their roots, which are the first nodes; returns (n_nodes, n_ordered): those from n_ordered on come from
    splits too early, the others are numbered tree after tree, as they came. most_leaves : of a tree, > 0."""
    max_depth, max_leaves, nodes, sums, segments = given[0], given[1], given[2], given[3], given[7]
    n_trees = int64(n_leaves.size)
    if n_trees < n_threads:
        n_nodes = _grow_ahead(n_trees, most_leaves, scratch, n_threads, given)
        chosen, places = empty(n_nodes, np.int32), empty(n_nodes, np.int32)
        n_ordered = select_lossguide(n_trees, nodes, max_depth, max_leaves, chosen, places)[1]
        order, is_early = empty(n_nodes, np.int64), empty(n_nodes, np.bool_)
        is_early[:] = True
        for i in range(n_ordered):
            order[i], is_early[places[i]] = places[i], False
        i = n_ordered
        for node in range(n_nodes):
            if is_early[node]:
                order[i] = node
                i += 1
        number_nodes(order, nodes, segments, sums)
        return n_nodes, int64(n_ordered)
    launch(n_threads, _grow_trees, (zeros(1, np.int64), n_leaves, 2 * most_leaves, most_leaves, scratch, given))
    n_nodes, order = n_trees, empty(n_trees + 2 * n_leaves.sum(), np.int64)
    for tree in range(n_trees):
        order[tree] = tree
        for i in range(2 * (n_leaves[tree] - 1)):
            order[n_nodes] = n_trees + tree * 2 * most_leaves + i
            n_nodes += 1
    if n_trees > 1:
        number_nodes(order[:n_nodes], nodes, segments, sums)
    return n_nodes, n_nodes


@parallel_kernel.part
def _grow_ahead(n_trees, most_leaves, scratch, n_threads, given):
    """Grow all trees together, by steps of several leaves; returns how many nodes there are."""
    max_depth, max_leaves, nodes = given[0], given[1], given[2]
    begin, n_nodes, held, n_steps = int64(0), n_trees, int64(0), int64(0)
    while begin < n_nodes and n_steps + 1 < most_leaves:
        frontier, subtract = empty(n_nodes - begin, np.int32), held > 0
        for i in range(frontier.size):
            frontier[i] = begin + i
        search_frontier(frontier, held, subtract, scratch, n_threads, given)
        held += frontier.size // 2 if subtract else frontier.size
        chosen, places = empty(n_nodes, np.int32), empty(n_nodes, np.int32)
        n_chosen = select_lossguide(n_trees, nodes, max_depth, max_leaves, chosen, places)[0]
        split_nodes(chosen[:n_chosen], n_nodes, n_threads, given)
        begin, n_nodes, n_steps = n_nodes, n_nodes + 2 * n_chosen, n_steps + 1
    return n_nodes


@parallel_kernel.part
def _grow_trees(thread, counter, n_leaves, n_nodes, n_slots, scratch, given):
    """Grow one tree after another, each in n_nodes numbers of its own behind the roots, and n_slots histograms of the thread."""
    scratch = own_scratch(scratch, thread)
    while True:
        tree = claim(counter)
        if tree >= n_leaves.size:
            return
        n_leaves[tree] = _grow_tree(tree, n_leaves.size + tree * n_nodes, thread * n_slots, scratch, given)


@parallel_kernel.part
def _grow_tree(tree, begin, first_slot, scratch, given):
    """Grow one tree; returns how many leaves it has. Nodes that may not be split any more are not searched."""
    max_depth, max_leaves, nodes = given[0], given[1], given[2]
    frontier, best, end, n_leaves = empty(2, np.int32), empty(1, np.int32), begin, int64(1)
    frontier[0] = tree
    search_frontier(frontier[:1], first_slot, np.bool_(False), scratch, int64(1), given)
    best[0] = tree if may_split(nodes, tree, max_depth) else -1
    while best[0] >= 0 and n_leaves != max_leaves:
        split_nodes(best, end, int64(1), given)
        n_leaves += 1
        if n_leaves != max_leaves and (max_depth == 0 or nodes[end].depth < max_depth):
            frontier[0], frontier[1] = end, end + 1
            search_frontier(frontier, first_slot + n_leaves - 1, np.bool_(True), scratch, int64(1), given)
        end += 2
        best[0] = -1
        for node in range(begin, end):  # of equals the older one
            if nodes[node].left < 0 and may_split(nodes, node, max_depth):
                if best[0] < 0 or gain_rank(nodes[node].gain) > gain_rank(nodes[best[0]].gain):
                    best[0] = node
    return n_leaves
