"""What drawing rows and columns saves: ms per tree, and what drawing takes of it.

    python benchmarks/bench_sampling.py                         # 1 thread, then 2
    python benchmarks/bench_sampling.py --threads 2 --rounds 20 --repeats 9

450,000 × 28 numbers like the Higgs table, depth 6, 256 bins. What copying the columns drawn takes (kernels/compaction.py), and
drawing rows (kernels/row_sampling.py), is told by itself; what each kernel takes, by bench_kernels.py. XGBoost and LightGBM
beside it, where installed, without drawing and with half of the rows and columns. All ways take turns after a warm-up, the order
reversed in every other round. Medians and spread; the JSON of all figures goes to benchmarks/results/.

Floor: a share s of rows and c of columns leaves s·c of the histogram's additions, and their s·⌈28·c⌉ bytes of records; but
gradients, the rows' leaves and their margins stay those of all rows.
"""

import argparse
import importlib
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
from libraries import LIBRARIES, installed, lightgbm_params, xgboost_params
from measure import seconds_in_turns, write_record
from tasks import SEED, TASKS, Task

import gpuboost as gb
from gpuboost.backend.cpu.gradients import CpuGradients
from gpuboost.backend.cpu.tables import DenseTable

TASK = TASKS["higgs-450k"]
DRAWS: dict[str, dict[str, Any]] = {
    "all": {},
    "rows": {"subsample": 0.5},
    "columns": {"colsample_bytree": 0.5},
    "rows and columns": {"subsample": 0.5, "colsample_bytree": 0.5},
    "rows by gradient": {"subsample": 0.5, "sampling_method": "gradient_based"},
}
PEERS_DRAW = ("all", "rows and columns")
LIGHTGBM = {"subsample": {"bagging_fraction": 0.5, "bagging_freq": 1}, "colsample_bytree": {"feature_fraction": 0.5}}
PARTS: dict[str, list[tuple[type, str]]] = {  # of a training on the CPU: methods, none of which calls another
    "copying": [(DenseTable, "draw_columns")],
    "drawing": [(CpuGradients, "count_magnitudes"), (CpuGradients, "draw_rows")],
}


@contextmanager
def timed(seconds: dict[str, float]) -> Iterator[None]:
    """Adds up the seconds of each of the methods of PARTS."""
    methods = {name: getattr(owner, name) for part in PARTS.values() for owner, name in part}
    owners = {name: owner for part in PARTS.values() for owner, name in part}

    def around(name: str) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            begin = time.perf_counter()
            try:
                return methods[name](*arguments)
            finally:
                seconds[name] = seconds.get(name, 0.0) + time.perf_counter() - begin

        return call

    for name, owner in owners.items():
        setattr(owner, name, around(name))
    try:
        yield
    finally:
        for name, method in methods.items():
            setattr(owners[name], name, method)


def ways_to_train(task: Task, x: np.ndarray, y: np.ndarray, threads: int, parts: dict[str, list[Any]]) -> dict[str, Callable]:
    """Name → a training. parts : receives the seconds of each of PARTS for every training of gpuboost, by its name."""
    table = gb.QuantileDMatrix(x, y, nthread=threads)
    gb.train(xgboost_params(task, threads), table, 1)  # before LightGBM loads its OpenMP

    def ours(name: str) -> Callable[[], None]:
        def train() -> None:
            seconds: dict[str, float] = {}
            with timed(seconds):
                gb.train({**xgboost_params(task, threads), **DRAWS[name]}, table, task.n_rounds)
            of_parts = [sum(seconds.get(name, 0.0) for _, name in part) for part in PARTS.values()]
            parts.setdefault(f"gpuboost, {name}", []).append(of_parts)

        return train

    ways: dict[str, Callable] = {f"gpuboost, {name}": ours(name) for name in DRAWS}
    if installed(["xgboost"]):
        xgboost = importlib.import_module("xgboost")
        peer = LIBRARIES["xgboost"].bin_table(x, y, task, threads)
        for name in PEERS_DRAW:
            params = {**xgboost_params(task, threads), **DRAWS[name]}
            ways[f"xgboost, {name}"] = lambda params=params: xgboost.train(params, peer, task.n_rounds)
    if installed(["lightgbm"]):
        lightgbm = importlib.import_module("lightgbm")
        data = LIBRARIES["lightgbm"].bin_table(x, y, task, threads)
        for name in PEERS_DRAW:
            params = lightgbm_params(task, threads)
            for parameter in DRAWS[name]:
                params |= LIGHTGBM[parameter]
            ways[f"lightgbm, {name}"] = lambda params=params: lightgbm.train(params, data, task.n_rounds)
    return ways


def compare(task: Task, threads: int, repeats: int) -> list[dict[str, Any]]:
    """One record per way: ms per tree of every repeat, on the clock and of all cores, and those of PARTS."""
    x, y = task.make(np.random.default_rng(SEED), task.n_rows)
    parts: dict[str, list[Any]] = {}
    seconds = seconds_in_turns(ways_to_train(task, x, y, threads, parts), repeats)
    records = []
    for way, times in seconds.items():
        clock, cores = 1000 * np.array(times).T / task.n_rounds
        record = {"way": way, "threads": threads, "ms": clock.tolist(), "cores_ms": cores.tolist()}
        if way in parts:
            of_parts = 1000 * np.array(parts[way][1:]).T / task.n_rounds  # the first was the warm-up
            record |= {f"{part}_ms": ms.tolist() for part, ms in zip(PARTS, of_parts)}
        records.append(record)
    return records


def report(records: list[dict[str, Any]]) -> None:
    """Medians, their ratios to the same library's without drawing, and the spread."""
    print("| threads | | ms per tree | spread | of all | copying | drawing |\n" + 7 * "|---" + "|")
    first: dict[str, dict[str, Any]] = {}
    for r in records:
        base = first.setdefault(r["way"].split(",")[0], r)
        ms = np.median(r["ms"])
        cells = [f"{ms:.1f}", f"{min(r['ms']):.1f}–{max(r['ms']):.1f}", f"{ms / np.median(base['ms']):.2f}"]
        cells += [f"{np.median(r[key]):.1f}" if key in r else "" for key in ("copying_ms", "drawing_ms")]
        print(f"| {r['threads']} | {r['way']} | " + " | ".join(cells) + " |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--rows", type=int, default=TASK.n_rows)
    options = parser.parse_args()
    task, records = replace(TASK, n_rows=options.rows, n_rounds=options.rounds), []
    for threads in options.threads:
        records += compare(task, threads, options.repeats)
        report(records[-len(DRAWS) - 2 * len(installed(["xgboost", "lightgbm"])) :])
    write_record("sampling", {**vars(options), "records": records})


if __name__ == "__main__":
    main()
