"""The thresholds that split each feature into bins."""

from dataclasses import dataclass
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
    """

    thresholds: np.ndarray
    offsets: np.ndarray
    has_missing: np.ndarray
    max_bin: int
    extremes: np.ndarray | None = None

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

    def same_as(self, other: "Cuts") -> bool:
        """Whether codes made with either mean the same."""
        return self is other or (
            np.array_equal(self.offsets, other.offsets) and self.thresholds.tobytes() == other.thresholds.tobytes()
        )
