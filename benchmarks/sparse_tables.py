"""What gpuboost saves on sparse tables by the ways that it takes; peers.py compares it with other libraries on the same ones.

    python benchmarks/sparse_tables.py
    python benchmarks/sparse_tables.py --tasks one-hot-500k --repeats 5 --threads 1

    sparse-200k    random cells; also written out with NaN elsewhere, which is why sparse tables stay sparse
    one-hot-500k   a cell for each of 20 categories; packed (data/packing.py), and by its cells

Both also with every search by histograms, where backend/cpu/trees.py would walk over columns, and never by histograms.

Measured and told as in peers.py, with the seconds of all cores together, which other work on the machine disturbs less. The JSON
of all figures goes to benchmarks/results/.
"""

import argparse
from dataclasses import replace
from functools import partial
from statistics import median
from typing import Any

import numpy as np
from libraries import LIBRARIES, bin_for_gpuboost, train_gpuboost
from measure import available_cores, compare, write_record
from tasks import TASKS, Task

from gpuboost.backend.cpu import trees
from gpuboost.data import binning


def bin_cells(x: Any, y: np.ndarray, task: Task, n_threads: int) -> Any:
    """Never packed."""
    choose = binning.choose_sparse_packing
    binning.choose_sparse_packing = lambda *_: None
    try:
        return bin_for_gpuboost(x, y, task, n_threads)
    finally:
        binning.choose_sparse_packing = choose


def train_by(bin_visits: int, data: Any, task: Task, n_threads: int) -> Any:
    """With that in the place of trees.BIN_VISITS."""
    usual, trees.BIN_VISITS = trees.BIN_VISITS, bin_visits
    try:
        return train_gpuboost(data, task, n_threads)
    finally:
        trees.BIN_VISITS = usual


def written_out(x: Any) -> np.ndarray:
    dense = np.full(x.shape, np.nan, np.float32)
    rows = np.repeat(np.arange(x.shape[0]), np.diff(x.indptr))
    dense[rows, x.indices] = x.data
    return dense


OURS = LIBRARIES["gpuboost"]
SWITCHED = {
    "gpuboost": OURS, "gpuboost, histograms": replace(OURS, train=partial(train_by, 0)),
    "gpuboost, walks": replace(OURS, train=partial(train_by, 10**9)),
}  # fmt: skip
WAYS = {
    "sparse-200k": {**SWITCHED, "gpuboost, dense": replace(OURS, form=written_out)},
    "one-hot-500k": {**SWITCHED, "gpuboost, cells": replace(OURS, bin_table=bin_cells)},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", default=list(WAYS), choices=list(WAYS))
    parser.add_argument("--threads", type=int, default=available_cores())
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--rows", type=int, help="in the place of each task's own")
    options = parser.parse_args()
    print("| task | | matrix s | training s | total s | spread of total | of all cores | loss | table MB | peak above it MB |")
    print(10 * "|---" + "|", flush=True)
    records, tasks = [], [TASKS[name] for name in options.tasks]
    for task in tasks if options.rows is None else [replace(task, n_rows=options.rows) for task in tasks]:
        for r in compare(task, WAYS[task.name], [options.threads], options.repeats):
            seconds = " | ".join(f"{median(r[key]):.2f}" for key in ("binning_s", "training_s", "total_s"))
            print(
                f"| {r['task']} | {r['library']} | {seconds} | {min(r['total_s']):.2f}–{max(r['total_s']):.2f} | "
                f"{median(r['cpu_s']):.2f} | {median(r['quality']['logloss']):.4f} | {r['table_mb']:.0f} | {r['peak_mb']:.0f} |",
                flush=True,
            )
            records.append(r)
    write_record("sparse", {"tasks": [task.describe() for task in tasks], "records": records})


if __name__ == "__main__":
    main()
