"""data/tables/frames.py and host_frames.py: frames of all libraries give the same columns, batch by batch."""

import datetime
import warnings
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from opened_tables import FRAMES, NAN, check_values, make_frame, read_all

from gpuboost.data.tables.open import open_table


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
        ([datetime.datetime(2020, 1, 1), None], 'Column "when".*extract parts'),
        ([datetime.date(2020, 1, 1), None], 'Column "when".*extract parts'),
        ([datetime.time(1), None], 'Column "when".*extract parts'),
        ([datetime.timedelta(1), None], 'Column "when".*extract parts'),
        (["a", None], 'Column "when".*Convert it to categories'),
        ([[1], [2]], 'Column "when".*columns of numbers'),
    ]:
        with pytest.raises(ValueError, match=words):
            open_table(make_frame(library, {"x": [1, 2], "when": values}))


@pytest.mark.parametrize("library, name", [("pandas", "datetime64"), ("polars", "Datetime"), ("pyarrow", "timestamp")])
def test_types_are_called_as_their_library_does(library, name):
    frame = make_frame(library, {"when": [datetime.datetime(2020, 1, 1)]})
    with pytest.raises(ValueError, match=f'Column "when" holds {name}'):
        open_table(frame)


@pytest.mark.parametrize("library", FRAMES)
def test_the_remedy_for_text_is_the_librarys_own(library):
    scope = {"df": make_frame(library, {"x": [1, 2, 3], "kind": ["b", None, "a"]}), "pl": pytest.importorskip("polars")}
    with pytest.raises(ValueError, match="Convert it to categories: .*[.]$") as refused:
        open_table(scope["df"])
    exec(str(refused.value).partition("categories: ")[2].removesuffix("."), scope)
    source = open_table(scope["df"])
    assert source.feature_types == ["int", "c"] and sorted(source.categories["kind"]) == ["a", "b"]


@pytest.mark.parametrize("library", FRAMES)
def test_decimals_and_all_null_columns_are_read(library):
    columns = {"d": [Decimal("1.5"), None], "none": [None, None], "s": [None, None]}
    check_values(make_frame(library, columns, {"s": "string"}), [[1.5, NAN, NAN], [NAN, NAN, NAN]])


def test_dates_of_milliseconds_in_arrow_are_refused():
    pa, pandas = pytest.importorskip("pyarrow"), pytest.importorskip("pandas")
    table = pa.table({"when": pa.array([datetime.date(2020, 1, 1), None], pa.date64())})
    for frame in (table, table.to_pandas(types_mapper=pandas.ArrowDtype)):
        with pytest.raises(ValueError, match='Column "when".*extract parts'):
            open_table(frame)


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


nullable = {
    "f": st.none() | st.floats(width=64, allow_nan=False),
    "i": st.none() | st.integers(-(2**63), 2**63 - 1),
    "b": st.none() | st.booleans(),
}


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
