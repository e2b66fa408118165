"""Tables of every library for tests of data/tables/, and what reading them must give."""

import numpy as np
import pytest

from gpuboost.data.tables.open import open_table

NAN = np.nan


FRAMES = ["pandas", "pandas-arrow", "polars", "pyarrow"]


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
