"""Whether a GPU's models, scores and predictions are the CPU's, byte for byte: small trainings, every objective, most options.

The CPU's side is computed in other processes meanwhile, since compiling its kernels takes longer than all trainings here.

    python benchmarks/gpu_digests.py --rows 3000      # the GPU's alone, for compute-sanitizer: see sanitize.sh
"""

import argparse
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import cache, partial
from hashlib import sha256
from multiprocessing import get_context
from typing import Any
from unittest.mock import patch

import numpy as np
from gpu_kernels import around_launches

import gpuboost as gb
from gpuboost.backend.cuda.device import find_device
from gpuboost.backend.cuda.staging import StagedPages
from gpuboost.kernels.cuda_common import all_kernels
from gpuboost.kernels.output_sketch import METHODS
from gpuboost.model_io import digest
from gpuboost.objectives import objective_names

PROCESSES = 4
N_ROWS, N_OTHER = 30_000, 1_000  # of training and of evaluation
OF_CATEGORIES = {"feature_types": [*"qqqcqqccqq"]}
LEAFWISE = {"grow_policy": "lossguide", "max_depth": 0}


@dataclass(frozen=True)
class Case:
    """table : a name of make_table. options : of the DMatrix. n_targets : columns of the label."""

    objective: str = "binary:logistic"
    params: dict[str, Any] = field(default_factory=dict)
    table: str = "numbers"
    options: dict[str, Any] = field(default_factory=dict)
    rounds: int = 4
    n_targets: int = 1
    n_pages: int = 1
    has_gaps: bool = False  # in the label
    from_files: bool = False  # pages are read and brought to the GPU whenever they are needed


VECTOR = {"multi_strategy": "multi_output_tree"}
DROPPED = {"booster": "dart", "rate_drop": 0.5, "skip_drop": 0.25}
ALPHAS = {"reg:quantileerror": {"quantile_alpha": [0.2, 0.7]}, "reg:expectileerror": {"expectile_alpha": [0.2, 0.7]}}
MASKED = {"missing_labels": "mask"}
QUERY = 25  # rows of a query

CASES = {
    **{name: Case(name, ALPHAS.get(name, {})) for name in objective_names()},
    "rank:ndcg, sampled": Case("rank:ndcg", {"lambdarank_pair_method": "mean", "lambdarank_num_pair_per_sample": 3}),
    "rank:ndcg, unbiased": Case("rank:ndcg", {"lambdarank_unbiased": True}),
    "vector leaves": Case("multi:softprob", VECTOR),
    "vector leaves, two targets": Case("reg:squarederror", VECTOR, n_targets=2),
    "vector leaves, quantiles": Case("reg:quantileerror", VECTOR | ALPHAS["reg:quantileerror"]),
    **{
        f"sketch, {method}": Case("multi:softprob", VECTOR | {"output_sketch": f"{method}:2"}, rounds=4) for method in METHODS
    },
    "labels with gaps": Case("reg:squarederror", options=MASKED, n_targets=2, has_gaps=True),
    "vector leaves, labels with gaps": Case("reg:squarederror", VECTOR, options=MASKED, n_targets=2, has_gaps=True),
    "dart": Case(params=DROPPED, rounds=6),
    "dart, classes": Case("multi:softprob", DROPPED, rounds=6),
    "forests": Case(params={"num_parallel_tree": 3, "subsample": 0.5, "colsample_bynode": 0.5}),
    "forests, classes": Case("multi:softprob", {"num_parallel_tree": 2, "subsample": 0.5}),
    "categories, statistics": Case(params={"cat_encoding": "statistics"}, table="categories", options=OF_CATEGORIES),
    "targets": Case("reg:squarederror", n_targets=2),
    "unequal classes": Case(params={"scale_pos_weight": 9.0}),
    "depth 1": Case(params={"max_depth": 1}),
    "depth 12": Case(params={"max_depth": 12}),
    "no limit of depth": Case(params={"max_depth": 0, "min_child_weight": 30.0}, rounds=2),
    "31 leaves": Case(params=LEAFWISE | {"max_leaves": 31}),
    "31 leaves, classes": Case("multi:softprob", LEAFWISE | {"max_leaves": 31}),
    "levels to 20 leaves": Case(params={"max_leaves": 20}),
    "pruned": Case(params={"gamma": 5.0}),
    "penalties": Case(params={"reg_alpha": 0.5, "reg_lambda": 3.0, "max_delta_step": 0.3, "min_child_weight": 9.0}),
    "loud weights": Case("reg:squarederror", table="loud"),
    "loud weights, classes": Case("multi:softprob", {"max_leaves": 9, **LEAFWISE}, table="loud"),
    "max_bin 2": Case(params={"max_bin": 2}),
    "max_bin 63": Case(params={"max_bin": 63}),
    "max_bin 1024": Case(params={"max_bin": 1024}),
    "max_bin 20000": Case(params={"max_bin": 20000}, rounds=2),
    "approx": Case(params={"tree_method": "approx", "max_bin": 32}),
    "approx by node": Case(params={"tree_method": "approx", "max_bin": 16, "sketch_proposals": "local"}),
    "half of the rows": Case(params={"subsample": 0.5}),
    "rows by gradient": Case(params={"subsample": 0.3, "sampling_method": "gradient_based"}),
    "half of the columns": Case(params={"colsample_bytree": 0.5, "colsample_bylevel": 0.7, "colsample_bynode": 0.8}),
    "half of both, classes": Case("multi:softprob", {"subsample": 0.5, "colsample_bytree": 0.5}),
    "monotone": Case("reg:squarederror", {"monotone_constraints": (1, -1, 1, 0, -1)}),
    "interactions": Case(params={"interaction_constraints": [[0, 1, 2], [2, 3, 4, 5], [6, 7]]}),
    "pages": Case(n_pages=4),
    "pages from files": Case(n_pages=9, from_files=True),
    "pages from files, half of both": Case(params={"subsample": 0.5, "colsample_bytree": 0.5}, n_pages=9, from_files=True),
    "wide": Case(table="wide", rounds=2),
    "one-hot, packed": Case(table="one-hot"),
    "one-hot, packed, half of the columns": Case(table="one-hot", params={"colsample_bytree": 0.5}),
    "one-hot, sparse, packed": Case(table="one-hot cells", options={"sparse_absent": "zero"}),
    "categories": Case(table="categories", options=OF_CATEGORIES),
    "categories, bounded, half of both": Case(
        "multi:softprob", {"max_delta_step": 0.3, "subsample": 0.5, "colsample_bytree": 0.7, "max_cat_to_onehot": 2},
        "categories", OF_CATEGORIES,
    ),
    "sparse": Case(table="sparse"),
    "sparse, zeros": Case(table="sparse", options={"sparse_absent": "zero"}),
    "sparse, half of both": Case(table="sparse", params={"subsample": 0.5, "colsample_bytree": 0.5}),
}


@cache
def make_table(kind: str, n_rows: int) -> tuple[Any, np.ndarray, np.ndarray]:
    """(X, signal, weight). numbers : normal columns, with missing values, mostly zero, of few values, constant, heavy-tailed."""
    rng = np.random.default_rng(3)
    weight = 10.0 ** (6 * rng.random(n_rows) ** 4) if kind == "loud" else rng.integers(0, 5, n_rows) / 2.0
    X: Any
    if kind.startswith("one-hot"):
        X = np.concatenate([np.eye(n)[rng.integers(0, n, n_rows)] for n in (3, 20, 40)], axis=1)
    elif kind == "sparse":
        from scipy.sparse import random_array

        X = random_array((n_rows, 40), density=0.05, format="csr", rng=rng, data_sampler=rng.normal)
    else:
        X = rng.normal(size=(n_rows, 300 if kind == "wide" else 10))
        X[rng.random(n_rows) < 0.2, 1] = np.nan
        X[rng.random(n_rows) < 0.8, 2] = 0.0
        X[:, 3] = rng.integers(-3, 4, n_rows)
        X[:, 4] = 7.0
        X[:, 5] = np.exp(3 * X[:, 5])
    if kind == "categories":
        X[:, [3, 6, 7]] = rng.integers(0, [3, 40, 3000], (n_rows, 3))
        X[:, 0] += np.sin(X[:, 6]) + np.sin(X[:, 7])
    first = X[:, :4].toarray() if kind == "sparse" else np.nan_to_num(X[:, :4])
    if kind == "one-hot cells":
        from scipy.sparse import csr_array

        X = csr_array(X)
    signal = first[:, 0] + first[:, 1] * first[:, 3] + 2 * first[:, 2] + rng.normal(size=n_rows) / 2
    return X.astype(np.float32), signal, weight.astype(np.float32)


def label_for(objective: str, signal: np.ndarray) -> np.ndarray:
    """Three classes, two, relevance, shares, intervals, or positive numbers."""
    if objective.startswith("multi:"):
        return np.searchsorted([-0.5, 0.5], signal)
    if objective.startswith("rank:"):
        return np.searchsorted([-1.0, 0.0, 1.0], signal) if objective == "rank:ndcg" else signal > 0
    if objective == "survival:aft":  # every other one is open
        return np.stack([np.exp(signal / 4), np.where(signal > 0, np.inf, np.exp(signal / 4))], axis=1)
    if objective == "reg:logistic":
        return 1 / (1 + np.exp(-signal))
    return signal > 0 if objective.startswith("binary:") else np.exp(signal / 4)


def outcome(name: str, device: str, n_rows: int = N_ROWS) -> dict[str, str]:
    """Digests of the model, of the scores of each round, and of predictions, on a device."""
    case = CASES[name]
    X, signal, weight = make_table(case.table, n_rows)
    label = label_for(case.objective, signal)
    if case.n_targets > 1:
        label = np.stack([label, signal], axis=1)
    if case.has_gaps:
        label[np.random.default_rng(7).random(label.shape) < 0.3] = np.nan
    params = {"objective": case.objective, "seed": 5, "device": device, "nthread": 4, **case.params}
    if case.objective.startswith("multi:"):
        params["num_class"] = 3
    query = {"qid": np.arange(n_rows) // QUERY} if case.objective.startswith("rank:") else {}

    def matrix(n: int) -> Any:
        n_weights = -(-n // QUERY) if query else n  # a query has one
        own = {name: values[:n] for name, values in query.items()}
        if case.objective == "survival:aft":
            own |= {"label_lower_bound": label[:n, 0], "label_upper_bound": label[:n, 1]}
        else:
            own["label"] = label[:n]
        return gb.DMatrix(X[:n], weight=weight[:n_weights], **own, **case.options)

    dtrain, other = matrix(n_rows), matrix(min(N_OTHER, n_rows))
    if case.n_pages > 1:
        kind: Any = partial(gb.ExtMemQuantileDMatrix, cache_memory=0) if case.from_files else gb.QuantileDMatrix
        dtrain = kind(X, label, weight=weight, page_rows=-(-n_rows // case.n_pages))
    scores: dict[str, Any] = {}
    with patch.object(StagedPages, "hold"):  # no page stays on the GPU
        booster = gb.train(params, dtrain, case.rounds, evals=[(other, "other")], evals_result=scores, verbose_eval=False)
    kinds = {}, {"output_margin": True}, {"pred_leaf": True}, {"pred_contribs": True}
    predictions = [booster.predict(other, **kind) for kind in kinds]
    return {"model": digest(booster.model), "scores": _sha(repr(scores).encode()),
            "predictions": _sha(b"".join(np.ascontiguousarray(p).tobytes() for p in predictions))}  # fmt: skip


def _sha(data: bytes) -> str:
    return sha256(data).hexdigest()


class OnCpu:
    """The CPU's outcomes of these cases, under way in other processes from now on."""

    def __init__(self, names: list[str], n_rows: int = N_ROWS) -> None:
        self.pool = ProcessPoolExecutor(PROCESSES, mp_context=get_context("spawn"))
        self.futures = {name: self.pool.submit(outcome, name, "cpu", n_rows) for name in names}

    def __getitem__(self, name: str) -> dict[str, str]:
        return self.futures[name].result()

    def __del__(self) -> None:
        self.pool.shutdown(wait=False, cancel_futures=True)


def compare(name: str, on_cpu: Any, n_rows: int = N_ROWS) -> dict[str, Any]:
    """The outcome on the GPU, and what of it is not the CPU's."""
    found = outcome(name, "cuda", n_rows)
    expected = on_cpu[name]
    return {**found, "differs": [key for key in found if found[key] != expected[key]]}


# --- For compute-sanitizer ---


def launch_all(device: Any, names: list[str], n_rows: int) -> list[str]:
    """Run these cases on the GPU; the kernels that none of them has launched."""
    launched: set[str] = set()

    def note(kernel: Any, arguments: Any, launch: Any) -> None:
        launched.add(kernel.name)
        launch()

    with around_launches(device, note):
        for name in names:
            outcome(name, "cuda", n_rows)
            print(name, flush=True)
    own = {kernel.name for kernel in all_kernels() if kernel.function.__module__.startswith("gpuboost.")}
    return sorted(own - launched)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=3000)
    parser.add_argument("--cases", nargs="+", default=list(CASES), choices=list(CASES), metavar="CASE", help=", ".join(CASES))
    options = parser.parse_args()
    device = find_device(0)
    with device.current():
        device.xp.cuda.set_allocator(None)  # an array of a pool has neighbours, which an access out of its bounds would meet
        print("never launched:", ", ".join(launch_all(device, options.cases, options.rows)) or "none")


if __name__ == "__main__":
    main()
