"""kernels/openmp.py: who brings a crowd, and who sends it away. In processes of their own: the library is loaded once."""

import ctypes
import os
import re
import subprocess
import sys
from inspect import getsource
from textwrap import dedent

import pytest


def run(program, **environment):
    """What a function prints in a new process, where numba takes GNU OpenMP and nobody bounds its spinning; stderr, too."""
    try:
        ctypes.CDLL("libgomp.so.1")
    except OSError:
        pytest.skip("there is no GNU OpenMP")
    env = {key: value for key, value in os.environ.items() if key not in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")}
    env |= {"NUMBA_THREADING_LAYER": "omp", "NUMBA_NUM_THREADS": "2", **environment}
    source = dedent(getsource(program)) + f"\n{program.__name__}()"
    done = subprocess.run([sys.executable, "-c", source], env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip(), done.stderr


def train_busy_and_idle():
    """Whether the crowd is there: before, with others that run, without them, and with them again."""
    import ctypes
    import os
    import threading

    if "IS_LOADED_BEFORE" in os.environ:  # as by import lightgbm
        ctypes.CDLL("libgomp.so.1")
    import numpy as np

    import gpuboost as gb
    from gpuboost.kernels import openmp

    openmp.LOOK_AGAIN_S = 0.0
    X = np.random.default_rng(0).normal(size=(20_000, 20))
    dtrain, models, there = gb.DMatrix(X, X[:, 0] * X[:, 1]), set(), []
    for n_others in (0, os.cpu_count(), 0, os.cpu_count()):
        openmp._count_others = lambda n_threads, n=n_others: n
        models.add(gb.train({"nthread": 2}, dtrain, 3).save_raw().hex())
        threads = [thread for thread in threading.enumerate() if thread.name == "gpuboost-openmp"]
        there.append(any(thread.is_alive() and not thread.join(0.3) and thread.is_alive() for thread in threads))
    print(there, len(models))


BEFORE = pytest.mark.parametrize("before", [{}, {"IS_LOADED_BEFORE": "1"}], ids=["alone", "loaded before"])


@BEFORE
def test_the_crowd_comes_and_goes_with_other_work(before):
    assert run(train_busy_and_idle, **before)[0] == "[False, True, False, True] 1"


@pytest.mark.parametrize("choice, bound", [({"GOMP_SPINCOUNT": "5000"}, 5000), ({"OMP_WAIT_POLICY": "passive"}, 0)])
def test_the_users_bound_is_left_alone(choice, bound):
    there, said = run(train_busy_and_idle, OMP_DISPLAY_ENV="verbose", **choice)
    assert there == "[False, False, False, False] 1"
    assert re.findall(r"GOMP_SPINCOUNT = '(\d+)'", said) == [str(bound)]  # as the library has read it


def train_and_sleep():
    """Whether a training's other thread spins on: for 0.05 s of this process's time, while its main thread sleeps."""
    import ctypes
    import os
    import time

    if "IS_LOADED_BEFORE" in os.environ:  # as by import lightgbm
        ctypes.CDLL("libgomp.so.1")
    import numpy as np

    import gpuboost as gb
    from gpuboost.kernels import openmp

    openmp._count_others = lambda n_threads: 0
    gb.train({"nthread": 2}, gb.DMatrix(np.random.default_rng(0).normal(size=(20_000, 20)), np.arange(20_000)), 2)
    used, end = time.process_time(), time.monotonic() + float(os.environ["LOOK_FOR_S"])
    while time.process_time() < used + 0.05 and time.monotonic() < end:
        time.sleep(0.05)
    print(time.process_time() >= used + 0.05)


FOREVER = "30000000000"  # spins, many seconds of them: what the library does under OMP_WAIT_POLICY=active


@BEFORE
def test_threads_that_wait_sleep(before):
    assert run(train_and_sleep, LOOK_FOR_S="1", **before)[0] == "False"


def test_threads_spin_as_long_as_the_user_wants():
    assert run(train_and_sleep, LOOK_FOR_S="60", GOMP_SPINCOUNT=FOREVER)[0] == "True"


def train_without_threads():
    """A busy machine on which no thread can be started: training goes on without a crowd."""
    import threading

    import numpy as np

    import gpuboost as gb
    from gpuboost.kernels import openmp

    class NoThread(threading.Thread):
        def start(self):
            raise RuntimeError("can't start new thread")

    openmp._count_others = lambda n_threads: 1000
    openmp.threading.Thread = NoThread
    gb.train({"nthread": 2}, gb.DMatrix(np.zeros((20_000, 20)), np.arange(20_000)), 2)
    print(openmp._crowd._leave)


def test_where_no_thread_can_be_started_there_is_no_crowd():
    assert run(train_without_threads)[0] == "None"
