"""backend/cuda/plan.py: how much memory a training takes, as numbers."""

from dataclasses import replace

import pytest

from gpuboost.backend.cuda.plan import GAINS_BYTES, RESERVE_BYTES, TrainingSize, plan_memory
from gpuboost.backend.dropout import VALUES_AT_ONCE
from gpuboost.params import GivenSearch, Params

SIZE = TrainingSize(
    n_rows=1000, n_outputs=1, n_targets=1, n_trees=1, leaf_size=1, searched_size=1, n_features=10, n_bins=100,
    n_packed=0, n_pages=1, largest_page=1000, copied_bytes=0,
)  # fmt: skip
PARAMS = Params(max_depth=4)
PLENTY = 2**34
BYTES_OF_A_ROW = 16 + 8 + 2 + 4 + 4 + 4  # gradients and their fixed point; two lists; leaf; label; weight; kept
HISTOGRAM = 100 * 16


def least(size=SIZE, params=PARAMS):
    """The least free memory with which a training starts."""
    plan = plan_memory(size, params, PLENTY)
    each = (size.n_bins + size.n_packed) * 16 * size.searched_size + size.n_bins * (params.proposals == "local")
    return plan.bytes - (plan.capacity - 2) * each


def test_a_tree_gets_the_histograms_that_it_can_use():
    """Depth 4: those of the eight nodes of its last level but one, and as many of their children."""
    plan = plan_memory(SIZE, PARAMS, PLENTY)
    assert plan.n_nodes == 2 * 2**4 and plan.capacity == 16
    assert plan_memory(SIZE, replace(PARAMS, max_leaves=5), PLENTY).capacity == 10
    assert plan_memory(replace(SIZE, n_trees=3), PARAMS, PLENTY).capacity == 48
    assert plan_memory(SIZE, replace(PARAMS, histogram_memory=5 * HISTOGRAM), PLENTY).capacity == 5
    assert plan_memory(SIZE, replace(PARAMS, max_depth=0), PLENTY).capacity == 2 * 1000  # a leaf has a row


def test_histograms_are_of_what_is_searched():
    """Of 6 outputs 2 combinations: their gradients and fixed point come to the gradients of all; their sums by node are fewer."""
    whole, few = (replace(SIZE, n_outputs=6, leaf_size=6, searched_size=k) for k in (6, 2))
    memory = replace(PARAMS, histogram_memory=60 * HISTOGRAM)
    assert plan_memory(whole, memory, PLENTY).capacity == 10 and plan_memory(few, memory, PLENTY).capacity == 16
    vectors = replace(PARAMS, multi_strategy="multi_output_tree")
    top, projected = (least(few, replace(vectors, output_sketch=sketch)) for sketch in ("top_outputs:2", "random_projection:2"))
    by_row, by_node = 6 * 8 - 2 * (8 + 8), 2 * 16 * (6 - 2)
    assert least(whole) - top == 1000 * by_row + 32 * by_node + 2 * (6 - 2) * HISTOGRAM
    assert projected - top == 2 * 6 * (4 + 8), "a number and a factor of each output"
    assert least(few, GivenSearch.of(vectors, 2)) == top
    assert least(whole, GivenSearch.of(vectors, 6)) - least(whole) == 1000 * 6 * 8, "as many as outputs are others, too"


def test_histograms_get_a_quarter_of_a_large_gpu_unless_told_otherwise():
    """2000 columns of 256 bins, depth 10: 512 MB would hold 65 of 1024 histograms, and no sibling could be subtracted."""
    wide = replace(SIZE, n_rows=10**6, largest_page=10**6, n_features=2000, n_bins=2000 * 256)
    deep = Params(max_depth=10)
    assert plan_memory(wide, deep, 140 * 2**30).capacity == 1024
    assert plan_memory(wide, deep, 16 * 2**30).capacity == 4 * 2**30 // (2000 * 256 * 16)
    assert plan_memory(wide, replace(deep, histogram_memory=2**29), 140 * 2**30).capacity == 65


def test_less_memory_means_fewer_histograms_and_at_last_an_error_that_says_how_much():
    enough = least()
    assert [plan_memory(SIZE, PARAMS, enough + k * HISTOGRAM).capacity for k in (0, 1, 5, 99)] == [2, 3, 7, 16]
    with pytest.raises(MemoryError, match=f"{enough / 2**20:.0f} MiB are needed"):
        plan_memory(SIZE, PARAMS, enough - 1)


def test_every_row_and_output_has_its_bytes():
    rows = least(replace(SIZE, n_rows=9000, largest_page=1000)) - least()
    assert rows == int(9000 * BYTES_OF_A_ROW) - int(1000 * BYTES_OF_A_ROW)
    assert least(replace(SIZE, n_outputs=3)) - least() == 2 * 16 * 1000
    assert least(params=replace(PARAMS, subsample=0.5)) - least() == 4 * 1000
    assert least(replace(SIZE, copied_bytes=12345)) - least() == 12345
    assert least(replace(SIZE, staged_bytes=12345)) - least() == 12345 - 2 * 1000  # leaves are not found of pages on the host
    three = replace(SIZE, n_outputs=3)
    assert least(three, replace(PARAMS, num_parallel_tree=2)) - least(three) == 3 * 4 * 1000
    assert least() > GAINS_BYTES + RESERVE_BYTES


def test_dropout_has_its_bytes():
    """An int64 sum and a float32 margin of every row and output, and the leaves that are read together, at least a tree's."""
    dart = replace(PARAMS, booster="dart")
    vector = replace(SIZE, n_outputs=3, leaf_size=3, searched_size=3, n_rows=2**24)
    for size in (replace(SIZE, n_outputs=3), replace(SIZE, n_rows=2**25), vector):
        leaves = 4 * max(VALUES_AT_ONCE, size.leaf_size * size.n_rows)
        assert least(size, dart) - least(size) == (8 + 4) * size.n_outputs * size.n_rows + leaves
    assert least(params=replace(PARAMS, rate_drop=0.1)) == least(params=dart)


def test_packed_codes_and_candidates_take_part_of_the_budget():
    assert plan_memory(replace(SIZE, n_packed=100), replace(PARAMS, histogram_memory=5 * HISTOGRAM), PLENTY).capacity == 2
    approx = replace(PARAMS, tree_method="approx", histogram_memory=5 * HISTOGRAM)
    assert plan_memory(SIZE, replace(approx, sketch_proposals="local"), PLENTY).capacity == 4
    assert least(params=replace(PARAMS, tree_method="approx")) - least() == 100  # a candidate for each bin of a tree


def test_wide_tables_keep_the_best_splits_of_fewer_nodes_at_once():
    assert plan_memory(SIZE, PARAMS, PLENTY).nodes_at_once == 2**10
    assert plan_memory(replace(SIZE, n_features=10**6), PARAMS, PLENTY).nodes_at_once == GAINS_BYTES // (12 * 10**6)
    assert plan_memory(replace(SIZE, n_features=10**9), PARAMS, PLENTY).nodes_at_once == 1


def test_a_page_of_too_many_rows_is_refused():
    with pytest.raises(ValueError, match="fewer than 2\\^31 rows of all trees"):
        plan_memory(replace(SIZE, n_trees=2, largest_page=2**30), PARAMS, PLENTY)
