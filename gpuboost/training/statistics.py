"""Training with target statistics (data/category_statistics.py) beside columns of categories."""

from dataclasses import replace

from gpuboost.backend import Backend, TrainingRows
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
from gpuboost.margins import add_model_margin
from gpuboost.model.model import Model
from gpuboost.objectives import Objective
from gpuboost.params import Params
from gpuboost.storage.pages import StoredPages

__all__ = ["add_margin_of_rounds", "with_statistics"]


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
    labels = indicate_classes(rows.label, objective.n_classes) if objective.n_classes else rows.label
    folds = deal_to_folds(rows.weight, labels.shape[1], rows.first_row, resolved.seed)
    statistics = fit_statistics(
        binned, features, labels, rows.weight, folds, rows.global_rows, resolved.table_bins, backend, comm
    )
    encoded = add_records(statistics.encoded(binned, backend, folds), backend)
    return replace(rows, binned=encoded), _for_more_columns(resolved, binned.cuts.n_features, statistics.owners), statistics


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
    model: Model, dtrain: DMatrix, rows: TrainingRows, statistics: CategoryStatistics | None, backend: Backend
) -> None:
    """Add all trees of a model to the margins of the rows that are to be trained on.

    Trees whose sets are thresholds on the statistics were grown on them: a row then goes where it went, by the statistic without
    its fold, so that going on is the same as never having stopped.
    """
    trees = [statistics.to_thresholds(tree) for tree in model.trees] if statistics is not None else [None]
    if statistics is not None and None not in trees:
        try:
            flat = backend.predictor.flatten([tree for tree in trees if tree], model.tree_groups, statistics.cuts)
        except ValueError:  # thresholds of other cuts
            pass
        else:
            backend.predictor.predict_codes(rows.binned, flat, rows.margin, None)
            return
    add_model_margin(model, dtrain, backend, rows.margin)
