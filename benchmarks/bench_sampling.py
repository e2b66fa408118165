"""What drawing rows and columns saves: ms per tree.

    python benchmarks/bench_sampling.py                         # 1 thread, then 2
    python benchmarks/bench_sampling.py --threads 2 --rounds 20 --repeats 9

450,000 × 28 numbers like the Higgs table, depth 6, 256 bins. What drawing rows takes (kernels/row_sampling.py), and copying the
columns drawn (kernels/compaction.py), bench_compaction.py tells. XGBoost and LightGBM beside it, where installed, without drawing
and with half of the rows and columns. All ways take turns after a warm-up, the order reversed in every other round. Medians and
spread; the JSON of all figures goes to benchmarks/results/.

Floor: a share s of rows and c of columns leaves s·c of the histogram's additions, and their s·⌈28·c⌉ bytes of records; but
gradients, the rows' leaves and their margins stay those of all rows.
"""

import argparse
import importlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from libraries import LIBRARIES, installed, lightgbm_params, xgboost_params
from measure import seconds_in_turns, write_record
from tasks import SEED, TASKS, Task

import gpuboost as gb

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


def ways_to_train(task: Task, x: np.ndarray, y: np.ndarray, threads: int) -> dict[str, Callable]:
    """Name → a training."""
    table = gb.QuantileDMatrix(x, y, nthread=threads)
    gb.train(xgboost_params(task, threads), table, 1)  # before LightGBM loads its OpenMP

    ways: dict[str, Callable] = {}
    for name, draws in DRAWS.items():
        params = {**xgboost_params(task, threads), **draws}
        ways[f"gpuboost, {name}"] = lambda params=params: gb.train(params, table, task.n_rounds)
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
    """One record per way: ms per tree of every repeat, on the clock and of all cores."""
    x, y = task.make(np.random.default_rng(SEED), task.n_rows)
    records = []
    for way, times in seconds_in_turns(ways_to_train(task, x, y, threads), repeats).items():
        clock, cores = 1000 * np.array(times).T / task.n_rounds
        records.append({"way": way, "threads": threads, "ms": clock.tolist(), "cores_ms": cores.tolist()})
    return records


def report(records: list[dict[str, Any]]) -> None:
    """Medians, their ratios to the same library's without drawing, and the spread."""
    print("| threads | | ms per tree | spread | of all |\n" + 5 * "|---" + "|")
    first: dict[str, dict[str, Any]] = {}
    for r in records:
        base = first.setdefault(r["way"].split(",")[0], r)
        ms = np.median(r["ms"])
        cells = [f"{ms:.1f}", f"{min(r['ms']):.1f}–{max(r['ms']):.1f}", f"{ms / np.median(base['ms']):.2f}"]
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
