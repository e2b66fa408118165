"""How a plain function becomes a CUDA kernel: its signature, its block, and names that whoever runs it fills in.

A CUDA kernel is an ordinary Python function under ``@cuda_kernel``. Nothing is compiled when it is defined: that takes the CUDA
toolchain, which a laptop lacks. backend/cuda/compiler.py compiles it for a GPU, with numba's CUDA target in place of ``cuda``;
tests/simulator.py runs the same text as Python, thread by thread. Both follow calls into functions under ``@device_function``.

The conventions of all kernels here:

    * any block of a multiple of 32 threads, one-dimensional, gives the same result; so does any number of blocks.
    * grids are persistent: a block (warp, thread) starts at its own number and strides by their number over items whose count
      may lie on the device. Nothing asks the host.
    * what several blocks add to is int64 in global memory or int32 in shared memory: both are native atomic adds, and integer
      sums do not depend on their order. 64-bit and float adds in shared memory would be compare-and-swap loops.
    * all arithmetic that reaches the model goes through kernels/scalar.py, which the CPU twin calls as well.
    * whole arrays are indexed with all their indices; no slices (they cost registers, and the simulator checks every index).
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from inspect import signature as signature_of
from types import CellType, CodeType, FunctionType
from typing import Any

import numpy as np
from numba import int64, uint32

from gpuboost.kernels import structs

__all__ = [
    "ArgumentType", "BlockStep", "CudaKernel", "DeviceFunction", "all_kernels", "bind", "block_step", "cuda", "cuda_kernel",
    "device_function", "lowered_to",
]  # fmt: skip


class _Names:
    """The CUDA names that kernels use. Here they only stand in the text; see numba's CUDA documentation for each.

    threadIdx.x blockIdx.x blockDim.x gridDim.x      where a thread is
    syncthreads() syncwarp()                         barriers of a block and of a warp
    shared.array(shape, dtype)                       memory of a block; shape 0: the bytes given at the launch
    atomic.add(array, index, value), atomic.max      also of several blocks
    shfl_sync shfl_up_sync shfl_xor_sync ballot_sync popc     between the lanes of a warp
    """

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(f"cuda.{name} exists only inside a CUDA kernel that runs.")


cuda: Any = _Names()

FULL_WARP = 0xFFFFFFFF
# How a kernel of a single block is declared: it has the multiprocessor to itself.
ONE_BLOCK: dict[str, int] = {"block": 1024, "blocks_per_sm": 1, "registers": 64}


@dataclass(frozen=True, eq=False)
class DeviceFunction:
    """A function of kernels that uses the names of ``cuda``; inlined wherever it is called.

    lowering : a numba intrinsic that is compiled in its place, where LLVM can say better what the text says; else None.
    """

    py_func: Callable[..., Any]
    lowering: Any = None

    def __call__(self, *args: Any) -> Any:
        return self.py_func(*args)


def device_function(function: Callable[..., Any]) -> Any:
    """Mark a function as one that only CUDA kernels call."""
    return DeviceFunction(function)


def lowered_to(lowering: Any) -> Callable[[Callable[..., Any]], Any]:
    """As device_function, for one that has a ``lowering``."""
    return lambda function: DeviceFunction(function, lowering)


@dataclass(frozen=True, eq=False, kw_only=True)
class BlockStep(DeviceFunction):
    """What one block does between the large kernels; several such steps make a kernel (growth.py). All its threads call it.

    alone : the kernel that does nothing else, for tests.
    """

    alone: "CudaKernel"


@dataclass(frozen=True)
class ArgumentType:
    """The type of one kernel argument: a scalar (ndim 0) or a C-contiguous array.

    dtype : a NumPy dtype, or the name of a type that each launch chooses (see cuda_kernel).
    """

    dtype: Any
    ndim: int


@dataclass(frozen=True, eq=False)
class CudaKernel:
    """A kernel and how it is to be launched.

    arguments : type of each argument by name. choices : the types that a name may stand for, {"code": (uint8, uint16)}.
    block : threads of a block, at most. blocks_per_sm : blocks that share a multiprocessor; with ``block`` it bounds the
    registers.
    registers : ceiling that the compiled kernel keeps without spills (tests/kernels/test_compiled_kernels.py).
    uses_double : whether float64 instructions are meant. formula : the scalar function that a factory built the kernel around.
    """

    function: Callable[..., Any]
    arguments: dict[str, ArgumentType]
    block: int
    blocks_per_sm: int
    registers: int
    uses_double: bool
    choices: dict[str, tuple[np.dtype[Any], ...]]
    formula: Any = None
    name: str = field(init=False)

    def __post_init__(self) -> None:
        own = f"{self.function.__module__.rpartition('.')[2]}.{self.function.__name__}"
        formula = "" if self.formula is None else f"[{self.formula.py_func.__module__}.{self.formula.py_func.__qualname__}]"
        object.__setattr__(self, "name", own + formula)


def bind(function: Callable[..., Any], replace: Callable[[Any], Any]) -> Callable[..., Any]:
    """A copy of a function that sees replace(value) for every global and closure value that it names."""
    names = _names_in(function.__code__)
    bound = {name: replace(value) if name in names else value for name, value in function.__globals__.items()}
    cells = tuple(CellType(replace(cell.cell_contents)) for cell in function.__closure__ or ())
    return FunctionType(function.__code__, bound, function.__name__, function.__defaults__, cells)


def _names_in(code: CodeType) -> set[str]:
    inner = (_names_in(constant) for constant in code.co_consts if isinstance(constant, CodeType))
    return set(code.co_names).union(*inner)


_kernels: list[CudaKernel] = []


def all_kernels() -> list[CudaKernel]:
    """Every kernel defined so far, those of factories once for each formula they were called with."""
    return list(_kernels)


def cuda_kernel(
    arguments: str, *, block: int = 256, blocks_per_sm: int | None = None, registers: int = 32, uses_double: bool = False,
    formula: Any = None, **choices: tuple[Any, ...],
) -> Callable[[Callable[..., Any]], CudaKernel]:  # fmt: skip
    """Declare a CUDA kernel.

    arguments : "rows: int32[:, :], codes: code[:, :], n: int64": C-contiguous arrays by dtype and dimensions, and scalars.
        A dtype is NumPy's name, the name of a struct (structs.NODE), or one of ``choices``.
    choices : code=(np.uint8, np.uint16) compiles the kernel for either, by the array that it is launched with.
    blocks_per_sm : None: as many as 2048 threads and 65536 registers of a multiprocessor allow. Others as CudaKernel.
    """

    def declare(function: Callable[..., Any]) -> CudaKernel:
        options = {name: tuple(np.dtype(t) for t in types) for name, types in choices.items()}
        resident = blocks_per_sm or min(2048, 65536 // registers) // block
        parsed = _parsed_for(function, arguments, options)
        kernel = CudaKernel(function, parsed, block, resident, registers, uses_double, options, formula)
        _kernels.append(kernel)
        return kernel

    return declare


def block_step(arguments: str, *, uses_double: bool = False) -> Callable[[Callable[..., Any]], Any]:
    """Declare a BlockStep. Arguments as cuda_kernel."""

    def declare(function: Callable[..., Any]) -> BlockStep:
        parsed = _parsed_for(function, arguments, {})
        alone = CudaKernel(function, parsed, **ONE_BLOCK, uses_double=uses_double, choices={})
        return BlockStep(function, alone=alone)

    return declare


def _parsed_for(function: Callable[..., Any], arguments: str, choices: dict[str, Any]) -> dict[str, ArgumentType]:
    parsed = _parse(arguments, choices)
    if list(parsed) != list(signature_of(function).parameters):
        raise TypeError(f"{function.__qualname__} takes {signature_of(function)}, its signature says {list(parsed)}.")
    return parsed


def _parse(arguments: str, choices: dict[str, Any]) -> dict[str, ArgumentType]:
    parsed = {}
    for part in arguments.replace(", :", ";:").replace("\n", " ").split(","):
        name, kind = (word.strip() for word in part.split(": ", 1))
        scalar_type, _, dimensions = kind.partition("[")
        struct = getattr(structs, scalar_type, None)
        if isinstance(struct, np.dtype):
            dtype: Any = struct
        else:
            dtype = scalar_type if scalar_type in choices else np.dtype(scalar_type)
        parsed[name] = ArgumentType(dtype, dimensions.count(":"))
    return parsed


# ---------------------------------------------------------------------------------------------------------------------
# What many kernels do


@device_function
def thread_number():
    """uint32: this thread's number in the grid."""
    return uint32(uint32(cuda.blockIdx.x) * uint32(cuda.blockDim.x) + uint32(cuda.threadIdx.x))


@device_function
def n_threads():
    """uint32: threads of the grid."""
    return uint32(uint32(cuda.gridDim.x) * uint32(cuda.blockDim.x))


@device_function
def warp_number():
    """int64: this warp's number in the grid."""
    return int64(int64(cuda.blockIdx.x) * int64(cuda.blockDim.x >> 5) + int64(cuda.threadIdx.x >> 5))


@device_function
def n_warps():
    """int64: warps of the grid."""
    return int64(int64(cuda.gridDim.x) * int64(cuda.blockDim.x >> 5))


@device_function
def lane_number():
    """int32: this thread's number in its warp."""
    return cuda.threadIdx.x & 31


@device_function
def warp_sum(value):
    """Sum over the lanes of the warp, in every lane. All lanes call it."""
    step = 16
    while step > 0:
        value += cuda.shfl_xor_sync(FULL_WARP, value, step)
        step >>= 1
    return value


@device_function
def warp_max(value):
    """Maximum over the lanes of the warp, in every lane. All lanes call it."""
    step = 16
    while step > 0:
        value = max(value, cuda.shfl_xor_sync(FULL_WARP, value, step))
        step >>= 1
    return value


@device_function
def warp_prefix(value):
    """Sum over this lane and those before it. All lanes call it."""
    step = 1
    while step < 32:
        before = cuda.shfl_up_sync(FULL_WARP, value, step)
        if lane_number() >= step:
            value += before
        step <<= 1
    return value


@device_function
def block_sum(value, partial):
    """int64 sum over the threads of the block, in every thread. All threads call it. partial : int64 (32,) of shared memory."""
    value = warp_sum(value)
    cuda.syncthreads()  # an earlier call's sums have been read
    if lane_number() == 0:
        partial[cuda.threadIdx.x >> 5] = value
    cuda.syncthreads()  # all warps' sums are there
    total = int64(0)
    for warp in range(cuda.blockDim.x >> 5):
        total += partial[warp]
    return total


@device_function
def block_max(value, partial):
    """int64 maximum of int64 or int32 values ≥ 0 over the threads of the block; else as block_sum."""
    value = warp_max(value)
    cuda.syncthreads()  # an earlier call's maxima have been read
    if lane_number() == 0:
        partial[cuda.threadIdx.x >> 5] = value
    cuda.syncthreads()  # all warps' maxima are there
    largest = int64(0)
    for warp in range(cuda.blockDim.x >> 5):
        largest = max(largest, partial[warp])
    return largest


@device_function
def block_prefix(value, partial):
    """(int64 sum over the threads before this one, sum over all). All threads call it. partial : int64 (32,) of shared memory."""
    inclusive = warp_prefix(value)
    cuda.syncthreads()  # an earlier call's sums have been read
    if lane_number() == 31:
        partial[cuda.threadIdx.x >> 5] = inclusive
    cuda.syncthreads()  # all warps' sums are there
    before, total = int64(0), int64(0)
    for warp in range(cuda.blockDim.x >> 5):
        if warp < cuda.threadIdx.x >> 5:
            before += partial[warp]
        total += partial[warp]
    return before + inclusive - value, total


@device_function
def owner_of(first, n, item):
    """The i < n with first[i] ≤ item < first[i + 1]: whose an item of a work list is.

    first : int64 (≥ n + 1,), ascending: owner i has items first[i] to first[i + 1] − 1, perhaps none.
    """
    low, high = int64(0), int64(n)
    while low + 1 < high:
        middle = (low + high) >> 1
        if first[middle] <= item:
            low = middle
        else:
            high = middle
    return low


@device_function
def owner_by_block(first, n, item, partial):
    """owner_of, found by the block: one load that waits for the one before for every 32 times as many owners, not for every twice
    as many. All threads call it with the same arguments. partial : int64 (≥ 1,) of shared memory."""
    low, n_left = int64(0), int64(n)
    while n_left > 1:
        step, end = (n_left + 31) >> 5, low + n_left
        at = low + int64(cuda.threadIdx.x) * step
        cuda.syncthreads()  # what lay in partial has been read
        if cuda.threadIdx.x < 32 and at < end:
            if first[at] <= item and (at + step >= end or first[at + step] > item):
                partial[0] = at
        cuda.syncthreads()  # the owner's part is known
        low = partial[0]
        n_left = min(step, end - low)
    return low
