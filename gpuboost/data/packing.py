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
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import inf, log2, prod
from typing import NamedTuple

import numpy as np

from gpuboost.backend.contract import Backend
from gpuboost.backend.cpu.cells import CellLists
from gpuboost.binned.cuts import Cuts
from gpuboost.binned.packing import MAX_CODES, Packing
from gpuboost.binned.pages import DensePage, SparsePage
from gpuboost.data.column_groups import neighbours
from gpuboost.kernels.histogram import record_bytes
from gpuboost.kernels.packing import take_rows_cpu
from gpuboost.storage.mapped import scratch

__all__ = ["choose_packing", "choose_sparse_packing", "find_packing", "find_sparse_packing", "may_pack"]

SAMPLE_ROWS = 4096  # in which a default is looked for: it need only be frequent
BUNDLES_TRIED = 8  # a column joins one of the latest bundles: one-hot columns stand side by side
CODES_OF_A_WORD = 8  # the CPU adds, and a record is padded, so many at a time (histogram.record_bytes)
# What packing saves per row must pay for undoing the histograms of so many nodes, those that are built of depth 6 (the others
# come by subtraction). One thread of an Intel Xeon (2026-11-25), ms a round of depth 6 without packing -> with it: 500 × 126 of
# 21 categories 0.48 -> 0.32, 2,000 × 1,000 of 20 0.96 -> 0.41, 1,000 × 125 of 10 categories and 5 numbers 1.04 -> 0.85 (2,000
# rows of those with depth 10, two threads: 1.96 -> 2.21).
UNDONE_NODES = 32
GROUP_ROWS = 2**23  # rows that are listed at once for the search, of one column at least: 32 MB; or
MOST_GROUPS = 4  # a part of all, as all cells are read for each
CELL_SUMS = 4  # a sparse row's cell takes as long as so many codes of a record: 2.1 ns, 4 with zeros, against 0.45 (AMD EPYC)


def may_pack(cuts: Cuts, n_rows: int) -> bool:
    """Whether packing could be worth it, by the cuts alone: a group of features with k₁, k₂, … codes has 1 + Σ (kᵢ − 1) or more,
    and all codes but one of each feature have sources, so that there are twice as many sums at least."""
    others = cuts.total_bins - cuts.n_features
    return _is_worth_it(cuts.n_features, max(1, -(-others // (MAX_CODES - 1))), 2 * others, n_rows)


def choose_packing(pages: list[DensePage], cuts: Cuts, backend: Backend) -> Packing | None:
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


def choose_sparse_packing(page: SparsePage, n_threads: int) -> Packing | None:
    """A packing of a sparse table's columns where it is worth it. page : in host memory.

    Its records may take no more than four bytes for each cell, and must save more sums than undoing them costs.
    """
    n_rows, n_cells = page.n_rows, len(page.cells)
    if n_rows == 0:
        return None
    lists, most_groups = CellLists(page, n_threads), 4 * n_cells // n_rows
    others = int((_listed_codes(page, lists)[0] - 1).sum())
    if others > most_groups * (MAX_CODES - 1) or CELL_SUMS * n_cells < UNDONE_NODES * 2 * others:
        return None
    packing = find_sparse_packing(page, lists, most_groups)
    if packing is None or record_bytes(packing.n_groups) * n_rows > 4 * n_cells:
        return None
    n_sums = len(packing.sources) + int(packing.offsets[-1])
    return packing if CELL_SUMS * n_cells - n_rows * packing.n_groups >= UNDONE_NODES * n_sums else None


def _is_worth_it(n_features: int, n_groups: int, n_sums: int, n_rows: int) -> bool:
    before, after = (-(-n // CODES_OF_A_WORD) for n in (n_features, n_groups))
    return 4 * after <= 3 * before and n_rows * (n_features - n_groups) >= UNDONE_NODES * n_sums


# ---------------------------------------------------------------------------------------------------------------------
# The search


class _Column(NamedTuple):
    """What the search asks of a column. rows : where it differs from its default, n_rows of them, as bits (uint8) or as numbers
    (int32); None where it shares a bundle with no other."""

    n_codes: int
    default: int
    n_rows: int
    rows: np.ndarray | None


@dataclass
class _Bundle:
    """A digit: features of which at most one differs from its default in any row. rows : those where one does, a bit each; None
    where no other feature may join."""

    members: list[int]
    n_codes: int
    n_rows: int = 0
    rows: np.ndarray | None = None

    def takes(self, feature: int, column: _Column, all_rows: int) -> bool:
        """Whether the feature could join, and has."""
        n_codes, n_rows = self.n_codes + column.n_codes - 1, self.n_rows + column.n_rows
        assert column.rows is not None and self.rows is not None
        if n_codes > MAX_CODES or n_rows > all_rows or not _take(column.rows, self.rows):
            return False
        self.members.append(feature)
        self.n_codes, self.n_rows = n_codes, n_rows
        return True


def _take(rows: np.ndarray, taken: np.ndarray) -> bool:
    """Mark a column's rows as taken unless one of them is already; whether it did."""
    if rows.dtype != np.uint8:
        return take_rows_cpu(rows, taken)
    if (rows & taken).any():
        return False
    taken |= rows
    return True


def find_packing(pages: list[DensePage], cuts: Cuts, backend: Backend) -> Packing:
    """The packing of fewest groups that a greedy search finds, worth it or not. pages : at least one row of uint8 codes."""
    packing = _find([page.n_rows for page in pages if page.n_rows], _read_columns(pages, cuts.n_features, backend), cuts, inf)
    assert packing is not None
    return packing


def find_sparse_packing(page: SparsePage, lists: CellLists, most_groups: float = inf) -> Packing | None:
    """The same for a sparse table of at least one row, by its lists; None where a column has more than 256 codes, and (mostly)
    where there would be more than so many groups."""
    n_codes, defaults = _listed_codes(page, lists)
    if n_codes.max() > MAX_CODES:
        return None

    def columns() -> Iterator[_Column]:
        n_listed = lists.by_feature
        groups = list(neighbours(n_listed, max(GROUP_ROWS, int(n_listed.sum()) // MOST_GROUPS)))
        rows = scratch((max(int(n_listed[features].sum()) for features in groups),), np.int32)
        for features in groups:
            bounds = lists.list_rows(features, rows)
            for n, default, (a, b) in zip(n_codes[features].tolist(), defaults[features].tolist(), bounds.tolist()):
                yield _Column(n, default, b - a, rows[a:b] if 2 * (b - a) <= page.n_rows and n < MAX_CODES else None)

    return _find([page.n_rows], columns(), page.cuts, most_groups)


def _listed_codes(page: SparsePage, lists: CellLists) -> tuple[np.ndarray, np.ndarray]:
    """Of every feature of a sparse table the number of its codes and its default: what its rows leave out, if anything."""
    cuts, n_listed = page.cuts, lists.by_feature
    codes = np.arange(cuts.total_bins) - np.repeat(cuts.offsets[:-1], cuts.n_bins)
    last = np.maximum.reduceat(np.where(lists.by_number[: cuts.total_bins] > 0, codes, -1), cuts.offsets[:-1])
    last = np.where(lists.by_number[cuts.total_bins :] > 0, cuts.n_bins, last)
    last = np.where(n_listed > 0, last, page.absent)
    defaults = np.where(n_listed < page.n_rows, page.absent, last).astype(np.int64)
    return 1 + np.maximum(last, defaults), defaults


def _read_columns(pages: list[DensePage], n_features: int, backend: Backend) -> Iterator[_Column]:
    tables = [page.columns for page in pages if page.n_rows]
    step = max(1, sum(columns.shape[1] for columns in tables) // SAMPLE_ROWS)
    for feature in range(n_features):
        parts = [backend.memory.fetch(columns[feature]) for columns in tables]
        n_codes = 1 + max(int(codes.max()) for codes in parts)
        counts = np.bincount(np.concatenate([codes[::step] for codes in parts]))
        default = int(counts.argmax())
        if 2 * counts[default] < counts.sum() or n_codes == MAX_CODES:
            yield _Column(n_codes, default, 0, None)
            continue
        differs = [codes != default for codes in parts]
        n_rows = sum(int(np.count_nonzero(d)) for d in differs)
        yield _Column(n_codes, default, n_rows, np.concatenate([np.packbits(d) for d in differs]))


def _find(page_rows: list[int], columns: Iterable[_Column], cuts: Cuts, most_groups: float) -> Packing | None:
    """The packing of some columns, in their order: those of a category stand together. Every feature is in a bundle, alone where
    it excludes no other. None as soon as the bundles are known to take more than so many groups."""
    all_rows, n_bytes = sum(page_rows), sum(-(-n // 8) for n in page_rows)
    n_codes, defaults = np.empty(cuts.n_features, np.int64), np.empty(cuts.n_features, np.int64)
    bundles: list[_Bundle] = []
    latest: deque[_Bundle] = deque()
    bits = 0.0  # of the codes of all bundles but the latest
    for feature, column in enumerate(columns):
        n_codes[feature], defaults[feature] = column.n_codes, column.default
        if column.rows is None:
            bundles.append(_Bundle([feature], column.n_codes))
            bits += log2(column.n_codes)
        elif not any(bundle.takes(feature, column, all_rows) for bundle in reversed(latest)):
            bundle = _Bundle([], 1, 0, np.zeros(n_bytes, np.uint8))
            bundle.takes(feature, column, all_rows)
            bundles.append(bundle)
            latest.append(bundle)
            if len(latest) > BUNDLES_TRIED:
                bundle = latest.popleft()
                bundle.rows = None  # an eighth of a column, which nobody will ask for again
                bits += log2(bundle.n_codes)
        if bits > 8 * most_groups:
            return None
    groups = sorted(_side_by_side(bundles), key=_codes_of)
    return _describe(groups, n_codes, defaults, cuts)


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
    sources: list[np.ndarray] = [np.zeros(0)] * cuts.n_features
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
        luts=luts, defaults=defaults, offsets=offsets, rest=rest,
        first_source=np.concatenate([[0], n_sources.cumsum()]).astype(np.int32), sources=np.concatenate(sources).astype(np.int32),
    )  # fmt: skip
