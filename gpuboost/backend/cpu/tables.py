"""A training's table on the CPU, a class for each representation: what histograms read of it, which rows go left, and where rows
end that are in no list.

    draw_columns   what histograms read, for the features and rows of a round
    build          histograms of some nodes from their rows
    mark           which rows of the nodes to be split go left
    predict        the trees just grown, for some rows of a page
"""

from abc import ABC, abstractmethod

import numpy as np

from gpuboost.backend.contract import FlatTrees
from gpuboost.backend.cpu.nodes import NodeArrays
from gpuboost.backend.cpu.predictor import NO_LEAVES
from gpuboost.backend.cpu.rows import PageRows
from gpuboost.backend.plans import ColumnDraw
from gpuboost.binned.matrix import BinnedMatrix, Representation
from gpuboost.binned.packing import Packing
from gpuboost.binned.pages import DensePage, Page, SparsePage
from gpuboost.kernels import histogram, partition, sparse
from gpuboost.kernels.column_sampling import count_drawn
from gpuboost.kernels.compaction import compact_cells_cpu, compact_codes_cpu
from gpuboost.kernels.packing import mark_packed_rows_cpu, unpack_histograms_cpu
from gpuboost.kernels.predict import predict_codes_cpu
from gpuboost.params import Params

__all__ = ["CpuTable", "open_table"]


class CpuTable(ABC):
    """binned : the table. pages : its rows in this training. columns : the features of the round."""

    columns: ColumnDraw

    def __init__(
        self, binned: BinnedMatrix, params: Params, pages: list[PageRows], leaf_size: int, n_threads: int
    ) -> None:
        self._binned, self._cuts, self._pages, self._n_threads = binned, binned.cuts, pages, n_threads
        self._leaf_size = leaf_size
        self._share = params.colsample_bytree
        # Whether histograms read copies of what a round draws. Packed records are read whole.
        self._copies_drawn = self._share < 1 and binned.representation in (Representation.DENSE, Representation.SPARSE)

    #: int64 sums of a histogram beside its bins: of packed codes, before they are undone.
    n_packed_codes = 0

    def draw_columns(self, columns: ColumnDraw) -> None:
        """Take up the features of the round, for the rows that were drawn."""
        self.columns = columns

    @abstractmethod
    def _page(self, p: int) -> Page:
        """Page p, of the kind that the representation has."""

    @abstractmethod
    def build(
        self, arrays: NodeArrays, first_output: np.ndarray, n_limbs: np.ndarray, build: np.ndarray, first_slot: int,
        hist: np.ndarray,
    ) -> None:  # fmt: skip
        """Histograms of the nodes ``build`` in hist : int64 (n, leaf_size, ≥ bins of the features drawn, 2), OUT, where node
        build[i] has slot first_slot + i. first_output : of each tree. n_limbs : of each output."""

    def in_one_page(self) -> tuple[np.ndarray | int, ...]:
        """What kernels/levels.py reads of a table of records in one page."""
        raise NotImplementedError

    @abstractmethod
    def mark(self, p: int, arrays: NodeArrays, selected: np.ndarray, chunks: np.ndarray) -> None:
        """Which rows of page p in the selected nodes go left: marks of the page, and counts in chunks."""

    @abstractmethod
    def predict(self, p: int, flat: FlatTrees, rows: np.ndarray, margin: np.ndarray) -> None:
        """Add the trees' outputs to the margins of some rows of page p."""

    def _items(
        self, p: int, arrays: NodeArrays, first_output: np.ndarray, n_limbs: np.ndarray, lanes: int, build: np.ndarray,
        first_slot: int, hist: np.ndarray,
    ) -> np.ndarray:  # fmt: skip
        """Work items of page p (kernels/histogram.py), each of up to so many outputs. Row lists hold numbers within the page."""
        return histogram.list_build_items(
            build, arrays.nodes, arrays.segments[p], first_output, n_limbs, lanes, p == 0, self._n_threads,
            histogram.MIN_SLICE_ROWS, first_slot, hist,
        )  # fmt: skip


class _Records:
    """Adds up records: eight bytes of a row at a time, each thread in histograms of its own. lanes : outputs added together."""

    def __init__(self, dtype: np.dtype, n_codes: int, most_bins: int, leaf_size: int, n_threads: int) -> None:
        self._stride = histogram.BYTE_STRIDE if dtype == np.uint8 else most_bins + 1
        self._codes_per_word = 8 // dtype.itemsize
        self.lanes = lanes = histogram.LANES if leaf_size > 1 else 1
        n_words = min(histogram.GROUP_WORDS // lanes, -(-n_codes // self._codes_per_word))
        self._n_threads = n_threads
        side_by_side = max(lanes, 2)  # or two limbs of an output
        self._private = np.zeros((n_threads, n_words * self._codes_per_word * self._stride * side_by_side), np.int64)
        self._planes = np.empty((n_threads, n_words, histogram.GATHER_ROWS), np.uint64)
        self._pairs = np.empty((n_threads, histogram.GATHER_ROWS * lanes), np.int64)
        self.scratch = self._codes_per_word, self._stride, lanes, self._private, self._planes, self._pairs

    def add(
        self, words: np.ndarray, rows: PageRows, n_limbs: np.ndarray, offsets: np.ndarray, items: np.ndarray, hist: np.ndarray
    ) -> None:
        """words : uint64 (n_rows, words), IN. offsets : int32 (codes of a record + 1,), IN. Where the sums of each begin."""
        n_words = histogram.count_group_words(self._planes.shape[1], len(items), self._n_threads)
        histogram.build_histograms_cpu(
            words, self._codes_per_word, rows.lists, rows.gpair, n_limbs, offsets, self._stride, items, n_words, hist,
            self._private, self._planes, self._pairs, self._n_threads,
        )  # fmt: skip


class DenseTable(CpuTable):
    """A code for every cell."""

    def __init__(
        self, binned: BinnedMatrix, params: Params, pages: list[PageRows], leaf_size: int, n_threads: int
    ) -> None:
        super().__init__(binned, params, pages, leaf_size, n_threads)
        if binned.representation is not Representation.SORTED:
            n_codes, most = len(binned.record_offsets) - 1, int(binned.cuts.n_bins.max())
            self._records = _Records(binned.dtype, n_codes, most, leaf_size, n_threads)
        self._drawn: list[np.ndarray] = []  # records of the features drawn, by page

    def _page(self, p: int) -> DensePage:
        page = self._binned.pages[p]
        assert isinstance(page, DensePage)
        return page

    def draw_columns(self, columns: ColumnDraw) -> None:
        super().draw_columns(columns)
        if not self._copies_drawn:
            return
        if not self._drawn:
            size = self._binned.dtype.itemsize
            width = histogram.record_bytes(count_drawn(self._share, self._cuts.n_features) * size) // size
            self._drawn = [np.zeros((rows.n_rows, width), self._binned.dtype) for rows in self._pages]
        for p, (rows, drawn) in enumerate(zip(self._pages, self._drawn)):
            compact_codes_cpu(self._page(p).records, columns.features, rows.rows_drawn, drawn, self._n_threads)

    def _words(self, p: int) -> np.ndarray:
        """The records of page p that histograms read, eight bytes at a time."""
        return self._drawn[p].view(np.uint64) if self._drawn else self._page(p).words

    def in_one_page(self) -> tuple[np.ndarray | int, ...]:
        return self._words(0), self._page(0).columns, *self._records.scratch

    def build(
        self, arrays: NodeArrays, first_output: np.ndarray, n_limbs: np.ndarray, build: np.ndarray, first_slot: int,
        hist: np.ndarray,
    ) -> None:  # fmt: skip
        for p, rows in enumerate(self._pages):
            items = self._items(p, arrays, first_output, n_limbs, self._records.lanes, build, first_slot, hist)
            self._records.add(self._words(p), rows, n_limbs, self.columns.offsets, items, hist)

    def mark(self, p: int, arrays: NodeArrays, selected: np.ndarray, chunks: np.ndarray) -> None:
        rows = self._pages[p]
        partition.mark_rows_cpu(
            selected, arrays.nodes, arrays.cats, chunks, self._page(p).columns, self._cuts.n_bins, rows.lists,
            arrays.segments[p], rows.marks, self._n_threads,
        )  # fmt: skip

    def predict(self, p: int, flat: FlatTrees, rows: np.ndarray, margin: np.ndarray) -> None:
        predict_codes_cpu(self._page(p).columns, self._cuts.n_bins, rows, *flat, margin, NO_LEAVES, self._n_threads)


class _Packed:
    """Histograms of packed records, and those of features back out of them."""

    def __init__(self, packing: Packing, leaf_size: int) -> None:
        self._packing = packing
        self.n_codes = int(packing.offsets[-1])
        self._hist = np.empty((0, leaf_size, self.n_codes, 2), np.int64)

    def room(self, n: int, capacity: int) -> np.ndarray:
        """int64 (n, leaf_size, packed codes, 2)."""
        if len(self._hist) < n:
            self._hist = np.empty((max(n, capacity), *self._hist.shape[1:]), np.int64)
        return self._hist[:n]

    def undo(self, packed: np.ndarray, columns: ColumnDraw, offsets: np.ndarray, hist: np.ndarray, n_threads: int) -> None:
        n_total = int(self._packing.offsets[1])
        unpack_histograms_cpu(
            packed, n_total, columns.features, columns.offsets, offsets, *self._packing.undo, hist, n_threads
        )


class _PackedRecords(CpuTable):
    """How packed records are added up, whatever page they belong to."""

    _packed: _Packed
    _records: _Records

    def build(
        self, arrays: NodeArrays, first_output: np.ndarray, n_limbs: np.ndarray, build: np.ndarray, first_slot: int,
        hist: np.ndarray,
    ) -> None:  # fmt: skip
        packed = self._packed.room(len(hist), first_slot + len(hist))
        for p, rows in enumerate(self._pages):
            items = self._items(p, arrays, first_output, n_limbs, self._records.lanes, build, first_slot, packed)
            self._records.add(self._page(p).words, rows, n_limbs, self._binned.record_offsets, items, packed)
        self._packed.undo(packed, self.columns, self._cuts.offsets, hist, self._n_threads)


class PackedTable(_PackedRecords, DenseTable):
    """Records of packed columns beside the columns. All of a record is added up, whatever features are drawn."""

    def __init__(
        self, binned: BinnedMatrix, params: Params, pages: list[PageRows], leaf_size: int, n_threads: int
    ) -> None:
        super().__init__(binned, params, pages, leaf_size, n_threads)
        assert binned.packing is not None
        self._packed = _Packed(binned.packing, leaf_size)
        self.n_packed_codes = self._packed.n_codes


class SparseTable(CpuTable):
    """Lists of the cells that are not absent."""

    def __init__(
        self, binned: BinnedMatrix, params: Params, pages: list[PageRows], leaf_size: int, n_threads: int
    ) -> None:
        super().__init__(binned, params, pages, leaf_size, n_threads)
        self._drawn: list[tuple[np.ndarray, np.ndarray]] = []  # cells of the features drawn and their rows' ends, by page
        self._zero_bins = self._page(0).zero_bins

    def _page(self, p: int) -> SparsePage:
        page = self._binned.pages[p]
        assert isinstance(page, SparsePage)
        return page

    def draw_columns(self, columns: ColumnDraw) -> None:
        super().draw_columns(columns)
        if not self._copies_drawn:
            return
        pages = [self._page(p) for p in range(len(self._pages))]
        if not self._drawn:
            self._drawn = [(np.empty_like(page.cells), np.empty(page.n_rows, np.int64)) for page in pages]
        new_cells = columns.renumber_cells(self._cuts)
        for page, rows, drawn in zip(pages, self._pages, self._drawn):
            compact_cells_cpu(page.row_begin, page.cells, new_cells, rows.rows_drawn, *drawn, self._n_threads)
        if pages[0].absent_is_zero:
            self._zero_bins = new_cells[pages[0].zero_bins[new_cells >= 0]]

    def build(
        self, arrays: NodeArrays, first_output: np.ndarray, n_limbs: np.ndarray, build: np.ndarray, first_slot: int,
        hist: np.ndarray,
    ) -> None:  # fmt: skip
        for p, rows in enumerate(self._pages):
            page = self._page(p)
            cells, row_end = self._drawn[p] if self._drawn else (page.cells, page.row_begin[1:])
            items = self._items(p, arrays, first_output, n_limbs, 1, build, first_slot, hist)
            sparse.build_sparse_histograms_cpu(
                page.row_begin, row_end, cells, int(self.columns.offsets[-1]), self._zero_bins, rows.lists, rows.gpair, n_limbs,
                items, hist, self._n_threads,
            )  # fmt: skip

    def mark(self, p: int, arrays: NodeArrays, selected: np.ndarray, chunks: np.ndarray) -> None:
        page, rows = self._page(p), self._pages[p]
        sparse.mark_sparse_rows_cpu(
            selected, arrays.nodes, arrays.cats, chunks, page.row_begin, page.cells, self._cuts.offsets, page.absent, rows.lists,
            arrays.segments[p], rows.marks, self._n_threads,
        )  # fmt: skip

    def predict(self, p: int, flat: FlatTrees, rows: np.ndarray, margin: np.ndarray) -> None:
        page = self._page(p)
        sparse.predict_cells_cpu(
            page.row_begin, page.cells, self._cuts.offsets, page.absent, rows, *flat, margin, self._n_threads
        )


class PackedSparseTable(_PackedRecords, SparseTable):
    """Records of packed columns beside the cells, for histograms and partition."""

    def __init__(
        self, binned: BinnedMatrix, params: Params, pages: list[PageRows], leaf_size: int, n_threads: int
    ) -> None:
        super().__init__(binned, params, pages, leaf_size, n_threads)
        packing = binned.packing
        assert packing is not None
        self._packing, self._packed = packing, _Packed(packing, leaf_size)
        self.n_packed_codes = self._packed.n_codes
        self._records = _Records(np.dtype(np.uint8), packing.n_groups, 0, leaf_size, n_threads)

    def mark(self, p: int, arrays: NodeArrays, selected: np.ndarray, chunks: np.ndarray) -> None:
        page, rows, packing = self._page(p), self._pages[p], self._packing
        mark_packed_rows_cpu(
            selected, arrays.nodes, arrays.cats, chunks, page.records, packing.groups, packing.offsets, self._cuts.offsets,
            *packing.undo, rows.lists, arrays.segments[p], rows.marks, self._n_threads,
        )  # fmt: skip


_CLASSES: dict[Representation, type[DenseTable] | type[SparseTable]] = {
    Representation.DENSE: DenseTable, Representation.PACKED: PackedTable, Representation.SPARSE: SparseTable,
    Representation.PACKED_SPARSE: PackedSparseTable,
}  # fmt: skip


def open_table(
    binned: BinnedMatrix, params: Params, pages: list[PageRows], leaf_size: int, n_threads: int
) -> CpuTable:
    """The table of a training. Sorted columns have no histograms: their rows are marked and predicted by the page beside them."""
    beside: type[DenseTable] | type[SparseTable] = SparseTable if binned.is_sparse else DenseTable
    return _CLASSES.get(binned.representation, beside)(binned, params, pages, leaf_size, n_threads)
