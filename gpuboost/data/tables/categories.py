"""Categories as numbers: a column's values matched with a model's by value, whatever their codes are in the frame."""

import math
from functools import partial
from typing import Any, Protocol

import numpy as np

from gpuboost.data.tables.batches import SCAN_ROWS, Array, Read, Rows, row_slices
from gpuboost.data.tables.device import host_array
from gpuboost.data.tables.names import quoted

__all__ = ["HasDictionary", "category_reader"]


class HasDictionary(Protocol):
    """A column of categories."""

    def dictionary(self) -> tuple[list[Any], Read]:
        """Its values, on the host, and its reader: rows → int (n,) codes into them, -1 where null."""


def category_reader(
    column: HasDictionary, name: str, n_rows: int, known: list[Any] | None, xp: Any
) -> tuple[Read, list[Any], list[Any]]:
    """The reader of a category column (rows → (n,) codes, NaN where missing), its dictionary, and values not in ``known``."""
    raw, codes = column.dictionary()
    values = [_plain(value) for value in raw]
    origin: dict[Any, Any] = {}
    for value, given in zip(values, raw):
        if value is not None and origin.setdefault(value, given) != given:
            raise ValueError(f"{quoted(name)} holds two categories with the same text, {value!r}. Give each its own text.")
    dictionary = list(dict.fromkeys(v for v in values if v is not None)) if known is None else known
    position = {_plain(value): code for code, value in enumerate(dictionary)}
    # code -1 reads the last
    table = xp.asarray(np.array([position.get(value, np.nan) for value in values] + [np.nan], dtype=np.float32))
    strangers: list[Any] = []
    if any(value is not None and value not in position for value in values):
        used = xp.zeros(len(values) + 1, bool)
        for rows in row_slices(n_rows, SCAN_ROWS):
            used[codes(rows)] = True
        strangers = [v for v, is_used in zip(values, host_array(used)) if is_used and v is not None and v not in position]
    return partial(_read_recoded, table, codes), dictionary, strangers


def _read_recoded(table: Array, codes: Read, rows: Rows) -> Array:
    return table[codes(rows)]


def _plain(value: Any) -> Any:
    """A category value that a model file can hold: text, finite number or boolean; all else (dates, intervals, inf) as text."""
    value = value.item() if isinstance(value, np.generic) else value
    if value is None or value != value:
        return None
    is_held = isinstance(value, str | int) or (isinstance(value, float) and math.isfinite(value))
    return value if is_held else str(value)
