"""Grow the table of nodes: choose which splits to make, make them, prune, and lay out the trees that remain.

All of it works on a few thousand records, so one thread does it. Selection is what tells the growth policies apart:

    depthwise   every node of the level that has a split, first come first served under max_leaves
    lossguide   per tree, the one open leaf with the largest gain (ties: the older node)
"""

import numpy as np
from numba import int32, int64

from gpuboost.kernels.jit import kernel
from gpuboost.kernels.records import NO_GAIN


@kernel
def select_depthwise(frontier, nodes, max_depth, max_leaves, n_leaves, selected):
    """Choose the nodes of the level to split; returns how many.

    frontier : int32 (n,), IN. The level's nodes, all evaluated. nodes : NODE, IN.
    max_depth, max_leaves : 0 means no limit.
    n_leaves : int64 (n_trees,), INOUT. Leaves of each tree so far.
    selected : int32 (n,), OUT.
    """
    n = 0
    for node in frontier:
        tree = nodes[node].tree
        if nodes[node].gain == NO_GAIN or (max_depth > 0 and nodes[node].depth >= max_depth):
            continue
        if max_leaves > 0 and n_leaves[tree] >= max_leaves:
            continue
        n_leaves[tree] += 1
        selected[n] = node
        n += 1
    return n


@kernel
def select_lossguide(n_nodes, nodes, max_depth, max_leaves, n_leaves, selected):
    """Choose each tree's open leaf with the largest gain; returns how many trees still grow. Arguments as select_depthwise."""
    n_trees = n_leaves.size
    best = np.full(n_trees, -1, np.int32)
    for node in range(n_nodes):
        record = nodes[node]
        if record.left >= 0 or record.gain == NO_GAIN or (max_depth > 0 and record.depth >= max_depth):
            continue
        tree = record.tree
        if max_leaves > 0 and n_leaves[tree] >= max_leaves:
            continue
        if best[tree] < 0 or record.gain > nodes[best[tree]].gain:
            best[tree] = node
    n = 0
    for tree in range(n_trees):
        if best[tree] >= 0:
            n_leaves[tree] += 1
            selected[n] = best[tree]
            n += 1
    return n


@kernel
def apply_splits(selected, n_nodes, nodes, sums, left_sums):
    """Give every selected node its two children: node i's are n_nodes + 2i and the next one.

    selected : int32 (n,), IN. nodes : NODE, INOUT. sums : int64 (capacity, n_outputs, 2), INOUT. left_sums : same, IN.
    """
    for i in range(selected.size):
        parent = selected[i]
        left = n_nodes + 2 * i
        nodes[parent].left = left
        for side in range(2):
            child = nodes[left + side]
            child.gain = NO_GAIN
            child.lower = nodes[parent].lower
            child.upper = nodes[parent].upper
            child.tree = nodes[parent].tree
            child.parent = parent
            child.left = -1
            child.depth = nodes[parent].depth + 1
            child.slot = -1
        for output in range(sums.shape[1]):
            for k in range(2):
                sums[left, output, k] = left_sums[parent, output, k]
                sums[left + 1, output, k] = sums[parent, output, k] - left_sums[parent, output, k]


@kernel
def choose_built(frontier, nodes, counts, first_slot, subtract, build, parents):
    """Decide which nodes of a frontier get their histogram from rows and which from their parent's.

    frontier : int32 (n,), IN. Roots, or pairs of children. nodes : NODE, INOUT (slot). counts : int64 (n_nodes,), IN.
    subtract : whether the parents' histograms are held. Then the child with fewer rows (left on a tie) is built into slot
        first_slot + pair, and the other one takes over its parent's slot; else frontier[i] is built into first_slot + i.
    build : int32 (n,), OUT. parents : int32 (n,), OUT. Slot that is to become parent − built, for each built node.
    Returns the number of nodes to build.
    """
    if not subtract:
        for i in range(frontier.size):
            nodes[frontier[i]].slot = first_slot + i
            build[i] = frontier[i]
        return frontier.size
    for pair in range(frontier.size // 2):
        left = frontier[2 * pair]
        smaller = left if counts[left] <= counts[left + 1] else left + 1
        larger = left + left + 1 - smaller
        nodes[smaller].slot = first_slot + pair
        nodes[larger].slot = nodes[nodes[left].parent].slot
        build[pair] = smaller
        parents[pair] = nodes[larger].slot
    return frontier.size // 2


@kernel
def prune(n_nodes, nodes, gamma):
    """Undo, bottom-up, every split whose children are both leaves and whose gain is below gamma (Chen & Guestrin 2016, Eq. 7's
    γ as XGBoost applies it: gains are compared without the ½). Sets ``leaf`` of every node to the leaf its rows end in.

    Children have larger numbers than their parents, so one pass down the numbers meets all children first, and one pass up
    meets all parents first. Only nodes whose children are leaves are pruned, so everything below a pruned node is a leaf.
    """
    for node in range(n_nodes - 1, -1, -1):
        left = nodes[node].left
        if left >= 0 and nodes[left].left < 0 and nodes[left + 1].left < 0 and nodes[node].gain < gamma:
            nodes[node].left = -1
    for node in range(n_nodes):
        parent = nodes[node].parent
        is_cut_off = parent >= 0 and nodes[parent].left < 0
        nodes[node].leaf = nodes[parent].leaf if is_cut_off else node


@kernel
def number_kept(n_nodes, nodes, new_ids, n_kept):
    """Renumber the nodes that pruning left, per tree and in creation order: siblings stay adjacent.

    new_ids : int32 (n_nodes,), OUT. −1 for a pruned node. n_kept : int32 (n_trees,), OUT, zeroed by the caller.
    """
    for node in range(n_nodes):
        parent = nodes[node].parent
        new_ids[node] = -1
        if parent < 0 or (new_ids[parent] >= 0 and nodes[parent].left >= 0):
            new_ids[node] = n_kept[nodes[node].tree]
            n_kept[nodes[node].tree] += int32(1)


@kernel
def sum_upwards(n_nodes, nodes, leaf_sums):
    """Add every node's sums to its parent's, children first: int64 (n_nodes, n_outputs, 2), INOUT."""
    for node in range(n_nodes - 1, 0, -1):
        parent = nodes[node].parent
        if parent >= 0:
            for output in range(leaf_sums.shape[1]):
                for k in range(2):
                    leaf_sums[parent, output, k] += int64(leaf_sums[node, output, k])
