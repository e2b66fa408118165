"""Weigh the leaves, and add them to the margins of the training rows.

    G, H = sums over the leaf's rows of ⌊g·2^k + ½⌋ and ⌊h·2^k + ½⌋ as int64, with k so large that n·max·2^k stays below 2^62
    w* = −T(G, α)/(H + λ)                                (Chen & Guestrin 2016, Eq. 5; XGBoost's CalcWeight)
    leaf = float32(w* · learning_rate);   margin += leaf

A tree of several outputs has a weight for each in every leaf. A root has its weight however light it is: min_child_weight is of
the children of splits (kernels/nodes.py). The histograms' 16 bits choose the splits; these sums, exact to about 2^−62·n, set the
weights. Integers again: the same bits in any order. Floor: 4 bytes of row list and 8 of gradients read per row and output, then
4 + 4 + 4 to update the margin.
"""

import math

import numpy as np
from numba import float32, float64, int32, int64, uint32, uint64

from gpuboost.kernels.allocation import empty, zeros
from gpuboost.kernels.cuda_common import (
    ONE_BLOCK,
    block_prefix,
    block_step,
    block_sum,
    cuda,
    cuda_kernel,
    n_threads,
    owner_by_block,
    owner_of,
    thread_number,
)
from gpuboost.kernels.jit import claim, inlined_scalar, kernel, launch, parallel_kernel, prefetch, scalar
from gpuboost.kernels.nodes import prune, sum_of_hessians, sum_upwards
from gpuboost.kernels.scalar import bits_double, optimal_weight
from gpuboost.kernels.structs import NUMERIC

CHUNK = 8192
AHEAD = 64  # rows whose gradients are prefetched: 225,000 of 450,000 rows in 64 leaves 2.8 -> 1.9 ns a row (AMD EPYC, Zen 5)


@kernel
def list_leaf_chunks(n_nodes, nodes, segments):
    """Cut the rows of every node that was never split into chunks: int64 (n_chunks, 3), node, begin, end."""
    n_chunks, n = int64(0), 0
    for node in range(n_nodes):
        if nodes[node].left < 0:
            n_chunks += (segments[node, 1] - segments[node, 0] + CHUNK - 1) // CHUNK
    chunks = empty((n_chunks, 3), np.int64)
    for node in range(n_nodes):
        if nodes[node].left < 0:
            begin, end = segments[node, 0], segments[node, 1]
            for first in range(begin, end, CHUNK):
                chunks[n, 0], chunks[n, 1], chunks[n, 2] = node, first, min(first + CHUNK, end)
                n += 1
    return chunks


@parallel_kernel
def sum_leaves_cpu(chunks, nodes, segments, rows, grad, hess, scales, first_output, leaf_sums, n_threads):
    """Add the high-resolution sums of one page's leaf rows.

    chunks : int64 (n_chunks, 3), IN. nodes : NODE, IN. segments : int64 (n_nodes, 3), IN. rows : int32 (2, n), IN.
    grad, hess : float32 (n_outputs, n_rows), IN. scales : float64 (n_outputs, 2), IN. Powers of two.
    first_output : int32 (n_trees,), IN. First output of each tree.
    leaf_sums : int64 (n_nodes, leaf_size, 2), INOUT.
    """
    counter, chunk_sums = zeros(1, np.int64), empty((chunks.shape[0], leaf_sums.shape[1], 2), np.int64)
    launch(n_threads, _sum_chunks, (counter, chunks, nodes, segments, rows, grad, hess, scales, first_output, chunk_sums))
    for item in range(chunks.shape[0]):
        for own in range(leaf_sums.shape[1]):
            leaf_sums[chunks[item, 0], own, 0] += chunk_sums[item, own, 0]
            leaf_sums[chunks[item, 0], own, 1] += chunk_sums[item, own, 1]


@parallel_kernel.part
def _sum_chunks(counter, chunks, nodes, segments, rows, grad, hess, scales, first_output, chunk_sums):
    n_chunks = chunks.shape[0]
    while True:
        item = claim(counter)  # all chunks of an output, then the next: its gradients stay in the cache
        if item >= n_chunks * chunk_sums.shape[1]:
            return
        own, item = item // n_chunks, item % n_chunks
        node = chunks[item, 0]
        side, output = segments[node, 2], first_output[nodes[node].tree] + own
        grad_scale, hess_scale = scales[output, 0], scales[output, 1]
        sum_grad, sum_hess = int64(0), int64(0)
        own_rows, own_grad, own_hess = rows[side, chunks[item, 1] : chunks[item, 2]], grad[output], hess[output]
        last = own_rows.size - 1
        for i in range(own_rows.size):
            row, ahead = uint32(own_rows[uint64(i)]), uint64(own_rows[uint64(min(i + AHEAD, last))])
            prefetch(own_grad, ahead)
            prefetch(own_hess, ahead)
            sum_grad += int64(math.floor(float64(own_grad[row]) * grad_scale + 0.5))
            sum_hess += int64(math.floor(float64(own_hess[row]) * hess_scale + 0.5))
        chunk_sums[item, own, 0], chunk_sums[item, own, 1] = sum_grad, sum_hess


@inlined_scalar
def leaf_weights(
    n_nodes, nodes, sums, leaf_sums, scales, first_output, reg_lambda, alpha, max_delta_step, learning_rate, weights, leaves,
    covers,
):  # fmt: skip
    """Optimal weight, leaf value and sum of hessians of every node.

    sums : int64 (n_nodes, leaf_size, 2 or 4), IN. Bounds of each output, if there are, lie in them.
    leaf_sums : int64 (n_nodes, leaf_size, 2), IN, of all nodes. weights, leaves : float32 (n_nodes, leaf_size), OUT.
    covers : float64 (n_nodes,), OUT. Sum of hessians over all outputs.
    """
    for node in range(n_nodes):
        struct = nodes[node]
        covers[node] = sum_of_hessians(leaf_sums, node, scales, first_output[struct.tree])
        for own in range(weights.shape[1]):
            output = first_output[struct.tree] + own
            grad = leaf_sums[node, own, 0] / scales[output, 0]
            hess, lower, upper = leaf_sums[node, own, 1] / scales[output, 1], struct.lower, struct.upper
            if sums.shape[2] > 2:
                lower, upper = bits_double(uint64(sums[node, own, 2])), bits_double(uint64(sums[node, own, 3]))
            weight = optimal_weight(grad, hess, reg_lambda, alpha, max_delta_step, lower, upper)
            weights[node, own] = float32(weight)
            leaves[node, own] = float32(weight * learning_rate)


@kernel
def weigh_trees(
    n_nodes, n_ordered, nodes, sums, leaf_sums, scales, first_output, gamma, min_child_weight, reg_lambda, alpha, max_delta_step,
    learning_rate, weights, leaves, covers,
):  # fmt: skip
    """From the sums of leaves to trees: sum_upwards, prune, leaf_weights. n_ordered : nodes whose children are numbered from here
    on were split too early, leaf by leaf; their splits are undone. The others as there."""
    sum_upwards(n_nodes, nodes, leaf_sums)
    for node in range(n_nodes if n_ordered < n_nodes else 0):
        if nodes[node].left >= n_ordered:
            nodes[node].left = -1
    prune(n_nodes, nodes, leaf_sums, scales, first_output, gamma, min_child_weight)
    leaf_weights(
        n_nodes, nodes, sums, leaf_sums, scales, first_output, reg_lambda, alpha, max_delta_step, learning_rate, weights, leaves,
        covers,
    )  # fmt: skip


@parallel_kernel
def update_margin_cpu(chunks, nodes, segments, rows, leaves, first_output, margin, n_threads):
    """margin[output, row] += the value of the leaf that the row ends in, for one page.

    chunks, nodes, segments, rows as sum_leaves_cpu. leaves : float32 (n_nodes, leaf_size), IN.
    margin : float32 (n_outputs, n_rows), INOUT. The trees of one launch add to different outputs.
    """
    counter = zeros(1, np.int64)
    launch(n_threads, _add_leaves, (counter, chunks, nodes, segments, rows, leaves, first_output, margin))


@parallel_kernel.part
def _add_leaves(counter, chunks, nodes, segments, rows, leaves, first_output, margin):
    n_chunks = chunks.shape[0]
    while True:
        item = claim(counter)  # as _sum_chunks
        if item >= n_chunks * leaves.shape[1]:
            return
        own, item = item // n_chunks, item % n_chunks
        node = chunks[item, 0]
        side, output = segments[node, 2], first_output[nodes[node].tree] + own
        value = leaves[nodes[node].leaf, own]
        for row in rows[side, chunks[item, 1] : chunks[item, 2]]:
            margin[output, uint32(row)] = float32(margin[output, uint32(row)] + value)


@scalar
def flatten_node(nodes, node, thresholds, offsets, n_words, flat):
    """One node of flatten_trees_cpu; a leaf, and what was pruned, says nothing of a split that was found there."""
    feature, split_bin, left = int32(-1), int32(-1), int32(-1)
    threshold, kind, default_left = float32(0.0), int32(NUMERIC), int32(0)
    if nodes[node].left >= 0:
        feature, split_bin, left = nodes[node].feature, nodes[node].bin, int32(nodes[node].left - nodes[node].tree)
        kind, default_left = nodes[node].kind, nodes[node].default_left
        if kind == NUMERIC:
            threshold = thresholds[offsets[feature] + split_bin]
        else:
            split_bin = int32(node * n_words)
    flat[node].threshold = threshold
    flat[node].feature = feature
    flat[node].bin = split_bin
    flat[node].kind = kind
    flat[node].default_left = default_left
    flat[node].left = left


@kernel
def flatten_trees_cpu(nodes, thresholds, offsets, n_words, flat):
    """The trees just grown, as kernels/predict.py walks them. A tree begins at its root's number; nodes that were pruned are
    there, too, and never met.

    thresholds : float32 (total_bins,), IN, of the cuts. offsets : int (n_features + 1,), IN. n_words : of a node's set; they lie
    node by node. flat : FLAT_NODE (n_nodes,), OUT.
    """
    for node in range(flat.size):
        flatten_node(nodes, node, thresholds, offsets, n_words, flat)


# ---------------------------------------------------------------------------------------------------------------------
# CUDA. A block takes a chunk of CHUNK_ROWS rows of one leaf. 4 + 8 bytes read per row to sum a leaf, 4 + 8 moved to add it to
# the margins (each of the scattered 4 bytes a sector of 32 where few rows of a leaf share it): 11M rows are 0.26 GB, 0.06 ms at
# 4.8 TB/s, and up to 1.4 GB of sectors.

CHUNK_ROWS = 4096


@cuda_kernel("segments: int64[:, :], nodes: NODE[:], progress: PROGRESS[:], first_chunk: int64[:]", **ONE_BLOCK)
def list_leaf_chunks_kernel(segments, nodes, progress, first_chunk):
    """Cut the rows of every node that was never split into chunks. One block.

    segments : int64 (n_nodes, 3), IN. first_chunk : int64 (≥ n_nodes + 1,), OUT. First chunk of each node; a split node has none.
    """
    partial = cuda.shared.array(32, int64)
    n_nodes, n_chunks = progress[0].n_nodes, int64(0)
    first = int64(0)
    while first < n_nodes:
        node = first + int64(cuda.threadIdx.x)
        own = int64(0)
        if node < n_nodes and nodes[node].left < 0:
            own = (segments[node, 1] - segments[node, 0] + CHUNK_ROWS - 1) // CHUNK_ROWS
        before, total = block_prefix(own, partial)
        if node < n_nodes:
            first_chunk[node] = n_chunks + before
        n_chunks += total
        first += int64(cuda.blockDim.x)
    if cuda.threadIdx.x == 0:
        first_chunk[n_nodes] = n_chunks


@cuda_kernel(
    "segments: int64[:, :], nodes: NODE[:], progress: PROGRESS[:], first_chunk: int64[:], rows: int32[:, :], first_row: int64, "
    "grad: float32[:, :], hess: float32[:, :], scales: float64[:, :], first_output: int32[:], leaf_sums: int64[:, :, :]",
    registers=48, uses_double=True,
)  # fmt: skip
def sum_leaves_kernel(
    segments, nodes, progress, first_chunk, rows, first_row, grad, hess, scales, first_output, leaf_sums
):
    """sum_leaves_cpu. grad, hess : float32 (n_outputs, all rows), IN; first_row : where the page begins in them.
    leaf_sums : int64 (n_nodes, leaf_size, 2), INOUT, zeroed by the caller; one atomic add per block, output and sum."""
    partial = cuda.shared.array(32, int64)
    chunk = int64(cuda.blockIdx.x)
    while chunk < first_chunk[progress[0].n_nodes]:
        node = owner_by_block(first_chunk, progress[0].n_nodes, chunk, partial)
        begin = segments[node, 0] + (chunk - first_chunk[node]) * CHUNK_ROWS
        end, side = min(begin + CHUNK_ROWS, segments[node, 1]), segments[node, 2]
        for own in range(leaf_sums.shape[1]):
            output = first_output[nodes[node].tree] + own
            grad_scale, hess_scale = scales[output, 0], scales[output, 1]
            sum_grad, sum_hess = int64(0), int64(0)
            i = begin + int64(cuda.threadIdx.x)
            while i < end:
                row = first_row + int64(rows[side, i])
                sum_grad += int64(math.floor(float64(grad[output, row]) * grad_scale + float64(0.5)))
                sum_hess += int64(math.floor(float64(hess[output, row]) * hess_scale + float64(0.5)))
                i += int64(cuda.blockDim.x)
            sum_grad, sum_hess = block_sum(sum_grad, partial), block_sum(sum_hess, partial)
            if cuda.threadIdx.x == 0:
                cuda.atomic.add(leaf_sums, (node, own, 0), sum_grad)
                cuda.atomic.add(leaf_sums, (node, own, 1), sum_hess)
        chunk += int64(cuda.gridDim.x)


@block_step(
    "progress: PROGRESS[:], nodes: NODE[:], sums: int64[:, :, :], leaf_sums: int64[:, :, :], scales: float64[:, :], "
    "first_output: int32[:], penalty: PENALTY[:], weights: float32[:, :], leaves: float32[:, :], covers: float64[:]",
    uses_double=True,
)  # fmt: skip
def leaf_weights_step(progress, nodes, sums, leaf_sums, scales, first_output, penalty, weights, leaves, covers):
    """leaf_weights, a thread for each node."""
    node = int64(cuda.threadIdx.x)
    while node < progress[0].n_nodes:
        covers[node] = sum_of_hessians(leaf_sums, node, scales, first_output[nodes[node].tree])
        for own in range(weights.shape[1]):
            output = first_output[nodes[node].tree] + own
            grad = leaf_sums[node, own, 0] / scales[output, 0]
            hess, lower, upper = leaf_sums[node, own, 1] / scales[output, 1], nodes[node].lower, nodes[node].upper
            if sums.shape[2] > 2:
                lower, upper = bits_double(uint64(sums[node, own, 2])), bits_double(uint64(sums[node, own, 3]))
            weight = optimal_weight(
                grad, hess, penalty[0].reg_lambda, penalty[0].reg_alpha, penalty[0].max_delta_step, lower, upper
            )
            weights[node, own] = float32(weight)
            leaves[node, own] = float32(weight * progress[0].learning_rate)
        node += int64(cuda.blockDim.x)


@cuda_kernel(
    "segments: int64[:, :], nodes: NODE[:], progress: PROGRESS[:], first_chunk: int64[:], rows: int32[:, :], first_row: int64, "
    "leaves: float32[:, :], first_output: int32[:], margin: float32[:, :]",
)
def update_margin_kernel(segments, nodes, progress, first_chunk, rows, first_row, leaves, first_output, margin):
    """update_margin_cpu. margin : float32 (n_outputs, all rows), INOUT; first_row : where the page begins in it."""
    chunk = int64(cuda.blockIdx.x)
    while chunk < first_chunk[progress[0].n_nodes]:
        node = owner_of(first_chunk, progress[0].n_nodes, chunk)
        begin = segments[node, 0] + (chunk - first_chunk[node]) * CHUNK_ROWS
        end, side = min(begin + CHUNK_ROWS, segments[node, 1]), segments[node, 2]
        for own in range(leaves.shape[1]):
            output, value = first_output[nodes[node].tree] + own, leaves[nodes[node].leaf, own]
            i = begin + int64(cuda.threadIdx.x)
            while i < end:
                row = first_row + int64(rows[side, i])
                margin[output, row] = float32(margin[output, row] + value)
                i += int64(cuda.blockDim.x)
        chunk += int64(cuda.gridDim.x)


@cuda_kernel(
    "progress: PROGRESS[:], nodes: NODE[:], thresholds: float32[:], offsets: int32[:], n_words: int64, flat: FLAT_NODE[:]"
)
def flatten_trees_kernel(progress, nodes, thresholds, offsets, n_words, flat):
    """flatten_trees_cpu, one thread per node."""
    node = int64(thread_number())
    while node < progress[0].n_nodes:
        flatten_node(nodes, node, thresholds, offsets, n_words, flat)
        node += int64(n_threads())
