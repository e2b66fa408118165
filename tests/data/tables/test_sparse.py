"""data/tables/sparse.py: absent entries are missing, stored zeros are zeros, and no more than a batch is ever dense."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

import gpuboost as gb
from gpuboost.data.tables.batches import BATCH_BYTES
from gpuboost.data.tables.open import open_table

NAN = np.nan
FORMATS = ["csr", "csc", "coo", "lil", "dok", "dia", "bsr"]
KINDS = [getattr(sp, f"{name}_{kind}") for name in FORMATS for kind in ("matrix", "array")]


def dense(data, **arguments):
    source = open_table(data, **arguments)
    batches = [batch for batch in source.batches(2)]
    assert all(batch.dtype == np.float32 for batch in batches)
    whole = np.concatenate([np.empty((0, source.n_features), np.float32), *batches])
    backwards = source.rows(range(source.n_rows)[::-1])
    np.testing.assert_array_equal(backwards[::-1], whole)
    return whole


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_absent_entries_are_missing_in_every_format(kind):
    X = kind(np.array([[1, 0, 2], [0, 0, 0], [0, 3, 0]], np.float32))  # of bsr, blocks of one entry
    np.testing.assert_array_equal(dense(X), [[1, NAN, 2], [NAN, NAN, NAN], [NAN, 3, NAN]])


@pytest.mark.parametrize("kind", [sp.csr_matrix, sp.csc_array])
def test_stored_zeros_are_zeros_and_stored_nan_is_missing(kind):
    X = kind(sp.coo_matrix(([0.0, NAN, 5.0], ([0, 0, 1], [0, 1, 2])), shape=(2, 3)))
    np.testing.assert_array_equal(dense(X), [[0, NAN, NAN], [NAN, NAN, 5]])


def test_the_missing_number_applies_to_stored_values():
    X = sp.csr_matrix(([0.0, 1.0], [0, 1], [0, 1, 2]), shape=(2, 2))
    assert gb.DMatrix(X).num_nonmissing() == 2
    assert gb.DMatrix(X, missing=0).num_nonmissing() == 1


@pytest.mark.parametrize("kind", [sp.coo_matrix, sp.csr_matrix, sp.csc_matrix])
def test_entries_in_one_place_are_summed_and_the_matrix_given_stays_as_it_was(kind):
    if kind is sp.coo_matrix:
        X = kind(([1.0, 2.0, 4.0], ([0, 0, 0], [1, 1, 0])), shape=(1, 2))
    else:
        X = kind(([1.0, 2.0, 4.0], [1, 1, 0], [0, 3]), shape=(1, 2)) if kind is sp.csr_matrix else kind(
            ([4.0, 1.0, 2.0], [0, 0, 0], [0, 1, 3]), shape=(1, 2)
        )  # fmt: skip
    before = X.data.copy()
    np.testing.assert_array_equal(dense(X), [[4, 3]])
    np.testing.assert_array_equal(X.data, before)


@pytest.mark.parametrize("dtype, value", [(np.int8, 100), (np.uint8, 200), (np.int32, 2**30)])
@pytest.mark.parametrize("kind", [sp.csr_matrix, sp.csc_array, sp.coo_matrix])
def test_sums_of_narrow_integers_do_not_overflow(kind, dtype, value):
    values = np.array([value, value], dtype)
    entries = (values, ([0, 0], [0, 0])) if kind is sp.coo_matrix else (values, [0, 0], [0, 2])
    np.testing.assert_array_equal(dense(kind(entries, shape=(1, 1))), [[2 * value]])


def test_a_canonical_csr_matrix_is_not_copied():
    X = sp.csr_matrix(np.eye(3))
    table = open_table(X)
    X.data[:] = 7
    np.testing.assert_array_equal(np.diag(next(table.batches())), [7, 7, 7])


@pytest.mark.parametrize("dtype", "? i1 u2 i4 i8 u8 f4 f8 g".split())
def test_every_dtype_that_scipy_has_is_read(dtype):
    np.testing.assert_array_equal(dense(sp.csr_array(np.array([[1, 0], [0, 1]], dtype))), [[1, NAN], [NAN, 1]])


@pytest.mark.parametrize("dtype", ["f2", ">f4", ">f8", ">i4"])
def test_what_scipy_stores_but_cannot_compute_with_is_read(dtype):
    X = sp.csr_array(np.array([[1.5, 0], [0, 2]]))
    X.data = X.data.astype(dtype)
    np.testing.assert_array_equal(dense(X), [[X.data[0], NAN], [NAN, 2]])


def test_objects_are_refused():
    X = sp.csr_array(np.eye(2))
    X.data = X.data.astype(object)
    with pytest.raises(ValueError, match=r"a sparse matrix of objects.*X.astype\(np.float64\)"):
        open_table(X)


def test_integers_beyond_float32_warn_naming_the_columns():
    X = sp.csc_matrix(np.array([[1, 0, 2**24 + 1], [0, 0, 5]]))
    with pytest.warns(UserWarning, match='^Integers in "2" have more digits'):
        open_table(X)


def test_a_default_batch_of_a_wide_matrix_stays_below_its_bytes():
    source = open_table(sp.csr_array((300, 100_000)))
    assert [len(batch) for batch in source.batches()] == [BATCH_BYTES // 400_000] * 15
    assert [len(batch) for batch in open_table(sp.csr_array((2, 10_000_000))).batches()] == [1, 1]


def test_tables_without_rows_or_entries_are_read():
    assert dense(sp.csr_array((0, 3))).shape == (0, 3)
    assert np.isnan(dense(sp.csr_array((2, 3)))).all()


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (sp.coo_array(np.ones(3)), r"2-D, got 1-D of shape \(3,\)"),
        (sp.csr_array((3, 0)), "0 columns"),
        (sp.csr_array(np.eye(2, dtype=complex)), "complex128.*imaginary"),
    ],
    ids=lambda value: getattr(value, "format", None),
)
def test_what_cannot_be_read_is_refused_with_a_fix(data, words):
    with pytest.raises(ValueError, match=words):
        open_table(data)


def test_what_lies_in_a_block_is_a_value_and_a_warning_says_so():
    blocks = np.array([[[1, 0], [2, 3]], [[4, 5], [6, 7]]], np.float32)
    X = sp.bsr_matrix((blocks, [1, 0], [0, 1, 2]), shape=(4, 4))
    with pytest.warns(UserWarning, match="1 zeros in the blocks of a bsr matrix are taken as values"):
        np.testing.assert_array_equal(dense(X), [[NAN, NAN, 1, 0], [NAN, NAN, 2, 3], [4, 5, NAN, NAN], [6, 7, NAN, NAN]])
    with pytest.warns(UserWarning, match="missing"):
        assert gb.DMatrix(X, missing=0).num_nonmissing() == 7


def test_what_a_diagonal_holds_beyond_the_matrix_or_as_zero_is_not_there():
    X = sp.dia_array((np.array([[1, 2, 3, 4], [0, 5, 6, 7]], np.int8), [-1, 1]), shape=(3, 4))
    np.testing.assert_array_equal(dense(X), [[NAN, 5, NAN, NAN], [1, NAN, 6, NAN], [NAN, 2, NAN, 7]])
    X.offsets[:] = [-(10**6), 10**6]
    assert np.isnan(dense(X)).all()


@pytest.mark.parametrize("column", [-1, 2, 10**6])
def test_broken_index_arrays_are_refused(column):
    for name in ("csr", "csc"):
        X = getattr(sp, f"{name}_matrix")(np.eye(2))
        X.indices[1] = column
        with pytest.raises(ValueError, match=f"a {name} matrix with broken index arrays"):
            open_table(X)


@pytest.mark.parametrize("value", [np.inf, -np.inf, 1e39])
def test_infinite_values_are_refused_in_training_and_prediction(value):
    rows = np.random.default_rng(0).normal(size=(50, 3))
    X, bad = sp.csr_matrix(rows), sp.csr_matrix(np.where(np.arange(150).reshape(50, 3) == 100, value, rows))
    booster = gb.train({}, gb.DMatrix(X, rows[:, 0]), 1, verbose_eval=False)
    with pytest.raises(ValueError, match="column 1 holds 1 value.* infinite"):
        gb.train({}, gb.DMatrix(bad, rows[:, 0]), 1, verbose_eval=False)
    with pytest.raises(ValueError, match='Column "1" holds a value that is infinite .* in row 33'):
        booster.predict(gb.DMatrix(bad))
    absent = sp.csr_matrix(np.where(bad.toarray() == value, np.nan, rows))
    as_missing = booster.predict(gb.DMatrix(bad, missing=value))
    np.testing.assert_array_equal(as_missing, booster.predict(gb.DMatrix(absent)))


def test_names_and_types_can_be_given():
    source = open_table(sp.csr_array(np.eye(2)), feature_names=["a", "b"], feature_types=["q", "c"])
    assert source.feature_names == ["a", "b"] and source.feature_types == ["q", "c"]
    with pytest.raises(ValueError, match="trained on 3"):
        open_table(sp.csr_array(np.eye(2)), expected_count=3)


entries = st.dictionaries(st.tuples(st.integers(0, 6), st.integers(0, 4)), st.floats(width=32, allow_infinity=False), max_size=20)


@given(entries, st.sampled_from([kind for kind in KINDS if kind.__name__[:3] != "bsr"]), st.lists(st.integers(0, 6), max_size=9))
def test_entries_and_nothing_else_are_present(entries, kind, rows):
    expected = np.full((7, 5), NAN, np.float32)
    for place, value in entries.items():
        expected[place] = value
    at = np.array(list(entries), int).reshape(-1, 2)
    X = sp.coo_array((np.array(list(entries.values()), np.float32), (at[:, 0], at[:, 1])), shape=(7, 5))
    if kind.__name__[:3] in ("lil", "dok", "dia"):
        X.eliminate_zeros()  # formats that need not keep a zero on their way through SciPy
        expected[expected == 0] = NAN
    source = open_table(kind(X))
    np.testing.assert_array_equal(dense(kind(X)), expected)
    np.testing.assert_array_equal(source.rows(rows), expected[rows])
