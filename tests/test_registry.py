"""registry.py: names of objectives and metrics, and what is said of one that is not there."""

import re

import pytest

from gpuboost import metrics, objectives
from gpuboost.metrics import get_metric, metric_names
from gpuboost.objectives import get_objective, objective_names
from gpuboost.params import Params
from gpuboost.registry import Registry


class Square: ...


class Cube: ...


@pytest.fixture
def shapes():
    return Registry("shape", "gpuboost.objectives", planned=["sphere"], otherwise="Draw one.")


def test_a_class_is_found_under_its_name(shapes):
    shapes.register("square", Square)
    shapes.register("cube", Cube)
    assert shapes.names() == ["cube", "square"]
    assert shapes.get("cube") is shapes.find("cube") is Cube
    assert shapes.find("sphere") is None


@pytest.mark.parametrize(
    ("name", "error", "message"),
    [
        ("sphere", NotImplementedError, "shape='sphere' is not built yet in gpuboost. Built: cube, square."),
        ("cubes", ValueError, "shape must be one of cube, square; got 'cubes'. Did you mean 'cube'?"),
        ("xyz", ValueError, "shape must be one of cube, square; got 'xyz'. Draw one."),
    ],
)
def test_a_name_without_a_class_is_an_error_that_helps(shapes, name, error, message):
    shapes.register("square", Square)
    shapes.register("cube", Cube)
    with pytest.raises(error, match=re.escape(message)):
        shapes.get(name)


def test_the_error_shows_what_was_given(shapes):
    with pytest.raises(ValueError, match="got 'hexagon@6'"):
        shapes.get("hexagon", given="hexagon@6")


def test_a_definition_run_again_replaces_the_class_but_no_other_takes_its_name(shapes):
    shapes.register("square", Square)
    again = type("Square", (), {"__module__": Square.__module__, "__qualname__": Square.__qualname__})
    shapes.register("square", again)
    assert shapes.get("square") is again
    with pytest.raises(ValueError, match=r"shape 'square' is \S+\.Square already. Give \S+\.Cube another name"):
        shapes.register("square", Cube)


def test_the_files_of_the_package_register_their_classes_when_first_asked_for():
    assert {"reg:squarederror", "binary:logistic", "multi:softprob", "multi:softmax"} <= set(objective_names())
    assert {"rmse", "mae", "logloss", "error", "auc", "mlogloss"} <= set(metric_names())
    for registry in (objectives._registry, metrics._registry):
        assert registry.names() == sorted(registry.names())


@pytest.mark.parametrize(
    ("name", "error", "message"),
    [
        ("binary:logistics", ValueError, "objective must be one of .*; got 'binary:logistics'. Did you mean 'binary:logistic'?"),
        ("loss", ValueError, "got 'loss'. Pass a function as obj to train()"),
    ],
)
def test_an_objective_that_is_not_there(name, error, message):
    with pytest.raises(error, match=message.replace("?", r"\?").replace("()", r"\(\)")):
        get_objective(name, Params())


@pytest.mark.parametrize(
    ("name", "error", "message"),
    [
        ("zzz", ValueError, "eval_metric must be one of .*; got 'zzz'. Pass a function as custom_metric to train"),
        ("logloss1", ValueError, "Did you mean 'logloss'?"),
        ("auc-", ValueError, "Did you mean 'auc'?"),
        ("ams@2", ValueError, "eval_metric 'ams@k' needs a share of the rows between 0 and 1, got '2'. Use ams@0.15"),
        ("ams@x", ValueError, "needs a share of the rows between 0 and 1, got 'x'"),
        ("rmse@2", ValueError, "eval_metric 'rmse' takes no argument, got '2' after '@'"),
        ("error@x", ValueError, "eval_metric 'error@t' needs a number for t, got 'x'"),
    ],
)
def test_a_metric_that_is_not_there_or_takes_no_argument(name, error, message):
    with pytest.raises(error, match=message.replace("?", r"\?")):
        get_metric(name)


def test_a_metric_has_the_argument_in_its_name():
    assert [get_metric(name).name for name in ("error", "error@0.5", "error@0.7")] == ["error", "error", "error@0.7"]
