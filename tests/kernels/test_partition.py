"""kernels/partition.py: a split node's rows go to its children, in order."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuboost.kernels import partition
from gpuboost.kernels.structs import CATEGORICAL, NODE


def split_nodes(n_nodes, splits):
    """(nodes, cats) of n_nodes and the children of those that are split. splits : as split_rows."""
    nodes, cats = np.zeros(n_nodes + 2 * len(splits), NODE), np.zeros((n_nodes + 2 * len(splits), 9), np.uint32)
    for i, (node, (feature, split_bin, default_left)) in enumerate(splits.items()):
        nodes[node]["feature"], nodes[node]["default_left"], nodes[node]["left"] = feature, default_left, n_nodes + 2 * i
        if isinstance(split_bin, set):
            nodes[node]["kind"] = CATEGORICAL
            cats[node, 1:] = [sum(1 << c % 32 for c in split_bin if c // 32 == word) for word in range(8)]
        else:
            nodes[node]["bin"] = split_bin
    return nodes, cats


def split_rows(columns, n_bins, rows_of, splits, n_threads=1):
    """Adapter: ({child: rows}, segments, rows) after splitting some leaves.

    rows_of : the rows of nodes 0, 1, …, all in buffer 0.
    splits : {node: (feature, bin or the set of categories that go right, default_left)}; children are numbered on.
    """
    n_nodes = len(rows_of)
    nodes, cats = split_nodes(n_nodes, splits)
    segments, ends = np.zeros((len(nodes), 3), np.int64), np.cumsum([0, *map(len, rows_of)])
    segments[:n_nodes, 0], segments[:n_nodes, 1] = ends[:-1], ends[1:]
    flat = np.concatenate([np.empty(0, np.int32), *rows_of])
    rows = np.stack([flat, np.full_like(flat, -1)]).astype(np.int32)
    selected = np.array(list(splits), np.int32)
    chunks = partition.list_chunks(selected, segments, n_threads)
    is_left = np.full(len(flat), 255, np.uint8)
    n_bins = np.asarray(n_bins, np.int32)
    partition.mark_rows_cpu(selected, nodes, cats, chunks, columns, n_bins, rows, segments, is_left, n_threads)
    counts = np.arange(len(nodes))
    partition.place_children(selected, nodes, chunks, segments, counts)
    np.testing.assert_array_equal((counts - np.arange(len(nodes)))[n_nodes:], (segments[:, 1] - segments[:, 0])[n_nodes:])
    partition.move_rows_cpu(selected, nodes, chunks, rows, segments, is_left, n_threads)
    children = range(n_nodes, len(nodes))
    return {c: rows[segments[c, 2], segments[c, 0] : segments[c, 1]].tolist() for c in children}, segments, rows


def test_ten_rows_by_hand():
    #  rows 0…9 of one node; codes 0 1 2 0 1 2 0 1 2 0; bins up to 0 go left
    columns = np.array([[0, 1, 2] * 3 + [0]], np.uint8)
    children, segments, rows = split_rows(columns, [3], [range(10)], {0: (0, 0, 0)})
    assert children == {1: [0, 3, 6, 9], 2: [1, 2, 4, 5, 7, 8]}
    assert segments[1:].tolist() == [[0, 4, 1], [4, 10, 1]], "children are written to the other buffer"
    assert rows[0].tolist() == list(range(10)), "the parent's rows stay"


@pytest.mark.parametrize("default_left, expected", [(0, {1: [0], 2: [1, 2, 3]}), (1, {1: [0, 2], 2: [1, 3]})])
def test_missing_rows_follow_the_default(default_left, expected):
    columns = np.array([[0, 1, 2, 1]], np.uint8)  # 2 bins: code 2 is missing
    assert split_rows(columns, [2], [range(4)], {0: (0, 0, default_left)})[0] == expected


def test_the_last_bin_parts_present_from_missing():
    columns = np.array([[0, 1, 2, 1]], np.uint8)
    assert split_rows(columns, [2], [range(4)], {0: (0, 1, 0)})[0] == {1: [0, 1, 3], 2: [2]}


@pytest.mark.parametrize("default_left, missing_side", [(0, 2), (1, 1)])
def test_categories_of_the_set_go_right(default_left, missing_side):
    codes = np.array([[0, 3, 31, 32, 63, 64, 200, 255]], np.uint8)  # 255 bins: code 255 is missing
    children = split_rows(codes, [255], [range(8)], {0: (0, {3, 32, 63, 200}, default_left)})[0]
    expected = {1: [0, 2, 5], 2: [1, 3, 4, 6]}
    expected[missing_side].append(7)
    assert children == expected


def test_only_the_selected_nodes_are_split():
    columns = np.array([[0, 1, 0, 1, 0, 1]], np.uint8)
    children, segments, _ = split_rows(columns, [2], [[0, 1], [2, 3], [4, 5]], {2: (0, 0, 0), 0: (0, 0, 0)})
    assert children == {3: [4], 4: [5], 5: [0], 6: [1]}
    assert segments[1].tolist() == [2, 4, 0]


def test_a_node_without_rows_has_children_without_rows():
    columns = np.array([[0, 1, 0]], np.uint8)
    children, segments, _ = split_rows(columns, [2], [[0], [], [1, 2]], {1: (0, 0, 0)})
    assert children == {3: [], 4: []} and segments[3, :2].tolist() == segments[4, :2].tolist() == [1, 1]


def check(columns, n_bins, rows_of, splits, n_threads):
    children, segments, _ = split_rows(columns, n_bins, rows_of, splits, n_threads)
    child = len(rows_of)
    for node, (feature, split_bin, default_left) in splits.items():
        rows = np.asarray(rows_of[node], np.int64)
        codes = columns[feature, rows].astype(np.int64)
        is_left = ~np.isin(codes, list(split_bin)) if isinstance(split_bin, set) else codes <= split_bin
        left = np.where(codes == n_bins[feature], bool(default_left), is_left)
        assert children[child] == rows[left].tolist() and children[child + 1] == rows[~left].tolist()
        assert segments[child, 0] == segments[node, 0] and segments[child + 1, 1] == segments[node, 1]
        child += 2


@settings(max_examples=60)
@given(
    st.integers(0, 2**32), st.integers(0, 40), st.integers(1, 6), st.sampled_from([1, 3]), st.sampled_from([np.uint8, np.uint16])
)
def test_random_nodes_equal_numpy(seed, n_rows, n_nodes, n_threads, dtype):
    rng = np.random.default_rng(seed)
    n_bins = rng.integers(1, 5, 3)
    columns = np.stack([rng.integers(0, n + 1, n_rows) for n in n_bins]).astype(dtype)
    owner = rng.integers(0, n_nodes, n_rows)
    rows_of = [np.flatnonzero(owner == node) for node in range(n_nodes)]
    chosen = rng.permutation(n_nodes)[: rng.integers(1, n_nodes + 1)]
    splits = {}
    for node in chosen:
        feature = rng.integers(0, 3)
        categories = set(np.flatnonzero(rng.integers(0, 2, n_bins[feature])).tolist())
        splits[node] = feature, categories if rng.random() < 0.3 else rng.integers(0, n_bins[feature]), rng.integers(0, 2)
    check(columns, n_bins, rows_of, splits, n_threads)


@pytest.mark.parametrize("n_threads", [1, 3])
@pytest.mark.parametrize("size", [partition.LEAST_CHUNK, partition.MOST_CHUNK])
@pytest.mark.parametrize("dtype, n_bins", [(np.uint8, 255), (np.uint8, 256), (np.uint16, 1000)])
def test_nodes_of_many_chunks_equal_numpy(n_threads, size, dtype, n_bins):
    rng = np.random.default_rng(22)
    n_rows = 3 * size + 17
    codes = rng.integers(0, n_bins + (n_bins != 256), n_rows)
    columns = np.stack([codes, rng.integers(0, 3, n_rows)]).astype(dtype)
    owner = rng.random(n_rows) < 0.8
    rows_of = [np.flatnonzero(owner), np.flatnonzero(~owner)]
    check(columns, np.array([n_bins, 2]), rows_of, {0: (0, n_bins // 2, 1), 1: (1, 0, 0)}, n_threads)


@pytest.mark.parametrize(
    "n_rows, n_threads, expected",
    [
        ([5, 0, 2049], 1, [5, 2048, 1]),
        ([4 * 8 * 5000], 4, [5000] * 32),
        ([20 * 32768 + 1], 1, [32768] * 20 + [1]),
        ([0], 2, []),
    ],
)
def test_chunks_are_an_eighth_of_a_threads_share_of_the_rows(n_rows, n_threads, expected):
    ends = np.cumsum([0, *n_rows])
    segments = np.stack([ends[:-1], ends[1:], np.zeros(len(n_rows), np.int64)], axis=1)
    chunks = partition.list_chunks(np.arange(len(n_rows), dtype=np.int32), segments, n_threads)
    assert (chunks[:, 2] - chunks[:, 1]).tolist() == expected
    assert np.concatenate([[], *(np.arange(begin, end) for _, begin, end, _ in chunks)]).tolist() == list(range(ends[-1]))


@pytest.mark.parametrize("n_threads", [1, 3])
@pytest.mark.parametrize("n_gaps", [0, 7])
@pytest.mark.parametrize("n, n_drawn", [(10, 10), (10, 4), (10, 0), (0, 0), (70_000, 70_000), (150_000, 66_001)])
def test_roots_hold_the_rows_drawn(n, n_drawn, n_gaps, n_threads):
    drawn = np.sort(np.random.default_rng(n).permutation(n + n_gaps)[:n]).astype(np.int32)
    rows, segments = np.full((2, 3 * n + 5), -1, np.int32), np.full((4, 3), -1)
    partition.start_rows_cpu(3, drawn, n_drawn, rows, segments, n_threads)
    assert segments.tolist() == [[tree * n, tree * n + n_drawn, 0] for tree in range(3)] + [[-1, -1, -1]]
    expected = np.full((2, 3 * n + 5), -1)
    for tree in range(3):
        expected[0, tree * n : tree * n + n_drawn] = drawn[:n_drawn]
    np.testing.assert_array_equal(rows, expected)
