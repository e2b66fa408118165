"""What the trees of a round are grown from: rows and columns drawn, outputs, penalties, keys."""

from collections.abc import Iterator, Sequence
from dataclasses import fields, replace

from gpuboost.backend.draws import all_columns, draw_columns, draw_rows
from gpuboost.backend.fixed_point import round_key
from gpuboost.backend.plans import ColumnDraw, OutputSketch, Penalty, Round, RowDraw, TreePlan
from gpuboost.binned.cuts import Cuts
from gpuboost.formulas.split_gain import find_gain
from gpuboost.growing.constraints import resolve_feature_weights, resolve_interactions, resolve_monotone
from gpuboost.kernels.output_sketch import SKETCH_DRAW
from gpuboost.params import Params

__all__ = ["Planner", "resolve_columns", "trees_of_round"]


class Planner:
    """The plans of a training's rounds: n_trees of leaf_size outputs each, all of them on the same rows and columns.

    global_rows : that take part, over all workers. Of num_parallel_tree plans a round, each has rows, columns and rounding of its
    own, and leaves that count for its part of the round: they are numbered on and on.
    """

    def __init__(self, params: Params, cuts: Cuts, global_rows: int, n_trees: int, leaf_size: int = 1) -> None:
        self._params, self._cuts, self._global_rows = params, cuts, global_rows
        self._penalty = Penalty(*(getattr(params, field.name) for field in fields(Penalty)))
        self._gain = find_gain(params.split_gain, params.reg_lambda, params.reg_alpha, params.max_delta_step)
        self._leaf_size = leaf_size
        self.first_outputs = list(range(0, n_trees * leaf_size, leaf_size))
        self._columns = all_columns(cuts)
        has_default = params.cat_noise is None and params.usual_cat_noise > 0
        self._chooses_noise = has_default and cuts.categorical is not None
        self._trees_of_all = self._trees(None, self._columns)

    def plans(
        self, round_number: int, learning_rate: float, refreshes_leaves: bool = True, n_at_once: int | None = None
    ) -> Iterator[Round]:
        """What grows one after another in a round, from the same gradients. n_at_once : most trees of each; None: all of a plan,
        which else comes in parts."""
        n_plans = self._params.num_parallel_tree
        for number in range(round_number * n_plans, (round_number + 1) * n_plans):
            yield from self.plan(number, learning_rate / n_plans, refreshes_leaves).parts(n_at_once or len(self.first_outputs))

    @property
    def are_alike(self) -> bool:
        """Whether each round has one plan, and that the same but for its number and key, and what it draws by these."""
        return self._params.num_parallel_tree == 1 and self._sketch(0) is None

    def plan(self, number: int, learning_rate: float, refreshes_leaves: bool = True) -> Round:
        """The plan of that number."""
        params = self._params
        trees, draws_columns = self._trees_of_all, params.colsample_bytree < 1
        if params.sampling or draws_columns:
            rows = draw_rows(params, self._global_rows, number) if params.sampling else None
            trees = self._trees(rows, draw_columns(params, self._cuts, number) if draws_columns else self._columns)
        return Round(
            number, round_key(params.seed, number), learning_rate, trees, refreshes_leaves, self._sketch(number),
            self._chooses_noise,
        )  # fmt: skip

    def _trees(self, rows: RowDraw | None, columns: ColumnDraw) -> tuple[TreePlan, ...]:
        return tuple(TreePlan(first, self._leaf_size, rows, columns, self._penalty, self._gain) for first in self.first_outputs)

    def _sketch(self, number: int) -> OutputSketch | None:
        params = self._params
        if params.sketch_method is None or not params.is_sketched(self._leaf_size):
            return None
        size = params.searched_outputs(self._leaf_size)
        return OutputSketch(params.sketch_method, size, round_key(params.seed, number, SKETCH_DRAW))


def trees_of_round(params: Params, n_outputs: int) -> tuple[int, int]:
    """(trees of a round, outputs of each)."""
    return (1, n_outputs) if params.multi_strategy == "multi_output_tree" else (n_outputs, 1)


def resolve_columns(
    params: Params, names: Sequence[str] | None, n_features: int, table_weights: Sequence[float] = ()
) -> Params:
    """The parameters with columns by number, as a backend reads them.

    table_weights : the table's own feature_weights. Raises ValueError for a column that the table lacks.
    """
    return replace(
        params,
        feature_weights=resolve_feature_weights(params.feature_weights or table_weights, n_features),
        interaction_constraints=resolve_interactions(params.interaction_constraints, names, n_features),
        monotone_constraints=resolve_monotone(params.monotone_constraints, names, n_features),
    )
