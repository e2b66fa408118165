"""Metrics that are a mean over rows, beside scikit-learn's, formulas in NumPy and XGBoost's: weights, ties, several columns."""

import numpy as np
import pytest
import scipy.special
from sklearn import metrics as sklearn_metrics

import gpuboost as gb
from gpuboost.metrics import get_metric

xgboost = pytest.importorskip("xgboost")


def mean_of(term):
    return lambda y, p, w: np.average(term(y.astype(np.float64), p.astype(np.float64)), weights=w)


def of_sklearn(name, root=False, **options):
    function = getattr(sklearn_metrics, name)
    return lambda y, p, w: function(y, p, sample_weight=w, **options) ** (0.5 if root else 1)


def tweedie_loss(rho):
    return mean_of(lambda y, p: p ** (2 - rho) / (2 - rho) - y * p ** (1 - rho) / (1 - rho))


# name → (its value, labels, parameters of training)
AMOUNTS, COUNTS, ANY = "amounts", "counts", "any"
METRICS = {
    "rmse": (of_sklearn("mean_squared_error", root=True), ANY, {}),
    "mae": (of_sklearn("mean_absolute_error"), ANY, {}),
    "rmsle": (of_sklearn("mean_squared_log_error", root=True), COUNTS, {}),
    "mape": (of_sklearn("mean_absolute_percentage_error"), AMOUNTS, {}),
    "mphe": (mean_of(lambda y, p: np.sqrt(1 + (y - p) ** 2) - 1), ANY, {}),
    "mphe, slope": (mean_of(lambda y, p: 2.25 * (np.sqrt(1 + (y - p) ** 2 / 2.25) - 1)), ANY, {"huber_slope": 1.5}),
    "poisson-nloglik": (mean_of(lambda y, p: scipy.special.gammaln(y + 1) + p - y * np.log(p)), COUNTS, {}),
    "gamma-nloglik": (mean_of(lambda y, p: y / p + np.log(p)), AMOUNTS, {}),
    # XGBoost adds 1e-6 to either
    "gamma-deviance": (lambda y, p, w: sklearn_metrics.mean_gamma_deviance(y + 1e-6, p + 1e-6, sample_weight=w), AMOUNTS, {}),
    "tweedie-nloglik@1.5": (tweedie_loss(1.5), COUNTS, {}),
    "tweedie-nloglik@1.1": (tweedie_loss(1.1), COUNTS, {}),
    "quantile": (of_sklearn("mean_pinball_loss", alpha=0.3), ANY, {"quantile_alpha": 0.3}),
    "expectile": (mean_of(lambda y, p: np.where(p >= y, 0.7, 0.3) * (y - p) ** 2), ANY, {"expectile_alpha": 0.3}),
}


def rows(kind, n_rows=500):
    """Labels, predictions, some of them equal, and weights, some of them 0."""
    rng = np.random.default_rng(8)
    label = {ANY: rng.normal(size=n_rows) * 5, COUNTS: rng.poisson(2, n_rows), AMOUNTS: rng.gamma(2, 3, n_rows) + 0.1}[kind]
    prediction = np.round(rng.gamma(2, 2, n_rows) + 0.05, 2) * (rng.choice([-1, 1], n_rows) if kind == ANY else 1)
    prediction[::50] = np.round(label[::50]) + (kind != ANY)
    weight = rng.integers(0, 5, n_rows) / 3
    return label.astype(np.float32), prediction.astype(np.float32), weight.astype(np.float32)


def value(library, metric, label, prediction, weight=None, **params):
    """By a model without trees whose margins are the predictions."""
    data = library.DMatrix(np.zeros((len(label), 1)), label, weight=weight, base_margin=prediction)
    params = {"objective": "reg:squarederror", "eval_metric": metric, "base_score": 0, **params}
    booster = library.train(params, data, 0)
    return float(booster.eval(data, "t").split(f"t-{metric}:")[1])


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("name", METRICS)
def test_values_are_those_of_the_formula_and_of_xgboost(name, weighted):
    formula, kind, params = METRICS[name]
    label, prediction, weight = rows(kind)
    weight = weight if weighted else None
    metric = name.split(",")[0]
    ours = value(gb, metric, label, prediction, weight, **params)
    assert ours == pytest.approx(formula(label.astype(np.float64), prediction.astype(np.float64), weight), rel=1e-6)
    if metric not in ("quantile", "expectile"):  # XGBoost has them for their own objectives only
        assert ours == pytest.approx(value(xgboost, metric, label, prediction, weight, **params), rel=1e-5)  # in float32


def test_tweedie_at_1_is_poisson_without_its_constant():
    label, prediction, _ = rows(COUNTS)
    poisson = value(gb, "poisson-nloglik", label, prediction) - np.mean(scipy.special.gammaln(label.astype(np.float64) + 1))
    assert value(gb, "tweedie-nloglik@1", label, prediction) == pytest.approx(poisson, rel=1e-9)


def test_several_quantiles_have_their_own_alpha():
    label, prediction, weight = rows(ANY)
    several = np.stack([prediction, prediction + 1], axis=1)
    data = gb.DMatrix(np.zeros((len(label), 1)), np.stack([label, label], axis=1), weight=weight, base_margin=several)
    booster = gb.train({"eval_metric": ["quantile", "expectile"], "quantile_alpha": [0.1, 0.8], "expectile_alpha": 0.5}, data, 0)
    values = [float(part.split(":")[1]) for part in booster.eval(data).split()[1:]]
    pinball = [sklearn_metrics.mean_pinball_loss(label, several[:, k], sample_weight=weight, alpha=(0.1, 0.8)[k]) for k in (0, 1)]
    assert values[0] == pytest.approx(np.mean(pinball), rel=1e-6)
    halved = np.average((several - label[:, None]).astype(np.float64) ** 2, axis=0, weights=weight).mean() / 2
    assert values[1] == pytest.approx(halved, rel=1e-6)
    with pytest.raises(ValueError, match="quantile_alpha has 3 values for 2 outputs. Give one, or one for each."):
        gb.train({"eval_metric": "quantile", "quantile_alpha": [0.1, 0.2, 0.3]}, data, 0).eval(data)


def test_a_term_that_is_not_defined_makes_the_value_nan():
    assert np.isnan(value(gb, "rmsle", np.float32([1, 2]), np.float32([1, -1])))
    assert np.isnan(value(gb, "mape", np.float32([1, 0]), np.float32([1, 0])))
    assert np.isnan(value(gb, "gamma-deviance", np.float32([1, 2]), np.float32([1, -1])))
    assert np.isnan(value(gb, "poisson-nloglik", np.float32([1, -2]), np.float32([1, 1])))


def test_a_percentage_of_nothing_is_infinite():
    label, prediction = np.float32([1, 0]), np.float32([1, 1])
    assert value(gb, "mape", label, prediction) == value(xgboost, "mape", label, prediction) == np.inf


@pytest.mark.parametrize("name", ["tweedie-nloglik", "tweedie-nloglik@2", "tweedie-nloglik@x", "tweedie-nloglik@"])
def test_the_power_of_tweedie_is_checked(name):
    with pytest.raises(ValueError, match=f"'tweedie-nloglik@rho' needs a number from 1 to below 2, got '{name}'. Use @1.5"):
        get_metric(name)
    for given, shown in (("1.50", "1.5"), ("1", "1"), ("1.2345678", "1.2345678")):
        assert get_metric(f"tweedie-nloglik@{given}").name == f"tweedie-nloglik@{shown}"


def test_alphas_must_be_given():
    with pytest.raises(ValueError, match="eval_metric 'quantile' needs the parameter quantile_alpha. Give it, such as"):
        get_metric("quantile")


@pytest.mark.parametrize("metric", ["error", "logloss", "rmse", "mae", "mape", "mphe", "rmsle", "poisson-nloglik", "error@0.3"])
def test_metrics_of_single_predictions_are_not_for_classes(metric):
    """As in XGBoost but for mphe; it names merror and mlogloss, too."""
    X, y = np.random.default_rng(0).random((60, 2)), np.arange(60) % 3
    data = gb.DMatrix(X, y)
    fix = f"Use m{metric}" if metric in ("error", "logloss") else "Use "
    for objective in ("multi:softprob", "multi:softmax"):
        params = {"objective": objective, "num_class": 3, "eval_metric": metric}
        with pytest.raises(ValueError, match=f"{metric}' takes a label for each prediction, got 1 for 3. {fix}"):
            gb.train(params, data, 1, evals=[(data, "t")])
    alphas = {"objective": "reg:quantileerror", "quantile_alpha": [0.1, 0.9], "eval_metric": metric}
    with pytest.raises(ValueError, match="takes a label for each prediction, got 1 for 2"):
        gb.train(alphas, data, 1, evals=[(data, "t")])
