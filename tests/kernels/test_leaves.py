"""kernels/leaves.py: exact sums over a leaf's rows, its weight, and the margins it moves."""

import math
from fractions import Fraction

import numpy as np
import pytest

from gpuboost.kernels import leaves as kernel
from gpuboost.kernels.structs import NODE


class Forest:
    """Two trees over the same rows with one output each (or one tree with two outputs), split at random into leaves."""

    def __init__(self, n_rows, n_leaves, seed=0, vector=False):
        rng = np.random.default_rng(seed)
        n_trees, self.n_outputs = (1, 2) if vector else (2, 1)
        self.first_output = np.array([0] if vector else [0, 1], np.int32)
        self.n_nodes = n_trees * (n_leaves + 1)
        self.nodes = np.zeros(self.n_nodes, NODE)
        self.nodes["left"], self.nodes["lower"], self.nodes["upper"] = -1, -np.inf, np.inf
        self.nodes["leaf"] = np.arange(self.n_nodes)
        self.segments = np.zeros((self.n_nodes, 3), np.int64)
        self.rows = np.full((2, n_trees * n_rows), -1, np.int32)
        self.members = {}
        for tree in range(n_trees):
            root = tree * (n_leaves + 1)
            self.nodes["tree"][root : root + n_leaves + 1] = tree
            self.nodes["left"][root] = root + 1  # a split: its rows are in the leaves
            owner, begin = rng.integers(0, n_leaves, n_rows), tree * n_rows
            for leaf in range(n_leaves):
                mine, side = np.flatnonzero(owner == leaf), leaf % 2
                self.members[root + 1 + leaf] = mine
                self.segments[root + 1 + leaf] = begin, begin + len(mine), side
                self.rows[side, begin : begin + len(mine)] = mine
                begin += len(mine)
        self.grad = (rng.normal(size=(2, n_rows)) * np.exp(rng.normal(size=n_rows) * 3)).astype(np.float32)
        self.hess = rng.random((2, n_rows)).astype(np.float32)
        self.scales = np.array([[2.0**30, 2.0**40], [2.0**28, 2.0**38]])
        self.chunks = kernel.list_leaf_chunks(self.n_nodes, self.nodes, self.segments)

    def outputs(self, node):
        return [self.first_output[self.nodes["tree"][node]] + output for output in range(self.n_outputs)]

    def sums(self, n_threads):
        sums = np.zeros((self.n_nodes, self.n_outputs, 2), np.int64)
        kernel.sum_leaves_cpu(
            self.chunks, self.nodes, self.segments, self.rows, self.grad, self.hess, self.scales, self.first_output, sums,
            n_threads,
        )  # fmt: skip
        return sums

    def weigh(self, sums, *, reg_lambda=1.0, alpha=0.0, max_delta_step=0.0, learning_rate=0.3):
        weights, leaves = (np.empty((self.n_nodes, self.n_outputs), np.float32) for _ in range(2))
        covers = np.empty(self.n_nodes)
        kernel.leaf_weights(
            self.n_nodes, self.nodes, sums, sums, self.scales, self.first_output, reg_lambda, alpha, max_delta_step,
            learning_rate, weights, leaves, covers,
        )  # fmt: skip
        return weights, leaves, covers


def rounded(x, scale):
    """⌊x·scale + ½⌋ as float64 computes it."""
    return np.floor(x.astype(np.float64) * scale + 0.5).astype(np.int64)


@pytest.mark.parametrize("n_threads", [1, 3])
@pytest.mark.parametrize("vector", [False, True])
@pytest.mark.parametrize("n_rows, n_leaves", [(0, 1), (1, 3), (100, 7), (2 * kernel.CHUNK + 5, 2)])
def test_leaf_sums_equal_numpy(n_rows, n_leaves, vector, n_threads):
    forest = Forest(n_rows, n_leaves, vector=vector)
    expected = np.zeros((forest.n_nodes, forest.n_outputs, 2), np.int64)
    for node, rows in forest.members.items():
        for own, output in enumerate(forest.outputs(node)):
            for k, values in enumerate((forest.grad, forest.hess)):
                expected[node, own, k] = rounded(values[output, rows], forest.scales[output, k]).sum()
    np.testing.assert_array_equal(forest.sums(n_threads), expected)


def test_chunks_cover_the_rows_of_unsplit_nodes_once():
    forest = Forest(3 * kernel.CHUNK, 2)
    covered = {node: [] for node in forest.members}
    for node, begin, end in forest.chunks.tolist():
        assert 0 < end - begin <= kernel.CHUNK
        covered[node] += range(begin, end)
    assert covered == {node: list(range(*forest.segments[node, :2])) for node in forest.members}


def test_a_leaf_by_hand():
    # G = 6, H = 2, λ = 1: w = −2; × learning rate ½: −1
    forest = Forest(3, 1)
    forest.scales[:] = 4.0
    sums = np.full((forest.n_nodes, 1, 2), [24, 8], np.int64)
    weights, leaves, covers = forest.weigh(sums, learning_rate=0.5)
    assert weights.tolist() == [[-2]] * 4 and leaves.tolist() == [[-1]] * 4 and covers.tolist() == [2] * 4
    weights, leaves, _ = forest.weigh(sums, learning_rate=0.5, alpha=3.0)
    assert weights[0, 0] == -1 and leaves[0, 0] == -0.5
    assert forest.weigh(sums, max_delta_step=0.25)[0][0, 0] == -0.25
    forest.nodes["lower"] = -1.5
    assert forest.weigh(sums)[0][0, 0] == -1.5


def test_weights_are_the_rounded_exact_weights():
    forest = Forest(1000, 5)
    sums = forest.sums(1)
    weights, leaves, covers = forest.weigh(sums, reg_lambda=0.7, learning_rate=0.1)
    for node in forest.members:
        grad, hess = (Fraction(int(sums[node, 0, k])) / Fraction(forest.scales[forest.outputs(node)[0], k]) for k in range(2))
        exact = float(-grad / (hess + Fraction(0.7)))
        assert weights[node, 0] == pytest.approx(exact, rel=2.0**-23)  # one rounding to float32, a few to float64
        assert leaves[node, 0] == pytest.approx(exact * 0.1, rel=2.0**-23)
        assert covers[node] == float(hess)


def test_a_leaf_without_hessian_weighs_nothing():
    forest = Forest(0, 1)
    weights, leaves, covers = forest.weigh(np.zeros((forest.n_nodes, 1, 2), np.int64), reg_lambda=0.0)
    assert not weights.any() and not leaves.any() and not covers.any()


@pytest.mark.parametrize("n_threads", [1, 3])
@pytest.mark.parametrize("vector", [False, True])
def test_margins_move_by_the_leaf_a_row_ends_in(vector, n_threads):
    forest = Forest(2 * kernel.CHUNK + 9, 4, vector=vector)
    rng = np.random.default_rng(23)
    forest.nodes["leaf"][[2, 3]] = 0, 1  # pruned: the rows of node 2 end in the root, those of 3 in node 1
    leaves = rng.normal(size=(forest.n_nodes, forest.n_outputs)).astype(np.float32)
    margin = rng.normal(size=forest.grad.shape).astype(np.float32)
    expected = margin.copy()
    for node, rows in forest.members.items():
        for own, output in enumerate(forest.outputs(node)):
            expected[output, rows] += leaves[forest.nodes["leaf"][node], own]
    kernel.update_margin_cpu(
        forest.chunks, forest.nodes, forest.segments, forest.rows, leaves, forest.first_output, margin, n_threads
    )
    np.testing.assert_array_equal(margin, expected)


def test_sums_are_those_of_the_whole_to_the_last_unit():
    """However the rows are cut into leaves, the leaves' sums add up to the same integers."""
    totals = []
    for n_leaves in (1, 3, 50):
        forest = Forest(500, n_leaves)
        forest.grad[:] = np.linspace(-1, 1, 500, dtype=np.float32)
        forest.hess[:] = 0.25
        totals.append(forest.sums(1)[: n_leaves + 1].sum(axis=0).tolist())
    assert totals[0] == totals[1] == totals[2]
    assert totals[0][0][1] / 2.0**40 == math.fsum([0.25] * 500)
