"""A file of an array of two dimensions, whose rows (its parts) are read one by one and checked whenever they are read.

    byte   0   8 bytes   b"GPBARRAY"
           8   uint32    version of the format, 1
          12   4 bytes   dtype as NumPy writes it, zeros behind: |u1, <u2, <u4 or <f4
          16   uint64    n, the number of parts
          24   uint64    length of a part, in items
          32   2 uint64  checksum (kernels/checksum.py) of the header but for these 16 bytes, which count as zeros
          48   2 uint64  checksum of part 0, then of the others
    48 + 16n   the parts, one after another

All numbers are little-endian. A file is written beside its place and moved there, so that it is whole or absent.

Parts are not compressed. zlib at level 1 makes records of normal values 0.93 times as long, and those of columns that are zero
in four rows of five 0.29 times; it gives either back at 300 to 360 MB a processor second (and writes 48 to 117), where this disk
read 180 to 1,160 MB a second and the system's cache 1,100 to 6,900 (AMD EPYC, 2026-11-23, beside other work).
"""

import io
import os
import sys
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpuboost.kernels.checksum import checksum

__all__ = ["ArrayFile", "HeldArray", "Shelved", "write_array"]

MAGIC, VERSION = b"GPBARRAY", 1
HEADER = np.dtype([
    ("magic", "S8"), ("version", "<u4"), ("dtype", "S4"), ("n_parts", "<u8"), ("length", "<u8"), ("checksum", "<u8", 2),
])  # fmt: skip
DTYPES = ("|u1", "<u2", "<u4", "<f4")


@dataclass(frozen=True, eq=False)
class HeldArray:
    """An array in memory, to be read as one of a file."""

    array: np.ndarray

    @property
    def is_held(self) -> bool:
        return True

    def read(self, parts: np.ndarray | None = None, out: np.ndarray | None = None) -> np.ndarray:
        """The array itself, whatever is asked for."""
        return self.array


@dataclass(frozen=True)
class ArrayFile:
    """What was written to a file, which must hold it still: an array of that shape and dtype. bytes_written : of the whole
    file."""

    path: str
    shape: tuple[int, int]
    dtype: np.dtype
    bytes_written: int

    @property
    def is_held(self) -> bool:
        """Whether reading it needs no file."""
        return False

    def read(self, parts: np.ndarray | None = None, out: np.ndarray | None = None) -> np.ndarray:
        """The array, or some of its parts: the others of ``out`` keep what they hold.

        parts : ascending integers (k,); None: all. out : of shape and dtype, C-contiguous; None: a new one.
        Raises OSError naming the file where it is not what was written: gone, cut, or with a bit that is not.
        """
        if out is None:
            out = np.empty(self.shape, self.dtype)
        try:
            with open(self.path, "rb", buffering=0) as file:
                if os.fstat(file.fileno()).st_size != self.bytes_written:
                    raise self._damaged(f"it has {os.fstat(file.fileno()).st_size} bytes, {self.bytes_written} were written")
                sums = self._read_header(file)
                file_of_parts = HEADER.itemsize + sums.nbytes
                size = self.shape[1] * self.dtype.itemsize
                for part in range(self.shape[0]) if parts is None else parts.tolist():
                    self._fill(file, file_of_parts + part * size, content := out[part].view(np.uint8))
                    if checksum(content) != tuple(sums[part].tolist()):
                        raise self._damaged(f"part {part} is not what was written")
        except OSError as error:
            if error.filename is None:
                raise
            raise self._damaged(f"it cannot be read ({error.strerror})") from None
        return out

    def __reduce__(self) -> tuple[Any, ...]:
        """Who pickles it gets the array: the file ends with this process."""
        return HeldArray, (self.read(),)

    def _read_header(self, file: io.FileIO) -> np.ndarray:
        """uint64 (n, 2): the checksums of the parts."""
        head = np.empty(HEADER.itemsize + 16 * self.shape[0], np.uint8)
        self._fill(file, 0, head)
        expected = _header(self.shape, self.dtype, head[HEADER.itemsize :].view("<u8").reshape(-1, 2))
        if head.tobytes() != expected:
            raise self._damaged("its header is not what was written")
        return head[HEADER.itemsize :].view("<u8").reshape(-1, 2)

    def _fill(self, file: io.FileIO, offset: int, target: np.ndarray) -> None:
        file.seek(offset)
        view = target.data
        while len(view):
            n = file.readinto(view[: 2**30])
            if not n:
                raise self._damaged("it ends too early")
            view = view[n:]

    def _damaged(self, what: str) -> OSError:
        return OSError(
            f"{self.path} holds a part of a table and is damaged: {what}. Nothing was computed from it. Look for what else "
            "writes there or for a failing disk, and start again."
        )


Shelved = HeldArray | ArrayFile


def write_array(path: str, array: np.ndarray) -> ArrayFile:
    """Write a C-contiguous array (n_parts, length). Raises OSError, naming the folder and the bytes, where there is no room."""
    sums = np.array([checksum(part.view(np.uint8)) for part in array], "<u8").reshape(-1, 2)
    header, fresh = _header(array.shape, array.dtype, sums), f"{path}.new"
    n_bytes = len(header) + array.nbytes
    try:
        with open(fresh, "xb", buffering=0) as file:
            for view in (memoryview(header), array.reshape(-1).view(np.uint8).data):
                while len(view):
                    view = view[file.write(view[: 2**30]) :]
        os.replace(fresh, path)
    except BaseException as error:
        with suppress(OSError):
            os.unlink(fresh)
        if isinstance(error, OSError):
            raise OSError(
                f"{os.path.dirname(path)} cannot take {n_bytes} more bytes of a table that does not fit in memory: "
                f"{error.strerror}. Make room there, name another folder (cache_folder, or the environment variable TMPDIR), or "
                "raise cache_memory."
            ) from None
        raise
    return ArrayFile(path, (array.shape[0], array.shape[1]), array.dtype, n_bytes)


def _header(shape: tuple[int, ...], dtype: np.dtype, sums: np.ndarray) -> bytes:
    """The header of such an array whose parts have these checksums."""
    assert dtype.str in DTYPES and sys.byteorder == "little"
    head = np.zeros(1, HEADER)
    head[0] = MAGIC, VERSION, dtype.str.encode(), *shape, (0, 0)
    text = np.frombuffer(head.tobytes() + sums.tobytes(), np.uint8)
    head["checksum"] = checksum(text.copy())
    return head.tobytes() + sums.tobytes()
