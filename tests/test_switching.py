"""What users bring along from XGBoost, whose tests ask for it: beside XGBoost itself, where it does the same."""

import json

import numpy as np
import pandas as pd
import pytest
import xgboost
from peer_versions import xgboost_before
from sklearn.base import clone
from sklearn.metrics import accuracy_score

import gpuboost as gb

X = np.random.default_rng(0).random((60, 3)).astype(np.float32)
CLASSES = np.arange(60) % 3
QUIET = {"verbose_eval": False}
SOFTMAX = {"objective": "multi:softmax", "num_class": 3, "max_depth": 2}


def accuracy(prediction, dmatrix):
    return "acc", float(np.mean(prediction == dmatrix.get_label()))


@pytest.mark.parametrize("library", [gb, xgboost])
def test_metrics_of_ones_own_see_the_classes_of_softmax(library):
    data, scores = library.DMatrix(X, CLASSES), {}
    booster = library.train(SOFTMAX, data, 2, evals=[(data, "t")], custom_metric=accuracy, evals_result=scores, **QUIET)
    assert scores["t"]["acc"][-1] == pytest.approx(np.mean(booster.predict(data) == CLASSES))
    folds = library.cv(SOFTMAX, data, 2, custom_metric=accuracy, as_pandas=False)
    assert 0 <= folds["test-acc-mean"][-1] <= 1


def test_metrics_of_an_estimator_see_the_classes_of_softmax():
    options = {"n_estimators": 2, "max_depth": 2, "eval_metric": accuracy_score}
    model = gb.GPUBoostClassifier(objective="multi:softmax", **options).fit(X, CLASSES, eval_set=[(X, CLASSES)], verbose=False)
    scores = model.evals_result()["validation_0"]["accuracy_score"]
    assert scores[-1] == pytest.approx(np.mean(model.predict(X) == CLASSES))


def test_a_text_is_no_value_of_a_metric():
    data = gb.DMatrix(X, CLASSES)
    with pytest.raises(TypeError, match="custom_metric must return a number as 'acc', got '1'"):
        gb.train({}, data, 1, evals=[(data, "t")], custom_metric=lambda *_: ("acc", "1"))


@pytest.mark.parametrize("library", [gb, xgboost])
def test_a_loop_of_ones_own_begins_with_a_prediction(library):
    label = X[:, 0]
    data, params = library.DMatrix(X, label), {"base_score": 0.5, "max_depth": 2}
    booster = library.Booster(params, [data])
    np.testing.assert_array_equal(booster.predict(data), np.full(60, 0.5, np.float32))
    for i in range(3):
        booster.boost(data, i, grad=booster.predict(data) - label, hess=np.ones(60, np.float32))
    whole = library.train(params, data, 3, **QUIET)
    np.testing.assert_allclose(booster.predict(data), whole.predict(data), rtol=1e-6)


def test_what_an_untrained_booster_predicts():
    data = gb.DMatrix(X, CLASSES)
    np.testing.assert_array_equal(gb.Booster(SOFTMAX, [data]).predict(gb.DMatrix(X)), np.zeros(60))
    quantiles = {"objective": "reg:quantileerror", "quantile_alpha": [0.1, 0.9], "base_score": [1, 2]}
    np.testing.assert_array_equal(gb.Booster(quantiles, [data]).predict(data), np.tile(np.float32([1, 2]), (60, 1)))
    with pytest.raises(gb.NotFittedError):
        gb.Booster({}).predict(data)
    two = gb.Booster({}, [gb.DMatrix(X, X[:, :2])])
    for booster in (two, two.copy()):
        assert booster.predict(gb.DMatrix(X)).shape == (60, 2)
    with pytest.raises(TypeError, match="cache must hold DMatrices, got ndarray"):
        gb.Booster({}, [X])
    with pytest.raises(TypeError, match="cache must be a list of DMatrices, got DMatrix"):
        gb.Booster({}, data)


def test_a_booster_is_made_of_another():
    data = gb.DMatrix(X, CLASSES)
    booster = gb.train({"max_depth": 2}, data, 2, **QUIET)
    copied = gb.Booster({"eta": 0.1}, model_file=booster)
    assert copied.save_raw() == booster.save_raw() and (copied.params.max_depth, copied.params.learning_rate) == (2, 0.1)
    copied.update(data)
    assert (copied.num_boosted_rounds(), booster.num_boosted_rounds()) == (3, 2)


@pytest.mark.parametrize("library", [gb, xgboost])
def test_callbacks_of_cv_find_the_folds(library):
    class Keep(library.callback.TrainingCallback):
        def after_training(self, model):
            self.folds = [(fold.bst.num_boosted_rounds(), fold.dtrain.num_row(), fold.dtest.num_row()) for fold in model.cvfolds]
            return model

    keep = Keep()
    library.cv({}, library.DMatrix(X, X[:, 0]), 2, nfold=3, callbacks=[keep])
    assert keep.folds == [(2, 40, 20)] * 3


@pytest.mark.parametrize("given, same", [
    ({"updater": "grow_quantile_histmaker"}, {"tree_method": "hist"}),
    ({"updater": "grow_histmaker,prune"}, {"tree_method": "approx"}),
    ({"updater": "grow_colmaker, prune"}, {"tree_method": "exact"}), ({"updater": ["grow_colmaker"]}, {"tree_method": "exact"}),
    ({"objective": "reg:linear"}, {"objective": "reg:squarederror"}),
    ({"debug_synchronize": True, "max_cached_hist_node": 64, "fail_on_invalid_gpu_id": False}, {}),
    ({"sparse_threshold": 0.3, "max_row_perbatch": 100}, {}),
    ({"seed_per_iteration": True, "subsample": 0.5}, {"subsample": 0.5}),
])  # fmt: skip
def test_names_that_mean_something_else_or_nothing(given, same):
    models = [gb.train({"max_depth": 2, **params}, gb.DMatrix(X, X[:, 0]), 2, **QUIET).save_raw() for params in (given, same)]
    assert models[0] == models[1]


@pytest.mark.parametrize("library", [gb, xgboost])
def test_a_setting_that_is_none_stays_as_it_is(library):
    """As wrappers pass on what they were not given."""
    with library.config_context(verbosity=2), library.config_context(verbosity=None):
        assert library.get_config()["verbosity"] == 2


@pytest.mark.parametrize("library", [gb, xgboost])
def test_the_number_of_targets_may_be_given(library):
    data = library.DMatrix(X, X[:, :2])
    given, plain = (library.train({"max_depth": 2, **params}, data, 2).predict(data) for params in ({"num_target": 2}, {}))
    np.testing.assert_array_equal(given, plain)
    with pytest.raises(ValueError, match="num_target"):
        library.train({"num_target": 3}, data, 1)


def test_the_number_of_targets_agrees_with_a_model_that_goes_on():
    data = gb.DMatrix(X, X[:, :2])
    booster = gb.train({"num_target": 2}, data, 1)
    assert gb.train({"num_target": 2}, data, 1, xgb_model=booster).num_boosted_rounds() == 2
    with pytest.raises(ValueError, match="num_target=3, but by labels and objective it is 2"):
        gb.train({"num_target": 3}, data, 1, xgb_model=booster)


def test_updaters_and_methods_that_disagree_are_refused():
    with pytest.raises(ValueError, match="tree_method was given twice"):
        gb.train({"updater": "grow_colmaker", "tree_method": "hist"}, gb.DMatrix(X, X[:, 0]), 1)
    with pytest.raises(ValueError, match="updater must be"):
        gb.train({"updater": "grow_colmaker", "booster": "gblinear"}, gb.DMatrix(X, X[:, 0]), 1)


def test_rows_are_split_over_workers_not_columns():
    assert gb.DMatrix(X, data_split_mode=0).num_row() == gb.QuantileDMatrix(X, data_split_mode=0).num_row() == 60
    with pytest.raises(NotImplementedError, match="data_split_mode=1"):
        gb.DMatrix(X, data_split_mode=1)


# ---- categories


FRAME = pd.DataFrame({
    "a": pd.Categorical(np.array(["x", "yb", "z"])[CLASSES]), "n": np.arange(60.0), "b": pd.Categorical([7, 3, 12] * 20),
})  # fmt: skip
OTHER = pd.DataFrame({"a": pd.Categorical(["z", "yb"]), "n": [1.0, 2.0], "b": pd.Categorical([12, 3])})  # other codes


def in_trees(raw):
    booster = json.loads(raw)["learner"]["gradient_booster"]
    return booster.get("gbtree", booster)["model"]


@pytest.mark.parametrize("params", [{}, {"booster": "dart"}])
def test_xgboosts_container_of_categories_is_written_where_asked_for(params, tmp_path):
    params = {"eta": 1.0, "lambda": 0.0, "min_child_weight": 0, **params}
    booster = gb.train(params, gb.DMatrix(FRAME, CLASSES * 10.0), 3, **QUIET)
    theirs = xgboost.train(params, xgboost.DMatrix(FRAME, CLASSES * 10.0, enable_categorical=True), 1)
    assert "cats" not in in_trees(booster.save_raw("json"))
    for name in ("model.json", "model.ubj"):
        with gb.config_context(category_container="xgboost"):
            booster.save_model(tmp_path / name)
        read = xgboost.Booster(model_file=tmp_path / name)
        np.testing.assert_allclose(read.inplace_predict(OTHER), booster.inplace_predict(OTHER), rtol=1e-6)
        assert in_trees(read.save_raw("json"))["cats"] == in_trees(theirs.save_raw("json"))["cats"]
        again = gb.Booster(model_file=tmp_path / name)
        assert again.save_raw() == booster.save_raw()
    with gb.config_context(category_container="xgboost"):
        assert in_trees(booster.save_raw("json"))["cats"]["sorted_idx"] == [0, 1, 2, 0, 1, 2]


@pytest.mark.parametrize("values", [[True, False], ["a", "\u00e9"], [1.5, 2], np.array([2**63, 1], np.uint64)])
def test_categories_that_xgboosts_container_does_not_take(values, tmp_path):
    """Which concerns files that one asks for, not checkpoints."""
    frame = pd.DataFrame({"a": pd.Categorical(list(values) * 30)})
    booster = gb.train({}, gb.DMatrix(frame, np.arange(60) % 2), 1, **QUIET)
    with gb.config_context(category_container="xgboost"), pytest.raises(ValueError, match="takes categories that are ASCII text"):
        booster.save_raw()
    with gb.config_context(category_container="xgboost"):
        gb.train({}, gb.DMatrix(frame, np.arange(60) % 2), 2, resume_from=tmp_path / "kept", checkpoint_interval=1, **QUIET)


def test_categories_are_returned_and_number_another_frame():
    data = gb.DMatrix(FRAME, CLASSES)
    theirs = xgboost.DMatrix(FRAME, CLASSES, enable_categorical=True).get_categories(export_to_arrow=True).to_arrow()
    booster = gb.train({}, data, 2, **QUIET)
    for container in (data.get_categories(), booster.get_categories(export_to_arrow=True)):
        assert [(name, None if own is None else own.to_pylist()) for name, own in container.to_arrow()] == [
            (name, None if own is None else own.to_pylist()) for name, own in theirs
        ]
        assert not container.empty()
        for kind in (gb.DMatrix, gb.QuantileDMatrix):
            assert kind(OTHER, feature_types=container).categories == data.categories
    assert gb.DMatrix(X).get_categories().empty()
    assert gb.DMatrix(X).get_categories().to_arrow() == [("0", None), ("1", None), ("2", None)]
    numbered = gb.DMatrix(OTHER, [1, 2], feature_types=booster.get_categories())
    np.testing.assert_array_equal(booster.predict(numbered), booster.predict(gb.DMatrix(OTHER)))
    gb.train({}, numbered, 1, xgb_model=booster, **QUIET)  # the same columns
    with pytest.warns(UserWarning, match='Column "a": "w"'):
        gb.DMatrix(OTHER.assign(a=pd.Categorical(["w", "z"])), feature_types=data.get_categories())
    data.get_categories().values["a"].append("w")
    assert data.categories["a"] == ["x", "yb", "z"]
    assert gb.DMatrix(OTHER.assign(a=None, b=None), feature_types=data.get_categories()).categories == {}
    with pytest.raises(ValueError, match="numbers a frame's categories, of which data has none"):
        gb.DMatrix(X, feature_types=data.get_categories())
    with pytest.raises(ValueError, match="column 'c' holds categories, but has none in feature_types"):
        gb.DMatrix(OTHER.rename(columns={"a": "c"}), feature_types=data.get_categories())


@pytest.mark.parametrize("kind", [gb.DMatrix, gb.QuantileDMatrix])
def test_going_on_with_a_frame_of_other_codes(kind):
    """Categories are the same by value, also where a frame has fewer of them; new ones are an error that says what to do."""
    first = gb.train({}, gb.DMatrix(FRAME, CLASSES), 2, **QUIET)
    expected = gb.train({}, gb.DMatrix(FRAME, CLASSES), 2, xgb_model=first, **QUIET)
    turned = FRAME.assign(a=FRAME["a"].cat.reorder_categories(["z", "x", "yb"]))
    if kind is gb.DMatrix:
        data = gb.DMatrix(turned, CLASSES)
        assert gb.train({}, data, 2, xgb_model=first, **QUIET).save_raw() == expected.save_raw()
        assert data.categories["a"] == ["z", "x", "yb"]  # others may be training on it
        gb.train({}, gb.DMatrix(OTHER, [1, 2]), 1, xgb_model=first, **QUIET)
        estimator = gb.GPUBoostRegressor(n_estimators=2).fit(turned, CLASSES, xgb_model=first)
        np.testing.assert_array_equal(estimator.predict(turned), expected.inplace_predict(FRAME))
    else:
        with pytest.raises(ValueError, match=r"feature_types=booster.get_categories\(\)"):
            gb.train({}, kind(turned, CLASSES), 1, xgb_model=first)
    new = kind(OTHER.assign(a=pd.Categorical(["w", "z"])), [1, 2])
    with pytest.raises(ValueError, match=r"feature_types=booster.get_categories\(\)"):
        gb.train({}, new, 1, xgb_model=first)
    numbered = kind(turned, CLASSES, feature_types=first.get_categories())
    assert gb.train({}, numbered, 2, xgb_model=first, **QUIET).save_raw() == expected.save_raw()
    with pytest.raises(ValueError, match=r"in that order. Use X\[booster.feature_names\]"):
        gb.train({}, kind(FRAME[["b", "n", "a"]], CLASSES), 1, xgb_model=first)


def test_a_matrix_is_the_same_after_a_model_went_on_with_it():
    """Also for a model that knows fewer categories than that one did."""
    turned = FRAME.assign(a=FRAME["a"].cat.reorder_categories(["z", "x", "yb"]))
    more = gb.train({}, gb.DMatrix(FRAME.assign(a=FRAME["a"].cat.add_categories("new")), CLASSES), 1, **QUIET)
    few = gb.train({}, gb.DMatrix(FRAME, CLASSES), 1, **QUIET)
    data = gb.DMatrix(turned, CLASSES)
    expected = [gb.train({}, data, 2, xgb_model=model, **QUIET).save_raw() for model in (None, few)]
    gb.train({}, data, 1, xgb_model=more, **QUIET)
    assert [gb.train({}, data, 2, xgb_model=model, **QUIET).save_raw() for model in (None, few)] == expected


def test_codes_of_categories_do_not_become_numbers_in_further_rounds():
    codes = np.stack([CLASSES, np.arange(60)], axis=1)
    booster = gb.train({}, gb.DMatrix(codes, CLASSES, feature_types=["c", "q"]), 1)
    assert gb.train({}, gb.DMatrix(codes, CLASSES, feature_types=["c", "int"]), 1, xgb_model=booster).num_boosted_rounds() == 2
    with pytest.raises(ValueError, match="column 0 of dtrain must be of feature type 'c', as the model's is"):
        gb.train({}, gb.DMatrix(codes, CLASSES), 1, xgb_model=booster)


def test_an_estimator_that_goes_on_numbers_categories_as_the_model(tmp_path):
    again = FRAME.assign(a=FRAME["a"].cat.reorder_categories(FRAME["a"].cat.categories[::-1]))
    whole = gb.GPUBoostRegressor(n_estimators=4).fit(FRAME, CLASSES)
    half = gb.GPUBoostRegressor(n_estimators=2).fit(FRAME, CLASSES)
    half.save_model(tmp_path / "m.json")
    for model in (half, half.get_booster(), tmp_path / "m.json"):
        continued = gb.GPUBoostRegressor(n_estimators=2).fit(again, CLASSES, xgb_model=model, eval_set=[(again, CLASSES)])
        assert continued.get_booster().save_raw() == whole.get_booster().save_raw()
    tuned = gb.GPUBoostRegressor(n_estimators=2, early_stopping_rounds=1, refit_full=True)
    tuned.fit(again, CLASSES, xgb_model=half, eval_set=[(FRAME, CLASSES)])
    assert tuned.get_booster().get_categories().values == half.get_booster().get_categories().values


@pytest.mark.parametrize("objective", ["count:poisson", "reg:absoluteerror"])
def test_an_estimator_takes_the_objective_of_a_file(objective, tmp_path):
    y = np.round(5 * X[:, 0])
    for make in (xgboost.XGBRegressor, gb.GPUBoostRegressor):
        make(objective=objective, n_estimators=2).fit(X, y).save_model(tmp_path / "m.json")
        model = make(n_estimators=2)
        model.load_model(tmp_path / "m.json")
        assert model.objective == clone(model).get_params()["objective"] == objective
    again = clone(model).fit(X, y, xgb_model=model)
    assert again.get_booster().num_boosted_rounds() == 4


def test_an_estimator_goes_on_with_the_objective_of_a_model(tmp_path):
    y = np.round(5 * X[:, 0])
    first = gb.train({"objective": "count:poisson"}, gb.DMatrix(X, y), 2)
    first.save_model(tmp_path / "m.json")
    model = gb.GPUBoostRegressor(n_estimators=3).fit(X, y, xgb_model=str(tmp_path / "m.json"))
    expected = gb.train({}, gb.DMatrix(X, y), 3, xgb_model=first)
    np.testing.assert_array_equal(model.predict(X), expected.predict(gb.DMatrix(X)))
    assert model.get_params()["objective"] == "reg:squarederror"
    assert clone(model).fit(X, y).get_booster().model.objective == "reg:squarederror"
    with pytest.raises(ValueError, match="objective='reg:tweedie', but the model was trained with 'count:poisson'"):
        gb.GPUBoostRegressor(objective="reg:tweedie").fit(X, y, xgb_model=first)


def test_a_ranker_does_not_go_on_with_a_model_of_another_kind():
    first = gb.train({}, gb.DMatrix(X, CLASSES), 1)
    with pytest.raises(ValueError, match="objective of a ranker must be .*, got 'reg:squarederror'"):
        gb.GPUBoostRanker().fit(X, CLASSES, qid=np.arange(60) // 10, xgb_model=first)


def test_classes_of_a_file_keep_the_default_objective(tmp_path):
    gb.GPUBoostClassifier(n_estimators=2).fit(X, CLASSES).save_model(tmp_path / "m.json")
    model = gb.GPUBoostClassifier(n_estimators=2)
    model.load_model(tmp_path / "m.json")
    assert model.objective == "binary:logistic" and model.get_xgb_params()["objective"] == "multi:softprob"


def test_one_base_score_is_that_of_all_expectiles():
    y, models = 3 * X[:, 0], []
    params = {"objective": "reg:expectileerror", "expectile_alpha": [0.2, 0.8], "max_depth": 2}
    for score in (1.0, [1.0, 1.0]):
        booster = gb.train({**params, "base_score": score}, gb.DMatrix(X, y), 2)
        models.append(booster.save_raw())
        if not xgboost_before(3, 4):
            theirs = xgboost.Booster(model_file=booster.save_raw("json")).predict(xgboost.DMatrix(X))
            np.testing.assert_allclose(booster.predict(gb.DMatrix(X)), theirs, rtol=1e-5)
    assert models[0] == models[1]


@pytest.mark.parametrize("library", [gb, xgboost])
def test_a_quantile_matrix_takes_the_number_of_batches_of_a_sketch(library):
    given, plain = library.QuantileDMatrix(X, CLASSES, max_quantile_batches=4), library.QuantileDMatrix(X, CLASSES)
    for values, expected in zip(given.get_quantile_cut(), plain.get_quantile_cut()):
        np.testing.assert_array_equal(values, expected)
