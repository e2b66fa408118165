"""LIBSVM and CSV files named as XGBoost names them: "file.txt?format=libsvm", "file.csv?format=csv&label_column=0"."""

import csv
import os
import re
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import numpy as np

from gpuboost.data.tables.sparse import scipy_sparse

__all__ = ["TextTable", "is_libsvm", "read_text", "read_text_batches"]

SUFFIXES = {".libsvm": "libsvm", ".svm": "libsvm", ".csv": "csv"}  # of files named without a format
OPTIONS = {"libsvm": ("format", "indexing_mode"), "csv": ("format", "label_column", "weight_column", "delimiter")}
LIBSVM_FORM = "label[:weight] [qid:query] index:value ..., each index once"
LIBSVM_LINE = re.compile(  # label, weight, query, entries
    r"\s*([^\s:]+)(?::([^\s:]+))?(?:\s+qid:(\d{1,18}))?((?:\s+\d{1,9}:[^\s:]+)*)\s*", re.ASCII
)


@dataclass(frozen=True)
class TextTable:
    """What a file holds.

    data : scipy.sparse.csr_array of a LIBSVM file, float64 (n_rows, n_features) of a CSV file, NaN where a field is empty.
    label, weight : float64 (n_rows,), or None. qid : int64 (n_rows,), or None.
    """

    data: Any
    label: np.ndarray | None
    weight: np.ndarray | None
    qid: np.ndarray | None


def is_libsvm(uri: str | os.PathLike[str]) -> bool:
    """Whether read_text would read a LIBSVM file."""
    path, options = _parts(uri)
    return options.get("format", SUFFIXES.get(Path(path).suffix)) == "libsvm"


def read_text(uri: str | os.PathLike[str]) -> TextTable:
    """Read a file whole, as read_text_batches."""
    (table,) = read_text_batches(uri, None)
    return table


def read_text_batches(uri: str | os.PathLike[str], batch_rows: int | None) -> Iterator[TextTable]:
    """Read a file, so many rows at a time; None: all together, also where there are none. What follows a "?" are options,
    joined by "&":

    format : libsvm or csv; may be left out where the name ends in .libsvm, .svm or .csv.
    indexing_mode : of libsvm. 0: the first column has index 0 (default); 1: it has index 1.
    label_column, weight_column : of csv: numbers of columns that are no features. delimiter : "," by default.

    LIBSVM: one row a line, "label[:weight] [qid:query] index:value ...", "#" begins a comment. CSV: numbers only, no header; an
    empty field is missing. Both are UTF-8, and lines of nothing but white space are skipped.
    Raises ValueError naming the option, or the line that cannot be read; IsADirectoryError, FileNotFoundError.
    """
    path, options = _parts(uri)
    if Path(path).is_dir():
        raise IsADirectoryError(f"{path!r} is a folder. Name a file in it.")
    kind = options.get("format") or SUFFIXES.get(Path(path).suffix)
    if kind not in OPTIONS:
        got = f"got {kind!r}" if kind else f"but {path!r} names none"
        raise ValueError(f"the format of a file must be libsvm or csv, {got}. Use for example '{path}?format=libsvm'.")
    for name in options:
        if name not in OPTIONS[kind]:
            close = get_close_matches(name, OPTIONS[kind], n=1)
            hint = f"Did you mean {close[0]!r}?" if close else f"Use {', '.join(OPTIONS[kind])}."
            raise ValueError(f"unknown option {name!r} of a {kind} file. {hint}")
    try:
        yield from (_read_libsvm if kind == "libsvm" else _read_csv)(path, options, batch_rows)
    except (UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"{path} cannot be read as {kind} in UTF-8: {error}. Mend it, or read it with pandas.") from None


def _parts(uri: str | os.PathLike[str]) -> tuple[str, dict[str, str]]:
    path, _, query = os.fspath(uri).partition("?")
    if "#" in query:
        raise ValueError(f"a cache file ({query.partition('#')[2]!r}) is not used. Leave out '#' and what follows it.")
    return path.removeprefix("file://"), dict(parse_qsl(query, keep_blank_values=True))


# ---- LIBSVM


def _read_libsvm(path: str, options: dict[str, str], batch_rows: int | None) -> Iterator[TextTable]:
    first = _option(options, "indexing_mode")
    if first not in (0, 1):
        raise ValueError(f"indexing_mode must be 0 or 1, the index of the first column, got {first}.")
    rows = _LibsvmRows()
    with open(path, encoding="utf-8-sig") as file:
        for number, line in enumerate(file, 1):
            line = line.partition("#")[0]
            if not line.strip():
                continue
            match = LIBSVM_LINE.fullmatch(line)
            if match is None:
                raise _unreadable(path, number, line, LIBSVM_FORM)
            tokens = match[4].replace(":", " ").split()
            row = list(map(int, tokens[::2]))
            try:
                rows.label.extend(_floats([match[1]]))
                rows.weight.extend(_floats([match[2]] if match[2] else []))
                rows.values.extend(_floats(tokens[1::2]))
                if len(set(row)) < len(row):
                    raise ValueError
            except ValueError:
                raise _unreadable(path, number, line, LIBSVM_FORM) from None
            rows.qid.extend([int(match[3])] if match[3] else ())
            rows.indices.extend(row)
            rows.ends.append(len(rows.indices))
            if len(rows.label) == batch_rows:
                yield rows.table(path, first)
                rows = _LibsvmRows()
    if batch_rows is None or len(rows.label):
        yield rows.table(path, first)


class _LibsvmRows:
    """Rows of a file as they are read."""

    def __init__(self) -> None:
        self.label, self.weight, self.values = array("d"), array("d"), array("d")
        self.qid, self.indices, self.ends = array("q"), array("q"), array("q", [0])

    def table(self, path: str, first: int) -> TextTable:
        """first : index of the first column."""
        n_rows = len(self.label)
        for name, n_given in {"a weight": len(self.weight), "a qid": len(self.qid)}.items():
            if n_given not in (0, n_rows):
                raise ValueError(f"{path}: {n_given} of {n_rows} rows have {name}. Give one to all rows or to none.")
        columns = np.frombuffer(self.indices, np.int64) - first if self.indices else np.zeros(0, np.int64)
        if len(columns) and columns.min() < 0:
            raise ValueError(f"{path}: indexing_mode=1, but an entry has index 0. Use indexing_mode=0.")
        shape = n_rows, int(columns.max(initial=-1)) + 1
        csr_array = scipy_sparse(f"reading the sparse rows of {path}").csr_array
        matrix = csr_array((np.array(self.values), columns, np.array(self.ends)), shape=shape)
        weight, qid = (np.array(given) if given else None for given in (self.weight, self.qid))
        return TextTable(matrix, np.array(self.label), weight, qid)


# ---- CSV


def _read_csv(path: str, options: dict[str, str], batch_rows: int | None) -> Iterator[TextTable]:
    delimiter = options.get("delimiter", ",")
    if len(delimiter) != 1:
        raise ValueError(f"delimiter must be one character, got {delimiter!r}.")
    values, n_columns, n_rows = array("d"), None, 0
    with open(path, encoding="utf-8-sig", newline="") as file:
        reader = csv.reader(file, delimiter=delimiter)
        for row in reader:
            if len(row) <= 1 and not "".join(row).strip():
                continue
            if len(row) != (n_columns := n_columns or len(row)):
                raise ValueError(f"{path}, line {reader.line_num}: {len(row)} fields, the first row has {n_columns}.")
            try:
                values.extend(_floats([field if field.strip() else "nan" for field in row]))
            except ValueError:
                raise _unreadable(path, reader.line_num, delimiter.join(row), "numbers, without a header") from None
            n_rows += 1
            if n_rows == batch_rows:
                yield _csv_table(np.array(values).reshape(n_rows, n_columns), options)
                values, n_rows = array("d"), 0
    if batch_rows is None or n_rows:
        yield _csv_table(np.array(values).reshape(n_rows, n_columns or 0), options)


def _csv_table(table: np.ndarray, options: dict[str, str]) -> TextTable:
    special = {name: _column_number(options, name, table) for name in ("label_column", "weight_column") if name in options}
    if len(set(special.values())) < len(special):
        raise ValueError(f"label_column and weight_column must differ, got {special['label_column']} for both.")
    info = {name: table[:, j] for name, j in special.items()}
    return TextTable(np.delete(table, list(special.values()), axis=1), info.get("label_column"), info.get("weight_column"), None)


def _column_number(options: dict[str, str], name: str, table: np.ndarray) -> int:
    number = _option(options, name)
    if not 0 <= number < table.shape[1]:
        raise ValueError(f"{name} must be between 0 and {table.shape[1] - 1}, got {number}.")
    return number


# ---- shared


def _floats(fields: list[str]) -> Iterable[float]:
    """The numbers; ValueError too for "1_000" and digits other than ASCII's, which only Python takes for numbers."""
    text = "".join(fields)
    if "_" in text or not text.isascii():
        raise ValueError(text)
    return map(float, fields)


def _option(options: dict[str, str], name: str) -> int:
    text = options.get(name, "0")
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{name} must be an integer, got {text!r}.") from None


def _unreadable(path: str, number: int, line: str, allowed: str) -> ValueError:
    line = line.strip()
    shown = line if len(line) <= 60 else line[:60] + "…"
    return ValueError(f"{path}, line {number}: must be {allowed}, got {shown!r}. Mend the line, or read the file with pandas.")
