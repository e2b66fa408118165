"""data/saved.py: a matrix that was saved is read by its name, with all that is known of it; damaged files are refused."""

import json
from contextlib import suppress

import numpy as np
import pytest
import scipy.sparse as sp

import gpuboost as gb

RNG = np.random.default_rng(5)
N = 120
X = RNG.normal(size=(N, 3))
X[RNG.random(X.shape) < 0.2] = np.nan
Y = (np.nan_to_num(X[:, 0]) > 0).astype(np.float32)
ROWS = {"weight": RNG.integers(0, 3, N), "base_margin": RNG.normal(size=N), "feature_weights": [1, 2, 3]}


def sparse(rule):
    listed = sp.csr_array(np.where(RNG.random(X.shape) < 0.5, 0, X))
    return gb.DMatrix(listed, Y, sparse_absent=rule)


def frame(library):
    module = pytest.importorskip(library)
    colour = np.array(["red", "green", "blue"])[RNG.integers(0, 3, N)]
    size, kind = RNG.integers(0, 9, N), "category" if library == "pandas" else module.Categorical
    columns = module.DataFrame({"x": X[:, 0], "färbe": colour, "size": size, "big": size > 4})
    return columns.astype({"färbe": kind}) if library == "pandas" else columns.with_columns(module.col("färbe").cast(kind))


MADE = {
    "array": lambda: gb.DMatrix(X, Y, **ROWS, feature_names=["a", "b", "c"], feature_types=["float", "q", "int"]),
    "missing value": lambda: gb.DMatrix(np.nan_to_num(X, nan=-9), Y, missing=-9),
    "codes": lambda: gb.DMatrix(np.nan_to_num(X[:, :1]).round() + 4, Y, feature_types=["c"]),
    "targets": lambda: gb.DMatrix(X, np.stack([Y, 1 - Y], axis=1)),
    "missing labels": lambda: gb.DMatrix(X, np.where(RNG.random(N) < 0.2, np.nan, Y), missing_labels="mask"),
    "queries": lambda: gb.DMatrix(X, Y, group=[20, 0, 70, 30]),
    "bounds": lambda: gb.DMatrix(X, label_lower_bound=Y + 1, label_upper_bound=np.where(Y > 0, np.inf, 3)),
    "sparse": lambda: sparse(None),
    "sparse, zeros": lambda: sparse("zero"),
    "slice": lambda: gb.DMatrix(X, Y).slice([5, 3, 8]),
    "sparse slice": lambda: sparse("zero").slice(np.arange(50)[::-1]),
    "pandas": lambda: gb.DMatrix(frame("pandas"), Y),
    "polars": lambda: gb.DMatrix(frame("polars"), Y),
    "slice of a frame": lambda: gb.DMatrix(frame("pandas"), Y).slice(np.arange(60)),
    "no rows": lambda: gb.DMatrix(np.zeros((0, 2))),
}


@pytest.mark.parametrize("name", MADE)
def test_a_matrix_comes_back_with_all_that_is_known_of_it(name, tmp_path):
    made = MADE[name]()
    made.save_binary(tmp_path / "m.bin")
    again = gb.DMatrix(tmp_path / "m.bin")
    own, expected = again.get_data(), made.get_data()
    np.testing.assert_array_equal(own.toarray(), expected.toarray())
    assert own.nnz == expected.nnz and own.shape == expected.shape
    for field in ("label", "weight", "base_margin", "label_lower_bound", "label_upper_bound", "feature_weights"):
        np.testing.assert_array_equal(again.get_float_info(field), made.get_float_info(field))
    assert again.get_group().tolist() == made.get_group().tolist()
    for what in ("feature_names", "feature_types", "categories", "is_sparse", "sparse_absent", "masks_labels", "lacks_labels"):
        assert getattr(again, what) == getattr(made, what)


@pytest.mark.parametrize("name", [
    "array", "missing value", "codes", "targets", "missing labels", "sparse", "sparse, zeros", "pandas",
])  # fmt: skip
def test_it_trains_and_predicts_as_the_matrix_that_was_saved(name, tmp_path):
    made = MADE[name]()
    made.save_binary(str(tmp_path / "m.bin"))
    again, params = gb.DMatrix(str(tmp_path / "m.bin")), {"max_depth": 3, "min_child_weight": 0}
    boosters = [gb.train(params, matrix, 3) for matrix in (made, again)]
    assert boosters[0].save_raw() == boosters[1].save_raw()
    np.testing.assert_array_equal(boosters[0].predict(again), boosters[0].predict(made))
    for kind in (gb.QuantileDMatrix, gb.ExtMemQuantileDMatrix):
        assert gb.train(params, kind(tmp_path / "m.bin"), 3).save_raw() == boosters[0].save_raw()


def test_categories_are_matched_by_value(tmp_path):
    pd = pytest.importorskip("pandas")
    colours = pd.DataFrame({"c": pd.Categorical(list("abcab"))})
    gb.DMatrix(colours, range(5)).save_binary(tmp_path / "m.bin")
    booster = gb.train({"min_child_weight": 0}, gb.DMatrix(colours, range(5)), 2)
    other = pd.DataFrame({"c": pd.Categorical(list("abcab"), categories=list("cba"))})
    of_other = gb.train({"min_child_weight": 0}, gb.DMatrix(other, range(5)), 2)
    for known in (booster, of_other):
        np.testing.assert_array_equal(known.predict(gb.DMatrix(tmp_path / "m.bin")), known.predict(gb.DMatrix(colours)))


def test_what_is_given_goes_before_what_was_saved(tmp_path):
    MADE["array"]().save_binary(tmp_path / "m.bin")
    again = gb.DMatrix(tmp_path / "m.bin", 1 - Y, feature_names=["x", "y", "z"])
    np.testing.assert_array_equal(again.get_label(), 1 - Y)
    assert again.feature_names == ["x", "y", "z"] and again.get_weight().tolist() == ROWS["weight"].tolist()
    masked = gb.DMatrix(tmp_path / "m.bin", np.where(Y > 0, np.nan, Y), missing_labels="mask")
    assert masked.lacks_labels


def test_a_matrix_of_codes_is_not_saved(tmp_path):
    with pytest.raises(NotImplementedError, match="save_binary of a QuantileDMatrix"):
        gb.QuantileDMatrix(X, Y).save_binary(tmp_path / "m.bin")
    with pytest.raises(TypeError, match="fname must be a path"):
        gb.DMatrix(X).save_binary(3)


def write(path, arrays, **about):
    """A file as save_binary's of these arrays, which says this of them."""
    np.savez(path, **{**arrays, "about": np.frombuffer(json.dumps(about).encode(), np.uint8)})


@pytest.mark.parametrize("change", [
    {"more": 1}, {"format": "gpuboost DMatrix 2"}, {"missing_labels": "maybe"}, {"sparse_absent": "maybe"}, {"sparse_absent": []},
    {"categories": ["a"]}, {"categories": {"d": ["a"]}}, {"categories": {"c": ["a"]}}, {"feature_names": None},
], ids=str)  # fmt: skip
def test_what_a_file_says_is_checked(change, tmp_path):
    pd = pytest.importorskip("pandas")
    gb.DMatrix(pd.DataFrame({"c": pd.Categorical(list("abcab"))})).save_binary(tmp_path / "m.bin")
    with np.load(tmp_path / "m.bin") as file:
        arrays = dict(file)
    about = json.loads(arrays.pop("about").tobytes())
    write(tmp_path / "own.npz", arrays, **about)
    assert gb.DMatrix(tmp_path / "own.npz").categories == {"c": ["a", "b", "c"]}
    write(tmp_path / "own.npz", arrays, **{**about, **change})
    with pytest.raises(ValueError, match="cannot be read as a file of DMatrix.save_binary"):
        gb.DMatrix(tmp_path / "own.npz")
    write(tmp_path / "own.npz", {**arrays, "nthread": np.zeros(1)}, **about)
    with pytest.raises(ValueError, match="cannot be read as a file of DMatrix.save_binary"):
        gb.DMatrix(tmp_path / "own.npz")


def test_no_byte_that_is_wrong_raises_another_error(tmp_path):
    path, rng = tmp_path / "m.bin", np.random.default_rng(0)
    gb.DMatrix(X[:5], Y[:5]).save_binary(path)
    data = path.read_bytes()
    for _ in range(300):
        damaged = bytearray(data)
        damaged[rng.integers(4, len(data))] = rng.integers(0, 256)
        path.write_bytes(damaged)
        with suppress(ValueError):
            gb.DMatrix(path)


def test_damaged_files_and_others_are_refused(tmp_path):
    path = tmp_path / "m.bin"
    gb.DMatrix(X, Y).save_binary(path)
    data = path.read_bytes()
    for damaged in (data[:40], data[:-200], data[:60] + b"x" + data[61:]):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match="cannot be read as a file of DMatrix.save_binary"):
            gb.DMatrix(path)
    np.savez(tmp_path / "other.npz", values=X)
    with pytest.raises(ValueError, match="other.npz cannot be read as a file of DMatrix.save_binary"):
        gb.DMatrix(tmp_path / "other.npz")
    np.savez(tmp_path / "code.npz", values=np.array([object()]), about=np.zeros(1, np.uint8))
    with pytest.raises(ValueError, match="cannot be read"):
        gb.DMatrix(tmp_path / "code.npz")


def test_a_column_beyond_the_last_is_refused(tmp_path):
    import scipy.sparse

    path = tmp_path / "m.npz"
    gb.DMatrix(scipy.sparse.csr_matrix(np.eye(4)), range(4)).save_binary(path)
    with np.load(path) as file:
        arrays = dict(file)
    for column in (-1, 4, 2**30):
        np.savez(path, **{**arrays, "indices": np.array([0, column, 2, 3], np.int32)})
        with pytest.raises(ValueError, match="cannot be read as a file of DMatrix.save_binary: .*indices"):
            gb.DMatrix(path)
