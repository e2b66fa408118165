"""Threads, forks, spawned processes, signals and folders that cannot be written: the same model, or a clear error, never a hang.

What needs a process of its own is a function here without arguments that `run_alone` calls there; it prints what the test
compares. gpuboost is imported inside those functions, as when and where that happens is part of some tests.
"""

import ctypes
import multiprocessing
import os
import pickle
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[1]
LAYERS = ["omp", "workqueue", "tbb"]
TIMEOUT = 300  # seconds; far more than needed, compilation included, so that a hang is a failure
N_ROWS = 150_000  # several work items for each loop, and enough for several threads (backend.cpu.CODES_PER_THREAD)

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")


def environment(layer=None, **variables):
    env = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{Path(__file__).parent}", **variables}
    if layer:
        env["NUMBA_THREADING_LAYER"] = layer
    if layer == "tbb":  # pip installs its library where the loader does not look
        env["LD_LIBRARY_PATH"] = f"{sys.prefix}/lib:{env.get('LD_LIBRARY_PATH', '')}"
    return env


def command(function):
    return [sys.executable, "-c", f"from {Path(__file__).stem} import {function.__name__} as run; run()"]


def run_alone(function, layer=None, **variables):
    """What the function prints in a process of its own; skips where numba does not have the threading layer."""
    done = subprocess.run(
        command(function), env=environment(layer, **variables), capture_output=True, text=True, timeout=TIMEOUT
    )
    if "No threading layer could be loaded" in done.stderr:
        pytest.skip(f"numba's threading layer {layer} is not installed")
    assert done.returncode == 0, done.stderr
    return done.stdout


def make_table(seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(N_ROWS, 4)).astype(np.float32)
    return X, X[:, 0] * X[:, 1] + X[:, 2]


def train(seed=0, rounds=3, **options):
    import gpuboost as gb

    X, y = make_table(seed)
    return gb.train({"max_depth": 4, **options}, gb.DMatrix(X, y), rounds, verbose_eval=False)


def fit(seed=0, rounds=3, **options):
    """The digest of a model of some table."""
    from gpuboost.model_io import digest

    return digest(train(seed, rounds, **options).model)


@pytest.fixture(scope="module")
def expected():
    """The digests of tables 0 to 3, one after another on one thread."""
    return [fit(seed, nthread=1) for seed in range(4)]


# ---- threads


def fit_in_four_threads():
    """The first use of gpuboost in its process."""
    start = threading.Barrier(4)

    def work(seed):
        start.wait()
        return fit(seed)

    with ThreadPoolExecutor(4) as pool:
        print(*pool.map(work, range(4)))


@pytest.mark.sweep(1)
@pytest.mark.parametrize("layer", LAYERS)
def test_fits_in_four_threads_at_once_give_the_serial_models(layer, expected):
    assert run_alone(fit_in_four_threads, layer).split() == expected


def predict_while_training():
    """Three threads predict for as long as the main thread trains."""
    import gpuboost as gb

    booster, data = train(), gb.DMatrix(make_table(9)[0])
    prediction = booster.predict(data).tobytes()
    started, is_done = threading.Barrier(4), threading.Event()

    def predict():
        started.wait()
        predictions = {booster.predict(data).tobytes()}
        while not is_done.is_set():
            predictions.add(booster.predict(data).tobytes())
        return predictions

    with ThreadPoolExecutor(3) as pool:
        futures = [pool.submit(predict) for _ in range(3)]
        try:
            started.wait()
            digests = [fit(seed) for seed in range(2)]
        finally:
            is_done.set()
        assert [future.result() for future in futures] == [{prediction}] * 3
    print(*digests)


@pytest.mark.sweep(1)
@pytest.mark.parametrize("layer", LAYERS)
def test_threads_predict_while_another_trains(layer, expected):
    assert run_alone(predict_while_training, layer).split() == expected[:2]


def update_in_three_threads():
    """One Booster gets three rounds from each of three threads, while a fourth looks at it in every way; print its digest."""
    import gpuboost as gb
    from gpuboost.model_io import digest

    X, y = make_table()
    dtrain, rows = gb.DMatrix(X, y), gb.DMatrix(X[:100])
    whole = train(rounds=9)
    expected = {whole[:n].predict(rows).tobytes() for n in range(1, 10)}
    start, booster = threading.Barrier(4), gb.Booster({"max_depth": 4})
    booster.update(dtrain)
    is_done = threading.Event()

    def update(n_rounds):
        start.wait()
        for _ in range(n_rounds):
            booster.update(dtrain)

    def look():
        start.wait()
        seen = set()
        while not is_done.is_set():
            booster.eval(dtrain)
            for model in (booster, booster.copy(), pickle.loads(pickle.dumps(booster)), booster[:]):
                seen.add(model.predict(rows).tobytes())
            seen.add(gb.Booster(model_file=booster.save_raw()).predict(rows).tobytes())
        return seen

    with ThreadPoolExecutor(4) as pool:
        looking, updates = pool.submit(look), [pool.submit(update, n_rounds) for n_rounds in (2, 3, 3)]
        try:
            for future in updates:
                future.result()
        finally:
            is_done.set()
        assert looking.result() <= expected
    print(digest(booster.model), digest(whole.model))


@pytest.mark.sweep(1)
@pytest.mark.parametrize("layer", LAYERS)
def test_threads_that_update_one_booster_add_whole_rounds_one_after_another(layer):
    digest, expected = run_alone(update_in_three_threads, layer).split()
    assert digest == expected


def test_an_objective_may_use_the_booster_that_it_trains():
    import gpuboost as gb

    X = np.arange(40.0)[:, None]
    booster, dtrain, seen = gb.Booster(), gb.DMatrix(X, X[:, 0]), []

    def objective(prediction, dtrain):
        seen.append((booster.num_boosted_rounds(), booster.predict(dtrain).tobytes(), bytes(booster.save_raw())))
        return prediction - dtrain.get_label(), np.ones_like(prediction)

    booster.update(dtrain)
    for _ in range(2):
        before = booster.num_boosted_rounds(), booster.predict(dtrain).tobytes(), bytes(booster.save_raw())
        booster.update(dtrain, fobj=objective)
        assert seen.pop() == before


def import_in_a_thread():
    assert "gpuboost" not in sys.modules and "numba" not in sys.modules
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(fit).result()
    print(first, fit())


def test_import_and_first_use_in_a_thread(expected):
    assert run_alone(import_in_a_thread).split() == [expected[0]] * 2


def fit_with_any_nthread():
    print(*(fit(nthread=nthread) for nthread in (None, 0, 1, 3, 1000)))


@pytest.mark.sweep(1)
@pytest.mark.parametrize("n_threads", ["1", "13"])
def test_more_threads_than_cores_and_than_there_are(n_threads, expected):
    """13 threads are more than this test's machines have cores to spare; 1000 are more than numba has started."""
    assert run_alone(fit_with_any_nthread, NUMBA_NUM_THREADS=n_threads).split() == [expected[0]] * 5


# ---- processes


def in_fork(function):
    """What the function returns in a forked child, or the text of the exception that it raises there."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            answer = function()
        except Exception as error:
            answer = f"{type(error).__name__}: {error}"
        os.write(writer, answer.encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        answer = pipe.read()
    assert os.waitpid(child, 0)[1] == 0, "the child was killed"
    return answer


def fork_and_fit():
    """Print the answers of a child forked before the parent's first fit, the parent, another child, a pool, the parent again."""
    import gpuboost  # noqa: F401 - the first child shares the import

    print(in_fork(fit))
    print(fit())
    print(in_fork(fit))
    with multiprocessing.get_context("fork").Pool(2) as pool:  # a worker that was killed would be replaced for ever
        try:
            print(*pool.map(fit, range(2)))
        except RuntimeError as error:
            print(f"RuntimeError: {error}")
    print(fit())
    print(in_fork(partial(fit, nthread=1)))


@pytest.mark.sweep(1)
@needs_fork
@pytest.mark.parametrize("layer", LAYERS)
def test_fork_works_or_says_why_not(layer, expected):
    """Threads of GNU OpenMP do not survive a fork: the child says so, and what to do, unless it needs none. The parent goes on in
    any case."""
    first_child, before, child, pool, afterwards, serial_child = run_alone(fork_and_fit, layer).splitlines()
    assert first_child == before == afterwards == serial_child == expected[0]
    if layer == "omp":
        assert re.match("RuntimeError: this process was forked .*spawn.*NUMBA_THREADING_LAYER", child)
        assert pool == child
    else:
        assert child == expected[0] and pool.split() == expected[:2]


def train_beside_held_locks():
    """Another thread holds the locks of numba and llvmlite, as one that compiles does, or one that was interrupted where it had
    just taken them; and that of the Booster. Print what this thread, and a forked child with one thread, make of it."""
    from llvmlite.binding.ffi import lib
    from numba.core.compiler_lock import global_compiler_lock
    from numba.np.ufunc import parallel

    import gpuboost as gb

    X, y = make_table()
    for options in ({}, {"nthread": 1}):  # twice, the second time from the cache: nothing is left to compile
        train(**options)
        print(fit(**options))
    booster, rows = train(nthread=1), gb.DMatrix(X[:5])
    print(booster.predict(rows).tolist())
    is_held, is_over = threading.Event(), threading.Event()

    def hold():
        with global_compiler_lock, lib._lock, parallel._backend_init_process_lock, parallel._backend_init_thread_lock:
            with booster._lock:
                is_held.set()
                is_over.wait()

    holder = threading.Thread(target=hold, daemon=True)
    holder.start()
    is_held.wait()
    print(fit())
    print(in_fork(partial(fit, nthread=1)) if hasattr(os, "fork") else fit(nthread=1))
    print(in_fork(lambda: str(booster.predict(rows).tolist())) if hasattr(os, "fork") else booster.predict(rows).tolist())
    is_over.set()


def test_a_warm_training_waits_for_no_compiler(expected):
    first, second, prediction, *beside = run_alone(train_beside_held_locks).splitlines()
    assert first == second == expected[0] and beside == [first, first, prediction]


def fork_beside_openmp():
    """Something else in the parent has started threads of GNU OpenMP. Print the answers of a child that imports the kernels, of
    one whose parent has imported them, and of the parent."""
    library = ctypes.CDLL("libgomp.so.1")
    import gpuboost

    library.GOMP_parallel(ctypes.CDLL(None).getpid, None, ctypes.c_uint(2), ctypes.c_uint(0))
    assert "numba" not in sys.modules
    print(in_fork(fit))
    assert gpuboost.train
    print(in_fork(fit))
    print(fit())


@pytest.mark.sweep(1)
@needs_fork
@pytest.mark.parametrize("layer", [None, *LAYERS])
def test_fork_after_others_have_started_threads_works_or_says_why_not(layer, expected):
    try:
        ctypes.CDLL("libgomp.so.1")
    except OSError:
        pytest.skip("there is no GNU OpenMP")
    *children, parent = run_alone(fork_beside_openmp, layer, NUMBA_NUM_THREADS="2").splitlines()
    assert parent == expected[0] and len(children) == 2
    for answer in children:
        if layer == "omp":
            assert re.match("RuntimeError: this process was forked .*spawn.*NUMBA_THREADING_LAYER", answer)
        else:
            assert answer == expected[0]


def pool_of_spawned_workers():
    mine = fit(2)
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        print(*pool.map(fit, range(2)), mine)


@pytest.mark.slow
def test_pool_of_spawned_workers_after_fit(expected):
    assert run_alone(pool_of_spawned_workers).split() == expected[:3]


# ---- Ctrl-C


def interrupted_training():
    """Train without end until SIGINT; then print the rounds kept and three digests."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's job in the background ignores it, and so its children
    import gpuboost as gb
    from gpuboost.model_io import digest

    class Keep(gb.callback.TrainingCallback):
        def after_iteration(self, model, epoch, evals_log):
            self.booster = model
            if epoch == 5:
                print("started", flush=True)
            return False

    X, y = make_table()
    dtrain, keep = gb.DMatrix(X, y), Keep()
    try:
        gb.train({"max_depth": 4}, dtrain, 10**9, callbacks=[keep], verbose_eval=False)
    except KeyboardInterrupt:
        pass
    n_rounds = keep.booster.num_boosted_rounds()
    print(n_rounds, digest(keep.booster.model), fit(rounds=n_rounds), fit())


@pytest.mark.sweep(1)
@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGINT for one process")
@pytest.mark.parametrize("layer", LAYERS)
def test_sigint_stops_training_and_leaves_whole_rounds_and_a_usable_process(layer, expected):
    process = subprocess.Popen(
        command(interrupted_training), env=environment(layer), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        if process.stdout.readline().strip() == "started":
            process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=TIMEOUT)
    finally:
        process.kill()
    if "No threading layer could be loaded" in errors:
        pytest.skip(f"numba's threading layer {layer} is not installed")
    assert process.returncode == 0, errors
    n_rounds, kept, same_rounds, afterwards = output.split()
    assert int(n_rounds) >= 5
    assert kept == same_rounds and afterwards == expected[0]


def interrupted_imports():
    """Ctrl-C in the middle of what the first use of gpuboost imports, at one place after another; then train."""
    import gpuboost

    class Stop:
        def __init__(self, module):
            self.module = module

        def find_spec(self, name, *_):
            if name == self.module:
                raise KeyboardInterrupt

    for module in ("llvmlite.binding", "numba.core.typeinfer", "gpuboost.kernels.jit"):
        sys.meta_path.insert(0, Stop(module))
        try:
            print(gpuboost.train)
        except KeyboardInterrupt:
            pass
        del sys.meta_path[0]
    print(fit())


def test_an_interrupted_import_is_begun_anew(expected):
    assert run_alone(interrupted_imports).split() == [expected[0]]


# ---- folders that cannot be written


def predict_from_file():
    import gpuboost as gb

    assert Path(gb.__file__).parents[1] == Path.cwd() and not os.access(gb.__file__, os.W_OK)
    prediction = gb.Booster(model_file="model.json").predict(gb.DMatrix(make_table()[0][:100]))
    print(prediction.tobytes().hex())


@pytest.fixture(scope="module")
def read_only_installation():
    """A folder that any user can read and none can write, with the package, this file and a model."""
    folder = Path(tempfile.mkdtemp())
    for package in ("gpuboost", "kernels"):
        shutil.copytree(ROOT / package, folder / package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(__file__, folder)
    train().save_model(folder / "model.json")
    paths = [folder, *folder.rglob("*")]
    for path in paths:
        path.chmod(0o555 if path.is_dir() else 0o444)
    yield folder
    for path in paths:
        if path.is_dir():
            path.chmod(0o755)
    shutil.rmtree(folder)


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="Windows has no such permissions")
@pytest.mark.parametrize("cache", [None, "/proc/numba"])
def test_read_only_installation_without_a_folder_for_the_cache(read_only_installation, cache):
    """Kernels are compiled (without LLVM's optimisation, which takes long) and not kept, and that is said once."""
    elsewhere = {"PYTHONPATH": str(read_only_installation), "HOME": "/proc/home", "XDG_CACHE_HOME": "/proc/cache"}
    env = environment(NUMBA_OPT="0", **elsewhere)
    env.pop("NUMBA_CACHE_DIR", None)
    if cache:
        env["NUMBA_CACHE_DIR"] = cache
    # Root may write anywhere, but for this.
    as_others = ["setpriv", "--bounding-set=-dac_override"] if os.geteuid() == 0 else []
    if as_others and not shutil.which("setpriv"):
        pytest.skip("root may write anywhere, and setpriv is not here to change that")
    done = subprocess.run(
        [*as_others, *command(predict_from_file)], env=env, cwd=read_only_installation, capture_output=True, text=True,
        timeout=TIMEOUT,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("Set the environment variable NUMBA_CACHE_DIR") == 1
    assert all(re.match(r"\[gpuboost\] compil(ing|ed) .*CPU kernels", line) for line in done.stderr.splitlines())
    import gpuboost as gb

    model = gb.Booster(model_file=read_only_installation / "model.json")
    assert done.stdout.strip() == model.predict(gb.DMatrix(make_table()[0][:100])).tobytes().hex()
    assert not list(read_only_installation.rglob("*.nbi"))
