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
from numba import float32, float64, int64, uint32, uint64

from gpuboost.kernels.allocation import zeros
from gpuboost.kernels.jit import add_atomic, claim, inlined_scalar, launch, parallel_kernel, scalar
from gpuboost.kernels.scalar import bits_float, float_bits

NOT_A_RUN = -(2**62)
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


@parallel_kernel.part
def _run_begins(rows, begin, end):
    """The row that entry 0 would have, where the rows of these entries follow each other; else NOT_A_RUN.

    Columns that hold a value in every row are read in vectors, each loop being compiled for either kind: sums 2.4 -> 0.6 ns a
    value, curvature 3.0 -> 0.5, shifts 3.1 -> 0.55, margins 1.1 -> 0.2.
    """
    if begin == end or int64(rows[end - 1]) - int64(rows[begin]) != end - 1 - begin:
        return NOT_A_RUN
    return int64(rows[begin]) - begin


@inlined_scalar
def _row_of(rows, entry, run):
    """uint64, as an index that cannot count from the end. run : _run_begins."""
    return uint64(entry + run) if run != NOT_A_RUN else uint64(rows[uint64(entry)])


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
    counter = zeros(1, np.int64)
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
            run = _run_begins(rows, begin, end)
            if run != NOT_A_RUN:
                sum_grad, sum_hess = _sum(rows, values, begin, end, run, grad, hess, scales[i, 0], scales[i, 1])
            else:
                sum_grad, sum_hess = _sum(rows, values, begin, end, NOT_A_RUN, grad, hess, scales[i, 0], scales[i, 1])
            add_atomic(sums, int64(2 * i), sum_grad)
            add_atomic(sums, int64(2 * i + 1), sum_hess)


@inlined_scalar
def _sum(rows, values, begin, end, run, grad, hess, grad_scale, hess_scale):
    sum_grad, sum_hess = int64(0), int64(0)
    for e in range(begin, end):
        row, value = _row_of(rows, e, run), float64(values[uint64(e)])
        sum_grad += rounded(float64(grad[row]) * value, grad_scale)
        sum_hess += rounded(float64(hess[row]) * (value * value), hess_scale)
    return sum_grad, sum_hess


@parallel_kernel
def curve_cpu(first, rows, values, features, steps, hess, scale, along, curvature, n_threads):
    """C of steps along several columns at once.

    steps : float64 (n,), IN. along : float64 (n_rows,), INOUT: zeros, then Σ_j v·δ_j.
    curvature : int64 (1,), INOUT. C·scale. The rest as sum_columns_cpu.
    """
    counter = zeros(1, np.int64)
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
            run = _run_begins(rows, begin, end)
            if run != NOT_A_RUN:
                total += _curve(rows, values, begin, end, run, steps[i], hess, scale, along)
            else:
                total += _curve(rows, values, begin, end, NOT_A_RUN, steps[i], hess, scale, along)
        add_atomic(curvature, int64(0), total)


@inlined_scalar
def _curve(rows, values, begin, end, run, step, hess, scale, along):
    total = int64(0)
    for e in range(begin, end):
        row, x = _row_of(rows, e, run), float64(values[uint64(e)]) * step
        before = along[row]
        total += rounded(float64(hess[row]) * (x * (2.0 * before + x)), scale)
        along[row] = before + x
    return total


@parallel_kernel
def shift_gradients_cpu(first, rows, values, features, steps, hess, along, grad, largest, n_threads):
    """The gradients after steps along some columns.

    steps : float64 (n,), IN. along : float64, INOUT: set to zero again, unless it is of size 0. grad : float32 (n_rows,), INOUT.
    largest : float32 (n_threads,), OUT. The largest |g| that each thread wrote, NaN if there is one. The rest as sum_columns_cpu.
    """
    counter = zeros(1, np.int64)
    args = (counter, first, rows, values, features, steps, hess, along, grad, largest, n_threads)
    launch(n_threads, _shift_ranges, args)


@parallel_kernel.part
def _shift_ranges(thread, counter, first, rows, values, features, steps, hess, along, grad, largest, n_threads):
    n_ranges = _n_ranges(n_threads)
    size = (grad.size + n_ranges - 1) // n_ranges
    most = uint32(0)
    while True:
        k = claim(counter)
        if k >= n_ranges:
            break
        for i in range(features.size):
            f = features[i]
            begin, end = _entries_in(rows, first[f], first[f + 1], k * size, size)
            run = _run_begins(rows, begin, end)
            if run != NOT_A_RUN:
                most = max(most, _shift(rows, values, begin, end, run, steps[i], hess, along, grad))
            else:
                most = max(most, _shift(rows, values, begin, end, NOT_A_RUN, steps[i], hess, along, grad))
    largest[thread] = bits_float(uint32(most))


@inlined_scalar
def _shift(rows, values, begin, end, run, step, hess, along, grad):
    """Bits of the largest |g|, as integers, of which those of NaN are the largest."""
    most = uint32(0)
    for e in range(begin, end):
        row = _row_of(rows, e, run)
        shifted = float32(float64(grad[row]) + float64(hess[row]) * (float64(values[uint64(e)]) * step))
        grad[row] = shifted
        bits = uint32(float_bits(shifted) & uint32(0x7FFFFFFF))
        most = bits if bits > most else most
    if along.size:
        for e in range(begin, end):
            along[_row_of(rows, e, run)] = 0.0
    return most


@parallel_kernel
def add_columns_cpu(first, rows, values, features, weights, margin, n_threads):
    """Add v · weight of some columns, one after another in float32, to margins. weights : float32 (n_columns,), IN.
    margin : float32 (n_rows,), INOUT. The rest as sum_columns_cpu."""
    counter = zeros(1, np.int64)
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
            weight, run = weights[f], _run_begins(rows, begin, end)
            for e in range(begin, end):
                row = _row_of(rows, e, run)
                margin[row] += values[uint64(e)] * weight
