"""growing/plan.py: what a round's trees are grown from."""

from dataclasses import replace

import numpy as np
import pytest
from packed_tables import cuts_of

from gpuboost.backend.fixed_point import round_key
from gpuboost.growing.plan import Planner, resolve_columns
from gpuboost.params import Params

CUTS = cuts_of([3, 5, 2, 4, 6, 2])


def test_a_tree_for_each_output_on_the_same_rows_and_columns():
    plan = Planner(Params(seed=4, gamma=2.0, reg_alpha=0.5), CUTS, 100, 3).plan(7, 0.1)
    assert (plan.number, plan.learning_rate) == (7, 0.1)
    assert [(tree.first_output, tree.leaf_size) for tree in plan.trees] == [(0, 1), (1, 1), (2, 1)]
    assert plan.key == round_key(4, 7)
    assert plan.rows is None and plan.columns.features.tolist() == list(range(6))
    assert (plan.trees[0].penalty.gamma, plan.trees[0].penalty.reg_alpha, plan.trees[0].penalty.reg_lambda) == (2.0, 0.5, 1.0)


def test_the_plans_of_a_forest_are_numbered_on_and_share_the_learning_rate():
    params = Params(num_parallel_tree=3, subsample=0.5)
    planner, alone = Planner(params, CUTS, 100, 2), Planner(Params(subsample=0.5), CUTS, 100, 2)
    plans = [*planner.plans(0, 0.75), *planner.plans(1, 0.75)]
    assert [(plan.number, plan.learning_rate, len(plan.trees)) for plan in plans] == [(n, 0.25, 2) for n in range(6)]
    assert [plan.rows for plan in plans] == [alone.plan(n, 0.75).rows for n in range(6)]


@pytest.mark.parametrize(
    "n_trees, n_at_once, sizes",
    [(7, 7, [7]), (7, 9, [7]), (7, 3, [3, 2, 2]), (7, 2, [2, 2, 2, 1]), (5, 4, [3, 2]), (3, 1, [1, 1, 1])],
)
def test_a_plan_comes_in_parts_of_which_the_first_is_largest(n_trees, n_at_once, sizes):
    planner = Planner(Params(), CUTS, 100, n_trees)
    parts, (plan,) = [*planner.plans(4, 0.3, n_at_once=n_at_once)], planner.plans(4, 0.3)
    assert [len(part.trees) for part in parts] == sizes
    assert [part.first_tree for part in parts] == [sum(sizes[:i]) for i in range(len(sizes))]
    assert [part.goes_on for part in parts] == [False, *[True] * (len(sizes) - 1)]
    assert [tree.first_output for part in parts for tree in part.trees] == [tree.first_output for tree in plan.trees]
    assert {(part.number, part.learning_rate) for part in parts} == {(4, 0.3)}


def test_a_round_whose_trees_differ_is_refused():
    plan = Planner(Params(), CUTS, 100, 2).plan(0, 0.3)
    plan.require_outputs([0, 1], 1)
    for wrong in ([0], [0, 2]):
        with pytest.raises(ValueError, match="from .* on"):
            plan.require_outputs(wrong, 1)
    for change in ({"penalty": replace(plan.penalty, gamma=9.0)}, {"columns": replace(plan.columns)}):
        with pytest.raises(ValueError, match=f"must share their {next(iter(change))}, but 2 differ"):
            replace(plan, trees=(plan.trees[0], replace(plan.trees[1], **change)))


def test_draws_follow_the_number_of_the_round_alone():
    params = Params(subsample=0.5, colsample_bytree=0.5, sampling_method="gradient_based")
    first, again = (Planner(params, CUTS, 100, 2) for _ in range(2))
    plans = [first.plan(n, 0.3) for n in range(8)]
    for n in reversed(range(8)):
        plan = again.plan(n, 0.3)
        assert plan.rows == plans[n].rows and plan.rows.n_drawn == 50 and plan.rows.by_gradient
        np.testing.assert_array_equal(plan.columns.features, plans[n].columns.features)
    assert len({plan.rows.keys for plan in plans}) == 8
    assert len({tuple(plan.columns.features) for plan in plans}) > 1


def test_columns_are_found_by_name_or_number():
    params = Params(monotone_constraints={"b": -1}, interaction_constraints=[["a", 2]], feature_weights=(0, 1, 2))
    resolved = resolve_columns(params, ["a", "b", "c"], 3, [5.0, 5.0, 5.0])
    assert resolved.monotone_constraints == (0, -1, 0)
    assert resolved.interaction_constraints == ((0, 2),)
    assert resolved.feature_weights == (0.0, 1.0, 2.0)
    assert resolve_columns(Params(), None, 2, [1.0, 3.0]).feature_weights == (1.0, 3.0)  # the table's own
    assert resolved.max_depth == params.max_depth
    with pytest.raises(ValueError, match="monotone_constraints names column 'b'"):
        resolve_columns(params, ["a", "x", "c"], 3)
