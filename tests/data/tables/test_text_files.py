"""data/tables/text_files.py: LIBSVM and CSV files mean what XGBoost takes them for."""

import numpy as np
import polars
import pytest

import gpuboost as gb
from gpuboost.cli import main
from gpuboost.data.tables.text_files import is_libsvm, read_text

LIBSVM = """# a comment
1:2.5 qid:3 2:0.5 0:-1e2  # entries need not be sorted

0:1 qid:3
1:0.5 qid:9 1:0 3:4
"""
ENTRIES = {(0, 2): 0.5, (0, 0): -100, (2, 1): 0, (2, 3): 4}


def write(folder, name, text):
    (folder / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    return str(folder / name)


def matrix_of(shape, entries):
    X = np.full(shape, np.nan)
    for place, value in entries.items():
        X[place] = value
    return X


def dense(data):
    entries = data.tocoo()
    return matrix_of(data.shape, dict(zip(zip(entries.row, entries.col), entries.data)))


def test_a_libsvm_file_by_hand(tmp_path):
    table = read_text(write(tmp_path, "a.txt", LIBSVM) + "?format=libsvm")
    np.testing.assert_array_equal(dense(table.data), matrix_of((3, 4), ENTRIES))
    assert table.label.tolist() == [1, 0, 1] and table.weight.tolist() == [2.5, 1, 0.5] and table.qid.tolist() == [3, 3, 9]


def test_the_first_column_may_have_index_one(tmp_path):
    path = write(tmp_path, "a.svm", "1 1:5 3:6\n")
    np.testing.assert_array_equal(dense(read_text(path + "?indexing_mode=1").data), [[5, np.nan, 6]])
    np.testing.assert_array_equal(dense(read_text(path).data), [[np.nan, 5, np.nan, 6]])


def test_a_csv_file_by_hand(tmp_path):
    path = write(tmp_path, "a.csv", "1,2,,0.5\n0, nan ,5,-6\n\n")
    table = read_text(path + "?format=csv&label_column=0&weight_column=3")
    np.testing.assert_array_equal(table.data, [[2, np.nan], [np.nan, 5]])
    assert table.label.tolist() == [1, 0] and table.weight.tolist() == [0.5, -6]
    whole = read_text(write(tmp_path, "b.txt", "1;2\n") + "?format=csv&delimiter=;")
    assert whole.data.tolist() == [[1, 2]] and whole.label is None


@pytest.mark.parametrize("name, text", [("a.svm", "1 0:1\n \n0 0:2\n"), ("a.csv", "1\n\n \n2\n")])
def test_marks_of_unicode_and_blank_lines_are_skipped(name, text, tmp_path):
    data = read_text(write(tmp_path, name, "\ufeff" + text)).data
    assert (dense(data) if name == "a.svm" else data).tolist() == [[1], [2]]


def test_fields_of_white_space_are_missing(tmp_path):
    np.testing.assert_array_equal(read_text(write(tmp_path, "a.csv", "1, \n,\n")).data, [[1, np.nan], [np.nan, np.nan]])


@pytest.mark.filterwarnings("ignore:.*Text file input:UserWarning")
def test_xgboost_reads_the_same_from_libsvm(tmp_path):
    xgboost = pytest.importorskip("xgboost")
    uri = write(tmp_path, "a.txt", LIBSVM) + "?format=libsvm"
    ours, theirs = gb.DMatrix(uri), xgboost.DMatrix(uri)
    assert (ours.get_data() != theirs.get_data()).nnz == 0
    assert ours.num_nonmissing() == theirs.num_nonmissing() == len(ENTRIES)
    np.testing.assert_array_equal(ours.get_label(), theirs.get_label())
    np.testing.assert_array_equal(ours.get_weight(), theirs.get_weight())
    np.testing.assert_array_equal(ours.get_uint_info("group_ptr"), theirs.get_uint_info("group_ptr"))


@pytest.mark.filterwarnings("ignore:.*Text file input:UserWarning")
def test_xgboost_reads_the_same_from_csv(tmp_path):
    xgboost = pytest.importorskip("xgboost")
    uri = write(tmp_path, "a.csv", "1,2,,4\n0,7,5,-6\n") + "?format=csv&label_column=0"
    ours, theirs = gb.DMatrix(uri), xgboost.DMatrix(uri)
    assert (ours.get_data() != theirs.get_data()).nnz == 0 and ours.num_nonmissing() == theirs.num_nonmissing() == 5
    np.testing.assert_array_equal(ours.get_label(), theirs.get_label())


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("a.libsvm", "1 2:3\n1 2:3:4\n", "line 2: must be label.*got '1 2:3:4'"),
        ("a.libsvm", "1 2:x\n", "line 1: .*got '1 2:x'"),
        ("a.libsvm", "x 2:1\n", "line 1"),
        ("a.libsvm", "1 -2:1\n", "line 1"),
        ("a.libsvm", "1 2.5:1\n", "line 1"),
        ("a.libsvm", "1 99999999999999999999:1\n", "line 1"),
        ("a.libsvm", "1:2 0:1\n1 0:1\n", "1 of 2 rows have a weight"),
        ("a.libsvm", "1 qid:1 0:1\n1 0:1\n", "1 of 2 rows have a qid"),
        ("a.libsvm?indexing_mode=1", "1 0:1\n", "indexing_mode=1, but an entry has index 0"),
        ("a.libsvm", "1 qid:99999999999999999999 0:1\n", "a.libsvm, line 1: must be label"),
        ("a.libsvm", "0 0:1\n1 0:1 2:1 00:3\n", "line 2: .* each index once, got '1 0:1 2:1 00:3'"),
        ("a.libsvm", "1 0:1_000\n", "line 1: .*got '1 0:1_000'"),
        ("a.libsvm", "1_0 0:1\n", "line 1"),
        ("a.libsvm", "1 \u0661:5\n", "line 1"),  # an Arabic 1
        ("a.libsvm", "1 1:\u0661\n", "line 1"),
        ("a.libsvm", b"1 0:1 # \xe9\n", "a.libsvm cannot be read as libsvm in UTF-8: .*0xe9"),
        ("a.csv", b"1,\xe9\n", "a.csv cannot be read as csv in UTF-8: .*0xe9"),
        ("a.csv", "1," + "0" * 140_000, "a.csv cannot be read as csv .*field larger than field limit"),
        ("a.csv", "1,2\n1_0,2\n", "line 2: must be numbers.*got '1_0,2'"),
        ("a.libsvm?indexing_mode=-1", "1 0:1\n", "indexing_mode must be 0 or 1.*got -1"),
        ("a.libsvm?indexing_mod=1", "1 0:1\n", "unknown option 'indexing_mod' of a libsvm file. Did you mean 'indexing_mode'"),
        ("a.libsvm?format=libsvm#cache", "1 0:1\n", "a cache file .'cache'. is not used"),
        ("a.libsvm", "1\n", "0 columns"),
        ("a.csv", "1,2\n3\n", "line 2: 1 fields, the first row has 2"),
        ("a.csv", "a,b\n1,2\n", "line 1: must be numbers, without a header, got 'a,b'"),
        ("a.csv?label_column=2", "1,2\n", "label_column must be between 0 and 1, got 2"),
        ("a.csv?label_column=y", "1,2\n", "label_column must be an integer, got 'y'"),
        ("a.csv?label_column=1&weight_column=1", "1,2\n", "must differ"),
        ("a.csv?delimiter=ab", "1,2\n", "one character, got 'ab'"),
        ("a.parquet", "", "a.parquet cannot be read as Parquet: "),
        ("a.txt", "", "libsvm or csv, but .* names none. Use for example"),
        ("a.csv?format=xml", "", "libsvm or csv, got 'xml'"),
    ],
)
def test_what_cannot_be_read_is_refused_naming_it(name, text, words, tmp_path):
    file, _, _ = name.partition("?")
    write(tmp_path, file, text)
    with pytest.raises(ValueError, match=words):
        gb.DMatrix(str(tmp_path / name))


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(IsADirectoryError, match="is a folder. Name a file in it"):
        read_text(tmp_path)
    with pytest.raises(FileNotFoundError, match="absent.svm"):
        gb.DMatrix(tmp_path / "absent.svm")


def test_formats_follow_from_names():
    assert [is_libsvm(name) for name in ("a.svm", "a.libsvm", "a.txt", "a.csv", "a.txt?format=libsvm", "a.svm?format=csv")] == [
        True, True, False, False, True, False,
    ]  # fmt: skip


def test_what_is_given_beside_a_file_replaces_what_it_holds(tmp_path):
    d = gb.DMatrix(write(tmp_path, "a.svm", LIBSVM), [5, 6, 7], weight=[1, 2, 3], group=[1, 2])
    assert d.get_label().tolist() == [5, 6, 7] and d.get_weight().tolist() == [1, 2, 3] and d.get_group().tolist() == [1, 2]


# ---- models


@pytest.fixture
def libsvm_files(tmp_path):
    """A training file of 4 columns and one whose last columns hold nothing, and the same as arrays."""
    rng = np.random.default_rng(3)
    X = np.where(rng.random((200, 4)) < 0.4, np.nan, rng.integers(-9, 9, (200, 4)))
    y = (np.nan_to_num(X[:, 0]) + np.nan_to_num(X[:, 3]) > 0).astype(int)
    narrow = np.where(np.arange(4) < 2, X[:50], np.nan)
    paths = []
    for name, rows in {"train.svm": X, "narrow.svm": narrow}.items():
        present = [" ".join(f"{j}:{value:g}" for j, value in enumerate(row) if value == value) for row in rows]
        paths.append(write(tmp_path, name, "".join(f"{label} {entries}\n" for label, entries in zip(y, present))))
    return *paths, X, y, narrow


def test_a_file_gives_the_model_and_predictions_of_its_values(libsvm_files):
    train, narrow, X, y, narrow_X = libsvm_files
    params = {"objective": "binary:logistic", "max_depth": 3}
    dtrain, dnarrow = gb.DMatrix(train), gb.DMatrix(narrow)
    assert dnarrow.num_col() == 2
    booster = gb.train(params, dtrain, 3, evals=[(dnarrow, "narrow")], verbose_eval=False)
    dense = gb.train(params, gb.DMatrix(X, y), 3, verbose_eval=False)
    assert booster.save_raw() == dense.save_raw()
    expected = dense.predict(gb.DMatrix(narrow_X))
    np.testing.assert_array_equal(booster.predict(dnarrow), expected)
    np.testing.assert_array_equal(booster.predict(dnarrow.slice([4, 2])), expected[[4, 2]])
    named = gb.DMatrix(narrow)
    named.feature_names = ["a", "b"]  # columns with names are all there are
    with pytest.raises(ValueError, match="data has 2 columns, but the model was trained on 4"):
        booster.predict(named)
    ref = gb.QuantileDMatrix(narrow, ref=gb.QuantileDMatrix(train))
    np.testing.assert_array_equal(booster.predict(ref), expected)
    with pytest.raises(ValueError, match="data has 4 columns, but the model was trained on 2"):
        gb.train(params, dnarrow, 1, verbose_eval=False).predict(dtrain)


def test_the_command_line_trains_and_predicts_libsvm_files(libsvm_files, tmp_path):
    train, narrow, X, y, narrow_X = libsvm_files
    model, output = str(tmp_path / "model.json"), str(tmp_path / "out.csv")
    assert main(["train", train, "--valid", narrow, "--model", model, "--rounds", "3", "-p", "max_depth=3"]) == 0
    assert main(["predict", narrow, "--model", model, "--output", output]) == 0
    dense = gb.train({"objective": "binary:logistic", "max_depth": 3}, gb.DMatrix(X, y), 3, verbose_eval=False)
    # As text, a float32 has the digits that tell it from its neighbours.
    np.testing.assert_array_equal(
        polars.read_csv(output)["probability_1"].to_numpy().astype(np.float32), dense.predict(gb.DMatrix(narrow_X))
    )


def test_the_command_line_says_what_a_libsvm_file_does_not_have(libsvm_files, tmp_path, capsys):
    model = str(tmp_path / "model.json")
    assert main(["train", libsvm_files[0], "--label", "y", "--model", model]) == 2
    assert "--label y: a LIBSVM file has its labels at the start of each line. Leave --label out." in capsys.readouterr().err
    write(tmp_path, "a.csv", "x,y\n1,2\n")
    assert main(["train", str(tmp_path / "a.csv"), "--model", model]) == 2
    assert "--label is required" in capsys.readouterr().err
