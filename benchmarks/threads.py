"""Threads on a busy machine, with another library's OpenMP loaded first: 200 rounds of 32,000 × 14.

    python benchmarks/threads.py                  # every threading layer of numba that is installed

Where ``import lightgbm`` comes before the first training, GNU OpenMP has read its settings before gpuboost could bound its
spinning (kernels/openmp.py). Each run is a new process; a busy process holds a core; runs with and without the import take turns.
"""

import argparse
import os
import subprocess
import sys
import time
from statistics import median

from measure import ROOT, write_record

LAYERS = ("omp", "tbb", "workqueue")
ROWS, FEATURES, ROUNDS = 32_000, 14, 200


def train_once(first: str) -> float:
    """Seconds of the training. first : module to import before."""
    if first:
        __import__(first)
    import numpy as np

    import gpuboost as gb

    rng = np.random.default_rng(0)
    X = rng.normal(size=(ROWS, FEATURES)).astype(np.float32)
    y = X[:, 0] * X[:, 1] + rng.normal(size=ROWS) > 0
    dtrain, params = gb.DMatrix(X, y), {"objective": "binary:logistic", "device": "cpu"}
    gb.train(params, dtrain, 5)
    begin = time.perf_counter()
    gb.train(params, dtrain, ROUNDS)
    return time.perf_counter() - begin


def run(layer: str, first: str) -> float | None:
    """The same in a process of its own; None where numba lacks the layer."""
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    env = os.environ | {"NUMBA_THREADING_LAYER": layer, "PYTHONPATH": os.pathsep.join(paths)}
    if layer == "tbb":  # pip installs its library where the loader does not look
        env["LD_LIBRARY_PATH"] = f"{sys.prefix}/lib:{env.get('LD_LIBRARY_PATH', '')}"
    done = subprocess.run([sys.executable, __file__, "--once", first], env=env, capture_output=True, text=True)
    if done.returncode and "No threading layer" in done.stderr:
        return None
    done.check_returncode()
    return float(done.stdout.split()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--first", default="lightgbm", metavar="MODULE", help="what is imported before, or not")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--once", metavar="MODULE", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.once is not None:
        print(train_once(options.once))
        return
    records = []
    for busy in (False, True):
        other = subprocess.Popen([sys.executable, "-c", "while True: pass"]) if busy else None
        try:
            records += [measure(layer, options.first, options.repeats, busy) for layer in LAYERS]
        finally:
            if other is not None:
                other.kill()
    write_record("threads", {"rounds": ROUNDS, "rows": ROWS, "features": FEATURES, "records": [r for r in records if r]})


def measure(layer: str, first: str, repeats: int, busy: bool) -> dict[str, object] | None:
    if run(layer, "") is None:  # and compiles
        print(f"{layer}: not installed")
        return None
    turns: dict[str, list[float]] = {"alone": [], first: []}
    for _ in range(repeats):
        for way, module in (("alone", ""), (first, first)):
            seconds = run(layer, module)
            assert seconds is not None
            turns[way].append(seconds)
    alone, after = (median(values) for values in turns.values())
    where = "beside a busy process" if busy else "on a quiet machine"
    print(f"{layer} {where}: {alone:.2f} s, after import {first} {after:.2f} s, {after / alone:.2f}×", flush=True)
    return {"layer": layer, "busy": busy, "seconds": turns}


if __name__ == "__main__":
    main()
