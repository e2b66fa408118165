"""How a plain function becomes machine code for the CPU: compiled once, cached by the text of every kernel.

Decorators:

    scalar            a formula on scalars, inlined into its callers on either device; long_scalar: by LLVM, as it sees fit
    kernel            a loop run by one thread (it releases the GIL)
    parallel_kernel   a loop that calls a part of itself once for each of several threads (kernels/launch.py)

numba's own cache looks at the file of the cached function only, so an edit of kernels/scalar.py would leave stale machine
code in its callers. Here the stamp of every cache entry is a hash over the kernel's file and all that it imports of ours, or, of
a kernel around a formula, over all kernels, objectives and metrics. numba also believes whatever a file holds; here a file
counts only if it is whole, and its machine code only for what it was compiled for.
"""

import hashlib
import os
import re
import sys
import threading
from collections.abc import Callable
from contextlib import contextmanager, nullcontext
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any

import numba
from llvmlite import ir
from numba.core import types
from numba.core.caching import FunctionCache, IndexDataCacheFile, NullCache
from numba.extending import intrinsic

from gpuboost.kernels.launch import MAX_THREADS, find_layer, launch
from gpuboost.kernels.openmp import runs_gnu_openmp, start_threads, yield_to_others

__all__ = [
    "scalar", "long_scalar", "inlined_scalar",
    "kernel", "parallel_kernel", "launch", "claim", "add_atomic", "add_two", "add_four", "prefetch", "available_threads",
    "set_compile_hook", "source_stamp",
]  # fmt: skip

# Division by zero gives inf as in NumPy, not an exception; no fast-math, so that no float operation is reordered.
_OPTIONS: dict[str, Any] = {"error_model": "numpy", "fastmath": False, "nogil": True}
_FORMULA_FOLDERS = ("objectives", "metrics")  # of the package: their scalar functions are compiled into kernels

scalar = numba.njit(inline="always", error_model="numpy", fastmath=False)
# A formula so long that numba, which inlines before it infers types, would take minutes: left for LLVM to inline.
long_scalar = numba.njit(error_model="numpy", fastmath=False)
# One that LLVM inlines whatever its length: a loop around a call is not vectorised.
inlined_scalar = numba.njit(error_model="numpy", fastmath=False, forceinline=True)

_compile_hook: Callable[[str, str], None] | None = None
_told: set[str] = set()


def set_compile_hook(hook: Callable[[str, str], None] | None) -> None:
    """Call ``hook(event, path)`` at the first of each event:

    "absent" : a kernel is about to be compiled because no cache holds it.
    "damaged" : the file at path is not what was written, so it does not count and is written anew.
    "unwritable" : there is no folder in which kernels can be kept.
    """
    global _compile_hook
    _compile_hook = hook


def _tell(event: str, path: str = "") -> None:
    if _compile_hook is not None and event not in _told:
        _told.add(event)
        _compile_hook(event, path)


@cache
def source_stamp(module: str = "") -> str:
    """SHA-256 over the text of every file that can end up inside a kernel; of one module of kernels, which import no others
    (test_contract.py), its own and of those that it imports."""
    kernels = Path(__file__).parent
    if module:
        paths = [kernels / f"{name}.py" for name in sorted(_imported(module.rpartition(".")[2]))]
    else:
        package = Path(sys.modules["gpuboost"].__path__[0])
        folders = kernels, *(package / name for name in _FORMULA_FOLDERS)
        paths = [path for folder in folders for path in sorted(folder.glob("*.py"))]
    digest = hashlib.sha256()
    for path in paths:
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


@cache
def _imported(name: str) -> frozenset[str]:
    """A file of kernels, those that it imports, and those that they import, by name."""
    text = (Path(__file__).parent / f"{name}.py").read_bytes()
    names = re.findall(rb"^\s*from gpuboost\.kernels\.(\w+) import", text, re.MULTILINE)
    for several in re.findall(rb"^\s*from gpuboost\.kernels import (.*)$", text, re.MULTILINE):
        names += several.split(b", ")
    return frozenset({name}).union(*(_imported(each.decode()) for each in names))


class _CacheFiles(IndexDataCacheFile):
    """numba's files of one function: an index (.nbi), from signatures to the files (.nbc) of their machine code.

    Each file ends in the SHA-256 of what precedes it, and machine code lies beside what it was compiled for: the index of a
    process that was killed, or that wrote at the same time, may name a file that holds another's. What does not fit counts as
    absent, so that it is compiled and written anew.
    """

    def save(self, key: Any, data: Any) -> None:
        super().save(key, (self._stamped(key), data))

    def load(self, key: Any) -> Any:
        found = super().load(key)
        return found[1] if found is not None and found[0] == self._stamped(key) else None

    def _stamped(self, key: Any) -> tuple[Any, ...]:
        return self._version, self._source_stamp, key

    def _load_index(self) -> dict[Any, str]:
        return super()._load_index() if _is_whole(self._index_path) else {}

    def _load_data(self, name: str) -> Any:
        if not _is_whole(self._data_path(name)):
            raise FileNotFoundError(name)  # which means that it has to be compiled
        return super()._load_data(name)

    @contextmanager
    def _open_for_write(self, filepath: str) -> Any:
        content = BytesIO()
        yield content
        with super()._open_for_write(filepath) as file:
            file.write(content.getvalue() + hashlib.sha256(content.getvalue()).digest())


def _is_whole(path: str) -> bool:
    try:
        content = Path(path).read_bytes()
    except FileNotFoundError:
        return False
    except OSError:
        content = b""
    size = len(content) - hashlib.sha256().digest_size
    is_whole = size >= 0 and hashlib.sha256(content[:size]).digest() == content[size:]
    if not is_whole:
        _tell("damaged", path)
    return is_whole


class _SourceKeyedCache(FunctionCache):
    """numba's function cache with our stamp and our files."""

    def __init__(self, py_func: Callable[..., Any], formula: Any) -> None:
        super().__init__(py_func)
        is_ours = formula is None and py_func.__module__.startswith("gpuboost.kernels.")
        stamp = source_stamp(py_func.__module__ if is_ours else "")
        self._cache_file = _CacheFiles(self._cache_path, self._impl.filename_base, stamp)

    def _index_key(self, sig: Any, codegen: Any) -> tuple[Any, ...]:
        # The parent's key also hashes closure cells; ours are compiled functions, covered by the kernel's name and the stamp.
        return sig, codegen.magic_tuple()

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        found = super().load_overload(sig, target_context)
        if found is None:
            _tell("absent")
        return found

    def save_overload(self, sig: Any, data: Any) -> None:
        try:
            super().save_overload(sig, data)
        except OSError:  # the disk is full, or the folder cannot be written any more
            _tell("unwritable")


class _NoCache(NullCache):
    """Where neither the package's folder nor the user's cache folder can be written: each process compiles."""

    def load_overload(self, sig: Any, target_context: Any) -> None:
        _tell("unwritable")


def _compile(function: Callable[..., Any], formula: Any) -> Any:
    dispatcher = numba.njit(**_OPTIONS)(_named_after(formula, function))
    if formula is None or formula.py_func.__module__.startswith("gpuboost."):  # the stamp does not cover a user's formula
        try:
            dispatcher._cache = _SourceKeyedCache(function, formula)
        except RuntimeError:  # numba has found no folder
            dispatcher._cache = _NoCache()
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


def _after_fork_in_child() -> None:
    global _has_lost_openmp, _region_lock
    _region_lock = threading.RLock()  # another thread of the parent may hold the old one
    _has_lost_openmp = runs_gnu_openmp()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)


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
        return numba.njit(**_OPTIONS, no_cpython_wrapper=True, no_cfunc_wrapper=True)(_named_after(formula, function))

    def __init__(self, function: Callable[..., Any], formula: Any = None) -> None:
        self.dispatcher = _compile(function, formula)
        self.__doc__ = function.__doc__
        self.__name__ = function.__name__
        self.py_func = function

    def __call__(self, *args: Any) -> Any:
        if (n_threads := args[-1]) == 1:
            return self.dispatcher(*args)
        if _has_lost_openmp:
            raise RuntimeError(
                "this process was forked after its parent had started the threads of GNU OpenMP, which do not survive a fork. "
                'Start processes with multiprocessing.get_context("spawn") or "forkserver", fork before the first training or '
                "prediction, or set the environment variable NUMBA_THREADING_LAYER to tbb or workqueue."
            )
        _start_threads()
        yield_to_others(n_threads)
        with nullcontext() if _layer_is_safe() else _region_lock:
            return self.dispatcher(*args)


def available_threads() -> int:
    """Threads that a launch may use here: NUMBA_NUM_THREADS, or what numba.set_num_threads says."""
    _start_threads()
    return min(numba.get_num_threads(), MAX_THREADS)


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


@intrinsic
def add_four(typing_context, array, index, values, first):
    """add_four(array, index, values, first): array[index + k] += values[first + k] for k < 4, of contiguous 1-D int64 arrays,
    in one addition of 32 bytes. (Of four written one after another numba makes four.)"""

    def codegen(context, builder, signature, args):
        four = ir.VectorType(ir.IntType(64), 4).as_pointer()
        types_and_places = (signature.args[0], args[0], args[1]), (signature.args[2], args[2], args[3])
        data = [(context.make_array(kind)(context, builder, array).data, at) for kind, array, at in types_and_places]
        target, source = (builder.bitcast(builder.gep(pointer, [at]), four) for pointer, at in data)
        total = builder.add(builder.load(target, align=8), builder.load(source, align=8))
        builder.store(total, target, align=8)
        return context.get_dummy_value()

    return types.none(array, types.uint64, values, types.uint64), codegen


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
