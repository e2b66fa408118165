"""Replace every value by the number of its bin.

    code = number of thresholds ≤ x          so bin b holds thresholds[b − 1] ≤ x < thresholds[b]
    code = n_bins of the feature             where x is missing

Both layouts are written in one pass: feature-major columns for the partition step (one byte a row), and row-major records
for the histograms (one cache line a row). Floor: 4 bytes read and 2 codes written per value; log2(n_bins) comparisons.
"""

import numpy as np
from numba import float32, int64, prange

from gpuboost.kernels.jit import claim, parallel_kernel

ROW_BLOCK = 512  # 512 rows × 32 codes = 16 KB of records: stays in the first-level cache while its columns fill it


@parallel_kernel
def bin_rows_cpu(block, missing, thresholds, offsets, first_row, columns, records, n_lost, n_threads):
    """Write the codes of one batch of rows.

    block : float32 or float64 (rows, n_features), any strides, IN.
    missing : float32. A value equal to it is missing, as NaN is.
    thresholds : float32 (total_bins,), IN. Ascending within a feature; the last of each feature is a sentinel above all values.
    offsets : int32 (n_features + 1,), IN. Feature f owns thresholds[offsets[f]:offsets[f + 1]].
    first_row : where the batch begins in the page.
    columns : uint8 or uint16 (n_features, page rows), OUT.
    records : same dtype (page rows, record width), OUT; padding codes beyond n_features are left alone. May have no rows.
    n_lost : int64 (n_threads,), INOUT. Missing values whose code does not fit in the dtype: the caller must then use a wider one.
    """
    n_rows = block.shape[0]
    counter = np.zeros(1, np.int64)
    for thread in prange(n_threads):
        n_lost[thread] += _bin_blocks(counter, n_rows, block, missing, thresholds, offsets, first_row, columns, records)


@parallel_kernel.part
def _bin_blocks(counter, n_rows, block, missing, thresholds, offsets, first_row, columns, records):
    n_lost = int64(0)
    while True:
        begin = claim(counter) * ROW_BLOCK
        if begin >= n_rows:
            return n_lost
        end = min(begin + ROW_BLOCK, n_rows)
        for f in range(columns.shape[0]):
            column = columns[f, first_row + begin : first_row + end]
            n_lost += _bin_column(block[begin:end, f], missing, thresholds[offsets[f] : offsets[f + 1]], column)
            if records.shape[0]:
                for i in range(end - begin):
                    records[first_row + begin + i, f] = column[i]


@parallel_kernel.part
def _bin_column(values, missing, thresholds, codes):
    n_bins = thresholds.size
    n_lost = int64(0)
    half = int64(1)
    while 2 * half < n_bins:
        half *= 2
    for i in range(values.size):
        x = float32(values[i])
        # Branch-free binary search over the n_bins − 1 thresholds below the sentinel.
        code = int64(0)
        step = half
        while step > 0:
            probe = code + step
            if probe < n_bins and thresholds[probe - 1] <= x:
                code = probe
            step >>= 1
        if x != x or x == missing:
            code = n_bins
        codes[i] = code
        n_lost += codes[i] != code
    return n_lost
