"""output_sketch: splits searched by a few combinations of the outputs, leaves from all of them."""

import math

import numpy as np
import pytest
from naive_backend import NaiveBackend
from test_vector_leaves import VECTOR, make_table, train

import gpuboost as gb
from gpuboost.backend.output_sketch import choose_outputs
from gpuboost.backend.plans import OutputSketch
from gpuboost.communicator import run_threads
from gpuboost.model_io import digest

METHODS = ["top_outputs:2", "random_sampling:3", "random_projection:2"]


# ---- what is combined


def test_top_outputs_are_those_of_most_squares():
    outputs, factors = choose_outputs(OutputSketch("top_outputs", 2, 1), [5, 9, 9, 7])
    assert (outputs.tolist(), factors.tolist()) == ([[1], [2]], [[1], [1]])
    assert choose_outputs(OutputSketch("top_outputs", 2, 1), [7, 5, 5])[0].tolist() == [[0], [1]], "ties: the lower one"


def test_outputs_are_drawn_by_their_share_and_weighed_against_it():
    squares, counts = [1, 0, 6, 3], np.zeros(4)
    for key in range(2000):
        outputs, factors = choose_outputs(OutputSketch("random_sampling", 2, key), squares)
        np.add.at(counts, outputs, 1)
        assert factors.tolist() == [[math.sqrt(10 / (2 * squares[i]))] for i in outputs[:, 0]]
    # of 4000 draws: 5 standard errors, at most 5·√(4000/4)
    np.testing.assert_allclose(counts, [400, 0, 2400, 1200], atol=160)


def test_a_projection_keeps_squares_on_average():
    """E (Σ a_ji·g_i)² over j sums to Σ g_i²; each sign is fair."""
    g, k, total = np.array([1.0, -2.0, 3.0, 0.5]), 3, []
    for key in range(3000):
        outputs, a = choose_outputs(OutputSketch("random_projection", k, key), [1] * 4)
        assert outputs.tolist() == [[0, 1, 2, 3]] * k and (abs(a) == 1 / math.sqrt(k)).all()
        total.append(((a @ g) ** 2).sum())
    assert np.mean(total) == pytest.approx((g**2).sum(), abs=5 * np.std(total) / math.sqrt(3000))


def test_without_gradients_the_first_outputs_are_searched():
    assert choose_outputs(OutputSketch("random_sampling", 2, 1), [0, 0, 0])[0].tolist() == [[0], [1]]


# ---- what is grown


def test_leaves_are_weighed_by_all_outputs():
    """Only the last target can be learnt, and its splits are found; every leaf holds the mean of every target."""
    X, y = make_table(n_outputs=4)
    y[:, :3] = np.random.default_rng(0).normal(size=(400, 3)) / 100
    params = {"reg_lambda": 0, "learning_rate": 1, "base_score": 0, "max_depth": 3, "output_sketch": "top_outputs:1"}
    booster = train(params, X, y, 1)
    (tree,), leaf = booster.model.trees, booster.predict(gb.DMatrix(X), pred_leaf=True)[:, 0].astype(int)
    alone = train({**params, "output_sketch": None}, X, y[:, 3:], 1).model.trees[0]
    assert tree.n_leaves > 4 and tree.feature.tolist() == alone.feature.tolist()
    assert tree.threshold.tolist() == alone.threshold.tolist()
    for node in np.flatnonzero(tree.left_child < 0):
        np.testing.assert_allclose(tree.leaf_value[node], y[leaf == node].mean(axis=0), rtol=1e-5, atol=1e-7)  # float32 labels


def test_as_many_outputs_as_there_are_need_no_sketch():
    X, y = make_table()
    expected = digest(train({}, X, y).model)
    assert digest(train({"output_sketch": "random_projection:3"}, X, y).model) == expected
    one = make_table(n_outputs=1)
    assert digest(train({"output_sketch": "top_outputs:5"}, *one).model) == digest(train({}, *one).model)


@pytest.mark.parametrize("sketch", METHODS)
def test_one_model_on_threads_workers_pages_and_plain_loops(sketch, monkeypatch):
    X, y = make_table(90, n_outputs=5)
    params = {"output_sketch": sketch, "max_depth": 3, "subsample": 0.8, "histogram_memory": 1}
    expected = digest(train(params, X, y, 2).model)
    bounds = [0, 1, 50, 90]

    def work(rank):
        own = slice(bounds[rank], bounds[rank + 1])
        return digest(train(params, X[own], y[own], 2).model)

    assert run_threads(3, work) == [expected] * 3
    pages = gb.QuantileDMatrix(X, y, max_bin=24, page_rows=31)
    assert digest(gb.train({**params, "multi_strategy": "multi_output_tree", "max_bin": 24}, pages, 2).model) == expected
    raw = train(params, X, y, 1).save_raw()
    assert digest(train(params, X, y, 1, xgb_model=raw).model) == expected
    backend = NaiveBackend()
    monkeypatch.setattr("gpuboost.backend.choose_backend", lambda *_, **__: backend)
    assert digest(train(params, X, y, 2).model) == expected


# ---- what a TreeObjective gives instead


class Given(gb.TreeObjective):
    """Squared error, whose splits are searched by few(round, grad, hess)."""

    def __init__(self, few):
        self.few = few

    def __call__(self, iteration, margin, dtrain):
        return (margin - dtrain.get_label().reshape(margin.shape)) * np.float32(1), np.ones_like(margin)

    def split_grad(self, iteration, grad, hess):
        return self.few(iteration, grad, hess)


def of_outputs(*outputs):
    """As top_outputs has it."""
    return Given(lambda _, g, h: (g[:, outputs], np.stack([h.mean(axis=1)] * len(outputs), axis=1)))


def by_turns(iteration, grad, hess):
    """Fewer and more gradients from round to round, some hessians of them negative, one column without a second axis."""
    mean = grad.mean(axis=1), hess.mean(axis=1) - (grad[:, 0] > 1.5) * 1.25
    return [mean, None, (grad[:, ::2], hess[:, ::2]), (grad * 3, hess), mean][iteration % 5]


def test_the_same_gradients_find_the_same_splits_as_a_sketch():
    X, y = make_table(n_outputs=5)
    y[:, :3] /= 100
    params = {"base_score": 0.5, "subsample": 0.9, "num_parallel_tree": 2}
    sketched = train({**params, "output_sketch": "top_outputs:2"}, X, y, 3)
    assert digest(train(params, X, y, 3, obj=of_outputs(3, 4)).model) == digest(sketched.model)
    assert digest(train(params, X, y, 3, obj=of_outputs(0)).model) != digest(sketched.model)


@pytest.mark.parametrize("n_outputs", [1, 3])
def test_gradients_of_all_outputs_grow_the_trees_of_these(n_outputs):
    X, y = make_table(n_outputs=n_outputs)
    expected = digest(train({"base_score": 0.5}, X, y).model)
    assert digest(train({"base_score": 0.5}, X, y, obj=Given(lambda _, g, h: (g, h))).model) == expected
    assert digest(train({"base_score": 0.5}, X, y, obj=Given(lambda *_: None)).model) == expected


@pytest.mark.parametrize("params", [
    {}, {"subsample": 0.8, "num_parallel_tree": 2, "reg_alpha": 0.1}, {"grow_policy": "lossguide", "max_leaves": 6, "gamma": 0.5},
    {"tree_method": "approx", "colsample_bynode": 0.7}, {"booster": "dart", "rate_drop": 0.5},
], ids=str)  # fmt: skip
def test_given_gradients_give_one_model_however_it_is_trained(params, monkeypatch):
    """For each round another number of them, on threads, workers, pages and plain loops, and round by round."""
    X, y = make_table(90, n_outputs=4)
    y[:, 1] *= 5
    params, objective = {"max_depth": 3, "max_bin": 24, "min_child_weight": 0.1, "base_score": 0.25, **params}, Given(by_turns)
    booster = train({**params, "nthread": 1}, X, y, 6, obj=objective)
    expected = digest(booster.model)
    assert len({tuple(tree.feature) for tree in booster.model.trees}) > 3
    assert digest(train({**params, "nthread": 4}, X, y, 6, obj=objective).model) == expected
    bounds = [0, 1, 50, 90]

    def work(rank):
        own = slice(bounds[rank], bounds[rank + 1])
        return digest(train(params, X[own], y[own], 6, obj=objective).model)

    assert run_threads(3, work) == [expected] * 3
    if params.get("tree_method") != "approx":
        pages = gb.QuantileDMatrix(X, y, max_bin=24, page_rows=31)
        assert digest(gb.train({**VECTOR, **params}, pages, 6, obj=objective).model) == expected
    data, alone = gb.DMatrix(X, y), None
    for i in range(6):
        alone = gb.Booster({**VECTOR, **params}, model_file=alone)
        alone.update(data, i, fobj=objective)
        alone = alone.save_raw()
    assert digest(gb.Booster(model_file=alone).model) == expected
    backend = NaiveBackend()
    monkeypatch.setattr("gpuboost.backend.choose_backend", lambda *_, **__: backend)
    assert digest(train(params, X, y, 6, obj=objective).model) == expected


def test_rounds_without_given_gradients_search_all_outputs_again():
    X, y = make_table()
    data, params = gb.DMatrix(X, y), {**VECTOR, "base_score": 0.5, "eval_metric": "rmse"}
    first = train(params, X, y, 2, obj=of_outputs(1))
    expected = digest(train(params, X, y, 3, xgb_model=first).model)
    booster = gb.Booster(params)
    for i in range(2):
        booster.update(data, i, fobj=of_outputs(1))
    booster.eval(data)
    for _ in range(3):
        booster.update(data)
    assert digest(booster.model) == expected


def test_missing_labels_are_told_as_gradients_of_zero():
    X, y = make_table(n_outputs=3)
    y[np.random.default_rng(1).random(y.shape) < 0.2] = np.nan
    data, seen = gb.DMatrix(X, y, missing_labels="mask"), []

    def few(_, grad, hess):
        seen.append((grad, hess))
        return grad, hess

    models = [gb.train({**VECTOR, "base_score": 0.5}, data, 2, obj=obj).model for obj in (Given(few), Given(lambda *_: None))]
    assert digest(models[0]) == digest(models[1])
    assert all((values[np.isnan(y)] == 0).all() for pair in seen for values in pair)


def test_workers_must_give_as_many_gradients():
    X, y = make_table(60)

    def work(rank):
        own = slice(30 * rank, 30 * rank + 30)
        with pytest.raises(ValueError, match="as many outputs on all workers, got .1, 2."):
            train({"base_score": 0.5}, X[own], y[own], 1, obj=of_outputs(*range(rank + 1)))
        return True

    assert run_threads(2, work) == [True, True]


@pytest.mark.parametrize("params, few, message", [
    ({"multi_strategy": "one_output_per_tree"}, None, "multi_strategy must be 'multi_output_tree' with split_grad"),
    ({"booster": "gblinear", "multi_strategy": "one_output_per_tree"}, None, "for growing trees"),
    ({"monotone_constraints": (1,)}, None, "Monotonic constraints are not supported with reduced gradients"),
    ({"subsample": 0.5, "sampling_method": "gradient_based"}, None, "sampling_method must be 'uniform'"),
    ({}, lambda _, g, h: (np.hstack([g, g]), np.hstack([h, h])), r"\(400, 6\) and \(400, 6\). Both must be \(400,\), or"),
    ({}, lambda _, g, h: (g[:10], h[:10]), "Both must be"),
    ({}, lambda _, g, h: (g[:, 0], h), "Both must be"),
    ({}, lambda _, g, h: (g[:, :0], h[:, :0]), "Both must be"),
])  # fmt: skip
def test_what_is_refused_of_given_gradients(params, few, message):
    X, y = make_table()
    with pytest.raises(ValueError, match=message):
        train({"base_score": 0.5, **params}, X, y, 1, obj=of_outputs(0) if few is None else Given(few))


@pytest.mark.parametrize("few", [1.0, (1, 2, 3), (None, None), ("a", "b")], ids=str)
def test_given_gradients_must_be_a_pair_of_numbers(few):
    X, y = make_table()
    with pytest.raises((TypeError, ValueError), match="split_grad"):
        train({"base_score": 0.5}, X, y, 1, obj=Given(lambda *_: few))


def test_given_gradients_must_be_finite():
    X, y = make_table()
    with pytest.raises(FloatingPointError, match="not finite"):
        train({"base_score": 0.5}, X, y, 1, obj=Given(lambda _, g, h: (g[:, 0] * np.inf, h[:, 0])))


def test_a_sketch_learns_nearly_as_much():
    X, y = make_table(2000, n_outputs=12, seed=8)
    params = {"nthread": 2, "max_depth": 4}

    def error(**more):
        booster = train({**params, **more}, X[:1500], y[:1500], 30)
        return np.sqrt(((booster.predict(gb.DMatrix(X[1500:])) - y[1500:]) ** 2).mean())

    spread = y[1500:].std()
    assert error() < 0.5 * spread
    for sketch in METHODS:
        assert error(output_sketch=sketch) < 0.7 * spread


@pytest.mark.parametrize("params, message", [
    ({"multi_strategy": "one_output_per_tree"}, "multi_strategy"),
    ({"output_sketch": "top_outputs"}, "output_sketch"), ({"output_sketch": "pca:3"}, "output_sketch"),
    ({"output_sketch": "top_outputs:0"}, "output_sketch"),
], ids=str)  # fmt: skip
def test_what_is_refused(params, message):
    X, y = make_table(50)
    with pytest.raises(ValueError, match=message):
        train({"output_sketch": "top_outputs:2", **params}, X, y, 1)
