"""data/binning.py: a table as codes, in pages."""

import dataclasses

import numpy as np
import pytest

from gpuboost.backend.cpu import CpuBackend
from gpuboost.binned.cuts import SENTINEL, Cuts
from gpuboost.data.binning import bin_table
from gpuboost.data.tables.open import open_table

NAN = np.nan
BACKEND = CpuBackend(2)


def cuts_of(*thresholds):
    each = [np.append(np.asarray(t, np.float32), SENTINEL) for t in thresholds]
    offsets = np.cumsum([0, *map(len, each)]).astype(np.int32)
    return Cuts(np.concatenate(each).astype(np.float32), offsets, np.zeros(len(each), bool), 256)


def binned(X, cuts, *, batch_rows=None, page_rows=None, with_records=True, **arguments):
    source = open_table(X, **arguments)
    if batch_rows is not None:
        source = dataclasses.replace(source)
        object.__setattr__(source, "batches", lambda: type(source).batches(source, batch_rows))
    return bin_table(source, cuts, BACKEND, with_records=with_records, page_rows=page_rows)


def columns_of(matrix):
    return np.concatenate([page.columns for page in matrix.pages], axis=1)


def random_table(n_rows=500, n_features=11):
    rng = np.random.default_rng(11)
    X = rng.normal(size=(n_rows, n_features)).astype(np.float32)
    X[rng.random(X.shape) < 0.2] = NAN
    return X, cuts_of(*(np.unique(rng.normal(size=k).astype(np.float32)) for k in range(n_features)))


def expected_codes(X, cuts):
    codes = [np.searchsorted(cuts.of(f)[:-1], X[:, f], side="right") for f in range(cuts.n_features)]
    return np.where(np.isnan(X.T), cuts.n_bins[:, None], codes)


def test_a_hand_sized_table():
    matrix = binned(np.array([[0, 10], [1, NAN], [2, 30]]), cuts_of([0.5, 1.5], [20]))
    (page,) = matrix.pages
    assert page.columns.tolist() == [[0, 1, 2], [0, 2, 1]] and matrix.dtype == np.uint8
    assert page.records.tolist() == [[0, 0] + [0] * 6, [1, 2] + [0] * 6, [2, 1] + [0] * 6]
    assert matrix.n_rows == page.n_rows == 3


def test_words_are_the_records_eight_bytes_at_a_time():
    X, cuts = random_table()
    (page,) = binned(X, cuts).pages
    assert page.records.shape == (500, 16) and page.words.shape == (500, 2)
    assert page.words.tobytes() == page.records.tobytes()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("order", "CF")
@pytest.mark.parametrize("batch_rows", [None, 1, 64, 499])
@pytest.mark.parametrize("page_rows", [None, 1, 100, 1000])
def test_codes_do_not_depend_on_layout_batches_or_pages(dtype, order, batch_rows, page_rows):
    X, cuts = random_table()
    matrix = binned(np.array(X, dtype, order=order), cuts, batch_rows=batch_rows, page_rows=page_rows)
    np.testing.assert_array_equal(columns_of(matrix), expected_codes(X, cuts))
    assert [page.n_rows for page in matrix.pages] == [min(page_rows or 500, 500)] * (500 // min(page_rows or 500, 500))
    for page in matrix.pages:
        np.testing.assert_array_equal(page.records[:, :11], page.columns.T)
        assert not page.records[:, 11:].any(), "padding must stay 0"


def test_the_last_page_holds_the_rest():
    X, cuts = random_table()
    assert [page.n_rows for page in binned(X, cuts, page_rows=150).pages] == [150, 150, 150, 50]


def test_the_missing_value_is_missing():
    matrix = binned(np.array([[-999.0], [1.0], [NAN]]), cuts_of([0.0]), missing=-999)
    assert matrix.pages[0].columns.tolist() == [[2, 1, 2]]


@pytest.mark.parametrize("n_bins, is_missing, dtype", [
    (255, False, np.uint8), (255, True, np.uint8), (256, False, np.uint8), (256, True, np.uint16), (257, False, np.uint16),
])  # fmt: skip
def test_codes_take_one_byte_where_all_of_them_fit(n_bins, is_missing, dtype):
    cuts = cuts_of(np.arange(1, n_bins), [0.5])
    X = np.column_stack([np.arange(n_bins), np.zeros(n_bins)])
    X[3, 0] = NAN if is_missing else 3
    matrix = binned(X, cuts)
    assert matrix.dtype == dtype
    np.testing.assert_array_equal(columns_of(matrix), expected_codes(X, cuts))
    assert matrix.pages[0].records.shape[1] * matrix.dtype.itemsize % 8 == 0


def test_without_records_only_columns_are_written():
    X, cuts = random_table()
    matrix = binned(X, cuts, with_records=False, page_rows=200)
    assert all(page.records.shape[0] == 0 for page in matrix.pages)
    np.testing.assert_array_equal(columns_of(matrix), expected_codes(X, cuts))


def test_a_table_without_rows_has_one_empty_page():
    matrix = binned(np.empty((0, 3)), cuts_of([0], [], [1, 2]))
    assert matrix.n_rows == 0 and len(matrix.pages) == 1
