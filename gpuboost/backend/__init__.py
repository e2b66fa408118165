"""Where the work is done: the contract (contract.py), and one backend per kind of device."""

import os
from functools import cache

import gpuboost
from gpuboost.backend.contract import Backend, TrainingRows
from gpuboost.backend.cpu import CpuBackend
from gpuboost.compiling import tell_of_compiling
from gpuboost.config import get_config, log
from gpuboost.kernels.jit import MAX_THREADS, after_fork_in_child, available_threads

__all__ = ["Backend", "CpuBackend", "TrainingRows", "choose_backend", "cpu_backend"]

# device="auto" takes the GPU from this many values (rows × columns) on. An estimate, not measured: below, a tree takes the CPU
# about as long as the GPU's launches (some 65 of them, a few µs each), and loading CuPy and the kernels takes a second or two.
MIN_CUDA_VALUES = 2_000_000


def choose_backend(device: str, nthread: int | None, *, n_values: int = 0, table_device: int | None = None) -> Backend:
    """The backend for a device of params.Params ("auto", "cpu", "cuda", "cuda:1"; of several GPUs the first).

    nthread : CPU threads; 0 or -1 is all that numba was started with (NUMBA_NUM_THREADS), or else OMP_NUM_THREADS, -2 all but
        one, and so on, as joblib counts; None is as configured. More than all are not available, fewer than one neither.
    n_values, table_device : rows × columns of the table to work on, and the CUDA device that it lies on. "cuda" goes where the
        table lies; "auto" does as well, and takes the GPU from MIN_CUDA_VALUES on, if there is one.
    Raises DeviceNotFoundError, saying what is missing, where CUDA is asked for and not to be had.
    """
    if device.startswith("cuda"):
        first = device.split(",")[0].removesuffix(":all")
        return _cuda_backend(int(first[5:]) if ":" in first else table_device or 0)
    if device == "auto" and (table_device is not None or (n_values >= MIN_CUDA_VALUES and _has_cuda())):
        return _cuda_backend(table_device or 0)
    return cpu_backend(nthread)


def cpu_backend(nthread: int | None) -> CpuBackend:
    """The CPU with so many threads, as choose_backend says."""
    nthread = get_config()["nthread"] if nthread is None else nthread
    if nthread == 1:  # needs none of numba's threads, which a fork would lose
        return CpuBackend(1)
    available = available_threads()
    wanted = nthread if nthread > 0 else min(available, _threads_of_openmp()) + 1 + min(nthread, -1)
    return CpuBackend(min(max(wanted, 1), available))


def _threads_of_openmp() -> int:
    """What OMP_NUM_THREADS leaves of all threads, as of XGBoost's, where numba has not been told a number of its own."""
    text = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
    return int(text) if text.isdecimal() and int(text) > 0 and "NUMBA_NUM_THREADS" not in os.environ else MAX_THREADS


def _cuda_backend(number: int) -> Backend:
    from gpuboost.backend.cuda import CudaBackend
    from gpuboost.backend.cuda.device import find_device

    return CudaBackend(find_device(number))


@cache
def _has_cuda() -> bool:
    """Whether CUDA kernels can run here; says why not where a GPU lacks only software."""
    from gpuboost.backend.cuda.device import has_gpu, usable_device

    if not has_gpu():
        return False
    problem = usable_device()
    if problem is not None:
        log(1, f"a GPU is there but cannot be used, so the CPU is: {problem}")
    return problem is None


tell_of_compiling()
if os.getpid() != gpuboost.process_id:
    after_fork_in_child()
