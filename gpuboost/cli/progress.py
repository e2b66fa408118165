"""What the command line shows of its progress: on a terminal a line that changes and goes away, in a file one line a stage."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from gpuboost.callback import EvalsLog, TrainingCallback
from gpuboost.kernels.compile_cache import compile_seconds
from gpuboost.output import is_on_terminal, say, write_output

__all__ = ["RoundBar", "say_line", "show_fraction", "stage"]

BAR_CELLS = 30
REDRAW_S = 0.1


@contextmanager
def stage(name: str) -> Iterator[None]:
    """Print the seconds that a stage took, and beside them those that went into compiling its kernels, which happens once."""
    start, compiled = time.perf_counter(), compile_seconds()
    _show(f"{name} …")
    try:
        yield
    finally:
        _show("")
    compiling = compile_seconds() - compiled
    seconds = max(time.perf_counter() - start - compiling, 0)
    say_line(f"{name}: {seconds:.2f} s" + (f", and {compiling:.1f} s of compiling" if compiling >= 0.05 else ""))


def say_line(line: str) -> None:
    """A line of standard output, which may be the terminal that a bar is drawn on."""
    _show("")
    write_output(line.removesuffix("\n") + "\n")


def show_fraction(n_done: int, n: int, what: str, seconds: float) -> None:
    """A bar on a terminal, and when it will be full; nothing once it is, nor in a file."""
    filled = BAR_CELLS * n_done // max(n, 1)
    left = seconds * (n - n_done) / max(n_done, 1)
    bar = "#" * filled + "." * (BAR_CELLS - filled)
    _show(f"[{bar}] {n_done} of {n} {what}, {seconds:.0f} s, {left:.0f} s to go" if n_done < n else "")


def _show(text: str) -> None:
    if is_on_terminal():
        say(f"\r\x1b[K{text}", end="")


class RoundBar(TrainingCallback):
    """The rounds that are done, of so many at most."""

    def __init__(self, total: int) -> None:
        self._total = total

    def before_training(self, model: Any) -> Any:
        self._start, self._compiled, self._drawn = time.perf_counter(), compile_seconds(), 0.0
        return model

    def after_iteration(self, model: Any, epoch: int, evals_log: EvalsLog) -> bool:
        now = time.perf_counter()
        if now - self._drawn >= REDRAW_S:
            self._drawn = now
            show_fraction(epoch + 1, self._total, "rounds", now - self._start - (compile_seconds() - self._compiled))
        return False

    def after_training(self, model: Any) -> Any:
        _show("")
        return model
