"""SHAP values of a linear model: a column contributes its weight times its value, a missing value nothing."""

import numpy as np

from gpuboost.data.dmatrix import DMatrix
from gpuboost.data.tables.device import host_array
from gpuboost.margins import PREDICTED_ROWS, start_margin, values_of
from gpuboost.model.model import Model

__all__ = ["linear_contributions"]


def linear_contributions(
    model: Model, base: np.ndarray, data: DMatrix, *, background: DMatrix | None = None, with_pairs: bool = False,
    by_name: bool = True,
) -> np.ndarray:  # fmt: skip
    """float32 (n_rows, n_outputs, n_features + 1), the bias last; with_pairs (n_rows, n_outputs, n_features + 1, n_features + 1),
    where columns do not interact (XGBoost: zeros, which do not add up to the margin).

    base : float32 (n_outputs,), the margins of base_score. background : a table whose means a row is compared with; None: 0.
    Raises ValueError for a matrix without values, and for a background without rows.
    """
    assert model.linear is not None
    weights = model.linear.weights.T.astype(np.float64)
    values = _values(model, data, by_name)[:, None] * weights[:, :-1]
    bias = start_margin(data, len(values), base, None, len(weights)).T + weights[:, -1]
    if background is not None:
        if background.num_row() == 0:
            raise ValueError("background has no rows. Give a sample of the rows that were trained on, for example.")
        means = _values(model, background, by_name).mean(axis=0) * weights[:, :-1]
        values, bias = values - means, bias + means.sum(axis=1)
    out = np.concatenate([values, bias[:, :, None]], axis=2).astype(np.float32)
    return out[..., None] * np.eye(out.shape[2], dtype=np.float32) if with_pairs else out


def _values(model: Model, data: DMatrix, by_name: bool) -> np.ndarray:
    """float64 (n_rows, n_features), 0 where one is missing."""
    source = values_of(model, data, by_name)
    out = np.empty((data.num_row(), model.n_features))
    for rows in source.batch_slices(least=PREDICTED_ROWS):
        batch = host_array(source.read(rows))
        out[rows] = np.where(np.isnan(batch) | (batch == source.missing), 0, batch)
    return out
