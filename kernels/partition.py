"""Move the rows of every split node to its children.

    rows = [abcdef|ghij]   left = [ace], right = [bdf]   ->   [ace|bdf|ghij]

Each node owns a segment of a row list; its children share it. A row list has two buffers: a node's rows lie in one, its
children's are written to the other, so nothing is copied back. Row order that ascends inside every node, or on a GPU in long
runs, keeps the gathers of the histograms local. The feature-major copy of the codes is read, once: one byte a row.

On the CPU two passes over chunks of rows: mark and count those that go left in every chunk, then (after a running sum over
chunks) write each chunk where it belongs. Floor: 2 × (4 + 1) bytes read and 4 + 1 written per row. A GPU does both in one.
What a row costs to write, one thread of an Intel Xeon (2026-11-27): 0.71 ns one by one, 0.17 sixteen at once (compressing.py).
"""

import numpy as np
from numba import int32, int64, uint32, uint64

from gpuboost.kernels.addresses import load_at, store_at
from gpuboost.kernels.allocation import empty
from gpuboost.kernels.compressing import part_sixteens
from gpuboost.kernels.cuda_common import (
    FULL_WARP,
    ONE_BLOCK,
    block_prefix,
    cuda,
    cuda_kernel,
    device_function,
    lane_number,
    n_threads,
    owner_by_block,
    thread_number,
    warp_sum,
)
from gpuboost.kernels.jit import kernel, launch, parallel_kernel
from gpuboost.kernels.nodes import count_rows
from gpuboost.kernels.scalar import also_left, go_left, split_goes_left
from gpuboost.kernels.shares import claim_near, claim_rows, new_counters
from gpuboost.kernels.structs import NUMERIC

LEAST_CHUNK, MOST_CHUNK = 2048, 32768  # rows
LEAST_ROWS = 65536  # that several threads list: 3 µs of one
CHUNKS_PER_THREAD = 8  # so that uneven ones balance


@parallel_kernel
def start_rows_cpu(n_trees, drawn, n_drawn, rows, segments, n_threads):
    """The rows drawn to the root of each tree.

    drawn : int32 (k,), IN. The first n_drawn are, ascending. rows : int32 (2, ≥ n_trees · k), OUT: the first buffer.
    segments : int64 (n_nodes, 3), OUT, of the roots.
    """
    for tree in range(n_trees):
        first = tree * drawn.size
        segments[tree, 0], segments[tree, 1], segments[tree, 2] = first, first + n_drawn, 0
    launch(n_threads if n_drawn >= LEAST_ROWS else 1, _start_rows, (new_counters(n_threads), n_trees, drawn, n_drawn, rows))


@parallel_kernel.part
def _start_rows(thread, counters, n_trees, drawn, n_drawn, rows):
    tree, begin, end = claim_rows(counters, thread, n_trees, n_drawn, int64(MOST_CHUNK))
    while tree < n_trees:
        own, part = rows[0, tree * drawn.size + begin : tree * drawn.size + end], drawn[begin:end]
        if part[part.size - 1] - part[0] == part.size - 1:  # side by side, as where all are drawn: the others are not read
            first = part[0]
            for i in range(own.size):
                own[i] = int32(first + i)
        else:
            for i in range(own.size):
                own[i] = part[i]
        tree, begin, end = claim_rows(counters, thread, n_trees, n_drawn, int64(MOST_CHUNK))


@kernel
def list_chunks(selected, segments, n_threads):
    """Cut the rows of the selected nodes into chunks: int64 (n_chunks, 4), index into selected, begin, end, and (filled by
    mark_rows_cpu) rows that go left.

    A chunk has an eighth of a thread's share of the rows, but at least LEAST_CHUNK and at most MOST_CHUNK: short ones, read by
    two threads in turns, are no stream to a processor that fetches ahead. 2M rows in chunks of 4096 -> 32768, ms a tree of depth
    6 to mark and to move them, two threads of an AMD EPYC 8.8 -> 5.8; of one thread, or in the caches, there is no difference.
    LEAST_CHUNK 4096 -> 2048, 20,000 × 7, two threads: 0.238 -> 0.230 ms a round.

    selected : int32 (n,), IN. segments : int64 (n_nodes, 3), IN.
    """
    n_chunks, n = int64(0), 0
    size = min(max(count_rows(selected, segments) // (CHUNKS_PER_THREAD * n_threads), int64(LEAST_CHUNK)), int64(MOST_CHUNK))
    for node in selected:
        n_chunks += (segments[node, 1] - segments[node, 0] + size - 1) // size
    chunks = empty((n_chunks, 4), np.int64)
    for i in range(selected.size):
        begin, end = segments[selected[i], 0], segments[selected[i], 1]
        for first in range(begin, end, size):
            chunks[n, 0], chunks[n, 1], chunks[n, 2] = i, first, min(first + size, end)
            n += 1
    return chunks


@parallel_kernel
def mark_rows_cpu(selected, nodes, cats, chunks, columns, n_bins, rows, segments, is_left, n_threads):
    """Which rows of the selected nodes of one page go left.

    selected : int32 (n,), IN. nodes : NODE, IN. cats : uint32 (n_nodes, n_words), IN.
    chunks : int64 (n_chunks, 4), INOUT, from list_chunks. Gets the number of rows that go left.
    columns : unsigned integers (n_features, n_rows), IN. n_bins : int32 (n_features,), IN; also the code of a missing value.
    rows : int32 (2, n), IN. The two row buffers. segments : int64 (n_nodes, 3), IN.
    is_left : uint8 (n,), OUT. For each place of the row lists.
    """
    args = new_counters(n_threads), selected, nodes, cats, chunks, columns, n_bins, rows, segments, is_left
    launch(n_threads, _mark_chunks, args)


@parallel_kernel.part
def _mark_chunks(thread, counters, selected, nodes, cats, chunks, columns, n_bins, rows, segments, is_left):
    while True:
        item = claim_near(counters, thread, chunks.shape[0])
        if item >= chunks.shape[0]:
            return
        split, begin, end = selected[chunks[item, 0]], chunks[item, 1], chunks[item, 2]
        node = nodes[split]
        part, marks = rows[segments[split, 2], begin:end], is_left[begin:end]
        chunks[item, 3] = _mark_rows(part, split, nodes, cats, columns[node.feature], int64(n_bins[node.feature]), marks)


@parallel_kernel.part
def _mark_rows(part, split, nodes, cats, codes, missing_code, marks):
    """Gather, compare and count, each a loop of its own: the last two are vectorised, 1.4 -> 0.4 ns a row (one byte a code)."""
    gathered = empty(part.size, codes.dtype)
    for i in range(part.size):
        gathered[i] = codes[uint32(part[i])]
    return mark_codes_part(gathered, split, nodes, cats, missing_code, marks)


@parallel_kernel.part
def mark_codes_part(codes, split, nodes, cats, missing_code, marks):
    """Mark the rows that go left by their codes of the feature that is split; returns how many."""
    node, n_left = nodes[split], int64(0)
    if node.kind == NUMERIC:  # in the type of the codes, which the missing code of 256 bins exceeds
        last, also = codes.dtype.type(node.bin), codes.dtype.type(also_left(node.bin, missing_code, node.default_left))
        if also < last:
            also = last
        for i in range(codes.size):
            marks[i] = go_left(codes[i], last, also)
    elif codes.size > missing_code:  # each code once: 2.9 -> 2.4 ns a row (sets of 1,000 categories, a busy Intel Xeon)
        goes_left = empty(missing_code + 1, np.uint8)
        for code in range(missing_code + 1):
            goes_left[code] = split_goes_left(code, nodes, cats, split, missing_code)
        for i in range(codes.size):
            marks[i] = goes_left[uint32(codes[i])]
    else:
        for i in range(codes.size):
            marks[i] = split_goes_left(codes[i], nodes, cats, split, missing_code)
    for i in range(codes.size):
        n_left += int64(marks[i])
    return n_left


@parallel_kernel
def move_rows_cpu(selected, nodes, chunks, rows, segments, is_left, n_threads):
    """Write the marked rows where they belong in the other buffer, after place_children. Arguments as mark_rows_cpu."""
    launch(n_threads, _move_chunks, (new_counters(n_threads), selected, nodes, chunks, rows, segments, is_left))


@parallel_kernel.part
def _move_chunks(thread, counters, selected, nodes, chunks, rows, segments, is_left):
    while True:
        item = claim_near(counters, thread, chunks.shape[0])
        if item >= chunks.shape[0]:
            return
        split, begin, end, to_left = selected[chunks[item, 0]], chunks[item, 1], chunks[item, 2], chunks[item, 3]
        side = segments[split, 2]
        # Rows before this chunk that went right: all before it, less those that went left.
        to_right = segments[nodes[split].left + 1, 0] + (begin - segments[split, 0]) - (to_left - segments[split, 0])
        move_rows_part(rows[side, begin:end], is_left[begin:end], rows[1 - side], to_left, to_right)


@parallel_kernel.part
def move_rows_part(part, marks, moved, to_left, to_right):
    """Write the marked rows of ``part`` to ``moved`` from to_left on, the others from to_right on. Without a branch."""
    n_done, n_left = part_sixteens(part, marks, moved, uint64(to_left), uint64(to_right))
    to_left, to_right = uint64(to_left) + n_left, uint64(to_right) + n_done - n_left
    for i in range(n_done, uint64(part.size)):
        goes = marks[i] != 0
        moved[to_left if goes else to_right] = part[i]
        to_left += uint64(goes)
        to_right += uint64(not goes)


@kernel
def place_children(selected, nodes, chunks, segments, counts):
    """Between the passes: turn the counts of left rows into the children's segments and each chunk's first left place.

    counts : int64 (n_nodes,), INOUT. The rows of this page are added to those of the children.
    """
    item = 0
    for i in range(selected.size):
        left = nodes[selected[i]].left
        begin, end, side = segments[selected[i], 0], segments[selected[i], 1], segments[selected[i], 2]
        place = begin
        while item < chunks.shape[0] and chunks[item, 0] == i:
            n_left = chunks[item, 3]
            chunks[item, 3] = place
            place += n_left
            item += 1
        segments[left, 0], segments[left, 1], segments[left, 2] = begin, place, 1 - side
        segments[left + 1, 0], segments[left + 1, 1], segments[left + 1, 2] = place, end, 1 - side
        counts[left] += place - begin
        counts[left + 1] += end - place


# ---------------------------------------------------------------------------------------------------------------------
# CUDA. One pass, in which a block reads a chunk of rows and their codes, counts those that go left, and takes room for its rows
# in the children by one atomic add: from the front of the node's segment for rows that go left, from its back for the others.
# The block that takes the last room of a node knows where its children lie.
#
#     list chunks (one block) -> move rows
#
#     node  [abcdef|ghij], of which aceghi go left; the second chunk comes first:     [ghi......j]     [ghiacebdfj]
#
# Rows of a chunk keep their order, chunks come as their blocks do. So a child's rows lie in runs that ascend, and what gathers
# by them finds neighbours beside each other as in a list that ascends throughout; sums of integers are the same in any order.
#
# 4 + 1 bytes read for a row (the code: a sector of 32 where few rows of a node share it), 4 written. A level of 11M rows: 0.1 GB,
# 0.02 ms at 4.8 TB/s, and up to 0.35 GB more of sectors.

ROWS_PER_THREAD = 8  # whose numbers, and then codes, are loaded before the first is looked at
CHUNK_ROWS = 256 * ROWS_PER_THREAD
WARP_ROWS = 32 * ROWS_PER_THREAD


@cuda_kernel(
    "n_trees: int64, progress: PROGRESS[:], drawn: int32[:], n_drawn: int64[:], rows: int32[:, :], segments: int64[:, :]"
)
def start_rows_kernel(n_trees, progress, drawn, n_drawn, rows, segments):
    """start_rows_cpu. n_drawn : int64 (≥ 1,), IN. The first is how many rows are drawn. No rows where a gradient is not finite:
    no kernel then meets it again."""
    n_rows = n_drawn[0] if progress[0].non_finite == 0 else int64(0)
    i = int64(thread_number())
    while i < n_trees:
        first = i * int64(drawn.size)
        segments[i, 0], segments[i, 1], segments[i, 2] = first, first + n_rows, int64(0)
        i += int64(n_threads())
    for tree in range(n_trees):
        at, first = uint32(thread_number()), tree * int64(drawn.size)
        while at < uint32(n_rows):
            store_at(rows, first, at, load_at(drawn, int64(0), at))
            at = uint32(at + uint32(n_threads()))


@cuda_kernel(
    "first_page: int32, selected: int32[:], nodes: NODE[:], segments: int64[:, :], progress: PROGRESS[:], first_chunk: int64[:], "
    "moved: int64[:], counts: int64[:]",
    **ONE_BLOCK,
)  # fmt: skip
def list_chunks_kernel(first_page, selected, nodes, segments, progress, first_chunk, moved, counts):
    """Cut the rows of the selected nodes into chunks of CHUNK_ROWS. first_chunk : int64 (≥ n_selected + 1,), OUT. First chunk
    of each node. moved : int64 (n_nodes,), OUT, of them: no row has been moved. segments : OUT, of the children of nodes without
    rows. counts : int64 (≥ 2 · n_selected,), OUT. Rows of the children: 0 before the first page. progress : OUT n_items."""
    partial = cuda.shared.array(32, int64)
    n_selected, n_chunks = progress[0].n_selected, int64(0)
    first = int64(0)
    while first < n_selected:
        i = first + int64(cuda.threadIdx.x)
        own = int64(0)
        if i < n_selected:
            own = (segments[selected[i], 1] - segments[selected[i], 0] + CHUNK_ROWS - 1) // CHUNK_ROWS
        before, total = block_prefix(own, partial)
        if i < n_selected:
            first_chunk[i] = n_chunks + before
            moved[selected[i]] = int64(0)
            if first_page != 0:
                counts[2 * i], counts[2 * i + 1] = int64(0), int64(0)
            if own == 0:
                place_pair(i, selected[i], int64(0), nodes, segments, counts)
        n_chunks += total
        first += int64(cuda.blockDim.x)
    if cuda.threadIdx.x == 0:
        first_chunk[n_selected] = n_chunks
        progress[0].n_items = n_chunks


@device_function
def place_pair(i, node, n_left, nodes, segments, counts):
    """The segments of the children of the i-th node selected, of whose rows n_left go left, and their rows added to counts."""
    left, begin, end, side = nodes[node].left, segments[node, 0], segments[node, 1], segments[node, 2]
    middle = begin + n_left
    segments[left, 0], segments[left, 1], segments[left, 2] = begin, middle, 1 - side
    segments[left + 1, 0], segments[left + 1, 1], segments[left + 1, 2] = middle, end, 1 - side
    counts[2 * i] += n_left
    counts[2 * i + 1] += end - middle


@device_function
def first_of_thread(at):
    """uint32: place of a thread's first row where its block's begin at ``at``. Each warp has WARP_ROWS that follow each other."""
    return uint32(uint32(at) + uint32(cuda.threadIdx.x >> 5) * uint32(WARP_ROWS) + uint32(lane_number()))


@device_function
def rows_of_thread(rows, side, first, end):
    """(uint64 four times, how many): the row at ``first`` and those 32, 64, … places behind it, ROWS_PER_THREAD at most, two in
    each value. From ``end`` on the last row before it stands for them: without a branch no load waits for another."""
    begin, last = int64(side) * int64(rows.shape[1]), uint32(end - uint32(1))
    n_here = uint32(0) if first > last else min(uint32(uint32(last - first) >> uint32(5)) + uint32(1), uint32(ROWS_PER_THREAD))
    return (
        two_rows(rows, begin, first, last), two_rows(rows, begin, uint32(first + uint32(64)), last),
        two_rows(rows, begin, uint32(first + uint32(128)), last), two_rows(rows, begin, uint32(first + uint32(192)), last),
        uint32(n_here),
    )  # fmt: skip


@device_function
def two_rows(rows, begin, place, last):
    low, high = load_at(rows, begin, min(place, last)), load_at(rows, begin, min(uint32(place + uint32(32)), last))
    return uint64(uint32(low)) | uint64(uint32(high)) << uint64(32)


@device_function
def row_of(rows_here, k):
    """uint32: the k-th of rows_of_thread."""
    pairs01, pairs23 = rows_here[0] if k < 2 else rows_here[1], rows_here[2] if k < 6 else rows_here[3]
    return uint32((pairs01 if k < 4 else pairs23) >> uint64(32 * (k & 1)) & uint64(0xFFFFFFFF))


@device_function
def move_rows(rows_here, goes_left, at, end, i, node, nodes, rows, segments, moved, counts, counted, taken):
    """Write the rows of the block where they belong in the other buffer. All threads call it.

    rows_here : of the thread, from rows_of_thread. goes_left : uint32, bit k says whether the k-th of them does. at, end :
    uint32. Places of the block's first row, and behind its last. i : place of the node among those selected.
    counted : int32 (32,), taken : int64 (1,) of shared memory.
    """
    n_left, n_here = uint32(0), rows_here[4]
    goes_left = uint32(goes_left & uint32(uint32(uint32(1) << n_here) - uint32(1)))  # what stands for a row is none
    for k in range(ROWS_PER_THREAD):
        n_left = uint32(n_left + uint32(cuda.popc(vote(goes_left, k))))
    warp = cuda.threadIdx.x >> 5
    if lane_number() == 0:
        counted[warp] = int32(n_left)
    cuda.syncthreads()  # all warps have counted
    both = int64(0)  # of all warps, and in the upper half of those before this one
    if lane_number() < cuda.blockDim.x >> 5:
        both = int64(counted[lane_number()]) * (int64(2**32 + 1) if lane_number() < warp else int64(1))
    both = warp_sum(both)
    before, total = uint32(both >> 32), uint32(both & 0xFFFFFFFF)
    n_right = uint32(uint32(end - at) - total)
    if cuda.threadIdx.x == 0:
        own = int64(total) << 32 | int64(n_right)
        taken[0] = cuda.atomic.add(moved, node, own)
        n_moved = taken[0] + own
        if (n_moved >> 32) + (n_moved & int64(0xFFFFFFFF)) == segments[node, 1] - segments[node, 0]:
            place_pair(int64(i), node, n_moved >> 32, nodes, segments, counts)
    cuda.syncthreads()  # the room is taken
    begin = int64(1 - segments[node, 2]) * int64(rows.shape[1])
    to_left = uint32(uint32(segments[node, 0]) + uint32(taken[0] >> 32) + before)
    to_right = uint32(uint32(segments[node, 1]) - uint32(taken[0] & 0xFFFFFFFF) - n_right)
    to_right = uint32(to_right + uint32(warp * WARP_ROWS + lane_number()) - before)
    below = uint32(uint32(uint32(1) << uint32(lane_number())) - uint32(1))
    for k in range(ROWS_PER_THREAD):
        word = vote(goes_left, k)
        n_left, rank = uint32(cuda.popc(word)), uint32(cuda.popc(uint32(word & below)))
        place = uint32(to_right - rank) if uint32(goes_left & uint32(1 << k)) == uint32(0) else uint32(to_left + rank)
        if uint32(k) < n_here:
            store_at(rows, begin, place, int32(row_of(rows_here, k)))
        to_left, to_right = uint32(to_left + n_left), uint32(to_right + uint32(32) - n_left)


@device_function
def vote(goes_left, k):
    """uint32: a bit for each lane, whether its k-th row goes left."""
    return uint32(cuda.ballot_sync(FULL_WARP, uint32(goes_left & uint32(1 << k)) != uint32(0)))


@cuda_kernel(
    "selected: int32[:], nodes: NODE[:], cats: uint32[:, :], columns: code[:, :], n_bins: int32[:], rows: int32[:, :], "
    "segments: int64[:, :], progress: PROGRESS[:], first_chunk: int64[:], moved: int64[:], counts: int64[:]",
    code=(np.uint8, np.uint16), registers=104,
)  # fmt: skip
def move_rows_kernel(selected, nodes, cats, columns, n_bins, rows, segments, progress, first_chunk, moved, counts):
    """Write each row of the selected nodes where it belongs in the other buffer. A block takes a chunk, ROWS_PER_THREAD rows of
    each thread at a time.

    cats : uint32 (n_nodes, n_words), IN. columns : uint8 or uint16 (n_features, n_rows), IN. n_bins : int32 (n_features,), IN.
    moved : int64 (n_nodes,), INOUT, of each node: 2^32 · rows gone left + rows gone right. Added to atomically, once a block
        and ROWS_PER_THREAD rows of its threads; what it was says where they go.
    segments : OUT, of the children. counts : int64 (≥ 2 · n_selected,), INOUT. Their rows are added.
    """
    partial, counted, taken = cuda.shared.array(1, int64), cuda.shared.array(32, int32), cuda.shared.array(1, int64)
    chunk = uint32(cuda.blockIdx.x)
    while chunk < uint32(progress[0].n_items):
        owner = uint32(owner_by_block(first_chunk, progress[0].n_selected, int64(chunk), partial))
        node = uint32(selected[owner])
        at = uint32(uint32(segments[node, 0]) + uint32(chunk - uint32(first_chunk[owner])) * uint32(CHUNK_ROWS))
        chunk_end = min(uint32(at + uint32(CHUNK_ROWS)), uint32(segments[node, 1]))
        while at < chunk_end:
            end = min(chunk_end, uint32(at + uint32(cuda.blockDim.x) * uint32(ROWS_PER_THREAD)))
            rows_here = rows_of_thread(rows, uint32(segments[node, 2]), first_of_thread(at), end)
            feature, split_bin = uint32(nodes[node].feature), nodes[node].bin
            missing_code, column = n_bins[feature], int64(feature) * int64(columns.shape[1])
            also = also_left(split_bin, missing_code, nodes[node].default_left)
            low, high, goes_left = uint64(0), uint64(0), uint32(0)
            for k in range(4):
                low |= uint64(load_at(columns, column, row_of(rows_here, k))) << uint64(16 * k)
                high |= uint64(load_at(columns, column, row_of(rows_here, k + 4))) << uint64(16 * k)
            if nodes[node].kind == NUMERIC:
                for k in range(ROWS_PER_THREAD):
                    code = int32(uint32((low if k < 4 else high) >> uint64(16 * (k & 3))) & uint32(0xFFFF))
                    if go_left(code, split_bin, also):
                        goes_left = uint32(goes_left | uint32(uint32(1) << uint32(k)))
            else:
                flag = uint32(1)
                while flag < uint32(uint32(1) << rows_here[4]):  # an end that no compiler unrolls the loop for
                    if split_goes_left(int32(uint32(low) & uint32(0xFFFF)), nodes, cats, node, missing_code):
                        goes_left = uint32(goes_left | flag)
                    low, high = low >> uint64(16) | high << uint64(48), high >> uint64(16)
                    flag = uint32(flag << uint32(1))
            move_rows(rows_here, goes_left, at, end, owner, node, nodes, rows, segments, moved, counts, counted, taken)
            at = end
        chunk = uint32(chunk + uint32(cuda.gridDim.x))
