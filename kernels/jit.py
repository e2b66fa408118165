"""How a plain function becomes machine code for the CPU: compiled once, cached by the text of every kernel.

Three decorators:

    scalar            a formula on scalars, inlined into its callers on either device
    kernel            a loop run by one thread (it releases the GIL)
    parallel_kernel   a loop whose outer ``prange`` is shared among numba's threads

numba's own cache looks at the file of the cached function only, so an edit of kernels/scalar.py would leave stale machine
code in its callers. Here the stamp of every cache entry is a hash over all kernels, objectives and metrics.
"""

import hashlib
import threading
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numba
from numba.core import types
from numba.core.caching import FunctionCache, IndexDataCacheFile
from numba.extending import intrinsic

__all__ = ["scalar", "kernel", "parallel_kernel", "claim", "add_atomic", "set_compile_hook", "source_stamp"]

# Division by zero gives inf as in NumPy, not an exception; no fast-math, so that no float operation is reordered.
_OPTIONS: dict[str, Any] = {"error_model": "numpy", "fastmath": False, "nogil": True}
_KERNEL_FOLDERS = ("kernels", "objectives", "metrics")

scalar = numba.njit(inline="always", error_model="numpy", fastmath=False)

_compile_hook: Callable[[], None] | None = None


def set_compile_hook(hook: Callable[[], None] | None) -> None:
    """Call ``hook`` (once) when a kernel is about to be compiled because no cache holds it."""
    global _compile_hook
    _compile_hook = hook


@cache
def source_stamp() -> str:
    """SHA-256 over the text of every file that can end up inside a kernel."""
    package = Path(__file__).parent.parent
    digest = hashlib.sha256()
    for folder in _KERNEL_FOLDERS:
        for path in sorted((package / folder).glob("*.py")):
            digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


class _SourceKeyedCache(FunctionCache):
    """numba's function cache with our stamp, and a name of its own for each specialisation of a kernel factory."""

    def __init__(self, py_func: Callable[..., Any], name: str) -> None:
        super().__init__(py_func)
        self._cache_file = IndexDataCacheFile(self._cache_path, f"{name}.{self._impl.filename_base}", source_stamp())

    def _index_key(self, sig: Any, codegen: Any) -> tuple[Any, ...]:
        # The parent's key also hashes closure cells; ours are compiled functions, already covered by name and stamp.
        return sig, codegen.magic_tuple()

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        global _compile_hook
        found = super().load_overload(sig, target_context)
        if found is None and _compile_hook is not None:
            hook, _compile_hook = _compile_hook, None
            hook()
        return found


def _compile(function: Callable[..., Any], name: str, cached: bool, **options: Any) -> Any:
    dispatcher = numba.njit(**_OPTIONS, **options)(function)
    if cached:
        try:
            dispatcher._cache = _SourceKeyedCache(function, name)
        except RuntimeError:  # neither the package's folder nor the user's cache folder can be written: run uncached
            pass
    return dispatcher


def kernel(function: Callable[..., Any] | None = None, *, name: str = "", cached: bool = True) -> Any:
    """Compile a serial loop. ``name`` tells apart the kernels that one factory makes; ``cached=False`` for user functions."""
    if function is None:
        return lambda f: kernel(f, name=name, cached=cached)
    return _compile(function, name or function.__name__, cached)


# numba's workqueue layer aborts the process when two threads enter parallel regions at once; tbb and omp do not.
_region_lock = threading.RLock()


class parallel_kernel:  # noqa: N801 - reads as a decorator
    """Compile a loop over ``prange`` and call it, one region at a time where numba's threading layer needs that.

    The region itself only starts the threads; each calls a ``@parallel_kernel.part``, an ordinary compiled function. That
    keeps compilation short (numba's parallel pass sees three lines) and gives each thread plain loops.
    """

    part = staticmethod(numba.njit(**_OPTIONS))

    def __init__(self, function: Callable[..., Any], name: str = "", cached: bool = True) -> None:
        self.dispatcher = _compile(function, name or function.__name__, cached, parallel=True)
        self.__doc__ = function.__doc__
        self.__name__ = function.__name__
        self.py_func = function

    def __call__(self, *args: Any) -> Any:
        if _needs_lock():
            with _region_lock:
                return self.dispatcher(*args)
        return self.dispatcher(*args)


_layer_is_safe = False


def _needs_lock() -> bool:
    global _layer_is_safe
    if not _layer_is_safe:
        try:
            _layer_is_safe = numba.threading_layer() in ("tbb", "omp")
        except ValueError:  # no region has run yet, so no layer is chosen
            return True
    return not _layer_is_safe


@intrinsic
def claim(typing_context, counter):
    """claim(counter) -> int64: the next unclaimed work item, by an atomic add on an int64 array of one element.

    Threads claim items one by one, so uneven items balance; which thread does which item cannot change a result.
    """

    def codegen(context, builder, signature, args):
        array = context.make_array(signature.args[0])(context, builder, args[0])
        return builder.atomic_rmw("add", array.data, context.get_constant(types.int64, 1), "monotonic")

    return types.int64(counter), codegen


@intrinsic
def add_atomic(typing_context, array, index, value):
    """add_atomic(array, index, value): array[index] += value for a contiguous 1-D int64 array, safe between threads."""

    def codegen(context, builder, signature, args):
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        builder.atomic_rmw("add", builder.gep(data, [args[1]]), args[2], "monotonic")
        return context.get_dummy_value()

    return types.none(array, types.int64, types.int64), codegen
