"""What the benchmarks of the CPU kernels share: workloads, a stopwatch on every call of a kernel, and the table.

A workload (a training, a prediction, …) runs as users run it, and each call of a kernel in it is timed where it happens: on nodes
of real sizes, with the caches as the kernels before left them. Beside the time stands the floor of the same call, from its
arguments and the ceilings of this machine (ceilings.py). With one thread the times are those of the thread, which other work on
the machine disturbs less; else those of the clock. Medians of some passes after a warm-up.

    ms        for one tree, table or batch, whichever the workload makes     ns        for one unit of work
    starts    of ``ms``: parallel regions that would take so long empty      ×         ms over its floor

All kernels: python benchmarks/bench_kernels.py. One of them: python benchmarks/bench_histogram.py --threads 1 2.
"""

import argparse
import inspect
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
from ceilings import Ceilings
from libraries import xgboost_params
from measure import write_record
from tasks import SEED, TASKS

import gpuboost as gb
from gpuboost.backend import CpuBackend
from gpuboost.backend.cpu import trees as cpu_trees
from gpuboost.communicator import SingleProcess
from gpuboost.data.sketch import sketch_columns
from gpuboost.data.tables.open import open_table
from gpuboost.kernels.jit import parallel_kernel

# --- Kernels and their floors ---


@dataclass(frozen=True)
class Kernel:
    """name : of the function. unit : what ``work`` counts.
    work : (arguments of a call by name, ceilings) -> (units, nanoseconds at the ceilings).
    obstacle : what stands in the way of the floor.
    workloads : where it is timed.
    owner : module or class that callers take it from; None for a parallel kernel, which is caught wherever it is called.
    """

    name: str
    unit: str
    work: Callable[[Any, Ceilings], tuple[float, float]]
    obstacle: str
    workloads: tuple[str, ...]
    owner: Any = None


@dataclass
class Calls:
    """What a kernel did in a pass."""

    seconds: float = 0.0
    n: int = 0
    units: float = 0.0
    floor: float = 0.0  # nanoseconds


@dataclass
class Pass:
    seconds: float = 0.0  # of all, without what the stopwatch itself took
    calls: dict[str, Calls] = field(default_factory=dict)


@contextmanager
def stopwatch(kernels: Sequence[Kernel], ceilings: Ceilings | None, threads: int, passed: Pass) -> Iterator[None]:
    """Adds every call of a parallel kernel, and of the others among ``kernels``, to passed.calls; without ceilings no floors."""
    clock = time.thread_time if threads == 1 else time.perf_counter
    by_name, own_seconds, run = {kernel.name: kernel for kernel in kernels}, 0.0, parallel_kernel.__call__

    def timed(name: str, function: Callable[..., Any], names: list[str], *args: Any) -> Any:
        nonlocal own_seconds
        entered = clock()
        calls, kernel = passed.calls.setdefault(name, Calls()), by_name.get(name)
        if kernel is not None and ceilings is not None:
            units, floor = kernel.work(SimpleNamespace(**dict(zip(names, args))), ceilings)
            calls.units, calls.floor = calls.units + units, calls.floor + floor
        begin = clock()
        own_seconds += begin - entered
        result = function(*args)
        calls.seconds += clock() - begin
        calls.n += 1
        return result

    own = {kernel.name: (kernel.owner, getattr(kernel.owner, kernel.name)) for kernel in kernels if kernel.owner is not None}
    parallel_kernel.__call__ = lambda self, *args: timed(self.__name__, lambda *a: run(self, *a), parameters(self), *args)
    for name, (owner, function) in own.items():
        setattr(owner, name, lambda *args, name=name, f=function: timed(name, f, parameters(f), *args))
    begin = clock()
    try:
        yield
        passed.seconds = clock() - begin - own_seconds
    finally:
        parallel_kernel.__call__ = run
        for name, (owner, function) in own.items():
            setattr(owner, name, function)


@cache
def parameters(function: Any) -> list[str]:
    return list(inspect.signature(getattr(function, "py_func", function)).parameters)


# --- Workloads ---


@dataclass(frozen=True)
class Workload:
    """prepare : (threads) -> what one pass calls. n : how many of ``per`` a pass makes."""

    prepare: Callable[[int], Callable[[], Any]]
    per: str
    n: int = 1


@cache
def table(task: str) -> tuple[Any, np.ndarray]:
    chosen = TASKS[task]
    return chosen.make(np.random.default_rng(SEED), chosen.n_rows)


def binning(task: str) -> Workload:
    return Workload(lambda threads: lambda: gb.QuantileDMatrix(*table(task), nthread=threads), "table")


def counting(task: str) -> Workload:
    """The cuts as several workers and devices find them."""

    def prepare(threads: int) -> Callable[[], Any]:
        backend, source = CpuBackend(threads), open_table(table(task)[0])
        backend.coder.sorts_columns = False
        return lambda: sketch_columns(source, None, 256, backend, SingleProcess())

    return Workload(prepare, "table")


def training(task: str, rounds: int, **params: Any) -> Workload:
    """Step by step, so that every kernel is called by itself (kernels/whole_trees.py calls them all at once)."""

    def prepare(threads: int) -> Callable[[], Any]:
        cpu_trees.WHOLE_MEMORY = 0
        matrix = gb.DMatrix if params.get("tree_method") == "exact" else gb.QuantileDMatrix
        data = matrix(*table(task), nthread=threads, **{k: v for k, v in params.items() if k == "max_bin"})
        return lambda: gb.train({**xgboost_params(TASKS["higgs-450k"], threads), **params}, data, rounds)

    return Workload(prepare, "tree", rounds)


@cache
def model(task: str = "higgs-7k") -> Any:
    """100 trees of depth 6."""
    return gb.train(xgboost_params(TASKS[task], 1), gb.QuantileDMatrix(*table(task)), 100)


def predicting(task: str, by_codes: bool = False, trained: str = "higgs-7k") -> Workload:
    def prepare(threads: int) -> Callable[[], Any]:
        x, _ = table(task)
        booster = model(trained).copy()
        booster.set_param({"nthread": threads})
        if not by_codes:
            return lambda: booster.inplace_predict(x)
        data = gb.QuantileDMatrix(x, ref=gb.QuantileDMatrix(*table("higgs-7k")), nthread=threads)
        return lambda: booster.copy().predict(data)  # which keeps no margins of the last time

    return Workload(prepare, "batch")


def one_row(threads: int) -> Callable[[], Any]:
    booster, row = model(), table("higgs-7k")[0][:1]
    return lambda: [booster.inplace_predict(row) for _ in range(1000)]


HALF = {"subsample": 0.5, "sampling_method": "gradient_based", "colsample_bytree": 0.5}
WORKLOADS = {
    "binning 450k": binning("higgs-450k"),
    "binning 7k": binning("higgs-7k"),
    "binning covertype": binning("covertype-200k"),
    "counting 450k": counting("higgs-450k"),
    "counting 7k": counting("higgs-7k"),
    "training 450k": training("higgs-450k", 10),
    "training 7k": training("higgs-7k", 30),
    "half of rows, columns": training("higgs-450k", 10, **HALF),
    "exact 450k": training("higgs-450k", 2, tree_method="exact"),
    "sparse numbers": training("sparse-200k", 3, max_bin=32),
    "one-hot, packed": training("one-hot-500k", 5),
    "binning one-hot": binning("one-hot-500k"),
    "predicting values": predicting("higgs-450k"),
    "predicting codes": predicting("higgs-450k", by_codes=True),
    "predicting one-hot": predicting("one-hot-500k", trained="one-hot-500k"),
    "one row": Workload(one_row, "row", 1000),
}
DENSE = ("training 450k", "training 7k")


# --- Measuring ---


def measure(workload: str, kernels: Sequence[Kernel], ceilings: Ceilings, repeats: int) -> list[dict[str, Any]]:
    """One record for each kernel of the workload, the one that takes longest first, and one for all else in it."""
    work, threads = WORKLOADS[workload], ceilings.threads
    run, passes = work.prepare(threads), [Pass() for _ in range(repeats)]
    first = Pass()
    run()  # compiles
    with stopwatch(kernels, ceilings, threads, first):  # measures the ceilings, and the floors
        run()
    for one in passes:
        with stopwatch(kernels, None, threads, one):
            run()
    shared = {"workload": workload, "per": work.per, "threads": threads}
    records = []
    for kernel in kernels:
        if workload in kernel.workloads:
            if (calls := first.calls.get(kernel.name)) is None:
                raise ValueError(f"{workload} never calls {kernel.name}: name another workload in its benchmark")
            records.append(shared | {
                "kernel": kernel.name, "unit": kernel.unit, "units": calls.units / work.n, "calls": calls.n / work.n,
                "ms": [1000 * one.calls[kernel.name].seconds / work.n for one in passes], "floor_ms": calls.floor / 1e6 / work.n,
                "starts_ms": 0.0 if kernel.owner else ceilings.start() * calls.n / 1e6 / work.n, "obstacle": kernel.obstacle,
            })  # fmt: skip
    records.sort(key=lambda r: -np.median(r["ms"]))
    rest = [1000 * (one.seconds - sum(calls.seconds for calls in one.calls.values())) / work.n for one in passes]
    others = sorted(first.calls.keys() - {r["kernel"] for r in records})
    timed = [1000 * sum(one.calls[name].seconds for name in others) / work.n for one in passes]
    if others:
        records.append(shared | {"kernel": "other kernels", "names": others, "ms": timed, "obstacle": ", ".join(others)})
    return [*records, shared | {"kernel": "all else", "ms": rest, "obstacle": "Python, NumPy, kernels of one thread"}]


_told: set[str] = set()
HEADER = "| workload | threads | kernel | calls | ms | unit | ns | floor ms | × | starts ms | in the way |\n" + 11 * "|---" + "|"


def report(records: list[dict[str, Any]]) -> None:
    """Says only once what stands in the way of a kernel."""
    for r in records:
        obstacle = r["obstacle"] if r.get("obstacle") not in _told else ""
        _told.add(obstacle)
        ms, cells = float(np.median(r["ms"])), [""] * 5
        if "units" in r:
            floor = r["floor_ms"]
            cells = [r["unit"], f"{1e6 * ms / r['units']:.2f}", f"{floor:.4g}", f"{ms / floor:.1f}", f"{r['starts_ms']:.2f}"]
        calls, per = f"{r['calls']:.4g}" if "calls" in r else "", f"{r['workload']}, a {r['per']}"
        print(f"| {per} | {r['threads']} | {r['kernel']} | {calls} | {ms:.4g} | " + " | ".join(cells) + f" | {obstacle} |")


def main(
    kind: str, description: str | None, kernels: Sequence[Kernel], compare: Callable[[], dict[str, Any]] | None = None
) -> None:
    """The command line of a benchmark. kind : in the name of its file of results. compare : prints more, and returns it."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    used = [name for name in WORKLOADS if any(name in kernel.workloads for kernel in kernels)]
    parser.add_argument("--workloads", nargs="+", default=used, choices=used)
    parser.add_argument("--threads", type=int, nargs="+", default=[1])
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    records, ceilings = [], [Ceilings(threads) for threads in options.threads]
    print(HEADER)
    for of_threads in ceilings:
        for workload in options.workloads:
            records += (new := measure(workload, kernels, of_threads, options.repeats))
            report(new)
    print("\nCeilings, nanoseconds:")
    for of_threads in ceilings:
        for name, ns in of_threads.measured.items():
            print(f"    {ns:10.4f}  {name}, measured for {of_threads.threads} threads")
    compared = compare() if compare else {}
    measured = {str(of_threads.threads): of_threads.measured for of_threads in ceilings}
    write_record(kind, {"ceilings_ns": measured, "records": records, **compared})
