"""The margins and labels of the matrices that a training is evaluated on, kept up round by round."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from weakref import WeakKeyDictionary

from gpuboost.backend import Backend
from gpuboost.backend.contract import Array, FlatTrees
from gpuboost.backend.query_rows import QueryRows
from gpuboost.backend.row_sums import RowSums
from gpuboost.binned.cuts import Cuts
from gpuboost.binned.matrix import BinnedMatrix
from gpuboost.binned.pages import SparsePage, StoredRows
from gpuboost.communicator import Communicator
from gpuboost.data.category_statistics import CategoryStatistics
from gpuboost.data.dmatrix import DMatrix
from gpuboost.data.tables.source import ColumnSource
from gpuboost.margins import add_model_margin, add_source_margin, start_margin
from gpuboost.model.model import Model
from gpuboost.model.tree import Tree
from gpuboost.objectives import Objective
from gpuboost.targets import check_labels
from gpuboost.training.dart import Dart, Reweighed

__all__ = ["WatchedMatrices"]

SUM = "int64"
WatchedTable = StoredRows | BinnedMatrix | ColumnSource


@dataclass(frozen=True)
class _Watched:
    """The rows of a matrix as trees are added to them, and their margins in the backend's memory, both of that version of the
    matrix's margins. reweighed : what the margins come from, of dart."""

    version: int
    table: WatchedTable
    margin: Array
    reweighed: Reweighed | None = None


@dataclass(frozen=True)
class _Targets:
    """The rows of a matrix as it was in that version, their labels checked."""

    version: int
    rows: RowSums


class WatchedMatrices:
    """Every matrix that was asked for since the training began and that somebody else holds still.

    cuts : of the training matrix. objective : of the training; it starts the margins and checks the labels. statistics : by which
    its trees grow, where they do. dart : what keeps the margins up instead of add_trees, once there is one.
    """

    dart: Dart | None = None

    def __init__(
        self, backend: Backend, cuts: Cuts, objective: Objective, statistics: CategoryStatistics | None = None
    ) -> None:
        self._backend, self._cuts, self._objective, self._statistics = backend, cuts, objective, statistics
        self._watched: WeakKeyDictionary[DMatrix, _Watched] = WeakKeyDictionary()
        self._targets: WeakKeyDictionary[DMatrix, _Targets] = WeakKeyDictionary()

    def rows_of(self, dmatrix: DMatrix, n_targets: int, margin: Array, comm: Communicator) -> RowSums:
        """The rows of a matrix with these margins for prediction, and checked labels."""
        known = self._targets.get(dmatrix)
        if known is None or known.version != dmatrix.version:
            check_labels(dmatrix, self._objective, n_targets)
            label = self._backend.memory.put(dmatrix.labels_for(self._objective.label_rows))
            weight = self._backend.memory.put(dmatrix.weights)
            queries = QueryRows(self._backend, dmatrix.queries, label[0])
            known = _Targets(
                dmatrix.version, RowSums(self._backend, comm, margin, label, weight, dmatrix.masks_labels, queries)
            )
            self._targets[dmatrix] = known
        return known.rows if known.rows.prediction is margin else replace(known.rows, prediction=margin)

    def margin(self, dmatrix: DMatrix, get_model: Callable[[], Model]) -> Array:
        """float32 (n_outputs, n_rows): current margins of a matrix, which is watched from now on.

        get_model : the model with all rounds so far; called for a matrix that is new or has changed only.
        """
        known = self._watched.get(dmatrix)
        if known is None or known.version != dmatrix.margin_version:
            model = get_model()
            table = self._table(dmatrix, model)
            given = dmatrix, dmatrix.num_row(), model.base_score, self._objective, model.n_outputs
            margin = start_margin(*given, self._backend.memory)
            if self.dart is None:
                add_model_margin(model, dmatrix, self._backend, margin)
                known = _Watched(dmatrix.margin_version, table, margin)
            else:
                rows = self.reweighed_rows(dmatrix, model, margin)
                self.dart.fill(rows)
                known = _Watched(dmatrix.margin_version, table, rows.margin, rows)
            self._watched[dmatrix] = known
        return known.margin

    def __len__(self) -> int:
        return len(self._watched)

    @property
    def reads_pages(self) -> bool:
        """Whether adding trees reads pages of some matrix from files."""
        tables = [watched.table for watched in self._watched.values()]
        return any(isinstance(table, BinnedMatrix) and not table.pages.is_resident for table in tables)

    def reweighed(self) -> list[Reweighed]:
        """What the margins of all matrices come from, of dart."""
        return [watched.reweighed for watched in self._watched.values() if watched.reweighed is not None]

    def reweighed_rows(self, dmatrix: DMatrix, model: Model, base: Array, margin: Array | None = None) -> Reweighed:
        """The rows of a matrix, without a tree yet. base : where their margins start. margin : for what comes of it."""
        backend, cuts = self._backend, self._cuts  # and not self, which holds the Dart that holds the rows
        zeros, n_rows = backend.memory.zeros, dmatrix.num_row()
        table = self._table(dmatrix, model)
        source = dmatrix.source(model.feature_names, model.categories, model.n_features, model.sparse_absent)

        def read(trees: Sequence[Tree]) -> Array:
            size, flatten = trees[0].leaf_size, backend.predictor.flatten
            leaves = zeros((len(trees) * size, n_rows), base.dtype)
            outputs = list(range(0, len(leaves), size))  # rows of leaves of its own for each
            try:
                flat, place = flatten(list(trees), outputs, cuts if isinstance(table, BinnedMatrix) else None), table
            except ValueError:  # trees of a loaded model, which codes under these cuts do not tell apart
                if source is None:
                    raise
                flat, place = flatten(list(trees), outputs), source
            _add(backend, place, flat, leaves)
            return leaves

        margin = zeros(base.shape, base.dtype) if margin is None else margin
        return Reweighed(read, base, zeros(base.shape, SUM), margin)

    def add_trees(self, get_flat: Callable[[], FlatTrees]) -> None:
        """Add trees just grown to all margins. get_flat : the trees, as the backend lays them out with the training's cuts."""
        if not self._watched:
            return
        flat = get_flat()
        for watched in self._watched.values():
            _add(self._backend, watched.table, flat, watched.margin)

    def _table(self, dmatrix: DMatrix, model: Model) -> WatchedTable:
        """The rows of a matrix in the form that is read fastest. Raises ValueError where it has none for these trees."""
        source = dmatrix.source(model.feature_names, model.categories, model.n_features, model.sparse_absent)
        is_listed = self._backend.predictor.takes_sparse and self._statistics is None
        if source is not None and source.stored is not None and is_listed:
            return source.stored_rows().moved(self._backend.memory.put)
        if source is not None and self._cuts.has_every_value:
            return source  # as many cuts as values are not worth to be binned for the sake of predicting
        codes = dmatrix.codes(self._cuts, source, self._backend)
        if codes is None:
            if self._cuts.has_every_value:
                raise ValueError("a QuantileDMatrix keeps no values, which tree_method='exact' evaluates. Use a DMatrix.")
            raise ValueError(
                "an evaluation QuantileDMatrix must be built with ref= the training matrix and the max_bin that training has "
                f"binned it for, {self._cuts.max_bin}, so that both share their cuts. Or use a DMatrix."
            )
        if self._statistics is not None:
            return self._backend.memory.move_table(self._statistics.encoded(codes, self._backend))
        if not codes.is_sparse:
            return codes
        (page,) = codes.pages
        assert isinstance(page, SparsePage)
        return page.stored.moved(self._backend.memory.put)


def _add(backend: Backend, table: WatchedTable, flat: FlatTrees, margin: Array) -> None:
    if isinstance(table, StoredRows):
        backend.predictor.predict_sparse(table, flat, margin, None)
    elif isinstance(table, BinnedMatrix):
        backend.predictor.predict_codes(table, flat, margin, None)
    else:
        add_source_margin(table, backend, flat, margin, None)
