"""Losses by their XGBoost names. A new one is a class in a file here, or in a user's, that registers itself (base.py).

Nobody else lists names: what is to be known of an objective, the rest of the package asks its class (find_objective), or the
objective that is set up for a training (get_objective) or for a model (objective_of).
"""

from functools import lru_cache
from typing import Any

from gpuboost.model.model import Model
from gpuboost.objectives.base import Objective, Parameter
from gpuboost.objectives.links import IDENTITY, LOG, LOGIT, Link
from gpuboost.objectives.unbuilt import UNBUILT, UnbuiltObjective
from gpuboost.params import Params, parse_params
from gpuboost.registry import Registry

__all__ = [
    "IDENTITY", "LOG", "LOGIT", "Link", "Objective", "Parameter", "find_objective", "get_objective", "objective_names",
    "objective_of", "recorded_objective", "register", "require_known",
]  # fmt: skip

_DEFAULTS = Params()
_registry: Registry[Objective] = Registry(
    "objective", __name__, planned=UNBUILT, otherwise="Pass a function as obj to train()."
)


def register(objective: type[Objective]) -> type[Objective]:
    """Class decorator: make an objective known under its name."""
    _registry.register(objective.name, objective)
    return objective


def objective_names() -> list[str]:
    """The names that train, sorted."""
    return _registry.names()


def find_objective(name: str) -> type[Objective] | UnbuiltObjective:
    """The class of an objective, to ask it; for a name without one, what is known of it, which may be nothing."""
    return _registry.find(_family(name)) or UNBUILT.get(name) or UnbuiltObjective(predicts=False)


def require_known(name: str) -> None:
    """NotImplementedError for an objective of which nothing is known here: predictions need its formula."""
    if not find_objective(name).predicts:
        raise NotImplementedError(
            f"objective {name!r} of this model is not known here. Import the module that defines it by "
            "@gpuboost.objective, or use output_margin=True for raw margins."
        )


def get_objective(name: str, params: Any) -> Objective:
    """The objective of this name, set up with the training's parameters (params.Params).

    Raises ValueError or NotImplementedError for a name without a class, ValueError for parameters that do not belong to it.
    """
    cls = _registry.get(_family(name), given=name)
    if "@" in name and not hasattr(cls, "canonical"):
        raise ValueError(f"objective {cls.name!r} takes no argument, got {name!r}. Give its parameters by their names.")
    _refuse_parameters_of_others(cls, params)
    objective = cls(params)
    if params.num_class > 1 and not objective.n_classes:
        raise ValueError(
            f"num_class={params.num_class}, but {name} has no classes. Use objective='multi:softprob', with an obj of your "
            "own as well, or leave num_class out."
        )
    return objective


def _family(name: str) -> str:
    """The name under which it is registered: what follows an @ are parameters of a user's formula (formulas/objective.py)."""
    return name.partition("@")[0]


def _refuse_parameters_of_others(cls: type[Objective], params: Any) -> None:
    for other in map(_registry.get, objective_names()):
        for parameter in other.takes:
            name = parameter.name
            is_given = getattr(params, name) != getattr(_DEFAULTS, name)
            if is_given and parameter.instead and not cls.takes_parameter(name):
                owners = ", ".join(known for known in objective_names() if _registry.get(known).takes_parameter(name))
                raise ValueError(f"{name} belongs to {owners}, not to {cls.name}. {parameter.instead}")


def recorded_objective(model: Model) -> dict[str, Any]:
    """The parameters of training, objective among them, that a model file records of its objective."""
    classes = {"num_class": model.n_classes} if model.n_classes else {}
    return {"objective": model.objective, **find_objective(model.objective).recorded_params(model.objective_params), **classes}


def objective_of(model: Model) -> Objective | None:
    """The objective that a model file records; None where it has no class. Prediction depends on nothing else."""
    cls = _registry.find(_family(model.objective))
    if cls is None:
        return None
    recorded = recorded_objective(model)
    build = _build_once if cls.__module__.startswith(__name__) else _build  # a user's class may change itself
    return build(cls, tuple((name, recorded[name]) for name in recorded if name == "objective" or cls.takes_parameter(name)))


def _build(cls: type[Objective], given: tuple[tuple[str, str | int], ...]) -> Objective:
    return cls(parse_params(given))


# To read parameters anew takes 0.15 ms: of the first prediction of 100,000 rows by 20 trees of depth 10 one part in sixty.
_build_once = lru_cache(maxsize=64)(_build)
