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
import threading
from contextlib import nullcontext
from contextvars import copy_context
from functools import cache
from inspect import signature
from operator import index as as_integer
from types import SimpleNamespace

import numpy as np
from greenlet import getcurrent, greenlet
from numba import njit, types
from numba.core.extending import _Intrinsic

from gpuboost.backend.cuda.device import Device, Mark, PendingCopy
from gpuboost.kernels.cuda_common import FULL_WARP, DeviceFunction, _names_in, bind, cuda
from gpuboost.kernels.jit import inlined_scalar

POISON = 0xA5
ORDERS = ("forward", "reverse", "shuffled")
FLOATS = (float, np.floating)
SMALL = 1024  # integers of every type up to here are made once


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
    function = bindings(type(run.watcher)).bind(kernel.function)
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

    __slots__ = ("array", "shape", "size", "ndim", "itemsize", "_elements", "_type")

    def __init__(self, array):
        self.array, self.shape, self.size, self.ndim, self.itemsize = array, array.shape, array.size, array.ndim, array.itemsize
        self._elements, self._type = array.reshape(-1), array.dtype.type

    def place(self, index):
        """Where among all elements the one at an index is."""
        try:
            if type(index) is not tuple:
                if self.ndim == 1 and 0 <= (place := as_integer(index)) < self.size:
                    return place
            elif len(index) == self.ndim:
                place = 0
                for i, n in zip(index, self.shape):
                    i = as_integer(i)
                    if not 0 <= i < n:
                        break
                    place = place * n + i
                else:
                    return place
            indices = tuple(map(as_integer, index if type(index) is tuple else (index,)))
        except TypeError:
            raise SimulationError(f"index {index!r} is not an integer") from None
        if len(indices) != self.ndim:
            raise SimulationError(f"{len(indices)} indices for an array of shape {self.shape}")
        raise SimulationError(f"index {indices} is outside the array of shape {self.shape}")

    def __getitem__(self, index):
        value = self._elements[self.place(index)]
        return Record(value) if self._type is np.void else value

    def __setitem__(self, index, value):
        self._elements[self.place(index)] = _fitting(value, self.array.dtype)

    def add(self, index, value):
        place = self.place(index)
        old = self._elements[place]
        if self.array.dtype.kind in "iu":
            if isinstance(value, FLOATS):
                raise SimulationError(f"{value!r} is added to {self.array.dtype} without a cast")
            self._elements[place] = _cast_to(self.array.dtype)(int(old) + int(value))
        else:
            self._elements[place] = old + value
        return old

    def max(self, index, value):
        place = self.place(index)
        old = self._elements[place]
        self._elements[place] = max(old, _fitting(value, self.array.dtype))
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
        least, greatest = _range(dtype)
        if not least <= int(value) <= greatest:
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


@cache
def _range(dtype):
    """The least and greatest integers of a dtype."""
    return int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)


@cache
def _cast_to(dtype):
    """int32(x), float64(x), … of a kernel: converts as the compiled cast does, integers modulo their width."""
    kind = dtype.type
    least, greatest = _range(dtype) if dtype.kind in "iu" else (0, -1)
    usual = {i: kind(i) for i in range(max(least, -SMALL), min(greatest, SMALL) + 1)}  # to make one takes NumPy long
    usual_of = usual.get

    def to_float(value):
        return value if type(value) is kind else kind(value)

    def to_integer(value):
        if type(value) is kind:
            return value
        found = usual_of(value)  # of an equal float or truth value, too
        if found is not None:
            return found
        try:
            value = as_integer(value)
        except TypeError:  # a float, or a truth value
            if not (np.isfinite(value) and least <= int(value) <= greatest):
                raise SimulationError(f"{value!r} is cast to {dtype}: undefined") from None
            value = int(value)
        return kind(value if least <= value <= greatest else (value - least) % (greatest - least + 1) + least)

    cast = to_float if dtype.kind == "f" else to_integer
    cast.dtype = dtype  # as cuda.shared.array asks for it
    return cast


class Watcher:
    """What a launch tells of itself as it goes. This one takes no notice; races.py has one that does."""

    def memory(self, array):
        """The array, of global or shared memory, as kernels see it."""
        return Memory(array)

    @classmethod
    def scalar_function(cls, dispatcher):
        """A scalar function of both devices, as kernels call it."""
        return _compiled(dispatcher)

    def start_block(self, threads):
        """The threads of a block are about to start."""

    def barrier(self, threads):
        """These threads have met at a barrier of their block or warp."""


# ---------------------------------------------------------------------------------------------------------------------
# Threads


class _Run:
    """One launch."""

    def __init__(self, grid, block, shared, poison, watcher):
        self.grid_size, self.block_size = SimpleNamespace(x=grid), SimpleNamespace(x=block)
        self.block, self.dynamic_bytes, self.poison, self.watcher = block, shared, poison, watcher
        self.shared = {}

    def wrap(self, value, expected):
        """An argument of the launch as the kernel sees it."""
        if expected.ndim == 0:
            return expected.dtype.type(_fitting(value, expected.dtype))
        assert value.flags.c_contiguous and value.ndim == expected.ndim
        return self.watcher.memory(value)


class Bindings:
    """The functions of kernels as Python, with this module's names in place of CUDA's, for one kind of Watcher.

    A function is bound once, and anew where a global of it, or of what it calls, has another value: tests set such.
    """

    def __init__(self, watcher):
        self._watcher = watcher
        self._known = {}  # function -> (as Python, {(function that names a global, name): value})

    def bind(self, function):
        return self._bind(function)[0]

    def _bind(self, function):
        bound, seen = self._known.get(function, (None, {}))
        if bound is None or any(f.__globals__[name] is not value for (f, name), value in seen.items()):
            names = _names_in(function.__code__) & function.__globals__.keys()
            seen = {(function, name): function.__globals__[name] for name in names}
            bound = bind(function, lambda value: self._replace(value, seen))
            self._known[function] = bound, seen
        return bound, seen

    def _replace(self, value, seen):
        if value is cuda:
            return _CUDA
        if isinstance(value, DeviceFunction):
            inner, seen_within = self._bind(value.py_func)
            seen |= seen_within
            return inner
        if isinstance(value, types.Number):
            return _cast_to(np.dtype(str(value)))
        if isinstance(value, _Intrinsic):
            return _compiled(_callable(value))
        if hasattr(value, "py_func") and hasattr(value, "overloads"):
            return self._watcher.scalar_function(value)
        return value


bindings = cache(Bindings)  # of a class of Watchers


@cache
def _callable(intrinsic):
    """An LLVM intrinsic as a compiled function of its own."""
    n_arguments = len(signature(intrinsic._defn).parameters) - 1
    names = ", ".join("abc"[:n_arguments])
    return njit(eval(f"lambda {names}: intrinsic({names})", {"intrinsic": intrinsic}))


@cache
def _compiled(dispatcher):
    """A scalar function of both devices, run as numba compiles it for the CPU: with numba's types, not NumPy's."""
    if isinstance(dispatcher, inlined_scalar):
        dispatcher = dispatcher.by_itself()
    results = {}  # by types of the arguments: those of the results

    def call(*arguments):
        kinds = tuple(map(type, arguments))
        casts = results.get(kinds)
        if casts is not None:
            value = dispatcher(*arguments)
        else:
            if any(issubclass(kind, Memory) for kind in kinds):
                arguments = [a.array if isinstance(a, Memory) else a for a in arguments]
                kinds = tuple((a.dtype, a.ndim) if isinstance(a, np.ndarray) else type(a) for a in arguments)
            value = dispatcher(*arguments)
            casts = results.get(kinds)
        if casts is None:
            result = dispatcher.overloads[tuple(dispatcher.typeof_pyval(a) for a in arguments)].signature.return_type
            parts = result if isinstance(result, types.BaseTuple) else (result,)
            numbers = [types.unliteral(part) for part in parts if isinstance(part, types.Number | types.Boolean)]
            casts = results[kinds] = [np.dtype(str(number)).type for number in numbers]
        if isinstance(value, tuple):
            return tuple([cast(v) for cast, v in zip(casts, value)])
        return casts[0](value) if casts else value

    return call


class _Thread:
    """One thread of a block. waits_at : (operation, mask of lanes) while it waits, else None; of a barrier of the block the mask
    is 0. brings : a tuple, what it has for the others; to a barrier of the block, its place in the code."""

    def __init__(self, number, block, function):
        self.number, self.lane, self.warp = number, number & 31, number >> 5
        self.block, self.index = block, SimpleNamespace(x=number)
        self.greenlet = greenlet(function)
        self.greenlet.gr_context = copy_context()  # with the errstate of simulate, which a new greenlet would not have
        self.greenlet.thread = self
        self.waits_at = None
        self.answer = None


class Block:
    def __init__(self, run, number, order):
        self.run_facts, self.number, self.order = run, number, order
        self.index = SimpleNamespace(x=number)

    def run(self, function, arguments):
        self.run_facts.shared.clear()
        threads = self.threads = [_Thread(i, self, function) for i in range(self.run_facts.block)]
        warps = [threads[first : first + 32] for first in range(0, len(threads), 32)]
        self.run_facts.watcher.start_block(threads)
        for thread in in_order(threads, self.order, self.number):
            self._step(thread, arguments)
        turn = 0
        while any(t.waits_at for t in threads):
            turn += 1
            released = [t for warp in warps for t in self._meet_in_warp(warp)] or self._meet_in_block(threads)
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

    def _meet_in_warp(self, warp):
        """Complete the operations of a warp whose lanes have all arrived; returns the threads that go on."""
        meetings, released = {}, []
        for t in warp:
            if t.waits_at and t.waits_at[1]:
                meetings.setdefault(t.waits_at, []).append(t)
        for (operation, mask), here in meetings.items():
            if len(here) < 32 or mask != FULL_WARP:
                named = [t for t in warp if mask >> t.lane & 1]
                if any(t.greenlet.dead for t in named):
                    raise SimulationError(f"{operation} waits for lanes that have ended")
                if any(not mask >> t.lane & 1 for t in here):
                    raise SimulationError(f"{operation} by a lane outside its own mask")
                if len(here) < len(named):
                    continue
            if operation == "syncwarp":  # shuffles and votes promise nothing about memory
                self.run_facts.watcher.barrier(here)
            answers = _WARP_OPERATIONS[operation]({t.lane: t.brings for t in here})
            for t, t.answer in zip(here, answers, strict=True):
                released.append(t)
        return released

    def _meet_in_block(self, threads):
        """Release a block's barrier; every thread must be there, at the same place of the code."""
        waiting = [t for t in threads if t.waits_at]
        stuck = [t for t in waiting if t.waits_at[1]]
        if stuck:
            raise SimulationError(f"deadlock: lanes wait in {stuck[0].waits_at[0]} for lanes that wait elsewhere")
        if len(waiting) != len(threads) or len({t.brings for t in waiting}) != 1:
            raise SimulationError(f"divergent barrier: {len(waiting)} of {len(threads)} threads wait, not all at one place")
        self.run_facts.watcher.barrier(waiting)
        return waiting


def _ballot(values):
    vote = np.uint32(sum(1 << lane for lane, (flag,) in values.items() if flag))
    return [vote] * len(values)


# What lanes get from an operation of their warp: values[lane] is what a lane brings. A shuffle gives one's own value where the
# other lane takes no part.
_WARP_OPERATIONS = {
    "syncwarp": lambda values: [None] * len(values),
    "shfl_sync": lambda values: [values.get(other & 31, values[lane])[0] for lane, (_, other) in values.items()],
    "shfl_up_sync": lambda values: [values.get(lane - delta, values[lane])[0] for lane, (_, delta) in values.items()],
    "shfl_down_sync": lambda values: [values.get(lane + delta, values[lane])[0] for lane, (_, delta) in values.items()],
    "shfl_xor_sync": lambda values: [values.get(lane ^ lanes, values[lane])[0] for lane, (_, lanes) in values.items()],
    "ballot_sync": _ballot,
}


class _Shared:
    @staticmethod
    def array(shape, dtype):
        """Shared memory: one array per place in the code that asks for it, the same for all threads of the block."""
        run, dtype = getcurrent().thread.block.run_facts, dtype.dtype
        place = ("dynamic", dtype) if shape == 0 else _place()
        if place not in run.shared:
            if shape == 0:
                memory = run.shared.setdefault("dynamic", np.full(run.dynamic_bytes, run.poison, np.uint8))
                view = memory[: len(memory) // dtype.itemsize * dtype.itemsize].view(dtype)
            else:
                view = np.full(int(np.prod(shape)) * dtype.itemsize, run.poison, np.uint8).view(dtype).reshape(shape)
            run.shared[place] = run.watcher.memory(view)
        return run.shared[place]


class _Cuda:
    """The names of numba.cuda that kernels may use (gpuboost.kernels.cuda_common lists them), for the thread that asks."""

    atomic, shared = _Atomic, _Shared
    threadIdx = property(lambda self: getcurrent().thread.index)
    blockIdx = property(lambda self: getcurrent().thread.block.index)
    blockDim = property(lambda self: getcurrent().thread.block.run_facts.block_size)
    gridDim = property(lambda self: getcurrent().thread.block.run_facts.grid_size)

    def syncthreads(self):
        wait("syncthreads", 0, _place())

    def syncwarp(self):
        return wait("syncwarp", FULL_WARP)

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


_CUDA = _Cuda()


def wait(operation, mask, *value):
    """Stop the current thread until those it waits for are there too."""
    own = getcurrent()
    thread = own.thread
    thread.waits_at, thread.brings = (operation, int(mask)), value
    own.parent.switch()
    return thread.answer


def _place():
    """Where the kernel is: the instruction in every function on its stack."""
    frame, place = sys._getframe(2), []
    while frame is not None:
        if frame.f_code.co_filename != __file__:
            place.append((id(frame.f_code), frame.f_lasti))  # a code's own hash is one of all that it holds
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
        self.own = threading.local()  # recorded : what a thread launched and cleared while it was not done

    def block(self, kernel):
        return min(kernel.block, self.block_size)

    def empty(self, shape, dtype):
        self._refuse_while_recording()
        array = np.empty(shape, dtype)
        array.reshape(-1).view(np.uint8).fill(POISON)
        return array

    def clear(self, array):
        self._do(lambda: self._clear(array))

    def _clear(self, array):
        array.reshape(-1).view(np.uint8).fill(0)

    def put(self, array, dtype=None):
        self._refuse_while_recording()
        return np.array(array, dtype, order="C", ndmin=1)

    def write(self, array, values):
        self._refuse_while_recording()
        assert array.dtype == values.dtype and array.size == values.size
        array[...] = values.reshape(array.shape)

    def fetch(self, array):
        self._refuse_while_recording()
        self.waits += 1
        return np.array(array)

    def start_copy(self, array):
        self._refuse_while_recording()
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
        self._refuse_while_recording()

    def free_bytes(self):
        return self.memory

    def record(self, work):
        self.own.recorded = []
        work()
        recorded, self.own.recorded = self.own.recorded, None

        def again():
            for step in recorded:
                step()

        return again

    def _do(self, step):
        recorded = getattr(self.own, "recorded", None)
        if recorded is None:
            step()
        else:
            recorded.append(step)

    def _refuse_while_recording(self):
        assert getattr(self.own, "recorded", None) is None, "what is recorded only launches and clears"

    def _prepare(self, *launch):
        return lambda: self._do(lambda: self._launch(*launch))

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
