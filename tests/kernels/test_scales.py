"""kernels/quantise.py: scales that use the integers' range and never leave it, keys of their own, and who gets two limbs."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
import round_facts
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from round_facts import bits_of, is_power_of_two

from gpuboost.backend.plans import Penalty
from gpuboost.kernels.quantise import FINE_ROWS, LIGHT_BITS, choose_limbs_cpu, choose_scales_cpu

POSITIVE32 = st.floats(0, width=32, exclude_min=True, allow_infinity=False)


def facts(maxima, searched, global_rows=1, seed=0, round_number=0):
    """(whether all are finite, keys, scales, leaf_scales)."""
    n = len(searched)
    keys, scales, leaf_scales = np.zeros(n, np.uint32), np.zeros((n, 2)), np.zeros((len(maxima), 2))
    n_limbs = np.zeros(n, np.int32)
    is_finite = choose_scales_cpu(
        maxima, searched, np.uint64(seed), round_number, global_rows, keys, scales, n_limbs, leaf_scales
    )
    assert (n_limbs == 1).all()
    return is_finite, keys, scales, leaf_scales


def scales_16(maxima):
    return facts(maxima, maxima)[2]


def leaf_scales(maxima, global_rows):
    return facts(maxima, maxima[:0], global_rows)[3]


def output_keys(seed, round_number, n_outputs):
    return facts(np.zeros((0, 2), np.int64), np.zeros((n_outputs, 2), np.int64), 1, seed, round_number)[1]


def needs_refinement(sums, n_rows, scales, penalty):
    """Whether each output has two limbs, and its scales are 2^16 times as large."""
    new, n_limbs = np.array(scales, np.float64), np.zeros(len(sums), np.int32)
    is_any = choose_limbs_cpu(sums, n_rows, penalty.reg_lambda, penalty.min_child_weight, new, n_limbs)
    assert set(n_limbs) <= {1, 2} and is_any == (n_limbs == 2).any()
    np.testing.assert_array_equal(new, scales * np.where(n_limbs == 2, 65536.0, 1.0)[:, None])
    return n_limbs == 2


# ---- scales


def test_scales_of_simple_maxima():
    # g: 1 → [2¹⁴, 2¹⁵) is 2¹⁴·1; h: 1 → 2¹⁵. g: 3 → 3·2¹³; h: 0.25 → ¼·2¹⁷.
    assert scales_16(bits_of((1, 1), (3, 0.25), (0, 0))).tolist() == [[2**14, 2**15], [2**13, 2**17], [1, 1]]


@settings(max_examples=100)
@given(POSITIVE32, POSITIVE32)
@example(2.0**-149, 3.4028234663852886e38)
@example(0.5 - 2.0**-25, 1.0)
def test_scaled_maxima_fill_the_16_bits(g, h):
    grad_scale, hess_scale = scales_16(bits_of((g, h)))[0]
    assert is_power_of_two(grad_scale) and is_power_of_two(hess_scale)
    assert 2**14 <= g * grad_scale < 2**15 and 2**15 <= h * hess_scale < 2**16


@settings(max_examples=100)
@given(POSITIVE32, POSITIVE32, st.integers(1, 2**40))
@example(2.0**-149, 3.4028234663852886e38, 2**31)
def test_leaf_scales_use_the_range_but_for_two_bits(g, h, n_rows):
    for largest, scale in zip((g, h), leaf_scales(bits_of((g, h)), n_rows)[0]):
        used = n_rows * Fraction(largest) * Fraction(scale)
        assert 2**60 < used <= 2**62  # one bit each for rounding the count and the maximum up to powers of two


MAXIMA = hnp.arrays(
    np.float32, st.tuples(st.integers(0, 4), st.just(2)),
    elements=st.sampled_from([0.0, 1e-45, 2.0**-126, 1.0, 3.4028234663852886e38]) | st.floats(0, width=32, allow_infinity=False),
)  # fmt: skip


@settings(max_examples=100)
@given(
    MAXIMA, MAXIMA, st.sampled_from([0, 1, 3, 2**31, 2**62]) | st.integers(0, 2**40), st.integers(0, 2**64 - 1),
    st.integers(0, 2**31),
)  # fmt: skip
def test_the_facts_of_a_round_are_those_of_the_reference(maxima, searched, global_rows, seed, round_number):
    maxima, searched = bits_of(*maxima), bits_of(*searched)
    is_finite, keys, scales, leaves = facts(maxima, searched, global_rows, seed, round_number)
    assert is_finite
    np.testing.assert_array_equal(keys, round_facts.output_keys(seed, round_number, len(searched)))
    np.testing.assert_array_equal(scales, round_facts.scales_16(searched))
    np.testing.assert_array_equal(leaves, round_facts.leaf_scales(maxima, global_rows))


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("place", [(0, 0), (0, 1), (1, 0), (1, 1)])
def test_maxima_that_are_not_finite_are_told(bad, place):
    good, maxima = bits_of((1, 1), (3.4e38, 0)), bits_of((1, 1), (3.4e38, 0))
    maxima[place] = bits_of((bad, bad))[0, 0]
    assert facts(good, good)[0] and not facts(good, maxima)[0] and not facts(maxima, good)[0]


# ---- limbs


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


@settings(max_examples=200)
@given(
    st.lists(st.tuples(st.integers(0, 300), st.integers(0, 2**40)), max_size=4), st.integers(90, 400),
    st.integers(-20, 20), st.sampled_from([0.0, 1.0, 50.0]), st.sampled_from([0.0, 1.0, 100.0]),
)  # fmt: skip
def test_limbs_are_those_of_the_reference(pairs, n_rows, exponent, reg_lambda, min_child_weight):
    sums = np.array([(0, 0, *pair) for pair in pairs], np.int64).reshape(-1, 4)
    penalty = replace(PENALTY, reg_lambda=reg_lambda, min_child_weight=min_child_weight)
    scales = np.full((len(sums), 2), 2.0**exponent)
    expected = round_facts.needs_refinement(sums, n_rows, scales, penalty)
    assert needs_refinement(sums, n_rows, scales, penalty).tolist() == expected.tolist()


# ---- keys


def test_every_seed_round_and_output_has_its_own_key():
    keys = {int(k) for seed in (0, 1, 2**32, 2**63) for r in range(50) for k in output_keys(seed, r, 5)}
    assert len(keys) == 4 * 50 * 5
    assert output_keys(7, 3, 2).dtype == np.uint32
    assert output_keys(7, 3, 5)[:2].tolist() == output_keys(7, 3, 2).tolist()
