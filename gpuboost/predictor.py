"""Prediction: some rounds of a model, laid out once for all the predictions to come."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from operator import index, is_
from typing import TYPE_CHECKING, Any, Literal
from weakref import ref

import numpy as np

import gpuboost.backend as backends
from gpuboost.arrays import usual_form
from gpuboost.backend import Backend
from gpuboost.backend.contract import Array, FlatTrees
from gpuboost.backend.trees import flatten_more
from gpuboost.binned.cuts import Cuts
from gpuboost.data.dmatrix import DMatrix
from gpuboost.data.tables.batches import default_rows, row_slices
from gpuboost.data.tables.device import current_device, put_on
from gpuboost.data.tables.indices import check_indices
from gpuboost.data.tables.sparse import is_sparse
from gpuboost.data.view import ABSENT_VALUES
from gpuboost.errors import DeviceNotFoundError
from gpuboost.kernels.few_rows import copy_row, pack_forest, predict_rows
from gpuboost.margins import VIEWED_ROWS, add_model_margin, finished_prediction, model_source, start_margin
from gpuboost.model.model import Model
from gpuboost.model.tree import Tree
from gpuboost.objectives import Objective, find_objective, objective_of, require_known
from gpuboost.params import Params

if TYPE_CHECKING:
    from gpuboost.explaining.contributions import Contributions

__all__ = ["ALL_ROUNDS", "Predicted", "Predictor", "Predictors", "prediction_backend", "round_bounds"]

Predicted = Literal["value", "margin", "leaf"]

ALL_ROUNDS = 0, 0  # as iteration_range
FLOAT32, FLOAT64 = np.dtype(np.float32), np.dtype(np.float64)
# Rows that the calling thread predicts alone: threads would share blocks of as many. 16 rows and 100 trees of depth 6 take
# 12 µs so, 56 as a block: laying out 1 to 1,000 trees for blocks pays from 64 to 130 rows on.
FEW_ROWS = 64
FEW_VALUES = 65536  # of sparse rows written out: 256 KB, in 20 µs
FEW_BYTES = 2**20
KEPT_PREDICTORS = 8  # iteration ranges whose trees stay laid out for prediction
ROWS_OF_A_LAYOUT = 1000  # that go down a tree in the time in which it is laid out


def prediction_backend(params: Params, n_values: int, table_device: int | None = None) -> Backend:
    """Where the parameters say, but the CPU where there is no GPU: a model need not stay where it was trained. n_values,
    table_device : as choose_backend."""
    if params.booster == "gblinear":
        return backends.choose_backend("cpu", params.nthread)
    try:
        return backends.choose_backend(params.device, params.nthread, n_values=n_values, table_device=table_device)
    except DeviceNotFoundError:
        return backends.choose_backend("cpu", params.nthread)


@dataclass(frozen=True)
class _Margins:
    """What a matrix was last predicted by: facts that margins depend on, and the trees. margin : theirs, float32 (n_outputs,
    n_rows), None after the first time: most matrices are predicted once."""

    facts: tuple[Any, ...]
    n_rounds: int
    trees: list[Tree]
    margin: np.ndarray | None


class _Kept(dict[int, tuple[Any, _Margins]]):
    """Of predictors of a model that grows: margins of matrices, by their identity, as long as they live (they need not be
    hashable), and the trees laid out last in the host's memory."""

    _laid_out: tuple[list[Tree], FlatTrees | None] = ([], None)

    def flat_of(self, flatten: Callable[[list[Tree], list[int]], FlatTrees], trees: list[Tree], outputs: list[int]) -> FlatTrees:
        """flatten(trees, outputs), of the new ones alone where these go on from those laid out last."""
        known, flat = self._laid_out
        if isinstance(flat, FlatTrees) and known and len(known) <= len(trees) and all(map(is_, known, trees)):
            n = len(known)
            flat = flat if n == len(trees) else flatten_more(flat, trees[n:], outputs[n:])
        else:
            flat = flatten(trees, outputs)
        self._laid_out = trees, flat
        return flat

    def of(self, data: DMatrix) -> _Margins | None:
        known = self.get(id(data))
        return known[1] if known is not None and known[0]() is data else None

    def keep(self, data: DMatrix, margins: _Margins) -> None:
        own, key = ref(self), id(data)

        def forget(_: object) -> None:
            kept = own()
            if kept is not None:
                kept.pop(key, None)

        self[key] = ref(data, forget), margins


class Predictors:
    """The ranges of a model's rounds that were predicted with; kept until the model changes. Margins of matrices are kept beside
    them, for predictions by the same rounds and more: of each round of a training, of a learning curve."""

    def __init__(self) -> None:
        self._kept: dict[tuple[int, int], Predictor] = {}
        self._kept_of_all = _Kept()

    def of(self, model: Model, iteration_range: tuple[int, int] | None) -> "Predictor":
        """Rounds [begin, end), end 0 for the last; None: all. Raises ValueError where the model does not have them."""
        bounds = round_bounds(iteration_range)
        predictor = self._kept.get(bounds)
        if predictor is None or not predictor.is_of(model):
            begin, end = bounds
            last = end or model.n_rounds
            if not 0 <= begin <= last <= model.n_rounds:
                raise ValueError(
                    f"iteration_range must lie within the model's {model.n_rounds} rounds, got {(begin, end)}. "
                    "Use None for all."
                )
            predictor = Predictor(model, begin, last, objective_of(model), self._kept_of_all)
            kept = self._kept if len(self._kept) < KEPT_PREDICTORS else {}
            self._kept = {**kept, bounds: predictor}  # anew, for threads that look at the old one
        return predictor


class Predictor:
    """Rounds [begin, end) of a model as it is now, with their trees laid out for each memory they were predicted in.

    objective : None where the model's is not known; margins can be predicted all the same. kept : of all ranges.
    """

    def __init__(self, model: Model, begin: int, end: int, objective: Objective | None, kept: _Kept) -> None:
        self.objective, self._kept, self._begins_with_first = objective, kept, begin == 0
        self.rounds = model.rounds(begin, end)  # another thread may add more while this one predicts
        self._model, self._n_rounds = model, model.n_rounds
        self._flat: dict[str, Any] = {}
        self._flat_codes: dict[str, tuple[Cuts, Any]] = {}
        self._forest: np.ndarray | None = None
        self._few: dict[bool, tuple[Any, np.ndarray, int, int]] = {}
        self._start: np.ndarray | None = None
        self._map: tuple[Any, int] | None = None
        self._contributions: Contributions | None = None
        #: Whether a table without column names needs no warning, or has had it.
        self.takes_unnamed = model.feature_names is None

    def is_of(self, model: Model) -> bool:
        """Whether this is that model as it is now: no other one, and with no round added since."""
        return self._model is model and self._n_rounds == model.n_rounds

    def predict(
        self, data: DMatrix, backend: Backend, wanted: Predicted = "value", *, by_name: bool = True, strict_shape: bool = False
    ) -> np.ndarray:
        """What Booster.predict returns for a matrix, on the device that its table lies on."""
        row_map, n_values = self._value_map() if wanted == "value" else (None, None)
        if wanted == "leaf" and self.rounds.linear is not None:
            raise ValueError("a model of booster='gblinear' has no trees, so pred_leaf has no meaning. Leave it out.")
        leaves = backend.memory.zeros((data.num_row(), len(self.rounds.trees)), np.int32) if wanted == "leaf" else None
        margin = self.margin(data, backend, leaves, by_name)
        to_user = backend.memory.fetch if data.device is None else lambda array: put_on(data.device, array)
        if leaves is not None:
            numbers, rounds = to_user(leaves.astype(np.float32)), self.rounds
            n_groups = 1 if rounds.multi_strategy == "multi_output_tree" else rounds.n_outputs
            by_round = len(leaves), rounds.n_rounds, n_groups, rounds.num_parallel_tree
            return numbers.reshape(by_round) if strict_shape else numbers
        if row_map is not None:
            margin = backend.predictor.map_rows(margin, row_map)[:n_values]
        with current_device(data.device):
            return finished_prediction(to_user(margin), strict_shape)

    def contributions(self) -> "Contributions":
        """The same rounds, laid out for explanations."""
        if self._contributions is None:
            from gpuboost.explaining.contributions import Contributions

            self._contributions = Contributions(self.rounds, self.base_margin())
        return self._contributions

    def margin(self, data: DMatrix, backend: Backend, leaves: Array | None = None, by_name: bool = True) -> Array:
        """float32 (n_outputs, n_rows): margins of a matrix, in the backend's memory. leaves : int32 (n_rows, n_trees) there, OUT:
        the leaf numbers. by_name : False takes the columns in their order, whatever their names."""
        model, is_host = self.rounds, backend.memory.name == "host"
        if is_host and leaves is None and self._begins_with_first and model.linear is None and model.tree_weights is None:
            return self._margin_by_more_rounds(data, backend, by_name)
        margin = start_margin(data, data.num_row(), self.base_margin(), None, model.n_outputs, backend.memory)
        add_model_margin(model, data, backend, margin, leaves, get_flat=self.flat, by_name=by_name)
        return margin

    def _margin_by_more_rounds(self, data: DMatrix, backend: Backend, by_name: bool) -> np.ndarray:
        """The same where rounds can go on from margins that the matrix had under fewer: trees are added one after another, in
        float32, so that it does not show."""
        model, known = self.rounds, self._kept.of(data)
        names = None if model.feature_names is None else (*model.feature_names,)
        facts = data.margin_version, by_name, self.base_margin().tobytes(), names, model.sparse_absent
        has_been = known is not None and known.facts == facts
        if known is not None and known.margin is not None and has_been and self._may_go_on(known, data.num_row()):
            if data.categories or model.categories:
                model_source(model, data, by_name)  # what it says of categories that the model does not know
            margin = known.margin.copy()
            if known.n_rounds == model.n_rounds:
                return margin
            add_model_margin(model.rounds(known.n_rounds, model.n_rounds), data, backend, margin, by_name=by_name)
        else:
            margin = start_margin(data, data.num_row(), self.base_margin(), None, model.n_outputs, backend.memory)
            add_model_margin(model, data, backend, margin, get_flat=self.flat, by_name=by_name)
        self._kept.keep(data, _Margins(facts, model.n_rounds, model.trees, margin.copy() if has_been else None))
        return margin

    def _may_go_on(self, known: _Margins, n_rows: int) -> bool:
        """Whether the trees begin with those of known margins, and it is not quicker to begin anew: the others are laid out for
        this one time, where all of them may be already."""
        trees, is_laid_out = self.rounds.trees, bool(self._flat or self._flat_codes)
        n_known, n_new = len(known.trees), len(trees) - len(known.trees)
        if n_new < 0 or (is_laid_out and n_new * ROWS_OF_A_LAYOUT > n_known * n_rows):
            return False
        return all(map(is_, known.trees, trees))

    def flat(self, backend: Backend, cuts: Cuts | None = None) -> Any:
        """The trees as Predictor.flatten of a backend lays them out in its memory: for values, or for codes by the cuts, of which
        the last ones asked for are kept."""
        memory, flatten = backend.memory.name, backend.predictor.flatten
        if cuts is None:
            if memory not in self._flat:
                layout = partial(self._kept.flat_of, flatten) if memory == "host" else flatten
                self._flat[memory] = layout(self.rounds.weighed_trees, self.rounds.tree_groups)
            return self._flat[memory]
        known = self._flat_codes.get(memory)
        if known is None or known[0] is not cuts:
            self._flat_codes[memory] = known = cuts, flatten(self.rounds.weighed_trees, self.rounds.tree_groups, cuts)
        return known[1]

    def plain_table(self, table: Any, missing: float) -> np.ndarray | None:
        """The table as predict_plain takes it: float32 or float64 on the host, in usual_form, as many columns as the model. None
        for others. SciPy's csr rows, if they are few values, are written out."""
        shape: tuple[int, ...] = getattr(table, "shape", ())
        if len(shape) != 2 or shape[1] != self.rounds.n_features or self.rounds.linear is not None:
            return None
        if type(table) is not np.ndarray:
            is_csr = missing != missing and is_sparse(table) and table.format == "csr"
            return self._write_out(table) if is_csr else None
        dtype, flags = table.dtype, table.flags
        if dtype != FLOAT32 and dtype != FLOAT64:
            return None
        if flags.carray:
            return table
        is_read = not flags.fnc or shape[0] <= FEW_ROWS or table.nbytes <= FEW_BYTES  # by columns it is copied
        return usual_form(table) if flags.aligned and is_read else None

    def _write_out(self, table: Any) -> np.ndarray | None:
        """Rows of a csr matrix without repeated cells; None where they are many values."""
        is_plain = table.data.dtype == np.float32 or table.data.dtype == np.float64
        if not is_plain or table.shape[0] * table.shape[1] > FEW_VALUES:
            return None
        check_indices(table)
        if not table.has_canonical_format:
            return None
        written = np.full(table.shape, ABSENT_VALUES[self.rounds.sparse_absent], table.data.dtype)
        begin, used = table.indptr, slice(table.indptr[-1])  # more may lie behind the last row
        written[np.repeat(np.arange(table.shape[0]), begin[1:] - begin[:-1]), table.indices[used]] = table.data[used]
        return written

    def predict_plain(
        self, table: np.ndarray, missing: float, params: Params, is_margin: bool, strict_shape: bool
    ) -> np.ndarray | None:
        """What Booster.predict returns for such a table, without a DMatrix, which takes 0.2 ms after a training, when nothing of
        Python is in a cache. None where predict is to refuse a value, naming it, or to go to a GPU."""
        if len(table) <= FEW_ROWS:
            kernel, forest, n_outputs, n_few = self._few.get(is_margin) or self._of_few_rows(is_margin)
            if n_outputs == 1 and not strict_shape:
                values = np.empty(len(table), FLOAT32)
                return values if kernel(table, missing, forest, values[None]) else None
            out = np.empty((n_outputs, len(table)), FLOAT32)
            return finished_prediction(out[:n_few], strict_shape) if kernel(table, missing, forest, out) else None
        row_map, n_values = (None, None) if is_margin else self._value_map()
        number = float(_as_float32(missing))
        backend = prediction_backend(params, table.size)
        if backend.memory.name != "host":
            return None
        margin = backend.memory.spread(self.base_margin(), len(table))
        for rows in row_slices(len(table), default_rows(table.shape[1], VIEWED_ROWS)):
            first, flat = rows.start, self.flat(backend)
            if backend.predictor.predict_values(table[rows], number, flat, first, margin, None) is False:
                return None
        if row_map is not None:
            margin = backend.predictor.map_rows(margin, row_map)[:n_values]
        return finished_prediction(margin, strict_shape)

    def _of_few_rows(self, is_margin: bool) -> tuple[Any, np.ndarray, int, int]:
        """Kernel and forest of kernels/few_rows.py, outputs, and how many of these are values."""
        base, (row_map, n_values) = self.base_margin(), (copy_row, self.rounds.n_outputs) if is_margin else self._value_map()
        if self._forest is None:
            flat = self.flat(backends.cpu_backend(1))
            forest = pack_forest(*flat, base, self.rounds.n_features)
            self._forest = forest if flat.sets is None else forest[None]
        self._few[is_margin] = found = predict_rows(row_map or copy_row), self._forest, len(base), n_values
        return found

    def _value_map(self) -> tuple[Any, int]:
        """Scalar function (margin, i, out) of kernels/reduce.py, from margins to what predict returns (None: they are the same),
        and how many rows of ``out`` that is. Raises NotImplementedError where the objective does not say.
        """
        if self._map is None:
            name = self.rounds.objective
            known = self.objective or find_objective(name)
            require_known(name)
            is_class = known.predict_map and self.rounds.n_classes
            self._map = known.predict_map or known.row_map, 1 if is_class else self.rounds.n_outputs
        return self._map

    def base_margin(self) -> np.ndarray:
        """float32 (n_outputs,): the margins of base_score, by XGBoost's link where the objective is not known."""
        if self._start is None:
            scores, known = np.full(self.rounds.n_outputs, self.rounds.base_score, np.float32), self.objective
            start = known.base_margin(scores) if known else find_objective(self.rounds.objective).link.to_margin(scores)
            self._start = start if self.rounds.linear is None else np.full_like(start, start[0])  # the rest is in the biases
        return self._start


def round_bounds(iteration_range: tuple[int, int] | None) -> tuple[int, int]:
    """Begin and end, as integers."""
    if iteration_range is None or iteration_range is ALL_ROUNDS:
        return ALL_ROUNDS
    try:
        begin, end = map(index, iteration_range)
    except (TypeError, ValueError):
        raise TypeError(
            f"iteration_range must be a pair (begin, end) of rounds, or None for all, got {iteration_range!r}. "
            "Use (0, 3) for the first three."
        ) from None
    return begin, end


def _as_float32(number: float) -> np.float32:
    with np.errstate(over="ignore"):
        return np.float32(number)
