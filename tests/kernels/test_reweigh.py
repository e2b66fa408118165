"""kernels/reweigh.py: trees weighed anew in margins, exactly."""

import math

import numpy as np
import pytest

from gpuboost.kernels.reweigh import reweigh_trees_cpu, write_margins_cpu


def reweigh(leaves, outputs, before, after, sums, n_threads=1):
    arrays = np.float32(leaves), np.array(outputs, np.int32), np.float64(before), np.float64(after), sums
    reweigh_trees_cpu(*arrays, n_threads)
    return sums


def test_a_hand_sized_change():
    # leaf · weight · scale: 0.5·8 = 4, −0.75·8 = −6; a third of the second tree: 3·8/3 → 8, then 3·4 = 12
    sums = reweigh([[0.5, -0.75], [3, 0]], [0, 1], [0, 0], [8, 8 / 3], np.zeros((2, 2), np.int64))
    assert sums.tolist() == [[4, -6], [8, 0]]
    assert reweigh([[3, 0]], [1], [8 / 3], [4], sums).tolist() == [[4, -6], [12, 0]]
    margin = np.empty((2, 2), np.float32)
    write_margins_cpu(np.float32([[1, 1], [0, 2]]), sums, 1 / 8, margin, 1)
    assert margin.tolist() == [[1.5, 0.25], [1.5, 2]]


def test_leaves_are_rounded_to_the_nearest_unit():
    sums = reweigh([[0.5, -0.5, 0.4, 1.6]], [0], [0], [1], np.zeros((1, 4), np.int64))
    assert sums.tolist() == [[1, 0, 0, 2]]  # ⌊x + ½⌋


@pytest.mark.parametrize("n_threads", [1, 3])
def test_trees_that_came_and_went_in_any_order_leave_no_trace(n_threads):
    """Sums are those of the trees and weights in them, whatever was in them before."""
    rng, n_rows, scale = np.random.default_rng(4), 20_000, 2.0**40
    leaves = rng.normal(size=(6, n_rows)).astype(np.float32)
    outputs, weights = [0, 1, 0, 1, 0, 1], rng.random((2, 6)).astype(np.float32).astype(np.float64) * scale
    sums = reweigh(leaves, outputs, np.zeros(6), weights[0], np.zeros((2, n_rows), np.int64), n_threads)
    for tree in rng.permutation(6):
        reweigh(leaves[[tree]], [outputs[tree]], weights[0, [tree]], [0], sums, n_threads)
        reweigh(leaves[[tree]], [outputs[tree]], [0], weights[1, [tree]], sums, n_threads)
    expected = reweigh(leaves[::-1], outputs[::-1], np.zeros(6), weights[1, ::-1], np.zeros((2, n_rows), np.int64))
    np.testing.assert_array_equal(sums, expected)
    exact = math.fsum(leaves[tree, 7].astype(float) * weights[1, tree] for tree in (0, 2, 4))
    assert abs(sums[0, 7] - exact) <= 1.5  # half a unit a tree


def test_no_rows():
    assert reweigh(np.empty((2, 0)), [0, 0], [0, 0], [1, 1], np.zeros((1, 0), np.int64)).shape == (1, 0)
