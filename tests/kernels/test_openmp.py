"""kernels/openmp.py: who brings a crowd, and who sends it away. In processes of their own: the library is loaded once."""

import ctypes
import os
import subprocess
import sys
from inspect import getsource
from textwrap import dedent

import pytest


def run(program, **environment):
    """The last line that a function prints in a new process, where numba takes GNU OpenMP and nobody bounds its spinning."""
    try:
        ctypes.CDLL("libgomp.so.1")
    except OSError:
        pytest.skip("there is no GNU OpenMP")
    env = {key: value for key, value in os.environ.items() if key not in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")}
    env |= {"NUMBA_THREADING_LAYER": "omp", "NUMBA_NUM_THREADS": "2", **environment}
    source = dedent(getsource(program)) + f"\n{program.__name__}()"
    done = subprocess.run([sys.executable, "-c", source], env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1]


def train_busy_and_idle():
    """Whether the crowd is there: before, with others that run, without them, and with them again."""
    import os
    import threading

    import numpy as np

    import gpuboost as gb
    from gpuboost.kernels import openmp

    openmp.LOOK_AGAIN_S = 0.0
    X = np.random.default_rng(0).normal(size=(20_000, 20))
    dtrain, models, there = gb.DMatrix(X, X[:, 0] * X[:, 1]), set(), []
    for n_running in (0, os.cpu_count() + 1, 1, os.cpu_count() + 1):
        openmp._count_running = lambda n=n_running: n
        models.add(gb.train({"nthread": 2}, dtrain, 3).save_raw().hex())
        threads = [thread for thread in threading.enumerate() if thread.name == "gpuboost-openmp"]
        there.append(any(thread.is_alive() and not thread.join(0.3) and thread.is_alive() for thread in threads))
    print(there, len(models))


def test_the_crowd_comes_and_goes_with_other_work():
    assert run(train_busy_and_idle) == "[False, True, False, True] 1"


@pytest.mark.parametrize("choice", [{"GOMP_SPINCOUNT": "5000"}, {"OMP_WAIT_POLICY": "passive"}])
def test_the_users_bound_is_left_alone(choice):
    assert run(train_busy_and_idle, **choice) == "[False, False, False, False] 1"


def train_after_somebody_loaded_it():
    import ctypes
    import threading

    ctypes.CDLL("libgomp.so.1")  # as import lightgbm does
    import numpy as np

    import gpuboost as gb
    from gpuboost.kernels import openmp

    openmp._count_running = lambda: 1
    gb.train({"nthread": 2}, gb.DMatrix(np.random.default_rng(0).normal(size=(20_000, 20)), np.arange(20_000)), 2)
    print([thread.name for thread in threading.enumerate() if thread.name == "gpuboost-openmp"])


def test_a_library_that_was_loaded_before_gets_a_crowd_that_stays():
    assert run(train_after_somebody_loaded_it) == "['gpuboost-openmp']"
