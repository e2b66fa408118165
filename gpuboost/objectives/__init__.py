"""Losses by their XGBoost names. A new one joins by adding a file here that registers it."""

from difflib import get_close_matches
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

from gpuboost.errors import not_built
from gpuboost.objectives.base import Objective

__all__ = ["Objective", "get_objective", "objective_names", "register"]

_registry: dict[str, type[Objective]] = {}

# XGBoost's other objectives: known names, so that the error says "not built yet" and not "unknown".
_PLANNED = """reg:squaredlogerror reg:logistic reg:pseudohubererror reg:absoluteerror reg:quantileerror reg:expectileerror
reg:gamma reg:tweedie binary:logitraw binary:hinge count:poisson survival:cox survival:aft rank:ndcg rank:map
rank:pairwise""".split()


def register(objective: type[Objective]) -> type[Objective]:
    """Class decorator: make an objective known under its name."""
    _registry[objective.name] = objective
    return objective


def objective_names() -> list[str]:
    """The names that train, sorted."""
    _load()
    return sorted(_registry)


def get_objective(name: str, params: Any) -> Objective:
    """The objective of this name, set up with the training's parameters (params.Params)."""
    _load()
    if name in _registry:
        if params.scale_pos_weight != 1 and name != "binary:logistic":
            raise ValueError(f"scale_pos_weight belongs to binary:logistic, not to {name}. Weigh the rows instead.")
        objective = _registry[name](params)
        if params.num_class > 1 and not objective.n_classes:
            raise ValueError(
                f"num_class={params.num_class}, but {name} has no classes. Use objective='multi:softprob', with an obj of your "
                "own as well, or leave num_class out."
            )
        return objective
    if name in _PLANNED:
        raise not_built(f"objective={name!r}", f"Built: {', '.join(objective_names())}.")
    close = get_close_matches(name, objective_names(), n=1)
    hint = f"Did you mean {close[0]!r}?" if close else "Pass a function as obj to train()."
    raise ValueError(f"objective must be one of {', '.join(objective_names())}; got {name!r}. {hint}")


def _load() -> None:
    for module in iter_modules(__path__):
        import_module(f"{__name__}.{module.name}")
