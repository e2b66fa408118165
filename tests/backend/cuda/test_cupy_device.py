"""backend/cuda/device.py with CuPy: what is copied when, and whole trainings on a GPU that does its work as late as it may
(tests/fake_cuda.py)."""

import contextlib
import sys
from collections import Counter

import fake_cuda
import fake_cupy
import numpy as np
import pytest
from fake_cuda import FakeGpu

import gpuboost as gb
from gpuboost.backend import CpuBackend
from gpuboost.backend.cuda import CudaBackend
from gpuboost.backend.cuda.device import STAGED_BYTES, pack_arguments
from gpuboost.backend.cuda.memory import Launcher
from gpuboost.communicator import run_threads
from gpuboost.kernels.cuda_common import cuda_kernel, n_threads, thread_number
from gpuboost.kernels.structs import PENALTY
from gpuboost.model_io import digest

pytestmark = pytest.mark.long

N_ROWS = 90
RNG = np.random.default_rng(3)
X = RNG.normal(size=(N_ROWS, 9)).astype(np.float32)
X[RNG.random(N_ROWS) < 0.2, 1] = np.nan
Y = (np.nan_to_num(X[:, 1]) + X[:, 0] * X[:, 2] + RNG.normal(size=N_ROWS) > 0).astype(np.float32)
PARAMS = {"objective": "binary:logistic", "max_depth": 2, "max_bin": 12, "seed": 5}


@pytest.fixture
def gpu(monkeypatch):
    """The second of two fake GPUs; the first is the current one."""
    monkeypatch.setitem(sys.modules, "cupy", fake_cupy.cupy())
    return FakeGpu(1)


@pytest.fixture
def use_gpu(gpu, use_backend):
    use_backend(CudaBackend(gpu))
    return gpu


def model_on_cpu(params, rounds=2, **matrix):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("gpuboost.backend.choose_backend", lambda device, nthread, **table: CpuBackend(1))
        return digest(gb.train(params, gb.DMatrix(X, Y, **matrix), rounds).model)


# ---------------------------------------------------------------------------------------------------------------------
# Copies


@cuda_kernel("values: int64[:]", block=32)
def double_kernel(values):
    i = thread_number()
    while i < values.size:
        values[i] = values[i] * 2
        i += n_threads()


@cuda_kernel("values: int64[:]", block=32)
def triple_kernel(values):
    values[0] = 3


def test_a_small_array_is_copied_in_the_order_of_the_current_stream_without_waiting(gpu):
    """Between two launches, on a stream of the user's; the host may change its array at once."""
    values = np.arange(4)
    with gpu.current(), gpu.xp.cuda.Stream(non_blocking=True):
        there = gpu.put(values)
        gpu.launch(double_kernel, there, threads=4)
        gpu.write(there[:2], values[2:])
        gpu.launch(double_kernel, there, threads=4)
        values[:] = 99
        assert gpu.waits == 0
        assert gpu.fetch(there).tolist() == [4, 6, 8, 12]


def test_a_large_array_is_waited_for(gpu):
    values = np.zeros(STAGED_BYTES // 8 + 1, np.int64)
    with gpu.current():
        there = gpu.put(values)
        assert gpu.waits == 1
        values[:] = 99
        assert not gpu.fetch(there).any()


def test_structs_of_the_host_reach_the_device(gpu):
    values = np.array([(1, 2, 3, 4, 5)], PENALTY)
    with gpu.current():
        assert gpu.fetch(gpu.put(values)).tolist() == values.tolist()


def test_other_values_than_the_array_holds_are_refused(gpu):
    with gpu.current():
        there = gpu.put(np.arange(4))
        for values in (np.arange(3), np.arange(4.0)):
            with pytest.raises(TypeError, match="4 values of int64 cannot be overwritten by"):
                gpu.write(there, values)


def test_fragments_between_blocks_in_use_are_not_free(gpu):
    """The pool holds 5 of 16 GB: 3 in use, 1 beside them in the same blocks, 1 that it can give back."""
    pool = gpu.xp.cuda.pool
    pool.held, pool.used, pool.fragments = 5 * 2**30, 3 * 2**30, 2**30
    assert gpu.free_bytes() == 12 * 2**30
    pool.limit = 6 * 2**30
    assert gpu.free_bytes() == 2 * 2**30


# ---------------------------------------------------------------------------------------------------------------------
# Trainings


@pytest.mark.sweep(2)
@pytest.mark.parametrize("options", [
    {"colsample_bytree": 0.6}, {"subsample": 0.5}, {"colsample_bytree": 0.6, "max_bin": 400}, {"grow_policy": "lossguide"},
    {"objective": "multi:softprob", "num_class": 3, "max_depth": 1},
], ids=str)  # fmt: skip
def test_a_training_on_another_gpu_than_the_current_one_is_the_cpus(options, use_gpu):
    """No array is computed on where it does not lie; whatever the host does not wait for is done late."""
    weight = np.arange(N_ROWS) % 4 / 2
    params = PARAMS | options
    assert digest(gb.train(params, gb.DMatrix(X, Y, weight=weight), 2).model) == model_on_cpu(params, weight=weight)


def test_the_host_waits_once_a_round_though_columns_are_drawn(use_gpu):
    """For the trees of the round before."""
    booster, dtrain, waits = gb.Booster({**PARAMS, "max_depth": 1, "colsample_bytree": 0.5}), gb.DMatrix(X, Y), []
    for _ in range(4):
        before = use_gpu.waits
        booster.update(dtrain)
        waits.append(use_gpu.waits - before)
    assert waits[2:] == [1, 1]


@pytest.mark.slow
def test_a_tree_of_depth_6_takes_53_operations_50_of_them_in_a_graph(use_gpu):
    """Kernels, clears and copies of a round, from the gradients to the tree on its way to the host."""
    machine, booster, dtrain = use_gpu.machine, gb.Booster({**PARAMS, "max_depth": 6}), gb.DMatrix(X, Y)
    for _ in range(3):
        machine.operations.clear()
        booster.update(dtrain)
    (graph,) = machine.graphs
    inside = Counter(graph.operations)
    assert (inside["clear"], inside["copy"], inside["cupy"], inside.total()) == (2, 0, 0, 50)
    gradients, *others = machine.operations
    assert gradients.startswith("gradients.") and others == ["nodes.start_round_kernel", "graph", "copy"]


# ---------------------------------------------------------------------------------------------------------------------
# Graphs


SMALL = {**PARAMS, "max_bin": 6}


def small_matrix():
    return gb.DMatrix(X[:40, :4], Y[:40])


def graphs_of(gpu, params, rounds=3):
    """(digest of the model, graphs recorded, how often one was launched)."""
    model = gb.train(SMALL | params, small_matrix(), rounds).model
    return digest(model), len(gpu.machine.graphs), gpu.machine.operations.count("graph")


def on_cpu(work):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("gpuboost.backend.choose_backend", lambda device, nthread, **table: CpuBackend(1))
        return work()


@pytest.mark.sweep(2)
@pytest.mark.parametrize("options", [
    {"max_depth": 3}, {"colsample_bytree": 0.6, "subsample": 0.5}, {"num_parallel_tree": 2, "subsample": 0.5},
    {"grow_policy": "lossguide", "max_depth": 0, "max_leaves": 4}, {"objective": "reg:absoluteerror"},
    {"booster": "dart", "rate_drop": 0.5}, {"subsample": 0.5, "sampling_method": "gradient_based"},
    {"objective": "multi:softprob", "num_class": 3, "multi_strategy": "multi_output_tree"},
], ids=str)  # fmt: skip
def test_all_trees_but_the_first_are_one_graph(options, use_gpu):
    """Recorded once, whatever is drawn for a round, and the model is the CPU's."""
    n_plans = 3 * options.get("num_parallel_tree", 1)
    expected = on_cpu(lambda: digest(gb.train(SMALL | options, small_matrix(), 3).model))
    assert graphs_of(use_gpu, options) == (expected, 1, n_plans - 1)


@pytest.mark.parametrize("options, depth", [
    ({"grow_policy": "lossguide", "max_depth": 0}, 10), ({"max_depth": 0, "max_leaves": 3}, 2), ({}, 1),
], ids=str)  # fmt: skip
def test_trees_that_ask_the_host_how_far_they_have_grown_are_no_graph(options, depth, use_gpu, monkeypatch):
    monkeypatch.setattr("gpuboost.backend.cuda.plan.SYNC_FREE_DEPTH", depth)
    assert graphs_of(use_gpu, options)[1:] == (0, 0)


def test_what_changes_between_rounds_reaches_a_graph(use_gpu):
    """The learning rate; and margins that a callback reads are the CPU's."""

    def outcome():
        read, rates = [], gb.callback.LearningRateScheduler([0.3, 0.1, 0.5])
        read_margins = gb.callback.TrainingCallback()
        read_margins.after_iteration = lambda model, epoch, log: read.append(model.predict(dtrain).tobytes())
        dtrain = small_matrix()
        model = gb.train(SMALL, dtrain, 3, callbacks=[rates, read_margins], evals=[(dtrain, "train")], verbose_eval=False).model
        return digest(model), read

    found = outcome()
    assert len(use_gpu.machine.graphs) == 1
    assert on_cpu(outcome) == found


@pytest.mark.slow
def test_another_objective_of_the_user_is_another_graph(use_gpu):
    """Leaves of absolute errors are quantiles; those of a user's gradients are not, in the same training."""
    booster, dtrain = gb.Booster({**SMALL, "objective": "reg:absoluteerror"}), small_matrix()
    for i in range(6):  # arrays that leaves need come with the second round
        booster.update(dtrain, i, fobj=None if i % 2 else lambda margin, data: (margin - data.get_label(), np.ones(40)))
    sizes = {len(graph.operations) for graph in use_gpu.machine.graphs}
    assert len(use_gpu.machine.graphs) == len(sizes) == 2


def test_a_gpu_that_refuses_graphs_takes_launches(use_gpu, monkeypatch, capsys):
    def refuse(self, mode):
        raise fake_cuda.CUDARuntimeError(fake_cuda.CAPTURE_UNSUPPORTED, "not on this GPU")

    monkeypatch.setattr(fake_cuda.Stream, "begin_capture", refuse)
    with gb.config_context(verbosity=1):
        assert graphs_of(use_gpu, {"max_depth": 1})[1:] == (0, 0)
    assert capsys.readouterr().err.count("cannot be recorded (not on this GPU)") == 1


@pytest.mark.parametrize("kind", [fake_cuda.CUDARuntimeError, fake_cuda.CUDADriverError])
@pytest.mark.parametrize("status, refuses", [(2, False), (719, False), (899, False), (900, True), (908, True), (909, False)])
def test_errors_that_only_capturing_knows_are_a_refusal(kind, status, refuses, gpu):
    """Whether a launch or the end of the capture says so; no memory (2), a kernel that failed (719) and others are raised."""
    def fail(*arguments):
        raise kind(status)

    with gpu.current():
        there = gpu.put(np.arange(4))
        gpu.fetch(there)
        for method in ("add", "end_capture"):
            with pytest.MonkeyPatch.context() as patch, contextlib.nullcontext() if refuses else pytest.raises(kind):
                patch.setattr(fake_cuda.Stream, method, fail)
                assert gpu.record(lambda: gpu.clear(there)) is None
            gpu.machine.own.graph = None  # where its end failed


@pytest.mark.parametrize("error", [RuntimeError("of the steps"), KeyboardInterrupt()], ids=repr)
def test_an_error_of_the_steps_is_raised_though_the_capture_is_broken(error, gpu):
    def work():
        with contextlib.suppress(RuntimeError):
            gpu.empty(3, np.int64)
        raise error

    with gpu.current(), pytest.raises(type(error)) as caught:
        gpu.record(work)
    assert caught.value is error and gpu.machine.own.graph is None


def test_a_new_array_in_the_place_of_one_that_is_gone_is_not_what_was_recorded(gpu):
    """Each is used for a step, a recording and a replay."""
    launcher = Launcher(gpu)
    with gpu.current():
        for _ in range(3):
            array = gpu.put(np.ones(4, np.int64))
            for _ in range(3):
                launcher.repeat("steps", lambda array=array: gpu.launch(double_kernel, array, threads=4), array)
            assert gpu.fetch(array).tolist() == [8] * 4
            del array


@pytest.mark.parametrize("refused", [
    lambda gpu, there: gpu.fetch(there), lambda gpu, there: gpu.put(np.arange(3)), lambda gpu, there: gpu.empty(3, np.int64),
    lambda gpu, there: gpu.write(there, np.arange(4)), lambda gpu, there: gpu.start_copy(there),
    lambda gpu, there: gpu.mark(), lambda gpu, there: gpu.order_behind(there), lambda gpu, there: there + there,
    lambda gpu, there: gpu.launch(triple_kernel, there, threads=4),
], ids=["fetch", "put", "empty", "write", "start_copy", "mark", "order_behind", "compute", "load"])  # fmt: skip
def test_the_stand_in_refuses_what_a_capture_refuses(refused, gpu):
    """Whoever catches the error gets no graph either."""
    with gpu.current():
        there, place = gpu.put(np.arange(4)), gpu.mark()

        def work():
            with contextlib.suppress(RuntimeError):
                refused(gpu, place if refused.__code__.co_names[-1:] == ("order_behind",) else there)

        assert gpu.record(work) is None
        assert gpu.fetch(there).tolist() == [0, 1, 2, 3]


def test_what_is_recorded_is_done_when_it_is_asked_for_and_as_often(gpu):
    """On the stream that is then the current one."""
    with gpu.current():
        there, zeros = gpu.put(np.arange(4)), gpu.put(np.arange(2))
        gpu.launch(double_kernel, there, threads=4)
        again = gpu.record(lambda: (gpu.launch(double_kernel, there, threads=4), gpu.clear(zeros)))
        assert (gpu.fetch(there).tolist(), gpu.fetch(zeros).tolist()) == ([0, 2, 4, 6], [0, 1])
        with gpu.xp.cuda.Stream(non_blocking=True):
            again()
            again()
            assert (gpu.fetch(there).tolist(), gpu.fetch(zeros).tolist()) == ([0, 8, 16, 24], [0, 0])


def test_all_but_two_launches_of_a_round_are_prepared(use_gpu, monkeypatch):
    """The gradients' and the one that has the round's number."""
    booster, dtrain, packed = gb.Booster({**PARAMS, "max_depth": 1}), gb.DMatrix(X, Y), []

    def pack(kernel, values):
        packed.append(kernel)
        return pack_arguments(kernel, values)

    monkeypatch.setattr("gpuboost.backend.cuda.device.pack_arguments", pack)
    for _ in range(3):
        packed.clear()
        booster.update(dtrain)
    assert len(packed) == 2


@pytest.mark.slow
def test_a_tree_is_copied_beside_the_next_round_but_before_the_next_tree(use_gpu, monkeypatch):
    """The host waits for a level of a deep tree while the one before is still being copied: without the order between the two
    streams that copy is of the new tree."""
    params = {**PARAMS, "max_depth": 3}
    expected = model_on_cpu(params, 2)
    monkeypatch.setattr("gpuboost.backend.cuda.plan.SYNC_FREE_DEPTH", 1)
    assert digest(gb.train(params, gb.DMatrix(X, Y), 2).model) == expected
    monkeypatch.setattr(FakeGpu, "order_behind", lambda self, copy: None)
    assert digest(gb.train(params, gb.DMatrix(X, Y), 2).model) != expected


def test_codes_on_another_gpu_than_the_current_one_are_counted_there(use_gpu):
    table = np.where(np.arange(2 * N_ROWS).reshape(-1, 2) < 5, np.nan, 1.0)
    table[:, 1] = np.nan
    with pytest.warns(UserWarning, match="columns hold nothing but missing values, so no split can use them: \"1\""):
        assert gb.QuantileDMatrix(table).num_nonmissing() == N_ROWS - 3


def test_workers_on_another_gpu_than_the_current_one_exchange_there(use_gpu):
    def work(rank):
        return digest(gb.train({**PARAMS, "max_depth": 1}, gb.DMatrix(X[rank::2], Y[rank::2]), 1).model)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("gpuboost.backend.choose_backend", lambda device, nthread, **table: CpuBackend(1))
        on_cpu = run_threads(2, work)
    assert run_threads(2, work) == on_cpu


# ---------------------------------------------------------------------------------------------------------------------
# Profilers


@pytest.mark.parametrize("is_profiled", [True, False])
def test_a_profiler_sees_the_phases_of_a_training_by_name(is_profiled, gpu, use_backend, monkeypatch):
    """Those of the contract, one after another, within Training.grow what a tree consists of; nobody else is told."""
    if is_profiled:
        monkeypatch.setenv("NVTX_INJECTION64_PATH", "/opt/nvidia/nsight-systems/injection.so")
    use_backend(CudaBackend(FakeGpu(1)))
    gb.train({**PARAMS, "max_depth": 1}, gb.DMatrix(X, Y), 1)
    ranges = gpu.machine.ranges
    if not is_profiled:
        assert ranges == []
        return
    assert {"Coder.bin_rows", "Gradients.quantise", "Trees.build_histograms", "Training.update_margin"} <= set(ranges)
    depths = np.cumsum([1 if name else -1 for name in ranges])
    assert depths[-1] == 0 and set(depths.tolist()) == {0, 1, 2}
    assert {name for name, depth in zip(ranges, np.r_[0, depths]) if name and depth == 0} >= {"Coder.bin_rows", "Training.grow"}
    assert {ranges[i] for i in np.flatnonzero(depths == 2)} >= {"Gradients.quantise", "Trees.build_histograms", ""} - {""}


# ---------------------------------------------------------------------------------------------------------------------
# Tables


@pytest.fixture
def reads(monkeypatch):
    """Rows of the table that are read, each time."""
    from gpuboost.data.tables.source import ColumnSource

    n_read, batches = [], ColumnSource.batches

    def counted(self, *args):
        for batch in batches(self, *args):
            if isinstance(batch, np.ndarray):
                n_read.append(len(batch))
            yield batch

    monkeypatch.setattr(ColumnSource, "batches", counted)
    return n_read


def test_a_table_of_the_host_is_brought_to_the_gpu_once(gpu, use_backend, reads):
    """Passes that count digits, and the one that bins."""
    use_backend(CudaBackend(gpu))
    matrix = gb.QuantileDMatrix(X, Y, max_bin=12)
    assert reads == []  # all batches came from the device
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("gpuboost.backend.choose_backend", lambda device, nthread, **table: CpuBackend(1))
        assert matrix.any_binned().cuts.same_as(gb.QuantileDMatrix(X, Y, max_bin=12).any_binned().cuts)


def test_a_table_that_leaves_no_room_is_brought_anew_for_every_pass(gpu, use_backend, reads):
    gpu.xp.cuda.pool.device_bytes = 2 * 8 * X.size - 2
    use_backend(CudaBackend(gpu))
    gb.QuantileDMatrix(X, Y, max_bin=12)
    assert len(reads) >= 4 and set(reads) == {N_ROWS}


@pytest.mark.parametrize("device, memory", [(None, "host"), ("cpu", "host"), ("cuda:1", "cuda:1")])
def test_a_table_of_the_host_is_binned_where_it_is_asked_for(device, memory, gpu, monkeypatch):
    monkeypatch.setattr("gpuboost.backend.cuda.device.find_device", {1: gpu}.__getitem__)
    assert gb.QuantileDMatrix(X, Y, device=device).any_binned().memory == memory
