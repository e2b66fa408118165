"""The first levels of a tree, for 128 rows of codes at once: every row looks at all splits there, from the last to the first.

    splits of a tree as a heap: the children of split k are 2k and 2k + 1
    goes right  =  code − low < width        modulo 2^(bits of a code), as in kernels/predict.py
    found[k]    =  found[2k], or found[2k + 1] + half as many as lie below;  of the last splits 0 or 1

What a row finds at the root is the number of what lies below these levels, from left to right. The codes of 128 rows that
follow each other lie side by side in each column, so that a split costs comparisons and choices of whole registers (of the width
that a processor has; LLVM makes them), where a step of one row down a tree takes nine instructions and waits for what it loads.

450,000 rows of 28 columns, 20 trees, one thread of an Intel Xeon, ns a row and tree, step by step -> so: depth 3 4.6 -> 1.1,
6 7.3 -> 2.4 (codes of two bytes 7.2 -> 3.2), 10 19 -> 9. AVX2 alone takes as long, but for codes of two bytes a third longer.
"""

import numpy as np
from llvmlite import ir
from numba import int64, types, uint32, uint64
from numba.extending import intrinsic

from gpuboost.kernels.allocation import empty, zeros
from gpuboost.kernels.jit import inlined_scalar, parallel_kernel, scalar
from gpuboost.kernels.top_levels import list_places

__all__ = ["MOST_LEVELS", "RUN", "choose_codes", "lay_out_code_tops", "n_code_levels"]

RUN = 128  # rows; 64 take 1.7 times as long, 256 1.3
MOST_LEVELS = 6  # chosen among

_PLACE, _WORD = ir.IntType(64), ir.IntType(32)


@scalar
def n_code_levels(n_levels):
    """How many levels of a tree of so many are chosen among."""
    return min(max(int64(n_levels), int64(1)), int64(MOST_LEVELS))


@parallel_kernel.part
def lay_out_code_tops(nodes, tree_begin, n_levels, lows, widths):
    """The first levels of all trees. nodes : uint32 (4 · n_nodes,), IN, of codes as kernels/predict.lay_out.

    lows, widths : as codes (n_trees, 2^MOST_LEVELS), OUT, zeroed by the caller. Returns features and places, uint32, alike:
    of a split its column; and what lies below the levels, 4 · number of the node.
    """
    features, places = zeros(lows.shape, np.uint32), zeros(lows.shape, np.uint32)
    heap = empty(2 << MOST_LEVELS, np.int64)
    for t in range(tree_begin.size):
        n_splits = int64(1) << n_code_levels(n_levels[t])
        list_places(nodes, tree_begin[t], n_splits, heap)
        for k in range(1, n_splits):
            at = heap[k]
            if int64(nodes[at + 3]) != at:  # not a leaf
                features[t, k], lows[t, k], widths[t, k] = nodes[at], nodes[at + 1], nodes[at + 2]
        for k in range(n_splits):
            places[t, k] = uint32(heap[n_splits + k])
    return features, places


@intrinsic
def _choose(typing_context, columns, feature, row, lows, widths, k, found, left, n_right):
    """found[k, :] of the rows from ``row`` on: found[left, :], or where they go right found[left + 1, :] + n_right. Of left = 0
    both are found[0, :]."""
    lanes = ir.VectorType(ir.IntType(columns.dtype.bitwidth), RUN)

    def codegen(context, builder, signature, args):
        def data(at):
            return context.make_array(signature.args[at])(context, builder, args[at]).data

        def place(at, begin):
            return builder.bitcast(builder.gep(data(at), [begin]), lanes.as_pointer())

        def in_all(word):
            one = builder.insert_element(ir.Constant(lanes, ir.Undefined), word, _WORD(0))
            zeros = ir.Constant(ir.VectorType(_WORD, RUN), [0] * RUN)
            return builder.shuffle_vector(one, ir.Constant(lanes, ir.Undefined), zeros)

        def below(child):
            return builder.load(place(6, builder.mul(child, _PLACE(RUN))), align=1)

        n_rows = builder.extract_value(context.make_array(signature.args[0])(context, builder, args[0]).shape, 1)
        code = builder.load(place(0, builder.add(builder.mul(args[1], n_rows), args[2])), align=1)
        low, width = (in_all(builder.load(builder.gep(data(at), [args[5]]))) for at in (3, 4))
        is_right = builder.icmp_unsigned("<", builder.sub(code, low), width)
        is_inner = builder.zext(builder.icmp_unsigned("!=", args[7], _PLACE(0)), _PLACE)
        right = builder.add(below(builder.add(args[7], is_inner)), in_all(builder.trunc(args[8], lanes.element)))
        chosen = builder.select(is_right, right, below(args[7]))
        builder.store(chosen, place(6, builder.mul(args[5], _PLACE(RUN))), align=1)
        return context.get_dummy_value()

    return types.none(columns, uint64, uint64, lows, widths, uint64, found, uint64, uint64), codegen


@inlined_scalar
def choose_codes(columns, row, features, lows, widths, n_levels, found):
    """found[1, i] : the number of what row + i finds below so many levels of a tree, i < RUN.

    columns : uint8, uint16 or uint32 (n_features, n_rows), contiguous, IN. features, lows, widths : of the tree, as
    lay_out_code_tops has them, IN. found : as columns (2^MOST_LEVELS, RUN), INOUT; found[0] is 0 and stays so.
    """
    n_right, k, two = uint64(1), uint64((1 << n_levels) - 1), uint64(0)  # of the last splits the children are places themselves
    for level in range(n_levels - 1, -1, -1):
        while k >= uint64(1) << uint64(level):
            _choose(columns, uint64(features[k]), uint64(row), lows, widths, k, found, two * k, n_right)
            k -= uint64(1)
        n_right, two = n_right << uint64(1), uint64(2)
