"""Grow the table of nodes: choose which splits to make, make them, prune, and lay out the trees that remain.

All of it works on a few thousand structs, so one thread does it. Selection is what tells the growth policies apart:

    depthwise   every node of the level that has a split, first come first served under max_leaves
    lossguide   per tree, the one open leaf of the largest gain_rank (ties: the older node). The CPU takes others with it, and
                undoes in the end what came too early. AMD EPYC, ms a tree of 255 leaves: 450,000 × 28 in 81 steps instead of 254,
                with 5 % more splits, on one thread 59 -> 48, on two 45 -> 31; 50,000 × 28 21 -> 12, with labels after Cauchy,
                whose gains tell nothing of those to come, 20 -> 24

Children inherit the bounds on the weights of all leaves below them. Where their parent's split is on a feature with a monotone
constraint, the middle of their weights becomes a bound of both, which orders all leaves below (XGBoost's TreeEvaluator):

    rising: upper[left] = lower[right] = (w_L + w_R)/2          falling: lower[left] = upper[right] = (w_L + w_R)/2

Of several outputs each has bounds, and where its weights do not go the constraint's way the one weight that is best for both
takes the place of the middle (XGBoost 3.4's way, too): both children then end at it.
"""

from heapq import heappop, heappush

import numpy as np
from numba import float32, float64, int32, int64, uint64

from gpuboost.kernels.allocation import zeros
from gpuboost.kernels.candidates import block_best
from gpuboost.kernels.cuda_common import block_max, block_prefix, block_step, cuda, cuda_kernel
from gpuboost.kernels.jit import inlined_scalar, kernel, scalar
from gpuboost.kernels.scalar import (
    bits_double,
    double_bits,
    gain_rank,
    is_too_light,
    keeps_order,
    middle_weight,
    shared_weight,
)
from gpuboost.kernels.structs import NO_GAIN, NUMERIC

FLOAT32_MAX = float(np.finfo(np.float32).max)
AHEAD = 8  # a leaf is split early if its place among the tree's splits, by what is known, lies so many before the last one for
# each that has to be split before it. 450k × 28, 255 leaves, 2 threads: 38 steps of 290 splits for 254, 36 ms; 5: 30 of 320, 38


@scalar
def count_rows(selected, segments):
    """int64: the rows of some nodes. selected : int32 (n,), IN. segments : int64 (n_nodes, 3), IN."""
    n_rows = int64(0)
    for node in selected:
        n_rows += segments[node, 1] - segments[node, 0]
    return n_rows


@kernel
def start_trees(n_trees, output_sums, first_output, nodes, sums, n_leaves):
    """The roots, nodes 0 to n_trees − 1. output_sums : int64 (n_outputs, ≥ 2), IN. sums : int64 (n_nodes, leaf_size, 2), OUT.
    n_leaves : int64 (n_trees,), OUT."""
    for tree in range(n_trees):
        start_node(nodes, tree, tree, -1, 0, -np.inf, np.inf)
        for own in range(sums.shape[1]):
            for k in range(2):
                sums[tree, own, k] = output_sums[first_output[tree] + own, k]
            if sums.shape[2] > 2:
                set_bounds(sums, tree, own, -np.inf, np.inf)
        n_leaves[tree] = 1


@scalar
def start_node(nodes, node, tree, parent, depth, lower, upper):
    """A leaf whose histogram and best split nobody knows yet."""
    nodes[node].gain = float64(NO_GAIN)
    nodes[node].lower = float64(lower)
    nodes[node].upper = float64(upper)
    nodes[node].tree = int32(tree)
    nodes[node].parent = int32(parent)
    nodes[node].left = int32(-1)
    nodes[node].depth = int32(depth)
    nodes[node].slot = int32(-1)


@scalar
def set_bounds(sums, node, output, lower, upper):
    """Put the bounds of an output's weight behind its sums."""
    sums[node, output, 2], sums[node, output, 3] = int64(double_bits(float64(lower))), int64(double_bits(float64(upper)))


@scalar
def bound_children(sums, parent, left, sign, output, scales, scale, reg_lambda, alpha, max_delta_step):
    """The bounds of one of several outputs in both children of a node. scales[scale] : of the output."""
    lower, upper = bits_double(uint64(sums[parent, output, 2])), bits_double(uint64(sums[parent, output, 3]))
    set_bounds(sums, left, output, lower, upper)
    set_bounds(sums, left + 1, output, lower, upper)
    if sign != 0:
        gl, hl = sums[left, output, 0] / scales[scale, 0], sums[left, output, 1] / scales[scale, 1]
        gr, hr = sums[left + 1, output, 0] / scales[scale, 0], sums[left + 1, output, 1] / scales[scale, 1]
        middle = middle_weight(gl, hl, gr, hr, reg_lambda, alpha, max_delta_step, lower, upper)
        if not keeps_order(sign, gl, hl, gr, hr, reg_lambda, alpha, max_delta_step, lower, upper):
            grad, hess = sums[parent, output, 0] / scales[scale, 0], sums[parent, output, 1] / scales[scale, 1]
            middle = shared_weight(grad, hess, reg_lambda, alpha, max_delta_step, lower, upper)
        low, high = (left, left + 1) if sign > 0 else (left + 1, left)
        set_bounds(sums, low, output, lower, middle)
        set_bounds(sums, high, output, middle, upper)


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
def select_lossguide(n_trees, nodes, max_depth, max_leaves, selected, order):
    """Grow the trees leaf by leaf as far as their splits are known, and choose leaves to split now: (n_selected, n_ordered).

    A leaf that is not split stops its tree for certain. It is chosen, and so are those that would come soon if nothing below it
    came first: most of them will be split, and all together cost few steps. What is split too early is undone in the end; of
    splits that are not certain yet a tree has max_leaves at most, so that it is never split more than twice as often as needed.

    nodes : NODE, IN, the roots first. max_depth, max_leaves : 0 means no limit. selected : int32 (≥ leaves,), OUT.
    order : int32 (≥ nodes,), OUT. The roots, and behind them the nodes of each tree as growth leaf by leaf makes them.
    """
    n_selected, n_ordered, n_early = 0, n_trees, zeros(n_trees, np.int64)  # early: splits that are not certain yet
    for node in range(order.size):
        n_early[nodes[node].tree] += int64(nodes[node].left >= 0)
    for tree in range(n_trees):
        order[tree] = tree
        waiting = [(-gain_rank(nodes[tree].gain), 0, tree)]  # best first, the older of equals
        n_leaves, n_nodes, n_chosen = 1, 1, 0
        if not may_split(nodes, tree, max_depth):
            waiting.pop()
        while len(waiting) > 0 and (max_leaves == 0 or n_leaves < max_leaves):
            _, _, node = heappop(waiting)
            n_leaves += 1
            left = nodes[node].left
            if left < 0:
                most = max(n_leaves + AHEAD * n_chosen, n_early[tree] + n_chosen)
                if n_chosen > 0 and 0 < max_leaves < most:
                    break
                selected[n_selected + n_chosen] = node
                n_chosen += 1
                continue
            n_early[tree] -= int64(n_chosen == 0)
            for child in range(left, left + 2):
                if n_chosen == 0:
                    order[n_ordered] = child
                    n_ordered += 1
                if may_split(nodes, child, max_depth):
                    heappush(waiting, (-gain_rank(nodes[child].gain), n_nodes, child))
                n_nodes += 1
        n_selected += n_chosen
    return n_selected, n_ordered


@scalar
def may_split(nodes, node, max_depth):
    """Whether a split of the node is known, or may be made."""
    return nodes[node].gain > NO_GAIN and (max_depth == 0 or nodes[node].depth < max_depth)


@kernel
def apply_splits(
    selected, n_nodes, nodes, sums, left_sums, monotone, scales, first_output, reg_lambda, alpha, max_delta_step
):  # fmt: skip
    """Give every selected node its two children: node i's are n_nodes + 2i and the next one.

    selected : int32 (n,), IN. nodes : NODE, INOUT. sums : int64 (capacity, leaf_size, 2 or 4), INOUT. left_sums : int64
        (capacity, leaf_size, 2), IN.
    monotone : int8 (n_features,), IN. Signs by feature; empty without constraints. scales : float64 (n_outputs, 2), IN, from
        float to fixed point. first_output : int32 (n_trees,), IN.
    """
    for i in range(selected.size):
        parent = selected[i]
        left = n_nodes + 2 * i
        nodes[parent].left = left
        for side in range(2):
            start_node(
                nodes, left + side, nodes[parent].tree, parent, nodes[parent].depth + 1, nodes[parent].lower, nodes[parent].upper
            )
        for output in range(sums.shape[1]):
            for k in range(2):
                sums[left, output, k] = left_sums[parent, output, k]
                sums[left + 1, output, k] = sums[parent, output, k] - left_sums[parent, output, k]
        sign = monotone[nodes[parent].feature] if monotone.size > 0 else 0
        if sums.shape[2] > 2:
            for output in range(sums.shape[1]):
                scale = first_output[nodes[parent].tree] + output
                bound_children(sums, parent, left, sign, output, scales, scale, reg_lambda, alpha, max_delta_step)
        elif sign != 0:
            output, right = first_output[nodes[parent].tree], left + 1
            middle = middle_weight(
                sums[left, 0, 0] / scales[output, 0], sums[left, 0, 1] / scales[output, 1],
                sums[right, 0, 0] / scales[output, 0], sums[right, 0, 1] / scales[output, 1],
                reg_lambda, alpha, max_delta_step, nodes[parent].lower, nodes[parent].upper,
            )  # fmt: skip
            low, high = (left, right) if sign > 0 else (right, left)
            nodes[low].upper, nodes[high].lower = middle, middle


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


@inlined_scalar
def prune(n_nodes, nodes, leaf_sums, scales, first_output, gamma, min_child_weight):
    """Undo, bottom-up, every split whose children are both leaves and whose gain is below gamma (Chen & Guestrin 2016, Eq. 7's
    γ as XGBoost applies it: gains are compared without the ½), and every split with a child lighter than min_child_weight by its
    exact sums: the search went by rounded ones. Sets ``leaf`` of every node to the leaf its rows end in.

    leaf_sums : int64 (n_nodes, leaf_size, 2), IN, of all nodes. scales : float64 (n_outputs, 2), IN, of these sums.
    first_output : int32 (n_trees,), IN.

    Children have larger numbers than their parents, so one pass down the numbers meets all children first, and one pass up
    meets all parents first.
    """
    for node in range(n_nodes - 1, -1, -1):
        left = nodes[node].left
        if left >= 0:
            pays = nodes[node].gain >= gamma or nodes[left].left >= 0 or nodes[left + 1].left >= 0
            first = first_output[nodes[node].tree]
            light = is_light(leaf_sums, left, scales, first, min_child_weight)
            if not pays or light or is_light(leaf_sums, left + 1, scales, first, min_child_weight):
                nodes[node].left = -1
    for node in range(n_nodes):
        parent = nodes[node].parent
        is_cut_off = parent >= 0 and (nodes[parent].left < 0 or nodes[parent].leaf != parent)
        nodes[node].leaf = nodes[parent].leaf if is_cut_off else node


@scalar
def is_light(leaf_sums, node, scales, first_output, min_child_weight):
    """Whether a node's sum of hessians, the mean over its outputs, is below min_child_weight."""
    return is_too_light(sum_of_hessians(leaf_sums, node, scales, first_output), min_child_weight * leaf_sums.shape[1])


@scalar
def sum_of_hessians(leaf_sums, node, scales, first_output):
    """Of a node, over all outputs of its tree."""
    hess = float64(0.0)
    for k in range(leaf_sums.shape[1]):
        hess += leaf_sums[node, k, 1] / scales[first_output + k, 1]
    return hess


@kernel
def number_kept(first_node, first_tree, nodes, new_ids, n_kept):
    """Renumber the nodes that pruning left, per tree and in creation order: siblings stay adjacent.

    Trees of several plans lie one plan after another. first_node, first_tree : int64 (n_plans + 1,), IN. Where those of each
    begin; its nodes and trees are numbered from 0 on.
    new_ids : int32 (n_nodes,), OUT. −1 for a pruned node. n_kept : int32 (n_trees,), OUT, zeroed by the caller.
    """
    for plan in range(first_node.size - 1):
        for node in range(first_node[plan], first_node[plan + 1]):
            parent, tree = nodes[node].parent, first_tree[plan] + nodes[node].tree
            new_ids[node] = -1
            if parent < 0 or (new_ids[first_node[plan] + parent] >= 0 and nodes[first_node[plan] + parent].left >= 0):
                new_ids[node] = n_kept[tree]
                n_kept[tree] += int32(1)


@kernel
def collect_nodes(
    first_node, first_tree, nodes, new_ids, begin, leaves, weights, covers, thresholds, offsets, left_child, parent, feature,
    threshold, default_left, leaf_value, gain, cover, weight,
):  # fmt: skip
    """Write the nodes that pruning left, tree by tree, after number_kept, which says what is not said here.

    begin : int64 (n_trees,), IN. Where each tree goes. leaves, weights : float32 (n_nodes, leaf_size), IN.
    covers : float64 (n_nodes,), IN.
    thresholds : float32 (total_bins,), IN. offsets : int32 (n_features + 1,), IN. First bin of each feature.
    Others : OUT, as the fields of model.Tree; leaf_value, weight : float32 (kept nodes, leaf_size).
    """
    for plan in range(first_node.size - 1):
        for node in range(first_node[plan], first_node[plan + 1]):
            if new_ids[node] < 0:
                continue
            struct, first = nodes[node], first_node[plan]
            i = begin[first_tree[plan] + struct.tree] + new_ids[node]
            parent[i] = new_ids[first + struct.parent] if struct.parent >= 0 else -1
            cover[i] = min(covers[node], FLOAT32_MAX)
            left_child[i], feature[i], threshold[i], default_left[i], gain[i] = -1, 0, 0.0, 0, 0.0
            for own in range(weights.shape[1]):
                weight[i, own] = weights[node, own]
                leaf_value[i, own] = leaves[node, own] if struct.left < 0 else float32(0.0)
            if struct.left >= 0:
                left_child[i], feature[i], default_left[i] = new_ids[first + struct.left], struct.feature, struct.default_left
                threshold[i] = thresholds[offsets[struct.feature] + struct.bin] if struct.kind == NUMERIC else 0.0
                gain[i] = min(struct.gain, FLOAT32_MAX)


@inlined_scalar
def sum_upwards(n_nodes, nodes, leaf_sums):
    """Add every node's sums to its parent's, children first: int64 (n_nodes, leaf_size, 2), INOUT."""
    for node in range(n_nodes - 1, 0, -1):
        parent = nodes[node].parent
        if parent >= 0:
            for output in range(leaf_sums.shape[1]):
                for k in range(2):
                    leaf_sums[parent, output, k] += int64(leaf_sums[node, output, k])


# ---------------------------------------------------------------------------------------------------------------------
# CUDA. Steps of one block, of which growth.py makes kernels: a level has at most a few thousand nodes of some 200 bytes, and its
# threads can wait for each other. The floor of each is the latency of a few dependent loads. The frontier is the last nodes made,
# progress.frontier to n_nodes; what is not there is skipped, so that the host may launch by upper bounds.


@cuda_kernel(
    "round_number: int64, seed: uint64, learning_rate: float64, progress: PROGRESS[:]", block=32
)
def start_round_kernel(round_number, seed, learning_rate, progress):
    """What changes from round to round, written where kernels read it."""
    if cuda.threadIdx.x == 0:
        progress[0].round = round_number
        progress[0].seed = seed
        progress[0].learning_rate = learning_rate
        progress[0].non_finite = int64(0)


@block_step(
    "output_sums: int64[:, :], first_output: int32[:], progress: PROGRESS[:], nodes: NODE[:], sums: int64[:, :, :], "
    "n_leaves: int64[:]",
)  # fmt: skip
def start_trees_step(output_sums, first_output, progress, nodes, sums, n_leaves):
    """One root for each tree. output_sums : int64 (n_outputs, 3), IN. sums : int64 (n_nodes, leaf_size, 2), OUT."""
    n_trees = int64(first_output.size)
    tree = int64(cuda.threadIdx.x)
    while tree < n_trees:
        start_node(nodes, tree, tree, int32(-1), int32(0), float64(-np.inf), float64(np.inf))
        for own in range(sums.shape[1]):
            for k in range(2):
                sums[tree, own, k] = output_sums[first_output[tree] + own, k]
            if sums.shape[2] > 2:
                set_bounds(sums, tree, own, float64(-np.inf), float64(np.inf))
        n_leaves[tree] = int64(1)
        tree += int64(cuda.blockDim.x)
    if cuda.threadIdx.x == 0:
        progress[0].n_nodes = n_trees
        progress[0].frontier = int64(0)
        progress[0].n_selected = int64(0)
        progress[0].depth = int64(0)


@block_step(
    "max_depth: int64, max_leaves: int64, progress: PROGRESS[:], nodes: NODE[:], n_leaves: int64[:], rank: int64[:], "
    "first_rank: int64[:], selected: int32[:]",
    uses_double=True,
)  # fmt: skip
def select_depthwise_step(max_depth, max_leaves, progress, nodes, n_leaves, rank, first_rank, selected):
    """select_depthwise for the frontier, whose nodes lie tree by tree.

    rank : int64 (≥ frontier,), SCRATCH. Splittable nodes before each. first_rank : int64 (n_trees,), SCRATCH. Those before a
    tree's first node: a node is the (rank − first_rank)-th of its tree. selected : int32 (≥ frontier,), OUT. progress : OUT
    n_selected.
    """
    partial = cuda.shared.array(32, int64)
    frontier, n_nodes = progress[0].frontier, progress[0].n_nodes
    n_before = int64(0)
    first = frontier
    while first < n_nodes:
        node = first + int64(cuda.threadIdx.x)
        splittable = int64(0)
        if node < n_nodes and nodes[node].gain > NO_GAIN and (max_depth == 0 or nodes[node].depth < max_depth):
            splittable = int64(1)
        before, total = block_prefix(splittable, partial)
        if node < n_nodes:
            rank[node - frontier] = n_before + before
            if node == frontier or nodes[node].tree != nodes[node - 1].tree:
                first_rank[nodes[node].tree] = n_before + before
        n_before += total
        first += int64(cuda.blockDim.x)
    cuda.syncthreads()  # ranks are written
    n_selected = int64(0)
    first = frontier
    while first < n_nodes:
        node = first + int64(cuda.threadIdx.x)
        chosen = int64(0)
        if node < n_nodes and nodes[node].gain > NO_GAIN and (max_depth == 0 or nodes[node].depth < max_depth):
            tree = nodes[node].tree
            if max_leaves == 0 or n_leaves[tree] + rank[node - frontier] - first_rank[tree] < max_leaves:
                chosen = int64(1)
        before, total = block_prefix(chosen, partial)
        if chosen == 1:
            selected[n_selected + before] = int32(node)
        n_selected += total
        first += int64(cuda.blockDim.x)
    cuda.syncthreads()  # all that are selected are written
    i = int64(cuda.threadIdx.x)
    while i < n_selected:
        cuda.atomic.add(n_leaves, nodes[selected[i]].tree, int64(1))
        i += int64(cuda.blockDim.x)
    if cuda.threadIdx.x == 0:
        progress[0].n_selected = n_selected


@block_step(
    "max_depth: int64, max_leaves: int64, progress: PROGRESS[:], nodes: NODE[:], n_leaves: int64[:], selected: int32[:]",
    uses_double=True,
)  # fmt: skip
def select_lossguide_step(max_depth, max_leaves, progress, nodes, n_leaves, selected):
    """One leaf of each tree: tree after tree, the largest gain of all its open leaves by a reduction of the block."""
    partial_gain, partial_node = cuda.shared.array(32, float64), cuda.shared.array(32, int32)
    n_selected = int64(0)
    for tree in range(n_leaves.size):
        gain, best = float64(NO_GAIN), int32(0)
        if max_leaves == 0 or n_leaves[tree] < max_leaves:
            node = int64(cuda.threadIdx.x)
            while node < progress[0].n_nodes:
                is_open = nodes[node].tree == tree and nodes[node].left < 0
                is_open = is_open and (max_depth == 0 or nodes[node].depth < max_depth)
                if is_open and gain_rank(nodes[node].gain) > gain_rank(gain):
                    gain, best = nodes[node].gain, int32(node)
                node += int64(cuda.blockDim.x)
        gain, best = block_best(gain, best, partial_gain, partial_node)
        if gain > NO_GAIN:
            if cuda.threadIdx.x == 0:
                selected[n_selected] = best
                n_leaves[tree] += int64(1)
            n_selected += 1
    if cuda.threadIdx.x == 0:
        progress[0].n_selected = n_selected


@block_step(
    "selected: int32[:], progress: PROGRESS[:], nodes: NODE[:], sums: int64[:, :, :], left_sums: int64[:, :, :], "
    "monotone: int8[:], scales: float64[:, :], first_output: int32[:], penalty: PENALTY[:]",
    uses_double=True,
)  # fmt: skip
def apply_splits_step(selected, progress, nodes, sums, left_sums, monotone, scales, first_output, penalty):
    """apply_splits; the children are the next frontier. A thread takes a selected node. progress : OUT frontier, n_nodes,
    depth."""
    partial = cuda.shared.array(32, int64)
    n_nodes, n_selected = progress[0].n_nodes, progress[0].n_selected
    depth = progress[0].depth
    i = int64(cuda.threadIdx.x)
    while i < n_selected:
        parent = selected[i]
        left = n_nodes + 2 * i
        nodes[parent].left = int32(left)
        depth = max(depth, int64(nodes[parent].depth) + 1)
        for side in range(2):
            start_node(
                nodes, left + side, nodes[parent].tree, parent, nodes[parent].depth + 1, nodes[parent].lower, nodes[parent].upper
            )
        for output in range(sums.shape[1]):
            for k in range(2):
                sums[left, output, k] = left_sums[parent, output, k]
                sums[left + 1, output, k] = sums[parent, output, k] - left_sums[parent, output, k]
        if sums.shape[2] > 2:
            for output in range(sums.shape[1]):
                scale = first_output[nodes[parent].tree] + output
                bound_children(
                    sums, parent, left, monotone[nodes[parent].feature], output, scales, scale, penalty[0].reg_lambda,
                    penalty[0].reg_alpha, penalty[0].max_delta_step,
                )  # fmt: skip
        elif monotone.size > 0 and monotone[nodes[parent].feature] != 0:
            output, right = first_output[nodes[parent].tree], left + 1
            middle = middle_weight(
                sums[left, 0, 0] / scales[output, 0], sums[left, 0, 1] / scales[output, 1],
                sums[right, 0, 0] / scales[output, 0], sums[right, 0, 1] / scales[output, 1],
                penalty[0].reg_lambda, penalty[0].reg_alpha, penalty[0].max_delta_step, nodes[parent].lower, nodes[parent].upper,
            )  # fmt: skip
            is_rising = monotone[nodes[parent].feature] > 0
            nodes[left if is_rising else right].upper = middle
            nodes[right if is_rising else left].lower = middle
        i += int64(cuda.blockDim.x)
    depth = block_max(depth, partial)
    if cuda.threadIdx.x == 0:
        progress[0].frontier = n_nodes
        progress[0].n_nodes = n_nodes + 2 * n_selected
        progress[0].depth = depth


@block_step(
    "begin: int64, n: int64, max_depth: int64, first_slot: int64, subtract: int32, progress: PROGRESS[:], nodes: NODE[:], "
    "counts: int64[:], build: int32[:], parents: int32[:]",
)  # fmt: skip
def choose_built_step(begin, n, max_depth, first_slot, subtract, progress, nodes, counts, build, parents):
    """choose_built for the nodes frontier + begin + i, i < n. build : int32, OUT, −1 where the node (or pair) may not be split
    any more; parents : int32, OUT. counts : int64 (≥ frontier,), IN. Rows of the frontier's nodes over all workers; read with
    subtract.
    progress : OUT n_built."""
    last = min(progress[0].frontier + begin + n, progress[0].n_nodes)
    n_built = max(last - progress[0].frontier - begin, int64(0))
    if subtract != 0:
        n_built = n_built // 2
    i = int64(cuda.threadIdx.x)
    while i < n_built:
        node = progress[0].frontier + begin + i * (int64(2) if subtract != 0 else int64(1))
        build[i], parents[i] = int32(-1), int32(-1)
        if max_depth == 0 or nodes[node].depth < max_depth:
            build[i] = int32(node)
            if subtract != 0:
                if counts[begin + 2 * i + 1] < counts[begin + 2 * i]:
                    build[i] = int32(node + 1)
                larger = 2 * node + 1 - build[i]
                parents[i] = nodes[nodes[node].parent].slot
                nodes[larger].slot = parents[i]
            nodes[build[i]].slot = int32(first_slot + i)
        i += int64(cuda.blockDim.x)
    if cuda.threadIdx.x == 0:
        progress[0].n_built = n_built


@block_step("progress: PROGRESS[:], nodes: NODE[:], leaf_sums: int64[:, :, :]")
def sum_upwards_step(progress, nodes, leaf_sums):
    """sum_upwards, level by level from the deepest: a thread adds both children of a node."""
    depth = progress[0].depth
    while depth > 0:
        depth -= 1
        node = int64(cuda.threadIdx.x)
        while node < progress[0].n_nodes:
            if nodes[node].depth == depth and nodes[node].left >= 0:
                left = nodes[node].left
                for output in range(leaf_sums.shape[1]):
                    for k in range(2):
                        leaf_sums[node, output, k] = leaf_sums[left, output, k] + leaf_sums[left + 1, output, k]
            node += int64(cuda.blockDim.x)
        cuda.syncthreads()  # this level's sums are there for the one above


@block_step(
    "progress: PROGRESS[:], nodes: NODE[:], leaf_sums: int64[:, :, :], scales: float64[:, :], first_output: int32[:], "
    "penalty: PENALTY[:]",
    uses_double=True,
)  # fmt: skip
def prune_step(progress, nodes, leaf_sums, scales, first_output, penalty):
    """prune, level by level: upwards to undo splits, then downwards to find the leaf of every node."""
    depth = progress[0].depth
    while depth > 0:
        depth -= 1
        node = int64(cuda.threadIdx.x)
        while node < progress[0].n_nodes:
            left = nodes[node].left
            if nodes[node].depth == depth and left >= 0:
                pays = nodes[node].gain >= penalty[0].gamma or nodes[left].left >= 0 or nodes[left + 1].left >= 0
                first = first_output[nodes[node].tree]
                light = is_light(leaf_sums, left, scales, first, penalty[0].min_child_weight)
                if not pays or light or is_light(leaf_sums, left + 1, scales, first, penalty[0].min_child_weight):
                    nodes[node].left = int32(-1)
            node += int64(cuda.blockDim.x)
        cuda.syncthreads()  # this level is pruned
    while depth <= progress[0].depth:
        node = int64(cuda.threadIdx.x)
        while node < progress[0].n_nodes:
            if nodes[node].depth == depth:
                parent = nodes[node].parent
                nodes[node].leaf = int32(node)
                if parent >= 0 and (nodes[parent].left < 0 or nodes[parent].leaf != parent):
                    nodes[node].leaf = nodes[parent].leaf
            node += int64(cuda.blockDim.x)
        cuda.syncthreads()  # this level's leaves are known to the one below
        depth += 1
