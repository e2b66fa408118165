"""Send rows down finished trees (kernels/predict.py) on the codes of a binned matrix, which serve as keys where they lie.

RUN rows that follow each other choose among the first levels of trees without sets (kernels/top_codes.py); others, and what is
left below, step down eight rows together.
"""

import numpy as np
from numba import float32, int32, int64, uint32, uint64

from gpuboost.kernels.cuda_common import cuda_kernel, n_threads, thread_number
from gpuboost.kernels.heap_levels import ROWS_AT_ONCE
from gpuboost.kernels.jit import claim, launch, parallel_kernel, scalar
from gpuboost.kernels.predict import add_others, descend, lay_out, take_leaf
from gpuboost.kernels.scalar import bits_float, code_goes_left
from gpuboost.kernels.top_codes import MOST_LEVELS, RUN, choose_codes, lay_out_code_tops, n_code_levels

__all__ = ["predict_codes_cpu", "predict_codes_kernel"]


@parallel_kernel
def predict_codes_cpu(columns, n_bins, rows, trees, leaf_values, tree_begin, tree_groups, sets, margin, leaves, n_threads):
    """Add the trees' outputs to the margins of some rows of a page of codes, and number the leaves they end in.

    columns : uint8, uint16 or uint32 (n_features, n_rows), IN. n_bins : int32 (n_features,), IN.
    rows : int32 (k,), IN; empty: all. margin : float32 (n_outputs, n_rows), INOUT. leaves : int32 (n_rows or 0, n_trees), OUT.
    Others as predict_values_cpu.
    """
    column_of = np.arange(n_bins.size).astype(np.uint32)
    nodes, n_levels, _ = lay_out(trees, leaf_values, tree_begin, column_of, n_bins.astype(np.uint32), False)
    lows, widths = np.zeros((2, tree_begin.size if sets is None else 0, 1 << MOST_LEVELS), columns.dtype)
    features, places = lay_out_code_tops(nodes, tree_begin[: lows.shape[0]], n_levels, lows, widths)
    counter = np.zeros(1, np.int64)
    args = (
        counter, columns, rows, nodes, features, lows, widths, places, leaf_values, tree_begin, tree_groups, n_levels, sets,
        margin, leaves,
    )  # fmt: skip
    launch(n_threads, _predict_code_blocks, args)


@parallel_kernel.part
def _predict_code_blocks(
    counter, columns, rows, nodes, features, lows, widths, places, leaf_values, tree_begin, tree_groups, n_levels, sets, margin,
    leaves,
):  # fmt: skip
    own, starts = np.empty(RUN, np.int64), np.empty(RUN, np.uint32)
    found, n_rows = np.zeros((1 << MOST_LEVELS, RUN), columns.dtype), rows.size if rows.size > 0 else columns.shape[1]
    while True:
        begin = claim(counter) * RUN
        if begin >= n_rows:
            return
        n, is_run = min(int64(RUN), n_rows - begin), sets is None
        for i in range(n):
            own[i] = rows[begin + i] if rows.size > 0 else begin + i
            is_run &= own[i] == own[0] + i
        for t in range(tree_begin.size):
            n_left = int64(n_levels[t])
            if is_run and n == RUN:
                choose_codes(columns, own[0], features[t], lows[t], widths[t], n_code_levels(n_left), found)
                n_left -= n_code_levels(n_left)
                for i in range(RUN):
                    starts[i] = places[t, found[1, i]]
            else:
                starts[:n] = uint32(4) * uint32(tree_begin[t])
            if n_left <= 0 and n == RUN and is_run and leaf_values.shape[1] == 1 and leaves.shape[0] == 0:
                _add_values(own[0], starts, nodes, margin[tree_groups[t]])
            else:
                _step_on(
                    columns, own[:n], starts, nodes, sets, t, tree_begin[t], n_left, tree_groups[t], leaf_values, margin, leaves
                )


@scalar
def _add_values(first, places, nodes, margin):
    """The values of the leaves in these places, added to the margins of the rows from ``first`` on."""
    for i in range(RUN):
        row = uint64(first + i)
        margin[row] = float32(margin[row] + bits_float(nodes[uint64(places[i]) + uint64(1)]))


@parallel_kernel.part
def _step_on(columns, rows, starts, nodes, sets, t, root, n_levels, group, leaf_values, margin, leaves):
    """Rows go down so many levels of tree t from where they are, and take what they find there."""
    last = rows.size - 1
    for i in range(0, rows.size, ROWS_AT_ONCE):
        j = (i, min(i + 1, last), min(i + 2, last), min(i + 3, last), min(i + 4, last), min(i + 5, last), min(i + 6, last),
             min(i + 7, last))  # fmt: skip
        eight = (
            uint64(rows[j[0]]), uint64(rows[j[1]]), uint64(rows[j[2]]), uint64(rows[j[3]]), uint64(rows[j[4]]),
            uint64(rows[j[5]]), uint64(rows[j[6]]), uint64(rows[j[7]]),
        )  # fmt: skip
        at = (
            uint64(starts[j[0]]), uint64(starts[j[1]]), uint64(starts[j[2]]), uint64(starts[j[3]]), uint64(starts[j[4]]),
            uint64(starts[j[5]]), uint64(starts[j[6]]), uint64(starts[j[7]]),
        )  # fmt: skip
        ends = descend(columns, eight, nodes, sets, at, n_levels)
        for k in range(ROWS_AT_ONCE):
            if i + k < rows.size:
                _add_leaf(rows[i + k], t, nodes, root, ends[k], margin[group], leaves)
        if leaf_values.shape[1] > 1:
            for k in range(min(ROWS_AT_ONCE, rows.size - i)):
                add_others(rows[i + k], ends[k], leaf_values, group, margin)


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
