"""backend/fixed_point.py: powers of two that use the integers' range and never leave it."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from round_facts import bits_of, is_power_of_two

from gpuboost.backend.fixed_point import check_finite, hash_words, sum_scale
from gpuboost.kernels.scalar import mix32

# ---- scales


def test_sum_scales_by_hand():
    assert sum_scale(1.0, 1) == 2.0**61  # frexp(1) = ½·2¹
    assert sum_scale(0.75, 1) == 2.0**62
    assert sum_scale(0.75, 4) == 2.0**60
    assert sum_scale(0.75, 5) == 2.0**59
    assert sum_scale(0.0, 0) == 2.0**62


@settings(max_examples=200)
@given(st.floats(0, allow_infinity=False), st.integers(0, 2**62))
@example(1.7976931348623157e308, 2**40)
@example(1.7976931348623157e308, 2**62)
@example(5e-324, 1)
@example(1.0, 2**53 + 1)
@example(0.9999999999999999, 2**31 - 1)
def test_sums_stay_within_62_bits(largest, n_terms):
    scale = sum_scale(largest, n_terms)
    assert is_power_of_two(scale)
    assert n_terms * Fraction(largest) * Fraction(scale) <= 2**62


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("place", [0, 1])
def test_gradients_that_are_not_finite_raise(bad, place):
    maxima = bits_of((1, 1), (1, 1))
    check_finite(maxima)
    maxima[1, place] = bits_of((bad, bad))[0, 0]
    with pytest.raises(FloatingPointError, match="gradient or hessian is not finite"):
        check_finite(maxima)


# ---- keys


@settings(max_examples=50)
@given(st.lists(st.integers(0, 2**32 - 1), max_size=6))
def test_hash_words_is_a_chain_of_mix32(words):
    golden, mask = 0x9E3779B9, 0xFFFFFFFF
    state = golden
    for word in words:
        state = (int(mix32(np.uint32(state ^ word))) + golden) & mask
    assert hash_words(*words) == state
