"""What a GPU has an instruction for, and the text of a kernel no word: bytes put together, sums at an offset in bytes, and
elements at an offset from a place that many of them share.

Each is an intrinsic that is compiled, and beside it a text that says what it does, which the simulator runs.
"""

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from gpuboost.kernels.cuda_common import cuda, lowered_to

__all__ = ["add_at", "add_at_byte", "load_at", "load_pair_at", "permute_bytes", "store_at"]

_I8, _I32, _I64 = map(ir.IntType, (8, 32, 64))
GLOBAL = 1  # address space of arrays that kernels are given


@intrinsic
def _permute_bytes(typing_context, low, high, selector):
    def codegen(context, builder, signature, args):
        return builder.call(builder.module.declare_intrinsic("llvm.nvvm.prmt", (), ir.FunctionType(_I32, [_I32] * 3)), args)

    return types.uint32(types.uint32, types.uint32, types.uint32), codegen


@lowered_to(_permute_bytes)
def permute_bytes(low, high, selector):
    """uint32: byte i is the byte (selector >> 4i) & 7 of low (0 to 3) and high (4 to 7), both uint32; where bit 3 of those four
    is set, eight times its sign (PTX ISA, prmt). libdevice's byte_perm drops that bit."""
    both, result = int(low) | int(high) << 32, 0
    for i in range(4):
        choice = int(selector) >> 4 * i & 15
        byte = both >> 8 * (choice & 7) & 255
        result |= (255 * (byte >> 7) if choice & 8 else byte) << 8 * i
    return types.uint32(result)


@intrinsic
def _add_at_byte(typing_context, array, offset, more, value):
    def codegen(context, builder, signature, args):
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        place = builder.bitcast(data, _I8.as_pointer())
        for part in args[1:3]:  # ``more`` by itself, so that it becomes part of the instruction
            place = builder.gep(place, [builder.zext(part, _I64)], inbounds=True)
        builder.atomic_rmw("add", builder.bitcast(place, data.type), args[3], "monotonic")
        return context.get_dummy_value()

    return types.none(array, types.uint32, types.uint32, types.int32), codegen


@lowered_to(_add_at_byte)
def add_at_byte(array, offset, more, value):
    """array[(offset + more) / 4] += value, atomically, modulo 2^32. array : int32. offset : bytes, uint32, a multiple of 4.
    more : likewise, a constant of the kernel."""
    with np.errstate(over="ignore"):
        cuda.atomic.add(array, int(offset + more) >> 2, value)


def _element(context, builder, signature, args):
    """Pointer to an element of an array, by where it lies in memory: (array + begin) + offset. The compiler finds the sum in
    brackets once for all offsets, and the other by one instruction; of pointers it would add up begin + offset each time."""
    array = context.make_array(signature.args[0])(context, builder, args[0])
    size = _I64(context.get_abi_sizeof(context.get_data_type(signature.args[0].dtype)))
    begin = builder.add(builder.ptrtoint(array.data, _I64), builder.mul(args[1], size))
    place = builder.add(begin, builder.mul(builder.zext(args[2], _I64), size))
    return builder.inttoptr(place, ir.PointerType(array.data.type.pointee, GLOBAL))


def _unsigned(offset):
    """The type of an offset: uint64 where it is that, for products of 32-bit numbers, which are one instruction; else uint32."""
    return types.uint64 if offset == types.uint64 else types.uint32


@intrinsic
def _load_at(typing_context, array, begin, offset):
    def codegen(context, builder, signature, args):
        return context.unpack_value(builder, array.dtype, _element(context, builder, signature, args))

    return array.dtype(array, types.int64, _unsigned(offset)), codegen


@intrinsic
def _load_pair_at(typing_context, array, begin, offset):
    def codegen(context, builder, signature, args):
        first = _element(context, builder, signature, args)
        second = builder.gep(first, [_I64(1)], inbounds=True)
        pair = builder.load(first, align=16), builder.load(second, align=8)  # by the first one's NVVM knows that one load will do
        return context.make_tuple(builder, signature.return_type, pair)

    return types.UniTuple(array.dtype, 2)(array, types.int64, _unsigned(offset)), codegen


@intrinsic
def _store_at(typing_context, array, begin, offset, value):
    def codegen(context, builder, signature, args):
        context.pack_value(builder, array.dtype, args[3], _element(context, builder, signature, args))
        return context.get_dummy_value()

    return types.none(array, types.int64, _unsigned(offset), array.dtype), codegen


@intrinsic
def _add_at(typing_context, array, begin, offset, value):
    def codegen(context, builder, signature, args):
        builder.atomic_rmw("add", _element(context, builder, signature, args), args[3], "monotonic")
        return context.get_dummy_value()

    return types.none(array, types.int64, types.uint32, types.int64), codegen


@lowered_to(_load_at)
def load_at(array, begin, offset):
    """The element that lies begin + offset elements behind the first one of a C-contiguous array, without its strides.
    begin : int64. offset : uint32, or uint64."""
    return array[_index(array.shape, int(begin) + int(offset))]


@lowered_to(_load_pair_at)
def load_pair_at(array, begin, offset):
    """The elements begin + offset and begin + offset + 1, in one go: of an array of 8 bytes an element, and
    both numbers are even."""
    at = int(begin) + int(offset)
    return array[_index(array.shape, at)], array[_index(array.shape, at + 1)]


@lowered_to(_store_at)
def store_at(array, begin, offset, value):
    """Overwrite the element of load_at."""
    array[_index(array.shape, int(begin) + int(offset))] = value


@lowered_to(_add_at)
def add_at(array, begin, offset, value):
    """Add to the element of load_at, atomically. array : int64."""
    cuda.atomic.add(array, _index(array.shape, int(begin) + int(offset)), value)


def _index(shape, at):
    """Where in an array of this shape the element is that has ``at`` others before it; beyond its end along the first axis."""
    index = ()
    for length in shape[:0:-1]:
        at, own = divmod(at, length)
        index = (own, *index)
    return (at, *index)
