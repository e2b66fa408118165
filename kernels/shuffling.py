"""Bytes of a record picked out sixteen at once: what x86-64 has an instruction for since SSSE3, and numba no word.

    masks     of each sixteen bytes to be written, one for each sixteen of the record that hold some of them:
              byte i is which of those comes to place i, 128 for one that comes from elsewhere, or from nowhere, which is 0

So a record of 32 bytes of which 14 are drawn takes two loads, two shuffles and a store, where a byte at a time takes 14 times two
loads and a store. Other processors do all of it a byte at a time (kernels/compaction.py).
"""

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from gpuboost.kernels.allocation import zeros
from gpuboost.kernels.jit import parallel_kernel
from gpuboost.kernels.processor import shuffles_bytes

__all__ = ["WIDTH", "can_shuffle", "list_masks", "shuffle_record"]

WIDTH, NONE = 16, 128

_I8, _I32, _I64 = map(ir.IntType, (8, 32, 64))
_BYTES, _HALF = ir.VectorType(_I8, WIDTH), ir.VectorType(_I8, WIDTH // 2)


@parallel_kernel.part
def list_masks(features, n_bytes):
    """(masks, bounds, first) of records of codes of n_bytes, of which features, ascending, are drawn: uint8 (n_masks, 16); int64
    (n_written + 1,), where the masks of each sixteen bytes that are written begin; int64 (n_written,), the first sixteen of the
    record that it takes some of, and its other masks are of those that follow."""
    k = features.size * n_bytes
    n_written = (k + WIDTH - 1) // WIDTH
    bounds, first = zeros(n_written + 1, np.int64), zeros(n_written, np.int64)
    for j in range(n_written):
        last = min((j + 1) * WIDTH, k) - 1
        first[j] = (features[j * WIDTH // n_bytes] * n_bytes) // WIDTH
        bounds[j + 1] = bounds[j] + (features[last // n_bytes] * n_bytes) // WIDTH - first[j] + 1
    masks = np.full((bounds[n_written], WIDTH), NONE, np.uint8)
    for i in range(k):
        j, byte = i // WIDTH, features[i // n_bytes] * n_bytes + i % n_bytes
        masks[bounds[j] + byte // WIDTH - first[j], i % WIDTH] = byte % WIDTH
    return masks, bounds, first


@intrinsic
def can_shuffle(typing_context):
    """Whether the processor can."""

    def codegen(context, builder, signature, args):
        return ir.IntType(1)(shuffles_bytes(context.codegen()))

    return types.boolean(), codegen


@intrinsic
def shuffle_record(typing_context, records, source, first_mask, masks, n_masks, selected, target, is_half):
    """Write 16 bytes of selected, or where is_half the first 8 of them, from byte ``target`` on: n_masks of list_masks' masks,
    applied to as many sixteens of records from byte ``source`` on. Nothing, unless can_shuffle(). Arrays : uint8, contiguous."""

    def codegen(context, builder, signature, args):
        def place(at, begin, kind):
            data = context.make_array(signature.args[at])(context, builder, args[at]).data
            return builder.bitcast(builder.gep(data, [begin]), kind.as_pointer())

        if shuffles_bytes(context.codegen()):
            kind = ir.FunctionType(_BYTES, [_BYTES, _BYTES])
            shuffle = builder.module.declare_intrinsic("llvm.x86.ssse3.pshuf.b.128", (), kind)
            found = cgutils.alloca_once_value(builder, ir.Constant(_BYTES, [0] * WIDTH))
            with cgutils.for_range(builder, args[4]) as loop:
                step = builder.mul(loop.index, _I64(WIDTH))
                mask = builder.add(builder.mul(args[2], _I64(WIDTH)), step)
                own = builder.load(place(0, builder.add(args[1], step), _BYTES), align=1)
                picked = builder.call(shuffle, [own, builder.load(place(3, mask, _BYTES), align=1)])
                builder.store(builder.or_(builder.load(found), picked), found)
            both = builder.load(found)
            with builder.if_else(args[7]) as (half, whole):
                with half:
                    low = ir.Constant(ir.VectorType(_I32, WIDTH // 2), list(range(WIDTH // 2)))
                    builder.store(builder.shuffle_vector(both, both, low), place(5, args[6], _HALF), align=1)
                with whole:
                    builder.store(both, place(5, args[6], _BYTES), align=1)
        return context.get_dummy_value()

    index = types.int64
    return types.none(records, index, index, masks, index, selected, index, types.boolean), codegen
