"""Every CUDA kernel of a training where it runs, on nodes of real sizes, beside its floor.

A workload runs three times: to warm up, to find the floors, and with an event before and after each launch. So that the times are
those of kernels, and not of a GPU that waits for its host, each round begins with a kernel that keeps it busy for DELAY_MS. Where
the host reads within a tree (leaf by leaf), short kernels after that show some µs of waiting.

    ms, floor_ms    of one round, or of one table        calls    likewise
    floor           the larger one of bytes read and written at the rate of a copy, and of adds to shared memory at the rate of
                    lanes that keep to their own banks (gpu_ceilings.py); scattered reads count as sectors of 32 bytes

A kernel without a floor does little work: what it takes is the cost of a launch and of its chain of dependent steps.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
from gpu_ceilings import UNROLLED, Sizes, adds_bytes, elapsed_ms, mark, one_ms, shared_adds_kernel, units, wait

import gpuboost as gb

DELAY_MS = 20.0
SECTOR = 32

# --- Floors: (arguments of a launch by name, function that fetches one) -> (bytes, adds to shared memory) ---


def rows_of(a: Any, fetch: Callable[[Any], np.ndarray], listed: Any, n: int) -> np.ndarray:
    """Rows of each node listed."""
    segments, listed = fetch(a.segments), fetch(listed)[:n]
    listed = listed[listed >= 0]
    return segments[listed, 1] - segments[listed, 0]


def leaf_rows(a: Any, fetch: Callable[[Any], np.ndarray]) -> int:
    nodes, segments = fetch(a.nodes)[: int(fetch(a.progress)["n_nodes"][0])], fetch(a.segments)
    is_leaf = np.flatnonzero(nodes["left"] < 0)
    return int((segments[is_leaf, 1] - segments[is_leaf, 0]).sum())


def quantise(a: Any, fetch: Callable[[Any], np.ndarray]) -> tuple[float, float]:
    n_outputs = a.gpair.shape[0] if a.limbs == 1 else int((fetch(a.n_limbs) == 2).sum())
    return 12.0 * a.gpair.shape[2] * n_outputs, 0.0


def scattered(sizes: np.ndarray, n_bytes: int, n_total: int) -> int:
    """Bytes moved to read n_bytes of each row of nodes of these sizes, in the order of n_total rows."""
    return int(np.minimum(sizes * max(SECTOR, n_bytes), max(n_total, 1) * n_bytes).sum())


def build_histograms(a: Any, fetch: Callable[[Any], np.ndarray]) -> tuple[float, float]:
    slices, n_total = fetch(a.slices)[: fetch(a.first_slice)[int(fetch(a.progress)["n_items"][0])]], a.gpair.shape[2]
    sizes = np.bincount(slices["slot"], slices["end"] - slices["begin"]) * int(fetch(a.n_limbs).max()) * a.hist.shape[1]
    n_bytes = 4 * sizes.sum() + scattered(sizes, a.words[:1].nbytes, n_total) + scattered(sizes, 4, n_total)
    return n_bytes, 2.0 * sizes.sum() * (a.offsets.size - 1)


def subtract_histograms(a: Any, fetch: Callable[[Any], np.ndarray]) -> tuple[float, float]:
    return 24.0 * int(fetch(a.progress)["n_built"][0]) * a.hist.shape[1], 0.0


def evaluate_splits(a: Any, fetch: Callable[[Any], np.ndarray]) -> tuple[float, float]:
    progress = fetch(a.progress)
    n = min(a.n, int(progress["n_nodes"][0] - progress["frontier"][0]) - a.begin)
    return 16.0 * max(n, 0) * a.hist[0].size // 2, 0.0


def move_rows(a: Any, fetch: Callable[[Any], np.ndarray]) -> tuple[float, float]:
    sizes = rows_of(a, fetch, a.selected, int(fetch(a.progress)["n_selected"][0]))
    return 8.0 * sizes.sum() + scattered(sizes, a.columns.dtype.itemsize, a.columns.shape[1]), 0.0


FLOORS: dict[str, Callable[[Any, Callable[[Any], np.ndarray]], tuple[float, float]]] = {
    "build_(strided_)?histograms_kernel": build_histograms,
    "subtract_histograms_kernel": subtract_histograms,
    "evaluate_(plain_)?splits_kernel": evaluate_splits,
    "move_rows_kernel": move_rows,
    "sum_leaves_kernel": lambda a, fetch: (12.0 * leaf_rows(a, fetch), 0.0),
    "update_margin_kernel": lambda a, fetch: (12.0 * leaf_rows(a, fetch), 0.0),
    "find_leaves_kernel": lambda a, fetch: ((int(fetch(a.progress)["depth"][0]) + 2.0) * a.found.size, 0.0),
    "sum_found_kernel": lambda a, fetch: (10.0 * a.found.size, 0.0),
    "add_found_kernel": lambda a, fetch: (10.0 * a.found.size, 0.0),
    "start_trees_kernel": lambda a, fetch: (8.0 * fetch(a.n_drawn)[0] * a.first_output.size, 0.0),
    "quantise_kernel": quantise,
    "gradients_kernel": lambda a, fetch: (12.0 * a.margin.size + 4.0 * a.label.size + 4.0 * a.weight.size, 0.0),
    "draw_rows_kernel": lambda a, fetch: (8.0 * a.kept.size + 16.0 * a.kept.size * a.grad.shape[0], 0.0),
    "draw_by_gradient_kernel": lambda a, fetch: (8.0 * a.kept.size + 24.0 * a.kept.size * a.grad.shape[0], 0.0),
    "compact_codes_kernel": lambda a, fetch: (float(fetch(a.n_drawn)[0]) * (4 + 2 * 4 * a.selected.shape[1]), 0.0),
    "bin_rows_kernel": lambda a, fetch: (float(a.values.nbytes + 2 * a.values.size * a.columns.dtype.itemsize), 0.0),
    "predict_(values|codes)_by_words(_and_cells)?_kernel": lambda a, fetch: (float(a.table.nbytes + 8 * a.table.shape[1]), 0.0),
    "transpose_rows_kernel": lambda a, fetch: (float(a.batch.nbytes + a.columns.nbytes), 0.0),
    "count_digits_kernel": lambda a, fetch: (float(a.values.nbytes), 0.0),
}


def floor_of(kernel: Any) -> Callable[..., tuple[float, float]] | None:
    """By its plain name, without what a factory adds: histogram.build_histograms_kernel_8, gradients.gradients_kernel[…]."""
    name = kernel.name.partition("[")[0]
    return next((floor for key, floor in FLOORS.items() if re.fullmatch(rf"\w+\.(softmax_)?{key}(_\w+)?", name)), None)


# --- Measuring ---


@dataclass
class Calls:
    n: int = 0
    ms: float = 0.0
    n_bytes: float = 0.0
    adds: float = 0.0
    floor_ms: float = 0.0


@dataclass
class Workload:
    """prepare : (device) -> what a pass calls. n : how many of ``per`` a pass makes."""

    prepare: Callable[[Any], Callable[[], Any]]
    per: str
    n: int = 1


@contextmanager
def without_graphs(device: Any) -> Iterator[None]:
    """Trainings that begin here launch one by one what others have recorded."""
    device.record = lambda work: None
    try:
        yield
    finally:
        del device.record


@contextmanager
def around_launches(device: Any, around: Callable[..., None]) -> Iterator[None]:
    """around(kernel, arguments, launch) in the place of every launch."""
    launch = device.launch
    device.launch = lambda kernel, *arguments, **work: around(kernel, arguments, lambda: launch(kernel, *arguments, **work))
    try:
        yield
    finally:
        del device.launch


def measure(device: Any, workload: Workload, sizes: Sizes) -> list[dict[str, Any]]:
    """A record for each kernel, the one that takes longest first."""
    calls: dict[str, Calls] = {}
    ns_per_byte, ns_per_add = units(device, sizes)

    def find_floor(kernel: Any, arguments: Any, launch: Callable[[], None]) -> None:
        launch()
        own, floor = calls.setdefault(kernel.name, Calls()), floor_of(kernel)
        own.n += 1
        if floor is not None:
            n_bytes, adds = floor(SimpleNamespace(**dict(zip(kernel.arguments, arguments))), device.fetch)
            own.n_bytes, own.adds = own.n_bytes + n_bytes, own.adds + adds
            own.floor_ms += 1e-6 * max(n_bytes * ns_per_byte, adds * ns_per_add)

    marks: list[tuple[str, Any, Any]] = []

    def time_it(kernel: Any, arguments: Any, launch: Callable[[], None]) -> None:
        begin = mark(device)
        launch()
        marks.append((kernel.name, begin, mark(device)))

    with without_graphs(device):
        run = workload.prepare(device)
        run()
        with around_launches(device, find_floor):
            run()
        with around_launches(device, time_it):
            run()
        wait(device)
    for name, begin, end in marks:
        calls[name].ms += elapsed_ms(device, begin, end)
    calls.pop(shared_adds_kernel.name, None)
    records = []
    for name, c in calls.items():
        figures = {"calls": c.n, "ms": c.ms, "floor_ms": c.floor_ms, "MB": c.n_bytes / 1e6, "million_adds": c.adds / 1e6}
        records.append({"kernel": name, "per": workload.per, **{key: float(v / workload.n) for key, v in figures.items()}})
    return sorted(records, key=lambda record: -record["ms"])


# --- Workloads ---


@dataclass
class Busy:
    """Keeps the device busy for about DELAY_MS, so that the host gets ahead of it."""

    device: Any
    out: Any = field(init=False)
    n_adds: int = 64

    def __post_init__(self) -> None:
        self.out = self.device.zeros(1, np.int64)
        if hasattr(self.device.xp, "cuda"):
            self()
            self.n_adds = 1 << 14
            self.n_adds = int(self.n_adds * DELAY_MS / one_ms(self.device, self)) & -UNROLLED

    def __call__(self) -> None:
        self.device.launch(shared_adds_kernel, self.n_adds, 1, 0, 0, 1, self.out, blocks=1, shared=adds_bytes(1))


def training(make: Callable[[], Any], params: dict[str, Any], n_rounds: int) -> Workload:
    """make : the matrix."""

    def prepare(device: Any) -> Callable[[], None]:
        busy, matrix = Busy(device), make()
        booster = gb.Booster(params, [matrix])

        def run() -> None:
            for _ in range(n_rounds):
                busy()
                booster.update(matrix)
            wait(device)

        return run

    return Workload(prepare, "round", n_rounds)


def prediction(make: Callable[[], Any], table: Callable[[], Any], params: dict[str, Any], n_rounds: int) -> Workload:
    """make : the matrix to train on. table : what is predicted, from values."""

    def prepare(device: Any) -> Callable[[], None]:
        booster, data = gb.train(params, make(), n_rounds, verbose_eval=False), gb.DMatrix(table())
        return lambda: booster.predict(data)

    return Workload(prepare, "table")


def binning(make: Callable[[], Any]) -> Workload:
    return Workload(lambda device: make, "table")
