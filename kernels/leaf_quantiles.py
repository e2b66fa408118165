"""Leaves that are quantiles of residuals, for losses whose best leaf is no quotient of sums: absolute error, pinball loss.

    leaf = (r_low + r_high)/2 · learning_rate     r = label − margin of the leaf's rows, as float32, weighed by their hessians h
    r_low    the smallest r with Σ_{r' ≤ r} h ≥ α·Σ h
    r_high   the smallest r with Σ_{r' ≤ r} h > α·Σ h       (the same r, unless α·Σ h is met exactly: the median of an even count)

(Friedman 2001, Algorithm 3, for α = ½.) Both are found by radix selection over keys of the residuals (scalar.float_key), a digit
of 8 bits at a time: the weight by digit of all rows that share the digits chosen so far is summed over threads, blocks, pages and
workers, then the digit in which the target lies is chosen. Weights are integers of up to 31 bits, so no order and no sharding
changes a sum. What is known of a leaf lies in its slot:

    prefixes : int64 (n_slots, leaf_size, 2). The digits chosen so far, of r_low and r_high.
    targets : int64 (n_slots, leaf_size, 2). What the weight up to r_low and r_high must reach among the rows with that prefix.
    counts : int64 (n_slots, leaf_size, 2, 256). Weight by digit among them; only the first, while both prefixes are equal.

Floor: keys and weights are listed once, 16 bytes read per row and 8 written; then each of the N_LEVELS passes reads 8.
"""

import math

import numpy as np
from numba import float32, float64, int32, int64, uint32, uint64

from gpuboost.kernels.allocation import empty, zeros
from gpuboost.kernels.cuda_common import (
    FULL_WARP,
    ONE_BLOCK,
    cuda,
    cuda_kernel,
    device_function,
    lane_number,
    n_threads,
    n_warps,
    owner_of,
    thread_number,
    warp_number,
    warp_prefix,
)
from gpuboost.kernels.jit import add_atomic, claim, kernel, launch, parallel_kernel, scalar
from gpuboost.kernels.leaves import CHUNK_ROWS
from gpuboost.kernels.scalar import float_key, key_float, larger, smaller

DIGITS, DIGIT_BITS = 256, 8
COUNTS = 2 * DIGITS  # of r_low, then of r_high
N_LEVELS = 32 // DIGIT_BITS
WEIGHT_BITS = 31


@scalar
def weight_units(hess, scale):
    """A row's weight as an integer of up to 31 bits, at least 1. scale : float64, 2^31 over the largest hessian or a bit less."""
    return uint32(max(int64(math.floor(float64(hess) * scale + 0.5)), int64(1)))


@scalar
def first_target(total, numerator, denominator, k):
    """What the weight up to r_low (k = 0) or r_high (k = 1) must reach, of so much in all: the integers ≥ and > α·total, for α
    exactly numerator/denominator."""
    whole, rest = total // denominator, numerator * (total % denominator)
    below = numerator * whole + rest // denominator
    if k == 0:
        return max(below if rest % denominator == 0 else below + int64(1), int64(1))
    return min(below + int64(1), total)


@scalar
def middle_residual(low, high):
    """(r_low + r_high)/2 of two keys, as float64; 0 for a leaf without rows, of which no digit meets either target."""
    if low > high:
        return float64(0.0)
    return (float64(key_float(uint32(low))) + float64(key_float(uint32(high)))) * float64(0.5)


@scalar
def cut_of(sign, left_low, left_high, right_low, right_high):
    """Where the leaves on either side of a split under a monotone constraint must be cut, halfway between the extremes that are
    in the wrong order; NaN where none are. Cutting a whole side at one value keeps every order within it."""
    if sign > 0 and left_high > right_low:
        return (left_high + right_low) * float64(0.5)
    if sign < 0 and left_low < right_high:
        return (left_low + right_high) * float64(0.5)
    return float64(np.nan)


@scalar
def cut_value(value, is_left, sign, cut):
    """A value below a split whose leaves are cut: at most the cut on the side that is to be lower, at least it on the other."""
    if cut != cut:
        return value
    return smaller(value, cut) if (sign > 0) == is_left else larger(value, cut)


@parallel_kernel
def list_residuals_cpu(chunks, nodes, segments, rows, label, margin, hess, scales, first_output, keys, weights, n_threads):
    """The keys and weights of one page's leaf rows, in the order of the row lists.

    chunks, nodes, segments, rows, hess, first_output : as sum_leaves_cpu (kernels/leaves.py).
    label : float32 (n_outputs or 1, n_rows), IN. margin : float32 (n_outputs, n_rows), IN. scales : float64 (n_outputs,), IN, of
    weight_units. keys, weights : uint32 (leaf_size, n), OUT, as long as the row lists.
    """
    counter = zeros(1, np.int64)
    args = (
        counter, chunks, nodes, segments, rows, label, margin, hess, scales, first_output, keys, weights,
    )  # fmt: skip
    launch(n_threads, _list_chunks, args)


@parallel_kernel.part
def _list_chunks(counter, chunks, nodes, segments, rows, label, margin, hess, scales, first_output, keys, weights):
    while True:
        item = claim(counter)
        if item >= chunks.shape[0]:
            return
        node = chunks[item, 0]
        side = segments[node, 2]
        for own in range(keys.shape[0]):
            output = first_output[nodes[node].tree] + own
            target = min(output, label.shape[0] - 1)
            for i in range(chunks[item, 1], chunks[item, 2]):
                row = uint32(rows[side, i])
                keys[own, i] = float_key(float32(label[target, row] - margin[output, row]))
                weights[own, i] = weight_units(hess[output, row], scales[output])


@parallel_kernel
def count_residuals_cpu(chunks, nodes, first_node, level, keys, weights, prefixes, counts, n_threads):
    """Add the weights by digit of one page's rows, of the leaves from first_node on that have a slot.

    level : which digit, 0 is the highest. prefixes : IN. counts : INOUT, zeroed by the caller. Others as list_residuals_cpu.
    """
    counter = zeros(1, np.int64)
    flat = counts.reshape(-1)
    launch(n_threads, _count_chunks, (counter, chunks, nodes, first_node, level, keys, weights, prefixes, flat))


@parallel_kernel.part
def _count_chunks(counter, chunks, nodes, first_node, level, keys, weights, prefixes, flat):
    own_counts = empty((2, DIGITS), np.int64)
    shift = uint64(32 - DIGIT_BITS * (level + 1))
    while True:
        item = claim(counter)
        if item >= chunks.shape[0]:
            return
        slot = int64(nodes[chunks[item, 0]].leaf) - first_node
        if slot < 0 or slot >= prefixes.shape[0]:
            continue
        for own in range(keys.shape[0]):
            own_counts[:] = 0
            low, high = uint64(prefixes[slot, own, 0]), uint64(prefixes[slot, own, 1])
            for i in range(chunks[item, 1], chunks[item, 2]):
                key = uint64(keys[own, i]) >> shift
                if key >> uint64(DIGIT_BITS) == low:
                    own_counts[0, key & uint64(DIGITS - 1)] += int64(weights[own, i])
                elif key >> uint64(DIGIT_BITS) == high:
                    own_counts[1, key & uint64(DIGITS - 1)] += int64(weights[own, i])
            first = (slot * keys.shape[0] + own) * 2 * DIGITS
            for k in range(2):
                for digit in range(DIGITS):
                    if own_counts[k, digit] > 0:
                        add_atomic(flat, first + k * DIGITS + digit, own_counts[k, digit])


@kernel
def choose_digits(first_node, level, alphas, first_output, nodes, counts, prefixes, targets):
    """Choose the next digit of every slot. alphas : int64 (n_outputs, 2), IN (backend/fixed_point.as_ratios). counts : IN, over
    all workers. Others INOUT."""
    for slot in range(counts.shape[0]):
        for own in range(counts.shape[1]):
            is_shared = prefixes[slot, own, 0] == prefixes[slot, own, 1]
            for k in range(2):
                row = counts[slot, own, 0 if is_shared else k]
                if level == 0:
                    output = first_output[nodes[first_node + slot].tree] + own
                    targets[slot, own, k] = first_target(row.sum(), alphas[output, 0], alphas[output, 1], k)
                digit, before = 0, int64(0)
                while digit < DIGITS - 1 and before + row[digit] < targets[slot, own, k]:
                    before += row[digit]
                    digit += 1
                prefixes[slot, own, k] = prefixes[slot, own, k] * DIGITS + digit
                targets[slot, own, k] -= before


@kernel
def take_quantiles(first_node, prefixes, values):
    """The values of the nodes that have a slot, before the learning rate; of no meaning but for leaves.
    values : float64 (n_nodes, leaf_size), OUT."""
    for slot in range(prefixes.shape[0]):
        for own in range(prefixes.shape[1]):
            values[first_node + slot, own] = middle_residual(prefixes[slot, own, 0], prefixes[slot, own, 1])


@kernel
def find_cuts(n_nodes, nodes, monotone, values, low, high, cuts):
    """Where the leaves below every split are to be cut for its monotone constraint, bottom-up; trees of one output.

    monotone : int8 (n_features,), IN. values : float64 (n_nodes, 1), IN, of leaves. cuts : float64 (n_nodes,), OUT (cut_of).
    low, high : float64 (n_nodes,), SCRATCH. The extreme values below each node, after the cuts there.
    """
    for node in range(n_nodes - 1, -1, -1):  # children have larger numbers
        find_cut(nodes, node, monotone, values, low, high, cuts)


@scalar
def find_cut(nodes, node, monotone, values, low, high, cuts):
    """find_cuts for one node whose children are done."""
    left = int64(nodes[node].left)
    if left < 0:
        low[node], high[node], cuts[node] = values[node, 0], values[node, 0], float64(np.nan)
        return
    right, sign = left + int64(1), int64(monotone[nodes[node].feature])
    cut = cut_of(sign, low[left], high[left], low[right], high[right])
    cuts[node] = cut
    low[node] = smaller(cut_value(low[left], True, sign, cut), cut_value(low[right], False, sign, cut))
    high[node] = larger(cut_value(high[left], True, sign, cut), cut_value(high[right], False, sign, cut))


@scalar
def ordered_value(nodes, node, monotone, value, cuts):
    """A leaf's value after the cuts of all splits above it, from the lowest up. cuts : (0,) without constraints."""
    child, parent = int64(node), int64(nodes[node].parent)
    while parent >= 0 and cuts.size > 0:
        value = cut_value(value, child == nodes[parent].left, int64(monotone[nodes[parent].feature]), cuts[parent])
        child, parent = parent, int64(nodes[parent].parent)
    return value


@kernel
def weigh_quantiles(n_nodes, nodes, monotone, values, cuts, learning_rate, weights, leaves):
    """Weights and leaf values from the values of leaves. weights, leaves : float32 (n_nodes, leaf_size), INOUT: of splits, IN."""
    for node in range(n_nodes):
        if nodes[node].left < 0:
            for own in range(values.shape[1]):
                value = ordered_value(nodes, node, monotone, values[node, own], cuts)
                weights[node, own] = float32(value)
                leaves[node, own] = float32(value * learning_rate)


# ---------------------------------------------------------------------------------------------------------------------
# CUDA. A block takes a chunk of CHUNK_ROWS rows of one leaf and counts in shared memory, weights in two halves of 16 bits: 4096
# of them stay below 2^28. A warp chooses a digit, 8 of them a lane. 11M rows: 0.18 GB listed (and up to 1.1 GB of sectors read),
# then 4 · 0.09 GB: 0.3 ms at 4.8 TB/s.

_CHUNKS = "segments: int64[:, :], nodes: NODE[:], progress: PROGRESS[:], first_chunk: int64[:], "


@cuda_kernel(
    _CHUNKS + "rows: int32[:, :], first_row: int64, label: float32[:, :], margin: float32[:, :], hess: float32[:, :], "
    "scales: float64[:, :], factor: float64, first_output: int32[:], keys: uint32[:, :], weights: uint32[:, :]",
    registers=64, uses_double=True,
)  # fmt: skip
def list_residuals_kernel(
    segments, nodes, progress, first_chunk, rows, first_row, label, margin, hess, scales, factor, first_output, keys, weights
):
    """list_residuals_cpu. first_row : where the page begins in label, margin and hess.
    scales : float64 (n_outputs, 2), IN. Those of leaves; the second times factor is that of weight_units."""
    chunk = int64(cuda.blockIdx.x)
    while chunk < first_chunk[progress[0].n_nodes]:
        node = owner_of(first_chunk, progress[0].n_nodes, chunk)
        begin = segments[node, 0] + (chunk - first_chunk[node]) * CHUNK_ROWS
        end, side = min(begin + CHUNK_ROWS, segments[node, 1]), segments[node, 2]
        for own in range(keys.shape[0]):
            output = first_output[nodes[node].tree] + own
            target = min(output, label.shape[0] - 1)
            scale = scales[output, 1] * factor
            i = begin + int64(cuda.threadIdx.x)
            while i < end:
                row = first_row + int64(rows[side, i])
                keys[own, i] = float_key(float32(label[target, row] - margin[output, row]))
                weights[own, i] = weight_units(hess[output, row], scale)
                i += int64(cuda.blockDim.x)
        chunk += int64(cuda.gridDim.x)


@cuda_kernel(
    _CHUNKS + "first_node: int64, level: int64, keys: uint32[:, :], weights: uint32[:, :], prefixes: int64[:, :, :], "
    "counts: int64[:, :, :, :]",
    registers=40,
)  # fmt: skip
def count_residuals_kernel(segments, nodes, progress, first_chunk, first_node, level, keys, weights, prefixes, counts):
    """count_residuals_cpu. One atomic add per block, slot and digit with weight."""
    halves = cuda.shared.array((2, COUNTS), int32)
    shift = uint64(32 - DIGIT_BITS * (level + 1))
    chunk = int64(cuda.blockIdx.x)
    while chunk < first_chunk[progress[0].n_nodes]:
        node = owner_of(first_chunk, progress[0].n_nodes, chunk)
        slot = int64(nodes[node].leaf) - first_node
        if slot >= 0 and slot < prefixes.shape[0]:  # the same for the block
            begin = segments[node, 0] + (chunk - first_chunk[node]) * CHUNK_ROWS
            end = min(begin + CHUNK_ROWS, segments[node, 1])
            for own in range(keys.shape[0]):
                low, high = uint64(prefixes[slot, own, 0]), uint64(prefixes[slot, own, 1])
                digit = int64(cuda.threadIdx.x)
                while digit < COUNTS:
                    halves[0, digit], halves[1, digit] = 0, 0
                    digit += int64(cuda.blockDim.x)
                cuda.syncthreads()  # the counts are zero
                i = begin + int64(cuda.threadIdx.x)
                while i < end:
                    key = uint64(keys[own, i]) >> shift
                    above, digit = key >> uint64(DIGIT_BITS), int64(key & uint64(DIGITS - 1))
                    if above == low or above == high:
                        digit += 0 if above == low else DIGITS
                        cuda.atomic.add(halves, (0, digit), weights[own, i] & uint32(0xFFFF))
                        cuda.atomic.add(halves, (1, digit), weights[own, i] >> uint32(16))
                    i += int64(cuda.blockDim.x)
                cuda.syncthreads()  # the chunk is counted
                digit = int64(cuda.threadIdx.x)
                while digit < COUNTS:
                    weight = int64(halves[0, digit]) + (int64(halves[1, digit]) << int64(16))
                    if weight > 0:
                        cuda.atomic.add(counts, (slot, own, digit // DIGITS, digit % DIGITS), weight)
                    digit += int64(cuda.blockDim.x)
                cuda.syncthreads()  # the counts have been read
        chunk += int64(cuda.gridDim.x)


@device_function
def lane_weight(counts, slot, own, k):
    """The weight of this lane's digits."""
    total = int64(0)
    for i in range(DIGITS // 32):
        total += counts[slot, own, k, lane_number() * (DIGITS // 32) + i]
    return total


@cuda_kernel(
    "first_node: int64, level: int64, alphas: int64[:, :], first_output: int32[:], nodes: NODE[:], progress: PROGRESS[:], "
    "counts: int64[:, :, :, :], prefixes: int64[:, :, :], targets: int64[:, :, :]",
    block=128, registers=128, uses_double=True,
)  # fmt: skip
def choose_digits_kernel(first_node, level, alphas, first_output, nodes, progress, counts, prefixes, targets):
    """choose_digits, a warp per slot and output."""
    lane, item = lane_number(), warp_number()
    while item < counts.shape[0] * counts.shape[1]:
        slot, own = item // counts.shape[1], item % counts.shape[1]
        item += n_warps()
        if first_node + slot < progress[0].n_nodes:  # the same for the warp
            low, high = prefixes[slot, own, 0], prefixes[slot, own, 1]
            output = first_output[nodes[first_node + slot].tree] + own
            cuda.syncwarp()  # all lanes have read the prefixes
            for k in range(2):
                row = 0 if low == high else k
                before = warp_prefix(lane_weight(counts, slot, own, row))
                target = targets[slot, own, k]
                if level == 0:
                    total = cuda.shfl_sync(FULL_WARP, before, 31)
                    target = first_target(total, alphas[output, 0], alphas[output, 1], k)
                before -= lane_weight(counts, slot, own, row)
                # the lane whose digits pass the target: the last that begins before it; without weight the first
                n_lanes = cuda.popc(cuda.ballot_sync(FULL_WARP, before < target))
                cuda.syncwarp()  # all lanes have read the target
                if lane == max(n_lanes, 1) - 1:
                    choose_of_lane(counts, slot, own, row, k, before, target, prefixes, targets)


@device_function
def choose_of_lane(counts, slot, own, row, k, before, target, prefixes, targets):
    """The digit among the lane's own, of which the weight up to the first is ``before``."""
    digit = lane_number() * (DIGITS // 32)
    last = digit + DIGITS // 32 - 1
    while digit < last and before + counts[slot, own, row, digit] < target:
        before += counts[slot, own, row, digit]
        digit += 1
    prefixes[slot, own, k] = prefixes[slot, own, k] * DIGITS + digit
    targets[slot, own, k] = target - before


@cuda_kernel(
    "first_node: int64, progress: PROGRESS[:], prefixes: int64[:, :, :], values: float64[:, :]", registers=48, uses_double=True
)
def take_quantiles_kernel(first_node, progress, prefixes, values):
    """take_quantiles, a thread per slot."""
    slot = int64(thread_number())
    while slot < prefixes.shape[0] and first_node + slot < progress[0].n_nodes:
        for own in range(prefixes.shape[1]):
            values[first_node + slot, own] = middle_residual(prefixes[slot, own, 0], prefixes[slot, own, 1])
        slot += int64(n_threads())


@cuda_kernel(
    "progress: PROGRESS[:], nodes: NODE[:], monotone: int8[:], values: float64[:, :], low: float64[:], high: float64[:], "
    "cuts: float64[:]",
    uses_double=True, **ONE_BLOCK,
)  # fmt: skip
def find_cuts_kernel(progress, nodes, monotone, values, low, high, cuts):
    """find_cuts, level by level. One block."""
    depth = progress[0].depth
    while depth >= 0:
        node = int64(cuda.threadIdx.x)
        while node < progress[0].n_nodes:
            if nodes[node].depth == depth:
                find_cut(nodes, node, monotone, values, low, high, cuts)
            node += int64(cuda.blockDim.x)
        cuda.syncthreads()  # this level is cut
        depth -= 1


@cuda_kernel(
    "progress: PROGRESS[:], nodes: NODE[:], monotone: int8[:], values: float64[:, :], cuts: float64[:], weights: float32[:, :], "
    "leaves: float32[:, :]",
    registers=40, uses_double=True,
)  # fmt: skip
def weigh_quantiles_kernel(progress, nodes, monotone, values, cuts, weights, leaves):
    """weigh_quantiles, a thread per node."""
    node = int64(thread_number())
    while node < progress[0].n_nodes:
        if nodes[node].left < 0:
            for own in range(values.shape[1]):
                value = ordered_value(nodes, node, monotone, values[node, own], cuts)
                weights[node, own] = float32(value)
                leaves[node, own] = float32(value * progress[0].learning_rate)
        node += int64(n_threads())
