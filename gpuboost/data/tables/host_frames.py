"""Frames of pandas, polars, pyarrow and of any other library that streams Arrow's data, through narwhals, on the host."""

from collections.abc import Iterator
from functools import cached_property, partial
from importlib.util import find_spec
from typing import Any

import numpy as np

from gpuboost.data.tables.batches import SCAN_ROWS, Array, Read, Rows, row_slices
from gpuboost.data.tables.device import is_device_table
from gpuboost.data.tables.names import PANDAS_INDEX, check_names
from gpuboost.data.tables.numbers import check_objects, to_float32

__all__ = ["HostColumn", "HostFrame", "as_frame", "computed"]

WRAPPERS = "narwhals", "duckdb", "_duckdb"  # libraries whose frames have a shape, but no names that scikit-learn finds


def as_frame(data: Any) -> Any:
    """A narwhals DataFrame, or None when the object is no frame."""
    import narwhals as nw

    if type(data).__name__ == "RecordBatch":
        return nw.from_arrow(data, backend="pyarrow")
    try:
        frame = nw.from_native(data, pass_through=True)
        if isinstance(frame, nw.LazyFrame):  # of files, as a rule, as data/streams/files.py reads them
            frame = frame.drop(list(filter(PANDAS_INDEX.fullmatch, frame.collect_schema().names()))).collect()
    except nw.exceptions.DuplicateError:
        names = [str(name) for name in getattr(data, "column_names", data.columns)]
        check_names(names, len(names))
        raise
    if frame is data and hasattr(data, "__arrow_c_stream__"):  # from a library that narwhals does not know
        return _read_arrow_stream(data)
    return frame if isinstance(frame, nw.DataFrame) else None


def computed(data: Any) -> Any:
    """A frame that is computed when it is asked for, of polars, ibis, DuckDB and others, and a stream of Arrow's, which can be
    read once, as a frame in memory whose columns can be counted; anything else as it is."""
    kind = type(data)
    is_counted = hasattr(data, "shape") and kind.__name__ != "RecordBatch" and kind.__module__.partition(".")[0] not in WRAPPERS
    is_frame = hasattr(type(data), "columns") or hasattr(data, "__arrow_c_stream__")  # asked itself, polars' lazy frames warn
    if is_counted or not is_frame or is_device_table(data):
        return data
    frame = as_frame(data)
    return data if frame is None else frame.to_native()


def _read_arrow_stream(data: Any) -> Any:
    """A narwhals DataFrame of any producer of an Arrow stream of record batches; None where it streams a single column."""
    import narwhals as nw

    try:
        if find_spec("pyarrow"):
            return nw.DataFrame.from_arrow(data, backend="pyarrow")
        if find_spec("polars"):
            return nw.DataFrame.from_arrow(data, backend="polars")
    except (ValueError, TypeError):  # pyarrow's ArrowInvalid is a ValueError
        return None
    kind = type(data).__name__
    raise ImportError(f"data of type {kind} is an Arrow stream, which needs pyarrow or polars: pip install pyarrow.")


class HostFrame:
    """A narwhals DataFrame as frames.read_frame asks it. cudf_frames.CudfFrame is its twin on a GPU."""

    xp = np

    def __init__(self, frame: Any) -> None:
        self._frame = frame
        self.shape = frame.shape
        self.names = frame.columns

    def columns(self) -> Iterator["HostColumn"]:
        return map(HostColumn, self._frame.iter_columns())

    def whole_array(self) -> Array | None:
        """All of it as one float32 or float64 view; None when its library would have to copy."""
        return _whole_array(self._frame)


class HostColumn:
    """A narwhals Series as frames.read_frame asks it. cudf_frames.CudfColumn is its twin on a GPU."""

    def __init__(self, series: Any) -> None:
        import narwhals as nw

        self._series = series.cast(nw.Float64) if series.dtype in (nw.Int128, nw.UInt128) else series  # unknown to NumPy
        self.library = self._series.implementation.name.lower()
        self.is_categorical = self._series.dtype in (nw.Categorical, nw.Enum)

    @property
    def dtype(self) -> Any:
        """As its library names it: pandas' float64, not the Float64 of narwhals."""
        native = self._series.to_native()
        return native.type if self.library == "pyarrow" else native.dtype

    @cached_property
    def kind(self) -> str:
        """NumPy's letter for the values; V where they are lists or structs."""
        import narwhals as nw

        if self._series.dtype.is_temporal():
            return "M"
        if self.library == "polars" and self._series.dtype.is_float():  # a sample takes 25 µs
            return "f"
        if self._series.dtype == nw.Unknown and hasattr(self.dtype, "pyarrow_dtype"):
            return "O"  # an empty sample of these is float64, whatever they hold
        sample = self._series[:0].to_numpy()
        return sample.dtype.kind if sample.ndim == 1 else "V"

    def is_null(self) -> bool:
        """Whether there is no value at all."""
        return self._series.null_count() == len(self._series)

    def number_reader(self, name: str) -> Read:
        """rows → (n,) numbers, NaN where missing."""
        return _number_reader(self._series, self.kind, name, self.library)

    def present_integers(self, rows: Rows) -> Array:
        """What a column of integers holds in these rows; what stands for its nulls, if anything, fits float32."""
        return self._series[rows].drop_nulls().to_numpy()

    def dictionary(self) -> tuple[list[Any], Read]:
        """The values of a categorical column, and its reader: rows → int (n,) codes into them, -1 where null."""
        return _dictionary(self._series)


def _number_reader(series: Any, kind: str, name: str, library: str) -> Read:
    """The reader (rows → (n,) numbers, NaN where missing) of a column that holds numbers or objects, or only nulls."""
    if kind not in "biuf" and series.null_count() == len(series):
        return partial(_read_nulls, series)
    if kind == "O":
        for rows in row_slices(len(series), SCAN_ROWS):
            check_objects(series[rows].to_numpy(), name, library)
        return partial(_read_objects, series)
    view = _whole_column(series)
    return partial(_read_numbers, series, kind) if view is None else view.__getitem__


def _read_nulls(series: Any, rows: Rows) -> np.ndarray:
    return np.full(len(series[rows]), np.nan, np.float32)


def _read_objects(series: Any, rows: Rows) -> np.ndarray:
    return to_float32(series[rows].to_numpy())


def _read_numbers(series: Any, kind: str, rows: Rows) -> np.ndarray:
    part = series[rows]
    if kind == "f" or not part.null_count():
        return part.to_numpy()
    # Round nullable integers to float32 once: to_numpy would go through float64.
    values = part.fill_null(False if kind == "b" else 0).to_numpy().astype(np.float32)
    values[part.is_null().to_numpy()] = np.nan
    return values


def _dictionary(series: Any) -> tuple[list[Any], Read]:
    """The category values of a column, and a function rows → codes into them, -1 where null."""
    import narwhals as nw

    native = series.to_native()
    if series.implementation.is_polars():
        import polars

        # A Categorical's own codes depend on what the process read before, so number the values present, sorted.
        is_enum = series.dtype == nw.Enum
        values = native.dtype.categories if is_enum else native.unique().drop_nulls().cast(polars.String).sort()
        return values.to_list(), partial(_read_polars_codes, series, polars.Enum(values))
    if series.implementation.is_pyarrow() or hasattr(native.dtype, "pyarrow_dtype"):
        chunks = native if series.implementation.is_pyarrow() else native.array.__arrow_array__()
        unified = nw.from_native(chunks.unify_dictionaries(), series_only=True)
        values = unified.to_native().chunk(0).dictionary.to_pylist() if chunks.num_chunks else []
        return values, partial(_read_arrow_codes, unified)
    return native.cat.categories.tolist(), partial(_read_pandas_codes, series)


def _read_polars_codes(series: Any, enum: Any, rows: Rows) -> np.ndarray:
    import polars

    return series[rows].to_native().cast(enum).to_physical().cast(polars.Int64).fill_null(-1).to_numpy()


def _read_arrow_codes(series: Any, rows: Rows) -> np.ndarray:
    parts = (chunk.indices.cast("int64").fill_null(-1).to_numpy() for chunk in series[rows].to_native().chunks)
    return np.concatenate([np.empty(0, np.int64), *parts])


def _read_pandas_codes(series: Any, rows: Rows) -> np.ndarray:
    return series[rows].to_native().cat.codes.to_numpy()


def _whole_array(frame: Any) -> Array | None:
    """A pandas frame that stores one float32 or float64 block, as that array; None when to_numpy would copy."""
    native = frame.to_native()
    if not frame.implementation.is_pandas() or set(native.dtypes) not in ({np.dtype(np.float32)}, {np.dtype(np.float64)}):
        return None
    head = native.iloc[:1]
    return native.to_numpy() if np.shares_memory(head.to_numpy(), head.iloc[:, 0].to_numpy()) else None


def _whole_column(series: Any) -> Array | None:
    """The column as one NumPy view; None when its library would have to copy."""
    native = series.to_native()
    if series.implementation.is_pandas():
        return native.to_numpy() if isinstance(native.dtype, np.dtype) else None
    try:
        if series.implementation.is_polars():
            return native.to_numpy(allow_copy=False)
        if series.implementation.is_pyarrow() and native.num_chunks == 1:
            return native.chunk(0).to_numpy(zero_copy_only=True)
    except (RuntimeError, ValueError):  # polars and pyarrow: not without a copy
        pass
    return None
