"""kernels/top_codes.py: rows of codes that follow each other end where a walk of each of them ends."""

import numpy as np
import pytest
from test_predict_kernel import walk_codes

from gpuboost.backend.contract import FlatTrees
from gpuboost.kernels.predict_codes import predict_codes_cpu
from gpuboost.kernels.structs import FLAT_NODE, NUMERIC
from gpuboost.kernels.top_codes import MOST_LEVELS, RUN

NO_LEAVES, ALL = np.zeros((0, 0), np.int32), np.zeros(0, np.int32)


def random_trees(rng, n_bins, depths, chance, leaf_size):
    """A tree of at most so many levels of splits for each depth; a node splits by ``chance``. Bins from the first to the last."""
    nodes, begin = [], []
    for depth in depths:
        begin.append(len(nodes))
        tree, open_nodes = [None], [(0, 0)]
        while open_nodes:
            at, level = open_nodes.pop(rng.integers(len(open_nodes)))
            if level == depth or (level > 0 and rng.random() >= chance):
                tree[at] = 0.0, -1, -1, NUMERIC, 0, -1
                continue
            feature = int(rng.integers(len(n_bins)))
            tree[at] = 0.0, feature, int(rng.integers(n_bins[feature])), NUMERIC, int(rng.integers(2)), len(tree)
            open_nodes += [(len(tree), level + 1), (len(tree) + 1, level + 1)]
            tree += [None, None]
        nodes += tree
    values = rng.normal(size=(len(nodes), leaf_size)).astype(np.float32)
    return FlatTrees(np.array(nodes, FLAT_NODE), values, np.array(begin), rng.integers(0, 2, len(depths)).astype(np.int32), None)


@pytest.mark.parametrize("dtype, n_bins", [
    (np.uint8, [1, 2, 100, 255]), (np.uint8, [256, 3, 256]), (np.uint16, [1, 300, 65535]), (np.uint32, [7, 70000]),
])  # fmt: skip
@pytest.mark.parametrize("leaf_size, chance", [(1, 1.0), (1, 0.7), (2, 0.8)])
def test_runs_end_where_walks_end(dtype, n_bins, leaf_size, chance):
    rng = np.random.default_rng(len(n_bins) * 1000 + leaf_size * 10 + int(10 * chance))
    n_bins, n_rows = np.array(n_bins, np.int32), 2 * RUN + 33
    has_missing = n_bins <= np.iinfo(dtype).max
    columns = np.stack([rng.integers(0, n + missing, n_rows) for n, missing in zip(n_bins, has_missing)]).astype(dtype)
    flat = random_trees(rng, n_bins, [*range(MOST_LEVELS + 3), 3, 0], chance, leaf_size)
    start = rng.normal(size=(1 + leaf_size, n_rows)).astype(np.float32)
    some = np.flatnonzero(rng.random(n_rows) < 0.5)
    for rows in (ALL, np.arange(n_rows), np.arange(5, 5 + RUN), rng.permutation(n_rows), np.arange(n_rows)[::-1], some):
        expected, expected_leaves = walk_codes(flat, columns, n_bins, rows if len(rows) else range(n_rows), start)
        for n_threads in (1, 3):
            margin, leaves, alone = start.copy(), np.full_like(expected_leaves, -1), start.copy()
            args = columns, n_bins, rows.astype(np.int32), *flat
            predict_codes_cpu(*args, margin, leaves, n_threads)
            np.testing.assert_array_equal(leaves, expected_leaves)
            predict_codes_cpu(*args, alone, NO_LEAVES, n_threads)
            assert margin.tobytes() == alone.tobytes() == expected.tobytes()


@pytest.mark.parametrize("n_rows", [1, RUN - 1, RUN, RUN + 1, 2 * RUN - 1, 5 * RUN])
@pytest.mark.parametrize("depths", [range(MOST_LEVELS + 1), [MOST_LEVELS + 1], []])
@pytest.mark.parametrize("leaf_size", [1, 2])
def test_trees_of_the_first_levels_alone_and_of_one_more(n_rows, depths, leaf_size):
    """All rows of a page: the last RUN may have others among them that have had their values."""
    rng = np.random.default_rng(n_rows)
    n_bins = np.array([200, 3, 256], np.int32)
    columns = np.stack([rng.integers(0, min(n + 1, 256), n_rows) for n in n_bins]).astype(np.uint8)
    flat, start = random_trees(rng, n_bins, depths, 1.0, leaf_size), rng.normal(size=(1 + leaf_size, n_rows)).astype(np.float32)
    expected, _ = walk_codes(flat, columns, n_bins, range(n_rows), start)
    for n_threads in (1, 3):
        margin = start.copy()
        predict_codes_cpu(columns, n_bins, ALL, *flat, margin, NO_LEAVES, n_threads)
        assert margin.tobytes() == expected.tobytes()
