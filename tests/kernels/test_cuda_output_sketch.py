"""kernels/output_sketch.py on a GPU: the CPU's squares and combinations, and the outputs that the host chooses."""

import numpy as np
import pytest
from cuda_runners import assert_same, each_runner, progress_of
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuboost.backend.fixed_point import round_key
from gpuboost.backend.output_sketch import choose_outputs
from gpuboost.backend.plans import OutputSketch
from gpuboost.kernels.output_sketch import (
    METHODS,
    SKETCH_DRAW,
    choose_outputs_kernel,
    combine_outputs_cpu,
    combine_outputs_kernel,
    square_scale,
    sum_squares_cpu,
    sum_squares_kernel,
)

SIZES = (1, 0), (3, 1), (4, 200)


def bits(values):
    """int64 bits of the largest magnitudes of each row."""
    return np.abs(values).view(np.int32).max(axis=1, initial=0).astype(np.int64)


def gradients(n_outputs, n_rows, unit=1.0):
    rng = np.random.default_rng(n_rows)
    grad = (rng.normal(size=(n_outputs, n_rows)) * unit).astype(np.float32)
    return grad, rng.random((n_outputs, n_rows)).astype(np.float32)


# ---- squares


@pytest.mark.parametrize("largest, row_bits", [(1.0, 0), (0.75, 5), (3e38, 31), (1e-45, 3), (0.0, 10)])
def test_all_squares_together_stay_below_2_62(largest, row_bits):
    scale = square_scale(np.float64(np.float32(largest)), row_bits)
    units = 2**row_bits * int(np.floor(float(np.float32(largest)) ** 2 * scale + 0.5))
    assert units <= 2**62 and (units >= 2**59 or scale == 2.0**1000 or largest == 0)


@each_runner
@pytest.mark.parametrize("unit", [1.0, 1e-30, 1e18])
def test_squares_are_the_cpus(run, unit):
    for size in SIZES:
        grad, hess = gradients(*size, unit)
        maxima = np.stack([bits(grad), bits(hess)], axis=1)
        expected, sums = np.zeros((1, len(grad)), np.int64), np.zeros(len(grad), np.int64)
        sum_squares_cpu(grad, float(np.abs(grad).max(initial=0)), 1000, expected, 1)
        run(sum_squares_kernel, grad, maxima, 1000, sums, threads=size[1])
        assert_same(sums, expected[0])
        assert size[1] == 0 or sums.all()


@each_runner
def test_squares_of_what_is_not_finite_are_not_summed(run):
    grad, maxima = np.array([[1, np.nan], [2, 1]], np.float32), np.zeros((2, 2), np.int64)
    maxima[:, 0], sums = bits(grad), np.zeros(2, np.int64)
    run(sum_squares_kernel, grad, maxima, 2, sums, threads=2)
    assert sums.tolist() == [0, 0]


# ---- outputs


def chosen_by(run, method, squares, k, seed=0, round_number=0):
    progress = progress_of(seed=seed, round=round_number)
    shape = k, len(squares) if method == "random_projection" else 1
    outputs, factors = np.full(shape, -1, np.int32), np.full(shape, np.nan)
    unsorted = np.full(k, -1, np.int32)
    run(
        choose_outputs_kernel, METHODS.index(method), progress, np.array(squares, np.int64), unsorted, outputs, factors, blocks=1
    )
    return outputs, factors


@each_runner
def test_hand_sized_choices(run):
    outputs, factors = chosen_by(run, "top_outputs", [5, 9, 9, 7], 2)
    assert (outputs.tolist(), factors.tolist()) == ([[1], [2]], [[1], [1]])
    assert chosen_by(run, "top_outputs", [7, 5, 5], 2)[0].tolist() == [[0], [1]], "ties: the lower one"
    for method in ("top_outputs", "random_sampling"):
        outputs, factors = chosen_by(run, method, [0, 0, 0], 2)
        assert (outputs.tolist(), factors.tolist()) == ([[0], [1]], [[1], [1]]), "without gradients the first ones"
    assert chosen_by(run, "random_sampling", [0, 8, 0], 2)[1].tolist() == [[0.5**0.5]] * 2


SQUARES = st.lists(st.sampled_from([0, 1, 2**62, 2**53 + 1]) | st.integers(0, 2**62), min_size=2, max_size=70)


@each_runner
@settings(max_examples=15)
@given(st.sampled_from(METHODS), SQUARES, st.data())
def test_outputs_and_factors_are_those_that_the_host_chooses(run, method, squares, data):
    k, seed = data.draw(st.integers(1, len(squares))), data.draw(st.integers(0, 2**64 - 1))
    round_number = data.draw(st.integers(0, 2**31))
    sketch = OutputSketch(method, k, round_key(seed, round_number, SKETCH_DRAW))
    for found, expected in zip(chosen_by(run, method, squares, k, seed, round_number), choose_outputs(sketch, squares)):
        assert_same(found, expected)


# ---- combinations


@each_runner
@pytest.mark.parametrize("method", METHODS)
def test_combinations_are_the_cpus(run, method):
    for n_outputs, n_rows in SIZES:
        grad, hess = gradients(n_outputs, n_rows)
        if n_rows > 1:
            grad[1, 1], hess[0, 0] = np.inf, np.nan  # found by the maxima
        k = max(n_outputs - 1, 1)
        outputs, factors = choose_outputs(OutputSketch(method, k, 7), list(range(1, n_outputs + 1)))
        few, expected = np.empty((2, k, n_rows), np.float32), np.empty((2, k, n_rows), np.float32)
        maxima = np.zeros((k, 2), np.int64)
        combine_outputs_cpu(grad, hess, outputs, factors, *expected, 1)
        run(combine_outputs_kernel, grad, hess, outputs, factors, *few, maxima, threads=n_rows)
        assert_same(few, expected)
        is_nan = np.isnan(expected).any(axis=2).T
        assert (maxima[is_nan] > 0x7F800000).all()
        assert_same(maxima[~is_nan], np.stack([bits(expected[0]), bits(expected[1])], axis=1)[~is_nan])
