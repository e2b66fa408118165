"""kernels/splits.py on CUDA: the same splits, gains and left sums, to the last bit, as evaluate_splits_cpu."""

import numpy as np
import pytest
from cuda_runners import each_runner, progress_of
from hypothesis import given, settings
from hypothesis import strategies as st
from test_splits import FEATURES, PENALTIES, find_splits, random_histograms, some_columns, with_bounds

import gpuboost as gb
from gpuboost.backend.plans import BUILT_IN_GAIN
from gpuboost.formulas.split_gain import find_gain
from gpuboost.kernels import splits
from gpuboost.kernels.structs import NO_GAIN, NODE, PENALTY

UNTOUCHED = 77
FRONTIER = 2  # nodes before those that wait for evaluation


def find_splits_with(
    run, hist, sums, n_bins, *, scales=(1.0, 1.0), features=None, monotone=(), mask=None, lower=-np.inf, upper=np.inf,
    max_depth=0, depth=0, batch=3, proposed=None, by_tree=0, first_output=(0,), tree=0,
    reg_lambda=1.0, reg_alpha=0.0, max_delta_step=0.0, min_child_weight=0.0, bounded=None,
    gain=BUILT_IN_GAIN,
):  # fmt: skip
    """Adapter: as test_splits.find_splits, by the CUDA kernels.

    scales : of gradient and hessian; or float64 (n_outputs, 2). bounded : which kernel; None: the one that the bounds need.
    Where the plain kernel can be asked as well, every feature's gain and choice must be the same.
    batch : nodes of one launch. The last launch asks for a whole batch, also where fewer nodes are left; what lies beyond them
    is checked to stay as it was.
    """
    hist, sums = np.asarray(hist, np.int64), np.asarray(sums, np.int64)
    n_nodes, n_outputs = sums.shape[:2]
    own, capacity = slice(FRONTIER, FRONTIER + n_nodes), FRONTIER + n_nodes + batch
    offsets = np.cumsum([0, *n_bins]).astype(np.int32)
    nodes, left_sums = np.zeros(capacity, NODE), np.full((capacity, n_outputs, 2), -1, np.int64)
    nodes["gain"] = UNTOUCHED
    nodes["slot"][own] = np.arange(n_nodes)[::-1]
    nodes["lower"][own], nodes["upper"][own], nodes["depth"][own], nodes["tree"][own] = lower, upper, depth, tree
    sums = with_bounds(sums, monotone, lower, upper)
    all_sums = np.full((capacity, *sums.shape[1:]), UNTOUCHED, np.int64)
    all_sums[own] = sums
    hist = np.ascontiguousarray(hist[::-1])
    features = np.asarray(range(len(n_bins)) if features is None else features, np.int32)
    monotone = np.array(monotone, np.int8)
    mask = np.zeros((0, len(n_bins)), np.uint8) if mask is None else np.asarray(mask, np.uint8)
    proposed = np.zeros((0, offsets[-1]), np.uint8) if proposed is None else np.asarray(proposed, np.uint8)
    proposed = proposed if by_tree else np.ascontiguousarray(proposed[::-1])  # by slot
    scales = np.ascontiguousarray(np.broadcast_to(np.float64(scales), (n_outputs + max(first_output), 2)))
    penalty = np.array([(reg_lambda, reg_alpha, max_delta_step, min_child_weight, 0.0)], PENALTY)
    progress = progress_of(frontier=FRONTIER, n_nodes=FRONTIER + n_nodes)
    first_output = np.array(first_output, np.int32)
    needs_bounds = max_delta_step > 0 or monotone.any() or np.max(lower) > -np.inf or np.min(upper) < np.inf
    bounded = needs_bounds if bounded is None else bounded
    is_plain = n_outputs == 1 and not needs_bounds and len(proposed) == 0 and gain is BUILT_IN_GAIN
    evaluate = splits.evaluate_splits_kernel(bool(bounded), gain.function, sums.shape[2] > 2)
    choose = splits.choose_splits_kernel
    for begin in range(0, n_nodes, batch):
        shape = batch, len(n_bins) + 2  # they may be wider than the features are many
        gains, choices = np.full(shape, np.inf), np.full(shape, -1, np.int32)
        run(
            evaluate, begin, batch, max_depth, by_tree, progress, nodes, all_sums, hist, offsets, features, monotone, mask,
            proposed, scales, first_output, penalty, np.array(gain.parameters, np.float64), gains, choices,
            warps=batch * len(n_bins), shared=evaluate.block // 32 * n_outputs * splits.CARRY_BYTES,
        )  # fmt: skip
        if is_plain:
            others = gains.copy(), choices.copy()
            gains[:, : len(n_bins)], choices[:, : len(n_bins)] = UNTOUCHED, UNTOUCHED
            run(
                splits.evaluate_plain_splits_kernel, begin, batch, max_depth, progress, nodes, all_sums, hist, offsets, mask,
                scales, first_output, penalty, gains, choices, warps=batch * len(n_bins),
            )  # fmt: skip
            np.testing.assert_array_equal(gains, others[0])
            np.testing.assert_array_equal(choices, others[1])
        run(
            choose, begin, batch, by_tree, progress, nodes, all_sums, left_sums, hist, offsets, features, np.zeros(0, np.uint8),
            proposed, gains, choices, warps=batch,
        )  # fmt: skip
    for outside in (slice(0, FRONTIER), slice(FRONTIER + n_nodes, None)):
        assert (nodes["gain"][outside] == UNTOUCHED).all() and (left_sums[outside] == -1).all()
    return nodes[own], left_sums[own]


def assert_same_splits(actual, expected):
    (nodes, left_sums), (expected_nodes, expected_left) = actual, expected
    np.testing.assert_array_equal(nodes["gain"], expected_nodes["gain"])
    is_split = nodes["gain"] > NO_GAIN
    for field in ("feature", "bin", "default_left", "kind"):
        np.testing.assert_array_equal(nodes[field][is_split], expected_nodes[field][is_split])
    np.testing.assert_array_equal(left_sums, expected_left)  # untouched where there is no split


def check(run, hist, sums, n_bins, *, batch=None, **arguments):
    actual = find_splits_with(run, hist, sums, n_bins, batch=batch or len(sums) + 1, **arguments)
    assert_same_splits(actual, find_splits(hist, sums, n_bins, **arguments))
    return actual[0]


def one_feature(grads, hess):
    return np.stack([grads, hess], axis=-1)[None, None]


# ---- by hand


@each_runner
@pytest.mark.parametrize("missing, gain, split_bin, default_left, left", [
    ((0, 0), 30, 0, 1, [-6, 2]),  # λ = 1: left (−6, 2): 36/3, right (6, 1): 36/2, parent (0, 3): 0
    ((6, 1), 36 / 3 + 144 / 3 - 36 / 5, 0, 0, [-6, 2]),
    ((-6, 1), 144 / 4 + 36 / 2 - 36 / 5, 0, 1, [-12, 3]),
    ((0, 1), 36 / 4 + 36 / 2, 0, 1, [-6, 3]),
])  # fmt: skip
def test_two_bins_by_hand(run, missing, gain, split_bin, default_left, left):
    hist = one_feature([-6, 6], [2, 1])
    nodes, left_sums = find_splits_with(run, hist, hist.sum(axis=2) + np.array(missing), [2])
    assert nodes[["gain", "bin", "default_left"]][0].tolist() == (gain, split_bin, default_left)
    assert left_sums[0].tolist() == [left]


@each_runner
def test_all_present_against_missing_is_the_last_bin_with_missing_right(run):
    nodes, left_sums = find_splits_with(run, one_feature([3, 3], [1, 1]), [[[-3, 4]]], [2])
    assert nodes[["gain", "bin", "default_left"]][0].tolist() == (36 / 3 + 81 / 3 - 9 / 5, 1, 0)
    assert left_sums[0].tolist() == [[6, 2]]


@each_runner
def test_missing_alone_goes_right_whichever_bins_are_empty(run):
    hist = one_feature([0, 0, 3, 3, 0], [0, 0, 1, 1, 0])
    nodes = check(run, hist, [[[-3, 4]]], [5])
    assert nodes[["gain", "bin", "default_left"]][0].tolist() == (36 / 3 + 81 / 3 - 9 / 5, 3, 0)


@each_runner
@pytest.mark.parametrize("missing", [(0, 0), (-9, 2)])
def test_one_bin(run, missing):
    hist = one_feature([5], [3])
    nodes = check(run, hist, hist.sum(axis=2) + np.array(missing), [1])
    assert (nodes["gain"][0] > NO_GAIN) == any(missing)


@each_runner
def test_the_left_child_of_many_bins_has_the_sums_of_all_of_them(run):
    grads = np.where(np.arange(256) < 200, -1, 1)
    nodes = check(run, one_feature(grads, np.ones(256, np.int64)), [[[grads.sum() + 50, 266]]], [256])
    assert nodes[["bin", "default_left"]][0].tolist() == (199, 0)


# ---- ties


@each_runner
def test_ties_go_to_the_lower_feature(run):
    n_features = 40  # more than a warp has lanes
    hist = np.array([[-6, 2], [6, 1]] * n_features)[None, None]
    for first in (0, 32):
        mask = [[int(feature >= first) for feature in range(n_features)]]
        nodes, _ = find_splits_with(run, hist, [[[0, 3]]], [2] * n_features, mask=mask, batch=1)
        assert nodes["feature"][0] == first and nodes["gain"][0] == 30


@each_runner
@pytest.mark.parametrize("first, last", [(0, 31), (5, 40), (33, 69)])
def test_ties_go_to_the_lower_bin_in_whichever_lane_or_tile_it_is(run, first, last):
    grads, hess = np.zeros(70, np.int64), np.zeros(70, np.int64)
    grads[first], grads[last], hess[first], hess[last] = -6, 6, 2, 1
    assert check(run, one_feature(grads, hess), [[[0, 3]]], [70])["bin"][0] == first


@each_runner
def test_ties_go_to_the_lower_bin_before_they_go_to_missing_left(run):
    # bin 0, missing right: (−6, 2) | (6, 4)        bin 1, missing left: (−6, 4) | (6, 2)
    nodes = check(run, one_feature([-6, 0, 6], [2, 1, 2]), [[[0, 6]]], [3])
    assert nodes[["bin", "default_left"]][0].tolist() == (0, 0)
    nodes = check(run, one_feature([-6, 6], [2, 2]), [[[0, 6]]], [2])
    assert nodes[["bin", "default_left"]][0].tolist() == (0, 1)


@pytest.mark.sweep(8)
@each_runner
@pytest.mark.parametrize("gap", [1, 31, 32, 70])
@pytest.mark.parametrize("missing, at_the_end", [((0, 0), 0), ((6, 1), 0), ((-6, 1), 1)])
def test_the_gap_between_a_nodes_values_goes_to_the_side_of_its_missing_rows(run, gap, missing, at_the_end):
    n_bins, hist = [2, gap + 2], np.zeros((1, 1, gap + 4, 2), np.int64)
    hist[0, 0, 2], hist[0, 0, gap + 3] = (-6, 2), (6, 1)
    sums = hist.sum(axis=2) + missing
    assert check(run, hist, sums, n_bins)["bin"][0] == gap * at_the_end
    for proposed in (np.arange(gap + 4) % 3 == 2, np.arange(gap + 4) == 2, np.arange(gap + 4) == gap + 1):
        check(run, hist, sums, n_bins, proposed=proposed[None])


@pytest.mark.sweep(2)
@each_runner
@pytest.mark.parametrize("size", [1, 2])
def test_gaps_of_random_nodes_equal_the_cpus(run, size):
    """Few rows in many bins, some of them without weight; of two outputs a gap is empty in both."""
    n_bins = [90, 40]
    for n_outputs in (1, 2):
        hist, sums = random_histograms(np.random.default_rng(n_outputs), 12, n_outputs, n_bins, 12, 0.4, size)
        check(run, hist, sums, n_bins, reg_lambda=0.5)
        check(run, hist, sums, n_bins, proposed=np.random.default_rng(2).random((12, 130)) < 0.3)


@each_runner
def test_gains_of_the_same_16_bits_are_a_tie(run):
    # λ = 1: bin 0 gains 200000² · 5/6, bin 1 gains 200001² · 5/6
    nodes = check(run, one_feature([-200_000, -1, 200_001], [2, 0, 1]), [[[0, 3]]], [3])
    assert nodes[["gain", "bin"]][0].tolist() == (200_000**2 / 3 + 200_000**2 / 2, 0)


# ---- which nodes and features


@each_runner
def test_features_may_be_left_out_for_all_nodes_or_for_one(run):
    hist = np.array([[[[-60, 2], [60, 1], [-6, 2], [6, 1]]]] * 2)
    sums = [[[0, 3]]] * 2
    for mask, features in [([[0, 1]], [1, 1]), ([[0, 1], [1, 0]], [1, 0]), ([[1, 1], [0, 1]], [0, 1])]:
        assert check(run, hist, sums, [2, 2], mask=mask)["feature"].tolist() == features
    assert check(run, hist, sums, [2, 2], mask=[[0, 0]])["gain"].tolist() == [NO_GAIN] * 2


@each_runner
@pytest.mark.parametrize("features", FEATURES)
def test_histograms_may_hold_only_some_features(run, features):
    n_bins = [4, 3, 9, 2, 5, 1, 6, 4]
    hist, sums = random_histograms(np.random.default_rng(7), 3, 2, n_bins, 50, 0.2, 3)
    some, some_bins = some_columns(hist, n_bins, features)
    for mask in (None, np.random.default_rng(1).integers(0, 2, (3, len(features)))):
        nodes = check(run, some, sums, some_bins, features=features, mask=mask)
        assert set(nodes["feature"][nodes["gain"] > NO_GAIN]) <= set(features)


@each_runner
def test_only_proposed_bins_are_split_at_and_all_present_against_missing(run):
    rng = np.random.default_rng(6)
    n_bins = [5, 40, 1]
    hist, sums = random_histograms(rng, 3, 1, n_bins, 60, 0.3, 100)
    for proposed in (np.arange(46) % 3 == np.arange(3)[:, None], np.zeros((3, 46))):  # by no node but its own
        nodes = check(run, hist, sums, n_bins, proposed=proposed)
        by_tree, _ = find_splits_with(run, hist, sums, n_bins, proposed=proposed[[2, 0, 1]], by_tree=1, tree=[1, 2, 0],
                                      first_output=[0, 0, 0])  # fmt: skip
        np.testing.assert_array_equal(by_tree[["gain", "feature", "bin"]], nodes[["gain", "feature", "bin"]])


@each_runner
def test_nodes_as_deep_as_the_limit_are_not_split(run):
    hist, sums = np.concatenate([one_feature([-6, 6], [2, 1])] * 3), [[[0, 3]]] * 3
    for max_depth, gains in [(0, [30, 30, 30]), (3, [30, 30, NO_GAIN]), (2, [30, NO_GAIN, NO_GAIN])]:
        nodes, left_sums = find_splits_with(run, hist, sums, [2], max_depth=max_depth, depth=[1, 2, 3])
        assert nodes["gain"].tolist() == gains
        assert left_sums[:, 0].tolist() == [[-6, 2] if gain == 30 else [-1, -1] for gain in gains]


@each_runner
@pytest.mark.parametrize("batch", [1, 2])
def test_a_level_may_be_evaluated_in_batches(run, batch):
    n_bins = [4, 3]
    hist, sums = random_histograms(np.random.default_rng(1), 5, 1, n_bins, 40, 0.2, 100)
    check(run, hist, sums, n_bins, batch=batch)


@each_runner
def test_every_tree_reads_the_scales_of_its_own_outputs(run):
    n_bins, scales = [4, 3], np.array([[1.0, 1.0], [4.0, 0.5], [64.0, 2.0], [0.25, 8.0]])
    hist, sums = random_histograms(np.random.default_rng(2), 4, 2, n_bins, 40, 0.2, 100)
    nodes, left_sums = find_splits_with(run, hist, sums, n_bins, scales=scales, first_output=[0, 2], tree=[0, 1, 1, 0])
    for node, first in enumerate([0, 2, 2, 0]):
        own = slice(node, node + 1)
        expected = find_splits(hist[own], sums[own], n_bins, scales=scales[first : first + 2])
        assert_same_splits((nodes[own], left_sums[own]), expected)


@each_runner
def test_constraints_are_by_feature_whichever_the_histograms_hold(run):
    hist = np.array([[-6, 2], [6, 1], [4, 2], [-4, 1]])[None, None]  # weights 2 and −3; −4/3 and 2
    for signs, feature in [((0, 0), 3), ((1, 0), 7), ((-1, 1), 3), ((1, -1), None)]:
        monotone = np.zeros(9, np.int8)
        monotone[[3, 7]] = signs
        node = check(run, hist, [[[0, 3]]], [2, 2], features=[3, 7], monotone=monotone)[0]
        assert (node["feature"] if node["gain"] > NO_GAIN else None) == feature


# ---- against the CPU


@each_runner
def test_both_kernels_find_the_same_splits_where_no_bound_holds(run):
    n_bins = [5, 40]
    hist, sums = random_histograms(np.random.default_rng(3), 3, 1, n_bins, 60, 0.2, 2)
    found = [find_splits_with(run, hist, sums, n_bins, bounded=bounded, reg_alpha=1.5) for bounded in (False, True)]
    for part in zip(*found):
        np.testing.assert_array_equal(*part)


@each_runner
def test_bounds_of_each_node_equal_the_cpu(run):
    n_bins = [3, 5]
    hist, sums = random_histograms(np.random.default_rng(4), 4, 1, n_bins, 60, 0.2, 100)
    check(run, hist, sums, n_bins, lower=[-np.inf, -0.5, 0.0, -1e9], upper=[0.25, np.inf, 0.0, 1e9])


@pytest.mark.sweep(1)
@settings(max_examples=15)
@given(
    st.integers(0, 2**32), st.integers(1, 2), st.integers(1, 2), st.lists(st.integers(1, 5), min_size=1, max_size=4),
    st.integers(0, 30), st.sampled_from([0.0, 0.3, 1.0]), st.sampled_from([1, 2, 1000]),
    st.sampled_from([(1.0, 1.0), (4.0, 0.5)]), PENALTIES,
)  # fmt: skip
@each_runner
def test_random_nodes_equal_the_cpu(run, seed, n_nodes, n_outputs, n_bins, n_rows, missing, size, scales, penalties):
    hist, sums = random_histograms(np.random.default_rng(seed), n_nodes, n_outputs, n_bins, n_rows, missing, size)
    for monotone in ((), np.random.default_rng(seed + 2).integers(-1, 2, len(n_bins))):
        check(run, hist, sums, n_bins, scales=scales, monotone=monotone, **penalties)


@pytest.mark.sweep(12)
@each_runner
@pytest.mark.parametrize("n_bins, n_outputs", [
    ([31, 32], 1), ([33, 64], 2), ([65, 2], 1), ([256], 1), ([3] * 33, 1), ([127, 128, 129, 1, 260], 1),
])  # fmt: skip
@pytest.mark.parametrize("missing", [0.0, 0.1])
def test_more_bins_and_features_than_lanes_equal_the_cpu(run, n_bins, n_outputs, missing):
    hist, sums = random_histograms(np.random.default_rng(25), 1, n_outputs, n_bins, 3000, missing, 20000)
    check(run, hist, sums, n_bins, batch=1, scales=(2.0**14, 2.0**14))


@gb.split_gain
def of_many_arguments(gain, left_grad, left_hess, right_weight, node_hess, feature, max_delta_step, tilt=0.5):
    """Made of all kinds of what a user's gain may see."""
    return gain * (1 + tilt * feature) + abs(left_grad) / (1 + left_hess) + right_weight**2 / node_hess - max_delta_step


@pytest.mark.slow
@each_runner
@pytest.mark.parametrize(
    "n_outputs, bounds", [(1, {}), (2, {}), (1, {"max_delta_step": 0.5, "lower": -0.25, "monotone": [1, -1]})]
)
def test_a_users_gain_equals_the_cpu(run, n_outputs, bounds):
    gain = find_gain("of_many_arguments@tilt=0.25", 1.0, 0.0, bounds.get("max_delta_step", 0.0))
    hist, sums = random_histograms(np.random.default_rng(6), 2, n_outputs, [5, 40], 60, 0.2, 100)
    nodes = check(run, hist, sums, [5, 40], gain=gain, scales=(4.0, 0.5), **bounds)
    assert (nodes["gain"] > NO_GAIN).any()
    assert (nodes["gain"] != check(run, hist, sums, [5, 40], scales=(4.0, 0.5), **bounds)["gain"]).any()
