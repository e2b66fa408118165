"""Which tables are read as streams."""

import os
from typing import Any

import numpy as np

from gpuboost.data.streams.batch import Stream
from gpuboost.data.streams.data_iter import is_data_iter, stream_of_iter
from gpuboost.data.streams.files import is_query, is_table_path, stream_of_path, stream_of_query
from gpuboost.storage.room import free_memory

__all__ = ["find_stream", "room_for_values"]

SHARE_OF_VALUES = 3  # of free memory, one in so many bytes may hold the values of a stream


def find_stream(data: Any, info: dict[str, Any], takes_all: bool) -> tuple[Stream | None, set[str]]:
    """The stream that some data are, None where they are a table at hand; and what of ``info`` names columns of it.

    takes_all : whether what would also be read whole is a stream: a text file, a lazy frame. Raises FileNotFoundError.
    """
    if is_data_iter(data):
        for name, values in info.items():
            if values is not None:
                raise ValueError(f"{name} of an iterator comes with its batches. Pass it to input_data({name}=...).")
        return stream_of_iter(data), set()
    named = {name: values for name, values in info.items() if _is_name(values)}
    if is_query(data) and (takes_all or named or type(data).__name__ != "LazyFrame"):
        return stream_of_query(data, named), set(named)
    if is_table_path(data) or (takes_all and isinstance(data, str | os.PathLike)):
        return stream_of_path(data, named), set(named)
    return None, set()


def room_for_values(cache_memory: int | None) -> int:
    """Bytes of a stream's values that may stay in memory."""
    if cache_memory is None:
        return free_memory() // SHARE_OF_VALUES
    if not isinstance(cache_memory, int | float | np.integer) or cache_memory < 0:
        raise ValueError(f"cache_memory must be a number of bytes, at least 0, got {cache_memory!r}. Leave it out: what is free.")
    return int(cache_memory)


def _is_name(values: Any) -> bool:
    return isinstance(values, str) or (isinstance(values, list) and bool(values) and all(isinstance(v, str) for v in values))
