"""A finished regression tree on the host: flat arrays, one entry a node."""

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any

__all__ = ["CategorySets", "DELETED", "Tree"]

DELETED = 2147483647  # in place of a deleted node's column; XGBoost's mark, together with default_left
Array = Any  # a NumPy array; model/ itself computes nothing, so it does not import NumPy


@dataclass(frozen=True, eq=False)
class CategorySets:
    """The splits of a tree that are sets of categories: rows whose category is listed go right, others left.

    nodes : int32 (k,). The nodes that have one, ascending; their thresholds mean nothing.
    bounds : int64 (k + 1,). Where each set begins in ``categories``, and the end.
    categories : int32 (n,). Codes from 0 to 2^24 − 1, ascending within a set.
    """

    nodes: Array
    bounds: Array
    categories: Array

    def __eq__(self, other: object) -> bool:
        """Equal bytes in every array."""
        return _is_same(self, other) if isinstance(other, CategorySets) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def items(self) -> Iterator[tuple[int, Array]]:
        """Each of the nodes and its set."""
        for node, begin, end in zip(self.nodes.tolist(), self.bounds[:-1].tolist(), self.bounds[1:].tolist()):
            yield node, self.categories[begin:end]


@dataclass(frozen=True, eq=False)
class Tree:
    """One tree. Node 0 is the root; a split node's right child is its left child + 1 (XGBoost's convention).

    XGBoost's pruning deletes nodes but renumbers none, and pred_leaf predicts the number of a leaf. So the nodes of a file keep
    their numbers: a deleted one stays, as a leaf of value 0 that nothing leads to. Trees grown here have none.

    left_child : int32 (n_nodes,). -1 at a leaf.
    parent : int32 (n_nodes,). -1 at the root; 0 at a deleted node.
    feature : int32 (n_nodes,). Split column; 0 at a leaf, DELETED at a deleted node.
    threshold : float32 (n_nodes,). ``x < threshold`` goes left; 0 at a leaf.
    default_left : uint8 (n_nodes,). 1 where missing values go left, and at a deleted node.
    leaf_value : float32 (n_nodes,), or (n_nodes, leaf_size) for a tree of several outputs. Leaf weight × learning_rate, added to
        the margin; 0 at a split.
    gain : float32 (n_nodes,). Loss reduction of the split without the paper's 1/2 (XGBoost's ``loss_changes``); 0 at a leaf.
    cover : float32 (n_nodes,). Sum of hessians of the node's rows and outputs: exact for each output, rounded once.
    weight : float32, shape of leaf_value. Optimal weight of the node before × learning_rate. A file's ``base_weights`` are these
        at splits and leaf_value at leaves, as XGBoost's hist and approx write them; so are the weights of a loaded tree.
    sets : of the splits by category; None where every split is a threshold.
    searched_value : float32 (n_nodes,). At leaves, what was added to the margins by which splits are searched, where that is not
        leaf_value (second_dealing.py); there they are a file's ``base_weights``. None where it is.
    """

    left_child: Array
    parent: Array
    feature: Array
    threshold: Array
    default_left: Array
    leaf_value: Array
    gain: Array
    cover: Array
    weight: Array
    sets: CategorySets | None = None
    searched_value: Array | None = None

    @property
    def n_nodes(self) -> int:
        return len(self.left_child)

    @property
    def leaf_size(self) -> int:
        """The outputs that it adds to."""
        return 1 if self.leaf_value.ndim == 1 else int(self.leaf_value.shape[1])

    @property
    def n_deleted(self) -> int:
        return int((self.feature == DELETED).sum())

    @property
    def n_leaves(self) -> int:
        return (self.n_nodes - self.n_deleted + 1) // 2

    def __eq__(self, other: object) -> bool:
        """Equal bytes in every array."""
        if not isinstance(other, Tree):
            return NotImplemented
        return self.sets == other.sets and _is_same(self, other)

    __hash__ = None  # type: ignore[assignment]


def _is_same(a: CategorySets | Tree, b: CategorySets | Tree) -> bool:
    names = [field.name for field in fields(a) if field.name != "sets"]  # which is no array
    return all(_bytes_of(getattr(a, name)) == _bytes_of(getattr(b, name)) for name in names)


def _bytes_of(array: Array | None) -> bytes:
    return b"" if array is None else array.tobytes()
