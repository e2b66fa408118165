"""Which features share a code of a record: far fewer codes to add up per row of a table of ones and zeros.

Two kinds of packing, both exact, in one code of at most 256 values:

    bundle   columns of which at most one differs from its default in any row, as the columns of a one-hot encoded category:
             0 where all have their default, else a number for every (column, other code). This is the exclusive feature
             bundling of LightGBM (Ke et al. 2017, Algorithms 3 and 4) without its conflicts: here none is tolerated.
    digits   bundles, and columns of few codes, side by side: Σ digit · stride, as the digits of a number.

        a b   c        bundle {a, b}: defaults 0 0    digit   with c (2 codes) beside it: code = digit + 3 · c
        0 0   1                                         0       3
        1 0   0                                         1       1
        0 1   1                                         2       5

Either adds up a look-up table of each column (kernels/packing.py). The histograms of the columns come back exactly, so the model
does not depend on any choice made here, nor need workers choose alike.
"""

from collections import deque
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from gpuboost.data.cuts import Cuts

__all__ = ["Packing", "choose_packing", "find_packing", "may_pack"]

MAX_CODES = 256  # of a group: a byte. Tables that need two-byte codes stay as they are: their wide columns gain nothing.
SAMPLE_ROWS = 4096  # in which a default is looked for: it need only be frequent
BUNDLES_TRIED = 8  # a column joins one of the latest bundles: one-hot columns stand side by side
CODES_OF_A_WORD = 8  # the CPU adds, and a record is padded, so many at a time (histogram.TILE, binned.record_bytes)
# What packing saves per row must pay for undoing the histograms of so many nodes, a level of depth 6. Not far above that bound,
# 10,000 rows of bench_packing.py's table, 10 rounds with 2 threads (AMD EPYC, 2026-11-21): 0.146 -> 0.120 s at depth 6,
# 0.37 -> 0.44 s at depth 10; with 30,000 rows 0.24 -> 0.16 s and 0.70 -> 0.74 s.
UNDONE_NODES = 64


@dataclass(frozen=True, eq=False)
class Packing:
    """Groups of features; arrays as the kernels take them.

    members : int32 (n_features,). Features by group. first_member : int32 (n_groups + 1,). Where each group's begin.
    luts : uint8 (n_features, 256). What each code of a feature adds to the code of its group.
    offsets : int32 (n_groups + 1,). First packed code of each group in a histogram of groups; the first group has the fewest.
    rest, first_source, sources : how the histograms of features come back; see kernels/packing.unpack_histograms_cpu.
    """

    members: np.ndarray
    first_member: np.ndarray
    luts: np.ndarray
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


def may_pack(cuts: Cuts, n_rows: int) -> bool:
    """Whether packing could be worth it, by the cuts alone: a group of features with k₁, k₂, … codes has 1 + Σ (kᵢ − 1) or more,
    and all codes but one of each feature have sources."""
    others = cuts.total_bins - cuts.n_features
    return _is_worth_it(cuts.n_features, max(1, -(-others // (MAX_CODES - 1))), others, n_rows)


def choose_packing(pages: list[Any], cuts: Cuts, backend: Any) -> Packing | None:
    """A packing of the pages' columns (uint8, in the backend's memory) where it is worth it.

    It must save a quarter of the words of eight codes that a row adds up, and in all rows more sums than undoing it costs.
    Waits for the device.
    """
    n_rows = sum(page.n_rows for page in pages)
    if n_rows == 0 or pages[0].columns.dtype != np.uint8 or not may_pack(cuts, n_rows):
        return None
    packing = find_packing(pages, cuts, backend)
    n_sums = len(packing.sources) + int(packing.offsets[-1])
    return packing if _is_worth_it(cuts.n_features, packing.n_groups, n_sums, n_rows) else None


def _is_worth_it(n_features: int, n_groups: int, n_sums: int, n_rows: int) -> bool:
    before, after = (-(-n // CODES_OF_A_WORD) for n in (n_features, n_groups))
    return 4 * after <= 3 * before and n_rows * (n_features - n_groups) >= UNDONE_NODES * n_sums


# ---------------------------------------------------------------------------------------------------------------------
# The search


@dataclass
class _Bundle:
    """A digit: features of which at most one differs from its default in any row. rows : those where one does, a bit each; None
    where no other feature may join."""

    members: list[int]
    n_codes: int
    n_rows: int = 0
    rows: np.ndarray | None = None

    def takes(self, n_codes: int, rows: np.ndarray, n_rows: int, all_rows: int) -> bool:
        fits = self.n_codes + n_codes - 1 <= MAX_CODES and self.n_rows + n_rows <= all_rows
        return fits and not (self.rows & rows).any()


def find_packing(pages: list[Any], cuts: Cuts, backend: Any) -> Packing:
    """The packing of fewest groups that a greedy search finds, worth it or not. pages : at least one row of uint8 codes."""
    bundles, n_codes, defaults = _find_bundles([page.columns for page in pages if page.n_rows], cuts.n_features, backend)
    groups = sorted(_side_by_side(bundles), key=_codes_of)
    return _describe(groups, n_codes, defaults, cuts)


def _find_bundles(tables: list[Any], n_features: int, backend: Any) -> tuple[list[_Bundle], np.ndarray, np.ndarray]:
    """(bundles, of every feature the number of its codes and its default): every feature is in a bundle, alone where it excludes
    no other. In the order of the columns: those of a category stand together. tables : the columns of each page."""
    n_codes, defaults = np.empty(n_features, np.int64), np.empty(n_features, np.int64)
    all_rows = sum(columns.shape[1] for columns in tables)
    step = max(1, all_rows // SAMPLE_ROWS)
    bundles: list[_Bundle] = []
    latest: deque[_Bundle] = deque()
    for feature in range(n_features):
        parts = [backend.fetch(columns[feature]) for columns in tables]
        n_codes[feature] = n = 1 + max(int(codes.max()) for codes in parts)
        counts = np.bincount(np.concatenate([codes[::step] for codes in parts]))
        defaults[feature] = default = counts.argmax()
        if 2 * counts[default] < counts.sum() or n == MAX_CODES:
            bundles.append(_Bundle([feature], n))
            continue
        differs = [codes != default for codes in parts]
        rows, n_rows = np.concatenate([np.packbits(d) for d in differs]), sum(int(np.count_nonzero(d)) for d in differs)
        bundle = next((b for b in reversed(latest) if b.takes(n, rows, n_rows, all_rows)), None)
        if bundle is None:
            bundle = _Bundle([], 1, 0, np.zeros_like(rows))
            bundles.append(bundle)
            latest.append(bundle)
            if len(latest) > BUNDLES_TRIED:
                latest.popleft().rows = None  # an eighth of a column, which nobody will ask for again
        bundle.members.append(feature)
        bundle.n_codes += n - 1
        bundle.n_rows += n_rows
        bundle.rows |= rows
    return bundles, n_codes, defaults


def _side_by_side(bundles: list[_Bundle]) -> list[list[_Bundle]]:
    """Bundles as digits of as few groups as possible: the largest first, each into the group that it fills best."""
    groups: list[list[_Bundle]] = []
    open_groups: list[list[list[_Bundle]]] = [[] for _ in range(MAX_CODES + 1)]  # by the number of codes that still fit
    for bundle in sorted(bundles, key=lambda b: -b.n_codes):
        room = next((room for room in range(bundle.n_codes, MAX_CODES + 1) if open_groups[room]), None)
        if room is None:
            group: list[_Bundle] = []
            groups.append(group)
        else:
            group = open_groups[room].pop()
        group.append(bundle)
        open_groups[MAX_CODES // _codes_of(group)].append(group)
    return groups


def _codes_of(group: list[_Bundle]) -> int:
    return prod(bundle.n_codes for bundle in group)


def _describe(groups: list[list[_Bundle]], n_codes: np.ndarray, defaults: np.ndarray, cuts: Cuts) -> Packing:
    """The tables of a packing."""
    members = [[feature for bundle in group for feature in bundle.members] for group in groups]
    offsets = np.cumsum([0, *map(_codes_of, groups)]).astype(np.int32)
    luts = np.zeros((cuts.n_features, MAX_CODES), np.uint8)
    rest = np.full(cuts.n_features, -1, np.int32)
    sources: list[Any] = [None] * cuts.n_features
    n_sources = np.zeros(cuts.total_bins + cuts.n_features, np.int64)
    for first_code, group in zip(offsets, groups):
        stride, is_alone = 1, len(group) == len(group[0].members) == 1
        for bundle in group:
            digits = np.arange(_codes_of(group)) // stride % bundle.n_codes
            by_digit = first_code + digits.argsort(kind="stable").reshape(bundle.n_codes, -1)  # the packed codes of each digit
            first_digit = 0 if is_alone else 1
            for feature in bundle.members:
                codes = np.arange(n_codes[feature])
                if not is_alone:
                    rest[feature] = defaults[feature]
                    codes = np.delete(codes, defaults[feature])
                own_digits = first_digit + np.arange(len(codes))
                luts[feature, codes] = stride * own_digits
                sources[feature] = by_digit[own_digits].reshape(-1)
                n_sources[cuts.offsets[feature] + feature + codes] = by_digit.shape[1]
                first_digit += len(codes)
            stride *= bundle.n_codes
    return Packing(
        members=np.concatenate(members).astype(np.int32), first_member=np.cumsum([0, *map(len, members)]).astype(np.int32),
        luts=luts, offsets=offsets, rest=rest, first_source=np.concatenate([[0], n_sources.cumsum()]).astype(np.int32),
        sources=np.concatenate(sources).astype(np.int32),
    )  # fmt: skip
