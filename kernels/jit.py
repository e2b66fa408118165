"""How a plain function becomes machine code for the CPU: compiled once, and kept (kernels/compile_cache.py).

Decorators:

    scalar            a formula on scalars, inlined into its callers on either device; long_scalar: by LLVM, as it sees fit
    kernel            a loop run by one thread (it releases the GIL)
    parallel_kernel   a loop that calls a part of itself once for each of several threads (kernels/launch.py)
"""

import os
import threading
from collections.abc import Callable
from contextlib import nullcontext
from functools import cache
from typing import Any

import numba
from llvmlite import ir
from numba.core import types
from numba.core.registry import CPUDispatcher
from numba.extending import intrinsic
from numba.np.ufunc import parallel

from gpuboost.kernels.compile_cache import KernelCache, Uncached, source_stamp
from gpuboost.kernels.late import call_at, call_late, find_address, kernels_by_name, raise_failure
from gpuboost.kernels.launch import MAX_THREADS, find_layer, launch
from gpuboost.kernels.openmp import has_lost_threads, start_threads, yield_to_others
from gpuboost.kernels.pipeline import KernelPipeline, PartPipeline

__all__ = [
    "scalar", "long_scalar", "inlined_scalar",
    "kernel", "parallel_kernel", "launch", "call_at", "call_late", "find_address", "claim", "lock", "unlock", "add_atomic",
    "add_two", "add_four", "add_eight", "prefetch",
    "after_fork_in_child", "available_threads",
]  # fmt: skip

if numba.config.DISABLE_JIT:
    raise ImportError("gpuboost's kernels exist only compiled, and numba.config.DISABLE_JIT is set. Unset NUMBA_DISABLE_JIT.")

# Division by zero gives inf as in NumPy, not an exception; no fast-math, so that no float operation is reordered. Nobody calls
# from C.
_ARITHMETIC: dict[str, Any] = {"error_model": "numpy", "fastmath": False, "no_cfunc_wrapper": True}
_FORMULA = {**_ARITHMETIC, "pipeline_class": KernelPipeline}
_OPTIONS = {**_FORMULA, "nogil": True}

scalar = numba.njit(inline="always", **_FORMULA)
# A formula so long that numba, which inlines before it infers types, would take minutes: left for LLVM to inline.
long_scalar = numba.njit(**_FORMULA)


class inlined_scalar(CPUDispatcher):  # noqa: N801 - reads as a decorator
    """One that LLVM inlines whatever its length: a loop around a call is not vectorised. It is compiled as far as its callers
    need it (kernels/pipeline.py), and once more by itself where Python calls it. README's first training and prediction have 32:
    40 -> 37 CPU-seconds so (a busy Intel Xeon, 2026-11-26)."""

    def __init__(self, function: Callable[..., Any]) -> None:
        options = {**_ARITHMETIC, "nopython": True, "forceinline": True, "no_cpython_wrapper": True}
        super().__init__(function, targetoptions=options, pipeline_class=PartPipeline)
        self.by_itself = cache(lambda: numba.njit(**_FORMULA)(function))

    def __call__(self, *args: Any) -> Any:
        return self.by_itself()(*args)


def _compile(function: Callable[..., Any], formula: Any) -> Any:
    dispatcher = numba.njit(**_OPTIONS)(_named_after(formula, function))
    if formula is None:
        kernels_by_name[f"{function.__module__}.{function.__qualname__}"] = dispatcher
    if formula is not None and not formula.py_func.__module__.startswith("gpuboost."):
        dispatcher._cache = Uncached()
    else:
        is_ours = formula is None and function.__module__.startswith("gpuboost.kernels.")
        dispatcher._cache = KernelCache(function, source_stamp(function.__module__ if is_ours else ""))
    return dispatcher


def _named_after(formula: Any, function: Callable[..., Any]) -> Callable[..., Any]:
    """Name a function that a factory made after the formula it was made for.

    The name is part of the cache's file name and of the symbol in the machine code. Where two cached functions share a symbol,
    the linker takes whichever was loaded first.
    """
    if formula is not None:
        function.__qualname__ += f".{formula.py_func.__module__}.{formula.py_func.__qualname__}"
    return function


def kernel(function: Callable[..., Any], formula: Any = None) -> Any:
    """Compile a serial loop. formula : the scalar function that a kernel factory built this kernel around."""
    return _compile(function, formula)


# numba's workqueue layer aborts the process when two threads enter parallel regions at once; tbb and omp do not.
_region_lock = threading.RLock()

# In a process that was forked after the threads of GNU OpenMP had started, numba answers a region with SIGTERM. A pool would wait
# for such a worker for ever, so regions raise there instead.
_has_lost_openmp = False


def after_fork_in_child() -> None:
    """To be called in the child of a fork, where this module has been imported only there."""
    global _has_lost_openmp, _region_lock
    _region_lock = threading.RLock()  # another thread of the parent may hold the old one
    _has_lost_openmp = has_lost_threads()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=after_fork_in_child)


class parallel_kernel:  # noqa: N801 - reads as a decorator
    """Compile a kernel that launches a part of itself, and call it, one at a time where numba's threading layer needs that.

    The part does what one thread does: ``@parallel_kernel.part``, an ordinary compiled function. The last parameter of every
    kernel is n_threads. For 1 no threads are started: 7000 × 28, on one core of an AMD EPYC, 2.4 -> 1.8 ms a tree.

    formula : the scalar function that a kernel factory built this kernel around.
    """

    @staticmethod
    def part(function: Callable[..., Any] | None = None, *, formula: Any = None) -> Any:
        """Compile what one thread does; ``@parallel_kernel.part(formula=f)`` inside the factory of a kernel of f."""
        if function is None:
            return lambda f: parallel_kernel.part(f, formula=formula)
        options = {**_ARITHMETIC, "nogil": True, "no_cpython_wrapper": True}
        return numba.njit(pipeline_class=PartPipeline, **options)(_named_after(formula, function))

    def __init__(self, function: Callable[..., Any], formula: Any = None) -> None:
        self.dispatcher = _compile(function, formula)
        self.__doc__ = function.__doc__
        self.__name__ = function.__name__
        self.py_func = function

    def __call__(self, *args: Any) -> Any:
        try:
            return self._call(args, args[-1])
        except (RuntimeError, MemoryError) as error:
            raise_failure(error)
            raise

    def _call(self, args: tuple[Any, ...], n_threads: int) -> Any:
        if n_threads == 1:
            return self.dispatcher(*args)
        if _has_lost_openmp:
            raise RuntimeError(
                "this process was forked after its parent had started the threads of GNU OpenMP, which do not survive a fork. "
                "Compute with one thread there (nthread=1, of estimators n_jobs=1), start processes with "
                'multiprocessing.get_context("spawn") or "forkserver", fork before the first training or prediction, or set the '
                "environment variable NUMBA_THREADING_LAYER to tbb or workqueue."
            )
        _start_threads()
        yield_to_others(n_threads)
        with nullcontext() if _layer_is_safe() else _region_lock:
            return self.dispatcher(*args)


def available_threads() -> int:
    """Threads that a launch may use here: NUMBA_NUM_THREADS, or what numba.set_num_threads says.

    numba.get_num_threads enters locks, one of them shared with forked processes. Who is interrupted or killed there holds it for
    good, so it is asked without them, once threads have started."""
    _start_threads()
    return min(parallel._get_num_threads(), MAX_THREADS)


@cache
def _start_threads() -> None:
    start_threads()
    find_layer()


@cache
def _layer_is_safe() -> bool:
    """Whether several threads may launch at once."""
    return numba.threading_layer() in ("tbb", "omp")


@intrinsic
def claim(typing_context, counter):
    """claim(counter) -> int64: the next unclaimed work item, by an atomic add on the first element of an int64 array.

    Threads claim items one by one, so uneven items balance; which thread does which item cannot change a result.
    """

    def codegen(context, builder, signature, args):
        array = context.make_array(signature.args[0])(context, builder, args[0])
        return builder.atomic_rmw("add", array.data, context.get_constant(types.int64, 1), "monotonic")

    return types.int64(counter), codegen


@intrinsic
def lock(typing_context, locks, index):
    """lock(locks, index): wait until no other thread holds locks[index], and hold it: 1, and 0 again after unlock(locks, index).
    locks : uint8 (n,), side by side. Who waits spins: for what takes a microsecond, as 256 bins do, not for what takes long."""

    def codegen(context, builder, signature, args):
        place = builder.gep(context.make_array(signature.args[0])(context, builder, args[0]).data, [args[1]])
        wait, mine = builder.append_basic_block("wait"), builder.append_basic_block("mine")
        builder.branch(wait)
        builder.position_at_end(wait)
        was = builder.atomic_rmw("xchg", place, ir.IntType(8)(1), "acquire")
        builder.cbranch(builder.icmp_unsigned("==", was, ir.IntType(8)(0)), mine, wait)
        builder.position_at_end(mine)
        return context.get_dummy_value()

    return types.none(locks, types.int64), codegen


@intrinsic
def unlock(typing_context, locks, index):
    """unlock(locks, index): let another thread have it, which then sees what this one has written."""

    def codegen(context, builder, signature, args):
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        builder.store_atomic(ir.IntType(8)(0), builder.gep(data, [args[1]]), ordering="release", align=1)
        return context.get_dummy_value()

    return types.none(locks, types.int64), codegen


@intrinsic
def add_atomic(typing_context, array, index, value):
    """add_atomic(array, index, value): array[index] += value for a contiguous 1-D int64 array, safe between threads."""

    def codegen(context, builder, signature, args):
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        builder.atomic_rmw("add", builder.gep(data, [args[1]]), args[2], "monotonic")
        return context.get_dummy_value()

    return types.none(array, types.int64, types.int64), codegen


@intrinsic
def add_four(typing_context, array, index, values, first):
    """add_four(array, index, values, first): array[index + k] += values[first + k] for k < 4, of contiguous 1-D int64 arrays,
    in one addition of 32 bytes. (Of four written one after another numba makes four.)"""
    return types.none(array, types.uint64, values, types.uint64), _addition_of(4)


@intrinsic
def add_eight(typing_context, array, index, values, first):
    """The same for k < 8: one addition of 64 bytes, or where a processor has none two of 32."""
    return types.none(array, types.uint64, values, types.uint64), _addition_of(8)


def _addition_of(n):
    def codegen(context, builder, signature, args):
        vector = ir.VectorType(ir.IntType(64), n).as_pointer()
        types_and_places = (signature.args[0], args[0], args[1]), (signature.args[2], args[2], args[3])
        data = [(context.make_array(kind)(context, builder, array).data, at) for kind, array, at in types_and_places]
        target, source = (builder.bitcast(builder.gep(pointer, [at]), vector) for pointer, at in data)
        total = builder.add(builder.load(target, align=8), builder.load(source, align=8))
        builder.store(total, target, align=8)
        return context.get_dummy_value()

    return codegen


@intrinsic
def add_two(typing_context, array, index, first, second):
    """add_two(array, index, first, second): array[index] += first, array[index + 1] += second of a contiguous int64 array, in one
    addition of 16 bytes."""

    def codegen(context, builder, signature, args):
        kind = ir.VectorType(ir.IntType(64), 2)
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        target, values = builder.bitcast(builder.gep(data, [args[1]]), kind.as_pointer()), ir.Constant(kind, ir.Undefined)
        for lane in range(2):
            values = builder.insert_element(values, args[2 + lane], ir.IntType(32)(lane))
        builder.store(builder.add(builder.load(target, align=8), values), target, align=8)
        return context.get_dummy_value()

    return types.none(array, types.uint64, types.int64, types.int64), codegen


@intrinsic
def prefetch(typing_context, array, index):
    """prefetch(array, index): bring array[index] of a contiguous 1-D array into the first-level cache, in the background."""

    def codegen(context, builder, signature, args):
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        number, byte = ir.IntType(32), ir.IntType(8).as_pointer()
        function = builder.module.declare_intrinsic(
            "llvm.prefetch", [byte], ir.FunctionType(ir.VoidType(), [byte, number, number, number])
        )
        address = builder.bitcast(builder.gep(data, [args[1]]), byte)
        builder.call(function, [address, number(0), number(3), number(1)])  # to read; to keep near; data
        return context.get_dummy_value()

    return types.none(array, types.uint64), codegen
