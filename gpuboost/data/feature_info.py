"""What is known of a table's columns besides their values: how many, names, types, categories, what absent cells mean."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any

import numpy as np

from gpuboost.communicator import Communicator
from gpuboost.data.tables.names import check_names, check_types
from gpuboost.data.tables.stack import join_categories

__all__ = ["FeatureInfo", "shared_categories"]

Categories = dict[str, list[Any]]  # column → its values, in the order of their codes


@dataclass(frozen=True, eq=False)
class FeatureInfo:
    """A new one is made where something changes.

    names, types : one for each column, or None. Types are XGBoost's letters.
    categories : of the columns that hold categories, by name.
    is_sparse : whether the table does not store all its cells. sparse_absent : what the others are: "missing", "zero", or None:
        missing in training, and in prediction what the model remembers.
    version : counts the changes.
    """

    n_features: int
    names: list[str] | None
    types: list[str] | None
    categories: Categories
    is_sparse: bool
    sparse_absent: str | None
    version: int = 0

    def renamed(self, names: Iterable[Any] | None) -> "FeatureInfo":
        """With other names, which the categories follow. Raises ValueError where they do not fit."""
        checked = check_names(names, self.n_features)
        if checked is None and self.categories:
            raise ValueError("feature_names must name the columns of a table with categories, got None.")
        new_name = dict(zip(self.names or (), checked or ()))
        categories = {new_name[name]: values for name, values in self.categories.items()}
        return replace(self, names=checked, categories=categories, version=self.version + 1)

    def retyped(self, types: Iterable[str] | None) -> "FeatureInfo":
        """With other types. Raises ValueError where they do not fit."""
        checked = check_types(types, self.n_features)
        for name, letter in zip(self.names or (), checked or ()):
            if name in self.categories and letter != "c":
                raise ValueError(f"feature_types of column {name!r} must be 'c', as it holds categories, got {letter!r}.")
        return replace(self, types=checked, version=self.version + 1)

    def with_categories(self, categories: Categories) -> "FeatureInfo":
        """With other dictionaries for the same columns."""
        return replace(self, categories=categories, version=self.version + 1)

    def aligned_with(self, other: "FeatureInfo") -> "FeatureInfo":
        """The other's columns, as a table with these columns gives them when read by name and categories by value."""
        absent = other.sparse_absent or "missing" if self.is_sparse else self.sparse_absent or other.sparse_absent
        return replace(other, is_sparse=self.is_sparse, sparse_absent=absent, version=self.version + 1)

    def is_as(self, names: list[str] | None, categories: Categories, n_features: int) -> bool:
        """Whether a model has these columns, in this order and with equal codes of categories."""
        return self.names == names and self.categories == categories and self.n_features == n_features

    def require_same(self, feature_weights: np.ndarray, comm: Communicator) -> None:
        """ValueError where workers' shards differ in column names, types, categories, or in what their absent cells mean: equal
        codes would mean different values. Or in feature_weights: they would draw different columns."""
        if comm.size == 1:
            return
        columns = repr((self.n_features, self.names, self.types, self.categories))
        sparseness = repr((self.is_sparse, self.sparse_absent or "missing"))
        digests = comm.allgather(np.array([_digest(text) for text in (columns, sparseness, repr(feature_weights.tolist()))]))
        if len(np.unique(digests[:, 0])) > 1:
            raise ValueError(
                "the workers' tables differ in column names, order or types, or in their categories. Give all shards the same "
                "columns, and build a QuantileDMatrix where the workers know each other: it keeps no values to be matched."
            )
        if len(np.unique(digests[:, 1])) > 1:
            raise ValueError(
                "the workers' tables differ in sparse_absent, or some are sparse and others dense. Give all shards the same kind."
            )
        if len(np.unique(digests[:, 2])) > 1:
            raise ValueError("the workers' tables differ in feature_weights. Give all shards the same ones.")


def shared_categories(own: Categories, comm: Communicator) -> Categories:
    """The dictionaries that all workers use: their own where they are equal, else of every column the values that any of them
    has, numbers before text, ascending. Their own, too, where not the same columns hold categories."""
    if not comm.any(bool(own)):
        return own
    each: list[Categories] = comm.allgather_json(own)
    if all(other == own for other in each) or any(other.keys() != own.keys() for other in each):
        return own
    return join_categories(each)


def _digest(text: str) -> int:
    return int.from_bytes(sha256(text.encode()).digest()[:7])
