"""data/tables/categories.py: a category is the model's number for its value, whatever its code in the frame."""

import datetime
import warnings

import numpy as np
import pytest
from opened_tables import FRAMES, NAN, check_values, make_categories, make_frame, read_all

from gpuboost.config import config_context
from gpuboost.data.tables.open import open_table


@pytest.mark.parametrize("library", FRAMES)
def test_category_codes_follow_the_dictionary_and_null_is_missing(library):
    source = check_values(make_categories(library, ["b", None, "a", "b"], ["b", "unused", "a"]), [[0], [NAN], [2], [0]])
    assert source.categories == {"c": ["b", "unused", "a"]} and source.feature_types == ["c"]


@pytest.mark.parametrize("library", FRAMES)
def test_categories_are_matched_to_the_model_by_value(library):
    frame = make_categories(library, ["b", None, "a"], ["unused", "b", "a"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # "unused" is unknown to the model, but no row holds it
        source = check_values(frame, [[1], [NAN], [0]], categories={"c": ["a", "b"]}, expected_names=["c"])
    assert source.categories == {"c": ["a", "b"]}


@pytest.mark.parametrize("library", FRAMES)
def test_unknown_categories_become_missing_with_one_warning(library):
    frame = make_categories(library, ["b", "z", "a", "z"], ["a", "b", "z"])
    with pytest.warns(UserWarning, match='Column "c": "z"') as caught:
        source = open_table(frame, categories={"c": ["b", "a"]})
    assert len(caught) == 1
    np.testing.assert_array_equal(read_all(source), np.float32([[0], [NAN], [1], [NAN]]))
    with config_context(unseen_categories="error"):
        with pytest.raises(ValueError, match='unknown to the model: Column "c": "z". Correct them, or let them be missing'):
            open_table(frame, categories={"c": ["b", "a"]})
        open_table(frame, categories={"c": ["z", "b", "a"]})


@pytest.mark.parametrize("library", FRAMES)
def test_a_column_must_stay_a_category_or_a_number(library):
    with pytest.raises(ValueError, match='Column "c" holds categories, of which the model knows none'):
        open_table(make_categories(library, ["a"], ["a"]), categories={})
    with pytest.raises(ValueError, match='Column "c" holds .*, but held categories in training'):
        open_table(make_frame(library, {"c": [0.0, 1.0]}), categories={"c": ["a", "b"]})
    with pytest.raises(ValueError, match="feature_types of Column \"c\" must be 'c'"):
        open_table(make_categories(library, ["a"], ["a"]), feature_types=["q"])


def test_an_all_missing_column_may_stand_for_categories():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"c": [NAN, NAN], "x": [1.0, 2.0]})
    check_values(frame, [[NAN, 1], [NAN, 2]], categories={"c": ["a"]}, expected_names=["c", "x"])


def test_a_category_code_is_not_taken_for_the_missing_number():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"c": pandas.Categorical(["a", "b"]), "x": [0.0, 1.0]})
    source = check_values(frame, [[0, NAN], [1, 1]], missing=0)
    assert np.isnan(source.missing)
    assert open_table(frame[["x"]], missing=0).missing == 0


def test_category_values_are_text_numbers_or_booleans():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(
        {
            "int": pandas.Categorical([3, 1]),
            "bool": pandas.Categorical([True, False]),
            "cut": pandas.cut([1.0, 4.0], [0, 2, 5]),
        }
    )
    categories = open_table(frame).categories
    assert categories == {"int": [1, 3], "bool": [False, True], "cut": ["(0, 2]", "(2, 5]"]}
    check_values(frame.iloc[::-1], [[0, 0, 1], [1, 1, 0]], categories=categories)


def test_infinite_categories_are_text_so_that_a_model_file_can_hold_them():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"c": pandas.Categorical([np.inf, 1.0])})
    assert open_table(frame).categories == {"c": [1.0, "inf"]}
    check_values(frame, [[1], [0]], categories={"c": [1.0, "inf"]}, expected_names=["c"])


@pytest.mark.parametrize("values", [[1.0, np.inf, "inf"], [datetime.date(2020, 1, 1), "2020-01-01"]])
def test_categories_of_the_same_text_are_refused(values):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"c": pandas.Categorical(values, categories=values)})
    with pytest.raises(ValueError, match='Column "c" holds two categories with the same text'):
        open_table(frame)


def test_polars_categoricals_are_numbered_by_sorted_value():
    polars = pytest.importorskip("polars")
    polars.Series(["other", "words"], dtype=polars.Categorical)  # shifts the library's own codes
    source = check_values(polars.DataFrame({"c": polars.Series(["b", "a", None], dtype=polars.Categorical)}), [[1], [0], [NAN]])
    assert source.categories == {"c": ["a", "b"]}


def test_arrow_chunks_may_have_different_dictionaries():
    pa = pytest.importorskip("pyarrow")
    chunks = [pa.array(["b", "a"]).dictionary_encode(), pa.array(["c", None, "b"]).dictionary_encode()]
    source = check_values(pa.table({"c": pa.chunked_array(chunks)}), [[0], [1], [2], [NAN], [0]])
    assert source.categories == {"c": ["b", "a", "c"]}
