"""backend/trees.py: from the table of nodes to trees, and from trees to the flat layout of prediction."""

from dataclasses import replace

import numpy as np
import pytest

from gpuboost.backend.trees import Grown, collect_trees, flatten_trees
from gpuboost.binned.cuts import SENTINEL, Cuts
from gpuboost.kernels.leaves import flatten_trees_cpu
from gpuboost.kernels.structs import CATEGORICAL, FLAT_NODE, NODE, NUMERIC

CUTS = Cuts(np.array([1, 2, SENTINEL, 5, SENTINEL], np.float32), np.array([0, 3, 5], np.int32), np.zeros(2, bool), 256)
COVERS = 100 * np.arange(8.0)


def grown_nodes():
    """Two trees: node 0 splits on x₁ < 5 into 2 and 3, node 2 on x₀ < 2 into 4 and 5; the split of 3 into 6, 7 was pruned."""
    nodes = np.zeros(8, NODE)
    nodes["left"] = nodes["parent"] = -1
    nodes["tree"][1] = 1
    splits = [(0, 2, 1, 0, 9.0, 1), (2, 4, 0, 1, 7.0, 0), (3, 6, 0, 0, 1.0, 1)]
    for parent, left, feature, split_bin, gain, default_left in splits:
        nodes["left"][parent], nodes["feature"][parent], nodes["bin"][parent] = left, feature, split_bin
        nodes["gain"][parent], nodes["default_left"][parent] = gain, default_left
        nodes["parent"][left : left + 2] = parent
    nodes["left"][3] = -1
    return nodes


def grown(covers=COVERS):
    """The same, collected."""
    nodes = grown_nodes()
    values = np.arange(8, dtype=np.float32)[:, None]
    return collect_trees([Grown(2, nodes, values, values * 10, covers)], CUTS)


def test_collected_trees_have_no_gaps():
    tree, leaf = grown()
    assert tree.left_child.tolist() == [1, 3, -1, -1, -1] and tree.parent.tolist() == [-1, 0, 0, 1, 1]
    assert tree.feature.tolist() == [1, 0, 0, 0, 0] and tree.threshold.tolist() == [5, 2, 0, 0, 0]
    assert tree.default_left.tolist() == [1, 0, 0, 0, 0] and tree.gain.tolist() == [9, 7, 0, 0, 0]
    assert tree.leaf_value.tolist() == [0, 0, 3, 4, 5] and tree.weight.tolist() == [0, 20, 30, 40, 50]
    assert tree.cover.tolist() == [0, 200, 300, 400, 500]
    assert leaf.n_nodes == 1 and leaf.leaf_value.tolist() == [1]


def test_covers_are_rounded_to_32_bits_within_their_range():
    tree, _ = grown(np.array([1e39, 0, 1 / 3, 1e-30, 2.0**24 + 1, 0, 0, 0]))
    assert tree.cover.dtype == np.float32 and tree.cover.tolist() == np.float32([3.4028235e38, 1 / 3, 1e-30, 2.0**24, 0]).tolist()


def test_flat_trees_lie_one_after_another():
    flat = flatten_trees(grown(), [0, 1])
    nodes, leaf_values = flat.nodes, flat.leaf_values
    assert flat.first_node.tolist() == [0, 5] and flat.first_output.tolist() == [0, 1]
    assert nodes["feature"].tolist() == [1, 0, -1, -1, -1, -1] and nodes["threshold"].tolist() == [5, 2, 0, 0, 0, 0]
    assert leaf_values.tolist() == [[0], [0], [3], [4], [5], [1]] and leaf_values.dtype == np.float32
    assert nodes["left"].tolist() == [1, 3, -1, -1, -1, -1] and nodes["default_left"].tolist() == [1, 0, 0, 0, 0, 0]
    assert (nodes["bin"] == -1).all() and (nodes["kind"] == NUMERIC).all()


def flattened(nodes):
    flat = np.empty(len(nodes), FLAT_NODE)
    flatten_trees_cpu(nodes, CUTS.thresholds, CUTS.offsets, 4, flat)
    return flat


def test_grown_trees_keep_their_places():
    """A leaf and what was pruned say nothing of a split that was found there. A set lies where its node's words do."""
    nodes = grown_nodes()
    nodes["kind"][[0, 3]] = CATEGORICAL
    flat = flattened(nodes)
    assert flat["feature"].tolist() == [1, -1, 0, -1, -1, -1, -1, -1] and flat["left"].tolist() == [2, -1, 4, -1, -1, -1, -1, -1]
    assert flat["threshold"].tolist() == [0, 0, 2, 0, 0, 0, 0, 0] and flat["bin"].tolist() == [0, -1, 1, -1, -1, -1, -1, -1]
    assert flat["kind"].tolist() == [CATEGORICAL, *[NUMERIC] * 7] and flat["default_left"].tolist() == [1, 0, 0, 0, 0, 0, 0, 0]
    nodes["kind"][2] = CATEGORICAL
    assert flattened(nodes)["bin"].tolist() == [0, -1, 8, -1, -1, -1, -1, -1]


def test_collected_sets_are_those_of_the_nodes_that_are_left():
    """Of the nodes 0 and 2, which become 0 and 1, and of a leaf."""
    nodes, cats = grown_nodes(), np.zeros((8, 3), np.uint32)
    nodes["kind"][[0, 2, 3]], cats[:, 0] = CATEGORICAL, 64
    cats[0, 1:], cats[2, 1:], cats[3, 1:] = [5, 1 << 31], [0, 2], [7, 7]
    values = np.zeros((8, 1), np.float32)
    cuts = replace(CUTS, categorical=np.array([True, True]))
    tree, leaf = collect_trees([Grown(2, nodes, values, values, COVERS, cats)], cuts)
    assert {node: categories.tolist() for node, categories in tree.sets.items()} == {0: [0, 2, 63], 1: [33]} and leaf.sets is None
    assert tree.threshold[:2].tolist() == [0, 0] and tree.sets.nodes.dtype == tree.sets.categories.dtype == np.int32
    enough = CUTS.with_categories(np.array([64, 64]))
    assert flatten_trees([tree], [0]).sets.tolist() == [64, 5, 1 << 31, 64, 0, 2]
    assert flatten_trees([tree], [0], enough).sets.tolist() == [64, 5, 1 << 31, 64, 0, 2]
    for too_few in (CUTS, cuts, CUTS.with_categories(np.array([64, 63]))):
        with pytest.raises(ValueError, match="column 1: a split of the model is a set of categories, which codes"):
            flatten_trees([tree], [0], too_few)
    with pytest.raises(ValueError, match="column 0: a split of the model is a set of categories, which codes"):
        flatten_trees([tree], [0], CUTS.with_categories(np.array([33, 64])))


def test_thresholds_are_given_as_bins_of_the_cuts():
    assert flatten_trees(grown(), [0, 1], CUTS).nodes["bin"].tolist() == [0, 1, -1, -1, -1, -1]


def test_the_split_of_all_present_values_is_the_last_bin():
    tree, _ = grown()
    tree.threshold[0] = SENTINEL
    assert flatten_trees([tree], [0], CUTS).nodes["bin"][0] == 1


def test_a_threshold_that_is_no_cut_is_refused_for_codes():
    tree, _ = grown()
    tree.threshold[1] = 1.5
    with pytest.raises(ValueError, match="column 0: a threshold of the model is not a cut"):
        flatten_trees([tree], [0], CUTS)
    assert flatten_trees([tree], [0]).nodes["threshold"][1] == 1.5


def test_no_trees_are_laid_out_as_nothing():
    *arrays, sets = flatten_trees([], [])
    assert [len(array) for array in arrays] == [0, 0, 0, 0] and sets is None
