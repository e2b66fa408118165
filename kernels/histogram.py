"""Sums of gradients and hessians per bin, for the nodes of a level: the loop that takes most of the time of training.

    hist[slot, output, offset[f] + code[row, f]] += (q_g, q_h)   for every row of the node and feature f, unless f is missing

Missing values are not accumulated: their sums are those of the node minus those of all bins (Algorithm 3). The sibling of
a node that was built is parent − built, exact because these are integers.

Where features share a code (kernels/packing.py), what is said of a feature here holds for a group of them.

Gradient and hessian are added in one go as a packed int64, g·2^32 + h, into a small private histogram that stays near (256 bins
× 8 bytes = 2 KB a feature), which is split and added to the int64 histogram at the end of an item, of at most 2^16 rows: before
either half can overflow. Floor: one store per update. Indices are unsigned: for a signed one numba adds a test whether it counts
from the end, which cost a quarter of the time.

Of a record of one-byte codes (one row, all features, padded) 32 bytes are held in registers while the pair is added at their
codes, and the records of rows to come are prefetched; of two limbs both are added in one go. Two-byte codes are gathered, a word
of 8 bytes into each of a few planes, and added word by word. 450k × 28, AMD EPYC, one thread, ns a row of a level, by planes ->
in registers: one limb 12.1 -> 12.1 at random codes, 12 -> 9.7 at skewed ones, 16 -> 10 at 80 % zeros; two limbs 23 -> 13. Wide
records, which begin with a line: 100k × 60, one thread and two (Zen 5), 6.2 -> 5.9 and 3.6 -> 3.3 ms a round, 70k × 500 40 -> 36
and 23 -> 20. Thousands of rows for 14 features, then for the others, so that the private histograms stay in 32 KB: 15.3 -> 17.5
at random codes (Zen 3).

Loops over codes must be unrolled: 28 ms a round of 450k × 28, 41 where they are not. Their bounds are constants to LLVM only if
it inlines the function, as it is told to; as constants to numba they would be, too, but compile the function for each.

Of a tree of several outputs, up to LANES are added together: their packed pairs lie side by side, in the private histograms, too,
so that one addition of 64 bytes, or for up to four of 32, does for a code what one of 8 does for one output. They are read from a
copy of the pairs where those of a row are side by side, so that a row of a deep node touches one line, not one an output: of 28
codes and 16 outputs, ns a row of all, of every eighth and every 64th row, 79, 97, 130 -> 64, 71, 68 (Intel Xeon, busy).
"""

import math
from functools import cache

import numpy as np
from numba import float32, int32, int64, uint32, uint64

from gpuboost.kernels.addresses import add_at_byte
from gpuboost.kernels.allocation import empty, zeros
from gpuboost.kernels.cuda_common import (
    ONE_BLOCK,
    block_prefix,
    block_sum,
    cuda,
    cuda_kernel,
    device_function,
    lane_number,
    owner_of,
)
from gpuboost.kernels.jit import (
    add_eight,
    add_four,
    add_two,
    inlined_scalar,
    kernel,
    launch,
    lock,
    parallel_kernel,
    prefetch,
    scalar,
    unlock,
)
from gpuboost.kernels.nodes import count_rows
from gpuboost.kernels.quantise import LIMB_BITS
from gpuboost.kernels.shares import claim_near, claim_rows, new_counters

GATHER_ROWS = 1024  # rows copied side by side before they are added: planes of 8 KB
GROUP_WORDS = 16  # words of one work item: of private histograms as much stays in the second-level cache; of several outputs a
# quarter, which is as much of FEW_LANES and twice as much of LANES
FLUSH_ROWS = 65536  # |g| ≤ 2^15 and h < 2^16 keep both halves of a packed sum inside 32 bits for so many rows
MIN_SLICE_ROWS = 8192
PACKED_ROWS = 1024  # of a slice of a node: its packed sums take as long to add up as so many rows. In slices 20,000 × 7 takes two
# threads of an AMD EPYC 0.225 ms a round, 0.25 without
BYTE_STRIDE = 264  # bins of a private histogram for one-byte codes. With 256, equal codes of features lie multiples of 4 KB
# apart, and the CPU takes loads to depend on stores that they do not: 77 ns a row with 80 % zeros, 10 so (AMD EPYC)
REGISTERS = 4  # words of a record of one-byte codes that are added together
LINE_WORDS = 8  # of a cache: of those that are gathered every eighth word of a group is prefetched
AHEAD = 32  # rows whose records are prefetched: 450,000 × 28, ms of histograms a tree, 8, 16, 32 or 64 rows 9.0, 7.5, 6.8, 6.8
# (AMD EPYC, Zen 5)
LANES, FEW_LANES = 8, 4  # outputs added together, at most; of up to four as many as add_four adds. Of 8 codes, ns a row, output:
# 9.9 one by one, 4.5 by four (AMD EPYC); of 28 codes and 16 outputs, ns a row: 56 by four, 44 by eight (Intel Xeon with AVX-512)
CODES_TOGETHER = 4  # of a word, whose lanes are added in one pass, to private histograms of 66 KB. Of 28 codes and 16 outputs, ns
# a row: 71 by two, 64 by four, 74 all at once; by fewer lanes 90 by four, 98 by eight (Intel Xeon, 48 KB of first-level cache)
LAYOUT_ROWS = 512  # rows whose pairs are laid out by row together

ASSIGN, ADD, ADD_SHARED = 0, 1, 2  # what a work item does to its slot; ADD_SHARED: other threads may add to it at the same time


def record_bytes(n_codes: int) -> int:
    """Bytes of a record of so many bytes of codes: 8, 16 or a multiple of 32. No record of up to 32 bytes then crosses a sector
    of GPU memory (32 bytes) or a cache line, and none is read in more of them than it fills."""
    return 8 if n_codes <= 8 else 16 if n_codes <= 16 else -(-n_codes // 32) * 32


def packed_shape(n_codes: int) -> tuple[int, int]:
    """Of a node's histogram that stays packed: a row for each code of whole words of one-byte codes."""
    return -(-n_codes // 8) * 8, BYTE_STRIDE


@kernel
def list_build_items(
    build, nodes, segments, first_output, n_limbs, most_lanes, is_first_page, n_threads, min_slice_rows, first_slot, hist
):  # fmt: skip
    """The work items of one page: int64 (n_items, 8), see build_histograms_cpu.

    An item has a quarter of a thread's share of the rows, but at least min_slice_rows, and at most FLUSH_ROWS.

    build : int32 (n,), IN. Nodes to build. segments : int64 (n_nodes, 3), IN. Their rows in this page.
    n_limbs : int32 (n_outputs,), IN. Outputs of two limbs are added one by one, up to most_lanes of the others together.
    first_slot : slot of the nodes' records that is row 0 of hist.
    hist : int64 (n_slots, leaf_size, total_bins, 2), OUT. Zeroed in the first page where several items will add.
    """
    n_rows, n_items = count_rows(build, segments), 0
    slice_rows = min(max(n_rows // (4 * n_threads), int64(min_slice_rows)), int64(FLUSH_ROWS))
    items = empty(((n_rows // slice_rows + build.size) * hist.shape[1], 8), np.int64)
    for i in range(build.size):
        node = build[i]
        begin, end, side = segments[node, 0], segments[node, 1], segments[node, 2]
        n_slices, slot = max(int64(1), (end - begin + slice_rows - 1) // slice_rows), nodes[node].slot - first_slot
        if n_slices > 1 and is_first_page:
            hist[slot] = 0
        first, own = first_output[nodes[node].tree], 0
        while own < hist.shape[1]:
            lanes = 1
            most = min(most_lanes, hist.shape[1] - own) if n_limbs[first + own] == 1 else 1
            while lanes < most and n_limbs[first + own + lanes] == 1:
                lanes += 1
            for part in range(n_slices):
                item = items[n_items]
                item[0], item[1] = slot, own
                item[2] = first + own
                item[3] = side
                item[4] = begin + (end - begin) * part // n_slices
                item[5] = begin + (end - begin) * (part + 1) // n_slices
                item[6] = ASSIGN if n_slices == 1 and is_first_page else ADD
                if n_slices > 1 and n_threads > 1:
                    item[6] = ADD_SHARED
                item[7] = lanes
                n_items += 1
            own += lanes
    return items[:n_items]


@parallel_kernel
def lay_out_by_row_cpu(gpair, by_row, n_threads):
    """Copy the pairs, or high limbs, so that a row's outputs are side by side.

    gpair : int32 (n_outputs, 1 or 2, n_rows), IN. by_row : int32 (≥ n_rows · n_outputs,), OUT.
    """
    launch(n_threads, _lay_out_rows, (new_counters(n_threads), gpair, by_row))


@parallel_kernel.part
def _lay_out_rows(thread, counters, gpair, by_row):
    n_outputs = gpair.shape[0]
    while True:
        _, begin, end = claim_rows(counters, thread, 1, gpair.shape[2], int64(LAYOUT_ROWS))
        if begin == end:
            return
        for output in range(n_outputs):
            own, place = gpair[output, 0, begin:end], by_row[begin * n_outputs + output :]
            for i in range(uint64(own.size)):
                place[i * uint64(n_outputs)] = own[i]


@inlined_scalar
def count_group_words(most, n_items, n_threads):
    """Words of a record that a thread adds up together: all that fit, or so few that each thread finds two items."""
    return max(1, min(most, most * n_items // (2 * n_threads)))


@parallel_kernel
def build_histograms_cpu(
    words, codes_per_word, rows, gpair, by_row, n_limbs, offsets, stride, items, group_words, hist, private, planes, pairs,
    n_threads
):  # fmt: skip
    """Build or go on with the histograms of one page's work items.

    words : uint64 (n_rows, words of a record), IN. The records of codes, eight bytes at a time.
    codes_per_word : 8 of one byte or 4 of two.
    rows : int32 (2, n_trees · n_rows), IN. The two row buffers.
    gpair : int32 (n_outputs, 1 or 2, n_rows), IN. n_limbs : int32 (n_outputs,), IN.
    by_row : int32 (n_rows · n_outputs + LANES,), IN, as lay_out_by_row_cpu writes it, where outputs are added together.
    offsets : int32 (n_features + 1,), IN. First bin of each feature.
    stride : bins of a private histogram: BYTE_STRIDE for one-byte codes, else more than the largest code.
    items : int64 (n_items, 8), IN. slot, output within the tree, output of gpair, row buffer, begin, end, what to do to the
        slot: ASSIGN, ADD, or where other threads add to it, too, ADD_SHARED (of integers: the order cannot matter), and how many
        outputs from that one on.
    group_words : words that a thread adds together, at most GROUP_WORDS, of one-byte codes of one output REGISTERS: fewer where
        there are too few items for all threads.
    hist : int64 (n_slots, leaf_size, total_bins, 2), INOUT.
    private : int64 (n_threads, words of a group · codes_per_word · stride), SCRATCH, zero on entry and on return. LANES times as
        large where several outputs are added together, twice where two limbs are.
    planes : uint64 (n_threads, words of a group, GATHER_ROWS), SCRATCH. pairs : int64 (n_threads, GATHER_ROWS or FEW_LANES times
        as many), SCRATCH.
    """
    n_words = (offsets.size - 1 + codes_per_word - 1) // codes_per_word
    n_groups = (n_words + group_words - 1) // group_words
    locks = zeros((hist.shape[0], hist.shape[1], offsets.size - 1), np.uint8)
    args = (
        new_counters(n_threads), n_groups, words, codes_per_word, rows, gpair, by_row, n_limbs, offsets, stride, items,
        group_words, hist, locks, private, planes, pairs,
    )  # fmt: skip
    launch(n_threads, _build_items, args)


@parallel_kernel.part
def _build_items(
    thread, counters, n_groups, words, codes_per_word, rows, gpair, by_row, n_limbs, offsets, stride, items, group_words, hist,
    locks, private, planes, pairs
):  # fmt: skip
    private, planes, pairs = private[thread], planes[thread], pairs[thread]
    while True:
        claimed = claim_near(counters, thread, items.shape[0] * n_groups)
        if claimed >= items.shape[0] * n_groups:
            return
        item = items[claimed // n_groups]
        group = claimed % n_groups
        slot, own, output, side, begin, end, mode = item[0], item[1], item[2], item[3], item[4], item[5], item[6]
        first_word = group * group_words
        features = offsets[first_word * codes_per_word : (first_word + group_words) * codes_per_word + 1]
        n_words = (features.size - 1 + codes_per_word - 1) // codes_per_word
        own_locks = locks[slot, :, first_word * codes_per_word :]
        if item[7] > 1:
            _add_outputs(
                words, codes_per_word, first_word, features, rows[side, begin:end], by_row[output:], gpair.shape[0], stride, mode,
                private, planes[:n_words], pairs, hist[slot, own : own + item[7]], own_locks[own : own + item[7]],
            )  # fmt: skip
            continue
        if codes_per_word == 8:
            _add_records(
                words, first_word, features, rows[side, begin:end], gpair[output], n_limbs[output], mode, private,
                hist[slot, own], own_locks[own],
            )  # fmt: skip
            continue
        for limb in range(n_limbs[output]):
            shift = LIMB_BITS * (n_limbs[output] - 1 - limb)
            for gather_begin in range(begin, end, GATHER_ROWS):
                gather_end = min(gather_begin + GATHER_ROWS, end)
                n_rows = gather_end - gather_begin
                _gather_pairs(rows[side, gather_begin:gather_end], gpair[output, limb], pairs)
                _gather(words, first_word, rows[side, gather_begin:gather_end], planes[:n_words])
                next_rows = rows[side, gather_end : min(gather_end + n_rows, end)]
                for w in range(n_words):
                    _add_word(
                        planes[w, :n_rows], pairs[:n_rows], stride, private[w * codes_per_word * stride :], words, first_word + w,
                        gpair[output, limb], next_rows if w % LINE_WORDS == 0 else next_rows[:0],
                    )  # fmt: skip
            _flush(private, stride, features, shift, mode, hist[slot, own], own_locks[own])
            mode = max(mode, int64(ADD))


@parallel_kernel.part
def _widened(pair):
    """int64: a packed pair as g·2^32 + h."""
    return (int64(pair >> 16) << int64(32)) + int64(pair & 0xFFFF)


@parallel_kernel.part
def _add_records(words, first_word, offsets, rows, gpair, n_limbs, mode, private, hist, locks):
    """An item of one output and up to REGISTERS words of one-byte codes. gpair : int32 (1 or 2, n_rows). hist : int64 (bins,
    2)."""
    flat, width, first, n_codes = words.reshape(-1), uint64(words.shape[1]), uint64(first_word), offsets.size - 1
    high, low = gpair[0], gpair[n_limbs - 1]
    if n_limbs == 2:
        if n_codes > 24:  # constants, from which LLVM unrolls the loops over codes
            _add_rows(flat, width, first, rows, high, low, int64(32), int64(2), private)
        elif n_codes > 16:
            _add_rows(flat, width, first, rows, high, low, int64(24), int64(2), private)
        elif n_codes > 8:
            _add_rows(flat, width, first, rows, high, low, int64(16), int64(2), private)
        else:
            _add_rows(flat, width, first, rows, high, low, int64(8), int64(2), private)
        limbs = private.reshape(-1, 2)
        _split(limbs[:, 0], int64(BYTE_STRIDE), offsets, int64(LIMB_BITS), mode, hist, locks)
        _split(limbs[:, 1], int64(BYTE_STRIDE), offsets, int64(0), max(mode, int64(ADD)), hist, locks)
        private[: (n_codes + 7) // 8 * 16 * BYTE_STRIDE] = 0
        return
    add_packed_part(flat, width, first, rows, high, n_codes, private)
    _flush(private, int64(BYTE_STRIDE), offsets, int64(0), mode, hist, locks)


@parallel_kernel.part
def add_packed_part(flat, width, first, rows, pairs, n_codes, private):
    """Add the pairs of rows, of one limb, at n_codes codes of each, or a few more: constants, from which LLVM unrolls."""
    if n_codes > 28:
        _add_rows(flat, width, first, rows, pairs, pairs, int64(32), int64(1), private)
    elif n_codes > 24:
        _add_rows(flat, width, first, rows, pairs, pairs, int64(28), int64(1), private)
    elif n_codes > 20:
        _add_rows(flat, width, first, rows, pairs, pairs, int64(24), int64(1), private)
    elif n_codes > 16:
        _add_rows(flat, width, first, rows, pairs, pairs, int64(20), int64(1), private)
    elif n_codes > 14:
        _add_rows(flat, width, first, rows, pairs, pairs, int64(16), int64(1), private)
    elif n_codes > 12:
        _add_rows(flat, width, first, rows, pairs, pairs, int64(14), int64(1), private)
    elif n_codes > 10:
        _add_rows(flat, width, first, rows, pairs, pairs, int64(12), int64(1), private)
    elif n_codes > 8:
        _add_rows(flat, width, first, rows, pairs, pairs, int64(10), int64(1), private)
    elif n_codes > 6:
        _add_rows(flat, width, first, rows, pairs, pairs, int64(8), int64(1), private)
    elif n_codes > 4:
        _add_rows(flat, width, first, rows, pairs, pairs, int64(6), int64(1), private)
    else:
        _add_rows(flat, width, first, rows, pairs, pairs, int64(4), int64(1), private)


@inlined_scalar
def _add_rows(words, width, first_word, rows, high, low, n_codes, n_limbs, private):
    """Add the pairs of rows at so many codes of each: more than there are, but no word more. A record is padded with 0."""
    last = rows.size - 1
    for i in range(rows.size):
        row, ahead = uint64(rows[uint64(i)]), uint64(rows[uint64(min(i + AHEAD, last))])
        prefetch(words, ahead * width + first_word)
        prefetch(high, ahead)
        if n_limbs == 2:
            prefetch(low, ahead)
        pair, other = _widened(high[row]), _widened(low[row])
        at = row * width + first_word
        one = words[at]
        two = words[at + uint64(1)] if n_codes > 8 else uint64(0)
        three = words[at + uint64(2)] if n_codes > 16 else uint64(0)
        four = words[at + uint64(3)] if n_codes > 24 else uint64(0)
        _add_at(one, int64(0), n_codes, pair, other, n_limbs, private)
        _add_at(two, int64(8), n_codes, pair, other, n_limbs, private)
        _add_at(three, int64(16), n_codes, pair, other, n_limbs, private)
        _add_at(four, int64(24), n_codes, pair, other, n_limbs, private)


@inlined_scalar
def _add_at(word, first_code, n_codes, pair, other, n_limbs, private):
    """Add at the codes of a word, of which the first is a record's first_code-th."""
    for j in range(min(n_codes - first_code, 8)):
        at = uint64((first_code + j) * BYTE_STRIDE) + (word >> uint64(8 * j) & uint64(0xFF))
        if n_limbs == 1:
            private[at] += pair
        else:
            add_two(private, uint64(2) * at, pair, other)


@parallel_kernel.part
def _gather_pairs(rows, gpair, pairs):
    """Copy the pairs of some rows side by side, as packed int64, g·2^32 + h."""
    for i in range(rows.size):
        pairs[i] = _widened(gpair[rows[i]])


@parallel_kernel.part
def _gather(words, first_word, rows, planes):
    """Copy the words of some rows side by side.

    The loads are independent of each other, so many cache misses are under way at once. Two words in each pass over the rows,
    rather than a loop over the words of a row: 2.9 -> 1.5 ns a row of two words, 5.5 -> 3.8 of four (one row in four, AMD EPYC).
    """
    n_words = planes.shape[0]
    for w in range(0, n_words - 1, 2):
        source, one, two = uint64(first_word + w), planes[w], planes[w + 1]
        for i in range(rows.size):
            row = uint64(rows[i])
            one[uint64(i)] = words[row, source]
            two[uint64(i)] = words[row, source + uint64(1)]
    if n_words % 2 == 1:
        source, one = uint64(first_word + n_words - 1), planes[n_words - 1]
        for i in range(rows.size):
            one[uint64(i)] = words[uint64(rows[i]), source]


@parallel_kernel.part
def _add_word(plane, pairs, stride, private, words, first_word, gpair, next_rows):
    """Add the pairs at the four codes of one word: private[j · stride + code j] += pair. next_rows : rows whose records and pairs
    are prefetched meanwhile."""
    flat, width, source = words.reshape(-1), uint64(words.shape[1]), uint64(first_word)
    for i in range(pairs.size):
        if i < next_rows.size:
            row = uint64(next_rows[i])
            prefetch(flat, row * width + source)
            prefetch(gpair, row)
        word, pair = plane[i], pairs[i]
        for j in range(4):  # unsigned, so that no index could count from the end
            private[uint64(j * stride) + uint64((word >> uint64(16 * j)) & uint64(0xFFFF))] += pair


def _lanes_adder(n_lanes, add):
    """add : of jit.py, that adds so many."""

    @inlined_scalar
    def gather_lanes(rows, begin, end, by_row, n_outputs, words, first_word, pairs):
        """Copy the lanes of rows begin to end side by side, as packed int64, and fetch what is wanted of the rows to come."""
        flat, width, source, last = words.reshape(-1), uint64(words.shape[1]), uint64(first_word), rows.size - 1
        for i in range(begin, end):
            ahead, at, to = uint64(rows[min(i + AHEAD, last)]), uint64(rows[i]) * uint64(n_outputs), uint64((i - begin) * n_lanes)
            prefetch(by_row, ahead * uint64(n_outputs))
            prefetch(flat, ahead * width + source)
            for lane in range(uint64(n_lanes)):
                pairs[to + lane] = _widened(by_row[at + lane])

    @inlined_scalar
    def add_lanes(plane, pairs, n_codes, bits, stride, private):
        """private[(j · stride + code j) · n_lanes + lane] += pair of the lane, for n_codes codes of the words, or a few more."""
        mask = uint64((1 << bits) - 1)
        for first in range(0, n_codes, CODES_TOGETHER):
            place, shift = private[first * stride * n_lanes :], uint64(first * bits)
            for i in range(uint64(plane.size)):
                word = plane[i] >> shift
                for j in range(CODES_TOGETHER):
                    at = uint64(j * stride) + uint64((word >> uint64(j * bits)) & mask)
                    add(place, at * uint64(n_lanes), pairs, i * uint64(n_lanes))

    return gather_lanes, add_lanes


_gather_few_lanes, _add_few_lanes = _lanes_adder(FEW_LANES, add_four)
_gather_lanes, _add_lanes = _lanes_adder(LANES, add_eight)


@parallel_kernel.part
def _add_outputs(
    words, codes_per_word, first_word, offsets, rows, by_row, n_outputs, stride, mode, private, planes, pairs, hist, locks
):  # fmt: skip
    """An item of up to LANES outputs. rows : int32 (n,). by_row : from the first of these on, of n_outputs in all; what lanes
    without an output add up is not looked at. hist : int64 (outputs, bins, 2)."""
    n_lanes = FEW_LANES if hist.shape[0] <= FEW_LANES else LANES
    n_at_once = pairs.size // n_lanes
    for begin in range(0, rows.size, n_at_once):
        end = min(begin + n_at_once, rows.size)
        if n_lanes == FEW_LANES:
            _gather_few_lanes(rows, begin, end, by_row, n_outputs, words, first_word, pairs)
        else:
            _gather_lanes(rows, begin, end, by_row, n_outputs, words, first_word, pairs)
        _gather(words, first_word, rows[begin:end], planes)
        for w in range(planes.shape[0]):
            plane, n_codes = planes[w, : end - begin], min(codes_per_word, offsets.size - 1 - w * codes_per_word)
            place = private[w * codes_per_word * stride * n_lanes :]
            if codes_per_word == 4 and n_lanes == FEW_LANES:
                _add_few_lanes(plane, pairs, n_codes, int64(16), stride, place)
            elif codes_per_word == 4:
                _add_lanes(plane, pairs, n_codes, int64(16), stride, place)
            elif n_lanes == FEW_LANES:
                _add_few_lanes(plane, pairs, n_codes, int64(8), int64(BYTE_STRIDE), place)
            else:
                _add_lanes(plane, pairs, n_codes, int64(8), int64(BYTE_STRIDE), place)
    by_lane = private.reshape(-1, n_lanes)
    for feature in range(offsets.size - 1):  # whose sums of all outputs stay in the first-level cache
        own_sums, own_bins = by_lane[feature * stride : (feature + 1) * stride], offsets[feature : feature + 2]
        for output in range(hist.shape[0]):
            _split(own_sums[:, output], stride, own_bins, int64(0), mode, hist[output], locks[output, feature:])
        own_sums[:] = 0
    by_lane[(offsets.size - 1) * stride : planes.shape[0] * codes_per_word * stride] = 0  # of whole words


@parallel_kernel.part
def _flush(private, stride, offsets, shift, mode, hist, locks):
    """Split the packed sums, and leave the private histograms zero."""
    _split(private, stride, offsets, shift, mode, hist, locks)
    private[: (offsets.size + 6) // 8 * 8 * stride] = 0  # of whole words


@parallel_kernel.part
def _split(private, stride, offsets, shift, mode, hist, locks):
    """Split the packed sums, and write or add them to the int64 histogram.

    locks : uint8 (≥ n_features,), INOUT, of the features of a shared histogram. One after the other, so that threads that come
    together follow each other. Of 28 features 7 µs; with atomic additions, which are not vectorised, 72 (AMD EPYC, one thread).
    """
    for feature in range(offsets.size - 1):
        own, first, last = private[feature * stride : (feature + 1) * stride], offsets[feature], offsets[feature + 1]
        flat = hist[first:last].reshape(-1)
        if mode == ADD_SHARED:
            lock(locks, feature)
        for b in range(last - first):
            hess = own[b] & int64(0xFFFFFFFF)
            grad = ((own[b] - hess) >> int64(32)) << shift
            hess <<= shift
            if mode == ASSIGN:
                flat[2 * b], flat[2 * b + 1] = grad, hess
            else:
                flat[2 * b] += grad
                flat[2 * b + 1] += hess
        if mode == ADD_SHARED:
            unlock(locks, feature)


@parallel_kernel
def build_packed_cpu(build, parents, nodes, segments, first_output, n_codes, words, rows, gpair, hist, n_threads):
    """Build histograms of packed sums, g·2^32 + h, which stay so: of nodes of fewer than FLUSH_ROWS rows, in one page, one limb;
    and take each from its parent's, while it is near: subtract_histograms_cpu.

    build : int32 (n,), IN. nodes : NODE, IN. Their slots. segments : int64 (n_nodes, 3), IN. Their rows. first_output : int32
        (n_trees,), IN.
    parents : int32 (n or 0,), IN. Slots that become the larger child's.
    words : uint64 (n_rows, words of a record), IN. Records of n_codes codes of one byte, of which REGISTERS words are added up
        together, wide ones, too: nothing is split, so half as much is written, subtracted and searched. 1,000 × 100, 20,000 × 200
        and × 2,000, one thread of an AMD EPYC (Zen 5), ms a round: 1.35, 6.7, 75 -> 0.68, 4.2, 51.
    rows, gpair : as build_histograms_cpu.
    hist : int64 (n_slots, codes of whole words, BYTE_STRIDE), INOUT.
    """
    n_words = (n_codes + 7) // 8
    group_words = count_group_words(min(n_words, REGISTERS), build.size, n_threads)
    n_groups = (n_words + group_words - 1) // group_words
    n_histograms = n_groups * build.size
    n_slices = count_slices(count_rows(build, segments) // max(build.size, 1), n_histograms, n_threads)
    n_added, locks = zeros(n_histograms * group_words, np.int64), zeros(n_histograms * group_words, np.uint8)
    n_busy = min(n_threads, n_histograms * n_slices)
    args = (
        new_counters(n_busy), n_groups, group_words, n_slices, n_added, locks, build, parents, nodes, segments, first_output,
        n_codes, words, rows, gpair, hist,
    )  # fmt: skip
    launch(n_busy, _build_packed, args)


@scalar
def count_slices(n_rows, n_histograms, n_threads):
    """Into how many slices the rows of a node are cut, where there are fewer histograms than threads: n take n_rows / n rows to
    build and n · PACKED_ROWS to add up."""
    n, n_wanted = int64(1), (n_threads + n_histograms - 1) // max(n_histograms, 1)
    while n < n_wanted and (n + 1) * (n + 1) * PACKED_ROWS <= n_rows:
        n += 1
    return n


@parallel_kernel.part
def _build_packed(
    thread, counters, n_groups, group_words, n_slices, n_added, locks, build, parents, nodes, segments, first_output, n_codes,
    words, rows, gpair, hist
):  # fmt: skip
    """An item is a slice of the rows of a histogram: of a node and the codes of some words."""
    flat, width, n_items = words.reshape(-1), uint64(words.shape[1]), build.size * n_groups * n_slices
    private = empty(8 * group_words * BYTE_STRIDE if n_slices > 1 else 0, np.int64)
    while True:
        claimed = claim_near(counters, thread, n_items)
        if claimed >= n_items:
            return
        item, part = claimed // n_slices, claimed % n_slices
        node, first_word = build[item // n_groups], item % n_groups * group_words
        n_own = min(n_codes - 8 * first_word, 8 * group_words)
        own = hist[nodes[node].slot, 8 * first_word :].reshape(-1)[: (n_own + 7) // 8 * 8 * BYTE_STRIDE]
        begin, end, side = segments[node]
        begin, end = begin + (end - begin) * part // n_slices, begin + (end - begin) * (part + 1) // n_slices
        sums, pairs = own if n_slices == 1 else private[: own.size], gpair[first_output[nodes[node].tree], 0]
        sums[:] = 0
        add_packed_part(flat, width, uint64(first_word), rows[side, begin:end], pairs, n_own, sums)
        parent = own[:0]
        if parents.size > 0:
            parent = hist[parents[item // n_groups], 8 * first_word :].reshape(-1)[: own.size]
        if n_slices > 1:
            _add_slice(sums, own, parent, item * group_words, n_added, locks, n_slices)
        else:
            _take_from(parent, own)


@parallel_kernel.part
def _add_slice(sums, total, parent, first, n_added, locks, n_slices):
    """Add a slice's sums to the total, or write the first one's, and take the total of all from the parent's: word by word, so
    that threads that come together follow each other. first : the number of the first word in n_added and locks."""
    size = 8 * BYTE_STRIDE
    for word in range(sums.size // size):
        own, to = sums[word * size : (word + 1) * size], total[word * size : (word + 1) * size]
        lock(locks, first + word)
        if n_added[first + word] == 0:
            to[:] = own
        else:
            for b in range(to.size):
                to[b] += own[b]
        n_added[first + word] += 1
        is_last = n_added[first + word] == n_slices
        unlock(locks, first + word)
        if is_last:
            _take_from(parent[word * size : (word + 1) * size], to)


@parallel_kernel.part
def _take_from(parent, sums):
    for b in range(parent.size):
        parent[b] -= sums[b]


@parallel_kernel
def subtract_histograms_cpu(parents, first_built, hist, n_threads):
    """hist[parents[i]] −= hist[first_built + i]: the parent's slot becomes the larger child's.

    parents : int32 (n,), IN. hist : int64 (n_slots, leaf_size, total_bins, 2), or of packed sums, INOUT.
    """
    launch(n_threads, _subtract, (new_counters(n_threads), parents, first_built, hist))


@parallel_kernel.part
def _subtract(thread, counters, parents, first_built, hist):
    while True:
        i = claim_near(counters, thread, parents.size)
        if i >= parents.size:
            return
        _take_from(hist[parents[i]].reshape(-1), hist[first_built + i].reshape(-1))


# ---------------------------------------------------------------------------------------------------------------------
# CUDA. The rows of the nodes to build, one node after the other, are cut into parts of equally many, one or a few for each block,
# and the parts into slices where one node ends and another begins:
#
#     nodes     aaaaaaaaaa|bb|cccccccccccc
#     parts     ......|......|......|.....      first_slice = [0, 1, 3, 4, 5]
#     slices    aaaaaa|aaaa|bb|cccccc|cccccc
#
# So all blocks end together, and read what they are to do from a record of 20 bytes. A block adds a slice to a tile in shared
# memory (histogram_tiles.py), and that to the histogram in global memory. Two other kernels have room for more bins of two-byte
# codes; sparse.py has one for lists of cells.

MAX_SLICE_ROWS = 65536  # −2^15 ≤ g < 2^15 and 0 ≤ h < 2^16: sums of so many fit into 32 bits, those of h without a sign
MIN_PART_ROWS = 512
# What a line of a tile costs the whole GPU when it is added to the histogram, by what a row costs the block that adds it up: on
# an H200 0.0075 ns for each of 32 sums (benchmarks/gpu_ceilings.py), against 1.5 ns where records come from the first-level cache
# and more where not. Of 100,000 rows half or twice as many parts take as long.
FLUSH_COST = 0.15
BLOCKS_OF_A_MULTIPROCESSOR = 4  # at most, of the kernels here, in histogram_tiles.py and in sparse.py
EVENLY = 0.9  # of the blocks' time that is to be spent at work
SECTOR = 32  # bytes: records are gathered by whole sectors
SUBTRACT_CHUNK = 512  # values of one work item of the subtraction: two of a thread, whose loads wait for each other


def parts_of_rows(n_blocks: int, n_variants: int) -> int:
    """Into how many parts rows are to be cut that n_blocks blocks at a time add up, each part for n_variants (tiles and outputs).

    As few as keep the blocks busy: 396 blocks and 1 tile: 396. 5 tiles: 79, which makes 395 items. 300 tiles: 1 part would keep
    300 blocks at work and 2 parts 300 on average; 5 parts are 1500 items, 375 at a time.
    """
    for n_rounds in range(1, n_variants + 1):
        n_parts = n_rounds * n_blocks // n_variants
        if n_parts * n_variants >= EVENLY * n_rounds * n_blocks:
            return n_parts
    raise AssertionError("n_variants rounds of n_blocks parts leave no block idle")


def most_slices(n_rows: int, n_blocks: int, n_nodes: int) -> int:
    """Room for the slices that list_build_items_kernel makes of so many rows and nodes; for parts and their end as well.

    n_blocks : at least as many as parts are wanted.
    """
    return n_rows // MAX_SLICE_ROWS + n_blocks + n_nodes + 1


@cuda_kernel(
    "build: int32[:], nodes: NODE[:], first_output: int32[:], segments: int64[:, :], n_parts: int64, n_even: int64, "
    "n_flushed: int64, progress: PROGRESS[:], slices: SLICE[:], first_slice: int32[:]",
    **ONE_BLOCK,
)  # fmt: skip
def list_build_items_kernel(
    build, nodes, first_output, segments, n_parts, n_even, n_flushed, progress, slices, first_slice
):  # fmt: skip
    """Cut the rows that the nodes to build have in one page into parts and slices. One block, a thread for each node and slice.

    build : int32, IN. The first n_built are nodes, −1 for none. nodes : NODE, IN (slot, tree). segments : int64 (n_nodes, 3), IN.
    first_output : int32 (n_trees,), IN. n_parts : how many are wanted. n_flushed : lines of tiles that each of them adds to the
        histogram at its end. n_even : parts that keep every multiprocessor at work. There are fewer parts where these would have
        less than MIN_PART_ROWS rows, or so few that flushing takes longer than adding up: R rows in b parts take
        R/b + b·n_flushed·FLUSH_COST, least for b² = R/(n_flushed·FLUSH_COST); of n_even or more a multiple of it. There is a
        multiple of n_parts where these would have more than MAX_SLICE_ROWS.
    slices : SLICE (≥ most_slices,), OUT. first_slice : int32 (≥ parts + 1,), OUT. progress : OUT n_items, the parts.
    """
    partial = cuda.shared.array(32, int64)
    first_row, first_of_node = cuda.shared.array(1024, int64), cuda.shared.array(1024, int64)
    n_built, thread, block = progress[0].n_built, int64(cuda.threadIdx.x), int64(cuda.blockDim.x)
    own_rows = int64(0)
    i = thread
    while i < n_built:
        if build[i] >= 0:
            own_rows += segments[build[i], 1] - segments[build[i], 0]
        i += block
    n_rows = block_sum(own_rows, partial)
    if n_flushed > 0:
        n_best = int64(math.sqrt(float32(n_rows) / (float32(n_flushed) * float32(FLUSH_COST))))
        if n_best > n_even:
            n_best = quotient(n_best + n_even - 1, n_even) * n_even
        n_parts = max(min(n_parts, n_best), int64(1))
    n_parts *= max(quotient(n_rows + n_parts * MAX_SLICE_ROWS - 1, n_parts * MAX_SLICE_ROWS), int64(1))
    part_rows = max(quotient(n_rows + n_parts - 1, n_parts), int64(MIN_PART_ROWS))
    n_before, n_slices, first = int64(0), int64(0), int64(0)
    while first < n_built:
        i, own_rows = first + thread, int64(0)
        if i < n_built and build[i] >= 0:
            own_rows = segments[build[i], 1] - segments[build[i], 0]
        before, total = block_prefix(own_rows, partial)
        begin, own_slices = n_before + before, int64(0)
        if own_rows > 0:
            own_slices = quotient(begin + own_rows - 1, part_rows) - quotient(begin, part_rows) + 1
        slices_before, total_slices = block_prefix(own_slices, partial)
        first_row[thread], first_of_node[thread] = begin, n_slices + slices_before
        cuda.syncthreads()  # every node knows its first row and slice
        number = n_slices + thread
        while number < n_slices + total_slices:
            owner = owner_of(first_of_node, min(block, n_built - first), number)
            node, begin = build[first + owner], first_row[owner]
            part = quotient(begin, part_rows) + number - first_of_node[owner]
            slices[number].slot, slices[number].side = nodes[node].slot, int32(segments[node, 2])
            slices[number].output = first_output[nodes[node].tree]
            slices[number].begin = int32(segments[node, 0] + max(part * part_rows - begin, int64(0)))
            slices[number].end = int32(min(segments[node, 0] + (part + 1) * part_rows - begin, segments[node, 1]))
            if part * part_rows >= begin:
                first_slice[part] = int32(number)
            number += block
        n_before += total
        n_slices += total_slices
        first += block
    if thread == 0:
        n_parts = quotient(n_rows + part_rows - 1, part_rows)
        first_slice[n_parts] = int32(n_slices)
        progress[0].n_items = n_parts


@device_function
def quotient(a, b):
    """⌊a / b⌋ of numbers below 2^32, as rows of a page (2^31) and parts · MAX_SLICE_ROWS are: int64 takes a GPU five times as
    long."""
    return int64(uint32(uint32(a) // uint32(b)))


def strided_words(n_features: int, max_bins: int, shared_limit: int) -> int:
    """Words (4 bytes, two codes) of a record that a block of build_strided_histograms_kernel adds together; 0 where not even one
    fits into shared memory.

    At most a sector; fewer where a tile of all of them would not fit, and evenly spread over the record.
    """
    n_words = -(-n_features // 2)
    fitting = min(SECTOR // 4, n_words, shared_limit // strided_bytes(1, max_bins))
    return -(-n_words // -(-n_words // fitting)) if fitting else 0


def strided_stride(max_bins: int) -> int:
    """Words between two features: room for the missing code, and odd."""
    return (max_bins + 1) | 1


def strided_bytes(n_words: int, max_bins: int) -> int:
    """Shared memory of a block."""
    return n_words * 2 * strided_stride(max_bins) * 8


@cuda_kernel(
    "words: uint32[:, :], rows: int32[:, :], gpair: int32[:, :, :], n_limbs: int32[:], offsets: int32[:], stride: int64, "
    "words_per_tile: int64, progress: PROGRESS[:], slices: SLICE[:], first_slice: int32[:], hist: int64[:, :, :, :]",
    block=640, registers=48,
)  # fmt: skip
def build_strided_histograms_kernel(
    words, rows, gpair, n_limbs, offsets, stride, words_per_tile, progress, slices, first_slice, hist
):
    """The same for two-byte codes of more bins than a tile of 16 features has room for (histogram_tiles.py; 1815 bins where a
    block has 227 KB): a tile may have two features only. Dynamic shared memory: strided_bytes.

    words : uint32 (n_rows, words of a record), IN. Two codes at a time. stride, words_per_tile : strided_stride, strided_words.
    Others as histogram_tiles.build_histograms_kernel.

    The threads of a warp read consecutive words of a few rows, so as a rule their adds go to different features, which lie an odd
    number of words apart: the same bin of two features does not hit one bank. Random bins take 3.5 passes of each plane.
    """
    planes = cuda.shared.array(0, int32)
    hess_plane = uint32(words_per_tile * 2 * stride)
    i = uint32(cuda.threadIdx.x)
    while i < uint32(2) * hess_plane:
        planes[i] = int32(0)
        i = uint32(i + uint32(cuda.blockDim.x))
    cuda.syncthreads()  # the planes are zero
    record_words = uint32((offsets.size - 1 + 1) // 2)
    n_tiles = uint32(uint32(record_words + uint32(words_per_tile) - uint32(1)) // uint32(words_per_tile))
    n_variants = uint32(n_tiles * uint32(hist.shape[1]))
    item = uint32(cuda.blockIdx.x)
    while item < uint32(uint32(progress[0].n_items) * n_variants):
        part = uint32(item // n_variants)
        own = uint32(uint32(item - uint32(part * n_variants)) // n_tiles)
        first_word = uint32(uint32(item % n_tiles) * uint32(words_per_tile))
        n_words = min(uint32(words_per_tile), uint32(record_words - first_word))
        # A thread keeps to one word of the records, and strides over the rows.
        step, word = uint32(uint32(cuda.blockDim.x) // n_words), uint32(uint32(cuda.threadIdx.x) % n_words)
        own_row, first_place = uint32(uint32(cuda.threadIdx.x) // n_words), uint32(word * uint32(2 * stride))
        number = first_slice[part]
        while number < first_slice[uint32(part + uint32(1))]:
            output = uint32(uint32(slices[number].output) + own)
            limb = uint32(0)
            while limb < uint32(n_limbs[output]):
                at_row, end = uint32(uint32(slices[number].begin) + own_row), uint32(slices[number].end)
                side = uint32(slices[number].side)
                if own_row >= step:  # the threads that are left over
                    at_row = end
                row = uint32(rows[side, at_row]) if at_row < end else uint32(0)
                while at_row < end:
                    pair, codes, place = gpair[output, limb, row], words[row, uint32(first_word + word)], first_place
                    at_row = uint32(at_row + step)
                    if at_row < end:
                        row = uint32(rows[side, at_row])  # under way while this row is added
                    for _ in range(2):
                        bin_place = uint32(place + uint32(codes & uint32(0xFFFF)))
                        add_at_byte(planes, uint32(bin_place * uint32(4)), uint32(0), int32(pair >> 16))
                        add_at_byte(planes, uint32(uint32(hess_plane + bin_place) * uint32(4)), uint32(0), int32(pair & 0xFFFF))
                        codes, place = uint32(codes >> uint32(16)), uint32(place + uint32(stride))
                cuda.syncthreads()  # all rows are in the planes
                shift = LIMB_BITS * (int64(n_limbs[output]) - 1 - int64(limb))
                flush_strided_tile(
                    planes, hess_plane, uint32(stride), n_words, first_word, offsets, shift, hist, int64(slices[number].slot),
                    int64(own),
                )  # fmt: skip
                cuda.syncthreads()  # the planes are zero again
                limb = uint32(limb + uint32(1))
            number += 1
        item = uint32(item + uint32(cuda.gridDim.x))


@device_function
def flush_strided_tile(planes, hess_plane, stride, n_words, first_word, offsets, shift, hist, slot, own):
    """Add a tile to the int64 histogram, and leave it zero: a warp takes a feature at a time.

    Beyond the bins of a feature lies the slot of its missing code; of a feature that only pads the record, that of code 0.
    """
    own_feature = uint32(cuda.threadIdx.x >> 5)
    while own_feature < uint32(n_words * uint32(2)):
        feature, first_bin, n_bins = int64(first_word) * 2 + int64(own_feature), int64(0), int64(0)
        if feature < offsets.size - 1:
            first_bin = int64(offsets[feature])
            n_bins = int64(offsets[feature + 1]) - first_bin
        b = int64(lane_number())
        while b <= n_bins:
            place = uint32(uint32(own_feature * stride) + uint32(b))
            grad, hess = planes[place], planes[uint32(hess_plane + place)]
            if grad != 0 or hess != 0:
                if b < n_bins:
                    cuda.atomic.add(hist, (slot, own, first_bin + b, 0), int64(grad) << shift)
                    cuda.atomic.add(hist, (slot, own, first_bin + b, 1), int64(uint32(hess)) << shift)
                planes[place] = int32(0)
                planes[uint32(hess_plane + place)] = int32(0)
            b += 32
        own_feature = uint32(own_feature + uint32(cuda.blockDim.x >> 5))


@cache
def build_histograms_global_kernel(code_bytes):
    """The same where nothing fits into shared memory (more than about 14,000 bins): int64 adds straight to global memory.

    Arguments as build_strided_histograms_kernel; stride and words_per_tile are not read. A block takes one word of a part's
    records. Every update costs an atomic add in the second-level cache.
    """
    codes_per_word, code_bits = 4 // code_bytes, 8 * code_bytes
    code_mask = (1 << code_bits) - 1

    def build_histograms(
        words, rows, gpair, n_limbs, offsets, stride, words_per_tile, progress, slices, first_slice, hist
    ):  # fmt: skip
        n_words = int64((offsets.size - 1 + codes_per_word - 1) // codes_per_word)
        n_variants, item = n_words * int64(hist.shape[1]), int64(cuda.blockIdx.x)
        while item < progress[0].n_items * n_variants:
            part, own, word = item // n_variants, item // n_words % int64(hist.shape[1]), item % n_words
            number = int64(first_slice[part])
            while number < first_slice[part + 1]:
                output, slot, side = int64(slices[number].output) + own, int64(slices[number].slot), slices[number].side
                i = int64(slices[number].begin) + int64(cuda.threadIdx.x)
                while i < slices[number].end:
                    row = rows[side, i]
                    codes = words[row, word]
                    for j in range(codes_per_word):
                        feature, code = word * codes_per_word + j, int64(codes & uint32(code_mask))
                        codes = uint32(codes >> uint32(code_bits))
                        if feature < offsets.size - 1 and code < offsets[feature + 1] - offsets[feature]:
                            bin_index, limb = int64(offsets[feature]) + code, int64(0)
                            while limb < n_limbs[output]:
                                pair, shift = gpair[output, limb, row], LIMB_BITS * (int64(n_limbs[output]) - 1 - limb)
                                cuda.atomic.add(hist, (slot, own, bin_index, 0), int64(pair >> 16) << shift)
                                cuda.atomic.add(hist, (slot, own, bin_index, 1), int64(pair & 0xFFFF) << shift)
                                limb += 1
                    i += int64(cuda.blockDim.x)
                number += 1
            item += int64(cuda.gridDim.x)

    build_histograms.__name__ = f"build_histograms_global_kernel_{code_bits}"
    return cuda_kernel(
        "words: uint32[:, :], rows: int32[:, :], gpair: int32[:, :, :], n_limbs: int32[:], offsets: int32[:], stride: int64, "
        "words_per_tile: int64, progress: PROGRESS[:], slices: SLICE[:], first_slice: int32[:], hist: int64[:, :, :, :]",
        registers=64,
    )(build_histograms)  # fmt: skip


@cuda_kernel("parents: int32[:], build: int32[:], nodes: NODE[:], progress: PROGRESS[:], hist: int64[:, :]")
def subtract_histograms_kernel(parents, build, nodes, progress, hist):
    """hist[parents[i]] −= hist[slot of build[i]] for the n_built pairs.

    hist : int64 (n_slots, leaf_size · total_bins · 2), INOUT. Grid: a block strides over (pair, chunk of values). 24 bytes a
    value.
    """
    n_values = int64(hist.shape[1])
    n_chunks = (n_values + SUBTRACT_CHUNK - 1) // SUBTRACT_CHUNK
    item = int64(cuda.blockIdx.x)
    while item < progress[0].n_built * n_chunks:
        pair, chunk = item // n_chunks, item % n_chunks
        if build[pair] >= 0:
            slot, parent = nodes[build[pair]].slot, parents[pair]
            i = chunk * SUBTRACT_CHUNK + int64(cuda.threadIdx.x)
            while i < min((chunk + 1) * SUBTRACT_CHUNK, n_values):
                hist[parent, i] -= hist[slot, i]
                i += int64(cuda.blockDim.x)
        item += int64(cuda.gridDim.x)
