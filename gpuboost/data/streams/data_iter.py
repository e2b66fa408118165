"""DataIter: a stream that a user writes, by XGBoost's protocol."""

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from difflib import get_close_matches
from typing import Any

import numpy as np

from gpuboost.data.info import FIELDS
from gpuboost.data.streams.batch import Batch, Stream
from gpuboost.data.tables.names import listing
from gpuboost.paths import as_path

__all__ = ["DataIter", "is_data_iter", "stream_of_iter"]


class DataIter(ABC):
    """A table batch by batch. XGBoost's class of the same name: one written for it works once it inherits from this one.

        class Parts(gb.DataIter):
            def __init__(self, files):
                self.files, self.at = files, 0
                super().__init__()

            def next(self, input_data):
                if self.at == len(self.files):
                    return False
                X, y = load(self.files[self.at])
                input_data(data=X, label=y)
                self.at += 1
                return True

            def reset(self):
                self.at = 0

    cache_prefix : path whose folder takes the files of what does not fit in memory; None: that for temporary files.
        release_data,
    on_host, min_cache_page_bytes : accepted for XGBoost's sake.

    A matrix reads it once, from the beginning, when it is made; nothing of it is needed afterwards.
    """

    def __init__(
        self, cache_prefix: str | os.PathLike[str] | None = None, release_data: bool = True, *, on_host: bool = True,
        min_cache_page_bytes: int | None = None,
    ) -> None:  # fmt: skip
        self.cache_prefix = cache_prefix

    @abstractmethod
    def next(self, input_data: Callable[..., None]) -> bool:
        """Pass the next batch to ``input_data(data=, label=, weight=, ...)``, by keywords, as a DMatrix takes them; False,
        without a call, after the last one."""

    @abstractmethod
    def reset(self) -> None:
        """Begin anew with the first batch."""


def is_data_iter(data: Any) -> bool:
    """Whether it speaks the protocol: XGBoost's own iterators do."""
    return isinstance(data, DataIter) or (callable(getattr(data, "next", None)) and callable(getattr(data, "reset", None)))


def stream_of_iter(it: Any) -> Stream:
    prefix = getattr(it, "cache_prefix", None)
    return Stream(lambda: _batches(it), os.path.dirname(os.path.abspath(as_path("cache_prefix", prefix))) if prefix else None)


def _batches(it: Any) -> Iterator[Batch]:
    taken: list[Batch] = []

    def input_data(
        *unnamed: Any, data: Any = None, feature_names: Any = None, feature_types: Any = None, **info: Any
    ) -> None:  # fmt: skip
        if unnamed:
            raise TypeError("Keyword arguments are all that input_data() takes: input_data(data=X, label=y).")
        if taken:
            raise ValueError("input_data was called twice. Call it once in every next(), and return True.")
        for name in info.keys() - set(FIELDS):
            close = get_close_matches(name, FIELDS, n=1)
            hint = f"Did you mean {close[0]!r}?" if close else f"Use {listing(sorted(FIELDS))}."
            raise TypeError(f"input_data() takes no {name!r}. {hint}")
        given = {name: values for name, values in info.items() if values is not None}
        taken.append(Batch(data, given, feature_names, feature_types))

    it.reset()
    while True:
        taken.clear()
        more = it.next(input_data)
        if not isinstance(more, int | np.bool_ | np.integer):
            raise TypeError(f"next() must return True where it has passed a batch on, False after the last one, got {more!r}.")
        if not more:
            break
        if not taken:
            raise ValueError("next() returned True without a call of input_data. Call it, or return False after the last batch.")
        yield taken.pop()
    it.reset()
