"""Fitting estimators: as train() does, with evaluations, early stopping, functions and margins, and going on with a model."""

from functools import partial

import numpy as np
import pytest
from estimator_tables import digest, make_table

import gpuboost as gb

pytest.importorskip("sklearn", minversion="1.6")
import scipy.sparse as sp  # noqa: E402
from sklearn.exceptions import NotFittedError  # noqa: E402
from sklearn.metrics import log_loss, mean_absolute_error  # noqa: E402

from gpuboost import GPUBoostClassifier, GPUBoostRegressor  # noqa: E402
from gpuboost.callback import EarlyStopping, TrainingCallback  # noqa: E402

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def table():
    return make_table()


def test_regressor_is_the_booster_of_train(table):
    X, y, w = table
    model = GPUBoostRegressor(n_estimators=5, learning_rate=0.2, max_depth=3, reg_lambda=2, random_state=7, n_jobs=1)
    model.fit(X, y, sample_weight=w)
    params = {"learning_rate": 0.2, "max_depth": 3, "reg_lambda": 2, "seed": 7}
    booster = gb.train(params, gb.DMatrix(X, y, weight=w), 5)
    assert digest(model) == bytes(booster.save_raw("json"))
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


def test_early_stopping_predicts_with_the_best_rounds(table):
    X, signal, _ = table
    y = np.where(signal > 1, "high", "low")
    model = GPUBoostClassifier(n_estimators=200, learning_rate=0.5, early_stopping_rounds=3, eval_metric=["error", "logloss"])
    model.fit(X[:100], y[:100], eval_set=[(X[:100], y[:100]), (X[100:], y[100:])])
    history = model.evals_result()["validation_1"]["logloss"]
    best = int(np.argmin(history))
    assert model.best_iteration == best and model.best_score == history[best] and len(history) == best + 4 < 200
    np.testing.assert_array_equal(model.predict_proba(X), model.predict_proba(X, iteration_range=(0, best + 1)))
    assert (model.predict_proba(X) != model.predict_proba(X, iteration_range=(0, best + 4))).any()
    for ends_open in ((0, 0), (best + 2, 0)):  # as XGBoost
        np.testing.assert_array_equal(model.predict_proba(X), model.predict_proba(X, iteration_range=ends_open))
    assert model.apply(X).shape == model.apply(X, iteration_range=(0, 0)).shape == (300, best + 1)
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


def test_early_stopping_as_a_callback_predicts_with_the_best_rounds_too(table):
    X, y, _ = table
    options = {"n_estimators": 200, "learning_rate": 0.5}
    plain = GPUBoostRegressor(early_stopping_rounds=3, **options).fit(X[:100], y[:100], eval_set=[(X[100:], y[100:])])
    called = GPUBoostRegressor(callbacks=[EarlyStopping(rounds=3)], **options)
    called.fit(X[:100], y[:100], eval_set=[(X[100:], y[100:])])
    assert digest(called) == digest(plain) and called.best_iteration == plain.best_iteration
    np.testing.assert_array_equal(called.predict(X), plain.predict(X))


def test_callbacks_see_every_round(table):
    X, y, _ = table

    class Rounds(TrainingCallback):
        def after_iteration(self, model, epoch, evals_log):
            seen.append((epoch, len(evals_log["validation_0"]["rmse"])))
            return epoch == 2

    seen = []
    model = GPUBoostRegressor(n_estimators=9, callbacks=[Rounds()]).fit(X, y, eval_set=[(X, y)])
    assert seen == [(0, 1), (1, 2), (2, 3)] and model.get_booster().num_boosted_rounds() == 3


@pytest.mark.parametrize("params", [{}, {"subsample": 0.5}, {"booster": "dart", "rate_drop": 0.5}, {"booster": "gblinear"},
                                    {"objective": "reg:absoluteerror"}, {"tree_method": "approx"}], ids=str)  # fmt: skip
def test_the_training_table_is_evaluated_as_what_it_is(table, params, monkeypatch):
    """The same objects are the training's matrix, with the scores of their copy; others, also without its weights, are not."""
    (X, y, w), made = table, []

    class Matrix(gb.DMatrix):
        def __init__(self, *args, **kwargs):
            made.append(args[0])
            super().__init__(*args, **kwargs)

    monkeypatch.setattr("gpuboost.sklearn.base.DMatrix", Matrix)
    model = GPUBoostRegressor(n_estimators=4, eval_metric=["rmse", "mae"], **params)
    model.fit(X, y, sample_weight=w, eval_set=[(X, y), (X.copy(), y), (X, y)], sample_weight_eval_set=[w, w.copy(), None])
    own, copied, unweighted = model.evals_result().values()
    assert len(made) == 3 and own == copied
    model.fit(X, y, eval_set=[(X, y)])
    assert len(made) == 4
    model.fit(X, y, sample_weight=w, eval_set=[(X, y)])
    assert model.evals_result()["validation_0"] == unweighted != own


def test_with_target_statistics_the_training_table_is_scored_as_the_model_predicts_it():
    pd, rng = pytest.importorskip("pandas"), np.random.default_rng(0)
    city, effect = rng.integers(0, 100, 1000), rng.normal(size=100)
    X, y = pd.DataFrame({"city": pd.Categorical(city)}), effect[city] + rng.normal(size=1000)
    model = GPUBoostRegressor(n_estimators=4, cat_encoding="statistics").fit(X, y, eval_set=[(X, y)])
    expected = np.sqrt(np.mean((model.predict(X) - y) ** 2))
    assert model.evals_result()["validation_0"]["rmse"][-1] == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("eval_set", ["Xy", [0], "bare pair"])
def test_eval_set_must_be_a_list_of_pairs(table, eval_set):
    X, y, _ = table
    with pytest.raises(ValueError, match="eval_set must be a list of .X, y. pairs. Pass eval_set="):
        GPUBoostRegressor(n_estimators=1).fit(X, y, eval_set=(X, y) if eval_set == "bare pair" else eval_set)


def test_evaluation_labels_must_be_known(table):
    X, signal, _ = table
    y = np.where(signal > 1, "high", "low")
    with pytest.raises(ValueError, match=r"eval_set\[0\] has labels that the training data does not have: 'middle'"):
        GPUBoostClassifier(n_estimators=1).fit(X, y, eval_set=[(X[:2], ["low", "middle"])])


@pytest.mark.parametrize("kind", ["array", "frame", "sparse"])
def test_refit_full_trains_once_more_on_all_rows_with_the_rounds_found(table, kind):
    X, y, weight = table
    pandas = pytest.importorskip("pandas")
    rows = {"array": X, "frame": pandas.DataFrame(X, columns=list("abcd")), "sparse": sp.csr_matrix(np.nan_to_num(X))}[kind]
    head, tail = (rows.iloc[:200], rows.iloc[200:]) if kind == "frame" else (rows[:200], rows[200:])
    options = {"n_estimators": 200, "learning_rate": 0.5, "early_stopping_rounds": 3}
    given = {"sample_weight": weight[:200], "sample_weight_eval_set": [weight[200:]], "eval_set": [(tail, y[200:])]}
    plain = GPUBoostRegressor(**options).fit(head, y[:200], **given)
    model = GPUBoostRegressor(**options, refit_full=True).fit(head, y[:200], **given)
    n_rounds = plain.best_iteration + 1
    assert n_rounds < 200 and (model.best_iteration, model.best_score) == (plain.best_iteration, plain.best_score)
    assert model.evals_result() == plain.evals_result()
    whole = GPUBoostRegressor(n_estimators=n_rounds, learning_rate=0.5).fit(rows, y, sample_weight=weight)
    assert model.get_booster().model.trees == whole.get_booster().model.trees
    np.testing.assert_array_equal(model.predict(rows), whole.predict(rows))


def test_refit_full_refuses_what_cannot_be_joined(table):
    X, y, _ = table
    model = GPUBoostRegressor(early_stopping_rounds=2, refit_full=True)
    with pytest.raises(ValueError, match="refit_full joins X, ndarray, and the X of eval_set, csr_matrix"):
        model.fit(X, y, eval_set=[(sp.csr_matrix(np.nan_to_num(X)), y)])
    with pytest.raises(ValueError, match="refit_full needs base_margin for X and for eval_set, or for neither"):
        model.fit(X, y, base_margin=y, eval_set=[(X, y)])


def test_early_stopping_without_eval_set_says_what_to_pass(table):
    with pytest.raises(ValueError, match="early_stopping_rounds needs an evaluation set. Pass eval_set"):
        GPUBoostRegressor(early_stopping_rounds=2).fit(*table[:2])


@pytest.mark.parametrize("kind", [GPUBoostClassifier, GPUBoostRegressor, gb.GPUBoostRanker])
def test_fit_says_where_its_old_arguments_went(table, kind):
    with pytest.raises(TypeError, match=rf"fit takes no eval_metric.*Pass it there: {kind.__name__}\(eval_metric=\.\.\.\)"):
        kind().fit(*table[:2], eval_metric="rmse")
    for name in ("sample_weigth", "predict"):
        with pytest.raises(TypeError, match=f"unexpected keyword argument '{name}'"):
            kind().fit(*table[:2], **{name: None})


@pytest.mark.parametrize("verbose, n_lines", [(False, 0), (True, 4), (2, 3)])
def test_verbose_prints_evaluations(table, verbose, n_lines, capsys):
    X, y, _ = table
    GPUBoostRegressor(n_estimators=4).fit(X, y, eval_set=[(X, y)], verbose=verbose)
    assert len(capsys.readouterr().out.splitlines()) == n_lines


def test_functions_as_objective_and_metric(table):
    X, y, w = table
    w = 2.0 ** np.floor(np.log2(w))  # with which rounding to 20 bits before or after weighting is the same

    def squared(y_true, y_pred, sample_weight=1.0):
        return (y_pred - y_true) * sample_weight, np.ones_like(y_pred) * sample_weight

    model = GPUBoostRegressor(n_estimators=3, objective=squared, eval_metric=mean_absolute_error)
    model.fit(X, y, sample_weight=w, eval_set=[(X, y)], sample_weight_eval_set=[w])
    plain = GPUBoostRegressor(n_estimators=3, eval_metric="mae", base_score=0.5)  # where functions start, as in XGBoost
    plain.fit(X, y, sample_weight=w, eval_set=[(X, y)], sample_weight_eval_set=[w])
    assert digest(model) == digest(plain)
    values = model.evals_result()["validation_0"]["mean_absolute_error"]
    assert values == pytest.approx(plain.evals_result()["validation_0"]["mae"], rel=1e-5)


def test_a_partial_metric_has_the_name_of_its_function_and_an_object_that_of_its_class(table):
    X, y, _ = table

    class Largest:
        def __call__(self, y_true, y_pred):
            return abs(y_true - y_pred).max()

    of_function = partial(partial(mean_absolute_error), multioutput="uniform_average")
    for metric, name in ((of_function, "mean_absolute_error"), (Largest(), "Largest")):
        model = GPUBoostRegressor(n_estimators=2, eval_metric=metric).fit(X, y, eval_set=[(X, y)])
        assert list(model.evals_result()["validation_0"]) == ["rmse", name]


def test_several_metrics_by_name_and_as_functions(table):
    X, y, _ = table
    median = lambda y_true, y_pred: np.median(abs(y_true - y_pred))
    median.__name__ = "median"
    names_of = {("mae", mean_absolute_error, median): ["mae", "mean_absolute_error", "median"], (median,): ["rmse", "median"]}
    for metrics, names in names_of.items():
        model = GPUBoostRegressor(n_estimators=1, eval_metric=list(metrics)).fit(X, y, eval_set=[(X, y)])
        assert list(model.evals_result()["validation_0"]) == names
    assert model.get_booster().params.eval_metric == ()


def test_a_function_that_takes_no_weights_is_refused_where_rows_have_some(table):
    X, y, w = table
    model = GPUBoostRegressor(n_estimators=1, objective=lambda y_true, y_pred: (y_pred - y_true, y_true * 0 + 1))
    model.fit(X, y)
    with pytest.raises(TypeError, match=r"called as \(y_true, y_pred, sample_weight=...\), but .* It must take sample_weight"):
        model.fit(X, y, sample_weight=w)


def test_continuing_from_an_estimator_gives_one_training(table):
    X, signal, _ = table
    y = signal > 1
    half = GPUBoostClassifier(n_estimators=3).fit(X, y)
    assert digest(GPUBoostClassifier(n_estimators=2).fit(X, y, xgb_model=half)) == digest(
        GPUBoostClassifier(n_estimators=5).fit(X, y)
    )


def test_continuing_from_a_file_gives_one_training(table, tmp_path):
    X, y, _ = table
    GPUBoostRegressor(n_estimators=3).fit(X, y).save_model(tmp_path / "m.json")
    continued = GPUBoostRegressor(n_estimators=2).fit(X, y, xgb_model=tmp_path / "m.json")
    assert digest(continued) == digest(GPUBoostRegressor(n_estimators=5).fit(X, y))
    from_itself = continued.fit(X, y, xgb_model=continued)
    assert digest(from_itself) == digest(GPUBoostRegressor(n_estimators=7).fit(X, y))


def test_continuing_after_early_stopping_predicts_with_the_new_rounds(table):
    X, y, _ = table
    first = GPUBoostRegressor(n_estimators=200, learning_rate=0.5, early_stopping_rounds=2)
    first.fit(X[:100], y[:100], eval_set=[(X[100:], y[100:])])
    n_first = first.get_booster().num_boosted_rounds()
    model = GPUBoostRegressor(n_estimators=5).fit(X, y, xgb_model=first)
    assert model.apply(X).shape == (300, n_first + 5) and not hasattr(model, "best_iteration")
    assert first.best_iteration < n_first  # and the first model is as it was


def test_a_failed_fit_leaves_no_model_of_other_labels(table):
    X, signal, _ = table
    model = GPUBoostClassifier(n_estimators=2).fit(X, signal > 1)
    with pytest.raises(ValueError, match="infinite"):
        model.fit(np.full_like(X, np.inf), np.where(signal > 1, "high", "low"))
    with pytest.raises(NotFittedError):
        model.predict(X)


def test_base_margin_of_several_classes_replaces_the_start(table):
    X, signal, _ = table
    y = np.digitize(signal, [0.7, 1.2])
    margin = np.random.default_rng(0).normal(size=(300, 3))
    model = GPUBoostClassifier(n_estimators=2).fit(X, y, base_margin=margin)
    shifted, plain = (model.predict(X, output_margin=True, base_margin=start) for start in (margin, 0 * margin))
    np.testing.assert_allclose(shifted - plain, margin, atol=1e-6)  # float32 sums of a few margins below 4


def test_base_margin_shifts_predictions(table):
    X, y, _ = table
    model = GPUBoostRegressor(n_estimators=2).fit(X, y - 100, base_margin=np.full(300, -100.0))
    shifted = model.predict(X, base_margin=np.zeros(300))
    np.testing.assert_allclose(shifted, model.predict(X, base_margin=np.ones(300)) - 1, atol=1e-6)


def test_continuing_with_other_classes_is_refused():
    X = np.arange(20.0)[:, None]
    model = gb.GPUBoostClassifier(n_estimators=2).fit(X, np.repeat(["a", "b"], 10))
    continued = gb.GPUBoostClassifier(n_estimators=2).fit(X, np.repeat(["a", "b"], 10), xgb_model=model)
    assert continued.get_booster().num_boosted_rounds() == 4
    with pytest.raises(ValueError, match="knows the classes"):
        gb.GPUBoostClassifier(n_estimators=2).fit(X, np.repeat(["b", "c"], 10), xgb_model=model)


@pytest.mark.parametrize("given", [{"sample_weight": []}, {"base_margin": np.zeros(0)}])
def test_no_values_for_rows_that_are_there_are_an_error(given):
    """A DMatrix takes an empty list for none."""
    with pytest.raises(ValueError, match="has 0 rows, data has 80. Both need the same rows"):
        GPUBoostRegressor(n_estimators=1).fit(np.zeros((80, 2)), np.arange(80.0), **given)
    X, y = np.zeros((80, 2)), np.arange(80.0)
    with pytest.raises(ValueError, match="must have shape"):
        GPUBoostRegressor(n_estimators=1).fit(X, y, **dict.fromkeys(given, np.array(1.0)))
    with pytest.raises(ValueError, match="has 0 rows, data has 80"):
        GPUBoostRegressor(n_estimators=1).fit(X, y, eval_set=[(X, y)], sample_weight_eval_set=[[]])


def test_refit_full_joins_categories_by_value_and_refuses_before_it_trains(monkeypatch):
    pd, rng = pytest.importorskip("pandas"), np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.random(90), "k": pd.Categorical(list("xyz") * 30)})
    y, own = np.arange(90) % 2, (frame["k"] != "z").to_numpy()
    valid = frame[own].assign(k=frame["k"][own].cat.remove_unused_categories())
    options = {"n_estimators": 5, "early_stopping_rounds": 2}
    model = gb.GPUBoostClassifier(**options, refit_full=True).fit(frame, y, eval_set=[(valid, y[own])], verbose=False)
    rounds = model.get_booster().num_boosted_rounds()
    both = pd.concat([frame, frame[own]])
    expected = gb.GPUBoostClassifier(n_estimators=rounds).fit(both, np.concatenate([y, y[own]]))
    np.testing.assert_array_equal(model.predict_proba(frame), expected.predict_proba(frame))
    in_order = frame.assign(k=frame["k"].cat.as_ordered())
    same = gb.GPUBoostClassifier(**options, refit_full=True).fit(frame, y, eval_set=[(in_order, y)], verbose=False)
    assert same.get_booster().num_boosted_rounds() > 0
    pl = pytest.importorskip("polars")
    head = pl.DataFrame({"k": pl.Series(list("abc") * 30, dtype=pl.Enum(list("abc")))})
    tail = pl.DataFrame({"k": pl.Series(list("ab") * 30, dtype=pl.Enum(list("ab")))})
    monkeypatch.setattr(gb.Booster, "update", lambda *_: pytest.fail("trained"))
    with pytest.raises(ValueError, match="refit_full cannot join X and the X of eval_set.*of the same types"):
        gb.GPUBoostClassifier(**options, refit_full=True).fit(head, y, eval_set=[(tail, y[:60])])
    codes = frame.assign(k=frame["k"].cat.codes)
    for pair in ((frame, codes), (codes, frame)):
        with pytest.raises(ValueError, match="refit_full cannot join .*'k' is of categories in one of them only"):
            gb.GPUBoostClassifier(**options, refit_full=True).fit(pair[0], y, eval_set=[(pair[1], y)])
