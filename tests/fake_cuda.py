"""CUDA as CuPy offers it, on a machine without a GPU: streams, events, memory, launches; each as late as it may be.

Work that is put on a stream is done when somebody waits for it and not before, in the order of that stream alone. So whoever does
not wait, or does not let one stream wait for another, computes with what was there before; pinned memory is overwritten when it
is given back. (For work that CuPy itself does, as ``a + b``, the current stream is run first: tests/fake_cupy.py.)

While a stream captures, its work goes into a graph. What CUDA refuses then (to wait, to allocate, to load a kernel, work of other
streams or beside theirs) raises CUDARuntimeError, and there will be no graph.

FakeGpu is the CUDA backend's device on it: CupyDevice, whose kernels run in the simulator. ``waits`` counts waits of the host.
"""

import ctypes
import threading
import weakref
from collections import deque
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
from simulator import POISON, simulate

from gpuboost.backend.cuda.device import CupyDevice

FUNCTION_ATTRIBUTES = {"CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES": 8,
                       "CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT": 9}  # fmt: skip


class CudaError(RuntimeError):
    """status : CUDA's number of it."""

    def __init__(self, status: int, text: str = "") -> None:
        super().__init__(text)
        self.status = status


class CUDARuntimeError(CudaError):
    """cupy.cuda.runtime.CUDARuntimeError."""


class CUDADriverError(CudaError):
    """cupy.cuda.driver.CUDADriverError."""


CAPTURE_UNSUPPORTED, CAPTURE_INVALIDATED = 900, 901  # cudaErrorStreamCapture…


class Graph:
    """cupy.cuda.Graph. operations : as Machine's."""

    def __init__(self, machine: "Machine", stream: "Stream") -> None:
        self.machine, self.stream = machine, stream
        self.work: list[Any] = []
        self.operations: list[str] = []
        self.is_broken = False

    def launch(self) -> None:
        self.machine.note("graph")
        for step in self.work:
            self.machine.stream.add(step)


class Own(threading.local):
    """What each thread has for itself: the devices and streams that it has made current, the innermost last; the devices whose
    contexts it has; the graph that it captures."""

    def __init__(self, machine: "Machine") -> None:
        self.devices, self.streams, self.contexts = [0], [machine.null], set[int]()
        self.graph: Graph | None = None


class Machine:
    """What lives as long as a fake CuPy module: streams by number, memory, compiled kernels, what was counted."""

    def __init__(self) -> None:
        self.lock, self.streams = threading.RLock(), []
        self.kept: list[np.ndarray] = []  # memory is never reused, so that late work finds it
        self.functions: list[Any] = []
        self.attributes: list[tuple[int, int, int]] = []  # function, attribute, value
        self.waits = 0
        self.hurries = False  # whether kernels are done as soon as what their stream waits for allows it
        self.groups: dict[Any, Any] = {}  # of NCCL, by identity
        self.ranges: list[str | None] = []  # of NVTX: names where they begin, None where they end
        self.operations: list[str] = []  # kernels by name, clears, copies, graphs, and "cupy" for what CuPy computes
        self.graphs: list[Graph] = []
        self.null = Stream(self, device=0)
        self.own = Own(self)

    @property
    def device(self) -> int:
        return self.own.devices[-1]

    @property
    def stream(self) -> "Stream":
        return self.own.streams[-1]

    def note(self, operation: str) -> None:
        (self.own.graph or self).operations.append(operation)

    def refuse_in_capture(self, what: str) -> None:
        if self.own.graph is not None:
            self.own.graph.is_broken = True
            raise CUDARuntimeError(CAPTURE_UNSUPPORTED, f"{what} while a stream is capturing")

    def memory(self, shape: Any, dtype: Any, order: str = "C") -> np.ndarray:
        self.refuse_in_capture("memory is allocated")
        array = np.empty(shape, dtype, order)
        array.reshape(-1, order=order).view(np.uint8).fill(POISON)
        self.kept.append(array)
        return array

    def pinned(self, n_bytes: int) -> np.ndarray:
        """Memory of the host that is overwritten when it is given back."""
        memory = self.memory(n_bytes, np.uint8)
        lent = memory[:]
        weakref.finalize(lent, memory.fill, POISON)
        return lent

    def launch(
        self, function: int, gx: int, gy: int, gz: int, bx: int, by: int, bz: int, shared: int, stream: int, parameters: int,
        extra: int,
    ) -> None:  # fmt: skip
        """cuLaunchKernel: arguments are read at once, the work is done later."""
        assert (gy, gz, by, bz, extra) == (1, 1, 1, 1, 0)
        kernel, choice, device, run = self.functions[function]
        assert device in self.own.contexts, "a launch alone gives a thread no context"
        assert device == self.device and (stream == 0 or self.streams[stream].device == device), "the current device is another"
        arguments = unpacked(kernel, choice, parameters)
        self.note(kernel.name)
        self.streams[stream].add(lambda: run(kernel, *arguments, grid=gx, block=bx, shared=shared))
        if self.hurries and self.own.graph is None:
            self.streams[stream].run()


def unpacked(kernel: Any, choice: Any, parameters: int) -> list[Any]:
    """Arrays and scalars of a launch, from what pack_arguments has laid out (backend/cuda/device.py)."""
    words, arguments = iter(range(parameters, 2**63, 8)), []

    def word() -> int:
        return ctypes.c_uint64.from_address(ctypes.c_uint64.from_address(next(words)).value).value

    for expected in kernel.arguments.values():
        dtype = np.dtype(choice[expected.dtype] if isinstance(expected.dtype, str) else expected.dtype)
        if expected.ndim == 0:
            arguments.append(np.array([word()], np.uint64).view(np.uint8)[: dtype.itemsize].view(dtype)[0])
            continue
        owner, parent, size, itemsize, address = (word() for _ in range(5))
        shape = tuple(word() for _ in range(expected.ndim))
        strides = tuple(word() for _ in range(expected.ndim))
        array = np.ndarray(shape, dtype, memory_at(address, size * itemsize))
        assert (owner, parent, array.size, array.itemsize) == (0, 0, size, itemsize) and (size == 0 or strides == array.strides)
        arguments.append(array)
    return arguments


def memory_at(address: int, n_bytes: int) -> np.ndarray:
    return np.frombuffer((ctypes.c_uint8 * n_bytes).from_address(address), np.uint8) if n_bytes else np.empty(0, np.uint8)


class Stream:
    """cupy.cuda.Stream, of the device that is current."""

    def __init__(self, machine: Machine, device: int) -> None:
        self.machine, self.device, self.ptr = machine, device, len(machine.streams)
        machine.streams.append(self)
        self._work: deque[Any] = deque()
        self.n_added = self.n_done = 0

    def __enter__(self) -> "Stream":
        self.machine.own.streams.append(self)
        return self

    def __exit__(self, *exception: Any) -> None:
        self.machine.own.streams.pop()

    def begin_capture(self, mode: str) -> None:
        assert mode == "thread local" and self.machine.own.graph is None
        if self is self.machine.null:
            raise RuntimeError("the legacy stream cannot be captured")
        self.machine.own.graph = Graph(self.machine, self)

    def end_capture(self) -> Graph:
        graph, self.machine.own.graph = self.machine.own.graph, None
        if graph.is_broken:
            raise CUDARuntimeError(CAPTURE_INVALIDATED, "the capture is invalid")
        self.machine.graphs.append(graph)
        return graph

    def add(self, work: Any) -> None:
        if (graph := self.machine.own.graph) is not None:
            if graph.stream is not self:
                self.machine.refuse_in_capture("another stream gets work")
            graph.work.append(work)
            return
        self._work.append(work)
        self.n_added += 1

    def run(self, n: int | None = None) -> None:
        """Do the first n that were ever added."""
        self.machine.refuse_in_capture("somebody waits for a stream")
        with self.machine.lock:
            while self.n_done < (self.n_added if n is None else n):
                self._work.popleft()()
                self.n_done += 1

    def synchronize(self) -> None:
        self.machine.waits += 1
        self.run()

    def wait_event(self, event: "Event") -> None:
        self.machine.refuse_in_capture("a stream waits for another one's event")
        stream, n = event.stream, event.n
        self.add(lambda: stream.run(n))


class Event:
    """cupy.cuda.Event: a place in the order of a stream."""

    def __init__(self, machine: Machine) -> None:
        self.stream, self.n = machine.null, 0

    def record(self, stream: Stream) -> None:
        self.stream.machine.refuse_in_capture("an event is recorded")
        self.stream, self.n = stream, stream.n_added

    @property
    def done(self) -> bool:
        return self.stream.n_done >= self.n

    def synchronize(self) -> None:
        self.stream.machine.waits += not self.done
        self.stream.run(self.n)


class MemoryPointer:
    """cupy.cuda.MemoryPointer of an array's first byte."""

    def __init__(self, ptr: int) -> None:
        self.ptr = ptr

    def memset_async(self, value: int, n_bytes: int, stream: Stream) -> None:
        stream.machine.note("clear")
        stream.add(lambda: ctypes.memset(self.ptr, value, n_bytes))

    def copy_to_host_async(self, host: int, n_bytes: int, stream: Stream) -> None:
        stream.machine.note("copy")
        stream.add(lambda: ctypes.memmove(host, self.ptr, n_bytes))

    def copy_from_host_async(self, host: int, n_bytes: int, stream: Stream) -> None:
        stream.machine.note("copy")
        stream.add(lambda: ctypes.memmove(self.ptr, host, n_bytes))


class MemoryPool:
    """cupy.cuda.MemoryPool: of ``device_bytes`` it holds ``held``, of which ``used`` are in use; ``fragments`` of the rest are
    parts of blocks in use."""

    device_bytes, limit, held, used, fragments = 2**34, 0, 0, 0, 0

    def free_all_blocks(self) -> None:
        self.held = self.used + self.fragments

    def free_bytes(self) -> int:
        return self.held - self.used

    def total_bytes(self) -> int:
        return self.held

    def get_limit(self) -> int:
        return self.limit


class Group:
    """cupy.cuda.nccl.NcclCommunicator: one device's place among those that know an identity, a thread each."""

    def __init__(self, machine: Machine, n_devices: int, identity: tuple[int, ...], rank: int) -> None:
        with machine.lock:
            self.barrier, self.arrays, devices = machine.groups.setdefault(
                identity, (threading.Barrier(n_devices), [None] * n_devices, set())
            )  # fmt: skip
            assert machine.device not in devices, "NCCL takes every GPU once"
            devices.add(machine.device)
        self.machine, self.rank = machine, rank
        self._wait()

    def allReduce(self, sent: int, received: int, count: int, dtype: int, operation: int, stream: int) -> None:
        """Does what the stream has to do before, and no other's work."""
        assert dtype == NCCL_INT64
        self.machine.streams[stream].run()
        self.machine.operations.append("nccl")
        self.arrays[self.rank] = memory_at(sent, 8 * count).view(np.int64).copy()
        self._wait()
        assert len({array.shape for array in self.arrays}) == 1, "NCCL would wait for ever"
        total = NCCL_OPERATIONS[operation].reduce(self.arrays)
        self._wait()
        memory_at(received, 8 * count).view(np.int64)[:] = total

    def abort(self) -> None:
        self.barrier.abort()

    def _wait(self) -> None:
        try:
            self.barrier.wait(60)
        except threading.BrokenBarrierError:
            raise RuntimeError("NCCL_ERROR_REMOTE_ERROR") from None


NCCL_INT64, NCCL_SUM, NCCL_MAX = 4, 0, 2
NCCL_OPERATIONS = {NCCL_SUM: np.add, NCCL_MAX: np.maximum}


def nccl(machine: Machine) -> ModuleType:
    module = ModuleType("cupy.cuda.nccl")
    module.__dict__.update(
        available=True, NCCL_INT64=NCCL_INT64, NCCL_SUM=NCCL_SUM, NCCL_MAX=NCCL_MAX,
        get_unique_id=lambda: tuple(np.random.default_rng().integers(-128, 128, 128).tolist()),
        NcclCommunicator=lambda *given: Group(machine, *given),
    )  # fmt: skip
    return module


def cuda(machine: Machine, device_type: type) -> SimpleNamespace:
    """What ``cupy.cuda`` holds, with fake_cupy.Device."""
    pool = MemoryPool()
    properties = {"name": b"fake GPU", "multiProcessorCount": 2, "sharedMemPerBlockOptin": 96 * 1024, "major": 9, "minor": 0,
                  "sharedMemPerMultiprocessor": 228 * 1024}  # fmt: skip
    return SimpleNamespace(
        Device=device_type, machine=machine, pool=pool, nccl=nccl(machine),
        Stream=lambda non_blocking=False: Stream(machine, machine.device), Event=lambda disable_timing=False: Event(machine),
        get_current_stream=lambda: machine.stream, alloc_pinned_memory=machine.pinned,
        PinnedMemory=machine.pinned, PinnedMemoryPointer=lambda memory, offset: memory[offset:],
        memory=SimpleNamespace(OutOfMemoryError=MemoryError),
        nvtx=SimpleNamespace(available=True, RangePush=machine.ranges.append, RangePop=lambda: machine.ranges.append(None)),
        runtime=SimpleNamespace(
            streamCaptureModeThreadLocal="thread local", getDeviceCount=lambda: 2,
            deviceGetPCIBusId=lambda number: f"0000:{number:02d}:00.0",
            getDeviceProperties=lambda number: properties, memGetInfo=lambda: (pool.device_bytes - pool.held, pool.device_bytes),
            CUDARuntimeError=CUDARuntimeError, free=lambda pointer: machine.own.contexts.add(machine.device),
        ),
        driver=SimpleNamespace(
            launchKernel=machine.launch, occupancyMaxActiveBlocksPerMultiprocessor=lambda function, block, shared: 2048 // block,
            funcSetAttribute=lambda *facts: machine.attributes.append(facts), CUDADriverError=CUDADriverError,
            **FUNCTION_ATTRIBUTES,
        ),
    )  # fmt: skip


class FakeGpu(CupyDevice):
    """A GPU of the fake module that ``sys.modules`` has for cupy. block_size : most threads of a block."""

    def __init__(self, number: int = 0, block_size: int = 32, run: Any = simulate) -> None:
        super().__init__(number)
        self.block_size, self.run = block_size, run

    @property
    def machine(self) -> Machine:
        return self.xp.cuda.machine

    @property
    def waits(self) -> int:
        return self.machine.waits

    def block(self, kernel: Any) -> int:
        return min(kernel.block, self.block_size)

    def _load(self, key: Any, kernel: Any, choice: Any) -> Any:
        if key not in self._functions:
            self.machine.refuse_in_capture("a kernel is loaded")
            self._functions[key] = SimpleNamespace(ptr=len(self.machine.functions))
            self.machine.functions.append((kernel, choice, self.number, self.run))
        return self._functions[key]
