"""kernels/category_splits.py on CUDA: the same sets, gains and left sums, to the last bit, as the CPU kernel."""

import numpy as np
import pytest
from cuda_runners import each_runner, progress_of
from hypothesis import given, settings
from hypothesis import strategies as st
from test_category_splits import ANY_RULES, SETTINGS, find_sets, lay_out, random_categories, set_of, some_rules

import gpuboost as gb
from gpuboost.backend.plans import BUILT_IN_GAIN
from gpuboost.formulas.split_gain import find_gain
from gpuboost.kernels import category_splits, splits
from gpuboost.kernels.structs import CATEGORICAL, NO_GAIN, NODE, NUMERIC, PENALTY

FRONTIER = 2  # nodes before those that wait for evaluation


def find_sets_with(
    run, hist, sums, offsets, *, mask=None, scales=(1.0, 1.0), lower=-np.inf, upper=np.inf, number_gain=NO_GAIN, depth=0,
    max_depth=0, n_sorted=2, reg_lambda=1.0, reg_alpha=0.0, max_delta_step=0.0, min_child_weight=0.0, gain=BUILT_IN_GAIN, **rules,
):  # fmt: skip
    """Adapter: as test_category_splits.find_sets, by the CUDA kernels. number_gain : of feature 0. n_sorted : blocks that sort at
    once. The launches ask for a node more than there are."""
    hist, sums = np.asarray(hist, np.int64)[:, None], np.asarray(sums, np.int64)[:, None]
    n_nodes, n_features, n = len(hist), len(offsets) - 1, len(hist) + 1
    own, capacity = slice(FRONTIER, FRONTIER + n_nodes), FRONTIER + n
    nodes, left_sums, all_sums = np.zeros(capacity, NODE), np.full((capacity, 1, 2), -1, np.int64), np.full((capacity, 1, 2), 77)
    nodes["slot"][own], nodes["kind"], nodes["depth"][own] = np.arange(n_nodes)[::-1], NUMERIC, depth
    nodes["lower"][own], nodes["upper"][own], all_sums[own] = lower, upper, sums
    n_categories = np.diff(offsets) - 1
    n_categories[0] = 0
    size = 2 ** int(max(n_categories.max() - 1, 0)).bit_length()
    cats = np.full((capacity, category_splits.count_words(n_categories)), 0xA5A5A5A5, np.uint32)
    progress = progress_of(frontier=FRONTIER, n_nodes=FRONTIER + n_nodes)
    penalty = np.array([(reg_lambda, reg_alpha, max_delta_step, min_child_weight, 0.0)], PENALTY)
    gains, choices = np.full((n, n_features), 1e30), np.full((n, n_features), 7, np.int32)  # as a search of numbers left them
    gains[:, 0] = number_gain
    features, scratch = np.arange(n_features, dtype=np.int32), (np.zeros((n_sorted, size), np.int32), np.zeros((n_sorted, size)))
    categorical, hist = (n_categories > 0).astype(np.uint8), np.ascontiguousarray(hist[::-1])
    categorical[1:] = 1
    mask = np.zeros((0, n_features), np.uint8) if mask is None else np.asarray(mask, np.uint8)
    common, scales = (hist, offsets, features), np.array([scales], np.float64)
    is_bounded = max_delta_step > 0 or np.max(lower) > -np.inf or np.min(upper) < np.inf
    run(
        category_splits.evaluate_category_splits_kernel(bool(is_bounded), gain.function), 0, n, max_depth, progress, nodes,
        all_sums, *common, categorical, mask, scales, np.zeros(1, np.int32), penalty, some_rules(**rules),
        np.array(gain.parameters, np.float64), gains, choices, *scratch, blocks=n_sorted,
    )  # fmt: skip
    run(
        splits.choose_splits_kernel, 0, n, 0, progress, nodes, all_sums, left_sums, *common, categorical,
        np.zeros((0, offsets[-1]), np.uint8), gains, choices, warps=n,
    )  # fmt: skip
    run(
        category_splits.list_categories_kernel, 0, n, progress, nodes, all_sums, left_sums, cats, *common, categorical, scales,
        np.zeros(1, np.int32), penalty, some_rules(**rules), *scratch, blocks=n_sorted,
    )  # fmt: skip
    return nodes[own], left_sums[own, 0], cats[own]


def check(run, hist, sums, offsets, *, n_sorted=2, **arguments):
    nodes, left_sums, cats = find_sets_with(run, hist, sums, offsets, n_sorted=n_sorted, **arguments)
    expected = find_sets(hist, sums, offsets, **arguments)
    np.testing.assert_array_equal(nodes["gain"], expected[0]["gain"])
    is_set = expected[0]["kind"] == CATEGORICAL
    np.testing.assert_array_equal(nodes["kind"], expected[0]["kind"])
    for field in ("feature", "bin", "default_left"):
        np.testing.assert_array_equal(nodes[field][is_set], expected[0][field][is_set])
    np.testing.assert_array_equal(left_sums[is_set], expected[1][is_set])
    np.testing.assert_array_equal(cats, expected[2])
    return nodes, cats


def laid_out(rng, sizes, n_nodes, largest=9, missing=(0, 0)):
    """(hist, sums, offsets) of nodes whose features all sum to the same."""
    laid = []
    for _ in range(n_nodes):
        features = [random_categories(rng, n, largest) for n in sizes]
        totals = [np.sum(categories, axis=0) for categories in features]
        for categories, total in zip(features, totals):
            g, h = totals[0] - total
            categories[0] = (categories[0][0] + int(g), categories[0][1] + int(h))
        hist, sums, offsets = lay_out(features, missing)
        hist[:, 1] = np.maximum(hist[:, 1], 0)
        laid.append((hist, sums))
    return np.stack([hist for hist, _ in laid]), np.stack([sums for _, sums in laid]), offsets


@each_runner
def test_sets_by_hand(run):
    hist, sums, offsets = lay_out([[(-4, 1), (3, 1), (-3, 1), (4, 1)]], (0, 0))
    nodes, cats = check(run, hist[None], sums[None], offsets)
    assert nodes["gain"][0] == 49 / 3 + 49 / 3 and set_of(cats[0]) == {0, 2}
    hist, sums, offsets = lay_out([[(-6, 1), (5, 2), (4, 1)]], (-3, 1))
    nodes, cats = check(run, hist[None], sums[None], offsets)
    assert (nodes["gain"][0], nodes["default_left"][0], set_of(cats[0])) == (81 / 3 + 81 / 4, 0, {0})
    hist, sums, offsets = lay_out([[(2, 1)] * 5 + [(-9, 2)]], (-9, 1))
    nodes, cats = check(run, hist[None], sums[None], offsets, max_cat_to_onehot=7)  # a choice whose number is beyond the bins
    assert (nodes["default_left"][0], set_of(cats[0])) == (0, {5})


@each_runner
def test_a_split_of_numbers_that_gains_more_stays(run):
    hist, sums, offsets = lay_out([[(-6, 1), (4, 2), (2, 1)]], (0, 0))  # 27
    for number_gain, kind in [(27, NUMERIC), (26, CATEGORICAL), (28, NUMERIC)]:
        assert check(run, hist[None], sums[None], offsets, number_gain=number_gain)[0]["kind"][0] == kind


@each_runner
def test_nodes_as_deep_as_the_limit_and_features_left_out_are_not_split(run):
    hist, sums, offsets = laid_out(np.random.default_rng(1), [5, 9], 3)
    nodes, _, _ = find_sets_with(run, hist, sums, offsets, depth=[1, 2, 3], max_depth=2)
    assert (nodes["gain"] > NO_GAIN).tolist() == [True, False, False]
    for mask in ([[1, 0, 1]], [[1, 1, 0], [1, 0, 1], [0, 0, 0]]):
        check(run, hist, sums, offsets, mask=[*mask, mask[-1]] if len(mask) > 1 else mask)


@pytest.mark.sweep(1)
@settings(max_examples=12)
@given(
    st.integers(0, 2**32), st.integers(1, 3), st.lists(st.integers(1, 40), min_size=1, max_size=3), st.booleans(), SETTINGS,
    ANY_RULES,
)  # fmt: skip
@each_runner
def test_random_nodes_equal_the_cpu(run, seed, n_nodes, sizes, has_missing, settings, rules):
    rng = np.random.default_rng(seed)
    hist, sums, offsets = laid_out(rng, sizes, n_nodes, missing=(int(rng.integers(-9, 10)), 5) if has_missing else (0, 0))
    check(run, hist, sums, offsets, **settings, **rules)


@each_runner
@pytest.mark.parametrize("n", [31, 32, 33, 64, 130])
def test_more_categories_than_threads_equal_the_cpu(run, n):
    hist, sums, offsets = laid_out(np.random.default_rng(n), [n], 1, 2000, (300, 40))
    check(run, hist, sums, offsets, scales=(16.0, 8.0), n_sorted=1)


@gb.split_gain
def of_sets(gain, left_hess, right_hess, feature, reg_lambda):
    """Of most that a user's gain may see."""
    return gain * (1 + 0.25 * feature) + abs(left_hess - right_hess) * reg_lambda


@pytest.mark.slow
@each_runner
def test_a_users_gain_equals_the_cpu(run):
    hist, sums, offsets = laid_out(np.random.default_rng(6), [3, 12], 2, missing=(4, 3))
    own = check(run, hist, sums, offsets, gain=find_gain("of_sets", 1.0, 0.0, 0.0), cat_l2=2.0)[0]["gain"]
    assert (own != check(run, hist, sums, offsets, cat_l2=2.0)[0]["gain"]).all()
