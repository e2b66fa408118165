"""Treelite and, through onnxmltools, ONNX read our files with sets of categories, and predict the same."""

import numpy as np
import pytest
from random_models import plain_margins, random_model
from test_xgboost_exchange import base_margins, random_codes

import gpuboost as gb
from gpuboost.model.model import Model
from gpuboost.model_io import dumps

xgboost = pytest.importorskip("xgboost", minversion="3.1")

OBJECTIVES = ["reg:squarederror", "binary:logistic", "multi:softprob"]


def model_of_sets(seed: int, objective: str) -> Model:
    model = random_model(seed, n_rounds=10, objective=objective, has_sets=True)
    model.feature_names, model.feature_types = list("abcd"), ["c"] * 4
    model.categories = {name: [f"value {i}" for i in range(50)] for name in "abcd"}
    return model


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("raw_format", ["json", "ubj"])
def test_treelite_sends_rows_by_our_sets(objective, raw_format):
    treelite = pytest.importorskip("treelite", minversion="4.4")
    load = {"json": treelite.frontend.from_xgboost_json, "ubj": treelite.frontend.from_xgboost_ubjson}[raw_format]
    for seed in range(5):
        model, table = model_of_sets(seed, objective), random_codes(seed)
        margins = treelite.gtil.predict(load(bytearray(dumps(model, raw_format))), table, pred_margin=True)
        expected = plain_margins(model, table, base_margins(model))
        np.testing.assert_allclose(margins.reshape(50, -1), expected, rtol=0, atol=1e-6)  # the base added last


@pytest.mark.parametrize("raw_format", ["json", "ubj"])
def test_treelite_reads_leaves_of_several_outputs(raw_format):
    """onnxmltools does not: float() argument must be a string or a real number, not 'list'."""
    treelite = pytest.importorskip("treelite", minversion="4.4")
    load = {"json": treelite.frontend.from_xgboost_json, "ubj": treelite.frontend.from_xgboost_ubjson}[raw_format]
    table = np.random.default_rng(0).normal(size=(300, 4)).astype(np.float32)
    targets = np.column_stack([table[:, 0], table[:, 0] * table[:, 1], table[:, 2]])
    ours = gb.train({"multi_strategy": "multi_output_tree", "max_depth": 3}, gb.DMatrix(table, targets), 4)
    theirs = treelite.gtil.predict(load(bytearray(ours.save_raw(raw_format))), table)
    np.testing.assert_allclose(theirs.reshape(300, 3), ours.inplace_predict(table), rtol=0, atol=1e-6)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_onnx_sends_rows_by_our_sets(objective):
    """XGBoost's names of columns in place of ours: onnxmltools knows no others."""
    onnxmltools, runtime = pytest.importorskip("onnxmltools", minversion="1.14"), pytest.importorskip("onnxruntime")
    from onnxmltools.convert.common.data_types import FloatTensorType

    rng = np.random.default_rng(0)
    table = np.column_stack([rng.integers(0, 40, 400), rng.integers(0, 3, 400), rng.normal(size=400)]).astype(np.float32)
    label = np.digitize(np.sin(7 * table[:, 0]) + table[:, 1] + table[:, 2], [0.5] if "binary" in objective else [0, 1.5])
    params = {"objective": objective, "max_depth": 4, "cat_noise": 0, **({"num_class": 3} if "multi" in objective else {})}
    ours = gb.train(params, gb.DMatrix(table, label, feature_types=["c", "c", "q"]), 5)
    assert any(tree.sets is not None for tree in ours.model.trees)
    booster = xgboost.Booster(model_file=ours.save_raw("json"))
    booster.feature_names = ["f0", "f1", "f2"]
    graph = onnxmltools.convert_xgboost(booster, initial_types=[("x", FloatTensorType([None, 3]))])
    expected = ours.inplace_predict(table)
    outputs = runtime.InferenceSession(graph.SerializeToString()).run(None, {"x": table})[-1]
    np.testing.assert_allclose(outputs[:, 1] if "binary" in objective else outputs.reshape(expected.shape), expected, atol=1e-6)
