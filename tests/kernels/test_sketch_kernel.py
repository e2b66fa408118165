"""kernels/sketch.py: each pass counts the weights under a digit of the values' keys."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from gpuboost.backend.cpu import CpuBackend
from gpuboost.kernels.sketch import COUNTS0_WIDTH, DIGIT_BITS, DIGITS, MISSING, NON_FINITE

NO_WEIGHTS = np.zeros(0, np.int64)


def count(block, level, slots0=None, slots1=None, n_slots=0, *, missing=np.nan, weights=NO_WEIGHTS, features=None, n_threads=1):
    """Adapter: the counts of one pass over one batch."""
    features = np.arange(block.shape[1], dtype=np.int32) if features is None else features
    counts = np.zeros((len(features), COUNTS0_WIDTH) if level == 0 else (n_slots, DIGITS[level]), np.int64)
    CpuBackend(n_threads).coder.count_digits(block, missing, weights, features, level, slots0, slots1, counts)
    return counts


def digits_of(column):
    """The three digits of every value's key, by NumPy: int64 (rows, 3)."""
    bits = (np.asarray(column, np.float32) + np.float32(0)).view(np.uint32).astype(np.int64)
    key = np.where(bits >> 31, bits ^ 0xFFFFFFFF, bits ^ 0x80000000)
    shifts = np.cumsum((0, *DIGIT_BITS[:0:-1]))[::-1]
    return key[:, None] >> shifts & (np.array(DIGITS) - 1)


def test_the_first_pass_counts_first_digits_missing_and_infinite_values():
    block = np.array([[1.0], [1.0], [-2.0], [np.nan], [7.0], [np.inf]], np.float32)
    counts = count(block, 0, missing=7.0)[0]
    of = lambda v: digits_of([v])[0, 0]
    assert counts[of(1.0)] == 2 and counts[of(-2.0)] == 1 and counts[of(7.0)] == 0
    assert counts[MISSING] == 2 and counts[NON_FINITE] == 1
    assert of(-2.0) < of(1.0)


def test_weights_are_summed():
    block = np.array([[1.0], [1.0], [2.0], [np.nan]], np.float32)
    counts = count(block, 0, weights=np.array([5, 6, 0, 0], np.int64))[0]
    assert counts[digits_of([1.0])[0, 0]] == 11 and counts.sum() == 11


def test_an_infinite_value_in_a_row_of_weight_zero_does_not_exist():
    counts = count(np.array([[np.inf], [1.0]], np.float32), 0, weights=np.array([0, 1], np.int64))[0]
    assert counts[NON_FINITE] == 0


def test_the_largest_float_counts_as_infinite():
    largest = np.finfo(np.float32).max
    counts = count(np.array([[largest], [-largest], [np.nextafter(largest, np.float32(0))]], np.float32), 0)[0]
    assert counts[NON_FINITE] == 2


VALUES = st.one_of(st.sampled_from([0.0, -0.0, 1.0, 1.0000001, 1e-45, -3.5, np.nan, 7.0]), st.floats(width=32))


@settings(max_examples=40)
@given(
    hnp.arrays(np.float32, st.tuples(st.integers(1, 30), st.integers(1, 3)), elements=VALUES),
    st.booleans(), st.integers(0, 2**32), st.sampled_from([1, 3]), st.sampled_from([np.float32, np.float64]), st.booleans(),
)  # fmt: skip
def test_every_pass_counts_as_numpy_does(block, is_weighted, seed, n_threads, dtype, is_fortran):
    rng = np.random.default_rng(seed)
    n_rows, n_features = block.shape
    weights = rng.integers(1, 10, n_rows) if is_weighted else NO_WEIGHTS
    each = weights if is_weighted else np.ones(n_rows, np.int64)
    features = rng.permutation(n_features).astype(np.int32)
    data = np.array(block, dtype, order="F" if is_fortran else "C")
    run = lambda *args: count(data, *args, missing=7.0, weights=weights, features=features, n_threads=n_threads)

    n1 = n2 = 5 * n_features  # slot i collects what nobody wants of column i; it owns every n_features-th slot from there
    own = np.arange(n_features)[:, None]
    slots0 = (own + n_features * rng.integers(0, 5, (n_features, DIGITS[0]))).astype(np.int32)
    slots1 = (np.arange(n1)[:, None] % n_features + n_features * rng.integers(0, 5, (n1, DIGITS[1]))).astype(np.int32)
    slots1[:n_features] = own
    expected = [np.zeros(shape, np.int64) for shape in ((n_features, COUNTS0_WIDTH), (n1, DIGITS[1]), (n2, DIGITS[2]))]
    for i, f in enumerate(features):
        x = block[:, f]
        is_missing = np.isnan(x) | (x == 7)
        d = digits_of(x)
        np.add.at(expected[0][i], np.where(is_missing, MISSING, d[:, 0]), each)
        expected[0][i, NON_FINITE] = (np.abs(x[~is_missing]) >= np.finfo(np.float32).max).sum()
        d, present = d[~is_missing], each[~is_missing]
        slot = slots0[i, d[:, 0]]
        np.add.at(expected[1], (slot, d[:, 1]), present)
        np.add.at(expected[2], (slots1[slot, d[:, 1]], d[:, 2]), present)
    np.testing.assert_array_equal(run(0), expected[0])
    np.testing.assert_array_equal(run(1, slots0, None, n1)[n_features:], expected[1][n_features:])
    np.testing.assert_array_equal(run(2, slots0, slots1, n2)[n_features:], expected[2][n_features:])


@pytest.mark.parametrize("n_threads", [1, 3])
def test_more_rows_and_features_than_one_block_hold(n_threads):
    block = np.random.default_rng(5).normal(size=(3000, 37)).astype(np.float32)
    counts = count(block, 0, n_threads=n_threads)
    for f in range(37):
        np.testing.assert_array_equal(counts[f, : DIGITS[0]], np.bincount(digits_of(block[:, f])[:, 0], minlength=DIGITS[0]))
