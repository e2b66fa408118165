"""Trainings on a GPU: ms of a tree, seconds to bin, memory and quality, gpuboost's and those of XGBoost where it is installed.

Tables lie on the GPU before they are binned, as CuPy arrays; how long that copy takes is told apart. After WARM_UP rounds as many
are timed as fit into the task's seconds, at most its n_rounds. Memory: what the whole GPU has less free than before the table was
there; CuPy's pool keeps what it once took, so that it is gpuboost's peak, and of XGBoost what it still holds.
"""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
from gpu_ceilings import wait
from libraries import xgboost_params
from measure import score
from tasks import SEED, SEVERAL, Task, covertype_like, draw_label, higgs_like, wide

WARM_UP = 3
BLOCK_VALUES = 2**24  # of a table that are drawn at once, by one thread


def in_blocks(make: Callable[[np.random.Generator, int], tuple[np.ndarray, np.ndarray]], n_features: int) -> Callable[..., Any]:
    """The same kind of table, its blocks of rows drawn by several threads, each from a generator of its own."""

    def draw(rng: np.random.Generator, n_rows: int) -> tuple[np.ndarray, np.ndarray]:
        x, y, step = np.empty((n_rows, n_features), np.float32), np.empty(n_rows, np.float32), max(BLOCK_VALUES // n_features, 1)

        def fill(block: int) -> None:
            rows = slice(block * step, min((block + 1) * step, n_rows))
            x[rows], y[rows] = make(np.random.default_rng([SEED, block]), rows.stop - rows.start)

        with ThreadPoolExecutor() as pool:
            list(pool.map(fill, range(-(-n_rows // step))))
        return x, y

    return draw


@dataclass(frozen=True)
class GpuTask:
    """table : name of a TABLE. seconds : that the timed rounds may take."""

    table: str
    task: Task
    params: dict[str, Any] = field(default_factory=dict)
    seconds: float = 15.0


HIGGS = Task("higgs-11m", 11_000_000, 28, in_blocks(higgs_like, 28))


def airline_like(rng: np.random.Generator, n_rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Eight columns of whole numbers, as GBM-perf's flights: month, day, weekday, departure, carrier, from, to, miles."""
    x = np.stack([rng.integers(0, n, n_rows) for n in (12, 31, 7, 1440, 22, 300, 300, 2500)], axis=1).astype(np.float32)
    return x, draw_label(rng, np.sin(x[:, 3] / 200) + 0.3 * np.cos(x[:, 5]) + np.sin(x[:, 7] / 300))


AIRLINE = Task("airline-10m", 10_000_000, 8, in_blocks(airline_like, 8), max_depth=10)
WIDE = Task("wide-400k", 400_000, 2000, in_blocks(wide, 2000), n_rounds=50, test_rows=20_000)
HALF = {"subsample": 0.5, "colsample_bytree": 0.5}
TASKS = {
    "100k × 28, depth 6": GpuTask("100k", replace(HIGGS, n_rows=100_000), seconds=5.0),
    "11M × 28, depth 6": GpuTask("11M", HIGGS),
    "11M × 28, depth 8": GpuTask("11M", replace(HIGGS, max_depth=8)),
    "11M × 28, 255 leaves": GpuTask("11M", replace(HIGGS, n_leaves=255)),
    "11M × 28, depth 8, half of rows and columns": GpuTask("11M", replace(HIGGS, max_depth=8), HALF),
    "10M × 8, depth 10": GpuTask("airline", AIRLINE),
    "581k × 54, 7 classes, depth 6": GpuTask(
        "covertype", Task("covertype-581k", 581_012, 54, covertype_like, n_rounds=50, objective=SEVERAL, n_classes=7)
    ),
    "400k × 2000, depth 6": GpuTask("wide", WIDE),
    "400k × 2000, depth 6, half of rows and columns": GpuTask("wide", WIDE, HALF),
}


@dataclass
class Table:
    """A table on the GPU. free : bytes before. bins : (library, its matrix, figures), of one library at a time."""

    name: str
    x: Any
    y: np.ndarray
    test_x: np.ndarray
    test_y: np.ndarray
    free: int
    copy_s: float
    bins: tuple[str, Any, dict[str, float]] = ("", None, {})


class Trainer:
    """libraries : modules, gpuboost first. scale : of all numbers of rows. Keeps the last table for tasks that share it."""

    def __init__(self, device: Any, libraries: list[str], scale: float = 1.0) -> None:
        self.device, self.libraries, self.scale = device, libraries, scale
        self.table: Table | None = None

    def measure(self, name: str) -> dict[str, Any]:
        chosen = TASKS[name]
        task = self.scaled(chosen.task)
        record: dict[str, Any] = {"task": task.describe(), "params": chosen.params}
        for library in self.libraries:
            try:
                record[library] = self.train(library, chosen, task)
            except Exception as error:  # the other library's figures count, too
                record[library] = {"failed": f"{type(error).__name__}: {error}"}
        if "failed" in record["gpuboost"]:
            record["failed"] = record["gpuboost"]["failed"]
        return record

    def scaled(self, task: Task) -> Task:
        """The task with as many rows as are wanted."""
        if self.scale == 1:
            return task
        return replace(task, n_rows=scaled(task.n_rows, self.scale), test_rows=scaled(task.test_rows, self.scale))

    def train(self, library: str, chosen: GpuTask, task: Task) -> dict[str, Any]:
        module, table = import_module(library), self.load(chosen.table, task)
        matrix, figures = self.bin(library, table)
        self.release()
        booster = module.Booster({**xgboost_params(task, 0), "device": "cuda", **chosen.params}, [matrix])
        self.boost(booster, matrix, 0, WARM_UP)
        estimate = self.boost(booster, matrix, WARM_UP, WARM_UP)
        n = max(min(int(chosen.seconds / estimate), task.n_rounds - 2 * WARM_UP), 1)
        round_s = self.boost(booster, matrix, 2 * WARM_UP, n)
        memory_mb = (table.free - self.free()) / 1e6
        quality, _ = score(booster.predict(module.DMatrix(table.test_x)), table.test_y, task)
        n_trees = task.n_classes if task.objective == SEVERAL else 1
        return {"ms_per_tree": 1000 * round_s / n_trees, "rounds_timed": n, "rounds": 2 * WARM_UP + n, "copy_s": table.copy_s,
                **figures, "memory_mb": memory_mb, "quality": quality}  # fmt: skip

    def boost(self, booster: Any, matrix: Any, first: int, n: int) -> float:
        """Seconds of one of n rounds."""
        wait(self.device)
        begin = time.perf_counter()
        for i in range(first, first + n):
            booster.update(matrix, i)
        wait(self.device)
        return (time.perf_counter() - begin) / n

    def load(self, name: str, task: Task) -> Table:
        if self.table is None or self.table.name != name:
            self.table = None
            x, y, test_x, test_y = task.tables()
            self.device.put(x[:1000])
            self.release()
            free, begin = self.free(), time.perf_counter()
            on_gpu = self.device.put(x)
            wait(self.device)
            self.table = Table(name, on_gpu, y, test_x, test_y, free, time.perf_counter() - begin)
        return self.table

    def bin(self, library: str, table: Table) -> tuple[Any, dict[str, float]]:
        """The matrix, and seconds and MB that it took after one of few rows was made, which compiles."""
        if table.bins[0] != library:
            table.bins = ("", None, {})
            kind = import_module(library).QuantileDMatrix
            kind(table.x[:20_000], table.y[:20_000], max_bin=256)
            self.release()
            begin = time.perf_counter()
            matrix = kind(table.x, table.y, max_bin=256)
            wait(self.device)
            figures = {"bin_s": time.perf_counter() - begin, "bin_memory_mb": (table.free - self.free()) / 1e6}
            table.bins = library, matrix, figures
        return table.bins[1:]

    def free(self) -> int:
        """Bytes. The simulator has no end of them."""
        if not hasattr(self.device.xp, "cuda"):
            return self.device.free_bytes()
        return int(self.device.xp.cuda.runtime.memGetInfo()[0])

    def release(self) -> None:
        """Let CuPy give back what it keeps for later."""
        if hasattr(self.device.xp, "cuda"):
            self.device.xp.get_default_memory_pool().free_all_blocks()


def scaled(n_rows: int, scale: float) -> int:
    return max(int(n_rows * scale), 100)


def libraries() -> list[str]:
    """gpuboost, and XGBoost if it can use a GPU."""
    if not find_spec("xgboost") or not import_module("xgboost").build_info().get("USE_CUDA"):
        return ["gpuboost"]
    return ["gpuboost", "xgboost"]
