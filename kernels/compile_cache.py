"""Where compiled kernels are kept, so that each is compiled once: in the user's cache, and compiled beforehand in the package.

A kernel for given types of arguments is looked for in

    the user's cache    NUMBA_CACHE_DIR, else beside the kernels, else the user's cache folder: compiled here, for this processor
    the package         compiled/LEVEL/, in wheels (tools/kernel_wheel.py): for a level of x86-64, which every processor of that
                        level runs
    the compiler        whose result goes to the user's cache. Other processes that need it wait for it

numba's own cache looks at the file of the cached function only, so an edit of kernels/scalar.py would leave stale machine
code in its callers. Here the stamp of every entry is a hash over the kernel's file and all that it imports of ours, or, of
a kernel around a formula, over all kernels, objectives and metrics. numba also believes whatever a file holds; here a file
counts only if it is whole, and its machine code only for what it was compiled for, by the same numba and LLVM.
"""

import gc
import hashlib
import inspect
import os
import pickle
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from glob import escape, glob
from io import BytesIO
from pathlib import Path
from typing import Any

import llvmlite
import numba
from numba.core import event
from numba.core.caching import (
    IndexDataCacheFile,
    InTreeCacheLocator,
    NullCache,
    UserProvidedCacheLocator,
    UserWideCacheLocator,
)
from numba.core.compiler import CompileResult
from numba.core.registry import cpu_target

try:
    import fcntl
except ImportError:  # Windows: processes that compile at the same time do not wait for each other
    fcntl = None  # type: ignore[assignment]

__all__ = [
    "FORMULA_FOLDERS", "KernelCache", "Uncached", "compile_seconds", "is_first_use", "levels_of", "lock_first_use",
    "own_features", "set_compile_hook", "shipped_levels", "source_stamp", "without_collector",
]  # fmt: skip

FORMULA_FOLDERS = ("objectives", "metrics")  # of the package: their scalar functions are compiled into kernels
PYTHON = f"{sys.implementation.cache_tag}{getattr(sys, 'abiflags', '')}"  # machine code is kept with Python objects
SHIPPED = Path(__file__).parent / "compiled"
# The instructions of each level of x86-64, by LLVM's names, beyond those of the level below.
LEVELS = {
    "x86-64-v2": "cx16 popcnt sse3 ssse3 sse4.1 sse4.2",
    "x86-64-v3": "avx avx2 bmi bmi2 f16c fma lzcnt movbe xsave",
    "x86-64-v4": "avx512f avx512bw avx512cd avx512dq avx512vl",
}
WAIT_S = 120  # for another process's compiler, then it is compiled here as well
LOOK_AGAIN_S = 0.05

# ---- what is told

_compile_hook: Callable[[str, str], None] | None = None
_told: set[str] = set()


def set_compile_hook(hook: Callable[[str, str], None] | None) -> None:
    """Call ``hook(event, detail)`` at every

    "compiling", "compiled" : a kernel of this name is being compiled, has been or has failed; those within it are not told.
    "waiting" : another process compiles the kernel of this name, for which this one waits until "waited".

    and at the first

    "damaged" : the file at this path is not what was written, so it does not count and is written anew.
    "unwritable" : there is no folder in which kernels can be kept.
    """
    global _compile_hook
    _compile_hook = hook


def _tell(happened: str, detail: str = "") -> None:
    if _compile_hook is not None:
        _compile_hook(happened, detail)


def _tell_once(happened: str, detail: str = "") -> None:
    if happened not in _told:
        _told.add(happened)
        _tell(happened, detail)


@contextmanager
def without_collector() -> Iterator[None]:
    """Let the garbage collector wait, which would look at all that the compiler holds again and again: 15 % of compiling. (A
    thread that turns it off meanwhile finds it on afterwards.)"""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


class _Compilations(event.Listener):
    """Counts the seconds of compiling, without the garbage collector, and tells of it. numba compiles in one thread at a time."""

    def __init__(self) -> None:
        self.seconds, self._n_within, self._start, self._pause = 0.0, 0, 0.0, ExitStack()

    @property
    def is_compiling(self) -> bool:
        return self._n_within > 0

    def on_start(self, event: event.Event) -> None:
        if isinstance(_cache_of(event), _Kept):
            self._n_within += 1
            if self._n_within == 1:
                self._start = time.perf_counter()
                self._pause.enter_context(without_collector())
                _tell("compiling", event.data["dispatcher"].py_func.__name__)

    def on_end(self, event: event.Event) -> None:
        kept, dispatcher = _cache_of(event), event.data["dispatcher"]
        if isinstance(kept, _Kept):
            if tuple(event.data["args"]) not in dispatcher.overloads:  # it failed; event.is_failed says the contrary
                kept.forget()
            self._n_within -= 1
            if not self.is_compiling:
                self._pause.close()
                self.seconds += time.perf_counter() - self._start
                _tell("compiled", dispatcher.py_func.__name__)

    def end_in_child(self) -> None:
        """Of a fork, where nobody compiles on."""
        self._pause.close()
        self._n_within = 0


def _cache_of(event: event.Event) -> Any:
    return getattr(event.data["dispatcher"], "_cache", None)


_compilations = _Compilations()
event.register("numba:compile", _compilations)
os.register_at_fork(after_in_child=_compilations.end_in_child)


def compile_seconds() -> float:
    """Seconds that this process has spent on compiling kernels so far."""
    return _compilations.seconds


# ---- stamps


@cache
def source_stamp(module: str = "") -> str:
    """SHA-256 over the text of every file that can end up inside a kernel; of one module of kernels, which import no others
    (test_contract.py), its own and of those that it imports."""
    kernels = Path(__file__).parent
    if module:
        paths = [kernels / f"{name}.py" for name in sorted(_imported(module.rpartition(".")[2]))]
    else:
        package = Path(sys.modules["gpuboost"].__path__[0])
        folders = kernels, *(package / name for name in FORMULA_FOLDERS)
        paths = [path for folder in folders for path in sorted(folder.glob("*.py"))]
    digest = hashlib.sha256()
    for path in paths:
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


@cache
def _imported(name: str) -> frozenset[str]:
    """A file of kernels, those that it imports, and those that they import, by name."""
    text = (Path(__file__).parent / f"{name}.py").read_bytes()
    names = re.findall(rb"^\s*from gpuboost\.kernels\.(\w+) import", text, re.MULTILINE)
    for several in re.findall(rb"^\s*from gpuboost\.kernels import (.*)$", text, re.MULTILINE):
        names += several.split(b", ")
    return frozenset({name}).union(*(_imported(each.decode()) for each in names))


# ---- files


class _CacheFiles(IndexDataCacheFile):
    """numba's files of one function: an index (.nbi), from signatures to the files (.nbc) of their machine code.

    Each file ends in the SHA-256 of what precedes it, and machine code lies beside what it was compiled for: the index of a
    process that was killed, or that wrote at the same time, may name a file that holds another's. What does not fit counts as
    absent, so that it is compiled and written anew.
    """

    def __init__(self, folder: str, name: str, stamp: str) -> None:
        super().__init__(folder, name, stamp)
        self._version = f"{numba.__version__}, {llvmlite.__version__}"

    def save(self, key: Any, data: Any) -> None:
        super().save(key, (self._stamped(key), data))

    def load(self, key: Any) -> Any:
        found = super().load(key)
        return found[1] if found is not None and found[0] == self._stamped(key) else None

    def _stamped(self, key: Any) -> tuple[Any, ...]:
        return self._version, self._source_stamp, key

    def _load_index(self) -> dict[Any, str]:
        content = _whole(self._index_path)
        if content is None:
            return {}
        file = BytesIO(content)
        if pickle.load(file) != self._version:  # what follows may not be readable
            return {}
        stamp, overloads = pickle.loads(pickle.load(file))
        return overloads if stamp == self._source_stamp else {}

    def _save_index(self, overloads: dict[Any, str]) -> None:
        with self._open_for_write(self._index_path) as file:
            pickle.dump(self._version, file)
            pickle.dump(self._dump((self._source_stamp, overloads)), file)

    def _load_data(self, name: str) -> Any:
        content = _whole(self._data_path(name))
        if content is None:
            raise FileNotFoundError(name)  # which means that it has to be compiled
        return pickle.loads(content)

    @contextmanager
    def _open_for_write(self, filepath: str) -> Any:
        content = BytesIO()
        yield content
        with super()._open_for_write(filepath) as file:
            file.write(content.getvalue() + hashlib.sha256(content.getvalue()).digest())


def _whole(path: str) -> bytes | None:
    """What was written to a file; None where there is none, or where it holds something else."""
    try:
        content = Path(path).read_bytes()
    except FileNotFoundError:
        return None
    except OSError:
        content = b""
    size = len(content) - hashlib.sha256().digest_size
    if size < 0 or hashlib.sha256(content[:size]).digest() != content[size:]:
        _tell_once("damaged", path)
        return None
    return content[:size]


_own_folders: dict[str, str | None] = {}  # of files with kernels, which may be written


def _own_folder(function: Callable[..., Any]) -> str | None:
    """As numba chooses it; None where none can be written."""
    file = inspect.getfile(function)
    if file not in _own_folders:
        locators = UserProvidedCacheLocator, InTreeCacheLocator, UserWideCacheLocator
        found = (locator.from_function(function, file) for locator in locators)
        _own_folders[file] = next((locator.get_cache_path() for locator in found if locator is not None), None)
    return _own_folders[file]


@cache
def _shipped_levels(features: str) -> tuple[str, ...]:
    """Levels of which kernels have come with the package and which a processor of these features runs, the best first.

    features : as numba gives them to LLVM, "+avx,+avx2,-avx512f". GPUBOOST_KERNELS chooses one level, or native, for none.
    """
    chosen = os.environ.get("GPUBOOST_KERNELS")
    return tuple(
        level for level in reversed(levels_of(features)) if chosen in (None, "", level) and (SHIPPED / level).is_dir()
    )


def levels_of(features: str) -> list[str]:
    """Levels that a processor of these features runs, ascending."""
    has, levels = set(features.split(",")), list[str]()
    for level, needed in LEVELS.items():
        if not has.issuperset(f"+{name}" for name in needed.split()):
            break
        levels.append(level)
    return levels


def shipped_levels() -> tuple[str, ...]:
    """Levels of kernels that came with the package and that this processor runs, the best first."""
    return _shipped_levels(own_features())


def own_features() -> str:
    """Of this processor, as numba gives them to LLVM."""
    return str(cpu_target.target_context.codegen().magic_tuple()[2])


def is_first_use() -> bool:
    """Whether no kernel has been kept for this Python yet, and none has come with the package."""
    folders = {folder for folder in _own_folders.values() if folder is not None}
    return not shipped_levels() and not any(glob(f"{escape(folder)}/*.{PYTHON}.nbi") for folder in folders)


def lock_first_use() -> int | None:
    """A descriptor that holds the folder of kernels locked, for the one process that compiles beside the first; None where there
    is no first use, another has it, or there are no such locks."""
    folder = next(iter(_own_folders.values()), None)
    if fcntl is None or folder is None or not is_first_use():
        return None
    try:
        os.makedirs(folder, exist_ok=True)
        opened = os.open(folder, os.O_RDONLY)
        descriptor = fcntl.fcntl(opened, fcntl.F_DUPFD_CLOEXEC, 3)  # not one of those that another process gets anew
        os.close(opened)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


# ---- the cache of one kernel


class _Kept(NullCache):
    """What the compiler's work is told of."""

    def forget(self) -> None:
        """The compiler has ended, perhaps by failing."""


class Uncached(_Kept):
    """Of a kernel around a user's formula, which no stamp covers: each process compiles it."""


class KernelCache(_Kept):
    """Of one kernel, for all types of arguments: what numba's dispatcher asks for machine code and gives it to."""

    def __init__(self, function: Callable[..., Any], stamp: str) -> None:
        name = re.sub("[<>]", "", f"{Path(inspect.getfile(function)).stem}.{function.__qualname__}")
        self._name, self._stamp = f"{name}-{function.__code__.co_firstlineno}.{PYTHON}", stamp
        self._folder = _own_folder(function)
        self._own = None if self._folder is None else self._files(self._folder)
        self._lock: _Lock | None = None  # held while this process compiles it

    @property
    def cache_path(self) -> str | None:
        return self._folder

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        target_context.refresh()
        triple, _, features = magic = target_context.codegen().magic_tuple()
        found = self._load_own(key := (sig, magic))
        for level in _shipped_levels(features) if found is None else ():
            found = self._files(str(SHIPPED / level)).load((sig, (triple, level, "")))
            if found is not None:
                break
        if found is None:
            found = self._wait(key)
        return None if found is None else CompileResult._rebuild(target_context, *found)

    def save_overload(self, sig: Any, compiled: Any) -> None:
        try:
            if self._own is None:
                _tell_once("unwritable")
            elif not compiled.library.has_dynamic_globals:  # addresses of this process
                os.makedirs(self._folder, exist_ok=True)
                parts = compiled._replace(type_annotation="")._reduce()  # which would hold the source text and its path
                self._own.save((sig, compiled.codegen.magic_tuple()), parts)
        except OSError:  # the disk is full, or the folder cannot be written any more
            _tell_once("unwritable")
        finally:
            self.forget()

    def forget(self) -> None:
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def _files(self, folder: str) -> _CacheFiles:
        return _CacheFiles(folder, self._name, self._stamp)

    def _load_own(self, key: Any) -> Any:
        return None if self._own is None else self._own.load(key)

    def _wait(self, key: Any) -> Any:
        """What another process that compiles it now makes of it; None where this process is to compile it."""
        if self._own is None or self._lock is not None:
            return None
        lock = _Lock(os.path.join(self._folder, f"{self._name}.lock"))
        if lock.take(self._name):
            self._lock = lock
        if (found := self._load_own(key)) is not None:
            self.forget()
        return found


class _Lock:
    """A file that one process at a time has locked, to compile what it is named after. The lock ends with its process; whoever
    holds it removes the file."""

    def __init__(self, path: str) -> None:
        self._path, self._file = path, -1

    def take(self, name: str) -> bool:
        """Wait until it is free; False where there are no such locks, or after WAIT_S."""
        if fcntl is None:
            return False
        end, is_waiting = time.monotonic() + WAIT_S, False
        try:
            while not (is_taken := self._try()) and time.monotonic() < end:
                if not is_waiting and not _compilations.is_compiling:
                    is_waiting = True
                    _tell("waiting", name.partition("-")[0].rpartition(".")[2])
                time.sleep(LOOK_AGAIN_S)
        except OSError:  # the folder cannot be written, or lies on a file system without locks
            is_taken = False
        if is_waiting:
            _tell("waited")
        return is_taken

    def _try(self) -> bool:
        os.makedirs(os.path.dirname(self._path), exist_ok=True)
        file = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(file), os.stat(self._path)):
                self._file, file = file, -1
                return True
        except (BlockingIOError, FileNotFoundError):  # another holds it, or has just removed the file
            pass
        finally:
            if file >= 0:
                os.close(file)
        return False

    def release(self) -> None:
        with suppress(OSError):
            os.unlink(self._path)
        os.close(self._file)
