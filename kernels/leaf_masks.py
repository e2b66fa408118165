"""Trees of few leaves, however deep, for a block of rows: every row looks at all splits, and strikes out the leaves it misses.

    leaves of a tree, from left to right, are bits of words, 32 in each
    keep = all bits but those of the leaves on the left of a split        left &= keep, where a row goes right
    a row's leaf is the first one that is left
    words of a tree: words of leaves | of each of them, the last one first: how many splits | splits | what lies at leaves [32]
    words of a split: column | low | width | keep

Goes right: key >= low of values, as in kernels/top_levels.py, and code − low < width of codes, as in kernels/top_codes.py. A
split that has no leaf of a word on its left is not among the splits of that word.

After QuickScorer (Lucchese et al., SIGIR 2015), whose rows go through the splits of each feature as far as they go right. Here
they go through all, side by side: a load, a comparison and an "and" for 16 rows, and no branch. Stepping down takes as long as
the deepest rows of a tree do, by chains of loads. One thread of an AMD EPYC (Zen 4), 20 trees of 31 leaves in 10 levels, and of
63, ns a row and tree, before -> so: values of 28 columns 8.5 -> 2.2, 11.2 -> 4.2, by AVX2 8.7 -> 2.4, 11.6 -> 4.2; codes
7.6 -> 1.9, 10.2 -> 3.5; sparse rows of 2,000 columns 31 -> 4.4. Trees of 127 leaves in four words gain less than a tenth.
"""

import numpy as np
from llvmlite import ir
from numba import int32, int64, types, uint32, uint64
from numba.extending import intrinsic

from gpuboost.kernels.allocation import empty, zeros
from gpuboost.kernels.jit import call_late, inlined_scalar, kernel, parallel_kernel, scalar
from gpuboost.kernels.top_codes import RUN
from gpuboost.kernels.top_levels import MOST, ROW_BLOCK, split_words

__all__ = ["find_leaves", "lay_out_masks"]

LEAVES = 32  # of a word
MOST_WORDS = 2  # of a tree
SPLIT = 4  # words
ROWS_PER_NODE = 2  # at least: laying a tree out takes as long as they gain
ALL = 0xFFFFFFFF

_BIT, _WORD, _PLACE = ir.IntType(1), ir.IntType(32), ir.IntType(64)


@scalar
def n_leaf_words(n_levels, n_nodes, n_rows):
    """How many words the leaves of a tree take; 0 where its rows had better choose among its first levels and step down."""
    n_words = (int64(n_nodes) // 2 + LEAVES) // LEAVES
    return n_words if n_levels > MOST and n_words <= MOST_WORDS and n_rows >= ROWS_PER_NODE * n_nodes else int64(0)


@parallel_kernel.part
def lay_out_masks(nodes, n_words, tree_begin, n_nodes, n_levels, n_rows, with_values):
    """(the words of all trees that are laid out so, uint32; where each begins, int64 (n_trees + 1,)).

    nodes : uint32 (4 · n_nodes,), IN. As kernels/predict.lay_out, without sets. n_words : of the columns of keys, without those
    of key + 1; 0 of codes. n_rows : that are to be predicted. with_values : whether the bits of leaves' values lie at them; else
    places of nodes, 4 · number.
    """
    begin, largest = zeros(tree_begin.size + 1, np.int64), int32(0)
    for t in range(tree_begin.size):
        n = n_leaf_words(n_levels[t], n_nodes[t], n_rows)
        begin[t + 1] = begin[t]
        if n > 0:  # what is on the left of one split, and in two words, is nested: one split of a level, at most
            most_splits = int64(n_nodes[t]) // 2 + (n - 1) * n_levels[t]
            begin[t + 1] += 1 + n * (1 + LEAVES) + most_splits * SPLIT
            largest = max(largest, n_nodes[t])
    masks = zeros(begin[tree_begin.size], np.uint32)
    if masks.size > 0:
        found = empty((5, largest), np.int64)
        call_late(_fill_masks, (nodes, n_words, tree_begin, begin, with_values, found, masks))
    return masks, begin


@kernel
def _fill_masks(nodes, n_words, tree_begin, begin, with_values, found, masks):
    """found : int64 (5, as many nodes as the largest of these trees has), SCRATCH."""
    splits, first, end, leaves = found[0], found[1], found[2], found[3]
    for t in range(tree_begin.size):
        if begin[t] == begin[t + 1]:
            continue
        n_splits = _list_nodes(nodes, tree_begin[t], splits, first, end, leaves, found[4])
        masks[begin[t]] = n_splits // LEAVES + 1
        at = begin[t] + 1
        for leaf in range(n_splits // LEAVES * LEAVES, -1, -LEAVES):  # the first of a word
            split = at + 1
            for k in range(n_splits):
                low, high = max(first[k] - leaf, 0), min(end[k] - leaf, LEAVES)
                if low < high:
                    masks[at] += uint32(1)
                    own = masks[split : split + SPLIT]
                    if n_words > 0:
                        own[0], own[1] = split_words(nodes, splits[k], n_words)
                    else:
                        own[:3] = nodes[splits[k] : splits[k] + 3]
                    own[3] = uint32(ALL) ^ uint32((int64(1) << high) - (int64(1) << low))
                    split += SPLIT
            for k in range(min(n_splits + 1 - leaf, LEAVES)):
                place = leaves[leaf + k]
                masks[split + k] = nodes[place + 1] if with_values else uint32(place)
            at = split + LEAVES


@scalar
def _list_nodes(nodes, root, splits, first, end, leaves, waiting):
    """The places of a tree's splits, the first leaf on the left of each and the end of those, and the places of its leaves from
    left to right. All int64, as is waiting, SCRATCH: the splits that have yet to go right. Returns the number of splits."""
    n_splits, n_leaves, n_waiting, place = 0, 0, 0, 4 * int64(root)
    while True:
        left = int64(nodes[place + 3])
        if left != place:
            splits[n_splits], first[n_splits], waiting[n_waiting] = place, n_leaves, n_splits
            n_splits, n_waiting, place = n_splits + 1, n_waiting + 1, left
            continue
        leaves[n_leaves] = place
        n_leaves += 1
        if n_waiting == 0:
            return n_splits
        n_waiting -= 1
        split = waiting[n_waiting]
        end[split], place = n_leaves, int64(nodes[splits[split] + 3]) + 4


@intrinsic
def _strike_out(typing_context, keys, stride, row, masks, word, left):
    """left[i] = which leaves of a word row + i has left; returns where they lie in masks. Of ROW_BLOCK rows of values, whose keys
    have one dimension, or of RUN rows of codes."""
    n_rows, are_values = (ROW_BLOCK, True) if keys.ndim == 1 else (RUN, False)
    keys_type, lanes_type = ir.VectorType(ir.IntType(keys.dtype.bitwidth), n_rows), ir.VectorType(_WORD, n_rows)

    def codegen(context, builder, signature, args):
        def data(k):
            return context.make_array(signature.args[k])(context, builder, args[k]).data

        def in_all(word, of_type):
            undefined = ir.Constant(of_type, ir.Undefined)
            one = builder.insert_element(undefined, builder.trunc(word, of_type.element), _WORD(0))
            return builder.shuffle_vector(one, undefined, ir.Constant(lanes_type, [0] * n_rows))

        def word(k):
            return builder.load(builder.gep(words, [k]))

        words, first_keys, all_leaves = data(3), builder.gep(data(0), [args[2]]), ir.Constant(lanes_type, [-1] * n_rows)
        first = builder.add(args[4], _PLACE(1))
        end = builder.add(first, builder.mul(builder.zext(word(args[4]), _PLACE), _PLACE(SPLIT)))
        before, test, strike, done = builder.block, *(builder.append_basic_block() for _ in range(3))
        builder.branch(test)
        builder.position_at_end(test)
        at, leaves = builder.phi(_PLACE), builder.phi(lanes_type)
        builder.cbranch(builder.icmp_unsigned("<", at, end), strike, done)
        builder.position_at_end(strike)
        column, low, width, keep = (word(builder.add(at, _PLACE(k))) for k in range(SPLIT))
        place = builder.gep(first_keys, [builder.mul(builder.zext(column, _PLACE), args[1])])
        key = builder.load(builder.bitcast(place, keys_type.as_pointer()), align=keys.dtype.bitwidth // 8)
        if are_values:
            is_left = builder.icmp_signed(">", in_all(low, keys_type), key)
        else:
            is_left = builder.icmp_unsigned(">=", builder.sub(key, in_all(low, keys_type)), in_all(width, keys_type))
        kept = builder.and_(leaves, builder.select(is_left, all_leaves, in_all(keep, lanes_type)))
        at.add_incoming(first, before)
        at.add_incoming(builder.add(at, _PLACE(SPLIT)), strike)
        leaves.add_incoming(all_leaves, before)
        leaves.add_incoming(kept, strike)
        builder.branch(test)
        builder.position_at_end(done)
        builder.store(leaves, builder.bitcast(data(5), lanes_type.as_pointer()), align=4)
        return end

    return types.uint64(keys, types.uint64, types.uint64, masks, types.uint64, left), codegen


@intrinsic
def _first_leaf(typing_context, leaves):
    """The lowest bit of a uint32 that is set; any one where none is."""

    def codegen(context, builder, signature, args):
        return builder.zext(builder.and_(builder.cttz(args[0], _BIT(0)), _WORD(LEAVES - 1)), _PLACE)

    return types.uint64(types.uint32), codegen


@intrinsic
def _block(typing_context, keys):
    """How many rows are looked at, uint64."""
    n_rows = ROW_BLOCK if keys.ndim == 1 else RUN
    return types.uint64(keys), lambda context, builder, signature, args: _PLACE(n_rows)


@inlined_scalar
def find_leaves(keys, stride, row, masks, begin, left, below):
    """below[i] = what lies at the leaf of row + i, of a tree that begins in masks at ``begin``.

    keys : uint32 (at least a column of ROW_BLOCK rows,), where a split's column is the place of its keys, and stride 1; or codes
    (n_features, stride rows), of which RUN follow each other. left : uint32 (ROW_BLOCK or RUN,), SCRATCH. below : as it, OUT.
    """
    word = uint64(begin) + uint64(1)
    for _ in range(masks[begin]):
        at = _strike_out(keys, uint64(stride), uint64(row), masks, word, left)
        for i in range(_block(keys)):
            below[i] = masks[at + _first_leaf(left[i])] if left[i] else below[i]
        word = at + uint64(LEAVES)
