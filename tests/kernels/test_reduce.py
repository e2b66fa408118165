"""kernels/reduce.py: maps over rows, and integer sums of row terms."""

import math

import numpy as np
import pytest
from numba import float32, float64

from gpuboost.kernels.jit import scalar
from gpuboost.kernels.reduce import NON_FINITE_BITS, elementwise_map, elementwise_terms, map_rows, reduce_rows

NO_WEIGHT = np.zeros(0, np.float32)


@scalar
def difference(prediction, label, parameters):
    """(prediction − label)·p₀ of one value."""
    return (float64(prediction) - float64(label)) * float64(parameters[0])


@scalar
def reversed_row(margin, i, out):
    """Outputs in reverse order, doubled."""
    n = margin.shape[0]
    for k in range(n):
        out[k, i] = float32(2.0) * margin[n - 1 - k, i]


@scalar
def doubled(margin):
    return float32(2.0) * margin


def reduce(prediction, label, scale, weight=NO_WEIGHT, n_threads=1, row_term=None):
    """Adapter: int64 per thread."""
    kernel = reduce_rows(row_term or difference_row)
    out = np.full(n_threads, -1, np.int64)
    args = (np.atleast_2d(np.asarray(x, np.float32)) for x in (prediction, label))
    kernel(*args, np.asarray(weight, np.float32), np.array([3.0], np.float32), float(scale), out, n_threads)
    return out


difference_row, doubled_row = elementwise_terms(difference), elementwise_map(doubled)


@scalar
def row_by_row(prediction, label, i, parameters):
    """What elementwise_terms makes of a formula, without saying that it did."""
    return difference_row(prediction, label, i, parameters)


def test_a_hand_sized_sum():
    # terms 3·(1, −2, 0.5) = 3, −6, 1.5; weights 1, 2, 4: 3, −12, 6; scale 4: 12 − 48 + 24
    assert reduce([1, 2, 3], [0, 4, 2.5], 4, [1, 2, 4]).tolist() == [-12]
    assert reduce([1, 2, 3], [0, 4, 2.5], 4).tolist() == [12 - 24 + 6]


def test_terms_are_rounded_to_the_nearest_integer():
    # 3·0.5 = 1.5 → 2, 3·(−0.5) = −1.5 → −1, 3·0.4 → 1: ⌊x + ½⌋
    assert reduce([0.5], [0], 1)[0] == 2 and reduce([-0.5], [0], 1)[0] == -1 and reduce([0.4], [0], 1)[0] == 1


def test_the_outputs_of_a_row_are_added():
    assert reduce([[1, 2], [10, 20]], [[1, 1]], 1)[0] == 3 * (0 + 1 + 9 + 19)
    assert reduce([[1, 2], [10, 20]], [[1, 1], [10, 10]], 1)[0] == 3 * (0 + 1 + 0 + 10)


def test_scale_zero_finds_the_largest_magnitude():
    bits = reduce([1, -5, 2], [0, 0, 0], 0, [1, 2, 7])
    assert bits.view(np.float64)[0] == 42
    assert reduce([1, -5, 2], [0, 0, 0], 0).view(np.float64)[0] == 15


@pytest.mark.parametrize("bad", [np.nan, -np.nan, np.inf, -np.inf])
def test_a_term_that_is_not_finite_shows_in_the_maximum(bad):
    assert reduce([1, bad, 2], [0, 0, 0], 0)[0] >= NON_FINITE_BITS


def test_no_rows_sum_to_zero():
    assert reduce(np.empty((1, 0)), np.empty((1, 0)), 8).tolist() == [0]
    assert reduce(np.empty((1, 0)), np.empty((1, 0)), 0).tolist() == [0]


def test_order_and_threads_do_not_change_the_sum():
    rng = np.random.default_rng(18)
    prediction, label, weight = rng.normal(size=(2, 20000)), rng.normal(size=(2, 20000)), rng.random(20000)
    scale = 2.0**40
    expected = reduce(prediction, label, scale, weight)[0]
    assert reduce(prediction, label, scale, weight, n_threads=3).sum() == expected
    order = rng.permutation(20000)
    assert reduce(prediction[:, order], label[:, order], scale, weight[order])[0] == expected
    difference = prediction.astype(np.float32).astype(np.float64) - label.astype(np.float32)
    exact = math.fsum((difference * 3 * weight.astype(np.float32)).ravel())
    assert expected / scale == pytest.approx(exact, abs=20000 / scale)  # half a unit a row, and float64 rounding of each term


@pytest.mark.parametrize("n_threads", [1, 3])
def test_map_rows_maps_every_row(n_threads):
    margin = np.random.default_rng(19).normal(size=(3, 20000)).astype(np.float32)
    out = np.empty_like(margin)
    map_rows(reversed_row)(margin, out, n_threads)
    np.testing.assert_array_equal(out, 2 * margin[::-1])


@pytest.mark.parametrize("scale", [0.0, 2.0**40])
def test_values_in_a_loop_of_their_own_sum_as_row_by_row(scale):
    """Of several outputs, with labels missing and a last chunk that is not full."""
    rng = np.random.default_rng(20)
    prediction, label, weight = rng.normal(size=(3, 9001)), rng.normal(size=(3, 9001)), rng.random(9001)
    label[rng.random(label.shape) < 0.3] = np.nan
    for own_weight in (weight, NO_WEIGHT):
        expected = reduce(prediction, label, scale, own_weight, row_term=row_by_row)
        assert reduce(prediction, label, scale, own_weight).tolist() == expected.tolist()
    out, margin = np.empty((3, 9001), np.float32), prediction.astype(np.float32)
    map_rows(doubled_row)(margin, out, 2)
    np.testing.assert_array_equal(out, 2 * margin)
