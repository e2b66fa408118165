"""Which features a tree, a level and a node may split on: random subsets, and constraints on which features may meet on a path.

Of the k features of a tree a level draws n_level, and of those a node draws n_node (XGBoost's ColumnSampler). A draw takes the
features with the smallest keys, so that it needs no state and no order:

    random     32 bits: hash of (key of the draw, feature);  u = 1 − (random + ½)/2^32 in (0, 1)
    order      random itself;  with weights the high half of the float64 −ln(u)/weight (Efraimidis & Spirakis 2006, A-Res: drawing
               one after another, each by its share of the weight that is left);  for weight 0 random/2 + 2^31: behind all others
    key        order · 2^32 + feature, unique

The draws' own keys go on from scalar.round_key: a tree's with TREE_DRAW, so that all trees of a round share it; a level's with
LEVEL_DRAW, tree and depth; a node's with NODE_DRAW, tree and the way from the node up to the root, 0 for a left child and 1 for a
right one. Nothing depends on which nodes grow side by side.

Interaction constraints are sets of features. At the root every feature is allowed; below, one that is on the path already, or in
a set that holds the whole path (XGBoost's FeatureInteractionConstraintHost). What was drawn but is not allowed is left out.

Floor: a hash per feature and pass, about log2(k) + 2 passes per draw; with weights a logarithm, some 40 float64 operations, too.
"""

import numpy as np
from numba import float64, int64, uint8, uint32, uint64

from gpuboost.kernels.allocation import empty
from gpuboost.kernels.cuda_common import block_sum, cuda, cuda_kernel, device_function
from gpuboost.kernels.jit import kernel, parallel_kernel, scalar
from gpuboost.kernels.scalar import double_bits, hash_word, log_double, mix32, round_key

TREE_DRAW, LEVEL_DRAW, NODE_DRAW = 0xFEA70001, 0xFEA70002, 0xFEA70003  # words that are no number of an output


def count_drawn(share, n):
    """How many of n features a share of them is; at least one. The 1e-6 is for shares like 0.29 of 100."""
    return max(1, int(share * n + 1e-6))


def node_counts(n_tree, share_of_tree, share_of_level):
    """(n_level, n_node): how many of a tree's features a level draws, and a node of those."""
    n_level = count_drawn(share_of_tree, n_tree)
    return n_level, count_drawn(share_of_level, n_level)


def member_words(sets, n_features):
    """uint32 (n_features, n_words), as is_allowed reads it, of sets of features; without rows where there are no sets."""
    member = np.zeros((n_features if sets else 0, max(1, -(-len(sets) // 32))), np.uint32)
    for s, features in enumerate(sets):
        member[list(features), s // 32] |= np.uint32(1 << s % 32)
    return member


@scalar
def feature_key(feature, weights, key):
    """uint64: the place of a feature among those that a draw takes in turn. weights : float32 (n_features,) or (0,)."""
    order = mix32(uint32(key) ^ uint32(feature))
    if weights.size > 0:
        weight = float64(weights[feature])
        if weight > float64(0.0):
            u = float64(1.0) - (float64(order) + float64(0.5)) * float64(2.0**-32)
            order = uint32(double_bits(-log_double(u) / weight) >> uint64(32))
        else:
            order = uint32(uint32(order >> uint32(1)) | uint32(0x80000000))
    return uint64(uint64(uint64(order) << uint64(32)) | uint64(feature))


@scalar
def level_key(node, nodes, key):
    """The key of the draw for the level of a node. key : of the round."""
    return hash_word(hash_word(hash_word(key, LEVEL_DRAW), nodes[node].tree), nodes[node].depth)


@scalar
def node_key(node, nodes, key):
    """The key of the draw for a node. key : of the round."""
    state = hash_word(hash_word(key, NODE_DRAW), nodes[node].tree)
    child, parent = int64(node), int64(nodes[node].parent)
    while parent >= int64(0):
        state = hash_word(state, child - int64(nodes[parent].left))
        child, parent = parent, int64(nodes[parent].parent)
    return state


@scalar
def is_allowed(feature, node, nodes, member):
    """Whether the constraints let a node split on a feature. member : uint32 (n_features, n_words), a bit for each set that holds
    the feature."""
    allowed = nodes[node].parent < 0
    for word in range(member.shape[1]):
        sets = member[feature, word]
        above = int64(nodes[node].parent)
        while above >= int64(0):
            sets &= member[nodes[above].feature, word]  # those that hold the path, too
            allowed |= nodes[above].feature == feature
            above = int64(nodes[above].parent)
        allowed |= sets != uint32(0)
    return allowed


@kernel
def draw_features_cpu(features, weights, key, n_drawn, drawn):
    """Draw n_drawn of the features.

    features : int32 (k,), IN. weights : float32 (n_features,), IN, by feature; without any all weigh the same.
    key : 32 bits. drawn : uint8 (k,), OUT. 1 for each feature drawn.
    """
    drawn[:] = 1
    _keep_drawn(features, weights, uint32(key), features.size, n_drawn, drawn, empty(features.size, np.uint64))


@kernel
def draw_columns_cpu(weights, n_bins, key, features, offsets):
    """Draw the features of the trees of a round, as many as there is room for.

    weights, key : as draw_features_cpu. n_bins : int32 (n_features,), IN. features : int32 (k,), OUT, ascending.
    offsets : int32 (k + 1,), OUT. Where the bins of each begin in a histogram (backend/plans.ColumnDraw).
    """
    n_features, n = n_bins.size, 0
    all_features, drawn = empty(n_features, np.int32), empty(n_features, np.uint8)
    for feature in range(n_features):
        all_features[feature] = feature
    draw_features_cpu(all_features, weights, key, features.size, drawn)
    offsets[0] = 0
    for feature in range(n_features):
        if drawn[feature]:
            features[n], offsets[n + 1] = feature, offsets[n] + n_bins[feature]
            n += 1


@kernel
def mask_features_cpu(frontier, nodes, features, weights, member, key, n_level, n_node, mask):
    """Mark the features that each node may split on.

    frontier : int32 (n,), IN. nodes : NODE, IN (tree, depth, parent; left and feature of those above).
    features : int32 (k,), IN, ascending. Those of the trees. weights : float32 (n_features,) or (0,), IN.
    member : uint32 (n_features, n_words), IN, see is_allowed. Without rows there are no constraints.
    key : scalar.round_key. n_level, n_node : features that a level draws, and a node of those.
    mask : uint8 (n, k), OUT. By column: 1 where the node may split on that feature.
    """
    keys = empty(features.size, np.uint64)
    for i in range(frontier.size):
        node = int64(frontier[i])
        mask[i] = 1
        _keep_drawn(features, weights, level_key(node, nodes, key), features.size, n_level, mask[i], keys)
        _keep_drawn(features, weights, node_key(node, nodes, key), n_level, n_node, mask[i], keys)
        if member.shape[0] > 0:
            for c in range(features.size):
                mask[i, c] &= uint8(is_allowed(features[c], node, nodes, member))


@parallel_kernel.part
def _keep_drawn(features, weights, key, n_here, n_drawn, mask, keys):
    """Leave n_drawn of the n_here features of a mask, uint8 (k,), INOUT. keys : uint64 (k,), SCRATCH.

    Bit by bit from the top, the largest key that is drawn: those that agree with it so far are n_here, and n_drawn of them are to
    be drawn. All whose next bit is 0 are drawn, or some of those and no other.
    """
    if n_drawn >= n_here:
        return
    for c in range(features.size):
        keys[c] = feature_key(features[c], weights, key)
    largest, bit = uint64(0), uint64(64)
    while n_here > n_drawn:
        bit -= uint64(1)
        n_zero = int64(0)
        for c in range(features.size):
            n_zero += int64((keys[c] >> bit == largest >> bit) & (mask[c] != 0))
        if n_zero < n_drawn:
            n_here, n_drawn = n_here - n_zero, n_drawn - n_zero
            largest |= uint64(1) << bit
        else:
            n_here = n_zero
    for c in range(features.size):
        mask[c] = uint8((mask[c] != 0) & (keys[c] >> bit <= largest >> bit))


# ---------------------------------------------------------------------------------------------------------------------
# CUDA. A block takes a node; each thread has the same columns in every pass, so that it reads only what it wrote itself.


@cuda_kernel(
    "begin: int64, n: int64, max_depth: int64, n_level: int64, n_node: int64, progress: PROGRESS[:], nodes: NODE[:], "
    "features: int32[:], weights: float32[:], member: uint32[:, :], mask: uint8[:, :]",
    block=256, registers=104, uses_double=True,
)  # fmt: skip
def mask_features_kernel(begin, n, max_depth, n_level, n_node, progress, nodes, features, weights, member, mask):
    """mask_features_cpu for the nodes frontier + begin + i, i < n. Rows of nodes that are not there, or as deep as max_depth
    (0: no limit), are not written.

    mask : uint8 (≥ n, k), OUT. Grid: a block strides over nodes. A pass is a byte and a hash per feature and two barriers; keys
    are hashed anew in each, which costs less than memory for them.
    """
    partial = cuda.shared.array(32, int64)
    key, k = round_key(progress[0].seed, progress[0].round), int64(features.size)
    i = int64(cuda.blockIdx.x)
    while i < n and progress[0].frontier + begin + i < progress[0].n_nodes:  # the same for all threads
        node = progress[0].frontier + begin + i
        if max_depth == 0 or nodes[node].depth < max_depth:
            column = int64(cuda.threadIdx.x)
            while column < k:
                mask[i, column] = uint8(1)
                column += int64(cuda.blockDim.x)
            own_key, n_here, n_drawn = level_key(node, nodes, key), k, n_level
            for _ in range(2):  # one call, as it is inlined
                _keep_drawn_block(i, features, weights, own_key, n_here, n_drawn, mask, partial)
                own_key, n_here, n_drawn = node_key(node, nodes, key), n_level, n_node
            column = int64(cuda.threadIdx.x) if member.shape[0] > 0 else k
            while column < k:
                if not is_allowed(features[column], node, nodes, member):
                    mask[i, column] = uint8(0)
                column += int64(cuda.blockDim.x)
        i += int64(cuda.gridDim.x)


@device_function
def _keep_drawn_block(i, features, weights, key, n_here, n_drawn, mask, partial):
    """_keep_drawn for row i of the mask. All threads call it."""
    if n_drawn >= n_here:  # the same for all threads
        return
    largest, bit = uint64(0), uint64(64)
    while n_here > n_drawn:
        bit = uint64(bit - uint64(1))
        n_zero = int64(0)
        column = int64(cuda.threadIdx.x)
        while column < features.size:
            if mask[i, column] != 0 and feature_key(features[column], weights, key) >> bit == largest >> bit:
                n_zero += int64(1)
            column += int64(cuda.blockDim.x)
        n_zero = block_sum(n_zero, partial)
        if n_zero < n_drawn:
            n_here, n_drawn = n_here - n_zero, n_drawn - n_zero
            largest = uint64(largest | uint64(uint64(1) << bit))
        else:
            n_here = n_zero
    column = int64(cuda.threadIdx.x)
    while column < features.size:
        if feature_key(features[column], weights, key) >> bit > largest >> bit:
            mask[i, column] = uint8(0)
        column += int64(cuda.blockDim.x)
