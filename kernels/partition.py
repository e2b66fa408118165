"""Move the rows of every split node to its children, keeping their order.

    rows = [abcdef|ghij]   left = [ace], right = [bdf]   ->   [ace|bdf|ghij]

Each node owns a segment of a row list; its children share it. A row list has two buffers: a node's rows lie in one, its
children's are written to the other, so nothing is copied back. Ascending row order inside every node keeps the gathers of the
histograms local, and makes the result independent of how the work was cut.

Two passes over chunks of rows: count those that go left in every chunk, then (after a running sum over chunks) write each chunk
where it belongs. The feature-major copy of the codes is read: one byte a row. Floor: 2 × (4 + 1) bytes read and 4 written per
row.
"""

import numpy as np
from numba import int64, prange

from gpuboost.kernels.jit import claim, kernel, parallel_kernel
from gpuboost.kernels.records import NUMERIC
from gpuboost.kernels.scalar import category_goes_left, go_left

CHUNK = 4096
COUNT, MOVE = 0, 1


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
def partition_rows_cpu(phase, selected, nodes, cats, chunks, columns, n_bins, rows, segments, n_threads):
    """Split the rows of the selected nodes of one page: phase COUNT, then place_children, then phase MOVE.

    selected : int32 (n,), IN. nodes : NODE, IN. cats : uint32 (n_nodes, n_words), IN.
    chunks : int64 (n_chunks, 4), INOUT, from list_chunks.
    columns : uint8 or uint16 (n_features, n_rows), IN. n_bins : int32 (n_features,), IN; also the code of a missing value.
    rows : int32 (2, n), INOUT. The two row buffers. segments : int64 (n_nodes, 3), IN.
    """
    counter = np.zeros(1, np.int64)
    for _ in prange(n_threads):
        _partition_chunks(phase, counter, selected, nodes, cats, chunks, columns, n_bins, rows, segments)


@parallel_kernel.part
def _partition_chunks(phase, counter, selected, nodes, cats, chunks, columns, n_bins, rows, segments):
    while True:
        item = claim(counter)
        if item >= chunks.shape[0]:
            return
        chunk = chunks[item]
        split = selected[chunk[0]]
        node = nodes[split]
        side = segments[split, 2]
        part, moved = rows[side, chunk[1] : chunk[2]], rows[1 - side]
        if phase == COUNT:
            chunk[3] = _count_left(part, node, cats[split], columns[node.feature], n_bins[node.feature])
        else:
            # Rows before this chunk that went right: all before it, less those that went left.
            to_left = chunk[3]
            to_right = segments[node.left + 1, 0] + (chunk[1] - segments[split, 0]) - (to_left - segments[split, 0])
            _move_rows(part, moved, to_left, to_right, node, cats[split], columns[node.feature], n_bins[node.feature])


@parallel_kernel.part
def _count_left(part, node, cats, codes, missing_code):
    n_left = int64(0)
    if node.kind == NUMERIC:
        for row in part:
            n_left += go_left(codes[row], node.bin, missing_code, node.default_left)
    else:
        for row in part:
            n_left += category_goes_left(codes[row], cats, missing_code, node.default_left)
    return n_left


@parallel_kernel.part
def _move_rows(part, moved, to_left, to_right, node, cats, codes, missing_code):
    for row in part:
        if node.kind == NUMERIC:
            is_left = go_left(codes[row], node.bin, missing_code, node.default_left)
        else:
            is_left = category_goes_left(codes[row], cats, missing_code, node.default_left)
        moved[to_left if is_left else to_right] = row
        to_left += is_left
        to_right += not is_left


@kernel
def place_children(selected, nodes, chunks, segments):
    """Between the phases: turn the counts of left rows into the children's segments and each chunk's first left place."""
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
