"""kernels/sparse.py: rows that list only some of their cells, against the same rows written out."""

from types import SimpleNamespace
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import njit
from scipy.sparse import csr_array
from test_predict_kernel import grown_together

from gpuboost.backend.contract import FlatTrees
from gpuboost.binned.cuts import SENTINEL, Cuts
from gpuboost.binned.pages import SortedColumns
from gpuboost.data.columns import list_cells
from gpuboost.kernels import histogram, partition, sparse
from gpuboost.kernels.columns import MISSING_KEY, code_entries_cpu, sort_entries_cpu
from gpuboost.kernels.predict import predict_values_cpu
from gpuboost.kernels.predict_codes import predict_codes_cpu
from gpuboost.kernels.scalar import float_key
from gpuboost.kernels.structs import CATEGORICAL, FLAT_NODE, NODE, NUMERIC

NAN = np.nan


class Table:
    """Random codes (n_features, n_rows): bins, n_bins for missing, mostly those of absent cells; and the same as lists."""

    def __init__(self, seed, n_rows, absent_is_zero, listed=0.4, most_features=5):
        rng = np.random.default_rng(seed)
        n_features = int(rng.integers(1, most_features + 1))
        self.n_bins = rng.integers(1, 5, n_features).astype(np.int32)
        self.absent = (rng.integers(0, self.n_bins) if absent_is_zero else self.n_bins).astype(np.int32)
        self.offsets = np.concatenate([[0], np.cumsum(self.n_bins)]).astype(np.int32)
        self.codes = np.repeat(self.absent[:, None], n_rows, axis=1)
        is_listed = rng.random(self.codes.shape) < listed
        random_codes = np.stack([rng.integers(0, n + 1, n_rows) for n in self.n_bins])
        self.codes[is_listed] = random_codes[is_listed]
        self.row_begin, self.cells = np.zeros(n_rows + 1, np.int64), []
        for row, codes in enumerate(self.codes.T):
            listed = [f for f in range(n_features) if codes[f] != self.absent[f]]
            self.cells += [self.offsets[f] + codes[f] for f in listed if codes[f] < self.n_bins[f]]
            self.cells += [self.offsets[-1] + f for f in listed if codes[f] == self.n_bins[f]]
            self.row_begin[row + 1] = len(self.cells)
        self.cells = np.array(self.cells, np.int32)
        self.lists = self.row_begin, self.row_begin[1:], self.cells
        self.zero_bins, self.n_rows = np.zeros(0, np.int32), n_rows
        if absent_is_zero:
            zero_bins = self.offsets[:-1] + self.absent
            self.zero_bins = np.concatenate([np.repeat(zero_bins, self.n_bins), zero_bins]).astype(np.int32)

    def entries(self, n_threads=1):
        """Column blocks, and room for notes."""
        listed = [np.flatnonzero(codes != absent) for codes, absent in zip(self.codes, self.absent)]
        rows = [own[np.argsort(codes[own], kind="stable")] for codes, own in zip(self.codes, listed)]
        ends = np.cumsum([0, *map(len, rows)])
        codes = np.concatenate([codes[own] for codes, own in zip(self.codes, rows)]).astype(np.uint32)
        blocks = np.stack([ends[:-1], ends[1:]], axis=1), np.concatenate(rows).astype(np.int32), codes
        return blocks, np.zeros((n_threads, self.n_rows // 8 + 1), np.uint8)


NO_ENTRIES = (np.zeros((0, 2), np.int64), np.zeros(0, np.int32), np.zeros(0, np.uint32)), np.zeros((2, 0), np.uint8)


def random_pairs(rng, limbs, n_rows):
    """(gradients, hessians) int64 (2 outputs, limbs, n_rows), and both packed."""
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
    """(100 rows written out, the same as (row_begin, columns, values), trees of three splits and two outputs as prediction
    takes them)."""
    rng = np.random.default_rng(0)
    block = np.full((100, n_features), absent)
    is_stored = rng.random(block.shape) < density
    block[is_stored] = rng.choice([-1.0, 0.0, 1.0, 5.0, np.nan], is_stored.sum())
    row_begin = np.concatenate([[0], np.cumsum(is_stored.sum(axis=1))])
    stored = row_begin, np.nonzero(is_stored)[1].astype(np.int32), block[is_stored].astype(np.float32)
    trees, leaf_values, roots = np.zeros(7 * n_trees, FLAT_NODE), np.zeros((7 * n_trees, 2), np.float32), np.arange(n_trees) * 7
    for root in roots:
        trees[root : root + 3]["feature"] = rng.integers(0, n_features, 3)
        trees[root : root + 3]["threshold"] = rng.choice([-0.5, 0.5], 3)
        trees[root : root + 3]["default_left"] = rng.integers(0, 2, 3)
        trees[root : root + 3]["left"] = [1, 3, 5]
        trees[root + 3 : root + 7]["feature"], leaf_values[root + 3 : root + 7] = -1, rng.normal(size=(4, 2))
    return block, stored, FlatTrees(trees, leaf_values, roots, np.arange(1, n_trees + 1, dtype=np.int32) % 2, None)


tables = given(st.integers(0, 2**32), st.integers(1, 60), st.booleans())


def cells_of(matrix, cuts, absent, missing=np.nan, n_threads=2):
    """(row_begin, cells) of a csr_array, by searching the thresholds and by column blocks."""
    stored = matrix.tocsc()
    bounds, rows = np.stack([stored.indptr[:-1], stored.indptr[1:]], axis=1).astype(np.int64), stored.indices.astype(np.int32)
    is_missing = np.isnan(stored.data) | (stored.data == missing)
    keys = np.array([MISSING_KEY if m else float_key(x) for x, m in zip(stored.data.astype(np.float32), is_missing)], np.uint32)
    spare = np.zeros((n_threads, len(rows)), np.uint32), np.zeros((n_threads, len(rows)), np.int32)
    sort_entries_cpu(bounds, keys, rows, *spare, n_threads)
    code_entries_cpu(bounds, keys, rows, cuts.thresholds, cuts.offsets, absent, n_threads)
    blocks = SortedColumns(bounds, rows, keys, absent)
    source = SimpleNamespace(stored=matrix, n_rows=matrix.shape[0], missing=missing)
    found = list_cells(source, None, cuts, absent, n_threads)
    with mock.patch("gpuboost.data.columns.SEARCHED_BINS", 0):
        for one, other in zip(found, list_cells(source, blocks, cuts, absent, n_threads), strict=True):
            np.testing.assert_array_equal(one, other)
    return found


@pytest.mark.parametrize("absent, missing, expected", [
    ([2, 3], np.nan, [[1], [0, 4], [], [2]]),  # what is absent is missing, as stored NaN are
    ([2, 3], 5.0, [[1], [0], [], [2]]),
    ([0, 0], np.nan, [[1, 6], [4], [], [5]]),  # zeros: bins 0 of both, and missing cells are listed
])  # fmt: skip
def test_four_rows_by_hand(absent, missing, expected):
    #  bins 2 and 3: cells 0 1 | 2 3 4, missing cells 5 | 6
    cuts = Cuts(np.array([1, SENTINEL, 1, 3, SENTINEL], np.float32), np.array([0, 2, 5], np.int32), np.ones(2, bool), 256)
    stored = np.array([1.0, NAN, 0.0, 5.0, NAN, 0.0])
    matrix = csr_array((stored, np.array([0, 1, 0, 1, 0, 1]), np.array([0, 2, 4, 4, 6])), shape=(4, 2))
    row_begin, cells = cells_of(matrix, cuts, np.array(absent, np.int32), missing)
    assert [cells[a:b].tolist() for a, b in zip(row_begin, row_begin[1:])] == expected and len(cells) == row_begin[-1]


@settings(max_examples=60)
@tables
def test_stored_values_are_coded(seed, n_rows, absent_is_zero):
    table, rng = Table(seed, n_rows, absent_is_zero), np.random.default_rng(seed)
    thresholds = np.concatenate([np.append(np.arange(1, n), SENTINEL) for n in table.n_bins]).astype(np.float32)
    cuts = Cuts(thresholds, table.offsets, np.ones(len(table.n_bins), bool), 256)
    values = np.where(table.codes == table.n_bins[:, None], NAN, table.codes + rng.choice([0, 0.5], table.codes.shape)).T
    is_stored = (table.codes != table.absent[:, None]).T | (rng.random(values.shape) < 0.2)  # an absent code may be stored, too
    begin = np.append(0, np.cumsum(is_stored.sum(axis=1)))
    matrix = csr_array((values[is_stored], np.nonzero(is_stored)[1], begin), shape=values.shape)
    row_begin, cells = cells_of(matrix, cuts, table.absent, n_threads=1 + seed % 3)
    np.testing.assert_array_equal(row_begin, table.row_begin)
    np.testing.assert_array_equal(cells, table.cells)


@settings(max_examples=60)
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


@settings(max_examples=30)
@tables
def test_rows_are_marked_as_in_a_dense_page(seed, n_rows, absent_is_zero):
    table, rng = Table(seed, n_rows, absent_is_zero), np.random.default_rng(seed)
    nodes, segments = np.zeros(6, NODE), np.zeros((6, 3), np.int64)
    middle = n_rows // 3
    segments[:2] = (0, middle, 1), (middle, n_rows, 1)
    for node in nodes[:2]:
        f = rng.integers(len(table.n_bins))
        node["feature"], node["bin"], node["default_left"] = f, rng.integers(table.n_bins[f]), rng.integers(2)
        node["kind"] = rng.choice([NUMERIC, CATEGORICAL])
    rows = np.stack([np.full(n_rows, -1), rng.permutation(n_rows)]).astype(np.int32)
    selected = np.array([1, 0], np.int32)
    chunks = partition.list_chunks(selected, segments, 1)
    dense, listed, cats = np.zeros(n_rows, np.uint8), np.zeros(n_rows, np.uint8), rng.integers(0, 2**5, (6, 2)).astype(np.uint32)
    dense_chunks = chunks.copy()
    partition.mark_rows_cpu(
        selected, nodes, cats, dense_chunks, table.codes.astype(np.uint8), table.n_bins, rows, segments, dense, 2
    )
    for entries, notes in (table.entries(2), NO_ENTRIES):
        listed[:], chunks[:, 3] = 7, -1
        sparse.mark_sparse_rows_cpu(
            selected, nodes, cats, chunks, table.row_begin, table.cells, table.offsets, table.absent, entries, notes, rows,
            segments, listed, 2,
        )  # fmt: skip
        np.testing.assert_array_equal(listed, dense)
        np.testing.assert_array_equal(chunks, dense_chunks)
        assert not notes.any()


@settings(max_examples=60)
@given(
    st.integers(0, 2**32), st.integers(1, 60), st.booleans(), st.integers(1, 2), st.sampled_from([4, 1000]),
    st.sampled_from([2, 3, 7]), st.sampled_from([(0.4, 5), (0.9, 5), (0.5, 20)]),
)  # fmt: skip
def test_histograms_are_sums_over_the_rows_written_out(seed, n_rows, absent_is_zero, limbs, slice_rows, n_threads, shape):
    table, rng = Table(seed, n_rows, absent_is_zero, *shape), np.random.default_rng(seed)
    grad, hess, gpair = random_pairs(rng, limbs, n_rows)
    nodes, segments, rows = random_rows(rng, n_rows)
    first_output, n_limbs = np.array([0, 1], np.int32), np.full(2, limbs, np.int32)
    hist = np.full((3, 1, table.offsets[-1], 2), 77)
    build = np.arange(3, dtype=np.int32)
    items = histogram.list_build_items(build, nodes, segments, first_output, n_limbs, 1, True, n_rows, slice_rows, 0, hist)
    sparse.build_sparse_histograms_cpu(
        *table.lists, int(table.offsets[-1]), table.zero_bins, rows, gpair, n_limbs, items, hist, n_threads
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


def shared_units(table, n_threads, n_items=5, n_outputs=1):
    """What threads share of one histogram: list_units."""
    n_rows, items = len(table.row_begin) - 1, np.zeros((n_items, 8), np.int64)
    ends = np.arange(n_items + 1) * n_rows // n_items
    items[:, 4], items[:, 5], items[:, 6] = ends[:-1], ends[1:], histogram.ADD_SHARED
    items = np.tile(items, (n_outputs, 1))
    items[:, 1] = np.repeat(np.arange(n_outputs), n_items)
    rows = np.stack([np.arange(n_rows), np.full(n_rows, -1)]).astype(np.int32)
    return list_units(*table.lists, int(table.offsets[-1]), table.zero_bins, rows, items, n_threads)


@njit
def list_units(row_begin, row_end, cells, total_bins, zero_bins, rows, items, n_threads):
    return sparse.list_units(row_begin, row_end, cells, total_bins, zero_bins, rows, items, n_threads)


@pytest.mark.parametrize("absent_is_zero", [False, True])
def test_threads_share_a_large_histogram_by_whole_columns_of_as_many_cells(absent_is_zero):
    seed = next(seed for seed in range(99) if len(Table(seed, 1, absent_is_zero, most_features=40).n_bins) > 35)
    table = Table(seed, 3000, absent_is_zero, 0.5, 40)
    units = shared_units(table, 4, n_items=2000)  # each of fewer cells than there are bins
    assert units[:, :2].tolist() == [[0, 2000]] * 4 and (units[:, 4] == sparse.ALONE).all()
    assert units[0, 2] == 0 and units[-1, 3] == table.offsets[-1] and units[1:, 2].tolist() == units[:-1, 3].tolist()
    listed = table.cells[table.cells < table.offsets[-1]]
    n_cells = np.histogram(listed, [*units[:, 2], table.offsets[-1]])[0]
    assert n_cells.max() < 1.3 * n_cells.mean()
    if absent_is_zero:
        assert set(units[:, 2]) <= set(table.offsets.tolist())


@pytest.mark.parametrize("absent_is_zero", [False, True])
def test_threads_add_up_copies_of_a_small_histogram(absent_is_zero):
    table = Table(1, 3000, absent_is_zero)
    for n_items, n_outputs, own in (
        (5, 1, [[0, 1], [1, 3], [3, 5]]), (2, 1, [[0, 1], [1, 2]]), (3, 2, [[0, 1], [1, 2], [2, 3], [3, 4], [4, 5], [5, 6]]),
    ):  # fmt: skip
        units = [[*items, 0, table.offsets[-1], sparse.APART] for items in own]
        assert shared_units(table, 3, n_items, n_outputs).tolist() == units


@pytest.mark.parametrize("absent_is_zero", [False, True])
def test_rows_of_few_cells_of_a_large_histogram_are_added_together(absent_is_zero):
    table = Table(1, 100, absent_is_zero)
    units = [[i, i + 1, 0, table.offsets[-1], sparse.TOGETHER] for i in range(80)]
    assert shared_units(table, 40, n_items=80).tolist() == units


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
    expected = np.zeros((3, n_rows), np.float32), np.zeros((n_rows, n_trees), np.int32)
    predict_values_cpu(block, np.float32(missing), *flat, 0, *expected, 2)
    margin, leaves = np.zeros((3, n_rows), np.float32), np.full((n_rows, n_trees), -1, np.int32)
    table = *stored, np.float32(missing), np.float32(absent), n_features
    sparse.predict_sparse_cpu(*table, *flat, margin, leaves, 2)
    np.testing.assert_array_equal(margin, expected[0])
    np.testing.assert_array_equal(leaves, expected[1])
    margin[:] = 0
    sparse.predict_sparse_cpu(*table, *flat, margin, np.zeros((0, 0), np.int32), 1)
    np.testing.assert_array_equal(margin, expected[0])


@settings(max_examples=40)
@given(st.integers(0, 2**32), st.integers(1, 60), st.booleans(), st.sampled_from([1, 3]))
def test_listed_rows_are_predicted_as_in_a_dense_page(seed, n_rows, absent_is_zero, n_threads):
    table, rng = Table(seed, n_rows, absent_is_zero), np.random.default_rng(seed)
    flat, rows = grown_together(rng, table.n_bins, 3, 8, 2), rng.permutation(n_rows)[: n_rows // 2 + 1].astype(np.int32)
    start, no_leaves = rng.normal(size=(3, n_rows)).astype(np.float32), np.zeros((0, 0), np.int32)
    expected, margin = start.copy(), start.copy()
    predict_codes_cpu(table.codes.astype(np.uint8), table.n_bins, rows, *flat, expected, no_leaves, 1)
    sparse.predict_cells_cpu(table.row_begin, table.cells, table.offsets, table.absent, rows, *flat, margin, n_threads)
    np.testing.assert_array_equal(margin, expected)
