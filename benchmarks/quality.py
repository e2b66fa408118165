"""Whose models are better: paired draws of smaller tables, and Student's t over their differences.

    python benchmarks/peers.py --quality                  # all tasks and libraries, 12 draws
    python benchmarks/peers.py --quality --draws 40 --tasks higgs-7k --libraries gpuboost xgboost

A draw is a table to train on and one to score, the same for all libraries, which work on one thread each. A single draw tells
nothing: models of equal libraries differ by 2 % either way. Results go into quality.json, and from there into peers.md.
"""

import math
from dataclasses import replace
from typing import Any

import numpy as np
from libraries import LIBRARIES
from measure import Crew
from scipy.stats import t
from tasks import SEED, Task

OURS = "gpuboost"
LEVEL = 0.01  # of a verdict: how often chance alone gives one, two-sided
TEST_ROWS = 20_000


def smaller(task: Task) -> Task:
    """A tenth of the rows, but 5,000 at least and 50,000 at most."""
    return replace(task, n_rows=min(max(task.n_rows // 10, 5_000), 50_000, task.n_rows), test_rows=min(TEST_ROWS, task.test_rows))


def draw_pairs(task: Task, names: list[str], n_draws: int) -> list[dict[str, Any]]:
    """A record for each library: metrics by name, for each draw."""
    with Crew({name: LIBRARIES[name] for name in names}, task) as crew:
        crew.ask(crew.names, "draw", SEED)
        crew.ask(crew.names, "warm_up", 1)  # who learns nothing is out
        metrics = crew.ask(crew.names, "score_draws", [SEED + i for i in range(n_draws)], 1)
    quality = [{"task": task.name, "library": name, "quality": metrics[name]} for name in metrics]
    return quality + [{"task": task.name, "library": name, "left_out": why} for name, why in crew.out.items()]


def verdict(ours: list[float], theirs: list[float]) -> tuple[float, float, str]:
    """Our loss above theirs, in % of theirs, as the mean over the pairs; its standard error; "worse", "better" or nothing, by a
    paired t-test, two-sided, at LEVEL."""
    differences = 100 * (np.array(ours) / np.array(theirs) - 1)
    mean, n = float(differences.mean()), len(differences)
    error = float(differences.std(ddof=1) / math.sqrt(n)) if n > 1 else math.inf
    is_chance = n < 2 or abs(mean) <= t.ppf(1 - LEVEL / 2, n - 1) * error
    return mean, error, "" if is_chance else "worse" if mean > 0 else "better"


def losses(record: dict[str, Any]) -> list[float]:
    """The first metric, which is the loss, for each draw."""
    return next(iter(record["quality"].values()))


def verdicts(records: list[dict[str, Any]]) -> dict[str, tuple[float, float, str]]:
    """Of one task, gpuboost against each other library that has models there."""
    of_library = {r["library"]: losses(r) for r in records if "quality" in r}
    ours = of_library.pop(OURS, None)
    return {name: verdict(ours, theirs) for name, theirs in of_library.items()} if ours else {}
