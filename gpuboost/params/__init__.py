"""The settings of training: frozen dataclasses in which each field carries its own rule, so that validation and documentation
come from one place.

Names, defaults and meanings are XGBoost 3's. A new parameter is a line of fields.py. `parse_params` is the boundary where a
user's mapping comes in: it resolves aliases, converts text to numbers and refuses unknown names. `Params` itself checks every
value, so an invalid one cannot exist.

    values (one value read) ← rules (what a value may be) ← fields (the parameters) ← parsing (a user's mapping)
"""

from gpuboost.params.fields import ALIASES, EVERY_VALUE, FIELDS, GivenSearch, Params, TreeParams, check_param, most_leaves
from gpuboost.params.parsing import describe_params, parse_params
from gpuboost.params.rules import Rule

__all__ = ["ALIASES", "EVERY_VALUE", "FIELDS", "GivenSearch", "Params", "Rule", "TreeParams", "check_param", "describe_params",
           "most_leaves", "parse_params"]
