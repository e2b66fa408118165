"""Streams as tables: what a stream gives is what the same table at hand gives; what does not fit names its batch."""

import os
import pickle
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from streams import Parts, cut, parts_of

import gpuboost as gb
from gpuboost.data.tables import spooled

RNG = np.random.default_rng(11)
X = RNG.normal(size=(400, 5)).astype(np.float32)
X[RNG.random(X.shape) < 0.1] = np.nan
X[:, 2] = RNG.integers(0, 4, len(X))
Y = (np.nan_to_num(X[:, 0]) > 0).astype(np.float32)
WEIGHT = RNG.integers(0, 3, len(X)).astype(np.float32)
PARAMS = {"objective": "binary:logistic", "max_depth": 3, "max_bin": 16}


@pytest.fixture(params=["memory", "files"])
def room(request, tmp_path, monkeypatch):
    """What makes a stream's values stay in memory, or go to files: there in several blocks."""
    if request.param == "memory":
        return {}
    monkeypatch.setattr(spooled, "default_rows", lambda n_features: 16)
    return {"cache_memory": 0, "cache_folder": str(tmp_path)}


def model(matrix, **params):
    return gb.train({**PARAMS, **params}, matrix, 3, verbose_eval=False).save_raw("json")


@pytest.mark.parametrize("weights", [False, True])
def test_cuts_are_those_of_the_table_byte_for_byte(room, weights):
    info = {"label": Y, "weight": WEIGHT} if weights else {"label": Y}
    stream = gb.QuantileDMatrix(parts_of(X, **info), max_bin=16, **room)
    table = gb.QuantileDMatrix(X, **info, max_bin=16)
    for found, expected in zip(stream.get_quantile_cut(), table.get_quantile_cut()):
        assert found.tobytes() == expected.tobytes()
    for name in info:
        np.testing.assert_array_equal(stream.get_float_info(name), table.get_float_info(name))


def test_a_dmatrix_of_a_stream_is_a_table(room):
    """It is read by batches, by rows and by columns: slices, values, predictions, exact search."""
    stream, table = gb.DMatrix(parts_of(X, label=Y), **room), gb.DMatrix(X, Y)
    assert model(stream, tree_method="exact") == model(table, tree_method="exact")
    booster = gb.train(PARAMS, table, 3)
    np.testing.assert_array_equal(booster.predict(stream), booster.predict(table))
    rows = RNG.permutation(len(X))[:50]
    np.testing.assert_array_equal(stream.slice(rows).get_data().toarray(), table.slice(rows).get_data().toarray())
    assert stream.num_nonmissing() == table.num_nonmissing() == np.isfinite(X).sum()
    copy = pickle.loads(pickle.dumps(stream))
    np.testing.assert_array_equal(copy.get_data().toarray(), table.get_data().toarray())
    folds = [gb.cv(PARAMS, matrix, 2, nfold=2, shuffle=False, as_pandas=False) for matrix in (stream, table)]
    assert folds[0] == folds[1]


def test_a_stream_is_read_once():
    stream = parts_of(X, label=Y)
    for kind in (gb.DMatrix, gb.QuantileDMatrix, gb.ExtMemQuantileDMatrix):
        before = stream.n_passes
        gb.train(PARAMS, kind(stream, max_bin=16) if kind is not gb.DMatrix else kind(stream), 1)
        assert stream.n_passes == before + 1


def test_all_that_is_known_of_rows_comes_in_batches():
    qid, margin = np.sort(RNG.integers(0, 30, len(X))), RNG.normal(size=(len(X), 2)).astype(np.float32)
    lower = np.abs(X[:, 2]) + 1
    info = {"label": Y, "weight": np.ones(len(X)), "base_margin": margin, "qid": qid}
    bounds = {"label_lower_bound": lower, "label_upper_bound": np.where(Y > 0, np.inf, lower)}
    for given in (info, bounds):
        stream, table = gb.DMatrix(parts_of(X, **given)), gb.DMatrix(X, **given)
        for name in given.keys() - {"qid"}:
            np.testing.assert_array_equal(stream.get_float_info(name), table.get_float_info(name))
        np.testing.assert_array_equal(stream.get_uint_info("group_ptr"), table.get_uint_info("group_ptr"))
    grouped = Parts([{"data": X[own], "group": [own.stop - own.start], "feature_weights": range(5)} for own in cut(4, len(X))])
    matrix = gb.DMatrix(grouped)
    assert matrix.get_group().tolist() == [own.stop - own.start for own in cut(4, len(X))]
    assert matrix.get_float_info("feature_weights").tolist() == [0, 1, 2, 3, 4]


def test_sparse_batches_are_the_sparse_table():
    matrix = sp.csr_array(np.where(RNG.random(X.shape) < 0.3, np.nan_to_num(X), 0))
    assert model(gb.QuantileDMatrix(parts_of(matrix, label=Y), max_bin=16)) == model(gb.DMatrix(matrix, Y))
    zeros = {"sparse_absent": "zero"}
    assert model(gb.DMatrix(parts_of(matrix, label=Y), **zeros)) == model(gb.DMatrix(matrix, Y, **zeros))


@pytest.mark.parametrize("rule", ["missing", "zero"])
@pytest.mark.parametrize("first", ["sparse", "dense"])
@pytest.mark.parametrize("kind", [gb.DMatrix, gb.QuantileDMatrix, gb.ExtMemQuantileDMatrix])
def test_batches_of_which_some_are_sparse_are_the_whole_table(kind, first, rule, room):
    """What a dense batch has is there; what a sparse one does not store is absent."""
    absent = RNG.random(X.shape) < 0.3
    whole = np.where(absent, np.nan if rule == "missing" else 0, X)
    batches = []
    for i, own in enumerate(cut(5, len(X))):
        rows, columns = np.nonzero(~absent[own])
        listed = sp.csr_array((X[own][rows, columns], (rows, columns)), X[own].shape)
        batches.append({"data": listed if i % 2 == (first == "dense") else whole[own], "label": Y[own]})
    options = {"max_bin": 16} if kind is not gb.DMatrix else {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # with files: that sparse batches stay in memory
        matrix = kind(Parts(batches), sparse_absent=rule, **options, **room)
    if kind is gb.DMatrix:
        np.testing.assert_array_equal(matrix.get_data().toarray(), np.nan_to_num(whole))
    assert matrix.num_nonmissing() == np.isfinite(whole).sum() and matrix.is_sparse
    booster, expected = (gb.train(PARAMS, data, 3) for data in (matrix, gb.DMatrix(whole, Y)))
    assert booster.get_dump(with_stats=True) == expected.get_dump(with_stats=True)
    assert model(matrix) == model(gb.DMatrix(sparse_of(whole, rule), Y, sparse_absent=rule))


def sparse_of(values, rule):
    """The table of values, of which the sparse one stores what its rule does not say."""
    is_listed = ~np.isnan(values) if rule == "missing" else values != 0
    rows, columns = np.nonzero(is_listed)
    return sp.csr_array((values[rows, columns], (rows, columns)), values.shape)


def test_sparse_batches_beside_categories_are_refused():
    categories = {"data": frame_of(a=SHORT, b=SHORT).astype({"b": "category"}), "feature_names": ["a", "b"]}
    listed = {"data": sp.csr_array(np.eye(3, 2)), "feature_names": ["a", "b"]}
    with pytest.raises(ValueError, match='batch 1 .*"b" holds categories in other batches, which sparse ones cannot'):
        gb.DMatrix(Parts([categories, listed]))
    with pytest.raises(ValueError, match='batch 1 .*"b" holds categories in some batches, but numbers in others'):
        gb.DMatrix(Parts([listed, categories]))


@pytest.mark.parametrize("kind", [gb.DMatrix, gb.QuantileDMatrix, gb.ExtMemQuantileDMatrix])
def test_sparse_batches_that_would_go_to_files_warn_once(kind):
    matrix = sp.csr_array(np.where(RNG.random(X.shape) < 0.3, np.nan_to_num(X), 0))
    with pytest.warns(UserWarning, match="sparse batches stay in memory, and those so far take") as caught:
        few = kind(parts_of(matrix, label=Y), cache_memory=matrix.data.nbytes)
    assert [warning.filename for warning in caught] == [__file__]
    assert model(few, max_bin=256) == model(gb.DMatrix(matrix, Y), max_bin=256)


def test_dictionaries_of_categories_are_united(room):
    """In ascending order, as those of workers and partitions, whoever holds which rows."""
    pd = pytest.importorskip("pandas")
    text = np.array(["red", "green", "blue", "grey"])[np.nan_to_num(X[:, 2]).astype(int)]
    frame = pd.DataFrame({"x": X[:, 0], "colour": text, "n": X[:, 2].astype(int)})
    batches = [frame.iloc[own].assign(colour=lambda part: part["colour"].astype("category")) for own in cut(4, len(X))]
    stream = Parts([{"data": part, "label": Y[own]} for part, own in zip(batches, cut(4, len(X)))])
    names = sorted(set(text))
    assert any(list(part["colour"].cat.categories) != names for part in batches)
    whole = frame.assign(colour=pd.Categorical(frame["colour"], categories=names))
    matrix, table = gb.DMatrix(stream, **room), gb.DMatrix(whole, Y)
    assert matrix.categories == table.categories == {"colour": list(names)} and matrix.feature_types == table.feature_types
    assert model(matrix) == model(table)
    again = frame.assign(colour=pd.Categorical(frame["colour"], categories=["grey", "red", "blue", "green"]))
    booster = gb.train(PARAMS, table, 3)
    other = gb.DMatrix(Parts([{"data": again}]), **room)  # its codes are others: matched by value
    np.testing.assert_array_equal(booster.predict(other), booster.predict(table))


def test_numbers_of_several_types_become_floats():
    pd = pytest.importorskip("pandas")
    whole, holes = pd.DataFrame({"n": [1, 2]}), pd.DataFrame({"n": [3.0, None]})
    assert gb.DMatrix(Parts([{"data": whole}, {"data": whole}])).feature_types == ["int"]
    assert gb.DMatrix(Parts([{"data": whole}, {"data": holes}])).feature_types == ["float"]


def test_an_iterator_of_xgboost_serves_as_it_is():
    """Nothing of the protocol is ours: one written for XGBoost gives the same table."""
    xgb = pytest.importorskip("xgboost")
    kind = type("Theirs", (xgb.DataIter,), {"next": Parts.next, "reset": Parts.reset})
    theirs = kind()
    theirs.batches, theirs.at, theirs.n_passes = parts_of(X, label=Y).batches, 0, 0
    assert model(gb.QuantileDMatrix(theirs, max_bin=16)) == model(gb.QuantileDMatrix(X, Y, max_bin=16))


# ---- What does not fit


def frame_of(**columns):
    return pytest.importorskip("pandas").DataFrame(columns)


GOOD = {"data": np.ones((3, 2)), "label": [0, 1, 0]}
SHORT = np.array([0.5, 1.5, 2.5])
BAD = {
    "columns": (GOOD, {"data": np.ones((3, 4)), "label": [0, 1, 0]}, "it has 4 columns, the first batch has 2"),
    "nan label": (GOOD, {"data": np.ones((3, 2)), "label": [0, np.nan, 1]}, "label must be finite.*the first at row 1"),
    "no label": (GOOD, {"data": np.ones((3, 2))}, "some batches have label and others have none"),
    "no weights": ({**GOOD, "weight": SHORT}, {**GOOD, "weight": []}, "weight has 0 rows, data has 3"),
    "length": (GOOD, {"data": np.ones((3, 2)), "label": [0, 1]}, "label has 2 rows, data has 3"),
    "targets": (GOOD, {"data": np.ones((3, 2)), "label": np.ones((3, 2))}, "its label has 2 columns, that of the first batch 1"),
    "negative weight": ({**GOOD, "weight": SHORT}, {**GOOD, "weight": -SHORT}, "weight must not be negative"),
    "text": (GOOD, {"data": np.array([["a", "b"]] * 3), "label": [0, 1, 0]}, "data holds <U1"),
    "sparse": (GOOD, {"data": sp.csr_array(np.eye(3, 4)), "label": [0, 1, 0]}, "it has 4 columns, the first batch has 2"),
    "dense": ({**GOOD, "data": sp.csr_array(np.eye(3, 4))}, GOOD, "it has 2 columns, the first batch has 4"),
    "nothing": (GOOD, {"data": None}, "data must be"),
}


@pytest.mark.parametrize("kind", [gb.DMatrix, gb.ExtMemQuantileDMatrix])
@pytest.mark.parametrize("case", BAD)
def test_a_bad_batch_is_named(tmp_path, case, kind):
    first, second, message = BAD[case]
    with pytest.raises((ValueError, TypeError), match=rf"batch 1 of the stream \(counted from 0\): .*{message}"):
        kind(Parts([first, second]), cache_memory=0, cache_folder=str(tmp_path))
    assert os.listdir(tmp_path) == []


def test_a_frame_of_other_columns_is_named():
    with pytest.raises(ValueError, match='batch 1 .*its column names \\("b", "c"\\) differ'):
        gb.DMatrix(Parts([{"data": frame_of(a=SHORT, b=SHORT)}, {"data": frame_of(a=SHORT, c=SHORT)}]))
    as_category = frame_of(a=SHORT, b=SHORT).astype({"b": "category"})
    with pytest.raises(ValueError, match='batch 1 .*"b" holds categories in some batches, but numbers in others'):
        gb.DMatrix(Parts([{"data": frame_of(a=SHORT, b=SHORT)}, {"data": as_category}]))


def test_an_iterator_that_raises_is_told_which_batch(tmp_path):
    class Broken(Parts):
        def next(self, input_data):
            if self.at == 2:
                raise ConnectionError("gone")
            return super().next(input_data)

    with pytest.raises(ConnectionError, match="gone") as caught:
        gb.ExtMemQuantileDMatrix(Broken([GOOD] * 4), cache_memory=0, cache_folder=str(tmp_path))
    assert caught.value.__notes__ == ["This was raised in batch 2 of the stream, counted from 0."]
    assert os.listdir(tmp_path) == []


def test_what_next_returns_is_checked():
    def answering(answer, calls):
        class Answers(Parts):
            def next(self, input_data):
                for _ in range(calls):
                    input_data(**GOOD)
                return answer

        return Answers([])

    cases = (None, 1, "must return True"), (True, 0, "without a call of input_data"), (True, 2, "called twice")
    for answer, calls, message in cases:
        with pytest.raises((TypeError, ValueError), match=message):
            gb.DMatrix(answering(answer, calls))
    with pytest.raises(ValueError, match="the stream holds no rows"):
        gb.DMatrix(Parts([]))


def test_a_batch_is_passed_on_by_names():
    class Unnamed(Parts):
        def next(self, input_data):
            input_data(*GOOD.values())

    with pytest.raises(TypeError, match=r"^Keyword arguments are all .* input_data\(data=X, label=y\)"):
        gb.DMatrix(Unnamed([]))


def test_infinite_values_name_the_column():
    bad = np.array([[1.0, np.inf], [2.0, 3.0]])
    with pytest.raises(ValueError, match="column 1 holds 1 value"):
        gb.ExtMemQuantileDMatrix(Parts([{"data": np.ones((2, 2))}, {"data": bad}]))


def test_categories_of_different_kinds_are_refused():
    pd = pytest.importorskip("pandas")
    batches = [{"data": pd.DataFrame({"c": pd.Categorical(values)})} for values in ([1, 2], ["1", "2"])]
    with pytest.raises(ValueError, match='batch 1 .*"c" holds categories of different kinds: int and str'):
        gb.DMatrix(Parts(batches))


def test_what_an_iterator_says_of_its_rows_comes_with_its_batches():
    with pytest.raises(ValueError, match=r"label of an iterator comes with its batches. Pass it to input_data\(label=...\)"):
        gb.DMatrix(parts_of(X, label=Y), label=Y)
    with pytest.raises(TypeError, match="takes no 'labels'. Did you mean 'label'"):
        gb.DMatrix(parts_of(X, labels=Y))


def test_next_may_return_what_numpy_counts_by():
    kind = type("Counted", (Parts,), {"next": lambda self, input_data: np.bool_(Parts.next(self, input_data))})
    assert gb.DMatrix(kind(parts_of(X, label=Y).batches)).num_row() == len(X)


@pytest.mark.parametrize("name, values, sizes", [("qid", [0, 0, 1], [2, 1]), ("group", [1, 2], [1, 2])])
def test_queries_of_a_buffer_that_is_used_again_are_those_of_their_batch(name, values, sizes):
    buffer = np.empty(len(values), int)

    class Reuses(gb.DataIter):
        i = 0

        def next(self, input_data):
            if self.i == 3:
                return False
            buffer[:] = values if name == "group" else np.array(values) + 2 * self.i
            input_data(data=X[:3], label=Y[:3], **{name: buffer})
            self.i += 1
            return True

        def reset(self):
            self.i = 0

    assert gb.DMatrix(Reuses()).get_group().tolist() == sizes * 3


def test_queries_are_told_apart_whatever_the_types_of_their_numbers():
    parts = [{"data": X[:2], "label": Y[:2], "qid": 2**60 + np.array([2 * i, 2 * i + 1], kind)} for i, kind in enumerate("lL")]
    assert gb.DMatrix(Parts(parts)).get_group().tolist() == [1, 1, 1, 1]


@pytest.mark.parametrize("types", [None, ["q", "q", "c", "q", "q"]])
def test_arrays_with_names_are_read_in_the_models_order(types, room):
    """Of columns in another order, and of codes for a model of categories, as an array at hand."""
    names, order = list("abcde"), [3, 1, 4, 0, 2]
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(X, columns=names).assign(c=pd.Categorical(X[:, 2].astype(int)))
    booster = gb.train(PARAMS, gb.DMatrix(X if types is None else frame, Y, feature_names=names), 3)
    own = {"feature_names": [names[j] for j in order], "feature_types": types and [types[j] for j in order]}
    given = [{"data": X[rows][:, order], "label": Y[rows], **own} for rows in cut(3, len(X))]
    expected = booster.predict(gb.DMatrix(X[:, order], **own))
    np.testing.assert_array_equal(booster.predict(gb.DMatrix(Parts(given), **room)), expected)


def test_types_come_from_any_batch_and_must_agree_on_categories():
    def types_of(*types):
        return gb.DMatrix(Parts([{"data": X[:9, 2:3], "label": Y[:9], "feature_types": own} for own in types])).feature_types

    assert types_of(None, ["c"]) == types_of(["c"], None) == ["c"] and types_of(["int"], ["q"]) == ["float"]
    with pytest.raises(ValueError, match="batch 1 .*feature_types of column 0 is 'c' in some batches, but not in others"):
        types_of(["c"], ["q"])


@pytest.mark.parametrize("order", [[0, 1, 2], [2, 0, 1], [0, 2, 1]])
def test_a_column_of_categories_may_have_no_value_in_a_batch(order, room):
    """As a file of a folder may: it then says nothing of its type."""
    pd = pytest.importorskip("pandas")
    frames = [{"k": pd.Categorical(list("xyxz"))}, {"k": pd.Categorical(list("wxzy"))}, {"k": [None] * 4}]
    frames = [pd.DataFrame(columns | {"n": np.arange(4.0)}) for columns in frames]
    parts = [{"data": frames[i], "label": np.arange(4) + i} for i in order]
    whole = pd.concat([frames[i].astype({"k": pd.CategoricalDtype(list("wxyz"))}) for i in order])
    label = np.concatenate([part["label"] for part in parts])
    stream, table = gb.DMatrix(Parts(parts), **room), gb.DMatrix(whole, label)
    assert stream.categories == table.categories and stream.feature_types == table.feature_types
    assert model(stream, objective="reg:squarederror") == model(table, objective="reg:squarederror")
    parts[order.index(2)]["data"] = pd.DataFrame({"k": [1.0, None, None, None], "n": np.arange(4.0)})
    with pytest.raises(ValueError, match='"k" holds categories in some batches, but numbers in others'):
        gb.DMatrix(Parts(parts), **room)


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_batch_without_rows_says_nothing(place):
    parts = [{"data": X[rows], "label": Y[rows]} for rows in cut(2, len(X))]
    parts.insert(place, {"data": np.ones((0, 5)), "label": []})
    assert model(gb.QuantileDMatrix(Parts(parts), max_bin=16)) == model(gb.QuantileDMatrix(X, Y, max_bin=16))
    with pytest.raises(ValueError, match="the stream holds no rows"):
        gb.DMatrix(Parts(parts[place : place + 1]))
