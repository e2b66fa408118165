"""Arrays that kernels make for themselves, in C's order: as NumPy's functions of these names.

    empty(shape, dtype)     zeros(shape, dtype)      shape : int64 or a tuple of them, none below 0

numba writes NumPy's in Python and compiles them for each number of axes and dtype, zeros in three functions, and once more for
every kernel that they are linked into: 2 of the 25 CPU-seconds of README's first command (2026-11-27).
"""

from numba.core import cgutils, types
from numba.core.typing.npydecl import parse_dtype
from numba.extending import intrinsic

__all__ = ["empty", "zeros"]


@intrinsic(prefer_literal=False)
def empty(typing_context, shape, dtype):
    """Of whatever its memory holds. Raises MemoryError where there is none."""
    return _signature(shape, dtype), _allocate


@intrinsic(prefer_literal=False)
def zeros(typing_context, shape, dtype):
    """Of zeros."""

    def codegen(context, builder, signature, args):
        value = _allocate(context, builder, signature, args)
        array = context.make_array(signature.return_type)(context, builder, value)
        cgutils.memset(builder, array.data, builder.mul(array.nitems, array.itemsize), 0)
        return value

    return _signature(shape, dtype), codegen


def _signature(shape, dtype):
    lengths = tuple(shape) if isinstance(shape, types.BaseTuple) else (shape,)
    if not all(isinstance(length, types.Integer) for length in lengths):
        return None
    kind = types.Array(parse_dtype(dtype), len(lengths), "C")
    given = types.UniTuple(types.int64, len(lengths)) if isinstance(shape, types.BaseTuple) else types.int64
    return kind(given, dtype)


def _allocate(context, builder, signature, args):
    from numba.np.arrayobj import _empty_nd_impl  # 0.04 s, which only compiling needs

    shape = cgutils.unpack_tuple(builder, args[0]) if isinstance(signature.args[0], types.BaseTuple) else [args[0]]
    return _empty_nd_impl(context, builder, signature.return_type, shape)._getvalue()
