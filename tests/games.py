"""What SHAP values are, by their definition: the game of a model and a row, played with every set of features."""

from dataclasses import replace
from itertools import combinations
from math import factorial

import numpy as np
from random_models import random_table, random_tree

from gpuboost.model.model import Model


def with_covers(rng, tree, least=0.0):
    """The tree with covers as rows would give them: a random share goes left. least : of the shares that may be 0."""
    cover = np.zeros(tree.n_nodes)
    cover[0] = 100
    for node in np.flatnonzero(tree.left_child >= 0):  # parents come first
        share = rng.choice([least, rng.random(), 1 - least]) if rng.random() < 0.2 else rng.random()
        left = tree.left_child[node]
        cover[left], cover[left + 1] = share * cover[node], (1 - share) * cover[node]
    return replace(tree, cover=cover.astype(np.float32))


def random_explained(seed, n_features=5, n_trees=3, n_leaves=9, n_outputs=1, leaf_size=1, has_sets=False, is_dart=False):
    """(a model of random trees with covers, rows around its thresholds and categories)."""
    rng = np.random.default_rng(seed)
    model = Model(n_features, "reg:squarederror", base_score=(0.25,), n_targets=n_outputs)
    weights = [] if is_dart else None
    if is_dart:
        model.tree_weights = []
    for _ in range(n_trees):
        groups = list(range(0, n_outputs, leaf_size))
        trees = [with_covers(rng, random_tree(rng, n_features, int(rng.integers(1, n_leaves + 1)), has_sets)) for _ in groups]
        if leaf_size > 1:
            trees = [replace(t, leaf_value=rng.normal(size=(t.n_nodes, leaf_size)).astype(np.float32)) for t in trees]
        if is_dart:
            weights = rng.random(len(model.trees) + len(groups)).astype(np.float32).tolist()
        model.add_round(trees, groups, weights)
    X = random_table(seed + 1, 6, n_features)
    X[:, 0] = np.where(np.isnan(X[:, 0]), np.nan, rng.integers(0, 40, 6)) if has_sets else X[:, 0]
    return model, X


def goes_left(tree, sets, node, x):
    if np.isnan(x):
        return bool(tree.default_left[node])
    if node in sets:
        return x < 0 or int(x) not in sets[node]
    return x < tree.threshold[node]


def tree_mean(tree, row, known, node=0):
    """float64 (leaf_size,): the tree's value where only these features of the row are known, others follow the covers."""
    sets = {} if tree.sets is None else {n: set(c.tolist()) for n, c in tree.sets.items()}
    left = tree.left_child[node]
    if left < 0:
        return np.atleast_1d(tree.leaf_value[node].astype(np.float64))
    if tree.feature[node] in known:
        return tree_mean(tree, row, known, left + (not goes_left(tree, sets, node, row[tree.feature[node]])))
    shares = [float(tree.cover[child]) / float(tree.cover[node]) if tree.cover[node] > 0 else 0.5 for child in (left, left + 1)]
    return sum(share * tree_mean(tree, row, known, child) for share, child in zip(shares, (left, left + 1)))


def game(model, row, mean=tree_mean):
    """{features known: float64 (n_outputs,)} of all sets. mean : (tree, row, known) → what the tree is worth."""
    values = {}
    for size in range(model.n_features + 1):
        for known in combinations(range(model.n_features), size):
            total = np.zeros(model.n_outputs)
            for tree, group in zip(model.weighed_trees, model.tree_groups):
                part = mean(tree, row, known)
                total[group : group + len(part)] += part
            values[known] = total
    return values


def shapley_values(values, n):
    """float64 (n_outputs, n + 1): Shapley's values of a game, and what it is worth without any feature."""
    out = np.zeros((len(values[()]), n + 1))
    out[:, n] = values[()]
    for i in range(n):
        for known, value in values.items():
            if i not in known:
                share = factorial(len(known)) * factorial(n - len(known) - 1) / factorial(n)
                out[:, i] += share * (values[tuple(sorted((*known, i)))] - value)
    return out


def shapley_interactions(values, n):
    """float64 (n_outputs, n + 1, n + 1): Shapley's interaction index (Grabisch and Roubens 1999), a half on each side; what a
    feature does alone in the diagonal."""
    single = shapley_values(values, n)
    out = np.zeros((len(single), n + 1, n + 1))
    for i, j in combinations(range(n), 2):
        for known, value in values.items():
            if i not in known and j not in known:
                share = factorial(len(known)) * factorial(n - len(known) - 2) / factorial(n - 1)
                both, one, other = (values[tuple(sorted((*known, *more)))] for more in ((i, j), (i,), (j,)))
                out[:, i, j] += share * (both - one - other + value) / 2
        out[:, j, i] = out[:, i, j]
    for i in range(n):
        out[:, i, i] = single[:, i] - out[:, i].sum(axis=1)
    out[:, n, n] = single[:, n]
    return out
