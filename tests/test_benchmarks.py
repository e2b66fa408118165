"""The comparison with other libraries (benchmarks/peers.py): its command on a tiny table, and its sums."""

import json
import math
import os
import subprocess
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
sys.path.append(str(BENCHMARKS))

import curves  # noqa: E402 - found through the line above
import measure  # noqa: E402
import peers  # noqa: E402
import report  # noqa: E402
from libraries import LIBRARIES  # noqa: E402
from tasks import BINARY, NUMBERS, SEVERAL, TASKS  # noqa: E402


def record(library, total, predict=(0.1,), difference=0.0, error=0.0, **others):
    return {
        "task": "higgs-7k", "library": library, "threads": 2, "run": "today", "total_s": list(total), "predict_s": list(predict),
        "row_us": 10.0, "peak_mb": 50.0, "quality": {"logloss": [0.5, 0.4, 0.6]},
        "gap": {"difference": difference, "error": error, "best": "lightgbm"}, **others,
    }  # fmt: skip


GROUP = [
    record("gpuboost", (3.0, 1.0, 2.0), predict=(0.2,), difference=0.010, error=0.001, binning_s=[0.5, 0.1, 0.3]),
    record("xgboost", (4.0, 4.0, 5.0), difference=0.001, error=0.002),
    record("lightgbm", (1.0, 6.0, 3.0), predict=(0.4,)),
    record("catboost", (0.5, 0.5, 0.5)),
    {"task": "higgs-7k", "library": "sklearn", "threads": 2, "run": "today", "left_out": "is ill"},
]


@pytest.mark.parametrize("place, expected", [(0, 2 / 3), (1, 4 / 3), (2, 1.0), (3, 0.5 / 3)])
def test_ratio_is_that_of_medians_to_the_faster_rival(place, expected):
    """CatBoost, the fastest here, is no rival."""
    assert report.ratio(GROUP[place], GROUP, "total_s") == pytest.approx(expected)


def test_ratio_needs_both_sides():
    assert report.ratio(GROUP[0], GROUP, "binning_s") is None  # no rival has it
    assert report.ratio(GROUP[0], GROUP[:1], "total_s") is None
    assert report.ratio(GROUP[4], GROUP, "total_s") is None
    assert report.ratio(GROUP[0], [record("xgboost", (0.0,))], "total_s") is None


def test_losses_are_named():
    assert report.losses_of(GROUP[0], GROUP) == ["predict 2.00×", "quality by 10.0 standard errors"]  # Student: 9.92
    within_noise = record("gpuboost", (3.1, 3.1, 3.1), difference=0.0098, error=0.001)
    assert report.losses_of(within_noise, [within_noise, *GROUP[1:]]) == []  # 3.1 s against 3.0 is close
    tiny = record("gpuboost", (1.0,), difference=1e-6, error=1e-9)
    assert report.losses_of(tiny, [tiny, *GROUP[1:]]) == []


def test_page_tells_every_library():
    document = peers.merge({}, {"date": "today", "cpu": "a", "cores": 2, "platform": "b", "python": "c", "commit": "d" * 40,
                                "uncommitted_changes": False, "versions": {}}, TASKS["higgs-7k"], GROUP)  # fmt: skip
    page = report.page(document)
    assert "| higgs-7k | 7,000 × 28, 100 rounds, depth 6 | 2.00 | 4.00 | 3.00 | **0.50** | – | 1.50× | predict 2.00×; " in page
    assert "| higgs-7k | sklearn | is ill |" in page
    assert "+0.01000 ± 0.00100" in page


def test_plots_are_drawn(tmp_path):
    pytest.importorskip("matplotlib")
    records = [{**r, "task": task, "threads": 2} for task in ("higgs-7k", "higgs-2m") for r in GROUP]
    files = report.plot({"records": records, "tasks": {name: task.describe() for name, task in TASKS.items()}}, tmp_path)
    assert [file.name for file in files] == ["peers-rows.png", "peers-quality.png"]
    assert all(file.stat().st_size > 5000 for file in files)


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


def test_gap_is_paired():
    """Losses of both rise and fall together: their difference is known better than either."""
    best, worse = np.array([1.0, 9.0, 1.0, 9.0]), np.array([1.5, 9.0, 1.5, 9.0])
    gaps = measure.quality_gaps({"a": [worse], "b": [best]})
    assert gaps["b"] == {"difference": 0.0, "error": 0.0, "best": "b"}
    assert gaps["a"] == {"difference": pytest.approx(0.25), "error": pytest.approx(0.25 / math.sqrt(4)), "best": "b"}
    roots = measure.quality_gaps({"a": [worse], "b": [best]}, is_root=True)["a"]
    assert roots["difference"] == pytest.approx(math.sqrt(5.25) - math.sqrt(5.0))


def test_gap_knows_the_spread_of_repeats():
    """0.1, 0.2 and 0.6 more in every row: nothing from the rows, all from the repeats."""
    best = [np.array([1.0, 2.0]), np.array([3.0, 1.0]), np.array([2.0, 2.0])]
    gap = measure.quality_gaps({"a": [loss + d for loss, d in zip(best, (0.1, 0.2, 0.6))], "b": best})["a"]
    assert gap["difference"] == pytest.approx(0.3)
    assert gap["error"] == pytest.approx(math.sqrt((0.2**2 + 0.1**2 + 0.3**2) / 2) / math.sqrt(3))


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


def test_command_measures_a_tiny_table(tmp_path):
    names = [name for name in ("gpuboost", "xgboost") if find_spec(name)]
    command = [sys.executable, str(BENCHMARKS / "peers.py"), "--tasks", "covertype-200k", "--rows", "1000", "--rounds", "3"]
    command += ["--repeats", "2", "--threads", "1", "--libraries", *names, "--results", str(tmp_path)]
    path = os.pathsep.join([str(BENCHMARKS.parent), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": path})
    document = json.loads((tmp_path / "peers.json").read_text())
    assert [r["library"] for r in document["records"]] == names
    for r in document["records"]:
        assert len(r["total_s"]) == len(r["predict_s"]) == 2 and min(r["total_s"]) > 0 and r["row_us"] > 0
        assert r["total_s"] == pytest.approx(np.add(r["binning_s"], r["training_s"]))
        assert 0 < max(r["quality"]["mlogloss"]) < math.log(7)  # better than guessing
    assert (tmp_path / "peers.md").read_text() == done.stdout.rstrip("\n") + "\n"


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
