"""Sample weights over many decades: light rows are learnt from as heavy ones are, and no leaf is lighter than it may be."""

import numpy as np
import pytest
from peer_versions import xgboost_before

import gpuboost as gb

VECTOR = {"tree_method": "hist", "multi_strategy": "multi_output_tree"}


def table(n_rows, ratio, seed=0):
    """(X, label, weight): six rows of ten weigh `ratio` and have next to nothing to learn from, the others weigh 1."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, 4)).astype(np.float32)
    is_heavy = rng.random(n_rows) < 0.6
    X[:, 3] = is_heavy
    label = np.where(is_heavy, 0, 3 * np.round(X[:, 1]) + 0.4 * rng.choice([-1, 1], n_rows))
    return X, label.astype(np.float32), np.where(is_heavy, ratio, 1.0).astype(np.float32)


def light_rmse(predict, X, label, weight):
    light = weight == 1
    return float(np.sqrt(np.mean((predict(X[light]) - label[light]) ** 2)))


@pytest.mark.parametrize("ratio", [1e6, 1e5, 1e4, 1e3])
@pytest.mark.parametrize("params, n_rounds", [({"min_child_weight": 500, "lambda": 0, "eta": 1}, 5), ({}, 40)])
def test_light_rows_are_learnt_from_as_with_xgboost(params, n_rounds, ratio):
    xgb = pytest.importorskip("xgboost")
    X, label, weight = table(20_000, ratio)
    ours = gb.train(params, gb.DMatrix(X, label, weight=weight), n_rounds)
    theirs = xgb.train(params, xgb.DMatrix(X, label, weight=weight), n_rounds)
    rmse = [
        light_rmse(lambda rows, booster=booster, DMatrix=module.DMatrix: booster.predict(DMatrix(rows)), X, label, weight)
        for booster, module in ((ours, gb), (theirs, xgb))
    ]
    assert rmse[0] <= 1.05 * rmse[1]  # in 16 bits up to 6 times as much


def two_limbs(sums, n_rows, reg_lambda, min_child_weight, scales, n_limbs):
    """choose_limbs_cpu, for every output."""
    n_limbs[:] = 2
    scales *= 65536
    return True


@pytest.mark.parametrize("ratio", [1e6, 1e5, 1e4])
def test_light_rows_are_learnt_from_as_in_two_limbs(ratio, monkeypatch):
    X, label, weight = table(3000, ratio)
    dtrain = gb.DMatrix(X, label, weight=weight)
    chosen = gb.train({}, dtrain, 10)
    monkeypatch.setattr("gpuboost.backend.cpu.gradients.choose_limbs_cpu", two_limbs)
    refined = gb.train({}, dtrain, 10)
    own, best = (light_rmse(lambda rows, b=b: b.predict(gb.DMatrix(rows)), X, label, weight) for b in (chosen, refined))
    assert own <= 1.01 * best  # in 16 bits 1.1 times as much at 1e5, 1.6 times at 1e6


def lightest_cover(booster):
    """The smallest sum of hessians of any node below a root."""
    frame = booster.trees_to_dataframe()
    covers = [cover for node, cover in zip(frame["Node"], frame["Cover"]) if node > 0]
    return min(covers, default=np.inf)


def train_at_random(seed):
    """(booster, min_child_weight) of a small random weighted training."""
    rng = np.random.default_rng(seed)
    n_rows = int(rng.integers(101, 400))
    X = rng.integers(0, int(rng.integers(3, 60)), (n_rows, 3)).astype(np.float32)
    X[rng.random(X.shape) < 0.1] = np.nan
    weight = 10.0 ** rng.uniform(0, rng.uniform(0, 6), n_rows) * rng.choice([1, 0.1, 1e-3])
    if rng.random() < 0.5:
        weight = rng.choice(weight[:3], n_rows)
    objective = str(rng.choice(["reg:squarederror", "binary:logistic"]))
    label = rng.normal(size=n_rows) * 3 if objective == "reg:squarederror" else rng.integers(0, 2, n_rows)
    lightest = float(rng.choice([0.1, 1.0, 0.02 * weight.sum(), 0.1 * weight.sum()]))
    params = {
        "objective": objective, "min_child_weight": lightest, "lambda": float(rng.choice([0, 1])), "max_depth": 4,
        "tree_method": str(rng.choice(["hist", "hist", "approx", "exact"])), "verbosity": 0, "nthread": 1,
        "subsample": float(rng.choice([1, 1, 0.7])),
    }  # fmt: skip
    return gb.train(params, gb.DMatrix(X, label, weight=weight.astype(np.float32)), 3), lightest


@pytest.mark.parametrize("seeds", [range(50), pytest.param(range(50, 400), marks=pytest.mark.slow)], ids=["50", "350"])
def test_no_child_is_lighter_than_min_child_weight(seeds):
    has_split = 0
    for seed in seeds:
        booster, smallest = train_at_random(seed)
        cover = lightest_cover(booster)
        assert cover >= smallest * (1 - 1e-6), f"seed {seed}"
        has_split += cover < np.inf
    assert has_split > 0.5 * len(seeds)


@pytest.mark.parametrize("method", [*({"tree_method": method} for method in ("hist", "approx", "exact")), VECTOR], ids=str)
def test_a_root_lighter_than_min_child_weight_takes_its_step(method):
    """Logistic loss at a margin of 8: 2000 hessians of 3.4e-4 do not make up a weight of 1. Only a split needs that."""
    xgb = pytest.importorskip("xgboost")
    X = np.random.default_rng(1).normal(size=(2000, 2)).astype(np.float32)
    label = np.random.default_rng(2).integers(0, 2, (2000, 2) if method is VECTOR else 2000)
    margin = np.full(label.shape, 8.0, np.float32)
    params = {"objective": "binary:logistic", "verbosity": 0, "base_score": 0.5, "nthread": 1, **method}
    ours, theirs = [
        module.train(params, module.DMatrix(X, label, base_margin=margin), 3).predict(
            module.DMatrix(X, base_margin=margin), output_margin=True
        )
        for module in (gb, xgb)
    ]
    assert (ours < -100).all()
    if not xgboost_before(3, 4):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4)
