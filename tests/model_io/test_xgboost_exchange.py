"""XGBoost loads our files and we load XGBoost's, with the same predictions."""

import itertools
import json
import math

import numpy as np
import pytest
from peer_versions import assert_same_nodes, tree_weights
from random_models import plain_margins, random_model, random_table

import gpuboost as gb
from gpuboost.model.model import Model
from gpuboost.model_io import dumps, load_model, to_document
from gpuboost.model_io.ubjson import read_ubjson, write_ubjson

xgboost = pytest.importorskip("xgboost", minversion="3.1")


def booster_of(model: Model, raw_format: str = "json"):
    return xgboost.Booster(model_file=bytearray(dumps(model, raw_format)))


def xgboost_margins(booster, table: np.ndarray) -> np.ndarray:
    margins = booster.predict(xgboost.DMatrix(table, feature_names=booster.feature_names), output_margin=True)
    return margins.reshape(len(table), -1)


def base_margins(model: Model) -> np.ndarray:
    """base_score lies in the output space of one-output objectives, and is a margin for multi: ones."""
    base = np.array(model.base_score, np.float32)
    return np.array([-math.log(1 / p - 1) for p in base.tolist()], np.float32) if model.objective == "binary:logistic" else base


@pytest.mark.parametrize("raw_format", ["json", "ubj"])
@pytest.mark.parametrize("objective", ["reg:squarederror", "binary:logistic", "multi:softprob", "multi:softmax"])
def test_xgboost_predicts_our_file_as_the_trees_say(objective, raw_format):
    for seed in range(5):
        model, table = random_model(seed, objective=objective), random_table(seed)
        ours, theirs = plain_margins(model, table, base_margins(model)), xgboost_margins(booster_of(model, raw_format), table)
        np.testing.assert_allclose(theirs, ours, rtol=0, atol=1e-6)  # XGBoost adds the base last, and its float32 logit


def test_without_a_base_the_margins_are_equal_bit_for_bit():
    model, table = random_model(0, n_rounds=20), random_table(0)
    model.base_score = (0.0,)
    np.testing.assert_array_equal(xgboost_margins(booster_of(model), table), plain_margins(model, table, np.float32(0)))


def test_one_margin_a_class_is_the_base_of_a_softmax():
    priors = (0.6, 0.3, 0.1)
    model = random_model(0, objective="multi:softprob", n_rounds=0)
    model.base_score = tuple(math.log(p) for p in priors)
    prediction = booster_of(model).predict(xgboost.DMatrix(random_table(0)))
    np.testing.assert_allclose(prediction, np.tile(priors, (50, 1)), rtol=1e-6)  # float32 exp and its sum


@pytest.mark.parametrize("n_rounds", [0, 2])
def test_base_score_survives_further_training_in_xgboost(n_rounds):
    model, table = random_model(0, objective="binary:logistic", n_rounds=n_rounds), random_table(0)
    data = xgboost.DMatrix(table, np.arange(50) % 2)
    trained = xgboost.train({"objective": "binary:logistic"}, data, 1, xgb_model=booster_of(model))
    assert load_model(trained.save_raw("json")).base_score == model.base_score


def random_codes(seed: int, n_samples: int = 50, n_features: int = 4) -> np.ndarray:
    """float32 (n_samples, n_features): categories, some beyond those of any set, and missing values."""
    rng = np.random.default_rng(seed)
    table = rng.integers(0, 50, (n_samples, n_features)).astype(np.float32)
    table[rng.random(table.shape) < 0.25] = np.nan
    return table


@pytest.mark.parametrize("raw_format", ["json", "ubj"])
def test_sets_of_categories_send_rows_the_same_way_in_both(raw_format):
    for seed in range(5):
        model, table = random_model(seed, n_rounds=10, has_sets=True), random_codes(seed)
        model.base_score = (0.0,)
        table[0] = -1, 2**24, 2**24 - 2, 2.5  # no categories, and a fraction
        theirs, expected = booster_of(model, raw_format), plain_margins(model, table, np.float32(0))[:, 0]
        ours = gb.Booster(model_file=bytes(theirs.save_raw(raw_format)))
        assert ours.model == model
        np.testing.assert_array_equal(xgboost_margins(theirs, table)[:, 0], expected)
        for prediction in (ours.predict(gb.DMatrix(table)), ours.inplace_predict(table), ours.inplace_predict(table[:1])):
            np.testing.assert_array_equal(prediction, expected[: len(prediction)])


def categorical_booster(params):
    """A model of XGBoost's with sets of categories, and the table that it was trained on."""
    rng = np.random.default_rng(0)
    table = np.column_stack([rng.integers(0, 40, 500), rng.integers(0, 3, 500), rng.normal(size=500)]).astype(np.float32)
    label = np.sin(7 * table[:, 0]) + table[:, 1] + table[:, 2]
    table[rng.random(table.shape) < 0.1] = np.nan
    data = xgboost.DMatrix(table, label, feature_types=["c", "c", "q"], enable_categorical=True)
    return xgboost.train({"max_depth": 4} | params, data, 5), table


@pytest.mark.parametrize("params", [
    {"max_cat_to_onehot": 1}, {"max_cat_to_onehot": 100}, {"tree_method": "approx"},
    {"grow_policy": "lossguide", "max_leaves": 9},
], ids=["sets", "one-hot", "approx", "lossguide"])  # fmt: skip
def test_xgboosts_splits_by_category_are_read(params):
    booster, table = categorical_booster(params)
    data = xgboost.DMatrix(table, feature_types=["c", "c", "q"], enable_categorical=True)
    for raw_format in ("json", "ubj"):
        ours = gb.Booster(model_file=bytes(booster.save_raw(raw_format)))
        assert any(tree.sets is not None for tree in ours.model.trees)
        np.testing.assert_allclose(ours.predict(gb.DMatrix(table)), booster.predict(data), rtol=2e-6, atol=1e-6)  # the base last
        np.testing.assert_array_equal(ours.predict(gb.DMatrix(table), pred_leaf=True), booster.predict(data, pred_leaf=True))
        again = xgboost.Booster(model_file=bytearray(ours.save_raw(raw_format)))
        np.testing.assert_array_equal(again.predict(data), booster.predict(data))


def test_dumps_show_sets_of_codes_as_xgboost_does():
    booster, _ = categorical_booster({})
    ours = gb.Booster(model_file=bytes(booster.save_raw("json")))
    for dump_format in ("text", "json", "dot"):
        for with_stats in (False, True) if dump_format != "dot" else (True,):  # XGBoost 3.2 draws them without, too, at sets
            dumps = [x.get_dump(with_stats=with_stats, dump_format=dump_format) for x in (ours, booster)]
            assert dumps[0] == dumps[1]
    pytest.importorskip("pandas")
    theirs = booster.trees_to_dataframe()
    theirs["Category"] = [[int(code) for code in x] if isinstance(x, list) else x for x in theirs["Category"]]  # 3.2: text
    assert_same_nodes(ours.trees_to_dataframe(), theirs, rtol=1e-6)


def test_categories_of_a_frame_are_known_by_name_after_loading():
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    frame = pandas.DataFrame({
        "colour": pandas.Categorical(rng.choice(["red", "blue", "grey"], 300)),
        "size": pandas.Categorical(rng.choice([10, 7, 20], 300)),
        "x": rng.normal(size=300),
    })
    label = (frame["colour"] == "red") * 2.0 + frame["size"].astype(float) + frame["x"]
    booster = xgboost.train({"max_depth": 3}, xgboost.DMatrix(frame, label, enable_categorical=True), 5)
    ours = gb.Booster(model_file=bytes(booster.save_raw("json")))
    assert ours.model.categories == {"colour": ["blue", "grey", "red"], "size": [7, 10, 20]}
    expected = booster.predict(xgboost.DMatrix(frame, enable_categorical=True))
    np.testing.assert_allclose(ours.predict(gb.DMatrix(frame)), expected, rtol=2e-6, atol=1e-6)
    other = frame.assign(colour=frame["colour"].cat.reorder_categories(["grey", "red", "blue"]))
    np.testing.assert_array_equal(ours.predict(gb.DMatrix(other)), ours.predict(gb.DMatrix(frame)))
    assert "colour in {" in ours.get_dump()[0] or "colour not in {" in ours.get_dump()[0]


def test_codes_of_a_binned_matrix_do_not_tell_categories_apart():
    booster, table = categorical_booster({})
    ours = gb.Booster(model_file=bytes(booster.save_raw("json")))
    with pytest.raises(ValueError, match="set of categories"):
        ours.predict(gb.QuantileDMatrix(table))


@pytest.mark.parametrize("back", ["json", "ubj"])
@pytest.mark.parametrize("there", ["json", "ubj"])
def test_our_file_comes_back_from_xgboost_unchanged(there, back):
    model = random_model(0, objective="multi:softprob")
    model.feature_names, model.feature_types = ["a", 'b"q\\', "é 中", "d\n"], ["q", "float", "int", "i"]
    model.categories, model.attributes = {"é 中": ["x", 'y"\\', 1, 2.5]}, {"best_iteration": "3"}
    model.base_score = (0.5, -0.25, 2.0)
    assert load_model(booster_of(model, there).save_raw(back)) == model


def test_our_ubjson_is_byte_for_byte_what_xgboost_makes_of_it():
    # XGBoost adds "cats", its own notation of base_score, and its version; all else has the same order and types.
    model = random_model(0, objective="multi:softprob")
    model.feature_names, model.attributes = ["a", "b", "é", "d"], {"best_iteration": "3"}
    document = read_ubjson(bytes(booster_of(model, "ubj").save_raw("ubj")))
    del document["learner"]["gradient_booster"]["model"]["cats"]
    document["version"], params = to_document(model)["version"], document["learner"]["learner_model_param"]
    params |= {key: to_document(model)["learner"]["learner_model_param"][key] for key in ("base_score", "boost_from_average")}
    assert write_ubjson(document) == dumps(model, "ubj")


def labels(objective: str, table: np.ndarray) -> np.ndarray:
    noise = np.random.default_rng(1).normal(size=len(table))
    signal = np.nan_to_num(table[:, 0]) + np.nan_to_num(table[:, 1], nan=1) ** 2 + noise
    if objective.startswith("multi:"):
        return np.digitize(signal, [0, 1])
    return signal > 1 if objective.startswith("binary:") else signal


@pytest.mark.parametrize("objective", ["reg:squarederror", "binary:logistic", "multi:softprob", "multi:softmax"])
@pytest.mark.parametrize(
    "params",
    [
        {"tree_method": "hist"},
        {"tree_method": "exact", "gamma": 2.0},
        {"tree_method": "hist", "grow_policy": "lossguide", "max_leaves": 9, "num_parallel_tree": 2, "subsample": 0.7},
    ],
)
def test_trees_of_xgboost_predict_as_xgboost_does(objective, params):
    table = random_table(0, n_samples=300)
    classes = {"num_class": 3} if objective.startswith("multi:") else {}
    data = xgboost.DMatrix(table, labels(objective, table))
    booster = xgboost.train({"objective": objective, "nthread": 1, **classes, **params}, data, 4)
    raw = booster.save_raw("json")
    if "gamma" in params:
        trees = json.loads(raw)["learner"]["gradient_booster"]["model"]["trees"]
        assert any(tree["tree_param"]["num_deleted"] != "0" for tree in trees)  # the case this is about
    model = load_model(raw)
    assert (model.objective, model.n_features, model.n_rounds) == (objective, 4, 4)
    assert model.num_parallel_tree == params.get("num_parallel_tree", 1)
    ours = plain_margins(model, table, base_margins(model))
    np.testing.assert_allclose(ours, xgboost_margins(booster, table), rtol=0, atol=2e-6)  # another order of float32 sums
    np.testing.assert_array_equal(xgboost_margins(booster_of(model), table), xgboost_margins(booster, table))
    assert load_model(dumps(model)) == model
    assert load_model(booster.save_raw("ubj")) == load_model(raw)


@pytest.mark.parametrize("tree_method", ["hist", "approx"])
def test_our_file_has_the_base_weights_of_xgboosts(tree_method):
    table = np.random.default_rng(0).integers(0, 4, (80, 3)).astype(np.float32)  # few values: both find the same splits
    label = np.round(64 * labels("reg:squarederror", table)) / 64
    params = {"tree_method": tree_method, "max_depth": 3, "base_score": 0, "learning_rate": 0.25}
    ours, theirs = (
        json.loads(bytes(library.train(params, library.DMatrix(table, label), 2).save_raw("json")))["learner"]["gradient_booster"]
        for library in (gb, xgboost)
    )
    for tree, peer in zip(ours["model"]["trees"], theirs["model"]["trees"], strict=True):
        assert tree["left_children"] == peer["left_children"]
        np.testing.assert_allclose(tree["base_weights"], peer["base_weights"], rtol=1e-3, atol=1e-4)  # 16-bit gradients
        is_leaf = np.array(tree["left_children"]) == -1
        for values in (tree, peer):
            assert (np.array(values["base_weights"]) == values["split_conditions"]).tolist() == is_leaf.tolist()


@pytest.mark.parametrize("raw_format", ["json", "ubj"])
def test_nodes_of_a_pruned_tree_keep_xgboosts_numbers(raw_format):
    pytest.importorskip("pandas")
    table = random_table(0, n_samples=300)
    data = xgboost.DMatrix(table, labels("reg:squarederror", table))
    peer = xgboost.train({"tree_method": "exact", "gamma": 2.0, "nthread": 1}, data, 4)
    leaves = peer.predict(data, pred_leaf=True)
    ours = gb.Booster(model_file=bytes(peer.save_raw(raw_format)))
    assert any(tree.n_deleted for tree in ours.model.trees)
    again = gb.Booster(model_file=bytes(ours.save_raw(raw_format)))
    for booster in (ours, again):
        np.testing.assert_array_equal(booster.predict(gb.DMatrix(table), pred_leaf=True), leaves)
        assert booster.get_dump(with_stats=True) == peer.get_dump(with_stats=True)
        assert_same_nodes(booster.trees_to_dataframe(), peer.trees_to_dataframe(), rtol=2e-7)  # nine digits
    theirs = xgboost.Booster(model_file=ours.save_raw(raw_format))
    np.testing.assert_array_equal(theirs.predict(data, pred_leaf=True), leaves)
    assert xgboost.train({}, data, 1, xgb_model=theirs).num_boosted_rounds() == 5


@pytest.mark.parametrize("raw_format", ["json", "ubj"])
def test_several_targets_names_and_types_of_xgboost_are_read(raw_format):
    table = random_table(0, n_samples=300)
    targets = np.column_stack([labels("reg:squarederror", table), -table[:, 2]])
    targets = np.nan_to_num(targets)
    data = xgboost.DMatrix(table, targets, feature_names=["a", "b", "é", "d"], feature_types=["float", "q", "float", "q"])
    booster = xgboost.train({"num_parallel_tree": 2, "subsample": 0.7, "seed": 1}, data, 3)
    model = load_model(booster.save_raw(raw_format))
    assert (model.n_targets, model.num_parallel_tree, model.n_rounds, len(model.trees)) == (2, 2, 3, 12)
    assert (model.feature_names, model.feature_types) == (booster.feature_names, booster.feature_types)
    ours, theirs = plain_margins(model, table, base_margins(model)), booster.predict(data, output_margin=True)
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-6)  # another order of float32 sums
    again = xgboost.Booster(model_file=bytearray(dumps(model, raw_format)))
    np.testing.assert_array_equal(again.predict(data), booster.predict(data))


@pytest.mark.parametrize("raw_format", ["json", "ubj"])
def test_dart_of_xgboost_is_read_with_its_predictions(raw_format):
    table = random_table(0, n_samples=300)
    data = xgboost.DMatrix(table, labels("reg:squarederror", table))
    booster = xgboost.train({"booster": "dart", "rate_drop": 0.5, "seed": 1}, data, 20)
    assert len(set(tree_weights(booster).tolist())) > 10
    model = load_model(booster.save_raw(raw_format))
    ours, theirs = plain_margins(model, table, base_margins(model)), xgboost_margins(booster, table)
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-6)  # another order of float32 sums


BASES = {
    "itself": {
        "reg:squarederror": [-2.0], "reg:squaredlogerror": [2.0], "reg:absoluteerror": [2.0], "reg:pseudohubererror": [2.0],
        "binary:hinge": [0.5],
    },
    "a logit": {"binary:logistic": (logits := [None, 0.0, 1e-9, 1e-6, 0.3, 1 - 1e-7, 1.0]), "reg:logistic": logits},
    "a logit already": {"binary:logitraw": [0.3], "rank:pairwise": [0.3], "rank:ndcg": [0.3], "rank:map": [0.3]},
    "a logarithm": {"count:poisson": [None, 1e-20, 1.0], "reg:gamma": [7.0], "reg:tweedie": [7.0], "survival:cox": [None, 7.0]},
}


@pytest.mark.parametrize(("objective", "base_scores"), [item for group in BASES.values() for item in group.items()])
def test_files_of_xgboost_predict_what_it_does(objective, base_scores):
    """Margins and what the link makes of them, of any objective, also one that gpuboost does not train; and of labels all of one
    class (base_score None)."""
    table = random_table(0)
    for base_score, label in itertools.product(base_scores, (0.0, 1.0)):
        data = xgboost.DMatrix(table, np.full(50, label or (1e-3 if objective in ("reg:gamma", "count:poisson") else 0)))
        peer = xgboost.train({"objective": objective, "base_score": base_score}, data, 2)
        ours = gb.Booster(model_file=bytes(peer.save_raw("json")))
        expected = peer.predict(data, output_margin=True)
        for margins in (ours.predict(gb.DMatrix(table), output_margin=True), ours.inplace_predict(table, predict_type="margin")):
            np.testing.assert_allclose(margins, expected, rtol=2e-7, atol=1e-6)  # XGBoost adds the base last
        for predict, rows in ((ours.predict, gb.DMatrix(table)), (ours.inplace_predict, table)):
            # as margins, and XGBoost's exp differs in its last bits
            np.testing.assert_allclose(predict(rows), peer.predict(data), rtol=2e-6, atol=1e-6)
        again = xgboost.Booster(model_file=ours.save_raw("json"))
        np.testing.assert_array_equal(again.predict(data, output_margin=True), expected)


@pytest.mark.parametrize("base_score", [None, 0, 1e-9, 1e-6, 0.3, 1 - 1e-7, 1])
def test_any_probability_is_a_base_score_that_means_what_it_means_to_xgboost(base_score):
    table = random_table(0)
    for label in (np.zeros(50), np.ones(50), np.arange(50) % 2):
        params = {"objective": "binary:logistic", "base_score": base_score}
        ours, theirs = (library.train(params, library.DMatrix(table, label), 0) for library in (gb, xgboost))
        if base_score is None:  # where XGBoost estimates it before the first tree
            theirs = xgboost.train({**params, "learning_rate": 0}, xgboost.DMatrix(table, label), 1)
        margins, expected = ours.predict(gb.DMatrix(table), output_margin=True), xgboost_margins(theirs, table)[:, 0]
        np.testing.assert_allclose(margins, expected, rtol=2e-7)  # an ulp of a logarithm
        loaded = xgboost.Booster(model_file=ours.save_raw("json"))
        np.testing.assert_array_equal(xgboost_margins(loaded, table)[:, 0], margins)


@pytest.mark.parametrize("objective", [None, "multi:softprob", "binary:logistic"])
def test_classes_of_a_custom_objective_in_xgboost_are_read(objective):
    table, label = random_table(0), np.arange(50) % 3

    def softmax(margin, data):
        p = np.exp(margin) / np.exp(margin).sum(axis=1, keepdims=True)
        return p - np.eye(3)[label], 2 * p * (1 - p)

    params = {"num_class": 3} | ({"objective": objective} if objective else {})
    peer = xgboost.train(params, xgboost.DMatrix(table, label), 3, obj=softmax)
    for raw_format in ("json", "ubj"):
        ours = gb.Booster(model_file=bytes(peer.save_raw(raw_format)))
        for output_margin in (True, False):
            expected = peer.predict(xgboost.DMatrix(table), output_margin=output_margin)
            prediction = ours.predict(gb.DMatrix(table), output_margin=output_margin)
            np.testing.assert_allclose(prediction, expected, rtol=1e-6)  # exp differs in its last bits


@pytest.mark.parametrize("objective", ["rank:ndcg", "reg:tweedie", "reg:quantileerror", "survival:cox"])
def test_other_objectives_keep_their_parameters(objective):
    table = random_table(0)
    data = xgboost.DMatrix(table, np.arange(50) % 2)
    extra = {"rank:ndcg": {"lambdarank_unbiased": True}, "reg:quantileerror": {"quantile_alpha": [0.1, 0.9]}}.get(objective, {})
    if objective == "rank:ndcg":
        data.set_group([25, 25])
    booster = xgboost.train({"objective": objective, **extra}, data, 2)
    for raw_format in ("json", "ubj"):
        model = load_model(booster.save_raw(raw_format))
        params = json.loads(booster.save_raw("json"))["learner"]["objective"]
        assert {"name": model.objective, **model.objective_params} == params
        np.testing.assert_array_equal(booster_of(model, raw_format).predict(data), booster.predict(data))
