"""Between the growing table of nodes, finished trees, and the flat layout that prediction walks. Host arrays, copies only."""

import numpy as np

from gpuboost.kernels.nodes import collect_tree, number_kept
from gpuboost.kernels.records import FLAT_NODE
from gpuboost.model.tree import Tree

__all__ = ["collect_trees", "flatten_grown", "flatten_trees"]

# of the fields of Tree
TREE_DTYPES = [np.int32, np.int32, np.int32, np.float32, np.uint8, np.float32, np.float32, np.float32, np.float32]


def collect_trees(nodes, leaves, weights, covers, cuts, n_trees: int) -> list[Tree]:
    """The trees that pruning left, renumbered without gaps.

    nodes : records.NODE (n_nodes,). leaves, weights : float32 (n_nodes, n_outputs). covers : float64 (n_nodes,).
    """
    new_ids, n_kept = np.empty(len(nodes), np.int32), np.zeros(n_trees, np.int32)
    number_kept(len(nodes), nodes, new_ids, n_kept)
    trees = []
    for tree, n in enumerate(n_kept):
        columns = [np.empty(n, dtype) for dtype in TREE_DTYPES]
        collect_tree(tree, nodes, new_ids, leaves, weights, covers, cuts.thresholds, cuts.offsets, *columns)
        trees.append(Tree(*columns))
    return trees


def flatten_grown(nodes, leaves, cuts) -> np.ndarray:
    """Trees that have just been grown, as kernels/predict.py walks them: FLAT_NODE (n_nodes,). A tree begins at its root's
    number; nodes that were pruned are there, too, and never met."""
    flat, is_split = np.zeros(len(nodes), FLAT_NODE), nodes["left"] >= 0
    threshold = cuts.thresholds[np.where(is_split, cuts.offsets[nodes["feature"]] + nodes["bin"], 0)]
    flat["threshold"] = np.where(is_split, threshold, leaves[:, 0])
    for field, value in {"bin": nodes["bin"], "feature": nodes["feature"], "left": nodes["left"] - nodes["tree"]}.items():
        flat[field] = np.where(is_split, value, -1)
    flat["default_left"] = np.where(is_split, nodes["default_left"], 0)
    return flat


def flatten_trees(trees: list[Tree], groups: list[int], cuts=None):
    """(FLAT_NODE (n_nodes,), int64 first node of each tree, int32 group of each tree), as kernels/predict.py reads them.

    With ``cuts`` every threshold is also given as a bin. Raises ValueError where a threshold is not one of the cuts: the codes
    then cannot tell which side a row belongs on.
    """
    sizes = [tree.n_nodes for tree in trees]
    begin = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    flat = np.zeros(int(begin[-1]), FLAT_NODE)
    for tree, first in zip(trees, begin):
        part = flat[first : first + tree.n_nodes]
        is_split = tree.left_child >= 0
        part["threshold"] = np.where(is_split, tree.threshold, tree.leaf_value)
        part["feature"] = np.where(is_split, tree.feature, -1)
        part["left"] = tree.left_child
        part["default_left"] = tree.default_left
        part["bin"] = -1
    if cuts is not None:
        splits = np.flatnonzero(flat["feature"] >= 0)
        for feature in np.unique(flat["feature"][splits]):
            own = splits[flat["feature"][splits] == feature]
            thresholds = cuts.of(feature)
            bins = np.searchsorted(thresholds, flat["threshold"][own])
            if (thresholds[np.minimum(bins, len(thresholds) - 1)] != flat["threshold"][own]).any():
                raise ValueError(
                    f"column {feature}: a threshold of the model is not a cut of this binned matrix, so its codes cannot be "
                    "predicted. Predict from the original table, or build the QuantileDMatrix with ref= the training matrix."
                )
            flat["bin"][own] = bins
    return flat, begin[:-1], np.array(groups, np.int32)
