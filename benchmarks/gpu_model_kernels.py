"""What the kernels of a tree do: for each its launches as Work, from its machine code, its geometry and its addresses.

A description is a function (kernel, task, machine) -> works, one for each of its launches in a tree; DESCRIPTIONS finds it by the
kernel's name. What it takes from a kernel's file are the functions that size its launches; the order in which threads take rows
is written here a second time, as arrays (for histograms a test compares it with the simulator). A kernel that replaces another
one gets a description of its own: the model takes those of the kernels that are launched.

Levels: each node of a level has as many rows as the others, drawn at random from the table.
"""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
from gpu_machine import Machine, Work
from replay import IDLE, LINE, SECTOR, add_passes, codes_of, rows_of_a_node, sectors_in_all, touched, warps
from sass import Listing, Loop, disassemble

from gpuboost.backend.cuda.record_tiles import choose_tiles
from gpuboost.kernels import histogram, leaves, partition, splits
from gpuboost.kernels.cuda_common import CudaKernel

BLOCK_BYTES = 1024  # of shared memory that the system keeps of each block
REPLAYED_STEPS = 20
DOUBLE = r"D(ADD|MUL|FMA|SETP|MNMX)|MUFU\.RCP64|F2I.*F64|F2F.*F64|I2F.*F64"


@dataclass(frozen=True)
class Task:
    """A table and a tree of it. kind : of codes, one of replay.KINDS."""

    n_rows: int
    n_features: int
    max_depth: int
    kind: str = "random"

    @property
    def n_bins(self) -> int:
        return 2 if self.kind == "one-hot" else 256


@dataclass(frozen=True)
class Level:
    """rows : of its nodes that a launch reads, together. share : of the table's rows that are such a node's."""

    rows: float
    nodes: int
    share: float

    @property
    def ends(self) -> float:
        """What its nodes add to the number of equal parts that all rows together would be cut into: half of one each."""
        return self.nodes / 2 if self.nodes > 1 else 0.0


def split_levels(task: Task) -> list[Level]:
    return [Level(task.n_rows, 2**level, 0.5**level) for level in range(task.max_depth)]


def built_levels(task: Task, machine: Machine) -> list[Level]:
    """The root, and the smaller one of each pair of children."""
    smaller = machine.smaller_child
    below = [Level(task.n_rows * smaller, 2 ** (level - 1), smaller * 0.5 ** (level - 1)) for level in range(1, task.max_depth)]
    return [Level(task.n_rows, 1, 1.0), *below]


def resident_warps(kernel: CudaKernel, listing: Listing, machine: Machine, shared: int = 0) -> int:
    """Warps that are at work at once on all multiprocessors, by threads, registers (given out in eights) and shared memory."""
    registers = -(-max(listing.registers, 1) // 8) * 8
    blocks = min(
        machine.threads // kernel.block, machine.registers // (registers * kernel.block),
        machine.shared_bytes // (shared + BLOCK_BYTES),
    )  # fmt: skip
    return max(blocks, 1) * kernel.block // 32 * machine.multiprocessors


def outside(listing: Listing, *loops: Loop) -> int:
    """Instructions that an item takes outside these inner loops; those of ways not taken count as well. The longest loop is that
    over items."""
    return max(map(len, listing.loops)) - sum(map(len, loops))


# ---- Histograms


def tile_lanes(n_rows: int, words: int, block: int) -> tuple[np.ndarray, np.ndarray]:
    """(place in the node, word of the tile) that each thread takes in each step, int64 (steps, block); place IDLE without one."""
    thread, per_step = np.arange(block), block // words
    place = np.arange(-(-n_rows // per_step))[:, None] * per_step + thread // words
    return np.where(place < n_rows, place, IDLE), np.broadcast_to(thread % words, place.shape)


def tile_adds(codes: np.ndarray, words: int, block: int) -> list[np.ndarray]:
    """Words of shared memory of the 16 adds of each step, in their order, int64 (warps' instructions, 32) each.

    codes : int64 (n_rows, 8 · words), of a node's rows in its order.
    """
    place, word = tile_lanes(len(codes), words, block)
    turn = np.arange(block) % 32 // words
    adds = []
    for j in range(8):
        at = (turn + j % 4 & 7) ^ (j & 4)
        column = 8 * (word + words * (turn >> 3)) + at
        offset = codes[place, 8 * word + at] * 64 + column
        adds += [np.where(place == IDLE, IDLE, offset + plane * 32) for plane in range(2)]
    return list(map(warps, adds))


@dataclass(frozen=True)
class Replay:
    """Means of a warp's step: passes of all its adds, lines of its loads; and sectors of memory for each row."""

    passes: float
    lines: float
    sectors: float


@cache
def replay_tile(share: float, kind: str, n_bins: int, n_features: int, words: int, block: int) -> Replay:
    """A block that adds up rows of a node with this share of the table's: numbers and pairs of 4 bytes, records of codes."""
    rng = np.random.default_rng(0)
    rows, record = rows_of_a_node(rng, REPLAYED_STEPS * (block // words), share), histogram.record_bytes(n_features)
    codes = np.pad(codes_of(kind, rng, len(rows), n_features, n_bins), ((0, 0), (0, record - n_features)))[:, : 8 * words]
    place, word = tile_lanes(len(rows), words, block)
    loads = [np.where(place == IDLE, IDLE, each) for each in (4 * place, 4 * rows[place], record * rows[place] + 8 * word)]
    passes = sum(add_passes(words).mean() for words in tile_adds(codes, words, block))
    lines = sum(touched(warps(addresses), LINE).mean() for addresses in loads)
    # Tiles of the same rows run side by side: one brings row numbers and pairs from memory, the others find them in the cache.
    sectors = (sum(map(sectors_in_all, loads[:2])) / (record // (8 * words)) + sectors_in_all(loads[2])) / len(rows)
    return Replay(float(passes), float(lines), sectors)


def build_histograms(kernel: CudaKernel, task: Task, machine: Machine) -> list[Work]:
    """An item: a warp's part of a slice and a tile, and of its flush. Before it, the histograms are cleared."""
    listing, tiles = disassemble(kernel, machine.capability), choose_tiles(task.n_bins, task.n_features, 1, machine.shared_limit)
    loop, turn = listing.inner_loops("ATOMS")[0], listing.inner_loops("LDS", "STS")[0]
    flush, (n_lines, words) = listing.inner_loops("ATOMG|RED", "LDS")[0], tiles.shape
    n_warps, resident = kernel.block // 32, resident_warps(kernel, listing, machine, tiles.shared_bytes)
    turns, flushes = 2 * n_lines / n_warps, 32 / n_warps * -(-n_lines // 16)  # of a warp
    n_parts = histogram.parts_of_rows(machine.multiprocessors * kernel.blocks_per_sm, tiles.n_tiles)
    works = []
    for level in built_levels(task, machine):
        part_rows = min(max(level.rows / n_parts, histogram.MIN_PART_ROWS), histogram.MAX_SLICE_ROWS)
        slices = level.rows / part_rows + level.nodes - 1
        means = replay_tile(level.share, task.kind, task.n_bins, task.n_features, words, kernel.block)
        steps = level.rows / slices / (kernel.block // words)
        works.append(
            Work(
                items=slices * tiles.n_tiles * n_warps, resident=resident,
                instructions=steps * len(loop) + turns * len(turn) + flushes * len(flush) + outside(listing, loop, turn, flush),
                passes=steps * means.passes + 2 * (turns + flushes), lines=steps * means.lines + flushes * 32 * 8 / LINE,
                waits=steps + 2, cached_waits=6,
                bytes=level.rows * tiles.n_tiles * means.sectors * SECTOR + level.nodes * 16 * task.n_features * task.n_bins,
                adds=slices * task.n_features * task.n_bins * 2, add_passes=means.passes / 16,
            )  # fmt: skip
        )
    return works


def subtract_histograms(kernel: CudaKernel, task: Task, machine: Machine) -> list[Work]:
    """An item: 32 values of a pair."""
    listing = disassemble(kernel, machine.capability)
    values = 2 * task.n_features * task.n_bins
    return [
        Work(
            items=level.nodes * values / 32, resident=resident_warps(kernel, listing, machine),
            instructions=len(listing.inner_loops("LDG", "STG")[0]), lines=6, waits=1, bytes=24 * level.nodes * values,
        )  # fmt: skip
        for level in built_levels(task, machine)[1:]
    ]


# ---- Splits


def evaluate_splits(kernel: CudaKernel, task: Task, machine: Machine) -> list[Work]:
    """An item: a feature of a node without missing rows, 32 bins at a time, the next of which are on their way meanwhile."""
    listing = disassemble(kernel, machine.capability)
    tile = listing.inner_loops("SHFL.UP")[0]
    tiles, bytes_each = -(-task.n_bins // 32), 16 * task.n_features * task.n_bins
    shared = kernel.block // 32 * splits.CARRY_BYTES
    return [
        Work(
            items=level.nodes * task.n_features, resident=resident_warps(kernel, listing, machine, shared),
            instructions=outside(listing, tile) + tiles * len(tile),
            doubles=tiles * tile.count(DOUBLE), passes=tiles * tile.count("SHFL|LDS|STS"), lines=tiles * 8,
            cached_waits=7, bytes=level.nodes * bytes_each,
        )  # fmt: skip
        for level in split_levels(task)
    ]


def choose_splits(kernel: CudaKernel, task: Task, machine: Machine) -> list[Work]:
    """An item: a node, 128 features at a time, then as many bins of the best."""
    listing = disassemble(kernel, machine.capability)
    chunks, tiles = -(-task.n_features // 128), -(-task.n_bins // 128)
    return [
        Work(
            items=level.nodes, resident=resident_warps(kernel, listing, machine),
            instructions=len(listing.instructions) + chunks * 80, cached_waits=chunks + 6 + tiles,
            bytes=level.nodes * task.n_features * 12,
        )  # fmt: skip
        for level in split_levels(task)
    ]


# ---- Rows


@cache
def gathered(share: float, n_bytes: int) -> tuple[float, float]:
    """(lines of a warp, sectors for each row) of a load of n_bytes of each of 32 rows of a node."""
    rows = rows_of_a_node(np.random.default_rng(0), 64 * 32, share)
    addresses = (rows * n_bytes).reshape(-1, 32)
    return float(touched(addresses, LINE).mean()), sectors_in_all(addresses) / rows.size


def chunks(
    kernel: CudaKernel, machine: Machine, level: Level, chunk_rows: int, *, loop: tuple[str, ...], waits: float, lines: float,
    row_bytes: float, head_waits: float, per_step: int = 1,
) -> Work:  # fmt: skip
    """A kernel whose blocks take chunks of a node's rows, its warps 32 rows a step. An item: a warp's part of a chunk.

    loop : what its inner loop does, first what it does per_step times a step, which tells how many steps it takes at once.
    lines : of a step. waits : of steps taken at once. head_waits : beside the search for the chunk's node.
    """
    listing = disassemble(kernel, machine.capability)
    bodies = listing.inner_loops(*loop)  # where there are several, one of them is done
    n_chunks, n_warps = level.rows / chunk_rows + level.ends, kernel.block // 32
    at_once = bodies[0].count(loop[0]) / per_step
    steps = level.rows / n_chunks / kernel.block
    loops = max(steps / at_once, 1)
    return Work(
        items=n_chunks * n_warps, resident=resident_warps(kernel, listing, machine),
        instructions=loops * len(bodies[0]) + outside(listing, *bodies), doubles=loops * bodies[0].count(DOUBLE),
        lines=steps * lines, waits=loops * waits, cached_waits=math.log(level.nodes, 32) + head_waits,
        bytes=level.rows * row_bytes,
    )  # fmt: skip


def move_rows(kernel: CudaKernel, task: Task, machine: Machine) -> list[Work]:
    """An item: a warp's part of a chunk, all rows of which are loaded, then all codes, and which then waits for room. Loops over
    codes of categories are not done."""
    listing = disassemble(kernel, machine.capability)
    search, n_warps = listing.inner_loops("BAR")[0], kernel.block // 32
    by_set = [loop for loop in listing.inner_loops() if not loop.count("BAR")]
    works = []
    for level in split_levels(task):
        (lines, sectors), searches = gathered(level.share, 1), math.ceil(math.log(level.nodes, 32))
        n_chunks = level.rows / partition.CHUNK_ROWS + level.ends
        steps = level.rows / n_chunks / kernel.block
        works.append(
            Work(
                items=n_chunks * n_warps, resident=resident_warps(kernel, listing, machine),
                instructions=outside(listing, search, *by_set) + searches * len(search),
                lines=steps * (1 + lines + 3), waits=2, cached_waits=searches + 6,
                bytes=level.rows * (8 + SECTOR * sectors), adds=n_chunks,
            )  # fmt: skip
        )
    return works


def leaves_of(task: Task) -> Level:
    return Level(task.n_rows, 2**task.max_depth, 0.5**task.max_depth)


def sum_leaves(kernel: CudaKernel, task: Task, machine: Machine) -> list[Work]:
    """A step waits for 32 row numbers, then for gradients and hessians."""
    lines, sectors = gathered(leaves_of(task).share, 4)
    return [chunks(kernel, machine, leaves_of(task), leaves.CHUNK_ROWS, loop=("F2I", "LDG"), waits=2, lines=1 + 2 * lines,
                   row_bytes=4 + 2 * SECTOR * sectors, head_waits=8, per_step=2)]  # fmt: skip


def update_margin(kernel: CudaKernel, task: Task, machine: Machine) -> list[Work]:
    """A step waits for 32 row numbers, then for margins, which it writes back."""
    lines, sectors = gathered(leaves_of(task).share, 4)
    return [chunks(kernel, machine, leaves_of(task), leaves.CHUNK_ROWS, loop=("FADD", "STG"), waits=2, lines=1 + 2 * lines,
                   row_bytes=4 + 2 * SECTOR * sectors, head_waits=8)]  # fmt: skip


def every_row(row_bytes: int, *loop: str) -> Callable[[CudaKernel, Task, Machine], list[Work]]:
    """A kernel whose threads stride over all rows. An item: a step of a warp."""

    def describe(kernel: CudaKernel, task: Task, machine: Machine) -> list[Work]:
        listing = disassemble(kernel, machine.capability)
        body = listing.inner_loops(*loop)[0]
        return [
            Work(
                items=task.n_rows / 32, resident=resident_warps(kernel, listing, machine), instructions=len(body),
                doubles=body.count(DOUBLE), lines=row_bytes / 4, waits=1, bytes=task.n_rows * row_bytes,
            )  # fmt: skip
        ]

    return describe


Description = Callable[[CudaKernel, Task, Machine], list[Work]]
DESCRIPTIONS: dict[str, Description] = {
    r"histogram_tiles\.build_histograms_kernel_8_\d": build_histograms,
    r"histogram\.subtract_histograms_kernel": subtract_histograms,
    r"splits\.evaluate_splits_kernel_\w+": evaluate_splits,
    r"splits\.choose_splits_kernel": choose_splits,
    r"partition\.move_rows_kernel": move_rows,
    r"growth\.start_trees_kernel": every_row(8, "LDG", "STG"),
    r"leaves\.sum_leaves_kernel": sum_leaves,
    r"leaves\.update_margin_kernel": update_margin,
    r"quantise\.quantise_kernel": every_row(12, "LDG", "STG"),
    r"gradients\.gradients_kernel.*": every_row(16, "LDG", "STG"),
}


def description_of(kernel: CudaKernel) -> Description | None:
    return next((describe for name, describe in DESCRIPTIONS.items() if re.fullmatch(name, kernel.name)), None)
