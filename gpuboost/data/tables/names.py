"""Names and types of a table's columns: checked, matched to a model's, and as messages show them."""

import re
from collections import Counter
from collections.abc import Iterable
from typing import Any

__all__ = ["PANDAS_INDEX", "align_columns", "check_names", "check_types", "listing", "quoted"]

PANDAS_INDEX = re.compile(r"__index_level_\d+__")  # what pandas calls an index without a name, in a file
FEATURE_TYPES = ("float", "int", "i", "q", "c")  # XGBoost's letters: i is boolean, q any number, c a category


def check_names(given: Iterable[Any] | None, n_features: int) -> list[str] | None:
    """The names as text; ValueError where there is not one for each column, or two are equal."""
    if given is None:
        return None
    names = _one_a_column("feature_names", "name", given, n_features)
    if repeated := [name for name, count in Counter(names).items() if count > 1]:
        raise ValueError(f"Column names must be unique, but these repeat: {listing(repeated)}. Rename them.")
    return names


def check_types(given: Iterable[str] | None, n_features: int) -> list[str] | None:
    """The types as a list; ValueError where there is not one letter of FEATURE_TYPES for each column."""
    if given is None:
        return None
    types = _one_a_column("feature_types", "letter", given, n_features)
    if wrong := [letter for letter in types if letter not in FEATURE_TYPES]:
        raise ValueError(f"feature_types must be among {', '.join(FEATURE_TYPES)}, got {wrong[0]!r}. Use 'c' for categories.")
    return types


def _one_a_column(argument: str, what: str, given: Iterable[Any], n_features: int) -> list[str]:
    """The items as text; those of a pandas MultiIndex, nothing but tuples, with spaces between, as in XGBoost."""
    has_order = isinstance(given, Iterable) and not isinstance(given, set | frozenset)
    items = list(given) if has_order else None
    if items is not None:
        is_multi = all(isinstance(item, tuple) for item in items)
        items = [" ".join(map(str, item)) if is_multi else str(item) for item in items]
    if items is None or len(items) != n_features:
        got = repr(given) if items is None else len(items)
        raise ValueError(f"{argument} must hold one {what} a column ({n_features}), got {got}.")
    return items


def align_columns(names: list[str], model_names: list[str]) -> list[int]:
    """Where each of the model's columns stands in ``names``; ValueError names the columns that are missing or unknown."""
    position = {name: j for j, name in enumerate(names)}
    expected = set(model_names)
    absent = [name for name in model_names if name not in position]
    unknown = [name for name in names if name not in expected]
    if absent or unknown:
        faults = [f"lacks {listing(absent)}"] * bool(absent) + [f"has the unknown {listing(unknown)}"] * bool(unknown)
        raise ValueError(f"data {' and '.join(faults)}. Pass the columns the model was trained on, in any order.")
    return [position[name] for name in model_names]


def quoted(name: str) -> str:
    """A column, as an error or a warning names it."""
    return f'Column "{name}"'


def listing(items: list[Any]) -> str:
    """The first five items, and how many more there are."""
    more = f" and {len(items) - 5} more" if len(items) > 5 else ""
    return ", ".join(f'"{item}"' for item in items[:5]) + more
