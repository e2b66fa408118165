"""Steps of coordinate descent for a linear model: sums over the values of columns, and what a step does to gradients and margins.

A table is lists of its values that are neither missing nor zero, column by column, rows ascending (data/column_lists.py); the
last column is one of ones, for the bias. For the second-order model of the loss at gradients g, h a step δ_j along column j asks

    G_j = Σ g·v,  H_j = Σ h·v²        over the column's entries (row, v)
    g  += h · v · δ_j                 afterwards, in each of its rows
    C   = Σ h · (Σ_j v·δ_j)²          how much several steps at once curve the loss, entry by entry: h·x·(2·d + x), x = v·δ_j,
                                      where d is the sum of the row's entries before

Sums are integers: each term is rounded to a power of two, float64(g)·float64(v) being exact, so that neither threads nor workers
change them. A thread takes a range of rows and walks the columns in their order, so that each row sees one order of additions.

Floor: 8 bytes an entry, and 8 of its row.
"""

import math

import numpy as np
from numba import float32, float64, int64

from gpuboost.kernels.jit import add_atomic, claim, launch, parallel_kernel, scalar

RANGES_PER_THREAD = 4  # of rows, so that uneven ones balance


@scalar
def rounded(term, scale):
    """⌊term · scale + ½⌋."""
    return int64(math.floor(term * scale + float64(0.5)))


@parallel_kernel.part
def _first_from(rows, begin, end, row):
    """The first entry of a column, begin ≤ i < end, that lies in this row or below; end where there is none."""
    while begin < end:
        middle = (begin + end) // 2
        if rows[middle] < row:
            begin = middle + 1
        else:
            end = middle
    return begin


@parallel_kernel.part
def _entries_in(rows, begin, end, row, n_rows):
    """(begin, end) of a column's entries, which lie from begin to end, in n_rows rows from that one on."""
    begin = _first_from(rows, begin, end, row)
    return begin, _first_from(rows, begin, end, row + n_rows)


@scalar
def _n_ranges(n_threads):
    return 1 if n_threads == 1 else n_threads * RANGES_PER_THREAD


@parallel_kernel
def sum_columns_cpu(first, rows, values, features, grad, hess, scales, sums, n_threads):
    """G and H of some columns.

    first : int64 (n_columns + 1,), IN. Where the entries of each column begin. rows : int32 (n_entries,), IN.
    values : float32 (n_entries,), IN. features : int64 (n,), IN. grad, hess : float32 (n_rows,), IN.
    scales : float64 (n, 2), IN. Powers of two. sums : int64 (2 n,), INOUT. G·scale and H·scale of each.
    """
    counter = np.zeros(1, np.int64)
    launch(n_threads, _sum_ranges, (counter, first, rows, values, features, grad, hess, scales, sums, n_threads))


@parallel_kernel.part
def _sum_ranges(counter, first, rows, values, features, grad, hess, scales, sums, n_threads):
    n_ranges = _n_ranges(n_threads)
    size = (grad.size + n_ranges - 1) // n_ranges
    while True:
        k = claim(counter)
        if k >= n_ranges:
            return
        for i in range(features.size):
            f = features[i]
            begin, end = _entries_in(rows, first[f], first[f + 1], k * size, size)
            sum_grad, sum_hess = int64(0), int64(0)
            for e in range(begin, end):
                row, value = rows[e], float64(values[e])
                sum_grad += rounded(float64(grad[row]) * value, scales[i, 0])
                sum_hess += rounded(float64(hess[row]) * (value * value), scales[i, 1])
            add_atomic(sums, int64(2 * i), sum_grad)
            add_atomic(sums, int64(2 * i + 1), sum_hess)


@parallel_kernel
def curve_cpu(first, rows, values, features, steps, hess, scale, along, curvature, n_threads):
    """C of steps along several columns at once.

    steps : float64 (n,), IN. along : float64 (n_rows,), INOUT: zeros, then Σ_j v·δ_j.
    curvature : int64 (1,), INOUT. C·scale. The rest as sum_columns_cpu.
    """
    counter = np.zeros(1, np.int64)
    launch(n_threads, _curve_ranges, (counter, first, rows, values, features, steps, hess, scale, along, curvature, n_threads))


@parallel_kernel.part
def _curve_ranges(counter, first, rows, values, features, steps, hess, scale, along, curvature, n_threads):
    n_ranges = _n_ranges(n_threads)
    size = (hess.size + n_ranges - 1) // n_ranges
    while True:
        k = claim(counter)
        if k >= n_ranges:
            return
        total = int64(0)
        for i in range(features.size):
            f = features[i]
            begin, end = _entries_in(rows, first[f], first[f + 1], k * size, size)
            for e in range(begin, end):
                row, x = rows[e], float64(values[e]) * steps[i]
                total += rounded(float64(hess[row]) * (x * (2.0 * along[row] + x)), scale)
                along[row] += x
        add_atomic(curvature, int64(0), total)


@parallel_kernel
def shift_gradients_cpu(first, rows, values, features, steps, hess, along, grad, largest, n_threads):
    """The gradients after steps along some columns.

    steps : float64 (n,), IN. along : float64, INOUT: set to zero again, unless it is of size 0. grad : float32 (n_rows,), INOUT.
    largest : float32 (n_threads,), OUT. The largest |g| that each thread wrote, NaN if there is one. The rest as sum_columns_cpu.
    """
    counter = np.zeros(1, np.int64)
    args = (counter, first, rows, values, features, steps, hess, along, grad, largest, n_threads)
    launch(n_threads, _shift_ranges, args)


@parallel_kernel.part
def _shift_ranges(thread, counter, first, rows, values, features, steps, hess, along, grad, largest, n_threads):
    n_ranges = _n_ranges(n_threads)
    size = (grad.size + n_ranges - 1) // n_ranges
    most = float32(0)
    while True:
        k = claim(counter)
        if k >= n_ranges:
            break
        for i in range(features.size):
            f = features[i]
            begin, end = _entries_in(rows, first[f], first[f + 1], k * size, size)
            for e in range(begin, end):
                row = rows[e]
                shifted = float32(float64(grad[row]) + float64(hess[row]) * (float64(values[e]) * steps[i]))
                grad[row] = shifted
                if most == most and not abs(shifted) <= most:  # so that NaN is the largest
                    most = abs(shifted)
                if along.size:
                    along[row] = 0.0
    largest[thread] = most


@parallel_kernel
def add_columns_cpu(first, rows, values, features, weights, margin, n_threads):
    """Add v · weight of some columns, one after another in float32, to margins. weights : float32 (n_columns,), IN.
    margin : float32 (n_rows,), INOUT. The rest as sum_columns_cpu."""
    counter = np.zeros(1, np.int64)
    launch(n_threads, _add_ranges, (counter, first, rows, values, features, weights, margin, n_threads))


@parallel_kernel.part
def _add_ranges(counter, first, rows, values, features, weights, margin, n_threads):
    n_ranges = _n_ranges(n_threads)
    size = (margin.size + n_ranges - 1) // n_ranges
    while True:
        k = claim(counter)
        if k >= n_ranges:
            return
        for i in range(features.size):
            f = features[i]
            begin, end = _entries_in(rows, first[f], first[f + 1], k * size, size)
            weight = weights[f]
            for e in range(begin, end):
                margin[rows[e]] += values[e] * weight
