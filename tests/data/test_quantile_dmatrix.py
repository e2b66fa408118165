"""data/quantile_dmatrix.py: a table is binned at once, by its own cuts or a reference's, and forgotten."""

import numpy as np
import pytest
import scipy.sparse as sp
from peer_versions import xgboost_before
from small_matrices import BACKEND, COMM, X, codes_of

from gpuboost.communicator import run_threads
from gpuboost.data.dmatrix import DMatrix
from gpuboost.data.quantile_dmatrix import QuantileDMatrix


def test_a_quantile_matrix_bins_at_once_and_forgets_the_table():
    d = QuantileDMatrix(X, [1, 2, 3], max_bin=16)
    assert codes_of(d) == [[0, 1, 2], [0, 2, 1]] and d.max_bin == 16
    assert d.binned(16, BACKEND, COMM) is d.any_binned() and d.source(None, {}, 2) is None
    offsets, edges = d.get_quantile_cut()
    assert offsets.tolist() == [0, 4, 7] and edges[[1, 2, 5]].tolist() == [1.5, 2.5, 20]


def test_a_quantile_matrix_is_the_same_in_pages():
    rows = np.random.default_rng(12).normal(size=(1000, 3))
    whole, paged = QuantileDMatrix(rows), QuantileDMatrix(rows, page_rows=300)
    pages = paged.any_binned().pages
    assert [page.n_rows for page in pages] == [300, 300, 300, 100]
    np.testing.assert_array_equal(np.concatenate([p.columns for p in pages], axis=1), whole.any_binned().pages[0].columns)
    assert paged.any_binned().cuts.same_as(whole.any_binned().cuts)


def test_all_of_256_bins_and_missing_values_are_told_apart_when_counted():
    rows = np.arange(300.0)[:, None]
    assert QuantileDMatrix(rows).num_nonmissing() == 300
    assert QuantileDMatrix(np.where(rows < 3, np.nan, rows)).num_nonmissing() == 297


def test_a_quantile_matrix_sketches_with_its_weights():
    rows, weight = np.arange(100.0)[:, None], np.where(np.arange(100) < 10, 100, 1)
    weighted = QuantileDMatrix(rows, weight=weight, max_bin=4).any_binned().cuts
    assert weighted.same_as(DMatrix(rows, weight=weight).binned(4, BACKEND, COMM).cuts)
    assert not weighted.same_as(QuantileDMatrix(rows, max_bin=4).any_binned().cuts)


@pytest.mark.parametrize("make_ref", [lambda: QuantileDMatrix(X, max_bin=16), lambda: DMatrix(X)])
def test_a_reference_lends_its_cuts(make_ref):
    ref = make_ref()
    d = QuantileDMatrix([[2.4, 99.0], [9.0, np.nan]], ref=ref)
    assert codes_of(d) == [[1, 2], [1, 2]]
    assert d.any_binned().cuts.same_as(ref.any_binned().cuts) and d.max_bin == ref.any_binned().cuts.max_bin


def test_only_a_matrix_that_is_trained_on_has_records():
    ref = QuantileDMatrix(X)
    d = QuantileDMatrix(X, ref=ref, page_rows=2)
    assert [len(page.records) for page in d.any_binned().pages] == [0, 0]
    trained = d.binned(256, BACKEND, COMM)
    assert trained is d.binned(256, BACKEND, COMM) is d.any_binned(), "built twice"
    np.testing.assert_array_equal(np.concatenate([page.records for page in trained.pages]), ref.any_binned().pages[0].records)


def test_get_data_has_the_smallest_value_of_each_bin():
    data = QuantileDMatrix(X, [1, 2, 3], max_bin=16).get_data()
    assert data.format == "csr" and data.dtype == np.float32 and data.nnz == 5
    np.testing.assert_array_equal(data.toarray(), [[1, 10], [1.5, 0], [2.5, 20]])


@pytest.mark.parametrize("kind", ["dense", "categories", "sparse", "zero"])
@pytest.mark.parametrize("options", [{}, {"page_rows": 170}], ids=["whole", "pages"])
def test_get_data_has_the_codes_of_the_table(kind, options):
    rng = np.random.default_rng(7)
    rows = rng.normal(size=(500, 4)).astype(np.float32)
    rows[:, 3] = rng.integers(0, 5, 500)
    rows[rng.random(rows.shape) < 0.3] = np.nan
    given = {"feature_types": ["float", "float", "float", "c"]} if kind == "categories" else {}
    if kind in ("sparse", "zero"):
        rows = sp.csr_array(np.where(rng.random(rows.shape) < 0.6, 0, rows))
        given = {"sparse_absent": kind.replace("sparse", "missing")}
    matrix = QuantileDMatrix(rows, max_bin=16, **given, **options)
    data = matrix.get_data()
    assert data.nnz == matrix.num_nonmissing() and data.shape == (500, 4)
    presence = DMatrix(rows, **given).get_data()
    np.testing.assert_array_equal(data.indptr, presence.indptr)
    np.testing.assert_array_equal(data.indices, presence.indices)
    types = given.get("feature_types")
    again = QuantileDMatrix(dense(data), ref=QuantileDMatrix(dense(presence), max_bin=16, feature_types=types))
    cuts = again.any_binned().cuts
    assert cuts.same_as(matrix.any_binned().cuts)
    if kind != "zero":
        np.testing.assert_array_equal(dense(again.get_data()), dense(data))
    for f in range(4):
        both = dense(data)[:, f], dense(presence)[:, f]
        codes = [np.searchsorted(cuts.of(f)[:-1], values[~np.isnan(values)], "right") for values in both]
        np.testing.assert_array_equal(*codes)


def dense(matrix):
    """With NaN for what is not stored."""
    filled = np.full(matrix.shape, np.nan, np.float32)
    filled[np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr)), matrix.indices] = matrix.data
    return filled


def test_outer_edges_are_those_of_xgboost():
    xgboost = pytest.importorskip("xgboost")
    table = np.array(
        [[1, -5, 0, 1e38, -3, 0], [2, -5, 0, 3e38, -3, 2], [3, np.nan, 0, 2e38, -4, 5], [4, 7, 0, np.nan, -3, 2]], np.float32
    )
    types = ["q"] * 5 + ["c"]
    offsets, edges = QuantileDMatrix(table, np.arange(4), feature_types=types).get_quantile_cut()
    their_matrix = xgboost.QuantileDMatrix(table, np.arange(4), feature_types=types, enable_categorical=True)
    theirs, their_edges = their_matrix.get_quantile_cut()
    np.testing.assert_array_equal(offsets, theirs)
    assert (offsets.dtype, edges.dtype) == (theirs.dtype, their_edges.dtype)
    last, first = offsets[1:] - np.uint64(1), offsets[:5]
    rounding = 2e-8 if xgboost_before(3, 4) else 0  # of −3 + (3 + 1e-5), which was not in 32 bits
    np.testing.assert_allclose(edges[last], their_edges[last], rtol=0, atol=rounding)
    np.testing.assert_array_equal(edges[first], -np.inf)
    assert xgboost_before(3, 4) or (their_edges[first] == -np.inf).all()
    assert edges[offsets[5] :].tolist() == their_edges[offsets[5] :].tolist() == [0, 1, 2, 3, 4, 5]
    for first, last in zip(offsets[:-1], offsets[1:]):
        assert (edges[int(first) : int(last) - 1] < edges[int(first) + 1 : int(last)]).all()


@pytest.mark.parametrize("max_bin", [3, 256])
@pytest.mark.parametrize("kind", ["dense", "sparse", "weighted", "workers", "reference"])
def test_edges_enclose_the_values_of_every_kind_of_table(kind, max_bin):
    rng = np.random.default_rng(0)
    table = rng.normal(size=(60, 2)).astype(np.float32)
    table[:, 1] = abs(table[:, 1])
    weight, rows = rng.integers(0, 2, 60) if kind == "weighted" else None, table
    if kind == "weighted":
        rows = table[weight > 0]
    if kind == "sparse":
        table[rng.random(table.shape) < 0.5] = 0
        matrix = QuantileDMatrix(pytest.importorskip("scipy.sparse").csr_array(table), max_bin=max_bin, sparse_absent="zero")
    elif kind == "reference":
        matrix = QuantileDMatrix(table[:1], ref=QuantileDMatrix(table, max_bin=max_bin))
    elif kind == "workers":
        matrix = run_threads(2, lambda rank: QuantileDMatrix(table[rank::2], max_bin=max_bin))[0]
    else:
        matrix = QuantileDMatrix(table, weight=weight, max_bin=max_bin)
    offsets, edges = matrix.get_quantile_cut()
    high = rows.max(axis=0)
    np.testing.assert_array_equal(edges[offsets[:-1]], -np.inf)
    np.testing.assert_array_equal(edges[offsets[1:] - np.uint64(1)], high + (abs(high) + np.float32(1e-5)))  # as in XGBoost


def test_a_reference_orders_the_columns_by_name():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X, columns=["a", "b"])
    ref = QuantileDMatrix(frame)
    d = QuantileDMatrix(frame[["b", "a"]], ref=ref)
    assert codes_of(d) == codes_of(ref) and d.feature_names == ["a", "b"]


def test_a_reference_with_other_columns_or_bins_is_refused():
    ref = QuantileDMatrix(X, max_bin=16)
    with pytest.raises(ValueError, match="ref has 2 columns, data has 3"):
        QuantileDMatrix(np.ones((4, 3)), ref=ref)
    with pytest.raises(ValueError, match="max_bin=32, but ref was binned with 16"):
        QuantileDMatrix(X, ref=ref, max_bin=32)


def test_training_with_another_max_bin_is_refused():
    with pytest.raises(ValueError, match="max_bin=64 in the training parameters, but the QuantileDMatrix was built with 16"):
        QuantileDMatrix(X, max_bin=16).binned(64, BACKEND, COMM)


def test_pages_hold_at_least_one_row():
    with pytest.raises(ValueError, match="page_rows must be at least 1, got 0"):
        QuantileDMatrix(X, page_rows=0)


@pytest.mark.parametrize("max_bin", [0, 1, 65536, -3])
def test_max_bin_out_of_range_is_refused(max_bin):
    with pytest.raises(ValueError, match=f"max_bin must be between 2 and 65535, got {max_bin}"):
        QuantileDMatrix(X, max_bin=max_bin)


@pytest.mark.parametrize("max_bin", [2, 65535])
def test_the_limits_of_max_bin_are_allowed(max_bin):
    assert QuantileDMatrix(X, max_bin=max_bin).max_bin == max_bin
