"""What the user says about features, by name or number, as the numbers of a table's columns."""

from collections.abc import Sequence
from difflib import get_close_matches

__all__ = ["feature_number", "resolve_feature_weights", "resolve_interactions"]


def resolve_interactions(
    sets: Sequence[Sequence[int | str]], names: Sequence[str] | None, n_features: int
) -> tuple[tuple[int, ...], ...]:
    """The sets of interaction_constraints by number, ascending. Raises ValueError for a column that the table does not have."""
    number = {f: feature_number("interaction_constraints", f, names, n_features) for group in sets for f in group}
    return tuple(tuple(sorted({number[f] for f in group})) for group in sets)


def feature_number(parameter: str, feature: int | str, names: Sequence[str] | None, n_features: int) -> int:
    """The number of a column. Raises ValueError, naming the parameter, where the table does not have it."""
    if isinstance(feature, int):
        if 0 <= feature < n_features:
            return feature
        raise ValueError(f"{parameter} names column {feature}, but the table's are 0 to {n_features - 1}. Use one of those.")
    if names is None:
        raise ValueError(
            f"{parameter} names column {feature!r}, but the table's columns have no names. Use their numbers, or pass "
            "feature_names to DMatrix()."
        )
    if feature in names:
        return names.index(feature)
    close = get_close_matches(feature, names, n=1)
    raise ValueError(
        f"{parameter} names column {feature!r}, which the table does not have. "
        + (f"Did you mean {close[0]!r}?" if close else "Use one of its feature_names, or numbers.")
    )


def resolve_feature_weights(weights: Sequence[float], n_features: int) -> tuple[float, ...]:
    """One weight per feature, or none where all are equal. Raises ValueError for another number of them, and where all are 0."""
    if not weights:
        return ()
    if len(weights) != n_features:
        raise ValueError(f"feature_weights must hold one number per column ({n_features}), got {len(weights)}. Add or drop some.")
    if not any(weights):
        raise ValueError("feature_weights are all 0: no column could be drawn. Give some a positive weight, or leave them out.")
    return () if len(set(weights)) == 1 else tuple(weights)
