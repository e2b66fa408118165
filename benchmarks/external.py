"""Tables larger than memory: streamed training beside training in memory and XGBoost's ExtMemQuantileDMatrix.

    python benchmarks/external.py [--rows 10000000] [--ways memory,files,xgboost] [--turns 3]
    python benchmarks/external.py --rows 40000000 --ways files --memory 1.6      # held to 1.6 GB: see below
    python benchmarks/external.py --rows 40000000 --estimate                     # the formula alone

rows × 28 normal float32 values come from a generator, a batch of 500,000 rows at a time and made anew from the seed, and are
never whole in memory. binary:logistic, depth 6, 10 rounds, 256 bins. Each way runs in a process of its own, in turns:

    memory    QuantileDMatrix of the stream
    held      ExtMemQuantileDMatrix with as much memory as is free
    files     the same with cache_memory=0: every page is read whenever it is needed, as a rule from the system's cache
    xgboost   xgboost.ExtMemQuantileDMatrix of the same stream, its pages in files

Told are seconds to the matrix and of training, the processor's seconds of both (the machine may be shared, which they hardly
notice), the largest resident memory (VmHWM), bytes in files and what was read of them per tree, and the model's digest, which
must be the same for all of ours.

--memory GB : the process joins a control group (memory, version 1 or 2; needs root) whose limit counts the system's cache of
its files, too, so that neither it nor they can take more. Where there are no control groups it says so and stops.

The formula: 28 bytes a row, of margins, labels, gradients, hessians, their fixed point and two lists of rows; while it is
built at most 4 bytes a row of labels and 16 of two columns that are sorted; two buffers for the records or columns of a page,
18 MB each; and what Python with its libraries takes, 0.25 GB.
"""

import argparse
import json
import multiprocessing
import os
import resource
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from measure import available_cores, memory_mb, write_record

COLUMNS, BATCH_ROWS, SEED = 28, 500_000, 7
PARAMS = {"objective": "binary:logistic", "max_depth": 6, "max_bin": 256, "tree_method": "hist", "device": "cpu"}
STATE_BYTES, BUFFERS_BYTES, LIBRARY_BYTES = 28, 36_000_000, 250_000_000
WAYS = ("memory", "held", "files", "xgboost")


def batch(number: int, rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Values and labels of a batch: twelve of the columns matter."""
    rng = np.random.default_rng([SEED, number])
    X = rng.standard_normal((rows, COLUMNS), np.float32)
    signal = X[:, :6] @ np.array([1.0, -0.8, 0.6, 0.5, -0.4, 0.3], np.float32) + X[:, 6] * X[:, 7]
    signal -= np.abs(X[:, 8:12]).sum(axis=1) / 4
    return X, (signal + rng.standard_normal(rows, np.float32) > -0.8).astype(np.float32)


def batches(rows: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    for number, first in enumerate(range(0, rows, BATCH_ROWS)):
        yield batch(number, min(BATCH_ROWS, rows - first))


def stream(library: Any, rows: int, folder: str) -> Any:
    class Generated(library.DataIter):
        def __init__(self) -> None:
            self.left = batches(rows)
            super().__init__(cache_prefix=os.path.join(folder, "cache"))

        def next(self, input_data: Any) -> bool:
            for X, y in self.left:
                input_data(data=X, label=y)
                return True
            return False

        def reset(self) -> None:
            self.left = batches(rows)

    return Generated()


def run(way: str, rows: int, rounds: int, threads: int, folder: str) -> dict[str, Any]:
    """Table to model, once."""
    begin, cpu = time.perf_counter(), time.process_time()
    read = [0]
    if way == "xgboost":
        import xgboost as library

        matrix = library.ExtMemQuantileDMatrix(stream(library, rows, folder), max_bin=PARAMS["max_bin"], nthread=threads)
    else:
        import gpuboost as library
        from gpuboost.storage.array_file import ArrayFile

        fill = ArrayFile._fill

        def counted(self: Any, file: Any, offset: int, target: np.ndarray) -> None:
            read[0] += target.nbytes
            fill(self, file, offset, target)

        ArrayFile._fill = counted
        source = stream(library, rows, folder)
        if way == "memory":
            matrix = library.QuantileDMatrix(source, max_bin=PARAMS["max_bin"], nthread=threads)
        else:
            memory = 0 if way == "files" else None
            matrix = library.ExtMemQuantileDMatrix(source, max_bin=PARAMS["max_bin"], cache_memory=memory, nthread=threads)
    built, built_cpu, read[0] = time.perf_counter(), time.process_time(), 0
    call = {} if way == "xgboost" else {"verbose_eval": False}
    booster = library.train({**PARAMS, "nthread": threads}, matrix, rounds, **call)
    end, end_cpu = time.perf_counter(), time.process_time()
    result = {
        "matrix_s": built - begin, "training_s": end - built, "matrix_cpu_s": built_cpu - cpu,
        "training_cpu_s": end_cpu - built_cpu, "peak_mb": memory_mb("VmHWM"),
        "major_faults": resource.getrusage(resource.RUSAGE_SELF).ru_majflt,
    }  # fmt: skip
    if way != "xgboost":
        from gpuboost.model_io import digest

        result |= {"digest": digest(booster.model), "file_bytes": getattr(matrix, "bytes_in_files", 0)}
        result["bytes_read_per_row_and_tree"] = read[0] / rows / rounds
    return result


def limit_memory(gigabytes: float) -> str:
    """Put this process into a control group of its own with that limit; in words how. Raises SystemExit where that cannot
    be."""
    name, limit = f"gpuboost-{os.getpid()}", int(gigabytes * 1e9)
    for root, file in ((Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes"), (Path("/sys/fs/cgroup"), "memory.max")):
        try:
            group = root / name
            group.mkdir()
            (group / file).write_text(str(limit))
            (group / "cgroup.procs").write_text(str(os.getpid()))
            return f"control group, {file} = {limit}, the system's cache of its files included"
        except OSError:
            continue
    raise SystemExit("--memory needs control groups that this user may make: run as root on Linux.")


def in_own_process(pipe: Any, memory: float | None, *arguments: Any) -> None:
    held = limit_memory(memory) if memory else None
    pipe.send({**run(*arguments), "held_by": held})


def estimate(rows: int) -> float:
    """Bytes of resident memory that training from files takes."""
    return rows * STATE_BYTES + BUFFERS_BYTES + LIBRARY_BYTES


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--threads", type=int, default=available_cores())
    parser.add_argument("--ways", default=",".join(WAYS))
    parser.add_argument("--memory", type=float, help="gigabytes that each process is held to")
    parser.add_argument("--folder", help="for files; by default that for temporary files")
    parser.add_argument("--estimate", action="store_true", help="print the formula's figure and stop")
    options = parser.parse_args()
    print(f"{options.rows} x {COLUMNS}: {estimate(options.rows) / 1e9:.2f} GB of memory by the formula", flush=True)
    if options.estimate:
        return
    ways = options.ways.split(",")
    found: dict[str, list[dict[str, Any]]] = {way: [] for way in ways}
    context = multiprocessing.get_context("spawn")
    for _ in range(options.turns):
        for way in ways:
            with tempfile.TemporaryDirectory(dir=options.folder) as folder:
                ours, theirs = context.Pipe()
                arguments = theirs, options.memory, way, options.rows, options.rounds, options.threads, folder
                process = context.Process(target=in_own_process, args=arguments)
                process.start()
                theirs.close()
                try:
                    result = ours.recv()
                except EOFError:
                    raise SystemExit(f"{way} ended without a result: it may have been killed for its memory.") from None
                process.join()
                for root in (Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")):
                    with suppress(OSError):
                        (root / f"gpuboost-{process.pid}").rmdir()
            found[way].append(result)
            print(way, json.dumps({name: round(v, 3) if isinstance(v, float) else v for name, v in result.items()}), flush=True)
    digests = {result["digest"] for results in found.values() for result in results if "digest" in result}
    if len(digests) > 1:
        raise SystemExit(f"the models differ: {digests}")
    medians = {
        way: {name: median(r[name] for r in results) for name, v in results[0].items() if isinstance(v, int | float)}
        for way, results in found.items()
    }
    record = {
        "rows": options.rows, "columns": COLUMNS, "rounds": options.rounds, "threads": options.threads, "params": PARAMS,
        "memory_gb": options.memory, "formula_bytes": estimate(options.rows), "medians": medians, "turns": found,
    }  # fmt: skip
    print("written", write_record("external", record))


if __name__ == "__main__":
    main()
