"""A linear model in training (booster="gblinear"): rounds of coordinate descent (descent.py) over a table's columns, on the CPU.

A round replaces the model's weights. So margins are made anew from them, of every matrix that is asked for: those of the training
rows are the ones that predict gives, and a training goes on from a file as if it had never stopped.
"""

from collections.abc import Callable
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np

from gpuboost.backend import Backend
from gpuboost.backend.query_rows import QueryRows
from gpuboost.backend.row_sums import RowSums
from gpuboost.communicator import Communicator
from gpuboost.custom_objective import GivenGradients
from gpuboost.data.column_lists import ColumnLists, list_columns
from gpuboost.data.dmatrix import DMatrix
from gpuboost.host_gradients import HostGradients
from gpuboost.linear.descent import Descent
from gpuboost.margins import add_columns, start_margin, values_of
from gpuboost.model.model import Model
from gpuboost.objectives import Objective
from gpuboost.params import Params
from gpuboost.targets import check_labels
from gpuboost.under_way import UnderWay

__all__ = ["LinearBoosting"]

VALUES_PER_THREAD = 200_000  # below, what threads wait for each other is more than they gain


@dataclass(frozen=True)
class _Rows:
    """A matrix as it was in that version: its columns, where its margins start, its targets as the objective takes them."""

    version: int
    columns: ColumnLists
    start: np.ndarray
    label: np.ndarray
    weight: np.ndarray
    queries: QueryRows


class LinearBoosting(UnderWay):
    """What Boosting is for trees (running.py). The model gets a round when that is whole."""

    table = None  # values are read, no codes

    def __init__(
        self, model: Model, dtrain: DMatrix, params: Params, objective: Objective, backend: Backend, comm: Communicator
    ) -> None:
        super().__init__(dtrain)
        self.model, self.params = model, params
        self._objective, self._backend, self._comm = objective, backend, comm
        self._watched: WeakKeyDictionary[DMatrix, _Rows] = WeakKeyDictionary()
        self._own = own = self._rows(dtrain)
        self._n_threads = max(1, min(backend.n_threads, len(own.columns.rows) // VALUES_PER_THREAD))
        self._margin = self._margin_of(own)
        self._gradients = HostGradients(objective, dtrain, params.verbosity, self._n_threads)
        sums = RowSums(backend, comm, self._margin, own.label, own.weight)
        self._descent = Descent(own.columns, sums.total_weight, comm, self._n_threads)

    @property
    def table_text(self) -> str:
        """The size of the table as training reads it, for messages."""
        return f"{len(self._own.columns.rows)} values"

    def boost(self, obj: GivenGradients | None = None) -> None:
        """One round. obj : a user's objective, instead of the model's own."""
        model = self.model
        assert model.linear is not None
        rows, weights = self._sums(self.dtrain, self._own, self._margin), model.linear.weights.T.copy()
        grad, hess, largest = self._gradients.compute(rows, model.n_rounds, obj)
        for output in range(model.n_outputs):
            self._descent.fit(self.params, model.n_rounds, output, grad[output], hess[output], largest[output], weights[output])
        if not np.isfinite(weights).all():
            raise FloatingPointError(
                f"a weight of round {model.n_rounds} is beyond float32. Use a smaller learning_rate, or scale the columns down."
            )
        model.linear = model.linear.after(np.ascontiguousarray(weights.T))
        if carried := self._objective.carried():
            model.objective_params = {**model.objective_params, **carried}
        self._margin = self._margin_of(self._own)

    def collect_rounds(self) -> None:
        """The model has them already."""

    def margins_of(self, dmatrix: DMatrix, get_model: Callable[[], Model]) -> RowSums:
        """The rows of a matrix, with their current margins for prediction."""
        if self.trains_on(dmatrix):
            rows, margin = self._own, self._margin
        else:
            known = self._watched.get(dmatrix)
            if known is None or known.version != dmatrix.version:
                self._watched[dmatrix] = known = self._rows(dmatrix)
            rows, margin = known, self._margin_of(known)
        return self._sums(dmatrix, rows, margin)

    def _sums(self, dmatrix: DMatrix, rows: _Rows, margin: np.ndarray) -> RowSums:
        return RowSums(self._backend, self._comm, margin, rows.label, rows.weight, dmatrix.masks_labels, rows.queries)

    def _rows(self, dmatrix: DMatrix) -> _Rows:
        model = self.model
        check_labels(dmatrix, self._objective, model.n_targets)
        base = self._objective.base_margin(np.array(model.base_score, np.float32))
        start = start_margin(dmatrix, dmatrix.num_row(), base[:1], None, model.n_outputs)  # the rest is in the biases
        labels = dmatrix.labels_for(self._objective.label_rows)
        queries = QueryRows(self._backend, dmatrix.queries, labels[0])
        return _Rows(dmatrix.version, list_columns(values_of(model, dmatrix)), start, labels, dmatrix.weights, queries)

    def _margin_of(self, rows: _Rows) -> np.ndarray:
        """float32 (n_outputs, n_rows)."""
        assert self.model.linear is not None
        margin = rows.start.copy()
        add_columns(rows.columns, self.model.linear.weights, margin, self._backend.n_threads)
        return margin
