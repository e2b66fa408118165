"""What is compiled ahead: every built-in objective and metric, every kernel that others call late, and nothing that fails."""

import os
import subprocess
import sys
from pathlib import Path

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


RUN_ALL = """
import ast, importlib
from pathlib import Path
import gpuboost.kernels
from gpuboost import warmup

for use in (*warmup.usual_uses(), *warmup.other_uses()):
    use()
(folder,) = gpuboost.kernels.__path__
for path in Path(folder).glob("*.py"):
    for call in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "call_late":
            kernel = getattr(importlib.import_module(f"gpuboost.kernels.{path.stem}"), ast.unparse(call.args[0]))
            print(kernel.py_func.__qualname__, len(kernel.overloads))
"""


@pytest.mark.slow
@pytest.mark.long
def test_every_use_runs_and_all_together_reach_what_is_called_late():
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    done = subprocess.run([sys.executable, "-c", RUN_ALL], env=env, check=True, capture_output=True, text=True)
    found = dict(line.split() for line in done.stdout.splitlines() if not line.startswith("["))
    assert {"quantise_finely_cpu", "step_blocks_cpu", "build_packed_cpu"} <= set(found)
    assert [name for name, n_overloads in found.items() if int(n_overloads) == 0] == []
