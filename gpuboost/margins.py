"""Margins of a table, float32 (n_outputs, n_rows): where they start, a model's trees added, and how a user sees them."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gpuboost.backend import Backend
from gpuboost.backend.contract import Array, Memory
from gpuboost.binned.cuts import Cuts
from gpuboost.data.column_lists import ColumnLists, list_batches
from gpuboost.data.dmatrix import DMatrix
from gpuboost.data.tables.source import ColumnSource
from gpuboost.kernels.linear import add_columns_cpu
from gpuboost.model.model import Model
from gpuboost.objectives import Objective

__all__ = [
    "VIEWED_ROWS", "add_columns", "add_model_margin", "add_source_margin", "finished_prediction", "model_source", "start_margin",
    "values_of",
]  # fmt: skip

# Rows of a batch to predict, at least: 64 blocks for the threads to share. The trees are laid out anew for each batch.
PREDICTED_ROWS = 4096
# Where a batch takes no memory; not all, so that predicting can be stopped. Two threads of an AMD EPYC (Zen 5), ms:
# 20,000 × 2,000, 100 trees of depth 6, 9.6 -> 8.9; 100,000 × 28, 20 of depth 10, 5.2 -> 5.1.
VIEWED_ROWS = 2**17


def start_margin(
    dmatrix: DMatrix, n_rows: int, base_score: Sequence[float] | np.ndarray, objective: Objective | None, n_outputs: int,
    memory: Memory | None = None,
) -> Array:  # fmt: skip
    """New float32 (n_outputs, n_rows) in a memory, None: the host's. base_margin where the matrix has one, else the margin of
    base_score, which without an objective is that margin itself."""
    given = dmatrix.base_margins
    if given is not None:
        check_base_margin(dmatrix, n_outputs)
        return given.copy() if memory is None else memory.put(given.copy())
    scores = np.full(n_outputs, base_score, np.float32)
    margins = objective.base_margin(scores) if objective is not None else scores
    return np.repeat(margins[:, None], n_rows, axis=1) if memory is None else memory.spread(margins, n_rows)


def check_base_margin(dmatrix: DMatrix, n_outputs: int) -> None:
    """ValueError where the matrix has a base_margin of another width."""
    if (given := dmatrix.base_margins) is not None and len(given) != n_outputs:
        raise ValueError(f"base_margin has {len(given)} columns, the model has {n_outputs} outputs. Give one for each.")


def model_source(model: Model, dmatrix: DMatrix, by_name: bool) -> ColumnSource | None:
    """The table as the model reads it; None where the matrix only has its codes.

    by_name : False takes the columns in their order, whatever their names. Raises ValueError naming columns that do not match the
    model's.
    """
    names, categories = model.feature_names, model.categories
    if not by_name and names is not None and dmatrix.feature_names is not None and len(names) == len(dmatrix.feature_names):
        renamed = dict(zip(names, dmatrix.feature_names))
        names, categories = dmatrix.feature_names, {renamed[name]: values for name, values in categories.items()}
    elif not by_name and dmatrix.feature_names is None:
        names = None
    return dmatrix.source(names, categories, model.n_features, model.sparse_absent)


def add_model_margin(
    model: Model, dmatrix: DMatrix, backend: Backend, margin: Array, leaves: Array | None = None, *,
    get_flat: Callable[[Backend, Cuts | None], Any] | None = None, by_name: bool = True,
) -> None:  # fmt: skip
    """Add all trees, or the linear part, of a model to float32 margins (n_outputs, n_rows), and number the leaves where an array
    for them is given; both in the backend's memory.

    get_flat : the trees as Predictor.flatten lays them out for values, or for codes by these cuts, where somebody keeps them.
    by_name : as model_source.
    Reads the table where the matrix has it, else its codes. Raises ValueError naming columns that do not match the model's.
    """
    if model.linear is not None:
        for rows, columns in list_batches(values_of(model, dmatrix, by_name)):
            add_columns(columns, model.linear.weights, margin[:, rows], backend.n_threads)
        return
    source = model_source(model, dmatrix, by_name)
    codes = dmatrix.any_binned() if source is None else None
    cuts = None if codes is None else codes.cuts
    flat = get_flat(backend, cuts) if get_flat else backend.predictor.flatten(model.weighed_trees, model.tree_groups, cuts)
    if codes is not None:
        backend.predictor.predict_codes(backend.memory.move_table(codes), flat, margin, leaves)
    else:
        assert source is not None
        add_source_margin(source, backend, flat, margin, leaves)


def values_of(model: Model, dmatrix: DMatrix, by_name: bool = True) -> ColumnSource:
    """The table as a linear model reads it. Raises ValueError where the matrix keeps no values, or holds categories."""
    source = model_source(model, dmatrix, by_name)
    if source is None:
        raise ValueError("booster='gblinear' reads values, of which a QuantileDMatrix keeps only bin numbers. Use a DMatrix.")
    if dmatrix.has_categories:
        raise ValueError(
            "booster='gblinear' weighs numbers, but a column holds categories. Encode them, as scikit-learn's OneHotEncoder does."
        )
    return source


def add_columns(columns: ColumnLists, weights: np.ndarray, margin: Array, n_threads: int) -> None:
    """Add a linear model's part to float32 margins (n_outputs, n_rows): the bias, then column by column, in float32.

    weights : float32 (n_features + 1, n_outputs), the last row the biases.
    """
    order = np.roll(np.arange(columns.n_features + 1), 1)
    for own_weights, own_margin in zip(np.ascontiguousarray(weights.T), margin):
        add_columns_cpu(*columns, order, own_weights, own_margin, n_threads)


def add_source_margin(source: ColumnSource, backend: Backend, flat: Any, margin: Array, leaves: Array | None) -> None:
    """Add the trees' outputs for every row of a table, and number the leaves where an array for them is given."""
    if source.stored is not None and backend.predictor.takes_sparse:
        stored = source.stored_rows(looks=False)
        if not backend.predictor.predict_sparse(stored, flat, margin, leaves):
            source.refuse_large(stored.values)
        return
    read = source.read_unchecked if backend.predictor.finds_large_values and source.read_unchecked else source.read
    takes_no_memory = source.reads_views and backend.memory.name == "host"
    for rows in source.batch_slices(least=VIEWED_ROWS if takes_no_memory else PREDICTED_ROWS):
        if backend.predictor.predict_values(read(rows), source.missing, flat, rows.start, margin, leaves) is False:
            for begin in range(rows.start, rows.stop, PREDICTED_ROWS):  # a few at a time: looking for it takes memory
                source.read(slice(begin, min(begin + PREDICTED_ROWS, rows.stop)))  # raises where the value is not the missing one


def finished_prediction(prediction: Array, strict_shape: bool) -> Array:
    """float32 (n_outputs, n_rows) as the user sees it: (n_rows,) for one output, else (n_rows, n_outputs)."""
    return prediction[0].copy() if len(prediction) == 1 and not strict_shape else prediction.T.copy(order="C")
