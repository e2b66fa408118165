"""How often training on pages in files goes over them: gpuboost and XGBoost's ExtMemQuantileDMatrix, counted by strace.

    python benchmarks/external_passes.py [--rows 600000] [--rounds 3] [--ways files,xgboost]

The tables are those of external.py, in batches of 100,000 rows. gpuboost reads its files, XGBoost maps them, and what is mapped
need not be read: bytes of either, a row and tree, from the beginning of training on, and how often that is what the files hold.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import external
from measure import write_record

MARK = "training-begins"  # a file that nobody has, which is looked for when training begins
PAGES = re.compile(r"\.(array|page)$")


def train(way: str, rows: int, rounds: int, folder: str) -> None:
    external.BATCH_ROWS = 100_000
    library: Any = __import__("xgboost" if way == "xgboost" else "gpuboost")
    own = {} if way == "xgboost" else {"cache_memory": 0}
    matrix = library.ExtMemQuantileDMatrix(external.stream(library, rows, folder), max_bin=256, nthread=2, **own)
    print(sum(file.stat().st_size for file in Path(folder).rglob("*") if PAGES.search(file.name)), flush=True)
    os.path.exists(MARK)
    library.train({**external.PARAMS, "nthread": 2}, matrix, rounds)


def bytes_asked_for(folder: Path) -> int:
    """What the threads read or mapped of pages after the mark, by a trace of each."""
    traces = [path.read_text(errors="replace").splitlines() for path in folder.iterdir()]
    begin = max(float(line.split()[0]) for trace in traces for line in trace if MARK in line)
    total = 0
    for trace in traces:
        pages: dict[str, bool] = {}  # by descriptor
        for line in trace:
            if found := re.search(r'openat\([^"]*"([^"]*)".* = (\d+)', line):
                pages[found[2]] = bool(PAGES.search(found[1]))
            elif float(line.split()[0]) < begin:
                continue
            elif (found := re.search(r" read\((\d+),.* = (\d+)$", line)) and pages.get(found[1]):
                total += int(found[2])
            elif (found := re.search(r"mmap\(NULL, (\d+), \S+ \S+ (\d+),", line)) and pages.get(found[2]):
                total += int(found[1])
    return total


def count(way: str, rows: int, rounds: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        cache, traces = Path(folder) / "cache", Path(folder) / "traces"
        cache.mkdir(), traces.mkdir()
        command = ["strace", "-ff", "-ttt", "-e", "trace=openat,read,mmap,stat,newfstatat", "-o", str(traces / "thread")]
        own = [sys.executable, __file__, "--rows", str(rows), "--rounds", str(rounds), "--train", way, str(cache)]
        held = int(subprocess.run([*command, *own], check=True, stdout=subprocess.PIPE, text=True).stdout.split()[0])
        asked = bytes_asked_for(traces) / rounds
    return {"file_bytes_a_row": held / rows, "asked_bytes_a_row_and_tree": asked / rows, "times_the_files": asked / held}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=600_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--ways", default="files,xgboost")
    parser.add_argument("--train", nargs=2, metavar=("WAY", "FOLDER"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.train:
        train(options.train[0], options.rows, options.rounds, options.train[1])
        return
    found = {way: count(way, options.rows, options.rounds) for way in options.ways.split(",")}
    for way, figures in found.items():
        print(way, json.dumps({name: round(value, 2) for name, value in figures.items()}), flush=True)
    size = {"rows": options.rows, "columns": external.COLUMNS, "rounds": options.rounds}
    print("written", write_record("external-passes", {**size, "params": external.PARAMS, "found": found}))


if __name__ == "__main__":
    main()
