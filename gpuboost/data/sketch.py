"""Exact weighted quantiles of every column, from sorted columns or by radix selection over integer counts.

The candidates of Chen & Guestrin 2016, §3.2–3.3. With r(z) the share of a column's weight that lies below z, a sketch must
give cut points s_1 < s_2 < … with |r(s_j) − r(s_{j+1})| < ε (their Eq. 9). Here, for at most B bins:

    every bin that holds more than one distinct value has weight < ε·W with ε = 2/B       (W: the column's total weight)

and a column of at most B distinct values gets one bin for each. The ranks are exact: the weights are integers, and nothing is
pruned (the paper's summaries are, within ε). A bin ends at the value v_j that reaches a target rank j·W/B.

Where one worker has all rows in host memory, it sorts column after column, in one pass over the table (kernels/quantiles.py), or
only what lies near the ends of bins (kernels/selection.py).
On a GPU it sorts them there, and asks for the values that may end a bin (kernels/ranks.py). Workers that would have to exchange
their columns, and a GPU without room to sort one, count digits instead: counts add up over batches, pages and
workers in any order, and three passes find each v_j and the next distinct value (kernels/sketch.py). 7,000 and 450,000 rows ×
28 normal columns, one core of an AMD EPYC (2026-11-21): 1.5 and 110 ms sorted, 38 and 450 ms counted.

A value that alone holds ≥ 2W/B gets a bin of its own; the targets are then spread again over the remaining weight and bins
and the column is searched again, until nothing changes. (Else a column of 90 % zeros would keep 26 of 256 cuts.) Such a value
takes at least two bins' worth of weight away and at most two bins, its own and that of one more gap, so the weight per
remaining bin never grows: the bound holds after any number of rounds.
"""

from collections.abc import Callable, Iterable
from functools import partial

import numpy as np

from gpuboost.arrays import usual_form
from gpuboost.binned.cuts import SENTINEL, Cuts
from gpuboost.data.ranks import RANK_BYTES, cut_ranked
from gpuboost.data.tables.device import host_array
from gpuboost.errors import RowError
from gpuboost.kernels.cuts import end_bins, halve_gaps, set_heavy_apart
from gpuboost.kernels.quantiles import MISSING_KEY, ZERO_KEY, cut_columns_cpu, list_keys_cpu
from gpuboost.kernels.selection import FEWEST_ROWS, MOST_BINS, select_cuts_cpu
from gpuboost.kernels.sketch import COUNTS0_WIDTH, DIGITS, MISSING, NON_FINITE
from gpuboost.storage.mapped import scratch

__all__ = ["ZERO_KEY", "midway", "require_finite", "sketch_columns", "values_of"]

SORT_MEMORY = 2**27  # bytes of keys held at once, or a quarter of all or one column a thread if that is more
ROW_MEMORY = 16  # bytes a row of a table that may not fit in memory: keys, and room to sort them, of two columns without weights
# Bytes of counts, or of answers about ranks, held at once: columns (and, for very large max_bin, prefixes) run in groups.
SKETCH_MEMORY = 2**27


def sketch_columns(
    source, weights: np.ndarray | None, max_bin: int, backend, comm, categorical: np.ndarray | None = None
) -> Cuts:
    """Cuts of every column of ``source``.

    source : re-iterable batches (tables.source.ColumnSource).
    weights : int64 (rows,) row weights (0: the row does not exist) whose global sum is at most 2^46, or None for 1 each.
    max_bin : most bins of a feature. A feature with missing values gets at most 255 when it is 256: its missing code must fit
        in the byte too.
    categorical : bool (n_features,). Columns of codes whose cuts nobody reads, only their extremes and whether values are
        missing; they may be left without any.

    Raises ValueError where a column holds ±inf.
    """
    if comm.size == 1 and backend.coder.sorts_columns:
        at_once = max(1, min(_columns_at_once(source, 4 if weights is None else 8, backend.n_threads), source.n_features))
        of_codes = np.zeros(source.n_features, bool) if categorical is None else categorical
        room = scratch((at_once, source.n_rows), np.uint32 if weights is None else np.uint64)  # made 0 by the system only once
        cut: Callable[..., tuple[list[np.ndarray], np.ndarray, np.ndarray]] = partial(_sort, categorical=of_codes, room=room)
    else:
        at_once, cut = SKETCH_MEMORY // (COUNTS0_WIDTH * 8), _sketch
        if comm.size == 1 and (ranked := backend.coder.columns_ranked_at_once(source.n_rows, weights is not None)) > 0:
            ranked = max(1, min(ranked, SKETCH_MEMORY // (RANK_BYTES * max_bin)))
            if source.is_near or -(-source.n_features // ranked) <= len(DIGITS):  # each group of columns is a pass over the table
                at_once, cut = ranked, _rank
                weights = None if weights is None else backend.memory.put(weights)
    thresholds, has_missing, extremes = [], [], []
    for first in range(0, source.n_features, at_once := max(1, at_once)):
        features = np.arange(first, min(first + at_once, source.n_features), dtype=np.int32)
        own, missing, ends = cut(features, source, weights, max_bin, backend, comm)
        thresholds += own
        has_missing.append(missing)
        extremes.append(ends)
    offsets = np.concatenate([[0], np.cumsum([len(t) for t in thresholds])]).astype(np.int32)
    return Cuts(np.concatenate(thresholds), offsets, np.concatenate(has_missing), max_bin, values_of(np.concatenate(extremes)))


def _columns_at_once(source, key_bytes: int, n_threads: int) -> int:
    """How many columns are sorted together: as many as threads at least. Where the table is read anew for every group, a
    quarter of it; where it is read by columns, because it may not fit in memory, no more than ROW_MEMORY allows."""
    at_once = SORT_MEMORY // (max(source.n_rows, 1) * key_bytes)
    if source.read_columns is None:
        return max(at_once, source.n_features // 4, min(n_threads, source.n_features))
    return max(at_once, min(n_threads, source.n_features, ROW_MEMORY // (2 * key_bytes)))


def _sort(
    features, source, weights, max_bin: int, backend, comm, categorical: np.ndarray, room: np.ndarray
) -> tuple[list[np.ndarray], np.ndarray, np.ndarray]:
    """_sketch where one worker has all rows in host memory. room : SCRATCH, for keys of at least as many columns."""
    n, n_rows, n_threads = len(features), source.n_rows, min(backend.n_threads, len(features))
    given, n_absent = np.zeros(0, np.int64), 0
    if weights is not None:
        given, n_absent = weights, n_rows - int(np.count_nonzero(weights))
    keys = room[:n]
    missing, first = np.float32(source.missing), 0
    whole = n == source.n_features or source.read_columns is None
    for batch in source.batches() if whole else source.column_batches(slice(int(features[0]), int(features[-1]) + 1)):
        last, first_column = first + batch.shape[0], int(features[0]) if whole else 0
        list_keys_cpu(usual_form(host_array(batch)), missing, given[first:last], first_column, first, keys, backend.n_threads)
        first = last
    spare = scratch((n_threads, n_rows), keys.dtype)
    n_cuts, has_missing, n_infinite = np.full(n, -1, np.int64), np.empty(n, bool), np.zeros(n, np.int64)
    spare_weights, extremes = spare.view(np.int32 if weights is None else np.int64), np.full((n, 2), ZERO_KEY, np.uint32)
    for i in np.flatnonzero(categorical[features]):
        n_cuts[i], (has_missing[i], extremes[i]) = 0, _extremes(keys[i], n_absent)
    if weights is None and n_rows >= FEWEST_ROWS and max_bin <= MOST_BINS:
        select_cuts_cpu(keys, max_bin, spare, n_cuts, has_missing, extremes, n_threads)
    if (n_cuts < 0).any():
        cut_columns_cpu(
            keys, given, n_absent, max_bin, spare, spare_weights, n_cuts, has_missing, n_infinite, extremes, n_threads
        )  # fmt: skip
    require_finite(source, features, n_infinite, comm)
    own = [np.append(bits[:m].astype(np.uint32).view(np.float32), SENTINEL) for bits, m in zip(keys, n_cuts.tolist())]
    return own, has_missing, extremes


def _extremes(keys: np.ndarray, n_absent: int) -> tuple[bool, tuple[int, int]]:
    """(whether values of rows that exist are missing, keys of the lowest and the highest value) of a column, as
    cut_columns_cpu."""
    own = keys if keys.dtype == np.uint32 else (keys >> np.uint64(32)).astype(np.uint32)
    values = own[own < MISSING_KEY] if own.max(initial=0) == MISSING_KEY else own
    ends = (int(values.min()), int(values.max())) if len(values) else (ZERO_KEY, ZERO_KEY)
    return len(own) - len(values) > n_absent, ends


def _rank(features, source, weights, max_bin: int, backend, comm) -> tuple[list[np.ndarray], np.ndarray, np.ndarray]:
    """_sketch where one worker has all rows on a device that sorts them."""
    ranked = backend.coder.rank_columns(source.batches(), source.missing, weights, source.n_rows, features)
    require_finite(source, features, ranked.n_infinite, comm)
    n_bins = np.where(ranked.has_missing & (max_bin == 256), 255, max_bin)
    own, extremes = cut_ranked(ranked, n_bins, backend.n_threads)
    return own, ranked.has_missing, extremes


def _sketch(features, source, weights, max_bin: int, backend, comm) -> tuple[list[np.ndarray], np.ndarray, np.ndarray]:
    """(thresholds of each of these columns; bool: whether it has missing values; uint32 (n, 2): keys of its extreme values)."""
    counts0 = _count(source, weights, features, 0, None, None, COUNTS0_WIDTH, len(features), backend, comm)
    require_finite(source, features, counts0[:, NON_FINITE], comm)
    has_missing = counts0[:, MISSING] > 0
    columns = [
        _Column(f, counts0[i, : DIGITS[0]], 255 if max_bin == 256 and has_missing[i] else max_bin) for i, f in enumerate(features)
    ]
    pending = columns
    while pending:  # each round finds a heavy value, of which there are no more than bins; as a rule there is one round
        for group in _groups(pending):
            _select(group, source, weights, backend, comm)
        pending = [column for column in pending if column.spread_again()]
    return [column.thresholds() for column in columns], has_missing, np.stack([column.extremes() for column in columns])


def _count(source, weights, features, level, slots0, slots1, width, n_slots, backend, comm) -> np.ndarray:
    """One pass over the table: int64 (n_slots, width), summed over workers."""
    counts = backend.memory.zeros((n_slots, width), np.int64)
    slots0, slots1 = (None if slots is None else backend.memory.put(slots) for slots in (slots0, slots1))
    first = 0
    for batch in source.batches():
        last = first + batch.shape[0]
        batch_weights = np.zeros(0, np.int64) if weights is None else weights[first:last]
        backend.coder.count_digits(batch, source.missing, batch_weights, features, level, slots0, slots1, counts)
        first = last
    comm.allreduce_sum(counts)
    return backend.memory.fetch(counts)


def require_finite(source, features: np.ndarray, n_infinite: np.ndarray, comm) -> None:
    """ValueError naming the first of these columns that holds infinite values, and the first row where this worker has one.
    n_infinite : int64, how many each holds on all workers."""
    bad = np.flatnonzero(n_infinite)
    if len(bad):
        f = int(features[bad[0]])
        name = repr(source.feature_names[f]) if source.feature_names else str(f)
        n_bad = n_infinite[bad[0]]
        what = f"column {name} holds {n_bad} value(s) that are infinite or at least 3.4028235e38 in size, outside float32"
        fix = ". Replace them, or set them to NaN to treat them as missing."
        row = source.infinite_row(f)
        comm.any(row is not None)  # all have looked: none is gone before another one can say which row it is
        raise ValueError(what + fix) if row is None else RowError(f"{what}, the first in ", row, fix)


def _groups(columns: list["_Column"]) -> Iterable[list["_Column"]]:
    """Columns whose second-level counts fit in SKETCH_MEMORY together."""
    group: list[_Column] = []
    n_slots = 0
    for column in columns:
        column.mark_first_digits()
        if group and (n_slots + column.n_marked) * DIGITS[1] * 12 > SKETCH_MEMORY:
            yield group
            group, n_slots = [], 0
        group.append(column)
        n_slots += column.n_marked
    if group:
        yield group


def _select(columns: list["_Column"], source, weights, backend, comm) -> None:
    """Passes 1 and 2 over the table for these columns: fills each column's entries."""
    features = np.array([column.feature for column in columns], np.int32)
    unwanted = np.arange(len(columns), dtype=np.int32)[:, None]  # slot i takes the unwanted values of column i
    slots0 = np.repeat(unwanted, DIGITS[0], axis=1)
    n1 = len(columns)
    for i, column in enumerate(columns):
        slots0[i, column.marked] = np.arange(n1, n1 + column.n_marked)
        n1 += column.n_marked
    owner_of_slot = np.concatenate([unwanted[:, 0], np.repeat(unwanted[:, 0], [column.n_marked for column in columns])])
    counts1 = _count(source, weights, features, 1, slots0, None, DIGITS[1], n1, backend, comm)
    for i, column in enumerate(columns):
        column.mark_second_digits(counts1[slots0[i, column.marked]])
    pairs = np.concatenate([column.marked_pairs for column in columns])
    owner = np.repeat(np.arange(len(columns)), [len(column.marked_pairs) for column in columns])
    group = max(1, SKETCH_MEMORY // (DIGITS[2] * 8))
    for begin in range(0, len(pairs), group):
        part = slice(begin, begin + group)
        slots1 = np.repeat(owner_of_slot[:, None], DIGITS[1], axis=1)
        slots1[slots0[owner[part], pairs[part] >> 8], pairs[part] & 255] = len(columns) + np.arange(len(pairs[part]))
        n2 = len(columns) + len(pairs[part])
        counts2 = _count(source, weights, features, 2, slots0, slots1, DIGITS[2], n2, backend, comm)[len(columns) :]
        slot, digit, weight = _present(counts2)
        keys = (pairs[part][slot] << 8) | digit
        ends = np.searchsorted(owner[part][slot], np.arange(len(columns) + 1))
        for i, column in enumerate(columns):
            column.values.append((keys[ends[i] : ends[i + 1]], weight[ends[i] : ends[i + 1]]))


class _Column:
    """What is known of one column: an ascending list of entries, each an exact value or a lump of unresolved ones."""

    def __init__(self, feature: int, counts0: np.ndarray, n_bins: int) -> None:
        self.feature = int(feature)
        self.counts0 = counts0
        self.n_bins = n_bins
        self.heavy = np.zeros(0, np.int64)  # keys of the values with a bin of their own, ascending
        self.heavy_weight = np.zeros(0, np.int64)
        self.bins_left = n_bins  # bins over which the remaining weight is spread

    # -- the three passes -------------------------------------------------------------------------------------------

    def mark_first_digits(self) -> None:
        _, digits, weight = _present(self.counts0[None])
        self.is_resolved = len(digits) <= self.n_bins  # whether every entry is followed down to single values
        chosen = self._mark(digits, weight, shift=16)
        self.marked = digits[chosen]
        self.lumps = _lump(digits << 16, weight, chosen)

    @property
    def n_marked(self) -> int:
        return len(self.marked)

    def mark_second_digits(self, counts1: np.ndarray) -> None:
        row, digit, weight = _present(counts1)
        pairs = (self.marked[row] << 8) | digit
        # Lumps take part in the ranks but are never marked: they and their neighbours hold no target.
        keys, weight, is_pair = _merge(pairs << 8, weight, *self.lumps)
        self.is_resolved &= len(keys) <= self.n_bins
        chosen = self._mark(keys >> 8, weight, shift=8) & is_pair
        self.marked_pairs = keys[chosen] >> 8
        self.lumps = _lump(keys, weight, chosen)
        self.values: list[tuple[np.ndarray, np.ndarray]] = []

    # -- ranks ------------------------------------------------------------------------------------------------------

    def _light(self, prefixes: np.ndarray, weight: np.ndarray, shift: int) -> np.ndarray:
        """Weight of each entry without the heavy values in it."""
        light = weight.copy()
        np.subtract.at(light, np.searchsorted(prefixes, self.heavy >> shift), self.heavy_weight)
        return light

    def _hits(self, light: np.ndarray) -> np.ndarray:
        """How many of the target ranks j·W/B of the light weight each entry holds."""
        reached = np.cumsum(light) * self.bins_left // max(1, int(light.sum()))
        return np.diff(reached, prepend=0)

    def _mark(self, prefixes: np.ndarray, weight: np.ndarray, shift: int) -> np.ndarray:
        """Entries to resolve further: those with a target or a heavy value and the entry after each (it holds the next distinct
        value), the entry before a heavy value or several targets, the first and the last one; all of them where they are few
        enough for one bin each."""
        if self.is_resolved:
            return np.ones(len(prefixes), bool)
        heavy = np.searchsorted(prefixes, self.heavy >> shift)
        hits = self._hits(self._light(prefixes, weight, shift))
        hits[heavy] = 2
        chosen = hits > 0
        chosen[1:] |= hits[:-1] > 0
        chosen[:-1] |= hits[1:] > 1
        chosen[0] = chosen[-1] = True
        return chosen

    def spread_again(self) -> bool:
        """After the passes: whether new heavy values were found, so that the targets must be spread anew."""
        keys, weight = (np.concatenate(parts) for parts in zip((self.marked[:0], self.marked[:0]), *self.values))
        self.keys, self.weight, self.exact = _merge(keys, weight, *self.lumps)
        self.is_resolved &= len(self.keys) <= self.n_bins
        if self.is_resolved:
            return False
        is_heavy = np.isin(self.keys, self.heavy)
        bins_left = set_heavy_apart(self.weight, self.exact, is_heavy, self.n_bins, self.bins_left)
        if bins_left == 0:
            return False
        self.heavy, self.heavy_weight, self.bins_left = self.keys[is_heavy], self.weight[is_heavy], bins_left
        return True

    # -- the result -------------------------------------------------------------------------------------------------

    def _cut_after(self) -> np.ndarray:
        """Indices of the entries after which a bin ends (the last entry's end is implied)."""
        if self.is_resolved:
            return np.arange(len(self.keys) - 1)
        ends = np.empty(len(self.keys), bool)
        end_bins(self.weight, np.isin(self.keys, self.heavy), self.bins_left, ends)
        return np.flatnonzero(ends)

    def thresholds(self) -> np.ndarray:
        """float32: midway between the last value of a bin and the next value."""
        after = self._cut_after()
        return np.append(midway(self.keys[after], self.keys[after + 1]), SENTINEL)

    def extremes(self) -> np.ndarray:
        """uint32 (2,): keys of the lowest and the highest value, which are always resolved."""
        return (self.keys if len(self.keys) else np.array([ZERO_KEY]))[[0, -1]].astype(np.uint32)


def values_of(keys: np.ndarray) -> np.ndarray:
    """The float32 values of keys of any shape."""
    flat = keys.reshape(-1)
    return midway(flat, flat).reshape(keys.shape)


def midway(below: np.ndarray, above: np.ndarray) -> np.ndarray:
    """float32 thresholds midway between two values each, given by their keys; the upper value where that rounds down."""
    thresholds = np.empty(len(below), np.float32)
    halve_gaps(below.astype(np.uint32), above.astype(np.uint32), thresholds)
    return thresholds


def _present(counts: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(row, column, count) of every count that is not 0; by way of booleans, which NumPy searches ten times faster."""
    at = np.flatnonzero(np.not_equal(counts, 0).reshape(-1))
    width = counts.shape[1]  # a power of two
    return at >> (width.bit_length() - 1), at & (width - 1), counts.reshape(-1)[at]


def _merge(keys: np.ndarray, weight: np.ndarray, lump_keys: np.ndarray, lump_weight: np.ndarray):
    """Two ascending lists as one: keys, weights, and which of them come from the first list."""
    at = np.searchsorted(keys, lump_keys)
    is_first = np.insert(np.ones(len(keys), bool), at, False)
    return np.insert(keys, at, lump_keys), np.insert(weight, at, lump_weight), is_first


def _lump(keys: np.ndarray, weight: np.ndarray, chosen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Each run of entries that were not chosen, as one entry: its first key and its weight."""
    rest = np.flatnonzero(~chosen)
    first = rest[np.diff(rest, prepend=-2) > 1]
    return keys[first], np.add.reduceat(np.where(chosen, 0, weight), first) if len(first) else weight[:0]
