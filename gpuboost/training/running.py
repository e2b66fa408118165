"""A training under way: one boosting round after another over a matrix, and the model that takes them in.

    gradients at the current margins → trees of an output or of all, num_parallel_tree of each → margins
                                                                                             (Chen & Guestrin 2016, §2.1–2.2)
"""

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from math import inf

from gpuboost.backend import Backend, TrainingRows
from gpuboost.backend.contract import Training
from gpuboost.backend.row_sums import RowSums
from gpuboost.binned.matrix import BinnedMatrix
from gpuboost.communicator import Communicator
from gpuboost.config import verbosity_context, warn
from gpuboost.custom_objective import Given, GivenGradients, custom_gradients, warn_of_negative_hessians
from gpuboost.data.category_statistics import CategoryStatistics
from gpuboost.data.dmatrix import DMatrix
from gpuboost.growing.abreast import Growers
from gpuboost.growing.plan import Planner, trees_of_round
from gpuboost.growing.policy import growth_policy
from gpuboost.model.model import Model
from gpuboost.model.tree import Tree
from gpuboost.objectives import Objective
from gpuboost.params import GivenSearch, Params
from gpuboost.second_dealing import SecondDealing
from gpuboost.training.dart import Dart
from gpuboost.training.watch import WatchedMatrices
from gpuboost.under_way import UnderWay

__all__ = ["Boosting"]

PENDING_PLANS = 1  # grown but not yet asked for: a GPU grows the next one while the host takes in those before


class Boosting(UnderWay):
    """The state of a training: rows on the backend, and the margins of every matrix that is watched.

    model : the rounds so far; ``rows`` start at their margins. It gets a new round when collect_rounds is called, not before: a
        device may still be growing it while the host goes on.
    table : the codes of dtrain. rows : of them, or of what stands for them.
    params : may be replaced between rounds, by such as adopt.ends_training allows. resolved : the same as the training began
    with, columns by number. statistics : that the rows hold for categories, if any; the model has sets instead. second : by which
        leaves are weighed, if not by the rows that splits are searched by.
    """

    def __init__(
        self, model: Model, dtrain: DMatrix, params: Params, objective: Objective, backend: Backend, comm: Communicator,
        table: BinnedMatrix, rows: TrainingRows, resolved: Params, statistics: CategoryStatistics | None = None,
        second: SecondDealing | None = None,
    ) -> None:  # fmt: skip
        super().__init__(dtrain)
        self.model, self.table, self.cuts = model, table, rows.binned.cuts
        self.params, self._objective, self._backend, self._comm = params, objective, backend, comm
        self._rows: RowSums | None = None  # those trained on, at their margins, for an objective's stage
        self._n_rounds = model.n_rounds
        self._start(rows, resolved)
        self._resolved, self._n_given = resolved, 0
        self._table_rows = replace(rows, margin=self._training.margin)
        self._sum = self._training.margin  # what trees are added to while others still grow from the margins
        if params.num_parallel_tree > 1:
            self._sum = backend.memory.zeros(self._training.margin.shape, self._training.margin.dtype)
            backend.memory.copy(self._training.margin, self._sum)
        self._finished: deque[object] = deque()  # on their way to the host
        self._taken: list[Tree] = []  # of the round of which others are still on their way
        self._has_warned_of_hessians = False
        self._statistics, self._second = statistics, second
        self._watched = WatchedMatrices(backend, statistics.of_table if statistics else self.cuts, objective, statistics)
        if model.tree_weights is not None:
            margin = self._training.margin
            base = backend.memory.zeros(margin.shape, margin.dtype)
            backend.memory.copy(margin, base)
            own = self._watched.reweighed_rows(dtrain, model, base, margin)
            self._watched.dart = Dart(backend, model, own)

    def _start(self, rows: TrainingRows, resolved: Params) -> None:
        """Start on the rows' margins."""
        n_outputs, comm = self.model.n_outputs, self._comm
        shape = trees_of_round(resolved, n_outputs)
        n_abreast = resolved.num_parallel_tree if comm.size == 1 else 1
        trainings = self._backend.start_trainings(n_abreast, rows, resolved, *shape, self._objective.leaf_alphas(n_outputs))
        self._training: Training = trainings[0]
        self._planner = Planner(resolved, self.cuts, rows.global_rows, *shape)
        # Several trees of a plan, where no other plan grows beside it and parts would not be exchanged one by one.
        self._grows_parts = shape[0] > 1 and comm.size == len(trainings) == 1
        self._growers = Growers(trainings, comm, growth_policy(resolved), resolved.proposals)

    def _search_given(self, n_given: int) -> None:
        """Have splits searched by so many gradients that a TreeObjective gives from now on; 0: as the parameters say.

        Raises ValueError where that does not go with these, or workers are given different numbers of them."""
        if self._comm.size > 1 and len(counts := {*self._comm.allgather_int(n_given)}) > 1:
            raise ValueError(f"split_grad must return gradients of as many outputs on all workers, got {sorted(counts)}.")
        if n_given == self._n_given:
            return
        resolved = self._resolved
        if n_given:
            _check_given(resolved)
            resolved = GivenSearch.of(resolved, n_given)
        self.collect_rounds()
        del self._training, self._growers  # a device may have no room for both
        self._start(self._table_rows, resolved)
        self._n_given = n_given

    @property
    def table_text(self) -> str:
        """The size of the table as training reads it, for messages."""
        return f"{self.cuts.total_bins} bins"

    def boost(self, obj: GivenGradients | None = None) -> None:
        """Grow one round and add it to all margins. obj : a user's objective, instead of the model's own."""
        if obj is not None or self._grow_rounds(1) == 0:
            self._boost_by_steps(obj)

    def boost_rounds(self, n_rounds: int) -> int:
        if n_grown := self._grow_rounds(n_rounds if len(self._watched) == 0 else 1):
            return n_grown
        self._boost_by_steps(None)
        return 1

    def _grow_rounds(self, n_rounds: int) -> int:
        """Grow up to n_rounds rounds in one go, as Grower.grow_rounds does, and add the last one to the margins of the matrices
        watched. Returns how many, which is 0 where there is more to a round than that."""
        has_more = self._watched.dart is not None or self._second is not None or self._objective.stage is not None
        if has_more or self._n_given or not (self._planner.are_alike and self._growers.may_grow_rounds):
            return 0
        plan = self._planner.plan(self._n_rounds, self.params.learning_rate)
        if grown := self._growers.grow_rounds(plan, n_rounds, self._objective):
            self._watched.add_trees(self._training.trees.flat)
            self._finished += grown
            self._n_rounds += len(grown)
            self._collect_old()
        return len(grown)

    def _collect_old(self) -> None:
        """Take in rounds that a device has had time for, once there are as many as it likes to be asked for."""
        if len(self._finished) >= PENDING_PLANS + self._training.plans_at_once:
            self.collect_rounds(keep=PENDING_PLANS)

    def _boost_by_steps(self, obj: GivenGradients | None) -> None:
        """Grow one round as Grower.grow does, whatever belongs to it."""
        dart = self._watched.dart
        if dart is not None:
            self.collect_rounds()
            dart.drop(self.params, self._n_rounds)
        given = self._given_gradients(obj)
        training = self._training
        n_at_once = training.trees_at_once if self._grows_parts and not self._watched.reads_pages else None
        plans = self._planner.plans(self._n_rounds, self.params.learning_rate, given is None, n_at_once)
        if self._second is not None:
            self._second.start_round(self._n_rounds, given is None)
        for grown in self._growers.grow(plans, self._objective, given, self._sum):
            self._finished.append(grown.finish_trees())
            if self._second is not None:
                self._weigh_leaves(self._second)
            elif dart is None:
                self._watched.add_trees(grown.trees.flat)
            self._collect_old()
        if dart is not None:
            self.collect_rounds()
            dart.take_round(self._watched.reweighed())
        elif self._sum is not training.margin:
            self._backend.memory.copy(self._sum, training.margin)
        if carried := self._objective.carried():
            self.model.objective_params = {**self.model.objective_params, **carried}
        self._n_rounds += 1

    def _given_gradients(self, obj: GivenGradients | None) -> Given | None:
        """Those at the current margins, of a user's objective or of the model's own where the host computes them; else None."""
        given = None
        if obj is not None:
            given = custom_gradients(obj, self._backend.memory.fetch(self._training.margin), self.dtrain)
            if not self._has_warned_of_hessians:
                self._has_warned_of_hessians = warn_of_negative_hessians(given.hess, self.params.verbosity)
        elif self._objective.stage is not None:
            if self._rows is None:
                self._rows = self._watched.rows_of(self.dtrain, self.model.n_targets, self._training.margin, self._comm)
            given = Given(*self._objective.stage(self._rows, self._n_rounds))
        if obj is not None or self._n_given:
            self._search_given(0 if given is None or given.few is None else len(given.few[0]))
        return given

    def _weigh_leaves(self, second: SecondDealing) -> None:
        """Give the trees finished last their values, and add these to the margins of all but the rows that they were grown on."""
        trees, n_plans = self._training.fetch_trees([self._finished.pop()]), self.params.num_parallel_tree
        outputs = self._planner.first_outputs
        outputs = outputs[len(self._taken) % len(outputs) :][: len(trees)]
        trees, flat = second.weigh(trees, outputs, self.params.learning_rate / n_plans)
        self._watched.add_trees(lambda: flat)
        self._take_trees(trees)

    def collect_rounds(self, keep: int = 0) -> None:
        """Take the rounds grown into the model, but the last ``keep`` plans of them.

        Raises FloatingPointError for a leaf that is not finite. After an error the model lacks rounds that the margins hold: this
        training is over.
        """
        try:
            if len(self._finished) > keep:
                fetched = [self._finished.popleft() for _ in range(len(self._finished) - keep)]
                self._take_trees(self._training.fetch_trees(fetched))
        except BaseException:  # KeyboardInterrupt, too
            self._finished.clear()  # they would leave a gap
            raise

    def _take_trees(self, trees: list[Tree]) -> None:
        """Take the next trees, of one round or several, each of which is added to the model with the last of its own."""
        self._taken += trees
        n_outputs = len(self._planner.first_outputs)
        n_trees = n_outputs * self.params.num_parallel_tree
        while len(self._taken) >= n_trees:
            own, self._taken = self._taken[:n_trees], self._taken[n_trees:]
            self._take_round([tree for output in range(n_outputs) for tree in own[output::n_outputs]])

    def _take_round(self, trees: list[Tree]) -> None:
        """Add a round to the model. trees : those of an output side by side."""
        if not all(abs(tree.leaf_value).max() < inf for tree in trees):  # of NaN the largest is NaN
            raise FloatingPointError(
                f"a leaf of round {self.model.n_rounds} is beyond float32. Use a smaller learning_rate, set "
                "max_delta_step, or scale the labels or weights down."
            )
        if self._statistics is not None:
            trees = [self._statistics.to_sets(tree) for tree in trees]
        outputs = self._planner.first_outputs
        groups = [output for output in outputs for _ in range(len(trees) // len(outputs))]
        dart = self._watched.dart
        self.model.add_round(trees, groups, None if dart is None else dart.weights_with(len(trees), self.params))
        if self.model.n_rounds == 1 and all(tree.n_nodes == 1 for tree in trees):
            self._warn_of_no_split(trees)

    def margins_of(self, dmatrix: DMatrix, get_model: Callable[[], Model]) -> RowSums:
        """The rows of the training matrix, or of one that is watched from now on, with their current margins for prediction.

        get_model : the model with all rounds so far; called for a matrix that is new or has changed only.
        """
        if self.trains_on(dmatrix):
            margin = self._training.margin if self._second is None else self._backend.memory.put(self._second.margin)
        else:
            margin = self._watched.margin(dmatrix, get_model)
        return self._watched.rows_of(dmatrix, self.model.n_targets, margin, self._comm)

    @property
    def _may_brake(self) -> bool:
        """Whether categories count for less than they gain (cat_noise)."""
        noise = self.params.usual_cat_noise if self.params.cat_noise is None else self.params.cat_noise
        return self.cuts.categorical is not None and noise > 0

    def _warn_of_no_split(self, trees: list[Tree]) -> None:
        """A UserWarning that nothing was learnt, unless labels or (drawn) columns may be constant or one leaf was asked for."""
        labels, params = self.dtrain.labels_for(self._objective.label_rows), self.params
        can_split = self.cuts.total_bins > self.dtrain.num_col() and params.max_leaves != 1
        can_split &= min(params.subsample, params.colsample_bytree, params.colsample_bylevel, params.colsample_bynode) == 1
        if can_split and (labels != labels[:, :1]).any():
            brake = " Categories that differ by no more than chance are not split: cat_noise=0 splits them, too."
            with verbosity_context(params.verbosity):
                warn(
                    "the first round split no node, so it predicts a constant. A split must gain more than "
                    f"{max(params.gamma, 1e-6):g} (gamma) and leave either side a sum of hessians of {params.min_child_weight:g} "
                    f"(min_child_weight), which is {max(tree.cover[0] / tree.leaf_size for tree in trees):g} for all rows. "
                    f"Multiply tiny labels or weights, or lower these parameters or reg_lambda.{brake * self._may_brake}",
                )


def _check_given(params: Params) -> None:
    """ValueError for what does not go with gradients that splits alone are searched by."""
    if params.multi_strategy != "multi_output_tree":
        raise ValueError(
            f"multi_strategy must be 'multi_output_tree' with split_grad of a TreeObjective, got {params.multi_strategy!r}: a "
            "tree of one output is searched by that. Return None from split_grad, or set it."
        )
    if any(params.monotone_constraints):
        raise ValueError(
            "Monotonic constraints are not supported with reduced gradients: they bound the weights of outputs, and split_grad's "
            "are of others. Leave monotone_constraints out, or return None from split_grad."
        )
    if params.sampling == "gradient_based":
        raise ValueError(
            "sampling_method must be 'uniform' with split_grad of a TreeObjective, got 'gradient_based', which weighs the rows "
            "that it draws by other gradients. Use 'uniform'."
        )
