"""kernels/growth.py: a launch of several steps does what a launch of each of them would."""

import numpy as np
import pytest
from cuda_runners import each_runner, progress_of

from gpuboost.kernels import growth, histogram, leaves, nodes, partition
from gpuboost.kernels.structs import NO_GAIN, NODE, PENALTY, SLICE

N_PARENTS = 35  # of two trees; their children are the frontier, more than a block of the simulator has threads
N_NODES = 3 * N_PARENTS
CAPACITY = N_NODES + 4 * N_PARENTS + 2
DEPTHWISE = nodes.select_depthwise_step.alone, nodes.apply_splits_step.alone, partition.list_chunks_kernel
LOSSGUIDE = nodes.select_lossguide_step.alone, nodes.apply_splits_step.alone, partition.list_chunks_kernel
BUILD = nodes.choose_built_step.alone, histogram.list_build_items_kernel
LEAVES = (leaves.list_leaf_chunks_kernel,)
WEIGH = nodes.sum_upwards_step.alone, nodes.prune_step.alone, leaves.leaf_weights_step.alone


def a_level():
    """Arrays and scalars by the names that kernels have for them: two trees of depth 1, whose leaves have been evaluated."""
    rng, parents = np.random.default_rng(5), np.arange(N_PARENTS)
    progress = progress_of(frontier=N_PARENTS, n_nodes=N_NODES, depth=1, learning_rate=0.3, non_finite=1)
    values = {"nodes": np.zeros(CAPACITY, NODE), "progress": progress}
    table = values["nodes"]
    table["gain"], table["lower"], table["upper"] = rng.choice([NO_GAIN, 1.0, 2.0, 3.0], CAPACITY), -np.inf, np.inf
    table["tree"][:N_PARENTS], table["tree"][N_PARENTS:N_NODES] = parents // 20, np.repeat(parents // 20, 2)
    table["parent"][:N_PARENTS], table["parent"][N_PARENTS:N_NODES] = -1, np.repeat(parents, 2)
    table["left"][:N_PARENTS], table["left"][N_PARENTS:] = N_PARENTS + 2 * parents, -1
    table["depth"][N_PARENTS:N_NODES], table["slot"] = 1, rng.permutation(CAPACITY)
    begin = rng.integers(0, 1000, CAPACITY)
    values["segments"] = np.stack([begin, begin + rng.integers(0, 9000, CAPACITY), rng.integers(0, 2, CAPACITY)], axis=1)
    values["segments"][N_PARENTS:N_NODES:4, 1] = begin[N_PARENTS:N_NODES:4]  # no rows
    values["first_page"] = 1
    for name in ("sums", "left_sums", "leaf_sums"):
        values[name] = rng.integers(-(2**40), 2**40, (CAPACITY, 1, 2))
        values[name][:, :, 1] = abs(values[name][:, :, 1])
    values["counts"], values["n_leaves"] = rng.integers(0, 5, CAPACITY), np.array([40, 30])
    for name in ("rank", "first_rank", "first_chunk", "moved", "state"):
        values[name] = np.full(CAPACITY + 1, -7, np.int64)
    for name in ("selected", "build", "parents"):
        values[name] = np.full(CAPACITY, -7, np.int32)
    values["weights"], values["leaves"] = np.full((2, CAPACITY, 1), -7, np.float32)
    values["covers"], values["scales"] = np.full(CAPACITY, -7.0), np.full((2, 2), 2.0**30)
    values["slices"] = np.zeros(histogram.most_slices(2 * N_PARENTS * 9000, 3, 2 * N_PARENTS), SLICE)
    values["first_slice"] = np.full(CAPACITY + 1, -7, np.int32)
    values["monotone"], values["first_output"] = np.zeros(0, np.int8), np.arange(2, dtype=np.int32)
    values["penalty"] = np.array([(1.0, 0.5, 0.0, 100.0, 2.5)], PENALTY)
    scalars = {"max_depth": 0, "max_leaves": 55, "begin": 0, "n": 2 * N_PARENTS, "first_slot": 7, "subtract": 1, "n_parts": 3}
    return values | scalars | {"n_even": 2, "n_flushed": 2}


def launch(run, kernel, values, **work):
    run(kernel, *(values[name] for name in kernel.arguments), **work)


def check_as_one(run, kernel, steps, values=None, **work):
    """The kernel leaves behind what the steps do one after another; its own launch alone writes ``state``."""
    work = work or {"blocks": 1}
    values = a_level() if values is None else values
    each = {name: value.copy() if isinstance(value, np.ndarray) else value for name, value in values.items()}
    before = {name: np.copy(value) for name, value in values.items()}
    launch(run, kernel, values, **work)
    for step in steps:
        launch(run, step, each, blocks=1)
    for name in set(values) - {"state"}:
        assert np.asarray(values[name]).tobytes() == np.asarray(each[name]).tobytes(), name
    return [name for name, value in values.items() if np.asarray(value).tobytes() != before[name].tobytes()]


@each_runner
@pytest.mark.parametrize("subtract", [0, 1])
def test_the_nodes_to_build_and_their_slices(run, subtract):
    written = check_as_one(run, growth.choose_built_kernel, BUILD, a_level() | {"subtract": subtract})
    assert {"build", "slices", "first_slice", "nodes", "progress"} <= set(written)


@each_runner
def test_a_level_is_selected_split_and_cut_into_chunks(run):
    written = check_as_one(run, growth.split_depthwise_kernel, DEPTHWISE)
    assert {"selected", "n_leaves", "nodes", "sums", "first_chunk", "moved", "segments", "counts", "progress"} <= set(written)


@each_runner
def test_the_best_leaves_are_selected_split_and_cut_into_chunks(run):
    written = check_as_one(run, growth.split_lossguide_kernel, LOSSGUIDE)
    assert {"selected", "n_leaves", "nodes", "sums", "first_chunk", "moved", "segments", "counts", "progress"} <= set(written)


@each_runner
def test_trees_are_summed_pruned_and_weighed(run):
    values = a_level()
    written = check_as_one(run, growth.weigh_trees_kernel, WEIGH, values)
    assert {"leaf_sums", "nodes", "weights", "leaves", "covers", "state"} <= set(written)
    assert values["state"].tolist() == [N_NODES, 1, *[-7] * (CAPACITY - 1)]  # non_finite goes with the trees


@each_runner
def test_leaves_are_cut_into_chunks_and_their_sums_begin_at_zero(run):
    values, sums = a_level(), a_level()["leaf_sums"]
    launch(run, growth.list_leaves_kernel, values, blocks=1)
    assert not values["leaf_sums"][:N_NODES].any() and (values["leaf_sums"][N_NODES:] == sums[N_NODES:]).all()
    values["leaf_sums"] = sums
    assert check_as_one(run, growth.list_leaves_kernel, LEAVES, values | {"leaf_sums": sums * 0}) == []


@each_runner
def test_roots_and_their_rows_start_together(run):
    values = a_level() | {
        "n_trees": 2, "drawn": np.arange(0, 260, 2, dtype=np.int32), "n_drawn": np.array([130, 0]),
        "rows": np.full((2, 260), -7, np.int32), "output_sums": np.arange(8).reshape(2, 4),
    }  # fmt: skip
    values["progress"]["non_finite"] = 0
    steps = nodes.start_trees_step.alone, partition.start_rows_kernel
    written = check_as_one(run, growth.start_trees_kernel, steps, values, threads=130)
    assert {"rows", "segments", "nodes", "sums", "n_leaves", "progress"} <= set(written)
