"""Splits from sorted columns on the CPU: exact search, and sparse tables where a walk is less work than histograms."""

from dataclasses import replace
from functools import cached_property
from threading import Lock
from weakref import WeakKeyDictionary

import numpy as np

from gpuboost.backend.cpu.cells import CellLists
from gpuboost.backend.cpu.gradients import CpuGradients
from gpuboost.backend.cpu.nodes import NodeArrays
from gpuboost.backend.cpu.rows import PageRows
from gpuboost.backend.plans import ColumnDraw, Penalty, SplitGain
from gpuboost.binned.matrix import BinnedMatrix
from gpuboost.binned.pages import SortedColumns, SparsePage
from gpuboost.kernels import exact
from gpuboost.kernels.compaction import compact_entries_cpu
from gpuboost.kernels.structs import NO_GAIN

__all__ = ["ColumnWalk", "known_columns"]

_NO_LOW_PAIRS = np.zeros(0, np.int32)
_LOCK, _MADE = Lock(), WeakKeyDictionary[SparsePage, SortedColumns]()


def known_columns(binned: BinnedMatrix, page: SparsePage) -> SortedColumns | None:
    """The sorted columns of a table's one page, if it has them, or a walk has made them."""
    return _MADE.get(page) if binned.sorted_columns is None else binned.sorted_columns


class ColumnWalk:
    """The sorted columns of a training's one page, and what a walk over them needs beside them.

    binned : the table. rows : of the page. Columns that the table does not have are made of its cells for the first walk, and
    held beside its page, for other trainings as well.
    """

    def __init__(self, binned: BinnedMatrix, rows: PageRows, monotone: np.ndarray, n_threads: int) -> None:
        self._binned, self._cuts = binned, binned.cuts
        self._rows, self._monotone, self._n_threads = rows, monotone, n_threads
        self._of_drawn: SortedColumns | None = None  # the entries of the rows drawn alone, where those are walked
        self._n_complete = rows.n_rows  # entries of a column without absent cells
        self._n_entries = binned.n_cells if binned.sorted_columns is None else binned.sorted_columns.n_entries

    @cached_property
    def _all(self) -> SortedColumns:
        if self._binned.sorted_columns is not None:
            return self._binned.sorted_columns
        (page,) = self._binned.pages
        assert isinstance(page, SparsePage)
        with _LOCK:
            if page not in _MADE:
                _MADE[page] = CellLists(page.host or page, self._n_threads).sorted_columns()
            return _MADE[page]

    def n_entries(self, drawn: ColumnDraw) -> int:
        """About how many entries the features drawn have."""
        return self._n_entries * len(drawn.features) // self._cuts.n_features

    def draw_rows(self, drawn: ColumnDraw) -> None:
        """Copy the entries of the rows that the round has drawn, and walk those."""
        whole, is_drawn = self._all, np.zeros(self._rows.n_rows, np.uint8)
        is_drawn[self._rows.rows_drawn] = 1
        if self._of_drawn is None:
            copies = {name: np.empty_like(getattr(whole, name)) for name in ("bounds", "rows", "codes")}
            self._of_drawn = replace(whole, **copies)
        part = self._of_drawn
        compact_entries_cpu(
            whole.bounds, whole.rows, whole.codes, drawn.features, is_drawn, part.bounds, part.rows, part.codes, self._n_threads
        )
        self._n_complete = self._rows.n_drawn

    def search(
        self, frontier: np.ndarray, output: int, arrays: NodeArrays, gradients: CpuGradients, drawn: ColumnDraw,
        mask: np.ndarray, penalty: Penalty, gain: SplitGain,
    ) -> None:  # fmt: skip
        """Best split of nodes of one tree, of one output, that are worth searching. mask : of nodes and features
        (kernels/column_sampling.py)."""
        rows, n_threads, own = self._rows, self._n_threads, self._of_drawn or self._all
        places = np.empty(rows.n_rows, np.int64)
        exact.place_rows_cpu(frontier, arrays.segments[0], rows.lists, rows.gpair[output, 0], places)
        searched = np.empty(len(frontier), exact.SEARCHED)
        searched["grad"], searched["hess"] = arrays.sums[frontier, 0].T
        searched["n_rows"] = arrays.counts[frontier]
        searched["lower"], searched["upper"] = arrays.nodes["lower"][frontier], arrays.nodes["upper"][frontier]
        low_pairs = rows.gpair[output, 1] if gradients.n_limbs[output] == 2 else _NO_LOW_PAIRS
        shape = n_threads, len(frontier)
        walks, touched, bests = np.empty(shape, exact.WALK), np.empty(shape, np.int32), np.empty(shape, exact.BEST)
        gathered = np.empty((n_threads, exact.GATHER), np.int64), np.empty((n_threads, exact.GATHER), np.int32)
        weighed = np.array([penalty.reg_lambda, penalty.reg_alpha, penalty.max_delta_step, penalty.min_child_weight])
        exact.walk_columns(gain.function)(
            own.bounds, own.rows, own.codes, own.absent, self._cuts.n_bins, self._n_complete, drawn.features, self._monotone,
            mask, places, low_pairs, searched, 1.0 / gradients.scales[output], weighed, np.array(gain.parameters, np.float64),
            walks, touched, bests, *gathered, n_threads,
        )  # fmt: skip
        exact.choose_walked_cpu(
            frontier, arrays.nodes, arrays.left_sums, bests, self._cuts.thresholds, self._cuts.offsets,
            self._cuts.has_every_value,
        )  # fmt: skip

    @staticmethod
    def worth_searching(
        frontier: np.ndarray, output: int, arrays: NodeArrays, gradients: CpuGradients, penalty: Penalty
    ) -> np.ndarray:
        """Those of the nodes whose two children could both be heavy enough; the others have no split."""
        arrays.nodes["gain"][frontier] = NO_GAIN
        hess = arrays.sums[frontier, 0, 1] / gradients.scales[output, 1]
        return frontier[hess >= 2 * penalty.min_child_weight]
