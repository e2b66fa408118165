"""The parameters that somebody gave, told from those left at their defaults: what a Booster copies, pickles and writes."""

from collections.abc import Iterable, Mapping
from dataclasses import fields
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
    values = {f.name: getattr(params, f.name) for f in fields(Params)}
    usual = Params(objective=params.objective, booster=params.booster)  # on which defaults depend
    return {f.name: values[f.name] for f in fields(Params) if f.name in given or values[f.name] != getattr(usual, f.name)}
