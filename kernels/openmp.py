"""How long threads of GNU OpenMP spin before they sleep.

A thread that waits at the end of a region spins first: sleeping costs the next region 30 µs. On a machine with other work the
spinning threads hold the cores that their own region waits for. GNU OpenMP's default is to spin for milliseconds; it reads
another bound when it is loaded, and only then, so that ``import lightgbm`` may have come first. But it spins 100 times only while
it counts more threads than cores, and it counts teams that sleep, too: a crowd of them, brought where the machine is busy, ends
the spinning at any time.

Seconds on two cores of an AMD EPYC, 7000 × 28, by the bound: alone, 100 rounds: 30000 spins 0.15; 3000 0.16; 1000 0.19; 500
0.27. Beside one busy process, 20 rounds: 30000 0.4; 3000 0.24; 1000 0.18; 0 0.08. 32,000 × 14, 200 rounds, beside several: the
default bound over 100, 3000 2.0, a crowd 0.45.
"""

import ctypes
import os
import threading
import time

import numba

__all__ = ["has_lost_threads", "start_threads", "yield_to_others"]

SPINS = 3000
LOOK_AGAIN_S = 0.5
MOMENT_S = 2e-4  # longer than most of what runs for a moment only


def start_threads() -> None:
    """Let numba start its threads, which is when the library is loaded, with our bound unless the user has chosen one."""
    has_chosen = "GOMP_SPINCOUNT" in os.environ or "OMP_WAIT_POLICY" in os.environ
    if not has_chosen:
        os.environ["GOMP_SPINCOUNT"] = str(SPINS)
    try:
        numba.get_num_threads()
    finally:
        if not has_chosen:
            del os.environ["GOMP_SPINCOUNT"]
    if not has_chosen and _runs_gnu_openmp():
        _crowd.start()


def has_lost_threads() -> bool:
    """In the child of a fork: whether numba's threads are those of GNU OpenMP, which the fork has lost.

    Where numba has started none yet, something else may have: LightGBM, with the same library. A region would then wait for ever,
    so that numba is to take another layer, unless the user has chosen this one.
    """
    if _runs_gnu_openmp():
        return True
    layer = str(numba.config.THREADING_LAYER).lower()
    if layer == "default" and _library() is not None:
        numba.config.THREADING_LAYER = "forksafe"
    return layer == "omp" and _library() is not None


def _runs_gnu_openmp() -> bool:
    """Whether numba's threads have started, and are those of GNU OpenMP."""
    try:
        if numba.threading_layer() != "omp":
            return False
    except ValueError:  # no threads have started yet
        return False
    from numba.np.ufunc import omppool

    return omppool.openmp_vendor == "GNU"


def yield_to_others(n_threads: int) -> None:
    """Before regions of so many threads: bring the crowd where the machine is busy, and send it away where it is not."""
    _crowd.follow(n_threads)


def _library() -> ctypes.CDLL | None:
    """GNU OpenMP, if something in this process has loaded it."""
    try:
        return ctypes.CDLL("libgomp.so.1", mode=os.RTLD_NOLOAD | os.RTLD_NOW)
    except (AttributeError, OSError):  # a system without RTLD_NOLOAD, or not loaded
        return None


def _count_others(n_threads: int) -> int:
    """Threads of the whole machine, but for a team of this process, that run or wait for a core at this moment; 0 where nobody
    says. A team may be spinning or asleep.
    """
    try:
        with open("/proc/loadavg", encoding="ascii") as file:
            n_running = int(file.read().split()[3].partition("/")[0])
        return n_running - min(n_threads, sum(_is_running(thread) for thread in os.listdir("/proc/self/task")))
    except (OSError, ValueError, IndexError):
        return 0


def _own_cores() -> int:
    """Cores that this process may use, which are those that the library counts."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _is_running(thread: str) -> bool:
    try:
        with open(f"/proc/self/task/{thread}/stat", "rb") as file:
            return file.read().rpartition(b") ")[2].startswith(b"R")  # pid (name) state …
    except OSError:  # it has just ended
        return False


class _Crowd:
    """A team that does nothing and sleeps, while it is there. Its first thread, which must live as long, is Python's."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._library: ctypes.CDLL | None = None  # None: nobody needs a crowd
        self._leave: threading.Event | None = None  # of the crowd that is there
        self._looked = 0.0

    def start(self) -> None:
        """From now on it may be needed."""
        self._library = _library()

    def follow(self, n_threads: int) -> None:
        if self._library is None or (now := time.monotonic()) < self._looked + LOOK_AGAIN_S:
            return
        with self._lock:
            self._looked = now
            if self._is_busy(n_threads):
                self._come()
            elif self._leave is not None:
                self._leave.set()
                self._leave = None

    def _is_busy(self, n_threads: int) -> bool:
        """Whether other threads leave fewer cores of the machine than the team needs, on two looks. Nobody says on which they
        run, so that a process bound to some cores of many does not notice who runs there besides."""
        n_free = (os.cpu_count() or 1) - n_threads
        if _count_others(n_threads) <= n_free:
            return False
        time.sleep(MOMENT_S)
        return _count_others(n_threads) > n_free

    def _come(self) -> None:
        if self._leave is not None or self._library is None:
            return
        library, self._leave = self._library, threading.Event()
        nothing, leave, started = ctypes.CDLL(None).getpid, self._leave, threading.Event()

        def sleep() -> None:
            try:
                library.GOMP_parallel(nothing, None, ctypes.c_uint(_own_cores() + 1), ctypes.c_uint(0))
            finally:
                started.set()
            leave.wait()

        try:
            threading.Thread(target=sleep, name="gpuboost-openmp", daemon=True).start()
        except RuntimeError:  # no more threads, or Python ends
            self._leave = None
            return
        started.wait()


def _forget_crowd() -> None:
    """In the child of a fork, where its threads are gone."""
    global _crowd
    _crowd = _Crowd()


_crowd = _Crowd()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_crowd)
