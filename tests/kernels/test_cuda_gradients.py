"""kernels/gradients.py on a GPU: every objective's derivatives and their maxima, to the bit of the CPU twin."""

import numpy as np
import pytest
from cuda_runners import assert_same, each_runner
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numba import float32

from gpuboost.kernels.gradients import NON_FINITE_BITS, elementwise_gradients, elementwise_gradients_kernel
from gpuboost.kernels.jit import scalar
from gpuboost.objectives import find_objective, get_objective, objective_names
from gpuboost.params import parse_params

NO_WEIGHT = np.zeros(0, np.float32)
NUM_CLASS = 3


@scalar
def as_given(margin, label, weight, output, parameters):
    """g = margin·p₀ and h = label: to feed any value in."""
    return float32(margin * parameters[0]), label


def gradients(run, kernel, margin, label, weight, parameters):
    """(grad, hess, maxima) by the CUDA kernel."""
    grad, hess, maxima = np.full_like(margin, 77), np.full_like(margin, 77), np.zeros((len(margin), 2), np.int64)
    run(kernel, margin, label, weight, np.array(parameters, np.float32), grad, hess, maxima, threads=margin.shape[1])
    return grad, hess, maxima


def gradients_cpu(kernel, margin, label, weight, parameters):
    grad, hess, maxima = np.full_like(margin, 77), np.full_like(margin, 77), np.zeros((1, len(margin), 2), np.int64)
    kernel(margin, label, weight, tuple(np.float32(p) for p in parameters), grad, hess, maxima, 1)
    return grad, hess, maxima[0]


def check_gradients(run, kernel, kernel_cpu, margin, label, weight=NO_WEIGHT, parameters=(1.0,)):
    """All equal the CPU's, but that the maxima of what is not finite are only both beyond NON_FINITE_BITS."""
    grad, hess, maxima = gradients(run, kernel, margin, label, weight, parameters)
    expected = gradients_cpu(kernel_cpu, margin, label, weight, parameters)
    assert_same(grad, expected[0])
    assert_same(hess, expected[1])
    assert_same(np.minimum(maxima, NON_FINITE_BITS), np.minimum(expected[2], NON_FINITE_BITS))


def check_objective(run, objective, margin, label, weight=NO_WEIGHT):
    check_gradients(run, objective.gradients_kernel, objective.gradients_cpu, margin, label, weight, objective.parameters)


def objective_of(name):
    extra = {}
    if find_objective(name).takes_parameter("num_class"):
        extra["num_class"] = NUM_CLASS
    if find_objective(name).takes_parameter("scale_pos_weight"):
        extra["scale_pos_weight"] = 2.5
    for alphas in ("quantile_alpha", "expectile_alpha"):
        if find_objective(name).takes_parameter(alphas):
            extra[alphas] = [0.2, 0.5, 0.9]  # one for each output of the tests
    return get_objective(name, parse_params({"objective": name, **extra}))


def labels_of(objective, n_rows, rng):
    """One label a row that the objective allows, of these numbers."""
    allowed = []
    for value in (0.0, 1.0, 2.0, 0.25, -0.5, -3.5, 1e30):
        try:
            objective.check_labels(np.full((1, 1), value, np.float32))
            allowed.append(value)
        except ValueError:
            pass
    assert len(allowed) > 1
    return rng.choice(allowed, (1, n_rows)).astype(np.float32)


# But those without a formula of their own, or with pairs of labels: tests/recorded_digests.py trains them.
WITH_FORMULA = [name for name in objective_names() if find_objective(name).stage is None]
each_objective = pytest.mark.parametrize("name", [name for name in WITH_FORMULA if find_objective(name).label_rows == 1])


@each_runner
def test_a_hand_sized_case_with_weights(run):
    margin, label = np.array([[1, -2, 3, 5]], np.float32), np.array([[1, 2, -1, 7]], np.float32)
    weight = np.array([1, 2, 4, 0], np.float32)
    grad, hess, maxima = gradients(run, elementwise_gradients_kernel(as_given), margin, label, weight, [2.0])
    assert grad.tolist() == [[2, -8, 24, 0]]
    assert hess.tolist() == [[1, 4, 0, 0]], "a negative hessian counts as 0"
    assert maxima.astype(np.uint32).view(np.float32).tolist() == [[24, 4]]


# The difference of any two is finite: an overflow is an error in the simulator.
MARGINS = st.sampled_from([0.0, -0.0, 1e-45, 88.5, -104.0, 1.5e38, -1.5e38]) | st.floats(-20, 20, width=32)


@pytest.mark.sweep(4)
@each_runner
@each_objective
@settings(max_examples=8)
@given(st.data(), st.integers(0, 40), st.sampled_from(["no weights", "weights", "zeros"]), st.integers(0, 2**32))
def test_an_objective_differs_from_the_cpu_in_no_bit(run, name, data, n_rows, weights, seed):
    rng, objective = np.random.default_rng(seed), objective_of(name)
    n_outputs = objective.n_outputs(1)
    margin = data.draw(hnp.arrays(np.float32, (n_outputs, n_rows), elements=MARGINS))
    weight = {"no weights": NO_WEIGHT, "weights": rng.integers(0, 4, n_rows) / 3, "zeros": np.zeros(n_rows)}[weights]
    check_objective(run, objective, margin, labels_of(objective, n_rows, rng), weight.astype(np.float32))


@pytest.mark.sweep(9)
@each_runner
@each_objective
@pytest.mark.parametrize("n_rows", [0, 1, 301])
def test_rows_beyond_the_grid_and_none(run, name, n_rows):
    rng, objective = np.random.default_rng(n_rows), objective_of(name)
    margin = rng.normal(size=(objective.n_outputs(1), n_rows)).astype(np.float32) * 4
    check_objective(run, objective, margin, labels_of(objective, n_rows, rng), rng.random(n_rows).astype(np.float32))


@each_runner
@pytest.mark.parametrize("n_targets", [1, 3])
def test_outputs_share_one_label_or_have_their_own(run, n_targets):
    rng = np.random.default_rng(4)
    margin, label = rng.normal(size=(3, 40)).astype(np.float32), rng.normal(size=(n_targets, 40)).astype(np.float32)
    check_gradients(run, elementwise_gradients_kernel(as_given), elementwise_gradients(as_given), margin, label)


@each_runner
def test_zero_gradients_have_maxima_of_zero(run):
    zeros = np.array([[0.0, -0.0, 0.0]], np.float32)
    for weight in (NO_WEIGHT, np.array([1, 0, 2], np.float32)):
        check_gradients(run, elementwise_gradients_kernel(as_given), elementwise_gradients(as_given), zeros, zeros, weight)
        assert not gradients(run, elementwise_gradients_kernel(as_given), zeros, zeros, weight, [1.0])[2].any()


@each_runner
@pytest.mark.parametrize("bad", [np.nan, -np.nan, np.inf, -np.inf])
def test_what_is_not_finite_shows_in_the_maxima_of_its_output(run, bad):
    margin, label = np.ones((2, 70), np.float32), np.ones((2, 70), np.float32)
    margin[1, 69] = bad
    label[0, 3] = np.inf
    label[1, 3] = np.nan  # missing: a gradient of 0
    maxima = gradients(run, elementwise_gradients_kernel(as_given), margin, label, NO_WEIGHT, [1.0])[2]
    assert (maxima >= NON_FINITE_BITS).tolist() == [[False, True], [True, False]]
    check_gradients(run, elementwise_gradients_kernel(as_given), elementwise_gradients(as_given), margin, label)


@pytest.mark.sweep(9)
@each_runner
@each_objective
@pytest.mark.parametrize("output", [0, -1])
def test_a_margin_that_is_nan_makes_a_gradient_of_its_row_not_finite(run, name, output):
    """float minima and maxima, which the GPU's own instructions take without the NaN, must not hide it."""
    rng, objective = np.random.default_rng(5), objective_of(name)
    margin = np.zeros((objective.n_outputs(1), 3), np.float32)
    margin[output, 1] = np.nan
    label = labels_of(objective, 3, rng)
    check_objective(run, objective, margin, label)
    maxima = gradients(run, objective.gradients_kernel, margin, label, NO_WEIGHT, objective.parameters)[2]
    assert (maxima >= NON_FINITE_BITS).any()
