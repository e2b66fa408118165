"""Explanations beside XGBoost's and shap's: values, interactions, interventional values, and how they cost.

    python benchmarks/explain.py --threads 2 --output benchmarks/results/explain.json

Models are trained here and read by the others from their file, so that all explain the same trees. Each figure is the best of
``--rounds`` calls after one that compiles; XGBoost (3.4.1 needs Python 3.12) and shap where they are installed. Time of shap's
interventional values grows with rows × background: it is timed on fewer rows, and both are given per row.
"""

import argparse
import json
import os
import platform
import time
from functools import cache
from importlib.metadata import PackageNotFoundError, version

import numpy as np

import gpuboost as gb

N_FEATURES, N_TRAINED = 28, 100_000


def table(n_rows, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, N_FEATURES)).astype(np.float32)
    y = X[:, 0] * X[:, 1] + np.sin(X[:, 2]) + 0.3 * X[:, 3:] @ rng.normal(size=N_FEATURES - 3) + 0.5 * rng.normal(size=n_rows)
    return X, y.astype(np.float32)


@cache
def trained(n_trees, depth, threads):
    params = {"max_depth": depth, "learning_rate": 0.1, "nthread": threads}
    return gb.train(params, gb.DMatrix(*table(N_TRAINED)), n_trees, verbose_eval=False)


def best(call, rounds):
    """(seconds of the quickest call, what the last one returned)."""
    seconds = []
    for _ in range(rounds):
        start = time.perf_counter()
        result = call()
        seconds.append(time.perf_counter() - start)
    return min(seconds), result


def versions():
    found = {"python": platform.python_version()}
    for name in ("numpy", "numba", "xgboost", "xgboost-cpu", "shap"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def beside_xgboost(booster, X, kind, options):
    ours = gb.DMatrix(X)
    booster.predict(gb.DMatrix(X[:64]), **{kind: True})  # compiles
    seconds, values = best(lambda: booster.predict(ours, **{kind: True}), options.rounds)
    figures = {"rows": len(X), "gpuboost_s": seconds}
    try:
        import xgboost
    except ImportError:
        return figures
    other = xgboost.Booster({"nthread": options.threads}, model_file=booster.save_raw())
    theirs = xgboost.DMatrix(X, nthread=options.threads)
    n_calls = 1 if options.quick or len(X) <= 2000 else options.rounds
    seconds, expected = best(lambda: other.predict(theirs, **{kind: True}), n_calls)
    margins = booster.predict(ours, output_margin=True)
    axes = tuple(range(1, values.ndim))
    return figures | {
        "xgboost_s": seconds, "times": seconds / figures["gpuboost_s"], "difference": float(abs(values - expected).max()),
        "not_added_up": float(abs(values.sum(axis=axes, dtype=np.float64) - margins).max()),
        "not_added_up_xgboost": float(abs(expected.sum(axis=axes, dtype=np.float64) - margins).max()),
    }  # fmt: skip


def beside_shap(booster, X, background, options, rows_of_shap):
    explainer = gb.explainer(booster, background)
    explainer(X[:64])  # compiles, and keeps what depends on the background alone
    seconds, _ = best(lambda: gb.explainer(booster, background)(X), options.rounds)
    figures = {"rows": len(X), "background": len(background), "gpuboost_s": seconds, "gpuboost_us_a_row": 1e6 * seconds / len(X)}
    try:
        import shap
        import xgboost
    except ImportError:
        return figures
    masker = shap.maskers.Independent(background, max_samples=len(background))  # it takes 100 of them otherwise
    other = shap.TreeExplainer(
        xgboost.Booster(model_file=booster.save_raw()), masker, feature_perturbation="interventional"
    )  # fmt: skip
    few = X[:rows_of_shap]
    seconds, expected = best(lambda: other.shap_values(few, check_additivity=False), 1)
    per_row = 1e6 * seconds / len(few)
    difference = abs(explainer(few).values - expected).max()
    return figures | {
        "shap_us_a_row": per_row, "shap_rows": len(few), "times": per_row / figures["gpuboost_us_a_row"],
        "difference": float(difference),
    }  # fmt: skip


def cost_curves(options):
    """Microseconds a row and tree, by depth, trees and rows."""
    X, _ = table(8192, 1)

    def cost(booster, n_trees, n_rows=8192, kind="pred_contribs"):
        data, rounds = gb.DMatrix(X[:n_rows]), {"iteration_range": (0, n_trees)}
        return 1e6 * best(lambda: booster.predict(data, **{kind: True}, **rounds), options.rounds)[0] / n_rows / n_trees

    by_depth = {depth: trained(20, depth, options.threads) for depth in (2, 4, 6, 8, 10, 12)}
    booster = trained(200, 6, options.threads)
    return {
        "values by depth": {depth: cost(model, 20) for depth, model in by_depth.items()},
        "interactions by depth": {depth: cost(model, 20, kind="pred_interactions") for depth, model in by_depth.items()},
        "values by trees": {n: cost(booster, n) for n in (10, 50, 200)},
        "values by rows": {n: cost(booster, 200, n) for n in (1, 64, 1024, 8192)},
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="one call of the others, no curves")
    parser.add_argument("--output", metavar="FILE")
    options = parser.parse_args()
    result = {"versions": versions(), "machine": platform.processor() or platform.machine(), "threads": options.threads}
    X, _ = table(20_000, 1)

    def shallow():
        return trained(100, 6, options.threads)

    def deep():
        return trained(500, 12, options.threads)

    tasks = {
        "100 trees of depth 6, values": lambda: beside_xgboost(shallow(), X, "pred_contribs", options),
        "100 trees of depth 6, interactions": lambda: beside_xgboost(shallow(), X, "pred_interactions", options),
        "100 trees of depth 6, interventional": lambda: beside_shap(shallow(), X, X[-1000:], options, 20),
        "500 trees of depth 12, values": lambda: beside_xgboost(deep(), X[:2000], "pred_contribs", options),
        "500 trees of depth 12, interactions": lambda: beside_xgboost(deep(), X[:200], "pred_interactions", options),
        "500 trees of depth 12, interventional": lambda: beside_shap(deep(), X[:2000], X[-1000:], options, 2),
    }
    for name, task in tasks.items():
        result[name] = task()
        print(name, json.dumps(result[name]), flush=True)
        if options.output:
            with open(options.output, "w") as file:
                json.dump(result, file, indent=1)
    if not options.quick:
        result["us_a_row_and_tree"] = cost_curves(options)
        print(json.dumps(result["us_a_row_and_tree"]))
    if options.output:
        with open(options.output, "w") as file:
            json.dump(result, file, indent=1)


if __name__ == "__main__":
    main()
