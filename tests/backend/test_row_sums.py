"""backend/row_sums.py: sums over rows that are the same for any order, threads and workers."""

import math

import numpy as np
import pytest
from numba import float64

from gpuboost.backend.cpu import CpuBackend
from gpuboost.backend.row_sums import RowSums
from gpuboost.communicator import SingleProcess, current_communicator, run_threads
from gpuboost.kernels.jit import scalar

NO_WEIGHT = np.zeros(0, np.float32)


@scalar
def product_term(prediction, label, i, parameters):
    return float64(prediction[0, i]) * float64(label[0, i]) * float64(parameters[0])


def row_sums(prediction, label, weight=NO_WEIGHT, n_threads=1, comm=None):
    prediction, label = (np.atleast_2d(np.asarray(x, np.float32)) for x in (prediction, label))
    return RowSums(CpuBackend(n_threads), comm or SingleProcess(), prediction, label, np.asarray(weight, np.float32))


def total(*args, **kwargs):
    return row_sums(*args, **kwargs).sum_of(product_term, 1.0)


def test_a_hand_sized_sum():
    sums = row_sums([1, 2, 3], [4, 5, -6], [1, 0.5, 2])
    assert sums.sum_of(product_term, 10.0) == 10 * (4 + 5 - 36)
    assert sums.total_weight == 3.5


def test_without_weights_every_row_weighs_one():
    assert total([1, 2, 3], [4, 5, -6]) == -4 and row_sums([1, 2, 3], [1, 1, 1]).total_weight == 3


def test_no_rows_sum_to_zero():
    assert total([], []) == 0 and row_sums([], []).total_weight == 0


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_term_that_is_not_finite_gives_nan(bad):
    assert math.isnan(total([1, bad], [1, 1]))


@pytest.mark.parametrize("size", [1e-37, 1, 1e37])
def test_sums_are_exact_to_the_last_digits_of_float64(size):
    rng = np.random.default_rng(20)
    prediction, label = (rng.normal(size=5000).astype(np.float32) for _ in range(2))
    weight = (rng.random(5000) * size).astype(np.float32)
    exact = math.fsum(prediction.astype(np.float64) * label * weight)
    # rounded terms: half a unit of 2⁻⁶² · 2¹³ · max each, and half a float64 ulp of the term
    largest = np.abs(prediction.astype(np.float64) * label * weight).max()
    assert total(prediction, label, weight) == pytest.approx(exact, abs=5000 * largest * 2.0**-49)


def test_order_threads_and_workers_give_the_same_bits():
    rng = np.random.default_rng(21)
    prediction, label, weight = (rng.normal(size=5000), rng.normal(size=5000), np.exp(rng.normal(size=5000) * 5))
    weight[::7] = 0
    expected = total(prediction, label, weight)
    order = rng.permutation(5000)
    assert total(prediction[order], label[order], weight[order]) == expected
    assert total(prediction, label, weight, n_threads=3) == expected
    keep = weight.astype(np.float32) > 0
    assert total(prediction[keep], label[keep], weight[keep]) == expected, "rows of weight 0 count"
    bounds = [0, 10, 10, 4000, 5000]

    def work(rank):
        own = slice(bounds[rank], bounds[rank + 1])
        return total(prediction[own], label[own], weight[own], comm=current_communicator())

    assert run_threads(4, work) == [expected] * 4
