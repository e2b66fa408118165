"""Leaves of trees on target statistics are weighed by a second dealing of the rows to folds (second_dealing.py)."""

import json

import numpy as np
import pytest
from test_category_sets import TYPES, table
from test_target_statistics import PARAMS, statistics_used, train

import gpuboost as gb
from gpuboost.backend.cpu import CpuBackend
from gpuboost.communicator import SingleProcess
from gpuboost.data.category_statistics import deal_to_folds, fit_statistics
from gpuboost.model_io import digest

BY_STATISTICS = {"cat_noise": 1e9}  # no set gains as much


def dealt(X, y, weight, dealing):
    """(the statistics of columns 0 and 2 by the folds of a dealing, the codes of the rows)."""
    backend, comm = CpuBackend(1), SingleProcess()
    binned = gb.DMatrix(X, feature_types=TYPES).binned(256, backend, comm, by_category=True)
    folds = deal_to_folds(weight, len(X), 0, 0, dealing)
    statistics = fit_statistics(binned, np.array([0, 2]), y[None], weight, folds, int((weight > 0).sum()), 256, backend, comm)
    (page,) = statistics.encoded(binned, backend, folds).pages
    return statistics, page.columns


def searched_value(tree):
    return tree.leaf_value if tree.searched_value is None else tree.searched_value


def leaves_of(tree, cuts, codes):
    """The leaf of each row, step by step."""
    listed, found = {} if tree.sets is None else dict(tree.sets.items()), []
    for row in codes.T:
        node = 0
        while tree.left_child[node] >= 0:
            f = tree.feature[node]
            if row[f] == cuts.n_bins[f]:
                goes_left = tree.default_left[node]
            elif node in listed:
                goes_left = row[f] not in listed[node]
            else:
                goes_left = row[f] <= cuts.of(f).tolist().index(tree.threshold[node])
            node = tree.left_child[node] + (0 if goes_left else 1)
        found.append(node)
    return np.array(found)


@pytest.mark.parametrize("params", [{}, {"reg_alpha": 0.25, "max_delta_step": 0.5, "reg_lambda": 3}], ids=str)
def test_either_dealing_has_margins_and_values_of_its_own(params):
    """Squared error: a leaf is −T(Σ w·(margin − y), α)/(Σ w + λ) over its rows, where the folds of the dealing send them."""
    X, y = table()
    weight = np.tile(np.float32([1, 0, 2]), 200)
    dtrain = gb.DMatrix(X, y, weight=weight, feature_types=TYPES)
    booster = train(dtrain, None, 3, base_score=0.0, max_cat_to_onehot=1, **BY_STATISTICS, **params)
    assert statistics_used(booster) > 0
    dealings, margins = [dealt(X, y, weight, dealing) for dealing in (0, 1)], np.zeros((2, len(y)))
    alpha, step, reg_lambda = params.get("reg_alpha", 0), params.get("max_delta_step", np.inf), params.get("reg_lambda", 1)
    for tree in booster.model.trees:
        for margin, (statistics, codes), values in zip(margins, dealings, (searched_value(tree), tree.leaf_value)):
            own = leaves_of(statistics.to_thresholds(tree), statistics.cuts, codes)
            grad, hess = (np.bincount(own, terms, tree.n_nodes) for terms in (weight * (margin - y), weight))
            expected = -np.sign(grad) * np.maximum(abs(grad) - alpha, 0) / (hess + reg_lambda)
            is_leaf = tree.left_child < 0
            expected = 0.5 * np.clip(np.where(is_leaf, expected, 0), -step, step)
            np.testing.assert_allclose(values, expected, rtol=1e-5, atol=1e-6)  # float32, of margins too
            margin += values[own]
    assert any(tree.searched_value is not None for tree in booster.model.trees)


def test_a_file_has_the_other_values_where_nobody_reads_them(tmp_path):
    X, y = table()
    booster = train(X, y, 2, **BY_STATISTICS)
    booster.save_model(path := tmp_path / "model.json")
    trees = json.loads(path.read_text())["learner"]["gradient_booster"]["model"]["trees"]
    for text, tree, again in zip(trees, booster.model.trees, gb.Booster(model_file=path).model.trees, strict=True):
        is_leaf = tree.left_child < 0
        np.testing.assert_array_equal(np.float32(text["base_weights"])[is_leaf], searched_value(tree)[is_leaf])
        np.testing.assert_array_equal(np.float32(text["split_conditions"])[is_leaf], tree.leaf_value[is_leaf])
        np.testing.assert_array_equal(searched_value(again), searched_value(tree))
    assert any(tree.searched_value is not None for tree in booster.model.trees)


@pytest.mark.parametrize("params", [BY_STATISTICS, {"subsample": 0.6, "max_depth": 2}], ids=str)
def test_a_training_whose_learning_rate_changed_goes_on_as_if_it_had_not_stopped(params, tmp_path):
    """Also where its first trees do not split by statistics."""
    X, y = table()
    dtrain, whole = gb.DMatrix(X, y, feature_types=TYPES), gb.Booster({**PARAMS, **params})
    for number, rate in enumerate([0.5, 0.5, 0.1, 0.1]):
        whole.set_param("learning_rate", rate)
        whole.update(dtrain, number)
    train(X, y, 2, **params).save_model(path := tmp_path / "model.ubj")
    assert digest(train(X, y, 2, xgb_model=path, learning_rate=0.1, eta=0.1, **params).model) == digest(whole.model)


@pytest.mark.parametrize("params", [
    {"objective": "reg:absoluteerror"}, {"monotone_constraints": (0, 1, 0)},
    {"objective": "multi:softprob", "num_class": 3, "multi_strategy": "multi_output_tree"},
], ids=str)  # fmt: skip
def test_other_leaves_are_weighed_by_the_rows_they_grew_on(params):
    X, y = table()
    y = np.searchsorted([-0.5, 0.5], y).astype(np.float32) if "num_class" in params else y
    booster = train(X, y, 2, **params)
    assert statistics_used(booster) > 0
    assert [tree.searched_value for tree in booster.model.trees] == [None] * len(booster.model.trees)


def test_gradients_from_outside_weigh_leaves_as_they_grew():
    """The second dealing's margins go on all the same."""
    X, y = table()
    dtrain = gb.DMatrix(X, y, feature_types=TYPES)
    booster = gb.Booster({**PARAMS, **BY_STATISTICS})
    booster.update(dtrain, 0, fobj=lambda margin, d: (margin - y, np.ones_like(y)))
    booster.update(dtrain, 1)
    first, second = booster.model.trees
    assert first.searched_value is None and second.searched_value is not None
