"""The steps of growing trees as parts of a call that does them all (kernels/whole_trees.py): those of Grower._grow_by_steps, in
their order, each the kernel that backend/cpu/trees.py calls for it.

GIVEN is what they have in common, and SCRATCH what each thread has of its own: arguments of grow_trees_cpu.
"""

from collections import namedtuple

import numpy as np
from numba import int64

from gpuboost.kernels.allocation import empty
from gpuboost.kernels.category_splits import evaluate_category_splits
from gpuboost.kernels.category_vectors import evaluate_category_vectors_cpu
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
from gpuboost.kernels.light_nodes import choose_light, search_light
from gpuboost.kernels.nodes import apply_splits, choose_built
from gpuboost.kernels.packing import build_unpacked_cpu, mark_packed_rows_cpu
from gpuboost.kernels.partition import list_chunks, mark_rows_cpu, move_rows_cpu, place_children
from gpuboost.kernels.sparse import build_sparse_histograms_cpu, mark_sparse_rows_cpu
from gpuboost.kernels.splits import CANDIDATE, count_blocks, evaluate_splits
from gpuboost.kernels.structs import NODE

__all__ = ["GIVEN", "SCRATCH", "number_nodes", "own_scratch", "search_frontier", "split_nodes"]

GIVEN = namedtuple("GIVEN", (
    "max_depth", "max_leaves", "nodes", "sums", "left_sums", "cats", "counts", "segments", "rows", "is_left", "words",
    "columns", "packing", "sparse", "light_rows", "codes_per_word", "stride", "lanes", "n_bins", "gpair", "by_row", "n_limbs",
    "hist", "offsets", "features", "monotone", "scales", "inverse_scales", "first_output", "reg_lambda", "alpha",
    "max_delta_step", "min_child_weight", "weights", "member", "key", "n_level", "n_node", "columns_of_sets", "rules",
))  # fmt: skip
SCRATCH = namedtuple("SCRATCH", (
    "private", "planes", "pairs", "prefix_grad", "prefix_hess", "gains", "bins", "order", "keys", "light_sums",
    "light_bits", "notes",
))  # fmt: skip

_build, _build_packed = build_histograms_cpu.dispatcher, build_packed_cpu.dispatcher
_subtract = subtract_histograms_cpu.dispatcher
_build_unpacked, _mark_packed = build_unpacked_cpu.dispatcher, mark_packed_rows_cpu.dispatcher
_build_sparse, _mark_sparse = build_sparse_histograms_cpu.dispatcher, mark_sparse_rows_cpu.dispatcher
_evaluate_sets, _evaluate_vectors = evaluate_category_splits(None).dispatcher, evaluate_category_vectors_cpu.dispatcher
_evaluate, _mark, _move = evaluate_splits(None).dispatcher, mark_rows_cpu.dispatcher, move_rows_cpu.dispatcher


@parallel_kernel.part
def own_scratch(scratch, thread):
    """That of one thread."""
    own = slice(thread, thread + 1)
    return SCRATCH(
        scratch.private[own], scratch.planes[own], scratch.pairs[own], scratch.prefix_grad[own], scratch.prefix_hess[own],
        scratch.gains[own], scratch.bins[own], scratch.order[own], scratch.keys[own], scratch.light_sums[own],
        scratch.light_bits[own], scratch.notes[own],
    )  # fmt: skip


@parallel_kernel.part
def search_frontier(frontier, held, subtract, scratch, n_threads, given):
    """Find the best splits of a frontier's nodes. held, subtract : choose_built's first_slot and subtract. Returns how many
    histograms have been built."""
    pairs = frontier
    if subtract and given.light_rows > 0:
        pairs, frontier, light = choose_light(frontier, given)
        if light.size > 0:
            _search_light(given.sparse, light, scratch, n_threads, given)
        if frontier.size == 0:
            return int64(0)
    n, n_features, of_sets = frontier.size, given.features.size, given.columns_of_sets
    build, parents = empty(pairs.size, np.int32), empty(pairs.size, np.int32)
    n_built = int64(choose_built(pairs, given.nodes, given.counts, held, subtract, build, parents))
    parents = parents[: n_built if subtract else 0]
    _build_histograms(given.hist, given.packing, given.sparse, build[:n_built], parents, held, scratch, n_threads, given)
    mask = _mask(frontier, given)
    every_bin, parameters = empty((0, 0), np.uint8), empty(0, np.float64)
    candidates = empty((n, count_blocks(n, n_features, n_threads)), CANDIDATE)
    call_late(_evaluate, (
        frontier, given.nodes, given.sums, given.left_sums, given.hist, given.offsets, given.features, given.monotone,
        _without_sets(mask, of_sets, n_features), every_bin, np.bool_(False), given.inverse_scales, given.first_output,
        given.reg_lambda, given.alpha, given.max_delta_step, given.min_child_weight, parameters, candidates, scratch.prefix_grad,
        scratch.prefix_hess, scratch.gains, scratch.bins, n_threads,
    ))  # fmt: skip
    if of_sets.size > 0:
        _search_sets(given.hist, frontier, mask, scratch, n_threads, given)
    return n_built


@parallel_kernel.part
def _search_light(sparse, light, scratch, n_threads, given):
    """sparse : of given; numba leaves out what does not fit the shape of an argument, not of a field."""
    if len(sparse) > 0:
        search_light(sparse, light, _mask(light, given), scratch, n_threads, given)


@parallel_kernel.part
def _mask(frontier, given):
    """The features that nodes may split on, as column_sampling.py masks them; without rows all."""
    n_features = given.features.size
    is_masked = given.n_node < n_features or given.member.shape[0] > 0
    mask = empty((frontier.size if is_masked else 0, n_features), np.uint8)
    if is_masked:
        call_late(mask_features_cpu, (
            frontier, given.nodes, given.features, given.weights, given.member, given.key, given.n_level, given.n_node, mask
        ))  # fmt: skip
    return mask


@parallel_kernel.part
def _search_sets(hist, frontier, mask, scratch, n_threads, given):
    """And the best sets, which become a node's split where they beat that of numbers. mask : of nodes and features."""
    shape = frontier.size, given.columns_of_sets.size
    of_nodes = frontier, given.nodes, given.sums, given.left_sums, given.cats, hist, given.columns_of_sets, given.offsets
    of_columns = given.features, mask, given.inverse_scales, given.first_output
    penalty = given.reg_lambda, given.alpha, given.max_delta_step, given.min_child_weight, given.rules
    found = empty(shape, np.float64), empty(shape, np.int64), scratch.order, scratch.keys, n_threads
    if hist.ndim == 4:  # packed ones have no sets
        if hist.shape[1] == 1:
            call_late(_evaluate_sets, of_nodes + of_columns + penalty + (empty(0, np.float64),) + found)
        else:
            call_late(_evaluate_vectors, of_nodes + of_columns + penalty + found)


@parallel_kernel.part
def _without_sets(mask, columns_of_sets, n_features):
    """A mask of nodes and features (column_sampling.py) without those that are split by sets."""
    if columns_of_sets.size == 0:
        return mask
    of_numbers = empty((max(mask.shape[0], 1), n_features), np.uint8)
    for i in range(of_numbers.shape[0]):
        for k in range(n_features):
            of_numbers[i, k] = mask[i, k] if mask.shape[0] > 0 else 1
        for column in columns_of_sets:
            of_numbers[i, column] = 0
    return of_numbers


@parallel_kernel.part
def split_nodes(selected, n_nodes, scratch, n_threads, given):
    """Split nodes, and part their rows; the children's numbers begin at n_nodes. selected : int32 (n,)."""
    nodes, segments = given.nodes, given.segments
    call_late(apply_splits, (
        selected, n_nodes, nodes, given.sums, given.left_sums, given.monotone, given.scales, given.first_output, given.reg_lambda,
        given.alpha, given.max_delta_step,
    ))  # fmt: skip
    given.counts[n_nodes : n_nodes + 2 * selected.size] = 0
    chunks = list_chunks(selected, segments, n_threads)
    _mark_rows(given.packing, given.sparse, selected, chunks, scratch, n_threads, given)
    call_late(place_children, (selected, nodes, chunks, segments, given.counts))
    call_late(_move, (selected, nodes, chunks, given.rows, segments, given.is_left, n_threads))


@parallel_kernel.part
def _build_histograms(hist, packing, sparse, build, parents, held, scratch, n_threads, given):
    """Build the histograms of nodes, whose slots begin at held, and take them from those of their parents, if any are given.
    hist, packing, sparse : of given; numba leaves out what does not fit the shape of an argument, not of a field."""
    nodes, segments, n_limbs = given.nodes, given.segments, given.n_limbs
    rows, first_output, offsets = given.rows, given.first_output, given.offsets
    if hist.ndim == 3:
        call_late(_build_packed, (
            build, parents, nodes, segments, first_output, offsets.size - 1, given.words, rows, given.gpair, hist, n_threads
        ))  # fmt: skip
        return
    built, slice_rows = hist[held : held + build.size], int64(MIN_SLICE_ROWS if n_threads > 1 else FLUSH_ROWS)
    yes = np.bool_(True)  # of a literal's own type kernels would be compiled once more
    items = list_build_items(
        build, nodes, segments, first_output, n_limbs, given.lanes, yes, n_threads, slice_rows, held, built
    )
    if len(packing) > 0:
        call_late(_build_unpacked, (
            given.words, rows, given.gpair, given.features, offsets, packing, items, built, scratch.private, n_threads
        ))  # fmt: skip
    elif len(sparse) > 0:
        row_begin, row_end, cells, zero_bins = sparse[:4]
        call_late(_build_sparse, (
            row_begin, row_end, cells, int64(offsets[offsets.size - 1]), zero_bins, rows, given.gpair, n_limbs, items, built,
            n_threads,
        ))  # fmt: skip
    else:
        n_words = scratch.planes.shape[1]
        group_words = count_group_words(n_words, len(items), n_threads) if n_threads > 1 else n_words
        call_late(_build, (
            given.words, given.codes_per_word, rows, given.gpair, given.by_row, n_limbs, offsets, given.stride, items,
            group_words, built, scratch.private, scratch.planes, scratch.pairs, n_threads,
        ))  # fmt: skip
    call_late(_subtract, (parents, held, hist, n_threads))


@parallel_kernel.part
def _mark_rows(packing, sparse, selected, chunks, scratch, n_threads, given):
    """Which rows go left."""
    nodes, cats, rows, segments, is_left = given.nodes, given.cats, given.rows, given.segments, given.is_left
    if len(sparse) > 0:
        row_begin, _, _, _, cells, offsets, absent, entries = sparse
        call_late(_mark_sparse, (
            selected, nodes, cats, chunks, row_begin, cells, offsets, absent, entries, scratch.notes, rows, segments, is_left,
            n_threads,
        ))  # fmt: skip
    elif len(packing) > 0 and packing[6]:
        call_late(_mark_packed, (
            selected, nodes, cats, chunks, given.columns, *packing[:6], rows, segments, is_left, n_threads
        ))  # fmt: skip
    else:
        call_late(_mark, (selected, nodes, cats, chunks, given.columns, given.n_bins, rows, segments, is_left, n_threads))


@parallel_kernel.part
def number_nodes(order, given):
    """Let node order[i] be node i. order : int64 (n,), parents before their children, siblings side by side. Bounds of vector
    leaves, and sets, go with the nodes (kernels/nodes.py); what is not read any more once trees are grown does not."""
    nodes, segments, sums, cats = given.nodes, given.segments, given.sums, given.cats
    n, new = order.size, empty(nodes.size, np.int64)
    old_nodes, old_segments, old_cats = empty(n, NODE), empty((n, 3), np.int64), empty((n, cats.shape[1]), np.uint32)
    if sums.shape[2] > 2:
        _number_bounds(order, sums)
    for i in range(n):
        new[order[i]], old_nodes[i] = i, nodes[order[i]]
        for j in range(3):  # of slices, numba would compile an error message
            old_segments[i, j] = segments[order[i], j]
        for j in range(cats.shape[1]):
            old_cats[i, j] = cats[order[i], j]
    for i in range(n):
        nodes[i] = old_nodes[i]
        if old_nodes[i].parent >= 0:
            nodes[i].parent = new[old_nodes[i].parent]
        if old_nodes[i].left >= 0:
            nodes[i].left = new[old_nodes[i].left]
        for j in range(3):
            segments[i, j] = old_segments[i, j]
        for j in range(cats.shape[1]):
            cats[i, j] = old_cats[i, j]


@parallel_kernel.part
def _number_bounds(order, sums):
    old = empty((order.size, sums.shape[1], 2), np.int64)
    for i in range(order.size):
        for output in range(sums.shape[1]):
            old[i, output, 0], old[i, output, 1] = sums[order[i], output, 2], sums[order[i], output, 3]
    for i in range(order.size):
        for output in range(sums.shape[1]):
            sums[i, output, 2], sums[i, output, 3] = old[i, output, 0], old[i, output, 1]
