"""kernels/nodes.py: selecting, making, pruning and numbering nodes."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuboost.kernels import nodes as n
from gpuboost.kernels.structs import NO_GAIN, NODE


def table(gains, *, depth=0, tree=0):
    """Leaves with the given gains."""
    nodes = np.zeros(len(gains), NODE)
    nodes["gain"], nodes["depth"], nodes["tree"] = gains, depth, tree
    nodes["left"] = nodes["parent"] = nodes["slot"] = -1
    return nodes


def depthwise(nodes, *, max_depth=0, max_leaves=0, n_leaves=(1,)):
    n_leaves, selected = np.array(n_leaves, np.int64), np.empty(len(nodes), np.int32)
    count = n.select_depthwise(np.arange(len(nodes), dtype=np.int32), nodes, max_depth, max_leaves, n_leaves, selected)
    return selected[:count].tolist(), n_leaves.tolist()


def lossguide(nodes, n_trees, max_depth, max_leaves):
    """(leaves to split now, nodes in the order of growth leaf by leaf as far as that is certain)."""
    selected, order = np.empty((2, len(nodes)), np.int32)
    n_selected, n_ordered = n.select_lossguide(n_trees, nodes, max_depth, max_leaves, selected, order)
    return selected[:n_selected].tolist(), order[:n_ordered].tolist()


# ---- selection


def test_depthwise_takes_every_node_with_a_split():
    assert depthwise(table([5, NO_GAIN, 1])) == ([0, 2], [3])


def test_depthwise_stops_at_the_number_of_leaves_in_order():
    assert depthwise(table([1, 5, 9]), max_leaves=3) == ([0, 1], [3])
    assert depthwise(table([1, 5, 9]), max_leaves=5, n_leaves=[4]) == ([0], [5])


def test_depth_limits_both_policies():
    assert depthwise(table([1, 2], depth=[1, 2]), max_depth=2)[0] == [0]
    assert lossguide(table([1, 2], depth=[1, 2], tree=[0, 1]), 2, 2, 0) == ([0], [0, 1])


def test_every_tree_counts_its_own_leaves():
    nodes = table([1, 2, 3, 4], tree=[0, 0, 1, 1])
    assert depthwise(nodes, max_leaves=2, n_leaves=[1, 1]) == ([0, 2], [2, 2])


def test_lossguide_by_hand():
    nodes = table([9, 3, 7, 7, 7, 1, 1])
    assert lossguide(table([NO_GAIN]), 1, 0, 0) == ([], [0])
    assert lossguide(nodes[:1], 1, 0, 1) == ([], [0]), "a leaf is enough"
    assert lossguide(nodes[:1], 1, 0, 9) == ([0], [0])
    nodes["left"][[0, 2]] = 1, 3
    assert lossguide(nodes, 1, 0, 0) == ([3, 4, 1], [0, 1, 2, 3, 4]), "the older of equals"
    assert lossguide(nodes, 1, 0, 4) == ([3], [0, 1, 2, 3, 4]), "the last one"
    nodes["gain"][1] = 8
    assert lossguide(nodes, 1, 0, 5) == ([1], [0, 1, 2]), "node 2 was split too early, perhaps"


@pytest.mark.parametrize("max_leaves", [31, 255])
def test_no_more_splits_are_too_early_than_trees_have_leaves(max_leaves):
    """The left child gains more than any leaf so far, always; each right one has a bushy subtree, better than the last."""
    size = 8 * max_leaves
    nodes = table(np.full(size, NO_GAIN))
    kind, n_nodes, n_splits = np.zeros((size, 3), np.int64), 1, 0  # whether in the chain, how far down it, levels below it
    nodes["gain"][0], kind[0] = 1e9, (1, 0, 0)
    while (selected := lossguide(nodes[:n_nodes], 1, 0, max_leaves)[0]) != []:
        for node in selected:
            in_chain, place, below = kind[node]
            children = [(1, place + 1, 0), (0, place + 1, 1)] if in_chain else [(0, place, below + 1)] * 2
            for child in children:
                kind[n_nodes] = child
                nodes["gain"][n_nodes] = 1e9 + child[1] if child[0] else 10 + child[1] if child[2] < 12 else NO_GAIN
                n_nodes += 1
            nodes["left"][node] = n_nodes - 2
        n_splits += len(selected)
    order = lossguide(nodes[:n_nodes], 1, 0, max_leaves)[1]
    assert len(order) == 2 * max_leaves - 1 and kind[order, 0].sum() == max_leaves
    assert 1.5 * max_leaves < n_splits <= 2 * max_leaves


def leaf_by_leaf(root, max_depth, max_leaves):
    """The text of the policy, in plain Python: (parent, gain) of every node as made. root : (gain, children or None)."""
    made, leaves = [(-1, root[0])], [(root, 0)]
    while leaves and (max_leaves == 0 or len(leaves) < max_leaves):
        open_leaves = [
            (at, node) for at, (node, depth) in enumerate(leaves) if node[1] is not None and (max_depth == 0 or depth < max_depth)
        ]
        if not open_leaves:
            break
        best = max(node[0] for _, node in open_leaves)
        at = min((node[2], at) for at, node in open_leaves if node[0] == best)[1]
        node, depth = leaves.pop(at)
        for child in node[1]:
            child[2] = len(made)
            made.append((node[2], child[0]))
            leaves.append((child, depth + 1))
    return made


def random_gains(rng, depth):
    """[gain, children, number] of a node of a tree that could grow to some depth: few values, so that many are equal."""
    if depth == 0 or rng.random() < 0.1:
        return [NO_GAIN, None, 0]
    return [float(rng.integers(1, 6)), (random_gains(rng, depth - 1), random_gains(rng, depth - 1)), 0]


@settings(max_examples=60)
@given(st.integers(0, 2**32), st.integers(1, 3), st.sampled_from([0, 3, 6]), st.sampled_from([0, 1, 2, 3, 7, 20, 60]))
def test_what_is_split_too_early_leaves_the_trees_of_growth_leaf_by_leaf(seed, n_trees, max_depth, max_leaves):
    roots = [random_gains(np.random.default_rng([seed, tree]), 8) for tree in range(n_trees)]
    nodes, known, n_steps = table([root[0] for root in roots], tree=np.arange(n_trees)), list(roots), 0
    while (selected := lossguide(nodes, n_trees, max_depth, max_leaves)[0]) != []:
        assert len(set(selected)) == len(selected) and (nodes["left"][selected] == -1).all()
        for node in selected:
            left, children = len(known), known[node][1]
            children_nodes = table([child[0] for child in children], depth=nodes["depth"][node] + 1, tree=nodes["tree"][node])
            children_nodes["parent"], nodes["left"][node] = node, left
            nodes, known = np.concatenate([nodes, children_nodes]), [*known, *children]
        n_steps += 1
        assert n_steps < max_leaves or max_leaves == 0, "a leaf a step at least"
    order = lossguide(nodes, n_trees, max_depth, max_leaves)[1]
    numbers = {node: [own for own in order if nodes["tree"][own] == nodes["tree"][node]].index(node) for node in order}
    for tree, root in enumerate(roots):
        own = [node for node in order if nodes["tree"][node] == tree]
        parents = [nodes["parent"][node] for node in own]
        grown = [(-1 if parent < 0 else numbers[parent], nodes["gain"][node]) for node, parent in zip(own, parents)]
        assert grown == leaf_by_leaf(root, max_depth, max_leaves)


def test_few_steps_make_many_leaves():
    """Where gains below a node are part of its own, half as many as there are splits; a third of those in vain at most, ever."""
    for seed in range(5):
        rng, nodes, n_steps = np.random.default_rng(seed), table([1.0]), 0
        while (selected := lossguide(nodes, 1, 0, 255)[0]) != []:
            nodes["left"][selected] = len(nodes) + 2 * np.arange(len(selected))
            children = table(np.repeat(nodes["gain"][selected], 2) * rng.random(2 * len(selected)))
            nodes, n_steps = np.concatenate([nodes, children]), n_steps + 1
        assert n_steps <= 254 // 2 and (nodes["left"] >= 0).sum() <= 254 * 4 // 3


# ---- making children


def split(selected, n_nodes, nodes, sums, left_sums, *, monotone=(), scales=((1.0, 1.0),), reg_lambda=1.0):
    """Adapter: apply_splits."""
    n.apply_splits(
        np.array(selected, np.int32), n_nodes, nodes, sums, left_sums, np.array(monotone, np.int8), np.array(scales),
        np.arange(len(scales), dtype=np.int32), reg_lambda, 0.0, 0.0,
    )  # fmt: skip


@pytest.mark.parametrize("monotone, left, right", [
    ((), (-1, 2), (-1, 2)),
    ((1, 0, -1), (-1, 2), (-1, 2)),  # of other features
    ((0, 1, 0), (-1, 0.5), (0.5, 2)),
    ((0, -1, 0), (0.5, 2), (-1, 0.5)),
])  # fmt: skip
def test_children_of_a_constrained_split_are_parted_by_the_middle_of_their_weights(monotone, left, right):
    """Within [−1, 2], λ = 1: the left child (6, 2) weighs −2, held at −1; the right one (−12, 3) weighs 3, held at 2."""
    nodes, sums, left_sums = np.zeros(3, NODE), np.zeros((3, 1, 2), np.int64), np.zeros((3, 1, 2), np.int64)
    nodes[:1] = table([4.0], tree=1)
    nodes[0]["lower"], nodes[0]["upper"], nodes[0]["feature"] = -1, 2, 1
    sums[0], left_sums[0] = [[-24, 20]], [[24, 8]]  # in units of 1/4
    split([0], 1, nodes, sums, left_sums, monotone=monotone, scales=[(1.0, 1.0), (4.0, 4.0)])
    assert [(child["lower"], child["upper"]) for child in nodes[1:]] == [left, right]


def test_children_inherit_and_share_the_sums():
    nodes = np.zeros(5, NODE)
    nodes[:1] = table([4.0], depth=2, tree=0)
    nodes[0]["lower"], nodes[0]["upper"] = -1, 2
    sums, left_sums = np.zeros((5, 2, 2), np.int64), np.zeros((5, 2, 2), np.int64)
    sums[0], left_sums[0] = [[10, 20], [30, 40]], [[4, 5], [-6, 7]]
    split([0], 1, nodes, sums, left_sums)
    assert nodes["left"][0] == 1
    for child in nodes[1:3]:
        assert (child["gain"], child["lower"], child["upper"]) == (NO_GAIN, -1, 2)
        assert [child[f] for f in ("tree", "parent", "left", "depth", "slot")] == [0, 0, -1, 3, -1]
    assert sums[1].tolist() == [[4, 5], [-6, 7]] and sums[2].tolist() == [[6, 15], [36, 33]]


def test_children_are_numbered_in_the_order_of_selection():
    nodes = np.zeros(7, NODE)
    nodes[:3] = table([1, 2, 3], tree=[0, 1, 1])
    sums = np.zeros((7, 1, 2), np.int64)
    split([2, 0], 3, nodes, sums, sums.copy(), scales=[(1.0, 1.0)] * 2)
    assert nodes["left"][:3].tolist() == [5, -1, 3] and nodes["parent"][3:].tolist() == [2, 2, 0, 0]
    assert nodes["tree"][3:].tolist() == [1, 1, 0, 0]


# ---- which histograms are built


def choose(frontier, nodes, counts, first_slot, subtract):
    build, parents = np.empty(len(frontier), np.int32), np.empty(len(frontier), np.int32)
    count = n.choose_built(np.array(frontier, np.int32), nodes, np.array(counts, np.int64), first_slot, subtract, build, parents)
    return build[:count].tolist(), parents[:count].tolist()


def test_without_parents_every_node_is_built():
    nodes = table([0, 0, 0])
    assert choose([0, 2], nodes, [0, 0, 0], 5, False)[0] == [0, 2]
    assert nodes["slot"].tolist() == [5, -1, 6]


def test_the_child_with_fewer_rows_is_built_and_the_other_takes_the_parents_slot():
    nodes = table([0] * 6)
    nodes["slot"][:2], nodes["parent"][2:] = [3, 7], [0, 0, 1, 1]
    assert choose([2, 3, 4, 5], nodes, [0, 0, 9, 2, 4, 4], 10, True) == ([3, 4], [3, 7])
    assert nodes["slot"][2:].tolist() == [3, 10, 11, 7], "left is built on a tie"


# ---- pruning


def random_trees(seed, n_splits, n_trees=2):
    """A table of nodes as growth makes it."""
    rng = np.random.default_rng(seed)
    nodes = np.zeros(n_trees + 2 * n_splits, NODE)
    nodes[:n_trees] = table(np.full(n_trees, NO_GAIN), tree=np.arange(n_trees))
    count = n_trees
    sums = np.zeros((len(nodes), 1, 2), np.int64)
    for _ in range(n_splits):
        leaf = rng.choice(np.flatnonzero(nodes["left"][:count] < 0))
        nodes[leaf]["gain"] = rng.integers(0, 6)
        split([leaf], count, nodes, sums, sums.copy())
        count += 2
    return nodes


def pruned_by_recursion(nodes, gamma):
    """{node: leaf its rows end in}, by the definition: children first."""
    left = nodes["left"].tolist()

    def visit(node):
        if left[node] < 0:
            return
        visit(left[node]), visit(left[node] + 1)
        if left[left[node]] < 0 and left[left[node] + 1] < 0 and nodes["gain"][node] < gamma:
            left[node] = -1

    def end(node):
        path = [node]
        while nodes["parent"][path[-1]] >= 0:
            path.append(int(nodes["parent"][path[-1]]))
        return next(a for a in path[::-1] if left[a] < 0 or a == node)

    for root in np.flatnonzero(nodes["parent"] < 0):
        visit(int(root))
    return left, [end(node) for node in range(len(nodes))]


def prune(nodes, gamma, hess=None, min_child_weight=0.0):
    """hess : (n_nodes,), of each node; nothing is too light without."""
    sums = np.zeros((len(nodes), 1, 2), np.int64)
    sums[:, 0, 1] = 4 * np.ones(len(nodes)) if hess is None else 4 * np.asarray(hess)
    n_trees = int(nodes["tree"].max(initial=0)) + 1
    scales, first_output = np.tile([1.0, 4.0], (n_trees, 1)), np.arange(n_trees, dtype=np.int32)
    n.prune(len(nodes), nodes, sums, scales, first_output, gamma, min_child_weight)


def test_pruning_by_hand():
    #        0 (gain 1)                 γ = 2: 1 is cut off, as its children are leaves; then 0 stays, as 2 keeps its split
    #     1 (1)      2 (3)
    #   3   4      5   6
    nodes = table([1, 1, 3, *[NO_GAIN] * 4])
    nodes["left"][:3], nodes["parent"][1:] = [1, 3, 5], [0, 0, 1, 1, 2, 2]
    prune(nodes, 2.0)
    assert nodes["left"].tolist() == [1, -1, 5, -1, -1, -1, -1]
    assert nodes["leaf"].tolist() == [0, 1, 2, 1, 1, 5, 6]
    prune(nodes, 4.0)
    assert nodes["left"][0] == -1 and set(nodes["leaf"].tolist()) == {0}


def test_a_split_with_a_child_too_light_is_undone_with_all_below():
    #        0 (H = 10)                 1 is too light by its exact sum: 0 ends as a leaf, though 2 would keep its split
    #     1 (2)      2 (8)
    #              3 (4)  4 (4)
    nodes = table([9, NO_GAIN, 9, NO_GAIN, NO_GAIN])
    nodes["left"][[0, 2]], nodes["parent"][1:] = [1, 3], [0, 0, 2, 2]
    prune(nodes, 0.0, [10, 2, 8, 4, 4], min_child_weight=2.0)
    assert nodes["left"].tolist() == [1, -1, 3, -1, -1]
    prune(nodes, 0.0, [10, 2, 8, 4, 4], min_child_weight=2.25)
    assert nodes["left"][0] == -1 and nodes["leaf"].tolist() == [0] * 5
    new_ids, n_kept = number(nodes)
    assert new_ids.tolist() == [0, -1, -1, -1, -1] and n_kept.tolist() == [1]


@pytest.mark.parametrize("gamma, is_kept", [(3.0, True), (np.nextafter(3.0, 4), False)])
def test_a_gain_of_exactly_gamma_stays(gamma, is_kept):
    nodes = table([3.0, NO_GAIN, NO_GAIN])
    nodes["left"][0], nodes["parent"][1:] = 1, 0
    prune(nodes, gamma)
    assert nodes["left"][0] == (1 if is_kept else -1)


@settings(max_examples=80)
@given(st.integers(0, 2**32), st.integers(0, 15), st.sampled_from([0.0, 1.0, 2.0, 4.0, 9.0]))
def test_pruning_equals_the_recursive_definition(seed, n_splits, gamma):
    nodes = random_trees(seed, n_splits)
    left, leaf = pruned_by_recursion(nodes, gamma)
    prune(nodes, gamma)
    assert nodes["left"].tolist() == left
    is_end = [left[a] < 0 for a in leaf]  # rows end in leaves only; an inner node's own entry is not used
    assert [a for a, e in zip(nodes["leaf"].tolist(), is_end) if e] == [a for a, e in zip(leaf, is_end) if e]


# ---- numbering and sums


def number(nodes):
    new_ids, n_kept = np.empty(len(nodes), np.int32), np.zeros(nodes["tree"].max() + 1, np.int32)
    n.number_kept(np.array([0, len(nodes)]), np.array([0, len(n_kept)]), nodes, new_ids, n_kept)
    return new_ids, n_kept


@settings(max_examples=80)
@given(st.integers(0, 2**32), st.integers(0, 15), st.sampled_from([0.0, 2.0, 4.0]))
def test_kept_nodes_are_numbered_without_gaps_and_siblings_are_adjacent(seed, n_splits, gamma):
    nodes = random_trees(seed, n_splits)
    prune(nodes, gamma)
    new_ids, n_kept = number(nodes)
    reachable = [node for node in range(len(nodes)) if nodes["parent"][node] < 0]
    for node in reachable:  # grows while it is walked
        if nodes["left"][node] >= 0:
            reachable += [nodes["left"][node], nodes["left"][node] + 1]
    assert set(np.flatnonzero(new_ids >= 0)) == set(reachable)
    for tree in range(2):
        own = new_ids[(nodes["tree"] == tree) & (new_ids >= 0)]
        assert own.tolist() == list(range(n_kept[tree])), "in creation order, the root first"
    for node in reachable:
        if nodes["left"][node] >= 0:
            assert new_ids[nodes["left"][node] + 1] == new_ids[nodes["left"][node]] + 1


@settings(max_examples=40)
@given(st.integers(0, 2**32), st.integers(0, 15))
def test_sums_upwards_are_the_sums_of_the_leaves_below(seed, n_splits):
    nodes = random_trees(seed, n_splits)
    is_leaf = nodes["left"] < 0
    own = np.random.default_rng(seed).integers(-(2**61), 2**61, (len(nodes), 2, 2)) // 16 * is_leaf[:, None, None]
    expected = own.copy()
    for node in np.flatnonzero(is_leaf):
        above = nodes["parent"][node]
        while above >= 0:
            expected[above] += own[node]
            above = nodes["parent"][above]
    n.sum_upwards(len(nodes), nodes, own)
    np.testing.assert_array_equal(own, expected)
