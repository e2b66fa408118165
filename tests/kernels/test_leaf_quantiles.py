"""kernels/leaf_quantiles.py: leaves are the weighted quantiles of their rows' residuals, found digit by digit."""

import math
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import expected_quantile
from test_leaves import Forest

from gpuboost.backend.fixed_point import as_ratios
from gpuboost.kernels import leaf_quantiles as kernel
from gpuboost.kernels.structs import NODE

ALPHAS = 0.5, 0.2


def residuals_of(forest, seed, n_values):
    """label and margin, float32 (2, n_rows), whose differences are few values or many, of all sizes and both signs."""
    rng, shape = np.random.default_rng(seed), forest.hess.shape
    label = rng.choice((rng.normal(size=n_values) * 10.0 ** rng.integers(-30, 30, n_values)).astype(np.float32), shape)
    return label, np.where(rng.random(shape) < 0.5, label, np.float32(0.25)).astype(np.float32)


def quantiles_cpu(forest, label, margin, hess, scales, n_slots=None, n_threads=2):
    """float64 (n_nodes, n_outputs): a group of n_slots nodes after another."""
    keys, weights = np.zeros((2, forest.n_outputs, forest.rows.shape[1]), np.uint32)
    kernel.list_residuals_cpu(
        forest.chunks, forest.nodes, forest.segments, forest.rows, label, margin, hess, scales, forest.first_output, keys,
        weights, n_threads,
    )  # fmt: skip
    values = np.full((forest.n_nodes, forest.n_outputs), np.nan)
    n_slots = n_slots or forest.n_nodes
    for first in range(0, forest.n_nodes, n_slots):
        shape = min(n_slots, forest.n_nodes - first), forest.n_outputs, 2
        prefixes, targets = np.zeros((2, *shape), np.int64)
        for level in range(kernel.N_LEVELS):
            counts = np.zeros((*shape, kernel.DIGITS), np.int64)
            kernel.count_residuals_cpu(forest.chunks, forest.nodes, first, level, keys, weights, prefixes, counts, n_threads)
            ratios = as_ratios(ALPHAS)
            kernel.choose_digits(first, level, ratios, forest.first_output, forest.nodes, counts, prefixes, targets)
        kernel.take_quantiles(first, prefixes, values)
    return values


@settings(max_examples=300)
@given(
    total=st.integers(1, 2**62) | st.integers(1, 1000), exponent=st.integers(-30, 0), mantissa=st.floats(0, 1, width=32),
    usual=st.sampled_from([None, 0.1, 0.3, 0.7, 0.975, 1.0, 0.0]),
)  # fmt: skip
def test_targets_are_those_of_alpha_as_it_is_written(total, exponent, mantissa, usual):
    alpha = float(str(np.float32(mantissa * 10.0**exponent))) if usual is None else usual
    ((numerator, denominator),) = as_ratios([alpha]).tolist()
    exact = Fraction(str(alpha))
    assert Fraction(numerator, denominator) == exact or exact.denominator >= 2**31
    rank = Fraction(numerator, denominator) * total
    assert kernel.first_target(total, numerator, denominator, 0) == max(math.ceil(rank), 1)
    assert kernel.first_target(total, numerator, denominator, 1) == min(math.floor(rank) + 1, total)


def scales_of(hess):
    """Powers of two that take the largest hessian of an output just below 2^31."""
    return 2.0 ** (31 - np.frexp(hess.max(axis=1, initial=0))[1])


@pytest.mark.parametrize("is_weighted", [False, True])
@settings(max_examples=30)
@given(
    n_rows=st.sampled_from([1, 2, 9, 70, 9000]), n_leaves=st.integers(1, 5), n_values=st.sampled_from([1, 2, 50, 10**4]),
    seed=st.integers(0, 2**32), vector=st.booleans(),
)  # fmt: skip
def test_leaves_are_quantiles(is_weighted, n_rows, n_leaves, n_values, seed, vector):
    forest = Forest(n_rows, n_leaves, seed=seed, vector=vector)
    label, margin = residuals_of(forest, seed, n_values)
    hess = np.maximum(forest.hess, np.float32(1e-6)) if is_weighted else np.ones_like(forest.hess)
    scales = scales_of(hess)
    results = [quantiles_cpu(forest, label, margin, hess, scales, *how) for how in ((), (None, 1), (2, 2))]
    for node, rows in forest.members.items():
        for own, output in enumerate(forest.outputs(node)) if len(rows) else ():
            residual = label[output, rows] - margin[output, rows]
            weights = np.floor(hess[output, rows] * scales[output] + 0.5).astype(int).tolist()
            assert results[0][node, own] == expected_quantile(residual, weights, ALPHAS[output])
            assert len({float(result[node, own]) for result in results}) == 1


def test_one_label_serves_all_outputs():
    forest = Forest(40, 3, vector=True)
    label, margin = residuals_of(forest, 1, 30)
    hess = np.ones_like(forest.hess)
    one, two = (quantiles_cpu(forest, given, margin, hess, scales_of(hess)) for given in (label[:1], label[[0, 0]]))
    np.testing.assert_array_equal(one[1:], two[1:])


def test_the_median_of_an_even_count_lies_between_the_two_in_the_middle():
    np.testing.assert_equal(expected_quantile(np.array([4.0, 1.0, 3.0, 9.0]), [1] * 4, 0.5), 3.5)  # as the definition has it
    forest = Forest(4, 1)
    label = np.array([[4, 1, 3, 9]] * 2, np.float32)
    hess = np.ones((2, 4), np.float32)
    assert quantiles_cpu(forest, label, np.zeros_like(label), hess, scales_of(hess))[1, 0] == 3.5


def test_rows_that_weigh_next_to_nothing_still_count():
    forest = Forest(3, 1)
    label, hess = np.array([[5, 6, 7]] * 2, np.float32), np.full((2, 3), 1e-30, np.float32)
    assert quantiles_cpu(forest, label, np.zeros_like(label), hess, np.array([2.0**30] * 2))[1, 0] == 6


def full_tree(depth, seed):
    """A tree of that depth, split at random on three columns, and values of its nodes."""
    rng, n = np.random.default_rng(seed), 2 ** (depth + 1) - 1
    nodes = np.zeros(n, NODE)
    nodes["parent"] = (np.arange(n) - 1) // 2
    nodes["parent"][0], nodes["depth"] = -1, np.floor(np.log2(np.arange(n) + 1))
    nodes["left"] = np.where(nodes["depth"] < depth, 2 * np.arange(n) + 1, -1)
    nodes["left"][(rng.random(n) < 0.2) & (nodes["depth"] > 0)] = -1
    nodes["feature"] = rng.integers(0, 3, n)
    return nodes, rng.integers(-20, 21, (n, 1)) / 4.0


def leaves_below(nodes, node):
    left = nodes["left"][node]
    return [node] if left < 0 else [*leaves_below(nodes, left), *leaves_below(nodes, left + 1)]


def ordered_cpu(nodes, values, monotone, learning_rate=0.5):
    n = len(nodes)
    cuts, weights, leaves = np.empty(n), np.full((n, 1), 77, np.float32), np.full((n, 1), 77, np.float32)
    kernel.find_cuts(n, nodes, monotone, values, *np.empty((2, n)), cuts)
    kernel.weigh_quantiles(n, nodes, monotone, values, cuts, learning_rate, weights, leaves)
    return weights, leaves


@pytest.mark.parametrize("seed", range(20))
def test_constraints_order_the_leaves(seed):
    nodes, values = full_tree(1 + seed % 5, seed)
    monotone = np.array([1, -1, 0], np.int8)
    weights, leaves = ordered_cpu(nodes, values, monotone)
    np.testing.assert_array_equal(leaves, np.where(nodes["left"][:, None] < 0, weights / 2, 77).astype(np.float32))
    reachable = leaves_below(nodes, 0)
    inner = [node for node in range(len(nodes)) if nodes["left"][node] >= 0 and set(leaves_below(nodes, node)) <= set(reachable)]
    for node in inner:
        left, right = (weights[leaves_below(nodes, nodes["left"][node] + side), 0] for side in range(2))
        sign = monotone[nodes["feature"][node]]
        assert sign * left.max() <= sign * right.min() or sign == 0
    is_ordered = all(
        monotone[nodes["feature"][i]] * (values[a, 0] - values[b, 0]) <= 0
        for i in inner
        for a, b in product(leaves_below(nodes, nodes["left"][i]), leaves_below(nodes, nodes["left"][i] + 1))
    )
    assert is_ordered == (weights[reachable] == values[reachable].astype(np.float32)).all(), "what is in order stays"


def test_without_constraints_nothing_is_cut():
    nodes, values = full_tree(3, 1)
    weights, leaves = np.zeros((len(nodes), 1), np.float32), np.zeros((len(nodes), 1), np.float32)
    kernel.weigh_quantiles(len(nodes), nodes, np.zeros(0, np.int8), values, np.empty(0), 1.0, weights, leaves)
    np.testing.assert_array_equal(weights[leaves_below(nodes, 0)], values[leaves_below(nodes, 0)])
