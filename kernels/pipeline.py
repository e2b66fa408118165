"""numba's pipeline, without what kernels do not need.

Arguments are borrowed. Whoever calls keeps its arrays until the call is over, and yet numba counts a reference to each of them,
and to each that is unpacked from a tuple of them, from the first line to the last, by two calls that LLVM seldom finds to be
idle: one thread of an Intel Xeon (2026-11-26), 7,000 × 28 of depth 6, 5 % of the time of a tree.

Loops are made of whole registers (processor.py), which LLVM reads of every function.

A part is simplified only. numba has LLVM optimise and translate every function by itself, and what is linked into a caller once
more there. A part never runs by itself (jit.parallel_kernel.part): the rest is done in the kernel. README's first training and
prediction compile 45.6 -> 33.4 CPU-seconds so, and without the wrappers for callers in C (2 cores, AVX-512, 2026-11-23). To leave
out the simplifying as well saves nothing, and prediction would take twice as long: what is inlined would not be vectorised.
"""

from collections import Counter
from typing import Any

from numba import _dynfunc
from numba.core import ir, types
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler
from numba.core.compiler_machinery import register_pass
from numba.core.lowering import Lower
from numba.core.typed_passes import NativeLowering

from gpuboost.kernels.entry import add_entry
from gpuboost.kernels.processor import uses_whole_registers

__all__ = ["KernelPipeline", "PartPipeline"]


class _Lowering(Lower):
    """Counts no references for variables that are set in one place, to an argument or to what is unpacked from such a one."""

    def init(self) -> None:
        super().init()
        steps = [step for block in self.blocks.values() for step in block.body if isinstance(step, ir.Assign)]
        n_steps = Counter(step.target.name for step in steps)
        self._borrowed, self._counts, found = set[str](), True, {""}
        while found:
            found = {s.target.name for s in steps if n_steps[s.target.name] == 1 and self._borrows(s.value)} - self._borrowed
            self._borrowed |= found

    def create_cpython_wrapper(self, release_gil: bool = False) -> None:
        add_entry(self, release_gil)

    def setup_function(self, fndesc: Any) -> None:
        super().setup_function(fndesc)
        if uses_whole_registers(self.context.codegen()):
            set.add(self.function.attributes, '"prefer-vector-width"="512"')  # llvmlite's own add() knows no such words

    def _borrows(self, value: Any) -> bool:
        if _is_item(value) or (isinstance(value, ir.Expr) and value.op == "exhaust_iter"):
            return value.value.name in self._borrowed and isinstance(self.typeof(value.value.name), types.BaseTuple)
        return isinstance(value, ir.Arg) or (isinstance(value, ir.Var) and value.name in self._borrowed)

    def lower_inst(self, inst: Any) -> None:
        name = inst.target.name if isinstance(inst, ir.Assign) else inst.value if isinstance(inst, ir.Del) else ""
        self._counts = name not in self._borrowed
        super().lower_inst(inst)
        self._counts = True

    def lower_expr(self, resty: Any, expr: Any) -> Any:
        if self._counts or not _is_item(expr):
            return super().lower_expr(resty, expr)
        return self.builder.extract_value(self.loadvar(expr.value.name), expr.index % len(self.typeof(expr.value.name)))

    def incref(self, typ: Any, val: Any) -> None:
        if self._counts:
            super().incref(typ, val)

    def decref(self, typ: Any, val: Any) -> None:
        if self._counts:
            super().decref(typ, val)


def _is_item(value: Any) -> bool:
    return isinstance(value, ir.Expr) and value.op == "static_getitem" and isinstance(value.index, int)


@register_pass(mutates_CFG=True, analysis_only=False)
class _KernelLowering(NativeLowering):
    _name = "kernel_lowering"

    @property
    def lowering_class(self) -> type[Lower]:
        return _Lowering


@register_pass(mutates_CFG=True, analysis_only=False)
class _PartLowering(_KernelLowering):
    _name = "part_lowering"

    def run_pass(self, state: Any) -> bool:
        state.library = _PartLibrary(state.targetctx.codegen(), state.func_id.func_qualname)
        state.flags.no_compile = True
        super().run_pass(state)
        descriptor, env = state.cr.fndesc, state.cr.env
        # By which callers find it. As of numba's own functions without a wrapper, there is nothing at its address to call.
        entry = _dynfunc.make_function(descriptor.lookup_module(), descriptor.qualname, "", 0, env, (state.library,))
        state.targetctx.insert_user_function(entry, descriptor, [state.library])
        state.cr = state.cr._replace(cfunc=entry)
        return True


class KernelPipeline(Compiler):
    """Arguments are borrowed, and registers whole."""

    _lowering: type[NativeLowering] = _KernelLowering

    def define_pipelines(self) -> Any:
        managers = super().define_pipelines()
        for manager in managers:
            manager.passes = [(self._lowering if step is NativeLowering else step, name) for step, name in manager.passes]
        return managers


class PartPipeline(KernelPipeline):
    """And the function is linked into others only."""

    _lowering = _PartLowering


class _PartLibrary(JITCodeLibrary):
    """Where another version of numba has other steps than these, they are done as ever."""

    def _optimize_final_module(self) -> None:
        """Left to the kernel."""

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._finalized = True
