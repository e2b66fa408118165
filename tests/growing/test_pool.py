"""growing/pool.py: which histograms are held, and in what batches the others are worked on."""

import pytest

from gpuboost.backend.plans import FrontierBatch
from gpuboost.growing.pool import HistogramPool


def batches(pool, n_frontier, has_all_leaves=True, is_last=False):
    return list(pool.batches(n_frontier, has_all_leaves, is_last))


def test_levels_that_fit_are_held_and_subtracted():
    """Two roots in slots 0 and 1; then of each pair one is built beside them, and the other takes its parent's place."""
    pool = HistogramPool(capacity=8)
    assert batches(pool, 2) == [FrontierBatch(0, 2, 0, False)]
    assert batches(pool, 4) == [FrontierBatch(0, 4, 2, True)]  # held: 2 + 2
    assert batches(pool, 4) == [FrontierBatch(0, 4, 4, True)]  # 4 + 2


def test_a_level_that_does_not_fit_runs_in_batches_and_ends_the_holding():
    pool = HistogramPool(capacity=6)
    batches(pool, 2)
    assert batches(pool, 4) == [FrontierBatch(0, 4, 2, True)]
    assert batches(pool, 8) == [FrontierBatch(0, 6, 0, False), FrontierBatch(6, 8, 0, False)]
    assert batches(pool, 2) == [FrontierBatch(0, 2, 0, False)]  # its parents are gone, and slots of old leaves taken: no holding


@pytest.mark.parametrize("capacity", [0, 1, 2])
def test_two_nodes_at_least_are_worked_on_at_once(capacity):
    assert batches(HistogramPool(capacity), 5)[:2] == [FrontierBatch(0, 2, 0, False), FrontierBatch(2, 4, 0, False)]


def test_holding_does_not_begin_where_other_leaves_are_open():
    pool = HistogramPool(capacity=100)
    assert batches(pool, 2, has_all_leaves=False) == [FrontierBatch(0, 2, 0, False)]
    assert batches(pool, 2, has_all_leaves=False) == [FrontierBatch(0, 2, 0, False)]


def test_of_the_last_frontier_few_histograms_are_there_at_once():
    pool = HistogramPool(capacity=5, at_once=4)
    batches(pool, 2)
    batches(pool, 4)  # held: 4
    last = [FrontierBatch(0, 4, 4, True), FrontierBatch(4, 8, 4, True), FrontierBatch(8, 10, 4, True)]
    assert batches(pool, 10, is_last=True) == [FrontierBatch(0, 5, 0, False), FrontierBatch(5, 10, 0, False)]  # two do not fit
    pool = HistogramPool(capacity=6, at_once=4)
    batches(pool, 2)
    batches(pool, 4)
    assert batches(pool, 10, is_last=True) == last
    pool.start_round()
    assert batches(pool, 3, is_last=True) == [FrontierBatch(0, 3, 0, False)]  # roots: there is nothing to subtract from


def test_a_search_without_histograms_ends_the_holding():
    pool = HistogramPool(capacity=100)
    batches(pool, 1)
    pool.skip()
    assert batches(pool, 2) == [FrontierBatch(0, 2, 0, False)]


def test_new_trees_begin_with_nothing_held():
    pool = HistogramPool(capacity=4)
    batches(pool, 2)
    pool.start_round()
    assert batches(pool, 2) == [FrontierBatch(0, 2, 0, False)]
