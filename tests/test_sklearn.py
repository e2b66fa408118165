"""The estimators: scikit-learn's own checks, labels of any type, and agreement with train()."""

import pickle
import subprocess
import sys
import warnings

import numpy as np
import pytest

import gpuboost as gb

pytest.importorskip("sklearn", minversion="1.6")
from sklearn.base import clone  # noqa: E402
from sklearn.exceptions import DataConversionWarning, NotFittedError  # noqa: E402
from sklearn.metrics import log_loss, mean_absolute_error  # noqa: E402
from sklearn.model_selection import GridSearchCV, cross_val_score  # noqa: E402
from sklearn.utils.estimator_checks import parametrize_with_checks  # noqa: E402

from gpuboost import GPUBoostClassifier, GPUBoostRegressor  # noqa: E402
from gpuboost.params import Params  # noqa: E402


@pytest.fixture(scope="module")
def table():
    """X float64 (300, 4), a signal (300,) in it, weights (300,)."""
    rng = np.random.default_rng(0)
    X = rng.random((300, 4))
    X[rng.random(X.shape) < 0.05] = np.nan
    return X, np.nan_to_num(X[:, 0]) + np.nan_to_num(X[:, 1]) + rng.normal(0, 0.2, 300), rng.integers(1, 9, 300) / 4


def digest(model):
    return bytes(model.get_booster().save_raw())


@parametrize_with_checks([GPUBoostClassifier(n_estimators=5), GPUBoostRegressor(n_estimators=5)])
def test_scikit_learn(estimator, check):
    check(estimator)


def test_parameters_are_those_of_training():
    own = {"n_estimators", "missing", "early_stopping_rounds", "callbacks", "importance_type", "enable_categorical"}
    own |= {"feature_types"}
    aliases = {"n_jobs", "random_state"}
    for estimator in (GPUBoostClassifier(), GPUBoostRegressor()):
        params = estimator.get_params()
        assert set(params) - own - aliases <= set(Params.__dataclass_fields__)
        assert {name for name, value in params.items() if value is not None} == {"n_estimators", "missing", "enable_categorical"}


def test_regressor_is_the_booster_of_train(table):
    X, y, w = table
    model = GPUBoostRegressor(n_estimators=5, learning_rate=0.2, max_depth=3, reg_lambda=2, random_state=7, n_jobs=1)
    model.fit(X, y, sample_weight=w)
    params = {"learning_rate": 0.2, "max_depth": 3, "reg_lambda": 2, "seed": 7}
    booster = gb.train(params, gb.DMatrix(X, y, weight=w), 5)
    assert digest(model) == bytes(booster.save_raw())
    np.testing.assert_array_equal(model.predict(X), booster.predict(gb.DMatrix(X)))
    np.testing.assert_array_equal(model.apply(X), booster.predict(gb.DMatrix(X), pred_leaf=True))


@pytest.mark.parametrize("n_classes", [2, 3])
def test_classifier_has_the_probabilities_of_train(table, n_classes):
    X, signal, w = table
    y = np.digitize(signal, [0.7, 1.2][: n_classes - 1])
    model = GPUBoostClassifier(n_estimators=4).fit(X, y, sample_weight=w)
    objective = {"objective": "binary:logistic"} if n_classes == 2 else {"objective": "multi:softprob", "num_class": 3}
    p = gb.train(objective, gb.DMatrix(X, y, weight=w), 4).predict(gb.DMatrix(X))
    np.testing.assert_array_equal(model.predict_proba(X), np.stack([1 - p, p], axis=1) if n_classes == 2 else p)
    np.testing.assert_array_equal(model.predict(X), p > 0.5 if n_classes == 2 else p.argmax(axis=1))
    assert model.predict(X, output_margin=True).shape == ((300,) if n_classes == 2 else (300, 3))


@pytest.mark.parametrize(
    "classes",
    [
        np.array(["no", "yes"]),
        np.array(["a", "b", "c"], dtype=object),
        np.array([False, True]),
        np.array([1, 2], dtype=np.int8),
        np.array([-5.0, 0.0, 12.0]),
        np.array([7]),
    ],
    ids=str,
)
def test_labels_of_any_type_come_back_and_survive_files(table, classes, tmp_path):
    X, signal, _ = table
    y = classes[np.digitize(signal, [0.7, 1.2][: len(classes) - 1])]
    model = GPUBoostClassifier(n_estimators=3).fit(X, y, eval_set=[(X[:99], y[:99])])
    assert model.classes_.dtype == classes.dtype and model.classes_.tolist() == classes.tolist()
    assert model.n_classes_ == len(classes)
    assert model.predict(X).dtype == classes.dtype and model.score(X, y) > 0.6
    p = model.predict_proba(X)
    assert p.shape == (300, len(classes)) and p.dtype == np.float32
    np.testing.assert_allclose(p.sum(axis=1), 1, rtol=1e-6)
    model.save_model(tmp_path / "m.json")
    loaded = GPUBoostClassifier()
    loaded.load_model(tmp_path / "m.json")
    for other in (loaded, pickle.loads(pickle.dumps(model))):
        assert other.classes_.dtype == classes.dtype and digest(other) == digest(model)
        np.testing.assert_array_equal(other.predict(X), model.predict(X))


def test_pandas_labels_may_be_text_or_categories(table):
    pd = pytest.importorskip("pandas")
    X, signal, _ = table
    y = np.where(signal > 1, "high", "low")
    expected = GPUBoostClassifier(n_estimators=2).fit(X, y).predict(X)
    for series in (pd.Series(y), pd.Series(y, dtype="category"), pd.Series(y, dtype="string")):
        np.testing.assert_array_equal(GPUBoostClassifier(n_estimators=2).fit(X, series).predict(X), expected)


@pytest.mark.parametrize(
    "spoil, message",
    [
        (lambda y: np.where(y, 0.5, 0.0), "Unknown label type: continuous"),
        (lambda y: np.where(y, np.nan, 0.0), "NaN"),
        (lambda y: np.array(["a", None], dtype=object)[y.astype(int)], "labels of one kind, got NoneType, str"),
        (lambda y: np.stack([y, y], axis=1), "y should be a 1d array|Unknown label type"),
    ],
)
def test_labels_that_are_no_classes_are_refused(table, spoil, message):
    X, signal, _ = table
    with pytest.raises(ValueError, match=message):
        GPUBoostClassifier(n_estimators=1).fit(X, spoil(signal > 1))


@pytest.mark.parametrize("make", [GPUBoostClassifier, GPUBoostRegressor])
def test_a_column_of_labels_is_flattened_with_a_warning(table, make):
    X, signal, _ = table
    y = (signal > 1).astype(int)
    with pytest.warns(DataConversionWarning):
        model = make(n_estimators=2).fit(X, y[:, None])
    assert digest(model) == digest(make(n_estimators=2).fit(X, y))


def test_several_targets_are_several_predictions(table):
    X, y, _ = table
    both = GPUBoostRegressor(n_estimators=3).fit(X, np.stack([y, 2 * y], axis=1)).predict(X)
    assert both.shape == (300, 2)
    # Gradients of the second target are twice those of the first, so their stochastic rounding is another.
    np.testing.assert_allclose(both[:, 0], GPUBoostRegressor(n_estimators=3).fit(X, y).predict(X), atol=1e-2)


def test_early_stopping_predicts_with_the_best_rounds(table):
    X, signal, _ = table
    y = np.where(signal > 1, "high", "low")
    model = GPUBoostClassifier(n_estimators=200, learning_rate=0.5, early_stopping_rounds=3, eval_metric=["error", "logloss"])
    model.fit(X[:100], y[:100], eval_set=[(X[:100], y[:100]), (X[100:], y[100:])])
    history = model.evals_result()["validation_1"]["logloss"]
    best = int(np.argmin(history))
    assert model.best_iteration == best and model.best_score == history[best] and len(history) == best + 4 < 200
    np.testing.assert_array_equal(model.predict_proba(X), model.predict_proba(X, iteration_range=(0, best + 1)))
    assert (model.predict_proba(X) != model.predict_proba(X, iteration_range=(0, 0))).any()
    assert model.apply(X).shape == (300, best + 1)
    assert history[best] == pytest.approx(log_loss(y[100:], model.predict_proba(X[100:])[:, 1].astype(float)), rel=1e-6)


def test_evaluations_take_weights_and_margins_of_their_own(table):
    X, y, w = table
    model = GPUBoostRegressor(n_estimators=1, eval_metric="mae")
    with pytest.raises(ValueError, match=r"sample_weight_eval_set must have one entry per pair of eval_set \(1\), got 2"):
        model.fit(X, y, eval_set=[(X, y)], sample_weight_eval_set=[w, w])
    model.fit(X, y, eval_set=[(X, y), (X, y)], sample_weight_eval_set=[w, None], base_margin_eval_set=[None, y + 50])
    result = model.evals_result()
    assert result["validation_0"]["mae"] == pytest.approx([mean_absolute_error(y, model.predict(X), sample_weight=w)])
    assert result["validation_1"]["mae"][0] == pytest.approx(50, abs=1)


def test_evaluation_labels_must_be_known(table):
    X, signal, _ = table
    y = np.where(signal > 1, "high", "low")
    with pytest.raises(ValueError, match=r"eval_set\[0\] has labels that the training data does not have: 'middle'"):
        GPUBoostClassifier(n_estimators=1).fit(X, y, eval_set=[(X[:2], ["low", "middle"])])


def test_early_stopping_without_eval_set_says_what_to_pass(table):
    with pytest.raises(ValueError, match="early_stopping_rounds needs an evaluation set. Pass eval_set"):
        GPUBoostRegressor(early_stopping_rounds=2).fit(*table[:2])


@pytest.mark.parametrize("verbose, n_lines", [(False, 0), (True, 4), (2, 3)])
def test_verbose_prints_evaluations(table, verbose, n_lines, capsys):
    X, y, _ = table
    GPUBoostRegressor(n_estimators=4).fit(X, y, eval_set=[(X, y)], verbose=verbose)
    assert len(capsys.readouterr().out.splitlines()) == n_lines


def test_functions_as_objective_and_metric(table):
    X, y, w = table

    def squared(y_true, y_pred, sample_weight=1.0):
        return (y_pred - y_true) * sample_weight, np.ones_like(y_pred) * sample_weight

    model = GPUBoostRegressor(n_estimators=3, objective=squared, eval_metric=mean_absolute_error)
    model.fit(X, y, sample_weight=w, eval_set=[(X, y)], sample_weight_eval_set=[w])
    plain = GPUBoostRegressor(n_estimators=3, eval_metric="mae", base_score=0.5)  # where functions start, as in XGBoost
    plain.fit(X, y, sample_weight=w, eval_set=[(X, y)], sample_weight_eval_set=[w])
    assert digest(model) == digest(plain)
    values = model.evals_result()["validation_0"]["mean_absolute_error"]
    assert values == pytest.approx(plain.evals_result()["validation_0"]["mae"], rel=1e-5)


def test_continuing_from_an_estimator_gives_one_training(table):
    X, signal, _ = table
    y = signal > 1
    half = GPUBoostClassifier(n_estimators=3).fit(X, y)
    assert digest(GPUBoostClassifier(n_estimators=2).fit(X, y, xgb_model=half)) == digest(
        GPUBoostClassifier(n_estimators=5).fit(X, y)
    )


def test_base_margin_shifts_predictions(table):
    X, y, _ = table
    model = GPUBoostRegressor(n_estimators=2).fit(X, y - 100, base_margin=np.full(300, -100.0))
    shifted = model.predict(X, base_margin=np.zeros(300))
    np.testing.assert_allclose(shifted, model.predict(X, base_margin=np.ones(300)) - 1, atol=1e-6)


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
    with pytest.raises(ValueError, match="importance_type must be gain, .* got 'gian'"):
        _ = model.set_params(importance_type="gian").feature_importances_


def test_frames_keep_names_and_categories(table):
    pd = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"kind": pd.Categorical(rng.choice(list("abc"), 200)), "number": rng.random(200)})
    y = 3.0 * (frame["kind"] == "b") + frame["number"]
    model = GPUBoostRegressor(n_estimators=20).fit(frame, y)
    assert model.feature_names_in_.tolist() == ["kind", "number"] and model.n_features_in_ == 2
    only_b = pd.DataFrame({"kind": pd.Categorical(["b"] * 5), "number": [0.5] * 5})  # its code here is 0, in training it was 1
    np.testing.assert_allclose(model.predict(only_b), 3.5, atol=0.2)
    with pytest.raises(ValueError, match="feature names should match"):
        model.predict(frame.rename(columns={"number": "n"}))


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
def test_frames_give_the_model_of_the_array(table, library):
    module = pytest.importorskip(library)
    X, y, _ = table
    columns = dict(zip("abcd", X.T))
    frame = module.table(columns) if library == "pyarrow" else module.DataFrame(columns)
    model = GPUBoostRegressor(n_estimators=2).fit(frame, y)
    np.testing.assert_array_equal(model.predict(frame), GPUBoostRegressor(n_estimators=2).fit(X, y).predict(X))
    assert model.n_features_in_ == 4


def test_array_after_a_frame_warns(table):
    pd = pytest.importorskip("pandas")
    X, y, _ = table
    model = GPUBoostRegressor(n_estimators=1).fit(pd.DataFrame(X, columns=list("abcd")), y)
    with pytest.warns(UserWarning, match="X does not have valid feature names"):
        model.predict(X)


def test_masked_and_missing_values_are_nan(table):
    X, y, _ = table
    expected = digest(GPUBoostRegressor(n_estimators=2).fit(X, y))
    assert digest(GPUBoostRegressor(n_estimators=2).fit(np.ma.masked_invalid(X), y)) == expected
    assert digest(GPUBoostRegressor(n_estimators=2, missing=-1).fit(np.nan_to_num(X, nan=-1), y)) == expected


def test_infinite_values_are_refused_at_fit_and_predict(table):
    X, y, _ = table
    bad = X.copy()
    bad[3, 2] = np.inf
    with pytest.raises(ValueError, match="infinite"):
        GPUBoostRegressor(n_estimators=1).fit(bad, y)
    with pytest.raises(ValueError, match="infinity"):
        GPUBoostRegressor(n_estimators=1).fit(X, y).predict(bad)


def test_fitting_copies_and_changes_no_input(table):
    X, y, w = table
    frozen = [values.copy() for values in (X, y, w)]
    for values in frozen:
        values.flags.writeable = False
    model = GPUBoostRegressor(n_estimators=2).fit(frozen[0], frozen[1], sample_weight=frozen[2])
    expected = GPUBoostRegressor(n_estimators=2).fit(X, y, sample_weight=w).predict(X)
    np.testing.assert_array_equal(model.predict(frozen[0]), expected)


def test_models_load_into_the_estimator_of_their_task(table, tmp_path):
    X, y, _ = table
    GPUBoostRegressor(n_estimators=2).fit(X, y).save_model(tmp_path / "r.json")
    GPUBoostClassifier(n_estimators=2).fit(X, y > 1).save_model(tmp_path / "c.json")
    regressor = GPUBoostRegressor()
    regressor.load_model(tmp_path / "r.json")
    assert regressor.n_features_in_ == 4 and regressor.predict(X).shape == (300,)
    with pytest.raises(ValueError, match="trained with binary:logistic. Load it with GPUBoostClassifier"):
        GPUBoostRegressor().load_model(tmp_path / "c.json")
    with pytest.raises(ValueError, match="trained with reg:squarederror. Load it with GPUBoostRegressor"):
        GPUBoostClassifier().load_model(tmp_path / "r.json")


def test_xgboosts_classifier_file_loads(table, tmp_path):
    xgb = pytest.importorskip("xgboost")
    X, signal, _ = table
    theirs = xgb.XGBClassifier(n_estimators=3).fit(X, np.digitize(signal, [0.7, 1.2]))
    theirs.save_model(tmp_path / "m.json")
    ours = GPUBoostClassifier()
    ours.load_model(tmp_path / "m.json")
    np.testing.assert_array_equal(ours.predict(X), theirs.predict(X))
    np.testing.assert_allclose(ours.predict_proba(X), theirs.predict_proba(X), atol=1e-6)  # another exp


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


def test_wrong_parameters_are_named_at_fit(table):
    X, y, _ = table
    with pytest.raises(ValueError, match="max_depth must be"):
        GPUBoostRegressor(max_depth=-5).fit(X, y)
    with pytest.raises(NotImplementedError, match="subsample=0.5 is not built yet"):
        GPUBoostRegressor(subsample=0.5).fit(X, y)


def test_random_state_may_be_a_generator(table):
    X, y, _ = table
    fits = [GPUBoostRegressor(n_estimators=2, random_state=np.random.RandomState(5)).fit(X, y) for _ in range(2)]
    assert digest(fits[0]) == digest(fits[1])


def test_searches_and_folds_work(table):
    X, signal, _ = table
    y = np.where(signal > 1, "high", "low")
    search = GridSearchCV(GPUBoostClassifier(n_estimators=5), {"max_depth": [1, 3]}, cv=3, scoring="roc_auc").fit(X, y)
    assert search.best_score_ > 0.8
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert cross_val_score(clone(search.best_estimator_), X, y, cv=3).min() > 0.7


def test_without_scikit_learn_the_error_names_the_extra():
    code = "import sys; sys.modules['sklearn'] = None; import gpuboost; gpuboost.GPUBoostClassifier"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.returncode == 1 and "pip install gpuboost[sklearn]" in result.stderr.splitlines()[-1]


def test_continuing_with_other_classes_is_refused():
    X = np.arange(20.0)[:, None]
    model = gb.GPUBoostClassifier(n_estimators=2).fit(X, np.repeat(["a", "b"], 10))
    continued = gb.GPUBoostClassifier(n_estimators=2).fit(X, np.repeat(["a", "b"], 10), xgb_model=model)
    assert continued.get_booster().num_boosted_rounds() == 4
    with pytest.raises(ValueError, match="knows the classes"):
        gb.GPUBoostClassifier(n_estimators=2).fit(X, np.repeat(["b", "c"], 10), xgb_model=model)
