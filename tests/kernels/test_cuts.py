"""kernels/cuts.py: after which values of a column its bins end."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuboost.kernels.cuts import end_bins_cpu


def ends_of(columns, n_bins):
    """For each column of weights, the numbers of the values after which a bin ends."""
    begin = np.cumsum([0, *map(len, columns)]).astype(np.int64)
    weights, ends = np.concatenate(columns).astype(np.int64), np.ones(begin[-1], bool)
    end_bins_cpu(begin, weights, np.asarray(n_bins, np.int64), ends, 2)
    return [np.flatnonzero(ends[b:e]).tolist() for b, e in zip(begin[:-1], begin[1:])]


@pytest.mark.parametrize("weights, n_bins, expected", [
    ([5, 1, 1], 3, [0, 1]),  # few enough: one bin each
    ([7], 2, []),
    ([1] * 8, 4, [1, 3, 5]),  # equal weights, equal bins
    ([1, 1, 8, 1, 1], 4, [1, 2]),  # 8 of 12 is heavy in four bins: it stands alone, and two bins remain for either side
    ([1, 1, 1, 3, 1, 1, 1], 3, [2, 3]),  # targets 3, 6 and 9 lie in values 2, 3 and 6
])  # fmt: skip
def test_columns_by_hand(weights, n_bins, expected):
    assert ends_of([weights], [n_bins]) == [expected]


@settings(max_examples=200)
@given(st.lists(st.lists(st.sampled_from([1, 2, 50, 10**6, 2**40]), min_size=1, max_size=60), min_size=1, max_size=4), st.data())
def test_no_bin_of_several_values_is_too_heavy(columns, data):
    n_bins = [data.draw(st.integers(2, 40)) for _ in columns]
    for weights, n, ends in zip(columns, n_bins, ends_of(columns, n_bins)):
        bounds = [0, *(end + 1 for end in ends), len(weights)]
        bins = [weights[a:b] for a, b in zip(bounds, bounds[1:])]
        assert len(bins) <= n
        if len(weights) <= n:
            assert all(len(b) == 1 for b in bins)
        for values in bins:
            assert len(values) == 1 or sum(values) * n < 2 * sum(weights), "less than 2/B of the weight"


def test_columns_do_not_touch_each_other():
    rng = np.random.default_rng(0)
    columns = [rng.integers(1, 100, n) for n in (5, 300, 1, 40)]
    n_bins = [16, 16, 2, 3]
    assert ends_of(columns, n_bins) == [ends_of([c], [n])[0] for c, n in zip(columns, n_bins)]
