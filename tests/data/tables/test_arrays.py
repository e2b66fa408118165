"""data/tables/arrays.py: an array of any type and layout gives NumPy's float32 values, a view where it can."""

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from opened_tables import NAN, check_values, read_all

from gpuboost.data.tables.open import open_table


@pytest.mark.parametrize("dtype", "i1 u1 i2 u2 i4 u4 i8 u8 f2 f4 f8 g >f4 >f8 >i4 O".split())
def test_every_numeric_dtype_is_read(dtype):
    source = check_values(np.array([[1, 2], [3, 4]], dtype), [[1, 2], [3, 4]])
    assert source.feature_names is None and source.feature_types is None and source.categories == {}


def test_booleans_become_zero_and_one():
    check_values(np.array([[True], [False]]), [[1], [0]])


def test_lists_of_rows_are_read():
    check_values([[1, 2.5], [None, 4]], [[1, 2.5], [NAN, 4]])


@pytest.mark.parametrize("dtype", [np.float32, np.int64, object])
def test_masked_entries_are_missing(dtype):
    data = np.ma.MaskedArray(np.array([[1, 2], [3, 4]], dtype), mask=[[False, True], [False, False]])
    check_values(data, [[1, NAN], [3, 4]])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("view", [np.s_[:], np.s_[::-1], np.s_[::2, ::-1]])
def test_batches_of_float_arrays_are_views(dtype, view):
    X = np.arange(24, dtype=dtype).reshape(6, 4)[view]
    X.flags.writeable = False
    batches = list(open_table(X).batches(2))
    assert all(np.shares_memory(b, X) and b.dtype == dtype for b in batches)
    np.testing.assert_array_equal(np.concatenate(batches), X)


def test_unaligned_floats_are_copied():
    X = np.zeros(3, np.dtype([("a", "u1"), ("x", "f4", 2)]))["x"]
    (batch,) = open_table(X).batches()
    assert not X.flags.aligned and batch.flags.aligned


def test_longdouble_is_rounded_once():
    above_half = np.array([[1 + np.longdouble(2) ** -24 + np.longdouble(2) ** -60]])  # through float64 it would round to 1
    np.testing.assert_array_equal(read_all(open_table(above_half)), np.asarray(above_half, np.float32))


arrays = hnp.arrays(
    st.sampled_from("? i1 u2 i8 u8 f2 f4 f8 g >f8 >i2".split()),
    hnp.array_shapes(min_dims=2, max_dims=2, max_side=9),
)


@given(arrays, st.sampled_from("CF"), st.sampled_from([np.s_[:], np.s_[::-1], np.s_[::2, ::-1]]), st.integers(1, 10))
def test_any_layout_and_batch_size_gives_numpys_float32_values(X, layout, view, batch_rows):
    X = np.asarray(X, order=layout)[view]
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        source = open_table(X)
        np.testing.assert_array_equal(read_all(source, batch_rows), np.asarray(X, np.float32))
        np.testing.assert_array_equal(np.asarray(source.rows(range(len(X))), np.float32), np.asarray(X, np.float32))
