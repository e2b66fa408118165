"""The engine against the plain-NumPy booster of reference.py, on gradients that fixed point holds exactly."""

import numpy as np
import pytest
import reference
from hypothesis import given, settings
from hypothesis import strategies as st

import gpuboost as gb

# Labels in 16ths and weights in quarters: gradients and their sums are exact in float64 and in 16-bit fixed point.
# Weights between 1 and 2, or 0: where there are more values than bins, none holds two bins' weight (reference.quantile_cuts).
SETTINGS = st.fixed_dictionaries(
    {
        "max_depth": st.integers(1, 4),
        "reg_lambda": st.sampled_from([0.0, 1.0, 2.5]),
        "reg_alpha": st.sampled_from([0.0, 0.5]),
        "gamma": st.sampled_from([0.0, 0.5, 2.0]),
        "min_child_weight": st.sampled_from([0.0, 0.25, 1.0, 3.0]),
        "max_delta_step": st.sampled_from([0.0, 0.25]),
        "learning_rate": st.sampled_from([0.3, 1.0]),
        "max_bin": st.sampled_from([4, 16, 256]),
        "signs": st.sampled_from([[0, 0, 0, 0], [-1, 1, 1, 0], [1, -1, 0, 1]]),
    }
)
OBJECTIVES = {"squared": "reg:squarederror", "logistic": "binary:logistic"}


def test_reference_splits_four_rows_as_by_hand():
    """Labels −1, −1, 2, 2 from margin 0: g = 1, 1, −2, −2. Splitting at 2.5: 4/3 + 16/3 − 4/5 = 5.867; leaves ∓2/3, 4/3."""
    (tree,) = reference.fit(np.array([[1.0], [2.0], [3.0], [4.0]]), [-1, -1, 2, 2], max_depth=1, learning_rate=1.0)
    assert (tree["feature"], tree["threshold"], tree["default_left"]) == (0, 2.5, True)
    assert tree["gain"] == pytest.approx(20 / 3 - 4 / 5)
    assert [tree["left"]["leaf"], tree["right"]["leaf"]] == pytest.approx([-2 / 3, 4 / 3])


NAN = np.nan


@pytest.mark.parametrize(
    ("columns", "label", "feature", "threshold", "default_left"),
    [
        ([[1, 2, 3]], [-1, 0, 1], 0, 1.5, True),  # after 1: 1/2 + 1/3, after 2: 1/3 + 1/2. The lower bin wins
        ([[1, 2, NAN]], [-1, 1, 0], 0, 1.5, True),  # missing on either side: 1/2 + 1/3. Missing left wins
        ([[1, 2, 3, NAN]], [-1, 0, 1, 0], 0, 1.5, False),  # bin 0, missing right, equals bin 1, missing left: the lower bin wins
        ([[7, 7], [1, 2], [1, 2]], [-1, 1], 1, 1.5, True),  # the lower feature wins
    ],
    ids=["bin", "missing left", "bin before missing left", "feature"],
)
def test_ties_are_broken_by_feature_then_bin_then_missing_left(columns, label, feature, threshold, default_left):
    X, y = np.array(columns, np.float32).T, np.array(label, np.float32)
    booster, (tree,) = train_both("squared", X, y, np.ones(len(y), np.float32), 1, 0.0, {"max_depth": 1})
    assert (tree["feature"], tree["threshold"], tree["default_left"]) == (feature, threshold, default_left)
    assert_same_tree(booster.model.trees[0], tree)


def random_table(seed, n_rows, objective):
    """(X, label, weight): columns dense, missing in part, of whole numbers, constant; labels follow the first two."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, 4)).astype(np.float32)
    X[rng.random(n_rows) < 0.3, 1] = np.nan
    X[:, 2] = rng.integers(0, 3, n_rows)
    X[:, 3] = 1.0
    signal = X[:, 0] * 1.5 + np.where(np.isnan(X[:, 1]), 1.0, X[:, 1]) + rng.normal(size=n_rows)
    label = np.round(signal * 16) / 16 if objective == "squared" else signal > 0
    weight = rng.integers(4, 9, n_rows) / 4 * (rng.random(n_rows) < 0.9)
    return X, label.astype(np.float32), weight.astype(np.float32)


def train_both(objective, X, y, weight, n_rounds, base_score, options):
    """(the engine's Booster, the reference's trees)."""
    margin = base_score if objective == "squared" else np.log(base_score / (1 - base_score))
    trees = reference.fit(X, y, weight, n_rounds=n_rounds, objective=objective, base_margin=margin, **options)
    params = {"objective": OBJECTIVES[objective], "base_score": base_score, **options}
    params["monotone_constraints"] = params.pop("signs", ())
    types = ["c" if f in params.get("categorical", ()) else "q" for f in range(X.shape[1])]
    params.pop("categorical", None)
    return gb.train(params, gb.DMatrix(X, y, weight=weight, feature_types=types), n_rounds, verbose_eval=False), trees


def assert_same_tree(tree, node, i=0):
    if "left" not in node:
        assert tree.left_child[i] == -1
        assert tree.leaf_value[i] == pytest.approx(node["leaf"], rel=1e-6, abs=1e-6)  # float32 against float64
        return
    assert tree.left_child[i] > 0
    assert tree.feature[i] == node["feature"]
    if "listed" in node:
        assert dict(tree.sets.items())[i].tolist() == sorted(node["listed"])
    else:
        assert tree.threshold[i] == np.float32(node["threshold"])
    assert tree.default_left[i] == node["default_left"]
    assert tree.gain[i] == pytest.approx(node["gain"], rel=1e-6)
    assert_same_tree(tree, node["left"], tree.left_child[i])
    assert_same_tree(tree, node["right"], tree.left_child[i] + 1)


@pytest.mark.parametrize("objective", OBJECTIVES)
@settings(max_examples=25)
@given(options=SETTINGS, n_rows=st.integers(1, 60), seed=st.integers(0, 10**6))
@pytest.mark.filterwarnings("ignore:Some columns hold nothing but missing values")
@pytest.mark.filterwarnings("ignore:the first round split no node")
def test_first_tree_equals_the_references(objective, options, n_rows, seed):
    X, y, weight = random_table(seed, n_rows, objective)
    weight[0] = 1.0  # some row counts
    booster, (tree,) = train_both(objective, X, y, weight, 1, 0.5, options)
    assert_same_tree(booster.model.trees[0], tree)


@pytest.mark.parametrize("objective", OBJECTIVES)
@settings(max_examples=25)
@given(
    options=SETTINGS, n_rows=st.integers(1, 120), seed=st.integers(0, 10**6),
    rules=st.fixed_dictionaries({
        "max_cat_to_onehot": st.sampled_from([1, 4, 40]), "max_cat_threshold": st.sampled_from([2, 64]),
        "cat_smooth": st.sampled_from([0.0, 2.0]), "cat_l2": st.sampled_from([0.0, 4.0]),
        "min_data_per_group": st.sampled_from([0.0, 6.0]), "cat_noise": st.sampled_from([0.0, 0.5, 2.0]),
    }),
)  # fmt: skip
@pytest.mark.filterwarnings("ignore:Some columns hold nothing but missing values")
@pytest.mark.filterwarnings("ignore:the first round split no node")
def test_first_tree_of_categories_equals_the_references(objective, options, n_rows, seed, rules):
    """Columns 1 and 2 are categories: 12 with missing ones, and 3."""
    X, y, weight = random_table(seed, n_rows, objective)
    X[:, 1] = np.where(np.isnan(X[:, 1]), np.nan, np.random.default_rng(seed).integers(0, 12, n_rows))
    weight[0] = 1.0
    signs = [options["signs"][0], 0, 0, options["signs"][3]]
    options = {**options, **rules, "signs": signs, "categorical": (1, 2)}
    booster, (tree,) = train_both(objective, X, y, weight, 1, 0.5, options)
    assert_same_tree(booster.model.trees[0], tree)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_trees_of_a_thousand_rows_are_deep_and_equal(objective):
    X, y, weight = random_table(0, 1000, objective)
    booster, (tree,) = train_both(objective, X, y, weight, 1, 0.5, {"max_depth": 6, "max_bin": 32, "gamma": 1.0})
    assert booster.model.trees[0].n_leaves > 20
    assert_same_tree(booster.model.trees[0], tree)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_predictions_of_many_rounds_are_close_to_the_references(objective):
    """After the first round gradients are rounded to 16 bits, which decides no split here; leaves come from finer sums."""
    X, y, weight = random_table(1, 1000, objective)
    booster, trees = train_both(objective, X, y, weight, 15, 0.5, {"max_depth": 3, "max_bin": 16})
    margin = booster.predict(gb.DMatrix(X), output_margin=True)
    expected = reference.predict(trees, X, 0.5 if objective == "squared" else 0.0)
    assert np.std(expected) > 1.0
    np.testing.assert_allclose(margin, expected, atol=1e-5)  # 15 additions in float32


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_the_references_predictions_learn(objective):
    """The oracle itself beats the constant on rows it has not seen."""
    X, y, weight = random_table(2, 500, objective)
    trees = reference.fit(X[:300], y[:300], weight[:300], n_rounds=10, objective=objective, max_depth=3, max_bin=32)
    score = reference.predict(trees, X[300:])
    assert np.corrcoef(score, y[300:])[0, 1] > 0.5
