"""Training on pages in files: the same model, few reads, and no file that outlives its matrix."""

import errno
import os
import pickle

import numpy as np
import pytest
from streams import interrupt_walk, parts_of

import gpuboost as gb
from gpuboost.storage import array_file
from gpuboost.storage.array_file import ArrayFile

RNG = np.random.default_rng(4)
X = RNG.normal(size=(600, 4)).astype(np.float32)
X[RNG.random(X.shape) < 0.1] = np.nan
Y = (np.nan_to_num(X[:, 0]) + np.nan_to_num(X[:, 1]) > 0).astype(np.float32)
PARAMS = {"objective": "binary:logistic", "max_depth": 3, "max_bin": 16}
PAGE_ROWS, N_PAGES = 100, 6


def streamed(tmp_path, X=X, y=Y, **options):
    options = {"max_bin": 16, "cache_memory": 0, "cache_folder": str(tmp_path), "page_rows": PAGE_ROWS, **options}
    return gb.ExtMemQuantileDMatrix(parts_of(X, label=y), **options)


def model(matrix, rounds=3, **call):
    return gb.train(PARAMS, matrix, rounds, verbose_eval=False, **call).save_raw("json")


@pytest.fixture
def reads(monkeypatch):
    """(n_parts of the file, parts read) of every read; the records of a page are one part."""
    seen, read = [], ArrayFile.read

    def counted(self, parts=None, out=None):
        seen.append((self.shape[0], self.shape[0] if parts is None else len(parts)))
        return read(self, parts, out)

    monkeypatch.setattr(ArrayFile, "read", counted)
    return seen


def test_a_tree_reads_records_once_a_level_and_only_the_columns_that_it_splits_by(tmp_path, reads):
    matrix = streamed(tmp_path)
    reads.clear()
    booster = gb.train(PARAMS, matrix, 1)
    tree = booster.trees_to_dataframe()
    levels = tree["ID"].str.partition("-")[2].astype(int)
    by_level = [tree["Feature"][(levels >= 2**d - 1) & (levels < 2 ** (d + 1) - 1)] for d in range(3)]
    n_columns = sum(column[column != "Leaf"].nunique() for column in by_level)
    assert sum(n_parts == 1 for n_parts, _ in reads) == 3 * N_PAGES
    assert sum(n for n_parts, n in reads if n_parts == 4) == n_columns * N_PAGES


def test_pages_without_a_row_of_the_nodes_are_not_read(tmp_path, reads):
    """Rows in the order of what splits them: below the root a leaf-wise step has its rows on some of the pages."""
    order = np.argsort(np.nan_to_num(X[:, 0]))
    line = np.nan_to_num(X[order])
    params = {**PARAMS, "grow_policy": "lossguide", "max_leaves": 6, "max_depth": 0, "objective": "reg:squarederror"}
    matrix = streamed(tmp_path, line, line[:, 0])
    reads.clear()
    booster = gb.train(params, matrix, 1)
    assert sum(n_parts == 4 for n_parts, _ in reads) < 5 * N_PAGES  # five splits
    expected = gb.train(params, gb.QuantileDMatrix(line, line[:, 0], max_bin=16), 1)
    assert booster.save_raw("json") == expected.save_raw("json")


@pytest.mark.parametrize("cache_memory", [0, 4000, None])
def test_how_many_pages_stay_in_memory_does_not_matter(tmp_path, cache_memory):
    """A page has 600 to 1200 bytes: none, some or all of them."""
    matrix = streamed(tmp_path, cache_memory=cache_memory)
    held = [page.columns.is_held for page in matrix.any_binned().pages._pages]
    assert sum(held) == {0: 0, 4000: 3, None: N_PAGES}[cache_memory] and sorted(held, reverse=True) == held
    assert (matrix.bytes_in_files == 0) == all(held) == (os.listdir(tmp_path) == [])
    table = gb.QuantileDMatrix(X, Y, max_bin=16)
    assert model(matrix) == model(table)
    evals = [(streamed(tmp_path, X[::2], Y[::2], ref=matrix, max_bin=None), "half")]
    in_memory = [(gb.QuantileDMatrix(X[::2], Y[::2], ref=table), "half")]
    found, expected = {}, {}
    assert model(matrix, evals=evals, evals_result=found) == model(table, evals=in_memory, evals_result=expected)
    assert found == expected
    booster = gb.train(PARAMS, matrix, 3)
    np.testing.assert_array_equal(booster.predict(matrix), booster.predict(gb.DMatrix(X)))
    del matrix, evals
    assert os.listdir(tmp_path) == []


def test_records_of_large_pages_are_parted(tmp_path, monkeypatch):
    monkeypatch.setattr("gpuboost.storage.pages.LARGE_RECORDS", 0)
    monkeypatch.setattr("gpuboost.storage.pages.RECORD_PARTS", 12)
    matrix = streamed(tmp_path, page_rows=110)
    assert [page.records.shape[0] for page in matrix.any_binned().pages._pages] == [11] * 5 + [10]  # 50 rows
    assert model(matrix) == model(gb.QuantileDMatrix(X, Y, max_bin=16))


def test_a_training_goes_on_after_a_kill(tmp_path):
    class Kill(gb.callback.TrainingCallback):
        def after_iteration(self, booster, epoch, evals_log):
            if epoch == 2:
                raise KeyboardInterrupt

    call = {"resume_from": tmp_path / "checkpoints", "checkpoint_interval": 1}
    with pytest.raises(KeyboardInterrupt):
        model(streamed(tmp_path), 5, callbacks=[Kill()], **call)
    resumed = gb.train(PARAMS, streamed(tmp_path, page_rows=77), 5, verbose_eval=False, **call)
    assert resumed.num_boosted_rounds() == 5 and resumed.save_raw("json") == model(gb.DMatrix(X, Y), 5)


def test_what_an_interrupted_walk_still_reads_is_not_written_to_the_pages_of_the_next(tmp_path):
    pages = streamed(tmp_path).any_binned().pages
    finish_reading = interrupt_walk(pages)
    for _, page in pages.walk(numbers=[1]):
        finish_reading()
        np.testing.assert_array_equal(page.records, pages[1].records)


def test_it_can_be_pickled(tmp_path):
    data = pickle.dumps(streamed(tmp_path))
    assert os.listdir(tmp_path) == []
    assert model(pickle.loads(data)) == model(gb.DMatrix(X, Y))


def test_exact_search_is_refused(tmp_path):
    with pytest.raises(ValueError, match="tree_method='exact' searches the values themselves.*Use a DMatrix"):
        gb.train({**PARAMS, "tree_method": "exact"}, streamed(tmp_path), 1)


def test_a_damaged_page_ends_a_training(tmp_path):
    """Of whatever file a byte changes, or is lost, nothing is trained, and the file is named."""
    matrix = streamed(tmp_path)
    (folder,) = tmp_path.iterdir()
    files = sorted(folder.iterdir())
    assert len(files) == 2 * N_PAGES
    for file in files[::5]:
        data = file.read_bytes()
        for other in (data[:-1], data[:70] + bytes([data[70] ^ 4]) + data[71:], data[:-1] + bytes([data[-1] ^ 128])):
            file.write_bytes(other)
            with pytest.raises(OSError, match=f"{file.name} holds a part of a table and is damaged"):
                whole = [matrix.any_binned().pages[p] for p in range(N_PAGES)]
                assert whole == []
        file.write_bytes(data)
    file = files[1]  # the records of the first page
    file.write_bytes(file.read_bytes()[:-3])
    with pytest.raises(OSError, match=f"{file.name}.*is damaged"):
        model(matrix)


@pytest.mark.slow
def test_a_thousand_bits_that_flip_are_found(tmp_path):
    """Anywhere in any file: whoever walks over the pages as training does is told which file it is."""
    pages = streamed(tmp_path).any_binned().pages
    (folder,) = tmp_path.iterdir()
    files = sorted(folder.iterdir())
    rng = np.random.default_rng(8)
    for _ in range(1000):
        file = files[rng.integers(len(files))]
        data = bytearray(file.read_bytes())
        at = rng.integers(len(data))
        data[at] ^= 1 << int(rng.integers(8))
        whole = file.read_bytes()
        file.write_bytes(data)
        with pytest.raises(OSError, match=f"{file.name} holds a part of a table and is damaged"):
            for features in (None, np.arange(X.shape[1])):
                for _ in pages.walk(features):
                    pass
        file.write_bytes(whole)
    assert len(list(pages.walk())) == N_PAGES


def test_a_full_disk_leaves_nothing(tmp_path, monkeypatch):
    replace, left = os.replace, [5]

    def full(*paths):
        left[0] -= 1
        if left[0] < 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        replace(*paths)

    monkeypatch.setattr(array_file.os, "replace", full)
    with pytest.raises(OSError, match="cannot take .* more bytes of a table.*No space left"):
        streamed(tmp_path)
    assert os.listdir(tmp_path) == []


def test_cache_prefix_names_the_folder(tmp_path):
    stream = parts_of(X, label=Y)
    stream.cache_prefix = tmp_path / "cache"
    matrix = gb.ExtMemQuantileDMatrix(stream, cache_memory=0)
    assert len(os.listdir(tmp_path)) == 1 and matrix.bytes_in_files > 0


# ---------------------------------------------------------------------------------------------------------------------
# Who takes such a matrix


@pytest.mark.parametrize("params", [
    {"eval_metric": ["logloss", "auc", "error"]}, {"objective": "reg:absoluteerror"}, {"booster": "dart", "rate_drop": 0.5},
    {"objective": "multi:softprob", "num_class": 2},
], ids=str)  # fmt: skip
def test_the_folds_of_its_cross_validation_are_those_of_the_table(tmp_path, params):
    weight = RNG.random(len(X)).astype(np.float32)
    stream = parts_of(X, label=Y, weight=weight)
    matrix = gb.ExtMemQuantileDMatrix(stream, max_bin=16, cache_memory=0, cache_folder=str(tmp_path), page_rows=PAGE_ROWS)
    call = {"num_boost_round": 3, "nfold": 3, "as_pandas": False}
    expected = gb.cv(PARAMS | params, gb.DMatrix(X, Y, weight=weight), **call)
    assert gb.cv(PARAMS | params, matrix, **call) == expected
    np.testing.assert_array_equal(matrix.get_weight(), weight)


@pytest.mark.parametrize("weight", [None, np.arange(len(X)) % 3], ids=["alone", "weighted"])
def test_a_metric_of_the_user_sees_the_rows_of_a_fold(weight):
    """Not all of the table, most of which the fold was trained on; rows of weight 0 as in a DMatrix. The same row twice counts
    twice."""

    def mean_error(prediction, part):
        w = part.get_weight() if len(part.get_weight()) else np.ones(part.num_row())
        assert len(prediction) == len(part.get_label()) == part.num_row()
        return [("rows", part.num_row()), ("wrong", np.mean((prediction > 0.5) != part.get_label())), ("w", w.sum())]

    folds = [(np.repeat(np.arange(100), 2), np.arange(100, len(X))), (np.arange(100, len(X)), np.arange(100))]
    matrices = gb.QuantileDMatrix(X, Y, weight=weight, max_bin=16), gb.DMatrix(X, Y, weight=weight)
    call = {"num_boost_round": 2, "as_pandas": False, "custom_metric": mean_error}
    for split in ({"nfold": 3}, {"folds": folds}):
        results = [gb.cv(PARAMS, matrix, **call, **split) for matrix in matrices]
        assert results[0] == results[1]
    with pytest.raises(ValueError, match="fpreproc is given the parts of a table.*Use a DMatrix"):
        gb.cv(PARAMS, matrices[0], fpreproc=lambda *parts: parts)


def test_its_queries_are_not_split():
    stream = parts_of(X, label=Y, qid=np.arange(len(X)) // 10)
    with pytest.raises(ValueError, match="the queries of a QuantileDMatrix cannot be split.*Use a DMatrix"):
        gb.cv({"objective": "rank:ndcg"}, gb.ExtMemQuantileDMatrix(stream), 1)


@pytest.mark.parametrize("kind, predictions", [
    (gb.GPUBoostRegressor, ["predict", "apply"]), (gb.GPUBoostClassifier, ["predict", "predict_proba"]),
    (gb.GPUBoostRFClassifier, ["predict_proba"]),
])  # fmt: skip
def test_estimators_take_it_in_the_place_of_a_table(tmp_path, kind, predictions):
    options = {"n_estimators": 3, "max_bin": 16, "max_depth": 3}
    matrix, table = streamed(tmp_path), gb.DMatrix(X[::2])
    found = kind(**options).fit(matrix, None, eval_set=[(matrix, None)])
    expected = kind(**options).fit(X, Y, eval_set=[(X, Y)])
    assert found.get_booster().save_raw("json") == expected.get_booster().save_raw("json")
    assert found.evals_result() == expected.evals_result() and found.n_features_in_ == 4
    for name in predictions:
        result = getattr(found, name)(table)
        np.testing.assert_array_equal(result, getattr(expected, name)(X[::2]))
    np.testing.assert_array_equal(getattr(found, predictions[0])(matrix), getattr(expected, predictions[0])(X))


def test_a_ranker_takes_the_queries_of_a_matrix():
    relevance, qid = RNG.integers(0, 3, len(X)), np.arange(len(X)) // 20
    matrix = gb.ExtMemQuantileDMatrix(parts_of(X, label=relevance, qid=qid))
    found = gb.GPUBoostRanker(n_estimators=2).fit(matrix, None)
    expected = gb.GPUBoostRanker(n_estimators=2).fit(X, relevance, qid=qid)
    assert found.get_booster().save_raw("json") == expected.get_booster().save_raw("json")


def test_what_a_matrix_brings_is_not_given_again():
    matrix, classifier = gb.DMatrix(X, Y), gb.GPUBoostClassifier(n_estimators=1)
    for call in ({"y": Y}, {"sample_weight": Y}, {"eval_set": [(matrix, Y)]}):
        with pytest.raises(ValueError, match="of a DMatrix is given when that is made"):
            classifier.fit(matrix, **{"y": None, **call})
    with pytest.raises(ValueError, match="for a classifier must be 0, 1, 2 and so on, got the classes .1.0, 2.0.. Number them"):
        classifier.fit(gb.DMatrix(X, Y + 1), None)
    with pytest.raises(ValueError, match="refit_full joins tables, which a DMatrix is not"):
        gb.GPUBoostClassifier(early_stopping_rounds=1, refit_full=True).fit(matrix, None, eval_set=[(matrix, None)])
    with pytest.raises(TypeError, match="X must be a table or a DMatrix, got .*Parts. Make one: gpuboost.DMatrix"):
        classifier.fit(parts_of(X), Y)
