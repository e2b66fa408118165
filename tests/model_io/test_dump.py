"""Dumps of trees, against a tree written by hand and against XGBoost's."""

import json

import pytest
from random_models import random_model
from test_schema import stump

from gpuboost.model_io import dump_trees, dumps
from gpuboost.model_io.dump import join_dump, read_feature_map

STYLE = json.dumps({
    "graph_attrs": {"rankdir": "LR"}, "edge": {"no_color": "#111111"}, "condition_node_params": {"shape": "box"},
    "leaf_node_params": {"shape": "box", "style": "filled"},
})  # fmt: skip


def test_stump_as_text():
    assert dump_trees(stump(), with_stats=True, feature_names=["age"]) == [
        "0:[age<1.5] yes=1,no=2,missing=1,gain=4,cover=10\n\t1:leaf=-2,cover=4\n\t2:leaf=3,cover=6\n"
    ]


def test_stump_as_json():
    assert json.loads(dump_trees(stump(), "json")[0]) == {
        "nodeid": 0,
        "depth": 0,
        "split": "f0",
        "split_condition": 1.5,
        "yes": 1,
        "no": 2,
        "missing": 1,
        "children": [{"nodeid": 1, "leaf": -2}, {"nodeid": 2, "leaf": 3}],
    }


COLOURS = ["red", "green", 'b"l,ue', *"defghijk"]


@pytest.mark.parametrize(
    "threshold, is_left, text",
    [
        (0.5, 1, "in {red}"),
        (2.5, 3, 'in {red, green, b\\"l,ue}'),
        (9.5, 10, "not in {k}"),
        (4.5, 5, 'in {red, green, b\\"l,ue, d, e}'),
        (-1.0, 0, "in {}"),  # only missing values go left
        (1e9, 11, 'in {red, green, b\\"l,ue, d, e, f, 5 more}'),  # all but they do
    ],
)
def test_categories_are_named_on_the_side_that_has_fewer(threshold, is_left, text):
    model = stump()
    model.feature_names, model.feature_types, model.categories = ["colour"], ["c"], {"colour": COLOURS}
    model.trees[0].threshold[0] = threshold
    assert dump_trees(model)[0].startswith(f"0:[colour {text}] yes=1,no=2,missing=1\n")
    assert f'label="colour {text}"' in dump_trees(model, "dot")[0]
    node = json.loads(dump_trees(model, "json", feature_names=["shade"])[0])
    assert (node["split"], node["split_condition"]) == ("shade", COLOURS[:is_left])


def test_infinite_threshold_is_json_that_python_reads():
    model = stump()
    for infinity in (float("inf"), float("-inf")):
        model.trees[0].threshold[0] = infinity
        assert json.loads(dump_trees(model, "json", feature_types=["int"])[0])["split_condition"] == infinity


@pytest.mark.parametrize("types", [None, ["q", "float", "int", "i"], ["i", "i", "int", "int"]])
@pytest.mark.parametrize("with_stats", [False, True])
@pytest.mark.parametrize("dump_format", ["text", "json", "dot", f"dot:{STYLE}"])
def test_dump_is_the_text_that_xgboost_writes(dump_format, with_stats, types):
    xgboost = pytest.importorskip("xgboost", minversion="3.1")
    for seed in range(5):
        model = random_model(seed, n_leaves=12)
        model.feature_types, model.feature_names = types, ["a", 'b"q\\', "é x", "d\n"] if seed % 2 else None
        booster = xgboost.Booster(model_file=bytearray(dumps(model)))
        ours, theirs = dump_trees(model, dump_format, with_stats), booster.get_dump("", with_stats, dump_format)
        if types and dump_format == "text":  # XGBoost does not indent the splits of indicators
            ours, theirs = ([text.replace("\t", "") for text in texts] for texts in (ours, theirs))
        assert ours == theirs


def test_unknown_format_and_wrong_names_are_refused():
    for style in ("x", "[]", '{"edge": 1}'):
        with pytest.raises(ValueError, match="the style after 'dot:' must be a JSON object of objects"):
            dump_trees(stump(), f"dot:{style}")
    with pytest.raises(ValueError, match="the style after 'dot:' has no part 'colour'"):
        dump_trees(stump(), 'dot:{"colour": {}}')
    with pytest.raises(ValueError, match="dump_format must be 'text', 'json' or 'dot', got 'yaml'"):
        dump_trees(stump(), "yaml")
    with pytest.raises(ValueError, match="feature_names must have one entry for each of 1 features, got 2"):
        dump_trees(stump(), feature_names=["a", "b"])


def test_dumps_of_several_trees_are_one_file():
    assert join_dump(["0:leaf=1\n", "0:leaf=2\n"], "text") == "booster[0]:\n0:leaf=1\nbooster[1]:\n0:leaf=2\n"
    assert json.loads(join_dump(["{}", "{}"], "json")) == [{}, {}]
    assert join_dump(["digraph {\n}", "digraph {\n}"], "dot") == "digraph {\n}\ndigraph {\n}"


def test_feature_map_gives_names_and_types(tmp_path):
    path = tmp_path / "features.txt"
    path.write_text("0 age int\n1\tweight q\n\n2 is_new i\n", encoding="utf-8")
    assert read_feature_map(path) == (["age", "weight", "is_new"], ["int", "q", "i"])


@pytest.mark.parametrize("text", ["1 age q", "0 age z", "0 age", "0 net income q", "x"])
def test_malformed_feature_map_is_refused_naming_the_line(tmp_path, text):
    path = tmp_path / "features.txt"
    path.write_text(text)
    with pytest.raises(ValueError, match="line 1 of feature map .* must be '0 name type'"):
        read_feature_map(path)
