"""Whole trainings for losses whose leaves are quantiles: reg:absoluteerror and reg:quantileerror."""

import json

import numpy as np
import pytest
import xgboost
from reference import expected_quantile
from test_objectives import BACKENDS

import gpuboost as gb
from gpuboost.model_io import digest

MEDIAN = {"objective": "reg:absoluteerror"}
THREE = {"objective": "reg:quantileerror", "quantile_alpha": [0.1, 0.5, 0.9]}


def make_table(n_rows, seed=0):
    """A signal whose noise is skewed and grows with column 1; whole weights."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, 4)).astype(np.float32)
    noise = (rng.exponential(size=n_rows) - 0.7) * (1 + np.abs(X[:, 1]))
    return X, (2 * X[:, 0] + noise).astype(np.float32), rng.integers(1, 6, n_rows).astype(np.float32)


def alphas_of(params):
    return params.get("quantile_alpha", [0.5])


def base_scores(booster):
    scores = json.loads(json.loads(booster.save_raw("json"))["learner"]["learner_model_param"]["base_score"])
    return scores if isinstance(scores, list) else [scores]


@pytest.mark.parametrize("params", [MEDIAN, THREE], ids=["median", "three"])
@pytest.mark.parametrize("is_weighted", [False, True])
def test_base_scores_and_leaves_are_quantiles(params, is_weighted):
    X, y, weight = make_table(501)
    weight = weight if is_weighted else np.ones_like(weight)
    dtrain = gb.DMatrix(X, y, weight=weight if is_weighted else None)
    booster = gb.train({**params, "max_depth": 3, "learning_rate": 1.0}, dtrain, 2)
    leaves = booster.predict(dtrain, pred_leaf=True).reshape(len(y), 2, -1)
    for k, alpha in enumerate(alphas_of(params)):
        margin = np.full(len(y), base_scores(booster)[k], np.float32)
        assert margin[0] == np.float32(expected_quantile(y, weight.astype(int).tolist(), alpha))
        for round_ in range(2):
            before = margin.copy()
            for leaf in np.unique(leaves[:, round_, k]):
                own = leaves[:, round_, k] == leaf
                value = expected_quantile((y - before)[own], weight[own].astype(int).tolist(), alpha)
                margin[own] += np.float32(value)
        np.testing.assert_array_equal(booster.predict(dtrain, output_margin=True).reshape(len(y), -1)[:, k], margin)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_leaf_without_rows_is_0(backend, use_backend):
    """Drawn by gradient, rows may be none at all."""
    use_backend(BACKENDS[backend]())
    x, weight = np.arange(20.0)[:, None], 10.0 ** (np.arange(20) % 5)
    params = {"subsample": 0.1, "sampling_method": "gradient_based", "seed": 49}
    data = gb.DMatrix(x, x[:, 0], weight=weight)
    assert gb.train(params, data, 1, verbose_eval=False).model.trees[0].cover.tolist() == [0], "no row was drawn"
    booster = gb.train({**params, "objective": "reg:absoluteerror"}, data, 1, verbose_eval=False)
    assert booster.model.trees[0].leaf_value.tolist() == [0]


def test_quantiles_never_cross_and_sorting_costs_nothing():
    X, y, _ = make_table(300)
    alphas = np.linspace(0.05, 0.95, 7)
    params = {"objective": "reg:quantileerror", "quantile_alpha": alphas.tolist(), "max_depth": 5, "learning_rate": 0.7}
    booster = gb.train(params, gb.DMatrix(X, y), 10)
    other, label, _ = make_table(500, seed=1)
    margins = booster.predict(gb.DMatrix(other), output_margin=True)
    predicted = booster.predict(gb.DMatrix(other))
    assert (np.diff(margins) < 0).any() and (np.diff(predicted) >= 0).all()
    np.testing.assert_array_equal(predicted, np.sort(margins))
    np.testing.assert_array_equal(booster.inplace_predict(other), predicted)

    def pinball(prediction):
        error = label[:, None] - prediction
        return np.maximum(alphas * error, (alphas - 1) * error).sum(axis=1)

    assert (pinball(predicted) <= pinball(margins) + 1e-5).all()


@pytest.mark.parametrize("params", [MEDIAN, {"objective": "reg:quantileerror", "quantile_alpha": 0.9}], ids=["median", "0.9"])
def test_monotone_constraints_hold(params):
    X, y, _ = make_table(400)
    booster = gb.train({**params, "monotone_constraints": "(1,-1,0,1)", "max_depth": 6}, gb.DMatrix(X, y), 15)
    grid = np.linspace(-3, 3, 60, dtype=np.float32)
    for column, sign in ((0, 1), (1, -1), (3, 1)):
        rows = np.repeat(X[:20], len(grid), axis=0)
        rows[:, column] = np.tile(grid, 20)
        steps = sign * np.diff(booster.predict(gb.DMatrix(rows)).reshape(20, len(grid)))
        assert (steps >= 0).all()
        assert (steps > 0).any() or column == 3


def test_training_goes_on_where_it_stopped(tmp_path):
    X, y, weight = make_table(200)
    params, dtrain = {**THREE, "quantile_alpha": [1 / 3, 0.7], "max_depth": 4}, gb.DMatrix(X, y, weight=weight)
    gb.train(params, dtrain, 3).save_model(tmp_path / "model.json")
    resumed = gb.train(params, dtrain, 3, xgb_model=tmp_path / "model.json")
    assert digest(resumed.model) == digest(gb.train(params, dtrain, 6).model)


def test_an_objective_of_the_users_own_refreshes_no_leaf():
    X, y, _ = make_table(200)
    obj = lambda prediction, dtrain: (prediction - dtrain.get_label(), np.ones_like(prediction))  # noqa: E731
    dtrain = gb.DMatrix(X, y)
    common = {"base_score": 0.5, "max_depth": 3}
    own, squared = (gb.train({**common, **params}, dtrain, 3, obj=obj) for params in (MEDIAN, {}))
    np.testing.assert_array_equal(own.predict(dtrain), squared.predict(dtrain))


@pytest.mark.parametrize("params", [MEDIAN, THREE], ids=["median", "three"])
def test_files_are_exchanged_with_xgboost(params, tmp_path):
    X, y, _ = make_table(300)
    ours = gb.train({**params, "max_depth": 3, "learning_rate": 0.2}, gb.DMatrix(X, y), 5)
    theirs = xgboost.train({**params, "max_depth": 3, "learning_rate": 0.2}, xgboost.DMatrix(X, y), 5)
    for name, booster in (("ours", ours), ("theirs", theirs)):
        booster.save_model(tmp_path / f"{name}.json")
        margins = [
            library.Booster(model_file=tmp_path / f"{name}.json").predict(library.DMatrix(X), output_margin=True)
            for library in (gb, xgboost)
        ]
        np.testing.assert_allclose(*margins, rtol=1e-6, atol=1e-6)
    go_on = gb.train({**params, "max_depth": 3}, gb.DMatrix(X, y), 1, xgb_model=tmp_path / "theirs.json")
    assert go_on.num_boosted_rounds() == 6


@pytest.mark.parametrize("params", [MEDIAN, {"objective": "reg:quantileerror", "quantile_alpha": 0.8}], ids=["median", "0.8"])
def test_held_out_loss_is_that_of_xgboost(params):
    """Pinball loss over several draws, pair by pair: not worse by more than 1 % or two standard errors."""
    (alpha,), differences = np.atleast_1d(params.get("quantile_alpha", 0.5)), []
    settings = {**params, "max_depth": 4, "learning_rate": 0.2}
    for seed in range(5):
        (X, y, _), (other, label, _) = make_table(2000, seed), make_table(4000, 100 + seed)
        boosters = [library.train(settings, library.DMatrix(X, y), 30) for library in (gb, xgboost)]
        errors = [label - boosters[0].predict(gb.DMatrix(other)), label - boosters[1].predict(xgboost.DMatrix(other))]
        own, theirs = (np.maximum(alpha * e, (alpha - 1) * e).mean() for e in errors)
        differences.append(own / theirs - 1)
    assert np.mean(differences) < max(0.01, 2 * np.std(differences, ddof=1) / np.sqrt(len(differences)))


@pytest.mark.parametrize(
    "params, label, message",
    [
        ({"objective": "reg:quantileerror"}, 1, "needs quantile_alpha"),
        ({"objective": "reg:quantileerror", "quantile_alpha": [0.9, 0.1]}, 1, "must ascend, got"),
        ({"objective": "reg:quantileerror", "quantile_alpha": [0.5, 0.5]}, 1, "must ascend, got"),
        ({"objective": "reg:quantileerror", "quantile_alpha": 1.5}, 1, r"quantile_alpha must be .*got 1.5"),
        (THREE, 2, "takes one label column, got 2"),
    ],
)
def test_what_is_refused(params, label, message):
    X, y, _ = make_table(30)
    with pytest.raises(ValueError, match=message):
        gb.train(params, gb.DMatrix(X, np.stack([y] * label, axis=1)), 1)
