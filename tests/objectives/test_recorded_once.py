"""gpuboost/objectives: what a model records of its objective is read once, where nobody could tell."""

import numpy as np

import gpuboost as gb
from gpuboost import objectives
from gpuboost.objectives import objective_of
from gpuboost.objectives.regression import SquaredError

X = np.arange(20.0).reshape(-1, 1)


def model_of(params):
    return gb.train({"max_depth": 2, **params}, gb.DMatrix(X, X[:, 0] > 9), 1).model


def test_equal_records_are_read_once():
    kinds = [{"objective": "binary:logistic"}, {"objective": "binary:logistic", "scale_pos_weight": 2.0}]
    first, second = (objective_of(model_of(kind)) for kind in kinds)
    assert first is objective_of(model_of(kinds[0]))
    assert (first.params.scale_pos_weight, second.params.scale_pos_weight) == (1.0, 2.0)


def test_a_users_class_is_built_for_every_model(monkeypatch):
    class Own(SquaredError):
        name = "test:own"

    objectives.objective_names()  # so that all are loaded
    monkeypatch.setitem(objectives._registry._classes, "test:own", Own)
    model = model_of({"objective": "test:own"})
    assert type(objective_of(model)) is Own and objective_of(model) is not objective_of(model)
