"""data/packing.py: what shares a code, what does not, and that every code can be read back."""

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st
from packed_tables import KINDS, columns_of, cuts_of, group_of, pack, pages_of, sources, sparse_of

import gpuboost as gb
from gpuboost.backend.cpu import CpuBackend
from gpuboost.backend.cpu.cells import CellLists
from gpuboost.backend.cpu.memory import HostMemory
from gpuboost.binned.pages import SparsePage
from gpuboost.communicator import SingleProcess
from gpuboost.data import packing as packing_module
from gpuboost.data.binning import add_records, bin_table
from gpuboost.data.packing import choose_packing, choose_sparse_packing, find_packing, find_sparse_packing, may_pack
from gpuboost.data.sketch import sketch_columns
from gpuboost.data.tables.open import open_table
from gpuboost.kernels.packing import unpack_histograms_cpu

BACKEND, COMM = CpuBackend(2), SingleProcess()


class Hidden(HostMemory):
    def fetch(self, array):
        raise AssertionError("the columns were read")


class NoData(CpuBackend):
    """Refuses to show what lies in its memory."""

    def __init__(self, n_threads):
        super().__init__(n_threads)
        self.memory = Hidden()


def find(columns, n_bins, page_rows=None):
    return find_packing(pages_of(np.asarray(columns, np.uint8), page_rows), cuts_of(n_bins), BACKEND)


def sizes(packing):
    return np.diff(packing.offsets).tolist()


# ---- by hand


def test_the_example_of_the_file():
    """a and b differ from 0 in different rows, c does in a row of b's: digits 0, 1, 2 of {a, b}, and c three times as much."""
    columns = [[0, 1, 0, 0], [0, 0, 1, 0], [1, 0, 1, 0]]
    packing = find(columns, [2, 2, 2])
    assert sizes(packing) == [6] and packing.members.tolist() == [0, 1, 2]
    assert packing.luts[:, :2].tolist() == [[0, 1], [0, 2], [0, 3]]
    assert pack(packing, np.array(columns)).tolist() == [[3, 1, 5, 0]]
    assert packing.rest.tolist() == [0, 0, 0]
    undone = [sources(packing, [2, 2, 2], feature) for feature in range(3)]
    assert undone == [{1: [1, 4]}, {1: [2, 5]}, {1: [3, 4, 5]}]  # digit 1, digit 2, the second half


def test_the_default_may_be_the_missing_code():
    packing = find([[1, 0, 1, 1], [1, 1, 0, 1]], [1, 1])
    assert sizes(packing) == [3] and packing.rest.tolist() == [1, 1]
    assert [sources(packing, [1, 1], feature) for feature in range(2)] == [{0: [1]}, {0: [2]}]


def test_a_column_that_stands_alone_keeps_its_codes():
    columns = np.stack([np.arange(256) % 200, np.arange(256) // 2])
    packing = find(columns, [200, 128])
    assert sizes(packing) == [128, 200] and packing.members.tolist() == [1, 0] and packing.rest.tolist() == [-1, -1]
    assert sources(packing, [200, 128], 1) == {code: [code] for code in range(128)}
    assert sources(packing, [200, 128], 0) == {code: [128 + code] for code in range(200)}


@pytest.mark.parametrize("page_rows", [None, 60])
@pytest.mark.parametrize("row, n_codes", [(None, 3), (0, 4), (99, 4)])
def test_one_common_row_keeps_two_columns_out_of_a_bundle(row, n_codes, page_rows):
    columns = np.zeros((2, 100), int)
    columns[0, 10:20] = columns[1, 30:40] = 1
    if row is not None:
        columns[:, row] = 1
    assert sizes(find(columns, [2, 2], page_rows)) == [n_codes]


def test_a_bundle_has_at_most_256_codes():
    assert sizes(find(np.eye(300), [2] * 300)) == [46, 256]  # 255 columns and a code for none; 45


def test_digits_fill_a_byte():
    columns = np.random.default_rng(3).random((17, 500)) < 0.6
    assert sizes(find(columns, [2] * 17)) == [2, 256, 256]
    columns = np.random.default_rng(3).integers(0, 16, (4, 500))
    assert sizes(find(columns, [16] * 4)) == [256, 256]
    assert sizes(find(np.where(columns == 0, 16, columns), [16] * 4)) == [17] * 4  # with missing values they are 17 codes


def test_columns_of_one_value_take_no_code():
    assert sizes(find([[0] * 8, range(8), [0] * 8], [1, 8, 1])) == [8]


def test_codes_that_do_not_occur_take_none():
    """A worker's rows, or those of an evaluation matrix, need not fill the bins of the cuts."""
    assert sizes(find([[0, 1, 2, 3], [0, 1, 2, 1]], [100, 100])) == [12]


# ---- any columns


@settings(max_examples=150)
@given(
    st.lists(st.sampled_from(sorted(KINDS)), min_size=1, max_size=8), st.integers(1, 300), st.sampled_from([None, 1, 50]),
    st.integers(0, 2**32),
)  # fmt: skip
def test_every_code_can_be_read_back(kinds, n_rows, page_rows, seed):
    columns, n_bins = columns_of(kinds, n_rows, seed)
    check_codes_can_be_read_back(find(columns, n_bins, page_rows), columns, n_bins)


def check_codes_can_be_read_back(packing, columns, n_bins):
    assert sorted(packing.members) == list(range(len(columns)))
    assert max(sizes(packing)) <= 256 and sizes(packing)[0] == min(sizes(packing))
    packed, groups = pack(packing, columns), group_of(packing)
    assert (packed < np.array(sizes(packing))[:, None]).all()
    for feature, codes in enumerate(columns):
        group = groups[feature]
        read = np.full(sizes(packing)[group], packing.rest[feature])
        for code, places in sources(packing, n_bins, feature).items():
            assert code != packing.rest[feature]
            read[np.array(places) - packing.offsets[group]] = code
        np.testing.assert_array_equal(read[packed[group]], codes)


# ---- any sparse table


def absent_codes(columns, n_bins, rule):
    """What the lists of each column leave out: missing cells, as far as their code fits in a byte, zeros, or what is frequent."""
    if rule == "missing":
        return [n if n < 256 else 255 for n in n_bins]
    return [0 if rule == "zero" else int(np.bincount(column).argmax()) for column in columns]


@settings(max_examples=100)
@given(
    st.lists(st.sampled_from(sorted(KINDS)), min_size=1, max_size=8), st.integers(1, 200),
    st.sampled_from(["missing", "zero", "frequent"]), st.integers(0, 2**32),
)  # fmt: skip
def test_histograms_of_a_packed_sparse_table_come_back(kinds, n_rows, rule, seed):
    columns, n_bins = columns_of(kinds, n_rows, seed)
    _, page = sparse_of(columns, n_bins, absent_codes(columns, n_bins, rule))
    packing = find_sparse_packing(page, CellLists(page, 2))
    check_codes_can_be_read_back(packing, columns, n_bins)
    pairs = np.random.default_rng(seed).integers(-(2**40), 2**40, (n_rows, 2))
    packed, expected = np.zeros((packing.offsets[-1], 2), np.int64), np.zeros((page.cuts.total_bins, 2), np.int64)
    for row, (pair, codes) in enumerate(zip(pairs, pack(packing, columns).T)):
        for group, code in enumerate(codes):
            packed[packing.offsets[group] + code] += pair
        for feature, n in enumerate(n_bins):
            if columns[feature, row] < n:
                expected[page.cuts.offsets[feature] + columns[feature, row]] += pair
    hist, features, offsets = np.full((1, 1, *expected.shape), 77, np.int64), np.arange(len(n_bins)), page.cuts.offsets
    unpack_histograms_cpu(packed[None, None], int(packing.offsets[1]), features, offsets, offsets, *packing.undo, hist, 1)
    np.testing.assert_array_equal(hist[0, 0], expected)


@pytest.mark.parametrize("group_rows", [1, 500, packing_module.GROUP_ROWS])
def test_lists_and_columns_of_categories_give_one_packing(group_rows, monkeypatch):
    """However many columns are listed at once."""
    monkeypatch.setattr(packing_module, "GROUP_ROWS", group_rows)
    monkeypatch.setattr(packing_module, "MOST_GROUPS", 2**40)
    columns, n_bins = columns_of(["one-hot", "one-hot, zeros missing", "exclusive", "one-hot, some missing"], 300, 5)
    absent = [int(np.bincount(column).argmax()) for column in columns]
    _, page = sparse_of(columns, n_bins, absent)
    expected = find(columns, n_bins)
    packing = find_sparse_packing(page, CellLists(page, 2))
    for name in ("members", "first_member", "luts", "defaults", "offsets", "rest", "first_source", "sources"):
        np.testing.assert_array_equal(getattr(packing, name), getattr(expected, name), err_msg=name)


# ---- when it is worth it


def independent(n_columns, n_codes, n_rows=2000):
    return np.random.default_rng(4).integers(0, n_codes, (n_columns, n_rows)).astype(np.uint8), [n_codes] * n_columns


def test_columns_of_many_codes_are_not_even_looked_at():
    columns, n_bins = independent(28, 256)
    assert choose_packing(pages_of(columns), cuts_of(n_bins), NoData(1)) is None
    assert not may_pack(cuts_of([230] * 28), 10**9)  # 28 · 229 codes and more take 26 groups: four words, as before
    assert may_pack(cuts_of([128] * 28), 10**9)  # two that exclude each other share a group: 1 + 127 + 127 codes


@pytest.mark.parametrize("n_columns, n_codes, n_groups", [(16, 16, 8), (32, 16, 16), (40, 2, 5)])
def test_a_quarter_fewer_words_are_worth_it(n_columns, n_codes, n_groups):
    columns, n_bins = independent(n_columns, n_codes, 60_000)
    packing = choose_packing(pages_of(columns), cuts_of(n_bins), BACKEND)
    assert packing is not None and packing.n_groups == n_groups


def test_one_hot_columns_are_packed_from_few_rows_on():
    """16 sums and 17 to undo them: 33 · 32 nodes, against 15 saved per row. ``gpuboost warmup`` has such a table."""
    for n_rows, is_packed in ((70, False), (71, True)):
        columns = np.eye(16, dtype=np.uint8)[:, np.arange(n_rows) % 16]
        assert (choose_packing(pages_of(columns), cuts_of([2] * 16), BACKEND) is not None) == is_packed


@pytest.mark.parametrize("columns, n_bins", [
    independent(8, 2, 60_000),  # one word already
    independent(16, 17, 60_000),  # no two fit, and nothing excludes anything
    independent(16, 16, 60),  # fewer sums saved than it takes to undo them
    (np.zeros((20, 0), np.uint8), [2] * 20),
], ids=["a word", "no pair", "few rows", "no rows"])  # fmt: skip
def test_else_columns_stay_as_they_are(columns, n_bins):
    assert choose_packing(pages_of(columns), cuts_of(n_bins), BACKEND) is None


def test_two_byte_codes_stay_as_they_are():
    pages = pages_of(np.zeros((40, 100_000), np.uint16))
    assert choose_packing(pages, cuts_of([2] * 40), NoData(1)) is None


def page_of(lists, codes, n_codes, n_rows):
    """Of the rows of every column's cells and their codes; the others are missing."""
    cuts = cuts_of([n_codes - 1] * len(lists))
    rows, cells = np.concatenate(lists), np.concatenate([first + own for first, own in zip(cuts.offsets, codes)])
    order = np.lexsort([cells, rows])
    row_begin = np.searchsorted(rows[order], np.arange(n_rows + 1))
    return SparsePage.of(cuts, row_begin, cells[order].astype(np.int32), cuts.n_bins)


def random_page(n_columns, n_rows, density, n_codes):
    """Cells at random, of random codes."""
    rng = np.random.default_rng(6)
    lists = [np.flatnonzero(rng.random(n_rows) < density) for _ in range(n_columns)]
    return page_of(lists, [np.sort(rng.integers(0, n_codes - 1, len(rows))) for rows in lists], n_codes, n_rows)


@pytest.mark.parametrize("n_codes, tested", [(256, 0), (2, 320)])
def test_a_random_sparse_table_is_not_packed(n_codes, tested, monkeypatch):
    """0.5 % of 2000 columns, 10 cells a row: its records may take 40 bytes. That columns of many codes take more is plain at
    once; those of ones conflict, and the search ends with bundles enough for 40 bytes."""
    page = random_page(2000, 20_000, 0.005, n_codes)
    takes, n_taken = packing_module._take, []
    monkeypatch.setattr(packing_module, "_take", lambda *rows: n_taken.append(takes(*rows)) or n_taken[-1])
    assert choose_sparse_packing(page, 2) is None
    assert tested <= len(n_taken) < 6000 and sum(n_taken) <= 0.5 * 2000


def category_page(n_categories, n_values, n_rows):
    """A cell for each category and row."""
    value = np.random.default_rng(7).integers(0, n_values, (n_categories, n_rows))
    lists = [np.flatnonzero(own == v) for own in value for v in range(n_values)]
    return page_of(lists, [np.zeros(len(rows), int) for rows in lists], 2, n_rows)


@pytest.mark.parametrize("n_categories, n_values, n_rows, n_groups", [
    (20, 50, 5000, 20),  # 32 bytes instead of 80
    (4, 15, 8000, 2),  # 8 instead of 16
    (1, 200, 100_000, None),  # 8 instead of 4
    (20, 50, 500, None),  # fewer sums saved than it takes to undo them
])  # fmt: skip
def test_sparse_categories_are_packed_where_records_are_no_larger(n_categories, n_values, n_rows, n_groups):
    packing = choose_sparse_packing(category_page(n_categories, n_values, n_rows), 2)
    assert n_groups == (packing and packing.n_groups)


def test_a_sparse_column_of_too_many_codes_rules_packing_out():
    """256 bins, and a cell that is missing; where none is, they fit."""
    for n_rows, n_groups in ((300, None), (256, 1)):
        page = page_of([np.arange(256)], [np.arange(256)], 257, n_rows)
        packing = find_sparse_packing(page, CellLists(page, 1))
        assert n_groups == (packing and packing.n_groups)


# ---- in a matrix


@pytest.fixture
def eager(monkeypatch):
    """Few rows are worth it."""
    monkeypatch.setattr(packing_module, "UNDONE_NODES", 0)


def one_hot_table(n_rows=300):
    rng = np.random.default_rng(5)
    category, other = rng.integers(0, 20, n_rows), rng.integers(0, 6, n_rows)
    X = np.column_stack([rng.normal(size=(n_rows, 2)), category[:, None] == np.arange(20), other[:, None] == np.arange(6)])
    return X.astype(np.float32)


@pytest.mark.parametrize("page_rows", [None, 70])
def test_records_of_a_matrix_hold_the_packed_codes(eager, page_rows):
    X = one_hot_table()
    source = open_table(X)
    cuts = sketch_columns(source, None, 256, BACKEND, COMM)
    matrix = bin_table(source, cuts, BACKEND, with_records=True, page_rows=page_rows)
    assert sizes(matrix.packing) == [21 * 7, 256, 256]
    assert matrix.record_offsets is matrix.packing.offsets
    for page in matrix.pages:
        assert page.records.shape == (page.n_rows, 8) and not page.records[:, 3:].any()
        np.testing.assert_array_equal(page.records[:, :3], pack(matrix.packing, page.columns).T)
    plain = bin_table(source, cuts, BACKEND, with_records=False, page_rows=page_rows)
    assert plain.packing is None
    again = add_records(plain, BACKEND)
    assert [p.records.tobytes() for p in again.pages] == [p.records.tobytes() for p in matrix.pages]
    assert add_records(again, BACKEND) is again


@pytest.mark.parametrize("form", [np.asarray, scipy.sparse.csr_array])
def test_a_matrix_keeps_its_packing_on_another_backend(form, eager):
    class Elsewhere(HostMemory):
        name = "elsewhere"

    matrix = gb.QuantileDMatrix(form(one_hot_table())).any_binned()
    moved = Elsewhere().move_table(matrix)
    assert moved.packing is matrix.packing is not None and moved.memory == "elsewhere"
    for there in (moved, HostMemory().move_table(moved)):
        assert there.representation is matrix.representation
        np.testing.assert_array_equal(there.pages[0].records, matrix.pages[0].records)


def test_a_small_table_is_not_packed():
    assert gb.QuantileDMatrix(one_hot_table()).any_binned().packing is None
