"""A tree refreshed or pruned, as XGBoost's updaters of these names do.

    refresh     G, H of every node over the rows that reach it;  cover = H;  weight = −T(G, α)/(H + λ), 0 where H is 0;
                gain of a split = score(left) + score(right) − score(node);  with refresh_leaf leaf = weight·η
    prune       from the bottom up: a split of two leaves whose gain is below gamma, or which lies at max_depth or deeper, becomes
                a leaf of the node's weight·η

η is the learning rate, of each of several trees of an output its part. Monotone constraints and sampling do not take part, and
splits stay where they are.
"""

from dataclasses import replace

import numpy as np

from gpuboost.kernels.nodes import FLOAT32_MAX
from gpuboost.kernels.scalar import node_score, node_score_at, optimal_weight
from gpuboost.model.tree import DELETED, CategorySets, Tree
from gpuboost.params import Params

__all__ = ["prune", "refresh", "sum_nodes"]


def sum_nodes(tree: Tree, leaves: np.ndarray, units: np.ndarray) -> np.ndarray:
    """int64 (n_nodes,): the sum over the rows that reach each node.

    leaves : int32 (n_rows,), where rows end. units : int64 (n_rows,)."""
    sums = np.zeros(tree.n_nodes, np.int64)
    np.add.at(sums, leaves, units)
    for node in _from_below(tree):
        sums[node] = sums[tree.left_child[node]] + sums[tree.left_child[node] + 1]
    return sums


def refresh(tree: Tree, grad: np.ndarray, hess: np.ndarray, params: Params, learning_rate: float) -> Tree:
    """The tree with other sums: weights, gains and covers anew, and leaves where params say so.

    grad, hess : float64 (n_nodes,), sums over the rows of each node."""
    weight, score = np.zeros(tree.n_nodes), np.zeros(tree.n_nodes)
    for node in np.flatnonzero(tree.feature != DELETED):
        if hess[node] > 0:
            own = grad[node], hess[node]
            weight[node] = optimal_weight(*own, params.reg_lambda, params.reg_alpha, params.max_delta_step, -np.inf, np.inf)
            if params.max_delta_step > 0:
                score[node] = node_score_at(*own, weight[node], params.reg_lambda, params.reg_alpha)
            else:
                score[node] = node_score(*own, params.reg_lambda, params.reg_alpha)
    is_split, is_there = tree.left_child >= 0, tree.feature != DELETED
    left = np.where(is_split, tree.left_child, 0)
    gain = np.where(is_split, score[left] + score[np.where(is_split, left + 1, 0)] - score, 0)
    is_leaf = is_there & ~is_split
    leaf_value = np.where(is_leaf, weight * learning_rate, 0).astype(np.float32) if params.refresh_leaf else tree.leaf_value
    weight = np.where(is_leaf, leaf_value, weight).astype(np.float32)
    gain, cover = (np.minimum(values, FLOAT32_MAX).astype(np.float32) for values in (gain, hess))  # as training has them
    return replace(tree, leaf_value=leaf_value, gain=gain, cover=cover, weight=weight, searched_value=None)


def prune(tree: Tree, params: Params, learning_rate: float) -> Tree:
    """The tree without the splits that gain less than gamma or lie too deep; the numbers of nodes stay."""
    depth = np.zeros(tree.n_nodes, np.int64)
    for node in _from_below(tree)[::-1]:
        depth[tree.left_child[node] : tree.left_child[node] + 2] = depth[node] + 1
    left_child, feature = tree.left_child.copy(), tree.feature.copy()
    is_deleted, cut = np.zeros(tree.n_nodes, bool), np.zeros(tree.n_nodes, bool)
    for node in _from_below(tree):
        left, is_deep = left_child[node], 0 < params.max_depth <= depth[node]
        if left_child[left] < 0 and left_child[left + 1] < 0 and (tree.gain[node] < params.gamma or is_deep):
            is_deleted[left : left + 2], cut[node], left_child[node], feature[node] = True, True, -1, 0
    feature[is_deleted] = DELETED

    def at(nodes: np.ndarray, array: np.ndarray, value: float | np.ndarray) -> np.ndarray:
        return np.where(nodes, value, array).astype(array.dtype)

    leaf_value = at(is_deleted, at(cut, tree.leaf_value, tree.weight * np.float32(learning_rate)), 0)
    return Tree(
        left_child=left_child,
        parent=at(is_deleted, tree.parent, 0),
        feature=feature,
        threshold=at(cut, tree.threshold, 0),
        default_left=at(is_deleted, at(cut, tree.default_left, 0), 1),
        leaf_value=leaf_value,
        gain=at(cut, tree.gain, 0),
        cover=at(is_deleted, tree.cover, 0),
        weight=at(left_child < 0, tree.weight, leaf_value),
        sets=None if tree.sets is None else _sets_of(tree.sets, ~cut),
    )


def _sets_of(sets: CategorySets, is_kept: np.ndarray) -> CategorySets | None:
    """Those of the nodes that are kept."""
    kept = [(node, own) for node, own in sets.items() if is_kept[node]]
    if not kept:
        return None
    bounds = np.cumsum([0, *(len(own) for _, own in kept)])
    nodes = np.array([node for node, _ in kept], sets.nodes.dtype)
    return CategorySets(nodes, bounds.astype(sets.bounds.dtype), np.concatenate([own for _, own in kept]))


def _from_below(tree: Tree) -> list[int]:
    """The splits of a tree, each after those below it; where XGBoost has reused numbers of nodes, they do not tell the order."""
    order, left = [], tree.left_child.tolist()
    waiting = [0]
    while waiting:
        node = waiting.pop()
        if left[node] >= 0:
            order.append(node)
            waiting += [left[node], left[node] + 1]
    return order[::-1]
