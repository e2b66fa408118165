"""Sums over workers that have a GPU each: arrays there by NCCL, from GPU to GPU, and the others as the workers do without.

NCCL is asked for three things (CupyNccl): an identity that one worker makes and tells the others, a group of all who know it, and
a sum or maximum over the group. The call returns before it is done; the work launched behind it waits for it. Where a worker is
lost the others' GPUs wait for ever, unless their groups are aborted: whoever finds out does so (training on several GPUs, Dask's
client).

Not run on hardware yet: the tests have a stand-in for NCCL (tests/fake_cuda.py).
"""

import socket
from typing import Any
from zlib import crc32

import numpy as np

from gpuboost.arrays import on_device_of
from gpuboost.communicator import Communicator
from gpuboost.config import log
from gpuboost.network.links import WorkerLost

__all__ = ["GpuWorker"]


class CupyNccl:
    """NCCL through CuPy, in the process that has the GPU."""

    def __init__(self) -> None:
        import cupy

        nccl = cupy.cuda.nccl  # warns where the library is not there, and says how to get it
        self.is_available = bool(nccl.available)
        self._cupy, self._nccl = cupy, nccl

    def new_identity(self) -> np.ndarray:
        """int64 (128,): of a group that does not exist yet."""
        return np.array(self._nccl.get_unique_id(), np.int64)

    def join(self, size: int, identity: np.ndarray, rank: int) -> Any:
        """The group of that identity, once all have joined it, each on its current device."""
        return self._nccl.NcclCommunicator(size, tuple(identity.tolist()), rank)

    def reduce(self, group: Any, array: Any, is_maximum: bool) -> None:
        """Replace a contiguous int64 array on the current device by the sum or maximum over the group. Does not wait."""
        operation = self._nccl.NCCL_MAX if is_maximum else self._nccl.NCCL_SUM
        stream, place = self._cupy.cuda.get_current_stream().ptr, array.data.ptr
        group.allReduce(place, place, array.size, self._nccl.NCCL_INT64, operation, stream)

    def put(self, values: np.ndarray) -> Any:
        """A copy on the current device."""
        return self._cupy.asarray(values)

    def gpu(self) -> int:
        """A number of the current GPU, other than those of the others in all machines."""
        number = self._cupy.cuda.runtime.deviceGetPCIBusId(self._cupy.cuda.Device().id)
        return crc32(f"{socket.gethostname()} {number}".encode())


class GpuWorker(Communicator):
    """A worker whose arrays may lie on a GPU.

    host : the communicator for arrays in memory; for copies of all others, where NCCL cannot serve: it is not installed, or two
    workers have the same GPU.
    """

    def __init__(self, host: Communicator) -> None:
        self.rank, self.size, self.host = host.rank, host.size, host
        self._library: CupyNccl | None = None
        self._group: Any = None
        self._is_aborted = False

    def allreduce_sum(self, array: Any) -> None:
        self._reduce(array, is_maximum=False)

    def allreduce_max(self, array: Any) -> None:
        self._reduce(array, is_maximum=True)

    def abort(self) -> None:
        """From any thread: let this GPU wait for no others any more. What is summed afterwards raises WorkerLost."""
        self._is_aborted = True
        if self._group is not None:
            self._group.abort()

    def _reduce(self, array: Any, is_maximum: bool) -> None:
        on_host = self.host.allreduce_max if is_maximum else self.host.allreduce_sum
        if self._is_aborted:
            raise WorkerLost(f"worker {self.rank} has been told that others have given up")
        if self.size == 1 or not hasattr(array, "get"):
            return on_host(array)
        with on_device_of(array):
            library = self._met()
            if self._group is None:
                values = array.get()
                on_host(values)
                array[...] = library.put(values)
            elif array.size:
                whole = array if array.flags.c_contiguous else array.copy()
                try:
                    library.reduce(self._group, whole, is_maximum)
                except RuntimeError as error:  # as NCCL's are
                    raise WorkerLost(f"worker {self.rank} cannot reach the other GPUs: {error}") from None
                if whole is not array:
                    array[...] = whole

    def _met(self) -> CupyNccl:
        """The library, after joining the others' group where there can be one: before the first array of a device is summed."""
        if self._library is not None:
            return self._library
        self._library = library = CupyNccl()
        gpus = self.host.allgather_int(library.gpu() if library.is_available else -1)
        if min(gpus) < 0 or len({*gpus}) < self.size:
            log(1, f"sums go through memory: {'NCCL is not installed' if min(gpus) < 0 else 'workers share a GPU'}")
            return library
        identity = library.new_identity() if self.rank == 0 else np.zeros(128, np.int64)
        self.host.allreduce_sum(identity)
        self._group = library.join(self.size, identity, self.rank)
        return library
