"""kernels/reduce.py on a GPU: every row term and row map of the package, to the bit of the CPU twin."""

import inspect
from importlib import import_module
from pkgutil import iter_modules

import numpy as np
import pytest
from cuda_runners import assert_same, each_runner
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numba.extending import is_jitted
from test_reduce import difference

import gpuboost.metrics
import gpuboost.objectives
from gpuboost.backend.fixed_point import sum_scale
from gpuboost.kernels import reduce
from gpuboost.kernels.reduce import (
    NON_FINITE_BITS,
    elementwise_terms,
    map_rows,
    map_rows_kernel,
    reduce_rows,
    reduce_rows_kernel,
)
from gpuboost.metrics import get_metric, metric_names
from gpuboost.objectives import LOG, LOGIT, find_objective, get_objective, objective_names
from gpuboost.params import Params

NO_WEIGHT = np.zeros(0, np.float32)


difference_row = elementwise_terms(difference)


def formulas(*parameters):
    """The scalar functions with these parameters in kernels/reduce.py and in the files of objectives and metrics."""
    modules = [reduce]
    for package in (gpuboost.objectives, gpuboost.metrics):
        modules += [import_module(f"{package.__name__}.{m.name}") for m in iter_modules(package.__path__)]
    found = {f"{f.py_func.__module__}.{f.py_func.__qualname__}": f for m in modules for f in vars(m).values() if is_jitted(f)}
    return {name: f for name, f in found.items() if tuple(inspect.signature(f.py_func).parameters) == parameters}


TERMS = formulas("prediction", "label", "i", "parameters")
MAPS = formulas("margin", "i", "out")


def test_the_terms_and_maps_of_all_metrics_and_objectives_are_there():
    params = Params(quantile_alpha=0.5, expectile_alpha=0.5)
    metrics = [get_metric("tweedie-nloglik@1.5" if name == "tweedie-nloglik" else name, params) for name in metric_names()]
    terms = [metric.row_term for metric in metrics if hasattr(metric, "row_term")]
    assert terms and all(term in TERMS.values() for term in terms)
    objectives = [
        get_objective(name, Params(objective=name, num_class=3 if find_objective(name).takes_parameter("num_class") else 0))
        for name in objective_names()
    ]
    maps = [f for o in objectives for f in (o.row_map, o.predict_map) if f is not None]
    assert maps and all(row_map in MAPS.values() for row_map in maps)


# ---------------------------------------------------------------------------------------------------------------------
# Sums


def reduce_by(run, term, prediction, label, weight, parameters, scale):
    out = np.zeros(1, np.int64)
    run(
        reduce_rows_kernel(term), prediction, label, weight, np.array(parameters, np.float32), scale, out,
        threads=prediction.shape[1],
    )  # fmt: skip
    return int(out[0])


def reduce_cpu(term, prediction, label, weight, parameters, scale):
    out = np.full(1, -1, np.int64)
    reduce_rows(term)(prediction, label, weight, tuple(np.float32(p) for p in parameters), float(scale), out, 1)
    return int(out[0])


def table(prediction, label, weight=NO_WEIGHT):
    return np.atleast_2d(np.float32(prediction)), np.atleast_2d(np.float32(label)), np.array(weight, np.float32)


@each_runner
def test_a_hand_sized_sum(run):
    # terms 3·(1, −2, 0.5) = 3, −6, 1.5; weights 1, 2, 4: 3, −12, 6; scale 4: 12 − 48 + 24
    rows = table([1, 2, 3], [0, 4, 2.5], [1, 2, 4])
    assert reduce_by(run, difference_row, *rows, [3.0], 4.0) == -12
    assert np.int64(reduce_by(run, difference_row, *rows, [3.0], 0.0)).view(np.float64) == 12
    # the outputs of a row are added, with one label or two; ⌊x + ½⌋
    assert reduce_by(run, difference_row, *table([[1, 2], [10, 20]], [[1, 1]]), [3.0], 1.0) == 3 * (0 + 1 + 9 + 19)
    assert reduce_by(run, difference_row, *table([[1, 2], [10, 20]], [[1, 1], [10, 10]]), [3.0], 1.0) == 3 * (0 + 1 + 0 + 10)
    assert [reduce_by(run, difference_row, *table([x], [0]), [3.0], 1.0) for x in (0.5, -0.5, 0.4)] == [2, -1, 1]


def check_term(run, term, prediction, label, weight, parameters):
    """The largest magnitude, and where that is finite the sum with the scale made of it, equal the CPU's."""
    rows = prediction, label, weight, parameters
    largest, expected = reduce_by(run, term, *rows, 0.0), reduce_cpu(term, *rows, 0.0)
    assert min(largest, NON_FINITE_BITS) == min(expected, NON_FINITE_BITS)  # a NaN's bits differ by device
    if expected < NON_FINITE_BITS:
        scale = sum_scale(float(np.int64(expected).view(np.float64)), prediction.shape[1])
        assert reduce_by(run, term, *rows, scale) == reduce_cpu(term, *rows, scale)


PREDICTIONS = st.sampled_from([0.0, -0.0, 1.0, 0.5, 1e-20, 1e-45, 3e38, -7.5, np.inf]) | st.floats(0, 1, width=32)
LABELS = st.sampled_from([0.0, 1.0, 2.0, 0.25])


@pytest.mark.sweep(9)
@each_runner
@pytest.mark.parametrize("name", TERMS)
@settings(max_examples=6)
@given(
    st.data(), st.integers(1, 3), st.integers(0, 30), st.booleans(), st.sampled_from(["none", "some", "zeros"]),
    st.integers(0, 99),
)  # fmt: skip
def test_sums_of_every_term_are_the_cpus(run, name, data, n_outputs, n_rows, own_labels, weights, seed):
    prediction = data.draw(hnp.arrays(np.float32, (n_outputs, n_rows), elements=PREDICTIONS))
    n_targets, is_interval = n_outputs if own_labels else 1, ".survival." in name  # whose labels are two rows each
    label = data.draw(hnp.arrays(np.float32, (n_targets * (1 + is_interval), n_rows), elements=LABELS))
    some = np.random.default_rng(seed).integers(0, 4, n_rows) / 3
    weight = {"none": NO_WEIGHT, "some": some, "zeros": np.zeros(n_rows)}[weights].astype(np.float32)
    check_term(run, TERMS[name], prediction, label, weight, (n_targets - 1.0, float(seed % 2 + is_interval), 1.5, 2.0))


@each_runner
@pytest.mark.parametrize("bad", [np.nan, -np.nan, np.inf, -np.inf])
def test_a_term_that_is_not_finite_shows_in_the_maximum(run, bad):
    prediction = np.ones((1, 70), np.float32)
    prediction[0, 69] = bad
    assert reduce_by(run, difference_row, prediction, np.zeros_like(prediction), NO_WEIGHT, [1.0], 0.0) >= NON_FINITE_BITS


@pytest.mark.sweep(9)
@each_runner
@pytest.mark.parametrize("name", TERMS)
def test_a_prediction_that_is_nan_counts_as_on_the_cpu(run, name):
    """float minima and maxima, which the GPU's own instructions take without the NaN, must not hide it."""
    prediction = np.array([[0.5, np.nan, 0.25], [0.5, 0.5, np.nan]], np.float32)
    check_term(run, TERMS[name], prediction, np.array([[0, 0, 1], [0, 1, 1]], np.float32), NO_WEIGHT, (0.0, 1.0, 1.5, 0.5))


@each_runner
@pytest.mark.parametrize("n_rows", [0, 1, 400])
def test_rows_beyond_the_grid_and_none(run, n_rows):
    rng = np.random.default_rng(n_rows)
    prediction, label = rng.normal(size=(2, n_rows)).astype(np.float32), rng.normal(size=(1, n_rows)).astype(np.float32)
    check_term(run, difference_row, prediction, label, rng.random(n_rows).astype(np.float32), (3.0,))


# ---------------------------------------------------------------------------------------------------------------------
# Maps


def check_map(run, row_map, margin):
    out, expected = np.full_like(margin, 77), np.full_like(margin, 77)
    run(map_rows_kernel(row_map), margin, out, threads=margin.shape[1])
    map_rows(row_map)(margin, expected, 1)
    assert_same(out, expected)


@each_runner
def test_hand_sized_maps(run):
    margin, out = np.array([[1, 5, 2], [3, 5, 1]], np.float32), np.full((2, 3), 77, np.float32)
    argmax = next(f for name, f in MAPS.items() if name.endswith("argmax_row"))
    run(map_rows_kernel(argmax), margin, out, threads=3)
    assert out.tolist() == [[1, 0, 0], [77, 77, 77]]
    for link, of_zero in ((LOGIT, 0.5), (LOG, 1.0)):
        run(map_rows_kernel(link.row_map), np.zeros((2, 3), np.float32), out, threads=3)
        assert (out == of_zero).all()


MARGINS = st.sampled_from([0.0, -0.0, 1e-45, 88.5, -104.0, 3e38, -3e38, np.inf, -np.inf]) | st.floats(-20, 20, width=32)


@each_runner
@pytest.mark.parametrize("name", MAPS)
@settings(max_examples=10)
@given(hnp.arrays(np.float32, st.tuples(st.integers(1, 4), st.integers(0, 30)), elements=MARGINS))
def test_every_map_is_the_cpus(run, name, margin):
    check_map(run, MAPS[name], margin)


@each_runner
@pytest.mark.parametrize("name", MAPS)
def test_maps_of_many_rows_and_of_nan(run, name):
    margin = np.random.default_rng(10).normal(size=(3, 310)).astype(np.float32)
    check_map(run, MAPS[name], margin)
    margin[:, 5], margin[0, 6], margin[2, 7] = np.nan, np.nan, np.nan
    check_map(run, MAPS[name], margin[:, :9].copy())
