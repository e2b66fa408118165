"""Sparse tables: gpuboost and XGBoost on the same CSR matrix, and gpuboost in the ways that it avoids.

    python benchmarks/sparse.py
    python benchmarks/sparse.py --tasks one-hot --repeats 5 --threads 1

    random    200,000 × 2,000 numbers, 0.5 % of them stored; also written out with NaN elsewhere, which is why sparse tables stay
              sparse: fewer rounds, and their time counted as if there were as many
    one-hot   500,000 × 1,000: 20 categories of 50 values, a cell for each; packed (data/packing.py), and by its cells

Seconds from the matrix in memory to a trained model, ways in turns as in peers.py, whose helpers these are, on the clock and of
all cores together, which other work on the machine disturbs less; then the peak of memory above the table, in a warm process of
each way. Prints Markdown; the JSON of all figures goes to benchmarks/results/.
"""

import argparse
import importlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import scipy.sparse
from peers import PEERS, RESULTS, ROOT, Peer, Task, auc, describe_machine, installed, memory_mb, run_once

from gpuboost.data import binned

N_ROUNDS = 20


def random_cells(rng: np.random.Generator, n_rows: int) -> tuple[Any, np.ndarray]:
    """CSR of 2,000 columns, 0.5 % normal values; their weighted sum gives the log-odds."""
    x = scipy.sparse.random_array((n_rows, 2000), density=0.005, format="csr", dtype=np.float32, rng=rng, data_sampler=rng.normal)
    z = x @ np.random.default_rng(1).normal(size=2000)
    return x.astype(np.float32), (rng.random(n_rows) < 1 / (1 + np.exp(-z))).astype(np.float32)


def categories(rng: np.random.Generator, n_rows: int) -> tuple[Any, np.ndarray]:
    """CSR of ones, one for each of 20 categories; each of their 50 values has an effect on the log-odds."""
    value = rng.integers(0, 50, (n_rows, 20))
    columns = (value + 50 * np.arange(20)).ravel()
    x = scipy.sparse.csr_array((np.ones(value.size, np.float32), columns, np.arange(0, value.size + 1, 20)), shape=(n_rows, 1000))
    z = x @ np.random.default_rng(1).normal(size=1000) / 3
    return x, (rng.random(n_rows) < 1 / (1 + np.exp(-z))).astype(np.float32)


def bin_cells(library: Any, x: Any, y: np.ndarray, threads: int) -> Any:
    """Never packed."""
    choose = binned.choose_sparse_packing
    binned.choose_sparse_packing = lambda *_: None
    try:
        return library.QuantileDMatrix(x, y, max_bin=256, nthread=threads)
    finally:
        binned.choose_sparse_packing = choose


def written_out(x: Any) -> np.ndarray:
    dense = np.full(x.shape, np.nan, np.float32)
    rows = np.repeat(np.arange(x.shape[0]), np.diff(x.indptr))
    dense[rows, x.indices] = x.data
    return dense


@dataclass(frozen=True)
class Way:
    """table : what it is given of the CSR matrix. n_rounds : how many it trains, of N_ROUNDS."""

    peer: Peer
    table: Callable[[Any], Any] = lambda x: x
    n_rounds: int = N_ROUNDS


OURS, XGBOOST = Way(PEERS["gpuboost"]), Way(PEERS["xgboost"])
TASKS = {task.name: task for task in (
    Task("random", 200_000, 2000, random_cells, N_ROUNDS), Task("one-hot", 500_000, 1000, categories, N_ROUNDS)
)}  # fmt: skip
WAYS = {
    "random": {"gpuboost": OURS, "xgboost": XGBOOST, "gpuboost, dense": replace(OURS, table=written_out, n_rounds=2)},
    "one-hot": {"gpuboost": OURS, "gpuboost, cells": Way(replace(OURS.peer, bin_table=bin_cells)), "xgboost": XGBOOST},
}


def run(way: Way, task: Task, x: Any, y: np.ndarray, threads: int) -> tuple[dict[str, float], Any]:
    """Seconds of every part as for N_ROUNDS, and the model."""
    start = time.process_time()
    timing, model = run_once(way.peer, replace(task, n_rounds=way.n_rounds), x, y, threads)
    cores, training = time.process_time() - start, timing.training * N_ROUNDS / way.n_rounds
    total = timing.binning + training
    return {"binning_s": timing.binning, "training_s": training, "total_s": total, "cores_s": cores * total / timing.total}, model


def compare(task: Task, ways: dict[str, Way], threads: int, repeats: int) -> list[dict[str, Any]]:
    """One record per way: every timing, the AUC of its model, and its peak of memory."""
    x, y, test_x, test_y = task.tables()
    tables = {name: way.table(x) for name, way in ways.items()}
    timings: dict[str, list[dict[str, float]]] = {name: [] for name in ways}
    models = {name: run(way, task, tables[name], y, threads)[1] for name, way in ways.items()}  # the warm-up
    for repeat in range(repeats):
        for name in ways if repeat % 2 == 0 else reversed(ways):
            timings[name].append(run(ways[name], task, tables[name], y, threads)[0])
    del tables
    records = []
    for name, way in ways.items():
        scored = way.peer.predict(importlib.import_module(way.peer.module), models[name], way.table(test_x))
        seconds = {key: [timing[key] for timing in timings[name]] for key in timings[name][0]}
        record = {"task": task.name, "way": name, "rounds": way.n_rounds, "auc": auc(scored, test_y)}
        records.append(record | seconds | memory_of(name, task, threads))
    return records


def memory_of(name: str, task: Task, threads: int) -> dict[str, float]:
    command = [sys.executable, __file__, "--tasks", task.name, "--threads", str(threads), "--child", name]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()[-1])


def memory_child(way: Way, task: Task, threads: int) -> dict[str, float]:
    """Highest resident memory of one run, in MB above a warm process that holds the table. Linux only."""
    x, y, *_ = task.tables()
    run(way, task, way.table(x[:1000]), y[:1000], threads)
    x = way.table(x)
    Path("/proc/self/clear_refs").write_text("5")
    before = memory_mb("VmRSS")
    run(way, task, x, y, threads)
    arrays = (x.data, x.indices, x.indptr) if scipy.sparse.issparse(x) else (x,)
    return {"table_mb": sum(a.nbytes for a in arrays) / 1e6, "peak_mb": memory_mb("VmHWM") - before}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", default=list(TASKS), choices=list(TASKS))
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(memory_child(WAYS[options.tasks[0]][options.child], TASKS[options.tasks[0]], options.threads)))
        return
    print("| task | | matrix s | 20 rounds s | total s | spread of total | of all cores | AUC | table MB | peak above it MB |")
    print(10 * "|---" + "|", flush=True)
    records = []
    for task in (TASKS[name] for name in options.tasks):
        ways = {name: way for name, way in WAYS[task.name].items() if installed([way.peer.module])}
        for r in compare(task, ways, options.threads, options.repeats):
            seconds = " | ".join(f"{median(r[key]):.2f}" for key in ("binning_s", "training_s", "total_s"))
            of_rounds = "" if r["rounds"] == N_ROUNDS else f" (from {r['rounds']} rounds)"
            print(
                f"| {r['task']} | {r['way']}{of_rounds} | {seconds} | {min(r['total_s']):.2f}–{max(r['total_s']):.2f} | "
                f"{median(r['cores_s']):.2f} | {r['auc']:.4f} | {r['table_mb']:.0f} | {r['peak_mb']:.0f} |", flush=True,
            )  # fmt: skip
            records.append(r)
    machine = describe_machine(options.threads)  # last: it imports LightGBM, whose OpenMP runtime slows numba's threads down
    print(f"\n{machine['date'][:10]}, {machine['cpu']}, {options.threads} of {machine['cores']} cores; {machine['versions']}")
    RESULTS.mkdir(exist_ok=True)
    file = RESULTS / f"sparse-{machine['date'].replace(':', '').replace('+0000', 'Z')}.json"
    shapes = [asdict(TASKS[name]) | {"make": TASKS[name].make.__name__} for name in options.tasks]
    file.write_text(json.dumps({"machine": machine, "tasks": shapes, "records": records}, indent=1) + "\n")
    print(file.relative_to(ROOT))


if __name__ == "__main__":
    main()
