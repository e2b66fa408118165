"""The classifier."""

from typing import Any

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils import column_or_1d
from sklearn.utils.multiclass import check_classification_targets

from gpuboost.booster import Booster
from gpuboost.data.dmatrix import DMatrix
from gpuboost.data.tables.device import host_array, like
from gpuboost.kernels.reduce import map_rows
from gpuboost.labels import class_codes, class_probabilities, label_array, read_classes, write_classes
from gpuboost.model_io import dumps
from gpuboost.objectives import find_objective, objective_of, require_known
from gpuboost.sklearn.base import GPUBoostModel
from gpuboost.sklearn.matrices import check_codes
from gpuboost.sklearn.parameters import PARAMETERS

__all__ = ["GPUBoostClassifier", "zero_and_one"]


class GPUBoostClassifier(ClassifierMixin, GPUBoostModel, objective="binary:logistic"):
    __doc__ = f"""Gradient boosted trees for classification; labels may be of any type, and are kept as classes_.

    binary:logistic for two classes, multi:softprob for more. A y of 0 and 1, (n_samples, n_labels), is several labels, with trees
    for each.

{PARAMETERS}
    """

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return tags

    @property
    def n_classes_(self) -> int:
        return len(self.classes_)

    def _fit_labels(self, y: Any) -> np.ndarray:
        y = _labels(y)
        check_classification_targets(y)
        if y.ndim == 1:
            self.classes_, codes = np.unique(y, return_inverse=True)
            return codes
        self.classes_ = zero_and_one(np.unique(y))
        return y.astype(np.int64)

    def _check_matrix(self, X: DMatrix, label: np.ndarray) -> None:
        check_codes(X, label, self.classes_)

    def _check_continued(self, booster: Booster) -> None:
        known = read_classes(booster).tolist()
        if known != self.classes_.tolist():
            raise ValueError(f"xgb_model knows the classes {known}, y has {self.classes_.tolist()}. Continue with the same ones.")

    def _encoded(self, y: Any, where: str) -> np.ndarray:
        return class_codes(_labels(y), self.classes_, where)

    def _objective_name(self) -> str:
        name = super()._objective_name()
        if not (known := find_objective(str(name))).is_classifier:
            fix = "Leave it out" if known.predicts else "Import the module that defines it, or leave it out"
            raise ValueError(f"objective of a classifier must be binary:logistic or multi:softprob, got {name!r}. {fix}.")
        # multi:softmax grows the same trees, but hides the probabilities. More classes than two overrule, as in XGBoost.
        is_several = len(getattr(self, "classes_", ())) > 2
        return "multi:softprob" if name.startswith("binary:") and is_several else find_objective(name).probability_twin or name

    def _functions(self) -> dict[str, Any]:
        functions = super()._functions()
        if self.objective == "multi:softmax" and (metric := functions.get("custom_metric")):  # which sees classes, as in XGBoost
            functions["custom_metric"] = lambda prediction, dmatrix: metric(prediction.argmax(axis=1), dmatrix)
        return functions

    def get_xgb_params(self) -> dict[str, Any]:
        params = super().get_xgb_params()
        if find_objective(params["objective"]).takes_parameter("num_class") and hasattr(self, "classes_"):
            params["num_class"] = max(self.n_classes_, 2)
        return params

    def _as_trained_here(self, booster: Booster) -> Booster:
        twin = find_objective(booster.model.objective).probability_twin
        if twin is None:
            return booster
        booster.model.objective = twin
        return Booster(model_file=dumps(booster.model))

    def _keep_labels(self, booster: Booster) -> None:
        write_classes(booster, self.classes_)

    def predict(
        self, X, *, output_margin=False, validate_features=True, base_margin=None, iteration_range=None
    ) -> np.ndarray:
        """The most probable class of each row, in the type of classes_; raw margins with output_margin.

        Of several labels 0 and 1, (n_samples, n_labels). For a table on a GPU a CuPy array there, or a NumPy array where the
        classes are no numbers.
        """
        prediction = self._predict(X, output_margin, validate_features, base_margin, iteration_range)
        return prediction if output_margin else like(X, self._chosen(prediction))

    def predict_proba(self, X, *, validate_features=True, base_margin=None, iteration_range=None) -> np.ndarray:
        """float32 (n_samples, n_classes): probabilities in the order of classes_; of several labels the probability of each to
        be 1, (n_samples, n_labels)."""
        prediction = self._predict(X, False, validate_features, base_margin, iteration_range)
        return like(X, self._probabilities(prediction))

    def _chosen(self, prediction: Any) -> np.ndarray:
        """The classes (n_rows,), or of several labels 0 and 1 (n_rows, n_labels), for what the model predicts."""
        probability = self._probabilities(prediction)
        codes = (probability > 0.5).astype(int) if self._booster.model.n_targets > 1 else probability.argmax(axis=1)
        return self.classes_[codes]

    def _probabilities(self, prediction: Any) -> np.ndarray:
        """float32 on the host, as class_probabilities has them, of what the model predicts: margins, of binary:logitraw."""
        prediction, objective = host_array(prediction), objective_of(self._booster.model)
        if objective is not None and objective.predict_map is not None and not objective.predicts_classes:
            margin = np.ascontiguousarray(np.atleast_2d(prediction.T))
            map_rows(objective.row_map)(margin, probability := np.empty_like(margin), 1)
            prediction = probability.T if prediction.ndim == 2 else probability[0]
        return class_probabilities(prediction, self.n_classes_)

    def _use_loaded(self, booster: Booster) -> None:
        if not (booster.model.n_classes or find_objective(booster.model.objective).is_classifier):
            require_known(booster.model.objective)
            raise TypeError(f"the model was trained with {booster.model.objective}. Load it with GPUBoostRegressor.")
        self.classes_ = read_classes(booster)


def zero_and_one(values: np.ndarray) -> np.ndarray:
    """The classes of each of several labels, in the type of the values that occur. Raises ValueError for others than 0 and 1."""
    if not np.isin(values, (0, 1)).all():
        raise ValueError(
            f"y of several columns must hold 0 and 1 only, got {values[:5].tolist()}. Use scikit-learn's "
            "MultiOutputClassifier to train one classifier a column."
        )
    return np.arange(2).astype(values.dtype)


def _labels(y: Any) -> np.ndarray:
    """Labels of their own type, (n,), or (n, k) for k > 1. One column is flattened with a DataConversionWarning."""
    y = label_array(y)
    return y if y.ndim == 2 and y.shape[1] > 1 else column_or_1d(y, warn=True)
