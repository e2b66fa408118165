"""Tables of the command line: files read into polars, and the columns of them that are asked for."""

import argparse
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from io import BytesIO
from itertools import combinations
from typing import Any

import numpy as np

from gpuboost.data.streams.files import PARQUET, index_columns, table_files
from gpuboost.data.tables.text_files import TextTable, is_libsvm, read_text
from gpuboost.errors import install
from gpuboost.labels import class_codes
from gpuboost.output import say, write_output
from gpuboost.paths import write_file
from gpuboost.storage.room import free_memory

__all__ = [
    "StreamedTable", "as_categories", "by_value", "check_column", "encoded_label", "feature_columns", "import_polars", "is_text",
    "label_column", "listing", "named_columns", "open_table", "select_columns", "without_index", "write_table",
]  # fmt: skip

# What a table takes that is read whole: 8 bytes a value, 2 for its codes, 1 for sorting a quarter of the columns; and a row's
# gradients and lists. A number in a CSV file has some nine characters.
VALUE_BYTES, ROW_BYTES, TEXT_BYTES = 11, 40, 9
NULLS = ["", "NA", "N/A", "NaN", "nan", "null", "NULL"]  # what a CSV file writes for a missing value


def import_polars() -> Any:
    try:
        import polars
    except ImportError:
        raise ImportError(f"the command line needs polars to read tables. Install it with: {install('cli')}") from None
    return polars


def read_table(path: str, texts: Iterable[str]) -> Any:
    """A polars DataFrame of a .csv or .parquet file, or of all such files of a folder or pattern; a TextTable of a LIBSVM file.

    texts : columns of CSV to be read as text: what is text in one file, 01 and 1A, may look like numbers in the next.
    """
    files = _files(path)
    if is_libsvm(files[0]):
        return read_text(files[0])
    with _naming(path):
        return _joined(files, _read, texts)


def _files(path: str) -> list[str]:
    """One file, or several of one kind, Parquet or CSV."""
    files = table_files(path)
    if len(files) > 1 and (len({file.endswith(PARQUET) for file in files}) > 1 or any(map(is_libsvm, files))):
        raise ValueError(f"{path!r} names files of several kinds, or LIBSVM files. Name Parquet files, CSV files, or one file.")
    if os.path.exists(files[0]) and not os.path.isfile(files[0]):
        raise ValueError(f"{path!r} is a pipe or a device, and a table is read more than once. Write it to a file first.")
    return files


def _read(file: str, texts: Iterable[str]) -> Any:
    pl = import_polars()
    if file.endswith(PARQUET):
        return pl.read_parquet(file, glob=False)
    _csv_names(file)
    return pl.read_csv(file, glob=False, **_csv_options(texts))


def _csv_names(file: str) -> Sequence[str]:
    names = import_polars().read_csv(file, glob=False, has_header=False, n_rows=1, infer_schema=False).row(0)
    if len(set(names)) < len(names):  # polars would rename them
        raise ValueError(f"{file} names more than one column {max(names, key=names.count)!r}. Rename one.")
    return names


def _csv_options(texts: Iterable[str]) -> dict[str, Any]:
    """To look at all rows."""
    return {"null_values": NULLS, "infer_schema_length": None, "schema_overrides": dict.fromkeys(texts, import_polars().String)}


def _scan(file: str, texts: Iterable[str]) -> Any:
    pl = import_polars()
    return pl.scan_parquet(file, glob=False) if file.endswith(PARQUET) else pl.scan_csv(file, glob=False, **_csv_options(texts))


def _joined(files: Sequence[str], read: Callable[[str, Iterable[str]], Any], texts: Iterable[str]) -> Any:
    """What is read of files, tables or queries, one below the other. As if it were one file: numbers of different types are of
    the wider, a column of CSV that is text in one is text in all, and one without a value has no say."""
    pl, tables = import_polars(), [read(file, texts) for file in files]
    if len(tables) == 1:
        return tables[0]
    schemas, mixed = [table.collect_schema() for table in tables], set[str]()
    for name in schemas[0]:
        types = {schema.get(name) for schema in schemas}
        if len(types) == 1 or None in types:  # which is said when they are joined
            continue
        for i, table in enumerate(tables):
            if schemas[i][name] == pl.String and not table.lazy().select(pl.col(name).count()).collect().item():
                tables[i] = table.with_columns(pl.lit(None).alias(name))
        known = {table.collect_schema()[name] for table in tables} - {pl.Null}
        if len(known) > 1 and not all(kind.is_numeric() for kind in known):
            mixed.add(name)
    if mixed and not files[0].endswith(PARQUET):
        return _joined(files, read, {*texts, *mixed})
    return pl.concat(tables, how="vertical_relaxed")


@contextmanager
def _naming(path: str) -> Iterator[None]:
    try:
        yield
    except import_polars().exceptions.PolarsError as error:
        raise ValueError(f"{path} cannot be read: {str(error).strip().splitlines()[0]}") from None


class StreamedTable:
    """A table that is not read whole, as a query of polars: columns are read when they are asked for."""

    def __init__(self, query: Any) -> None:
        self.query = query
        self._types = query.collect_schema()
        self.columns = self._types.names()

    def __getitem__(self, name: str) -> Any:
        return self.query.select(name).collect()[name]

    def select(self, names: Sequence[str]) -> Any:
        return self.query.select(names)

    def texts(self, names: Sequence[str]) -> list[str]:
        """Those of the columns that hold text."""
        pl = import_polars()
        texts = [name for name in names if self._types[name] == pl.String]
        n_values = self.query.select(pl.col(texts).count()).collect().row(0) if texts else ()
        return [name for name, n in zip(texts, n_values) if n]


def open_table(path: str, texts: Iterable[str] = (), *, may_stream: bool) -> Any:
    """read_table, or a StreamedTable of a file that would not fit in memory, which is said."""
    pl, files = import_polars(), _files(path)
    if not may_stream or is_libsvm(files[0]):
        return read_table(path, texts)
    with _naming(path):
        if files[0].endswith(PARQUET):
            query = _joined(files, _scan, texts)
            n_rows, n_columns = query.select(pl.len()).collect().item(), len(query.collect_schema())
        else:
            n_columns = len(_csv_names(files[0]))
            n_rows = sum(os.path.getsize(file) for file in files) // (TEXT_BYTES * n_columns)
        needed, free = n_rows * (VALUE_BYTES * n_columns + ROW_BYTES), free_memory()
        if needed <= free:
            return read_table(path, texts)
        if not files[0].endswith(PARQUET):
            query = _joined(files, _scan, texts)
        say(
            f"{path}: about {n_rows} rows x {n_columns} columns would take {needed / 1e9:.2f} GB of memory and "
            f"{free / 1e9:.2f} GB are free: it is read in batches"
        )
        return StreamedTable(query)


def write_table(table: Any, path: str | None) -> None:
    if path is None:
        write_output(table.write_csv())
    elif path.endswith(PARQUET):
        table.write_parquet(data := BytesIO())
        write_file(path, data.getvalue())
    else:
        write_file(path, table.write_csv().encode())


def check_column(name: str, names: Sequence[str], path: str) -> None:
    if name not in names:
        close = get_close_matches(name, names, n=1)
        hint = f"Did you mean {close[0]!r}?" if close else f"It has {listing(names)}."
        raise ValueError(f"{path} has no column {name!r}. {hint}")


def without_index(names: Iterable[str], path: str) -> list[str]:
    """The names of a table's columns but for those of a pandas frame's index, which nothing is learnt from."""
    index = set().union(*map(index_columns, table_files(path)))
    return [name for name in names if name not in index]


def select_columns(table: Any, names: Sequence[str], path: str) -> Any:
    """The named columns, in that order; what else the table has is left out."""
    for name in names:
        check_column(name, table.columns, path)
    return table.select(names)


def is_text(column: Any) -> bool:
    return column.dtype == import_polars().String and column.null_count() < len(column)


def as_categories(table: Any, names: Iterable[str]) -> Any:
    pl = import_polars()
    return table.with_columns(pl.col(name).cast(pl.String).cast(pl.Categorical) for name in names)


def by_value(table: Any, categories: Mapping[str, Sequence[Any]]) -> Any:
    """The table, whose columns of these names hold such categories: numbers or booleans, which polars has none of. Raises
    ValueError where a column holds something else."""
    if not categories or isinstance(table, TextTable):
        return table
    pl, arrow = import_polars(), table.to_arrow()
    for name, values in categories.items():
        column = table[name].cast(pl.Float64) if table[name].dtype.is_decimal() else table[name]
        if not (column.dtype.is_numeric() or column.dtype == pl.Boolean or column.null_count() == len(column)):
            raise ValueError(f"column {name!r} holds {column.dtype}, but held {listing(values)} in training. Convert it.")
        arrow = arrow.set_column(table.columns.index(name), name, column.to_arrow().dictionary_encode())
    return arrow


def label_column(table: Any, options: argparse.Namespace, path: str) -> Any:
    """The label column as a polars Series; of integers where a LIBSVM file holds nothing else."""
    named = {"weight": options.weight, "qid": options.qid}
    given = {"label": options.label, **{name: column[0] if column else None for name, column in named.items()}}
    if isinstance(table, TextTable):
        for name, column in given.items():
            if column is not None:
                raise ValueError(
                    f"--{name} {column}: a LIBSVM file has its {name}s at the start of each line. Leave --{name} out."
                )
        values = np.asarray(table.label)
        is_whole = np.isfinite(values).all() and (values == np.floor(values)).all()
        return import_polars().Series("label", values.astype(np.int64) if is_whole else values)
    for column in given.values():
        if column is not None:
            check_column(column, table.columns, path)
    if options.label is None:
        raise ValueError(f"--label is required: it names the column of {path} to predict. It has {listing(table.columns)}.")
    return table[options.label]


def feature_columns(table: Any, options: argparse.Namespace) -> tuple[Sequence[Any], list[str]]:
    """The columns to learn from (numbers of a LIBSVM file's), and which of them hold text."""
    if isinstance(table, TextTable):
        return range(table.data.shape[1]), []
    named = {"label": [options.label], "weight": options.weight, "qid": options.qid}
    for first, second in combinations(named, 2):
        if named[first] == named[second] != []:
            raise ValueError(f"--{second} and --{first} both name {named[first][0]!r}. Name another column, or leave it out.")
    features = [name for name in without_index(table.columns, options.data) if [name] not in named.values()]
    if isinstance(table, StreamedTable):
        return features, table.texts(features)
    return features, [name for name in features if is_text(table[name])]


def encoded_label(label: Any, classes: np.ndarray | None, path: str) -> np.ndarray:
    if label.null_count():
        raise ValueError(f"label {label.name!r} of {path} is missing in {label.null_count()} rows. Remove these rows.")
    values = label.to_numpy()
    return values if classes is None else class_codes(values, classes, f"label {label.name!r} of {path}")


def named_columns(name: str, values: np.ndarray, suffixes: Iterable[Any] | None = None) -> dict[str, np.ndarray]:
    """Columns for (n,), or name_0, name_1, … for (n, k)."""
    if values.ndim == 1:
        return {name: values}
    names = range(len(values.T)) if suffixes is None else suffixes
    return {f"{name}_{suffix}": column for suffix, column in zip(names, values.T)}


def listing(items: Iterable[Any]) -> str:
    texts = [str(item) for item in items]
    return ", ".join(texts[:8]) + (f" and {len(texts) - 8} more" if len(texts) > 8 else "")
