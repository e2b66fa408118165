"""kernels/nodes.py on CUDA: blocks of threads do to the table of nodes what one thread does on the CPU."""

import numpy as np
import pytest
from cuda_runners import each_runner, progress_of
from hypothesis import given, settings
from hypothesis import strategies as st
from test_nodes import random_trees, table

from gpuboost.kernels import nodes as n
from gpuboost.kernels.structs import NO_GAIN, NODE, PENALTY

MANY = 120  # nodes: more than a block of the simulator has threads
seeds = st.integers(0, 2**32)


def rubbish(n_nodes):
    return np.full(n_nodes * NODE.itemsize, 0xA5, np.uint8).view(NODE)


# ---- the start of a round and of its trees


@each_runner
def test_a_round_starts_with_its_number_seed_and_learning_rate(run):
    progress = progress_of(non_finite=1, n_nodes=5)
    run(n.start_round_kernel, 7, 2**64 - 3, 0.3, progress, threads=1)
    assert progress[["round", "seed", "learning_rate", "non_finite", "n_nodes"]][0].tolist() == (7, 2**64 - 3, 0.3, 0, 5)


@each_runner
@pytest.mark.parametrize("n_trees, n_outputs", [(1, 1), (3, 1), (2, 2), (100, 1)])
def test_every_tree_starts_as_a_root_with_the_sums_of_its_outputs(run, n_trees, n_outputs):
    output_sums = np.random.default_rng(1).integers(-(2**60), 2**60, (n_trees * n_outputs, 3))
    first_output = np.arange(0, n_trees * n_outputs, n_outputs, np.int32)[::-1].copy()
    nodes, sums = rubbish(n_trees + 1), np.full((n_trees + 1, n_outputs, 2), 77, np.int64)
    n_leaves, progress = np.full(n_trees, 9, np.int64), progress_of(n_nodes=8, frontier=7, n_selected=6, depth=5)
    run(n.start_trees_step.alone, output_sums, first_output, progress, nodes, sums, n_leaves, blocks=1)
    roots = nodes[:n_trees]
    assert roots["tree"].tolist() == list(range(n_trees)) and n_leaves.tolist() == [1] * n_trees
    root = (NO_GAIN, -np.inf, np.inf, -1, -1, 0, -1)
    assert set(roots[["gain", "lower", "upper", "parent", "left", "depth", "slot"]].tolist()) == {root}
    for tree, first in enumerate(first_output):
        np.testing.assert_array_equal(sums[tree], output_sums[first : first + n_outputs, :2])
    assert (sums[n_trees] == 77).all() and nodes[n_trees] == rubbish(1)[0]
    assert progress[["n_nodes", "frontier", "n_selected", "depth"]][0].tolist() == (n_trees, 0, 0, 0)


# ---- selection


def select(run, policy, nodes, frontier, max_depth, max_leaves, n_leaves):
    """(selected, n_leaves) of the CUDA kernel; the nodes after the frontier's are only capacity."""
    nodes = np.concatenate([nodes, rubbish(3)])
    n_leaves, selected = np.array(n_leaves, np.int64), np.full(len(nodes), -7, np.int32)
    progress = progress_of(frontier=frontier, n_nodes=len(nodes) - 3, n_selected=99)
    if policy == "depthwise":
        rank, first_rank = np.full(len(nodes), -7, np.int64), np.full(len(n_leaves), -7, np.int64)
        run(n.select_depthwise_step.alone, max_depth, max_leaves, progress, nodes, n_leaves, rank, first_rank, selected, blocks=1)
    else:
        run(n.select_lossguide_step.alone, max_depth, max_leaves, progress, nodes, n_leaves, selected, blocks=1)
    count = progress["n_selected"][0]
    assert (selected[count:] == -7).all()
    return selected[:count].tolist(), n_leaves.tolist()


def select_cpu(policy, nodes, frontier, max_depth, max_leaves, n_leaves):
    """The CPU's kernel for levels; for leaves, of which it takes several, the text of the policy."""
    n_leaves, selected = np.array(n_leaves, np.int64), np.empty(len(nodes), np.int32)
    if policy == "depthwise":
        level = np.arange(frontier, len(nodes), dtype=np.int32)
        count = n.select_depthwise(level, nodes, max_depth, max_leaves, n_leaves, selected)
    else:
        count = 0
        for tree in range(len(n_leaves)):
            is_open = (nodes["tree"] == tree) & (nodes["left"] < 0) & (nodes["gain"] > NO_GAIN)
            leaves = np.flatnonzero(is_open & ((max_depth == 0) | (nodes["depth"] < max_depth)))
            if len(leaves) and (max_leaves == 0 or n_leaves[tree] < max_leaves):
                selected[count] = leaves[np.argmax(nodes["gain"][leaves])]  # the first of equals
                n_leaves[tree] += 1
                count += 1
    return selected[:count].tolist(), n_leaves.tolist()


@each_runner
def test_depthwise_by_hand(run):
    nodes = table([5, NO_GAIN, 1, 4, 2], tree=[0, 0, 0, 1, 1])
    assert select(run, "depthwise", nodes, 0, 0, 0, [1, 1]) == ([0, 2, 3, 4], [3, 3])
    assert select(run, "depthwise", nodes, 2, 0, 0, [1, 1]) == ([2, 3, 4], [2, 3]), "nodes before the frontier are old"
    assert select(run, "depthwise", nodes, 0, 0, 3, [2, 1]) == ([0, 3, 4], [3, 3]), "first come first served, by tree"
    assert select(run, "depthwise", nodes, 0, 0, 3, [3, 4]) == ([], [3, 4])
    nodes["depth"] = [1, 1, 2, 1, 2]
    assert select(run, "depthwise", nodes, 0, 2, 0, [1, 1]) == ([0, 3], [2, 2])


@each_runner
def test_lossguide_by_hand(run):
    nodes = table([3, 7, 7, NO_GAIN, 9], tree=[0, 1, 1, 0, 1])
    assert select(run, "lossguide", nodes, 0, 0, 0, [1, 1]) == ([0, 4], [2, 2])
    nodes["left"][4] = 5
    assert select(run, "lossguide", nodes, 3, 0, 0, [1, 1]) == ([0, 1], [2, 2]), "the older of equals; open leaves of any age"
    assert select(run, "lossguide", nodes, 0, 0, 3, [3, 2]) == ([1], [3, 3])
    nodes["depth"] = [2, 2, 1, 1, 1]
    assert select(run, "lossguide", nodes, 0, 2, 0, [1, 1]) == ([2], [1, 2])


@settings(max_examples=15)
@given(seeds, st.integers(0, MANY), st.integers(1, 4), st.sampled_from([0, 2]), st.sampled_from([0, 1, 5, 40]))
@each_runner
def test_a_selected_level_equals_the_cpu(run, seed, n_nodes, n_trees, max_depth, max_leaves):
    rng = np.random.default_rng(seed)
    trees = np.sort(rng.integers(0, n_trees, n_nodes))  # a level lies tree by tree
    nodes = table(rng.choice([NO_GAIN, 1.0, 2.0], n_nodes), depth=rng.integers(1, 3, n_nodes), tree=trees)
    arguments = nodes, int(rng.integers(0, n_nodes + 1)), max_depth, max_leaves, rng.integers(1, 6, n_trees)
    assert select(run, "depthwise", *arguments) == select_cpu("depthwise", *arguments)


@settings(max_examples=15)
@given(seeds, st.integers(0, MANY // 2), st.integers(1, 4), st.sampled_from([0, 4]), st.sampled_from([0, 20]))
@each_runner
def test_selected_leaves_are_the_best_of_their_trees(run, seed, n_splits, n_trees, max_depth, max_leaves):
    rng, nodes = np.random.default_rng(seed), random_trees(seed, n_splits, n_trees)
    is_leaf = nodes["left"] < 0
    nodes["gain"][is_leaf] = rng.choice([NO_GAIN, 1.0, 2.0, 3.0], is_leaf.sum())  # few values: many ties
    n_leaves = np.bincount(nodes["tree"][is_leaf], minlength=n_trees)
    arguments = nodes, 0, max_depth, max_leaves, n_leaves
    assert select(run, "lossguide", *arguments) == select_cpu("lossguide", *arguments)


# ---- making children


@settings(max_examples=10)
@given(seeds, st.integers(0, 50), st.integers(0, 110), st.integers(1, 2), st.booleans())
@each_runner
def test_children_equal_the_cpu(run, seed, n_splits, n_selected, n_outputs, is_constrained):
    rng, old = np.random.default_rng(seed), random_trees(seed, n_splits)
    leaves = np.flatnonzero(old["left"] < 0)
    selected = rng.permutation(leaves)[:n_selected].astype(np.int32)
    n_nodes, capacity = len(old), len(old) + 2 * len(selected) + 2
    nodes = rubbish(capacity)
    nodes[:n_nodes] = old
    nodes["lower"][:n_nodes], nodes["upper"][:n_nodes] = -rng.random(n_nodes), rng.random(n_nodes)
    sums, left_sums = rng.integers(-(2**60), 2**60, (2, capacity, n_outputs, 2))
    expected_nodes, expected_sums = nodes.copy(), sums.copy()
    nodes["feature"][:n_nodes] = expected_nodes["feature"][:n_nodes] = rng.integers(0, 3, n_nodes)
    monotone = np.array([1, 0, -1] if is_constrained else [], np.int8)
    scales, first_output = 2.0 ** rng.integers(50, 60, (4, 2)), np.array([0, 2], np.int32)
    penalty = np.array([(1.5, 0.25, 0.75, 0.0, 0.0)], PENALTY)
    penalties = [float(penalty[name][0]) for name in ("reg_lambda", "reg_alpha", "max_delta_step")]
    n.apply_splits(selected, n_nodes, expected_nodes, expected_sums, left_sums, monotone, scales, first_output, *penalties)
    progress = progress_of(n_nodes=n_nodes, n_selected=len(selected), depth=old["depth"].max())
    padded = np.append(selected, [12345]).astype(np.int32)  # what lies beyond n_selected is not read
    run(
        n.apply_splits_step.alone, padded, progress, nodes, sums, left_sums, monotone, scales, first_output, penalty, blocks=1
    )  # fmt: skip
    np.testing.assert_array_equal(nodes, expected_nodes)
    np.testing.assert_array_equal(sums, expected_sums)
    made = n_nodes + 2 * len(selected)
    assert progress[["frontier", "n_nodes"]][0].tolist() == (n_nodes, made)
    assert progress["depth"][0] == expected_nodes["depth"][:made].max()


# ---- which histograms are built


def choose_built(run, nodes, frontier, counts, begin, size, first_slot, subtract, max_depth=0):
    """(build, parents) of the nodes frontier + begin + i, i < size; ``counts`` are those of the frontier's nodes."""
    build, parents = (np.full(len(nodes) + 1, -7, np.int32) for _ in range(2))
    progress = progress_of(frontier=frontier, n_nodes=len(nodes), n_built=99)
    run(
        n.choose_built_step.alone, begin, size, max_depth, first_slot, int(subtract), progress, nodes, np.array(counts, np.int64),
        build, parents, blocks=1,
    )  # fmt: skip
    count = progress["n_built"][0]
    assert (build[count:] == -7).all() and (parents[count:] == -7).all()
    return build[:count].tolist(), parents[:count].tolist()


@each_runner
def test_the_child_with_fewer_rows_is_built_and_the_other_takes_the_parents_slot(run):
    nodes = table([0] * 6)
    nodes["slot"][:2], nodes["parent"][2:] = [3, 7], [0, 0, 1, 1]
    assert choose_built(run, nodes, 2, [9, 2, 4, 4], 0, 4, 10, True) == ([3, 4], [3, 7])
    assert nodes["slot"][2:].tolist() == [3, 10, 11, 7], "left is built on a tie"


@each_runner
def test_nodes_that_may_not_be_split_any_more_are_not_built(run):
    nodes = table([0] * 6, depth=[0, 1, 1, 1, 2, 2])
    nodes["slot"][:2], nodes["parent"][2:] = [3, 7], [0, 0, 1, 1]
    assert choose_built(run, nodes, 2, [9, 2, 4, 4], 0, 4, 10, True, max_depth=2) == ([3, -1], [3, -1])
    assert nodes["slot"].tolist() == [3, 7, 3, 10, -1, -1]
    assert choose_built(run, nodes, 2, [9, 2, 4, 4], 0, 4, 20, False, max_depth=2)[0] == [2, 3, -1, -1]
    assert nodes["slot"].tolist() == [3, 7, 20, 21, -1, -1]


@each_runner
def test_fewer_nodes_than_asked_for_are_chosen_where_there_are_no_more(run):
    nodes = table([0] * 5)
    nodes["slot"][:1], nodes["parent"][1:] = 4, 0
    assert choose_built(run, nodes, 1, [1, 2, 3, 4], 2, 64, 0, False)[0] == [3, 4]
    assert choose_built(run, nodes, 1, [1, 2, 3, 4], 2, 64, 5, True) == ([3], [4])
    assert choose_built(run, nodes, 1, [1, 2, 3, 4], 6, 64, 5, True) == ([], [])
    assert nodes["slot"].tolist() == [4, -1, -1, 5, 4]


@settings(max_examples=15)
@given(seeds, st.integers(1, 110), st.integers(0, 40), st.booleans())
@each_runner
def test_chosen_nodes_equal_the_cpu(run, seed, n_pairs, first_slot, subtract):
    rng = np.random.default_rng(seed)
    nodes = table(np.zeros(3 * n_pairs))  # parents, then their children two by two
    nodes["slot"][:n_pairs], nodes["parent"][n_pairs:] = rng.permutation(n_pairs), np.repeat(np.arange(n_pairs), 2)
    begin, end = sorted(rng.integers(0, 2 * n_pairs + 1, 2))
    if subtract:
        begin, end = begin // 2 * 2, (end + 1) // 2 * 2
    counts = rng.integers(0, 4, 3 * n_pairs)
    expected = nodes.copy()
    level = np.arange(n_pairs + begin, n_pairs + end, dtype=np.int32)
    build, parents = np.empty(len(level), np.int32), np.full(len(level), -1, np.int32)
    count = n.choose_built(level, expected, counts, first_slot, subtract, build, parents)
    chosen = choose_built(run, nodes, n_pairs, counts[n_pairs:], int(begin), int(end - begin), first_slot, subtract)
    assert chosen == (build[:count].tolist(), parents[:count].tolist())
    np.testing.assert_array_equal(nodes, expected)


# ---- pruning and sums


def penalty_of(**given):
    penalty = np.zeros(1, PENALTY)
    for name, value in given.items():
        penalty[name] = value
    return penalty


@each_runner
def test_pruning_by_hand(run):
    #        0 (gain 1)                 γ = 2: 1 is cut off, as its children are leaves; then 0 stays, as 2 keeps its split
    #     1 (1)      2 (3)
    #   3   4      5   6
    nodes = table([1, 1, 3, *[NO_GAIN] * 4], depth=[0, 1, 1, 2, 2, 2, 2])
    nodes["left"][:3], nodes["parent"][1:] = [1, 3, 5], [0, 0, 1, 1, 2, 2]
    progress = progress_of(n_nodes=7, depth=2)
    sums, others = np.ones((7, 1, 2), np.int64), (np.ones((1, 2)), np.zeros(1, np.int32))
    run(n.prune_step.alone, progress, nodes, sums, *others, penalty_of(gamma=2.0), blocks=1)
    assert nodes["left"].tolist() == [1, -1, 5, -1, -1, -1, -1]
    assert nodes["leaf"].tolist() == [0, 1, 2, 1, 1, 5, 6]
    run(n.prune_step.alone, progress, nodes, sums, *others, penalty_of(gamma=4.0), blocks=1)
    assert nodes["left"][0] == -1 and set(nodes["leaf"].tolist()) == {0}


@settings(max_examples=15)
@given(
    seeds, st.integers(0, MANY // 2), st.integers(1, 3), st.sampled_from([0.0, 1.0, 2.0, 4.0, 9.0]), st.integers(1, 2),
    st.booleans(),
)  # fmt: skip
@each_runner
def test_pruned_trees_equal_the_cpu(run, seed, n_splits, n_trees, gamma, leaf_size, has_light):
    nodes, rng = random_trees(seed, n_splits, n_trees), np.random.default_rng(seed)
    sums = rng.integers(0, 2**40, (len(nodes), leaf_size, 2))
    scales = 2.0 ** rng.integers(-3, 40, (n_trees * leaf_size, 2))
    arrays = sums, scales, np.arange(n_trees, dtype=np.int32) * leaf_size
    lightest = float(np.quantile(sums[:, :, 1], 0.2) / scales[0, 1]) if has_light else 0.0
    expected = nodes.copy()
    n.prune(len(nodes), expected, *arrays, gamma, lightest)
    progress = progress_of(n_nodes=len(nodes), depth=nodes["depth"].max())
    run(n.prune_step.alone, progress, nodes, *arrays, penalty_of(gamma=gamma, min_child_weight=lightest), blocks=1)
    np.testing.assert_array_equal(nodes, expected)


@settings(max_examples=15)
@given(seeds, st.integers(0, MANY // 2), st.integers(1, 3), st.integers(1, 2))
@each_runner
def test_sums_upwards_equal_the_cpu(run, seed, n_splits, n_trees, n_outputs):
    nodes, rng = random_trees(seed, n_splits, n_trees), np.random.default_rng(seed)
    sums = rng.integers(-(2**61), 2**61, (len(nodes), n_outputs, 2)) // len(nodes)
    sums[nodes["left"] >= 0] = 0  # rows end in leaves
    expected = sums.copy()
    n.sum_upwards(len(nodes), nodes, expected)
    run(n.sum_upwards_step.alone, progress_of(n_nodes=len(nodes), depth=nodes["depth"].max()), nodes, sums, blocks=1)
    np.testing.assert_array_equal(sums, expected)
