"""From a DMatrix to the rows that a backend trains on: labels checked, base_score estimated, starting margins filled in."""

from collections.abc import Sequence

import numpy as np

from gpuboost.backend.contract import Array, Backend, TrainingRows
from gpuboost.backend.row_sums import RowSums
from gpuboost.communicator import Communicator
from gpuboost.data.dmatrix import DMatrix
from gpuboost.kernels.gradients import KEPT_BITS
from gpuboost.objectives import Objective

__all__ = ["check_labels", "collect_rows", "custom_gradients", "estimate_base_score", "finished_prediction", "start_margin"]


def estimate_base_score(dtrain: DMatrix, objective: Objective, backend: Backend, comm: Communicator) -> tuple[float, ...]:
    """One base score per output, rounded to float32 as the model file's readers do: the constant that minimises the loss.

    Raises ValueError for labels outside the objective's domain, and when all weights are 0.
    """
    label = dtrain.labels
    check_labels(dtrain, objective)
    on_device = backend.memory.put(label)
    sums = RowSums(backend, comm, on_device, on_device, backend.memory.put(dtrain.weights))
    if not sums.total_weight > 0:
        _check_count(comm.allgather_int(label.shape[1]))
        raise ValueError("weight is zero for every row, so there is nothing to train on. Give some rows a positive weight.")
    scores = objective.base_score(sums, objective.n_outputs(len(label)))
    return tuple(float(np.float32(score)) for score in scores)


def check_labels(dmatrix: DMatrix, objective: Objective, n_targets: int | None = None) -> None:
    """ValueError for labels of positive weight outside the objective's domain, or for a wrong number of label columns."""
    labels = dmatrix.labels
    if n_targets not in (None, len(labels)):
        raise ValueError(f"the labels have {len(labels)} columns, the model has {n_targets} targets.")
    objective.check_labels(labels[:, dmatrix.weights > 0] if len(dmatrix.weights) else labels)


def start_margin(
    dmatrix: DMatrix, n_rows: int, base_score: Sequence[float] | np.ndarray, objective: Objective | None, n_outputs: int
) -> np.ndarray:
    """New float32 (n_outputs, n_rows): base_margin where the matrix has one, else the margin of base_score, which without an
    objective is that margin itself."""
    given = dmatrix.base_margins
    if given is not None:
        if len(given) not in (1, n_outputs):
            raise ValueError(f"base_margin has {len(given)} columns, the model has {n_outputs} outputs. Give one for each.")
        return np.repeat(given, n_outputs // len(given), axis=0)
    scores = np.asarray(base_score, np.float32)
    margins = objective.base_margin(scores) if objective is not None else scores
    return np.repeat(np.broadcast_to(margins, (n_outputs,))[:, None], n_rows, axis=1)


def collect_rows(
    dtrain: DMatrix, margin: Array, max_bin: int, backend: Backend, comm: Communicator
) -> TrainingRows:
    """What Backend.start_training wants. Raises ValueError for a table without rows."""
    n_kept = np.count_nonzero(dtrain.weights) if len(dtrain.weights) else dtrain.num_row()
    kept = comm.allgather_int(int(n_kept))
    _check_count(kept)
    dtrain.require_same_columns(comm)
    return TrainingRows(
        binned=dtrain.binned(max_bin, backend, comm),
        label=dtrain.labels,
        weight=dtrain.weights,
        margin=margin,
        global_rows=sum(kept),
        first_row=sum(kept[: comm.rank]),
    )


def _check_count(rows: list[int]) -> None:
    if sum(rows) == 0:
        raise ValueError("the training data has 0 rows. Pass at least one row.")


def finished_prediction(prediction: Array, strict_shape: bool) -> Array:
    """float32 (n_outputs, n_rows) as the user sees it: (n_rows,) for one output, else (n_rows, n_outputs)."""
    return prediction[0].copy() if len(prediction) == 1 and not strict_shape else prediction.T.copy(order="C")


def custom_gradients(obj, margin: np.ndarray, dtrain: DMatrix) -> tuple[np.ndarray, np.ndarray]:
    """Gradients of a user's objective obj(predictions, dtrain) -> (grad, hess), as float32 (n_outputs, n_rows).

    The function sees raw margins in predict's shape, and applies weights itself (as with XGBoost). Rows of weight 0 get 0.
    Raises ValueError when the arrays returned do not have the predictions' shape.
    """
    prediction = finished_prediction(margin, False)
    pair = []
    for name, values in zip(("grad", "hess"), obj(prediction.copy(), dtrain)):
        values = np.asarray(values, np.float32)
        if values.shape not in (prediction.shape, (len(prediction), 1) if prediction.ndim == 1 else prediction.shape):
            raise ValueError(f"{name} of the custom objective has shape {values.shape}, the predictions have {prediction.shape}.")
        columns = np.ascontiguousarray(values.reshape(prediction.shape).T).reshape(margin.shape)
        columns = (columns.view(np.uint32) & np.uint32(KEPT_BITS)).view(np.float32)  # kernels/gradients.py, cut
        pair.append(np.where(dtrain.weights > 0, columns, np.float32(0)) if len(dtrain.weights) else columns)
    return pair[0], pair[1]
