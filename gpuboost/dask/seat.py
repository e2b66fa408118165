"""A worker's place in an attempt: its connections to the others, its matrices, and the rounds that it has finished.

    open_seat     its listener, whose address the client tells the others
    load          meet them, and make matrices of partitions, which Dask may forget afterwards
    work          do what the attempt is for
    end_seat      from the client: give up, or stop for others to join

One process may play several workers, so seats are known by the attempt and the worker's address. load and work leave their
threads to other tasks: those of two jobs would else hold threads of some workers each, and wait for those of the others.
"""

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from distributed import Worker, get_worker, secede

from gpuboost.communicator import Communicator, SingleProcess, current_communicator, use_communicator
from gpuboost.config import config_context
from gpuboost.dask.matrix import MatrixPlan, Origin, Part
from gpuboost.data.dmatrix import DMatrix
from gpuboost.model_io import dumps
from gpuboost.network import Listener, TcpWorker, WorkerLost, join
from gpuboost.network.gpus import GpuWorker
from gpuboost.training.checkpoint import Progress

__all__ = ["CommunicatorContext", "Meeting", "Outcome", "RoundKeeper", "end_seat", "load", "open_seat", "work"]


@dataclass(frozen=True)
class Meeting:
    """What the workers of an attempt have to know of each other. addresses : of their listeners, by rank. names : Dask's."""

    attempt: str
    addresses: list[tuple[str, int]]
    names: list[str]
    token: bytes = field(repr=False)
    meeting_timeout: float
    timeout: float


@dataclass(frozen=True)
class Outcome:
    """Of a worker's part in an attempt. is_done : result is there. Else progress is how far it came, and why it ended: lost names
    a worker that others wait for, is_silent whether it only stopped."""

    is_done: bool
    result: Any = None
    progress: Progress | None = None
    lost: str = ""
    is_silent: bool = False
    reason: str = ""


class GivenUp(Exception):
    """The client has called the attempt off, for others to join or for good."""


@dataclass
class Seat:
    listener: Listener
    communicator: GpuWorker | None = None
    matrices: list[DMatrix] = field(default_factory=list)
    ending: str | None = None  # "pause" or "stop": what the client has said


_seats: dict[tuple[str, str], Seat] = {}
_lock = threading.Lock()


def open_seat(attempt: str, dask_worker: Worker) -> tuple[str, int]:
    """Listen on the worker's own interface; where."""
    host = dask_worker.address.rpartition("://")[2].rpartition(":")[0].strip("[]")
    is_network = not dask_worker.address.startswith("inproc")
    contexts = None
    if is_network and dask_worker.address.startswith("tls"):
        security = dask_worker.security
        contexts = security.get_listen_args("worker")["ssl_context"], security.get_connection_args("worker")["ssl_context"]
    listener = Listener(host if is_network else "127.0.0.1", contexts)
    with _lock:
        _seats[attempt, dask_worker.address] = Seat(listener)
    return listener.address


def end_seat(attempt: str, how: str, dask_worker: Worker) -> None:
    """how : "pause" after the round, or "stop" as soon as can be."""
    with _lock:
        seat = _seats.get((attempt, dask_worker.address))
    if seat is None:
        return
    seat.ending = how
    if how == "stop" and seat.communicator is not None:
        _abort(seat.communicator, GivenUp("the client has ended the job"))


def load(
    meeting: Meeting, rank: int, plans: Sequence[MatrixPlan], origins: Sequence[Origin], parts: Sequence[Sequence[Part]]
) -> None:
    """Meet the other workers and make the matrices of the job. origins, parts : of each matrix, this worker's partitions."""
    secede()
    seat = _own_seat(meeting.attempt)
    try:
        seat.communicator = _met(meeting, rank, seat)
        with use_communicator(seat.communicator), config_context(nthread=get_worker().state.nthreads):
            for plan, own, origin in zip(plans, parts, origins):
                seat.matrices.append(plan.make(own, None if plan.ref is None else seat.matrices[plan.ref], origin))
    except BaseException as error:
        _leave(meeting.attempt, error)
        raise


def work(attempt: str, function: Callable[..., Any], progress: Progress | None) -> Outcome:
    """function(matrices, keep), which returns a result; keep is train's resume_from. Errors of the function itself are raised."""
    secede()
    seat, key = _own_seat(attempt), get_worker().get_current_task()
    assert seat.communicator is not None
    keeper = RoundKeeper(progress, seat, get_worker(), key)
    error: BaseException | None = None
    try:
        with use_communicator(seat.communicator), config_context(nthread=get_worker().state.nthreads):
            result = function(seat.matrices, lambda: keeper)
        outcome = Outcome(True, result)
    except WorkerLost as lost:
        error = lost
        outcome = Outcome(False, None, keeper.progress(), lost.name, lost.is_silent, str(lost))
    except GivenUp as ended:
        error = ended
        outcome = Outcome(False, None, keeper.progress(), reason=str(ended))
    except BaseException as wrong:
        _leave(attempt, wrong)
        raise
    _leave(attempt, error)
    return outcome


class RoundKeeper:
    """Keeps the last finished round of a training in memory (training.checkpoint.KeepsProgress)."""

    def __init__(self, progress: Progress | None, seat: Seat, worker: Worker, key: Any) -> None:
        self._given, self._seat, self._worker, self._key = progress, seat, worker, key
        self._latest: tuple[Any, ...] | None = None

    def load(self, most_rounds: int) -> Progress | None:
        return self._given

    def is_due(self, n_rounds: int) -> bool:
        return True

    def save(
        self, model: Any, n_rounds: int, evals_log: dict[str, dict[str, list[Any]]], states: list[dict[str, Any]], is_over: bool
    ) -> None:  # fmt: skip
        """Keep the round. Raises GivenUp, on all workers, where one of them is to stop."""
        latest = model.copy(), n_rounds, evals_log, states, is_over
        task = self._worker.state.tasks.get(self._key)
        is_wanted = task is not None and task.state in ("executing", "long-running")
        is_ending = current_communicator().any(self._seat.ending is not None or not is_wanted)
        self._latest = latest  # all were there to its end: no sum on a GPU was broken off
        if is_ending:
            raise GivenUp("the workers have been asked to stop")

    def progress(self) -> Progress | None:
        """How far the training has come."""
        if self._latest is None:
            return self._given
        model, n_rounds, evals_log, states, is_over = self._latest
        log = {data: {metric: values[:n_rounds] for metric, values in own.items()} for data, own in evals_log.items()}
        return Progress(n_rounds, model._recorded_params(), dumps(model.model, "ubj"), log, states, is_over)


class CommunicatorContext:
    """Inside a task of one's own, ``with CommunicatorContext(**args): gpuboost.train(...)`` trains with the other workers.

    args : what communicator_args has for this worker.
    """

    def __init__(self, *, meeting: Meeting, rank: int) -> None:
        self._meeting, self._rank = meeting, rank

    def __enter__(self) -> Communicator:
        seat = _own_seat(self._meeting.attempt)
        seat.communicator = _met(self._meeting, self._rank, seat)
        self._using = use_communicator(seat.communicator)
        return self._using.__enter__()

    def __exit__(self, *error: Any) -> None:
        self._using.__exit__(*error)
        _leave(self._meeting.attempt, error[1])


def _own_seat(attempt: str) -> Seat:
    with _lock:
        seat = _seats.get((attempt, get_worker().address))
    if seat is None:
        name = get_worker().address
        raise WorkerLost(f"worker {name} has begun anew, and does not know the job any more.", name)
    return seat


def _met(meeting: Meeting, rank: int, seat: Seat) -> GpuWorker:
    if len(meeting.addresses) == 1:
        seat.listener.close()
        return GpuWorker(SingleProcess())
    return GpuWorker(
        join(
            seat.listener, rank, meeting.addresses, meeting.names, meeting.token, meeting.timeout,
            meeting_timeout=meeting.meeting_timeout, is_given_up=lambda: seat.ending == "stop",
        )
    )  # fmt: skip


def _leave(attempt: str, error: BaseException | None) -> None:
    """End the connections, so that the others find out, and forget the matrices."""
    with _lock:
        seat = _seats.pop((attempt, get_worker().address), None)
    if seat is None:
        return
    seat.listener.close()
    if seat.communicator is not None and isinstance(host := seat.communicator.host, TcpWorker):
        with suppress(ConnectionError, RuntimeError, ValueError):
            if error is None:
                host.leave()
            else:
                _abort(seat.communicator, error)
                host.close()


def _abort(communicator: GpuWorker, reason: BaseException) -> None:
    if isinstance(communicator.host, TcpWorker):
        communicator.host.abort(reason)
    communicator.abort()
