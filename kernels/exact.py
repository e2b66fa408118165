"""Find the best split of every node by walking sorted columns: the exact greedy search (Algorithm 1), with missing values tried
on both sides (Algorithm 3).

Every node keeps the sums of its rows that were met so far; where the next of its entries has another code, the split between
the two is a candidate:

    G_L, H_L = sums of the node's entries with codes ≤ b      [+ those of its missing rows]     R = (G, H) − L

Candidates, gains, constraints, ranks and ties are those of kernels/splits.py to the bit: a histogram's bin that is empty in a
node leaves the sums as they are, so its split ties with the one before and loses, or, where missing rows go left, takes its
place. Entries are present values; what has no entry is missing (or zero, where the table says so), and the sums of those rows are
what the node has more than its entries: a column with absent cells is walked twice, first for the sums, then for the candidates.

Exact search and histograms thus differ only in their cuts: here each distinct value may have a bin of its own, and the cost of a
level does not depend on the number of bins: 4 + 4 bytes of entry and 8 of the row's place read per entry, in the order of
values, so that the places come from all over the memory. They are gathered into a buffer, side by side (cache-aware access,
Chen & Guestrin 2016, §4.2): the loads are independent, and many cache misses are under way at once. A column that fits into the
buffer is gathered for both walks together. A candidate is first compared by products, without a division; few of them could win.
"""

from functools import cache

import numpy as np
from numba import float64, int32, int64

from gpuboost.kernels.allocation import zeros
from gpuboost.kernels.candidates import MIN_GAIN, RELATIVE_GAIN, node_term, score_reaches
from gpuboost.kernels.jit import claim, kernel, launch, parallel_kernel, scalar
from gpuboost.kernels.quantise import LIMB_BITS
from gpuboost.kernels.scalar import gain_rank, keeps_order, larger
from gpuboost.kernels.structs import NO_GAIN, NUMERIC

GATHER = 2048  # entries: 16 KB of places, which stay in the first-level cache
LEAST_CLAIMS, MOST_CLAIMED = 128, 16  # of columns: of many a thread claims several at once (why: kernels/shares.py)
NOWHERE = -1  # place of a row whose node is not searched

# What a thread knows of a node while it walks a column; what every entry needs comes first, in one cache line.
WALK = np.dtype(
    [
        ("grad", np.int64),  # of the entries met so far, and absent rows that come before them
        ("hess", np.int64),
        ("code", np.int64),  # of the last entry; −1 before the first
        ("feature", np.int32),  # whose walk this is
        ("has_missing", np.int32),
        ("total_grad", np.float64),  # of the node
        ("total_hess", np.float64),
        ("bar", np.float64),  # what the scores of both children must reach to beat the best split so far
        ("missing_grad", np.int64),
        ("missing_hess", np.int64),
        ("absent_grad", np.int64),  # of the node's rows without an entry, where those are zeros
        ("absent_hess", np.int64),
        ("n_absent", np.int64),  # their number: a sum of zeros may be that of many rows
        ("parent", np.float64),  # the node's own score
        ("lower", np.float64),  # bounds on its leaves' weights
        ("upper", np.float64),
        ("sign", np.int64),  # of the feature's monotone constraint
    ],
    align=True,
)

# A node whose split is looked for.
SEARCHED = np.dtype(
    [
        ("grad", np.int64),
        ("hess", np.int64),
        ("n_rows", np.int64),
        ("lower", np.float64),  # bounds on its leaves' weights
        ("upper", np.float64),
    ],
    align=True,
)

# The best split of a node that a thread has met.
BEST = np.dtype(
    [
        ("gain", np.float64),
        ("rank", np.float64),
        ("feature", np.int64),
        ("bin", np.int64),
        ("next_bin", np.int64),  # of the node's next larger value; −1 where there is none
        ("last_bin", np.int64),  # the cut of a histogram: with missing rows left the last one of the same sums, else bin
        ("default_left", np.int64),
        ("left_grad", np.int64),
        ("left_hess", np.int64),
    ],
    align=True,
)


@kernel
def place_rows_cpu(frontier, segments, rows, gpair, places):
    """places[row] = i·2^32 + packed pair for the rows of node frontier[i]: what a walk wants to know of a row, in eight bytes.

    frontier : int32 (n,), IN. segments : int64 (n_nodes, 3), IN. rows : int32 (2, n_rows), IN. gpair : int32 (n_rows,), IN.
    places : int64 (n_rows,), OUT. NOWHERE for the other rows.
    """
    places[:] = NOWHERE
    for i in range(frontier.size):
        begin, end, side = segments[frontier[i], 0], segments[frontier[i], 1], segments[frontier[i], 2]
        for at in range(begin, end):
            row = rows[side, at]
            places[row] = (i << int64(32)) + (int64(gpair[row]) & int64(0xFFFFFFFF))


@cache
def walk_columns(gain):
    """The kernel that finds the best split of n nodes among each thread's columns; choose_walked_cpu chooses among threads.

    gain : as splits.evaluate_splits. Returned kernel:

    bounds : int64 (n_features, 2), rows : int32 (k,), codes : uint32 (k,), IN. The column blocks (kernels/columns.py).
    absent : int32 (n_features,), IN. Code of the cells without an entry: of missing values (n_bins[f]), or of zero.
    n_bins : int32 (n_features,), IN. n_rows : that have entries; a column of so many is complete.
    features : int32 (k,), IN. Features to walk. monotone : int8 (n_features,) or (0,), IN. As evaluate_splits.
    feature_mask : uint8 (0, 1 or n, k), IN. 0 leaves one of them out, for all nodes or for one; without rows none is left out.
    places : int64 (n_rows,), IN. low_pairs : int32 (n_rows,) or (0,), IN. The second limb of gradients.
    searched : SEARCHED (n,), IN. The nodes.
    scales : float64 (2,), IN. Units of the fixed point. penalty : float64 (4,), IN. lambda, alpha, max_delta_step,
        min_child_weight. parameters : float64 (k,), IN. Of a user's gain.
    walks : WALK (n_threads, n), touched : int32 (n_threads, n), gathered : int64 (n_threads, GATHER), low_gathered : int32, same,
        SCRATCH.
    bests : BEST (n_threads, n), OUT.
    """

    def walk_columns_cpu(
        bounds, rows, codes, absent, n_bins, n_rows, features, monotone, feature_mask, places, low_pairs, searched, scales,
        penalty, parameters, walks, touched, bests, gathered, low_gathered, n_threads,
    ):  # fmt: skip
        counter = zeros(1, np.int64)
        args = (
            counter, bounds, rows, codes, absent, n_bins, n_rows, features, monotone, feature_mask, places, low_pairs,
            searched, scales, penalty, gain, parameters, walks, touched, bests, gathered, low_gathered,
        )  # fmt: skip
        launch(n_threads, _walk_columns, args)

    return parallel_kernel(walk_columns_cpu, gain)


@parallel_kernel.part
def _walk_columns(
    thread, counter, bounds, rows, codes, absent, n_bins, n_rows, features, monotone, feature_mask, places, low_pairs,
    searched, scales, penalty, gain_of, parameters, walks, touched, bests, gathered, low_gathered
):  # fmt: skip
    n_threads, walks, touched, bests = walks.shape[0], walks[thread], touched[thread], bests[thread]
    gathered, low_gathered = gathered[thread], low_gathered[thread]
    for i in range(walks.size):
        start_node(walks[i], bests[i], searched[i], scales, penalty, gain_of)
    n_claimed = max(min(features.size // (LEAST_CLAIMS * n_threads), MOST_CLAIMED), 1)
    while True:
        first_column = claim(counter) * n_claimed
        if first_column >= features.size:
            return
        for column in range(first_column, min(first_column + n_claimed, features.size)):
            feature, is_kept = features[column], feature_mask[:, column]
            if is_kept.size == 1 and is_kept[0] == 0:
                continue
            sign = int64(monotone[feature]) if monotone.size > 0 else int64(0)
            begin, end = bounds[feature, 0], bounds[feature, 1]
            absent_code, missing_code = int64(absent[feature]), int64(n_bins[feature])
            n_touched = int64(0)
            if end - begin < n_rows or codes[end - 1] == missing_code:  # else nothing is missing or absent
                n_touched = _sum_entries(
                    feature, sign, rows[begin:end], codes[begin:end], absent_code, missing_code, places, low_pairs, searched,
                    walks, touched, gathered, low_gathered,
                )  # fmt: skip
            only_code = int64(codes[begin]) if n_touched > 0 and codes[begin] == codes[end - 1] else int64(-1)
            if only_code < 0:
                n_touched = _walk(
                    feature, sign, rows[begin:end], codes[begin:end], absent_code, missing_code, n_touched, is_kept, places,
                    low_pairs, scales, penalty, gain_of, parameters, walks, touched, bests, gathered, low_gathered,
                )  # fmt: skip
            for t in range(n_touched):
                walk, best, node = walks[touched[t]], bests[touched[t]], searched[touched[t]]
                if is_kept.size <= 1 or is_kept[touched[t]]:
                    if only_code >= 0 and only_code != missing_code:  # as in one-hot columns: the first walk has the sums
                        meet_absent(walk, best, only_code, absent_code, scales, penalty, gain_of, parameters)
                        try_split(walk, best, only_code, scales, penalty, gain_of, parameters)
                        walk.code = only_code
                        walk.grad += node.grad - walk.missing_grad - walk.absent_grad
                        walk.hess += node.hess - walk.missing_hess - walk.absent_hess
                    meet_absent(walk, best, missing_code, absent_code, scales, penalty, gain_of, parameters)
                    # All present rows against the missing ones.
                    try_split(walk, best, int64(-1), scales, penalty, gain_of, parameters)


@parallel_kernel.part
def start_node(walk, best, node, scales, penalty, gain_of):
    reg_lambda, alpha, max_delta_step = penalty[0], penalty[1], penalty[2]
    walk.feature = int32(-1)
    walk.total_grad, walk.total_hess = node.grad * scales[0], node.hess * scales[1]
    walk.lower, walk.upper = node.lower, node.upper
    walk.parent = node_term(walk.total_grad, walk.total_hess, reg_lambda, alpha, max_delta_step, walk.lower, walk.upper)
    walk.bar = 0.0 if gain_of is None else -1.0  # which all scores reach
    best.gain, best.rank = NO_GAIN, NO_GAIN


@parallel_kernel.part
def _gather(rows, places, low_pairs, gathered, low_gathered):
    """Copy the places of some rows side by side."""
    for e in range(rows.size):
        gathered[e] = places[rows[e]]
    if low_pairs.size:
        for e in range(rows.size):
            low_gathered[e] = low_pairs[rows[e]]


@scalar
def unpack_pair(place, low_pair, is_low):
    """Gradient and hessian of packed pairs (kernels/quantise.py)."""
    pair = int32(place & int64(0xFFFFFFFF))
    grad, hess = int64(pair >> int32(16)), int64(pair) & int64(0xFFFF)
    if is_low:
        grad = (grad << int64(LIMB_BITS)) + int64(low_pair >> int32(16))
        hess = (hess << int64(LIMB_BITS)) + (int64(low_pair) & int64(0xFFFF))
    return grad, hess


@parallel_kernel.part
def _sum_entries(
    feature, sign, rows, codes, absent_code, missing_code, places, low_pairs, searched, walks, touched, gathered, low_gathered
):  # fmt: skip
    """The first walk: what each node's missing rows sum to, and its rows of zeros that have no entry. Returns how many nodes have
    entries."""
    n_touched, is_low, has_missing = int64(0), low_pairs.size > 0, rows.size > 0 and codes[codes.size - 1] == missing_code
    for first in range(0, rows.size, GATHER):
        n = min(GATHER, rows.size - first)
        _gather(rows[first : first + n], places, low_pairs, gathered, low_gathered)
        for e in range(n):
            i = gathered[e] >> int64(32)
            if i < 0:
                continue
            walk = walks[i]
            if walk.feature != feature:
                walk.grad, walk.hess, walk.code, walk.feature, walk.sign = int64(0), int64(0), int64(-1), feature, sign
                walk.absent_grad, walk.absent_hess, walk.n_absent = searched[i].grad, searched[i].hess, searched[i].n_rows
                walk.missing_grad, walk.missing_hess = int64(0), int64(0)
                touched[n_touched] = i
                n_touched += 1
            grad, hess = unpack_pair(gathered[e], low_gathered[e], is_low)
            walk.absent_grad -= grad
            walk.absent_hess -= hess
            walk.n_absent -= int64(1)
            if has_missing and codes[first + e] == missing_code:
                walk.missing_grad += grad
                walk.missing_hess += hess
    for t in range(n_touched):
        walk = walks[touched[t]]
        if absent_code == missing_code:
            walk.missing_grad, walk.missing_hess = walk.absent_grad, walk.absent_hess
            walk.absent_grad, walk.absent_hess = int64(0), int64(0)
        walk.has_missing = int32(walk.missing_grad != 0 or walk.missing_hess != 0)
    return n_touched


@parallel_kernel.part
def _walk(
    feature, sign, rows, codes, absent_code, missing_code, n_touched, is_kept, places, low_pairs, scales, penalty, gain_of,
    parameters, walks, touched, bests, gathered, low_gathered,
):  # fmt: skip
    """The walk that tries the splits between entries. Returns how many nodes have entries."""
    is_low, is_gathered = low_pairs.size > 0, n_touched > 0 and rows.size <= GATHER
    reg_lambda, grad_unit, hess_unit = penalty[0], scales[0], scales[1]
    smallest = larger(penalty[3], hess_unit)
    for first in range(0, rows.size, GATHER):
        n = min(GATHER, rows.size - first)
        if not is_gathered:
            _gather(rows[first : first + n], places, low_pairs, gathered, low_gathered)
        for e in range(n):
            i, code = gathered[e] >> int64(32), int64(codes[first + e])
            if i < 0 or code == missing_code:
                continue
            walk = walks[i]
            if walk.feature != feature:  # only in a complete column: in others all have been met
                walk.grad, walk.hess, walk.code, walk.feature, walk.sign = int64(0), int64(0), int64(-1), feature, sign
                walk.missing_grad, walk.missing_hess, walk.has_missing = int64(0), int64(0), int32(0)
                walk.n_absent = int64(0)
                touched[n_touched] = i
                n_touched += 1
            if code != walk.code:
                if is_kept.size <= 1 or is_kept[i]:
                    if code > absent_code:
                        meet_absent(walk, bests[i], code, absent_code, scales, penalty, gain_of, parameters)
                    if walk.code >= 0 and either_may_win(walk, grad_unit, hess_unit, reg_lambda, smallest):
                        try_split(walk, bests[i], code, scales, penalty, gain_of, parameters)
                walk.code = code
            grad, hess = unpack_pair(gathered[e], low_gathered[e], is_low)
            walk.grad += grad
            walk.hess += hess
    return n_touched


@parallel_kernel.part
def meet_absent(walk, best, code, absent_code, scales, penalty, gain_of, parameters):
    """Where absent cells are zeros, a node's rows without an entry come before its first entry of a larger code."""
    if code > absent_code and walk.code < absent_code and walk.n_absent > 0:
        try_split(walk, best, absent_code, scales, penalty, gain_of, parameters)
        walk.code = absent_code
        walk.grad += walk.absent_grad
        walk.hess += walk.absent_hess


@scalar
def may_win(walk, left_grad, left_hess, grad_unit, hess_unit, reg_lambda, smallest):
    """Whether a split needs a closer look. No weight within bounds scores higher than the best, so it holds there, too."""
    gl, hl = float64(left_grad) * grad_unit, float64(left_hess) * hess_unit
    reaches = score_reaches(gl, hl, walk.total_grad, walk.total_hess, reg_lambda, walk.bar)
    return reaches & (hl >= smallest) & (walk.total_hess - hl >= smallest)


@scalar
def either_may_win(walk, grad_unit, hess_unit, reg_lambda, smallest):
    """The same of the split after walk.code, with the missing rows right or left."""
    return may_win(walk, walk.grad, walk.hess, grad_unit, hess_unit, reg_lambda, smallest) or (
        walk.has_missing != 0 and may_win(
            walk, walk.grad + walk.missing_grad, walk.hess + walk.missing_hess, grad_unit, hess_unit, reg_lambda, smallest
        )
    )  # fmt: skip


@parallel_kernel.part
def try_split(walk, best, next_code, scales, penalty, gain_of, parameters):
    """The split after walk.code, if any, with the missing rows left, then right; present rows must lie on the left."""
    if walk.code >= 0 and walk.hess > 0:
        _try_side(
            walk, best, walk.grad + walk.missing_grad, walk.hess + walk.missing_hess, int64(1), next_code, scales, penalty,
            gain_of, parameters,
        )  # fmt: skip
        if walk.has_missing != 0:
            _try_side(walk, best, walk.grad, walk.hess, int64(0), next_code, scales, penalty, gain_of, parameters)


@parallel_kernel.part
def _try_side(walk, best, left_grad, left_hess, default_left, next_code, scales, penalty, gain_of, parameters):
    reg_lambda, alpha, max_delta_step = penalty[0], penalty[1], penalty[2]
    smallest = larger(penalty[3], scales[1])  # min_child_weight, or one unit of fixed point: integer H > 0
    if not may_win(walk, left_grad, left_hess, scales[0], scales[1], reg_lambda, smallest):
        return
    gl, hl = left_grad * scales[0], left_hess * scales[1]
    gr, hr = walk.total_grad - gl, walk.total_hess - hl
    if not keeps_order(walk.sign, gl, hl, gr, hr, reg_lambda, alpha, max_delta_step, walk.lower, walk.upper):
        return
    if gain_of is None:
        gain = -walk.parent + (
            node_term(gl, hl, reg_lambda, alpha, max_delta_step, walk.lower, walk.upper)
            + node_term(gr, hr, reg_lambda, alpha, max_delta_step, walk.lower, walk.upper)
        )
    else:
        gain = gain_of(
            gl, hl, gr, hr, walk.total_grad, walk.total_hess, reg_lambda, alpha, max_delta_step, walk.lower, walk.upper,
            walk.feature, parameters,
        )  # fmt: skip
    rank, takes_gap = gain_rank(gain), default_left != 0 and walk.has_missing != 0
    last_bin = next_code - 1 if takes_gap else walk.code
    if gain > larger(MIN_GAIN, RELATIVE_GAIN * walk.parent) and rank > best.rank:
        best.gain, best.rank, best.feature, best.bin, best.next_bin = gain, rank, int64(walk.feature), walk.code, next_code
        best.last_bin = last_bin
        best.default_left, best.left_grad, best.left_hess = default_left, left_grad, left_hess
        if gain_of is None and max_delta_step <= 0.0 and walk.lower == -np.inf and walk.upper == np.inf:
            walk.bar = walk.parent + rank
    elif (  # only rows whose sums are 0 lie between
        takes_gap and best.default_left != 0 and walk.feature == best.feature and walk.code == best.last_bin + 1
        and left_grad == best.left_grad and left_hess == best.left_hess
    ):  # fmt: skip
        best.last_bin = last_bin


@kernel
def choose_walked_cpu(frontier, nodes, left_sums, bests, thresholds, offsets, is_centred):
    """Each node's best split over all threads: the split fields of its struct, and the sums of its left child.

    is_centred : whether the cut is taken midway between the node's values rather than next to one of them. It is the cut nearest
        to the middle of the outermost two that tell them apart, so training rows stay where they are.
    thresholds, offsets : of the cuts. Others as walk_columns_cpu.
    """
    for i in range(frontier.size):
        chosen = 0
        for thread in range(1, bests.shape[0]):
            own, other = bests[thread, i], bests[chosen, i]
            if own.rank > other.rank or (own.rank == other.rank and own.gain != NO_GAIN and own.feature < other.feature):
                chosen = thread
        best, node = bests[chosen, i], nodes[frontier[i]]
        node.gain = best.gain
        if best.gain != NO_GAIN:
            node.feature, node.bin, node.default_left, node.kind = best.feature, best.last_bin, best.default_left, NUMERIC
            left_sums[frontier[i], 0, 0], left_sums[frontier[i], 0, 1] = best.left_grad, best.left_hess
            if is_centred:
                highest = max(best.bin, best.next_bin - 1)
                node.bin = _middle_bin(best.bin, highest, thresholds[offsets[best.feature] :])


@scalar
def _middle_bin(low, high, thresholds):
    """The b in [low, high] whose threshold is nearest to the middle of the outermost two, the lower one of equals."""
    middle = (float64(thresholds[low]) + float64(thresholds[high])) * 0.5
    below, above = low, high
    while above - below > 1:
        b = (below + above) // 2
        if thresholds[b] <= middle:
            below = b
        else:
            above = b
    return below if middle - thresholds[below] <= thresholds[above] - middle else above
