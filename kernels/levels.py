"""All levels of a round's trees in one call, where there is nothing to exchange between them.

Where tables are small, much of the time goes into calls from Python. 2 cores of an AMD EPYC (2026-11-23), one thread, step by
step -> in one call, ms a round of depth 6: 1,000 × 7 0.56 -> 0.37, 7,000 × 7 0.76 -> 0.57, 7,000 × 28 1.49 -> 1.30. The steps are
those of Grower._grow_by_steps, in their order, each the kernel that backend/cpu/trees.py calls for it; the rows lie in one page,
which has records. Packed records (kernels/packing.py) are added up as packed sums and undone node by node: 6,500 × 126 of ones
and zeros, ms a round on one thread, step by step 0.63 -> 0.33.

Below some depth a thread grows one subtree after another, depth first. Its rows and histograms stay in the thread's cache, and
threads do not wait for each other. What a node is split by depends on its own rows and way from the root, not on when it is.
One thread of an AMD EPYC, processor's ms a tree, level by level -> by subtrees: 450,000 × 28 of depth 6 34 -> 32, 8 56 -> 51,
10 102 -> 75; 7,000 × 28 of depth 6 2.3 -> 1.5, 10 5.4 -> 4.1 (busy machine).

Histograms of fewer than 2^16 rows, of one output and limb, stay packed from build to search: half the bytes, no flush, one
addition for both sums of a bin.
"""

import numpy as np
from numba import int64

from gpuboost.kernels.allocation import empty, zeros
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
from gpuboost.kernels.jit import call_late, claim, launch, parallel_kernel
from gpuboost.kernels.nodes import apply_splits, choose_built, select_depthwise
from gpuboost.kernels.packing import build_unpacked_cpu, mark_packed_rows_cpu
from gpuboost.kernels.partition import list_chunks, mark_rows_cpu, move_rows_cpu, place_children
from gpuboost.kernels.splits import CANDIDATE, count_blocks, evaluate_splits
from gpuboost.kernels.structs import NODE

__all__ = ["count_slots", "grow_levels_cpu", "subtree_depth"]

PAIRS_PER_THREAD = 8  # subtrees that a thread finds at least, for balance

_build, _build_packed = build_histograms_cpu.dispatcher, build_packed_cpu.dispatcher
_subtract = subtract_histograms_cpu.dispatcher
_build_unpacked, _mark_packed = build_unpacked_cpu.dispatcher, mark_packed_rows_cpu.dispatcher
_evaluate, _mark, _move = evaluate_splits(None).dispatcher, mark_rows_cpu.dispatcher, move_rows_cpu.dispatcher


def subtree_depth(n_trees, max_depth, max_leaves, n_threads):
    """The depth from which on every thread grows one pair of siblings after another to the end."""
    if max_leaves > 0:  # who comes first is counted by levels
        return max_depth
    n_pairs = PAIRS_PER_THREAD * n_threads if n_threads > 1 else 1
    depth = 1
    while n_trees << (depth - 1) < n_pairs:
        depth += 1
    return min(depth, max_depth)


def count_slots(n_trees, max_depth, first_depth, n_threads):
    """Histograms that are held: of the levels above first_depth, and in each thread one for every level from there on."""
    return (n_trees << (first_depth - 1)) + n_threads * (max_depth - first_depth)


@parallel_kernel
def grow_levels_cpu(
    key, n_grown, max_depth, first_depth, max_leaves, n_leaves, nodes, sums, left_sums, cats, counts, segments, rows, is_left,
    words, columns, packing, codes_per_word, stride, lanes, private, planes, pairs, n_bins, gpair, by_row, n_limbs, hist, offsets,
    features, monotone, scales, first_output, reg_lambda, alpha, max_delta_step, min_child_weight, weights, member, n_level,
    n_node, prefix_grad, prefix_hess, gains, bins, n_threads,
):  # fmt: skip
    """Grow trees from their roots, which are the first nodes, to max_depth (> 0).

    n_grown : int64 (1,), OUT. How many nodes there are then. first_depth : subtree_depth, from 1 to max_depth.
    nodes : NODE, INOUT, with room for all that there may be. So have sums, left_sums, cats, counts and segments. After the call
        nodes, segments and the bounds in sums are those of the trees, level by level; the others are not.
    hist : int64 (≥ count_slots, leaf_size, total_bins, 2), or packed (histogram.packed_shape), SCRATCH. As far as there is room,
        trees of which a thread would get more than its share of the rows as one subtree grow by further levels.
    scales : float64 (n_outputs, 2), IN, from float to fixed point.
    columns, packing : of packed records these and what build_unpacked_cpu says; else () beside the columns.
    key, weights, member, n_level, n_node : as mask_features_cpu. The others as the kernels have them that are called.
    """
    given = (
        max_depth, max_leaves, nodes, sums, left_sums, cats, counts, segments, rows, is_left, words, columns, packing,
        codes_per_word, stride, lanes, n_bins, gpair, by_row, n_limbs, hist, offsets, features, monotone, scales, 1.0 / scales,
        first_output, reg_lambda, alpha, max_delta_step, min_child_weight, weights, member, key, n_level, n_node,
    )  # fmt: skip
    begin, n_nodes, held = int64(0), int64(n_leaves.size), int64(0)  # the frontier's first node; nodes; histograms held
    while begin < n_nodes and nodes[begin].depth < max_depth:
        if nodes[begin].depth >= first_depth:
            further = (n_nodes - begin) // 2 + n_threads * (max_depth - nodes[begin].depth - 1)
            if _has_share_for_all(begin, n_nodes, counts, n_threads) or held + further > hist.shape[0]:
                counter = zeros(1, np.int64)
                args = counter, begin, n_nodes, held, n_leaves, private, planes, pairs, prefix_grad, prefix_hess, gains, bins
                launch(n_threads, _grow_subtrees, (*args, given))
                n_grown[0] = _number_by_levels(n_leaves.size, nodes, segments, sums)
                return
        frontier, subtract = empty(n_nodes - begin, np.int32), held > 0
        for i in range(frontier.size):
            frontier[i] = begin + i
        selected = _split_frontier(
            frontier, n_nodes, held, subtract, n_leaves, private, planes, pairs, prefix_grad, prefix_hess, gains, bins, n_threads,
            given,
        )  # fmt: skip
        held += frontier.size // 2 if subtract else frontier.size
        begin, n_nodes = n_nodes, n_nodes + 2 * selected.size
    n_grown[0] = n_nodes


@parallel_kernel.part
def _has_share_for_all(begin, end, counts, n_threads):
    """Whether no pair of siblings has more rows than a thread's share."""
    largest, total = int64(0), int64(0)
    for left in range(begin, end, 2):
        n_rows = counts[left] + counts[left + 1]
        largest, total = max(largest, n_rows), total + n_rows
    return largest * n_threads <= total


@parallel_kernel.part
def _split_frontier(
    frontier, n_nodes, held, subtract, n_leaves, private, planes, pairs, prefix_grad, prefix_hess, gains, bins, n_threads, given
):  # fmt: skip
    """Search the nodes of a frontier, and split those that have one; their children's numbers begin at n_nodes. Returns which."""
    (
        max_depth, max_leaves, nodes, sums, left_sums, cats, counts, segments, rows, is_left, words, columns, packing,
        codes_per_word, stride, lanes, n_bins, gpair, by_row, n_limbs, hist, offsets, features, monotone, scales, inverse_scales,
        first_output, reg_lambda, alpha, max_delta_step, min_child_weight, weights, member, key, n_level, n_node,
    ) = given  # fmt: skip
    n, every_bin, parameters = frontier.size, empty((0, 0), np.uint8), empty(0, np.float64)
    build, parents, chosen = empty(n, np.int32), empty(n, np.int32), empty(n, np.int32)
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
    selected = chosen[: select_depthwise(frontier, nodes, max_depth, max_leaves, n_leaves, chosen)]
    call_late(apply_splits, (
        selected, n_nodes, nodes, sums, left_sums, monotone, scales, first_output, reg_lambda, alpha, max_delta_step
    ))  # fmt: skip
    counts[n_nodes : n_nodes + 2 * selected.size] = 0
    chunks = list_chunks(selected, segments)
    _mark_rows(packing, selected, nodes, cats, chunks, columns, n_bins, rows, segments, is_left, n_threads)
    call_late(place_children, (selected, nodes, chunks, segments, counts))
    call_late(_move, (selected, nodes, chunks, rows, segments, is_left, n_threads))
    return selected


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
def _grow_subtrees(
    thread, counter, begin, end, held, n_leaves, private, planes, pairs, prefix_grad, prefix_hess, gains, bins, given
):  # fmt: skip
    """Grow what is below the pairs of siblings from begin to end, each in numbers of its own: as many as a whole subtree takes.

    Of a pair the left node's children come first, then the right one's. So histograms are wanted of one pair a level:

        slots   held above | first level | … | max_depth − 1         of each thread

    where the child that is built lies in its level's slot, and the other one takes its parent's.
    """
    max_depth, nodes, n_leaves = given[0], given[2], n_leaves.copy()
    own = slice(thread, thread + 1)
    private, planes, pairs, gains, bins = private[own], planes[own], pairs[own], gains[own], bins[own]
    prefix_grad, prefix_hess = prefix_grad[own], prefix_hess[own]
    first_depth = nodes[begin].depth
    room = (int64(4) << (max_depth - first_depth)) - 4
    first_slot = held + thread * (max_depth - first_depth) - first_depth
    waiting, frontier = empty(max_depth + 1, np.int64), empty(2, np.int32)  # left nodes of pairs
    while True:
        pair = claim(counter)
        if 2 * pair >= end - begin:
            return
        n_nodes, n_waiting = end + pair * room, 1
        waiting[0] = begin + 2 * pair
        while n_waiting > 0:
            n_waiting -= 1
            left = waiting[n_waiting]
            frontier[0], frontier[1] = left, left + 1
            selected = _split_frontier(
                frontier, n_nodes, first_slot + nodes[left].depth, np.bool_(True), n_leaves, private, planes, pairs, prefix_grad,
                prefix_hess, gains, bins, int64(1), given,
            )  # fmt: skip
            n_nodes += 2 * selected.size
            if nodes[left].depth + 1 < max_depth:
                for i in range(selected.size - 1, -1, -1):
                    waiting[n_waiting] = nodes[selected[i]].left
                    n_waiting += 1


@parallel_kernel.part
def _number_by_levels(n_trees, nodes, segments, sums):
    """Number the nodes below the roots as they come level by level; returns how many there are. The children of a node come when
    those of all before it have come. Bounds of vector leaves go with them (kernels/nodes.py)."""
    order, n = empty(nodes.size, np.int64), n_trees
    for i in range(n):
        order[i] = i
    i = 0
    while i < n:
        left = nodes[order[i]].left
        if left >= 0:
            order[n], order[n + 1] = left, left + 1
            n += 2
        i += 1
    old_nodes, old_segments = empty(n, NODE), empty((n, 3), np.int64)
    if sums.shape[2] > 2:
        _number_bounds(order[:n], sums)
    for i in range(n):
        old_nodes[i] = nodes[order[i]]
        for j in range(3):  # of slices, numba would compile an error message
            old_segments[i, j] = segments[order[i], j]
    n = n_trees
    for i in range(old_nodes.size):
        nodes[i] = old_nodes[i]
        for j in range(3):
            segments[i, j] = old_segments[i, j]
        if old_nodes[i].left >= 0:
            old_nodes[n].parent, old_nodes[n + 1].parent = i, i
            nodes[i].left = n
            n += 2
    return n


@parallel_kernel.part
def _number_bounds(order, sums):
    old = empty((order.size, sums.shape[1], 2), np.int64)
    for i in range(order.size):
        for output in range(sums.shape[1]):
            old[i, output, 0], old[i, output, 1] = sums[order[i], output, 2], sums[order[i], output, 3]
    for i in range(order.size):
        for output in range(sums.shape[1]):
            sums[i, output, 2], sums[i, output, 3] = old[i, output, 0], old[i, output, 1]
