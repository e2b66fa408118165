"""Seconds a round of each objective on 450,000 × 28, beside reg:squarederror and XGBoost, as a table and JSON.

    python benchmarks/objectives.py [--rows 450000] [--rounds 10] [--turns 3] [--json PATH]

Libraries and objectives take turns. A figure is the median over turns of the seconds of all rounds but the first, by two
trainings: binning and compiling do not count.
"""

import argparse
import json
import platform
import time
from pathlib import Path
from statistics import median
from types import ModuleType
from typing import Any

import numpy as np
import xgboost

import gpuboost

OBJECTIVES: dict[str, dict[str, Any]] = {
    name: {"objective": name}
    for name in (
        "reg:squarederror", "reg:squaredlogerror", "reg:logistic", "reg:pseudohubererror", "reg:gamma", "reg:tweedie",
        "binary:logistic", "binary:logitraw", "binary:hinge", "count:poisson", "survival:cox",
    )
} | {
    f"survival:aft {law}": {"objective": "survival:aft", "aft_loss_distribution": law}
    for law in ("normal", "logistic", "extreme")
}


def make_table(n_rows: int) -> tuple[np.ndarray, np.ndarray]:
    """X float32 (n_rows, 28), and a signal of some of its columns with noise, float32 (n_rows,)."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n_rows, 28)).astype(np.float32)
    return X, (X[:, 0] + X[:, 1] * X[:, 2] + rng.normal(size=n_rows)).astype(np.float32)


def labels(objective: str, signal: np.ndarray) -> dict[str, np.ndarray]:
    """Of the objective's domain."""
    amount = np.exp(signal / 2)
    if objective.startswith("binary:") or objective == "reg:logistic":
        return {"label": signal > 0}
    if objective == "survival:aft":
        return {"label_lower_bound": amount, "label_upper_bound": np.where(np.arange(len(signal)) % 3, amount, np.inf)}
    if objective == "survival:cox":
        return {"label": np.where(np.arange(len(signal)) % 3, amount, -amount)}
    return {"label": {"count:poisson": np.floor(amount), "reg:tweedie": np.floor(amount)}.get(objective, amount)}


def seconds_a_round(library: ModuleType, X: np.ndarray, signal: np.ndarray, params: dict[str, Any], n_rounds: int) -> float:
    data = library.QuantileDMatrix(X, **labels(params["objective"], signal))
    library.train({**params, "max_depth": 6}, data, 1)  # bins and compiles
    taken = []
    for rounds in (1, n_rounds + 1):
        begin = time.perf_counter()
        library.train({**params, "max_depth": 6}, data, rounds)
        taken.append(time.perf_counter() - begin)
    return (taken[1] - taken[0]) / n_rounds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=450_000)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    X, signal = make_table(options.rows)
    libraries = {"gpuboost": gpuboost, "xgboost": xgboost}
    turns: dict[str, dict[str, list[float]]] = {name: {library: [] for library in libraries} for name in OBJECTIVES}
    for _ in range(options.turns):
        for name, params in OBJECTIVES.items():
            for library, module in libraries.items():
                turns[name][library].append(seconds_a_round(module, X, signal, params, options.rounds))
    medians = {name: {library: median(values) for library, values in of.items()} for name, of in turns.items()}
    usual = medians["reg:squarederror"]["gpuboost"]
    print("| objective | gpuboost, ms a round | of squarederror's | XGBoost, ms a round |\n|---|---|---|---|")
    for name, of in medians.items():
        print(f"| {name} | {of['gpuboost'] * 1e3:.1f} | {of['gpuboost'] / usual:.2f}× | {of['xgboost'] * 1e3:.1f} |")
    if options.json:
        about = {"rows": options.rows, "rounds": options.rounds, "machine": platform.processor() or platform.machine()}
        about |= {"gpuboost": gpuboost.__version__, "xgboost": xgboost.__version__, "seconds": turns}
        options.json.write_text(json.dumps(about, indent=1))


if __name__ == "__main__":
    main()
