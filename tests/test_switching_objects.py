"""What a user of XGBoost has at hand while switching: its objects, frames that are computed late, a fitted estimator that is to
predict otherwise."""

import json

import narwhals as nw
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.dataset
import pytest

import gpuboost as gb

rng = np.random.default_rng(0)
X = rng.normal(size=(120, 3)).astype(np.float32)
y = (X[:, 0] > 0).astype(int)
FRAME = pl.DataFrame(X, schema=["a", "b", "c"])
FITTED = {"n_estimators": 3, "n_jobs": 2}


def configuration(model):
    return json.loads(model.get_booster().save_config())["learner"]["generic_param"]


def test_a_fitted_estimator_passes_on_how_to_execute():
    model = gb.GPUBoostClassifier(**FITTED).fit(X, y)
    before, raw = model.predict_proba(X), model.get_booster().save_raw()
    model.set_params(n_jobs=1, device="cpu", max_depth=2, verbosity=0)
    assert [configuration(model)[name] for name in ("nthread", "device")] == ["1", "cpu"]
    assert model.get_booster().params.verbosity == 0
    assert np.array_equal(model.predict_proba(X), before) and model.get_booster().save_raw() == raw
    model.set_params(n_jobs=None)
    assert configuration(model)["nthread"] == configuration(gb.GPUBoostClassifier(n_estimators=3).fit(X, y))["nthread"]
    with pytest.raises(ValueError, match="nthread"):
        model.set_params(n_jobs="many")


def test_threads_by_their_other_name():
    model = gb.GPUBoostClassifier(n_estimators=3, nthread=1).fit(X, y).set_params(device="cpu")
    assert configuration(model)["nthread"] == "1"
    assert configuration(gb.GPUBoostClassifier(n_estimators=3).fit(X, y).set_params(nthread=1))["nthread"] == "1"


def test_a_loaded_model_executes_as_its_estimator_says(tmp_path):
    gb.GPUBoostClassifier(**FITTED).fit(X, y).save_model(tmp_path / "model.json")
    model = gb.GPUBoostClassifier(n_jobs=1, device="cpu")
    model.load_model(tmp_path / "model.json")
    assert (configuration(model)["nthread"], configuration(model)["device"]) == ("1", "cpu")


@pytest.mark.parametrize("given", [
    lambda: FRAME, lambda: FRAME.lazy(), lambda: nw.from_native(FRAME), lambda: nw.from_native(FRAME.lazy()),
    lambda: FRAME.to_arrow(), lambda: FRAME.to_arrow().to_reader(),
    lambda: pa.RecordBatch.from_pydict(FRAME.to_dict(as_series=False)),
])  # fmt: skip
def test_estimators_read_frames_that_are_computed_or_streamed(given):
    expected = gb.GPUBoostClassifier(n_estimators=3).fit(FRAME.to_pandas(), y)
    model = gb.GPUBoostClassifier(n_estimators=3).fit(given(), y, eval_set=[(given(), y)])
    assert model.n_features_in_ == 3 and model.feature_names_in_.tolist() == ["a", "b", "c"]
    assert model.get_booster().save_raw() == expected.get_booster().save_raw()
    assert np.array_equal(model.predict_proba(given()), expected.predict_proba(X))
    explained = model.explain(given())
    assert explained.shape == (120, 3) and np.array_equal(explained.data, X)
    assert np.array_equal(gb.explainer(model.get_booster())(given()).data, X)


@pytest.mark.parametrize("given", [lambda frame: frame.lazy(), lambda frame: frame.to_arrow().to_reader()])
def test_rankers_find_queries_in_frames_that_are_computed(given):
    frame = FRAME.with_columns(pl.Series("qid", np.arange(120) // 10))
    expected = gb.GPUBoostRanker(n_estimators=3).fit(FRAME, y, qid=np.arange(120) // 10)
    model = gb.GPUBoostRanker(n_estimators=3).fit(given(frame), y)
    assert np.array_equal(model.predict(given(frame)), expected.predict(FRAME))
    assert model.score(given(frame), y) == expected.score(FRAME, y, qid=np.arange(120) // 10)


def test_what_is_no_table_is_refused_with_a_remedy(tmp_path):
    model = gb.GPUBoostClassifier(n_estimators=3).fit(X, y)
    for given in ("rows.parquet", pa.dataset.dataset(FRAME.to_arrow())):
        with pytest.raises(TypeError, match=r"X must be a table or a DMatrix, got .* Make one: gpuboost.DMatrix\(X\)"):
            model.predict(given)
    with pytest.raises(ValueError, match=r"Pass the values, data\['c'\]"):
        gb.DMatrix(FRAME, label="c")


def test_objects_of_xgboost_are_called_by_their_module():
    xgb = pytest.importorskip("xgboost")
    theirs, ours = xgb.DMatrix(X, y), gb.DMatrix(X, y)
    booster, model = xgb.train({}, theirs, 2), gb.train({}, ours, 2)
    estimator = xgb.XGBClassifier(n_estimators=2).fit(X, y)
    for call in (lambda: gb.train({}, theirs, 2), lambda: model.predict(theirs), lambda: gb.cv({}, theirs, 2),
                 lambda: gb.train({}, ours, 2, evals=[(theirs, "e")]), lambda: gb.QuantileDMatrix(X, ref=theirs)):  # fmt: skip
        with pytest.raises(TypeError, match=r"got \(?xgboost\.DMatrix"):
            call()
    for call in (lambda: gb.train({}, ours, 2, xgb_model=booster), lambda: gb.plot_importance(booster),
                 lambda: gb.explainer(booster)):  # fmt: skip
        with pytest.raises(TypeError, match=r"xgboost\.Booster\. Read it: .*\(model_file=model\.save_raw\(\)\)"):
            call()
    for call in (gb.explainer, gb.plot_importance):
        with pytest.raises(TypeError, match=r"XGBClassifier\. Read it: .*model\.get_booster\(\)\.save_raw\(\)"):
            call(estimator)
    fitted = gb.GPUBoostClassifier(n_estimators=2).fit(X, y)
    for call in (gb.DMatrix, fitted.predict, lambda matrix: fitted.fit(matrix, y)):
        with pytest.raises(TypeError, match=r"got xgboost\.DMatrix"):
            call(theirs)
    read = gb.Booster(model_file=booster.save_raw())
    np.testing.assert_allclose(read.predict(ours), booster.predict(theirs), rtol=1e-6)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_explainers_have_the_idioms_of_shaps(n_classes):
    labels = np.arange(120) % n_classes
    model = gb.GPUBoostClassifier(n_estimators=3).fit(FRAME, labels)
    explainer, margins = gb.explainer(model), model.predict(FRAME, output_margin=True)
    values = explainer.shap_values(FRAME, check_additivity=False)
    np.testing.assert_allclose(values.sum(axis=1) + explainer.expected_value, margins, atol=1e-5)
    assert isinstance(explainer.expected_value, float) == (n_classes == 2)


def test_an_explainer_of_categories_knows_what_nobody_has():
    frame = FRAME.with_columns(pl.Series("kind", ["u", "v", "w"] * 40, dtype=pl.Categorical))
    model = gb.GPUBoostClassifier(n_estimators=3).fit(frame, y)
    explainer = gb.explainer(model)
    assert explainer.expected_value == pytest.approx(model.explain(frame).base_values[0])
    against = gb.explainer(model, frame)
    assert against.expected_value == pytest.approx(model.predict(frame, output_margin=True).mean(), abs=1e-5)


def test_whole_floats_count_rounds():
    assert gb.GPUBoostRegressor(n_estimators=np.float64(3)).fit(X, y).get_booster().num_boosted_rounds() == 3
    for wrong in (3.5, float("inf"), float("nan")):
        with pytest.raises(ValueError, match="n_estimators must be an integer"):
            gb.GPUBoostRegressor(n_estimators=wrong).fit(X, y)
