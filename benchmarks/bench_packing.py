"""What packed records (gpuboost/data/packing.py) bring and cost, with and without in turns, in one process.

    python benchmarks/bench_packing.py
    python benchmarks/bench_packing.py --rounds 20 --repeats 9 --threads 1

Training: seconds per round on a table like Covertype (200,000 rows; 10 numbers and two categories as 4 + 40 columns of ones and
zeros; 7 classes), XGBoost beside it where installed. Both ways must give one model. Binning: seconds of 450,000 × 28 numbers,
with 256 bins, where the cuts rule packing out, and with 128, where the search finds nothing. Medians; the JSON of all figures
goes to benchmarks/results/.
"""

import argparse
import importlib
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median
from typing import Any

import numpy as np
from peers import RESULTS, ROOT, SEED, describe_machine, higgs_like, installed

import gpuboost as gb
from gpuboost.data import binned
from gpuboost.model_io import digest

N_ROWS, N_CLASSES, MAX_DEPTH = 200_000, 7, 6
BINNED_ROWS = 450_000


def covertype_like(rng: np.random.Generator, n_rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Float32 table and labels: 10 normal columns, and of two categories one column for each value, some of them rare."""
    area, soil_share = rng.choice(4, n_rows, p=[0.45, 0.43, 0.07, 0.05]), 1 / np.arange(1, 41)
    soil = rng.choice(40, n_rows, p=soil_share / soil_share.sum())
    numbers = rng.normal(size=(n_rows, 10))
    x = np.column_stack([numbers, area[:, None] == np.arange(4), soil[:, None] == np.arange(40)]).astype(np.float32)
    z = numbers[:, 0] + 0.5 * numbers[:, 1] * numbers[:, 2] + area - 0.5 * np.sqrt(soil) + rng.normal(size=n_rows)
    return x, np.searchsorted(np.quantile(z, [0.2, 0.5, 0.7, 0.8, 0.9, 0.95]), z).astype(np.float32)


@contextmanager
def plain_records() -> Iterator[None]:
    may_pack = binned.may_pack
    binned.may_pack = lambda *_: False
    try:
        yield
    finally:
        binned.may_pack = may_pack


def seconds_in_turns(ways: dict[str, Callable[[], Any]], repeats: int) -> dict[str, list[float]]:
    """Times of each way, after a warm-up, the order reversed in every other round."""
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for call in ways.values():
        call()
    for repeat in range(repeats):
        for name in list(ways)[:: 1 if repeat % 2 == 0 else -1]:
            begin = time.perf_counter()
            ways[name]()
            seconds[name].append(time.perf_counter() - begin)
    return seconds


def time_training(threads: int, rounds: int, repeats: int) -> dict[str, list[float]]:
    """Seconds of a round."""
    x, y = covertype_like(np.random.default_rng(SEED), N_ROWS)
    params = {"objective": "multi:softprob", "num_class": N_CLASSES, "max_depth": MAX_DEPTH, "max_bin": 256, "nthread": threads}
    with plain_records():
        plain = gb.QuantileDMatrix(x, y, nthread=threads)
    packed = gb.QuantileDMatrix(x, y, nthread=threads)
    groups = np.diff(packed.any_binned().packing.offsets)
    print(f"{x.shape[1]} columns in {len(groups)} codes of a record, of {groups.tolist()} values")
    models = [gb.train(params, table, rounds, verbose_eval=False).model for table in (plain, packed)]
    assert digest(models[0]) == digest(models[1])
    ways = {
        "plain": lambda: gb.train(params, plain, rounds, verbose_eval=False),
        "packed": lambda: gb.train(params, packed, rounds, verbose_eval=False),
    }
    if installed(["xgboost"]):
        xgboost = importlib.import_module("xgboost")
        peer = xgboost.QuantileDMatrix(x, y, max_bin=256, nthread=threads)
        ways["xgboost"] = lambda: xgboost.train({**params, "tree_method": "hist"}, peer, rounds, verbose_eval=False)
    return {name: [t / rounds for t in times] for name, times in seconds_in_turns(ways, repeats).items()}


def time_binning(x: np.ndarray, y: np.ndarray, max_bin: int, threads: int, repeats: int) -> dict[str, list[float]]:
    def without() -> None:
        with plain_records():
            gb.QuantileDMatrix(x, y, max_bin=max_bin, nthread=threads)

    ways = {"without": without, "with": lambda: gb.QuantileDMatrix(x, y, max_bin=max_bin, nthread=threads)}
    return seconds_in_turns(ways, repeats)


def report(task: str, seconds: dict[str, list[float]]) -> dict[str, Any]:
    first = median(next(iter(seconds.values())))
    for name, times in seconds.items():
        spread = f"{min(times):.4f}–{max(times):.4f}"
        print(f"{task:22} {name:8} {median(times):.4f} s   {spread}   {median(times) / first:.2f}")
    return {"task": task, "seconds": seconds}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--repeats", type=int, default=7)
    options = parser.parse_args()
    machine, threads, repeats = describe_machine(options.threads), options.threads, options.repeats
    records = [report("covertype-200k, a round", time_training(threads, options.rounds, repeats))]
    x, y = covertype_like(np.random.default_rng(SEED), N_ROWS)
    records.append(report("covertype-200k, binning", time_binning(x, y, 256, threads, repeats)))
    x, y = higgs_like(np.random.default_rng(SEED), BINNED_ROWS)
    for max_bin in (256, 128):
        records.append(report(f"higgs-450k, {max_bin} bins", time_binning(x, y, max_bin, threads, repeats)))
    RESULTS.mkdir(exist_ok=True)
    file = RESULTS / f"packing-{machine['date'].replace(':', '').replace('+0000', 'Z')}.json"
    file.write_text(json.dumps({"machine": machine, **vars(options), "records": records}, indent=1) + "\n")
    print(f"\n{file.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
