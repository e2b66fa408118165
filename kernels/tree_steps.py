"""The steps of growing trees as parts of a call that does them all (kernels/whole_trees.py): those of Grower._grow_by_steps, in
their order, each the kernel that backend/cpu/trees.py calls for it.

``given`` is what they have in common, in the order of grow_trees_cpu's arguments; ``scratch`` what each thread has of its own.
"""

import numpy as np
from numba import int64

from gpuboost.kernels.allocation import empty
from gpuboost.kernels.column_sampling import mask_features_cpu
from gpuboost.kernels.histogram import (
    FLUSH_ROWS,
    MIN_SLICE_ROWS,
    build_histograms_cpu,
    build_packed_cpu,
    count_group_words,
    list_build_items,
    subtract_histograms_cpu,
)
from gpuboost.kernels.jit import call_late, parallel_kernel
from gpuboost.kernels.nodes import apply_splits, choose_built
from gpuboost.kernels.packing import build_unpacked_cpu, mark_packed_rows_cpu
from gpuboost.kernels.partition import list_chunks, mark_rows_cpu, move_rows_cpu, place_children
from gpuboost.kernels.splits import CANDIDATE, count_blocks, evaluate_splits
from gpuboost.kernels.structs import NODE

__all__ = ["number_nodes", "own_scratch", "search_frontier", "split_nodes"]

_build, _build_packed = build_histograms_cpu.dispatcher, build_packed_cpu.dispatcher
_subtract = subtract_histograms_cpu.dispatcher
_build_unpacked, _mark_packed = build_unpacked_cpu.dispatcher, mark_packed_rows_cpu.dispatcher
_evaluate, _mark, _move = evaluate_splits(None).dispatcher, mark_rows_cpu.dispatcher, move_rows_cpu.dispatcher


@parallel_kernel.part
def own_scratch(scratch, thread):
    """That of one thread."""
    private, planes, pairs, prefix_grad, prefix_hess, gains, bins = scratch
    own = slice(thread, thread + 1)
    return private[own], planes[own], pairs[own], prefix_grad[own], prefix_hess[own], gains[own], bins[own]


@parallel_kernel.part
def search_frontier(frontier, held, subtract, scratch, n_threads, given):
    """Find the best splits of a frontier's nodes. held, subtract : choose_built's first_slot and subtract."""
    (
        _, _, nodes, sums, left_sums, _, counts, segments, rows, _, words, _, packing, codes_per_word, stride, lanes, _, gpair,
        by_row, n_limbs, hist, offsets, features, monotone, _, inverse_scales, first_output, reg_lambda, alpha, max_delta_step,
        min_child_weight, weights, member, key, n_level, n_node,
    ) = given  # fmt: skip
    private, planes, pairs, prefix_grad, prefix_hess, gains, bins = scratch
    n, every_bin, parameters = frontier.size, empty((0, 0), np.uint8), empty(0, np.float64)
    build, parents = empty(n, np.int32), empty(n, np.int32)
    n_built = choose_built(frontier, nodes, counts, held, subtract, build, parents)
    _build_histograms(
        packing, build[:n_built], parents[: n_built if subtract else 0], held, hist, nodes, segments, first_output, offsets,
        features, words, codes_per_word, stride, lanes, rows, gpair, by_row, n_limbs, private, planes, pairs, n_threads,
    )  # fmt: skip
    is_masked = n_node < features.size or member.shape[0] > 0
    mask = empty((n if is_masked else 0, features.size), np.uint8)
    if is_masked:
        call_late(mask_features_cpu, (frontier, nodes, features, weights, member, key, n_level, n_node, mask))
    candidates = empty((n, count_blocks(n, features.size, n_threads)), CANDIDATE)
    call_late(_evaluate, (
        frontier, nodes, sums, left_sums, hist, offsets, features, monotone, mask, every_bin, np.bool_(False), inverse_scales,
        first_output, reg_lambda, alpha, max_delta_step, min_child_weight, parameters, candidates, prefix_grad, prefix_hess,
        gains, bins, n_threads,
    ))  # fmt: skip


@parallel_kernel.part
def split_nodes(selected, n_nodes, n_threads, given):
    """Split nodes, and part their rows; the children's numbers begin at n_nodes. selected : int32 (n,)."""
    (
        _, _, nodes, sums, left_sums, cats, counts, segments, rows, is_left, _, columns, packing, _, _, _, n_bins, _, _, _, _, _,
        _, monotone, scales, _, first_output, reg_lambda, alpha, max_delta_step, _, _, _, _, _, _,
    ) = given  # fmt: skip
    call_late(apply_splits, (
        selected, n_nodes, nodes, sums, left_sums, monotone, scales, first_output, reg_lambda, alpha, max_delta_step
    ))  # fmt: skip
    counts[n_nodes : n_nodes + 2 * selected.size] = 0
    chunks = list_chunks(selected, segments)
    _mark_rows(packing, selected, nodes, cats, chunks, columns, n_bins, rows, segments, is_left, n_threads)
    call_late(place_children, (selected, nodes, chunks, segments, counts))
    call_late(_move, (selected, nodes, chunks, rows, segments, is_left, n_threads))


@parallel_kernel.part
def _build_histograms(
    packing, build, parents, held, hist, nodes, segments, first_output, offsets, features, words, codes_per_word, stride, lanes,
    rows, gpair, by_row, n_limbs, private, planes, pairs, n_threads
):  # fmt: skip
    """Build the histograms of nodes, whose slots begin at held, and take them from those of their parents, if any are given."""
    if hist.ndim == 3:
        call_late(_build_packed, (
            build, parents, nodes, segments, first_output, offsets.size - 1, words, rows, gpair, hist, n_threads
        ))  # fmt: skip
    elif len(packing) > 0:
        call_late(_build_unpacked, (
            build, nodes, segments, first_output, words, rows, gpair, features, offsets, packing, hist, private, n_threads
        ))  # fmt: skip
        call_late(_subtract, (parents, held, hist, n_threads))
    else:
        built, slice_rows = hist[held : held + build.size], int64(MIN_SLICE_ROWS if n_threads > 1 else FLUSH_ROWS)
        yes = np.bool_(True)  # of a literal's own type kernels would be compiled once more
        items = list_build_items(build, nodes, segments, first_output, n_limbs, lanes, yes, n_threads, slice_rows, held, built)
        group_words = count_group_words(planes.shape[1], len(items), n_threads) if n_threads > 1 else planes.shape[1]
        call_late(_build, (
            words, codes_per_word, rows, gpair, by_row, n_limbs, offsets, stride, items, group_words, built, private, planes,
            pairs, n_threads,
        ))  # fmt: skip
        call_late(_subtract, (parents, held, hist, n_threads))


@parallel_kernel.part
def _mark_rows(packing, selected, nodes, cats, chunks, columns, n_bins, rows, segments, is_left, n_threads):
    """Which rows go left."""
    if len(packing) > 0:
        call_late(_mark_packed, (selected, nodes, cats, chunks, columns, *packing, rows, segments, is_left, n_threads))
    else:
        call_late(_mark, (selected, nodes, cats, chunks, columns, n_bins, rows, segments, is_left, n_threads))


@parallel_kernel.part
def number_nodes(order, nodes, segments, sums):
    """Let node order[i] be node i. order : int64 (n,), parents before their children, siblings side by side. Bounds of vector
    leaves go with the nodes (kernels/nodes.py); what is not read any more once trees are grown does not."""
    n, new = order.size, empty(nodes.size, np.int64)
    old_nodes, old_segments = empty(n, NODE), empty((n, 3), np.int64)
    if sums.shape[2] > 2:
        _number_bounds(order, sums)
    for i in range(n):
        new[order[i]], old_nodes[i] = i, nodes[order[i]]
        for j in range(3):  # of slices, numba would compile an error message
            old_segments[i, j] = segments[order[i], j]
    for i in range(n):
        nodes[i] = old_nodes[i]
        if old_nodes[i].parent >= 0:
            nodes[i].parent = new[old_nodes[i].parent]
        if old_nodes[i].left >= 0:
            nodes[i].left = new[old_nodes[i].left]
        for j in range(3):
            segments[i, j] = old_segments[i, j]


@parallel_kernel.part
def _number_bounds(order, sums):
    old = empty((order.size, sums.shape[1], 2), np.int64)
    for i in range(order.size):
        for output in range(sums.shape[1]):
            old[i, output, 0], old[i, output, 1] = sums[order[i], output, 2], sums[order[i], output, 3]
    for i in range(order.size):
        for output in range(sums.shape[1]):
            sums[i, output, 2], sums[i, output, 3] = old[i, output, 0], old[i, output, 1]
