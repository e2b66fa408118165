"""Cut sorted columns into bins by the few values at their rank targets, without a look at the others: for a GPU, which sorts.

A bin ends at a value that holds a rank target j·W/B (kernels/cuts.py). So of a column with more values than bins only these are
asked for, with the weight below them, and their neighbours; what lies between is a lump without a target:

    ranks asked        1      r₁       r₂          W            r_j = ⌈j·W/B⌉, behind the heavy values that lie before it
    values             |.|....|.|.|....|.|.........|
    entries            v lump p v n lump p v n lump v           p, n: the values before and after v

A value that turns out to be heavy gets a bin of its own, and the targets are spread over what remains, which asks for other
ranks: another round, of which there are at most as many as bins, and as a rule one. Columns of few values are asked for all of
them. Integers: the cuts are those of sorted or counted columns on the CPU, to the bit.

    list_ranks, cut_columns     on the host: which ranks to ask for, and bins from the answers
    list_keys_kernel …          on the GPU: keys to be sorted, how many values there are, and which holds a rank

Sorting is CuPy's, by radix: without weights all columns at once, the column above the key; else each with its rows below the key.
"""

import numpy as np
from numba import int64, uint32, uint64

from gpuboost.kernels.allocation import empty, zeros
from gpuboost.kernels.cuda_common import block_sum, cuda, cuda_kernel, device_function, n_threads, thread_number
from gpuboost.kernels.cuts import end_bins, middle_value, set_heavy_apart
from gpuboost.kernels.jit import claim, kernel, launch, parallel_kernel
from gpuboost.kernels.quantiles import LARGEST_KEY, MISSING_KEY, SMALLEST_KEY
from gpuboost.kernels.scalar import float_key


@kernel
def list_ranks(columns, totals, bins_left, heavy, n_heavy, ranks):
    """The ranks of a round, ascending: of the targets, and one of each heavy value.

    columns : int64 (k,), IN. Those that are not done. totals, bins_left, n_heavy : int64 (n,), IN, of every column.
    heavy : int64 (n, > most bins, 2), IN. Weight below and up to each heavy value, ascending.
    ranks : int64 (k, m), OUT, of each column not done; 0 behind the last one.
    """
    for k in range(columns.size):
        c, at, passed, h = columns[k], 0, int64(0), 0  # passed: weight of the heavy values before
        light = totals[c]
        for i in range(n_heavy[c]):
            light -= heavy[c, i, 1] - heavy[c, i, 0]
        for j in range(bins_left[c] if light > 0 else 0):
            target = ((j + 1) * light + bins_left[c] - 1) // bins_left[c]
            while h < n_heavy[c] and heavy[c, h, 0] - passed < target:
                ranks[k, at] = heavy[c, h, 0] + 1
                passed += heavy[c, h, 1] - heavy[c, h, 0]
                at, h = at + 1, h + 1
            ranks[k, at] = target + passed
            at += 1
        while h < n_heavy[c]:
            ranks[k, at] = heavy[c, h, 0] + 1
            at, h = at + 1, h + 1
        ranks[k, at:] = 0


@parallel_kernel
def cut_columns_cpu(
    columns, keys, begins, ends, is_resolved, n_bins, bins_left, heavy, n_heavy, thresholds, n_cuts, n_threads
):  # fmt: skip
    """End the bins of columns, from values in ascending order among which may be repeated and empty ones.

    columns, bins_left, heavy, n_heavy : as list_ranks, INOUT but for columns. keys : uint32, begins, ends : int64 (k, m), IN. The
        values, and the weight below and up to each; of one that is empty the same. is_resolved : whether these are all values,
        no more than bins. n_bins : int64 (n,), IN.
    thresholds : float32 (n, ≥ n_bins), OUT. n_cuts : int64 (n,), OUT, −1 of a column with new heavy values, which goes on.
    """
    counter = zeros(1, np.int64)
    args = counter, columns, keys, begins, ends, is_resolved, n_bins, bins_left, heavy, n_heavy, thresholds, n_cuts
    launch(n_threads, _cut_columns, args)


@parallel_kernel.part
def _cut_columns(
    counter, columns, keys, begins, ends, is_resolved, n_bins, bins_left, heavy, n_heavy, thresholds, n_cuts
):  # fmt: skip
    size = 2 * keys.shape[1]
    own_keys, own_begins, weights = empty(size, np.uint32), empty(size, np.int64), empty(size, np.int64)
    is_exact, is_heavy, is_end = empty(size, np.bool_), empty(size, np.bool_), empty(size, np.bool_)
    while True:
        k = claim(counter)
        if k >= columns.size:
            return
        c, n, reached, h = columns[k], 0, int64(0), 0
        for i in range(keys.shape[1]):
            if ends[k, i] <= reached:
                continue  # empty, or known
            if begins[k, i] > reached:
                own_begins[n], weights[n], is_exact[n], is_heavy[n] = reached, begins[k, i] - reached, False, False
                n += 1
            reached = ends[k, i]
            own_keys[n], own_begins[n], weights[n], is_exact[n] = keys[k, i], begins[k, i], reached - begins[k, i], True
            is_heavy[n] = h < n_heavy[c] and heavy[c, h, 0] == begins[k, i]
            h += is_heavy[n]
            n += 1
        if is_resolved:
            is_end[:n] = True
            is_end[max(n - 1, 0) : n] = False
        else:
            fewer = set_heavy_apart(weights[:n], is_exact[:n], is_heavy[:n], n_bins[c], bins_left[c])
            if fewer > 0:
                bins_left[c], h = fewer, 0
                for i in range(n):
                    if is_heavy[i]:
                        heavy[c, h, 0], heavy[c, h, 1] = own_begins[i], own_begins[i] + weights[i]
                        h += 1
                n_heavy[c], n_cuts[c] = h, -1
                continue
            end_bins(weights[:n], is_heavy[:n], bins_left[c], is_end[:n])
        at = 0
        for i in range(n):
            if is_end[i]:
                thresholds[c, at] = middle_value(own_keys[i], own_keys[i + 1])
                at += 1
        n_cuts[c] = at


# ---------------------------------------------------------------------------------------------------------------------
# CUDA. A value is written and read once more before and after it is sorted: 24 bytes, and 16 for each of the sort's eight digits.

ROWS_PER_BLOCK = 8192
IN_COLUMNS, IN_ROWS = 0, 32  # how far a sorted key lies above the lowest bit: the column above it, or its row below


@device_function
def key_at(keys, column, row, shift):
    """uint32: a key without its column, or row."""
    return uint32(keys[column, row] >> uint64(shift) & uint64(0xFFFFFFFF))


@cuda_kernel(
    "values: float32[:, :], missing: float32, weights: int64[:], first_row: int64, shift: int64, keys: uint64[:, :]",
    registers=40,
)
def list_keys_kernel(values, missing, weights, first_row, shift, keys):
    """Write the keys of a batch of whole columns, as quantiles.list_keys_cpu.

    values : float32 (n, rows), IN. missing : float32. weights : int64 (rows,) or (0,), IN. A row of weight 0 has no value.
    shift : IN_COLUMNS: column · 2^32 + key, IN_ROWS: key · 2^32 + row. keys : uint64 (n, all rows), OUT from first_row on.
    """
    n_rows = int64(values.shape[1])
    n_chunks = (n_rows + ROWS_PER_BLOCK - 1) // ROWS_PER_BLOCK
    item = int64(cuda.blockIdx.x)
    while item < values.shape[0] * n_chunks:
        column, chunk = item // n_chunks, item % n_chunks
        row = chunk * ROWS_PER_BLOCK + int64(cuda.threadIdx.x)
        while row < min((chunk + 1) * ROWS_PER_BLOCK, n_rows):
            x, key = values[column, row], uint32(MISSING_KEY)
            if not (x != x or x == missing or (weights.size > 0 and weights[row] == 0)):
                key = float_key(x)
            beside = uint64(column) if shift == 0 else uint64(first_row + row)
            high, low = (beside, uint64(key)) if shift == 0 else (uint64(key), beside)
            keys[column, first_row + row] = high << uint64(32) | low
            row += int64(cuda.blockDim.x)
        item += int64(cuda.gridDim.x)


@cuda_kernel("keys: uint64[:, :], shift: int64, prefix: int64[:, :], counts: int64[:, :]", registers=40)
def count_values_kernel(keys, shift, prefix, counts):
    """Count what sorted columns hold. keys : uint64 (n, rows), IN. prefix : as list_values_kernel.

    counts : int64 (n, 4), INOUT, zeroed by the caller: rows with a value, distinct values, rows with one that counts as infinite,
        and the weight of all values.
    """
    partial = cuda.shared.array(32, int64)
    n_rows = int64(keys.shape[1])
    n_chunks = (n_rows + ROWS_PER_BLOCK - 1) // ROWS_PER_BLOCK
    item = int64(cuda.blockIdx.x)
    while item < keys.shape[0] * n_chunks:
        column, chunk = item // n_chunks, item % n_chunks
        n_present, n_distinct, n_infinite = int64(0), int64(0), int64(0)
        row = chunk * ROWS_PER_BLOCK + int64(cuda.threadIdx.x)
        while row < min((chunk + 1) * ROWS_PER_BLOCK, n_rows):
            key = key_at(keys, column, row, shift)
            if key != uint32(MISSING_KEY):
                n_present += 1
                if is_first(keys, column, row, shift, key):
                    n_distinct += 1
                if key <= uint32(SMALLEST_KEY) or key >= uint32(LARGEST_KEY):
                    n_infinite += 1
                if row + 1 == n_rows or key_at(keys, column, row + 1, shift) == uint32(MISSING_KEY):
                    counts[column, 3] = prefix[column, row] if prefix.size > 0 else row + 1
            row += int64(cuda.blockDim.x)
        n_present, n_distinct = block_sum(n_present, partial), block_sum(n_distinct, partial)
        n_infinite = block_sum(n_infinite, partial)
        if cuda.threadIdx.x == 0:
            cuda.atomic.add(counts, (column, 0), n_present)
            cuda.atomic.add(counts, (column, 1), n_distinct)
            cuda.atomic.add(counts, (column, 2), n_infinite)
        item += int64(cuda.gridDim.x)


@device_function
def is_first(keys, column, row, shift, key):
    """Whether the row is the first one of its value."""
    return row == 0 or key_at(keys, column, row - 1, shift) != key


@cuda_kernel(
    "keys: uint64[:, :], shift: int64, prefix: int64[:, :], columns: int64[:], n_listed: int64[:], ranks: int64[:, :]",
    registers=40,
)
def list_values_kernel(keys, shift, prefix, columns, n_listed, ranks):
    """A rank in each distinct value of columns that have few.

    prefix : int64 (n, rows), IN. Weight up to each row of a sorted column; without rows: each weighs 1.
    columns : int64 (k,), IN. Which of the n. n_listed : int64 (k,), INOUT, zeroed by the caller. How many have been found.
    ranks : int64 (k, most), OUT, in any order.
    """
    n_rows = int64(keys.shape[1])
    n_chunks = (n_rows + ROWS_PER_BLOCK - 1) // ROWS_PER_BLOCK
    item = int64(cuda.blockIdx.x)
    while item < columns.size * n_chunks:
        k, chunk = item // n_chunks, item % n_chunks
        column = columns[k]
        row = chunk * ROWS_PER_BLOCK + int64(cuda.threadIdx.x)
        while row < min((chunk + 1) * ROWS_PER_BLOCK, n_rows):
            key = key_at(keys, column, row, shift)
            if key != uint32(MISSING_KEY) and is_first(keys, column, row, shift, key):
                rank = row + 1
                if prefix.size > 0:
                    rank = prefix[column, row]
                ranks[k, cuda.atomic.add(n_listed, k, int64(1))] = rank
            row += int64(cuda.blockDim.x)
        item += int64(cuda.gridDim.x)


@cuda_kernel(
    "keys: uint64[:, :], shift: int64, prefix: int64[:, :], columns: int64[:], ranks: int64[:, :], found: uint32[:, :], "
    "begins: int64[:, :], ends: int64[:, :]",
    registers=64,
)
def find_values_kernel(keys, shift, prefix, columns, ranks, found, begins, ends):
    """Which value holds a rank r: the smallest one with at least r of the weight up to it.

    columns : int64 (k,), IN. ranks : int64 (k, m), IN. From 1 to the column's weight; 0: nothing is asked.
    found : uint32 (k, m), OUT. The key. begins, ends : int64 (k, m), OUT. Weight below the value and up to it; 0 where nothing is
        asked. Others as list_values_kernel. A thread takes a rank, by binary search.
    """
    m, at = int64(ranks.shape[1]), int64(thread_number())
    while at < columns.size * m:
        k, i = at // m, at % m
        column, rank = columns[k], ranks[k, i]
        found[k, i], begins[k, i], ends[k, i] = uint32(0), int64(0), int64(0)
        if rank > 0:
            row = rank - 1
            if prefix.size > 0:
                row = first_that_reaches(prefix, column, rank)
            key = key_at(keys, column, row, shift)
            first, last = first_not_below(keys, column, shift, key), first_not_below(keys, column, shift, uint32(key + uint32(1)))
            if prefix.size > 0:
                first, last = prefix[column, first - 1] if first > 0 else int64(0), prefix[column, last - 1]
            found[k, i], begins[k, i], ends[k, i] = key, first, last
        at += int64(n_threads())


@device_function
def first_that_reaches(prefix, column, rank):
    """The first row up to which there is this weight."""
    low, high = int64(0), int64(prefix.shape[1]) - 1
    while low < high:
        middle = (low + high) >> 1
        if prefix[column, middle] >= rank:
            high = middle
        else:
            low = middle + 1
    return low


@device_function
def first_not_below(keys, column, shift, key):
    """The first row of a sorted column whose key is not below this one, or how many there are."""
    low, high = int64(0), int64(keys.shape[1])
    while low < high:
        middle = (low + high) >> 1
        if key_at(keys, column, middle, shift) >= key:
            high = middle
        else:
            low = middle + 1
    return low
