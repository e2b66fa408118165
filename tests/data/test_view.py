"""data/view.py: a table, or a slice of it, is read as a model wants it; infinite values are refused."""

import numpy as np
import pytest
from small_matrices import X, caught

from gpuboost.data.dmatrix import DMatrix
from gpuboost.data.quantile_dmatrix import QuantileDMatrix


def test_present_values_are_counted_and_given_as_csr():
    table = np.array([[0, 1, np.nan], [-9, 5, 0]])
    for matrix in (DMatrix(table, missing=-9), QuantileDMatrix(table, missing=-9)):
        assert matrix.num_nonmissing() == 4
    data = DMatrix(table, missing=-9).get_data()
    assert data.format == "csr" and data.dtype == np.float32 and data.shape == (2, 3)
    assert data.indptr.tolist() == [0, 2, 4] and data.indices.tolist() == [0, 1, 1, 2] and data.data.tolist() == [0, 1, 5, 0]


def test_tables_without_rows_give_empty_csr():
    assert DMatrix(np.empty((0, 2))).get_data().shape == (0, 2) and DMatrix(np.empty((0, 2))).num_nonmissing() == 0


@pytest.mark.parametrize("rindex", [[2, 0], np.array([2, 0], np.uint8), np.array([2.0, 0.0])])
def test_a_slice_holds_the_rows_in_order_with_their_info(rindex):
    d = DMatrix(
        X, [[1, 4], [2, 5], [3, 6]], weight=[1, 2, 3], base_margin=[7, 8, 9], feature_names=["a", "b"], feature_weights=[1, 1]
    )
    part = d.slice(rindex)
    assert part.num_row() == 2 and part.num_col() == 2 and part.feature_names == ["a", "b"]
    assert part.get_label().tolist() == [[3, 6], [1, 4]] and part.get_weight().tolist() == [3, 1]
    assert part.get_base_margin().tolist() == [9, 7] and part.get_float_info("feature_weights").tolist() == [1, 1]
    np.testing.assert_array_equal(part.get_data().toarray(), [[3, 30], [1, 10]])
    np.testing.assert_array_equal(next(part.source(["b", "a"], {}, 2).batches()), [[30, 3], [10, 1]])
    np.testing.assert_array_equal(part.slice([1]).get_data().toarray(), [[1, 10]])
    part.set_label([0, 0])
    assert len(d.labels) == 2 and d.num_row() == 3, "the whole is untouched"


def test_a_slice_by_mask_and_an_empty_one():
    assert DMatrix(X, [1, 2, 3]).slice(np.array([True, False, True])).get_label().tolist() == [1, 3]
    empty = DMatrix(X, [1, 2, 3]).slice([])
    assert empty.num_row() == 0 and empty.labels.shape == (1, 0)


def test_a_slice_keeps_the_dictionary_of_categories():
    polars = pytest.importorskip("polars")
    d = DMatrix(polars.DataFrame({"c": polars.Series(["z", "a", "m"], dtype=polars.Categorical)}))
    part = d.slice([0])
    assert part.categories == d.categories == {"c": ["a", "m", "z"]}
    np.testing.assert_array_equal(part.get_data().toarray(), [[2]])


def test_a_table_without_names_warns_once_when_the_model_has_them():
    named, unnamed = DMatrix(X, feature_names=["a", "b"]), DMatrix(X)
    (message,) = caught(lambda: [unnamed.source(["a", "b"], {}, 2) for _ in range(2)])
    assert "data has no column names" in message
    assert caught(lambda: (named.source(["a", "b"], {}, 2), DMatrix(X).source(None, {}, 2), named.source(None, {}, 2))) == []


@pytest.mark.parametrize("value", [np.inf, -np.inf, 1e39, 3.4028235e38])
def test_infinite_values_are_refused_when_a_model_reads_them(value):
    table = np.array([[1.0, 2.0], [3.0, value]])
    for matrix in (DMatrix(table), DMatrix(table, feature_names=["a", "1"]), DMatrix(table).slice([0, 1])):
        source = matrix.source(matrix.feature_names, {}, 2)
        with pytest.raises(ValueError, match='^Column "1" holds a value that is infinite .* in row 1: '):
            list(source.batches(1))
    assert len(list(DMatrix(table, missing=value).source(None, {}, 2).batches())) == 1
    with pytest.raises(ValueError, match="infinite"):
        QuantileDMatrix(table, ref=QuantileDMatrix(X))
