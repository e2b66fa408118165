"""Importances of every kind, slices and the best iteration of dart, forests, vector leaves and categories are XGBoost's."""

import numpy as np
import pytest

import gpuboost as gb

xgboost = pytest.importorskip("xgboost")

KINDS = ("weight", "gain", "cover", "total_gain", "total_cover")
MODELS = {
    "dart": {"booster": "dart", "rate_drop": 0.4, "seed": 3},
    "forests": {"num_parallel_tree": 3, "subsample": 0.7, "colsample_bynode": 0.6},
    "classes": {"objective": "multi:softprob", "num_class": 3},
    "vector leaves": {"multi_strategy": "multi_output_tree"},
}
each_model = pytest.mark.parametrize("name", MODELS)


def make(name, rounds=6, **arguments):
    """(XGBoost's model, the same read here, XGBoost's matrix, ours)."""
    rng = np.random.default_rng(4)
    X = rng.normal(size=(250, 5)).astype(np.float32)
    y = np.stack([X[:, 0] * X[:, 1], X[:, 2] - X[:, 0]], axis=1) + rng.normal(size=(250, 2)) * 0.2
    labels = {"vector leaves": y, "classes": np.digitize(y[:, 0], [-0.4, 0.4])}.get(name, y[:, 0])
    theirs, ours = (library.DMatrix(X, labels) for library in (xgboost, gb))
    params = {"max_depth": 3, "nthread": 1, "base_score": 0.5, **MODELS[name]}
    if "early_stopping_rounds" in arguments:
        arguments["evals"] = [(xgboost.DMatrix(X[::-1].copy(), labels), "other")]
    peer = xgboost.train(params, theirs, rounds, verbose_eval=False, **arguments)
    return peer, gb.Booster({"nthread": 1}, model_file=bytes(peer.save_raw("json"))), theirs, ours


@each_model
@pytest.mark.parametrize("kind", KINDS)
def test_importances_are_xgboosts(name, kind):
    peer, booster, *_ = make(name)
    for part in (slice(None), slice(1, 4), slice(None, None, 2)):
        expected = peer[part].get_score(importance_type=kind)
        assert booster[part].get_score(importance_type=kind) == pytest.approx(expected, rel=1e-5) and len(expected) > 1


@pytest.mark.parametrize("name", list(MODELS)[1:])  # XGBoost's slices of dart lose the weights; ours: test_dart.py
def test_slices_predict_and_are_written_as_xgboosts(name):
    peer, booster, theirs, ours = make(name)
    for part in (slice(0, 2), slice(3, 6), slice(0, None, 3)):
        expected = peer[part].predict(theirs)
        np.testing.assert_allclose(booster[part].predict(ours), expected, rtol=1e-5, atol=1e-6)
        read = xgboost.Booster(model_file=booster[part].save_raw("ubj"))
        np.testing.assert_allclose(read.predict(theirs), expected, rtol=1e-5, atol=1e-6)
        assert booster[part].num_boosted_rounds() == peer[part].num_boosted_rounds()
    pair = booster.predict(ours, iteration_range=(2, 5)), peer.predict(theirs, iteration_range=(2, 5))
    np.testing.assert_allclose(*pair, rtol=1e-5, atol=1e-6)


@each_model
def test_predictions_use_all_rounds_whatever_the_best_one_was(name):
    """As XGBoost's Booster, whose estimators alone stop at the best round; a slice keeps the attribute."""
    peer, booster, theirs, ours = make(name, 12, early_stopping_rounds=2)
    assert booster.best_iteration == peer.best_iteration < booster.num_boosted_rounds() - 1
    np.testing.assert_allclose(booster.predict(ours), peer.predict(theirs), rtol=1e-5, atol=1e-6)
    best = (0, booster.best_iteration + 1)
    pair = booster.predict(ours, iteration_range=best), peer.predict(theirs, iteration_range=best)
    np.testing.assert_allclose(*pair, rtol=1e-5, atol=1e-6)
