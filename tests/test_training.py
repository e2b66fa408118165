"""train(): what is evaluated, when training stops, where it starts, and what is refused."""

import gc
import math
import weakref

import numpy as np
import pytest
from small_tables import PARAMS, make_table, model_bytes

import gpuboost as gb
from gpuboost.backend.cuda.device import has_gpu
from gpuboost.communicator import SingleProcess, run_threads
from gpuboost.config import config_context


@pytest.fixture(params=PARAMS)
def objective(request):
    return request.param


# -- Evaluation -------------------------------------------------------------------------------------------------------


def scores_by_hand(objective, y, p, w):
    """metric → value by scikit-learn on predictions p."""
    metrics = pytest.importorskip("sklearn.metrics")
    if objective == "reg:squarederror":
        return {
            "rmse": math.sqrt(metrics.mean_squared_error(y, p, sample_weight=w)),
            "mae": metrics.mean_absolute_error(y, p, sample_weight=w),
        }
    if objective == "binary:logistic":
        return {
            "logloss": metrics.log_loss(y, p.astype(np.float64), sample_weight=w),
            "error": 1.0 - metrics.accuracy_score(y, p > 0.5, sample_weight=w),
            "error@0.7": 1.0 - metrics.accuracy_score(y, p > 0.7, sample_weight=w),
            "auc": metrics.roc_auc_score(y, p, sample_weight=w),
            "rmse": math.sqrt(metrics.mean_squared_error(y, p, sample_weight=w)),
        }
    p = p.astype(np.float64) / p.sum(axis=1, dtype=np.float64, keepdims=True)
    return {
        "mlogloss": metrics.log_loss(y, p, sample_weight=w),
        "merror": 1.0 - metrics.accuracy_score(y, p.argmax(axis=1), sample_weight=w),
        "auc": metrics.roc_auc_score(y, p, sample_weight=w, multi_class="ovr", average="weighted"),
    }


@pytest.mark.parametrize("is_weighted", [False, True])
def test_evals_result_holds_the_metrics_of_every_rounds_predictions(objective, is_weighted):
    X, y, w = make_table(objective)
    w = w if is_weighted else None
    parts = [slice(0, 250), slice(250, 400)]
    dtrain, dvalid = (gb.DMatrix(X[rows], y[rows], weight=None if w is None else w[rows]) for rows in parts)
    names = list(scores_by_hand(objective, y, np.full((400, 3), 1 / 3) if "multi" in objective else np.full(400, 0.4), None))
    result = {}
    booster = gb.train(
        {**PARAMS[objective], "eval_metric": names, "max_depth": 2}, dtrain, 4, evals=[(dtrain, "train"), (dvalid, "valid")],
        evals_result=result, verbose_eval=False,
    )  # fmt: skip
    assert list(result) == ["train", "valid"] and list(result["train"]) == names
    for (data, dmatrix), rows in zip([("train", dtrain), ("valid", dvalid)], parts):
        for r in range(4):
            p = booster.predict(dmatrix, iteration_range=(0, r + 1))
            for name, expected in scores_by_hand(objective, y[rows], p, None if w is None else w[rows]).items():
                # 1e-6: AUC's weights are rounded to 30 bits, and predictions to float32; atol for error rates of 0.
                assert result[data][name][r] == pytest.approx(expected, rel=1e-6, abs=1e-9), (data, name, r)


def test_each_objective_reports_its_own_metric_unless_told_otherwise(objective):
    X, y, _ = make_table(objective)
    dtrain = gb.DMatrix(X, y)

    def reported(**params):
        result = {}
        gb.train({**PARAMS[objective], **params}, dtrain, 1, evals=[(dtrain, "t")], evals_result=result, verbose_eval=False)
        return list(result.get("t", {}))

    own = {"reg:squarederror": "rmse", "binary:logistic": "logloss", "multi:softprob": "mlogloss"}[objective]
    assert reported() == [own]
    assert reported(eval_metric="auc" if objective != "reg:squarederror" else "mae") != [own]
    assert reported(disable_default_eval_metric=True) == []


def test_eval_set_writes_what_evaluate_measures():
    X, y, _ = make_table("reg:squarederror")
    dmatrix = gb.DMatrix(X, y)
    booster = gb.train({}, dmatrix, 2)
    ((data, metric, value),) = booster.evaluate([(dmatrix, "t")])
    assert (data, metric) == ("t", "rmse")
    assert booster.eval_set([(dmatrix, "t")], 7) == f"[7]\tt-rmse:{value:.17g}"
    assert booster.eval(dmatrix, "t", 7) == booster.eval_set([(dmatrix, "t")], 7)


def test_early_stopping_ends_so_many_rounds_after_the_best():
    X, y, _ = make_table("reg:squarederror")
    dtrain, dvalid = gb.DMatrix(X[:80], y[:80]), gb.DMatrix(X[80:], y[80:])
    result = {}
    booster = gb.train(
        {"eta": 0.5}, dtrain, 200, evals=[(dvalid, "v")], early_stopping_rounds=5, evals_result=result, verbose_eval=False
    )
    values = result["v"]["rmse"]
    best = int(np.argmin(values))
    assert booster.best_iteration == best and booster.best_score == values[best]
    assert booster.num_boosted_rounds() == len(values) == best + 6 < 200


def test_maximize_turns_early_stopping_around():
    X, y, _ = make_table("reg:squarederror")
    dmatrix = gb.DMatrix(X, y)
    booster = gb.train({}, dmatrix, 20, evals=[(dmatrix, "t")], early_stopping_rounds=2, maximize=True, verbose_eval=False)
    assert (booster.num_boosted_rounds(), booster.best_iteration) == (3, 0)


def test_best_iteration_needs_early_stopping():
    X, y, _ = make_table("reg:squarederror")
    booster = gb.train({}, gb.DMatrix(X, y), 1)
    with pytest.raises(AttributeError, match="best_iteration is only defined when early stopping is used"):
        _ = booster.best_iteration


@pytest.mark.parametrize("verbose_eval, rounds", [(True, [0, 1, 2, 3, 4]), (3, [0, 3, 4]), (False, []), (None, []), (0, [])])
def test_verbose_eval_prints_every_so_many_rounds_and_the_last(verbose_eval, rounds, capsys):
    X, y, _ = make_table("reg:squarederror")
    dmatrix = gb.DMatrix(X, y)
    result = {}
    gb.train({}, dmatrix, 5, evals=[(dmatrix, "t")], verbose_eval=verbose_eval, evals_result=result)
    assert capsys.readouterr().out.splitlines() == [f"[{r}]\tt-rmse:{result['t']['rmse'][r]:.5f}" for r in rounds]


def test_codes_of_another_training_are_not_taken_for_those_of_an_evaluation():
    """The columns of a and b have the same cuts, so only their order tells the codes of (b, a) from those of (a, b)."""
    pd = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.integers(0, 6, (400, 2)).astype(np.float32), columns=["a", "b"])
    y = 3.0 * frame["a"].to_numpy()
    trained_on, fresh = gb.DMatrix(frame[["b", "a"]], y), gb.DMatrix(frame[["b", "a"]], y)
    gb.train({}, trained_on, 1)
    result = {}
    gb.train({}, gb.DMatrix(frame, y), 5, evals=[(trained_on, "x"), (fresh, "y")], evals_result=result, verbose_eval=False)
    assert result["x"] == result["y"]


def test_labels_of_evaluations_must_be_such_as_training_takes(objective):
    X, y, _ = make_table(objective)
    dtrain = gb.DMatrix(X, y)
    for label, message in ((y + 1e9, "needs labels that are"), (np.stack([y, y], axis=1), "2 columns, the model has 1")):
        if objective == "reg:squarederror" and label.ndim == 1:
            continue
        with pytest.raises(ValueError, match=message):
            gb.train(PARAMS[objective], dtrain, 1, evals=[(gb.DMatrix(X, label), "t")], verbose_eval=False)


def test_labels_of_rows_of_weight_zero_do_not_count_in_metrics():
    X, y, w = make_table("multi:softprob")
    w[:50] = 0
    wrong = np.where(w == 0, 1e9, y)
    results = [{}, {}]
    for label, result in zip((y, wrong), results):
        dtrain = gb.DMatrix(X, label, weight=w)
        gb.train(PARAMS["multi:softprob"], dtrain, 2, evals=[(dtrain, "t")], evals_result=result, verbose_eval=False)
    assert results[0] == results[1]


def test_auc_of_many_weighted_rows_does_not_overflow():
    from gpuboost.metrics.auc import SUM_BITS, WEIGHT_BITS, _integer_weights

    n_rows = 1 << 23
    for bits, least in ((WEIGHT_BITS, 29), (SUM_BITS, 36)):
        weight = _integer_weights(np.full(n_rows, 1.99, np.float32), np.ones(n_rows), bits, SingleProcess())
        assert 2 * int(weight[0]) * n_rows < 2**63 and weight[0] > 2**least


def test_auc_of_workers_of_which_one_has_weights():
    X, y, _ = make_table("binary:logistic")

    def work(rank):
        own, result = slice(rank, None, 2), {}
        dtrain = gb.DMatrix(X[own], y[own], weight=None if rank else np.ones(len(y[own])))
        params = {**PARAMS["binary:logistic"], "eval_metric": "auc"}
        gb.train(params, dtrain, 2, evals=[(dtrain, "t")], evals_result=result, verbose_eval=False)
        return result

    first, second = run_threads(2, work)
    assert first == second


def test_custom_metric_may_overwrite_what_it_sees():
    X, y, _ = make_table("reg:squarederror")
    dtrain = gb.DMatrix(X, y)

    def greedy(prediction, dmatrix):
        prediction[:] = 0
        return "greedy", 0.0

    booster = gb.train({}, dtrain, 3, evals=[(dtrain, "t")], custom_metric=greedy, verbose_eval=False)
    assert model_bytes(booster) == model_bytes(gb.train({}, dtrain, 3))


# -- Custom functions -------------------------------------------------------------------------------------------------


def test_custom_objective_gives_the_model_of_the_built_in_one():
    X, y, w = make_table("reg:squarederror")
    # Gradients are cut to 20 bits before they are weighted, a function's after: the same where weights are powers of two.
    dtrain = gb.DMatrix(X, y, weight=2.0 ** np.floor(np.log2(w)))

    def squared_error(margin, dmatrix):
        weight = dmatrix.get_weight()
        return (margin - dmatrix.get_label()) * weight, weight

    own = gb.train({"base_score": 0.5}, dtrain, 5)  # where a custom objective starts, as in XGBoost
    assert model_bytes(gb.train({}, dtrain, 5, obj=squared_error)) == model_bytes(own)


def test_custom_objective_of_several_outputs_sees_and_returns_rows_by_outputs():
    X, y, _ = make_table("multi:softprob")
    dtrain = gb.DMatrix(X, y)
    is_class = (y[:, None] == np.arange(3)).astype(np.float32)

    def softmax(margin, dmatrix):
        assert margin.shape == (len(y), 3) and margin.dtype == np.float32
        p = np.exp(margin - margin.max(axis=1, keepdims=True))
        p /= p.sum(axis=1, keepdims=True)
        return p - is_class, 2.0 * p * (1.0 - p)

    own = gb.train({**PARAMS["multi:softprob"], "base_score": 0.5}, dtrain, 3)
    custom = gb.train(PARAMS["multi:softprob"], dtrain, 3, obj=softmax)
    # NumPy's exp differs from ours in the last bit, which stochastic rounding may turn into one unit of 2^-15.
    np.testing.assert_allclose(custom.predict(dtrain), own.predict(dtrain), atol=1e-3)


def test_an_objective_of_a_class_is_told_the_round():
    X, y, _ = make_table("reg:squarederror")
    dtrain, rounds = gb.DMatrix(X, y), []

    class SquaredError(gb.TreeObjective):
        def __call__(self, iteration, y_pred, dtrain):
            rounds.append(iteration)
            return y_pred - dtrain.get_label(), np.ones_like(y_pred)

    own = gb.train({"base_score": 0.5}, dtrain, 3)
    assert model_bytes(gb.train({}, dtrain, 3, obj=SquaredError())) == model_bytes(own) and rounds == [0, 1, 2]
    gb.cv({}, dtrain, 2, nfold=2, obj=SquaredError())
    booster = gb.Booster({})
    booster.boost(dtrain, 7, fobj=SquaredError())
    assert sorted(rounds[3:7]) == [0, 0, 1, 1] and rounds[7:] == [7]
    model = gb.GPUBoostRegressor(n_estimators=3, objective=SquaredError()).fit(X, y)
    np.testing.assert_array_equal(model.predict(X), own.predict(dtrain))

    class Forgetful(gb.TreeObjective):
        def __call__(self, iteration, y_pred, dtrain):
            return None

    with pytest.raises(TypeError, match="must return .grad, hess., one number each per prediction, got None"):
        gb.train({}, dtrain, 1, obj=Forgetful())


def test_boost_takes_gradients_like_a_custom_objective():
    X, y, _ = make_table("reg:squarederror")
    dtrain = gb.DMatrix(X, y)
    for given in ({"grad": -y, "hess": np.ones_like(y)}, {"fobj": lambda *_: (-y, np.ones_like(y))}):
        booster = gb.Booster({"base_score": 0.0})
        booster.boost(dtrain, **given)
        assert model_bytes(booster) == model_bytes(gb.train({"base_score": 0.0}, dtrain, 1))
    for given in ({}, {"grad": -y}, {"grad": -y, "hess": y, "fobj": lambda *_: (-y, y)}):
        with pytest.raises(ValueError, match="Pass grad and hess, or fobj"):
            gb.Booster({}).boost(dtrain, **given)


def test_gradients_of_the_wrong_shape_are_refused():
    X, y, _ = make_table("reg:squarederror")
    with pytest.raises(ValueError, match=r"grad of the custom objective has shape \(3,\), the predictions have \(400,\)"):
        gb.train({}, gb.DMatrix(X, y), 1, obj=lambda margin, dmatrix: (np.ones(3), np.ones(3)))


@pytest.mark.parametrize("returned", [None, 1.0, (np.ones(400),), (np.ones(400),) * 3], ids=["none", "number", "one", "three"])
def test_an_objective_that_returns_no_pair_is_refused(returned):
    X, y, _ = make_table("reg:squarederror")
    with pytest.raises(TypeError, match=r"a custom objective must return \(grad, hess\), .*, got"):
        gb.train({}, gb.DMatrix(X, y), 1, obj=lambda *_: returned)


@pytest.mark.parametrize("which", ["grad", "hess"])
@pytest.mark.parametrize("values", ["ab", ["a"] * 400, [1j] * 400, [[1], [1, 2]]], ids=["ab", "a", "1j", "ragged"])
def test_gradients_that_are_no_real_numbers_are_refused(which, values):
    X, y, _ = make_table("reg:squarederror")
    pair = {"grad": np.ones(400), "hess": np.ones(400), which: values}
    with pytest.raises(TypeError, match=f"{which} of the custom objective must be an array of real numbers, got"):
        gb.train({}, gb.DMatrix(X, y), 1, obj=lambda *_: tuple(pair.values()))


@pytest.mark.parametrize("returned", [0.5, ("a", 1, 2), [0.5], [("a", 1.0), "b"], (1, 2)], ids=str)
def test_a_custom_metric_that_returns_no_names_and_values_is_refused(returned):
    X, y, _ = make_table("reg:squarederror")
    dtrain = gb.DMatrix(X, y)
    with pytest.raises(TypeError, match=r"custom_metric must return \(name, value\) or a list of such pairs, got"):
        gb.train({}, dtrain, 1, evals=[(dtrain, "t")], custom_metric=lambda *_: returned)


@pytest.mark.parametrize("value", ["bad", np.ones(2), None, 1j], ids=str)
def test_a_custom_metric_whose_value_is_no_number_is_refused(value):
    X, y, _ = make_table("reg:squarederror")
    dtrain = gb.DMatrix(X, y)
    with pytest.raises(TypeError, match="custom_metric must return a number as 'm', got"):
        gb.train({}, dtrain, 1, evals=[(dtrain, "t")], custom_metric=lambda *_: ("m", value))


@pytest.mark.filterwarnings("error")  # NumPy's, of arrays as numbers
def test_a_custom_metric_may_return_an_array_of_one_number():
    X, y, _ = make_table("reg:squarederror")
    dtrain, result = gb.DMatrix(X, y), {}
    options = {"evals": [(dtrain, "t")], "evals_result": result, "verbose_eval": False}
    gb.train({}, dtrain, 1, custom_metric=lambda *_: [("a", np.array([1.5])), ("b", np.float32(2))], **options)
    assert result["t"]["a"] == [1.5] and result["t"]["b"] == [2.0]


def test_two_metrics_of_one_name_are_refused():
    """Their values would lie in one list, and early stopping could not tell them apart."""
    X, y, _ = make_table("reg:squarederror")
    dtrain = gb.DMatrix(X, y)
    options = {"evals": [[dtrain, "t"]], "verbose_eval": False, "evals_result": (result := {})}
    for own, params in {("rmse", 1.0): {}, ("mae", 1.0): {"eval_metric": ["rmse", "mae"]}}.items():
        with pytest.raises(ValueError, match=f"two metrics are called '{own[0]}'. Leave one out of eval_metric"):
            gb.train(params, dtrain, 1, custom_metric=lambda *_, own=own: own, **options)
    gb.train({"disable_default_eval_metric": True}, dtrain, 2, custom_metric=lambda *_: ("rmse", 1.0), **options)
    assert result == {"t": {"rmse": [1.0, 1.0]}}


def test_an_unknown_metric_is_refused_where_nothing_is_evaluated():
    X, y, _ = make_table("reg:squarederror")
    with pytest.raises(ValueError, match="eval_metric must be one of .*; got 'rmsee'. Did you mean 'rmse'"):
        gb.train({"eval_metric": "rmsee"}, gb.DMatrix(X, y), 1)


def test_custom_metric_sees_probabilities_and_raw_margins_beside_a_custom_objective():
    X, y, _ = make_table("binary:logistic")
    dtrain = gb.DMatrix(X, y)
    seen = []

    def spy(prediction, dmatrix):
        assert dmatrix is dtrain
        seen.append(prediction)
        return [("first", 1.5), ("second", prediction.sum())]

    def logistic(margin, dmatrix):
        p = 1.0 / (1.0 + np.exp(-margin))
        return p - y, p * (1.0 - p)

    params, result = PARAMS["binary:logistic"], {}
    options = {"evals": [(dtrain, "t")], "custom_metric": spy, "verbose_eval": False, "evals_result": result}
    booster = gb.train(params, dtrain, 1, **options)
    np.testing.assert_array_equal(seen[-1], booster.predict(dtrain))
    assert list(result["t"]) == ["logloss", "first", "second"] and result["t"]["first"] == [1.5]
    booster = gb.train(params, dtrain, 1, obj=logistic, **options)
    np.testing.assert_array_equal(seen[-1], booster.predict(dtrain, output_margin=True))


# -- Where training starts --------------------------------------------------------------------------------------------


def logistic_loss(margin, y, w):
    return float(np.sum(w * (np.logaddexp(0.0, margin) - y * margin)))


@pytest.mark.parametrize("is_weighted", [False, True])
@pytest.mark.parametrize("objective, scale_pos_weight", [("reg:squarederror", 1), ("binary:logistic", 1), ("binary:logistic", 7)])
def test_base_score_minimises_the_loss(objective, scale_pos_weight, is_weighted):
    optimize = pytest.importorskip("scipy.optimize")
    X, y, w = make_table(objective)
    params = {**PARAMS[objective], "scale_pos_weight": scale_pos_weight}
    booster = gb.train(params, gb.DMatrix(X, y, weight=w if is_weighted else None), 0)
    w = (w if is_weighted else 1.0) * np.where(y == 1, scale_pos_weight, 1)
    if objective == "binary:logistic":
        margin = optimize.minimize_scalar(logistic_loss, args=(y, w), bracket=(-1, 1)).x
        expected = 1.0 / (1.0 + math.exp(-margin))
    else:
        expected = optimize.minimize_scalar(lambda m: float(np.sum(w * (m - y) ** 2)), bracket=(-1, 1)).x
    # A minimiser is found to the square root of float64's precision.
    assert booster.model.base_score == pytest.approx((expected,), rel=1e-6)
    np.testing.assert_allclose(booster.predict(gb.DMatrix(X)), expected, rtol=1e-6)


@pytest.mark.parametrize("is_weighted", [False, True])
def test_base_score_of_classes_minimises_the_cross_entropy(is_weighted):
    optimize = pytest.importorskip("scipy.optimize")
    X, y, w = make_table("multi:softprob")
    booster = gb.train(PARAMS["multi:softprob"], gb.DMatrix(X, y, weight=w if is_weighted else None), 0)
    w = w if is_weighted else np.ones_like(w)
    totals = np.bincount(y.astype(int), weights=w) / w.sum()

    def loss(margins):
        return np.logaddexp.reduce(margins) - totals @ margins

    margins = optimize.minimize(loss, np.zeros(3), tol=1e-10).x
    expected = np.exp(margins - np.logaddexp.reduce(margins))
    np.testing.assert_allclose(booster.predict(gb.DMatrix(X[:2])), [expected] * 2, rtol=1e-5)


def test_given_base_score_replaces_the_estimate():
    X, y, _ = make_table("binary:logistic")
    booster = gb.train({**PARAMS["binary:logistic"], "base_score": 0.25}, gb.DMatrix(X, y), 0)
    np.testing.assert_allclose(booster.predict(gb.DMatrix(X)), 0.25, rtol=1e-6)


@pytest.mark.parametrize("objective", ["count:poisson", "reg:gamma", "reg:tweedie", "survival:cox"])
def test_base_score_0_is_refused_where_margins_are_logarithms(objective):
    """From a margin of -inf no tree leads away: every prediction would be that of base_score."""
    X, y = np.arange(6.0)[:, None], np.arange(1.0, 7.0)
    params = {"objective": objective, "base_score": 0}
    with pytest.raises(ValueError, match=f"^base_score of {objective} must be above 0, got 0"):
        gb.train(params, gb.DMatrix(X, y), 1)
    booster = gb.train({"objective": objective}, gb.DMatrix(X, y), 1)
    before = booster.predict(gb.DMatrix(X))
    for go_on in (
        lambda: booster.set_param("base_score", 0),
        lambda: gb.train({"base_score": 0}, gb.DMatrix(X, y), 1, xgb_model=booster),
        lambda: gb.Booster(params, [gb.DMatrix(X, y)]).predict(gb.DMatrix(X)),
    ):
        with pytest.raises(ValueError, match=f"^base_score of {objective} must be above 0, got 0"):
            go_on()
    np.testing.assert_array_equal(booster.predict(gb.DMatrix(X)), before)
    exposed = gb.DMatrix(X, y, base_margin=np.zeros(6))  # base_score is not used
    assert np.ptp(gb.train({**params, "min_child_weight": 0}, exposed, 3).predict(exposed)) > 0


def test_base_margin_replaces_base_score_in_training_and_prediction():
    X, y, _ = make_table("reg:squarederror")
    start = np.linspace(-1, 1, len(y), dtype=np.float32)
    booster = gb.train({}, gb.DMatrix(X, y, base_margin=start), 3)
    # Boosting from a margin is boosting the residuals from zero.
    residual = gb.train({"base_score": 0.0}, gb.DMatrix(X, y - start), 3)
    with_margin = booster.predict(gb.DMatrix(X, base_margin=start), output_margin=True)
    np.testing.assert_allclose(with_margin - start, residual.predict(gb.DMatrix(X)), atol=1e-3)  # y - start is rounded
    same = booster.predict(gb.DMatrix(X, base_margin=np.full(len(y), booster.model.base_score[0])))
    np.testing.assert_array_equal(same, booster.predict(gb.DMatrix(X)))


def test_base_margin_counts_in_evaluations():
    X, y, _ = make_table("reg:squarederror")
    result = {}
    dtrain, shifted = gb.DMatrix(X, y), gb.DMatrix(X, y, base_margin=np.full(len(y), 100.0))
    gb.train({}, dtrain, 1, evals=[(shifted, "s")], evals_result=result, verbose_eval=False)
    assert result["s"]["rmse"][0] == pytest.approx(100, abs=2)


@pytest.mark.parametrize("given", ["booster", "file", "bytes"])
def test_continued_training_gives_the_model_of_one_training(objective, given, tmp_path):
    X, y, w = make_table(objective)
    dtrain = gb.DMatrix(X, y, weight=w)
    first = gb.train(PARAMS[objective], dtrain, 2)
    before = model_bytes(first)
    first.save_model(tmp_path / "m.json")
    xgb_model = {"booster": first, "file": tmp_path / "m.json", "bytes": before}[given]
    second = gb.train(PARAMS[objective], dtrain, 3, xgb_model=xgb_model)
    assert model_bytes(second) == model_bytes(gb.train(PARAMS[objective], dtrain, 5))
    assert model_bytes(first) == before


def test_continuing_a_booster_keeps_its_parameters_and_a_file_has_none():
    X, y, _ = make_table("reg:squarederror")
    dtrain = gb.DMatrix(X, y)
    params = {"learning_rate": 0.1, "max_depth": 2, "lambda": 5}
    first = gb.train(params, dtrain, 2)
    for new in ({}, {"eta": 0.7, "reg_lambda": 1}, {"max_depth": None}):
        whole = {"eta": 0.1, "max_depth": 2, "reg_lambda": 5, **new}
        from_file = gb.train(whole, dtrain, 2, xgb_model=first.save_raw())
        assert model_bytes(gb.train(new, dtrain, 2, xgb_model=first)) == model_bytes(from_file)
    assert gb.train({}, dtrain, 1, xgb_model=first.save_raw()).params.max_depth == 6
    assert first.params.learning_rate == 0.1


@pytest.mark.parametrize("objective", ["reg:squarederror", "binary:logistic"])
def test_several_label_columns_continue_with_as_many(objective):
    X, y, _ = make_table(objective)
    one, two = gb.DMatrix(X, y), gb.DMatrix(X, np.stack([y, y], axis=1))
    for first, then in ((one, two), (two, one)):
        with pytest.raises(ValueError, match="the labels have . columns, the model has . targets"):
            gb.train({"objective": objective}, then, 1, xgb_model=gb.train({"objective": objective}, first, 1))


@pytest.mark.parametrize("given", ["booster", "bytes"])
def test_continuing_forgets_the_best_round(given):
    X, y, _ = make_table("reg:squarederror")
    dtrain = gb.DMatrix(X, y)
    first = gb.train({}, dtrain, 9, evals=[(dtrain, "t")], early_stopping_rounds=2, maximize=True, verbose_eval=False)
    second = gb.train({}, dtrain, 2, xgb_model=first if given == "booster" else first.save_raw())
    assert first.best_iteration == 0 and second.num_boosted_rounds() == 5 and not second.attributes()


def test_update_boosts_like_train(objective):
    X, y, _ = make_table(objective)
    dtrain = gb.DMatrix(X, y)
    booster = gb.Booster(PARAMS[objective])
    for i in range(3):
        booster.update(dtrain, i)
    assert model_bytes(booster) == model_bytes(gb.train(PARAMS[objective], dtrain, 3))


def test_parameter_set_between_rounds_takes_effect_under_any_spelling():
    X, y, _ = make_table("reg:squarederror")
    dtrain = gb.DMatrix(X, y)
    booster = gb.Booster({"eta": 0.5, "max_depth": 2})
    booster.update(dtrain)
    booster.set_param({"learning_rate": 0.25, "max_depth": 1})
    booster.update(dtrain)
    first, second = booster.model.trees
    assert (first.n_leaves, second.n_leaves) == (4, 2)
    leaves = second.left_child < 0
    np.testing.assert_allclose(second.leaf_value[leaves], 0.25 * second.weight[leaves], rtol=1e-6)  # one float32 rounding


# -- Weights ----------------------------------------------------------------------------------------------------------


def test_row_of_weight_zero_is_absent(objective):
    X, y, w = make_table(objective)
    w[::3] = 0
    kept = w > 0
    zeroed = gb.train(PARAMS[objective], gb.DMatrix(X, y, weight=w), 3)
    assert model_bytes(zeroed) == model_bytes(gb.train(PARAMS[objective], gb.DMatrix(X[kept], y[kept], weight=w[kept]), 3))


def test_weight_two_is_the_row_twice(objective):
    X, y, _ = make_table(objective)
    w = np.where(np.arange(len(y)) % 2, 2, 1)
    params = {**PARAMS[objective], "max_depth": 2}
    weighted = gb.train(params, gb.DMatrix(X, y, weight=w), 3)
    repeated = gb.train(params, gb.DMatrix(np.repeat(X, w, axis=0), np.repeat(y, w)), 3)
    for one, other in zip(weighted.model.trees, repeated.model.trees, strict=True):
        np.testing.assert_array_equal(one.feature, other.feature)
        np.testing.assert_array_equal(one.threshold, other.threshold)
    # The sums of the leaves are rounded at 2^-40 or so of their size, then to float32.
    np.testing.assert_allclose(weighted.predict(gb.DMatrix(X)), repeated.predict(gb.DMatrix(X)), rtol=1e-5)


# -- What is refused --------------------------------------------------------------------------------------------------


def test_wrong_arguments_are_named():
    X, y, _ = make_table("reg:squarederror")
    data = gb.DMatrix(X, y)
    booster = gb.train({}, data, 1)
    for call, error, message in (
        (lambda: gb.train({}, X, 1), TypeError, "dtrain must be a DMatrix, got numpy.ndarray"),
        (lambda: booster.predict(X), TypeError, "predict takes a DMatrix, got numpy.ndarray"),
        (lambda: gb.train({}, data, 1, evals=[data]), TypeError, r"evals must hold \(DMatrix, name\) .*, got gpuboost.DMatrix"),
        (lambda: booster.eval(X), TypeError, r"evals must hold \(DMatrix, name\) pairs, got \(numpy.ndarray, str\)"),
        (lambda: booster.eval_set([data]), TypeError, r"evals must hold \(DMatrix, name\) pairs, got gpuboost.DMatrix"),
        (lambda: booster.eval_set(data), TypeError, r"evals must hold \(DMatrix, name\) pairs, got gpuboost.DMatrix"),
        (lambda: gb.train({}, data, 1, evals=3), TypeError, r"evals must hold \(DMatrix, name\) pairs, got int"),
        (lambda: gb.train({}, data, -1), ValueError, "num_boost_round must be at least 0, got -1"),
        (lambda: gb.train({}, gb.DMatrix(X), 1), ValueError, "has no label. Pass label="),
        (lambda: gb.train({}, gb.DMatrix(X[:0], y[:0]), 1), ValueError, "0 rows"),
        (lambda: gb.train({}, gb.DMatrix(X, y, weight=y * 0), 1), ValueError, "weight is zero for every row"),
        (lambda: gb.train({"objective": "binary:logistic"}, gb.DMatrix(X, y + 9), 1), ValueError, "labels .*between 0 and 1"),
        (lambda: gb.train({"objective": "reg:squareerror"}, data, 1), ValueError, "objective must be one of .*'reg:squareerror'"),
        (lambda: gb.train({"eval_metric": "rsme"}, data, 1, evals=[(data, "t")]), ValueError, "eval_metric must be .*'rsme'"),
        (lambda: gb.train({"base_score": [0.1, 0.2]}, data, 1), ValueError, "base_score must be one number or one per output"),
        (lambda: gb.train({}, gb.DMatrix(X[:, :3], y), 1, xgb_model=booster), ValueError, "3 columns"),
        (lambda: gb.QuantileDMatrix(X, max_bin=0), ValueError, "max_bin must be between 2 and 65535, got 0"),
        (lambda: gb.train({"max_bin": 64}, gb.QuantileDMatrix(X, y), 1), ValueError, "max_bin=64 .* was built with 256"),
        (lambda: gb.Booster().predict(data), gb.NotFittedError, "has no model yet"),
    ):
        with pytest.raises(error, match=message):
            call()


@pytest.mark.parametrize("rounds", [1, 3])
@pytest.mark.parametrize("params", [{"learning_rate": 3e39}, {"objective": "binary:logistic", "learning_rate": 3e39}], ids=str)
def test_leaves_beyond_float32_are_no_model(params, rounds):
    """Such a file could not be written, and the other leaves of the sum would be lost."""
    objective = params.get("objective", "reg:squarederror")
    X, y, _ = make_table(objective)
    booster, dtrain = gb.Booster({"reg_lambda": 0, "base_score": 0.5, **params}), gb.DMatrix(X, y)
    with pytest.raises(FloatingPointError, match="a leaf of round 0 is beyond float32. Use a smaller learning_rate"):
        for _ in range(rounds):
            booster.update(dtrain)
        booster.get_dump()
    assert booster.num_boosted_rounds() == 0
    booster.set_param("learning_rate", 0.1)
    booster.update(dtrain)
    assert booster.num_boosted_rounds() == 1


@pytest.mark.skipif(has_gpu(), reason="there is a GPU here")
@pytest.mark.parametrize("device", ["cuda", "cuda:1", "gpu"])
def test_cuda_is_refused_with_the_remedy(device):
    X, y, _ = make_table("reg:squarederror")
    with pytest.raises(gb.DeviceNotFoundError, match="device='cuda.*(Use|use) (device='cpu'|cuda:0)"):
        gb.train({"device": device}, gb.DMatrix(X, y), 1)


def test_a_callback_alone_is_no_list_of_them():
    X, y, _ = make_table("reg:squarederror")
    with pytest.raises(TypeError, match=r"callbacks must be a list of callbacks.*callbacks=\[...\]"):
        gb.train({}, gb.DMatrix(X, y), 1, callbacks=gb.callback.EarlyStopping(rounds=2))


@pytest.mark.parametrize("name, here", [
    ("XGBClassifier", "GPUBoostClassifier"), ("XGBRegressor", "GPUBoostRegressor"), ("XGBModel", "GPUBoostModel"),
])  # fmt: skip
def test_xgboosts_names_of_estimators_lead_to_ours(name, here):
    assert here in gb.__all__ and not hasattr(gb, name)
    with pytest.raises(AttributeError, match=f"has no attribute '{name}'. It is called {here} here"):
        getattr(gb, name)


def test_modules_of_xgboosts_api_are_at_hand():
    assert gb.plotting.plot_tree is gb.plot_tree and gb.training.train is gb.train and gb.config.get_config is gb.get_config
    with pytest.raises(AttributeError, match="has no attribute 'core'.*in place of XGBoostError catch ValueError and OSError"):
        gb.core  # noqa: B018


# -- Messages ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_parameter", [True, False])
@pytest.mark.parametrize(
    "verbosity, said", [(0, []), (1, []), (2, ["cpu", "400 rows", "4 columns", "bins"]), (3, ["400 rows", "round 0", "round 1"])]
)
def test_verbosity_lets_through_what_config_documents(verbosity, said, is_parameter, capsys):
    X, y, _ = make_table("reg:squarederror")
    dtrain = gb.DMatrix(X, y)
    gb.train({}, dtrain, 2)  # kernels are compiled now, with their notice
    capsys.readouterr()
    with config_context(verbosity=None if is_parameter else verbosity):
        gb.train({"verbosity": verbosity} if is_parameter else {}, dtrain, 2)
    printed = capsys.readouterr()
    assert all(line.startswith("[gpuboost] ") for line in printed.err.splitlines())
    assert [text for text in said if text not in printed.err] == []
    assert bool(printed.err) == bool(said) and printed.out == ""
    assert ("round" in printed.err) == (verbosity == 3)


def test_labels_weights_and_margins_set_between_rounds_count():
    X, y, w = make_table("reg:squarederror")
    for change in ({"label": -y}, {"weight": w}, {"base_margin": y}):
        dtrain = gb.DMatrix(X, y)
        changed, fixed = gb.Booster({}), gb.Booster({})
        for booster in (changed, fixed):
            booster.update(dtrain)
        fixed.update(dtrain)
        dtrain.set_info(**change)
        changed.update(dtrain)
        assert model_bytes(changed) != model_bytes(fixed)


@pytest.mark.parametrize("is_trained_on", [False, True])
@pytest.mark.parametrize("change", ["base_margin", "feature_names", "label"])
def test_what_changes_of_a_matrix_under_watch_is_noticed(change, is_trained_on):
    X, y, _ = make_table("reg:squarederror")
    new = {"base_margin": 100 + y, "feature_names": list("bacd"), "label": -y}[change]
    dtrain, dvalid = (gb.DMatrix(X, y, feature_names=list("abcd")) for _ in range(2))
    watched = dtrain if is_trained_on else dvalid
    booster = gb.Booster({"max_depth": 3})
    for _ in range(2):
        booster.update(dtrain)
        before = booster.eval(watched)
        assert before == booster.copy().eval(watched)  # which has watched nothing
    watched.set_info(**{change: new})
    assert booster.eval(watched) == booster.copy().eval(watched) != before
    if not is_trained_on:
        booster.update(dtrain)
        assert booster.eval(watched) == booster.copy().eval(watched)


def test_the_objective_of_a_model_cannot_be_changed():
    X, y, _ = make_table("reg:squarederror")
    booster = gb.train({}, gb.DMatrix(X, y), 1)
    with pytest.raises(ValueError, match="the model was trained with 'reg:squarederror'"):
        booster.set_param("objective", "binary:logistic")
    with pytest.raises(ValueError, match="the model was trained with 'reg:squarederror'"):
        gb.train({"objective": "binary:logistic"}, gb.DMatrix(X, y > 0), 1, xgb_model=booster)


def test_a_number_of_classes_given_as_text_continues():
    X, y, _ = make_table("multi:softprob")
    dtrain = gb.DMatrix(X, y)
    params = {"objective": "multi:softprob", "num_class": "3"}
    assert gb.train(params, dtrain, 1, xgb_model=gb.train(params, dtrain, 1)).num_boosted_rounds() == 2


def test_repeated_metrics_of_parameter_pairs_are_all_reported():
    X, y, _ = make_table("reg:squarederror")
    dtrain, result = gb.DMatrix(X, y), {}
    pairs = [("eval_metric", "rmse"), ("eval_metric", "mae")]
    gb.train(pairs, dtrain, 1, evals=[(dtrain, "t")], evals_result=result, verbose_eval=False)
    assert list(result["t"]) == ["rmse", "mae"]


def test_an_evaluated_matrix_is_freed_with_its_last_owner():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(50, 3)).astype(np.float32)
    booster, dtrain = gb.Booster(), gb.DMatrix(X, X[:, 0])
    kept = gb.DMatrix(X[:20], X[:20, 0])
    left = []
    for _ in range(2):
        booster.update(dtrain)
        table = X.copy()
        fresh = gb.DMatrix(table, table[:, 0])
        assert booster.eval(fresh).partition("-")[2] == booster.eval(dtrain).partition("-")[2]
        booster.eval(kept)
        left += [weakref.ref(fresh), weakref.ref(table)]
        del fresh, table
        gc.collect()
    assert [reference() for reference in left] == [None] * 4
    assert booster.eval(kept) == booster.reset().eval(kept), "those that are held keep up"


def test_evaluating_a_finished_model_trains_nothing():
    X, y, _ = make_table("reg:squarederror")
    booster = gb.train({}, gb.DMatrix(X, y), 3)
    expected = np.sqrt(np.mean((booster.predict(gb.DMatrix(X)) - y) ** 2, dtype=np.float64))
    assert float(booster.eval(gb.DMatrix(X, y)).split(":")[1]) == pytest.approx(expected, rel=1e-6)
    assert booster._boosting is None


def test_shards_with_other_columns_are_refused():
    pd = pytest.importorskip("pandas")
    X, y, _ = make_table("reg:squarederror")
    frames = [pd.DataFrame(X, columns=list(names)) for names in ("abcd", "bacd")]
    with pytest.raises(ValueError, match="the workers' tables differ"):
        run_threads(2, lambda rank: gb.train({}, gb.DMatrix(frames[rank], y), 1))


@pytest.mark.parametrize("n_positive", [1, 3, 1500, 2999, 3000])
@pytest.mark.filterwarnings("ignore:the first round split no node")
def test_predictions_equal_xgboosts_from_the_same_file(n_positive):
    xgb = pytest.importorskip("xgboost")
    X = np.random.default_rng(0).normal(size=(3000, 4)).astype(np.float32)
    booster = gb.train({"objective": "binary:logistic"}, gb.DMatrix(X, np.arange(3000) < n_positive), 5)
    theirs = xgb.Booster(model_file=booster.save_raw())
    ours = booster.predict(gb.DMatrix(X), output_margin=True)
    # both add float32 leaves in tree order to a float32 margin of base_score, whose logarithm may round differently
    np.testing.assert_allclose(ours, theirs.predict(xgb.DMatrix(X), output_margin=True), rtol=2e-7, atol=1e-6)


# ---- hessians of a user's objective


def with_hessians(values):
    """Squared error whose hessians are those instead of 1."""
    return lambda prediction, dtrain: (prediction - dtrain.get_label(), values)


def test_negative_hessians_count_as_zero_and_warn_once(recwarn):
    rng = np.random.default_rng(5)
    X, y = rng.normal(size=(300, 3)), rng.normal(size=300)
    hess = rng.choice([-1.0, 1.0, 2.0], 300)
    negative = gb.train({}, gb.DMatrix(X, y), 3, obj=with_hessians(hess))
    warned = [str(w.message) for w in recwarn.list if "negative" in str(w.message)]
    assert len(warned) == 1 and f"{np.count_nonzero(hess < 0)} of 300 hessians" in warned[0]
    zero = gb.train({}, gb.DMatrix(X, y), 3, obj=with_hessians(np.maximum(hess, 0)))
    assert negative.save_raw() == zero.save_raw()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.filterwarnings("error:.* are negative")  # −∞ is an error, no negative number
def test_gradients_and_hessians_that_are_not_finite_raise(which, bad):
    pair = [np.ones(300, np.float32), np.ones(300, np.float32)]
    pair[which][7] = bad
    with pytest.raises(FloatingPointError, match="not finite"):
        gb.train({}, gb.DMatrix(np.arange(600).reshape(300, 2), np.arange(300)), 2, obj=lambda *_: pair)


@pytest.mark.parametrize("objective", ["reg:absoluteerror", "reg:quantileerror"])
def test_a_median_is_the_same_however_small_the_unit_of_weights(objective):
    y, weight = np.float32([0, 1, 2, 3, 100]), np.float32([1, 1, 1, 1, 50])
    params = {"objective": objective, **({"quantile_alpha": 0.5} if "quantile" in objective else {})}
    for unit in (1, 1e-30, 1e-35, 1e30):
        data = gb.DMatrix(np.arange(5)[:, None], y, weight=weight * np.float32(unit))
        assert gb.train(params, data, 0).predict(data).tolist() == [100] * 5, unit
