"""Time per tree as one thing grows: rows, features, depth, classes, threads. A step in a curve is a cliff.

    python benchmarks/curves.py
    python benchmarks/curves.py --curves depth threads --repeats 5

gpuboost, XGBoost, hessboost and LightGBM on tables of tasks.py, measured as in peers.py; training only, without binning. Writes
curves.json (after every curve; others in it stay), curves.md and, with matplotlib, curves.png to benchmarks/results/, and prints
the page.
"""

import argparse
import json
import sys
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from libraries import LIBRARIES, installed
from measure import RESULTS, available_cores, compare, describe_machine
from report import table
from tasks import SEVERAL, Task, higgs_like, several_classes

COMPARED = ["gpuboost", "xgboost", "hessboost", "lightgbm"]
CORES = available_cores()


def a_task(n_rows: int, n_features: int = 28, **others: Any) -> Task:
    """As many rounds as take a second or so."""
    n_rounds = max(5, min(100, 60_000_000 // (n_rows * n_features)))
    made = {"make": partial(higgs_like, n_features=n_features), "n_rounds": n_rounds, "test_rows": 1000}
    return Task("curve", n_rows, n_features, **{**made, **others})


def classes_task(n: int) -> Task:
    return a_task(50_000, make=partial(several_classes, n_classes=n), objective=SEVERAL, n_classes=n, n_rounds=max(2, 40 // n))


# What grows -> what stays, and the points: what is trained, and on how many threads.
CURVES: dict[str, tuple[str, dict[int, tuple[Task, int]]]] = {
    "rows": ("28 features, depth 6", {n: (a_task(n), CORES) for n in (1_000, 10_000, 100_000, 500_000, 1_000_000, 2_000_000)}),
    "features": ("20,000 rows, depth 6", {n: (a_task(20_000, n), CORES) for n in (7, 28, 100, 500, 2000)}),
    "depth": ("100,000 rows, 28 features", {n: (a_task(100_000, max_depth=n), CORES) for n in (2, 4, 6, 8, 10, 12)}),
    "classes": ("50,000 rows, 28 features, depth 6", {n: (classes_task(n), CORES) for n in (2, 3, 5, 10, 20)}),
    "threads": (
        f"100,000 rows, 28 features, depth 6; {CORES} cores, of which gpuboost takes no more than there are",
        {n: (a_task(100_000), n) for n in (1, 2, 16)},
    ),
}


def measure(curve: str, repeats: int) -> dict[str, Any]:
    """The machine, and a record for each point and library. ms : of a tree, for each repeat."""
    libraries, records = {name: LIBRARIES[name] for name in installed(COMPARED)}, []
    for x, (task, n_threads) in CURVES[curve][1].items():
        n_trees = task.n_rounds * (task.n_classes if task.objective == SEVERAL else 1)
        for r in compare(task, libraries, [n_threads], repeats):
            if "left_out" in r:
                raise RuntimeError(f"{r['library']} at {curve} = {x}: {r['left_out']}")
            ms = [1000 * seconds / n_trees for seconds in r["training_s"]]
            records.append({"x": x, "library": r["library"], "threads": n_threads, "trees": n_trees, "ms": ms})
    return {"machine": describe_machine(), "records": records}


def points(measured: dict[str, Any]) -> dict[str, dict[int, float]]:
    """Library -> x -> ms of a tree."""
    columns: dict[str, dict[int, float]] = {}
    for r in measured["records"]:
        columns.setdefault(r["library"], {})[r["x"]] = median(r["ms"])
    return columns


def page(curves: dict[str, dict[str, Any]]) -> str:
    parts = [
        "# Time per tree\n\nWritten by `python benchmarks/curves.py`. Milliseconds of a tree, medians; in brackets the growth "
        "from the line above."
    ]
    for curve, measured in curves.items():
        machine, columns = measured["machine"], points(measured)
        versions = ", ".join(f"{name} {machine['versions'][name]}" for name in COMPARED if name in machine["versions"])
        place = f"{machine['date'][:10]}; {machine['cpu']}, {machine['cores']} cores; {versions}; commit {machine['commit'][:10]}"
        xs = list(next(iter(columns.values())))
        rows = []
        for i, x in enumerate(xs):
            growth = [f" ({ms[x] / ms[xs[i - 1]]:.2f}×)" if i else "" for ms in columns.values()]
            rows.append([f"{x:,}", *(f"{ms[x]:.3g}{g}" for ms, g in zip(columns.values(), growth))])
        parts.append(f"{CURVES[curve][0]}. {place}\n\n" + table([curve, *columns], rows))
    return "\n\n".join(parts) + "\n"


def plot(curves: dict[str, dict[str, Any]], file: Path) -> None:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        print("matplotlib is not installed: no plot", file=sys.stderr)
        return
    figure = Figure(figsize=(3.3 * len(curves), 3.5), layout="constrained")
    panels = figure.subplots(1, len(curves), squeeze=False)[0]
    for panel, (curve, measured) in zip(panels, curves.items()):
        for library, ms in points(measured).items():
            panel.plot(list(ms), list(ms.values()), marker="o", label=library)
        panel.set(xscale="linear" if curve == "depth" else "log", yscale="log", xlabel=curve, title=CURVES[curve][0])
        panel.title.set_fontsize(8)
    panels[0].set_ylabel("ms per tree")
    panels[0].legend()
    figure.savefig(file, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--curves", nargs="+", default=list(CURVES), choices=list(CURVES))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of curves.json, curves.md and curves.png")
    options = parser.parse_args()
    options.results.mkdir(exist_ok=True)
    file = options.results / "curves.json"
    curves = json.loads(file.read_text()) if file.exists() else {}
    for curve in options.curves:
        curves[curve] = measure(curve, options.repeats)
        curves = {name: curves[name] for name in CURVES if name in curves}
        file.write_text(json.dumps(curves, indent=1) + "\n")
        print(curve, file=sys.stderr, flush=True)
    (options.results / "curves.md").write_text(page(curves))
    plot(curves, options.results / "curves.png")
    print(page(curves))


if __name__ == "__main__":
    main()
