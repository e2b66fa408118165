"""What histograms hold of a tree whose split candidates were proposed from its root: the candidates alone.

The fine bins up to a candidate, from behind the one before it, are one bin: histograms of these have the sums that the search
reads of fine ones (kernels/splits.py: of bins proposed and the last), for a sixteenth of the bins.

    fine bins        0   1   2   3   4   5   6   7
    proposed             x       x       x   x          and the last
    bin              0   0   1   1   2   2   3   4
"""

from dataclasses import dataclass, replace

import numpy as np

from gpuboost.backend.plans import ColumnDraw
from gpuboost.binned.cuts import Cuts

__all__ = ["Candidates", "is_worth_narrowing", "most_candidates"]

LEAST_NARROWED = 2  # fine bins for each bin of candidates


@dataclass(frozen=True)
class Candidates:
    """fine, columns : the features drawn, by their fine bins and by these. bins : int32 (fine bins,), the bin of each within its
    feature. ends : int64 (bins,), where in a histogram the fine bins of each end, the last one's number."""

    fine: ColumnDraw
    columns: ColumnDraw
    bins: np.ndarray
    ends: np.ndarray

    @classmethod
    def proposed(cls, is_proposed: np.ndarray, fine: ColumnDraw, cuts: Cuts) -> "Candidates":
        """is_proposed : uint8 (≥ fine bins,), as kernels/proposals.py writes it. Of categories each keeps a bin."""
        offsets = fine.offsets
        is_end = is_proposed[: offsets[-1]].astype(np.bool_)
        is_end[offsets[1:] - 1] = True
        if cuts.categorical is not None:
            is_end |= np.repeat(cuts.categorical[fine.features], np.diff(offsets))
        before = np.concatenate([np.zeros(1, np.int32), np.cumsum(is_end, dtype=np.int32)])
        columns = replace(fine, offsets=before[offsets])
        bins = before[:-1] - np.repeat(columns.offsets[:-1], np.diff(offsets))
        return cls(fine, columns, bins, np.flatnonzero(is_end))

    def fits(self, most: np.ndarray) -> bool:
        """Whether no feature has more bins than this. most : int64 (all features,)."""
        return bool((np.diff(self.columns.offsets) <= most[self.columns.features]).all())

    def sum_up(self, hist: np.ndarray) -> np.ndarray:
        """int64 (n_outputs, ≥ fine bins, 2) -> (n_outputs, bins, 2)."""
        up_to = np.cumsum(hist[:, : len(self.bins)], axis=1)[:, self.ends]
        return np.diff(up_to, axis=1, prepend=0)

    def codes(self, dtype: np.dtype) -> np.ndarray:
        """The new code of each fine code, one feature drawn after another, its missing one behind its bins."""
        return np.insert(self.bins, self.fine.offsets[1:], np.diff(self.columns.offsets)).astype(dtype)

    def cells(self, cuts: Cuts) -> np.ndarray:
        """ColumnDraw.renumber_cells, where cells get these bins."""
        present = self.bins + np.repeat(self.columns.offsets[:-1], np.diff(self.fine.offsets))
        missing = self.columns.offsets[-1] + np.arange(len(self.fine.features))
        not_drawn = [-1]  # which renumber_cells has as −1, the last of these
        return np.concatenate([present, missing, not_drawn]).astype(np.int32)[self.fine.renumber_cells(cuts)]

    def fine_bins(self, features: np.ndarray, bins: np.ndarray) -> np.ndarray:
        """The last fine bin of each bin (n,) of some of the features drawn."""
        at = np.searchsorted(self.fine.features, features)
        return self.ends[self.columns.offsets[at] + bins] - self.fine.offsets[at]


def is_worth_narrowing(n_bins: int, n_fine: int) -> bool:
    """Whether histograms of so many bins, instead of fine ones, are worth other codes."""
    return n_bins * LEAST_NARROWED <= n_fine


def most_candidates(max_bin: int, cuts: Cuts) -> np.ndarray:
    """int64 (n_features,): the bins that a feature has at most, unless few of them hold a hessian: then all may be proposed."""
    most = np.minimum(cuts.n_bins, max_bin + 1)
    return most if cuts.categorical is None else np.where(cuts.categorical, cuts.n_bins, most)
