"""kernels/category_vectors.py on CUDA: the same sets, gains and left sums, to the last bit, as the CPU kernel."""

import numpy as np
import pytest
from cuda_runners import each_runner, progress_of
from hypothesis import given, settings
from hypothesis import strategies as st
from test_category_splits import ANY_RULES, set_of, some_rules
from test_category_vectors import SETTINGS, find_vector_sets, lay_out, random_vectors

from gpuboost.kernels import category_vectors, splits
from gpuboost.kernels.category_splits import count_words
from gpuboost.kernels.structs import CATEGORICAL, NODE, NUMERIC, PENALTY

FRONTIER = 2  # nodes before those that wait for evaluation


def find_sets_with(
    run, hist, sums, offsets, *, mask=None, scales=None, depth=0, max_depth=0, n_sorted=2, reg_lambda=1.0, reg_alpha=0.0,
    max_delta_step=0.0, min_child_weight=0.0, **rules,
):  # fmt: skip
    """Adapter: as test_category_vectors.find_vector_sets, by the CUDA kernels. n_sorted : blocks that sort at once. The launches
    ask for a node more than there are."""
    hist, sums = np.asarray(hist, np.int64), np.asarray(sums, np.int64)
    (n_nodes, n_outputs, _), n_features, n = sums.shape, len(offsets) - 1, len(hist) + 1
    own, capacity = slice(FRONTIER, FRONTIER + n_nodes), FRONTIER + n
    nodes, (left_sums, all_sums) = np.zeros(capacity, NODE), (np.full((capacity, n_outputs, 2), value) for value in (-1, 77))
    nodes["slot"][own], nodes["kind"], nodes["depth"][own], all_sums[own] = np.arange(n_nodes)[::-1], NUMERIC, depth, sums
    n_categories = np.diff(offsets) - 1
    size = 2 ** int(max(n_categories.max() - 1, 0)).bit_length()
    cats = np.full((capacity, count_words(n_categories)), 0xA5A5A5A5, np.uint32)
    progress = progress_of(frontier=FRONTIER, n_nodes=FRONTIER + n_nodes)
    penalty = np.array([(reg_lambda, reg_alpha, max_delta_step, min_child_weight, 0.0)], PENALTY)
    gains, choices = np.full((n, n_features), 1e30), np.full((n, n_features), 7, np.int32)  # as a search of numbers left them
    features, n_scratch = np.arange(n_features, dtype=np.int32), category_vectors.scratch_size(size, n_outputs)
    scratch = np.zeros((n_sorted, size), np.int32), np.zeros((n_sorted, size)), np.full((n_sorted, n_scratch), np.nan)
    mask = np.zeros((0, n_features), np.uint8) if mask is None else np.asarray(mask, np.uint8)
    common, categorical = (np.ascontiguousarray(hist[::-1]), offsets, features), np.ones(n_features, np.uint8)
    scales = np.ones((n_outputs, 2)) if scales is None else np.array(scales, np.float64)
    of_round = scales, np.zeros(1, np.int32), penalty, some_rules(**rules)
    run(
        category_vectors.evaluate_category_vectors_kernel, 0, n, max_depth, progress, nodes, all_sums, *common, categorical, mask,
        *of_round, gains, choices, *scratch, blocks=n_sorted,
    )  # fmt: skip
    run(
        splits.choose_splits_kernel, 0, n, 0, progress, nodes, all_sums, left_sums, *common, categorical,
        np.zeros((0, offsets[-1]), np.uint8), gains, choices, warps=n,
    )  # fmt: skip
    run(
        category_vectors.list_category_vectors_kernel, 0, n, progress, nodes, all_sums, left_sums, cats, *common, categorical,
        *of_round, *scratch, blocks=n_sorted,
    )  # fmt: skip
    return nodes[own], left_sums[own], cats[own]


def check(run, hist, sums, offsets, *, n_sorted=2, **arguments):
    nodes, left_sums, cats = find_sets_with(run, hist, sums, offsets, n_sorted=n_sorted, **arguments)
    expected = find_vector_sets(hist, sums, offsets, **arguments)
    for field in ("gain", "kind"):
        np.testing.assert_array_equal(nodes[field], expected[0][field])
    is_set = expected[0]["kind"] == CATEGORICAL
    for field in ("feature", "bin", "default_left"):
        np.testing.assert_array_equal(nodes[field][is_set], expected[0][field][is_set])
    np.testing.assert_array_equal(left_sums[is_set], expected[1][is_set])
    np.testing.assert_array_equal(cats, expected[2])
    return nodes, cats


def laid_out(rng, sizes, n_nodes, n_outputs, largest=9, missing=0):
    """(hist, sums, offsets) of nodes whose features all sum to the same."""
    hists, sums = [], []
    for _ in range(n_nodes):
        features = [random_vectors(rng, n_outputs, n, largest) for n in sizes]
        for own in features[1:]:
            own[:, 0] += features[0].sum(axis=1) - own.sum(axis=1)
        most = max(0, -min(int(own[:, 0, 1].min()) for own in features))
        for own in features:
            own[:, 0, 1] += most
        hists.append(np.concatenate([lay_out(own)[0][0] for own in features], axis=1))
        sums.append(features[0].sum(axis=1) + missing)
    return np.stack(hists), np.stack(sums), np.cumsum([0, *(n + 1 for n in sizes)]).astype(np.int32)


@each_runner
def test_sets_by_hand(run):
    first, second = [(-2, 1), (2, 1), (-9, 1), (9, 1)], [(1, 1), (-1, 1), (-9, 1), (9, 1)]
    nodes, cats = check(run, *lay_out([first, second]))
    assert set_of(cats[0]) == {0, 2} and nodes["gain"][0] == 4 * 11**2 / 3 / 2 + 2 * 8**2 / 3
    nodes, cats = check(run, *lay_out([[(-6, 1), (5, 2), (4, 1)]] * 2, [(-3, 1)] * 2))
    assert (nodes["default_left"][0], set_of(cats[0])) == (0, {0})


@each_runner
def test_nodes_as_deep_as_the_limit_and_features_left_out_are_not_split(run):
    hist, sums, offsets = laid_out(np.random.default_rng(1), [5, 9], 3, 2)
    nodes, _, _ = find_sets_with(run, hist, sums, offsets, depth=[1, 2, 3], max_depth=2)
    assert (nodes["gain"] > -np.inf).tolist() == [True, False, False]
    check(run, hist, sums, offsets, mask=[[0, 1]])


@pytest.mark.sweep(1)
@settings(max_examples=10)
@given(
    st.integers(0, 2**32), st.integers(1, 2), st.integers(2, 4), st.lists(st.integers(1, 40), min_size=1, max_size=2),
    st.booleans(), SETTINGS, ANY_RULES,
)  # fmt: skip
@each_runner
def test_random_nodes_equal_the_cpu(run, seed, n_nodes, n_outputs, sizes, has_missing, settings, rules):
    rng = np.random.default_rng(seed)
    missing = np.stack([rng.integers(-9, 10, n_outputs), rng.integers(1, 9, n_outputs)], axis=1) if has_missing else 0
    check(run, *laid_out(rng, sizes, n_nodes, n_outputs, missing=missing), **settings, **rules)


@each_runner
@pytest.mark.parametrize("n, n_outputs", [(33, 2), (130, 3), (5, 35)])
def test_more_categories_or_outputs_than_threads_equal_the_cpu(run, n, n_outputs):
    rng = np.random.default_rng(n)
    scales = 2.0 ** rng.integers(-3, 9, (n_outputs, 2))
    missing = np.tile([[300, 40]], (n_outputs, 1))
    check(run, *laid_out(rng, [n], 1, n_outputs, 2000, missing), scales=scales, n_sorted=1)
