"""A user's mapping as Params: aliases, unknown names and what was probably meant by them; and the reference of all parameters."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import fields
from difflib import get_close_matches
from typing import Any

from gpuboost.output import warn_user
from gpuboost.params.fields import ALIASES, FIELDS, Params, check_param, with_aliases
from gpuboost.params.values import as_real, bounded

__all__ = ["ELSEWHERE", "describe_params", "parse_params"]

# Names that people put among the parameters although they belong elsewhere, and what to do instead.
ELSEWHERE = {
    **dict.fromkeys(
        ["n_estimators", "num_round", "num_rounds", "nrounds", "iterations", "max_iter", "num_iterations"],
        "Pass num_boost_round to train(), n_estimators to an estimator.",
    ),
    **dict.fromkeys(
        ["num_boost_round", "early_stopping_rounds", "evals", "obj", "custom_metric", "maximize", "callbacks", "verbose_eval"],
        "Pass it to train().",
    ),
    **dict.fromkeys(
        ["missing", "enable_categorical", "label", "weight", "base_margin", "missing_labels"], "Pass it to DMatrix()."
    ),
    "sample_weight": "Pass it to fit(), or as weight to DMatrix().",
    "class_weight": "Pass sample_weight to fit() (weight to DMatrix()), or use scale_pos_weight for two classes.",
    "eval_set": "Pass it to fit(), or as evals to train().",
    "importance_type": "Pass it to Booster.get_score().",
    "silent": "Use verbosity=0.",
    "gpu_id": "Use device='cuda:0' with the number of the device.",
    "predictor": "Leave it out: prediction runs where device says.",
    "use_label_encoder": "Leave it out: estimators take labels of any type.",
    "bagging_fraction": "Use subsample.",
    "feature_fraction": "Use colsample_bytree.",
    "max_features": "Use colsample_bynode, a share of the features.",
    "verbose": "Pass it to fit(), or as verbose_eval to train().",
    "cat_features": "Give the columns a category type, or pass feature_types to DMatrix(); enable_categorical is true.",
    **dict.fromkeys(
        ["min_child_samples", "min_samples_leaf", "min_data_in_leaf", "min_sum_hessian_in_leaf"],
        "Use min_child_weight, a sum of hessians.",
    ),
    **dict.fromkeys(["min_split_gain", "min_gain_to_split"], "Use gamma."),
    **dict.fromkeys(["num_leaves", "max_leaf_nodes"], "Use max_leaves."),
    "lr": "Use learning_rate.",
    **dict.fromkeys(["l1", "lambda_l1", "l1_regularization"], "Use reg_alpha."),
    **dict.fromkeys(["l2", "lambda_l2", "l2_regularization", "l2_leaf_reg"], "Use reg_lambda."),
    "interaction_cst": "Use interaction_constraints.",
}

# XGBoost's that change no model here: they are taken, and not looked at. (What a round draws depends on its number anyway.)
WITHOUT_EFFECT = {
    "debug_synchronize", "fail_on_invalid_gpu_id", "max_cached_hist_node", "max_row_perbatch", "seed_per_iteration",
    "sparse_threshold",
}  # fmt: skip
# Of XGBoost's updaters those that grow trees: the tree_method that does the same, with pruning.
GROWERS = {
    "grow_colmaker": "exact", "grow_histmaker": "approx", "grow_gpu_approx": "approx", "grow_quantile_histmaker": "hist",
    "grow_gpu_hist": "gpu_hist",
}  # fmt: skip

_read_sketch_eps, _ = bounded(as_real, "[0.00001, 0.5]")


def parse_params(params: Mapping[str, Any] | Iterable[tuple[str, Any]] | None = None) -> Params:
    """Params from a user's mapping, or from pairs of name and value in which eval_metric may be repeated.

    Raises ValueError for an unknown name, with the nearest known one (only a warning under validate_parameters=False), for a
    value that is not allowed, and when two spellings of one parameter disagree; NotImplementedError as `Params` does.
    """
    values: dict[str, Any] = {}
    spelt: dict[str, str] = {}  # name → "name=value" as it was first given
    unknown = []
    pairs = _pairs(params)
    grows_trees = not any(name == "booster" and isinstance(value, str) and value == "gblinear" for name, value in pairs)
    for spelling, given in pairs:
        if spelling in WITHOUT_EFFECT:
            continue
        if spelling == "updater" and grows_trees and (method := _method_of(given)):
            spelling, given = "tree_method", method
        name = "max_bin" if spelling == "sketch_eps" else ALIASES.get(spelling, spelling)
        if name not in FIELDS:
            unknown.append(spelling)
        elif given is not None:
            value = check_param(name, _bins_of(given) if spelling == "sketch_eps" else given)
            if name == "eval_metric":
                value = values.get(name, ()) + value
            elif values.get(name, value) != value:
                raise ValueError(f"{name} was given twice, as {spelt[name]} and {spelling}={given!r}. Keep one of them.")
            values[name] = value
            spelt.setdefault(name, f"{spelling}={given!r}")
    result = Params(**values)
    if unknown:
        message = " ".join(map(_unknown_name, unknown))
        if result.validate_parameters:
            raise ValueError(message)
        if result.verbosity != 0:
            warn_user(message)
    return result


def describe_params() -> str:
    """The reference of all parameters: one Markdown table per section."""
    lines = []
    for section in reversed(Params.__bases__):
        lines += [f"## {section.__doc__}", "", "| parameter | default | allowed | meaning |", "|---|---|---|---|"]
        for f in fields(section):
            rule = f.metadata["rule"]
            lines.append(f"| {with_aliases(f.name)} | {f.default!r} | {rule.allowed} | {rule.doc} |")
        lines.append("")
    return "\n".join(lines)


def _pairs(params: Mapping[str, Any] | Iterable[tuple[str, Any]] | None) -> list[tuple[str, Any]]:
    items = list(params.items() if isinstance(params, Mapping) else params or ())
    if not all(isinstance(item, (tuple, list)) and len(item) == 2 and isinstance(item[0], str) for item in items):
        raise ValueError(f"params must be a mapping or a list of (name, value) pairs, got {params!r}. Use {{'max_depth': 6}}.")
    return items


def _method_of(updater: Any) -> str | None:
    """The tree_method of XGBoost's updaters "grow_colmaker,prune" and the like; None of others."""
    parts = updater.split(",") if isinstance(updater, str) else updater if isinstance(updater, list | tuple) else []
    first, *others = [part.strip() for part in parts if isinstance(part, str)] or [""]
    return GROWERS.get(first) if set(others) <= {"prune"} else None


def _bins_of(sketch_eps: Any) -> int:
    """As many as Eq. 9 of the paper asks for: gaps of less than eps each. (A hair less, so that 1/0.1 is 10.)"""
    try:
        return math.ceil(1 / _read_sketch_eps(sketch_eps) - 1e-6)
    except ValueError as refused:
        raise ValueError(f"sketch_eps must be {refused}, got {sketch_eps!r}. Use max_bin=256 for most data.") from None


def _unknown_name(name: str) -> str:
    if name in ELSEWHERE:
        return f"{name!r} is not a parameter of training. {ELSEWHERE[name]}"
    close = get_close_matches(name, [*FIELDS, *ALIASES, "sketch_eps", *ELSEWHERE], n=1)
    hint = [f"Did you mean {close[0]!r}?", *([ELSEWHERE[close[0]]] if close[0] in ELSEWHERE else [])] if close else []
    return " ".join([f"unknown parameter {name!r}.", *hint])
