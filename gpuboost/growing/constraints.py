"""What the user says about features, by name or number, as the numbers of a table's columns."""

from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any

__all__ = ["resolve_feature_weights", "resolve_interactions", "resolve_monotone"]


def resolve_monotone(constraints: tuple[Any, ...], names: Sequence[str] | None, n_features: int) -> tuple[int, ...]:
    """The sign of each feature, or () where all are free.

    constraints : as Params holds them: signs by column, of which the last may be left out (free), or pairs of name and sign. A
        number among the names is that of a column where the columns have no names; a frame may call its columns by numbers.
    Raises ValueError for more signs than columns, and for a column that the table does not have.
    """
    if not constraints:
        return ()
    if isinstance(constraints[0], tuple):
        signs = [0] * n_features
        for name, sign in constraints:
            feature = name if names is None else str(name)
            signs[feature_number("monotone_constraints", feature, names, n_features)] = sign
    elif len(constraints) <= n_features:
        signs = [*constraints, *[0] * (n_features - len(constraints))]
    else:
        raise ValueError(
            f"monotone_constraints must have at most a sign for each of the {n_features} features, got {len(constraints)}. "
            "Leave out those of columns that the table lacks, or give them by name, {'age': 1}."
        )
    return tuple(signs) if any(signs) else ()


def resolve_interactions(
    sets: Sequence[Sequence[int | str]], names: Sequence[str] | None, n_features: int
) -> tuple[tuple[int, ...], ...]:
    """The sets of interaction_constraints by number, ascending. Raises ValueError for a column that the table does not have."""
    number = {f: feature_number("interaction_constraints", f, names, n_features) for group in sets for f in group}
    return tuple(tuple(sorted({number[f] for f in group})) for group in sets)


def resolve_feature_weights(weights: Sequence[float], n_features: int) -> tuple[float, ...]:
    """One weight per feature, or none where all are equal. Raises ValueError for another number of them, and where all are 0."""
    if not weights:
        return ()
    if len(weights) != n_features:
        raise ValueError(f"feature_weights must hold one number per column ({n_features}), got {len(weights)}. Add or drop some.")
    if not any(weights):
        raise ValueError("feature_weights are all 0: no column could be drawn. Give some a positive weight, or leave them out.")
    return () if len(set(weights)) == 1 else tuple(weights)


def feature_number(parameter: str, feature: int | str, names: Sequence[str] | None, n_features: int) -> int:
    """The number of a column, given as such or by name: "f0", "f1", ... where the columns have none, as XGBoost calls them.

    Raises ValueError, naming the parameter, where the table does not have it.
    """
    if isinstance(feature, int):
        if 0 <= feature < n_features:
            return feature
        raise ValueError(f"{parameter} names column {feature}, but the table's are 0 to {n_features - 1}. Use one of those.")
    known = names if names is not None else [f"f{number}" for number in range(n_features)]
    if feature in known:
        return known.index(feature)
    close = get_close_matches(feature, known, n=1)
    raise ValueError(
        f"{parameter} names column {feature!r}, which the table does not have. "
        + (f"Did you mean {close[0]!r}?" if close else f"It has {_listed(known)}.")
    )


def _listed(names: Sequence[str]) -> str:
    """The first few."""
    return ", ".join(map(repr, names[:8])) + (", ..." if len(names) > 8 else "")
