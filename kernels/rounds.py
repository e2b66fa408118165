"""Rounds in one call, one after another, where nothing but kernels comes between them.

Of a round of a tenth of a millisecond half is Python's, of one of 7 ms a tenth. One thread of an Intel Xeon, one by one -> so, ms
a round of depth 6: 1,000 × 7 0.21 -> 0.13, 7,000 × 7 0.37 -> 0.27, 20,000 × 28 1.33 -> 1.11. An AMD EPYC: 5,000 × 20 of 30
categories each 1.03 -> 0.89, on two threads 0.77 -> 0.64; 450,000 × 28 on two threads 7.2 -> 6.4, half of its rows and columns
4.5 -> 4.1. (Who draws compiles this once more, with drawing: 3 CPU-seconds of the first training on a machine.)

The steps are those of Grower.grow, in their order, for one worker and a table in one page without rows of zero weight; each is
the kernel that backend/cpu calls for it. What needs anything else ends the call before the round: values that are not finite, two
limbs, no room for the trees.
"""

import numpy as np
from numba import float64, int64, uint32

from gpuboost.kernels.allocation import empty, zeros
from gpuboost.kernels.column_sampling import TREE_DRAW, draw_columns_cpu
from gpuboost.kernels.compaction import compact_codes_cpu
from gpuboost.kernels.gradient_noise import choose_noise_cpu
from gpuboost.kernels.histogram import lay_out_by_row_cpu
from gpuboost.kernels.jit import call_at, call_late, parallel_kernel
from gpuboost.kernels.leaves import flatten_trees_cpu, list_leaf_chunks, sum_leaves_cpu, update_margin_cpu, weigh_trees
from gpuboost.kernels.nodes import start_trees
from gpuboost.kernels.output_sketch import sum_squares_cpu
from gpuboost.kernels.partition import start_rows_cpu
from gpuboost.kernels.predict_codes import finds_all_sooner, predict_codes_cpu
from gpuboost.kernels.quantise import N_SUMS, choose_limbs_cpu, choose_scales_cpu, quantise_cpu
from gpuboost.kernels.row_leaves import add_found_cpu, sum_found_cpu
from gpuboost.kernels.row_sampling import (
    MAGNITUDE_BINS,
    N_KEYS,
    UNIFORM,
    choose_threshold_cpu,
    count_magnitudes_cpu,
    draw_rows_cpu,
    sampling_key,
)
from gpuboost.kernels.scalar import bits_float, hash_word, round_key
from gpuboost.kernels.structs import FLAT_NODE
from gpuboost.kernels.whole_trees import grow_trees_cpu

__all__ = ["grow_rounds_cpu"]

_quantise, _lay_out, _grow_trees = quantise_cpu.dispatcher, lay_out_by_row_cpu.dispatcher, grow_trees_cpu.dispatcher
_start_rows, _sum_leaves, _update_margin = start_rows_cpu.dispatcher, sum_leaves_cpu.dispatcher, update_margin_cpu.dispatcher
_count, _draw, _copy, _predict = (
    kernel.dispatcher for kernel in (count_magnitudes_cpu, draw_rows_cpu, compact_codes_cpu, predict_codes_cpu)
)
_sum_found, _add_found, _sum_squares = sum_found_cpu.dispatcher, add_found_cpu.dispatcher, sum_squares_cpu.dispatcher


@parallel_kernel
def grow_rounds_cpu(
    first_round, seed, gradients, margin, label, weight, parameters, grad, hess, scales, n_limbs, gpair, by_row, n_leaves,
    first_output, nodes, sums, cats, counts, segments, drawn, rows, draws, of_trees, noise, rules, reg_lambda, alpha,
    max_delta_step, min_child_weight, gamma, learning_rate, most_found, ends, grown, grown_cats, weights, leaves, covers,
    n_threads,
):  # fmt: skip
    """Grow rounds and add them to the margins. Returns how many: as many as ``ends`` has room for, or fewer.

    first_round : the number of the first. seed : uint64. gradients : the address of the objective's kernel (late.find_address);
        margin, label, weight, parameters, grad, hess : as it has them.
    drawn : int32 (n_rows,). All rows, or room for those that a round draws. draws : () where all take part; else of_rows,
        of_columns, of_others: what _draw_rows, _draw_columns and _add_to_others take.
    of_trees : what grow_trees_cpu takes behind n_grown. scales, n_limbs, n_leaves, nodes, sums and so on : the same arrays.
    noise : float64 (2,), IN. Most and times of choose_noise_cpu, whose rules are of_trees'; (0,) where it chooses none.
    most_found : nodes up to which leaves are gone through row by row (row_leaves.py).
    ends : int64 (n,), OUT. Where each round's nodes end in the arrays that follow.
    grown : NODE (k,), grown_cats : uint32 (k, n_words), weights, leaves : float32 (k, leaf_size), covers : float64 (k,), OUT. A
        round is begun only where there is room for as many nodes as ``nodes`` has.
    """
    n_outputs, n_rows = margin.shape
    maxima, row_sums = empty((n_threads, n_outputs, 2), np.int64), empty((n_threads, n_outputs, N_SUMS), np.int64)
    keys, leaf_scales = empty(n_outputs, np.uint32), empty((n_outputs, 2), np.float64)
    n_grown, begin = zeros(2, np.int64), int64(0)
    for i in range(ends.size):
        if begin + nodes.size > grown.size:
            return i
        maxima[:] = 0
        call_at(gradients, (margin, label, weight, parameters, grad, hess, maxima, n_threads))
        n_drawn, n_own = n_rows, n_rows  # as planned, and as listed
        if len(draws) > 0:
            n_drawn, n_own = _draw_rows(draws[0], seed, first_round + i, drawn, grad, hess, maxima, n_threads)
        for thread in range(1, n_threads):
            for output in range(n_outputs):
                for k in range(2):
                    maxima[0, output, k] = max(maxima[0, output, k], maxima[thread, output, k])
        if not choose_scales_cpu(maxima[0], maxima[0], seed, first_round + i, n_rows, keys, scales, n_limbs, leaf_scales):
            return i
        row_sums[:] = 0
        call_late(_quantise, (grad, hess, keys, scales, n_limbs, gpair, row_sums, n_threads))
        if by_row.size > 0:
            call_late(_lay_out, (gpair, by_row, n_threads))
        for thread in range(1, n_threads):
            for output in range(n_outputs):
                for k in range(N_SUMS):
                    row_sums[0, output, k] += row_sums[thread, output, k]
        if choose_limbs_cpu(row_sums[0], n_drawn, reg_lambda, min_child_weight, scales, n_limbs):
            return i
        if noise.size > 0:
            _choose_noise(grad, maxima[0], leaf_scales, row_sums[0], scales, noise, rules, n_threads)
        if len(draws) > 0:
            _draw_columns(draws[1], seed, first_round + i, drawn[:n_own], n_threads)
        call_late(start_trees, (first_output.size, row_sums[0], first_output, nodes, sums, n_leaves))
        counts[: first_output.size] = n_own
        call_late(_start_rows, (first_output.size, drawn, n_own, rows, segments, n_threads))
        call_late(_grow_trees, (int64(round_key(seed, first_round + i)), n_grown) + of_trees)
        n_nodes, end = n_grown[0], begin + n_grown[0]
        goes_row_by_row = n_own == n_rows and n_nodes <= most_found
        chunks, leaf_sums = empty((0, 3), np.int64), zeros((n_nodes, leaves.shape[1], 2), np.int64)
        if goes_row_by_row:
            call_late(_sum_found, (
                nodes, segments, rows, grad, hess, leaf_scales, first_output, gpair, leaf_sums, n_threads
            ))  # fmt: skip
        else:
            chunks = list_leaf_chunks(n_nodes, nodes, segments)
            call_late(_sum_leaves, (
                chunks, nodes, segments, rows, grad, hess, leaf_scales, first_output, leaf_sums, n_threads
            ))  # fmt: skip
        call_late(weigh_trees, (
            n_nodes, n_grown[1], nodes, sums, leaf_sums, leaf_scales, first_output, gamma, min_child_weight, reg_lambda, alpha,
            max_delta_step, learning_rate, weights[begin:end], leaves[begin:end], covers[begin:end],
        ))  # fmt: skip
        finds_all = n_own < n_rows and finds_all_sooner(n_rows, n_rows - n_own, _depth(nodes[:n_nodes]), leaves.shape[1])
        if goes_row_by_row:
            call_late(_add_found, (nodes, leaves[begin:end], first_output, gpair, margin, n_threads))
        elif not finds_all:
            call_late(_update_margin, (
                chunks, nodes, segments, rows, leaves[begin:end], first_output, margin, n_threads
            ))  # fmt: skip
        if len(draws) > 0:
            if n_own < n_rows:
                others = drawn[:0] if finds_all else drawn[n_own:]
                _add_to_others(draws[2], others, nodes[:n_nodes], leaves[begin:end], first_output, margin, n_threads)
        for node in range(n_nodes):
            grown[begin + node] = nodes[node]
            for k in range(cats.shape[1]):
                grown_cats[begin + node, k] = cats[node, k]
        ends[i], begin = end, end
    return ends.size


@parallel_kernel.part
def _choose_noise(grad, maxima, leaf_scales, sums, scales, noise, rules, n_threads):
    largest, squares = float64(0.0), zeros((n_threads, grad.shape[0]), np.int64)
    for output in range(grad.shape[0]):
        largest = max(largest, float64(bits_float(uint32(maxima[output, 0]))))
    call_late(_sum_squares, (grad, largest, grad.shape[1], squares, n_threads))
    for thread in range(1, n_threads):
        for output in range(grad.shape[0]):
            squares[0, output] += squares[thread, output]
    call_late(choose_noise_cpu, (noise[0], noise[1], grad.shape[1], leaf_scales, squares[0], sums, scales, rules))


@parallel_kernel.part
def _draw_rows(of_rows, seed, number, drawn, grad, hess, maxima, n_threads):
    """(rows to draw, rows drawn) of a round, which ``drawn`` begins with, and the maxima of their gradients; of the others these
    are taken away. All rows, and maxima as they are, where none are to be drawn.

    of_rows : how many to draw, 0 for all; whether by gradient; int32 (n_rows,), all rows; uint8 (≥ n_rows,), SCRATCH.
    """
    n_drawn, by_gradient, kept, marks = of_rows
    if n_drawn == 0:
        return kept.size, kept.size
    keys, n_listed, threshold = empty(N_KEYS, np.uint64), empty(1, np.int64), float64(UNIFORM)
    for k in range(N_KEYS):
        keys[k] = sampling_key(seed, number, k)
    if by_gradient:
        counts = zeros((n_threads, MAGNITUDE_BINS, 2), np.int64)
        call_late(_count, (kept, grad, hess, counts, n_threads))
        for thread in range(1, n_threads):
            for b in range(MAGNITUDE_BINS):
                counts[0, b, 0] += counts[thread, b, 0]
                counts[0, b, 1] += counts[thread, b, 1]
        threshold = choose_threshold_cpu(counts[0], n_drawn)
    maxima[:] = 0
    call_late(_draw, (
        kept, int64(0), kept.size, n_drawn, keys, threshold, grad, hess, marks, drawn, n_listed, maxima, n_threads
    ))  # fmt: skip
    return n_drawn, n_listed[0]


@parallel_kernel.part
def _draw_columns(of_columns, seed, number, rows, n_threads):
    """Draw the features of a round, and copy their codes of these rows. Nothing where all are taken.

    of_columns : weights, n_bins, features and offsets, or none of the latter, as draw_columns_cpu; records and selected, as
    compact_codes_cpu.
    """
    weights, n_bins, features, offsets, records, selected = of_columns
    if features.size == 0:
        return
    draw_columns_cpu(weights, n_bins, int64(hash_word(round_key(seed, number), TREE_DRAW)), features, offsets)
    call_late(_copy, (records, features, rows, selected, n_threads))


@parallel_kernel.part
def _add_to_others(of_others, rows, nodes, leaves, first_output, margin, n_threads):
    """Add the leaf values to the margins of rows that trees were not grown on; none listed: of all rows.

    of_others : columns and n_bins, as predict_codes_cpu; thresholds and offsets, as flatten_trees_cpu.
    """
    columns, n_bins, thresholds, offsets = of_others
    flat, roots = empty(nodes.size, FLAT_NODE), empty(first_output.size, np.int64)
    for tree in range(roots.size):
        roots[tree] = tree
    call_late(flatten_trees_cpu, (nodes, thresholds, offsets, int64(0), flat))
    no_leaves = empty((0, 0), np.int32)
    call_late(_predict, (
        columns, n_bins, rows, flat, leaves, roots, first_output, None, margin, no_leaves, n_threads
    ))  # fmt: skip


@parallel_kernel.part
def _depth(nodes):
    """Of the deepest node."""
    depth = int64(0)
    for node in range(nodes.size):
        depth = max(depth, int64(nodes[node].depth))
    return depth
