"""growing/policy.py: what is split next, and when a tree is done."""

import pytest

from gpuboost.growing.policy import Depthwise, Lossguide, growth_policy
from gpuboost.params import Params


class Asked:
    """Stands for growing trees: remembers what it was asked to choose."""

    def __init__(self):
        self.calls = []

    def select_level(self, *limits):
        self.calls.append(("level", *limits))

    def select_best(self, *limits):
        self.calls.append(("best", *limits))


@pytest.mark.parametrize("name, kind, chosen", [("depthwise", Depthwise, "level"), ("lossguide", Lossguide, "best")])
def test_a_policy_asks_for_its_choice_within_the_limits(name, kind, chosen):
    policy, trees = growth_policy(Params(grow_policy=name, max_depth=3, max_leaves=7)), Asked()
    policy.select(trees)
    assert type(policy) is kind and trees.calls == [(chosen, 3, 7)]


def test_levels_end_at_the_greatest_depth():
    assert [Depthwise(2, 0).is_done(n) for n in range(4)] == [False, False, True, False]
    assert not any(Depthwise(0, 5).is_done(n) for n in range(50))


def test_leaf_by_leaf_ends_with_the_last_leaf():
    """One leaf more with every step, at most."""
    assert [Lossguide(0, 3).is_done(n) for n in range(3)] == [False, False, True]
    assert Lossguide(0, 1).is_done(0)
    for policy in (Lossguide(2, 0), Lossguide(2, 9)):  # four leaves at that depth
        assert [policy.is_done(n) for n in range(4)] == [False] * 3 + [True]
    assert not any(Lossguide(0, 0).is_done(n) for n in range(50))


def test_a_frontier_is_all_leaves_of_levels_and_of_roots():
    assert [Depthwise(3, 0).has_all_leaves(n) for n in range(3)] == [True] * 3
    assert [Lossguide(3, 0).has_all_leaves(n) for n in range(3)] == [True, False, False]
