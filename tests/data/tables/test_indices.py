"""data/tables/indices.py: index arrays that point nowhere are an error that says so, in whatever takes a sparse matrix."""

import numpy as np
import pytest
import scipy.sparse as sp

import gpuboost as gb
from gpuboost.data.tables.indices import check_indices
from gpuboost.labels import label_array

FAR = 10**8  # so far outside that whoever follows it leaves the process's memory


def changed(**arrays):
    def change(matrix):
        for name, values in arrays.items():
            setattr(matrix, name, np.array(values))

    return change


def at(name, place, value):
    def change(matrix):
        getattr(matrix, name)[place] = value

    return change


def moved(axis, value):
    def change(matrix):
        matrix.coords[axis][1] = value

    return change


COMPRESSED = {
    "indices must lie between 0 and 3, got -1": at("indices", 1, -1),
    "indices must lie between 0 and 3, got 4": at("indices", 1, 4),
    f"indices must lie between 0 and 3, got {FAR}": at("indices", 1, FAR),
    "indptr must begin with 0 and never fall": at("indptr", 1, FAR),
    "indptr must begin with 0 and never fall ": at("indptr", 2, 0),
    "indptr must begin with 0 and never fall  ": at("indptr", 0, 1),
    "indptr must begin with 0 and never fall   ": at("indptr", 4, -2),
    f"indptr ends at {FAR}, but indices holds 4": at("indptr", 4, FAR),
    r"indptr must hold 5 signed integers, got int64 of shape \(4,\)": changed(indptr=[0, 1, 2, 3]),
    r"indptr must hold 5 signed integers, got float64 of shape \(5,\)": changed(indptr=[0, 1.0, 2, 3, 4]),
    r"indices must hold 4 signed integers, got int64 of shape \(3,\)": changed(indices=[0, 1, 2], indptr=[0, 1, 2, 3, 3]),
    r"indices must hold 3 signed integers, got int32 of shape \(4,\)": lambda matrix: setattr(matrix, "data", matrix.data[:3]),
    r"indices must hold 4 signed integers, got uint64 of shape \(4,\)": lambda matrix: setattr(
        matrix, "indices", matrix.indices.astype(np.uint64)
    ),
}
COORDINATES = {
    r"coords\[0\] must lie between 0 and 3, got -1": moved(0, -1),
    r"coords\[1\] must lie between 0 and 3, got 4": moved(1, 4),
    rf"coords\[0\] must lie between 0 and 3, got {FAR}": moved(0, FAR),
    rf"coords\[1\] must lie between 0 and 3, got -{FAR}": moved(1, -FAR),
    r"coords\[0\] must hold 3 signed integers, got int32 of shape \(4,\)": changed(data=[1.0, 2.0, 3.0]),
    r"coords\[1\] must hold 4 signed integers, got float64 of shape \(4,\)": lambda matrix: setattr(
        matrix, "coords", (matrix.coords[0], matrix.coords[1].astype(float))
    ),
}
BROKEN = [
    *((name, words, change) for name in ("csr", "csc") for words, change in COMPRESSED.items()),
    *(("coo", words, change) for words, change in COORDINATES.items()),
]


def broken(name, kind, change):
    matrix = getattr(sp, f"{name}_{kind}")(np.eye(4))
    assert check_indices(matrix) is None
    change(matrix)
    return matrix


@pytest.mark.parametrize("kind", ["matrix", "array"])
@pytest.mark.parametrize("name, words, change", BROKEN)
def test_a_table_is_refused_naming_what_is_wrong(name, kind, words, change):
    with pytest.raises(ValueError, match=f"data is a {name} matrix with broken index arrays: {words.rstrip()}. Build it anew"):
        gb.DMatrix(broken(name, kind, change))


@pytest.mark.parametrize("kind", ["matrix", "array"])
def test_lists_of_unequal_length_or_columns_outside_are_refused(kind):
    for name, lists in {"data": [1.0, 2.0], "rows": [0, 1], "columns": [FAR], "negative": [-1]}.items():
        X = getattr(sp, f"lil_{kind}")(np.eye(4))
        (X.data if name == "data" else X.rows)[0] = lists
        with pytest.raises(ValueError, match="broken index arrays"):
            gb.DMatrix(X)


@pytest.mark.parametrize("kind", ["matrix", "array"])
def test_keys_outside_are_refused(kind):
    X = getattr(sp, f"dok_{kind}")(np.eye(4))
    X._dict[0, FAR] = 1.0
    with pytest.raises(ValueError, match=f"index {FAR} exceeds"):
        gb.DMatrix(X)


@pytest.mark.parametrize("name, words, change", BROKEN)
def test_predicting_estimators_and_labels_refuse_it_as_well(name, words, change):
    """Predicting in place has a quick way for a few rows; labels are written out."""
    X = np.eye(4)
    model = gb.GPUBoostRegressor(n_estimators=1).fit(sp.csr_matrix(X), X[:, 0])
    for use in (model.get_booster().inplace_predict, model.predict, lambda matrix: model.fit(matrix, X[:, 0])):
        with pytest.raises(ValueError, match=f"data is a {name} matrix with broken index arrays"):
            use(broken(name, "matrix", change))
    with pytest.raises(ValueError, match=f"y is a {name} matrix with broken index arrays"):
        label_array(broken(name, "matrix", change))


@pytest.mark.parametrize("change", [at("indices", 1, FAR), at("indptr", 1, FAR), at("indptr", 2, FAR)])
def test_labels_in_blocks_are_checked(change):
    y = sp.bsr_matrix(np.eye(4), blocksize=(2, 2))
    assert label_array(y).tolist() == np.eye(4).tolist()
    change(y)
    with pytest.raises(ValueError, match="y is a bsr matrix with broken index arrays"):
        label_array(y)


def test_labels_of_one_dimension_are_read():
    for kind in (sp.coo_array, sp.csr_array):
        assert label_array(kind(np.array([0, 1, 2]))).tolist() == [0, 1, 2]


def test_what_lies_behind_the_last_row_is_no_entry():
    """SciPy allows it, whatever it holds."""
    X = np.eye(4, dtype=np.float32)
    longer = sp.csr_matrix(X)
    longer.data, longer.indices = np.append(longer.data, np.float32(np.inf)), np.append(longer.indices, np.int32(FAR))
    assert gb.DMatrix(longer).num_nonmissing() == 4
    booster = gb.train({}, gb.DMatrix(sp.csr_matrix(X), X[:, 0]), 2, verbose_eval=False)
    for rows in (longer, longer.tocsc()):
        assert booster.inplace_predict(rows).tolist() == booster.predict(gb.DMatrix(sp.csr_matrix(X))).tolist()


@pytest.mark.parametrize("dtypes", ["i4 i8", "i8 i4", ">i4 >i4", "i2 i1"])
def test_index_arrays_may_be_of_any_width_and_byte_order(dtypes):
    X = sp.csr_matrix(np.eye(4))
    X.indptr, X.indices = (array.astype(dtype) for array, dtype in zip((X.indptr, X.indices), dtypes.split()))
    np.testing.assert_array_equal(gb.DMatrix(X).get_data().toarray(), np.eye(4))
