"""gpuboost: gradient tree boosting with one model, byte for byte, for any number of threads and workers.

    import gpuboost as gb
    booster = gb.train({"objective": "binary:logistic"}, gb.DMatrix(X, label=y), num_boost_round=100)
    booster.predict(gb.DMatrix(X))
    booster.save_model("model.json")          # XGBoost's file format

Names are loaded when first used, so that ``import gpuboost`` costs nothing.
"""

import os
import sys
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
process_id = os.getpid()  # another one in the child of a fork

_HOMES = {
    "Booster": "booster",
    "DMatrix": "data.dmatrix",
    "QuantileDMatrix": "data.quantile_dmatrix",
    "ExtMemQuantileDMatrix": "data.external",
    "DataIter": "data.streams.data_iter",
    "train": "training.loop",
    "cv": "cross_validation",
    "explainer": "explanation",
    "plot_importance": "plotting",
    "plot_metric": "plotting",
    "plot_tree": "plotting",
    "to_graphviz": "plotting",
    "GPUBoostModel": "sklearn",
    "GPUBoostClassifier": "sklearn",
    "GPUBoostRegressor": "sklearn",
    "GPUBoostRanker": "sklearn",
    "GPUBoostRFClassifier": "sklearn",
    "GPUBoostRFRegressor": "sklearn",
    "DeviceNotFoundError": "errors",
    "ModelFormatError": "errors",
    "NotFittedError": "errors",
    "config_context": "config",
    "get_config": "config",
    "set_config": "config",
    "FormulaError": "formulas.translate",
    "metric": "formulas.metric",
    "Objective": "custom_objective",
    "TreeObjective": "custom_objective",
    "objective": "formulas.objective",
    "split_gain": "formulas.split_gain",
    "RabitTracker": "tracker",
    "build_info": "doctor",
    "callback": "callback",
    "collective": "collective",
    "config": "config",
    "dask": "dask",
    "interpret": "interpret",
    "plotting": "plotting",
    "sklearn": "sklearn",
    "training": "training",
}
_KINDS = ("Model", "Classifier", "Regressor", "Ranker", "RFClassifier", "RFRegressor")
_RENAMED = {f"XGB{kind}": f"GPUBoost{kind}" for kind in _KINDS}
_ELSEWHERE = {"core": ". Its classes are gpuboost's own; in place of XGBoostError catch ValueError and OSError."}

_NEEDED = {"sklearn": "sklearn", "dask": "distributed"}  # packages that are not installed with every gpuboost

if TYPE_CHECKING:
    from gpuboost import callback as callback
    from gpuboost import collective as collective
    from gpuboost import config as config
    from gpuboost import dask as dask
    from gpuboost import interpret as interpret
    from gpuboost import plotting as plotting
    from gpuboost import sklearn as sklearn
    from gpuboost import training as training
    from gpuboost.booster import Booster as Booster
    from gpuboost.config import config_context as config_context
    from gpuboost.config import get_config as get_config
    from gpuboost.config import set_config as set_config
    from gpuboost.cross_validation import cv as cv
    from gpuboost.custom_objective import Objective as Objective
    from gpuboost.custom_objective import TreeObjective as TreeObjective
    from gpuboost.data.dmatrix import DMatrix as DMatrix
    from gpuboost.data.external import ExtMemQuantileDMatrix as ExtMemQuantileDMatrix
    from gpuboost.data.quantile_dmatrix import QuantileDMatrix as QuantileDMatrix
    from gpuboost.data.streams.data_iter import DataIter as DataIter
    from gpuboost.doctor import build_info as build_info
    from gpuboost.errors import DeviceNotFoundError as DeviceNotFoundError
    from gpuboost.errors import ModelFormatError as ModelFormatError
    from gpuboost.errors import NotFittedError as NotFittedError
    from gpuboost.explanation import explainer as explainer
    from gpuboost.formulas.metric import metric as metric
    from gpuboost.formulas.objective import objective as objective
    from gpuboost.formulas.split_gain import split_gain as split_gain
    from gpuboost.formulas.translate import FormulaError as FormulaError
    from gpuboost.plotting import plot_importance as plot_importance
    from gpuboost.plotting import plot_metric as plot_metric
    from gpuboost.plotting import plot_tree as plot_tree
    from gpuboost.plotting import to_graphviz as to_graphviz
    from gpuboost.sklearn import GPUBoostClassifier as GPUBoostClassifier
    from gpuboost.sklearn import GPUBoostModel as GPUBoostModel
    from gpuboost.sklearn import GPUBoostRanker as GPUBoostRanker
    from gpuboost.sklearn import GPUBoostRegressor as GPUBoostRegressor
    from gpuboost.sklearn import GPUBoostRFClassifier as GPUBoostRFClassifier
    from gpuboost.sklearn import GPUBoostRFRegressor as GPUBoostRFRegressor
    from gpuboost.tracker import RabitTracker as RabitTracker
    from gpuboost.training.loop import train as train


def __getattr__(name: str) -> Any:
    if name == "__all__":  # of what can be imported: * and help() import all of it
        return ["__version__", *(name for name, home in _HOMES.items() if home not in _NEEDED or find_spec(_NEEDED[home]))]
    if name in _HOMES:
        module = _load(f"gpuboost.{_HOMES[name]}")
        globals()[name] = found = module if _HOMES[name] == name else getattr(module, name)
        return found
    hint = f". It is called {_RENAMED[name]} here." if name in _RENAMED else _ELSEWHERE.get(name, "")
    raise AttributeError(f"module 'gpuboost' has no attribute {name!r}{hint}")


def _load(module: str) -> Any:
    """Import a module. After Ctrl-C it is as if that had not begun: numba cannot be gone on with where it was cut short."""
    before = set(sys.modules)
    try:
        return import_module(module)
    except KeyboardInterrupt:
        for name in sys.modules.keys() - before:
            if name.partition(".")[0] in ("gpuboost", "numba", "llvmlite"):
                del sys.modules[name]
        raise


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
