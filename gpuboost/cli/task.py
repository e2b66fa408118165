"""What the command line trains: the parameters given, the objective that a label asks for, and where the model goes."""

import argparse
import json
import os
from pathlib import Path
from typing import Any

import numpy as np

from gpuboost.backend import choose_backend
from gpuboost.metrics import get_metric
from gpuboost.objectives import find_objective, get_objective
from gpuboost.params import Params, parse_params

__all__ = ["check_params", "check_target", "check_writable", "choose_task", "given_params"]

MAX_CLASSES = 20  # a label with more distinct values is not taken for classes unless the objective says so


def given_params(options: argparse.Namespace) -> dict[str, Any]:
    """The parameters of --params, then those of -p; eval_metric may be repeated."""
    params: dict[str, Any] = {}
    if options.params:
        try:
            params = json.loads(Path(options.params).read_text(encoding="utf-8"))
        except ValueError as error:
            raise ValueError(f"{options.params} is not JSON: {error}.") from None
        if not isinstance(params, dict):
            raise ValueError(f'{options.params} must hold one JSON object, such as {{"max_depth": 6}}.')
    given: dict[str, Any] = {}
    for text in options.param:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise ValueError(f"-p must be name=value, got {text!r}. Use for example -p max_depth=6.")
        given[name] = [*given.get(name, []), value] if name == "eval_metric" else value
    return {**params, **given}


def check_params(params: dict[str, Any]) -> Params:
    """The parameters, checked as training would: before a table is read, and once more where its label has completed them.

    Raises ValueError, NotImplementedError and DeviceNotFoundError as training does.
    """
    checked = parse_params(params)
    for name in checked.eval_metric:
        get_metric(name, checked)
    choose_backend(checked.training_device, checked.nthread)
    if "objective" in params and ("num_class" in params or not find_objective(checked.objective).takes_parameter("num_class")):
        get_objective(checked.objective, checked)
    return checked


def choose_task(label: Any, params: dict[str, Any]) -> np.ndarray | None:
    """Fill in the objective, and num_class, where they are not given. The classes of a label that is to be encoded, else None."""
    is_number, n_distinct = label.dtype.is_numeric(), label.drop_nulls().n_unique()
    if "objective" not in params:
        is_quantity = is_number and n_distinct != 2 and (label.dtype.is_float() or not 2 < n_distinct <= MAX_CLASSES)
        if not is_number and n_distinct > MAX_CLASSES:
            raise ValueError(
                f"label {label.name!r} is text with {n_distinct} distinct values. "
                "If they are classes, say so with -p objective=multi:softprob."
            )
        params["objective"] = (
            "reg:squarederror" if is_quantity else "binary:logistic" if n_distinct <= 2 else "multi:softprob"
        )
    objective = str(params["objective"])
    is_multi = find_objective(objective).takes_parameter("num_class")
    if not find_objective(objective).is_classifier:
        if not is_number:
            raise ValueError(f"label {label.name!r} must be a number for {objective}, got {label.dtype}.")
        return None
    if is_number and ("num_class" in params if is_multi else n_distinct > 2):
        return None  # class numbers, or probabilities
    if not is_multi and n_distinct > 2:
        raise ValueError(f"label {label.name!r} has {n_distinct} classes, {objective} takes 2. Use -p objective=multi:softprob.")
    classes = np.unique(label.drop_nulls().to_numpy())
    if is_multi and str(params.setdefault("num_class", len(classes))) != str(len(classes)):
        raise ValueError(
            f"num_class is {params['num_class']}, but label {label.name!r} has {len(classes)} classes. Leave num_class out."
        )
    return classes


def check_target(path: str) -> None:
    """What would fail after the training fails before it."""
    if Path(path).suffix not in (".json", ".ubj"):
        raise ValueError(f"--model must end in .json or .ubj, got {path!r}. Use model.json, for example.")
    check_writable("--model", path)


def check_writable(option: str, path: str) -> None:
    """ValueError where no file can be written to, as far as the system tells."""
    folder = Path(os.path.realpath(path)).parent  # where a link leads
    if Path(path).is_dir():
        raise ValueError(f"{option} {path!r} is a folder. Name a file in it.")
    if not os.path.exists(path) and not folder.is_dir():
        raise ValueError(f"the folder of {option} {path!r} does not exist. Create it first.")
    if not os.access(path if os.path.exists(path) else folder, os.W_OK):
        raise ValueError(f"{option} {path!r} cannot be written. Name another file, or allow it.")
