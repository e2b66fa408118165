"""kernels/features.py: how many features a draw takes, that each takes its share, and which of them may meet on a path."""

from itertools import permutations
from math import sqrt

import numpy as np
import pytest

from gpuboost.backend.fixed_point import plane_keys, round_key
from gpuboost.kernels.features import TREE_DRAW, count_drawn, draw_features_cpu

N_ROUNDS = 4000
NO_WEIGHTS = np.zeros(0, np.float32)


def draw(features, n, key, weights=NO_WEIGHTS):
    """The features drawn, as a list."""
    features = np.asarray(features, np.int32)
    drawn = np.full(len(features), 77, np.uint8)
    draw_features_cpu(features, np.asarray(weights, np.float32), key, n, drawn)
    assert set(drawn) <= {0, 1}
    return features[drawn == 1].tolist()


def shares(n_features, n, weights=NO_WEIGHTS):
    """float64 (n_features,): in which share of many rounds each feature was drawn."""
    counts = np.zeros(n_features)
    for r in range(N_ROUNDS):
        counts[draw(range(n_features), n, round_key(11, r, TREE_DRAW), weights)] += 1
    return counts / N_ROUNDS


def assert_near(found, probability):
    """Within five standard deviations of as many draws."""
    for share, p in zip(found, np.broadcast_to(probability, found.shape), strict=True):
        assert abs(share - p) <= 5 * sqrt(p * (1 - p) / N_ROUNDS), (share, p)


# ---- how many


@pytest.mark.parametrize("share, n, expected", [
    (0.5, 64, 32), (0.5, 32, 16), (1.0, 7, 7), (0.01, 7, 1), (0.29, 100, 29), (0.3, 10, 3), (0.99, 10, 9), (0.7, 1, 1),
])  # fmt: skip
def test_a_share_is_rounded_down_but_to_one(share, n, expected):
    assert count_drawn(share, n) == expected


@pytest.mark.parametrize("weights", [NO_WEIGHTS, np.arange(200) % 7])
@pytest.mark.parametrize("n_features, n", [(1, 1), (2, 1), (64, 32), (64, 64), (64, 1), (64, 63), (200, 71)])
def test_a_draw_takes_exactly_so_many(n_features, n, weights):
    for r in range(20):
        assert len(draw(range(n_features), n, round_key(3, r, TREE_DRAW), weights)) == n


# ---- which


@pytest.mark.parametrize("n_features, n", [(5, 2), (28, 14), (40, 1), (40, 39)])
def test_every_feature_has_the_same_chance(n_features, n):
    assert_near(shares(n_features, n), n / n_features)


def test_every_pair_has_the_same_chance():
    together = np.zeros((6, 6))
    for r in range(N_ROUNDS):
        drawn = draw(range(6), 3, round_key(5, r, TREE_DRAW))
        together[np.ix_(drawn, drawn)] += 1
    assert_near(together[np.triu_indices(6, 1)] / N_ROUNDS, 3 / 6 * 2 / 5)


def inclusion(weights, n):
    """Each one's exact chance to be among the first n drawn one after another, by its share of the weight that is left."""
    chances = np.zeros(len(weights))
    for order in permutations(range(len(weights)), n):
        p, left = 1.0, sum(weights)
        for i in order:
            p, left = p * weights[i] / left, left - weights[i]
        chances[list(order)] += p
    return chances


@pytest.mark.parametrize("weights", [(1, 2, 3), (1, 1, 1, 1), (0.01, 5, 5, 90), (1e-30, 3e30, 1e30)])
@pytest.mark.parametrize("n", [1, 2])
def test_weighted_features_have_the_chances_of_drawing_one_after_another(weights, n):
    assert_near(shares(len(weights), n, weights), inclusion(weights, n))


def test_weight_zero_is_drawn_when_nothing_else_is_left_and_then_at_random():
    weights = [0, 1, 0, 1e-38, 0]
    for r in range(50):
        assert draw(range(5), 2, r, weights) == [1, 3]
    assert_near(shares(5, 3, weights), np.array([1 / 3, 1, 1 / 3, 1, 1 / 3]))


def test_a_draw_depends_on_neither_order_nor_number_of_the_features():
    rng = np.random.default_rng(0)
    for weights in (NO_WEIGHTS, rng.random(50)):
        drawn = draw(range(50), 20, 123, weights)
        order = rng.permutation(50)
        assert sorted(draw(order, 20, 123, weights)) == drawn
        without_the_others = [f for f in range(50) if f in drawn or f % 2]
        assert draw(without_the_others, 20, 123, weights) == drawn


def test_a_round_draws_otherwise_than_it_rounds_gradients():
    assert round_key(7, 3, TREE_DRAW) not in plane_keys(7, 3, 10_000)
    assert draw(range(50), 20, round_key(7, 3, TREE_DRAW)) != draw(range(50), 20, round_key(7, 4, TREE_DRAW))
