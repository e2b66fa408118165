"""kernels/linear.py: the steps of coordinate descent on columns that a reader can follow."""

import numpy as np
import pytest

from gpuboost.kernels.linear import add_columns_cpu, curve_cpu, shift_gradients_cpu, sum_columns_cpu


@pytest.mark.parametrize("n_threads", [1, 2])
def test_sums_curvature_and_shift_are_those_of_their_formulas(n_threads):
    """Columns [2, ·, 1] and [·, 3, 1] of three rows: integers, exact in any scale."""
    columns = np.array([0, 2, 4]), np.array([0, 2, 1, 2], np.int32), np.array([2, 1, 3, 1], np.float32)
    grad, hess, both = np.array([1, 2, -4], np.float32), np.array([1, 1, 2], np.float32), np.arange(2)
    sums, steps = np.zeros(4, np.int64), np.array([1.0, -2.0])
    sum_columns_cpu(*columns, both, grad, hess, np.full((2, 2), 4.0), sums, n_threads)
    assert sums.tolist() == [4 * (2 - 4), 4 * (4 + 2), 4 * (6 - 4), 4 * (9 + 2)]
    along, curvature = np.zeros(3), np.zeros(1, np.int64)
    curve_cpu(*columns, both, steps, hess, 8.0, along, curvature, n_threads)
    assert along.tolist() == [2, -6, -1] and curvature.tolist() == [8 * (4 + 36 + 2)]
    largest = np.zeros(n_threads, np.float32)
    shift_gradients_cpu(*columns, both, steps, hess, along, grad, largest, n_threads)
    assert grad.tolist() == [3, -4, -6] and largest.max() == 6 and not along.any()
    margin = np.array([1, 2, 3], np.float32)
    add_columns_cpu(*columns, both, np.array([10, 100], np.float32), margin, n_threads)
    assert margin.tolist() == [1 + 20, 2 + 300, 3 + 10 + 100]


def test_the_largest_gradient_is_nan_where_one_is():
    columns = np.array([0, 2]), np.arange(2, dtype=np.int32), np.ones(2, np.float32)
    for grad in ([np.nan, 7.0], [7.0, np.nan]):
        largest = np.zeros(1, np.float32)
        one = np.ones(2, np.float32)
        shift_gradients_cpu(*columns, np.zeros(1, np.int64), np.ones(1), one, np.zeros(0), np.array(grad, np.float32), largest, 1)
        assert np.isnan(largest[0])
