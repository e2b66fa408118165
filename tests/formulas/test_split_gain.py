"""@gpuboost.split_gain: splits chosen by a user's gain, in every search and on every device."""

import math
import pickle

import numpy as np
import pytest
import reference
import scipy.sparse as sp
from sklearn.base import clone
from test_reference import assert_same_tree, random_table
from test_user_objective import BACKENDS, check_compiled

import gpuboost as gb
from gpuboost.backend import CpuBackend
from gpuboost.communicator import run_threads
from gpuboost.formulas.split_gain import find_gain
from gpuboost.kernels.splits import evaluate_splits_kernel
from gpuboost.model_io import digest

pytestmark = pytest.mark.long  # every gain is compiled into the search, in every process that asks for it

N_ROWS = 150
SEARCHES = {
    "hist": {}, "lossguide": {"grow_policy": "lossguide", "max_leaves": 9}, "approx": {"tree_method": "approx", "max_bin": 16},
    "local": {"tree_method": "approx", "max_bin": 16, "sketch_proposals": "local"}, "exact": {"tree_method": "exact"},
}  # fmt: skip
each_search = pytest.mark.parametrize("search", SEARCHES.values(), ids=SEARCHES)


def table(seed=0):
    """(X, y, weight): columns of normal values, some of them missing, of few values, and 0 or 1."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(N_ROWS, 4)).astype(np.float32)
    X[:, 2], X[:, 3] = rng.integers(0, 4, N_ROWS), X[:, 3] > 0.5
    y = X[:, 0] + np.abs(X[:, 1]) + X[:, 2] + rng.normal(size=N_ROWS)
    X[rng.random(X.shape) < 0.1] = np.nan
    return X, y.astype(np.float32), rng.integers(1, 4, N_ROWS).astype(np.float32)


def matrix(rows=slice(None)):
    X, y, weight = table()
    return gb.DMatrix(X[rows], y[rows], weight=weight[rows])


def train(gain, rounds=3, dtrain=None, xgb_model=None, **params):
    given = {"max_depth": 4, "disable_default_eval_metric": True, "split_gain": gain, "nthread": 1, **params}
    return gb.train(given, dtrain or matrix(), rounds, verbose_eval=False, xgb_model=xgb_model)


# ---- the built-in gain rewritten


@pytest.mark.slow
@each_search
@pytest.mark.parametrize("options", [{}, {"reg_lambda": 0.0, "reg_alpha": 0.7, "gamma": 1.5, "min_child_weight": 3.0}])
def test_the_built_in_gain_rewritten_grows_the_same_model(search, options):
    assert digest(train("my_gain", **search, **options).model) == digest(train(None, **search, **options).model)


@each_search
@pytest.mark.parametrize("options", [{}, {"monotone_constraints": (1, 0, -1, 0)}])
def test_weights_within_bounds_are_given_to_it(search, options):
    options = {"max_delta_step": 0.4, "reg_alpha": 0.2, **options, **search}
    assert digest(train("my_bounded_gain", **options).model) == digest(train(None, **options).model)


@pytest.mark.slow  # compiles for seconds; what it shows is also in "one model everywhere" and the recorded digests
@pytest.mark.parametrize("absent", ["missing", "zero"])
def test_on_sparse_tables(absent):
    rng = np.random.default_rng(3)
    X = sp.random(300, 40, 0.05, "csr", np.float32, rng, data_rvs=lambda n: rng.integers(1, 4, n))
    y = np.asarray(X[:, :3].sum(axis=1)).ravel() + rng.normal(size=300)
    dtrain = gb.DMatrix(X, y, sparse_absent=absent)
    for method in ("hist", "exact"):
        built_in, own, other = (train(gain, 2, dtrain, tree_method=method) for gain in (None, "my_bounded_gain", "apart"))
        assert digest(built_in.model) == digest(own.model) != digest(other.model)


# ---- gains of another kind


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("method", ["hist", pytest.param("exact", marks=pytest.mark.slow)])  # exact search: see the one above
def test_a_gain_of_another_kind_is_that_of_the_reference(seed, method, formulas):
    X, y, weight = random_table(seed, 120, "squared")
    function = formulas.far_apart.__wrapped__
    (tree,) = reference.fit(X, y, weight, base_margin=0.5, max_depth=4, reg_lambda=2.5, gain_of=function)
    params = {"base_score": 0.5, "max_depth": 4, "reg_lambda": 2.5, "tree_method": method, "nthread": 1}
    params["split_gain"] = formulas.far_apart
    booster = gb.train(params, gb.DMatrix(X, y, weight=weight), 1, verbose_eval=False)
    assert booster.model.trees[0].n_leaves > 5
    if method == "hist":  # exact search cuts midway between the values of a node, and sends the rows that it saw the same way
        assert_same_tree(booster.model.trees[0], tree)
    seen = X[weight > 0]
    np.testing.assert_allclose(booster.predict(gb.DMatrix(seen)), 0.5 + reference.predict([tree], seen), atol=1e-6)
    (usual,) = reference.fit(X, y, weight, base_margin=0.5, max_depth=4, reg_lambda=2.5)
    assert splits_of(tree) != splits_of(usual)


def splits_of(node):
    """(feature, threshold) of every split."""
    own = [(node["feature"], node["threshold"])] if "left" in node else []
    return own + splits_of(node["left"]) + splits_of(node["right"]) if own else own


@pytest.mark.sweep(1)
@pytest.mark.parametrize("gain", ["apart@power=1,favoured=2", "fair@proxy=2,price=0.9", "my_bounded_gain"])
def test_one_model_everywhere(gain, use_backend, tmp_path):
    options = {"monotone_constraints": (1, 0, 0, 0), "rounds": 2, "max_depth": 3}
    digests = {}
    for name, make in BACKENDS.items():
        use_backend(make())
        digests[name] = digest(train(gain, **options).model)
    use_backend(CpuBackend(2))
    bounds = [0, 40, 41, N_ROWS]
    shards = run_threads(3, lambda rank: train(gain, dtrain=matrix(slice(bounds[rank], bounds[rank + 1])), **options))
    digests |= {f"worker {rank}": digest(booster.model) for rank, booster in enumerate(shards)}
    options["rounds"] = 1
    train(gain, **options).save_model(tmp_path / "model.ubj")
    digests["resumed"] = digest(train(gain, xgb_model=tmp_path / "model.ubj", **options).model)
    assert len(set(digests.values())) == 1, digests


@pytest.mark.slow
def test_a_price_keeps_a_column_out(formulas):
    cheap, dear = (train(formulas.fair.using(proxy=2, price=price)).get_score() for price in (0.5, 1))
    assert "f2" in cheap and "f2" not in dear


@pytest.mark.slow  # as tests/test_parameters.py
def test_a_split_that_must_not_be():
    @gb.split_gain
    def never_on_the_first(gain, feature):
        return -math.inf if feature == 0 else gain

    assert "f0" not in train(never_on_the_first).get_score() and "f0" in train(None).get_score()


# ---- names, objects, estimators


def test_by_name_by_object_and_in_estimators(formulas):
    expected = digest(train("apart@power=1.0").model)
    assert digest(train(formulas.far_apart.using(power=1)).model) == expected != digest(train(formulas.far_apart).model)
    assert digest(train("apart@1").model) == expected
    X, y, weight = table()
    for gain in (formulas.far_apart.using(power=1), "apart@power=1"):
        estimator = clone(gb.GPUBoostRegressor(split_gain=gain, n_estimators=3, max_depth=4, n_jobs=1))
        assert digest(pickle.loads(pickle.dumps(estimator)).fit(X, y, sample_weight=weight).get_booster().model) == expected
    booster = pickle.loads(pickle.dumps(train(formulas.far_apart.using(power=1), 1)))
    assert digest(train("apart@1", 2, xgb_model=booster).model) == expected


def test_a_model_does_not_need_it(formulas, tmp_path):
    train(formulas.far_apart).save_model(tmp_path / "model.json")
    assert "apart" not in (tmp_path / "model.json").read_text()
    xgboost = pytest.importorskip("xgboost")
    X, _, _ = table()
    theirs = xgboost.Booster(model_file=tmp_path / "model.json").predict(xgboost.DMatrix(X))
    np.testing.assert_allclose(gb.Booster(model_file=tmp_path / "model.json").predict(gb.DMatrix(X)), theirs, rtol=1e-6)


# ---- what is wrong


def test_definitions_are_refused_where_they_stand(formulas):
    def misspelt(left_gard, right_grad):
        return left_gard - right_grad

    def unknown(gain, price):
        return gain * price

    def with_default(gain, reg_lambda=1.0):
        return gain / reg_lambda

    def constant(node_grad, feature):
        return node_grad * feature

    def pair(gain):
        return gain, 1.0

    def calls_sine(gain):
        return math.sin(gain)

    def nothing(gain):
        gain * 2

    def no_number(gain, kind="fair"):
        return gain

    for function, message in (
        (misspelt, r"def misspelt\(left_gard, right_grad\):\n'left_gard' is not known of a split. Did you mean 'left_grad'\?"),
        (unknown, "'price' is not known of a split. Known are left_grad.*; others need a default"),
        (with_default, "'reg_lambda' is what training says of a split. Leave out its default"),
        (constant, "the same for all splits of a node. Let it depend on some of left_grad"),
        (pair, "It returns two numbers. A gain is one"),
        (calls_sine, r"return math.sin\(gain\)\nmath.sin\(\) cannot be compiled"),
        (nothing, "The function returns nothing"),
        (no_number, "'kind' has no finite number as default. Write kind=1.0"),
    ):  # fmt: skip
        with pytest.raises(gb.FormulaError, match=message):
            gb.split_gain(function)
    with pytest.raises(gb.FormulaError, match="made by def"):
        gb.split_gain(3)
    with pytest.raises(ValueError, match="split_gain 'my_gain' is user_formulas.my_gain already. Give .*paper_gain"):
        gb.split_gain(name="my_gain")(paper_gain)


def paper_gain(gain):
    return gain


def test_values_are_refused_when_training_begins():
    @gb.split_gain
    def of_a_logarithm(left_grad, right_grad):
        return math.log(left_grad * right_grad)

    @gb.split_gain
    def endless(left_grad, right_grad):
        return 1 / abs(left_grad - right_grad)

    with pytest.raises(ValueError, match="split_gain='unheard' is not known here; known are: .*my_gain.* Import the module"):
        train("unheard")
    with pytest.raises(ValueError, match="fair has no parameter 'prize'. Did you mean 'price'"):
        train("fair@prize=1")
    with pytest.raises(ValueError, match=r"split_gain must be a function under @gpuboost.split_gain, or its name, got 3"):
        train(3)
    with pytest.raises(FloatingPointError, match="(?s)def of_a_logarithm.*is nan at left_grad=-2.0.*right_grad=3.0"):
        train(of_a_logarithm)
    with pytest.raises(FloatingPointError, match="(?s)def endless.*is inf at left_grad=-2.0.*return -math.inf for a split"):
        train(endless)


@pytest.mark.slow
@pytest.mark.parametrize("gain, bounded", [("apart@power=1.5", False), ("my_bounded_gain", True)])
def test_a_gpu_computes_it_without_calls_or_a_stack(gain, bounded):
    check_compiled(evaluate_splits_kernel(bounded, find_gain(gain, 1.0, 0.0, 0.0).function))
