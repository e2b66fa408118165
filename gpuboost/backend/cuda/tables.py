"""A training's table on a GPU, a class for each representation: what histograms read of it, which rows go left, and where rows
end that are in no list. The twins of backend/cpu/tables.py, launched by bounds."""

from abc import ABC, abstractmethod

import numpy as np

from gpuboost.backend.contract import Array, FlatTrees
from gpuboost.backend.cuda.memory import Launcher
from gpuboost.backend.cuda.nodes import NodeArrays
from gpuboost.backend.cuda.record_tiles import RecordTiles, choose_tiles
from gpuboost.backend.cuda.rows import PageRows
from gpuboost.backend.cuda.staging import StagedPages
from gpuboost.backend.draws import all_columns
from gpuboost.backend.plans import ColumnDraw, FrontierBatch
from gpuboost.binned.matrix import BinnedMatrix, Representation
from gpuboost.binned.packing import Packing
from gpuboost.binned.pages import DensePage, Page, SparsePage
from gpuboost.kernels import compaction, growth, histogram, partition, predict_codes, row_leaves, sparse
from gpuboost.kernels.column_sampling import count_drawn
from gpuboost.kernels.cuda_common import CudaKernel
from gpuboost.kernels.packing import unpack_histograms_kernel
from gpuboost.params import Params

__all__ = ["CudaTable", "bytes_copied", "open_table"]

UINT32 = np.dtype(np.uint32)
LISTING_THREADS = 256  # of the block that lists slices: there may be more of these than nodes
CLEARED_AHEAD = 2**24  # bytes of histograms made 0 in one go: 3 µs at 4.8 TB/s, about as long as a launch takes


class DrawnColumns:
    """The features of a round on the device, in arrays that stay: features, offsets as plans.ColumnDraw; new_cells : int32
    (total_bins + n_features,), of a sparse table whose cells are copied, ColumnDraw.renumber_cells."""

    def __init__(self, launch: Launcher, binned: BinnedMatrix, params: Params) -> None:
        share, cuts = params.colsample_bytree, binned.cuts
        n_drawn, renumbers = count_drawn(share, cuts.n_features), binned.is_sparse and bytes_copied(binned, params) > 0
        everything = all_columns(cuts)
        put, self._cuts, self._is_all = launch.device.put, cuts, share == 1
        self._write = launch.device.write
        self.features = put(everything.features[:n_drawn])
        self.offsets = put(everything.offsets[: n_drawn + 1])
        self.new_cells = launch.device.empty(cuts.total_bins + cuts.n_features if renumbers else 0, np.int32)

    def take(self, drawn: ColumnDraw) -> np.ndarray | None:
        """Take up the draw of a round; the numbers of cells on the host, where cells are renumbered."""
        if self._is_all:
            return None
        self._write(self.features, drawn.features)
        self._write(self.offsets, drawn.offsets)
        if not len(self.new_cells):
            return None
        new_cells = drawn.renumber_cells(self._cuts)
        self._write(self.new_cells, new_cells)
        return new_cells


class CudaTable(ABC):
    """binned : the table. pages : its rows in this training. first_output : int32 (n_trees,), progress : on the device."""

    #: Where histograms are added up by packed records.
    _packed: "_Packed | None" = None
    #: Whether find_leaves is there.
    can_find_leaves = False

    def __init__(
        self, launch: Launcher, binned: BinnedMatrix, params: Params, pages: list[PageRows], first_output: Array, progress: Array
    ) -> None:
        self._launch, self._device = launch, launch.device
        self._binned, self._pages, self._first_output, self._progress = binned, pages, first_output, progress
        self._offsets, self._n_bins = launch.device.put(binned.cuts.offsets), launch.device.put(binned.cuts.n_bins)
        self.walk = binned.pages.walk
        self.columns = DrawnColumns(launch, binned, params)
        self._clear = range(0)  # slots that are 0 and not yet used in this round

    def draw_columns(self, drawn: ColumnDraw) -> None:
        """Take up the features of the round; before its rows are drawn."""
        self._clear = range(0)
        self.columns.take(drawn)

    @property
    def stays(self) -> bool:
        """Whether all pages are on the device for as long as the training takes."""
        return not isinstance(self._binned.pages, StagedPages)

    def copy_drawn(self) -> None:  # noqa: B027 - most have nothing to copy
        """Copy what histograms read of the pages for the features and rows drawn, where they would otherwise read all of it."""

    def build(self, arrays: NodeArrays, n_limbs: Array, n: int, batch: FrontierBatch, max_depth: int, hist: Array) -> None:
        """Histograms of the batch's nodes, n at most, in the slots of hist from batch.first_slot on."""
        target, device = self.reserve(hist), self._device
        self._clear_slots(target, batch.first_slot, n)
        kernel, n_tiles, n_lines = self._kernel()
        n_blocks, n_variants = device.n_multiprocessors * kernel.blocks_per_sm, n_tiles * hist.shape[1]
        n_even = max(device.n_multiprocessors // n_variants, 1)
        parts = histogram.parts_of_rows(n_blocks, n_variants), n_even, n_lines * n_variants
        for p, page in self.walk():
            rows, segments = self._pages[p], arrays.segments[p]
            work = self._first_output, segments, *parts
            if p == 0:
                self._launch(
                    growth.choose_built_kernel, batch.begin, batch.end - batch.begin, max_depth, batch.first_slot,
                    int(batch.subtract), self._progress, arrays.nodes, arrays.counts, arrays.build, arrays.parents, *work,
                    rows.slices, rows.first_slice, blocks=1, threads=max(n, LISTING_THREADS),
                )  # fmt: skip
            else:
                self._launch(
                    histogram.list_build_items_kernel, arrays.build, arrays.nodes, *work, self._progress, rows.slices,
                    rows.first_slice, blocks=1, threads=max(n, LISTING_THREADS),
                )  # fmt: skip
            self._add(p, page, kernel, n_blocks, n_limbs, (self._progress, rows.slices, rows.first_slice, target))
        if self._packed is not None:
            self._packed.undo(n, batch.first_slot, hist)

    def _clear_slots(self, target: Array, first: int, n: int) -> None:
        """Make n slots 0, and where slots are first used in a round some more of those behind them: for levels to come."""
        if first < self._clear.start or first + n > self._clear.stop:
            ahead = 0 if first < self._clear.start else CLEARED_AHEAD // max(target[0].nbytes, 1)
            end = min(first + max(n, ahead), len(target))
            self._device.clear(target[first:end])
            self._clear = range(first, end)
        self._clear = range(first + n, self._clear.stop)

    def reserve(self, hist: Array) -> Array:
        """Where histograms are added up that end in ``hist``: there, or in an array beside it, allocated on the first call."""
        return hist if self._packed is None else self._packed.room(hist)

    @abstractmethod
    def _kernel(self) -> tuple[CudaKernel, int, int]:
        """The kernel that adds up a page, into how many tiles it cuts a histogram, and how many lines these have; 0: it adds to
        the histogram itself."""

    @abstractmethod
    def _add(self, p: int, page: Page, kernel: CudaKernel, n_blocks: int, n_limbs: Array, work: tuple[Array, ...]) -> None:
        """Add up page p."""

    def _add_records(
        self, p: int, words: Array, tiles: RecordTiles, n_limbs: Array, n_blocks: int, work: tuple[Array, ...]
    ) -> None:
        """Add up page p by its records. words : as tiles.word."""
        rows, offsets = self._pages[p], self.columns.offsets if self._packed is None else self._packed.record_offsets
        self._launch(
            tiles.kernel, words, rows.lists, rows.gpair, n_limbs, offsets, *tiles.shape, *work, blocks=n_blocks,
            shared=tiles.shared_bytes,
        )  # fmt: skip

    @abstractmethod
    def move(self, p: int, page: Page, arrays: NodeArrays, n_chunks: int) -> None:
        """Write the rows of page p in the selected nodes where those of their children lie. page : with the columns that those
        are split by."""

    def find_leaves(self, p: int, page: Page, arrays: NodeArrays, n_nodes: int, found: Array) -> None:
        """Where the rows of page p end (kernels/row_leaves.py); n_nodes at most."""
        raise NotImplementedError

    @abstractmethod
    def predict(self, p: int, page: Page, flat: FlatTrees, listed: tuple[Array, Array], margin: Array) -> None:
        """Add the trees' outputs to the margins of the rows of page p that are listed from the back (kernels/row_sampling.py).
        page : with the columns that the trees split by."""


def _tiles(launch: Launcher, offsets: np.ndarray, n_codes: int, code_bytes: int) -> RecordTiles:
    return choose_tiles(int(np.diff(offsets).max()), n_codes, code_bytes, launch.device.shared_limit)


class DenseTable(CudaTable):
    """A code for every cell, or records of packed columns beside them. All of such a record is added up, whatever features are
    drawn."""

    def __init__(
        self, launch: Launcher, binned: BinnedMatrix, params: Params, pages: list[PageRows], first_output: Array, progress: Array
    ) -> None:
        super().__init__(launch, binned, params, pages, first_output, progress)
        n_codes, size = len(self.columns.features), binned.dtype.itemsize
        if binned.packing is not None:
            n_codes = binned.packing.n_groups
            self._packed = _Packed(launch, binned.packing, self._offsets, self.columns, params.colsample_bytree < 1)
        self._tiles = _tiles(launch, binned.record_offsets, n_codes, size)
        self._no_leaves = self._device.empty((0, 0), np.int32)
        self.can_find_leaves = binned.cuts.n_features <= row_leaves.MAX_FEATURES
        self._views: dict[tuple[int, np.dtype], tuple[Array, Array]] = {}
        self._drawn: list[Array] = []  # records of the features drawn, by page; one for all where pages come from the host
        if bytes_copied(binned, params):
            width = histogram.record_bytes(n_codes * size) // 4
            self._drawn = [self._device.zeros((n_rows, width), np.uint32) for n_rows in _rows_copied(binned)]

    def _view(self, records: Array, dtype: np.dtype) -> Array:
        """Records as words of another dtype: the same object each time, so that launches on it are kept."""
        key = id(records), dtype
        if key not in self._views:
            self._views[key] = records, records.view(dtype)
        return self._views[key][1]

    def copy_drawn(self) -> None:
        if len(self._drawn) == len(self._pages):
            for p, page in self.walk():
                self._copy_drawn(p, page, self._drawn[p])

    def _copy_drawn(self, p: int, page: Page, drawn: Array) -> None:
        assert isinstance(page, DensePage)
        rows, features, code_bits = self._pages[p], self.columns.features, 8 * self._binned.dtype.itemsize
        self._launch(
            compaction.compact_codes_kernel, self._view(page.records, UINT32), code_bits, features, rows.drawn, rows.n_listed,
            drawn, threads=len(rows.kept) * -(-len(features) * code_bits // 32),
        )  # fmt: skip

    def _words(self, p: int, page: Page) -> Array:
        """The records of page p that histograms read, as the tiles read them."""
        assert isinstance(page, DensePage)
        records = page.records
        if len(self._drawn) == len(self._pages):
            records = self._drawn[p]
        elif self._drawn:
            records = self._drawn[0]
            self._copy_drawn(p, page, records)
        return self._view(records, self._tiles.word)

    def _kernel(self) -> tuple[CudaKernel, int, int]:
        return self._tiles.kernel, self._tiles.n_tiles, self._tiles.n_lines

    def _add(self, p: int, page: Page, kernel: CudaKernel, n_blocks: int, n_limbs: Array, work: tuple[Array, ...]) -> None:
        self._add_records(p, self._words(p, page), self._tiles, n_limbs, n_blocks, work)

    def move(self, p: int, page: Page, arrays: NodeArrays, n_chunks: int) -> None:
        assert isinstance(page, DensePage)
        rows = self._pages[p]
        self._launch(
            partition.move_rows_kernel, arrays.selected, arrays.nodes, arrays.cats, page.columns, self._n_bins,
            rows.lists, arrays.segments[p], self._progress, arrays.first_item, rows.moved, arrays.counts, blocks=n_chunks,
        )  # fmt: skip

    def find_leaves(self, p: int, page: Page, arrays: NodeArrays, n_nodes: int, found: Array) -> None:
        assert isinstance(page, DensePage)
        rows = self._pages[p]
        self._launch(
            row_leaves.find_leaves_kernel, arrays.nodes, arrays.cats, page.columns, self._n_bins, self._progress, rows.subset,
            found, warps=-(-len(rows.kept) // (32 * row_leaves.ROWS_PER_THREAD)),
            shared=n_nodes * row_leaves.WORD_BYTES,
        )  # fmt: skip

    def predict(self, p: int, page: Page, flat: FlatTrees, listed: tuple[Array, Array], margin: Array) -> None:
        assert isinstance(page, DensePage)
        self._launch(
            predict_codes.predict_codes_kernel, page.columns, self._n_bins, *listed, *flat, self._pages[p].first, margin,
            self._no_leaves, threads=len(listed[0]),
        )  # fmt: skip


class _Packed:
    """Histograms of packed records, and those of features back out of them."""

    def __init__(self, launch: Launcher, packing: Packing, offsets: Array, columns: DrawnColumns, clears: bool) -> None:
        self._launch, self._columns, self._offsets, self._clears = launch, columns, offsets, clears  # clears : what is not drawn
        self._n_total, self._n_codes = int(packing.offsets[1]), int(packing.offsets[-1])
        self._undo = tuple(map(launch.device.put, packing.undo))
        self.record_offsets = launch.device.put(packing.offsets)
        self._hist: Array | None = None

    def room(self, hist: Array) -> Array:
        """int64 (slots, leaf_size, packed codes, 2), as many slots as hist has."""
        if self._hist is None:
            self._hist = self._launch.device.empty((*hist.shape[:2], self._n_codes, 2), np.int64)
        return self._hist

    def undo(self, n: int, first_slot: int, hist: Array) -> None:
        if self._clears:  # the last bins may belong to no feature of this round, but are subtracted, too
            self._launch.device.clear(hist[first_slot : first_slot + n])
        features = self._columns.features
        self._launch(
            unpack_histograms_kernel, first_slot, n, self._hist, self._n_total, features, self._columns.offsets, self._offsets,
            *self._undo, hist, warps=n * hist.shape[1] * len(features),
        )  # fmt: skip


class SparseTable(CudaTable):
    """Lists of the cells that are not absent."""

    def __init__(
        self, launch: Launcher, binned: BinnedMatrix, params: Params, pages: list[PageRows], first_output: Array, progress: Array
    ) -> None:
        super().__init__(launch, binned, params, pages, first_output, progress)
        empty, tables = self._device.empty, [self._page(p) for p in range(len(pages))]
        self._read = [(page.row_begin[1:], page.cells, page.zero_bins) for page in tables]  # ends of rows, cells, zero bins
        self._copies = bytes_copied(binned, params) > 0
        if self._copies:
            self._read = [
                (empty(page.n_rows, np.int64), empty(len(page.cells), np.int32), empty(len(page.zero_bins), np.int32))
                for page in tables
            ]

    def _page(self, p: int) -> SparsePage:
        page = self._binned.pages[p]
        assert isinstance(page, SparsePage)
        return page

    def draw_columns(self, drawn: ColumnDraw) -> None:
        self._clear = range(0)
        new_cells = self.columns.take(drawn)
        if new_cells is None or not self._copies:
            return
        for p, (_, _, zero_bins) in enumerate(self._read):
            host = self._page(p).host or self._page(p)
            if host.absent_is_zero:
                new_zero_bins = new_cells[host.zero_bins[new_cells >= 0]]
                self._device.write(zero_bins[: len(new_zero_bins)], new_zero_bins)

    def copy_drawn(self) -> None:
        for p, (row_end, cells, _) in enumerate(self._read if self._copies else ()):
            page, rows = self._page(p), self._pages[p]
            self._launch(
                compaction.compact_cells_kernel, page.row_begin, page.cells, self.columns.new_cells, rows.drawn, rows.n_listed,
                cells, row_end, threads=len(rows.kept),
            )  # fmt: skip

    def _kernel(self) -> tuple[CudaKernel, int, int]:
        return sparse.build_sparse_histograms_kernel, 1, 0

    def _add(self, p: int, page: Page, kernel: CudaKernel, n_blocks: int, n_limbs: Array, work: tuple[Array, ...]) -> None:
        rows = self._pages[p]
        self._launch(
            kernel, self._page(p).row_begin, *self._read[p], rows.lists, rows.gpair, n_limbs, self.columns.offsets, *work,
            blocks=n_blocks,
        )  # fmt: skip

    def move(self, p: int, page: Page, arrays: NodeArrays, n_chunks: int) -> None:
        page, rows = self._page(p), self._pages[p]
        self._launch(
            sparse.move_sparse_rows_kernel, arrays.selected, arrays.nodes, arrays.cats, page.row_begin, page.cells,
            self._offsets, page.absent, rows.lists, arrays.segments[p], self._progress, arrays.first_item, rows.moved,
            arrays.counts, blocks=n_chunks,
        )  # fmt: skip

    def predict(self, p: int, page: Page, flat: FlatTrees, listed: tuple[Array, Array], margin: Array) -> None:
        page = self._page(p)
        self._launch(
            sparse.predict_cells_kernel, page.row_begin, page.cells, self._offsets, page.absent, *listed, *flat,
            self._pages[p].first, margin, threads=len(listed[0]),
        )  # fmt: skip


class PackedSparseTable(SparseTable):
    """Records of packed columns beside the cells, for histograms."""

    def __init__(
        self, launch: Launcher, binned: BinnedMatrix, params: Params, pages: list[PageRows], first_output: Array, progress: Array
    ) -> None:
        super().__init__(launch, binned, params, pages, first_output, progress)
        packing = binned.packing
        assert packing is not None
        self._packed = _Packed(launch, packing, self._offsets, self.columns, params.colsample_bytree < 1)
        self._tiles = _tiles(launch, packing.offsets, packing.n_groups, 1)
        (page,) = (self._page(p) for p in range(len(pages)))
        assert page.records is not None
        self._words = page.records.view(self._tiles.word)

    def _kernel(self) -> tuple[CudaKernel, int, int]:
        return self._tiles.kernel, self._tiles.n_tiles, self._tiles.n_lines

    def _add(self, p: int, page: Page, kernel: CudaKernel, n_blocks: int, n_limbs: Array, work: tuple[Array, ...]) -> None:
        self._add_records(p, self._words, self._tiles, n_limbs, n_blocks, work)


_CLASSES: dict[Representation, type[DenseTable] | type[SparseTable]] = {
    Representation.DENSE: DenseTable, Representation.PACKED: DenseTable, Representation.SPARSE: SparseTable,
    Representation.PACKED_SPARSE: PackedSparseTable,
}  # fmt: skip


def open_table(
    launch: Launcher, binned: BinnedMatrix, params: Params, pages: list[PageRows], first_output: Array, progress: Array
) -> CudaTable:
    """The table of a training."""
    return _CLASSES[binned.representation](launch, binned, params, pages, first_output, progress)


def bytes_copied(binned: BinnedMatrix, params: Params) -> int:
    """Bytes of the copies that histograms read where a round draws features. Packed records are read whole."""
    if params.colsample_bytree == 1 or binned.packing is not None:
        return 0
    if binned.is_sparse:
        return 4 * binned.n_cells
    n_codes = count_drawn(params.colsample_bytree, binned.cuts.n_features)
    return sum(_rows_copied(binned)) * histogram.record_bytes(n_codes * binned.dtype.itemsize)


def _rows_copied(binned: BinnedMatrix) -> tuple[int, ...]:
    """Rows of the copies of records: of every page, or one after another where pages come from the host."""
    return binned.pages.page_rows if binned.pages.is_resident else (max(binned.pages.page_rows),)
