"""Dumps of trees, against a tree written by hand and against XGBoost's."""

import json

import pytest
from random_models import random_model
from test_schema import stump

from gpuboost.model_io import dump_trees, dumps


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


def test_infinite_threshold_is_json_that_python_reads():
    model = stump()
    for infinity in (float("inf"), float("-inf")):
        model.trees[0].threshold[0] = infinity
        assert json.loads(dump_trees(model, "json", feature_types=["int"])[0])["split_condition"] == infinity


@pytest.mark.parametrize("types", [None, ["q", "float", "int", "i"], ["i", "i", "int", "int"]])
@pytest.mark.parametrize("with_stats", [False, True])
@pytest.mark.parametrize("dump_format", ["text", "json"])
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
    with pytest.raises(NotImplementedError, match="dot"):
        dump_trees(stump(), "dot")
    with pytest.raises(ValueError, match="dump_format must be 'text', 'json' or 'dot', got 'yaml'"):
        dump_trees(stump(), "yaml")
    with pytest.raises(ValueError, match="feature_names must have one entry for each of 1 features, got 2"):
        dump_trees(stump(), feature_names=["a", "b"])
