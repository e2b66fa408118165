"""A data frame, column by column, as one table of numbers: which columns can be read, how, and in which type."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Protocol

import numpy as np

from gpuboost.config import get_config, warn
from gpuboost.data.tables.batches import SCAN_ROWS, Array, Read, Rows, row_slices
from gpuboost.data.tables.categories import HasDictionary, category_reader
from gpuboost.data.tables.names import listing, quoted
from gpuboost.data.tables.numbers import exceeds_float32, unusable, warn_lossy

__all__ = ["Column", "Frame", "read_frame"]

LETTERS = {"b": "i", "i": "int", "u": "int"}  # NumPy kind → XGBoost's letter; float for others


class Column(HasDictionary, Protocol):
    """A column of a frame, on the host (host_frames.HostColumn) or on a GPU (cudf_frames.CudfColumn)."""

    library: str  # whose ways of converting a column messages show: "pandas", "polars", "pyarrow" or another
    is_categorical: bool

    @property
    def dtype(self) -> Any:
        """As its library names it, for messages."""

    @property
    def kind(self) -> str:
        """NumPy's letter for the values; V where they are lists or structs."""

    def is_null(self) -> bool:
        """Whether there is no value at all."""

    def number_reader(self, name: str) -> Read:
        """rows → (n,) numbers, NaN where missing."""

    def present_integers(self, rows: Rows) -> Array:
        """What a column of integers holds in these rows; what stands for its nulls, if anything, fits float32."""


class Frame(Protocol):
    """A frame, on the host (host_frames.HostFrame) or on a GPU (cudf_frames.CudfFrame)."""

    shape: tuple[int, int]

    @property
    def xp(self) -> Any:
        """The module of its arrays: NumPy or CuPy."""

    def columns(self) -> Iterable[Column]:
        """All columns, in order."""

    def whole_array(self) -> Array | None:
        """All of it as one float32 or float64 view; None when its library would have to copy."""


def read_frame(
    frame: Frame, names: list[str], categories: dict[str, list[Any]] | None, is_training: bool, missing: float
) -> tuple[list[str], dict[str, list[Any]], Read]:
    """The letters of a frame's columns, its dictionaries, and its reader: rows → column-major float32.

    names : to call its columns. categories : of a model, None in training. missing : applied here where there are categories, as
        a code may equal it.
    """
    whole = frame.whole_array()
    if whole is not None and not categories:
        return ["float"] * len(names), {}, whole.__getitem__
    n_rows, xp = frame.shape[0], frame.xp
    letters, readers, dictionaries, unseen, lossy = [], [], {}, [], []
    for column, name in zip(frame.columns(), names):
        known = None if categories is None else categories.get(name)
        if column.is_categorical:
            if categories is not None and known is None:
                raise ValueError(
                    f"{quoted(name)} holds categories, of which the model knows none: it held numbers in training, or the file "
                    "is of XGBoost before 3.1. Convert it to numbers, or to its codes in training."
                )
            read, dictionaries[name], strangers = category_reader(column, name, n_rows, known, xp)
            letter = "c"
            unseen += [f"{quoted(name)}: {listing(strangers)}"] * bool(strangers)
        elif known is not None and not column.is_null():
            raise unusable(quoted(name), column.dtype, "U", name, column.library, "held categories in training")
        else:
            kind = column.kind
            if kind not in "biufO" and not column.is_null():
                raise unusable(quoted(name), column.dtype, kind, name, column.library)
            letter, read = LETTERS.get(kind, "float"), column.number_reader(name)
            parts = map(column.present_integers, row_slices(n_rows, SCAN_ROWS))
            if is_training and letter == "int" and any(exceeds_float32(part).any() for part in parts):
                lossy.append(name)
        letters.append(letter)
        readers.append(read)
    if unseen and get_config()["unseen_categories"] == "error":
        raise ValueError(
            f"categories unknown to the model: {'; '.join(unseen)}. Correct them, or let them be missing: "
            "set_config(unseen_categories='missing')."
        )
    if unseen:
        warn(f"Categories unknown to the model become missing. {'; '.join(unseen)}.")
    warn_lossy(lossy)
    marked = [bool(dictionaries) and name not in dictionaries for name in names]
    return letters, dictionaries, partial(_read_columns, readers, marked, missing, n_rows, xp.empty)


def _read_columns(
    readers: list[Read], marked: list[bool], missing: float, n_rows: int, empty: Callable[..., Array], rows: Rows
) -> Array:
    """Some rows of all columns. marked : those in which ``missing`` becomes NaN."""
    n = len(range(*rows.indices(n_rows))) if isinstance(rows, slice) else len(rows)
    batch = empty((n, len(readers)), np.float32, order="F")
    with np.errstate(over="ignore", invalid="ignore"):  # 1e39 becomes inf, which training reports
        for values, read, is_marked in zip(batch.T, readers, marked):
            values[:] = read(rows)
            if is_marked:
                values[values == missing] = np.nan
    return batch
