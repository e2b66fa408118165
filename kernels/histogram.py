"""Sums of gradients and hessians per bin, for the nodes of a level: the loop that takes most of the time of training.

    hist[slot, output, offset[f] + code[row, f]] += (q_g, q_h)   for every row of the node and feature f, unless f is missing

Missing values are not accumulated: their sums are those of the node minus those of all bins (Algorithm 3). The sibling of
a node that was built is parent − built, exact because these are integers.

Where features share a code (kernels/packing.py), what is said of a feature here holds for a group of them.

A record of codes (one row, all features, padded) is gathered once per row, a word of 8 bytes into each of a few planes. Gradient
and hessian are added in one go as a packed int64, g·2^32 + h, into a small private histogram that stays in the first-level cache
(the 8 features of a word × 256 bins × 8 bytes = 16 KB), which is split and added to the int64 histogram at the end of an item,
of at most 2^16 rows: before either half can overflow. Floor: one store per update. What keeps near it (450k × 28, AMD EPYC, one
thread, ns a row of a level): the copy of gathered rows, without which it takes twice as long; planes rather than copied records,
of which every word would pull all others into the cache, 14.6 -> 12.0 at the root; prefetching the next rows' records while
these are added -> 10.6 there, 17 -> 13 for every third row. Indices are unsigned: for a signed one numba adds a test whether it
counts from the end, which cost a quarter of the time.
"""

from functools import cache

import numpy as np
from numba import int32, int64, prange, uint32, uint64

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
from gpuboost.kernels.jit import add_atomic, claim, kernel, parallel_kernel, prefetch
from gpuboost.kernels.quantise import LIMB_BITS

GATHER_ROWS = 1024  # rows copied side by side before they are added: planes of 8 KB
GROUP_WORDS = 16  # words of one work item: 16 × 16 KB of private histograms stay in the second-level cache
FLUSH_ROWS = 65536  # |g| ≤ 2^15 and h < 2^16 keep both halves of a packed sum inside 32 bits for so many rows
MIN_SLICE_ROWS = 8192
BYTE_STRIDE = 256  # bins of a private histogram for one-byte codes

ASSIGN, ADD, ADD_ATOMIC = 0, 1, 2  # what a work item does to its slot


def record_bytes(n_codes: int) -> int:
    """Bytes of a record of so many bytes of codes: 8, 16 or a multiple of 32. No record of up to 32 bytes then crosses a sector
    of GPU memory (32 bytes) or a cache line, and none is read in more of them than it fills."""
    return 8 if n_codes <= 8 else 16 if n_codes <= 16 else -(-n_codes // 32) * 32


@kernel
def list_build_items(build, nodes, segments, first_output, is_first_page, n_threads, min_slice_rows, first_slot, hist):
    """The work items of one page: int64 (n_items, 7), see build_histograms_cpu.

    An item has a quarter of a thread's share of the rows, but at least min_slice_rows, and at most FLUSH_ROWS.

    build : int32 (n,), IN. Nodes to build. segments : int64 (n_nodes, 3), IN. Their rows in this page.
    first_slot : slot of the nodes' records that is row 0 of hist.
    hist : int64 (n_slots, leaf_size, total_bins, 2), OUT. Zeroed in the first page where several items will add.
    """
    n_rows, n_items = int64(0), 0
    for node in build:
        n_rows += segments[node, 1] - segments[node, 0]
    slice_rows = min(max(n_rows // (4 * n_threads), int64(min_slice_rows)), int64(FLUSH_ROWS))
    items = np.empty(((n_rows // slice_rows + build.size) * hist.shape[1], 7), np.int64)
    for i in range(build.size):
        node = build[i]
        begin, end, side = segments[node, 0], segments[node, 1], segments[node, 2]
        n_slices, slot = max(int64(1), (end - begin + slice_rows - 1) // slice_rows), nodes[node].slot - first_slot
        if n_slices > 1 and is_first_page:
            hist[slot] = 0
        for own in range(hist.shape[1]):
            for part in range(n_slices):
                item = items[n_items]
                item[0], item[1] = slot, own
                item[2] = first_output[nodes[node].tree] + own
                item[3] = side
                item[4] = begin + (end - begin) * part // n_slices
                item[5] = begin + (end - begin) * (part + 1) // n_slices
                item[6] = ADD_ATOMIC if n_slices > 1 else ASSIGN if is_first_page else ADD
                n_items += 1
    return items[:n_items]


@parallel_kernel
def build_histograms_cpu(
    words, codes_per_word, rows, gpair, n_limbs, offsets, stride, items, group_words, hist, private, planes, pairs, n_threads
):
    """Build or go on with the histograms of one page's work items.

    words : uint64 (n_rows, words of a record), IN. The records of codes, eight bytes at a time.
    codes_per_word : 8 of one byte or 4 of two.
    rows : int32 (2, n_trees · n_rows), IN. The two row buffers.
    gpair : int32 (n_outputs, 1 or 2, n_rows), IN. n_limbs : int32 (n_outputs,), IN.
    offsets : int32 (n_features + 1,), IN. First bin of each feature.
    stride : bins of a private histogram: BYTE_STRIDE for one-byte codes, else more than the largest code.
    items : int64 (n_items, 7), IN. slot, output within the tree, output of gpair, row buffer, begin, end, and what to do to the
        slot: ASSIGN, ADD, or where other items add to it, too, ADD_ATOMIC (of integers: the order cannot matter).
    group_words : words that a thread adds together, at most GROUP_WORDS: fewer where there are too few items for all threads.
    hist : int64 (n_slots, leaf_size, total_bins, 2), INOUT.
    private : int64 (n_threads, words of a group · codes_per_word · stride), SCRATCH, zero on entry and on return.
    planes : uint64 (n_threads, words of a group, GATHER_ROWS), SCRATCH. pairs : int64 (n_threads, GATHER_ROWS), SCRATCH.
    """
    n_words = (offsets.size - 1 + codes_per_word - 1) // codes_per_word
    n_groups = (n_words + group_words - 1) // group_words
    counter = np.zeros(1, np.int64)
    for thread in prange(n_threads):
        _build_items(
            counter, n_groups, words, codes_per_word, rows, gpair, n_limbs, offsets, stride, items, group_words, hist,
            private[thread], planes[thread], pairs[thread],
        )  # fmt: skip


@parallel_kernel.part
def _build_items(
    counter, n_groups, words, codes_per_word, rows, gpair, n_limbs, offsets, stride, items, group_words, hist, private, planes,
    pairs,
):  # fmt: skip
    while True:
        claimed = claim(counter)
        if claimed >= items.shape[0] * n_groups:
            return
        item = items[claimed // n_groups]
        group = claimed % n_groups
        slot, own, output, side, begin, end, mode = item[0], item[1], item[2], item[3], item[4], item[5], item[6]
        first_word = group * group_words
        features = offsets[first_word * codes_per_word : (first_word + group_words) * codes_per_word + 1]
        n_words = (features.size - 1 + codes_per_word - 1) // codes_per_word
        for limb in range(n_limbs[output]):
            shift = LIMB_BITS * (n_limbs[output] - 1 - limb)
            for gather_begin in range(begin, end, GATHER_ROWS):
                gather_end = min(gather_begin + GATHER_ROWS, end)
                n_rows = gather_end - gather_begin
                _gather(words, first_word, rows[side, gather_begin:gather_end], gpair[output, limb], planes[:n_words], pairs)
                next_rows = rows[side, gather_end : min(gather_end + n_rows, end)]
                for w in range(n_words):
                    _add_word(
                        planes[w, :n_rows], pairs[:n_rows], codes_per_word, features.size - 1 - w * codes_per_word, stride,
                        private[w * codes_per_word * stride :], words, first_word, gpair[output, limb],
                        next_rows if w == 0 else next_rows[:0],
                    )  # fmt: skip
            _flush(private, stride, features, shift, mode, hist[slot, own])
            mode = max(mode, ADD)


@parallel_kernel.part
def _gather(words, first_word, rows, gpair, planes, pairs):
    """Copy the words of some rows side by side, and their pairs as packed int64, g·2^32 + h.

    The loads are independent of each other, so many cache misses are under way at once. Two words in each pass over the rows,
    rather than a loop over the words of a row: 2.9 -> 1.5 ns a row of two words, 5.5 -> 3.8 of four (one row in four, AMD EPYC).
    """
    n_words = planes.shape[0]
    for i in range(rows.size):
        pair = gpair[rows[i]]
        pairs[i] = (int64(pair >> 16) << int64(32)) + int64(pair & 0xFFFF)
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
def _add_word(plane, pairs, codes_per_word, n_codes, stride, private, words, first_word, gpair, next_rows):
    """Add the pairs at the codes of one word. n_codes : from this word on; up to 4 of them need only half of it."""
    if codes_per_word == 4:  # constants, from which LLVM unrolls the loop over codes
        _add_codes(plane, pairs, 4, 16, stride, private, words, first_word, gpair, next_rows)
    elif n_codes > 4:
        _add_codes(plane, pairs, 8, 8, BYTE_STRIDE, private, words, first_word, gpair, next_rows)
    else:
        _add_codes(plane, pairs, 4, 8, BYTE_STRIDE, private, words, first_word, gpair, next_rows)


@parallel_kernel.part
def _add_codes(plane, pairs, n_codes, bits, stride, private, words, first_word, gpair, next_rows):
    """private[j · stride + code j] += pair. next_rows : rows whose records and pairs are prefetched meanwhile."""
    mask = uint64((1 << bits) - 1)
    flat, width, source = words.reshape(-1), uint64(words.shape[1]), uint64(first_word)
    for i in range(pairs.size):
        if i < next_rows.size:
            row = uint64(next_rows[i])
            prefetch(flat, row * width + source)
            prefetch(gpair, row)
        word, pair = plane[i], pairs[i]
        for j in range(n_codes):  # unsigned, so that no index could count from the end
            private[uint64(j * stride) + uint64((word >> uint64(j * bits)) & mask)] += pair


@parallel_kernel.part
def _flush(private, stride, offsets, shift, mode, hist):
    """Split the packed sums, write or add them to the int64 histogram, and leave the private one zero."""
    for feature in range(offsets.size - 1):
        own, first, last = private[feature * stride : (feature + 1) * stride], offsets[feature], offsets[feature + 1]
        flat = hist[first:last].reshape(-1)
        for b in range(last - first):
            hess = own[b] & int64(0xFFFFFFFF)
            grad = ((own[b] - hess) >> int64(32)) << shift
            hess <<= shift
            if mode == ASSIGN:
                flat[2 * b], flat[2 * b + 1] = grad, hess
            elif mode == ADD:
                flat[2 * b] += grad
                flat[2 * b + 1] += hess
            else:
                add_atomic(flat, int64(2 * b), grad)
                add_atomic(flat, int64(2 * b + 1), hess)
    private[: (offsets.size + 2) // 4 * 4 * stride] = 0  # codes are added by four


@parallel_kernel
def subtract_histograms_cpu(parents, first_built, hist, n_threads):
    """hist[parents[i]] −= hist[first_built + i]: the parent's slot becomes the larger child's.

    parents : int32 (n,), IN. hist : int64 (n_slots, leaf_size, total_bins, 2), INOUT.
    """
    counter = np.zeros(1, np.int64)
    for _ in prange(n_threads):
        _subtract(counter, parents, first_built, hist)


@parallel_kernel.part
def _subtract(counter, parents, first_built, hist):
    while True:
        i = claim(counter)
        if i >= parents.size:
            return
        parent, child = hist[parents[i]].reshape(-1), hist[first_built + i].reshape(-1)
        for b in range(parent.size):
            parent[b] -= child[b]


# ---------------------------------------------------------------------------------------------------------------------
# CUDA. A block adds one slice of a node's rows to one tile of features in shared memory, and that to global memory.
#
# Gradients and hessians lie in two planes of int32 in shared memory, the only width whose shared-memory atomic add is one
# instruction on every architecture (64-bit and float adds are compare-and-swap loops). MAX_SLICE_ROWS rows cannot overflow them.
# The threads of a warp read consecutive words of a few rows: 4 one-byte codes (2 two-byte codes) each, of different
# features, so their adds go to different banks. Features lie an odd number of words apart: the same bin of two features, or a
# constant column, does not hit one bank.

MAX_SLICE_ROWS = 32768  # |g| ≤ 2^15 and h < 2^16: both planes stay within 31 bits
MIN_SLICE_ROWS_GPU = 512  # 100,000 rows still make a slice for every block of a large GPU; an estimate, not measured
SECTOR = 32  # bytes: records are gathered by whole sectors
SLICES_PER_BLOCK = 4  # a level is cut into so many slices per block that runs at once: the last ones then end together
SUBTRACT_CHUNK = 4096  # values of one work item of the subtraction


def tile_words(n_features: int, code_bytes: int, max_bins: int, shared_limit: int) -> int:
    """Words (4 bytes of codes) of a record that one block adds together; 0 where not even one fits into shared memory.

    At most a sector; fewer where a tile of all of them would not fit, and evenly spread over the record.
    """
    n_words = -(-n_features * code_bytes // 4)
    fitting = min(SECTOR // 4, n_words, max(shared_limit - 8 * WORK_FIELDS, 0) // tile_bytes(1, code_bytes, max_bins))
    return -(-n_words // -(-n_words // fitting)) if fitting else 0


def tile_stride(max_bins: int) -> int:
    """Words between two features of a tile: room for the missing code, and odd."""
    return (max_bins + 1) | 1


def tile_bytes(n_words: int, code_bytes: int, max_bins: int) -> int:
    """Shared memory of a tile."""
    return n_words * (4 // code_bytes) * tile_stride(max_bins) * 8


@cuda_kernel(
    "build: int32[:], segments: int64[:, :], n_blocks: int64, progress: PROGRESS[:], first_item: int64[:]", **ONE_BLOCK
)
def list_build_items_kernel(build, segments, n_blocks, progress, first_item):
    """Cut the rows that the nodes to build have in one page into slices. One block.

    build : int32, IN. The first n_built are nodes, −1 for none. segments : int64 (n_nodes, 3), IN.
    n_blocks : blocks that run at once and share the rows (others take other tiles and outputs).
    first_item : int64 (≥ n_built + 1,), OUT. First slice of each node. progress : OUT n_items.
    """
    partial = cuda.shared.array(32, int64)
    n_built = progress[0].n_built
    own_rows = int64(0)
    i = int64(cuda.threadIdx.x)
    while i < n_built:
        if build[i] >= 0:
            own_rows += segments[build[i], 1] - segments[build[i], 0]
        i += int64(cuda.blockDim.x)
    n_rows = block_sum(own_rows, partial)
    slice_rows = min(max(n_rows // (n_blocks * SLICES_PER_BLOCK), int64(MIN_SLICE_ROWS_GPU)), int64(MAX_SLICE_ROWS))
    n_items = int64(0)
    first = int64(0)
    while first < n_built:
        i = first + int64(cuda.threadIdx.x)
        n_slices = int64(0)
        if i < n_built and build[i] >= 0:
            n_slices = (segments[build[i], 1] - segments[build[i], 0] + slice_rows - 1) // slice_rows
        before, total = block_prefix(n_slices, partial)
        if i < n_built:
            first_item[i] = n_items + before
        n_items += total
        first += int64(cuda.blockDim.x)
    if cuda.threadIdx.x == 0:
        first_item[n_built] = n_items
        progress[0].n_items = n_items


@cache
def build_histograms_kernel(code_bytes):
    """The kernel for codes of 1 or 2 bytes. Dynamic shared memory: tile_bytes of the tile.

    words : uint32 (n_rows, words of a record), IN. The records of codes, four bytes at a time.
    rows : int32 (2, n), IN. The two row buffers. gpair : int32 (n_outputs, 2, n_rows), IN. n_limbs : int32 (n_outputs,), IN.
    offsets : int32 (n_features + 1,), IN. First bin of each feature. stride, words_per_tile : of the tiles.
    progress : IN n_built, n_items. build : int32, IN. first_item : int64, IN, from list_build_items_kernel.
    nodes : NODE, IN. first_output : int32 (n_trees,), IN. segments : int64 (n_nodes, 3), IN.
    hist : int64 (n_slots, leaf_size, total_bins, 2), INOUT. Zeroed by the caller before the first page.

    Grid: a block strides over (slice, output, tile), tiles fastest, so that neighbours read the same rows.
    Work of a row: 4 + 4 + 32 bytes read (its number, its pair, a sector of codes), two adds per feature. Floor of a level of
    11M rows of 28 codes, half of them built: 5.5M × 40 bytes = 0.05 ms at 4.8 TB/s, and 5.5M × 56 shared adds at 132 × 32 / 3.5
    per clock = 0.15 ms (3.5 bank passes for each plane of random bins). Written atomically: hist, by every block that holds a
    part of a node.
    """
    codes_per_word, code_bits = 4 // code_bytes, 8 * code_bytes
    code_mask = (1 << code_bits) - 1

    def build_histograms(
        words, rows, gpair, n_limbs, offsets, stride, words_per_tile, progress, build, first_item, nodes, first_output,
        segments, hist,
    ):  # fmt: skip
        planes, work = cuda.shared.array(0, int32), cuda.shared.array(WORK_FIELDS, int64)
        hess_plane = uint32(words_per_tile * codes_per_word * stride)
        i = uint32(cuda.threadIdx.x)
        while i < uint32(2) * hess_plane:
            planes[i] = int32(0)
            i = uint32(i + uint32(cuda.blockDim.x))
        item = int64(cuda.blockIdx.x)
        while True:
            cuda.syncthreads()  # the planes are zero, and the last item's work has been read
            if cuda.threadIdx.x == 0:
                read_work(
                    item, offsets, codes_per_word, words_per_tile, progress, build, first_item, nodes, first_output, segments,
                    int64(hist.shape[1]), work,
                )  # fmt: skip
            cuda.syncthreads()  # the work is written
            if work[SLOT] < 0:
                break
            limb = int32(0)
            while limb < n_limbs[work[OUTPUT]]:
                n_words, output = uint32(work[N_WORDS]), int32(work[OUTPUT])
                # A thread keeps to one word of the records, and strides over the rows.
                rows_per_step = uint32(uint32(cuda.blockDim.x) // n_words)
                word = uint32(uint32(cuda.threadIdx.x) % n_words)
                at_row = uint32(uint32(work[BEGIN]) + uint32(uint32(cuda.threadIdx.x) // n_words))
                end, side = uint32(work[END]), work[SIDE]
                if uint32(cuda.threadIdx.x) >= uint32(rows_per_step * n_words):
                    at_row = end
                column, first_place = uint32(uint32(work[FIRST_WORD]) + word), uint32(word * uint32(codes_per_word * stride))
                row = uint32(rows[side, at_row]) if at_row < end else uint32(0)
                while at_row < end:
                    pair, codes, place = gpair[output, limb, row], words[row, column], first_place
                    at_row = uint32(at_row + rows_per_step)
                    if at_row < end:
                        row = uint32(rows[side, at_row])  # under way while this row is added
                    for _ in range(codes_per_word):
                        bin_place = uint32(place + uint32(codes & uint32(code_mask)))
                        cuda.atomic.add(planes, bin_place, int32(pair >> 16))
                        cuda.atomic.add(planes, uint32(hess_plane + bin_place), int32(pair & 0xFFFF))
                        codes, place = uint32(codes >> uint32(code_bits)), uint32(place + uint32(stride))
                cuda.syncthreads()  # all rows are in the planes
                shift = LIMB_BITS * int64(n_limbs[work[OUTPUT]] - 1 - limb)
                flush_tile(planes, hess_plane, uint32(stride), offsets, codes_per_word, shift, hist, work)
                cuda.syncthreads()  # the planes are zero again
                limb = int32(limb + 1)
            item += int64(cuda.gridDim.x)

    build_histograms.__name__ = f"build_histograms_kernel_{code_bits}"
    return cuda_kernel(
        "words: uint32[:, :], rows: int32[:, :], gpair: int32[:, :, :], n_limbs: int32[:], offsets: int32[:], stride: int64, "
        "words_per_tile: int64, progress: PROGRESS[:], build: int32[:], first_item: int64[:], nodes: NODE[:], "
        "first_output: int32[:], segments: int64[:, :], hist: int64[:, :, :, :]",
        block=640, registers=48,
    )(build_histograms)  # fmt: skip


# What one thread finds out about a work item for all threads of the block; SLOT is −1 when there are no more items.
SLOT, OWN, OUTPUT, SIDE, BEGIN, END, FIRST_WORD, N_WORDS = range(8)
WORK_FIELDS = 8


@device_function
def read_work(
    item, offsets, codes_per_word, words_per_tile, progress, build, first_item, nodes, first_output, segments, leaf_size, work
):
    """Fill ``work`` for an item: tiles fastest, then outputs, then slices."""
    n_words = (int64(offsets.size) - 1 + codes_per_word - 1) // codes_per_word
    n_tiles = (n_words + words_per_tile - 1) // words_per_tile
    work[SLOT] = int64(-1)
    if item < progress[0].n_items * leaf_size * n_tiles:
        first_word, own, part = item % n_tiles * words_per_tile, item // n_tiles % leaf_size, item // (n_tiles * leaf_size)
        owner = owner_of(first_item, progress[0].n_built, part)
        node, n_parts, part = build[owner], first_item[owner + 1] - first_item[owner], part - first_item[owner]
        begin, n_rows = segments[node, 0], segments[node, 1] - segments[node, 0]
        work[SLOT], work[OWN], work[SIDE] = int64(nodes[node].slot), own, segments[node, 2]
        work[OUTPUT] = int64(first_output[nodes[node].tree]) + own
        work[BEGIN], work[END] = begin + n_rows * part // n_parts, begin + n_rows * (part + 1) // n_parts
        work[FIRST_WORD], work[N_WORDS] = first_word, min(words_per_tile, n_words - first_word)


@device_function
def flush_tile(planes, hess_plane, stride, offsets, codes_per_word, shift, hist, work):
    """Add a tile to the int64 histogram, and leave it zero: a warp takes a feature at a time.

    Beyond the bins of a feature lies the slot of its missing code; of a feature that only pads the record, that of code 0.
    """
    slot, output = work[SLOT], work[OWN]
    own = uint32(cuda.threadIdx.x >> 5)
    while own < uint32(uint32(work[N_WORDS]) * uint32(codes_per_word)):
        feature, first_bin, n_bins = work[FIRST_WORD] * codes_per_word + int64(own), int64(0), int64(0)
        if feature < offsets.size - 1:
            first_bin = int64(offsets[feature])
            n_bins = int64(offsets[feature + 1]) - first_bin
        b = int64(lane_number())
        while b <= n_bins:
            place = uint32(uint32(own * stride) + uint32(b))
            grad, hess = planes[place], planes[uint32(hess_plane + place)]
            if grad != 0 or hess != 0:
                if b < n_bins:
                    cuda.atomic.add(hist, (slot, output, first_bin + b, 0), int64(grad) << shift)
                    cuda.atomic.add(hist, (slot, output, first_bin + b, 1), int64(hess) << shift)
                planes[place] = int32(0)
                planes[uint32(hess_plane + place)] = int32(0)
            b += 32
        own = uint32(own + uint32(cuda.blockDim.x >> 5))


@cache
def build_histograms_global_kernel(code_bytes):
    """The same where no tile fits into shared memory (more than about 10,000 bins): int64 adds straight to global memory.

    Arguments as build_histograms_kernel; stride and words_per_tile are not read. A block takes one word of a slice's records.
    Every update costs an atomic add in the second-level cache.
    """
    codes_per_word, code_bits = 4 // code_bytes, 8 * code_bytes
    code_mask = (1 << code_bits) - 1

    def build_histograms(
        words, rows, gpair, n_limbs, offsets, stride, words_per_tile, progress, build, first_item, nodes, first_output,
        segments, hist,
    ):  # fmt: skip
        work = cuda.shared.array(WORK_FIELDS, int64)
        item = int64(cuda.blockIdx.x)
        while True:
            cuda.syncthreads()  # the last item's work has been read
            if cuda.threadIdx.x == 0:
                read_work(
                    item, offsets, codes_per_word, int64(1), progress, build, first_item, nodes, first_output, segments,
                    int64(hist.shape[1]), work,
                )  # fmt: skip
            cuda.syncthreads()  # the work is written
            if work[SLOT] < 0:
                break
            output, slot, own, word = work[OUTPUT], work[SLOT], work[OWN], work[FIRST_WORD]
            i = work[BEGIN] + int64(cuda.threadIdx.x)
            while i < work[END]:
                row = rows[work[SIDE], i]
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
            item += int64(cuda.gridDim.x)

    build_histograms.__name__ = f"build_histograms_global_kernel_{code_bits}"
    return cuda_kernel(
        "words: uint32[:, :], rows: int32[:, :], gpair: int32[:, :, :], n_limbs: int32[:], offsets: int32[:], stride: int64, "
        "words_per_tile: int64, progress: PROGRESS[:], build: int32[:], first_item: int64[:], nodes: NODE[:], "
        "first_output: int32[:], segments: int64[:, :], hist: int64[:, :, :, :]",
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
