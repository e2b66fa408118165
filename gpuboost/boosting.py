"""One boosting round after another over a training matrix, and the margins of the evaluation matrices beside it.

    gradients at the current margins → one tree per output → margins        (Chen & Guestrin 2016, §2.1–2.2)
"""

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from gpuboost.backend import Backend
from gpuboost.backend.contract import Training
from gpuboost.binned.matrix import BinnedMatrix
from gpuboost.binned.pages import SparsePage, StoredRows
from gpuboost.communicator import Communicator
from gpuboost.data.dmatrix import DMatrix, QuantileDMatrix
from gpuboost.data.ingest import ColumnSource
from gpuboost.data.training_rows import check_labels, collect_rows, custom_gradients, start_margin
from gpuboost.growing.grower import Grower
from gpuboost.growing.plan import Planner, resolve_columns
from gpuboost.growing.policy import growth_policy
from gpuboost.model.model import Model
from gpuboost.model.tree import Tree
from gpuboost.objectives import Objective
from gpuboost.params import Params

__all__ = ["Boosting", "add_model_margin"]

# Rows of a batch to predict, at least: 64 blocks for the threads to share. The trees are laid out anew for each batch.
PREDICTED_ROWS = 4096


class Boosting:
    """The state of a training: rows on the backend, and the margins of every matrix that is watched.

    model : rounds that were trained before; theirs are the margins it starts from. The caller appends the trees of each round as
        fetch_rounds hands them out: a device may still be growing them while the host goes on.
    """

    def __init__(
        self, model: Model, dtrain: DMatrix, params: Params, objective: Objective, backend: Backend, comm: Communicator
    ) -> None:
        if params.tree_method == "exact" and comm.size > 1:
            raise ValueError("tree_method='exact' needs all rows in one process. Use tree_method='hist' with several workers.")
        self.dtrain, self.backend, self.comm, self.objective = dtrain, backend, comm, objective
        weights = dtrain.get_float_info("feature_weights").tolist()
        params = resolve_columns(params, dtrain.feature_names, dtrain.num_col(), weights)
        margin = backend.memory.put(start_margin(dtrain, dtrain.num_row(), model.base_score, objective, model.n_outputs))
        _check_fine_bins(dtrain, params)
        rows = collect_rows(dtrain, margin, params.table_bins, backend, comm)
        if model.trees:
            add_model_margin(model, dtrain, backend, margin)
        self.cuts = rows.binned.cuts
        self._planner = Planner(params, self.cuts, rows.global_rows, model.n_outputs)
        self.first_outputs = self._planner.first_outputs
        self._training: Training = backend.start_training(rows, params, len(self.first_outputs))
        self._grower = Grower(self._training, comm, growth_policy(params), params.proposals)
        self._watched: dict[int, tuple[DMatrix, Any, Any]] = {}
        self._targets: dict[int, tuple[int, DMatrix, Any, Any]] = {}
        self._version = dtrain.version
        self._n_rounds = model.n_rounds
        self._finished: deque[Any] = deque()

    def trains_on(self, dtrain: DMatrix) -> bool:
        """Whether this is the training on that matrix, with the labels, weights and margins that it has now."""
        return self.dtrain is dtrain and self._version == dtrain.version

    def boost(self, learning_rate: float, obj: Any = None) -> None:
        """Grow one round and add it to all margins; one tree per output.

        obj : a user's objective (predictions, dtrain) -> (grad, hess), instead of the model's own.
        """
        training, given = self._training, None
        if obj is not None:
            given = custom_gradients(obj, self.backend.memory.fetch(training.margin), self.dtrain)
        with training.at_work():
            gradients = training.gradients
            maxima = gradients.compute(self.objective) if given is None else gradients.set(*given)
            self._grower.grow(self._planner.plan(self._n_rounds, learning_rate), maxima)
            self._finished.append(training.finish_trees())
        self._n_rounds += 1
        self._add_to_watched()

    def _add_to_watched(self) -> None:
        """Add the trees just grown to the margins of the evaluation matrices."""
        if not self._watched:
            return
        backend, flat = self.backend, self._training.trees.flat()
        for _, table, margin in self._watched.values():
            if isinstance(table, StoredRows):
                backend.predictor.predict_sparse(table, flat, margin, None)
            elif isinstance(table, BinnedMatrix):
                backend.predictor.predict_codes(table, flat, margin, None)
            else:
                predict_source(table, backend, flat, margin, None)

    def fetch_rounds(self, keep: int = 0) -> Iterator[list[Tree]]:
        """The trees of each round grown since the last call but the last ``keep`` rounds."""
        while len(self._finished) > keep:
            yield self._training.fetch_trees(self._finished.popleft())

    def targets(self, dmatrix: DMatrix, n_targets: int) -> tuple[Any, Any]:
        """Checked labels (n_targets, n_rows) and weights of a matrix in the backend's memory."""
        known = self._targets.get(id(dmatrix))
        if known is None or known[0] != dmatrix.version:
            check_labels(dmatrix, self.objective, n_targets)
            label, weight = self.backend.memory.put(dmatrix.labels), self.backend.memory.put(dmatrix.weights)
            known = self._targets[id(dmatrix)] = dmatrix.version, dmatrix, label, weight
        return known[2:]

    def margin(self, get_model: Callable[[], Model], dmatrix: DMatrix) -> Any:
        """float32 (n_outputs, n_rows): current margins of the training matrix or of a matrix that is watched from now on.

        get_model : the model with all rounds so far; called for a new matrix only.
        """
        if dmatrix is self.dtrain:
            return self._training.margin
        if id(dmatrix) not in self._watched:
            model = get_model()
            source = dmatrix.source(model.feature_names, model.categories, model.n_features, model.sparse_absent)
            table: Any = source  # as many cuts as values are not worth to be binned for the sake of predicting
            if source is not None and source.stored is not None and self.backend.takes_sparse:
                table = source.stored_rows().moved(self.backend.memory.put)
            elif source is None or not self.cuts.has_every_value:
                table = dmatrix.codes(self.cuts, source, self.backend)
            if table is None:
                if self.cuts.has_every_value:
                    raise ValueError("a QuantileDMatrix keeps no values, which tree_method='exact' evaluates. Use a DMatrix.")
                raise ValueError(
                    "an evaluation QuantileDMatrix must be built with ref= the training matrix and the max_bin that training has "
                    f"binned it for, {self.cuts.max_bin}, so that both share their cuts. Or use a DMatrix."
                )
            if isinstance(table, BinnedMatrix) and isinstance(page := table.pages[0], SparsePage):
                table = page.stored.moved(self.backend.memory.put)
            margin = start_margin(dmatrix, dmatrix.num_row(), model.base_score, self.objective, model.n_outputs)
            margin = self.backend.memory.put(margin)
            add_model_margin(model, dmatrix, self.backend, margin)
            self._watched[id(dmatrix)] = (dmatrix, table, margin)
        return self._watched[id(dmatrix)][2]


def add_model_margin(
    model: Model, dmatrix: DMatrix, backend: Backend, margin: Any, leaves: Any = None, *,
    get_flat: Callable[[Backend], Any] | None = None, by_name: bool = True,
) -> None:  # fmt: skip
    """Add all trees of a model to float32 margins (n_outputs, n_rows), and number the leaves where an array for them is given;
    both in the backend's memory.

    get_flat : the trees as Predictor.flatten lays them out for values, where somebody keeps them. by_name : False takes the
    columns in their order, whatever their names.
    Reads the table where the matrix has it, else its codes. Raises ValueError naming columns that do not match the model's.
    """
    names, categories = model.feature_names, model.categories
    if not by_name and names is not None and dmatrix.feature_names is not None and len(names) == len(dmatrix.feature_names):
        renamed = dict(zip(names, dmatrix.feature_names))
        names, categories = dmatrix.feature_names, {renamed[name]: values for name, values in categories.items()}
    elif not by_name and dmatrix.feature_names is None:
        names = None
    source = dmatrix.source(names, categories, model.n_features, model.sparse_absent)
    if source is not None:
        flat = get_flat(backend) if get_flat else backend.predictor.flatten(model.trees, model.tree_groups)
        predict_source(source, backend, flat, margin, leaves)
        return
    codes = dmatrix.any_binned()
    assert codes is not None
    codes = backend.memory.move_table(codes)
    flat = backend.predictor.flatten(model.trees, model.tree_groups, codes.cuts)
    backend.predictor.predict_codes(codes, flat, margin, leaves)


def predict_source(source: ColumnSource, backend: Backend, flat: Any, margin: Any, leaves: Any) -> None:
    """Add the trees' outputs for every row of a table, and number the leaves where an array for them is given."""
    if source.stored is not None and backend.predictor.takes_sparse:
        backend.predictor.predict_sparse(source.stored_rows(), flat, margin, leaves)
        return
    read = source.read_unchecked if backend.predictor.finds_large_values and source.read_unchecked else source.read
    for rows in source.batch_slices(least=PREDICTED_ROWS):
        if backend.predictor.predict_values(read(rows), source.missing, flat, rows.start, margin, leaves) is False:
            source.read(rows)  # raises where the value is not the missing one


def _check_fine_bins(dtrain: DMatrix, params: Params) -> None:
    if params.tree_method == "approx" and isinstance(dtrain, QuantileDMatrix) and dtrain.max_bin != params.table_bins:
        raise ValueError(
            f"tree_method='approx' with max_bin={params.max_bin} proposes its candidates among {params.table_bins} bins, but the "
            f"QuantileDMatrix keeps {dtrain.max_bin}. Train on a DMatrix, or build it with max_bin={params.table_bins}."
        )
