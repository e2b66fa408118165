"""Trees leaf by leaf, of each the leaf of the largest gain next, as parts of one call (kernels/whole_trees.py).

A thread grows one tree after another; where there are fewer trees than threads, all work on several leaves at once, and some are
split too early (nodes.select_lossguide).
"""

from heapq import heappop, heappush

import numpy as np
from numba import int64

from gpuboost.kernels.allocation import empty, zeros
from gpuboost.kernels.jit import claim, launch, parallel_kernel, scalar
from gpuboost.kernels.nodes import may_split, select_lossguide
from gpuboost.kernels.scalar import gain_rank
from gpuboost.kernels.structs import NO_GAIN
from gpuboost.kernels.tree_steps import number_nodes, own_scratch, search_frontier, split_nodes

__all__ = ["grow_best_first", "room_for_leaves"]


@scalar
def grows_ahead(n_trees, n_threads):
    """Whether leaves are split before it is known that they are the next ones."""
    return n_trees < n_threads


def room_for_leaves(n_trees, most_leaves, most_heavy, n_threads):
    """(n_nodes, n_slots): nodes that there may be, of trees of so many leaves, and histograms that are held of them. most_heavy :
    into how many parts, each large enough for one, a tree's rows can be split, at least 1. The root has one, and every other is
    built where such a part is split into two."""
    if grows_ahead.py_func(n_trees, n_threads):  # no more than most_leaves splits that are not certain, of each tree
        return 4 * n_trees * most_leaves, n_trees * min(2 * most_leaves, most_heavy)
    return 2 * n_trees * most_leaves, n_threads * min(most_leaves, most_heavy)


@parallel_kernel.part
def grow_best_first(n_leaves, most_leaves, scratch, n_threads, given):
    """Grow trees from their roots, which are the first nodes; returns (n_nodes, n_ordered): those from n_ordered on come from
    splits too early, the others are numbered tree after tree, as they came. most_leaves : of a tree, > 0."""
    n_trees = int64(n_leaves.size)
    if grows_ahead(n_trees, n_threads):
        return _grow_ahead(n_trees, most_leaves, scratch, n_threads, given)
    if most_leaves == 1:
        return n_trees, n_trees
    launch(n_threads, _grow_trees, (zeros(1, np.int64), n_leaves, most_leaves, given.hist.shape[0] // n_threads, scratch, given))
    n_nodes, order = n_trees, empty(n_trees * 2 * most_leaves, np.int64)
    for tree in range(n_trees):
        order[tree] = tree
        for i in range(2 * (n_leaves[tree] - 1)):
            order[n_nodes] = _first_child(tree, n_trees, most_leaves) + i
            n_nodes += 1
    if n_trees > 1:
        number_nodes(order[:n_nodes], given)
    return n_nodes, n_nodes


@scalar
def _first_child(tree, n_trees, most_leaves):
    """The number that the children of a root begin at: the nodes of each tree have numbers of their own behind the roots."""
    return n_trees + tree * 2 * (most_leaves - 1)


@parallel_kernel.part
def _grow_trees(thread, counter, n_leaves, most_leaves, n_slots, scratch, given):
    """Grow one tree after another, in the thread's share of the histograms."""
    scratch, n_trees = own_scratch(scratch, thread), n_leaves.size
    while True:
        tree = claim(counter)
        if tree >= n_trees:
            return
        n_leaves[tree] = _grow_tree(tree, _first_child(tree, n_trees, most_leaves), thread * n_slots, scratch, given)


@parallel_kernel.part
def _grow_tree(root, end, first_slot, scratch, given):
    """Grow one tree, whose next node gets the number ``end``; returns how many leaves it has."""
    max_depth, max_leaves, nodes = given.max_depth, given.max_leaves, given.nodes
    frontier, best, siblings, n_leaves = empty(1, np.int32), empty(1, np.int32), empty(2, np.int32), int64(1)
    frontier[0] = root
    slot = first_slot + search_frontier(frontier, int64(first_slot), np.bool_(False), scratch, int64(1), given)
    waiting = [(NO_GAIN, int64(root))]  # leaves that may be split, best first, the older of equals
    if not may_split(nodes, root, max_depth):
        waiting.pop()
    while len(waiting) > 0:
        best[0] = heappop(waiting)[1]
        split_nodes(best, end, scratch, int64(1), given)
        n_leaves, end = n_leaves + 1, end + 2
        if n_leaves == max_leaves:
            break
        if max_depth == 0 or nodes[end - 1].depth < max_depth:  # else they may not be split any more
            siblings[0], siblings[1] = end - 2, end - 1
            slot += search_frontier(siblings, slot, np.bool_(True), scratch, int64(1), given)
        for node in range(end - 2, end):
            if may_split(nodes, node, max_depth):
                heappush(waiting, (-gain_rank(nodes[node].gain), node))
    return n_leaves


@parallel_kernel.part
def _grow_ahead(n_trees, most_leaves, scratch, n_threads, given):
    """grow_best_first by steps of several leaves, all trees together."""
    max_depth, max_leaves, nodes = given.max_depth, given.max_leaves, given.nodes
    begin, n_nodes, held, n_steps = int64(0), n_trees, int64(0), int64(0)
    while begin < n_nodes and n_steps + 1 < most_leaves:
        frontier, subtract = empty(n_nodes - begin, np.int32), held > 0
        for i in range(frontier.size):
            frontier[i] = begin + i
        held += search_frontier(frontier, held, subtract, scratch, n_threads, given)
        chosen, places = empty(n_nodes, np.int32), empty(n_nodes, np.int32)
        n_chosen = select_lossguide(n_trees, nodes, max_depth, max_leaves, chosen, places)[0]
        split_nodes(chosen[:n_chosen], n_nodes, scratch, n_threads, given)
        begin, n_nodes, n_steps = n_nodes, n_nodes + 2 * n_chosen, n_steps + 1
    chosen, places = empty(n_nodes, np.int32), empty(n_nodes, np.int32)
    n_ordered = int64(select_lossguide(n_trees, nodes, max_depth, max_leaves, chosen, places)[1])
    order, is_early = empty(n_nodes, np.int64), empty(n_nodes, np.bool_)
    is_early[:] = True
    for i in range(n_ordered):
        order[i], is_early[places[i]] = places[i], False
    i = n_ordered
    for node in range(n_nodes):
        if is_early[node]:
            order[i] = node
            i += 1
    number_nodes(order, given)
    return n_nodes, n_ordered
