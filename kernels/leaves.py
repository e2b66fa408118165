"""Weigh the leaves, and add them to the margins of the training rows.

    G, H = sums over the leaf's rows of ⌊g·2^k + ½⌋ and ⌊h·2^k + ½⌋ as int64, with k so large that n·max·2^k stays below 2^62
    w* = −T(G, α)/(H + λ)   (Chen & Guestrin 2016, Eq. 5);   leaf = float32(w* · learning_rate);   margin += leaf

The histograms' 16 bits choose the splits; these sums, exact to about 2^−62·n, set the weights. Integers again: the same bits
in any order. Floor: 4 bytes of row list and 8 of gradients read per row and output, then 4 + 4 + 4 to update the margin.
"""

import math

import numpy as np
from numba import float32, float64, int64, prange

from gpuboost.kernels.jit import claim, kernel, parallel_kernel
from gpuboost.kernels.scalar import optimal_weight

CHUNK = 8192


@kernel
def list_leaf_chunks(n_nodes, nodes, segments, chunks):
    """Cut the rows of every node that was never split into chunks; returns how many.

    chunks : int64 (capacity, 3), OUT. Node, begin, end.
    """
    n = 0
    for node in range(n_nodes):
        if nodes[node].left < 0:
            begin, end = segments[node, 0], segments[node, 1]
            for first in range(begin, end, CHUNK):
                chunks[n, 0], chunks[n, 1], chunks[n, 2] = node, first, min(first + CHUNK, end)
                n += 1
    return n


@parallel_kernel
def sum_leaves_cpu(chunks, nodes, segments, rows, grad, hess, scales, tree_outputs, leaf_sums, chunk_sums, n_threads):
    """Add the high-resolution sums of one page's leaf rows.

    chunks : int64 (n_chunks, 3), IN. nodes : NODE, IN. segments : int64 (n_nodes, 3), IN. rows : int32 (2, n), IN.
    grad, hess : float32 (n_planes, n_rows), IN. scales : float64 (n_planes, 2), IN. Powers of two.
    tree_outputs : int32 (n_trees,), IN. First plane of each tree.
    leaf_sums : int64 (n_nodes, n_outputs, 2), INOUT. chunk_sums : int64 (n_chunks, n_outputs, 2), SCRATCH.
    """
    counter = np.zeros(1, np.int64)
    for _ in prange(n_threads):
        _sum_chunks(counter, chunks, nodes, segments, rows, grad, hess, scales, tree_outputs, chunk_sums)
    for item in range(chunks.shape[0]):
        for output in range(leaf_sums.shape[1]):
            leaf_sums[chunks[item, 0], output, 0] += chunk_sums[item, output, 0]
            leaf_sums[chunks[item, 0], output, 1] += chunk_sums[item, output, 1]


@parallel_kernel.part
def _sum_chunks(counter, chunks, nodes, segments, rows, grad, hess, scales, tree_outputs, chunk_sums):
    while True:
        item = claim(counter)
        if item >= chunks.shape[0]:
            return
        node = chunks[item, 0]
        side = segments[node, 2]
        for output in range(chunk_sums.shape[1]):
            plane = tree_outputs[nodes[node].tree] + output
            grad_scale, hess_scale = scales[plane, 0], scales[plane, 1]
            sum_grad, sum_hess = int64(0), int64(0)
            for i in range(chunks[item, 1], chunks[item, 2]):
                row = rows[side, i]
                sum_grad += int64(math.floor(float64(grad[plane, row]) * grad_scale + 0.5))
                sum_hess += int64(math.floor(float64(hess[plane, row]) * hess_scale + 0.5))
            chunk_sums[item, output, 0], chunk_sums[item, output, 1] = sum_grad, sum_hess


@kernel
def leaf_weights(
    n_nodes, nodes, leaf_sums, scales, tree_outputs, reg_lambda, alpha, max_delta_step, learning_rate, weights, leaves, covers
):
    """Optimal weight, leaf value and sum of hessians of every node.

    leaf_sums : int64 (n_nodes, n_outputs, 2), IN, of all nodes. weights, leaves : float32 (n_nodes, n_outputs), OUT.
    covers : float64 (n_nodes,), OUT. Sum of hessians of the first output.
    """
    for node in range(n_nodes):
        record = nodes[node]
        for output in range(weights.shape[1]):
            plane = tree_outputs[record.tree] + output
            grad = leaf_sums[node, output, 0] / scales[plane, 0]
            hess = leaf_sums[node, output, 1] / scales[plane, 1]
            weight = optimal_weight(grad, hess, reg_lambda, alpha, max_delta_step, record.lower, record.upper)
            weights[node, output] = float32(weight)
            leaves[node, output] = float32(weight * learning_rate)
            if output == 0:
                covers[node] = hess


@parallel_kernel
def update_margin_cpu(chunks, nodes, segments, rows, leaves, tree_outputs, margin, n_threads):
    """margin[plane, row] += the value of the leaf that the row ends in, for one page.

    chunks, nodes, segments, rows as sum_leaves_cpu. leaves : float32 (n_nodes, n_outputs), IN.
    margin : float32 (n_planes, n_rows), INOUT. The trees of one launch add to different planes.
    """
    counter = np.zeros(1, np.int64)
    for _ in prange(n_threads):
        _add_leaves(counter, chunks, nodes, segments, rows, leaves, tree_outputs, margin)


@parallel_kernel.part
def _add_leaves(counter, chunks, nodes, segments, rows, leaves, tree_outputs, margin):
    while True:
        item = claim(counter)
        if item >= chunks.shape[0]:
            return
        node = chunks[item, 0]
        side = segments[node, 2]
        for output in range(leaves.shape[1]):
            plane = tree_outputs[nodes[node].tree] + output
            value = leaves[nodes[node].leaf, output]
            for i in range(chunks[item, 1], chunks[item, 2]):
                row = rows[side, i]
                margin[plane, row] = float32(margin[plane, row] + value)
