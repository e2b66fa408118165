"""Every public name of XGBoost's Python API, and every argument of its functions, is known here, or listed below with why not."""

import inspect
from importlib import import_module

import pytest

import gpuboost as gb

xgboost = pytest.importorskip("xgboost")

MODULES = "callback", "collective", "dask", "interpret", "plotting", "tracker"
# Of its classes, what its own documentation calls internal; or what stands where it differs: README, "Coming from XGBoost".
ABSENT = {
    *(f"{kind}DMatrix.data_split_mode" for kind in ("", "Quantile", "ExtMemQuantile")),  # gone in 3.4
    "DataIter.get_callbacks", "DataIter.proxy", "DataIter.reraise", "QuantileDMatrix.ref", "ExtMemQuantileDMatrix.ref",
    "callback.CallbackContainer", "tracker.get_family", "dask.DaskScikitLearnBase", "collective.Op.values",
    "XGBModel.predict", "XGBModel.set_predict_request",  # of its subclasses
    "dask.CommunicatorContext.args",  # of a context around tasks of one's own: collective.CommunicatorContext
}  # fmt: skip


def own_name(name):
    return name.replace("XGB", "GPUBoost")


def public(module):
    """What a module exports, or has of its own."""
    own = [name for name, value in vars(module).items() if getattr(value, "__module__", "") == module.__name__ and name[0] != "_"]
    return {name: getattr(module, name) for name in getattr(module, "__all__", own) if hasattr(module, name)}


def arguments(function):
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return None
    return [p.name for p in parameters if p.kind is not p.VAR_KEYWORD], any(p.kind is p.VAR_KEYWORD for p in parameters)


def missing(theirs, ours, name):
    """What XGBoost's function, or the class and its methods, has and ours lacks."""
    own, known = arguments(theirs), arguments(ours)
    if own and known and not known[1]:
        yield from (f"{name}.{argument}" for argument in own[0] if argument not in known[0])
    if inspect.isclass(theirs):
        for part in filter(lambda part: not part.startswith("_"), dir(theirs)):
            try:
                method = getattr(theirs, part)
            except AttributeError:  # known after fit
                continue
            if not hasattr(ours, part):
                if not (part.endswith("_") and theirs.__module__.startswith(("xgboost.sklearn", "xgboost.dask"))):
                    yield f"{name}.{part}"
            elif callable(method):
                yield from missing(method, getattr(ours, part), f"{name}.{part}")


@pytest.mark.parametrize("module", [None, *MODULES])
def test_names_and_arguments_are_known(module):
    try:
        theirs = xgboost if module is None else import_module(f"xgboost.{module}")
    except ImportError:
        pytest.skip(f"XGBoost {xgboost.__version__} has no {module}, or it cannot be imported")
    ours, found = gb if module is None else import_module(f"gpuboost.{module}"), []
    for name, value in public(theirs).items():
        where = name if module is None else f"{module}.{name}"
        if not hasattr(ours, own_name(name)):
            found.append(where)
        elif not inspect.ismodule(value):
            found += missing(value, getattr(ours, own_name(name)), where)
    assert [name for name in found if name not in ABSENT] == []
