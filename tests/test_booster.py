"""Booster: what a model predicts, its parts and copies, and how columns are matched."""

import numpy as np
import pytest
from small_tables import PARAMS, make_table, model_bytes

import gpuboost as gb


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


def test_shapes_of_predictions():
    X, y, _ = make_table("multi:softprob")
    data = gb.DMatrix(X, y)
    multi = gb.train(PARAMS["multi:softprob"], data, 2)
    assert multi.predict(data).shape == (400, 3)
    assert multi.predict(data, pred_leaf=True).shape == (400, 6)
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


# -- Columns ----------------------------------------------------------------------------------------------------------


def test_columns_are_matched_by_name():
    pd = pytest.importorskip("pandas")
    X, y, _ = make_table("reg:squarederror")
    frame = pd.DataFrame(X, columns=list("abcd"))
    booster = gb.train({}, gb.DMatrix(frame, y), 3)
    permuted = frame[list("dbca")]
    expected = booster.predict(gb.DMatrix(frame))
    np.testing.assert_array_equal(booster.predict(gb.DMatrix(permuted)), expected)
    np.testing.assert_array_equal(booster.predict(gb.DMatrix(X)), expected)
    with pytest.raises(ValueError, match='lacks "d" and has the unknown "e"'):
        booster.predict(gb.DMatrix(frame.rename(columns={"d": "e"})))
    with pytest.raises(ValueError, match="3 columns, but the model was trained on 4"):
        booster.predict(gb.DMatrix(X[:, :3]))


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
