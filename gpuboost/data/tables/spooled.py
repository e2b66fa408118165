"""A table that came as a stream, kept as float32 columns on a shelf: in memory while there is room, then in files.

It is read as often as asked, by rows or by columns, and is a frame to frames.read_frame once its stream is over.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from gpuboost.data.tables.batches import Read, Rows, default_rows
from gpuboost.storage.array_file import Shelved
from gpuboost.storage.shelf import Shelf

__all__ = ["SpooledTable"]

BLOCK_BATCHES = 4  # usual batches of a block: 32 MB, of which a column is some 100 KB or more
CHUNK_ROWS = 2048  # turned into columns at a time: 28 columns of them are 224 KB


class SpooledTable:
    """Rows are appended, then ``finish`` says what the columns are.

    is_frame : whether batches were frames, whose columns hold values; arrays hold codes of categories. names : None where no
    batch gave any. letters : XGBoost's, None where the stream does not tell. dictionaries : of columns of categories, whose
    values here are codes. Who has the table has its files.
    """

    xp = np

    def __init__(self, n_features: int, shelf: Shelf, is_frame: bool) -> None:
        self._shelf: Shelf | None = shelf
        self.is_frame = is_frame
        self.block_rows = BLOCK_BATCHES * default_rows(n_features)
        self._blocks: list[Shelved] = []
        self._open = np.empty((n_features, self.block_rows), np.float32)
        self._n_open = 0
        self.shape = 0, n_features
        self.names: list[str] | None = None
        self.letters: list[str] | None = None
        self.dictionaries: dict[str, list[Any]] = {}
        self._codes: dict[int, np.ndarray] = {}  # of columns whose codes are kept as others than those of the dictionary

    def append(self, values: np.ndarray) -> None:
        """float32 or float64 (n, n_features), any strides. Raises OSError where the disk is full."""
        for first in range(0, len(values), CHUNK_ROWS):
            part = values[first : first + CHUNK_ROWS]
            while len(part):
                room = self._open[:, self._n_open : self._n_open + len(part)]
                with np.errstate(over="ignore"):  # 1e39 becomes inf, which training reports
                    room[...] = part[: room.shape[1]].T
                self._n_open += room.shape[1]
                part = part[room.shape[1] :]
                if self._n_open == self.block_rows:
                    self._close_block()
        self.shape = self.shape[0] + len(values), self.shape[1]

    def _close_block(self) -> None:
        assert self._shelf is not None
        (block,) = self._shelf.put(np.ascontiguousarray(self._open[:, : self._n_open]))
        self._blocks.append(block)
        self._open = np.empty_like(self._open) if block.is_held else self._open
        self._n_open = 0

    def finish(
        self, names: list[str] | None, letters: list[str] | None, dictionaries: dict[str, list[Any]], codes: dict[str, list[int]]
    ) -> None:
        """The stream is over. codes : of every column of categories, the place in its dictionary of each code that is kept."""
        if self._n_open or not self._blocks:
            self._close_block()
        self._open = np.empty((self.shape[1], 0), np.float32)
        self.names, self.letters, self.dictionaries = names, letters, dictionaries
        changed = {name: own for name, own in codes.items() if own != list(range(len(own)))}
        self._codes = {(names or []).index(name): np.array([*own, np.nan], np.float32) for name, own in changed.items()}

    def __getstate__(self) -> dict[str, Any]:
        """Who pickles it gets blocks in memory."""
        return {**vars(self), "_shelf": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update({"is_frame": state["names"] is not None, **state})  # before 2026-11-26 it was not kept

    # -- Reading ------------------------------------------------------------------------------------------------------

    def read(self, rows: Rows) -> np.ndarray:
        """float32 (n, n_features), possibly a view."""
        return self.read_columns(rows, slice(0, self.shape[1]))

    def read_columns(self, rows: Rows, columns: slice) -> np.ndarray:
        """The same of the columns first to last."""
        if isinstance(rows, slice):
            first, last, _ = rows.indices(self.shape[0])
            begin, end = first // self.block_rows, -(-last // self.block_rows)
            parts = []
            for b in range(begin, max(end, begin + 1)):
                start = b * self.block_rows
                parts.append(self._block(b, columns)[:, max(first - start, 0) : max(last - start, 0)])
            return (parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)).T
        block, within = np.divmod(np.asarray(rows), self.block_rows)
        values = np.empty((columns.stop - columns.start, len(block)), np.float32)
        for b in np.unique(block):
            at = block == b
            values[:, at] = self._block(b, columns)[:, within[at]]
        return values.T

    def _block(self, b: int, columns: slice) -> np.ndarray:
        """float32 (columns, rows of the block)."""
        block = self._blocks[b]
        is_whole = block.is_held or columns.stop - columns.start == self.shape[1]
        values = (block.read() if is_whole else block.read(np.arange(columns.start, columns.stop)))[columns]
        if recoded := [j for j in self._codes if columns.start <= j < columns.stop]:
            values = values.copy()
            for j in recoded:
                own = values[j - columns.start]
                own[:] = self._codes[j][np.nan_to_num(own, nan=-1).astype(np.int64)]
        return values

    # -- As a frame ---------------------------------------------------------------------------------------------------

    def whole_array(self) -> None:
        """There is none: it may not fit in memory."""

    def columns(self) -> Iterator["_SpooledColumn"]:
        assert self.names is not None and self.letters is not None
        for j, (name, letter) in enumerate(zip(self.names, self.letters)):
            yield _SpooledColumn(self, j, self.dictionaries.get(name), letter)


class _SpooledColumn:
    """A column as frames.read_frame asks it. categories : its dictionary, where it holds codes."""

    dtype, library = "float32", ""

    def __init__(self, table: SpooledTable, number: int, categories: list[Any] | None, letter: str) -> None:
        self.table, self.number, self.categories, self.letter = table, number, categories, letter
        self.is_categorical = categories is not None

    @property
    def kind(self) -> str:
        return {"i": "b", "int": "i"}.get(self.letter, "f")

    def is_null(self) -> bool:
        """Whether there is no value at all."""
        read, step = self.number_reader(""), self.table.block_rows
        return all(np.isnan(read(slice(i, i + step))).all() for i in range(0, self.table.shape[0], step))

    def number_reader(self, name: str) -> Read:
        own = slice(self.number, self.number + 1)
        return lambda rows: self.table.read_columns(rows, own)[:, 0]

    def present_integers(self, rows: Rows) -> np.ndarray:
        """None: whether they fit float32 was asked when they came."""
        return np.zeros(0, np.int64)

    def dictionary(self) -> tuple[list[Any], Read]:
        read = self.number_reader("")
        return self.categories or [], lambda rows: np.nan_to_num(read(rows), nan=-1).astype(np.int64)
