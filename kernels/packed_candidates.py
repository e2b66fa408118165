"""Which of 64 candidates may reach the bar, from packed sums, in float32: candidates.score_reaches, eight at once.

    D·G_L² + d·(G² − 2·G·G_L − bar·D + bar·d) ≥ 0        d = H_L + λ,   D = H + 2·λ

Packed sums of 32 bits become float32 in one instruction for eight, where float64 takes three for each four and as many operations
again. Each of the five terms is found to 11 · 2^−24 of its size, and the two that the others are no larger than together, D·G_L²
and d·(G² + bar·D), are made larger by 2^−18 of theirs, so that nothing that reaches the bar is missed; and what is not a number,
beyond float32, counts as reaching it. (Rounding keeps the order of two sums of hessians, or makes them equal.)

One thread of an Intel Xeon (2026-11-25), with candidates that are few tried one by one: 7,000 × 28 of depth 6 1.00 -> 0.85 ms a
round, 7,000 × 7 0.46 -> 0.44.
"""

from llvmlite import ir
from numba import float32, float64, int64, types, uint64
from numba.core import cgutils
from numba.extending import intrinsic

from gpuboost.kernels.jit import inlined_scalar

__all__ = ["CHUNK", "count_ones", "lowest_one", "reaching_packed"]

CHUNK = 64  # candidates of a feature that are tested together
LANES = 8
SLACK = 2.0**-18  # of the terms; 22 · 2^−24 would do

_I32, _I64, _F32, _BIT = ir.IntType(32), ir.IntType(64), ir.FloatType(), ir.IntType(1)
_SUMS, _WORDS, _FLOATS = ir.VectorType(_I64, LANES), ir.VectorType(_I32, 2 * LANES), ir.VectorType(_F32, LANES)


@intrinsic
def _reaching(typing_context, sums, begin, missing, reg_lambda, least, most, total, constant, twice_grad, bar):
    def codegen(context, builder, signature, args):
        def in_all(value, kind):
            one = builder.insert_element(ir.Constant(kind, ir.Undefined), value, _I32(0))
            places = ir.Constant(ir.VectorType(_I32, kind.count), [0] * kind.count)
            return builder.shuffle_vector(one, ir.Constant(kind, ir.Undefined), places)

        def every_second(words, first):
            places = ir.Constant(ir.VectorType(_I32, LANES), list(range(first, 2 * LANES, 2)))
            return builder.shuffle_vector(words, ir.Constant(_WORDS, ir.Undefined), places)

        def multiply_and_add(a, b, c):
            return builder.call(multiply_add, [a, b, c])

        function = ir.FunctionType(_FLOATS, [_FLOATS] * 3)  # rounded once or twice, as the processor likes
        multiply_add = cgutils.get_or_insert_function(builder.module, function, f"llvm.fmuladd.v{LANES}f32")
        data = builder.gep(context.make_array(signature.args[0])(context, builder, args[0]).data, [args[1]])
        more = in_all(args[2], _SUMS)
        reg_lambda, least, most, total, constant, twice_grad, bar = (in_all(value, _FLOATS) for value in args[3:])
        found = _I64(0)
        for at in range(0, CHUNK, LANES):
            place = builder.bitcast(builder.gep(data, [_I64(at)]), _SUMS.as_pointer())
            words = builder.bitcast(builder.add(builder.load(place, align=8), more), _WORDS)
            hess, grad = builder.uitofp(every_second(words, 0), _FLOATS), builder.sitofp(every_second(words, 1), _FLOATS)
            d = builder.fadd(hess, reg_lambda)
            rest = multiply_and_add(bar, d, multiply_and_add(twice_grad, grad, constant))
            score = multiply_and_add(d, rest, builder.fmul(builder.fmul(total, grad), grad))
            reaches = builder.fcmp_unordered(">=", score, ir.Constant(_FLOATS, [0.0] * LANES))
            is_heavy = builder.and_(builder.fcmp_ordered(">=", hess, least), builder.fcmp_ordered("<=", hess, most))
            of_lanes = builder.zext(builder.bitcast(builder.and_(reaches, is_heavy), ir.IntType(LANES)), _I64)
            found = builder.or_(found, builder.shl(of_lanes, _I64(at)))
        return found

    return types.uint64(sums, types.uint64, types.int64, *[types.float32] * 7), codegen


@inlined_scalar
def reaching_packed(sums, begin, missing, total_grad, total_hess, reg_lambda, smallest, bar):
    """uint64, a bit for each of CHUNK candidates: whether its score may reach the bar ≥ 0, certainly where it does.

    sums : int64, IN. Of the left children, packed (histogram.packed_shape), from begin on. missing : packed sums to be added.
    The others in units of fixed point, as candidates.score_reaches has them. smallest : sum of hessians of a child.
    """
    total = total_hess + reg_lambda + reg_lambda
    constant = total_grad * total_grad * (1.0 + SLACK) - bar * total * (1.0 - SLACK)
    return _reaching(
        sums, uint64(begin), int64(missing), float32(reg_lambda), float32(smallest), float32(total_hess - smallest),
        float32(total * (1.0 + SLACK)), float32(constant), float32(float64(-2.0) * total_grad), float32(bar),
    )  # fmt: skip


@intrinsic
def count_ones(typing_context, word):
    """How many bits of a uint64 are set, int64."""
    return types.int64(types.uint64), lambda context, builder, signature, args: builder.ctpop(args[0])


@intrinsic
def lowest_one(typing_context, word):
    """The number of the lowest bit of a uint64 that is set, int64; of 0 it is undefined."""
    return types.int64(types.uint64), lambda context, builder, signature, args: builder.cttz(args[0], _BIT(1))
