"""Whole trainings on the CUDA backend: the CPU's model, scores and predictions byte for byte, and what the host does meanwhile.

Kernels run thread by thread in the simulator (tests/simulator.py) and on the other rungs (tests/rungs.py), or, marked gpu, on a
GPU.
"""

import pickle
import re
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import pytest
from rungs import RUNGS, each_rung
from simulator import ORDERS, SimulatedDevice
from test_output_sketch import Given, by_turns

import gpuboost as gb
import gpuboost.backend as backends
from gpuboost.backend import CpuBackend, choose_backend
from gpuboost.backend.cuda import CudaBackend
from gpuboost.backend.cuda import device as device_module
from gpuboost.backend.cuda.training import CudaTraining
from gpuboost.backend.cuda.trees import LEAVES_BETWEEN_READS, CudaTrees
from gpuboost.communicator import SingleProcess, current_communicator, run_threads
from gpuboost.growing.grower import Grower
from gpuboost.model_io import digest
from gpuboost.objectives import get_objective
from gpuboost.params import parse_params
from gpuboost.training.start import collect_rows

pytestmark = pytest.mark.long

N_ROWS, N_OTHER = 120, 40  # of training and evaluation tables
FIND_DEVICE, HAS_CUDA = device_module.find_device, backends._has_cuda


@pytest.fixture(params=["simulator", *each_rung, pytest.param("gpu", marks=pytest.mark.gpu)])
def cuda(request):
    """A CUDA backend."""
    if request.param == "gpu":
        return CudaBackend(device_module.find_device(0))
    return simulated() if request.param == "simulator" else simulated_on(request.param)


def simulated_on(rung):
    """Several blocks of several warps: what races there are, show."""
    return simulated(block=64, n_multiprocessors=2, rung=RUNGS[rung])


def simulated(**options):
    return CudaBackend(SimulatedDevice(**options))


@contextmanager
def computing_on(*devices):
    """Matrices and Boosters compute on this backend; with workers, each on that of its rank."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("gpuboost.backend.choose_backend", lambda *_, **__: devices[current_communicator().rank])
        yield


# ---------------------------------------------------------------------------------------------------------------------
# Cases


@dataclass(frozen=True)
class Case:
    """What to train on what."""

    objective: str = "binary:logistic"
    params: dict[str, Any] = field(default_factory=dict)
    loud: bool = False
    rounds: int = 2
    n_rows: int = N_ROWS
    n_columns: int = 6
    n_targets: int = 1  # columns of the label


LEAFWISE = {"grow_policy": "lossguide", "max_depth": 0}
VECTOR = {"multi_strategy": "multi_output_tree"}
CASES = {
    "regression": Case("reg:squarederror", {"eval_metric": ["rmse", "mae"]}),
    "binary": Case(params={"scale_pos_weight": 2.0, "eval_metric": ["logloss", "error@0.4", "auc"]}),
    "probabilities": Case("multi:softprob", {"num_class": 3, "max_depth": 2, "eval_metric": ["mlogloss", "auc"]}),
    "classes": Case("multi:softmax", {"num_class": 3, "max_depth": 2}, rounds=1),
    "targets": Case("reg:squarederror", n_targets=2),
    "sketch, most squares": Case("multi:softprob", {**VECTOR, "num_class": 3, "output_sketch": "top_outputs:1"}),
    "sketch, drawn": Case(
        "reg:squarederror", {**VECTOR, "output_sketch": "random_sampling:1", **LEAFWISE, "max_leaves": 5}, n_targets=2, loud=True
    ),
    "sketch, projected": Case(
        "multi:softprob", {**VECTOR, "num_class": 3, "output_sketch": "random_projection:2", "subsample": 0.7}
    ),
    "loud": Case("reg:squarederror", loud=True),
    "loud classes": Case("multi:softprob", {"num_class": 3, **LEAFWISE, "max_leaves": 4}, loud=True),
    "penalties": Case(params={"reg_alpha": 0.25, "reg_lambda": 0.5, "max_delta_step": 0.3, "min_child_weight": 2.0}),
    "pruned": Case(params={"gamma": 2.0}),
    "monotone": Case("multi:softprob", {"num_class": 3, "monotone_constraints": (-1, -1, 1, 1), "max_delta_step": 0.5}),
    "few leaves": Case(params={"max_depth": 4, "max_leaves": 5}),
    "one leaf": Case(params={"max_leaves": 1}, rounds=1),
    "leaf by leaf": Case(params={**LEAFWISE, "max_leaves": 6}),
    "leaf by leaf to a depth": Case(params={"grow_policy": "lossguide", "max_depth": 3}),
    "leaf by leaf, one leaf": Case(params={**LEAFWISE, "max_leaves": 1}, rounds=1),
    "leaf by leaf, many": Case("reg:squarederror", {**LEAFWISE, "max_leaves": 20}, rounds=1),
    "two bytes": Case("reg:squarederror", {"max_bin": 400, "max_depth": 2}, n_rows=280, rounds=1, n_columns=2),
    "wide": Case(n_columns=40, rounds=1),
    "few rows": Case(n_rows=70, rounds=1),
    "some of the rows": Case(params={"subsample": 0.5}),
    "some of the rows, classes": Case(
        "multi:softprob", {"num_class": 3, "subsample": 0.7, **LEAFWISE, "max_leaves": 5}, n_rows=160
    ),
    "some of the columns": Case(params={"colsample_bytree": 0.6, "colsample_bylevel": 0.8}, n_columns=9),
    "some of both": Case("multi:softprob", {"num_class": 3, "subsample": 0.6, "colsample_bytree": 0.5}, n_columns=14),
    "some columns of two bytes": Case(
        "reg:squarederror", {"max_bin": 400, "max_depth": 2, "colsample_bytree": 0.7}, n_rows=280, rounds=2, n_columns=3
    ),
    "rows by gradient": Case(params={"subsample": 0.4, "sampling_method": "gradient_based"}, n_rows=280),
    "rows by gradient, loud": Case(
        "reg:squarederror", {"subsample": 0.6, "sampling_method": "gradient_based"}, loud=True, n_rows=170
    ),
}

# Those that together launch every kernel that any launches (see the test): what races, or has the wrong width, is a kernel.
ON_RUNGS = [
    "regression", "binary", "classes", "sketch, drawn", "sketch, projected", "penalties", "leaf by leaf, one leaf", "two bytes",
    "wide", "some of the columns", "rows by gradient, loud",
]  # fmt: skip


@cache
def data(name):
    """(X, label, weight) of a case. Columns: dense, with missing values, mostly zero, whole numbers, constant, missing but in
    one row, and more dense ones; weights with zeros among them."""
    case = CASES[name]
    rng = np.random.default_rng(7)
    n = case.n_rows
    X = rng.normal(size=(n, max(case.n_columns, 6)))
    X[rng.random(n) < 0.2, 1] = np.nan
    X[rng.random(n) < 0.8, 2] = 0.0
    X[:, 3] = rng.integers(-3, 4, n)
    X[:, 4] = 7.0
    X[1:, 5] = np.nan
    signal = np.where(np.isnan(X[:, 1]), 1.0, X[:, 1]) * X[:, 3] + X[:, 0] + 2.0 * X[:, 2] + rng.normal(size=n)
    thresholds = {"reg:squarederror": None, "binary:logistic": [0.0]}.get(case.objective, [-1.0, 1.0])
    label = signal if thresholds is None else np.searchsorted(thresholds, signal)
    if case.n_targets > 1:
        label = np.stack([signal, X[:, 0] - X[:, 3]], axis=1)
    weight = 10.0 ** (6.0 * rng.random(n) ** 4) if case.loud else rng.integers(1, 5, n) / 2.0
    weight[rng.random(n) < 0.05] = 0.0
    return X[:, : case.n_columns].astype(np.float32), label.astype(np.float32), weight.astype(np.float32)


def settings(name):
    case = CASES[name]
    return {"objective": case.objective, "seed": 5, "max_bin": 12, "max_depth": 3, **case.params}


def matrix(name, kind=gb.DMatrix, rows=slice(None), **options):
    X, label, weight = data(name)
    return kind(X[rows], label[rows], weight=weight[rows], **options)


def train(name, dtrain=None, rounds=None, params=(), **options):
    dtrain = matrix(name) if dtrain is None else dtrain
    rounds = CASES[name].rounds if rounds is None else rounds
    return gb.train({**settings(name), **dict(params)}, dtrain, rounds, verbose_eval=False, **options)


def outcome(name, **options):
    """(digest of the model, scores, predictions of values, margins and leaves) of a training with two evaluation sets."""
    scores: dict[str, Any] = {}
    dtrain, other = matrix(name), matrix(name, rows=slice(0, N_OTHER))
    booster = train(name, dtrain, evals=[(dtrain, "train"), (other, "other")], evals_result=scores, **options)
    predictions = [booster.predict(other, **kind).tobytes() for kind in ({}, {"output_margin": True}, {"pred_leaf": True})]
    return digest(booster.model), scores, predictions


@cache
def expected(name):
    """The outcome on the CPU."""
    with computing_on(CpuBackend(1)):
        return outcome(name)


@cache
def model_on_cpu(name, rounds=None, **params):
    with computing_on(CpuBackend(1)):
        return train(name, rounds=rounds, params=params).model


# ---------------------------------------------------------------------------------------------------------------------
# The same bytes


@cache
def in_simulator(name):
    """(outcome of a case, the kernels that it launched)."""
    cuda = simulated()
    with computing_on(cuda):
        return outcome(name), set(cuda.device.launches)


@pytest.mark.parametrize("name", [*CASES][:4])
def test_model_scores_and_predictions_are_those_of_the_cpu(name):
    assert in_simulator(name)[0] == expected(name)


@pytest.mark.slow
def test_so_they_are_in_all_cases_and_those_on_the_other_rungs_launch_every_kernel():
    launched = {}
    for name in CASES:
        result, launched[name] = in_simulator(name)
        assert result == expected(name), name
    assert set().union(*launched.values()) == set().union(*(launched[name] for name in ON_RUNGS))


@pytest.mark.parametrize("name, cuda", [
    *(pytest.param(name, *rung.values, marks=rung.marks) for rung in each_rung for name in ON_RUNGS),
    *(pytest.param(name, "gpu", marks=pytest.mark.gpu) for name in CASES),
], indirect=["cuda"])  # fmt: skip
def test_so_they_are_on_the_other_rungs(name, cuda):
    with computing_on(cuda):
        assert outcome(name) == expected(name)


def test_the_cases_are_what_they_are_called():
    def leaves(name):
        return [tree.n_leaves for tree in model_on_cpu(name).trees]

    with computing_on(CpuBackend(1)):
        unpruned = train("pruned", params={"gamma": 0.0}).model
    assert sum(leaves("pruned")) < sum(tree.n_leaves for tree in unpruned.trees)
    assert leaves("few leaves") == [5, 5]
    assert leaves("one leaf") == leaves("leaf by leaf, one leaf") == [1]
    assert leaves("leaf by leaf") == [6, 6]
    assert leaves("leaf by leaf, many") == [20]  # 19 splits: more than are made between two reads
    assert 19 > LEAVES_BETWEEN_READS
    assert len(leaves("targets")) == 4
    for name in set(CASES) - {"one leaf", "leaf by leaf, one leaf"}:
        assert min(leaves(name)) >= 2, name
    assert matrix("two bytes").binned(400, CpuBackend(1), SingleProcess()).dtype == np.uint16


def test_loud_weights_take_two_limbs_and_others_one(cuda, monkeypatch):
    limbs = []
    original = CudaTraining.finish_trees

    def finish(self):
        limbs.append(self.device.fetch(self.gradients.n_limbs).tolist())  # of each output
        return original(self)

    monkeypatch.setattr(CudaTraining, "finish_trees", finish)
    with computing_on(cuda):
        for name in ("loud", "loud classes", "regression"):
            train(name, rounds=1, params={"max_depth": 1})
    assert limbs == [[2], [2, 2, 2], [1]]


# ---------------------------------------------------------------------------------------------------------------------
# The layout of the work


@pytest.mark.sweep(1)
@pytest.mark.parametrize("block, n_multiprocessors, order", [(32, 3, ORDERS[1]), (64, 1, ORDERS[2]), (96, 2, ORDERS[0])])
def test_blocks_and_the_order_of_threads(block, n_multiprocessors, order):
    with computing_on(simulated(block=block, n_multiprocessors=n_multiprocessors, order=order)):
        assert digest(train("loud", rounds=1).model) == digest(model_on_cpu("loud", 1))


@pytest.mark.sweep(2)
@pytest.mark.parametrize("name, shared_limit, kernel", [
    ("loud", 3328, "build_histograms"), ("loud", 3327, "build_histograms_global"),  # 12 bins and the missing code, 256 bytes each
    ("two bytes", 2**18, "build_histograms"), ("two bytes", 2**15, "build_strided_histograms"),
    ("two bytes", 100, "build_histograms_global"),
])  # fmt: skip
def test_histograms_that_just_fit_into_shared_memory_or_do_not_fit(name, shared_limit, kernel):
    cuda = simulated(shared_limit=shared_limit)
    with computing_on(cuda):
        assert digest(train(name, rounds=1).model) == digest(model_on_cpu(name, 1))
    used = {plain_name(launch) for launch in cuda.device.launches}
    assert {launch for launch in used if launch.startswith("build") and "histograms" in launch} == {kernel}


def test_histograms_of_two_tiles_at_a_time():
    rng, digests, cuda = np.random.default_rng(12), [], simulated(shared_limit=2**17)
    X, label = rng.normal(size=(90, 40)).astype(np.float32), rng.normal(size=90)
    for backend in (CpuBackend(1), cuda):
        with computing_on(backend):
            digests.append(digest(gb.train({"max_bin": 9, "max_depth": 2}, gb.DMatrix(X, label), 1, verbose_eval=False).model))
    assert digests[0] == digests[1]
    assert "histogram_tiles.build_histograms_kernel_8_wide" in cuda.device.launches


def test_gains_of_a_few_nodes_at_once(cuda, monkeypatch):
    monkeypatch.setattr("gpuboost.backend.cuda.plan.GAINS_BYTES", 3 * 12 * 6)  # three nodes of six features
    with computing_on(cuda):
        assert digest(train("binary", rounds=1).model) == digest(model_on_cpu("binary", 1))


@pytest.mark.sweep(1)
@pytest.mark.parametrize("name", ["binary", "probabilities", "leaf by leaf"])
def test_batches_of_histograms(name, cuda, monkeypatch):
    """Two histograms: none is ever subtracted. Five: those of the first levels are."""
    n_subtracted = 0
    original = CudaTrees.subtract_histograms

    def subtract(self, batch):
        nonlocal n_subtracted
        n_subtracted += 1
        original(self, batch)

    monkeypatch.setattr(CudaTrees, "subtract_histograms", subtract)
    with computing_on(cuda):
        dtrain = matrix(name)
        counts = []
        for n_histograms in (2, 5 * len(model_on_cpu(name, 1).trees)):
            n_subtracted = 0
            memory = n_histograms * 16 * dtrain.binned(12, cuda, SingleProcess()).cuts.total_bins
            trained = train(name, dtrain, 1, params={"histogram_memory": memory})
            assert digest(trained.model) == digest(model_on_cpu(name, 1))
            counts.append(n_subtracted)
    assert counts[0] == 0 < counts[1]


@pytest.mark.sweep(1)
@pytest.mark.parametrize("name", ["binary", "leaf by leaf"])
@pytest.mark.parametrize("n_ahead", [0, 3])
def test_histograms_are_made_zero_a_few_at_a_time(name, n_ahead, monkeypatch):
    """As many as a batch has, or three: the batch's are then the last of some made zero before, or more than those."""
    cuda = simulated()
    with computing_on(cuda):
        dtrain = matrix(name)
        n_bytes = 16 * dtrain.binned(12, cuda, SingleProcess()).cuts.total_bins
        monkeypatch.setattr("gpuboost.backend.cuda.tables.CLEARED_AHEAD", n_ahead * n_bytes)
        assert digest(train(name, dtrain, 1).model) == digest(model_on_cpu(name, 1))


@pytest.mark.sweep(1)
@pytest.mark.parametrize("name, max_depth", [("binary", 0), ("probabilities", 4)])
def test_trees_deeper_than_the_host_runs_ahead(name, max_depth, cuda, monkeypatch):
    """The arrays by node grow, and the host reads the size of every level from there on."""
    params = {"max_depth": max_depth, "min_child_weight": 3.0}
    with computing_on(CpuBackend(1)):
        model = train(name, params=params, rounds=1).model
    assert max(tree.n_leaves for tree in model.trees) > 4
    monkeypatch.setattr("gpuboost.backend.cuda.plan.SYNC_FREE_DEPTH", 1)
    with computing_on(cuda):
        assert digest(train(name, params=params, rounds=1).model) == digest(model)


@pytest.mark.sweep(1)
@pytest.mark.parametrize("name", ["binary", "loud classes"])
def test_pages(name, cuda):
    """Three pages; the rows of the last one weigh nothing."""
    with computing_on(cuda):
        X, label, weight = data(name)
        X, label, weight = np.vstack([X, X[:9]]), np.append(label, label[:9]), np.append(weight, np.zeros(9))
        paged = gb.QuantileDMatrix(X, label, weight=weight, max_bin=12, page_rows=N_ROWS // 2)
        assert [page.n_rows for page in paged.any_binned().pages] == [60, 60, 9]
        assert digest(train(name, paged, 1).model) == digest(model_on_cpu(name, 1))


@pytest.mark.sweep(1)
@pytest.mark.parametrize("name", ["probabilities", "loud", "leaf by leaf"])
def test_workers(name, cuda):
    """One worker has a single row. Their scores are those of all rows."""
    shards = [slice(0, 1), slice(1, None)]

    def work(rank):
        scores: dict[str, Any] = {}
        dtrain = matrix(name, rows=shards[rank])
        booster = train(name, dtrain, 1, evals=[(dtrain, "train")], evals_result=scores)
        return digest(booster.model), {metric: values[0] for metric, values in scores["train"].items()}

    with computing_on(cuda, cuda):
        first = {metric: values[0] for metric, values in expected(name)[1]["train"].items()}
        assert run_threads(2, work) == [(digest(model_on_cpu(name, 1)), first)] * 2


def test_a_gang_of_cpu_and_gpu_is_refused():
    """They bound their frontiers differently, so they cannot exchange histograms: an error, not a wrong model."""
    with computing_on(CpuBackend(1), simulated()), pytest.raises(ValueError, match="different shapes"):
        run_threads(2, lambda rank: train("binary", matrix("binary", rows=slice(rank, None, 2))))


# ---------------------------------------------------------------------------------------------------------------------
# The course of the training


def test_continued_on_the_other_device(cuda):
    """One round here and one there, either way, from the Booster and from its file."""
    name, params = "probabilities", {"max_depth": 1}
    with computing_on(cuda):
        begun = train(name, rounds=1, params=params)
        assert digest(begun.model) == digest(model_on_cpu(name, 1, **params))
        resumed = train(name, rounds=1, params=params, xgb_model=bytes(begun.save_raw("json")))
        assert digest(resumed.model) == digest(model_on_cpu(name, 2, **params))
    with computing_on(CpuBackend(1)):
        assert digest(train(name, rounds=1, params=params, xgb_model=begun).model) == digest(model_on_cpu(name, 2, **params))


def test_codes_alone(cuda):
    """Trained on, continued, evaluated and predicted without the table."""
    with computing_on(cuda):
        dtrain = matrix("binary", gb.QuantileDMatrix, max_bin=12)
        other = matrix("binary", gb.QuantileDMatrix, slice(0, N_OTHER), ref=dtrain)
        begun = train("binary", dtrain, 1)
        scores: dict[str, Any] = {}
        booster = train("binary", dtrain, 1, xgb_model=begun, evals=[(other, "other")], evals_result=scores)
        assert digest(booster.model) == expected("binary")[0]
        assert booster.predict(other).tobytes() == expected("binary")[2][0]
        last = {metric: values[-1:] for metric, values in expected("binary")[1]["other"].items()}
        assert scores["other"] == last


def quartic(prediction, dtrain):
    residual = prediction - dtrain.get_label()
    return residual**3, 3.0 * residual**2 - 0.1  # some hessians are negative


def test_custom_objective_and_metric(cuda):
    def run():
        scores: dict[str, Any] = {}
        dtrain = matrix("regression")
        booster = train(
            "regression", dtrain, params={"max_depth": 2}, obj=quartic,
            custom_metric=lambda p, d: ("sum", p.sum(dtype=np.float64)), evals=[(dtrain, "train")], evals_result=scores,
        )  # fmt: skip
        return digest(booster.model), scores

    with computing_on(CpuBackend(1)):
        on_cpu = run()
    with computing_on(cuda):
        assert run() == on_cpu


def test_gradients_of_several_outputs_from_outside(cuda):
    grad, hess = np.random.default_rng(0).normal(size=(2, N_ROWS, 3)).astype(np.float32)

    def run():
        booster = gb.Booster(settings("probabilities"))
        booster.boost(matrix("probabilities"), grad=grad, hess=np.abs(hess))
        return digest(booster.model)

    with computing_on(CpuBackend(1)):
        on_cpu = run()
    with computing_on(cuda):
        assert run() == on_cpu


def test_early_stopping(cuda):
    """It stops on the area under the curve of another table whose labels are noise."""
    X, label, _ = data("binary")

    def run():
        scores: dict[str, Any] = {}
        noise = gb.DMatrix(X[:N_OTHER], np.roll(label[:N_OTHER], 7))
        booster = train(
            "binary", params={"eval_metric": "auc", "max_depth": 2}, rounds=12, evals=[(noise, "noise")], evals_result=scores,
            early_stopping_rounds=1,
        )  # fmt: skip
        return digest(booster.model), scores, booster.best_iteration, booster.num_boosted_rounds()

    with computing_on(CpuBackend(1)):
        on_cpu = run()
    assert on_cpu[3] < 5
    with computing_on(cuda):
        assert run() == on_cpu


def test_parameters_changed_between_rounds(cuda):
    """The learning rate changes what is running; the depth starts it anew."""

    def run():
        booster, dtrain = gb.Booster({**settings("binary"), "max_depth": 1}), matrix("binary")
        for change in ({}, {"eta": 0.1}, {"max_depth": 2}):
            booster.set_param(change)
            booster.update(dtrain)
        return digest(booster.model)

    with computing_on(CpuBackend(1)):
        on_cpu = run()
    with computing_on(cuda):
        assert run() == on_cpu


def test_pickled_and_copied_in_the_middle(cuda):
    """Neither holds anything of the device; both go on to the same model."""
    with computing_on(cuda):
        booster, dtrain = gb.Booster({**settings("binary"), "max_depth": 1}), matrix("binary")
        booster.update(dtrain)
        pickled = pickle.dumps(booster)
        assert b"simulator" not in pickled and b"cupy" not in pickled
        others = [pickle.loads(pickled), booster.copy()]
        for each in (booster, *others):
            each.update(dtrain)
            assert digest(each.model) == digest(model_on_cpu("binary", 2, max_depth=1))


@pytest.mark.parametrize("draws", [{}, {"subsample": 0.6}], ids=str)
def test_splits_by_gradients_that_a_user_gives(cuda, draws):
    """Of another number of outputs from round to round."""
    params = {"output_sketch": None, "max_leaves": 4, "base_score": 0.25, **draws}
    options = {"rounds": 4, "params": params, "obj": Given(by_turns)}
    with computing_on(CpuBackend(1)):
        on_cpu = train("sketch, drawn", **options).model
    assert len({tuple(tree.feature) for tree in on_cpu.trees}) > 1
    with computing_on(cuda):
        assert digest(train("sketch, drawn", **options).model) == digest(on_cpu)


@pytest.mark.sweep(1)
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_gradient_that_is_not_finite_keeps_the_rounds_before(cuda, bad):
    """However late the host hears of it; and the training can go on from there."""
    n_calls = 0

    def objective(prediction, dtrain):
        nonlocal n_calls
        n_calls += 1
        grad, hess = quartic(prediction, dtrain)
        grad[3] = bad if n_calls == 2 else grad[3]
        return grad, hess

    with computing_on(cuda):
        booster, dtrain = gb.Booster({**settings("regression"), "max_depth": 1}), matrix("regression")
        with pytest.raises(FloatingPointError, match="not finite"):
            for _ in range(4):
                booster.update(dtrain, fobj=objective)
        assert booster.num_boosted_rounds() == 1
        booster.update(dtrain, fobj=quartic)
        resumed = digest(booster.model)
    with computing_on(CpuBackend(1)):
        assert resumed == digest(train("regression", rounds=2, params={"max_depth": 1}, obj=quartic).model)


# ---------------------------------------------------------------------------------------------------------------------
# What the host does


@pytest.fixture
def growths(monkeypatch):
    """Function (simulated backend) -> list that gets (launches by kernel, waits) of every round grown on it."""

    def watch(backend):
        seen, grow_round = [], Grower.grow

        def grow(*arguments):
            n_launches, n_waits = len(backend.device.launches), backend.device.waits
            grow_round(*arguments)
            seen.append((Counter(map(plain_name, backend.device.launches[n_launches:])), backend.device.waits - n_waits))

        monkeypatch.setattr(Grower, "grow", grow)
        return seen

    return watch


def launches(steps, policy="depthwise", by_rows=False, pages=1, idle_pages=1):
    """A round's launches after its gradients: once for the round and for each of its steps (levels, or splits), and by page.
    by_rows : whether the leaves of rows are found, not listed. idle_pages : those with rows of zero weight, whose margins are
    predicted."""
    round_once = "start_round choose_scales start_trees weigh_trees flatten_trees"
    round_pages = "quantise quantise"  # with one limb, with two
    round_pages += " find_leaves sum_found add_found" if by_rows else " sum_leaves update_margin"
    step_once = f"choose_built evaluate_plain_splits choose_splits split_{policy}"
    moves = steps - 1 if by_rows else steps
    counts = Counter({"subtract_histograms": steps - 1, "predict_codes": idle_pages})  # no sibling of the roots
    counts["start_rows"] = pages - 1
    counts["list_build_items"], counts["list_chunks"] = steps * (pages - 1), moves * (pages - 1)
    counts["build_histograms"], counts["move_rows"] = steps * pages, moves * pages
    if not by_rows:
        counts["list_leaves"], counts["list_leaf_chunks"] = 1, pages - 1
    for names, times in ((round_once, 1), (round_pages, pages), (step_once, steps)):
        for name in names.split():
            counts[name] += times
    return +counts  # without zeros


def plain_name(launch):
    """The operation of a kernel: without its module, and what it was compiled for."""
    return re.search(r"(\w+)_kernel", launch)[1]


@pytest.mark.sweep(3)
@pytest.mark.parametrize("depth, pages", [(1, 1), (2, 1), (3, 1), (2, 3)])
@pytest.mark.parametrize("name", ["binary", "probabilities"])
def test_launches_of_a_round_by_levels(name, depth, pages, growths):
    """As many for a tree of each class as for one tree, and whether or not a level has nodes left."""
    cuda = simulated()
    seen = growths(cuda)
    with computing_on(cuda):
        page_rows = -(-N_ROWS // pages)
        dtrain = matrix(name, gb.QuantileDMatrix, max_bin=12, page_rows=page_rows)
        train(name, dtrain, 1, params={"max_depth": depth, "min_child_weight": 1.0 if depth < 3 else 1e6})
    idle_pages = sum((data(name)[2][first : first + page_rows] == 0).any() for first in range(0, N_ROWS, page_rows))
    assert seen == [(launches(depth, by_rows=True, pages=pages, idle_pages=idle_pages), 0)]


@gb.split_gain
def the_same(gain):
    return gain


@pytest.mark.sweep(3)
@pytest.mark.parametrize(
    "name, params",
    [
        ("binary", {"max_delta_step": 1.0}),
        ("binary", {"monotone_constraints": "(1)"}),
        ("binary", {"tree_method": "approx"}),
        ("binary", {"tree_method": "approx", "sketch_proposals": "local"}),
        ("probabilities", {"multi_strategy": "multi_output_tree"}),
        ("binary", {"split_gain": the_same}),
    ],
)
def test_what_most_trees_are_not_is_searched_by_the_kernel_for_all(name, params, growths):
    cuda = simulated()
    seen = growths(cuda)
    with computing_on(cuda):
        train(name, rounds=1, params={"max_depth": 1, **params})
    ((counts, _),) = seen
    assert counts["evaluate_splits"] == 1 and counts["evaluate_plain_splits"] == 0


@pytest.mark.sweep(2)
@pytest.mark.parametrize("max_leaves, reads", [(4, 0), (5, 0), (6, 1), (10, 2)])
def test_launches_and_waits_of_a_round_by_leaves(max_leaves, reads, growths, monkeypatch):
    """One read of the progress after every fourth split but the last."""
    for bound in ("LEAVES_AT_ONCE", "LEAVES_BETWEEN_READS"):
        monkeypatch.setattr(f"gpuboost.backend.cuda.trees.{bound}", 4)
    cuda = simulated()
    seen = growths(cuda)
    with computing_on(cuda):
        model = train("leaf by leaf", rounds=1, params={"max_leaves": max_leaves}).model
    assert model.trees[0].n_leaves == max_leaves
    assert seen == [(launches(max_leaves - 1, "lossguide"), reads)]


@pytest.mark.parametrize("policy", ["depthwise", "lossguide"])
def test_trees_that_end_early_are_noticed_at_the_next_read(policy, growths, monkeypatch):
    """No split at all: the host finds out at its first read, of the third level or after four splits."""
    monkeypatch.setattr("gpuboost.backend.cuda.plan.SYNC_FREE_DEPTH", 2)
    for bound in ("LEAVES_AT_ONCE", "LEAVES_BETWEEN_READS"):
        monkeypatch.setattr(f"gpuboost.backend.cuda.trees.{bound}", 4)
    cuda = simulated()
    seen = growths(cuda)
    with computing_on(cuda):
        params = {"grow_policy": policy, "max_depth": 0, "max_leaves": 50, "min_child_weight": 1e6}
        model = train("binary", rounds=1, params=params).model
    assert model.trees[0].n_leaves == 1
    assert seen == [(launches({"depthwise": 3, "lossguide": 4}[policy], policy), 1)]


def test_the_host_takes_in_a_tree_while_the_next_one_grows():
    """One wait per round, for the trees of the round before; and one when the model is asked for."""
    cuda = simulated()
    with computing_on(cuda):
        booster, dtrain, waits = gb.Booster({**settings("binary"), "max_depth": 1}), matrix("binary"), []
        for _ in range(4):
            begun = cuda.device.waits
            booster.update(dtrain)
            waits.append(cuda.device.waits - begun)
        begun = cuda.device.waits
        assert booster.num_boosted_rounds() == 4
        assert cuda.device.waits - begun == 1
    assert waits[1:] == [1, 1, 1]  # the first one also bins the table


# ---------------------------------------------------------------------------------------------------------------------
# Memory


def histograms_that_fit(cuda, rows, memory):
    """How many there is room for; None where the training is refused."""
    cuda.device.memory = memory
    try:
        return cuda.start_training(rows, parse_params(settings("binary")), 1).trees.histogram_capacity
    except MemoryError:
        return None


def least_memory(cuda, rows):
    """The least free memory with which the training starts."""
    too_few, enough = 0, 2**30
    while enough - too_few > 1:
        middle = (too_few + enough) // 2
        if histograms_that_fit(cuda, rows, middle) is None:
            too_few = middle
        else:
            enough = middle
    return enough


@pytest.fixture
def rows_of_a_training():
    """(simulated backend, TrainingRows of the case "binary", their DMatrix)."""
    cuda = simulated()
    with computing_on(cuda):
        dtrain = matrix("binary")
        rows = collect_rows(dtrain, 1, lambda: np.zeros((1, N_ROWS), np.float32), 12, cuda, SingleProcess())
        yield cuda, rows, dtrain


def test_scarce_memory_means_fewer_histograms_and_the_same_model(rows_of_a_training):
    """From two on, up to what a tree of depth 3 can use: the eight of its leaves."""
    cuda, rows, dtrain = rows_of_a_training
    least, each = least_memory(cuda, rows), 16 * rows.binned.cuts.total_bins
    fitting = [histograms_that_fit(cuda, rows, least + k * each) for k in range(9)]
    assert fitting == [2, 3, 4, 5, 6, 7, 8, 8, 8]
    for k in (0, 3):
        cuda.device.memory = least + k * each
        assert digest(train("binary", dtrain, 1).model) == digest(model_on_cpu("binary", 1))


def test_too_little_memory_is_refused_before_any_work(rows_of_a_training):
    cuda, rows, dtrain = rows_of_a_training
    least = least_memory(cuda, rows)
    cuda.device.launches.clear()
    with pytest.raises(MemoryError) as error:
        cuda.device.memory = least - 1
        cuda.start_training(rows, parse_params(settings("binary")), 1)
    assert not cuda.device.launches
    assert f"has {least / 2**20:.0f} MiB free, {least / 2**20:.0f} MiB are needed" in str(error.value)
    cuda.device.memory = 5 * 2**20
    with pytest.raises(MemoryError, match=f"has 5 MiB free, {least / 2**20:.0f} MiB are needed. .*device='cpu'"):
        train("binary", dtrain)
    assert not [launch for launch in cuda.device.launches if plain_name(launch) != "reduce"]  # the base score needs next to none


# ---------------------------------------------------------------------------------------------------------------------
# Which device


@pytest.fixture
def no_gpu(monkeypatch):
    """A machine without CuPy."""
    monkeypatch.setitem(sys.modules, "cupy", None)
    monkeypatch.setattr(device_module, "find_device", FIND_DEVICE.__wrapped__)
    monkeypatch.setattr(backends, "_has_cuda", HAS_CUDA.__wrapped__)


@pytest.fixture
def two_gpus(monkeypatch):
    """A machine of which cuda:0 and cuda:1 are simulated."""
    devices = [SimulatedDevice(), SimulatedDevice()]
    monkeypatch.setattr(device_module, "find_device", devices.__getitem__)
    monkeypatch.setattr(backends, "_has_cuda", lambda: True)
    return devices


@pytest.mark.parametrize("device", ["cuda", "cuda:1", "gpu"])
def test_cuda_without_a_gpu_is_refused_with_the_remedy(device, no_gpu):
    with pytest.raises(RuntimeError, match="device='cuda' needs CuPy .*pip install .*Or use device='cpu'"):
        train("binary", params={"device": device})


def test_auto_without_a_gpu_takes_the_cpu(no_gpu):
    assert isinstance(choose_backend("auto", 1, n_values=10**12), CpuBackend)
    assert digest(train("binary", params={"device": "auto"}).model) == digest(model_on_cpu("binary"))


@pytest.mark.parametrize("device, table, number", [
    ("cuda", {}, 0), ("cuda:0", {}, 0), ("cuda:1", {}, 1),
    ("cuda", {"table_device": 1}, 1), ("cuda:0", {"table_device": 1}, 0), ("auto", {"table_device": 1}, 1),
    ("auto", {"n_values": backends.MIN_CUDA_VALUES}, 0), ("auto", {"n_values": backends.MIN_CUDA_VALUES - 1}, None),
    ("cpu", {"n_values": 10**12, "table_device": 1}, None),
])  # fmt: skip
def test_the_device_is_the_one_named_or_the_one_of_the_table(device, table, number, two_gpus):
    chosen = choose_backend(device, 1, **table)
    if number is None:
        assert isinstance(chosen, CpuBackend)
    else:
        assert chosen.device is two_gpus[number]


def test_a_device_that_is_not_there_is_refused(monkeypatch):
    """The error names those that are."""
    pytest.importorskip("cupy")
    monkeypatch.setattr("cupy.cuda.runtime.getDeviceCount", lambda: 2)
    with pytest.raises(RuntimeError, match="'cuda:7' was requested, but the CUDA devices are cuda:0 to cuda:1"):
        choose_backend("cuda:7", 1)


def test_a_model_trained_on_a_gpu_predicts_without_one(two_gpus, request):
    """Pickled with device="cuda:1"; training on needs the device, predicting does not."""
    booster = train("binary", params={"device": "cuda:1"})
    assert two_gpus[1].launches and not two_gpus[0].launches
    pickled = pickle.dumps(booster)
    request.getfixturevalue("no_gpu")
    other = pickle.loads(pickled)
    assert other.params.device == "cuda:1"
    rows = matrix("binary", rows=slice(0, N_OTHER))
    assert other.predict(rows).tobytes() == expected("binary")[2][0]
    assert float(other.eval(rows).rsplit(":", 1)[1]) == expected("binary")[1]["other"]["auc"][-1]
    with pytest.raises(RuntimeError, match="device='cpu'"):
        other.update(matrix("binary"))


# ---------------------------------------------------------------------------------------------------------------------
# Only on hardware: grids that fill the device


@pytest.mark.gpu
@pytest.mark.parametrize("growth", [{"max_depth": 8}, {"max_depth": 14}, {**LEAFWISE, "max_leaves": 64}], ids=str)
def test_many_blocks_give_the_cpus_model(growth):
    rng = np.random.default_rng(9)
    X = rng.normal(size=(300_000, 28)).astype(np.float32)
    X[rng.random(len(X)) < 0.3, 1] = np.nan
    y = X[:, 0] * X[:, 2] + np.where(np.isnan(X[:, 1]), 1, X[:, 1]) + rng.normal(size=len(X)) > 0
    weight = rng.integers(0, 4, len(X)) / 2

    def model(backend):
        with computing_on(backend):
            dtrain = gb.DMatrix(X, y, weight=weight)
            return digest(gb.train({"objective": "binary:logistic", **growth}, dtrain, 3).model)

    assert model(CudaBackend(device_module.find_device(0))) == model(CpuBackend(2))


@pytest.mark.gpu
def test_the_first_work_of_a_new_thread_may_be_a_launch():
    """Which does not bind the device to the thread by itself."""
    cuda = CudaBackend(device_module.find_device(0))
    objective = get_objective("binary:logistic", parse_params({"objective": "binary:logistic"}))
    margin, map_rows = cuda.memory.put(np.zeros((1, 4), np.float32)), cuda.predictor.map_rows
    map_rows(margin, objective.row_map)  # compiled and loaded
    with ThreadPoolExecutor(1) as pool:
        assert cuda.memory.fetch(pool.submit(map_rows, margin, objective.row_map).result()).tolist() == [[0.5] * 4]
