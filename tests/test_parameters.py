"""Every parameter that shapes trees keeps its promise, read off grown trees by plain NumPy.

A row of TABLE names a parameter, settings of it, and what must hold of the trees that grow with them. What is checked against is
recomputed from the rows that reach a node (pred_leaf) and from the gradients of the loss at the model's own margins, in float64:

    exact sums     The engine's leaf sums are exact sums of gradients that keep 20 bits (kernels/gradients.py); ours are of
                   float64 gradients at the same margins. They differ by CUT of a row's g and h at most, and float32 roundings.
    16-bit sums    Splits are chosen by hessians rounded at random to units of at most 2^-15 of the largest (kernels/quantise.py).
                   A child of n rows that looks heavy enough may so lack less than n units of min_child_weight, no more. Where
                   hessians are whole units, as under squared error without weights, nothing is lacking.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cache
from itertools import combinations
from typing import Any

import numpy as np
import pytest

import gpuboost as gb
from gpuboost.cli import main
from gpuboost.params import Params, TreeParams

pytestmark = pytest.mark.filterwarnings("ignore:the first round split no node")

N_FEATURES = 6
CUT = 2.0**-19  # of a gradient or hessian, relative to its own size
ROUNDING = 2.0**-21  # of a gradient or hessian, relative to margin, label and weight: some float32 operations of 2^-24
UNIT = 2.0**-15  # of the largest gradient or hessian: above the rounding of one row's
REGRESSION, LOGISTIC = {"objective": "reg:squarederror"}, {"objective": "binary:logistic"}


@cache
def make(task: str, n_rows: int = 1500) -> tuple[np.ndarray, np.ndarray]:
    """(X, y): 40 values a column, a few missing; every column tells something, and none all. y in whole 64ths."""
    rng = np.random.default_rng(7)
    X = rng.integers(0, 40, (n_rows, N_FEATURES)).astype(np.float32)
    Z = X / 10 - 2
    y = Z[:, 0] * Z[:, 1] + np.sin(3 * Z[:, 2]) + Z[:, 3] - 0.5 * Z[:, 4] ** 2 + Z[:, 4] * Z[:, 5] + rng.normal(0, 0.5, n_rows)
    X[rng.random(X.shape) < 0.05] = np.nan
    if task == LOGISTIC["objective"]:
        y = y > -0.5
    return X, (np.round(64 * y) / 64).astype(np.float32)


@dataclass(frozen=True)
class Grown:
    """A model, the table that it grew on, and what the rows say about its trees."""

    params: dict[str, Any]
    booster: gb.Booster
    X: np.ndarray
    y: np.ndarray

    def __getattr__(self, name: str) -> Any:
        """A parameter that was given, or its default."""
        return self.params[name] if name in self.params else getattr(Params(), name)

    @property
    def trees(self) -> list[Any]:
        return self.booster.model.trees

    def rows(self, t: int) -> np.ndarray:
        """bool (n_nodes, n_rows): whether tree t leads a row through a node."""
        tree = self.trees[t]
        leaf = np.asarray(self.booster.predict(gb.DMatrix(self.X), pred_leaf=True)).reshape(len(self.X), -1)[:, t].astype(int)
        rows = np.zeros((tree.n_nodes, len(self.X)), bool)
        rows[leaf, np.arange(len(self.X))] = True
        for node in range(tree.n_nodes - 1, 0, -1):
            rows[tree.parent[node]] |= rows[node]
        return rows

    def gradients(self, t: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """g and h of every row before tree t, in float64 from the float32 margin, and how far the engine's may be from them."""
        margin = np.full(len(self.y), self.booster.model.base_score[0])
        if self.objective == "binary:logistic":
            margin = np.log(margin / (1 - margin))
        if t > 0:
            margin = self.booster.predict(gb.DMatrix(self.X), output_margin=True, iteration_range=(0, t)).astype(np.float64)
        if self.objective == "reg:squarederror":
            g, h, size = margin - self.y, np.ones(len(self.y)), np.abs(margin) + np.abs(self.y)
            return g, h, CUT * np.abs(g) + ROUNDING * size
        p, weight = 1 / (1 + np.exp(-margin)), np.where(self.y > 0, self.scale_pos_weight, 1)
        g, h = (p - self.y) * weight, p * (1 - p) * weight
        return g, h, CUT * np.maximum(np.abs(g), h) + ROUNDING * weight

    def paths(self) -> list[tuple[int, int, tuple[int, ...], int]]:
        """(tree, node, features above it from the root on, own feature) of every split."""
        found = []
        for t, tree in enumerate(self.trees):
            above: dict[int, tuple[int, ...]] = {0: ()}
            for node in range(tree.n_nodes):
                if (left := tree.left_child[node]) >= 0:
                    found.append((t, node, above[node], int(tree.feature[node])))
                    above[left] = above[left + 1] = (*above[node], int(tree.feature[node]))
        return found


@cache
def _grow(items: tuple[tuple[str, Any], ...], rounds: int, n_rows: int) -> Grown:
    params = dict(items)
    X, y = make(params["objective"], n_rows)
    return Grown(params, gb.train(params, gb.DMatrix(X, y), rounds, verbose_eval=False), X, y)


def grow(params: dict[str, Any], rounds: int = 3, n_rows: int = 1500) -> Grown:
    return _grow(tuple({**REGRESSION, **params}.items()), rounds, n_rows)


def both(*settings: dict[str, Any]) -> list[dict[str, Any]]:
    return [{**task, **setting} for task in (REGRESSION, LOGISTIC) for setting in settings]


# ---- what holds of trees, by parameter


def depths(tree: Any) -> np.ndarray:
    depth = np.zeros(tree.n_nodes, int)
    for node in range(1, tree.n_nodes):
        depth[node] = depth[tree.parent[node]] + 1
    return depth


def check_depth(grown: Grown) -> None:
    """Every tree is as deep as it may be: the table has more to tell."""
    deepest = [depths(tree).max() for tree in grown.trees]
    assert deepest == [grown.max_depth] * len(deepest) if grown.max_depth else min(deepest) > 8


def check_leaves(grown: Grown) -> None:
    assert {tree.n_leaves for tree in grown.trees} == {grown.max_leaves}


def check_order(grown: Grown) -> None:
    """Children are numbered as they are made. Leaf by leaf: the split made next has the largest gain of all leaves that were ever
    split later. Level by level: no split is made before one of a lower depth."""
    for tree in grown.trees:
        splits = np.flatnonzero(tree.left_child >= 0)
        splits = splits[np.argsort(tree.left_child[splits])]
        if grown.grow_policy == "depthwise":
            assert (np.diff(depths(tree)[splits]) >= 0).all()
        for i, split in enumerate(splits if grown.grow_policy == "lossguide" else ()):
            was_open = [s for s in splits[i:] if s <= (tree.left_child[splits[i - 1]] + 1 if i else 0)]
            assert tree.gain[split] >= tree.gain[was_open].max() * (1 - 2.0**-15)  # gains compare in 16 bits
        assert len(splits) > 8


def soft_threshold(G: np.ndarray, alpha: float) -> np.ndarray:
    return np.sign(G) * np.maximum(np.abs(G) - alpha, 0)


def check_weights(grown: Grown) -> None:
    """w = −T(G, α)/(H + λ), within ±max_delta_step, of every node; leaves are w times learning_rate."""
    for t, tree in enumerate(grown.trees):
        rows = grown.rows(t)
        G, H, error = (rows @ values for values in grown.gradients(t))
        w = -soft_threshold(G, grown.reg_alpha) / (H + grown.reg_lambda)
        step = grown.max_delta_step or np.inf
        allowed = error * (1 + np.abs(w)) / (H + grown.reg_lambda) + 2.0**-23 * np.abs(w)  # of G and H, and w's own rounding
        assert (np.abs(tree.weight - np.clip(w, -step, step)) <= allowed).all()
        assert (np.abs(tree.cover - H) <= error + 2.0**-23 * H).all()
        is_leaf = tree.left_child < 0
        # the engine multiplies before it rounds to float32, so one rounding more lies between
        assert tree.leaf_value[is_leaf] == pytest.approx(tree.weight[is_leaf] * grown.learning_rate, rel=2.0**-22, abs=1e-37)
        assert not tree.leaf_value[~is_leaf].any()


def check_l1(grown: Grown) -> None:
    """Leaves of |G| < α weigh nothing; where α exceeds every |G|, nothing is left to gain."""
    check_weights(grown)
    if grown.reg_alpha > 1e5:
        assert [tree.n_leaves for tree in grown.trees] == [1] * len(grown.trees)
        assert not any(tree.weight.any() for tree in grown.trees)


def check_delta_step(grown: Grown) -> None:
    check_weights(grown)
    weights = np.concatenate([tree.weight for tree in grown.trees])
    limit = np.float32(grown.max_delta_step)
    assert np.abs(weights).max() == limit and (np.abs(weights) == limit).sum() > 3


def check_child_weight(grown: Grown) -> None:
    for t, tree in enumerate(grown.trees):
        rows, (_, h, _) = grown.rows(t), grown.gradients(t)
        unit = UNIT * h.max() if grown.objective == "binary:logistic" else 0
        assert ((rows @ h)[1:] >= grown.min_child_weight - rows[1:].sum(axis=1) * unit).all()
        assert tree.n_leaves > 1 or 2 * grown.min_child_weight > h.sum()
    free = grow({**grown.params, "min_child_weight": 0})
    assert min(tree.cover.min() for tree in free.trees) < grown.min_child_weight, "the limit would not have been felt"


def check_gamma(grown: Grown) -> None:
    """What two leaves are left of gained γ; the rest is a matter of test_pruning."""
    gains = [tree.gain[node] for tree in grown.trees for node in np.flatnonzero(tree.left_child >= 0)
             if (tree.left_child[tree.left_child[node] + np.arange(2)] < 0).all()]  # fmt: skip
    assert min(gains) >= np.float32(grown.gamma)
    free = grow({**grown.params, "gamma": 0})
    assert sum(tree.n_leaves for tree in grown.trees) < sum(tree.n_leaves for tree in free.trees)


def check_learning_rate(grown: Grown) -> None:
    """Of the first tree it scales the leaves, and nothing else."""
    check_weights(grown)
    tree, whole = grown.trees[0], grow({**grown.params, "learning_rate": 1}).trees[0]
    for name in ("left_child", "feature", "threshold", "default_left", "gain", "cover", "weight"):
        assert getattr(tree, name).tobytes() == getattr(whole, name).tobytes()
    assert tree.leaf_value == pytest.approx(whole.leaf_value * grown.learning_rate, rel=2.0**-22, abs=1e-37)


def check_pos_weight(grown: Grown) -> None:
    """As many copies of each positive row, or as much weight."""
    check_weights(grown)
    X, y = grown.X, grown.y
    weighted = gb.DMatrix(X, y, weight=np.where(y > 0, grown.scale_pos_weight, 1))
    params = {**grown.params, "scale_pos_weight": 1}
    model = gb.train(params, weighted, 3, verbose_eval=False).model
    assert model.trees == grown.trees and model.base_score == grown.booster.model.base_score


def check_cuts(grown: Grown) -> None:
    """Thresholds of a column lie between its bins: max_bin − 1 of them in the whole model, or in each tree where candidates are
    proposed anew; beside them, missing values against all others. Bins are used: more than half of them by some column."""
    found = {}
    for t, node, _, feature in grown.paths():
        threshold = grown.trees[t].threshold[node]
        if threshold <= 39:
            found.setdefault((feature, t if grown.tree_method == "approx" else 0), set()).add(threshold)
    most = max(map(len, found.values()))
    assert grown.max_bin / 2 - 1 <= most < grown.max_bin


def best_gain(grown: Grown, t: int, rows: np.ndarray) -> float:
    """The largest gain of any cut between two values of a column, missing values on either side (λ as given, α = 0)."""
    g, h, _ = (values[rows] for values in grown.gradients(t))
    score = lambda G, H: G**2 / (H + grown.reg_lambda)
    best = 0.0
    for column in grown.X[rows].T:
        missing = np.isnan(column)
        for cut in [*(np.unique(column[~missing])[1:]), np.inf]:
            for left in (column < cut, (column < cut) | missing):
                H = h[left].sum(), h[~left].sum()
                if min(H) >= grown.min_child_weight and min(H) > 0:
                    best = max(best, score(g[left].sum(), H[0]) + score(g[~left].sum(), H[1]) - score(g.sum(), h.sum()))
    return best


def check_best_split(grown: Grown) -> None:
    """With as many bins as values, every split gains the most that any could, but for the rounding of gradients: 16 bits a row,
    at random, so that a sum of n is off by about √n/2 units of 2^-15 of the largest."""
    for t, tree in enumerate(grown.trees[:2]):
        rows, (g, h, _) = grown.rows(t), grown.gradients(t)
        for node in np.flatnonzero(tree.left_child >= 0)[:6]:
            G, H = np.abs(g[rows[node]]).sum(), h[rows[node]].sum()
            noise = 8 * math.sqrt(rows[node].sum()) * UNIT * np.abs(g).max() * G / H + 1e-3
            assert best_gain(grown, t, rows[node]) == pytest.approx(tree.gain[node], rel=1e-3, abs=noise)


def check_proposals(grown: Grown) -> None:
    """"global" cuts a column at most max_bin − 1 times in a tree; "local" cuts every node anew, so that a deep tree has more."""
    cuts = {}
    for t, node, _, feature in grown.paths():
        cuts.setdefault((t, feature), set()).add(grown.trees[t].threshold[node])
    most = max(map(len, cuts.values()))
    assert most <= grown.max_bin if grown.sketch_proposals == "global" else most > grown.max_bin


def check_base_score(grown: Grown) -> None:
    """Prediction before the first tree; the leaves make up for it."""
    check_weights(grown)
    start = gb.train(grown.params, gb.DMatrix(grown.X, grown.y), 0).predict(gb.DMatrix(grown.X))
    assert start == pytest.approx(np.full(len(grown.X), grown.base_score), rel=1e-6)


def n_drawn(share: float, n: int) -> int:
    """XGBoost's count, rounded down, but at least one; 1e-6 is for shares like 0.29."""
    return max(1, int(share * n + 1e-6))


def check_row_count(grown: Grown) -> None:
    """Hessians are 1, so covers count rows."""
    n = n_drawn(grown.subsample, len(grown.X))
    assert [tree.cover[0] for tree in grown.trees] == [n] * len(grown.trees)
    leaf_rows = [tree.cover[tree.left_child < 0] for tree in grown.trees]
    assert all((covers == np.round(covers)).all() and covers.sum() == n for covers in leaf_rows)


@gb.split_gain
def only_on(gain, feature, column=0):
    return gain if feature == column else -math.inf


def check_split_gain(grown: Grown) -> None:
    """A gain that only one column has lets trees split on no other."""
    assert {feature for *_, feature in grown.paths()} == {int(grown.split_gain.partition("=")[2])}


def check_tree_columns(grown: Grown) -> None:
    """A tree uses no more columns than are drawn for it, and trees of many leaves use all of those."""
    used: dict[int, set[int]] = {}
    for t, _, _, feature in grown.paths():
        used.setdefault(t, set()).add(feature)
    assert {len(features) for features in used.values()} == {n_drawn(grown.colsample_bytree, N_FEATURES)}
    assert len({frozenset(features) for features in used.values()}) > 1


def check_level_columns(grown: Grown) -> None:
    used: dict[tuple[int, int], set[int]] = {}
    for t, _, above, feature in grown.paths():
        used.setdefault((t, len(above)), set()).add(feature)
    n = n_drawn(grown.colsample_bylevel, n_drawn(grown.colsample_bytree, N_FEATURES))
    assert max(map(len, used.values())) == n
    by_tree = [set().union(*(used[key] for key in used if key[0] == t)) for t in range(len(grown.trees))]
    assert max(map(len, by_tree)) > n  # another draw on another level


def check_node_columns(grown: Grown) -> None:
    """Of k columns each node draws n: whatever gains most, a root splits on each of them in a fair share of the rounds. The best
    column of all is the root's as often as it is drawn, n/k; 5 sigma of a binomial."""
    roots = [int(tree.feature[0]) for tree in grown.trees]
    n, rounds = n_drawn(grown.colsample_bynode, N_FEATURES), len(roots)
    share = np.bincount(roots, minlength=N_FEATURES).max() / rounds
    assert abs(share - n / N_FEATURES) < 5 * math.sqrt(n / N_FEATURES * (1 - n / N_FEATURES) / rounds)
    a_level = {}
    for t, _, above, feature in grown.paths():
        a_level.setdefault((t, len(above)), set()).add(feature)
    assert max(map(len, a_level.values())) > n  # nodes side by side draw anew


def check_feature_weights(grown: Grown) -> None:
    """One column drawn a tree: column f in a share w_f/Σw of them (5 sigma), those of weight 0 never."""
    roots = np.bincount([int(tree.feature[0]) for tree in grown.trees], minlength=N_FEATURES)
    share = np.array(grown.feature_weights) / sum(grown.feature_weights)
    assert (np.abs(roots / len(grown.trees) - share) <= 5 * np.sqrt(share * (1 - share) / len(grown.trees))).all()


def boxes(tree: Any) -> list[tuple[float, np.ndarray, np.ndarray]]:
    """(value, low, high) of every leaf: the rows without missing values with low ≤ x < high."""
    found = []

    def descend(node, low, high):
        if tree.left_child[node] < 0:
            found.append((float(tree.leaf_value[node]), low, high))
            return
        feature, cut = tree.feature[node], tree.threshold[node]
        left_high, right_low = high.copy(), low.copy()
        left_high[feature], right_low[feature] = min(cut, high[feature]), max(cut, low[feature])
        descend(tree.left_child[node], low, left_high)
        descend(tree.left_child[node] + 1, right_low, high)

    descend(0, np.full(N_FEATURES, -np.inf), np.full(N_FEATURES, np.inf))
    return [(value, low, high) for value, low, high in found if (low < high).all()]


def check_monotone(grown: Grown) -> None:
    """Of two leaves that some rows reach which differ in one constrained column only, the one of larger x is not against it."""
    n_ordered = 0
    for tree in grown.trees:
        for a, b in combinations(boxes(tree), 2):
            meets = np.maximum(a[1], b[1]) < np.minimum(a[2], b[2])
            for f, sign in enumerate(grown.monotone_constraints):
                if sign and np.delete(meets, f).all():
                    (low, *_), (high, *_) = sorted((a, b), key=lambda leaf: leaf[1][f])
                    assert sign * (high - low) >= 0
                    n_ordered += 1
    assert n_ordered > 20


def check_interactions(grown: Grown) -> None:
    paths = [frozenset((*above, feature)) for *_, above, feature in grown.paths()]
    allowed = [set(group) for group in grown.interaction_constraints]
    assert all(len(path) == 1 or any(path <= group for group in allowed) for path in paths)
    assert max(map(len, paths)) > 1


def check_seed(grown: Grown) -> None:
    """Gradients in whole 64ths are exact in 16 bits, so that nothing but draws depends on the seed. (Others are rounded at
    random: the seed shows in the last digits of gains.)"""
    draws = any(getattr(grown, name) < 1 for name in ("subsample", "colsample_bytree", "colsample_bylevel", "colsample_bynode"))
    trees = [grow({**grown.params, "seed": seed}, 1).trees[0] for seed in (0, 1, 2, 2**40, -1)]
    assert any(tree != trees[0] for tree in trees) == draws


def check_outputs(grown: Grown) -> None:
    X, y = make(grown.objective)
    booster = gb.train({**grown.params, "max_depth": 2}, gb.DMatrix(X, np.column_stack([y, -y, 2 * y])), 2, verbose_eval=False)
    groups, leaf_size = ([0], 3) if grown.multi_strategy == "multi_output_tree" else ([0, 1, 2], 1)
    assert booster.model.tree_groups == groups * 2 and {tree.leaf_size for tree in booster.model.trees} == {leaf_size}


def root_sums(grown: Grown) -> tuple[np.ndarray, np.ndarray]:
    """Σg and Σh of the rows drawn in each round, as the roots say: G = −w·(H + λ)."""
    covers, weights = np.array([(tree.cover[0], tree.weight[0]) for tree in grown.trees], np.float64).T
    return -weights * (covers + grown.reg_lambda), covers


def check_sampling_method(grown: Grown) -> None:
    """Nothing is learnt here but in the eighth digit, so every round draws from the same gradients. What is drawn counts 1/p
    times: sums are those of all rows on average (5 standard errors; of a uniform draw, k/n of them). And they vary less than
    those of a uniform draw of as many, times n/k: sums of g far less, for which gradient-based sampling is made."""
    g, h, _ = grown.gradients(0)
    uniform = grow({**grown.params, "sampling_method": "uniform"}, len(grown.trees))
    is_uniform, spread = grown.sampling_method == "uniform", []
    for drawn, share in ((grown, grown.subsample if is_uniform else 1), (uniform, uniform.subsample)):
        sums = np.array(root_sums(drawn)) / share
        error = sums.std(axis=1, ddof=1) / math.sqrt(sums.shape[1]) + 1e-3
        assert (np.abs(sums.mean(axis=1) - (g.sum(), h.sum())) <= 5 * error).all()
        spread.append(sums[0].std())
    assert len(np.unique(root_sums(grown)[0])) == len(grown.trees)
    assert is_uniform or grown.objective == "binary:logistic" or spread[0] < 0.8 * spread[1]


SLOW = {"learning_rate": 1e-6}  # every round sees the gradients of the first
SIGNS = [(1, -1, 0, 1, 0, 0), (0, 0, 1, -1, -1, 1)]
SETS = [((0, 1), (2, 3, 4)), ((0, 1, 2), (2, 3), (4, 5))]

# parameter → what must hold, settings, and rounds and rows where they are not 3 and 1500
TABLE: dict[str, tuple[Callable[[Grown], None], list[dict[str, Any]], dict[str, int]]] = {
    "max_depth": (check_depth, both(*({"max_depth": depth, "gamma": 0} for depth in (1, 2, 5, 0))), {}),
    "max_leaves": (
        check_leaves,
        [{"max_leaves": n, "max_depth": depth, "grow_policy": policy}
         for n in (1, 2, 3, 7, 20) for policy, depth in (("depthwise", 6), ("depthwise", 0), ("lossguide", 0), ("lossguide", 9))],
        {},
    ),
    "grow_policy": (
        check_order,
        both({"grow_policy": "lossguide", "max_leaves": 20, "max_depth": 0}, {"grow_policy": "lossguide", "max_depth": 5},
             {"grow_policy": "depthwise"}, {"grow_policy": "depthwise", "max_leaves": 20, "max_depth": 0}),
        {},
    ),
    "learning_rate": (check_learning_rate, both(*({"learning_rate": rate} for rate in (1e-3, 0.1, 0.3, 1, 2.5))), {}),
    "gamma": (check_gamma, both(*({"gamma": gamma} for gamma in (2, 5, 20.5))), {}),
    "min_child_weight": (check_child_weight, both(*({"min_child_weight": least} for least in (2, 5.5, 40, 170))), {}),
    "max_delta_step": (check_delta_step, both(*({"max_delta_step": step} for step in (0.05, 0.2, 0.7))), {}),
    "reg_lambda": (check_weights, both(*({"reg_lambda": penalty} for penalty in (0, 0.5, 1, 20, 1e4))), {}),
    "reg_alpha": (check_l1, both(*({"reg_alpha": penalty} for penalty in (0.5, 5, 50, 1e6))), {}),
    "scale_pos_weight": (check_pos_weight, [{**LOGISTIC, "scale_pos_weight": w} for w in (0.25, 2, 8)], {}),
    "max_bin": (
        check_cuts,
        [{"max_bin": n, "tree_method": method, "max_depth": 8} for n in (2, 5, 16) for method in ("hist", "approx")],
        {"rounds": 8},
    ),
    "tree_method": (
        check_best_split,
        both(*({"tree_method": method, "max_depth": 4} for method in ("hist", "exact")),
             {"tree_method": "approx", "max_bin": 64, "max_depth": 4}, {"tree_method": "hist", "reg_lambda": 0, "max_depth": 4}),
        {"n_rows": 300},
    ),
    "sketch_proposals": (
        check_proposals,
        both(*({"tree_method": "approx", "sketch_proposals": s, "max_bin": 4, "max_depth": 7} for s in ("global", "local"))), {},
    ),
    "split_gain": (check_split_gain, [{"split_gain": f"only_on@column={column}"} for column in (1, 2)], {}),
    "base_score": (check_base_score, [{"base_score": 0.0}, {"base_score": -7.5}, {**LOGISTIC, "base_score": 0.2}], {}),
    "subsample": (check_row_count, [{"subsample": share} for share in (1e-9, 0.1, 0.29, 0.5, 0.999, 1)], {"n_rows": 100}),
    "sampling_method": (
        check_sampling_method,
        both(*({"subsample": share, "sampling_method": how, "max_depth": 1, **SLOW}
               for share in (0.1, 0.5) for how in ("uniform", "gradient_based"))),
        {"rounds": 200},
    ),
    "colsample_bytree": (
        check_tree_columns, both(*({"colsample_bytree": share} for share in (0.1, 0.34, 0.5, 0.84))), {"rounds": 8}
    ),
    "colsample_bylevel": (
        check_level_columns,
        [*({"colsample_bylevel": share} for share in (0.1, 0.34, 0.5)), {"colsample_bylevel": 0.5, "colsample_bytree": 0.7}],
        {"rounds": 8},
    ),
    "colsample_bynode": (
        check_node_columns,
        both(*({"colsample_bynode": share, "max_depth": 5, **SLOW} for share in (0.17, 0.5, 0.7))),
        {"rounds": 200},
    ),
    "feature_weights": (
        check_feature_weights,
        [{name: 0.1, "feature_weights": w, "max_depth": 1, **SLOW} for w in ((1, 2, 3, 0, 4, 0.5), (0, 0, 1e-3, 0, 1e-3, 0))
         for name in ("colsample_bytree", "colsample_bylevel", "colsample_bynode")],
        {"rounds": 300},
    ),
    "monotone_constraints": (
        check_monotone, both(*({"monotone_constraints": signs, **more} for signs in SIGNS for more in ({}, {"max_depth": 3}))), {}
    ),
    "interaction_constraints": (check_interactions, both(*({"interaction_constraints": sets} for sets in SETS)), {"rounds": 10}),
    "seed": (
        check_seed,
        [{"seed": 0, "base_score": 0, "max_depth": 4, **draw} for draw in (
            {}, {"sampling_method": "gradient_based"}, {"feature_weights": (1, 2, 3, 4, 5, 6)}, {"subsample": 0.5},
            {"subsample": 0.5, "sampling_method": "gradient_based"}, {"colsample_bytree": 0.5}, {"colsample_bylevel": 0.5},
            {"colsample_bynode": 0.5})],
        {"rounds": 1},
    ),
    "multi_strategy": (
        check_outputs, [{"multi_strategy": name} for name in ("one_output_per_tree", "multi_output_tree")], {}
    ),
    "output_sketch": (check_outputs, [{"output_sketch": "top_outputs:2", "multi_strategy": "multi_output_tree"}], {}),
}  # fmt: skip


@pytest.mark.parametrize("name, setting", [(name, s) for name, (_, settings, _) in TABLE.items() for s in settings], ids=str)
def test_trees_keep_what_the_parameter_promises(name, setting):
    check, _, size = TABLE[name]
    assert name in setting
    check(grow(setting, **size))


ELSEWHERE = {
    "num_parallel_tree",  # test_forests.py
    # of categories: test_category_sets.py, kernels/test_category_splits.py, and reference.py
    *("cat_encoding", "max_cat_to_onehot", "max_cat_threshold", "cat_smooth", "cat_l2", "min_data_per_group", "cat_noise"),
}


def test_the_table_has_every_parameter_that_shapes_trees():
    built = {f.name for f in fields(TreeParams)}
    assert set(TABLE) == built - ELSEWHERE | {"base_score", "scale_pos_weight", "seed"}


@pytest.mark.parametrize("more", [
    {}, {"reg_alpha": 2, "max_delta_step": 1e-3}, {"gamma": 1e-3}, {"colsample_bynode": 0.5}, {"colsample_bytree": 0.5},
    {"grow_policy": "lossguide", "max_leaves": 5}, {"monotone_constraints": SIGNS[0]}, {"tree_method": "exact"},
], ids=str)  # fmt: skip
@pytest.mark.parametrize("share", [0.05, 0.35, 0.5, 0.95])
def test_covers_name_the_rows_drawn_and_leaves_are_theirs(share, more):
    """Row i has the hessian 2^i, so that a cover, exact in float32's 24 bits, says which of 20 rows a node holds."""
    X, y = (values[:20] for values in make(REGRESSION["objective"]))
    g, h = 1000.0 * y, 2.0 ** np.arange(20)
    params = {"subsample": share, "learning_rate": 1, "min_child_weight": 0, "reg_lambda": 1, **more}
    booster = gb.train(params, gb.DMatrix(X, y), 6, obj=lambda *_: (g, h), verbose_eval=False)
    grown, seen = Grown(params, booster, X, y), set()
    for t, tree in enumerate(booster.model.trees):
        held = (tree.cover.astype(np.int64)[:, None] >> np.arange(20) & 1).astype(bool)  # (n_nodes, n_rows)
        assert held[0].sum() == n_drawn(share, 20)
        assert (held == (grown.rows(t) & held[0])).all()  # nodes hold those drawn of the rows that prediction leads there
        w = -soft_threshold(held @ g, grown.reg_alpha) / (held @ h + 1)
        if not grown.monotone_constraints:
            step = grown.max_delta_step or np.inf
            assert tree.weight == pytest.approx(np.clip(w, -step, step), rel=CUT)
        seen.add(held[0].tobytes())
    assert len(seen) > 4  # another draw every round
    assert share < 0.1 or max(tree.n_leaves for tree in booster.model.trees) > 1


# ---- who refuses


@pytest.mark.parametrize("name, value", [
    ("subsample", "1.5"), ("colsample_by_tree", "0.5"), ("sampling_method", "gradient"), ("max_depth", "six"), ("lambda", "-1"),
    ("booster", "gbforest"), ("rate_drop", "2"), ("feature_weights", "[1, 2]"), ("monotone_constraints", "(0,0,0,0,0,0,1)"),
    ("interaction_constraints", "[[0, 6]]"), ("eval_metric", "rmsee"), ("base_score", "7"),
])  # fmt: skip
def test_every_entrance_refuses_in_the_same_words(name, value, tmp_path, capsys):
    """Values as text, which all of them take."""
    X, y = make(LOGISTIC["objective"], 50)
    dtrain, params = gb.DMatrix(X, y), {**LOGISTIC, name: value}
    table, model = tmp_path / "t.csv", tmp_path / "m.json"
    np.savetxt(table, np.column_stack([X, y]), delimiter=",", header="f0,f1,f2,f3,f4,f5,y", comments="")

    def update():
        booster = gb.Booster(LOGISTIC)
        booster.set_param(name, value)
        booster.update(dtrain)
        booster.eval(dtrain)

    told = []
    for call in (
        lambda: gb.train(params, dtrain, 1, evals=[(dtrain, "train")]),
        lambda: gb.cv(params, dtrain, 1, nfold=2),
        update,
        lambda: gb.GPUBoostClassifier(n_estimators=1, **{name: value}).fit(X, y, eval_set=[(X, y)]),
        lambda: gb.GPUBoostClassifier(n_estimators=1).set_params(**{name: value}).fit(X, y, eval_set=[(X, y)]),
    ):
        with pytest.raises((ValueError, NotImplementedError)) as error:
            call()
        told.append(str(error.value))
    assert main(["train", str(table), "--label", "y", "--model", str(model), "-p", f"{name}={value}"]) > 0
    told.append(capsys.readouterr().err.rpartition("error: ")[2].strip())
    assert len(set(told)) == 1, told
