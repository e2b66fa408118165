"""kernels/leaves.py on CUDA: sums, weights and margins as on the CPU, to the last bit."""

import numpy as np
from cuda_runners import each_runner, progress_of
from hypothesis import given, settings
from hypothesis import strategies as st
from test_leaves import Forest
from test_nodes import random_trees

from gpuboost.binned.cuts import Cuts
from gpuboost.kernels import leaves as kernel
from gpuboost.kernels import nodes as node_kernels
from gpuboost.kernels.structs import FLAT_NODE, NODE, PENALTY

FIRST_ROW = 5  # of the page, in the arrays of all rows


def forests(max_leaves):
    return st.builds(Forest, st.integers(0, 70), st.integers(1, max_leaves), seed=st.integers(0, 2**32), vector=st.booleans())


def in_all_rows(values):
    """Rows of a page as the kernels get them: behind those of another page, which must not be read or written."""
    return np.concatenate([np.full((len(values), FIRST_ROW), -77, values.dtype), values], axis=1)


def over_leaves(run, forest, launched, *arguments):
    """Launch a kernel whose blocks take chunks of the leaves' rows."""
    progress, first_chunk = progress_of(n_nodes=forest.n_nodes), np.full(forest.n_nodes + 1, -7, np.int64)
    run(kernel.list_leaf_chunks_kernel, forest.segments, forest.nodes, progress, first_chunk, blocks=1)
    run(
        launched, forest.segments, forest.nodes, progress, first_chunk, forest.rows, FIRST_ROW, *arguments,
        blocks=first_chunk[-1] + 2,
    )  # fmt: skip


def sum_leaves(run, forest):
    sums = np.zeros((forest.n_nodes + 1, forest.n_outputs, 2), np.int64)
    over_leaves(
        run, forest, kernel.sum_leaves_kernel, in_all_rows(forest.grad), in_all_rows(forest.hess), forest.scales,
        forest.first_output, sums,
    )  # fmt: skip
    return sums[:-1]


# ---- chunks


@each_runner
def test_the_chunks_of_each_leaf(run):
    nodes, sizes = np.zeros(7, NODE), np.array([0, 1, kernel.CHUNK_ROWS, kernel.CHUNK_ROWS + 1, 10**9, 10**9, 3])
    nodes["left"] = [-1, -1, -1, -1, -1, 6, -1]  # node 5 is split
    segments, first_chunk = np.zeros((7, 3), np.int64), np.full(9, -7, np.int64)
    segments[:, 1] = sizes
    run(kernel.list_leaf_chunks_kernel, segments, nodes, progress_of(n_nodes=7), first_chunk, blocks=1)
    n_chunks = [0, 1, 1, 2, -(-(10**9) // kernel.CHUNK_ROWS), 0, 1]
    assert first_chunk.tolist() == [0, *np.cumsum(n_chunks), -7]


@each_runner
def test_the_chunks_of_more_nodes_than_threads(run):
    rng, n = np.random.default_rng(1), 130
    nodes, segments, first_chunk = np.zeros(n, NODE), np.zeros((n, 3), np.int64), np.empty(n + 1, np.int64)
    nodes["left"], segments[:, 1] = rng.choice([-1, 7], n), rng.integers(0, 3 * kernel.CHUNK_ROWS, n)
    run(kernel.list_leaf_chunks_kernel, segments, nodes, progress_of(n_nodes=n), first_chunk, blocks=1)
    n_chunks = np.where(nodes["left"] < 0, -(-segments[:, 1] // kernel.CHUNK_ROWS), 0)
    assert first_chunk.tolist() == np.cumsum([0, *n_chunks]).tolist()


# ---- sums


@each_runner
def test_sums_by_hand(run):
    forest = Forest(3, 1, vector=True)
    forest.grad[:], forest.hess[:] = [[1, 2, -4.25], [0, 0, 1]], [[0.125, 0.25, 0.5], [1, 1, 1]]
    forest.scales[:] = [[2, 8], [1, 1]]
    # ⌊2g + ½⌋ = 2, 4, −8 and 8h = 1, 2, 4
    assert sum_leaves(run, forest).tolist() == [[[0, 0], [0, 0]], [[2 + 4 - 8, 1 + 2 + 4], [1, 3]]]


@settings(max_examples=10)
@given(forests(6))
@each_runner
def test_sums_equal_the_cpu(run, forest):
    np.testing.assert_array_equal(sum_leaves(run, forest), forest.sums(1))


@each_runner
def test_leaves_of_several_chunks_equal_the_cpu(run):
    forest = Forest(kernel.CHUNK_ROWS + 1, 1, vector=True)
    np.testing.assert_array_equal(sum_leaves(run, forest), forest.sums(1))
    margin, leaves = np.zeros((2, kernel.CHUNK_ROWS + 1), np.float32), np.float32([[0, 0], [0.5, 2]])
    everywhere = in_all_rows(margin)
    over_leaves(run, forest, kernel.update_margin_kernel, leaves, forest.first_output, everywhere)
    assert (everywhere[0, FIRST_ROW:] == 0.5).all() and (everywhere[1, FIRST_ROW:] == 2).all(), "every row once"


# ---- weights


def weigh(run, forest, sums, *, reg_lambda=1.0, alpha=0.0, max_delta_step=0.0, learning_rate=0.3):
    n, shape = forest.n_nodes, (forest.n_nodes + 1, forest.n_outputs)
    weights, leaves, covers = np.full(shape, 77, np.float32), np.full(shape, 77, np.float32), np.full(n + 1, 77.0)
    penalty = np.array([(reg_lambda, alpha, max_delta_step, 1e9, 0.0)], PENALTY)  # min_child_weight: not of a leaf
    progress = progress_of(n_nodes=n, learning_rate=learning_rate)
    run(
        kernel.leaf_weights_step.alone, progress, forest.nodes, sums, sums, forest.scales, forest.first_output, penalty, weights,
        leaves, covers, blocks=1,
    )  # fmt: skip
    assert (weights[n] == 77).all() and (leaves[n] == 77).all() and covers[n] == 77
    return weights[:n], leaves[:n], covers[:n]


@each_runner
def test_a_leaf_by_hand(run):
    # G = 6, H = 2, λ = 1: w = −2; × learning rate ½: −1
    forest = Forest(3, 1)
    forest.scales[:] = 4.0
    sums = np.full((forest.n_nodes, 1, 2), [24, 8], np.int64)
    weights, leaves, covers = weigh(run, forest, sums, learning_rate=0.5)
    assert weights.tolist() == [[-2]] * 4 and leaves.tolist() == [[-1]] * 4 and covers.tolist() == [2] * 4
    assert weigh(run, forest, sums, alpha=3.0)[0][0, 0] == -1
    assert weigh(run, forest, sums, max_delta_step=0.25)[0][0, 0] == -0.25
    forest.nodes["lower"] = -1.5
    assert weigh(run, forest, sums)[0][0, 0] == -1.5


@settings(max_examples=15)
@given(forests(40), st.fixed_dictionaries({
    "reg_lambda": st.sampled_from([0.0, 1.0, 0.7]), "alpha": st.sampled_from([0.0, 0.4]),
    "max_delta_step": st.sampled_from([0.0, 0.1]), "learning_rate": st.sampled_from([1.0, 0.3]),
}))  # fmt: skip
@each_runner
def test_weights_equal_the_cpu(run, forest, penalties):
    sums = forest.sums(1)
    forest.nodes["lower"][::3], forest.nodes["upper"][1::3] = -0.05, 0.02
    for actual, expected in zip(weigh(run, forest, sums, **penalties), forest.weigh(sums, **penalties)):
        np.testing.assert_array_equal(actual, expected)


# ---- margins


@settings(max_examples=10)
@given(forests(6), st.booleans())
@each_runner
def test_margins_equal_the_cpu(run, forest, is_pruned):
    rng, n_rows = np.random.default_rng(forest.n_nodes), forest.grad.shape[1]
    if is_pruned:
        forest.nodes["leaf"] = rng.integers(0, forest.n_nodes, forest.n_nodes)
    leaves = rng.normal(size=(forest.n_nodes, forest.n_outputs)).astype(np.float32)
    expected = rng.normal(size=(2, n_rows)).astype(np.float32)
    margin = in_all_rows(expected)
    others = margin[:, :FIRST_ROW].copy()
    kernel.update_margin_cpu(
        forest.chunks, forest.nodes, forest.segments, forest.rows, leaves, forest.first_output, expected, 1
    )
    over_leaves(run, forest, kernel.update_margin_kernel, leaves, forest.first_output, margin)
    np.testing.assert_array_equal(margin[:, FIRST_ROW:], expected)
    np.testing.assert_array_equal(margin[:, :FIRST_ROW], others)


# ---- the trees as prediction reads them


@settings(max_examples=15)
@given(st.integers(0, 2**32), st.integers(0, 60), st.integers(1, 3), st.sampled_from([0.0, 3.0]))
@each_runner
def test_flat_trees_equal_the_cpus(run, seed, n_splits, n_trees, gamma):
    rng, nodes = np.random.default_rng(seed), random_trees(seed, n_splits, n_trees)
    for field, n in {"feature": 200, "bin": 200, "kind": 2, "default_left": 2}.items():
        nodes[field] = rng.integers(0, n, len(nodes))
    sums, scales = np.ones((len(nodes), 1, 2), np.int64), np.ones((n_trees, 2))
    node_kernels.prune(len(nodes), nodes, sums, scales, np.arange(n_trees, dtype=np.int32), gamma, 0.0)
    flat = np.zeros(len(nodes) + 1, FLAT_NODE)
    flat["left"][-1] = 77
    cuts = Cuts(rng.normal(size=200 * 200).astype(np.float32), np.arange(0, 201 * 200, 200, dtype=np.int32), None, 256)
    arrays, expected = (nodes, cuts.thresholds, cuts.offsets, 3), np.empty(len(nodes), FLAT_NODE)
    run(kernel.flatten_trees_kernel, progress_of(n_nodes=len(nodes)), *arrays, flat, threads=len(nodes))
    kernel.flatten_trees_cpu(*arrays, expected)
    np.testing.assert_array_equal(flat[:-1], expected)
    assert flat["left"][-1] == 77
