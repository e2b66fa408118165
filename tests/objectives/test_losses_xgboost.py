"""One round and model files of every objective, beside XGBoost's."""

import json

import numpy as np
import pytest
from objectives.losses import CASES, HINGE, params_of

import gpuboost as gb

xgboost = pytest.importorskip("xgboost")

each_case = pytest.mark.parametrize("case", [*CASES, "binary:hinge"])


def both(case, rounds):
    """Boosters of gpuboost and of XGBoost on one weighted table from one base_score, and their matrices."""
    X, label, weight = CASES.get(case, HINGE).table()
    params = {**params_of(case), "max_depth": 3, "max_bin": 512}
    ours = gb.train(params, gb.DMatrix(X, label, weight=weight), rounds)
    data = xgboost.DMatrix(X, label, weight=weight, nthread=1)
    params |= {"base_score": ours.model.base_score[0], "nthread": 1}
    return ours, xgboost.train(params, data, rounds), gb.DMatrix(X), data


@each_case
def test_one_round_is_xgboosts(case):
    ours, theirs, data, their_data = both(case, 1)
    # of 20 bits that gradients keep, and of float32 sums of XGBoost's hist
    expected = theirs.predict(their_data, output_margin=True)
    np.testing.assert_allclose(ours.predict(data, output_margin=True), expected, rtol=5e-6, atol=2e-6)
    assert len(np.unique(expected)) > 3


@pytest.mark.sweep(13)
@each_case
@pytest.mark.parametrize("raw_format", ["json", "ubj"])
def test_files_are_exchanged_both_ways(case, raw_format):
    ours, theirs, data, their_data = both(case, 5)
    for margin in (True, False):
        kept = {"rtol": 2e-6, "atol": 1e-6}  # exp differs in its last bits
        read = xgboost.Booster(model_file=ours.save_raw(raw_format))
        expected = ours.predict(data, output_margin=margin)
        np.testing.assert_allclose(read.predict(their_data, output_margin=margin), expected, **kept)
        read = gb.Booster(model_file=bytes(theirs.save_raw(raw_format)))
        expected = theirs.predict(their_data, output_margin=margin)
        np.testing.assert_allclose(read.predict(data, output_margin=margin), expected, **kept)
        np.testing.assert_array_equal(read.inplace_predict(data.get_data(), predict_type="margin" if margin else "value"),
                                      read.predict(data, output_margin=margin))  # fmt: skip


@each_case
def test_training_goes_on_with_what_xgboosts_file_records(case):
    _, theirs, _, _ = both(case, 2)
    X, label, weight = CASES.get(case, HINGE).table()
    data, file = gb.DMatrix(X, label, weight=weight), bytes(theirs.save_raw("json"))
    recorded, given = (gb.train({"max_depth": 3, **more}, data, 1, xgb_model=file) for more in ({}, params_of(case)))
    margins = [booster.predict(gb.DMatrix(X), output_margin=True) for booster in (recorded, given)]
    np.testing.assert_allclose(*margins, rtol=1e-6, atol=1e-6)  # XGBoost writes 0.7 as 0.699999988
    assert recorded.params.objective == theirs_name(theirs) == given.params.objective


def theirs_name(booster):
    return json.loads(booster.save_config())["learner"]["objective"]["name"]
