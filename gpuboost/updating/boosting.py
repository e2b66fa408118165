"""The rounds of process_type="update": gradients at the margins of those updated so far, and the next round's trees anew.

Sums over rows are sums of integers (backend/fixed_point.py), over all workers, so that neither threads nor workers change them.
"""

from collections.abc import Callable
from dataclasses import replace
from weakref import WeakKeyDictionary

import numpy as np

from gpuboost.backend import Backend
from gpuboost.backend.fixed_point import sum_scale
from gpuboost.backend.query_rows import QueryRows
from gpuboost.backend.row_sums import RowSums
from gpuboost.communicator import Communicator
from gpuboost.custom_objective import GivenGradients
from gpuboost.data.dmatrix import DMatrix
from gpuboost.errors import not_built
from gpuboost.host_gradients import HostGradients
from gpuboost.margins import add_model_margin, start_margin
from gpuboost.model.model import Model
from gpuboost.model.tree import Tree
from gpuboost.objectives import Objective
from gpuboost.params import Params
from gpuboost.targets import check_count, check_labels
from gpuboost.under_way import UnderWay
from gpuboost.updating.trees import prune, refresh, sum_nodes

__all__ = ["Updating"]


class Updating(UnderWay):
    """What Boosting is for new trees (running.py). old : the model whose rounds are updated. model : those that have been, none
    at first."""

    table, table_text = None, "no new trees"

    def __init__(
        self, old: Model, model: Model | None, dtrain: DMatrix, params: Params, objective: Objective, backend: Backend,
        comm: Communicator,
    ) -> None:  # fmt: skip
        if old.tree_weights is not None or any(tree.leaf_size > 1 for tree in old.trees):
            raise ValueError(
                "process_type='update' is for trees of one output, and without dropout, whose weights belong to the rounds as "
                "they were trained. Leave it out."
            )
        check_count(comm.allgather_int(dtrain.num_row()))
        check_labels(dtrain, objective, old.n_targets)
        self.old, self.model = old, old.rounds(0, 0) if model is None else model
        super().__init__(dtrain)
        self.params = params
        self._objective, self._backend, self._comm = objective, backend, comm
        self._gradients = HostGradients(objective, dtrain, params.verbosity, backend.n_threads)
        self._margins: WeakKeyDictionary[DMatrix, tuple[int, np.ndarray]] = WeakKeyDictionary()  # of a version of the matrix

    def boost(self, obj: GivenGradients | None = None) -> None:
        """Update the next round. obj : a user's objective, instead of the model's own.

        Raises ValueError where all rounds have been updated."""
        number = self.model.n_rounds
        if number == self.old.n_rounds:
            raise ValueError(
                f"num_boost_round must be at most the {number} rounds of the model with process_type='update', which adds none. "
                "Leave process_type out to go on with new trees."
            )
        part = self.old.rounds(number, number + 1)
        rate = self.params.learning_rate / part.num_parallel_tree
        for updater in (self.params.updater or "").split(","):
            is_refresh = updater == "refresh"
            trees = self._refreshed(part, rate, obj) if is_refresh else [prune(tree, self.params, rate) for tree in part.trees]
            part = replace(part, trees=trees)
        self.model.add_round(part.trees, part.tree_groups)
        if carried := self._objective.carried():
            self.model.objective_params = {**self.model.objective_params, **carried}
        for dmatrix, (_, margin) in self._margins.items():
            add_model_margin(part, dmatrix, self._backend, margin)

    def _refreshed(self, part: Model, learning_rate: float, obj: GivenGradients | None) -> list[Tree]:
        """The trees of a round, refreshed."""
        if obj is None and self.params.refresh_leaf and self._objective.leaf_alphas(self.old.n_outputs):
            name = f"Refreshing the leaves of {self._objective.name}, which are quantiles of residuals,"
            raise not_built(name, "Use refresh_leaf=False, or train anew.")
        rows, n_trees = self.margins_of(self.dtrain, lambda: self.model), len(part.trees)
        *pair, largest = self._gradients.compute(rows, self.model.n_rounds, obj)
        leaves = np.zeros((self.dtrain.num_row(), n_trees), np.int32)
        add_model_margin(part, self.dtrain, self._backend, np.zeros_like(rows.prediction), leaves)
        n_rows = sum(self._comm.allgather_int(len(leaves)))
        scales = [[sum_scale(own, n_rows) for own in values] for values in largest.T.tolist()]
        trees = []
        for tree, output, own in zip(part.trees, part.tree_groups, leaves.T):
            scaled = [values[output].astype(np.float64) * scale[output] for values, scale in zip(pair, scales)]
            units = [np.floor(values + 0.5).astype(np.int64) for values in scaled]
            sums = np.stack([sum_nodes(tree, own, of_rows) for of_rows in units])
            self._comm.allreduce_sum(sums)
            grad, hess = (of_nodes / scale[output] for of_nodes, scale in zip(sums, scales))
            trees.append(refresh(tree, grad, hess, self.params, learning_rate))
        return trees

    def collect_rounds(self) -> None:
        """The model has them already."""

    def margins_of(self, dmatrix: DMatrix, get_model: Callable[[], Model]) -> RowSums:
        """The rows of a matrix, with their current margins for prediction."""
        known, model = self._margins.get(dmatrix), self.model
        if known is None or known[0] != dmatrix.version:
            check_labels(dmatrix, self._objective, model.n_targets)
            margin = start_margin(dmatrix, dmatrix.num_row(), model.base_score, self._objective, model.n_outputs)
            add_model_margin(model, dmatrix, self._backend, margin)
            self._margins[dmatrix] = known = dmatrix.version, margin
        labels = dmatrix.labels_for(self._objective.label_rows)
        queries = QueryRows(self._backend, dmatrix.queries, labels[0])
        return RowSums(self._backend, self._comm, known[1], labels, dmatrix.weights, dmatrix.masks_labels, queries)
