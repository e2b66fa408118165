"""Losses by their XGBoost names. A new one is a class in a file here, or in a user's, that registers itself (base.py)."""

from typing import Any

from gpuboost.objectives.base import Objective
from gpuboost.registry import Registry

__all__ = ["Objective", "get_objective", "objective_names", "register"]

# XGBoost's other objectives: known names, so that the error says "not built yet" and not "unknown".
_PLANNED = """reg:squaredlogerror reg:logistic reg:pseudohubererror reg:absoluteerror reg:quantileerror reg:expectileerror
reg:gamma reg:tweedie binary:logitraw binary:hinge count:poisson survival:cox survival:aft rank:ndcg rank:map
rank:pairwise""".split()

_registry: Registry[Objective] = Registry(
    "objective", __name__, planned=_PLANNED, otherwise="Pass a function as obj to train()."
)


def register(objective: type[Objective]) -> type[Objective]:
    """Class decorator: make an objective known under its name."""
    _registry.register(objective.name, objective)
    return objective


def objective_names() -> list[str]:
    """The names that train, sorted."""
    return _registry.names()


def get_objective(name: str, params: Any) -> Objective:
    """The objective of this name, set up with the training's parameters (params.Params)."""
    cls = _registry.get(name)
    if params.scale_pos_weight != 1 and name != "binary:logistic":
        raise ValueError(f"scale_pos_weight belongs to binary:logistic, not to {name}. Weigh the rows instead.")
    objective = cls(params)
    if params.num_class > 1 and not objective.n_classes:
        raise ValueError(
            f"num_class={params.num_class}, but {name} has no classes. Use objective='multi:softprob', with an obj of your "
            "own as well, or leave num_class out."
        )
    return objective
