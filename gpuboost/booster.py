"""Booster: a model together with the parameters that go on training it."""

import json
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from numbers import Integral
from threading import RLock
from types import EllipsisType
from typing import TYPE_CHECKING, Any, Literal
from weakref import ref

import numpy as np

from gpuboost import inspection
from gpuboost.backend.query_rows import QueryRows
from gpuboost.backend.row_sums import RowSums
from gpuboost.communicator import current_communicator
from gpuboost.config import verbosity_context
from gpuboost.custom_objective import CustomObjective, of_round
from gpuboost.data.dmatrix import DMatrix
from gpuboost.errors import NotFittedError, kind_of
from gpuboost.linear.boosting import LinearBoosting
from gpuboost.model.model import Model
from gpuboost.model_io import dumps, load_model
from gpuboost.model_io.config import config_document, config_params
from gpuboost.model_io.dump import read_feature_map
from gpuboost.model_view import ModelView
from gpuboost.objectives import Objective, find_objective, get_objective
from gpuboost.params import Params
from gpuboost.params.given import given_params, recorded_params
from gpuboost.predictor import ALL_ROUNDS, Predicted, Predictor, Predictors, prediction_backend
from gpuboost.targets import check_labels
from gpuboost.training.adopt import adopt_params, ends_training, rebase
from gpuboost.training.evaluate import CustomMetric, Evaluation, checked_evals, evaluate, metric_names
from gpuboost.training.running import Boosting
from gpuboost.training.start import start_boosting, untrained_model
from gpuboost.updating.boosting import Updating

if TYPE_CHECKING:
    from gpuboost.explaining.contributions import Kind

__all__ = ["Booster"]


class Booster(ModelView):
    """A gradient boosted model. XGBoost's class of the same name.

    params : training parameters by XGBoost's names. cache : matrices that it is to be trained on; with any, predict gives
    base_score before the first round, as a loop around boost needs. model_file : path or bytes of a model file, or a Booster,
    whose model and parameters are copied.

    Threads may share it: what changes it, and what needs a training under way, waits while another thread is at that, so that
    rounds are whole and come one after another. Predictions run side by side. A Python objective or metric may use the Booster
    that calls it, but must not wait for another thread that does.
    """

    def __init__(
        self,
        params: Mapping[str, Any] | None = None,
        cache: Iterable[DMatrix] | None = None,
        model_file: "str | os.PathLike[str] | bytes | bytearray | Booster | None" = None,
    ) -> None:
        self._lock = RLock()  # of all below
        self._params = Params()
        self._given: dict[str, Any] = {}  # the parameters that were given, by their own names
        self._model: Model | None = None
        self._boosting: Boosting | LinearBoosting | Updating | None = None
        self._old: Model | None = None  # whose rounds are being updated; self._model has those that have been
        self._predictors = Predictors()
        self._evaluates_by: tuple[Params, Objective] | None = None
        self._attributes: dict[str, str] = {}  # of the model that is to come
        self._adopt(given_params(params), None)
        #: What it is to be trained on, and columns of labels there; None: that is not known.
        self._cached, self._n_labels = _first_labelled(cache)
        if isinstance(model_file, Booster):
            other = model_file.copy()
            self._adopt({**other._given, **self._given}, other._model)
            self._attributes = other._attributes
            vars(self).update(other._hung_on())
        elif model_file is not None:
            self.take_model(load_model(model_file))

    # -- Training -----------------------------------------------------------------------------------------------------

    @property
    def params(self) -> Params:
        """The checked parameters."""
        return self._params

    def set_param(self, params: str | Mapping[str, Any] | Iterable[tuple[str, Any]], value: Any = ...) -> None:
        """Set one parameter by name, or several; None restores the default. Takes effect from the next round.

        Raises ValueError as Booster does, also for an objective other than the model's; nothing is changed then.
        """
        if isinstance(params, str) and value is ...:
            raise ValueError(f"set_param({params!r}) lacks the value. Give it; None restores the default.")
        with self._lock:
            given = given_params({params: value} if isinstance(params, str) else params, self._params.validate_parameters)
            strategy = self._params.multi_strategy
            if "base_score" in given or given.get("multi_strategy", strategy) != strategy:
                self.reset()  # the model, which changes, or says what its trees are, is to have all rounds
            self._adopt({**self._given, **given}, self._model)

    def _adopt(self, given: Mapping[str, Any], model: Model | None) -> None:
        """Take parameters and a model; what the model records about its objective holds unless a parameter says otherwise.

        given : by their own names; None means not given. Raises ValueError, and changes nothing, where they do not fit the model.
        """
        given = {name: value for name, value in given.items() if value is not None}
        params = adopt_params(given, model)
        model = None if model is None else rebase(model, params)
        if model is not self._model:
            self._boosting = self._old = None  # rounds under way belonged to the old model
            self._predictors, self._attributes = Predictors(), {}
        elif ends_training(self._params, params):
            self.reset()
        elif self._boosting is not None:
            self._boosting.params = params
        self._params, self._given, self._model = params, given, model

    @contextmanager
    def _rounds_of(self, dtrain: DMatrix, *, is_custom: bool = False) -> "Iterator[Boosting | LinearBoosting | Updating]":
        """The running training on this matrix, for rounds that are whole or not there."""
        with self._lock, verbosity_context(self._params.verbosity):
            boosting = self.start_training(dtrain, is_custom=is_custom)
            try:
                yield boosting
            except BaseException:  # KeyboardInterrupt, too
                self.reset()  # the margins may hold a part of the round; the model holds whole ones
                raise

    def update(self, dtrain: DMatrix, iteration: int | None = None, fobj: CustomObjective | None = None) -> None:
        """Boost one round on dtrain. fobj : objective (predictions, dtrain) -> (grad, hess) instead of the model's own.

        iteration : what an Objective is told; rounds are numbered by what the model holds already.
        """
        with self._rounds_of(dtrain, is_custom=fobj is not None) as boosting:
            boosting.boost(of_round(fobj, iteration))

    def _update_rounds(self, dtrain: DMatrix, n_rounds: int) -> None:
        """n_rounds times update, where nobody looks at the model in between."""
        while n_rounds > 0:
            with self._rounds_of(dtrain) as boosting:
                n_rounds -= boosting.boost_rounds(n_rounds)

    def boost(
        self, dtrain: DMatrix, iteration: int = 0, *, grad: Any = None, hess: Any = None, fobj: CustomObjective | None = None
    ) -> None:
        """Boost one round from gradients in predict's shape, weights applied, or as update by an objective fobj."""
        if (grad is None) != (hess is None) or (grad is None) == (fobj is None):
            raise ValueError("boost needs gradients once. Pass grad and hess, or fobj.")
        self.update(dtrain, iteration, (lambda *_: (grad, hess)) if fobj is None else fobj)

    def start_training(self, dtrain: DMatrix, *, is_custom: bool = False) -> Boosting | LinearBoosting | Updating:
        """The running training on this matrix, started where needed. is_custom : as for training.start."""
        if not isinstance(dtrain, DMatrix):
            raise TypeError(f"dtrain must be a DMatrix, got {kind_of(dtrain)}. Make one: gpuboost.DMatrix(X, label=y).")
        with self._lock:
            if self._boosting is None or not self._boosting.trains_on(dtrain):
                self.reset()
                goes_on = self._old is not None and self._params.process_type == "update"
                old, updated = (self._old, self._model) if goes_on else (self._model, None)
                self._boosting = start_boosting(old, dtrain, self._params, is_custom=is_custom, updated=updated)
                self._old = self._boosting.old if isinstance(self._boosting, Updating) else None
                self._boosting.model.attributes.update(self._attributes)
                self._model, self._attributes = self._boosting.model, {}
            return self._boosting

    def _collect_rounds(self) -> None:
        """Take the rounds that the running training has finished into the model."""
        if self._boosting is not None:
            try:
                self._boosting.collect_rounds()
            except BaseException:
                self._boosting = None  # its margins are not those of the model
                raise

    def reset(self) -> "Booster":
        """Forget the running training, and what was predicted (rows, margins); the model stays."""
        with self._lock:
            self._collect_rounds()
            self._boosting, self._predictors = None, Predictors()
        return self

    # -- Evaluation ---------------------------------------------------------------------------------------------------

    def eval_set(
        self, evals: list[tuple[DMatrix, str]], iteration: int = 0, feval: CustomMetric | None = None, output_margin: bool = True
    ) -> str:
        """The metrics of some matrices as one line, "[0]\\ttrain-rmse:0.5"."""
        values = self.evaluate(evals, feval, margins=output_margin)
        return "\t".join([f"[{iteration}]", *(f"{data}-{metric}:{value:.17g}" for data, metric, value in values)])

    def eval(self, data: DMatrix, name: str = "eval", iteration: int = 0) -> str:
        """eval_set of one matrix."""
        return self.eval_set([(data, name)], iteration)

    def evaluate(
        self, evals: list[tuple[DMatrix, str]], custom_metric: CustomMetric | None = None, *, margins: bool = False
    ) -> list[Evaluation]:
        """(data name, metric name, value) for every matrix and metric.

        custom_metric : (predictions, dmatrix) -> (name, value) or a list of them, added to eval_metric. It sees transformed
        predictions, or raw margins with ``margins``.
        """
        evals = checked_evals(evals)
        if not evals:
            return []
        with self._lock, verbosity_context(self._params.verbosity):
            objective = self._objective()
            names = metric_names(self._params, objective)
            return evaluate(
                evals, names, objective, lambda dmatrix: self._margins_of(dmatrix, objective), custom_metric, sees_margins=margins
            )

    def _objective(self) -> Objective:
        """That of the parameters, to evaluate by; another one where its name has been given to another class."""
        params, known = self._params, self._evaluates_by
        if known is None or known[0] is not params or type(known[1]) is not find_objective(params.objective):
            self._evaluates_by = known = params, get_objective(params.objective, params)
        return known[1]

    def _margins_of(self, dmatrix: DMatrix, objective: Objective) -> RowSums:
        """The rows of a matrix, with their margins for prediction."""
        if self._boosting is not None:
            return self._boosting.margins_of(dmatrix, self._fitted)
        backend, model = prediction_backend(self._params, dmatrix.num_row() * dmatrix.num_col(), dmatrix.device), self.shown
        check_labels(dmatrix, objective, model.n_targets)
        predictors = Predictors() if self._model is None else self._predictors
        margin = predictors.of(model, (0, 0)).margin(dmatrix, backend)
        label, weight = map(backend.memory.put, (dmatrix.labels_for(objective.label_rows), dmatrix.weights))
        queries = QueryRows(backend, dmatrix.queries, label[0])
        return RowSums(backend, current_communicator(), margin, label, weight, dmatrix.masks_labels, queries)

    # -- Prediction ---------------------------------------------------------------------------------------------------

    def predict(
        self, data: DMatrix, *, output_margin: bool = False, pred_leaf: bool = False, pred_contribs: bool = False,
        approx_contribs: bool = False, pred_interactions: bool = False, validate_features: bool = True, training: bool = False,
        iteration_range: tuple[int, int] | None = ALL_ROUNDS, strict_shape: bool = False,
    ) -> np.ndarray:  # fmt: skip
        """Predictions for every row of a DMatrix, float32.

        Shape (n_rows,), or (n_rows, n_outputs) for several outputs or with strict_shape; pred_leaf: (n_rows, n_trees) of leaf
        numbers, with strict_shape (n_rows, n_rounds, n_outputs, num_parallel_tree). output_margin : before the objective's
        transformation. pred_contribs : SHAP values, what each column adds to the margin of a row, and last the bias, the mean by
        the trees' covers: (n_rows, n_columns + 1), of several outputs or with strict_shape (n_rows, n_outputs, n_columns + 1).
        They add up to the margin. pred_interactions : the same for pairs of columns, with the columns twice. approx_contribs : of
        either by what the splits of a row's own path change (Saabas), which is faster. iteration_range : rounds [begin, end), end
        0: the last one; (0, 0) and None: all.
        Columns are matched by name where both sides have names; without validate_features by their order, whatever their names.
        A table on a GPU gets its predictions there, as a CuPy array.
        Raises ValueError naming columns that do not fit the model's.
        """
        if not isinstance(data, DMatrix):
            raise TypeError(f"predict takes a DMatrix, got {kind_of(data)}. Make one: predict(gpuboost.DMatrix(X)).")
        if pred_contribs + pred_interactions + pred_leaf + output_margin > 1:
            raise ValueError(
                "of output_margin, pred_leaf, pred_contribs and pred_interactions one can be predicted at a time. Call predict "
                "once for each."
            )
        if pred_contribs or pred_interactions:
            kind: Literal["values", "interactions"] = "interactions" if pred_interactions else "values"
            out = self.contributions(
                data, kind, is_approximate=approx_contribs, validate_features=validate_features, iteration_range=iteration_range
            )
            return out if strict_shape or out.shape[1] > 1 else out[:, 0]
        wanted: Predicted = "leaf" if pred_leaf else "margin" if output_margin else "value"
        if self._model is None and self._n_labels is not None and not pred_leaf:
            predictor = Predictors().of(untrained_model(data, self._params, self._n_labels), iteration_range)
        else:
            predictor = self._predictor(iteration_range)
        with verbosity_context(self._params.verbosity):
            backend = prediction_backend(self._params, data.num_row() * data.num_col(), data.device)
            return predictor.predict(data, backend, wanted, by_name=validate_features, strict_shape=strict_shape)

    def contributions(
        self, data: DMatrix, kind: "Kind" = "values", *, is_approximate: bool = False, background: DMatrix | None = None,
        validate_features: bool = True, iteration_range: tuple[int, int] | None = ALL_ROUNDS,
        progress: Callable[[int, int], None] | None = None,
    ) -> np.ndarray:  # fmt: skip
        """What predict returns for pred_contribs (kind "values") and pred_interactions ("interactions"), with n_outputs always.

        background : a table from whose rows is taken what is not known of a row; None: by the trees' covers. progress : called
        with the rows that are done, and all.
        """
        if kind not in ("values", "interactions"):
            raise ValueError(f"kind must be 'values' or 'interactions', got {kind!r}. Use 'values' for one of each column.")
        predictor = self._predictor(iteration_range)
        if predictor.rounds.linear is not None:
            from gpuboost.linear.contributions import linear_contributions

            return linear_contributions(
                predictor.rounds, predictor.base_margin(), data, background=background, with_pairs=kind == "interactions",
                by_name=validate_features,
            )  # fmt: skip
        contributions = predictor.contributions()
        with verbosity_context(self._params.verbosity):
            backend = prediction_backend(self._params, data.num_row() * data.num_col(), data.device)
            if background is not None:
                if kind == "interactions" or is_approximate:
                    raise ValueError("a background table gives values alone. Leave out the background, or what else was asked.")
                return contributions.explain_against(background, data, backend, by_name=validate_features, progress=progress)
            return contributions.explain(
                data, backend, kind, is_approximate=is_approximate, by_name=validate_features, progress=progress
            )

    def get_score(
        self, fmap: str | os.PathLike[str] = "", importance_type: str = "weight", *, data: DMatrix | None = None
    ) -> dict[str, float | list[float]]:
        """Name → importance of the features that splits use: weight, gain, cover, total_gain, total_cover (inspection.py), or
        shap, the mean size of a feature's SHAP values over the rows of ``data`` and all outputs."""
        if importance_type != "shap":
            return super().get_score(fmap, importance_type)
        if data is None:
            raise ValueError("importance_type='shap' needs rows to explain. Pass data=DMatrix(X), as the table of training.")
        from gpuboost.explaining.contributions import mean_sizes

        sizes = mean_sizes(self.contributions(data))
        used = inspection.used_features(self.model, read_feature_map(fmap)[0])
        return {name: float(sizes[feature]) for name, feature in used.items()}

    def inplace_predict(
        self, data: Any, *, iteration_range: tuple[int, int] | None = ALL_ROUNDS, predict_type: str = "value",
        missing: float | None = math.nan, validate_features: bool = True, base_margin: Any = None, strict_shape: bool = False,
    ) -> np.ndarray:  # fmt: skip
        """predict straight from a table: anything that DMatrix takes. The quick way for NumPy arrays, most of all of a few rows.

        predict_type : "value", or "margin" for raw margins. missing, base_margin : as for DMatrix; the rest as for predict.
        """
        if predict_type not in ("value", "margin"):
            raise ValueError(f"predict_type must be 'value' or 'margin', got {predict_type!r}.")
        if isinstance(data, DMatrix):
            raise TypeError("inplace_predict takes a table, got a DMatrix. Call predict(dmatrix).")
        predictor, is_margin = self._predictor(iteration_range), predict_type == "margin"
        is_quick = base_margin is None and type(missing) is float and (predictor.takes_unnamed or not validate_features)
        if is_quick and (table := predictor.plain_table(data, missing)) is not None:  # type: ignore[arg-type]
            prediction = predictor.predict_plain(table, missing, self._params, is_margin, strict_shape)  # type: ignore[arg-type]
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

    def _predictor(self, iteration_range: tuple[int, int] | None) -> Predictor:
        model = self._model
        if model is not None and self._boosting is None:  # no need of the lock, which in a forked process may be held for ever
            return self._predictors.of(model, iteration_range)
        with self._lock:
            return self._predictors.of(self._fitted(), iteration_range)

    # -- The model ----------------------------------------------------------------------------------------------------

    @property
    def model(self) -> Model:
        """What a model file holds. Raises NotFittedError before training."""
        return self._fitted()

    @property
    def shown(self) -> Model:
        """The model to be looked at. Before training that is base_score, of the columns of the matrix given as ``cache``, as long
        as somebody holds that; NotFittedError without."""
        with self._lock:
            if self._model is not None or self._n_labels is None or (data := self._cached()) is None:
                return self._fitted()
            model = untrained_model(data, self._params, self._n_labels)
            model.attributes.update(self._attributes)
            return model

    def _fitted(self) -> Model:
        with self._lock:
            if self._model is None:
                raise NotFittedError("this Booster has no model yet. Train it, or load a model file.")
            self._collect_rounds()
            return self._model

    def load_model(self, fname: str | os.PathLike[str] | bytes | bytearray) -> None:
        """Read a JSON or UBJSON model file or its bytes, gpuboost's or XGBoost's.

        Its base_score takes the place of that of the model before; beside a new Booster's own base_score it does not hold, as in
        XGBoost. Raises ModelFormatError naming the place where it is malformed.
        """
        with self._lock:
            model, is_new = load_model(fname), self._model is None
            self._adopt(self._given if is_new else {**self._given, "base_score": None}, model)

    def take_model(self, model: Model) -> None:
        """Go on from a model; what it records about its objective holds unless a parameter says otherwise.

        Raises ValueError when the parameters name another objective or number of classes.
        """
        with self._lock:
            self._adopt(self._given, model)

    def copy(self) -> "Booster":
        """An independent Booster with the same parameters and model. Where process_type="update" is under way, that are the
        rounds updated so far, as in the model file (and as in XGBoost)."""
        with self._lock:
            copied = type(self)(self._recorded_params())
            copied._cached, copied._n_labels, copied._attributes = self._cached, self._n_labels, dict(self._attributes)
            if self._model is not None:
                copied._model = self._fitted().rounds(0, self._model.n_rounds)
            vars(copied).update(self._hung_on())
        return copied

    __copy__ = copy

    def __deepcopy__(self, memo: dict[int, Any]) -> "Booster":
        return self.copy()

    def __getstate__(self) -> dict[str, Any]:
        """The parameters, the bytes of the model file, and what somebody has hung on; a running training stays where it is."""
        with self._lock:
            state = {"params": self._recorded_params(), "model": None if self._model is None else dumps(self._fitted(), "ubj")}
            more = {"attributes": dict(self._attributes), "others": self._hung_on()}
            return state | {name: values for name, values in more.items() if values}

    def _hung_on(self) -> dict[str, Any]:
        """What somebody has put on it by names of his own."""
        return {name: value for name, value in vars(self).items() if not name.startswith("_")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["params"], model_file=state["model"])  # type: ignore[misc]
        self._attributes = state.get("attributes", {})
        vars(self).update(state.get("others", {}))

    def _recorded_params(self) -> dict[str, Any]:
        """The parameters that were given or are not the default, by their own names."""
        return recorded_params(self._params, self._given)

    def save_config(self) -> str:
        """A JSON string for load_config. "params": the parameters, given or not the default; "learner" shows all settings where
        XGBoost's string does."""
        with self._lock:
            model = None if self._model is None else self._fitted()
            return json.dumps({"params": self._recorded_params(), **config_document(self._params, model)})

    def load_config(self, config: str) -> None:
        """Replace all parameters by those of save_config, "learner" as somebody may have changed it. Takes effect from the next
        round.

        Raises ValueError for a string that save_config did not write, where "learner" contradicts "params", and for parameters
        that do not fit the model.
        """
        try:
            params = config_params(json.loads(config))
        except (json.JSONDecodeError, TypeError, KeyError, AttributeError):
            raise ValueError(f"config must be a string from gpuboost's save_config, got {config!r:.60}.") from None
        with self._lock:
            self.reset()  # the model is to have all rounds, whatever becomes of it
            self._adopt(params, self._model)

    def __getitem__(self, rounds: slice | int | EllipsisType) -> "Booster":
        """The Booster of some rounds: booster[:10], booster[5], booster[...]. Which round of all was best it does not know."""
        n = self.num_boosted_rounds()
        rounds = slice(None) if rounds is ... else rounds
        if isinstance(rounds, Integral):
            rounds = int(rounds)
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
        sliced.set_attr(best_iteration=None, best_score=None)
        return sliced

    def __iter__(self) -> Iterator["Booster"]:
        for i in range(self.num_boosted_rounds()):
            yield self[i]

    def num_boosted_rounds(self) -> int:
        return 0 if self._model is None else self._fitted().n_rounds

    def attr(self, key: str) -> str | None:
        """One attribute, or None."""
        return (self._attributes if self._model is None else self._model.attributes).get(key)

    def attributes(self) -> dict[str, str]:
        """All attributes of the model, or of the one that is to come."""
        return dict(self._attributes if self._model is None else self._fitted().attributes)

    def set_attr(self, **attributes: str | None) -> None:
        """Set attributes; None removes one."""
        with self._lock:
            own = self._attributes if self._model is None else self._model.attributes  # of rounds that are still to come, too
            for key, value in attributes.items():
                if value is None:
                    own.pop(key, None)
                else:
                    own[key] = str(value)

    @property
    def best_iteration(self) -> int:
        """Best round found by early stopping, or set by a callback. Raises AttributeError when there was none."""
        return int(self._best("best_iteration"))

    @best_iteration.setter
    def best_iteration(self, iteration: int) -> None:
        self.set_attr(best_iteration=str(iteration))

    @property
    def best_score(self) -> float:
        """Value of the metric in that round."""
        return float(self._best("best_score"))

    @best_score.setter
    def best_score(self, score: float) -> None:
        self.set_attr(best_score=repr(float(score)))

    def _best(self, key: str) -> str:
        value = self.attr(key)
        if value is None:
            raise AttributeError(f"{key} is only defined when early stopping is used.")
        return value

    def __repr__(self) -> str:
        return f"<gpuboost.Booster {self._params.objective}, {self.num_boosted_rounds()} rounds>"


def _first_labelled(cache: Iterable[DMatrix] | None) -> tuple[Callable[[], DMatrix | None], int | None]:
    """A weak reference to the first matrix that has labels, or to the first, and the columns of its labels, or 1; None without
    matrices."""
    if cache is None:
        return _nothing, None
    if not isinstance(cache, Iterable):
        raise TypeError(f"cache must be a list of DMatrices, got {type(cache).__name__}. Pass [dtrain].")
    matrices = list(cache)
    if wrong := [type(item).__name__ for item in matrices if not isinstance(item, DMatrix)]:
        raise TypeError(f"cache must hold DMatrices, got {wrong[0]}. Wrap it: DMatrix(X, label=y).")
    labelled = next((matrix for matrix in matrices if matrix.has_label), None)
    if not matrices:
        return _nothing, None
    return ref(labelled or matrices[0]), 1 if labelled is None else len(labelled.labels)


def _nothing() -> None:
    """A reference to no matrix."""
