"""gpuboost and other libraries side by side: the same tables, parameters as equal as they allow.

    python benchmarks/peers.py                         # all tasks and libraries, one thread and all
    python benchmarks/peers.py --tasks higgs-450k --threads 2 --repeats 5
    python benchmarks/peers.py --least-s 1 --most-s 6  # more turns of what is fast, fewer of what is slow
    python benchmarks/peers.py --quality               # whose models are better (quality.py)
    python benchmarks/peers.py --startup               # a new process with a warm compile cache (startup.py)
    python benchmarks/peers.py --against ../old        # another commit of gpuboost, by its checkout (against.py)
    python benchmarks/peers.py --tasks                 # no task: the page and the plots once more

tasks.py has the tables, libraries.py the parameters, measure.py how it is measured, report.py the page. The newest XGBoost, and
hessboost, need Python 3.12. Results of a task are merged into benchmarks/results/peers.json (or quality.json) as soon as it is
done, with commit, versions and processor, so a run may be stopped and continued with --missing; peers.md and two plots
(matplotlib) are written from both files.
"""

import argparse
import json
import math
import sys
import time
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

from against import measure_against
from libraries import LIBRARIES, installed
from measure import RESULTS, available_cores, compare, describe_machine, write_record
from quality import draw_pairs, smaller
from report import page, plot
from startup import KEYS, startups
from tasks import TASKS, Task


def merge(document: dict[str, Any], machine: dict[str, Any], task: Task, records: list[dict[str, Any]]) -> dict[str, Any]:
    """The document with the records in the place of all older ones of the same task and threads, in their order: a ratio between
    records of two runs would compare two moments of the machine.

    What is known of a task of this name that was another one, with more rows, say, is dropped.
    """
    key = lambda r: (r["task"], r.get("threads", 0))
    replaced, tasks = {key(r) for r in records}, document.get("tasks", {})
    is_same = tasks.get(task.name) == task.describe()
    kept = [r for r in document.get("records", []) if key(r) not in replaced and (is_same or r["task"] != task.name)]
    place = {name: i for i, name in enumerate([*TASKS, *LIBRARIES])}
    records = kept + [{**r, "run": machine["date"]} for r in records]
    records.sort(key=lambda r: (place.get(r["task"], -1), r.get("threads", 0), place.get(r["library"], -1)))
    runs = document.get("runs", {}) | {machine["date"]: machine}
    runs = {date: run for date, run in runs.items() if any(r["run"] == date for r in records)}
    return {"runs": runs, "tasks": tasks | {task.name: task.describe()}, "records": records}


def is_there(document: dict[str, Any], commit: str, task: Task, libraries: list[str], threads: list[int]) -> bool:
    """Whether that commit has measured all of this."""
    own = [r for r in document.get("records", []) if r["task"] == task.name and document["runs"][r["run"]]["commit"] == commit]
    is_same = document.get("tasks", {}).get(task.name) == task.describe()
    return is_same and {(r["library"], r.get("threads", 0)) for r in own} >= {(x, n) for x in libraries for n in threads}


def measure_startup(names: list[str], n_threads: int, repeats: int, folder: Path) -> None:
    records = startups({name: (name, LIBRARIES[name].path) for name in names}, n_threads, repeats)
    print("| | import s | first fit of 1,000 × 10, 10 rounds, s | process s |\n|---|---|---|---|")
    for r in records:
        print(f"| {r['library']} | " + " | ".join(f"{median(r[key]):.3f}" for key in KEYS) + " |")
    write_record("startup", {"threads": n_threads, "records": records}, folder)


def measure_tasks(tasks: list[Task], names: list[str], options: argparse.Namespace) -> None:
    """Time, or quality, of every task; then the page."""
    files = {name: options.results / f"{name}.json" for name in ("peers", "quality")}
    documents = {name: json.loads(file.read_text()) if file.exists() else {} for name, file in files.items()}
    kind, threads = ("quality", [0]) if options.quality else ("peers", options.threads)
    machine = describe_machine()
    for task in tasks:
        if options.missing and is_there(documents[kind], machine["commit"], task, names, threads):
            continue
        begin = time.perf_counter()
        if options.quality:
            records = draw_pairs(task, names, options.draws)
        else:
            libraries = {name: LIBRARIES[name] for name in names}
            records = compare(task, libraries, threads, options.repeats, options.least_s, options.most_s)
        documents[kind] = merge(documents[kind], machine, task, records)
        files[kind].write_text(json.dumps(documents[kind], indent=1) + "\n")
        print(f"{task.name}: {time.perf_counter() - begin:.0f} s", file=sys.stderr, flush=True)
    text = page(documents["peers"], documents["quality"])
    (options.results / "peers.md").write_text(text)
    print(text, end="")
    plots = plot(documents["peers"], documents["quality"], options.results)
    print(files[kind], options.results / "peers.md", *plots, sep="\n", file=sys.stderr)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    cores = available_cores()
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--quality", action="store_true", help="the models of paired draws of smaller tables")
    what.add_argument("--startup", action="store_true", help="a new process: import and the first small model")
    what.add_argument("--against", type=Path, metavar="PATH", help="another checkout of gpuboost, alone against this one")
    parser.add_argument("--tasks", nargs="*", default=list(TASKS), metavar="TASK", help=", ".join(TASKS))
    parser.add_argument("--libraries", nargs="+", default=list(LIBRARIES), choices=list(LIBRARIES))
    parser.add_argument("--threads", type=int, nargs="+", help="one and all; for --against and --startup, all")
    parser.add_argument("--repeats", type=int, default=3, help="turns; for --against, in each of two sittings")
    parser.add_argument("--least-s", type=float, default=0.0, help="more turns (up to 20) of a library until they took so long")
    parser.add_argument("--most-s", type=float, default=math.inf, help="no more turns of a library that took so long in a task")
    parser.add_argument("--draws", type=int, default=12, help="of --quality")
    parser.add_argument("--rounds", type=int, help="in the place of each task's own")
    parser.add_argument("--rows", type=int, help="of both tables, in the place of each task's own")
    parser.add_argument("--missing", action="store_true", help="only tasks that this commit has not measured")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of the JSON files, peers.md and the plots")
    options = parser.parse_args()
    if unknown := set(options.tasks) - set(TASKS):
        parser.error(f"unknown tasks {sorted(unknown)}; there are {', '.join(TASKS)}.")
    options.threads = options.threads or ([cores] if options.against or options.startup else sorted({1, cores}))
    options.results.mkdir(exist_ok=True)
    given = {"n_rounds": options.rounds} if options.rounds else {}
    given |= {"n_rows": options.rows, "test_rows": options.rows} if options.rows else {}
    tasks = [replace(smaller(TASKS[name]) if options.quality else TASKS[name], **given) for name in options.tasks]
    names = installed(options.libraries)
    if options.startup:
        measure_startup(names, max(options.threads), options.repeats, options.results)
    elif options.against:
        measure_against(options.against, tasks, options.threads, options.repeats, options.results)
    else:
        measure_tasks(tasks, names, options)


if __name__ == "__main__":
    main()
