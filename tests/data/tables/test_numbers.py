"""data/tables/numbers.py: objects become float32 by one rounding; a UserWarning tells of digits that float32 lacks."""

import warnings
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from opened_tables import NAN, check_values

from gpuboost.data.tables.open import open_table


def test_objects_that_are_numbers_are_read_and_none_is_missing():
    data = np.array([[1, None, True], [Decimal("2.5"), Fraction(1, 4), np.float32(7)]], dtype=object)
    check_values(data, [[1, NAN, 1], [2.5, 0.25, 7]])


def test_objects_beyond_float64_are_infinite_and_a_nan_that_signals_is_missing():
    data = np.array([[10**400, -(10**400)], [Decimal("sNaN"), Fraction(10**400)]], dtype=object)
    check_values(data, [[np.inf, -np.inf], [NAN, np.inf]])


def test_pandas_na_inside_an_object_array_is_missing():
    pandas = pytest.importorskip("pandas")
    check_values(np.array([[pandas.NA, 1], [2, None]], dtype=object), [[NAN, 1], [2, NAN]])


@given(hnp.arrays(st.sampled_from([np.int32, np.int64, np.uint32, np.uint64, np.int16]), (4, 2)))
def test_integers_warn_exactly_when_float32_changes_one(X):
    changes = any(int(np.float32(v)) != int(v) for v in X.flat)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        open_table(X)
    assert len(caught) == changes


def test_integers_beyond_24_bits_warn_once_naming_the_columns():
    X = np.array([[1, 2**24, 2**24 + 1, -(2**40) - 1], [0, 2**30, 5, 6]])
    with pytest.warns(UserWarning, match='"c", "d" have more digits than float32') as caught:
        open_table(X, feature_names="abcd")
    assert len(caught) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        open_table(X[:, :2])  # 2**24 and 2**30 are float32 values
        open_table(X, expected_count=4)  # the training table has warned
