"""Pages on their way through a GPU: dense pages of the host, in memory or in files, of which as many as there is room for stay
on the device. The others are brought whenever they are asked for, into two buffers in turn:

    host     reads page 2 │ reads page 3 │ reads page 4        into page-locked memory, unless it lies there
    copies   page 1 → B   │ page 2 → A   │ page 3 → B          a stream of their own
    kernels  on page 0, A │ on page 1, B │ on page 2, A        the current stream

What must wait for what: a copy, until the kernels that were launched on its buffer before are done; the kernels on a page,
until it is copied; the host with reading on, until the page-locked memory is copied.
"""

from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing, suppress
from queue import Empty, SimpleQueue

import numpy as np

from gpuboost.backend.contract import Array, FlatTrees
from gpuboost.backend.cuda.device import Device
from gpuboost.binned.matrix import BinnedMatrix
from gpuboost.binned.pages import DensePage, Features, Page, PageStore, Put
from gpuboost.storage.pages import StoredPages

__all__ = ["StagedPages", "split_features"]


class StagedPages(PageStore):
    """home : the same pages on the host. Those that it holds in memory become page-locked, one after another."""

    def __init__(self, device: Device, host: StoredPages) -> None:
        self._device, self._home = device, host
        self._held: dict[int, DensePage] = {}
        self._spare: SimpleQueue[_Stage] = SimpleQueue()  # that no walk uses
        host.relocate(self._locked)

    def _locked(self, array: np.ndarray) -> np.ndarray:
        copy = self._device.page_locked(array.shape, array.dtype)
        copy[...] = array
        return copy

    @property
    def home(self) -> StoredPages:
        return self._home

    @property
    def page_rows(self) -> tuple[int, ...]:
        return self._home.page_rows

    @property
    def dtype(self) -> np.dtype:
        return self._home.dtype

    @property
    def is_sparse(self) -> bool:
        return False

    @property
    def is_resident(self) -> bool:
        return len(self._held) == len(self)

    def __getitem__(self, p: int) -> DensePage:
        if p in self._held:
            return self._held[p]
        with self._device.current():
            return self._home[p].moved(self._device.put)

    def moved(self, put: Put) -> PageStore:
        """Back to the host."""
        return self._home

    @property
    def staging_bytes(self) -> int:
        """Of the two buffers."""
        return 2 * self._home.buffer_size * self.dtype.itemsize

    def hold(self, n_bytes: int) -> None:
        """Keep as many pages on the device as take so many bytes; waits for it. What was held before is given back, once nobody
        walks over it: who trains on these pages may be at work on another thread."""
        self._held, held = {}, dict[int, DensePage]()
        sizes = [self._home.page_bytes(p) for p in range(len(self))]
        if sum(sizes) > n_bytes:
            n_bytes -= self.staging_bytes
        for p in np.flatnonzero(np.cumsum(sizes) <= n_bytes).tolist():
            held[p] = self[p]
        self._held = held

    def walk(self, features: Features = None, numbers: Iterable[int] | None = None) -> Iterator[tuple[int, Page]]:
        held, wanted = self._held, list(range(len(self)) if numbers is None else numbers)
        missing = [p for p in wanted if p not in held]
        columns = features() if missing and callable(features) else features
        with closing(self._bring(None if callable(columns) else columns, missing)) as brought:
            for p in wanted:
                yield (p, held[p]) if p in held else next(brought)

    def _bring(self, features: np.ndarray | None, numbers: list[int]) -> Generator[tuple[int, DensePage]]:
        if not numbers:
            return
        try:
            stage = self._spare.get_nowait()
        except Empty:
            stage = _Stage(self._device, self._home)
        with suppress(GeneratorExit):  # nobody asks for more
            with closing(self._home.walk_in(stage.locked, features, numbers)) as read:
                for i, (p, source) in enumerate(read):
                    yield from stage.bring(i % 2, p, source, features)
        self._spare.put(stage)  # not after an error: of an interrupted walk a thread may still write to it


class _Stage:
    """What one walk needs. locked : page-locked memory for two pages."""

    def __init__(self, device: Device, host: StoredPages) -> None:
        self._device, self._host = device, host
        size, dtype = host.buffer_size, host.dtype
        with device.current():
            self.locked = device.page_locked((size,), dtype), device.page_locked((size,), dtype)
            self._buffers = device.empty(size, dtype), device.empty(size, dtype)
            self._free = [device.mark(), device.mark()]  # behind what was launched on each
        self._pages: dict[tuple[int, int], DensePage] = {}  # the same arrays each time: launches on them are kept

    def bring(self, b: int, p: int, source: DensePage, features: np.ndarray | None) -> Iterator[tuple[int, DensePage]]:
        """Page p, in buffer b for as long as nobody asks for the next."""
        key = b, source.n_rows
        if key not in self._pages:
            self._pages[key] = self._host.page_in(self._buffers[b], source.n_rows)
        page, device = self._pages[key], self._device
        with device.current():
            copied = device.start_upload(_parts(source, page, features), self._free[b])
            device.order_behind(copied)
        try:
            yield p, page
        finally:
            with device.current():
                self._free[b] = device.mark()
                copied.wait()


def _parts(source: DensePage, target: DensePage, features: np.ndarray | None) -> Iterator[tuple[np.ndarray, Array]]:
    """What is copied: the records, or the columns of some features, those that lie side by side in one go."""
    if features is None:
        yield source.records, target.records
        return
    for run in np.split(features, np.flatnonzero(np.diff(features) != 1) + 1):
        if len(run):
            yield source.columns[run[0] : run[-1] + 1], target.columns[run[0] : run[-1] + 1]


def split_features(device: Device, flat: FlatTrees, binned: BinnedMatrix) -> Callable[[], np.ndarray]:
    """What finds the columns that a walk is to bring for trees on the device, which is waited for. (Behind the trees' nodes may
    lie others, of trees before: their columns then come, too.)"""

    def fetch() -> np.ndarray:
        features = np.unique(device.fetch(flat.nodes)["feature"])
        return features[(features >= 0) & (features < binned.cuts.n_features)]

    return fetch
