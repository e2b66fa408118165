"""Estimators that fit and predict on a cluster: scikit-learn's way, with dask collections."""

from collections.abc import Generator, Sequence
from functools import partial
from math import isnan
from typing import Any, Self

import dask
import dask.array as da
import numpy as np
from distributed import Client

from gpuboost.dask.matrix import DaskDMatrix, client_of, delayed_blocks, is_frame, synced
from gpuboost.dask.prediction import inplace_predict_rows, predict
from gpuboost.dask.training import train_matrices
from gpuboost.labels import class_codes, label_array
from gpuboost.positional import also_by_position
from gpuboost.sklearn import (
    GPUBoostClassifier,
    GPUBoostRanker,
    GPUBoostRegressor,
    GPUBoostRFClassifier,
    GPUBoostRFRegressor,
)
from gpuboost.sklearn.base import GPUBoostModel, checked_pairs, one_each
from gpuboost.sklearn.classifier import zero_and_one

__all__ = [
    "DaskGPUBoostClassifier", "DaskGPUBoostRFClassifier", "DaskGPUBoostRFRegressor", "DaskGPUBoostRanker",
    "DaskGPUBoostRegressor",
]  # fmt: skip

OF_DASK = {"coll_cfg": None}


class _DaskModel(GPUBoostModel, **OF_DASK):
    """What the estimators share. Parameters as on one machine, and coll_cfg (Config).

    client : an attribute, the cluster's; by default the one at hand. With an asynchronous one, await what fit and predict return
    (and the estimator, if you like).
    """

    _local: type[GPUBoostModel]  # the estimator of one machine
    _client: Client | None = None

    def __init__(self, **params: Any) -> None:
        if "client" in params:
            raise TypeError("client is no parameter of an estimator, which could not be copied with it. Set estimator.client.")
        super().__init__(**params)

    @property
    def client(self) -> Client:
        """The cluster's client. It is not pickled: whoever loads the estimator elsewhere sets another."""
        return client_of(self._client)

    @client.setter
    def client(self, client: Client | None) -> None:
        self._client = client

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in super().__getstate__().items() if name != "_client"}

    def __await__(self) -> Generator[Any, None, Self]:
        async def itself() -> Self:
            return self

        return itself().__await__()

    def to_local(self) -> GPUBoostModel:
        """The estimator of one machine, with the same parameters and model."""
        params = {name: value for name, value in self.get_params(deep=False).items() if name not in OF_DASK}
        local = self._local(**params)
        local.__dict__.update({name: value for name, value in vars(self).items() if name not in (*params, *OF_DASK, "_client")})
        return local

    def get_xgb_params(self) -> dict[str, Any]:
        """Those of one machine; feature_weights that are a dask collection belong to the matrix."""
        params = {name: value for name, value in super().get_xgb_params().items() if name not in OF_DASK}
        return {name: None if dask.is_dask_collection(value) else value for name, value in params.items()}

    # -- Fitting ------------------------------------------------------------------------------------------------------

    @also_by_position("sample_weight", "base_margin", "eval_set", is_fit=True)
    def fit(
        self, X, y, *, sample_weight=None, base_margin=None, eval_set=None, verbose=False, xgb_model=None,
        sample_weight_eval_set=None, base_margin_eval_set=None, feature_weights=None,
    ) -> Any:  # fmt: skip
        """Train on a dask array or dataframe X and its labels y, of the same partitions; arguments as on one machine."""
        info = {"weight": sample_weight, "base_margin": base_margin, "feature_weights": feature_weights}
        return synced(
            self.client, self._fit_async, X, y, info, eval_set, sample_weight_eval_set, base_margin_eval_set, verbose, xgb_model,
            None,
        )  # fmt: skip

    async def _fit_async(
        self, X: Any, y: Any, info: dict[str, Any], eval_set: Any, eval_weights: Any, eval_margins: Any, verbose: Any,
        xgb_model: Any, eval_queries: Sequence[dict[str, Any]] | None,
    ) -> Self:  # fmt: skip
        if info["feature_weights"] is None and dask.is_dask_collection(self.feature_weights):
            info = {**info, "feature_weights": self.feature_weights}
        pairs = checked_pairs(eval_set)
        weights = one_each("sample_weight_eval_set", eval_weights, pairs)
        margins = one_each("base_margin_eval_set", eval_margins, pairs)
        if self.early_stopping_rounds is not None and not pairs:
            raise ValueError("early_stopping_rounds needs an evaluation set. Pass eval_set=[(X_valid, y_valid)] to fit().")
        if self.refit_full:
            raise ValueError("refit_full joins tables, which are on a cluster here. Leave it out.")
        n_rounds, continued = self.get_num_boosting_rounds(), self._continued(xgb_model)
        self.__dict__.pop("_booster", None)  # no model is better than one of another table's columns and classes
        label = await self._labels(y)
        if continued is not None:
            self._check_continued(continued)
        dtrain = self._dask_matrix(X, label, **info)
        evals = []
        for i, (table, labels) in enumerate(pairs):
            own = {"weight": weights[i], "base_margin": margins[i], **(eval_queries[i] if eval_queries else {})}
            is_training = self._is_training({"X": X, "y": y, **info}, {"X": table, "y": labels, **own})
            matrix = dtrain if is_training else self._dask_matrix(table, self._codes(labels, f"eval_set[{i}]"), **own)
            evals.append((matrix, f"validation_{i}"))
        functions = self._functions()
        output = await train_matrices(
            self.client, self.get_xgb_params(), dtrain, n_rounds, evals=evals, xgb_model=continued, coll_cfg=self.coll_cfg,
            obj=functions.get("obj"), custom_metric=functions.get("custom_metric"), verbose_eval=verbose, maximize=None,
            early_stopping_rounds=self.early_stopping_rounds, callbacks=self.callbacks,
        )  # fmt: skip
        self._booster, self.evals_result_ = output["booster"], output["history"]
        self._keep_labels(self._booster)
        self.n_features_in_ = self._booster.num_features()
        if self._booster.feature_names is not None:
            self.feature_names_in_ = np.array(self._booster.feature_names, dtype=object)
        return self

    async def _labels(self, y: Any) -> Any:
        """The labels of training as training takes them."""
        return y

    def _codes(self, y: Any, where: str) -> Any:
        """Other labels."""
        return y

    def _dask_matrix(self, X: Any, label: Any = None, **info: Any) -> DaskDMatrix:
        return DaskDMatrix(
            self.client, X, label, missing=self.missing, feature_types=self.feature_types,
            enable_categorical=self.enable_categorical, sparse_absent=self.sparse_absent, **info,
        )  # fmt: skip

    # -- Predicting ---------------------------------------------------------------------------------------------------

    def predict(self, X, *, output_margin=False, validate_features=True, base_margin=None, iteration_range=None) -> Any:
        """A dask collection with the prediction of each row of X."""
        return synced(self.client, self._predict_async, X, output_margin, validate_features, base_margin, iteration_range)

    async def _predict_async(
        self, X: Any, output_margin: bool, validate_features: bool, base_margin: Any, iteration_range: Any
    ) -> Any:
        rounds = self._rounds(iteration_range)
        prediction = await inplace_predict_rows(
            self.get_booster(), X, output_margin, self.missing, base_margin, rounds, validate_features
        )  # fmt: skip
        return prediction.to_dask_array() if is_frame(prediction) and len(prediction.shape) > 1 else prediction

    def apply(self, X, iteration_range=None) -> Any:
        """The leaf of each tree that a row falls into: a dask array, int32 (n_samples, n_trees)."""
        return synced(self.client, self._apply_async, X, iteration_range)

    async def _apply_async(self, X: Any, iteration_range: Any) -> Any:
        rounds, matrix = self._rounds(iteration_range), self._dask_matrix(X)
        if any(map(isnan, matrix.chunks)):  # as XGBoost, whose leaves have a shape that is known
            await matrix.settle(self.client, await self.client.compute(dask.delayed(list)(matrix.delayed_rows())))
        leaves = await predict(self.client, self.get_booster(), matrix, pred_leaf=True, iteration_range=rounds)
        return leaves.astype(np.int32)


class DaskGPUBoostRegressor(_DaskModel, GPUBoostRegressor):
    """GPUBoostRegressor on a cluster."""

    _local = GPUBoostRegressor


class DaskGPUBoostClassifier(_DaskModel, GPUBoostClassifier):
    """GPUBoostClassifier on a cluster. Its classes are those of all partitions; y of several columns, 0 and 1, several labels."""

    _local = GPUBoostClassifier

    async def _labels(self, y: Any) -> Any:
        labels = _label_columns(y, "y")
        parts = labels.to_delayed() if is_frame(labels) else delayed_blocks(labels)
        found = await self.client.compute(dask.delayed(_union)([dask.delayed(_classes)(part) for part in parts]))
        self.classes_ = zero_and_one(found) if labels.ndim > 1 and labels.shape[1] > 1 else found
        return self._codes(labels, "y")

    def _codes(self, y: Any, where: str) -> Any:
        code, labels = partial(_coded, classes=self.classes_, where=where), _label_columns(y, where)
        if is_frame(labels):
            return [dask.delayed(code)(part) for part in labels.to_delayed()]
        return labels.map_blocks(code, dtype=np.int64)

    def predict(self, X, *, output_margin=False, validate_features=True, base_margin=None, iteration_range=None) -> Any:
        """The most probable class of each row, in the type of classes_, or of several labels 0 and 1, (n_samples, n_labels); raw
        margins with output_margin."""
        return synced(self.client, self._predict_class, X, output_margin, validate_features, base_margin, iteration_range)

    async def _predict_class(self, X: Any, output_margin: bool, *given: Any) -> Any:
        prediction = await self._predict_async(X, output_margin, *given)
        if output_margin:
            return prediction
        chosen = partial(_chosen_class, estimator=self.to_local())
        if is_frame(prediction):
            import pandas as pd

            return prediction.map_partitions(chosen, meta=pd.Series(self.classes_).iloc[:0])
        is_several = self._booster.model.n_targets > 1
        lost = [] if is_several else list(range(1, prediction.ndim))
        return prediction.map_blocks(chosen, dtype=self.classes_.dtype, drop_axis=lost)

    def predict_proba(self, X, *, validate_features=True, base_margin=None, iteration_range=None) -> Any:
        """A dask array (n_samples, n_classes) of probabilities in the order of classes_; of several labels that of each to be 1,
        (n_samples, n_labels)."""
        return synced(self.client, self._probability, X, validate_features, base_margin, iteration_range)

    async def _probability(self, X: Any, *given: Any) -> Any:
        prediction = await self._predict_async(X, False, *given)
        array = prediction.to_dask_array() if is_frame(prediction) else prediction
        proba, n_labels = partial(_probability_of, estimator=self.to_local()), self._booster.model.n_targets
        chunks = array.chunks[0], (n_labels if n_labels > 1 else len(self.classes_),)
        return array.map_blocks(proba, dtype=np.float32, chunks=chunks, new_axis=[1] if array.ndim == 1 else None)


class DaskGPUBoostRanker(_DaskModel, GPUBoostRanker, allow_group_split=False):
    """GPUBoostRanker on a cluster. Rows of a query follow each other over all partitions.

    allow_group_split : accepted for XGBoost's sake; no query is ever split.
    """

    _local = GPUBoostRanker

    def get_xgb_params(self) -> dict[str, Any]:
        return {name: value for name, value in super().get_xgb_params().items() if name != "allow_group_split"}

    def __await__(self) -> Generator[Any, None, Self]:
        async def itself() -> Self:
            return self

        return itself().__await__()

    def to_local(self) -> GPUBoostModel:
        local = super().to_local()
        local.__dict__.pop("allow_group_split", None)
        local.__dict__.pop("kwargs", None)
        return local

    @also_by_position("group", "qid", is_fit=True)
    def fit(
        self, X, y, *, group=None, qid=None, sample_weight=None, base_margin=None, eval_set=None, eval_group=None, eval_qid=None,
        verbose=False, xgb_model=None, sample_weight_eval_set=None, base_margin_eval_set=None, feature_weights=None,
    ) -> Any:  # fmt: skip
        """Train on documents X and degrees of relevance y. qid : the query of each row, ascending, or a column "qid" of X."""
        if group is not None or eval_group is not None:
            raise NotImplementedError("group has no partitions to follow. Pass qid, the query of each row.")
        X, qid = _without_qid(X, qid)
        pairs = checked_pairs(eval_set)
        split = [_without_qid(pair[0], own) for pair, own in zip(pairs, one_each("eval_qid", eval_qid, pairs))]
        if qid is None or any(own is None for _, own in split):
            raise ValueError("a ranker must know which rows are one query. Pass qid and eval_qid, or frames with a column 'qid'.")
        info = {"weight": sample_weight, "base_margin": base_margin, "feature_weights": feature_weights, "qid": qid}
        return synced(
            self.client, self._fit_async, X, y, info, [(table, pair[1]) for (table, _), pair in zip(split, pairs)],
            sample_weight_eval_set, base_margin_eval_set, verbose, xgb_model, [{"qid": own} for _, own in split],
        )  # fmt: skip

    def predict(self, X, *, output_margin=False, validate_features=True, base_margin=None, iteration_range=None) -> Any:
        """A dask collection of scores, of which those of one query can be compared."""
        table = _without_qid(X, None)[0]
        return synced(self.client, self._predict_async, table, output_margin, validate_features, base_margin, iteration_range)


class DaskGPUBoostRFRegressor(DaskGPUBoostRegressor, GPUBoostRFRegressor):
    """GPUBoostRFRegressor on a cluster."""

    _local = GPUBoostRFRegressor


class DaskGPUBoostRFClassifier(DaskGPUBoostClassifier, GPUBoostRFClassifier):
    """GPUBoostRFClassifier on a cluster."""

    _local = GPUBoostRFClassifier


def _without_qid(X: Any, qid: Any) -> tuple[Any, Any]:
    if is_frame(X) and "qid" in list(X.columns):
        return X.drop(columns=["qid"]), X["qid"] if qid is None else qid
    return X, qid


def _label_columns(y: Any, where: str) -> Any:
    """Labels as a collection of whole rows; a series, of a frame of one column. Raises TypeError for what is no collection."""
    if not (isinstance(y, da.Array) or is_frame(y)):
        raise TypeError(f"{where} must be a dask array or series, got {type(y).__name__}. Use dask.array.from_array.")
    if is_frame(y):
        return y.iloc[:, 0] if y.ndim > 1 and y.shape[1] == 1 else y
    return y.rechunk({1: -1}) if y.ndim > 1 else y


def _classes(part: Any) -> np.ndarray:
    return np.unique(label_array(part))


def _union(parts: Sequence[np.ndarray]) -> np.ndarray:
    kept = [part for part in parts if len(part)] or list(parts[:1])
    return np.unique(np.concatenate(kept))


def _coded(part: Any, classes: np.ndarray, where: str) -> np.ndarray:
    return class_codes(label_array(part), classes, where)


def _probability_of(prediction: Any, estimator: Any) -> np.ndarray:
    return estimator._probabilities(np.asarray(prediction))


def _chosen_class(prediction: Any, estimator: Any) -> Any:
    chosen = estimator._chosen(np.asarray(prediction))
    if hasattr(prediction, "iloc"):
        import pandas as pd

        return pd.Series(chosen, index=prediction.index)
    return chosen
