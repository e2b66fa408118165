"""data/quantile_dmatrix.py: a table is binned at once, by its own cuts or a reference's, and forgotten."""

import numpy as np
import pytest
from small_matrices import BACKEND, COMM, X, codes_of

from gpuboost.data.dmatrix import DMatrix
from gpuboost.data.quantile_dmatrix import QuantileDMatrix


def test_a_quantile_matrix_bins_at_once_and_forgets_the_table():
    d = QuantileDMatrix(X, [1, 2, 3], max_bin=16)
    assert codes_of(d) == [[0, 1, 2], [0, 2, 1]] and d.max_bin == 16
    assert d.binned(16, BACKEND, COMM) is d.any_binned() and d.source(None, {}, 2) is None
    offsets, thresholds = d.get_quantile_cut()
    assert offsets.tolist() == [0, 3, 5] and thresholds[[0, 1, 3]].tolist() == [1.5, 2.5, 20]


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
