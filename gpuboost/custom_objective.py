"""A user's own objective: its gradients, checked, as a backend takes them."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from gpuboost.backend.contract import Array
from gpuboost.config import verbosity_context, warn
from gpuboost.data.dmatrix import DMatrix
from gpuboost.kernels.gradients import KEPT_BITS
from gpuboost.margins import finished_prediction

__all__ = [
    "CustomObjective", "Given", "GivenGradients", "Objective", "TreeObjective", "custom_gradients", "of_round",
    "warn_of_negative_hessians",
]  # fmt: skip


class Objective(ABC):
    """Base class of objectives that are told the round. xgboost.objective's class of the same name."""

    @abstractmethod
    def __call__(self, iteration: int, y_pred: Array, dtrain: DMatrix) -> tuple[Array, Array]:
        """(grad, hess) at raw margins, weights applied."""


class TreeObjective(Objective):
    """The same, of trees whose splits may be searched by other gradients than leaves are weighed by."""

    def split_grad(self, iteration: int, grad: Array, hess: Array) -> tuple[Array, Array] | None:
        """Gradients of a tree of all outputs (multi_strategy="multi_output_tree") by which its splits are searched, as an
        output_sketch of one's own: a pair of arrays (n_rows,) or (n_rows, k), k at most the number of outputs, weights applied.
        Leaves, and what is pruned, go by grad and hess, which __call__ has returned. xgboost.objective's method of the same name.

        None: splits are searched by all outputs, or as the parameter output_sketch says.
        """
        return None


class Given(NamedTuple):
    """Gradients of a round that a user's objective computed, or an objective on the host: float32 (n_outputs, n_rows) each.

    few : the same of fewer outputs, (k, n_rows), by which splits are searched; None: by all.
    """

    grad: np.ndarray
    hess: np.ndarray
    few: tuple[np.ndarray, np.ndarray] | None = None


class _Returned(NamedTuple):
    """What the methods of a TreeObjective have returned, not checked."""

    pair: Any
    few: Any


GivenGradients = Callable[[Array, DMatrix], tuple[Array, Array]]  # (predictions, dtrain) -> (grad, hess)
CustomObjective = GivenGradients | Objective


def of_round(obj: CustomObjective | None, iteration: int | None) -> GivenGradients | None:
    """The objective as it is in one round. Where labels are missing its split_grad is told gradients of 0, as leaves have."""
    if not isinstance(obj, Objective):
        return obj

    def gradients(prediction: Array, dtrain: DMatrix) -> tuple[Array, Array]:
        returned, few = obj(iteration or 0, prediction, dtrain), None
        if isinstance(obj, TreeObjective) and _is_pair(returned):
            grad, hess = returned
            if dtrain.masks_labels:
                labels = dtrain.get_label()
                grad, hess = (np.where(np.isnan(labels).reshape(np.shape(values)), 0, values) for values in returned)
            few = obj.split_grad(iteration or 0, grad, hess)
        return returned if few is None else _Returned(returned, few)

    return gradients


def _is_pair(returned: Any) -> bool:
    return hasattr(returned, "__len__") and len(returned) == 2


def custom_gradients(obj: GivenGradients, margin: np.ndarray, dtrain: DMatrix) -> Given:
    """Gradients of a user's objective obj(predictions, dtrain) -> (grad, hess).

    The function sees raw margins in predict's shape, and applies weights itself (as with XGBoost). Rows of weight 0 get 0.
    Raises TypeError when it returns no pair of real numbers, ValueError when the arrays do not have the predictions' shape, or
    split_grad's not that of at most as many outputs.
    """
    prediction = finished_prediction(margin, False)
    returned, few = obj(prediction.copy(), dtrain), None
    if isinstance(returned, _Returned):
        few, returned = _few_outputs(returned.few, margin.shape, dtrain), returned.pair
    if not _is_pair(returned):
        raise TypeError(f"a custom objective must return (grad, hess), one number each per prediction, got {returned!r:.60}.")
    pair = []
    for name, values in zip(("grad", "hess"), returned):
        values = _numbers(name, values)
        if values.shape not in (prediction.shape, (len(prediction), 1) if prediction.ndim == 1 else prediction.shape):
            raise ValueError(f"{name} of the custom objective has shape {values.shape}, the predictions have {prediction.shape}.")
        columns = _by_output(values, margin.shape, dtrain)
        pair.append(np.where(np.isnan(dtrain.labels), np.float32(0), columns) if dtrain.masks_labels else columns)
    return Given(pair[0], pair[1], few)


def _few_outputs(few: Any, shape: tuple[int, ...], dtrain: DMatrix) -> tuple[np.ndarray, np.ndarray]:
    """What split_grad returned, float32 (k, n_rows) each. shape : of the margins."""
    n_outputs, n_rows = shape
    if not _is_pair(few):
        raise TypeError(f"split_grad must return None or (grad, hess), one number each per row or more, got {few!r:.60}.")
    grad, hess = (_numbers(name, values, "split_grad") for name, values in zip(("grad", "hess"), few))
    k = grad.size // max(n_rows, 1)
    if grad.shape != hess.shape or grad.shape not in ((n_rows,), (n_rows, k)) or not 0 < k <= n_outputs:
        raise ValueError(
            f"grad and hess of split_grad have shapes {grad.shape} and {hess.shape}. Both must be ({n_rows},), or ({n_rows}, k) "
            f"with k from 1 to the {n_outputs} outputs."
        )
    return _by_output(grad, (k, n_rows), dtrain), _by_output(hess, (k, n_rows), dtrain)


def _by_output(values: np.ndarray, shape: tuple[int, ...], dtrain: DMatrix) -> np.ndarray:
    """Numbers of rows as float32 (n_outputs, n_rows), of which rows of weight 0 have 0."""
    columns = np.ascontiguousarray(values.reshape(shape[::-1]).T)
    columns = (columns.view(np.uint32) & np.uint32(KEPT_BITS)).view(np.float32)  # kernels/gradients.py, cut
    return np.where(dtrain.weights > 0, columns, np.float32(0)) if len(dtrain.weights) else columns


def _numbers(name: str, values: Any, giver: str = "the custom objective") -> np.ndarray:
    try:
        array = np.asarray(values)
        if array.dtype.kind not in "cSUMm":  # a complex number would lose a part; text and times are none
            return array.astype(np.float32)
    except (TypeError, ValueError):
        pass
    raise TypeError(f"{name} of {giver} must be an array of real numbers, got {values!r:.60}.")


def count_negative(hess: np.ndarray) -> int:
    """How many hessians are negative, but finite: −∞ is an error, as ∞ is."""
    return int(np.count_nonzero((hess < 0) & np.isfinite(hess)))


def warn_of_negative_hessians(hess: np.ndarray, verbosity: int | None) -> bool:
    """A UserWarning where some are. hess : float32 (n_outputs, n_rows). Returns whether there was one."""
    n_negative = count_negative(hess)
    if n_negative:
        with verbosity_context(verbosity):
            warn(
                f"{n_negative} of {hess.size} hessians of the custom objective are negative. They count as 0: sums of "
                "hessians are weights. Return a bound from above instead, such as the Gauss-Newton term.",
            )
    return n_negative > 0
