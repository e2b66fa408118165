"""What differs between the versions of XGBoost that tests compare with."""

import json

import numpy as np


def xgboost_before(*version):
    """Whether the XGBoost that is installed is older, as (3, 4)."""
    import xgboost

    return tuple(int(part) for part in xgboost.__version__.split(".")[:2]) < version


def assert_same_nodes(ours, theirs, rtol):
    """Two tables of trees_to_dataframe. Before 3.4 XGBoost's has no outputs, and other kinds of columns."""
    import pandas

    if xgboost_before(3, 4):
        ours, theirs = (frame.astype(object).where(frame.notna(), None) for frame in (ours.drop(columns="Target"), theirs))
    pandas.testing.assert_frame_equal(ours, theirs, rtol=rtol)


def tree_weights(booster):
    """Of an xgboost.Booster trained with dropout, whose file from 3.4 on is that of ordinary trees, with weights."""
    document = json.loads(booster.save_raw("json"))["learner"]["gradient_booster"]
    return np.float32(document["weight_drop"] if document["name"] == "dart" else document["model"]["weight_drop"])
