"""Tables of the command line: files read into polars, and the columns of them that are asked for."""

import argparse
import sys
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from io import BytesIO
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from gpuboost.data.tables.text_files import TextTable, is_libsvm, read_text
from gpuboost.errors import install
from gpuboost.labels import class_codes
from gpuboost.paths import write_file

__all__ = [
    "as_categories", "check_column", "encoded_label", "feature_columns", "import_polars", "is_text", "label_column", "listing",
    "named_columns", "read_table", "select_columns", "write_table",
]  # fmt: skip

NULLS = ["", "NA", "N/A", "NaN", "nan", "null", "NULL"]  # what a CSV file writes for a missing value


def import_polars() -> Any:
    try:
        import polars
    except ImportError:
        raise ImportError(f"the command line needs polars to read tables. Install it with: {install('cli')}") from None
    return polars


def read_table(path: str, texts: Iterable[str] = ()) -> Any:
    """A polars DataFrame of a .csv or .parquet file, a TextTable of a LIBSVM file.

    texts : columns of CSV to be read as text: what is text in one file, 01 and 1A, may look like numbers in the next.
    """
    pl = import_polars()
    file = Path(path.partition("?")[0] if is_libsvm(path) else path)
    if not file.is_file():
        raise ValueError(f"{path!r} is a folder. Name a file in it." if file.is_dir() else f"there is no file {path!r}.")
    if is_libsvm(path):
        return read_text(path)
    try:
        if Path(path).suffix in (".parquet", ".pq"):
            return pl.read_parquet(path)
        names = pl.read_csv(path, has_header=False, n_rows=1, infer_schema=False).row(0)
        if len(set(names)) < len(names):  # polars would rename them
            raise ValueError(f"{path} names more than one column {max(names, key=names.count)!r}. Rename one.")
        as_text = dict.fromkeys(texts, pl.String)
        return pl.read_csv(path, null_values=NULLS, infer_schema_length=None, schema_overrides=as_text)  # all rows are looked at
    except pl.exceptions.PolarsError as error:
        raise ValueError(f"{path} cannot be read: {str(error).strip().splitlines()[0]}") from None


def write_table(table: Any, path: str | None) -> None:
    if path is None:
        sys.stdout.write(table.write_csv())
        sys.stdout.flush()
    elif Path(path).suffix in (".parquet", ".pq"):
        table.write_parquet(data := BytesIO())
        write_file(path, data.getvalue())
    else:
        write_file(path, table.write_csv().encode())


def check_column(name: str, names: Sequence[str], path: str) -> None:
    if name not in names:
        close = get_close_matches(name, names, n=1)
        hint = f"Did you mean {close[0]!r}?" if close else f"It has {listing(names)}."
        raise ValueError(f"{path} has no column {name!r}. {hint}")


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
    features = [name for name in table.columns if [name] not in named.values()]
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
