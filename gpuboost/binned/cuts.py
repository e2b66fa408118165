"""The thresholds that split each feature into bins."""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from gpuboost.params import EVERY_VALUE

__all__ = ["Cuts", "SENTINEL"]

SENTINEL = np.float32(np.finfo(np.float32).max)  # above every accepted value; finite, so that it fits in a JSON file


@dataclass(frozen=True, eq=False)
class Cuts:
    """Thresholds of all features, one after another.

    thresholds : float32 (total_bins,). Bin b of feature f holds the values with thresholds[o + b − 1] ≤ x < thresholds[o + b]
        where o = offsets[f]; each feature's last threshold is SENTINEL, so it has as many bins as thresholds.
    offsets : int32 (n_features + 1,).
    has_missing : bool (n_features,). Whether the sketched table lacked a value there.
    max_bin : the parameter that the cuts were made for.
    extremes : float32 (n_features, 2). The lowest and the highest value of each feature, zeros where it has none. None for cuts
        that come from no table.
    categorical : bool (n_features,). Where each bin but the last is one category, and its number the category's code; the last
        takes what is no category of the table. None where no feature is binned so.
    """

    thresholds: np.ndarray
    offsets: np.ndarray
    has_missing: np.ndarray
    max_bin: int
    extremes: np.ndarray | None = None
    categorical: np.ndarray | None = None

    @property
    def n_features(self) -> int:
        return len(self.offsets) - 1

    @cached_property
    def n_bins(self) -> np.ndarray:
        """int32 (n_features,): bins of each feature; also the code of a missing value."""
        return np.diff(self.offsets)

    @property
    def has_every_value(self) -> bool:
        """Whether each distinct value of the table has a bin of its own: exact search."""
        return self.max_bin == EVERY_VALUE

    @property
    def total_bins(self) -> int:
        return int(self.offsets[-1])

    def of(self, feature: int) -> np.ndarray:
        """The thresholds of one feature, SENTINEL last."""
        return self.thresholds[self.offsets[feature] : self.offsets[feature + 1]]

    @property
    def lowest_values(self) -> np.ndarray:
        """float32 (total_bins,): the smallest value that each bin may hold; of a first bin the lowest of the table, of a category
        the code."""
        assert self.extremes is not None
        values = np.roll(self.thresholds, 1)
        values[self.offsets[:-1]] = np.where(self.n_categories > 0, np.float32(0), self.extremes[:, 0])
        return values

    @property
    def n_categories(self) -> np.ndarray:
        """int32 (n_features,): categories of the features that are binned so, 0 for others."""
        return np.zeros_like(self.n_bins) if self.categorical is None else np.where(self.categorical, self.n_bins - 1, 0)

    def with_categories(self, n_categories: np.ndarray) -> "Cuts":
        """With a bin for each category of some features, and one more; the others as they are.

        n_categories : int64 (n_features,). −1 for the others. Thresholds are 1, 2, …, n: as in XGBoost, of a fraction the whole
        part counts.
        """
        each = [
            self.of(feature) if n < 0 else np.append(np.arange(1, n + 1, dtype=np.float32), SENTINEL)
            for feature, n in enumerate(n_categories.tolist())
        ]
        offsets = np.concatenate([[0], np.cumsum([len(own) for own in each])]).astype(np.int32)
        return replace(self, thresholds=np.concatenate(each), offsets=offsets, categorical=n_categories >= 0)

    def same_as(self, other: "Cuts") -> bool:
        """Whether codes made with either mean the same."""
        return self is other or (
            np.array_equal(self.offsets, other.offsets)
            and self.thresholds.tobytes() == other.thresholds.tobytes()
            and np.array_equal(self.n_categories, other.n_categories)
        )
