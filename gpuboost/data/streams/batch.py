"""A batch of a stream: some rows of a table, with what is known of them."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

__all__ = ["Batch", "Stream"]


@dataclass(frozen=True)
class Batch:
    """data : any table that a DMatrix takes. info : label, weight, ... by XGBoost's names, as a DMatrix takes them.

    feature_names, feature_types : replace those of a frame.
    """

    data: Any
    info: dict[str, Any]
    feature_names: Any = None
    feature_types: Any = None


@dataclass(frozen=True)
class Stream:
    """Where batches come from. batches : a new pass over all of them. cache_folder : where the stream wants files; None:
    anywhere. may_widen : whether batches name only the columns that they fill, as LIBSVM files do."""

    batches: Callable[[], Iterator[Batch]]
    cache_folder: str | None = None
    may_widen: bool = False
