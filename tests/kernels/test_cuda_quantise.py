"""kernels/quantise.py on a GPU: the scales, keys and limbs of backend/fixed_point.py, and the CPU twin's packed pairs."""

import numpy as np
import pytest
from cuda_runners import assert_same, each_runner
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from gpuboost.backend.fixed_point import leaf_scales, needs_refinement, output_keys, scales_16
from gpuboost.backend.plans import Penalty
from gpuboost.kernels.gradients import NON_FINITE_BITS
from gpuboost.kernels.quantise import (
    FINE_ROWS,
    LIGHT_BITS,
    N_SUMS,
    choose_limbs_kernel,
    choose_scales_kernel,
    quantise_cpu,
    quantise_kernel,
)
from gpuboost.kernels.structs import PROGRESS

UNTOUCHED = 77


def bits(values):
    """int64 bits of float32 values."""
    return np.array(values, np.float32).view(np.uint32).astype(np.int64)


# ---------------------------------------------------------------------------------------------------------------------
# The facts of a round


def choose_scales(run, maxima, global_rows, seed=0, round_number=0):
    """(keys, scales, leaf_scales, n_limbs, non_finite)."""
    n = len(maxima)
    progress = np.zeros(1, PROGRESS)
    progress["seed"], progress["round"] = seed, round_number
    keys, n_limbs = np.full(n, UNTOUCHED, np.uint32), np.full(n, UNTOUCHED, np.int32)
    scales, leaves = np.full((n, 2), UNTOUCHED, np.float64), np.full((n, 2), UNTOUCHED, np.float64)
    run(choose_scales_kernel, maxima, global_rows, progress, keys, scales, leaves, n_limbs, threads=n)
    expected = np.zeros(1, PROGRESS)
    expected["seed"], expected["round"], expected["non_finite"] = seed, round_number, progress["non_finite"]
    assert (progress == expected).all(), "nothing else of the record is written"
    return keys, scales, leaves, n_limbs, int(progress["non_finite"][0])


@each_runner
def test_hand_sized_scales(run):
    #  largest g = 0.75 = ¾·2⁰: 2¹⁵ brings it below 2¹⁵.   largest h = 1 = ½·2¹: 2¹⁵ brings it below 2¹⁶
    #  5 rows need 3 bits: 2^(62 − 3)·¾ and 2^(62 − 3 − 1)·1 a row
    _, scales, leaves, n_limbs, non_finite = choose_scales(run, bits([[0.75, 1.0]]), 5)
    assert scales.tolist() == [[2.0**15, 2.0**15]] and leaves.tolist() == [[2.0**59, 2.0**58]]
    assert n_limbs.tolist() == [1] and non_finite == 0


LARGEST = float(np.finfo(np.float32).max)
MAGNITUDES = st.sampled_from([0.0, 1e-45, 1e-40, 2.0**-126, 0.5, 1.0, 32767.9, LARGEST]) | st.floats(0, LARGEST, width=32)
ROWS = st.sampled_from([0, 1, 2, 3, 2**31, 2**31 + 1, 2**62]) | st.integers(0, 2**40)


@each_runner
@settings(max_examples=15, deadline=None)
@given(
    hnp.arrays(np.float32, st.tuples(st.integers(1, 4), st.just(2)), elements=MAGNITUDES), ROWS,
    st.sampled_from([0, 1, 2**32, 2**64 - 1]) | st.integers(0, 2**64 - 1), st.integers(0, 2**31),
)  # fmt: skip
def test_the_facts_of_a_round_are_those_that_the_host_computes(run, largest, global_rows, seed, round_number):
    maxima = bits(largest)
    keys, scales, leaves, n_limbs, non_finite = choose_scales(run, maxima, global_rows, seed, round_number)
    assert_same(keys, output_keys(seed, round_number, len(maxima)))
    assert_same(scales, scales_16(maxima))
    assert_same(leaves, leaf_scales(maxima, global_rows))
    assert (n_limbs == 1).all() and non_finite == 0


@each_runner
def test_more_outputs_than_threads(run):
    maxima = bits(np.random.default_rng(7).random((301, 2)))
    keys, scales, leaves, n_limbs, _ = choose_scales(run, maxima, 1000, 3, 4)
    assert_same(keys, output_keys(3, 4, 301))
    assert_same(scales, scales_16(maxima))
    assert_same(leaves, leaf_scales(maxima, 1000))
    assert (n_limbs == 1).all()


@each_runner
@pytest.mark.parametrize("place", [(0, 0), (2, 1)])
@pytest.mark.parametrize("bad", [np.inf, np.nan])
def test_a_maximum_that_is_not_finite_raises_the_flag(run, place, bad):
    largest = np.full((3, 2), 3.4e38)
    largest[place] = bad
    assert choose_scales(run, bits(largest), 2**62)[4] == 1
    assert bits([bad])[0] >= NON_FINITE_BITS


PENALTY = Penalty(reg_lambda=1.0, reg_alpha=0.0, max_delta_step=0.0, min_child_weight=2.0, gamma=0.0)
LEAF = PENALTY.reg_lambda, PENALTY.min_child_weight


@each_runner
@pytest.mark.parametrize("n_outputs", [3, 101])
def test_outputs_with_many_quiet_rows_or_a_leaf_of_light_ones_get_two_limbs(run, n_outputs):
    rng, n_rows = np.random.default_rng(8), 121
    sums = rng.integers(-5, 5, (n_outputs, N_SUMS))
    sums[:, 2], sums[:, 3] = rng.integers(0, n_rows, n_outputs), rng.integers(0, 2000 << LIGHT_BITS, n_outputs)
    sums[:3, 2], sums[:3, 3] = (60, 61, 121), 0  # of 121 rows 60 are not more than half, 61 are
    local, scales, n_limbs = sums + 1, 2.0 ** rng.integers(-20, 20, (n_outputs, 2)), np.ones(n_outputs, np.int32)
    refined = needs_refinement(sums, n_rows, scales, PENALTY)
    assert refined[:3].tolist() == [False, True, True]
    assert n_outputs == 3 or 0 < refined[sums[:, 2] < 61].sum() < n_outputs // 2
    expected = np.where(refined[:, None], 0, local), scales * np.where(refined, 65536.0, 1.0)[:, None]
    run(choose_limbs_kernel, sums, n_rows, *LEAF, scales, n_limbs, local, threads=n_outputs)
    assert_same(local, expected[0])
    assert_same(scales, expected[1])
    assert_same(n_limbs, np.where(refined, 2, 1).astype(np.int32))


@each_runner
@pytest.mark.parametrize("n_rows", [FINE_ROWS, FINE_ROWS + 1])
def test_outputs_of_small_tables_get_two_limbs_unless_they_are_not_finite(run, n_rows):
    sums, scales, n_limbs = np.zeros((3, N_SUMS), np.int64), np.ones((3, 2)), np.array([1, 0, 1], np.int32)
    run(choose_limbs_kernel, sums, n_rows, *LEAF, scales, n_limbs, np.zeros_like(sums), threads=3)
    fine = needs_refinement(sums, n_rows, np.ones((3, 2)), PENALTY) & np.array([True, False, True])
    assert fine.tolist() == [n_rows == FINE_ROWS, False, n_rows == FINE_ROWS]
    assert_same(n_limbs, np.where(fine, 2, [1, 0, 1]).astype(np.int32))
    assert_same(scales[:, 0], np.where(fine, 65536.0, 1.0))


# ---------------------------------------------------------------------------------------------------------------------
# Rows


def quantise(run, grad, hess, keys, scales, n_limbs, pages):
    """(packed pairs of each page, sums), in one launch per page and number of limbs. pages : where each begins, and the end."""
    sums = np.zeros((len(grad), N_SUMS), np.int64)
    packed = []
    for first, last in zip(pages, pages[1:]):
        gpair = np.full((len(grad), 2, last - first), UNTOUCHED, np.int32)
        for limbs in (1, 2):
            run(quantise_kernel, grad, hess, first, keys, scales, n_limbs, limbs, gpair, sums, threads=last - first)
        packed.append(gpair)
    return packed, sums


@each_runner
def test_whole_numbers_stay_themselves(run):
    grad, hess = np.array([[30, -20, 0, -40000]] * 2, np.float32), np.array([[10, 0, 65535, 1e9]] * 2, np.float32)
    limbs, scales = np.array([1, 2], np.int32), np.ones((2, 2))
    (packed,), sums = quantise(run, grad, hess, np.zeros(2, np.uint32), scales, limbs, [0, 4])
    high, low = packed.astype(np.int64) >> 16, packed.astype(np.int64) & 0xFFFF
    assert high[0, 0].tolist() == [30, -20, 0, -32767] and low[0, 0].tolist() == [10, 0, 65535, 65535], "clamped to 16 bits"
    assert (high[1, 0] * 65536 + high[1, 1]).tolist() == [30, -20, 0, -40000]
    assert (low[1, 0] * 65536 + low[1, 1]).tolist() == [10, 0, 65535, 10**9]
    assert sums[0].tolist() == [30 - 20 - 32767, 10 + 65535 + 65535, 0, 10 << LIGHT_BITS]
    assert sums[1].tolist() == [30 - 20 - 40000, 10 + 65535 + 10**9, 0, 0]


def check_quantise(run, grad, hess, keys, scales, n_limbs, pages):
    """Pairs and sums equal the CPU's; the second word of outputs with one limb stays as it was."""
    packed, sums = quantise(run, grad, hess, keys, scales, n_limbs, pages)
    expected_sums = np.zeros((1, len(grad), N_SUMS), np.int64)
    for gpair, first, last in zip(packed, pages, pages[1:]):
        expected = np.full_like(gpair, UNTOUCHED)
        quantise_cpu(grad[:, first:last], hess[:, first:last], keys, scales, n_limbs, expected, expected_sums, 1)
        assert_same(gpair, expected)
    assert_same(sums, expected_sums[0])


FLOATS = st.sampled_from([0.0, -0.0, 1.0, -1.0, 1e-4, 1e-30, 1e-45]) | st.floats(-1, 1, width=32)


@pytest.mark.sweep(1)
@each_runner
@settings(max_examples=15, deadline=None)
@given(
    hnp.arrays(np.float32, st.tuples(st.just(2), st.integers(1, 3), st.integers(0, 40)), elements=FLOATS), st.data(),
    st.integers(0, 2**32),
)  # fmt: skip
def test_pairs_are_the_cpus(run, pairs, data, seed):
    rng = np.random.default_rng(seed)
    grad, hess = pairs[0].copy(), np.abs(pairs[1])
    n_outputs, n_rows = grad.shape
    n_limbs = np.array(data.draw(st.lists(st.sampled_from([1, 2]), min_size=n_outputs, max_size=n_outputs)), np.int32)
    scales = 2.0 ** rng.integers(10, 17, (n_outputs, 2)) * np.where(n_limbs == 2, 65536.0, 1.0)[:, None]  # 2^16: some are clamped
    middle = sorted(data.draw(st.lists(st.integers(0, n_rows), max_size=2)))
    check_quantise(run, grad, hess, rng.integers(0, 2**32, n_outputs, np.uint32), scales, n_limbs, [0, *middle, n_rows])


@each_runner
@pytest.mark.parametrize("limbs", [1, 2])
def test_rows_beyond_the_grid(run, limbs):
    rng = np.random.default_rng(9)
    grad, hess = rng.normal(size=(2, 350)).astype(np.float32), rng.random((2, 350)).astype(np.float32)
    scales = np.full((2, 2), 2.0**12 * 65536.0 ** (limbs - 1))
    check_quantise(run, grad, hess, np.array([1, 2], np.uint32), scales, np.full(2, limbs, np.int32), [0, 301, 350])


@each_runner
def test_zero_gradients_round_to_zero(run):
    zeros = np.array([[0.0, -0.0]], np.float32)
    for limbs in (1, 2):
        n_limbs, keys = np.array([limbs], np.int32), np.array([5], np.uint32)
        (packed,), sums = quantise(run, zeros, zeros, keys, np.ones((1, 2)), n_limbs, [0, 2])
        assert not packed[0, :limbs].any() and not sums.any()


@each_runner
@pytest.mark.parametrize("largest", [1e-45, 1e-38, LARGEST])
def test_scales_of_extreme_maxima_quantise_like_the_cpu(run, largest):
    grad = np.array([[largest, -largest, largest / 3, 0.0]], np.float32)
    maxima = bits([[largest, largest]])
    keys, scales, _, n_limbs, _ = choose_scales(run, maxima, 4, seed=1)
    check_quantise(run, grad, np.abs(grad), keys, scales, n_limbs, [0, 4])
