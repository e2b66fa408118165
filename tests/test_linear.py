"""booster="gblinear": coordinate descent against its formulas, scikit-learn's optima and XGBoost's steps and files; one model for
any threads, workers and tables."""

import json

import numpy as np
import pytest
import scipy.sparse
from peer_versions import xgboost_before

import gpuboost as gb
from gpuboost.callback import EarlyStopping
from gpuboost.communicator import run_threads
from gpuboost.linear import boosting
from gpuboost.model_io import digest

QUIET = {"verbose_eval": False}
LINEAR = {"booster": "gblinear", "eta": 1.0}
DESCENT, SHOTGUN = {**LINEAR, "updater": "coord_descent"}, {**LINEAR, "updater": "shotgun"}
UPDATERS = pytest.mark.parametrize("params", [DESCENT, SHOTGUN], ids=lambda params: params["updater"])


def make_table(n_rows=300, n_features=6, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, n_features)).astype(np.float32)
    X[:, 1:2] += 0.7 * X[:, :1]
    return X, (X @ np.linspace(3, -2, n_features) + rng.normal(size=n_rows)).astype(np.float32)


def train(params, data, rounds=3, **options):
    return gb.train(params, data, rounds, **QUIET, **options)


def weights(booster):
    """float32: of the columns, and the bias, of the first output."""
    return booster.model.linear.weights[:, 0]


# ---- what a round does


def by_hand(X, y, params, rounds):
    """Rounds of squared error in float64: the bias, then columns one by one, or 16 at a time shortened alike."""
    n, w, bias = len(y), np.zeros(X.shape[1]), 0.0
    alpha, lam, eta = (params.get(name, 0.0) for name in ("alpha", "lambda", "eta"))
    alpha, lam = alpha * n, lam * n
    for _ in range(rounds):
        g = X @ w + bias - y
        step = -eta * g.mean()
        bias, g = bias + step, g + step
        size = 1 if params["updater"] == "coord_descent" else 16
        for first in range(0, len(w), size):
            own = slice(first, first + size)
            columns, h = X[:, own], (X[:, own] ** 2).sum(axis=0)
            grad = g @ columns + lam * w[own]
            target = w[own] - grad / (h + lam)
            steps = np.sign(target) * np.maximum(abs(target) - alpha / (h + lam), 0) - w[own]
            apart = ((h + lam) * steps**2).sum()
            together = ((columns @ steps) ** 2).sum() + lam * (steps**2).sum()
            steps *= eta * (1 if size == 1 else min(1, apart / together))
            w[own] += steps
            g = g + columns @ steps
    return np.append(w, bias)


@UPDATERS
@pytest.mark.parametrize("penalties", [{}, {"alpha": 0.5, "lambda": 0.1}], ids=["plain", "elastic"])
def test_rounds_are_those_of_plain_loops(params, penalties):
    X, y = make_table(n_features=20)
    params = {**params, **penalties, "eta": 0.7}
    booster, expected = train({**params, "base_score": 0.0}, gb.DMatrix(X, y), 4), by_hand(X.astype(float), y, params, 4)
    np.testing.assert_allclose(weights(booster), expected, rtol=1e-5, atol=1e-5)  # gradients are float32


@UPDATERS
def test_columns_that_are_alike_do_not_diverge(params):
    """Sixteen copies, each of which would alone take the whole step; the loss falls in every round."""
    X, y = make_table(100, 1)
    X, scores = np.repeat(X, 16, axis=1), {}
    data = gb.DMatrix(X, y)
    train(params, data, 8, evals=[(data, "train")], evals_result=scores)
    losses, slope = scores["train"]["rmse"], np.polyfit(X[:, 0], y, 1)[0]
    assert all(after <= before * (1 + 1e-6) for before, after in zip(losses, losses[1:]))  # float32 margins
    assert losses[-1] == pytest.approx(np.std(y - slope * X[:, 0]), rel=1e-3)


@UPDATERS
def test_converged_weights_are_those_of_scikit_learn(params):
    sklearn = pytest.importorskip("sklearn.linear_model")
    X, y = make_table()
    elastic = sklearn.ElasticNet(alpha=0.4, l1_ratio=0.75, tol=1e-10, max_iter=10**5).fit(X.astype(float), y.astype(float))
    ours = weights(train({**params, "alpha": 0.3, "lambda": 0.1, "base_score": 0.0}, gb.DMatrix(X, y), 150))
    np.testing.assert_allclose(ours, [*elastic.coef_, elastic.intercept_], atol=1e-4)
    logistic = sklearn.LogisticRegression(C=2.0, tol=1e-10, max_iter=10**4).fit(X, y > 0)
    params = {**params, "objective": "binary:logistic", "lambda": 1 / (2 * len(y)), "base_score": 0.5}
    np.testing.assert_allclose(
        weights(train(params, gb.DMatrix(X, y > 0), 300)), [*logistic.coef_[0], *logistic.intercept_], atol=1e-4
    )


# ---- one model


def everything(objective):
    """(params, label): several outputs, weights of rows, missing values."""
    params = {"objective": objective, "alpha": 0.01, "lambda": 0.1, "eta": 0.5, "seed": 3}
    return params | ({"num_class": 3} if objective == "multi:softprob" else {})


@UPDATERS
@pytest.mark.parametrize("objective", ["reg:squarederror", "multi:softprob", "survival:cox"])
def test_one_model_for_threads_workers_tables_and_continued(params, objective, monkeypatch):
    monkeypatch.setattr(boosting, "VALUES_PER_THREAD", 1)
    X, y = make_table(120, 20)
    rng = np.random.default_rng(1)
    X[rng.random(X.shape) < 0.4] = 0
    weight = rng.integers(0, 4, 120) / 2
    y = np.digitize(y, [-1, 1]) if objective == "multi:softprob" else abs(y) + 1 if objective == "survival:cox" else y
    params = {**params, **everything(objective), "feature_selector": "shuffle"}
    booster = train(params, gb.DMatrix(X, y, weight=weight), 3)
    expected = digest(booster.model)
    assert digest(train({**params, "nthread": 1}, gb.DMatrix(X, y, weight=weight), 3).model) == expected
    with_nan = np.where(X == 0, np.nan, X)
    for table in (with_nan, X.astype(np.float64), scipy.sparse.csr_matrix(X), scipy.sparse.csc_matrix(X)):
        assert digest(train(params, gb.DMatrix(table, y, weight=weight), 3).model) == expected
    given_missing = gb.DMatrix(np.where(X == 0, np.float32(-999), X), y, weight=weight, missing=-999)
    assert digest(train(params, given_missing, 3).model) == expected
    first = train(params, gb.DMatrix(X, y, weight=weight), 1)
    for model in (first, bytes(first.save_raw("json"))):
        assert digest(train(params, gb.DMatrix(X, y, weight=weight), 2, xgb_model=model).model) == expected
    for n in (2, 3):
        bounds = [0, 33, 80, 120] if n == 3 else [0, 33, 120]
        own = [slice(*pair) for pair in zip(bounds, bounds[1:])]
        work = lambda rank: digest(train(params, gb.DMatrix(X[own[rank]], y[own[rank]], weight=weight[own[rank]]), 3).model)  # noqa: E731, B023
        assert run_threads(n, work) == [expected] * n


@pytest.mark.parametrize("n_features", [1, 17])
def test_a_last_column_on_its_own_steps_as_far_as_it_would_alone(n_features):
    """Its step is not shortened, by what another round kept either: going on gives the model of all rounds."""
    X, y = make_table(80, n_features)
    data, params = gb.DMatrix(X, y), {**SHOTGUN, "eta": 0.5, "base_score": 0}
    whole = train(params, data, 4)
    np.testing.assert_allclose(weights(whole), by_hand(X, y, params, 4), rtol=1e-4, atol=1e-5)
    assert digest(train(params, data, 2, xgb_model=train(params, data, 2)).model) == digest(whole.model)


def test_resumed_after_a_kill_it_is_the_same(tmp_path):
    X, y = make_table()
    params = {**SHOTGUN, "feature_selector": "shuffle", "eta": 0.5}
    expected = digest(train(params, gb.DMatrix(X, y), 7).model)
    train(params, gb.DMatrix(X, y), 4, resume_from=tmp_path, checkpoint_interval=2)
    assert digest(train(params, gb.DMatrix(X, y), 7, resume_from=tmp_path, checkpoint_interval=2).model) == expected
    with pytest.raises(ValueError, match="values of data was"):
        train(params, gb.DMatrix(X * 2, y), 9, resume_from=tmp_path)


def test_random_columns_follow_the_seed():
    X, y = make_table()
    params = {**DESCENT, "feature_selector": "random", "eta": 0.5}
    models = [digest(train({**params, "seed": seed}, gb.DMatrix(X, y), 2).model) for seed in (0, 0, 1)]
    assert models[0] == models[1] != models[2]


# ---- beside the rest


def test_evaluations_are_those_of_the_predictions():
    X, y = make_table()
    scores, data, other = {}, gb.DMatrix(X, y), gb.DMatrix(scipy.sparse.csr_matrix(X[::2]), y[::2])
    evals = [(data, "train"), (other, "other")]
    booster = train(SHOTGUN, data, 3, evals=evals, evals_result=scores)
    for matrix, name in evals:
        rmse = np.sqrt(np.mean((booster.predict(matrix) - matrix.get_label()) ** 2))
        assert scores[name]["rmse"][-1] == pytest.approx(rmse, rel=1e-6)  # float32 predictions
    for table in (X, X[:3], scipy.sparse.csr_matrix(X)):
        assert booster.inplace_predict(table).tobytes() == booster.predict(data)[: table.shape[0]].tobytes()
    margin = np.full(len(X), 2.0)
    np.testing.assert_allclose(
        booster.predict(gb.DMatrix(X, base_margin=margin)), booster.predict(data) - booster.model.base_score[0] + 2, rtol=1e-5
    )


def test_a_users_objective_gives_the_built_in_ones_model():
    X, y = make_table()
    halves = lambda prediction, dtrain: (prediction - dtrain.get_label(), np.ones_like(prediction))  # noqa: E731
    params = {**SHOTGUN, "base_score": 0.5}
    own, built_in = (train(params, gb.DMatrix(X, y), 3, obj=obj).model.linear for obj in (halves, None))
    np.testing.assert_allclose(own.weights, built_in.weights, rtol=1e-5)  # the gradients of Python's functions are cut short
    with pytest.warns(UserWarning, match="300 of 300 hessians of the custom objective are negative"):
        train(params, gb.DMatrix(X, y), 1, obj=lambda p, d: (p, -np.ones_like(p)))


def test_early_stopping_stops_and_predicts_with_all_rounds():
    X, y = make_table(60)
    data, held_out = gb.DMatrix(X[:30], y[:30]), gb.DMatrix(X[30:], y[30:])
    booster = train({**SHOTGUN, "eta": 1.0}, data, 500, evals=[(held_out, "test")], early_stopping_rounds=3)
    assert booster.best_iteration < booster.num_boosted_rounds() < 500
    with pytest.raises(ValueError, match="has the weights of its last round alone, so its .* rounds cannot be taken apart"):
        booster[: booster.best_iteration + 1]


def test_cross_validation_trains_them():
    X, y = make_table()
    result = gb.cv(SHOTGUN, gb.DMatrix(X, y), 20, as_pandas=False)
    assert result["test-rmse-mean"][-1] < 1.2 < result["test-rmse-mean"][0]  # noise of 1


def test_estimators_tell_their_coefficients():
    X, y = make_table()
    model = gb.GPUBoostRegressor(booster="gblinear", n_estimators=30, learning_rate=1.0).fit(X, y)
    np.testing.assert_allclose(X @ model.coef_ + model.intercept_, model.predict(X), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(model.feature_importances_, model.coef_ / model.coef_.sum(), rtol=1e-6)
    classes = gb.GPUBoostClassifier(booster="gblinear", n_estimators=30).fit(X, np.digitize(y, [-2, 2]))
    assert classes.coef_.shape == (3, 6) and classes.intercept_.shape == (3,) and classes.score(X, np.digitize(y, [-2, 2])) > 0.7
    margin = classes.predict(X, output_margin=True)
    np.testing.assert_allclose(X @ classes.coef_.T + classes.intercept_, margin, rtol=1e-3, atol=1e-4)
    assert not hasattr(gb.GPUBoostRegressor(n_estimators=1).fit(X, y), "coef_")
    stopped = gb.GPUBoostRegressor(booster="gblinear", early_stopping_rounds=2, n_estimators=50).fit(X, y, eval_set=[(X, y)])
    assert stopped.predict(X).tobytes() == stopped.get_booster().inplace_predict(X).tobytes()


@pytest.mark.parametrize(
    "refused, params",
    [
        ("device must be 'cpu' with booster='gblinear', got 'cuda'", {"device": "cuda"}),
        ("feature_selector must be 'cyclic' or 'shuffle' with updater='shotgun', got 'greedy'", {"feature_selector": "greedy"}),
        (
            "updater must be None with booster='gbtree' and process_type='default', got 'shotgun'",
            {"booster": "gbtree", "updater": "shotgun"},
        ),
    ],
    ids=lambda value: "" if isinstance(value, str) else next(iter(value)),
)
def test_what_makes_no_sense_is_refused(refused, params):
    X, y = make_table()
    with pytest.raises(ValueError, match=refused):
        train({**LINEAR, **params}, gb.DMatrix(X, y))


def test_what_a_linear_model_does_not_have_is_refused():
    X, y = make_table()
    booster = train(LINEAR, gb.DMatrix(X, y))
    with pytest.raises(ValueError, match="has no trees, so pred_leaf has no meaning"):
        booster.predict(gb.DMatrix(X), pred_leaf=True)
    for look in (lambda: booster[:1], lambda: booster.predict(gb.DMatrix(X), iteration_range=(0, 2))):
        with pytest.raises(ValueError, match="its 3 rounds cannot be taken apart"):
            look()
    with pytest.raises(ValueError, match="importance_type must be 'weight' for booster='gblinear'"):
        booster.get_score(importance_type="gain")
    for look in (booster.trees_to_dataframe, lambda: booster.get_split_value_histogram("f0")):
        with pytest.raises(ValueError, match="which a model of booster='gblinear' does not have"):
            look()
    with pytest.raises(ValueError, match="'text' or 'json' for booster='gblinear'"):
        booster.get_dump(dump_format="dot")
    with pytest.raises(ValueError, match="of which a QuantileDMatrix keeps only bin numbers"):
        train(LINEAR, gb.QuantileDMatrix(X, y))
    with pytest.raises(ValueError, match="weighs numbers, but a column holds categories"):
        train(LINEAR, gb.DMatrix(abs(X).astype(int), y, feature_types=["c"] * 6))
    with pytest.raises(FloatingPointError, match="not finite|beyond float32"):
        train({**LINEAR, "eta": 1e30}, gb.DMatrix(X, y), 9)


def test_trees_do_not_go_on_as_weights_nor_weights_as_trees():
    X, y = make_table()
    data = gb.DMatrix(X, y)
    weights_then_trees, trees_then_weights = train(LINEAR, data), train({}, data)
    with pytest.raises(ValueError, match="booster='gbtree', but the model was trained with 'gblinear'"):
        train({"booster": "gbtree"}, data, xgb_model=weights_then_trees)
    with pytest.raises(ValueError, match="booster='gblinear', but the model was trained with trees"):
        train(LINEAR, data, xgb_model=trees_then_weights)
    assert train({}, data, xgb_model=bytes(weights_then_trees.save_raw())).num_boosted_rounds() == 6  # the file says what it is


def test_tree_parameters_are_ignored():
    X, y = make_table()
    given = {"max_depth": 3, "subsample": 0.5, "num_parallel_tree": 3, "rate_drop": 0.5, "tree_method": "exact"}
    assert digest(train({**LINEAR, **given}, gb.DMatrix(X, y)).model) == digest(train(LINEAR, gb.DMatrix(X, y)).model)


# ---- XGBoost


@pytest.mark.parametrize("selector", ["cyclic", "greedy", "thrifty"])
def test_rounds_are_those_of_xgboost(selector):
    xgboost = pytest.importorskip("xgboost")
    X, y = make_table()
    params = {**DESCENT, "eta": 0.5, "feature_selector": selector, "top_k": 4, "alpha": 0.02, "lambda": 0.1, "base_score": 0.5}
    theirs = xgboost.train({**params, "nthread": 1}, xgboost.DMatrix(X, y), 5)
    np.testing.assert_allclose(
        train(params, gb.DMatrix(X, y), 5).predict(gb.DMatrix(X)), theirs.predict(xgboost.DMatrix(X)), rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize("objective", ["reg:squarederror", "multi:softprob", "count:poisson"])
def test_files_go_both_ways(objective):
    xgboost = pytest.importorskip("xgboost")
    X, y = make_table()
    X[::3, 2] = np.nan
    y = np.digitize(y, [-1, 1])
    params = {**everything(objective), "booster": "gblinear"}
    ours = train({**params, "eta": 0.1}, gb.DMatrix(X, y), 3)
    theirs = xgboost.train(params, xgboost.DMatrix(X, y), 3)
    for raw_format in ("json", "ubj"):
        loaded = xgboost.Booster(model_file=ours.save_raw(raw_format))
        np.testing.assert_allclose(loaded.predict(xgboost.DMatrix(X)), ours.predict(gb.DMatrix(X)), rtol=1e-6)
        assert loaded.num_boosted_rounds() == 3
        read = gb.Booster(model_file=bytes(theirs.save_raw(raw_format)))
        np.testing.assert_allclose(read.predict(gb.DMatrix(X)), theirs.predict(xgboost.DMatrix(X)), rtol=1e-6)
        assert read.num_boosted_rounds() == 3
        assert gb.Booster(model_file=bytes(ours.save_raw(raw_format))).model == ours.model
    assert read.get_dump() == theirs.get_dump() and read.get_score() == theirs.get_score(importance_type="weight")
    assert json.loads(read.get_dump(dump_format="json")[0]) == json.loads(theirs.get_dump(dump_format="json")[0])
    assert train(params, gb.DMatrix(X, y), 2, xgb_model=read).num_boosted_rounds() == 5


# ---- ranking


def test_queries_are_ranked_alike_by_any_threads_and_after_going_on(tmp_path):
    X, y = make_table()
    relevance = np.digitize(y, [-3, 0, 3])
    data = gb.DMatrix(X, relevance, qid=np.arange(len(X)) // 10)
    params = {**SHOTGUN, "objective": "rank:ndcg", "lambdarank_unbiased": True, "eta": 0.3}
    scores = {}
    whole = train(params, data, 6, evals=[(data, "train")], evals_result=scores)
    found = scores["train"]["ndcg@32"]
    assert found[-1] > found[0] and found[-1] > 0.95
    assert digest(train({**params, "nthread": 1}, data, 6).model) == digest(whole.model)
    train(params, data, 2).save_model(tmp_path / "model.ubj")
    assert digest(train(params, data, 4, xgb_model=tmp_path / "model.ubj").model) == digest(whole.model)


# ---- explanations


@pytest.mark.parametrize("objective, n_outputs", [("reg:squarederror", 1), ("multi:softprob", 3)])
def test_contributions_are_weights_times_values_and_add_up(objective, n_outputs):
    X, y = make_table()
    X[::3, 2] = np.nan
    y = y if n_outputs == 1 else np.digitize(y, [-1, 1])
    booster = train({**DESCENT, "objective": objective, "num_class": n_outputs if n_outputs > 1 else 0}, gb.DMatrix(X, y))
    data, w = gb.DMatrix(X), booster.model.linear.weights
    margin = booster.predict(data, output_margin=True).reshape(len(X), n_outputs)
    values = booster.predict(data, pred_contribs=True, strict_shape=True)
    np.testing.assert_allclose(values[..., :-1], np.nan_to_num(X)[:, None] * w.T[None, :, :-1], rtol=1e-6)
    np.testing.assert_allclose(values.sum(axis=2), margin, atol=1e-5)
    pairs = booster.predict(data, pred_interactions=True, strict_shape=True)
    assert pairs.shape == (len(X), n_outputs, 7, 7)
    np.testing.assert_array_equal(pairs.sum(axis=3), values)
    against = booster.contributions(data, background=gb.DMatrix(X[:50]))
    np.testing.assert_allclose(against.sum(axis=2), margin, atol=1e-5)
    np.testing.assert_allclose(against[:50, :, :-1].mean(axis=0), 0, atol=1e-6)


def test_contributions_are_xgboosts(tmp_path):
    xgboost = pytest.importorskip("xgboost")
    X, y = make_table()
    booster = train(SHOTGUN, gb.DMatrix(X, y))
    booster.save_model(tmp_path / "model.json")
    theirs = xgboost.Booster(model_file=tmp_path / "model.json").predict(xgboost.DMatrix(X), pred_contribs=True)
    np.testing.assert_allclose(booster.predict(gb.DMatrix(X), pred_contribs=True), theirs, atol=1e-5)


# ---- what it cannot do


def test_what_only_trees_keep_is_refused_before_a_round():
    X, y = make_table()
    data = gb.DMatrix(X, y)
    for given in ({"monotone_constraints": (1, 0, 0, 0, 0, 0)}, {"interaction_constraints": [[0, 1]]}):
        with pytest.raises(ValueError, match=f"{next(iter(given))} must be .* with booster='gblinear'"):
            train({**LINEAR, **given}, data)
    with pytest.raises(ValueError, match="save_best of EarlyStopping .*gblinear"):
        train(LINEAR, data, evals=[(data, "train")], callbacks=[EarlyStopping(rounds=2, save_best=True)])


def test_a_penalty_beyond_all_sums_leaves_no_weights():
    X, y = make_table(40)
    assert not weights(train({**SHOTGUN, "lambda": 1e300}, gb.DMatrix(X, y)))[:-1].any()


@UPDATERS
@pytest.mark.parametrize("offset", [0, 100])
def test_several_expectiles_start_where_their_biases_say(params, offset):
    """Outputs are increments: the first one's base_score is that of all, as in XGBoost, and biases make up for it."""
    xgboost = pytest.importorskip("xgboost")
    X, y = make_table()
    data = gb.DMatrix(X, y + offset)
    params = {**params, "objective": "reg:expectileerror", "expectile_alpha": [0.1, 0.5, 0.9], "eta": 0.5}
    log = {}
    booster = train(params, data, 60, evals=[(data, "t")], evals_result=log)
    losses = log["t"]["expectile"]
    assert losses[-1] < 0.5 * losses[0] and np.isfinite(losses).all()
    spread = np.diff(booster.predict(data).mean(axis=0))
    assert (spread > 0.1).all()
    contributions = booster.predict(data, pred_contribs=True)
    np.testing.assert_allclose(contributions.sum(axis=-1), booster.predict(data, output_margin=True), rtol=1e-5)
    if xgboost_before(3, 4):
        return  # it has no expectiles
    loaded = xgboost.Booster(model_file=booster.save_raw("json"))
    np.testing.assert_allclose(loaded.predict(xgboost.DMatrix(X)), booster.predict(data), rtol=1e-5)
    theirs = xgboost.train({**params, "nthread": 1}, xgboost.DMatrix(X, y + offset), 5)
    read = gb.Booster(model_file=bytes(theirs.save_raw("json")))
    np.testing.assert_allclose(read.predict(data), theirs.predict(xgboost.DMatrix(X)), rtol=1e-5)
