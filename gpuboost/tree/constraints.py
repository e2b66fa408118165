"""Constraints on trees as the parameters name them, resolved against the columns of a table."""

from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any

__all__ = ["monotone_signs"]


def monotone_signs(constraints: tuple[Any, ...], n_features: int, feature_names: Sequence[str] | None) -> tuple[int, ...]:
    """The sign of each feature, or () where all are free.

    constraints : as Params holds them: signs by column, of which the last may be left out (free), or pairs of name and sign.
    feature_names : of the columns. Where they have none, names are "f0", "f1", ..., as XGBoost has them, or numbers.
    Raises ValueError for more signs than columns, and for a name that no column has.
    """
    if not constraints:
        return ()
    if not isinstance(constraints[0], tuple):
        if len(constraints) > n_features:
            raise ValueError(
                f"monotone_constraints must have at most a sign for each of the {n_features} features, got {len(constraints)}. "
                "Leave out those of columns that the table lacks, or give them by name, {'age': 1}."
            )
        signs = [*constraints, *[0] * (n_features - len(constraints))]
    else:
        signs = [0] * n_features
        columns = _columns_by_name(n_features, feature_names)
        for name, sign in constraints:
            if str(name) not in columns:
                close = get_close_matches(str(name), columns, n=1)
                raise ValueError(
                    f"monotone_constraints must name features of the table, got {name!r}. "
                    + (f"Did you mean {close[0]!r}?" if close else f"Its {n_features} features are {_listed(columns)}.")
                )
            signs[columns[str(name)]] = sign
    return tuple(signs) if any(signs) else ()


def _columns_by_name(n_features: int, feature_names: Sequence[str] | None) -> dict[str, int]:
    if feature_names is not None:
        return {name: column for column, name in enumerate(feature_names)}
    return {f"f{column}": column for column in range(n_features)} | {str(column): column for column in range(n_features)}


def _listed(names: Sequence[str] | dict[str, int]) -> str:
    """The first few."""
    some = [repr(name) for name in names][:8]
    return ", ".join(some) + (", ..." if len(names) > len(some) else "")
