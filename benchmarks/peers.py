"""gpuboost, XGBoost and LightGBM side by side: the same table, equivalent parameters, one process.

    python benchmarks/peers.py                         # all tasks, all threads
    python benchmarks/peers.py --tasks higgs-450k --threads 2 --repeats 5
    python benchmarks/peers.py --memory                # peak memory above a warm process, one process per peer
    python benchmarks/peers.py --startup               # a new process with a warm compile cache

Each peer is warmed up once per task, then all take turns, the order reversed in every other round. Times go from a raw float32
array (or CSR matrix) in memory to a trained model. A peer that is not installed, or lacks the tree method, is left out.
Prints Markdown; the JSON of every figure, with commit, versions, processor, shapes and seed, goes to benchmarks/results/.
"""

import argparse
import gc
import importlib
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
RESULTS = Path(__file__).resolve().parent / "results"
SEED = 0
TEST_ROWS = 50_000


# --- Tasks ---


@dataclass(frozen=True)
class Task:
    """make : (generator, n_rows) -> float32 table (n_rows, n_features), an array or CSR, and float32 labels (n_rows,)."""

    name: str
    n_rows: int
    n_features: int
    make: Callable[[np.random.Generator, int], tuple[np.ndarray, np.ndarray]]
    n_rounds: int = 100
    max_depth: int = 6
    tree_method: str = "hist"

    def tables(self) -> tuple[Any, np.ndarray, Any, np.ndarray]:
        """x, y to train on and x, y to score: one draw, so that a test row is never a training row."""
        rng = np.random.default_rng(SEED)
        return *self.make(rng, self.n_rows), *self.make(rng, TEST_ROWS)


def higgs_like(rng: np.random.Generator, n_rows: int) -> tuple[np.ndarray, np.ndarray]:
    """28 normal columns; a smooth function of seven of them gives the log-odds."""
    x = rng.normal(size=(n_rows, 28)).astype(np.float32)
    z = x[:, 0] * x[:, 1] + np.sin(2 * x[:, 2]) + 0.5 * x[:, 3] ** 2 - 0.5 * x[:, 4] + 0.3 * x[:, 5] * x[:, 6]
    return x, (rng.random(n_rows) < 1 / (1 + np.exp(-z))).astype(np.float32)


def mushroom_like(rng: np.random.Generator, n_rows: int) -> tuple[Any, np.ndarray]:
    """21 categories of 6 values one-hot encoded, as CSR: the shape of the agaricus table. Three of them give the log-odds."""
    from scipy.sparse import csr_matrix

    codes = rng.integers(0, 6, (n_rows, 21))
    cells = (codes + 6 * np.arange(21)).ravel(), np.arange(0, 21 * n_rows + 1, 21)
    z = 2.0 * (codes[:, 0] > 2) * (codes[:, 1] % 2) - (codes[:, 2] == 4) - 0.5 + rng.logistic(size=n_rows) / 4
    return csr_matrix((np.ones(21 * n_rows, np.float32), *cells), shape=(n_rows, 126)), (z > 0).astype(np.float32)


TASKS = {
    task.name: task
    for task in (
        Task("higgs-7k", 7_000, 28, higgs_like),
        Task("higgs-450k", 450_000, 28, higgs_like),
        Task("higgs-450k-approx", 450_000, 28, higgs_like, n_rounds=10, tree_method="approx"),
        Task("higgs-450k-exact", 450_000, 28, higgs_like, n_rounds=10, tree_method="exact"),
        Task("mushrooms-exact", 6_500, 126, mushroom_like, tree_method="exact"),
    )
}
STARTUP = Task("startup", 1_000, 10, lambda rng, n: (x := rng.normal(size=(n, 10)).astype(np.float32), 1.0 * (x[:, 0] > 0)), 10)


# --- Peers: how each library bins, trains and predicts ---


@dataclass(frozen=True)
class Peer:
    """module : what to import. bin_table : (module, x, y, task, threads) -> what it trains on.
    train : (module, data, task, threads) -> model. predict : (module, model, x) -> probabilities.
    methods : tree methods that it has.
    """

    module: str
    bin_table: Callable[..., Any]
    train: Callable[..., Any]
    predict: Callable[..., np.ndarray]
    methods: tuple[str, ...] = ("hist", "approx", "exact")


def xgboost_params(task: Task, threads: int) -> dict[str, Any]:
    return {
        "objective": "binary:logistic", "max_depth": task.max_depth, "max_bin": 256, "nthread": threads,
        "tree_method": task.tree_method,
    }  # fmt: skip


def bin_as_xgboost(library: Any, x: Any, y: np.ndarray, task: Task, threads: int) -> Any:
    if task.tree_method == "hist":
        return library.QuantileDMatrix(x, y, max_bin=256, nthread=threads)
    return library.DMatrix(x, y, nthread=threads)


def lightgbm_params(task: Task, threads: int) -> dict[str, Any]:
    """XGBoost's defaults in LightGBM's words: learning_rate 0.3, lambda 1, min_child_weight 1, all 2^depth leaves."""
    return {
        "objective": "binary", "max_depth": task.max_depth, "num_leaves": 2**task.max_depth, "learning_rate": 0.3,
        "lambda_l2": 1.0, "min_sum_hessian_in_leaf": 1.0, "min_data_in_leaf": 1, **lightgbm_binning(threads),
    }  # fmt: skip


def lightgbm_binning(threads: int) -> dict[str, Any]:
    return {"max_bin": 255, "feature_pre_filter": False, "num_threads": threads, "verbose": -1}


def bin_for_lightgbm(lightgbm: Any, x: np.ndarray, y: np.ndarray, task: Task, threads: int) -> Any:
    return lightgbm.Dataset(x, y, params=lightgbm_binning(threads)).construct()


# gpuboost has XGBoost's API, so one description serves both.
PEERS = {
    name: Peer(
        name,
        bin_as_xgboost,
        lambda library, data, task, threads: library.train(xgboost_params(task, threads), data, task.n_rounds),
        lambda library, model, x: model.predict(library.DMatrix(x)),
    )
    for name in ("gpuboost", "xgboost")
} | {
    "lightgbm": Peer(
        "lightgbm",
        bin_for_lightgbm,
        lambda library, data, task, threads: library.train(lightgbm_params(task, threads), data, task.n_rounds),
        lambda library, model, x: model.predict(x),
        ("hist",),
    )
}


def installed(names: list[str]) -> list[str]:
    return [name for name in names if find_spec(PEERS[name].module)]


# --- Time and quality ---


@dataclass
class Timing:
    """Seconds of one run."""

    binning: float
    training: float

    @property
    def total(self) -> float:
        return self.binning + self.training


def run_once(peer: Peer, task: Task, x: np.ndarray, y: np.ndarray, threads: int) -> tuple[Timing, Any]:
    library = importlib.import_module(peer.module)
    gc.collect()
    start = time.perf_counter()
    data = peer.bin_table(library, x, y, task, threads)
    binned = time.perf_counter()
    model = peer.train(library, data, task, threads)
    return Timing(binned - start, time.perf_counter() - binned), model


def auc(prediction: np.ndarray, label: np.ndarray) -> float:
    from scipy.stats import rankdata

    positive = label > 0
    n_pairs = positive.sum() * (~positive).sum()
    return float((rankdata(prediction)[positive].sum() - positive.sum() * (positive.sum() + 1) / 2) / n_pairs)


def compare(task: Task, peers: list[str], threads: int, repeats: int) -> list[dict[str, Any]]:
    """One record per peer: every timing, and the AUC of its last model."""
    peers = [name for name in peers if task.tree_method in PEERS[name].methods]
    x, y, test_x, test_y = task.tables()
    timings: dict[str, list[Timing]] = {name: [] for name in peers}
    models = {name: run_once(PEERS[name], task, x, y, threads)[1] for name in peers}  # the warm-up
    for repeat in range(repeats):
        for name in peers if repeat % 2 == 0 else reversed(peers):
            timing, models[name] = run_once(PEERS[name], task, x, y, threads)
            timings[name].append(timing)
    predictions = {name: PEERS[name].predict(importlib.import_module(name), models[name], test_x) for name in peers}
    return [
        {
            "task": task.name, "peer": name, "auc": auc(predictions[name], test_y),
            "binning_s": [t.binning for t in timings[name]], "training_s": [t.training for t in timings[name]],
            "total_s": [t.total for t in timings[name]],
        }
        for name in peers
    ]  # fmt: skip


def print_comparison(records: list[dict[str, Any]], date: str, cpu: str) -> None:
    print("| date | machine | task | | binning s | training s | total s | spread of total | AUC |\n" + 9 * "|---" + "|")
    for r in records:
        binning, training, total = (f"{median(r[key]):.3f}" for key in ("binning_s", "training_s", "total_s"))
        spread = f"{min(r['total_s']):.3f}–{max(r['total_s']):.3f}"
        print(f"| {date} | {cpu} | {r['task']} | {r['peer']} | {binning} | {training} | {total} | {spread} | {r['auc']:.4f} |")


# --- Memory and start-up: measured in processes of their own ---


def child(name: str, task: Task, threads: int, *kind: str) -> dict[str, float]:
    """Run this file in a new process, as `kind` ("startup", or "memory" and the table's file); the figures that it prints."""
    command = [sys.executable, __file__, "--peers", name, "--tasks", task.name, "--threads", str(threads), "--child", *kind]
    start = time.perf_counter()
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return {**json.loads(done.stdout.splitlines()[-1]), "process_s": time.perf_counter() - start}


def startup_child(name: str, threads: int) -> dict[str, float]:
    """Seconds to import the library (NumPy is there already) and to fit the first small model."""
    x, y, *_ = STARTUP.tables()
    start = time.perf_counter()
    importlib.import_module(name)
    imported = time.perf_counter()
    run_once(PEERS[name], STARTUP, x, y, threads)
    return {"import_s": imported - start, "fit_s": time.perf_counter() - imported}


def memory_child(name: str, task: Task, threads: int, file: str) -> dict[str, float]:
    """Highest resident memory while training, in MB above a warm process that holds the table. Linux only.

    The peak is reset first (clear_refs): getrusage's would include the import, and even the parent's memory from before exec.
    """
    with np.load(file) as arrays:
        x, y = arrays["x"], arrays["y"]
    run_once(PEERS[name], task, x[:1000], y[:1000], threads)
    Path("/proc/self/clear_refs").write_text("5")
    before = memory_mb("VmRSS")
    run_once(PEERS[name], task, x, y, threads)
    return {"table_mb": x.nbytes / 1e6, "peak_mb": memory_mb("VmHWM") - before}


def memory_mb(field: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 / 1e6 for line in lines if line.startswith(field))


def measure_memory(task: Task, peers: list[str], threads: int) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        file = str(Path(folder) / "table.npz")
        x, y, *_ = task.tables()
        np.savez(file, x=x, y=y)
        for name in peers:
            child(name, task, threads, "memory", file)  # fills the compile cache: compiling takes memory too
        return [{"task": task.name, "peer": name, **child(name, task, threads, "memory", file)} for name in peers]


def measure_startup(peers: list[str], threads: int, repeats: int) -> list[dict[str, Any]]:
    for name in peers:
        child(name, STARTUP, threads, "startup")  # fills the compile cache and the file cache
    runs = [(name, child(name, STARTUP, threads, "startup")) for _ in range(repeats) for name in peers]
    keys = ("import_s", "fit_s", "process_s")
    return [{"peer": peer, **{key: [run[key] for name, run in runs if name == peer] for key in keys}} for peer in peers]


# --- The machine, and the command line ---


def describe_machine(threads: int) -> dict[str, Any]:
    cpu = platform.processor()
    if Path("/proc/cpuinfo").exists():
        names = [line.split(":", 1)[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")]
        cpu = names[0] if names else cpu
    git = lambda *command: subprocess.run(["git", "-C", str(ROOT), *command], capture_output=True, text=True).stdout.strip()
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"), "commit": git("rev-parse", "HEAD"),
        "uncommitted_changes": bool(git("status", "--porcelain")), "cpu": cpu, "cores": os.cpu_count(), "threads": threads,
        "platform": f"{platform.system()} {platform.machine()}", "python": platform.python_version(), "seed": SEED,
        "versions": {name: importlib.import_module(name).__version__ for name in (*installed(list(PEERS)), "numpy", "numba")},
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", default=list(TASKS), choices=[*TASKS, STARTUP.name])
    parser.add_argument("--peers", nargs="+", default=list(PEERS), choices=list(PEERS))
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--memory", action="store_true", help="peak memory instead of times")
    parser.add_argument("--startup", action="store_true", help="a new process: import and the first small model")
    parser.add_argument("--child", nargs="+", metavar=("KIND", "FILE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    peers, threads, tasks = installed(options.peers), options.threads, [TASKS[name] for name in options.tasks if name in TASKS]
    if options.child:
        kind, *file = options.child
        name = options.peers[0]
        print(json.dumps(startup_child(name, threads) if kind == "startup" else memory_child(name, tasks[0], threads, *file)))
        return
    machine = describe_machine(threads)
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
    date, cpu = machine["date"][:10], f"{machine['cpu']}, {threads} of {machine['cores']} cores"
    print(f"{date}, {cpu}; {versions}\n")
    if options.startup:
        kind, records = "startup", measure_startup(peers, threads, options.repeats)
        print("| | import s | first fit of 1,000 × 10, 10 rounds, s | process s |\n|---|---|---|---|")
        for r in records:
            print(f"| {r['peer']} | " + " | ".join(f"{median(r[key]):.3f}" for key in ("import_s", "fit_s", "process_s")) + " |")
    elif options.memory:
        kind, records = "memory", [record for task in tasks for record in measure_memory(task, peers, threads)]
        print("| task | | table MB | peak above a warm process MB |\n|---|---|---|---|")
        for r in records:
            print(f"| {r['task']} | {r['peer']} | {r['table_mb']:.0f} | {r['peak_mb']:.0f} |")
    else:
        kind, records = "times", [record for task in tasks for record in compare(task, peers, threads, options.repeats)]
        print_comparison(records, date, cpu)
    RESULTS.mkdir(exist_ok=True)
    file = RESULTS / f"peers-{kind}-{machine['date'].replace(':', '').replace('+0000', 'Z')}.json"
    shapes = [asdict(task) | {"make": task.make.__name__, "test_rows": TEST_ROWS} for task in tasks]
    file.write_text(json.dumps({"machine": machine, "tasks": shapes, "records": records}, indent=1) + "\n")
    print(f"\n{file.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
