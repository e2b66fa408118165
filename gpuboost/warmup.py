"""Small trainings that bring about the kernels of ordinary use: gpuboost warmup compiles them, tools/kernel_wheel.py ships them.

    usual_uses()     tables of numbers and of categories, the three commonest objectives, evaluation and prediction
    other_uses()     every built-in objective with every metric that takes its labels; every tree method, booster, form of table
                     and way of sampling; vector leaves, rankings, explanations

Which kernels a use needs only running it shows: a use is a function without arguments, and whoever calls it compiles. The tables
are as small as takes every path, and what they train is of no interest.
"""

from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any, cast

import numpy as np

from gpuboost.backend.contract import RankedColumns
from gpuboost.data.dmatrix import DMatrix
from gpuboost.data.quantile_dmatrix import QuantileDMatrix
from gpuboost.data.ranks import cut_ranked
from gpuboost.kernels.row_leaves import FEWEST_ROWS
from gpuboost.kernels.selection import FEWEST_ROWS as FEWEST_SELECTED
from gpuboost.training.loop import train

__all__ = ["other_uses", "usual_uses"]

N_ROWS = 600
Use = Callable[[], object]

_random = np.random.default_rng(0)
X = _random.random((N_ROWS, 3), np.float32)
MANY = _random.random((FEWEST_ROWS, 3), np.float32)  # their leaves are added up row by row
LONG = _random.random((FEWEST_SELECTED, 1), np.float32)  # its cuts are selected
WIDER = _random.random((N_ROWS, 6), np.float32)  # histograms stay packed (kernels/whole_trees.py)
FROZEN = np.asfortranarray(X, np.float64)  # as pandas hands out its tables
FROZEN.flags.writeable = False
ONE_HOT = np.eye(16)[_random.integers(0, 16, (N_ROWS, 4))].reshape(N_ROWS, 64)  # packed records
CODES = np.floor(20 * X)
QUERIES = np.arange(N_ROWS) // 20
WEIGHT = np.ones(N_ROWS)

# Labels of objectives by the numbers they take; metrics of several kinds of label come with the objective.
CLASSES, COUNTS, SHARES = (10 * X[:, 0]).astype(int), np.floor(10 * X[:, 0]), X[:, 0]
METRICS = {
    "binary": ["logloss", "error", "error@0.3", "auc", "aucpr", "ams", "rmse"],
    "multi": ["mlogloss", "merror", "auc", "aucpr"],
    "rank": ["ndcg", "ndcg@5", "map", "map@5", "pre@5", "auc"],
    "count": ["poisson-nloglik", "rmse", "mae"],
    "reg": ["rmse", "mae", "mape", "rmsle", "mphe", "gamma-nloglik", "gamma-deviance", "tweedie-nloglik@1.5"],
}
OBJECTIVES: dict[str, dict[str, Any]] = {
    "reg:squarederror": {}, "reg:squaredlogerror": {}, "reg:logistic": {}, "reg:pseudohubererror": {},
    "reg:absoluteerror": {}, "reg:gamma": {}, "reg:tweedie": {},
    "reg:quantileerror": {"quantile_alpha": [0.1, 0.9]}, "reg:expectileerror": {"expectile_alpha": [0.1, 0.9]},
    "binary:logistic": {}, "binary:logitraw": {}, "binary:hinge": {},
    "multi:softprob": {"num_class": 10}, "multi:softmax": {"num_class": 10},
    "count:poisson": {}, "survival:cox": {}, "survival:aft": {},
    "rank:ndcg": {}, "rank:map": {}, "rank:pairwise": {},
}  # fmt: skip


def usual_uses() -> Iterator[Use]:
    for objective, n_classes in {"reg:squarederror": 0, "binary:logistic": 2, "multi:softprob": 3}.items():
        y = _random.integers(0, n_classes, N_ROWS) if n_classes else SHARES
        params = {"objective": objective, "num_class": n_classes if n_classes > 2 else 0}
        for table in (X, X.astype(np.float64), np.asfortranarray(X), FROZEN):
            yield partial(_learn, params, table, y, weight=WEIGHT)
    for table in (X, X.astype(np.float64), np.asfortranarray(X), FROZEN, WIDER, ONE_HOT):
        yield partial(_learn, {}, table, SHARES)
    yield partial(_learn, {}, X, SHARES, weight=10.0 ** _random.uniform(-6, 6, N_ROWS))  # two limbs (kernels/quantise.py)
    yield partial(_learn, {"max_depth": 8}, MANY, MANY[:, 0])  # deep enough for heaps (kernels/heap_levels.py)
    by_leaves = {"grow_policy": "lossguide", "max_leaves": 31, "max_depth": 0}
    yield partial(_learn, by_leaves, MANY, MANY[:, 0] ** 20)  # few leaves in many levels (kernels/leaf_masks.py)
    yield partial(QuantileDMatrix, LONG)
    for objective, labels in {"reg:squarederror": SHARES, "binary:logistic": CLASSES > 4}.items():
        yield partial(_learn, {"objective": objective}, CODES, labels, feature_types=["c"] * 3)


def other_uses() -> Iterator[Use]:
    for objective, params in OBJECTIVES.items():
        yield from (partial(use, objective, params) for use in (_by_objective, _without_metrics))
    for objective in ("reg:squarederror", "binary:logistic"):
        for params in _growths():
            yield partial(_learn, {"objective": objective, **params}, X, CLASSES > 4)
        for table in (ONE_HOT.astype(np.uint8), np.where(X < 0.1, np.nan, X)):
            yield from _tree_methods(objective, table)
    for params in ({}, {"max_cat_to_onehot": 1}, {"cat_smooth": 1.0, "cat_l2": 1.0, "monotone_constraints": "(0,0,1)"}):
        for tree_method in ("hist", "approx"):
            yield partial(_learn, {**params, "tree_method": tree_method}, CODES, SHARES, feature_types=["c", "c", "q"])
    for params in ({}, {"monotone_constraints": "(0,0,1)"}):
        yield partial(_learn, {"multi_strategy": "multi_output_tree", **params}, CODES, X[:, :2], feature_types=["c", "c", "q"])
    for encoding in ("sets", "ordinal"):
        yield partial(_from_cuts, {"cat_encoding": encoding}, CODES, feature_types=["c"] * 3)
    for sketch in ({}, {"output_sketch": "top_outputs:1"}, {"output_sketch": "random_sampling:1"},
                   {"output_sketch": "random_projection:1"}, {"subsample": 0.5}, {"tree_method": "approx"}):  # fmt: skip
        for targets in (X[:, :2], CLASSES):
            is_multi = {"objective": "multi:softprob", "num_class": 10} if targets.ndim == 1 else {}
            yield partial(_learn, {"multi_strategy": "multi_output_tree", **is_multi, **sketch}, X, targets)
    yield partial(_learn, {}, X, np.where(X[:, :2] < 0.1, np.nan, X[:, :2]), missing_labels="mask")
    for params in _pairs():
        for objective in ("rank:ndcg", "rank:map", "rank:pairwise"):
            yield partial(_by_objective, objective, params)
    yield partial(_explanations, X)
    yield _cuts_for_a_gpu
    if find_spec("scipy"):
        yield from _sparse_uses()


def _sparse_uses() -> Iterator[Use]:
    import scipy.sparse

    def table(n_columns: int, density: float) -> Any:
        return scipy.sparse.random_array((N_ROWS, n_columns), density=density, format="csr", random_state=_random)

    lists, written_out = table(40, 0.02), table(40, 0.2)  # data/density.py says which
    wide = table(2**15, 0.002)  # cells of four bytes
    packed = scipy.sparse.csr_array(ONE_HOT)
    for objective in ("reg:squarederror", "binary:logistic"):
        for stored in (lists, lists.tocsc(), wide):
            yield from _tree_methods(objective, stored)
        for stored in (lists, written_out, wide, packed):
            yield partial(_learn, {"objective": objective}, stored, CLASSES > 4, sparse_absent="zero")
    for stored in (lists, wide, packed):
        yield partial(_learn, {"grow_policy": "lossguide", "max_leaves": 7}, stored, SHARES)
    yield partial(_from_cuts, {}, lists)
    yield partial(_explanations, lists)


def _tree_methods(objective: str, table: Any) -> Iterator[Use]:
    for tree_method in ("hist", "approx", "exact"):
        yield partial(_learn, {"objective": objective, "tree_method": tree_method}, table, CLASSES > 4, weight=WEIGHT)


def _growths() -> Iterator[dict[str, Any]]:
    """Every way to grow, for one output and one number a bin."""
    for tree_method in ({}, {"tree_method": "approx"}, {"tree_method": "approx", "sketch_proposals": "local"},
                        {"tree_method": "exact"}, {"max_bin": 512}):  # fmt: skip
        for policy in ({}, {"grow_policy": "lossguide", "max_leaves": 7}):
            yield {**tree_method, **policy}
        for sampling in ({"subsample": 0.5}, {"subsample": 0.5, "sampling_method": "gradient_based"},
                         {"colsample_bytree": 0.7, "colsample_bylevel": 0.7, "colsample_bynode": 0.7}):  # fmt: skip
            yield {**tree_method, **sampling}
        yield {**tree_method, "monotone_constraints": "(1,0,-1)", "interaction_constraints": "[[0,1],[1,2]]"}
    yield {"monotone_constraints": "(1,0,-1)", "max_delta_step": 1, "reg_alpha": 0.1, "gamma": 0.1}
    yield {"num_parallel_tree": 3, "subsample": 0.7, "colsample_bynode": 0.7}
    yield {"booster": "dart", "rate_drop": 0.9, "one_drop": 1}
    yield {"booster": "dart", "rate_drop": 0.9, "sample_type": "weighted", "normalize_type": "forest"}
    for updater in ("shotgun", "coord_descent"):
        yield {"booster": "gblinear", "updater": updater}
    for selector in ("shuffle", "random", "greedy", "thrifty"):
        yield {"booster": "gblinear", "updater": "coord_descent", "feature_selector": selector, "reg_alpha": 0.1}


def _pairs() -> Iterator[dict[str, Any]]:
    for method in ("topk", "mean"):
        for is_unbiased in (False, True):
            yield {"lambdarank_pair_method": method, "lambdarank_num_pair_per_sample": 2, "lambdarank_unbiased": is_unbiased}


def _cuts_for_a_gpu() -> None:
    """What the host does to cut columns that a GPU has sorted: here 9 values, which weigh 1 each."""

    def at(columns: np.ndarray, ranks: np.ndarray) -> list[np.ndarray]:
        return [(ranks + 2**31).astype(np.uint32), np.maximum(ranks - 1, 0), ranks]

    nine = np.full(1, 9)
    cut_ranked(cast(RankedColumns, SimpleNamespace(totals=nine, n_distinct=nine, at=at)), np.full(1, 4), 1)


def _by_objective(objective: str, params: dict[str, Any]) -> None:
    """With every metric of its kind of label, and weights."""
    family = objective.partition(":")[0]
    info = _labels_of(objective)
    info["weight"] = np.ones(QUERIES[-1] + 1) if family == "rank" else WEIGHT
    metrics = METRICS.get(family, []) if not params.get("quantile_alpha") and not params.get("expectile_alpha") else []
    _learn({"objective": objective, **params, **({"eval_metric": metrics} if metrics else {})}, X, None, **info)


def _without_metrics(objective: str, params: dict[str, Any]) -> None:
    """As most begin: its own metric, without weights."""
    _learn({"objective": objective, **params}, X, None, **_labels_of(objective))


def _labels_of(objective: str) -> dict[str, Any]:
    family = objective.partition(":")[0]
    if objective == "survival:aft":
        return {"label_lower_bound": SHARES + 1, "label_upper_bound": np.where(SHARES < 0.5, SHARES + 1, np.inf)}
    label = {"binary": CLASSES > 4, "multi": CLASSES, "rank": CLASSES % 2, "count": COUNTS}.get(family, SHARES.clip(0.001))
    return {"label": label, "qid": QUERIES if family == "rank" else None}


def _learn(params: dict[str, Any], table: Any, y: Any, **info: Any) -> None:
    """Train two rounds, watch another table, go on from the model, predict."""
    dtrain, dvalid = (DMatrix(table, **{"label": y, **info}) for _ in range(2))
    booster = train(params, dtrain, 2, evals=[(dvalid, "valid")], verbose_eval=False)
    booster.predict(dvalid)
    if params.get("booster") != "gblinear":
        booster.predict(dvalid, pred_leaf=True)
        train(params, dtrain, 1, xgb_model=booster, verbose_eval=False)


def _from_cuts(params: dict[str, Any], table: Any, **info: Any) -> None:
    """With a second table that is binned by the cuts of the first, as the command line does."""
    encoding = {"cat_encoding": params["cat_encoding"]} if "cat_encoding" in params else {}
    dtrain = QuantileDMatrix(table, SHARES, **encoding, **info)
    dvalid = QuantileDMatrix(table, SHARES, ref=dtrain, **encoding, **info)
    train(params, dtrain, 2, evals=[(dvalid, "valid")], verbose_eval=False).predict(dvalid)


def _explanations(table: Any) -> None:
    dtrain = DMatrix(table, SHARES)
    booster = train({}, dtrain, 2, verbose_eval=False)
    for approximate in (False, True):
        booster.predict(dtrain, pred_contribs=True, approx_contribs=approximate)
    booster.predict(dtrain, pred_interactions=True)
    booster.contributions(dtrain, background=DMatrix(table[:20]))
