"""Any table (array, list of rows, sparse matrix, pandas, polars, pyarrow or cudf frame), opened as a ColumnSource.

Here is decided which reader a table gets; all are checked alike. Tables on a GPU stay there.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from numbers import Real
from typing import Any

import numpy as np

from gpuboost import errors
from gpuboost.data.tables.arrays import array_reader, checked_array
from gpuboost.data.tables.batches import Array, Read, Rows
from gpuboost.data.tables.cudf_frames import CudfFrame
from gpuboost.data.tables.device import current_device, host_array, is_cudf, is_device_table, open_device_table, read_on
from gpuboost.data.tables.frames import read_frame
from gpuboost.data.tables.host_frames import HostFrame, as_frame
from gpuboost.data.tables.names import align_columns, check_names, check_types, quoted
from gpuboost.data.tables.source import ColumnSource
from gpuboost.data.tables.sparse import SparseTable, is_sparse, sparse_reader
from gpuboost.data.tables.spooled import SpooledTable
from gpuboost.data.tables.stack import Stack, join_categories, stack_sources

__all__ = ["LoadedTable", "load_table", "open_table"]

FRAMES = HostFrame, CudfFrame
NO_ARRAYS = HostFrame, CudfFrame, SparseTable, SpooledTable


@dataclass(frozen=True, eq=False)
class LoadedTable:
    """A table that is at hand: a plan has run, a stream has been read, a list is an array. open_table reads it as often as
    asked.

    table : array of any shape and kind, frame, sparse matrix, what came as a stream, or Stack of tables. device : number of its
        CUDA device; None: the host.
    """

    table: HostFrame | CudfFrame | SparseTable | SpooledTable | Stack | Array
    device: int | None


def load_table(data: Any) -> LoadedTable:
    """Run or read what can be read only once, or would be slow to read again. Arrays and frames are not copied.

    Raises TypeError for what is no table, ValueError for rows of unequal length, ImportError for a table on a GPU without CuPy.
    """
    if isinstance(data, Stack):
        parts = [load_table(part) for part in data.tables]
        return LoadedTable(Stack(parts, data.numbers), parts[0].device)
    if type(data).__module__.startswith("cupyx.scipy.sparse"):
        raise errors.not_built("Sparse input on a GPU", "Pass X.get(), its copy on the host.")
    if not is_device_table(data):
        return LoadedTable(_load_host_table(data), None)
    table, device = open_device_table(data)
    return LoadedTable(CudfFrame(table) if is_cudf(table, "DataFrame") else table, device)


def _load_host_table(data: Any) -> HostFrame | SparseTable | np.ndarray:
    """NumPy arrays may have any shape and kind, and be MaskedArrays."""
    if is_sparse(data):
        return SparseTable(checked_array(data))
    data = host_array(data)  # an array that speaks only DLPack
    frame = None if isinstance(data, np.ndarray | list | tuple) or _is_like_array(data) else as_frame(data)
    if frame is not None:
        return HostFrame(frame)
    try:
        table = data if isinstance(data, np.ma.MaskedArray) else np.asarray(data)
    except ValueError as error:
        raise ValueError(f"data must be a table whose rows are equally long. {error}") from None
    if table.ndim == 0 and not isinstance(data, np.ndarray):
        raise TypeError(f"data must be a 2-D array, a list of rows or a data frame, got {errors.kind_of(data)}.")
    return table


def _is_like_array(data: Any) -> bool:
    """Whether it is an array of two dimensions of a library that may also stream it as one column, as xarray does."""
    return hasattr(data, "__array__") and isinstance(getattr(data, "dtype", None), np.dtype) and getattr(data, "ndim", 0) == 2


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
    if isinstance(loaded.table, Stack):
        open_part = partial(
            open_table, missing=missing, feature_names=feature_names, feature_types=feature_types,
            expected_names=expected_names, expected_count=expected_count,
        )  # fmt: skip
        sources = [open_part(part, categories=categories) for part in loaded.table.tables]
        own = [source.categories for source in sources]
        if any(other != own[0] for other in own) and all(other.keys() == own[0].keys() for other in own):
            joined = join_categories(own)  # by which all parts number them
            sources = [open_part(part, categories=joined) for part in loaded.table.tables]
        return stack_sources(sources, loaded.table.numbers)
    table = loaded.table if isinstance(loaded.table, NO_ARRAYS) else checked_array(loaded.table)
    n_rows, n_features = table.shape
    if n_features == 0:
        raise ValueError("data has 0 columns. Pass at least one feature.")

    own_names = table.names if isinstance(table, (*FRAMES, SpooledTable)) else None
    names = check_names(own_names if feature_names is None else feature_names, n_features)
    types = check_types(feature_types, n_features)
    order = None if names is None or expected_names is None else align_columns(names, expected_names)
    count = expected_count if expected_names is None else len(expected_names)
    if count not in (None, n_features):
        raise ValueError(f"data has {n_features} columns, but the model was trained on {count}. Pass the training columns.")

    is_training = categories is None and count is None
    with current_device(loaded.device):
        letters, dictionaries, read = _reader_of(table, names, categories, is_training, number)
    types = types or letters
    for name, letter in zip(names or (), types or ()):
        if name in dictionaries and letter != "c":
            raise ValueError(f"feature_types of {quoted(name)} must be 'c', as it holds categories, got {letter!r}.")
    if dictionaries:
        number = np.nan  # replaced by the reader, which knows that a category's code may equal it
    stored = table.matrix if isinstance(table, SparseTable) else None
    if order is not None and order != sorted(order):
        names, types = list(expected_names or ()), types and [types[j] for j in order]
        read = partial(_read_ordered, read, order)
        stored = None if stored is None else stored[:, order].sorted_indices()
    if loaded.device is not None:
        read = read_on(loaded.device, read)
    source = ColumnSource(
        n_rows, n_features, names, types, dictionaries, number, read, loaded.device, stored,
        reads_views=isinstance(table, np.ndarray) and read == table.__getitem__ and not _lies_by_columns(table),
    )  # fmt: skip
    if not isinstance(table, SpooledTable):
        return source
    return replace(source, block_rows=table.block_rows, read_columns=table.read_columns if is_training else None)


def _reader_of(
    table: HostFrame | CudfFrame | SparseTable | SpooledTable | Array, names: list[str] | None,
    categories: dict[str, list[Any]] | None, is_training: bool, missing: float,
) -> tuple[list[str] | None, dict[str, list[Any]], Read]:  # fmt: skip
    """XGBoost's letters of the columns, where the table tells; the dictionaries of those that hold categories; the reader."""
    if isinstance(table, SpooledTable) and (is_training or not table.is_frame):
        return table.letters, table.dictionaries, table.read
    if isinstance(table, (*FRAMES, SpooledTable)):
        assert names is not None
        return read_frame(table, names, categories, is_training, missing)
    make_reader: Callable[..., Read] = sparse_reader if isinstance(table, SparseTable) else array_reader
    return None, {}, make_reader(table, names.__getitem__ if names else str, is_training)


def _lies_by_columns(table: np.ndarray) -> bool:
    """Whether kernels would be compiled for all of it once more, which they are for parts of it (arrays.usual_form)."""
    return table.flags.f_contiguous and not table.flags.c_contiguous


def _read_ordered(read: Read, order: list[int], rows: Rows) -> Array:
    return read(rows)[:, order]


def _missing_value(missing: float | None) -> float:
    """The number as the float32 value that the data are compared with."""
    if missing is None:
        return np.nan
    if not isinstance(missing, Real):
        raise TypeError(f"missing must be a number or None, got {missing!r}. Use None or float('nan') for NaN.")
    with np.errstate(over="ignore"):
        return float(np.float32(missing))
