"""From a plain Python kernel to machine code of one GPU architecture: numba's CUDA target and an assembler.

    Python → PTX (numba-cuda, NVVM) → cubin (nvJitLink or ptxas, through cuda.core) → a file (kept.py) → the device (device.py)

No GPU is needed up to here. This module alone knows the toolchain, and loads it on first use. It makes sure of two things that
bit-equality with the CPU hangs on: a·b + c is not contracted to a fused multiply-add, which numba-cuda does by default and has no
public switch for; and the machine code is made here, not by the driver (whose assembler may be older than the PTX).

Where no assembler is at hand the PTX itself is returned, for the driver to translate.
"""

import ctypes
import re
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from gpuboost.backend.cuda.kept import CompiledKernel, keep_kernel, kept_kernel, shipped_kernel, shipped_ptx
from gpuboost.config import log
from gpuboost.errors import install
from gpuboost.kernels.compile_cache import without_collector
from gpuboost.kernels.cuda_common import CudaKernel, DeviceFunction, bind, cuda

__all__ = ["assemble", "compile_kernel", "to_ptx"]

SYSTEM_NVVM = Path("/usr/local/cuda/nvvm/lib64/libnvvm.so")
_lock = threading.RLock()  # numba's compiler patches below are process-wide


def compile_kernel(
    kernel: CudaKernel, choice: dict[str, np.dtype[Any]], capability: tuple[int, int], *, use_cache: bool = True
) -> CompiledKernel:
    """The kernel for a compute capability such as (9, 0), from a file (kept.py) or compiled (about half a second).

    choice : the dtype of each name in kernel.choices.
    Raises ImportError naming the package to install when the toolchain is missing.
    """
    is_ours = kernel.formula is None or kernel.formula.py_func.__module__.startswith("gpuboost.")
    if not (use_cache and is_ours):
        return _compile(kernel, choice, capability)
    known = shipped_kernel(kernel, choice, capability) or kept_kernel(kernel, choice, capability)
    if known is not None:
        return known
    try:
        compiled = _compile(kernel, choice, capability)
    except ImportError:
        if (text := shipped_ptx(kernel, choice, capability)) is not None:
            return text
        raise
    if not compiled.is_ptx:  # an assembler may be found next time
        keep_kernel(kernel, choice, capability, compiled)
    return compiled


def _compile(kernel: CudaKernel, choice: dict[str, np.dtype[Any]], capability: tuple[int, int]) -> CompiledKernel:
    _announce()
    with _lock:
        return assemble(to_ptx(kernel, choice, capability), capability)


@cache
def _announce() -> None:
    log(1, "compiling CUDA kernels: once for this version and GPU, half a second each; later runs load them from a cache.")


# ---- Python to PTX


def to_ptx(kernel: CudaKernel, choice: dict[str, np.dtype[Any]], capability: tuple[int, int]) -> str:
    """PTX of a kernel. Its parameters are numba's: of an array seven words and more (see device.pack_arguments)."""
    _find_nvvm()
    try:
        from numba import cuda as numba_cuda
        from numba import types
        from numba.cuda.np.numpy_support import from_dtype
    except ImportError:
        raise ImportError(f"CUDA kernels are compiled by numba-cuda: {install('cuda13')} (or [cuda12]).") from None

    def numba_type(dtype: Any, ndim: int) -> Any:
        element = from_dtype(choice[dtype] if isinstance(dtype, str) else dtype)
        return types.Array(element, ndim, "C") if ndim else element

    signature = types.void(*(numba_type(a.dtype, a.ndim) for a in kernel.arguments.values()))
    # An assembler ignores the bound on registers altogether where it asks for more threads than fit.
    blocks_per_sm = min(kernel.blocks_per_sm, _threads_of_a_multiprocessor(capability) // kernel.block)
    if (key := (kernel, signature, blocks_per_sm)) not in _latest:
        _latest.clear()
        with _row_stack(), _no_contraction(capability) as libraries, without_collector():
            numba_cuda.compile(
                _for_numba(kernel.function), signature, cc=capability, device=False, abi="numba", output="ptx",
                launch_bounds=(kernel.block, blocks_per_sm),
            )  # fmt: skip
        _latest[key] = libraries[-1]
    return _as_reductions(_latest[key].get_asm_str(cc=capability))


# numba's library of the kernel that was compiled last. NVVM makes PTX of any capability of it: what comes before, nineteen
# twentieths of the work, is the same from 7.5 on.
_latest: dict[Any, Any] = {}

_ATOMIC = re.compile(r"\batom(\.global(?:\.\w+)*\.(?:add|max|min|and|or|xor)\.\w+)\s+(%\w+), ")


def _as_reductions(ptx: str) -> str:
    """Atomic operations on global memory whose result nobody reads as reductions (PTX ISA, red), to which a GPU need not answer.
    NVVM writes all of them as the others, and ptxas leaves them so."""
    used = Counter(re.findall(r"%\w+", ptx))
    return _ATOMIC.sub(lambda found: f"red{found[1]} " if used[found[2]] == 1 else found[0], ptx)


def _threads_of_a_multiprocessor(capability: tuple[int, int]) -> int:
    """CUDA C++ Programming Guide, technical specifications per compute capability."""
    if capability == (7, 5):
        return 1024
    return 2048 if capability in ((7, 0), (7, 2), (8, 0), (9, 0), (10, 0), (10, 3)) else 1536


def _for_numba(function: Any) -> Any:
    """The function with numba's CUDA names in place of ours.

    Formulas on scalars are left for LLVM to inline (_no_contraction): where numba inlines, it copies a function once for each
    call and infers the types of every copy, which takes twice as long. Device functions it does inline, as the assembler has
    registers enough for the tiles of histograms only then.
    """
    import numba
    from numba.extending import is_jitted

    known: dict[int, Any] = {}

    def replace(value: Any) -> Any:
        if value is cuda:
            return numba.cuda
        on_device = isinstance(value, DeviceFunction)
        if on_device and value.lowering is not None:
            return value.lowering
        if on_device or is_jitted(value):
            if id(value) not in known:
                compiled = numba.njit(inline="always" if on_device else "never", error_model="numpy")
                known[id(value)] = compiled(bind(value.py_func, replace))
            return known[id(value)]
        return value

    return bind(function, replace)


@cache
def _find_nvvm() -> None:
    """Load NVVM from /usr/local/cuda where nothing else has it: numba-cuda takes that toolkit's libdevice, but looks for NVVM in
    wheels, conda, the loader's folders and CUDA_HOME only. Once loaded, the library is found by its name."""
    with suppress(Exception):
        from cuda.pathfinder import load_nvidia_dynamic_lib

        try:
            load_nvidia_dynamic_lib("nvvm")
        except RuntimeError:
            ctypes.CDLL(str(SYSTEM_NVVM), ctypes.RTLD_GLOBAL)


@contextmanager
def _row_stack() -> Iterator[None]:
    """Give NumPy back a name that numba-cuda 0.30 asks it for and NumPy 2.5 no longer has."""
    known = vars(np)
    if "row_stack" in known:
        yield
        return
    known["row_stack"] = lambda arrays: np.vstack(arrays)
    try:
        yield
    finally:
        del known["row_stack"]


@contextmanager
def _no_contraction(capability: tuple[int, int]) -> Iterator[list[Any]]:
    """Let numba-cuda compile with NVVM's fma=0: PTX then says mul.rn and add.rn, which no later step may fuse.

    Functions that are called are inlined by LLVM, and compiled for this capability: numba would ask a GPU.
    Gives the list of the libraries of all that is compiled, the kernel's last.
    """
    import numba.cuda.compiler as compiler
    import numba.cuda.dispatcher as dispatcher

    original, get_current_device = compiler.compile_cuda, dispatcher.get_current_device
    libraries = list[Any]()

    def compile_cuda(*args: Any, nvvm_options: Any = None, **kwargs: Any) -> Any:
        compiled = original(*args, nvvm_options={**(nvvm_options or {}), "fma": 0}, **kwargs)
        libraries.append(compiled.library)
        return compiled

    def compile_function(*args: Any, **kwargs: Any) -> Any:
        return compile_cuda(*args, **{**kwargs, "forceinline": True})

    compiler.compile_cuda, dispatcher.compile_cuda = compile_cuda, compile_function
    dispatcher.get_current_device = lambda: SimpleNamespace(compute_capability=capability)
    try:
        yield libraries
    finally:
        compiler.compile_cuda = dispatcher.compile_cuda = original
        dispatcher.get_current_device = get_current_device


# ---- PTX to machine code


def assemble(ptx: str, capability: tuple[int, int]) -> CompiledKernel:
    """PTX as a cubin, or as it is where cuda.core has no assembler, or one that fails."""
    match = re.search(r"\.entry\s+(\w+)", ptx)
    assert match is not None
    symbol = match.group(1)
    shared_bytes = sum(map(int, re.findall(r"\.shared\b[^;]*\[(\d+)\];", ptx)))
    try:
        from cuda.core import Linker, LinkerOptions, ObjectCode

        options = LinkerOptions(arch=f"sm_{capability[0]}{capability[1]}", ptxas_options=["-v"])
        linker = Linker(ObjectCode.from_ptx(ptx.encode()), options=options)
        cubin = bytes(linker.link("cubin").code)
        report = linker.get_info_log()
    except Exception as error:  # noqa: BLE001 - nvJitLink and the driver's linker raise kinds of their own
        _say_why_not(f"{type(error).__name__}: {error}")
        return CompiledKernel(ptx.encode(), symbol, True, -1, -1, shared_bytes)

    def number(pattern: str) -> int:
        found = re.search(pattern, report)
        return int(found.group(1)) if found else 0

    return CompiledKernel(
        cubin, symbol, False, number(r"Used (\d+) registers"), number(r"(\d+) bytes spill stores"), shared_bytes
    )


@cache
def _say_why_not(reason: str) -> None:
    log(1, f"no machine code could be made here, so that the driver translates PTX, if it can ({reason}).")
