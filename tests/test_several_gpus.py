"""Training on several GPUs: a fake NCCL sums over fake GPUs (tests/fake_cuda.py), and the model is that of the CPU."""

import sys
from functools import cache

import fake_cupy
import numpy as np
import pytest
from fake_cuda import FakeGpu

import gpuboost as gb
from gpuboost.backend.cuda import CudaBackend
from gpuboost.communicator import SingleProcess, current_communicator, run_threads, use_communicator
from gpuboost.model_io import digest
from gpuboost.network.gpus import GpuWorker
from gpuboost.network.links import WorkerLost

N_ROWS = 60
RNG = np.random.default_rng(3)
X = RNG.normal(size=(N_ROWS, 5)).astype(np.float32)
X[RNG.random(N_ROWS) < 0.2, 1] = np.nan
Y = (np.nan_to_num(X[:, 1]) + X[:, 0] * X[:, 2] > 0).astype(np.float32)
PARAMS = {"objective": "binary:logistic", "max_depth": 2, "max_bin": 12, "subsample": 0.8}


@pytest.fixture
def machine(monkeypatch):
    """Of two fake GPUs."""
    monkeypatch.setitem(sys.modules, "cupy", fake_cupy.cupy())
    monkeypatch.setattr("gpuboost.backend._cuda_backend", cache(lambda number: CudaBackend(FakeGpu(number))))
    return fake_cupy.module.cuda.machine


def on_gpus(work, nccl=True):
    """work(rank) on a worker for each GPU."""

    def run(rank):
        import cupy

        cupy.cuda.nccl.available = nccl
        with use_communicator(GpuWorker(current_communicator())), cupy.cuda.Device(rank):
            return work(rank)

    return run_threads(2, run)


@pytest.mark.parametrize("nccl", [True, False])
def test_every_gpu_gets_the_sum_and_maximum_of_all(machine, nccl):
    def work(rank):
        import cupy

        comm, values = current_communicator(), np.arange(12) * (-1) ** rank << 40 * rank
        total, largest, column = cupy.asarray(values), cupy.asarray(values.reshape(3, 4)), cupy.asarray(values.reshape(3, 4))
        comm.allreduce_sum(total)
        comm.allreduce_max(largest)
        comm.allreduce_sum(column[:, 1])  # not contiguous
        comm.allreduce_sum(total[:0])
        return total.get(), largest.get().reshape(-1), column.get()[:, 1], comm.allgather_int(rank)

    both = np.arange(12), -np.arange(12) << 40
    for total, largest, column, ranks in on_gpus(work, nccl):
        np.testing.assert_array_equal(total, sum(both))
        np.testing.assert_array_equal(largest, np.maximum(*both))
        np.testing.assert_array_equal(column, sum(both)[1::4])
        assert ranks == [0, 1]
    assert machine.operations.count("nccl") == (6 if nccl else 0)


@pytest.mark.long
@pytest.mark.parametrize("device", ["cuda:all", pytest.param("cuda:1, cuda:0", marks=pytest.mark.slow)])
def test_model_and_scores_are_those_of_the_cpu(machine, device):
    scores, dtrain = {}, gb.DMatrix(X, Y)
    for name in ("cpu", device):
        own = scores[name] = {}
        booster = gb.train(
            {**PARAMS, "device": name, "eval_metric": ["error", "logloss"]}, dtrain, 2, evals=[(dtrain, "train")],
            evals_result=own, verbose_eval=False, early_stopping_rounds=2,
        )  # fmt: skip
        scores[name] = own, digest(booster.model), booster.best_iteration
    assert scores["cpu"] == scores[device]
    assert booster.params.device == device.replace(" ", "") and machine.operations.count("nccl") > 0


@pytest.mark.slow
def test_queries_stay_whole(machine):
    qid = np.repeat(np.arange(6), [20, 5, 1, 10, 4, 20])
    params = {"objective": "rank:ndcg", "max_depth": 2, "max_bin": 12, "lambdarank_pair_method": "mean"}
    models = [gb.train({**params, "device": device}, gb.DMatrix(X, Y, qid=qid), 1).model for device in ("cpu", "cuda:all")]
    assert digest(models[0]) == digest(models[1])


def test_an_error_on_one_gpu_ends_the_others(machine):
    """And is the one that is raised."""

    class Breaks(gb.callback.TrainingCallback):
        def after_iteration(self, model, epoch, evals_log):
            if current_communicator().rank == 1:
                raise ZeroDivisionError("of the user's own")
            return False

    with pytest.raises(ZeroDivisionError, match="of the user's own"):
        gb.train({**PARAMS, "max_depth": 1, "device": "cuda:all"}, gb.DMatrix(X, Y), 5, callbacks=[Breaks()])


def test_errors_name_the_row_of_the_table(machine):
    """Not that of a GPU's part; also on a GPU that is not the current one."""
    infinite, label = X.copy(), Y.copy()
    infinite[55, 2], label[50] = np.inf, 3
    for device, table, labels, message in (("cuda:1", infinite, Y, "in row 55[.]"), ("cuda:all", X, label, "at row 50:")):
        with pytest.raises(ValueError, match=f"the first {message}"):
            gb.train({**PARAMS, "device": device}, gb.DMatrix(table, labels), 1)


def test_aborted_worker_sums_no_more(machine):
    worker = GpuWorker(SingleProcess())
    worker.abort()
    with pytest.raises(WorkerLost, match="given up"):
        worker.allreduce_sum(np.zeros(3, np.int64))


def test_what_several_gpus_cannot_do_is_refused(machine):
    several, dtrain = {**PARAMS, "device": "cuda:0,cuda:1"}, gb.DMatrix(X, Y)
    with pytest.raises(ValueError, match="must name one GPU where workers train together"):
        run_threads(2, lambda rank: gb.train(several, dtrain, 1))
    with pytest.raises(NotImplementedError, match="custom_metric"):
        gb.train(several, dtrain, 1, custom_metric=lambda prediction, matrix: ("error", 0.0))
    with pytest.raises(ValueError, match="Slice a DMatrix, or the table"):
        gb.train(several, gb.QuantileDMatrix(X, Y), 1)
    for device in ("cuda:0,cuda:0", "cuda,cpu", "cuda:0,", "cuda:all,cuda:0", "cuda:1,cuda"):
        with pytest.raises(ValueError, match="device must be"):
            gb.Booster({"device": device})
