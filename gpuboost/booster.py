"""Booster: a model together with the parameters that go on training it."""

import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields
from time import perf_counter
from typing import Any

import numpy as np

from gpuboost import inspection
from gpuboost.backend import Backend, choose_backend
from gpuboost.backend.row_sums import RowSums
from gpuboost.boosting import Boosting, add_model_margin
from gpuboost.communicator import current_communicator
from gpuboost.config import log, verbosity_context, warn
from gpuboost.data.device_tables import current_device, put_on
from gpuboost.data.dmatrix import DMatrix
from gpuboost.data.training_rows import check_labels, estimate_base_score, finished_prediction, start_margin
from gpuboost.errors import DeviceNotFoundError, NotFittedError, not_built
from gpuboost.metrics import get_metric
from gpuboost.model.model import Model
from gpuboost.model.tree import Tree
from gpuboost.model_io import dump_trees, dumps, load_model, save_model
from gpuboost.model_io.dump import join_dump, read_feature_map
from gpuboost.objectives import Objective, get_objective, objective_names
from gpuboost.params import ALIASES, Params, parse_params
from gpuboost.predictor import Predictor, unknown_objective

__all__ = ["Booster"]

PENDING_ROUNDS = 1  # grown but not yet asked for: a GPU grows the next round while the host takes in the last
DEFAULT_BASE_SCORE = 0.5  # where XGBoost starts a custom objective
KEPT_PREDICTORS = 8  # iteration ranges whose trees stay laid out for prediction


class Booster:
    """A gradient boosted model. XGBoost's class of the same name.

    params : training parameters by XGBoost's names. model_file : path or bytes of a model file.
    """

    def __init__(
        self,
        params: Mapping[str, Any] | None = None,
        cache: Any = None,
        model_file: str | os.PathLike[str] | bytes | bytearray | None = None,
    ) -> None:
        self._params = Params()
        self._given: dict[str, Any] = {}  # the parameters that were given, by their own names
        self._model: Model | None = None
        self._boosting: Boosting | None = None
        self._predictors: dict[tuple[int, int], Predictor] = {}
        self._adopt(_by_own_names(params), None)
        if model_file is not None:
            self.load_model(model_file)

    # -- Training -----------------------------------------------------------------------------------------------------

    @property
    def params(self) -> Params:
        """The checked parameters."""
        return self._params

    def set_param(self, params: str | Mapping[str, Any] | Iterable[tuple[str, Any]], value: Any = None) -> None:
        """Set one parameter by name, or several; None restores the default. Takes effect from the next round.

        Raises ValueError as Booster does, also for an objective other than the model's; nothing is changed then.
        """
        given = _by_own_names({params: value} if isinstance(params, str) else params, self._params.validate_parameters)
        self._adopt({**self._given, **given}, self._model)

    def _adopt(self, given: Mapping[str, Any], model: Model | None) -> None:
        """Take parameters and a model; what the model records about its objective holds unless a parameter says otherwise.

        given : by their own names; None means not given. Raises ValueError, and changes nothing, where they do not fit the model.
        """
        given = {name: value for name, value in given.items() if value is not None}
        params = parse_params({**({} if model is None else _recorded_objective(model)), **given})
        if model is not None:
            fixed = {"objective": model.objective, "num_class": model.n_classes}
            for name, value in fixed.items():
                if name in given and given[name] != value and (name, value, given[name]) != ("num_class", 0, 1):
                    raise ValueError(f"{name}={given[name]!r}, but the model was trained with {value!r}. Leave {name} out.")
        changed = {f for f in Params.__dataclass_fields__ if getattr(self._params, f) != getattr(params, f)}
        if model is not self._model:
            self._boosting = None  # rounds under way belonged to the old model
        elif changed - {"learning_rate", "eval_metric", "verbosity", "disable_default_eval_metric"}:
            self.reset()
        self._params, self._given, self._model = params, given, model

    def update(self, dtrain: DMatrix, iteration: int | None = None, fobj: Any = None) -> None:
        """Boost one round on dtrain. fobj : objective (predictions, dtrain) -> (grad, hess) instead of the model's own.

        ``iteration`` is XGBoost's argument; rounds are numbered by what the model holds already.
        """
        with verbosity_context(self._params.verbosity):
            boosting = self._boosting_on(dtrain, is_custom=fobj is not None)
            try:
                boosting.boost(self._params.learning_rate, fobj)
            except BaseException:  # KeyboardInterrupt, too
                self.reset()  # the margins may hold a part of the round; the model holds whole ones
                raise
            self._collect_rounds(keep=PENDING_ROUNDS)

    def _collect_rounds(self, keep: int = 0) -> None:
        """Take the rounds that the running training has finished into the model, but the last ``keep``."""
        if self._boosting is not None:
            model, groups = self._model, self._boosting.first_outputs
            assert model is not None
            try:
                for trees in self._boosting.fetch_rounds(keep):
                    if not all(np.isfinite(tree.leaf_value).all() for tree in trees):
                        raise FloatingPointError(
                            f"a leaf of round {model.n_rounds} is beyond float32. Use a smaller learning_rate, set "
                            "max_delta_step, or scale the labels or weights down."
                        )
                    model.add_round(trees, groups)
                    if model.n_rounds == 1 and all(tree.n_nodes == 1 for tree in trees):
                        self._warn_of_no_split(self._boosting, trees)
            except BaseException:
                self._boosting = None  # its margins are not those of the model
                raise

    def _warn_of_no_split(self, boosting: Boosting, trees: list[Tree]) -> None:
        """A UserWarning that nothing was learnt, unless labels or (drawn) columns may be constant or one leaf was asked for."""
        labels, params = boosting.dtrain.labels, self._params
        can_split = boosting.cuts.total_bins > boosting.dtrain.num_col() and params.max_leaves != 1
        can_split &= min(params.subsample, params.colsample_bytree, params.colsample_bylevel, params.colsample_bynode) == 1
        if can_split and (labels != labels[:, :1]).any():
            with verbosity_context(params.verbosity):
                warn(
                    "the first round split no node, so it predicts a constant. A split must gain more than "
                    f"{max(params.gamma, 1e-6):g} (gamma) and leave either side a sum of hessians of {params.min_child_weight:g} "
                    f"(min_child_weight), which is {max(tree.cover[0] for tree in trees):g} for all rows. Multiply tiny labels "
                    "or weights, or lower these parameters.",
                    stacklevel=4,
                )

    def boost(self, dtrain: DMatrix, iteration: int = 0, grad: Any = None, hess: Any = None) -> None:
        """Boost one round from gradients in predict's shape, weights applied."""
        self.update(dtrain, iteration, lambda *_: (grad, hess))

    def _boosting_on(self, dtrain: DMatrix, *, is_custom: bool = False) -> Boosting:
        """The running training on this matrix, started where needed.

        is_custom : gradients come from outside, so base_score is XGBoost's 0.5 unless given, not the minimiser of the own loss.
        """
        if not isinstance(dtrain, DMatrix):
            raise TypeError(f"dtrain must be a DMatrix, got {type(dtrain).__name__}. Wrap it: DMatrix(X, label=y).")
        if self._boosting is None or not self._boosting.trains_on(dtrain):
            self.reset()
            backend, comm = self._backend_for(dtrain), current_communicator()
            objective = self._objective()
            if self._model is None:
                self._model = self._empty_model(dtrain, objective, backend, comm, (DEFAULT_BASE_SCORE,) if is_custom else None)
            else:
                self._check_columns(dtrain)
                check_labels(dtrain, objective, self._model.n_targets)
            begin = perf_counter()
            self._boosting = Boosting(self._model, dtrain, self._params, objective, backend, comm)
            log(
                2,
                f"training on {backend.describe()}: {dtrain.num_row()} rows × {dtrain.num_col()} columns, "
                f"{self._boosting.cuts.total_bins} bins, ready in {perf_counter() - begin:.3f} s",
            )
        return self._boosting

    def _backend_for(self, dmatrix: DMatrix, *, is_training: bool = True) -> Backend:
        """Where the parameters say. Prediction goes to the CPU where there is no GPU: a model need not stay where it was
        trained."""
        n_values = dmatrix.num_row() * dmatrix.num_col()
        device = self._params.training_device if is_training else self._params.device
        try:
            return choose_backend(device, self._params.nthread, n_values=n_values, table_device=dmatrix.device)
        except DeviceNotFoundError:
            if is_training:
                raise
            return choose_backend("cpu", self._params.nthread)

    def _check_columns(self, dtrain: DMatrix) -> None:
        """To train on, a table must have the model's columns in the model's order."""
        model = self._fitted()
        if dtrain.is_sparse and (dtrain.sparse_absent or "missing") != model.sparse_absent:
            raise ValueError(
                f"what dtrain does not store is {dtrain.sparse_absent or 'missing'}, but {model.sparse_absent} for the model. "
                f"Use DMatrix(..., sparse_absent={model.sparse_absent!r})."
            )
        if dtrain.num_col() != model.n_features:
            raise ValueError(f"dtrain has {dtrain.num_col()} columns, the model was trained on {model.n_features}.")
        both_named = dtrain.feature_names is not None and model.feature_names is not None
        if (both_named and dtrain.feature_names != model.feature_names) or dtrain.categories != model.categories:
            raise ValueError("dtrain must have the column names, order and categories that the model was trained on.")

    def _empty_model(
        self, dtrain: DMatrix, objective: Objective, backend: Any, comm: Any, default: tuple[float, ...] | None
    ) -> Model:
        """A model without trees: names, types and base_score of the training table."""
        n_outputs = objective.n_outputs(len(dtrain.labels))
        estimated = estimate_base_score(dtrain, objective, backend, comm)  # also checks the labels
        given = default if self._params.base_score is None else self._params.base_score
        if given is not None and len(given) not in (1, n_outputs):
            raise ValueError(f"base_score must be one number or one per output ({n_outputs}), got {len(given)}. Leave it out.")
        return Model(
            n_features=dtrain.num_col(),
            objective=objective.name,
            objective_params=objective.file_params(),
            base_score=estimated if given is None else tuple(float(np.float32(score)) for score in given),
            n_classes=objective.n_classes,
            n_targets=len(dtrain.labels) if n_outputs == len(dtrain.labels) else 1,
            feature_names=dtrain.feature_names,
            feature_types=dtrain.feature_types,
            categories=dtrain.categories,
            attributes={"sparse_absent": "zero"} if dtrain.sparse_absent == "zero" else {},
        )

    def _objective(self) -> Objective:
        return get_objective(self._params.objective, self._params)

    # -- Evaluation ---------------------------------------------------------------------------------------------------

    def eval_set(
        self, evals: list[tuple[DMatrix, str]], iteration: int = 0, feval: Any = None, output_margin: bool = True
    ) -> str:
        """The metrics of some matrices as one line, "[0]\\ttrain-rmse:0.5"."""
        values = self.evaluate(evals, feval, margins=output_margin)
        return "\t".join([f"[{iteration}]", *(f"{data}-{metric}:{value:.17g}" for data, metric, value in values)])

    def eval(self, data: DMatrix, name: str = "eval", iteration: int = 0) -> str:
        """eval_set of one matrix."""
        return self.eval_set([(data, name)], iteration)

    def evaluate(
        self, evals: list[tuple[DMatrix, str]], custom_metric: Any = None, *, margins: bool = False
    ) -> list[tuple[str, str, float]]:
        """(data name, metric name, value) for every matrix and metric.

        custom_metric : (predictions, dmatrix) -> (name, value) or a list of them, added to eval_metric. It sees transformed
        predictions, or raw margins with ``margins``.
        """
        if not evals:
            return []
        objective = self._objective()
        names = self._params.eval_metric
        if not names and not self._params.disable_default_eval_metric:
            names = (objective.default_metric,)
        results = []
        with verbosity_context(self._params.verbosity):
            for dmatrix, data in evals:
                backend, margin, label, weight = self._watched(dmatrix, objective)
                prediction = backend.predictor.map_rows(margin, objective.row_map) if objective.row_map else margin
                rows = RowSums(backend, current_communicator(), prediction, label, weight)
                for name in names:
                    metric = get_metric(name)
                    results.append((data, metric.name, metric(rows)))
                if custom_metric is not None:
                    seen = backend.memory.fetch(margin if margins else prediction)
                    returned = custom_metric(finished_prediction(seen, False).copy(), dmatrix)
                    for name, value in returned if isinstance(returned, list) else [returned]:
                        results.append((data, name, float(value)))
        return results

    def _watched(self, dmatrix: DMatrix, objective: Objective) -> tuple[Backend, Any, Any, Any]:
        """(backend, margins, labels, weights) of a matrix, all in the backend's memory."""
        if self._boosting is not None:
            assert self._model is not None
            margin = self._boosting.margin(self._fitted, dmatrix)
            return self._boosting.backend, margin, *self._boosting.targets(dmatrix, self._model.n_targets)
        backend = self._backend_for(dmatrix, is_training=False)
        check_labels(dmatrix, objective, self._fitted().n_targets)
        margin = self._margin(self._predictor((0, 0)), dmatrix, backend)
        return backend, margin, backend.memory.put(dmatrix.labels), backend.memory.put(dmatrix.weights)

    def _margin(
        self, predictor: Predictor, data: DMatrix, backend: Backend, leaves: Any = None, by_name: bool = True
    ) -> Any:
        """float32 (n_outputs, n_rows): margins of a table, in the backend's memory."""
        model = predictor.rounds
        margin = backend.memory.put(start_margin(data, data.num_row(), predictor.base_margin(), None, model.n_outputs))
        add_model_margin(model, data, backend, margin, leaves, get_flat=predictor.flat, by_name=by_name)
        return margin

    # -- Prediction ---------------------------------------------------------------------------------------------------

    def predict(
        self, data: DMatrix, *, output_margin: bool = False, pred_leaf: bool = False, pred_contribs: bool = False,
        approx_contribs: bool = False, pred_interactions: bool = False, validate_features: bool = True, training: bool = False,
        iteration_range: tuple[int, int] = (0, 0), strict_shape: bool = False,
    ) -> np.ndarray:  # fmt: skip
        """Predictions for every row of a DMatrix, float32.

        Shape (n_rows,), or (n_rows, n_outputs) for several outputs or with strict_shape; pred_leaf: (n_rows, n_trees) of leaf
        numbers. output_margin : before the objective's transformation. iteration_range : rounds [begin, end), end 0: all.
        Columns are matched by name where both sides have names; without validate_features by their order, whatever their names.
        A table on a GPU gets its predictions there, as a CuPy array.
        Raises ValueError naming columns that do not fit the model's.
        """
        for name, asked in {
            "pred_contribs": pred_contribs, "approx_contribs": approx_contribs, "pred_interactions": pred_interactions,
        }.items():  # fmt: skip
            if asked:
                raise not_built(f"predict({name}=True)")
        if not isinstance(data, DMatrix):
            raise TypeError(f"predict takes a DMatrix, got {type(data).__name__}. Wrap it: predict(DMatrix(X)).")
        predictor = self._predictor(iteration_range)
        model, objective = predictor.rounds, predictor.objective
        if objective is None and not output_margin and not pred_leaf:
            raise unknown_objective(model)
        with verbosity_context(self._params.verbosity):
            backend = self._backend_for(data, is_training=False)
            leaves = backend.memory.zeros((data.num_row(), len(model.trees)), np.int32) if pred_leaf else None
            margin = self._margin(predictor, data, backend, leaves, by_name=validate_features)
        to_user = backend.memory.fetch if data.device is None else lambda array: put_on(data.device, array)
        if leaves is not None:
            return to_user(leaves.astype(np.float32))
        if objective is not None and not output_margin:
            if objective.predict_map is not None:
                margin = backend.predictor.map_rows(margin, objective.predict_map)[:1]
            elif objective.row_map:
                margin = backend.predictor.map_rows(margin, objective.row_map)
        with current_device(data.device):
            return finished_prediction(to_user(margin), strict_shape)

    def inplace_predict(
        self, data: Any, *, iteration_range: tuple[int, int] = (0, 0), predict_type: str = "value",
        missing: float | None = math.nan, validate_features: bool = True, base_margin: Any = None, strict_shape: bool = False,
    ) -> np.ndarray:  # fmt: skip
        """predict straight from a table: anything that DMatrix takes. The quick way for a few rows of a NumPy array.

        predict_type : "value", or "margin" for raw margins. missing, base_margin : as for DMatrix; the rest as for predict.
        """
        if predict_type not in ("value", "margin"):
            raise ValueError(f"predict_type must be 'value' or 'margin', got {predict_type!r}.")
        if isinstance(data, DMatrix):
            raise TypeError("inplace_predict takes a table, got a DMatrix. Call predict(dmatrix).")
        predictor, is_margin = self._predictor(iteration_range), predict_type == "margin"
        is_quick = base_margin is None and type(missing) is float and (predictor.takes_unnamed or not validate_features)
        if is_quick and (rows := predictor.few_rows(data, missing)) is not None:  # type: ignore[arg-type]
            prediction = predictor.predict_few_rows(rows, missing, is_margin, strict_shape)  # type: ignore[arg-type]
            if prediction is not None:
                return prediction
        matrix = DMatrix(data, missing=missing, base_margin=base_margin, nthread=self._params.nthread)
        prediction = self.predict(
            matrix, output_margin=is_margin, validate_features=validate_features, iteration_range=iteration_range,
            strict_shape=strict_shape,
        )  # fmt: skip
        if validate_features and matrix.feature_names is None:
            predictor.takes_unnamed = True  # predict has warned now
        return prediction

    def _predictor(self, iteration_range: tuple[int, int]) -> Predictor:
        """The rounds of a range, laid out for prediction; kept until the model changes."""
        model = self._fitted()
        begin, end = iteration_range
        predictor = self._predictors.get((begin, end))
        if predictor is None or not predictor.is_of(model):
            last = end or model.n_rounds
            if not 0 <= begin <= last <= model.n_rounds:
                raise ValueError(
                    f"iteration_range must lie within the model's {model.n_rounds} rounds, got {tuple(iteration_range)}. "
                    "Use (0, 0) for all."
                )
            # Prediction may depend on nothing but what the model file records.
            classes = {"num_class": model.n_classes} if model.objective.startswith("multi:") else {}
            recorded = parse_params({"objective": model.objective, **classes})
            objective = get_objective(model.objective, recorded) if model.objective in objective_names() else None
            predictor = Predictor(model, begin, last, objective)
            kept = self._predictors if len(self._predictors) < KEPT_PREDICTORS else {}
            self._predictors = {**kept, (begin, end): predictor}
        return predictor

    # -- The model ----------------------------------------------------------------------------------------------------

    @property
    def model(self) -> Model:
        """What a model file holds. Raises NotFittedError before training."""
        return self._fitted()

    def _fitted(self) -> Model:
        if self._model is None:
            raise NotFittedError("this Booster has no model yet. Train it, or load a model file.")
        self._collect_rounds()
        return self._model

    def save_model(self, fname: str | os.PathLike[str]) -> None:
        """Write XGBoost's model file: JSON where fname ends in .json, else UBJSON. Two equal models give equal bytes."""
        save_model(self._fitted(), fname)

    def load_model(self, fname: str | os.PathLike[str] | bytes | bytearray) -> None:
        """Read a JSON or UBJSON model file or its bytes, gpuboost's or XGBoost's.

        Raises ModelFormatError naming the place where it is malformed.
        """
        self.take_model(load_model(fname))

    def take_model(self, model: Model) -> None:
        """Go on from a model; what it records about its objective holds unless a parameter says otherwise.

        Raises ValueError when the parameters name another objective or number of classes.
        """
        self._adopt(self._given, model)

    def save_raw(self, raw_format: str = "ubj") -> bytearray:
        """The model file as bytes, "ubj" or "json"; the model comes back from both bit by bit."""
        return bytearray(dumps(self._fitted(), raw_format))

    def copy(self) -> "Booster":
        """An independent Booster with the same parameters and model."""
        copied = type(self)(self._recorded_params())
        if self._model is not None:
            copied._model = self._fitted().rounds(0, self._model.n_rounds)
        return copied

    __copy__ = copy

    def __deepcopy__(self, memo: dict[int, Any]) -> "Booster":
        return self.copy()

    def __getstate__(self) -> dict[str, Any]:
        """The parameters, and the bytes of the model file; a running training stays where it is."""
        return {"params": self._recorded_params(), "model": None if self._model is None else dumps(self._fitted())}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["params"], model_file=state["model"])  # type: ignore[misc]

    def _recorded_params(self) -> dict[str, Any]:
        """The parameters that were given or are not the default, by their own names."""
        return _settings(self._params, self._given)

    def save_config(self) -> str:
        """The parameters, given or not the default, as a JSON string for load_config."""
        return json.dumps({"params": self._recorded_params()})

    def load_config(self, config: str) -> None:
        """Replace all parameters by those of save_config. Takes effect from the next round.

        Raises ValueError for a string that save_config did not write, or parameters that do not fit the model.
        """
        try:
            params = json.loads(config)["params"].copy()
        except (ValueError, TypeError, KeyError, AttributeError):
            raise ValueError(f"config must be a string from gpuboost's save_config, got {config!r:.60}.") from None
        self._adopt(_by_own_names(params), self._model)
        self.reset()

    def reset(self) -> "Booster":
        """Forget the running training (rows, margins); the model stays."""
        self._collect_rounds()
        self._boosting = None
        return self

    def __getitem__(self, rounds: slice | int) -> "Booster":
        """The Booster of some rounds: booster[:10], booster[5]."""
        n = self.num_boosted_rounds()
        if isinstance(rounds, int):
            if not -n <= rounds < n:
                raise IndexError(f"round {rounds} is outside the model's {n} rounds.")
            rounds = slice(rounds % n, rounds % n + 1)
        if not isinstance(rounds, slice):
            raise TypeError(f"rounds must be an integer or a slice, got {rounds!r}. Use booster[:10], for example.")
        begin, end, step = rounds.indices(n)
        if step < 1:
            raise ValueError(f"the step of a slice must be at least 1, got {step}. Rounds keep their order.")
        sliced = type(self)(self._recorded_params())
        sliced._model = self._fitted().rounds(begin, end, step)
        return sliced

    def __iter__(self) -> Iterator["Booster"]:
        for i in range(self.num_boosted_rounds()):
            yield self[i]

    def num_boosted_rounds(self) -> int:
        return 0 if self._model is None else self._fitted().n_rounds

    def num_features(self) -> int:
        return self._fitted().n_features

    @property
    def feature_names(self) -> list[str] | None:
        return self._fitted().feature_names

    @property
    def feature_types(self) -> list[str] | None:
        return self._fitted().feature_types

    def attributes(self) -> dict[str, str]:
        """All attributes of the model."""
        return dict(self._fitted().attributes)

    def attr(self, key: str) -> str | None:
        """One attribute, or None."""
        return None if self._model is None else self._model.attributes.get(key)

    def set_attr(self, **attributes: str | None) -> None:
        """Set attributes; None removes one."""
        for key, value in attributes.items():
            if value is None:
                self._fitted().attributes.pop(key, None)
            else:
                self._fitted().attributes[key] = str(value)

    @property
    def best_iteration(self) -> int:
        """Best round found by early stopping. Raises AttributeError when there was none."""
        return int(self._best("best_iteration"))

    @property
    def best_score(self) -> float:
        """Value of the metric in that round."""
        return float(self._best("best_score"))

    def _best(self, key: str) -> str:
        value = self.attr(key)
        if value is None:
            raise AttributeError(f"{key} is only defined when early stopping is used.")
        return value

    def get_dump(self, fmap: str | os.PathLike[str] = "", with_stats: bool = False, dump_format: str = "text") -> list[str]:
        """One text per tree: "text", "json" or "dot" (Graphviz). fmap : feature map file whose names and types to use."""
        return dump_trees(self._fitted(), dump_format, with_stats, *_feature_map(fmap))

    def dump_model(
        self, fout: str | os.PathLike[str], fmap: str | os.PathLike[str] = "", with_stats: bool = False, dump_format: str = "text"
    ) -> None:
        """Write get_dump to a file, laid out as XGBoost does."""
        text = join_dump(self.get_dump(fmap, with_stats, dump_format), dump_format)
        with open(fout, "w", encoding="utf-8") as file:
            file.write(text)

    def get_score(self, fmap: str | os.PathLike[str] = "", importance_type: str = "weight") -> dict[str, float]:
        """Name → importance of the features that splits use: weight, gain, cover, total_gain or total_cover (inspection.py)."""
        return inspection.feature_scores(self._fitted(), importance_type, _feature_map(fmap)[0])

    def get_fscore(self, fmap: str | os.PathLike[str] = "") -> dict[str, float]:
        """get_score by weight, the number of splits."""
        return self.get_score(fmap)

    def trees_to_dataframe(self, fmap: str | os.PathLike[str] = "") -> Any:
        """All nodes as a pandas DataFrame."""
        return inspection.trees_to_dataframe(self._fitted(), *_feature_map(fmap))

    def get_split_value_histogram(
        self, feature: str, fmap: str | os.PathLike[str] = "", bins: int | None = None, as_pandas: bool = True
    ) -> Any:
        """How often which thresholds of a feature were chosen."""
        return inspection.split_value_histogram(self._fitted(), feature, bins, as_pandas, _feature_map(fmap)[0])

    def __repr__(self) -> str:
        return f"<gpuboost.Booster {self._params.objective}, {self.num_boosted_rounds()} rounds>"


def _by_own_names(params: Mapping[str, Any] | Iterable[tuple[str, Any]] | None, validate: bool = True) -> dict[str, Any]:
    """The parameters given, checked, by their own names; None where None was given.

    validate : False if unknown names only warn, unless the parameters themselves say.
    """
    pairs: list[tuple[str, Any]] = list(params.items() if isinstance(params, Mapping) else params or ())
    is_said = validate or "validate_parameters" in [name for name, *_ in pairs]
    checked = parse_params(pairs if is_said else [("validate_parameters", False), *pairs])
    spelt = {**ALIASES, "sketch_eps": "max_bin"}
    given: dict[str, Any] = {spelt.get(name, name): value for name, value in pairs}
    unset = [name for name, value in given.items() if value is None and name in Params.__dataclass_fields__]
    return _settings(checked, given) | dict.fromkeys(unset)


def _settings(params: Params, given: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the parameters that were given or are not the default."""
    values = {f.name: getattr(params, f.name) for f in fields(Params)}
    return {f.name: values[f.name] for f in fields(Params) if f.name in given or values[f.name] != f.default}


def _recorded_objective(model: Model) -> dict[str, Any]:
    """The parameters of the objective that a model file holds."""
    recorded: dict[str, Any] = {"objective": model.objective}
    if model.n_classes:
        recorded["num_class"] = model.n_classes
    if model.objective == "binary:logistic":
        recorded |= {k: v for k, v in model.objective_params.get("reg_loss_param", {}).items() if k == "scale_pos_weight"}
    return recorded


def _feature_map(fmap: str | os.PathLike[str]) -> tuple[list[str] | None, list[str] | None]:
    """Names and types of a feature map file; None, the model's own, for no file."""
    return read_feature_map(fmap) if fmap else (None, None)
