"""Fixtures for tests of whole trainings: seeded tables, and which backend trains."""

import shared_bytecode  # isort: skip # noqa: F401 - first: what is imported from here on is compiled once for all processes

import gc
import os
from dataclasses import dataclass
from functools import cache

import numba
import numpy as np
import pytest
from hypothesis import settings

from gpuboost.backend.cuda.device import has_gpu, usable_device
from gpuboost.kernels import compile_cache

# Machines are shared and kernels compile at their first use: how long an example takes says nothing.
settings.register_profile("any pace", deadline=None)
settings.load_profile("any pace")
# For the libraries to compare with, where a test lets them choose: threads of OpenMP that wait would spin on cores that the other
# process of the tests computes on. numba is told a number of its own, so that gpuboost has as many as ever.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("NUMBA_NUM_THREADS", str(numba.config.NUMBA_NUM_THREADS))
# Two processes of tests share two cores: threads of a region that wait at its end should sleep (kernels/openmp.py).
os.environ.setdefault("GOMP_SPINCOUNT", "0")
# Nor does a third one compile beside them, or one beside each process that a test starts with an empty cache.
os.environ.setdefault("GPUBOOST_COMPILERS", "1")


@cache
def _missing_gpu():
    """What keeps the tests marked gpu from running here; None: nothing."""
    return usable_device() if has_gpu() else "CuPy is not installed or sees no NVIDIA GPU"


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Thousands of tests, and the libraries that they import, stay to the end: the garbage collector need not go through them,
    neither as they come nor every time that it looks at everything, for up to a second."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_runtest_setup(item):
    if item.get_closest_marker("gpu") and (reason := _missing_gpu()) is not None:
        pytest.skip(f"needs a GPU: {reason}")


def _spread(cases, n):
    """n of the cases, one after another that with the most values which none before it has."""
    left, chosen, seen = list(cases), [], set()
    values = {
        item: {(name, id(value)) for name, value in item.callspec.params.items()} if hasattr(item, "callspec") else {()}
        for item in cases
    }
    while left and len(chosen) < n:
        best = max(left, key=lambda item: len(values[item] - seen))
        left.remove(best)
        chosen.append(best)
        seen |= values[best]
        if all(values[item] <= seen for item in left):
            seen = set()  # all values are there: go round again
    return chosen


def _stays(item, rung):
    """Whether a case on a rung may be one for every commit: on IR not where numba-cuda types and lowers for 5 to 25 s."""
    long_files = "test_cuda_splits", "test_cuda_category_splits", "test_cuda_row_sampling"
    takes_long = item.get_closest_marker("long") or item.path.stem in long_files
    return rung != "ir" or not takes_long


@pytest.hookimpl(tryfirst=True)  # before -m is asked
def pytest_collection_modifyitems(items):
    """Three tiers: `-m quick` for every edit, `-m "not slow"` (README) before a commit, all in .ci/run.

    sweep(n) : of a test's cases n stay, chosen for many values of their parameters; the others, which only widen the sweep, are
    slow. rung(name) : so are cases on a rung beside the simulator, but for the first of each file (see _stays). Quick is the
    first case of every test that stays, but for long ones: those marked so, and all of a file whose ``pytestmark`` says long.
    """
    on_rungs = [(item, marker.args[0]) for item in reversed(items) if (marker := item.get_closest_marker("rung"))]
    first_on_rungs = {(item.path, rung): item for item, rung in on_rungs if _stays(item, rung)}
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for own in cases.values():
        marker = own[0].get_closest_marker("sweep")
        swept = [item for item in own if not item.get_closest_marker("gpu") and not item.get_closest_marker("rung")]
        kept = swept if marker is None else _spread(swept, marker.args[0])
        kept = [*kept, *first_on_rungs.values()]
        for item in own:
            if item not in kept and not item.get_closest_marker("gpu"):
                item.add_marker(pytest.mark.slow)
        first = next((item for item in own if item.get_closest_marker("slow") is None), None)
        if first is not None and first.get_closest_marker("long") is None and first.get_closest_marker("gpu") is None:
            first.add_marker(pytest.mark.quick)


@dataclass(frozen=True)
class Table:
    """X : float32 (n, 6). label, weight : float32 (n,)."""

    X: np.ndarray
    label: np.ndarray
    weight: np.ndarray

    def take(self, rows) -> "Table":
        return Table(self.X[rows], self.label[rows], self.weight[rows])


@pytest.fixture(scope="session")
def make_table():
    """Function (n_rows, objective, loud=False) -> Table.

    Its columns: dense, with missing values, mostly zero, whole numbers, constant, and all missing but one row. One row in twenty
    weighs 0. loud : a few rows weigh a million times as much as most. Three classes for multi:softprob.
    """

    def make(n_rows: int, objective: str, loud: bool = False) -> Table:
        rng = np.random.default_rng(n_rows)
        X = rng.normal(size=(n_rows, 6))
        X[rng.random(n_rows) < 0.2, 1] = np.nan
        X[rng.random(n_rows) < 0.8, 2] = 0.0
        X[:, 3] = rng.integers(-3, 4, n_rows)
        X[:, 4] = 7.0
        X[1:, 5] = np.nan
        signal = np.where(np.isnan(X[:, 1]), 1.0, X[:, 1]) * X[:, 3] + X[:, 0] + 2.0 * X[:, 2] + rng.normal(size=n_rows)
        thresholds = {"reg:squarederror": None, "binary:logistic": [0.0], "multi:softprob": [-1.0, 1.0]}[objective]
        label = signal if thresholds is None else np.searchsorted(thresholds, signal)
        weight = 10.0 ** (6.0 * rng.random(n_rows) ** 6) if loud else rng.integers(1, 5, n_rows) / 2.0
        weight[rng.random(n_rows) < 0.05] = 0.0
        return Table(X.astype(np.float32), label.astype(np.float32), weight.astype(np.float32))

    return make


@pytest.fixture(autouse=True)
def all_threads(request, monkeypatch):
    """A small table trains on as many threads as it is given, so that a test of a few rows is a test of threads; but where a test
    is marked usual_threads."""
    if request.node.get_closest_marker("usual_threads") is None:
        monkeypatch.setattr("gpuboost.backend.cpu.training.busy_threads", lambda binned, n_outputs, n_threads: n_threads)


@pytest.fixture(autouse=True)
def lists_of_cells(request, monkeypatch):
    """A sparse table stays one, however small and full, so that a test of it is a test of lists; but where a test is marked
    written_out."""
    if request.node.get_closest_marker("written_out") is None:
        monkeypatch.setattr("gpuboost.data.density.CODES_OF_A_CELL", 0)
        monkeypatch.setattr("gpuboost.data.density.CODES_OF_A_SMALL_CELL", 0)


@pytest.fixture(autouse=True)
def quiet_compiling(monkeypatch):
    """What a test reads of standard error does not depend on which kernels its process was the first to need."""
    monkeypatch.setattr(compile_cache, "_compile_hook", None)


@pytest.fixture
def use_backend(monkeypatch):
    """Function (backend) that makes matrices and Boosters of the test compute with it."""

    def use(backend) -> None:
        monkeypatch.setattr("gpuboost.backend.choose_backend", lambda device, nthread, **table: backend)

    return use
