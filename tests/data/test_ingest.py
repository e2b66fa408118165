"""data/ingest.py: every kind of table gives the same columns, batch by batch."""

import datetime
import warnings
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from gpuboost.data.ingest import align_columns, open_table

NAN = np.nan


def read_all(source, batch_rows=None):
    """All rows as float32 (n_rows, n_features)."""
    empty = np.empty((0, source.n_features), np.float32)
    return np.concatenate([empty, *(np.asarray(b, np.float32) for b in source.batches(batch_rows))])


def check_values(data, expected, **arguments):
    source = open_table(data, **arguments)
    expected = np.asarray(expected, np.float32)
    assert (source.n_rows, source.n_features) == expected.shape
    np.testing.assert_array_equal(read_all(source), expected)
    np.testing.assert_array_equal(read_all(source, 1), expected)  # a second pass, one row at a time
    np.testing.assert_array_equal(np.asarray(source.rows([1, 0]), np.float32), expected[[1, 0]])
    return source


# ---- arrays


@pytest.mark.parametrize("dtype", "i1 u1 i2 u2 i4 u4 i8 u8 f2 f4 f8 g >f4 >f8 >i4 O".split())
def test_every_numeric_dtype_is_read(dtype):
    source = check_values(np.array([[1, 2], [3, 4]], dtype), [[1, 2], [3, 4]])
    assert source.feature_names is None and source.feature_types is None and source.categories == {}


def test_booleans_become_zero_and_one():
    check_values(np.array([[True], [False]]), [[1], [0]])


def test_lists_of_rows_are_read():
    check_values([[1, 2.5], [None, 4]], [[1, 2.5], [NAN, 4]])


def test_objects_that_are_numbers_are_read_and_none_is_missing():
    data = np.array([[1, None, True], [Decimal("2.5"), Fraction(1, 4), np.float32(7)]], dtype=object)
    check_values(data, [[1, NAN, 1], [2.5, 0.25, 7]])


def test_objects_beyond_float64_are_infinite_and_a_nan_that_signals_is_missing():
    data = np.array([[10**400, -(10**400)], [Decimal("sNaN"), Fraction(10**400)]], dtype=object)
    check_values(data, [[np.inf, -np.inf], [NAN, np.inf]])


def test_pandas_na_inside_an_object_array_is_missing():
    pandas = pytest.importorskip("pandas")
    check_values(np.array([[pandas.NA, 1], [2, None]], dtype=object), [[NAN, 1], [2, NAN]])


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


def test_zero_rows_give_no_batch():
    source = open_table(np.empty((0, 3)))
    assert source.n_rows == 0 and list(source.batches()) == []


def test_default_batches_hold_about_eight_megabytes_and_at_least_1024_rows():
    wide, narrow = np.broadcast_to(np.float32(0), (2000, 10_000)), np.broadcast_to(np.float32(0), (1 << 20, 4))
    assert [len(b) for b in open_table(wide).batches()] == [1024, 976]
    assert [b.nbytes for b in open_table(narrow).batches()] == [8 << 20, 8 << 20]


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


arrays = hnp.arrays(
    st.sampled_from("? i1 u2 i8 u8 f2 f4 f8 g >f8 >i2".split()),
    hnp.array_shapes(min_dims=2, max_dims=2, max_side=9),
)


@settings(deadline=None)
@given(arrays, st.sampled_from("CF"), st.sampled_from([np.s_[:], np.s_[::-1], np.s_[::2, ::-1]]), st.integers(1, 10))
def test_any_layout_and_batch_size_gives_numpys_float32_values(X, layout, view, batch_rows):
    X = np.asarray(X, order=layout)[view]
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        source = open_table(X)
        np.testing.assert_array_equal(read_all(source, batch_rows), np.asarray(X, np.float32))
        np.testing.assert_array_equal(np.asarray(source.rows(range(len(X))), np.float32), np.asarray(X, np.float32))


@settings(deadline=None)
@given(hnp.arrays(st.sampled_from([np.int32, np.int64, np.uint32, np.uint64, np.int16]), (4, 2)))
def test_integers_warn_exactly_when_float32_changes_one(X):
    changes = any(int(np.float32(v)) != int(v) for v in X.flat)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        open_table(X)
    assert len(caught) == changes


# ---- arguments


def test_integers_beyond_24_bits_warn_once_naming_the_columns():
    X = np.array([[1, 2**24, 2**24 + 1, -(2**40) - 1], [0, 2**30, 5, 6]])
    with pytest.warns(UserWarning, match='"c", "d" have more digits than float32') as caught:
        open_table(X, feature_names="abcd")
    assert len(caught) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        open_table(X[:, :2])  # 2**24 and 2**30 are float32 values
        open_table(X, expected_count=4)  # the training table has warned


@pytest.mark.parametrize(("given", "carried"), [(None, NAN), (NAN, NAN), (-999, -999.0), (0.1, float(np.float32(0.1)))])
def test_missing_is_carried_as_its_float32_value(given, carried):
    np.testing.assert_equal(open_table([[1.0]], missing=given).missing, carried)


def test_missing_must_be_a_number():
    with pytest.raises(TypeError, match="missing must be a number or None, got 'nan'"):
        open_table([[1.0]], missing="nan")


def test_names_and_types_can_be_given_to_an_array():
    source = open_table([[1.0, 2.0]], feature_names=["a", 7], feature_types=["q", "c"])
    assert source.feature_names == ["a", "7"] and source.feature_types == ["q", "c"]
    types = open_table([[1.0, 2.0]], feature_types=np.array(["q", "c"])).feature_types
    assert list(map(type, types)) == [str, str]  # as NumPy's text is no JSON


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"feature_names": ["a"]}, r"one name a column \(2\), got 1"),
        ({"feature_names": ["a", "a"]}, 'these repeat: "a"'),
        ({"feature_names": [1, "1"]}, 'these repeat: "1"'),
        ({"feature_types": ["q"]}, r"one letter a column \(2\), got 1"),
        ({"feature_types": ["q", "x"]}, "among float, int, i, q, c, got 'x'"),
        ({"expected_count": 3}, "2 columns.*trained on 3"),
        ({"expected_names": ["a", "b", "c"]}, "2 columns.*trained on 3"),
    ],
)
def test_wrong_names_types_and_counts_are_refused(arguments, words):
    with pytest.raises(ValueError, match=words):
        open_table([[1.0, 2.0]], **arguments)


def test_batch_rows_below_one_is_refused():
    with pytest.raises(ValueError, match="batch_rows must be at least 1, got 0"):
        open_table([[1.0]]).batches(0)


def test_columns_are_matched_by_name():
    assert align_columns(["b", "a"], ["a", "b"]) == [1, 0]
    named = {"feature_names": "ab", "feature_types": ["int", "q"], "expected_names": ["b", "a"]}
    source = check_values([[1, 2], [3, 4]], [[2, 1], [4, 3]], **named)
    assert source.feature_names == ["b", "a"] and source.feature_types == ["q", "int"]
    with pytest.raises(ValueError, match='data lacks "c" and has the unknown "a"'):
        align_columns(["a", "b"], ["b", "c"])


def test_an_unnamed_array_after_named_training_is_matched_by_position():
    check_values([[1, 2], [3, 4]], [[1, 2], [3, 4]], expected_names=["a", "b"], categories={"b": ["x", "y"]})


# ---- frames

FRAMES = ["pandas", "pandas-arrow", "polars", "pyarrow"]


def make_frame(library, columns, schema=None):
    """columns : name → values, None where null. schema : name → pyarrow type name, for columns where inference is not enough."""
    pa = pytest.importorskip("pyarrow")
    schema = schema or {}
    types = {name: getattr(pa, schema[name])() if name in schema else None for name in columns}
    table = pa.table({name: pa.array(values, types[name]) for name, values in columns.items()})
    if library == "pandas":
        pandas = pytest.importorskip("pandas")
        nullable = {pa.float64(): pandas.Float64Dtype(), pa.int64(): pandas.Int64Dtype(), pa.bool_(): pandas.BooleanDtype()}
        return table.to_pandas(types_mapper=nullable.get)
    if library == "pandas-arrow":
        return table.to_pandas(types_mapper=pytest.importorskip("pandas").ArrowDtype)
    return pytest.importorskip("polars").from_arrow(table) if library == "polars" else table


def make_categories(library, values, dictionary):
    """One column "c" of categories with the given dictionary."""
    pa = pytest.importorskip("pyarrow")
    if library == "pandas":
        pandas = pytest.importorskip("pandas")
        return pandas.DataFrame({"c": pandas.Categorical(values, categories=dictionary)})
    if library == "polars":
        polars = pytest.importorskip("polars")
        return polars.DataFrame({"c": polars.Series(values, dtype=polars.Enum(dictionary))})
    codes = pa.array([None if v is None else dictionary.index(v) for v in values], pa.int16())
    table = pa.table({"c": pa.DictionaryArray.from_arrays(codes, dictionary)})
    return table if library == "pyarrow" else table.to_pandas(types_mapper=pytest.importorskip("pandas").ArrowDtype)


@pytest.mark.parametrize("library", FRAMES)
def test_nulls_of_every_type_are_missing(library):
    columns = {"f": [1.5, None, 2.5], "i": [1, None, 3], "b": [True, None, False], "whole": [4, 5, 6]}
    source = check_values(make_frame(library, columns), [[1.5, 1, 1, 4], [NAN, NAN, NAN, 5], [2.5, 3, 0, 6]])
    assert source.feature_names == ["f", "i", "b", "whole"]
    assert source.feature_types == ["float", "int", "i", "int"]


@pytest.mark.parametrize("library", FRAMES)
def test_nullable_integers_are_rounded_to_float32_once(library):
    tie_breaker = 2**60 + 2**36 + 1  # just above the tie between two float32 values; float64 drops the + 1
    with pytest.warns(UserWarning, match='"i" have more digits'):
        source = open_table(make_frame(library, {"i": [tie_breaker, None]}, {"i": "int64"}))
    np.testing.assert_array_equal(read_all(source), np.array([[2**60 + 2**37], [NAN]], np.float32))


@pytest.mark.parametrize("library", FRAMES)
def test_dates_and_strings_are_refused_naming_the_column(library):
    for values, words in [
        ([datetime.datetime(2020, 1, 1), None], 'Column "when".*int64'),
        ([datetime.date(2020, 1, 1), None], 'Column "when".*int64'),
        ([datetime.time(1), None], 'Column "when".*int64'),
        ([datetime.timedelta(1), None], 'Column "when".*int64'),
        (["a", None], r'Column "when".*df\["when"\]\.astype\("category"\)'),
        ([[1], [2]], 'Column "when".*columns of numbers'),
    ]:
        with pytest.raises(ValueError, match=words):
            open_table(make_frame(library, {"x": [1, 2], "when": values}))


@pytest.mark.parametrize("library", FRAMES)
def test_decimals_and_all_null_columns_are_read(library):
    columns = {"d": [Decimal("1.5"), None], "none": [None, None], "s": [None, None]}
    check_values(make_frame(library, columns, {"s": "string"}), [[1.5, NAN, NAN], [NAN, NAN, NAN]])


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


@pytest.mark.parametrize("library", FRAMES)
def test_a_column_must_stay_a_category_or_a_number(library):
    with pytest.raises(ValueError, match='Column "c" holds categories, but held numbers in training'):
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


def test_dates_of_milliseconds_in_arrow_are_refused():
    pa, pandas = pytest.importorskip("pyarrow"), pytest.importorskip("pandas")
    table = pa.table({"when": pa.array([datetime.date(2020, 1, 1), None], pa.date64())})
    for frame in (table, table.to_pandas(types_mapper=pandas.ArrowDtype)):
        with pytest.raises(ValueError, match='Column "when".*int64'):
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


def test_chunked_columns_and_record_batches_are_read():
    pa = pytest.importorskip("pyarrow")
    polars = pytest.importorskip("polars")
    check_values(pa.table({"x": pa.chunked_array([[1, 2], [3]])}), [[1], [2], [3]])
    check_values(pa.record_batch({"x": [1, 2]}), [[1], [2]])
    check_values(polars.concat([polars.DataFrame({"x": [1, 2]}), polars.DataFrame({"x": [3]})], rechunk=False), [[1], [2], [3]])


def test_lazy_frames_are_collected():
    polars = pytest.importorskip("polars")
    check_values(polars.LazyFrame({"x": [1, 2]}), [[1], [2]])


def test_wide_polars_integers_are_read():
    polars = pytest.importorskip("polars")
    check_values(polars.DataFrame({"x": polars.Series([1, None], dtype=polars.Int128)}), [[1], [NAN]])


def test_a_pandas_frame_of_one_float_block_is_not_copied():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(np.arange(6.0).reshape(3, 2), columns=["a", "b"])
    source = check_values(frame, frame.to_numpy())
    assert all(np.shares_memory(batch, frame["a"].to_numpy()) for batch in source.batches(1))
    frame["c"] = np.arange(3.0)  # a second block
    assert all(batch.dtype == np.float32 for batch in open_table(frame).batches())


def test_pandas_objects_sparse_and_long_dtypes_are_read():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(
        {
            "o": pandas.Series([1, pandas.NA], dtype=object),
            "s": pandas.arrays.SparseArray([0.0, 2.0]),
            "h": np.array([1, 2], np.float16),
            "g": np.array([1, 2], np.longdouble),
        }
    )
    assert check_values(frame, [[1, 0, 1, 1], [NAN, 2, 2, 2]]).feature_types == ["float"] * 4


def test_frame_names_become_text_in_order_and_must_be_unique():
    pandas = pytest.importorskip("pandas")
    pa = pytest.importorskip("pyarrow")
    assert open_table(pandas.DataFrame([[1, 2.0]], columns=[("a", 1), 5])).feature_names == ["('a', 1)", "5"]
    for frame in (pandas.DataFrame([[1, 2]], columns=["a", "a"]), pa.table([[1], [2]], names=["a", "a"])):
        with pytest.raises(ValueError, match='these repeat: "a"'):
            open_table(frame)


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


nullable = {
    "f": st.none() | st.floats(width=64, allow_nan=False),
    "i": st.none() | st.integers(-(2**63), 2**63 - 1),
    "b": st.none() | st.booleans(),
}


@settings(deadline=None)
@given(st.lists(st.fixed_dictionaries(nullable), min_size=1, max_size=12), st.integers(1, 13))
def test_all_libraries_agree(rows, batch_rows):
    columns = {name: [row[name] for row in rows] for name in nullable}
    types = {"f": "float64", "i": "int64", "b": "bool_"}
    with warnings.catch_warnings(), np.errstate(over="ignore"):
        warnings.simplefilter("ignore")
        to_float32 = lambda v: np.array(NAN if v is None else v).astype(np.float32)  # np.float32(int) would round twice
        expected = np.array([[to_float32(row[name]) for name in columns] for row in rows])
        for library in FRAMES:
            source = open_table(make_frame(library, columns, types))
            np.testing.assert_array_equal(read_all(source, batch_rows), expected, err_msg=library)
