"""kernels/column_sampling.py: how many features a draw takes, that each takes its share, and which of them may meet on a path."""

from itertools import permutations
from math import sqrt

import numpy as np
import pytest
from round_facts import output_keys

from gpuboost.backend.fixed_point import round_key
from gpuboost.kernels.column_sampling import TREE_DRAW, count_drawn, draw_features_cpu, mask_features_cpu
from gpuboost.kernels.structs import NODE

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
    assert round_key(7, 3, TREE_DRAW) not in output_keys(7, 3, 10_000)
    assert draw(range(50), 20, round_key(7, 3, TREE_DRAW)) != draw(range(50), 20, round_key(7, 4, TREE_DRAW))


# ---- levels and nodes


def grown(depth, feature=0, n_trees=1):
    """NODE records of full trees of this depth: the roots, then level by level each one's two children."""
    nodes = np.zeros(n_trees * (2 ** (depth + 1) - 1), NODE)
    nodes["parent"], nodes["left"], nodes["feature"] = -1, -1, feature
    nodes["tree"][:n_trees] = np.arange(n_trees)
    for left in range(n_trees, len(nodes), 2):
        parent = (left - n_trees) // 2
        nodes["left"][parent] = left
        for child in (left, left + 1):
            nodes["parent"][child], nodes["tree"][child] = parent, nodes["tree"][parent]
            nodes["depth"][child] = nodes["depth"][parent] + 1
    return nodes


def members(sets, n_features):
    """uint32 (n_features, n_words): bit s of a feature's words where set s holds it."""
    member = np.zeros((n_features, -(-len(sets) // 32)), np.uint32)
    for s, features in enumerate(sets):
        for f in features:
            member[f, s // 32] |= np.uint32(1 << s % 32)
    return member


def masks(nodes, n_features=64, n_level=None, n_node=None, *, frontier=None, sets=(), weights=NO_WEIGHTS, features=None, key=1):
    """bool (n, n_features): by feature, what each node of the frontier (all by default) may split on."""
    frontier = np.arange(len(nodes)) if frontier is None else frontier
    features = np.arange(n_features) if features is None else np.asarray(features)
    n_level = len(features) if n_level is None else n_level
    n_node = n_level if n_node is None else n_node
    mask = np.full((len(frontier), len(features)), 77, np.uint8)
    mask_features_cpu(
        np.asarray(frontier, np.int32), nodes, features.astype(np.int32), np.asarray(weights, np.float32),
        members(sets, n_features) if sets else np.zeros((0, 1), np.uint32), key, n_level, n_node, mask,
    )  # fmt: skip
    assert set(mask.ravel()) <= {0, 1}
    by_feature = np.zeros((len(frontier), n_features), bool)
    by_feature[:, features] = mask
    return by_feature


def sets_of(mask):
    return [frozenset(np.flatnonzero(row)) for row in mask]


@pytest.mark.parametrize("weights", [NO_WEIGHTS, np.arange(1, 65)])
def test_a_node_draws_from_its_levels_features_and_a_level_from_the_trees(weights):
    tree = draw(range(64), 32, 5, weights)
    nodes = grown(4)
    level, node = (sets_of(masks(nodes, 64, 16, n, features=tree, weights=weights)) for n in (16, 8))
    assert {len(s) for s in level} == {16} and {len(s) for s in node} == {8}
    for i in range(len(nodes)):
        assert node[i] < level[i] < set(tree)


def test_levels_share_their_features_and_nodes_do_not():
    nodes = grown(3, n_trees=2)
    levels, each = sets_of(masks(nodes, 64, 32)), sets_of(masks(nodes, 64, 64, 32))
    place = {(int(node["tree"]), int(node["depth"])) for node in nodes}
    by_place = {p: {s for s, node in zip(levels, nodes) if (node["tree"], node["depth"]) == p} for p in place}
    assert {len(sets) for sets in by_place.values()} == {1}
    assert len(set(levels)) == len(place) == 8  # of two trees
    assert len(set(each)) == len(nodes) == 30
    assert not set(levels) & set(each)


def test_rounds_and_seeds_draw_anew():
    nodes, keys = grown(2), [round_key(seed, r) for seed in (0, 1, -1, 2**40) for r in (0, 1)]
    for counts in ((32, 32), (64, 32)):
        drawn = [s for key in keys for s in set(sets_of(masks(nodes, 64, *counts, key=key)))]
        assert len(set(drawn)) == len(drawn) == len(keys) * (3 if counts[0] == 32 else 7)


def test_a_draw_depends_on_the_path_and_not_on_the_numbers_of_nodes():
    """The right child's left child, numbered with its tree alone, and with trees grown side by side leaf by leaf."""
    alone, many = grown(2), grown(2)
    many = np.concatenate([np.zeros(5, NODE), many])
    for name in ("parent", "left"):
        many[name][5:][many[name][5:] >= 0] += 5
    assert (masks(many, 64, 32, 16, frontier=range(5, 12)) == masks(alone, 64, 32, 16)).all()
    where = [0, 1, 2, 5, 6, 3, 4]  # the right child is split first
    leafwise = alone[where]
    leafwise["left"][[0, 2, 1]], leafwise["parent"][1:] = [1, 3, 5], [0, 0, 2, 2, 1, 1]
    assert (masks(leafwise, 64, 32, 16) == masks(alone, 64, 32, 16)[where]).all()
    by_batch = [masks(alone, 64, 32, 16, frontier=[i])[0] for i in range(7)]
    assert (by_batch == masks(alone, 64, 32, 16)).all()


def test_nodes_draw_every_feature_alike():
    drawn, p = masks(grown(9), 10, 10, 3), 0.3
    assert (abs(drawn.mean(axis=0) - p) <= 5 * sqrt(p * (1 - p) / len(drawn))).all()
    left, right = drawn[1:].reshape(-1, 2, 10).swapaxes(0, 1)
    p = 0.3**2  # siblings draw independently of each other
    assert (abs((left & right).mean(axis=0) - p) <= 5 * sqrt(p * (1 - p) / len(left))).all()


# ---- interaction constraints


def path(*features):
    """NODE records of a tree that goes left at every split: its last node is below splits on these features."""
    nodes, last = np.repeat(grown(0), 2 * len(features) + 1), 0
    for depth, feature in enumerate(features):
        nodes["feature"][last], nodes["left"][last] = feature, 2 * depth + 1
        nodes["parent"][2 * depth + 1 : 2 * depth + 3], nodes["depth"][2 * depth + 1 : 2 * depth + 3] = last, depth + 1
        last = 2 * depth + 1
    return nodes, last


SETS = [[0, 1], [1, 2, 3], [3, 4]]  # of six features: 5 is in none
EVERY = range(6)


@pytest.mark.parametrize("above, allowed", [
    ((), EVERY),
    ((0,), [0, 1]), ((1,), [0, 1, 2, 3]), ((2,), [1, 2, 3]), ((3,), [1, 2, 3, 4]), ((4,), [3, 4]),
    ((5,), [5]), ((5, 5), [5]),
    ((1, 0), [0, 1]), ((1, 2), [1, 2, 3]), ((2, 1), [1, 2, 3]), ((1, 3), [1, 2, 3]), ((3, 4, 3), [3, 4]),
    ((0, 4), [0, 4]),  # forbidden, but if it were there: what is on the path stays allowed
])  # fmt: skip
def test_what_may_follow_a_path_by_hand(above, allowed):
    nodes, last = path(*above)
    assert np.flatnonzero(masks(nodes, 6, frontier=[last], sets=SETS)[0]).tolist() == list(allowed)


def test_more_sets_than_a_word_has_bits():
    """Neighbours i and i + 1 may meet; every set lies in another word or bit."""
    pairs = [[i, i + 1] for i in range(99)]
    for f in (0, 1, 31, 32, 33, 63, 64, 98, 99):
        nodes, last = path(f)
        expected = [g for g in (f - 1, f, f + 1) if 0 <= g < 100]
        assert np.flatnonzero(masks(nodes, 100, frontier=[last], sets=pairs)[0]).tolist() == expected
        other = f + 1 if f < 99 else f - 1
        nodes, last = path(f, other)
        assert np.flatnonzero(masks(nodes, 100, frontier=[last], sets=pairs)[0]).tolist() == sorted([f, other])


def test_constraints_leave_out_some_of_what_was_drawn():
    nodes, last = path(1)
    allowed = masks(nodes, 6, frontier=[last], sets=SETS)[0]
    left = set()
    for key in range(20):
        drawn = masks(nodes, 6, 4, 3, frontier=[last], key=key)[0]
        assert (masks(nodes, 6, 4, 3, frontier=[last], sets=SETS, key=key)[0] == (drawn & allowed)).all()
        left.add((drawn & allowed).sum())
    assert left == {1, 2, 3}
