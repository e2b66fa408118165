"""Find the best split of every node from its histograms, missing values tried on both sides (Algorithms 1 and 3).

For feature f and bin b, with G_b, H_b the sums of bins ≤ b, G_m, H_m those of the missing rows and G, H those of the node:

    missing right:  L = (G_b, H_b)              missing left:  L = (G_b + G_m, H_b + H_m)       R = (G, H) − L
    gain = T(G_L)²/(H_L + λ) + T(G_R)²/(H_R + λ) − T(G)²/(H + λ)                 (Eq. 7 without its ½ and γ)

A candidate needs H_L, H_R > 0 and ≥ min_child_weight, and gain > max(1e-6, 2^−44 × the parent's score): below that, the
difference is rounding of the three terms (a pure node with large gradients would else be cut at random).
The largest gain_rank wins; ties: lower feature, lower bin, missing left.

Where weights are held within bounds, T²/(H + λ) becomes −(2·G·w + (H + λ)·w² + 2·α·|w|) at the bounded weight w. On a feature
with a monotone constraint a candidate's weights must go its way: w_L ≤ w_R, or w_L ≥ w_R (XGBoost's TreeEvaluator). Bounds that
the children get (kernels/nodes.py) keep all leaves below to that order.

Missing left also needs H_b > 0: present rows beside the missing ones. Then "all present against missing" is a candidate
once, with missing right, whichever bins of the node are empty, as in exact greedy search, which tries present values only.
For the same reason the last bin (all present values left) is tried with missing right only. Where bins were proposed
(kernels/proposals.py), the others are no candidates; all present against missing always is one.

Sums become float64 by an exact power of two. With several outputs per tree (vector leaves) their scores add up, an output without
hessian in a child adds none there, and H_L, H_R and H_b are means over the outputs (as in XGBoost 3.4).

A user's gain (formulas/split_gain.py) takes the place of the formula above, no more: candidates, thresholds, ranks, ties and the
order of a constraint's weights stay, and what the built-in formula is compared by without a division is left out.

Most features cannot beat those before them, which a test without divisions tells (score_reaches). Floor: 16 bytes read per bin,
and about 12 float64 operations per bin and direction.
"""

from functools import cache

import numpy as np
from numba import float64, int32, int64, uint64

from gpuboost.kernels.cuda_common import (
    FULL_WARP,
    cuda,
    cuda_kernel,
    device_function,
    lane_number,
    n_warps,
    warp_number,
    warp_prefix,
    warp_sum,
)
from gpuboost.kernels.jit import claim, inlined_scalar, launch, parallel_kernel, scalar
from gpuboost.kernels.scalar import (
    bits_double,
    double_bits,
    fma,
    gain_rank,
    keeps_order,
    larger,
    node_score,
    node_score_at,
    optimal_weight,
)
from gpuboost.kernels.structs import NO_GAIN, NUMERIC

MIN_GAIN = 1e-6  # XGBoost's kRtEps
RELATIVE_GAIN = 2.0**-44
MIN_BLOCK = 4  # features of one work item at least
ITEMS_PER_THREAD = 4  # for balance; no more, since the features of an item need to beat those before them only

CANDIDATE = np.dtype([("gain", np.float64), ("column", np.int32), ("bin", np.int32), ("default_left", np.int64)], align=True)


@inlined_scalar
def count_blocks(n_nodes, n_features, n_threads):
    """Into how many work items the features of a node are cut."""
    return max(1, min(-(-n_features // MIN_BLOCK), -(-ITEMS_PER_THREAD * n_threads // n_nodes) if n_threads > 1 else 1))


@cache
def evaluate_splits(gain):
    """The kernel that finds the best split of every node.

    gain : None for the built-in one, else the scalar function (left_grad, left_hess, right_grad, right_hess, node_grad,
        node_hess, reg_lambda, alpha, max_delta_step, lower, upper, feature, parameters) -> float64 of a candidate and an output,
        −inf for none; int32 feature, float64 otherwise.

    Returned kernel: writes the best split of each node: the split fields of its struct, and the sums of its left child.

    frontier : int32 (n,), IN. Nodes to evaluate.
    nodes : NODE (n_nodes,), INOUT. Their slots say where their histograms lie.
    sums : int64 (n_nodes, leaf_size, 2), IN. left_sums : same, OUT.
    hist : int64 (n_slots, leaf_size, ≥ total_bins, 2), IN. Histograms of k features side by side.
    offsets : int32 (k + 1,), IN, where each begins. features : int32 (k,), IN. The feature of each, ascending.
    monotone : int8 (n_features,) or (0,), IN. By feature, whichever the histograms hold: +1 where the weight may only rise with
        it, −1 where it may only fall; empty without constraints.
    feature_mask : uint8 (0, 1 or n, k), IN. 0 leaves a feature out, for all nodes or for one; without rows none is left out.
    proposed : uint8 (n_rows, ≥ total_bins), IN. 0 leaves a bin out; without rows every bin is a candidate.
    by_tree : whether a node's row of it is its tree or its slot.
    inverse_scales : float64 (n_outputs, 2), IN. Powers of two from fixed point to float, per output of the round.
    first_output : int32 (n_trees,), IN. First output of each tree.
    parameters : float64 (k,), IN. Of a user's gain.
    candidates : CANDIDATE (n, n_blocks), SCRATCH. prefix_grad, prefix_hess : int64 (n_threads, leaf_size · max_bins), SCRATCH.
    gains : float64 (n_threads, 3, max_bins), SCRATCH: gains, hessians of left children, and of what is present there.
    bins : int32 (n_threads, max_bins), SCRATCH.
    """

    def evaluate_splits_cpu(
        frontier, nodes, sums, left_sums, hist, offsets, features, monotone, feature_mask, proposed, by_tree, inverse_scales,
        first_output, reg_lambda, alpha, max_delta_step, min_child_weight, parameters, candidates, prefix_grad, prefix_hess,
        gains, bins, n_threads,
    ):  # fmt: skip
        n_blocks = candidates.shape[1]
        counter = np.zeros(1, np.int64)
        args = (
            counter, n_blocks, frontier, nodes, sums, hist, offsets, features, monotone, feature_mask, proposed, by_tree,
            inverse_scales, first_output, reg_lambda, alpha, max_delta_step, min_child_weight, gain, parameters,
            candidates, prefix_grad, prefix_hess, gains, bins,
        )  # fmt: skip
        launch(n_threads, _evaluate_blocks, args)
        for i in range(frontier.size):
            _choose(i, frontier, nodes, sums, left_sums, hist, offsets, features, candidates)

    return parallel_kernel(evaluate_splits_cpu, gain)


@parallel_kernel.part
def _evaluate_blocks(
    thread, counter, n_blocks, frontier, nodes, sums, hist, offsets, features, monotone, feature_mask, proposed, by_tree,
    inverse_scales, first_output, reg_lambda, alpha, max_delta_step, min_child_weight, gain_of, parameters, candidates,
    prefix_grad, prefix_hess, gains, bins
):  # fmt: skip
    prefix_grad, prefix_hess, gains, bins = prefix_grad[thread], prefix_hess[thread], gains[thread], bins[thread]
    while True:
        item = claim(counter)
        if item >= frontier.size * n_blocks:
            return
        i, block = item // n_blocks, item % n_blocks
        node, mask_row = frontier[i], min(i, feature_mask.shape[0] - 1)
        row = nodes[node].tree if by_tree else nodes[node].slot
        scales = inverse_scales[first_output[nodes[node].tree] :]
        lower, upper = nodes[node].lower, nodes[node].upper
        best = candidates[i, block]
        best.gain = NO_GAIN
        parent, weight = float64(0.0), float64(0.0)
        for output in range(sums.shape[1]):
            weight += sums[node, output, 1] * scales[output, 1]
            parent += node_term(
                sums[node, output, 0] * scales[output, 0], sums[node, output, 1] * scales[output, 1],
                reg_lambda, alpha, max_delta_step, lower, upper,
            )  # fmt: skip
        least = min_child_weight * sums.shape[1]
        if weight < 2.0 * least:
            continue  # neither child could be heavy enough
        own, own_sums = hist[nodes[node].slot], sums[node]
        threshold = larger(MIN_GAIN, RELATIVE_GAIN * parent)
        bar = parent + threshold  # the score of both children that a feature must reach
        can_test = gain_of is None and sums.shape[1] == 1 and max_delta_step == 0.0 and lower == -np.inf and upper == np.inf
        grad, hess = own_sums[0, 0] * scales[0, 0], own_sums[0, 1] * scales[0, 1]
        smallest = larger(min_child_weight, scales[0, 1])
        for column in range(block * features.size // n_blocks, (block + 1) * features.size // n_blocks):
            first, last = int64(offsets[column]), int64(offsets[column + 1])
            if can_test and last - first == 1:  # one-hot: only present left is a candidate, 58 -> 10 ns where it cannot win
                gl, hl = own[0, first, 0] * scales[0, 0], own[0, first, 1] * scales[0, 1]
                if not (hl >= smallest and hess - hl >= smallest and score_reaches(gl, hl, grad, hess, reg_lambda, bar)):
                    continue
            if mask_row < 0 or feature_mask[mask_row, column]:
                sign = int64(monotone[features[column]]) if monotone.size > 0 else int64(0)
                gain, split_bin, default_left = _best_of_feature(
                    own, first, last, proposed, row, own_sums, scales, parent, weight, threshold, bar, can_test, reg_lambda,
                    alpha, max_delta_step, least, lower, upper, sign, features[column], gain_of, parameters,
                    prefix_grad, prefix_hess, gains, bins,
                )  # fmt: skip
                if gain_rank(gain) > gain_rank(best.gain):
                    best.gain = gain
                    best.column = column
                    best.bin = split_bin
                    best.default_left = default_left
                    bar = parent + larger(threshold, gain_rank(gain))


@parallel_kernel.part
def _best_of_feature(
    hist, first, last, proposed, row, sums, scales, parent, weight, threshold, bar, can_test, reg_lambda, alpha, max_delta_step,
    min_child_weight, lower, upper, sign, feature, gain_of, parameters, prefix_grad, prefix_hess, gains, bins,
):  # fmt: skip
    """(gain, bin, default_left) of one feature, whose bins are first to last, for children that weigh min_child_weight over all
    outputs; gain is −inf where no gain exceeds the threshold, or, where candidates can be tested, none reaches the bar.
    Arrays are handed over whole: slices count references."""
    n_outputs, n_bins = hist.shape[0], last - first
    has_missing = False
    n_kept = n_bins
    for output in range(n_outputs):
        grad, hess, n_here, base = int64(0), int64(0), n_bins, output * gains.shape[1]
        if proposed.shape[0] > 0:
            grad, hess, n_kept = _sum_proposed(hist, output, first, last, proposed, row, prefix_grad, prefix_hess, base, bins)
            n_here = int64(0)  # an else instead makes the loop 5 % slower
        for b in range(n_here):
            grad += hist[output, uint64(first + b), 0]
            hess += hist[output, uint64(first + b), 1]
            prefix_grad[uint64(base + b)], prefix_hess[uint64(base + b)] = grad, hess
        has_missing |= grad != sums[output, 0] or hess != sums[output, 1]
    n_bins = n_kept  # from here on these are all there are
    best_gain, best_bin, best_left = NO_GAIN, int64(0), int64(1)
    best_rank = NO_GAIN
    # Without missing rows both directions are the same candidates, and the tie goes to missing left.
    for missing_left in range(1, -1 if has_missing else 0, -1):
        n_candidates = n_bins if has_missing and not missing_left else n_bins - 1
        if n_candidates == 0 or can_test and not _any_reaches(
            prefix_grad, prefix_hess, n_candidates,
            sums[0, 0] - prefix_grad[n_bins - 1] if missing_left else int64(0),
            sums[0, 1] - prefix_hess[n_bins - 1] if missing_left else int64(0),
            sums[0, 0] * scales[0, 0], sums[0, 1] * scales[0, 1], scales[0, 0], scales[0, 1], reg_lambda, min_child_weight, bar,
        ):  # fmt: skip
            continue
        for b in range(n_candidates):
            gains[0, b] = -parent if gain_of is None else 0.0
            gains[1, b], gains[2, b] = 0.0, 0.0
        for output in range(n_outputs):
            base = output * gains.shape[1]
            end = base + n_bins - 1
            _add_gains(
                prefix_grad[base : base + n_candidates], prefix_hess[base : base + n_candidates],
                sums[output, 0] - prefix_grad[end] if missing_left else int64(0),
                sums[output, 1] - prefix_hess[end] if missing_left else int64(0),
                sums[output], scales[output], reg_lambda, alpha, max_delta_step, min_child_weight, lower, upper, sign, feature,
                gain_of, parameters, gains[0], gains[1], gains[2],
            )  # fmt: skip
        _drop_light(weight, min_child_weight, gains[0, :n_candidates], gains[1], gains[2])
        for b in range(n_candidates):
            gain, rank = gains[0, b], gain_rank(gains[0, b])
            if gain > threshold and (rank > best_rank or (rank == best_rank and b < best_bin)):
                best_rank, best_gain, best_bin, best_left = rank, gain, b, missing_left
    return best_gain, bins[best_bin] if proposed.shape[0] > 0 else best_bin, best_left


@parallel_kernel.part
def _any_reaches(
    prefix_grad, prefix_hess, n, missing_grad, missing_hess, total_grad, total_hess, grad_unit, hess_unit, reg_lambda,
    min_child_weight, bar,
):  # fmt: skip
    """Whether the score of any of n candidates may reach the bar: of 28 features, a few beat those before them. Costs a fifth of
    _add_gains and the search for the largest."""
    smallest = larger(min_child_weight, hess_unit)
    found = int64(0)
    for b in range(n):  # no branches and no calls: vectorised by LLVM
        gl = (prefix_grad[uint64(b)] + missing_grad) * grad_unit
        hl = (prefix_hess[uint64(b)] + missing_hess) * hess_unit
        reaches = score_reaches(gl, hl, total_grad, total_hess, reg_lambda, bar)
        found |= int64(reaches & (hl >= smallest) & (total_hess - hl >= smallest))
    return found != 0


@scalar
def score_reaches(gl, hl, total_grad, total_hess, reg_lambda, bar):
    """Whether G_L²/(H_L + λ) + G_R²/(H_R + λ) may be as large as a bar ≥ 0: necessary, hardly more than sufficient.

    Times both denominators, with d = H_L + λ, D = H + 2·λ and G_R = G − G_L, that is
    D·G_L² + d·(G² − 2·G·G_L − bar·D + bar·d) ≥ 0: no divisions, and all but G_L and d the same for a whole node. 1e-9 of each
    term is more than its rounding. α, which only lowers the scores, is left out.
    """
    d, total = hl + reg_lambda, total_hess + reg_lambda + reg_lambda
    constant = total_grad * total_grad * (1.0 + 1e-9) - bar * total * (1.0 - 1e-9)
    rest = fma(bar, d, fma(-2.0 * total_grad, gl, constant))
    return fma(d, rest, total * (1.0 + 1e-9) * gl * gl) > 0.0


@parallel_kernel.part
def _sum_proposed(hist, output, first, last, proposed, row, prefix_grad, prefix_hess, base, bins):
    """The sums of all bins of one output, and n: how many bins are proposed or the last. The sums up to each of these go to
    prefix_grad and prefix_hess from base on, their numbers to bins (int32, OUT), side by side."""
    grad, hess, n = int64(0), int64(0), int64(0)
    for b in range(last - first):  # without a branch: what the next bin overwrites is not kept
        grad += hist[output, first + b, 0]
        hess += hist[output, first + b, 1]
        prefix_grad[base + n], prefix_hess[base + n], bins[n] = grad, hess, b
        n += int64(proposed[row, first + b])
    return grad, hess, n + int64(1 - proposed[row, last - 1])


@parallel_kernel.part
def _add_gains(
    prefix_grad, prefix_hess, missing_grad, missing_hess, sums, scales, reg_lambda, alpha, max_delta_step, min_child_weight,
    lower, upper, sign, feature, gain_of, parameters, gains, weights, present,
):  # fmt: skip
    """gains[b] += the scores of both children of one output, or a user's gain, −inf where their order is not that of sign. The
    left child is prefix + missing; weights[b] += its hessian, present[b] += that of the prefix."""
    total_grad, total_hess = sums[0] * scales[0], sums[1] * scales[1]
    for b in range(prefix_grad.size):
        weights[b] += (prefix_hess[b] + missing_hess) * scales[1]
        present[b] += prefix_hess[b] * scales[1]
    if gain_of is not None:
        smallest = larger(min_child_weight, scales[1])  # one unit of fixed point: integer H > 0
        for b in range(prefix_grad.size):
            gl, hl = (prefix_grad[b] + missing_grad) * scales[0], (prefix_hess[b] + missing_hess) * scales[1]
            gr, hr = total_grad - gl, total_hess - hl
            if hl >= smallest and hr >= smallest:
                gains[b] += gain_of(
                    gl, hl, gr, hr, total_grad, total_hess, reg_lambda, alpha, max_delta_step, lower, upper, feature, parameters
                )
    elif max_delta_step > 0.0 or lower > -np.inf or upper < np.inf:
        for b in range(prefix_grad.size):
            gl, hl = (prefix_grad[b] + missing_grad) * scales[0], (prefix_hess[b] + missing_hess) * scales[1]
            gr, hr = total_grad - gl, total_hess - hl
            gains[b] += node_term(gl, hl, reg_lambda, alpha, max_delta_step, lower, upper) + node_term(
                gr, hr, reg_lambda, alpha, max_delta_step, lower, upper
            )
    else:
        for b in range(prefix_grad.size):  # no branches and no calls: vectorised by LLVM
            gl, hl = (prefix_grad[b] + missing_grad) * scales[0], (prefix_hess[b] + missing_hess) * scales[1]
            gr, hr = total_grad - gl, total_hess - hl
            left, right = node_score(gl, hl, reg_lambda, alpha), node_score(gr, hr, reg_lambda, alpha)
            gains[b] += (left if hl > 0.0 else 0.0) + (right if hr > 0.0 else 0.0)
    if sign != 0:
        for b in range(prefix_grad.size):
            gl, hl = (prefix_grad[b] + missing_grad) * scales[0], (prefix_hess[b] + missing_hess) * scales[1]
            gr, hr = total_grad - gl, total_hess - hl
            if not keeps_order(sign, gl, hl, gr, hr, reg_lambda, alpha, max_delta_step, lower, upper):
                gains[b] = NO_GAIN


@parallel_kernel.part
def _drop_light(total, min_child_weight, gains, weights, present):
    """−inf where a child is too light, or nothing present on the left. total : of the node's hessians."""
    for b in range(gains.size):
        if not is_candidate(weights[b], present[b], total, min_child_weight):
            gains[b] = NO_GAIN


@scalar
def is_candidate(weight, present, total, min_child_weight):
    """Whether a split leaves hessian enough on either side: ``weight`` on the left, ``present`` of it of rows that are not
    missing."""
    rest = total - weight
    return (present > 0.0) & (rest > 0.0) & (weight >= min_child_weight) & (rest >= min_child_weight)


@inlined_scalar
def node_term(grad, hess, reg_lambda, alpha, max_delta_step, lower, upper):
    """What the best weight within the bounds takes off a node; 0 for a node without hessian."""
    if hess <= float64(0.0):
        return float64(0.0)
    if max_delta_step > float64(0.0) or lower > -np.inf or upper < np.inf:
        weight = optimal_weight(grad, hess, reg_lambda, alpha, max_delta_step, lower, upper)
        return node_score_at(grad, hess, weight, reg_lambda, alpha)
    return node_score(grad, hess, reg_lambda, alpha)


@parallel_kernel.part
def _choose(i, frontier, nodes, sums, left_sums, hist, offsets, features, candidates):
    """The best candidate of a node over its blocks of features, in feature order, and the exact sums of its left child."""
    node, column = nodes[frontier[i]], int32(0)
    node.gain = NO_GAIN
    for block in range(candidates.shape[1]):
        candidate = candidates[i, block]
        if gain_rank(candidate.gain) > gain_rank(node.gain):
            node.gain = candidate.gain
            column = candidate.column
            node.feature = features[column]
            node.bin = candidate.bin
            node.default_left = candidate.default_left
            node.kind = NUMERIC
    if node.gain == NO_GAIN:
        return
    first, last = offsets[column], offsets[column + 1]
    for output in range(sums.shape[1]):
        for k in range(2):
            left = int64(0)
            for b in range(first, first + node.bin + 1):
                left += hist[node.slot, output, b, k]
            if node.default_left:
                left += sums[frontier[i], output, k]
                for b in range(first, last):
                    left -= hist[node.slot, output, b, k]
            left_sums[frontier[i], output, k] = left


# ---------------------------------------------------------------------------------------------------------------------
# CUDA. A warp scans the bins of one feature of one node, 32 at a time; then a warp chooses among the features of a node.


# Shared memory of a warp and output, int64 each: gradient and hessian of the bins before, those of the missing rows, and the bits
# of the float64 units of fixed point.
CARRY = 6
CARRY_BYTES = 8 * CARRY


@cache
def evaluate_splits_kernel(bounded, gain):
    """The kernel that finds the best split of every feature for the nodes frontier + begin + i, i < n.

    gain : as evaluate_splits.
    bounded : whether weights may be held away from their optimum (max_delta_step, monotone constraints). Without, a candidate
        costs half as much, and ``monotone`` is not read.
    by_tree : whether a node's row of ``proposed`` is its tree (1) or its slot (0).
    nodes : NODE, IN (slot, tree, depth, lower, upper). scales : float64 (n_outputs, 2), IN, from float to fixed point.
    penalty : PENALTY (1,), IN. max_depth : nodes so deep are not split; 0 for no limit.
    gains : float64 (≥ n, ≥ k), OUT, of each feature of the histograms, −inf for none. choices : int32 (≥ n, ≥ k), OUT. 2·bin +
        (missing right).
    Others as evaluate_splits_cpu. Dynamic shared memory: CARRY_BYTES per warp and output.

    16 bytes read per bin, twice (the second time from a cache); two divisions and 20 float64 operations per bin and direction.
    28 × 256 bins of 128 nodes are 15 MB, 3 µs at 4.8 TB/s, and 2·10^8 float64 operations, 7 µs at 30 T/s.
    """

    is_own, add_gain = gain is not None, add_gain_of(gain)

    def evaluate_splits(
        begin, n, max_depth, by_tree, progress, nodes, sums, hist, offsets, features, monotone, feature_mask, proposed,
        scales, first_output, penalty, parameters, gains, choices,
    ):  # fmt: skip
        carry = cuda.shared.array(0, int64)
        lane, n_columns, n_outputs = lane_number(), int64(features.size), int64(hist.shape[1])
        own = int64(cuda.threadIdx.x >> 5) * n_outputs * CARRY
        reg_lambda, alpha, min_child_weight = penalty[0].reg_lambda, penalty[0].reg_alpha, penalty[0].min_child_weight
        max_delta_step, lower, upper, sign = float64(0.0), float64(-np.inf), float64(np.inf), int64(0)
        if bounded:
            max_delta_step = penalty[0].max_delta_step
        item = warp_number()
        while item < n * n_columns:
            i, column = item // n_columns, item % n_columns
            item += n_warps()
            node = progress[0].frontier + begin + i
            best_gain, best_choice = float64(NO_GAIN), int32(0)
            mask_row = min(i, feature_mask.shape[0] - 1)
            if node < progress[0].n_nodes and (mask_row < 0 or feature_mask[mask_row, column] != 0):
                first_scale, slot = int64(first_output[nodes[node].tree]), nodes[node].slot
                if bounded:
                    lower, upper = nodes[node].lower, nodes[node].upper
                    sign = int64(monotone[features[column]]) if monotone.size > 0 else int64(0)
                row = int64(nodes[node].tree) if by_tree != 0 else int64(slot)
                first, n_bins = int64(offsets[column]), int64(offsets[column + 1] - offsets[column])
                total = float64(0.0)
                for output in range(n_outputs):
                    total += sums[node, output, 1] * (float64(1.0) / scales[first_scale + output, 1])
                least = min_child_weight * float64(n_outputs)
                heavy = total >= float64(2.0) * least
                if heavy and (max_depth == 0 or nodes[node].depth < max_depth):  # the same for all lanes
                    parent = float64(0.0)
                    for output in range(n_outputs):
                        grad, hess = int64(0), int64(0)
                        b = int64(lane)
                        while b < n_bins:
                            grad += hist[slot, output, first + b, 0]
                            hess += hist[slot, output, first + b, 1]
                            b += 32
                        grad, hess = sums[node, output, 0] - warp_sum(grad), sums[node, output, 1] - warp_sum(hess)
                        grad_unit = float64(1.0) / scales[first_scale + output, 0]
                        hess_unit = float64(1.0) / scales[first_scale + output, 1]
                        at = own + CARRY * output
                        if lane == 0:
                            carry[at], carry[at + 1], carry[at + 2], carry[at + 3] = int64(0), int64(0), grad, hess
                            carry[at + 4], carry[at + 5] = int64(double_bits(grad_unit)), int64(double_bits(hess_unit))
                        parent += node_term(
                            sums[node, output, 0] * grad_unit, sums[node, output, 1] * hess_unit,
                            reg_lambda, alpha, max_delta_step, lower, upper,
                        )  # fmt: skip
                    threshold = larger(float64(MIN_GAIN), float64(RELATIVE_GAIN) * parent)
                    tile = int64(0)
                    while tile < n_bins:
                        b = tile + int64(lane)
                        gain_left = float64(0.0) if is_own else -parent
                        gain_right = gain_left
                        weight, present = float64(0.0), float64(0.0)  # on the left: with the missing ones, and without
                        for output in range(n_outputs):
                            at = own + CARRY * output
                            grad, hess = int64(0), int64(0)
                            if b < n_bins:
                                grad, hess = hist[slot, output, first + b, 0], hist[slot, output, first + b, 1]
                            grad, hess = warp_prefix(grad), warp_prefix(hess)
                            cuda.syncwarp()  # lane 0 and lane 31 have written
                            grad += carry[at]
                            hess += carry[at + 1]
                            missing_grad, missing_hess = carry[at + 2], carry[at + 3]
                            grad_unit, hess_unit = bits_double(uint64(carry[at + 4])), bits_double(uint64(carry[at + 5]))
                            cuda.syncwarp()  # all lanes have read them
                            if lane == 31:
                                carry[at], carry[at + 1] = grad, hess
                            weight += (hess + missing_hess) * hess_unit
                            present += hess * hess_unit
                            gain_left = add_gain(
                                gain_left, grad + missing_grad, hess + missing_hess, sums[node, output, 0], sums[node, output, 1],
                                grad_unit, hess_unit, reg_lambda, alpha, max_delta_step, min_child_weight, lower, upper, sign,
                                features[column], parameters,
                            )  # fmt: skip
                            gain_right = add_gain(
                                gain_right, grad, hess, sums[node, output, 0], sums[node, output, 1],
                                grad_unit, hess_unit, reg_lambda, alpha, max_delta_step, min_child_weight, lower, upper, sign,
                                features[column], parameters,
                            )  # fmt: skip
                        kept = b < n_bins and (proposed.shape[0] == 0 or proposed[row, first + b] != 0)
                        # Bins ascend, and missing left comes first: ties go to the earlier candidate. Without missing rows both
                        # have the same gain.
                        is_left = kept and b < n_bins - 1 and is_candidate(weight, present, total, least)
                        if is_left and gain_left > threshold and gain_rank(gain_left) > gain_rank(best_gain):
                            best_gain, best_choice = gain_left, int32(2 * b)
                        kept = (kept or b == n_bins - 1) and is_candidate(present, present, total, least)
                        if kept and gain_right > threshold and gain_rank(gain_right) > gain_rank(best_gain):
                            best_gain, best_choice = gain_right, int32(2 * b + 1)
                        tile += 32
            best_gain, best_choice = warp_best(best_gain, best_choice)
            cuda.syncwarp()  # the carry may be written anew
            if lane == 0:
                gains[i, column] = best_gain
                choices[i, column] = best_choice

    evaluate_splits.__name__ = f"evaluate_splits_kernel_{'bounded' if bounded else 'free'}"
    return cuda_kernel(
        "begin: int64, n: int64, max_depth: int64, by_tree: int64, progress: PROGRESS[:], nodes: NODE[:], sums: int64[:, :, :], "
        "hist: int64[:, :, :, :], offsets: int32[:], features: int32[:], monotone: int8[:], feature_mask: uint8[:, :], "
        "proposed: uint8[:, :], scales: float64[:, :], first_output: int32[:], penalty: PENALTY[:], parameters: float64[:], "
        "gains: float64[:, :], choices: int32[:, :]",
        block=128, registers=168, uses_double=True, formula=gain,
    )(evaluate_splits)  # fmt: skip


def add_gain_of(gain_of):
    """gain + the scores of both children of one output, or a user's gain, −inf where that is no split: one candidate of
    _add_gains."""
    is_own = gain_of is not None

    @inlined_scalar
    def score(gl, hl, gr, hr, node_grad, node_hess, reg_lambda, alpha, max_delta_step, lower, upper, feature, parameters):
        left = node_term(gl, hl, reg_lambda, alpha, max_delta_step, lower, upper)
        return left + node_term(gr, hr, reg_lambda, alpha, max_delta_step, lower, upper)

    gain_of = score if gain_of is None else gain_of

    @inlined_scalar
    def add_gain(
        gain, left_grad, left_hess, grad, hess, grad_unit, hess_unit,
        reg_lambda, alpha, max_delta_step, min_child_weight, lower, upper, sign, feature, parameters,
    ):  # fmt: skip
        node_grad, node_hess = grad * grad_unit, hess * hess_unit
        gl, hl = left_grad * grad_unit, left_hess * hess_unit
        gr, hr = node_grad - gl, node_hess - hl
        smallest = larger(min_child_weight, hess_unit)
        if is_own and not (hl >= smallest and hr >= smallest):
            return gain
        if not keeps_order(sign, gl, hl, gr, hr, reg_lambda, alpha, max_delta_step, lower, upper):
            return float64(NO_GAIN)
        return gain + gain_of(
            gl, hl, gr, hr, node_grad, node_hess, reg_lambda, alpha, max_delta_step, lower, upper, feature, parameters
        )

    return add_gain


@device_function
def warp_best(gain, choice):
    """(gain, choice) of the lane with the largest gain_rank, the lowest choice of equals, in every lane. All lanes call it."""
    step = 16
    while step > 0:
        other_gain, other = cuda.shfl_xor_sync(FULL_WARP, gain, step), cuda.shfl_xor_sync(FULL_WARP, choice, step)
        rank, other_rank = gain_rank(gain), gain_rank(other_gain)
        if other_rank > rank or (other_rank == rank and other < choice):
            gain, choice = other_gain, other
        step >>= 1
    return gain, choice


@cuda_kernel(
    "begin: int64, n: int64, progress: PROGRESS[:], nodes: NODE[:], sums: int64[:, :, :], left_sums: int64[:, :, :], "
    "hist: int64[:, :, :, :], offsets: int32[:], features: int32[:], gains: float64[:, :], choices: int32[:, :]",
    block=128, registers=80, uses_double=True,
)  # fmt: skip
def choose_splits_kernel(begin, n, progress, nodes, sums, left_sums, hist, offsets, features, gains, choices):
    """The best feature of each node frontier + begin + i, i < n: in its struct, and the exact sums of its left child.

    nodes : NODE, INOUT. left_sums : int64 (n_nodes, leaf_size, 2), OUT. Others as evaluate_splits_kernel. A warp takes a node.
    """
    lane = lane_number()
    i = warp_number()
    while i < n and progress[0].frontier + begin + i < progress[0].n_nodes:
        node = progress[0].frontier + begin + i
        gain, best = float64(NO_GAIN), int32(0)
        column = int64(lane)
        while column < features.size:
            if gain_rank(gains[i, column]) > gain_rank(gain):
                gain, best = gains[i, column], int32(column)
            column += 32
        gain, best = warp_best(gain, best)
        if lane == 0:
            nodes[node].gain = gain
        if gain > NO_GAIN:
            split_bin, missing_left = int64(choices[i, best] >> 1), (choices[i, best] & 1) == 0
            first, last = int64(offsets[best]), int64(offsets[best + 1])
            if lane == 0:
                nodes[node].feature = features[best]
                nodes[node].bin = int32(split_bin)
                nodes[node].default_left = int32(1) if missing_left else int32(0)
                nodes[node].kind = int32(NUMERIC)
            for output in range(sums.shape[1]):
                for k in range(2):
                    # Missing left: all rows but those of the bins on the right.
                    left = int64(0)
                    b = first + int64(lane)
                    while b < last:
                        value = hist[nodes[node].slot, output, b, k]
                        if missing_left:
                            left -= value if b > first + split_bin else int64(0)
                        else:
                            left += value if b <= first + split_bin else int64(0)
                        b += 32
                    left = warp_sum(left)
                    if lane == 0:
                        left_sums[node, output, k] = left + (sums[node, output, k] if missing_left else int64(0))
        i += n_warps()
