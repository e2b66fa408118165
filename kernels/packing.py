"""Several features in one code of a record, and their histograms back out of it (data/packing.py chooses which).

    code[row, group]     = Σ lut[f][code[row, f]]        over the group's features f, always below 256
    hist[slot, o, f, b]  = Σ packed[slot, o, c]          over the codes c of f's group that stand for bin b

Every row has exactly one code in every group, so the sums of any group add up to those of the node. One bin of each feature, as
a rule its most frequent, is therefore what the others leave of them: 44 columns of ones and zeros in one group of 205 codes take
some 400 sums, not 44 × 205. All of it is integers, so the histograms are those of unpacked records to the bit.
"""

import numpy as np
from numba import int64, uint8, uint32, uint64

from gpuboost.kernels.allocation import empty, zeros
from gpuboost.kernels.cuda_common import cuda_kernel, lane_number, n_threads, n_warps, thread_number, warp_number, warp_sum
from gpuboost.kernels.histogram import ADD_SHARED, ASSIGN, BYTE_STRIDE, add_packed_part
from gpuboost.kernels.jit import claim, kernel, launch, lock, parallel_kernel, scalar, unlock
from gpuboost.kernels.scalar import split_goes_left
from gpuboost.kernels.shares import claim_near, new_counters

ROW_BLOCK = 512  # rows whose records stay in the first-level cache while their columns are added to them
FEATURE_BLOCK = 64  # features of one work item of the undoing, which adds up one group first; of one lock, 1 to 2 µs


@parallel_kernel
def pack_records_cpu(columns, luts, members, first_member, records, n_threads):
    """Write the packed records of a page.

    columns : uint8 (n_features, n_rows), IN.
    luts : uint8 (n_features, 256), IN. What each code of a feature adds to the code of its group.
    members : int32 (n_features,), IN. Features by group; first_member : int32 (n_groups + 1,), IN. Where each group's begin.
    records : uint8 (n_rows, width ≥ n_groups), INOUT. Zero on entry; what pads it stays so.
    """
    counter = zeros(1, np.int64)
    launch(n_threads, _pack_blocks, (counter, columns, luts, members, first_member, records))


@parallel_kernel.part
def _pack_blocks(counter, columns, luts, members, first_member, records):
    n_rows = columns.shape[1]
    while True:
        begin = claim(counter) * ROW_BLOCK
        if begin >= n_rows:
            return
        end = min(begin + ROW_BLOCK, n_rows)
        for group in range(first_member.size - 1):
            for m in range(first_member[group], first_member[group + 1]):
                column, lut = columns[members[m]], luts[members[m]]
                for row in range(begin, end):
                    records[row, group] += uint8(lut[column[row]])


@parallel_kernel
def pack_cells_cpu(row_begin, cells, groups, steps, base, records, n_threads):
    """Write the packed records of a sparse page (kernels/sparse.py): what a row lists is a step away from the record of none.

    row_begin : int64 (n_rows + 1,), cells : uint16 or int32 (n_cells,), IN.
    groups : int32, steps : uint8 (total_bins + n_features,), IN. For each cell its feature's group, and what it adds there
        modulo 256: lut[f][code] − lut[f][code of the cells that are not listed].
    base : uint8 (n_groups,), IN. Record of a row that lists nothing. records : uint8 (n_rows, width ≥ n_groups), OUT.
    """
    counter = zeros(1, np.int64)
    launch(n_threads, _pack_cells, (counter, row_begin, cells, groups, steps, base, records))


@parallel_kernel.part
def _pack_cells(counter, row_begin, cells, groups, steps, base, records):
    while True:
        begin = claim(counter) * ROW_BLOCK
        if begin >= records.shape[0]:
            return
        for row in range(begin, min(begin + ROW_BLOCK, records.shape[0])):
            for group in range(records.shape[1]):
                records[row, group] = base[group] if group < base.size else uint8(0)
            for at in range(row_begin[row], row_begin[row + 1]):
                records[row, groups[cells[at]]] += steps[cells[at]]


@kernel
def take_rows_cpu(rows, taken):
    """Mark some rows as taken unless one of them is already; returns whether it did.

    rows : int32 (n,), IN. taken : uint8 (at least n_rows / 8,), INOUT. A bit for each row.
    """
    for row in rows:
        if taken[row >> 3] >> (row & 7) & 1:
            return False
    for row in rows:
        taken[row >> 3] |= uint8(1 << (row & 7))
    return True


@parallel_kernel
def mark_packed_rows_cpu(
    selected, nodes, cats, chunks, records, groups, group_offsets, offsets, rest, first_source, sources, rows, segments,
    is_left, n_threads,
):  # fmt: skip
    """mark_rows_cpu (kernels/partition.py) by the packed records of a sparse page: one byte of a row instead of a search among
    its cells. Measured on one core of an AMD EPYC, 500,000 rows of 20 cells: 60 ms a tree without, 9 so.

    records : uint8 (n_rows, width), IN. groups : int32 (n_features,), IN. Each feature's group.
    group_offsets : int32 (n_groups + 1,), IN. First packed code of each. Others as there, or in unpack_histograms_cpu.
    """
    args = (
        new_counters(n_threads), selected, nodes, cats, chunks, records, groups, group_offsets, offsets, rest, first_source,
        sources, rows, segments, is_left,
    )  # fmt: skip
    launch(n_threads, _mark_chunks, args)


@parallel_kernel.part
def _mark_chunks(
    thread, counters, selected, nodes, cats, chunks, records, groups, group_offsets, offsets, rest, first_source, sources, rows,
    segments, is_left,
):  # fmt: skip
    goes_left = empty(256, np.uint8)  # by code of the group
    while True:
        item = claim_near(counters, thread, chunks.shape[0])
        if item >= chunks.shape[0]:
            return
        split, begin, end = selected[chunks[item, 0]], chunks[item, 1], chunks[item, 2]
        node = nodes[split]
        feature, group = node.feature, groups[node.feature]
        first, n_bins = offsets[feature], offsets[feature + 1] - offsets[feature]
        goes_left[:] = split_goes_left(rest[feature], nodes, cats, split, n_bins)
        for code in range(n_bins + 1):
            for s in range(first_source[first + feature + code], first_source[first + feature + code + 1]):
                goes_left[sources[s] - group_offsets[group]] = split_goes_left(code, nodes, cats, split, n_bins)
        n_left, part, marks = int64(0), rows[segments[split, 2], begin:end], is_left[begin:end]
        for i in range(part.size):
            goes = goes_left[records[uint32(part[i]), uint32(group)]]
            marks[i] = goes
            n_left += int64(goes)
        chunks[item, 3] = n_left


@parallel_kernel
def unpack_histograms_cpu(packed, n_total, features, own_offsets, offsets, rest, first_source, sources, hist, n_threads):
    """Write the histograms of features from those of groups.

    packed : int64 (n_slots, n_outputs, packed codes, 2), IN. n_total : codes of the first group, whose sums are added up.
    features : int32 (k,), IN. Those to write; own_offsets : int32 (k + 1,), IN. Where their bins begin in hist.
    offsets : int32 (n_features + 1,), IN. First bin of each feature of the table.
    rest : int32 (n_features,), IN. Code of the feature whose sums are what the others leave; −1 where all have sources. It may be
        the missing code, which has no bin.
    first_source : int32 (total_bins + n_features + 1,), IN. Code c of feature f, n_bins[f] for missing, has the packed codes
        sources[first_source[i]:first_source[i + 1]], i = offsets[f] + f + c; rest has none. sources : int32, IN.
    hist : int64 (n_slots, n_outputs, own bins or more, 2), OUT.
    """
    counter = zeros(1, np.int64)
    launch(n_threads, _unpack, (counter, packed, n_total, features, own_offsets, offsets, rest, first_source, sources, hist))


@parallel_kernel.part
def _unpack(counter, packed, n_total, features, own_offsets, offsets, rest, first_source, sources, hist):
    n_outputs = hist.shape[1]
    n_blocks = (features.size + FEATURE_BLOCK - 1) // FEATURE_BLOCK
    while True:
        item = claim(counter)
        if item >= hist.shape[0] * n_outputs * n_blocks:
            return
        slot, output, block = item // (n_outputs * n_blocks), item // n_blocks % n_outputs, item % n_blocks
        own, out = packed[slot, output], hist[slot, output]
        total_grad, total_hess = int64(0), int64(0)
        for code in range(n_total):
            total_grad += own[code, 0]
            total_hess += own[code, 1]
        for c in range(block * FEATURE_BLOCK, min((block + 1) * FEATURE_BLOCK, features.size)):
            feature, to = features[c], int64(own_offsets[c])
            first, n_bins = int64(offsets[feature]), int64(offsets[feature + 1]) - int64(offsets[feature])
            rest_grad, rest_hess = total_grad, total_hess
            for code in range(n_bins + 1):
                grad, hess = int64(0), int64(0)
                for s in range(first_source[first + feature + code], first_source[first + feature + code + 1]):
                    grad += own[sources[s], 0]
                    hess += own[sources[s], 1]
                rest_grad -= grad
                rest_hess -= hess
                if code < n_bins:
                    out[to + code, 0] = grad
                    out[to + code, 1] = hess
            if 0 <= rest[feature] < n_bins:
                out[to + rest[feature], 0] = rest_grad
                out[to + rest[feature], 1] = rest_hess


@parallel_kernel
def build_unpacked_cpu(words, rows, gpair, features, own_offsets, packing, items, hist, private, n_threads):
    """Build the histograms of features from packed records, in one page, of one output and limb. What is added up is both sums at
    once, g·2^32 + h, until a feature's bin is written (kernels/histogram.py).

    words, rows, gpair, items, hist : as build_histograms_cpu; no item goes on with another page's.
    features, own_offsets : as unpack_histograms_cpu.
    packing : groups, group_offsets, offsets, rest, first_source, sources, as mark_packed_rows_cpu; and for tree_steps.py alone
        whether records mark the rows, too.
    private : int64 (n_threads, codes of whole words · BYTE_STRIDE or more), SCRATCH, zero on entry and on return.
    """
    n_blocks = (features.size + FEATURE_BLOCK - 1) // FEATURE_BLOCK
    n_busy, locks = min(n_threads, items.shape[0]), zeros((hist.shape[0], n_blocks), np.uint8)
    args = new_counters(n_busy), words, rows, gpair, features, own_offsets, packing, items, hist, locks, private
    launch(n_busy, _build_unpacked, args)


@parallel_kernel.part
def _build_unpacked(thread, counters, words, rows, gpair, features, own_offsets, packing, items, hist, locks, private):
    group_offsets, private = packing[1], private[thread]
    n_groups = group_offsets.size - 1
    while True:
        claimed = claim_near(counters, thread, items.shape[0])
        if claimed >= items.shape[0]:
            return
        item = items[claimed]
        slot, pairs, own_rows, mode = item[0], gpair[item[2], 0], rows[item[3], item[4] : item[5]], item[6]
        add_packed_part(words.reshape(-1), uint64(words.shape[1]), uint64(0), own_rows, pairs, n_groups, private)
        _undo_packed(private, features, own_offsets, packing, mode, hist[slot, 0], locks[slot])
        for group in range((n_groups + 7) // 8 * 8):  # what pads a record has code 0
            n_codes = group_offsets[group + 1] - group_offsets[group] if group < n_groups else 1
            private[group * BYTE_STRIDE : group * BYTE_STRIDE + n_codes] = 0


@parallel_kernel.part
def _undo_packed(private, features, own_offsets, packing, mode, hist, locks):
    """hist : int64 (bins, 2), OUT of ASSIGN, else INOUT. locks : uint8, INOUT, of blocks of features, one after the other, so
    that threads that come together follow each other."""
    groups, group_offsets, offsets, rest, first_source, sources = packing[:6]
    total = int64(0)
    for code in range(group_offsets[1]):
        total += private[code]
    for block in range(locks.size):
        if mode == ADD_SHARED:
            lock(locks, block)
        for c in range(block * FEATURE_BLOCK, min((block + 1) * FEATURE_BLOCK, features.size)):
            feature, to = features[c], uint64(own_offsets[c])
            first, n_bins = int64(offsets[feature]), int64(offsets[feature + 1]) - int64(offsets[feature])
            own = private[groups[feature] * BYTE_STRIDE - group_offsets[groups[feature]] :]
            left = total
            for code in range(n_bins + 1):
                packed, at = int64(0), first + feature + code
                for s in range(first_source[at], first_source[at + 1]):
                    packed += own[uint64(sources[s])]
                left -= packed
                if code < n_bins and code != rest[feature]:
                    _put(packed, mode, hist, to + uint64(code))
            if 0 <= rest[feature] < n_bins:
                _put(left, mode, hist, to + uint64(rest[feature]))
        if mode == ADD_SHARED:
            unlock(locks, block)


@scalar
def _put(packed, mode, hist, at):
    if mode == ASSIGN:
        hist[at, 0], hist[at, 1] = int64(0), int64(0)
    hist[at, 0] += packed >> int64(32)
    hist[at, 1] += packed & int64(0xFFFFFFFF)


# ---------------------------------------------------------------------------------------------------------------------
# CUDA


@cuda_kernel(
    "columns: uint8[:, :], luts: uint8[:, :], members: int32[:], first_member: int32[:], words: uint32[:, :]", registers=48
)
def pack_records_kernel(columns, luts, members, first_member, words):
    """pack_records_cpu; words : uint32 (n_rows, width / 4), OUT, the records four bytes at a time.

    Grid: a thread strides over rows, and the threads of a warp read neighbours in a column. Once per table: n_features bytes read
    and a record written per row, 11M × (54 + 16) bytes = 0.2 ms at 4.8 TB/s.
    """
    n_groups = int64(first_member.size) - 1
    row = int64(thread_number())
    while row < columns.shape[1]:
        for word in range((n_groups + 3) // 4):
            packed = uint32(0)
            for group in range(4 * word, min(4 * word + 4, n_groups)):
                code = uint32(0)
                for m in range(first_member[group], first_member[group + 1]):
                    code = uint32(code + uint32(luts[members[m], columns[members[m], row]]))
                packed = uint32(packed | uint32(code << uint32(8 * (group - 4 * word))))
            words[row, word] = packed
        row += int64(n_threads())


@cuda_kernel(
    "first_slot: int64, n_slots: int64, packed: int64[:, :, :, :], n_total: int64, features: int32[:], own_offsets: int32[:], "
    "offsets: int32[:], rest: int32[:], first_source: int32[:], sources: int32[:], hist: int64[:, :, :, :]",
    registers=48,
)
def unpack_histograms_kernel(
    first_slot, n_slots, packed, n_total, features, own_offsets, offsets, rest, first_source, sources, hist
):
    """unpack_histograms_cpu for the slots from first_slot on; a slot has the same number in packed and hist.

    Grid: a warp strides over (slot, output, feature), its lanes over the codes. Each bin of the output is written once: 16 bytes,
    and 16 read per packed code, most of them in the second-level cache.
    """
    n_features, n_outputs = int64(features.size), int64(hist.shape[1])
    item = warp_number()
    while item < n_slots * n_outputs * n_features:
        column, output, slot = item % n_features, item // n_features % n_outputs, first_slot + item // (n_features * n_outputs)
        feature, to = int64(features[column]), int64(own_offsets[column])
        first, n_bins, kept = int64(offsets[feature]), int64(offsets[feature + 1] - offsets[feature]), int64(rest[feature])
        rest_grad, rest_hess = int64(0), int64(0)
        code = int64(lane_number())
        while kept >= 0 and code < n_total:
            rest_grad += packed[slot, output, code, 0]
            rest_hess += packed[slot, output, code, 1]
            code += 32
        code = int64(lane_number())
        while code <= n_bins:
            grad, hess = int64(0), int64(0)
            for s in range(first_source[first + feature + code], first_source[first + feature + code + 1]):
                grad += packed[slot, output, sources[s], 0]
                hess += packed[slot, output, sources[s], 1]
            rest_grad -= grad
            rest_hess -= hess
            if code < n_bins and code != kept:  # that one is the first lane's
                hist[slot, output, to + code, 0] = grad
                hist[slot, output, to + code, 1] = hess
            code += 32
        rest_grad, rest_hess = warp_sum(rest_grad), warp_sum(rest_hess)
        if lane_number() == 0 and 0 <= kept and kept < n_bins:
            hist[slot, output, to + kept, 0] = rest_grad
            hist[slot, output, to + kept, 1] = rest_hess
        item += n_warps()
