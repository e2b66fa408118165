"""Count how much weight lies under each key prefix: one pass of the radix selection behind the quantile sketch.

A float32 maps to an order-preserving 32-bit key, split into digits of 11, 11 and 10 bits. Pass 0 counts every first digit.
Pass 1 counts the second digits of chosen first digits, pass 2 the third digits of chosen (first, second) pairs, so that
after three passes the keys around every wanted rank are known exactly:

    counts0[f, d0]                          += weight
    counts1[slots0[f, d0], d1]              += weight        where slots0 ≥ 0
    counts2[slots1[slots0[f, d0], d1], d2]  += weight        where both slots ≥ 0

All counts are integers: those of any batches, pages or workers add up to the same totals in any order.
Reading the table is the floor: 4 bytes per value and pass.
"""

import numpy as np
from numba import float32, int64, prange, uint32

from gpuboost.kernels.jit import claim, parallel_kernel
from gpuboost.kernels.scalar import float_key

DIGITS = (2048, 2048, 1024)
MISSING, NON_FINITE = 2048, 2049  # two more columns of counts0: rows without a value, rows holding ±inf
COUNTS0_WIDTH = 2050

# A block of rows × a group of features is read from memory once: 1024 rows × 16 features × 4 bytes = 64 KB (second-level cache).
ROW_BLOCK = 1024
MAX_FEATURE_GROUP = 16


@parallel_kernel
def count_digits_cpu(block, missing, weights, features, level, slots0, slots1, counts, n_threads):
    """Add one batch of rows to the counts of one pass.

    block : float32 or float64 (rows, columns), any strides, IN.
    missing : float32. A value equal to it is missing, as NaN is.
    weights : int64 (rows,) or (0,), IN. Empty: every row weighs 1. A row of weight 0 does not exist.
    features : int32 (n,), IN. Columns to count; row i of slots0 and of level 0's counts belongs to features[i].
    level : 0, 1 or 2.
    slots0 : int32 (n, 2048), IN. Row of counts1 for a first digit, −1 where it is not wanted. Read from level 1 on.
    slots1 : int32 (rows of counts1, 2048), IN. Row of counts2 for a second digit, or −1. Read at level 2.
    counts : int64, INOUT. Level 0: (n, 2050). Level 1: (m, 2048). Level 2: (m, 1024).

    Each feature is counted by one thread, so no add is atomic.
    """
    n_features = features.size
    group = min(MAX_FEATURE_GROUP, max(1, n_features // (2 * n_threads)))
    n_groups = (n_features + group - 1) // group
    counter = np.zeros(1, np.int64)
    for _ in prange(n_threads):
        _count_groups(counter, n_groups, group, block, missing, weights, features, level, slots0, slots1, counts)


@parallel_kernel.part
def _count_groups(counter, n_groups, group, block, missing, weights, features, level, slots0, slots1, counts):
    n_rows = block.shape[0]
    while True:
        item = claim(counter)
        if item >= n_groups:
            return
        first = item * group
        last = min(first + group, features.size)
        for begin in range(0, n_rows, ROW_BLOCK):
            end = min(begin + ROW_BLOCK, n_rows)
            for i in range(first, last):
                _count_column(block[begin:end, features[i]], missing, weights[begin:end], i, level, slots0, slots1, counts)


@parallel_kernel.part
def _count_column(column, missing, weights, i, level, slots0, slots1, counts):
    for row in range(column.size):
        x = float32(column[row])
        weight = weights[row] if weights.size else int64(1)
        if weight == int64(0):
            continue
        if x != x or x == missing:
            if level == 0:
                counts[i, MISSING] += int64(1)
            continue
        key = float_key(x)
        d0 = key >> uint32(21)
        if level == 0:
            counts[i, d0] += weight
            if not abs(x) < float32(3.4028235e38):
                counts[i, NON_FINITE] += int64(1)
            continue
        slot = slots0[i, d0]
        if slot < 0:
            continue
        d1 = (key >> uint32(10)) & uint32(2047)
        if level == 1:
            counts[slot, d1] += weight
            continue
        slot = slots1[slot, d1]
        if slot >= 0:
            counts[slot, key & uint32(1023)] += weight
