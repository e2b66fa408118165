"""Tables by the names of files: Parquet, folders, patterns, queries, text, arrays on disk."""

import numpy as np
import pytest

import gpuboost as gb
from gpuboost.data.streams import files

RNG = np.random.default_rng(12)
X = RNG.normal(size=(90, 3)).astype(np.float32)
Y = (X[:, 0] > 0).astype(np.float32)
PARAMS = {"objective": "binary:logistic", "max_depth": 3}
KINDS = [gb.DMatrix, gb.QuantileDMatrix, gb.ExtMemQuantileDMatrix]


def model(matrix):
    return gb.train(PARAMS, matrix, 3, verbose_eval=False).save_raw("json")


@pytest.fixture
def frame():
    return pytest.importorskip("polars").DataFrame({"a": X[:, 0], "b": X[:, 1], "c": X[:, 2], "y": Y, "w": Y + 1})


@pytest.fixture
def folder(tmp_path, frame):
    """The same rows as one file and as three."""
    frame.write_parquet(tmp_path / "whole.parquet")
    (tmp_path / "parts").mkdir()
    for i in range(3):
        frame[30 * i : 30 * (i + 1)].write_parquet(tmp_path / "parts" / f"part-{i}.parquet")
    return tmp_path


@pytest.mark.parametrize("kind", KINDS)
def test_parquet_by_name_folder_and_pattern_is_the_frame(folder, frame, kind):
    expected = model(kind(frame.drop("y", "w"), Y, weight=Y + 1))
    for path in (folder / "whole.parquet", str(folder / "parts"), str(folder / "parts" / "part-*.parquet")):
        assert model(kind(path, label="y", weight="w")) == expected


def test_queries_are_read_in_batches(folder, frame):
    polars, dataset = pytest.importorskip("polars"), pytest.importorskip("pyarrow.dataset")
    expected = model(gb.DMatrix(frame.drop("y", "w"), Y, weight=Y + 1))
    for query in (polars.scan_parquet(folder / "whole.parquet"), dataset.dataset(folder / "parts")):
        assert model(gb.ExtMemQuantileDMatrix(query, label="y", weight="w")) == expected


def test_several_columns_may_be_labels(folder):
    matrix = gb.DMatrix(folder / "whole.parquet", label=["y", "w"])
    np.testing.assert_array_equal(matrix.get_label(), np.stack([Y, Y + 1], axis=1))
    given = gb.DMatrix(folder / "whole.parquet", label=Y)  # or what is no column
    assert given.num_col() == 5 and given.get_label().tolist() == Y.tolist()


@pytest.mark.parametrize("suffix", ["csv?label_column=0", "libsvm"])
def test_text_is_read_in_batches(tmp_path, suffix, monkeypatch):
    monkeypatch.setattr("gpuboost.data.streams.files.default_rows", lambda n_features: 64 * 25)
    path = tmp_path / f"table.{suffix.partition('?')[0]}"
    if path.suffix == ".csv":
        np.savetxt(path, np.c_[Y, X], delimiter=",", fmt="%.9g")
    else:
        lines = [f"{y:g} " + " ".join(f"{j}:{v:.9g}" for j, v in enumerate(x)) for x, y in zip(X, Y)]
        path.write_text("\n".join(lines) + "\n")
    name = str(tmp_path / f"table.{suffix}")
    assert model(gb.ExtMemQuantileDMatrix(name)) == model(gb.QuantileDMatrix(name))


def test_an_array_on_disk_is_read_in_batches(tmp_path):
    np.save(tmp_path / "x.npy", X)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    assert model(gb.ExtMemQuantileDMatrix(mapped, Y, cache_memory=0)) == model(gb.DMatrix(X, Y))


def test_what_is_not_there_is_said(folder):
    with pytest.raises(ValueError, match="label='z': .*whole.parquet has no such column. It has \"a\""):
        gb.DMatrix(folder / "whole.parquet", label="z")
    with pytest.raises(ValueError, match="Did you mean 'w'"):
        gb.DMatrix(folder / "whole.parquet", weight="ww")
    for path, message in {"gone.parquet": "there is no file", "gone-*.csv": "no file matches"}.items():
        with pytest.raises(FileNotFoundError, match=message):
            gb.DMatrix(str(folder / path))
    (folder / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match="holds no file that ends in .parquet"):
        gb.DMatrix(folder / "empty")
    for name in ("part-0", "part-1"):
        (folder / "empty" / name).write_text("1 0:1 2:3\n0 1:2\n")
    data = gb.DMatrix(f"{folder / 'empty'}?format=libsvm")  # of any names, where the form is said
    assert data.num_row() == 4 and data.get_label().tolist() == [1, 0, 1, 0]
    with pytest.raises(ValueError, match="cache_memory must be a number of bytes, at least 0, got -1"):
        gb.DMatrix(folder / "whole.parquet", cache_memory=-1)


def test_a_damaged_file_is_named(tmp_path):
    pyarrow, path = pytest.importorskip("pyarrow"), tmp_path / "damaged.parquet"
    pytest.importorskip("pyarrow.parquet").write_table(pyarrow.table({"a": np.arange(4000.0)}), path, compression="zstd")
    data = path.read_bytes()
    for at in (4, 60):  # the head of the first page, its values
        path.write_bytes(data[:at] + bytes(byte ^ 255 for byte in data[at : at + 30]) + data[at + 30 :])
        with pytest.raises(ValueError, match="damaged.parquet cannot be read as Parquet"):
            gb.DMatrix(path)


def test_the_index_of_a_pandas_frame_is_no_column(tmp_path):
    frame = pytest.importorskip("pandas").DataFrame(X, columns=["a", "b", "c"], index=RNG.permutation(len(X)))
    frame.to_parquet(tmp_path / "x.parquet")
    assert gb.DMatrix(tmp_path / "x.parquet").feature_names == ["a", "b", "c"]


def test_files_of_other_columns_are_named(folder, frame):
    frame.rename({"c": "d"}).write_parquet(folder / "parts" / "part-3.parquet")
    with pytest.raises(ValueError, match='batch 3 .*\\("c", "d"\\) differ'):
        gb.DMatrix(folder / "parts", label="y")


@pytest.mark.parametrize("reader", ["pyarrow", "polars"])
def test_an_index_with_a_name_is_no_column_either(tmp_path, reader, monkeypatch):
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"a": X[:, 0], "y": Y}, index=pd.Index(np.arange(90)[::-1], name="row"))
    frame.to_parquet(tmp_path / "named.parquet")
    frame.rename_axis(None)[::2].to_parquet(tmp_path / "unnamed.parquet")
    if reader == "polars":
        monkeypatch.setattr(files, "find_spec", lambda name: None if name == "pyarrow" else True)
    for name in ("named.parquet", "unnamed.parquet", "*.parquet"):
        assert gb.DMatrix(str(tmp_path / name), label="y").feature_names == ["a"]
    lazy = pytest.importorskip("polars").scan_parquet(tmp_path / "unnamed.parquet")
    for matrix in (gb.DMatrix(lazy.drop("y")), gb.DMatrix(lazy, label="y"), gb.ExtMemQuantileDMatrix(lazy.drop("y"))):
        assert matrix.feature_names == ["a"]
    dataset = pytest.importorskip("pyarrow.dataset").dataset(tmp_path / "named.parquet")
    assert gb.DMatrix(dataset, label="y").feature_names == ["a"]
    np.testing.assert_array_equal(gb.DMatrix(tmp_path / "named.parquet", label="row").get_label(), np.arange(90)[::-1])


@pytest.mark.parametrize("kind", KINDS)
def test_libsvm_files_name_only_the_columns_that_they_fill(tmp_path, kind):
    for name, text in {"train.svm": "1 0:1 3:2\n0 1:1\n", "one.svm": "1 0:1\n0 1:1\n", "two.svm": "0 1:1\n"}.items():
        (tmp_path / name).write_text(text * 20)
    dtrain = kind(str(tmp_path / "train.svm"))
    booster, ref = gb.train(PARAMS, dtrain, 1), {} if kind is gb.DMatrix else {"ref": dtrain}
    (tmp_path / "parts").mkdir()
    for name in ("one.svm", "two.svm"):
        (tmp_path / "parts" / name).write_text((tmp_path / name).read_text())
    for path in ("one.svm", "o*.svm", "parts", "parts/t?o.svm"):
        predicted = booster.predict(kind(str(tmp_path / path), **ref))
        assert set(predicted) <= set(booster.predict(dtrain)), path


def test_text_files_of_a_pattern_have_options(tmp_path):
    for i in range(3):
        np.savetxt(tmp_path / f"p{i}.csv", np.column_stack([Y, X])[30 * i : 30 * (i + 1)], delimiter=",", fmt="%.9g")
    expected = model(gb.DMatrix(X, Y))
    for path in ("p*.csv", "p?.csv", "."):
        for kind in KINDS:
            assert model(kind(f"{tmp_path / path}?label_column=0")) == expected
    with pytest.raises(FileNotFoundError, match="no file matches"):
        gb.DMatrix(str(tmp_path / "q?.csv"))


def test_a_path_may_hold_equals_signs(folder, frame):
    (folder / "k=1").mkdir()
    frame.write_parquet(folder / "k=1" / "z.parquet")
    expected = model(gb.DMatrix(frame.drop("y", "w"), Y))
    for path in ("k=1/z.parquet", "k=1/*.parquet", "k=1", "?=1/z.parquet"):
        found = gb.DMatrix(str(folder / path), label="y")
        assert found.feature_names == ["a", "b", "c", "w"] and found.num_row() == 90
    np.savetxt(folder / "k=1" / "z.csv", np.column_stack([Y, X]), delimiter=",", fmt="%.9g")
    assert model(gb.DMatrix(str(folder / "k=1" / "z*.csv?label_column=0"))) == model(gb.DMatrix(X, Y)) != expected
