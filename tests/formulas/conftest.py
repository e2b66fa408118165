"""The module of the user, whose formulas are known while a file's tests run."""

import importlib
import sys

import pytest

from gpuboost import metrics, objectives
from gpuboost.formulas import split_gain


@pytest.fixture(scope="module", autouse=True)
def formulas():
    with pytest.MonkeyPatch.context() as patch:
        assert objectives.objective_names() and metrics.metric_names()  # gpuboost's own come first
        for registry in (objectives._registry, metrics._registry, split_gain._registry):
            patch.setattr(registry, "_classes", dict(registry._classes))
        yield importlib.import_module("user_formulas")
    del sys.modules["user_formulas"]
