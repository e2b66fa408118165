"""Send rows down finished trees: on values, or on the codes of a binned matrix.

    go left  iff  x < threshold    (missing: default_left)          margin[output] += leaf, tree by tree in float32

All trees lie one after another in flat arrays; ``node = first node of the tree + number within it``. A block of rows runs through
one tree before the next tree is touched, so the tree stays in cache. Floor: one chain of dependent loads, as long as the tree is
deep, per row and tree.
"""

import numpy as np
from numba import float32, int32, prange

from gpuboost.kernels.jit import claim, parallel_kernel

ROW_BLOCK = 256

FLAT_NODE = np.dtype(
    [
        ("threshold", np.float32),  # of a split; the leaf's value at a leaf
        ("bin", np.int32),  # the same split on codes; −1 where the cuts do not hold the threshold
        ("feature", np.int32),  # −1 at a leaf
        ("left", np.int32),  # within the tree; right = left + 1
        ("default_left", np.int32),
    ],
    align=True,
)


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
                node = int32(0)
                while trees[root + node].feature >= 0:
                    at = trees[root + node]
                    x = float32(block[row, at.feature])
                    if x != x or x == missing:
                        node = at.left + int32(1 - at.default_left)
                    else:
                        node = at.left + int32(not x < at.threshold)
                margin[tree_groups[t], row] = float32(margin[tree_groups[t], row] + trees[root + node].threshold)
                if leaves.shape[0]:
                    leaves[row, t] = node


@parallel_kernel
def predict_codes_cpu(columns, n_bins, trees, tree_begin, tree_groups, margin, leaves, n_threads):
    """The same on a page of codes. columns : uint8 or uint16 (n_features, n_rows), IN. n_bins : int32 (n_features,), IN."""
    n_rows = columns.shape[1]
    counter = np.zeros(1, np.int64)
    for _ in prange(n_threads):
        _predict_code_blocks(counter, n_rows, columns, n_bins, trees, tree_begin, tree_groups, margin, leaves)


@parallel_kernel.part
def _predict_code_blocks(counter, n_rows, columns, n_bins, trees, tree_begin, tree_groups, margin, leaves):
    while True:
        begin = claim(counter) * ROW_BLOCK
        if begin >= n_rows:
            return
        end = min(begin + ROW_BLOCK, n_rows)
        for t in range(tree_begin.size):
            root = tree_begin[t]
            for row in range(begin, end):
                node = int32(0)
                while trees[root + node].feature >= 0:
                    at = trees[root + node]
                    code = columns[at.feature, row]
                    if code == n_bins[at.feature]:
                        node = at.left + int32(1 - at.default_left)
                    else:
                        node = at.left + int32(code > at.bin)
                margin[tree_groups[t], row] = float32(margin[tree_groups[t], row] + trees[root + node].threshold)
                if leaves.shape[0]:
                    leaves[row, t] = node
