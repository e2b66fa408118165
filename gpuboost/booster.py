"""Booster: a model together with the parameters that go on training it."""

import os
from collections.abc import Iterator, Mapping
from copy import deepcopy
from time import perf_counter
from typing import Any

import numpy as np

from gpuboost.backend import choose_backend
from gpuboost.backend.row_sums import RowSums
from gpuboost.boosting import Boosting, add_model_margin
from gpuboost.communicator import current_communicator
from gpuboost.config import log, verbosity_context
from gpuboost.data.dmatrix import DMatrix
from gpuboost.data.training_rows import check_labels, estimate_base_score, finished_prediction, start_margin
from gpuboost.errors import NotFittedError, not_built
from gpuboost.metrics import get_metric
from gpuboost.model_io import dump_trees, dumps, load_model, save_model
from gpuboost.objectives import Objective, get_objective
from gpuboost.params import ALIASES, Params, parse_params
from gpuboost.tree.model import Model

__all__ = ["Booster"]

DEFAULT_BASE_SCORE = 0.5  # where XGBoost starts a custom objective


class Booster:
    """A gradient boosted model. XGBoost's class of the same name.

    params : training parameters by XGBoost's names. model_file : path or bytes of a JSON model file.
    """

    def __init__(
        self, params: Mapping[str, Any] | None = None, cache: Any = None, model_file: str | os.PathLike[str] | bytes | None = None
    ) -> None:
        self._params = parse_params(params)
        self._given = dict(params or {})
        if self._params.eval_metric:
            self._given["eval_metric"] = list(self._params.eval_metric)  # pairs may name it more than once
        self._model: Model | None = None
        self._boosting: Boosting | None = None
        if model_file is not None:
            self.load_model(model_file)

    # -- Training -----------------------------------------------------------------------------------------------------

    @property
    def params(self) -> Params:
        """The checked parameters."""
        return self._params

    def set_param(self, params: str | Mapping[str, Any], value: Any = None) -> None:
        """Set one parameter by name, or several from a mapping. Takes effect from the next round."""
        given = {params: value} if isinstance(params, str) else dict(params)
        renewed = {ALIASES.get(name, name) for name in given}  # an alias replaces its parameter
        given = {name: kept for name, kept in self._given.items() if ALIASES.get(name, name) not in renewed} | given
        old = self._params
        self._params, self._given = parse_params(given), given
        if self._model is not None:
            self._check_objective(self._model)
        changed = {f for f in Params.__dataclass_fields__ if getattr(old, f) != getattr(self._params, f)}
        if changed - {"learning_rate", "eval_metric", "verbosity", "disable_default_eval_metric"}:
            self._boosting = None

    def update(self, dtrain: DMatrix, iteration: int | None = None, fobj: Any = None) -> None:
        """Boost one round on dtrain. fobj : objective (predictions, dtrain) -> (grad, hess) instead of the model's own.

        ``iteration`` is XGBoost's argument; rounds are numbered by what the model holds already.
        """
        with verbosity_context(self._params.verbosity):
            boosting = self._boosting_on(dtrain, is_custom=fobj is not None)
            model = self._fitted()
            model.add_round(boosting.boost(model.n_rounds, self._params.learning_rate, fobj), boosting.groups)

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
            backend, comm = choose_backend(self._params.device, self._params.nthread), current_communicator()
            objective = self._objective()
            if self._model is None:
                self._model = self._empty_model(dtrain, objective, backend, comm, (DEFAULT_BASE_SCORE,) if is_custom else None)
            else:
                self._check_columns(dtrain)
                check_labels(dtrain, objective)
            begin = perf_counter()
            self._boosting = Boosting(self._model, dtrain, self._params, objective, backend, comm)
            log(
                2,
                f"training on {backend.describe()}: {dtrain.num_row()} rows × {dtrain.num_col()} columns, "
                f"{self._boosting.cuts.total_bins} bins, ready in {perf_counter() - begin:.3f} s",
            )
        return self._boosting

    def _check_columns(self, dtrain: DMatrix) -> None:
        """To train on, a table must have the model's columns in the model's order."""
        model = self._fitted()
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
            raise ValueError(f"base_score must be one number or one per output ({n_outputs}), got {len(given)}.")
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
            backend = choose_backend(self._params.device, self._params.nthread)
            for dmatrix, data in evals:
                margin = self._boosting.margin(self._fitted(), dmatrix) if self._boosting else self._margin(dmatrix)
                check_labels(dmatrix, objective, self._fitted().n_targets)
                prediction = backend.map_rows(margin, objective.row_map) if objective.row_map else margin
                rows = RowSums(backend, current_communicator(), prediction, dmatrix.labels, dmatrix.weights)
                for name in names:
                    metric = get_metric(name)
                    results.append((data, metric.name, metric(rows)))
                if custom_metric is not None:
                    seen = margin if margins else prediction
                    returned = custom_metric(finished_prediction(seen, False).copy(), dmatrix)
                    for name, value in returned if isinstance(returned, list) else [returned]:
                        results.append((data, name, float(value)))
        return results

    def _margin(self, dmatrix: DMatrix) -> np.ndarray:
        """float32 (n_outputs, n_rows): margins of a table that no running training watches."""
        return np.atleast_2d(self.predict(dmatrix, output_margin=True, strict_shape=True).T)

    # -- Prediction ---------------------------------------------------------------------------------------------------

    def predict(
        self, data: DMatrix, *, output_margin: bool = False, pred_leaf: bool = False, pred_contribs: bool = False,
        approx_contribs: bool = False, pred_interactions: bool = False, validate_features: bool = True, training: bool = False,
        iteration_range: tuple[int, int] = (0, 0), strict_shape: bool = False,
    ) -> np.ndarray:  # fmt: skip
        """Predictions for every row of a DMatrix, float32.

        Shape (n_rows,), or (n_rows, n_outputs) for several outputs or with strict_shape; pred_leaf: (n_rows, n_trees) of leaf
        numbers. output_margin : before the objective's transformation. iteration_range : rounds [begin, end), end 0: all.
        Columns are matched by name where both sides have names. Raises ValueError naming columns that do not fit the model's.
        """
        for name, asked in {
            "pred_contribs": pred_contribs, "approx_contribs": approx_contribs, "pred_interactions": pred_interactions,
        }.items():  # fmt: skip
            if asked:
                raise not_built(f"predict({name}=True)")
        if not isinstance(data, DMatrix):
            raise TypeError(f"predict takes a DMatrix, got {type(data).__name__}. Wrap it: predict(DMatrix(X)).")
        model = self._sliced(iteration_range)
        objective = None if model.objective not in _objective_names() else get_objective(model.objective, self._model_params())
        if objective is None and not output_margin and not pred_leaf:
            raise not_built(f"predicting objective={model.objective!r}", "Use output_margin=True for raw margins.")
        with verbosity_context(self._params.verbosity):
            backend = choose_backend(self._params.device, self._params.nthread)
            margin = start_margin(data, data.num_row(), model.base_score, objective, model.n_outputs)
            leaves = np.zeros((data.num_row(), len(model.trees)), np.int32) if pred_leaf else None
            add_model_margin(model, data, backend, margin, leaves)
        if leaves is not None:
            return leaves.astype(np.float32)
        if output_margin or objective is None:
            return finished_prediction(margin, strict_shape)
        if objective.predict_map is not None:
            return finished_prediction(backend.map_rows(margin, objective.predict_map)[:1], strict_shape)
        return finished_prediction(backend.map_rows(margin, objective.row_map) if objective.row_map else margin, strict_shape)

    def _model_params(self) -> Params:
        """The training parameters that the model file itself records, which is all that prediction may depend on."""
        model = self._fitted()
        return parse_params({"objective": model.objective, "num_class": model.n_classes})

    def _sliced(self, iteration_range: tuple[int, int]) -> Model:
        model = self._fitted()
        begin, end = iteration_range
        end = end or model.n_rounds
        if not 0 <= begin <= end <= model.n_rounds:
            raise ValueError(
                f"iteration_range must lie within the model's {model.n_rounds} rounds, got {tuple(iteration_range)}. "
                "Use (0, 0) for all."
            )
        return model if (begin, end) == (0, model.n_rounds) else model.rounds(begin, end)

    # -- The model ----------------------------------------------------------------------------------------------------

    @property
    def model(self) -> Model:
        """What a model file holds. Raises NotFittedError before training."""
        return self._fitted()

    def _fitted(self) -> Model:
        if self._model is None:
            raise NotFittedError("this Booster has no model yet. Train it, or load a model file.")
        return self._model

    def save_model(self, fname: str | os.PathLike[str]) -> None:
        """Write XGBoost's JSON model file. Two equal models give equal bytes."""
        save_model(self._fitted(), fname)

    def load_model(self, fname: str | os.PathLike[str] | bytes) -> None:
        """Read a JSON model file, gpuboost's or XGBoost's. Raises ModelFormatError naming the place where it is malformed."""
        self.take_model(load_model(fname))

    def take_model(self, model: Model) -> None:
        """Go on from a model; what it records about its objective holds unless a parameter says otherwise.

        Raises ValueError when the parameters name another objective or number of classes.
        """
        recorded: dict[str, Any] = {"objective": model.objective}
        if model.n_classes:
            recorded["num_class"] = model.n_classes
        self._check_objective(model)
        if model.objective == "binary:logistic":
            recorded |= {k: v for k, v in model.objective_params.get("reg_loss_param", {}).items() if k == "scale_pos_weight"}
        self._given = {**recorded, **self._given}
        self._params = parse_params(self._given)
        self._model, self._boosting = model, None

    def _check_objective(self, model: Model) -> None:
        for name, value in {"objective": model.objective, "num_class": model.n_classes}.items():
            if name in self._given and getattr(self._params, name) != value:
                raise ValueError(f"{name}={self._given[name]!r}, but the model was trained with {value!r}. Leave {name} out.")

    def save_raw(self, raw_format: str = "json") -> bytearray:
        """The model file as bytes."""
        if raw_format != "json":
            raise not_built(f"save_raw(raw_format={raw_format!r})", "Use raw_format='json'.")
        return bytearray(dumps(self._fitted()))

    def copy(self) -> "Booster":
        """An independent Booster with the same parameters and model."""
        return deepcopy(self)

    __copy__ = copy

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_boosting": None}  # a running training stays where it is

    def reset(self) -> "Booster":
        """Forget the running training (rows, margins); the model stays."""
        self._boosting = None
        return self

    def __getitem__(self, rounds: slice | int) -> "Booster":
        """The Booster of some rounds: booster[:10], booster[5]."""
        n = self.num_boosted_rounds()
        if isinstance(rounds, int):
            if not -n <= rounds < n:
                raise IndexError(f"round {rounds} is outside the model's {n} rounds.")
            rounds = slice(rounds % n, rounds % n + 1)
        begin, end, step = rounds.indices(n)
        if step != 1:
            raise not_built("slicing with a step", "Slice with step 1.")
        sliced = Booster(self._given)
        sliced._model = self._fitted().rounds(begin, max(begin, end))
        return sliced

    def __iter__(self) -> Iterator["Booster"]:
        for i in range(self.num_boosted_rounds()):
            yield self[i]

    def num_boosted_rounds(self) -> int:
        return 0 if self._model is None else self._model.n_rounds

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

    def get_dump(self, fmap: str = "", with_stats: bool = False, dump_format: str = "text") -> list[str]:
        """One text per tree, "text" or "json"."""
        if fmap:
            raise not_built("get_dump(fmap=...)", "Name the columns in the DMatrix instead.")
        return dump_trees(self._fitted(), dump_format, with_stats)

    def dump_model(
        self, fout: str | os.PathLike[str], fmap: str = "", with_stats: bool = False, dump_format: str = "text"
    ) -> None:
        """Write get_dump to a file, laid out as XGBoost does."""
        trees = self.get_dump(fmap, with_stats, dump_format)
        with open(fout, "w", encoding="utf-8") as file:
            if dump_format == "json":
                file.write("[\n" + ",\n".join(trees) + "\n]")
            else:
                file.writelines(f"booster[{i}]:\n{tree}" for i, tree in enumerate(trees))

    def __repr__(self) -> str:
        return f"<gpuboost.Booster {self._params.objective}, {self.num_boosted_rounds()} rounds>"


def _objective_names() -> list[str]:
    from gpuboost.objectives import objective_names

    return objective_names()


def _later(name: str) -> Any:
    def method(self: Booster, *args: Any, **kwargs: Any) -> Any:
        raise not_built(f"Booster.{name}")

    method.__name__, method.__doc__ = name, "Not built yet: raises NotImplementedError."
    return method


for _name in (
    "inplace_predict", "get_score", "get_fscore", "trees_to_dataframe", "get_split_value_histogram", "save_config", "load_config",
):  # fmt: skip
    setattr(Booster, _name, _later(_name))
