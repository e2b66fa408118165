"""What is to be grown: a plan for every tree, and a round of trees that grow together (growing/plan.py makes them)."""

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from gpuboost.binned.cuts import Cuts

__all__ = [
    "BUILT_IN_GAIN", "ColumnDraw", "FrontierBatch", "OutputSketch", "Penalty", "Round", "RowDraw", "SplitGain", "TreePlan",
]  # fmt: skip


@dataclass(frozen=True)
class Penalty:
    """The regularisation that split finding and leaf weights read; names as XGBoost's parameters."""

    reg_lambda: float
    reg_alpha: float
    max_delta_step: float
    min_child_weight: float
    gamma: float


@dataclass(frozen=True)
class SplitGain:
    """By what splits are chosen.

    function : scalar function of a candidate, as kernels/splits.py has it; None for the built-in gain. parameters : of its own.
    """

    name: str
    function: Callable[..., float] | None
    parameters: tuple[float, ...]


BUILT_IN_GAIN = SplitGain("", None, ())


@dataclass(frozen=True)
class RowDraw:
    """Which rows a tree grows on. n_drawn : of the global_rows of all workers; exactly so many, or where by_gradient on average.

    keys : uint64 (N_KEYS,), of the permutation that draws them (kernels/row_sampling.py).
    """

    n_drawn: int
    by_gradient: bool
    keys: tuple[int, ...]


@dataclass(frozen=True)
class OutputSketch:
    """By what few combinations of the outputs splits are searched (kernels/output_sketch.py): ``size`` of them. key : of their
    hashes."""

    method: str
    size: int
    key: int


@dataclass(frozen=True, eq=False)
class ColumnDraw:
    """Which features the histograms of a tree hold, and where: all of a table's, or those drawn for it.

    features : int32 (k,), ascending. offsets : int32 (k + 1,). Where the bins of each begin in a histogram.
    """

    features: np.ndarray
    offsets: np.ndarray

    def renumber_cells(self, cuts: Cuts) -> np.ndarray:
        """int32 (total_bins + n_features,): the number of each cell of a sparse table (kernels/sparse.py) among the cells of
        these features alone, −1 for other features."""
        new = np.full(cuts.total_bins + cuts.n_features, -1, np.int32)
        for begin, first, n_bins in zip(self.offsets[:-1], cuts.offsets[self.features], cuts.n_bins[self.features]):
            new[first : first + n_bins] = np.arange(begin, begin + n_bins)
        new[cuts.total_bins + self.features] = np.arange(self.offsets[-1], self.offsets[-1] + len(self.features))
        return new


@dataclass(frozen=True)
class TreePlan:
    """What one tree is grown from.

    first_output : the first of its leaf_size outputs among the round's gradients. rows : None for all of positive weight.
    """

    first_output: int
    leaf_size: int
    rows: RowDraw | None
    columns: ColumnDraw
    penalty: Penalty
    gain: SplitGain = BUILT_IN_GAIN


@dataclass(frozen=True)
class Round:
    """Trees that grow together: their nodes share arrays and launches.

    number : of the round, or among all that grew so far where a round grows several, from which its random choices are hashed.
    key : where the hashes of its random choices go on from.
    refreshes_leaves : whether leaves become quantiles of the residuals, in a training that is for such; gradients that a user
        computed are not theirs.
    sketch : None where splits are searched by all outputs.
    chooses_noise : whether sets of categories are braked by how much the round's gradients vary.
    first_tree : the number of the first of them among the trees of the plan that this is a part of, whose parts share gradients,
        rows, columns and fixed point.
    """

    number: int
    key: int
    learning_rate: float
    trees: tuple[TreePlan, ...]
    refreshes_leaves: bool = True
    sketch: OutputSketch | None = None
    chooses_noise: bool = False
    first_tree: int = 0

    def __post_init__(self) -> None:
        """ValueError where trees differ in what they must share so far, and backends read here."""
        for name in ("rows", "columns", "penalty", "gain") if len(self.trees) > 1 else ():
            if len(values := {getattr(tree, name) for tree in self.trees}) > 1:
                raise ValueError(f"the trees of a round must share their {name}, but {len(values)} differ.")

    @property
    def rows(self) -> RowDraw | None:
        return self.trees[0].rows

    @property
    def columns(self) -> ColumnDraw:
        return self.trees[0].columns

    @property
    def penalty(self) -> Penalty:
        return self.trees[0].penalty

    @property
    def gain(self) -> SplitGain:
        return self.trees[0].gain

    @property
    def searches_given(self) -> bool:
        """Whether splits are searched by gradients of a user's, which Gradients.set takes, instead (params.GivenSearch)."""
        return self.sketch is not None and self.sketch.method == "given"

    @property
    def asks_for_squares(self) -> bool:
        """Whether Gradients.sum_squares is wanted."""
        return self.chooses_noise or (self.sketch is not None and not self.searches_given)

    @property
    def goes_on(self) -> bool:
        """Whether this is a further part of the plan before."""
        return self.first_tree > 0

    @property
    def alike(self) -> Hashable:
        """Equal for rounds of a training that are grown by the same steps: they differ in numbers that lie on the device, and in
        which of so many rows and columns are drawn."""
        return self.penalty, self.gain, self.refreshes_leaves, self.rows and self.rows.n_drawn

    def parts(self, n_at_once: int) -> Iterator["Round"]:
        """The same as rounds of at most so many trees, one after another, about equally many, and none more than the first."""
        if len(self.trees) <= n_at_once:
            yield self
            return
        n_parts = -(-len(self.trees) // n_at_once)
        ends = [-(-len(self.trees) * part // n_parts) for part in range(n_parts + 1)]
        for begin, end in zip(ends, ends[1:]):
            yield replace(self, trees=self.trees[begin:end], first_tree=begin)

    def require_outputs(self, first_outputs: Sequence[int], leaf_size: int) -> None:
        """ValueError where its trees add to other outputs than a training was started for."""
        if [(tree.first_output, tree.leaf_size) for tree in self.trees] != [(first, leaf_size) for first in first_outputs]:
            raise ValueError(f"the plans of a round must be of {leaf_size} outputs each, from {list(first_outputs)} on.")


@dataclass(frozen=True)
class FrontierBatch:
    """Nodes begin to end of a frontier, whose histograms are worked on together (growing/pool.py).

    first_slot : where the first built histogram goes. subtract : the parents' histograms are held, so that only each pair's
    child with fewer rows is built.
    """

    begin: int
    end: int
    first_slot: int
    subtract: bool
