"""The parameters that somebody gave, told from those left at their defaults: what a Booster copies, pickles and writes."""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from gpuboost.params.fields import ALIASES, FIELDS, Params
from gpuboost.params.parsing import parse_params

__all__ = ["given_params", "recorded_params"]


def given_params(params: Mapping[str, Any] | Iterable[tuple[str, Any]] | None, validate: bool = True) -> dict[str, Any]:
    """The parameters given, checked, by their own names; None where None was given.

    validate : False if unknown names only warn, unless the parameters themselves say.
    """
    pairs: list[tuple[str, Any]] = list(params.items() if isinstance(params, Mapping) else params or ())
    is_said = validate or "validate_parameters" in [name for name, *_ in pairs]
    checked = parse_params(pairs if is_said else [("validate_parameters", False), *pairs])
    spelt = {**ALIASES, "sketch_eps": "max_bin"}
    given: dict[str, Any] = {spelt.get(name, name): value for name, value in pairs}
    unset = [name for name, value in given.items() if value is None and name in FIELDS]
    return recorded_params(checked, given) | dict.fromkeys(unset)


def recorded_params(params: Params, given: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the parameters that were given or are not the default, by their own names."""
    usual = _usual_values(params.objective, params.booster)
    return {name: value for name in FIELDS if (value := getattr(params, name)) != usual[name] or name in given}


@lru_cache
def _usual_values(objective: str, booster: str) -> dict[str, Any]:
    """The defaults, of which some depend on these."""
    usual = Params(objective=objective, booster=booster)
    return {name: getattr(usual, name) for name in FIELDS}
