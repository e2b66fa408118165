"""Held-out deviance of every objective beside XGBoost's, on synthetic tables of its kind: paired draws.

    python benchmarks/deviance.py [--draws 10] [--objectives NAME ...] [--json PATH]

A draw is a table of 4,000 rows to train on and one of 20,000 to score, the same for both libraries, which get the same
parameters. The deviance is computed here, in float64, from what they predict. Both sides of a pair share the noise of the table,
so that few draws tell small differences. Survival models are scored by Harrell's concordance, too, quantiles by their coverage.
"""

import argparse
import json
import math
import platform
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from scipy.special import xlogy

import gpuboost

TRAIN_ROWS, TEST_ROWS, ROUNDS = 4_000, 20_000, 40
COMMON = {"max_depth": 4, "learning_rate": 0.2, "max_bin": 256, "nthread": 1, "verbosity": 0}
ALPHAS = (0.1, 0.5, 0.9)
Draw = Callable[[np.random.Generator, np.ndarray], dict[str, np.ndarray]]


@dataclass(frozen=True)
class Kind:
    """draw : labels of rows with this signal, as DMatrix takes them. deviance : of labels and predictions, of each row or of all.
    params : beside the objective."""

    draw: Draw
    deviance: Callable[[np.ndarray, np.ndarray], Any]
    params: dict[str, Any] = field(default_factory=dict)


def pinball(y: np.ndarray, p: np.ndarray) -> np.ndarray:
    error, alphas = y[:, None] - p, np.array(ALPHAS)
    return np.maximum(alphas * error, (alphas - 1) * error).sum(axis=1)


def poisson(y: np.ndarray, p: np.ndarray) -> np.ndarray:
    return 2 * (xlogy(y, y / p) - y + p)


def tweedie(y: np.ndarray, p: np.ndarray) -> np.ndarray:
    return 4 * (np.sqrt(p) + y / np.sqrt(p) - 2 * np.sqrt(y))  # of power 1.5


def log_loss(y: np.ndarray, p: np.ndarray) -> np.ndarray:
    return -xlogy(y, p) - xlogy(1 - y, 1 - p)


def several_log_loss(y: np.ndarray, p: np.ndarray) -> np.ndarray:
    return -np.log(p[np.arange(len(y)), y.astype(int)])


def cox(time: np.ndarray, hazard: np.ndarray) -> float:
    """−ln of the partial likelihood per event; negative times are censored."""
    order = np.argsort(-np.abs(time))
    at_risk = np.cumsum(hazard[order])
    return float(np.mean((np.log(at_risk) - np.log(hazard[order]))[time[order] > 0]))


def concordance(time: np.ndarray, event: np.ndarray, risk: np.ndarray) -> float:
    """Harrell's C: of pairs whose order is known, the share where the one with the earlier event has the higher risk."""
    agree = known = 0.0
    for i in np.flatnonzero(event):
        later = time > time[i]
        known += later.sum()
        agree += (risk[later] < risk[i]).sum() + (risk[later] == risk[i]).sum() / 2
    return agree / known


def label(make: Callable[[np.random.Generator, np.ndarray], np.ndarray]) -> Draw:
    return lambda rng, f: {"label": make(rng, f).astype(np.float32)}


def survival_times(rng: np.random.Generator, f: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Times until the event or the end of observation, and whether there was an event."""
    time, end = np.exp(f / 2 + 0.5 * rng.normal(size=len(f))), rng.exponential(5, len(f))
    return np.minimum(time, end), time <= end


def bounds(rng: np.random.Generator, f: np.ndarray) -> dict[str, np.ndarray]:
    time, event = survival_times(rng, f)
    return {"label_lower_bound": time, "label_upper_bound": np.where(event, time, np.inf)}


def signed_times(rng: np.random.Generator, f: np.ndarray) -> np.ndarray:
    time, event = survival_times(rng, f)
    return np.where(event, time, -time)


def logistic(f: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-f))


def squared(y: np.ndarray, p: np.ndarray) -> np.ndarray:
    return (y - p) ** 2


def of_logs(y: np.ndarray, p: np.ndarray) -> np.ndarray:
    return (np.log(np.abs(y)) - np.log(p)) ** 2


NORMAL = label(lambda rng, f: f + rng.normal(size=len(f)))
CLASSES = label(lambda rng, f: rng.random(len(f)) < logistic(f))
KINDS: dict[str, Kind] = {
    "reg:squarederror": Kind(NORMAL, squared),
    "reg:absoluteerror": Kind(label(lambda rng, f: f + rng.laplace(size=len(f))), lambda y, p: np.abs(y - p)),
    "reg:pseudohubererror": Kind(
        label(lambda rng, f: f + rng.standard_t(2, len(f))), lambda y, p: np.sqrt(1 + (y - p) ** 2) - 1
    ),
    "reg:squaredlogerror": Kind(  # with lambda = 1, steps where the loss is concave lead margins below −1 in either library
        label(lambda rng, f: np.exp(f / 2 + rng.normal(size=len(f)) / 2)), lambda y, p: squared(np.log1p(y), np.log1p(p)),
        {"reg_lambda": 5},
    ),
    "reg:quantileerror": Kind(  # small leaves cover too little of what they have not seen
        NORMAL, pinball, {"quantile_alpha": list(ALPHAS), "min_child_weight": 100, "learning_rate": 0.1}
    ),
    "reg:expectileerror": Kind(
        NORMAL, lambda y, p: np.where(p >= y, 0.2, 0.8) * squared(y, p), {"expectile_alpha": 0.8}
    ),
    "reg:logistic": Kind(label(lambda rng, f: rng.binomial(5, logistic(f)) / 5), log_loss),
    "binary:logistic": Kind(CLASSES, log_loss),
    "binary:logitraw": Kind(CLASSES, lambda y, m: np.logaddexp(0, m) - y * m),
    "binary:hinge": Kind(CLASSES, lambda y, p: y != p),
    "multi:softprob": Kind(
        label(lambda rng, f: np.digitize(f + rng.logistic(size=len(f)), [-1, 1])), several_log_loss, {"num_class": 3}
    ),
    "count:poisson": Kind(label(lambda rng, f: rng.poisson(np.exp(f / 2))), poisson),
    "reg:gamma": Kind(
        label(lambda rng, f: rng.gamma(2, np.exp(f / 2) / 2) + 1e-3), lambda y, p: 2 * (np.log(p / y) + y / p - 1)
    ),
    "reg:tweedie": Kind(
        label(lambda rng, f: rng.gamma(2 * rng.poisson(np.exp(f / 4)) + 1e-9, np.exp(f / 4) / 2)), tweedie
    ),
    "survival:aft": Kind(bounds, of_logs, {"aft_loss_distribution_scale": 0.5}),
    "survival:cox": Kind(label(signed_times), cox, {"max_delta_step": 1}),
}


def make_table(rng: np.random.Generator, n_rows: int) -> tuple[np.ndarray, np.ndarray]:
    """X float32 (n_rows, 6), and a signal in five of its columns of standard deviation 1.6 or so."""
    X = rng.normal(size=(n_rows, 6)).astype(np.float32)
    return X, X[:, 0] + X[:, 1] * X[:, 2] + np.sin(2 * X[:, 3]) + (X[:, 4] > 0.5)


def scores(name: str, seed: int, libraries: Sequence[ModuleType], n_test: int = TEST_ROWS) -> list[dict[str, Any]]:
    """Of each library on one draw: deviance, and concordance or coverage where there is such."""
    kind, rng = KINDS[name], np.random.default_rng(seed)
    (X, f), (X_test, f_test) = make_table(rng, TRAIN_ROWS), make_table(rng, n_test)
    info, test = kind.draw(rng, f), kind.draw(rng, f_test)
    found = []
    for library in libraries:
        booster = library.train({"objective": name, **COMMON, **kind.params}, library.DMatrix(X, **info), ROUNDS)
        p = booster.predict(library.DMatrix(X_test)).astype(np.float64)
        y = test.get("label", test.get("label_lower_bound")).astype(np.float64)
        score: dict[str, Any] = {}
        if name.startswith("survival:"):
            event = y > 0 if name.endswith("cox") else np.isfinite(test["label_upper_bound"])
            some = slice(3000)
            risk = p if name.endswith("cox") else -p
            score["concordance"] = concordance(np.abs(y[some]), event[some], risk[some])
            y, p = (y, p) if name.endswith("cox") else (y[event], p[event])
        if name == "reg:quantileerror":
            score["coverage"] = (y[:, None] < p).mean(axis=0).tolist()
        found.append({"deviance": float(np.mean(kind.deviance(y, p))), **score})
    return found


def ratios(name: str, draws: int, libraries: Sequence[ModuleType], n_test: int = TEST_ROWS) -> tuple[float, float, list[Any]]:
    """Our deviance over theirs, as the mean of the draws, its standard error, and the scores."""
    found = [scores(name, seed, libraries, n_test) for seed in range(draws)]
    ratio = np.array([ours["deviance"] / theirs["deviance"] for ours, theirs in found])
    return float(ratio.mean()), float(ratio.std(ddof=1) / math.sqrt(draws)), found


def means(scores: list[dict[str, Any]]) -> dict[str, Any]:
    return {key: np.mean([score[key] for score in scores], axis=0) for key in scores[0]}


def main() -> None:
    import xgboost

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--objectives", nargs="+", default=list(KINDS))
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    all_scores = {}
    print("| objective | deviance | XGBoost's | ratio, 2 SE | concordance, XGBoost's; coverage |\n|---|---|---|---|---|")
    for name in options.objectives:
        ratio, error, all_scores[name] = ratios(name, options.draws, (gpuboost, xgboost))
        ours, theirs = (means([pair[i] for pair in all_scores[name]]) for i in (0, 1))
        more = f"{ours['concordance']:.4f}, {theirs['concordance']:.4f}" if "concordance" in ours else ""
        more += ", ".join(f"{share:.3f}" for share in ours.get("coverage", ()))
        both = f"{ours['deviance']:.5f} | {theirs['deviance']:.5f}"
        print(f"| {name} | {both} | {ratio:.4f} ± {2 * error:.4f} | {more} |", flush=True)
    if options.json:
        about = {"draws": options.draws, "train_rows": TRAIN_ROWS, "test_rows": TEST_ROWS, "rounds": ROUNDS}
        about |= {"gpuboost": gpuboost.__version__, "xgboost": xgboost.__version__, "machine": platform.machine()}
        options.json.write_text(json.dumps({**about, "scores": all_scores}, indent=1) + "\n")


if __name__ == "__main__":
    main()
