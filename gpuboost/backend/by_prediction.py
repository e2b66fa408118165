"""Weights of positive and negative rows by falling prediction, in NumPy's functions, which hand arrays on a GPU to CuPy. The CPU
has a kernel of its own (kernels/prediction_order.py)."""

from typing import Any

import numpy as np

__all__ = ["sum_by_prediction", "sum_equal"]


def sum_by_prediction(prediction: Any, label: Any, weight: Any) -> Any:
    """contract.RowReducer.sum_by_prediction."""
    bits = (prediction.astype(np.float32) + np.float32(0)).view(np.int32).astype(np.int64)  # −0 is 0
    order = -np.where(bits < 0, bits ^ 0x7FFFFFFF, bits)  # rises as predictions fall
    positive = label.astype(np.int64)
    rows = np.stack([order, positive, 1 - positive])
    if len(weight):
        rows[1:] *= weight
    return sum_equal(rows)


def sum_equal(rows: Any) -> Any:
    """int64 (3, n) rows of an order and two weights: by rising order, those of one order summed."""
    rows = rows[:, np.argsort(rows[0])]
    is_last = np.ones_like(rows[0], dtype=bool)  # of the rows of one order
    is_last[:-1] = rows[0, 1:] != rows[0, :-1]
    summed = np.cumsum(rows, axis=1)[:, is_last]
    summed[:, 1:] -= summed[:, :-1].copy()
    summed[0] = rows[0, is_last]
    return summed
