"""A folder of this process alone, which goes away with it.

It is removed when nobody needs it any more, and at exit. What a killed process has left is removed when the next one makes a
folder beside it: the owner of a folder holds a lock on it, which the system releases however the owner ends. (Where folders
cannot be locked, as on Windows, what a killed process leaves stays.)
"""

import os
import shutil
import weakref
from contextlib import suppress
from uuid import uuid4

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

__all__ = ["PrivateFolder"]

PREFIX = "gpuboost-cache-"


class PrivateFolder:
    """A new folder in ``parent``, which is made where it is not there. Raises OSError where it cannot be written."""

    def __init__(self, parent: str) -> None:
        parent = os.path.abspath(parent)  # which stays where it is when the process goes elsewhere
        os.makedirs(parent, exist_ok=True)
        reclaim(parent)
        while True:
            self.path = os.path.join(parent, f"{PREFIX}{uuid4().hex}")
            os.mkdir(self.path, 0o700)
            lock = _lock(self.path, waits=True)
            if os.path.exists(self.path):  # else another process took it for abandoned, before it was locked
                break
            if lock is not None:
                os.close(lock)
        self._close = weakref.finalize(self, _remove, self.path, lock, os.getpid())

    def file(self, name: str) -> str:
        """The path of a file in it."""
        return os.path.join(self.path, name)

    def remove(self) -> None:
        """Remove it with all that it holds."""
        self._close()


def reclaim(parent: str) -> None:
    """Remove the folders of processes that are no more."""
    if fcntl is None:
        return
    for name in os.listdir(parent):
        path = os.path.join(parent, name)
        if name.startswith(PREFIX) and (lock := _lock(path, waits=False)) is not None:
            shutil.rmtree(path, ignore_errors=True)
            os.close(lock)


def _lock(path: str, waits: bool) -> int | None:
    """A descriptor that holds the lock of a folder; None where another process does, or where folders have none."""
    if fcntl is None:
        return None
    descriptor = None
    with suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY)
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if waits else fcntl.LOCK_NB))
        return descriptor
    if descriptor is not None:
        os.close(descriptor)
    return None


def _remove(path: str, lock: int | None, owner: int) -> None:
    if os.getpid() != owner:  # a child that was forked
        return
    shutil.rmtree(path, ignore_errors=True)
    if lock is not None:
        os.close(lock)
