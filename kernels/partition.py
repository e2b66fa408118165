"""Move the rows of every split node to its children, keeping their order.

    rows = [abcdef|ghij]   left = [ace], right = [bdf]   ->   [ace|bdf|ghij]

Each node owns a segment of a row list; its children share it. A row list has two buffers: a node's rows lie in one, its
children's are written to the other, so nothing is copied back. Ascending row order inside every node keeps the gathers of the
histograms local, and makes the result independent of how the work was cut.

Two passes over chunks of rows: mark and count those that go left in every chunk, then (after a running sum over chunks) write
each chunk where it belongs. The feature-major copy of the codes is read, once: one byte a row. Floor: 2 × (4 + 1) bytes read and
4 + 1 written per row.
"""

import numpy as np
from numba import int32, int64, uint32, uint64

from gpuboost.kernels.cuda_common import (
    FULL_WARP,
    ONE_BLOCK,
    block_prefix,
    block_sum,
    cuda,
    cuda_kernel,
    lane_number,
    n_threads,
    owner_by_block,
    thread_number,
)
from gpuboost.kernels.jit import claim, kernel, launch, parallel_kernel
from gpuboost.kernels.scalar import also_left, go_left, split_goes_left
from gpuboost.kernels.structs import NUMERIC

CHUNK = 4096


@kernel
def list_chunks(selected, segments):
    """Cut the rows of the selected nodes into chunks: int64 (n_chunks, 4), index into selected, begin, end, and (filled by
    mark_rows_cpu) rows that go left.

    selected : int32 (n,), IN. segments : int64 (n_nodes, 3), IN.
    """
    n_chunks, n = int64(0), 0
    for node in selected:
        n_chunks += (segments[node, 1] - segments[node, 0] + CHUNK - 1) // CHUNK
    chunks = np.empty((n_chunks, 4), np.int64)
    for i in range(selected.size):
        begin, end = segments[selected[i], 0], segments[selected[i], 1]
        for first in range(begin, end, CHUNK):
            chunks[n, 0], chunks[n, 1], chunks[n, 2] = i, first, min(first + CHUNK, end)
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
    counter = np.zeros(1, np.int64)
    launch(n_threads, _mark_chunks, (counter, selected, nodes, cats, chunks, columns, n_bins, rows, segments, is_left))


@parallel_kernel.part
def _mark_chunks(counter, selected, nodes, cats, chunks, columns, n_bins, rows, segments, is_left):
    while True:
        item = claim(counter)
        if item >= chunks.shape[0]:
            return
        split, begin, end = selected[chunks[item, 0]], chunks[item, 1], chunks[item, 2]
        node = nodes[split]
        part, marks = rows[segments[split, 2], begin:end], is_left[begin:end]
        chunks[item, 3] = _mark_rows(part, split, nodes, cats, columns[node.feature], int64(n_bins[node.feature]), marks)


@parallel_kernel.part
def _mark_rows(part, split, nodes, cats, codes, missing_code, marks):
    """Gather, compare and count, each a loop of its own: the last two are vectorised, 1.4 -> 0.4 ns a row (one byte a code)."""
    node, gathered, n_left = nodes[split], np.empty(part.size, codes.dtype), int64(0)
    for i in range(part.size):
        gathered[i] = codes[uint32(part[i])]
    if node.kind == NUMERIC:  # in the type of the codes, which the missing code of 256 bins exceeds
        last, also = gathered.dtype.type(node.bin), gathered.dtype.type(also_left(node.bin, missing_code, node.default_left))
        if also < last:
            also = last
        for i in range(part.size):
            marks[i] = go_left(gathered[i], last, also)
    else:
        for i in range(part.size):
            marks[i] = split_goes_left(gathered[i], nodes, cats, split, missing_code)
    for i in range(part.size):
        n_left += int64(marks[i])
    return n_left


@parallel_kernel
def move_rows_cpu(selected, nodes, chunks, rows, segments, is_left, n_threads):
    """Write the marked rows where they belong in the other buffer, after place_children. Arguments as mark_rows_cpu."""
    counter = np.zeros(1, np.int64)
    launch(n_threads, _move_chunks, (counter, selected, nodes, chunks, rows, segments, is_left))


@parallel_kernel.part
def _move_chunks(counter, selected, nodes, chunks, rows, segments, is_left):
    while True:
        item = claim(counter)
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
    to_left, to_right = uint64(to_left), uint64(to_right)
    for i in range(part.size):
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
# CUDA. The decisions of the first pass are kept, one bit a row, so that the second needs no codes:
#
#     list chunks (one block) -> mark rows -> place children (one block) -> move rows
#
# 4 + 1 bytes read to mark a row (the code: a sector of 32 where few rows of a node share it), 4 read and 4 written to move it. A
# level of 11M rows: 0.14 GB, 0.03 ms at 4.8 TB/s, and up to 0.35 GB more of sectors.

CHUNK_ROWS = 2048  # 8 rows of each of 256 threads
CHUNK_WORDS = CHUNK_ROWS // 32
AT_ONCE = 4  # rows of a thread whose numbers, and then codes, are loaded before the first is looked at


@cuda_kernel(
    "n_trees: int64, progress: PROGRESS[:], drawn: int32[:], n_drawn: int64[:], rows: int32[:, :], segments: int64[:, :]"
)
def start_rows_kernel(n_trees, progress, drawn, n_drawn, rows, segments):
    """The rows drawn to the root of each tree.

    drawn : int32 (k,), IN. n_drawn : int64, IN. The first is how many of them.
    rows : int32 (2, n_trees · k), OUT: the first buffer.
    segments : int64 (n_nodes, 3), OUT, of the roots. No rows where a gradient is not finite: no kernel then meets it again."""
    n_rows = n_drawn[0] if progress[0].non_finite == 0 else int64(0)
    i = int64(thread_number())
    while i < max(n_rows, n_trees):
        if i < n_trees:
            first = i * int64(drawn.size)
            segments[i, 0], segments[i, 1], segments[i, 2] = first, first + n_rows, int64(0)
        if i < n_rows:
            for tree in range(n_trees):
                rows[0, tree * int64(drawn.size) + i] = drawn[i]
        i += int64(n_threads())


@cuda_kernel("selected: int32[:], segments: int64[:, :], progress: PROGRESS[:], first_chunk: int64[:]", **ONE_BLOCK)
def list_chunks_kernel(selected, segments, progress, first_chunk):
    """Cut the rows of the selected nodes into chunks of CHUNK_ROWS. first_chunk : int64 (≥ n_selected + 1,), OUT. First chunk
    of each node. progress : OUT n_items."""
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
        n_chunks += total
        first += int64(cuda.blockDim.x)
    if cuda.threadIdx.x == 0:
        first_chunk[n_selected] = n_chunks
        progress[0].n_items = n_chunks


@cuda_kernel(
    "selected: int32[:], nodes: NODE[:], cats: uint32[:, :], columns: code[:, :], n_bins: int32[:], rows: int32[:, :], "
    "segments: int64[:, :], progress: PROGRESS[:], first_chunk: int64[:], marks: uint32[:, :], n_left: int64[:]",
    code=(np.uint8, np.uint16), registers=64,
)  # fmt: skip
def mark_rows_kernel(selected, nodes, cats, columns, n_bins, rows, segments, progress, first_chunk, marks, n_left):
    """Which rows of each chunk go left. A block takes a chunk, a thread AT_ONCE rows at a time.

    cats : uint32 (n_nodes, n_words), IN. columns : uint8 or uint16 (n_features, n_rows), IN. n_bins : int32 (n_features,), IN.
    marks : uint32 (≥ n_chunks, CHUNK_WORDS), OUT. One bit a row. n_left : int64 (≥ n_chunks,), OUT. Rows that go left.
    """
    partial = cuda.shared.array(32, int64)
    chunk = int64(cuda.blockIdx.x)
    while chunk < progress[0].n_items:
        owner = owner_by_block(first_chunk, progress[0].n_selected, chunk, partial)
        node = selected[owner]
        begin = segments[node, 0] + (chunk - first_chunk[owner]) * CHUNK_ROWS
        end, side = min(begin + CHUNK_ROWS, segments[node, 1]), segments[node, 2]
        feature, split_bin, is_numeric = nodes[node].feature, nodes[node].bin, nodes[node].kind == NUMERIC
        missing_code = n_bins[feature]
        also = also_left(split_bin, missing_code, nodes[node].default_left)
        own_left, first, step = int64(0), int64(cuda.threadIdx.x), int64(cuda.blockDim.x)
        while first - int64(cuda.threadIdx.x) < CHUNK_ROWS:
            codes = uint64(0)
            for k in range(AT_ONCE):  # behind the last row, that one again: without a branch no load waits for another's code
                row = rows[side, min(begin + first + k * step, end - 1)]
                codes |= uint64(columns[feature, row]) << uint64(16 * k)
            for k in range(AT_ONCE):
                i, code = first + k * step, int32(uint32(codes >> uint64(16 * k)) & uint32(0xFFFF))
                is_left = go_left(code, split_bin, also)
                if not is_numeric:
                    is_left = split_goes_left(code, nodes, cats, node, missing_code)
                word = uint32(cuda.ballot_sync(FULL_WARP, is_left and begin + i < end))
                if lane_number() == 0 and i < CHUNK_ROWS:
                    marks[chunk, i >> 5] = word
                    own_left += int64(cuda.popc(word))
            first += AT_ONCE * step
        own_left = block_sum(own_left, partial)
        if cuda.threadIdx.x == 0:
            n_left[chunk] = own_left
        chunk += int64(cuda.gridDim.x)


@cuda_kernel(
    "first_page: int32, selected: int32[:], nodes: NODE[:], progress: PROGRESS[:], first_chunk: int64[:], n_left: int64[:], "
    "segments: int64[:, :], counts: int64[:]",
    **ONE_BLOCK,
)  # fmt: skip
def place_children_kernel(first_page, selected, nodes, progress, first_chunk, n_left, segments, counts):
    """Between the passes: n_left becomes the rows that go left before each chunk (one more entry: in all), and the children get
    their segments. counts : int64 (≥ 2 · n_selected,), INOUT. Rows of the children, set by the first page, added to by the
    others."""
    partial = cuda.shared.array(32, int64)
    n_chunks, n_before = progress[0].n_items, int64(0)
    first = int64(0)
    while first < n_chunks:
        chunk = first + int64(cuda.threadIdx.x)
        own = n_left[chunk] if chunk < n_chunks else int64(0)
        before, total = block_prefix(own, partial)
        if chunk < n_chunks:
            n_left[chunk] = n_before + before
        n_before += total
        first += int64(cuda.blockDim.x)
    if cuda.threadIdx.x == 0:
        n_left[n_chunks] = n_before
    cuda.syncthreads()  # all sums are there
    i = int64(cuda.threadIdx.x)
    while i < progress[0].n_selected:
        node = selected[i]
        left = nodes[node].left
        begin, end, side = segments[node, 0], segments[node, 1], segments[node, 2]
        middle = begin + n_left[first_chunk[i + 1]] - n_left[first_chunk[i]]
        segments[left, 0], segments[left, 1], segments[left, 2] = begin, middle, 1 - side
        segments[left + 1, 0], segments[left + 1, 1], segments[left + 1, 2] = middle, end, 1 - side
        counts[2 * i] = middle - begin + (int64(0) if first_page != 0 else counts[2 * i])
        counts[2 * i + 1] = end - middle + (int64(0) if first_page != 0 else counts[2 * i + 1])
        i += int64(cuda.blockDim.x)


@cuda_kernel(
    "selected: int32[:], rows: int32[:, :], segments: int64[:, :], progress: PROGRESS[:], first_chunk: int64[:], "
    "marks: uint32[:, :], n_left: int64[:], nodes: NODE[:]",
    registers=40,
)  # fmt: skip
def move_rows_kernel(selected, rows, segments, progress, first_chunk, marks, n_left, nodes):
    """Write each row of a chunk where it belongs in the other buffer. A block takes a chunk.

    A row that goes left has as many before it as the chunks before have, plus the marks before its own within the chunk.
    """
    partial, before_word = cuda.shared.array(32, int64), cuda.shared.array(CHUNK_WORDS, int32)
    chunk = int64(cuda.blockIdx.x)
    while chunk < progress[0].n_items:
        owner = owner_by_block(first_chunk, progress[0].n_selected, chunk, partial)
        node = selected[owner]
        first_row = (chunk - first_chunk[owner]) * CHUNK_ROWS  # of the chunk, within the node
        begin = segments[node, 0] + first_row
        end, side = min(begin + CHUNK_ROWS, segments[node, 1]), segments[node, 2]
        left_before = n_left[chunk] - n_left[first_chunk[owner]]
        to_left = segments[node, 0] + left_before
        to_right = segments[nodes[node].left + 1, 0] + first_row - left_before
        n_words, first_word = int64(0), int64(0)
        while first_word < CHUNK_WORDS:
            word = first_word + int64(cuda.threadIdx.x)
            own = int64(cuda.popc(marks[chunk, word])) if word < CHUNK_WORDS else int64(0)
            before, total = block_prefix(own, partial)
            if word < CHUNK_WORDS:
                before_word[word] = int32(n_words + before)
            n_words += total
            first_word += int64(cuda.blockDim.x)
        cuda.syncthreads()  # before_word is complete
        first, step = int64(cuda.threadIdx.x), int64(cuda.blockDim.x)
        while begin + first < end and first < CHUNK_ROWS:
            low, high = uint64(0), uint64(0)
            for k in range(AT_ONCE):  # before the first is stored, which to the compiler might change the others
                row = uint64(uint32(rows[side, min(begin + first + k * step, end - 1)])) << uint64(32 * (k & 1))
                if k < 2:
                    low |= row
                else:
                    high |= row
            for k in range(AT_ONCE):
                i, row = first + k * step, int32(uint32((low if k < 2 else high) >> uint64(32 * (k & 1))))
                if begin + i < end:
                    mark, lane = marks[chunk, i >> 5], uint32(i & 31)
                    rank = before_word[i >> 5] + cuda.popc(uint32(mark & uint32(uint32(uint32(1) << lane) - uint32(1))))
                    if (mark >> lane) & uint32(1) != uint32(0):
                        rows[1 - side, to_left + rank] = row
                    else:
                        rows[1 - side, to_right + i - rank] = row
            first += AT_ONCE * step
        # before_word has been read when it is written anew: between lie the barriers of block_prefix
        chunk += int64(cuda.gridDim.x)
