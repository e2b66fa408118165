"""Trees of all outputs (multi_strategy="multi_output_tree") beside a tree for each, and beside XGBoost's.

    python benchmarks/vector_leaves.py
    python benchmarks/vector_leaves.py --tasks targets --repeats 5 --threads 1

    targets    16 correlated targets: time of one tree for all, of a tree for each, and of XGBoost's multi_output_tree; rmse
    classes    300 classes: time and log loss with every output_sketch, and without; in the first dozen rounds a sketch is behind

All in one process and in turns, after a round of each to warm up; a time is the median over the repeats. The JSON of all figures
goes to benchmarks/results/.
"""

import argparse
from collections.abc import Callable
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
import xgboost
from measure import available_cores, write_record

import gpuboost as gb

VECTOR, SEARCHED = {"multi_strategy": "multi_output_tree"}, 30  # outputs, or sums of them, of a sketch
Train = Callable[[int], Callable[[np.ndarray], np.ndarray]]  # rounds -> predict


def targets(n_rows: int, n_targets: int = 16, n_features: int = 28) -> tuple[np.ndarray, ...]:
    """(x, y, test x, test y): targets that share three quarters of what can be learnt of them."""
    rng = np.random.default_rng(7)
    x = rng.normal(size=(n_rows + n_rows // 4, n_features)).astype(np.float32)
    parts = np.stack([x[:, 0] * x[:, 1], np.sin(2 * x[:, 2]), abs(x[:, 3]), x[:, 4] > 0.5, x[:, 5]], axis=1)
    common, own = parts @ rng.normal(size=(5, 1)), parts @ rng.normal(size=(5, n_targets))
    y = (common + own / 3 + rng.normal(size=own.shape)).astype(np.float32)
    return x[:n_rows], y[:n_rows], x[n_rows:], y[n_rows:]


def classes(n_rows: int, n_classes: int = 300, n_features: int = 28) -> tuple[np.ndarray, ...]:
    """The same of classes: the nearest of as many centres, which lie around a few."""
    rng = np.random.default_rng(8)
    few = rng.normal(size=(20, n_features))
    centres = few[rng.integers(0, 20, n_classes)] + rng.normal(size=(n_classes, n_features)) / 2
    y = rng.integers(0, n_classes, n_rows + n_rows // 4)
    x = (centres[y] + rng.normal(size=(len(y), n_features)) / 2).astype(np.float32)
    return x[:n_rows], y[:n_rows], x[n_rows:], y[n_rows:]


def ours(params: dict[str, Any], x: np.ndarray, y: np.ndarray) -> Train:
    def train(rounds: int) -> Callable[[np.ndarray], np.ndarray]:
        booster = gb.train(params, gb.DMatrix(x, y), rounds, verbose_eval=False)
        return lambda table: booster.predict(gb.DMatrix(table))

    return train


def theirs(params: dict[str, Any], x: np.ndarray, y: np.ndarray) -> Train:
    def train(rounds: int) -> Callable[[np.ndarray], np.ndarray]:
        booster = xgboost.train({**params, "tree_method": "hist"}, xgboost.QuantileDMatrix(x, y), rounds)
        return lambda table: booster.predict(xgboost.DMatrix(table))

    return train


def rmse(prediction: np.ndarray, y: np.ndarray) -> float:
    return float(np.sqrt(((prediction - y) ** 2).mean()))


def log_loss(prediction: np.ndarray, y: np.ndarray) -> float:
    return float(-np.log(np.maximum(prediction[np.arange(len(y)), y], 1e-16)).mean())


def compare(ways: dict[str, Train], test: tuple[np.ndarray, np.ndarray], loss: Any, rounds: int, repeats: int) -> list[dict]:
    """Seconds, table to model, and loss of each way, in turns."""
    records = {way: {"way": way, "rounds": rounds, "seconds": [], "loss": 0.0} for way in ways}
    for train in ways.values():
        train(1)
    for repeat in range(repeats):
        for way in list(ways)[:: -1 if repeat % 2 else 1]:
            begin = perf_counter()
            predict = ways[way](rounds)
            records[way]["seconds"].append(perf_counter() - begin)
            records[way]["loss"] = loss(predict(test[0]), test[1])
    return list(records.values())


def compare_targets(n_rows: int, rounds: int, repeats: int, n_threads: int) -> list[dict]:
    x, y, *test = targets(n_rows)
    params = {"nthread": n_threads}
    ways = {
        "one tree for all": ours({**params, **VECTOR}, x, y),
        "a tree for each": ours(params, x, y),
        "XGBoost, one for all": theirs({**params, **VECTOR}, x, y),
    }
    return compare(ways, (test[0], test[1]), rmse, rounds, repeats)


def compare_classes(n_rows: int, rounds: int, repeats: int, n_threads: int) -> list[dict]:
    x, y, *test = classes(n_rows)
    params = {"nthread": n_threads, "objective": "multi:softprob", "num_class": int(y.max()) + 1, **VECTOR}
    sketches = [None, *(f"{method}:{SEARCHED}" for method in ("top_outputs", "random_sampling", "random_projection"))]
    ways = {sketch or "all outputs": ours({**params, "output_sketch": sketch}, x, y) for sketch in sketches}
    return compare(ways, (test[0], test[1]), log_loss, rounds, repeats)


TASKS = {"targets": (compare_targets, 100_000, 20), "classes": (compare_classes, 10_000, 60)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", default=list(TASKS), choices=list(TASKS))
    parser.add_argument("--threads", type=int, default=available_cores())
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--rows", type=int, help="in the place of each task's own")
    parser.add_argument("--rounds", type=int, help="in the place of each task's own")
    options = parser.parse_args()
    print("| task | way | s | spread | times the first | loss | over the first |\n" + 7 * "|---" + "|", flush=True)
    records = []
    for task in options.tasks:
        work, n_rows, rounds = TASKS[task]
        found = work(options.rows or n_rows, options.rounds or rounds, options.repeats, options.threads)
        first = found[0]
        for r in found:
            seconds, ratio = median(r["seconds"]), median(r["seconds"]) / median(first["seconds"])
            print(
                f"| {task} | {r['way']} | {seconds:.2f} | {min(r['seconds']):.2f}–{max(r['seconds']):.2f} | {ratio:.2f} | "
                f"{r['loss']:.4f} | {r['loss'] / first['loss']:.4f} |",
                flush=True,
            )
            records.append({"task": task, "rows": options.rows or n_rows, "threads": options.threads, **r})
    write_record("vector_leaves", {"records": records})


if __name__ == "__main__":
    main()
