"""Approximate contributions of features to a row (Saabas 2014): what each split on the row's own path changes.

    φ of the split's feature += mean(child) − mean(node)      means over the cover below (kernels/path_steps.py)

Which feature is split by first matters, unlike for SHAP values; the sums are the same. A row costs one path a tree.
"""

import numpy as np
from numba import int64, uint64

from gpuboost.kernels.allocation import zeros
from gpuboost.kernels.cuda_common import cuda_kernel, n_threads, thread_number
from gpuboost.kernels.jit import claim, launch, parallel_kernel
from gpuboost.kernels.predict import ROW_BLOCK, key_goes_right
from gpuboost.kernels.scalar import value_goes_left


@parallel_kernel
def add_changes_cpu(keys, nodes, sets, trees, means, tree_begin, tree_groups, columns, n_used, sums, n_threads):
    """Add what the splits change to all rows' sums.

    keys, nodes, sets : IN, as add_contributions_cpu (kernels/contributions.py). trees : FLAT_NODE (n_nodes,), IN.
    means : float64 (n_nodes, leaf_size), IN. tree_begin : int64 (n_trees,), IN. tree_groups : int32 (n_trees,), IN. The first
        output of each. columns : int32 (n_features,), IN. Number of each feature among the n_used that are split by.
    sums : float64 (n_blocks, n_outputs · n_used, ROW_BLOCK), INOUT.
    """
    counter = zeros(1, np.int64)
    args = (
        counter, keys, nodes, sets, trees, means, tree_begin, tree_groups, columns, n_used, sums,
    )  # fmt: skip
    launch(n_threads, _add_block_changes, args)


@parallel_kernel.part
def _add_block_changes(counter, keys, nodes, sets, trees, means, tree_begin, tree_groups, columns, n_used, sums):
    while True:
        block = claim(counter)
        if block >= keys.shape[0]:
            return
        for t in range(tree_begin.size):
            for r in range(ROW_BLOCK):
                node = tree_begin[t]
                while trees[node].feature >= 0:
                    word = uint64(4) * uint64(node)
                    key = keys[block, uint64(nodes[word]), r]
                    goes_right = key_goes_right(
                        key, nodes[word + uint64(1)], nodes[word + uint64(2)], nodes[word + uint64(3)], sets
                    )
                    child = tree_begin[t] + trees[node].left + int64(goes_right)
                    for own in range(means.shape[1]):
                        column = (tree_groups[t] + own) * n_used + columns[trees[node].feature]
                        sums[block, column, r] += means[child, own] - means[node, own]
                    node = child


# ---------------------------------------------------------------------------------------------------------------------
# CUDA. A thread a row, as in prediction.


@cuda_kernel(
    "values: float32[:, :], missing: float32, trees: FLAT_NODE[:], sets: uint32[:], means: float64[:, :], tree_begin: int64[:], "
    "tree_groups: int32[:], columns: int32[:], n_used: int64, sums: float64[:, :, :]",
    registers=48, uses_double=True,
)  # fmt: skip
def add_changes_kernel(values, missing, trees, sets, means, tree_begin, tree_groups, columns, n_used, sums):
    """add_changes_cpu for a batch. values : float32 (n_features, n_rows), IN."""
    row = int64(thread_number())
    while row < values.shape[1]:
        for t in range(tree_begin.size):
            node = tree_begin[t]
            while trees[node].feature >= 0:
                goes_left = value_goes_left(values[trees[node].feature, row], trees, node, missing, sets)
                child = tree_begin[t] + int64(trees[node].left) + (int64(0) if goes_left else int64(1))
                for own in range(means.shape[1]):
                    column = (int64(tree_groups[t]) + own) * n_used + int64(columns[trees[node].feature])
                    sums[row // ROW_BLOCK, column, row % ROW_BLOCK] += means[child, own] - means[node, own]
                node = child
        row += int64(n_threads())
