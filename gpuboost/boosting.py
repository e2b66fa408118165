"""One boosting round after another over a training matrix, and the margins of the evaluation matrices beside it.

    gradients at the current margins → one tree per output → margins        (Chen & Guestrin 2016, §2.1–2.2)
"""

from typing import Any

from gpuboost.backend import Backend, GrowthSettings
from gpuboost.communicator import Communicator
from gpuboost.data.dmatrix import DMatrix
from gpuboost.data.training_rows import collect_rows, custom_gradients, start_margin
from gpuboost.objectives import Objective
from gpuboost.params import Params
from gpuboost.tree.grower import grow_trees
from gpuboost.tree.model import Model
from gpuboost.tree.tree import Tree

__all__ = ["Boosting", "add_model_margin"]


class Boosting:
    """The state of a training: rows on the backend, and the margins of every matrix that is watched.

    model : rounds that were trained before; theirs are the margins it starts from. The caller appends the trees of each round.
    """

    def __init__(
        self, model: Model, dtrain: DMatrix, params: Params, objective: Objective, backend: Backend, comm: Communicator
    ) -> None:
        self.dtrain, self.backend, self.comm, self.objective = dtrain, backend, comm, objective
        margin = start_margin(dtrain, dtrain.num_row(), model.base_score, objective, model.n_outputs)
        rows = collect_rows(dtrain, margin, params.max_bin, backend, comm)
        if model.trees:
            add_model_margin(model, dtrain, backend, margin)
        self.cuts = rows.binned.cuts
        self.groups = list(range(model.n_outputs))
        self._state = backend.start_training(rows, growth_settings(params), self.groups, n_outputs=1)
        self._capacity = min(comm.allgather_int(backend.histogram_capacity(self._state)))
        self._watched: dict[int, tuple[DMatrix, Any, Any]] = {}
        self._version = dtrain.version

    def trains_on(self, dtrain: DMatrix) -> bool:
        """Whether this is the training on that matrix, with the labels, weights and margins that it has now."""
        return self.dtrain is dtrain and self._version == dtrain.version

    def boost(self, round_number: int, learning_rate: float, obj: Any = None) -> list[Tree]:
        """Grow one round and add it to all margins; one tree per output.

        obj : a user's objective (predictions, dtrain) -> (grad, hess), instead of the model's own.
        """
        backend, state = self.backend, self._state
        if obj is None:
            maxima = backend.compute_gradients(state, self.objective)
        else:
            maxima = backend.set_gradients(state, *custom_gradients(obj, backend.training_margin(state), self.dtrain))
        self.comm.allreduce_max(maxima)
        trees = grow_trees(backend, self.comm, state, maxima, round_number, self._capacity, learning_rate)
        if self._watched:
            flat = backend.flatten_trees(trees, self.groups, self.cuts)
            for _, codes, margin in self._watched.values():
                backend.predict_codes(codes, flat, margin, None)
        return trees

    def margin(self, model: Model, dmatrix: DMatrix) -> Any:
        """float32 (n_outputs, n_rows): current margins of the training matrix or of a matrix that is watched from now on."""
        if dmatrix is self.dtrain:
            return self.backend.training_margin(self._state)
        if id(dmatrix) not in self._watched:
            source = dmatrix.source(model.feature_names, model.categories, model.n_features)
            codes = dmatrix.codes(self.cuts, source, self.backend)
            if codes is None:
                raise ValueError(
                    "an evaluation QuantileDMatrix must be built with ref= the training matrix, so that both share their cuts."
                )
            margin = start_margin(dmatrix, dmatrix.num_row(), model.base_score, self.objective, model.n_outputs)
            add_model_margin(model, dmatrix, self.backend, margin)
            self._watched[id(dmatrix)] = (dmatrix, codes, margin)
        return self._watched[id(dmatrix)][2]



def add_model_margin(model: Model, dmatrix: DMatrix, backend: Backend, margin: Any, leaves: Any = None) -> None:
    """Add all trees of a model to float32 margins (n_outputs, n_rows), and number the leaves where an array for them is given.

    Reads the table where the matrix has it, else its codes. Raises ValueError naming columns that do not match the model's.
    """
    source = dmatrix.source(model.feature_names, model.categories, model.n_features)
    if source is not None:
        flat = backend.flatten_trees(model.trees, model.tree_groups)
        first = 0
        for block in source.batches():
            last = first + len(block)
            own_leaves = None if leaves is None else leaves[first:last]
            backend.predict_values(block, source.missing, flat, margin[:, first:last], own_leaves)
            first = last
        return
    codes = dmatrix.any_binned()
    flat = backend.flatten_trees(model.trees, model.tree_groups, codes.cuts if codes else None)
    backend.predict_codes(codes, flat, margin, leaves)


def growth_settings(params: Params) -> GrowthSettings:
    """The part of the parameters that kernels read."""
    return GrowthSettings(**{name: getattr(params, name) for name in GrowthSettings.__dataclass_fields__})
