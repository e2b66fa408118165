"""One thread's seconds a round of each objective on 450,000 × 28, beside reg:squarederror and XGBoost, as a table and JSON.

    python benchmarks/objectives.py [--rows 450000] [--rounds 10] [--turns 3] [--json PATH]
    python benchmarks/objectives.py --own --turns 9     # binary:logistic as a user writes it, beside the built-in one

Libraries and objectives take turns. A figure is the median over turns of the seconds of all rounds but the first, by two
trainings: binning and compiling do not count. "Own" of it is the objective's arithmetic, gradients and refreshed leaves. The
rest grows trees, a tree for each output; it is beside that of squared error on the same labels, as the median ratio of the turns,
since other labels make other trees. So do other gradients: "rows" is how many rows its histograms add up, those of the smaller
child of each split, over squared error's; each costs more where they take two limbs (kernels/quantise.py). With --own, what is
given is the median ratio to the built-in loss of the same turn: of its gradient and hessian, and of its loss alone,
differentiated automatically.
"""

import argparse
import json
import math
import platform
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from types import ModuleType
from typing import Any

import numpy as np
import xgboost

import gpuboost
from gpuboost.backend.cpu.gradients import CpuGradients
from gpuboost.growing.grower import Grower
from gpuboost.objectives.survival import ProportionalHazards

OWN_ARITHMETIC = (CpuGradients, "compute"), (CpuGradients, "set"), (ProportionalHazards, "stage"), (Grower, "_refresh_leaves")
DEFAULTS = {"max_depth": 6, "nthread": 1}
WAYS = "round", "own", "squared error round", "squared error own", "xgboost round"
OBJECTIVES: dict[str, dict[str, Any]] = {
    name: {"objective": name}
    for name in (
        "reg:squarederror", "reg:squaredlogerror", "reg:logistic", "reg:pseudohubererror", "reg:gamma", "reg:tweedie",
        "reg:absoluteerror", "binary:logistic", "binary:logitraw", "binary:hinge", "count:poisson",
    )
} | {
    "reg:quantileerror": {"objective": "reg:quantileerror", "quantile_alpha": [0.1, 0.5, 0.9]},
} | {
    "survival:cox": {"objective": "survival:cox", "max_delta_step": 1},  # without, margins run away in either library
} | {
    f"survival:aft {law}": {"objective": "survival:aft", "aft_loss_distribution": law}
    for law in ("normal", "logistic", "extreme")
}


@gpuboost.objective(link="logit", labels=(0, 1))
def own_gradient(margin, label):
    p = 1 / (1 + math.exp(-margin))
    return p - label, max(p * (1 - p), 1e-16)


@gpuboost.objective(link="logit", labels=(0, 1))
def own_loss(margin, label):
    return math.log(1 + math.exp(-margin)) + (1 - label) * margin


OWN = ("binary:logistic", "own_gradient", "own_loss")


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


def seconds_a_round(library: ModuleType, data: Any, params: dict[str, Any], n_rounds: int) -> float:
    """Of the one thread that trains: what else runs on the machine does not count."""
    library.train(params | DEFAULTS, data, 1)  # bins and compiles
    taken = []
    for rounds in (1, n_rounds + 1):
        begin = time.thread_time()
        library.train(params | DEFAULTS, data, rounds)
        taken.append(time.thread_time() - begin)
    return (taken[1] - taken[0]) / n_rounds


def rows_added(model: gpuboost.Booster, data: gpuboost.DMatrix) -> float:
    """Rows that the histograms of its trees add up, for each row of the table: all at a root, then those of smaller children."""
    trees = json.loads(model.save_raw("json"))["learner"]["gradient_booster"]["model"]["trees"]
    leaves = model.predict(data, pred_leaf=True).reshape(data.num_row(), -1).astype(np.int64)
    total = 0
    for tree, reached in zip(trees, leaves.T):
        left, right = np.array(tree["left_children"]), np.array(tree["right_children"])
        rows = np.bincount(reached, minlength=len(left))
        for node in np.flatnonzero(left >= 0)[::-1]:  # children come after their parents
            rows[node] = rows[left[node]] + rows[right[node]]
            total += min(rows[left[node]], rows[right[node]])
        total += rows[0]
    return total / len(trees) / data.num_row()


@contextmanager
def own_arithmetic() -> Iterator[list[float]]:
    """The seconds of each call of OWN_ARITHMETIC within."""
    taken: list[float] = []

    def timed(method: Callable[..., Any], *args: Any) -> Any:
        begin = time.thread_time()
        try:
            return method(*args)
        finally:
            taken.append(time.thread_time() - begin)

    methods = [getattr(cls, name) for cls, name in OWN_ARITHMETIC]
    for (cls, name), method in zip(OWN_ARITHMETIC, methods):
        setattr(cls, name, lambda *args, method=method: timed(method, *args))
    try:
        yield taken
    finally:
        for (cls, name), method in zip(OWN_ARITHMETIC, methods):
            setattr(cls, name, method)


def compare_own(X: np.ndarray, signal: np.ndarray, n_rounds: int, n_turns: int) -> dict[str, list[float]]:
    """Seconds of each of OWN in each turn."""
    taken: dict[str, list[float]] = {name: [] for name in OWN}
    data = gpuboost.QuantileDMatrix(X, signal > 0)
    for _ in range(n_turns):
        for name in OWN:
            taken[name].append(seconds_a_round(gpuboost, data, {"objective": name}, n_rounds))
    print("| written as | ms a round | of binary:logistic's |\n|---|---|---|")
    for name, seconds in taken.items():
        ratio = median(own / built_in for own, built_in in zip(seconds, taken["binary:logistic"]))
        print(f"| {name} | {median(seconds) * 1e3:.1f} | {ratio:.3f}× |")
    return taken


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=450_000)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--own", action="store_true")
    options = parser.parse_args()
    X, signal = make_table(options.rows)
    about = {"rows": options.rows, "rounds": options.rounds, "machine": platform.processor() or platform.machine()}
    about |= {"gpuboost": gpuboost.__version__}
    if options.own:
        seconds = compare_own(X, signal, options.rounds, options.turns)
        if options.json:
            options.json.write_text(json.dumps({**about, "seconds": seconds}, indent=1) + "\n")
        return
    rows: dict[str, float] = {}
    turns: dict[str, dict[str, list[float]]] = {name: {way: [] for way in WAYS} for name in OBJECTIVES}
    for _ in range(options.turns):
        for name, params in OBJECTIVES.items():
            given = labels(params["objective"], signal)
            data = gpuboost.QuantileDMatrix(X, **given)
            beside = gpuboost.QuantileDMatrix(X, next(iter(given.values())), ref=data)
            of_both = []
            for way, matrix, objective in (("", data, params), ("squared error ", beside, {"objective": "reg:squarederror"})):
                turns[name][f"{way}round"].append(seconds_a_round(gpuboost, matrix, objective, options.rounds))
                with own_arithmetic() as taken:
                    model = gpuboost.train(objective | DEFAULTS, matrix, options.rounds)
                of_both.append(rows_added(model, matrix))
                turns[name][f"{way}own"].append(sum(taken) / options.rounds)
            rows[name] = of_both[0] / of_both[1]
            theirs = xgboost.QuantileDMatrix(X, **given)
            turns[name]["xgboost round"].append(seconds_a_round(xgboost, theirs, params, options.rounds))
    print("| objective | gpuboost, ms a round | own | rest, a tree, of squared error's | rows | XGBoost, ms a round |")
    print("|---|---|---|---|---|---|")
    for name, of in turns.items():
        n_trees = len(OBJECTIVES[name].get("quantile_alpha", [0]))
        rest = median((a - b) / (c - d) / n_trees for a, b, c, d in zip(*(of[way] for way in WAYS[:4])))
        taken, own, theirs = (median(of[way]) * 1e3 for way in ("round", "own", "xgboost round"))
        print(f"| {name} | {taken:.1f} | {own:.1f} | {rest:.2f}× | {rows[name]:.2f}× | {theirs:.1f} |")
    if options.json:
        about |= {"xgboost": xgboost.__version__, "rows": rows}
        options.json.write_text(json.dumps({**about, "seconds": turns}, indent=1) + "\n")


if __name__ == "__main__":
    main()
