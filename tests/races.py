"""A race checker: two threads touch the same bytes, at least one writes, not both atomically, and nothing orders them.

Results need not show a race: the simulator's threads run one after another, and a GPU's mostly do what one hopes for. So this
looks at what the kernel may rely on, which is the same in every order of threads ("happens before"; Lamport 1978, with the vector
clocks of FastTrack, Flanagan & Freund 2009):

    between blocks      nothing orders
    within a block      syncthreads, for all threads; syncwarp, for those of its warp
    shuffles, votes     hand over values, but order no accesses (CUDA C++ Programming Guide, warp shuffle functions)
    atomic operations   do not race with each other; they order nothing

The kernel runs in the simulator (simulator.py) on memory that notes each access. A scalar function that is handed arrays runs
there as machine code, whose accesses nobody sees: so its text first runs on copies of them, for its accesses only.

    check_races(kernel, *arrays_and_scalars, grid=, block=, shared=, order=, poison=)        as simulator.simulate
"""

import sys
from itertools import islice

import numpy as np
from greenlet import getcurrent
from simulator import Memory, Record, SimulationError, Watcher, bindings, simulate

READ, WRITE, ATOMIC = range(3)
NAMES = "read", "write", "atomic operation"
CONFLICTS = (WRITE, ATOMIC), (READ, WRITE, ATOMIC), (READ, WRITE)
CELL_BYTES = 8  # what is remembered together; the bytes of an access are bits of a mask


def check_races(kernel, *arguments, **geometry):
    """Run a CudaKernel as simulator.simulate does. Raises SimulationError for the first race, naming both places in the text."""
    simulate(kernel, *arguments, **geometry, watcher=_RaceWatcher())


class _RaceWatcher(Watcher):
    """Vector clocks of one launch.

    thread.time : barriers that the thread has passed, and one. thread.seen : by thread of the block, the time up to which that
    one's accesses come before all further ones of this thread.
    cells, shared_cells : address // CELL_BYTES -> for each kind of access {(block, thread, mask of bytes): (its time, place)}.
    """

    def __init__(self):
        self.cells, self.shared_cells, self.threads = {}, {}, []

    def memory(self, array):
        return _WatchedMemory(array, self, self.shared_cells if hasattr(getcurrent(), "thread") else self.cells)

    @classmethod
    def scalar_function(cls, dispatcher):
        compiled = super().scalar_function(dispatcher)

        def call(*arguments):
            if any(isinstance(a, Memory) for a in arguments):
                text = bindings(cls).bind(dispatcher.py_func)
                with np.errstate(all="ignore"):
                    text(*(a.copy() if isinstance(a, Memory) else a for a in arguments))
            return compiled(*arguments)

        return call

    def start_block(self, threads):
        self.shared_cells = {}
        nothing = [0] * len(threads)
        for thread in threads:
            thread.time, thread.seen = 1, nothing

    def barrier(self, threads):
        seen = [max(times) for times in zip(*{id(t.seen): t.seen for t in threads}.values())]
        for thread in threads:
            seen[thread.number] = thread.time
        for thread in threads:
            thread.time, thread.seen = thread.time + 1, seen

    def note(self, cells, kind, address, n_bytes, frame):
        while frame.f_code.co_filename in _OWN_FILES:
            frame = frame.f_back
        thread, place = getcurrent().thread, (frame.f_code, frame.f_lasti)
        cell, bits = address // CELL_BYTES, ((1 << n_bytes) - 1) << address % CELL_BYTES
        own = thread.block.number, thread.number
        while bits:
            if (known := cells.get(cell)) is None:
                known = cells[cell] = {}, {}, {}
            before = known[kind].get((*own, bits & 0xFF))
            if before is None or before[0] != thread.time:  # else whoever came since was checked against the first one
                self._check(known, kind, thread, bits & 0xFF, place)
                known[kind][*own, bits & 0xFF] = thread.time, place
            cell, bits = cell + 1, bits >> CELL_BYTES

    def _check(self, known, kind, thread, mask, place):
        own_block, own_number = thread.block.number, thread.number
        for other_kind in CONFLICTS[kind]:
            for (block, number, other_mask), (time, other_place) in known[other_kind].items():
                if not mask & other_mask or block == own_block and (number == own_number or thread.seen[number] >= time):
                    continue
                other = f"the {NAMES[other_kind]} by thread {number} of block {block} at {_line(other_place)}"
                raise SimulationError(f"race: nothing orders the {NAMES[kind]} at {_line(place)} and {other}")


def _line(place):
    """File and line of an instruction."""
    code, offset = place
    line = next(islice(code.co_positions(), offset // 2, None))[0]
    return f"{code.co_filename.rpartition('/')[2]}:{line}"


class _WatchedMemory(Memory):
    """address : of the first element, in the memory that the accesses are noted for."""

    __slots__ = ("watcher", "cells", "address")

    def __init__(self, array, watcher, cells, address=None):
        super().__init__(array)
        self.watcher, self.cells = watcher, cells
        self.address = array.__array_interface__["data"][0] if address is None else address

    def copy(self):
        """The same memory to look at, and other values."""
        return _Scratch(self.array.copy(), self.watcher, self.cells, self.address)

    def note(self, kind, index, offset=0, n_bytes=None):
        address = self.address + self.place(index) * self.itemsize + offset
        self.watcher.note(self.cells, kind, address, n_bytes or self.itemsize, sys._getframe(2))

    def __getitem__(self, index):
        if self.array.dtype.names:
            return _WatchedRecord(self, index)
        self.note(READ, index)
        return self.array[index]

    def __setitem__(self, index, value):
        if isinstance(value, _WatchedRecord):
            value._memory.note(READ, value._index)
        self.note(WRITE, index)
        super().__setitem__(index, value)

    def add(self, index, value):
        self.note(ATOMIC, index)
        return super().add(index, value)

    def max(self, index, value):
        self.note(ATOMIC, index)
        return super().max(index, value)


class _Scratch(_WatchedMemory):
    """Of a scalar function's text: NumPy's types are not numba's, so that values are as they come."""

    __slots__ = ()

    def __setitem__(self, index, value):
        self.note(WRITE, index)
        self.array[index] = value


class _WatchedRecord(Record):
    __slots__ = ("_memory", "_index")

    def __init__(self, memory, index):
        super().__init__(memory.array.reshape(-1)[memory.place(index)])
        object.__setattr__(self, "_memory", memory)
        object.__setattr__(self, "_index", index)

    def _note(self, kind, name):
        dtype, offset = self._value.dtype.fields[name]
        self._memory.note(kind, self._index, offset, dtype.itemsize)

    def __getattr__(self, name):
        self._note(READ, name)
        return super().__getattr__(name)

    def __setattr__(self, name, value):
        self._note(WRITE, name)
        super().__setattr__(name, value)


_OWN_FILES = {__file__, sys.modules[Memory.__module__].__file__}
