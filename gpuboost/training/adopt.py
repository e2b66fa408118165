"""The parameters of a Booster, from those that were given and the model that it goes on from."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from gpuboost.model.model import Model
from gpuboost.objectives import find_objective, objective_of, recorded_objective
from gpuboost.params import FIELDS, Params, parse_params
from gpuboost.targets import check_start, given_base_score

__all__ = ["adopt_params", "ends_training", "rebase"]

# What may change from round to round of one training; what else changes starts a new one.
BETWEEN_ROUNDS = {"learning_rate", "eval_metric", "verbosity", "disable_default_eval_metric"}
FOR_ALL_ROUNDS = FIELDS.keys() - BETWEEN_ROUNDS


def adopt_params(given: Mapping[str, Any], model: Model | None) -> Params:
    """The parameters given, by their own names, over what the model records about its objective, rounds and kind of trees. As in
    XGBoost, several classes without an objective mean multi:softmax.

    Raises ValueError where they name another objective, number of classes or of trees a round, or kind of trees than the model's:
    the file says one for all.
    """
    recorded: dict[str, Any] = {}
    if model is not None:
        if model.linear is not None:
            recorded["booster"] = "gblinear"
        elif given.get("booster") == "gblinear":
            raise ValueError("booster='gblinear', but the model was trained with trees. Leave booster out.")
        else:
            recorded["num_parallel_tree"] = model.num_parallel_tree
        if model.multi_strategy is not None:
            recorded["multi_strategy"] = model.multi_strategy
    params = parse_params({**({} if model is None else recorded_objective(model)), **recorded, **given})
    if model is None and "objective" not in given and params.num_class > 1:
        params = parse_params({**given, "objective": "multi:softmax"})  # on which defaults of others depend
    if model is not None:
        fixed: dict[str, Any] = {"objective": model.objective, "num_class": model.n_classes, **recorded}
        for name, value in fixed.items():
            is_other = name in given and not (_is_objective(given[name], value) if name == "objective" else given[name] == value)
            if is_other and (name, value, given[name]) != ("num_class", 0, 1):
                raise ValueError(f"{name}={given[name]!r}, but the model was trained with {value!r}. Leave {name} out.")
    return params


def rebase(model: Model, params: Params) -> Model:
    """The model with the base_score that the parameters give: as in XGBoost, its rounds add to that from now on. The same model
    where they give none, or its own.

    Raises ValueError where its outputs are not as many, or margins cannot start there.
    """
    if params.base_score is None:
        return model
    n_outputs, given = model.n_outputs, given_base_score(params.base_score, model.n_outputs)
    if model.linear is not None:  # one for all outputs: the rest is in the biases
        given = given[:1]
    if given * (n_outputs // len(given)) == model.base_score * (n_outputs // len(model.base_score)):
        return model
    if (objective := objective_of(model)) is not None:
        check_start(given, objective)
    return replace(model.rounds(0, model.n_rounds), base_score=given * (n_outputs // len(given)))


def _is_objective(given: Any, recorded: str) -> bool:
    """Whether a name, or a user's formula, stands for the objective that a model records."""
    name = getattr(given, "registered_name", given)
    canonical = getattr(find_objective(str(name)), "canonical", str)
    return canonical(name) == recorded


def ends_training(old: Params, new: Params) -> bool:
    """Whether a training under way with the old parameters cannot go on with the new ones."""
    return any(getattr(old, name) != getattr(new, name) for name in FOR_ALL_ROUNDS)
