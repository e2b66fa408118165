"""Dropout, forests and cross-validation beside XGBoost's and scikit-learn's, and beside separate trainings.

    python benchmarks/boosters.py
    python benchmarks/boosters.py --parts dart cv --threads 1 --repeats 3
    python benchmarks/boosters.py --parts real --folder FOLDER        # higgs_train.csv.gz, california_housing.csv.gz

    dart      200,000 × 28, 200 rounds, rate_drop 0.1
    forest    450,000 × 28, 100 trees of depth 10; of scikit-learn's SHARE of the trees, whose time is multiplied
    cv        450,000 × 28, 5 folds, 10 rounds: cv(), and separate trainings: for each fold a matrix of its rows and one of the
              others, cuts and codes of its own, a training, and both evaluations each round. long-cv: 50 rounds
    quality   dart of 100 rounds, log loss on halves of synthetic tables: the mean of paired differences, and its standard error
    real      dart, and forests of 100 trees of depth 10, on random thirds of a folder's tables, trained on 3,000 other rows: the
              mean log of the ratio of losses to XGBoost's, to scikit-learn's, and its standard error

All in one process and in turns, after a small warm-up. Seconds are medians over the repeats, on the clock and of all cores: those
of the cores are what a busy machine leaves comparable, on one thread. The JSON goes to benchmarks/results/.
"""

import argparse
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import Any

import numpy as np
import xgboost
from measure import available_cores, write_record

import gpuboost as gb

SHARE = 20  # of a forest's trees one in so many is enough to time scikit-learn, which grows one after another
DART = {"booster": "dart", "rate_drop": 0.1, "objective": "binary:logistic", "tree_method": "hist", "max_depth": 6}
Rows = tuple[np.ndarray, np.ndarray]  # X, y
Ways = dict[str, tuple[float, Callable[[int], Any]]]  # name → (what to multiply its time by, rows → anything)


def table(n_rows: int, seed: int = 7) -> tuple[np.ndarray, np.ndarray]:
    """28 normal columns, of which eight tell a class."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n_rows, 28)).astype(np.float32)
    signal = x[:, 0] * x[:, 1] + np.sin(2 * x[:, 2]) + abs(x[:, 3]) + x[:, 4:8].sum(axis=1) / 2
    return x, (signal + rng.normal(size=n_rows) > 0.8).astype(np.float32)


def dart(n_rows: int, threads: int) -> Ways:
    x, y = table(n_rows)
    params = {**DART, "nthread": threads}
    return {
        "gpuboost": (1, lambda n: gb.train(params, gb.DMatrix(x[:n], y[:n]), 200, verbose_eval=False)),
        "xgboost": (1, lambda n: xgboost.train(params, xgboost.QuantileDMatrix(x[:n], y[:n]), 200)),
    }


def forest(n_rows: int, threads: int) -> Ways:
    from sklearn.ensemble import RandomForestClassifier

    x, y = table(n_rows)
    common: dict[str, Any] = {"max_depth": 10, "n_jobs": threads}
    return {
        "gpuboost": (1, lambda n: gb.GPUBoostRFClassifier(n_estimators=100, **common).fit(x[:n], y[:n])),
        "xgboost": (1, lambda n: xgboost.XGBRFClassifier(n_estimators=100, **common).fit(x[:n], y[:n])),
        "scikit-learn": (
            SHARE, lambda n: RandomForestClassifier(n_estimators=100 // SHARE, **common).fit(x[:n], y[:n])
        ),
    }  # fmt: skip


def cv(n_rows: int, threads: int, n_rounds: int = 10) -> Ways:
    x, y = table(n_rows)
    params = {"objective": "binary:logistic", "nthread": threads}

    def apart(n: int) -> None:
        parts = np.array_split(np.random.RandomState(0).permutation(n), 5)
        for k, held_out in enumerate(parts):
            rows = np.concatenate(parts[:k] + parts[k + 1 :])
            train, test = (gb.DMatrix(x[own], y[own]) for own in (rows, held_out))
            gb.train(params, train, n_rounds, evals=[(train, "train"), (test, "test")], verbose_eval=False)

    together = lambda n: gb.cv(params, gb.DMatrix(x[:n], y[:n]), n_rounds, nfold=5)
    return {"cv": (1, together), "separate trainings": (1, apart)}


def time_in_turns(ways: Ways, n_rows: int, repeats: int) -> dict[str, dict[str, Any]]:
    """Medians, on the clock and of all cores, and all of them."""
    seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    for _, run in ways.values():
        run(2000)
    for repeat in range(repeats):
        for name in list(ways)[:: 1 if repeat % 2 == 0 else -1]:
            factor, run = ways[name]
            begin = perf_counter(), process_time()
            run(n_rows)
            seconds[name].append((factor * (perf_counter() - begin[0]), factor * (process_time() - begin[1])))
    return {
        name: {"clock_s": median(clock for clock, _ in pairs), "cores_s": median(cores for _, cores in pairs), "all": pairs}
        for name, pairs in seconds.items()
    }


def quality(threads: int, n_draws: int = 10, n_rows: int = 10_000) -> dict[str, Any]:
    """Log loss of dart minus that of XGBoost's, trained and tested on the same halves."""
    differences = []
    for draw in range(n_draws):
        x, y = table(n_rows, 100 + draw)
        half, losses = n_rows // 2, []
        for library in (gb, xgboost):
            matrices = [library.DMatrix(x[own], y[own]) for own in (slice(half), slice(half, None))]
            booster = library.train({**DART, "nthread": threads, "seed": draw}, matrices[0], 100)
            p = np.clip(booster.predict(matrices[1]), 1e-7, 1 - 1e-7)
            losses.append(-np.mean(np.where(y[half:] > 0, np.log(p), np.log1p(-p))))
        differences.append(losses[0] - losses[1])
    spread = np.std(differences, ddof=1) / np.sqrt(n_draws)
    return {"loss": float(losses[1]), "mean_difference": float(np.mean(differences)), "standard_error": float(spread)}


def loss(is_binary: bool, y: np.ndarray, p: np.ndarray) -> float:
    """Log loss of probabilities, or mean squared error."""
    if not is_binary:
        return float(np.square(p - y).mean())
    p = np.clip(p, 1e-7, 1 - 1e-7)
    return float(-np.log(np.where(y > 0, p, 1 - p)).mean())


def dart_prediction(library: Any, objective: str, train: Rows, x: np.ndarray, seed: int, threads: int) -> np.ndarray:
    params = {**DART, "objective": objective, "nthread": threads, "seed": seed}
    return library.train(params, library.DMatrix(*train), 100).predict(library.DMatrix(x))


def forest_prediction(kind: type, is_binary: bool, train: Rows, x: np.ndarray, seed: int, threads: int) -> np.ndarray:
    forest = kind(n_estimators=100, max_depth=10, n_jobs=threads, random_state=seed).fit(*train)
    return forest.predict_proba(x)[:, 1] if is_binary else forest.predict(x)


def real(folder: Path, threads: int, n_draws: int = 10) -> dict[str, Any]:
    """Means and standard errors of log ratios of losses, paired over draws."""
    from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor

    record: dict[str, Any] = {}
    for name, is_binary in (("higgs_train", True), ("california_housing", False)):
        table = np.loadtxt(folder / f"{name}.csv.gz", delimiter=",", skiprows=1, dtype=np.float32)
        x, y = (table[:, 1:], table[:, 0]) if is_binary else (table[:, :-1], np.log(table[:, -1]))
        objective = "binary:logistic" if is_binary else "reg:squarederror"
        kinds = [gb.GPUBoostRFRegressor, RandomForestRegressor]
        if is_binary:
            kinds = [gb.GPUBoostRFClassifier, RandomForestClassifier]
        ratios = []
        for draw in range(n_draws):
            order = np.random.default_rng(draw).permutation(len(y))
            test, own = order[: len(y) // 3], order[len(y) // 3 :][:3000]
            train = x[own], y[own]
            predictions = [dart_prediction(library, objective, train, x[test], draw, threads) for library in (gb, xgboost)]
            predictions += [forest_prediction(kind, is_binary, train, x[test], draw, threads) for kind in kinds]
            losses = np.log([loss(is_binary, y[test], prediction) for prediction in predictions])
            ratios.append((losses[0] - losses[1], losses[2] - losses[3]))
        means, errors = np.mean(ratios, axis=0), np.std(ratios, axis=0, ddof=1) / np.sqrt(n_draws)
        for what, mean, error in zip(("dart to XGBoost", "forest to scikit-learn"), means, errors):
            record[f"{name}: {what}"] = {"mean_log_ratio": float(mean), "standard_error": float(error)}
    return record


TIMED: dict[str, tuple[Callable[[int, int], Ways], int]] = {
    "dart": (dart, 200_000), "forest": (forest, 450_000), "cv": (cv, 450_000),
    "long-cv": (partial(cv, n_rounds=50), 450_000),
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", default=[*TIMED, "quality"], choices=[*TIMED, "quality", "real"])
    parser.add_argument("--threads", type=int, default=available_cores())
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--folder", type=Path, help="of real's tables")
    given = parser.parse_args()
    if "real" in given.parts and given.folder is None:
        parser.error("--parts real needs --folder")
    record: dict[str, Any] = {"threads": given.threads}
    for part in given.parts:
        if part == "quality":
            record[part] = quality(given.threads)
        elif part == "real":
            record[part] = real(given.folder, given.threads)
        else:
            make, n_rows = TIMED[part]
            record[part] = time_in_turns(make(n_rows, given.threads), n_rows, given.repeats)
        for name, figures in record[part].items():
            timed = f"{figures['clock_s']:.2f} s, cores {figures['cores_s']:.2f} s" if part in TIMED else figures
            print(part, name, timed, flush=True)
    write_record("boosters", record)


if __name__ == "__main__":
    main()
