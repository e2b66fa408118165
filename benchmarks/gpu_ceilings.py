"""What a GPU can do: the ceilings that floors of the CUDA kernels are made of, and what a launch costs.

Device times are those of events around a few repeats, the median after a warm-up; what the host does is timed by its own clock.
Each number is kept with its unit. Floors need two of them: ``ns_per_byte`` and ``ns_per_add`` of all multiprocessors together.
The model of a tree (gpu_model.py) assumes what instructions, lines, global adds, chains and launches are measured for.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numba import float32, float64, int32, int64, uint32

from gpuboost.backend.cuda.device import THREADS_PER_SM
from gpuboost.kernels.addresses import add_at_byte
from gpuboost.kernels.cuda_common import block_sum, cuda, cuda_kernel, lane_number, n_threads, thread_number
from gpuboost.kernels.scalar import mix32

REPEATS = 7
ADDS_BLOCK, ADDS_BLOCKS_PER_SM, ADDS_ROWS = 1024, 1, 256  # as the histogram kernel; 34 KB, which every GPU has
RECORD_WORDS = 8
LINE_WORDS = 32
UNROLLED = 16  # instructions that count of a loop, beside three or four that do not


@dataclass(frozen=True)
class Sizes:
    """copied : bytes. adds : of each thread, steps : of a loop, multiples of UNROLLED. records : of 32 bytes each. launches : in
    a row. threads : that fill a multiprocessor."""

    copied: int = 2**31
    adds: int = 4096
    records: int = 2**25
    launches: int = 1000
    steps: int = 2**14
    threads: int = THREADS_PER_SM


# --- Kernels ---


@cuda_kernel("out: int64[:]", block=32)
def nothing_kernel(out):
    """As little as a kernel can do."""
    if thread_number() >= uint32(out.size):
        out[0] = int64(0)


@cuda_kernel("n_adds: int64, amount: int32, row_mask: uint32, lane_mask: uint32, lane_step: uint32, out: int64[:]",
             block=ADDS_BLOCK, blocks_per_sm=ADDS_BLOCKS_PER_SM)  # fmt: skip
def shared_adds_kernel(n_adds, amount, row_mask, lane_mask, lane_step, out):
    """n_adds int32 adds of every thread to shared memory, dynamic, adds_bytes(row_mask + 1).

    amount : what is added; of a constant 1 the assembler makes another instruction, ATOMS.POPC.INC. UNROLLED adds at a time go to
    rows of the 32 banks that follow each other, the first one drawn: adds are nearly all there is to do.

    lane_step 1, lane_mask 0 : each lane keeps to its own bank, one pass for 32 adds, as histograms. lane_mask 31 : random banks.
    All of them 0 : one address for all lanes, 32 passes. out : int64 (≥ 1,), INOUT. The sum is added to it.
    """
    planes, partial = cuda.shared.array(0, int32), cuda.shared.array(32, int64)
    n_words = uint32(uint32(row_mask + uint32(UNROLLED)) * uint32(32))
    i = uint32(cuda.threadIdx.x)
    while i < n_words:
        planes[i] = int32(0)
        i = uint32(i + uint32(cuda.blockDim.x))
    cuda.syncthreads()  # all words are zero
    own, i = uint32(uint32(lane_number()) * lane_step), uint32(0)
    while i < uint32(n_adds):
        mixed = mix32(uint32(uint32(thread_number() << uint32(12)) ^ i))
        row, bank = uint32(uint32(mixed >> uint32(8)) & row_mask), uint32(uint32(own + uint32(mixed & lane_mask)) & uint32(31))
        place = uint32(uint32(row * uint32(128)) + uint32(bank * uint32(4)))
        for k in range(UNROLLED):
            add_at_byte(planes, place, uint32(128 * k), amount)
        i = uint32(i + uint32(UNROLLED))
    cuda.syncthreads()  # all adds are made
    total = int64(0)
    i = uint32(cuda.threadIdx.x)
    while i < n_words:
        total += int64(planes[i])
        i = uint32(i + uint32(cuda.blockDim.x))
    total = block_sum(total, partial)
    if cuda.threadIdx.x == 0:  # from every thread it took as long as the adds to shared memory
        cuda.atomic.add(out, uint32(0), total)


@cuda_kernel("rows: int32[:], words: uint32[:, :], out: uint32[:]")
def gather_kernel(rows, words, out):
    """Read the records of the rows, 8 neighbouring threads one of them. out : uint32 (≥ 1,), OUT: nothing of use."""
    total, i = uint32(0), int64(thread_number())
    while i < int64(rows.size) * 8:
        total = uint32(total ^ words[rows[i >> 3], i & 7])
        i += int64(n_threads())
    if total == uint32(0x9E3779B9):
        out[0] = total


@cache
def multiply_kernel(is_double):
    """n_steps products of every thread, each of the one before. out : float64 (≥ 1,), OUT, factor^n_steps."""
    real = float64 if is_double else float32

    def multiply(n_steps, factor, out):
        product, i = real(1.0), int64(0)
        while i < n_steps:
            for _ in range(UNROLLED):
                product = real(product * real(factor))
            i += int64(UNROLLED)
        if thread_number() == 0 or product == real(0.0):
            out[0] = float64(product)

    multiply.__name__ = f"multiply_kernel_{64 if is_double else 32}"
    return cuda_kernel("n_steps: int64, factor: float64, out: float64[:]", uses_double=True)(multiply)


@cuda_kernel("n_steps: int64, following: int32[:], place: int32[:]", block=32)
def chase_kernel(n_steps, following, place):
    """A warp goes from element to element, as each says. place : int32 (≥ 1,), INOUT: where it is."""
    at, i = uint32(place[0]), int64(0)
    while i < n_steps:
        at = uint32(following[at])
        i += int64(1)
    cuda.syncwarp()  # all lanes have read where to begin
    if thread_number() == 0:
        place[0] = int32(at)


@cuda_kernel("n_steps: int64, stride: uint32, words: uint32[:], out: int64[:]")
def lines_kernel(n_steps, stride, words, out):
    """n_steps loads of every warp, its lanes ``stride`` words apart. words : uint32 (a power of two,). out : int64 (≥ 1,), INOUT.
    What the first thread has read is added to it."""
    last, total, i = uint32(words.size - 1), uint32(0), int64(0)
    at = uint32(uint32(lane_number()) * stride)
    while i < n_steps:
        for k in range(UNROLLED):
            total = uint32(total + words[uint32(at + uint32(LINE_WORDS * k)) & last])
        at = uint32(at + uint32(LINE_WORDS * UNROLLED))
        i += int64(UNROLLED)
    if thread_number() == 0 or total == uint32(0xFFFFFFFF):
        out[0] += int64(total)


@cuda_kernel("n_steps: int64, bins: int64[:, :]")
def global_adds_kernel(n_steps, bins):
    """n_steps adds of 1 of every thread, 32 neighbouring bins of a warp, as histograms are flushed. bins : int64 (n, 2), INOUT, n
    a multiple of 32."""
    i, n_lines = int64(0), uint32(bins.shape[0] >> 5)
    while i < n_steps:
        line = uint32(mix32(uint32(uint32(thread_number() >> uint32(5)) ^ uint32(uint32(i) << uint32(16)))) % n_lines)
        place = uint32(uint32(line << uint32(5)) + uint32(lane_number()))
        cuda.atomic.add(bins, (place, i & 1), int64(1))
        i += int64(1)


# --- Clocks ---


def device_ms(device: Any, run: Callable[[], Any]) -> float:
    """Milliseconds of the device for what run() launches, the median of REPEATS after a warm-up."""
    run()
    return float(np.median([one_ms(device, run) for _ in range(REPEATS)]))


def one_ms(device: Any, run: Callable[[], Any]) -> float:
    marks = [mark(device)]
    run()
    marks.append(mark(device))
    return elapsed_ms(device, *marks)


def mark(device: Any) -> Any:
    """A point in the device's work; in the simulator, which does it at once, of the host's clock."""
    if not hasattr(device.xp, "cuda"):
        return time.perf_counter()
    event = device.xp.cuda.Event()
    event.record()
    return event


def elapsed_ms(device: Any, begin: Any, end: Any) -> float:
    """Waits for the device."""
    if not hasattr(device.xp, "cuda"):
        return 1000 * (end - begin)
    end.synchronize()
    return float(device.xp.cuda.get_elapsed_time(begin, end))


def wait(device: Any) -> None:
    if hasattr(device.xp, "cuda"):
        device.xp.cuda.Device().synchronize()


def host_us(device: Any, run: Callable[[], Any], n: int) -> float:
    """Microseconds of the host for one of n calls, which the device may still be busy with."""
    seconds = []
    for _ in range(1 + REPEATS):
        wait(device)
        begin = time.perf_counter()
        for _ in range(n):
            run()
        seconds.append(time.perf_counter() - begin)
    wait(device)
    return 1e6 * float(np.median(seconds[1:])) / n


# --- Ceilings ---


def copy(device: Any, sizes: Sizes) -> dict[str, float]:
    source, target = device.zeros(sizes.copied // 4, np.float32), device.empty(sizes.copied // 4, np.float32)
    host = np.ones(min(sizes.copied // 4, 2**26), np.float32)
    ms, put_ms = device_ms(device, lambda: device.xp.copyto(target, source)), device_ms(device, lambda: device.put(host))
    return {"GB/s, read and written": 2e-6 * sizes.copied / ms, "GB/s from the host, pageable": 1e-6 * host.nbytes / put_ms}


def shared_adds(device: Any, sizes: Sizes) -> dict[str, float]:
    """Of the whole GPU. A pass: a bank of a multiprocessor serves one word."""
    out, results = device.zeros(1, np.int64), {}
    blocks = device.n_multiprocessors * ADDS_BLOCKS_PER_SM
    rows = ADDS_ROWS if sizes.adds > UNROLLED else 2
    n_adds = sizes.adds * blocks * device.block(shared_adds_kernel)
    for name, masks, passes in (("own banks", (rows - 1, 0, 1), 1.0), ("random banks", (rows - 1, 31, 1), random_passes()),
                                ("one address", (0, 0, 0), 32.0)):  # fmt: skip
        ms = device_ms(device, lambda m=masks: device.launch(
            shared_adds_kernel, sizes.adds, 1, *m, out, blocks=blocks, shared=adds_bytes(m[0] + 1)))  # fmt: skip
        results |= {f"G adds/s, {name}": 1e-6 * n_adds / ms,
                    f"ns per bank pass, {name}": 1e6 * ms * device.n_multiprocessors / (n_adds / 32 * passes)}  # fmt: skip
    return results


def adds_bytes(n_rows: int) -> int:
    """Shared memory of shared_adds_kernel."""
    return 128 * (n_rows + UNROLLED - 1)


def random_passes() -> float:
    """Expected largest number of 32 random words that lie in one bank."""
    banks = np.random.default_rng(0).integers(0, 32, (20_000, 32))
    return float((banks[:, :, None] == np.arange(32)).sum(1).max(1).mean())


def gather(device: Any, sizes: Sizes) -> dict[str, float]:
    """Records of 32 bytes: all rows, those of a node of one row in 8 and in 64, and all in random order."""
    rng, n = np.random.default_rng(0), sizes.records
    words, out = device.zeros((n, RECORD_WORDS), np.uint32), device.zeros(1, np.uint32)
    orders = {"in order": np.arange(n), "one in 8": np.flatnonzero(rng.integers(0, 8, n) == 0),
              "one in 64": np.flatnonzero(rng.integers(0, 64, n) == 0), "at random": rng.permutation(n)}  # fmt: skip
    results = {}
    for name, order in orders.items():
        rows = device.put(order.astype(np.int32))
        ms = device_ms(device, lambda: device.launch(gather_kernel, rows, words, out, threads=len(order) * RECORD_WORDS))  # noqa: B023
        results[f"GB/s of records, {name}"] = 1e-6 * len(order) * 4 * RECORD_WORDS / ms
    return results


def instructions(device: Any, sizes: Sizes) -> dict[str, float]:
    """Of a multiprocessor full of warps: nanoseconds for one that all lanes of a warp do."""
    out, results, threads = device.zeros(1, np.float64), {}, device.n_multiprocessors * sizes.threads
    for name, kernel in (("", multiply_kernel(False)), (", float64", multiply_kernel(True))):
        ms = device_ms(device, lambda k=kernel: device.launch(k, sizes.steps, 1.0, out, threads=threads))
        results[f"ns per instruction{name}"] = 1e6 * ms / (sizes.threads / 32 * sizes.steps)
    return results


def chains(device: Any, sizes: Sizes) -> dict[str, float]:
    """A single warp: an instruction after the other, each of which needs the last one's result; loads likewise."""
    out, place = device.zeros(1, np.float64), device.zeros(1, np.int32)
    ms = device_ms(device, lambda: device.launch(multiply_kernel(False), sizes.steps, 1.0, out, threads=1))
    results = {"ns per instruction": 1e6 * ms / sizes.steps}
    for name, n_lines in (("cache", sizes.steps), ("memory", sizes.copied // 512)):
        following = device.put(cycle(n_lines))
        device.clear(place)
        ms = device_ms(device, lambda f=following: device.launch(chase_kernel, sizes.steps, f, place, threads=1))
        results[f"ns per load, {name}"] = 1e6 * ms / sizes.steps
    return results


def cycle(n_lines: int) -> np.ndarray:
    """int32 (32 · n_lines,): from the first element of a line to that of another, through all of them in random order."""
    order = np.random.default_rng(0).permutation(n_lines).astype(np.int32) * LINE_WORDS
    following = np.zeros(n_lines * LINE_WORDS, np.int32)
    following[order] = np.roll(order, -1)
    return following


def lines(device: Any, sizes: Sizes) -> dict[str, float]:
    """Loads of a warp from the first-level cache, of one line and of eight: what each further line costs a multiprocessor."""
    words, out, threads = device.zeros(2**12, np.uint32), device.zeros(1, np.int64), device.n_multiprocessors * sizes.threads
    ms = [device_ms(device, lambda s=stride: device.launch(lines_kernel, sizes.steps, s, words, out, threads=threads))
          for stride in (1, 8)]  # fmt: skip
    loads = sizes.threads / 32 * sizes.steps
    return {"ns per load": 1e6 * ms[0] / loads, "ns per line": 1e6 * ms[1] / (8 * loads)}


def global_adds(device: Any, sizes: Sizes) -> dict[str, float]:
    """Of 64 bits, to a histogram of 28 × 256 bins, by all multiprocessors."""
    bins, threads = device.zeros((28 * 256, 2), np.int64), device.n_multiprocessors * sizes.threads
    n_steps = max(sizes.steps // 64, 1)
    ms = device_ms(device, lambda: device.launch(global_adds_kernel, n_steps, bins, threads=threads))
    return {"ns per add": 1e6 * ms / (threads * n_steps)}


def launches(device: Any, sizes: Sizes) -> dict[str, float]:
    """A kernel that does nothing, in a row; and what it takes to hear from the device."""
    out, prepared, n = device.zeros(1, np.int64), {}, sizes.launches

    def again() -> None:
        device.launch(nothing_kernel, out, threads=1, prepared=prepared)

    results = {
        "µs of the host, prepared": host_us(device, again, n),
        "µs of the host, not prepared": host_us(device, lambda: device.launch(nothing_kernel, out, threads=1), n),
        "µs of the device, prepared": 1000 * device_ms(device, lambda: [again() for _ in range(n)]) / n,
        "µs of a fetch of 8 bytes": host_us(device, lambda: device.fetch(out), 20),
        "µs of a started copy of 8 bytes": host_us(device, lambda: device.start_copy(out), 20),
    }
    if hasattr(device.xp, "cuda"):
        raw = device.xp.RawKernel('extern "C" __global__ void nothing() {}', "nothing")
        results["µs of the host, CuPy's RawKernel"] = host_us(device, lambda: raw((1,), (32,), ()), n)
        results["µs of the device, replayed in a graph"] = 1000 * graph_ms(device, again, n) / n
    return results


def graph_ms(device: Any, run: Callable[[], None], n: int) -> float:
    """Milliseconds to replay a graph of n calls."""
    with device.xp.cuda.Stream(non_blocking=True) as stream:
        stream.begin_capture()
        for _ in range(n):
            run()
        graph = stream.end_capture()
        graph.upload(stream)
        return device_ms(device, lambda: graph.launch(stream))


CEILINGS: dict[str, Callable[[Any, Sizes], dict[str, float]]] = {
    "copy": copy, "shared adds": shared_adds, "gather": gather, "launch": launches, "instructions": instructions,
    "chains": chains, "lines": lines, "global adds": global_adds,
}  # fmt: skip


@cache
def units(device: Any, sizes: Sizes) -> tuple[float, float]:
    """(ns_per_byte, ns_per_add) for floors."""
    return 1 / copy(device, sizes)["GB/s, read and written"], 1 / shared_adds(device, sizes)["G adds/s, own banks"]
