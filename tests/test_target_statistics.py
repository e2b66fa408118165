"""Training on target statistics (cat_encoding="statistics"): models of sets, the same however the work is laid out."""

import numpy as np
import pytest
import scipy.sparse
from test_category_sets import TYPES, check_evaluated_as_predicted, digests_of_workers_and_one, splits_by_set, table

import gpuboost as gb
from gpuboost.model_io import digest

PARAMS = {"max_depth": 4, "cat_encoding": "statistics", "eta": 0.5}


def train(X, y, n_rounds=4, *, types=TYPES, evals=(), xgb_model=None, **params):
    dtrain = X if isinstance(X, gb.DMatrix) else gb.DMatrix(X, y, feature_types=types)
    return gb.train({**PARAMS, **params}, dtrain, n_rounds, verbose_eval=False, evals=list(evals), xgb_model=xgb_model)


def statistics_used(booster):
    """How many splits are of statistics."""
    return sum((tree.threshold[tree.sets.nodes] > 0).sum() for tree in booster.model.trees if tree.sets is not None)


def test_a_training_learns_more_of_rare_categories_than_by_sets():
    """300 categories of ten rows each, half of them to train on, and a label of two classes."""
    rng = np.random.default_rng(0)
    code, x = np.repeat(np.arange(300), 10), rng.normal(size=3000)
    chance = 1 / (1 + np.exp(-rng.normal(size=300)[code] - x))
    X, y = np.column_stack([code, x]), (rng.random(3000) < chance).astype(np.float32)
    is_train = rng.random(3000) < 0.5
    losses = {}
    for encoding in ("statistics", "sets"):
        params = {"cat_encoding": encoding, "eta": 0.1, "objective": "binary:logistic"}
        booster = train(X[is_train], y[is_train], 30, types=["c", "q"], **params)
        p = booster.predict(gb.DMatrix(X[~is_train]))
        losses[encoding] = -np.log(np.where(y[~is_train] > 0, p, 1 - p)).mean()
    assert losses["statistics"] < 0.98 * losses["sets"]


@pytest.mark.parametrize("n_rows", [2000, 6000])
def test_categories_that_say_nothing_of_the_label_have_no_statistics(n_rows):
    """Of a row's category the others, without it, would tell its label."""
    rng = np.random.default_rng(1)
    X = np.column_stack([rng.integers(0, 300, n_rows), rng.normal(size=n_rows), rng.integers(0, 20, n_rows)])
    y = (rng.random(n_rows) < 1 / (1 + np.exp(-X[:, 1]))).astype(np.float32)
    params = {"objective": "binary:logistic", "cat_noise": 0}
    models = [train(X, y, 5, cat_encoding=encoding, **params).model for encoding in ("statistics", "sets")]
    assert digest(models[0]) == digest(models[1])


def test_weights_that_vanish_beside_others_are_no_error():
    X, y = table()
    weight = np.where(np.isnan(X[:, 0]), 1, 1e-13).astype(np.float32)
    assert np.isnan(X[:, 0]).any()
    train(gb.DMatrix(X, y, weight=weight, feature_types=TYPES), y)


def test_all_splits_of_categories_are_sets():
    X, y = table()
    booster = train(X, y)
    n_of_categories = sum(np.isin(tree.feature[tree.left_child >= 0], [0, 2]).sum() for tree in booster.model.trees)
    assert splits_by_set(booster) >= n_of_categories - 1 > 0  # one may part the missing values off


def test_columns_of_which_splits_take_one_category_have_no_statistics():
    X, y = table()
    sets = digest(train(X, y, cat_encoding="sets").model)
    models = {most: train(X, y, max_cat_to_onehot=most) for most in (3, 4, 40, 41)}
    for tree in models[4].model.trees:
        assert (tree.threshold[tree.sets.nodes][tree.feature[tree.sets.nodes] == 2] == 0).all()
    assert statistics_used(models[4]) > 0 == statistics_used(models[41])
    assert digest(models[4].model) != sets == digest(train(X, y, max_cat_to_onehot=4, cat_encoding="sets").model)


@pytest.mark.parametrize("n_missing", [0, 60])
def test_other_rows_are_evaluated_as_they_are_predicted(n_missing):
    """Also those of unknown categories, missing ones, and codes beyond those of the training."""
    X, y = table()
    X[np.isnan(X)] = 0
    X[:n_missing, 0] = np.nan
    other, label = table(200, seed=5)
    other[:20, 0] = np.arange(40, 60)
    check_evaluated_as_predicted(PARAMS, X, y, other, label)


def test_unknown_categories_go_the_way_of_the_mean():
    """Nothing is missing in training: labels of ±1 leave an unknown category near 0."""
    code = np.repeat(np.arange(40), 10)
    y = np.where(code < 30, 1.0, -1.0)
    booster = train(code[:, None], y, 1, types=["c"], max_depth=1, base_score=0.0, cat_noise=1e9)  # no gain for other sets
    (tree,) = booster.model.trees
    ((node, listed),) = tree.sets.items()
    assert listed.tolist() == list(range(30))
    assert not tree.default_left[node]  # the mean is ½, the threshold lies about 0


@pytest.mark.parametrize("params", [
    {}, {"subsample": 0.7, "objective": "reg:absoluteerror"}, {"num_parallel_tree": 2},
    {"objective": "multi:softprob", "num_class": 3, "feature_weights": (1, 2, 3), "colsample_bytree": 0.7},
], ids=str)  # fmt: skip
def test_a_training_goes_on_as_if_it_had_not_stopped(params, tmp_path):
    """Rows go where they went, by the statistic without their fold."""
    X, y = table()
    y = np.searchsorted([-0.5, 0.5], y).astype(np.float32) if "num_class" in params else y
    whole = train(X, y, 5, **params)
    assert statistics_used(whole) > 0
    train(X, y, 2, **params).save_model(path := tmp_path / "model.ubj")
    assert digest(train(X, y, 3, xgb_model=path, **params).model) == digest(whole.model)
    resumed = {**PARAMS, **params}, gb.DMatrix(X, y, feature_types=TYPES)
    gb.train(*resumed, 2, verbose_eval=False, resume_from=tmp_path / "folder")
    again = gb.train(*resumed, 5, verbose_eval=False, resume_from=tmp_path / "folder")
    assert digest(again.model) == digest(whole.model)


def test_a_training_goes_on_from_a_model_of_other_sets():
    X, y = table()
    before = train(X, y, 2, cat_encoding="sets")
    after = train(X, y, 2, xgb_model=before)
    margin = before.predict(gb.DMatrix(X), output_margin=True)
    dtrain = gb.DMatrix(X, y, feature_types=TYPES, base_margin=margin)
    own = train(dtrain, None, 2)
    grown = [[(tree.feature.tolist(), tree.sets) for tree in trees] for trees in (after.model.trees[2:], own.model.trees)]
    assert grown[0] == grown[1] and statistics_used(own) > 0


@pytest.mark.parametrize("n_workers", [2, 7])
def test_workers_whose_parts_lack_categories_agree(n_workers):
    workers, one = digests_of_workers_and_one(n_workers, train)
    assert workers == one


def test_numbering_categories_otherwise_changes_no_prediction():
    X, y = table()
    new = np.random.default_rng(1).permutation(40)
    other = X.copy()
    other[:, 0] = np.where(np.isnan(X[:, 0]), np.nan, new[np.nan_to_num(X[:, 0]).astype(int)])
    booster, renumbered = train(X, y, max_cat_to_onehot=1), train(other, y, max_cat_to_onehot=1)
    np.testing.assert_array_equal(renumbered.predict(gb.DMatrix(other)), booster.predict(gb.DMatrix(X)))


def test_rows_of_no_weight_change_nothing():
    X, y = table()
    weight = np.tile(np.float32([1, 0, 2]), 200)
    kept = gb.DMatrix(X[weight > 0], y[weight > 0], weight=weight[weight > 0], feature_types=TYPES)
    every = gb.DMatrix(X, y, weight=weight, feature_types=TYPES)
    assert digest(train(every, None).model) == digest(train(kept, None).model)


def test_xgboost_predicts_the_same_from_the_file(tmp_path):
    xgboost = pytest.importorskip("xgboost")
    X, y = table()
    booster = train(X, y, 10)
    booster.save_model(path := tmp_path / "model.json")
    matrix = xgboost.DMatrix(X, feature_types=TYPES, enable_categorical=True)
    theirs = xgboost.Booster(model_file=path).predict(matrix)
    np.testing.assert_allclose(theirs, booster.predict(gb.DMatrix(X)), rtol=0, atol=1e-6)
    assert digest(gb.Booster(model_file=path).model) == digest(booster.model)


def test_treelite_predicts_the_same_from_the_file(tmp_path):
    treelite = pytest.importorskip("treelite")
    X, y = table()
    booster = train(X, y)
    booster.save_model(path := tmp_path / "model.json")
    theirs = treelite.gtil.predict(treelite.frontend.load_xgboost_model(str(path)), X).ravel()
    np.testing.assert_allclose(theirs, booster.predict(gb.DMatrix(X)), rtol=0, atol=1e-6)


def test_folds_of_codes_and_of_values_are_trained_alike():
    """Each fold has statistics of its own rows, whether the others are absent or weigh nothing."""
    X, y = table()
    both = [make(X, y, feature_types=TYPES) for make in (gb.DMatrix, gb.QuantileDMatrix)]
    of_values, of_codes = (gb.cv(PARAMS, d, 2, nfold=3, as_pandas=False) for d in both)
    assert of_values == of_codes


def test_constraints_hold():
    X, y = table()
    for tree in train(X, y, interaction_constraints=[[0], [1, 2]]).model.trees:
        used = {tree.feature[node] for node in np.flatnonzero(tree.left_child >= 0)}
        assert used <= {0} or used <= {1, 2}
    with pytest.raises(ValueError, match="monotone_constraints of column 0 must be 0, as it holds categories"):
        train(X, y, monotone_constraints=(1, 0, 0))


def test_what_has_no_statistics_yet_is_refused():
    X, y = table(60)
    for matrix, params in (
        (gb.DMatrix(X, y, feature_types=TYPES), {"booster": "dart"}),
        (gb.DMatrix(scipy.sparse.csr_matrix(np.nan_to_num(X)), y, feature_types=TYPES), {}),
        (gb.ExtMemQuantileDMatrix(X, y, feature_types=TYPES, cache_memory=0), {}),
        (gb.DMatrix(X, label_lower_bound=abs(y) + 1, label_upper_bound=abs(y) + 2, feature_types=TYPES),
         {"objective": "survival:aft"}),
        (gb.DMatrix(X, np.column_stack([y, np.where(y > 0, y, np.nan)]), feature_types=TYPES, missing_labels="mask"), {}),
    ):  # fmt: skip
        with pytest.raises(NotImplementedError, match="cat_encoding='statistics' .* is not built yet.*cat_encoding='sets'"):
            train(matrix, None, **params)
