"""The first levels of a tree, for a block of rows: every row looks at all splits there, and chooses among what lies below.

    splits of a tree as a heap: the children of split k are 2k and 2k + 1        goes right  =  key >= low
    words of a tree: columns [0:64] | lows [64:128] | what lies below the last of these levels [128:192]

Keys are integers in the order of the values, the missing one the largest of all (kernels/predict.py), so that missing values go
right. Splits that send them left look at another column, of key + 1 and with low + 1, where the missing one is the smallest.

A level more doubles the splits, each a load, a comparison and a choice for 16 rows; a step of one row takes nine instructions,
and waits for what it loads. LLVM makes the vectors of what a processor has: 16 rows are one register of AVX-512, two of AVX2,
four of NEON. Keys have a sign, since AVX2 compares only such in one instruction, which loads the keys itself.

What a split is takes as many loads for 64 rows as for 16, which a few rows alone are. 100k × 28, 100 trees of depth 6, one thread
of an AMD EPYC (Zen 4), 16 at once -> 32 -> 64: 28.0 -> 21.9 -> 20.7 ms, by AVX2 27.3 -> 23.0 -> 23.0.
"""

import numpy as np
from llvmlite import ir
from numba import int64, types, uint32, uint64
from numba.extending import intrinsic

from gpuboost.kernels.allocation import empty, zeros
from gpuboost.kernels.jit import inlined_scalar, parallel_kernel, scalar

ROW_BLOCK = 64  # rows whose keys lie side by side; of 28 columns 7 KB; as fast as 128, and threads share 1000 rows more evenly
MISSING_KEY = 0x7FFFFFFF  # a signed key, in 32 bits
FEW = 16  # rows at once, where that is less than the whole block
FEWEST, MOST, OF_DEEP = 4, 6, 5  # levels chosen among: of trees that end within them, and of deeper ones
LOWS, BELOW, WORDS = 64, 128, 192

_WORD, _PLACE = ir.IntType(32), ir.IntType(64)


@scalar
def n_top_levels(n_levels):
    """How many levels of a tree of so many are chosen among. Rows of deeper trees step on from there (kernels/heap_levels.py)."""
    return max(int64(n_levels), int64(FEWEST)) if n_levels <= MOST else int64(OF_DEEP)


@scalar
def list_places(nodes, root, n_splits, places):
    """Where the nodes of a tree lie that are the first n_splits - 1 splits of a heap and what is below: places : int64 (at least
    2 · n_splits,), OUT, as 4 · number; a leaf's own wherever its children would be."""
    places[1] = 4 * root
    for k in range(1, n_splits):
        left = int64(nodes[places[k] + 3])
        places[2 * k], places[2 * k + 1] = left & -4, (left & -4) + 4 * (left != places[k])


@scalar
def split_words(nodes, place, n_words):
    """(column, low) of a node by which a row goes right where key >= low; (0, 0) of a leaf, both sides of which are the same."""
    if int64(nodes[place + 3]) == place:
        return uint32(0), uint32(0)
    is_shifted = uint32(nodes[place + 1] + nodes[place + 2]) == uint32(MISSING_KEY)  # it sends missing values left
    return uint32(nodes[place] + uint32(n_words if is_shifted else 0)), uint32(nodes[place + 1] + uint32(is_shifted))


@parallel_kernel.part
def lay_out_tops(nodes, n_words, tree_begin, n_levels, mask_begin, heap_begin, with_values):
    """The words of the first levels of all trees, uint32 (n_trees, WORDS).

    nodes : uint32 (4 · n_nodes,), IN. As kernels/predict.lay_out. n_words : of the columns of keys, without those of key + 1.
    mask_begin : int64 (n_trees + 1,), IN. Of kernels/leaf_masks.lay_out_masks; trees that are laid out there are passed over.
    heap_begin : int64 (n_trees + 1,), IN. Of kernels/heap_levels.lay_out_heaps. If a tree has a heap, splits of it lie below.
    with_values : whether the bits of leaves' values lie below trees that have no more levels; else places of nodes, 4 · number.
    """
    tops, places = zeros((tree_begin.size, WORDS), np.uint32), empty(2 << MOST, np.int64)
    for t in range(tree_begin.size):
        if mask_begin[t] < mask_begin[t + 1]:
            continue
        own, n_splits = tops[t], int64(1) << n_top_levels(n_levels[t])
        list_places(nodes, tree_begin[t], n_splits, places)
        for k in range(1, n_splits):
            own[k], own[LOWS + k] = split_words(nodes, places[k], n_words)
        has_heap, are_values = heap_begin[t] < heap_begin[t + 1], with_values and n_levels[t] <= MOST
        for k in range(n_splits):
            place = places[n_splits + k]
            own[BELOW + k] = uint32(n_splits + k) if has_heap else nodes[place + 1] if are_values else uint32(place)
    return tops


def _choice_among(n_levels, n_rows):
    lanes_type = ir.VectorType(_WORD, n_rows)

    def choose(typing_context, keys, row, tops, tree, below):
        def codegen(context, builder, signature, args):
            def data(k):
                return context.make_array(signature.args[k])(context, builder, args[k]).data

            def lanes(place):
                return builder.bitcast(place, lanes_type.as_pointer())

            def in_all(word):
                undefined = ir.Constant(lanes_type, ir.Undefined)
                one = builder.insert_element(undefined, word, _WORD(0))
                return builder.shuffle_vector(one, undefined, ir.Constant(lanes_type, [0] * n_rows))

            def word(k):
                return builder.load(builder.gep(words, [_PLACE(k)]))

            def chosen(k, level):
                if level == n_levels:
                    return in_all(word(BELOW + k - (1 << n_levels)))
                column = builder.zext(word(k), _PLACE)
                key = builder.load(lanes(builder.gep(first_keys, [column])), align=4)
                is_left = builder.icmp_signed(">", in_all(word(LOWS + k)), key)
                return builder.select(is_left, chosen(2 * k, level + 1), chosen(2 * k + 1, level + 1))

            words = builder.gep(data(2), [builder.mul(args[3], _PLACE(WORDS))])
            first_keys = builder.gep(data(0), [args[1]])
            builder.store(chosen(1, 0), lanes(builder.gep(data(4), [args[1]])), align=4)
            return context.get_dummy_value()

        return types.none(keys, types.uint64, tops, types.uint64, below), codegen

    return intrinsic(choose)


# choose(keys, row, tops, tree, below): below[row : row + n_rows] = what these rows find below so many levels of a tree.
def _choice_of(n_rows):
    choose_four, choose_five, choose_six = (_choice_among(n_levels, n_rows) for n_levels in (4, 5, 6))

    @inlined_scalar
    def choose(keys, row, tops, tree, n_levels, below):
        if n_levels == MOST:
            choose_six(keys, row, tops, tree, below)
        elif n_levels == FEWEST:
            choose_four(keys, row, tops, tree, below)
        else:
            choose_five(keys, row, tops, tree, below)

    return choose


_choose_few, _choose_all = _choice_of(FEW), _choice_of(ROW_BLOCK)


@inlined_scalar
def choose_below(keys, n_rows, tops, tree, n_levels, below):
    """What the first n_rows rows of a block find below the first levels of a tree.

    keys : uint32 (n_columns · ROW_BLOCK,), IN. tops : uint32 (n_trees, WORDS), IN. below : uint32 (ROW_BLOCK,), OUT.
    """
    n_chosen, t = n_top_levels(n_levels), uint64(tree)
    if n_rows > 2 * FEW:
        _choose_all(keys, uint64(0), tops, t, n_chosen, below)
    else:
        for row in range(0, n_rows, FEW):
            _choose_few(keys, uint64(row), tops, t, n_chosen, below)
