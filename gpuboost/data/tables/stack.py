"""Tables one below the other, read as one: what partitions of a table are, without a copy of them all."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from gpuboost.data.tables.batches import Array, Read, Rows
from gpuboost.data.tables.source import ColumnSource

__all__ = ["Stack", "join_categories", "stack_sources"]


class Stack:
    """Tables of the same columns, none of them sparse; anything that DMatrix takes, or what load_table made of it. numbers : what
    errors call them."""

    def __init__(self, tables: Sequence[Any], numbers: Sequence[int] | None = None) -> None:
        self.tables = list(tables)
        self.numbers = range(len(self.tables)) if numbers is None else numbers


def stack_sources(sources: Sequence[ColumnSource], numbers: Sequence[int]) -> ColumnSource:
    """The rows of all sources, in their order. Raises ValueError where their columns differ, naming one by its number."""
    first = sources[0]
    for i, source in zip(numbers, sources):
        for what in ("n_features", "feature_names", "feature_types"):
            own, expected = getattr(source, what), getattr(first, what)
            if own != expected:
                raise ValueError(
                    f"partition {i} has {what} {own!r:.200}, partition {numbers[0]} has {expected!r:.200}. Make them equal."
                )
    ends = np.cumsum([source.n_rows for source in sources])
    return replace(first, n_rows=int(ends[-1]), read=partial(_read_stacked, [source.read for source in sources], ends))


def _read_stacked(reads: Sequence[Read], ends: np.ndarray, rows: Rows) -> Array:
    """rows : slice of ascending rows, or int (n,)."""
    if isinstance(rows, slice):
        start, stop, step = rows.indices(int(ends[-1]))
        if step != 1:
            return _read_stacked(reads, ends, np.arange(start, stop, step))
        first = int(np.searchsorted(ends, start, side="right"))
        parts = []
        for i in range(first, len(reads)):
            begin = int(ends[i - 1]) if i else 0
            if begin >= stop:
                break
            parts.append(reads[i](slice(max(start, begin) - begin, min(stop, int(ends[i])) - begin)))
        return parts[0] if len(parts) == 1 else np.concatenate(parts) if parts else reads[0](slice(0, 0))
    rows = np.asarray(rows)
    owner = np.searchsorted(ends, rows, side="right")
    batch = reads[0](slice(0, 0))
    batch = np.empty_like(batch, shape=(len(rows), batch.shape[1]), dtype=np.float64)
    for i in np.unique(owner).tolist():
        is_own = owner == i
        batch[is_own] = reads[i](rows[is_own] - (ends[i - 1] if i else 0))
    return batch


def join_categories(each: Sequence[dict[str, list[Any]]]) -> dict[str, list[Any]]:
    """Of every column the values that any of the dictionaries has, numbers before text, ascending: an order that does not depend
    on who holds which rows."""
    values = {name: {value for other in each for value in other[name]} for name in each[0]}
    return {name: sorted(found, key=lambda value: (isinstance(value, str), value)) for name, found in values.items()}
