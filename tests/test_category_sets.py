"""Training on sets of categories (cat_encoding="sets"): the same model however codes and columns are numbered."""

import json
import math
from itertools import chain, combinations

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from test_objectives import BACKENDS

import gpuboost as gb
from gpuboost.backend.cpu import CpuBackend
from gpuboost.communicator import SingleProcess, run_threads
from gpuboost.model_io import digest
from gpuboost.params import Params

TYPES = ["c", "q", "c"]
PARAMS = {"max_depth": 4, "reg_lambda": 0.5, "base_score": 0.0}


def table(n=600, seed=0):
    """(X, y): categories of 40 and of 3 with missing ones, a number between. Labels in 64ths: sums of squared error are exact."""
    rng = np.random.default_rng(seed)
    many, few, x = rng.integers(0, 40, n), rng.integers(0, 3, n), rng.integers(-50, 50, n) / 8
    y = np.round(64 * (rng.normal(size=40)[many] + 0.1 * x * (few == 1) + 0.3 * rng.normal(size=n))) / 64
    X = np.column_stack([many, x, few]).astype(np.float32)
    X[rng.random(n) < 0.1, 0] = X[rng.random(n) < 0.1, 2] = np.nan
    return X, y.astype(np.float32)


def train(X, y, n_rounds=3, *, types=TYPES, evals=(), **params):
    return gb.train({**PARAMS, **params}, gb.DMatrix(X, y, feature_types=types), n_rounds, verbose_eval=False, evals=list(evals))


def as_frame(X, names="abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMN", order=None):
    """The same with text for categories. order : of the dictionaries; None: ascending."""
    def texts(column):
        values = np.array([None if np.isnan(code) else names[int(code)] for code in column], object)
        dictionary = sorted(set(values) - {None})
        return pd.Categorical(values, dictionary if order is None else order.permutation(np.array(dictionary, object)))

    return pd.DataFrame({"many": texts(X[:, 0]), "x": X[:, 1], "few": texts(X[:, 2])})


def splits_by_set(booster):
    return sum(len(tree.sets.nodes) for tree in booster.model.trees if tree.sets is not None)


def test_columns_of_categories_are_split_by_sets_and_others_by_thresholds():
    X, y = table()
    booster = train(X, y)
    is_set = {f: [] for f in range(3)}
    for tree in booster.model.trees:
        of_sets = () if tree.sets is None else tree.sets.nodes.tolist()
        for node in np.flatnonzero(tree.left_child >= 0).tolist():
            is_set[tree.feature[node]].append(node in of_sets)
    assert all(is_set[0]) and all(is_set[2]) and not any(is_set[1]) and min(map(len, is_set.values())) > 0
    assert splits_by_set(train(X, y, cat_encoding="ordinal")) == splits_by_set(train(X, y, types=None)) == 0
    assert digest(train(X, y, types=["q"] * 3, cat_encoding="ordinal").model) == digest(train(X, y, types=["q"] * 3).model)


@pytest.mark.parametrize("max_cat_to_onehot, of_several", [(1, {0, 2}), (4, {0}), (40, {0}), (41, set())])
def test_of_fewer_categories_than_the_limit_one_is_taken(max_cat_to_onehot, of_several):
    """The columns have 40 and 3. of_several : those that may list more than one."""
    listed = {0: [], 2: []}
    for tree in train(*table(), 10, max_cat_to_onehot=max_cat_to_onehot).model.trees:
        for node, categories in tree.sets.items():
            listed[tree.feature[node]].append(len(categories))
    assert all(max(listed[f]) == 1 for f in {0, 2} - of_several)
    assert 0 not in of_several or max(listed[0]) > 1


def test_no_set_is_larger_than_the_threshold():
    for most in (2, 5):
        trees = train(*table(), 10, max_cat_threshold=most).model.trees
        assert max(len(categories) for tree in trees for _, categories in tree.sets.items()) == most


def test_a_stump_of_squared_error_is_the_best_of_all_sets():
    rng = np.random.default_rng(3)
    code, y = rng.integers(0, 9, 200), rng.integers(-64, 65, 200) / 32
    X = code[:, None].astype(np.float32)
    booster = train(X, y, 1, types=["c"], reg_lambda=0.0, max_depth=1, learning_rate=1.0)
    ((_, listed),) = booster.model.trees[0].sets.items()

    def loss(categories):
        right = np.isin(code, categories)
        return sum(((y[side] - y[side].mean()) ** 2).sum() for side in (right, ~right) if side.any())

    best = min(loss(part) for part in chain.from_iterable(combinations(range(9), m) for m in range(1, 9)))
    assert loss(listed) == pytest.approx(best, rel=1e-12)
    assert ((booster.predict(gb.DMatrix(X)) - y) ** 2).sum() == pytest.approx(best, rel=1e-5)  # float32 leaves


@pytest.mark.parametrize("method", ["hist", "approx"])
def test_numbering_categories_otherwise_changes_no_prediction(method):
    """Labels of all categories differ, so that no tie is broken by number."""
    X, y = table()
    new = np.random.default_rng(1).permutation(40)
    other = X.copy()
    other[:, 0] = np.where(np.isnan(X[:, 0]), np.nan, new[np.nan_to_num(X[:, 0]).astype(int)])
    booster, renumbered = train(X, y, tree_method=method), train(other, y, tree_method=method)
    predicted = booster.predict(gb.DMatrix(X))
    np.testing.assert_array_equal(renumbered.predict(gb.DMatrix(other)), predicted)
    moved = train(X[:, [1, 2, 0]], y, types=["q", "c", "c"], tree_method=method)
    np.testing.assert_array_equal(moved.predict(gb.DMatrix(X[:, [1, 2, 0]])), predicted)


def test_frames_are_matched_by_value_and_train_as_their_codes():
    X, y = table()
    frame = as_frame(X)  # whose letters ascend as the codes do, but for capitals
    booster = train(frame, y, types=None)
    predicted = booster.predict(gb.DMatrix(frame))
    np.testing.assert_array_equal(predicted, train(X, y).predict(gb.DMatrix(X)))
    shuffled = as_frame(X, order=np.random.default_rng(2))
    np.testing.assert_array_equal(booster.predict(gb.DMatrix(shuffled)), predicted)
    np.testing.assert_array_equal(train(shuffled, y, types=None).predict(gb.DMatrix(frame)), predicted)


@pytest.mark.parametrize("absent", ["missing", "zero"])
def test_a_sparse_table_gives_the_model_of_the_table_written_out(absent):
    X, y = table()
    stored = np.nan_to_num(X) != 0 if absent == "zero" else ~np.isnan(X)
    stored |= np.isnan(X) if absent == "zero" else False
    sparse = scipy.sparse.csr_matrix((X[stored], np.nonzero(stored)), shape=X.shape)
    d = gb.DMatrix(sparse, y, feature_types=TYPES, sparse_absent=absent)
    booster = gb.train(PARAMS, d, 3, verbose_eval=False)
    dense = train(X, y)
    assert [tree == other for tree, other in zip(booster.model.trees, dense.model.trees)] == [True] * 3
    np.testing.assert_array_equal(booster.predict(d), dense.predict(gb.DMatrix(X)))


def digests_of_workers_and_one(n_workers, train):
    """Those of workers whose parts lack categories, and that of a training on all rows. train : (X, y, types=) -> Booster."""
    X, y = table(300)
    X = X[np.argsort(X[:, 0])]  # each worker has some of the categories
    frame = as_frame(X)
    bounds = np.linspace(0, len(y), n_workers + 1).astype(int)

    def work(rank):
        own = slice(bounds[rank], bounds[rank + 1])
        part = frame[own].assign(**{name: frame[name][own].cat.remove_unused_categories() for name in ("many", "few")})
        return digest(train(part, y[own], types=None).model)

    return set(run_threads(n_workers, work)), {digest(train(frame, y, types=None).model)}


@pytest.mark.parametrize("n_workers", [2, 7])
def test_workers_whose_parts_lack_categories_agree_by_value(n_workers):
    workers, one = digests_of_workers_and_one(n_workers, train)
    assert workers == one


def test_workers_keep_the_value_that_means_missing():
    """A part is read again where dictionaries are joined."""
    def work(rank):
        frame = pd.DataFrame({"kind": pd.Categorical(["ab"[rank]] * 20), "x": np.tile([-9.0, 1.0, 2.0, 3.0], 5)})
        dtrain = gb.DMatrix(frame, np.tile([5.0, 0, 0, 0], 5), missing=-9)
        return gb.train({"max_depth": 1}, dtrain, 1, verbose_eval=False).model

    tree = run_threads(2, work)[0].trees[0]
    assert tree.feature[0] == 1 and abs(tree.threshold[0]) > 3, "all present against missing"


def check_evaluated_as_predicted(params, X, y, other, label):
    """A watched table's scores are those of its predictions, binned on the way or by the cuts of the training's table."""
    dtrain, dother = (gb.DMatrix(*both, feature_types=TYPES) for both in ((X, y), (other, label)))
    booster = gb.train(params, dtrain, 4, evals=[(dother, "other")], evals_result=(scores := {}), verbose_eval=False)
    rmse = np.sqrt(np.mean((booster.predict(dother) - label) ** 2))
    assert scores["other"]["rmse"][-1] == pytest.approx(rmse, rel=1e-6)
    quantile = gb.QuantileDMatrix(X, y, feature_types=TYPES)
    lent = gb.QuantileDMatrix(other, label, ref=quantile)
    again = gb.train(params, quantile, 4, evals=[(lent, "other")], evals_result=(own := {}), verbose_eval=False)
    assert digest(again.model) == digest(booster.model) and own == scores
    np.testing.assert_array_equal(booster.predict(lent), booster.predict(dother))


def test_codes_under_cuts_that_lack_categories_of_a_set_are_not_predicted():
    """In a bin of their own are the first five of ten; the others lie in one, whichever they are."""
    codes = np.repeat(np.arange(10, dtype=np.float32), 40)[:, None]
    y = (codes[:, 0] >= 5) * 3.0 + (codes[:, 0] == 7) * 5
    booster = gb.train({"max_depth": 3}, gb.DMatrix(codes, y, feature_types=["c"]), 3)
    five = gb.QuantileDMatrix(codes[codes[:, 0] < 5], feature_types=["c"])
    for matrix in (five, gb.QuantileDMatrix(codes, ref=five, feature_types=["c"])):
        for options in ({}, {"pred_leaf": True}, {"pred_contribs": True}):
            with pytest.raises(ValueError, match="column 0: a split of the model is a set of categories, which codes"):
                booster.predict(matrix, **options)
    whole = gb.QuantileDMatrix(codes, feature_types=["c"])
    assert booster.predict(whole).tobytes() == booster.predict(gb.DMatrix(codes, feature_types=["c"])).tobytes()


def test_watched_matrices_of_codes_are_evaluated_as_they_are_predicted():
    """Codes that training has not seen go where a prediction sends them: left."""
    X, y = table()
    other, label = table(200, seed=5)
    other[:20, 0] = np.arange(40, 60)
    check_evaluated_as_predicted(PARAMS, X, y, other, label)
    other[0, 0] = -1
    with pytest.raises(ValueError, match="must hold codes of categories.* got -1 in row 0"):
        train(X, y, 1, evals=[(gb.DMatrix(other, label), "other")])


@pytest.mark.sweep(3)
@pytest.mark.parametrize("backend", BACKENDS)
def test_codes_of_a_sparse_table_are_read_as_those_of_the_table_written_out(backend, use_backend):
    """Where only they are kept: to evaluate, predict, go on, drop trees and refresh."""
    use_backend(BACKENDS[backend]())
    X = np.stack([np.arange(240) % 4, np.arange(240) // 4 % 2, np.random.default_rng(2).normal(size=240)], axis=1)
    y, types = ((X[:, 0] == 0) + 2 * X[:, 1] + X[:, 2]).astype(np.float32), ["c", "c", "q"]
    stored = scipy.sparse.csr_matrix((X.ravel(), np.tile(np.arange(3), 240), np.arange(0, 721, 3)), shape=X.shape)
    whole, codes = (form(table, y, feature_types=types) for form, table in ((gb.DMatrix, X), (gb.QuantileDMatrix, stored)))
    same = gb.QuantileDMatrix(stored, y, feature_types=types, ref=whole)
    evals, scores = [(whole, "a"), (same, "b")], {}
    first = gb.train({"max_depth": 3}, whole, 2, evals=evals, evals_result=scores, verbose_eval=False)
    assert scores["a"] == scores["b"]
    for options in ({}, {"pred_leaf": True}):
        np.testing.assert_array_equal(first.predict(same, **options), first.predict(whole, **options))
    dart, refresh = {"booster": "dart", "rate_drop": 0.5, "one_drop": True}, {"process_type": "update", "updater": "refresh"}
    for more, model in (({}, first), (dart, None), (refresh, first)):
        trained = [gb.train({"max_depth": 3, **more}, data, 2, xgb_model=model, verbose_eval=False) for data in (whole, codes)]
        assert digest(trained[0].model) == digest(trained[1].model), more


def test_xgboost_predicts_the_same_from_the_file(tmp_path):
    xgboost = pytest.importorskip("xgboost")
    X, y = table()
    booster = train(X, y, 10)
    booster.save_model(path := tmp_path / "model.json")
    theirs = xgboost.Booster(model_file=path)
    matrix = xgboost.DMatrix(X, feature_types=TYPES, enable_categorical=True)
    np.testing.assert_allclose(theirs.predict(matrix), booster.predict(gb.DMatrix(X)), rtol=0, atol=1e-6)
    assert digest(gb.Booster(model_file=path).model) == digest(booster.model)
    trees = json.loads(path.read_text())["learner"]["gradient_booster"]["model"]["trees"]
    assert all(sum(tree["split_type"]) > 0 for tree in trees)


def test_a_training_goes_on_from_a_file_of_sets(tmp_path):
    X, y = table()
    whole = train(X, y, 5, subsample=0.7)
    train(X, y, 2, subsample=0.7).save_model(path := tmp_path / "model.ubj")
    d = gb.DMatrix(X, y, feature_types=TYPES)
    assert digest(gb.train({**PARAMS, "subsample": 0.7}, d, 3, xgb_model=path, verbose_eval=False).model) == digest(whole.model)


# ---- what does not go together, and limits


def test_what_sets_do_not_go_with_is_refused():
    X, y = table(60)
    with pytest.raises(ValueError, match="tree_method='exact' does not split by sets.*, or cat_encoding='ordinal'"):
        train(X, y, tree_method="exact")
    with pytest.raises(ValueError, match="monotone_constraints of column 2 must be 0, as it holds categories.*got -1"):
        train(X, y, monotone_constraints=(0, 1, -1))
    train(X, y, 1, monotone_constraints=(0, 1, 0))
    train(X, y, 1, tree_method="exact", monotone_constraints=(0, 1, -1), cat_encoding="ordinal")
    d = gb.QuantileDMatrix(X, y, feature_types=TYPES)
    with pytest.raises(ValueError, match="cat_encoding='ordinal' in .* but the QuantileDMatrix was built with 'sets'"):
        gb.train({"cat_encoding": "ordinal"}, d, 1)


def test_a_dense_column_has_at_most_65534_categories():
    """So many and the codes for none of them and for missing are those of two bytes; a sparse table has no such limit."""
    backend, comm = CpuBackend(1), SingleProcess()
    X = np.array([[0.0], [65533.0], [np.nan]])
    binned = gb.DMatrix(X, feature_types=["c"]).binned(16, backend, comm, by_category=True)
    assert binned.cuts.n_bins.tolist() == [65535] and binned.pages[0].columns.tolist() == [[0, 65533, 65535]]
    X[1] = 65534
    with pytest.raises(ValueError, match="column 0 has 65535 categories, but at most 65534 of a dense table.*Use cat_encoding"):
        gb.DMatrix(X, feature_types=["c"]).binned(16, backend, comm, by_category=True)
    X[1] = 99_999
    d = gb.DMatrix(scipy.sparse.csr_matrix(X), np.array([0.0, 5, 0]), feature_types=["c"], sparse_absent="zero")
    booster = gb.train({"max_depth": 2, "min_child_weight": 0}, d, 1, verbose_eval=False)
    assert [categories.tolist() for _, categories in booster.model.trees[0].sets.items()][0] == [99_999]


def test_each_category_has_a_bin_whichever_max_bin():
    X, _ = table()
    backend, comm = CpuBackend(1), SingleProcess()
    d = gb.DMatrix(X, feature_types=TYPES)
    cuts = d.binned(4, backend, comm, by_category=True).cuts
    assert cuts.n_categories.tolist() == [40, 0, 3] and cuts.n_bins.tolist() == [41, 4, 4]
    assert cuts.of(2)[:-1].tolist() == [1, 2, 3]  # code 3: no category
    assert d.binned(4, backend, comm).cuts.n_bins.max() == 4 and not d.binned(4, backend, comm).cuts.same_as(cuts)
    frame = as_frame(X).assign(few=pd.Categorical([None] * len(X), ["a", "b"]))
    with pytest.warns(UserWarning, match='nothing but missing values.*"few"'):
        cuts = gb.DMatrix(frame).binned(4, backend, comm, by_category=True).cuts
    assert cuts.n_categories.tolist() == [40, 0, 2]


@pytest.mark.parametrize("max_cat_to_onehot", [1, 10])
@pytest.mark.parametrize("backend", BACKENDS)
def test_rows_without_hessian_go_left_with_their_gradients(backend, max_cat_to_onehot, use_backend):
    use_backend(BACKENDS[backend]())
    codes, grad, hess = (np.repeat(np.array(values, np.float32), 20) for values in ([0, 1, 2], [-1, 1, -3], [1, 1, 0]))
    data = gb.DMatrix(codes[:, None], grad, feature_types=["c"])
    params = {"max_depth": 1, "reg_lambda": 1, "base_score": 0, "learning_rate": 1, "max_cat_to_onehot": max_cat_to_onehot}
    booster = gb.train(params, data, 1, obj=lambda *_: (grad, hess), verbose_eval=False)
    expected = np.where(codes == 1, -20 / 21, 80 / 21)  # −G/(H + 1): category 2 stays with the one that is not listed
    np.testing.assert_allclose(booster.predict(data), expected, rtol=1e-6)


@pytest.mark.parametrize(("objective", "expected"), [
    ("binary:logistic", 2.0), ("multi:softprob", 1.0), ("count:poisson", 1.0), ("reg:squarederror", 0.0), ("reg:gamma", 0.0),
])  # fmt: skip
def test_the_noise_of_gradients_is_known_of_some_objectives(objective, expected):
    assert Params(objective=objective).usual_cat_noise == expected
    assert gb.Booster({"num_class": 3}).params == gb.Booster({"num_class": 3, "objective": "multi:softmax"}).params


@pytest.mark.parametrize("spread", [0.005, 0.2])
@pytest.mark.parametrize("weighs", [False, True])
def test_chance_gains_as_the_gradients_of_the_round_vary(spread, weighs):
    """Counts that vary less than their mean, or more: s² = min(1, 2·Σ g² / Σ h), at the mean g = μ − y, h = μ·e^0.7."""
    rng = np.random.default_rng(0)
    codes, effects = rng.integers(0, 40, (3000, 1)).astype(np.float32), np.exp(0.02 * rng.normal(size=40))
    label = np.round(300 * effects[codes[:, 0].astype(int)] * (1 + spread * rng.normal(size=3000)))
    weight = rng.choice([0.0, 0.25, 0.5, 1.0], 3000) if weighs else np.ones(3000)
    mean = np.average(label, weights=weight)
    expected = min(1, 2 * ((weight * (label - mean)) ** 2).sum() / (weight.sum() * mean * math.exp(0.7)))
    assert (expected < 0.2) == (spread == 0.005)
    data = gb.DMatrix(codes, label=label, feature_types=["c"], weight=weight if weighs else None)
    usual, given, most = (
        gb.train({"objective": "count:poisson", "cat_noise": noise, "max_depth": 4}, data, 1, verbose_eval=False).predict(data)
        for noise in (None, expected, 1.0)
    )
    np.testing.assert_allclose(usual, given, rtol=1e-6)
    assert (spread == 0.2) == np.allclose(usual, most, rtol=1e-6)


@pytest.mark.parametrize("params", [
    {"objective": "count:poisson"}, {"objective": "binary:logistic"}, {"objective": "multi:softprob", "num_class": 3},
    {"objective": "count:poisson", "min_child_weight": 0, "num_target": 2},
    {"objective": "multi:softprob", "num_class": 3, "multi_strategy": "multi_output_tree", "output_sketch": "top_outputs:2"},
])  # fmt: skip
def test_every_backend_chooses_the_same_noise(params, use_backend):
    """Of rows of which a third weigh nothing, and that are soon all but settled, so that it is less than the objective's."""
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 9, (90, 2)).astype(np.float32)
    label = (codes[:, 0] + (rng.random(90) < 0.1)) % params.get("num_class", 2)
    if "num_target" in params:  # one of which is constant, so that it has no gradients
        label = np.stack([label, np.ones(90)], axis=1)
    data = gb.DMatrix(codes, label, feature_types=["c", "c"], weight=np.arange(90) % 3 / 2)
    digests, most = set(), Params(**params).usual_cat_noise
    for name, backend in BACKENDS.items():
        use_backend(backend())
        for noise in (None, most) if name == "threads" else (None,):
            own = {**params, "cat_noise": noise, "max_cat_to_onehot": 1, "max_depth": 2}
            digests.add((noise, digest(gb.train(own, data, 3, verbose_eval=False).model)))
    assert len(digests) == len({model for _, model in digests}) == 2


def test_a_class_that_categories_decide_is_learnt():
    """Rows that are all but settled leave chance little to gain: log loss on other rows, beside that without a brake."""
    rng = np.random.default_rng(0)
    codes, side = rng.integers(0, 300, (6000, 1)).astype(np.float32), rng.integers(0, 2, 300)
    label, losses = side[codes[:, 0].astype(int)].astype(np.float32), {}
    data = gb.DMatrix(codes[:3000], label[:3000], feature_types=["c"])
    for noise in (None, 0, 2):
        params = {"objective": "binary:logistic", "cat_noise": noise}
        p = gb.train(params, data, 40, verbose_eval=False).inplace_predict(codes[3000:])
        losses[noise] = -np.log(np.where(label[3000:] > 0, p, 1 - p)).mean()
    assert losses[None] < 1.5 * losses[0] and losses[2] > 10 * losses[0]


def test_scale_pos_weight_is_a_weight():
    rng = np.random.default_rng(2)
    codes, label = rng.integers(0, 40, (3000, 1)).astype(np.float32), (rng.random(3000) < 0.7).astype(np.float32)
    weighed = gb.DMatrix(codes, label=label, feature_types=["c"], weight=np.where(label > 0, 0.25, 1.0))
    data, params = gb.DMatrix(codes, label=label, feature_types=["c"]), {"objective": "binary:logistic"}
    scaled = gb.train({**params, "scale_pos_weight": 0.25}, data, 5, verbose_eval=False)
    expected = gb.train(params, weighed, 5, verbose_eval=False)
    np.testing.assert_allclose(scaled.predict(data), expected.predict(data), rtol=1e-4)


def test_the_scale_of_weights_below_1_changes_nothing():
    rng = np.random.default_rng(1)
    codes = rng.integers(0, 40, (3000, 1)).astype(np.float32)
    label = (rng.random(3000) < 1 / (1 + np.exp(-rng.normal(size=40)[codes[:, 0].astype(int)]))).astype(np.float32)
    predicted = []
    for scale in (1.0, 0.25, 2.0**-7):
        data = gb.DMatrix(codes, label=label, feature_types=["c"], weight=np.full(3000, scale))
        params = {"objective": "binary:logistic", "reg_lambda": scale, "min_child_weight": scale}
        predicted.append(gb.train(params, data, 10, verbose_eval=False).predict(data))
    np.testing.assert_allclose(predicted[1], predicted[0], rtol=1e-4)
    np.testing.assert_allclose(predicted[2], predicted[0], rtol=1e-4)


def test_categories_without_effect_are_hardly_learnt():
    """Log loss of fair coins, of which 300 categories tell nothing, on other rows: ln 2 at best."""
    rng = np.random.default_rng(0)
    codes, label = rng.integers(0, 300, (6000, 1)).astype(np.float32), rng.integers(0, 2, 6000).astype(np.float32)
    losses = {}
    for noise in (None, 0):
        params = {"objective": "binary:logistic", "base_score": 0.5, "cat_noise": noise}
        p = train(codes[:3000], label[:3000], 10, types=["c"], **params).inplace_predict(codes[3000:])
        losses[noise] = -np.log(np.where(label[3000:] > 0, p, 1 - p)).mean() - np.log(2)
    assert losses[None] < 0.1 * losses[0]
