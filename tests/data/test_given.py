"""data/given.py: what is given beside a table is checked once, and named by count and row where it is refused."""

from decimal import Decimal
from functools import partial

import numpy as np
import pytest
from small_matrices import MASKED, X, caught

from gpuboost.data.dmatrix import DMatrix


@pytest.mark.parametrize("values", [[True, False, None], [1, 0, None], [Decimal(1), Decimal(0), None]], ids=repr)
@pytest.mark.parametrize("make", ["pandas.array", "pandas.Series", "polars.Series", "pyarrow.array"])
def test_a_null_of_any_library_and_type_is_named_and_the_other_values_are_read(make, values):
    library, _, function = make.partition(".")
    make_series = getattr(pytest.importorskip(library), function)
    if isinstance(values[0], bool | int) and library == "pandas":
        make_series = partial(make_series, dtype="boolean" if isinstance(values[0], bool) else "Int64")
    assert DMatrix(X[:2], label=make_series(values[:2])).get_label().tolist() == [1, 0]
    with pytest.raises(ValueError, match="label must be finite .* the first at row 2: nan"):
        DMatrix(X, label=make_series(values))


def test_what_a_library_cannot_give_to_numpy_is_refused_by_name():
    polars = pytest.importorskip("polars")
    with pytest.raises(ValueError, match="label must hold numbers.*128.* Pass a NumPy array"):
        DMatrix(X, label=polars.Series([1, 2, 3], dtype=polars.Int128))


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
def test_series_are_read(library):
    module = pytest.importorskip(library)
    make = module.array if library == "pyarrow" else module.Series
    assert DMatrix(X, label=make([1, 2, 3])).get_label().tolist() == [1, 2, 3]


def test_a_table_without_rows_takes_empty_labels():
    assert DMatrix(np.empty((0, 2)), label=[], weight=[]).get_label().shape == (0,)


@pytest.mark.parametrize("name", ["label", "weight", "base_margin"])
@pytest.mark.parametrize("values, message", [
    ([1, 2], "has 2 rows, data has 3"),
    ([1, 2, 3, 4], "has 4 rows, data has 3"),
    ([0, np.nan, np.inf], "2 rows are NaN, infinite or beyond 3.4e38, the first at row 1: nan"),
    ([0, 0, 1e39], r"1 rows are .* the first at row 2: 1e\+39"),
    ([0, None, 1], "1 rows are .* the first at row 1: nan"),
    (np.ma.MaskedArray([0, 1, 2], [False, False, True]), "1 rows are .* the first at row 2: nan"),
    (["a", "b", "c"], "must hold numbers, got dtype <U1"),
    (np.array(["2020-01-01"] * 3, "M8[ns]"), r"must hold numbers, got dtype datetime64\[ns\]"),
    ([1, 2, 3j], "must hold numbers, got dtype complex128"),
    (5.0, r"must have shape \(n_rows,\) or \(n_rows, k\), k at least 1, got \(\)"),
    (np.zeros((3, 1, 1)), r"must have shape .* got \(3, 1, 1\)"),
    (np.zeros((3, 0)), r"must have shape .* got \(3, 0\)"),
    ([[1, 2], [3], [4]], "must hold numbers in rows of equal length: .*inhomogeneous"),
    ([0, 10**400, 1], "1 rows are .* the first at row 1: inf"),
])  # fmt: skip
def test_bad_values_are_refused_by_name_count_and_row(name, values, message):
    with pytest.raises(ValueError, match=f"^{name} .*{message}"):
        DMatrix(X, **{name: values})


def test_the_bad_one_of_several_targets_is_shown():
    with pytest.raises(ValueError, match="the first at row 1: -inf"):
        DMatrix(X, label=[[1, 2], [3, -np.inf], [5, 6]])


def test_negative_weights_are_counted():
    with pytest.raises(ValueError, match="must not be negative: 2 values are, the first at row 1"):
        DMatrix(X, weight=[1, -1, -0.5])


def test_weights_of_queries_come_after_them():
    with pytest.raises(ValueError, match="weight has 2 rows, data has 3. .* one for each query goes beside group= or qid="):
        DMatrix(X, weight=[1, 2])
    data = DMatrix(X)
    data.set_group([1, 2])
    data.set_weight([1, 2])
    assert data.get_weight().tolist() == DMatrix(X, group=[1, 2], weight=[1, 2]).get_weight().tolist() == [1, 2, 2]


def test_weights_have_one_column():
    with pytest.raises(ValueError, match="weight must have one value per row, got 2 columns"):
        DMatrix(X, weight=np.ones((3, 2)))


@pytest.mark.parametrize("weight, is_unusual", [
    ([1, 1, 1e30], True), ([1e-30] * 3, False), ([0, 0, 0], False), ([1e-6, 1e-6, 1e6], False),
])  # fmt: skip
def test_huge_weights_warn(weight, is_unusual):
    messages = caught(lambda: DMatrix(X, weight=weight))
    assert len(messages) == is_unusual and all("weight is" in message for message in messages)


def test_weights_that_float32_takes_for_zero_are_counted_in_a_warning():
    (message,) = caught(lambda: DMatrix(X, weight=[1e-60, 0, 1]))
    assert message.startswith("1 weights are so small that float32 rounds them to 0")


@pytest.mark.parametrize("info, message", [
    ({"group": [1, 1]}, "group must hold the rows of each query, 3 together, got a sum of 2"),
    ({"group": [4, -1]}, "group must hold the rows of each query"),
    ({"group": [1.5, 1.5]}, "group must hold integers, got 1.5"),
    ({"group": [[1, 2]]}, r"one dimension, got shape \(1, 2\)"),
    ({"group": [2**62] * 4 + [3]}, "3 together, got a sum of 18446744073709551619"),
    ({"group": MASKED}, "group must hold integers, got nan"),
    ({"qid": MASKED}, "qid must hold integers, got nan"),
    ({"feature_weights": MASKED[1:]}, "feature_weights must be finite .* got nan for column 1"),
    ({"feature_weights": [1, 10**400]}, "feature_weights must be finite .* got inf for column 1"),
    ({"qid": np.array([0, 1, 2**63], np.uint64)}, "qid must hold integers below 2.63, got 9223372036854775808"),
    ({"qid": [0, 1, np.inf]}, "qid must hold integers below 2.63, got inf"),
    ({"qid": [[1], [1, 2]]}, "qid must hold numbers in rows of equal length"),
    ({"qid": ["a", "b", "c"]}, "qid must hold integers"),
    ({"qid": [1, np.nan, 2]}, "qid must hold integers, got nan"),
    ({"qid": [1, 2]}, "qid has 2 rows, data has 3"),
    ({"qid": [1, 2, 1]}, "qid must not decrease, but does at row 2: 1. Sort"),
    ({"qid": [1, 1, 1], "group": [3]}, "group and qid both"),
    ({"feature_weights": [1, 2, 3]}, r"one number per column \(2\), got shape \(3,\)"),
    ({"feature_weights": [1, -2]}, "not negative, got -2.0 for column 1"),
    ({"feature_weights": [np.nan, 1]}, "finite and not negative, got nan for column 0"),
    ({"feature_weights": ["a", 1]}, "feature_weights must hold numbers"),
])  # fmt: skip
def test_bad_queries_and_feature_weights_are_refused(info, message):
    with pytest.raises(ValueError, match=message):
        DMatrix(X, **info)


@pytest.mark.parametrize("rindex, error, message", [
    ([3], IndexError, r"rindex must lie in \[0, 2\], got 3"),
    ([-1], IndexError, "got -1"),
    ([0.5], ValueError, "rindex must hold integers, got 0.5"),
    (MASKED, ValueError, "rindex must hold integers, got nan"),
    (MASKED.astype(bool), ValueError, "rindex must hold integers, got nan"),
    ([[1]], ValueError, "one dimension"),
    (np.array([True]), ValueError, r"one value per row \(3\), got shape \(1,\)"),
])  # fmt: skip
def test_rows_that_do_not_exist_are_refused(rindex, error, message):
    with pytest.raises(error, match=message):
        DMatrix(X).slice(rindex)
