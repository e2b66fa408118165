"""What this machine can do: the ceilings that floors of the CPU kernels are made of.

Each is a loop that does one thing on arrays of a given size, the best of REPEATS after a warm-up. What leaves a core's own caches
(stream, gather) is measured on all threads at once; the others on one, since cores do not share what they need. Measured when
first asked for, and kept, so a run measures what its floors need.

    stream    bytes copied by NumPy, read and written ones counted alike
    gather    one load from each of some records: of rows in the order of a node that holds one row in ``one_in`` (all such nodes
              one after another, as a level of a tree meets them), or in random order (one_in = 0)
    update    an int64 added to a random place of a table          lookup    a load from a random place of one
    mix       a 32-bit or 64-bit multiplication, shift and xor
    divide    float64, vectorised by LLVM                         exp       of float32, NumPy's
    start     an empty parallel region
"""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numba import njit, prange, uint32, uint64

from gpuboost.kernels.jit import parallel_kernel

REPEATS, SHORTEST = 7, 2**21  # units of one measurement, at least
SMALLEST, CACHED, LARGEST = 2**16, 2**23, 2**28  # bytes: what calls do not dominate, what cores hold, what no cache holds
SPARSEST = 64  # one row in so many: rows of a cache line are then met at different times
IN_CACHE = 2048  # values of a loop that stays in the first-level cache


def compiled(function: Callable) -> Callable:
    return njit(nogil=True, cache=True, error_model="numpy")(function)


@compiled
def gather(records, places, n_bytes):
    total = uint64(0)
    for place in places:
        total += uint64(records[uint64(place) * uint64(n_bytes)])
    return total


@compiled
def update(table, places):
    for place in places:
        table[uint64(place)] += 1


@compiled
def lookup(table, places):
    total = uint64(0)
    for place in places:
        total += uint64(table[uint64(place)])
    return total


@compiled
def mix32(values):
    for i in range(values.size):
        values[i] = uint32(values[i] ^ (values[i] >> uint32(15))) * uint32(0x85EBCA6B)


@compiled
def mix64(values):
    for i in range(values.size):
        values[i] = uint64(values[i] ^ (values[i] >> uint64(15))) * uint64(0xBF58476D1CE4E5B9)


@compiled
def divide(values, divisor):
    for i in range(values.size):
        values[i] = values[i] / divisor


@parallel_kernel
def empty_region(counts, n_threads):
    for thread in prange(n_threads):
        counts[thread] += 1


class Ceilings:
    """Nanoseconds per unit, of all threads together. measured : by name, for the record."""

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self.measured: dict[str, float] = {}

    def stream(self, n_bytes: float, footprint: int) -> float:
        """Nanoseconds to move n_bytes, in arrays of so many bytes together."""
        size = min(max(_power(footprint), SMALLEST), LARGEST)
        name = f"byte streamed, {_bytes(size)}"

        def copy_part(n_parts: int) -> Callable[[], Any]:
            source = np.ones(size // (2 * n_parts), np.uint8)
            target = np.ones_like(source)
            return lambda: np.copyto(target, source)

        if size <= CACHED:
            return n_bytes * self._on_each_core(name, size, copy_part(1))
        return n_bytes * self._on_all_threads(name, lambda: copy_part(self.threads), size // self.threads)

    def gather(self, n_bytes: int, n_records: int, one_in: float) -> float:
        """Nanoseconds a record of so many bytes."""
        n, every = _power(n_records), min(_power(one_in), SPARSEST) if one_in else 0

        def make() -> Callable[[], None]:
            rng = np.random.default_rng(0)
            places = np.argsort(rng.integers(0, every, n), kind="stable") if every else rng.permutation(n)
            records, places = np.zeros(n * n_bytes, np.uint8), places.astype(np.int32)
            return lambda: gather(records, places, n_bytes)

        order = f"one in {every}" if every else "at random"
        return self._on_all_threads(f"record of {n_bytes} bytes gathered, {n} rows, {order}", make, n)

    def update(self, n_places: int) -> float:
        return self._on_each_core(f"update of {_power(n_places)} int64", *_random(update, n_places))

    def lookup(self, n_places: int) -> float:
        return self._on_each_core(f"lookup among {_power(n_places)} int64", *_random(lookup, n_places))

    def mix(self, bits: int) -> float:
        mixer, dtype = {32: (mix32, np.uint32), 64: (mix64, np.uint64)}[bits]
        values = np.arange(IN_CACHE, dtype=dtype)
        return self._on_each_core(f"mix of {bits} bits", IN_CACHE, lambda: mixer(values))

    def divide(self) -> float:
        values = np.ones(IN_CACHE)
        return self._on_each_core("division of float64", IN_CACHE, lambda: divide(values, 1.0))

    def exp(self) -> float:
        values, out = np.ones(8 * IN_CACHE, np.float32), np.empty(8 * IN_CACHE, np.float32)
        return self._on_each_core("exp of float32", values.size, lambda: np.exp(values, out=out))

    def start(self) -> float:
        """Nanoseconds a region, of the clock."""
        counts = np.zeros(self.threads, np.int64)
        name = "start of a parallel region"
        if name not in self.measured:
            starts = lambda: [empty_region(counts, self.threads) for _ in range(200)]
            self.measured[name] = 1e9 * _best(starts, time.perf_counter) / 200
        return self.measured[name]

    def _on_each_core(self, name: str, units: int, call: Callable[[], Any]) -> float:
        """call : works on so many units."""
        if name not in self.measured:
            loops = max(1, SHORTEST // units)
            self.measured[name] = 1e9 * _best(lambda: [call() for _ in range(loops)], time.thread_time) / (loops * units)
        return self.measured[name] / self.threads

    def _on_all_threads(self, name: str, make: Callable[[], Callable[[], Any]], units: int) -> float:
        """make : () -> what one thread does to ``units`` units of its own."""
        if name not in self.measured:
            loops, calls = max(1, SHORTEST // units), [make() for _ in range(self.threads)]
            run = lambda call: [call() for _ in range(loops)]
            if self.threads == 1:
                seconds = _best(lambda: run(calls[0]), time.thread_time)
            else:
                with ThreadPoolExecutor(self.threads) as pool:
                    seconds = _best(lambda: list(pool.map(run, calls)), time.perf_counter)
            self.measured[name] = 1e9 * seconds / (loops * units * self.threads)
        return self.measured[name]


def _best(call: Callable[[], Any], clock: Callable[[], float]) -> float:
    """Seconds of the quickest of REPEATS calls, after a warm-up."""
    seconds = []
    for _ in range(1 + REPEATS):
        begin = clock()
        call()
        seconds.append(clock() - begin)
    return min(seconds[1:])


def _random(loop: Callable[..., Any], n_places: int) -> tuple[int, Callable[[], Any]]:
    n = _power(n_places)
    table, places = np.zeros(n, np.int64), np.random.default_rng(0).integers(0, n, 8 * IN_CACHE).astype(np.uint32)
    return places.size, lambda: loop(table, places)


def _power(n: float) -> int:
    """The smallest power of two that is not below n."""
    return 1 << max(int(np.ceil(n)) - 1, 0).bit_length()


def _bytes(size: int) -> str:
    return f"{size >> 20} MB" if size >= 2**20 else f"{size >> 10} KB"
