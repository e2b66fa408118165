"""Pages of codes on a shelf: those that found no room in memory are read whenever they are asked for."""

from collections.abc import Generator, Iterable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import partial
from queue import Empty, SimpleQueue

import numpy as np

from gpuboost.arrays import empty_from_a_line
from gpuboost.binned.pages import Array, DensePage, Features, Page, PageStore, Put, ResidentPages
from gpuboost.storage.ahead import read_ahead
from gpuboost.storage.array_file import ArrayFile, HeldArray, Shelved
from gpuboost.storage.shelf import Shelf

__all__ = ["StoredPages"]

# A part is checked while it is in the processor's cache: 6M × 28 of files that the system's cache holds, two cores of an AMD EPYC
# (2026-11-23), trained at 0.57 to 0.66 of the speed in memory with one part, at 0.73 to 0.76 with up to 64.
RECORD_PARTS, LARGE_RECORDS = 64, 2**20  # most parts of a page; bytes of records from which they are parted
Buffers = tuple[np.ndarray, np.ndarray]  # each of buffer_size codes: for one page while the other is in use


@dataclass(frozen=True)
class _StoredPage:
    """Where a dense page lies. columns : a part for each feature. records : parts of equally many rows."""

    n_rows: int
    columns: Shelved
    records: Shelved


class StoredPages(PageStore):
    """Dense pages in host memory and in files. shelf : where they go. width : codes of a record."""

    def __init__(self, shelf: Shelf, dtype: np.dtype, n_features: int, width: int) -> None:
        self._shelf, self._dtype, self._n_features, self._width = shelf, dtype, n_features, width
        self._pages: list[_StoredPage] = []
        self._spare: SimpleQueue[Buffers] = SimpleQueue()  # that no walk uses

    def add(self, page: DensePage) -> None:
        """Put a page behind the others, none of which has fewer rows. It may be overwritten afterwards where it did not stay in
        memory (holds_last)."""
        n_parts = 1
        if page.records.nbytes > LARGE_RECORDS:
            n_parts = next(n for n in range(RECORD_PARTS, 0, -1) if page.n_rows % n == 0)
        self._pages.append(_StoredPage(page.n_rows, *self._shelf.put(page.columns, page.records.reshape(n_parts, -1))))

    @property
    def holds_last(self) -> bool:
        """Whether the last page stayed in memory."""
        return self._pages[-1].columns.is_held

    @property
    def page_rows(self) -> tuple[int, ...]:
        return tuple(page.n_rows for page in self._pages)

    @property
    def dtype(self) -> np.dtype:
        return self._dtype

    @property
    def is_sparse(self) -> bool:
        return False

    @property
    def is_resident(self) -> bool:
        return all(page.columns.is_held for page in self._pages)

    @property
    def bytes_in_files(self) -> int:
        return self._shelf.bytes_in_files

    def __getitem__(self, p: int) -> DensePage:
        page = self._pages[p]
        return DensePage(page.columns.read(), page.records.read().reshape(-1, self._width))

    def __reduce__(self) -> tuple[type[ResidentPages], tuple[tuple[Page, ...]]]:
        """Who pickles them gets pages in memory: the files end with this process."""
        return ResidentPages, (tuple(self),)

    def walk(self, features: Features = None, numbers: Iterable[int] | None = None) -> Iterator[tuple[int, Page]]:
        wanted = list(range(len(self._pages)) if numbers is None else numbers)
        if all(self._pages[p].columns.is_held for p in wanted):
            yield from ((p, self[p]) for p in wanted)
            return
        try:
            buffers = self._spare.get_nowait()
        except Empty:
            buffers = (empty_from_a_line((self.buffer_size,), self._dtype), empty_from_a_line((self.buffer_size,), self._dtype))
        with suppress(GeneratorExit):  # nobody asks for more
            with closing(self.walk_in(buffers, features() if callable(features) else features, wanted)) as pages:
                yield from pages
        self._spare.put(buffers)  # not after an error: of an interrupted walk a thread may still write to them

    def walk_in(self, buffers: Buffers, features: np.ndarray | None, numbers: list[int]) -> Generator[tuple[int, DensePage]]:
        """The same, with pages of files in these buffers, which nobody writes to once this has ended or is closed without an
        error."""
        reads = [partial(self._read, p, features, buffers[i % 2]) for i, p in enumerate(numbers)]
        with closing(read_ahead(reads)) as pages:
            yield from zip(numbers, pages)

    @property
    def buffer_size(self) -> int:
        """Codes of the columns or of the records of any page: of whichever there are more."""
        return max(self._n_features, self._width) * max(self.page_rows)

    def page_bytes(self, p: int) -> int:
        """Of both layouts."""
        return (self._n_features + self._width) * self._pages[p].n_rows * self._dtype.itemsize

    def page_in(self, buffer: Array, n_rows: int) -> DensePage:
        """A page of so many rows that lies in a buffer, of whatever memory: its columns and its records are in one place."""
        columns, records = buffer[: self._n_features * n_rows], buffer[: self._width * n_rows]
        return DensePage(columns.reshape(self._n_features, n_rows), records.reshape(n_rows, self._width))

    def relocate(self, put: Put) -> None:
        """Have the pages that are held in other memory of the host, one after another."""
        for p, page in enumerate(self._pages):
            if page.columns.is_held:
                held = (HeldArray(put(array.read())) for array in (page.columns, page.records))
                self._pages[p] = _StoredPage(page.n_rows, *held)

    def _read(self, p: int, features: np.ndarray | None, buffer: np.ndarray) -> DensePage:
        stored = self._pages[p]
        if stored.columns.is_held:
            return self[p]
        page = self.page_in(buffer, stored.n_rows)
        if features is None:
            assert isinstance(stored.records, ArrayFile)
            stored.records.read(out=page.records.reshape(stored.records.shape))
        else:
            stored.columns.read(features, page.columns)
        return page
