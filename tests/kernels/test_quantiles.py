"""kernels/quantiles.py: sorted columns give the thresholds between the bins that kernels/cuts.py ends."""

from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from gpuboost.kernels.cuts import end_bins_cpu
from gpuboost.kernels.quantiles import cut_columns_cpu, list_keys_cpu
from gpuboost.kernels.scalar import float_key

NO_WEIGHTS = np.zeros(0, np.int64)
UNTOUCHED = 0xFFFFFFFF


class Cut(NamedTuple):
    """By column. thresholds : float32 arrays. extremes : keys."""

    thresholds: list
    has_missing: np.ndarray
    n_infinite: np.ndarray
    extremes: np.ndarray


def cut(X, max_bin=256, *, weights=NO_WEIGHTS, missing=np.nan, batch_rows=None, n_threads=1):
    """Adapter of lists and arrays."""
    n_rows, n = X.shape
    dtype, number = (np.uint64, np.int64) if len(weights) else (np.uint32, np.int32)
    keys, spare = np.zeros((n, n_rows), dtype), np.zeros((n_threads, n_rows), dtype)
    for first in range(0, n_rows, batch_rows or n_rows or 1):
        rows = slice(first, first + (batch_rows or n_rows))
        list_keys_cpu(X[rows], np.float32(missing), weights[rows], 0, first, keys, n_threads)
    n_cuts, has_missing, n_infinite = np.full(n, -1, np.int64), np.zeros(n, bool), np.zeros(n, np.int64)
    n_absent, extremes = int((weights == 0).sum()), np.full((n, 2), UNTOUCHED, np.uint32)
    cut_columns_cpu(
        keys, weights, n_absent, max_bin, spare, spare.view(number), n_cuts, has_missing, n_infinite, extremes, n_threads
    )
    return Cut([bits[:m].astype(np.uint32).view(np.float32) for bits, m in zip(keys, n_cuts)], has_missing, n_infinite, extremes)


def test_a_hand_sized_table():
    X = np.array([[3, 5], [1, np.nan], [np.nan, 5], [2, np.nan], [1, np.nan]], np.float32)
    result = cut(X)
    assert [t.tolist() for t in result.thresholds] == [[1.5, 2.5], []]
    assert result.has_missing.tolist() == [True, True] and result.n_infinite.tolist() == [0, 0]
    assert result.extremes.tolist() == [[float_key(x) for x in row] for row in np.float32([[1, 3], [5, 5]])]


def test_a_row_of_weight_zero_does_not_exist():
    X = np.array([[1], [np.nan], [np.inf], [2], [9]], np.float32)
    result = cut(X, weights=np.array([1, 0, 0, 5, 0]))
    assert result.thresholds[0].tolist() == [1.5] and not result.has_missing[0] and result.n_infinite[0] == 0
    assert result.extremes.tolist() == [[float_key(x) for x in np.float32([1, 2])]]


@pytest.mark.parametrize("weights", [NO_WEIGHTS, np.array([3, 1, 1, 1, 1, 1, 1])])
def test_infinite_values_are_counted_not_weighed(weights):
    largest = np.finfo(np.float32).max
    X = np.array([np.inf, -np.inf, largest, -largest, 7, np.nextafter(largest, np.float32(0)), 0], np.float32)[:, None]
    assert cut(X, weights=weights).n_infinite == 4
    assert cut(X, weights=weights, missing=np.inf).n_infinite == 3


@pytest.mark.parametrize("n_rows", [0, 1])
def test_columns_of_no_or_one_row(n_rows):
    result = cut(np.full((n_rows, 2), 4, np.float32))
    assert [len(t) for t in result.thresholds] == [0, 0] and not result.has_missing.any()
    assert (result.extremes == (float_key(np.float32(4)) if n_rows else UNTOUCHED)).all()


FEW = st.sampled_from([0.0, -0.0, 1.0, 1.0000001, 1e-45, -3.5, np.nan, 7.0])
VALUES = st.one_of(FEW, st.floats(width=32, allow_infinity=False))


@settings(max_examples=80)
@given(
    hnp.arrays(np.float32, st.tuples(st.integers(1, 300), st.integers(1, 3)), elements=VALUES), st.integers(2, 20),
    st.integers(0, 2**32), st.booleans(), st.sampled_from([np.float32, np.float64]), st.sampled_from("CF"),
    st.sampled_from([None, 1, 130]), st.sampled_from([1, 3]),
)  # fmt: skip
def test_thresholds_lie_between_the_values_at_which_bins_end(X, max_bin, seed, is_weighted, dtype, order, batch_rows, n_threads):
    """Distinct values and weights by NumPy, ends by kernels/cuts.py, which has its own tests."""
    rng = np.random.default_rng(seed)
    weights = rng.integers(0, 5, len(X)) if is_weighted else NO_WEIGHTS
    each = weights if is_weighted else np.ones(len(X), np.int64)
    table = np.array(X, dtype, order=order)
    result = cut(table, max_bin, weights=weights, missing=7.0, batch_rows=batch_rows, n_threads=n_threads)
    for x, own, lacks, extremes in zip(X.T, result.thresholds, result.has_missing, result.extremes):
        is_missing = np.isnan(x) | (x == 7)
        assert lacks == each[is_missing].any()
        values, inverse = np.unique(x[~is_missing & (each > 0)] + np.float32(0), return_inverse=True)
        value_weights = np.bincount(inverse, each[~is_missing & (each > 0)], len(values)).astype(np.int64)
        assert extremes.tolist() == ([float_key(values[0]), float_key(values[-1])] if len(values) else [UNTOUCHED] * 2)
        ends = np.zeros(len(values), bool)
        end_bins_cpu(np.array([0, len(values)]), value_weights, np.array([max_bin]), ends, 1)
        below, above = values[:-1][ends[:-1]], values[1:][ends[:-1]]
        middle = ((below.astype(np.float64) + above) / 2).astype(np.float32)
        np.testing.assert_array_equal(own, np.where(middle > below, middle, above))


@pytest.mark.parametrize("max_bin, n_cuts", [(255, 254), (256, 254), (257, 256)])
def test_a_missing_code_beside_256_bins_fits_in_a_byte(max_bin, n_cuts):
    x = np.append(np.arange(2000), np.nan).astype(np.float32)[:, None]
    assert len(cut(x, max_bin).thresholds[0]) == n_cuts
    assert len(cut(x[:-1], max_bin).thresholds[0]) == max_bin - 1


@pytest.mark.parametrize("n_threads", [1, 3])
def test_every_digit_of_a_key_is_sorted_by(n_threads):
    """Columns that differ in one digit only, in two, and in all; many more rows than a block."""
    rng = np.random.default_rng(11)
    bits = np.stack([rng.integers(0, 2048, 5000) << shift for shift in (0, 11, 20)], axis=1) + (64 << 23)
    bits = np.column_stack([bits, bits[:, 0] + bits[:, 1], bits.sum(axis=1) - (128 << 23)])
    X = np.abs(bits).astype(np.uint32).view(np.float32)
    X[~np.isfinite(X)] = 1
    for x, own in zip(X.T, cut(X, 65535, n_threads=n_threads).thresholds):
        values = np.unique(x)
        assert len(own) == len(values) - 1
        assert ((own > values[:-1]) & (own <= values[1:])).all()
