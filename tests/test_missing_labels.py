"""DMatrix(missing_labels="mask"): targets that a row lacks enter nothing."""

import numpy as np
import pytest
from test_vector_leaves import VECTOR, make_table

import gpuboost as gb
from gpuboost.communicator import run_threads
from gpuboost.model_io import digest


def train(params, data, rounds=3, **options):
    return gb.train({"max_bin": 24, "nthread": 1, **params}, data, rounds, verbose_eval=False, **options)


def masked(seed=5, n_outputs=3, share=0.3):
    """X, and labels some of which are missing; a few rows have none."""
    X, y = make_table(n_outputs=n_outputs)
    rng = np.random.default_rng(seed)
    y[rng.random(y.shape) < share] = np.nan
    y[::50] = np.nan
    return X, y


@pytest.mark.parametrize("objective", ["reg:squarederror", "binary:logistic", "multi:softprob", "reg:absoluteerror", "reg:gamma"])
@pytest.mark.parametrize("weighted", [False, True])
def test_rows_without_a_label_are_as_good_as_dropped(objective, weighted):
    X, y = masked(n_outputs=1)
    label = {
        "binary:logistic": (y > 0).astype(float), "multi:softprob": np.digitize(y, [0, 1]).astype(float), "reg:gamma": abs(y) + 1,
    }.get(objective, y)  # fmt: skip
    label[np.isnan(y)] = np.nan
    keep, weight = ~np.isnan(y[:, 0]), np.random.default_rng(1).integers(0, 4, len(y)) / 2
    params = {"objective": objective, **VECTOR, **({"num_class": 3} if objective.startswith("multi") else {})}
    both = [
        train(params, gb.DMatrix(X, label, weight=weight if weighted else None, missing_labels="mask")),
        train(params, gb.DMatrix(X[keep], label[keep], weight=weight[keep] if weighted else None)),
    ]
    assert digest(both[0].model) == digest(both[1].model) and both[0].model.trees[0].n_leaves > 2


def test_a_leaf_of_a_target_is_the_mean_of_the_rows_that_have_it():
    X, y = masked()
    params = {**VECTOR, "max_depth": 2, "reg_lambda": 0, "learning_rate": 1, "base_score": 0}
    booster = train(params, gb.DMatrix(X, y, missing_labels="mask"), 1)
    (tree,), leaf = booster.model.trees, booster.predict(gb.DMatrix(X), pred_leaf=True)[:, 0].astype(int)
    for node in np.flatnonzero(tree.left_child < 0):
        # one rounding of the mean to float32, and one of the labels before
        np.testing.assert_allclose(tree.leaf_value[node], np.nanmean(y[leaf == node], axis=0), rtol=1e-6, atol=1e-7)
        assert tree.cover[node] == np.count_nonzero(~np.isnan(y[leaf == node]))


def test_separate_trees_take_each_target_as_if_its_rows_were_all():
    X, y = masked(share=0.4)
    booster = train({}, gb.DMatrix(X, y, missing_labels="mask"), 1)
    assert booster.model.base_score == pytest.approx(np.nanmean(y, axis=0), rel=1e-6)  # float32
    for k, tree in enumerate(booster.model.trees):
        assert tree.cover[0] == np.count_nonzero(~np.isnan(y[:, k])) and tree.n_leaves > 4


def test_metrics_are_of_the_labels_that_are_there():
    X, y = masked()
    log, data = {}, gb.DMatrix(X, y, missing_labels="mask")
    booster = train({**VECTOR, "eval_metric": ["rmse", "mae"]}, data, evals=[(data, "train")], evals_result=log)
    error = booster.predict(data) - y
    # float32 predictions; sums in another order
    assert log["train"]["rmse"][-1] == pytest.approx(np.sqrt(np.nanmean(error**2)), rel=1e-6)
    assert log["train"]["mae"][-1] == pytest.approx(np.nanmean(abs(error)), rel=1e-6)
    assert float(booster.eval(data).split("rmse:")[1].split()[0]) == pytest.approx(log["train"]["rmse"][-1], rel=1e-4)  # printed


def test_workers_and_a_users_gradients_agree():
    X, y = masked()
    expected = digest(train({**VECTOR, "base_score": 0}, gb.DMatrix(X, y, missing_labels="mask")).model)
    bounds = [0, 120, 400]

    def work(rank):
        own = slice(bounds[rank], bounds[rank + 1])
        return digest(train({**VECTOR, "base_score": 0}, gb.DMatrix(X[own], y[own], missing_labels="mask")).model)

    assert run_threads(2, work) == [expected] * 2
    squares = lambda prediction, data: (prediction - data.get_label(), np.ones_like(prediction))  # noqa: E731
    data = gb.DMatrix(X, y, missing_labels="mask")
    assert digest(train({**VECTOR, "base_score": 0}, data, obj=squares).model) == expected


def test_what_is_refused():
    X, y = masked()
    with pytest.raises(ValueError, match="missing_labels='mask'"):
        gb.DMatrix(X, y)
    with pytest.raises(ValueError, match="missing_labels"):
        gb.DMatrix(X, y, missing_labels="drop")
    with pytest.raises(ValueError, match="infinite"):
        gb.DMatrix(X, np.where(np.isnan(y), np.inf, y), missing_labels="mask")
    data = gb.DMatrix(X, y, missing_labels="mask")
    with pytest.raises(ValueError, match="needs all labels"):
        train({"objective": "reg:absoluteerror"}, data)
    with pytest.raises(ValueError, match="'auc' needs all labels"):
        train({"eval_metric": "auc"}, data, evals=[(data, "train")])
    with pytest.raises(ValueError, match="to DMatrix"):
        train({"missing_labels": "mask"}, data)


def test_slices_and_later_labels_keep_the_mask():
    X, y = masked(n_outputs=1)
    data = gb.DMatrix(X, np.nan_to_num(y), missing_labels="mask")
    train({}, data, 1)
    data.set_label(y)
    np.testing.assert_array_equal(data.get_label(), y[:, 0])
    rows = np.arange(0, 400, 2)
    expected = digest(train({}, gb.DMatrix(X[rows], y[rows], missing_labels="mask")).model)
    assert digest(train({}, data.slice(rows)).model) == expected
    assert digest(train({}, data).model) == digest(train({}, gb.DMatrix(X, y, missing_labels="mask")).model)


def test_a_label_column_without_a_label_is_named():
    X, labels = np.ones((4, 1), np.float32), np.array([[1, np.nan]] * 4, np.float32)
    with pytest.raises(ValueError, match="label column 1 is missing in every row"):
        gb.train({}, gb.DMatrix(X, labels, missing_labels="mask"), 1)
    with pytest.raises(ValueError, match="label is missing in every row of positive weight"):
        gb.train({}, gb.DMatrix(X, labels[:, 1], missing_labels="mask"), 1)
