"""Dart: rounds that leave trees out, what the trees weigh after them, and margins that agree with the model."""

import gc
import json
import weakref

import numpy as np
import pytest
from naive_backend import NaiveBackend
from peer_versions import tree_weights, xgboost_before
from simulator import SimulatedDevice
from test_forests import QUIET, make_table

import gpuboost as gb
from gpuboost.backend.cuda import CudaBackend
from gpuboost.backend.dropout import draw_dropped, weights_after
from gpuboost.communicator import run_threads
from gpuboost.model_io import digest
from gpuboost.params import Params

DART = {"booster": "dart", "rate_drop": 0.4, "max_depth": 3, "max_bin": 16, "seed": 4}


def train(params, data, rounds=8, **options):
    return gb.train({**DART, **params}, data, rounds, **QUIET, **options)


# ---- which trees are dropped


@pytest.mark.parametrize("sample_type", ["uniform", "weighted"])
def test_trees_are_dropped_at_their_rate(sample_type):
    """Over many rounds; by weight, a tree of weight w as often as w / mean."""
    weights = [0.5, 1.5] * 50
    params = Params(booster="dart", rate_drop=0.2, sample_type=sample_type)
    drawn = [draw_dropped(params, weights, number) for number in range(400)]
    often = np.bincount(np.concatenate(drawn).astype(int), minlength=100).reshape(50, 2).mean(axis=0) / 400
    expected = [0.1, 0.3] if sample_type == "weighted" else [0.2, 0.2]
    np.testing.assert_allclose(often, expected, atol=4 * 0.46 / np.sqrt(400 * 50))  # 4 SE; 0.46² is 0.3 · 0.7
    assert drawn == [draw_dropped(params, weights, number) for number in range(400)]


def test_a_round_may_be_skipped_and_one_tree_is_dropped_at_least():
    weights = [1.0] * 9 + [0.0]
    assert draw_dropped(Params(rate_drop=1.0), weights, 3) == list(range(10))
    assert draw_dropped(Params(rate_drop=1.0, skip_drop=1.0, one_drop=True), weights, 3) == []
    skipped = [not draw_dropped(Params(rate_drop=1.0, skip_drop=0.25), weights, number) for number in range(400)]
    assert abs(np.mean(skipped) - 0.25) < 4 * 0.43 / 20  # 4 SE
    kinds = [Params(one_drop=True, sample_type=kind) for kind in ("uniform", "weighted")]
    ones = [draw_dropped(params, weights, number) for params in kinds for number in range(300)]
    assert {len(dropped) for dropped in ones} == {1}
    assert {i for (i,) in ones[:300]} == set(range(10)) and {i for (i,) in ones[300:]} == set(range(9))
    assert draw_dropped(Params(one_drop=True), [], 0) == []


# ---- what they weigh


def plain_weights(drops, rate, normalize_type):
    """The weights after rounds that dropped these trees, in exact arithmetic."""
    weights = []
    for dropped in drops:
        k = len(dropped)
        factor, new = (k / (k + rate), 1 / (k + rate)) if normalize_type == "tree" else (1 / (1 + rate),) * 2
        for i in dropped:
            weights[i] *= factor
        weights.append(new if k else 1.0)
    return weights


@pytest.mark.parametrize("normalize_type", ["tree", "forest"])
@pytest.mark.parametrize("sample_type", ["uniform", "weighted"])
def test_weights_after_each_round_are_those_of_a_plain_reference(normalize_type, sample_type):
    X, y = make_table()
    params = {"normalize_type": normalize_type, "sample_type": sample_type, "one_drop": True, "learning_rate": 0.5}
    data, seen = gb.DMatrix(X, y), []

    class Watch(gb.callback.TrainingCallback):
        def after_iteration(self, model, epoch, evals_log):
            seen.append(list(model.model.tree_weights))
            return False

    train(params, data, 8, callbacks=[Watch()])
    drops = []
    for number, weights in enumerate([[], *seen[:-1]]):
        drops.append(draw_dropped(Params(**{**DART, **params}), weights, number))
        expected = plain_weights(drops, 0.5, normalize_type)
        np.testing.assert_allclose(seen[number], expected, rtol=8 * 2.0**-24)  # float32, some roundings a round
    assert len(seen[-1]) == 8 and max(map(len, drops)) > 1


def test_weights_are_float32s():
    weights = weights_after([1.0, 1.0, 0.7], [0, 2], 2, Params(learning_rate=0.3))
    assert weights == [float(np.float32(weight)) for weight in weights] and len(weights) == 5 and weights[1] == 1


# ---- margins


def dropped_margins(model, data, base, dropped):
    """float32: predictions of the model without some trees, tree by tree in float64."""
    booster = gb.Booster()
    total = np.full(data.num_row(), float(base))
    for i, tree in enumerate(model.trees):
        if i not in dropped:
            part = gb.model.model.Model(model.n_features, model.objective, base_score=(0.0,), trees=[], tree_groups=[])
            part.add_round([tree], [0])
            booster.take_model(part)
            total += model.tree_weights[i] * booster.predict(data).astype(float)
    return total


def test_each_round_grows_from_the_trees_that_are_not_dropped():
    """The first split of a custom objective sees predictions without them."""
    X, y = make_table()
    data, seen, models = gb.DMatrix(X, y), [], []

    def squared(prediction, dtrain):
        seen.append(prediction.copy())
        return prediction - dtrain.get_label(), np.ones(len(prediction))

    class Keep(gb.callback.TrainingCallback):
        def after_iteration(self, model, epoch, evals_log):
            models.append(model.copy().model)
            return False

    train({}, data, 6, obj=squared, callbacks=[Keep()])
    n_dropped = 0
    for number in range(1, 6):
        before = models[number - 1]
        dropped = draw_dropped(Params(**DART), before.tree_weights, number)
        n_dropped += len(dropped)
        expected = dropped_margins(before, data, 0.5, dropped)
        np.testing.assert_allclose(seen[number], expected, rtol=0, atol=1e-5 * np.abs(y).max())  # float32 beside float64
    assert n_dropped >= 5


def test_evaluations_are_those_of_the_predictions():
    X, y = make_table()
    scores, data, other = {}, gb.DMatrix(X, y), gb.DMatrix(X[::2], y[::2])
    evals = [(data, "train"), (other, "other")]
    booster = train({}, data, 8, evals=evals, evals_result=scores)
    for matrix, name in evals:
        rmse = np.sqrt(np.mean((booster.predict(matrix) - matrix.get_label()) ** 2))
        assert scores[name]["rmse"][-1] == pytest.approx(rmse, rel=1e-5)  # float32 predictions


def test_without_dropping_a_model_is_as_good_as_gbtree():
    """The same but for the last bits of its margins."""
    X, y = make_table()
    data = gb.DMatrix(X, y)
    dart, gbtree = train({"rate_drop": 0}, data), gb.train({**DART, "booster": "gbtree", "rate_drop": 0}, data, 8)
    assert dart.model.tree_weights == [1.0] * 8 and gbtree.model.tree_weights is None
    np.testing.assert_allclose(dart.predict(data), gbtree.predict(data), rtol=0, atol=0.02 * np.abs(y).max())


# ---- one model


CHANGES = [
    {},
    {"objective": "multi:softprob", "num_class": 3, "normalize_type": "forest"},
    {"objective": "reg:absoluteerror", "sample_type": "weighted", "skip_drop": 0.2},
    {"num_parallel_tree": 2, "subsample": 0.7, "colsample_bytree": 0.75, "one_drop": True},
    {"objective": "multi:softprob", "num_class": 3, "multi_strategy": "multi_output_tree", "sample_type": "weighted"},
]


@pytest.mark.parametrize("changes", CHANGES, ids=["plain", "classes", "quantiles", "forests", "vector leaves"])
def test_one_model_on_pages_workers_plain_loops_and_continued(changes, use_backend):
    X, y = make_table(90, changes.get("num_class", 0))
    rounds = 5
    booster = train(changes, gb.DMatrix(X, y), rounds)
    expected = digest(booster.model)
    assert min(booster.model.tree_weights) < 1
    paged = gb.QuantileDMatrix(X, y, max_bin=16, page_rows=40)
    assert digest(train({**changes, "nthread": 1}, paged, rounds).model) == expected
    for n_first in (1, 3):
        first = train(changes, gb.DMatrix(X, y), n_first)
        for model in (first, bytes(first.save_raw()), bytes(first.save_raw("json"))):
            again = train({**changes, "booster": None}, gb.DMatrix(X, y), rounds - n_first, xgb_model=model)
            assert digest(again.model) == expected
    parts = [slice(0, 20), slice(20, 90)]
    work = lambda rank: digest(train(changes, gb.DMatrix(X[parts[rank]], y[parts[rank]]), rounds).model)  # noqa: E731
    assert run_threads(2, work) == [expected] * 2
    use_backend(NaiveBackend())
    assert digest(train(changes, gb.DMatrix(X, y), rounds).model) == expected


@pytest.mark.parametrize("changes", [CHANGES[0], CHANGES[-1]], ids=["plain", "vector leaves"])
def test_the_model_of_a_simulated_gpu_is_the_cpus(changes, use_backend):
    X, y = make_table(60, changes.get("num_class", 0))
    params = {"max_depth": 2, **changes}
    expected = digest(train(params, gb.DMatrix(X, y), 3).model)
    use_backend(CudaBackend(SimulatedDevice()))
    assert digest(train(params, gb.DMatrix(X, y), 3).model) == expected


# ---- trees of several outputs


def several_targets(n_rows=120):
    X, y = make_table(n_rows)
    return X, np.stack([y, y[::-1], (X[:, 1] > 0) * y], axis=1)


def vector_dart(X, y, rounds=8, **options):
    params = {"multi_strategy": "multi_output_tree", "one_drop": True, "normalize_type": "forest"}
    return train(params, gb.DMatrix(X, y), rounds, **options)


def test_a_prediction_is_the_weighed_sum_of_the_leaves_of_all_outputs():
    """So is what evaluations see, of the training rows and of others."""
    X, y = several_targets()
    other, scores = gb.DMatrix(X[::2] + 0.25, y[::2]), {}
    data = gb.DMatrix(X, y)
    booster = vector_dart(X, y, evals=[(data, "train"), (other, "other")], evals_result=scores)
    model = booster.model
    assert {tree.leaf_size for tree in model.trees} == {3} and len(set(model.tree_weights)) > 3 and min(model.tree_weights) < 0.9
    for matrix, name in ((data, "train"), (other, "other")):
        expected = np.tile(np.float64(model.base_score), (matrix.num_row(), 1))
        for tree, weight, leaf in zip(model.trees, model.tree_weights, booster.predict(matrix, pred_leaf=True).astype(int).T):
            expected += weight * tree.leaf_value[leaf].astype(float)
        got = booster.predict(matrix)
        np.testing.assert_allclose(got, expected, rtol=0, atol=1e-6 * np.abs(y).max())  # sums of float32
        rmse = np.sqrt(np.mean((matrix.get_label().reshape(got.shape) - expected) ** 2))
        assert scores[name]["rmse"][-1] == pytest.approx(rmse, rel=1e-5)
    (tree, weight), *_ = zip(model.trees, model.tree_weights)  # the weight counts in what explains a row, too
    shares = booster[:1].predict(data, pred_contribs=True).sum(axis=-1)
    np.testing.assert_allclose(shares, booster[:1].predict(data, output_margin=True), rtol=0, atol=1e-5 * np.abs(y).max())


@pytest.mark.parametrize("booster", ["dart", "gbtree"])
def test_nothing_holds_a_table_when_its_training_is_over(booster):
    """Not until the garbage collector comes: a service trains on one large table after another."""
    X, y = make_table(100)
    made = gb.DMatrix(X, y), gb.DMatrix(X + 1, y)
    refs = [weakref.ref(matrix) for matrix in made]
    gc.collect()
    gc.disable()
    try:
        gb.train({"booster": booster, "rate_drop": 0.5}, made[0], 4, evals=[(made[1], "other")], verbose_eval=False)
        del made
        assert [ref() for ref in refs] == [None, None]
    finally:
        gc.enable()


def test_each_round_of_vector_leaves_grows_without_the_dropped_trees():
    X, y = several_targets()
    data, seen, models = gb.DMatrix(X, y), [], []

    def squared(prediction, dtrain):
        seen.append(prediction.copy())
        return prediction - dtrain.get_label().reshape(prediction.shape), np.ones(prediction.shape)

    class Keep(gb.callback.TrainingCallback):
        def after_iteration(self, model, epoch, evals_log):
            models.append(model.copy())
            return False

    vector_dart(X, y, 6, obj=squared, callbacks=[Keep()])
    n_dropped, params = 0, Params(**DART, one_drop=True, normalize_type="forest")
    for number in range(1, 6):
        before = models[number - 1]
        dropped = draw_dropped(params, before.model.tree_weights, number)
        n_dropped += len(dropped)
        expected = np.full(seen[0].shape, 0.5)
        leaves = before.predict(data, pred_leaf=True).astype(int).reshape(len(X), -1)
        for i, tree in enumerate(before.model.trees):
            expected += (i not in dropped) * before.model.tree_weights[i] * tree.leaf_value[leaves[:, i]].astype(float)
        np.testing.assert_allclose(seen[number], expected, rtol=0, atol=1e-5 * np.abs(y).max())  # float32 beside float64
    assert n_dropped >= 5


def test_equal_targets_share_trees_and_weights_with_one_of_them():
    """Every output has the margins that the first one has alone; a node of three outputs weighs the mean of theirs."""
    X, y = make_table()
    alone, three = train({"one_drop": True}, gb.DMatrix(X, y)), gb.DMatrix(X, np.stack([y] * 3, axis=1))
    booster = train({"one_drop": True, "multi_strategy": "multi_output_tree"}, three)
    assert booster.model.tree_weights == alone.model.tree_weights
    for k in range(3):
        # gradients of 16 bits are rounded apart for each output, and the search may go by that
        assert np.corrcoef(booster.predict(three)[:, k], alone.predict(three))[0, 1] > 0.99


@pytest.mark.parametrize("raw_format", ["json", "ubj"])
def test_xgboost_reads_weighed_vector_leaves_or_refuses_them(raw_format):
    """From 3.4 on it has them; before it refuses the file, where it would predict anything."""
    xgboost = pytest.importorskip("xgboost")
    X, y = several_targets()
    booster = vector_dart(X, y)
    raw = booster.save_raw(raw_format)
    assert digest(gb.Booster(model_file=raw).model) == digest(booster.model)
    if xgboost_before(3, 4):
        with pytest.raises(xgboost.core.XGBoostError, match="Invalid cast"):
            xgboost.Booster(model_file=raw)
        return
    theirs = xgboost.Booster(model_file=raw)
    near = {"rtol": 0, "atol": 1e-6 * np.abs(y).max()}  # sums of float32
    np.testing.assert_allclose(theirs.predict(xgboost.DMatrix(X)), booster.predict(gb.DMatrix(X)), **near)
    np.testing.assert_array_equal(tree_weights(theirs), np.float32(booster.model.tree_weights))
    params = {"rate_drop": 0.5, "one_drop": 1, "multi_strategy": "multi_output_tree", "max_depth": 3}
    own = xgboost.train(params, xgboost.DMatrix(X, y), 6)
    back = gb.Booster(model_file=bytes(own.save_raw(raw_format)))
    assert back.model.tree_weights == tree_weights(own).tolist()
    np.testing.assert_allclose(back.predict(gb.DMatrix(X)), own.predict(xgboost.DMatrix(X)), **near)
    again = gb.train({**params, "max_bin": 16}, gb.DMatrix(X, y), 2, xgb_model=back, **QUIET)
    assert len(again.model.tree_weights) == 8


# ---- files


@pytest.mark.parametrize("raw_format", ["json", "ubj"])
def test_xgboost_reads_the_file_and_predicts_the_same(raw_format):
    xgboost = pytest.importorskip("xgboost")
    X, y = make_table()
    booster = train({}, gb.DMatrix(X, y))
    assert json.loads(booster.save_raw("json"))["learner"]["gradient_booster"]["name"] == "dart"
    theirs = xgboost.Booster(model_file=booster.save_raw(raw_format))
    expected = theirs.predict(xgboost.DMatrix(X))
    np.testing.assert_allclose(booster.predict(gb.DMatrix(X)), expected, rtol=0, atol=1e-6 * np.abs(y).max())  # float32 sums
    np.testing.assert_array_equal(tree_weights(theirs), np.float32(booster.model.tree_weights))


def test_a_model_of_xgboosts_goes_on():
    xgboost = pytest.importorskip("xgboost")
    X, y = make_table()
    params = {"booster": "dart", "rate_drop": 0.5, "max_depth": 3, "one_drop": 1}
    raw = bytes(xgboost.train(params, xgboost.DMatrix(X, y), 6).save_raw())
    data = gb.DMatrix(X, y)
    first, scores = gb.Booster(model_file=raw), {}
    booster = gb.train({**params, "booster": None}, data, 4, xgb_model=raw, evals=[(data, "t")], evals_result=scores, **QUIET)
    assert booster.model.trees[:6] == first.model.trees and len(booster.model.tree_weights) == 10
    assert scores["t"]["rmse"][-1] < float(first.eval(data).split(":")[1])


def test_gbtree_goes_on_as_dart_and_back():
    X, y = make_table()
    data = gb.DMatrix(X, y)
    first = gb.train({"max_depth": 3, "max_bin": 16}, data, 3)
    booster = train({}, data, 3, xgb_model=first)
    assert len(booster.model.tree_weights) == 6 and first.model.tree_weights is None
    again = gb.train({"max_bin": 16}, data, 2, xgb_model=bytes(booster.save_raw()))  # a file has no rate
    assert again.model.tree_weights == [*booster.model.tree_weights, 1.0, 1.0]


def test_gbtree_with_a_rate_is_dart():
    X, y = make_table()
    data = gb.DMatrix(X, y)
    assert train({"booster": "gbtree"}, data).model == train({}, data).model
    assert gb.train({"one_drop": True}, data, 2).model.tree_weights is not None
    assert gb.train({}, data, 2).model.tree_weights is None


def test_slices_and_copies_keep_the_weights():
    X, y = make_table()
    booster = train({}, gb.DMatrix(X, y))
    assert booster[2:5].model.tree_weights == booster.model.tree_weights[2:5]
    assert booster.copy().model.tree_weights == booster.model.tree_weights
    assert booster.copy().model.tree_weights is not booster.model.tree_weights
