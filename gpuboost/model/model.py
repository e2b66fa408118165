"""A whole model: what a model file holds, and nothing else. Booster wraps it, model_io reads and writes it."""

from dataclasses import dataclass, field, replace
from typing import Any

from gpuboost.model.linear import Linear
from gpuboost.model.tree import Tree

__all__ = ["Model"]


@dataclass
class Model:
    """Trees in training order plus what is needed to turn a table into their predictions.

    trees : one Tree after another; the trees of one boosting round are adjacent.
    tree_groups : output (class) that each tree adds to, XGBoost's ``tree_info``; 0 for trees of all outputs.
    tree_weights : of dart, for each tree what its leaves count, a float32; None of gbtree, where it is 1.
    linear : of gblinear, instead of trees.
    iteration_indptr : round r holds trees[iteration_indptr[r]:iteration_indptr[r + 1]].
    base_score : one value per output, or a single value for all. As in XGBoost, what the objective's link makes of the margin: a
        probability for binary:logistic (objectives/links.py).
    objective, objective_params : registry name, and XGBoost's string parameters of it
        (``{"reg_loss_param": {"scale_pos_weight": "1"}}``), and what it carries from round to round, lists of numbers.
    n_features : columns expected at prediction.
    n_classes : 0 unless the objective is multi-class. n_targets : 1 unless the labels have several columns.
    num_parallel_tree : trees per output and round.
    feature_names, feature_types : None when the table had none. Types are XGBoost's letters: q, float, int, i, c.
    categories : column name → its category values in code order, for columns that held categories.
    attributes : free strings (best_iteration, ...); sparse_absent is "zero" where sparse tables do not store zeros.
    """

    n_features: int
    objective: str
    objective_params: dict[str, Any] = field(default_factory=dict)
    base_score: tuple[float, ...] = (0.5,)
    n_classes: int = 0
    n_targets: int = 1
    num_parallel_tree: int = 1
    trees: list[Tree] = field(default_factory=list)
    tree_groups: list[int] = field(default_factory=list)
    tree_weights: list[float] | None = None
    linear: Linear | None = None
    iteration_indptr: list[int] = field(default_factory=lambda: [0])
    feature_names: list[str] | None = None
    feature_types: list[str] | None = None
    categories: dict[str, list[Any]] = field(default_factory=dict)
    attributes: dict[str, str] = field(default_factory=dict)

    @property
    def n_outputs(self) -> int:
        """Margins per row: classes of a multi-class objective, else targets."""
        return max(self.n_classes, self.n_targets, 1)

    @property
    def multi_strategy(self) -> str | None:
        """Whether its trees are for one output each, or for all of several; None where that is the same, or not known yet."""
        if self.n_outputs == 1 or not self.trees:
            return None
        return "multi_output_tree" if self.trees[0].leaf_size > 1 else "one_output_per_tree"

    @property
    def sparse_absent(self) -> str:
        """What a sparse table does not store: "missing" or "zero"."""
        return "zero" if self.attributes.get("sparse_absent") == "zero" else "missing"

    @property
    def n_rounds(self) -> int:
        return len(self.iteration_indptr) - 1 if self.linear is None else self.linear.n_rounds

    @property
    def weighed_trees(self) -> list[Tree]:
        """The trees with leaves as they count in a prediction."""
        if self.tree_weights is None:
            return self.trees
        return [replace(tree, leaf_value=tree.leaf_value * weight) for tree, weight in zip(self.trees, self.tree_weights)]

    def add_round(self, trees: list[Tree], groups: list[int], weights: list[float] | None = None) -> None:
        """Append one boosting round: its trees and the output each adds to. weights : of all trees with them, of dart."""
        begin, n_bounds = len(self.trees), len(self.iteration_indptr)
        old_weights = [] if self.tree_weights is None else self.tree_weights
        new_weights = [] if weights is None else weights
        # One statement without a call between its stores, so that Ctrl-C finds the whole round here, or nothing of it.
        self.trees[begin:], self.tree_groups[begin:], old_weights[:], self.iteration_indptr[n_bounds:] = (
            trees, groups, new_weights, [begin + len(trees)]
        )  # fmt: skip

    def rounds(self, begin: int, end: int, step: int = 1) -> "Model":
        """The model that holds every step-th round from begin to end only; the trees are shared, not copied.

        Raises ValueError for a part of the rounds of gblinear.
        """
        if self.linear is not None:
            if len(range(begin, end, step)) == self.n_rounds:
                return replace(self, attributes=dict(self.attributes))
            raise ValueError(
                f"a model of booster='gblinear' has the weights of its last round alone, so its {self.n_rounds} rounds cannot be "
                "taken apart. Use all of them, or train that many."
            )
        bounds, places = [0], list[int]()  # of rounds, and of trees where some are left out
        own = slice(self.iteration_indptr[begin], self.iteration_indptr[max(begin, end)])
        if step == 1:
            bounds = [bound - own.start for bound in self.iteration_indptr[begin : max(begin, end) + 1]]
        else:
            for r in range(begin, end, step):
                places += range(self.iteration_indptr[r], self.iteration_indptr[r + 1])
                bounds.append(len(places))

        def part(values: list[Any]) -> list[Any]:
            return values[own] if step == 1 else [values[place] for place in places]

        return replace(
            self, trees=part(self.trees), tree_groups=part(self.tree_groups), iteration_indptr=bounds,
            tree_weights=None if self.tree_weights is None else part(self.tree_weights), attributes=dict(self.attributes),
        )  # fmt: skip
