"""xgboost.interpret's function of the same name: SHAP values as arrays. For shap's plots there is gpuboost.explainer."""

from typing import Any

import numpy as np

from gpuboost.booster import Booster
from gpuboost.data.dmatrix import DMatrix

__all__ = ["shap_values"]

OF_TABLES = {"missing": "missing", "feature_types": "feature_types", "enable_categorical": "enable_categorical",
             "sparse_absent": "sparse_absent", "nthread": "n_jobs"}  # fmt: skip


def shap_values(
    model: Any, X: Any, *, X_background: Any = None, output_margin: bool = False,
    iteration_range: tuple[int, int] | None = None, missing: float | None = None, validate_features: bool = True,
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """What each column adds to the margins of the rows: values, (n_rows, n_features) or of several outputs (n_rows, n_outputs,
    n_features), and the bias, without the last axis. They add up to the margin, whatever output_margin says.

    model : Booster or estimator. X : a table, or a DMatrix. X_background : a table to compare with; None: by the covers of
    training. iteration_range : as for predict. missing : the value that means missing in tables; None: the estimator's.
    """
    booster, rounds, table_of = model, iteration_range, lambda table: table
    if hasattr(model, "get_booster"):
        booster, rounds, table_of = model.get_booster(), model.explained_rounds(iteration_range), model.explained_table
    if not isinstance(booster, Booster):
        raise TypeError(f"model must be a Booster or an estimator of gpuboost, got {type(model).__name__}.")
    read_as = {name: getattr(model, own) for name, own in OF_TABLES.items() if hasattr(model, own)}
    read_as |= {} if missing is None else {"missing": missing}

    def matrix_of(table: Any) -> DMatrix:
        if not isinstance(table, DMatrix):
            return DMatrix(table_of(table), **read_as)
        if missing is not None:
            raise ValueError("missing of a DMatrix is given when that is made. Leave it out here.")
        return table

    contributions = booster.contributions(
        matrix_of(X), background=None if X_background is None else matrix_of(X_background), validate_features=validate_features,
        iteration_range=rounds,
    )  # fmt: skip
    contributions = contributions if contributions.shape[1] > 1 else contributions[:, 0]
    return contributions[..., :-1], contributions[..., -1]
