"""The contract between the algorithm and the machine that runs it, by role.

    Memory       where arrays lie, and how they get there
    Coder        tables to codes: counting for the sketch, binning, records
    Training     one training: its rows, gradients and growing trees; a backend may have any number at once
    Predictor    rows down finished trees, margins to predictions
    RowReducer   sums over rows: base scores and metrics
    Ranker       rows query by query: their order, gradients of ranking losses, terms of their metrics
    Explainer    what each feature contributes to the margins of rows

A training is asked in this order (growing/grower.py), and its answers are handles that nobody looks into; the Communicator is
given its int64 buffers between the steps that need other workers' rows.

    gradients → (rows drawn) → [max over workers] → scales → fixed point → [sum] → roots
    per step: histograms of the smaller children → [sum] → siblings by subtraction → (candidates, for approx) → best splits
              → nodes → rows → [sum of counts]                                     or sorted columns → best splits
    leaf sums → [sum] → pruning, leaf weights (→ for some losses, per digit: weights of residuals → [sum] → digits)
              → margins → finished trees

A backend whose device runs behind the host answers with upper bounds where the contract says so (nodes of a frontier) and
launches work for that many; what is not there is skipped on the device. The host waits only in what is named ``fetch``, in
Coder.bin_rows, in RankedColumns, in RowReducer, and in Trees.frontier_size where a bound would grow beyond use.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import numpy as np

from gpuboost.backend.by_prediction import sum_by_prediction
from gpuboost.backend.plans import FrontierBatch, Round
from gpuboost.backend.queries import Pairs, Queries
from gpuboost.binned.cuts import Cuts
from gpuboost.binned.matrix import BinnedMatrix
from gpuboost.binned.packing import Packing
from gpuboost.binned.pages import DensePage, StoredRows
from gpuboost.kernels.cuda_common import CudaKernel
from gpuboost.model.tree import Tree
from gpuboost.params import Params

__all__ = [
    "Array", "Backend", "Coder", "Explainer", "FlatTrees", "Formula", "Gradients", "LeafQuantiles", "Memory", "Predictor",
    "Ranker", "RowReducer", "RowTerm", "RowsByQuery", "Training", "TrainingRows", "Trees",
]  # fmt: skip

Array = np.ndarray  # or CuPy's, with the same methods, on a GPU
Pending = TypeVar("Pending")  # finished trees on their way to the host
Explained = TypeVar("Explained")  # trees laid out for explanations
Part = TypeVar("Part")  # what of them is added up


class RowTerm(Protocol):
    """A scalar function of a row (kernels/reduce.py); kernels are compiled around it."""

    def __call__(self, *arguments: object) -> object: ...


class Formula(Protocol):
    """What gradients are computed by, compiled for either device (objectives/base.py)."""

    @property
    def parameters(self) -> tuple[np.float32, ...]: ...

    @property
    def gradients_cpu(self) -> RowTerm: ...

    @property
    def gradients_kernel(self) -> CudaKernel: ...


class RowsByQuery(Protocol):
    """The rows of a table by query, as backend/query_rows.py has them."""

    @property
    def queries(self) -> Queries: ...

    @property
    def label(self) -> Array: ...

    @property
    def first(self) -> Array: ...

    @property
    def position(self) -> Array: ...

    @property
    def discounts(self) -> Array: ...

    @property
    def by_label(self) -> Array: ...

    @property
    def bucket(self) -> Array: ...


@dataclass(frozen=True)
class TrainingRows:
    """The rows that one worker trains on. Rows of zero weight stay in the table but take no part: they enter no row list.

    binned : with records, in the backend's memory.
    label : float32 (n_targets, n_rows). weight : float32 (n_rows,), empty when every row weighs 1.
    margin : float32 (n_outputs, n_rows). Where boosting starts: base_score, base_margin, or the margins of a model to continue.
    global_rows : rows of positive weight over all workers. first_row : global number of this worker's first one.
    """

    binned: BinnedMatrix
    label: Array
    weight: Array
    margin: Array
    global_rows: int
    first_row: int = 0


@dataclass(frozen=True)
class FlatTrees:
    """Trees laid out one after another, as kernels/predict.py walks them, in one memory.

    nodes : FLAT_NODE (n_nodes,). leaf_values : float32 (n_nodes, leaf_size), beside the nodes.
    first_node : int64 (n_trees,). Where each tree begins. first_output : int32 (n_trees,). The first of the leaf_size outputs
    that each adds to.
    sets : uint32. The splits' sets of categories (scalar.is_in_set). Where no split has one,
    None on the CPU and empty on a GPU.
    """

    nodes: Array
    leaf_values: Array
    first_node: Array
    first_output: Array
    sets: Array | None

    def __iter__(self):
        return iter((self.nodes, self.leaf_values, self.first_node, self.first_output, self.sets))

    @property
    def features(self) -> np.ndarray:
        """The features that they split by, ascending; of trees in host memory."""
        features = self.nodes["feature"]
        return np.flatnonzero(np.bincount(features[features >= 0]))


class Memory(ABC):
    """Arrays of one device. name : "host" or "cuda:0". Tables (batches of values) may lie in either."""

    name: str

    @abstractmethod
    def zeros(self, shape: tuple[int, ...], dtype: np.dtype | type | str) -> Array:
        """A new array of zeros."""

    def may_keep(self, n_bytes: int) -> bool:
        """Whether a table of the host of so many bytes, which is read several times, is to be brought here only once."""
        return False

    @abstractmethod
    def put(self, array: Array) -> Array:
        """The array in this memory, C-contiguous; the same one where it is that already."""

    def spread(self, values: np.ndarray, n: int) -> Array:
        """A new array (len(values), n): each of the values n times."""
        return np.repeat(values[:, None], n, axis=1)

    def copy(self, source: Array, target: Array) -> None:
        """Copy an array of this memory into another one of it."""
        target[...] = source

    @abstractmethod
    def fetch(self, array: Array) -> np.ndarray:
        """The array as a NumPy array."""

    def move_table(self, binned: BinnedMatrix) -> BinnedMatrix:
        """The codes in this memory."""
        return binned.moved(self.name, self.put)


class RankedColumns(ABC):
    """Columns of a table of which each value can be asked for by its rank, the weight up to it (kernels/ranks.py).

    totals, n_distinct, n_infinite : int64 (n,). Weight of each column's values, how many distinct ones it has, and rows with one
    that counts as infinite. has_missing : bool (n,).
    """

    totals: np.ndarray
    n_distinct: np.ndarray
    n_infinite: np.ndarray
    has_missing: np.ndarray

    @abstractmethod
    def ranks_of_values(self, columns: np.ndarray, most: int) -> np.ndarray:
        """int64 (k, most): a rank in each value of columns that have no more than ``most``, ascending, behind zeros."""

    @abstractmethod
    def at(self, columns: np.ndarray, ranks: np.ndarray) -> list[np.ndarray]:
        """Of the values that hold these ranks, int64 (k, m): keys, uint32, and the weight below and up to each, int64. Zeros
        where the rank is 0."""


class Coder(ABC):
    """Tables to codes. sorts_columns : whether the cuts of a table that one worker holds come from sorted columns in host memory
    (kernels/quantiles.py); else from columns by rank, where there is room for them, or from counts of digits."""

    sorts_columns = False

    def columns_ranked_at_once(self, n_rows: int, is_weighted: bool) -> int:
        """For how many columns rank_columns has room; 0: it is not there."""
        return 0

    def rank_columns(
        self, batches: Iterable[Array], missing: float, weights: Array | None, n_rows: int, features: np.ndarray
    ) -> RankedColumns:
        """Some columns of a table of n_rows, by rank. weights : int64 (n_rows,) in the backend's memory, None: 1 each; a row of 0
        does not exist."""
        raise NotImplementedError

    @abstractmethod
    def count_digits(
        self, batch: Array, missing: float, weights: Array, features: Array, level: int, slots0: Array | None,
        slots1: Array | None, counts: Array,
    ) -> None:  # fmt: skip
        """Add a batch of rows to a pass of the quantile sketch (kernels/sketch.py); slots and counts in the backend's memory."""

    @abstractmethod
    def bin_rows(self, batch: Array, missing: float, cuts: Cuts, first_row: int, page: DensePage) -> int:
        """Write the codes of a batch of rows into a page (kernels/binning.py); returns how many missing codes did not fit."""

    @abstractmethod
    def write_records(self, packing: Packing | None, page: DensePage) -> None:
        """Fill the records of a page, zero so far, from its columns: packed (kernels/packing.py), or with None as they are."""


class Gradients(ABC):
    """What the rows of a training weigh in the round at hand: gradients, the rows drawn, and both in fixed point."""

    @abstractmethod
    def compute(self, objective: Formula) -> Array:
        """Gradients at the current margins, weighted; returns the int64 (n_outputs, 2) bits of this worker's max |g| and max h,
        to be maximised over workers."""

    @abstractmethod
    def set(self, grad: np.ndarray, hess: np.ndarray, few: tuple[np.ndarray, np.ndarray] | None = None) -> Array:
        """The same for gradients that a user's objective computed: float32 (n_outputs, n_rows). Negative hessians count as 0,
        but for −inf, which is as little finite as inf. few : float32 (k, n_rows) each, by which splits are searched, for plans
        whose sketch is given."""

    @abstractmethod
    def count_magnitudes(self) -> Array:
        """int64 counts of this worker's rows by the size of their gradients (kernels/row_sampling.py), to be summed over workers;
        for gradient-based sampling."""

    @abstractmethod
    def draw_rows(self, counts: Array | None) -> Array:
        """Draw the rows that the round's plans ask for. counts : count_magnitudes over all workers; None to draw uniformly.

        The gradients of a row drawn with probability p are divided by p. Rows not drawn enter nothing until update_margin, and
        what ``set`` has taken of them for the search of splits is 0 as well.
        Returns the int64 (n_outputs, 2) bits of max |g| and max h among the rows drawn, to be maximised over workers.
        """

    def sum_squares(self, maxima: Array) -> Array:
        """int64 (n_outputs,): Σ g² of this worker's rows, to be summed over workers; for a sketch of the outputs, and for
        Trees.choose_noise. maxima : over all workers. Raises FloatingPointError as quantise."""
        raise NotImplementedError

    def sketch(self, squares: Array | None) -> Array:
        """Combine the outputs as the round's plan asks (kernels/output_sketch.py); returns int64 (k, 2) bits of max |g| and max h
        of the combinations, or of those that ``set`` has taken, to be maximised over workers. Splits are searched by them, leaves
        weighed by all outputs. squares : over all workers; None where the plan does not ask for them."""
        raise NotImplementedError

    @abstractmethod
    def quantise(self, maxima: Array, sketched: Array | None = None) -> Array:
        """Choose the scales and round to fixed point in 16 bits; returns int64 (n_outputs, N_SUMS): Σ g, Σ h and what
        refine asks, to be summed over workers. sketched : the maxima of the combinations, which then are what is rounded.
        Raises FloatingPointError when a gradient is not finite; a backend that would have to wait for the device raises it from
        fetch_trees."""

    @abstractmethod
    def refine(self, sums: Array) -> Array | None:
        """Where 16 bits are too few (kernels/quantise.py), round again with two limbs. Returns this worker's sums anew, to be
        summed over workers, or None where they were enough for all."""


class Trees(ABC):
    """The trees of a round while they grow: nodes, their histograms and splits, and the rows in each.

    histogram_capacity : histograms that fit into the memory budget; at least 2.
    nodes_at_once : how many nodes of the last frontier, from whose histograms nothing is subtracted, had better be worked on
        together, an even number; None: all of them.
    """

    histogram_capacity: int
    nodes_at_once: int | None = None

    @abstractmethod
    def start(self, sums: Array) -> None:
        """One root for each plan, with the summed gradients, holding all rows drawn. The roots are the first frontier."""

    def choose_noise(self, squares: Array, sums: Array) -> None:
        """Choose by how much sets of categories are braked in this round (kernels/gradient_noise.py). squares : of sum_squares.
        sums : of quantise or refine, whichever rounded last. Both over all workers."""
        raise NotImplementedError

    def grow_at_once(self, max_depth: int, max_leaves: int, best_first: bool) -> bool:
        """All steps of growth in one call, leaf by leaf if best_first, else level by level, where this backend has one for such a
        training and nothing is to be exchanged with other workers. False: nothing is done yet."""
        return False

    @abstractmethod
    def frontier_size(self) -> int:
        """Nodes waiting for evaluation: the roots, or the children made by the last step, in pairs. An upper bound, where the
        backend would have to wait for the device. Asked once a step: where bounds have grown loose, it reads the device."""

    @abstractmethod
    def build_histograms(self, batch: FrontierBatch) -> Array:
        """Histograms of the batch's nodes, or of each pair's child with fewer rows; returns the built ones, int64, to be summed
        over workers."""

    @abstractmethod
    def subtract_histograms(self, batch: FrontierBatch) -> None:
        """Each built child's sibling: parent − built, in the parent's place."""

    @abstractmethod
    def propose_candidates(self, batch: FrontierBatch) -> None:
        """Choose the bins that may be split at from the histograms of the batch (kernels/proposals.py): for those nodes, or,
        with global proposals, for the trees whose roots they are."""

    def keep_candidates(self) -> None:  # noqa: B027 - a backend that keeps all bins does nothing
        """After the search of roots that have proposed for their trees: histograms may hold nothing but the candidates from now
        on, of which the splits are the same. Only where the rows of all workers are here."""

    @abstractmethod
    def evaluate_splits(self, batch: FrontierBatch) -> None:
        """Best split of each node of the batch, among the bins proposed where the parameters ask for proposals."""

    def walks_columns(self, n_workers: int) -> bool:
        """Whether walk_columns is to search the frontier: where there are no histograms (exact search), or it is less work. The
        splits are the same. Only where the rows of all workers are here, and a tree has one output."""
        return False

    def walk_columns(self) -> None:
        """Best split of each node of the frontier, from sorted columns (kernels/exact.py)."""
        raise NotImplementedError

    @abstractmethod
    def select_level(self, max_depth: int, max_leaves: int) -> None:
        """Choose the nodes to split now: all of the frontier that have a split, first come first served under max_leaves."""

    @abstractmethod
    def select_best(self, max_depth: int, max_leaves: int) -> None:
        """Choose the nodes to split now: of each tree the open leaf of the largest gain; others too, if sum_leaves undoes those
        splits that growth leaf by leaf would not have come to, and numbers nodes as that would have."""

    @abstractmethod
    def apply_splits(self) -> None:
        """Make the chosen nodes' children: the next frontier."""

    @abstractmethod
    def partition_rows(self) -> Array:
        """Send the chosen nodes' rows to their children; returns the int64 row counts of the new children, to be summed."""

    @abstractmethod
    def sum_leaves(self) -> Array:
        """High-resolution gradient sums of all leaves, int64, to be summed over workers."""

    @abstractmethod
    def weigh_leaves(self) -> None:
        """From the leaf sums: undo splits with less gain than gamma, or a child whose exact sum of hessians is below
        min_child_weight, bottom-up; then optimal weights, leaf values and covers."""

    @abstractmethod
    def flat(self) -> FlatTrees:
        """The trees just grown, laid out for Predictor.predict_codes with the cuts of the training."""


class LeafQuantiles(ABC):
    """Leaves that are quantiles of their rows' residuals, by radix selection (kernels/leaf_quantiles.py). They replace what
    weigh_leaves has set."""

    @abstractmethod
    def start(self) -> Iterable[tuple[int, int]]:
        """List the residuals. Returns the steps, (first node of a group that is worked on together, level of the digit)."""

    @abstractmethod
    def count(self, first_node: int, level: int) -> Array:
        """Weight by digit of the residuals of a group's leaves, int64, to be summed over workers."""

    @abstractmethod
    def choose(self, first_node: int, level: int) -> None:
        """Choose the digits of that level; with the last, the quantiles are known."""

    @abstractmethod
    def set_leaves(self) -> None:
        """Make the quantiles the leaves, cut where a monotone constraint orders them."""


class Training(ABC, Generic[Pending]):
    """One training: everything that lasts from round to round, in the backend's memory.

    margin : float32 (n_outputs, n_rows). Current margins of the training rows, at which gradients are computed; the array that
        they start from, where it lies in the backend's memory.
    leaf_quantiles : None where leaves are weighed by the gradients alone.
    trees_at_once : as how many trees a plan had better come, one part after another; None: as all of them.
    plans_at_once : of how many plans the trees had better be fetched together.
    may_grow_rounds : whether grow_rounds is worth asking for now.
    """

    margin: Array
    gradients: Gradients
    trees: Trees
    leaf_quantiles: LeafQuantiles | None = None
    trees_at_once: int | None = None
    plans_at_once = 1

    @property
    def may_grow_rounds(self) -> bool:
        return False

    @abstractmethod
    def start_round(self, plan: Round) -> None:
        """Take up what is to be grown next."""

    def grow(self, plan: Round, margin: Array | None, steps: Callable[[], None]) -> None:
        """Grow the trees of the plan taken up, and add them to these margins, if any: do the steps, which ask this training for
        one thing after another. Where plans are alike so are the steps, and a backend may record what they launch instead, and do
        that again. Only where nothing is to be exchanged with other workers."""
        steps()

    def grow_rounds(
        self, plan: Round, n_rounds: int, max_depth: int, max_leaves: int, best_first: bool, objective: Formula
    ) -> Sequence[Pending]:
        """Grow up to n_rounds rounds, limits as Trees.grow_at_once, each from the gradients at the margins that the one before
        has left, and add them to the margins. plan : of the first; the others are the same but for their number and key, and what
        they draw by these. Returns their finished trees, plan by plan: as many as a backend does in one go, none where it does
        not. Those of the last plan are then in ``trees``, to be flattened. Only for one worker."""
        return ()

    @abstractmethod
    def update_margin(self, margin: Array) -> None:
        """Add the leaf values to these margins of all rows, as a rule the current ones: also of those not drawn, and of those of
        zero weight."""

    @abstractmethod
    def finish_trees(self) -> Pending:
        """Begin to bring the finished trees to the host. The next round may start before they arrive."""

    @abstractmethod
    def fetch_trees(self, pending: Sequence[Pending]) -> list[Tree]:
        """The finished trees of some plans, in their order."""


class Predictor(ABC):
    """Rows down finished trees. Margins and leaves are added to, or written, in place.

    finds_large_values : whether predict_values tells of infinite values and those outside float32; else they are looked for
        first. takes_sparse : whether it predicts sparse rows; else they are written out in batches.
    """

    finds_large_values = False
    takes_sparse = False

    @abstractmethod
    def flatten(self, trees: list[Tree], outputs: list[int], cuts: Cuts | None = None) -> FlatTrees:
        """Lay trees out for prediction; with ``cuts`` also for codes (ValueError where a threshold is not one of the cuts)."""

    @abstractmethod
    def predict_values(
        self, batch: Array, missing: float, flat: FlatTrees, first_row: int, margin: Array, leaves: Array | None
    ) -> bool | None:
        """Add the trees' outputs for a batch of values to ``margin`` from first_row on, and number the leaves in ``leaves``
        unless that is None (kernels/predict.py). With finds_large_values, False says that there may be such a value."""

    def predict_sparse(self, stored: StoredRows, flat: FlatTrees, margin: Array, leaves: Array | None) -> bool | None:
        """The same for all rows of a sparse table. None: nobody has looked for such values."""
        raise NotImplementedError

    @abstractmethod
    def predict_codes(self, binned: BinnedMatrix, flat: FlatTrees, margin: Array, leaves: Array | None) -> None:
        """The same for a binned matrix."""

    @abstractmethod
    def reweigh(
        self, leaves: Array, outputs: Sequence[int], before: Sequence[float], after: Sequence[float], sums: Array
    ) -> None:
        """Weigh trees anew in sums of fixed point (kernels/reweigh.py). leaves, sums : in the backend's memory."""

    @abstractmethod
    def write_margins(self, base: Array, sums: Array, unit: float, margin: Array) -> None:
        """The margins of such sums."""

    @abstractmethod
    def map_rows(self, margin: Array, row_map: RowTerm) -> Array:
        """New float32 (n_outputs, n_rows): row_map of every row (kernels/reduce.py)."""


class RowReducer(ABC):
    """Sums over rows that come out the same to the last bit on any device (backend/row_sums.py)."""

    @abstractmethod
    def largest_term(
        self, prediction: Array, label: Array, weight: Array, row_term: RowTerm, parameters: tuple[np.float32, ...]
    ) -> Array:
        """int64 (1,): bits of the largest |term · weight| of any row (kernels/reduce.py), to be maximised over workers."""

    @abstractmethod
    def sum_terms(
        self, prediction: Array, label: Array, weight: Array, row_term: RowTerm, parameters: tuple[np.float32, ...], scale: float
    ) -> Array:
        """int64 (1,): Σ ⌊term · weight · scale + ½⌋, to be summed over workers."""

    def sum_by_prediction(self, prediction: Array, label: Array, weight: Array) -> Array:
        """int64 (3, n) of the distinct predictions, from the largest down: what rises as they fall, and the weight of their
        positive and of their other rows.

        prediction, label : float32 (n_rows,). Of positive rows labels are 1, of others 0. weight : int64 (n_rows,) or empty, 1
        each.
        """
        return sum_by_prediction(prediction, label, weight)


class Ranker(ABC):
    """What depends on the other rows of a query. Results do not depend on the device or on any order of work."""

    @abstractmethod
    def order(self, rows: RowsByQuery, values: Array) -> Array:
        """int32 (n_rows,): the rows of each query by falling value, equal ones in row order. values : float32 (n_rows,)."""

    @abstractmethod
    def terms(self, rows: RowsByQuery, kind: int, order: Array, top: int, is_exponential: bool) -> Array:
        """float64 (n_queries,): the terms of a metric of rankings (kernels/query_terms.py)."""

    @abstractmethod
    def lambdas(self, rows: RowsByQuery, margin: Array, pairs: Pairs) -> tuple[Array, Array, Array]:
        """Gradients and hessians, float32 (n_rows,), of a ranking loss at these margins, float32 (n_rows,); and losses by
        position, float64 (2, n_rows), or (2, 0) where pairs have no bias (kernels/lambdarank.py)."""


class Explainer(ABC, Generic[Explained, Part]):
    """Contributions of the features to the margins of rows. What it is given is in explained.py."""

    @abstractmethod
    def explain(
        self, batch: Array, missing: float, trees: Explained, parts: Iterable[Part], margins: np.ndarray, with_pairs: bool
    ) -> Array:
        """float32 (n_rows, n_outputs, 1 or n_features + 1, n_features + 1) in the backend's memory: the sums of all parts.

        batch : float32 or float64 (n_rows, n_features). margins : float32 (n_outputs, n_rows), what predictions start from.
        with_pairs : whether the parts hold interactions. The last row and column are of the bias.
        """


class Backend(ABC):
    """A device, by its roles.

    n_threads : CPU threads that kernels may use. takes_sparse : whether it trains on sparse pages; else sparse tables are written
    out in batches.
    """

    name: str
    memory: Memory
    coder: Coder
    predictor: Predictor
    reducer: RowReducer
    ranker: Ranker
    n_threads = 1
    takes_sparse = False

    @abstractmethod
    def describe(self) -> str:
        """The device in words, for messages."""

    def explainer(self) -> Explainer:
        """What explains predictions on this device; loaded with its kernels when it is asked for."""
        raise NotImplementedError

    @abstractmethod
    def start_training(
        self, rows: TrainingRows, params: Params, n_trees: int, leaf_size: int = 1, leaf_alphas: tuple[float, ...] = ()
    ) -> Training:
        """A training whose rounds have n_trees trees of leaf_size outputs each. Raises MemoryError where it does not fit.

        params : with columns by number (growing/plan.resolve_columns).
        leaf_alphas : for each output, which quantile of the residuals its leaves are; empty where they are none.
        """

    def start_trainings(
        self, n_plans: int, rows: TrainingRows, params: Params, n_trees: int, leaf_size: int = 1,
        leaf_alphas: tuple[float, ...] = (),
    ) -> Sequence[Training]:  # fmt: skip
        """As many as best grow the n_plans plans of a round, each in a thread of its own, at the same margins: one, unless the
        backend knows better."""
        return [self.start_training(rows, params, n_trees, leaf_size, leaf_alphas)]
