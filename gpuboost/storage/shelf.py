"""A shelf: arrays stay in memory while there is room, the others go to files of a private folder."""

import tempfile

import numpy as np

from gpuboost.storage.array_file import ArrayFile, HeldArray, Shelved, write_array
from gpuboost.storage.folder import PrivateFolder

__all__ = ["Shelf"]


class Shelf:
    """Takes arrays of two dimensions. Its files are there for as long as it is.

    room : bytes that may stay in memory. folder : in which a private folder is made once there are files; None: that for
    temporary files (tempfile.gettempdir).
    """

    def __init__(self, room: int, folder: str | None = None) -> None:
        self._room, self._parent = room, folder
        self._folder: PrivateFolder | None = None
        self._n_files = 0
        self.bytes_in_files = 0

    def has_room(self, n_bytes: int) -> bool:
        """Whether so many bytes more would stay in memory. Once arrays go to files, all do."""
        return self._folder is None and n_bytes <= self._room

    def put(self, *arrays: np.ndarray) -> list[Shelved]:
        """Keep arrays, all in memory or all in files: those in memory are not copied.

        Raises OSError where the disk is full; then no file is left.
        """
        n_bytes = sum(array.nbytes for array in arrays)
        if self.has_room(n_bytes):
            self._room -= n_bytes
            return [HeldArray(array) for array in arrays]
        if self._folder is None:
            self._folder = PrivateFolder(self._parent or tempfile.gettempdir())
        try:
            return [self._write(array) for array in arrays]
        except BaseException:
            self._folder.remove()
            raise

    def _write(self, array: np.ndarray) -> ArrayFile:
        assert self._folder is not None
        self._n_files += 1
        written = write_array(self._folder.file(f"{self._n_files:06}.array"), np.ascontiguousarray(array))
        self.bytes_in_files += written.bytes_written
        return written
