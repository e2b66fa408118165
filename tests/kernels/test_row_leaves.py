"""kernels/row_leaves.py on the CPU: row by row the sums and margins are those of the lists (leaves.py)."""

import numpy as np
import pytest
from test_leaves import Forest

from gpuboost.kernels import row_leaves as kernel
from gpuboost.kernels.leaves import update_margin_cpu


def sum_found(forest, n_threads, n_limbs=1):
    """(sums, found)."""
    n_trees, n_rows = len(forest.first_output), forest.grad.shape[1]
    sums = np.zeros((forest.n_nodes, forest.n_outputs, 2), np.int64)
    found = np.full((n_trees, n_limbs, n_rows), -7, np.int32)
    kernel.sum_found_cpu(
        forest.nodes, forest.segments, forest.rows, forest.grad, forest.hess, forest.scales, forest.first_output,
        found, sums, n_threads,
    )  # fmt: skip
    return sums, found


@pytest.mark.parametrize("n_threads", [1, 3])
@pytest.mark.parametrize("vector", [False, True])
@pytest.mark.parametrize("n_rows, n_leaves", [(1, 3), (100, 7), (kernel.BLOCK, 1), (2 * kernel.CHUNK + 5, 2)])
def test_sums_are_those_of_the_lists(n_rows, n_leaves, vector, n_threads):
    forest = Forest(n_rows, n_leaves, vector=vector)
    sums, found = sum_found(forest, n_threads)
    np.testing.assert_array_equal(sums, forest.sums(1))
    for node, rows in forest.members.items():
        assert (found.view(np.uint16)[forest.nodes["tree"][node], 0, rows] == node).all()


def test_terms_of_fifty_bits_are_exact():
    """The largest there may be: FEWEST_ROWS of them sum to 2^62."""
    forest = Forest(kernel.FEWEST_ROWS, 3)
    forest.grad[:, ::2], forest.grad[:, 1::2], forest.hess[:] = 1.0, -1.0, np.float32(1 - 2**-24)
    forest.scales[:] = 2.0**50
    np.testing.assert_array_equal(sum_found(forest, 2)[0], forest.sums(1))


@pytest.mark.parametrize("n_threads", [1, 3])
@pytest.mark.parametrize("vector", [False, True])
@pytest.mark.parametrize("n_limbs", [1, 2])
def test_margins_get_the_values_of_their_leaves(vector, n_threads, n_limbs):
    """Also where a leaf was pruned into the one above it."""
    forest, rng = Forest(kernel.CHUNK + 9, 4, vector=vector), np.random.default_rng(1)
    forest.nodes["leaf"][2] = 1
    leaves = rng.normal(size=(forest.n_nodes, forest.n_outputs)).astype(np.float32)
    margin = rng.normal(size=forest.grad.shape).astype(np.float32)
    expected = margin.copy()
    update_margin_cpu(forest.chunks, forest.nodes, forest.segments, forest.rows, leaves, forest.first_output, expected, 1)
    kernel.add_found_cpu(forest.nodes, leaves, forest.first_output, sum_found(forest, 1, n_limbs)[1], margin, n_threads)
    np.testing.assert_array_equal(margin, expected)


def test_where_a_threads_rows_begin_and_end_in_a_list():
    rng = np.random.default_rng(3)
    for _ in range(300):
        rows = np.flatnonzero(rng.random(rng.integers(1, 60)) < rng.random()).astype(np.int32)
        begin = rng.integers(0, len(rows) + 1)
        end = rng.integers(begin, len(rows) + 1)
        for row in range(62):
            assert kernel.first_place.py_func(rows, begin, end, row) == begin + np.searchsorted(rows[begin:end], row)
