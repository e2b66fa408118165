"""data/columns.py: a table by columns gives the cuts and codes that the sketch and the binning of batches give."""

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuboost.backend import CpuBackend
from gpuboost.binned.cuts import SENTINEL
from gpuboost.communicator import SingleProcess, current_communicator, run_threads
from gpuboost.data.binning import bin_table
from gpuboost.data.columns import bin_columns, list_entries
from gpuboost.data.sketch import sketch_columns
from gpuboost.data.tables.open import open_table
from gpuboost.params import EVERY_VALUE

NAN = np.nan
KINDS = ["normal", "few", "zeros", "heavy", "denormal", "one"]


def make_column(rng, kind, n):
    return {
        "normal": lambda: rng.normal(size=n),
        "few": lambda: rng.integers(-3, 4, n),
        "zeros": lambda: np.where(rng.random(n) < 0.9, 0, rng.normal(size=n)),
        "heavy": lambda: rng.choice([1.0, 2.0, 5.0], n, p=[0.6, 0.3, 0.1]) + (rng.random(n) < 0.2) * rng.normal(size=n),
        "denormal": lambda: rng.integers(-50, 50, n) * 1e-44,
        "one": lambda: np.full(n, 3.0),
    }[kind]().astype(np.float32)  # fmt: skip


def stored(X, is_stored):
    """A CSR matrix of the cells marked, zeros and NaN among them."""
    return scipy.sparse.csr_matrix((X[is_stored], np.nonzero(is_stored)), shape=X.shape)


def same_cuts(a, b):
    return a.same_as(b) and np.array_equal(a.has_missing, b.has_missing) and np.array_equal(a.extremes, b.extremes)


@settings(max_examples=80, deadline=None)
@given(
    st.integers(0, 2**32), st.integers(1, 400), st.lists(st.sampled_from(KINDS), min_size=1, max_size=4),
    st.sampled_from([2, 3, 16, 256]), st.sampled_from(["none", "small", "wild"]), st.booleans(), st.integers(1, 3),
)  # fmt: skip
def test_cuts_are_those_of_the_sketch(seed, n_rows, kinds, max_bin, weighting, absent_is_zero, n_workers):
    rng = np.random.default_rng(seed)
    X = np.stack([make_column(rng, kind, n_rows) for kind in kinds], axis=1)
    is_stored = rng.random(X.shape) < 0.7
    X[rng.random(X.shape) < 0.1] = NAN
    dense = np.where(is_stored, X, np.float32(0.0 if absent_is_zero else NAN))
    weights = {"none": None, "small": rng.integers(0, 4, n_rows), "wild": 2 ** rng.integers(0, 30, n_rows)}[weighting]
    backend = CpuBackend(2)
    expected = sketch_columns(open_table(dense), weights, max_bin, backend, SingleProcess())
    csr, parts = stored(X, is_stored), np.array_split(np.arange(n_rows), n_workers)

    def own_cuts(rank):
        source = open_table(csr[parts[rank]]).absent_as(0.0 if absent_is_zero else NAN)
        own = None if weights is None else weights[parts[rank]]
        comm = current_communicator()
        return list_entries(source, 2, comm).cuts(own, max_bin, comm)

    for cuts in run_threads(n_workers, own_cuts):
        assert same_cuts(cuts, expected)
    assert same_cuts(list_entries(open_table(dense), 2, SingleProcess()).cuts(weights, max_bin, SingleProcess()), expected)


@settings(max_examples=40, deadline=None)
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
    codes = np.repeat(binned.sorted_columns.absent[:, None], n_rows, axis=1)
    for f, (begin, end) in enumerate(binned.sorted_columns.bounds):
        codes[f, binned.sorted_columns.rows[begin:end]] = binned.sorted_columns.codes[begin:end]
    np.testing.assert_array_equal(codes, expected.pages[0].columns)
    if not is_sparse:
        np.testing.assert_array_equal(binned.pages[0].columns, expected.pages[0].columns)
        return
    page = binned.pages[0]
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
        list_entries(open_table(X, feature_names=["a", "b"]), 1, SingleProcess())


def test_missing_zero_wins_over_absent_zero():
    X = scipy.sparse.csr_matrix(np.array([[1.0, 0.0], [0.0, 2.0]]))
    source = open_table(X, missing=0.0).absent_as(0.0)
    binned = bin_columns(source, None, 16, None, 1, SingleProcess())
    assert binned.count_present() == 2
    assert binned.cuts.has_missing.tolist() == [True, True]
