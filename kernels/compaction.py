"""What a search reads of a table when a round draws some of its features or rows: the records, cells and entries of those alone.

    record     [f0 f1 f2 f3 …]  with features 0, 2, 3 drawn  ->  [f0 f2 f3]
    cell c     ->  new_cells[c], or none
    entries    of a column: those of the rows drawn, in their order

Done once for the trees of a round, for the rows that they grow on; the histograms then visit no feature that was not drawn.
Packed records (kernels/packing.py) stay as they are: several features share a byte.

Rows keep their numbers. A sample that numbers its rows anew, with records, gradients and fixed point side by side, was tried on
the CPU: of 450,000 × 28 half of rows and columns take as long (what histograms gain goes to looking up codes for the partition by
the old numbers), 80 % of both 1.5 ms of 20 longer, 80 % of the rows alone, whose records would not be copied, 3 ms of 12.

Floor: a record and the codes drawn are read, those written, per row. One core of an AMD EPYC: 0.5 ns a code.
"""

import numpy as np
from numba import int32, int64, uint32, uint64

from gpuboost.kernels.addresses import load_at, permute_bytes, store_at
from gpuboost.kernels.allocation import zeros
from gpuboost.kernels.cuda_common import cuda_kernel, device_function, n_threads, thread_number
from gpuboost.kernels.jit import claim, launch, parallel_kernel
from gpuboost.kernels.shares import claim_rows, new_counters
from gpuboost.kernels.shuffling import WIDTH, can_shuffle, list_masks, shuffle_record

CHUNK = 1024  # rows


@parallel_kernel
def compact_codes_cpu(records, features, rows, selected, n_threads):
    """Copy the codes of some features.

    records : uint8 or uint16 (n_rows, width), IN. features : int32 (k,), IN. rows : int32 (m,), IN. Whose records to copy.
    selected : as records (n_rows, at least k), OUT. Codes beyond the k-th become 0, or are not written.

    Records of whole sixteens of bytes are shuffled, where the processor can (kernels/shuffling.py): 450,000 of 32 bytes, half of
    them and of the 28 columns drawn, one thread of an Intel Xeon, 1.5 -> 0.9 ms; all rows 2.9 -> 1.6; of half of the rows 50 of
    100 columns 9.0 -> 3.4.
    """
    counters = new_counters(n_threads)
    if can_shuffle() and records.shape[1] * records.itemsize % WIDTH == 0:
        args = counters, records.view(np.uint8), rows, *list_masks(features, records.itemsize), selected.view(np.uint8)
        launch(n_threads, _shuffle_records, args)
    else:
        launch(n_threads, _compact_codes, (counters, records, features, rows, selected))


@parallel_kernel.part
def _shuffle_records(thread, counters, records, rows, masks, bounds, first, selected):
    width, new_width, n_written = records.shape[1], selected.shape[1], first.size
    while True:
        _, begin, end = claim_rows(counters, thread, 1, rows.size, int64(CHUNK))
        if begin == end:
            return
        for row in rows[begin:end]:
            source, target = int64(row) * width, int64(row) * new_width
            for j in range(n_written):
                n_masks = bounds[j + 1] - bounds[j]
                is_half = WIDTH * (j + 1) > new_width
                shuffle_record(
                    records, source + WIDTH * first[j], bounds[j], masks, n_masks, selected, target + WIDTH * j, is_half
                )  # fmt: skip


@parallel_kernel.part
def _compact_codes(thread, counters, records, features, rows, selected):
    while True:
        _, begin, end = claim_rows(counters, thread, 1, rows.size, int64(CHUNK))
        if begin == end:
            return
        for row in rows[begin:end]:
            to = uint32(row)
            for j in range(features.size):
                selected[to, uint32(j)] = records[to, uint32(features[uint32(j)])]


@parallel_kernel
def recode_cpu(records, features, offsets, codes, rows, selected, n_threads):
    """compact_codes_cpu, with other codes (tree_method="approx").

    offsets : int32 (k + 1,), IN. Where the bins of each of these features begin.
    codes : as selected (offsets[k] + k,), IN. The new code of each code of the first one, of its missing values, of each code of
        the next one, …
    selected : uint8 or uint16 (n_rows, at least k), OUT.
    """
    launch(n_threads, _recode, (new_counters(n_threads), records, features, offsets, codes, rows, selected))


@parallel_kernel.part
def _recode(thread, counters, records, features, offsets, codes, rows, selected):
    while True:
        _, begin, end = claim_rows(counters, thread, 1, rows.size, int64(CHUNK))
        if begin == end:
            return
        for row in rows[begin:end]:
            to = uint32(row)
            for j in range(features.size):
                own = uint32(offsets[uint32(j)] + j)
                selected[to, uint32(j)] = codes[uint32(own + records[to, uint32(features[uint32(j)])])]


@parallel_kernel
def compact_cells_cpu(row_begin, cells, new_cells, rows, selected, row_end, n_threads):
    """Copy the cells of some features, each to the place where the cells of its row begin.

    row_begin : int64 (≥ n_rows,), cells : uint16 or int32 (n_cells,), IN. See kernels/sparse.py.
    new_cells : int32 (cell numbers,), IN. The number of each cell from now on, −1 for a feature that is not drawn.
    rows : int32 (m,), IN. selected : as cells, OUT. row_end : int64 (n_rows,), OUT. Where the copied cells of a row end.
    """
    launch(n_threads, _compact_cells, (new_counters(n_threads), row_begin, cells, new_cells, rows, selected, row_end))


@parallel_kernel.part
def _compact_cells(thread, counters, row_begin, cells, new_cells, rows, selected, row_end):
    while True:
        _, begin, end = claim_rows(counters, thread, 1, rows.size, int64(CHUNK))
        if begin == end:
            return
        for row in rows[begin:end]:
            to = row_begin[row]
            for at in range(row_begin[row], row_begin[row + 1]):
                cell = new_cells[cells[at]]
                if cell >= 0:
                    selected[to] = cell
                    to += 1
            row_end[row] = to


@parallel_kernel
def compact_entries_cpu(bounds, rows, codes, features, is_drawn, new_bounds, new_rows, new_codes, n_threads):
    """Copy the entries of the rows drawn, each column's to the place where they begin.

    bounds : int64 (n_features, 2), rows : int32 (k,), codes : uint32 (k,), IN. Column blocks (kernels/columns.py).
    features : int32 (m,), IN. Whose columns to copy. is_drawn : uint8 (n_rows,), IN.
    new_bounds : int64 (n_features, 2), new_rows : int32 (k,), new_codes : uint32 (k,), OUT. Of the features copied.
    """
    counter = zeros(1, np.int64)
    launch(n_threads, _compact_entries, (counter, bounds, rows, codes, features, is_drawn, new_bounds, new_rows, new_codes))


@parallel_kernel.part
def _compact_entries(counter, bounds, rows, codes, features, is_drawn, new_bounds, new_rows, new_codes):
    while True:
        c = claim(counter)
        if c >= features.size:
            return
        feature = features[c]
        to = uint64(bounds[feature, 0])
        for at in range(bounds[feature, 0], bounds[feature, 1]):
            drawn = is_drawn[uint32(rows[at])]
            if drawn:
                new_rows[to], new_codes[to] = rows[at], codes[at]
                to += uint64(1)
        new_bounds[feature, 0], new_bounds[feature, 1] = bounds[feature, 0], int64(to)


# ---------------------------------------------------------------------------------------------------------------------
# CUDA. A thread writes a word of a record, or copies the cells of a row. Records of 28 bytes with 14 drawn: 32 + 16 bytes a row,
# 5.5M rows 0.26 GB, 0.06 ms at 4.8 TB/s.


@cuda_kernel(
    "words: uint32[:, :], code_bits: int64, features: int32[:], rows: int32[:], n_drawn: int64[:], selected: uint32[:, :]",
    registers=40,
)  # fmt: skip
def compact_codes_kernel(words, code_bits, features, rows, n_drawn, selected):
    """compact_codes_cpu, four bytes at a time, for the first n_drawn[0] of the rows. code_bits : 8 or 16.

    selected : uint32 (n_rows, at least the words of k codes), OUT. What is left of the last word becomes 0.

    A thread keeps to one word of the new records, whose four bytes come from up to four words of the old ones.
    """
    code_bytes, n_rows, row_words = uint32(uint32(code_bits) >> uint32(3)), uint32(n_drawn[0]), uint32(words.shape[1])
    n_words, new_words = uint32(uint32(features.size * code_bytes + uint32(3)) >> uint32(2)), uint32(selected.shape[1])
    n_rows_at_once, word_step = max(uint32(n_threads() // n_words), uint32(1)), min(n_words, n_threads())
    first, word = uint32(thread_number() // n_words), uint32(thread_number() % n_words)
    if first >= n_rows_at_once:
        first = n_rows  # a thread that is left over
    while word < n_words:
        word0, byte0, mask0 = source_of(features, code_bytes, word, uint32(0))
        word1, byte1, mask1 = source_of(features, code_bytes, word, uint32(1))
        word2, byte2, mask2 = source_of(features, code_bytes, word, uint32(2))
        word3, byte3, mask3 = source_of(features, code_bytes, word, uint32(3))
        low_bytes = uint32(byte0 | uint32(uint32(byte1 | uint32(4)) << uint32(4)))  # of two words, those of the second are 4 to 7
        high_bytes = uint32(byte2 | uint32(uint32(byte3 | uint32(4)) << uint32(4)))
        mask, i = uint32(mask0 | mask1 | mask2 | mask3), first
        if i < n_rows:
            next_row = uint32(load_at(rows, int64(0), i))
        while i < n_rows:
            row, i = next_row, uint32(i + n_rows_at_once)
            next_row = uint32(load_at(rows, int64(0), min(i, uint32(n_rows - uint32(1)))))  # under way meanwhile
            record = uint64(uint64(row) * uint64(row_words))
            source0, source1 = load_at(words, int64(word0), record), load_at(words, int64(word1), record)
            source2, source3 = load_at(words, int64(word2), record), load_at(words, int64(word3), record)
            low, high = permute_bytes(source0, source1, low_bytes), permute_bytes(source2, source3, high_bytes)
            value = uint32(permute_bytes(low, high, uint32(0x5410)) & mask)
            store_at(selected, int64(word), uint64(uint64(row) * uint64(new_words)), value)
        word = uint32(word + word_step)


@device_function
def source_of(features, code_bytes, word, byte):
    """Where a byte of a new word comes from: a word of the record, a byte of that, and all bits of the byte; 0 behind the last
    code."""
    place = uint32(word * uint32(4) + byte)
    code, mask = uint32(place // code_bytes), uint32(0)
    if code < uint32(features.size):
        mask = uint32(uint32(255) << uint32(byte * uint32(8)))
        place = uint32(uint32(features[code]) * code_bytes + uint32(place % code_bytes))
    else:
        place = uint32(0)
    return uint32(place >> uint32(2)), uint32(place & uint32(3)), mask


@cuda_kernel(
    "row_begin: int64[:], cells: int32[:], new_cells: int32[:], rows: int32[:], n_drawn: int64[:], selected: int32[:], "
    "row_end: int64[:]",
)
def compact_cells_kernel(row_begin, cells, new_cells, rows, n_drawn, selected, row_end):
    """compact_cells_cpu for the first n_drawn[0] of the rows."""
    i = int64(thread_number())
    while i < n_drawn[0]:
        row = rows[i]
        to, at = row_begin[row], row_begin[row]
        while at < row_begin[row + 1]:
            cell = int32(new_cells[cells[at]])
            if cell >= 0:
                selected[to] = cell
                to += int64(1)
            at += int64(1)
        row_end[row] = to
        i += int64(n_threads())
