"""Any table (array, list of rows, sparse matrix, pandas, polars, pyarrow or cudf frame) as a re-iterable source of batches.

Tables on a GPU stay there: device_tables.py knows them, this module checks them as it checks all others.
"""

import datetime
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from decimal import Decimal
from importlib.util import find_spec
from numbers import Real
from typing import Any

import numpy as np

from gpuboost import errors
from gpuboost.binned.pages import StoredRows
from gpuboost.config import warn
from gpuboost.data.device_tables import (
    CudfColumn,
    CudfFrame,
    current_device,
    host_array,
    is_device_table,
    open_device_table,
    read_on,
)
from gpuboost.data.sparse import SparseTable, float32_values, is_sparse, stored_reader

__all__ = ["ColumnSource", "LoadedTable", "align_columns", "as_floats", "check_names", "check_types", "load_table", "open_table"]

Array = Any  # NumPy or CuPy
Rows = slice | Array  # a range of rows, or int (n,) row numbers
Read = Callable[[Rows], Array]

FEATURE_TYPES = ("float", "int", "i", "q", "c")  # XGBoost's letters: i is boolean, q any number, c a category
BATCH_BYTES = 8 << 20  # of a float32 batch: small beside any table worth batching
DEVICE_FACTOR = 32  # times as many on a GPU (256 MB): a batch is a few kernel launches there, whatever its size
MIN_BATCH_ROWS = 1024  # keeps the cost per column and batch small in wide tables
LARGEST = float(np.finfo(np.float32).max)  # as the sketch, which takes values of this size for infinite
SCAN_ROWS = 1 << 18  # rows of one column that a check looks at together
HINTS = {  # NumPy kind → what to do about it
    "U": 'Convert it to categories: df["{0}"] = df["{0}"].astype("category").',
    "M": 'Use .astype("int64"), or extract parts such as the year or the weekday.',
    "c": "Pass the real and the imaginary part as two columns.",
    "V": "Convert it to columns of numbers, for example with pandas.DataFrame(X).",
}


@dataclass(frozen=True, eq=False)
class ColumnSource:
    """A table that can be read any number of times, in row order.

    feature_names, feature_types : None for plain arrays. Types are XGBoost's letters.
    categories : column name → its category values in code order, for columns that hold categories.
    missing : the float32 value that means missing besides NaN, for the reader of the batches to apply; NaN when only NaN does.
    read : rows → float32 or float64 (n, n_features), any strides, possibly read-only.
    device : number of the CUDA device that the batches lie on, as CuPy arrays; None: they are NumPy arrays.
    stored : the table as scipy.sparse.csr_array, where it is sparse; its batches, written out, cost memory that it does not.
    absent : the value of what it does not store: NaN (missing), or 0.
    read_unchecked : of a source that finite() made: read without the check.
    """

    n_rows: int
    n_features: int
    feature_names: list[str] | None
    feature_types: list[str] | None
    categories: dict[str, list[Any]]
    missing: float
    read: Read = field(repr=False)
    device: int | None = None
    stored: Any = field(default=None, repr=False)
    absent: float = np.nan
    read_unchecked: Read | None = field(default=None, repr=False)

    def batches(self, batch_rows: int | None = None) -> Iterator[Array]:
        """The rows from first to last, as float32 or float64 (at most batch_rows, n_features) arrays.

        batch_rows : None chooses about 8 MB, 256 MB on a GPU. The batches of an aligned native float32 or float64 array are
            views of it.
        """
        if batch_rows is not None and batch_rows < 1:
            raise ValueError(f"batch_rows must be at least 1, got {batch_rows}. Leave it out for batches of about 8 MB.")
        return map(self.read, self.batch_slices(batch_rows))

    def batch_slices(self, batch_rows: int | None = None, least: int = MIN_BATCH_ROWS) -> Iterator[slice]:
        """The rows of each batch. least : rows of one, where the table is not sparse and batch_rows is None."""
        default = _default_rows(self.n_features, least if self.stored is None else 1)
        default *= 1 if self.device is None else DEVICE_FACTOR
        return _slices(self.n_rows, batch_rows or default)

    def rows(self, index: Any) -> Array:
        """The rows with the given numbers (int (n,)), as float32 or float64 (n, n_features): a copy."""
        return self.read(np.asarray(index, dtype=np.intp))

    def taken(self, index: Array) -> "ColumnSource":
        """The table of the rows with the given numbers, intp (n,), in that order."""
        stored = None if self.stored is None else self.stored[index]
        return replace(self, n_rows=len(index), read=lambda rows: self.read(index[rows]), stored=stored, read_unchecked=None)

    def absent_as(self, value: float) -> "ColumnSource":
        """The same table with that value, NaN or 0, for what a sparse one does not store."""
        if self.stored is None or value == self.absent or value != value and self.absent != self.absent:
            return self
        return replace(self, absent=value, read=stored_reader(self.stored, value), read_unchecked=None)

    def stored_rows(self) -> StoredRows:
        """All rows of a sparse table; ValueError for the first value that is infinite or too large for float32."""
        matrix, values = self.stored, float32_values(self.stored)
        for i in np.flatnonzero((abs(values) >= LARGEST) & (values != np.float32(self.missing)))[:1]:
            row = int(np.searchsorted(matrix.indptr, i, side="right")) - 1
            raise self._infinite(int(matrix.indices[i]), row, matrix.data[i])
        row_begin, columns = matrix.indptr.astype(np.int64, copy=False), matrix.indices.astype(np.int32, copy=False)
        return StoredRows(row_begin, columns, values, self.missing, self.absent, self.n_features)

    def finite(self) -> "ColumnSource":
        """The same table, whose reader raises ValueError for the first value that is infinite or too large for float32."""
        return replace(self, read=lambda rows: self._checked(rows, self.read(rows)), read_unchecked=self.read)

    def _checked(self, rows: Rows, block: Array) -> Array:
        with current_device(self.device):
            if (abs(block) >= LARGEST).any():
                with np.errstate(over="ignore"):
                    is_bad = host_array((abs(block) >= LARGEST) & (block.astype(np.float32) != np.float32(self.missing)))
                for i, j in np.argwhere(is_bad)[:1]:
                    row = int(np.arange(self.n_rows)[rows][i]) if isinstance(rows, slice) else int(rows[i])
                    raise self._infinite(j, row, block[i, j])
        return block

    def _infinite(self, column: int, row: int, value: Any) -> ValueError:
        name = _column(self.feature_names[column] if self.feature_names else str(column))
        return ValueError(
            f"{name} holds a value that is infinite or at least 3.4028235e38 in size, outside float32, in row {row}: "
            f"{float(value)}. Replace it, or set it to NaN to treat it as missing."
        )


@dataclass(frozen=True, eq=False)
class LoadedTable:
    """A table that is at hand: a plan has run, a stream has been read, a list is an array. open_table reads it as often as asked.

    table : array of any shape and kind, frame or sparse matrix. device : number of its CUDA device; None: the host.
    """

    table: Any
    device: int | None


def load_table(data: Any) -> LoadedTable:
    """Run or read what can be read only once, or would be slow to read again. Arrays and frames are not copied.

    Raises TypeError for what is no table, ValueError for rows of unequal length, ImportError for a table on a GPU without CuPy.
    """
    _refuse_device_sparse(data)
    return LoadedTable(*(open_device_table(data) if is_device_table(data) else (_open_host_table(data), None)))


def open_table(
    data: Any,
    *,
    missing: float | None = np.nan,
    feature_names: Iterable[Any] | None = None,
    feature_types: Iterable[str] | None = None,
    categories: dict[str, list[Any]] | None = None,
    expected_names: list[str] | None = None,
    expected_count: int | None = None,
) -> ColumnSource:
    """Check a table once and return it as a ColumnSource, which converts it batch by batch.

    data : the table, or what load_table made of it.
    missing : None means NaN. A number means that values equal to it, compared as float32, are missing too.
    feature_names, feature_types : replace those of a frame; name the columns of an array.
    categories, expected_names, expected_count : of a trained model. Categories are matched to it by value, named columns by
        name, unnamed ones by their number. A category it does not know becomes missing, with one UserWarning.
    Warns (UserWarning, once) when integers of a training table have more digits than float32.
    Raises ValueError naming the column that cannot be used, and what load_table raises.
    """
    number = _missing_value(missing)
    loaded = data if isinstance(data, LoadedTable) else load_table(data)
    table, device = loaded.table, loaded.device
    frame = table if isinstance(table, _HostFrame | CudfFrame) else None
    stored = table.matrix if isinstance(table, SparseTable) else None
    if frame is None and stored is None:
        table = _checked_array(table)
    n_rows, n_features = table.shape
    if n_features == 0:
        raise ValueError("data has 0 columns. Pass at least one feature.")

    names = check_names(frame.names if frame is not None and feature_names is None else feature_names, n_features)
    types = check_types(feature_types, n_features)
    order = None if names is None or expected_names is None else align_columns(names, expected_names)
    count = expected_count if expected_names is None else len(expected_names)
    if count not in (None, n_features):
        raise ValueError(f"data has {n_features} columns, but the model was trained on {count}. Pass the training columns.")

    is_training = categories is None and count is None
    letters: list[str] | None = None
    dictionaries: dict[str, list[Any]] = {}
    with current_device(device):
        label_of = names.__getitem__ if names else str
        if stored is not None:
            read = _sparse_reader(table, label_of, is_training)
        elif frame is None:
            read = _array_reader(table, label_of, is_training)
        else:
            assert names is not None
            letters, dictionaries, read = _read_frame(frame, names, categories, is_training, number)
    types = types or letters
    for name, letter in zip(names or (), types or ()):
        if name in dictionaries and letter != "c":
            raise ValueError(f"feature_types of {_column(name)} must be 'c', as it holds categories, got {letter!r}.")
    if dictionaries:
        number = np.nan  # replaced by the reader, which knows that a category's code may equal it
    if order is not None and order != sorted(order):
        names, types = list(expected_names or ()), types and [types[j] for j in order]
        read_unordered = read
        read = lambda rows: read_unordered(rows)[:, order]
        stored = None if stored is None else stored[:, order].sorted_indices()
    if device is not None:
        read = read_on(device, read)
    return ColumnSource(n_rows, n_features, names, types, dictionaries, number, read, device, stored)


def align_columns(names: list[str], model_names: list[str]) -> list[int]:
    """Where each of the model's columns stands in ``names``; ValueError names the columns that are missing or unknown."""
    position = {name: j for j, name in enumerate(names)}
    expected = set(model_names)
    absent = [name for name in model_names if name not in position]
    unknown = [name for name in names if name not in expected]
    if absent or unknown:
        faults = [f"lacks {_listing(absent)}"] * bool(absent) + [f"has the unknown {_listing(unknown)}"] * bool(unknown)
        raise ValueError(f"data {' and '.join(faults)}. Pass the columns the model was trained on, in any order.")
    return [position[name] for name in model_names]


# ---- the arguments


def _refuse_device_sparse(data: Any) -> None:
    if type(data).__module__.startswith("cupyx.scipy.sparse"):
        raise errors.not_built("Sparse input on a GPU", "Pass X.get(), its copy on the host.")


def _missing_value(missing: float | None) -> float:
    """The number as the float32 value that the data are compared with."""
    if missing is None:
        return np.nan
    if not isinstance(missing, Real):
        raise TypeError(f"missing must be a number or None, got {missing!r}. Use None or float('nan') for NaN.")
    with np.errstate(over="ignore"):
        return float(np.float32(missing))


def check_names(given: Iterable[Any] | None, n_features: int) -> list[str] | None:
    """The names as text; ValueError where there is not one for each column, or two are equal."""
    if given is None:
        return None
    names = _one_a_column("feature_names", "name", given, n_features)
    if repeated := [name for name, count in Counter(names).items() if count > 1]:
        raise ValueError(f"Column names must be unique, but these repeat: {_listing(repeated)}. Rename them.")
    return names


def check_types(given: Iterable[str] | None, n_features: int) -> list[str] | None:
    """The types as a list; ValueError where there is not one letter of FEATURE_TYPES for each column."""
    if given is None:
        return None
    types = _one_a_column("feature_types", "letter", given, n_features)
    if wrong := [letter for letter in types if letter not in FEATURE_TYPES]:
        raise ValueError(f"feature_types must be among {', '.join(FEATURE_TYPES)}, got {wrong[0]!r}. Use 'c' for categories.")
    return types


def _one_a_column(argument: str, what: str, given: Iterable[Any], n_features: int) -> list[str]:
    """The items as text."""
    items = [str(item) for item in given] if isinstance(given, Iterable) else None
    if items is None or len(items) != n_features:
        got = repr(given) if items is None else len(items)
        raise ValueError(f"{argument} must hold one {what} a column ({n_features}), got {got}.")
    return items


def _as_frame(data: Any) -> Any:
    """A narwhals DataFrame, or None when the object is no frame."""
    import narwhals as nw

    if type(data).__name__ == "RecordBatch":
        return nw.from_arrow(data, backend="pyarrow")
    try:
        frame = nw.from_native(data, pass_through=True)
        frame = frame.collect() if isinstance(frame, nw.LazyFrame) else frame
    except nw.exceptions.DuplicateError:
        names = [str(name) for name in getattr(data, "column_names", data.columns)]
        check_names(names, len(names))
        raise
    if frame is data and hasattr(data, "__arrow_c_stream__"):  # from a library that narwhals does not know
        return _read_arrow_stream(data)
    return frame if isinstance(frame, nw.DataFrame) else None


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


def _open_host_table(data: Any) -> Any:
    """A _HostFrame, a SparseTable, or a NumPy array of any shape and kind, perhaps a MaskedArray."""
    if is_sparse(data):
        return SparseTable(_checked_array(data))
    data = host_array(data)  # an array that speaks only DLPack
    frame = None if isinstance(data, np.ndarray | list | tuple) else _as_frame(data)
    if frame is not None:
        return _HostFrame(frame)
    try:
        table = data if isinstance(data, np.ma.MaskedArray) else np.asarray(data)
    except ValueError as error:
        raise ValueError(f"data must be a table whose rows are equally long. {error}") from None
    if table.ndim == 0:
        raise TypeError(f"data must be a 2-D array, a list of rows or a data frame, got {type(data).__name__}.")
    return table


def _checked_array(table: Array) -> Array:
    """The array, if it is 2-D and holds numbers (it may be a MaskedArray) or objects; copied only when objects are masked."""
    if table.dtype.kind not in "biufO":
        raise _unusable("data", table.dtype, table.dtype.kind, "x")
    if table.ndim < 2:
        hint = "Use X.reshape(-1, 1) for one column, X.reshape(1, -1) for one row."
        raise ValueError(f"data must be 2-D, got {table.ndim}-D of shape {table.shape}. {hint}")
    if table.ndim > 2:
        raise ValueError(f"data must be 2-D, got {table.ndim}-D of shape {table.shape}. Use X.reshape(len(X), -1).")
    if table.dtype.kind == "O" and np.ma.is_masked(table):
        objects = np.array(np.ma.getdata(table))
        objects[np.ma.getmask(table)] = None
        return objects
    return table


# ---- arrays


def _array_reader(table: Array, label_of: Callable[[int], str], is_training: bool) -> Read:
    """table : 2-D, numbers, booleans or objects, possibly a MaskedArray; or numbers and booleans on a GPU.

    label_of : a column's name in messages.
    """
    kind, is_masked, is_host = table.dtype.kind, isinstance(table, np.ma.MaskedArray), isinstance(table, np.ndarray)
    is_usable = not is_host or (table.dtype.isnative and table.flags.aligned and not is_masked)
    if table.dtype in (np.float32, np.float64) and is_usable:
        return table.__getitem__
    if kind == "O":
        for j in range(table.shape[1]):
            _check_objects(table[:, j], label_of(j))
    if kind in "iu" and is_training:
        parts = (table[rows] for rows in _slices(len(table), _default_rows(table.shape[1])))
        parts = (np.ma.filled(part, 0) if is_masked else part for part in parts)
        lossy = {j for part in parts for j in np.flatnonzero(host_array(_exceeds_float32(part).any(axis=0)))}
        _warn_lossy([label_of(int(j)) for j in sorted(lossy)])
    if not is_host:
        return lambda rows: table[rows].astype(np.float32)
    return lambda rows: np.ma.filled(_to_float32(table[rows]), np.nan)


def _sparse_reader(table: SparseTable, label_of: Callable[[int], str], is_training: bool) -> Read:
    if is_training and table.matrix.dtype.kind in "iu":
        lossy = np.unique(table.matrix.indices[_exceeds_float32(table.matrix.data)])
        _warn_lossy([label_of(int(j)) for j in lossy])
    return stored_reader(table.matrix, np.nan)


def _to_float32(values: Array) -> Array:
    """A float32 copy, rounded once from the source's own precision; None and pandas.NA become NaN."""
    with np.errstate(over="ignore", invalid="ignore"):  # 1e39 becomes inf, which training reports
        return (as_floats(values) if values.dtype.kind == "O" else values).astype(np.float32)


def as_floats(values: Array) -> Array:
    """float64 of objects or text: None, pandas.NA and any NaN become NaN, what float64 cannot hold infinite.

    Raises TypeError or ValueError where one is no number.
    """
    with suppress(TypeError, ValueError, OverflowError):
        return values.astype(np.float64)  # fast, and enough for most
    return np.array([_float(value) for value in values.flat], np.float64).reshape(values.shape)


def _float(value: Any) -> float:
    if value is None or type(value).__name__ == "NAType" or (isinstance(value, Decimal) and value.is_nan()):
        return np.nan
    try:
        return float(value)
    except OverflowError:
        return np.inf if value > 0 else -np.inf


def _check_objects(values: Array, name: str) -> None:
    """Raise ValueError unless every object is a number, a boolean, None or pandas.NA."""
    for kind in set(map(type, values.tolist())):
        if not (issubclass(kind, Real | Decimal | np.bool_ | type(None)) or kind.__name__ == "NAType"):
            is_date = issubclass(kind, datetime.date | datetime.time | datetime.timedelta | np.datetime64 | np.timedelta64)
            raise _unusable(_column(name), kind.__name__, "U" if issubclass(kind, str | bytes) else "M" if is_date else "V", name)


def _exceeds_float32(integers: Array) -> Array:
    """Which integers are no float32 values, bool of the same shape.

    m = q · 2**z with q odd is a float32 value iff q < 2**24, that is, iff m >> 24 is below its lowest set bit 2**z.
    """
    if integers.dtype.itemsize < 4 or not integers.size or max(-int(integers.min()), int(integers.max())) <= 1 << 24:
        return np.zeros(integers.shape, bool)
    m = (np.abs(integers.astype(np.int64)) if integers.dtype.kind == "i" else integers).astype(np.uint64)
    lowest_bit = m & (~m + np.uint64(1))
    return (m >> np.uint64(24) >= lowest_bit) & (m != 0)


# ---- frames


class _HostColumn:
    """A narwhals Series as _read_frame asks it. device_tables.CudfColumn is its twin on a GPU."""

    def __init__(self, series: Any) -> None:
        import narwhals as nw

        self._series = series.cast(nw.Float64) if series.dtype in (nw.Int128, nw.UInt128) else series  # unknown to NumPy
        self.dtype = self._series.dtype
        self.is_categorical = self.dtype in (nw.Categorical, nw.Enum)

    @property
    def kind(self) -> str:
        """NumPy's letter for the values; V where they are lists or structs."""
        import narwhals as nw

        if self.dtype.is_temporal():
            return "M"
        if self.dtype == nw.Unknown and hasattr(getattr(self._series.to_native(), "dtype", None), "pyarrow_dtype"):
            return "O"  # an empty sample of these is float64, whatever they hold
        sample = self._series[:0].to_numpy()
        return sample.dtype.kind if sample.ndim == 1 else "V"

    def is_null(self) -> bool:
        """Whether there is no value at all."""
        return self._series.null_count() == len(self._series)

    def number_reader(self, name: str) -> Read:
        """rows → (n,) numbers, NaN where missing."""
        return _number_reader(self._series, self.kind, name)

    def present_integers(self, rows: Rows) -> Array:
        """What a column of integers holds in these rows; what stands for its nulls, if anything, fits float32."""
        return self._series[rows].drop_nulls().to_numpy()

    def dictionary(self) -> tuple[list[Any], Read]:
        """The values of a categorical column, and its reader: rows → int (n,) codes into them, -1 where null."""
        return _dictionary(self._series)


class _HostFrame:
    """A narwhals DataFrame as _read_frame asks it. device_tables.CudfFrame is its twin on a GPU."""

    xp = np

    def __init__(self, frame: Any) -> None:
        self._frame = frame
        self.shape = frame.shape
        self.names = frame.columns

    def columns(self) -> Iterator[_HostColumn]:
        return map(_HostColumn, self._frame.iter_columns())

    def whole_array(self) -> Array | None:
        """All of it as one float32 or float64 view; None when its library would have to copy."""
        return _whole_array(self._frame)


def _read_frame(
    frame: _HostFrame | CudfFrame, names: list[str], categories: dict[str, list[Any]] | None, is_training: bool, missing: float
) -> tuple[list[str], dict[str, list[Any]], Read]:
    """The letters of a frame's columns, its dictionaries, and its reader: rows → column-major float32."""
    whole = frame.whole_array()
    if whole is not None and not categories:
        return ["float"] * len(names), {}, whole.__getitem__
    n_rows, xp = frame.shape[0], frame.xp
    letters, readers, dictionaries, unseen, lossy = [], [], {}, [], []
    columns: Iterator[_HostColumn | CudfColumn] = frame.columns()
    for column, name in zip(columns, names):
        known = None if categories is None else categories.get(name)
        if column.is_categorical:
            if categories is not None and known is None:
                raise ValueError(f"{_column(name)} holds categories, but held numbers in training. Convert it to numbers.")
            read, dictionaries[name], strangers = _category_reader(column, name, n_rows, known, xp)
            letter = "c"
            unseen += [f"{_column(name)}: {_listing(strangers)}"] * bool(strangers)
        elif known is not None and not column.is_null():
            raise ValueError(f"{_column(name)} holds {column.dtype}, but held categories in training. {HINTS['U'].format(name)}")
        else:
            kind = column.kind
            if kind not in "biufO" and not column.is_null():
                raise _unusable(_column(name), column.dtype, kind, name)
            letter, read = {"b": "i", "i": "int", "u": "int"}.get(kind, "float"), column.number_reader(name)
            parts = map(column.present_integers, _slices(n_rows, SCAN_ROWS))
            if is_training and letter == "int" and any(_exceeds_float32(part).any() for part in parts):
                lossy.append(name)
        letters.append(letter)
        readers.append(read)
    if unseen:
        warn(f"Categories unknown to the model become missing. {'; '.join(unseen)}.", stacklevel=3)
    _warn_lossy(lossy)

    def read_block(rows: Rows) -> Array:
        n = len(range(*rows.indices(n_rows))) if isinstance(rows, slice) else len(rows)
        block = xp.empty((n, len(readers)), np.float32, order="F")
        with np.errstate(over="ignore", invalid="ignore"):  # 1e39 becomes inf, which training reports
            for values, name, read in zip(block.T, names, readers):
                values[:] = read(rows)
                if dictionaries and name not in dictionaries:
                    values[values == missing] = np.nan
        return block

    return letters, dictionaries, read_block


def _number_reader(series: Any, kind: str, name: str) -> Read:
    """The reader (rows → (n,) numbers, NaN where missing) of a column that holds numbers or objects, or only nulls."""
    if kind not in "biuf" and series.null_count() == len(series):
        return lambda rows: np.full(len(series[rows]), np.nan, np.float32)
    if kind == "O":
        for rows in _slices(len(series), SCAN_ROWS):
            _check_objects(series[rows].to_numpy(), name)
        return lambda rows: _to_float32(series[rows].to_numpy())

    def read(rows: Rows) -> Array:
        part = series[rows]
        if kind == "f" or not part.null_count():
            return part.to_numpy()
        # Round nullable integers to float32 once: to_numpy would go through float64.
        values = part.fill_null(False if kind == "b" else 0).to_numpy().astype(np.float32)
        values[part.is_null().to_numpy()] = np.nan
        return values

    view = _whole_column(series)
    return read if view is None else view.__getitem__


def _category_reader(
    column: _HostColumn | CudfColumn, name: str, n_rows: int, known: list[Any] | None, xp: Any
) -> tuple[Read, list[Any], list[Any]]:
    """The reader of a category column (rows → (n,) codes, NaN where missing), its dictionary, and values not in ``known``."""
    raw, codes = column.dictionary()
    values = [_plain(value) for value in raw]
    origin: dict[Any, Any] = {}
    for value, given in zip(values, raw):
        if value is not None and origin.setdefault(value, given) != given:
            raise ValueError(f"{_column(name)} holds two categories with the same text, {value!r}. Give each its own text.")
    dictionary = list(dict.fromkeys(v for v in values if v is not None)) if known is None else known
    position = {_plain(value): code for code, value in enumerate(dictionary)}
    # code -1 reads the last
    table = xp.asarray(np.array([position.get(value, np.nan) for value in values] + [np.nan], dtype=np.float32))
    strangers: list[Any] = []
    if any(value is not None and value not in position for value in values):
        used = xp.zeros(len(values) + 1, bool)
        for rows in _slices(n_rows, SCAN_ROWS):
            used[codes(rows)] = True
        strangers = [v for v, is_used in zip(values, host_array(used)) if is_used and v is not None and v not in position]
    return lambda rows: table[codes(rows)], dictionary, strangers


def _dictionary(series: Any) -> tuple[list[Any], Read]:
    """The category values of a column, and a function rows → codes into them, -1 where null."""
    import narwhals as nw

    native = series.to_native()
    if series.implementation.is_polars():
        import polars

        # A Categorical's own codes depend on what the process read before, so number the values present, sorted.
        is_enum = series.dtype == nw.Enum
        values = native.dtype.categories if is_enum else native.unique().drop_nulls().cast(polars.String).sort()
        enum = polars.Enum(values)
        codes = lambda part: part.cast(enum).to_physical().cast(polars.Int64).fill_null(-1).to_numpy()
        return values.to_list(), lambda rows: codes(series[rows].to_native())
    if series.implementation.is_pyarrow() or hasattr(native.dtype, "pyarrow_dtype"):
        chunks = native if series.implementation.is_pyarrow() else native.array.__arrow_array__()
        unified = nw.from_native(chunks.unify_dictionaries(), series_only=True)
        parts = lambda rows: (c.indices.cast("int64").fill_null(-1).to_numpy() for c in unified[rows].to_native().chunks)
        values = unified.to_native().chunk(0).dictionary.to_pylist() if chunks.num_chunks else []
        return values, lambda rows: np.concatenate([np.empty(0, np.int64), *parts(rows)])
    return native.cat.categories.tolist(), lambda rows: series[rows].to_native().cat.codes.to_numpy()


def _plain(value: Any) -> Any:
    """A category value that a model file can hold: text, finite number or boolean; all else (dates, intervals, inf) as text."""
    value = value.item() if isinstance(value, np.generic) else value
    if value is None or value != value:
        return None
    is_held = isinstance(value, str | int) or (isinstance(value, float) and math.isfinite(value))
    return value if is_held else str(value)


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


# ---- shared


def _default_rows(n_features: int, least: int = MIN_BATCH_ROWS) -> int:
    return max(least, BATCH_BYTES // (4 * n_features))


def _slices(n_rows: int, step: int) -> Iterator[slice]:
    return (slice(start, min(start + step, n_rows)) for start in range(0, n_rows, step))


def _column(name: str) -> str:
    return f'Column "{name}"'


def _listing(items: list[Any]) -> str:
    """The first five items, and how many more there are."""
    more = f" and {len(items) - 5} more" if len(items) > 5 else ""
    return ", ".join(f'"{item}"' for item in items[:5]) + more


def _unusable(where: str, dtype: Any, kind: str, name: str) -> ValueError:
    hint = HINTS[{"S": "U", "T": "U", "m": "M"}.get(kind, kind)].format(name)
    return ValueError(f"{where} holds {dtype}, but must hold numbers, booleans or categories. {hint}")


def _warn_lossy(names: list[str]) -> None:
    if names:
        text = f"Integers in {_listing(names)} have more digits than float32, so neighbours become equal"
        text += ": thresholds in the model file are float32. If they must stay apart, subtract an offset first."
        warn(text, stacklevel=4)
