"""Which of 64 candidates may reach the bar, from packed sums, in float32: candidates.score_reaches, eight or sixteen at once.

    D·G_L² + d·(G² − 2·G·G_L − bar·D + bar·d) ≥ 0        d = H_L + λ,   D = H + 2·λ

Packed sums of 32 bits become float32 in one instruction for all, where float64 takes three for each four and as many operations
again. Each of the five terms is found to 11 · 2^−24 of its size, and the two that the others are no larger than together, D·G_L²
and d·(G² + bar·D), are made larger by 2^−18 of theirs, so that nothing that reaches the bar is missed; and what is not a number,
beyond float32, counts as reaching it. (Rounding keeps the order of two sums of hessians, or makes them equal.)

One thread of an Intel Xeon (2026-11-25), with candidates that are few tried one by one: 7,000 × 28 of depth 6 1.00 -> 0.85 ms a
round, 7,000 × 7 0.46 -> 0.44. Sums and tests by AVX-512 (2026-11-26): 0.60 -> 0.39 ns a bin.
"""

from llvmlite import ir
from numba import float32, float64, int64, types, uint64
from numba.core import cgutils
from numba.extending import intrinsic

from gpuboost.kernels.jit import inlined_scalar
from gpuboost.kernels.processor import is_level_4

__all__ = ["CHUNK", "count_ones", "lowest_one", "reaching_packed", "sum_up_packed"]

CHUNK = 64  # candidates of a feature that are tested together
SLACK = 2.0**-18  # of the terms; 22 · 2^−24 would do

_I32, _I64, _F32, _BIT = ir.IntType(32), ir.IntType(64), ir.FloatType(), ir.IntType(1)


def _lanes(context):
    """Candidates of one instruction."""
    return 16 if is_level_4(context.codegen()) else 8


def _shuffled(builder, vector, places, other=None):
    other = ir.Constant(vector.type, ir.Undefined) if other is None else other
    return builder.shuffle_vector(vector, other, ir.Constant(ir.VectorType(_I32, len(places)), places))


def _in_all(builder, value, n):
    """A vector of n equal values."""
    one = builder.insert_element(ir.Constant(ir.VectorType(value.type, n), ir.Undefined), value, _I32(0))
    return _shuffled(builder, one, [0] * n)


def _words(context, builder, array_type, array, begin):
    """place(at, n): where n words of a contiguous int64 array lie, from begin + at on."""
    data = builder.gep(context.make_array(array_type)(context, builder, array).data, [begin])
    return lambda at, n: builder.bitcast(builder.gep(data, [_I64(at)]), ir.VectorType(_I64, n).as_pointer())


def _left_children(builder, place, more, at, n):
    """The packed sums of n candidates, with those of the missing rows, as words; and their hessians, as float32."""
    words = builder.bitcast(builder.add(builder.load(place(at, n), align=8), more), ir.VectorType(_I32, 2 * n))
    return words, builder.uitofp(_shuffled(builder, words, list(range(0, 2 * n, 2))), ir.VectorType(_F32, n))


def _mask(builder, n_lanes, test):
    """uint64, a bit for each of CHUNK candidates. test : (first one) -> a vector of bits for n_lanes of them."""
    found = _I64(0)
    for at in range(0, CHUNK, n_lanes):
        of_lanes = builder.zext(builder.bitcast(test(at), ir.IntType(n_lanes)), _I64)
        found = builder.or_(found, builder.shl(of_lanes, _I64(at)))
    return found


@intrinsic
def _sum_up_chunk(typing_context, hist, begin, sums, at, before):
    n = 8  # words of a vector, whose sums are found in three additions of it to itself, moved by 1, 2 and 4 places

    def codegen(context, builder, signature, args):
        source = _words(context, builder, signature.args[0], args[0], args[1])
        target = _words(context, builder, signature.args[2], args[2], args[3])
        none, before = ir.Constant(ir.VectorType(_I64, n), [0] * n), _in_all(builder, args[4], n)
        for place in range(0, CHUNK, n):
            own = builder.load(source(place, n), align=8)
            for step in (1, 2, 4):
                moved = _shuffled(builder, own, [n if lane < step else lane - step for lane in range(n)], none)
                own = builder.add(own, moved)
            builder.store(builder.add(own, before), target(place, n), align=8)
            before = builder.add(before, _shuffled(builder, own, [n - 1] * n))  # waits for what lies before it only here
        return builder.extract_element(before, _I32(0))

    return types.int64(hist, types.uint64, sums, types.uint64, types.int64), codegen


@inlined_scalar
def sum_up_packed(hist, column, n, sums):
    """Write the packed sums up to each of a feature's n bins, and what follows them in whole CHUNKs, to sums.

    hist : int64 (k, ≥ whole CHUNKs), IN, of a node. sums : int64, OUT. One thread of an Intel Xeon, ns a bin: 0.32 one after
    another -> 0.23; with two registers of AVX2 0.37 -> 0.32.
    """
    before = int64(0)
    for at in range(0, n, CHUNK):
        before = _sum_up_chunk(hist, uint64(column) * uint64(hist.shape[1]) + uint64(at), sums, uint64(at), before)


@intrinsic
def _reaching(typing_context, sums, begin, missing, reg_lambda, total, constant, twice_grad, bar):
    def codegen(context, builder, signature, args):
        n = _lanes(context)
        floats = ir.VectorType(_F32, n)

        def multiply_and_add(a, b, c):
            return builder.call(multiply_add, [a, b, c])

        def reaches(at):
            words, hess = _left_children(builder, place, more, at, n)
            grad = builder.sitofp(_shuffled(builder, words, list(range(1, 2 * n, 2))), floats)
            d = builder.fadd(hess, reg_lambda)
            rest = multiply_and_add(bar, d, multiply_and_add(twice_grad, grad, constant))
            score = multiply_and_add(d, rest, builder.fmul(builder.fmul(total, grad), grad))
            return builder.fcmp_unordered(">=", score, ir.Constant(floats, [0.0] * n))

        function = ir.FunctionType(floats, [floats] * 3)  # rounded once or twice, as the processor likes
        multiply_add = cgutils.get_or_insert_function(builder.module, function, f"llvm.fmuladd.v{n}f32")
        place = _words(context, builder, signature.args[0], args[0], args[1])
        more = _in_all(builder, args[2], n)
        reg_lambda, total, constant, twice_grad, bar = (_in_all(builder, value, n) for value in args[3:])
        return _mask(builder, n, reaches)

    return types.uint64(sums, types.uint64, types.int64, *[types.float32] * 5), codegen


@intrinsic
def _worth_trying(typing_context, hist, first, sums, begin, missing, least, most):
    def codegen(context, builder, signature, args):
        n = _lanes(context)
        none = ir.Constant(ir.VectorType(_I64, n), [0] * n)
        bins = _words(context, builder, signature.args[0], args[0], args[1])
        place = _words(context, builder, signature.args[2], args[2], args[3])
        more, least, most = (_in_all(builder, value, n) for value in args[4:])

        def test(at):
            _, hess = _left_children(builder, place, more, at, n)
            is_heavy = builder.and_(builder.fcmp_ordered(">=", hess, least), builder.fcmp_ordered("<=", hess, most))
            return builder.and_(is_heavy, builder.icmp_signed("!=", builder.load(bins(at, n), align=8), none))

        return _mask(builder, n, test)

    return types.uint64(hist, types.uint64, sums, types.uint64, types.int64, types.float32, types.float32), codegen


@inlined_scalar
def reaching_packed(hist, column, sums, begin, missing, total_grad, total_hess, reg_lambda, smallest, bar):
    """uint64, a bit for each of CHUNK candidates: whether its score may reach the bar ≥ 0, certainly where it does, and it is
    neither too light nor of an empty bin, whose sums are those of the bin before it.

    hist, sums : as sum_up_packed; the candidates are those from begin on. missing : packed sums to be added.
    The others in units of fixed point, as candidates.score_reaches has them. smallest : sum of hessians of a child.
    """
    total = total_hess + reg_lambda + reg_lambda
    constant = total_grad * total_grad * (1.0 + SLACK) - bar * total * (1.0 - SLACK)
    reaching = _reaching(
        sums, uint64(begin), int64(missing), float32(reg_lambda), float32(total * (1.0 + SLACK)), float32(constant),
        float32(float64(-2.0) * total_grad), float32(bar),
    )  # fmt: skip
    if reaching != 0:  # seldom
        reaching &= _worth_trying(
            hist, uint64(column) * uint64(hist.shape[1]) + uint64(begin), sums, uint64(begin), int64(missing), float32(smallest),
            float32(total_hess - smallest),
        )  # fmt: skip
    return reaching


@intrinsic
def count_ones(typing_context, word):
    """How many bits of a uint64 are set, int64."""
    return types.int64(types.uint64), lambda context, builder, signature, args: builder.ctpop(args[0])


@intrinsic
def lowest_one(typing_context, word):
    """The number of the lowest bit of a uint64 that is set, int64; of 0 it is undefined."""
    return types.int64(types.uint64), lambda context, builder, signature, args: builder.cttz(args[0], _BIT(1))
