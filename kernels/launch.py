"""How a kernel's threads start: each calls one part, an ordinary compiled function.

    launch(n_threads, part, args)      part(*args) once for each thread, or part(thread, *args) where it takes the number first

A region of numba's own, for which there is prange, takes a second or more to compile, for every kernel, and is worth it only for
several threads, so that each kernel would be compiled twice. This call is a few instructions, and one machine code serves any
number of threads: one of them is a call as any other, which neither starts threads nor needs those that a fork has lost; several
are started by numba's threading layer, whichever it is, through the function that its regions use:

    parallel_for(function, args, dimensions, steps, data, inner dimensions, arrays, threads)

calls function(args, dimensions, steps, data) for pieces of dimensions[0] numbers, each with args[0] moved on to its first.
Where that function lies is known only when the layer has been loaded, which is when threads start (find_layer), so machine code
reads it from a cell, which it knows by name and a cache can keep.

Parts get arrays without an owner. numba counts references at every slice and call that LLVM does not inline, by an atomic add to
a count that all threads share: a tenth of the time of a tree of 20,000 × 28, on one thread (AMD EPYC). Whoever launches keeps
the arrays until the parts are done.
"""

import ctypes
from importlib import import_module

import llvmlite.binding
import numba
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

__all__ = ["find_layer", "launch"]

CELL = "gpuboost_parallel_for"
LAYERS = {"omp": "omppool", "tbb": "tbbpool", "workqueue": "workqueue"}
NUMBER, STATUS, ADDRESS = ir.IntType(64), ir.IntType(32), ir.IntType(8).as_pointer()
PIECE = ir.FunctionType(ir.VoidType(), [ADDRESS.as_pointer(), NUMBER.as_pointer(), NUMBER.as_pointer(), ADDRESS])
PARALLEL_FOR = ir.FunctionType(ir.VoidType(), [ADDRESS] * 5 + [NUMBER] * 3)
MAX_THREADS = 1024

_cell = ctypes.c_void_p()
llvmlite.binding.add_symbol(CELL, ctypes.addressof(_cell))


def find_layer() -> None:
    """Say where parallel_for lies, once numba's threads have started."""
    _cell.value = import_module(f"numba.np.ufunc.{LAYERS[numba.threading_layer()]}").parallel_for


@intrinsic(prefer_literal=False)
def launch(typing_context, n_threads, part, args):
    """launch(n_threads, part, args): see above. n_threads : 1 to MAX_THREADS. Raises MemoryError where a part found no memory."""
    given = tuple(types.unliteral(arg) for arg in args)
    takes_number = part.dispatcher.py_func.__code__.co_argcount > len(given)
    called = part.get_call_type(typing_context, (types.int64,) * takes_number + given, {})

    def codegen(context, builder, signature, values):
        compiled = part.dispatcher.overloads[called.args]
        context.active_code_library.add_linking_library(compiled.library)
        failed = cgutils.alloca_once_value(builder, STATUS(0))
        lent = _without_owner(builder, signature.args[2], values[2])
        packed = cgutils.alloca_once_value(builder, cgutils.pack_struct(builder, [lent, failed]))
        piece = _call_of_piece(context, builder.module, packed.type, compiled.fndesc, called, takes_number)
        zero, width, n_threads = (cgutils.alloca_once_value(builder, value) for value in (NUMBER(0), NUMBER(8), values[0]))
        data = builder.bitcast(packed, ADDRESS)
        with builder.if_else(builder.icmp_signed("==", values[0], NUMBER(1))) as (of_one, of_several):
            with of_one:
                builder.call(piece, [_stored(builder, zero), n_threads, width, data])
            with of_several:
                numbers = cgutils.alloca_once(builder, NUMBER, size=NUMBER(MAX_THREADS))
                with cgutils.for_range(builder, values[0]) as loop:
                    builder.store(loop.index, builder.gep(numbers, [loop.index]))
                given = piece, _stored(builder, numbers), n_threads, width, data
                addresses = [builder.bitcast(value, ADDRESS) for value in given]
                builder.call(_parallel_for(builder), [*addresses, NUMBER(0), NUMBER(1), values[0]])
        with builder.if_then(cgutils.is_not_null(builder, builder.load(failed))):
            context.call_conv.return_user_exc(builder, MemoryError, ("there is no memory for what a kernel computes with",))
        return context.get_dummy_value()

    return types.none(types.int64, part, args), codegen


def _without_owner(builder, kind, value):
    """The arrays of a tuple with no one to count references for."""
    if isinstance(kind, types.Array):
        return builder.insert_value(value, ir.Constant(value.type.elements[0], None), 0)
    if isinstance(kind, types.BaseTuple):
        for i, part in enumerate(kind):
            value = builder.insert_value(value, _without_owner(builder, part, builder.extract_value(value, i)), i)
    return value


def _call_of_piece(context, module, packed, function, called, takes_number):
    """A PIECE: calls the part for its numbers. packed : type of a pointer to the arguments and where to note that one failed."""
    piece = ir.Function(module, PIECE, module.get_unique_name("gpuboost_piece"))
    piece.linkage = "internal"
    piece.attributes.add("noinline")  # it is called twice
    args, dimensions, _, data = piece.args
    builder = ir.IRBuilder(piece.append_basic_block())
    packed = builder.load(builder.bitcast(data, packed))
    given = cgutils.unpack_tuple(builder, builder.extract_value(packed, 0))
    first = builder.load(builder.bitcast(builder.load(args), NUMBER.as_pointer()))
    with cgutils.for_range(builder, builder.load(dimensions)) as loop:
        number = [builder.add(first, loop.index)] * takes_number
        status, _ = context.call_internal_no_propagate(builder, function, called, [*number, *given])
        with builder.if_then(status.is_error):
            builder.store(STATUS(1), builder.extract_value(packed, 1))
    builder.ret_void()
    return piece


def _stored(builder, address):
    """Where the address lies, in memory."""
    return cgutils.alloca_once_value(builder, builder.bitcast(address, ADDRESS))


def _parallel_for(builder):
    """What the cell holds."""
    cell = builder.module.globals.get(CELL) or ir.GlobalVariable(builder.module, ADDRESS, CELL)
    return builder.bitcast(builder.load(cell), PARALLEL_FOR.as_pointer())
