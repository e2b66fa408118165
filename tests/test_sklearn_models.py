"""What fitted estimators hold: importances, intercepts; models loaded from files, stored, and damaged."""

import pickle

import numpy as np
import pytest
from estimator_tables import digest, make_table, text_labels

import gpuboost as gb

pytest.importorskip("sklearn", minversion="1.6")
import joblib  # noqa: E402
from sklearn.exceptions import NotFittedError  # noqa: E402

from gpuboost import GPUBoostClassifier, GPUBoostRegressor  # noqa: E402

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def table():
    return make_table()


@pytest.fixture(scope="module")
def labels(table):
    return text_labels(table[1])


def test_importances_by_hand(table):
    X, y, _ = table
    model = GPUBoostRegressor(n_estimators=3, max_depth=2).fit(X, y)
    splits = [
        (tree.feature[i], tree.gain[i], tree.cover[i])
        for tree in model.get_booster().model.trees
        for i in np.flatnonzero(tree.left_child >= 0)
    ]
    by_feature = [[(gain, cover) for feature, gain, cover in splits if feature == f] for f in range(4)]
    expected = {
        None: [np.mean([g for g, _ in found]) if found else 0 for found in by_feature],
        "weight": [len(found) for found in by_feature],
        "cover": [np.mean([c for _, c in found]) if found else 0 for found in by_feature],
        "total_gain": [sum(g for g, _ in found) for found in by_feature],
        "total_cover": [sum(c for _, c in found) for found in by_feature],
    }
    for kind, scores in expected.items():
        importances = model.set_params(importance_type=kind).feature_importances_
        np.testing.assert_allclose(importances, np.array(scores) / sum(scores), rtol=1e-5)
        assert importances.dtype == np.float32
    assert GPUBoostRegressor(n_estimators=0).fit(X, y).feature_importances_.tolist() == [0] * 4
    with pytest.raises(ValueError, match="importance_type must be weight, gain, .* got 'gian'"):
        _ = model.set_params(importance_type="gian").feature_importances_


def test_the_intercept_is_the_prediction_before_the_first_tree():
    X, y = np.zeros((6, 1)), np.array([0, 0, 1, 1, 1, 1])
    np.testing.assert_array_equal(GPUBoostClassifier(n_estimators=1).fit(X, y).intercept_, np.array([4 / 6], np.float32))
    targets = GPUBoostRegressor(n_estimators=1).fit(X, np.stack([y, 3 - y], axis=1))
    np.testing.assert_array_equal(targets.intercept_, np.array([4 / 6, 14 / 6], np.float32))


def test_types_of_columns_come_back_with_a_model(table, tmp_path):
    X, signal, _ = table
    types = ["q", "int", *["float"] * (X.shape[1] - 2)]
    model = GPUBoostRegressor(n_estimators=2, feature_types=types).fit(np.round(X), signal)
    model.save_model(tmp_path / "m.json")
    loaded = GPUBoostRegressor()
    loaded.load_model(tmp_path / "m.json")
    assert loaded.feature_types == types
    continued = loaded.fit(np.round(X), signal, xgb_model=tmp_path / "m.json")
    assert continued.get_booster().feature_types == types


def test_models_load_into_the_estimator_of_their_task(table, tmp_path):
    X, y, _ = table
    GPUBoostRegressor(n_estimators=2).fit(X, y).save_model(tmp_path / "r.json")
    GPUBoostClassifier(n_estimators=2).fit(X, y > 1).save_model(tmp_path / "c.json")
    regressor = GPUBoostRegressor()
    regressor.load_model(tmp_path / "r.json")
    assert regressor.n_features_in_ == 4 and regressor.predict(X).shape == (300,)
    with pytest.raises(TypeError, match="trained with binary:logistic. Load it with GPUBoostClassifier"):
        GPUBoostRegressor().load_model(tmp_path / "c.json")
    with pytest.raises(TypeError, match="trained with reg:squarederror. Load it with GPUBoostRegressor"):
        GPUBoostClassifier().load_model(tmp_path / "r.json")


def test_a_classifier_of_raw_logits_has_probabilities(table):
    X, signal, _ = table
    y = signal > np.median(signal)
    raw, usual = (GPUBoostClassifier(objective=name, n_estimators=5).fit(X, y) for name in ("binary:logitraw", None))
    np.testing.assert_allclose(raw.predict_proba(X), usual.predict_proba(X), atol=1e-6)
    np.testing.assert_array_equal(raw.predict(X), raw.predict_proba(X)[:, 1] > 0.5)
    assert len(np.unique(raw.predict(X))) == 2
    both = np.stack([y, ~y], axis=1).astype(int)
    assert raw.fit(X, both).predict(X).shape == both.shape and np.isin(raw.predict(X), (0, 1)).all()


def test_xgboosts_classifier_file_loads(table, tmp_path):
    xgb = pytest.importorskip("xgboost")
    X, signal, _ = table
    theirs = xgb.XGBClassifier(n_estimators=3).fit(X, np.digitize(signal, [0.7, 1.2]))
    theirs.save_model(tmp_path / "m.json")
    ours = GPUBoostClassifier()
    ours.load_model(tmp_path / "m.json")
    np.testing.assert_array_equal(ours.predict(X), theirs.predict(X))
    np.testing.assert_allclose(ours.predict_proba(X), theirs.predict_proba(X), atol=1e-6)  # another exp


def test_xgboosts_softmax_file_has_probabilities(table, tmp_path):
    xgb = pytest.importorskip("xgboost")
    X, signal, _ = table
    y = np.digitize(signal, [0.7, 1.2])
    options = {"num_class": 3, "max_depth": 3}
    xgb.train({"objective": "multi:softmax", **options}, xgb.DMatrix(X, y), 3).save_model(tmp_path / "m.json")
    expected = xgb.train({"objective": "multi:softprob", **options}, xgb.DMatrix(X, y), 3).predict(xgb.DMatrix(X))
    ours = GPUBoostClassifier()
    ours.load_model(tmp_path / "m.json")
    np.testing.assert_allclose(ours.predict_proba(X), expected, atol=1e-6)  # another exp
    assert GPUBoostClassifier(n_estimators=1).fit(X, y, xgb_model=tmp_path / "m.json").get_booster().num_boosted_rounds() == 4


def test_a_regressor_loads_what_it_saved_with_a_classifiers_objective(table, tmp_path):
    X, signal, _ = table
    model = GPUBoostRegressor(n_estimators=2, objective="binary:logistic").fit(X, signal > 1)
    model.save_model(tmp_path / "m.json")
    loaded = GPUBoostRegressor()
    loaded.load_model(tmp_path / "m.json")
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))


def test_a_booster_may_be_put_into_an_estimator_as_into_xgboosts(table):
    X, y, *_ = table
    labels = (y > np.median(y)).astype(int)
    booster = gb.train({"objective": "binary:logistic", "max_depth": 2}, gb.DMatrix(X, labels), 3)
    model = gb.GPUBoostClassifier()
    assert not hasattr(model, "_Booster")
    model._Booster = booster
    np.testing.assert_array_equal(model.predict_proba(X)[:, 1], booster.predict(gb.DMatrix(X)))
    assert digest(model) == bytes(booster.save_raw("json")) and model._Booster is model.get_booster()
    model._Booster = None
    assert not hasattr(model, "_Booster")


def test_the_estimator_without_a_task_predicts_values(table):
    X, y, *_ = table
    model = gb.GPUBoostModel(objective="reg:squarederror", max_depth=2, n_estimators=3).fit(X, y)
    np.testing.assert_array_equal(model.predict(X), model.get_booster().predict(gb.DMatrix(X)))
    assert model.predict(X).dtype == np.float32 and digest(model) == digest(gb.GPUBoostRegressor(**model.get_params()).fit(X, y))


def test_loading_forgets_what_was_known_of_another_model(table, tmp_path):
    pd = pytest.importorskip("pandas")
    X, y, _ = table
    GPUBoostRegressor(n_estimators=1).fit(X[:, :3], y).save_model(tmp_path / "m.json")
    frame = pd.DataFrame(X, columns=list("abcd"))
    model = GPUBoostRegressor(n_estimators=1).fit(frame, y, eval_set=[(frame, y)])
    model.load_model(tmp_path / "m.json")
    assert model.n_features_in_ == 3 and not hasattr(model, "feature_names_in_")
    with pytest.raises(ValueError, match="no evaluation result"):
        model.evals_result()


def test_loading_keeps_the_best_round(table, tmp_path):
    X, y, _ = table
    model = GPUBoostRegressor(n_estimators=200, learning_rate=0.5, early_stopping_rounds=2)
    model.fit(X[:100], y[:100], eval_set=[(X[100:], y[100:])]).save_model(tmp_path / "m.json")
    loaded = GPUBoostRegressor()
    loaded.load_model(tmp_path / "m.json")
    assert (loaded.best_iteration, loaded.best_score) == (model.best_iteration, model.best_score)
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))


@pytest.mark.parametrize("text", ["[]", '{"dtype": "<U1", "values": ["a"]}', '{"dtype": "O", "values": [[0], [1], [2]]}', "no"])
def test_wrong_classes_in_a_file_are_refused(table, text):
    X, signal, _ = table
    booster = GPUBoostClassifier(n_estimators=1).fit(X, np.digitize(signal, [0.7, 1.2])).get_booster().copy()
    booster.set_attr(classes=text)
    with pytest.raises(ValueError, match="'classes' does not hold its class labels"):
        GPUBoostClassifier().load_model(bytes(booster.save_raw()))


def test_nothing_is_known_before_fit():
    model = GPUBoostClassifier()
    for name in ("best_iteration", "best_score", "feature_importances_", "classes_", "n_classes_"):
        assert not hasattr(model, name)
    with pytest.raises(NotFittedError):
        model.get_booster()
    with pytest.raises(NotFittedError):
        model.evals_result()
    for call in (model.predict, model.predict_proba, model.apply, model.save_model, GPUBoostRegressor().predict):
        with pytest.raises(NotFittedError, match="is not fitted yet"):
            call("anything")


@pytest.mark.parametrize("how", ["pickle", "joblib", "skops"])
def test_estimators_survive_being_stored(table, labels, how, tmp_path):
    pd = pytest.importorskip("pandas")
    X, _, w = table
    frame = pd.DataFrame(X, columns=list("abcd"))
    model = GPUBoostClassifier(n_estimators=20, learning_rate=0.5, early_stopping_rounds=2, reg_lambda=2, huber_slope=1)
    model.fit(frame, labels, sample_weight=w, eval_set=[(frame[:50], labels[:50])])
    if how == "pickle":
        stored = pickle.loads(pickle.dumps(model))
    elif how == "joblib":
        joblib.dump(model, tmp_path / "model")
        stored = joblib.load(tmp_path / "model")
    else:
        skops = pytest.importorskip("skops.io", reason="skops is not installed: pip install skops")
        data = skops.dumps(model)
        untrusted = skops.get_untrusted_types(data=data)
        assert all(name.startswith("gpuboost.") for name in untrusted)
        stored = skops.loads(data, trusted=untrusted)
    assert digest(stored) == digest(model) and stored.get_params().keys() == model.get_params().keys()
    np.testing.assert_array_equal(stored.predict(frame), model.predict(frame))
    np.testing.assert_array_equal(stored.classes_, model.classes_)
    assert stored.feature_names_in_.tolist() == list("abcd") and stored.n_features_in_ == 4
    assert stored.best_iteration == model.best_iteration and stored.evals_result() == model.evals_result()


def test_a_model_of_the_gpu_predicts_where_there_is_none(table, labels, monkeypatch):
    def no_device(number):
        raise gb.DeviceNotFoundError("no CUDA device was found")

    X = table[0]
    model = GPUBoostClassifier(n_estimators=2).fit(X, labels)
    expected = model.predict_proba(X)
    model.set_params(device="cuda").get_booster().set_param("device", "cuda")  # as if it had been trained there
    stored = pickle.dumps(model)
    monkeypatch.setattr("gpuboost.backend._cuda_backend", no_device)
    loaded = pickle.loads(stored)
    np.testing.assert_array_equal(loaded.predict_proba(X), expected)
    with pytest.raises(gb.DeviceNotFoundError):
        loaded.fit(X, labels)


def test_classes_of_a_damaged_file_are_malformed():
    X, y = np.random.default_rng(0).normal(size=(80, 3)), np.array(list("abc"))[np.arange(80) % 3]
    booster = GPUBoostClassifier(n_estimators=1).fit(X, y).get_booster()
    booster.set_attr(classes="null")
    with pytest.raises(gb.ModelFormatError, match="does not hold its class labels"):
        GPUBoostClassifier().load_model(booster.save_raw())
