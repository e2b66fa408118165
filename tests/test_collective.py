"""Workers that a tracker brings together: one model, values exchanged, and what happens when one fails or a stranger calls."""

import multiprocessing
import os
import socket
import threading
from contextlib import ExitStack
from importlib.util import find_spec
from time import monotonic, sleep

import numpy as np
import pytest

import gpuboost as gb
from gpuboost import collective
from gpuboost import tracker as tracker_module
from gpuboost.tracker import TrackerCall

N = 600
PARAMS = {"objective": "binary:logistic", "subsample": 0.7, "colsample_bytree": 0.8, "max_depth": 4, "nthread": 1, "seed": 3}
rng = np.random.default_rng(0)
X = rng.normal(size=(N, 5)).astype(np.float32)
Y = (X[:, 0] * X[:, 1] + rng.normal(size=N) > 0).astype(np.float32)


def started(n_workers, **options):
    tracker = gb.RabitTracker(n_workers, "127.0.0.1", **options)
    tracker.start()
    return tracker


def in_threads(n_workers, work, **options):
    """work() in a thread for each worker, inside its context; results or errors by task, and the tracker."""
    tracker, results = started(n_workers, sortby="task", **options), {}

    def run(task):
        try:
            with collective.CommunicatorContext(**tracker.worker_args(), dmlc_task_id=str(task)):
                results[task] = work()
        except Exception as error:
            results[task] = error

    threads = [threading.Thread(target=run, args=(task,)) for task in reversed(range(n_workers))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [results[task] for task in range(n_workers)], tracker


def model_of(cuts):
    begin, end = cuts[collective.get_rank()], cuts[collective.get_rank() + 1]
    return bytes(gb.train(PARAMS, gb.DMatrix(X[begin:end], label=Y[begin:end]), 4).save_raw())


def work_in_process(args, task, answers):
    with collective.CommunicatorContext(**args, dmlc_task_id=str(task)):
        answers.put((collective.get_rank(), task, model_of([0, 250, N])))


@pytest.mark.long
def test_processes_train_the_model_of_one():
    context, tracker = multiprocessing.get_context("spawn"), started(2, sortby="task")
    answers = context.Queue()
    workers = [context.Process(target=work_in_process, args=(tracker.worker_args(), task, answers)) for task in ("b", "a")]
    for worker in workers:
        worker.start()
    got = sorted(answers.get(timeout=120) for _ in workers)
    tracker.wait_for(60)
    for worker in workers:
        worker.join()
    assert [answer[:2] for answer in got] == [(0, "a"), (1, "b")]
    alone = gb.train(PARAMS, gb.DMatrix(X, label=Y), 4).save_raw()
    assert got[0][2] == got[1][2] == alone


@pytest.mark.parametrize("cuts", [[0, N], [0, 1, 1, 400, N]], ids=["one", "four, one without rows"])
def test_any_number_of_workers(cuts):
    models, tracker = in_threads(len(cuts) - 1, lambda: model_of(cuts))
    tracker.wait_for(10)
    assert set(models) == {bytes(gb.train(PARAMS, gb.DMatrix(X, label=Y), 4).save_raw())}
    assert not collective.is_distributed() and collective.get_world_size() == 1


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.uint8, np.int16, np.uint64, np.bool_, np.float16])
@pytest.mark.parametrize("op", collective.Op)
def test_allreduce(dtype, op):
    is_bitwise = op.name.startswith("BITWISE")
    if np.dtype(dtype).kind == "f" and is_bitwise:
        with pytest.raises(TypeError):
            collective.allreduce(np.zeros(2, dtype), op)
        return
    values = [np.arange(6).reshape(2, 3).astype(dtype), np.array([[3, 0, 1], [7, 7, 2]]).astype(dtype), np.ones((2, 3), dtype)]
    function = {"MAX": np.maximum, "MIN": np.minimum, "SUM": np.add}.get(op.name) or getattr(np, op.name.lower())
    expected = function(function(values[0], values[1]), values[2])
    results, _ = in_threads(3, lambda: collective.allreduce(values[collective.get_rank()], op))
    swapped = np.dtype(dtype).newbyteorder()
    assert collective.allreduce(values[0].astype(swapped), op).tolist() == values[0].tolist()
    assert isinstance(collective.allreduce(np.array(1, dtype), op), np.ndarray)
    for result in results:
        assert result.dtype == dtype and result.shape == (2, 3)
        np.testing.assert_array_equal(result, expected)


def test_the_operations_have_xgboosts_numbers():
    theirs = pytest.importorskip("xgboost.collective").Op
    assert {op.name: op.value for op in collective.Op} == {op.name: op.value for op in theirs}


@pytest.mark.parametrize("data", [{"a": [1, "ü"]}, None, b"", "x" * 100_000, np.arange(5)], ids=lambda data: type(data).__name__)
@pytest.mark.parametrize("root", [0, 2])
def test_broadcast(data, root):
    results, _ = in_threads(3, lambda: collective.broadcast(data if collective.get_rank() == root else "other", root))
    for result in results:
        np.testing.assert_equal(result, data)


def test_alone_everything_is_its_own():
    collective.init()
    assert (collective.get_rank(), collective.get_world_size(), collective.is_distributed()) == (0, 1, False)
    assert collective.broadcast("x", 0) == "x"
    np.testing.assert_array_equal(collective.allreduce(np.array([2.5]), collective.Op.SUM), [2.5])
    collective.finalize()
    assert collective.get_processor_name() == socket.gethostname()


def test_arguments_come_from_the_environment_too(monkeypatch):
    tracker = started(1)
    for name, value in tracker.worker_args().items():
        monkeypatch.setenv(name.upper(), str(value))
    collective.init()
    assert collective.is_distributed()
    with pytest.raises(RuntimeError, match="initialised already. Call finalize"):
        collective.init()
    collective.finalize()
    tracker.wait_for(10)


def test_a_config_fills_in_arguments():
    """As XGBoost's, and what it fills in is taken."""
    args = started(1).worker_args()
    config = collective.Config(retry=2, timeout=7, worker_port=lambda: 0)
    assert config.update_worker_args(config.get_comm_config(args)) is args
    assert {name: args[name] for name in ("dmlc_retry", "dmlc_timeout", "dmlc_worker_port")} == {
        "dmlc_retry": 2, "dmlc_timeout": 7, "dmlc_worker_port": 0
    }  # fmt: skip
    with collective.CommunicatorContext(**args):
        assert collective.get_world_size() == 1
    assert collective.Config(worker_port=5).update_worker_args({}) == {"dmlc_worker_port": 5}
    assert collective.Config().update_worker_args(collective.Config().get_comm_config({})) == {}


def test_a_worker_that_fails_ends_the_others():
    def work():
        if collective.get_rank() == 1:
            raise KeyError("mine")
        return model_of([0, 200, 400, N])

    results, tracker = in_threads(3, work)
    assert isinstance(results[1], KeyError)
    assert isinstance(results[0], ConnectionError) and isinstance(results[2], ConnectionError)
    with pytest.raises(RuntimeError, match="workers were lost before they had finished"):
        tracker.wait_for(10)
    assert collective.get_world_size() == 1


def test_signal_error_ends_the_others():
    def work():
        if collective.get_rank() == 0:
            collective.signal_error()
            return "gone"
        return collective.broadcast("x", 0)

    results, tracker = in_threads(2, work)
    assert results[0] == "gone" and isinstance(results[1], ConnectionError)
    with pytest.raises(RuntimeError, match="lost"):
        tracker.wait_for(10)


def die(args):
    collective.init(**args)
    os._exit(1)


@pytest.mark.long
def test_a_worker_that_dies_ends_the_others():
    tracker, context = started(2, sortby="host"), multiprocessing.get_context("spawn")
    process = context.Process(target=die, args=(tracker.worker_args(),))
    process.start()
    with pytest.raises(ConnectionError), collective.CommunicatorContext(**tracker.worker_args()):
        gb.train(PARAMS, gb.DMatrix(X, label=Y), 4)
    process.join()
    with pytest.raises(RuntimeError, match="workers were lost"):
        tracker.wait_for(10)


def test_strangers_are_not_let_in_and_do_not_disturb():
    tracker = started(2)
    args = tracker.worker_args()
    address = args["dmlc_tracker_uri"], args["dmlc_tracker_port"]
    with ExitStack() as stack:
        for said in (b"", b"GET / HTTP/1.0\r\n\r\n" * 10, b"\xff" * 1000):
            stranger = stack.enter_context(socket.create_connection(address))
            stranger.sendall(said)
        with pytest.raises(ConnectionError, match="another token"):
            collective.init(**{**args, "gpuboost_token": "0" * 64})
        call = TrackerCall(address, 1.0)  # a worker that goes before the others have come
        call._socket.close()
        models = []

        def work():
            with collective.CommunicatorContext(**args):
                models.append(model_of([0, 300, N]))

        threads = [threading.Thread(target=work) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    tracker.wait_for(10)
    assert len(models) == 2 and models[0] == models[1]
    with pytest.raises(ConnectionError, match="cannot be reached|does not take"):
        TrackerCall(address, 0.0).place(1, "", args["gpuboost_token"])


def test_a_crowd_of_strangers_keeps_nobody_out(monkeypatch):
    """More of them than are listened to at a time, who say nothing."""
    monkeypatch.setattr(tracker_module, "HANDSHAKE_SECONDS", 0.5)
    tracker = started(2)
    args = tracker.worker_args()
    address = args["dmlc_tracker_uri"], args["dmlc_tracker_port"]
    with ExitStack() as stack:
        strangers = [stack.enter_context(socket.create_connection(address)) for _ in range(tracker_module.MOST_STRANGERS + 10)]
        sizes = []

        def work():
            with collective.CommunicatorContext(**args):
                sizes.append(collective.get_world_size())

        threads = [threading.Thread(target=work) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sizes == [2, 2]
        for stranger in strangers:
            stranger.settimeout(20)
            assert len(stranger.recv(100, socket.MSG_WAITALL)) <= 17  # a nonce, and that it is refused; then the end
    tracker.wait_for(10)


def test_a_sender_that_is_slow_is_hung_up_on(monkeypatch):
    monkeypatch.setattr(tracker_module, "HANDSHAKE_SECONDS", 0.5)
    tracker, begin = started(1), monotonic()
    args = tracker.worker_args()
    with socket.create_connection((args["dmlc_tracker_uri"], args["dmlc_tracker_port"])) as slow:
        slow.recv(16, socket.MSG_WAITALL)
        with pytest.raises(OSError):
            while True:
                slow.sendall(b"x")
                sleep(0.2)
    assert monotonic() - begin < 5
    tracker.free()


def test_a_seat_that_is_left_is_taken_by_the_next():
    tracker = started(2)
    args = tracker.worker_args()
    call = TrackerCall((args["dmlc_tracker_uri"], args["dmlc_tracker_port"]), 1.0)
    waiting = threading.Thread(target=lambda: pytest.raises(ConnectionError, call.place, 1, "gone", args["gpuboost_token"]))
    waiting.start()
    while not tracker._come:
        sleep(0.01)
    call._socket.shutdown(socket.SHUT_RDWR)
    waiting.join()
    results = []

    def work():
        with collective.CommunicatorContext(**args):
            results.append(collective.get_world_size())

    workers = [threading.Thread(target=work) for _ in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    tracker.wait_for(10)
    assert results == [2, 2]


def test_a_tracker_gives_up():
    tracker = started(2, timeout=0.3)
    with pytest.raises(ConnectionError, match="has ended before all workers were there"):
        collective.init(**tracker.worker_args())
    with pytest.raises(RuntimeError, match="1 of 2 workers have come within 0.3 s"):
        tracker.wait_for(10)
    tracker, begin = started(2), monotonic()
    with pytest.raises(ValueError, match="not finished within 0.1 s"):
        tracker.wait_for(0.1)
    tracker.free()
    with pytest.raises(RuntimeError, match="was freed"):
        tracker.wait_for(10)
    assert monotonic() - begin < 5


def test_wrong_arguments_say_what_is_right(monkeypatch):
    with pytest.raises(ValueError, match="n_workers must be an integer at least 1, got 2.5"):
        gb.RabitTracker(2.5, "127.0.0.1")
    with pytest.raises(ValueError, match="port must lie between 0, for a free one, and 65535, got 99999"):
        gb.RabitTracker(1, "127.0.0.1", 99999)
    with pytest.raises(ValueError, match="timeout must be at least 0, got -1"):
        gb.RabitTracker(1, "127.0.0.1", timeout=-1)
    with pytest.raises(RuntimeError, match="has not been started. Call start"):
        gb.RabitTracker(1, "127.0.0.1").wait_for(1)
    with pytest.raises(ValueError, match="dmlc_tracker_port is missing"):
        collective.init(dmlc_tracker_uri="127.0.0.1", gpuboost_token="x")
    with pytest.raises(ValueError, match="sortby must be 'host' or 'task'"):
        gb.RabitTracker(1, "127.0.0.1", sortby="rank")
    with pytest.raises(ValueError, match="unknown arguments: dmlc_tracker. Known are dmlc_tracker_uri"):
        collective.init(dmlc_tracker="x")
    with pytest.raises(ValueError, match="gpuboost_token is missing. Pass all that tracker.worker_args"):
        collective.init(dmlc_tracker_uri="127.0.0.1", dmlc_tracker_port=1)
    with pytest.raises(NotImplementedError, match="dmlc_communicator='federated' is not built yet"):
        collective.init(dmlc_communicator="federated", federated_world_size=2)
    with pytest.raises(TypeError, match="takes a NumPy array, got list"):
        collective.allreduce([1], collective.Op.SUM)
    with pytest.raises(TypeError, match="takes numbers, got object"):
        collective.allreduce(np.array([None]), collective.Op.SUM)
    for root in (1, "0"):
        with pytest.raises(ValueError, match=f"root must be the rank of one of 1 workers, got {root!r}"):
            collective.broadcast("x", root)
    monkeypatch.setattr(collective, "PATIENCE", 0.0)
    free = socket.create_server(("127.0.0.1", 0))
    port = free.getsockname()[1]
    free.close()
    with pytest.raises(ConnectionError, match=f"the tracker at 127.0.0.1:{port} cannot be reached.*Start it first"):
        collective.init(dmlc_tracker_uri="127.0.0.1", dmlc_tracker_port=port, gpuboost_token="x")


def test_build_info_says_what_is_installed():
    info = gb.build_info()
    assert info["version"] == gb.__version__ and info["numpy"] == np.__version__
    has_cuda = all(find_spec(name) is not None for name in ("cupy", "numba_cuda"))
    assert info["USE_CUDA"] is info["USE_NCCL"] is has_cuda and not info["USE_FEDERATED"]
