"""What a packing says: which features share a code of a record, and how their histograms come back (data/packing.py chooses)."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from gpuboost.binned.cuts import Cuts

__all__ = ["MAX_CODES", "Packing"]

MAX_CODES = 256  # of a group: a byte. Tables that need two-byte codes stay as they are: their wide columns gain nothing.


@dataclass(frozen=True, eq=False)
class Packing:
    """Groups of features; arrays as the kernels take them.

    members : int32 (n_features,). Features by group. first_member : int32 (n_groups + 1,). Where each group's begin.
    luts : uint8 (n_features, 256). What each code of a feature adds to the code of its group.
    defaults : int64 (n_features,). A code of each feature; of a sparse table's, the one that its lists leave out.
    offsets : int32 (n_groups + 1,). First packed code of each group in a histogram of groups; the first group has the fewest.
    rest, first_source, sources : how the histograms of features come back; see kernels/packing.unpack_histograms_cpu.
    """

    members: np.ndarray
    first_member: np.ndarray
    luts: np.ndarray
    defaults: np.ndarray
    offsets: np.ndarray
    rest: np.ndarray
    first_source: np.ndarray
    sources: np.ndarray

    @property
    def n_groups(self) -> int:
        return len(self.offsets) - 1

    @property
    def undo(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        return self.rest, self.first_source, self.sources

    @cached_property
    def groups(self) -> np.ndarray:
        """int32 (n_features,): the group of each feature."""
        groups = np.empty(len(self.members), np.int32)
        groups[self.members] = np.repeat(np.arange(self.n_groups), np.diff(self.first_member))
        return groups

    def of_records(self, cuts: Cuts) -> tuple[np.ndarray, ...]:
        """As kernels/packing.mark_packed_rows_cpu takes it."""
        return self.groups, self.offsets, cuts.offsets, *self.undo

    def of_cells(self, cuts: Cuts) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(groups, steps, record of a row without cells), as kernels/packing.pack_cells_cpu takes them."""
        features = np.arange(cuts.n_features)
        base = np.zeros(self.n_groups, np.uint8)
        np.add.at(base, self.groups, self.luts[features, self.defaults])
        owner = np.concatenate([np.repeat(features, cuts.n_bins), features])
        codes = np.concatenate([np.arange(cuts.total_bins) - np.repeat(cuts.offsets[:-1], cuts.n_bins), cuts.n_bins])
        steps = self.luts[owner, np.minimum(codes, MAX_CODES - 1)] - self.luts[owner, self.defaults[owner]]
        return self.groups[owner], steps, base
