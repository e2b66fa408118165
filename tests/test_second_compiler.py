"""A first training's kernels are compiled by two processes: the second compiles what is needed, and only where it may."""

import io
import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numba
import pytest

from gpuboost import second_compiler
from gpuboost.backend.cpu.trees import CpuTrees
from gpuboost.kernels import compile_cache
from gpuboost.kernels.histogram import build_packed_cpu
from gpuboost.kernels.splits import evaluate_splits

fcntl = pytest.importorskip("fcntl")
ROOT = Path(__file__).parents[1]
ALLOWED = {"NUMBA_NUM_THREADS": "2", "GPUBOOST_COMPILERS": "2"}
TRAIN = """
import numpy as np, gpuboost as gb
from gpuboost.model_io import digest
rng = np.random.default_rng(0)
X = rng.normal(size=(300, 6)).astype(np.float32)
d = gb.QuantileDMatrix(X, X[:, 0] > 0)
booster = gb.train({"objective": "binary:logistic"}, d, 2, evals=[(gb.QuantileDMatrix(X, X[:, 1] > 0, ref=d), "test")])
booster.predict(gb.DMatrix(X))
print(digest(booster.model))
"""


def run(code, cache, **variables):
    env = {**os.environ, "NUMBA_CACHE_DIR": str(cache), "PYTHONPATH": str(ROOT), **variables}
    done = subprocess.run([sys.executable, "-c", code], env=env, cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()[-1]


def test_a_first_model_needs_the_kernels_that_are_compiled_for_it(monkeypatch):
    monkeypatch.setattr(CpuTrees, "_whole_trees", lambda *_: None)  # which has them inside
    exec(TRAIN, {})
    needed = {kernel: list(signature) for kernel, signature in second_compiler.first_kernels()}
    del needed[build_packed_cpu.dispatcher]  # histograms are packed in there only
    needed[evaluate_splits(None).dispatcher][4] = numba.int64[:, :, :, ::1]
    assert [kernel for kernel, signature in needed.items() if tuple(signature) not in kernel.overloads] == []


@pytest.fixture
def empty_folder(tmp_path, monkeypatch):
    """Where no kernel has been kept."""
    monkeypatch.setattr(compile_cache, "_own_folders", {"kernel.py": str(tmp_path / "cache")})
    monkeypatch.setattr(compile_cache, "SHIPPED", tmp_path)
    compile_cache._shipped_levels.cache_clear()
    yield tmp_path / "cache"
    compile_cache._shipped_levels.cache_clear()


def test_one_process_at_a_time_compiles_beside_the_first(empty_folder):
    lock = compile_cache.lock_first_use()
    assert lock is not None and compile_cache.lock_first_use() is None
    os.close(lock)
    again = compile_cache.lock_first_use()
    os.close(again)
    assert list(empty_folder.iterdir()) == []


def test_where_kernels_are_kept_already_nobody_does(empty_folder):
    empty_folder.mkdir()
    (empty_folder / f"kernel-1.{compile_cache.PYTHON}.nbi").touch()
    assert compile_cache.lock_first_use() is None


@pytest.mark.parametrize("folder", [None, "/proc/numba"])
def test_where_none_can_be_kept_nobody_does(empty_folder, folder, monkeypatch):
    monkeypatch.setattr(compile_cache, "_own_folders", {"kernel.py": folder})
    assert compile_cache.lock_first_use() is None


def no_more_processes(*_, **__):
    raise BlockingIOError("fork")


@pytest.mark.parametrize("why", ["", "one core", "asked for", "no Python", "another program"])
def test_the_second_process_is_started_once_where_it_may(why, empty_folder, monkeypatch):
    started, pipe = [], io.BytesIO()
    process = SimpleNamespace(wait=lambda: 0, stdin=pipe)
    monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: started.append(1) or process)
    monkeypatch.setattr(numba.config, "NUMBA_NUM_THREADS", 1 if why == "one core" else 2)
    monkeypatch.delenv("GPUBOOST_COMPILERS", raising=False)
    if why == "asked for":
        monkeypatch.setenv("GPUBOOST_COMPILERS", "1")
    if why == "no Python":
        monkeypatch.setattr(sys, "executable", None)
    if why == "another program":
        monkeypatch.setattr(sys, "frozen", True, raising=False)
    second_compiler.start_second_compiler.cache_clear()
    for _ in range(2):
        second_compiler.start_second_compiler()
    assert len(started) == (why == "")
    end = time.monotonic() + 10
    while started and not pipe.closed and time.monotonic() < end:
        time.sleep(0.01)
    assert pipe.closed == (why == "")


def test_without_room_for_a_process_the_lock_is_given_back(empty_folder, monkeypatch):
    monkeypatch.setattr(subprocess, "Popen", no_more_processes)
    monkeypatch.setattr(numba.config, "NUMBA_NUM_THREADS", 2)
    monkeypatch.delenv("GPUBOOST_COMPILERS", raising=False)
    second_compiler.start_second_compiler.__wrapped__()
    os.close(compile_cache.lock_first_use())


def is_locked(folder):
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


@pytest.mark.long
def test_the_second_process_ends_with_a_first_that_is_killed(tmp_path):
    code = "import time; from gpuboost.kernels import compile_cache, leaves; from gpuboost.second_compiler import *\n"
    code += "start_second_compiler(); print([*compile_cache._own_folders.values()][0], flush=True); time.sleep(600)"
    env = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path), "PYTHONPATH": str(ROOT), **ALLOWED}
    with subprocess.Popen([sys.executable, "-c", code], env=env, cwd=ROOT, stdout=subprocess.PIPE, text=True) as first:
        try:
            folder = first.stdout.readline().strip()
            assert is_locked(folder)  # by the second process
        finally:
            first.kill()
    end = time.monotonic() + 60
    while is_locked(folder):
        assert time.monotonic() < end
        time.sleep(0.05)
    assert {path.suffix for path in Path(folder).iterdir()} <= {".nbi", ".nbc", ".lock"}


@pytest.mark.slow
@pytest.mark.long
def test_two_processes_compile_the_kernels_of_one(tmp_path):
    digests, names = set(), []
    for compilers in ("1", "2"):
        cache = tmp_path / compilers
        digests.add(run(TRAIN, cache, **ALLOWED | {"GPUBOOST_COMPILERS": compilers}))
        names.append({path.name for path in cache.rglob("*.nb?")})  # one for each kernel, and for each of its signatures
        again = TRAIN + "from gpuboost.kernels.compile_cache import compile_seconds\nprint(compile_seconds())"
        assert float(run(again, cache)) == 0
    assert len(digests) == 1 and names[0] == names[1]
