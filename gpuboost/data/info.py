"""What is known of a table besides its values: labels, weights, starting margins, queries; and the weights of columns."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gpuboost.data.given import as_bound, as_columns, as_feature_weights, as_weights, group_ptr, is_empty, sizes_of_queries

__all__ = ["FIELDS", "FLOAT_INFO", "UINT_INFO", "MatrixInfo"]

BOUNDS = ("label_lower_bound", "label_upper_bound")
UINT_INFO = ("group", "qid")
FLOAT_INFO = ("label", *BOUNDS, "weight", "base_margin", "feature_weights")
FIELDS = (*UINT_INFO, *FLOAT_INFO)  # in the order in which they are checked


_NOT_GIVEN = np.zeros((0,), np.float32)
_NO_QUERIES = np.zeros((0,), np.uint32)


def _not_given() -> Any:
    """A field whose default is one array for all: there is nothing in it to change."""
    return field(default_factory=lambda: _NOT_GIVEN)


@dataclass(frozen=True, eq=False)
class MatrixInfo:
    """Checked and kept as arrays that nobody changes; what is new makes a new MatrixInfo. As in XGBoost, an empty array takes
    back what was given.

    label : float32 (n_targets, n_rows). label_lower_bound, label_upper_bound : float32 (n_rows,), may be infinite.
    weight : float32 (n_rows,). base_margin : float32 (n_outputs, n_rows).
    group_ptr : uint32 (n_groups + 1,), the first row of each query and n_rows. feature_weights : float32 (n_features,).
    All are of shape (0,) where they are not given.
    missing_labels : "error", or "mask": then a label may be NaN, which is to be left out.
    version : counts the changes. margin_version : those of base_margin.
    """

    n_rows: int
    label: np.ndarray = _not_given()
    label_lower_bound: np.ndarray = _not_given()
    label_upper_bound: np.ndarray = _not_given()
    weight: np.ndarray = _not_given()
    base_margin: np.ndarray = _not_given()
    group_ptr: np.ndarray = field(default_factory=lambda: _NO_QUERIES)
    feature_weights: np.ndarray = _not_given()
    missing_labels: str = "error"
    version: int = 0
    margin_version: int = 0

    def updated(self, n_features: int, **given: Any) -> "MatrixInfo":
        """With some of FIELDS, each anything array-like. Raises ValueError naming what is of the wrong length or kind."""
        if not given:
            return self
        checked: dict[str, np.ndarray] = {}
        for name in FIELDS:
            if name in given:
                checked |= self._checked(name, given[name], n_features, checked.get("group_ptr", self.group_ptr))
        versions = {"version": self.version + 1, "margin_version": self.margin_version + ("base_margin" in given)}
        return MatrixInfo(**{**vars(self), **checked, **versions})

    def _checked(self, name: str, values: Any, n_features: int, first_rows: np.ndarray) -> dict[str, np.ndarray]:
        """The field of this class that holds it: its values there. first_rows : group_ptr of the queries, which go first."""
        if is_empty(values) and (n_features if name == "feature_weights" else self.n_rows):
            return {"group_ptr": _NO_QUERIES} if name in UINT_INFO else {name: _NOT_GIVEN}
        if name == "weight":
            return {name: as_weights(values, self.n_rows, first_rows)}
        if name in BOUNDS:
            return {name: as_bound(name, values, self.n_rows)}
        if name == "feature_weights":
            return {name: as_feature_weights(values, n_features)}
        if name in ("group", "qid"):
            sizes = values if name == "group" else sizes_of_queries(values, self.n_rows)
            return {"group_ptr": group_ptr(sizes, self.n_rows)}
        takes_nan = name == "label" and self.missing_labels == "mask"
        return {name: np.ascontiguousarray(as_columns(name, values, self.n_rows, takes_nan).T)}

    @property
    def is_unlabelled(self) -> np.ndarray:
        """bool (n_rows,), or (0,) where all rows have a label: those without any."""
        none = np.zeros(0, bool)
        if self.missing_labels == "error" or self.label.ndim != 2:
            return none
        unlabelled = np.isnan(self.label).all(axis=0)
        return unlabelled if unlabelled.any() else none

    @property
    def row_weight(self) -> np.ndarray:
        """weight, and 0 for rows without a label."""
        unlabelled = self.is_unlabelled
        if not len(unlabelled):
            return self.weight
        weight = self.weight if len(self.weight) else np.ones(self.n_rows, np.float32)
        return np.where(unlabelled, np.float32(0), weight)

    def of_weight(self, labels: np.ndarray) -> np.ndarray:
        """float32 (k, n_rows) labels as training and metrics compute with them: rows of weight 0, which may hold anything, have
        those of a row that counts."""
        counts = self.row_weight > 0
        if counts.all():  # also where none are weighed
            return labels
        known = labels[:, np.flatnonzero(counts)[:1]] if counts.any() else np.float32(1)  # which every loss takes
        return np.where(counts, labels, known)

    def taken(self, rows: np.ndarray) -> "MatrixInfo":
        """Of the rows with the given numbers, intp (n,), in that order. Queries stay where they are whole, else they are lost."""
        of_rows = {name: getattr(self, name) for name in ("label", *BOUNDS, "weight", "base_margin")}
        taken: dict[str, Any] = {
            name: np.ascontiguousarray(values[..., rows]) if values.size or values.ndim == 2 else values
            for name, values in of_rows.items()
        }
        kept = _whole_queries(self.group_ptr, rows)
        return MatrixInfo(
            len(rows), **taken, group_ptr=kept, feature_weights=self.feature_weights, missing_labels=self.missing_labels
        )


def _whole_queries(group_ptr: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """group_ptr of the rows with these numbers, where they are whole queries in the order of their rows; else empty."""
    if not len(group_ptr):
        return _NO_QUERIES
    if not len(rows):
        return np.zeros(1, np.uint32)
    starts = np.flatnonzero(np.isin(rows, group_ptr[:-1]))  # that begin a query
    query = np.searchsorted(group_ptr, rows[starts], "right") - 1  # the last of those that begin there: the others are empty
    expected = [np.arange(group_ptr[q], group_ptr[q + 1]) for q in query]
    if not len(starts) or not np.array_equal(np.concatenate(expected), rows):
        return _NO_QUERIES
    return np.append(starts, len(rows)).astype(np.uint32)
