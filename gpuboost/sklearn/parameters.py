"""The estimators' parameters: those of training, which params.Params lists, and a few of their own."""

import textwrap
from collections.abc import Mapping
from dataclasses import fields
from inspect import Parameter, Signature
from math import nan
from typing import Any

from gpuboost.params import ALIASES, Params

__all__ = ["DEFAULTS", "KNOWN", "NOT_OF_TRAINING", "PARAMETERS", "signature_of"]

# Name → default and meaning; those of training that are more, or other, here than in train().
OWN: dict[str, tuple[Any, str]] = {
    "n_estimators": (100, "rounds of boosting, 100 for None."),
    "objective": (
        None, "name, or function (y_true, y_pred[, sample_weight]) -> (grad, hess) on raw margins. None for the default: "
        "reg:squarederror, binary:logistic or rank:ndcg.",
    ),
    "eval_metric": (
        None, "name, or function (y_true, y_pred[, sample_weight]) -> number, to be minimised, or a list of such."
    ),
    "early_stopping_rounds": (
        None, "stop when the last metric on the last set of eval_set has not improved for so many rounds; prediction then uses "
        "the rounds up to the best.",
    ),
    "refit_full": (
        None, "True: after early stopping, train once more on the rows of fit and of the last set of eval_set, with the rounds "
        "found; callbacks are not called then.",
    ),
    "callbacks": (None, "callback.TrainingCallback objects."),
    "missing": (nan, "value that means missing besides NaN."),
    "sparse_absent": (None, 'what a sparse matrix leaves out, "missing" (also None) or "zero"; the model remembers it.'),
    "enable_categorical": (True, "False refuses columns of categories."),
    "feature_types": (None, "replaces the types of the columns."),
    "importance_type": (
        None, '"gain" (default), "weight", "cover", "total_gain", "total_cover" or "shap", see feature_importances_.'
    ),
    "random_state": (
        None, "seed of every random choice, or a numpy.random.RandomState or Generator, which draws one in each fit."
    ),
    "n_jobs": (None, "CPU threads, 0 or -1: all, -2: all but one, and so on; None: as configured."),
}  # fmt: skip

NOT_OF_TRAINING = OWN.keys() - {"n_jobs"}  # the estimators hand these on in their own way
LABELS_TELL = {"num_class", "num_target"}
RENAMED = {"seed", "nthread"}  # random_state and n_jobs

OF_TRAINING = {f.name: f.metadata["rule"].doc for f in fields(Params) if f.name not in OWN.keys() | LABELS_TELL | RENAMED}

KNOWN = ALIASES.keys() | {f.name for f in fields(Params)}  # to training, by any name
DEFAULTS: dict[str, Any] = {name: default for name, (default, _) in OWN.items()} | dict.fromkeys(OF_TRAINING)


def signature_of(defaults: Mapping[str, Any]) -> Signature:
    """What scikit-learn reads of an estimator's __init__."""
    own = [Parameter(name, Parameter.KEYWORD_ONLY, default=default) for name, default in defaults.items()]
    named = Parameter("self", Parameter.POSITIONAL_OR_KEYWORD), *own, Parameter("kwargs", Parameter.VAR_KEYWORD)
    return Signature(named)


def _described(name: str, meaning: str) -> str:
    return textwrap.fill(f"{name} : {meaning}", 126, initial_indent="    ", subsequent_indent="        ")


PARAMETERS = "\n".join(
    [
        *(_described(name, meaning) for name, (_, meaning) in OWN.items()),
        _described("kwargs", "any further parameter of training, or alias of one, by name."),
        "",
        "    Parameters of training (params.describe_params says what they allow), None for the default:",
        "",
        *(_described(name, meaning) for name, meaning in OF_TRAINING.items()),
        "",
        "    Prediction takes validate_features, False to take columns by their order whatever their names, and iteration_range,",
        "    rounds [begin, end), by default all, or those up to the best after early stopping.",
    ]
)
