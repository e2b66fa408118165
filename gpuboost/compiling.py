"""Says what is being compiled: on a terminal a line that counts and goes away again, in a file a line now and then.

    [gpuboost] compiling CPU kernels: 12 of about 20 (evaluate_splits_cpu), 9 s

Kernels are compiled one by one, when they are first called, and which ones a program will call nobody knows. Those that follow
each other within a second are one burst, which is told of as a whole.
"""

import atexit
import os
import threading
import time
from contextlib import suppress

from gpuboost.config import get_config, log
from gpuboost.kernels.compile_cache import is_first_use, set_compile_hook
from gpuboost.output import is_on_terminal, say
from gpuboost.second_compiler import start_second_compiler

__all__ = ["tell_of_compiling"]

FIRST_MODEL = 20  # kernels of a first small model; an objective, and evaluation, need one or two more
OF_PREDICTION = "predict_", "map_rows"  # kernels that a process needs which only predicts
LOOK_S = 0.5
REST_S = 1.0  # without compiling: the burst has ended
LINE_S = 2.5  # between lines in a file: with LOOK_S, a sign of life every 3 s
ONCE = {
    "damaged": "the compiled CPU kernel in {} is damaged or cannot be read, so it is compiled anew.",
    "unwritable": "compiled CPU kernels cannot be kept, so every process compiles them anew: no folder for them can be written. "
    "Set the environment variable NUMBA_CACHE_DIR to one that can.",
}


def tell_of_compiling() -> None:
    """From now on, where the verbosity is at least 1; the first kernel that is compiled has a second process help."""
    teller = _Teller()

    def hear(happened: str, detail: str) -> None:
        if happened == "compiling" and not detail.startswith(OF_PREDICTION):
            start_second_compiler()
        teller.hear(happened, detail)

    set_compile_hook(hear)


class _Teller:
    """Hears of each kernel in the thread that compiles it, and tells of a burst from a thread that lives as long."""

    def __init__(self) -> None:
        self._is_kept = True
        self._start_anew()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._start_anew)

    def _start_anew(self) -> None:
        """In the child of a fork, too, whose parent's thread may have held the lock."""
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def hear(self, happened: str, detail: str) -> None:
        if happened in ONCE:
            self._is_kept = self._is_kept and happened != "unwritable"
            log(1, ONCE[happened].format(detail))
        elif get_config()["verbosity"] >= 1:
            with self._lock:
                if happened in ("compiling", "waiting"):
                    self._begin()
                    self._n += happened == "compiling"
                    self._now = detail if happened == "compiling" else f"another process compiles {detail}"
                else:
                    self._now, self._rested = "", time.monotonic()
                self._draw()

    def _begin(self) -> None:
        if self._thread is not None and self._thread.is_alive():
            return
        self._n, self._about, self._end = 0, FIRST_MODEL if is_first_use() else 0, threading.Event()
        self._started = self._written = time.monotonic()
        self._on_terminal = is_on_terminal()
        if not self._on_terminal:
            log(1, "compiling CPU kernels that nothing here has needed before, half a minute or less in all.")
        with suppress(RuntimeError):  # no more threads, or Python ends
            self._thread = threading.Thread(target=self._tell, args=(self._end,), name="gpuboost-compiling", daemon=True)
            self._thread.start()
            atexit.register(self._end.set)

    def _tell(self, end: threading.Event) -> None:
        while not end.wait(LOOK_S):
            with self._lock:
                if not self._now and time.monotonic() - self._rested >= REST_S:
                    break
                if self._now:
                    self._draw()
        atexit.unregister(end.set)
        with self._lock:
            later = "; later runs load them from a cache" if self._is_kept else ""
            took = f"compiling {self._n} CPU kernels took {self._rested - self._started:.0f} s{later}."
            self._write(took if self._n else "")

    def _draw(self) -> None:
        """What happens now; while nothing does, the line is clear for others."""
        seconds = time.monotonic() - self._started
        of = f" of about {self._about}" if self._n <= self._about else ""
        line = f"compiling CPU kernels: {self._n}{of} ({self._now}), {seconds:.0f} s"
        if self._on_terminal:
            self._write(line if self._now else "", end="")
        elif self._now and time.monotonic() - self._written >= LINE_S:
            self._written = time.monotonic()
            self._write(line)

    def _write(self, line: str, end: str = "\n") -> None:
        start = "\r\x1b[K" * self._on_terminal
        say(f"{start}[gpuboost] {line}" if line else start, end=end if line else "")
