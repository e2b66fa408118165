"""What packed records (gpuboost/data/packing.py) bring and cost, with and without in turns, in one process.

    python benchmarks/bench_packing.py
    python benchmarks/bench_packing.py --rounds 20 --repeats 9 --threads 1

Training: seconds per round on a table like Covertype (200,000 rows; 10 numbers and two categories as 4 + 40 columns of ones and
zeros; 7 classes), XGBoost beside it where installed. Both ways must give one model. Binning: seconds of 450,000 × 28 numbers,
with 256 bins, where the cuts rule packing out, and with 128, where the search finds nothing. Medians on the clock, and of all
cores together, which other work on the machine disturbs less; the JSON of all figures goes to benchmarks/results/.
"""

import argparse
import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from libraries import installed
from measure import available_cores, seconds_in_turns, write_record
from tasks import SEED, covertype_like, higgs_like

import gpuboost as gb
from gpuboost.data import binning
from gpuboost.model_io import digest

N_ROWS, N_CLASSES, MAX_DEPTH = 200_000, 7, 6
BINNED_ROWS = 450_000


@contextmanager
def plain_records() -> Iterator[None]:
    may_pack = binning.may_pack
    binning.may_pack = lambda *_: False
    try:
        yield
    finally:
        binning.may_pack = may_pack


Seconds = dict[str, list[tuple[float, float]]]  # of each way and repeat: on the clock, and of all cores


def time_training(threads: int, rounds: int, repeats: int) -> Seconds:
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
    return {name: [(a / rounds, b / rounds) for a, b in times] for name, times in seconds_in_turns(ways, repeats).items()}


def time_binning(x: np.ndarray, y: np.ndarray, max_bin: int, threads: int, repeats: int) -> Seconds:
    def without() -> None:
        with plain_records():
            gb.QuantileDMatrix(x, y, max_bin=max_bin, nthread=threads)

    ways = {"without": without, "with": lambda: gb.QuantileDMatrix(x, y, max_bin=max_bin, nthread=threads)}
    return seconds_in_turns(ways, repeats)


def report(task: str, seconds: Seconds) -> dict[str, Any]:
    """Prints the medians and their ratios to the first way's, and the spread on the clock."""
    medians = {name: np.median(times, axis=0) for name, times in seconds.items()}
    first = next(iter(medians.values()))
    for name, (clock, cores) in medians.items():
        low, high = min(seconds[name])[0], max(seconds[name])[0]
        print(
            f"{task:23} {name:8} clock {clock:.4f} s ({low:.4f}–{high:.4f}), {clock / first[0]:.2f}   "
            f"cores {cores:.4f} s, {cores / first[1]:.2f}"
        )
    return {"task": task, "seconds": seconds}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=available_cores())
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--repeats", type=int, default=7)
    options = parser.parse_args()
    threads, repeats = options.threads, options.repeats
    records = [report("covertype-200k, a round", time_training(threads, options.rounds, repeats))]
    x, y = covertype_like(np.random.default_rng(SEED), N_ROWS)
    records.append(report("covertype-200k, binning", time_binning(x, y, 256, threads, repeats)))
    x, y = higgs_like(np.random.default_rng(SEED), BINNED_ROWS)
    for max_bin in (256, 128):
        records.append(report(f"higgs-450k, {max_bin} bins", time_binning(x, y, max_bin, threads, repeats)))
    write_record("packing", {**vars(options), "records": records})


if __name__ == "__main__":
    main()
