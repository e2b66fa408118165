"""numba's pipeline for a function that is only linked into others.

numba has LLVM optimise and translate every function by itself, and what is linked into a caller once more there. A part never
runs by itself (jit.parallel_kernel.part), so it is simplified only; the rest is done in the kernel. README's first training and
prediction compile 45.6 -> 33.4 CPU-seconds so, and without the wrappers for callers in C (2 cores, AVX-512, 2026-11-23). To leave
out the simplifying as well saves nothing, and prediction would take twice as long: what is inlined would not be vectorised.
"""

from typing import Any

from numba import _dynfunc
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler
from numba.core.compiler_machinery import register_pass
from numba.core.typed_passes import NativeLowering

__all__ = ["PartPipeline"]


class PartPipeline(Compiler):
    def define_pipelines(self) -> Any:
        managers = super().define_pipelines()
        for manager in managers:
            manager.passes = [(_PartLowering if step is NativeLowering else step, name) for step, name in manager.passes]
        return managers


@register_pass(mutates_CFG=True, analysis_only=False)
class _PartLowering(NativeLowering):
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


class _PartLibrary(JITCodeLibrary):
    """Where another version of numba has other steps than these, they are done as ever."""

    def _optimize_final_module(self) -> None:
        """Left to the kernel."""

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._finalized = True
