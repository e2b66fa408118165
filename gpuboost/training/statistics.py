"""Training with target statistics (data/category_statistics.py) beside columns of categories."""

from dataclasses import replace

from gpuboost.backend import Backend, TrainingRows
from gpuboost.binned.matrix import BinnedMatrix
from gpuboost.communicator import Communicator
from gpuboost.data.binning import add_records
from gpuboost.data.category_statistics import (
    CategoryStatistics,
    columns_of_categories,
    deal_to_folds,
    fit_statistics,
    indicate_classes,
    lack_some,
)
from gpuboost.data.dmatrix import DMatrix
from gpuboost.errors import not_built
from gpuboost.growing.plan import trees_of_round
from gpuboost.host_gradients import HostGradients
from gpuboost.margins import add_model_margin
from gpuboost.model.model import Model
from gpuboost.objectives import Objective
from gpuboost.params import Params
from gpuboost.second_dealing import SecondDealing
from gpuboost.storage.pages import StoredPages

__all__ = ["add_margin_of_rounds", "deal_again", "weighs_again", "with_statistics"]


def with_statistics(
    rows: TrainingRows, resolved: Params, objective: Objective, backend: Backend, comm: Communicator, *, is_sparse: bool
) -> tuple[TrainingRows, Params, CategoryStatistics | None]:
    """The rows with statistics of categories, where the parameters ask for them: of the columns whose sets are no single
    categories. And the parameters for so many columns.

    rows : with a bin for each category. Raises NotImplementedError for what has no statistics yet.
    """
    binned = rows.binned
    features = columns_of_categories(binned.cuts, resolved.max_cat_to_onehot)
    if resolved.cat_encoding != "statistics" or not len(features):
        return rows, resolved, None
    for what, is_given in {
        f"with objective={objective.name!r}": objective.name.startswith("survival:"),
        "with dropout of trees (of a model that is continued, too)": resolved.drops_trees,
        "of a sparse table": is_sparse,
        "of an ExtMemQuantileDMatrix": isinstance(binned.pages.home, StoredPages),
        "of labels that are partly missing": comm.any(lack_some(rows.label)),
    }.items():
        if is_given:
            raise not_built(f"cat_encoding='statistics' {what}", "Use cat_encoding='sets'.")
    encoded, statistics = _dealt(rows, resolved, objective, backend, comm, 0)
    if encoded.cuts.total_bins == binned.cuts.total_bins + len(statistics.owners):  # a bin each: there is nothing to tell
        return rows, resolved, None
    rows = replace(rows, binned=add_records(encoded, backend))
    return rows, _for_more_columns(resolved, binned.cuts.n_features, statistics.owners), statistics


def _dealt(
    rows: TrainingRows, resolved: Params, objective: Objective, backend: Backend, comm: Communicator, dealing: int
) -> tuple[BinnedMatrix, CategoryStatistics]:
    """The codes of the rows and their statistics, by the folds of that dealing; and the statistics."""
    labels = indicate_classes(rows.label, objective.n_classes) if objective.n_classes else rows.label
    features = columns_of_categories(rows.binned.cuts, resolved.max_cat_to_onehot)
    folds = deal_to_folds(rows.weight, labels.shape[1], rows.first_row, resolved.seed, dealing)
    statistics = fit_statistics(
        rows.binned, features, labels, rows.weight, folds, rows.global_rows, resolved.table_bins, backend, comm
    )
    return statistics.encoded(rows.binned, backend, folds), statistics


def weighs_again(resolved: Params, objective: Objective, n_outputs: int) -> bool:
    """Whether leaves are weighed by a second dealing: where gradients alone do that, those of a formula, in trees of one output
    that no constraint orders."""
    is_by_gradients = objective.stage is None and not objective.leaf_alphas(n_outputs)
    return is_by_gradients and trees_of_round(resolved, n_outputs)[1] == 1 and not any(resolved.monotone_constraints)


def deal_again(
    model: Model, dtrain: DMatrix, numbered: DMatrix, rows: TrainingRows, resolved: Params, objective: Objective,
    backend: Backend, comm: Communicator,
) -> SecondDealing:  # fmt: skip
    """A second dealing of the rows to folds, at the margins of the model. rows : with the table's codes, at the margins where
    boosting starts."""
    margin = backend.memory.zeros(rows.margin.shape, rows.margin.dtype)
    backend.memory.copy(rows.margin, margin)
    encoded, statistics = _dealt(rows, resolved, objective, backend, comm, 1)
    binned = backend.memory.move_table(encoded)
    if model.trees:
        add_margin_of_rounds(model, numbered, replace(rows, binned=binned, margin=margin), statistics, backend, searches=False)
    n_columns, trees = statistics.of_table.n_features, [statistics.to_thresholds(tree) for tree in model.trees]
    return SecondDealing(
        binned, rows.label, rows.weight, backend.memory.fetch(margin), rows.global_rows,
        HostGradients(objective, dtrain, resolved.verbosity, backend.n_threads), resolved, backend, comm, n_columns,
        any(tree is not None and (tree.feature >= n_columns).any() for tree in trees),
    )  # fmt: skip


def _for_more_columns(resolved: Params, n_columns: int, owners: list[int]) -> Params:
    """The parameters where columns stand behind the others that count as these."""
    behind = list(enumerate(owners, n_columns))
    interactions = [(*group, *(i for i, owner in behind if owner in group)) for group in resolved.interaction_constraints]
    weights, signs = resolved.feature_weights, resolved.monotone_constraints
    return replace(
        resolved, interaction_constraints=tuple(interactions),
        feature_weights=weights and (*weights, *(weights[owner] for owner in owners)),
        monotone_constraints=signs and (*signs, *(0 for _ in owners)),
    )  # fmt: skip


def add_margin_of_rounds(
    model: Model, dtrain: DMatrix, rows: TrainingRows, statistics: CategoryStatistics | None, backend: Backend, *,
    searches: bool = True,
) -> None:  # fmt: skip
    """Add all trees of a model to the margins of the rows that are to be trained on.

    Trees whose sets are thresholds on the statistics were grown on them: a row then goes where it went, by the statistic without
    its fold, so that going on is the same as never having stopped. searches : whether splits are searched at these margins.
    """
    trees = [statistics.to_thresholds(tree) for tree in model.trees] if statistics is not None else [None]
    if statistics is not None and None not in trees:
        known, n_columns = [tree for tree in trees if tree], statistics.of_table.n_features
        if searches and any((tree.feature >= n_columns).any() for tree in known):
            known = [tree if tree.searched_value is None else replace(tree, leaf_value=tree.searched_value) for tree in known]
        try:
            flat = backend.predictor.flatten(known, model.tree_groups, statistics.cuts)
        except ValueError:  # thresholds of other cuts
            pass
        else:
            backend.predictor.predict_codes(rows.binned, flat, rows.margin, None)
            return
    add_model_margin(model, dtrain, backend, rows.margin)
