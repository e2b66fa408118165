"""All levels of a round's trees in one call, where there is nothing to exchange between them.

Where tables are small, much of the time goes into calls from Python. 2 cores of an AMD EPYC (2026-11-23), one thread, step by
step -> in one call, ms a round of depth 6: 1,000 × 7 0.56 -> 0.37, 7,000 × 7 0.76 -> 0.57, 7,000 × 28 1.49 -> 1.30. The steps are
those of Grower._grow_by_steps, in their order, each the kernel that backend/cpu/trees.py calls for it; the rows lie in one page,
which has records, and all histograms are held.
"""

import numpy as np

from gpuboost.kernels.histogram import (
    MIN_SLICE_ROWS,
    build_histograms_cpu,
    count_group_words,
    list_build_items,
    subtract_histograms_cpu,
)
from gpuboost.kernels.jit import parallel_kernel
from gpuboost.kernels.nodes import apply_splits, choose_built, select_depthwise
from gpuboost.kernels.partition import list_chunks, mark_rows_cpu, move_rows_cpu, place_children
from gpuboost.kernels.splits import CANDIDATE, count_blocks, evaluate_splits

__all__ = ["grow_levels_cpu"]

_build, _subtract = build_histograms_cpu.dispatcher, subtract_histograms_cpu.dispatcher
_evaluate, _mark, _move = evaluate_splits(None).dispatcher, mark_rows_cpu.dispatcher, move_rows_cpu.dispatcher


@parallel_kernel
def grow_levels_cpu(
    max_depth, max_leaves, n_leaves, nodes, sums, left_sums, cats, counts, segments, rows, is_left, words, columns,
    codes_per_word, stride, lanes, private, planes, pairs, n_bins, gpair, n_limbs, hist, offsets, features, monotone, scales,
    first_output, reg_lambda, alpha, max_delta_step, min_child_weight, prefix_grad, prefix_hess, gains, bins, n_threads,
):  # fmt: skip
    """Grow trees from their roots, which are the first nodes, to max_depth (> 0). Returns how many nodes there are then.

    nodes : NODE, INOUT, with room for all. So have sums, left_sums, cats, counts and segments.
    hist : int64 (≥ n_trees · 2^(max_depth − 1), leaf_size, total_bins, 2), SCRATCH.
    scales : float64 (n_outputs, 2), IN, from float to fixed point. The others as the kernels have them that are called.
    """
    unmasked, every_bin = np.empty((0, features.size), np.uint8), np.empty((0, 0), np.uint8)
    inverse_scales, parameters = 1.0 / scales, np.empty(0)
    begin, n_nodes, held = 0, n_leaves.size, 0  # the frontier's first node; nodes; histograms held
    while begin < n_nodes and nodes[begin].depth < max_depth:
        n, subtract = n_nodes - begin, held > 0
        frontier = np.arange(begin, n_nodes).astype(np.int32)
        build, parents, chosen = np.empty(n, np.int32), np.empty(n, np.int32), np.empty(n, np.int32)
        n_built = choose_built(frontier, nodes, counts, held, subtract, build, parents)
        build, built = build[:n_built], hist[held : held + n_built]
        items = list_build_items(
            build, nodes, segments, first_output, n_limbs, lanes, True, n_threads, MIN_SLICE_ROWS, held, built
        )
        group_words = count_group_words(planes.shape[1], len(items), n_threads)
        _build(
            words, codes_per_word, rows, gpair, n_limbs, offsets, stride, items, group_words, built, private, planes, pairs,
            n_threads,
        )  # fmt: skip
        if subtract:
            _subtract(parents[:n_built], held, hist, n_threads)
        held += n_built
        candidates = np.empty((n, count_blocks(n, features.size, n_threads)), CANDIDATE)
        _evaluate(
            frontier, nodes, sums, left_sums, hist, offsets, features, monotone, unmasked, every_bin, False, inverse_scales,
            first_output, reg_lambda, alpha, max_delta_step, min_child_weight, parameters, candidates, prefix_grad, prefix_hess,
            gains, bins, n_threads,
        )  # fmt: skip
        selected = chosen[: select_depthwise(frontier, nodes, max_depth, max_leaves, n_leaves, chosen)]
        apply_splits(
            selected, n_nodes, nodes, sums, left_sums, monotone, scales, first_output, reg_lambda, alpha, max_delta_step
        )
        begin, n_nodes = n_nodes, n_nodes + 2 * selected.size
        counts[begin:n_nodes] = 0
        chunks = list_chunks(selected, segments)
        _mark(selected, nodes, cats, chunks, columns, n_bins, rows, segments, is_left, n_threads)
        place_children(selected, nodes, chunks, segments, counts)
        _move(selected, nodes, chunks, rows, segments, is_left, n_threads)
    return n_nodes
