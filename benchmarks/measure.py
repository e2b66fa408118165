"""Libraries in turns, each in a process of its own: time, memory and quality; and what every benchmark records.

A library has its own process because OpenMP runtimes that share one slow each other down, and because memory is measured per
process. One library works at a time. After a warm-up of two rounds they take turns, the order reversed in every other one.
"""

import ctypes
import gc
import json
import multiprocessing
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
from libraries import LIBRARIES, Library, installed
from tasks import BINARY, NUMBERS, SEED, Task

ROOT = Path(__file__).resolve().parent.parent
RESULTS = Path(__file__).resolve().parent / "results"
WARM_UP_ROUNDS = 2
WARM_UP_CALLS, CALLS, CALLS_S = 20, 1000, 1.0  # of one row; at most that many seconds
PAUSE_S = 0.05  # before a turn: the threads of the last one may still spin


# --- One library at work ---


class Workplace:
    """A library and a task's tables, in its form."""

    def __init__(self, library: Library, task: Task) -> None:
        self.library, self.task = library, task
        x, self.y, test_x, self.test_y = task.tables()
        self.x, self.test_x = library.form(x), library.form(test_x)
        self.model: Any = None
        self.prediction = np.empty(0)

    def warm_up(self, n_threads: int) -> dict[str, Any]:
        task = replace(self.task, n_rounds=WARM_UP_ROUNDS)
        model = self.library.train(self.library.bin_table(self.x, self.y, task, n_threads), task, n_threads)
        self.library.predict(model, self.test_x, task, n_threads)
        return {}

    def take_turn(self, n_threads: int) -> dict[str, Any]:
        """Seconds of binning, training and predicting the test rows; MB of memory above what was there before."""
        self.model = None
        gc.collect()
        before = forget_peak_mb()
        begin, begin_cpu = time.perf_counter(), time.process_time()
        data = self.library.bin_table(self.x, self.y, self.task, n_threads)
        binned = time.perf_counter()
        self.model = self.library.train(data, self.task, n_threads)
        trained, cpu = time.perf_counter(), time.process_time() - begin_cpu
        peak = memory_mb("VmHWM") - before
        del data
        begin_prediction = time.perf_counter()
        self.prediction = self.library.predict(self.model, self.test_x, self.task, n_threads)
        predict_s = time.perf_counter() - begin_prediction
        seconds = {"total_s": trained - begin, "cpu_s": cpu, "predict_s": predict_s, "peak_mb": peak}
        if self.library.bins_apart:
            seconds |= {"binning_s": binned - begin, "training_s": trained - binned}
        return seconds

    def examine(self) -> dict[str, Any]:
        """Of the last turn's model: quality, the loss of every test row, and µs for one row with one thread."""
        metrics, losses = score(self.prediction, self.test_y, self.task)
        return {"quality": metrics, "losses": losses, "row_us": self.time_rows(), "table_mb": n_bytes(self.x) / 1e6}

    def time_rows(self) -> float:
        rows = [self.test_x[i : i + 1] for i in range(min(CALLS, self.task.test_rows))]
        seconds, end = [], time.perf_counter() + CALLS_S
        for i in range(WARM_UP_CALLS + CALLS):
            begin = time.perf_counter()
            if begin > end and i > WARM_UP_CALLS:
                break
            self.library.predict(self.model, rows[i % len(rows)], self.task, 1)
            seconds.append(time.perf_counter() - begin)
        return 1e6 * float(np.median(seconds[WARM_UP_CALLS:]))


def n_bytes(x: Any) -> int:
    return sum(a.nbytes for a in ((x,) if isinstance(x, np.ndarray) else (x.data, x.indices, x.indptr)))


def forget_peak_mb() -> float:
    """Resident MB now, from which VmHWM starts anew. Linux only, elsewhere NaN; getrusage's peak would include the import."""
    if not Path("/proc/self/clear_refs").exists():
        return float("nan")
    ctypes.CDLL(None).malloc_trim(0)  # what warm-up and earlier turns have freed
    Path("/proc/self/clear_refs").write_text("5")
    return memory_mb("VmRSS")


def memory_mb(field: str) -> float:
    status = Path("/proc/self/status")
    lines = status.read_text().splitlines() if status.exists() else []
    return next((int(line.split()[1]) * 1024 / 1e6 for line in lines if line.startswith(field)), float("nan"))


def score(prediction: np.ndarray, label: np.ndarray, task: Task) -> tuple[dict[str, float], np.ndarray]:
    """Metrics by name, the first the mean of losses (or its root), and losses : float64 (n_rows,)."""
    prediction = np.asarray(prediction, np.float64)
    if task.objective == NUMBERS:
        error = prediction - label
        return {"rmse": float(np.sqrt(np.mean(error**2))), "mae": float(np.mean(np.abs(error)))}, error**2
    if task.objective == BINARY:
        losses = -np.log(np.clip(np.where(label > 0, prediction, 1 - prediction), 1e-7, 1))
        return {"logloss": float(losses.mean()), "auc": auc(prediction, label)}, losses
    losses = -np.log(np.clip(prediction[np.arange(len(label)), label.astype(int)], 1e-7, 1))
    return {"mlogloss": float(losses.mean()), "error": float(np.mean(prediction.argmax(1) != label))}, losses


def auc(prediction: np.ndarray, label: np.ndarray) -> float:
    from scipy.stats import rankdata

    positive = label > 0
    n_pairs = positive.sum() * (~positive).sum()
    return float((rankdata(prediction)[positive].sum() - positive.sum() * (positive.sum() + 1) / 2) / n_pairs)


# --- Libraries in turns ---


class Worker:
    """A Workplace in a process of its own, for a with statement. ask raises RuntimeError with what went wrong there."""

    def __init__(self, library: Library, task: Task) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, other = context.Pipe()
        self.process = context.Process(target=serve, args=(other, library, task), daemon=True)

    def __enter__(self) -> "Worker":
        self.process.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self.process.kill()
        self.process.join()

    def ask(self, method: str, *arguments: Any) -> dict[str, Any]:
        self.pipe.send((method, arguments))
        while not self.pipe.poll(1):
            if not self.process.is_alive():
                raise RuntimeError(f"its process ended with status {self.process.exitcode}")
        answer = self.pipe.recv()
        if isinstance(answer, str):
            raise RuntimeError(answer)
        return answer


def serve(pipe: Any, library: Library, task: Task) -> None:
    workplace = Workplace(library, task)
    while True:
        method, arguments = pipe.recv()
        try:
            pipe.send(getattr(workplace, method)(*arguments))
        except Exception as error:
            pipe.send(f"{type(error).__name__}: {error}")


def compare(task: Task, libraries: dict[str, Library], threads: list[int], repeats: int) -> list[dict[str, Any]]:
    """One record for each library and number of threads; of a library that lacks something or fails, one with the reason."""
    out = {name: reason for name, library in libraries.items() if (reason := library.lacks(task))}
    records = []
    with ExitStack() as stack:
        workers = {name: stack.enter_context(Worker(library, task)) for name, library in libraries.items() if name not in out}
        for n_threads in threads:
            turns: dict[str, list[dict[str, Any]]] = {name: [] for name in workers}
            found = {}

            def ask(name: str, method: str, *arguments: Any) -> dict[str, Any] | None:
                if name in out:
                    return None
                try:
                    return workers[name].ask(method, *arguments)
                except RuntimeError as error:
                    out[name] = str(error)
                    return None

            for name in workers:
                ask(name, "warm_up", n_threads)
            for repeat in range(repeats):
                for name in list(workers)[:: 1 if repeat % 2 == 0 else -1]:
                    time.sleep(PAUSE_S)
                    if turn := ask(name, "take_turn", n_threads):
                        turns[name].append(turn)
            for name in workers:
                if answer := ask(name, "examine"):
                    found[name] = answer
            gaps = quality_gaps({name: f.pop("losses") for name, f in found.items()}, is_root=task.objective == NUMBERS)
            for name, figures in found.items():
                lists = {key: [turn[key] for turn in turns[name]] for key in turns[name][0] if key != "peak_mb"}
                # The first turn's peak: later ones find memory that is kept.
                record = {"task": task.name, "library": name, "threads": n_threads, **lists, "peak_mb": turns[name][0]["peak_mb"]}
                records.append(record | figures | {"gap": gaps[name]})
    records += [{"task": task.name, "library": name, "threads": n, "left_out": why} for name, why in out.items() for n in threads]
    return records


def quality_gaps(losses: dict[str, np.ndarray], is_root: bool = False) -> dict[str, dict[str, float]]:
    """How much worse than the best each mean loss is, and the standard error of that from the pairs of losses of a test row.

    is_root : of root mean losses. Their difference is that of the means over the sum of the roots.
    """
    means = {name: values.mean() for name, values in losses.items()}
    best = min(means, key=means.__getitem__, default="")
    gaps = {}
    for name, values in losses.items():
        difference = values - losses[best]
        unit = np.sqrt(means[name]) + np.sqrt(means[best]) if is_root else 1.0
        error = difference.std() / np.sqrt(len(difference))
        gaps[name] = {"difference": float(difference.mean() / unit), "error": float(error / unit)}
    return gaps


def seconds_in_turns(ways: dict[str, Callable[[], Any]], repeats: int) -> dict[str, list[tuple[float, float]]]:
    """Seconds of each way and repeat, on the clock and of all cores, in this process after a warm-up, in turns."""
    seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    for call in ways.values():
        call()
    for repeat in range(repeats):
        for name in list(ways)[:: 1 if repeat % 2 == 0 else -1]:
            begin = time.perf_counter(), time.process_time()
            ways[name]()
            seconds[name].append((time.perf_counter() - begin[0], time.process_time() - begin[1]))
    return seconds


# --- What every benchmark records ---


def describe_machine() -> dict[str, Any]:
    cpu = platform.processor()
    if Path("/proc/cpuinfo").exists():
        names = [line.split(":", 1)[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")]
        cpu = names[0] if names else cpu
    git = lambda *command: subprocess.run(["git", "-C", str(ROOT), *command], capture_output=True, text=True).stdout.strip()
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"), "commit": git("rev-parse", "HEAD"),
        "uncommitted_changes": bool(git("status", "--porcelain")), "cpu": cpu, "cores": os.cpu_count(),
        "platform": f"{platform.system()} {platform.machine()}", "python": platform.python_version(), "seed": SEED,
        "versions": {name: version_of(name) for name in (*installed(list(LIBRARIES)), "numpy", "scipy", "numba")},
    }  # fmt: skip


def version_of(module: str) -> str:
    """Without importing it, which would load its OpenMP runtime; but gpuboost may lie there without being installed."""
    if module == "gpuboost":
        return __import__(module).__version__
    return metadata.version(metadata.packages_distributions()[module][0])


def write_record(name: str, record: dict[str, Any]) -> Path:
    """To results/name-date.json, with the machine."""
    machine = describe_machine()
    RESULTS.mkdir(exist_ok=True)
    file = RESULTS / f"{name}-{machine['date'].replace(':', '').replace('+0000', 'Z')}.json"
    file.write_text(json.dumps({"machine": machine, **record}, indent=1) + "\n")
    print(f"\n{file.relative_to(ROOT)}", file=sys.stderr)
    return file
