"""Any table (NumPy array, list of rows, pandas, polars or pyarrow frame) as a re-iterable source of column batches."""

import datetime
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np

from gpuboost import errors

__all__ = ["ColumnSource", "align_columns", "open_table"]

Array = np.ndarray
Rows = slice | Array  # a range of rows, or int (n,) row numbers
Read = Callable[[Rows], Array]

FEATURE_TYPES = ("float", "int", "i", "q", "c")  # XGBoost's letters: i is boolean, q any number, c a category
BATCH_BYTES = 8 << 20  # of a float32 batch: small beside any table worth batching
MIN_BATCH_ROWS = 1024  # keeps the cost per column and batch small in wide tables
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
    """

    n_rows: int
    n_features: int
    feature_names: list[str] | None
    feature_types: list[str] | None
    categories: dict[str, list[Any]]
    missing: float
    read: Read = field(repr=False)

    def batches(self, batch_rows: int | None = None) -> Iterator[Array]:
        """The rows from first to last, as float32 or float64 (at most batch_rows, n_features) arrays.

        batch_rows : None chooses about 8 MB. The batches of an aligned native float32 or float64 array are views of it.
        """
        if batch_rows is not None and batch_rows < 1:
            raise ValueError(f"batch_rows must be at least 1, got {batch_rows}. Leave it out for batches of about 8 MB.")
        return map(self.read, _slices(self.n_rows, batch_rows or _default_rows(self.n_features)))

    def rows(self, index: Any) -> Array:
        """The rows with the given numbers (int (n,)), as float32 or float64 (n, n_features): a copy."""
        return self.read(np.asarray(index, dtype=np.intp))


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

    missing : None means NaN. A number means that values equal to it, compared as float32, are missing too.
    feature_names, feature_types : replace those of a frame; name the columns of an array.
    categories, expected_names, expected_count : of a trained model. Categories are matched to it by value, named columns by
        name, unnamed ones by their number. A category it does not know becomes missing, with one UserWarning.
    Warns (UserWarning, once) when integers of a training table have more digits than float32.
    Raises ValueError naming the column that cannot be used, TypeError for what is no table, NotImplementedError for
    sparse and GPU input.
    """
    _refuse_unbuilt(data)
    number = _missing_value(missing)
    frame = None if isinstance(data, np.ndarray | list | tuple) else _as_frame(data)
    table = _as_array(data) if frame is None else frame
    n_rows, n_features = table.shape
    if n_features == 0:
        raise ValueError("data has 0 columns. Pass at least one feature.")

    names = _checked_names(frame.columns if frame is not None and feature_names is None else feature_names, n_features)
    types = _checked_types(feature_types, n_features)
    order = list(range(n_features)) if names is None or expected_names is None else align_columns(names, expected_names)
    count = expected_count if expected_names is None else len(expected_names)
    if count not in (None, n_features):
        raise ValueError(f"data has {n_features} columns, but the model was trained on {count}. Pass the training columns.")

    is_training = categories is None and count is None
    dictionaries: dict[str, list[Any]] = {}
    if frame is None:
        read = _array_reader(table, names or [str(j) for j in range(n_features)], is_training)
    else:
        assert names is not None
        letters, dictionaries, read = _read_frame(frame, names, categories, is_training, number)
        types = types or letters
        for name, letter in zip(names, types):
            if name in dictionaries and letter != "c":
                raise ValueError(f"feature_types of {_column(name)} must be 'c', as it holds categories, got {letter!r}.")
        if dictionaries:
            number = np.nan  # replaced by the reader, which knows that a category's code may equal it
    if order != sorted(order):
        names, types = list(expected_names or ()), types and [types[j] for j in order]
        read_unordered = read
        read = lambda rows: read_unordered(rows)[:, order]
    return ColumnSource(n_rows, n_features, names, types, dictionaries, number, read)


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


def _refuse_unbuilt(data: Any) -> None:
    module = type(data).__module__
    if module.split(".")[0] in ("cupy", "cupyx", "cudf") or hasattr(data, "__cuda_array_interface__"):
        raise errors.not_built("GPU arrays as input", "Pass a NumPy array, such as X.get() of a CuPy array.")
    if module.startswith("scipy.sparse"):
        raise errors.not_built("Sparse input", "Pass X.toarray() for now.")


def _missing_value(missing: float | None) -> float:
    """The number as the float32 value that the data are compared with."""
    if missing is None:
        return np.nan
    if not isinstance(missing, Real):
        raise TypeError(f"missing must be a number or None, got {missing!r}. Use None or float('nan') for NaN.")
    with np.errstate(over="ignore"):
        return float(np.float32(missing))


def _checked_names(given: Iterable[Any] | None, n_features: int) -> list[str] | None:
    if given is None:
        return None
    names = [str(name) for name in given]
    if len(names) != n_features:
        raise ValueError(f"feature_names must hold one name a column ({n_features}), got {len(names)}.")
    if repeated := [name for name, count in Counter(names).items() if count > 1]:
        raise ValueError(f"Column names must be unique, but these repeat: {_listing(repeated)}. Rename them.")
    return names


def _checked_types(given: Iterable[str] | None, n_features: int) -> list[str] | None:
    if given is None:
        return None
    types = list(given)
    if len(types) != n_features:
        raise ValueError(f"feature_types must hold one letter a column ({n_features}), got {len(types)}.")
    if wrong := [letter for letter in types if letter not in FEATURE_TYPES]:
        raise ValueError(f"feature_types must be among {', '.join(FEATURE_TYPES)}, got {wrong[0]!r}. Use 'c' for categories.")
    return types


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
        _checked_names(names, len(names))
        raise
    return frame if isinstance(frame, nw.DataFrame) else None


def _as_array(data: Any) -> Array:
    """The table as a 2-D array of numbers (perhaps a MaskedArray) or objects; copied only when objects are masked."""
    try:
        table = data if isinstance(data, np.ma.MaskedArray) else np.asarray(data)
    except ValueError as error:
        raise ValueError(f"data must be a table whose rows are equally long. {error}") from None
    if table.ndim == 0:
        raise TypeError(f"data must be a 2-D array, a list of rows or a data frame, got {type(data).__name__}.")
    if table.dtype.kind not in "biufO":
        raise _unusable("data", table.dtype, table.dtype.kind, "x")
    if table.ndim == 1:
        hint = "Use X.reshape(-1, 1) for one column, X.reshape(1, -1) for one row."
        raise ValueError(f"data must be 2-D, got 1-D of shape {table.shape}. {hint}")
    if table.ndim > 2:
        raise ValueError(f"data must be 2-D, got {table.ndim}-D of shape {table.shape}. Use X.reshape(len(X), -1).")
    if table.dtype.kind == "O" and np.ma.is_masked(table):
        objects = np.array(np.ma.getdata(table))
        objects[np.ma.getmask(table)] = None
        return objects
    return table


# ---- arrays


def _array_reader(table: Array, labels: list[str], is_training: bool) -> Read:
    """table : 2-D, numbers, booleans or objects, possibly a MaskedArray. labels : the columns' names in messages."""
    kind, is_masked = table.dtype.kind, isinstance(table, np.ma.MaskedArray)
    if table.dtype in (np.float32, np.float64) and table.dtype.isnative and table.flags.aligned and not is_masked:
        return table.__getitem__
    if kind == "O":
        for j, label in enumerate(labels):
            _check_objects(table[:, j], label)
    if kind in "iu" and is_training:
        parts = (np.ma.filled(table[rows], 0) for rows in _slices(len(table), _default_rows(len(labels))))
        lossy = {j for part in parts for j in np.flatnonzero(_exceeds_float32(part).any(axis=0))}
        _warn_lossy([labels[j] for j in sorted(lossy)])
    return lambda rows: np.ma.filled(_to_float32(table[rows]), np.nan)


def _to_float32(values: Array) -> Array:
    """A float32 copy, rounded once from the source's own precision; None and pandas.NA become NaN."""
    with np.errstate(over="ignore", invalid="ignore"):  # 1e39 becomes inf, which training reports
        try:
            return values.astype(np.float32)
        except TypeError:  # pandas.NA: the one allowed object that float() refuses
            import pandas

            is_present = pandas.notna(values)
            numbers = np.full(values.shape, np.nan, np.float32)
            numbers[is_present] = values[is_present]
            return numbers


def _check_objects(values: Array, name: str) -> None:
    """Raise ValueError unless every object is a number, a boolean, None or pandas.NA."""
    for kind in set(map(type, values.tolist())):
        if not (issubclass(kind, Real | Decimal | np.bool_ | type(None)) or kind.__name__ == "NAType"):
            is_date = issubclass(kind, datetime.date | datetime.timedelta | np.datetime64 | np.timedelta64)
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


def _read_frame(
    frame: Any, names: list[str], categories: dict[str, list[Any]] | None, is_training: bool, missing: float
) -> tuple[list[str], dict[str, list[Any]], Read]:
    """The letters of a frame's columns, its dictionaries, and its reader: rows → column-major float32."""
    import narwhals as nw

    whole = _whole_array(frame)
    if whole is not None and not categories:
        return ["float"] * len(names), {}, whole.__getitem__
    letters, readers, dictionaries, unseen, lossy = [], [], {}, [], []
    for series, name in zip(frame.iter_columns(), names):
        known = None if categories is None else categories.get(name)
        if series.dtype in (nw.Int128, nw.UInt128):  # unknown to NumPy
            series = series.cast(nw.Float64)
        if series.dtype in (nw.Categorical, nw.Enum):
            if categories is not None and known is None:
                raise ValueError(f"{_column(name)} holds categories, but held numbers in training. Convert it to numbers.")
            read, dictionaries[name], strangers = _category_reader(series, known)
            letter = "c"
            unseen += [f"{_column(name)}: {_listing(strangers)}"] * bool(strangers)
        elif known is not None and series.null_count() < len(series):
            raise ValueError(f"{_column(name)} holds {series.dtype}, but held categories in training. {HINTS['U'].format(name)}")
        else:
            letter, read = _number_reader(series, name)
            parts = (series[rows].drop_nulls().to_numpy() for rows in _slices(len(series), SCAN_ROWS))
            if is_training and letter == "int" and any(_exceeds_float32(part).any() for part in parts):
                lossy.append(name)
        letters.append(letter)
        readers.append(read)
    if unseen:
        warnings.warn(f"Categories unknown to the model become missing. {'; '.join(unseen)}.", UserWarning, stacklevel=3)
    _warn_lossy(lossy)

    def read_block(rows: Rows) -> Array:
        n = len(range(*rows.indices(len(frame)))) if isinstance(rows, slice) else len(rows)
        block = np.empty((n, len(readers)), np.float32, order="F")
        with np.errstate(over="ignore", invalid="ignore"):  # 1e39 becomes inf, which training reports
            for values, name, read in zip(block.T, names, readers):
                values[:] = read(rows)
                if dictionaries and name not in dictionaries:
                    values[values == missing] = np.nan
        return block

    return letters, dictionaries, read_block


def _number_reader(series: Any, name: str) -> tuple[str, Read]:
    """The letter and the reader (rows → (n,) numbers, NaN where missing) of a column that holds no categories."""
    sample = series[:0].to_numpy()
    kind = sample.dtype.kind if sample.ndim == 1 else "V"
    if kind not in "biuf" and series.null_count() == len(series):
        return "float", lambda rows: np.full(len(series[rows]), np.nan, np.float32)
    if kind == "O":
        for rows in _slices(len(series), SCAN_ROWS):
            _check_objects(series[rows].to_numpy(), name)
        return "float", lambda rows: _to_float32(series[rows].to_numpy())
    if kind not in "biuf":
        raise _unusable(_column(name), series.dtype, kind, name)

    def read(rows: Rows) -> Array:
        part = series[rows]
        if kind == "f" or not part.null_count():
            return part.to_numpy()
        # Round nullable integers to float32 once: to_numpy would go through float64.
        values = part.fill_null(False if kind == "b" else 0).to_numpy().astype(np.float32)
        values[part.is_null().to_numpy()] = np.nan
        return values

    view = _whole_column(series)
    return {"b": "i", "f": "float"}.get(kind, "int"), read if view is None else view.__getitem__


def _category_reader(series: Any, known: list[Any] | None) -> tuple[Read, list[Any], list[Any]]:
    """The reader of a category column (rows → (n,) codes, NaN where missing), its dictionary, and values not in ``known``."""
    raw, codes = _dictionary(series)
    values = [_plain(value) for value in raw]
    dictionary = list(dict.fromkeys(v for v in values if v is not None)) if known is None else known
    position = {_plain(value): code for code, value in enumerate(dictionary)}
    table = np.array([position.get(value, np.nan) for value in values] + [np.nan], dtype=np.float32)  # code -1 reads the last
    strangers: list[Any] = []
    if any(value is not None and value not in position for value in values):
        is_used = np.zeros(len(table), bool)
        for rows in _slices(len(series), SCAN_ROWS):
            is_used[codes(rows)] = True
        strangers = [v for v, used in zip(values, is_used) if used and v is not None and v not in position]
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
    """A category value that a model file can hold: text, number or boolean; anything else (intervals, dates) by its text."""
    value = value.item() if isinstance(value, np.generic) else value
    if value is None or value != value:
        return None
    return value if isinstance(value, str | int | float) else str(value)


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


def _default_rows(n_features: int) -> int:
    return max(MIN_BATCH_ROWS, BATCH_BYTES // (4 * n_features))


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
        warnings.warn(text, UserWarning, stacklevel=4)
