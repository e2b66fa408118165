"""What is compiled ahead: every built-in objective and metric, and nothing that fails."""

import pytest

from gpuboost import warmup
from gpuboost.metrics import metric_names
from gpuboost.objectives import find_objective, objective_names


def test_every_built_in_objective_has_its_use():
    ours = {name for name in objective_names() if find_objective(name).__module__.startswith("gpuboost.objectives.")}
    assert ours == set(warmup.OBJECTIVES)


def test_metrics_without_a_use_are_those_that_an_objective_has_for_itself():
    used = {name.partition("@")[0] for names in warmup.METRICS.values() for name in names}
    left = set(metric_names()) - used
    assert left == {"aft-nloglik", "cox-nloglik", "expectile", "interval-regression-accuracy", "quantile"}


def test_the_usual_uses_run():
    for use in list(warmup.usual_uses())[::5]:
        use()


@pytest.mark.slow
@pytest.mark.long
def test_every_use_runs():
    for use in warmup.other_uses():
        use()
