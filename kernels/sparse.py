"""Rows that list only some of their cells: partition, histograms and prediction of sparse tables.

A cell is a number that says column and code at once, ascending within a row:

    cell = offsets[f] + b       bin b of feature f
    cell = total_bins + f       feature f is missing, where the cells that a row does not list are zeros

What is not listed is absent: missing, or zero. Histograms never visit it: the sums of missing rows are not kept at all
(kernels/histogram.py), and those of the bin of zero are what the node has more than its listed cells. Floor of the histograms: 4
bytes of cell and 16 of a sum, read and written, per listed cell; measured on one core of an AMD EPYC, 2000 columns at 0.5 %:
see benchmarks/sparse.py.
"""

import numpy as np
from numba import float32, int32, int64, prange

from gpuboost.kernels.jit import add_atomic, claim, kernel, parallel_kernel, scalar
from gpuboost.kernels.predict import leaf_of
from gpuboost.kernels.quantise import LIMB_BITS
from gpuboost.kernels.scalar import go_left

DENSE_VALUES = 8192  # floats of a thread's dense rows in prediction: they stay in the first-level cache


@kernel
def list_cells_cpu(bounds, rows, codes, n_bins, offsets, row_begin, cells):
    """The cells of every row, from column blocks (kernels/columns.py).

    bounds : int64 (n_features, 2), rows : int32 (n,), codes : uint32 (n,), IN. n_bins : int32 (n_features,), IN.
    offsets : int32 (n_features + 1,), IN.
    row_begin : int64 (n_rows + 1,), OUT. Row r lists cells[row_begin[r]:row_begin[r + 1]]. cells : int32 (n,), OUT.
    """
    n_features = bounds.shape[0]
    row_begin[:] = 0
    for f in range(n_features):
        for i in range(bounds[f, 0], bounds[f, 1]):
            row_begin[rows[i] + 1] += 1
    for row in range(1, row_begin.size):
        row_begin[row] += row_begin[row - 1]
    place = row_begin[:-1].copy()
    for missing in range(2):  # missing cells last: their numbers are above all others
        for f in range(n_features):
            for i in range(bounds[f, 0], bounds[f, 1]):
                code = int64(codes[i])
                if (code == n_bins[f]) == (missing == 1):
                    row = rows[i]
                    cells[place[row]] = offsets[n_features] + f if missing else offsets[f] + code
                    place[row] += 1


@scalar
def code_of_row(cells, begin, end, first, n_bins, missing_cell, absent_code):
    """The code of a feature in a row: a binary search for the first cell of the feature among the row's cells.

    cells[begin:end] : the row's. first, n_bins : the feature's first cell and number of bins. missing_cell : total_bins + f.
    """
    low, high = begin, end
    while low < high:
        middle = (low + high) >> int64(1)
        if cells[middle] < first:
            low = middle + int64(1)
        else:
            high = middle
    if low < end and cells[low] < first + n_bins:
        return int64(cells[low]) - int64(first)
    if absent_code != n_bins:  # a missing cell would be listed
        high = end
        while low < high:
            middle = (low + high) >> int64(1)
            if cells[middle] < missing_cell:
                low = middle + int64(1)
            else:
                high = middle
        if low < end and cells[low] == missing_cell:
            return int64(n_bins)
    return int64(absent_code)


@parallel_kernel
def mark_sparse_rows_cpu(selected, nodes, chunks, row_begin, cells, offsets, absent, rows, segments, is_left, n_threads):
    """mark_rows_cpu (kernels/partition.py) for a sparse page. absent : int32 (n_features,), IN. Codes of absent cells."""
    counter = np.zeros(1, np.int64)
    for _ in prange(n_threads):
        _mark_chunks(counter, selected, nodes, chunks, row_begin, cells, offsets, absent, rows, segments, is_left)


@parallel_kernel.part
def _mark_chunks(counter, selected, nodes, chunks, row_begin, cells, offsets, absent, rows, segments, is_left):
    while True:
        item = claim(counter)
        if item >= chunks.shape[0]:
            return
        split = selected[chunks[item, 0]]
        node, side = nodes[split], segments[split, 2]
        first, n_bins = offsets[node.feature], offsets[node.feature + 1] - offsets[node.feature]
        missing_cell, absent_code = offsets[offsets.size - 1] + node.feature, absent[node.feature]
        n_left = int64(0)
        for at in range(chunks[item, 1], chunks[item, 2]):
            row = rows[side, at]
            code = code_of_row(cells, row_begin[row], row_begin[row + 1], first, n_bins, missing_cell, absent_code)
            goes = go_left(code, node.bin, n_bins, node.default_left)
            is_left[at] = goes
            n_left += goes
        chunks[item, 3] = n_left


@parallel_kernel
def build_sparse_histograms_cpu(row_begin, cells, zero_bins, rows, gpair, n_limbs, items, hist, n_threads):
    """build_histograms_cpu (kernels/histogram.py) for a sparse page.

    zero_bins : int32 (total_bins + n_features,) or (0,), IN. For each cell, the bin of zero of its feature; empty where absent
        cells are missing. Others as there: several items of one slot are added atomically.
    """
    counter = np.zeros(1, np.int64)
    for _ in prange(n_threads):
        _build_items(counter, row_begin, cells, zero_bins, rows, gpair, n_limbs, items, hist)


@parallel_kernel.part
def _build_items(counter, row_begin, cells, zero_bins, rows, gpair, n_limbs, items, hist):
    while True:
        claimed = claim(counter)
        if claimed >= items.shape[0]:
            return
        item = items[claimed]
        plane, is_shared = item[2], item[6] != 0
        sums = hist[item[0], item[1]].reshape(-1)
        for limb in range(n_limbs[plane]):
            shift = int64(LIMB_BITS * (n_limbs[plane] - 1 - limb))
            _add_rows(
                row_begin, cells, zero_bins, rows[item[3], item[4] : item[5]], gpair[plane, limb], shift, is_shared, sums
            )


@parallel_kernel.part
def _add_rows(row_begin, cells, zero_bins, rows, gpair, shift, is_shared, sums):
    n_bins = sums.size // 2
    total_grad, total_hess = int64(0), int64(0)
    for row in rows:
        pair = gpair[row]
        grad, hess = int64(pair >> int32(16)) << shift, (int64(pair) & int64(0xFFFF)) << shift
        total_grad += grad
        total_hess += hess
        for at in range(row_begin[row], row_begin[row + 1]):
            cell = int64(cells[at])
            if cell < n_bins:
                _add(sums, cell, grad, hess, is_shared)
            if zero_bins.size:
                _add(sums, int64(zero_bins[cell]), -grad, -hess, is_shared)
    if zero_bins.size:
        for f in range(zero_bins.size - n_bins):
            _add(sums, int64(zero_bins[n_bins + f]), total_grad, total_hess, is_shared)


@scalar
def _add(sums, b, grad, hess, is_shared):
    if is_shared:
        add_atomic(sums, int64(2) * b, grad)
        add_atomic(sums, int64(2) * b + int64(1), hess)
    else:
        sums[int64(2) * b] += grad
        sums[int64(2) * b + int64(1)] += hess


@parallel_kernel
def predict_sparse_cpu(
    row_begin, columns, values, missing, absent, trees, tree_begin, tree_groups, margin, leaves, dense, n_threads
):  # fmt: skip
    """predict_values_cpu (kernels/predict.py) for sparse rows (SciPy's csr): some rows at a time are written out.

    row_begin : integers (n_rows + 1,), IN. columns : integers (n,), IN. values : numbers (n,), IN.
    missing : float32. A value equal to it is missing, as NaN is. absent : float32. What a cell is that is not stored: NaN or 0.
    dense : float32 (n_threads, rows at a time, n_features), SCRATCH, full of ``absent``.
    """
    n_rows = row_begin.size - 1
    counter = np.zeros(1, np.int64)
    for thread in prange(n_threads):
        _predict_rows(
            counter, n_rows, row_begin, columns, values, missing, trees, tree_begin, tree_groups, margin, leaves, absent,
            dense[thread],
        )  # fmt: skip


@parallel_kernel.part
def _predict_rows(
    counter, n_rows, row_begin, columns, values, missing, trees, tree_begin, tree_groups, margin, leaves, absent, dense
):  # fmt: skip
    while True:
        begin = claim(counter) * dense.shape[0]
        if begin >= n_rows:
            return
        end = min(begin + dense.shape[0], n_rows)
        for row in range(begin, end):
            for at in range(row_begin[row], row_begin[row + 1]):
                dense[row - begin, columns[at]] = float32(values[at])
        for t in range(tree_begin.size):
            root = tree_begin[t]
            for row in range(begin, end):
                node = leaf_of(dense, row - begin, missing, trees, root)
                margin[tree_groups[t], row] = float32(margin[tree_groups[t], row] + trees[root + node].threshold)
                if leaves.shape[0]:
                    leaves[row, t] = node
        for row in range(begin, end):
            for at in range(row_begin[row], row_begin[row + 1]):
                dense[row - begin, columns[at]] = absent
