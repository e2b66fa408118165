"""Booster: what a model predicts, its parts and copies, and how columns are matched."""

import copy
import json
import pickle
import sys
import tracemalloc

import numpy as np
import pytest
from peer_versions import assert_same_nodes, xgboost_before
from scipy.sparse import csr_matrix
from small_tables import PARAMS, make_table, model_bytes

import gpuboost as gb
from gpuboost.backend.cpu.predictor import CpuPredictor
from gpuboost.margins import add_model_margin
from gpuboost.model.model import Model
from gpuboost.model_io import digest


@pytest.fixture(params=PARAMS)
def objective(request):
    return request.param


# -- Prediction -------------------------------------------------------------------------------------------------------


def walk(tree, row):
    """The leaf that a row of float32 values falls into."""
    node = 0
    while tree.left_child[node] >= 0:
        x = row[tree.feature[node]]
        goes_left = tree.default_left[node] if np.isnan(x) else x < tree.threshold[node]
        node = tree.left_child[node] + (0 if goes_left else 1)
    return node


@pytest.mark.parametrize("matrix", [gb.DMatrix, gb.QuantileDMatrix])
def test_leaves_and_margins_are_those_of_a_walk_down_the_trees(objective, matrix):
    X, y, _ = make_table(objective)
    booster = gb.train(PARAMS[objective], matrix(X, y), 3)
    data = gb.DMatrix(X[:50])
    leaves = booster.predict(data, pred_leaf=True)
    model = booster.model
    expected = [[walk(tree, row) for tree in model.trees] for row in X[:50].astype(np.float32)]
    np.testing.assert_array_equal(leaves, expected)
    margin = np.zeros((50, model.n_outputs), np.float32) + booster[:0].predict(data, output_margin=True, strict_shape=True)
    for i, (tree, group) in enumerate(zip(model.trees, model.tree_groups)):
        margin[:, group] += tree.leaf_value[leaves[:, i].astype(int)]
    np.testing.assert_array_equal(booster.predict(data, output_margin=True, strict_shape=True), margin)


def test_bins_predict_like_values(objective):
    X, y, _ = make_table(objective)
    binned, plain = gb.QuantileDMatrix(X, y), gb.DMatrix(X, y)
    booster = gb.train(PARAMS[objective], binned, 4)
    assert model_bytes(booster) == model_bytes(gb.train(PARAMS[objective], plain, 4))
    np.testing.assert_array_equal(booster.predict(binned), booster.predict(plain))
    other = gb.QuantileDMatrix(X[::-1], y[::-1], ref=binned)
    np.testing.assert_array_equal(booster.predict(other), booster.predict(plain)[::-1])


def test_bins_of_several_matrices_predict_in_turns(monkeypatch):
    """The trees stay laid out for the cuts asked for last, and are laid out anew for others."""
    X, y, _ = make_table("reg:squarederror")
    binned, again, coarse = gb.QuantileDMatrix(X, y), gb.QuantileDMatrix(X, y), gb.QuantileDMatrix(X, y, max_bin=3)
    booster = gb.train(PARAMS["reg:squarederror"], binned, 4)
    expected, flattened = booster.predict(gb.DMatrix(X), pred_leaf=True), []
    flatten = CpuPredictor.flatten
    monkeypatch.setattr(CpuPredictor, "flatten", lambda self, *given: flattened.append(given) or flatten(self, *given))
    for data, n_flattened in ((binned, 1), (binned, 1), (again, 2), (again, 2), (binned, 3)):
        np.testing.assert_array_equal(booster.predict(data, pred_leaf=True), expected)
        assert len(flattened) == n_flattened
    with pytest.raises(ValueError):
        booster.predict(coarse)
    np.testing.assert_array_equal(booster.predict(binned, pred_leaf=True), expected)


def test_shapes_of_predictions():
    X, y, _ = make_table("multi:softprob")
    data = gb.DMatrix(X, y)
    multi = gb.train(PARAMS["multi:softprob"], data, 2)
    assert multi.predict(data).shape == (400, 3)
    leaves = multi.predict(data, pred_leaf=True)
    assert leaves.shape == (400, 6)
    np.testing.assert_array_equal(multi.predict(data, pred_leaf=True, strict_shape=True), leaves.reshape(400, 2, 3, 1))
    assert multi.predict(gb.DMatrix(X[:0]), pred_leaf=True, strict_shape=True).shape == (0, 2, 3, 1)
    np.testing.assert_allclose(multi.predict(data).sum(axis=1), 1, rtol=1e-6)
    softmax = gb.train({**PARAMS["multi:softprob"], "objective": "multi:softmax"}, data, 2)
    np.testing.assert_array_equal(softmax.predict(data), multi.predict(data).argmax(axis=1))
    single = gb.train({}, data, 2)
    assert single.predict(data).shape == (400,) and single.predict(data).dtype == np.float32
    assert single.predict(data, strict_shape=True).shape == (400, 1)
    two = gb.train({}, gb.DMatrix(X, np.stack([y, -y], axis=1)), 2)
    np.testing.assert_allclose(two.predict(data), np.stack([single.predict(data), -single.predict(data)], axis=1), atol=1e-3)
    assert multi.predict(gb.DMatrix(X[:0])).shape == (0, 3)


def test_slices_and_iteration_ranges_are_the_rounds_they_name(objective):
    X, y, _ = make_table(objective)
    data = gb.DMatrix(X, y)
    booster = gb.train(PARAMS[objective], data, 5)
    assert model_bytes(booster[:2]) == model_bytes(gb.train(PARAMS[objective], data, 2))
    assert [part.num_boosted_rounds() for part in booster] == [1] * 5
    assert model_bytes(booster[-1]) == model_bytes(booster[4:]) and model_bytes(booster[1:99]) == model_bytes(booster[1:])
    for begin, end in ((0, 2), (1, 4), (4, 5)):
        np.testing.assert_array_equal(booster.predict(data, iteration_range=(begin, end)), booster[begin:end].predict(data))
    np.testing.assert_array_equal(booster.predict(data, iteration_range=(0, 0)), booster.predict(data))
    with pytest.raises(ValueError, match=r"iteration_range must lie within the model's 5 rounds, got \(0, 6\)"):
        booster.predict(data, iteration_range=(0, 6))
    np.testing.assert_array_equal(booster.predict(data, iteration_range=None), booster.predict(data))
    np.testing.assert_array_equal(booster.inplace_predict(X, iteration_range=np.array([0, 2])), booster[:2].predict(data))
    assert model_bytes(booster[np.int64(1)]) == model_bytes(booster[1]) and model_bytes(booster[...]) == model_bytes(booster)
    for refused in (3, (0, 1, 2), (0, None), (0.5, 2), "02"):
        with pytest.raises(TypeError, match=r"iteration_range must be a pair \(begin, end\) of rounds, or None for all, got"):
            booster.predict(data, iteration_range=refused)
    with pytest.raises(IndexError, match="round 5 is outside"):
        _ = booster[5]


def test_copy_and_saved_model_are_independent_equals(objective, tmp_path):
    X, y, _ = make_table(objective)
    data = gb.DMatrix(X, y)
    booster = gb.train(PARAMS[objective], data, 2)
    booster.set_attr(note="kept")
    booster.save_model(tmp_path / "m.json")
    loaded, copied = gb.Booster(model_file=tmp_path / "m.json"), booster.copy()
    before = model_bytes(booster)
    assert model_bytes(loaded) == model_bytes(copied) == before and loaded.attr("note") == "kept"
    np.testing.assert_array_equal(loaded.predict(data), booster.predict(data))
    copied.update(data)
    assert model_bytes(booster) == before
    loaded.set_attr(note=None)
    assert loaded.attr("note") is None and loaded.attributes() == {}


@pytest.mark.parametrize("kind", ["dense", "sparse", "codes", "margins"])
def test_what_was_predicted_before_does_not_show(objective, kind):
    """Margins of a matrix are kept from its second prediction on, and further rounds added to them."""
    X, y, _ = make_table(objective)
    outputs = gb.train(PARAMS[objective], gb.DMatrix(X, y), 1).model.n_outputs
    margin = np.linspace(-1, 1, 100 * outputs).reshape(100, -1) if kind == "margins" else None
    make = {"sparse": lambda: gb.DMatrix(csr_matrix(X[:100]))}.get(kind, lambda: gb.DMatrix(X[:100], base_margin=margin))
    dtrain = gb.QuantileDMatrix(X, y) if kind == "codes" else gb.DMatrix(X, y)
    make = (lambda: gb.QuantileDMatrix(X[:100], ref=dtrain)) if kind == "codes" else make
    booster, data = gb.Booster(PARAMS[objective]), make()

    def check(end=0, **options):
        expected = booster.copy().predict(make(), iteration_range=(0, end), **options)
        got = booster.predict(data, iteration_range=(0, end), **options)
        np.testing.assert_array_equal(got, expected)
        got[...] = 7.0  # whoever gets them may write into them

    for i in range(6):
        booster.update(dtrain, i)
        check()
        check(output_margin=True)
    for end in (1, 2, 5, 3, 3, 6, 0, 1):
        check(end)
    data.set_base_margin(np.full(100, 0.5) if outputs == 1 else np.full((100, outputs), 0.5))
    make = (lambda made: lambda: _with(made(), data.get_base_margin()))(make)
    check()
    check()
    other = gb.train({**PARAMS[objective], "max_depth": 2}, dtrain, 4)
    booster.load_model(other.save_raw())
    check()
    check(3)
    booster.update(dtrain, 4)
    check()


@pytest.mark.parametrize("params", [{"booster": "dart", "rate_drop": 0.5}, {"num_parallel_tree": 2}, {"base_score": 0.25}])
def test_nor_where_earlier_trees_weigh_otherwise_or_margins_begin_elsewhere(params):
    X, y, _ = make_table("reg:squarederror")
    booster, dtrain, data = gb.Booster({**PARAMS["reg:squarederror"], **params}), gb.DMatrix(X, y), gb.DMatrix(X[:50])
    for i in range(9):
        booster.update(dtrain, i)
        if i == 6:
            booster.set_param({"base_score": 0.75})
        for _ in range(2):
            np.testing.assert_array_equal(booster.predict(data), booster.copy().predict(gb.DMatrix(X[:50])))
    first = booster.copy()
    other = gb.train({**PARAMS["reg:squarederror"], **params, "max_depth": 2}, dtrain, 12)
    [booster.predict(data) for _ in range(2)]
    booster.load_model(other.save_raw())
    np.testing.assert_array_equal(booster.predict(data), other.predict(gb.DMatrix(X[:50])))
    assert not np.array_equal(booster.predict(data), first.predict(data))


def test_only_rounds_that_are_new_to_a_matrix_are_predicted(monkeypatch):
    """Unless to lay their trees out takes longer; and matrices that are gone leave nothing behind."""
    X, y, _ = make_table("reg:squarederror")
    booster, seen = gb.train(PARAMS["reg:squarederror"], gb.DMatrix(X, y), 8), []

    def add(model, *given, **named):
        seen.append(model.n_rounds)
        add_model_margin(model, *given, **named)

    monkeypatch.setattr("gpuboost.predictor.add_model_margin", add)
    data, few = gb.DMatrix(np.tile(X, (2000 // len(X) + 1, 1))), gb.DMatrix(X[:2])
    for end in (3, 3, 3, 5, 4, 8, 8):
        booster.predict(data, iteration_range=(0, end))
    assert seen == [3, 3, 2, 4, 4]
    seen.clear()
    for end in (0, 0, 2, 2, 0, 2, 0):
        booster.predict(few, iteration_range=(0, end))
    assert seen == [8, 8, 2, 8, 2, 8]
    assert len(booster._predictors._kept_of_all) == 2
    del data, few
    assert len(booster._predictors._kept_of_all) == 0


@pytest.mark.parametrize("params", [
    {}, {"booster": "dart", "rate_drop": 0.5}, {"num_parallel_tree": 2}, {"multi_strategy": "multi_output_tree"},
], ids=str)  # fmt: skip
def test_a_model_that_grows_predicts_as_one_that_is_loaded(params):
    """Trees are laid out once; splits by sets, of whose words there are more each time, and other rounds in between."""
    rng = np.random.default_rng(0)
    X = np.stack([rng.integers(0, 40, 300), rng.normal(size=300)], axis=1)
    y = np.stack([np.sin(X[:, 0]) + X[:, 1], X[:, 0] % 3], axis=1)
    matrix = gb.DMatrix(X, y, feature_types=["c", "q"])
    booster = gb.Booster({"max_depth": 3, "max_cat_to_onehot": 1, "seed": 2, **params}, [matrix])
    for i in range(5):
        booster.update(matrix)
        loaded = gb.Booster(model_file=booster.save_raw())
        for rows in X[:3], X[:200]:
            own = booster.inplace_predict(rows)
            np.testing.assert_array_equal(own, loaded.inplace_predict(rows))
            part = booster.inplace_predict(rows, iteration_range=(i // 2, i + 1))
            np.testing.assert_array_equal(part, loaded.inplace_predict(rows, iteration_range=(i // 2, i + 1)))
    assert (own != part).any() and any(tree.sets is not None for tree in booster.model.trees)


def test_a_matrix_is_itself_whatever_it_is_equal_to():
    class Alike(gb.DMatrix):
        def __eq__(self, other):
            return True

        __hash__ = None

    X, y, _ = make_table("reg:squarederror")
    booster = gb.train(PARAMS["reg:squarederror"], gb.DMatrix(X, y), 3)
    for rows in (X[:9], X[9:18]):
        data = Alike(rows)
        assert len({booster.predict(data).tobytes() for _ in range(3)} | {booster.predict(gb.DMatrix(rows)).tobytes()}) == 1


def _with(data, margin):
    data.set_base_margin(margin)
    return data


def test_kept_margins_follow_names_and_say_what_a_first_prediction_says():
    X, y, _ = make_table("binary:logistic")
    booster = gb.train(PARAMS["binary:logistic"], gb.DMatrix(X, y, feature_names=[*"abcd"][: X.shape[1]]), 3)
    data = gb.DMatrix(X, feature_names=[*"abcd"][: X.shape[1]])
    before = [booster.predict(data) for _ in range(3)]
    assert np.array_equal(before[0], before[2])
    booster.feature_names = booster.feature_names[::-1]
    reversed_columns = booster.copy().predict(gb.DMatrix(X, feature_names=data.feature_names))
    assert not np.array_equal(before[0], reversed_columns)
    for _ in range(3):
        np.testing.assert_array_equal(booster.predict(data), reversed_columns)
        np.testing.assert_array_equal(booster.predict(data, validate_features=False), before[0])
    data.feature_names = [f"{name}?" for name in data.feature_names]
    for _ in range(3):
        with pytest.raises(ValueError, match="lacks"):
            booster.predict(data)


def test_categories_that_a_model_does_not_know_are_told_each_time():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"c": pandas.Categorical([*"abcd"] * 25)})
    booster = gb.train({"max_depth": 2}, gb.DMatrix(frame, np.arange(100) % 4), 3)
    data = gb.DMatrix(pandas.DataFrame({"c": pandas.Categorical([*"abxd"])}))
    for _ in range(4):
        with pytest.warns(UserWarning, match="x"):
            booster.predict(data)
    with gb.config_context(unseen_categories="error"), pytest.raises(ValueError, match="x"):
        booster.predict(data)


@pytest.mark.sweep(6)
@pytest.mark.parametrize("n_rows", [1, 3, 400])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_inplace_predict_is_predict(objective, n_rows, dtype):
    X, y, _ = make_table(objective)
    booster = gb.train(PARAMS[objective], gb.DMatrix(X, y), 20)
    X = X[:n_rows].astype(dtype)
    for table in (X, np.asfortranarray(X), X[::-1], X.tolist()):
        data = gb.DMatrix(table)
        np.testing.assert_array_equal(booster.inplace_predict(table), booster.predict(data))
        margin = booster.predict(data, output_margin=True)
        np.testing.assert_array_equal(booster.inplace_predict(table, predict_type="margin"), margin)
        ranged = booster.inplace_predict(table, iteration_range=(1, 3), strict_shape=True)
        np.testing.assert_array_equal(ranged, booster.predict(data, iteration_range=(1, 3), strict_shape=True))
        margin = np.linspace(-1, 1, n_rows * booster.model.n_outputs).reshape(n_rows, -1)
        with_margin = booster.predict(gb.DMatrix(table, base_margin=margin))
        np.testing.assert_array_equal(booster.inplace_predict(table, base_margin=margin), with_margin)
    marked = np.nan_to_num(X, nan=-9.0)
    np.testing.assert_array_equal(booster.inplace_predict(marked, missing=-9.0), booster.predict(gb.DMatrix(X)))


@pytest.mark.parametrize("n_rows", [2, 2000])
def test_inplace_predict_makes_no_matrix_of_a_plain_array(n_rows, monkeypatch):
    X, y, _ = make_table("binary:logistic")
    booster = gb.train(PARAMS["binary:logistic"], gb.DMatrix(X, y), 20)
    table = np.resize(X, (n_rows, X.shape[1]))
    expected = booster.predict(gb.DMatrix(table))
    monkeypatch.setattr("gpuboost.booster.DMatrix", type("None", (), {"__init__": None}))
    predicted = booster.inplace_predict(table)
    np.testing.assert_array_equal(predicted, expected)
    assert predicted.flags.owndata and predicted.flags.writeable


def test_inplace_predict_of_the_most_probable_class():
    X, y, _ = make_table("multi:softprob")
    booster = gb.train({**PARAMS["multi:softprob"], "objective": "multi:softmax"}, gb.DMatrix(X, y), 2)
    for rows in (X[:2], X):
        np.testing.assert_array_equal(booster.inplace_predict(rows), booster.predict(gb.DMatrix(rows)))


def test_inplace_predict_equals_xgboost_on_the_same_model(objective):
    xgboost = pytest.importorskip("xgboost")
    X, y, _ = make_table(objective)
    booster = gb.train(PARAMS[objective], gb.DMatrix(X, y), 10)
    peer = xgboost.Booster(model_file=booster.save_raw("json"))
    for rows in (X[:1], X):
        for kind in ("value", "margin"):
            ours, theirs = (library.inplace_predict(rows, predict_type=kind) for library in (booster, peer))
            assert ours.shape == theirs.shape and ours.dtype == theirs.dtype
            np.testing.assert_allclose(ours, theirs, rtol=1e-5)  # exp differs in its last bits


def test_predictions_follow_the_model():
    """What is kept for prediction is not used once rounds were added or another model was taken."""
    X, y, _ = make_table("binary:logistic")
    data = gb.DMatrix(X, y)
    booster = gb.train(PARAMS["binary:logistic"], data, 2)
    other = gb.train({"objective": "binary:logistic", "max_depth": 1}, data, 2)
    for change in (lambda: None, lambda: booster.update(data), lambda: booster.take_model(other.model)):
        change()
        fresh = gb.Booster(model_file=model_bytes(booster))
        np.testing.assert_array_equal(booster.inplace_predict(X[:1]), fresh.predict(gb.DMatrix(X[:1])))
        np.testing.assert_array_equal(booster.predict(data), fresh.predict(data))
    for end in range(1, 3):
        assert booster.inplace_predict(X[:1], iteration_range=(0, end)) == booster[:end].inplace_predict(X[:1])


@pytest.mark.filterwarnings("ignore:data has no column names")
def test_inplace_predict_matches_frames_and_refuses_what_predict_refuses():
    pd = pytest.importorskip("pandas")
    X, y, _ = make_table("reg:squarederror")
    frame = pd.DataFrame(X, columns=list("abcd"))
    booster = gb.train({}, gb.DMatrix(frame, y), 3)
    expected = booster.predict(gb.DMatrix(frame))
    np.testing.assert_array_equal(booster.inplace_predict(frame[list("dbca")]), expected)
    with pytest.warns(UserWarning, match="data has no column names"):  # the first time
        np.testing.assert_array_equal(booster.inplace_predict(X[:1]), expected[:1])
    np.testing.assert_array_equal(booster.inplace_predict(X[:1]), expected[:1])
    for rows in (X[:1, :3], X[:, :3]):
        with pytest.raises(ValueError, match="3 columns, but the model was trained on 4"):
            booster.inplace_predict(rows)
    with pytest.raises(ValueError, match="infinite or at least 3.4028235e38"):
        booster.inplace_predict(np.array([[0.0, np.inf, 0.0, 0.0]]))
    with pytest.raises(ValueError, match="2-D"):
        booster.inplace_predict(X[0])
    with pytest.raises(ValueError, match="predict_type must be 'value' or 'margin', got 'leaf'"):
        booster.inplace_predict(X, predict_type="leaf")
    with pytest.raises(TypeError, match="got a DMatrix"):
        booster.inplace_predict(gb.DMatrix(X))
    with pytest.raises(ValueError, match="iteration_range must lie within the model's 3 rounds"):
        booster.inplace_predict(X[:1], iteration_range=(0, 4))


# -- Columns ----------------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:data has no column names")
def test_columns_are_matched_by_name():
    pd = pytest.importorskip("pandas")
    X, y, _ = make_table("reg:squarederror")
    frame = pd.DataFrame(X, columns=list("abcd"))
    booster = gb.train({}, gb.DMatrix(frame, y), 3)
    permuted = frame[list("dbca")]
    expected = booster.predict(gb.DMatrix(frame))
    np.testing.assert_array_equal(booster.predict(gb.DMatrix(permuted)), expected)
    with pytest.warns(UserWarning, match="data has no column names"):
        np.testing.assert_array_equal(booster.predict(gb.DMatrix(X)), expected)
    with pytest.raises(ValueError, match='lacks "d" and has the unknown "e"'):
        booster.predict(gb.DMatrix(frame.rename(columns={"d": "e"})))
    with pytest.raises(ValueError, match="3 columns, but the model was trained on 4"):
        booster.predict(gb.DMatrix(X[:, :3]))


def test_columns_of_a_model_can_be_renamed():
    pd = pytest.importorskip("pandas")
    X, y, _ = make_table("reg:squarederror")
    frame = pd.DataFrame(X, columns=list("abcd"))
    frame["b"] = pd.Categorical(np.where(X[:, 1] > 0.5, "big", "small"))
    booster = gb.train({}, gb.DMatrix(frame, y), 3)
    expected = booster.predict(gb.DMatrix(frame), iteration_range=(0, 2))
    booster.feature_names, renamed = list("wxyz"), frame.set_axis(list("wxyz"), axis=1)
    np.testing.assert_array_equal(booster.predict(gb.DMatrix(renamed), iteration_range=(0, 2)), expected)
    assert booster.feature_names == list("wxyz") and booster.model.categories == {"x": ["big", "small"]}
    booster.feature_types = ["float", "c", "q", "q"]
    assert gb.Booster(model_file=model_bytes(booster)).feature_types == ["float", "c", "q", "q"]
    for names, message in (("abc", "one name a column"), (None, "must name the columns of a table with categories")):
        with pytest.raises(ValueError, match=message):
            booster.feature_names = names
    plain = gb.train({}, gb.DMatrix(X, y), 1)
    plain.feature_names = None
    assert plain.feature_names is None


def test_without_validate_features_columns_count_by_their_order():
    pd = pytest.importorskip("pandas")
    X, y, _ = make_table("reg:squarederror")
    frame = pd.DataFrame(X, columns=list("abcd"))
    frame["b"] = pd.Categorical(np.where(X[:, 1] > 0.5, "big", "small"))
    booster = gb.train({}, gb.DMatrix(frame, y), 3)
    expected = booster.predict(gb.DMatrix(frame))
    for names in ("wxyz", "bcda"):
        renamed = frame.set_axis(list(names), axis=1)
        np.testing.assert_array_equal(booster.predict(gb.DMatrix(renamed), validate_features=False), expected)
        np.testing.assert_array_equal(booster.inplace_predict(renamed, validate_features=False), expected)
    with pytest.raises(ValueError, match="lacks"):
        booster.predict(gb.DMatrix(frame.set_axis(list("wxyz"), axis=1)))


def test_binned_evaluation_matrix_takes_columns_and_categories_of_its_reference():
    pd = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)

    def make(order, letters):
        kind = rng.choice(letters, 300)
        number = rng.random(300)
        y = number + 3.0 * (kind == "b") + 5.0 * (kind == "d")
        return pd.DataFrame({"number": number, "kind": pd.Categorical(kind)})[order], y

    X, y = make(["number", "kind"], list("abcd"))
    X_valid, y_valid = make(["kind", "number"], list("bd"))
    dtrain = gb.QuantileDMatrix(X, y)
    dvalid = gb.QuantileDMatrix(X_valid, y_valid, ref=dtrain)
    booster = gb.train({}, dtrain, 20)
    np.testing.assert_array_equal(booster.predict(dvalid), booster.predict(gb.DMatrix(X_valid)))
    assert np.abs(booster.predict(dvalid) - y_valid).max() < 0.5  # codes taken for others would be off by 3 or 5
    with pytest.raises(ValueError, match="columns and categories must be the model's. Build it with ref="):
        booster.predict(gb.QuantileDMatrix(X_valid))
    with pytest.raises(ValueError, match="ref has 2 columns, data has 1"):
        gb.QuantileDMatrix(X_valid[["number"]], ref=dtrain)


# -- Parts, copies and parameters -------------------------------------------------------------------------------------


def test_slices_with_a_step_hold_the_rounds_they_name(objective):
    X, y, _ = make_table(objective)
    booster = gb.train(PARAMS[objective], gb.DMatrix(X, y), 7)
    per_round = booster.model.n_outputs
    for rounds in (slice(None, None, 2), slice(1, 6, 3), slice(5, 2, 2)):
        part, numbers = booster[rounds], range(7)[rounds]
        expected = [booster.model.trees[per_round * r + k] for r in numbers for k in range(per_round)]
        assert part.model.trees == expected and part.num_boosted_rounds() == len(numbers)
        assert part.model.tree_groups == list(range(per_round)) * len(numbers)
    with pytest.raises(ValueError, match="the step of a slice must be at least 1, got -1"):
        booster[::-1]
    with pytest.raises(TypeError, match="rounds must be an integer or a slice, got 'a'"):
        booster["a"]


def test_a_slice_does_not_know_which_round_of_all_was_best():
    """An estimator would predict with rounds that are not there."""
    X, y, _ = make_table("reg:squarederror")
    data = gb.DMatrix(X, y)
    booster = gb.train({}, data, 8, evals=[(data, "t")], early_stopping_rounds=3, verbose_eval=False)
    assert booster.best_iteration == 7
    part = booster[2:6]
    assert part.attributes() == {} and booster.best_iteration == 7
    estimator = gb.GPUBoostRegressor()
    estimator.load_model(part.save_raw("json"))
    np.testing.assert_array_equal(estimator.predict(X), part.predict(data))


def test_slices_with_a_step_are_those_of_xgboost():
    xgboost = pytest.importorskip("xgboost")
    X, y, _ = make_table("multi:softprob")
    booster = gb.train(PARAMS["multi:softprob"], gb.DMatrix(X, y), 6)
    peer = xgboost.Booster(model_file=booster.save_raw("json"))
    assert booster[::2].get_dump() == peer[::2].get_dump()


@pytest.mark.parametrize("duplicate", [lambda b: pickle.loads(pickle.dumps(b)), copy.deepcopy, copy.copy, gb.Booster.copy])
def test_duplicates_are_equal_and_train_on_to_the_same_model(objective, duplicate):
    X, y, _ = make_table(objective)
    data = gb.DMatrix(X, y)
    booster = gb.Booster({**PARAMS[objective], "eta": 0.2, "max_depth": 3, "eval_metric": ["rmse", "mae"]})
    for _ in range(3):
        booster.update(data)
    booster.set_attr(note="kept")
    twin = duplicate(booster)
    assert digest(twin.model) == digest(booster.model) and twin.params == booster.params and twin.attr("note") == "kept"
    twin.set_attr(note="changed")
    assert booster.attr("note") == "kept"
    booster.set_attr(note="changed")
    for each in (booster, twin):
        each.update(data)
    assert digest(twin.model) == digest(booster.model) and twin.num_boosted_rounds() == 4


def test_pickle_holds_the_model_file_and_no_other_pickle():
    X, y, _ = make_table("reg:squarederror")
    booster = gb.train({}, gb.DMatrix(X, y), 2)
    state = booster.__getstate__()
    assert set(state) == {"params", "model"} and isinstance(state["model"], bytes)
    assert digest(gb.Booster(model_file=state["model"]).model) == digest(booster.model)
    untrained = pickle.loads(pickle.dumps(gb.Booster({"max_depth": 2})))
    assert untrained.params.max_depth == 2 and untrained.num_boosted_rounds() == 0


CONFIGS = [
    {}, {"objective": "binary:logistic", "eta": 0.125, "max_depth": 3, "lambda": 2, "eval_metric": ["auc", "error"], "seed": 3},
    {"objective": "reg:tweedie", "tweedie_variance_power": 1.25}, {"booster": "gblinear"}, {"rate_drop": 0.5},
    {"booster": "dart", "rate_drop": 0.5, "max_depth": 3}, {"objective": "multi:softprob", "num_class": 2},
    {"interaction_constraints": "[[0,1],[2]]", "num_parallel_tree": 2},
]  # fmt: skip


@pytest.mark.parametrize("params", CONFIGS, ids=str)
def test_config_shows_settings_where_xgboosts_does(params):
    xgboost = pytest.importorskip("xgboost")
    X = np.random.default_rng(0).random((60, 3))
    y = (X[:, 0] > 0.5).astype(float)
    ours, theirs = (module.train(params, module.DMatrix(X, y), 2) for module in (gb, xgboost))

    def leaves(value, place=""):
        inner = value.items() if type(value) is dict else ()
        return [leaf for key, part in inner for leaf in leaves(part, f"{place}.{key}")] or [(place, value)]

    def plain(value):
        try:
            return pytest.approx(float(value.strip("[]")), rel=1e-6)
        except (AttributeError, ValueError):
            return value if value not in ("()", "[]") else ""

    own, known = (dict(leaves(json.loads(booster.save_config())["learner"])) for booster in (ours, theirs))
    ours_alone = ("device", "nthread", "n_jobs", "tree_method", "updater", "boost_from_average")  # or under names of our own
    shared = [place for place in own.keys() & known.keys() if place.rpartition(".")[2] not in ours_alone]
    assert len(shared) > (5 if params.get("booster") == "gblinear" else 40)
    if "num_class" in params:  # starts elsewhere (README)
        shared.remove(".learner_model_param.base_score")
    assert [(place, own[place], known[place]) for place in shared if not plain(known[place]) == plain(own[place])] == []
    assert json.loads(gb.Booster(params).save_config())["learner"].keys() == json.loads(ours.save_config())["learner"].keys()


def test_config_restores_all_parameters():
    given = {"objective": "binary:logistic", "eta": 0.125, "lambda": 3, "eval_metric": ["auc", "error"], "base_score": 0.25,
             "tree_method": "hist", "sketch_eps": 0.01}  # fmt: skip
    config = gb.Booster(given).save_config()
    assert json.loads(config)["params"]["max_bin"] == 100
    restored = gb.Booster({"max_depth": 9})
    restored.load_config(config)
    assert restored.params == gb.Booster(given).params and restored.save_config() == config


def in_learner(config, place, value):
    """The config with another value in a place of "learner"."""
    document = json.loads(config)
    *path, last = place.split(".")
    section = document["learner"]
    for key in path:
        section = section[key]
    assert last in section
    section[last] = value
    return json.dumps(document)


@pytest.mark.parametrize("place, value, expected", [
    ("gradient_booster.tree_train_param.max_depth", "1", {"max_depth": 1}),
    ("gradient_booster.tree_train_param.max_depth", 1, {"max_depth": 1}),
    ("gradient_booster.tree_train_param.eta", "0.25", {"learning_rate": 0.25}),
    ("gradient_booster.tree_train_param.monotone_constraints", "(1,-1,0)", {"monotone_constraints": (1, -1, 0)}),
    ("gradient_booster.gbtree_model_param.num_parallel_tree", "3", {"num_parallel_tree": 3}),
    ("gradient_booster.name", "dart", {"booster": "dart"}),
    ("objective.name", "count:poisson", {"objective": "count:poisson"}),
    ("objective.tweedie_regression_param.tweedie_variance_power", "1.25", {"tweedie_variance_power": 1.25}),
    ("learner_train_param.objective", "count:poisson", {"objective": "count:poisson"}),
    ("metrics", [{"name": "mae"}, {"name": "rmse"}], {"eval_metric": ("mae", "rmse")}),
    ("generic_param.random_state", "7", {"seed": 7}),
    ("learner_model_param.base_score", "[3E0]", {}),
])  # fmt: skip
def test_what_is_changed_in_the_learner_of_a_config_takes_effect(place, value, expected):
    params = {"objective": "reg:tweedie"} if "tweedie" in place else {}
    booster = gb.Booster({"max_bin": 64, **params})
    booster.load_config(in_learner(booster.save_config(), place, value))
    assert booster.params == gb.Booster({"max_bin": 64, **params, **expected}).params
    again = gb.Booster()
    again.load_config(booster.save_config())
    assert again.params == booster.params


@pytest.mark.parametrize("given, shown", [({}, "0"), ({"nthread": 2}, "2")])
def test_a_config_shows_the_number_of_threads_as_a_number(given, shown):
    assert json.loads(gb.Booster(given).save_config())["learner"]["generic_param"]["nthread"] == shown


def test_a_changed_config_is_that_of_the_next_rounds_as_in_xgboost():
    xgboost, depths = pytest.importorskip("xgboost"), []
    X = np.random.default_rng(0).random((60, 3))
    for module in (gb, xgboost):
        data = module.DMatrix(X, X[:, 0])
        booster = module.train({"max_leaves": 20}, data, 1)
        booster.load_config(in_learner(booster.save_config(), "gradient_booster.tree_train_param.max_depth", "1"))
        booster.update(data, 1)
        depths.append([len(dump.splitlines()) > 3 for dump in booster.get_dump()])
    assert depths == [[True, False]] * 2


@pytest.mark.parametrize("params", [
    {"objective": "count:poisson"}, {"objective": "binary:logistic", "scale_pos_weight": 1.1}, {"booster": "gblinear"},
    {"objective": "reg:tweedie", "tweedie_variance_power": 1.3},
], ids=str)  # fmt: skip
def test_the_config_of_a_model_file_says_its_objective_and_nothing_else(params):
    X = np.random.default_rng(0).random((60, 3))
    trained = gb.train(params, gb.DMatrix(X, (X[:, 0] > 0.5).astype(float)), 1)
    booster, fresh = gb.Booster(model_file=trained.save_raw()), gb.Booster()
    for target in (fresh, booster):
        target.load_config(booster.save_config())
        assert target.params == trained.params


def test_a_parameter_of_the_objective_of_a_model_file_can_be_changed_in_its_config():
    X = np.random.default_rng(0).random((60, 3))
    booster = gb.Booster(model_file=gb.train({"objective": "reg:tweedie"}, gb.DMatrix(X, X[:, 0]), 1).save_raw())
    config = in_learner(booster.save_config(), "objective.tweedie_regression_param.tweedie_variance_power", "1.25")
    booster.load_config(config)
    assert booster.params.tweedie_variance_power == 1.25 and booster.params.eval_metric == ()


def test_a_config_that_contradicts_itself_is_refused():
    place = "gradient_booster.tree_train_param."
    booster, plain = gb.Booster({"max_depth": 3}), gb.Booster()
    with pytest.raises(ValueError, match="config says max_depth=3, but max_depth='1' in 'learner'. Change it in both places"):
        plain.load_config(in_learner(booster.save_config(), place + "max_depth", "1"))
    with pytest.raises(ValueError, match="config says learning_rate=0.1, but eta='0.2' in 'learner'"):
        plain.load_config(in_learner(in_learner(plain.save_config(), place + "learning_rate", 0.1), place + "eta", "0.2"))
    with pytest.raises(ValueError, match="max_depth must be .*, got 'deep'"):
        plain.load_config(in_learner(plain.save_config(), place + "max_depth", "deep"))
    trained = gb.train({}, gb.DMatrix(np.eye(3), [1, 2, 3]), 1)
    with pytest.raises(ValueError, match="objective='count:poisson', but the model was trained with 'reg:squarederror'"):
        trained.load_config(in_learner(trained.save_config(), "objective.name", "count:poisson"))
    assert plain.params == gb.Booster().params and trained.params == gb.Booster().params
    both = json.loads(in_learner(booster.save_config(), place + "max_depth", "1"))
    both["params"]["max_depth"] = 1
    plain.load_config(json.dumps(both))
    assert plain.params.max_depth == 1


@pytest.mark.parametrize(
    ("given", "changes", "expected"),
    [
        ({"eta": 0.2}, [("eta", 0.1), ("learning_rate", 0.4), ("eta", 0.5)], {"learning_rate": 0.5}),
        ({"sketch_eps": 0.01}, [("max_bin", 64)], {"max_bin": 64}),
        ({"max_bin": 64}, [("sketch_eps", 0.01)], {"max_bin": 100}),
        ({"max_depth": 3, "seed": 1}, [("max_depth", None)], {"seed": 1}),
        ({"eval_metric": "auc"}, [([("eval_metric", "mae"), ("eval_metric", "rmse")],)], {"eval_metric": ("mae", "rmse")}),
        ([("eval_metric", "mae"), ("eval_metric", "auc")], [({"random_state": 7},)], {"eval_metric": ("mae", "auc"), "seed": 7}),
        ({}, [({"monotone_constraints": ()},), ({"base_score": np.float32(0.5)},)], {"base_score": (0.5,)}),
        ({"validate_parameters": False}, [("validate_parameters", True)], {}),
    ],
)
def test_parameters_set_last_hold_in_every_copy(given, changes, expected):
    X, y, _ = make_table("reg:squarederror")
    booster = gb.Booster(given)
    for stage in (lambda: None, lambda: booster.update(gb.DMatrix(X, y))):  # without and with a model
        stage()
        for change in changes:
            booster.set_param(*change)
        restored = gb.Booster()
        restored.load_config(booster.save_config())
        for each in (booster, restored, booster.copy(), pickle.loads(pickle.dumps(booster))):
            assert each.params == gb.Booster(expected).params


def test_a_refused_change_changes_nothing():
    X, y, _ = make_table("reg:squarederror")
    data, classes = gb.DMatrix(X, y), gb.train({"objective": "binary:logistic", "scale_pos_weight": 2}, gb.DMatrix(X, y > 0.8), 1)
    booster = gb.train({"max_depth": 3, "objective": "reg:squarederror"}, data, 1)
    config = booster.save_config()
    for refused in (
        lambda: booster.set_param({"seed": 1, "objective": "binary:logistic"}),
        lambda: booster.set_param({"seed": 1, "num_class": 3}),
        lambda: booster.set_param({"seed": 1, "max_depth": -1}),
        lambda: booster.set_param({"seed": 1, "max_dept": 1}),
        lambda: booster.load_config(classes.save_config()),
        lambda: booster.load_model(model_bytes(classes)),
    ):
        with pytest.raises(ValueError, match="objective|num_class|max_depth"):
            refused()
        assert booster.save_config() == config
    booster.update(data)
    assert model_bytes(booster) == model_bytes(gb.train({"max_depth": 3}, data, 2))


def test_a_booster_loads_one_model_after_another():
    tables = {name: make_table(name)[:2] for name in PARAMS}
    models = {name: gb.train(PARAMS[name], gb.DMatrix(*table), 1) for name, table in tables.items()}
    booster = gb.Booster({"max_depth": 2})
    for name in [*PARAMS, *reversed(PARAMS)]:
        booster.load_model(model_bytes(models[name]))
        X, _ = tables[name]
        np.testing.assert_array_equal(booster.predict(gb.DMatrix(X)), models[name].predict(gb.DMatrix(X)))
        assert booster.params.objective == name and booster.params.max_depth == 2


@pytest.mark.parametrize(
    "given", [{"num_class": 3}, {"num_class": 3, "objective": None}, {"num_class": "2"}, {"num_class": 1}, {}]
)
@pytest.mark.filterwarnings("ignore:the first round split no node")
def test_classes_without_an_objective_are_those_of_xgboost(given):
    xgboost = pytest.importorskip("xgboost")
    X, y = np.eye(6), np.arange(6) % 2
    booster, theirs = gb.train(given, gb.DMatrix(X, y), 1), xgboost.train(given, xgboost.DMatrix(X, y), 1)
    expected = json.loads(theirs.save_raw("json"))["learner"]["objective"]["name"]
    assert [booster.model.objective, booster.params.objective, booster.copy().params.objective] == [expected] * 3
    later = gb.Booster({"objective": "multi:softprob", "num_class": 2})
    later.set_param(given)
    assert later.params.objective == ("multi:softprob" if "objective" not in given else expected)


def test_no_classes_may_be_written_as_one_class():
    X, y, _ = make_table("reg:squarederror")
    booster = gb.train({"num_class": 1}, gb.DMatrix(X, y), 1)
    booster.set_param("eta", 0.1)
    assert pickle.loads(pickle.dumps(booster)).params == booster.params


def test_an_interrupt_in_any_line_of_taking_a_round_leaves_whole_rounds():
    X, y, _ = make_table("multi:softprob")
    model = gb.train(PARAMS["multi:softprob"], gb.DMatrix(X, y), 2).model
    trees, n_lines, stop_at = model.trees[3:], 0, 1

    def trace(frame, event, argument):
        nonlocal n_lines
        if frame.f_code is not Model.add_round.__code__:
            return None
        n_lines += event == "line"
        if n_lines == stop_at:
            raise KeyboardInterrupt
        return trace

    while n_lines >= stop_at - 1:
        part, n_lines, before = model.rounds(0, 1), 0, sys.gettrace()
        sys.settrace(trace)
        try:
            part.add_round(trees, [0, 1, 2])
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(before)
        assert part == model.rounds(0, part.n_rounds)
        stop_at += 1
    assert stop_at > 3 and part.n_rounds == 2  # the last one came too late


def test_equal_digest_after_either_format_whatever_the_weights():
    X, y, w = make_table("binary:logistic")
    booster = gb.train(PARAMS["binary:logistic"], gb.DMatrix(X, y, weight=w / 3), 3)
    for raw_format in ("json", "ubj"):
        assert digest(gb.Booster(model_file=bytes(booster.save_raw(raw_format))).model) == digest(booster.model)


def test_config_must_fit_the_model():
    X, y, _ = make_table("binary:logistic")
    data = gb.DMatrix(X, y)
    booster = gb.train(PARAMS["binary:logistic"], data, 1)
    booster.load_config(gb.Booster({"max_depth": 1}).save_config())
    booster.update(data)
    assert booster.model.trees[-1].n_nodes == 3 and booster.params.objective == "binary:logistic"
    with pytest.raises(ValueError, match="but the model was trained with"):
        booster.load_config(gb.Booster({"objective": "reg:squarederror"}).save_config())
    for config in ("", "[]", '{"learner": {}}', '{"params": 3}'):
        with pytest.raises(ValueError, match="config must be a string from gpuboost's save_config"):
            booster.load_config(config)
    assert booster.params.max_depth == 1


# -- What the model has learnt ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=[None, ["age", "b", "c", "d e"]])
def peers(request):
    """A Booster, and XGBoost's on the same model file."""
    xgboost = pytest.importorskip("xgboost", minversion="3.1")
    X, y, _ = make_table("multi:softprob")
    types = None if request.param is None else ["int", "q", "float", "q"]
    # Without missing values, which are parted from all integers at 3.4e38: XGBoost writes that as −2147483648.
    X[:, 0] = np.nan_to_num(np.round(10 * X[:, 0]))
    data = gb.DMatrix(X, y, feature_names=request.param, feature_types=types)
    booster = gb.train({**PARAMS["multi:softprob"], "max_depth": 4}, data, 4)
    return booster, xgboost.Booster(model_file=booster.save_raw("json"))


@pytest.fixture
def feature_map(tmp_path):
    path = tmp_path / "features.txt"
    path.write_text("0 first int\n1 second q\n2 third q\n3 fourth float\n")
    return path


@pytest.mark.parametrize("kind", ["weight", "gain", "cover", "total_gain", "total_cover"])
def test_scores_are_those_of_xgboost(peers, feature_map, kind):
    for fmap in ("", feature_map):
        ours, theirs = (booster.get_score(fmap, importance_type=kind) for booster in peers)
        assert list(ours) == list(theirs)
        # XGBoost sums in float32
        np.testing.assert_allclose(list(ours.values()), list(theirs.values()), rtol=1e-5)
    assert peers[0].get_fscore() == peers[1].get_fscore()


def test_a_file_that_claims_many_columns_takes_no_memory_for_them(tmp_path):
    X, y, _ = make_table("reg:squarederror")
    booster = gb.train({}, gb.DMatrix(X, y), 2)
    document = json.loads(model_bytes(booster))
    document["learner"]["learner_model_param"]["num_feature"] = str(2**31 - 1)
    wide = gb.Booster(model_file=json.dumps(document).encode())
    tracemalloc.start()
    for kind in ("weight", "gain", "total_cover"):
        assert wide.get_score(importance_type=kind) == booster.get_score(importance_type=kind)
    for dump_format in ("text", "json", "dot"):
        assert wide.get_dump(dump_format=dump_format) == booster.get_dump(dump_format=dump_format)
    assert np.array_equal(*(b.get_split_value_histogram("f1", as_pandas=False) for b in (wide, booster)))
    with pytest.warns(UserWarning, match="no feature 'f2147483647'. It has f0, f1, f2, f3, f4, f5, f6, f7 ..."):
        wide.get_split_value_histogram("f2147483647")
    for predict in (lambda: wide.predict(gb.DMatrix(X)), lambda: wide.inplace_predict(X)):
        with pytest.raises(ValueError, match="data has 4 columns, but the model was trained on 2147483647"):
            predict()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2**24  # bytes


def test_scores_leave_out_features_without_split():
    X, y, _ = make_table("reg:squarederror")
    X[:, 2] = 1.0
    booster = gb.train({}, gb.DMatrix(X, y), 2)
    assert set(booster.get_score()) == {"f0", "f1", "f3"}
    with pytest.raises(ValueError, match="importance_type must be .*total_cover, got 'size'"):
        booster.get_score(importance_type="size")


def test_tables_of_nodes_are_those_of_xgboost(peers, feature_map):
    pytest.importorskip("pandas")
    for fmap in ("", feature_map) if xgboost_before(3, 4) else ("",):  # later ones ignore it
        ours, theirs = (booster.trees_to_dataframe(fmap) for booster in peers)
        # XGBoost's reader of JSON may miss the last bit of a float32, here of a cover
        assert_same_nodes(ours, theirs, rtol=2e-7)


def test_indicators_have_no_thresholds(peers, tmp_path):
    pytest.importorskip("pandas")
    (tmp_path / "f.txt").write_text("0 a i\n1 b i\n2 c q\n3 d i\n")
    ours = peers[0].trees_to_dataframe(tmp_path / "f.txt")
    splits = ours[ours.Feature != "Leaf"]
    assert (splits.Split.notna() == (splits.Feature == "c")).all() and 0 < (splits.Feature == "c").sum() < len(splits)


def test_tables_of_indicators_are_those_of_xgboost():
    xgboost = pytest.importorskip("xgboost", minversion="3.4")  # which had none before
    rng = np.random.default_rng(0)
    X = rng.integers(0, 2, (300, 3)).astype(np.float32)
    X[rng.random(X.shape) < 0.2] = np.nan
    data = xgboost.DMatrix(X, rng.random(300) + np.nan_to_num(X[:, 0] * X[:, 1], nan=0.3), feature_types=["i", "i", "q"])
    peer = xgboost.train({"max_depth": 3}, data, 3)
    frames = [gb.Booster(model_file=bytes(peer.save_raw())).trees_to_dataframe(), peer.trees_to_dataframe()]
    assert frames[0].Split.isna().sum() > (frames[0].Feature == "Leaf").sum()
    assert_same_nodes(*frames, rtol=2e-7)


@pytest.mark.parametrize("bins", [None, 3, 1000])
def test_histograms_of_thresholds_are_those_of_xgboost(peers, bins):
    pd = pytest.importorskip("pandas")
    for feature in (peers[0].feature_names or ["f0", "f1", "f2", "f3"])[1:]:  # of integers XGBoost counts rounded thresholds
        ours, theirs = (booster.get_split_value_histogram(feature, bins=bins) for booster in peers)
        pd.testing.assert_frame_equal(ours, theirs, rtol=1e-6)
        np.testing.assert_array_equal(peers[0].get_split_value_histogram(feature, bins=bins, as_pandas=False), ours)
    with pytest.warns(UserWarning, match="the model has no feature 'height'"):
        assert peers[0].get_split_value_histogram("height").shape == (0, 2)
    assert peers[1].get_split_value_histogram("height").shape == (0, 2)


@pytest.mark.parametrize("dump_format", ["text", "json", "dot"])
def test_dumps_with_a_feature_map_are_those_of_xgboost(peers, feature_map, tmp_path, dump_format):
    ours, theirs = (booster.get_dump(feature_map, dump_format=dump_format) for booster in peers)
    assert ours == theirs
    if dump_format != "dot":  # XGBoost puts headings between graphs, which no reader of DOT takes
        for name, booster in zip(("ours", "theirs"), peers):
            booster.dump_model(tmp_path / name, feature_map, dump_format=dump_format)
        assert (tmp_path / "ours").read_text() == (tmp_path / "theirs").read_text()


# -- Arguments of train -----------------------------------------------------------------------------------------------


def test_what_train_cannot_use_is_refused():
    X, y, _ = make_table("reg:squarederror")
    data = gb.DMatrix(X, y)
    for arguments, message in (
        ({"num_boost_round": 2.0}, "num_boost_round must be an integer, got 2.0"),
        ({"callbacks": [print]}, "callbacks must hold instances of TrainingCallback"),
        ({"callbacks": [gb.callback.TrainingCallback]}, "callbacks must hold instances of TrainingCallback"),
        ({"obj": "reg:squarederror"}, "obj must be a function, got 'reg:squarederror'"),
        ({"custom_metric": "rmse"}, "custom_metric must be a function, got 'rmse'"),
        ({"evals_result": []}, "evals_result must be a dict"),
    ):
        with pytest.raises(TypeError, match=message):
            gb.train({}, data, **arguments)
    with pytest.raises(ValueError, match="the names of evals must differ, but 'a' is there twice"):
        gb.train({}, data, evals=[(data, "a"), (data, "a")])
    with pytest.raises(ValueError, match="num_class=3, but reg:squarederror has no classes"):
        gb.train({"objective": "reg:squarederror", "num_class": 3}, data)
    assert gb.train({"num_class": 1}, data, np.int64(1)).num_boosted_rounds() == 1


@pytest.mark.parametrize(
    "options", [{}, {"objective": "binary:logistic"}, {"objective": "multi:softprob", "num_class": 3}], ids=str
)
def test_a_base_score_given_to_a_model_is_what_its_rounds_add_to_as_in_xgboost(options):
    xgboost = pytest.importorskip("xgboost")
    rng = np.random.default_rng(8)
    X = rng.integers(0, 9, (80, 3)).astype(np.float32)
    y = rng.integers(0, options.get("num_class", 2), 80)
    params, given = {"max_depth": 2, "nthread": 1, **options}, {"base_score": 0.75}
    data, theirs = gb.DMatrix(X, y), xgboost.DMatrix(X, y, nthread=1)
    first = xgboost.train(params, theirs, 2)
    raw = first.save_raw("json")
    ours = gb.Booster(params, model_file=bytes(raw))
    for model in (ours, bytes(raw)):
        continued = gb.train({**params, **given}, data, 2, xgb_model=model, verbose_eval=False)
        peer = xgboost.train({**params, **given}, theirs, 2, xgb_model=bytearray(raw))
        np.testing.assert_allclose(continued.predict(data), peer.predict(theirs), rtol=1e-3)  # 16-bit gradients
    expected = ours.predict(data, output_margin=True)
    np.testing.assert_allclose(expected, first.predict(theirs, output_margin=True), rtol=1e-6)
    ours.set_param(given)
    first.set_param(given)
    np.testing.assert_allclose(ours.predict(data), first.predict(xgboost.DMatrix(X, nthread=1)), rtol=1e-5)  # others it keeps
    ours.load_model(bytes(raw))  # says what its rounds add to
    np.testing.assert_array_equal(ours.predict(data, output_margin=True), expected)
    new, theirs_new = gb.Booster({**params, **given}), xgboost.Booster({**params, **given})
    new.load_model(bytes(raw))
    theirs_new.load_model(bytearray(raw))
    np.testing.assert_allclose(new.predict(data), theirs_new.predict(theirs), rtol=1e-5)
    with pytest.raises(ValueError, match="base_score must be one number or one per output"):
        ours.set_param("base_score", [0.1] * 5)


@pytest.mark.parametrize("change", [
    lambda booster: booster.set_param("base_score", 0.75),
    lambda booster: booster.load_config(gb.Booster({"base_score": 0.75, "nthread": 1}).save_config()),
], ids=["set_param", "load_config"])  # fmt: skip
def test_a_model_in_mid_training_has_all_rounds_where_its_base_score_changes(change):
    X = np.random.default_rng(9).normal(size=(40, 2)).astype(np.float32)
    booster, data = gb.Booster({"base_score": 0.25, "nthread": 1}), gb.DMatrix(X, X[:, 0])
    for _ in range(3):
        booster.update(data)
    change(booster)
    assert booster.num_boosted_rounds() == 3


def test_a_booster_with_a_matrix_answers_before_its_first_round():
    """As XGBoost's: base_score is all that it knows, and attributes stay for the model."""
    X, y, _ = make_table("reg:squarederror")
    data = gb.DMatrix(X, y, feature_names=[f"f{i}" for i in range(X.shape[1])])
    booster = gb.Booster({"base_score": 0.5}, [data])
    booster.set_attr(run="7", gone="x")
    booster.set_attr(gone=None)
    rmse = float(booster.eval(data, "t").split(":")[1])
    assert rmse == pytest.approx(np.sqrt(np.mean((y - 0.5) ** 2)), rel=1e-6)
    assert booster.num_features() == X.shape[1] and booster.feature_names == data.feature_names and booster.get_dump() == []
    assert booster.predict(data).tolist() == [0.5] * len(y)
    assert gb.Booster({"booster": "gblinear"}, [data]).eval(data).startswith("[0]\teval-rmse:")
    for ask in (booster.save_raw, lambda: booster[:], lambda: setattr(booster, "feature_names", data.feature_names)):
        with pytest.raises(gb.NotFittedError):  # a training would go on from base_score, which it is to estimate
            ask()
    for other in (pickle.loads(pickle.dumps(booster)), booster.copy(), gb.Booster(model_file=booster), booster):
        assert other.attributes() == {"run": "7"} and other.attr("run") == "7"
        other.update(data, 0)
        assert other.attributes() == {"run": "7"} and other.num_boosted_rounds() == 1
    alike = gb.Booster({}, [data])
    alike.eval(data)
    alike.update(data, 0)
    assert digest(alike.model) == digest(gb.train({}, data, 1).model)  # nothing of what was shown stays
    booster.load_model(gb.train({}, data, 1).save_raw())
    assert booster.attributes() == {}
    assert gb.Booster().attributes() == {}
    alone = gb.Booster({}, [gb.DMatrix(X, y)])  # nobody holds the matrix
    with pytest.raises(gb.NotFittedError, match="no model yet"):
        alone.get_dump()


def test_what_somebody_has_hung_on_a_booster_is_pickled_and_copied():
    booster = gb.Booster({"max_depth": 2})
    booster.note = {"of": "mine"}
    for other in (pickle.loads(pickle.dumps(booster)), booster.copy(), copy.deepcopy(booster), gb.Booster(model_file=booster)):
        assert other.note == {"of": "mine"} and other.params.max_depth == 2


def test_a_parameter_without_its_value_is_refused():
    booster = gb.Booster({"eta": 0.1})
    with pytest.raises(ValueError, match=r"set_param\('eta'\) lacks the value"):
        booster.set_param("eta")
    assert booster.params.learning_rate == 0.1
    booster.set_param("eta", None)
    assert booster.params.learning_rate == gb.Booster().params.learning_rate


def test_config_shows_base_score_as_a_list():
    for base_score, shown in ((0.25, [0.25]), (None, [0.5])):
        text = gb.Booster({"base_score": base_score}).save_config()
        assert json.loads(json.loads(text)["learner"]["learner_model_param"]["base_score"]) == shown
