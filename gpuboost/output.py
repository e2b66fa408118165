"""What goes to the standard streams, data and messages, which end nothing where nobody reads; warnings, of a user's line."""

import sys
import warnings
from contextlib import suppress

__all__ = ["is_on_terminal", "say", "warn_user", "write_output"]


def write_output(text: str) -> None:
    """Write to standard output, for as long as somebody reads it."""
    if sys.stdout is None:
        return
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:  # who reads it has seen enough, and nothing may be flushed at exit
        sys.stdout = None  # type: ignore[assignment]


def say(text: str, end: str = "\n") -> None:
    """Write a message to standard error, if it is there and somebody reads it."""
    stderr = sys.stderr
    if stderr is not None:  # which print() would take for standard output
        with suppress(OSError, ValueError):
            print(text, end=end, file=stderr, flush=True)


def warn_user(message: str) -> None:
    """A UserWarning of the nearest line outside this package, from wherever in it."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == __name__.partition(".")[0]:
        level, frame = level + 1, frame.f_back
    warnings.warn(message, UserWarning, stacklevel=level)


def is_on_terminal() -> bool:
    """Whether messages go to a terminal."""
    try:
        return sys.stderr.isatty()
    except (AttributeError, ValueError):  # it is not there, or closed, or knows nothing of terminals
        return False
