"""kernels/short_sorts.py: any number of keys is sorted as NumPy sorts them stably."""

import numpy as np
import pytest
from numba import njit

from gpuboost.kernels import short_sorts
from gpuboost.kernels.short_sorts import MOST_KEYS, ROOM

KEYS = [-np.inf, -2.5, -1e-310, -0.0, 0.0, 1e-310, 1.0, np.nextafter(1.0, 2.0), 1e300, np.inf]


@njit
def sort_order(n, order, keys):
    short_sorts.sort_order(n, order, keys)


@pytest.mark.parametrize("n", [0, 1, 2, 3, 8, 31, MOST_KEYS, MOST_KEYS + 1, 100])
def test_the_earlier_of_equals_comes_first(n):
    rng = np.random.default_rng(n)
    for drawn in (rng.choice(KEYS, n), rng.normal(size=n), np.zeros(n), -np.sort(-rng.normal(size=n))):
        order, keys = np.full(max(n, ROOM), -1, np.int32), np.full(max(n, ROOM), -7.0)
        order[:n], keys[:n] = 100 + np.arange(n), drawn
        sort_order(n, order, keys)
        np.testing.assert_array_equal(order[:n] - 100, np.argsort(drawn, kind="stable"))
