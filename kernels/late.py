"""A kernel that calls another without being linked with it.

    call_late(kernel, args)      kernel(*args), of a kernel that returns nothing
    call_at(address, args)       the same of one that is known only when it is called: by find_address

numba links a function into its callers, optimises it again in each, and has to have compiled it first. A kernel that is called
late is compiled when it is first called, and kept by itself: once, perhaps by another process at the same time, and not at all
where nothing needs it. Growing levels with the kernels that it links: 9.5 -> 3.1 CPU-seconds, of one process beside another (a
busy Intel Xeon, 2026-11-26). The call costs what any does that LLVM does not inline: it is for what is called for a frontier.

Machine code holds a cell for the address, empty at first, and as text which kernel it is, for which types. It fills the cell by a
call of Python, which takes the lock of the interpreter: a kernel's first call should come from the thread that Python called.
"""

import ctypes
import pickle
from typing import Any
from weakref import WeakKeyDictionary

import llvmlite.binding
from llvmlite import ir
from numba import typeof
from numba.core import cgutils, types, typing
from numba.extending import intrinsic

__all__ = ["call_at", "call_late", "find_address", "kernels_by_name", "raise_failure"]

CELL = "gpuboost_find_kernel"
ADDRESS, SIZE = ir.IntType(8).as_pointer(), ir.IntType(64)
FIND = ir.FunctionType(ir.VoidType(), [ADDRESS, SIZE, ADDRESS])
NOT_FOUND = "a kernel that is needed could not be compiled"

kernels_by_name: dict[str, Any] = {}  # dispatchers, by module and qualified name
_addresses: WeakKeyDictionary[Any, dict[tuple[types.Type, ...], int]] = WeakKeyDictionary()  # of dispatchers' machine code
_failures: list[BaseException] = []  # of finding a kernel, which Python's callers are still to hear of


@ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p)
def _find(text: int, size: int, cell: int) -> None:
    """Fill a cell with the address of a kernel, compiled or loaded; not where that has failed. (Nothing is returned: where a
    signal's handler raises before the first line, ctypes hands machine code whatever it finds in memory.)"""
    try:
        name, signature = pickle.loads(ctypes.string_at(text, size))
        ctypes.c_void_p.from_address(cell).value = _compiled(kernels_by_name[name], signature)
    except BaseException as error:  # Ctrl-C, too: machine code takes no exceptions
        _failures.append(error)


def find_address(kernel: Any, *args: Any) -> int:
    """Where the machine code of a kernel for such arguments lies, compiled or loaded: as long as the kernel lives."""
    return _compiled(kernel.dispatcher, tuple(typeof(arg) for arg in args))


def _compiled(dispatcher: Any, signature: tuple[types.Type, ...]) -> int:
    """Addresses are kept: to ask again waits for whoever compiles, and in the child of a fork for who did in the parent."""
    known = _addresses.setdefault(dispatcher, {})
    if signature not in known:
        known[signature] = _compile(dispatcher, signature)
    return known[signature]


def _compile(dispatcher: Any, signature: tuple[types.Type, ...]) -> int:
    dispatcher.compile(signature)
    compiled = dispatcher.overloads[signature]
    if compiled.signature.return_type != types.none:
        name, returned = dispatcher.py_func.__qualname__, compiled.signature.return_type
        raise TypeError(f"{name} returns {returned}: only what returns nothing can be called late.")
    address: int = compiled.library.get_pointer_to_function(compiled.fndesc.llvm_func_name)
    return address


_cell = ctypes.c_void_p(ctypes.cast(_find, ctypes.c_void_p).value)
llvmlite.binding.add_symbol(CELL, ctypes.addressof(_cell))


def raise_failure(error: BaseException) -> None:
    """Raise why a kernel was not found, where that may be why machine code has raised an error. What is not known was raised
    before the first line of _find, which only the handler of a signal does: Ctrl-C while a kernel ran that then called late."""
    if _failures:
        reason = _failures.pop()
        _failures.clear()
        raise reason
    if error.args == (NOT_FOUND,):
        raise KeyboardInterrupt


@intrinsic(prefer_literal=False)
def call_late(typing_context, kernel, args):
    """call_late(kernel, args): see above. args : a tuple."""
    function = kernel.dispatcher.py_func
    called = typing.signature(types.none, *(types.unliteral(arg) for arg in args))
    text = pickle.dumps((f"{function.__module__}.{function.__qualname__}", called.args))

    def codegen(context, builder, signature, values):
        cell = cgutils.add_global_variable(builder.module, ADDRESS, "gpuboost_kernel")
        cell.linkage, cell.initializer = "internal", ir.Constant(ADDRESS, None)
        with builder.if_then(cgutils.is_null(builder, builder.load(cell)), likely=False):
            find = builder.module.globals.get(CELL) or ir.GlobalVariable(builder.module, ADDRESS, CELL)
            key = cgutils.global_constant(builder, "gpuboost_kernel_name", cgutils.make_bytearray(text))
            find = builder.bitcast(builder.load(find), FIND.as_pointer())
            builder.call(find, [builder.bitcast(key, ADDRESS), SIZE(len(text)), builder.bitcast(cell, ADDRESS)])
            with builder.if_then(cgutils.is_null(builder, builder.load(cell)), likely=False):
                context.call_conv.return_user_exc(builder, RuntimeError, (NOT_FOUND,))
        _call(context, builder, called, builder.load(cell), signature.args[1], values[1])
        return context.get_dummy_value()

    return types.none(kernel, args), codegen


@intrinsic(prefer_literal=False)
def call_at(typing_context, address, args):
    """call_at(address, args): see above. address : int64. args : a tuple."""
    called = typing.signature(types.none, *(types.unliteral(arg) for arg in args))

    def codegen(context, builder, signature, values):
        _call(context, builder, called, builder.inttoptr(values[0], ADDRESS), signature.args[1], values[1])
        return context.get_dummy_value()

    return types.none(types.int64, args), codegen


def _call(context: Any, builder: Any, called: Any, address: Any, kind: Any, args: Any) -> None:
    """Call the kernel at an address, of the signature ``called``, with a tuple of values of another kind."""
    function = context.call_conv.get_function_type(types.none, called.args).as_pointer()
    values = cgutils.unpack_tuple(builder, args)
    given = [context.cast(builder, value, own, wanted) for value, own, wanted in zip(values, kind, called.args)]
    status, _ = context.call_conv.call_function(builder, builder.bitcast(address, function), types.none, called.args, given)
    with cgutils.if_unlikely(builder, status.is_error):
        context.call_conv.return_status_propagate(builder, status)
