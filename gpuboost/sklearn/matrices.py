"""A DMatrix in the place of a table: it brings its labels, and all else that is known of its rows, along."""

import os
from typing import Any

import numpy as np

from gpuboost.data.dmatrix import DMatrix
from gpuboost.data.streams.data_iter import is_data_iter
from gpuboost.data.streams.files import is_query
from gpuboost.data.tables.host_frames import computed
from gpuboost.errors import kind_of

__all__ = ["check_codes", "in_memory", "refuse_info"]


def refuse_info(matrix: DMatrix, **info: Any) -> None:
    """ValueError where something is given beside a matrix."""
    for name, values in info.items():
        if values is not None:
            raise ValueError(f"{name} of a {type(matrix).__name__} is given when that is made. Leave it out here, or pass None.")


def check_codes(matrix: DMatrix, codes: np.ndarray, classes: np.ndarray) -> None:
    """ValueError where a matrix has other labels than the numbers of their classes."""
    if not np.array_equal(codes, matrix.get_label()):
        raise ValueError(
            f"the labels of a {type(matrix).__name__} for a classifier must be 0, 1, 2 and so on, got the classes "
            f"{classes[:8].tolist()}. Number them: np.unique(y, return_inverse=True)."
        )


def in_memory(X: Any) -> Any:
    """A table whose columns scikit-learn can count: frames that are computed when they are asked for are computed.

    Raises TypeError for what a matrix can be made of, but what is no table.
    """
    is_other_matrix = hasattr(X, "get_label") and hasattr(X, "num_row")  # XGBoost's DMatrix
    is_stream = isinstance(X, str | os.PathLike) or is_data_iter(X) or (is_query(X) and not hasattr(X, "collect"))
    if is_other_matrix or is_stream:
        raise TypeError(
            f"X must be a table or a DMatrix, got {kind_of(X)}. Make one: gpuboost.DMatrix(X), or "
            "gpuboost.ExtMemQuantileDMatrix(X), whose codes need not fit in memory; to fit with its label=, and None for y."
        )
    return computed(X)
