"""What a new process takes for its first small model: the import, the training and all of it, with a warm compile cache.

Of each library: python benchmarks/peers.py --startup. Of two commits of gpuboost, too: --against (against.py).
"""

import json
import subprocess
import sys
import time
from importlib import import_module
from typing import Any

from libraries import LIBRARIES
from tasks import STARTUP

KEYS = ("import_s", "fit_s", "process_s")


def start_once(name: str, n_threads: int, path: str = "") -> dict[str, float]:
    """Seconds of a new process, and in it of the import and of the first small model. path : as Library.path."""
    start = time.perf_counter()
    done = subprocess.run([sys.executable, __file__, name, str(n_threads), path], check=True, stdout=subprocess.PIPE, text=True)
    return {**json.loads(done.stdout.splitlines()[-1]), "process_s": time.perf_counter() - start}


def startups(starts: dict[str, tuple[str, str]], n_threads: int, repeats: int) -> list[dict[str, Any]]:
    """A record for each way, in turns. starts : of a way, the library and its path."""
    for name, path in starts.values():
        start_once(name, n_threads, path)  # fills the compile cache and the file cache
    runs: dict[str, list[dict[str, float]]] = {way: [] for way in starts}
    for repeat in range(repeats):
        for way in list(starts)[:: 1 if repeat % 2 == 0 else -1]:
            runs[way].append(start_once(starts[way][0], n_threads, starts[way][1]))
    return [{"library": way, **{key: [run[key] for run in runs[way]] for key in KEYS}} for way in starts]


def first_model(name: str, n_threads: int, path: str) -> dict[str, float]:
    """NumPy is there already."""
    x, y, *_ = STARTUP.tables()
    library = LIBRARIES[name]
    x = library.form(x)
    sys.path[:0] = [path] * bool(path)
    start = time.perf_counter()
    import_module(library.module)
    imported = time.perf_counter()
    library.train(library.bin_table(x, y, STARTUP, n_threads), STARTUP, n_threads)
    return {"import_s": imported - start, "fit_s": time.perf_counter() - imported}


if __name__ == "__main__":
    print(json.dumps(first_model(sys.argv[1], int(sys.argv[2]), sys.argv[3])))
