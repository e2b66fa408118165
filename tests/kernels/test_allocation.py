"""kernels/allocation.py: arrays as NumPy makes them."""

import ast
from pathlib import Path

import numba
import numpy as np
import pytest

import gpuboost.kernels
from gpuboost.kernels.allocation import empty, zeros
from gpuboost.kernels.pipeline import KernelPipeline
from gpuboost.kernels.structs import NODE

compiled = numba.njit(pipeline_class=KernelPipeline)


@pytest.mark.parametrize("dtype", [np.int64, np.bool_, np.float32, NODE])
def test_arrays_have_the_shape_and_dtype_asked_for(dtype):
    make = compiled(lambda n: (empty(n, dtype), zeros((n, 2, 3), dtype), zeros(0, dtype), empty((0, 5), dtype)))
    for n in (1, 3, 1000):
        for found, expected in zip(make(n), (np.empty(n, dtype), np.zeros((n, 2, 3), dtype), *np.zeros((2, 0), dtype))):
            assert found.dtype == expected.dtype and found.shape[: expected.ndim] == expected.shape
        assert make(n)[1].tobytes() == bytes(6 * n * np.dtype(dtype).itemsize)


def test_dtypes_are_taken_from_other_arrays():
    make = compiled(lambda other: zeros(other.shape, other.dtype))
    for other in (np.ones(3, np.uint16), np.ones((2, 4))):
        assert make(other).dtype == other.dtype and make(other).tolist() == np.zeros(other.shape).tolist()


def test_memory_that_is_freed_is_zeroed_anew():
    make = compiled(lambda n: zeros(n, np.int64))
    for _ in range(20):
        array = make(500)
        assert not array.any()
        array[:] = -1


def test_there_is_no_memory_for_the_whole_world():
    with pytest.raises(MemoryError):
        compiled(lambda n: empty(n, np.int64).size)(2**50)
    with pytest.raises(ValueError, match="too big"):
        compiled(lambda n: empty((n, n), np.int64).size)(2**40)


def test_kernels_make_their_arrays_so():
    """NumPy's would be compiled for each, and linked into each kernel. (What Python calls, has NumPy's.)"""
    (folder,) = gpuboost.kernels.__path__
    found = []
    for path in Path(folder).glob("*.py"):
        for function in ast.walk(ast.parse(path.read_text())):
            if isinstance(function, ast.FunctionDef) and (function.decorator_list or function.name.endswith("_cpu")):
                calls = [ast.unparse(call.func) for call in ast.walk(function) if isinstance(call, ast.Call)]
                found += [(path.name, function.name, call) for call in calls if call in ("np.empty", "np.zeros")]
    assert found == []
