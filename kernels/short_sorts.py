"""A stable sort, of few keys by the rank of each: how many come before it.

    rank[i] = #{j : keys[j] < keys[i], or keys[j] = keys[i] and j < i}

One key is compared with all at once, as bits of a word: no branch, and no memory to ask for. One thread of an AMD EPYC (Zen 4),
ns, by mergesort as numba has it -> so: 4 keys 65 -> 44, 12 94 -> 67, 20 142 -> 94, 32 270 -> 138. (64 at once: as long.)
"""

import numpy as np
from llvmlite import ir
from numba import types, uint64
from numba.extending import intrinsic

from gpuboost.kernels.jit import parallel_kernel

__all__ = ["ROOM", "sort_order"]

MOST_KEYS = 32  # that are sorted so
ROOM = 2 * MOST_KEYS  # for what is sorted: it is put in order in the second half

_LANE, _PLACE = ir.IntType(32), ir.IntType(64)
_LANES, _BITS = ir.VectorType(ir.DoubleType(), MOST_KEYS), ir.IntType(MOST_KEYS)


@intrinsic
def _rank(typing_context, keys, i):
    """The rank of keys[i] among MOST_KEYS keys, uint64."""

    def codegen(context, builder, signature, args):
        first = context.make_array(signature.args[0])(context, builder, args[0]).data
        undefined = ir.Constant(_LANES, ir.Undefined)
        every = builder.load(builder.bitcast(first, _LANES.as_pointer()), align=8)
        own = builder.insert_element(undefined, builder.load(builder.gep(first, [args[1]])), _LANE(0))
        own = builder.shuffle_vector(own, undefined, ir.Constant(ir.VectorType(_LANE, MOST_KEYS), [0] * MOST_KEYS))
        smaller, equal = (builder.bitcast(builder.fcmp_ordered(by, every, own), _BITS) for by in ("<", "=="))
        earlier = builder.sub(builder.shl(_BITS(1), builder.trunc(args[1], _BITS)), _BITS(1))
        return builder.zext(builder.ctpop(builder.or_(smaller, builder.and_(equal, earlier))), _PLACE)

    return types.uint64(keys, types.uint64), codegen


@parallel_kernel.part
def sort_order(n, order, keys):
    """Bring order[:n] into the order of keys[:n], the earlier of equals first.

    order : int32, INOUT, keys : float64, no NaN, both of max(n, ROOM) or more. What lies behind n of either is undefined then.
    """
    if n > MOST_KEYS:
        order[:n] = order[:n][np.argsort(keys[:n], kind="mergesort")]
        return
    for i in range(n, MOST_KEYS):
        keys[i] = np.inf
    for i in range(n):
        order[uint64(MOST_KEYS) + _rank(keys, uint64(i))] = order[i]
    for i in range(n):
        order[i] = order[MOST_KEYS + i]
