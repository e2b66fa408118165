"""kernels/proposals.py on CUDA: the candidates of the CPU twin, exactly."""

import numpy as np
import pytest
from cuda_runners import each_runner, progress_of
from hypothesis import given, settings
from hypothesis import strategies as st
from test_proposals import SIZES, propose_one

from gpuboost.kernels.proposals import propose_candidates_kernel
from gpuboost.kernels.structs import NODE

UNTOUCHED = 77
FRONTIER = 2  # nodes before those that propose


def propose_with(run, nodes_hess, n_candidates, *, by_tree=0, tree=0, max_depth=0, depth=0, batch=None, n_outputs=1):
    """Adapter: uint8 (n_rows, total_bins). nodes_hess : per node a list of features, each a list of hessians.

    Rows are by node, or by tree; rows of nodes that propose nothing keep UNTOUCHED. With several outputs the last has the weight.
    """
    n, batch = len(nodes_hess), batch or len(nodes_hess) + 1
    offsets = np.cumsum([0, *(len(hess) for hess in nodes_hess[0])]).astype(np.int32)
    hist = np.zeros((n, n_outputs, offsets[-1], 2), np.int64)
    hist[::-1, -1, :, 1] = [np.concatenate(node) for node in nodes_hess]
    nodes, own = np.zeros(FRONTIER + n + batch, NODE), slice(FRONTIER, FRONTIER + n)
    nodes["slot"] = -1
    nodes["slot"][own], nodes["tree"][own], nodes["depth"][own] = np.arange(n)[::-1], tree, depth
    progress = progress_of(frontier=FRONTIER, n_nodes=FRONTIER + n)
    proposed = np.full((n, offsets[-1]), UNTOUCHED, np.uint8)
    for begin in range(0, n, batch):
        run(
            propose_candidates_kernel, begin, batch, max_depth, by_tree, n_candidates, progress, nodes, hist, offsets, proposed,
            warps=batch * (len(offsets) - 1),
        )  # fmt: skip
    return proposed if by_tree else proposed[::-1]


def by_cpu(nodes_hess, n_candidates):
    rows = []
    for node in nodes_hess:
        marks = [np.isin(np.arange(len(hess)), propose_one(hess, n_candidates)) for hess in node]
        rows.append(np.concatenate(marks))
    return np.array(rows, np.uint8)


def check(run, nodes_hess, n_candidates, **options):
    np.testing.assert_array_equal(propose_with(run, nodes_hess, n_candidates, **options), by_cpu(nodes_hess, n_candidates))


@each_runner
@pytest.mark.parametrize("hess, n_candidates, expected", [
    ([5, 5, 5, 5, 5, 5, 5, 5], 4, [1, 3, 5, 7]),
    ([1, 1, 90, 2, 3, 3], 4, [1, 2, 4, 5]),  # 90 is heavy: it, and the bin before
    ([8, 2, 5, 19, 3, 3, 10, 10], 6, [1, 2, 3, 5, 6, 7]),  # 19 passes two multiples of 10
])  # fmt: skip
def test_by_hand(run, hess, n_candidates, expected):
    assert np.flatnonzero(propose_with(run, [[hess]], n_candidates)[0]).tolist() == expected


@each_runner
@pytest.mark.parametrize("gap", [0, 30, 31, 32, 70])
def test_the_bin_before_a_heavy_one_may_lie_tiles_back(run, gap):
    hess = [3, 3, 3, *[0] * gap, 500, 1, 1]
    marks = propose_with(run, [[hess]], 4)[0]
    assert marks[[2, 3 + gap]].all()
    check(run, [[hess]], 4)


@each_runner
@pytest.mark.parametrize("n_outputs", [1, 2])
def test_features_of_any_size(run, n_outputs):
    rng = np.random.default_rng(4)
    features = [rng.integers(0, 2**rng.integers(1, 50), n).tolist() for n in (1, 31, 32, 33, 100)]
    for n_candidates in (2, 9, 40):
        check(run, [features], n_candidates, n_outputs=n_outputs)


@settings(max_examples=40)
@given(st.lists(SIZES, min_size=1, max_size=70), st.integers(2, 40), st.booleans())
@each_runner
def test_random_hessians_equal_the_cpu(run, hess, n_candidates, is_sorted):
    check(run, [[sorted(hess) if is_sorted else hess]], n_candidates)


@each_runner
def test_batches_trees_and_depths(run):
    rng = np.random.default_rng(5)
    nodes = [[rng.integers(0, 9, n).tolist() for n in (20, 5)] for _ in range(4)]
    expected = by_cpu(nodes, 3)
    check(run, nodes, 3, batch=3)
    np.testing.assert_array_equal(propose_with(run, nodes, 3, by_tree=1, tree=[2, 0, 3, 1])[[2, 0, 3, 1]], expected)
    marks = propose_with(run, nodes, 3, max_depth=2, depth=[1, 2, 1, 3])
    np.testing.assert_array_equal(marks[[0, 2]], expected[[0, 2]])
    assert (marks[[1, 3]] == UNTOUCHED).all()
