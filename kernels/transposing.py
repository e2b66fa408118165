"""Columns of a batch of rows, on a GPU: there a thread takes a row, and a warp reads 32 neighbours of a column side by side.

    batch    rows × features, as tables have them        ->        columns    features × rows, float32

A tile of 32 features and TILE_ROWS rows goes through shared memory, read along rows and written along columns. Values that count
as infinite (data/tables/source.py) are looked for on the way. On the CPU kernels read batches as they lie.

Floor: each value read and written once; 11M × 28 of 4 bytes, 2.5 GB, 0.5 ms at 4.8 TB/s.
"""

import numpy as np
from numba import float32, float64, int32, int64, uint32, uint64

from gpuboost.kernels.addresses import load_at, store_at
from gpuboost.kernels.cuda_common import cuda, cuda_kernel, device_function, lane_number
from gpuboost.kernels.predict import LARGEST

TILE_FEATURES = 32
TILE_ROWS = 128
TILE_WIDTH = TILE_ROWS + 1  # words: a row's features then lie in different banks
OVERFLOW = float.fromhex("0x1.ffffffp127")  # the smallest number that rounds to infinity: casts of others are alike everywhere


@cuda_kernel(
    "batch: value[:, :], features: int32[:], missing: float32, columns: float32[:, :], n_large: int64[:]",
    value=(np.float32, np.float64), block=256, registers=40, uses_double=True,
)  # fmt: skip
def transpose_rows_kernel(batch, features, missing, columns, n_large):
    """batch : float32 or float64 (n_rows, all features), IN. features : int32 (k,), IN, which columns; (0,) for all.
    columns : float32 (k, n_rows), OUT; (0, 0) only to look. n_large : int64 (1,), INOUT. More than it was where there is a
    value that is, as float32, infinite or the largest one, and not the missing one.
    """
    tile = cuda.shared.array((TILE_FEATURES, TILE_WIDTH), float32)
    n_rows, width, has_large = int64(batch.shape[0]), int64(batch.shape[1]), int32(0)
    n_features = width if features.size == 0 else int64(features.size)
    warp, n_warps, lane = uint32(cuda.threadIdx.x >> 5), uint32(cuda.blockDim.x >> 5), uint32(lane_number())
    n_groups, item = (n_features + int64(TILE_FEATURES - 1)) // TILE_FEATURES, int64(cuda.blockIdx.x)
    while item < (n_rows + int64(TILE_ROWS - 1)) // TILE_ROWS * n_groups:
        first, begin = item % n_groups * TILE_FEATURES, item // n_groups * TILE_ROWS
        n_own = uint32(min(int64(TILE_ROWS), n_rows - begin))
        if first + int64(lane) < n_features:
            column, i = first + int64(lane), warp
            if features.size > 0:
                column = int64(features[column])
            at, last = begin * width + column, uint32(n_own - uint32(1))
            while i < n_own:  # four rows at a time, whose loads are all under way; behind the last one it again
                row1, row2, row3 = uint32(i + n_warps), uint32(i + n_warps * uint32(2)), uint32(i + n_warps * uint32(3))
                x0, x1 = value_of(batch, at, i, width), value_of(batch, at, min(row1, last), width)
                x2, x3 = value_of(batch, at, min(row2, last), width), value_of(batch, at, min(row3, last), width)
                put(tile, lane, i, n_own, x0)
                put(tile, lane, row1, n_own, x1)
                put(tile, lane, row2, n_own, x2)
                put(tile, lane, row3, n_own, x3)
                has_large = max(max(has_large, is_large(x0, missing)), is_large(x1, missing))
                has_large = max(max(has_large, is_large(x2, missing)), is_large(x3, missing))
                i = uint32(i + n_warps * uint32(4))
        cuda.syncthreads()  # the tile is full
        j = warp
        while first + int64(j) < min(n_features, first + TILE_FEATURES) and columns.shape[0] > 0:
            i = lane
            while i < n_own:
                store_at(columns, (first + int64(j)) * n_rows + begin, i, tile[j, i])
                i = uint32(i + uint32(32))
            j = uint32(j + n_warps)
        cuda.syncthreads()  # the tile is read
        item += int64(cuda.gridDim.x)
    if has_large > int32(0):
        cuda.atomic.add(n_large, 0, int64(1))


@device_function
def value_of(batch, at, row, width):
    """float32: the value of a row, ``row`` rows behind the one at ``at``; infinite where it is outside float32."""
    x = load_at(batch, at, uint64(uint64(row) * uint64(width)))
    if x >= float64(OVERFLOW):
        return float32(np.inf)
    return float32(-np.inf) if x <= float64(-OVERFLOW) else float32(x)


@device_function
def put(tile, lane, row, n_own, x):
    if row < n_own:
        tile[lane, row] = x


@device_function
def is_large(x, missing):
    """int32: 1 where it is infinite or the largest float32, and not the missing value."""
    return int32(1) if abs(x) >= float32(LARGEST) and x != missing else int32(0)
