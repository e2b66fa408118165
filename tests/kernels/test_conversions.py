"""kernels/conversions.py: the bits of float64(), in vectors and one by one."""

import numba
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gpuboost.kernels import conversions
from gpuboost.kernels.scalar import floor_32

INT64 = st.integers(-(2**63), 2**63 - 1)


@numba.njit
def as_doubles(x, out):
    for i in range(x.size):
        out[i] = conversions.as_double(x[i])


@numba.njit
def halves(packed, high, low):
    for i in range(packed.size):
        high[i], low[i] = conversions.halves_as_doubles(packed[i])


@numba.njit
def floors(x, out):
    for i in range(x.size):
        out[i] = floor_32(x[i])


@numba.njit
def integers(x, out):
    for i in range(x.size):
        out[i] = conversions.whole_as_integer(x[i])


def test_three_integers_by_hand() -> None:
    out = np.empty(3)
    as_doubles(np.array([0, -1, 2**53 + 1]), out)
    assert out.tolist() == [0.0, -1.0, 2.0**53]  # a tie is rounded to even


@given(st.lists(INT64 | st.integers(-(2**20), 2**20), min_size=1, max_size=40))
def test_an_integer_is_rounded_as_python_rounds_it(values: list[int]) -> None:
    out = np.empty(len(values))
    as_doubles(np.array(values, np.int64), out)
    assert out.tolist() == [float(value) for value in values]


@given(st.lists(st.tuples(st.integers(-(2**31), 2**31 - 1), st.integers(0, 2**32 - 1)), min_size=1, max_size=40))
def test_both_halves_are_exact(pairs: list[tuple[int, int]]) -> None:
    high, low = np.empty(len(pairs)), np.empty(len(pairs))
    halves(np.array([(g << 32) + h for g, h in pairs], np.int64), high, low)
    assert list(zip(high.tolist(), low.tolist())) == pairs


@given(st.lists(st.floats(-(2.0**31), 2.0**31 - 1), min_size=1, max_size=40))
def test_floors_of_any_sign(values: list[float]) -> None:
    out = np.empty(len(values), np.int32)
    floors(np.array(values), out)
    assert out.tolist() == np.floor(values).astype(np.int64).tolist()


@given(st.lists(st.integers(1 - 2**51, 2**51 - 1), min_size=1, max_size=40))
def test_whole_numbers_become_integers(values: list[int]) -> None:
    out = np.empty(len(values), np.int64)
    integers(np.array(values, np.float64), out)
    assert out.tolist() == values


def test_a_processor_with_vector_instructions_gets_those(monkeypatch) -> None:
    """The instruction and the bits that take its place: both are compiled, whichever is this processor's."""
    for converts in (True, False):
        monkeypatch.setattr(conversions, "converts_vectors", lambda codegen, converts=converts: converts)
        compiled = numba.njit(lambda x: conversions.as_double(x))
        assert compiled(np.int64(-(2**62) + 1)) == float(-(2**62) + 1)
        assert ("sitofp i64" in next(iter(compiled.inspect_llvm().values()))) == converts
