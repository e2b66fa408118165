"""Find the best split of every node from its histograms, missing values tried on both sides (Algorithms 1 and 3).

For feature f and bin b, with G_b, H_b the sums of bins ≤ b, G_m, H_m those of the missing rows and G, H those of the node:

    missing right:  L = (G_b, H_b)              missing left:  L = (G_b + G_m, H_b + H_m)       R = (G, H) − L
    gain = T(G_L)²/(H_L + λ) + T(G_R)²/(H_R + λ) − T(G)²/(H + λ)                 (Eq. 7 without its ½ and γ)

A candidate needs H_L, H_R > 0 and ≥ min_child_weight, and gain > max(1e-6, 2^−44 × the parent's score): below that, the
difference is rounding of the three terms (a pure node with large gradients would else be cut at random).
The largest gain_rank wins; ties: lower feature, lower bin, missing left.

Empty bins between a node's own values make candidates of the same sums. Of those the split of a node that sends missing rows left
takes the highest, else the lowest: the gap goes to the side of the missing rows, without any to the right, as in XGBoost.

    bins      0   1   2   3   4          missing right:  0 | 1 2 3 4
    rows      x               x          missing left:   0 1 2 3 | 4

Where weights are held within bounds, T²/(H + λ) becomes −(2·G·w + (H + λ)·w² + 2·α·|w|) at the bounded weight w. On a feature
with a monotone constraint a candidate's weights must go its way: w_L ≤ w_R, or w_L ≥ w_R (XGBoost's TreeEvaluator). Bounds that
the children get (kernels/nodes.py) keep all leaves below to that order.

Of several outputs each has bounds of its own, and weights that go its way: where the two do not, both children get one weight
for that output (candidates.ordered_terms).

Missing left also needs H_b > 0: present rows beside the missing ones. Then "all present against missing" is a candidate
once, with missing right, whichever bins of the node are empty, as in exact greedy search, which tries present values only.
For the same reason the last bin (all present values left) is tried with missing right only. Where bins were proposed
(kernels/proposals.py), the others are no candidates; all present against missing always is one.

Sums become float64 by an exact power of two. With several outputs per tree (vector leaves) their scores add up, an output without
hessian in a child adds none there, and H_L, H_R and H_b are means over the outputs (as in XGBoost 3.4).

A user's gain (formulas/split_gain.py) takes the place of the formula above, no more: candidates, thresholds, ranks, ties and the
order of a constraint's weights stay, and what the built-in formula is compared by without a division is left out.

Most features cannot beat those before them, nor most bins of one that can, which a test without divisions tells (score_reaches),
CHUNK candidates at a time; of packed sums in float32 (packed_candidates.py), and the few that pass are tried one by one. Floor:
16 bytes read per bin, 8 of packed histograms (histogram.build_packed_cpu), and about 12 float64 operations per bin and direction,
of packed ones as many of float32. What is called for every feature is inlined: a call copied some hundred words to the
stack. One thread of an AMD EPYC, 63 nodes of the last levels of 7 and of 28 features, ns a bin: 2.1–2.4 and 1.6 -> 1.6 and 1.2,
packed 1.2–1.4 and 1.1. With conversions.py a training of 7,000 × 28 takes 0.81 of the time (Zen 3, one thread: 151 -> 122 ms).
"""

from functools import cache

import numpy as np
from numba import float64, int32, int64, uint32, uint64

from gpuboost.kernels.addresses import load_at, load_pair_at
from gpuboost.kernels.candidates import (
    MIN_GAIN,
    RELATIVE_GAIN,
    add_gain_of,
    better,
    is_candidate,
    node_term,
    ordered_terms,
    score_reaches,
    warp_best,
)
from gpuboost.kernels.conversions import as_double, halves_as_doubles
from gpuboost.kernels.cuda_common import (
    FULL_WARP,
    cuda,
    cuda_kernel,
    device_function,
    lane_number,
    n_warps,
    warp_max,
    warp_number,
    warp_prefix,
    warp_sum,
)
from gpuboost.kernels.jit import inlined_scalar, launch, parallel_kernel, scalar
from gpuboost.kernels.packed_candidates import CHUNK, count_ones, lowest_one, reaching_packed, sum_up_packed
from gpuboost.kernels.scalar import (
    bits_double,
    double_bits,
    gain_rank,
    inverse_of_power,
    keeps_order,
    larger,
    node_score,
)
from gpuboost.kernels.shares import claim_near, new_counters
from gpuboost.kernels.structs import NO_GAIN, NUMERIC

FEW = 12  # candidates of a CHUNK that are tried one by one
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
    sums : int64 (n_nodes, leaf_size, 2 or 4), IN. left_sums : int64 (n_nodes, leaf_size, 2), OUT.
    hist : int64 (n_slots, leaf_size, ≥ total_bins, 2), IN. Histograms of k features side by
        side, or packed (histogram.packed_shape).
    offsets : int32 (k + 1,), IN, where each begins. features : int32 (k,), IN. The feature of each, ascending.
    monotone : int8 (n_features,) or (0,), IN. By feature, whichever the histograms hold: +1 where the weight may only rise with
        it, −1 where it may only fall; empty without constraints.
    feature_mask : uint8 (0, 1 or n, k), IN. 0 leaves a feature out, for all nodes or for one; without rows none is left out.
    proposed : uint8 (n_rows, ≥ total_bins), IN. 0 leaves a bin out; without rows every bin is a candidate.
    by_tree : whether a node's row of it is its tree or its slot.
    inverse_scales : float64 (n_outputs, 2), IN. Powers of two from fixed point to float, per output of the round.
    first_output : int32 (n_trees,), IN. First output of each tree.
    parameters : float64 (k,), IN. Of a user's gain.
    candidates : CANDIDATE (n, n_blocks), SCRATCH. prefix_grad, prefix_hess : int64 (n_threads, leaf_size · room), SCRATCH, with
        room for the bins of a feature in whole CHUNKs. Sums up to each bin; packed ones in the first array alone.
    gains : float64 (n_threads, 3, room), SCRATCH: gains, hessians of left children, and of what is present there.
    bins : int32 (n_threads, room), SCRATCH.
    """

    def evaluate_splits_cpu(
        frontier, nodes, sums, left_sums, hist, offsets, features, monotone, feature_mask, proposed, by_tree, inverse_scales,
        first_output, reg_lambda, alpha, max_delta_step, min_child_weight, parameters, candidates, prefix_grad, prefix_hess,
        gains, bins, n_threads,
    ):  # fmt: skip
        n_blocks = candidates.shape[1]
        args = (
            new_counters(n_threads), n_blocks, frontier, nodes, sums, hist, offsets, features, monotone, feature_mask,
            proposed, by_tree, inverse_scales, first_output, reg_lambda, alpha, max_delta_step, min_child_weight, gain,
            parameters, candidates, prefix_grad, prefix_hess, gains, bins,
        )  # fmt: skip
        launch(n_threads, _evaluate_blocks, args)
        for i in range(frontier.size):
            _choose(i, frontier, nodes, sums, left_sums, hist, offsets, features, proposed, by_tree, candidates)

    return parallel_kernel(evaluate_splits_cpu, gain)


@parallel_kernel.part
def _evaluate_blocks(
    thread, counters, n_blocks, frontier, nodes, sums, hist, offsets, features, monotone, feature_mask, proposed, by_tree,
    inverse_scales, first_output, reg_lambda, alpha, max_delta_step, min_child_weight, gain_of, parameters, candidates,
    prefix_grad, prefix_hess, gains, bins
):  # fmt: skip
    prefix_grad, prefix_hess, gains, bins = prefix_grad[thread], prefix_hess[thread], gains[thread], bins[thread]
    while True:
        item = claim_near(counters, thread, frontier.size * n_blocks)
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
        is_bounded = lower > -np.inf or upper < np.inf
        for output in range(sums.shape[1]):
            if sums.shape[2] > 2:
                lower, upper = bits_double(uint64(sums[node, output, 2])), bits_double(uint64(sums[node, output, 3]))
                is_bounded |= lower > -np.inf or upper < np.inf
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
        can_test = gain_of is None and max_delta_step == 0.0 and not is_bounded
        grad, hess = own_sums[0, 0] * scales[0, 0], own_sums[0, 1] * scales[0, 1]
        smallest = larger(min_child_weight, scales[0, 1])
        for column in range(block * features.size // n_blocks, (block + 1) * features.size // n_blocks):
            first, last = int64(offsets[column]), int64(offsets[column + 1])
            if can_test and last - first == 1 and sums.shape[1] == 1:  # one-hot: present left; 58 -> 10 ns where it cannot win
                left_grad, left_hess = _sum_bins(own, 0, column, first, 0, 1)
                gl, hl = left_grad * scales[0, 0], left_hess * scales[0, 1]
                if not (hl >= smallest and hess - hl >= smallest and score_reaches(gl, hl, grad, hess, reg_lambda, bar)):
                    continue
            if mask_row < 0 or feature_mask[mask_row, column]:
                sign = int64(monotone[features[column]]) if monotone.size > 0 else int64(0)
                gain, split_bin, default_left = _best_of_feature(
                    own, column, first, last, proposed, row, own_sums, scales, parent, weight, threshold, bar, can_test,
                    reg_lambda, alpha, max_delta_step, least, lower, upper, sign, features[column], gain_of, parameters,
                    prefix_grad, prefix_hess, gains, bins,
                )  # fmt: skip
                if gain_rank(gain) > gain_rank(best.gain):
                    best.gain = gain
                    best.column = column
                    best.bin = split_bin
                    best.default_left = default_left
                    bar = parent + larger(threshold, gain_rank(gain))


@inlined_scalar
def _best_of_feature(
    hist, column, first, last, proposed, row, sums, scales, parent, weight, threshold, bar, can_test, reg_lambda, alpha,
    max_delta_step, min_child_weight, lower, upper, sign, feature, gain_of, parameters, prefix_grad, prefix_hess, gains, bins,
):  # fmt: skip
    """(gain, bin, default_left) of one feature, whose bins are first to last, for children that weigh min_child_weight over all
    outputs; gain is −inf where no gain exceeds the threshold, or, where candidates can be tested, none reaches the bar.
    Arrays are handed over whole: slices count references."""
    n_outputs, n_bins, has_missing = sums.shape[0], last - first, False
    for output in range(n_outputs):
        base = output * gains.shape[1]
        n_bins = _sum_bins_up(hist, output, column, first, last, proposed, row, prefix_grad, prefix_hess, base, bins)
        grad, hess = _sums_up_to(hist, prefix_grad, prefix_hess, base + n_bins - 1)
        has_missing |= grad != sums[output, 0] or hess != sums[output, 1]
        if hist.ndim != 2:
            for b in range(base + n_bins, base + -(-n_bins // CHUNK) * CHUNK):  # all present ones: tested, but no candidates
                prefix_grad[uint64(b)], prefix_hess[uint64(b)] = prefix_grad[base + n_bins - 1], prefix_hess[base + n_bins - 1]
    best_gain, best_bin, best_left, best_rank = NO_GAIN, int64(0), int64(1), NO_GAIN
    grad_unit, hess_unit, total_grad, total_hess = scales[0, 0], scales[0, 1], float64(sums[0, 0]), float64(sums[0, 1])
    # Of the first output, in units of fixed point; found here, since LLVM cannot know that they do not change.
    own_lambda, smallest, score_units = (
        reg_lambda / hess_unit, larger(min_child_weight / hess_unit, 1.0), hess_unit / (grad_unit * grad_unit)
    )  # fmt: skip
    # Without missing rows both directions are the same candidates, and the tie goes to missing left.
    for missing_left in range(1, -1 if has_missing else 0, -1):
        n_candidates = n_bins if has_missing and not missing_left else n_bins - 1
        present_grad, present_hess = _sums_up_to(hist, prefix_grad, prefix_hess, n_bins - 1)
        missing_grad = sums[0, 0] - present_grad if missing_left else int64(0)
        missing_hess = sums[0, 1] - present_hess if missing_left else int64(0)
        for at in range(0, n_candidates, CHUNK):
            if hist.ndim == 2:  # by itself, so that numba leaves out what other histograms need
                if can_test:
                    reaching = reaching_packed(
                        hist, column, prefix_grad, at, (missing_grad << int64(32)) + missing_hess, total_grad, total_hess,
                        own_lambda, smallest, bar * score_units,
                    )  # fmt: skip
                    if n_candidates - at < CHUNK:
                        reaching &= (uint64(1) << uint64(n_candidates - at)) - uint64(1)
                    if reaching == 0:
                        continue
                    if sign == 0 and count_ones(reaching) <= FEW:
                        while reaching != 0:
                            b = at + lowest_one(reaching)
                            reaching &= reaching - uint64(1)
                            gain = _packed_gain(
                                prefix_grad, b, missing_grad, missing_hess, total_grad * grad_unit, total_hess * hess_unit,
                                grad_unit, hess_unit, reg_lambda, alpha, min_child_weight, parent, weight, threshold,
                            )  # fmt: skip
                            rank = gain_rank(gain)
                            if rank > best_rank or (rank == best_rank and b < best_bin):
                                best_rank, best_gain, best_bin, best_left = rank, gain, b, missing_left
                        bar = larger(bar, parent + best_rank)
                        continue
            elif can_test and n_outputs == 1 and not _any_reaches(
                hist, prefix_grad, prefix_hess, at, missing_grad, missing_hess, total_grad, total_hess, own_lambda, smallest,
                bar * score_units,
            ):  # fmt: skip
                continue
            elif can_test and n_outputs > 1 and sign == 0 and not _any_sum_reaches(
                hist, prefix_grad, prefix_hess, at, n_bins, missing_left, sums, scales, reg_lambda, bar, gains
            ):  # fmt: skip
                continue
            n = min(int64(CHUNK), n_candidates - at)
            for b in range(uint64(n)):
                gains[0, b], gains[1, b], gains[2, b] = -parent if gain_of is None else 0.0, 0.0, 0.0
            for output in range(n_outputs):
                base = output * gains.shape[1]
                present_grad, present_hess = _sums_up_to(hist, prefix_grad, prefix_hess, base + n_bins - 1)
                if sums.shape[1] > 2:
                    lower, upper = bits_double(uint64(sums[output, 2])), bits_double(uint64(sums[output, 3]))
                _add_gains(
                    hist, prefix_grad, prefix_hess, base + at, n,
                    sums[output, 0] - present_grad if missing_left else int64(0),
                    sums[output, 1] - present_hess if missing_left else int64(0),
                    sums[output, 0] * scales[output, 0], sums[output, 1] * scales[output, 1],
                    scales[output, 0], scales[output, 1], reg_lambda, alpha, max_delta_step, min_child_weight, lower, upper, sign,
                    n_outputs > 1, feature, gain_of, parameters, gains,
                )  # fmt: skip
            largest = int64(0)  # bits of a rank: of positive floats they ascend as integers, whose maximum LLVM vectorises
            for b in range(uint64(n)):
                gain = gains[0, b]
                is_open = is_candidate(gains[1, b], gains[2, b], weight, min_child_weight) & (gain > threshold)
                gains[0, b] = gain if is_open else NO_GAIN
                largest = max(largest, int64(double_bits(gain_rank(gain))) if is_open else int64(0))
            rank, b = bits_double(uint64(largest)), int64(0)
            if largest == 0 or rank < best_rank:
                continue
            while gain_rank(gains[0, b]) != rank:
                b += 1
            if rank > best_rank or at + b < best_bin:
                best_rank, best_gain, best_bin, best_left = rank, gains[0, b], at + b, missing_left
            bar = larger(bar, parent + best_rank)
    return best_gain, bins[best_bin] if proposed.shape[0] > 0 else best_bin, best_left


@inlined_scalar
def _packed_gain(
    prefix, at, missing_grad, missing_hess, total_grad, total_hess, grad_unit, hess_unit, reg_lambda, alpha, min_child_weight,
    parent, weight, threshold
):  # fmt: skip
    """The gain of one candidate, or −inf, by the operations of _add_gains in their order."""
    _, present = halves_as_doubles(prefix[at])
    gl, hl = halves_as_doubles(prefix[at] + ((missing_grad << int64(32)) + missing_hess))
    gl, hl = gl * grad_unit, hl * hess_unit
    gr, hr = total_grad - gl, total_hess - hl
    left, right = node_score(gl, hl, reg_lambda, alpha), node_score(gr, hr, reg_lambda, alpha)
    gain = -parent + ((left if hl > 0.0 else 0.0) + (right if hr > 0.0 else 0.0))
    is_open = is_candidate(hl, present * hess_unit, weight, min_child_weight) & (gain > threshold)
    return gain if is_open else NO_GAIN


@inlined_scalar
def _any_reaches(
    hist, prefix_grad, prefix_hess, begin, missing_grad, missing_hess, total_grad, total_hess, reg_lambda, smallest, bar
):  # fmt: skip
    """Whether the score of any of CHUNK candidates may reach the bar: of 28 features, a few beat those before them, with a few of
    their bins. Costs a third of _add_gains and the search for the largest.

    All is counted in units of fixed point, which are powers of two, so that nothing is rounded otherwise; of a score, or the bar,
    in those of gradients squared over those of hessians. smallest : sum of hessians of a child.
    """
    _, lightest = _left_sums(hist, prefix_grad, prefix_hess, uint64(begin), missing_grad, missing_hess)
    _, heaviest = _left_sums(hist, prefix_grad, prefix_hess, uint64(begin + CHUNK - 1), missing_grad, missing_hess)
    if heaviest < smallest or total_hess - lightest < smallest:
        return False
    found = False
    for b in range(CHUNK):  # no branches and no calls: vectorised by LLVM
        gl, hl = _left_sums(hist, prefix_grad, prefix_hess, uint64(begin + b), missing_grad, missing_hess)
        reaches = score_reaches(gl, hl, total_grad, total_hess, reg_lambda, bar)
        found |= reaches & (hl >= smallest) & (total_hess - hl >= smallest)
    return found


@inlined_scalar
def _any_sum_reaches(hist, prefix_grad, prefix_hess, begin, n_bins, missing_left, sums, scales, reg_lambda, bar, gains):
    """The same for several outputs: whether the scores of all may sum up to the bar for any of CHUNK candidates.

    Of an output (G_L²·(H_R + λ) + G_R²·(H_L + λ)) / ((H_L + λ)·(H_R + λ)), in its units of fixed point: one division for both
    children. A child without hessian counts as one of a single unit; it has a score of 0. (Not where it may have to share its
    sibling's weight, as the order of a constraint may demand: then its score may be any.) gains : the first CHUNK, SCRATCH.
    """
    for b in range(CHUNK):
        gains[0, uint64(b)] = 0.0
    for output in range(sums.shape[0]):
        base = output * gains.shape[1]
        grad_unit, hess_unit = scales[output, 0], scales[output, 1]
        unit, own_lambda = grad_unit * grad_unit / hess_unit, reg_lambda / hess_unit
        present_grad, present_hess = _sums_up_to(hist, prefix_grad, prefix_hess, base + n_bins - 1)
        missing_grad = sums[output, 0] - present_grad if missing_left else int64(0)
        missing_hess = sums[output, 1] - present_hess if missing_left else int64(0)
        grad, hess = float64(sums[output, 0]), float64(sums[output, 1])
        for b in range(CHUNK):  # no branches and no calls: vectorised by LLVM
            gl, hl = _left_sums(hist, prefix_grad, prefix_hess, uint64(base + begin + b), missing_grad, missing_hess)
            gr, left, right = grad - gl, larger(hl, 1.0) + own_lambda, larger(hess - hl, 1.0) + own_lambda
            gains[0, uint64(b)] += unit * ((gl * gl * right + gr * gr * left) / (left * right))
    most = float64(0.0)
    for b in range(CHUNK):
        most = larger(most, gains[0, uint64(b)])
    return most >= bar * (1.0 - 1e-9)  # which is more than all that is rounded


@inlined_scalar
def _sum_bins(hist, output, column, first, begin, end):
    """(grad, hess) of a feature's bins begin to end. hist : of a node, int64 (leaf_size, bins, 2), where the feature's lie from
    first on; or packed, (features, BYTE_STRIDE), of one output."""
    if hist.ndim == 2:
        packed = int64(0)
        for b in range(begin, end):
            packed += hist[uint64(column), uint64(b)]
        return packed >> int64(32), packed & int64(0xFFFFFFFF)
    grad, hess = int64(0), int64(0)
    for b in range(first + begin, first + end):
        grad += hist[output, uint64(b), 0]
        hess += hist[output, uint64(b), 1]
    return grad, hess


@inlined_scalar
def _sum_bins_up(hist, output, column, first, last, proposed, row, prefix_grad, prefix_hess, base, bins):
    """Write the sums of one output up to each of a feature's bins, or of those proposed and the last, to prefix_grad and
    prefix_hess from base on. Returns how many. hist : as _sum_bins; of packed ones all bins are candidates."""
    n = last - first
    if hist.ndim == 2:
        sum_up_packed(hist, column, n, prefix_grad)
        return n
    if proposed.shape[0] > 0:
        return _sum_proposed(hist, output, first, last, proposed, row, prefix_grad, prefix_hess, base, bins)
    grad, hess = int64(0), int64(0)
    for b in range(n):
        grad += hist[output, uint64(first + b), 0]
        hess += hist[output, uint64(first + b), 1]
        prefix_grad[uint64(base + b)], prefix_hess[uint64(base + b)] = grad, hess
    return n


@inlined_scalar
def _sums_up_to(hist, prefix_grad, prefix_hess, at):
    """(grad, hess), int64, as _sum_bins_up wrote them. hist : tells whether they are packed."""
    if hist.ndim == 2:
        return prefix_grad[at] >> int64(32), prefix_grad[at] & int64(0xFFFFFFFF)
    return prefix_grad[at], prefix_hess[at]


@inlined_scalar
def _left_sums(hist, prefix_grad, prefix_hess, at, missing_grad, missing_hess):
    """The same and those of the missing rows on the left, as float64, in units of fixed point."""
    if hist.ndim == 2:
        return halves_as_doubles(prefix_grad[at] + ((missing_grad << int64(32)) + missing_hess))
    return as_double(prefix_grad[at] + missing_grad), as_double(prefix_hess[at] + missing_hess)


@parallel_kernel.part
def _sum_proposed(hist, output, first, last, proposed, row, prefix_grad, prefix_hess, base, bins):
    """_sum_bins_up where bins are proposed. bins : int32, OUT. Their numbers, side by side."""
    grad, hess, n = int64(0), int64(0), int64(0)
    for b in range(last - first):  # without a branch: what the next bin overwrites is not kept
        grad += hist[output, first + b, 0]
        hess += hist[output, first + b, 1]
        prefix_grad[base + n], prefix_hess[base + n], bins[n] = grad, hess, b
        n += int64(proposed[row, first + b])
    return n + int64(1 - proposed[row, last - 1])


@inlined_scalar
def _add_gains(
    hist, prefix_grad, prefix_hess, begin, n, missing_grad, missing_hess, total_grad, total_hess, grad_unit, hess_unit,
    reg_lambda, alpha, max_delta_step, min_child_weight, lower, upper, sign, is_of_several, feature, gain_of, parameters, gains,
):  # fmt: skip
    """gains[0, b] += the scores of both children of one output, or a user's gain, −inf where their order is not that of sign, of
    n candidates from begin on. The left child is prefix + missing; gains[1, b] += its hessian, gains[2, b] += that of the
    prefix. is_of_several : outputs, each of which keeps its order by itself. (Arrays are handed over whole: slices count
    references.)"""
    smallest = larger(min_child_weight, hess_unit)  # one unit of fixed point: integer H > 0
    is_bounded = max_delta_step > 0.0 or lower > -np.inf or upper < np.inf
    for b in range(uint64(n)):
        _, present = _left_sums(hist, prefix_grad, prefix_hess, uint64(begin) + b, int64(0), int64(0))
        _, hl = _left_sums(hist, prefix_grad, prefix_hess, uint64(begin) + b, missing_grad, missing_hess)
        gains[1, b] += hl * hess_unit
        gains[2, b] += present * hess_unit
    if sign != 0 and is_of_several:
        for b in range(uint64(n)):
            gl, hl = _left_sums(hist, prefix_grad, prefix_hess, uint64(begin) + b, missing_grad, missing_hess)
            gl, hl = gl * grad_unit, hl * hess_unit
            gains[0, b] += ordered_terms(
                sign, gl, hl, total_grad - gl, total_hess - hl, total_grad, total_hess, reg_lambda, alpha, max_delta_step, lower,
                upper,
            )  # fmt: skip
    elif gain_of is not None or is_bounded:
        for b in range(uint64(n)):
            gl, hl = _left_sums(hist, prefix_grad, prefix_hess, uint64(begin) + b, missing_grad, missing_hess)
            gl, hl = gl * grad_unit, hl * hess_unit
            gr, hr = total_grad - gl, total_hess - hl
            if gain_of is None:
                left = node_term(gl, hl, reg_lambda, alpha, max_delta_step, lower, upper)
                gains[0, b] += left + node_term(gr, hr, reg_lambda, alpha, max_delta_step, lower, upper)
            elif hl >= smallest and hr >= smallest:
                gains[0, b] += gain_of(
                    gl, hl, gr, hr, total_grad, total_hess, reg_lambda, alpha, max_delta_step, lower, upper, feature, parameters
                )
    else:
        for b in range(uint64(n)):  # no branches and no calls: vectorised by LLVM
            gl, hl = _left_sums(hist, prefix_grad, prefix_hess, uint64(begin) + b, missing_grad, missing_hess)
            gl, hl = gl * grad_unit, hl * hess_unit
            gr, hr = total_grad - gl, total_hess - hl
            left, right = node_score(gl, hl, reg_lambda, alpha), node_score(gr, hr, reg_lambda, alpha)
            gains[0, b] += (left if hl > 0.0 else 0.0) + (right if hr > 0.0 else 0.0)
    if sign != 0 and not is_of_several:
        for b in range(uint64(n)):
            gl, hl = _left_sums(hist, prefix_grad, prefix_hess, uint64(begin) + b, missing_grad, missing_hess)
            gl, hl = gl * grad_unit, hl * hess_unit
            gr, hr = total_grad - gl, total_hess - hl
            if not keeps_order(sign, gl, hl, gr, hr, reg_lambda, alpha, max_delta_step, lower, upper):
                gains[0, b] = NO_GAIN


@parallel_kernel.part
def _choose(i, frontier, nodes, sums, left_sums, hist, offsets, features, proposed, by_tree, candidates):
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
    first, n_bins = int64(offsets[column]), int64(offsets[column + 1] - offsets[column])
    begin, end = (int64(node.bin + 1), n_bins) if node.default_left else (int64(0), int64(node.bin + 1))
    for output in range(sums.shape[1]):
        grad, hess = _sum_bins(hist[node.slot], output, column, first, begin, end)
        if node.default_left:
            grad, hess = sums[frontier[i], output, 0] - grad, sums[frontier[i], output, 1] - hess
        left_sums[frontier[i], output, 0], left_sums[frontier[i], output, 1] = grad, hess
    if node.default_left:
        row = node.tree if by_tree else node.slot
        node.bin = _last_tied(hist[node.slot], column, first, n_bins, sums[frontier[i]], proposed, row, int64(node.bin))


@parallel_kernel.part
def _last_tied(hist, column, first, n_bins, sums, proposed, row, split_bin):
    """If the node has missing rows, the highest candidate up to which nothing is added to the sums; else split_bin."""
    last, b, is_tied, is_whole = split_bin, split_bin + 1, True, True
    while is_tied and b < n_bins - 1:
        if proposed.shape[0] == 0 or proposed[row, first + b] != 0:
            for output in range(sums.shape[0]):
                grad, hess = _sum_bins(hist, output, column, first, last + 1, b + 1)
                is_tied &= grad == 0 and hess == 0
            last = b if is_tied else last
        b += 1
    if last > split_bin:
        for output in range(sums.shape[0]):
            grad, hess = _sum_bins(hist, output, column, first, int64(0), n_bins)
            is_whole &= grad == sums[output, 0] and hess == sums[output, 1]
    return split_bin if is_whole else last


# ---------------------------------------------------------------------------------------------------------------------
# CUDA. A warp scans the bins of one feature of one node; then a warp chooses among the features of a node. Of two kernels that
# scan, one does all that there is, 32 bins at a time, the other what most trees are, 128 at a time.


# Shared memory of a warp and output, int64 each: gradient and hessian of the bins before, of the missing rows on the left, and of
# the node; the bits of the float64 units of fixed point.
CARRY = 8
CARRY_BYTES = 8 * CARRY


@cache
def evaluate_splits_kernel(bounded, gain, orders_outputs=False):
    """The kernel that finds the best split of every feature for the nodes frontier + begin + i, i < n.

    gain : as evaluate_splits.
    bounded : whether weights may be held away from their optimum (max_delta_step, monotone constraints). Without, a candidate
        costs half as much, and ``monotone`` is not read. orders_outputs : of several outputs, whose bounds lie behind their sums.
    by_tree : whether a node's row of ``proposed`` is its tree (1) or its slot (0).
    nodes : NODE, IN (slot, tree, depth, lower, upper). scales : float64 (n_outputs, 2), IN, from float to fixed point.
    penalty : PENALTY (1,), IN. max_depth : nodes so deep are not split; 0 for no limit.
    gains : float64 (≥ n, ≥ k), OUT, of each feature of the histograms, −inf for none. choices : int32 (≥ n, ≥ k), OUT. 2·bin +
        (missing right).
    Others as evaluate_splits_cpu. Dynamic shared memory: CARRY_BYTES per warp and output.

    Missing rows are first sent right, for which nobody has to know how many they are. Where all bins together are not the node,
    the rest are missing, and a second pass sends them left; else both are the same candidates, and were those with missing left.

    16 bytes read per bin and pass (the second time from a cache); two divisions and 20 float64 operations. The next bin is on its
    way while one is looked at. 28 × 256 bins of 128 nodes are 15 MB, 3 µs at 4.8 TB/s, and 2·10^7 float64 operations, 1 µs.
    """

    is_own, add_gain = gain is not None, add_gain_of(gain, orders_outputs)

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
        item = uint32(warp_number())
        while item < uint32(n * n_columns):
            i, column = int64(item // uint32(n_columns)), int64(item % uint32(n_columns))
            item = uint32(item + uint32(n_warps()))
            node = progress[0].frontier + begin + i
            best_gain, best_choice = float64(NO_GAIN), int32(0)
            mask_row = min(i, feature_mask.shape[0] - 1)
            if node < progress[0].n_nodes and (mask_row < 0 or feature_mask[mask_row, column] != 0):
                first_scale, slot = int64(first_output[nodes[node].tree]), nodes[node].slot
                if bounded:
                    lower, upper = nodes[node].lower, nodes[node].upper
                    sign = int64(monotone[features[column]]) if monotone.size > 0 else int64(0)
                row = int64(nodes[node].tree) if by_tree != 0 else int64(slot)
                first, n_bins = int64(offsets[column]), uint32(offsets[column + 1] - offsets[column])
                own_proposed, bins_apart = row * int64(proposed.shape[1]) + first, 2 * int64(hist.shape[2])
                own_bins = int64(slot) * n_outputs * bins_apart + 2 * first
                total, parent = float64(0.0), float64(0.0)
                for output in range(n_outputs):
                    grad_unit = inverse_of_power(scales[first_scale + output, 0])
                    hess_unit = inverse_of_power(scales[first_scale + output, 1])
                    node_hess = sums[node, output, 1] * hess_unit
                    total += node_hess
                    if orders_outputs:
                        lower, upper = bits_double(uint64(sums[node, output, 2])), bits_double(uint64(sums[node, output, 3]))
                    parent += node_term(
                        sums[node, output, 0] * grad_unit, node_hess, reg_lambda, alpha, max_delta_step, lower, upper
                    )
                    at = own + CARRY * output
                    if lane == 0:
                        carry[at], carry[at + 1], carry[at + 2], carry[at + 3] = int64(0), int64(0), int64(0), int64(0)
                        carry[at + 4], carry[at + 5] = sums[node, output, 0], sums[node, output, 1]
                        carry[at + 6], carry[at + 7] = int64(double_bits(grad_unit)), int64(double_bits(hess_unit))
                least = min_child_weight * float64(n_outputs)
                heavy = total >= float64(2.0) * least
                if heavy and (max_depth == 0 or nodes[node].depth < max_depth):  # the same for all lanes
                    threshold = larger(float64(MIN_GAIN), float64(RELATIVE_GAIN) * parent)
                    goes_right = int64(1)
                    while goes_right >= 0:
                        b, output = uint32(lane), int64(0)
                        next_grad, next_hess = load_bin(hist, own_bins, b, n_bins)
                        gain, weight, present = float64(0.0), float64(0.0), float64(0.0)
                        while uint32(b - uint32(lane)) < n_bins:
                            if output == 0:  # the left child weighs: with the missing ones it has, and without
                                gain, weight, present = float64(0.0) if is_own else -parent, float64(0.0), float64(0.0)
                            grad, hess, at, this = next_grad, next_hess, own + CARRY * output, b
                            if orders_outputs:
                                lower = bits_double(uint64(sums[node, output, 2]))
                                upper = bits_double(uint64(sums[node, output, 3]))
                            output += 1
                            if output == n_outputs:
                                b, output = uint32(b + uint32(32)), int64(0)
                            next_grad, next_hess = load_bin(hist, own_bins + output * bins_apart, b, n_bins)
                            grad, hess = warp_prefix(grad), warp_prefix(hess)
                            cuda.syncwarp()  # the sums before are written
                            grad += carry[at]
                            hess += carry[at + 1]
                            left_grad, left_hess = grad + carry[at + 2], hess + carry[at + 3]
                            node_grad, node_hess = carry[at + 4], carry[at + 5]
                            grad_unit, hess_unit = bits_double(uint64(carry[at + 6])), bits_double(uint64(carry[at + 7]))
                            cuda.syncwarp()  # all lanes have read them
                            if lane == 31:
                                carry[at], carry[at + 1] = grad, hess
                            weight += left_hess * hess_unit
                            present += hess * hess_unit
                            gain = add_gain(
                                gain, left_grad, left_hess, node_grad, node_hess, grad_unit, hess_unit, reg_lambda, alpha,
                                max_delta_step, min_child_weight, lower, upper, sign, features[column], parameters,
                            )  # fmt: skip
                            if output == 0 and this < n_bins:
                                kept = proposed.shape[0] == 0 or load_at(proposed, own_proposed, this) != 0
                                if this == uint32(n_bins - uint32(1)):
                                    kept = goes_right == 1
                                if kept and gain > threshold and is_candidate(weight, present, total, least):
                                    choice = int32(2 * int64(this) + goes_right)
                                    best_gain, best_choice = better(best_gain, best_choice, gain, choice)
                        cuda.syncwarp()  # lane 31 has written the sums of all bins
                        missing, output = False, int64(lane)
                        while output < n_outputs and goes_right == 1:
                            at = own + CARRY * output
                            carry[at + 2], carry[at + 3] = carry[at + 4] - carry[at], carry[at + 5] - carry[at + 1]
                            carry[at], carry[at + 1] = int64(0), int64(0)
                            missing = missing or carry[at + 2] != 0 or carry[at + 3] != 0
                            output += 32
                        is_whole = cuda.ballot_sync(FULL_WARP, missing) == 0
                        if is_whole and goes_right == 1:
                            best_choice = int32(best_choice & int32(-2))
                        goes_right = int64(-1) if is_whole else goes_right - 1
            best_gain, best_choice = warp_best(best_gain, best_choice)
            cuda.syncwarp()  # the carry may be written anew
            if lane == 0:
                gains[i, column] = best_gain
                choices[i, column] = best_choice

    kind = "ordered" if orders_outputs else "bounded" if bounded else "free"
    evaluate_splits.__name__ = f"evaluate_splits_kernel_{kind}"
    return cuda_kernel(
        "begin: int64, n: int64, max_depth: int64, by_tree: int64, progress: PROGRESS[:], nodes: NODE[:], sums: int64[:, :, :], "
        "hist: int64[:, :, :, :], offsets: int32[:], features: int32[:], monotone: int8[:], feature_mask: uint8[:, :], "
        "proposed: uint8[:, :], scales: float64[:, :], first_output: int32[:], penalty: PENALTY[:], parameters: float64[:], "
        "gains: float64[:, :], choices: int32[:, :]",
        block=128, registers=200 if orders_outputs else 168, uses_double=True, formula=gain,  # with 168 or 128, 8.0 would spill
    )(evaluate_splits)  # fmt: skip


LANE_BINS, TILE_BINS = 4, 128  # of a lane, and of the warp


@cuda_kernel(
    "begin: int64, n: int64, max_depth: int64, progress: PROGRESS[:], nodes: NODE[:], sums: int64[:, :, :], "
    "hist: int64[:, :, :, :], offsets: int32[:], feature_mask: uint8[:, :], scales: float64[:, :], first_output: int32[:], "
    "penalty: PENALTY[:], gains: float64[:, :], choices: int32[:, :]",
    block=128, registers=168, uses_double=True,  # 9.0 takes 96; with 128, 8.0 would spill
)  # fmt: skip
def evaluate_plain_splits_kernel(
    begin, n, max_depth, progress, nodes, sums, hist, offsets, feature_mask, scales, first_output, penalty, gains, choices
):  # fmt: skip
    """evaluate_splits_kernel for what most trees are: of one output, every bin a candidate, weights at their optimum, and the
    built-in gain. Arguments as there. Nothing is shared, so that no warp waits for another one.

    Grid: a warp takes neighbouring (node, feature), as many as the others, and finds out once what is the same for a node. Of a
    feature it scans TILE_BINS at a time. A lane adds up LANE_BINS side by side, gets the sum of all before them, and tries each:

        lane      0       | 1       | 2       | 3 …           one scan of the warp for 128 bins
        bins      0 1 2 3 | 4 5 6 7 | 8 9 …

    What lies behind the last bin is empty: it is the same candidate once more, and loses the tie.

    Floor: 16 bytes read per bin and pass; 28 × 256 bins of 128 nodes are 15 MB, 3 µs at 4.8 TB/s. Instructions on compute
    capability 9.0: 466 for a tile, half of which are eight divisions, 143 for a feature and 148 for a node. (The other kernel:
    309 for 32 bins, 868 for a feature.)
    """
    lane, n_columns = uint32(lane_number()), uint32(offsets.size - 1)
    reg_lambda, alpha, min_child_weight = penalty[0].reg_lambda, penalty[0].reg_alpha, penalty[0].min_child_weight
    n_items = uint32(uint32(n) * n_columns)
    share = uint32(uint32(n_items + uint32(n_warps()) - uint32(1)) // uint32(n_warps()))
    item = min(uint32(uint32(warp_number()) * share), n_items)
    n_left, i = min(share, uint32(n_items - item)), uint32(item // n_columns)
    column = uint32(item - uint32(i * n_columns))
    while n_left > uint32(0):
        end = min(n_columns, uint32(column + n_left))
        n_left = uint32(n_left - uint32(end - column))
        node, n_nodes = progress[0].frontier + begin + int64(i), progress[0].n_nodes
        is_open, mask_row = node < n_nodes, min(int64(i), feature_mask.shape[0] - 1)
        node = min(node, n_nodes - 1)  # of one that is not there nothing is used
        output, own_bins = first_output[nodes[node].tree], int64(nodes[node].slot) * int64(hist.shape[2])
        sum_grad, sum_hess = sums[node, 0, 0], sums[node, 0, 1]
        grad_unit, hess_unit = inverse_of_power(scales[output, 0]), inverse_of_power(scales[output, 1])
        node_grad, node_hess = sum_grad * grad_unit, sum_hess * hess_unit
        parent = node_term(node_grad, node_hess, reg_lambda, alpha, float64(0.0), float64(-np.inf), float64(np.inf))
        threshold = larger(float64(MIN_GAIN), float64(RELATIVE_GAIN) * parent)
        smallest = larger(min_child_weight, hess_unit)
        own = grad_unit, hess_unit, node_grad, node_hess, parent, threshold, smallest, reg_lambda, alpha
        is_open = is_open and node_hess >= float64(2.0) * min_child_weight
        is_open = is_open and (max_depth == 0 or nodes[node].depth < max_depth)
        while column < end:
            best_gain, best_key, is_whole = float64(NO_GAIN), int64(-1), False
            if is_open and (mask_row < 0 or feature_mask[mask_row, column] != 0):  # the same for all lanes
                first, n_bins = int64(offsets[column]), uint32(offsets[uint32(column + uint32(1))] - offsets[column])
                first = 2 * (own_bins + first)
                grad, hess, missing_hess = int64(0), int64(0), int64(0)  # left of the tile; of the missing rows there
                goes_right = int32(1)
                while goes_right >= 0:
                    tile = uint32(0)
                    while tile < n_bins:
                        b = uint32(tile + uint32(LANE_BINS) * lane)
                        tile = uint32(tile + uint32(TILE_BINS))
                        at = first + int64(uint32(b + b))
                        grad1, hess1 = load_next(hist, at, uint32(0), b, n_bins)
                        grad2, hess2 = load_next(hist, at, uint32(1), b, n_bins)
                        grad3, hess3 = load_next(hist, at, uint32(2), b, n_bins)
                        grad4, hess4 = load_next(hist, at, uint32(3), b, n_bins)
                        lane_grad, lane_hess = (grad1 + grad2) + (grad3 + grad4), (hess1 + hess2) + (hess3 + hess4)
                        upto_grad, upto_hess = warp_prefix(lane_grad), warp_prefix(lane_hess)
                        grad1, hess1 = grad1 + (grad + upto_grad - lane_grad), hess1 + (hess + upto_hess - lane_hess)
                        grad2, hess2 = grad2 + grad1, hess2 + hess1
                        grad3, hess3 = grad3 + grad2, hess3 + hess2
                        grad4, hess4 = grad4 + grad3, hess4 + hess3
                        grad += cuda.shfl_sync(FULL_WARP, upto_grad, 31)
                        hess += cuda.shfl_sync(FULL_WARP, upto_hess, 31)
                        choice = int32(int32(2) * int32(b) + goes_right)
                        best_gain, best_key = better_bin(best_gain, best_key, grad1, hess1, missing_hess, choice, own)
                        best_gain, best_key = better_bin(best_gain, best_key, grad2, hess2, missing_hess, choice + 2, own)
                        best_gain, best_key = better_bin(best_gain, best_key, grad3, hess3, missing_hess, choice + 4, own)
                        best_gain, best_key = better_bin(best_gain, best_key, grad4, hess4, missing_hess, choice + 6, own)
                    goes_right = int32(goes_right - int32(1))
                    if goes_right == 0:
                        grad, hess = sum_grad - grad, sum_hess - hess  # of the missing rows, which go left now
                        missing_hess, is_whole = hess, grad == 0 and hess == 0
                        if is_whole:
                            goes_right = int32(-1)
            best = warp_max(best_key)
            if best_key == best and (best >= 0 or lane == uint32(0)):
                choice = choice_of(best)
                gains[i, column] = best_gain
                choices[i, column] = choice & int32(-2) if is_whole else choice
            column = uint32(column + uint32(1))
        i, column = uint32(i + uint32(1)), uint32(0)


@device_function
def load_next(hist, at, more, b, n_bins):
    """(Σ g, Σ h) of bin b + more, 0 behind the last one. at : int64, where in hist bin b begins. more, b, n_bins : uint32."""
    grad, hess = int64(0), int64(0)
    if uint32(b + more) < n_bins:
        grad, hess = load_pair_at(hist, at, uint32(more + more))
    return grad, hess


@device_function
def better_bin(best_gain, best_key, left_grad, left_hess, missing_hess, choice, own):
    """(gain, split_key) of the best split of a feature so far or of another candidate.

    left_grad, left_hess : int64, sums of the left child, missing_hess the part that is of missing rows. own : of the node.
    """
    grad_unit, hess_unit, node_grad, node_hess, parent, threshold, smallest, reg_lambda, alpha = own
    gl, hl = left_grad * grad_unit, left_hess * hess_unit
    gr, hr = node_grad - gl, node_hess - hl
    # is_candidate: all hessians are multiples of hess_unit, which smallest is no less than
    if (left_hess > missing_hess) & (hl >= smallest) & (hr >= smallest):
        gain = node_score(gl, hl, reg_lambda, alpha) + node_score(gr, hr, reg_lambda, alpha) - parent
        if gain > threshold:
            key = split_key(gain, choice)
            if key > best_key:
                best_gain, best_key = gain, key
    return best_gain, best_key


@scalar
def split_key(gain, choice):
    """int64 that orders the splits of a feature, gains > 0: by gain_rank, then the lower choice first."""
    return (int64(double_bits(gain) >> uint64(37)) << int64(32)) + int64(0x7FFFFFFF - int64(choice))


@scalar
def choice_of(key):
    """int32: the choice in a split_key; 0 of −1."""
    return int32(int64(0x7FFFFFFF) - (key & int64(0x7FFFFFFF)))


@device_function
def load_bin(hist, own_bins, b, n_bins):
    """(Σ g, Σ h) of bin b, 0 behind the last one. own_bins : int64, where in hist the n_bins begin. b, n_bins : uint32."""
    grad, hess = int64(0), int64(0)
    if b < n_bins:
        grad, hess = load_at(hist, own_bins, uint32(b + b)), load_at(hist, own_bins, uint32(uint32(b + b) + uint32(1)))
    return grad, hess


@cuda_kernel(
    "begin: int64, n: int64, by_tree: int64, progress: PROGRESS[:], nodes: NODE[:], sums: int64[:, :, :], "
    "left_sums: int64[:, :, :], hist: int64[:, :, :, :], offsets: int32[:], features: int32[:], categorical: uint8[:], "
    "proposed: uint8[:, :], gains: float64[:, :], choices: int32[:, :]",
    block=128, registers=96, uses_double=True,  # 9.0 takes 62; with 80, 8.0 would spill
)  # fmt: skip
def choose_splits_kernel(
    begin, n, by_tree, progress, nodes, sums, left_sums, hist, offsets, features, categorical, proposed, gains, choices
):  # fmt: skip
    """The best feature of each node frontier + begin + i, i < n: in its struct, and the exact sums of its left child.

    nodes : NODE, INOUT. left_sums : int64 (n_nodes, leaf_size, 2), OUT. categorical : uint8 (n_features,) or (0,), IN. By
    feature. Others as evaluate_splits_kernel. A warp takes a node.
    """
    lane = lane_number()
    i = warp_number()
    while i < n and progress[0].frontier + begin + i < progress[0].n_nodes:
        node = progress[0].frontier + begin + i
        gain, best = best_column(gains, i, int64(features.size))
        if lane == 0:
            nodes[node].gain = gain
        if gain > NO_GAIN:
            split_bin, missing_left = int64(choices[i, best] >> 1), (choices[i, best] & 1) == 0
            first, last = int64(offsets[best]), int64(offsets[best + 1])
            if missing_left and (categorical.size == 0 or categorical[features[best]] == 0):
                row = int64(nodes[node].tree) if by_tree != 0 else int64(nodes[node].slot)
                split_bin = last_tied(hist, sums, node, int64(nodes[node].slot), first, last - first, proposed, row, split_bin)
            middle = min(first + split_bin + 1, last)  # a set's choice is no bin, and list_categories_kernel sums anew
            first, end = (middle, last) if missing_left else (first, middle)  # left: all rows but those of the bins on the right
            if lane == 0:
                nodes[node].feature = features[best]
                nodes[node].bin = int32(split_bin)
                nodes[node].default_left = int32(1) if missing_left else int32(0)
                nodes[node].kind = int32(NUMERIC)
            for output in range(sums.shape[1]):
                grad, hess = sum_bins(hist, int64(nodes[node].slot), output, first, end)
                if lane == 0:
                    left_sums[node, output, 0] = sums[node, output, 0] - grad if missing_left else grad
                    left_sums[node, output, 1] = sums[node, output, 1] - hess if missing_left else hess
        i += n_warps()


@device_function
def best_column(gains, i, n):
    """(gain, column) of the best of n features of node i, in every lane. All lanes call it. Four are loaded before the first is
    looked at; behind the last one it is itself."""
    gain, best = float64(NO_GAIN), int32(0)
    column = int64(lane_number())
    while column < n:
        second, third, fourth = min(column + 32, n - 1), min(column + 64, n - 1), min(column + 96, n - 1)
        gain1, gain2, gain3, gain4 = gains[i, column], gains[i, second], gains[i, third], gains[i, fourth]
        gain, best = better(gain, best, gain1, int32(column))
        gain, best = better(gain, best, gain2, int32(second))
        gain, best = better(gain, best, gain3, int32(third))
        gain, best = better(gain, best, gain4, int32(fourth))
        column += 128
    return warp_best(gain, best)


@device_function
def sum_bins(hist, slot, output, first, end):
    """(Σ g, Σ h) of bins first to end, in every lane. All lanes call it. Four bins are loaded before the first is added."""
    grad, hess = int64(0), int64(0)
    own_bins = ((slot * int64(hist.shape[1]) + output) * int64(hist.shape[2]) + first) * 2
    b, n_bins = uint32(lane_number()), uint32(end - first)
    while b < n_bins:
        grad1, hess1 = load_bin(hist, own_bins, b, n_bins)
        grad2, hess2 = load_bin(hist, own_bins, uint32(b + uint32(32)), n_bins)
        grad3, hess3 = load_bin(hist, own_bins, uint32(b + uint32(64)), n_bins)
        grad4, hess4 = load_bin(hist, own_bins, uint32(b + uint32(96)), n_bins)
        grad += (grad1 + grad2) + (grad3 + grad4)
        hess += (hess1 + hess2) + (hess3 + hess4)
        b = uint32(b + uint32(128))
    return warp_sum(grad), warp_sum(hess)


@device_function
def last_tied(hist, sums, node, slot, first, n_bins, proposed, row, split_bin):
    """_last_tied, in every lane. All lanes call it. A lane looks at one of 32 bins side by side."""
    stop, lane = n_bins - 1, int64(lane_number())  # the first candidate that is another one
    for output in range(sums.shape[1]):
        own_bins = ((slot * int64(hist.shape[1]) + output) * int64(hist.shape[2]) + first) * 2
        grad, hess, b = int64(0), int64(0), split_bin + 1
        while b < stop:
            own_grad, own_hess = load_bin(hist, own_bins, uint32(b + lane), uint32(n_bins))
            upto_grad, upto_hess = grad + warp_prefix(own_grad), hess + warp_prefix(own_hess)
            differs = b + lane < stop and (upto_grad != 0 or upto_hess != 0)
            differs = differs and (proposed.shape[0] == 0 or proposed[row, first + b + lane] != 0)
            stop = -warp_max(-(b + lane) if differs else -stop)
            grad, hess = cuda.shfl_sync(FULL_WARP, upto_grad, 31), cuda.shfl_sync(FULL_WARP, upto_hess, 31)
            b += 32
    last, b = split_bin, split_bin + 1 + lane
    while b < stop:
        if proposed.shape[0] == 0 or proposed[row, first + b] != 0:
            last = b
        b += 32
    last, is_whole = warp_max(last), True
    if last > split_bin:
        for output in range(sums.shape[1]):
            grad, hess = sum_bins(hist, slot, output, first, first + n_bins)
            is_whole = is_whole and grad == sums[node, output, 0] and hess == sums[node, output, 1]
    return split_bin if is_whole else last
