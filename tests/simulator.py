"""CUDA as a Python program: runs the kernels of gpuboost on NumPy arrays, thread by thread, without a GPU.

Read it as a lesson in what a GPU promises, and what it does not:

    grid      blocks that know nothing of each other. They may run in any order, one after the other or all at once.
    block     threads that share a few kilobytes of memory and can wait for each other (syncthreads).
    warp      32 threads of a block that can hand each other values (shuffles, votes).
    memory    global memory is everybody's, shared memory the block's, and holds rubbish when the block starts. Nothing orders
              two threads' accesses but a barrier between them, or an atomic operation.

Each thread is a greenlet: a Python call that can stop in the middle. One runs until it ends or waits at a barrier, then the next.
A different order of threads is a different, equally lawful run: a kernel that lacks a barrier gives different results, and shows.

What a GPU would do silently raises SimulationError here: an index out of bounds, a barrier that not all threads reach, a warp
operation without one of its lanes, a value that does not fit where it is stored, a result beyond the range of its type.
"""

import sys
from contextlib import nullcontext
from contextvars import copy_context
from functools import cache
from inspect import signature
from types import SimpleNamespace

import numpy as np
from greenlet import getcurrent, greenlet
from numba import njit, types
from numba.core.extending import _Intrinsic

from gpuboost.backend.cuda.device import Device, Mark, PendingCopy
from gpuboost.kernels.cuda_common import DeviceFunction, bind, cuda

POISON = 0xA5
ORDERS = ("forward", "reverse", "shuffled")
FLOATS = (float, np.floating)


class SimulationError(AssertionError):
    """The kernel did what no kernel may do."""


def simulate(kernel, *arguments, grid=1, block=32, shared=0, order="forward", poison=POISON, watcher=None):
    """Run a CudaKernel in place on NumPy arrays.

    grid, block : blocks, and threads of one (a multiple of 32). shared : bytes of dynamic shared memory.
    order : in which blocks and threads take their turns, one of ORDERS. poison : byte that shared memory is filled with.
    watcher : a Watcher, which is told of all accesses and barriers.
    """
    assert block % 32 == 0
    run = _Run(grid, block, shared, poison, watcher or Watcher())
    function = run.bind(kernel.function)
    wrapped = [run.wrap(value, expected) for value, expected in zip(arguments, kernel.arguments.values(), strict=True)]
    with np.errstate(over="raise", divide="ignore", invalid="ignore"):
        for number in in_order(range(grid), order, seed=0):
            Block(run, number, order).run(function, wrapped)


def in_order(items, order, seed):
    items = list(items)
    if order == "reverse":
        items.reverse()
    elif order == "shuffled":
        np.random.default_rng(seed).shuffle(items)
    return items


# ---------------------------------------------------------------------------------------------------------------------
# Memory


class Memory:
    """An array whose every index is checked. A kernel sees elements of it, never parts."""

    __slots__ = ("array", "shape", "size", "ndim", "itemsize")

    def __init__(self, array):
        self.array, self.shape, self.size, self.ndim, self.itemsize = array, array.shape, array.size, array.ndim, array.itemsize

    def _checked(self, index):
        if type(index) is not tuple:
            index = (index,)
        if len(index) != self.ndim:
            raise SimulationError(f"{len(index)} indices for an array of shape {self.shape}")
        for i, n in zip(index, self.shape):
            if isinstance(i, FLOATS):
                raise SimulationError(f"index {i!r} is not an integer")
            if not 0 <= i < n:
                raise SimulationError(f"index {tuple(map(int, index))} is outside the array of shape {self.shape}")
        return index

    def __getitem__(self, index):
        value = self.array[self._checked(index)]
        return Record(value) if self.array.dtype.names else value

    def __setitem__(self, index, value):
        self.array[self._checked(index)] = _fitting(value, self.array.dtype)


    def add(self, index, value):
        index = self._checked(index)
        old = self.array[index]
        if self.array.dtype.kind in "iu":
            if isinstance(value, FLOATS):
                raise SimulationError(f"{value!r} is added to {self.array.dtype} without a cast")
            self.array[index] = _wrapped(int(old) + int(value), self.array.dtype)
        else:
            self.array[index] = old + value
        return old

    def max(self, index, value):
        index = self._checked(index)
        old = self.array[index]
        self.array[index] = max(old, _fitting(value, self.array.dtype))
        return old


class Record:
    """An element of an array of records: reads and writes its fields."""

    __slots__ = ("_value",)

    def __init__(self, value):
        object.__setattr__(self, "_value", value)

    def __getattr__(self, name):
        return self._value[name]

    def __setattr__(self, name, value):
        self._value[name] = _fitting(value, self._value.dtype[name])


def _fitting(value, dtype):
    """The value, unless storing it as dtype would silently change it: the kernel has to cast."""
    if type(value) is dtype.type:
        return value
    if isinstance(value, Record):
        return value._value
    if dtype.kind in "iu":
        if isinstance(value, FLOATS):
            raise SimulationError(f"{value!r} is stored as {dtype} without a cast")
        info = np.iinfo(dtype)
        if not info.min <= int(value) <= info.max:
            raise SimulationError(f"{value!r} does not fit in {dtype}")
    return value


class _Atomic:
    """Read, change and write back in one step. Integers wrap around at the array's width."""

    @staticmethod
    def add(memory, index, value):
        return memory.add(index, value)

    @staticmethod
    def max(memory, index, value):
        return memory.max(index, value)


def _wrapped(value, dtype):
    bits = 8 * dtype.itemsize
    value &= (1 << bits) - 1
    return dtype.type(value - (1 << bits) if dtype.kind == "i" and value >> (bits - 1) else value)


class _Cast:
    """int32(x), float64(x), … of a kernel: converts as the compiled cast does, integers modulo their width."""

    def __init__(self, numba_type):
        self.dtype = np.dtype(str(numba_type))
        self.type = self.dtype.type

    def __call__(self, value):
        if type(value) is self.type:
            return value
        if self.dtype.kind == "f":
            return self.type(value)
        if isinstance(value, FLOATS):
            info = np.iinfo(self.dtype)
            if not (np.isfinite(value) and info.min <= int(value) <= info.max):
                raise SimulationError(f"{value!r} is cast to {self.dtype}: undefined")
        return _wrapped(int(value), self.dtype)


class Watcher:
    """What a launch tells of itself as it goes. This one takes no notice; races.py has one that does."""

    def memory(self, array):
        """The array, of global or shared memory, as kernels see it."""
        return Memory(array)

    def scalar_function(self, run, dispatcher):
        """A scalar function of both devices, as kernels call it."""
        return _compiled(dispatcher)

    def start_block(self, threads):
        """The threads of a block are about to start."""

    def barrier(self, threads):
        """These threads have met at a barrier of their block or warp."""


# ---------------------------------------------------------------------------------------------------------------------
# Threads


class _Run:
    """One launch: the kernel as Python, with this module's names in place of CUDA's."""

    def __init__(self, grid, block, shared, poison, watcher):
        self.grid, self.block, self.dynamic_bytes, self.poison, self.watcher = grid, block, shared, poison, watcher
        self.shared = {}
        self._known = {}
        self.cuda = _Cuda(self)

    def wrap(self, value, expected):
        """An argument of the launch as the kernel sees it."""
        if expected.ndim == 0:
            return expected.dtype.type(_fitting(value, expected.dtype))
        assert value.flags.c_contiguous and value.ndim == expected.ndim
        return self.watcher.memory(value)

    def bind(self, function):
        if function not in self._known:
            self._known[function] = bind(function, self._replace)
        return self._known[function]

    def _replace(self, value):
        if value is cuda:
            return self.cuda
        if isinstance(value, DeviceFunction):
            return self.bind(value.py_func)
        if isinstance(value, types.Number):
            return _Cast(value)
        if isinstance(value, _Intrinsic):
            return _compiled(_callable(value))
        if hasattr(value, "py_func") and hasattr(value, "overloads"):
            return self.watcher.scalar_function(self, value)
        return value


@cache
def _callable(intrinsic):
    """An LLVM intrinsic as a compiled function of its own."""
    n_arguments = len(signature(intrinsic._defn).parameters) - 1
    names = ", ".join("abc"[:n_arguments])
    return njit(eval(f"lambda {names}: intrinsic({names})", {"intrinsic": intrinsic}))


def _compiled(dispatcher):
    """A scalar function of both devices, run as numba compiles it for the CPU: with numba's types, not NumPy's."""
    results = {}

    def call(*arguments):
        plain = [a.array if isinstance(a, Memory) else a for a in arguments]
        value = dispatcher(*plain)
        kinds = tuple(type(a) if not isinstance(a, np.ndarray) else (a.dtype, a.ndim) for a in plain)
        if kinds not in results:
            result = dispatcher.overloads[tuple(dispatcher.typeof_pyval(a) for a in plain)].signature.return_type
            parts = result if isinstance(result, types.BaseTuple) else (result,)
            numbers = [types.unliteral(part) for part in parts if isinstance(part, types.Number | types.Boolean)]
            results[kinds] = [np.dtype(str(number)).type for number in numbers]
        casts = results[kinds]
        if isinstance(value, tuple):
            return tuple(cast(v) for cast, v in zip(casts, value))
        return casts[0](value) if casts else value

    return call


class _Thread:
    """One thread of a block. waits_at : (operation, mask of lanes, what it brings) while it waits, else None; of a barrier of the
    block the mask is 0, and it brings its place in the code."""

    def __init__(self, number, block, function):
        self.number, self.lane, self.warp = number, number & 31, number >> 5
        self.block = block
        self.greenlet = greenlet(function)
        self.greenlet.gr_context = copy_context()  # with the errstate of simulate, which a new greenlet would not have
        self.greenlet.thread = self
        self.waits_at = None
        self.answer = None


class Block:
    def __init__(self, run, number, order):
        self.run_facts, self.number, self.order = run, number, order

    def run(self, function, arguments):
        self.run_facts.shared.clear()
        threads = self.threads = [_Thread(i, self, function) for i in range(self.run_facts.block)]
        self.run_facts.watcher.start_block(threads)
        for thread in in_order(threads, self.order, self.number):
            self._step(thread, arguments)
        turn = 0
        while any(not t.greenlet.dead for t in threads):
            turn += 1
            released = self._meet_in_warps(threads) or self._meet_in_block(threads)
            for thread in in_order(released, self.order, turn):
                self._step(thread)

    def _step(self, thread, arguments=()):
        """Let a thread run to its next barrier, or to its end."""
        thread.waits_at = None
        try:
            thread.greenlet.switch(*arguments)
        except FloatingPointError as error:
            raise SimulationError(f"{error}, in thread {thread.number} of block {self.number}") from error
        except Exception as error:
            error.add_note(f"in thread {thread.number} of block {self.number}")
            raise

    def _meet_in_warps(self, threads):
        """Complete the warp operations whose lanes have all arrived; returns the threads that go on."""
        released = []
        for first in range(0, len(threads), 32):
            warp = threads[first : first + 32]
            waiting = [t for t in warp if t.waits_at and t.waits_at[1]]
            for mask, operation in sorted({(t.waits_at[1], t.waits_at[0]) for t in waiting}):
                here = [t for t in waiting if t.waits_at[1] == mask and t.waits_at[0] == operation]
                named = [t for t in warp if mask >> t.lane & 1]
                if any(t.greenlet.dead for t in named):
                    raise SimulationError(f"{operation} waits for lanes that have ended")
                if any(not mask >> t.lane & 1 for t in here):
                    raise SimulationError(f"{operation} by a lane outside its own mask")
                if len(here) == len(named):
                    values = {t.lane: t.waits_at[2] for t in here}
                    if operation == "syncwarp":  # shuffles and votes promise nothing about memory
                        self.run_facts.watcher.barrier(here)
                    for t in here:
                        t.answer = _WARP_OPERATIONS[operation](t.lane, values)
                    released += here
        return released

    def _meet_in_block(self, threads):
        """Release a block's barrier; every thread must be there, at the same place of the code."""
        waiting = [t for t in threads if not t.greenlet.dead]
        stuck = [t for t in waiting if t.waits_at[1]]
        if stuck:
            raise SimulationError(f"deadlock: lanes wait in {stuck[0].waits_at[0]} for lanes that wait elsewhere")
        if len(waiting) != len(threads) or len({t.waits_at[2] for t in waiting}) != 1:
            raise SimulationError(f"divergent barrier: {len(waiting)} of {len(threads)} threads wait, not all at one place")
        self.run_facts.watcher.barrier(waiting)
        return waiting


# What a lane gets from a warp operation: values[lane] is what each lane brought.
_WARP_OPERATIONS = {
    "syncwarp": lambda lane, values: None,
    "shfl_sync": lambda lane, values: values.get(values[lane][1] & 31, values[lane])[0],
    "shfl_up_sync": lambda lane, values: values.get(lane - values[lane][1], values[lane])[0],
    "shfl_down_sync": lambda lane, values: values.get(lane + values[lane][1], values[lane])[0],
    "shfl_xor_sync": lambda lane, values: values.get(lane ^ values[lane][1], values[lane])[0],
    "ballot_sync": lambda lane, values: np.uint32(sum(1 << other for other, (flag,) in values.items() if flag)),
}


class _Cuda:
    """The names of numba.cuda that kernels may use (gpuboost.kernels.cuda_common lists them)."""

    atomic = _Atomic

    def __init__(self, run):
        self._run = run
        self.blockDim, self.gridDim = SimpleNamespace(x=run.block), SimpleNamespace(x=run.grid)
        self.shared = SimpleNamespace(array=self._shared_array)

    @property
    def threadIdx(self):
        return SimpleNamespace(x=getcurrent().thread.number)

    @property
    def blockIdx(self):
        return SimpleNamespace(x=getcurrent().thread.block.number)

    def syncthreads(self):
        wait("syncthreads", 0, _place())

    def syncwarp(self):
        return wait("syncwarp", 0xFFFFFFFF)

    def shfl_sync(self, mask, value, lane):
        return wait("shfl_sync", mask, value, int(lane))

    def shfl_up_sync(self, mask, value, delta):
        return wait("shfl_up_sync", mask, value, int(delta))

    def shfl_down_sync(self, mask, value, delta):
        return wait("shfl_down_sync", mask, value, int(delta))

    def shfl_xor_sync(self, mask, value, lanes):
        return wait("shfl_xor_sync", mask, value, int(lanes))

    def ballot_sync(self, mask, flag):
        return wait("ballot_sync", mask, bool(flag))

    @staticmethod
    def popc(value):
        return (int(value) & 0xFFFFFFFF if not isinstance(value, np.int64 | np.uint64) else int(value)).bit_count()

    def _shared_array(self, shape, dtype):
        """Shared memory: one array per place in the code that asks for it, the same for all threads of the block."""
        dynamic = shape == 0
        place = "dynamic" if dynamic else _place()
        if place not in self._run.shared:
            n_bytes = self._run.dynamic_bytes if dynamic else int(np.prod(shape)) * dtype.dtype.itemsize
            self._run.shared[place] = np.full(n_bytes, self._run.poison, np.uint8)
        view = self._run.shared[place]
        view = view[: len(view) // dtype.dtype.itemsize * dtype.dtype.itemsize].view(dtype.dtype)
        return self._run.watcher.memory(view if dynamic else view.reshape(shape))


def wait(operation, mask, *value):
    """Stop the current thread until those it waits for are there too."""
    thread = getcurrent().thread
    thread.waits_at = operation, int(mask), value
    thread.greenlet.parent.switch()
    return thread.answer


def _place():
    """Where the kernel is: the instruction in every function on its stack."""
    frame, place = sys._getframe(2), []
    while frame is not None:
        if frame.f_code.co_filename != __file__:
            place.append((frame.f_code, frame.f_lasti))
        frame = frame.f_back
    return tuple(place)


# ---------------------------------------------------------------------------------------------------------------------
# A whole device


class SimulatedDevice(Device):
    """What the CUDA backend computes on when there is no GPU: NumPy arrays, and kernels by simulation.

    block_size : most threads of a block. rung : what runs a kernel, as simulate does (rungs.py). launches : names of the kernels
    launched. waits : how often the host waited.
    """

    name = memory_name = "simulator"
    xp = np

    def __init__(
        self, block=32, n_multiprocessors=1, order="forward", memory=2**32, shared_limit=96 * 1024, rung=simulate
    ):  # fmt: skip
        self.block_size, self.n_multiprocessors, self.order, self.memory = block, n_multiprocessors, order, memory
        self.shared_limit, self.rung = shared_limit, rung
        self.launches, self.waits = [], 0

    def block(self, kernel):
        return min(kernel.block, self.block_size)

    def empty(self, shape, dtype):
        array = np.empty(shape, dtype)
        array.reshape(-1).view(np.uint8).fill(POISON)
        return array

    def clear(self, array):
        array.reshape(-1).view(np.uint8).fill(0)

    def put(self, array, dtype=None):
        return np.array(array, dtype, order="C", ndmin=1)

    def write(self, array, values):
        assert array.dtype == values.dtype and array.size == values.size
        array[...] = values.reshape(array.shape)

    def fetch(self, array):
        self.waits += 1
        return np.array(array)

    def start_copy(self, array):
        return _SimulatedCopy(self, array)

    def page_locked(self, shape, dtype):
        return self.empty(shape, dtype)

    def mark(self):
        return _Now()

    def start_upload(self, parts, behind):
        for source, target in parts:
            target[...] = source
        return _Now()

    def order_behind(self, place):
        pass

    def free_bytes(self):
        return self.memory

    def _prepare(self, *launch):
        return lambda: self._launch(*launch)

    def _launch(self, kernel, choice, grid, block, shared, arguments):
        self.launches.append(kernel.name)
        assert shared <= self.shared_limit
        self.rung(kernel, *arguments, grid=grid, block=block, shared=shared, order=self.order)

    def current(self):
        return nullcontext()


class _Now(Mark):
    """All work is done when it is launched."""

    def wait(self):
        pass


class _SimulatedCopy(PendingCopy):
    """Made when it begins: what is written later does not show."""

    def __init__(self, device, array):
        self._device, self._copy = device, array.copy()

    def wait(self):
        self._device.waits += 1
        return self._copy
