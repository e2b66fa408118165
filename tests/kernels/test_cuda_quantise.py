"""kernels/quantise.py on a GPU: the scales, keys and limbs of round_facts.py, and the CPU twin's packed pairs."""

import numpy as np
import pytest
from cuda_runners import assert_same, each_runner, progress_of
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from round_facts import leaf_scales, needs_refinement, output_keys, scales_16

from gpuboost.backend.plans import Penalty
from gpuboost.kernels.gradients import NON_FINITE_BITS
from gpuboost.kernels.quantise import (
    FINAL,
    FINE_ROWS,
    LIGHT_BITS,
    N_SUMS,
    OWN,
    ROUGH,
    choose_scales_kernel,
    quantise_cpu,
    quantise_kernel,
)

UNTOUCHED = 77


def bits(values):
    """int64 bits of float32 values."""
    return np.array(values, np.float32).view(np.uint32).astype(np.int64)


# ---------------------------------------------------------------------------------------------------------------------
# The facts of a round


def choose_scales(run, maxima, global_rows, seed=0, round_number=0):
    """(keys, scales, leaf_scales, non_finite)."""
    n, maxima = len(maxima), maxima.copy()
    progress = progress_of(seed=seed, round=round_number)
    keys, sums = np.full(n, UNTOUCHED, np.uint32), np.full((3, n, N_SUMS), UNTOUCHED, np.int64)
    scales, leaves = np.full((n, 2), UNTOUCHED, np.float64), np.full((n, 2), UNTOUCHED, np.float64)
    run(choose_scales_kernel, maxima, maxima, global_rows, progress, keys, scales, leaves, sums, threads=n)
    assert not maxima.any() and not sums.any(), "they are added to"
    expected = progress_of(seed=seed, round=round_number, non_finite=progress["non_finite"])
    assert (progress == expected).all(), "nothing else of the record is written"
    return keys, scales, leaves, int(progress["non_finite"][0])


@each_runner
def test_hand_sized_scales(run):
    #  largest g = 0.75 = ¾·2⁰: 2¹⁵ brings it below 2¹⁵.   largest h = 1 = ½·2¹: 2¹⁵ brings it below 2¹⁶
    #  5 rows need 3 bits: 2^(62 − 3)·¾ and 2^(62 − 3 − 1)·1 a row
    _, scales, leaves, non_finite = choose_scales(run, bits([[0.75, 1.0]]), 5)
    assert scales.tolist() == [[2.0**15, 2.0**15]] and leaves.tolist() == [[2.0**59, 2.0**58]]
    assert non_finite == 0


@each_runner
@pytest.mark.parametrize("n, n_searched", [(3, 2), (1, 2), (70, 1)])
def test_what_is_searched_has_scales_of_its_own(run, n, n_searched):
    """Maxima of combinations of the outputs: keys, scales and sums are theirs, only the leaves' scales are the outputs'."""
    maxima, searched = bits(np.full((n, 2), 0.75)), bits(np.full((n_searched, 2), 3.0))
    searched[-1, 1] = NON_FINITE_BITS
    progress, keys = progress_of(), np.full(n_searched, UNTOUCHED, np.uint32)
    sums = np.full((3, n_searched, N_SUMS), UNTOUCHED, np.int64)
    scales, leaves = np.full((n_searched, 2), UNTOUCHED, np.float64), np.full((n, 2), UNTOUCHED, np.float64)
    run(choose_scales_kernel, maxima, searched, 5, progress, keys, scales, leaves, sums, threads=max(n, n_searched))
    assert_same(keys, output_keys(0, 0, n_searched))
    assert scales[:-1].tolist() == [[2.0**13, 2.0**14]] * (n_searched - 1) and scales[-1, 0] == 2.0**13
    assert leaves.tolist() == [[2.0**59, 2.0**59]] * n
    assert progress["non_finite"] == 1 and not (maxima.any() or searched.any() or sums.any())


LARGEST = float(np.finfo(np.float32).max)
MAGNITUDES = st.sampled_from([0.0, 1e-45, 1e-40, 2.0**-126, 0.5, 1.0, 32767.9, LARGEST]) | st.floats(0, LARGEST, width=32)
ROWS = st.sampled_from([0, 1, 2, 3, 2**31, 2**31 + 1, 2**62]) | st.integers(0, 2**40)


@each_runner
@settings(max_examples=15)
@given(
    hnp.arrays(np.float32, st.tuples(st.integers(1, 4), st.just(2)), elements=MAGNITUDES), ROWS,
    st.sampled_from([0, 1, 2**32, 2**64 - 1]) | st.integers(0, 2**64 - 1), st.integers(0, 2**31),
)  # fmt: skip
def test_the_facts_of_a_round_are_those_that_the_host_computes(run, largest, global_rows, seed, round_number):
    maxima = bits(largest)
    keys, scales, leaves, non_finite = choose_scales(run, maxima, global_rows, seed, round_number)
    assert_same(keys, output_keys(seed, round_number, len(maxima)))
    assert_same(scales, scales_16(maxima))
    assert_same(leaves, leaf_scales(maxima, global_rows))
    assert non_finite == 0


@each_runner
def test_more_outputs_than_threads(run):
    maxima = bits(np.random.default_rng(7).random((301, 2)))
    keys, scales, leaves, _ = choose_scales(run, maxima, 1000, 3, 4)
    assert_same(keys, output_keys(3, 4, 301))
    assert_same(scales, scales_16(maxima))
    assert_same(leaves, leaf_scales(maxima, 1000))


@each_runner
@pytest.mark.parametrize("place", [(0, 0), (2, 1)])
@pytest.mark.parametrize("bad", [np.inf, np.nan])
def test_a_maximum_that_is_not_finite_raises_the_flag(run, place, bad):
    largest = np.full((3, 2), 3.4e38)
    largest[place] = bad
    assert choose_scales(run, bits(largest), 2**62)[3] == 1
    assert bits([bad])[0] >= NON_FINITE_BITS


PENALTY = Penalty(reg_lambda=1.0, reg_alpha=0.0, max_delta_step=0.0, min_child_weight=2.0, gamma=0.0)
LEAF = PENALTY.reg_lambda, PENALTY.min_child_weight


def refine_without_rows(run, sums, own, n_rows, rough_scales, non_finite=0):
    """(final sums, scales, n_limbs) of a worker without rows: sums of all workers, and its own."""
    n, progress, nothing = len(sums), progress_of(non_finite=non_finite), np.zeros((len(sums), 0), np.float32)
    scales, n_limbs = np.full((n, 2), float(UNTOUCHED)), np.full(n, UNTOUCHED, np.int32)
    kinds = np.stack([sums, own, np.zeros_like(sums)])  # ROUGH, OWN, FINAL
    run(
        quantise_kernel, nothing, nothing, 0, n_rows, *LEAF, progress, np.zeros(n, np.uint32), rough_scales, 2,
        np.zeros((n, 2, 0), np.int32), kinds, scales, n_limbs, threads=1,
    )  # fmt: skip
    return kinds[FINAL], scales, n_limbs


@each_runner
@pytest.mark.parametrize("n_outputs", [3, 101])
def test_outputs_with_many_quiet_rows_or_a_leaf_of_light_ones_get_two_limbs(run, n_outputs):
    rng, n_rows = np.random.default_rng(8), 121
    sums = rng.integers(-5, 5, (n_outputs, N_SUMS))
    sums[:, 2], sums[:, 3] = rng.integers(0, n_rows, n_outputs), rng.integers(0, 2000 << LIGHT_BITS, n_outputs)
    sums[:3, 2], sums[:3, 3] = (60, 61, 121), 0  # of 121 rows 60 are not more than half, 61 are
    local, scales = sums + 1, 2.0 ** rng.integers(-20, 20, (n_outputs, 2))
    refined = needs_refinement(sums, n_rows, scales, PENALTY)
    assert refined[:3].tolist() == [False, True, True]
    assert n_outputs == 3 or 0 < refined[sums[:, 2] < 61].sum() < n_outputs // 2
    expected = np.where(refined[:, None], 0, local), scales * np.where(refined, 65536.0, 1.0)[:, None]
    final, fine_scales, n_limbs = refine_without_rows(run, sums, local, n_rows, scales)
    assert_same(final, expected[0])
    assert_same(fine_scales, expected[1])
    assert_same(n_limbs, np.where(refined, 2, 1).astype(np.int32))


@each_runner
@pytest.mark.parametrize("non_finite", [0, 1])
@pytest.mark.parametrize("n_rows", [FINE_ROWS, FINE_ROWS + 1])
def test_outputs_of_small_tables_get_two_limbs_unless_a_gradient_is_not_finite(run, n_rows, non_finite):
    sums, scales = np.zeros((3, N_SUMS), np.int64), np.ones((3, 2))
    _, fine_scales, n_limbs = refine_without_rows(run, sums, sums, n_rows, scales, non_finite)
    fine = needs_refinement(sums, n_rows, scales, PENALTY) & (non_finite == 0)
    assert fine.tolist() == [n_rows == FINE_ROWS and not non_finite] * 3
    assert_same(n_limbs, np.where(fine, 2, 1).astype(np.int32))
    assert_same(fine_scales[:, 0], np.where(fine, 65536.0, 1.0))


# ---------------------------------------------------------------------------------------------------------------------
# Rows


def quantise(run, grad, hess, keys, scales, n_limbs, pages):
    """(packed pairs of each page, sums), in one launch per page and number of limbs. pages : where each begins, and the end.
    n_limbs : two where the rows of all workers, of which there are more, are quiet; else none of them is."""
    n, n_rows = len(grad), FINE_ROWS + 1
    rough_scales = scales / np.where(n_limbs == 2, 65536.0, 1.0)[:, None]
    sums, found = np.zeros((3, n, N_SUMS), np.int64), (np.full((n, 2), float(UNTOUCHED)), np.full(n, UNTOUCHED, np.int32))
    packed = [np.full((n, 2, last - first), UNTOUCHED, np.int32) for first, last in zip(pages, pages[1:])]
    for limbs in (1, 2):
        for gpair, first in zip(packed, pages):
            run(
                quantise_kernel, grad, hess, first, n_rows, *LEAF, progress_of(), keys, rough_scales, limbs, gpair, sums,
                *found, threads=gpair.shape[2],
            )  # fmt: skip
        if limbs == 1:
            assert_same(sums[ROUGH], sums[OWN])
            sums[ROUGH, :, 2], sums[ROUGH, :, 3] = np.where(n_limbs == 2, n_rows, 0), 0
    assert_same(found[0], scales)
    assert_same(found[1], n_limbs)
    return packed, sums[FINAL]


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
@settings(max_examples=15)
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
    keys, scales, _, _ = choose_scales(run, maxima, 4, seed=1)
    check_quantise(run, grad, np.abs(grad), keys, scales, np.ones(1, np.int32), [0, 4])
