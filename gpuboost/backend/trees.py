"""Between the arrays of growing nodes, finished trees, and the flat layout that prediction walks. Host arrays, copies only."""

import numpy as np

from gpuboost.backend.contract import FlatTrees
from gpuboost.binned.cuts import Cuts
from gpuboost.kernels.nodes import collect_tree, number_kept
from gpuboost.kernels.structs import FLAT_NODE, NUMERIC
from gpuboost.model.tree import Tree

__all__ = ["collect_trees", "flatten_grown", "flatten_trees"]

# of the fields of Tree
TREE_DTYPES = [np.int32, np.int32, np.int32, np.float32, np.uint8, np.float32, np.float32, np.float32, np.float32]


def collect_trees(
    nodes: np.ndarray, leaf_values: np.ndarray, weights: np.ndarray, covers: np.ndarray, cuts: Cuts, n_trees: int
) -> list[Tree]:
    """The trees that pruning left, renumbered without gaps.

    nodes : structs.NODE (n_nodes,). leaf_values, weights : float32 (n_nodes, leaf_size). covers : float64 (n_nodes,).
    """
    new_ids, n_kept = np.empty(len(nodes), np.int32), np.zeros(n_trees, np.int32)
    number_kept(len(nodes), nodes, new_ids, n_kept)
    trees = []
    for tree, n in enumerate(n_kept):
        columns = [np.empty(n, dtype) for dtype in TREE_DTYPES]
        collect_tree(tree, nodes, new_ids, leaf_values, weights, covers, cuts.thresholds, cuts.offsets, *columns)
        trees.append(Tree(*columns))
    return trees


def flatten_grown(nodes: np.ndarray, cuts: Cuts) -> np.ndarray:
    """Trees that have just been grown, as kernels/predict.py walks them: FLAT_NODE (n_nodes,). A tree begins at its root's
    number; nodes that were pruned are there, too, and never met."""
    flat, is_split = np.zeros(len(nodes), FLAT_NODE), nodes["left"] >= 0
    bins = np.where(is_split, cuts.offsets[nodes["feature"]] + nodes["bin"], 0)
    flat["threshold"] = np.where(is_split, cuts.thresholds[bins], 0)
    for field, value in {"bin": nodes["bin"], "feature": nodes["feature"], "left": nodes["left"] - nodes["tree"]}.items():
        flat[field] = np.where(is_split, value, -1)
    flat["default_left"] = np.where(is_split, nodes["default_left"], 0)
    flat["kind"] = np.where(is_split, nodes["kind"], NUMERIC)
    return flat


def flatten_trees(trees: list[Tree], outputs: list[int], cuts: Cuts | None = None) -> FlatTrees:
    """Finished trees as kernels/predict.py reads them. outputs : the first output of each.

    With ``cuts`` every threshold is also given as a bin. Raises ValueError where a threshold is not one of the cuts: the codes
    then cannot tell which side a row belongs on.
    """
    begin = np.concatenate([[0], np.cumsum([tree.n_nodes for tree in trees])]).astype(np.int64)
    nodes, leaf_values = np.zeros(int(begin[-1]), FLAT_NODE), np.zeros((int(begin[-1]), 1), np.float32)
    for tree, first in zip(trees, begin):
        own = slice(first, first + tree.n_nodes)
        part, is_split = nodes[own], tree.left_child >= 0
        part["threshold"], leaf_values[own, 0] = tree.threshold, tree.leaf_value
        part["feature"] = np.where(is_split, tree.feature, -1)
        part["left"] = tree.left_child
        part["default_left"] = tree.default_left
        part["bin"], part["kind"] = -1, NUMERIC
    if cuts is not None:
        _find_bins(nodes, cuts)
    return FlatTrees(nodes, leaf_values, begin[:-1], np.array(outputs, np.int32))


def _find_bins(nodes: np.ndarray, cuts: Cuts) -> None:
    """The bin of every threshold."""
    splits = np.flatnonzero(nodes["feature"] >= 0)
    for feature in np.unique(nodes["feature"][splits]):
        own = splits[nodes["feature"][splits] == feature]
        thresholds = cuts.of(feature)
        bins = np.searchsorted(thresholds, nodes["threshold"][own])
        if (thresholds[np.minimum(bins, len(thresholds) - 1)] != nodes["threshold"][own]).any():
            raise ValueError(
                f"column {feature}: a threshold of the model is not a cut of this binned matrix, so its codes cannot be "
                "predicted. Predict from the original table, or build the QuantileDMatrix with ref= the training matrix."
            )
        nodes["bin"][own] = bins
