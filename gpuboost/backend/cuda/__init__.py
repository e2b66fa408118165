"""The contract on a CUDA GPU: Numba kernels on CuPy arrays, launched without waiting.

The host runs ahead of the device. It knows upper bounds (nodes of a level, rows of a page) and launches by them; how many nodes
there really are lies in ``progress`` on the device, where every kernel reads it (kernels/structs.py). Only these make the host
wait: finished trees when they are asked for, metrics, and trees deeper than SYNC_FREE_DEPTH or, leaf by leaf, of more than
LEAVES_AT_ONCE leaves, where the bounds grow beyond use (trees.py: one number per level, or per LEAVES_BETWEEN_READS splits).

Everything a training needs is allocated when it starts (plan.py); arrays by node grow only where a tree is deeper than that.
"""

from typing import TYPE_CHECKING

from gpuboost.backend.contract import Backend, TrainingRows
from gpuboost.backend.cuda.coder import CudaCoder
from gpuboost.backend.cuda.device import Device
from gpuboost.backend.cuda.memory import DeviceMemory
from gpuboost.backend.cuda.predictor import CudaPredictor
from gpuboost.backend.cuda.ranker import CudaRanker
from gpuboost.backend.cuda.reducer import CudaReducer
from gpuboost.backend.cuda.training import CudaTraining
from gpuboost.kernels.jit import available_threads
from gpuboost.params import Params

if TYPE_CHECKING:
    from gpuboost.backend.cuda.explainer import CudaExplainer

__all__ = ["CudaBackend"]


class CudaBackend(Backend):
    """One device."""

    name = "cuda"
    takes_sparse = True

    def __init__(self, device: Device) -> None:
        self.device = device
        self.memory = DeviceMemory(device)
        self.coder = CudaCoder(device)
        self.predictor = CudaPredictor(device)
        self.reducer = CudaReducer(device)
        self.ranker = CudaRanker(device)

    @property
    def n_threads(self) -> int:  # type: ignore[override]
        return available_threads()  # for what is done on the host: sparse tables are sorted there

    def describe(self) -> str:
        return f"{self.memory.name}, {self.device.name}"

    def explainer(self) -> "CudaExplainer":
        from gpuboost.backend.cuda.explainer import CudaExplainer

        return CudaExplainer(self.device)

    def start_training(
        self, rows: TrainingRows, params: Params, n_trees: int, leaf_size: int = 1, leaf_alphas: tuple[float, ...] = ()
    ) -> CudaTraining:
        with self.device.current():
            return CudaTraining(self.device, rows, params, n_trees, leaf_size, leaf_alphas)
