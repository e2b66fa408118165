"""gamma: the tree that training leaves is the whole tree, pruned bottom-up by a function of ten lines, and of XGBoost's size."""

import numpy as np
import pytest
from simulator import SimulatedDevice

import gpuboost as gb
from gpuboost.backend.cuda import CudaBackend

pytestmark = pytest.mark.filterwarnings("ignore:the first round split no node")

CASES = {
    "depthwise": {},
    "deep": {"max_depth": 0, "min_child_weight": 0, "reg_lambda": 0.1},
    "few leaves": {"max_leaves": 13, "max_depth": 0},
    "lossguide": {"grow_policy": "lossguide", "max_leaves": 20, "max_depth": 0},
    "lossguide to a depth": {"grow_policy": "lossguide", "max_depth": 4},
    "penalties": {"reg_alpha": 0.5, "max_delta_step": 0.4},
    "logistic": {"objective": "binary:logistic"},
    "classes": {"objective": "multi:softprob", "num_class": 3, "max_depth": 4},
    "monotone": {"monotone_constraints": (1, 0, -1, 0)},
    "sampled": {"subsample": 0.6, "colsample_bynode": 0.5},
    "exact": {"tree_method": "exact"},
    "approx": {"tree_method": "approx", "max_bin": 12},
}


def make(seed=0, n_rows=500, n_classes=0):
    rng = np.random.default_rng(seed)
    X = np.round(rng.normal(size=(n_rows, 4)), 1).astype(np.float32)
    y = X[:, 0] * X[:, 1] + np.sin(2 * X[:, 2]) + rng.normal(size=n_rows)
    X[rng.random(X.shape) < 0.1] = np.nan
    return X, np.digitize(y, [[0], [-0.7, 0.7]][n_classes - 2]) if n_classes else y.astype(np.float32)


def trees(case, gamma, seed=0):
    n_classes = {"logistic": 2, "classes": 3}.get(case, 0)
    params = {"seed": seed, **CASES[case], "gamma": gamma}
    return gb.train(params, gb.DMatrix(*make(seed, n_classes=n_classes)), 1, verbose_eval=False).model.trees


def nested(tree, node=0):
    """A split is (gain, weight, how it divides, left, right), a leaf (weight, cover)."""
    weight = float(tree.weight[node])
    if (left := tree.left_child[node]) < 0:
        return weight, float(tree.cover[node])
    how = int(tree.feature[node]), float(tree.threshold[node]), int(tree.default_left[node]), float(tree.cover[node])
    return float(tree.gain[node]), weight, how, nested(tree, left), nested(tree, left + 1)


def pruned(node, gamma):
    """Chen & Guestrin 2016, §2.2 as XGBoost reads it: a split between two leaves goes if it gains less than γ; what that makes a
    leaf may free its parent to go."""
    if len(node) == 2:
        return node
    gain, weight, how, left, right = node
    left, right = pruned(left, gamma), pruned(right, gamma)
    if len(left) == len(right) == 2 and gain < gamma:
        return weight, how[-1]
    return gain, weight, how, left, right


def n_leaves(node):
    return 1 if len(node) == 2 else n_leaves(node[3]) + n_leaves(node[4])


def gains(node):
    return [] if len(node) == 2 else [node[0], *gains(node[3]), *gains(node[4])]


def between(values):
    """Numbers between neighbours of some values, away from float32's rounding of them, and beyond all."""
    values = np.unique(np.array(values, np.float64))
    wide = np.flatnonzero(np.diff(values) > 1e-5 * values[1:])
    return [0.0, *(values[wide] + values[wide + 1]) / 2, 2 * values[-1]]


@pytest.mark.sweep(12)
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("seed", range(3))
def test_training_with_gamma_is_pruning_what_grew_without(case, seed):
    """Growth does not look at γ: also leaf by leaf the same splits are tried, and max_leaves counts those pruned later."""
    whole = [nested(tree) for tree in trees(case, 0, seed)]
    sizes = set()
    tried = between([gain for tree in whole for gain in gains(tree)])
    for gamma in tried[:: 1 + len(tried) // 25]:
        found = trees(case, gamma, seed)
        assert [nested(tree) for tree in found] == [pruned(tree, gamma) for tree in whole], gamma
        for tree in found:
            is_leaf = tree.left_child < 0
            assert tree.leaf_value[is_leaf] == pytest.approx(tree.weight[is_leaf] * 0.3, rel=1e-6)  # another rounding
            assert len(is_leaf) == 2 * tree.n_leaves - 1 == 2 * is_leaf.sum() - 1
        sizes.add(sum(map(n_leaves, map(nested, found))))
    assert len(sizes) > 5


@pytest.mark.parametrize("policy", ["depthwise", "lossguide"])
@pytest.mark.parametrize("tree_method", ["hist", "approx", "exact"])
def test_a_gain_of_gamma_itself_stays(policy, tree_method):
    """λ = 0, gradients 12, 8, −4, −16: the root gains 20²/2 + 20²/2 − 0 = 400, its left child 144 + 64 − 20²/2 = 8, its right
    child 16 + 256 − 20²/2 = 72."""
    X, y = np.arange(4.0)[:, None], np.array([0.0, 4, 16, 28])
    params = {"reg_lambda": 0, "base_score": 12, "grow_policy": policy, "tree_method": tree_method, "min_child_weight": 0}

    def leaves(gamma):
        model = gb.train({**params, "gamma": gamma}, gb.DMatrix(X, y), 1, verbose_eval=False).model
        return model.trees[0].n_leaves

    def above(gain):
        return np.nextafter(gain, np.inf)

    expected = {0: 4, 8: 4, above(8): 3, 72: 3, above(72): 2, 400: 2, above(400): 1}
    assert {gamma: leaves(gamma) for gamma in expected} == expected


@pytest.mark.sweep(1)
@pytest.mark.parametrize("params", [{}, {"max_leaves": 6, "grow_policy": "lossguide"}], ids=str)
def test_cuda_prunes_alike(params, use_backend):
    def tree(gamma):
        model = gb.train({"max_depth": 3, "gamma": gamma, **params}, gb.DMatrix(*make(n_rows=101)), 1, verbose_eval=False).model
        return nested(model.trees[0])

    whole = tree(0)
    use_backend(CudaBackend(SimulatedDevice()))
    for gamma in between(gains(whole))[1:-1:3]:
        assert tree(gamma) == pruned(whole, gamma)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("params", [
    {}, {"max_depth": 9}, {"reg_lambda": 0.1}, {"min_child_weight": 8}, {"reg_alpha": 2},
], ids=str)  # fmt: skip
def test_first_trees_have_as_many_leaves_as_xgboosts(seed, params):
    """XGBoost's exact method prunes bottom-up, too (and knows no max_leaves). Labels are whole 64ths and the base score 0, so
    that gradients are exact in both; bins are as many as values, so that candidates are the same."""
    xgboost = pytest.importorskip("xgboost")
    X, y = make(seed)
    y = np.round(64 * y) / 64
    common = {"base_score": 0, "nthread": 1, **params}
    whole = nested(gb.train(common, gb.DMatrix(X, y), 1, verbose_eval=False).model.trees[0])
    for gamma in between(gains(whole))[::6]:
        ours = gb.train({**common, "gamma": gamma}, gb.DMatrix(X, y), 1, verbose_eval=False)
        theirs = xgboost.train({**common, "gamma": gamma, "tree_method": "exact"}, xgboost.DMatrix(X, y), 1)
        assert ours.model.trees[0].n_leaves == theirs.get_dump()[0].count("leaf="), gamma
