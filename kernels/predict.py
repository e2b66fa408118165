"""Send rows down finished trees: on values, or on the codes of a binned matrix.

    go left  iff  x < threshold    (missing: default_left)          margin[output] += leaf, tree by tree in float32

All trees lie one after another in flat arrays; ``node = first node of the tree + number within it``. A block of rows runs through
one tree before the next tree is touched, so the tree stays in cache. Floor: one chain of dependent loads, as long as the tree is
deep, per row and tree.
"""

from functools import cache

import numpy as np
from numba import float32, int32, int64, prange, uint32, uint64

from gpuboost.kernels.device import cuda_kernel, n_threads, thread_number
from gpuboost.kernels.jit import claim, kernel, parallel_kernel, scalar

ROW_BLOCK = 256
CODE_BLOCK = 1024
LARGEST = float(np.finfo(np.float32).max)  # values of this size are refused (data/ingest.py)


@scalar
def leaf_of(block, row, missing, trees, root):
    """The leaf, by its number within the tree, that a row of values ends in."""
    node = int32(0)
    while trees[root + node].feature >= 0:
        at = trees[root + node]
        x = float32(block[row, at.feature])
        if x != x or x == missing:
            node = at.left + int32(1 - at.default_left)
        else:
            node = at.left + int32(not x < at.threshold)
    return node


@scalar
def copy_row(margin, i, out):
    """The row map of an objective that predicts its margins."""
    for output in range(margin.shape[0]):
        out[output, i] = margin[output, i]


@cache
def predict_rows(row_map):
    """The kernel that predicts a few rows on the calling thread, from values to predictions: no thread has to be woken.

    row_map : scalar function (margin, i, out) of kernels/reduce.py; copy_row for margins.

    Returned kernel (block, missing, trees, tree_begin, tree_groups, margin, out): arguments as predict_values_cpu.
        out : float32 (n_outputs, n_rows), OUT. What row_map makes of the margins.
        Returns False, before anything is complete, where a value is infinite or at least LARGEST in size.
    """

    def predict_rows_cpu(block, missing, trees, tree_begin, tree_groups, margin, out):
        for row in range(block.shape[0]):
            for feature in range(block.shape[1]):
                if abs(block[row, feature]) >= LARGEST:
                    return False
            for t in range(tree_begin.size):
                node = leaf_of(block, row, missing, trees, tree_begin[t])
                margin[tree_groups[t], row] = float32(margin[tree_groups[t], row] + trees[tree_begin[t] + node].threshold)
            row_map(margin, row, out)
        return True

    return kernel(predict_rows_cpu, row_map)


@parallel_kernel
def predict_values_cpu(block, missing, trees, tree_begin, tree_groups, margin, leaves, n_threads):
    """Add the trees' outputs to the margins of a batch of rows, and number the leaves they end in.

    block : float32 or float64 (n_rows, n_features), any strides, IN. missing : float32.
    trees : FLAT_NODE (n_nodes,), IN. tree_begin : int64 (n_trees,), IN. tree_groups : int32 (n_trees,), IN.
    margin : float32 (n_outputs, n_rows), INOUT.
    leaves : int32 (n_rows, n_trees), OUT. Leaf's number within its tree; may have no rows.
    """
    n_rows = block.shape[0]
    counter = np.zeros(1, np.int64)
    for _ in prange(n_threads):
        _predict_blocks(counter, n_rows, block, missing, trees, tree_begin, tree_groups, margin, leaves)


@parallel_kernel.part
def _predict_blocks(counter, n_rows, block, missing, trees, tree_begin, tree_groups, margin, leaves):
    while True:
        begin = claim(counter) * ROW_BLOCK
        if begin >= n_rows:
            return
        end = min(begin + ROW_BLOCK, n_rows)
        for t in range(tree_begin.size):
            root = tree_begin[t]
            for row in range(begin, end):
                node = leaf_of(block, row, missing, trees, root)
                margin[tree_groups[t], row] = float32(margin[tree_groups[t], row] + trees[root + node].threshold)
                if leaves.shape[0]:
                    leaves[row, t] = node


@parallel_kernel
def predict_codes_cpu(columns, n_bins, rows, trees, tree_begin, tree_groups, margin, leaves, n_threads):
    """The same for some rows of a page of codes.

    columns : uint8, uint16 or uint32 (n_features, n_rows), IN. n_bins : int32 (n_features,), IN. rows : int32 (k,), IN.
    margin : float32 (n_outputs, n_rows), INOUT. leaves : int32 (n_rows or 0, n_trees), OUT.

    All rows of a block go down a level together: their loads do not wait for each other, as those of one row do, and there is no
    branch to mispredict, since a leaf leads to itself. Half of 450k rows of 28 codes, one tree of depth 6, one thread of an AMD
    EPYC: 32 ns a row one by one, 14 ns so.
    """
    feature, last_bin = np.empty(trees.size, np.uint32), np.empty(trees.size, np.int64)
    to_left, left = np.empty(trees.size, np.int64), np.empty(trees.size, np.uint32)
    for root in tree_begin:
        _spread_tree(trees[root:], n_bins, feature[root:], last_bin[root:], to_left[root:], left[root:])
    counter = np.zeros(1, np.int64)
    for _ in prange(n_threads):
        _predict_code_blocks(
            counter, columns, rows, trees, feature, last_bin, to_left, left, tree_begin, tree_groups, margin, leaves
        )


@parallel_kernel.part
def _spread_tree(tree, n_bins, feature, last_bin, to_left, left):
    """Each field of a tree's nodes in an array of its own. to_left : the code of missing values where they go left, else −1.

    From the root on: the nodes of trees that grew together alternate.
    """
    stack, n = np.zeros(tree.size + 1, np.uint32), 1
    while n > 0:
        n -= 1
        node = stack[n]
        at = tree[node]
        is_leaf = at.feature < 0
        feature[node] = uint32(0) if is_leaf else uint32(at.feature)
        last_bin[node] = int64(2**40) if is_leaf else int64(at.bin)
        to_left[node] = int64(n_bins[feature[node]]) if at.default_left else int64(-1)
        left[node] = node if is_leaf else uint32(at.left)
        if not is_leaf:
            stack[n], stack[n + 1] = left[node], left[node] + uint32(1)
            n += 2


@parallel_kernel.part
def _predict_code_blocks(
    counter, columns, rows, trees, feature, last_bin, to_left, left, tree_begin, tree_groups, margin, leaves
):  # fmt: skip
    ends = np.empty(CODE_BLOCK, np.uint32)
    while True:
        begin = claim(counter) * CODE_BLOCK
        if begin >= rows.size:
            return
        own_rows = rows[begin : begin + CODE_BLOCK]
        for t in range(tree_begin.size):
            root = tree_begin[t]
            _find_leaves(columns, own_rows, feature[root:], last_bin[root:], to_left[root:], left[root:], ends)
            for i in range(own_rows.size):
                row = own_rows[i]
                margin[tree_groups[t], row] = float32(margin[tree_groups[t], row] + trees[root + ends[i]].threshold)
                if leaves.shape[0]:
                    leaves[row, t] = ends[i]


@parallel_kernel.part
def _find_leaves(columns, rows, feature, last_bin, to_left, left, ends):
    ends[:] = uint32(0)
    n_moved = int64(1)
    while n_moved > 0:
        n_moved = int64(0)
        for i in range(rows.size):
            at = uint64(i)
            node = ends[at]
            code = int64(columns[feature[node], uint32(rows[at])])
            is_right = (code > last_bin[node]) & (code != to_left[node])
            ends[at] = uint32(left[node] + uint32(is_right))
            n_moved += int64(ends[at] != node)


# ---------------------------------------------------------------------------------------------------------------------
# CUDA. A thread takes a row through all trees; neighbours read neighbouring rows of a feature-major table, so that the top
# levels are read in whole sectors. Floor: a chain of dependent loads (node, value) for every level, hidden by the other 2047
# threads.


@cuda_kernel(
    "values: float32[:, :], missing: float32, trees: FLAT_NODE[:], tree_begin: int64[:], tree_groups: int32[:], "
    "first_row: int64, margin: float32[:, :], leaves: int32[:, :]",
)
def predict_values_kernel(values, missing, trees, tree_begin, tree_groups, first_row, margin, leaves):
    """predict_values_cpu for a batch. values : float32 (n_features, n_rows of the batch), IN. first_row : the batch's, within
    margin : float32 (n_outputs, n_rows), INOUT, and leaves : int32 (n_rows or 0, n_trees), OUT."""
    row = int64(thread_number())
    while row < values.shape[1]:
        for t in range(tree_begin.size):
            root, node = tree_begin[t], int32(0)
            while trees[root + node].feature >= 0:
                x = values[trees[root + node].feature, row]
                is_right = int32(0)
                if x != x or x == missing:
                    is_right = int32(1 - trees[root + node].default_left)
                elif not x < trees[root + node].threshold:
                    is_right = int32(1)
                node = int32(trees[root + node].left + is_right)
            group = tree_groups[t]
            margin[group, first_row + row] = float32(margin[group, first_row + row] + trees[root + node].threshold)
            if leaves.shape[0] > 0:
                leaves[first_row + row, t] = node
        row += int64(n_threads())


@cuda_kernel(
    "columns: code[:, :], n_bins: int32[:], rows: int32[:], n_listed: int64[:], trees: FLAT_NODE[:], tree_begin: int64[:], "
    "tree_groups: int32[:], first_row: int64, margin: float32[:, :], leaves: int32[:, :]",
    registers=40, code=(np.uint8, np.uint16),
)
def predict_codes_kernel(columns, n_bins, rows, n_listed, trees, tree_begin, tree_groups, first_row, margin, leaves):
    """The same on a page of codes: columns : uint8 or uint16 (n_features, n_rows of the page), IN.

    rows : int32 (k or 0,), IN. The rows to predict from its back, as kernels/sampling.draw_rows_kernel lists them; all without.
    n_listed : int64 (2,), IN. The second is how many."""
    i = int64(thread_number())
    while i < n_listed[1]:
        row = int64(rows[rows.size - 1 - i]) if rows.size > 0 else i
        for t in range(tree_begin.size):
            root, node = tree_begin[t], int32(0)
            while trees[root + node].feature >= 0:
                feature = trees[root + node].feature
                code = int32(columns[feature, row])
                is_right = int32(0)
                if code == n_bins[feature]:
                    is_right = int32(1 - trees[root + node].default_left)
                elif code > trees[root + node].bin:
                    is_right = int32(1)
                node = int32(trees[root + node].left + is_right)
            group = tree_groups[t]
            margin[group, first_row + row] = float32(margin[group, first_row + row] + trees[root + node].threshold)
            if leaves.shape[0] > 0:
                leaves[first_row + row, t] = node
        i += int64(n_threads())
