"""Everything that needs other workers' rows, as two operations on integers: sums and maxima.

A worker holds a shard of the rows. Integer sums and maxima do not depend on the order of their terms, so any number of workers
ends up with the same bits. ``SingleProcess`` is the one worker that has it all; ``run_threads`` plays several in one process.

    with use_communicator(comm):
        train(...)
"""

import json
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np

from gpuboost.arrays import on_device_of

__all__ = ["Communicator", "SingleProcess", "current_communicator", "run_threads", "set_communicator", "use_communicator"]


class Communicator(ABC):
    """One worker's end. Arrays are int64, of any shape, in the backend's memory (NumPy's
    functions dispatch to the array's own library), and changed in place.

    Every worker must make the same calls in the same order with arrays of the same shape.
    """

    rank: int = 0
    size: int = 1

    @abstractmethod
    def allreduce_sum(self, array: Any) -> None:
        """array ← Σ over workers."""

    @abstractmethod
    def allreduce_max(self, array: Any) -> None:
        """array ← elementwise maximum over workers."""

    def place(self, array: Any) -> Any:
        """A zeroed array of ``size`` rows like ``array`` with this worker's in row ``rank``: its sum gathers all of them."""
        gathered = np.zeros_like(array, shape=(self.size, *array.shape))
        gathered[self.rank] = array
        return gathered

    def allgather(self, array: Any) -> Any:
        """All workers' arrays (one shape), stacked in rank order."""
        gathered = self.place(array)
        self.allreduce_sum(gathered)
        return gathered

    def gather_columns(self, array: Any) -> Any:
        """All workers' columns side by side: (k, n) of each -> (k, Σ n), in rank order."""
        if self.size == 1:
            return array
        lengths = self.allgather_int(array.shape[1])
        padded = np.zeros_like(array, shape=(array.shape[0], max(lengths)))
        padded[:, : array.shape[1]] = array
        return np.concatenate([part[:, :n] for part, n in zip(self.allgather(padded), lengths)], axis=1)

    def allgather_int(self, value: int) -> list[int]:
        """One integer of every worker, in rank order."""
        if self.size == 1:
            return [value]
        return [int(v) for v in self.allgather(np.array([value], np.int64))[:, 0]]

    def allgather_json(self, value: Any) -> list[Any]:
        """A value of every worker that JSON can hold, in rank order."""
        text = np.frombuffer(json.dumps(value).encode(), np.uint8).astype(np.int64)
        lengths, joined = self.allgather_int(len(text)), self.gather_columns(text[None])[0].astype(np.uint8).tobytes()
        ends = np.cumsum(lengths).tolist()
        return [json.loads(joined[end - n : end]) for n, end in zip(lengths, ends)]

    def any(self, flag: bool) -> bool:
        """Whether the flag is set on any worker."""
        return max(self.allgather_int(int(flag))) > 0


class SingleProcess(Communicator):
    """One worker: nothing to exchange."""

    def allreduce_sum(self, array: Any) -> None:
        pass

    def allreduce_max(self, array: Any) -> None:
        pass


class _Meeting:
    """Where threads leave their arrays for each other."""

    def __init__(self, size: int) -> None:
        self.barrier = threading.Barrier(size)
        self.arrays: list[Any] = [None] * size


class ThreadWorker(Communicator):
    """A worker that is a thread of this process."""

    def __init__(self, rank: int, meeting: _Meeting) -> None:
        self.rank = rank
        self.size = len(meeting.arrays)
        self._meeting = meeting

    def allreduce_sum(self, array: Any) -> None:
        with on_device_of(array):
            self._exchange(array, np.add)

    def allreduce_max(self, array: Any) -> None:
        with on_device_of(array):
            self._exchange(array, np.maximum)

    def _exchange(self, array: Any, combine: Callable[[Any, Any], Any]) -> None:
        meeting = self._meeting
        meeting.arrays[self.rank] = array.copy()
        meeting.barrier.wait()
        if any(other is None for other in meeting.arrays):
            raise RuntimeError("a worker has finished while others still exchange arrays. All workers must make the same calls.")
        if any(other.shape != array.shape for other in meeting.arrays):
            raise ValueError(f"workers met with arrays of different shapes: {[a.shape for a in meeting.arrays]}.")
        result = meeting.arrays[0]
        for other in meeting.arrays[1:]:
            result = combine(result, other)
        array[...] = result
        meeting.barrier.wait()

    def leave(self) -> None:
        """Wait for the others to finish too; one that still wants to exchange an array finds out."""
        self._meeting.arrays[self.rank] = None
        self._meeting.barrier.wait()


_current: ContextVar[Communicator] = ContextVar("gpuboost_communicator", default=SingleProcess())  # noqa: B039 - it has no state


def current_communicator() -> Communicator:
    """The communicator that training in this context uses."""
    return _current.get()


def set_communicator(communicator: Communicator) -> None:
    """Let this context train as one worker of it from now on."""
    _current.set(communicator)


@contextmanager
def use_communicator(communicator: Communicator) -> Iterator[Communicator]:
    """Let everything inside the ``with`` block train as one worker of ``communicator``."""
    token = _current.set(communicator)
    try:
        yield communicator
    finally:
        _current.reset(token)


def run_threads(size: int, work: Callable[[int], Any]) -> list[Any]:
    """Run ``work(rank)`` in ``size`` threads that are each other's workers; their results in rank order.

    An exception in one worker is raised here, after the others were released from waiting for it; RuntimeError when one finishes
    while others wait for it.
    """
    meeting = _Meeting(size)
    results: list[Any] = [None] * size
    errors: list[BaseException] = []

    def run(rank: int) -> None:
        worker = ThreadWorker(rank, meeting)
        try:
            with use_communicator(worker):
                results[rank] = work(rank)
                worker.leave()
        except threading.BrokenBarrierError:
            pass
        except BaseException as error:  # noqa: BLE001 - handed to the caller below
            errors.append(error)
            meeting.barrier.abort()

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return results
