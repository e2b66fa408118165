"""How each library bins, trains and predicts, with parameters as equal as its own allow.

XGBoost's defaults are the measure: learning_rate 0.3, lambda 1, min_child_weight 1, max_bin 256, no sampling. What differs:

    hessboost     Grows XGBoost's trees. Binning apart and predicting take every core, whatever the threads: here its process may
                  use as many cores as threads (Linux; elsewhere figures of one thread flatter it). Its array is read-only, which
                  it reads in place, as others do. A sparse column whose stored values are equal has one bin, and hist does not
                  split that from what is not stored: it learns nothing from one-hot tables, and is left out there.
    lightgbm      255 bins and one for missing values. Grows best leaf first: 2^max_depth leaves within max_depth levels make the
                  same trees. Its hessians of K classes are K / (2 (K - 1)) of XGBoost's, for which learning_rate, lambda and
                  min_child_weight make up. What a sparse matrix does not store is zero, not missing. Takes its bins from 200,000
                  rows, 3 rows or more in each, where gpuboost, xgboost and hessboost take all rows. Times two ways to add at
                  every start. Categories by its own rules (benchmarks/categories.py).
    catboost      Trees are grown by levels ("Depthwise") or leaves ("Lossguide", at most 16 deep), not its oblivious ones, from
                  254 borders. Several classes share one tree, whose leaves have a weight for each. Splits are chosen by gradients
                  alone (L2), without min_child_weight; leaf weights are one Newton step. Sampling, random_strength and ordered
                  boosting are off. Bins and trains in one call. What a sparse matrix does not store is zero.
    scikit-learn  255 bins and one for missing values; at least one row in a leaf instead of min_child_weight. Its hessians of
                  several classes are half of XGBoost's, for which learning_rate and l2 make up. Bins and trains in one call, from
                  a copy in float64; the bins come from 200,000 rows. Takes no sparse matrix.
"""

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from tasks import BINARY, NUMBERS, SEVERAL, Task

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # the gpuboost beside this file, whichever is installed


def unchanged(x: Any) -> Any:
    return x


@dataclass(frozen=True)
class Library:
    """module : what to import.
    bin_table : (x, y, task, n_threads) -> what it trains on.
    train : (data, task, n_threads) -> model.
    predict : (model, x, task, n_threads) -> probabilities (n_rows,) or (n_rows, n_classes), or numbers (n_rows,).
    methods : tree methods that it has. bins_apart : not within train.
    form : (table) -> the one that it is given, made before time is taken.
    path : the folder to import it from; none: wherever it is found first.
    """

    module: str
    bin_table: Callable[[Any, np.ndarray, Task, int], Any]
    train: Callable[[Any, Task, int], Any]
    predict: Callable[[Any, Any, Task, int], np.ndarray]
    methods: tuple[str, ...] = ("hist",)
    takes_sparse: bool = True
    takes_codes: bool = False
    bins_apart: bool = True
    form: Callable[[Any], Any] = unchanged
    path: str = ""

    def lacks(self, task: Task) -> str:
        """Why it cannot take part, or nothing."""
        if task.tree_method not in self.methods:
            return f"has no {task.tree_method}"
        if task.is_categorical and not self.takes_codes:
            return "takes no array of codes as categories"
        return "" if self.takes_sparse or not task.is_sparse else "takes no sparse matrix"


# --- gpuboost and XGBoost: one API ---


def xgboost_params(task: Task, n_threads: int) -> dict[str, Any]:
    shape = {"max_depth": 0, "max_leaves": task.n_leaves, "grow_policy": "lossguide"}
    classes = {"num_class": task.n_classes} if task.objective == SEVERAL else {}
    return {
        "objective": task.objective, "max_bin": 256, "nthread": n_threads, "tree_method": task.tree_method, **classes,
        **(shape if task.n_leaves else {"max_depth": task.max_depth}),
    }  # fmt: skip


def bin_as_xgboost(library: str, x: Any, y: np.ndarray, task: Task, n_threads: int) -> Any:
    module = import_module(library)
    if task.is_categorical:
        types = {"feature_types": ["c"] * task.n_features, "enable_categorical": True}
        return module.QuantileDMatrix(x, y, max_bin=256, nthread=n_threads, **types)
    if task.tree_method == "hist":
        return module.QuantileDMatrix(x, y, max_bin=256, nthread=n_threads)
    return module.DMatrix(x, y, nthread=n_threads)


def bin_for_gpuboost(x: Any, y: np.ndarray, task: Task, n_threads: int) -> Any:
    return bin_as_xgboost("gpuboost", x, y, task, n_threads)


def train_gpuboost(data: Any, task: Task, n_threads: int) -> Any:
    return import_module("gpuboost").train(xgboost_params(task, n_threads), data, task.n_rounds)


def bin_for_xgboost(x: Any, y: np.ndarray, task: Task, n_threads: int) -> Any:
    return bin_as_xgboost("xgboost", x, y, task, n_threads)


def train_xgboost(data: Any, task: Task, n_threads: int) -> Any:
    return import_module("xgboost").train(xgboost_params(task, n_threads), data, task.n_rounds)


def predict_in_place(model: Any, x: Any, task: Task, n_threads: int) -> np.ndarray:
    """The model keeps the number of threads that it was last given: setting it is not for every row."""
    if getattr(model, "threads_set", None) != n_threads:
        model.set_param({"nthread": n_threads})
        model.threads_set = n_threads
    return model.inplace_predict(x)


# --- hessboost: XGBoost's parameters ---

CORES = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
CONFINED: dict[str, int] = {}  # cores that it was last confined to


def confine(n_threads: int) -> None:
    """All threads of this process, from now on, to that many cores."""
    if CORES and CONFINED.get("cores") != n_threads:
        for thread in os.listdir("/proc/self/task"):
            os.sched_setaffinity(int(thread), CORES[:n_threads])
        CONFINED["cores"] = n_threads


def read_only(x: Any) -> Any:
    if isinstance(x, np.ndarray):
        x = x.copy()
        x.setflags(write=False)
    return x


def bin_for_hessboost(x: Any, y: np.ndarray, task: Task, n_threads: int) -> Any:
    confine(n_threads)
    module = import_module("hessboost")
    data = module.DMatrix(x, y, copy=not isinstance(x, np.ndarray))
    return module.BinnedMatrix(data, 256) if task.tree_method == "hist" else data


def train_hessboost(data: Any, task: Task, n_threads: int) -> Any:
    confine(n_threads)
    return import_module("hessboost").train(xgboost_params(task, n_threads), data, task.n_rounds)


def predict_hessboost(model: Any, x: Any, task: Task, n_threads: int) -> np.ndarray:
    confine(n_threads)
    return model.predict_row(x[0]) if x.shape[0] == 1 and isinstance(x, np.ndarray) else model.predict(x)


# --- LightGBM ---


def lightgbm_binning(n_threads: int) -> dict[str, Any]:
    return {"max_bin": 255, "feature_pre_filter": False, "num_threads": n_threads, "verbose": -1}


def lightgbm_params(task: Task, n_threads: int) -> dict[str, Any]:
    is_several = task.objective == SEVERAL
    unit = task.n_classes / (2 * (task.n_classes - 1)) if is_several else 1.0  # of its hessians, in XGBoost's
    return {
        "objective": {BINARY: "binary", SEVERAL: "multiclass", NUMBERS: "regression"}[task.objective],
        "num_class": task.n_classes if is_several else 1,
        "max_depth": -1 if task.n_leaves else task.max_depth, "num_leaves": task.n_leaves or 2**task.max_depth,
        "learning_rate": 0.3 * unit, "lambda_l2": unit, "min_sum_hessian_in_leaf": unit, "min_data_in_leaf": 1,
        **lightgbm_binning(n_threads),
    }  # fmt: skip


def bin_for_lightgbm(x: Any, y: np.ndarray, task: Task, n_threads: int) -> Any:
    categories = list(range(task.n_features)) if task.is_categorical else []
    data = import_module("lightgbm").Dataset(x, y, params=lightgbm_binning(n_threads), categorical_feature=categories)
    return data.construct()


def train_lightgbm(data: Any, task: Task, n_threads: int) -> Any:
    return import_module("lightgbm").train(lightgbm_params(task, n_threads), data, task.n_rounds)


def predict_lightgbm(model: Any, x: Any, task: Task, n_threads: int) -> np.ndarray:
    return model.predict(x, num_threads=n_threads)


# --- CatBoost ---


def catboost_params(task: Task, n_threads: int) -> dict[str, Any]:
    by_leaves = {"grow_policy": "Lossguide", "max_leaves": task.n_leaves, "depth": 16}
    return {
        "loss_function": {BINARY: "Logloss", SEVERAL: "MultiClass", NUMBERS: "RMSE"}[task.objective],
        "iterations": task.n_rounds, "learning_rate": 0.3, "l2_leaf_reg": 1, "min_data_in_leaf": 1, "border_count": 254,
        **(by_leaves if task.n_leaves else {"grow_policy": "Depthwise", "depth": task.max_depth}),
        "bootstrap_type": "No", "score_function": "L2", "random_strength": 0, "boosting_type": "Plain",
        "leaf_estimation_method": "Newton", "leaf_estimation_iterations": 1, "boost_from_average": task.objective != SEVERAL,
        "thread_count": n_threads, "verbose": False, "allow_writing_files": False,
    }  # fmt: skip


def bin_for_catboost(x: Any, y: np.ndarray, task: Task, n_threads: int) -> Any:
    """Not Pool.quantize, which takes all threads: training does it first."""
    return import_module("catboost").Pool(x, y, thread_count=n_threads)


def train_catboost(data: Any, task: Task, n_threads: int) -> Any:
    return import_module("catboost").train(pool=data, params=catboost_params(task, n_threads))


def predict_catboost(model: Any, x: Any, task: Task, n_threads: int) -> np.ndarray:
    if task.objective == NUMBERS:
        return model.predict(x, thread_count=n_threads)
    prediction = model.predict(x, prediction_type="Probability", thread_count=n_threads)
    return prediction[:, 1] if task.objective == BINARY else prediction


# --- scikit-learn ---

OPENMP: dict[str, int] = {}  # threads that it was last limited to


def limit_openmp(n_threads: int) -> None:
    """From now on, as scikit-learn has no parameter for it. Setting it takes longer than a prediction."""
    if OPENMP.get("threads") != n_threads:
        import_module("threadpoolctl").threadpool_limits(n_threads, user_api="openmp")
        OPENMP["threads"] = n_threads


def train_sklearn(data: Any, task: Task, n_threads: int) -> Any:
    ensemble = import_module("sklearn.ensemble")
    kind = ensemble.HistGradientBoostingRegressor if task.objective == NUMBERS else ensemble.HistGradientBoostingClassifier
    unit = 0.5 if task.objective == SEVERAL else 1.0  # of its hessians, in XGBoost's
    model = kind(
        learning_rate=0.3 * unit, l2_regularization=unit, min_samples_leaf=1, max_bins=255, early_stopping=False,
        max_iter=task.n_rounds, max_depth=None if task.n_leaves else task.max_depth,
        max_leaf_nodes=task.n_leaves or 2**task.max_depth,
    )  # fmt: skip
    limit_openmp(n_threads)
    return model.fit(*data)


def predict_sklearn(model: Any, x: Any, task: Task, n_threads: int) -> np.ndarray:
    limit_openmp(n_threads)
    if task.objective == NUMBERS:
        return model.predict(x)
    prediction = model.predict_proba(x)
    return prediction[:, 1] if task.objective == BINARY else prediction


def take_table(x: Any, y: np.ndarray, task: Task, n_threads: int) -> Any:
    return x, y


ALL = ("hist", "approx", "exact")
LIBRARIES = {
    "gpuboost": Library("gpuboost", bin_for_gpuboost, train_gpuboost, predict_in_place, ALL, takes_codes=True),
    "xgboost": Library("xgboost", bin_for_xgboost, train_xgboost, predict_in_place, ALL, takes_codes=True),
    "hessboost": Library("hessboost", bin_for_hessboost, train_hessboost, predict_hessboost, ALL, form=read_only),
    "lightgbm": Library("lightgbm", bin_for_lightgbm, train_lightgbm, predict_lightgbm, takes_codes=True),
    "catboost": Library("catboost", bin_for_catboost, train_catboost, predict_catboost, bins_apart=False),
    "sklearn": Library("sklearn", take_table, train_sklearn, predict_sklearn, takes_sparse=False, bins_apart=False),
}


def installed(names: list[str]) -> list[str]:
    return [name for name in names if find_spec(LIBRARIES[name].module)]
