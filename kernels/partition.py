"""Move the rows of every split node to its children, keeping their order.

    rows = [abcdef|ghij]   left = [ace], right = [bdf]   ->   [ace|bdf|ghij]

Each node owns a segment of a row list; its children share it. A row list has two buffers: a node's rows lie in one, its
children's are written to the other, so nothing is copied back. Ascending row order inside every node keeps the histograms' gathers
local, and makes the result independent of how the work was cut.

Two passes over chunks of rows: count those that go left in every chunk, then (after a running sum over chunks) write each chunk
where it belongs. The feature-major copy of the codes is read: one byte a row. Floor: 2 × (4 + 1) bytes read and 4 written per row.
"""

import numpy as np
from numba import int64, prange

from gpuboost.kernels.jit import claim, kernel, parallel_kernel
from gpuboost.kernels.scalar import go_left

CHUNK = 4096


@kernel
def list_chunks(selected, segments, chunks):
    """Cut the rows of the selected nodes into chunks; returns how many.

    selected : int32 (n,), IN. segments : int64 (n_nodes, 3), IN.
    chunks : int64 (capacity, 4), OUT. Index into selected, begin, end, and (filled by the passes) rows that go left.
    """
    n = 0
    for i in range(selected.size):
        begin, end = segments[selected[i], 0], segments[selected[i], 1]
        for first in range(begin, end, CHUNK):
            chunks[n, 0], chunks[n, 1], chunks[n, 2] = i, first, min(first + CHUNK, end)
            n += 1
    return n


@parallel_kernel
def partition_rows_cpu(selected, nodes, chunks, columns, n_bins, rows, segments, n_threads):
    """Split the rows of the selected nodes of one page.

    selected : int32 (n,), IN. nodes : NODE, IN. chunks : int64 (n_chunks, 4), INOUT, from list_chunks.
    columns : uint8 or uint16 (n_features, n_rows), IN. n_bins : int32 (n_features,), IN; also the code of a missing value.
    rows : int32 (2, n), INOUT. The two row buffers. segments : int64 (n_nodes, 3), INOUT: the children's are written.
    """
    counter = np.zeros(1, np.int64)
    for _ in prange(n_threads):
        _count_left(counter, selected, nodes, chunks, columns, n_bins, rows, segments)
    _place_children(selected, nodes, chunks, segments)
    counter2 = np.zeros(1, np.int64)
    for _ in prange(n_threads):
        _move_rows(counter2, selected, nodes, chunks, columns, n_bins, rows, segments)


@parallel_kernel.part
def _count_left(counter, selected, nodes, chunks, columns, n_bins, rows, segments):
    while True:
        item = claim(counter)
        if item >= chunks.shape[0]:
            return
        node = nodes[selected[chunks[item, 0]]]
        side = segments[selected[chunks[item, 0]], 2]
        codes, split_bin, missing_code, default_left = columns[node.feature], node.bin, n_bins[node.feature], node.default_left
        n_left = int64(0)
        for i in range(chunks[item, 1], chunks[item, 2]):
            n_left += go_left(codes[rows[side, i]], split_bin, missing_code, default_left)
        chunks[item, 3] = n_left


@parallel_kernel.part
def _place_children(selected, nodes, chunks, segments):
    """Turn the counts of left rows into the children's segments and each chunk's first left place."""
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


@parallel_kernel.part
def _move_rows(counter, selected, nodes, chunks, columns, n_bins, rows, segments):
    while True:
        item = claim(counter)
        if item >= chunks.shape[0]:
            return
        split = selected[chunks[item, 0]]
        node = nodes[split]
        begin, side = segments[split, 0], segments[split, 2]
        codes, split_bin, missing_code, default_left = columns[node.feature], node.bin, n_bins[node.feature], node.default_left
        to_left = chunks[item, 3]
        # Rows before this chunk that went right: all before it, less those that went left.
        to_right = segments[node.left + 1, 0] + (chunks[item, 1] - begin) - (to_left - begin)
        for i in range(chunks[item, 1], chunks[item, 2]):
            row = rows[side, i]
            is_left = go_left(codes[row], split_bin, missing_code, default_left)
            rows[1 - side, to_left if is_left else to_right] = row
            to_left += is_left
            to_right += not is_left
