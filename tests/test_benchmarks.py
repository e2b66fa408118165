"""The comparison with other libraries and commits (benchmarks/peers.py): its commands on tiny tables, and its sums."""

import json
import math
import os
import subprocess
import sys
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse

pytestmark = pytest.mark.long

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
sys.path.append(str(BENCHMARKS))

import against  # noqa: E402 - found through the line above
import curves  # noqa: E402
import measure  # noqa: E402
import peers  # noqa: E402
import quality  # noqa: E402
import report  # noqa: E402
import startup  # noqa: E402
from libraries import LIBRARIES  # noqa: E402
from tasks import BINARY, NUMBERS, SEVERAL, TASKS  # noqa: E402


def record(library, total, predict=(0.1,), **others):
    return {
        "task": "higgs-7k", "library": library, "threads": 2, "run": "today", "total_s": list(total), "predict_s": list(predict),
        "row_us": 10.0, "peak_mb": 50.0, "quality": {"logloss": [0.5, 0.5, 0.5]}, **others,
    }  # fmt: skip


GROUP = [
    record("gpuboost", (3.0, 1.0, 2.0), predict=(0.2,), binning_s=[0.5, 0.1, 0.3], training_s=[2.5, 0.9, 1.7]),
    record("xgboost", (4.0, 4.0, 5.0)),
    record("hessboost", (9.0, 9.0, 9.0), predict=(0.05,), training_s=[1.0]),
    record("lightgbm", (1.0, 6.0, 3.0), predict=(0.4,)),
    record("catboost", (0.5, 0.5, 0.5)),
    {"task": "higgs-7k", "library": "sklearn", "threads": 2, "run": "today", "left_out": "is ill"},
]
MACHINE = {"date": "today", "cpu": "a", "cores": 2, "platform": "b", "python": "c", "commit": "d" * 40,
           "uncommitted_changes": False, "versions": {}}  # fmt: skip


@pytest.mark.parametrize("place, expected", [(0, 2 / 3), (1, 4 / 3), (2, 3.0), (3, 1.0), (4, 0.5 / 3)])
def test_ratio_is_that_of_medians_to_the_fastest_rival(place, expected):
    """CatBoost, the fastest here, is no rival."""
    assert report.fastest_rival(GROUP, "total_s") == ("lightgbm", 3.0)
    assert report.ratio(GROUP[place], GROUP, "total_s") == pytest.approx(expected)


def test_ratio_needs_both_sides():
    assert report.ratio(GROUP[0], GROUP, "binning_s") is None  # no rival has it
    assert report.ratio(GROUP[0], GROUP[:1], "total_s") is None
    assert report.ratio(GROUP[5], GROUP, "total_s") is None
    assert report.ratio(GROUP[0], [record("xgboost", (0.0,))], "total_s") is None


def test_losses_name_the_rival():
    assert report.losses_of(GROUP[0], GROUP) == ["training 1.70× hessboost", "predict 4.00× hessboost"]
    close = record("gpuboost", (3.1, 3.1, 3.1), predict=(0.05,))
    assert report.losses_of(close, [close, *GROUP[1:]]) == []  # 3.1 s against 3.0 is close


@pytest.fixture(scope="module")
def judged():
    """A document of quality: 5 % worse than XGBoost in each draw, more or less so, and not better than LightGBM beyond noise."""
    draws = {"gpuboost": [1.05, 2.12, 4.20, 8.40], "xgboost": [1.0, 2.0, 4.0, 8.0], "lightgbm": [1.2, 2.1, 4.1, 8.5]}
    records = [{"task": "higgs-7k", "library": name, "quality": {"logloss": values}} for name, values in draws.items()]
    records.append({"task": "higgs-7k", "library": "sklearn", "left_out": "is ill"})
    return peers.merge({}, MACHINE, quality.smaller(TASKS["higgs-7k"]), records)


def test_page_tells_every_library(judged):
    page = report.page(peers.merge({}, MACHINE, TASKS["higgs-7k"], GROUP), judged)
    assert "| higgs-7k | 7,000 × 28, 100 rounds, depth 6 | 2.00 | 4.00 | 9.00 | 3.00 | **0.50** | – | 1.50× lightgbm | " in page
    assert "| **0.59×** hessboost | training 1.70× hessboost; predict 4.00× hessboost |" in page
    assert "| higgs-7k | sklearn | is ill |" in page
    assert "| 4 | logloss 3.9425 | **+5.25 ± 0.25 worse** | -2.57 ± 3.39 | – |" in page
    assert report.page({}, judged).count("## ") == 1


def test_plots_are_drawn(tmp_path, judged):
    pytest.importorskip("matplotlib")
    records = [{**r, "task": task, "threads": 2} for task in ("higgs-7k", "higgs-2m") for r in GROUP]
    document = {"records": records, "tasks": {name: task.describe() for name, task in TASKS.items()}}
    files = report.plot(document, judged, tmp_path)
    assert [file.name for file in files] == ["peers-rows.png", "peers-quality.png"]
    assert all(file.stat().st_size > 5000 for file in files)
    assert report.plot(document, {}, tmp_path) == files[:1]


@pytest.mark.parametrize(
    "theirs, expected",
    [
        ([1.0, 1.0, 1.0], (2.0, 1 / math.sqrt(3), "")),  # 3.5 standard errors, of which t asks 9.9 for three draws
        ([1.0] * 12, (2.0, math.sqrt(8 / 11) / math.sqrt(12), "worse")),
        ([1.0], (1.0, math.inf, "")),
    ],
)
def test_verdict_is_by_paired_t(theirs, expected):
    ours = [1.01, 1.02, 1.03] * 4
    assert quality.verdict(ours[: len(theirs)], theirs) == (pytest.approx(expected[0]), pytest.approx(expected[1]), expected[2])


def test_verdict_is_of_pairs():
    """Draws differ a hundredfold more than libraries do, which the pairs do not see."""
    theirs = np.linspace(1, 9, 10)
    word = quality.verdict(list(theirs * (0.99 + 0.001 * np.arange(10) / 10)), list(theirs))[2]
    assert word == "better"
    assert quality.verdict(list(theirs[::-1] * 0.99), list(theirs))[2] == ""


def test_smaller_tasks_keep_their_shape():
    rows = {name: quality.smaller(task).n_rows for name, task in TASKS.items()}
    assert (rows["higgs-2m"], rows["missing-200k"], rows["wide-20k"]) == (50_000, 20_000, 5_000)
    assert quality.smaller(TASKS["higgs-450k-255-leaves"]).n_leaves == 255


@pytest.mark.parametrize(
    "seconds, expected",
    [
        ([], False),
        ([1.0, 1.0], False),
        ([1.0, 1.0, 1.0], False),  # 5 seconds at least
        ([1.0] * 5, True),
        ([20.0], True),  # 10 seconds at most
        ([0.01] * 20, True),
    ],
)
def test_turns_are_enough(seconds, expected):
    assert measure.is_enough(seconds, repeats=3, least_s=5.0, most_s=10.0) == expected


def of_commits(task, old, new, scores=(0.5, 0.5)):
    return [
        {"task": task, "library": name, "threads": 2, "total_s": seconds, "training_s": seconds, "quality": {"logloss": [score]}}
        for name, seconds, score in zip(("old", "new"), (old, new), scores)
    ]


def test_commits_are_compared_by_medians():
    slower, faster = of_commits("a", [1.0, 1.0, 9.0], [1.1, 1.0, 1.2]), of_commits("b", [4.0], [3.0], scores=(0.5, 0.6))
    assert against.cells(slower) == ["a", "2", "1.000", "1.100", "1.000–9.000 and 1.000–1.200", "**1.100**", "**1.100**", "same"]
    assert against.cells(faster)[-3:] == ["0.750", "0.750", "**another**"]
    words = against.conclusion([slower, faster])
    assert "total 0.908, training 0.908" in words  # the root of 1.1 × 0.75
    assert words.endswith("(1.02 of the mean, 1.05 of a task): a on 2.")
    assert against.conclusion([of_commits("a", [1.0], [1.03])]).endswith("): the mean.")
    assert against.conclusion([of_commits("a", [1.0], [1.01])]).endswith("): nothing.")


def test_sittings_are_pooled():
    monday, tuesday = of_commits("a", [1.0], [3.0]), of_commits("a", [2.0], [4.0], scores=(0.5, 0.6))
    old, new = against.pooled([monday, tuesday])
    assert (old["total_s"], new["total_s"], new["quality"]) == ([1.0, 2.0], [3.0, 4.0], {"logloss": [0.5, 0.6]})
    with pytest.raises(RuntimeError, match="a, new: is ill"):
        against.pooled([monday, [{"task": "a", "library": "new", "threads": 2, "left_out": "is ill"}]])


def test_a_library_comes_from_its_path(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "of_this_test.py").touch()
    measure.import_from("of_this_test", str(tmp_path))
    with pytest.raises(RuntimeError, match="measure was imported from .*benchmarks"):
        measure.import_from("measure", str(tmp_path))


def test_results_merge_by_task_and_threads():
    task = TASKS["higgs-7k"]
    monday, tuesday = ({"date": day, "commit": f"{day}'s"} for day in ("monday", "tuesday"))
    old = peers.merge({}, monday, task, [record("xgboost", (1.0,)), record("gpuboost", (9.0,))])
    new = peers.merge(old, tuesday, task, [record("gpuboost", (5.0,)), record("gpuboost", (7.0,)) | {"threads": 1}])
    found = [(r["library"], r["threads"], r["total_s"], r["run"]) for r in new["records"]]
    assert found == [("gpuboost", 1, [7.0], "tuesday"), ("gpuboost", 2, [5.0], "tuesday")]  # monday's are not compared with these
    assert set(new["runs"]) == {"tuesday"}  # monday has no records left
    alone = peers.merge(old, tuesday, task, [record("gpuboost", (7.0,)) | {"threads": 1}])
    assert set(alone["runs"]) == {"monday", "tuesday"} and len(alone["records"]) == 3
    longer = peers.merge(new, tuesday, replace(task, n_rounds=200), [record("xgboost", (2.0,))])
    assert [(r["library"], r["total_s"]) for r in longer["records"]] == [("xgboost", [2.0])]  # the others are of 100 rounds


@pytest.mark.parametrize(
    "commit, rounds, libraries, threads, expected",
    [
        ("a", 100, ["gpuboost", "xgboost"], [2], True),
        ("b", 100, ["gpuboost"], [2], False),
        ("a", 3, ["gpuboost"], [2], False),
        ("a", 100, ["gpuboost", "lightgbm"], [2], False),
        ("a", 100, ["gpuboost"], [1, 2], False),
    ],
)
def test_what_is_there_need_not_be_measured(commit, rounds, libraries, threads, expected):
    task, records = TASKS["higgs-7k"], [record("xgboost", (1.0,)), record("gpuboost", (9.0,))]
    document = peers.merge({}, {"date": "monday", "commit": "a"}, task, records)
    assert peers.is_there(document, commit, replace(task, n_rounds=rounds), libraries, threads) == expected


@pytest.mark.parametrize(
    "objective, prediction, label, metrics",
    [
        (BINARY, [0.9, 0.2, 0.6], [1, 0, 0], {"logloss": -math.log(0.9 * 0.8 * 0.4) / 3, "auc": 1.0}),
        (BINARY, [0.1, 0.2, 0.6], [1, 0, 0], {"logloss": -math.log(0.1 * 0.8 * 0.4) / 3, "auc": 0.0}),
        (SEVERAL, [[0.7, 0.2, 0.1], [0.5, 0.2, 0.3]], [0, 2], {"mlogloss": -math.log(0.7 * 0.3) / 2, "error": 0.5}),
        (NUMBERS, [1.0, 5.0], [4.0, 1.0], {"rmse": math.sqrt(12.5), "mae": 3.5}),
    ],
)
def test_score(objective, prediction, label, metrics):
    task = replace(TASKS["higgs-7k"], objective=objective)
    found, losses = measure.score(np.array(prediction), np.array(label, np.float32), task)
    assert found == pytest.approx(metrics)
    loss = next(iter(metrics.values()))
    assert losses.mean() == pytest.approx(loss**2 if objective == NUMBERS else loss)


@pytest.mark.parametrize("name", TASKS)
def test_tables_are_what_the_task_says(name):
    task = replace(TASKS[name], n_rows=300, test_rows=200)
    x, y, test_x, test_y = task.tables()
    assert (x.shape, test_x.shape) == ((300, task.n_features), (200, task.n_features))
    assert (y.shape, test_y.shape) == ((300,), (200,))
    assert x.dtype == y.dtype == np.float32
    assert scipy.sparse.issparse(x) == task.is_sparse
    if task.objective != NUMBERS:
        assert set(np.unique(y)) == set(range(task.n_classes))


def test_what_a_library_lacks_is_told():
    assert LIBRARIES["sklearn"].lacks(TASKS["sparse-200k"]) == "takes no sparse matrix"
    assert LIBRARIES["lightgbm"].lacks(TASKS["higgs-450k-exact"]) == "has no exact"
    assert all(LIBRARIES["gpuboost"].lacks(task) == "" for task in TASKS.values())


def test_who_learns_nothing_is_told():
    """No label depends on such a table, and all columns are constant."""
    nothing = replace(TASKS["higgs-7k"], n_rows=100, test_rows=100, make=lambda rng, n: (np.zeros((n, 2)), rng.integers(0, 2, n)))
    place = measure.Workplace(LIBRARIES["gpuboost"], nothing)
    place.draw(0)
    with pytest.raises(RuntimeError, match="learns nothing"):
        place.warm_up(1)


def run_peers(*arguments):
    path = os.pathsep.join([str(BENCHMARKS.parent), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, str(BENCHMARKS / "peers.py"), "--rows", "1000", "--rounds", "3", *map(str, arguments)]
    return subprocess.run(command, check=True, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": path}).stdout


@pytest.mark.slow
def test_command_measures_a_tiny_table(tmp_path):
    names = [name for name in ("gpuboost", "xgboost", "hessboost") if find_spec(name)]
    given = ("--tasks", "covertype-200k", "--libraries", *names, "--results", tmp_path)
    run_peers(*given, "--repeats", 2, "--threads", 1)
    document = json.loads((tmp_path / "peers.json").read_text())
    assert [r["library"] for r in document["records"]] == names
    for r in document["records"]:
        assert len(r["total_s"]) == len(r["predict_s"]) == 2 and min(r["total_s"]) > 0 and r["row_us"] > 0
        assert r["total_s"] == pytest.approx(np.add(r["binning_s"], r["training_s"]))
        assert 0 < max(r["quality"]["mlogloss"]) < math.log(7)  # better than guessing
    page = run_peers(*given, "--quality", "--draws", 2)
    for r in json.loads((tmp_path / "quality.json").read_text())["records"]:
        assert len(set(r["quality"]["mlogloss"])) == 2  # of other tables
    assert (tmp_path / "peers.md").read_text() == page
    assert "## 1 thread" in page and "## Quality" in page


@pytest.mark.slow
def test_command_compares_a_commit_with_itself(tmp_path):
    given = ("--tasks", "higgs-7k", "--repeats", 1, "--threads", 1, "--results", tmp_path)
    printed = run_peers(*given, "--against", BENCHMARKS.parent)
    assert " | same |" in printed and "Geometric mean" in printed and "Start, import_s" in printed
    record = json.loads(next(tmp_path.glob("against-*.json")).read_text())
    assert [r["library"] for r in record["records"]] == [r["library"] for r in record["startup"]] == ["old", "new"]
    assert all(min(r[key]) > 0 for r in record["startup"] for key in startup.KEYS)


@pytest.mark.slow
def test_a_curve_joins_those_that_were_measured_before(tmp_path, monkeypatch):
    monkeypatch.setattr(curves, "COMPARED", ["gpuboost"])
    few = {n: (curves.a_task(n, n_rounds=2), 1) for n in (100, 200)}
    monkeypatch.setattr(curves, "CURVES", {"rows": ("few", few), "depth": ("deep", few)})
    for curve in ("depth", "rows"):
        monkeypatch.setattr(sys, "argv", ["curves.py", "--curves", curve, "--repeats", "1", "--results", str(tmp_path)])
        curves.main()
    measured = json.loads((tmp_path / "curves.json").read_text())
    assert list(measured) == ["rows", "depth"]
    for curve in measured.values():
        assert [(r["x"], r["library"], r["trees"]) for r in curve["records"]] == [(100, "gpuboost", 2), (200, "gpuboost", 2)]
        assert all(ms > 0 for r in curve["records"] for ms in r["ms"])
    page = (tmp_path / "curves.md").read_text()
    assert page.index("few. ") < page.index("deep. ") and page.count("| 200 |") == 2


@pytest.mark.parametrize("workload", ["binning 7k", "training 7k", "one row"])
def test_every_kernel_is_timed_where_its_benchmark_says(workload, monkeypatch):
    import bench_kernels
    import kernel_bench
    from ceilings import Ceilings

    monkeypatch.setattr(kernel_bench.cpu_trees, "WHOLE_MEMORY", kernel_bench.cpu_trees.WHOLE_MEMORY)  # which a training sets
    kernels = [kernel for name in bench_kernels.FILES for kernel in import_module(f"bench_{name}").KERNELS]
    records = kernel_bench.measure(workload, kernels, Ceilings(1), 1)
    timed = {r["kernel"] for r in records if "units" in r}
    assert timed == {kernel.name for kernel in kernels if workload in kernel.workloads} != set()
    assert all(r["floor_ms"] > 0 and r["units"] > 0 for r in records if "units" in r)
