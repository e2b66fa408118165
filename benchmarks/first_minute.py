"""The first minute of a wheel with compiled kernels: in an empty environment that nobody can write, without a home.

    python tools/kernel_wheel.py --out dist && python benchmarks/first_minute.py dist/gpuboost_trees-*.whl
    python benchmarks/first_minute.py --check WHEEL       # a smaller run, which fails where anything was compiled (.ci/run)

    first fit      a new process: 1,000 rows × 10 columns, 10 rounds; by two users, and by a pool of four joblib workers
    processors     the same where numba is told of another one: which kernels it takes, and that the model is the same
    large          450,000 × 28: kernels for a level beside those compiled for this processor, in turns

Seconds are of the whole process, the interpreter's start and every import included; CPU seconds of all its threads. Root runs
everything as users who may read only.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

NOBODY, ANOTHER = 65534, 65533  # users
NO_HOME = "/nonexistent"
V3 = "+cx16,+popcnt,+sahf,+sse,+sse2,+sse3,+ssse3,+sse4.1,+sse4.2,+avx,+avx2,+bmi,+bmi2,+f16c,+fma,+lzcnt,+movbe,+xsave"
# What numba is told of processors: name and features, and whether kernels of a level fit.
PROCESSORS = {
    "haswell": (f"{V3},+invpcid,+rdrnd,+fsgsbase", True),
    "znver3": (f"{V3},+adx,+clwb,+clzero,+rdseed,+sha,+sse4a", True),
    "x86-64-v2": ("+cx16,+popcnt,+sahf,+sse,+sse2,+sse3,+ssse3,+sse4.1,+sse4.2", False),
}
FIT = """
import resource, time
start = time.perf_counter()
import numpy as np
import gpuboost as gb
from gpuboost.kernels.compile_cache import compile_seconds
from gpuboost.model_io import digest
def fit(n_rows, n_columns, n_rounds):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n_rows, n_columns)).astype(np.float32)
    y = (X[:, 0] * X[:, 1] + X[:, 2] > 0).astype(np.float32)
    start = time.perf_counter()
    booster = gb.train({"objective": "binary:logistic"}, gb.DMatrix(X, y), n_rounds, verbose_eval=False)
    booster.predict(gb.DMatrix(X[:100]))
    return {"digest": digest(booster.model), "fit_s": time.perf_counter() - start, "compile_s": compile_seconds()}
def used():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime
"""
SMALL, LARGE = "1000, 10, 10", "450_000, 28, 20"  # rows, columns, rounds
POOL = """
import json, joblib, time
from first_fit import fit
if __name__ == "__main__":
    results = joblib.Parallel(n_jobs=4)(joblib.delayed(fit)(1000, 10, 10) for _ in range(4))
    assert len({result["digest"] for result in results}) == 1
    print(json.dumps({"compile_s": sum(result["compile_s"] for result in results), "digest": results[0]["digest"]}))
"""


def one_fit(shape: str) -> str:
    return FIT + f"import json; print(json.dumps({{**fit({shape}), 'cpu_s': used()}}))"


class Installation:
    """An environment with the wheel, in which nothing can be written."""

    def __init__(self, wheel: Path, folder: Path) -> None:
        self.folder, self._python = folder, folder / "env" / "bin" / "python"
        subprocess.run([sys.executable, "-m", "venv", folder / "env"], check=True)
        subprocess.run([self._python, "-Im", "pip", "install", "-q", wheel, "joblib"], check=True)
        (folder / "first_fit.py").write_text(FIT)
        for path in [folder, *folder.rglob("*")]:
            if not path.is_symlink():
                path.chmod(path.stat().st_mode & ~0o222 | (0o555 if path.is_dir() else 0o444))

    def __enter__(self) -> "Installation":
        return self

    def __exit__(self, *_: object) -> None:
        for path in [self.folder, *self.folder.rglob("*")]:
            if path.is_dir() and not path.is_symlink():
                path.chmod(0o755)

    def run(self, code: str, user: int = NOBODY, **variables: str) -> dict[str, Any]:
        """What the code prints as JSON, the seconds of its process, and what it says to standard error."""
        env = {"PATH": os.environ["PATH"], "HOME": NO_HOME, "TMPDIR": "/tmp", "PYTHONPATH": str(self.folder), **variables}
        # The interpreter itself may lie in a folder that only root may look into.
        may_read = ["--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"]
        as_user = ["setpriv", f"--reuid={user}", "--clear-groups", *may_read] if os.geteuid() == 0 else []
        start = time.perf_counter()
        done = subprocess.run([*as_user, self._python, "-c", code], env=env, cwd="/", capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(done.stderr)
        return {**json.loads(done.stdout.splitlines()[-1]), "process_s": time.perf_counter() - start, "said": done.stderr}


def first_fits(installed: Installation, repeats: int) -> dict[str, Any]:
    """Of the first process ever of each of two users, and then of repeats more, and of pools."""
    code = one_fit(SMALL)
    of_users = [installed.run(code, user) for user in (NOBODY, ANOTHER)]
    again = [installed.run(code) for _ in range(repeats)]
    pools = [installed.run(POOL) for _ in range(repeats)]
    return {"of_users": of_users, "again": again, "pools": pools}


def on_processors(installed: Installation) -> dict[str, Any]:
    code = one_fit(SMALL)
    names = {"native": {"GPUBOOST_KERNELS": "native"}, "x86-64-v3 only": {"GPUBOOST_KERNELS": "x86-64-v3"}} | {
        name: {"NUMBA_CPU_NAME": name, "NUMBA_CPU_FEATURES": features} for name, (features, _) in PROCESSORS.items()
    }
    return {name: installed.run(code, **variables) for name, variables in names.items()}


def large_fits(installed: Installation, repeats: int) -> dict[str, list[float]]:
    """Seconds of fits in turns; native kernels are compiled first, into a folder of their own."""
    code = one_fit(LARGE)
    with tempfile.TemporaryDirectory() as cache:
        os.chmod(cache, 0o777)
        ways = {level: {"GPUBOOST_KERNELS": level} for level in ("x86-64-v3", "x86-64-v4", "native")}
        ways["native"]["NUMBA_CACHE_DIR"] = cache
        installed.run(code, **ways["native"])
        seconds: dict[str, list[float]] = {way: [] for way in ways}
        digests = set()
        for repeat in range(repeats):
            for way in list(ways)[:: 1 if repeat % 2 == 0 else -1]:
                result = installed.run(code, **ways[way])
                seconds[way].append(result["fit_s"])
                digests.add(result["digest"])
    if len(digests) > 1:
        sys.exit(f"kernels give {len(digests)} models of 450,000 rows.")
    return seconds


def problems(fits: dict[str, Any], processors: dict[str, Any]) -> list[str]:
    """What a wheel must not do: compile where its kernels fit, or give another model anywhere."""
    found = []
    results = [*fits["of_users"], *fits["again"], *fits["pools"], processors["x86-64-v3 only"]]
    results += [processors[name] for name, (_, fitting) in PROCESSORS.items() if fitting]
    if compiled := sum(result["compile_s"] > 0 for result in results):
        found.append(f"{compiled} of {len(results)} processes compiled kernels that should have come with the wheel")
    if said := {result["said"] for result in results} - {""}:
        found.append(f"something was said: {said}")
    if len({result["digest"] for result in [*results, *processors.values()]}) > 1:
        found.append("not all processors give the same model")
    if not processors["native"]["compile_s"] or not processors["x86-64-v2"]["compile_s"]:
        found.append("kernels were taken where none fit")
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Time, or check, the first minute of a wheel with compiled kernels.")
    parser.add_argument("wheel", type=Path)
    parser.add_argument("--check", action="store_true", help="one turn of each, without the large table; nothing is recorded")
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args(arguments)
    folder = Path(tempfile.mkdtemp())
    try:
        with Installation(options.wheel.resolve(), folder) as installed:
            fits = first_fits(installed, 1 if options.check else options.repeats)
            processors = on_processors(installed)
            large = {} if options.check else large_fits(installed, options.repeats)
    finally:
        shutil.rmtree(folder)
    for name, results in {**fits, **{name: [result] for name, result in processors.items()}}.items():
        seconds = ", ".join(f"{result['process_s']:.2f} s ({result.get('cpu_s', 0):.2f} CPU)" for result in results)
        print(f"{name:15} {seconds}")
    for way, seconds in large.items():
        print(f"{way:15} {median(seconds):.3f} s, {median(s / n for s, n in zip(seconds, large['native'])):.3f} of native")
    if found := problems(fits, processors):
        sys.exit("\n".join(found))
    if not options.check:
        from measure import write_record

        record = {"wheel": options.wheel.name, "wheel_mb": options.wheel.stat().st_size / 2**20}
        print(write_record("first_minute", {**record, "fits": fits, "processors": processors, "large_s": large}))


if __name__ == "__main__":
    main()
