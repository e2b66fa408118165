"""Explanations as shap's plots take them: ``gpuboost.explainer(model)(X)``."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpuboost.booster import Booster
from gpuboost.data.dmatrix import DMatrix
from gpuboost.data.tables.device import host_array, is_device_table
from gpuboost.data.tables.host_frames import computed
from gpuboost.data.tables.sparse import is_sparse
from gpuboost.errors import from_other_library, kind_of
from gpuboost.model_io.dump import name_of_column

__all__ = ["Explanation", "ModelExplainer", "explainer"]


@dataclass(frozen=True, eq=False)
class Explanation:
    """What shap.Explanation holds, where shap is not installed.

    values : float32 (n_rows, n_features), of several outputs (n_rows, n_features, n_outputs); of interactions the features twice.
    base_values : float32 (n_rows,) or (n_rows, n_outputs). They and the values of a row add up to its margin.
    data : (n_rows, n_features), the table. feature_names : one for each column.
    """

    values: np.ndarray
    base_values: np.ndarray
    data: np.ndarray | None
    feature_names: list[str]

    @property
    def shape(self) -> tuple[int, ...]:
        """That of values."""
        return self.values.shape


class ModelExplainer:
    """Explains rows by one model. Made by ``explainer``."""

    def __init__(
        self, booster: Booster, to_matrix: Callable[[Any], DMatrix], background: Any, rounds: tuple[int, int],
        own_columns: Callable[[Any], Any] = lambda X: X,
    ) -> None:  # fmt: skip
        self._booster, self._to_matrix, self._rounds, self._own_columns = booster, to_matrix, rounds, own_columns
        self._background = None if background is None else self._as_matrix(background)
        name_of = name_of_column(booster.model)
        self.feature_names = [name_of(feature) for feature in range(booster.num_features())]

    def _as_matrix(self, X: Any) -> DMatrix:
        return X if isinstance(X, DMatrix) else self._to_matrix(X)

    def __call__(self, X: Any, *, interactions: bool = False, progress: Callable[[int, int], None] | None = None) -> Any:
        """shap.Explanation of a table where shap is installed, else Explanation, which has the same fields.

        progress : called with the rows that are done, and all.
        """
        X = computed(X)  # a stream is read once
        contributions = host_array(self._contributions(self._as_matrix(X), interactions, progress))
        inner = contributions[..., :-1, :-1] if interactions else contributions[..., :-1]
        bias = contributions[..., -1, -1] if interactions else contributions[..., -1]
        is_one = contributions.shape[1] == 1
        values = inner[:, 0] if is_one else np.moveaxis(inner, 1, -1)
        explanation = Explanation(
            np.ascontiguousarray(values), bias[:, 0] if is_one else np.ascontiguousarray(bias), _as_array(self._own_columns(X)),
            self.feature_names,
        )
        try:
            import shap
        except ImportError:
            return explanation
        return shap.Explanation(**vars(explanation))

    def _contributions(self, data: DMatrix, interactions: bool, progress: Callable[[int, int], None] | None) -> np.ndarray:
        if interactions and self._background is not None:
            raise ValueError("there are no interactions against a background table. Leave the background out.")
        return self._booster.contributions(
            data, "interactions" if interactions else "values", background=self._background, iteration_range=self._rounds,
            progress=progress,
        )  # fmt: skip

    @property
    def expected_value(self) -> float | np.ndarray:
        """What the values of every row are added to: base_values of a row; (n_outputs,) of several outputs."""
        booster = self._booster
        nobody = np.full((1, booster.num_features()), np.nan, np.float32)
        row = DMatrix(nobody, feature_names=booster.feature_names, feature_types=booster.feature_types)
        bias = host_array(self._contributions(row, False, None))[0, :, -1]
        return float(bias[0]) if len(bias) == 1 else bias

    def shap_values(self, X: Any, *, check_additivity: bool = True) -> np.ndarray:
        """The values of __call__, by the name that shap's explainers have for it. check_additivity : accepted for their sake;
        values and base_values always add up to the margin."""
        return self(X).values

    def shap_interaction_values(self, X: Any) -> np.ndarray:
        """The values of interactions."""
        return self(X, interactions=True).values


def explainer(model: Any, background: Any = None, *, iteration_range: tuple[int, int] | None = None) -> ModelExplainer:
    """What explains the margins of a model: shap.plots.beeswarm(gpuboost.explainer(model)(X)).

    model : Booster, estimator of gpuboost.sklearn, or a model file. background : None weighs the branches of what is not known by
    their covers in training (path-dependent values); a table takes it from the table's rows (interventional values): some hundred
    to some thousand rows that the question compares with, read once, at the first explanation. iteration_range : as for predict;
    an estimator's best rounds for None.
    """
    if hasattr(model, "explained_rounds"):
        rounds = model.explained_rounds(iteration_range)
        return ModelExplainer(model.get_booster(), model.explained_matrix, background, rounds, model.explained_table)
    if isinstance(model, str | os.PathLike):
        model = Booster(model_file=model)
    if not isinstance(model, Booster):
        hint = from_other_library(model)
        raise TypeError(f"model must be a Booster, an estimator or a model file, got {kind_of(model)}.{hint}")
    return ModelExplainer(model, DMatrix, background, iteration_range or (0, 0))


def _as_array(X: Any) -> np.ndarray | None:
    """A table as shap's plots look at it; None for a DMatrix."""
    if isinstance(X, DMatrix):
        return None
    if is_sparse(X):
        return X.toarray()
    if is_device_table(X):
        X = host_array(X)
    return X.to_numpy() if hasattr(X, "to_numpy") else np.asarray(X)
