"""Histograms on a GPU in shared memory, where no two lanes of a warp ever add in one bank, whatever the data.

Shared memory has 32 banks of 4 bytes. An add by a warp takes as many passes as there are different words, or lanes at one word,
in the fullest bank. Where each lane adds at the bin that its code names these are 3.5 on average for random codes, up to 32 for
constant ones. Here a bank belongs to a column of the tile, and the 32 lanes always add to 32 columns: one pass. On an H200 this
kernel makes 32 adds in 1.5 clocks where records come from the first-level cache, all else included.

A tile holds 32 bytes of codes of the records, a sector of memory. Each code has a line of words, a column for each feature:

    one byte     offset = code · 256 + plane · 128 + feature · 4       plane 0: gradients, 1: hessians
    two bytes    offset = code · 128 + feature · 8 + plane · 4

A lane takes a word of 8 bytes of one row: lane l the word l % P of row l / P, where P words fill the tile, as a rule 4, so that a
warp adds 8 rows together. Rows begin at different codes of the word, as their number r = l / P turns them; in step j

    one byte     lane l adds code (j + r) % 8, the gradient and then the hessian
    two bytes    lane l adds code (j + r / 2) % 4, rows of odd r the hessian first

    P = 4, j = 0     lane    0    1    2    3 |  4    5    6    7 |  8    9 …  31      (one byte)
                     row     0    0    0    0 |  1    1    1    1 |  2    2 …   7
                     column  0    8   16   24 |  1    9   17   25 |  2   10 …  31

Records of 8 or 16 bytes have P = 1 or 2, and then the tile has 4 / P copies of their columns, of which r / 8 says whose turn it
is. Both planes are int32, the only type whose atomic add to shared memory is one instruction on every architecture; the sums of a
slice (histogram.MAX_SLICE_ROWS) fit into 32 bits, those of hessians without a sign. At its end the tile is added to the int64
histogram.

Where a record has two sectors of one-byte codes or more, and shared memory has room, two tiles are added up together: a lane
takes 16 bytes, whose first word goes to the first tile, the other to the second. A line of memory that a warp reads then serves
64 codes, and so do a row's number and its pair.
"""

from functools import cache

from numba import int32, int64, uint32, uint64

from gpuboost.kernels.addresses import add_at, add_at_byte, load_at, load_pair_at, permute_bytes
from gpuboost.kernels.cuda_common import CudaKernel, cuda, cuda_kernel, device_function, lane_number
from gpuboost.kernels.quantise import LIMB_BITS

TILE_CODES = 32  # bytes of codes: a sector of memory
WORD_CODES = 8  # bytes of codes that a lane takes
LINE_WORDS = 32  # of shared memory: a word of each bank
SECOND_TILE = 256 * 8 * TILE_CODES  # bytes: where the second one of two tiles begins, the same for any number of bins
THREADS = 1024  # of a block, one of which a multiprocessor holds at a time: of more each would flush tiles of its own
FLUSH_PARTS = 64  # of a tile, which the warps of a block take in turn


def tile_lines(max_bins: int, code_bytes: int) -> int:
    """Codes of a tile: the bins, and the missing code. One byte has no more than 256 of them."""
    return min(max_bins + 1, 256) if code_bytes == 1 else max_bins + 1


def tile_bytes(max_bins: int, code_bytes: int) -> int:
    """Shared memory of a block."""
    return tile_lines(max_bins, code_bytes) * line_bytes(code_bytes)


def line_bytes(code_bytes: int) -> int:
    """Shared memory of a code: gradients and hessians of 32 or 16 features."""
    return TILE_CODES // code_bytes * 8


def tile_words(record_bytes: int) -> int:
    """Words of a record that a tile holds, 1, 2 or 4 (histogram.record_bytes)."""
    return min(record_bytes, TILE_CODES) // WORD_CODES


@cache
def build_histograms_kernel(code_bytes: int, width: int) -> CudaKernel:
    """The kernel for codes of 1 or 2 bytes, whose blocks add up ``width`` tiles side by side, 1 or 2. Dynamic shared memory:
    tile_bytes, behind SECOND_TILE where there are two.

    words : uint64 (n_rows, words of a record), IN. The records of codes, eight bytes at a time.
    rows : int32 (2, n), IN. The two row buffers. gpair : int32 (n_outputs, 2, n_rows), IN. n_limbs : int32 (n_outputs,), IN.
    offsets : int32 (n_features + 1,), IN. First bin of each feature. n_lines, n_words : tile_lines and tile_words.
    progress : IN n_items, the parts of the rows. slices, first_slice : IN, of histogram.list_build_items_kernel.
    hist : int64 (n_slots, leaf_size, total_bins, 2), INOUT. Zeroed by the caller before the first page.

    Grid: a block strides over (part, output, tile), tiles fastest, so that neighbours read the same rows. Written atomically:
    hist, by every block that holds a slice of a node.

    A thread reads 4 + 4 + 8 bytes for 8 one-byte codes (the row's number, its pair, a word), its record two steps and its number
    three steps before they are added. Floor of a level of 11M rows of 28 codes, half of them built: 5.5M × 40 bytes = 0.05 ms at
    4.8 TB/s, and 5.5M × 64 adds, 32 in 1.5 clocks of 1.98 GHz on 132 multiprocessors, = 0.06 ms. On an H200 it takes 0.11 ms of
    one node, and where 64 nodes have them 0.24, since one row in 128 is a line of memory for its record and one for its pair.
    Three records under way take as long, and so do two or three blocks of a multiprocessor but for flushing more tiles: 3 blocks
    of 512 threads 0.12 and 0.32 ms. Instructions of the loop on compute capability 9.0: 55 for 8 rows, 16 of them adds.
    """
    add_word, load_words = ADD_WORD[code_bytes], LOAD_WORDS[width]
    line_words, n_before = line_bytes(code_bytes) // 4, (width - 1) * SECOND_TILE // 4  # words of a line; before the last tile

    def build_histograms(words, rows, gpair, n_limbs, offsets, n_lines, n_words, progress, slices, first_slice, hist):
        planes = cuda.shared.array(0, int32)
        i = uint32(cuda.threadIdx.x)
        while i < uint32(n_before + n_lines * line_words):
            planes[i] = int32(0)
            i = uint32(i + uint32(cuda.blockDim.x))
        cuda.syncthreads()  # the planes are zero
        # A thread keeps to one word of the tile, and strides over the rows.
        n_words, step = uint32(n_words), uint32(uint32(cuda.blockDim.x) // uint32(n_words))
        own_word, own_row = uint32(uint32(cuda.threadIdx.x) % n_words), uint32(uint32(cuda.threadIdx.x) // n_words)
        turn = uint32(uint32(lane_number()) // n_words)
        low_bytes, high_bytes, low_columns, high_columns = turns(code_bytes, turn, own_word, n_words)
        tile_words, row_words = uint32(n_words * uint32(width)), uint32(words.shape[1])
        n_turns = uint32(uint32(row_words + tile_words - uint32(1)) // tile_words)  # to take all of a row
        n_variants = uint32(n_turns * uint32(hist.shape[1]))
        item = uint32(cuda.blockIdx.x)
        while item < uint32(uint32(progress[0].n_items) * n_variants):
            part = uint32(item // n_variants)
            own = uint32(uint32(item - uint32(part * n_variants)) // n_turns)
            first_word, number = uint32(uint32(item % n_turns) * tile_words), uint32(first_slice[part])
            word = int64(min(uint32(first_word + uint32(own_word * uint32(width))), uint32(row_words - uint32(width))))
            while number < uint32(first_slice[uint32(part + uint32(1))]):
                output = uint32(uint32(slices[number].output) + own)
                limb = uint32(0)
                while limb < uint32(n_limbs[output]):
                    at_row, end = uint32(uint32(slices[number].begin) + own_row), uint32(slices[number].end)
                    last, first_pair = uint32(end - uint32(1)), (int64(output) * 2 + int64(limb)) * int64(gpair.shape[2])
                    first_row = int64(slices[number].side) * int64(rows.shape[1])
                    if at_row < end:
                        row0 = uint32(load_at(rows, first_row, at_row))
                        row1 = uint32(load_at(rows, first_row, min(uint32(at_row + step), last)))
                        ahead = uint32(at_row + step * uint32(2))
                        row2 = uint32(load_at(rows, first_row, min(ahead, last)))
                        pair0, codes0 = load_at(gpair, first_pair, row0), load_words(words, word, row0, row_words)
                        pair1, codes1 = load_at(gpair, first_pair, row1), load_words(words, word, row1, row_words)
                        while at_row < end:
                            pair, codes, pair0, codes0 = pair0, codes0, pair1, codes1
                            pair1, codes1 = load_at(gpair, first_pair, row2), load_words(words, word, row2, row_words)
                            ahead, at_row = uint32(ahead + step), uint32(at_row + step)
                            row2 = uint32(load_at(rows, first_row, min(ahead, last)))  # behind the last row that one again
                            for tile in range(width):
                                low, high = uint32(codes[tile] & uint64(0xFFFFFFFF)), uint32(codes[tile] >> uint64(32))
                                own_low, own_high = permute_bytes(low, high, low_bytes), permute_bytes(low, high, high_bytes)
                                add_word(planes, uint32(tile * SECOND_TILE), own_low, low_columns, turn, pair)
                                add_word(planes, uint32(tile * SECOND_TILE), own_high, high_columns, turn, pair)
                    cuda.syncthreads()  # all rows are in the planes
                    for tile in range(width):
                        turn_lines(planes, uint32(tile * SECOND_TILE // 4), uint32(n_lines), code_bytes)
                    cuda.syncthreads()  # all lines are turned
                    shift = LIMB_BITS * (int64(n_limbs[output]) - 1 - int64(limb))
                    for tile in range(width):
                        flush_tile(
                            planes, uint32(tile), uint32(width), uint32(n_lines), code_bytes, n_words, first_word, offsets,
                            shift, hist, int64(slices[number].slot), int64(own),
                        )  # fmt: skip
                    cuda.syncthreads()  # the planes are zero again
                    limb = uint32(limb + uint32(1))
                number = uint32(number + uint32(1))
            item = uint32(item + uint32(cuda.gridDim.x))

    wide = "_wide" if width > 1 else ""
    build_histograms.__name__ = f"build_histograms_kernel_{8 * code_bytes}{wide}"
    return cuda_kernel(
        "words: uint64[:, :], rows: int32[:, :], gpair: int32[:, :, :], n_limbs: int32[:], offsets: int32[:], n_lines: int64, "
        "n_words: int64, progress: PROGRESS[:], slices: SLICE[:], first_slice: int32[:], hist: int64[:, :, :, :]",
        block=THREADS, blocks_per_sm=1, registers=64,
    )(build_histograms)  # fmt: skip


@device_function
def load_one_word(words, word, row, row_words):
    """A lane's words of a row, uint64."""
    return (load_at(words, word, uint64(row) * uint64(row_words)),)


@device_function
def load_two_words(words, word, row, row_words):
    """The same, of two tiles. word : an even number."""
    return load_pair_at(words, word, uint64(row) * uint64(row_words))


LOAD_WORDS = {1: load_one_word, 2: load_two_words}


@device_function
def turns(code_bytes, turn, own_word, n_words):
    """Where this lane stands: which bytes of its word come first, as a selector of four and one of the other four; and their
    columns, a byte each: (column · 4) of one-byte codes, of two-byte ones the offset of what they add first."""
    group = uint32(own_word + n_words * uint32(turn >> uint32(3)))  # of 8 columns
    codes = uint32(turn if code_bytes == 1 else turn >> uint32(1))
    low_bytes, high_bytes, low_columns, high_columns = uint32(0), uint32(0), uint32(0), uint32(0)
    for j in range(4):
        low = uint32(uint32(codes * code_bytes + uint32(j)) & uint32(7))
        high = uint32(low ^ uint32(4))
        low_bytes = uint32(low_bytes | uint32(low << uint32(4 * j)))
        high_bytes = uint32(high_bytes | uint32(high << uint32(4 * j)))
        low_columns = uint32(low_columns | uint32(uint32(group * uint32(32) + low * uint32(4)) << uint32(8 * j)))
        high_columns = uint32(high_columns | uint32(uint32(group * uint32(32) + high * uint32(4)) << uint32(8 * j)))
    return low_bytes, high_bytes, low_columns, high_columns


@device_function
def add_one_byte_codes(planes, tile, codes, columns, turn, pair):
    """Four codes and their columns, a byte each: side by side they are the offset, and the sign of a column is the zero above."""
    grad, hess = int32(pair >> 16), int32(pair & 0xFFFF)
    for j in range(4):
        place = permute_bytes(codes, columns, uint32(0xCC04 + 0x11 * j))
        add_at_byte(planes, place, tile, grad)
        add_at_byte(planes, place, uint32(tile + uint32(4 * LINE_WORDS)), hess)


@device_function
def add_two_byte_codes(planes, tile, codes, columns, turn, pair):
    """Two codes. Their columns are bytes 0 and 2: 8 · feature, as a code of the word is 2 bytes and a column of the tile 8."""
    grad, hess = int32(pair >> 16), int32(pair & 0xFFFF)
    is_odd = (turn & uint32(1)) != 0
    first, second = (hess, grad) if is_odd else (grad, hess)
    flip = uint32(4) if is_odd else uint32(0)
    for j in range(2):
        code = uint32(uint32(codes >> uint32(16 * j)) & uint32(0xFFFF))
        column = uint32(uint32(columns >> uint32(16 * j)) & uint32(0xFF))
        place = uint32(code * uint32(4 * LINE_WORDS) + uint32(column + flip))
        add_at_byte(planes, place, tile, first)
        add_at_byte(planes, uint32(place ^ uint32(4)), tile, second)


ADD_WORD = {1: add_one_byte_codes, 2: add_two_byte_codes}


@device_function
def turn_lines(planes, begin, n_lines, code_bytes):
    """Turn each line of 32 words within itself, by its code and plane, so that 16 bins × 2 planes of any feature, which lay in
    one or two banks, lie in all 32. All threads call it. begin : words before the first line.

    A warp takes four lines at a time, with a barrier of the block where one of the warp would do, or shuffles: before those, in
    loops whose ends are data, the assembler puts a call that makes sure of the warp, for which it spills registers on compute
    capability 8.
    """
    n_warps, n_all, first = uint32(cuda.blockDim.x >> 5), uint32(n_lines * uint32(2 // code_bytes)), uint32(0)
    while first < n_all:
        line0 = uint32(first + uint32(cuda.threadIdx.x >> 5))
        line1, line2, line3 = uint32(line0 + n_warps), uint32(line0 + n_warps * uint32(2)), uint32(line0 + n_warps * uint32(3))
        value0, value1 = word_of_line(planes, begin, line0, n_all), word_of_line(planes, begin, line1, n_all)
        value2, value3 = word_of_line(planes, begin, line2, n_all), word_of_line(planes, begin, line3, n_all)
        cuda.syncthreads()  # the lines have been read
        put_turned(planes, begin, line0, n_all, code_bytes, value0)
        put_turned(planes, begin, line1, n_all, code_bytes, value1)
        put_turned(planes, begin, line2, n_all, code_bytes, value2)
        put_turned(planes, begin, line3, n_all, code_bytes, value3)
        first = uint32(first + n_warps * uint32(4))


@device_function
def word_of_line(planes, begin, line, n_all):
    """int32: this lane's word of a line, 0 behind the last one."""
    value = int32(0)
    if line < n_all:
        value = planes[uint32(begin + line * uint32(LINE_WORDS) + uint32(lane_number()))]
    return value


@device_function
def put_turned(planes, begin, line, n_all, code_bytes, value):
    """Put this lane's word where it belongs in the turned line."""
    if line < n_all:
        code, half = (uint32(line >> uint32(1)), uint32(line & uint32(1))) if code_bytes == 1 else (line, uint32(0))
        at = uint32(uint32(lane_number()) + turn_of(code, half, code_bytes)) & uint32(31)
        planes[uint32(begin + line * uint32(LINE_WORDS) + at)] = value


@device_function
def turn_of(code, half, code_bytes):
    """By how many words a line is turned. half : 1 for the hessians of a one-byte code, which have a line of their own."""
    return uint32(code + half * uint32(16)) if code_bytes == 1 else uint32(code * uint32(2))


@device_function
def flush_tile(planes, tile, width, n_lines, code_bytes, n_words, first_word, offsets, shift, hist, slot, own):
    """Add the turned tile, of ``width`` side by side, to the int64 histogram, and leave it zero. A warp takes some codes of a
    feature, its lanes 16 of them and both planes, which are 256 bytes of the histogram side by side; copies of a column are added
    up before. Beyond a feature's bins lies its missing code; of what pads the record code 0; of what lies behind it, any."""
    lane, begin = uint32(lane_number()), uint32(tile * uint32(SECOND_TILE // 4))
    plane, codes_of_word = uint32(lane & uint32(1)), uint32(WORD_CODES // code_bytes)
    # 16 codes on, a one-byte code's line begins with the word that was in its middle; a two-byte code's is turned as before.
    flip, step = (uint32(16), uint32(32 * LINE_WORDS)) if code_bytes == 1 else (uint32(0), uint32(16 * LINE_WORDS))
    n_features, copy_words = uint32(n_words * codes_of_word), uint32(n_words * uint32(8))
    n_parts = uint32(uint32(FLUSH_PARTS) // n_features)  # of a feature, each of whole sixteens of codes
    part_codes = uint32(uint32(uint32(uint32(n_lines - uint32(1)) // n_parts) + uint32(16)) & uint32(0xFFFFFFF0))
    part = uint32(cuda.threadIdx.x >> 5)
    while part < uint32(FLUSH_PARTS):
        feature, first_code = uint32(part % n_features), uint32(uint32(part // n_features) * part_codes)
        word = uint32(first_word + uint32(uint32(feature // codes_of_word) * width) + tile)
        column = uint32(word * codes_of_word + uint32(feature % codes_of_word))
        first_bin, n_bins, code = int64(0), uint32(0), uint32(first_code + uint32(lane >> uint32(1)))
        if column < uint32(offsets.size - 1):
            first_bin = int64(offsets[column])
            n_bins = uint32(offsets[uint32(column + uint32(1))] - offsets[column])
        target = ((slot * int64(hist.shape[1]) + own) * int64(hist.shape[2]) + first_bin) * int64(2) + int64(plane)
        if code_bytes == 1:
            line, at = uint32(code * uint32(2) + plane), uint32(feature + turn_of(code, plane, 1))
        else:
            line, at = code, uint32(feature * uint32(2) + plane + turn_of(code, plane, 2))
        place = uint32(begin + uint32(line * uint32(LINE_WORDS) + uint32(at & uint32(31))))
        while code < min(n_lines, uint32(first_code + part_codes)):
            value = uint32(planes[place])
            planes[place] = int32(0)
            if copy_words < uint32(LINE_WORDS):
                for k in range(1, 4):
                    if copy_words * uint32(k) < uint32(LINE_WORDS):
                        at = uint32(uint32(place + copy_words * uint32(k)) & uint32(31))
                        copy = uint32(uint32(place & uint32(0xFFFFFFE0)) | at)
                        value = uint32(uint64(value) + uint64(uint32(planes[copy])))
                        planes[copy] = int32(0)
            if value != uint32(0) and code < n_bins:
                amount = int64(value) if plane != uint32(0) else int64(int32(value))  # of the hessians, which are not negative
                add_at(hist, target, uint32(code * uint32(2)), amount << shift)
            code, place = uint32(code + uint32(16)), uint32(uint32(place ^ flip) + step)
        part = uint32(part + uint32(cuda.blockDim.x >> 5))
