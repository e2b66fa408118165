"""What Booster.save_config shows: the settings, as strings, where XGBoost's own save_config has them; and what was changed there.

Scripts look there for base_score or the objective, and change tree parameters. Absent is what gpuboost lacks: a random state,
parameters of updaters.
"""

import json
from collections.abc import Iterator
from dataclasses import fields
from typing import Any

from gpuboost.model.model import Model
from gpuboost.model_io.schema import SCHEMA_VERSION, learner_model_params
from gpuboost.objectives import find_objective, objective_of
from gpuboost.params import ALIASES, Params, check_param, parse_params
from gpuboost.params.fields import FIELDS, TreeParams
from gpuboost.params.given import given_params

__all__ = ["config_document", "config_params"]

GENERAL = ("device", "nthread", "seed", "validate_parameters")
LEARNER = ("booster", "disable_default_eval_metric", "multi_strategy", "objective")
DROPOUT = ("sample_type", "normalize_type", "rate_drop", "one_drop", "skip_drop")
LINEAR = ("learning_rate", "reg_lambda", "reg_alpha", "feature_selector", "top_k")
FOREST = ("process_type", "tree_method", "updater")
DECIDING = ("objective", "booster")  # on which defaults of others depend; a model may say them instead of "params"
UNSET = {"nthread": "0"}  # which a program may read as a number
# Places of "learner" whose last word is not the parameter's name.
PLACES = {("gradient_booster", "name"): "booster", ("objective", "name"): "objective", ("metrics",): "eval_metric"}
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
    objective, metrics, of_model = objective_of(model), params.eval_metric, learner_model_params(model)
    of_model["base_score"] = f"[{of_model['base_score'].strip('[]')}]"  # of one score, too, unlike the file's
    if not metrics and objective is not None and not params.disable_default_eval_metric:
        metrics = (objective.default_metric,)
    return {
        "learner": {
            "generic_param": _texts(params, GENERAL),
            "gradient_booster": {"name": params.booster, **booster},
            "learner_model_param": of_model,
            "learner_train_param": _texts(params, LEARNER),
            "metrics": [{"name": name} for name in metrics],
            "objective": {"name": model.objective, **model.objective_params},
        },
        "version": SCHEMA_VERSION,
    }


def config_params(document: dict[str, Any]) -> dict[str, Any]:
    """The parameters that a document of save_config says, by their own names: its "params", and what "learner" shows otherwise
    since somebody has changed it there. "learner_model_param" is the model's, as in XGBoost: nothing is read there.

    Raises ValueError where a parameter is in "params" and "learner" shows another value.
    """
    given = {name: value for name, value in given_params(document["params"]).items() if value is not None}
    learner, shown = list(_settings(document.get("learner", {}))), []
    for has_its_turn in (DECIDING.__contains__, lambda name: name not in DECIDING):
        shown.append(dict(_settings(config_document(parse_params(given), None)["learner"])))
        for (place, name), text in learner:
            known = [settings[place, name] for settings in shown if (place, name) in settings]
            if has_its_turn(name) and known and text not in known:
                value = check_param(name, text or None)
                if given.setdefault(name, value) != value:
                    raise ValueError(
                        f"config says {name}={given[name]!r}, but {place[-1]}={text!r} in 'learner'. Change it in both places, "
                        "or take it out of 'params'."
                    )
    return given


def _settings(section: dict[str, Any], place: tuple[str, ...] = ()) -> Iterator[tuple[tuple[tuple[str, ...], str], Any]]:
    """((place, name), text) of every parameter in a section of "learner"; of eval_metric the names."""
    for key, value in section.items():
        here = (*place, key)
        name = PLACES.get(here, ALIASES.get(key, key))
        if isinstance(value, dict) and key != "learner_model_param":
            yield from _settings(value, here)
        elif name in FIELDS:
            yield (here, name), tuple(metric["name"] for metric in value) if name == "eval_metric" else _text(value)


def _untrained(params: Params) -> Model:
    start, sections = (0.5,) if params.base_score is None else params.base_score, dict[str, dict[str, str]]()
    for p in find_objective(params.objective).takes:
        sections.setdefault(p.section, {})[p.name] = p.text(getattr(params, p.name))
    return Model(0, params.objective, sections, n_classes=params.num_class, n_targets=params.num_target, base_score=start)


def _texts(params: Params, names: tuple[str, ...]) -> dict[str, str]:
    """By their names, and by XGBoost's other ones."""
    texts = {name: _text(getattr(params, name)) or UNSET.get(name, "") for name in names}
    return texts | {alias: texts[name] for alias, name in ALIASES.items() if name in texts}


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))
