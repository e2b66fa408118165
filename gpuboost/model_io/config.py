"""What Booster.save_config shows: the settings, as strings, where XGBoost's own save_config has them.

Scripts look there for base_score or the objective. Absent is what gpuboost lacks: a random state, parameters of updaters.
"""

import json
from dataclasses import fields
from typing import Any

from gpuboost.model.model import Model
from gpuboost.model_io.schema import SCHEMA_VERSION, learner_model_params
from gpuboost.objectives import objective_of
from gpuboost.params import ALIASES, Params
from gpuboost.params.fields import TreeParams

__all__ = ["config_document"]

GENERAL = ("device", "nthread", "seed", "validate_parameters")
LEARNER = ("booster", "disable_default_eval_metric", "multi_strategy", "objective")
DROPOUT = ("sample_type", "normalize_type", "rate_drop", "one_drop", "skip_drop")
LINEAR = ("learning_rate", "reg_lambda", "reg_alpha", "feature_selector", "top_k")
FOREST = ("process_type", "tree_method", "updater")
TREE = (*(f.name for f in fields(TreeParams) if f.name not in (*FOREST, *LEARNER, "num_parallel_tree")), "refresh_leaf")


def config_document(params: Params, model: Model | None) -> dict[str, Any]:
    """{"learner": …, "version": …}. model : what has been trained so far, if anything."""
    if params.booster == "gblinear":
        booster: dict[str, Any] = {
            "gblinear_train_param": _texts(params, ("updater",)), "updater": {"linear_train_param": _texts(params, LINEAR)}
        }  # fmt: skip
    else:
        n_trees = 0 if model is None else len(model.trees)
        trees = {
            "gbtree_model_param": {"num_parallel_tree": str(params.num_parallel_tree), "num_trees": str(n_trees)},
            "gbtree_train_param": _texts(params, FOREST), "tree_train_param": _texts(params, TREE),
        }  # fmt: skip
        booster = {"gbtree": {"name": "gbtree", **trees}} if params.booster == "dart" else trees
        booster["dart_train_param"] = _texts(params, DROPOUT)
    model = model or _untrained(params)
    objective, metrics = objective_of(model), params.eval_metric
    if not metrics and objective is not None and not params.disable_default_eval_metric:
        metrics = (objective.default_metric,)
    return {
        "learner": {
            "generic_param": _texts(params, GENERAL),
            "gradient_booster": {"name": params.booster, **booster},
            "learner_model_param": learner_model_params(model),
            "learner_train_param": _texts(params, LEARNER),
            "metrics": [{"name": name} for name in metrics],
            "objective": {"name": model.objective, **model.objective_params},
        },
        "version": SCHEMA_VERSION,
    }


def _untrained(params: Params) -> Model:
    start = (0.5,) if params.base_score is None else params.base_score
    return Model(0, params.objective, {}, n_classes=params.num_class, n_targets=params.num_target, base_score=start)


def _texts(params: Params, names: tuple[str, ...]) -> dict[str, str]:
    """By their names, and by XGBoost's other ones."""
    texts = {name: _text(getattr(params, name)) for name in names}
    return texts | {alias: texts[name] for alias, name in ALIASES.items() if name in texts}


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))
