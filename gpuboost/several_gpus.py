"""train() on several GPUs of one machine: a thread for each, which is a worker with a part of the rows."""

from collections.abc import Callable, Mapping, Sequence
from contextvars import copy_context
from copy import deepcopy
from functools import partial
from typing import Any

import numpy as np

from gpuboost.booster import Booster
from gpuboost.callback import EvalsLog, TrainingCallback
from gpuboost.communicator import current_communicator, run_threads, use_communicator
from gpuboost.data.dmatrix import DMatrix
from gpuboost.errors import RowError
from gpuboost.network.gpus import GpuWorker

__all__ = ["gpus_of", "train_on_gpus"]


def gpus_of(device: str) -> list[str]:
    """The devices that params.device names, where it names several GPUs; else none. Raises DeviceNotFoundError where "cuda:all"
    finds none, ValueError on a worker. (Booster.update and cv use the first of several.)"""
    if "," not in device and device != "cuda:all":
        return []
    if current_communicator().size > 1:
        raise ValueError(f"device must name one GPU where workers train together, got {device!r}. Start a worker for each.")
    if device != "cuda:all":
        return device.split(",")
    from gpuboost.backend.cuda.device import count_devices

    n_gpus = count_devices()
    return [f"cuda:{number}" for number in range(n_gpus)] if n_gpus > 1 else []


def train_on_gpus(
    gpus: Sequence[str], train: Callable[..., Booster], params: Mapping[str, Any], dtrain: DMatrix,
    evals: Sequence[tuple[DMatrix, str]], callbacks: Sequence[TrainingCallback] | None, evals_result: EvalsLog | None,
) -> Booster:  # fmt: skip
    """train(params, dtrain, …) on each GPU with its rows; all end up with the same model.

    The rows are shared out evenly, queries whole. Callbacks are the given ones for the first GPU, copies for the others. What
    goes wrong on one GPU ends the others' work, and is raised.
    """
    matrices = {id(matrix): matrix for matrix in (dtrain, *(matrix for matrix, _ in evals))}
    parts = {key: _parts(matrix, len(gpus)) for key, matrix in matrices.items()}
    contexts, wrong = [copy_context() for _ in gpus], []
    workers: list[GpuWorker | None] = [None for _ in gpus]
    own_callbacks = [list(callbacks or ()), *(deepcopy(list(callbacks or ())) for _ in gpus[1:])]

    def train_here(rank: int, worker: GpuWorker) -> Booster:
        with use_communicator(worker):
            return train(
                {**params, "device": gpus[rank]}, parts[id(dtrain)][rank], callbacks=own_callbacks[rank],
                evals=[(parts[id(matrix)][rank], name) for matrix, name in evals],
                evals_result=evals_result if rank == 0 else None,
            )  # fmt: skip

    def work(rank: int) -> Booster:
        workers[rank] = worker = GpuWorker(current_communicator())
        try:
            return contexts[rank].run(train_here, rank, worker)
        except BaseException as error:
            wrong.append(error)
            for other in filter(None, workers):
                other.abort()
            raise

    try:
        return run_threads(len(gpus), work)[0]
    except BaseException:
        if wrong:
            known = [error for error in wrong if isinstance(error, RowError)]  # who has the row says more than the others
            raise (known or wrong)[0] from None  # the others only lost it
        raise


def _parts(matrix: DMatrix, n: int) -> list[DMatrix]:
    """Rows in n runs of about as many, no query in two."""
    n_rows, first = matrix.num_row(), matrix.queries.first
    ends = np.array([n_rows * i // n for i in range(n + 1)])
    if matrix.queries.is_given:
        ends = first[np.searchsorted(first, ends)]
    parts = [matrix.slice(np.arange(begin, end), allow_groups=True) for begin, end in zip(ends, ends[1:])]
    for part, begin in zip(parts, ends.tolist()):
        part.row_name = partial(_row_name, matrix, begin)
    return parts


def _row_name(matrix: DMatrix, begin: int, row: int) -> str:
    """What errors call a row of a part."""
    return matrix.row_name(begin + row) if matrix.row_name else str(begin + row)
