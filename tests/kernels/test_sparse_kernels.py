"""kernels/sparse.py: rows that list only some of their cells, against the same rows written out."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_predict_kernel import grown_together

from gpuboost.kernels import histogram, partition, sparse
from gpuboost.kernels.predict import predict_codes_cpu, predict_values_cpu
from gpuboost.kernels.records import FLAT_NODE, NODE


class Table:
    """Random codes (n_features, n_rows): bins, n_bins for missing, mostly those of absent cells; and the same as lists."""

    def __init__(self, seed, n_rows, absent_is_zero):
        rng = np.random.default_rng(seed)
        n_features = int(rng.integers(1, 6))
        self.n_bins = rng.integers(1, 5, n_features).astype(np.int32)
        self.absent = (rng.integers(0, self.n_bins) if absent_is_zero else self.n_bins).astype(np.int32)
        self.offsets = np.concatenate([[0], np.cumsum(self.n_bins)]).astype(np.int32)
        self.codes = np.repeat(self.absent[:, None], n_rows, axis=1)
        is_listed = rng.random(self.codes.shape) < 0.4
        random_codes = np.stack([rng.integers(0, n + 1, n_rows) for n in self.n_bins])
        self.codes[is_listed] = random_codes[is_listed]
        # column blocks: by code, then row, without the absent ones
        order = [np.argsort(column, kind="stable") for column in self.codes]
        order = [rows[column[rows] != absent] for rows, column, absent in zip(order, self.codes, self.absent)]
        ends = np.cumsum([len(rows) for rows in order])
        self.bounds = np.stack([ends - [len(rows) for rows in order], ends], axis=1).astype(np.int64)
        self.rows = np.concatenate(order).astype(np.int32)
        self.block_codes = np.concatenate([column[rows] for column, rows in zip(self.codes, order)]).astype(np.uint32)
        self.row_begin, self.cells = np.full(n_rows + 1, -1, np.int64), np.full(ends[-1], -1, np.int32)
        sparse.list_cells_cpu(
            self.bounds, self.rows, self.block_codes, self.n_bins, self.offsets, self.row_begin, self.cells
        )
        self.lists = self.row_begin, self.row_begin[1:], self.cells
        self.zero_bins = np.zeros(0, np.int32)
        if absent_is_zero:
            zero_bins = self.offsets[:-1] + self.absent
            self.zero_bins = np.concatenate([np.repeat(zero_bins, self.n_bins), zero_bins]).astype(np.int32)


def random_pairs(rng, limbs, n_rows):
    """(gradients, hessians) int64 (2 planes, limbs, n_rows), and both packed."""
    grad, hess = rng.integers(-(2**15), 2**15, (2, limbs, n_rows)), rng.integers(0, 2**16, (2, limbs, n_rows))
    return grad, hess, ((grad << 16) | hess).astype(np.int32)


def random_rows(rng, n_rows):
    """(nodes, segments, rows) of three nodes of two trees, with histogram slots 2, 0, 1; the rows lie in buffer 0."""
    nodes, segments = np.zeros(3, NODE), np.zeros((3, 3), np.int64)
    nodes["slot"], nodes["tree"] = [2, 0, 1], [0, 1, 0]
    ends = np.sort(rng.integers(0, n_rows + 1, 2))
    segments[:] = (0, ends[0], 0), (ends[0], ends[1], 0), (ends[1], n_rows, 0)
    return nodes, segments, np.stack([rng.permutation(n_rows), np.full(n_rows, -1)]).astype(np.int32)


def random_forest(absent, n_features=12, n_trees=2, density=0.2):
    """(100 rows written out, the same as (row_begin, columns, values), trees of three splits as prediction takes them)."""
    rng = np.random.default_rng(0)
    block = np.full((100, n_features), absent)
    is_stored = rng.random(block.shape) < density
    block[is_stored] = rng.choice([-1.0, 0.0, 1.0, 5.0, np.nan], is_stored.sum())
    row_begin = np.concatenate([[0], np.cumsum(is_stored.sum(axis=1))])
    stored = row_begin, np.nonzero(is_stored)[1].astype(np.int32), block[is_stored].astype(np.float32)
    trees, roots = np.zeros(7 * n_trees, FLAT_NODE), np.arange(n_trees) * 7
    for root in roots:
        trees[root : root + 3]["feature"] = rng.integers(0, n_features, 3)
        trees[root : root + 3]["threshold"] = rng.choice([-0.5, 0.5], 3)
        trees[root : root + 3]["default_left"] = rng.integers(0, 2, 3)
        trees[root : root + 3]["left"] = [1, 3, 5]
        trees[root + 3 : root + 7]["feature"], trees[root + 3 : root + 7]["threshold"] = -1, rng.normal(size=4)
    return block, stored, (trees, roots, np.arange(1, n_trees + 1, dtype=np.int32) % 2)


tables = given(st.integers(0, 2**32), st.integers(1, 60), st.booleans())


def test_two_rows_by_hand():
    #  bins 2 and 3: cells 0 1 | 2 3 4, missing cells 5 | 6; row 0 = (bin 1, missing), row 1 = (bin 0, bin 2); all listed
    bounds, rows = np.array([[0, 2], [2, 4]]), np.array([1, 0, 1, 0], np.int32)
    codes, n_bins, offsets = np.array([0, 1, 2, 3], np.uint32), np.array([2, 3], np.int32), np.array([0, 2, 5], np.int32)
    row_begin, cells = np.zeros(3, np.int64), np.zeros(4, np.int32)
    sparse.list_cells_cpu(bounds, rows, codes, n_bins, offsets, row_begin, cells)
    assert row_begin.tolist() == [0, 2, 4]
    assert cells.tolist() == [1, 6, 0, 4]


@settings(max_examples=60, deadline=None)
@tables
def test_every_code_is_found_again(seed, n_rows, absent_is_zero):
    table = Table(seed, n_rows, absent_is_zero)
    for row in range(n_rows):
        begin, end = table.row_begin[row], table.row_begin[row + 1]
        assert (np.diff(table.cells[begin:end]) > 0).all()
        found = [
            sparse.code_of_row(
                table.cells, begin, end, table.offsets[f], table.n_bins[f], table.offsets[-1] + f, table.absent[f]
            )
            for f in range(len(table.n_bins))
        ]
        assert found == table.codes[:, row].tolist()


@settings(max_examples=30, deadline=None)
@tables
def test_rows_are_marked_as_in_a_dense_page(seed, n_rows, absent_is_zero):
    table, rng = Table(seed, n_rows, absent_is_zero), np.random.default_rng(seed)
    nodes, segments = np.zeros(6, NODE), np.zeros((6, 3), np.int64)
    middle = n_rows // 3
    segments[:2] = (0, middle, 1), (middle, n_rows, 1)
    for node in nodes[:2]:
        f = rng.integers(len(table.n_bins))
        node["feature"], node["bin"], node["default_left"] = f, rng.integers(table.n_bins[f]), rng.integers(2)
    rows = np.stack([np.full(n_rows, -1), rng.permutation(n_rows)]).astype(np.int32)
    chunks = np.zeros((2 + n_rows // partition.CHUNK + 1, 4), np.int64)
    selected = np.array([1, 0], np.int32)
    chunks = chunks[: partition.list_chunks(selected, segments, chunks)]
    dense, listed = np.zeros(n_rows, np.uint8), np.zeros(n_rows, np.uint8)
    dense_chunks = chunks.copy()
    partition.mark_rows_cpu(
        selected, nodes, np.zeros((6, 1), np.uint32), dense_chunks, table.codes.astype(np.uint8), table.n_bins, rows, segments,
        dense, 2,
    )  # fmt: skip
    sparse.mark_sparse_rows_cpu(
        selected, nodes, chunks, table.row_begin, table.cells, table.offsets, table.absent, rows, segments, listed, 2
    )
    np.testing.assert_array_equal(listed, dense)
    np.testing.assert_array_equal(chunks, dense_chunks)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 60), st.booleans(), st.integers(1, 2), st.sampled_from([4, 1000]))
def test_histograms_are_sums_over_the_rows_written_out(seed, n_rows, absent_is_zero, limbs, slice_rows):
    table, rng = Table(seed, n_rows, absent_is_zero), np.random.default_rng(seed)
    grad, hess, gpair = random_pairs(rng, limbs, n_rows)
    nodes, segments, rows = random_rows(rng, n_rows)
    tree_outputs, n_limbs = np.array([0, 1], np.int32), np.full(2, limbs, np.int32)
    items = np.zeros((3 * (n_rows // slice_rows + 2), 7), np.int64)
    hist = np.full((3, 1, table.offsets[-1], 2), 77)
    build = np.arange(3, dtype=np.int32)
    n_items = histogram.list_build_items(build, nodes, segments, tree_outputs, True, slice_rows, 0, hist, items)
    sparse.build_sparse_histograms_cpu(
        *table.lists, int(table.offsets[-1]), table.zero_bins, rows, gpair, n_limbs, items[:n_items], hist, 2
    )
    expected = np.zeros_like(hist)
    for node, (begin, end, _) in enumerate(segments):
        for row in rows[0, begin:end]:
            for limb in range(limbs):
                pair = np.array([grad[nodes["tree"][node], limb, row], hess[nodes["tree"][node], limb, row]])
                for f, code in enumerate(table.codes[:, row]):
                    if code < table.n_bins[f]:
                        expected[nodes["slot"][node], 0, table.offsets[f] + code] += pair << (16 * (limbs - 1 - limb))
    np.testing.assert_array_equal(hist, expected)


@pytest.mark.parametrize("absent", [np.nan, 0.0])
@pytest.mark.parametrize("missing", [5, 0, np.nan])
@pytest.mark.parametrize(
    "n_features, n_trees, density",
    [(12, 2, 0.2), (3000, 20, 0.01), (3000, 2000, 0.003), (3000, 2000, 0.3)],
    ids=["narrow", "few features used", "few cells of many columns", "many cells"],
)  # fmt: skip
def test_predictions_are_those_of_the_rows_written_out(absent, missing, n_features, n_trees, density):
    block, stored, flat = random_forest(absent, n_features, n_trees, density)
    n_rows = len(block)
    expected = np.zeros((2, n_rows), np.float32), np.zeros((n_rows, n_trees), np.int32)
    predict_values_cpu(block, np.float32(missing), *flat, *expected, 2)
    margin, leaves = np.zeros((2, n_rows), np.float32), np.full((n_rows, n_trees), -1, np.int32)
    table = *stored, np.float32(missing), np.float32(absent), n_features
    sparse.predict_sparse_cpu(*table, *flat, margin, leaves, 2)
    np.testing.assert_array_equal(margin, expected[0])
    np.testing.assert_array_equal(leaves, expected[1])
    margin[:] = 0
    sparse.predict_sparse_cpu(*table, *flat, margin, np.zeros((0, 0), np.int32), 1)
    np.testing.assert_array_equal(margin, expected[0])


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 60), st.booleans(), st.sampled_from([1, 3]))
def test_listed_rows_are_predicted_as_in_a_dense_page(seed, n_rows, absent_is_zero, n_threads):
    table, rng = Table(seed, n_rows, absent_is_zero), np.random.default_rng(seed)
    flat, rows = grown_together(rng, table.n_bins, 3, 8), rng.permutation(n_rows)[: n_rows // 2 + 1].astype(np.int32)
    start, no_leaves = rng.normal(size=(2, n_rows)).astype(np.float32), np.zeros((0, 0), np.int32)
    expected, margin = start.copy(), start.copy()
    predict_codes_cpu(table.codes.astype(np.uint8), table.n_bins, rows, *flat, expected, no_leaves, 1)
    sparse.predict_cells_cpu(table.row_begin, table.cells, table.offsets, table.absent, rows, *flat, margin, n_threads)
    np.testing.assert_array_equal(margin, expected)
