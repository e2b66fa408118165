"""backend/fixed_point.py: powers of two that use the integers' range and never leave it."""

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gpuboost.backend.fixed_point import (
    check_finite,
    hash_words,
    leaf_scales,
    needs_refinement,
    output_keys,
    scales_16,
    sum_scale,
)
from gpuboost.backend.plans import Penalty
from gpuboost.kernels.quantise import FINE_ROWS, LIGHT_BITS
from gpuboost.kernels.scalar import mix32

POSITIVE32 = st.floats(0, width=32, exclude_min=True, allow_infinity=False)


def bits_of(*pairs):
    """int64 (n_outputs, 2): float32 bits, as the kernels report maxima."""
    return np.array(pairs, np.float32).view(np.int32).astype(np.int64).reshape(len(pairs), 2)


def is_power_of_two(x):
    return math.frexp(x)[0] == 0.5


# ---- scales


def test_scales_of_simple_maxima():
    # g: 1 → [2¹⁴, 2¹⁵) is 2¹⁴·1; h: 1 → 2¹⁵. g: 3 → 3·2¹³; h: 0.25 → ¼·2¹⁷.
    assert scales_16(bits_of((1, 1), (3, 0.25), (0, 0))).tolist() == [[2**14, 2**15], [2**13, 2**17], [1, 1]]


@settings(max_examples=100, deadline=None)
@given(POSITIVE32, POSITIVE32)
@example(2.0**-149, 3.4028234663852886e38)
@example(0.5 - 2.0**-25, 1.0)
def test_scaled_maxima_fill_the_16_bits(g, h):
    grad_scale, hess_scale = scales_16(bits_of((g, h)))[0]
    assert is_power_of_two(grad_scale) and is_power_of_two(hess_scale)
    assert 2**14 <= g * grad_scale < 2**15 and 2**15 <= h * hess_scale < 2**16


def test_sum_scales_by_hand():
    assert sum_scale(1.0, 1) == 2.0**61  # frexp(1) = ½·2¹
    assert sum_scale(0.75, 1) == 2.0**62
    assert sum_scale(0.75, 4) == 2.0**60
    assert sum_scale(0.75, 5) == 2.0**59
    assert sum_scale(0.0, 0) == 2.0**62


@settings(max_examples=200, deadline=None)
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


@settings(max_examples=100, deadline=None)
@given(POSITIVE32, POSITIVE32, st.integers(1, 2**40))
@example(2.0**-149, 3.4028234663852886e38, 2**31)
def test_leaf_scales_use_the_range_but_for_two_bits(g, h, n_rows):
    for largest, scale in zip((g, h), leaf_scales(bits_of((g, h)), n_rows)[0]):
        used = n_rows * Fraction(largest) * Fraction(scale)
        assert 2**60 < used <= 2**62  # one bit each for rounding the count and the maximum up to powers of two


PENALTY = Penalty(reg_lambda=1.0, reg_alpha=0.0, max_delta_step=0.0, min_child_weight=2.0, gamma=0.0)


def test_quiet_rows_refine_where_they_are_more_than_half():
    sums = np.array([[0, 0, 99, 0], [0, 0, 100, 0], [0, 0, 101, 0]], np.int64)
    assert needs_refinement(sums, 200, np.ones((3, 2)), PENALTY).tolist() == [False, False, True]


@pytest.mark.parametrize(
    "scale, light, is_refined",
    [
        (100, 199, False),  # units; a leaf needs 2 · 100 of them, which the light rows do not have
        (100, 200, True),
        (1365, 2 * 1365, True),  # 2 + 1 times 1365 is 4095 units
        (1366, 2 * 1366, False),  # a leaf of 4096 has more than rounding can spoil
    ],
)
def test_light_rows_refine_where_they_fill_a_leaf_of_few_units(scale, light, is_refined):
    sums = np.array([[0, 0, 0, light << LIGHT_BITS]], np.int64)
    assert needs_refinement(sums, 200, np.array([[1.0, scale]]), PENALTY).tolist() == [is_refined]


def test_without_any_floor_a_single_light_row_refines():
    none, sums = replace(PENALTY, reg_lambda=0.0, min_child_weight=0.0), np.array([[0, 0, 0, 0], [0, 0, 0, 1]], np.int64)
    assert needs_refinement(sums, 200, np.ones((2, 2)), none).tolist() == [False, True]


def test_small_tables_are_always_refined():
    sums, scales = np.zeros((2, 4), np.int64), np.ones((2, 2))
    assert needs_refinement(sums, FINE_ROWS, scales, PENALTY).all()
    assert not needs_refinement(sums, FINE_ROWS + 1, scales, PENALTY).any()


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("place", [0, 1])
def test_gradients_that_are_not_finite_raise(bad, place):
    maxima = bits_of((1, 1), (1, 1))
    check_finite(maxima)
    maxima[1, place] = bits_of((bad, bad))[0, 0]
    with pytest.raises(FloatingPointError, match="gradient or hessian is not finite"):
        check_finite(maxima)


# ---- keys


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 2**32 - 1), max_size=6))
def test_hash_words_is_a_chain_of_mix32(words):
    golden, mask = 0x9E3779B9, 0xFFFFFFFF
    state = golden
    for word in words:
        state = (int(mix32(np.uint32(state ^ word))) + golden) & mask
    assert hash_words(*words) == state


def test_every_seed_round_and_output_has_its_own_key():
    keys = {int(k) for seed in (0, 1, 2**32, 2**63) for r in range(50) for k in output_keys(seed, r, 5)}
    assert len(keys) == 4 * 50 * 5
    assert output_keys(7, 3, 2).dtype == np.uint32
    assert output_keys(7, 3, 5)[:2].tolist() == output_keys(7, 3, 2).tolist()
