"""Seeded random models, and a prediction that follows the nodes one by one, for the tests of model_io."""

import numpy as np

from gpuboost.model.model import Model
from gpuboost.model.tree import CategorySets, Tree


def random_tree(rng: np.random.Generator, n_features: int, n_leaves: int, has_sets: bool = False) -> Tree:
    """A tree grown by splitting random leaves; all floats are arbitrary. has_sets : half of the splits are sets of categories."""
    left_child, parent = [-1], [-1]
    for _ in range(n_leaves - 1):
        node = rng.choice(np.flatnonzero(np.array(left_child) == -1))
        left_child[node] = len(left_child)
        left_child += [-1, -1]
        parent += [node, node]
    n_nodes = len(left_child)
    is_leaf = np.array(left_child) == -1

    def floats(where: np.ndarray) -> np.ndarray:
        return np.where(where, rng.normal(size=n_nodes), 0).astype(np.float32)

    leaf_value = floats(is_leaf)
    return Tree(
        left_child=np.array(left_child, np.int32),
        parent=np.array(parent, np.int32),
        feature=np.where(is_leaf, 0, rng.integers(max(n_features, 1), size=n_nodes)).astype(np.int32),
        threshold=floats(~is_leaf),
        default_left=np.where(is_leaf, 0, rng.integers(2, size=n_nodes)).astype(np.uint8),
        leaf_value=leaf_value,
        gain=np.abs(floats(~is_leaf)),
        cover=(rng.random(n_nodes) * 100).astype(np.float32),
        weight=floats(~is_leaf) + leaf_value,
        sets=random_sets(rng, np.flatnonzero(~is_leaf)) if has_sets else None,
    )


def random_sets(rng: np.random.Generator, splits: np.ndarray) -> CategorySets | None:
    """Sets of categories below 40, at half of the splits."""
    nodes = splits[rng.random(len(splits)) < 0.5].astype(np.int32)
    parts = [np.unique(rng.integers(0, 40, rng.integers(1, 6))) for _ in nodes]
    if not parts:
        return None
    return CategorySets(nodes, np.cumsum([0, *map(len, parts)]).astype(np.int64), np.concatenate(parts).astype(np.int32))


def random_model(
    seed: int, n_features: int = 4, n_rounds: int = 5, n_leaves: int = 8, objective: str = "reg:squarederror",
    has_sets: bool = False,
) -> Model:  # fmt: skip
    """A model with trees of up to n_leaves leaves; three classes for a multi: objective. has_sets : as random_tree."""
    rng = np.random.default_rng(seed)
    n_classes = 3 if objective.startswith("multi:") else 0
    params = {"softmax_multiclass_param": {"num_class": "3"}} if n_classes else {"reg_loss_param": {"scale_pos_weight": "1"}}
    base_score = tuple(np.float32(rng.normal(size=3)).tolist()) if n_classes else (0.25,)
    model = Model(n_features, objective, params, base_score=base_score, n_classes=n_classes)
    for _ in range(n_rounds):
        groups = list(range(model.n_outputs))
        model.add_round([random_tree(rng, n_features, int(rng.integers(1, n_leaves + 1)), has_sets) for _ in groups], groups)
    return model


def random_table(seed: int, n_samples: int = 50, n_features: int = 4) -> np.ndarray:
    """float32 (n_samples, n_features), a quarter missing."""
    rng = np.random.default_rng(seed)
    table = rng.normal(size=(n_samples, n_features)).astype(np.float32)
    table[rng.random(table.shape) < 0.25] = np.nan
    return table


def plain_margins(model: Model, table: np.ndarray, base_margin: np.ndarray) -> np.ndarray:
    """float32 (n_samples, n_outputs): base_margin plus one leaf of every tree, added in tree order."""
    margins = np.empty((len(table), model.n_outputs), np.float32)
    margins[:] = base_margin
    for row, margin in zip(table, margins):
        for tree, group in zip(model.weighed_trees, model.tree_groups):
            node, sets = 0, dict(tree.sets.items()) if tree.sets is not None else {}
            while tree.left_child[node] != -1:
                value = row[tree.feature[node]]
                if np.isnan(value):
                    goes_left = tree.default_left[node]
                else:
                    goes_left = value < 0 or int(value) not in sets[node] if node in sets else value < tree.threshold[node]
                node = tree.left_child[node] + (0 if goes_left else 1)
            margin[group] += tree.leaf_value[node]
    return margins
