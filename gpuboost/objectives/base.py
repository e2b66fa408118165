"""What an objective is: scalar formulas for the kernels, and the few facts that training needs."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, ClassVar

import numpy as np

from gpuboost.backend.row_sums import RowSums
from gpuboost.kernels.gradients import elementwise_gradients, elementwise_gradients_kernel

__all__ = ["Objective", "invalid_labels"]


class Objective(ABC):
    """A loss. Subclasses are registered under their XGBoost names by ``objectives.register``.

    parameters : float32 numbers handed to the scalar functions.
    """

    name: ClassVar[str]
    default_metric: ClassVar[str]
    n_classes: int = 0  # of a multi-class objective

    def __init__(self, params: Any) -> None:
        self.params = params
        self.parameters: tuple[np.float32, ...] = (np.float32(0.0),)

    def n_outputs(self, n_targets: int) -> int:
        """Margins per row."""
        return n_targets

    def check_labels(self, label: np.ndarray) -> None:  # noqa: B027 - most objectives accept any finite label
        """ValueError naming count and first index where float32 labels (n_targets, n_rows) are outside the objective's domain."""

    @property
    def gradients_cpu(self) -> Any:
        """The compiled kernel of kernels/gradients.py; for outputs that depend on each other a subclass gives its own."""
        return elementwise_gradients(self.gradient)

    @property
    def gradients_kernel(self) -> Any:
        """The same as a CUDA kernel."""
        return elementwise_gradients_kernel(self.gradient)

    @abstractmethod
    def base_score(self, labels: RowSums, n_outputs: int) -> Iterable[float]:
        """argmin of the summed loss over one constant per output, in the space of the model file (see base_margin).

        labels : sums over the labels of all training rows of all workers; its ``prediction`` is not to be used.
        """

    @abstractmethod
    def base_margin(self, base_score: np.ndarray) -> np.ndarray:
        """float32 margins of float32 base scores, one per output."""

    #: Scalar function (margin, label, parameters) -> (g, h) of kernels/gradients.py, as a staticmethod.
    gradient: ClassVar[Any] = None
    #: Scalar function (margin, i, out) of kernels/reduce.py that turns margins into what metrics see; None: they are the same.
    row_map: ClassVar[Any] = None
    #: The same for what predict returns, where that differs; the prediction is then row 0 of the result.
    predict_map: ClassVar[Any] = None

    def file_params(self) -> dict[str, dict[str, str]]:
        """The objective's parameters as XGBoost's model file names them."""
        return {}


def invalid_labels(label: np.ndarray, is_bad: np.ndarray, name: str, allowed: str, fix: str) -> ValueError:
    """The error for labels outside an objective's domain: how many, and where the first one is."""
    first = int(np.flatnonzero(is_bad.any(axis=0))[0])
    value = label[:, first][is_bad[:, first]][0]
    return ValueError(
        f"{name} needs labels that are {allowed}; {int(is_bad.sum())} of {label.size} are not, "
        f"the first at row {first}: {value:g}. {fix}"
    )
