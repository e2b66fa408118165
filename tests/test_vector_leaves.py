"""multi_strategy="multi_output_tree": trees whose leaves hold a value for every output, from training to the model file."""

import json

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import xgboost
from naive_backend import NaiveBackend
from peer_versions import xgboost_before
from reference import leaf_weight, score

import gpuboost as gb
from gpuboost.model_io import digest, load_model
from gpuboost.model_io.schema import from_document, to_document

VECTOR = {"multi_strategy": "multi_output_tree", "max_bin": 24, "nthread": 1}


def make_table(n_rows=400, n_outputs=3, seed=3):
    """X (n_rows, 5) with missing values, and targets that have much in common."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, 5)).astype(np.float32)
    X[:, 3] = rng.integers(0, 4, n_rows)
    X[rng.random(X.shape) < 0.1] = np.nan
    filled = np.nan_to_num(X, nan=0.5)
    common = filled[:, 0] * filled[:, 3] + np.abs(filled[:, 1])
    own = filled[:, rng.integers(0, 5, n_outputs)] * rng.normal(size=n_outputs)
    return X, (common[:, None] + own + rng.normal(size=(n_rows, n_outputs)) / 4).astype(np.float32)


@gb.split_gain
def same_gain(gain):
    return gain


def train(params, X, y, rounds=4, **options):
    return gb.train({**VECTOR, **params}, gb.DMatrix(X, y), rounds, verbose_eval=False, **options)


# ---- what is grown


@pytest.mark.parametrize("params", [
    {}, {"objective": "reg:absoluteerror"}, {"objective": "binary:logistic"}, {"tree_method": "exact"},
    {"monotone_constraints": (1, 0, -1), "grow_policy": "lossguide", "max_leaves": 9},
    {"booster": "dart", "rate_drop": 0.5, "one_drop": True},
], ids=str)  # fmt: skip
def test_one_output_gives_the_model_of_one_output_per_tree(params):
    X, y = make_table(n_outputs=1)
    y = (y > y.mean()).astype(np.float32) if "binary" in params.get("objective", "") else y
    models = [train({**params, "multi_strategy": s}, X, y).model for s in ("multi_output_tree", "one_output_per_tree")]
    assert digest(models[0]) == digest(models[1]) and models[0].trees[0].n_leaves > 4


def test_a_stump_is_the_best_over_the_summed_scores_of_all_outputs():
    """Against a search through all thresholds in NumPy: gain, leaf values and covers."""
    X, y = make_table(150)
    X = np.round(np.nan_to_num(X[:, :2]), 1)
    model = train({"max_depth": 1, "max_bin": 256, "base_score": 0, "learning_rate": 1, "min_child_weight": 20}, X, y, 1).model
    grad, n = -y.astype(np.float64), len(y)

    def scores(rows):
        return sum(score(grad[rows, k].sum(), rows.sum(), 1.0, 0.0, 0.0) for k in range(3))

    best = (0.0, None)
    for feature in range(2):
        for value in np.unique(X[:, feature]):
            left = X[:, feature] < value
            if min(left.sum(), n - left.sum()) >= 20:
                best = max(best, (scores(left) + scores(~left) - scores(np.ones(n, bool)), (feature, left)), key=lambda b: b[0])
    gain, (feature, left) = best
    (tree,) = model.trees
    # 16 bits of gradients choose: relative to the gain, some 2⁻¹² of a sum over 150 rows
    assert tree.feature[0] == feature and tree.gain[0] == pytest.approx(gain, rel=1e-3)
    assert ((X[:, feature] < tree.threshold[0]) == left).all()
    for node, rows in ((1, left), (2, ~left)):
        expected = [leaf_weight(grad[rows, k].sum(), rows.sum(), 1.0, 0.0, 0.0) for k in range(3)]
        # gradients keep 20 bits; then a rounding to float32, or two
        np.testing.assert_allclose(tree.leaf_value[node], expected, rtol=1e-6, atol=2**-20 * abs(y).max())
        assert tree.cover[node] == 3 * rows.sum()


def test_gamma_prunes_by_the_gain_of_all_outputs():
    X, y = make_table()
    full, pruned = (train({"gamma": gamma, "max_depth": 4}, X, y, 1).model.trees[0] for gamma in (0.0, 25.0))
    left = pruned.left_child
    last = [node for node in np.flatnonzero(left >= 0) if left[left[node]] < 0 and left[left[node] + 1] < 0]
    assert 1 < pruned.n_leaves < full.n_leaves and (pruned.gain[last] >= 25).all()


@pytest.mark.parametrize("min_child_weight, n_leaves", [(200, 2), (201, 1)])
def test_min_child_weight_is_of_the_mean_over_outputs(min_child_weight, n_leaves):
    """XGBoost 3.4's rule: for squared errors, rows."""
    X, y = np.repeat([0.0, 1.0], 200)[:, None], np.repeat([[0.0, 5.0], [1.0, 7.0]], 200, axis=0)
    assert train({"min_child_weight": min_child_weight}, X, y, 1).model.trees[0].n_leaves == n_leaves


@pytest.mark.parametrize("params", [
    {"tree_method": "exact"}, {"split_gain": "same_gain"}, {"monotone_constraints": (1,), "output_sketch": "top_outputs:1"},
    {"monotone_constraints": (1,), "objective": "reg:absoluteerror"},
], ids=str)  # fmt: skip
def test_what_trees_of_several_outputs_have_not_is_refused(params):
    X, y = make_table(50)
    with pytest.raises(ValueError, match=next(iter(params))):
        train(params, X, y, 1)


def test_quantiles_share_a_tree_and_keep_their_own_leaves():
    """Each leaf of reg:quantileerror holds the quantiles of its rows' residuals."""
    X, y = make_table(n_outputs=1)
    alphas = [0.1, 0.5, 0.75]
    params = {"objective": "reg:quantileerror", "quantile_alpha": alphas, "learning_rate": 1, "max_depth": 3}
    booster = train(params, X, y, 1)
    (tree,) = booster.model.trees
    leaf, start = booster.predict(gb.DMatrix(X), pred_leaf=True)[:, 0].astype(int), booster.model.base_score
    for node in np.flatnonzero(tree.left_child < 0):
        residuals = np.sort(y[leaf == node, 0].astype(np.float64))[:, None] - start
        n = len(residuals)
        for k, alpha in enumerate(alphas):
            low, high = residuals[int(np.ceil(alpha * n - 1e-9)) - 1, k], residuals[min(int(alpha * n + 1e-9), n - 1), k]
            assert tree.leaf_value[node, k] == pytest.approx((low + high) / 2, rel=1e-5, abs=1e-6)  # residuals are float32


# ---- monotone constraints


def opposed_targets(n_rows=500, seed=2):
    """Targets of which some go the way of the columns' constraints (1, −1, 0) and others do not."""
    rng = np.random.default_rng(seed)
    X = rng.random((n_rows, 3)).astype(np.float32)
    y = np.stack([3 * X[:, 0] - X[:, 1], np.sin(6 * X[:, 0]) + X[:, 2], X[:, 1] * X[:, 2] - 2 * X[:, 0]], axis=1)
    X[rng.random(X.shape) < 0.05] = np.nan
    return X, (y + rng.normal(size=y.shape) / 8).astype(np.float32)


@pytest.mark.parametrize("params", [
    {}, {"grow_policy": "lossguide", "max_leaves": 20, "max_depth": 0}, {"tree_method": "approx"}, {"learning_rate": 1.0},
    {"max_delta_step": 0.5, "reg_alpha": 0.5, "reg_lambda": 0}, {"num_parallel_tree": 2, "subsample": 0.6},
], ids=str)  # fmt: skip
def test_every_output_keeps_the_order_of_the_constraints(params):
    X, y = opposed_targets()
    booster = train({"monotone_constraints": (1, -1, 0), **params}, X, y, 8)
    free = train(params, X, y, 8)
    rng, is_broken = np.random.default_rng(0), False
    for column, sign in ((0, 1), (1, -1)):
        for _ in range(40):
            rows = np.tile(rng.random(3), (60, 1)).astype(np.float32)
            rows[:, column] = np.linspace(-0.1, 1.1, 60)
            steps, of_free = (sign * np.diff(model.predict(gb.DMatrix(rows)), axis=0) for model in (booster, free))
            assert (steps >= -1e-6).all()  # sums of float32
            is_broken |= (of_free < -1e-3).any()
    errors = [((model.predict(gb.DMatrix(X)) - y) ** 2).mean(axis=0) for model in (booster, free)]
    assert is_broken and errors[0][0] < 0.5 * y[:, 0].var() and errors[1].sum() < errors[0].sum()


def test_an_output_that_would_break_the_order_gets_one_weight_for_both_children():
    """A stump against a search through all thresholds in NumPy; others gain so much that the split stays."""
    X, y = opposed_targets(150)
    X = np.round(np.nan_to_num(X[:, :1], nan=0.5), 1)
    params = {"max_depth": 1, "max_bin": 256, "base_score": 0, "learning_rate": 1, "monotone_constraints": (1,)}
    (tree,) = train(params, X, y, 1).model.trees
    grad, n, best = -y.astype(np.float64), len(y), (0.0, None, None)
    for value in np.unique(X)[1:]:
        left, gain, weights = X[:, 0] < value, 0.0, []
        for k in range(3):
            sides = [(grad[rows, k].sum(), rows.sum()) for rows in (left, ~left)]
            own = [leaf_weight(g, h, 1.0, 0.0, 0.0) for g, h in sides]
            if own[0] > own[1]:
                own = [-grad[:, k].sum() / (n + 2)] * 2  # each child has its λ
            gain -= sum(2 * g * w + (h + 1) * w**2 for (g, h), w in zip(sides, own)) + score(grad[:, k].sum(), n, 1.0, 0.0, 0.0)
            weights.append(own)
        best = max(best, (gain, value, weights), key=lambda b: b[0])
    gain, value, weights = best
    assert tree.gain[0] == pytest.approx(gain, rel=1e-3)  # 16 bits of gradients choose
    assert ((X[:, 0] < tree.threshold[0]) == (X[:, 0] < value)).all()
    np.testing.assert_allclose(tree.leaf_value[1:3].T, weights, rtol=0, atol=1e-3 * np.abs(y).max())
    assert tree.leaf_value[1, 0] < tree.leaf_value[2, 0] and tree.leaf_value[1, 2] == tree.leaf_value[2, 2]


def test_constraints_of_vector_leaves_go_xgboosts_way():
    """Its trees on the same bins: thresholds, and leaves to what 16 bits of gradients are worth."""
    if xgboost_before(3, 4):
        pytest.skip("XGBoost has them from 3.4 on")
    X, y = opposed_targets()
    X = np.round(np.nan_to_num(X, nan=0.5), 1)
    params = {**VECTOR, "max_depth": 2, "max_bin": 64, "base_score": 0.0, "monotone_constraints": (1, -1, 0)}
    ours = gb.train(params, gb.DMatrix(X, y), 3, verbose_eval=False)
    theirs = xgboost.train({**params, "monotone_constraints": "(1,-1,0)"}, xgboost.DMatrix(X, y), 3)
    back = gb.Booster(model_file=theirs.save_raw("json"))
    for own, other in zip(ours.model.trees, back.model.trees):
        assert own.feature.tolist() == other.feature.tolist()
    np.testing.assert_allclose(ours.predict(gb.DMatrix(X)), theirs.predict(xgboost.DMatrix(X)), rtol=0, atol=2e-3)
    loaded = xgboost.Booster(model_file=bytearray(ours.save_raw("json")))
    np.testing.assert_allclose(loaded.predict(xgboost.DMatrix(X)), ours.predict(gb.DMatrix(X)), rtol=0, atol=1e-6)


# ---- sets of categories


def make_categories(n_rows=600, n_outputs=3, seed=5):
    """A frame with many categories that matter, few that do, and numbers; and targets."""
    rng = np.random.default_rng(seed)
    many, few, x = rng.integers(0, 20, n_rows), rng.integers(0, 3, n_rows), rng.normal(size=n_rows).astype(np.float32)
    effect = rng.normal(size=(20, 2)) @ rng.normal(size=(2, n_outputs))
    y = effect[many] + 2 * (few == 1)[:, None] + x[:, None] * rng.normal(size=n_outputs)
    y += rng.normal(size=y.shape) / 4
    letters = pd.Categorical.from_codes(np.where(rng.random(n_rows) < 0.1, -1, many), list("abcdefghijklmnopqrst"))
    sizes = pd.Categorical.from_codes(few, ["small", "large", "huge"])
    return pd.DataFrame({"x": x, "letter": letters, "size": sizes}), y.astype(np.float32)


@pytest.mark.parametrize("max_cat_to_onehot", [1, 30])
def test_one_output_of_sets_gives_the_model_of_one_output_per_tree(max_cat_to_onehot):
    X, y = make_categories(n_outputs=1)
    params = {"max_cat_to_onehot": max_cat_to_onehot, "cat_noise": 0.5}
    models = [train({**params, "multi_strategy": s}, X, y).model for s in ("multi_output_tree", "one_output_per_tree")]
    assert digest(models[0]) == digest(models[1]) and models[0].trees[0].sets is not None


def test_a_stump_of_one_category_is_the_best_of_all():
    """Against the gains of all thresholds and categories in NumPy."""
    X, y = make_categories()
    params = {"max_depth": 1, "max_bin": 256, "base_score": 0, "learning_rate": 1, "max_cat_to_onehot": 30, "cat_noise": 0}
    (tree,) = train(params, X.assign(x=X.x.round(1)), y, 1).model.trees
    grad, everyone = -y.astype(np.float64), np.ones(len(y), bool)

    def scores(rows):
        return sum(score(grad[rows, k].sum(), rows.sum(), 1.0, 0.0, 0.0) for k in range(3))

    best = 0.0, None
    for name in ("letter", "size"):
        codes = X[name].cat.codes.to_numpy()
        for category in range(len(X[name].cat.categories)):
            for goes_right in (codes == category, (codes == category) | (codes < 0)):
                gain = scores(goes_right) + scores(~goes_right) - scores(everyone)
                best = max(best, (gain, (name, category)), key=lambda b: b[0])
    for threshold in np.unique(X.x.round(1)):
        left = (X.x.round(1) < threshold).to_numpy()
        if left.any():
            best = max(best, (scores(left) + scores(~left) - scores(everyone), ("x", threshold)), key=lambda b: b[0])
    gain, (name, category) = best
    assert name != "x" and tree.gain[0] == pytest.approx(gain, rel=1e-3)  # 16 bits of gradients choose
    assert list(X)[tree.feature[0]] == name and [listed.tolist() for _, listed in tree.sets.items()] == [[category]]


def test_sets_say_more_than_the_order_of_codes():
    X, y = make_categories()
    errors = {}
    for encoding in ("sets", "ordinal", "statistics"):
        booster = train({"cat_encoding": encoding, "max_depth": 1}, X, y, 8)
        errors[encoding] = np.sqrt(((booster.predict(gb.DMatrix(X)) - y) ** 2).mean())
    assert max(errors["sets"], errors["statistics"]) < 0.8 * errors["ordinal"]


def test_labels_missing_for_all_rows_of_a_category_leave_its_set_finite():
    X, y = make_categories()
    y[(X.letter == "c").to_numpy(), 1] = np.nan
    data = gb.DMatrix(X, y, missing_labels="mask")
    booster = gb.train({**VECTOR, "reg_lambda": 0, "min_child_weight": 0}, data, 3, verbose_eval=False)
    assert np.isfinite(booster.predict(gb.DMatrix(X))).all() and booster.model.trees[0].sets is not None


@pytest.mark.parametrize("raw_format", ["json", "ubj"])
def test_xgboost_loads_vector_leaves_with_sets_and_we_its_own(raw_format):
    X, y = make_categories()
    booster = train({"max_depth": 4}, X, y)
    raw = booster.save_raw(raw_format)
    assert digest(load_model(bytes(raw))) == digest(booster.model)
    codes = X.assign(letter=X.letter.cat.codes.replace(-1, np.nan), size=X["size"].cat.codes).to_numpy(np.float32)
    types = {"feature_names": list(X), "feature_types": ["float", "c", "c"]}
    theirs = xgboost.Booster(model_file=bytearray(raw))
    expected = theirs.predict(xgboost.DMatrix(codes, enable_categorical=True, **types))
    np.testing.assert_allclose(booster.predict(gb.DMatrix(X)), expected, rtol=1e-6, atol=1e-6)  # sums of float32
    contributions = booster.predict(gb.DMatrix(X), pred_contribs=True)
    np.testing.assert_allclose(contributions.sum(axis=-1), booster.predict(gb.DMatrix(X)), rtol=0, atol=1e-5)
    if not xgboost_before(3, 4):  # which has none before
        own = xgboost.train({**VECTOR, "max_depth": 4}, xgboost.DMatrix(codes, y, enable_categorical=True, **types), 4)
        back = gb.Booster(model_file=own.save_raw(raw_format))
        assert back.model.trees[0].sets is not None
        expected = own.predict(xgboost.DMatrix(codes, enable_categorical=True, **types))
        np.testing.assert_allclose(back.predict(gb.DMatrix(codes, **types)), expected, rtol=1e-6, atol=1e-6)


# ---- one model


@pytest.mark.parametrize("objective", ["reg:squarederror", "multi:softprob", "reg:quantileerror"])
def test_plain_loops_grow_the_same_trees(objective, monkeypatch):
    X, y = make_table(90)
    extra = {"multi:softprob": {"num_class": 3}, "reg:quantileerror": {"quantile_alpha": [0.2, 0.6]}}.get(objective, {})
    label = {"multi:softprob": y.argmax(axis=1), "reg:quantileerror": y[:, 0]}.get(objective, y)
    params = {"objective": objective, "max_depth": 3, "subsample": 0.8, "gamma": 0.5, **extra}
    expected = train(params, X, label, 2)
    backend = NaiveBackend()
    monkeypatch.setattr("gpuboost.backend.choose_backend", lambda *_, **__: backend)
    assert digest(train(params, X, label, 2).model) == digest(expected.model)


def test_continued_trainings_grow_trees_of_the_same_kind():
    X, y = make_table()
    once = train({}, X, y, 4)
    first = train({}, X, y, 2)
    raw = first.save_raw()
    assert digest(gb.train({"max_bin": 24}, gb.DMatrix(X, y), 2, xgb_model=raw, verbose_eval=False).model) == digest(once.model)
    with pytest.raises(ValueError, match="multi_strategy='one_output_per_tree'"):
        gb.train({"multi_strategy": "one_output_per_tree"}, gb.DMatrix(X, y), 1, xgb_model=raw, verbose_eval=False)


# ---- prediction


def test_every_way_to_predict_adds_the_same_leaves():
    X, y = make_table(600)
    booster = train({"objective": "reg:squarederror"}, X, y)
    leaves = booster.predict(gb.DMatrix(X), pred_leaf=True).astype(int)
    expected = np.tile(np.float32(booster.model.base_score), (600, 1))
    for tree, leaf in zip(booster.model.trees, leaves.T):
        expected += tree.leaf_value[leaf]
    binned = gb.QuantileDMatrix(X, y, max_bin=24)
    for prediction in (
        booster.predict(gb.DMatrix(X)), booster.inplace_predict(X), booster.inplace_predict(X[:5]),
        gb.train({**VECTOR, "max_bin": 24}, binned, 4, verbose_eval=False).predict(binned),
    ):  # fmt: skip
        np.testing.assert_array_equal(prediction, expected[: len(prediction)])
    is_stored = ~np.isnan(X)
    stored = scipy.sparse.csr_matrix((X[is_stored], np.nonzero(is_stored)), shape=X.shape)
    np.testing.assert_array_equal(booster.predict(gb.DMatrix(stored)), expected)


@pytest.mark.parametrize("n_rounds", [1, 2])
def test_the_kind_of_trees_stays_as_it_is_once_there_are_some(n_rounds):
    """Also where the trees of the last rounds have not been asked for yet."""
    X, y = make_table(60)
    data = gb.DMatrix(X, y)
    booster = gb.Booster({"multi_strategy": "multi_output_tree", "max_depth": 2}, [data])
    booster.set_param({"multi_strategy": "one_output_per_tree"})  # there are none
    booster.set_param({"multi_strategy": "multi_output_tree"})
    for i in range(n_rounds):
        booster.update(data, i)
    with pytest.raises(ValueError, match="multi_strategy='one_output_per_tree', but the model was trained with"):
        booster.set_param({"multi_strategy": "one_output_per_tree"})
    booster.update(data, n_rounds)
    assert booster.num_boosted_rounds() == n_rounds + 1 and booster.predict(data).shape == y.shape


def test_shapes_of_predictions():
    X, y = make_table(60)
    booster, data = train({}, X, y), gb.DMatrix(X)
    assert booster.predict(data).shape == (60, 3) and booster.predict(data, pred_leaf=True).shape == (60, 4)
    assert booster.predict(data, pred_leaf=True, strict_shape=True).shape == (60, 4, 1, 1)
    np.testing.assert_array_equal(booster[1:3].predict(data, output_margin=True), booster.predict(data, iteration_range=(1, 3)))


def test_evaluation_follows_the_predictions():
    X, y = make_table()
    log = {}
    other = gb.DMatrix(X[:100] + 0.1, y[:100])
    booster = train({}, X, y, evals=[(other, "other")], evals_result=log)
    error = np.sqrt(((booster.predict(other) - y[:100]) ** 2).mean())
    assert log["other"]["rmse"][-1] == pytest.approx(error, rel=1e-6)  # float32 predictions, summed in another order


# ---- model files


@pytest.mark.parametrize("objective", ["reg:squarederror", "multi:softprob"])
def test_xgboost_loads_what_we_save_and_we_what_it_saves(objective):
    X, y = make_table()
    label, extra = (y, {}) if objective.startswith("reg") else (y.argmax(axis=1), {"num_class": 3})
    params = {"objective": objective, **extra}
    ours = train(params, X, label)
    theirs = xgboost.train({**VECTOR, **params, "tree_method": "hist"}, xgboost.DMatrix(X, label), 4)
    for raw_format in ("json", "ubj"):
        loaded = xgboost.Booster(model_file=bytearray(ours.save_raw(raw_format)))
        # of three leaves and a start; exp differs in its last bits
        np.testing.assert_allclose(loaded.predict(xgboost.DMatrix(X)), ours.predict(gb.DMatrix(X)), rtol=1e-5, atol=1e-6)
        leaves = ours.predict(gb.DMatrix(X), pred_leaf=True)
        np.testing.assert_array_equal(loaded.predict(xgboost.DMatrix(X), pred_leaf=True), leaves)
        back = gb.Booster(model_file=theirs.save_raw(raw_format))
        np.testing.assert_allclose(back.predict(gb.DMatrix(X)), theirs.predict(xgboost.DMatrix(X)), rtol=1e-5, atol=1e-6)
        assert load_model(bytes(ours.save_raw(raw_format))).trees == load_model(bytes(ours.save_raw("json"))).trees
        assert digest(load_model(bytes(ours.save_raw(raw_format)))) == digest(ours.model)
    assert back.get_dump() == theirs.get_dump()


def test_leaves_of_files_before_xgboost_3_2_lie_in_base_weights():
    X, y = make_table(80)
    model = train({}, X, y, 2).model
    document = json.loads(json.dumps(to_document(model), default=lambda array: array.tolist()))
    for tree in document["learner"]["gradient_booster"]["model"]["trees"]:
        del tree["leaf_weights"]
        tree["right_children"] = [-1 if left == -1 else left + 1 for left in tree["left_children"]]
    assert from_document(document).trees[1].leaf_value.tolist() == model.trees[1].leaf_value.tolist()


@pytest.mark.parametrize("place, value, message", [
    (("tree_param", "size_leaf_vector"), "2", "must be 1, or the 3"),
    (("leaf_weights",), [1.0], "entries"), (("leaf_weights",), 1, "must be an array, got an integer"),
    (("right_children", -1), 0, "each of the"),
    (("base_weights", 0), "x", "number"),
])  # fmt: skip
def test_malformed_vector_leaves_are_named(place, value, message):
    X, y = make_table(80)
    document = json.loads(json.dumps(to_document(train({}, X, y, 1).model), default=lambda array: array.tolist()))
    *path, last = place
    at = document["learner"]["gradient_booster"]["model"]["trees"][0]
    for key in path:
        at = at[key]
    at[last] = value
    with pytest.raises(gb.errors.ModelFormatError, match=message):
        from_document(document)


def test_what_the_trees_say_of_themselves():
    X, y = make_table()
    booster = train({"max_depth": 2}, X, y, 1)
    (tree,) = booster.model.trees
    leaf = int(np.flatnonzero(tree.left_child < 0)[0])
    text = ", ".join(f"{value:.9g}" for value in tree.leaf_value[leaf].tolist())
    assert f"{leaf}:leaf=[{text}]\n" in booster.get_dump()[0]
    assert json.loads(booster.get_dump(dump_format="json")[0])["children"]
    table = booster.trees_to_dataframe()
    rows = table[table.Node == leaf]
    assert rows.Target.tolist() == [0, 1, 2] and rows.Gain.tolist() == tree.leaf_value[leaf].tolist()
    assert table.Target.isna().sum() == tree.n_leaves - 1 and len(table) == tree.n_leaves * 4 - 1
    assert booster.get_score(importance_type="total_gain").keys() <= {f"f{f}" for f in range(5)}


# ---- estimators


def test_estimators_fit_several_outputs():
    X, y = make_table()
    params = {"n_estimators": 4, "multi_strategy": "multi_output_tree", "max_bin": 24, "n_jobs": 1}
    regressor = gb.GPUBoostRegressor(**params).fit(X, y)
    assert {tree.leaf_size for tree in regressor.get_booster().model.trees} == {3}
    np.testing.assert_array_equal(regressor.predict(X), train({}, X, y).predict(gb.DMatrix(X)))
    classifier = gb.GPUBoostClassifier(**params).fit(X, np.array(list("abc"))[y.argmax(axis=1)])
    assert classifier.predict_proba(X).shape == (400, 3) and (classifier.predict(X) == "a").any()
    assert {tree.leaf_size for tree in classifier.get_booster().model.trees} == {3}
