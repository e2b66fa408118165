"""Leaf values by target statistics of other folds than those by which splits are searched.

A split by a statistic is chosen for what it gains, some of which is the noise of how rows were dealt to folds. Values of leaves
from the same statistics would hold that noise, too, round after round. So the rows are dealt a second time, walk down the
trees just grown by statistics of those folds, and with the gradients at margins of their own weigh the leaves:

    w = −T(G, α)/(H + λ),  G, H over all rows that reach a leaf; 0 where none does

Each dealing has margins of its own: splits are searched at those to which the values are added that the first one gives the
leaves, and a file has these where nobody reads them (model/tree.py), so that a training can go on from it. (CatBoost keeps
several permutations of the rows to this end, one of which weighs the leaves that it predicts by.)

On the host, whichever the backend: gradients, and sums of integers over all workers.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from gpuboost.backend import Backend
from gpuboost.backend.contract import FlatTrees
from gpuboost.backend.fixed_point import exact_scale
from gpuboost.backend.row_sums import RowSums
from gpuboost.binned.matrix import BinnedMatrix
from gpuboost.communicator import Communicator
from gpuboost.host_gradients import HostGradients
from gpuboost.kernels.scalar import optimal_weight
from gpuboost.model.tree import Tree
from gpuboost.params import Params

__all__ = ["SecondDealing"]


class SecondDealing:
    """binned : the codes of all rows, without records, in the backend's memory. label : float32 (n_targets, n_rows). weight :
    float32 (n_rows,), or empty. margin : float32 (n_outputs, n_rows), INOUT. All but the codes in host memory.

    global_rows : of positive weight, of all workers. n_columns : of the table, before those of statistics. is_apart : whether a
    tree of the model that the margins are of splits by statistics: until one does, both dealings have the same leaves, and these
    keep their values.
    """

    def __init__(
        self, binned: BinnedMatrix, label: np.ndarray, weight: np.ndarray, margin: np.ndarray, global_rows: int,
        gradients: HostGradients, params: Params, backend: Backend, comm: Communicator, n_columns: int, is_apart: bool,
    ) -> None:  # fmt: skip
        self._binned, self.margin, self._global_rows = binned, margin, global_rows
        self._rows = RowSums(backend, comm, margin, label, weight)
        self._gradients, self._params, self._backend, self._comm = gradients, params, backend, comm
        self._scratch = backend.memory.zeros(margin.shape, np.float32)
        self._units: np.ndarray | None = None
        self._n_columns, self._is_apart = n_columns, is_apart

    def start_round(self, n_rounds: int, weighs: bool) -> None:
        """Take the gradients at the margins as they are now. weighs : False where leaves are to stay as they are."""
        self._units = None
        if weighs:
            *pair, largest = self._gradients.compute(self._rows, n_rounds, None)
            self._scales = np.array([[exact_scale(own, self._global_rows) for own in values] for values in largest.T])
            self._units = np.floor(np.stack(pair) * self._scales[:, :, None] + 0.5)

    def weigh(self, trees: list[Tree], outputs: Sequence[int], learning_rate: float) -> tuple[list[Tree], FlatTrees]:
        """The trees with values of these rows, which are added to their margins; and the same as the backend lays them out for
        codes. outputs : that each adds to. Trees of one output."""
        flatten, cuts, memory = self._backend.predictor.flatten, self._binned.cuts, self._backend.memory
        leaves = memory.zeros((self.margin.shape[1], len(trees)), np.int32)
        self._backend.predictor.predict_codes(self._binned, flatten(trees, list(outputs), cuts), self._scratch, leaves)
        own_leaves = np.ascontiguousarray(memory.fetch(leaves).T)
        weighed = []
        for tree, output, own in zip(trees, outputs, own_leaves):
            self._is_apart |= bool((tree.feature >= self._n_columns).any())
            if self._units is not None and self._is_apart:
                sums = np.stack([np.bincount(own, units[output], tree.n_nodes) for units in self._units]).astype(np.int64)
                self._comm.allreduce_sum(sums)
                grad, hess = sums / self._scales[:, output, None]
                tree = _with_values(tree, grad, hess, self._params, learning_rate)
            self.margin[output] += tree.leaf_value[own]
            weighed.append(tree)
        return weighed, flatten(weighed, list(outputs), cuts)


def _with_values(tree: Tree, grad: np.ndarray, hess: np.ndarray, params: Params, learning_rate: float) -> Tree:
    """The tree with other values of leaves. grad, hess : float64 (n_nodes,), sums over the rows that end in each."""
    leaf_value, bounds = np.zeros_like(tree.leaf_value), (params.reg_lambda, params.reg_alpha, params.max_delta_step)
    for leaf in np.flatnonzero(tree.left_child < 0).tolist():
        weight = optimal_weight(float(grad[leaf]), float(hess[leaf]), *bounds, -np.inf, np.inf)
        leaf_value[leaf] = np.float32(weight * learning_rate)
    is_same = leaf_value.tobytes() == tree.leaf_value.tobytes()
    return tree if is_same else replace(tree, leaf_value=leaf_value, searched_value=tree.leaf_value)
