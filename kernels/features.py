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

from gpuboost.kernels.jit import kernel, parallel_kernel, scalar
from gpuboost.kernels.scalar import double_bits, log_double, mix32

TREE_DRAW, LEVEL_DRAW, NODE_DRAW = 0xFEA70001, 0xFEA70002, 0xFEA70003  # words that are no number of an output


def count_drawn(share, n):
    """How many of n features a share of them is; at least one. The 1e-6 is for shares like 0.29 of 100."""
    return max(1, int(share * n + 1e-6))


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


@kernel
def draw_features_cpu(features, weights, key, n_drawn, drawn):
    """Draw n_drawn of the features.

    features : int32 (k,), IN. weights : float32 (n_features,), IN, by feature; without any all weigh the same.
    key : 32 bits. drawn : uint8 (k,), OUT. 1 for each feature drawn.
    """
    drawn[:] = 1
    _keep_drawn(features, weights, uint32(key), features.size, n_drawn, drawn, np.empty(features.size, np.uint64))


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
