"""The compile cache: no stale machine code, and no mix-up between the kernels of one factory."""

import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numba
import numba.core.codegen
import numpy as np
import pytest

import gpuboost as gb
from gpuboost.kernels import compile_cache, jit

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[2]

SUM = """
import numpy as np
from gpuboost.backend.cpu import CpuBackend
from gpuboost.backend.row_sums import RowSums
from gpuboost.communicator import SingleProcess
from gpuboost.kernels.reduce import unit_term
from gpuboost.objectives.regression import label_term
label = np.array([[1.0, 2.0, 4.0]], np.float32)
sums = RowSums(CpuBackend(2), SingleProcess(), label, label, np.zeros(0, np.float32))
print(*[sums.sum_of(term) for term in ({terms},)])
"""


def run_and_hear(code: str, cache: Path) -> tuple[str, str]:
    """What a process with that cache prints to stdout and stderr."""
    env = {**os.environ, "NUMBA_CACHE_DIR": str(cache), "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], env=env, cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.strip(), done.stderr


def run(code: str, cache: Path) -> str:
    return run_and_hear(code, cache)[0]


@pytest.fixture
def told(monkeypatch):
    """The events that compile_cache tells of, from now on."""
    events: list[tuple[str, str]] = []
    monkeypatch.setattr(compile_cache, "_told", set())
    monkeypatch.setattr(compile_cache, "_compile_hook", lambda event, path: events.append((event, path)))
    return events


COLLECTOR = """
import gc, os
from gpuboost import compiling
from gpuboost.kernels import compile_cache
def hear(event, detail):
    said.append((event, gc.isenabled()))
    if event == "compiling" and {forks}:
        if (child := os.fork()) == 0:
            print(gc.isenabled(), compile_cache._compilations.is_compiling, flush=True)
            os._exit(0)
        os.waitpid(child, 0)
said, compiling.set_compile_hook = [], lambda _: compile_cache.set_compile_hook(hear)
if not {collects}:
    gc.disable()
"""


@pytest.mark.parametrize("collects", [True, False])
def test_the_garbage_collector_waits_while_a_kernel_compiles(collects, tmp_path):
    code = COLLECTOR.format(collects=collects, forks=False) + SUM.format(terms="label_term") + "print(said)"
    sums, said = run(code, tmp_path).splitlines()
    assert sums == "7.0" and said == str([("compiling", False), ("compiled", collects)])


def test_the_garbage_collector_of_a_fork_does_not_wait(tmp_path):
    code = COLLECTOR.format(collects=True, forks=True) + SUM.format(terms="label_term")
    assert run(code, tmp_path).splitlines() == ["True False", "7.0"]


@pytest.mark.slow
def test_kernels_of_one_factory_cached_by_different_processes_stay_apart(tmp_path):
    assert run(SUM.format(terms="label_term"), tmp_path) == "7.0"
    assert run(SUM.format(terms="unit_term"), tmp_path) == "3.0"
    assert run(SUM.format(terms="label_term, unit_term"), tmp_path) == "7.0 3.0"
    assert run(SUM.format(terms="unit_term, label_term"), tmp_path) == "3.0 7.0"


def test_the_second_process_compiles_nothing(tmp_path):
    counted = SUM.format(terms="label_term") + "\nfrom gpuboost.kernels.reduce import reduce_rows\n"
    counted += "print(sum(reduce_rows(label_term).dispatcher.stats.cache_misses.values()))"
    assert run(counted, tmp_path).split() == ["7.0", "1"]
    assert run(counted, tmp_path).split() == ["7.0", "0"]


def halve(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


DAMAGE = {
    "empty": lambda data: b"",
    "shorter than a hash": lambda data: data[:20],
    "half": lambda data: data[: len(data) // 2],
    "without its last byte": lambda data: data[:-1],
    "one bit flipped": lambda data: data[:9] + bytes([data[9] ^ 1]) + data[10:],
    "zeros": lambda data: bytes(len(data)),
    "garbage": lambda data: np.random.default_rng(0).bytes(len(data)),
    "longer": lambda data: data + b"\0",
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
@pytest.mark.parametrize("suffix", [".nbi", ".nbc"])
def test_a_damaged_file_counts_as_absent_and_is_written_anew(suffix, damage, tmp_path, told):
    files = compile_cache._CacheFiles(str(tmp_path), "kernel", "stamp")
    files.save("float32", b"code")
    (path,) = tmp_path.glob(f"*{suffix}")
    whole = path.read_bytes()
    assert files.load("float32") == b"code" and told == []
    for _ in range(2):
        path.write_bytes(damage(whole))
        assert files.load("float32") is None and told == [("damaged", str(path))], "told once"
        files.save("float32", b"code")
        assert files.load("float32") == b"code" and path.read_bytes() == whole


def test_an_index_that_names_the_file_of_another_signature_is_not_believed(tmp_path):
    """Two processes that write at the same time both take the first free name."""
    files, other = (compile_cache._CacheFiles(str(tmp_path), "kernel", "stamp") for _ in range(2))
    files.save("float32", b"code")
    (tmp_path / "kernel.nbi").unlink()
    other.save("float64", b"other code")
    assert files.load("float32") is None and files.load("float64") == b"other code"


@pytest.mark.parametrize("changed", ["_source_stamp", "_version"])
def test_machine_code_of_older_sources_is_not_believed(changed, tmp_path):
    """A process that is killed between index and data leaves a new index, which names the old file."""
    old, new = (compile_cache._CacheFiles(str(tmp_path), "kernel", "stamp") for _ in range(2))
    old.save("float32", b"old code")
    setattr(new, changed, "new")
    new._save_index({"float32": "kernel.1.nbc"})
    assert new.load("float32") is None
    new.save("float32", b"new code")
    assert new.load("float32") == b"new code"


def test_a_process_that_finds_damaged_files_says_so_once_and_mends_them(tmp_path):
    counted = SUM.format(terms="label_term") + "\nfrom gpuboost.kernels.reduce import reduce_rows\n"
    counted += "print(sum(reduce_rows(label_term).dispatcher.stats.cache_misses.values()))"
    answer, _ = run_and_hear(counted, tmp_path)
    for suffix in (".nbi", ".nbc"):
        paths = list(tmp_path.rglob(f"*{suffix}"))
        for path in paths:
            halve(path)
        mended, said = run_and_hear(counted, tmp_path)
        assert paths and mended == answer == "7.0\n1" and said.count("is damaged") == 1
    assert run_and_hear(counted, tmp_path) == ("7.0\n0", "")


def add_one(x, n_threads):
    x[0] += 1


def test_without_a_folder_for_the_cache_a_kernel_works_and_it_is_told_once(monkeypatch, told):
    monkeypatch.setattr(compile_cache, "_own_folder", lambda function: None)
    for _ in range(2):
        x = np.zeros(1)
        jit.kernel(add_one)(x, 1)
        assert x[0] == 1
    assert told == [("compiling", "add_one"), ("compiled", "add_one"), ("unwritable", "")] + [
        ("compiling", "add_one"), ("compiled", "add_one")
    ]  # fmt: skip


def test_a_folder_that_fails_later_is_told_as_well(monkeypatch, told, tmp_path):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(compile_cache, "_own_folder", lambda function: str(tmp_path))
    kernel, x = jit.kernel(add_one), np.zeros(1)
    monkeypatch.setattr(compile_cache._CacheFiles, "save", full)
    kernel(x, 1)
    assert x[0] == 1 and told == [("compiling", "add_one"), ("compiled", "add_one"), ("unwritable", "")]


def test_editing_any_kernel_changes_the_stamp(tmp_path, monkeypatch):
    package = tmp_path / "gpuboost"  # and kernels/ beside it, as in a checkout
    edited = [tmp_path / "kernels" / "scalar.py", package / "objectives" / "base.py", package / "metrics" / "auc.py"]
    for path in edited:
        path.parent.mkdir(parents=True)
        path.write_text("x = 1\n")
    monkeypatch.setattr(compile_cache, "__file__", str(tmp_path / "kernels" / "compile_cache.py"))
    monkeypatch.setattr(gb, "__path__", [str(package)])
    stamps = [compile_cache.source_stamp.__wrapped__()]
    for path in edited:
        path.write_text("x = 2\n")
        stamps.append(compile_cache.source_stamp.__wrapped__())
    assert len(set(stamps)) == 4


def test_formulas_from_outside_the_package_are_not_cached():
    from numba import float64

    from gpuboost.kernels.reduce import reduce_rows, unit_term

    @jit.scalar
    def foreign_term(prediction, label, i, parameters):
        return float64(2.0)

    assert type(reduce_rows(unit_term).dispatcher._cache) is not type(reduce_rows(foreign_term).dispatcher._cache)


# ---- kernels that came with the package

# As LLVM names what these processors have; of avx512 what the level asks for.
V2 = "+cx16,+popcnt,+sse,+sse2,+sse3,+ssse3,+sse4.1,+sse4.2"
HASWELL = f"{V2},+avx,+avx2,+bmi,+bmi2,+f16c,+fma,+lzcnt,+movbe,+xsave,+invpcid,+rdrnd,-avx512f"
ZNVER3 = f"{HASWELL},+sha,+vaes,+sse4a"
ZNVER4 = f"{ZNVER3.replace('-avx512f', '+avx512f')},+avx512bw,+avx512cd,+avx512dq,+avx512vl,+avx512vnni"
PROCESSORS = {
    "v2": (V2, []), "haswell": (HASWELL, ["x86-64-v3"]), "znver3": (ZNVER3, ["x86-64-v3"]),
    "znver4": (ZNVER4, ["x86-64-v4", "x86-64-v3"]),
    "KNL, which lacks a part of v4": (ZNVER4.replace("+avx512vl", "-avx512vl"), ["x86-64-v3"]),
    "AVX switched off by the user": (ZNVER4.replace("+avx,", "-avx,"), []), "ARM": ("+neon,+sve", []), "unknown": ("", []),
}  # fmt: skip


@pytest.mark.parametrize("features, expected", PROCESSORS.values(), ids=PROCESSORS)
def test_a_processor_is_given_the_levels_that_it_runs_the_best_first(features, expected, tmp_path, monkeypatch):
    monkeypatch.setattr(compile_cache, "SHIPPED", tmp_path)
    monkeypatch.delenv("GPUBOOST_KERNELS", raising=False)
    levels_of = compile_cache._shipped_levels.__wrapped__
    assert list(levels_of(features)) == [], "none have come"
    for level in ("x86-64-v3", "x86-64-v4"):
        (tmp_path / level).mkdir()
    assert list(levels_of(features)) == expected
    for chosen in ("native", "x86-64-v3"):
        monkeypatch.setenv("GPUBOOST_KERNELS", chosen)
        assert list(levels_of(features)) == [level for level in expected if level == chosen]


SHIPPED_SUM = f"""
from pathlib import Path
from gpuboost.kernels import compile_cache
compile_cache.SHIPPED = Path({{shipped!r}})
{{changed}}
{SUM.format(terms="label_term")}
from gpuboost.kernels.reduce import reduce_rows
print(sum(reduce_rows(label_term).dispatcher.stats.cache_misses.values()))
"""
LEVEL = "x86-64-v3"


@pytest.fixture(scope="module")
def shipped(tmp_path_factory):
    """A folder with a kernel for any processor of a level, as tools/kernel_wheel.py makes it."""
    if LEVEL not in levels_of_this_processor():
        pytest.skip(f"this processor does not run {LEVEL}")
    cache, folder = tmp_path_factory.mktemp("cache"), tmp_path_factory.mktemp("compiled")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NUMBA_CPU_NAME", LEVEL)
        patch.setenv("NUMBA_CPU_FEATURES", "")
        run(SUM.format(terms="label_term"), cache)
    (folder / LEVEL).mkdir()
    for path in cache.rglob("*.nb[ci]"):
        shutil.copy(path, folder / LEVEL)
    return folder


def levels_of_this_processor():
    features = set(numba.core.codegen.get_host_cpu_features().split(","))
    return [
        level for level, needed in compile_cache.LEVELS.items() if features.issuperset(f"+{name}" for name in needed.split())
    ]


def run_shipped(shipped: Path, cache: str | Path, changed: str = "") -> str:
    return run(SHIPPED_SUM.format(shipped=str(shipped), changed=changed), cache)


@pytest.mark.parametrize("place", ["empty", "unwritable"])
def test_a_kernel_that_came_with_the_package_is_not_compiled(place, shipped, tmp_path):
    cache = tmp_path if place == "empty" else "/proc/nothing"
    assert run_shipped(shipped, cache) == "7.0\n0"
    assert not list(tmp_path.rglob("*.nb[ci]"))


CHANGES = {
    "another numba": "compile_cache.numba.__version__ += '.1'",
    "another LLVM": "compile_cache.llvmlite.__version__ += '.1'",
    "another text of the sources": "compile_cache.source_stamp = lambda module='': 'another'",
    "another Python": "compile_cache.PYTHON = 'cpython-399'",
    "the user wants native code": "compile_cache.os.environ['GPUBOOST_KERNELS'] = 'native'",
}


@pytest.mark.sweep(2)
@pytest.mark.parametrize("changed", CHANGES.values(), ids=CHANGES)
def test_what_was_compiled_for_something_else_is_compiled_anew(changed, shipped, tmp_path):
    assert run_shipped(shipped, tmp_path, changed) == "7.0\n1"


@pytest.mark.sweep(1)
# Each damage to one of the files, in turns: which of them is found damaged is as in the user's cache, above.
@pytest.mark.parametrize("damage, suffix", zip(DAMAGE.values(), [".nbi", ".nbc"] * len(DAMAGE)), ids=DAMAGE)
def test_a_foreign_file_in_the_package_is_no_obstacle(damage, suffix, shipped, tmp_path):
    shutil.copytree(shipped, tmp_path / "compiled")
    (path,) = (tmp_path / "compiled" / LEVEL).glob(f"*{suffix}")
    path.write_bytes(damage(path.read_bytes()))
    assert run_shipped(tmp_path / "compiled", tmp_path / "cache") == "7.0\n1"
    assert run_shipped(tmp_path / "compiled", tmp_path / "cache") == "7.0\n0"


def test_kernels_of_a_level_and_of_the_builder_are_told_apart(shipped, tmp_path):
    """What is in the folder of a level but was compiled for this very processor may not run on another one."""
    run(SUM.format(terms="label_term"), tmp_path / "cache")
    (tmp_path / "compiled" / LEVEL).mkdir(parents=True)
    for path in (tmp_path / "cache").rglob("*.nb[ci]"):
        shutil.copy(path, tmp_path / "compiled" / LEVEL)
    assert run_shipped(tmp_path / "compiled", tmp_path / "other") == "7.0\n1"


# ---- processes that need a kernel at the same time

needs_locks = pytest.mark.skipif(compile_cache.fcntl is None, reason="this system has no flock")


@needs_locks
def test_of_processes_that_need_a_kernel_at_once_one_compiles(tmp_path):
    counted = SUM.format(terms="label_term") + "\nfrom gpuboost.kernels.reduce import reduce_rows\n"
    counted += "print(sum(reduce_rows(label_term).dispatcher.stats.cache_misses.values()))"
    with ThreadPoolExecutor(3) as pool:
        answers = list(pool.map(lambda _: run(counted, tmp_path).split(), range(3)))
    assert sorted(answers) == [["7.0", "0"], ["7.0", "0"], ["7.0", "1"]]
    assert not list(tmp_path.rglob("*.lock"))


@needs_locks
def test_a_lock_that_another_holds_is_waited_for_and_in_the_end_ignored(tmp_path, monkeypatch, told):
    monkeypatch.setattr(compile_cache, "WAIT_S", 0.2)
    path, first, second = str(tmp_path / "kernel.lock"), *(compile_cache._Lock(str(tmp_path / "kernel.lock")) for _ in range(2))
    assert first.take("module.kernel-1") and os.path.exists(path) and told == []
    assert not second.take("module.kernel-1") and told == [("waiting", "kernel"), ("waited", "")]
    first.release()
    assert not os.path.exists(path) and second.take("module.kernel-1")
    second.release()


@needs_locks
def test_a_process_that_was_killed_while_compiling_holds_nobody_up(tmp_path, told):
    take = "import sys, time; from gpuboost.kernels.compile_cache import _Lock\n"
    take += f"assert _Lock({str(tmp_path / 'kernel.lock')!r}).take('kernel'); print('taken', flush=True); time.sleep(600)"
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen([sys.executable, "-c", take], env=env, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "taken\n"
        process.kill()
    lock = compile_cache._Lock(str(tmp_path / "kernel.lock"))
    assert (tmp_path / "kernel.lock").exists() and lock.take("kernel") and told == []
    lock.release()


@needs_locks
def test_a_kernel_that_cannot_be_compiled_leaves_no_lock(tmp_path, monkeypatch, told):
    def wrong(x, n_threads):
        return x.nothing_of_this_name

    monkeypatch.setattr(compile_cache, "_own_folder", lambda function: str(tmp_path))
    kernel = jit.kernel(wrong)
    for _ in range(2):
        with pytest.raises(numba.TypingError, match="nothing_of_this_name"):
            kernel(np.zeros(1), 1)
    assert not list(tmp_path.glob("*.lock")) and told == [("compiling", "wrong"), ("compiled", "wrong")] * 2


def test_the_seconds_of_compiling_are_counted(tmp_path, monkeypatch):
    def subtract_one(x, n_threads):
        x[0] -= 1

    monkeypatch.setattr(compile_cache, "_own_folder", lambda function: str(tmp_path))
    kernel, before = jit.kernel(subtract_one), compile_cache.compile_seconds()
    kernel(np.zeros(1), 1)
    after = compile_cache.compile_seconds()
    kernel(np.zeros(1), 1)
    assert before < after == compile_cache.compile_seconds()
