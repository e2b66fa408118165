"""Learning to rank beside XGBoost and LightGBM: time, held-out NDCG, and biases of positions that were planted.

    python benchmarks/ranking.py
    python benchmarks/ranking.py --parts speed --queries 1000
    python benchmarks/ranking.py --parts real --folder FOLDER     # ltr_train.libsvm.gz, ltr_train.group.txt, the same of test

    speed      queries × 120 documents × 136 columns, the shape of MSLR: seconds, table to model, and what share of a round is
               spent on gradients here; each library in a process of its own, in turns
    long       one query of 100,000 documents: seconds a round here
    real       NDCG@10 on the test queries of a folder, seeds 0 to 4, and the differences to the others paired by query
    synthetic  the same of 2,000 queries
    bias       clicks on lists, looked at by position: rank correlation of the biases found, and NDCG of true relevance

The JSON of all figures goes to benchmarks/results/.
"""

import argparse
import gzip
import multiprocessing
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
from measure import available_cores, write_record

LIBRARIES = ("gpuboost", "xgboost", "lightgbm")
DOCUMENTS, COLUMNS, ROUNDS = 120, 136, 20
Table = tuple[np.ndarray, np.ndarray, np.ndarray]  # X, labels, rows of each query


def queries(n_queries: int, n_documents: int, n_columns: int, seed: int) -> Table:
    """Relevance 0 to 4 in the shares of MSLR-WEB10K, told by ten columns and noise."""
    rng = np.random.default_rng(seed)
    n = n_queries * n_documents
    x = rng.normal(size=(n, n_columns)).astype(np.float32)
    weights = np.random.default_rng(1).normal(size=10) * 0.4
    signal = x[:, :10] @ weights + x[:, 0] * x[:, 1] * 0.5 + rng.normal(size=n)
    y = np.digitize(signal, np.quantile(signal, np.cumsum([0.52, 0.32, 0.13, 0.02])))
    return x, y.astype(np.float32), np.full(n_queries, n_documents)


def read_folder(folder: Path, part: str) -> Table:
    from sklearn.datasets import load_svmlight_file

    with gzip.open(folder / f"ltr_{part}.libsvm.gz") as file:
        x, y = load_svmlight_file(file, n_features=301)
    return x.toarray().astype(np.float32), y.astype(np.float32), np.loadtxt(folder / f"ltr_{part}.group.txt", dtype=int)


def train(library: str, table: Table, rounds: int, n_threads: int, seed: int = 0, test: np.ndarray | None = None) -> Any:
    """(seconds, scores of the test rows). The settings mean the same in all libraries: depth 6, or 63 leaves."""
    x, y, group = table
    begin = perf_counter()
    if library == "lightgbm":
        import lightgbm

        params = {
            "objective": "lambdarank", "num_leaves": 63, "max_depth": 6, "learning_rate": 0.1, "max_bin": 255,
            "num_threads": n_threads, "lambdarank_truncation_level": 32, "verbosity": -1, "seed": seed,
            "bagging_fraction": 0.8, "bagging_freq": 1,
            "min_sum_hessian_in_leaf": 0.1, "min_data_in_leaf": 20,
        }  # fmt: skip
        model = lightgbm.train(params, lightgbm.Dataset(x, y, group=group), rounds)
        seconds = perf_counter() - begin
        return seconds, None if test is None else model.predict(test)
    import importlib

    module = importlib.import_module(library)
    params = {
        "objective": "rank:ndcg", "max_depth": 6, "learning_rate": 0.1, "nthread": n_threads, "seed": seed, "subsample": 0.8,
        "min_child_weight": 0.1,
    }  # fmt: skip
    model = module.train(params, module.QuantileDMatrix(x, y, group=group), rounds, verbose_eval=False)
    seconds = perf_counter() - begin
    return seconds, None if test is None else model.predict(module.DMatrix(test))


def ndcg(scores: np.ndarray, y: np.ndarray, group: np.ndarray, k: int = 10) -> np.ndarray:
    """Of each query, gains 2^label − 1; 1 where nothing is relevant."""
    values, discounts = [], 1 / np.log2(np.arange(k) + 2)
    for own, label in zip(np.split(scores, np.cumsum(group)[:-1]), np.split(2.0**y - 1, np.cumsum(group)[:-1])):
        n = min(k, len(own))
        best = np.sort(label)[::-1][:n] @ discounts[:n]
        values.append(label[np.argsort(-own, kind="stable")][:n] @ discounts[:n] / best if best > 0 else 1.0)
    return np.array(values)


# --- Time ---


def work(library: str, n_queries: int, rounds: int, n_threads: int) -> dict[str, float]:
    """One training in a process of its own, after one on a small table to warm up."""
    train(library, queries(50, DOCUMENTS, COLUMNS, 0), 2, n_threads)
    if library == "gpuboost":  # also the kernels of large tables, on several threads
        train(library, queries(200, DOCUMENTS, COLUMNS, 0), 2, n_threads)
    table = queries(n_queries, DOCUMENTS, COLUMNS, 2)
    spent = measure_gradients() if library == "gpuboost" else []
    seconds, _ = train(library, table, rounds, n_threads)
    return {"seconds": seconds, **({"gradients": sum(spent)} if spent else {})}


def measure_gradients() -> list[float]:
    """The list to which seconds of every call will be added."""
    from gpuboost.objectives.ranking import LambdaRank

    spent: list[float] = []
    stage = LambdaRank.stage

    def timed(*arguments: Any) -> Any:
        begin = perf_counter()
        result = stage(*arguments)
        spent.append(perf_counter() - begin)
        return result

    LambdaRank.stage = timed  # type: ignore[method-assign]
    return spent


def in_process(function: Any, *arguments: Any) -> Any:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(function, arguments)


def speed(options: argparse.Namespace) -> dict[str, Any]:
    """Binning is what training 1 round less a mean round takes."""
    record: dict[str, Any] = {"queries": options.queries, "rounds": ROUNDS, "threads": options.threads, "libraries": {}}
    found: dict[str, list[dict[str, float]]] = {library: [] for library in LIBRARIES}
    for repeat in range(options.repeats):
        for library in LIBRARIES[:: -1 if repeat % 2 else 1]:
            found[library].append(in_process(work, library, options.queries, ROUNDS, options.threads))
    single = in_process(work, "gpuboost", options.queries, 1, options.threads)["seconds"]
    for library, turns in found.items():
        record["libraries"][library] = {"seconds": [turn["seconds"] for turn in turns]}
        print(f"speed: {library} {median(turn['seconds'] for turn in turns):.2f} s", flush=True)
    best = min(found["gpuboost"], key=lambda turn: turn["seconds"])
    share = best["gradients"] / ROUNDS / ((best["seconds"] - single) / (ROUNDS - 1))
    record |= {"one_round_s": single, "gradients_s": best["gradients"], "gradient_share": share}
    print(f"speed: gradients take {best['gradients'] / ROUNDS * 1e3:.0f} ms, {share:.0%} of a round")
    return record


def long(options: argparse.Namespace) -> dict[str, Any]:
    import gpuboost as gb

    x, y, group = queries(1, 100_000, 20, 3)
    booster, data = gb.Booster({"objective": "rank:ndcg", "nthread": options.threads}), gb.QuantileDMatrix(x, y, group=group)
    seconds = []
    for _ in range(12):
        begin = perf_counter()
        booster.update(data)
        seconds.append(perf_counter() - begin)
    print(f"long: {median(seconds[2:]):.3f} s a round of one query of 100,000 documents")
    return {"seconds_a_round": seconds[2:]}


# --- Quality ---


def quality(name: str, table: Table, test: Table, rounds: int, n_threads: int) -> dict[str, Any]:
    """NDCG@10 by query, the mean over seeds of row sampling."""
    scores = {}
    for library in LIBRARIES:
        scored = [in_process(train, library, table, rounds, n_threads, seed, test[0])[1] for seed in range(5)]
        scores[library] = np.mean([ndcg(own, *test[1:]) for own in scored], axis=0)
        print(f"{name}: {library} NDCG@10 {scores[library].mean():.4f}", flush=True)
    record: dict[str, Any] = {"rounds": rounds, "ndcg": {library: float(values.mean()) for library, values in scores.items()}}
    for library in LIBRARIES[1:]:
        difference = scores["gpuboost"] - scores[library]
        error = difference.std(ddof=1) / np.sqrt(len(difference))
        record[f"over {library}"] = {"mean": float(difference.mean()), "standard_error": float(error)}
        print(f"{name}: {difference.mean():+.4f} ± {error:.4f} to {library}, paired over {len(difference)} queries")
    return record


def real(options: argparse.Namespace) -> dict[str, Any]:
    if options.folder is None:
        return {}
    return quality("real", read_folder(options.folder, "train"), read_folder(options.folder, "test"), 100, options.threads)


def synthetic(options: argparse.Namespace) -> dict[str, Any]:
    return quality("synthetic", queries(2000, 40, 30, 4), queries(1000, 40, 30, 5), 100, options.threads)


def bias(options: argparse.Namespace) -> dict[str, Any]:
    """Lists of 10 are sorted by a poor ranking; position p is looked at with probability (p + 1)^−0.7, clicked by relevance."""
    import gpuboost as gb

    n_queries, n_listed = 4000, 10
    x, y, _ = queries(n_queries, n_listed, 10, 6)
    rng = np.random.default_rng(7)
    order = np.lexsort((-(x[:, 0] + rng.normal(size=len(x)) * 2), np.repeat(np.arange(n_queries), n_listed)))
    x, y, looked_at = x[order], y[order], (np.arange(n_listed) + 1.0) ** -0.7
    clicked = rng.random(len(x)) < np.tile(looked_at, n_queries) * (0.05 + 0.2 * y)
    cut = n_queries * 3 // 4 * n_listed
    record: dict[str, Any] = {"looked_at": looked_at.tolist()}
    for unbiased in (False, True):
        params = {
            "objective": "rank:pairwise", "lambdarank_unbiased": unbiased, "lambdarank_num_pair_per_sample": n_listed,
            "max_depth": 4, "learning_rate": 0.1, "nthread": options.threads,
        }  # fmt: skip
        data = gb.DMatrix(x[:cut], clicked[:cut], group=np.full(cut // n_listed, n_listed))
        booster = gb.train(params, data, 100, verbose_eval=False)
        value = float(ndcg(booster.predict(gb.DMatrix(x[cut:])), y[cut:], np.full((len(x) - cut) // n_listed, n_listed)).mean())
        record["ndcg_unbiased" if unbiased else "ndcg_biased"] = value
    found = booster.model.objective_params["ti+"]
    ranks = [np.argsort(np.argsort(values)) for values in (found, looked_at)]
    record |= {"found": found, "rank_correlation": float(np.corrcoef(*ranks)[0, 1])}
    print(
        f"bias: rank correlation {record['rank_correlation']:.3f}; NDCG@10 of true relevance {record['ndcg_biased']:.4f} -> "
        f"{record['ndcg_unbiased']:.4f}"
    )
    return record


PARTS = {"speed": speed, "long": long, "real": real, "synthetic": synthetic, "bias": bias}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", default=list(PARTS), choices=list(PARTS))
    parser.add_argument("--queries", type=int, default=10_000, help="of speed")
    parser.add_argument("--threads", type=int, default=available_cores())
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--folder", type=Path, help="of a real table")
    options = parser.parse_args()
    write_record("ranking", {part: PARTS[part](options) for part in options.parts})


if __name__ == "__main__":
    main()
