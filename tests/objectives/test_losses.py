"""Gradients, hessians and base scores are those of the losses, written in float64 in losses.py."""

import numpy as np
import pytest
from objectives.losses import CASES, params_of

import gpuboost as gb
from gpuboost.model_io import digest
from gpuboost.objectives import get_objective
from gpuboost.params import parse_params

NO_WEIGHT = np.zeros(0, np.float32)
KEPT = 2.0**-19  # 20 significant bits of a gradient are kept
each_case = pytest.mark.parametrize("case", CASES)


def gradients(case, margin, label):
    params = parse_params(params_of(case))
    objective = get_objective(params.objective, params)
    margin, label = np.atleast_2d(margin).astype(np.float32), np.atleast_2d(label).astype(np.float32)
    grad, hess, maxima = np.empty_like(margin), np.empty_like(margin), np.zeros((1, 1, 2), np.int64)
    objective.gradients_cpu(margin, label, NO_WEIGHT, objective.parameters, grad, hess, maxima, 1)
    return grad[0], hess[0]


def derivatives(loss, margin, label, step=2.0**-9):
    """First and second, by differences over five points: the error is of order step⁴."""
    f = [loss(margin + k * step, label) for k in (-2, -1, 0, 1, 2)]
    first = (f[0] - 8 * f[1] + 8 * f[3] - f[4]) / (12 * step)
    second = (-f[0] + 16 * f[1] - 30 * f[2] + 16 * f[3] - f[4]) / (12 * step**2)
    return first, second


@each_case
def test_gradients_are_differences_of_the_loss(case):
    known, rng = CASES[case], np.random.default_rng(1)
    margin, label = rng.uniform(known.low, known.high, 2000).astype(np.float32), rng.choice(known.labels, 2000).astype(np.float32)
    grad, hess = gradients(case, margin, label)
    first, second = derivatives(known.loss, margin.astype(np.float64), label.astype(np.float64))
    rounded = 1 + np.abs(first) + np.abs(label)  # above the terms that cancel in a gradient, each with an error of 2 ulp or so
    assert (np.abs(grad - first) <= KEPT * np.abs(first) + 5e-7 * rounded).all()
    expected = np.maximum(second * known.hess_factor, 1e-6 if "squaredlog" in case else 0)
    np.testing.assert_allclose(hess, expected, rtol=KEPT + 4e-6, atol=2e-6)


@each_case
def test_extreme_margins_and_labels_have_finite_gradients(case):
    known = CASES[case]
    margins = np.array([0, 1, 30, 87, 89, 1e4, 1.5e38, 1e-40], np.float32)
    margins = np.concatenate([margins, -margins])
    for label in (*known.labels, 1e30 if known.refused is None or known.refused < 0 and max(known.labels) > 1 else 1.0):
        grad, hess = gradients(case, margins, np.full(len(margins), label))
        assert np.isfinite(grad).all() and np.isfinite(hess).all() and (hess >= 0).all()


@pytest.mark.parametrize("case", [case for case in CASES if "squaredlog" not in case])
def test_base_score_minimises_the_weighted_loss(case):
    known = CASES[case]
    X, label, weight = known.table()
    booster = gb.train(params_of(case), gb.DMatrix(X, label, weight=weight), 0)
    margin = float(booster.predict(gb.DMatrix(X[:1]), output_margin=True)[0])
    slope = np.sum(weight * derivatives(known.loss, np.float64(margin), label.astype(np.float64), 1e-4)[0])
    curvature = np.sum(weight * derivatives(known.loss, np.float64(margin), label.astype(np.float64), 1e-3)[1])
    assert abs(slope / curvature) <= 4e-7 * max(abs(margin), 1.0)  # a Newton step from there is rounding


def test_squared_log_error_of_labels_below_zero_starts_at_their_minimiser():
    label = np.full(100, -0.4, np.float32)
    booster = gb.train({"objective": "reg:squaredlogerror"}, gb.DMatrix(np.zeros((100, 1)), label), 0)
    assert booster.model.base_score[0] == pytest.approx(-0.4, rel=1e-6)


def test_squared_log_error_starts_one_newton_step_from_zero():
    rng = np.random.default_rng(3)
    X, label, weight = rng.normal(size=(200, 2)), rng.lognormal(1, 2, 200).astype(np.float32), rng.random(200)
    weight = weight.astype(np.float32)
    booster = gb.train({"objective": "reg:squaredlogerror"}, gb.DMatrix(X, label, weight=weight), 0)
    logs = np.log1p(label.astype(np.float64))
    expected = np.average(logs, weights=weight) / np.average(np.maximum(1 + logs, 1e-6), weights=weight)
    assert booster.model.base_score[0] == pytest.approx(expected, rel=1e-6)


def test_squared_log_error_of_labels_far_apart_trains():
    """From the constant minimiser the first steps led below −1, where no logarithm is."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2000, 3)).astype(np.float32)
    label = np.where(X[:, 0] > 0, 1e4, 0.01).astype(np.float32)
    log, d = {}, gb.DMatrix(X, label)
    gb.train({"objective": "reg:squaredlogerror"}, d, 20, evals=[(d, "t")], evals_result=log, verbose_eval=False)
    assert np.isfinite(log["t"]["rmsle"]).all() and log["t"]["rmsle"][-1] < log["t"]["rmsle"][0]


def test_a_built_in_loss_takes_no_argument():
    with pytest.raises(ValueError, match="objective 'reg:squarederror' takes no argument, got 'reg:squarederror@2'"):
        gb.train({"objective": "reg:squarederror@2"}, gb.DMatrix(np.zeros((3, 1)), [1, 2, 3]), 1)


def test_labels_of_one_value_have_a_finite_base_score():
    X = np.zeros((5, 1))
    for params, value in [("count:poisson", 0), ("reg:tweedie", 0), ("reg:logistic", 1), ("binary:logitraw", 0)]:
        booster = gb.train({"objective": params}, gb.DMatrix(X, np.full(5, value)), 0)
        assert np.isfinite(booster.predict(gb.DMatrix(X), output_margin=True)).all()


@each_case
def test_labels_outside_the_domain_are_refused_by_place_and_value(case):
    known = CASES[case]
    X, label, weight = known.table(20)
    label[7] = np.float32(1.5) if known.refused is None else known.refused
    if known.refused is None:
        gb.train(params_of(case), gb.DMatrix(X, label), 0)
        return
    with pytest.raises(ValueError, match=f"needs labels that are .*; 1 of 20 are not, the first at row 7: {label[7]:g}"):
        gb.train(params_of(case), gb.DMatrix(X, label), 1)


@each_case
@pytest.mark.parametrize("wrong", [-5.0, -1.0, 3e38])
def test_a_label_of_weight_0_may_be_anything(case, wrong):
    X, label, weight = CASES[case].table(60)
    label[7], weight[7] = wrong, 0
    booster, log = train_with_log(case, gb.DMatrix(X, label, weight=weight))
    keep = np.arange(60) != 7
    dropped, expected = train_with_log(case, gb.DMatrix(X[keep], label[keep], weight=weight[keep]))
    assert digest(booster.model) == digest(dropped.model) and log == expected
    assert gb.DMatrix(X, label, weight=weight).get_label()[7] == np.float32(wrong)


def train_with_log(case, dtrain):
    log = {}
    params = {**params_of(case), "eta": 0.1}  # of larger steps some lead below −1, where no logarithm is
    return gb.train(params, dtrain, 2, evals=[(dtrain, "t")], evals_result=log, verbose_eval=False), log


def test_hinge_pushes_rows_within_the_margin():
    grad, hess = gradients("binary:hinge", [0, 0.5, 1, 2, 0, -1, -3, 1e38], [1, 1, 1, 1, 0, 0, 0, 0])
    assert grad.tolist() == [-1, -1, 0, 0, 1, 0, 0, 1] and hess.tolist() == [1, 1, 0, 0, 1, 0, 0, 1]
    assert np.isnan(gradients("binary:hinge", [np.nan], [1])[0]).all()
    with pytest.raises(ValueError, match="binary:hinge needs labels that are 0 or 1; 1 of 2 are not, the first at row 1: 0.5"):
        gb.train({"objective": "binary:hinge"}, gb.DMatrix(np.zeros((2, 1)), [0, 0.5]), 1)


def test_positive_rows_count_scale_pos_weight_times():
    for name in ("reg:logistic", "binary:logitraw"):
        X, label, _ = CASES[name].table()
        params = {"objective": name, "max_bin": 512}  # a bin for each value, whatever the weights
        weighted = gb.train(params, gb.DMatrix(X, label, weight=np.where(label == 1, 3, 1)), 2)
        scaled = gb.train({**params, "scale_pos_weight": 3}, gb.DMatrix(X, label), 2)
        margins = [booster.predict(gb.DMatrix(X), output_margin=True) for booster in (weighted, scaled)]
        np.testing.assert_allclose(*margins, rtol=1e-5, atol=1e-6)  # the gradient is cut before one weight, after the other


def test_max_delta_step_is_07_for_counts_unless_given():
    assert parse_params({"objective": "count:poisson"}).max_delta_step == 0.7
    assert parse_params({"objective": "count:poisson", "max_delta_step": 0}).max_delta_step == 0
    assert parse_params({}).max_delta_step == 0


def test_raw_logits_predict_margins_and_are_judged_as_probabilities():
    X, label, _ = CASES["binary:logitraw"].table()
    label2 = np.stack([label, 1 - label], axis=1)
    for labels in (label, label2):
        data, logs = gb.DMatrix(X, labels), {}
        raw = gb.train({"objective": "binary:logitraw"}, data, 3, evals=[(data, "t")], evals_result=logs, verbose_eval=False)
        same = gb.train({"objective": "binary:logistic"}, data, 3)
        np.testing.assert_array_equal(raw.predict(data), raw.predict(data, output_margin=True))
        np.testing.assert_allclose(raw.predict(data), same.predict(data, output_margin=True), rtol=1e-6, atol=1e-6)
        assert raw.predict(data).shape == labels.shape
        p = same.predict(data).astype(np.float64)
        assert logs["t"]["logloss"][-1] == pytest.approx(-np.mean(labels * np.log(p) + (1 - labels) * np.log(1 - p)), rel=1e-6)
