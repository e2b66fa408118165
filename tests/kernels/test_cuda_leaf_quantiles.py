"""kernels/leaf_quantiles.py on CUDA: the quantiles and the order of leaves as on the CPU, to the last bit."""

import numpy as np
import pytest
from cuda_runners import assert_same, each_runner, progress_of
from test_cuda_leaves import FIRST_ROW, in_all_rows, over_leaves
from test_leaf_quantiles import ALPHAS, full_tree, leaves_below, ordered_cpu, quantiles_cpu, residuals_of, scales_of
from test_leaves import Forest

from gpuboost.backend.fixed_point import as_ratios
from gpuboost.kernels import leaf_quantiles as kernel
from gpuboost.kernels.leaves import list_leaf_chunks_kernel

pytestmark = pytest.mark.long


def quantiles_cuda(run, forest, label, margin, hess, scales, n_slots):
    keys, weights = np.zeros((2, forest.n_outputs, forest.rows.shape[1]), np.uint32)
    of_leaves = np.stack([np.full(2, 3.0), scales * 8], axis=1)  # the weights' scales are an eighth of these
    over_leaves(
        run, forest, kernel.list_residuals_kernel, *map(in_all_rows, (label, margin, hess)), of_leaves, 0.125,
        forest.first_output, keys, weights,
    )  # fmt: skip
    progress, first_chunk = progress_of(n_nodes=forest.n_nodes), np.zeros(forest.n_nodes + 1, np.int64)
    run(list_leaf_chunks_kernel, forest.segments, forest.nodes, progress, first_chunk, blocks=1)
    values = np.full((forest.n_nodes, forest.n_outputs), np.nan)
    for first in range(0, forest.n_nodes, n_slots):
        prefixes, targets = np.zeros((2, n_slots, forest.n_outputs, 2), np.int64)
        for level in range(kernel.N_LEVELS):
            counts = np.zeros((*prefixes.shape, kernel.DIGITS), np.int64)
            run(
                kernel.count_residuals_kernel, forest.segments, forest.nodes, progress, first_chunk, first, level, keys, weights,
                prefixes, counts, blocks=first_chunk[-1] + 2,
            )  # fmt: skip
            run(
                kernel.choose_digits_kernel, first, level, as_ratios(ALPHAS), forest.first_output, forest.nodes, progress,
                counts, prefixes, targets, warps=n_slots * forest.n_outputs,
            )  # fmt: skip
        run(kernel.take_quantiles_kernel, first, progress, prefixes, values, threads=n_slots)
    return values


@pytest.mark.sweep(2)
@each_runner
@pytest.mark.parametrize(
    "n_rows, n_leaves, n_values, vector", [(1, 1, 1, False), (70, 3, 40, False), (70, 2, 3, True), (33, 5, 10**4, True)]
)
def test_leaves_are_those_of_the_cpu(run, n_rows, n_leaves, n_values, vector):
    forest = Forest(n_rows, n_leaves, seed=n_rows, vector=vector)
    label, margin = residuals_of(forest, 3, n_values)
    hess = np.ones_like(forest.hess) if n_leaves == 3 else np.maximum(forest.hess, np.float32(1e-6))
    scales = scales_of(hess)
    expected = quantiles_cpu(forest, label, margin, hess, scales)
    actual = quantiles_cuda(run, forest, label, margin, hess, scales, n_slots=4)
    filled = [node for node, rows in forest.members.items() if len(rows)]
    assert filled and FIRST_ROW > 0
    assert_same(actual[filled], expected[filled])


@each_runner
@pytest.mark.parametrize("depth, seed", [(0, 1), (3, 2), (5, 3)])
def test_the_order_of_leaves_is_that_of_the_cpu(run, depth, seed):
    nodes, values = full_tree(depth, seed)
    n, monotone, progress = len(nodes), np.array([1, -1, 0], np.int8), progress_of(depth=depth, learning_rate=0.5)
    progress["n_nodes"] = n
    cuts, weights, leaves = np.empty(n), np.full((n, 1), 77, np.float32), np.full((n, 1), 77, np.float32)
    run(kernel.find_cuts_kernel, progress, nodes, monotone, values, *np.empty((2, n)), cuts, blocks=1)
    run(kernel.weigh_quantiles_kernel, progress, nodes, monotone, values, cuts, weights, leaves, threads=n)
    for actual, expected in zip((weights, leaves), ordered_cpu(nodes, values, monotone)):
        below = leaves_below(nodes, 0)
        assert_same(actual[below], expected[below])
