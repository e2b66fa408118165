"""A user's own objective: its gradients, checked, as a backend takes them."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np

from gpuboost.backend.contract import Array
from gpuboost.config import verbosity_context, warn
from gpuboost.data.dmatrix import DMatrix
from gpuboost.errors import not_built
from gpuboost.kernels.gradients import KEPT_BITS
from gpuboost.margins import finished_prediction

__all__ = [
    "CustomObjective", "GivenGradients", "Objective", "TreeObjective", "custom_gradients", "of_round",
    "warn_of_negative_hessians",
]  # fmt: skip


class Objective(ABC):
    """Base class of objectives that are told the round. xgboost.objective's class of the same name."""

    @abstractmethod
    def __call__(self, iteration: int, y_pred: Array, dtrain: DMatrix) -> tuple[Array, Array]:
        """(grad, hess) at raw margins, weights applied."""


class TreeObjective(Objective):
    """The same; of XGBoost's split_grad, gradients of fewer outputs to search splits by, only None is built."""

    def split_grad(self, iteration: int, grad: Array, hess: Array) -> tuple[Array, Array] | None:
        """None: splits are searched by all outputs, or as the parameter output_sketch says."""
        return None


GivenGradients = Callable[[Array, DMatrix], tuple[Array, Array]]  # (predictions, dtrain) -> (grad, hess)
CustomObjective = GivenGradients | Objective


def of_round(obj: CustomObjective | None, iteration: int | None) -> GivenGradients | None:
    """The objective as it is in one round."""
    if not isinstance(obj, Objective):
        return obj

    def gradients(prediction: Array, dtrain: DMatrix) -> tuple[Array, Array]:
        returned = obj(iteration or 0, prediction, dtrain)
        if isinstance(obj, TreeObjective) and _is_pair(returned) and obj.split_grad(iteration or 0, *returned) is not None:
            raise not_built("split_grad of a TreeObjective", "Return None, and use output_sketch, as 'top_outputs:5'.")
        return returned

    return gradients


def _is_pair(returned: Any) -> bool:
    return hasattr(returned, "__len__") and len(returned) == 2


def custom_gradients(obj: GivenGradients, margin: np.ndarray, dtrain: DMatrix) -> tuple[np.ndarray, np.ndarray]:
    """Gradients of a user's objective obj(predictions, dtrain) -> (grad, hess), as float32 (n_outputs, n_rows).

    The function sees raw margins in predict's shape, and applies weights itself (as with XGBoost). Rows of weight 0 get 0.
    Raises TypeError when it returns no pair of real numbers, ValueError when the arrays do not have the predictions' shape.
    """
    prediction = finished_prediction(margin, False)
    returned, pair = obj(prediction.copy(), dtrain), []
    if not _is_pair(returned):
        raise TypeError(f"a custom objective must return (grad, hess), one number each per prediction, got {returned!r:.60}.")
    for name, values in zip(("grad", "hess"), returned):
        values = _numbers(name, values)
        if values.shape not in (prediction.shape, (len(prediction), 1) if prediction.ndim == 1 else prediction.shape):
            raise ValueError(f"{name} of the custom objective has shape {values.shape}, the predictions have {prediction.shape}.")
        columns = np.ascontiguousarray(values.reshape(prediction.shape).T).reshape(margin.shape)
        columns = (columns.view(np.uint32) & np.uint32(KEPT_BITS)).view(np.float32)  # kernels/gradients.py, cut
        columns = np.where(dtrain.weights > 0, columns, np.float32(0)) if len(dtrain.weights) else columns
        pair.append(np.where(np.isnan(dtrain.labels), np.float32(0), columns) if dtrain.masks_labels else columns)
    return pair[0], pair[1]


def _numbers(name: str, values: Any) -> np.ndarray:
    try:
        array = np.asarray(values)
        if array.dtype.kind not in "cSUMm":  # a complex number would lose a part; text and times are none
            return array.astype(np.float32)
    except (TypeError, ValueError):
        pass
    raise TypeError(f"{name} of the custom objective must be an array of real numbers, got {values!r:.60}.")


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
