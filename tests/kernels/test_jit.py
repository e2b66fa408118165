"""The compile cache: no stale machine code, and no mix-up between the kernels of one factory."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import numba
import numpy as np
import pytest

import gpuboost as gb
from gpuboost.kernels import jit

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
    """The events that kernels.jit tells of, from now on."""
    events: list[tuple[str, str]] = []
    monkeypatch.setattr(jit, "_told", set())
    monkeypatch.setattr(jit, "_compile_hook", lambda event, path: events.append((event, path)))
    return events


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
    files = jit._CacheFiles(str(tmp_path), "kernel", "stamp")
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
    files, other = (jit._CacheFiles(str(tmp_path), "kernel", "stamp") for _ in range(2))
    files.save("float32", b"code")
    (tmp_path / "kernel.nbi").unlink()
    other.save("float64", b"other code")
    assert files.load("float32") is None and files.load("float64") == b"other code"


@pytest.mark.parametrize("changed", ["_source_stamp", "_version"])
def test_machine_code_of_older_sources_is_not_believed(changed, tmp_path):
    """A process that is killed between index and data leaves a new index, which names the old file."""
    old, new = (jit._CacheFiles(str(tmp_path), "kernel", "stamp") for _ in range(2))
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
    def no_folder(function, formula):
        raise RuntimeError("cannot cache function: no locator available")

    monkeypatch.setattr(jit, "_SourceKeyedCache", no_folder)
    for _ in range(2):
        x = np.zeros(1)
        jit.kernel(add_one)(x, 1)
        assert x[0] == 1
    assert told == [("unwritable", "")]


def test_a_folder_that_fails_later_is_told_as_well(monkeypatch, told):
    def full(*_):
        raise OSError(28, "No space left on device")

    kernel, x = jit.kernel(add_one), np.zeros(1)
    monkeypatch.setattr(kernel._cache, "_cache_file", jit._CacheFiles("/nowhere", "kernel", "stamp"))
    monkeypatch.setattr(kernel._cache._impl.locator, "ensure_cache_path", full)
    kernel(x, 1)
    assert x[0] == 1 and told == [("absent", ""), ("unwritable", "")]


def test_editing_any_kernel_changes_the_stamp(tmp_path, monkeypatch):
    package = tmp_path / "gpuboost"  # and kernels/ beside it, as in a checkout
    edited = [tmp_path / "kernels" / "scalar.py", package / "objectives" / "base.py", package / "metrics" / "auc.py"]
    for path in edited:
        path.parent.mkdir(parents=True)
        path.write_text("x = 1\n")
    monkeypatch.setattr(jit, "__file__", str(tmp_path / "kernels" / "jit.py"))
    monkeypatch.setattr(gb, "__path__", [str(package)])
    stamps = [jit.source_stamp.__wrapped__()]
    for path in edited:
        path.write_text("x = 2\n")
        stamps.append(jit.source_stamp.__wrapped__())
    assert len(set(stamps)) == 4


def test_formulas_from_outside_the_package_are_not_cached():
    from numba import float64

    from gpuboost.kernels.reduce import reduce_rows, unit_term

    @jit.scalar
    def foreign_term(prediction, label, i, parameters):
        return float64(2.0)

    assert type(reduce_rows(unit_term).dispatcher._cache) is not type(reduce_rows(foreign_term).dispatcher._cache)


@jit.parallel_kernel.part
def _add_number(thread, numbers, step, pair):
    jit.add_atomic(numbers, thread, step * pair[0] + pair[1])


@jit.parallel_kernel
def add_number_cpu(numbers, pair, n_threads):
    jit.launch(n_threads, _add_number, (numbers, 10, pair))


@pytest.mark.parametrize("n_threads", sorted({1, 2, numba.config.NUMBA_NUM_THREADS}))
def test_each_thread_calls_its_part_once_with_its_number_and_the_same_machine_code(n_threads):
    numbers = np.zeros(n_threads + 1, np.int64)
    add_number_cpu(numbers, (np.int64(2), np.int64(3)), n_threads)
    assert numbers.tolist() == [23] * n_threads + [0]
    assert len(add_number_cpu.dispatcher.signatures) == 1


@jit.parallel_kernel.part
def _take_memory(thread, size, taken):
    if thread == 0:
        taken[0] = np.empty(size, np.uint8).size


@jit.parallel_kernel
def take_memory_cpu(size, taken, n_threads):
    jit.launch(n_threads, _take_memory, (size, taken))
    taken[1] = 1


@pytest.mark.parametrize("n_threads", [1, 2])
def test_a_part_that_finds_no_memory_ends_the_kernel(n_threads):
    taken = np.zeros(2, np.int64)
    with pytest.raises(MemoryError, match="no memory"):
        take_memory_cpu(2**60, taken, n_threads)
    assert taken.tolist() == [0, 0]
    take_memory_cpu(2**10, taken, n_threads)
    assert taken.tolist() == [2**10, 1]


def test_no_kernel_has_a_region_of_numbas_own():
    """It would be run by one thread: nothing is compiled with parallel=True."""
    folders = ROOT / "kernels", *(ROOT / "gpuboost" / name for name in jit._FORMULA_FOLDERS)
    names = {
        node.id if isinstance(node, ast.Name) else node.attr
        for folder in folders for path in folder.glob("*.py") for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Name | ast.Attribute)
    }  # fmt: skip
    assert "launch" in names and "prange" not in names


def test_an_objective_of_the_user_has_the_users_threads():
    seen, before = [], jit.available_threads()

    def objective(prediction, dtrain):
        seen.append(jit.available_threads())
        return prediction - dtrain.get_label(), np.ones_like(prediction)

    gb.train({"nthread": 1}, gb.DMatrix(np.arange(50.0)[:, None], np.arange(50.0)), 2, obj=objective)
    assert seen == [before] * 2
