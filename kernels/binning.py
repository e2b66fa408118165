"""Replace every value by the number of its bin.

    code = number of thresholds ≤ x          so bin b holds thresholds[b − 1] ≤ x < thresholds[b]
    code = n_bins of the feature             where x is missing

Both layouts are written in one pass: feature-major columns for the partition step (one byte a row), and row-major records
for the histograms (one cache line a row). Floor: 4 bytes read and 2 codes written per value.

A CPU with AVX-512 searches for sixteen values at once, where codes are bytes (kernels/register_search.py); columns of a block are
laid side by side for it. Others, and codes of two bytes, ask a table of 256 to 65536 cells, in which the value's key
(scalar.float_key) falls:

    key, by its upper bits   |  cell 0  |  cell 1  |  cell 2  |  cell 3  |
    thresholds               |   t0     |          |  t1  t2  |          |        cells = [0, 1, 1, 3]: thresholds before each

and then compares with the thresholds of that cell: one as a rule. Cells are as large as leaves no more than one in any, so that
few lines of the table are in use: normal columns of 256 bins need 65536 cells, of which 3000 are reached.

One thread of an AMD EPYC (Zen 4, 2026-11-29), ns a value, cells -> sixteen at once: 500,000 × 28 normal ones 2.8 -> 1.7, their
columns side by side 2.4 -> 2.0; 7,000 × 28 2.7 -> 1.4, as float64 4.4 -> 1.6; 1,000 × 28 3.9 -> 1.8; 20,000 × 2,000 3.6 -> 2.2.
"""

import numpy as np
from numba import float32, int64, uint8, uint16, uint32, uint64

from gpuboost.kernels.addresses import load_at, store_at
from gpuboost.kernels.allocation import empty
from gpuboost.kernels.cuda_common import cuda, cuda_kernel, device_function, lane_number
from gpuboost.kernels.jit import inlined_scalar, launch, parallel_kernel
from gpuboost.kernels.register_search import N_KEYS, can_search, fill_heap, search_heap
from gpuboost.kernels.scalar import float_key
from gpuboost.kernels.shares import claim_block, claim_near, new_counters
from gpuboost.kernels.turning import TILE, can_turn, turn_tile

ROW_BLOCK = 512  # 512 rows × 32 codes = 16 KB of records: stays in the first-level cache while its columns fill it
ITEM_ROWS = 2048  # of a work item
ITEM_FEATURES = 32  # of a work item: the tables of so many are kept; whole words of records
LEAST_CELLS, MOST_CELLS = 256, 65536
STEPS = (1, 2, 128, 32768)  # first step of the search in a cell: of up to 1, 3, 255 or 65535 thresholds


@parallel_kernel
def bin_rows_cpu(batch, missing, thresholds, offsets, first_row, columns, words, n_lost, n_threads):
    """Write the codes of one batch of rows.

    batch : float32 or float64 (rows, n_features), any strides, IN.
    missing : float32. A value equal to it is missing, as NaN is.
    thresholds : float32 (total_bins,), IN. Ascending within a feature; the last of each feature is a sentinel above all values.
    offsets : int32 (n_features + 1,), IN. Feature f owns thresholds[offsets[f]:offsets[f + 1]].
    first_row : where the batch begins in the page.
    columns : uint8, for at most 256 bins a feature, or uint16 (n_features, page rows), OUT.
    words : uint64 (page rows, n), OUT: the records, whose padding codes beyond n_features are left alone. May have no rows.
    n_lost : int64 (n_threads,), INOUT. Missing values whose code does not fit in the dtype: the caller must then use a wider one.
    """
    args = new_counters(n_threads), batch, missing, thresholds, offsets, first_row, columns, words, n_lost
    launch(n_threads, _bin_items, args)


@parallel_kernel.part
def _bin_items(thread, counters, batch, missing, thresholds, offsets, first_row, columns, words, n_lost):
    n_rows, n_features = batch.shape[0], columns.shape[0]
    n_chunks = (n_rows + ITEM_ROWS - 1) // ITEM_ROWS
    n_items = n_chunks * ((n_features + ITEM_FEATURES - 1) // ITEM_FEATURES)
    largest, width = int64(0), min(ITEM_FEATURES, n_features)
    for f in range(n_features):
        largest = max(largest, int64(offsets[f + 1] - offsets[f]))
    most_cells = min(int64(MOST_CELLS), max(int64(LEAST_CELLS), 64 * n_rows))  # 2 µs fill 65536 of a byte
    cells = empty((0 if can_search(columns) else width, most_cells), columns.dtype)
    keys = empty((width, largest + (LEAST_CELLS if largest <= LEAST_CELLS else MOST_CELLS)), np.uint32)
    scales, heaps = empty((width, 3), np.uint32), empty((width, N_KEYS), np.uint32)
    values, found, packed = empty((TILE, ROW_BLOCK), np.float32), empty(ROW_BLOCK, columns.dtype), empty(ROW_BLOCK, np.uint64)
    prepared = int64(-1)
    while True:
        item = claim_near(counters, thread, n_items)
        if item >= n_items:
            return
        first, chunk = item // n_chunks * ITEM_FEATURES, item % n_chunks
        last = min(first + ITEM_FEATURES, n_features)
        if prepared != first:
            prepared = first
            for f in range(first, last):
                own, n = keys[f - first], uint64(offsets[f + 1] - offsets[f] - 1)
                for i in range(n):
                    own[i] = float_key(thresholds[uint64(offsets[f]) + i])
                if can_search(columns):
                    fill_heap(own[:n], heaps[f - first])
                else:
                    _fill_cells(n, most_cells, own, cells[f - first], scales[f - first])
        for begin in range(chunk * ITEM_ROWS, min((chunk + 1) * ITEM_ROWS, n_rows), ROW_BLOCK):
            end, held, n_held = min(begin + ROW_BLOCK, n_rows), first, first
            for f in range(first, last):
                n_bins, k = uint64(offsets[f + 1] - offsets[f]), f - first
                codes = columns[f, first_row + begin : first_row + end]
                if can_search(columns):
                    if f == n_held:
                        held, n_held = _hold_columns(batch[begin:end], f, last, values)
                    own = values[f - held, : end - begin]
                    search_heap(own, own.size, missing, heaps[k], uint8(n_bins), found)
                    codes[:] = found[: own.size]
                    n_missing = _count_missing(own, missing) if n_bins > uint64(255) else int64(0)
                else:
                    n_missing = _bin_column(batch[begin:end, f], missing, keys[k], cells[k], scales[k], n_bins, codes)
                if n_bins > uint64(255) and codes.itemsize == 1:
                    n_lost[thread] += n_missing
                if words.shape[0]:
                    _pack(codes, f, n_features, packed, words[first_row + begin : first_row + end])


@parallel_kernel.part
def _count_missing(values, missing):
    n = int64(0)
    for i in range(uint64(values.size)):
        n += (values[i] != values[i]) | (values[i] == missing)
    return n


@parallel_kernel.part
def _hold_columns(rows, first, last, values):
    """Columns of a block of rows, side by side. values : float32 (TILE, ROW_BLOCK), OUT. Returns the column that its first row
    holds, at most ``first``, and the first behind it that it does not, at most ``last``."""
    n, n_turned, held = rows.shape[0], 0, first
    if rows.shape[1] >= TILE and can_turn(rows):
        n_turned, held = n // TILE * TILE, min(first, rows.shape[1] - TILE)
        for row in range(0, n_turned, TILE):
            turn_tile(rows[row : row + TILE], held, values, row, ROW_BLOCK)
    last = min(held + TILE, last)
    for f in range(held, last):
        column, own = rows[n_turned:, f], values[f - held, n_turned:]
        for i in range(uint64(column.size)):
            own[i] = float32(column[i])
    return held, last


@parallel_kernel.part
def _fill_cells(n, most_cells, keys, cells, scale):
    """Tables of a feature of n thresholds. keys : uint32, INOUT. Theirs, ascending; larger ones are put behind them.

    cells : uint8 or uint16, OUT. How many thresholds lie before each cell.
    scale : uint32 (3,), OUT. The first threshold's key, the bits that a cell spans, and the first step of the search in a cell.
    """
    base = keys[0] if n else uint32(0)
    span = keys[n - uint64(1)] - base if n else uint32(0)
    differs = uint32(0xFFFFFFFF)  # bits in which two neighbours differ; the highest of them must be kept to tell them apart
    for i in range(uint64(1), n):
        differs = min(differs, (keys[i] - base) ^ (keys[i - uint64(1)] - base))
    shift = uint32(0)
    while (span >> shift) >= uint32(most_cells) or ((span >> shift) >= uint32(LEAST_CELLS) and (differs >> shift) > uint32(1)):
        shift += uint32(1)
    cells[0] = 0  # if there is no threshold
    most, first, cell = uint64(0), uint64(0), uint64(0)
    for i in range(n):
        own = uint64((keys[i] - base) >> shift)
        if own >= cell:
            for c in range(cell, own + uint64(1)):
                cells[c] = i
            cell, first = own + uint64(1), i
        most = max(most, i - first + uint64(1))
    step = uint32(STEPS[0] if most <= 1 else STEPS[1] if most <= 3 else STEPS[2] if most <= 255 else STEPS[3])
    for i in range(n, n + uint64(2) * uint64(step)):
        keys[i] = uint32(0xFFFFFFFF)
    scale[0], scale[1], scale[2] = base, shift, step


@inlined_scalar
def _bin_values(values, missing, keys, cells, base, shift, first_step, n_bins, codes):
    """The codes; returns how many values are missing. first_step : LLVM unrolls the search where it is a constant."""
    top = keys[n_bins - uint64(2)] if n_bins > uint64(1) else base
    n_missing = int64(0)
    for i in range(uint64(values.size)):
        x = float32(values[i])
        key = float_key(x)
        code = uint64(cells[(min(max(key, base), top) - base) >> shift])
        step = first_step
        while step > uint64(0):
            code += step * uint64(keys[code + step - uint64(1)] <= key)
            step >>= uint64(1)
        is_missing = x != x or x == missing
        n_missing += is_missing
        codes[i] = n_bins if is_missing else code
    return n_missing


@parallel_kernel.part
def _bin_column(values, missing, keys, cells, scale, n_bins, codes):
    """Codes of one feature; returns how many values are missing. Arrays as _fill_cells writes them. values : any floats, IN."""
    base, shift, step = scale[0], scale[1], scale[2]
    if step == uint32(STEPS[0]):
        return _bin_values(values, missing, keys, cells, base, shift, uint64(1), n_bins, codes)
    if step == uint32(STEPS[1]):
        return _bin_values(values, missing, keys, cells, base, shift, uint64(2), n_bins, codes)
    if step == uint32(STEPS[2]):
        return _bin_values(values, missing, keys, cells, base, shift, uint64(128), n_bins, codes)
    return _bin_values(values, missing, keys, cells, base, shift, uint64(step), n_bins, codes)


@parallel_kernel.part
def _pack(codes, f, n_features, packed, words):
    """Put the codes of feature f into words of records, which are written with the last feature of each.

    A code at a time would be a store for each; a word of eight is stored at once, and filled by loops that LLVM vectorises.
    """
    bits = uint64(8 * codes.itemsize)
    in_word = uint64(64) // bits
    place = uint64(f) % in_word
    shift = place * bits
    if place == uint64(0):
        for i in range(uint64(codes.size)):
            packed[i] = uint64(codes[i])
    else:
        for i in range(uint64(codes.size)):
            packed[i] |= uint64(codes[i]) << shift
    if place == in_word - uint64(1) or f == n_features - 1:
        column = words[:, uint64(f) // in_word]
        kept = ~uint64(0) << shift << bits if place < in_word - uint64(1) else uint64(0)  # the padding
        for i in range(uint64(codes.size)):
            column[i] = (column[i] & kept) | packed[i]


@parallel_kernel
def write_records_cpu(columns, words, n_threads):
    """Write the records of a page from its columns: arrays as bin_rows_cpu has them, columns IN."""
    launch(n_threads, _write_items, (new_counters(n_threads), columns, words))


@parallel_kernel.part
def _write_items(thread, counters, columns, words):
    packed = empty(ROW_BLOCK, np.uint64)
    while True:
        begin = claim_block(counters, thread, words.shape[0], ROW_BLOCK)
        if begin >= words.shape[0]:
            return
        end = min(begin + ROW_BLOCK, words.shape[0])
        for f in range(columns.shape[0]):
            _pack(columns[f, begin:end], f, columns.shape[0], packed, words[begin:end])


# ---------------------------------------------------------------------------------------------------------------------
# CUDA. A block bins as many rows as it has threads, 256, of 32 features. A warp takes 128 rows of every fourth feature, four a
# lane, which are sought side by side; codes are written as columns at once and as records from shared memory, a record by a warp.
# 4 bytes read and 2 codes written per value; log2(n_bins) dependent loads of thresholds, which stay in the first-level cache.
# 11M × 28 values: 1.8 GB, 0.4 ms at 4.8 TB/s; an H200 takes 2.3, with one value a thread in 64 bits 5.7.

TILE_ROWS = 256
TILE_FEATURES = 32
TILE_WIDTH = 33  # one column more than features: rows then lie in different banks
WARP_ROWS = 128


@cuda_kernel(
    "values: float32[:, :], missing: float32, thresholds: float32[:], offsets: int32[:], first_row: int64, columns: code[:, :], "
    "records: code[:, :], n_lost: int64[:]",
    code=(np.uint8, np.uint16), block=TILE_ROWS, registers=64,
)  # fmt: skip
def bin_rows_kernel(values, missing, thresholds, offsets, first_row, columns, records, n_lost):
    """bin_rows_cpu for a batch. values : float32 (n_features, rows), IN. n_lost : int64 (1,), INOUT.

    A block has fewer threads than WARP_ROWS, or a multiple of them."""
    tile = cuda.shared.array((TILE_ROWS, TILE_WIDTH), uint16)
    n_features, n_rows, block_rows = int64(values.shape[0]), int64(values.shape[1]), int64(cuda.blockDim.x)
    n_groups = (n_features + TILE_FEATURES - 1) // TILE_FEATURES
    warp, n_warps = uint32(cuda.threadIdx.x >> 5), uint32(cuda.blockDim.x >> 5)
    n_parts = max(uint32(cuda.blockDim.x // WARP_ROWS), uint32(1))  # of the rows, of a warp each
    own = uint32(uint32(warp % n_parts) * uint32(WARP_ROWS) + uint32(lane_number()))
    item = int64(cuda.blockIdx.x)
    while item < (n_rows + block_rows - 1) // block_rows * n_groups:
        first_feature, begin = item % n_groups * TILE_FEATURES, item // n_groups * block_rows
        n_own = uint32(min(block_rows, n_rows - begin))  # rows of the tile
        last, j = uint32(n_own - uint32(1)), uint32(warp // n_parts)
        while j < min(int64(TILE_FEATURES), n_features - first_feature) and own < n_own:
            feature = first_feature + int64(j)
            first, n_bins, at = int64(offsets[feature]), uint32(offsets[feature + 1] - offsets[feature]), feature * n_rows + begin
            x0, x1 = load_at(values, at, own), load_at(values, at, min(uint32(own + uint32(32)), last))
            x2 = load_at(values, at, min(uint32(own + uint32(64)), last))
            x3 = load_at(values, at, min(uint32(own + uint32(96)), last))
            code0, code1, code2, code3, n_left = uint32(0), uint32(0), uint32(0), uint32(0), uint32(n_bins - uint32(1))
            while n_left > uint32(0):  # thresholds from each code on; the last bin takes what reaches none
                half = uint32(uint32(n_left + uint32(1)) >> uint32(1))
                probe = first + int64(half) - int64(1)
                code0, code1 = passed(thresholds, probe, half, code0, x0), passed(thresholds, probe, half, code1, x1)
                code2, code3 = passed(thresholds, probe, half, code2, x2), passed(thresholds, probe, half, code3, x3)
                n_left = uint32(n_left - half)
            for k in range(4):
                row = uint32(own + uint32(32 * k))
                x, code = ((x0, code0) if k == 0 else (x1, code1)) if k < 2 else ((x2, code2) if k == 2 else (x3, code3))
                if row < n_own:
                    code = n_bins if x != x or x == missing else code
                    if code > largest_code(columns):
                        cuda.atomic.add(n_lost, 0, int64(1))
                    code = uint32(code & largest_code(columns))
                    store_at(columns, feature * int64(columns.shape[1]) + first_row + begin, row, code)
                    tile[row, j] = uint16(code)
            j = uint32(j + uint32(n_warps // n_parts))
        cuda.syncthreads()  # the tile is complete
        if records.shape[0] > 0 and first_feature + lane_number() < n_features:
            i = warp
            while i < n_own:
                records[first_row + begin + int64(i), first_feature + lane_number()] = tile[i, lane_number()]
                i = uint32(i + n_warps)
        cuda.syncthreads()  # the tile is read
        item += int64(cuda.gridDim.x)


@device_function
def largest_code(columns):
    """uint32: that fits in the dtype."""
    return uint32(255) if columns.itemsize == 1 else uint32(65535)


@device_function
def passed(thresholds, probe, half, code, x):
    """uint32: the code, or so many bins more if x is not below the last threshold of those."""
    return uint32(code + half) if load_at(thresholds, probe, code) <= x else code
