"""From a stream to a table that can be read again, in one pass: values on a shelf, and all that is known of the rows.

Dense batches are kept as float32 columns (tables/spooled.py), sparse ones side by side in memory; where there are both, dense
ones become sparse, with all their cells stored. Batches must have the same columns; where dictionaries of categories differ, all
of them get the values of any, ascending, as workers and partitions do (tables/stack.py). Numbers of different types in one
column make it one of floats.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpuboost.config import warn
from gpuboost.data.given import is_empty, query_integers
from gpuboost.data.info import MatrixInfo
from gpuboost.data.streams.batch import Batch
from gpuboost.data.tables.device import host_array
from gpuboost.data.tables.names import listing, quoted
from gpuboost.data.tables.open import FRAMES, LoadedTable, load_table, open_table
from gpuboost.data.tables.source import ColumnSource
from gpuboost.data.tables.sparse import SparseTable
from gpuboost.data.tables.spooled import SpooledTable
from gpuboost.data.tables.stack import join_categories
from gpuboost.storage.shelf import Shelf

__all__ = ["Gathered", "gather"]

OF_ROWS = ("label", "label_lower_bound", "label_upper_bound", "weight", "base_margin")


@dataclass(frozen=True)
class Gathered:
    """A whole stream. info : by XGBoost's names, as DMatrix.set_info takes them."""

    table: LoadedTable
    info: dict[str, Any]
    feature_names: list[str] | None
    feature_types: list[str] | None
    missing: float | None


def gather(
    batches: Iterable[Batch], shelf: Shelf, *, missing: float | None, feature_names: Any, feature_types: Any, missing_labels: str
) -> Gathered:
    """Read a stream to its end. Arguments as DMatrix's; those of the batches go before names and types.

    Raises ValueError naming the batch, counted from 0, that does not fit: with what a DMatrix of it alone raises, or where it
    has other columns or other kinds of labels than the first; one without rows says nothing. What the stream itself raises gets
    a note that names the batch.
    """
    rows = _Rows(missing_labels)
    columns: _Columns | None = None
    number = 0
    for number, batch in _numbered(batches):
        with _naming(number):
            names = feature_names if batch.feature_names is None else batch.feature_names
            types = feature_types if batch.feature_types is None else batch.feature_types
            loaded = load_table(batch.data)
            source = open_table(loaded, missing=missing, feature_names=names, feature_types=types)
            if source.n_rows == 0:
                continue
            if columns is None:
                columns = _Columns.like(source, shelf, is_frame=isinstance(loaded.table, FRAMES))
            elif source.stored is not None and isinstance(columns, _Dense):
                columns = columns.listed()
            columns.add(source)
            rows.add(batch.info, source)
    if columns is None:
        raise ValueError("the stream holds no rows: next() returned False at once, or no batch or file has any. Give some.")
    return columns.finished(rows.joined(), missing)


def _numbered(batches: Iterable[Batch]) -> Iterator[tuple[int, Batch]]:
    """The batches with their numbers."""
    iterator, number = iter(batches), 0
    while True:
        try:
            batch = next(iterator)
        except StopIteration:
            return
        except Exception as error:
            error.add_note(f"This was raised in batch {number} of the stream, counted from 0.")
            raise
        yield number, batch
        number += 1


@contextmanager
def _naming(number: int) -> Iterator[None]:
    try:
        yield
    except (ValueError, TypeError) as error:
        kind = ValueError if isinstance(error, ValueError) else TypeError
        raise kind(f"batch {number} of the stream (counted from 0): {error}") from error


class _Columns:
    """The values so far, and what their columns are."""

    def __init__(self, first: ColumnSource, shelf: Shelf) -> None:
        self._first, self._letters = first, first.feature_types
        self._dictionaries = {name: list(values) for name, values in first.categories.items()}
        self._given = dict(first.categories)  # as they came first
        self._differ = False  # whether any dictionary is another than that
        self._has_values = np.zeros(first.n_features, bool)
        self._shelf = shelf

    @staticmethod
    def like(first: ColumnSource, shelf: Shelf, is_frame: bool) -> "_Columns":
        return _Sparse(first, shelf) if first.stored is not None else _Dense(first, shelf, is_frame)

    def add(self, source: ColumnSource) -> None:
        """Take up a batch. Raises ValueError where it is of other columns."""
        first = self._first
        if source.n_features != first.n_features and (first.stored is None or source.stored is None):
            raise ValueError(f"it has {source.n_features} columns, the first batch has {first.n_features}. All need the same.")
        if source.feature_names != first.feature_names:
            unlike = set(source.feature_names or ()) ^ set(first.feature_names or ())
            what = f" ({listing(sorted(unlike))})" if unlike else ", or their order,"
            raise ValueError(f"its column names{what} differ from those of the first batch. Give all the same columns.")
        silent = self._settle(source)
        if self._letters is None:
            self._letters = source.feature_types
        elif source.feature_types is not None:
            pairs = enumerate(zip(self._letters, source.feature_types))
            self._letters = ["c" if j in silent else self._common(*pair, j) for j, pair in pairs]
        self._take(source)

    def _settle(self, source: ColumnSource) -> set[int]:
        """Columns of categories of which this batch, or all before it, have no value at all, and so no categories. Raises
        ValueError where there are numbers instead."""
        silent = set()
        for name in sorted(source.categories.keys() ^ self._dictionaries.keys()):
            j = (source.feature_names or []).index(name)
            if name in source.categories:
                has_numbers = bool(self._has_values[j])
                self._given[name], self._dictionaries[name] = source.categories[name], list(source.categories[name])
            else:
                has_numbers = not all(np.isnan(host_array(batch)[:, j]).all() for batch in source.batches())
            if has_numbers:
                raise ValueError(f"{quoted(name)} holds categories in some batches, but numbers in others. Convert all.")
            silent.add(j)
        return silent

    def _common(self, known: str, letter: str, j: int) -> str:
        """The type of a column of numbers of both types. Raises ValueError where one of them is that of categories."""
        if known != letter and "c" in (known, letter):
            names = self._first.feature_names
            which = quoted(names[j]) if names else f"column {j}"
            raise ValueError(f"feature_types of {which} is 'c' in some batches, but not in others. Give all batches the same.")
        return known if known == letter else "float"

    def _take(self, source: ColumnSource) -> None:
        raise NotImplementedError

    def _recoding(self, source: ColumnSource) -> dict[int, np.ndarray]:
        """For each column whose codes differ from those so far: their new codes, float32, NaN behind them for missing ones."""
        found = {}
        self._differ |= any(values != self._given[name] for name, values in source.categories.items())
        for name, values in source.categories.items():
            known = self._dictionaries[name]
            if len({*map(type, values), *map(type, known)}) > 1:
                kinds = " and ".join(sorted({type(value).__name__ for value in (*known, *values)}))
                raise ValueError(f"{quoted(name)} holds categories of different kinds: {kinds}. Convert all to one.")
            if values == known[: len(values)]:
                continue
            place = {value: code for code, value in enumerate(known)}
            codes = [place.setdefault(value, len(place)) for value in values]
            self._dictionaries[name] = list(place)
            found[(source.feature_names or []).index(name)] = np.array([*codes, np.nan], np.float32)
        return found

    def finished(self, info: dict[str, Any], missing: float | None) -> Gathered:
        raise NotImplementedError


class _Dense(_Columns):
    def __init__(self, first: ColumnSource, shelf: Shelf, is_frame: bool) -> None:
        super().__init__(first, shelf)
        self._table = SpooledTable(first.n_features, shelf, is_frame)

    def _take(self, source: ColumnSource) -> None:
        recoding = self._recoding(source)
        for batch in source.batches():
            values = host_array(batch)
            if recoding:
                values = np.array(values, np.float32)
                for j, codes in recoding.items():
                    values[:, j] = codes[np.nan_to_num(values[:, j], nan=len(codes) - 1).astype(np.int64)]
            if len(left := np.flatnonzero(~self._has_values)):
                self._has_values[left] = ~np.isnan(values[:, left]).all(axis=0)
            self._table.append(values)

    def listed(self) -> "_Sparse":
        """The same rows so far, to which sparse ones are to be added. Raises ValueError where columns hold categories."""
        for name in self._dictionaries:
            raise ValueError(f"{quoted(name)} holds categories in other batches, which sparse ones cannot. Give all as frames.")
        listed, table = _Sparse(self._first, self._shelf), self._table
        listed._letters = self._letters
        table.finish(None, None, {}, {})
        for begin in range(0, table.shape[0], table.block_rows):
            listed.append(_all_cells(table.read(slice(begin, begin + table.block_rows))))
        return listed

    def finished(self, info: dict[str, Any], missing: float | None) -> Gathered:
        names, letters = self._first.feature_names, self._letters
        united = join_categories([self._dictionaries]) if self._differ else self._dictionaries
        place = {name: {value: code for code, value in enumerate(values)} for name, values in united.items()}
        codes = {name: [place[name][value] for value in values] for name, values in self._dictionaries.items()}
        self._table.finish(names, letters, united, codes)
        # where there are categories, their codes may equal the missing value, which the reader of a batch has replaced
        return Gathered(LoadedTable(self._table, None), info, names, letters, None if self._dictionaries else missing)


class _Sparse(_Columns):
    def __init__(self, first: ColumnSource, shelf: Shelf) -> None:
        super().__init__(first, shelf)
        self._has_values[:] = True  # no column of categories
        self._parts: list[Any] = []
        self._n_bytes, self._has_room = 0, True

    def _take(self, source: ColumnSource) -> None:
        if source.stored is None:
            for batch in source.batches():
                self.append(_all_cells(host_array(batch)))
            return
        with np.errstate(over="ignore"):  # 1e39 becomes inf, which training reports
            self.append(source.stored.astype(np.float32))

    def append(self, part: Any) -> None:
        """A float32 csr_array, kept."""
        self._parts.append(part)
        self._n_bytes += part.data.nbytes + part.indices.nbytes + part.indptr.nbytes
        if self._has_room and not self._shelf.has_room(self._n_bytes):
            self._has_room = False
            warn(
                f"sparse batches stay in memory, and those so far take {self._n_bytes} bytes, more than a table is to take. "
                "Give more cache_memory, or dense batches (NaN where nothing is stored), which go to files.",
            )

    def finished(self, info: dict[str, Any], missing: float | None) -> Gathered:
        import scipy.sparse

        widest = max(part.shape[1] for part in self._parts)
        if self._first.feature_names is not None and widest != self._first.n_features:
            raise ValueError("the sparse batches have different numbers of columns. Give all the same columns.")
        for part in self._parts:
            part.resize(part.shape[0], widest)  # a LIBSVM file names only the columns that it fills
        table = SparseTable(scipy.sparse.vstack(self._parts, format="csr"))
        return Gathered(LoadedTable(table, None), info, self._first.feature_names, self._letters, missing)


def _all_cells(values: np.ndarray) -> Any:
    """float32 csr_array that stores every cell of a dense batch, missing ones as NaN."""
    import scipy.sparse

    n_rows, n_columns = values.shape
    with np.errstate(over="ignore"):
        data = np.ascontiguousarray(values, np.float32).ravel()
    columns, begin = np.tile(np.arange(n_columns, dtype=np.int32), n_rows), np.arange(n_rows + 1) * n_columns
    return scipy.sparse.csr_array((data, columns, begin), shape=values.shape)


class _Rows:
    """What is known of the rows so far."""

    def __init__(self, missing_labels: str) -> None:
        self._missing_labels = missing_labels
        self._parts: dict[str, list[np.ndarray]] = {}
        self._of_table: dict[str, Any] = {}
        self._n_batches = 0

    def add(self, info: dict[str, Any], source: ColumnSource) -> None:
        """Take up what a batch says, checked as a DMatrix of it alone would be."""
        given = dict(info)
        if "feature_weights" in given:
            self._of_table["feature_weights"] = given.pop("feature_weights")
        if self._n_batches and given.keys() != self._parts.keys():
            name = min(given.keys() ^ self._parts.keys())
            raise ValueError(f"some batches have {name} and others have none. Give it for all of them or for none.")
        if "group" in given and "qid" in given:
            raise ValueError("group and qid both name the queries. Give one of them.")
        for name, values in given.items():  # a DMatrix takes an empty list for none
            if is_empty(values):
                raise ValueError(f"{name} has 0 rows, data has {source.n_rows}. Both need the same rows.")
        checked = MatrixInfo(source.n_rows, missing_labels=self._missing_labels).updated(source.n_features, **given)
        for name, values in given.items():
            part = getattr(checked, name) if name in OF_ROWS else query_integers(name, values)  # a copy
            known = self._parts.setdefault(name, [])
            if known and known[0].shape[:-1] != part.shape[:-1]:
                raise ValueError(f"its {name} has {len(part)} columns, that of the first batch {len(known[0])}. Give as many.")
            known.append(part)
        self._n_batches += 1

    def joined(self) -> dict[str, Any]:
        """Of all rows."""
        whole = {}
        for name in list(self._parts):
            whole[name] = np.concatenate(self._parts.pop(name), axis=-1).T
        return {**whole, **self._of_table}
