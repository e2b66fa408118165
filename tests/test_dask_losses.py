"""Workers that die or hang while a Dask cluster trains: the model of an undisturbed run, or a clear error; never a hang.

Workers are processes; one that dies is started anew by Dask, and joins in.
"""

import os
import random
import signal
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import pytest

import gpuboost as gb
from gpuboost.communicator import current_communicator
from gpuboost.model_io import digest

distributed = pytest.importorskip("distributed")
import dask  # noqa: E402
import dask.array as da  # noqa: E402

from gpuboost import dask as dgb  # noqa: E402

pytestmark = [pytest.mark.long, pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGSTOP")]

N, ROUNDS = 4000, 12
TIMEOUT = 4.0  # seconds of silence after which a worker is lost
LIMIT = 120.0  # seconds; far more than needed, so that a hang is a failure
PARAMS = {"objective": "binary:logistic", "max_depth": 4, "subsample": 0.7, "eval_metric": ["logloss", "auc"]}


def make_table():
    X = np.random.default_rng(1).normal(size=(N, 6)).astype(np.float32)
    return X, (X[:, 0] * X[:, 1] + X[:, 2] > 0).astype(np.float32)


class Slowly(gb.callback.TrainingCallback):
    """A round takes a while, so that there is a middle to disturb. begun : a file that appears in the second one."""

    def __init__(self, begun=os.devnull):
        self.begun = begun

    def after_iteration(self, model, epoch, evals_log):
        if epoch == 1:
            Path(self.begun).touch()
        time.sleep(0.15)
        return False


@pytest.fixture(scope="module")
def undisturbed():
    X, y = make_table()
    log, rows = {}, gb.DMatrix(X, y)
    booster = gb.train(PARAMS, rows, ROUNDS, evals=[(rows, "train")], evals_result=log, verbose_eval=False)
    return digest(booster.model), log


@contextmanager
def three_processes():
    """The client of three processes, which a test may end: Dask starts others in their places."""
    with distributed.LocalCluster(
        n_workers=3, threads_per_worker=1, dashboard_address=None
    ) as cluster, distributed.Client(cluster) as client:  # fmt: skip
        yield client


@pytest.fixture(scope="module")
def processes():
    with three_processes() as client:
        yield client


@pytest.fixture
def own_cluster():
    """Three processes that no other test has touched."""
    with three_processes() as client:
        client.run(lambda: dgb.__name__)  # imported
        yield client


@pytest.fixture
def cluster(processes):
    """The client of three processes that are there and have imported what they need."""
    end = time.monotonic() + LIMIT
    while list(processes.run(lambda: dgb.__name__, on_error="return").values()) != [dgb.__name__] * 3:
        assert time.monotonic() < end, "the processes that a test has ended were not started anew"
        time.sleep(0.1)
    return processes


def pids(client):
    """Worker → its process, which is not this one."""
    found = client.run(os.getpid)
    assert len({*found.values(), os.getpid()}) == len(found) + 1
    return found


def train(client, begun=os.devnull, timeout=TIMEOUT):
    X, y = make_table()
    dtrain = dgb.DaskDMatrix(client, da.from_array(X, chunks=(500, 6)), da.from_array(y, chunks=500))
    return dgb.train(
        client, PARAMS, dtrain, ROUNDS, evals=[(dtrain, "train")], verbose_eval=False, callbacks=[Slowly(begun)],
        coll_cfg=dgb.Config(timeout=timeout),
    )  # fmt: skip


def train_disturbed(client, disturb, timeout=TIMEOUT):
    """Train in a thread while disturb(begun) runs in this one; what came of it, within LIMIT. begun : as of Slowly."""
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(1) as pool:
        begun = Path(folder) / "begun"
        training = pool.submit(train, client, str(begun), timeout)
        disturb(begun)
        return training.result(LIMIT)


def kill(pid, name):
    with suppress(ProcessLookupError):  # it was killed before
        os.kill(pid, getattr(signal, name))


@pytest.mark.parametrize("name, timeout", [("SIGKILL", 10 * LIMIT), ("SIGSTOP", TIMEOUT)])  # nobody waits for a dead one
def test_worker_that_dies_or_hangs_changes_nothing(cluster, undisturbed, name, timeout):
    victim = sorted(pids(cluster).items())[1]

    def disturb(begun):
        while not begun.exists():
            time.sleep(0.02)
        kill(victim[1], name)

    try:
        output = train_disturbed(cluster, disturb, timeout)
    finally:
        kill(victim[1], "SIGKILL")
    assert (digest(output["booster"].model), output["history"]) == undisturbed
    known = cluster.run_on_scheduler(lambda dask_scheduler: list(dask_scheduler.workers))
    assert known and victim[0] not in known


@pytest.mark.slow
@pytest.mark.parametrize("moment", range(3))
def test_random_worker_at_a_random_moment(own_cluster, undisturbed, moment):
    """While partitions are made, cuts are sketched, between rounds and within, while evaluating: within each third of the time;
    in one of them two workers, by either signal first."""
    rng = random.Random(moment)
    chosen = rng.sample(sorted(pids(own_cluster).values()), 2 if moment == 1 else 1)
    signals = ["SIGKILL", "SIGSTOP"][:: 1 if moment % 2 else -1]

    def disturb(begun):
        time.sleep(2.5 / 3 * (moment + rng.random()))
        for pid, name in zip(chosen, signals):
            kill(pid, name)
            time.sleep(rng.uniform(0, 1))

    try:
        output = train_disturbed(own_cluster, disturb)
    finally:
        for pid in chosen:
            kill(pid, "SIGKILL")
    assert (digest(output["booster"].model), output["history"]) == undisturbed


@pytest.mark.slow  # that others do not come takes a while to be certain
def test_all_workers_gone_is_a_clear_error():
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=False, dashboard_address=None
    ) as cluster, distributed.Client(cluster) as client:  # fmt: skip

        def disturb(begun):
            while not begun.exists():
                time.sleep(0.02)
            cluster.scale(0)

        with pytest.raises(RuntimeError, match="no worker is left"):
            train_disturbed(client, disturb)


def test_workers_that_come_join_in():
    """Started with one; the model does not notice."""
    X, y = make_table()
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None
    ) as cluster, distributed.Client(cluster) as client:  # fmt: skip
        sizes = []

        class Counts(Slowly):
            def after_iteration(self, model, epoch, evals_log):
                sizes.append(current_communicator().size)
                return super().after_iteration(model, epoch, evals_log)

        with ThreadPoolExecutor(1) as pool:
            dtrain = dgb.DaskDMatrix(client, da.from_array(X, chunks=(500, 6)), da.from_array(y, chunks=500))
            training = pool.submit(dgb.train, client, PARAMS, dtrain, 40, callbacks=[_Shared(Counts())], verbose_eval=False)
            while not sizes:
                time.sleep(0.05)
            cluster.scale(3)
            output = training.result(LIMIT)
    assert sizes[0] == 1 and sizes[-1] > 1
    assert digest(output["booster"].model) == digest(gb.train(PARAMS, gb.DMatrix(X, y), 40).model)


_shared = {}


class _Shared(gb.callback.TrainingCallback):
    """A callback that is the same object on every worker of this process."""

    def __init__(self, callback):
        self.number = len(_shared)
        _shared[self.number] = callback

    def after_iteration(self, *given):
        return _shared[self.number].after_iteration(*given)


@pytest.mark.slow
def test_scheduler_that_dies_is_a_clear_error():
    patience = dask.config.set({"distributed.comm.timeouts.connect": "3s"})  # of the cluster, as it closes; half a minute
    with patience, distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=False, dashboard_address=None
    ) as cluster, distributed.Client(cluster) as client:  # fmt: skip
        ended = threading.Timer(2.0, lambda: cluster.sync(cluster.scheduler.close))
        ended.start()
        with pytest.raises((RuntimeError, OSError), match="scheduler|closed"):
            train(client)
        ended.join()
