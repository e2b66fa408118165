"""Find the best split of every node from its histograms, missing values tried on both sides (Algorithms 1 and 3).

For feature f and bin b, with G_b, H_b the sums of bins ≤ b, G_m, H_m those of the missing rows and G, H those of the node:

    missing right:  L = (G_b, H_b)              missing left:  L = (G_b + G_m, H_b + H_m)       R = (G, H) − L
    gain = T(G_L)²/(H_L + λ) + T(G_R)²/(H_R + λ) − T(G)²/(H + λ)                 (Eq. 7 without its ½ and γ)

A candidate needs integer H_L, H_R > 0 and float H_L, H_R ≥ min_child_weight, and gain > max(1e-6, 2^−44 × the parent's
score): below that, the difference is rounding of the three terms (a pure node with large gradients would else be cut at random).
Ties: higher gain, lower feature, lower bin, missing left. The last bin (all present values left) is tried with missing
right only: "all present against missing" counts once.

Sums become float64 by an exact power of two; with several outputs per tree (vector leaves) their gains add up.
Floor: 16 bytes read per bin; two divisions and about 20 float64 operations per bin and direction.
"""

import numpy as np
from numba import float64, int64, prange

from gpuboost.kernels.jit import claim, parallel_kernel
from gpuboost.kernels.records import NO_GAIN, NUMERIC
from gpuboost.kernels.scalar import node_score, node_score_at, optimal_weight

MIN_GAIN = 1e-6  # XGBoost's kRtEps
RELATIVE_GAIN = 2.0**-44
FEATURE_BLOCK = 4  # features of one work item: enough items for few nodes, few candidates for many

CANDIDATE = np.dtype([("gain", np.float64), ("feature", np.int32), ("bin", np.int32), ("default_left", np.int64)], align=True)


@parallel_kernel
def evaluate_splits_cpu(
    frontier, slots, nodes, sums, left_sums, hist, offsets, feature_mask, inverse_scales, tree_outputs,
    reg_lambda, alpha, max_delta_step, min_child_weight, candidates, prefix, gains, n_threads,
):  # fmt: skip
    """Write the best split of each node: the split fields of its record, and the sums of its left child.

    frontier : int32 (n,), IN. Nodes to evaluate; slots : int32 (n,), IN, where their histograms lie.
    nodes : NODE (n_nodes,), INOUT. sums : int64 (n_nodes, n_outputs, 2), IN. left_sums : same, OUT.
    hist : int64 (n_slots, n_outputs, total_bins, 2), IN. offsets : int32 (n_features + 1,), IN.
    feature_mask : uint8 (1 or n, n_features), IN. 0 leaves a feature out, for all nodes or for one.
    inverse_scales : float64 (n_planes, 2), IN. Powers of two from fixed point to float, per output of the round.
    tree_outputs : int32 (n_trees,), IN. First output of each tree.
    candidates : CANDIDATE (n, n_blocks), SCRATCH. prefix : int64 (n_threads, n_outputs, 2, max_bins), SCRATCH.
    gains : float64 (n_threads, max_bins), SCRATCH.
    """
    n_blocks = candidates.shape[1]
    counter = np.zeros(1, np.int64)
    for thread in prange(n_threads):
        _evaluate_blocks(
            counter, n_blocks, frontier, slots, nodes, sums, hist, offsets, feature_mask, inverse_scales, tree_outputs,
            reg_lambda, alpha, max_delta_step, min_child_weight, candidates, prefix[thread], gains[thread],
        )  # fmt: skip
    for i in range(frontier.size):
        _choose(i, frontier, slots, nodes, sums, left_sums, hist, offsets, candidates)


@parallel_kernel.part
def _evaluate_blocks(
    counter, n_blocks, frontier, slots, nodes, sums, hist, offsets, feature_mask, inverse_scales, tree_outputs,
    reg_lambda, alpha, max_delta_step, min_child_weight, candidates, prefix, gains,
):  # fmt: skip
    while True:
        item = claim(counter)
        if item >= frontier.size * n_blocks:
            return
        i, block = item // n_blocks, item % n_blocks
        node = frontier[i]
        mask_row = min(i, feature_mask.shape[0] - 1)
        scales = inverse_scales[tree_outputs[nodes[node].tree] :]
        lower, upper = nodes[node].lower, nodes[node].upper
        best = candidates[i, block]
        best.gain = NO_GAIN
        if sums[node, 0, 1] * scales[0, 1] < 2.0 * min_child_weight:
            continue  # neither child could be heavy enough
        for feature in range(block * FEATURE_BLOCK, min((block + 1) * FEATURE_BLOCK, offsets.size - 1)):
            if feature_mask[mask_row, feature]:
                gain, split_bin, default_left = _best_of_feature(
                    hist[slots[i], :, offsets[feature] : offsets[feature + 1]], sums[node], scales,
                    reg_lambda, alpha, max_delta_step, min_child_weight, lower, upper, prefix, gains,
                )  # fmt: skip
                if gain > best.gain:
                    best.gain = gain
                    best.feature = feature
                    best.bin = split_bin
                    best.default_left = default_left


@parallel_kernel.part
def _best_of_feature(
    hist, sums, scales, reg_lambda, alpha, max_delta_step, min_child_weight, lower, upper, prefix, gains
):  # fmt: skip
    """(gain, bin, default_left) of one feature; gain is −inf where nothing qualifies."""
    n_outputs, n_bins, _ = hist.shape
    parent = float64(0.0)
    has_missing = False
    for output in range(n_outputs):
        grad, hess = int64(0), int64(0)
        for b in range(n_bins):
            grad += hist[output, b, 0]
            hess += hist[output, b, 1]
            prefix[output, 0, b], prefix[output, 1, b] = grad, hess
        has_missing |= grad != sums[output, 0] or hess != sums[output, 1]
        parent += _score(
            sums[output, 0] * scales[output, 0], sums[output, 1] * scales[output, 1],
            reg_lambda, alpha, max_delta_step, lower, upper,
        )  # fmt: skip
    best_gain, best_bin, best_left = NO_GAIN, int64(0), int64(1)
    threshold = max(MIN_GAIN, RELATIVE_GAIN * parent)
    # Without missing rows both directions are the same candidates, and the tie goes to missing left.
    for missing_left in range(1, -1 if has_missing else 0, -1):
        n_candidates = n_bins if has_missing and not missing_left else n_bins - 1
        for b in range(n_candidates):
            gains[b] = -parent
        for output in range(n_outputs):
            _add_gains(
                prefix[output, 0, :n_candidates], prefix[output, 1, :n_candidates],
                sums[output, 0] - prefix[output, 0, n_bins - 1] if missing_left else int64(0),
                sums[output, 1] - prefix[output, 1, n_bins - 1] if missing_left else int64(0),
                sums[output], scales[output], reg_lambda, alpha, max_delta_step, min_child_weight, lower, upper, gains,
            )  # fmt: skip
        for b in range(n_candidates):
            gain = gains[b]
            if gain > threshold and (gain > best_gain or (gain == best_gain and b < best_bin)):
                best_gain, best_bin, best_left = gain, b, missing_left
    return best_gain, best_bin, best_left


@parallel_kernel.part
def _add_gains(
    prefix_grad, prefix_hess, missing_grad, missing_hess, sums, scales,
    reg_lambda, alpha, max_delta_step, min_child_weight, lower, upper, gains,
):  # fmt: skip
    """gains[b] += the scores of both children of one output, −inf where one is too small. The left child is prefix + missing."""
    total_grad, total_hess = sums[0] * scales[0], sums[1] * scales[1]
    smallest = max(min_child_weight, scales[1])  # one unit of fixed point: integer H > 0
    if max_delta_step > 0.0 or lower > -np.inf or upper < np.inf:
        for b in range(prefix_grad.size):
            gl, hl = (prefix_grad[b] + missing_grad) * scales[0], (prefix_hess[b] + missing_hess) * scales[1]
            gr, hr = total_grad - gl, total_hess - hl
            score = _score(gl, hl, reg_lambda, alpha, max_delta_step, lower, upper) + _score(
                gr, hr, reg_lambda, alpha, max_delta_step, lower, upper
            )
            gains[b] = gains[b] + score if hl >= smallest and hr >= smallest else NO_GAIN
    else:
        for b in range(prefix_grad.size):  # no branches and no calls: vectorised by LLVM
            gl, hl = (prefix_grad[b] + missing_grad) * scales[0], (prefix_hess[b] + missing_hess) * scales[1]
            gr, hr = total_grad - gl, total_hess - hl
            score = node_score(gl, hl, reg_lambda, alpha) + node_score(gr, hr, reg_lambda, alpha)
            gains[b] = gains[b] + score if (hl >= smallest) & (hr >= smallest) else NO_GAIN


@parallel_kernel.part
def _score(grad, hess, reg_lambda, alpha, max_delta_step, lower, upper):
    if max_delta_step > 0.0 or lower > -np.inf or upper < np.inf:
        weight = optimal_weight(grad, hess, reg_lambda, alpha, max_delta_step, lower, upper)
        return node_score_at(grad, hess, weight, reg_lambda, alpha)
    return node_score(grad, hess, reg_lambda, alpha) if hess > 0.0 else 0.0


@parallel_kernel.part
def _choose(i, frontier, slots, nodes, sums, left_sums, hist, offsets, candidates):
    """The best candidate of a node over its blocks of features, in feature order, and the exact sums of its left child."""
    node = nodes[frontier[i]]
    node.gain = NO_GAIN
    for block in range(candidates.shape[1]):
        candidate = candidates[i, block]
        if candidate.gain > node.gain:
            node.gain = candidate.gain
            node.feature = candidate.feature
            node.bin = candidate.bin
            node.default_left = candidate.default_left
            node.kind = NUMERIC
    if node.gain == NO_GAIN:
        return
    first, last = offsets[node.feature], offsets[node.feature + 1]
    for output in range(sums.shape[1]):
        for k in range(2):
            left = int64(0)
            for b in range(first, first + node.bin + 1):
                left += hist[slots[i], output, b, k]
            if node.default_left:
                left += sums[frontier[i], output, k]
                for b in range(first, last):
                    left -= hist[slots[i], output, b, k]
            left_sums[frontier[i], output, k] = left
