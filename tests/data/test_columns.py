"""data/columns.py: a table by columns gives the cuts and codes that the sketch and the binning of batches give."""

from unittest import mock

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st
from packed_tables import codes_of, same_blocks

from gpuboost.backend import CpuBackend
from gpuboost.backend.cpu.cells import CellLists
from gpuboost.binned.cuts import SENTINEL
from gpuboost.communicator import SingleProcess, current_communicator, run_threads
from gpuboost.data import columns as columns_module
from gpuboost.data import packing as packing_module
from gpuboost.data.binning import add_records, bin_table
from gpuboost.data.columns import bin_columns, open_columns
from gpuboost.data.sketch import sketch_columns
from gpuboost.data.tables.open import open_table
from gpuboost.params import EVERY_VALUE

NAN = np.nan
KINDS = ["normal", "few", "zeros", "heavy", "denormal", "one", "nothing"]


def make_column(rng, kind, n):
    return {
        "normal": lambda: rng.normal(size=n),
        "few": lambda: rng.integers(-3, 4, n),
        "zeros": lambda: np.where(rng.random(n) < 0.9, 0, rng.normal(size=n)),
        "heavy": lambda: rng.choice([1.0, 2.0, 5.0], n, p=[0.6, 0.3, 0.1]) + (rng.random(n) < 0.2) * rng.normal(size=n),
        "denormal": lambda: rng.integers(-50, 50, n) * 1e-44,
        "one": lambda: np.full(n, 3.0),
        "nothing": lambda: np.full(n, NAN),
    }[kind]().astype(np.float32)  # fmt: skip


def stored(X, is_stored):
    """A CSR matrix of the cells marked, zeros and NaN among them."""
    return scipy.sparse.csr_matrix((X[is_stored], np.nonzero(is_stored)), shape=X.shape)


def same_cuts(a, b):
    return a.same_as(b) and np.array_equal(a.has_missing, b.has_missing) and np.array_equal(a.extremes, b.extremes)


@settings(max_examples=80)
@given(
    st.integers(0, 2**32), st.integers(1, 400), st.lists(st.sampled_from(KINDS), min_size=1, max_size=4),
    st.sampled_from([2, 3, 16, 256]), st.sampled_from(["none", "small", "wild"]), st.booleans(), st.integers(1, 3),
    st.sampled_from([1, 200, columns_module.GROUP_ENTRIES]),
)  # fmt: skip
def test_cuts_are_those_of_the_sketch(seed, n_rows, kinds, max_bin, weighting, absent_is_zero, n_workers, group_entries):
    """Of several workers with shares of any size, whether the entries are listed all at once or of some columns at a time."""
    rng = np.random.default_rng(seed)
    X = np.stack([make_column(rng, kind, n_rows) for kind in kinds], axis=1)
    is_stored = rng.random(X.shape) < 0.7
    X[rng.random(X.shape) < 0.1] = NAN
    dense = np.where(is_stored, X, np.float32(0.0 if absent_is_zero else NAN))
    weights = {"none": None, "small": rng.integers(0, 4, n_rows), "wild": 2 ** rng.integers(0, 30, n_rows)}[weighting]
    backend = CpuBackend(2)
    expected = sketch_columns(open_table(dense), weights, max_bin, backend, SingleProcess())
    csr, parts = stored(X, is_stored), np.split(np.arange(n_rows), np.sort(rng.integers(0, n_rows + 1, n_workers - 1)))

    def own_cuts(rank):
        source = open_table(csr[parts[rank]]).absent_as(0.0 if absent_is_zero else NAN)
        own = None if weights is None else weights[parts[rank]]
        comm = current_communicator()
        return open_columns(source, 2, comm).cuts(own, max_bin, comm)[0]

    searched = mock.patch.object(columns_module, "SEARCHED_BINS", rng.choice([0, 10, 10_000]))  # beyond: all that is left at once
    groups = mock.patch.multiple(columns_module, GROUP_ENTRIES=group_entries, MOST_GROUPS=2**40)
    with groups, searched:
        for cuts in run_threads(n_workers, own_cuts):
            assert same_cuts(cuts, expected)
    comm = SingleProcess()
    assert same_cuts(open_columns(open_table(dense), 2, comm).cuts(weights, max_bin, comm)[0], expected)


@pytest.mark.parametrize("absent", [NAN, 0.0])
@pytest.mark.parametrize("weighting", [False, True])
def test_a_table_is_the_same_in_one_group_and_in_many(absent, weighting, monkeypatch):
    """Its cuts, cells and packing; and the blocks, once they are wanted."""
    rng = np.random.default_rng(3)
    ones = (rng.integers(0, 40, (5, 2000, 1)) == np.arange(40)).astype(np.float32)  # five categories
    X = np.concatenate([*ones, *(make_column(rng, kind, 2000)[:, None] for kind in ("few", "nothing", "zeros"))], axis=1)
    is_stored = (X != 0) | (rng.random(X.shape) < 0.5) & (np.arange(203) >= 200)  # explicit zeros among the others
    X[rng.random(X.shape) < 0.002] = NAN
    source = open_table(stored(X, is_stored)).absent_as(absent)
    weights, comm = rng.integers(0, 4, 2000) if weighting else None, SingleProcess()
    monkeypatch.setattr(packing_module, "UNDONE_NODES", 0)

    def binned():
        return add_records(bin_columns(source, weights, 16, None, 2, comm), CpuBackend(2))

    expected = binned()
    blocks = open_columns(source, 2, comm).every().blocks(expected.cuts)
    assert expected.packing is not None and expected.sorted_columns is None
    for module, name in ((columns_module, "GROUP_ENTRIES"), (packing_module, "GROUP_ROWS")):
        monkeypatch.setattr(module, name, 900)
        monkeypatch.setattr(module, "MOST_GROUPS", 2**40)
    entries, n_listed = columns_module.StoredColumns.entries, []
    listed = lambda self, columns: n_listed.append(len((part := entries(self, columns)).keys)) or part  # noqa: E731
    monkeypatch.setattr(columns_module.StoredColumns, "entries", listed)
    found = binned()
    assert len(n_listed) > 5 and max(n_listed) < 1000 + 2000, "a group, and the rest of its last column"
    assert same_cuts(found.cuts, expected.cuts) and same_arrays(found.pages[0], expected.pages[0])
    assert same_arrays(found.packing, expected.packing)
    assert same_blocks(CellLists(found.pages[0], 2).sorted_columns(), blocks)
    monkeypatch.setattr(columns_module, "SEARCHED_BINS", 0)
    kept = binned()  # as where bins are too many to search for
    assert same_arrays(kept.pages[0], expected.pages[0]) and same_blocks(kept.sorted_columns, blocks)


def test_a_large_table_is_not_read_over_and_over(monkeypatch):
    monkeypatch.setattr(columns_module, "GROUP_ENTRIES", 100)
    monkeypatch.setattr(packing_module, "GROUP_ROWS", 100)
    monkeypatch.setattr(packing_module, "UNDONE_NODES", 0)
    read, entries, rows = [], columns_module.StoredColumns.entries, CellLists.list_rows
    monkeypatch.setattr(columns_module.StoredColumns, "entries", lambda *args: read.append("table") or entries(*args))
    monkeypatch.setattr(CellLists, "list_rows", lambda *args: read.append("cells") or rows(*args))
    categories = np.random.default_rng(3).integers(0, 40, (3000, 5))
    ones = np.eye(40, dtype=np.float32)[categories].reshape(3000, 200)
    binned = add_records(bin_columns(open_table(stored(ones, ones > 0)), None, 16, None, 2, SingleProcess()), CpuBackend(2))
    assert binned.packing is not None and read == ["table"] * 4 + ["cells"] * 4


def same_arrays(a, b):
    """Whether the arrays of two objects of one class are equal."""
    each = [{name: value for name, value in vars(o).items() if isinstance(value, np.ndarray)} for o in (a, b)]
    return each[0].keys() == each[1].keys() and all(np.array_equal(each[0][name], each[1][name]) for name in each[0])


def test_workers_meet_with_arrays_of_one_shape_whatever_their_shares(monkeypatch):
    """One has all entries of the first columns, one those of the last, one no row."""
    monkeypatch.setattr(columns_module, "GROUP_ENTRIES", 300)
    monkeypatch.setattr(columns_module, "MOST_GROUPS", 2**40)
    rng = np.random.default_rng(4)
    X = rng.integers(1, 50, (200, 12)).astype(np.float32)
    X[:150, 6:] = X[150:, :6] = NAN
    shares = [slice(0, 150), slice(150, 200), slice(200, 200)]

    def own_cuts(rank):
        comm = current_communicator()
        return open_columns(open_table(stored(X, ~np.isnan(X))[shares[rank]]), 1, comm).cuts(None, 8, comm)[0]

    expected = sketch_columns(open_table(X), None, 8, CpuBackend(1), SingleProcess())
    assert all(same_cuts(cuts, expected) for cuts in run_threads(3, own_cuts))


@settings(max_examples=40)
@given(st.integers(0, 2**32), st.integers(1, 100), st.booleans(), st.booleans())
def test_codes_are_those_of_the_batches(seed, n_rows, is_sparse, absent_is_zero):
    rng = np.random.default_rng(seed)
    X = np.stack([make_column(rng, kind, n_rows) for kind in KINDS], axis=1)
    is_stored = rng.random(X.shape) < 0.5
    X[rng.random(X.shape) < 0.1] = NAN
    absent, backend = 0.0 if absent_is_zero else NAN, CpuBackend(2)
    dense = np.where(is_stored, X, np.float32(absent))
    source = open_table(stored(X, is_stored)).absent_as(absent) if is_sparse else open_table(dense)
    binned = bin_columns(source, None, 16, None, 2, SingleProcess())
    expected = bin_table(open_table(dense), binned.cuts, backend, with_records=False)
    assert binned.is_sparse == is_sparse
    assert binned.count_present() == np.count_nonzero(~np.isnan(dense))
    np.testing.assert_array_equal(codes_of(binned), expected.pages[0].columns)
    page = binned.pages[0]
    blocks = CellLists(page, 2).sorted_columns() if is_sparse else binned.sorted_columns
    codes = np.repeat(blocks.absent[:, None], n_rows, axis=1)
    for f, (begin, end) in enumerate(blocks.bounds):
        codes[f, blocks.rows[begin:end]] = blocks.codes[begin:end]
    np.testing.assert_array_equal(codes, expected.pages[0].columns)
    if not is_sparse:
        return
    rows = page.stored  # values with the same codes, by the cuts
    written = np.full(X.shape, rows.absent, np.float32)
    written[np.repeat(np.arange(n_rows), np.diff(rows.row_begin)), rows.columns] = rows.values
    again = bin_table(open_table(np.maximum(written, -3e38)), binned.cuts, backend, with_records=False)
    np.testing.assert_array_equal(again.pages[0].columns, expected.pages[0].columns)


def test_every_value_has_a_bin_for_exact_search():
    X = np.array([[1.0, NAN], [5.0, NAN], [1.0, NAN], [NAN, NAN], [9.0, NAN]])
    binned = bin_columns(open_table(X), np.array([1, 1, 1, 1, 0]), EVERY_VALUE, None, 1, SingleProcess())
    assert binned.cuts.thresholds.tolist() == [3.0, SENTINEL, SENTINEL], "midway; a row of weight 0 makes no cut"
    assert binned.pages[0].columns.tolist() == [[0, 1, 0, 2, 1], [1] * 5]
    assert binned.cuts.has_every_value


@pytest.mark.parametrize("make", [np.asarray, scipy.sparse.csr_matrix])
def test_infinite_values_are_refused_by_name(make):
    X = make(np.array([[1.0, 2.0], [3.0, np.inf]]))
    with pytest.raises(ValueError, match="column 'b' holds 1 value"):
        open_columns(open_table(X, feature_names=["a", "b"]), 1, SingleProcess())


def test_missing_zero_wins_over_absent_zero():
    X = scipy.sparse.csr_matrix(np.array([[1.0, 0.0], [0.0, 2.0]]))
    source = open_table(X, missing=0.0).absent_as(0.0)
    binned = bin_columns(source, None, 16, None, 1, SingleProcess())
    assert binned.count_present() == 2
    assert binned.cuts.has_missing.tolist() == [True, True]
