"""The contract on the CPU: NumPy arrays and numba kernels on ``n_threads`` threads. Their number changes no result."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from gpuboost.backend.contract import Backend, TrainingRows
from gpuboost.backend.cpu.coder import CpuCoder
from gpuboost.backend.cpu.memory import HostMemory
from gpuboost.backend.cpu.predictor import CpuPredictor
from gpuboost.backend.cpu.ranker import CpuRanker
from gpuboost.backend.cpu.reducer import CpuReducer
from gpuboost.backend.cpu.training import CpuTraining, trainings_abreast
from gpuboost.params import Params

if TYPE_CHECKING:
    from gpuboost.backend.cpu.explainer import CpuExplainer

__all__ = ["CpuBackend"]


class CpuBackend(Backend):
    """numba on some threads."""

    name = "cpu"
    takes_sparse = True

    def __init__(self, n_threads: int) -> None:
        self.n_threads = n_threads
        self.memory = HostMemory()
        self.coder = CpuCoder(n_threads)
        self.predictor = CpuPredictor(n_threads)
        self.reducer = CpuReducer(n_threads)
        self.ranker = CpuRanker(n_threads)

    def describe(self) -> str:
        return f"cpu, {self.n_threads} threads"

    def explainer(self) -> "CpuExplainer":
        from gpuboost.backend.cpu.explainer import CpuExplainer

        return CpuExplainer(self.n_threads)

    def start_training(
        self, rows: TrainingRows, params: Params, n_trees: int, leaf_size: int = 1, leaf_alphas: tuple[float, ...] = ()
    ) -> CpuTraining:
        return CpuTraining(rows, params, n_trees, leaf_size, leaf_alphas, self.n_threads)

    def start_trainings(
        self, n_plans: int, rows: TrainingRows, params: Params, n_trees: int, leaf_size: int = 1,
        leaf_alphas: tuple[float, ...] = (),
    ) -> Sequence[CpuTraining]:  # fmt: skip
        n = trainings_abreast(n_plans, rows, params, self.n_threads)
        if params.histogram_memory is not None:
            params = replace(params, histogram_memory=max(1, params.histogram_memory // n))
        trainings = [CpuTraining(rows, params, n_trees, leaf_size, leaf_alphas, self.n_threads // n)]
        rows = replace(rows, margin=trainings[0].margin)
        while len(trainings) < n:
            trainings.append(CpuTraining(rows, params, n_trees, leaf_size, leaf_alphas, self.n_threads // n))
        return trainings
