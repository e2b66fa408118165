"""Training with workers that somebody else has started, Spark, MPI or a shell: XGBoost's collective.

    tracker = gpuboost.RabitTracker(n_workers=2, host_ip="10.0.0.1")    # anywhere, once
    tracker.start()
    args = tracker.worker_args()                                        # for the workers, and nobody else

    with gpuboost.collective.CommunicatorContext(**args):               # in every worker, with its own rows
        booster = gpuboost.train(params, gpuboost.DMatrix(X, label=y))

All workers get one model, that of the rows of rank 0, 1, …, one below the other, and must make the same calls. Where one fails or
is lost, the others raise ConnectionError; training goes on from its last checkpoint (train's resume_from) when all begin anew.
On a Dask cluster gpuboost.dask does all this by itself.

A worker is the thread, or asynchronous task, that calls init. Connections prove the tracker's token, but are not encrypted: who
holds it is trusted, broadcast unpickles what it sends.
"""

import os
import pickle
import socket
from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass
from enum import IntEnum, unique
from typing import Any

import numpy as np

from gpuboost.communicator import Communicator, SingleProcess, current_communicator, set_communicator
from gpuboost.errors import not_built
from gpuboost.network import Listener, TcpWorker, join
from gpuboost.network.gpus import GpuWorker
from gpuboost.tracker import TrackerCall

__all__ = [
    "CommunicatorContext", "Config", "Op", "allreduce", "broadcast", "communicator_print", "finalize", "get_processor_name",
    "get_rank", "get_world_size", "init", "is_distributed", "signal_error",
]  # fmt: skip

PATIENCE = 60.0  # seconds for the tracker to be there
SILENCE = 30.0  # seconds after which a worker that says nothing is lost
NAMES = (
    "dmlc_tracker_uri", "dmlc_tracker_port", "gpuboost_token", "dmlc_task_id", "dmlc_timeout", "dmlc_worker_port",
    "dmlc_communicator",
)  # fmt: skip
NOT_NEEDED = {"dmlc_retry", "dmlc_nccl_path"}


@dataclass(frozen=True)
class Config:
    """How workers wait for each other; XGBoost's names, and its class is taken as well.

    timeout : seconds after which a worker that says nothing is lost; 30 by default. Signs of life come from it all the time, also
    while it computes. retry : on a Dask cluster, attempts one after another that bring no new round, after the first; 10 by
    default. The others are accepted and not needed: Dask's scheduler serves, and ports are free ones.
    """

    retry: int | None = None
    timeout: float | None = None
    tracker_host_ip: str | None = None
    tracker_port: int | None = None
    tracker_timeout: float | None = None
    worker_port: int | Callable[[], int] | None = None

    def get_comm_config(self, args: dict[str, Any]) -> dict[str, Any]:
        """args, those of init, with retry and timeout where they are set here."""
        given = {"dmlc_retry": self.retry, "dmlc_timeout": self.timeout}
        args.update({name: value for name, value in given.items() if value is not None})
        return args

    def update_worker_args(self, args: dict[str, Any]) -> dict[str, Any]:
        """args, those of init, with worker_port where it is set here: the number, or what the function returns in this worker."""
        if self.worker_port is not None:
            args["dmlc_worker_port"] = self.worker_port() if callable(self.worker_port) else self.worker_port
        return args


@dataclass
class _Membership:
    communicator: GpuWorker
    call: TrackerCall
    before: Communicator


_membership: ContextVar[_Membership | None] = ContextVar("gpuboost_membership", default=None)


def init(**args: Any) -> None:
    """Become one of the workers that a tracker brings together; wait until all are there.

    args : those of tracker.worker_args(), also as environment variables in capitals; without a tracker this is the only worker.
    dmlc_task_id : a name, to sort ranks by. dmlc_timeout : seconds after which a worker that says nothing is lost, 30.
    dmlc_worker_port : where the others reach this one, by default a free port. XGBoost's others are not needed.
    Raises ConnectionError where the tracker cannot be reached or does not take this worker, ValueError for unknown arguments.
    """
    given: dict[str, Any] = {name: os.environ.get(name.upper()) if args.get(name) is None else args[name] for name in NAMES}
    if given["dmlc_communicator"] not in (None, "rabit"):
        raise not_built(f"dmlc_communicator={given['dmlc_communicator']!r}", "Built: 'rabit'.")
    if unknown := args.keys() - {*NAMES} - NOT_NEEDED:
        raise ValueError(f"unknown arguments: {', '.join(sorted(unknown))}. Known are {', '.join(NAMES)}.")
    if given["dmlc_tracker_uri"] is None:
        return
    if _membership.get() is not None:
        raise RuntimeError("this worker has been initialised already. Call finalize() first.")
    if given["gpuboost_token"] is None:
        raise ValueError("gpuboost_token is missing. Pass all that tracker.worker_args() returns.")
    if given["dmlc_tracker_port"] is None:
        raise ValueError("dmlc_tracker_port is missing. Pass all that tracker.worker_args() returns.")
    token, timeout = str(given["gpuboost_token"]), float(given["dmlc_timeout"] or 0) or SILENCE
    call, listener = TrackerCall((given["dmlc_tracker_uri"], int(given["dmlc_tracker_port"])), PATIENCE), None
    try:
        listener = Listener(call.host, port=int(given["dmlc_worker_port"] or 0))
        place = call.place(listener.address[1], str(given["dmlc_task_id"] or ""), token)
        if len(place.addresses) == 1:
            communicator = GpuWorker(SingleProcess())
        else:
            communicator = GpuWorker(
                join(listener, place.rank, place.addresses, place.names, token.encode(), timeout, meeting_timeout=PATIENCE)
            )
    except BaseException:
        call.end(is_done=False)
        raise
    finally:
        if listener is not None:
            listener.close()
    _membership.set(_Membership(communicator, call, current_communicator()))
    set_communicator(communicator)


def finalize() -> None:
    """Wait for the other workers to finish, too, and work alone from now on."""
    _leave(None)


def signal_error() -> None:
    """Tell the other workers that this one has failed: they raise ConnectionError. It works alone from now on."""
    _leave(RuntimeError("it has signalled an error"))


def _leave(error: BaseException | None) -> None:
    member = _membership.get()
    if member is None:
        return
    _membership.set(None)
    set_communicator(member.before)
    host, is_done = member.communicator.host, False
    try:
        if isinstance(host, TcpWorker):
            if error is None:
                host.leave()
            else:
                host.abort(error)
                member.communicator.abort()
                host.close()
        is_done = error is None
    finally:
        member.call.end(is_done)


class CommunicatorContext:
    """``with CommunicatorContext(**args):`` init(**args) before, finalize() after it, signal_error() after an exception."""

    def __init__(self, **args: Any) -> None:
        self.args = args

    def __enter__(self) -> dict[str, Any]:
        init(**self.args)
        return self.args

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if error is None:
            finalize()
        else:
            with suppress(ConnectionError):
                _leave(error)


def get_rank() -> int:
    """This worker's number, from 0."""
    return current_communicator().rank


def get_world_size() -> int:
    """How many workers there are."""
    return current_communicator().size


def is_distributed() -> bool:
    """Whether init has found other workers, or a tracker that has this one only."""
    return _membership.get() is not None or get_world_size() > 1


def get_processor_name() -> str:
    """This machine's name."""
    return socket.gethostname()


def communicator_print(msg: Any) -> None:
    """Print in this worker."""
    print(str(msg).strip(), flush=True)


def broadcast(data: Any, root: int) -> Any:
    """The data of worker ``root``, anything that can be pickled. All must call it."""
    communicator = current_communicator()
    if root not in range(communicator.size):
        raise ValueError(f"root must be the rank of one of {communicator.size} workers, got {root!r}.")
    text = pickle.dumps(data, protocol=pickle.HIGHEST_PROTOCOL) if communicator.rank == root else b""
    n = max(communicator.allgather_int(len(text)))
    words = np.frombuffer(text.ljust(-(-n // 8) * 8, b"\0"), np.int64).copy()
    communicator.allreduce_sum(words)
    return data if communicator.rank == root else pickle.loads(words.tobytes()[:n])


@unique
class Op(IntEnum):
    """What allreduce does with the values of all workers."""

    MAX = 0
    MIN = 1
    SUM = 2
    BITWISE_AND = 3
    BITWISE_OR = 4
    BITWISE_XOR = 5


REDUCE: dict[Op, Callable[..., Any]] = {
    Op.MAX: np.maximum.reduce, Op.MIN: np.minimum.reduce, Op.SUM: np.add.reduce, Op.BITWISE_AND: np.bitwise_and.reduce,
    Op.BITWISE_OR: np.bitwise_or.reduce, Op.BITWISE_XOR: np.bitwise_xor.reduce,
}  # fmt: skip


def allreduce(data: np.ndarray, op: Op) -> np.ndarray:
    """An array of numbers, like data, of which every worker has one of the same shape and dtype: op over them, in the order of
    ranks. All must call it; for small arrays, as each worker gets those of all."""
    if not isinstance(data, np.ndarray):
        raise TypeError(f"allreduce takes a NumPy array, got {type(data).__name__}.")
    if data.dtype.kind not in "biuf":
        raise TypeError(f"allreduce takes numbers, got {data.dtype}.")
    reduce = REDUCE[Op(op)]
    values = np.ascontiguousarray(data, data.dtype.newbyteorder("="))
    words = np.frombuffer(values.tobytes().ljust(-(-values.nbytes // 8) * 8, b"\0"), np.int64)
    of_all = [row.tobytes()[: values.nbytes] for row in current_communicator().allgather(words)]
    every = [np.frombuffer(own, values.dtype).reshape(data.shape) for own in of_all]
    return np.asarray(reduce(every, axis=0, dtype=values.dtype))
