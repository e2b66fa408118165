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
from itertools import product

import numpy as np
from gpu_machine import Machine, Work
from replay import IDLE, LINE, SECTOR, add_passes, codes_of, load_passes, rows_of_a_node, sectors_in_all, touched, warps
from sass import Listing, Loop, disassemble

from gpuboost.backend.cuda.record_tiles import choose_tiles
from gpuboost.kernels import histogram, histogram_tiles, partition, row_leaves, splits
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


def tile_adds(codes: np.ndarray, words: int, block: int, width: int = 1) -> list[np.ndarray]:
    """Words of shared memory of the 16 adds of each step, in their order, int64 (warps' instructions, 32) each; of two tiles 32.

    codes : int64 (n_rows, 8 · words · width), of a node's rows in its order.
    """
    place, word = tile_lanes(len(codes), words, block)
    turn = np.arange(block) % 32 // words
    adds = []
    for tile, j in product(range(width), range(8)):
        at = (turn + j % 4 & 7) ^ (j & 4)
        column = 8 * (word + words * (turn >> 3)) + at
        offset = codes[place, 8 * (word * width + tile) + at] * 64 + column + tile * histogram_tiles.SECOND_TILE // 4
        adds += [np.where(place == IDLE, IDLE, offset + plane * 32) for plane in range(2)]
    return list(map(warps, adds))


@dataclass(frozen=True)
class Replay:
    """Means of a warp's step: passes of all its adds, lines of its loads; and sectors of memory for each row."""

    passes: float
    lines: float
    sectors: float


@cache
def replay_tile(share: float, kind: str, n_bins: int, n_features: int, words: int, block: int, width: int) -> Replay:
    """A block that adds up rows of a node with this share of the table's: numbers and pairs of 4 bytes, records of codes."""
    rng = np.random.default_rng(0)
    rows, record = rows_of_a_node(rng, REPLAYED_STEPS * (block // words), share), histogram.record_bytes(n_features)
    codes = np.pad(codes_of(kind, rng, len(rows), n_features, n_bins), ((0, 0), (0, record - n_features)))[:, : 8 * words * width]
    place, word = tile_lanes(len(rows), words, block)
    numbers, pairs, words_of_rows = 4 * place, 4 * rows[place], record * rows[place] + 8 * width * word
    loads = [np.where(place == IDLE, IDLE, each) for each in (numbers, pairs, words_of_rows)]
    passes = sum(add_passes(words).mean() for words in tile_adds(codes, words, block, width))
    lines = sum(touched(warps(addresses), LINE).mean() for addresses in loads)
    # Tiles of the same rows run side by side: one brings row numbers and pairs from memory, the others find them in the cache.
    n_tiles = math.ceil(record / (8 * words * width))
    sectors = (sum(map(sectors_in_all, loads[:2])) / n_tiles + sectors_in_all(loads[2])) / len(rows)
    return Replay(float(passes), float(lines), sectors)


def build_histograms(kernel: CudaKernel, task: Task, machine: Machine) -> list[Work]:
    """An item: a warp's part of a slice and a tile, and of its flush. Before it, the histograms are cleared."""
    listing, tiles = disassemble(kernel, machine.capability), choose_tiles(task.n_bins, task.n_features, 1, machine.shared_limit)
    loop, turn = listing.inner_loops("ATOMS")[0], listing.inner_loops("LDS", "STS")[0]
    flush, (n_lines, words) = listing.inner_loops("ATOMG|RED", "LDS")[0], tiles.shape
    n_warps, resident = kernel.block // 32, resident_warps(kernel, listing, machine, tiles.shared_bytes)
    width = loop.count("ATOMS") // 16
    turns, flushes = width * 2 * n_lines / n_warps, width * 8 * words / n_warps * -(-n_lines // 16)  # of a warp
    n_parts = histogram.parts_of_rows(machine.multiprocessors * kernel.blocks_per_sm, tiles.n_tiles)
    works = []
    for level in built_levels(task, machine):
        n_best, n_even = math.sqrt(level.rows / (n_lines * tiles.n_tiles * histogram.FLUSH_COST)), machine.multiprocessors
        n_best = n_best if n_best < n_even else -(-n_best // n_even) * n_even
        part_rows = min(max(level.rows / min(n_parts, n_best), histogram.MIN_PART_ROWS), histogram.MAX_SLICE_ROWS)
        slices = level.rows / part_rows + level.nodes - 1
        means = replay_tile(level.share, task.kind, task.n_bins, task.n_features, words, kernel.block, width)
        steps = level.rows / slices / (kernel.block // words)
        works.append(
            Work(
                items=slices * tiles.n_tiles * n_warps, resident=resident,
                instructions=steps * len(loop) + turns * len(turn) + flushes * len(flush) + outside(listing, loop, turn, flush),
                shared_adds=steps * width * 16, passes=2 * (turns + flushes), lines=steps * means.lines + flushes * 32 * 8 / LINE,
                waits=steps / 2 + 2, cached_waits=6,  # two records of a thread are under way
                bytes=level.rows * tiles.n_tiles * means.sectors * SECTOR + level.nodes * 16 * task.n_features * task.n_bins,
                adds=slices * task.n_features * task.n_bins * 2, add_passes=means.passes / 16 / width,
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
    """An item: a feature of a node without missing rows, a tile of bins at a time, and its part of what a warp does for the node.
    Each tile is waited for. A load of a lane's bins touches a line for every second lane."""
    listing = disassemble(kernel, machine.capability)
    tile = listing.inner_loops("LDG", "SHFL.UP")[0]
    feature = listing.around(listing.around(tile))
    tiles, bytes_each = -(-task.n_bins // splits.TILE_BINS), 16 * task.n_features * task.n_bins
    resident, works = resident_warps(kernel, listing, machine), []
    for level in split_levels(task):
        items = level.nodes * task.n_features
        of_node = min(1.0, resident_share(items, resident) + 1 / task.n_features)  # one for each warp, and where nodes meet
        works.append(
            Work(
                items=items, resident=resident,
                instructions=of_node * outside(listing, feature) + len(feature) + (tiles - 1) * len(tile),
                doubles=tiles * tile.count(DOUBLE), passes=tiles * tile.count("SHFL") + 10,
                lines=tiles * splits.LANE_BINS * 32 * 16 * splits.LANE_BINS / LINE,
                waits=tiles, cached_waits=1 + 6 * of_node, bytes=level.nodes * bytes_each,
            )  # fmt: skip
        )
    return works


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


def move_rows(kernel: CudaKernel, task: Task, machine: Machine) -> list[Work]:
    """An item: a warp's part of a chunk, all rows of which are loaded, then all codes, and which then waits for room. Loops over
    codes of categories are not done."""
    listing = disassemble(kernel, machine.capability)
    search, n_warps = listing.inner_loops("BAR")[0], kernel.block // 32
    by_set = [loop for loop in listing.inner_loops() if not loop.count("BAR")]
    works = []
    for level in split_levels(task)[:-1]:  # the last splits move no rows
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


@dataclass(frozen=True)
class Walk:
    """Means of 32 neighbouring rows that walk down a tree: bank passes of the splits they look at, lines of codes, and sectors of
    codes for each row, of all levels."""

    passes: float
    lines: float
    sectors: float


@cache
def replay_walk(max_depth: int, n_features: int) -> Walk:
    """Of rows that go either way at random, at splits of random features. Codes have a byte, and lie by feature; a sector that
    the rows have read for one level is there for the others."""
    rng, n = np.random.default_rng(0), 256  # warps
    feature_of, node, seen = rng.integers(0, n_features, 2**max_depth), np.zeros((n, 32), np.int64), []
    passes, lines = 0.0, 0.0
    for _ in range(max_depth):
        words = 2 * node.reshape(2 * n, 16)  # 8 bytes of each of half a warp
        passes += 2 * float(load_passes(np.concatenate([words, words + 1], axis=1)).mean())
        addresses = feature_of[node] * LINE
        lines += float(touched(addresses, LINE).mean())
        seen.append(addresses)
        node = 2 * node + 1 + rng.integers(0, 2, node.shape)
    sectors = float(touched(np.concatenate(seen, axis=1), LINE).mean()) / 32
    return Walk(passes, lines, sectors)


def resident_share(items: float, resident: float) -> float:
    """Of what a warp does once, the part that each of its items takes."""
    return min(1.0, resident / items)


def find_leaves(kernel: CudaKernel, task: Task, machine: Machine) -> list[Work]:
    """An item: 128 rows of a warp, four of each thread, which wait together at each level; sets are not looked at."""
    listing, n_nodes = disassemble(kernel, machine.capability), 2 ** (task.max_depth + 1) - 1
    level, stage = listing.inner_loops("LDS", "LDG")[0], listing.inner_loops("LDG", "STS")[0]
    walk, n_rows = replay_walk(task.max_depth, task.n_features), 32 * row_leaves.ROWS_PER_THREAD
    items, resident = task.n_rows / n_rows, resident_warps(kernel, listing, machine, n_nodes * row_leaves.WORD_BYTES)
    once, turns = resident_share(items, resident), -(-n_nodes // kernel.block)
    each = outside(listing, listing.around(level)) + task.max_depth * len(level)
    return [
        Work(
            items=items, resident=resident, instructions=each + once * turns * len(stage),
            passes=n_rows / 32 * walk.passes, lines=n_rows / 32 * (walk.lines + 2), waits=task.max_depth + 1,
            cached_waits=once * (3 * turns + 2), bytes=task.n_rows * (2 + SECTOR * walk.sectors),
        )  # fmt: skip
    ]


def sum_found(kernel: CudaKernel, task: Task, machine: Machine) -> list[Work]:
    """An item: a warp's part of the rows, the next of which is on its way while one is added, and its part of the sums of all
    nodes, which are cleared before and taken after."""
    listing, n_nodes = disassemble(kernel, machine.capability), 2 ** (task.max_depth + 1) - 1
    loop, take, clear = (listing.inner_loops(name)[0] for name in ("ATOMS", "LDS", "STS"))
    n_parts, n_warps = machine.multiprocessors * kernel.blocks_per_sm, kernel.block // 32
    steps, takes = task.n_rows / n_parts / kernel.block, 2 * n_nodes / kernel.block
    clears = 32 * n_nodes / kernel.block / max(clear.count("STS"), 1)
    return [
        Work(
            items=n_parts * n_warps, resident=resident_warps(kernel, listing, machine, n_nodes * row_leaves.LINE_BYTES),
            instructions=steps * len(loop) + takes * len(take) + clears * len(clear) + outside(listing, loop, take),
            doubles=steps * loop.count(DOUBLE), shared_adds=steps * 8, lines=steps * 4,
            passes=takes * 32 + 32 * n_nodes / kernel.block,
            waits=steps + 1, cached_waits=6, bytes=task.n_rows * (2 + 4 + 4), adds=n_parts * 2 ** (task.max_depth + 1),
            add_passes=1.0,
        )  # fmt: skip
    ]


def add_found(kernel: CudaKernel, task: Task, machine: Machine) -> list[Work]:
    """An item: 32 rows; first the values of all nodes."""
    listing, n_nodes = disassemble(kernel, machine.capability), 2 ** (task.max_depth + 1) - 1
    loop, stage = listing.inner_loops("FADD", "STG")[0], listing.inner_loops("LDG", "STS")[0]
    items, resident = task.n_rows / 32, resident_warps(kernel, listing, machine, n_nodes * row_leaves.VALUE_BYTES)
    once, turns = resident_share(items, resident), -(-n_nodes // kernel.block)
    return [
        Work(
            items=items, resident=resident, instructions=len(loop) + once * (outside(listing, loop) + turns * len(stage)),
            passes=4, lines=4, waits=2, cached_waits=once * (2 * turns + 2), bytes=task.n_rows * (2 + 4 + 4),
        )  # fmt: skip
    ]


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
    r"histogram_tiles\.build_histograms_kernel_8(_wide)?": build_histograms,
    r"histogram\.subtract_histograms_kernel": subtract_histograms,
    r"splits\.evaluate_plain_splits_kernel": evaluate_splits,
    r"splits\.choose_splits_kernel": choose_splits,
    r"partition\.move_rows_kernel": move_rows,
    r"growth\.start_trees_kernel": every_row(8, "LDG", "STG"),
    r"row_leaves\.find_leaves_kernel": find_leaves,
    r"row_leaves\.sum_found_kernel": sum_found,
    r"row_leaves\.add_found_kernel": add_found,
    r"quantise\.quantise_kernel": every_row(12, "LDG", "STG"),
    r"gradients\.gradients_kernel.*": every_row(16, "LDG", "STG"),
}


def description_of(kernel: CudaKernel) -> Description | None:
    return next((describe for name, describe in DESCRIPTIONS.items() if re.fullmatch(name, kernel.name)), None)
