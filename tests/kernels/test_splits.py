"""kernels/splits.py: the best split of a node, against trying every candidate in Python."""

import math
from itertools import takewhile

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gpuboost.backend.contract import TrainingRows
from gpuboost.backend.cpu import CpuBackend
from gpuboost.backend.plans import BUILT_IN_GAIN, ColumnDraw, FrontierBatch, Penalty, Round, TreePlan
from gpuboost.binned.cuts import SENTINEL, Cuts
from gpuboost.binned.matrix import BinnedMatrix
from gpuboost.binned.pages import DensePage, ResidentPages
from gpuboost.kernels.structs import NO_GAIN, NODE
from gpuboost.params import Params


def with_bounds(sums, monotone, lower, upper):
    """The sums of nodes as they lie beside them: of several outputs under constraints, with bounds behind them, (k + 1) times as
    far for output k as for the first."""
    if sums.shape[1] == 1 or not np.any(monotone):
        return sums
    times = np.arange(1, sums.shape[1] + 1)
    bounds = np.stack(np.broadcast_arrays(np.multiply.outer(lower, times), np.multiply.outer(upper, times)), axis=-1)
    bits = np.ascontiguousarray(np.broadcast_to(bounds, sums.shape), np.float64).view(np.int64)
    return np.concatenate([sums, bits], axis=-1)


def find_splits(hist, sums, n_bins, *, scales=(1.0, 1.0), features=None, monotone=(), mask=None, proposed=None,
                lower=-np.inf, upper=np.inf, n_threads=1, gain=BUILT_IN_GAIN, **settings):  # fmt: skip
    """Adapter: (nodes, left_sums) after evaluating all nodes.

    hist : int64 (n_nodes, n_outputs, ≥ total_bins, 2). sums : int64 (n_nodes, n_outputs, 2). scales : of gradient and hessian,
        of all outputs or each.
    features : whose histograms they are; None: all there are. monotone : signs of the constraints, by feature.
    """
    hist, sums = np.asarray(hist, np.int64), np.asarray(sums, np.int64)
    n_nodes, n_outputs = sums.shape[:2]
    offsets = np.cumsum([0, *n_bins]).astype(np.int32)
    cuts = Cuts(np.full(offsets[-1], SENTINEL), offsets, np.zeros(len(n_bins), bool), 256)
    width = -(-len(n_bins) // 8) * 8
    page = DensePage(np.zeros((len(n_bins), 1), np.uint16), np.zeros((1, width), np.uint16))
    rows = TrainingRows(BinnedMatrix(cuts, ResidentPages((page,))), np.zeros((1, 1), np.float32), np.zeros(0, np.float32),
                        np.zeros((n_outputs, 1), np.float32), 1)  # fmt: skip
    params = Params(**{"min_child_weight": 0.0, "histogram_memory": 2**20, "monotone_constraints": tuple(monotone), **settings})
    backend = CpuBackend(n_threads)
    training = backend.start_training(rows, params, 1, n_outputs)
    trees, arrays = training.trees, training.trees.arrays
    features = np.arange(len(n_bins), dtype=np.int32) if features is None else np.asarray(features, np.int32)
    penalty = Penalty(params.reg_lambda, params.reg_alpha, params.max_delta_step, params.min_child_weight, 0.0)
    drawn = ColumnDraw(features, offsets)
    training.start_round(Round(0, 0, 0.3, (TreePlan(0, n_outputs, None, drawn, penalty, gain),)))
    arrays.nodes, arrays.left_sums, trees._hist = np.zeros(n_nodes, NODE), np.full_like(sums, -1), hist
    arrays.sums = with_bounds(sums, monotone, lower, upper)
    arrays.nodes["slot"], arrays.nodes["lower"], arrays.nodes["upper"] = np.arange(n_nodes), lower, upper
    trees._frontier, trees._columns, trees._candidates = np.arange(n_nodes, dtype=np.int32), drawn, None
    training.gradients.scales = np.broadcast_to(np.float64(scales), (n_outputs, 2)).copy()
    if mask is not None:
        trees._feature_mask = lambda *_: np.asarray(mask, np.uint8)
    if proposed is not None:
        trees._proposed = np.asarray(proposed, np.uint8)
    trees.evaluate_splits(FrontierBatch(0, n_nodes, 0, False))
    return arrays.nodes, arrays.left_sums


def one_feature(grads, hess, missing=(0, 0), **settings):
    """(gain, bin, default_left) of one feature with one output."""
    hist = np.stack([grads, hess], axis=-1)[None, None]
    node = find_splits(hist, hist.sum(axis=2) + np.array(missing), [len(grads)], **settings)[0][0]
    return node["gain"], node["bin"], node["default_left"]


# ---- by hand


def test_two_bins_by_hand():
    # λ = 1: left (−6, 2): 36/3 = 12, right (6, 1): 36/2 = 18, parent (0, 3): 0
    assert one_feature([-6, 6], [2, 1]) == (30, 0, 1)


def test_scales_turn_integers_into_floats():
    # as above with G = q/4 and H = q/2
    assert one_feature([-24, 24], [4, 2], scales=(4.0, 2.0)) == (30, 0, 1)


def test_missing_rows_are_tried_on_both_sides():
    # missing (6, 1): right gives (−6, 2) against (12, 2), left gives (0, 3) against (6, 1)
    gain, split_bin, default_left = one_feature([-6, 6], [2, 1], missing=(6, 1))
    assert (split_bin, default_left) == (0, 0) and gain == 36 / 3 + 144 / 3 - 36 / 5
    gain, split_bin, default_left = one_feature([-6, 6], [2, 1], missing=(-6, 1))
    assert (split_bin, default_left) == (0, 1) and gain == 144 / 4 + 36 / 2 - 36 / 5


def test_all_present_against_missing_is_the_last_bin_with_missing_right():
    assert one_feature([3, 3], [1, 1], missing=(-9, 2)) == (36 / 3 + 81 / 3 - 9 / 5, 1, 0)


@pytest.mark.parametrize("first_bins", [[], [(0, 0)], [(0, 0)] * 3])
def test_missing_alone_goes_right_whichever_bins_are_empty(first_bins):
    """Missing (−9, 2) against present (6, 2) gains 36/3 + 81/3 − 9/5, and an empty first bin does not offer it mirrored."""
    grads, hess = np.array([*first_bins, (3, 1), (3, 1), (0, 0)]).T
    assert one_feature(grads, hess, missing=(-9, 2)) == (36 / 3 + 81 / 3 - 9 / 5, len(first_bins) + 1, 0)


def test_the_gains_of_outputs_add_up_and_one_without_hessian_adds_none():
    # first output (−6, 2) | (6, 1): 36/3 + 36/2; second (−9, 0) | (9, 3): 81/4, less 0 and 0/4 of the node
    hist = np.array([[[[-6, 2], [6, 1]], [[-9, 0], [9, 3]]]])
    nodes, left_sums = find_splits(hist, hist.sum(axis=2), [2])
    assert nodes["gain"].tolist() == [36 / 3 + 36 / 2 + 81 / 4] and left_sums.tolist() == [[[-6, 2], [-9, 0]]]


@pytest.mark.parametrize("min_child_weight, is_split", [(1.0, True), (1.25, False)])
def test_a_child_weighs_what_its_outputs_do_on_average(min_child_weight, is_split):
    hist = np.array([[[[-6, 2], [6, 1]], [[-9, 0], [9, 3]]]])
    nodes, _ = find_splits(hist, hist.sum(axis=2), [2], min_child_weight=min_child_weight)
    assert (nodes["gain"] > NO_GAIN).tolist() == [is_split]


def test_the_left_sums_are_those_of_the_left_child():
    hist = np.array([[[[-6, 2], [-1, 1], [9, 4]]]])
    nodes, left = find_splits(hist, [[[6, 12]]], [3])  # missing (4, 5)
    assert nodes[0]["bin"] == 1 and nodes[0]["default_left"] == 0 and left[0].tolist() == [[-7, 3]]
    nodes, left = find_splits(hist, [[[-10, 12]]], [3])  # missing (−12, 5)
    assert nodes[0]["bin"] == 1 and nodes[0]["default_left"] == 1 and left[0].tolist() == [[-19, 8]]


def test_one_bin_without_missing_rows_has_no_split():
    assert one_feature([5], [3])[0] == NO_GAIN


def test_alpha_shrinks_and_max_delta_step_limits():
    # α = 2: left |−6| − 2 = 4: 16/3, right 16/2, parent 0
    assert one_feature([-6, 6], [2, 1], reg_alpha=2.0)[0] == 16 / 3 + 16 / 2
    # |w| ≤ 1: −(2·G·w + (H + λ)·w²): left −(−12 + 3) = 9, right −(−12 + 2) = 10
    assert one_feature([-6, 6], [2, 1], max_delta_step=1.0)[0] == 19


# ---- what is no candidate


@pytest.mark.parametrize("min_child_weight, is_split", [(1.0, True), (1.0000001, False)])
def test_min_child_weight_is_the_least_hessian_of_a_child(min_child_weight, is_split):
    gain, _, _ = one_feature([-6, 6], [4, 2], scales=(1.0, 2.0), min_child_weight=min_child_weight)
    assert gain == (36 / 3 + 36 / 2 if is_split else NO_GAIN)


@pytest.mark.parametrize("reg_lambda", [0.0, 1.0])
def test_a_child_without_integer_hessian_is_no_candidate(reg_lambda):
    # the best gain would cut off bin 0, whose H is 0
    gain, split_bin, _ = one_feature([-100, 1, 2], [0, 5, 5], reg_lambda=reg_lambda)
    assert split_bin == 1 and gain > 0
    assert one_feature([-100, 1], [0, 5], reg_lambda=reg_lambda)[0] == NO_GAIN
    assert one_feature([-100, 1], [5, 0], reg_lambda=reg_lambda)[0] == NO_GAIN
    assert one_feature([3, 3], [0, 0], missing=(-9, 2), reg_lambda=reg_lambda)[0] == NO_GAIN


@pytest.mark.parametrize("grad, expected", [(2, NO_GAIN), (4, 2.0**-18)])
def test_a_gain_of_at_most_1e_6_is_none(grad, expected):
    # λ = 0, H = ½ on either side: gain = 4·(grad/2¹²)², that is 2⁻²⁰ < 1e-6 or 2⁻¹⁸
    assert one_feature([-grad, grad], [1, 1], scales=(2.0**12, 2.0), reg_lambda=0.0)[0] == expected


def test_a_pure_node_with_large_gradients_is_not_cut():
    """Its gains are 0, but for the rounding of three terms that are 10¹² times the smallest gain."""
    grads = np.array([1, 3, 7, 11, 13]) * 30011
    hess = np.array([1, 3, 7, 11, 13])
    assert one_feature(grads, hess, reg_lambda=0.0, scales=(2.0**-12, 1.0))[0] == NO_GAIN


def test_masked_features_are_left_out():
    hist = np.array([[-6, 2], [6, 1], [-1, 2], [1, 1]])[None, None]
    sums = [[[0, 3]]]
    assert find_splits(hist, sums, [2, 2])[0]["feature"].tolist() == [0]
    assert find_splits(hist, sums, [2, 2], mask=[[0, 1]])[0]["feature"].tolist() == [1]
    assert find_splits(hist, sums, [2, 2], mask=[[0, 0]])[0]["gain"].tolist() == [NO_GAIN]
    both = find_splits(np.concatenate([hist, hist]), sums * 2, [2, 2], mask=[[0, 1], [1, 0]])[0]
    assert both["feature"].tolist() == [1, 0], "a mask per node"


def some_columns(hist, n_bins, features):
    """(histograms of these features alone, with a few bins after them that are not to be read, their numbers of bins)."""
    ends = np.cumsum(n_bins)
    own = [hist[:, :, ends[f] - n_bins[f] : ends[f]] for f in features]
    return np.concatenate([*own, np.full((*hist.shape[:2], 5, 2), 10**6)], axis=2), [n_bins[f] for f in features]


FEATURES = [[1, 4, 6], [0, 1, 2, 3, 5, 6, 7], [7]]


@pytest.mark.parametrize("features", FEATURES)
def test_histograms_may_hold_only_some_features(features):
    """The split is that of all histograms where the mask leaves the other features out."""
    n_bins = [4, 3, 9, 2, 5, 1, 6, 4]
    hist, sums = random_histograms(np.random.default_rng(7), 3, 2, n_bins, 50, 0.2, 3)
    some, some_bins = some_columns(hist, n_bins, features)
    for mask in (np.ones((1, 8)), np.random.default_rng(1).integers(0, 2, (3, 8))):
        only = mask * np.isin(np.arange(8), features)
        expected = find_splits(hist, sums, n_bins, mask=only)
        for own in [mask[:, features]] + [None] * bool(mask.all()):
            found = find_splits(some, sums, some_bins, features=features, mask=own)
            for a, b in zip(found, expected):
                np.testing.assert_array_equal(a, b)


def test_bins_that_are_not_proposed_are_left_out():
    hist = np.array([[-6, 2], [6, 1], [-9, 2], [9, 1]])[None, None]
    best = lambda *proposed: find_splits(hist, [[[0, 6]]], [4], proposed=[proposed])[0][0][["gain", "bin"]].tolist()
    assert best(1, 1, 1, 1) == best(0, 0, 1, 0) == (81 / 6 + 81 / 2, 2)  # (−9, 5) | (9, 1)
    assert best(1, 1, 0, 1) == best(1, 0, 0, 0) == (36 / 3 + 36 / 5, 0)
    assert best(0, 0, 0, 0) == best(0, 1, 0, 0) == (NO_GAIN, 0)  # (0, 3) | (0, 3) gains nothing


def test_all_present_against_missing_needs_no_proposal():
    nodes, left_sums = find_splits([[[[3, 1], [3, 1]]]], [[[-3, 4]]], [2], proposed=[[0, 0]])
    assert nodes[["bin", "default_left"]][0].tolist() == (1, 0) and left_sums.tolist() == [[[6, 2]]]


def test_every_node_has_its_own_proposals():
    hist = np.array([[-6, 2], [0, 2], [6, 1]])[None, None]
    nodes, left_sums = find_splits(np.concatenate([hist] * 2), [[[0, 5]]] * 2, [3], proposed=[[0, 1, 0], [1, 0, 0]])
    assert nodes["bin"].tolist() == [1, 0] and left_sums[:, 0].tolist() == [[-6, 4], [-6, 2]]


@pytest.mark.parametrize("sign, gain, split_bin", [
    (0, 36 / 3 + 36 / 5, 0),  # (−6, 2) | (6, 4): weights 2 and −6/5
    (-1, 36 / 3 + 36 / 5, 0),
    (1, 9 / 5 + 9 / 3, 1),  # (3, 4) | (−3, 2): weights −3/5 and 1
])  # fmt: skip
def test_a_constraint_refuses_weights_that_go_the_other_way(sign, gain, split_bin):
    found = one_feature([-6, 9, -3], [2, 2, 2], monotone=[sign])
    assert found[0] == pytest.approx(gain, rel=1e-15) and found[1] == split_bin


# ---- ties


def test_ties_go_to_the_lower_feature():
    hist = np.array([[-6, 2], [6, 1]] * 9)[None, None]
    mask = np.ones((1, 9))
    for first in range(9):
        assert find_splits(hist, [[[0, 3]]], [2] * 9, mask=mask)[0]["feature"] == first
        mask[0, first] = 0


def test_ties_go_to_the_lower_bin():
    assert one_feature([-6, 0, 6], [2, 0, 2])[1] == 0


def test_ties_within_a_bin_go_to_missing_left():
    assert one_feature([-6, 6], [2, 2], missing=(0, 2)) == (36 / 5 + 36 / 3, 0, 1)  # right: 36/3 + 36/5


def test_ties_go_to_the_lower_bin_before_they_go_to_missing_left():
    # bin 0, missing right: (−6, 2) | (6, 4)        bin 1, missing left: (−6, 4) | (6, 2)
    assert one_feature([-6, 0, 6], [2, 1, 2], missing=(0, 1)) == (36 / 3 + 36 / 5, 0, 0)


@pytest.mark.parametrize("missing, proposed, split_bin, default_left", [
    ((0, 0), None, 1, 1), ((6, 1), None, 1, 0), ((-6, 1), None, 4, 1),
    ((0, 0), (1, 1, 1, 1, 0, 0, 1), 1, 1), ((-6, 1), (1, 1, 1, 1, 0, 0, 1), 3, 1), ((-6, 1), (0, 0, 1, 0, 0, 0, 0), 2, 1),
])  # fmt: skip
def test_the_gap_between_a_nodes_values_goes_to_the_side_of_its_missing_rows(missing, proposed, split_bin, default_left):
    hist, proposed = np.array([[0, 0], [-6, 2], [0, 0], [0, 0], [0, 0], [3, 1], [3, 1]]), proposed and [proposed]
    nodes, left_sums = find_splits(hist[None, None], [[hist.sum(axis=0) + missing]], [7], proposed=proposed)
    assert nodes[["bin", "default_left"]][0].tolist() == (split_bin, default_left)
    assert left_sums.tolist() == [[np.add([-6, 2], np.multiply(missing, default_left)).tolist()]]


def test_a_gap_is_empty_in_all_outputs():
    hist = np.array([[[-6, 2], [0, 0], [0, 0], [6, 1]], [[0, 1], [0, 0], [0, 1], [0, 1]]])
    nodes, _ = find_splits(hist[None], [hist.sum(axis=1) + [(-6, 1), (0, 1)]], [4])
    assert nodes[["bin", "default_left"]][0].tolist() == (1, 1)


# ---- every candidate in Python


def score(grad, hess, reg_lambda, reg_alpha, max_delta_step, lower, upper):
    magnitude = max(abs(grad) - reg_alpha, 0.0)
    if max_delta_step == 0 and lower == -np.inf and upper == np.inf:
        return magnitude * magnitude / (hess + reg_lambda)
    weight = -math.copysign(magnitude, grad) / (hess + reg_lambda)
    if max_delta_step > 0:
        weight = min(max(weight, -max_delta_step), max_delta_step)
    return score_at(grad, hess, min(max(weight, lower), upper), reg_lambda, reg_alpha)


def score_at(grad, hess, weight, reg_lambda, reg_alpha):
    return -(2.0 * grad * weight + (hess + reg_lambda) * weight * weight + 2.0 * reg_alpha * abs(weight))


def weight(grad, hess, reg_lambda, reg_alpha, max_delta_step, lower, upper):
    best = -math.copysign(max(abs(grad) - reg_alpha, 0.0), grad) / (hess + reg_lambda) if hess > 0 else 0.0
    limit = max_delta_step or np.inf
    return min(max(min(max(best, -limit), limit), lower), upper)


def best_by_hand(hist, sums, n_bins, scales, min_child_weight, penalties, proposed, monotone):
    """(−rank, feature, bin, −default_left, gain, left sums) of one node, or None: the definition in the kernel's docstring."""
    units, are_several = np.broadcast_to(scales, sums.shape), len(sums) > 1 and np.any(monotone)
    own = [(*penalties[:3], *(bound * (k + 1 if are_several else 1) for bound in penalties[3:])) for k in range(len(sums))]
    score_of = lambda pair, unit, own: score(*pair / unit, *own) if pair[1] > 0 else 0.0
    parent = sum(map(score_of, sums, units, own))
    candidates = []
    offsets = np.cumsum([0, *n_bins])
    for feature, (first, last) in enumerate(zip(offsets, offsets[1:])):
        present = hist[:, first:last]
        missing = sums - present.sum(axis=1)
        for split_bin in range(last - first):
            for default_left in (1, 0):
                is_last = split_bin == last - first - 1
                if (default_left or not missing.any()) if is_last else not proposed[first + split_bin]:
                    continue
                left = present[:, : split_bin + 1].sum(axis=1) + default_left * missing
                right = sums - left
                lighter = min((side / units)[:, 1].sum() for side in (left, right))
                if min(lighter, present[:, : split_bin + 1, 1].sum()) <= 0 or lighter < min_child_weight * len(sums):
                    continue
                gain, sign = -parent, monotone[feature]
                for l, r, total, unit, of in zip(left, right, sums, units, own):
                    low, high = (weight(*side / unit, *of) for side in (l, r))
                    if sign * low <= sign * high:
                        gain += score_of(l, unit, of) + score_of(r, unit, of)
                    elif are_several:  # one weight for both, each of which pays its penalties
                        shared = weight(*total / unit, 2 * of[0], 2 * of[1], *of[2:])
                        gain += score_at(*l / unit, shared, *of[:2]) + score_at(*r / unit, shared, *of[:2])
                    else:
                        gain = -np.inf
                if gain > max(1e-6, 2.0**-44 * parent):
                    candidates.append((-rank(gain), feature, split_bin, -default_left, gain, left.tolist()))
    best = min(candidates, default=None)
    if best is None or best[3] == 0 or not (sums - hist[:, offsets[best[1]] : offsets[best[1] + 1]].sum(axis=1)).any():
        return best
    above = [other for other in sorted(candidates) if (other[1], other[3]) == (best[1], best[3]) and other[2] >= best[2]]
    return list(takewhile(lambda other: other[5] == best[5], sorted(above, key=lambda other: other[2])))[-1]


def rank(gain):
    mantissa, exponent = math.frexp(gain)
    return math.ldexp(math.floor(mantissa * 2**16), exponent - 16)


def random_histograms(rng, n_nodes, n_outputs, n_bins, n_rows, missing, size):
    """Histograms and sums of nodes with random rows: gradients within ±size, so that ties are common where it is small."""
    hist, sums = np.zeros((n_nodes, n_outputs, sum(n_bins), 2), np.int64), np.zeros((n_nodes, n_outputs, 2), np.int64)
    offsets = np.cumsum([0, *n_bins])
    for node in range(n_nodes):
        rows = rng.integers(0, n_rows + 1)
        grad, hess = rng.integers(-size, size + 1, (n_outputs, rows)), rng.integers(0, size + 1, (n_outputs, rows))
        pairs = np.stack([grad, hess], axis=-1)
        sums[node] = pairs.sum(axis=1)
        for f, n in enumerate(n_bins):
            code = rng.integers(0, n, rows)
            present = rng.random(rows) >= missing
            for output in range(n_outputs):
                np.add.at(hist[node, output], offsets[f] + code[present], pairs[output, present])
    return hist, sums


def check(rng, n_nodes, n_outputs, n_bins, n_rows, missing, size, scales=(1.0, 1.0), **settings):
    hist, sums = random_histograms(rng, n_nodes, n_outputs, n_bins, n_rows, missing, size)
    results = [find_splits(hist, sums, n_bins, scales=scales, n_threads=t, **settings) for t in (1, 3)]
    defaults = {"reg_lambda": 1.0, "reg_alpha": 0.0, "max_delta_step": 0.0, "lower": -np.inf, "upper": np.inf}
    penalties = [settings.get(name, default) for name, default in defaults.items()]
    monotone = settings.get("monotone", np.zeros(len(n_bins)))
    for nodes, left_sums in results:
        for node in range(n_nodes):
            own = settings["proposed"][node] if "proposed" in settings else np.ones(hist.shape[2])
            least = settings.get("min_child_weight", 0.0)
            best = best_by_hand(hist[node], sums[node], n_bins, scales, least, penalties, own, monotone)
            if best is None:
                assert nodes["gain"][node] == NO_GAIN
                continue
            got = nodes[node]
            # one order of operations, so the same bits
            found = (got["feature"], got["bin"], -got["default_left"], got["gain"], left_sums[node].tolist())
            assert (-rank(got["gain"]), *found) == best


PENALTIES = st.fixed_dictionaries({
    "reg_lambda": st.sampled_from([0.0, 1.0, 2.5]), "reg_alpha": st.sampled_from([0.0, 1.5]),
    "max_delta_step": st.sampled_from([0.0, 0.0, 0.7]), "min_child_weight": st.sampled_from([0.0, 1.0, 3.0]),
    "lower": st.sampled_from([-np.inf, -np.inf, -0.5]), "upper": st.sampled_from([np.inf, np.inf, 0.25]),
})  # fmt: skip


FREE = {"reg_lambda": 0.0, "reg_alpha": 0.0, "max_delta_step": 0.0, "min_child_weight": 0.0, "lower": -np.inf, "upper": np.inf}


@settings(max_examples=120)
@example(2778, 1, 2, [2], 13, 0.3, 1, (1.0, 1.0), FREE)  # a child without hessian of one output shares the weight of the other's
@given(
    st.integers(0, 2**32), st.integers(1, 3), st.integers(1, 2), st.lists(st.integers(1, 5), min_size=1, max_size=6),
    st.integers(0, 30), st.sampled_from([0.0, 0.3, 1.0]), st.sampled_from([1, 2, 1000]),
    st.sampled_from([(1.0, 1.0), (4.0, 0.5)]), PENALTIES,
)  # fmt: skip
def test_the_best_split_is_the_best_of_all_candidates(seed, n_nodes, n_outputs, n_bins, n_rows, missing, size, scales, penalties):
    check(np.random.default_rng(seed), n_nodes, n_outputs, n_bins, n_rows, missing, size, scales, **penalties)
    penalties = {**penalties, "monotone": np.random.default_rng(seed + 2).integers(-1, 2, len(n_bins))}
    check(np.random.default_rng(seed), n_nodes, n_outputs, n_bins, n_rows, missing, size, scales, **penalties)
    proposed = np.random.default_rng(seed + 1).integers(0, 2, (n_nodes, sum(n_bins)))
    check(np.random.default_rng(seed), n_nodes, n_outputs, n_bins, n_rows, missing, size, scales, proposed=proposed, **penalties)


@pytest.mark.sweep(10)
@pytest.mark.parametrize("n_bins", [[256] * 3, [1000, 2], [3] * 33])
@pytest.mark.parametrize("missing", [0.0, 0.1])
@pytest.mark.parametrize("n_outputs", [1, 3])
@pytest.mark.parametrize(("scales", "reg_lambda"), [
    ([(2.0**14, 2.0**14)] * 3, 100.0), ([(2.0**16, 2.0**10)] * 3, 100.0), ([(2.0**10, 2.0**15)] * 3, 100.0),
    ([(2.0, 0.25)] * 3, 1e8), ([(2.0**13, 2.0**10), (2.0**12, 2.0**12), (2.0**11, 2.0**15)], 100.0),
])  # fmt: skip
def test_many_bins_and_features(n_bins, missing, n_outputs, scales, reg_lambda):
    check(np.random.default_rng(25), 2, n_outputs, n_bins, 3000, missing, 20000, scales[:n_outputs], reg_lambda=reg_lambda)


@pytest.mark.parametrize("reg_lambda", [0.0, 1.0])
@pytest.mark.parametrize("size", [1, 3])
def test_ties_of_several_outputs_over_many_bins(reg_lambda, size):
    """Gradients and hessians of a few units: many candidates score the same, and outputs have children without hessian."""
    for seed in range(4):
        check(np.random.default_rng(seed), 3, 2, [200, 130, 64], 90, 0.2 * (seed % 2), size, reg_lambda=reg_lambda)
