"""Paths that a user names: what counts as one, and whole files written where they lead."""

import errno
import os
import shutil
import stat
from contextlib import suppress
from functools import partial
from typing import Any
from uuid import uuid4

__all__ = ["as_path", "write_file"]

# What says that a file cannot be replaced, but perhaps written: its folder is read-only, its owner another, it is a mount of its
# own. Or that nothing can be there at all, which open() says by the right name.
IN_PLACE = {errno.EACCES, errno.EPERM, errno.EROFS, errno.EBUSY, errno.ENOENT, errno.ENOTDIR}


def as_path(name: str, value: Any, allowed: str = "a path") -> str:
    """A path as text, "~" as the home folder. Raises TypeError for all else, numbers too: open() takes one for that of an open
    file, and closes it."""
    try:
        return os.path.expanduser(os.fsdecode(value))
    except TypeError:
        raise TypeError(f"{name} must be {allowed}, got {value!r:.60}. Use 'model.json', for example.") from None


def write_file(path: str, data: bytes, *, is_durable: bool = False) -> None:
    """Write a whole file where open(path, "wb") would: through symbolic links, with the mode and owner that it has.

    Whenever the writer is killed, the file has its old content or the new one (and .gpuboost-... may lie beside it), as another
    one is written and moved over it. Some can only be written in place, so that a killed writer leaves a part of the new content:

    - pipes, devices: what was moved over them would be a file
    - a file of several names (hard links): the others would keep the old content
    - a file in a folder that cannot be written, or of another owner

    is_durable : return when it is on the disk, as far as the system knows, so that a loss of power leaves it, too.
    Raises OSError as open() does.
    """
    if not _replace(path, data, is_durable):
        with open(path, "wb") as file:
            file.write(data)
            if is_durable:
                _bring_to_disk(file.fileno())


def _bring_to_disk(descriptor: int) -> None:
    with suppress(OSError):  # a pipe, or a folder of a system that cannot
        os.fsync(descriptor)


def _replace(path: str, data: bytes, is_durable: bool) -> bool:
    """Move a new file over that at ``path``, or to where there is none. False, and nothing has changed, where that cannot be."""
    place = os.path.realpath(path)
    try:
        known = os.stat(path)
    except FileNotFoundError:
        known = None
    if known is not None and not (_is_plain(known) and os.access(path, os.W_OK) and _leads_to(path, place)):
        return False
    fresh = os.path.join(os.path.dirname(place), f".gpuboost-{uuid4().hex}")
    try:
        with open(fresh, "xb", opener=partial(os.open, mode=0o666 if known is None else 0o600)) as file:
            if known is not None:
                _make_alike(fresh, os.fstat(file.fileno()), place, known)
            file.write(data)
            if is_durable:
                file.flush()
                os.fsync(file.fileno())
        os.replace(fresh, place)
        if is_durable:
            folder = os.open(os.path.dirname(place), os.O_RDONLY)
            try:
                _bring_to_disk(folder)
            finally:
                os.close(folder)
    except BaseException as error:  # KeyboardInterrupt, too
        with suppress(OSError):
            os.unlink(fresh)
        if isinstance(error, OSError) and error.errno in IN_PLACE:
            return False
        raise
    return True


def _is_plain(known: os.stat_result) -> bool:
    """Whether this is a regular file of one name; of none, where somebody has just replaced it."""
    return stat.S_ISREG(known.st_mode) and known.st_nlink <= 1


def _leads_to(path: str, place: str) -> bool:
    """Whether that is the file at ``path`` without links. Those of /proc may say something else than where they lead."""
    return place == os.path.abspath(path) or (os.path.exists(place) and os.path.samefile(path, place))


def _make_alike(fresh: str, own: os.stat_result, place: str, known: os.stat_result) -> None:
    """Owner, mode and extended attributes of the file at ``place`` for that at ``fresh``."""
    if (own.st_uid, own.st_gid) != (known.st_uid, known.st_gid):
        os.chown(fresh, known.st_uid, known.st_gid)
    shutil.copystat(place, fresh)
