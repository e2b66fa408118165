"""Send rows down finished trees (kernels/predict.py) on the codes of a binned matrix, which serve as keys where they lie.

RUN rows that follow each other choose among the first levels of trees without sets (kernels/top_codes.py). For all rows of a page
and trees no deeper than that there is nothing else. Else, by a kernel that is called late, they strike out the leaves of trees
that have few (kernels/leaf_masks.py); of others, and where rows do not follow each other, eight step down together.
"""

import numpy as np
from numba import float32, int32, int64, uint32, uint64

from gpuboost.kernels.allocation import empty, zeros
from gpuboost.kernels.cuda_common import cuda_kernel, n_threads, thread_number
from gpuboost.kernels.heap_levels import ROWS_AT_ONCE
from gpuboost.kernels.jit import call_late, inlined_scalar, launch, parallel_kernel, scalar
from gpuboost.kernels.leaf_masks import find_leaves, lay_out_masks
from gpuboost.kernels.predict import add_others, lay_out, step_down, take_leaf
from gpuboost.kernels.scalar import bits_float, code_goes_left
from gpuboost.kernels.shares import claim_block, new_counters
from gpuboost.kernels.top_codes import MOST_LEVELS, RUN, choose_codes, lay_out_code_tops, n_code_levels

__all__ = ["finds_all_sooner", "predict_codes_cpu", "predict_codes_kernel"]


@scalar
def finds_all_sooner(n_rows, n_others, depth, leaf_size):
    """Whether all rows of a table find their leaves in its order sooner than those that trees were grown on are listed, and the
    others go down. Half drawn of 300,000 × 28, depth 6, one thread of an Intel Xeon, ms of either 1.4, 2.6; 80 % 1.35, 1.36;
    95 % 1.4, 0.8."""
    return leaf_size == 1 and depth <= MOST_LEVELS and 4 * n_others >= n_rows


@parallel_kernel
def predict_codes_cpu(columns, n_bins, rows, trees, leaf_values, tree_begin, tree_groups, sets, margin, leaves, n_threads):
    """Add the trees' outputs to the margins of some rows of a page of codes, and number the leaves they end in.

    columns : uint8, uint16 or uint32 (n_features, n_rows), IN. n_bins : int32 (n_features,), IN.
    rows : int32 (k,), IN; empty: all. margin : float32 (n_outputs, n_rows), INOUT. leaves : int32 (n_rows or 0, n_trees), OUT.
    Others as predict_values_cpu.
    """
    column_of, missing_codes = empty(n_bins.size, np.uint32), empty(n_bins.size, np.uint32)
    for feature in range(n_bins.size):
        column_of[feature], missing_codes[feature] = feature, n_bins[feature]
    nodes, n_levels, n_nodes = lay_out(trees, leaf_values, tree_begin, column_of, missing_codes, False)
    shape = tree_begin.size if sets is None else 0, 1 << MOST_LEVELS
    lows, widths = zeros(shape, columns.dtype), zeros(shape, columns.dtype)
    features, places = lay_out_code_tops(nodes, tree_begin[: lows.shape[0]], n_levels, lows, widths)
    is_deep = sets is not None
    for t in range(tree_begin.size):
        is_deep |= n_levels[t] > MOST_LEVELS
    counters, of_all = new_counters(n_threads), rows.size + leaves.shape[0] == 0 and columns.shape[1] >= RUN
    if of_all and leaf_values.shape[1] == 1 and not is_deep:
        values = empty(places.shape, np.float32)
        for t in range(places.shape[0]):
            for k in range(places.shape[1]):
                values[t, k] = bits_float(nodes[uint64(places[t, k]) + uint64(1)])
        launch(n_threads, _choose_blocks, (counters, columns, features, lows, widths, values, tree_groups, n_levels, margin))
    else:
        call_late(_step_blocks_cpu, (
            counters, columns, rows, nodes, features, lows, widths, places, leaf_values, tree_begin, tree_groups, n_levels,
            n_nodes, sets, margin, leaves, n_threads,
        ))  # fmt: skip


@parallel_kernel.part
def _choose_blocks(thread, counters, columns, features, lows, widths, values, tree_groups, n_levels, margin):
    """Of trees without deeper levels. values : float32 (n_trees, 2^MOST_LEVELS), IN. Of what lies below the levels. The last RUN
    rows may have rows among them that others have added to."""
    found, n_rows = zeros((1 << MOST_LEVELS, RUN), columns.dtype), columns.shape[1]
    while True:
        begin = claim_block(counters, thread, n_rows, RUN)
        if begin >= n_rows:
            return
        first = min(begin, n_rows - RUN)
        for t in range(tree_groups.size):
            choose_codes(columns, first, features[t], lows[t], widths[t], n_code_levels(n_levels[t]), found)
            own, numbers, sums = values[t], found[1], margin[tree_groups[t], first:]
            for i in range(uint64(begin - first), uint64(RUN)):
                sums[i] = float32(sums[i] + own[uint32(numbers[i])])


@parallel_kernel
def step_blocks_cpu(
    counters, columns, rows, nodes, features, lows, widths, places, leaf_values, tree_begin, tree_groups, n_levels, n_nodes,
    sets, margin, leaves, n_threads,
):  # fmt: skip
    """Of any rows and trees."""
    n_rows = rows.size if rows.size > 0 else columns.shape[1]
    masks, mask_begin = zeros(0, np.uint32), zeros(tree_begin.size + 1, np.int64)
    if sets is None:
        masks, mask_begin = lay_out_masks(nodes, 0, tree_begin, n_nodes, n_levels, n_rows, False)
    args = (
        counters, columns, rows, nodes, features, lows, widths, places, masks, mask_begin, leaf_values, tree_begin,
        tree_groups, n_levels, sets, margin, leaves,
    )  # fmt: skip
    launch(n_threads, _step_blocks, args)


_step_blocks_cpu = step_blocks_cpu.dispatcher


@parallel_kernel.part
def _step_blocks(
    thread, counters, columns, rows, nodes, features, lows, widths, places, masks, mask_begin, leaf_values, tree_begin,
    tree_groups, n_levels, sets, margin, leaves,
):  # fmt: skip
    own, starts = empty(RUN, np.int64), empty(RUN, np.uint32)
    left, waiting = empty(RUN, np.uint32), empty(RUN + ROWS_AT_ONCE, np.uint32)
    found, n_rows = zeros((1 << MOST_LEVELS, RUN), columns.dtype), rows.size if rows.size > 0 else columns.shape[1]
    while True:
        begin = claim_block(counters, thread, n_rows, RUN)
        if begin >= n_rows:
            return
        n, is_run = min(int64(RUN), n_rows - begin), sets is None
        for i in range(n):
            own[i] = rows[begin + i] if rows.size > 0 else begin + i
            is_run &= own[i] == own[0] + i
        for t in range(tree_begin.size):
            n_left = int64(n_levels[t])
            is_block = is_run and n == RUN
            if not is_block:
                starts[:n] = uint32(4) * uint32(tree_begin[t])
            elif mask_begin[t] < mask_begin[t + 1]:
                find_leaves(columns, columns.shape[1], own[0], masks, mask_begin[t], left, starts)
                n_left = int64(0)
            else:
                _choose_places(columns, own[0], features[t], lows[t], widths[t], places[t], n_left, found, starts)
                n_left -= n_code_levels(n_left)
            step_down(columns, own, nodes, sets, n_left, waiting, starts[:n])
            if is_block and leaf_values.shape[1] == 1 and leaves.shape[0] == 0:
                _add_values(own[0], starts, nodes, margin[tree_groups[t]])
                continue
            for i in range(n):
                place = uint64(starts[i])
                _add_leaf(own[i], t, nodes, tree_begin[t], place, margin[tree_groups[t]], leaves)
                if leaf_values.shape[1] > 1:
                    add_others(own[i], place, leaf_values, tree_groups[t], margin)


@inlined_scalar
def _choose_places(columns, first, features, lows, widths, places, n_levels, found, starts):
    """Where RUN rows from ``first`` on are below the first levels of a tree."""
    choose_codes(columns, first, features, lows, widths, n_code_levels(n_levels), found)
    for i in range(RUN):
        starts[i] = places[found[1, i]]


@scalar
def _add_values(first, places, nodes, margin):
    """The values of the leaves in these places, added to the margins of the rows from ``first`` on."""
    for i in range(RUN):
        row = uint64(first + i)
        margin[row] = float32(margin[row] + bits_float(nodes[uint64(places[i]) + uint64(1)]))


@scalar
def _add_leaf(row, t, nodes, root, end, out, leaves):
    out[uint64(row)] = float32(out[uint64(row)] + bits_float(nodes[end + uint64(1)]))
    if leaves.shape[0]:
        leaves[row, t] = int64(end >> uint64(2)) - root


# ---------------------------------------------------------------------------------------------------------------------
# CUDA, as predict_values_kernel.


@cuda_kernel(
    "columns: code[:, :], n_bins: int32[:], rows: int32[:], n_listed: int64[:], trees: FLAT_NODE[:], leaf_values: float32[:, :], "
    "tree_begin: int64[:], tree_groups: int32[:], sets: uint32[:], first_row: int64, margin: float32[:, :], "
    "leaves: int32[:, :]",
    registers=40, code=(np.uint8, np.uint16),
)
def predict_codes_kernel(
    columns, n_bins, rows, n_listed, trees, leaf_values, tree_begin, tree_groups, sets, first_row, margin, leaves
):  # fmt: skip
    """predict_values_kernel on a page of codes: columns : uint8 or uint16 (n_features, n_rows of the page), IN.

    rows : int32 (k or 0,), IN. The rows to predict from its back, as row_sampling.list_and_clear lists them; all without.
    n_listed : int64 (2,), IN. The second is how many."""
    i = int64(thread_number())
    while i < n_listed[1]:
        row = int64(rows[rows.size - 1 - i]) if rows.size > 0 else i
        for t in range(tree_begin.size):
            root, node = tree_begin[t], int32(0)
            while trees[root + node].feature >= 0:
                at = trees[root + node]
                goes_left = code_goes_left(int32(columns[at.feature, row]), trees, root + node, n_bins[at.feature], sets)
                node = int32(at.left + (int32(0) if goes_left else int32(1)))
            take_leaf(leaf_values, root, node, t, tree_groups[t], first_row + row, margin, leaves)
        i += int64(n_threads())
