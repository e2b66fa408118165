"""Rows parted by their marks, sixteen at once: what AVX-512 has instructions for, and numba no word.

    marks     0 1 1 0  …          left    those marked, side by side
    rows      a b c d  …          right   the others

One register is compressed to either side, and written as far as it is filled: what lies behind belongs to others. Processors
without these instructions do all of it by partition.move_rows_part, of which this is the first part.
"""

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from gpuboost.kernels.processor import is_level_4

__all__ = ["part_sixteens"]

LANES = 16

_I1, _I8, _I16, _I32, _I64 = map(ir.IntType, (1, 8, 16, 32, 64))
_ROWS, _MARKS, _MASK = (ir.VectorType(kind, LANES) for kind in (_I32, _I8, _I1))


@intrinsic
def part_sixteens(typing_context, rows, marks, moved, to_left, to_right):
    """part_sixteens(rows, marks, moved, to_left, to_right) -> (uint64, uint64): write the rows whose marks are 1 to moved from
    to_left on, the others from to_right on, as far as there are whole sixteens of them. Returns how many rows that were, 0 where
    the processor cannot, and how many of them went left.

    rows : int32 (n,), contiguous as all, IN. marks : uint8 (n,), IN. moved : int32 (n_places,), OUT. to_left, to_right : uint64.
    """

    def codegen(context, builder, signature, args):
        def place(k, at, kind):
            data = context.make_array(signature.args[k])(context, builder, args[k]).data
            return builder.bitcast(builder.gep(data, [at]), kind.as_pointer())

        def write(own, mask, at):
            n = builder.zext(builder.call(ones, [builder.bitcast(mask, _I16)]), _I64)
            filled = builder.trunc(builder.sub(builder.shl(_I64(1), n), _I64(1)), _I16)
            packed = builder.call(compress, [own, ir.Constant(_ROWS, [0] * LANES), mask])
            builder.call(store, [packed, place(2, at, _ROWS), _I32(4), builder.bitcast(filled, _MASK)])
            return n

        n_done, n_left = (cgutils.alloca_once_value(builder, _I64(0)) for _ in range(2))
        if is_level_4(context.codegen()):
            declare = builder.module.declare_intrinsic
            ones = declare("llvm.ctpop.i16", (), ir.FunctionType(_I16, [_I16]))
            compress = declare("llvm.x86.avx512.mask.compress.v16i32", (), ir.FunctionType(_ROWS, [_ROWS, _ROWS, _MASK]))
            store_type = ir.FunctionType(ir.VoidType(), [_ROWS, _ROWS.as_pointer(), _I32, _MASK])
            store = declare("llvm.masked.store.v16i32.p0", (), store_type)
            n_rows = builder.extract_value(context.make_array(signature.args[0])(context, builder, args[0]).shape, 0)
            whole = builder.and_(n_rows, _I64(-LANES))
            with cgutils.for_range_slice(builder, _I64(0), whole, _I64(LANES), inc=True) as (at, _):
                own = builder.load(place(0, at, _ROWS), align=4)
                mask = builder.icmp_unsigned("!=", builder.load(place(1, at, _MARKS), align=1), ir.Constant(_MARKS, [0] * LANES))
                before = builder.load(n_left)
                n = write(own, mask, builder.add(args[3], before))
                write(own, builder.not_(mask), builder.add(args[4], builder.sub(at, before)))
                builder.store(builder.add(before, n), n_left)
            builder.store(whole, n_done)
        return context.make_tuple(builder, signature.return_type, [builder.load(n_done), builder.load(n_left)])

    return types.UniTuple(types.uint64, 2)(rows, marks, moved, types.uint64, types.uint64), codegen
