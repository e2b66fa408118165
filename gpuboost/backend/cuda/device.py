"""The machine under the CUDA backend: its memory, its arrays, and how a kernel is launched on it.

``Device`` is what the CUDA backend asks for. ``CupyDevice`` is a GPU through CuPy; tests/simulator.py has one that needs none.
Kernels run on CuPy's current stream in the order of their launches. ``fetch`` and ``PendingCopy.wait`` make the host wait for
them; an array of the host may be changed when ``put`` or ``write`` returns. ``start_copy`` and ``start_upload`` run beside them.
"""

import math
import os
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np

from gpuboost.backend.cuda.compiler import compile_kernel
from gpuboost.backend.cuda.kept import CompiledKernel
from gpuboost.config import log
from gpuboost.errors import DeviceNotFoundError, install
from gpuboost.kernels.cuda_common import CudaKernel

__all__ = [
    "CupyDevice", "Device", "Mark", "PendingCopy", "count_devices", "find_device", "has_gpu", "side_by_side", "usable_device",
]  # fmt: skip

Array = Any

STAGED_BYTES = 2**20  # of an array of the host up to which a copy is made rather than waited for
SYSTEM_SHARED_BYTES = 1024  # of each block, kept by CUDA from 8.0 on (CUDA C++ Programming Guide, shared memory)
PROFILER = "NVTX_INJECTION64_PATH"  # the environment variable by which a tool, as Nsight Systems, gives NVTX something to call
CAPTURE_ERRORS = range(900, 909)  # cudaErrorStreamCaptureUnsupported to …WrongThread, and the driver's of the same numbers
MAX_PREPARED = 4096  # launches kept to be repeated, 2 to 3 KB each
THREADS_PER_SM = 2048  # of the larger GPUs


Shapes = dict[str, tuple[tuple[int, ...], "np.dtype | type"]]  # shape and dtype of arrays by name


def side_by_side(shapes: Shapes) -> dict[str, slice]:
    """Bytes of arrays in one piece of memory, each from a multiple of 16 on."""
    places, first = {}, 0
    for name, (shape, dtype) in shapes.items():
        places[name] = slice(first, first + math.prod(shape) * np.dtype(dtype).itemsize)
        first = -(-places[name].stop // 16) * 16
    return places


class PendingCopy(ABC):
    """An array on its way to the host."""

    @abstractmethod
    def wait(self) -> np.ndarray:
        """The copy, once it and all work before it are done."""


class Mark(ABC):
    """A place in the order of the device's work."""

    @abstractmethod
    def wait(self) -> None:
        """Let the host wait until all work before it is done."""


class Device(ABC):
    """One GPU, or what stands in for it.

    xp : the array library whose arrays live there (arrays of structs come from ``empty`` and ``put`` only). memory_name : where
    they are, "cuda:0". n_multiprocessors, shared_limit : multiprocessors, and bytes of shared memory that a block may ask for.
    """

    name: str
    memory_name: str
    xp: Any
    n_multiprocessors: int
    shared_limit: int

    # -- Memory -----------------------------------------------------------------------------------------------------

    @abstractmethod
    def empty(self, shape: Any, dtype: Any) -> Array:
        """A new C-contiguous array of unspecified content. Raises MemoryError with the bytes asked for and free."""

    def zeros(self, shape: Any, dtype: Any) -> Array:
        array = self.empty(shape, dtype)
        self.clear(array)
        return array

    def empty_together(self, shapes: Shapes) -> tuple[Array, dict[str, Array]]:
        """New arrays in one piece of memory, uint8, which goes to the host in one copy: that, and the arrays by name."""
        places = side_by_side(shapes)
        memory = self.empty(max(place.stop for place in places.values()), np.uint8)
        return memory, {name: self._view(memory[places[name]], *shape) for name, shape in shapes.items()}

    def _view(self, memory: Array, shape: tuple[int, ...], dtype: Any) -> Array:
        return memory.view(dtype).reshape(shape)

    @abstractmethod
    def clear(self, array: Array) -> None:
        """Set all bytes of a contiguous array to 0."""

    @abstractmethod
    def put(self, array: Any, dtype: Any = None) -> Array:
        """A C-contiguous array on the device; the same one where it is that already."""

    @abstractmethod
    def write(self, array: Array, values: np.ndarray) -> None:
        """Overwrite a contiguous array with as many values of its dtype, after the work launched so far. Up to STAGED_BYTES are
        not waited for."""

    @abstractmethod
    def fetch(self, array: Array) -> np.ndarray:
        """The array on the host. Waits for the device."""

    @abstractmethod
    def start_copy(self, array: Array) -> PendingCopy:
        """Begin to copy a contiguous array to the host, after the work launched so far, without waiting, and beside the work
        launched later: what overwrites the array is to be launched behind ``order_behind``."""

    @abstractmethod
    def page_locked(self, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        """A new array of the host, of unspecified content, for ``start_upload`` to copy from."""

    @abstractmethod
    def mark(self) -> Mark:
        """The place behind the work launched so far."""

    @abstractmethod
    def start_upload(self, parts: Iterable[tuple[np.ndarray, Array]], behind: Mark) -> Mark:
        """Begin to copy page-locked arrays into contiguous ones of the device, once the work before ``behind`` is done and beside
        all other work. Returns the place behind the copies: what reads them is to be launched behind ``order_behind``, and until
        then the host's arrays may not change."""

    @abstractmethod
    def order_behind(self, place: PendingCopy | Mark) -> None:
        """Let the work launched from now on begin after this copy, or behind this place. The host does not wait."""

    @abstractmethod
    def free_bytes(self) -> int:
        """Memory that can still be allocated."""

    @abstractmethod
    def current(self) -> Any:
        """Context manager in which arrays are allocated and kernels launched on this device."""

    def phase(self, name: str) -> AbstractContextManager[object]:
        """Context manager of a stretch of the host's work, which a profiler shows by this name."""
        return nullcontext()

    # -- Work -------------------------------------------------------------------------------------------------------

    def block(self, kernel: CudaKernel) -> int:
        """Threads of the kernel's blocks here."""
        return kernel.block

    def launch(
        self, kernel: CudaKernel, *arguments: Any, threads: int = 0, warps: int = 0, blocks: int = 0, shared: int = 0,
        prepared: dict[Any, Callable[[], None]] | None = None,
    ) -> None:  # fmt: skip
        """Launch a kernel. Its grid covers the given work (threads, warps or blocks), at most what could run at once. Of one
        block and some threads: a block of hardly more than these, since all of its warps wait for each other.

        shared : bytes of dynamic shared memory of a block. prepared : launches made before, by their arguments; checking and
        packing those costs 10 to 30 µs, looking them up 5. The arrays must be the same objects, and are kept alive by the dict.
        """
        if prepared is None:
            self._prepared(kernel, arguments, threads, warps, blocks, shared)()
            return
        key = kernel, threads, warps, blocks, shared, *[id(a) if hasattr(a, "shape") else a for a in arguments]
        if (launch := prepared.get(key)) is None:
            if len(prepared) >= MAX_PREPARED:  # deep trees bring ever new sizes
                prepared.clear()
            launch = prepared[key] = self._prepared(kernel, arguments, threads, warps, blocks, shared)
        launch()

    def _prepared(
        self, kernel: CudaKernel, arguments: tuple[Any, ...], threads: int, warps: int, blocks: int, shared: int
    ) -> Callable[[], None]:
        block = self.block(kernel)
        if blocks == 1 and threads > 0:
            block, threads = min(block, max(32, 1 << (threads - 1).bit_length())), 0
        wanted, choice = max(blocks, -(-warps * 32 // block), -(-threads // block), 1), _choice(kernel, arguments)
        at_once = self.n_multiprocessors * self._resident_blocks(kernel, choice, block, shared)
        return self._prepare(kernel, choice, min(wanted, at_once), block, shared, arguments)

    def _resident_blocks(self, kernel: CudaKernel, choice: dict[str, Any], block: int, shared: int) -> int:
        """Blocks that a multiprocessor runs at once. Each strides over the work: more would wait until the first are done, and
        leave a part of the multiprocessors idle at the end."""
        return THREADS_PER_SM // block

    def record(self, work: Callable[[], None]) -> Callable[[], None] | None:
        """A function that does in one go, any number of times, what ``work`` launches and clears; None where that is refused.

        work : called once, here, and nothing of it is done. It may neither allocate nor wait, nor copy between device and host.
        """
        return None

    @abstractmethod
    def _prepare(
        self, kernel: CudaKernel, choice: dict[str, Any], grid: int, block: int, shared: int, arguments: tuple[Any, ...]
    ) -> Callable[[], None]:
        """A function that makes this launch, any number of times."""


def _choice(kernel: CudaKernel, arguments: tuple[Any, ...]) -> dict[str, np.dtype[Any]]:
    """What each open type of the kernel's signature stands for, from the arrays at hand; checks types and layout of all."""
    possible = dict(kernel.choices)
    if len(arguments) != len(kernel.arguments):
        raise TypeError(f"{kernel.name} takes {len(kernel.arguments)} arguments, got {len(arguments)}.")
    for (name, expected), value in zip(kernel.arguments.items(), arguments):
        if expected.ndim == 0:
            continue
        dtypes = possible[expected.dtype] if isinstance(expected.dtype, str) else (expected.dtype,)
        if value.ndim != expected.ndim or value.dtype not in dtypes or not value.flags.c_contiguous:
            raise TypeError(
                f"{kernel.name}: {name} must be a C-contiguous {' or '.join(map(str, dtypes))} array of {expected.ndim} "
                f"dimensions, got {value.dtype} {value.shape}, strides {value.strides}."
            )
        if isinstance(expected.dtype, str):
            possible[expected.dtype] = (value.dtype,)
    return {name: dtypes[0] for name, dtypes in possible.items()}


# ---------------------------------------------------------------------------------------------------------------------
# CuPy


class CupyDevice(Device):
    """A CUDA GPU through CuPy, on CuPy's current stream."""

    def __init__(self, number: int) -> None:
        import cupy

        self.xp = cupy
        self.number = number
        with cupy.cuda.Device(number):
            facts = cupy.cuda.runtime.getDeviceProperties(number)
        self.name = facts["name"].decode()
        self.memory_name = f"cuda:{number}"
        self.n_multiprocessors = facts["multiProcessorCount"]
        self.shared_limit = facts["sharedMemPerBlockOptin"]
        self.capability = facts["major"], facts["minor"]
        self._shared_of_all = facts["sharedMemPerMultiprocessor"]
        self._functions: dict[Any, Any] = {}
        self._shared_allowed: dict[int, int] = {}
        self._staged: deque[tuple[Any, Any]] = deque()  # event behind a copy, and the pinned memory that it reads
        self._is_profiled = PROFILER in os.environ and cupy.cuda.nvtx.available
        self._copy_stream: Any = None  # made when it is needed, with this device current
        self._lock = threading.Lock()
        self._own = threading.local()  # is_bound : whether the thread has this device's context, without which it cannot launch

    def empty(self, shape: Any, dtype: Any) -> Array:
        if (dtype := np.dtype(dtype)).names is not None:
            return _Structs(self.empty(int(np.prod(shape)) * dtype.itemsize, np.uint8), dtype)
        try:
            return self.xp.empty(shape, dtype)
        except self.xp.cuda.memory.OutOfMemoryError:
            self.xp.get_default_memory_pool().free_all_blocks()
        try:
            return self.xp.empty(shape, dtype)
        except self.xp.cuda.memory.OutOfMemoryError:
            n_bytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
            raise out_of_memory(n_bytes, self.free_bytes()) from None

    def clear(self, array: Array) -> None:
        array.data.memset_async(0, array.nbytes, self.xp.cuda.get_current_stream())

    def put(self, array: Any, dtype: Any = None) -> Array:
        if isinstance(array, _Structs):
            return array
        if isinstance(array, np.ndarray):
            array = np.ascontiguousarray(array)
            target = self.empty(array.shape, array.dtype)
            self.write(target, array)
            array = target
        if isinstance(array, _Structs):
            return array
        array = self.xp.asarray(array)
        if array.device.id != self.number:
            array = array.copy()  # to the current device
        return self.xp.ascontiguousarray(array, dtype)

    def write(self, array: Array, values: np.ndarray) -> None:
        values, cuda = np.ascontiguousarray(values), self.xp.cuda
        if array.dtype != values.dtype or array.size != values.size:
            raise TypeError(f"{array.size} values of {array.dtype} cannot be overwritten by {values.size} of {values.dtype}.")
        if values.size == 0:
            return
        stream = cuda.get_current_stream()
        if values.nbytes > STAGED_BYTES:
            array.data.copy_from_host_async(values.ctypes.data, values.nbytes, stream)
            stream.synchronize()
            return
        pinned, event = cuda.alloc_pinned_memory(values.nbytes), cuda.Event(disable_timing=True)
        source = np.frombuffer(pinned, np.uint8, values.nbytes)
        source[:] = values.reshape(-1).view(np.uint8)
        array.data.copy_from_host_async(source.ctypes.data, values.nbytes, stream)
        event.record(stream)
        with self._lock:
            self._staged.append((event, pinned))
            while self._staged and self._staged[0][0].done:
                self._staged.popleft()

    def fetch(self, array: Array) -> np.ndarray:
        if isinstance(array, _Structs):
            return array.raw.get().view(array.dtype)
        return array.get() if isinstance(array, self.xp.ndarray) else np.asarray(array)

    def _view(self, memory: Array, shape: tuple[int, ...], dtype: Any) -> Array:
        return _Structs(memory, np.dtype(dtype)) if np.dtype(dtype).names else super()._view(memory, shape, dtype)

    def start_copy(self, array: Array) -> "_CupyCopy":
        return _CupyCopy(self.xp.cuda, array, self._stream_of_copies())

    def _stream_of_copies(self) -> Any:
        if self._copy_stream is None:
            self._copy_stream = self.xp.cuda.Stream(non_blocking=True)
        return self._copy_stream

    def page_locked(self, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        n, cuda = math.prod(shape), self.xp.cuda  # not from CuPy's pool, which would keep what is given back
        memory = cuda.PinnedMemoryPointer(cuda.PinnedMemory(max(n, 1) * np.dtype(dtype).itemsize), 0)
        return np.frombuffer(memory, dtype, n).reshape(shape)

    def mark(self) -> "_CupyMark":
        return _CupyMark(self.xp.cuda, self.xp.cuda.get_current_stream())

    def start_upload(self, parts: Iterable[tuple[np.ndarray, Array]], behind: Mark) -> "_CupyMark":
        assert isinstance(behind, _CupyMark)
        stream = self._stream_of_copies()
        stream.wait_event(behind.done)
        for source, target in parts:
            target.data.copy_from_host_async(source.ctypes.data, source.nbytes, stream)
        return _CupyMark(self.xp.cuda, stream)

    def order_behind(self, place: PendingCopy | Mark) -> None:
        assert isinstance(place, _CupyCopy | _CupyMark)
        self.xp.cuda.get_current_stream().wait_event(place.done)

    def free_bytes(self) -> int:
        pool = self.xp.get_default_memory_pool()
        pool.free_all_blocks()  # what the pool keeps on are parts of blocks in use, too small for what is asked for now
        free = self.xp.cuda.runtime.memGetInfo()[0]
        return min(free, pool.get_limit() - pool.total_bytes()) if pool.get_limit() else free

    def _resident_blocks(self, kernel: CudaKernel, choice: dict[str, Any], block: int, shared: int) -> int:
        ask = self.xp.cuda.driver.occupancyMaxActiveBlocksPerMultiprocessor
        return max(ask(self._function(kernel, choice, shared), block, shared), 1)

    def _prepare(self, kernel, choice, grid, block, shared, arguments) -> Callable[[], None]:
        driver, current_stream = self.xp.cuda.driver, self.xp.cuda.get_current_stream
        function = self._function(kernel, choice, shared)
        values = pack_arguments(kernel, arguments)
        pointers = _slots(len(values)) + np.uint64(values.ctypes.data)
        launch, address = (function, grid, 1, 1, block, 1, 1, shared), pointers.ctypes.data

        def run() -> None:
            driver.launchKernel(*launch, current_stream().ptr, address, 0)

        run.keeps = arguments, values, pointers  # type: ignore[attr-defined]
        return run

    def record(self, work: Callable[[], None]) -> Callable[[], None] | None:
        """A CUDA graph, captured on a stream of its own: on the default one nothing can be. It is launched on the current one."""
        cuda = self.xp.cuda
        errors = cuda.runtime.CUDARuntimeError, cuda.driver.CUDADriverError
        try:
            with cuda.Stream(non_blocking=True) as stream:
                stream.begin_capture(cuda.runtime.streamCaptureModeThreadLocal)  # other threads may allocate meanwhile
                try:
                    work()
                except BaseException:
                    with suppress(*errors):  # that the capture is invalid says less than what made it so
                        stream.end_capture()
                    raise
                run: Callable[[], None] = stream.end_capture().launch
        except errors as error:
            if error.status not in CAPTURE_ERRORS:
                raise
            log(1, f"this GPU takes what a tree launches one by one, since it cannot be recorded ({error}).")
            return None
        return run

    def _allow_shared(self, function: int, shared: int, blocks_per_sm: int) -> None:
        """Let a function have so much dynamic shared memory, which beyond 48 KB must be allowed, and ask for a split of each
        multiprocessor's memory into cache and shared that has room for its blocks: by default the driver sees one block."""
        driver = self.xp.cuda.driver
        driver.funcSetAttribute(function, driver.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, shared)
        percent = min(100, -(-100 * blocks_per_sm * (shared + SYSTEM_SHARED_BYTES) // self._shared_of_all))
        driver.funcSetAttribute(function, driver.CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, percent)
        self._shared_allowed[function] = shared

    def _function(self, kernel: CudaKernel, choice: dict[str, Any], shared: int) -> int:
        """The loaded kernel, which may have so much dynamic shared memory."""
        function: int = self._load((kernel, *choice.values()), kernel, choice).ptr
        if shared > self._shared_allowed.get(function, 0):
            self._allow_shared(function, shared, kernel.blocks_per_sm)
        return function

    def _load(self, key: Any, kernel: CudaKernel, choice: dict[str, Any]) -> Any:
        with self._lock:
            if key not in self._functions:
                compiled: CompiledKernel = compile_kernel(kernel, choice, self.capability)
                module = self.xp.cuda.function.Module()
                module.load(compiled.image)
                self._functions[key] = module.get_function(compiled.symbol)
        return self._functions[key]

    def current(self) -> Any:
        device = self.xp.cuda.Device(self.number)
        if not hasattr(self._own, "is_bound"):  # CuPy leaves it to the first call that is not a launch
            with device:
                self.xp.cuda.runtime.free(0)
            self._own.is_bound = True
        return device

    def phase(self, name: str) -> AbstractContextManager[object]:
        return self._range(name) if self._is_profiled else nullcontext()

    @contextmanager
    def _range(self, name: str) -> Iterator[None]:
        """An NVTX range."""
        self.xp.cuda.nvtx.RangePush(name)
        try:
            yield
        finally:
            self.xp.cuda.nvtx.RangePop()


class _Structs:
    """A one-dimensional array of structs, which CuPy has not: bytes on the device, with the little that is asked of it."""

    ndim = 1
    flags = SimpleNamespace(c_contiguous=True)

    def __init__(self, raw: Any, dtype: np.dtype[Any]) -> None:
        self.raw, self.dtype, self.itemsize, self.nbytes = raw, dtype, dtype.itemsize, raw.nbytes
        self.size = raw.nbytes // dtype.itemsize
        self.shape, self.strides = (self.size,), (dtype.itemsize,)

    @property
    def data(self) -> Any:
        return self.raw.data

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, part: slice) -> "_Structs":
        return _Structs(self.raw[self._bytes(part)], self.dtype)

    def __setitem__(self, part: slice, values: "_Structs") -> None:
        self.raw[self._bytes(part)] = values.raw

    def _bytes(self, part: slice) -> slice:
        first, last, _ = part.indices(self.size)
        return slice(first * self.itemsize, last * self.itemsize)


class _CupyMark(Mark):
    """done : an event."""

    def __init__(self, cuda: Any, stream: Any) -> None:
        self.done = cuda.Event(disable_timing=True)
        self.done.record(stream)

    def wait(self) -> None:
        self.done.synchronize()


class _CupyCopy(PendingCopy):
    """done : the event behind the copy. Until then the array is kept: its memory may not become another's."""

    def __init__(self, cuda: Any, array: Array, stream: Any) -> None:
        self._array = array
        self._pinned = cuda.alloc_pinned_memory(max(array.nbytes, 1))
        self._host = np.frombuffer(self._pinned, array.dtype, array.size).reshape(array.shape)
        ready, self.done = cuda.Event(disable_timing=True), cuda.Event(disable_timing=True)
        ready.record(cuda.get_current_stream())
        stream.wait_event(ready)
        array.data.copy_to_host_async(self._host.ctypes.data, array.nbytes, stream)
        self.done.record(stream)

    def __del__(self) -> None:
        if hasattr(self, "done"):
            self.done.synchronize()  # the pinned memory goes back to its pool: nothing may still be written to it

    def wait(self) -> np.ndarray:
        self.done.synchronize()
        return self._host.copy()


def pack_arguments(kernel: CudaKernel, arguments: tuple[Any, ...]) -> np.ndarray:
    """The kernel's parameters as numba's CUDA target lays them out, one 8-byte slot for each.

    An array is: two null pointers (owner, parent), number of elements, bytes of one, pointer, shape, strides.
    """
    words: list[int] = []
    for expected, value in zip(kernel.arguments.values(), arguments):
        if expected.ndim:
            words += (0, 0, value.size, value.itemsize, value.data.ptr, *value.shape, *value.strides)
        elif expected.dtype.kind == "f":
            words.append(int(expected.dtype.type(value).view(f"u{expected.dtype.itemsize}")))
        else:
            words.append(int(value))
    return np.array([w & 0xFFFFFFFFFFFFFFFF for w in words], np.uint64)


@cache
def _slots(n: int) -> np.ndarray:
    return np.arange(n, dtype=np.uint64) * np.uint64(8)


def out_of_memory(needed: int, free: int) -> MemoryError:
    """The error for a training or table that does not fit on the device."""
    return MemoryError(
        f"the GPU has {free / 2**20:.0f} MiB free, {needed / 2**20:.0f} MiB are needed. Use fewer rows or columns, a smaller "
        "max_bin, free other arrays (cupy.get_default_memory_pool().free_all_blocks()), or device='cpu'."
    )


def has_gpu() -> bool:
    """Whether CuPy is installed and sees a GPU."""
    try:
        import cupy
    except ImportError:
        return False
    return bool(cupy.is_available())


def usable_device() -> str | None:
    """What keeps kernels from running on the first GPU; None: nothing does. Compiles, or loads, and launches one."""
    from gpuboost.kernels.nodes import start_round_kernel
    from gpuboost.kernels.structs import PROGRESS

    try:
        device = find_device(0)
        with device.current():
            progress = device.zeros(1, PROGRESS)
            device.launch(start_round_kernel, 7, 0, 0.5, progress, threads=1)
            return None if device.fetch(progress)["round"][0] == 7 else "a kernel did not do its work"
    except Exception as error:  # noqa: BLE001 - whatever it is, it is told
        return f"{type(error).__name__}: {error}"


@cache
def find_device(number: int) -> CupyDevice:
    """The GPU of this number. Raises DeviceNotFoundError, saying what is missing and how to get it."""
    count = count_devices()
    if number >= count:
        raise DeviceNotFoundError(f"device='cuda:{number}' was requested, but the CUDA devices are cuda:0 to cuda:{count - 1}.")
    return CupyDevice(number)


def count_devices() -> int:
    """How many GPUs there are, one at least. Raises DeviceNotFoundError, saying what is missing and how to get it."""
    try:
        import cupy
    except ImportError as error:
        raise DeviceNotFoundError(
            f"device='cuda' needs CuPy and numba-cuda ({error}): {install('cuda13')} (or [cuda12] for CUDA 12). "
            "Or use device='cpu'."
        ) from None
    try:
        count = cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        count, reason = 0, f" ({error})"
    else:
        reason = ""
    if count == 0:
        raise DeviceNotFoundError(
            f"device='cuda' was requested but no CUDA device was found{reason}. "
            "Use device='cpu', or check that nvidia-smi lists a GPU."
        )
    return count
