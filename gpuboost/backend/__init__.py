"""Where the work is done: the contract (base), and one backend per kind of device."""

from gpuboost.backend.base import Backend, GrowthSettings, TrainingRows
from gpuboost.backend.cpu import CpuBackend
from gpuboost.config import get_config, log
from gpuboost.kernels.jit import available_threads, set_compile_hook

__all__ = ["Backend", "GrowthSettings", "TrainingRows", "choose_backend"]


def choose_backend(device: str, nthread: int | None) -> Backend:
    """The backend for a device of params.Params ("auto", "cpu", "cuda", "cuda:1").

    nthread : CPU threads; 0 is all that numba was started with (NUMBA_NUM_THREADS), None is as configured. More than that are
        not available. Raises NotImplementedError for CUDA, which is not there yet.
    """
    if device not in ("auto", "cpu"):
        raise NotImplementedError(f"device={device!r}: the CUDA backend is not there yet in gpuboost. Use device='cpu'.")
    nthread = get_config()["nthread"] if nthread is None else nthread
    available = available_threads()
    return CpuBackend(min(nthread, available) if nthread > 0 else available)


def _announce_compilation() -> None:
    log(1, "compiling CPU kernels: once for this version and machine, up to half a minute; later runs load them from a cache.")


set_compile_hook(_announce_compilation)
