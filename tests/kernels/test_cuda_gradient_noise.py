"""kernels/gradient_noise.py: what the gradients say, and the CPU's number on a GPU."""

import numpy as np
import pytest
from cuda_runners import assert_same, each_runner
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuboost.kernels.gradient_noise import choose_noise_cpu, choose_noise_kernel
from gpuboost.kernels.output_sketch import sum_squares_cpu
from gpuboost.kernels.quantise import choose_scales_cpu
from gpuboost.kernels.structs import CATEGORY_RULES

MOST, TIMES, N_ROWS = 3.0, 2.0, 200


def some_rules():
    return np.array([(4, 64, 0.5, 0.25, 1.0, -1.0, -1.0, -1.0)], CATEGORY_RULES)


def facts(grad, hess, n_searched):
    """What a round knows of these: rows, scales of leaves, squares, sums in fixed point and its scales; the mean hessian for each
    output searched, as a sketch has it."""
    bits = np.stack([np.abs(values).view(np.int32).max(axis=1) for values in (grad, hess)], axis=1).astype(np.int64)
    squares, scales, leaf_scales = np.zeros((1, len(grad)), np.int64), np.full((n_searched, 2), 2.0**20), np.empty((len(grad), 2))
    choose_scales_cpu(
        bits, bits[:0], np.uint64(0), 0, N_ROWS, np.empty(0, np.uint32), np.empty((0, 2)), np.empty(0, np.int32), leaf_scales
    )
    sum_squares_cpu(grad, float(np.abs(grad).max()), N_ROWS, squares, 1)
    sums = np.full((n_searched, 4), -1, np.int64)
    sums[:, 1] = np.rint(hess.mean(axis=0).sum(dtype=np.float64) * 2.0**20)
    return N_ROWS, leaf_scales, squares[0], sums, scales


def chosen(*of_round):
    """(cat_noise, cat_spread, cat_step) of a round."""
    rules = some_rules()
    choose_noise_cpu(MOST, TIMES, *of_round, rules)
    *others, noise, spread, step = rules[0].tolist()
    assert others == [*some_rules()[0].tolist()[:-3]]
    return noise, spread, step


@pytest.mark.parametrize("n_searched", [1, 3])
@pytest.mark.parametrize("size", [0.3, 0.01, 40.0])
def test_twice_the_squares_by_the_hessians_but_at_most_the_usual(size, n_searched):
    rng = np.random.default_rng(0)
    grad, hess = (rng.normal(size=(3, N_ROWS)) * size).astype(np.float32), rng.random((3, N_ROWS), np.float32)
    spread = TIMES * np.square(grad, dtype=np.float64).sum() / hess.sum(dtype=np.float64)
    step = 2.0 ** np.frexp(np.abs(grad).max())[1]
    assert (spread > MOST) == (size == 40) and step / 2 <= np.abs(grad).max() < step
    np.testing.assert_allclose(chosen(*facts(grad, hess, n_searched)), (min(MOST, spread), spread, step), rtol=1e-5)


def test_outputs_without_gradients_say_nothing_about_the_scale():
    """Of small gradients, which are counted in units of their own."""
    grad, hess = np.full((3, N_ROWS), 0.01, np.float32), np.full((3, N_ROWS), 0.125, np.float32)
    grad[1] = 0
    np.testing.assert_allclose(chosen(*facts(grad, hess, 3)), [*[TIMES * 2e-4 / 0.375] * 2, 2**-6], rtol=1e-4)


def test_without_hessians_it_is_the_usual_and_without_gradients_nothing():
    none, some = np.zeros((1, N_ROWS), np.float32), np.ones((1, N_ROWS), np.float32)
    assert chosen(*facts(some, none, 1)) == (MOST, np.inf, 2) and chosen(*facts(none, none, 1)) == (MOST, np.inf, 0)
    assert chosen(*facts(none, some, 1)) == (0, 0, 0)


@each_runner
@settings(max_examples=20)
@given(st.integers(1, 4), st.integers(1, 4), st.sampled_from([1e-30, 1e-9, 1e-3, 0.1, 0.3, 1e18]), st.integers(0, 2**32))
def test_it_is_the_cpus(run, n_outputs, n_searched, unit, seed):
    rng = np.random.default_rng(seed)
    grad, hess = (rng.normal(size=(n_outputs, N_ROWS)) * unit).astype(np.float32), rng.random((n_outputs, N_ROWS), np.float32)
    grad[seed % 4 :: 4] = 0
    of_round, rules = facts(grad, hess, n_searched), some_rules()
    run(choose_noise_kernel, MOST, TIMES, *of_round, rules, blocks=1)
    assert_same(np.array([rules[name] for name in ("cat_noise", "cat_spread", "cat_step")]), np.array(chosen(*of_round))[:, None])
