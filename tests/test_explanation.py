"""gpuboost.explainer, estimators' explain, importances by SHAP values, `gpuboost explain`; values against a background table."""

import os
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

sys.path.insert(0, str(Path(__file__).parent / "model_io"))

from games import game, goes_left, random_explained, shapley_values  # noqa: E402
from random_models import random_table  # noqa: E402
from simulator import SimulatedDevice  # noqa: E402
from test_explaining import booster_of, deep_model, table  # noqa: E402

import gpuboost as gb  # noqa: E402
from gpuboost.backend.cpu import CpuBackend  # noqa: E402
from gpuboost.backend.cuda import CudaBackend  # noqa: E402
from gpuboost.cli import main  # noqa: E402
from gpuboost.explaining import background as background_module  # noqa: E402
from gpuboost.explaining import contributions, walks  # noqa: E402

pytestmark = pytest.mark.long


def background_mean(background):
    """As games.tree_mean: what is not known is taken from the rows of the background, one after another."""

    def mean(tree, row, known):
        sets = {} if tree.sets is None else {n: set(c.tolist()) for n, c in tree.sets.items()}
        total = 0.0
        for other in background:
            mixed, node = np.array([row[f] if f in known else other[f] for f in range(len(row))]), 0
            while tree.left_child[node] >= 0:
                left = goes_left(tree, sets, node, mixed[tree.feature[node]])
                node = tree.left_child[node] + (not left)
            total += np.atleast_1d(tree.leaf_value[node].astype(np.float64))
        return total / len(background)

    return mean


@pytest.mark.sweep(6)
@pytest.mark.parametrize("options", [
    {}, {"has_sets": True}, {"n_outputs": 3}, {"n_outputs": 2, "leaf_size": 2, "n_features": 4},
    {"n_features": 2, "n_leaves": 14}, {"is_dart": True, "n_features": 6},
], ids=str)  # fmt: skip
@pytest.mark.parametrize("seed", range(10))
def test_values_against_a_background_are_shapleys(seed, options):
    model, X = random_explained(seed, **options)
    background = random_table(seed + 50, 7, model.n_features)
    values = booster_of(model).contributions(gb.DMatrix(X), background=gb.DMatrix(background))
    for row, value in zip(X[:2], values):
        expected = shapley_values(game(model, row, background_mean(background)), model.n_features)
        expected[:, -1] += 0.25
        np.testing.assert_allclose(value, expected, rtol=0, atol=1e-6 * abs(expected).max())


def test_against_one_row_the_values_are_the_difference_of_two_margins():
    """On paths of 16 features, the most there may be."""
    model = deep_model(16, 8, 40)
    X = np.random.default_rng(0).normal(size=(50, 40)).astype(np.float32)
    booster = booster_of(model)
    margins = booster.predict(gb.DMatrix(X))
    values = booster.contributions(gb.DMatrix(X), background=gb.DMatrix(X[:1]))[:, 0]
    size = abs(values).sum(axis=1).max()
    np.testing.assert_allclose(values[:, :-1].sum(axis=1), margins - margins[0], rtol=0, atol=1e-5 * size)
    assert not values[0, :-1].any()


def test_shaps_own_values_against_a_background(monkeypatch):
    """Within 1e-5 of the largest, on the same file through XGBoost."""
    shap = pytest.importorskip("shap")
    xgboost = pytest.importorskip("xgboost")
    X, y = table()
    X = np.nan_to_num(X)
    booster = gb.train({"nthread": 1, "base_score": 0.0}, gb.DMatrix(X, y), 10, verbose_eval=False)
    other = xgboost.Booster(model_file=booster.save_raw())
    theirs = shap.TreeExplainer(other, X[:50], feature_perturbation="interventional").shap_values(X[50:80])
    ours = gb.explainer(booster, X[:50])(X[50:80]).values
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-5 * abs(theirs).max())


def test_bytes_depend_on_neither_threads_nor_parts_nor_device(monkeypatch):
    model, X = random_explained(31, n_trees=6, n_outputs=2, has_sets=True)
    X, background = np.repeat(X, 30, axis=0), gb.DMatrix(random_table(5, 90, 5))
    explain = lambda backend, rows: contributions.Contributions(model, np.zeros(2, np.float32)).explain_against(  # noqa: E731
        background, gb.DMatrix(rows), backend
    )
    expected = explain(CpuBackend(1), X)
    assert explain(CpuBackend(2), X).tobytes() == expected.tobytes()
    assert explain(CudaBackend(SimulatedDevice(block=32)), X[:40]).tobytes() == expected[:40].tobytes()
    monkeypatch.setattr(contributions, "STREAM_BYTES", 1)
    monkeypatch.setattr(background_module, "PART_BYTES", 1)
    monkeypatch.setattr(walks, "PART_BYTES", 1)
    assert explain(CpuBackend(1), X).tobytes() == expected.tobytes()


def test_what_a_background_cannot_be():
    model, X = random_explained(1)
    with pytest.raises(ValueError, match="background has no rows"):
        gb.explainer(booster_of(model), X[:0])(X)
    with pytest.raises(ValueError, match="no interactions against a background"):
        gb.explainer(booster_of(model), X)(X, interactions=True)
    with pytest.raises(NotImplementedError, match="path of 18 different features; .* at most 16"):
        gb.explainer(booster_of(deep_model(18, 1, 40)), np.zeros((1, 40)))(np.zeros((1, 40)))


def test_a_cover_is_not_asked_for_where_there_is_a_background():
    model, X = random_explained(4)
    model.trees[1] = replace(model.trees[1], cover=-model.trees[1].cover)
    assert np.isfinite(gb.explainer(booster_of(model), X)(X).values).all()


# ---- explainer and estimators


def test_an_explanation_has_the_fields_of_shap(monkeypatch):
    X, y = table()
    frame = pd.DataFrame(X, columns=list("abcdef"))
    model = gb.GPUBoostClassifier(n_estimators=4, n_jobs=1).fit(frame, (y * 2).astype(int) % 3)
    booster = model.get_booster()
    monkeypatch.setitem(sys.modules, "shap", None)  # as where it is not installed
    explanation = model.explain(frame)
    assert explanation.values.shape == (200, 6, 3) and explanation.base_values.shape == (200, 3)
    assert explanation.feature_names == list("abcdef") and explanation.data.tobytes() == X.tobytes()
    added = explanation.values.sum(axis=1) + explanation.base_values
    np.testing.assert_allclose(added, booster.predict(gb.DMatrix(frame), output_margin=True), rtol=1e-5, atol=1e-5)
    assert model.explain(frame, interactions=True).values.shape == (200, 6, 6, 3)
    again = gb.explainer(booster)(gb.DMatrix(frame))
    assert again.values.tobytes() == explanation.values.tobytes() and again.data is None
    steps = []
    gb.explainer(booster)(frame, progress=lambda done, n: steps.append((done, n)))
    assert steps[-1] == (200, 200)
    with pytest.raises(TypeError, match="model must be a Booster"):
        gb.explainer(7)


def test_shaps_plots_take_an_explanation():
    shap = pytest.importorskip("shap")
    pytest.importorskip("matplotlib").use("agg")
    X, y = table()
    booster = gb.train({"nthread": 1}, gb.DMatrix(X, y), 4, verbose_eval=False)
    explanation = gb.explainer(booster)(X)
    assert isinstance(explanation, shap.Explanation)
    shap.plots.beeswarm(explanation, show=False)


def test_an_estimator_explains_the_rounds_that_it_predicts_with():
    X, y = table()
    model = gb.GPUBoostRegressor(n_estimators=60, n_jobs=1, early_stopping_rounds=2, learning_rate=0.9)
    model.fit(X[:150], y[:150], eval_set=[(X[150:], y[150:])])
    explanation = model.explain(X)
    assert model.best_iteration + 1 < model.get_booster().num_boosted_rounds()
    margins = explanation.values.sum(axis=1) + explanation.base_values
    np.testing.assert_allclose(margins, model.predict(X), rtol=1e-5, atol=1e-5)


def test_importances_are_mean_sizes_of_shap_values():
    X, y = table()
    names = list("abcdef")
    booster = gb.train({"nthread": 1}, (data := gb.DMatrix(X, y, feature_names=names)), 4, verbose_eval=False)
    expected = abs(booster.predict(data, pred_contribs=True)[:, :-1]).mean(axis=0, dtype=np.float64)
    score = booster.get_score(importance_type="shap", data=data)
    assert list(score) == [name for name, size in zip(names, expected) if size > 0]
    np.testing.assert_allclose(list(score.values()), expected[expected > 0], rtol=1e-6)
    with pytest.raises(ValueError, match="needs rows .* data="):
        booster.get_score(importance_type="shap")
    model = gb.GPUBoostRegressor(n_estimators=4, n_jobs=1, importance_type="shap").fit(X, y)
    np.testing.assert_allclose(model.feature_importances_, expected / expected.sum(), rtol=1e-5)
    model.load_model(booster.save_raw())
    with pytest.raises(AttributeError, match="computed by fit"):
        _ = model.feature_importances_


# ---- the command line


def test_the_command_line_writes_values_and_a_picture(tmp_path):
    X, y = table()
    frame = pd.DataFrame(X, columns=list("abcdef"))
    frame.assign(label=y).to_csv(tmp_path / "t.csv", index=False)
    booster = gb.train({"nthread": 1}, gb.DMatrix(frame, y), 4, verbose_eval=False)
    booster.save_model(tmp_path / "m.json")
    command = ["explain", str(tmp_path / "t.csv"), "--model", str(tmp_path / "m.json"), "--output", str(tmp_path / "out.parquet")]
    assert main([*command, "--picture", str(tmp_path / "p.png")]) == 0
    written = pd.read_parquet(tmp_path / "out.parquet")
    assert list(written) == [*"abcdef", "bias"] and os.path.getsize(tmp_path / "p.png") > 1000
    np.testing.assert_allclose(written.to_numpy(), booster.predict(gb.DMatrix(frame), pred_contribs=True), rtol=1e-4, atol=1e-6)
    assert main([*command, "--background", str(tmp_path / "t.csv")]) == 0
    assert main([*command, "--background", str(tmp_path / "t.csv"), "--approximate"]) == 2


def test_the_command_line_names_columns_of_classes(tmp_path, capsys):
    X, y = table()
    classes = np.array(["low", "mid", "top"])[(y * 2).astype(int) % 3]
    frame = pd.DataFrame(X, columns=list("abcdef")).assign(label=classes)
    frame.to_csv(tmp_path / "t.csv", index=False)
    data, model = str(tmp_path / "t.csv"), str(tmp_path / "m.json")
    assert main(["train", data, "--label", "label", "--rounds", "2", "--model", model, "-p", "nthread=1"]) == 0
    capsys.readouterr()
    assert main(["explain", data, "--model", model]) == 0
    header = capsys.readouterr().out.splitlines()[0].split(",")
    assert header[:3] == ["a_low", "a_mid", "a_top"] and header[-1] == "bias_top" and len(header) == 21


@pytest.mark.parametrize("params", [{}, {"objective": "multi:softprob", "num_class": 3}], ids=["one", "classes"])
def test_interpret_splits_the_contributions_of_predict(params):
    X, y = table(60)[0], np.arange(60) % 3
    booster = gb.train(params, gb.DMatrix(X, y), 3)
    expected = booster.predict(gb.DMatrix(X), pred_contribs=True, iteration_range=(1, 3))
    for rows in (X, gb.DMatrix(X)):
        values, bias = gb.interpret.shap_values(booster, rows, iteration_range=(1, 3))
        np.testing.assert_array_equal(np.concatenate([values, bias[..., None]], axis=-1), expected)
    values, bias = gb.interpret.shap_values(booster, X, X_background=X[:5])
    margin = booster.predict(gb.DMatrix(X), output_margin=True)
    np.testing.assert_allclose(values.sum(axis=-1) + bias, margin, rtol=0, atol=1e-5)


def test_interpret_reads_a_table_as_its_estimator_does():
    X, y = table(60)[0], np.arange(60) % 2
    holes = np.where(np.isnan(X), -9, X)
    model = gb.GPUBoostClassifier(n_estimators=9, early_stopping_rounds=1, missing=-9)
    model.fit(holes, y, eval_set=[(holes[::7], y[::7])])
    values, bias = gb.interpret.shap_values(model, holes)
    explanation = model.explain(holes)
    np.testing.assert_array_equal(values, explanation.values)
    np.testing.assert_array_equal(bias, explanation.base_values)
    best = {"missing": -9, "iteration_range": (0, model.best_iteration + 1)}
    np.testing.assert_array_equal(gb.interpret.shap_values(model.get_booster(), holes, **best)[0], values)
    frame = pd.DataFrame(holes).rename(columns=str)
    model.fit(frame, y, eval_set=[(frame, y)])
    other = frame.rename(columns=lambda name: name + "x")
    with pytest.raises(ValueError, match="columns"):
        gb.interpret.shap_values(model, other)
    np.testing.assert_array_equal(
        gb.interpret.shap_values(model, other, validate_features=False)[0], gb.interpret.shap_values(model, frame)[0]
    )
    with pytest.raises(ValueError, match="missing of a DMatrix"):
        gb.interpret.shap_values(model, gb.DMatrix(holes), missing=0)
    with pytest.raises(TypeError, match="model must be a Booster or an estimator of gpuboost, got str"):
        gb.interpret.shap_values("model.json", X)
