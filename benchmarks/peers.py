"""gpuboost, XGBoost, LightGBM, CatBoost and scikit-learn side by side: the same tables, parameters as equal as they allow.

    python benchmarks/peers.py                         # all tasks, one thread and all: about 40 minutes on 2 cores
    python benchmarks/peers.py --tasks higgs-450k --threads 2 --repeats 5
    python benchmarks/peers.py --startup               # a new process with a warm compile cache
    python benchmarks/peers.py --tasks                 # no task: the page and the plots once more

tasks.py has the tables, libraries.py the parameters, measure.py how it is measured, report.py the page. Results of a task are
merged into benchmarks/results/peers.json as soon as it is done, with commit, versions and processor, so a run may be stopped and
continued with --missing; peers.md and two plots (matplotlib) are written from that file.
"""

import argparse
import importlib
import json
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

from libraries import LIBRARIES, installed
from measure import RESULTS, available_cores, compare, describe_machine, write_record
from report import page, plot
from tasks import STARTUP, TASKS, Task


def merge(document: dict[str, Any], machine: dict[str, Any], task: Task, records: list[dict[str, Any]]) -> dict[str, Any]:
    """The document with the records in the place of all older ones of the same task and threads, in their order: a ratio between
    records of two runs would compare two moments of the machine.

    What is known of a task of this name that was another one, with more rows, say, is dropped.
    """
    key = lambda r: (r["task"], r["threads"])
    replaced, tasks = {key(r) for r in records}, document.get("tasks", {})
    is_same = tasks.get(task.name) == task.describe()
    kept = [r for r in document.get("records", []) if key(r) not in replaced and (is_same or r["task"] != task.name)]
    place = {name: i for i, name in enumerate([*TASKS, *LIBRARIES])}
    records = kept + [{**r, "run": machine["date"]} for r in records]
    records.sort(key=lambda r: (place.get(r["task"], -1), r["threads"], place.get(r["library"], -1)))
    runs = document.get("runs", {}) | {machine["date"]: machine}
    runs = {date: run for date, run in runs.items() if any(r["run"] == date for r in records)}
    return {"runs": runs, "tasks": tasks | {task.name: task.describe()}, "records": records}


def is_there(document: dict[str, Any], commit: str, task: Task, libraries: list[str], threads: list[int]) -> bool:
    """Whether that commit has measured all of this."""
    own = [r for r in document.get("records", []) if r["task"] == task.name and document["runs"][r["run"]]["commit"] == commit]
    is_same = document.get("tasks", {}).get(task.name) == task.describe()
    return is_same and {(r["library"], r["threads"]) for r in own} >= {(x, n) for x in libraries for n in threads}


# --- Start-up ---

STARTUP_KEYS = ("import_s", "fit_s", "process_s")


def start_once(name: str, n_threads: int) -> dict[str, float]:
    """Seconds of a new process, and in it of the import and of the first small model."""
    command = [sys.executable, __file__, "--libraries", name, "--threads", str(n_threads), "--child"]
    start = time.perf_counter()
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return {**json.loads(done.stdout.splitlines()[-1]), "process_s": time.perf_counter() - start}


def startup_child(name: str, n_threads: int) -> dict[str, float]:
    """NumPy is there already."""
    x, y, *_ = STARTUP.tables()
    library, start = LIBRARIES[name], time.perf_counter()
    importlib.import_module(library.module)
    imported = time.perf_counter()
    library.train(library.bin_table(x, y, STARTUP, n_threads), STARTUP, n_threads)
    return {"import_s": imported - start, "fit_s": time.perf_counter() - imported}


def measure_startup(names: list[str], n_threads: int, repeats: int) -> None:
    for name in names:
        start_once(name, n_threads)  # fills the compile cache and the file cache
    runs = [(name, start_once(name, n_threads)) for _ in range(repeats) for name in names]
    records = [{"library": x, **{key: [run[key] for name, run in runs if name == x] for key in STARTUP_KEYS}} for x in names]
    print("| | import s | first fit of 1,000 × 10, 10 rounds, s | process s |\n|---|---|---|---|")
    for r in records:
        print(f"| {r['library']} | " + " | ".join(f"{median(r[key]):.3f}" for key in STARTUP_KEYS) + " |")
    write_record("startup", {"threads": n_threads, "records": records})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    cores = available_cores()
    parser.add_argument("--tasks", nargs="*", default=list(TASKS), metavar="TASK", help=", ".join(TASKS))
    parser.add_argument("--libraries", nargs="+", default=list(LIBRARIES), choices=list(LIBRARIES))
    parser.add_argument("--threads", type=int, nargs="+", default=sorted({1, cores}))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--rounds", type=int, help="in the place of each task's own")
    parser.add_argument("--rows", type=int, help="of both tables, in the place of each task's own")
    parser.add_argument("--missing", action="store_true", help="only tasks that this commit has not measured")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of peers.json, peers.md and the plots")
    parser.add_argument("--startup", action="store_true", help="a new process: import and the first small model")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if unknown := set(options.tasks) - set(TASKS):
        parser.error(f"unknown tasks {sorted(unknown)}; there are {', '.join(TASKS)}.")
    names = installed(options.libraries)
    if options.child:
        print(json.dumps(startup_child(names[0], options.threads[0])))
        return
    if options.startup:
        measure_startup(names, max(options.threads), options.repeats)
        return
    options.results.mkdir(exist_ok=True)
    file, machine = options.results / "peers.json", describe_machine()
    document = json.loads(file.read_text()) if file.exists() else {}
    given = {"n_rounds": options.rounds} if options.rounds else {}
    given |= {"n_rows": options.rows, "test_rows": options.rows} if options.rows else {}
    for name in options.tasks:
        task = replace(TASKS[name], **given)
        if options.missing and is_there(document, machine["commit"], task, names, options.threads):
            continue
        begin = time.perf_counter()
        records = compare(task, {x: LIBRARIES[x] for x in names}, options.threads, options.repeats)
        document = merge(document, machine, task, records)
        file.write_text(json.dumps(document, indent=1) + "\n")
        print(f"{name}: {time.perf_counter() - begin:.0f} s", file=sys.stderr, flush=True)
    (options.results / "peers.md").write_text(page(document))
    plots = plot(document, options.results)
    print(page(document), end="")
    print(*[file, options.results / "peers.md", *plots], sep="\n", file=sys.stderr)


if __name__ == "__main__":
    main()
