"""arrays.py: kernels that only read a table meet few forms of it, and what they gather begins with a line of the cache."""

import gc
import weakref

import numpy as np
import pytest
import scipy.sparse
from numba import float32

import gpuboost as gb
from gpuboost.arrays import LINE, SMALL_BYTES, empty_from_a_line, usual_form, zeros_from_a_line
from gpuboost.kernels.binning import bin_rows_cpu

FORMS = {
    "by rows": lambda X: X, "by columns": np.asfortranarray, "backwards": lambda X: X[::-1, ::-1],
    "every other": lambda X: np.repeat(np.repeat(X, 2, 0), 2, 1)[::2, ::2],
    "repeated": lambda X: np.broadcast_to(X[:1], X.shape), "empty": lambda X: X[:0],
}  # fmt: skip


@pytest.mark.parametrize("is_writable", [True, False])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("form", FORMS)
def test_values_stay_and_no_array_is_read_only_or_by_columns(form, dtype, is_writable):
    X = FORMS[form](np.arange(12, dtype=dtype).reshape(4, 3))
    X.flags.writeable = is_writable and X.flags.writeable
    usual = usual_form(X)
    np.testing.assert_array_equal(usual, X)
    assert usual.dtype == X.dtype and usual.flags.writeable and not usual.flags.fnc
    assert form == "by columns" or X.size == 0 or np.shares_memory(usual, X), "no copy"
    assert usual is X or not X.flags.writeable or form == "by columns"


def test_a_large_table_by_columns_is_not_copied():
    X = np.zeros((SMALL_BYTES // 8, 2), order="F")
    X.flags.writeable = False
    usual = usual_form(X)
    assert np.shares_memory(usual, X) and usual.flags.fnc


def test_memory_stays_for_as_long_as_it_is_looked_at():
    class Owner(np.ndarray):
        pass

    X = np.ones((2, 2)).view(Owner)
    X.flags.writeable = False
    owner, usual = weakref.ref(X), usual_form(X)
    del X
    gc.collect()
    assert owner() is not None and usual.tolist() == [[1, 1], [1, 1]]
    del usual
    gc.collect()
    assert owner() is None


def test_tables_in_all_forms_train_by_two_machine_codes_and_stay_as_they_are():
    rng = np.random.default_rng(0)
    values, labels = rng.normal(size=(40, 3)).astype(np.float32), rng.normal(size=40)
    for form in ("by rows", "by columns", "backwards", "every other"):
        for is_writable in (True, False):
            X = FORMS[form](values.copy())
            X.flags.writeable = is_writable
            kept = X.copy()
            gb.train({"nthread": 1}, gb.DMatrix(X, labels), 1, verbose_eval=False).predict(gb.DMatrix(X))
            np.testing.assert_array_equal(X, kept)
    batches = {signature[0] for signature in bin_rows_cpu.dispatcher.signatures}
    assert {(batch.layout, batch.mutable) for batch in batches if batch.dtype == float32} == {("C", True), ("A", True)}


@pytest.mark.parametrize("make", [empty_from_a_line, zeros_from_a_line])
@pytest.mark.parametrize("shape", [(1,), (3, 5, 7), (1000, 28), (2**20, 4)])
def test_arrays_begin_with_a_line(make, shape):
    arrays = [make(shape, np.uint16) for _ in range(8)]  # malloc's blocks lie anywhere
    for array in arrays:
        assert array.ctypes.data % LINE == 0 and array.shape == shape and array.dtype == np.uint16
        assert array.flags.c_contiguous and array.flags.writeable
        assert make is empty_from_a_line or not array.any()
    assert make((0, 3), np.int64).shape == (0, 3)
    for number, array in enumerate(arrays):
        array[:] = number
    assert all((array == number).all() for number, array in enumerate(arrays)), "no two share memory"


@pytest.mark.parametrize("kind", ["numbers", "packed", "packed, of lists"])
def test_records_begin_with_a_line(kind):
    rng = np.random.default_rng(0)
    one_hot = np.eye(21)[rng.integers(0, 21, (1000, 6))].reshape(1000, 126)
    tables = {"numbers": rng.normal(size=(1000, 28)), "packed": one_hot, "packed, of lists": scipy.sparse.csr_matrix(one_hot)}
    dtrain = gb.DMatrix(tables[kind], rng.normal(size=1000))
    gb.train({"tree_method": "hist"}, dtrain, 1)
    binned = dtrain.any_binned()
    assert (binned.packing is not None) == ("packed" in kind)
    assert len(binned.pages[0].records) == 1000 and binned.pages[0].records.ctypes.data % LINE == 0
