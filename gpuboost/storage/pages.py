"""Pages of codes on a shelf: those that found no room in memory are read whenever they are asked for."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from queue import Empty, SimpleQueue

import numpy as np

from gpuboost.binned.pages import DensePage, Page, PageStore, ResidentPages
from gpuboost.storage.ahead import read_ahead
from gpuboost.storage.array_file import Shelved
from gpuboost.storage.shelf import Shelf

__all__ = ["StoredPages"]

_Buffer = tuple[np.ndarray, np.ndarray]  # room for the columns and the records of a page


@dataclass(frozen=True)
class _StoredPage:
    """Where a dense page lies. columns : a part for each feature. records : one part, of all rows."""

    n_rows: int
    columns: Shelved
    records: Shelved


class StoredPages(PageStore):
    """Dense pages in host memory and in files. shelf : where they go. width : codes of a record."""

    def __init__(self, shelf: Shelf, dtype: np.dtype, n_features: int, width: int) -> None:
        self._shelf, self._dtype, self._n_features, self._width = shelf, dtype, n_features, width
        self._pages: list[_StoredPage] = []
        self._spare: SimpleQueue[_Buffer] = SimpleQueue()  # that no walk uses

    def add(self, page: DensePage) -> None:
        """Put a page behind the others, none of which has fewer rows. It may be overwritten afterwards where it did not stay in
        memory (holds_last)."""
        self._pages.append(_StoredPage(page.n_rows, *self._shelf.put(page.columns, page.records.reshape(1, -1))))

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

    def walk(self, features: np.ndarray | None = None, numbers: Iterable[int] | None = None) -> Iterator[tuple[int, Page]]:
        wanted = list(range(len(self._pages)) if numbers is None else numbers)
        if all(self._pages[p].columns.is_held for p in wanted):
            yield from ((p, self[p]) for p in wanted)
            return
        buffers = [self._buffer(), self._buffer()]
        try:
            reads = [partial(self._read, p, features, buffers[i % 2]) for i, p in enumerate(wanted)]
            yield from zip(wanted, read_ahead(reads))
        finally:
            for buffer in buffers:
                self._spare.put(buffer)

    def _buffer(self) -> _Buffer:
        try:
            return self._spare.get_nowait()
        except Empty:
            most_rows = self._pages[0].n_rows
            return np.empty(self._n_features * most_rows, self._dtype), np.empty(self._width * most_rows, self._dtype)

    def _read(self, p: int, features: np.ndarray | None, buffer: _Buffer) -> DensePage:
        page = self._pages[p]
        if page.columns.is_held:
            return self[p]
        columns, records = (part[: n * page.n_rows] for part, n in zip(buffer, (self._n_features, self._width)))
        if features is None:
            page.records.read(out=records.reshape(1, -1))
        else:
            page.columns.read(features, columns.reshape(-1, page.n_rows))
        return DensePage(columns.reshape(-1, page.n_rows), records.reshape(-1, self._width))
