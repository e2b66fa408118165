"""kernels/pipeline.py: what is borrowed is not counted, and what is not borrowed is."""

import sys
import weakref
from types import SimpleNamespace

import numba
import numpy as np
import pytest

from gpuboost.kernels import pipeline, processor
from gpuboost.kernels.jit import kernel


@kernel
def the_argument(array):
    return array


@kernel
def an_item(arrays):
    first, second = arrays
    third = arrays[-1]
    return second if first[0] > 0 else third


@kernel
def set_again(arrays, n):
    array = arrays[0]
    for i in range(n):
        if i % 2 == 1:
            array = arrays[1]
        array = array[1:]
    return array


@kernel
def made_of_it(array):
    own = array.copy()
    pair = (own, array)
    return pair[0], pair


@pytest.mark.parametrize("call", [
    lambda a, b: the_argument(a), lambda a, b: an_item((a, b)), lambda a, b: set_again((a, b), 3), lambda a, b: made_of_it(a),
    lambda a, b: (the_argument(b), an_item((b, a))),
])  # fmt: skip
def test_what_is_returned_lives_and_nothing_stays(call):
    a, b = np.ones(20), np.full(20, 2.0)
    call(a, b)
    before = sys.getrefcount(a), sys.getrefcount(b)
    for _ in range(100):
        call(a, b)
    assert (sys.getrefcount(a), sys.getrefcount(b)) == before
    of_a, of_b, expected = weakref.ref(a), weakref.ref(b), repr(call(a, b))
    kept = call(a, b)
    del a, b
    trash = [np.full(20, np.nan) for _ in range(100)]  # in the memory of arrays that are gone
    assert repr(kept) == expected and trash
    del kept
    assert of_a() is None and of_b() is None


@pytest.mark.parametrize("uses", [False, True])
def test_llvm_is_told_of_whole_registers(uses, monkeypatch):
    monkeypatch.setattr(pipeline, "uses_whole_registers", lambda codegen: uses)
    compiled = numba.njit(pipeline_class=pipeline.KernelPipeline)(lambda numbers: numbers.sum())
    assert compiled(np.ones(3)) == 3
    assert ('"prefer-vector-width"="512"' in next(iter(compiled.inspect_llvm().values()))) == uses


@pytest.mark.parametrize("features, name, has_512, uses", [
    ("+avx2,+avx512f,-avx512dq", "knl", False, False), ("+avx2,-avx512dq", "haswell", False, False),
    ("+avx512f,+avx512dq", "skylake-avx512", True, False), ("+avx512f,+avx512dq", "cascadelake", True, False),
    ("+avx512f,+avx512dq", "sapphirerapids", True, True), ("+avx512f,+avx512dq", "znver4", True, True),
])  # fmt: skip
def test_processors_that_whole_registers_slow_down_are_left_out(features, name, has_512, uses, monkeypatch):
    monkeypatch.setattr(processor.config, "CPU_NAME", None)
    monkeypatch.setattr(processor, "binding", SimpleNamespace(get_host_cpu_name=lambda: name))
    codegen = SimpleNamespace(_tm_features=features)
    assert (processor.is_level_4(codegen), processor.uses_whole_registers(codegen)) == (has_512, uses)
