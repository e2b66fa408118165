"""Forests: several trees of an output in a round, all from the same gradients, each on rows and columns of its own."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from naive_backend import NaiveBackend

import gpuboost as gb
from gpuboost.backend.cpu import CpuBackend
from gpuboost.communicator import run_threads
from gpuboost.model_io import digest

ROOT = str(Path(__file__).parents[1])

DRAWS = {"subsample": 0.6, "colsample_bytree": 0.75, "colsample_bynode": 0.8, "seed": 4, "max_depth": 3}
QUIET = {"verbose_eval": False}


def make_table(n_rows=200, n_classes=0):
    rng = np.random.default_rng(3)
    X = rng.integers(-9, 10, (n_rows, 4)).astype(np.float32)
    X[rng.random(X.shape) < 0.1] = np.nan
    y = np.nan_to_num(X) @ [3, -2, 1, 0] + rng.normal(size=n_rows)
    return X, np.digitize(y, [-10, 10]) if n_classes else y


def train(params, data, rounds=2, **options):
    return gb.train(params, data, rounds, **QUIET, **options)


def test_trees_of_a_round_share_gradients_and_learning_rate_and_differ_in_what_they_draw():
    """Each tree is that of a round of its own, numbered on and on, from the same margins."""
    X, y = make_table()
    forest = train({**DRAWS, "num_parallel_tree": 3, "learning_rate": 0.75}, gb.DMatrix(X, y), 1).model
    assert (forest.num_parallel_tree, forest.n_rounds, forest.tree_groups) == (3, 1, [0, 0, 0])
    alone = train({**DRAWS, "learning_rate": 0.25}, gb.DMatrix(X, y), 1).model
    assert forest.trees[0] == alone.trees[0]
    assert len({tree.leaf_value.tobytes() for tree in forest.trees}) == 3
    whole = train({"max_depth": 3, "num_parallel_tree": 2}, gb.DMatrix(X, y), 1).model  # rounding to fixed point differs
    assert len({tree.feature.tobytes() for tree in whole.trees}) == 1


def test_without_draws_a_forest_predicts_what_a_tree_does():
    X, y = make_table()
    data = gb.DMatrix(X, y)
    one, four = (train({"max_depth": 2, "num_parallel_tree": n}, data, 5).predict(data) for n in (1, 4))
    np.testing.assert_allclose(four, one, rtol=1e-3, atol=1e-3 * np.ptp(y))  # gradients of 16 bits, rounded anew for each tree


@pytest.mark.parametrize("method", ["hist", "approx", "exact"])
@pytest.mark.parametrize("n_classes", [0, 3])
def test_trees_of_an_output_lie_side_by_side(method, n_classes):
    X, y = make_table(n_classes=n_classes)
    multiclass = {"objective": "multi:softprob", "num_class": 3} if n_classes else {}
    booster = train({**DRAWS, **multiclass, "tree_method": method, "num_parallel_tree": 2}, gb.DMatrix(X, y))
    assert booster.model.tree_groups == [output for _ in range(2) for output in range(n_classes or 1) for _ in range(2)]
    assert booster.model.iteration_indptr == [0, 2 * (n_classes or 1), 4 * (n_classes or 1)]
    shape = booster.predict(gb.DMatrix(X), pred_leaf=True, strict_shape=True).shape
    assert shape == (len(X), 2, n_classes or 1, 2)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"objective": "multi:softprob", "num_class": 3},
        {"objective": "reg:absoluteerror"},  # whose leaves are quantiles of what all trees of a round leave over
        {"sampling_method": "gradient_based"},
    ],
    ids=lambda changes: next(iter(changes.values()), "plain"),
)
def test_one_model_on_pages_workers_plain_loops_and_continued(changes, use_backend):
    X, y = make_table(90, changes.get("num_class", 0))
    params = {**DRAWS, "max_bin": 16, "num_parallel_tree": 2, **changes}
    expected = digest(train(params, gb.DMatrix(X, y), 2).model)
    assert digest(train({**params, "nthread": 1}, gb.QuantileDMatrix(X, y, max_bin=16, page_rows=40), 2).model) == expected
    first = train(params, gb.DMatrix(X, y), 1)
    for model in (first, bytes(first.save_raw())):
        continued = {name: value for name, value in params.items() if name != "num_parallel_tree"}  # the model knows it
        assert digest(train(continued, gb.DMatrix(X, y), 1, xgb_model=model).model) == expected
    parts = [slice(0, 20), slice(20, 90)]
    work = lambda rank: digest(train(params, gb.DMatrix(X[parts[rank]], y[parts[rank]]), 2).model)  # noqa: E731
    assert run_threads(2, work) == [expected] * 2
    use_backend(NaiveBackend())
    assert digest(train(params, gb.DMatrix(X, y), 2).model) == expected


@pytest.mark.parametrize("changes", [{}, {"objective": "reg:absoluteerror", "sampling_method": "gradient_based"}], ids=len)
def test_trees_that_grow_side_by_side_are_added_in_their_order(changes, use_backend, monkeypatch):
    """7 trees on 3 threads, a training each: their margins, of which the second round's gradients come, and scores to the bit."""
    X, y = make_table()
    data, other, models, scores, n_abreast = gb.DMatrix(X, y), gb.DMatrix(X[::2], y[::2]), [], [], []
    start = CpuBackend.start_trainings

    def counted(*args):
        trainings = start(*args)
        n_abreast.append(len(trainings))
        return trainings

    monkeypatch.setattr(CpuBackend, "start_trainings", counted)
    for n_threads in (1, 3):
        params = {**DRAWS, "num_parallel_tree": 7, "learning_rate": 0.7, **changes}
        use_backend(CpuBackend(n_threads))
        scores.append({})
        models.append(digest(train(params, data, evals=[(data, "train"), (other, "other")], evals_result=scores[-1]).model))
    assert n_abreast == [1, 3] and models[0] == models[1] and scores[0] == scores[1]


def test_evaluations_are_those_of_the_predictions():
    X, y = make_table()
    scores, other = {}, gb.DMatrix(X[::2], y[::2])
    data = gb.DMatrix(X, y)
    evals = [(data, "train"), (other, "other")]
    booster = train({**DRAWS, "num_parallel_tree": 3}, data, 3, evals=evals, evals_result=scores)
    for matrix, name in evals:
        rmse = np.sqrt(np.mean((booster.predict(matrix) - matrix.get_label()) ** 2))
        assert scores[name]["rmse"][-1] == pytest.approx(rmse, rel=1e-6)  # float32 predictions


def test_another_number_of_trees_than_the_models_is_refused():
    X, y = make_table()
    data = gb.DMatrix(X, y)
    forest = train({"num_parallel_tree": 2}, data, 1)
    with pytest.raises(ValueError, match="num_parallel_tree=3, but the model was trained with 2. Leave num_parallel_tree out"):
        train({"num_parallel_tree": 3}, data, 1, xgb_model=forest)
    with pytest.raises(ValueError, match="num_parallel_tree=2, but the model was trained with 1"):
        train({"num_parallel_tree": 2}, data, 1, xgb_model=train({}, data, 1))


def test_xgboost_grows_the_same_trees_and_reads_the_file():
    """Where nothing is drawn; leaves are the learning rate's part, and a loaded forest goes on as one."""
    xgboost = pytest.importorskip("xgboost")
    rng = np.random.default_rng(2)
    X = rng.integers(0, 9, (60, 3)).astype(np.float32)  # few values: every library finds the same splits
    y = X @ [3, 2, 1] + rng.random(60)
    params = {"max_depth": 2, "base_score": 0.0, "num_parallel_tree": 3, "learning_rate": 0.5}
    theirs = xgboost.train(params, xgboost.DMatrix(X, y), 2)
    ours = gb.train(params, gb.DMatrix(X, y), 2)
    expected = theirs.predict(xgboost.DMatrix(X))
    np.testing.assert_allclose(ours.predict(gb.DMatrix(X)), expected, rtol=1e-3)  # 16-bit gradients
    loaded = xgboost.Booster(model_file=ours.save_raw())
    np.testing.assert_array_equal(loaded.predict(xgboost.DMatrix(X)), ours.predict(gb.DMatrix(X)))
    first = xgboost.train(params, xgboost.DMatrix(X, y), 1).save_raw()
    continued = gb.train({**params, "num_parallel_tree": None}, gb.DMatrix(X, y), 1, xgb_model=bytes(first))
    assert (continued.model.num_parallel_tree, len(continued.model.trees)) == (3, 6)
    np.testing.assert_allclose(continued.predict(gb.DMatrix(X)), expected, rtol=1e-3)


# ---- the estimators


@pytest.mark.parametrize("make", [gb.GPUBoostRFClassifier, gb.GPUBoostRFRegressor])
def test_a_forest_is_one_round_of_n_estimators_with_defaults_of_its_own(make):
    X, y = make_table()
    label = y > 0 if make is gb.GPUBoostRFClassifier else y
    forest = make(n_estimators=7, max_depth=3).fit(X, label)
    params = {"num_parallel_tree": 7, "max_depth": 3, "learning_rate": 1, "subsample": 0.8, "colsample_bynode": 0.8}
    params |= {"reg_lambda": 1e-5, "objective": "binary:logistic" if label is not y else "reg:squarederror"}
    assert forest.get_booster().model.trees == train(params, gb.DMatrix(X, label), 1).model.trees
    assert forest.score(X, label) > 0.8
    assert make(n_estimators=7, eta=0.5, reg_lambda=None).get_xgb_params()["eta"] == 0.5


@pytest.mark.parametrize(
    "given", [{"early_stopping_rounds": 2}, {"callbacks": [gb.callback.TrainingCallback()]}, {"num_parallel_tree": 4}], ids=list
)
def test_what_speaks_of_several_rounds_is_refused(given):
    X, y = make_table()
    with pytest.raises(ValueError, match=f"{next(iter(given))} has no meaning for a forest"):
        gb.GPUBoostRFRegressor(**given).fit(X, y)


def test_a_forest_has_a_tree():
    X, y = make_table()
    with pytest.raises(ValueError, match="n_estimators of a forest must be at least 1, got 0"):
        gb.GPUBoostRFRegressor(n_estimators=0).fit(X, y)


def test_a_forest_averages():
    """Its predictions stay within the labels, and more trees vary less."""
    X, y = make_table(120)
    many = [gb.GPUBoostRFRegressor(n_estimators=n, random_state=seed).fit(X, y).predict(X) for n in (1, 30) for seed in range(6)]
    assert min(map(np.min, many)) >= y.min() and max(map(np.max, many)) <= y.max()
    few, several = np.std(many[:6], axis=0).mean(), np.std(many[6:], axis=0).mean()
    assert several < few / 3  # 1/√30 of it, were the trees independent


def test_a_forest_also_grows_while_the_interpreter_ends():
    """It starts no threads then."""
    code = """
import atexit, numpy as np, gpuboost as gb
import gpuboost.backend.cpu.training as training
training.CODES_PER_THREAD = 1
X = np.random.default_rng(0).normal(size=(300, 4)).astype(np.float32)
params, dtrain = {"num_parallel_tree": 4, "subsample": 0.6, "nthread": 2}, gb.DMatrix(X, X[:, 0])
first = gb.train(params, dtrain, 2).get_dump()
atexit.register(lambda: print(gb.train(params, dtrain, 2).get_dump() == first))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": ROOT})
    assert done.stdout.split() == ["True"], done.stderr
