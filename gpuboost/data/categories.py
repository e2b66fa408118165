"""The categories of a table's or a model's columns, as get_categories returns them and feature_types takes them."""

from collections.abc import Mapping
from typing import Any

from gpuboost.data.feature_info import FeatureInfo

__all__ = ["CategoryContainer"]


class CategoryContainer:
    """What the codes of each column stand for. XGBoost's class is called Categories.

    names : of all columns, their numbers as text where they have none. values : of those that hold categories, by name, in the
    order of their codes. ``DMatrix(X, feature_types=container)`` numbers X's categories as it says.
    """

    def __init__(self, n_features: int, names: list[str] | None, values: Mapping[str, list[Any]]) -> None:
        self.names = list(map(str, range(n_features))) if names is None else names
        self.values = {name: list(own) for name, own in values.items()}

    def __repr__(self) -> str:
        return f"<categories of {', '.join(self.values) or 'no column'}>"

    def empty(self) -> bool:
        """Whether no column holds categories."""
        return not self.values

    def to_arrow(self) -> list[tuple[str, Any]]:
        """(name, pyarrow.Array of its categories) of every column; None in place of the array for a column of numbers."""
        try:
            import pyarrow
        except ImportError:
            raise ImportError("to_arrow() needs pyarrow. Install it: pip install pyarrow") from None

        return [(name, pyarrow.array(self.values[name]) if name in self.values else None) for name in self.names]

    def numbering(self, features: FeatureInfo) -> FeatureInfo:
        """The same columns with these categories. Raises ValueError for a column of categories that has none here."""
        if unknown := [name for name in features.categories if name not in self.values]:
            raise ValueError(f"column {unknown[0]!r} holds categories, but has none in feature_types. Take those of its table.")
        return features.with_categories({name: self.values[name] for name in features.categories})
