"""kernels/partition.py on CUDA: the rows of split nodes go to the same children as on the CPU, in runs that keep their order."""

import numpy as np
import pytest
from cuda_runners import each_runner, progress_of
from hypothesis import given, settings
from hypothesis import strategies as st
from test_partition import split_nodes, split_rows

from gpuboost.kernels import partition
from gpuboost.kernels.structs import NODE

CHUNK_ROWS = partition.CHUNK_ROWS


def split_rows_with(run, pages, n_bins, splits):
    """Adapter: ([{child: ascending rows} of each page], rows of each child over all pages), by the CUDA kernels.

    pages : (columns, the rows of nodes 0, 1, …) of each; the rows of odd nodes lie in buffer 1. splits : as split_rows.
    """
    n_nodes, n_selected = len(pages[0][1]), len(splits)
    nodes, cats = split_nodes(n_nodes, splits)
    selected = np.array([*splits, -1], np.int32)  # there may be room for more
    progress, n_bins = progress_of(n_selected=n_selected), np.asarray(n_bins, np.int32)
    counts, children_of_pages = np.full(2 * n_selected + 1, 77, np.int64), []
    for page, (columns, rows_of) in enumerate(pages):
        ends, flat = np.cumsum([0, *map(len, rows_of)]), np.concatenate([np.empty(0, np.int32), *rows_of])
        segments = np.full((len(nodes), 3), -1, np.int64)
        segments[:n_nodes] = np.stack([ends[:-1], ends[1:], np.arange(n_nodes) % 2], axis=1)
        rows = np.full((2, len(flat)), -1, np.int32)
        for begin, end, side in segments[:n_nodes]:
            rows[side, begin:end] = flat[begin:end]
        before, kept, n_chunks = segments.copy(), rows.copy(), len(flat) // CHUNK_ROWS + n_selected
        first_chunk, moved = np.full(n_selected + 2, -7, np.int64), np.full(len(nodes), -7, np.int64)
        run(
            partition.list_chunks_kernel, int(page == 0), selected, nodes, segments, progress, first_chunk, moved, counts,
            blocks=1,
        )  # fmt: skip
        run(
            partition.move_rows_kernel, selected, nodes, cats, columns, n_bins, rows, segments, progress, first_chunk, moved,
            counts, blocks=n_chunks,
        )  # fmt: skip
        np.testing.assert_array_equal(segments[:n_nodes], before[:n_nodes])
        for node, (begin, end, side) in enumerate(segments[:n_nodes]):
            np.testing.assert_array_equal(rows[side, begin:end], kept[side, begin:end])
            if node not in splits:
                np.testing.assert_array_equal(rows[1 - side, begin:end], kept[1 - side, begin:end])
        for node in splits:
            left = nodes[node]["left"]
            middle = segments[left, 1]
            assert segments[left : left + 2, :2].tolist() == [[segments[node, 0], middle], [middle, segments[node, 1]]]
        for node, child in ((node, nodes[node]["left"] + k) for node in splits for k in range(2)):
            assert segments[child, 2] == 1 - segments[node, 2], "children are written to the other buffer"
            assert_runs(kept[part_of(segments[node])], rows[part_of(segments[child])])
        children_of_pages.append({c: sorted(rows[part_of(segments[c])].tolist()) for c in range(n_nodes, len(nodes))})
    assert counts[-1] == 77
    return children_of_pages, counts[:-1].tolist()


def part_of(segment):
    begin, end, side = segment
    return side, slice(begin, end)


def assert_runs(rows_of_node, rows_of_child):
    """What a warp takes of a node's rows lies side by side in a child, in its order."""
    place = {row: i for i, row in enumerate(rows_of_node.tolist())}
    assert place.keys() >= set(rows_of_child.tolist())
    places = np.array([place[row] for row in rows_of_child.tolist()], np.int64)
    warps = places // partition.WARP_ROWS
    assert np.count_nonzero(np.diff(warps)) == max(len(set(warps.tolist())) - 1, 0)
    assert (np.diff(places)[np.diff(warps) == 0] > 0).all()


def check(run, pages, n_bins, splits):
    children_of_pages, counts = split_rows_with(run, pages, n_bins, splits)
    expected = [split_rows(columns, n_bins, rows_of, splits)[0] for columns, rows_of in pages]
    assert children_of_pages == expected
    assert counts == [sum(len(page[child]) for page in expected) for child in expected[0]]


# ---- by hand


@each_runner
def test_ten_rows_by_hand(run):
    #  rows 0…9 of one node; codes 0 1 2 0 1 2 0 1 2 0; bins up to 0 go left
    columns = np.array([[0, 1, 2] * 3 + [0]], np.uint8)
    children, counts = split_rows_with(run, [(columns, [range(10)])], [3], {0: (0, 0, 0)})
    assert children == [{1: [0, 3, 6, 9], 2: [1, 2, 4, 5, 7, 8]}] and counts == [4, 6]


@each_runner
@pytest.mark.parametrize("default_left, expected", [(0, {1: [0], 2: [1, 2, 3]}), (1, {1: [0, 2], 2: [1, 3]})])
def test_missing_rows_follow_the_default(run, default_left, expected):
    columns = np.array([[0, 1, 2, 1]], np.uint16)  # 2 bins: code 2 is missing
    assert split_rows_with(run, [(columns, [range(4)])], [2], {0: (0, 0, default_left)})[0] == [expected]


@each_runner
@pytest.mark.parametrize("default_left, missing_side", [(0, 2), (1, 1)])
def test_categories_of_the_set_go_right(run, default_left, missing_side):
    codes = np.array([[0, 3, 31, 32, 63, 64, 200, 255]], np.uint8)  # 255 bins: code 255 is missing
    expected = {1: [0, 2, 5], 2: [1, 3, 4, 6]}
    expected[missing_side].append(7)
    children = split_rows_with(run, [(codes, [range(8)])], [255], {0: (0, {3, 32, 63, 200}, default_left)})[0]
    assert children == [expected]


@each_runner
def test_only_the_selected_nodes_are_split_and_some_have_no_rows(run):
    columns = np.array([[0, 1, 0, 1, 0, 1]], np.uint8)
    rows_of, splits = [[0, 1], [2, 3], [], [4, 5]], {3: (0, 0, 0), 2: (0, 0, 0), 0: (0, 0, 0)}
    children, counts = split_rows_with(run, [(columns, rows_of)], [2], splits)
    assert children == [{4: [4], 5: [5], 6: [], 7: [], 8: [0], 9: [1]}] and counts == [1, 1, 0, 0, 1, 1]


@each_runner
def test_no_node_at_all(run):
    assert split_rows_with(run, [(np.zeros((1, 1), np.uint8), [[0]])], [2], {}) == ([{}], [])


@each_runner
def test_pages_add_up(run):
    """Of a node that has rows of both pages, and of one that has rows of the second only."""
    pages = [(np.array([[0, 1, 0]], np.uint8), [[0, 1, 2], []]), (np.array([[1, 1, 0, 0]], np.uint8), [[0, 3], [1, 2]])]
    children, counts = split_rows_with(run, pages, [2], {1: (0, 0, 0), 0: (0, 0, 0)})
    assert children == [{2: [], 3: [], 4: [0, 2], 5: [1]}, {2: [2], 3: [1], 4: [3], 5: [0]}] and counts == [1, 1, 3, 2]


# ---- chunks


def list_chunks_with(run, sizes, selected, first_page=1, counts=()):
    """(first_chunk, moved, n_items, segments and counts of the children), by the CUDA kernel. sizes : rows of each node."""
    sizes, n = np.array(sizes), len(selected)
    nodes, segments = np.zeros(len(sizes) + 2 * n, NODE), np.full((len(sizes) + 2 * n, 3), -7, np.int64)
    nodes["left"][selected] = len(sizes) + 2 * np.arange(n)
    segments[: len(sizes)] = np.stack([np.cumsum(sizes) - sizes, np.cumsum(sizes), np.arange(len(sizes)) % 2], axis=1)
    first_chunk, moved = np.full(n + 2, -7, np.int64), np.full(len(sizes) + 1, -7, np.int64)
    progress, counts = progress_of(n_selected=n), np.array([*(counts or [-7] * (2 * n)), -7])
    run(
        partition.list_chunks_kernel, first_page, np.array(selected, np.int32), nodes, segments, progress, first_chunk, moved,
        counts, blocks=1,
    )  # fmt: skip
    return first_chunk.tolist(), moved.tolist(), progress["n_items"][0], segments[len(sizes) :].tolist(), counts.tolist()


@each_runner
def test_the_chunks_of_each_node(run):
    sizes = [CHUNK_ROWS - 1, CHUNK_ROWS, CHUNK_ROWS + 1, 0, 1, 10**9, 5]
    first_chunk, moved, n_items, segments, counts = list_chunks_with(run, sizes, [2, 0, 3, 1, 5, 6])
    n_chunks = [2, 1, 0, 1, -(-(10**9) // CHUNK_ROWS), 1]
    assert first_chunk == [0, *np.cumsum(n_chunks), -7] and n_items == sum(n_chunks)
    assert moved == [0, 0, 0, 0, -7, 0, 0, -7]
    none = [3 * CHUNK_ROWS, 3 * CHUNK_ROWS, 0]  # of node 3, which no block meets again
    assert segments == [*[[-7] * 3] * 4, none, none, *[[-7] * 3] * 6] and counts == [0] * 12 + [-7]


@each_runner
def test_further_pages_go_on_counting(run):
    *_, counts = list_chunks_with(run, [0, 7], [0, 1], first_page=0, counts=[3, 4, 5, 6])
    assert counts == [3, 4, 5, 6, -7]


@each_runner
def test_more_nodes_than_threads(run):
    sizes = np.random.default_rng(1).integers(0, 3 * CHUNK_ROWS, 130)
    first_chunk, moved, *_ = list_chunks_with(run, sizes, np.arange(130))
    assert moved[:-1] == [0] * 130
    assert first_chunk[:-1] == np.cumsum([0, *-(-sizes // CHUNK_ROWS)]).tolist()


@each_runner
def test_nodes_around_the_size_of_a_chunk_equal_the_cpu(run):
    rng = np.random.default_rng(22)
    sizes = [CHUNK_ROWS - 1, CHUNK_ROWS, CHUNK_ROWS + 1]
    columns = rng.integers(0, 4, (1, sum(sizes))).astype(np.uint8)  # 3 bins: code 3 is missing
    owner = rng.permutation(np.repeat([0, 1, 2], sizes))
    check(run, [(columns, [np.flatnonzero(owner == node) for node in range(3)])], [3], {1: (0, 1, 1), 0: (0, 0, 0), 2: (0, 2, 0)})


@each_runner
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_sets_of_many_categories_equal_the_cpu(run, dtype):
    """Of all rows that a thread has; code 255 is missing."""
    columns = np.random.default_rng(23).integers(0, 256, (1, 600)).astype(dtype)
    for default_left in (0, 1):
        check(run, [(columns, [np.arange(600)])], [255], {0: (0, set(range(0, 255, 3)), default_left)})


# ---- against the CPU


@settings(max_examples=6)
@given(
    st.integers(0, 2**32), st.lists(st.integers(0, 70), min_size=1, max_size=2), st.integers(1, 3),
    st.sampled_from([(np.uint8, 4), (np.uint8, 256), (np.uint16, 300)]),
)  # fmt: skip
@each_runner
def test_random_nodes_equal_the_cpu(run, seed, page_rows, n_nodes, codes):
    rng, (dtype, most_bins) = np.random.default_rng(seed), codes
    n_bins = rng.integers(1, most_bins + 1, 2)
    pages = []
    for n_rows in page_rows:
        columns = np.stack([rng.integers(0, min(n + 1, np.iinfo(dtype).max + 1), n_rows) for n in n_bins]).astype(dtype)
        owner = rng.integers(0, n_nodes, n_rows)
        pages.append((columns, [np.flatnonzero(owner == node) for node in range(n_nodes)]))
    splits = {}
    for node in rng.permutation(n_nodes)[: rng.integers(1, n_nodes + 1)].tolist():
        feature = int(rng.integers(0, 2))
        categories = set(np.flatnonzero(rng.integers(0, 2, min(n_bins[feature], 256))).tolist())
        is_categorical = n_bins[feature] <= 256 and rng.random() < 0.4
        splits[node] = feature, categories if is_categorical else int(rng.integers(0, n_bins[feature])), int(rng.integers(0, 2))
    check(run, pages, n_bins, splits)


# ---- the rows of roots


@each_runner
@pytest.mark.parametrize("kept", [[], [0, 2, 3, 7], list(range(0, 300, 2))])
@pytest.mark.parametrize("n_trees", [1, 3, 200])
@pytest.mark.parametrize("share, non_finite", [(1, 0), (0.4, 0), (1, 1)])
def test_every_root_has_all_rows_drawn(run, kept, n_trees, share, non_finite):
    """From the front of the list; none where a gradient is not finite."""
    drawn, n, n_drawn = np.array(kept, np.int32), len(kept), int(share * len(kept))
    rows, segments = np.full((2, n_trees * n), -1, np.int32), np.full((n_trees + 1, 3), -7, np.int64)
    progress, n_listed = progress_of(non_finite=non_finite), np.array([n_drawn, n - n_drawn])
    run(partition.start_rows_kernel, n_trees, progress, drawn, n_listed, rows, segments, threads=max(n, n_trees))
    n_drawn *= 1 - non_finite
    assert segments.tolist() == [*([t * n, t * n + n_drawn, 0] for t in range(n_trees)), [-7, -7, -7]]
    lists = rows[0].reshape(n_trees, n)
    np.testing.assert_array_equal(lists[:, :n_drawn], np.tile(drawn[:n_drawn], (n_trees, 1)))
    assert (lists[:, n_drawn:] == -1).all() and (rows[1] == -1).all()
