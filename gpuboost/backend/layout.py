"""Which features the histograms of a round hold, and where: all of a table's, or those that its trees draw."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from gpuboost.backend.base import GrowthSettings
from gpuboost.backend.fixed_point import round_key
from gpuboost.kernels.features import TREE_DRAW, count_drawn, draw_features_cpu

__all__ = ["HistogramLayout", "draw_layout", "most_bins"]


@dataclass(frozen=True, eq=False)
class HistogramLayout:
    """features : int32 (k,), ascending. offsets : int32 (k + 1,). Where the bins of each begin in a histogram."""

    features: np.ndarray
    offsets: np.ndarray

    def renumber_cells(self, cuts: Any) -> np.ndarray:
        """int32 (total_bins + n_features,): the number of each cell of a sparse table (kernels/sparse.py) among the cells of
        these features alone, −1 for other features."""
        new = np.full(cuts.total_bins + cuts.n_features, -1, np.int32)
        for begin, first, n_bins in zip(self.offsets[:-1], cuts.offsets[self.features], cuts.n_bins[self.features]):
            new[first : first + n_bins] = np.arange(begin, begin + n_bins)
        new[cuts.total_bins + self.features] = np.arange(self.offsets[-1], self.offsets[-1] + len(self.features))
        return new


def draw_layout(settings: GrowthSettings, cuts: Any, round_number: int) -> HistogramLayout:
    """The features of the trees of a round, on the host: the same on every worker and device."""
    features = np.arange(cuts.n_features, dtype=np.int32)
    if settings.colsample_bytree == 1:
        return HistogramLayout(features, cuts.offsets)
    drawn = np.empty(cuts.n_features, np.uint8)
    key = round_key(settings.seed, round_number, TREE_DRAW)
    weights = np.array(settings.feature_weights, np.float32)
    draw_features_cpu(features, weights, key, count_drawn(settings.colsample_bytree, cuts.n_features), drawn)
    features = np.flatnonzero(drawn).astype(np.int32)
    return HistogramLayout(features, np.concatenate([[0], np.cumsum(cuts.n_bins[features])]).astype(np.int32))


def most_bins(settings: GrowthSettings, cuts: Any) -> int:
    """Bins of a histogram, with room for whatever features a round draws."""
    n_drawn = count_drawn(settings.colsample_bytree, cuts.n_features)
    return int(np.sort(cuts.n_bins)[-n_drawn:].sum())
