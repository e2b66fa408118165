"""What goes to the standard streams, data and messages: that nobody reads it ends nothing else."""

import sys
from contextlib import suppress

__all__ = ["is_on_terminal", "say", "write_output"]


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


def is_on_terminal() -> bool:
    """Whether messages go to a terminal."""
    try:
        return sys.stderr.isatty()
    except (AttributeError, ValueError):  # it is not there, or closed, or knows nothing of terminals
        return False
