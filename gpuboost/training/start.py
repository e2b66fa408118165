"""From a table and parameters to a training that is ready for its first round."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from time import perf_counter

import numpy as np

import gpuboost.backend as backends
from gpuboost.backend import Backend, TrainingRows
from gpuboost.backend.contract import Array
from gpuboost.communicator import Communicator, current_communicator
from gpuboost.config import log
from gpuboost.data.dmatrix import DMatrix
from gpuboost.data.quantile_dmatrix import QuantileDMatrix
from gpuboost.growing.plan import resolve_columns, trees_of_round
from gpuboost.linear.boosting import LinearBoosting
from gpuboost.margins import check_base_margin, start_margin
from gpuboost.metrics import get_metric
from gpuboost.model.linear import Linear
from gpuboost.model.model import Model
from gpuboost.objectives import Objective, get_objective
from gpuboost.params import Params
from gpuboost.targets import check_count, check_labels, check_start, estimate_base_score, given_base_score
from gpuboost.training.dart import check_weights
from gpuboost.training.running import Boosting
from gpuboost.training.statistics import add_margin_of_rounds, deal_again, weighs_again, with_statistics
from gpuboost.updating.boosting import Updating

__all__ = ["collect_rows", "start_boosting", "untrained_model"]

CUSTOM_BASE_SCORE = 0.5  # where XGBoost starts a custom objective


def start_boosting(
    model: Model | None, dtrain: DMatrix, params: Params, *, is_custom: bool = False, updated: Model | None = None
) -> Boosting | LinearBoosting | Updating:
    """A training on this matrix that goes on from a model, or from an empty one of its own.

    updated : with process_type="update", the rounds of the model that have been updated already.
    is_custom : gradients come from outside, so base_score is XGBoost's 0.5 unless given, not the minimiser of the own loss.
    Raises ValueError for labels that the objective does not take, for an unknown metric, and for columns other than the model's.
    """
    n_values = dtrain.num_row() * dtrain.num_col()
    backend = backends.choose_backend(
        params.training_device, params.nthread, n_values=n_values, table_device=dtrain.device
    )  # fmt: skip
    comm, objective = current_communicator(), get_objective(params.objective, params)
    for name in params.eval_metric:
        get_metric(name, params)  # a misspelt one is refused here, also where nothing is evaluated
    dtrain.require_same_columns(comm)
    numbered = dtrain
    if model is None:
        model = _empty_model(dtrain, params, objective, backend, comm, (CUSTOM_BASE_SCORE,) if is_custom else None)
    else:
        numbered = _with_codes_of(model, dtrain)
        check_labels(dtrain, objective, model.n_targets)
    if params.num_target not in (1, model.n_targets):
        raise ValueError(f"num_target={params.num_target}, but by labels and objective it is {model.n_targets}. Leave it out.")
    # As in XGBoost, an update learns what is carried from round to round, as biases of positions, from its own first round on.
    carrying = model if params.process_type == "default" else updated
    if carrying is not None:
        objective.carry({name: value for name, value in carrying.objective_params.items() if isinstance(value, list)})
    if params.drops_trees and model.tree_weights is None:
        model.tree_weights = [1.0] * len(model.trees)
    check_weights(model.tree_weights or ())
    begin = perf_counter()
    boosting: Boosting | LinearBoosting | Updating
    if params.process_type == "update":
        if not model.trees:
            raise ValueError("process_type='update' needs a model with trees. Pass xgb_model to train(), or leave it out.")
        boosting = Updating(model, updated, dtrain, params, objective, backend, comm)
    elif model.linear is not None:
        check_count(comm.allgather_int(dtrain.num_row()))
        boosting = LinearBoosting(model, dtrain, params, objective, backend, comm)
    else:
        boosting = _boosting(model, dtrain, numbered, params, objective, backend, comm)
    log(
        2,
        f"training on {backend.describe()}: {dtrain.num_row()} rows × {dtrain.num_col()} columns, "
        f"{boosting.table_text}, ready in {perf_counter() - begin:.3f} s",
    )
    return boosting


def _empty_model(
    dtrain: DMatrix, params: Params, objective: Objective, backend: Backend, comm: Communicator, default: Sequence[float] | None
) -> Model:
    """A model without rounds: names, types and base_score of the training table. default : instead of an estimated base_score."""
    n_outputs = objective.n_outputs(len(dtrain.labels_for(objective.label_rows)))
    estimated = estimate_base_score(dtrain, objective, backend, comm)  # also checks the labels
    given = default if params.base_score is None else params.base_score
    scores = estimated if given is None else given_base_score(given, n_outputs)
    if given is not None and dtrain.base_margins is None:
        check_start(scores, objective)
    linear = None
    if params.booster == "gblinear":  # XGBoost gives all its outputs the base_score of the first: the rest is in the biases
        linear = Linear.zeros(dtrain.num_col(), n_outputs)
        margins = objective.base_margin(np.array(scores, np.float32))
        linear.weights[-1] = 0 if dtrain.base_margins is not None else margins - margins[0]
        scores = scores[:1] * len(scores)
    return _model_of(dtrain, params, objective, n_outputs, scores, linear)


def untrained_model(data: DMatrix, params: Params, n_labels: int) -> Model:
    """What a Booster predicts a matrix by before its first round: base_score alone, where custom objectives start. n_labels :
    columns of labels of what it is to be trained on."""
    objective = get_objective(params.objective, params)
    n_outputs = objective.n_outputs(n_labels if objective.label_rows == 1 else objective.label_rows)
    scores = given_base_score(params.base_score or (CUSTOM_BASE_SCORE,), n_outputs)
    if data.base_margins is None:
        check_start(scores, objective)
    return _model_of(data, params, objective, n_outputs, scores)


def _model_of(
    dtrain: DMatrix, params: Params, objective: Objective, n_outputs: int, scores: tuple[float, ...], linear: Linear | None = None
) -> Model:
    """A model without rounds, of a table's columns."""
    return Model(
        n_features=dtrain.num_col(),
        objective=objective.name,
        objective_params={**objective.file_params(), **objective.carried()},
        base_score=scores,
        n_classes=objective.n_classes,
        n_targets=1 if objective.n_classes else n_outputs,
        num_parallel_tree=params.num_parallel_tree if linear is None else 1,
        linear=linear,
        feature_names=dtrain.feature_names,
        feature_types=dtrain.feature_types,
        categories=dtrain.categories,
        attributes={"sparse_absent": "zero"} if dtrain.sparse_absent == "zero" else {},
    )


def _with_codes_of(model: Model, dtrain: DMatrix) -> DMatrix:
    """The table, its categories numbered as the model does. Raises ValueError where it has not the model's columns in the model's
    order, or categories that the model does not know."""
    if dtrain.is_sparse and (dtrain.sparse_absent or "missing") != model.sparse_absent:
        raise ValueError(
            f"what dtrain does not store is {dtrain.sparse_absent or 'missing'}, but {model.sparse_absent} for the model. "
            f"Use DMatrix(..., sparse_absent={model.sparse_absent!r})."
        )
    if dtrain.num_col() != model.n_features:
        raise ValueError(f"dtrain has {dtrain.num_col()} columns, the model was trained on {model.n_features}.")
    both_named = dtrain.feature_names is not None and model.feature_names is not None
    if both_named and dtrain.feature_names != model.feature_names:
        raise ValueError(
            "dtrain must have the column names that the model was trained on, in that order. Use X[booster.feature_names]."
        )
    numbered = dtrain.numbered_as(model.categories)
    if numbered.categories != model.categories:
        raise ValueError(
            "dtrain has categories that the model was not trained on, or is a QuantileDMatrix with other codes. Pass "
            "feature_types=booster.get_categories() to it, which numbers them as the model does; unknown ones are missing."
        )
    own_types = dtrain.feature_types or [""] * model.n_features
    for i, (letter, expected) in enumerate(zip(own_types, model.feature_types or ())):
        if expected == "c" != letter:
            raise ValueError(f"column {i} of dtrain must be of feature type 'c', as the model's is. Pass feature_types.")
    return numbered


def _boosting(
    model: Model, dtrain: DMatrix, numbered: DMatrix, params: Params, objective: Objective, backend: Backend, comm: Communicator
) -> Boosting:
    """The rows on the backend, at the margins of the model. numbered : dtrain with the model's codes of categories."""
    if params.tree_method == "exact" and comm.size > 1:
        raise ValueError("tree_method='exact' needs all rows in one process. Use tree_method='hist' with several workers.")
    weights = dtrain.get_float_info("feature_weights").tolist()
    resolved = resolve_columns(params, dtrain.feature_names, dtrain.num_col(), weights)
    _check_vector_leaves(resolved, model.n_outputs, objective)
    check_base_margin(dtrain, model.n_outputs)
    start = partial(start_margin, dtrain, dtrain.num_row(), model.base_score, objective, model.n_outputs, backend.memory)
    _check_fine_bins(dtrain, params)
    by_category = params.bins_categories and dtrain.has_categories
    if by_category:
        _check_sets(dtrain, resolved)
    rows = collect_rows(numbered, objective.label_rows, start, params.table_bins, backend, comm, by_category)
    table = rows.binned
    rows, resolved, statistics = with_statistics(rows, resolved, objective, backend, comm, is_sparse=dtrain.is_sparse)
    second = None
    if statistics is not None and weighs_again(resolved, objective, model.n_outputs):
        second = deal_again(model, dtrain, numbered, replace(rows, binned=table), resolved, objective, backend, comm)
    if model.trees and model.tree_weights is None:  # dart adds them up in its own way
        add_margin_of_rounds(model, numbered, rows, statistics, backend)
    return Boosting(model, dtrain, params, objective, backend, comm, table, rows, resolved, statistics, second)


def collect_rows(
    dtrain: DMatrix, label_rows: int, start: Callable[[], Array], max_bin: int, backend: Backend, comm: Communicator,
    by_category: bool = False,
) -> TrainingRows:  # fmt: skip
    """What Backend.start_training wants. label_rows : as DMatrix.labels_for. start : makes the margins, once the table is binned:
    that is when most memory is in use. Raises ValueError for a table without rows."""
    n_kept = np.count_nonzero(dtrain.weights) if len(dtrain.weights) else dtrain.num_row()
    kept = comm.allgather_int(int(n_kept))
    check_count(kept)
    return TrainingRows(
        binned=dtrain.binned(max_bin, backend, comm, by_category),
        label=dtrain.labels_for(label_rows),
        weight=dtrain.weights,
        margin=start(),
        global_rows=sum(kept),
        first_row=sum(kept[: comm.rank]),
    )


def _check_vector_leaves(params: Params, n_outputs: int, objective: Objective) -> None:
    """ValueError for what trees of several outputs do not have."""
    leaf_size = trees_of_round(params, n_outputs)[1]
    if leaf_size == 1:
        return
    if params.bounds_outputs(leaf_size):
        if params.is_sketched(leaf_size):
            raise ValueError(
                f"monotone_constraints bound the weights of outputs, and output_sketch={params.output_sketch!r} searches splits "
                "by combinations of them. Leave one of the two out."
            )
        if objective.leaf_alphas(n_outputs):
            raise ValueError(
                f"monotone_constraints={params.monotone_constraints!r} with objective={objective.name!r}, whose leaves are "
                "quantiles, is for trees of one output. Use multi_strategy='one_output_per_tree', or leave it out."
            )
    is_given = {"tree_method": params.tree_method == "exact", "split_gain": params.split_gain is not None}
    for name in filter(is_given.get, is_given):
        raise ValueError(
            f"{name}={getattr(params, name)!r} is for trees of one output, and multi_strategy='multi_output_tree' grows them for "
            f"{n_outputs}. Use multi_strategy='one_output_per_tree', or leave {name} out."
        )


def _check_sets(dtrain: DMatrix, resolved: Params) -> None:
    """ValueError for what sets of categories do not go with."""
    types, names = dtrain.feature_types or [], dtrain.feature_names
    if resolved.tree_method == "exact":
        raise ValueError(
            "tree_method='exact' does not split by sets of categories. Use tree_method='hist', or cat_encoding='ordinal', which "
            "takes categories in the order of their codes."
        )
    for feature, sign in enumerate(resolved.monotone_constraints):
        if sign and types[feature] == "c":
            raise ValueError(
                f"monotone_constraints of column {names[feature] if names else feature!r} must be 0, as it holds categories, "
                f"whose sets have no order, got {sign}. Use cat_encoding='ordinal' for the order of their codes."
            )


def _check_fine_bins(dtrain: DMatrix, params: Params) -> None:
    if params.tree_method == "approx" and isinstance(dtrain, QuantileDMatrix) and dtrain.max_bin != params.table_bins:
        raise ValueError(
            f"tree_method='approx' with max_bin={params.max_bin} proposes its candidates among {params.table_bins} bins, but the "
            f"QuantileDMatrix keeps {dtrain.max_bin}. Train on a DMatrix, or build it with max_bin={params.table_bins}."
        )
