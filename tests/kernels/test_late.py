"""Kernels that are called late are compiled when, and only if, they are first called."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numba
import numpy as np
import pytest

from gpuboost.kernels import jit, late

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[2]


@jit.kernel
def add_to_all(numbers, nothing, pair):
    for i in range(numbers.size):
        numbers[i] += pair[0] * pair[1]
    if numbers[0] < 0:
        raise ValueError("below zero")


@jit.kernel
def count(numbers):
    return numbers.size


@jit.parallel_kernel.part
def _call(numbers, which):
    if which == 0:
        jit.call_late(add_to_all, (numbers, None, (3, np.float64(2))))
    elif which == 1:
        jit.call_late(count, (numbers,))


@jit.parallel_kernel
def call_cpu(numbers, which, n_threads):
    jit.call_late(add_to_all, (numbers, None, (3, np.float64(2)))) if which == 2 else _call(numbers, which)
    jit.launch(n_threads, _call, (numbers, which))


def test_a_kernel_is_compiled_when_it_is_first_called():
    numbers = np.zeros(3)
    call_cpu(numbers, 3, 1)
    assert add_to_all.overloads == {} and not numbers.any()
    call_cpu(numbers, 0, 1)
    assert len(add_to_all.overloads) == 1 and numbers.tolist() == [12, 12, 12]
    call_cpu(numbers, 2, 1)
    assert len(add_to_all.overloads) == 1 and numbers.tolist() == [18, 18, 18]


def test_what_it_raises_its_caller_raises():
    with pytest.raises(ValueError, match="below zero"):
        call_cpu(np.full(3, -100.0), 0, 1)


def test_one_that_returns_something_is_refused():
    with pytest.raises(TypeError, match="count returns int64"):
        call_cpu(np.zeros(3), 1, 1)
    call_cpu(np.zeros(3), 0, 1)


def test_what_ends_its_compiling_is_heard_of_and_it_is_compiled_again(monkeypatch):
    numbers, name = np.zeros(3, np.float32), f"{__name__}.add_to_all"
    for error in (KeyboardInterrupt("no"), numba.TypingError("no")):

        class Failing:
            def compile(self, signature, error=error):
                raise error

        monkeypatch.setattr(late, "kernels_by_name", {name: Failing()})
        with pytest.raises(type(error), match="no"):
            call_cpu(numbers, 2, 1)
    monkeypatch.undo()
    call_cpu(numbers, 2, 1)
    assert numbers.tolist() == [6, 6, 6]


INTERRUPT = """
import signal
import numpy as np
from numba import types
from gpuboost.kernels import jit
send_signal = types.ExternalFunction("raise", types.int32(types.int32))  # of C: Python hears of it at its next line

@jit.kernel
def add_one(numbers):
    numbers[0] += 1

@jit.parallel_kernel
def call_cpu(numbers, n_threads):
    if numbers[0] == 0:
        send_signal(2)
    jit.call_late(add_one, (numbers,))

numbers = np.zeros(1)
try:
    call_cpu(numbers, 1)
except KeyboardInterrupt:
    call_cpu(numbers + 1, 1)
    print("interrupted", numbers[0], len(add_one.overloads))
"""


@pytest.mark.skipif(os.name == "nt", reason="signals are other ones there")
def test_ctrl_c_before_a_first_call_interrupts(tmp_path):
    env, script = {**os.environ, "PYTHONPATH": str(ROOT)}, tmp_path / "interrupt.py"
    script.write_text(INTERRUPT)  # a cache looks for a file
    ran = subprocess.run([sys.executable, script], env=env, capture_output=True, text=True)
    assert (ran.returncode, ran.stdout) == (0, "interrupted 0.0 1\n"), ran.stderr


KEPT = """
import numpy as np
from gpuboost.kernels import compile_cache, jit

@jit.kernel
def add_one(numbers):
    numbers[0] += 1

@jit.kernel
def add_two(numbers):
    numbers[0] += 2

@jit.kernel
def call(numbers, which):
    if which == 1:
        jit.call_late(add_one, (numbers,))
    else:
        jit.call_late(add_two, (numbers,))

numbers = np.zeros(1)
call(numbers, 1)
print(compile_cache.compile_seconds() == 0, numbers[0], len(add_one.overloads), len(add_two.overloads))
"""


def test_another_process_finds_it_in_the_cache(tmp_path):
    env, script = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path), "PYTHONPATH": str(ROOT)}, tmp_path / "kept.py"
    script.write_text(KEPT)
    said = [
        subprocess.run([sys.executable, script], env=env, capture_output=True, text=True, check=True).stdout for _ in range(2)
    ]
    assert said == ["False 1.0 1 0\n", "True 1.0 1 0\n"]


@jit.kernel
def call_one(address, numbers):
    jit.call_at(address, (numbers, None, (3, np.float64(2))))


def test_one_that_is_known_by_its_address():
    numbers = np.zeros(2, np.float32)
    kernel = SimpleNamespace(dispatcher=add_to_all)
    call_one(jit.find_address(kernel, numbers, None, (3, 2.0)), numbers)
    assert numbers.tolist() == [6, 6]
    with pytest.raises(ValueError, match="below zero"):
        call_one(jit.find_address(kernel, numbers, None, (3, 2.0)), numbers - 100)
    with pytest.raises(TypeError, match="count returns int64"):
        jit.find_address(SimpleNamespace(dispatcher=count), numbers)
