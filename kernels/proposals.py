"""Propose the split candidates of a node: few of the table's fine bins, spread evenly over its hessians (tree_method="approx").

Chen & Guestrin 2016, Algorithm 2 and §3.3: candidates are quantiles of the rows weighted by their hessians, proposed for every
node ("local") or once per tree, from its root ("global"). The paper sketches the rows anew each time. Here the table was coded
once in many fine bins (params.Params.table_bins), and the quantiles are those of a node's histogram: integers summed over all
workers, so any sharding and any device proposes the same. For one feature with hessians h_b, of sum H, and K candidates:

    at most K bins with h_b > 0:  all bins are candidates, and the node splits as tree_method="hist" would.
    else, with H' and K' the weight and the candidates that the light bins share, at first all:
        a bin with h_b ≥ 2·H'/K' is heavy: it and the last non-empty bin before it are candidates, and leave H' and K' (by 2).
        Again with the new H' and K', until no further bin is heavy.
        A light bin is a candidate where ⌊c_b·K'/H'⌋ grows, c_b being the sum of the light bins up to it. Where it grows by two,
        so is the last non-empty bin before it.

Bound: every gap between neighbouring candidates (the bins after one, up to the next) that holds more than one non-empty bin has

    weight < ε·H with ε = 2/K

Proof. Each heavy bin takes at least 2·H'/K' from H' and 2 from K', so H'/K' never exceeds H/K, and heavy bins stay heavy. A
heavy bin is alone in its gap. In any other gap ⌊c·K'/H'⌋ stays the same before its last bin, which adds one, or two and is then
alone: with more than one bin, c·K'/H' rises by less than 2 in it. Behind the last candidate nothing is left, as ⌊c·K'/H'⌋ ends
at K'. There are at most K candidates: K' steps of light bins, and two for each heavy one. (sketch.py does the same to values.)

Weights of 2^WEIGHT_BITS or more in sum are shifted down first, so that c·K' fits 64 bits. That drops less than one unit per bin:
then ε = 2/K + 2^−29, for 2^16 bins of 2^−45·H each.

With several outputs per tree their units add up: each output's are 16 bits of its largest hessian, so they count alike.
"""

import numpy as np
from numba import int64, uint8, uint32

from gpuboost.kernels.allocation import zeros
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
from gpuboost.kernels.jit import claim, launch, parallel_kernel, scalar

WEIGHT_BITS = 46  # and 2^16 candidates leave the sign and one bit


@parallel_kernel
def propose_candidates_cpu(frontier, nodes, by_tree, hist, offsets, n_candidates, proposed, weight, n_threads):
    """Mark the candidates of every feature of some nodes.

    frontier : int32 (n,), IN. The nodes. nodes : NODE, IN. Their slots say where their histograms lie.
    by_tree : whether a node's row of ``proposed`` is its tree or its slot.
    hist : int64 (n_slots, n_outputs, total_bins, 2), IN. offsets : int32 (n_features + 1,), IN.
    n_candidates : K, at most 65535.
    proposed : uint8 (n_rows, total_bins), OUT. 1 for a candidate. weight : int64 (n_threads, max_bins), SCRATCH.
    """
    counter = zeros(1, np.int64)
    launch(n_threads, _propose_items, (counter, frontier, nodes, by_tree, hist, offsets, n_candidates, proposed, weight))


@parallel_kernel.part
def _propose_items(thread, counter, frontier, nodes, by_tree, hist, offsets, n_candidates, proposed, weight):
    weight = weight[thread]
    n_features = offsets.size - 1
    while True:
        item = claim(counter)
        if item >= frontier.size * n_features:
            return
        node, feature = nodes[frontier[item // n_features]], item % n_features
        first, last = offsets[feature], offsets[feature + 1]
        row = node.tree if by_tree else node.slot
        _propose(hist[node.slot, :, first:last], n_candidates, proposed[row, first:last], weight[: last - first])


@parallel_kernel.part
def _propose(hist, n_candidates, proposed, weight):
    """The candidates of one feature of one node."""
    total, n_filled = int64(0), int64(0)
    for b in range(weight.size):
        weight[b] = hist[0, b, 1]
        for output in range(1, hist.shape[0]):
            weight[b] += hist[output, b, 1]
        total += weight[b]
        n_filled += weight[b] > 0
    if n_filled <= n_candidates:
        proposed[:] = 1
        return
    shift, total = weight_shift(total), int64(0)
    for b in range(weight.size):
        total += weight[b] >> shift
    heavy, n_heavy, light, left, is_found = least_heavy(total, n_candidates), int64(0), total, int64(n_candidates), True
    while is_found:  # in at most K/2 rounds
        count, taken = int64(0), int64(0)
        for b in range(weight.size):
            is_heavy = (weight[b] >> shift) >= heavy
            count += is_heavy
            taken += (weight[b] >> shift) if is_heavy else int64(0)
        light, left = total - taken, int64(n_candidates) - 2 * count
        is_found = count > n_heavy and light > 0
        if is_found:
            n_heavy, heavy = count, least_heavy(light, left)
    reached, target = int64(0), max(light, int64(1))  # c·K', and the multiple of H' that it has not reached
    previous = int64(-1)
    for b in range(weight.size):
        proposed[b] = 0
        if weight[b] > 0:
            own, hits = weight[b] >> shift, 0
            if own >= heavy:
                hits = 2
            else:
                reached += own * left
                while reached >= target:
                    target += light
                    hits += 1
            if hits > 0:
                proposed[b] = 1
            if hits > 1 and previous >= 0:
                proposed[previous] = 1
            previous = b


@scalar
def weight_shift(total):
    """Bits to drop from weights of this sum, so that fewer than 2^WEIGHT_BITS units remain."""
    shift = int64(0)
    while (int64(total) >> shift) >= int64(1 << WEIGHT_BITS):
        shift = int64(shift + int64(1))
    return shift


@scalar
def least_heavy(light, left):
    """⌈2·H'/K'⌉: the least weight of a heavy bin. light > 0, and so left > 0."""
    return (int64(2) * int64(light) + int64(left) - int64(1)) // int64(left)


# ---------------------------------------------------------------------------------------------------------------------
# CUDA. A warp takes one feature of one node, 32 bins at a time, as in splits.py.


@cuda_kernel(
    "begin: int64, n: int64, max_depth: int64, by_tree: int64, n_candidates: int64, progress: PROGRESS[:], nodes: NODE[:], "
    "hist: int64[:, :, :, :], offsets: int32[:], proposed: uint8[:, :]",
    block=128, registers=80,
)  # fmt: skip
def propose_candidates_kernel(begin, n, max_depth, by_tree, n_candidates, progress, nodes, hist, offsets, proposed):
    """Mark the candidates of every feature of the nodes frontier + begin + i, i < n.

    max_depth : nodes so deep propose nothing, as they are not split; 0 for no limit.
    by_tree : whether a node's row of ``proposed`` is its tree (1) or its slot (0).
    nodes : NODE, IN (slot, tree, depth). Others as propose_candidates_cpu.

    16 bytes read per bin, once from memory and then, once per round of heavy bins and twice more, from a cache; 1 byte written.
    Two divisions of 64 bits per bin where there are more than K. 28 × 4096 bins of 64 nodes are 117 MB, 25 µs at 4.8 TB/s.
    """
    lane, n_features = lane_number(), int64(offsets.size - 1)
    item = warp_number()
    while item < n * n_features:
        node, feature = progress[0].frontier + begin + item // n_features, item % n_features
        item += n_warps()
        if node < progress[0].n_nodes and (max_depth == 0 or nodes[node].depth < max_depth):  # the same for all lanes
            slot = int64(nodes[node].slot)
            row = int64(nodes[node].tree) if by_tree != 0 else slot
            first, n_bins = int64(offsets[feature]), int64(offsets[feature + 1] - offsets[feature])
            total, n_filled = int64(0), int64(0)
            b = int64(lane)
            while b < n_bins:
                weight = hess_of_bin(hist, slot, first + b)
                total += weight
                n_filled += int64(1) if weight > 0 else int64(0)
                b += 32
            total, n_filled = warp_sum(total), warp_sum(n_filled)
            if n_filled <= n_candidates:
                b = int64(lane)
                while b < n_bins:
                    proposed[row, first + b] = uint8(1)
                    b += 32
            else:
                shift, total = weight_shift(total), int64(0)
                b = int64(lane)
                while b < n_bins:
                    total += hess_of_bin(hist, slot, first + b) >> shift
                    b += 32
                total = warp_sum(total)
                heavy, n_heavy = least_heavy(total, n_candidates), int64(0)
                light, left, is_found = total, n_candidates, True
                while is_found:
                    count, taken = int64(0), int64(0)
                    b = int64(lane)
                    while b < n_bins:
                        weight = hess_of_bin(hist, slot, first + b) >> shift
                        if weight >= heavy:
                            count += int64(1)
                            taken += weight
                        b += 32
                    count, taken = warp_sum(count), warp_sum(taken)
                    light, left = total - taken, n_candidates - int64(2) * count
                    is_found = count > n_heavy and light > 0
                    if is_found:
                        n_heavy, heavy = count, least_heavy(light, left)
                light = max(light, int64(1))
                before, last = int64(0), int64(-1)  # light weight, and the last non-empty bin, of the tiles before
                tile = int64(0)
                while tile < n_bins:
                    b = tile + int64(lane)
                    weight = hess_of_bin(hist, slot, first + b) if b < n_bins else int64(0)
                    is_filled, own = weight > 0, weight >> shift
                    is_heavy = own >= heavy
                    own = int64(0) if is_heavy else own
                    reached = before + warp_prefix(own)
                    hits = reached * left // light - (reached - own) * left // light
                    hits = int64(2) if is_heavy else hits
                    filled = uint32(cuda.ballot_sync(FULL_WARP, is_filled))
                    earlier = uint32(filled & uint32(uint32(uint32(1) << uint32(lane)) - uint32(1)))
                    previous = tile + highest_bit(earlier) if earlier != 0 else last
                    if b < n_bins:
                        proposed[row, first + b] = uint8(1) if hits > 0 else uint8(0)
                    cuda.syncwarp()  # every lane has written its own bin
                    if hits > 1 and previous >= 0:
                        proposed[row, first + previous] = uint8(1)
                    last = tile + highest_bit(filled) if filled != 0 else last
                    before = cuda.shfl_sync(FULL_WARP, reached, 31)
                    tile += 32


@device_function
def hess_of_bin(hist, slot, at):
    """The hessian of a bin, of all outputs."""
    weight = int64(0)
    for output in range(hist.shape[1]):
        weight += hist[slot, output, at, 1]
    return weight


@device_function
def highest_bit(word):
    """Number of the highest bit set in a uint32 that is not 0."""
    step = 1
    while step < 32:
        word = uint32(word | uint32(word >> uint32(step)))
        step <<= 1
    return int64(cuda.popc(word)) - int64(1)
