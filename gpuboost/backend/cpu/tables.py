"""A training's table on the CPU, a class for each representation: what histograms read of it, which rows go left, and where rows
end that are in no list.

    draw_columns   what histograms read, for the features and rows of a round
    narrow         and from now on, for the candidates that a tree has proposed
    build          histograms of some nodes from their rows
    mark           which rows of the nodes to be split go left
    predict        the trees just grown, for some rows of a page
"""

from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from gpuboost.arrays import zeros_from_a_line
from gpuboost.backend.contract import FlatTrees
from gpuboost.backend.cpu.candidates import Candidates, most_candidates
from gpuboost.backend.cpu.columns import known_columns
from gpuboost.backend.cpu.nodes import NodeArrays
from gpuboost.backend.cpu.predictor import NO_LEAVES
from gpuboost.backend.cpu.rows import PageRows
from gpuboost.backend.plans import ColumnDraw
from gpuboost.binned.cuts import Cuts
from gpuboost.binned.matrix import BinnedMatrix, Representation
from gpuboost.binned.packing import Packing
from gpuboost.binned.pages import DensePage, Page, SparsePage
from gpuboost.kernels import histogram, partition, sparse
from gpuboost.kernels.column_sampling import count_drawn
from gpuboost.kernels.compaction import compact_cells_cpu, compact_codes_cpu, recode_cpu
from gpuboost.kernels.packing import mark_packed_rows_cpu, unpack_histograms_cpu
from gpuboost.kernels.predict_codes import predict_codes_cpu
from gpuboost.params import Params

__all__ = ["CpuTable", "open_table"]

NO_ENTRIES = np.zeros((0, 2), np.int64), np.zeros(0, np.int32), np.zeros(0, np.uint32)


class CpuTable(ABC):
    """binned : the table. pages : its rows in this training. columns : the features of the round. notes : as
    mark_sparse_rows_cpu."""

    columns: ColumnDraw
    notes: np.ndarray

    def __init__(
        self, binned: BinnedMatrix, params: Params, pages: list[PageRows], leaf_size: int, n_threads: int
    ) -> None:
        self._binned, self._cuts, self._pages, self._n_threads = binned, binned.cuts, pages, n_threads
        self.notes = np.zeros((n_threads, 0), np.uint8)
        self._leaf_size = leaf_size
        self._share = params.colsample_bytree
        # Whether histograms read copies of what a round draws. Packed records are read whole.
        self._copies_drawn = self._share < 1 and binned.representation in (Representation.DENSE, Representation.SPARSE)
        self.walk = binned.pages.walk

    #: int64 sums of a histogram beside its bins: of packed codes, before they are undone.
    n_packed_codes = 0

    def draw_columns(self, columns: ColumnDraw) -> None:
        """Take up the features of the round, for the rows that were drawn."""
        self.columns = columns

    def room_for_columns(self, columns: ColumnDraw) -> tuple[np.ndarray, ...]:
        """Take up these features, instead of which kernels/rounds.py writes others in every round: features and offsets, empty
        where all are drawn, and the records and their copies, as compact_codes_cpu has them. Of a dense table in one page."""
        raise NotImplementedError

    def narrow(self, candidates: Candidates) -> bool:
        """Read the bins of these candidates instead, until columns are drawn again. False: nothing has changed."""
        return False

    def build(
        self, arrays: NodeArrays, first_output: np.ndarray, n_limbs: np.ndarray, build: np.ndarray, first_slot: int,
        hist: np.ndarray,
    ) -> None:  # fmt: skip
        """Histograms of the nodes ``build`` in hist : int64 (n, leaf_size, ≥ bins of the features drawn, 2), OUT, where node
        build[i] has slot first_slot + i. first_output : of each tree. n_limbs : of each output. Pages without a row of these
        nodes are not read."""
        has_rows = (arrays.segments[:, build, 0] < arrays.segments[:, build, 1]).any(axis=1)
        numbers = np.flatnonzero(has_rows).tolist() or [0]
        for p, page in self.walk(None, numbers):
            # Row lists hold numbers within the page. Work items: kernels/histogram.py, each of up to so many outputs.
            items = histogram.list_build_items(
                build, arrays.nodes, arrays.segments[p], first_output, n_limbs, self.lanes, p == numbers[0], self._n_threads,
                histogram.MIN_SLICE_ROWS, first_slot, hist,
            )  # fmt: skip
            self._add(p, page, n_limbs, items, hist)

    #: Outputs that are added up together.
    lanes = 1

    def in_one_page(self) -> tuple[np.ndarray, tuple[Any, ...]]:
        """The records of a table in one page, and what else kernels/whole_trees.py reads of it."""
        raise NotImplementedError

    @abstractmethod
    def _add(self, p: int, page: Page, n_limbs: np.ndarray, items: np.ndarray, hist: np.ndarray) -> None:
        """Work items of page p, added to hist."""

    @abstractmethod
    def mark(self, p: int, page: Page, arrays: NodeArrays, selected: np.ndarray, chunks: np.ndarray) -> None:
        """Which rows of page p in the selected nodes go left: marks of the page, and counts in chunks. page : with the columns
        that those are split by."""

    #: Whether rows that follow each other find their leaves fast, without sets (kernels/top_codes.py).
    finds_runs = False

    @abstractmethod
    def predict(self, p: int, page: Page, flat: FlatTrees, rows: np.ndarray, margin: np.ndarray) -> None:
        """Add the trees' outputs to the margins of some rows of page p. page : with the columns that the trees split by.
        rows : which; where the table finds runs, none for all."""


class _Records:
    """Adds up records: eight bytes of a row at a time, each thread in histograms of its own. lanes : outputs added together."""

    def __init__(self, dtype: np.dtype, n_codes: int, most_bins: int, leaf_size: int, n_threads: int) -> None:
        self._stride = histogram.BYTE_STRIDE if dtype == np.uint8 else most_bins + 1
        self._codes_per_word = 8 // dtype.itemsize
        most = histogram.FEW_LANES if leaf_size <= histogram.FEW_LANES else histogram.LANES
        self.lanes = lanes = most if leaf_size > 1 else 1
        in_registers = dtype == np.uint8 and lanes == 1
        most_words = histogram.REGISTERS if in_registers else histogram.GROUP_WORDS // min(lanes, histogram.FEW_LANES)
        n_words = min(most_words, -(-n_codes // self._codes_per_word))
        self._n_threads = n_threads
        side_by_side = max(lanes, 2)  # or two limbs of an output
        # From a line, as no addition of up to 64 bytes then touches two: 100,000 × 28 with 16 outputs, 20 rounds, 1.58 -> 1.49 s.
        n_sums = n_words * self._codes_per_word * self._stride * side_by_side
        self._private = zeros_from_a_line((n_threads, n_sums), np.int64)
        n_gathered = 0 if in_registers else histogram.GATHER_ROWS
        self._planes = np.empty((n_threads, n_words, n_gathered), np.uint64)
        self._pairs = zeros_from_a_line((n_threads, n_gathered * min(lanes, histogram.FEW_LANES)), np.int64)
        self.scratch = self._codes_per_word, self._stride, lanes, self._private, self._planes, self._pairs

    def add(
        self, words: np.ndarray, rows: PageRows, n_limbs: np.ndarray, offsets: np.ndarray, items: np.ndarray, hist: np.ndarray
    ) -> None:
        """words : uint64 (n_rows, words), IN. offsets : int32 (codes of a record + 1,), IN. Where the sums of each begin."""
        n_words = histogram.count_group_words(self._planes.shape[1], len(items), self._n_threads)
        histogram.build_histograms_cpu(
            words, self._codes_per_word, rows.lists, rows.gpair, rows.by_row, n_limbs, offsets, self._stride, items, n_words,
            hist, self._private, self._planes, self._pairs, self._n_threads,
        )  # fmt: skip


class _NarrowRecords:
    """Records of a page with the bins of candidates for codes: of one byte, if they and the missing values allow. most : bins."""

    def __init__(self, page: DensePage, cuts: Cuts, most: int, leaf_size: int, n_threads: int) -> None:
        self._page, self._most, self._leaf_size, self._n_threads = page, most, leaf_size, n_threads
        self._has_missing = np.array([(codes == n).any() for codes, n in zip(page.columns, cuts.n_bins)])
        self._adders: dict[np.dtype, _Records] = {}
        self._memory: np.ndarray = np.empty(0, np.uint8)  # of the records, 0 in what fills them up
        self._records: np.ndarray = self._memory

    def recode(self, candidates: Candidates, rows: np.ndarray) -> None:
        features = candidates.columns.features
        n_codes = np.diff(candidates.columns.offsets) + self._has_missing[features]
        dtype = np.dtype(np.uint8 if n_codes.max() <= 256 else np.uint16)
        if dtype not in self._adders:
            self._adders[dtype] = _Records(dtype, len(features), self._most, self._leaf_size, self._n_threads)
        n_rows, width = self._page.records.shape[0], histogram.record_bytes(len(features) * dtype.itemsize)
        if len(self._memory) < n_rows * width:
            self._memory = zeros_from_a_line((n_rows * width,), np.uint8)
        elif self._records.dtype != dtype:
            self._memory[:] = 0
        self._records = self._memory[: n_rows * width].reshape(n_rows, width).view(dtype)
        recode_cpu(
            self._page.records, features, candidates.fine.offsets, candidates.codes(dtype), rows, self._records, self._n_threads
        )  # fmt: skip

    def add(self, rows: PageRows, n_limbs: np.ndarray, offsets: np.ndarray, items: np.ndarray, hist: np.ndarray) -> None:
        self._adders[self._records.dtype].add(self._records.view(np.uint64), rows, n_limbs, offsets, items, hist)


class DenseTable(CpuTable):
    """A code for every cell."""

    def __init__(
        self, binned: BinnedMatrix, params: Params, pages: list[PageRows], leaf_size: int, n_threads: int
    ) -> None:
        super().__init__(binned, params, pages, leaf_size, n_threads)
        if binned.representation is not Representation.SORTED:
            n_codes, most = len(binned.record_offsets) - 1, int(binned.cuts.n_bins.max())
            self._records = _Records(binned.dtype, n_codes, most, leaf_size, n_threads)
            self.lanes = self._records.lanes
        self._drawn: list[np.ndarray] = []  # records of the features drawn, by page; one for all where pages are read anew
        self._max_bin = params.max_bin
        self.finds_runs = binned.cuts.categorical is None
        self._narrow: _NarrowRecords | None = None
        self._is_narrow = False

    def draw_columns(self, columns: ColumnDraw) -> None:
        self._take_up(columns)
        if self._copies_drawn and self._binned.pages.is_resident:
            for p, page in self.walk():
                self._copy_drawn(p, page, self._drawn[p])

    def room_for_columns(self, columns: ColumnDraw) -> tuple[np.ndarray, ...]:
        self._take_up(columns)
        (page,) = self._binned.pages
        assert isinstance(page, DensePage)
        if not self._copies_drawn:
            return columns.features[:0], columns.offsets[:0], page.records, page.records[:0]
        return columns.features, columns.offsets, page.records, self._drawn[0]

    def _take_up(self, columns: ColumnDraw) -> None:
        """And make room for copies."""
        super().draw_columns(columns)
        self._is_narrow = False
        if self._copies_drawn and not self._drawn:
            size = self._binned.dtype.itemsize
            width = histogram.record_bytes(count_drawn(self._share, self._cuts.n_features) * size) // size
            pages = self._pages if self._binned.pages.is_resident else [max(self._pages, key=lambda rows: rows.n_rows)]
            self._drawn = [zeros_from_a_line((rows.n_rows, width), self._binned.dtype) for rows in pages]

    def _copy_drawn(self, p: int, page: Page, drawn: np.ndarray) -> None:
        """Copy what the round draws of the records of page p."""
        assert isinstance(page, DensePage)
        compact_codes_cpu(page.records, self.columns.features, self._pages[p].rows_drawn, drawn, self._n_threads)

    def narrow(self, candidates: Candidates) -> bool:
        if self._binned.representation is not Representation.DENSE or len(self._pages) > 1 or not self._binned.pages.is_resident:
            return False
        if self._narrow is None:
            page = self._binned.pages[0]
            assert isinstance(page, DensePage)
            most = int(most_candidates(self._max_bin, self._cuts).max())
            self._narrow = _NarrowRecords(page, self._cuts, most, self._leaf_size, self._n_threads)
        self._narrow.recode(candidates, self._pages[0].rows_drawn)
        self.columns, self._is_narrow = candidates.columns, True
        return True

    def _words(self, p: int, page: Page) -> np.ndarray:
        """The records of page p that histograms read, eight bytes at a time."""
        if not self._drawn:
            return page.words
        if self._binned.pages.is_resident:
            return self._drawn[p].view(np.uint64)
        self._copy_drawn(p, page, self._drawn[0])
        return self._drawn[0].view(np.uint64)

    def in_one_page(self) -> tuple[np.ndarray, tuple[Any, ...]]:
        page = self._binned.pages[0]
        assert isinstance(page, DensePage)
        return self._words(0, page), (page.columns, (), (), *self._records.scratch)

    def _add(self, p: int, page: Page, n_limbs: np.ndarray, items: np.ndarray, hist: np.ndarray) -> None:
        if self._is_narrow and self._narrow is not None:
            return self._narrow.add(self._pages[p], n_limbs, self.columns.offsets, items, hist)
        self._records.add(self._words(p, page), self._pages[p], n_limbs, self.columns.offsets, items, hist)

    def mark(self, p: int, page: Page, arrays: NodeArrays, selected: np.ndarray, chunks: np.ndarray) -> None:
        assert isinstance(page, DensePage)
        rows = self._pages[p]
        partition.mark_rows_cpu(
            selected, arrays.nodes, arrays.cats, chunks, page.columns, self._cuts.n_bins, rows.lists, arrays.segments[p],
            rows.marks, self._n_threads,
        )  # fmt: skip

    def predict(self, p: int, page: Page, flat: FlatTrees, rows: np.ndarray, margin: np.ndarray) -> None:
        assert isinstance(page, DensePage)
        predict_codes_cpu(page.columns, self._cuts.n_bins, rows, *flat, margin, NO_LEAVES, self._n_threads)


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
        super().build(arrays, first_output, n_limbs, build, first_slot, packed)
        self._packed.undo(packed, self.columns, self._cuts.offsets, hist, self._n_threads)

    def _add(self, p: int, page: Page, n_limbs: np.ndarray, items: np.ndarray, hist: np.ndarray) -> None:
        self._records.add(page.words, self._pages[p], n_limbs, self._binned.record_offsets, items, hist)

    def in_one_page(self) -> tuple[np.ndarray, tuple[Any, ...]]:
        page, packing = self._binned.pages[0], self._binned.packing
        assert packing is not None
        marked_by = page.columns if isinstance(page, DensePage) else page.records
        of_packing = *packing.of_records(self._cuts), isinstance(page, SparsePage)
        return page.words, (marked_by, of_packing, (), *self._records.scratch)


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
        (page,) = binned.pages
        assert isinstance(page, SparsePage)
        self._page = page
        self._copies: tuple[np.ndarray, np.ndarray] | None = None  # room for cells and their rows' ends
        self._no_records = _Records(np.dtype(np.uint8), 0, 0, 1, n_threads)
        self._read_all()

    def _read_all(self) -> None:
        page = self._page
        self._cells, self._row_end, self._zero_bins = page.cells, page.row_begin[1:], page.zero_bins

    def draw_columns(self, columns: ColumnDraw) -> None:
        super().draw_columns(columns)
        if self._copies_drawn:
            self._copy(columns.renumber_cells(self._cuts))
        else:
            self._read_all()

    def narrow(self, candidates: Candidates) -> bool:
        if self._binned.representation is not Representation.SPARSE:
            return False
        self._copy(candidates.cells(self._cuts))
        self.columns = candidates.columns
        return True

    def _copy(self, new_cells: np.ndarray) -> None:
        """Read copies of the cells that have a new number, with that one."""
        page = self._page
        if self._copies is None:
            self._copies = np.empty_like(page.cells), np.empty(page.n_rows, np.int64)
        self._cells, self._row_end = self._copies
        compact_cells_cpu(page.row_begin, page.cells, new_cells, self._pages[0].rows_drawn, *self._copies, self._n_threads)
        if page.absent_is_zero:
            is_read = new_cells >= 0
            self._zero_bins = np.empty(int(new_cells.max()) + 1, np.int32)
            self._zero_bins[new_cells[is_read]] = new_cells[page.zero_bins[is_read]]

    def in_one_page(self) -> tuple[np.ndarray, tuple[Any, ...]]:
        page = self._page
        lists = page.row_begin, self._row_end, self._cells, self._zero_bins
        cells = *lists, page.cells, self._cuts.offsets, page.absent, self._entries()
        return np.empty((0, 0), np.uint64), (np.empty((0, 0), np.uint8), (), cells, *self._no_records.scratch)

    def _add(self, p: int, page: Page, n_limbs: np.ndarray, items: np.ndarray, hist: np.ndarray) -> None:
        rows, page = self._pages[p], self._page
        sparse.build_sparse_histograms_cpu(
            page.row_begin, self._row_end, self._cells, int(self.columns.offsets[-1]), self._zero_bins, rows.lists, rows.gpair,
            n_limbs, items, hist, self._n_threads,
        )  # fmt: skip

    def mark(self, p: int, page: Page, arrays: NodeArrays, selected: np.ndarray, chunks: np.ndarray) -> None:
        rows, page = self._pages[p], self._page
        sparse.mark_sparse_rows_cpu(
            selected, arrays.nodes, arrays.cats, chunks, page.row_begin, page.cells, self._cuts.offsets, page.absent,
            self._entries(), self.notes, rows.lists, arrays.segments[p], rows.marks, self._n_threads,
        )  # fmt: skip

    def _entries(self) -> tuple[np.ndarray, ...]:
        """Of mark_sparse_rows_cpu, and room for its notes."""
        columns = known_columns(self._binned, self._page)
        if columns is None:
            return NO_ENTRIES
        if not self.notes.size:
            self.notes = zeros_from_a_line((self._n_threads, self._page.n_rows // 8 + 1), np.uint8)
        return columns.bounds, columns.rows, columns.codes

    def predict(self, p: int, page: Page, flat: FlatTrees, rows: np.ndarray, margin: np.ndarray) -> None:
        page = self._page
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
        self.lanes = self._records.lanes

    def mark(self, p: int, page: Page, arrays: NodeArrays, selected: np.ndarray, chunks: np.ndarray) -> None:
        page, rows = self._page, self._pages[p]
        mark_packed_rows_cpu(
            selected, arrays.nodes, arrays.cats, chunks, page.records, *self._packing.of_records(self._cuts), rows.lists,
            arrays.segments[p], rows.marks, self._n_threads,
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
