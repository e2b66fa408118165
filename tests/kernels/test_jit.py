"""What decorators of kernels make: one machine code for any number of threads, whose parts may fail."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import numba
import numpy as np
import pytest

import gpuboost as gb
from gpuboost.kernels import compile_cache, jit

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[2]


@jit.parallel_kernel.part
def _add_number(thread, numbers, step, pair):
    jit.add_atomic(numbers, thread, step * pair[0] + pair[1])


@jit.parallel_kernel
def add_number_cpu(numbers, pair, n_threads):
    jit.launch(n_threads, _add_number, (numbers, 10, pair))


@pytest.mark.parametrize("n_threads", sorted({1, 2, numba.config.NUMBA_NUM_THREADS}))
def test_each_thread_calls_its_part_once_with_its_number_and_the_same_machine_code(n_threads):
    numbers = np.zeros(n_threads + 1, np.int64)
    add_number_cpu(numbers, (np.int64(2), np.int64(3)), n_threads)
    assert numbers.tolist() == [23] * n_threads + [0]
    assert len(add_number_cpu.dispatcher.signatures) == 1


@jit.parallel_kernel.part
def _count_apart(thread, locks, counts):
    for i in range(100_000):
        jit.lock(locks, i % 2)
        for k in range(counts.shape[1]):
            counts[i % 2, k] += 1
        jit.unlock(locks, i % 2)


@jit.parallel_kernel
def count_apart_cpu(locks, counts, n_threads):
    jit.launch(n_threads, _count_apart, (locks, counts))


def test_what_a_lock_is_held_for_is_done_by_one_thread_at_a_time():
    locks, counts = np.zeros(2, np.uint8), np.zeros((2, 20), np.int64)
    count_apart_cpu(locks, counts, 4)
    assert (counts == 4 * 50_000).all()
    assert not locks.any()


@jit.parallel_kernel.part
def _write_slices(thread, given, own):
    (number,), grid = given
    for row in grid[number * thread : number * thread + number]:
        row[:] = own[thread]


@jit.parallel_kernel
def write_slices_cpu(number, grid, n_threads):
    own = np.arange(n_threads)  # of the kernel: it has to outlive the parts, which count no references
    jit.launch(n_threads, _write_slices, (((number,), grid), own))


def test_parts_slice_arrays_of_nested_tuples_and_leave_their_owners_be():
    grid = np.full((40_000, 3), -1)
    held = sys.getrefcount(grid)
    write_slices_cpu(np.int64(20_000), grid, 2)
    np.testing.assert_array_equal(grid, np.repeat([0, 1], 20_000)[:, None] + [0, 0, 0])
    assert sys.getrefcount(grid) == held


@jit.parallel_kernel.part
def _take_memory(thread, size, taken):
    if thread == 0:
        taken[0] = np.empty(size, np.uint8).size


@jit.parallel_kernel
def take_memory_cpu(size, taken, n_threads):
    jit.launch(n_threads, _take_memory, (size, taken))
    taken[1] = 1


@pytest.mark.parametrize("n_threads", [1, 2])
def test_a_part_that_finds_no_memory_ends_the_kernel(n_threads):
    taken = np.zeros(2, np.int64)
    with pytest.raises(MemoryError, match="no memory"):
        take_memory_cpu(2**60, taken, n_threads)
    assert taken.tolist() == [0, 0]
    take_memory_cpu(2**10, taken, n_threads)
    assert taken.tolist() == [2**10, 1]


def test_without_compiling_the_error_says_so():
    env = {**os.environ, "NUMBA_DISABLE_JIT": "1"}
    command = [sys.executable, "-c", "import gpuboost; gpuboost.train"]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True)
    assert done.returncode == 1 and "Unset NUMBA_DISABLE_JIT." in done.stderr.splitlines()[-1]


def test_no_kernel_has_a_region_of_numbas_own():
    """It would be run by one thread: nothing is compiled with parallel=True."""
    folders = ROOT / "kernels", *(ROOT / "gpuboost" / name for name in compile_cache.FORMULA_FOLDERS)
    names = {
        node.id if isinstance(node, ast.Name) else node.attr
        for folder in folders for path in folder.glob("*.py") for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Name | ast.Attribute)
    }  # fmt: skip
    assert "launch" in names and "prange" not in names


def test_an_objective_of_the_user_has_the_users_threads():
    seen, before = [], jit.available_threads()

    def objective(prediction, dtrain):
        seen.append(jit.available_threads())
        return prediction - dtrain.get_label(), np.ones_like(prediction)

    gb.train({"nthread": 1}, gb.DMatrix(np.arange(50.0)[:, None], np.arange(50.0)), 2, obj=objective)
    assert seen == [before] * 2
