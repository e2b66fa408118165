"""Labels as an objective takes them: in its domain, some of positive weight, and the base_score that fits them best."""

from collections.abc import Sequence

import numpy as np

from gpuboost.backend import Backend
from gpuboost.backend.row_sums import RowSums
from gpuboost.communicator import Communicator
from gpuboost.data.dmatrix import DMatrix
from gpuboost.objectives import Objective

__all__ = ["check_count", "check_labels", "check_start", "estimate_base_score", "given_base_score"]


def estimate_base_score(dtrain: DMatrix, objective: Objective, backend: Backend, comm: Communicator) -> tuple[float, ...]:
    """One base score per output, rounded to float32 as the model file's readers do: the constant that minimises the loss.

    Raises ValueError for labels outside the objective's domain, and when all weights are 0.
    """
    check_labels(dtrain, objective)
    label, weight = dtrain.labels_for(objective.label_rows), dtrain.weights
    n_outputs = objective.n_outputs(len(label))
    if not dtrain.masks_labels:
        scores = _base_scores(label, weight, n_outputs, objective, backend, comm, dtrain.lacks_labels)
    else:  # each target by the rows that have it
        for k, target in enumerate(label):
            if not sum(comm.allgather_int(int((~np.isnan(target)).sum()))):
                raise ValueError(f"label column {k} is missing in every row, so there is nothing to learn of it. Leave it out.")
        parts = [(target[None, has], weight[has] if len(weight) else weight) for target in label for has in [~np.isnan(target)]]
        scores = [score for part in parts for score in _base_scores(*part, 1, objective, backend, comm)]
    return tuple(float(np.float32(score)) for score in scores)


def given_base_score(given: Sequence[float], n_outputs: int) -> tuple[float, ...]:
    """The same rounding, of numbers that a user gives: one per output, or one for all. Raises ValueError for another count."""
    if len(given) not in (1, n_outputs):
        raise ValueError(f"base_score must be one number or one per output ({n_outputs}), got {len(given)}. Leave it out.")
    return tuple(float(np.float32(score)) for score in given) * (n_outputs // len(given))


def check_start(scores: Sequence[float], objective: Objective) -> None:
    """ValueError where margins cannot start at these base scores, one per output."""
    if not np.isfinite(objective.base_margin(np.array(scores, np.float32))).all():
        raise ValueError(f"base_score of {objective.name} must be above 0, got 0: margins start at its logarithm. Leave it out.")


def _base_scores(
    label: np.ndarray, weight: np.ndarray, n_outputs: int, objective: Objective, backend: Backend, comm: Communicator,
    lacks_labels: bool = False,
) -> list[float]:  # fmt: skip
    """Of these rows. label : float32 (n_label_rows, n_rows). lacks_labels : whether rows count for nothing because of that."""
    on_device = backend.memory.put(np.ascontiguousarray(label))
    sums = RowSums(backend, comm, on_device, on_device, backend.memory.put(weight))
    if not sums.total_weight > 0:
        check_count(comm.allgather_int(label.shape[1]))
        what = "label is missing in every row of positive weight" if lacks_labels else "weight is zero for every row"
        fix = "labels" if lacks_labels else "a positive weight"
        raise ValueError(f"{what}, so there is nothing to train on. Give some rows {fix}.")
    return list(objective.base_score(sums, n_outputs))


def check_labels(dmatrix: DMatrix, objective: Objective, n_targets: int | None = None) -> None:
    """ValueError for labels of positive weight outside the objective's domain, or for a number of label columns that is not
    the model's."""
    labels = dmatrix.labels_for(objective.label_rows)
    if objective.label_rows == 2 and dmatrix.has_bounds and dmatrix.lacks_labels:
        what = "takes the bounds, but rows without a label beside them count for nothing"
        raise ValueError(f"{objective.name} {what}. Leave label out.")
    if n_targets is not None and len(labels) != objective.n_label_rows(n_targets):
        raise ValueError(f"the labels have {len(labels)} columns, the model has {n_targets} targets.")
    if objective.ranks_queries:
        with dmatrix.naming_rows():
            objective.check_queries(dmatrix.queries)
    rows = np.flatnonzero(dmatrix.weights > 0) if len(dmatrix.weights) else np.arange(dmatrix.num_row())
    labels = labels[:, rows] if len(dmatrix.weights) else labels
    if not dmatrix.masks_labels:
        with dmatrix.naming_rows(rows):
            objective.check_labels(labels)
        return
    if objective.label_rows != 1 or objective.row_gradient or objective.stage or objective.leaf_alphas(1):
        raise ValueError(f"{objective.name} needs all labels of a row that has some. Drop the rows that lack one.")
    for target in labels:
        has = ~np.isnan(target)
        with dmatrix.naming_rows(rows[has]):
            objective.check_labels(target[None, has])


def check_count(rows: list[int]) -> None:
    """ValueError where no worker has a row to train on. rows : of each worker."""
    if sum(rows) == 0:
        raise ValueError("the training data has 0 rows. Pass at least one row.")
