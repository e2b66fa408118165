"""data/tables/open.py: what is no table is refused with a fix; columns are the model's, in its order."""

import datetime

import numpy as np
import pytest
from opened_tables import FRAMES, NAN, check_values, make_frame

from gpuboost.data.tables.open import open_table


@pytest.mark.parametrize(
    ("data", "error", "words"),
    [
        (np.zeros(3), ValueError, r"1-D of shape \(3,\).*reshape\(-1, 1\)"),
        (np.zeros((2, 2, 2)), ValueError, r"3-D.*reshape\(len\(X\), -1\)"),
        (np.zeros((3, 0)), ValueError, "0 columns"),
        (np.array([["a"]]), ValueError, "categories"),
        (np.array([["1.5"]], dtype=object), ValueError, 'Column "0" holds str'),
        (np.array([[1, datetime.date(2020, 1, 1)]], dtype=object), ValueError, 'Column "1" holds date.*astype'),
        (np.array([[1, []]], dtype=object), ValueError, 'Column "1" holds list'),
        (np.zeros((2, 2), complex), ValueError, "complex128.*imaginary"),
        (np.zeros((2, 2), "M8[s]"), ValueError, "datetime64.*int64"),
        (np.zeros(2, [("a", float)]), ValueError, "DataFrame"),
        ([[1, 2], [3]], ValueError, "equally long"),
        ("table.csv", TypeError, "2-D array.*got str"),
        (None, TypeError, "got NoneType"),
        ({"a": [1]}, TypeError, "got dict"),
    ],
)
def test_what_is_no_table_of_numbers_is_refused_with_a_fix(data, error, words):
    with pytest.raises(error, match=words):
        open_table(data)


@pytest.mark.parametrize(("given", "carried"), [(None, NAN), (NAN, NAN), (-999, -999.0), (0.1, float(np.float32(0.1)))])
def test_missing_is_carried_as_its_float32_value(given, carried):
    np.testing.assert_equal(open_table([[1.0]], missing=given).missing, carried)


def test_an_array_that_also_streams_itself_as_a_column_is_an_array():
    class Labelled:  # as xarray's are
        values = np.arange(6.0).reshape(3, 2)
        dtype, ndim, shape = values.dtype, 2, values.shape

        def __array__(self, dtype=None, copy=None):
            return self.values

        def __arrow_c_stream__(self, requested_schema=None):
            return pa.table({"value": self.values.ravel()}).__arrow_c_stream__(requested_schema)

    pa = pytest.importorskip("pyarrow")
    source = open_table(Labelled())
    assert (source.n_rows, source.n_features) == (3, 2)


def test_missing_must_be_a_number():
    with pytest.raises(TypeError, match="missing must be a number or None, got 'nan'"):
        open_table([[1.0]], missing="nan")


def test_an_unnamed_array_after_named_training_is_matched_by_position():
    check_values([[1, 2], [3, 4]], [[1, 2], [3, 4]], expected_names=["a", "b"], categories={"b": ["x", "y"]})


@pytest.mark.parametrize("library", FRAMES)
def test_frames_are_matched_to_the_model_by_name(library):
    frame = make_frame(library, {"a": [1, 2], "b": [1.5, 2.5]})
    source = check_values(frame, [[1.5, 1], [2.5, 2]], expected_names=["b", "a"])
    assert source.feature_names == ["b", "a"] and source.feature_types == ["float", "int"]
    with pytest.raises(ValueError, match='lacks "c"'):
        open_table(frame, expected_names=["a", "b", "c"])
    with pytest.raises(ValueError, match='has the unknown "b"'):
        open_table(frame, expected_names=["a"])


def test_a_series_is_refused_as_one_dimensional():
    pandas = pytest.importorskip("pandas")
    with pytest.raises(ValueError, match="1-D"):
        open_table(pandas.Series([1.0, 2.0]))
