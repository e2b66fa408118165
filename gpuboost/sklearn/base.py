"""What the estimators share: parameters, fitting, predicting, and the Booster inside."""

import os
from collections.abc import Sequence, Set
from functools import partial
from inspect import Parameter, signature
from numbers import Integral
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import check_array, check_random_state, column_or_1d
from sklearn.utils.validation import _num_samples, check_is_fitted, validate_data

from gpuboost import inspection
from gpuboost.booster import Booster
from gpuboost.callback import LearningRateScheduler
from gpuboost.custom_objective import Objective
from gpuboost.data.dmatrix import DMatrix
from gpuboost.data.given import is_empty, unmasked
from gpuboost.data.tables.device import host_array, is_device_table, open_device_table
from gpuboost.data.tables.names import check_names
from gpuboost.explanation import explainer
from gpuboost.labels import has_classes
from gpuboost.objectives import find_objective, require_known
from gpuboost.positional import also_by_position
from gpuboost.predictor import round_bounds
from gpuboost.sklearn.matrices import in_memory, refuse_info
from gpuboost.sklearn.parameters import DEFAULTS, KNOWN, NOT_OF_TRAINING, PARAMETERS, signature_of
from gpuboost.sklearn.refit import check_tables, join_rows, join_tables
from gpuboost.training.loop import train

__all__ = ["GPUBoostModel", "checked_pairs", "one_each"]

OF_EXECUTION = {"n_jobs", "nthread", "device", "verbosity"}  # of a fitted estimator, too; others are of the next fit
# For scikit-learn's check of an array. Infinite values are left to training and prediction, which refuse them in every table.
ANY_NUMBERS: dict[str, Any] = {"dtype": "numeric", "ensure_all_finite": False, "accept_sparse": True}


class GPUBoostModel(BaseEstimator):
    __doc__ = f"""What the estimators share.

{PARAMETERS}
    """

    _booster: Booster
    _continued_objective: str | None
    _defaults = _own_defaults = DEFAULTS
    #: The parameters that are attributes: of training, and what the __init__ of a subclass names. Whether it takes any others.
    _attributes: Set[str] = DEFAULTS.keys()
    _takes_others = True

    def __init__(self, **params: Any) -> None:
        for name, default in self._defaults.items():
            setattr(self, name, params.pop(name, default))
        if params:
            self.kwargs = params

    def __init_subclass__(cls, **own_defaults: Any) -> None:
        """A class with defaults of its own beside those above it, and an __init__ with the signature that scikit-learn, help()
        and completion look at."""
        super().__init_subclass__()
        cls._own_defaults = own_defaults
        cls._defaults = {}
        for above in reversed(cls.__mro__):
            cls._defaults |= vars(above).get("_own_defaults", {})
        if "__init__" not in vars(cls):

            def __init__(self: GPUBoostModel, **params: Any) -> None:
                super(cls, self).__init__(**params)

            __init__.__qualname__ = f"{cls.__qualname__}.__init__"  # for errors of Python's
            __init__.__signature__ = signature_of(cls._defaults)  # type: ignore[attr-defined]
            cls.__init__ = __init__  # type: ignore[method-assign]
        taken = signature(cls.__init__).parameters.values()
        cls._takes_others = any(parameter.kind is Parameter.VAR_KEYWORD for parameter in taken)
        of_others = (vars(above).get("_attributes", ()) for above in cls.__mro__)
        cls._attributes = cls._defaults.keys() | {*cls._get_param_names()}.union(*of_others)

    if TYPE_CHECKING:  # the parameters

        def __getattr__(self, name: str) -> Any: ...

    def get_params(self, deep=True) -> dict[str, Any]:
        """All parameters by name, those given as keywords of training included, and where the __init__ of a subclass takes any
        keywords, those of the classes above."""
        params = super().get_params(deep)
        if self._takes_others:
            params = {name: getattr(self, name) for name in self._attributes if hasattr(self, name)} | params
        return params | getattr(self, "kwargs", {})

    def set_params(self, **params) -> Self:
        """Set parameters by name. fit refuses unknown ones, with the nearest known name."""
        own, attributes = self._get_param_names(), self._attributes
        further = {name: value for name, value in params.items() if name not in attributes}
        if further:
            self.kwargs = getattr(self, "kwargs", {}) | further
        super().set_params(**{name: value for name, value in params.items() if name in own})
        for name in params.keys() & (attributes - {*own}):  # of a class above
            setattr(self, name, params[name])
        if self.__sklearn_is_fitted__() and not OF_EXECUTION.isdisjoint(params):
            self._execute_as_set(self._booster)
        return self

    def _execute_as_set(self, booster: Booster) -> None:
        """Let a model predict with the threads, on the device and as verbosely as the estimator says."""
        given = self.get_params(deep=False)
        n_threads = given.get("nthread") if given.get("n_jobs") is None else given["n_jobs"]
        booster.set_param({"nthread": n_threads, "device": given.get("device"), "verbosity": given.get("verbosity")})

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.categorical = True
        tags.input_tags.sparse = True
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_booster")

    # -- Fitting ------------------------------------------------------------------------------------------------------

    @also_by_position("sample_weight", "base_margin", "eval_set", is_fit=True)
    def fit(
        self, X, y, *, sample_weight=None, base_margin=None, eval_set=None, sample_weight_eval_set=None,
        base_margin_eval_set=None, verbose=False, xgb_model=None, feature_weights=None,
    ) -> Self:  # fmt: skip
        """Train on a table X (n_samples, n_features), an array, a frame or a SciPy sparse matrix, and its labels y (n_samples,).

        X, also of eval_set, may be a DMatrix of any kind, with None for y: it has its labels (a classifier's are 0, 1, 2, …),
        weights and margins.
        eval_set : (X, y) pairs to evaluate after every round, as validation_0, validation_1, …; one weight and base_margin each.
        verbose : print the evaluations, True every round, a number every so many.
        xgb_model : estimator, Booster or file to continue, with its objective, unless another one than the default is given.
        feature_weights : (n_features,) for sampling columns; the parameter of that name goes before it.
        """
        return self._fit(
            X, y, {"weight": sample_weight, "base_margin": base_margin, "feature_weights": feature_weights}, eval_set,
            sample_weight_eval_set, base_margin_eval_set, verbose, xgb_model,
        )  # fmt: skip

    def _fit(
        self, X: Any, y: Any, info: dict[str, Any], eval_set: Any, eval_weights: Any, eval_margins: Any, verbose: Any,
        xgb_model: Any, eval_queries: Sequence[dict[str, Any]] | None = None,
    ) -> Self:  # fmt: skip
        """fit. info : what DMatrix gets beside table and labels. eval_queries : the same of each pair of eval_set, of queries."""
        is_matrix = isinstance(X, DMatrix)
        if y is None and not is_matrix:
            raise ValueError(f"{type(self).__name__} requires y to be passed, but the target y is None.")
        n_rounds = self.get_num_boosting_rounds()
        if self.early_stopping_rounds is not None and not eval_set:
            raise ValueError("early_stopping_rounds needs an evaluation set. Pass eval_set=[(X_valid, y_valid)] to fit().")
        continued = self._continued(xgb_model)
        self.__dict__.pop("_shap_importances", None)
        self.__dict__.pop("_booster", None)  # no model is better than one of another table's columns and classes
        made_of, X = {"X": X, "y": y, **info}, self._checked_table(X, reset=True)
        if is_matrix:
            refuse_info(X, y=y)
            y = X.get_label()
        label = self._fit_labels(y)
        if continued is not None:
            self._check_continued(continued)
        if is_matrix:
            self._check_matrix(X, label)
        dtrain = self._matrix(X, **({} if is_matrix else self._label_info(label)), **info)
        evals = self._evaluation_matrices(eval_set, eval_weights, eval_margins, eval_queries, dtrain, made_of)
        if self.refit_full and evals:
            last_table = self._checked_table(eval_set[-1][0], reset=False)
            if is_matrix or isinstance(last_table, DMatrix):
                raise ValueError("refit_full joins tables, which a DMatrix is not. Leave it out, or pass the tables.")
            check_tables(X, last_table)
            if any(isinstance(callback, LearningRateScheduler) for callback in self.callbacks or ()):
                raise ValueError("refit_full calls no callbacks, so a LearningRateScheduler would be lost. Leave one out.")
        self.evals_result_: dict[str, dict[str, list[float]]] = {}
        self._booster = train(
            self.get_xgb_params(), dtrain, n_rounds, evals=evals, **self._functions(),
            early_stopping_rounds=self.early_stopping_rounds, evals_result=self.evals_result_, verbose_eval=verbose,
            callbacks=self.callbacks, xgb_model=continued,
        )  # fmt: skip
        if self.refit_full and self._booster.attr("best_iteration") is not None:
            last = None if eval_weights is None else eval_weights[-1]
            weight = join_rows("sample_weight", info["weight"], len(label), last, evals[-1][0].num_row(), 1.0)
            last = None if eval_margins is None else eval_margins[-1]
            margin = join_rows("base_margin", info["base_margin"], len(label), last, evals[-1][0].num_row(), None)
            rows = join_tables(X, last_table)
            labels = np.concatenate([label, self._encoded(eval_set[-1][1], "eval_set[-1]")])
            n_before = 0 if continued is None else continued.num_boosted_rounds()
            self._booster = self._refitted(
                self._matrix(
                    rows, **self._label_info(labels), weight=weight, base_margin=margin, feature_weights=info["feature_weights"]
                ),
                n_before, continued,
            )  # fmt: skip
        self._keep_labels(self._booster)
        if self.importance_type == "shap":
            self._shap_importances = self._mean_sizes(dtrain)
        return self

    def _refitted(self, everything: DMatrix, n_before: int, continued: Booster | None) -> Booster:
        """The model of all rows, with the rounds up to the best one and that one's score."""
        best = {name: self._booster.attr(name) for name in ("best_iteration", "best_score")}
        params = {**self.get_xgb_params(), "random_state": self._booster.params.seed}
        n_rounds = self._booster.best_iteration + 1 - n_before
        booster = train(params, everything, n_rounds, **self._functions(), verbose_eval=False, xgb_model=continued)
        booster.set_attr(**best)
        return booster

    def _continued(self, xgb_model: Any) -> Booster | None:
        """The model to go on from, which train() copies; its objective is that of fit where no other one is given."""
        booster: Booster | None
        if isinstance(xgb_model, GPUBoostModel):
            booster = xgb_model.get_booster()
        elif xgb_model is None or isinstance(xgb_model, Booster):
            booster = xgb_model
        else:
            booster = self._as_trained_here(Booster(model_file=xgb_model))
        self._continued_objective = None if booster is None else booster.model.objective
        return booster

    def _as_trained_here(self, booster: Booster) -> Booster:
        """A model from a file under the objective that fit would have trained it with."""
        return booster

    def _keep_labels(self, booster: Booster) -> None:
        """Write into a new model what its predictions stand for."""

    def _check_continued(self, booster: Booster) -> None:
        """ValueError where a model to continue does not fit the labels."""

    def _check_matrix(self, X: DMatrix, label: np.ndarray) -> None:
        """ValueError where the labels that a matrix has are not those that training is to see."""

    def _checked_table(self, X: Any, *, reset: bool) -> Any:
        """X with count and names of its columns noted (reset) or compared. Frames, masked arrays and tables on a GPU pass
        untouched to DMatrix; a DMatrix itself is compared by training and prediction."""
        if not reset and self._is_plain(X):
            return X
        if isinstance(X, DMatrix):
            if reset:
                self._note_columns(X.num_col(), X.feature_names)
            return X
        X = in_memory(X)
        if is_device_table(X) and not hasattr(X, "columns"):
            X, _ = open_device_table(X)
            if X.ndim != 2:
                return X  # DMatrix says what is wrong
            return validate_data(self, X, reset=reset, skip_check_array=True)
        if isinstance(X, np.ma.MaskedArray):
            return validate_data(self, X, reset=reset, skip_check_array=True)
        if hasattr(X, "columns"):
            X = _named_by_text(X)
            self._check_order(X, reset)
            X, names = validate_data(self, X, reset=reset, skip_check_array=True), _names_of(X)
            is_named = bool(names) and all(isinstance(name, str) for name in names)
            if reset and is_named and not hasattr(self, "feature_names_in_"):  # scikit-learn does not know every library
                self._note_columns(len(names), names)
            return X
        return validate_data(self, X, reset=reset, ensure_min_samples=int(reset), **ANY_NUMBERS)

    def _is_plain(self, X: Any) -> bool:
        """Whether scikit-learn, which takes 40 µs to look, finds nothing to say of an array or to change."""
        is_array = type(X) is np.ndarray and X.dtype in (np.float32, np.float64) and X.ndim == 2
        known = vars(self)
        return is_array and X.shape[1] == known.get("n_features_in_") and "feature_names_in_" not in known

    def _note_columns(self, n_features: int, names: list[str] | None) -> None:
        self.n_features_in_ = n_features
        self.__dict__.pop("feature_names_in_", None)
        if names is not None:
            self.feature_names_in_ = np.array(names, dtype=object)

    def _check_order(self, X: Any, reset: bool) -> None:
        """ValueError for a frame of the right columns in another order, which scikit-learn refuses without naming them."""
        if reset or not hasattr(self, "feature_names_in_"):
            return
        known = self.feature_names_in_.tolist()
        names = _names_of(X)
        if names != known and sorted(map(str, names)) == sorted(known):
            at = next(i for i, name in enumerate(names) if name != known[i])
            raise ValueError(
                "The feature names should match those that were passed during fit.\n"
                "Feature names must be in the same order as they were in fit: "
                f"column {at} is {names[at]!r}, but was {known[at]!r}. Select the columns in the order of feature_names_in_."
            )

    def _fit_labels(self, y: Any) -> np.ndarray:
        return self._encoded(y, "y")

    def _encoded(self, y: Any, where: str) -> np.ndarray:
        """Labels as training takes them. A single column of two dimensions is flattened with a DataConversionWarning."""
        y = unmasked(host_array(y))
        y = y.to_numpy() if hasattr(y, "iloc") else np.asarray(y)
        return column_or_1d(y, warn=True) if y.ndim == 2 and y.shape[1] == 1 else y

    def _label_info(self, label: np.ndarray) -> dict[str, np.ndarray]:
        """Encoded labels as DMatrix takes them."""
        return {"label": label}

    def _matrix(self, X: Any, **info: Any) -> DMatrix:
        if isinstance(X, DMatrix):
            refuse_info(X, **info)
            return X
        _refuse_empty(X, info)
        # scikit-learn has compared the columns, and warned of a table that has no names
        names = None if hasattr(X, "columns") else getattr(self, "feature_names_in_", None)
        return DMatrix(
            X, missing=self.missing, feature_names=names, feature_types=self.feature_types, nthread=self.n_jobs,
            enable_categorical=self.enable_categorical, sparse_absent=self.sparse_absent, **info,
        )  # fmt: skip

    def _evaluation_matrices(
        self, eval_set: Any, weights: Any, margins: Any, queries: Sequence[dict[str, Any]] | None, dtrain: DMatrix,
        made_of: dict[str, Any],
    ) -> list[tuple[DMatrix, str]]:  # fmt: skip
        """made_of : what dtrain was made of, which stands for a pair of the same."""
        pairs, evals = checked_pairs(eval_set), []
        weights = one_each("sample_weight_eval_set", weights, pairs)
        margins = one_each("base_margin_eval_set", margins, pairs)
        for i, (X, y) in enumerate(pairs):
            of_rows, of_queries = {"weight": weights[i], "base_margin": margins[i]}, queries[i] if queries else {}
            if isinstance(X, DMatrix):
                refuse_info(X, y=y, **of_rows)
                matrix = X
            elif self._is_training(made_of, {"X": X, "y": y} | of_rows | of_queries):
                matrix = dtrain
            else:
                _refuse_empty(X, of_rows)
                if y is None:
                    raise ValueError(f"eval_set[{i}] has no labels: its second member is None. Pass pairs (X, y).")
                label = self._encoded(y, f"eval_set[{i}]")
                matrix = self._matrix(self._checked_table(X, reset=False), **self._label_info(label), **of_queries)
                matrix.set_info(**of_rows)
            evals.append((matrix, f"validation_{i}"))
        return evals

    def _is_training(self, made_of: dict[str, Any], given: dict[str, Any]) -> bool:
        """Whether the matrix of training stands for one of these objects: it was made of the same, and nothing is binned twice.
        Not with target statistics: those of rows that are trained on leave out labels, so that their scores are not the model's.
        """
        return self.cat_encoding != "statistics" and all(made_of.get(name) is value for name, value in given.items())

    def get_num_boosting_rounds(self) -> int:
        """n_estimators, 100 for None."""
        n_rounds = 100 if self.n_estimators is None else self.n_estimators
        if isinstance(n_rounds, float | np.floating) and n_rounds.is_integer():
            n_rounds = int(n_rounds)  # as of all parameters that count: hyperopt draws such
        if not isinstance(n_rounds, Integral) or n_rounds < 0:
            raise ValueError(f"n_estimators must be an integer at least 0, got {n_rounds!r}. Use 100 for a start.")
        return int(n_rounds)

    def get_xgb_params(self) -> dict[str, Any]:
        """The objective and the parameters of training that were given, without functions, as train() and cv() take them.

        Of several classes, objective and num_class are known after fit. What only a subclass knows, a parameter of its __init__,
        is its own matter.
        """
        own = self._attributes - self._defaults.keys() - KNOWN
        params = {name: getattr(self, name) for name in self._defaults} | self.get_params(deep=False)
        params = {name: value for name, value in params.items() if name not in NOT_OF_TRAINING | own}
        params["objective"] = self._objective_name()
        params["eval_metric"] = self._metrics()[0]
        is_number = self.random_state is None or isinstance(self.random_state, Integral)
        if isinstance(self.random_state, np.random.Generator):
            params["random_state"] = int(self.random_state.integers(2**31 - 1))
        else:
            params["random_state"] = self.random_state if is_number else check_random_state(self.random_state).randint(2**31 - 1)
        return {name: value for name, value in params.items() if value is not None}

    def _functions(self) -> dict[str, Any]:
        """Objective and metric as train() takes them where they are functions."""
        functions: dict[str, Any] = {}
        if _is_function(self.objective):
            functions["obj"] = self.objective if isinstance(self.objective, Objective) else with_labels(self.objective)
        if metrics := self._metrics()[1]:
            scores = [(_name_of(metric), with_labels(metric)) for metric in metrics]
            functions["custom_metric"] = lambda *given: [(name, score(*given)) for name, score in scores]
        return functions

    def _metrics(self) -> tuple[Any, list[Any]]:
        """eval_metric told apart: a name or names (None for none), and functions."""
        if not isinstance(self.eval_metric, (list, tuple)):
            return (None, [self.eval_metric]) if _is_function(self.eval_metric) else (self.eval_metric, [])
        functions = [metric for metric in self.eval_metric if _is_function(metric)]
        return [metric for metric in self.eval_metric if not _is_function(metric)] or None, functions

    def _objective_name(self) -> str:
        """That of a model that fit went on from, where no other one is given."""
        default = self._defaults["objective"]
        if self.objective is None or self.objective == default:
            return getattr(self, "_continued_objective", None) or default
        return default if _is_function(self.objective) else getattr(self.objective, "registered_name", self.objective)

    # -- Predicting ---------------------------------------------------------------------------------------------------

    def predict(
        self, X, *, output_margin=False, validate_features=True, base_margin=None, iteration_range=None
    ) -> np.ndarray:
        """float32 (n_samples,) or (n_samples, n_outputs): what Booster.predict returns."""
        return self._predict(X, output_margin, validate_features, base_margin, iteration_range)

    def _predict(self, X: Any, output_margin: bool, validate_features: bool, base_margin: Any, iteration_range: Any) -> Any:
        """float32 predictions (n_samples,) or (n_samples, n_outputs); raw margins with output_margin."""
        booster, rounds = self.get_booster(), self._rounds(iteration_range)
        if validate_features:
            X = self._checked_table(X, reset=False)
        elif not (hasattr(X, "columns") or is_device_table(X) or isinstance(X, np.ma.MaskedArray)):
            X = check_array(X, ensure_min_samples=0, **ANY_NUMBERS)
        if type(X) is np.ndarray:  # Booster has a quick way for a few rows
            return booster.inplace_predict(
                X, iteration_range=rounds, predict_type="margin" if output_margin else "value", missing=self.missing,
                validate_features=False, base_margin=base_margin,
            )  # fmt: skip
        return booster.predict(
            self._matrix(X, base_margin=base_margin), output_margin=output_margin, validate_features=validate_features,
            iteration_range=rounds,
        )  # fmt: skip

    def apply(self, X, iteration_range=None) -> np.ndarray:
        """int32 (n_samples, n_trees): the leaf of each tree that a row falls into."""
        booster, rounds = self.get_booster(), self._rounds(iteration_range)
        leaves = booster.predict(self._matrix(self._checked_table(X, reset=False)), pred_leaf=True, iteration_range=rounds)
        return leaves.astype(np.int32)

    def explain(
        self, X, *, background=None, interactions=False, iteration_range=None, progress=None,
    ) -> Any:  # fmt: skip
        """SHAP values of the rows of a table, as shap.Explanation where shap is installed (explanation.py).

        background : a table to compare with; None: by the covers of training. interactions : of pairs of columns. progress :
        called with the rows that are done, and all.
        """
        made = explainer(self, background, iteration_range=iteration_range)
        return made(X, interactions=interactions, progress=progress)

    def _mean_sizes(self, data: DMatrix) -> np.ndarray:
        from gpuboost.explaining.contributions import mean_sizes

        return mean_sizes(self.get_booster().contributions(data, iteration_range=self._rounds(None)))

    def explained_table(self, X: Any) -> Any:
        """A table of the columns that are explained."""
        return X

    def explained_matrix(self, X: Any) -> DMatrix:
        """A table as its prediction reads it."""
        return self._matrix(self._checked_table(self.explained_table(X), reset=False))

    def explained_rounds(self, iteration_range: Any) -> tuple[int, int]:
        """The rounds that its prediction takes."""
        self.get_booster()
        return self._rounds(iteration_range)

    def _rounds(self, iteration_range: Any) -> tuple[int, int]:
        """The range given; for None, or one that ends with 0, the rounds up to the best one of early stopping, else all, wherever
        that begins, as in XGBoost. gblinear has only all."""
        begin, end = round_bounds(iteration_range)
        if end:
            return begin, end
        booster = self.get_booster()
        best = None if booster.model.linear else booster.attr("best_iteration")
        return 0, 0 if best is None else int(best) + 1

    # -- The model ----------------------------------------------------------------------------------------------------

    def get_booster(self) -> Booster:
        """The trained Booster. Raises scikit-learn's NotFittedError before fit."""
        check_is_fitted(self)
        return self._booster

    @property
    def _Booster(self) -> Booster:  # noqa: N802 - XGBoost's name, by which programs put a Booster into an estimator
        return self.get_booster()

    @_Booster.setter
    def _Booster(self, booster: Booster | None) -> None:  # noqa: N802
        if booster is None:
            self.__dict__.pop("_booster", None)
        else:
            self.load_model(bytes(booster.save_raw()))

    def save_model(self, fname: str | os.PathLike[str]) -> None:
        """Write XGBoost's model file (Booster.save_model); a classifier's labels are among its attributes."""
        self.get_booster().save_model(fname)

    def load_model(self, fname: str | os.PathLike[str] | bytes) -> None:
        """Read a model file; the estimator is fitted then. Its objective and feature_types become the model's, other parameters
        stay."""
        booster = self._as_trained_here(Booster(model_file=fname))
        self._use_loaded(booster)
        self._continued_objective = None
        if self._objective_name() != booster.model.objective:
            self.objective = booster.model.objective
        self.evals_result_ = {}
        self._note_columns(booster.num_features(), booster.feature_names)
        self.feature_types = booster.feature_types
        self.__dict__.pop("_shap_importances", None)
        self._execute_as_set(booster)
        self._booster = booster

    def _use_loaded(self, booster: Booster) -> None:
        if booster.model.n_classes or has_classes(booster):
            require_known(booster.model.objective)
            raise TypeError(f"the model was trained with {booster.model.objective}. Load it with GPUBoostClassifier.")

    def evals_result(self) -> dict[str, dict[str, list[float]]]:
        """validation_0 → metric → one value per round. Raises ValueError when fit had no eval_set."""
        self.get_booster()
        if not getattr(self, "evals_result_", None):
            raise ValueError("there is no evaluation result. Pass eval_set=[(X_valid, y_valid)] to fit().")
        return self.evals_result_

    @property
    def best_iteration(self) -> int:
        """Best round found by early stopping. Raises AttributeError when there was none."""
        return self.get_booster().best_iteration

    @property
    def best_score(self) -> float:
        """Value of the metric in that round."""
        return self.get_booster().best_score

    @property
    def intercept_(self) -> np.ndarray:
        """float32 (n_outputs,): base_score, the prediction before the first tree; of gblinear the margin of a row of zeros."""
        model = self.get_booster().model
        scores = np.array(model.base_score, np.float32)
        if model.linear is None:
            return scores
        return find_objective(model.objective).link.to_margin(scores) + model.linear.weights[-1]

    @property
    def coef_(self) -> np.ndarray:
        """float32 (n_features,), or (n_outputs, n_features) for several: the weights of booster="gblinear". Raises AttributeError
        for trees."""
        linear = self.get_booster().model.linear
        if linear is None:
            raise AttributeError("coef_ is of booster='gblinear'. Use feature_importances_ for trees.")
        return linear.weights[:-1].T.copy() if linear.weights.shape[1] > 1 else linear.weights[:-1, 0].copy()

    @property
    def feature_importances_(self) -> np.ndarray:
        """float32 (n_features,), of sum 1, or 0 without any split. By importance_type: mean gain of the feature's splits (the
        default), their mean cover, their number (weight), total_gain and total_cover, or shap, the mean size of its SHAP values
        over the rows of fit; of gblinear its weights."""
        if self.importance_type == "shap":
            self.get_booster()
            if not hasattr(self, "_shap_importances"):
                raise AttributeError(
                    "importance_type='shap' is computed by fit, from its rows; this model was loaded, or fitted with another. "
                    "Use get_booster().get_score(importance_type='shap', data=DMatrix(X))."
                )
            total = self._shap_importances.sum()
            return (self._shap_importances / (total or 1)).astype(np.float32)
        model = self.get_booster().model
        return inspection.feature_importances(model, self.importance_type or ("gain" if model.linear is None else "weight"))


def with_labels(function: Any) -> Any:
    """function(y_true, y_pred[, sample_weight]) as train() calls it, function(predictions, dmatrix)."""

    def call(prediction: np.ndarray, dmatrix: DMatrix) -> Any:
        weight = dmatrix.get_weight()
        given = {"sample_weight": weight} if len(weight) else {}
        try:
            signature(function).bind(dmatrix.get_label(), prediction, **given)
        except ValueError:  # written in C, where not every function tells its parameters
            pass
        except TypeError as problem:
            called = f"(y_true, y_pred{', sample_weight=...' if given else ''})"
            raise TypeError(
                f"{_name_of(function)} is called as {called}, but {problem}. "
                "It must take sample_weight where rows have weights."
            ) from None
        return function(dmatrix.get_label(), prediction, **given)

    return call


def _name_of(function: Any) -> str:
    """Of a metric or objective; of a partial the function's."""
    while isinstance(function, partial):
        function = function.func
    return getattr(function, "__name__", type(function).__name__)


def _names_of(X: Any) -> list[Any]:
    """Of a frame's columns; pyarrow's ``columns`` are no names."""
    return list(getattr(X, "column_names", X.columns))


def _named_by_text(X: Any) -> Any:
    """A frame whose names are text, where some are numbers, as get_dummies makes them of a table: scikit-learn refuses such. One
    of numbers alone stays. Raises ValueError for names that repeat."""
    names = _names_of(X)
    check_names(names, len(names))
    if hasattr(X, "set_axis") and len({isinstance(name, str) for name in names}) > 1:
        return X.set_axis(list(map(str, names)), axis=1)
    return X


def _refuse_empty(X: Any, info: dict[str, Any]) -> None:
    """ValueError for no values of rows that are there; a DMatrix takes an empty list for none."""
    for name, values in info.items():
        if is_empty(values) and _num_samples(X) > 0:
            raise ValueError(f"{name} has 0 rows, data has {_num_samples(X)}. Both need the same rows.")


def checked_pairs(eval_set: Any) -> list[Any]:
    """The (X, y) pairs of eval_set. Raises ValueError where it holds something else."""
    pairs = list(eval_set or ())
    if not all(isinstance(pair, (tuple, list)) and len(pair) == 2 for pair in pairs):
        raise ValueError("eval_set must be a list of (X, y) pairs. Pass eval_set=[(X_valid, y_valid)].")
    return pairs


def one_each(name: str, values: Sequence[Any] | None, pairs: Sequence[Any]) -> Sequence[Any]:
    """What fit was given for each of the pairs, None where nothing. Raises ValueError for another number of them."""
    if values is not None and len(values) != len(pairs):
        raise ValueError(f"{name} must have one entry per pair of eval_set ({len(pairs)}), got {len(values)}.")
    return [None] * len(pairs) if values is None else values


def _is_function(value: Any) -> bool:
    """Whether it is called with arrays; a formula of gpuboost.objective or gpuboost.metric goes by its name."""
    return callable(value) and not hasattr(value, "registered_name")
