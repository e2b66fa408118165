"""Rows that list only some of their cells: partition, histograms and prediction of sparse tables.

A cell is a number that says column and code at once, ascending within a row:

    cell = offsets[f] + b       bin b of feature f
    cell = total_bins + f       feature f is missing, where the cells that a row does not list are zeros

What is not listed is absent: missing, or zero. Histograms never visit it: the sums of missing rows are not kept at all
(kernels/histogram.py), and those of the bin of zero are what the node has more than its listed cells. Floor of the histograms: 4
bytes of cell and 16 of a sum, read and written, per listed cell; whole trainings are timed by benchmarks/sparse_tables.py.
"""

import numpy as np
from numba import float32, float64, int32, int64, uint8, uint32, uint64

from gpuboost.kernels.allocation import empty, zeros
from gpuboost.kernels.cuda_common import (
    block_sum,
    cuda,
    cuda_kernel,
    lane_number,
    n_threads,
    owner_by_block,
    thread_number,
)
from gpuboost.kernels.heap_levels import code_of_key, derive_keys, key_columns, write_key
from gpuboost.kernels.histogram import ADD_SHARED, ASSIGN
from gpuboost.kernels.jit import add_atomic, claim, kernel, launch, lock, parallel_kernel, scalar, unlock
from gpuboost.kernels.partition import (
    CHUNK_ROWS,
    ROWS_PER_THREAD,
    first_of_thread,
    mark_codes_part,
    move_rows,
    row_of,
    rows_of_thread,
)
from gpuboost.kernels.predict import (
    LARGEST,
    ROW_BLOCK,
    add_leaves,
    lay_out,
    lay_out_forest,
    missing_keys,
    new_walk,
    used_features,
    value_key,
)
from gpuboost.kernels.quantise import LIMB_BITS
from gpuboost.kernels.scalar import code_goes_left, split_goes_left, value_goes_left
from gpuboost.kernels.shares import claim_near, new_counters

# Bins of a table up to which rows are coded by searching the thresholds: one-hot tables. Measured on one core of an AMD EPYC, ns
# a cell: 5 for columns of one bin, 35 of 16 and 70 of 256, in 2000 columns; from column blocks 15 to 20, by one thread only.
SEARCHED_BINS = 8192
ALONE, APART, TOGETHER = 0, 1, 2  # how a thread adds to a histogram: list_units
N_LOCKS = 64  # of a histogram
BUCKETS, SAMPLED_ROWS, MOST_COPIED = 1024, 512, 2**16  # to choose among these; bins: 1 MB, of which a copy stays in a cache
FILLED_PER_CELL = 8  # keys that are cleared, and others derived from, one behind another before one cell has been looked up


@parallel_kernel
def code_stored_cpu(
    row_begin, columns, values, missing, keeps_missing, thresholds, offsets, absent, n_cells, cells, n_threads
):
    """The cells of every row of a sparse matrix (SciPy's csr, columns ascending in a row), without those that are absent.

    row_begin : int32 or int64 (n_rows + 1,), IN. columns : int32 or int64 (n_stored,), IN. values : float32 (n_stored,), IN.
    missing : float32. A value equal to it is missing, as NaN is. keeps_missing : whether a stored one gets a cell.
    thresholds, offsets : as kernels/binning.py. absent : int32 (n_features,), IN. Code of what is not listed.
    n_cells : int64 (n_rows,), OUT. cells : uint16 or int32 (n_stored,), OUT. Those of row r begin at row_begin[r].
    """
    counter = zeros(1, np.int64)
    args = (
        counter, row_begin, columns, values, missing, keeps_missing, thresholds, offsets, absent, n_cells, cells,
    )  # fmt: skip
    launch(n_threads, _code_stored, args)


@parallel_kernel.part
def _code_stored(counter, row_begin, columns, values, missing, keeps_missing, thresholds, offsets, absent, n_cells, cells):
    total_bins = offsets[offsets.size - 1]
    while True:
        first_row = claim(counter) * ROW_BLOCK
        if first_row >= n_cells.size:
            return
        for row in range(first_row, min(first_row + ROW_BLOCK, n_cells.size)):
            end, n_missing = int64(row_begin[row]), int64(0)
            for i in range(row_begin[row], row_begin[row + 1]):
                x, f = values[i], uint32(columns[i])
                if x != x or x == missing:
                    n_missing += 1
                    continue
                first = offsets[f]
                code = count_at_most(thresholds, first, offsets[f + uint32(1)] - 1, x)
                cells[end] = first + code
                end += code != absent[f]
            if keeps_missing and n_missing > 0:  # their numbers are above all others
                for i in range(row_begin[row], row_begin[row + 1]):
                    if values[i] != values[i] or values[i] == missing:
                        cells[end] = total_bins + columns[i]
                        end += 1
            n_cells[row] = end - row_begin[row]


@scalar
def count_at_most(values, begin, end, x):
    """How many of values[begin:end], which ascend, are x or less."""
    low, n = int64(begin), int64(end) - int64(begin)
    while n > int64(1):
        half = n >> int64(1)
        low += half * int64(values[low + half - int64(1)] <= x)
        n -= half
    if n == int64(1):
        low += int64(values[low] <= x)
    return low - int64(begin)


@parallel_kernel
def write_out_cells_cpu(row_begin, cells, features, offsets, absent, columns, n_threads):
    """The codes of all cells, listed or absent.

    row_begin, cells : as the page has them, IN. features : int32 (total_bins,), IN. The feature of each bin.
    offsets : int32 (n_features + 1,), IN. absent : int32 (n_features,), IN. Code of what is not listed.
    columns : uint8 (n_features, n_rows), OUT.
    """
    launch(n_threads, _write_out_cells, (zeros(1, np.int64), row_begin, cells, features, offsets, absent, columns))


@parallel_kernel.part
def _write_out_cells(counter, row_begin, cells, features, offsets, absent, columns):
    n_features, n_rows, total_bins = columns.shape[0], columns.shape[1], int64(offsets[offsets.size - 1])
    while True:
        first_row = claim(counter) * ROW_BLOCK
        if first_row >= n_rows:
            return
        end_row = min(first_row + ROW_BLOCK, n_rows)
        for f in range(n_features):
            columns[f, first_row:end_row] = absent[f]
        for row in range(first_row, end_row):
            for i in range(row_begin[row], row_begin[row + 1]):
                cell = int64(cells[i])
                f = cell - total_bins if cell >= total_bins else int64(features[cell])
                columns[f, row] = (offsets[f + 1] if cell >= total_bins else cell) - offsets[f]


@kernel
def join_rows_cpu(stored_begin, n_cells, row_begin, cells):
    """Close the gaps between the rows. cells : uint16 or int32, INOUT. Row r's n_cells[r] begin at stored_begin[r], then at
    row_begin[r].

    stored_begin : int32 or int64 (n_rows + 1,), IN. row_begin : int64 (n_rows + 1,), OUT.
    n_cells : int64 (n_rows,), IN. It may be row_begin[1:], of which a row's is read before it is written.
    """
    to = int64(0)
    for row in range(n_cells.size):
        row_begin[row], begin = to, stored_begin[row]
        if begin == to:
            to += n_cells[row]
            continue
        for i in range(begin, begin + n_cells[row]):
            cells[to] = cells[i]
            to += 1
    row_begin[n_cells.size] = to


@kernel
def list_cells_cpu(bounds, rows, codes, n_bins, offsets, row_begin, cells):
    """The same from column blocks (kernels/columns.py), where thresholds are too many to search for each value.

    bounds : int64 (n_features, 2), rows : int32 (n,), codes : uint32 (n,), IN. n_bins : int32 (n_features,), IN.
    offsets : int32 (n_features + 1,), IN.
    row_begin : int64 (n_rows + 1,), OUT. Row r lists cells[row_begin[r]:row_begin[r + 1]]. cells : uint16 or int32 (n,), OUT.
    """
    n_features = bounds.shape[0]
    row_begin[:] = 0
    for f in range(n_features):
        for i in range(bounds[f, 0], bounds[f, 1]):
            row_begin[rows[i] + 1] += 1
    for row in range(1, row_begin.size):
        row_begin[row] += row_begin[row - 1]
    place = row_begin[:-1].copy()
    for f in range(n_features):
        for i in range(bounds[f, 0], bounds[f, 1]):
            if codes[i] == n_bins[f]:
                break
            row = rows[i]
            cells[place[row]] = offsets[f] + codes[i]
            place[row] += 1
    for f in range(n_features):  # missing cells come last in a row, as in their columns: their numbers are above all others
        i = bounds[f, 1] - 1
        while i >= bounds[f, 0] and codes[i] == n_bins[f]:
            row = rows[i]
            cells[place[row]] = offsets[n_features] + f
            place[row] += 1
            i -= 1


@parallel_kernel
def count_cells_cpu(row_begin, cells, counts, n_threads):
    """How often each cell occurs in some parts of the rows.

    row_begin : int64 (n_rows + 1,), IN. cells : uint16 or int32 (n_cells,), IN.
    counts : int64 (n_parts, total_bins + n_features), INOUT. The rows are cut into so many parts.
    """
    counter = zeros(1, np.int64)
    launch(n_threads, _count_cells, (counter, row_begin, cells, counts))


@parallel_kernel.part
def _count_cells(counter, row_begin, cells, counts):
    n_parts, n_rows = counts.shape[0], row_begin.size - 1
    while True:
        part = claim(counter)
        if part >= n_parts:
            return
        own = counts[part]
        for i in range(row_begin[n_rows * part // n_parts], row_begin[n_rows * (part + 1) // n_parts]):
            own[uint32(cells[i])] += 1


@parallel_kernel
def list_cell_rows_cpu(row_begin, cells, places, rows, n_threads):
    """The rows of some cells, each cell's one behind another and ascending: the inverse of list_cells_cpu.

    places : int64 (n_parts, total_bins + n_features), INOUT. Where the rows of each part and cell begin, as count_cells_cpu
        counts them, and where they end; −1 for cells that are not asked for. rows : int32 (n,), OUT. Others as there.
    """
    counter = zeros(1, np.int64)
    launch(n_threads, _list_cell_rows, (counter, row_begin, cells, places, rows))


@parallel_kernel.part
def _list_cell_rows(counter, row_begin, cells, places, rows):
    n_parts, n_rows = places.shape[0], row_begin.size - 1
    while True:
        part = claim(counter)
        if part >= n_parts:
            return
        own = places[part]
        for row in range(n_rows * part // n_parts, n_rows * (part + 1) // n_parts):
            for i in range(row_begin[row], row_begin[row + 1]):
                cell = uint32(cells[i])
                place = own[cell]
                if place >= 0:
                    rows[uint64(place)] = row
                    own[cell] = place + 1


@scalar
def first_at_least(values, begin, end, x):
    """The first place of values[begin:end], which ascend, that holds x or more; end if none does. Without a branch that could be
    mispredicted."""
    low, n = int64(begin), int64(end) - int64(begin)
    while n > int64(1):
        half = n >> int64(1)
        low += half * int64(values[low + half - int64(1)] < x)
        n -= half
    if n == int64(1):
        low += int64(values[low] < x)
    return low


@scalar
def code_of_row(cells, begin, end, first, n_bins, missing_cell, absent_code):
    """The code of a feature in a row: a binary search for the first cell of the feature among the row's cells.

    cells[begin:end] : the row's. first, n_bins : the feature's first cell and number of bins. missing_cell : total_bins + f.
    """
    low = first_at_least(cells, begin, end, first)
    if low < end and cells[low] < first + n_bins:
        return int64(cells[low]) - int64(first)
    if absent_code != n_bins:  # a missing cell would be listed
        low = first_at_least(cells, low, end, missing_cell)
        if low < end and cells[low] == missing_cell:
            return int64(n_bins)
    return int64(absent_code)


@parallel_kernel
def mark_sparse_rows_cpu(
    selected, nodes, cats, chunks, row_begin, cells, offsets, absent, entries, notes, rows, segments, is_left, n_threads
):  # fmt: skip
    """mark_rows_cpu (kernels/partition.py) for a sparse page. absent : int32 (n_features,), IN. Codes of absent cells.

    entries : (bounds, rows, codes), IN. Column blocks (kernels/columns.py), or arrays of no column where there are none.
    notes : uint8 (n_threads, at least n_rows / 8, where there are entries), SCRATCH. Zeros, between calls, too.

    Where a feature has no more entries than the node has rows, those are noted, by a bit, that do not go where absent cells go:
    200k × 2000, ten cells a row, one thread of an AMD EPYC (Zen 5), 10.6 -> 1.1 ms a round. Else rows are searched for the
    feature.
    """
    counters, table = new_counters(n_threads), (row_begin, cells, offsets, absent, entries, notes)
    launch(n_threads, _mark_chunks, (counters, selected, nodes, cats, chunks, *table, rows, segments, is_left))


@parallel_kernel.part
def _mark_chunks(
    thread, counters, selected, nodes, cats, chunks, row_begin, cells, offsets, absent, entries, notes, rows, segments, is_left
):  # fmt: skip
    noted, notes = int64(-1), notes[thread]  # the split whose entries are
    while True:
        item = claim_near(counters, thread, chunks.shape[0])
        if item >= chunks.shape[0]:
            if noted >= 0:
                _note_entries(noted, nodes, cats, offsets, absent, entries, notes, False)
            return
        split, begin, end = selected[chunks[item, 0]], chunks[item, 1], chunks[item, 2]
        feature = nodes[split].feature
        part, marks = rows[segments[split, 2], begin:end], is_left[begin:end]
        if _has_few_entries(feature, segments[split, 1] - segments[split, 0], entries):
            if noted != split:
                if noted >= 0:
                    _note_entries(noted, nodes, cats, offsets, absent, entries, notes, False)
                _note_entries(split, nodes, cats, offsets, absent, entries, notes, True)
                noted = split
            chunks[item, 3] = _mark_by_notes(split, nodes, cats, offsets, absent, notes, part, marks)
        else:
            codes = _codes_of_rows(part, feature, row_begin, cells, offsets, absent[feature])
            chunks[item, 3] = mark_codes_part(codes, split, nodes, cats, int64(offsets[feature + 1] - offsets[feature]), marks)


@parallel_kernel.part
def _has_few_entries(feature, n_rows, entries):
    bounds = entries[0]
    return bounds.shape[0] > 0 and bounds[feature, 1] - bounds[feature, 0] <= n_rows


@parallel_kernel.part
def _note_entries(split, nodes, cats, offsets, absent, entries, notes, is_noted):
    """Set the bits of the rows that have an entry of a split's feature and do not go where absent cells go, or clear them."""
    bounds, rows, codes = entries
    feature = nodes[split].feature
    missing_code = int64(offsets[feature + 1] - offsets[feature])
    absent_left = split_goes_left(int64(absent[feature]), nodes, cats, split, missing_code)
    for i in range(bounds[feature, 0], bounds[feature, 1]):
        row = uint32(rows[i])
        if not is_noted:
            notes[row >> uint32(3)] = 0
        elif split_goes_left(int64(codes[i]), nodes, cats, split, missing_code) != absent_left:
            notes[row >> uint32(3)] |= uint8(1) << uint8(row & uint32(7))


@parallel_kernel.part
def _mark_by_notes(split, nodes, cats, offsets, absent, notes, part, marks):
    """Mark the rows that go left; returns how many."""
    feature, n_left = nodes[split].feature, int64(0)
    missing_code = int64(offsets[feature + 1] - offsets[feature])
    absent_left = uint8(split_goes_left(int64(absent[feature]), nodes, cats, split, missing_code))
    for i in range(part.size):
        row = uint32(part[i])
        marks[i] = (notes[row >> uint32(3)] >> uint8(row & uint32(7))) & uint8(1) ^ absent_left
        n_left += int64(marks[i])
    return n_left


@parallel_kernel.part
def _codes_of_rows(part, feature, row_begin, cells, offsets, absent_code):
    """code_of_row of the rows of ``part``: int32 (n,)."""
    first, n_bins, codes = offsets[feature], offsets[feature + 1] - offsets[feature], empty(part.size, np.int32)
    places = _first_cells(part, row_begin, cells, first)
    for i in range(part.size):
        cell = cells[uint64(places[i])] if places[i] >= 0 else int32(-1)
        codes[i] = cell - first if first <= cell < first + n_bins else absent_code
    if absent_code != n_bins:  # a missing cell would be listed
        missing_cell = offsets[offsets.size - 1] + feature
        places = _first_cells(part, row_begin, cells, missing_cell)
        for i in range(part.size):
            if places[i] >= 0 and cells[uint64(places[i])] == missing_cell:
                codes[i] = n_bins
    return codes


@parallel_kernel.part
def _first_cells(part, row_begin, cells, x):
    """int64 (n,): where the first cell of each row lies that is x or more, −1 where none is. first_at_least of all rows side by
    side, one step after another: their loads do not wait for each other, and no array's references are counted by row (26 -> 11
    ns a row of ten cells; two threads, which counted in one cache line, 37 -> 6)."""
    low, n, most = empty(part.size, np.int64), empty(part.size, np.int64), int64(0)
    for i in range(part.size):
        row = uint32(part[i])
        n[i] = row_begin[row + uint32(1)] - row_begin[row]
        low[i], most = row_begin[row] if n[i] > 0 else 0, max(most, n[i])
    while most > 1:
        for i in range(part.size):
            half = n[i] >> int64(1)
            at = low[i] + half - int64(half > 0)  # where a row is done, any
            low[i] += half * int64(cells[uint64(at)] < x)
            n[i] -= half
        most -= most >> 1
    for i in range(part.size):
        if n[i] > 0 and cells[uint64(low[i])] < x:
            low[i] += 1
        if n[i] == 0 or low[i] == row_begin[uint32(part[i]) + uint32(1)]:
            low[i] = -1
    return low


@parallel_kernel
def build_sparse_histograms_cpu(
    row_begin, row_end, cells, total_bins, zero_bins, rows, gpair, n_limbs, items, hist, n_threads
):  # fmt: skip
    """build_histograms_cpu (kernels/histogram.py) for a sparse page.

    row_begin, row_end : int64 (≥ n_rows,), IN. Row r lists cells[row_begin[r]:row_end[r]]. total_bins : of the features that they
        belong to; hist may have more.
    zero_bins : int32 (total_bins + n_features,) or (0,), IN. For each cell, the bin of zero of its feature; empty where absent
        cells are missing. Others as there. list_units says how threads share the items of one slot.
    """
    units = list_units(row_begin, row_end, cells, int64(total_bins), zero_bins, rows, items, n_threads)
    counters, of_rows = new_counters(n_threads), (row_begin, row_end, cells, int64(total_bins), zero_bins, rows)
    locks = zeros((items.shape[0], N_LOCKS), np.uint8)
    launch(n_threads, _build_units, (counters, *of_rows, gpair, n_limbs, items, units, locks, hist))


@parallel_kernel.part
def list_units(row_begin, row_end, cells, total_bins, zero_bins, rows, items, n_threads):
    """What is built by one thread, int64 (n, 5): items units[:, 0] to units[:, 1], which are of one slot and output, of their
    cells those from units[:, 2] on, below units[:, 3], and how they are added to the histogram: units[:, 4].

    Atomic addition takes five times as long as any other, so threads that share a histogram do it only where nothing else pays:

        APART     each adds up a copy of the histogram, and then that: where its bins are few, and fewer than the cells of an item
        ALONE     a range of columns, of about as many cells as the others': each thread goes through all rows
        TOGETHER  atomically: rows of fewer cells than there are threads, as finding where a range begins takes as long as adding
                  one cell atomically

    Two threads of an AMD EPYC (Zen 5), ms a round of depth 6: 200k × 2000, ten cells a row, atomically 41, by ranges 38;
    1M × 100, five cells a row, by ranges 50, by copies 32.
    """
    units, n_units, i = empty((items.shape[0] * n_threads, 5), np.int64), 0, 0
    counts, bounds = empty(BUCKETS, np.int64), empty(n_threads + 1, np.int64)
    while i < items.shape[0]:
        end = i + 1
        is_shared, slot, own = items[i, 6] == ADD_SHARED, items[i, 0], items[i, 1]
        while is_shared and end < items.shape[0] and items[end, 0] == slot and items[end, 1] == own:
            end += 1
        n_parts, how = end - i, ALONE
        if is_shared:
            part = rows[items[i, 3], items[i, 4] : items[end - 1, 5]]
            row_cells = _count_sample(row_begin, row_end, cells, total_bins, part, counts)
            how = TOGETHER
            if total_bins <= min(row_cells * float64(part.size) / float64(end - i), float64(MOST_COPIED)):
                n_parts, how = min(n_threads, end - i), APART
            elif row_cells >= n_threads:
                n_parts, how = n_threads, ALONE
                _choose_ranges(counts, total_bins, zero_bins, bounds)
        for k in range(n_parts):
            unit = units[n_units]
            unit[0], unit[1] = i + (end - i) * k // n_parts, i + (end - i) * (k + 1) // n_parts
            unit[2], unit[3], unit[4] = 0, total_bins, how
            if is_shared and how == ALONE:
                unit[0], unit[1], unit[2], unit[3] = i, end, bounds[k], bounds[k + 1]
            n_units += 1
        i = end
    return units[:n_units]


@parallel_kernel.part
def _count_sample(row_begin, row_end, cells, total_bins, rows, counts):
    """Cells of a row, on average, of some of these. counts : int64 (BUCKETS,), OUT. How many lie in each part of all bins."""
    n_rows, n = min(rows.size, int64(SAMPLED_ROWS)), int64(0)
    counts[:] = 0
    for i in range(n_rows):
        row = rows[rows.size * i // n_rows]
        for at in range(row_begin[row], row_end[row]):
            if cells[at] < total_bins:
                counts[int64(cells[at]) * BUCKETS // total_bins] += 1
                n += 1
    return float64(n) / float64(max(n_rows, int64(1)))


@parallel_kernel.part
def _choose_ranges(counts, total_bins, zero_bins, bounds):
    """Where ranges of about as many cells begin, and the last one ends: bounds, int64, OUT. Where zeros are absent, a feature
    does not lie in two of them."""
    n_ranges, k, below, n = bounds.size - 1, 1, int64(0), int64(0)
    for bucket in range(BUCKETS):
        n += counts[bucket]
    bounds[0] = 0
    for bucket in range(BUCKETS):
        while k < n_ranges and below * n_ranges >= n * k:
            bound = total_bins * bucket // BUCKETS
            while zero_bins.size and 0 < bound < total_bins and zero_bins[bound] == zero_bins[bound - 1]:
                bound += 1
            bounds[k] = bound
            k += 1
        below += counts[bucket]
    bounds[k:] = total_bins


@parallel_kernel.part
def _build_units(
    thread, counters, row_begin, row_end, cells, total_bins, zero_bins, rows, gpair, n_limbs, items, units, locks, hist
):  # fmt: skip
    copy = empty(0, np.int64)
    while True:
        claimed = claim_near(counters, thread, units.shape[0])
        if claimed >= units.shape[0]:
            return
        unit = units[claimed]
        item, last, low, high, how = items[unit[0]], items[unit[1] - 1], unit[2], unit[3], unit[4]
        output, all_sums, own = item[2], hist[item[0], item[1]].reshape(-1), rows[item[3], item[4] : last[5]]
        if how == APART and copy.size == 0:
            copy = zeros(2 * total_bins, np.int64)
        sums = copy if how == APART else all_sums
        if item[6] == ASSIGN:
            sums[:] = 0
        for limb in range(n_limbs[output]):
            shift = int64(LIMB_BITS * (n_limbs[output] - 1 - limb))
            pairs, is_shared = gpair[output, limb], how == TOGETHER
            _add_rows(row_begin, row_end, cells, total_bins, low, high, zero_bins, own, pairs, shift, is_shared, sums)
        if how == APART:
            _add_copy(thread, copy, locks[item[0] % locks.shape[0]], all_sums)


@parallel_kernel.part
def _add_copy(thread, copy, locks, sums):
    """And clear it. locks : of parts of ``sums``, where each thread begins with another."""
    n = copy.size
    for k in range(locks.size):
        part = (k + thread) % locks.size
        lock(locks, part)
        for i in range(n * part // locks.size, n * (part + 1) // locks.size):
            sums[i] += copy[i]
            copy[i] = 0
        unlock(locks, part)


@parallel_kernel.part
def _add_rows(row_begin, row_end, cells, total_bins, low, high, zero_bins, rows, gpair, shift, is_shared, sums):
    """Of the cells from ``low`` on, below ``high``."""
    total_grad, total_hess = int64(0), int64(0)
    for row in rows:
        pair = gpair[row]
        grad, hess = int64(pair >> int32(16)) << shift, (int64(pair) & int64(0xFFFF)) << shift
        total_grad += grad
        total_hess += hess
        begin, end = row_begin[row], row_end[row]
        first = begin if low == 0 else first_at_least(cells, begin, end, low)
        for at in range(first, end if high == total_bins else first_at_least(cells, first, end, high)):
            cell = int64(cells[at])
            if cell < total_bins:
                _add(sums, cell, grad, hess, is_shared)
                if zero_bins.size:
                    _add(sums, int64(zero_bins[cell]), -grad, -hess, is_shared)
        if zero_bins.size:
            at = end - 1
            while at >= begin and cells[at] >= total_bins:  # of missing values, which come last
                zero = int64(zero_bins[cells[at]])
                if low <= zero < high:
                    _add(sums, zero, -grad, -hess, is_shared)
                at -= 1
    if zero_bins.size:
        for f in range(zero_bins.size - total_bins):
            zero = int64(zero_bins[total_bins + f])
            if low <= zero < high:
                _add(sums, zero, total_grad, total_hess, is_shared)


@scalar
def _add(sums, b, grad, hess, is_shared):
    if is_shared:
        add_atomic(sums, int64(2) * b, grad)
        add_atomic(sums, int64(2) * b + int64(1), hess)
    else:
        sums[int64(2) * b] += grad
        sums[int64(2) * b + int64(1)] += hess


@parallel_kernel
def predict_cells_cpu(
    row_begin, cells, offsets, absent, rows, trees, leaf_values, tree_begin, tree_groups, sets, margin, n_threads
):  # fmt: skip
    """predict_codes_cpu for some rows of a sparse page. offsets, absent as mark_sparse_rows_cpu."""
    counter = zeros(1, np.int64)
    args = (
        counter, row_begin, cells, offsets, absent, rows, trees, leaf_values, tree_begin, tree_groups, sets, margin,
    )  # fmt: skip
    launch(n_threads, _predict_cell_blocks, args)


@parallel_kernel.part
def _predict_cell_blocks(
    counter, row_begin, cells, offsets, absent, rows, trees, leaf_values, tree_begin, tree_groups, sets, margin
):  # fmt: skip
    total_bins = offsets[offsets.size - 1]
    while True:
        begin = claim(counter) * ROW_BLOCK
        if begin >= rows.size:
            return
        for t in range(tree_begin.size):
            root = tree_begin[t]
            for row in rows[begin : begin + ROW_BLOCK]:
                node = int32(0)
                while trees[root + node].feature >= 0:
                    at = trees[root + node]
                    first, n_bins = offsets[at.feature], offsets[at.feature + 1] - offsets[at.feature]
                    code = code_of_row(
                        cells, row_begin[row], row_begin[row + 1], first, n_bins, total_bins + at.feature, absent[at.feature]
                    )
                    node = at.left + int32(not code_goes_left(code, trees, root + node, n_bins, sets))
                for own in range(leaf_values.shape[1]):
                    group = tree_groups[t] + own
                    margin[group, row] = float32(margin[group, row] + leaf_values[root + node, own])


@parallel_kernel
def predict_sparse_cpu(
    row_begin, columns, values, missing, absent, n_features, trees, leaf_values, tree_begin, tree_groups, sets, margin, leaves,
    n_threads,
):  # fmt: skip
    """predict_values_cpu (kernels/predict.py) for sparse rows (SciPy's csr): the keys of the features that trees split on are
    written out for some rows at a time. Cells of other features go to column 0, which costs less than a branch.

    row_begin : integers (n_rows + 1,), IN. columns : integers (n,), IN, each once in a row. values : numbers (n,), IN.
    missing : float32. A value equal to it is missing, as NaN is. absent : float32. What a cell is that is not stored: NaN or 0.
    Returns False where a value is infinite or at least LARGEST in size, and not missing, as predict_values_cpu does.
    """
    is_large = zeros(1, np.bool_)
    column_of, features = used_features(trees, n_features, ROW_BLOCK)
    n_words = (features.size + 1) * ROW_BLOCK
    laid_out = lay_out(trees, leaf_values, tree_begin, column_of, missing_keys(n_features), True)
    forest = lay_out_forest(laid_out, leaf_values, tree_begin, n_words, row_begin.size - 1, sets, leaves)
    counter = zeros(1, np.int64)
    args = (
        counter, row_begin, columns, values, missing, absent, column_of, n_words, forest, leaf_values, tree_begin, tree_groups,
        sets, margin, leaves, is_large,
    )  # fmt: skip
    launch(n_threads, _predict_rows, args)
    return not is_large[0]


@parallel_kernel.part
def _predict_rows(
    counter, row_begin, columns, values, missing, absent, column_of, n_words, forest, leaf_values, tree_begin, tree_groups, sets,
    margin, leaves, is_large,
):  # fmt: skip
    n_rows, absent_key = row_begin.size - 1, value_key(absent, missing)
    keys, walk = key_columns(forest[-1]), new_walk(margin.shape[0])
    _clear_keys(keys, n_words, absent_key)
    while True:
        begin = claim(counter) * ROW_BLOCK
        if begin >= n_rows:
            return
        end = min(begin + ROW_BLOCK, n_rows)
        is_full = n_words < FILLED_PER_CELL * (row_begin[end] - row_begin[begin])
        for row in range(begin, end):
            for at in range(uint64(row_begin[row]), uint64(row_begin[row + 1])):
                x = float32(values[at])
                if (abs(x) >= float32(LARGEST)) & (x != missing):
                    is_large[0] = True
                key, place = value_key(x, missing), column_of[uint32(columns[at])] + uint64(row - begin)
                if is_full:
                    keys[place] = key
                else:
                    write_key(keys, n_words, place, key)
        if is_full:
            derive_keys(keys, n_words)
        add_leaves(keys, begin, end - begin, forest, leaf_values, tree_begin, tree_groups, sets, walk, margin, leaves)
        if is_full:
            _clear_keys(keys, n_words, absent_key)
        else:
            for row in range(begin, end):
                for at in range(uint64(row_begin[row]), uint64(row_begin[row + 1])):
                    write_key(keys, n_words, column_of[uint32(columns[at])] + uint64(row - begin), absent_key)


@parallel_kernel.part
def _clear_keys(keys, n_words, key):
    keys[:n_words], keys[n_words : 2 * n_words], keys[2 * n_words :] = key, uint32(key + uint32(1)), code_of_key(key)


# ---------------------------------------------------------------------------------------------------------------------
# CUDA. Histograms: a warp takes a row, its lanes the cells, and every cell is two atomic adds in the second-level cache; 24 bytes
# read per row and 4 per cell. Half of 700k rows of 75 cells: 26M cells, 0.1 GB, 0.02 ms at 4.8 TB/s, and 52M atomic adds.
# Partition and prediction: a binary search for every row (and level of a tree), a sector or two each.


@cuda_kernel(
    "row_begin: int64[:], row_end: int64[:], cells: int32[:], zero_bins: int32[:], rows: int32[:, :], gpair: int32[:, :, :], "
    "n_limbs: int32[:], offsets: int32[:], progress: PROGRESS[:], slices: SLICE[:], first_slice: int32[:], "
    "hist: int64[:, :, :, :]",
    registers=64,
)  # fmt: skip
def build_sparse_histograms_kernel(
    row_begin, row_end, cells, zero_bins, rows, gpair, n_limbs, offsets, progress, slices, first_slice, hist
):
    """build_sparse_histograms_cpu for the slices of list_build_items_kernel. A block strides over (part, output).

    offsets : int32 (n_features + 1,), IN. Others as there and in build_histograms_kernel (kernels/histogram_tiles.py).
    """
    partial = cuda.shared.array(32, int64)
    n_features, n_outputs, item = int64(offsets.size - 1), int64(hist.shape[1]), int64(cuda.blockIdx.x)
    total_bins = int64(offsets[n_features])
    while item < progress[0].n_items * n_outputs:
        part, own = item // n_outputs, item % n_outputs
        number = int64(first_slice[part])
        while number < first_slice[part + 1]:
            slot, output, side = int64(slices[number].slot), int64(slices[number].output) + own, slices[number].side
            total_grad, total_hess = int64(0), int64(0)
            i = int64(slices[number].begin) + int64(cuda.threadIdx.x >> 5)
            while i < slices[number].end:
                row = rows[side, i]
                grad, hess, limb = int64(0), int64(0), int64(0)
                while limb < n_limbs[output]:
                    pair = gpair[output, limb, row]
                    grad = (grad << LIMB_BITS) + int64(pair >> 16)
                    hess = (hess << LIMB_BITS) + int64(pair & 0xFFFF)
                    limb += 1
                at = row_begin[row] + int64(lane_number())
                while at < row_end[row]:
                    cell = int64(cells[at])
                    if cell < total_bins:
                        cuda.atomic.add(hist, (slot, own, cell, 0), grad)
                        cuda.atomic.add(hist, (slot, own, cell, 1), hess)
                    if zero_bins.size > 0:
                        cuda.atomic.add(hist, (slot, own, zero_bins[cell], 0), -grad)
                        cuda.atomic.add(hist, (slot, own, zero_bins[cell], 1), -hess)
                    at += int64(32)
                if lane_number() == 0:
                    total_grad += grad
                    total_hess += hess
                i += int64(cuda.blockDim.x >> 5)
            if zero_bins.size > 0:  # the same for all threads
                total_grad, total_hess = block_sum(total_grad, partial), block_sum(total_hess, partial)
                feature = int64(cuda.threadIdx.x)
                while feature < n_features:
                    cuda.atomic.add(hist, (slot, own, zero_bins[total_bins + feature], 0), total_grad)
                    cuda.atomic.add(hist, (slot, own, zero_bins[total_bins + feature], 1), total_hess)
                    feature += int64(cuda.blockDim.x)
            number += 1
        item += int64(cuda.gridDim.x)


@cuda_kernel(
    "selected: int32[:], nodes: NODE[:], cats: uint32[:, :], row_begin: int64[:], cells: int32[:], offsets: int32[:], "
    "absent: int32[:], rows: int32[:, :], segments: int64[:, :], progress: PROGRESS[:], first_chunk: int64[:], moved: int64[:], "
    "counts: int64[:]",
    registers=112,
)  # fmt: skip
def move_sparse_rows_kernel(
    selected, nodes, cats, row_begin, cells, offsets, absent, rows, segments, progress, first_chunk, moved, counts
):
    """move_rows_kernel (kernels/partition.py) for a sparse page."""
    partial, counted, taken = cuda.shared.array(1, int64), cuda.shared.array(32, int32), cuda.shared.array(1, int64)
    total_bins = int64(offsets[offsets.size - 1])
    chunk = int64(cuda.blockIdx.x)
    while chunk < progress[0].n_items:
        owner = owner_by_block(first_chunk, progress[0].n_selected, chunk, partial)
        node = selected[owner]
        at = uint32(segments[node, 0] + (chunk - first_chunk[owner]) * CHUNK_ROWS)
        chunk_end = min(uint32(at + uint32(CHUNK_ROWS)), uint32(segments[node, 1]))
        feature = int64(nodes[node].feature)
        first_cell, n_bins = int64(offsets[feature]), int64(offsets[feature + 1]) - int64(offsets[feature])
        while at < chunk_end:
            end = min(chunk_end, uint32(at + uint32(cuda.blockDim.x) * uint32(ROWS_PER_THREAD)))
            rows_here = rows_of_thread(rows, uint32(segments[node, 2]), first_of_thread(at), end)
            goes_left, k = uint32(0), uint32(0)
            while k < rows_here[4]:
                row = int64(row_of(rows_here, k))
                code = code_of_row(
                    cells, row_begin[row], row_begin[row + 1], first_cell, n_bins, total_bins + feature, int64(absent[feature])
                )
                if split_goes_left(code, nodes, cats, node, n_bins):
                    goes_left = uint32(goes_left | uint32(uint32(1) << k))
                k = uint32(k + uint32(1))
            move_rows(rows_here, goes_left, at, end, owner, node, nodes, rows, segments, moved, counts, counted, taken)
            at = end
        chunk += int64(cuda.gridDim.x)


@cuda_kernel(
    "row_begin: int64[:], columns: int32[:], values: float32[:], missing: float32, absent: float32, trees: FLAT_NODE[:], "
    "leaf_values: float32[:, :], tree_begin: int64[:], tree_groups: int32[:], sets: uint32[:], margin: float32[:, :], "
    "leaves: int32[:, :]",
    registers=48,
)  # fmt: skip
def predict_sparse_kernel(
    row_begin, columns, values, missing, absent, trees, leaf_values, tree_begin, tree_groups, sets, margin, leaves
):  # fmt: skip
    """predict_sparse_cpu, a row a thread. columns : ascending within a row. leaves : int32 (n_rows or 0, n_trees), OUT."""
    row = int64(thread_number())
    while row < row_begin.size - 1:
        for t in range(tree_begin.size):
            root, node = tree_begin[t], int32(0)
            while trees[root + node].feature >= 0:
                feature = trees[root + node].feature
                low = first_at_least(columns, row_begin[row], row_begin[row + 1], feature)
                x = absent
                if low < row_begin[row + 1] and columns[low] == feature:
                    x = values[low]
                at = trees[root + node]
                goes_left = value_goes_left(x, trees, root + node, missing, sets)
                node = int32(at.left + (int32(0) if goes_left else int32(1)))
            for own in range(leaf_values.shape[1]):
                group = tree_groups[t] + own
                margin[group, row] = float32(margin[group, row] + leaf_values[root + node, own])
            if leaves.shape[0] > 0:
                leaves[row, t] = node
        row += int64(n_threads())


@cuda_kernel(
    "row_begin: int64[:], cells: int32[:], offsets: int32[:], absent: int32[:], rows: int32[:], n_listed: int64[:], "
    "trees: FLAT_NODE[:], leaf_values: float32[:, :], tree_begin: int64[:], tree_groups: int32[:], sets: uint32[:], "
    "first_row: int64, margin: float32[:, :]",
    registers=64,
)  # fmt: skip
def predict_cells_kernel(
    row_begin, cells, offsets, absent, rows, n_listed, trees, leaf_values, tree_begin, tree_groups, sets, first_row, margin
):  # fmt: skip
    """predict_cells_cpu, a row a thread. rows, n_listed as predict_codes_kernel."""
    total_bins = int64(offsets[offsets.size - 1])
    i = int64(thread_number())
    while i < n_listed[1]:
        row = int64(rows[rows.size - 1 - i])
        for t in range(tree_begin.size):
            root, node = tree_begin[t], int32(0)
            while trees[root + node].feature >= 0:
                feature = int64(trees[root + node].feature)
                first, n_bins = int64(offsets[feature]), int64(offsets[feature + 1]) - int64(offsets[feature])
                code = code_of_row(
                    cells, row_begin[row], row_begin[row + 1], first, n_bins, total_bins + feature, int64(absent[feature])
                )
                goes_left = code_goes_left(code, trees, root + node, n_bins, sets)
                node = int32(trees[root + node].left + (int32(0) if goes_left else int32(1)))
            for own in range(leaf_values.shape[1]):
                group = tree_groups[t] + own
                margin[group, first_row + row] = float32(margin[group, first_row + row] + leaf_values[root + node, own])
        i += int64(n_threads())
