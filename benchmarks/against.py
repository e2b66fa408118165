"""Two commits of gpuboost in turns: what a change has done to the time of every task, and of a new process.

    git worktree add ../old COMMIT
    python benchmarks/peers.py --against ../old
    python benchmarks/peers.py --against ../old --tasks higgs-7k mushrooms --repeats 9 --threads 1

Old and new are the same library from two folders, each in a process of its own, measured as peers are (measure.py), in two
sittings with new processes, as one may lie better in memory than another. A figure is the median of new over that of old. Models
are the same where all turns score the same. The JSON of all turns is written too.
"""

import math
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

from libraries import LIBRARIES
from measure import ROOT, compare, describe_commit, write_record
from report import bold, row
from startup import KEYS, startups
from tasks import Task

MEASURES = ("total_s", "training_s")
MEAN_LIMIT, TASK_LIMIT = 1.02, 1.05  # of the geometric mean, and of any task
SITTINGS = 2
LEAST_S = 1.0  # of turns in a sitting: the smallest tasks need more than the largest


def ratio(records: list[dict[str, Any]], measure: str) -> float:
    """Of medians, new over old. records : of old and new."""
    middle = {r["library"]: median(r[measure]) for r in records}
    return middle["new"] / middle["old"]


def geometric_mean(ratios: Iterable[float]) -> float:
    logs = [math.log(value) for value in ratios]
    return math.exp(sum(logs) / len(logs))


def pooled(sittings: list[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """One record for the same ones of all sittings, with the turns of all. Raises RuntimeError with what failed."""
    if failed := [f"{r['task']}, {r['library']}: {r['left_out']}" for records in sittings for r in records if "left_out" in r]:
        raise RuntimeError("; ".join(failed))
    out = []
    for same in zip(*sittings):
        turns = {key: sum((r[key] for r in same), []) for key, value in same[0].items() if isinstance(value, list)}
        quality = {metric: sum((r["quality"][metric] for r in same), []) for metric in same[0]["quality"]}
        out.append(same[0] | turns | {"quality": quality})
    return out


HEAD = ["task", "threads", "old s", "new s", "their spreads", "total", "training", "model"]


def cells(records: list[dict[str, Any]]) -> list[str]:
    """Of one task and number of threads, under HEAD."""
    old, new = (next(r for r in records if r["library"] == name) for name in ("old", "new"))
    spreads = " and ".join(f"{min(r['total_s']):.3f}–{max(r['total_s']):.3f}" for r in (old, new))
    ratios = [bold(f"{value:.3f}", value > TASK_LIMIT) for value in (ratio(records, measure) for measure in MEASURES)]
    scores = [{metric: set(values) for metric, values in r["quality"].items()} for r in (old, new)]
    model = "same" if scores[0] == scores[1] else "**another**"
    return [old["task"], str(old["threads"]), *(f"{median(r['total_s']):.3f}" for r in (old, new)), spreads, *ratios, model]


def conclusion(groups: list[list[dict[str, Any]]]) -> str:
    """Geometric means over tasks and threads, and what is slower than it may be."""
    means = [geometric_mean(ratio(records, measure) for records in groups) for measure in MEASURES]
    slow = [f"{r[0]['task']} on {r[0]['threads']}" for r in groups if any(ratio(r, m) > TASK_LIMIT for m in MEASURES)]
    words = ["the mean"] * (max(means) > MEAN_LIMIT) + slow
    return (
        f"Geometric mean, new over old: total {means[0]:.3f}, training {means[1]:.3f}. "
        f"Above the limits ({MEAN_LIMIT} of the mean, {TASK_LIMIT} of a task): {', '.join(words) or 'nothing'}."
    )


def measure_against(old: Path, tasks: list[Task], threads: list[int], repeats: int, folder: Path) -> None:
    ours = LIBRARIES["gpuboost"]
    ways = {"old": replace(ours, path=str(old.resolve())), "new": replace(ours, path=str(ROOT))}
    commits = {"old": describe_commit(old), "new": describe_commit()}
    print(row(HEAD), "|" + "---|" * len(HEAD), sep="\n", flush=True)
    groups = []
    for task in tasks:
        records = pooled([compare(task, ways, threads, repeats, LEAST_S) for _ in range(SITTINGS)])
        for n in threads:
            groups.append([r for r in records if r["threads"] == n])
            print(row(cells(groups[-1])), flush=True)
    print("\n" + conclusion(groups) if groups else "")
    starts = startups({way: ("gpuboost", library.path) for way, library in ways.items()}, max(threads), repeats)
    for key in KEYS:
        seconds = {r["library"]: f"{median(r[key]):.3f}" for r in starts}
        print(f"Start, {key}: old {seconds['old']}, new {seconds['new']}, new over old {ratio(starts, key):.3f}")
    record = {"commits": commits, "tasks": [task.describe() for task in tasks], "startup": starts}
    write_record("against", {**record, "records": [r for group in groups for r in group]}, folder)
