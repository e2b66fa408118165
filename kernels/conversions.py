"""Between integers and float64, many at once also where a processor converts only single ones: x86-64 before AVX-512.

A float64 whose upper bits say 2^52 holds an integer below 2^32 in its lower ones, so that an integer is put there, and 2^52
taken off again. LLVM makes vectors of that, and calls for one conversion after another otherwise: 0.7 -> 0.3 ns a value on an
AMD EPYC (Zen 3). The results are those of float64(), to the bit.
"""

from llvmlite import ir
from numba import float64, int64, types, uint64
from numba.extending import intrinsic

from gpuboost.kernels.jit import inlined_scalar
from gpuboost.kernels.processor import converts_vectors
from gpuboost.kernels.scalar import bits_double, double_bits

__all__ = ["as_double", "halves_as_doubles", "whole_as_integer"]

_I64, _F64 = ir.IntType(64), ir.DoubleType()
_LOW, _HIGH = 0x4330000000000000, 0x4530000000000000  # the bits of 2^52 and of 2^84, whose last one is worth 2^32
_WHOLE = 0x4338000000000000  # of 1.5 · 2^52
_SIGN = 0x80000000  # of the upper half: turned over, it counts from −2^31 on
_TWO_52, _OFFSET_32, _OFFSET_64 = 2.0**52, 2.0**52 + 2.0**31, 2.0**84 + 2.0**63 + 2.0**52


@intrinsic
def as_double(typing_context, x):
    """float64(x) of an int64."""

    def codegen(context, builder, signature, args):
        if converts_vectors(context.codegen()):
            return builder.sitofp(args[0], _F64)
        low = builder.or_(builder.and_(args[0], _I64(0xFFFFFFFF)), _I64(_LOW))
        high = builder.xor(builder.lshr(args[0], _I64(32)), _I64(_HIGH | _SIGN))
        upper = builder.fsub(builder.bitcast(high, _F64), _F64(_OFFSET_64))  # exact; the sum is rounded once, as by float64()
        return builder.fadd(upper, builder.bitcast(low, _F64))

    return types.float64(types.int64), codegen


@inlined_scalar
def halves_as_doubles(packed):
    """(float64 of the signed upper 32 bits, float64 of the unsigned lower ones) of an int64."""
    high = (uint64(packed) >> uint64(32)) ^ uint64(_LOW | _SIGN)
    low = (uint64(packed) & uint64(0xFFFFFFFF)) | uint64(_LOW)
    return bits_double(high) - float64(_OFFSET_32), bits_double(low) - float64(_TWO_52)


@inlined_scalar
def whole_as_integer(x):
    """int64(x) of a whole float64 that is less than 2^51 in size: the last bits of x + 1.5 · 2^52."""
    return int64(double_bits(x + float64(1.5 * 2.0**52)) - uint64(_WHOLE))
