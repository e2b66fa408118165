"""survival:aft and survival:cox: likelihoods written with SciPy, XGBoost, censoring, ties, weights and far tails."""

import json

import numpy as np
import pytest
import scipy.stats
from test_losses import derivatives

import gpuboost as gb
from gpuboost.backend import CpuBackend
from gpuboost.backend.row_sums import RowSums
from gpuboost.communicator import SingleProcess, run_threads
from gpuboost.objectives import get_objective
from gpuboost.params import parse_params

xgboost = pytest.importorskip("xgboost")

LAWS = {"normal": scipy.stats.norm, "logistic": scipy.stats.logistic, "extreme": scipy.stats.gumbel_l}
each_law = pytest.mark.parametrize("law", LAWS)


def times(n_rows=300):
    """X, time, bounds (lower, upper) of known, later, earlier and enclosed times, weights."""
    rng = np.random.default_rng(n_rows)
    X = rng.normal(size=(n_rows, 3)).astype(np.float32)
    time = np.exp(X[:, 0] + rng.normal(size=n_rows) * 0.7).astype(np.float32)
    kind = rng.integers(0, 4, n_rows)
    low = np.select([kind == 2, kind == 3], [0 * time, time * 0.7], time).astype(np.float32)
    high = np.select([kind == 1, kind == 3], [np.inf + time, time * 1.5], time).astype(np.float32)
    return X, time, low, high, (rng.integers(1, 5, n_rows) / 2).astype(np.float32)


def aft_gradients(law, margin, low, high, scale):
    params = {"objective": "survival:aft", "aft_loss_distribution": law, "aft_loss_distribution_scale": scale}
    objective = get_objective("survival:aft", parse_params(params))
    margin = np.asarray(margin, np.float32)[None]
    grad, hess, maxima = np.empty_like(margin), np.empty_like(margin), np.zeros((1, 1, 2), np.int64)
    bounds = np.stack([low, high]).astype(np.float32)
    objective.gradients_cpu(margin, bounds, np.zeros(0, np.float32), objective.parameters, grad, hess, maxima, 1)
    return grad[0], hess[0]


def aft_loss(law, margin, low, high, scale):
    """In float64, differences of distributions taken in the tail where they are larger."""
    with np.errstate(divide="ignore"):
        z_low, z_high = ((np.log(np.maximum(bound.astype(np.float64), 0)) - margin) / scale for bound in (low, high))
    of = LAWS[law]
    mass = np.where(z_low > 0, of.sf(z_low) - of.sf(z_high), of.cdf(z_high) - of.cdf(z_low))
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(low == high, -of.logpdf(z_low), -np.log(mass))


def check_files(ours, theirs, data, their_data):
    """Each library predicts the same from the other's files; the boosters that ours reads."""
    read = []
    for raw_format in ("json", "ubj"):
        loaded = xgboost.Booster(model_file=ours.save_raw(raw_format))
        np.testing.assert_allclose(loaded.predict(their_data), ours.predict(data), rtol=2e-6)
        read.append(gb.Booster(model_file=bytes(theirs.save_raw(raw_format))))
        np.testing.assert_allclose(read[-1].predict(data), theirs.predict(their_data), rtol=2e-6)
    return read


@each_law
@pytest.mark.parametrize("scale", [1.0, 0.5, 2.0])
def test_aft_gradients_are_differences_of_the_loss(law, scale):
    _, time, low, high, _ = times(2000)
    margin = (np.log(time) + np.random.default_rng(1).normal(size=2000) * scale).astype(np.float32)
    grad, hess = aft_gradients(law, margin, low, high, scale)
    loss = lambda margin, bounds: aft_loss(law, margin, *bounds, scale)  # noqa: E731
    first, second = derivatives(loss, margin.astype(np.float64), (low, high), step=2.0**-7 * scale)
    usual = (np.abs(first) < 14) & (second < 14)
    assert usual.mean() > 0.9
    # 20 bits of a gradient; differences over five points err by step⁴ times a fifth derivative
    np.testing.assert_allclose(grad[usual], first[usual], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(hess[usual], second[usual], rtol=1e-4, atol=1e-5)


@each_law
def test_aft_of_far_margins_and_bounds_is_finite_and_within_xgboosts_limits(law):
    bounds = [(1, 1), (1, np.inf), (0, 1), (-np.inf, 1), (1, 1.0000001), (1e-38, 1e38), (1e-45, 3e38), (3e38, np.inf)]
    for low, high in bounds:
        margin = np.array([0, 1, 30, 88, 1e4, 1e30, 3e38, -1, -30, -88, -1e4, -1e30, -3e38], np.float32)
        rows = np.full(len(margin), low), np.full(len(margin), high)
        for scale in (1e-3, 1.0, 1e3):
            grad, hess = aft_gradients(law, margin, *rows, scale)
            assert (np.abs(grad) <= 15).all() and (hess >= 0).all() and (hess <= 15).all()
            # a margin above an upper bound is pulled down, one below a lower bound up
            assert (grad[margin > 100] >= 0).all() or high == np.inf
            assert (grad[margin < -100] <= 0).all() or low <= 0


@each_law
def test_aft_is_xgboosts(law):
    X, _, low, high, weight = times()
    params = {
        "objective": "survival:aft", "aft_loss_distribution": law, "aft_loss_distribution_scale": 1.25, "max_depth": 3,
        "max_bin": 512, "eval_metric": ["aft-nloglik", "interval-regression-accuracy"],
    }  # fmt: skip
    info, logs = {"weight": weight, "label_lower_bound": low, "label_upper_bound": high}, ({}, {})
    data, their_data = gb.DMatrix(X, **info), xgboost.DMatrix(X, nthread=1, **info)
    ours = gb.train(params, data, 1, evals=[(data, "t")], evals_result=logs[0], verbose_eval=False)
    base = {"base_score": ours.model.base_score[0], "nthread": 1}
    theirs = xgboost.train({**params, **base}, their_data, 1, evals=[(their_data, "t")], evals_result=logs[1], verbose_eval=False)
    margins = ours.predict(data, output_margin=True), theirs.predict(their_data, output_margin=True)
    np.testing.assert_allclose(*margins, rtol=1e-5, atol=2e-6)
    for metric, values in logs[1]["t"].items():
        assert logs[0]["t"][metric] == pytest.approx(values, rel=1e-5)
    for read in check_files(ours, theirs, data, their_data):
        assert (read.params.aft_loss_distribution, read.params.aft_loss_distribution_scale) == (law, 1.25)


@each_law
def test_base_score_of_aft_minimises_the_weighted_loss(law):
    X, _, low, high, weight = times()
    data = gb.DMatrix(X, weight=weight, label_lower_bound=low, label_upper_bound=high)
    booster = gb.train({"objective": "survival:aft", "aft_loss_distribution": law}, data, 0)
    margin = float(booster.predict(data, output_margin=True)[0])
    grad, hess = aft_gradients(law, np.full(len(X), margin), low, high, 1.0)
    assert abs((weight * grad).sum() / (weight * hess).sum()) < 2e-6  # gradients of 20 bits


@pytest.mark.parametrize("law, known", [("normal", scipy.stats.norm), ("logistic", scipy.stats.logistic)])
def test_aft_metric_of_wide_bounds_is_the_mass_between_them(law, known):
    low = np.array([0, 1e-20, 1e-6, 0.5, 1e-3, 2, 30])
    high = np.array([np.inf, 1e20, 1e6, 0.6, np.inf, np.inf, 31])
    data = gb.DMatrix(np.zeros((7, 1)), label_lower_bound=low, label_upper_bound=high)
    with np.errstate(divide="ignore"):
        mass = known.sf(np.log(low)) - known.sf(np.log(high))
    params = {"objective": "survival:aft", "aft_loss_distribution": law, "base_score": 1, "reg_lambda": 1e30}
    gb.train(params, data, 1, evals=[(data, "t")], evals_result=(scores := {}), verbose_eval=False)
    assert scores["t"]["aft-nloglik"][0] == pytest.approx(-np.log(np.maximum(mass, 1e-12)).mean(), rel=1e-6)


def test_bounds_are_checked_and_are_for_aft():
    X, time, low, high, _ = times(20)
    for lower, upper, place in [(np.full(20, 2), np.ones(20), 0), (np.zeros(20), np.where(np.arange(20) == 3, 0, 1), 3)]:
        with pytest.raises(ValueError, match=f"survival:aft needs labels that are bounds of a time.*first at row {place}"):
            gb.train({"objective": "survival:aft"}, gb.DMatrix(X, label_lower_bound=lower, label_upper_bound=upper), 1)
    bounds = gb.DMatrix(X, label_lower_bound=low, label_upper_bound=high)
    with pytest.raises(ValueError, match="no label, only bounds, which survival:aft alone takes"):
        gb.train({}, bounds, 1)
    with pytest.raises(ValueError, match="survival:aft takes 2 label columns for a target, got 1. Pass label_lower_bound"):
        gb.train({"objective": "survival:aft"}, gb.DMatrix(X, time), 1)
    with pytest.raises(ValueError, match="no label, and one bound without the other"):
        gb.train({"objective": "survival:aft"}, gb.DMatrix(X, label_lower_bound=low), 1)
    with pytest.raises(ValueError, match="'aft-nloglik' needs label_lower_bound and label_upper_bound"):
        gb.train({"eval_metric": "aft-nloglik"}, data := gb.DMatrix(X, time), 0).eval(data)
    with pytest.raises(ValueError, match="label_upper_bound must not be NaN: 1 values are, the first at row 2"):
        gb.DMatrix(X, label_upper_bound=np.where(np.arange(20) == 2, np.nan, 1))
    both = gb.DMatrix(X, time, label_lower_bound=low, label_upper_bound=high)  # each objective takes its own
    for params, own in (({"objective": "survival:aft"}, bounds), ({"objective": "survival:cox"}, gb.DMatrix(X, time))):
        models = [gb.train(params, data, 2, evals=[(data, "own")], verbose_eval=False) for data in (both, own)]
        assert models[0].save_raw() == models[1].save_raw()
    masked = np.where(np.arange(20) < 3, np.nan, time)
    with pytest.raises(ValueError, match="rows without a label beside them count for nothing. Leave label out"):
        data = gb.DMatrix(X, masked, missing_labels="mask", label_lower_bound=low, label_upper_bound=high)
        gb.train({"objective": "survival:aft"}, data, 1)
    part = bounds.slice([3, 1])
    assert part.get_float_info("label_lower_bound").tolist() == low[[3, 1]].tolist() and part.labels.shape == (2, 2)


@each_law
def test_bounds_of_weight_0_may_be_anything(law):
    X, _, low, high, weight = times()
    weight[:4], low[:4], high[:4] = 0, [-1, 5, 0, np.inf], [-2, 1, 0, np.inf]
    params, results = {"objective": "survival:aft", "aft_loss_distribution": law}, []
    for rows in (slice(None), slice(4, None)):
        bounds = {"label_lower_bound": low[rows], "label_upper_bound": high[rows]}
        dtrain, log = gb.DMatrix(X[rows], **bounds, weight=weight[rows]), {}
        booster = gb.train(params, dtrain, 2, evals=[(dtrain, "t")], evals_result=log, verbose_eval=False)
        results.append((booster.save_raw("json"), log))
    assert results[0] == results[1] and np.isfinite(results[0][1]["t"]["aft-nloglik"]).all()


def test_a_worker_may_have_no_rows():
    X, _, low, high, _ = times(20)

    def work(rank):
        own = slice(0, 20 if rank == 0 else 0)
        data = gb.DMatrix(X[own], label_lower_bound=low[own], label_upper_bound=high[own])
        return gb.train({"objective": "survival:aft"}, data, 2, verbose_eval=False).save_raw()

    assert run_threads(2, work) == [work(0)] * 2


# ---------------------------------------------------------------------------------------------------------------------
# Proportional hazards


def cox_loss(margin, label, weight):
    """Breslow's, in plain sums over the rows at risk."""
    time, hazard = np.abs(label), weight * np.exp(margin)
    at_risk = np.array([hazard[time >= t].sum() for t in time])
    return np.sum((weight * (np.log(at_risk) - margin))[label > 0])


def cox_gradients(margin, label, weight):
    objective = get_objective("survival:cox", parse_params({"objective": "survival:cox"}))
    rows = (np.asarray(values, np.float32) for values in (margin, label))
    margin, label = (values[None] for values in rows)
    rows = RowSums(CpuBackend(1), SingleProcess(), margin, label, np.asarray(weight, np.float32))
    grad, hess = objective.stage(rows, 0)
    return grad[0], hess[0]


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("ties", [False, True])
def test_cox_gradients_are_differences_of_the_loss(ties, weighted):
    rng = np.random.default_rng(5)
    label = rng.permutation(40) + 1.0 if not ties else rng.integers(1, 8, 40).astype(float)
    label *= rng.choice([-1, 1], 40)
    margin, weight = rng.normal(size=40).astype(np.float32), rng.integers(0, 4, 40) / 2 if weighted else np.ones(40)
    grad, hess = cox_gradients(margin, label, weight if weighted else [])
    for row in range(40):
        step = 1e-3 * (np.arange(40) == row)
        low, middle, high = (cox_loss(margin.astype(np.float64) + k * step, label, weight) for k in (-1, 0, 1))
        assert grad[row] == pytest.approx((high - low) / 2e-3, rel=1e-5, abs=1e-6)
        assert hess[row] == pytest.approx((high - 2 * middle + low) / 1e-6, rel=1e-4, abs=1e-6)


def test_cox_of_far_margins_is_finite():
    rng = np.random.default_rng(6)
    for size in (1, 80, 1e4, 1e38):
        margin = np.sort(rng.normal(size=100) * size / 4)[:: rng.choice([-1, 1])]
        grad, hess = cox_gradients(margin, (np.arange(100) + 1.0) * rng.choice([-1, 1], 100), [])
        assert np.isfinite(grad).all() and np.isfinite(hess).all() and (hess >= 0).all()


def test_cox_of_distinct_times_is_xgboosts():
    X, time, _, high, _ = times()
    label = time * np.where(np.isinf(high), -1, 1)
    data, their_data, logs = gb.DMatrix(X, label), xgboost.DMatrix(X, label, nthread=1), ({}, {})
    assert len(np.unique(time)) == len(time)
    params = {"objective": "survival:cox", "max_depth": 3, "max_bin": 512}
    ours = gb.train(params, data, 1, evals=[(data, "t")], evals_result=logs[0], verbose_eval=False)
    theirs = xgboost.train(
        {**params, "nthread": 1}, their_data, 1, evals=[(their_data, "t")], evals_result=logs[1], verbose_eval=False
    )
    margins = ours.predict(data, output_margin=True), theirs.predict(their_data, output_margin=True)
    np.testing.assert_allclose(*margins, rtol=1e-5, atol=2e-6)
    assert logs[0]["t"]["cox-nloglik"] == pytest.approx(logs[1]["t"]["cox-nloglik"], rel=1e-5)
    assert json.loads(ours.save_raw("json"))["learner"]["objective"] == {"name": "survival:cox"}
    check_files(ours, theirs, data, their_data)


def test_cox_metric_is_the_loss_per_event_also_with_ties_and_weights():
    X, time, _, high, weight = times()
    label = np.ceil(time * 2) * np.where(np.isinf(high), -1, 1)
    margin = np.random.default_rng(7).normal(size=len(X)).astype(np.float32)
    for weights in (None, weight):
        data = gb.DMatrix(X, label, weight=weights, base_margin=margin)
        booster = gb.train({"objective": "survival:cox"}, data, 0)
        own = np.ones(len(X)) if weights is None else weights
        expected = cox_loss(margin.astype(np.float64), label, own) / own[label > 0].sum()
        assert float(booster.eval(data).split(":")[1]) == pytest.approx(expected, rel=1e-6)
        if weights is None:  # XGBoost's has no weights
            their_data = xgboost.DMatrix(X, label, base_margin=margin)
            theirs = xgboost.train({"objective": "survival:cox"}, their_data, 0)
            assert float(theirs.eval(their_data).split(":")[1]) == pytest.approx(expected, rel=1e-5)


# ---- estimators


def survival_table():
    """(X, event, time), more than half of the times known."""
    rng = np.random.default_rng(11)
    X = rng.normal(size=(300, 3)).astype(np.float32)
    time, end = np.exp(X[:, 0] + rng.gumbel(size=300)), rng.exponential(4, 300)
    return X, time <= end, np.minimum(time, end).astype(np.float32)


def test_estimators_take_bounds_signed_times_and_events():
    X, event, time = survival_table()
    structured = np.array(list(zip(event, time)), [("event", bool), ("time", float)])
    upper = np.where(event, time, np.inf)
    signed = np.where(event, time, -time)
    forms = {"survival:aft": [structured, np.stack([time, upper], axis=1)], "survival:cox": [structured, signed]}
    matrices = {
        "survival:aft": gb.DMatrix(X, label_lower_bound=time, label_upper_bound=upper), "survival:cox": gb.DMatrix(X, signed),
    }  # fmt: skip
    for objective, ys in forms.items():
        expected = gb.train({"objective": objective, "max_depth": 2}, matrices[objective], 3).predict(gb.DMatrix(X))
        for y in ys:
            model = gb.GPUBoostRegressor(objective=objective, max_depth=2, n_estimators=3).fit(X, y, eval_set=[(X, y)])
            np.testing.assert_array_equal(model.predict(X), expected)
    known = gb.GPUBoostRegressor(objective="survival:aft", max_depth=2, n_estimators=3).fit(X, time).predict(X)
    both = gb.GPUBoostRegressor(objective="survival:aft", max_depth=2, n_estimators=3).fit(X, np.stack([time, time], axis=1))
    np.testing.assert_array_equal(known, both.predict(X))


@pytest.mark.parametrize("y, message", [
    (np.zeros(3, [("time", float), ("event", bool)]), "must have two, whether there was an event"),
    (np.ones((3, 3)), r"must be \(n_samples, 2\), lower and upper bounds"),
])  # fmt: skip
def test_other_forms_of_survival_times_are_refused(y, message):
    with pytest.raises(ValueError, match=message):
        gb.GPUBoostRegressor(objective="survival:aft").fit(np.zeros((3, 1)), y)


@pytest.mark.parametrize("event, time", [(True, 0.0), (True, -1.0), (False, -1.0), (True, np.nan)])
def test_times_whose_sign_would_say_something_else_are_refused(event, time):
    y = np.array([(True, 1.0), (event, time)], [("event", bool), ("time", float)])
    with pytest.raises(ValueError, match="times of y must be above 0"):
        gb.GPUBoostRegressor(objective="survival:cox").fit(np.zeros((2, 1)), y)


def test_a_survival_model_has_no_score():
    X, event, time = survival_table()
    model = gb.GPUBoostRegressor(objective="survival:cox", n_estimators=1).fit(X, np.where(event, time, -time))
    with pytest.raises(ValueError, match="score has no meaning for survival:cox"):
        model.score(X, time)
