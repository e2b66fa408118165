"""Cut whole columns into bins: sort the keys of each, then end its bins (kernels/cuts.py; large ones: kernels/selection.py).

    list_keys_cpu      keys[column, row] = key of the value, a table of any layout turned into columns
    cut_columns_cpu    sort → distinct values and their weights → ends of bins → thresholds, a column by one thread

The sort is by digits of 11, 11 and 10 bits, least significant first: counts and places of a digit (8 KB) stay in the first-level
cache. A key is an order-preserving uint32 (scalar.float_key); with weights it is a uint64 whose lower half is the row.
Floor of a value: 4 bytes read and written to turn it, 4 read and 4 written for each digit and for its number in the bins.
Measured on one core of an AMD EPYC (2026-11-21), 450k rows × 28 normal columns: 1.2 ns to turn, 1.1 to count all digits, 3 × 1.15
to deal by them, 0.7 to list the distinct values. Counting digits (kernels/sketch.py) took 2.5 to 4 ns in the first pass and 15 to
28 in each of the others, as it adds to 1 MB of counts for each column.
"""

import numpy as np
from numba import float32, int64, uint32, uint64

from gpuboost.kernels.allocation import empty, zeros
from gpuboost.kernels.cuts import choose_ends, middle_value
from gpuboost.kernels.jit import claim, launch, parallel_kernel
from gpuboost.kernels.scalar import float_bits, float_key
from gpuboost.kernels.shares import claim_block, new_counters

DIGIT_BITS = 11
DIGITS = 2048
N_DIGITS = 3
MISSING_KEY = 0xFFFFFFFF  # above the key of every value
ZERO_KEY = 0x80000000  # of 0
SMALLEST_KEY, LARGEST_KEY = 0x00800000, 0xFF7FFFFF  # of ∓3.4028235e38: these and what lies outside count as infinite
ROW_BLOCK = 128  # rows × 16 neighbouring floats = 8 KB: the lines that a column is read from serve the next 15 columns as well


@parallel_kernel
def list_keys_cpu(block, missing, weights, first_column, first_row, keys, n_threads):
    """Write the keys of one batch of rows.

    block : float32 or float64 (rows, columns), any strides, IN. first_column : of the n that are wanted.
    missing : float32. A value equal to it is missing, as NaN is.
    weights : int64 (rows,) or (0,), IN. Empty: every row weighs 1. A row of weight 0 does not exist: its keys are MISSING_KEY.
    first_row : where the batch begins. keys : uint32 (n, all rows), or uint64 where there are weights, OUT.
    """
    launch(n_threads, _list_blocks, (new_counters(n_threads), block, missing, weights, first_column, first_row, keys))


@parallel_kernel.part
def _list_blocks(thread, counters, block, missing, weights, first_column, first_row, keys):
    while True:
        begin = claim_block(counters, thread, block.shape[0], ROW_BLOCK)
        if begin >= block.shape[0]:
            return
        end = min(begin + ROW_BLOCK, block.shape[0])
        for i in range(keys.shape[0]):
            own = keys[i, first_row + begin : first_row + end]
            _list_column(block[begin:end, first_column + i], missing, weights[begin:end], uint64(first_row + begin), own)


@parallel_kernel.part
def _list_column(column, missing, weights, first_row, keys):
    for row in range(uint64(column.size)):
        x = float32(column[row])
        key = uint32(MISSING_KEY) if x != x or x == missing else float_key(x)
        if weights.size == 0:
            keys[row] = key
        elif weights[row] > 0:
            keys[row] = (uint64(key) << uint64(32)) | (first_row + row)
        else:
            keys[row] = (uint64(MISSING_KEY) << uint64(32)) | (first_row + row)


@parallel_kernel
def cut_columns_cpu(
    keys, weights, n_absent, max_bin, spare, spare_weights, n_cuts, has_missing, n_infinite, extremes, n_threads
):  # fmt: skip
    """The thresholds of every column that has none yet.

    keys : (n, rows), INOUT. In: as list_keys_cpu writes them. Out: keys[i, :n_cuts[i]] are the bits of the float32 thresholds of
        column i, ascending, without a sentinel.
    weights : int64 (rows,) or (0,), IN. n_absent : how many of them are 0.
    max_bin : most bins of a column; 255 where that is 256 and values are missing, so that the missing code fits in a byte.
    spare : dtype of keys (n_threads, rows), SCRATCH. spare_weights : the same bytes as int32 or int64: columns are counted there.
    n_cuts : int64 (n,), INOUT. In: −1, or of columns that are done already (kernels/selection.py), which are left as they are.
    has_missing : bool (n,), OUT. n_infinite : int64 (n,), OUT. Values outside float32's finite range.
    extremes : uint32 (n, 2), OUT. Keys of the lowest and the highest value; untouched where a column has none.
    """
    counter = zeros(1, np.int64)
    args = (
        counter, keys, weights, n_absent, max_bin, spare, spare_weights, n_cuts, has_missing, n_infinite, extremes,
    )  # fmt: skip
    launch(n_threads, _cut_columns, args)


@parallel_kernel.part
def _cut_columns(
    thread, counter, keys, weights, n_absent, max_bin, spare, value_weights, n_cuts, has_missing, n_infinite, extremes
):  # fmt: skip
    spare, value_weights = spare[thread], value_weights[thread]
    counts = empty((N_DIGITS, DIGITS), np.uint32)
    is_heavy, ends = empty(spare.size, np.bool_), empty(spare.size, np.bool_)
    low_bits = uint64(32) if weights.size else uint64(0)
    while True:
        i = claim(counter)
        if i >= keys.shape[0]:
            return
        if n_cuts[i] >= 0:
            continue
        own = keys[i]
        n, is_moved = sort_keys(own, spare, low_bits, counts)
        has_missing[i] = own.size - int64(n) > n_absent
        ordered = spare[:n] if is_moved else own[:n]
        n_infinite[i] = _count_outside(ordered, low_bits)
        n_values = _weigh_values(ordered, low_bits, weights, own, value_weights)
        if n_values > 0:
            extremes[i, 0], extremes[i, 1] = uint32(own[0]), uint32(own[n_values - uint64(1)])
        n_bins = int64(255) if max_bin == 256 and has_missing[i] else int64(max_bin)
        choose_ends(value_weights[:n_values], n_bins, is_heavy[:n_values], ends[:n_values])
        at = uint64(0)
        for v in range(n_values):
            if ends[v]:
                own[at] = float_bits(middle_value(uint32(own[v]), uint32(own[v + uint64(1)])))
                at += uint64(1)
        n_cuts[i] = at


@parallel_kernel.part
def sort_keys(keys, spare, low_bits, counts):
    """Sort the keys that are not missing, by what lies above the low bits; returns how many there are, and whether they are in
    ``spare`` now."""
    counts[:] = 0
    low, middle, high = counts[0], counts[1], counts[2]
    n = uint64(0)
    for i in range(uint64(keys.size)):
        key = uint32(keys[i] >> low_bits)
        keys[n] = keys[i]  # missing ones are overwritten
        n += uint64(key != uint32(MISSING_KEY))
        low[key & uint32(DIGITS - 1)] += uint32(1)
        middle[(key >> uint32(DIGIT_BITS)) & uint32(DIGITS - 1)] += uint32(1)
        high[key >> uint32(2 * DIGIT_BITS)] += uint32(1)
    for d in range(uint64(N_DIGITS)):  # missing ones were counted too: without a branch, which chance would mispredict
        counts[d, (uint32(MISSING_KEY) >> uint32(d * uint64(DIGIT_BITS))) & uint32(DIGITS - 1)] -= uint32(uint64(keys.size) - n)
    is_moved = False
    for d in range(uint64(N_DIGITS)):
        shift = low_bits + d * uint64(DIGIT_BITS)
        own, total, is_shared = counts[d], uint32(0), False
        for digit in range(uint64(DIGITS)):
            is_shared |= uint64(own[digit]) == n
            total, own[digit] = total + own[digit], total
        if is_shared:
            continue  # all agree in this digit
        if is_moved:
            _deal(spare[:n], shift, own, keys)
        else:
            _deal(keys[:n], shift, own, spare)
        is_moved = not is_moved
    return n, is_moved


@parallel_kernel.part
def _deal(keys, shift, places, to):
    for i in range(uint64(keys.size)):
        digit = uint32(keys[i] >> shift) & uint32(DIGITS - 1)
        place = places[digit]
        places[digit] = place + uint32(1)
        to[place] = keys[i]


@parallel_kernel.part
def _count_outside(ordered, low_bits):
    """How many sorted keys are those of values that count as infinite."""
    first, last = uint64(0), uint64(ordered.size)
    while first < last and uint32(ordered[first] >> low_bits) <= uint32(SMALLEST_KEY):
        first += uint64(1)
    while first < last and uint32(ordered[last - uint64(1)] >> low_bits) >= uint32(LARGEST_KEY):
        last -= uint64(1)
    return int64(ordered.size) - int64(last - first)


@parallel_kernel.part
def _weigh_values(ordered, low_bits, weights, values, value_weights):
    """The distinct ones of sorted keys, as 32-bit numbers, and the weight of each; returns how many there are.

    Either list may lie where the sorted keys do: entry v is written when row i ≥ v has been read. No branch: where values repeat
    now and then, it would be mispredicted.
    """
    n, v, weight = uint64(ordered.size), uint64(0), int64(0)
    for i in range(n):
        key = uint32(ordered[i] >> low_bits)
        weight += weights[uint32(ordered[i])] if weights.size else int64(1)
        is_last = i + uint64(1) == n or key != uint32(ordered[i + uint64(1)] >> low_bits)
        values[v], value_weights[v] = key, weight
        v += uint64(is_last)
        weight = int64(0) if is_last else weight
    return v
