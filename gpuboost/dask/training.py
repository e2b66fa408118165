"""train() and cv() on a cluster."""

import os
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any
from uuid import uuid4

import numpy as np
from distributed import Client, get_worker

from gpuboost.booster import Booster
from gpuboost.callback import EvalsLog, TrainingCallback
from gpuboost.collective import Config
from gpuboost.communicator import current_communicator
from gpuboost.config import config_context, get_config
from gpuboost.cross_validation import cv as cv_here
from gpuboost.custom_objective import CustomObjective
from gpuboost.dask.job import Job
from gpuboost.dask.matrix import DaskDMatrix, DaskQuantileDMatrix, client_of, synced
from gpuboost.dask.seat import Meeting, open_seat
from gpuboost.data.dmatrix import DMatrix
from gpuboost.positional import also_by_position
from gpuboost.training.checkpoint import KeepsProgress
from gpuboost.training.evaluate import CustomMetric, named_values
from gpuboost.training.loop import check_arguments, monitors
from gpuboost.training.loop import train as train_here

__all__ = ["communicator_args", "cv", "train", "train_matrices"]

Model = Booster | Mapping[str, Any] | str | os.PathLike[str] | bytes | bytearray


@also_by_position("evals", "obj")
def train(
    client: Client | None, params: Mapping[str, Any], dtrain: DaskDMatrix, num_boost_round: int = 10, *,
    evals: Sequence[tuple[DaskDMatrix, str]] | None = None, obj: CustomObjective | None = None,
    early_stopping_rounds: int | None = None, xgb_model: Model | None = None, verbose_eval: bool | int | None = True,
    callbacks: Sequence[TrainingCallback] | None = None, custom_metric: CustomMetric | None = None,
    coll_cfg: Config | None = None, maximize: bool | None = None,
) -> Any:  # fmt: skip
    """Train a model on the workers of a cluster: {"booster": Booster, "history": data name → metric name → values}.

    Arguments and meaning as gpuboost.train. The model is that of gpuboost.train on one machine with the same rows in the same
    order, byte for byte. client : None for the one at hand; of an asynchronous client the result is awaited. xgb_model may be
    what train has returned. callbacks run on every worker, each on a copy of its own; what they keep over the loss of a worker
    is what TrainingCallback.kept names. obj and custom_metric see a worker's own rows; the metric's value is the mean over the
    workers by their weights. params : nthread is that of each worker, by default Dask's number of threads. coll_cfg : Config.

    A worker that dies or hangs is found within seconds (Config.timeout where it hangs), Dask makes its partitions again, and the
    training goes on from the last finished round, on those that are there; workers that come join in between two rounds.
    dask.annotate(workers=[...]) around the call says which workers may take part.
    Raises RuntimeError where no worker is left or the scheduler is gone, and what gpuboost.train raises.
    """
    used = client_of(client)
    return synced(
        used, train_matrices, used, params, dtrain, num_boost_round, evals=evals, obj=obj, xgb_model=xgb_model,
        early_stopping_rounds=early_stopping_rounds, verbose_eval=verbose_eval, callbacks=callbacks, custom_metric=custom_metric,
        coll_cfg=coll_cfg, maximize=maximize,
    )  # fmt: skip


async def train_matrices(
    client: Client, params: Mapping[str, Any], dtrain: DaskDMatrix, num_boost_round: int, *,
    evals: Sequence[tuple[DaskDMatrix, str]] | None, xgb_model: Model | None, coll_cfg: Config | None, **arguments: Any,
) -> dict[str, Any]:  # fmt: skip
    """train, on the client's event loop."""
    check_arguments(
        num_boost_round, arguments["callbacks"], obj=arguments["obj"], custom_metric=arguments["custom_metric"]
    )  # fmt: skip
    pairs: list[tuple[DaskDMatrix, str]] = [(pair[0], pair[1]) for pair in evals or ()]
    for matrix in (dtrain, *(pair[0] for pair in pairs)):
        if not isinstance(matrix, DaskDMatrix):
            raise TypeError(f"dtrain and evals must hold DaskDMatrix objects, got {type(matrix).__name__}. Wrap it in one.")
    matrices = list({id(matrix): matrix for matrix in (dtrain, *(pair[0] for pair in pairs))}.values())
    places = [next(i for i, matrix in enumerate(matrices) if matrix is pair[0]) for pair in pairs]
    continued = xgb_model["booster"] if isinstance(xgb_model, Mapping) else xgb_model
    if continued is not None and not isinstance(continued, Booster):
        continued = Booster(model_file=continued)
    task = _Training(
        dict(params), int(num_boost_round), [(place, pair[1]) for place, pair in zip(places, pairs)], continued, get_config(),
        arguments,
    )  # fmt: skip
    booster, history = await Job(client, matrices, task, coll_cfg).run()
    return {"booster": booster, "history": history}


@dataclass(frozen=True)
class _Training:
    """What every worker does: train() on its rows. evals : numbers of matrices, and names."""

    params: dict[str, Any]
    n_rounds: int
    evals: list[tuple[int, str]]
    xgb_model: Booster | None
    config: dict[str, Any]
    arguments: dict[str, Any]

    def __call__(self, matrices: Sequence[DMatrix], keep: Callable[[], KeepsProgress]) -> tuple[Booster, EvalsLog]:
        history: EvalsLog = {}
        given = dict(self.arguments)
        metric = given.pop("custom_metric")
        resume_from = None if self.params.get("process_type") == "update" else keep  # it begins anew where a worker is lost
        given["callbacks"] = [*(given["callbacks"] or ()), *monitors(given.pop("verbose_eval"), logger=_print_at_client)]
        with config_context(verbosity=self.config["verbosity"]):
            booster = train_here(
                self.params, matrices[0], self.n_rounds, evals=[(matrices[i], name) for i, name in self.evals],
                evals_result=history, xgb_model=self.xgb_model, verbose_eval=None, resume_from=resume_from,
                custom_metric=None if metric is None else partial(_mean_over_workers, metric), **given,
            )  # fmt: skip
        return booster, history


def cv(
    client: Client | None, params: Mapping[str, Any], dtrain: DaskDMatrix, num_boost_round: int = 10, *,
    coll_cfg: Config | None = None, **arguments: Any,
) -> Any:  # fmt: skip
    """Cross-validate on a cluster; what gpuboost.cv returns, and its arguments. The folds are those of one machine.

    folds name rows by their numbers in the order of the partitions. A lost worker starts it from the beginning.
    """
    if not isinstance(dtrain, DaskDMatrix) or isinstance(dtrain, DaskQuantileDMatrix):
        raise TypeError(f"dtrain must be a DaskDMatrix, which keeps its table to be split, got {type(dtrain).__name__}.")
    if arguments.get("folds") is not None and not hasattr(arguments["folds"], "split"):
        arguments["folds"] = _GivenFolds(list(arguments["folds"]))
    used = client_of(client)
    task = _CrossValidation(dict(params), num_boost_round, get_config(), arguments)
    return synced(used, Job(used, [dtrain], task, coll_cfg).run)


@dataclass(frozen=True)
class _GivenFolds:
    """A splitter of the rows of all workers, as scikit-learn's are."""

    folds: list[Any]

    def split(self, *_: Any) -> list[Any]:
        return self.folds


@dataclass(frozen=True)
class _CrossValidation:
    params: dict[str, Any]
    n_rounds: int
    config: dict[str, Any]
    arguments: dict[str, Any]

    def __call__(self, matrices: Sequence[DMatrix], keep: Callable[[], KeepsProgress]) -> Any:
        with config_context(verbosity=self.config["verbosity"]):
            return cv_here(self.params, matrices[0], self.n_rounds, **self.arguments)


def communicator_args(client: Client | None, workers: Sequence[str] | None = None, coll_cfg: Config | None = None) -> Any:
    """For tasks of one's own that train together: worker's address → arguments of its CommunicatorContext.

    workers : addresses, by default all. Submit one task to each of them; all must run at the same time.
    """
    used = client_of(client)

    async def ask() -> dict[str, dict[str, Any]]:
        job = Job(used, [], lambda *_: None, coll_cfg)
        names = sorted(await job.live()) if workers is None else list(workers)
        attempt = uuid4().hex
        addresses = [await job.told(name, open_seat, attempt) for name in names]
        meeting = Meeting(attempt, addresses, names, secrets.token_bytes(32), max(60.0, 2 * job.timeout), job.timeout)
        return {name: {"meeting": meeting, "rank": rank} for rank, name in enumerate(names)}

    return synced(used, ask)


def _print_at_client(line: str) -> None:
    """As distributed.print, which prints on the worker as well: on one machine that would be twice."""
    get_worker().log_event("print", {"args": (line,), "sep": " ", "end": "", "flush": True})


def _mean_over_workers(metric: CustomMetric, prediction: Any, dmatrix: DMatrix) -> list[tuple[str, float]]:
    """A custom metric of all workers' rows: the mean of theirs by the rows' weights."""
    n_rows = dmatrix.num_row()
    values = named_values(metric(prediction, dmatrix)) if n_rows else []
    weight = float(dmatrix.weights.sum(dtype=np.float64)) if len(dmatrix.weights) else float(n_rows)
    each = current_communicator().allgather_json([weight, values])
    told = [(own_weight, dict(own)) for own_weight, own in each if own]
    total = sum(own_weight for own_weight, _ in told)
    return [(name, sum(own_weight * own[name] for own_weight, own in told) / total) for name in told[0][1]]
