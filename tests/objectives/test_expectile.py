"""reg:expectileerror: derivatives of the summed loss in its own parameters, expectiles that never cross, XGBoost's file."""

import json

import numpy as np
import pytest

import gpuboost as gb
from gpuboost.objectives import get_objective
from gpuboost.params import parse_params

ALPHAS = [0.1, 0.5, 0.8]


def expectiles(margin):
    """q_0 = m_0, q_k = q_{k−1} + 1e-6 + ln(1 + e^m_k); margin : float64 (n_outputs, n_rows)."""
    return np.cumsum(np.vstack([margin[:1], np.logaddexp(0, margin[1:]) + 1e-6]), axis=0)


def loss(margin, label, alphas):
    """Of each row: ½·Σ |α − [y < q]|·(q − y)²."""
    difference = expectiles(margin) - label
    sides = np.where(difference >= 0, 1 - np.array(alphas)[:, None], np.array(alphas)[:, None])
    return (sides * difference**2).sum(axis=0) / 2


def gradients(margin, label, weight, alphas):
    params = parse_params({"objective": "reg:expectileerror", "expectile_alpha": alphas})
    objective = get_objective("reg:expectileerror", params)
    grad, hess = np.empty_like(margin), np.empty_like(margin)
    maxima = np.zeros((1, len(margin), 2), np.int64)
    objective.gradients_cpu(margin, label[None], weight, objective.parameters, grad, hess, maxima, 1)
    return grad, hess


@pytest.mark.parametrize("alphas", [[0.3], ALPHAS])
def test_gradients_are_differences_of_the_loss_and_hessians_gauss_newton(alphas):
    rng = np.random.default_rng(0)
    margin, label = rng.normal(size=(len(alphas), 500)).astype(np.float32), rng.normal(size=500).astype(np.float32) * 3
    weight = rng.integers(1, 5, 500).astype(np.float32)
    grad, hess = gradients(margin, label, weight, alphas)
    exact, step = margin.astype(np.float64), 1e-6
    sides = np.where(expectiles(exact) >= label, 1 - np.array(alphas)[:, None], np.array(alphas)[:, None])
    for k in range(len(alphas)):
        up, down = exact.copy(), exact.copy()
        up[k] += step
        down[k] -= step
        first = (loss(up, label, alphas) - loss(down, label, alphas)) / (2 * step)
        np.testing.assert_allclose(grad[k], weight * first, rtol=1e-5, atol=1e-5)  # 20 bits; differences of float64
        slope = ((expectiles(up) - expectiles(down)) / (2 * step)) ** 2
        np.testing.assert_allclose(hess[k], weight * (sides * slope).sum(axis=0), rtol=1e-5)


def test_extreme_margins_are_finite():
    margin = np.array([[0, 1e30, -1e30, 5], [-1e30, 80, -100, 1e20], [3, -1e30, 1e4, -1e4]], np.float32)
    grad, hess = gradients(margin, np.float32([0, 1, -1, 1e30]), np.zeros(0, np.float32), ALPHAS)
    assert np.isfinite(grad).all() and np.isfinite(hess).all() and (hess >= 0).all()


def table(n_rows=400):
    rng = np.random.default_rng(3)
    X = rng.normal(size=(n_rows, 3)).astype(np.float32)
    return X, (X[:, 0] + rng.gumbel(size=n_rows)).astype(np.float32), (rng.integers(1, 5, n_rows) / 4).astype(np.float32)


def test_it_starts_at_the_expectiles_and_never_crosses():
    X, y, weight = table()
    params = {"objective": "reg:expectileerror", "expectile_alpha": ALPHAS, "max_depth": 3}
    start = gb.train(params, gb.DMatrix(X, y, weight=weight), 0).predict(gb.DMatrix(X))[0].astype(np.float64)
    for q, alpha in zip(start, ALPHAS):
        sides = np.where(y <= q, 1 - alpha, alpha) * weight
        assert q == pytest.approx((sides * y).sum() / sides.sum(), rel=1e-5)
    log = {}
    booster = gb.train(params, d := gb.DMatrix(X, y, weight=weight), 15, evals=[(d, "t")], evals_result=log, verbose_eval=False)
    predicted = booster.predict(gb.DMatrix(X))
    assert (np.diff(predicted, axis=1) > 0).all() and log["t"]["expectile"][-1] < 0.8 * log["t"]["expectile"][0]
    margin = booster.predict(gb.DMatrix(X), output_margin=True).astype(np.float64)
    np.testing.assert_allclose(predicted.T, expectiles(margin.T), rtol=1e-5, atol=1e-6)  # sums of float32


def test_labels_of_one_value_have_finite_margins():
    d = gb.DMatrix(np.zeros((5, 1)), np.full(5, 2.0))
    booster = gb.train({"objective": "reg:expectileerror", "expectile_alpha": ALPHAS}, d, 0)
    assert booster.predict(d)[0] == pytest.approx([2, 2, 2], abs=1e-5)


@pytest.mark.parametrize("alphas", [0.3, ALPHAS])
def test_it_is_xgboosts_both_ways(alphas, tmp_path):
    xgboost = pytest.importorskip("xgboost", "3.3", reason="XGBoost 3.3 has reg:expectileerror")
    X, y, weight = table()
    params = {"objective": "reg:expectileerror", "expectile_alpha": alphas, "max_depth": 3, "max_bin": 512}
    ours = gb.train(params, gb.DMatrix(X, y, weight=weight), 3)
    theirs = xgboost.train(
        {**params, "base_score": list(ours.model.base_score), "nthread": 1}, xgboost.DMatrix(X, y, weight=weight), 3
    )
    for margin in (True, False):
        expected = theirs.predict(xgboost.DMatrix(X), output_margin=margin)
        np.testing.assert_allclose(ours.predict(gb.DMatrix(X), output_margin=margin), expected, rtol=2e-5, atol=2e-5)
        read = xgboost.Booster(model_file=ours.save_raw("json"))
        np.testing.assert_allclose(
            read.predict(xgboost.DMatrix(X), output_margin=margin), ours.predict(gb.DMatrix(X), output_margin=margin), rtol=2e-6,
            atol=1e-6,
        )  # fmt: skip
        read = gb.Booster(model_file=bytes(theirs.save_raw("json")))
        np.testing.assert_allclose(read.predict(gb.DMatrix(X), output_margin=margin), expected, rtol=2e-6, atol=1e-6)


@pytest.mark.parametrize("alphas, message", [
    (None, "needs expectile_alpha"), ([0.5, 0.1], "must ascend"), ([0.0, 0.5], "between 0 and 1, both excluded"),
])  # fmt: skip
def test_alphas_are_checked(alphas, message):
    with pytest.raises(ValueError, match=message):
        gb.train({"objective": "reg:expectileerror", "expectile_alpha": alphas}, gb.DMatrix(np.zeros((3, 1)), [1, 2, 3]), 1)


def test_the_file_records_the_alphas():
    X, y, _ = table(50)
    booster = gb.train({"objective": "reg:expectileerror", "expectile_alpha": ALPHAS}, gb.DMatrix(X, y), 2)
    recorded = json.loads(booster.save_raw("json"))["learner"]["objective"]
    assert recorded["expectile_loss_param"] == {"expectile_alpha": "[0.1,0.5,0.8]"}
    again = gb.Booster(model_file=bytes(booster.save_raw("json")))
    np.testing.assert_array_equal(again.predict(gb.DMatrix(X)), booster.predict(gb.DMatrix(X)))
