"""The levels of a tree below those that rows choose among (kernels/top_levels.py), as a heap: children are found by arithmetic.

    splits as a heap: the children of split k are 2k and 2k + 1        next = 2k + is right
    of numbers          is right  =  key >= low
    of a set            is right  =  code is in the set, or is missing where missing values go right
    words of a tree: how many levels | – | column, low of split 1 | of split 2 | … | what lies below the last of these levels

Three loads and six instructions a step, and eight bytes a split, where a step from node to node takes five loads, nine
instructions and sixteen bytes. Eight rows step down together, so that their loads overlap. Columns of keys come in up to three
kinds, one behind the other: key | key + 1, for splits that send missing values left | code, the category of a value.

A heap takes at most six words for each node of its tree; rows of a lopsided tree step on from node to node below it. Trees of the
usual depth have none, so that what fills them is compiled where it is needed, a seventh of predict_values_cpu. (Rows that go down
them by a late call, too, take 3 % longer.)

100k × 28, one thread of an Intel Xeon with AVX-512, ns a row and tree, node by node below the first levels -> by heaps: 100 trees
of depth 8 6.8 -> 4.0, 10 9.8 -> 6.2; 20 of depth 12 14.6 -> 10.7; of depth 6 with sets of 1000 categories 26.5 -> 14.6. Deriving
all three kinds takes what some steps gain where trees with sets are few and columns many: 20k × 1000, 2 trees of depth 10
17.8 -> 21.5 ms, 10 trees 27 -> 30.
"""

import numpy as np
from numba import float32, int32, int64, uint32, uint64

from gpuboost.kernels.allocation import empty, zeros
from gpuboost.kernels.jit import call_late, inlined_scalar, kernel, parallel_kernel, scalar
from gpuboost.kernels.scalar import bits_float
from gpuboost.kernels.top_levels import MISSING_KEY, MOST, OF_DEEP, list_places, split_words

ROWS_AT_ONCE = 8
IS_SET, MISSING_RIGHT = 1, 2  # marks in the lowest bits of a word: of a node's ``left``, of a split's column
MARKS = IS_SET | MISSING_RIGHT
ROWS_PER_NODE = 2
NO_CODE, MISSING_CODE = 0xFFFFFFFE, 0xFFFFFFFF
LARGEST_CODE = 2.0**31
SMALLEST_KEY = 0x80000000
LINE = 64  # bytes; a vector of 16 keys that lies in two lines of the cache takes two loads


@scalar
def n_heap_levels(n_levels, n_nodes, n_rows, has_sets):
    """How many levels of a tree are laid out as a heap; 0 where those that are chosen among are all, or few rows step down it:
    laying it out takes as long as about 2 rows for each of its nodes gain. Trees with sets have no levels to choose among."""
    first, n = int64(0) if has_sets else int64(OF_DEEP), int64(0)
    if n_rows >= ROWS_PER_NODE * n_nodes and (has_sets or n_levels > MOST):
        while n < n_levels and (int64(2) << n) <= 2 * n_nodes:
            n += 1
    return n if n > first else int64(0)


@parallel_kernel.part
def lay_out_heaps(nodes, n_words, tree_begin, n_nodes, n_levels, mask_begin, n_rows, with_values, has_sets):
    """(the words of the heaps of all trees, uint32; where each begins, int64 (n_trees + 1,)).

    Arguments as top_levels.lay_out_tops. n_nodes : int32 (n_trees,), IN. mask_begin : of lay_out_masks; a tree that is laid out
    there has no heap. n_rows : that are to be predicted. has_sets : whether any tree splits by a set.
    """
    begin, levels, most = zeros(tree_begin.size + 1, np.int64), zeros(tree_begin.size, np.int64), int64(0)
    for t in range(tree_begin.size):
        if mask_begin[t] == mask_begin[t + 1]:
            levels[t] = n_heap_levels(n_levels[t], n_nodes[t], n_rows, has_sets)
        begin[t + 1] = begin[t] + (int64(3) << levels[t] if levels[t] > 0 else 0)
        most = max(most, levels[t])
    heaps = zeros(begin[tree_begin.size], np.uint32)
    if heaps.size > 0:
        places = empty(int64(2) << most, np.int64)
        call_late(_fill_heaps, (nodes, n_words, tree_begin, n_levels, with_values, begin, levels, places, heaps))
    return heaps, begin


@kernel
def _fill_heaps(nodes, n_words, tree_begin, n_levels, with_values, begin, levels, places, heaps):
    """Of trees of levels[t] > 0. places : int64 (as many as the widest tree has), SCRATCH."""
    for t in range(tree_begin.size):
        if levels[t] == 0:
            continue
        own, n_splits = heaps[begin[t] : begin[t + 1]], int64(1) << levels[t]
        are_values = with_values and n_levels[t] == levels[t]
        own[0] = levels[t]
        list_places(nodes, tree_begin[t], n_splits, places)
        for k in range(1, n_splits):
            place = places[k]
            marks = uint32(nodes[place + 3] & uint32(MARKS))
            if marks:
                own[2 * k], own[2 * k + 1] = (nodes[place] + uint32(2 * n_words)) | marks, nodes[place + 1]
            else:
                own[2 * k], own[2 * k + 1] = split_words(nodes, place, n_words)
        for k in range(n_splits):
            place = places[n_splits + k]
            own[2 * n_splits + k] = nodes[place + 1] if are_values else uint32(place)


@parallel_kernel.part
def count_key_words(nodes, n_words):
    """The words of the columns of keys of trees without sets: n_words of each kind up to the last that a split looks at."""
    last = uint32(0)
    for place in range(0, nodes.size, 4):
        last = max(last, split_words(nodes, place, n_words)[0])
    return (int64(last) // n_words + 1) * n_words


@parallel_kernel.part
def key_columns(size):
    """uint32 (size,) of zeros, each column at the beginning of a line of the cache."""
    words = LINE // 4
    memory = zeros(size + words, np.uint32)
    first = (words - memory.ctypes.data // 4 % words) % words
    return memory[first : first + size]


@parallel_kernel.part
def derive_keys(keys, n_words):
    """Write the columns of key + 1 and of codes, as far as there are any: of all keys, 16 at once; key + 1 takes 1.0 ns a row of
    28 columns. (Column by column the compiler takes key by key, 9.6.)"""
    of, shifted, codes = keys[:n_words], keys[n_words : 2 * n_words], keys[2 * n_words :]
    for i in range(shifted.size):
        shifted[i] = of[i] + uint32(1)
    for i in range(codes.size):
        codes[i] = code_of_key(of[i])


@scalar
def write_key(keys, n_words, at, key):
    """The same for one key, which it writes as well."""
    at, n = uint64(at), uint64(n_words)
    keys[at] = key
    if keys.size > n_words:
        keys[at + n] = uint32(key + uint32(1))
    if keys.size > 2 * n_words:
        keys[at + n + n] = code_of_key(key)


@scalar
def code_of_key(key):
    """The category of a value that has this key (kernels/predict.value_key). What is none, negative or large, is in no set."""
    x = bits_float(key)  # of a value that is not negative, whose key are its bits
    is_code = (key < uint32(SMALLEST_KEY)) & (x < float32(LARGEST_CODE))
    code = uint32(int32(x if is_code else float32(0.0)))
    return uint32(MISSING_CODE) if key == uint32(MISSING_KEY) else code if is_code else uint32(NO_CODE)


@inlined_scalar
def _step(keys, row, heaps, first, sets, at):
    word = first + uint64(2) * at
    column, low = heaps[word], heaps[word + uint64(1)]
    if sets is None:
        is_right = int32(keys[uint64(column) + row]) >= int32(low)
    else:
        key = keys[uint64(column & ~uint32(MARKS)) + row]
        is_right = _is_right_of_any(key, low, column, sets)
    return uint64(2) * at + uint64(is_right)


@inlined_scalar
def _is_right_of_any(key, low, marks, sets):
    """Without a branch, which rows of trees that have both kinds of splits would mispredict: what is in no set, or belongs to a
    number, looks at the first word of a set."""
    is_set = (marks & uint32(IS_SET)) != uint32(0)
    first = uint64(low if is_set else uint32(0))
    is_inside = key < sets[first]
    word = sets[first + uint64(uint32(key >> uint32(5)) + uint32(1) if is_inside else uint32(0))]
    is_in_set = (uint32(word >> (key & uint32(31))) & uint32(is_inside)) != uint32(0)
    is_missing = (key == uint32(MISSING_CODE)) & ((marks & uint32(MISSING_RIGHT)) != uint32(0))
    return (is_in_set | is_missing) if is_set else int32(key) >= int32(low)


@parallel_kernel.part
def descend_heap(keys, n_rows, heaps, begin, sets, n_done, below):
    """Send the first rows of a block down the heap of a tree.

    keys : uint32, IN. Columns of ROW_BLOCK keys. n_done : levels of it that the rows are down already. below : uint32
    (ROW_BLOCK,), INOUT. Splits of the heap; what lies below its last level. Returns how many levels it has.
    """
    first = uint64(begin)
    n_splits, n_steps = uint64(1) << uint64(heaps[first]), int64(heaps[first]) - n_done
    for i in range(0, n_rows, ROWS_AT_ONCE):
        # A slice: places that LLVM knows to be multiples of 8 it would keep in memory, 3 % slower.
        row, own = uint64(i), below[i : i + ROWS_AT_ONCE]
        at = (
            uint64(own[uint64(0)]), uint64(own[uint64(1)]), uint64(own[uint64(2)]), uint64(own[uint64(3)]),
            uint64(own[uint64(4)]), uint64(own[uint64(5)]), uint64(own[uint64(6)]), uint64(own[uint64(7)]),
        )  # fmt: skip
        for _ in range(n_steps):
            at = (
                _step(keys, row, heaps, first, sets, at[0]), _step(keys, row + uint64(1), heaps, first, sets, at[1]),
                _step(keys, row + uint64(2), heaps, first, sets, at[2]), _step(keys, row + uint64(3), heaps, first, sets, at[3]),
                _step(keys, row + uint64(4), heaps, first, sets, at[4]), _step(keys, row + uint64(5), heaps, first, sets, at[5]),
                _step(keys, row + uint64(6), heaps, first, sets, at[6]), _step(keys, row + uint64(7), heaps, first, sets, at[7]),
            )  # fmt: skip
        for k in range(ROWS_AT_ONCE):
            own[uint64(k)] = heaps[first + n_splits + at[k]]  # behind 2 · n_splits words, and the k-th of them is n_splits + k
    return int64(heaps[first])
