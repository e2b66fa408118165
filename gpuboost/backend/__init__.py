"""Where the work is done: the contract (base), and one backend per kind of device."""

import numba

from gpuboost.backend.base import Backend, GrowthSettings, TrainingRows
from gpuboost.backend.cpu import CpuBackend
from gpuboost.config import get_config

__all__ = ["Backend", "GrowthSettings", "TrainingRows", "choose_backend"]


def choose_backend(device: str, nthread: int | None) -> Backend:
    """The backend for a device of params.Params ("auto", "cpu", "cuda", "cuda:1").

    nthread : CPU threads; 0 is all that numba was started with (NUMBA_NUM_THREADS), None is as configured. More than that are
        not available. Raises NotImplementedError for CUDA, which is not there yet.
    """
    if device not in ("auto", "cpu"):
        raise NotImplementedError(f"device={device!r}: the CUDA backend is not there yet in gpuboost. Use device='cpu'.")
    nthread = get_config()["nthread"] if nthread is None else nthread
    available = numba.get_num_threads()
    return CpuBackend(min(nthread, available) if nthread > 0 else available)
