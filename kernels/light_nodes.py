"""Splits of nodes of few rows of a sparse table: only the bins that their rows have are looked at.

    sums[b], sum of the node's cells of bin b, and a bit for each bin that has any; both are all zero between two nodes
    search:  the walk of kernels/exact.py, over bits that are set, column by column
    sibling: its histogram = that of the parent − sums, at these bins; absent cells are no part of it, or of the bin of zero

A histogram has all bins, and tables of rare cells, as of words, almost as many as cells: leaf by leaf, where many a split parts
some rows from all others, most of the time goes into bins of nodes that have none. What is split off further from a node of few
rows has no histogram either. Floor: 16 bytes read and written for each cell, anywhere. An AMD EPYC (Zen 4), leaf by leaf, ms a
round on one thread and two, before -> so: 20,000 × 2,000, one cell in 200, 31 leaves 30 -> 20, 26 -> 13.5, and 148 -> 24 MB;
100,000 × 2,000, one in 100, 116 -> 103, 110 -> 80; 5,000 × 60,000 of few values, one in 1,000, 63 leaves, walked so far
(kernels/exact.py), 460 -> 335, 370 -> 300.
"""

import numpy as np
from numba import int32, int64, uint32, uint64

from gpuboost.kernels.allocation import empty, zeros
from gpuboost.kernels.exact import (
    BEST,
    SEARCHED,
    WALK,
    choose_walked_cpu,
    either_may_win,
    meet_absent,
    start_node,
    try_split,
    unpack_pair,
)
from gpuboost.kernels.jit import call_late, claim, launch, parallel_kernel, scalar
from gpuboost.kernels.packed_candidates import lowest_one
from gpuboost.kernels.scalar import larger

__all__ = ["choose_light", "search_light"]


@parallel_kernel.part
def choose_light(frontier, given):
    """(pairs both of which get histograms, all nodes that do, the others), int32. frontier : int32, IN. Pairs of children.

    As nodes.choose_built, but that a child of no more than given.light_rows rows gets none, nor do children of a node without. A
    larger child that has more takes over its parent's all the same.
    """
    nodes, counts = given.nodes, given.counts
    pairs, heavy, light = empty(frontier.size, np.int32), empty(frontier.size, np.int32), empty(frontier.size, np.int32)
    n_paired, n_heavy, n_light = 0, 0, 0
    for i in range(0, frontier.size, 2):
        left = frontier[i]
        slot = nodes[nodes[left].parent].slot
        smaller = left if counts[left] <= counts[left + 1] else left + 1
        larger_one = left + left + 1 - smaller
        if slot >= 0 and counts[smaller] > given.light_rows:
            pairs[n_paired], pairs[n_paired + 1] = left, left + 1
            heavy[n_heavy], heavy[n_heavy + 1] = left, left + 1
            n_paired, n_heavy = n_paired + 2, n_heavy + 2
            continue
        nodes[smaller].slot, light[n_light] = -1, smaller
        n_light += 1
        if slot >= 0 and counts[larger_one] > given.light_rows:
            nodes[larger_one].slot, heavy[n_heavy] = slot, larger_one
            n_heavy += 1
        else:
            nodes[larger_one].slot, light[n_light] = -1, larger_one
            n_light += 1
    return pairs[:n_paired], heavy[:n_heavy], light[:n_light]


@parallel_kernel.part
def search_light(sparse, light, mask, scratch, n_threads, given):
    """Find the best splits of nodes without histograms, and take what they sum to from those of their siblings.

    sparse : of grow_trees_cpu. light : int32 (n,), IN. mask : as exact.walk_columns has it, of these nodes and the columns.
    scratch : of it light_sums, int64 (n_threads, ≥ total_bins + n_columns, 2), and light_bits, uint64 (n_threads, as many bits),
        zeros before and after.
    """
    bests = empty((1, light.size), BEST)
    launch(n_threads, _search_nodes, (zeros(1, np.int64), sparse, light, mask, bests[0], scratch, given))
    no_thresholds = empty(0, np.float32)
    call_late(_choose, (light, given.nodes, given.left_sums, bests, no_thresholds, given.offsets, np.bool_(False)))


_choose = choose_walked_cpu


@parallel_kernel.part
def _search_nodes(thread, counter, sparse, light, mask, bests, scratch, given):
    nodes, sums, segments = given.nodes, given.sums, given.segments
    own_sums, bits = scratch.light_sums[thread], scratch.light_bits[thread]
    walks, searched, penalty = empty(1, WALK), empty(1, SEARCHED), empty(4, np.float64)
    penalty[0], penalty[1] = given.reg_lambda, given.alpha
    penalty[2], penalty[3] = given.max_delta_step, given.min_child_weight
    while True:
        i = claim(counter)
        if i >= light.size:
            return
        node, own = light[i], searched[0]
        output = given.first_output[nodes[node].tree]
        own.grad, own.hess, own.n_rows = sums[node, 0, 0], sums[node, 0, 1], given.counts[node]
        own.lower, own.upper = nodes[node].lower, nodes[node].upper
        scales = given.inverse_scales[output]
        start_node(walks[0], bests[i], own, scales, penalty, None)
        left = nodes[nodes[node].parent].left
        slot, may_split = nodes[left + left + 1 - node].slot, float(own.hess) * scales[1] >= 2 * penalty[3]
        if slot < 0 and not may_split:  # its children cannot both be heavy enough
            continue
        _sum_cells(
            sparse, given.rows[segments[node, 2]], segments[node, 0], segments[node, 1], given.gpair[output],
            given.n_limbs[output] == 2, own_sums, bits,
        )  # fmt: skip
        if may_split:
            _search(
                sparse, own_sums, bits, mask[i % max(mask.shape[0], 1) :], own, scales, penalty, walks[0], bests[i], given
            )  # fmt: skip
        if slot >= 0:
            _subtract(sparse, own_sums, bits, own, given.hist[slot, 0], given.offsets[given.features.size])
        _clear(own_sums, bits)


@parallel_kernel.part
def _sum_cells(sparse, rows, begin, end, gpair, is_low, sums, bits):
    """gpair : int32 (2, n_rows), IN."""
    row_begin, row_end, cells, last = sparse[0], sparse[1], sparse[2], uint64(gpair.shape[0] - 1)
    for at in range(uint64(begin), uint64(end)):
        row = uint32(rows[at])
        grad, hess = unpack_pair(int64(gpair[0, row]), gpair[last, row], is_low)
        for k in range(uint64(row_begin[row]), uint64(row_end[row])):
            cell = uint64(cells[k])
            sums[cell, 0] += grad
            sums[cell, 1] += hess
            bits[cell >> uint64(6)] |= uint64(1) << (cell & uint64(63))


@scalar
def _next_bit(bits, at, end):
    """The first bit from ``at`` on that is set; end if there is none before."""
    if at >= end:
        return end
    word = at >> int64(6)
    own = (bits[word] >> uint64(at & int64(63))) << uint64(at & int64(63))
    while own == uint64(0):
        word += int64(1)
        if word << int64(6) >= end:
            return end
        own = bits[word]
    return min((word << int64(6)) + lowest_one(own), end)


@parallel_kernel.part
def _search(sparse, sums, bits, mask, node, scales, penalty, walk, best, given):
    """mask : the node's is the first row, if there is any."""
    zero_bins, offsets, features, monotone = sparse[3], given.offsets, given.features, given.monotone
    n_columns = int64(features.size)
    total_bins = int64(offsets[n_columns])
    end, column = total_bins + n_columns, int64(0)
    at, missing_at = _next_bit(bits, int64(0), total_bins), _next_bit(bits, total_bins, end)
    while at < total_bins or missing_at < end:
        if at < total_bins:
            while offsets[column + 1] <= at:
                column += 1
        else:
            column = n_columns
        column = min(column, missing_at - total_bins)  # of missing cells only
        first, stop, first_at = int64(offsets[column]), int64(offsets[column + 1]), at
        total_grad, total_hess, missing_grad, missing_hess = int64(0), int64(0), int64(0), int64(0)
        while at < stop:
            total_grad, total_hess = total_grad + sums[at, 0], total_hess + sums[at, 1]
            at = _next_bit(bits, at + 1, total_bins)
        if missing_at == total_bins + column:
            missing_grad, missing_hess = sums[missing_at, 0], sums[missing_at, 1]
            missing_at = _next_bit(bits, missing_at + 1, end)
        if mask.shape[0] > 0 and mask[0, column] == 0:
            continue
        missing_code = stop - first
        absent_code = int64(zero_bins[total_bins + column]) - first if zero_bins.size > 0 else missing_code
        walk.grad, walk.hess, walk.code, walk.feature = int64(0), int64(0), int64(-1), features[column]
        walk.sign = int64(monotone[features[column]]) if monotone.size > 0 else int64(0)
        walk.absent_grad = node.grad - total_grad - missing_grad
        walk.absent_hess = node.hess - total_hess - missing_hess
        walk.missing_grad, walk.missing_hess = missing_grad, missing_hess
        if absent_code == missing_code:
            walk.missing_grad, walk.missing_hess = node.grad - total_grad, node.hess - total_hess
            walk.absent_grad, walk.absent_hess = int64(0), int64(0)
        walk.n_absent = int64(walk.absent_grad != 0 or walk.absent_hess != 0)  # as a histogram, which does not know how many
        walk.has_missing = int32(walk.missing_grad != 0 or walk.missing_hess != 0)
        _walk(sums, bits, first_at, first, stop, absent_code, scales, penalty, walk, best)


@parallel_kernel.part
def _walk(sums, bits, at, first, stop, absent_code, scales, penalty, walk, best):
    """Try the splits of a column whose bins are first to stop; ``at`` is the first of them that the node has."""
    smallest, parameters = larger(penalty[3], scales[1]), empty(0, np.float64)
    while at < stop:
        code = at - first
        if code > absent_code:
            meet_absent(walk, best, code, absent_code, scales, penalty, None, parameters)
        if walk.code >= 0 and either_may_win(walk, scales[0], scales[1], penalty[0], smallest):
            try_split(walk, best, code, scales, penalty, None, parameters)
        walk.code = code
        walk.grad += sums[at, 0]
        walk.hess += sums[at, 1]
        at = _next_bit(bits, at + 1, stop)
    meet_absent(walk, best, stop - first, absent_code, scales, penalty, None, parameters)
    try_split(walk, best, int64(-1), scales, penalty, None, parameters)


@parallel_kernel.part
def _subtract(sparse, sums, bits, node, hist, total_bins):
    """Take a node's sums from a histogram. hist : int64 (≥ total_bins, 2), INOUT. What kernels/sparse.py adds."""
    zero_bins = sparse[3]
    for k in range(total_bins, zero_bins.size):
        zero = zero_bins[k]
        hist[zero, 0] -= node.grad
        hist[zero, 1] -= node.hess
    end = int64(64 * bits.size)
    at = _next_bit(bits, int64(0), end)
    while at < end:
        if at < total_bins:
            hist[at, 0] -= sums[at, 0]
            hist[at, 1] -= sums[at, 1]
        if zero_bins.size > 0:
            zero = zero_bins[at]
            hist[zero, 0] += sums[at, 0]
            hist[zero, 1] += sums[at, 1]
        at = _next_bit(bits, at + 1, end)


@parallel_kernel.part
def _clear(sums, bits):
    end = int64(64 * bits.size)
    at = _next_bit(bits, int64(0), end)
    while at < end:
        sums[at, 0], sums[at, 1] = int64(0), int64(0)
        at = _next_bit(bits, at + 1, end)
    bits[:] = uint64(0)
