"""The bins of sixteen values at once, by thresholds that lie in sixteen registers: AVX-512 picks sixteen words of one or two.

    thresholds as a heap: the children of split k are 2k and 2k + 1; eight levels, 255 thresholds
    k = 1;  eight times  k = 2k + (heap[k] ≤ key);  code = k − 256

Nothing is waited for that lies in memory: a level takes one permutation of a register, from the sixth on of two, and of eight at
the last one (four pairs, and three choices among what they give). Four sixteens go side by side, as each waits for its last step.
Other processors ask a table of cells (kernels/binning.py).
"""

from llvmlite import ir
from numba import int64, types, uint32
from numba.core import cgutils
from numba.extending import intrinsic

from gpuboost.kernels.jit import parallel_kernel
from gpuboost.kernels.processor import is_level_4

__all__ = ["AT_ONCE", "N_KEYS", "can_search", "fill_heap", "search_heap"]

LANES, N_LEVELS = 16, 8
AT_ONCE = 4 * LANES  # one sixteen after another takes 0.90 ns a value, two side by side 0.83, four 0.65 (AMD EPYC, Zen 4)
N_KEYS = 1 << N_LEVELS  # words of a heap
NO_KEY = 0xFFFFFFFF  # above all keys of values

_I8, _I32, _I64 = map(ir.IntType, (8, 32, 64))
_WORDS, _FLOATS, _CODES = (ir.VectorType(kind, LANES) for kind in (_I32, ir.FloatType(), _I8))


@intrinsic
def can_search(typing_context, codes):
    """Whether the processor can, and the codes are bytes."""

    def codegen(context, builder, signature, args):
        return ir.IntType(1)(signature.args[0].dtype == types.uint8 and is_level_4(context.codegen()))

    return types.boolean(codes), codegen


@parallel_kernel.part
def fill_heap(keys, heap):
    """keys : uint32 (n < N_KEYS,), ascending, IN. heap : uint32 (N_KEYS,), OUT.

    heap[0], where no split is, is the 1 that a step adds. (LLVM, if it knew it, would take three instructions for it, not one.)
    """
    heap[0] = 1
    for level in range(N_LEVELS):
        first, step = int64(1) << level, int64(N_KEYS >> level)
        for j in range(first):
            i = j * step + step // 2 - 1
            heap[first + j] = keys[i] if i < keys.size else uint32(NO_KEY)


@intrinsic
def search_heap(typing_context, values, n, missing, heap, n_bins, codes):
    """search_heap(values, n, missing, heap, n_bins, codes): the codes of the first n values, and of others up to whole AT_ONCE.

    values : float32, IN. missing : float32. One equal to it is missing, as NaN is: its code is n_bins. heap : as fill_heap.
    n_bins : uint8. codes : uint8, OUT. Arrays are contiguous. Nothing, unless can_search(codes).
    """

    def codegen(context, builder, signature, args):
        if signature.args[5].dtype != types.uint8 or not is_level_4(context.codegen()):
            return context.get_dummy_value()

        def place(k, at, kind):
            data = context.make_array(signature.args[k])(context, builder, args[k]).data
            return builder.bitcast(builder.gep(data, [at]), kind.as_pointer())

        def in_all(value, kind):
            undefined = ir.Constant(kind, ir.Undefined)
            one = builder.insert_element(undefined, value, _I32(0))
            return builder.shuffle_vector(one, undefined, ir.Constant(_WORDS, [0] * LANES))

        def constant(value):
            return ir.Constant(_WORDS, [value] * LANES)

        def has_bit(k, bit):
            return builder.icmp_unsigned("!=", builder.and_(k, constant(1 << bit)), constant(0))

        def of_pair(k, first):
            return builder.call(of_two, [heap[first], k, heap[first + 1]])

        def of_four(k, first):
            return builder.select(has_bit(k, 5), of_pair(k, first + 2), of_pair(k, first))

        def threshold(k, level):
            """Of a split k of the level: its lowest bits are its place in a register or two, the next ones say in which."""
            if level < 5:
                return builder.call(of_one, [heap[level // 4], k])
            if level == 5:
                return of_pair(k, 2)
            return of_four(k, 4) if level == 6 else builder.select(has_bit(k, 6), of_four(k, 12), of_four(k, 8))

        declare = builder.module.declare_intrinsic
        of_one = declare("llvm.x86.avx512.permvar.si.512", (), ir.FunctionType(_WORDS, [_WORDS] * 2))
        of_two = declare("llvm.x86.avx512.vpermi2var.d.512", (), ir.FunctionType(_WORDS, [_WORDS] * 3))
        heap = [builder.load(place(3, _I64(at), _WORDS), align=4) for at in range(0, N_KEYS, LANES)]
        one = in_all(builder.extract_element(heap[0], _I32(0)), _WORDS)
        missing, n_bins = in_all(args[2], _FLOATS), in_all(args[4], _CODES)
        with cgutils.for_range_slice(builder, _I64(0), args[1], _I64(AT_ONCE), inc=True) as (begin, _):
            places = [builder.add(begin, _I64(at)) for at in range(0, AT_ONCE, LANES)]
            values = [builder.load(place(0, at, _FLOATS), align=4) for at in places]
            keys, splits = [], [constant(1)] * len(places)
            for x in values:  # scalar.float_key
                bits = builder.bitcast(builder.fadd(x, ir.Constant(_FLOATS, [0.0] * LANES)), _WORDS)
                keys.append(builder.xor(bits, builder.or_(builder.ashr(bits, constant(31)), constant(0x80000000))))
            for level in range(N_LEVELS):
                thresholds = [threshold(k, level) for k in splits]
                passed = [builder.icmp_unsigned("<=", own, key) for own, key in zip(thresholds, keys)]
                left = [builder.add(k, k) for k in splits]
                splits = [builder.select(right, builder.add(k, one), k) for right, k in zip(passed, left)]
            for at, x, k in zip(places, values, splits):
                is_missing = builder.or_(builder.fcmp_unordered("uno", x, x), builder.fcmp_ordered("==", x, missing))
                builder.store(builder.select(is_missing, n_bins, builder.trunc(k, _CODES)), place(5, at, _CODES), align=1)
        return context.get_dummy_value()

    return types.none(values, types.int64, types.float32, heap, types.uint8, codes), codegen
