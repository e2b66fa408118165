"""Count how much weight lies under each key prefix: one pass of the radix selection behind the quantile sketch.

A float32 maps to an order-preserving 32-bit key, split into digits of 16, 8 and 8 bits. Pass 0 counts every first digit.
Pass 1 counts the second digits of chosen first digits, pass 2 the third digits of chosen (first, second) pairs, so that
after three passes the keys around every wanted rank are known exactly:

    counts0[f, d0]                          += weight
    counts1[slots0[f, d0], d1]              += weight
    counts2[slots1[slots0[f, d0], d1], d2]  += weight        the first slots collect what is not wanted

All counts are integers: those of any batches, pages or workers add up to the same totals in any order.
Reading the table is the floor: 4 bytes per value and pass. The first digit is wide because the later ones are counted only
around wanted ranks: with 11, 11 and 10 bits the last pass needs 1024 counts for each of them, and took twice as long.
"""

import numpy as np
from numba import float32, int32, int64, uint32

from gpuboost.kernels.allocation import zeros
from gpuboost.kernels.cuda_common import FULL_WARP, cuda, cuda_kernel, lane_number, warp_sum
from gpuboost.kernels.jit import claim, launch, parallel_kernel
from gpuboost.kernels.scalar import float_key

DIGIT_BITS = (16, 8, 8)
DIGITS = (65536, 256, 256)
MISSING, NON_FINITE = 65536, 65537  # two more columns of counts0: weight of missing values, number of ±inf
COUNTS0_WIDTH = 65538

# A block of rows × a group of features is read from memory once: 1024 rows × 16 features × 4 bytes = 64 KB (second-level cache).
ROW_BLOCK = 1024
MAX_FEATURE_GROUP = 16


@parallel_kernel
def count_digits_cpu(batch, missing, weights, features, level, slots0, slots1, counts, n_threads):
    """Add one batch of rows to the counts of one pass.

    batch : float32 or float64 (rows, columns), any strides, IN.
    missing : float32. A value equal to it is missing, as NaN is.
    weights : int64 (rows,) or (0,), IN. Empty: every row weighs 1. A row of weight 0 does not exist.
    features : int32 (n,), IN. Columns to count; row i of slots0 and of level 0's counts belongs to features[i].
    level : 0, 1 or 2.
    slots0 : int32 (n, 65536), IN. Row of counts1 for a first digit, i where it is not wanted. Read from level 1 on.
    slots1 : int32 (rows of counts1, 256), IN. Row of counts2 for a second digit, or i where not wanted. Read at level 2.
    counts : int64, INOUT. Level 0: (n, 65538). Level 1 and 2: (m, 256).

    Each feature is counted by one thread, and row i of counts takes what is not wanted of feature i, so no add is atomic.
    """
    n_features = features.size
    group = min(MAX_FEATURE_GROUP, max(1, n_features // (2 * n_threads)))
    n_groups = (n_features + group - 1) // group
    counter = zeros(1, np.int64)
    args = (
        counter, n_groups, group, batch, missing, weights, features, level, slots0, slots1, counts,
    )  # fmt: skip
    launch(n_threads, _count_groups, args)


@parallel_kernel.part
def _count_groups(counter, n_groups, group, batch, missing, weights, features, level, slots0, slots1, counts):
    n_rows = batch.shape[0]
    while True:
        item = claim(counter)
        if item >= n_groups:
            return
        first = item * group
        last = min(first + group, features.size)
        for begin in range(0, n_rows, ROW_BLOCK):
            end = min(begin + ROW_BLOCK, n_rows)
            for i in range(first, last):
                _count_column(batch[begin:end, features[i]], missing, weights[begin:end], i, level, slots0, slots1, counts)


@parallel_kernel.part
def _count_column(column, missing, weights, i, level, slots0, slots1, counts):
    """Count a part of one column; i is its row in slots0 (and in level 0's counts)."""
    if level == 0:
        for row in range(column.size):
            weight = weights[row] if weights.size else int64(1)
            x = float32(column[row])
            is_missing = x != x or x == missing
            counts[i, int64(MISSING) if is_missing else int64(float_key(x) >> uint32(16))] += weight
            counts[i, NON_FINITE] += not (is_missing or abs(x) < float32(3.4028235e38)) and weight > int64(0)
        return
    # Values whose digits are not wanted are counted in slot i, which nobody reads: a branch would often be mispredicted.
    for row in range(column.size):
        weight = weights[row] if weights.size else int64(1)
        x = float32(column[row])
        key = float_key(x)
        slot = slots0[i, key >> uint32(16)]
        if x != x or x == missing:
            slot = int32(i)
        if level == 1:
            counts[slot, (key >> uint32(8)) & uint32(255)] += weight
        else:
            slot = slots1[slot, (key >> uint32(8)) & uint32(255)]
            counts[slot, key & uint32(255)] += weight


# ---------------------------------------------------------------------------------------------------------------------
# CUDA. A warp reads 32 values of a column and adds to int64 counts in global memory (in the second-level cache: 0.5 MB a column).
# Where one value dominates a column, all lanes would add to one address, one after the other: those that agree with lane 0 are
# added up first. 4 bytes read and one atomic add per value and pass: 11M × 28 values are 1.2 GB, 0.26 ms at 4.8 TB/s.

ROWS_PER_BLOCK = 8192


@cuda_kernel(
    "values: float32[:, :], missing: float32, weights: int64[:], level: int64, slots0: int32[:, :], slots1: int32[:, :], "
    "counts: int64[:, :]",
    registers=48,
)
def count_digits_kernel(values, missing, weights, level, slots0, slots1, counts):
    """count_digits_cpu for a batch of whole columns. values : float32 (n, rows), IN: row i is column features[i]."""
    lane, n_rows = lane_number(), int64(values.shape[1])
    n_chunks = (n_rows + ROWS_PER_BLOCK - 1) // ROWS_PER_BLOCK
    item = int64(cuda.blockIdx.x)
    while item < values.shape[0] * n_chunks:
        i, chunk = item // n_chunks, item % n_chunks
        first = chunk * ROWS_PER_BLOCK + int64(cuda.threadIdx.x) - int64(lane)  # of this warp
        while first < min((chunk + 1) * ROWS_PER_BLOCK, n_rows):
            row = first + int64(lane)
            slot, digit, weight = int32(i), int32(0), int64(0)
            if row < n_rows:
                x = values[i, row]
                key = float_key(x)
                is_missing = x != x or x == missing
                weight = weights[row] if weights.size > 0 else int64(1)
                if level == 0:
                    digit = int32(MISSING) if is_missing else int32(key >> uint32(16))
                    if not (is_missing or abs(x) < float32(3.4028235e38)) and weight > 0:
                        cuda.atomic.add(counts, (i, NON_FINITE), int64(1))
                else:
                    slot = int32(i) if is_missing else slots0[i, key >> uint32(16)]
                    digit = int32((key >> uint32(8)) & uint32(255))
                    if level == 2:
                        slot = slots1[slot, digit]
                        digit = int32(key & uint32(255))
            first_slot, first_digit = cuda.shfl_sync(FULL_WARP, slot, 0), cuda.shfl_sync(FULL_WARP, digit, 0)
            agrees = slot == first_slot and digit == first_digit
            together = warp_sum(weight if agrees else int64(0))
            if lane == 0:
                weight = together
            elif agrees:
                weight = int64(0)
            if weight != 0:
                cuda.atomic.add(counts, (slot, digit), weight)
            first += int64(cuda.blockDim.x)
        item += int64(cuda.gridDim.x)
