"""kernels/entry.py: what Python gives a kernel arrives, and nothing of it is kept or lost."""

import sys
import threading

import numba
import numpy as np
import pytest

from gpuboost.kernels.jit import add_atomic, kernel
from gpuboost.kernels.pipeline import KernelPipeline


@kernel
def describe(array, out):
    out[0], out[1], out[2] = array.shape[0], array.shape[1], array.itemsize
    out[3], out[4] = array.strides[0], array.strides[1]
    out[5] = array[1, 2]


@pytest.mark.parametrize("dtype", [np.int8, np.uint16, np.int64, np.float32, np.float64, np.bool_])
@pytest.mark.parametrize("lay_out", [np.ascontiguousarray, np.asfortranarray, lambda a: np.repeat(a, 2, 1)[:, ::2]])
def test_arrays_have_their_shape_and_strides(dtype, lay_out):
    array, out = lay_out(np.arange(20).reshape(4, 5) % 3).astype(dtype, order="K"), np.zeros(6, np.int64)
    array = lay_out(array)
    array.flags.writeable = False
    describe(array, out)
    assert out.tolist() == [4, 5, array.itemsize, *array.strides, int(array[1, 2])]


@kernel
def join(integer, real, single, is_set, unsigned, nothing, nested, out):
    (first, second), third = nested
    out[0], out[1], out[2], out[3] = integer, real, single, 1.0 if is_set else 0.0
    out[4], out[5] = unsigned >> np.uint64(40), first[0] + second + third[0, 1]
    return out.size, is_set, real


@pytest.mark.parametrize("integer", [7, -(2**63), np.int64(-3), True])
@pytest.mark.parametrize("real", [0.1, np.float64(-np.inf)])
def test_numbers_and_tuples_arrive(integer, real):
    nested, out = ((np.array([2]), 3), np.array([[1.0, 0.5]])), np.zeros(6)
    found = join(integer, real, np.float32(0.3), np.bool_(True), np.uint64(2**64 - 1), None, nested, out)
    assert out.tolist() == [float(integer), real, float(np.float32(0.3)), 1.0, float(2**24 - 1), 5.5]
    assert found == (6, True, real) and [type(value) for value in found] == [int, bool, float]


def test_references_stay_as_they_are():
    arrays = [np.zeros(3), np.arange(6.0).reshape(2, 3)]
    nested, out = ((np.array([2]), 3), arrays[1]), np.zeros(6)
    given = [nested, *nested, *nested[0], out]
    before = [sys.getrefcount(value) for value in given]
    for _ in range(1000):
        join(1, 2.0, np.float32(0.3), True, np.uint64(0), None, nested, out)
    assert [sys.getrefcount(value) for value in given] == before


def test_what_is_returned_of_an_argument_outlives_it():
    """Of such kernels numba's own entry counts references."""
    tail = numba.njit(pipeline_class=KernelPipeline)(lambda numbers: (numbers, numbers[1:]))
    whole, rest = tail(np.arange(100_000))
    again = [np.full(100_000, -1) for _ in range(3)]  # takes memory that is free
    assert whole[0] == 0 and rest[-1] == 99_999 and rest.size == 99_999 and len(again) == 3


def test_arguments_of_other_kinds_are_given_back():
    """Their entry is numba's."""
    length = numba.njit(pipeline_class=KernelPipeline)(lambda text, n=3: len(text) + n)
    for text in ("x" * 40, b"y" * 40, bytearray(40)):
        before = sys.getrefcount(text)
        assert [length(text) for _ in range(50)] == [43] * 50 and sys.getrefcount(text) == before
    text.append(1)  # nobody holds its memory


@kernel
def wait(flag, most):
    for i in range(most):
        add_atomic(flag, 1, 1)  # so that the flag is read again each time
        if flag[0] != 0:
            return i
    return -1


def test_other_threads_run_meanwhile():
    flag = np.zeros(2, np.int64)
    wait(flag, 1)  # compiled
    threading.Timer(0.05, lambda: flag.__setitem__(0, 1)).start()
    assert wait(flag, 10**10) >= 0


def test_errors_of_the_kernel_and_of_its_arguments_are_raised():
    halve = numba.njit("float64(int64)", pipeline_class=KernelPipeline)(lambda number: 1.0 / number)
    assert halve(2) == 0.5
    with pytest.raises(ZeroDivisionError):
        halve(0)
    with pytest.raises(OverflowError):
        halve(2**63)
    assert halve(2) == 0.5
