"""Whether columns of numbers hold codes of categories: whole numbers from 0 to CATEGORY_CODES − 1, or missing values.

Floor: a value is read once.
"""

import math

import numpy as np
from numba import float32, uint64

from gpuboost.kernels.allocation import zeros
from gpuboost.kernels.jit import claim, launch, parallel_kernel

CATEGORY_CODES = 2**24  # codes below it are different float32 values
ROW_BLOCK = 4096


@parallel_kernel
def find_no_codes_cpu(block, missing, columns, found, n_threads):
    """Look through some columns of one batch of rows.

    block : float32 or float64 (rows, all columns), any strides, IN. missing : float32. Missing, as NaN is.
    columns : int64 (k,), IN. Which of them. found : uint8 (1,), INOUT. 1 where any value is no code.
    """
    launch(n_threads, _look_through, (zeros(1, np.int64), block, missing, columns, found))


@parallel_kernel.part
def _look_through(counter, block, missing, columns, found):
    while True:
        begin = claim(counter) * ROW_BLOCK
        if begin >= block.shape[0]:
            return
        end = min(begin + ROW_BLOCK, block.shape[0])
        for column in columns:
            if _has_no_code(block[begin:end, column], missing):
                found[0] = 1


@parallel_kernel.part
def _has_no_code(column, missing):
    found = False
    for row in range(uint64(column.size)):
        x = float32(column[row])
        is_code = (x >= float32(0.0)) & (x < float32(CATEGORY_CODES)) & (x == math.floor(x))
        found |= not (is_code | (x != x) | (x == missing))
    return found
