"""The contract between the algorithm and the machine that runs it.

The grower (growing/grower.py) and the boosting loop (training.py) call these operations in order and never look inside the state:
all of it lies where the backend computes. A backend implements each operation with the kernel of the same name; the
Communicator is handed the backend's own int64 buffers between the steps that need other workers' rows.

    gradients → (rows drawn) → [max over workers] → scales → fixed point → [sum] → roots
    per step: histograms of the smaller children → [sum] → siblings by subtraction → (candidates, for approx) → best splits
              → nodes → rows → [sum of counts]                                     or sorted columns → best splits
    leaf sums → [sum] → prune → leaf weights → margins → finished trees

A backend whose device runs behind the host answers with upper bounds where the contract says so (nodes of a frontier,
histograms held) and launches work for that many; what is not there is skipped on the device.
"""

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

__all__ = ["Array", "Backend", "GrowthSettings", "StoredRows", "TrainingRows"]

Array = Any  # an array in the backend's memory
State = Any  # everything of one training: rows, gradients, growing trees


@dataclass(frozen=True)
class GrowthSettings:
    """What the kernels need to know about the trees, as plain scalars.

    Names as XGBoost's parameters; grow_policy is "depthwise" or "lossguide". histogram_memory is in bytes. max_bin counts the
    candidates of tree_method "approx"; for others the cuts of the table are all there is. feature_weights: one for each feature,
    or none. interaction_constraints: sets of features by number.
    """

    max_depth: int
    max_leaves: int
    grow_policy: str
    gamma: float
    min_child_weight: float
    max_delta_step: float
    reg_lambda: float
    reg_alpha: float
    histogram_memory: int
    seed: int
    max_bin: int = 256
    tree_method: str = "hist"
    sketch_proposals: str = "global"
    subsample: float = 1.0
    sampling_method: str = "uniform"
    colsample_bytree: float = 1.0
    colsample_bylevel: float = 1.0
    colsample_bynode: float = 1.0
    feature_weights: tuple[float, ...] = ()
    interaction_constraints: tuple[tuple[int, ...], ...] = ()
    monotone_constraints: tuple[int, ...] = ()  # sign of each feature; empty without constraints

    @property
    def masks_features(self) -> bool:
        """Whether nodes differ in the features that they may split on (kernels/features.py)."""
        return self.colsample_bylevel < 1 or self.colsample_bynode < 1 or len(self.interaction_constraints) > 0

    @property
    def proposals(self) -> str | None:
        """Whose histograms propose split candidates: "global" the roots', "local" every node's. None: every bin is one."""
        return self.sketch_proposals if self.tree_method == "approx" else None

    @property
    def sampling(self) -> str | None:
        """How the rows of a round are drawn: "uniform" or "gradient_based". None: all take part."""
        return self.sampling_method if self.subsample < 1 else None


@dataclass(frozen=True)
class TrainingRows:
    """The rows that one worker trains on. Rows of zero weight stay in the table but take no part: they enter no row list.

    binned : data.binned.BinnedMatrix with records.
    label : float32 (n_targets, n_rows). weight : float32 (n_rows,), empty when every row weighs 1.
    margin : float32 (n_outputs, n_rows). Where boosting starts: base_score, base_margin, or the margins of a model to continue.
    global_rows : rows of positive weight over all workers. first_row : global number of this worker's first one.
    """

    binned: Any
    label: Array
    weight: Array
    margin: Array
    global_rows: int
    first_row: int = 0


@dataclass(frozen=True)
class StoredRows:
    """A sparse table's rows, listed as SciPy's csr does.

    row_begin : int64 (n_rows + 1,). columns : int32 (n_stored,), ascending in a row. values : float32 (n_stored,).
    missing : a value equal to it is missing, as NaN is. absent : the value of what is not stored: NaN or 0.
    """

    row_begin: Array
    columns: Array
    values: Array
    missing: float
    absent: float
    n_features: int

    def on(self, backend: "Backend") -> "StoredRows":
        """The same rows in a backend's memory."""
        put = backend.put
        return replace(self, row_begin=put(self.row_begin), columns=put(self.columns), values=put(self.values))


class Backend(ABC):
    """Operations on one device. Only what is named ``fetch`` or ``fetch_…``, bin_rows, and what returns numbers for the host to
    look at (metrics) makes the host wait for the device.

    memory : where its arrays lie: "host" or "cuda:0". Tables (batches of values) may lie in either.
    n_threads : CPU threads that kernels may use.
    sorts_columns : whether the cuts of a table that one worker holds come from sorted columns (kernels/quantiles.py) rather than
        from counts of digits.
    takes_sparse : whether it trains on sparse pages and predicts sparse rows; else sparse tables are written out in batches.
    finds_large_values : whether predict_values tells of infinite values and those outside float32; else they are looked for
        first.
    """

    name: str
    memory: str
    takes_sparse = False
    finds_large_values = False
    sorts_columns = False
    n_threads = 1

    @abstractmethod
    def describe(self) -> str:
        """The device in words, for messages."""

    def at_work(self, state: State) -> AbstractContextManager[None]:
        """Entered around a round of a training: for what each of its operations would else prepare on its own."""
        return nullcontext()

    # -- Memory -----------------------------------------------------------------------------------------------------

    @abstractmethod
    def zeros(self, shape: tuple[int, ...], dtype: Any) -> Array:
        """A new array of zeros in the backend's memory."""

    @abstractmethod
    def put(self, array: Array) -> Array:
        """The array in the backend's memory, C-contiguous; the same one where it is that already."""

    @abstractmethod
    def fetch(self, array: Array) -> Any:
        """The array as a NumPy array."""

    # -- Table to codes ---------------------------------------------------------------------------------------------

    @abstractmethod
    def count_digits(self, block, missing, weights, features, level, slots0, slots1, counts) -> None:
        """Add a batch of rows to a pass of the quantile sketch (kernels/sketch.py); slots and counts in the backend's memory."""

    @abstractmethod
    def bin_rows(self, block, missing, cuts, first_row, page) -> int:
        """Write the codes of a batch of rows into a page (kernels/binning.py); returns how many missing codes did not fit."""

    @abstractmethod
    def write_records(self, packing, page) -> None:
        """Fill the records of a page, zero so far, from its columns: packed (kernels/packing.py), or with None as they are."""

    # -- A training -------------------------------------------------------------------------------------------------

    @abstractmethod
    def start_training(self, rows: TrainingRows, settings: GrowthSettings, tree_outputs: list[int], n_outputs: int) -> State:
        """Allocate everything a training needs.

        tree_outputs : first output of each tree of a round, all grown together. n_outputs : outputs per tree (1: scalar leaves).
        """

    @abstractmethod
    def compute_gradients(self, state: State, objective: Any, margin: Array | None = None) -> Array:
        """Gradients of all rows at the state's margins, or at others (DART: without the dropped trees).

        Returns the int64 (n_planes, 2) bits of max |g| and max h, to be maximised over workers (not where rows are drawn:
        draw_rows then returns theirs).
        """

    @abstractmethod
    def set_gradients(self, state: State, grad: Array, hess: Array) -> Array:
        """The same with gradients from outside: float32 (n_planes, n_rows)."""

    @abstractmethod
    def start_round(self, state: State, round_number: int, learning_rate: float) -> None:
        """What changes from round to round: the number that seeds its random choices, and the learning rate of its trees."""

    @abstractmethod
    def count_magnitudes(self, state: State) -> Array:
        """int64 counts of this worker's rows by the size of their gradients (kernels/sampling.py), to be summed over workers;
        for gradient-based sampling."""

    @abstractmethod
    def draw_rows(self, state: State, counts: Array | None) -> Array:
        """Draw the rows that the trees of the round grow on, the same for all its outputs. counts : count_magnitudes over all
        workers; None to draw uniformly.

        The gradients of a row drawn with probability p are divided by p. Rows not drawn enter nothing until update_margin.
        Returns the int64 (n_planes, 2) bits of max |g| and max h among the rows drawn, to be maximised over workers.
        """

    @abstractmethod
    def quantise(self, state: State, maxima: Array) -> Array:
        """Choose the scales and round to fixed point in 16 bits; returns int64 (n_planes, 3): Σ g, Σ h and the rows of
        few units, to be summed over workers. Raises FloatingPointError when a gradient is not finite; a backend that would have
        to wait for the device raises it from fetch_trees."""

    @abstractmethod
    def refine_fixed_point(self, state: State, sums: Array) -> Array | None:
        """Where more than half of all rows had too few units, round again with two limbs. Returns this worker's sums anew, to be
        summed over workers, or None where 16 bits were enough for all."""

    # -- Trees ------------------------------------------------------------------------------------------------------

    @abstractmethod
    def start_trees(self, state: State, sums: Array) -> None:
        """One root for each tree, with the summed gradients, holding all rows drawn. The roots are the first frontier."""

    @abstractmethod
    def histogram_capacity(self, state: State) -> int:
        """Histograms that fit into the memory budget; at least 2."""

    @abstractmethod
    def frontier_size(self, state: State) -> int:
        """Nodes waiting for evaluation: the roots, or the children made by the last step, in pairs. A backend that would have
        to wait for the device may return an upper bound."""

    @abstractmethod
    def held_histograms(self, state: State) -> int:
        """Histograms held for open and finished leaves (or an upper bound)."""

    @abstractmethod
    def build_histograms(self, state: State, begin: int, end: int, subtract: bool, hold: bool) -> Array:
        """Build histograms for frontier[begin:end]; returns the built ones, int64, to be summed over workers.

        subtract : the parents' histograms are held: build only each pair's child with fewer rows.
        hold : keep them for the children to come; else they live until the next call.
        """

    @abstractmethod
    def subtract_histograms(self, state: State) -> None:
        """Each built child's sibling: parent − built, in the parent's place."""

    @abstractmethod
    def propose_candidates(self, state: State, begin: int, end: int) -> None:
        """Choose the bins that may be split at from the histograms of frontier[begin:end] (kernels/proposals.py): for those
        nodes, or, with global proposals, for the trees whose roots they are."""

    @abstractmethod
    def evaluate_splits(self, state: State, begin: int, end: int) -> None:
        """Best split of each node of frontier[begin:end], among the bins proposed where the settings ask for proposals."""

    def walks_columns(self, state: State, n_workers: int) -> bool:
        """Whether scan_columns is to search the frontier: where there are no histograms (exact search), or it is less work. The
        splits are the same. Only where the rows of all workers are here, and a tree has one output."""
        return False

    def scan_columns(self, state: State) -> None:
        """Best split of each node of the frontier, from sorted columns (kernels/scan.py)."""
        raise NotImplementedError

    @abstractmethod
    def select_splits(self, state: State) -> None:
        """Choose the evaluated nodes to split now, by the growth policy."""

    @abstractmethod
    def apply_splits(self, state: State) -> None:
        """Make the chosen nodes' children: the next frontier."""

    @abstractmethod
    def partition_rows(self, state: State) -> Array:
        """Send the chosen nodes' rows to their children; returns the int64 row counts of the new children, to be summed."""

    @abstractmethod
    def sum_leaves(self, state: State) -> Array:
        """High-resolution gradient sums of all leaves, int64, to be summed over workers."""

    @abstractmethod
    def prune(self, state: State) -> None:
        """Undo splits with less gain than gamma, bottom-up."""

    @abstractmethod
    def weigh_leaves(self, state: State) -> None:
        """Optimal weights, leaf values and covers from the leaf sums."""

    @abstractmethod
    def leaf_of_rows(self, state: State) -> Array:
        """int32 (n_trees, n_rows): the leaf (node number in the state) that each row ended in, −1 for rows that take no part."""

    @abstractmethod
    def set_leaves(self, state: State, nodes: Array, values: Array) -> None:
        """Replace the values of some leaves before they reach the margins (absolute and quantile loss refresh them from rows).
        nodes : int32 (k,), node numbers in the state. values : float32 (k, n_outputs), already × learning rate."""

    @abstractmethod
    def update_margin(self, state: State) -> None:
        """Add the leaf values to the margins of all rows: also of those not drawn, and of those of zero weight."""

    @abstractmethod
    def finish_trees(self, state: State) -> Any:
        """Begin to bring the finished trees to the host; what fetch_trees takes. The next round may start before they arrive."""

    @abstractmethod
    def fetch_trees(self, state: State, finished: Any) -> list[Any]:
        """The finished trees as model.Tree, in the order of tree_outputs."""

    @abstractmethod
    def grown_trees(self, state: State) -> Any:
        """The trees just grown, laid out for predict_codes with the cuts of the training."""

    # -- Margins, predictions, sums ----------------------------------------------------------------------------------

    @abstractmethod
    def training_margin(self, state: State) -> Array:
        """float32 (n_planes, n_rows): a view of the margins of the training rows."""

    @abstractmethod
    def flatten_trees(self, trees: list[Any], groups: list[int], cuts: Any = None) -> Any:
        """Lay trees out for prediction; with ``cuts`` also for codes (ValueError where a threshold is not one of the cuts)."""

    @abstractmethod
    def predict_values(self, block, missing, flat, first_row, margin, leaves) -> bool | None:
        """Add the trees' outputs for a batch of values to ``margin`` from first_row on, and number the leaves in ``leaves``
        unless that is None (kernels/predict.py). With finds_large_values, False says that there may be such a value."""

    def predict_sparse(self, stored: StoredRows, flat, margin, leaves) -> None:
        """The same for all rows of a sparse table."""
        raise NotImplementedError

    @abstractmethod
    def predict_codes(self, binned, flat, margin, leaves) -> None:
        """The same for a binned matrix."""

    @abstractmethod
    def map_rows(self, margin: Array, row_map: Any) -> Array:
        """New float32 (n_outputs, n_rows): row_map of every row (kernels/reduce.py)."""

    @abstractmethod
    def largest_term(self, prediction, label, weight, row_term, parameters) -> Array:
        """int64 (1,): bits of the largest |term · weight| of any row (kernels/reduce.py), to be maximised over workers."""

    @abstractmethod
    def sum_terms(self, prediction, label, weight, row_term, parameters, scale: float) -> Array:
        """int64 (1,): Σ ⌊term · weight · scale + ½⌋, to be summed over workers."""
