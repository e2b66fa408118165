"""kernels/column_sampling.py on CUDA: the same masks as mask_features_cpu."""

import numpy as np
import pytest
from cuda_runners import each_runner, progress_of
from hypothesis import given, settings
from hypothesis import strategies as st
from test_column_sampling import NO_WEIGHTS, SETS, grown, masks, members, path

from gpuboost.backend.fixed_point import round_key
from gpuboost.kernels.column_sampling import mask_features_kernel
from gpuboost.kernels.structs import NODE

UNTOUCHED = 77


def masks_with(
    run, nodes, n_features, n_level, n_node, *, first, batch=4, sets=(), weights=NO_WEIGHTS, features=None, seed=1,
    round_number=0, max_depth=0,
):  # fmt: skip
    """As test_column_sampling.masks for all nodes from ``first`` on, by the CUDA kernel in batches. The last one asks for more
    nodes than there are."""
    features = np.arange(n_features) if features is None else np.asarray(features)
    progress = progress_of(frontier=first, n_nodes=len(nodes), seed=seed, round=round_number)
    there = np.concatenate([nodes, np.full(batch, nodes[0], NODE)])
    member = members(sets, n_features) if sets else np.zeros((0, 1), np.uint32)
    by_feature = np.zeros((len(nodes) - first, n_features), np.uint8)
    for begin in range(0, len(nodes) - first, batch):
        mask = np.full((batch + 1, len(features)), UNTOUCHED, np.uint8)
        run(
            mask_features_kernel, begin, batch, max_depth, n_level, n_node, progress, there, features.astype(np.int32),
            np.asarray(weights, np.float32), member, mask, blocks=batch,
        )  # fmt: skip
        own = by_feature[begin : begin + batch]
        own[:, features] = mask[: len(own)]
        assert (mask[len(own) :] == UNTOUCHED).all()
    return by_feature


def check(run, nodes, n_features, n_level, n_node, *, first=0, seed=1, round_number=0, **arguments):
    actual = masks_with(run, nodes, n_features, n_level, n_node, first=first, seed=seed, round_number=round_number, **arguments)
    arguments.pop("batch", None)
    key, frontier = round_key(seed, round_number), range(first, len(nodes))
    expected = masks(nodes, n_features, n_level, n_node, frontier=frontier, key=key, **arguments)
    np.testing.assert_array_equal(actual, expected)
    return actual


@pytest.mark.sweep(2)
@each_runner
@pytest.mark.parametrize("weights", [NO_WEIGHTS, np.arange(64) % 5], ids=["equal", "weighted"])
def test_half_of_half_of_half(run, weights):
    tree = np.flatnonzero(np.arange(64) % 2)
    found = check(run, grown(2), 64, 16, 8, features=tree, weights=weights)
    assert found.sum(axis=1).tolist() == [8] * 7


@each_runner
@pytest.mark.parametrize("above", [(), (1,), (5,), (2, 1), (0, 4), (3, 4, 3)])
def test_what_may_follow_a_path(run, above):
    nodes, last = path(*above)
    check(run, nodes, 6, 6, 6, sets=SETS, first=max(last - 1, 0))


@each_runner
def test_only_nodes_of_the_frontier_that_may_be_split(run):
    nodes = grown(3, n_trees=2)
    check(run, nodes, 10, 5, 2, first=6, batch=3)
    shallow = masks_with(run, nodes, 10, 5, 2, first=2, max_depth=2)
    expected = masks(nodes, 10, 5, 2, frontier=range(2, len(nodes)), key=round_key(1, 0))
    is_shallow = nodes["depth"][2:] < 2
    np.testing.assert_array_equal(shallow[is_shallow], expected[is_shallow])
    assert (shallow[~is_shallow] == UNTOUCHED).all()


@pytest.mark.sweep(1)
@settings(max_examples=8)
@given(
    st.integers(0, 2**32), st.integers(-(2**63), 2**63 - 1), st.integers(0, 1000), st.integers(1, 70), st.integers(1, 3),
    st.booleans(), st.integers(0, 40),
)  # fmt: skip
@each_runner
def test_random_masks_equal_the_cpu(run, random, seed, round_number, n_features, n_trees, is_weighted, n_sets):
    rng = np.random.default_rng(random)
    features = np.flatnonzero(rng.random(n_features) < 0.8) if n_features > 1 else np.arange(1)
    features = features if len(features) else np.arange(n_features)
    n_level = int(rng.integers(1, len(features) + 1))
    n_node = int(rng.integers(1, n_level + 1))
    nodes = grown(2, n_trees=n_trees)
    nodes["feature"] = rng.choice(features, len(nodes))
    sets = [rng.choice(n_features, rng.integers(1, min(n_features, 4) + 1), replace=False) for _ in range(n_sets)]
    weights = rng.choice([0.0, 1e-40, 0.3, 1.0, 3e38], n_features) if is_weighted else NO_WEIGHTS
    seed &= 2**64 - 1
    check(
        run, nodes, n_features, n_level, n_node, first=n_trees, batch=100, sets=sets, weights=weights, features=features,
        seed=seed, round_number=round_number,
    )  # fmt: skip
