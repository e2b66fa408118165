"""tree_method="exact": the exact greedy search over sorted columns (Algorithms 1 and 3)."""

import numpy as np
import pytest
from naive_backend import NaiveBackend

import gpuboost as gb
from gpuboost.communicator import run_threads
from gpuboost.model_io import digest as model_digest

NAN = np.nan
CASES = {
    "ties": {},
    "missing": {"missing": 0.3},
    "weights": {"weighted": True, "missing": 0.1},
    "loud weights": {"weighted": "loud", "missing": 0.1},  # the two-limb path
    "few rows": {"n_rows": 60},
    # A parent's score far above any gain, in the full resolution of a small table: no better split may be passed over.
    "far from zero": {"n_rows": 90, "shift": 1000.0, "params": {"base_score": 0.0, "reg_lambda": 0.0, "max_depth": 3}},
    "lossguide": {"missing": 0.2, "params": {"grow_policy": "lossguide", "max_leaves": 12, "max_depth": 0}},
    "deep": {"params": {"max_depth": 12, "min_child_weight": 0}},
    "gamma": {"missing": 0.2, "params": {"gamma": 3.0}},
    "penalties": {"missing": 0.2, "params": {"reg_alpha": 2.0, "reg_lambda": 0.0, "min_child_weight": 7.0}},
    "max_delta_step": {"missing": 0.2, "params": {"max_delta_step": 0.3}},
    "logistic": {"missing": 0.2, "params": {"objective": "binary:logistic"}},
    "classes": {"missing": 0.2, "params": {"objective": "multi:softprob", "num_class": 3}},
}


def make(n_rows=700, missing=0.0, weighted=False, params=None, seed=0, n_values=60, shift=0.0):
    """(X with n_values distinct values a column, y, weights or None, parameters)."""
    rng = np.random.default_rng(seed)
    X = rng.integers(0, n_values, (n_rows, 5)) * 0.37
    signal = X[:, 0] * np.sin(X[:, 1] / 5) + X[:, 2] + rng.normal(0, 3, n_rows)
    X[:, 3] = np.round(X[:, 3] / 8) if n_values < 1000 else X[:, 3]  # many ties
    X[rng.random(X.shape) < missing] = NAN
    params = {"max_depth": 5, "max_bin": 256, "seed": 3, **(params or {})}
    classes = params.get("num_class", 2)
    if params.get("objective", "reg:squarederror") != "reg:squarederror":
        signal = np.digitize(signal, np.quantile(signal, np.arange(1, classes) / classes))
    signal = signal + shift
    weight = rng.integers(0, 4, n_rows).astype(float) if weighted else None
    if weighted == "loud":
        weight = 10.0 ** rng.integers(-3, 3, n_rows)
    return X, signal, weight, params


def train(params, X, y, weight=None, rounds=4, **options):
    return gb.train(params, gb.DMatrix(X, y, weight=weight), rounds, verbose_eval=False, **options)


def digest(booster):
    return model_digest(booster.model)


def value_range(tree, X):
    """For each split, (largest value that goes left, smallest that goes right) among the training rows in the node."""
    rows = {0: np.arange(len(X))}
    for node in range(tree.n_nodes):
        left = tree.left_child[node]
        if left >= 0:
            x = X[rows[node], tree.feature[node]].astype(np.float32)
            goes_left = np.where(np.isnan(x), tree.default_left[node] == 1, x < tree.threshold[node])
            rows[left], rows[left + 1] = rows[node][goes_left], rows[node][~goes_left]
            yield node, np.nanmax(x[goes_left], initial=-np.inf), np.nanmin(x[~goes_left], initial=np.inf)


@pytest.mark.parametrize("case", CASES)
def test_where_every_value_has_a_bin_exact_and_histograms_agree(case):
    X, y, weight, params = make(**CASES[case])
    exact, hist = (train({**params, "tree_method": method}, X, y, weight) for method in ("exact", "hist"))
    kept = np.ones(len(X), bool) if weight is None else weight > 0
    n_splits = 0
    for a, b in zip(exact.model.trees, hist.model.trees, strict=True):
        for field in ("left_child", "parent", "feature", "default_left", "leaf_value", "gain", "cover", "weight"):
            assert getattr(a, field).tobytes() == getattr(b, field).tobytes(), field
        for node, below, above in value_range(a, X[kept]):
            n_splits += 1
            for tree in (a, b):
                assert below < tree.threshold[node] <= above, "in the gap between the node's values"
    assert n_splits > 10
    rows = gb.DMatrix(X[kept])
    np.testing.assert_array_equal(exact.predict(rows, pred_leaf=True), hist.predict(rows, pred_leaf=True))


def test_thresholds_lie_midway_between_the_nodes_own_values():
    #  x0 parts 0…3 from 4…7; within the left half x1 is 1 or 9, although 2…8 occur in the right half
    X = np.array([[0, 1], [0, 9], [0, 1], [0, 9], [1, 2], [1, 4], [1, 5], [1, 8]], float)
    y = np.array([0, 10, 0, 10, 100, 100, 100, 100])
    (tree,) = train({"tree_method": "exact", "max_depth": 2, "reg_lambda": 0, "min_child_weight": 0}, X, y, rounds=1).model.trees
    assert tree.feature[:2].tolist() == [0, 1]
    assert tree.threshold[0] == 0.5
    assert tree.threshold[1] == 4.5, "the table's cut nearest to 5, the middle of 1 and 9"
    hist = train({"tree_method": "hist", "max_depth": 2, "reg_lambda": 0, "min_child_weight": 0}, X, y, rounds=1).model.trees[0]
    assert hist.threshold[1] == 1.5, "histograms cut next to the left value"


def brute_force_split(X, grad, hess, reg_lambda):
    """Algorithm 1 with both missing directions, in float64: the best gain over every split of every column."""
    def score(rows):
        return grad[rows].sum() ** 2 / (hess[rows].sum() + reg_lambda)

    best = 0.0
    for column in X.T:
        for value in np.unique(column[~np.isnan(column)]):
            for missing_left in (False, True):
                left = (column <= value) | (np.isnan(column) & missing_left)
                if left.any() and not left.all():
                    best = max(best, score(left) + score(~left) - score(np.ones(len(X), bool)))
    return best


@pytest.mark.parametrize("seed", range(5))
def test_the_root_split_has_the_best_gain_of_all(seed):
    rng = np.random.default_rng(seed)
    X, y = rng.normal(size=(90, 4)), rng.normal(size=90).astype(np.float32)
    X[rng.random(X.shape) < 0.2] = NAN
    params = {"tree_method": "exact", "max_depth": 1, "min_child_weight": 0, "base_score": 0.0}
    (tree,) = train(params, X, y, rounds=1).model.trees
    best = brute_force_split(X, -y.astype(float), np.ones(90), 1.0)
    assert tree.gain[0] == pytest.approx(best, rel=2e-5)  # gains are compared by 16 bits, gradients have 20


@pytest.mark.parametrize("case", ["missing", "weights", "loud weights", "lossguide", "classes"])
def test_one_model_for_any_number_of_threads(case):
    X, y, weight, params = make(**CASES[case], n_values=10**6)
    params["tree_method"] = "exact"
    assert len({digest(train({**params, "nthread": n}, X, y, weight)) for n in (1, 2)}) == 1


def test_the_order_of_rows_and_memory_does_not_matter():
    X, y, weight, params = make(**CASES["weights"], n_values=10**6)
    params["tree_method"] = "exact"
    order = np.random.default_rng(1).permutation(len(X))
    tables = [(X, y, weight), (X[order], y[order], weight[order]), (np.asfortranarray(X), y, weight),
              (X[weight > 0], y[weight > 0], weight[weight > 0])]  # fmt: skip
    assert len({digest(train(params, *table)) for table in tables}) == 1


@pytest.mark.parametrize("drawn", [
    {"colsample_bytree": 0.4, "feature_weights": [0, 1, 0, 0, 1]},
    {"colsample_bytree": 0.8, "colsample_bynode": 0.5, "feature_weights": [1e-30, 1, 0, 1e-30, 1]},
], ids=["by a tree", "by a node"])  # fmt: skip
@pytest.mark.filterwarnings("ignore:Some columns hold nothing but missing values")
def test_only_the_features_drawn_are_walked(drawn):
    """Always columns 1 and 4, by their weights: the trees are those of a table whose other columns are empty."""
    X, y, weight, params = make(**CASES["missing"])
    params["tree_method"] = "exact"
    assert X.shape[1] == 5
    empty = X.copy()
    empty[:, [0, 2, 3]] = NAN
    expected, found = train(params, empty, y, weight), train({**params, **drawn}, X, y, weight)
    for a, b in zip(found.model.trees, expected.model.trees, strict=True):
        assert a.feature.tolist() == b.feature.tolist() and a.threshold.tobytes() == b.threshold.tobytes()
        assert a.leaf_value.tobytes() == b.leaf_value.tobytes()


def test_the_naive_backend_grows_the_same_trees(monkeypatch):
    X, y, weight, params = make(n_rows=150, missing=0.2, weighted=True, n_values=40)
    expected = train({**params, "tree_method": "exact"}, X, y, weight)
    monkeypatch.setattr("gpuboost.backend.choose_backend", lambda *_, **__: NaiveBackend())
    naive = train({**params, "tree_method": "hist"}, X, y, weight)
    for a, b in zip(expected.model.trees, naive.model.trees, strict=True):
        assert a.leaf_value.tobytes() == b.leaf_value.tobytes()
        assert a.feature.tolist() == b.feature.tolist()


def test_training_goes_on_where_it_stopped_and_evaluates():
    X, y, weight, params = make(**CASES["missing"], n_values=10**6)
    params["tree_method"] = "exact"
    X2, y2, _, _ = make(**CASES["missing"], n_values=10**6, seed=1)
    log: dict = {}
    whole = train(params, X, y, rounds=6, evals=[(gb.DMatrix(X2, y2), "test")], evals_result=log)
    first = train(params, X, y, rounds=3)
    assert digest(train(params, X, y, rounds=3, xgb_model=first)) == digest(whole)
    rmse = np.sqrt(np.mean((whole.predict(gb.DMatrix(X2)).astype(float) - y2.astype(np.float32)) ** 2))
    assert log["test"]["rmse"][-1] == pytest.approx(rmse, rel=1e-6)


def test_quality_is_xgboosts():
    xgb = pytest.importorskip("xgboost")
    differences = []
    for seed in range(8):
        X, y, _, _ = make(n_rows=2000, missing=0.1, seed=seed, n_values=10**6)
        params = {"tree_method": "exact", "max_depth": 6, "eta": 0.3, "objective": "reg:squarederror"}
        ours = train(params, X[:1000], y[:1000], rounds=10).predict(gb.DMatrix(X[1000:]))
        theirs = xgb.train(params, xgb.DMatrix(X[:1000], y[:1000]), 10).predict(xgb.DMatrix(X[1000:]))
        losses = [np.mean((p - y[1000:]) ** 2) for p in (ours, theirs)]
        differences.append(losses[0] / losses[1] - 1)
    error = np.std(differences, ddof=1) / np.sqrt(len(differences))
    assert np.mean(differences) < max(0.01, 2 * error)


@pytest.mark.parametrize("refused, message", [
    (lambda X, y: train({"tree_method": "exact", "device": "cuda"}, X, y), "device must be 'cpu'"),
    (lambda X, y: gb.train({"tree_method": "exact"}, gb.QuantileDMatrix(X, y), 1), "Use a DMatrix"),
    (lambda X, y: train({"tree_method": "exact"}, X, y, evals=[(gb.QuantileDMatrix(X, y), "test")]), "Use a DMatrix"),
    (lambda X, y: run_threads(2, lambda _: train({"tree_method": "exact"}, X, y)), "one process"),
])  # fmt: skip
def test_what_cannot_be_searched_exactly_is_refused(refused, message):
    X, y, _, _ = make(n_values=10**6)
    with pytest.raises(ValueError, match=message):
        refused(X, y)


@pytest.mark.parametrize("rule", ["missing", "zero"])
def test_one_hot_tables_are_searched_by_histograms(rule):
    """And the dense table, walked column by column, gives the same model."""
    from scipy.sparse import csr_matrix

    rng = np.random.default_rng(0)
    codes = rng.integers(0, 5, (500, 4))
    onehot = (codes[:, :, None] == np.arange(5)).reshape(500, 20).astype(float)
    y = codes[:, 0] * (codes[:, 1] > 2) + rng.normal(size=500)
    params = {"tree_method": "exact", "max_depth": 5}
    sparse = gb.DMatrix(csr_matrix(onehot), y, sparse_absent=rule)
    dense = gb.DMatrix(onehot if rule == "zero" else np.where(onehot == 0, NAN, onehot), y, sparse_absent=rule)
    assert digest(train_on(params, sparse)) == digest(train_on(params, dense))
    assert not sparse.any_binned().has_no_histograms
    assert dense.any_binned().has_no_histograms


def test_a_reference_that_was_searched_exactly_is_binned_anew():
    X, y = np.random.default_rng(0).random((70_000, 2)), np.arange(70_000) % 7
    dtrain = gb.DMatrix(X, y)
    booster = train_on({"tree_method": "exact", "max_depth": 3}, dtrain)
    other = gb.QuantileDMatrix(X, y, ref=dtrain)
    assert other.max_bin == 256 and other.any_binned().cuts.total_bins <= 512
    with pytest.raises(ValueError, match="a threshold of the model is not a cut"):
        booster.predict(other)


def train_on(params, dtrain, rounds=2):
    return gb.train(params, dtrain, rounds, verbose_eval=False)
