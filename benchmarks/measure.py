"""Libraries in turns, each in a process of its own: time and memory; and what every benchmark records.

A library has its own process because OpenMP runtimes that share one slow each other down, and because memory is measured per
process. One library works at a time. After a warm-up of two rounds they take turns, the order reversed in every other repeat,
all with the same table.
"""

import ctypes
import gc
import json
import math
import multiprocessing
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress
from dataclasses import replace
from datetime import UTC, datetime
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

import numpy as np
from libraries import LIBRARIES, Library, installed
from tasks import BINARY, NUMBERS, SEED, Task

ROOT = Path(__file__).resolve().parent.parent
RESULTS = Path(__file__).resolve().parent / "results"
WARM_UP_ROUNDS = 2
WARM_UP_CALLS, CALLS, CALLS_S = 20, 1000, 1.0  # of one row; at most that many seconds
MOST_TURNS = 20
PAUSE_S = 0.05  # before a turn: the threads of the last one may still spin


# --- One library at work ---


class Workplace:
    """A library, and the tables of a task in the library's form."""

    def __init__(self, library: Library, task: Task) -> None:
        self.library, self.task = library, task
        self.model: Any = None

    def draw(self, seed: int) -> dict[str, Any]:
        x, self.y, test_x, self.test_y = self.task.tables(seed)
        self.x, self.test_x = self.library.form(x), self.library.form(test_x)
        return {}

    def warm_up(self, n_threads: int) -> dict[str, Any]:
        """Raises RuntimeError where it learns nothing: that takes no time, either."""
        task = replace(self.task, n_rounds=WARM_UP_ROUNDS)
        model = self.library.train(self.library.bin_table(self.x, self.y, task, n_threads), task, n_threads)
        if not np.ptp(self.library.predict(model, self.test_x, task, n_threads), axis=0).any():
            raise RuntimeError("learns nothing: predicts the same for every row")
        return {}

    def take_turn(self, n_threads: int) -> dict[str, Any]:
        """Seconds of binning, training and predicting the test rows, MB of memory above what was there before, and quality."""
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
        prediction = self.library.predict(self.model, self.test_x, self.task, n_threads)
        predict_s = time.perf_counter() - begin_prediction
        figures = {"total_s": trained - begin, "cpu_s": cpu, "predict_s": predict_s, "peak_mb": peak}
        if self.library.bins_apart:
            figures |= {"binning_s": binned - begin, "training_s": trained - binned}
        return {"figures": figures, "quality": score(prediction, self.test_y, self.task)[0]}

    def score_draws(self, seeds: list[int], n_threads: int) -> dict[str, list[float]]:
        """Metrics by name, for each seed those of a model and test rows of its own draw."""
        metrics: dict[str, list[float]] = {}
        for seed in seeds:
            self.draw(seed)
            model = self.library.train(self.library.bin_table(self.x, self.y, self.task, n_threads), self.task, n_threads)
            prediction = self.library.predict(model, self.test_x, self.task, n_threads)
            for metric, value in score(prediction, self.test_y, self.task)[0].items():
                metrics.setdefault(metric, []).append(value)
        return metrics

    def examine(self) -> dict[str, Any]:
        """µs of one row with one thread, with the last turn's model."""
        return {"row_us": self.time_rows(), "table_mb": n_bytes(self.x) / 1e6}

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


def import_from(module: str, path: str) -> None:
    """Raises RuntimeError where it is imported already, from elsewhere."""
    sys.path.insert(0, path)
    found = import_module(module).__file__ or ""
    if not Path(found).resolve().is_relative_to(Path(path).resolve()):
        raise RuntimeError(f"{module} was imported from {found}, not from {path}.")


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
    """A Workplace in a process of its own, for a with statement: tell it to do something, and hear what came of it."""

    def __init__(self, library: Library, task: Task) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, self.other = context.Pipe()
        self.process = context.Process(target=serve, args=(self.other, library, task), daemon=True)

    def __enter__(self) -> "Worker":
        self.process.start()
        self.other.close()  # so that the end of the process is the end of the pipe
        return self

    def __exit__(self, *_: Any) -> None:
        self.process.kill()
        self.process.join()

    def tell(self, method: str, *arguments: Any) -> None:
        with suppress(OSError):  # its process has ended, as will be heard
            self.pipe.send((method, arguments))

    def hear(self) -> dict[str, Any]:
        """Raises RuntimeError with what went wrong there."""
        try:
            answer = self.pipe.recv()
        except (EOFError, OSError):
            self.process.join()
            answer = f"its process ended with status {self.process.exitcode}"
        if isinstance(answer, str):
            raise RuntimeError(answer)
        return answer


def serve(pipe: Any, library: Library, task: Task) -> None:
    if library.path:
        import_from(library.module, library.path)
    workplace = Workplace(library, task)
    while True:
        method, arguments = pipe.recv()
        try:
            pipe.send(getattr(workplace, method)(*arguments))
        except Exception as error:
            pipe.send(f"{type(error).__name__}: {error}")


class Crew:
    """A Worker for each library that can take part, for a with statement. out : why the others do not, or no longer."""

    def __init__(self, libraries: dict[str, Library], task: Task) -> None:
        self.out = {name: reason for name, library in libraries.items() if (reason := library.lacks(task))}
        self.workers = {name: Worker(library, task) for name, library in libraries.items() if name not in self.out}
        self.stack = ExitStack()

    def __enter__(self) -> "Crew":
        for worker in self.workers.values():
            self.stack.enter_context(worker)
        return self

    def __exit__(self, *_: Any) -> None:
        self.stack.close()

    @property
    def names(self) -> list[str]:
        return [name for name in self.workers if name not in self.out]

    def ask(self, names: Iterable[str], method: str, *arguments: Any) -> dict[str, Any]:
        """Answers, for which they work at the same time; who fails is out."""
        names, answers = [name for name in names if name not in self.out], {}
        for name in names:
            self.workers[name].tell(method, *arguments)
        for name in names:
            try:
                answers[name] = self.workers[name].hear()
            except RuntimeError as error:
                self.out[name] = str(error)
        return answers


def is_enough(seconds: list[float], repeats: int, least_s: float, most_s: float) -> bool:
    """Whether the turns are as many as repeats, and more (up to 20) until they took least_s; or fewer that took most_s."""
    if len(seconds) < repeats:
        return len(seconds) > 0 and sum(seconds) >= most_s
    return sum(seconds) >= least_s or len(seconds) >= MOST_TURNS


def compare(
    task: Task, libraries: dict[str, Library], threads: list[int], repeats: int, least_s: float = 0.0, most_s: float = math.inf
) -> list[dict[str, Any]]:
    """One record for each library and number of threads; of a library that lacks something or fails, one with the reason."""
    turns: dict[tuple[str, int], list[dict[str, Any]]] = {(name, n): [] for name in libraries for n in threads}

    def in_need(name: str, n_threads: int) -> bool:
        return not is_enough([turn["figures"]["total_s"] for turn in turns[name, n_threads]], repeats, least_s, most_s)

    with Crew(libraries, task) as crew:
        crew.ask(crew.names, "draw", SEED)
        for n_threads in sorted(threads, reverse=True):  # the most first, as threads are started then
            for name in crew.names:
                crew.ask([name], "warm_up", n_threads)
        for n_threads in threads:
            is_even = True
            while waiting := [name for name in crew.names if in_need(name, n_threads)]:
                for name in waiting[:: 1 if is_even else -1]:
                    time.sleep(PAUSE_S)
                    for turn in crew.ask([name], "take_turn", n_threads).values():
                        turns[name, n_threads].append(turn)
                is_even = not is_even
        examined = {name: answer for name in crew.names for answer in crew.ask([name], "examine").values()}
    records = []
    for n in threads:
        for name, why in crew.out.items():
            records.append({"task": task.name, "library": name, "threads": n, "left_out": why})
        for name in crew.names:
            lists = {
                kind: {key: [turn[kind][key] for turn in turns[name, n]] for key in turns[name, n][0][kind]}
                for kind in ("figures", "quality")
            }
            figures = lists["figures"] | {"peak_mb": lists["figures"]["peak_mb"][0]}  # later turns find memory that is kept
            record = {"task": task.name, "library": name, "threads": n, **figures, **examined[name]}
            records.append(record | {"quality": lists["quality"]})
    return records


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
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"), **describe_commit(),
        "cpu": cpu, "cores": os.cpu_count(),
        "platform": f"{platform.system()} {platform.machine()}", "python": platform.python_version(), "seed": SEED,
        "versions": versions(),
    }  # fmt: skip


def describe_commit(folder: Path = ROOT) -> dict[str, Any]:
    changes = git(folder, "status", "--porcelain", "--", ".", ":!benchmarks/results")
    return {"commit": git(folder, "rev-parse", "HEAD"), "uncommitted_changes": bool(changes)}


def git(folder: Path, *command: str) -> str:
    """What it prints about the folder; nothing where it cannot tell."""
    try:
        return subprocess.run(["git", "-C", str(folder), *command], capture_output=True, text=True).stdout.strip()
    except OSError:
        return ""


def available_cores() -> int:
    """Those that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def versions() -> dict[str, str]:
    """Without importing the libraries, which would load their OpenMP runtimes; but gpuboost may not be installed."""
    distributions = metadata.packages_distributions()
    names = [name for name in (*installed(list(LIBRARIES)), "numpy", "scipy", "numba") if name != "gpuboost"]
    ours = {"gpuboost": import_module("gpuboost").__version__}
    return ours | {name: metadata.version(distributions[name][0]) for name in names}


def write_record(name: str, record: dict[str, Any], folder: Path = RESULTS) -> Path:
    """To name-date.json, with the machine."""
    machine = describe_machine()
    folder.mkdir(exist_ok=True)
    file = folder / f"{name}-{machine['date'].replace(':', '').replace('+0000', 'Z')}.json"
    file.write_text(json.dumps({"machine": machine, **record}, indent=1) + "\n")
    print(f"\n{os.path.relpath(file)}", file=sys.stderr)
    return file
