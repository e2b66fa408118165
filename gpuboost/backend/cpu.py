"""The contract on the CPU: NumPy arrays and numba kernels."""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from gpuboost.backend.base import Array, Backend, GrowthSettings, StoredRows, TrainingRows
from gpuboost.backend.fixed_point import (
    check_finite,
    leaf_scales,
    needs_refinement,
    plane_keys,
    round_key,
    sampling_keys,
    scales_16,
)
from gpuboost.backend.layout import HistogramLayout, draw_layout, most_bins
from gpuboost.backend.trees import collect_trees, flatten_grown, flatten_trees
from gpuboost.kernels import histogram, nodes, partition, sampling, scan, sparse
from gpuboost.kernels.binning import bin_rows_cpu, write_records_cpu
from gpuboost.kernels.features import count_drawn, mask_features_cpu, member_words, node_counts
from gpuboost.kernels.jit import team
from gpuboost.kernels.leaves import leaf_weights, list_leaf_chunks, sum_leaves_cpu, update_margin_cpu
from gpuboost.kernels.packing import mark_packed_rows_cpu, pack_records_cpu, unpack_histograms_cpu
from gpuboost.kernels.predict import predict_codes_cpu, predict_values_cpu
from gpuboost.kernels.proposals import propose_candidates_cpu
from gpuboost.kernels.quantise import quantise_cpu
from gpuboost.kernels.records import EMPTY_WORDS, NO_GAIN, NODE
from gpuboost.kernels.reduce import map_rows, reduce_rows
from gpuboost.kernels.selection import select_cells_cpu, select_codes_cpu, select_entries_cpu
from gpuboost.kernels.sketch import count_digits_cpu
from gpuboost.kernels.splits import CANDIDATE, count_blocks, evaluate_splits_cpu

__all__ = ["CpuBackend"]

_NO_SLOTS = np.zeros((0, 1), np.int32)
_NO_LEAVES = np.zeros((0, 0), np.int32)
_NO_LOW_PAIRS = np.zeros(0, np.int32)
# Codes of a table for each thread that trains on it. Measured on two cores of an AMD EPYC (2026-11-22), 28 columns, ms a tree of
# depth 6, with one thread and with two: 7,000 rows 1.59 and 1.48, 15,000 rows 2.6 and 2.4, 30,000 rows 3.0 and 2.4. Beside other
# work, which a second thread would have to wait for, one is faster by more than that.
CODES_PER_THREAD = 200_000
BIN_VISITS = 4  # entries that a walk over columns visits in the time that histograms take for one bin of one node


def host_block(block: Array) -> Array:
    """A batch of a table as a NumPy array: a copy where it lies on a GPU."""
    return block.get() if hasattr(block, "get") else block


@dataclass
class _PageRows:
    """What growth keeps per page: its codes, its part of the per-row arrays, and its row lists."""

    page: Any
    first: int  # within the worker's rows
    first_id: int  # global number of its first row that takes part
    kept: Array  # int32 (k,): rows that take part, ascending; zero-weight rows do not
    idle: Array  # int32: the zero-weight rows
    drawn: Array  # int32 (k,): those drawn for this round, then the others
    n_drawn: int
    records: Array  # codes that histograms read: the page's, or those of the features drawn
    cells: Array  # of a sparse page without records, likewise
    row_end: Array
    zero_bins: Array
    rows: Array  # int32 (2, n_trees · k): the two row buffers, one list per tree
    is_left: Array  # uint8 (n_trees · k,): which of the rows to be moved go left
    gpair: Array  # int32 (n_planes, limbs, n)


@dataclass
class _State:
    n_threads: int
    rows: TrainingRows
    settings: GrowthSettings
    tree_outputs: Array  # int32 (n_trees,)
    n_outputs: int
    pages: list[_PageRows]
    margin: Array
    grad: Array
    hess: Array
    capacity: int  # histograms that the memory budget allows
    hist: Array  # int64 (capacity so far, n_outputs, total_bins, 2)
    packed: Array  # int64 (slots so far, n_outputs, packed codes, 2): histograms of packed records, before they are undone
    layout: HistogramLayout  # of the round
    blocks: Any  # ColumnBlocks to walk: the table's, or their entries of the rows drawn
    feature_weights: Array  # float32 (n_features,) or (0,)
    member: Array  # uint32 (n_features or 0, n_words): the sets that features lie in
    monotone: Array  # int8 (n_features,): signs of the constraints; (0,) without
    proposed: Array  # uint8 (n_trees or at least n_slots, total_bins): split candidates; without rows every bin is one
    # growing trees, indexed by node; see kernels/records.py
    nodes: Array
    sums: Array
    left_sums: Array
    cats: Array
    counts: Array
    segments: Array
    round_number: int = 0
    learning_rate: float = 0.0
    # fixed point, per plane
    scales: Array = field(init=False)
    n_limbs: Array = field(init=False)
    leaf_scales: Array = field(init=False)
    maxima: Array = field(init=False)
    # growing trees
    n_nodes: int = 0
    n_leaves: Array = field(init=False)
    frontier: Array = field(init=False)
    selected: Array = field(init=False)
    n_held: int = 0
    built: Array = field(init=False)
    parents: Array = field(init=False)
    # finished trees
    leaf_chunks: list[Array] = field(init=False)
    leaf_sums: Array = field(init=False)
    weights: Array = field(init=False)
    leaves: Array = field(init=False)
    covers: Array = field(init=False)


class CpuBackend(Backend):
    """numba on ``n_threads`` threads. The number of threads changes no result."""

    name = "cpu"
    memory = "host"
    takes_sparse = True
    finds_large_values = True
    sorts_columns = True

    def __init__(self, n_threads: int) -> None:
        self.n_threads = n_threads

    def describe(self) -> str:
        return f"cpu, {self.n_threads} threads"

    def at_work(self, state: _State) -> AbstractContextManager[None]:
        return team(state.n_threads) if state.n_threads > 1 else nullcontext()

    # -- Memory -----------------------------------------------------------------------------------------------------

    def zeros(self, shape, dtype) -> Array:
        return np.zeros(shape, dtype)

    def put(self, array) -> Array:
        return np.ascontiguousarray(host_block(array))

    def fetch(self, array) -> Array:
        return array

    # -- Table to codes ---------------------------------------------------------------------------------------------

    def count_digits(self, block, missing, weights, features, level, slots0, slots1, counts) -> None:
        block = host_block(block)
        slots0 = _NO_SLOTS if slots0 is None else slots0
        slots1 = _NO_SLOTS if slots1 is None else slots1
        count_digits_cpu(block, np.float32(missing), weights, features, level, slots0, slots1, counts, self.n_threads)

    def bin_rows(self, block, missing, cuts, first_row, page) -> int:
        block = host_block(block)
        n_lost = np.zeros(self.n_threads, np.int64)
        bin_rows_cpu(
            block, np.float32(missing), cuts.thresholds, cuts.offsets, first_row, page.columns, page.words, n_lost, self.n_threads
        )
        return int(n_lost.sum())

    def write_records(self, packing, page) -> None:
        if packing is None:
            write_records_cpu(page.columns, page.words, self.n_threads)
        else:
            pack_records_cpu(page.columns, packing.luts, packing.members, packing.first_member, page.records, self.n_threads)

    # -- A training -------------------------------------------------------------------------------------------------

    def start_training(self, rows: TrainingRows, settings: GrowthSettings, tree_outputs: list[int], n_outputs: int) -> _State:
        binned = rows.binned
        n_trees = len(tree_outputs)
        n_planes, n_rows = rows.margin.shape
        pages, first, first_id = [], 0, rows.first_row
        for page in binned.pages:
            weight = rows.weight[first : first + page.n_rows]
            kept = np.flatnonzero(weight).astype(np.int32) if len(weight) else np.arange(page.n_rows, dtype=np.int32)
            idle = np.flatnonzero(weight == 0).astype(np.int32)
            lists = np.empty((2, n_trees * len(kept)), np.int32)
            gpair = np.empty((n_planes, 1, page.n_rows), np.int32)
            marks = np.empty(lists.shape[1], np.uint8)
            drawn = kept if settings.sampling is None else np.empty_like(kept)
            read = self._arrays_read(binned, page, settings)
            pages.append(_PageRows(page, first, first_id, kept, idle, drawn, len(kept), *read, lists, marks, gpair))
            first += page.n_rows
            first_id += len(kept)
        n_packed = 0 if binned.packing is None else int(binned.record_offsets[-1])
        n_bins = most_bins(settings, binned.cuts)
        bytes_each = n_outputs * (n_bins + n_packed) * 16
        state = _State(
            n_threads=self._busy_threads(binned, n_planes), rows=rows, settings=settings,
            tree_outputs=np.array(tree_outputs, np.int32), n_outputs=n_outputs, pages=pages,
            margin=np.ascontiguousarray(rows.margin), grad=np.empty((n_planes, n_rows), np.float32),
            hess=np.empty((n_planes, n_rows), np.float32), capacity=max(2, settings.histogram_memory // bytes_each),
            hist=np.empty((0, n_outputs, n_bins, 2), np.int64),
            packed=np.empty((0, n_outputs, n_packed, 2), np.int64),
            layout=draw_layout(settings, binned.cuts, 0), blocks=binned.blocks,
            feature_weights=np.array(settings.feature_weights, np.float32),
            member=member_words(settings.interaction_constraints, binned.cuts.n_features),
            monotone=np.array(settings.monotone_constraints, np.int8),
            proposed=np.empty((0, n_bins), np.uint8),
            nodes=np.empty(0, NODE), sums=np.empty((0, n_outputs, 2), np.int64), left_sums=np.empty((0, n_outputs, 2), np.int64),
            cats=np.empty((0, EMPTY_WORDS), np.uint32), counts=np.empty(0, np.int64),
            segments=np.empty((len(pages), 0, 3), np.int64),
        )  # fmt: skip
        self._allocate_work(state)
        return state

    def _busy_threads(self, binned, n_planes: int) -> int:
        """How many threads a training on this table, of so many outputs, keeps busy."""
        if binned.is_sparse and binned.packing is None:
            n_codes = sum(len(page.cells) for page in binned.pages)
        else:
            n_codes = binned.n_rows * (len(binned.record_offsets) - 1)
        return max(1, min(self.n_threads, n_planes * n_codes // CODES_PER_THREAD))

    def _arrays_read(self, binned, page, settings: GrowthSettings) -> tuple[Array, Array, Array, Array]:
        """records, cells, row_end and zero_bins of _PageRows: the page's, or room for those of the features drawn."""
        is_drawn = settings.colsample_bytree < 1 and binned.packing is None and not binned.has_no_histograms
        if binned.is_sparse:
            if is_drawn:
                return page.records, np.empty_like(page.cells), np.empty(page.n_rows, np.int64), page.zero_bins
            return page.records, page.cells, page.row_begin[1:], page.zero_bins
        if is_drawn:
            size = binned.dtype.itemsize
            n_codes = count_drawn(settings.colsample_bytree, binned.cuts.n_features)
            records = np.zeros((page.n_rows, histogram.record_bytes(n_codes * size) // size), binned.dtype)
        else:
            records = page.records
        return records, *(np.empty(0, np.int64),) * 3

    def _allocate_work(self, state: _State) -> None:
        """Scratch of the histogram and split kernels, one part per thread."""
        binned = state.rows.binned
        if binned.has_no_histograms:
            return
        n_codes, largest = len(binned.record_offsets) - 1, int(binned.cuts.n_bins.max()) + 1
        self._prefix = np.empty((2, state.n_threads, state.n_outputs * largest), np.int64)
        self._gains = np.empty((state.n_threads, largest), np.float64)
        self._bins = np.empty((state.n_threads, largest), np.int32)
        if binned.is_sparse and binned.packing is None:
            return
        self._stride = histogram.BYTE_STRIDE if binned.dtype == np.uint8 else largest
        self._codes_per_word = 8 // binned.dtype.itemsize
        n_words = min(histogram.GROUP_WORDS, -(-n_codes // self._codes_per_word))
        self._private = np.zeros((state.n_threads, n_words * self._codes_per_word * self._stride), np.int64)
        self._planes = np.empty((state.n_threads, n_words, histogram.GATHER_ROWS), np.uint64)
        self._pairs = np.empty((state.n_threads, histogram.GATHER_ROWS), np.int64)

    def compute_gradients(self, state: _State, objective, margin=None) -> Array:
        rows = state.rows
        maxima = np.zeros((state.n_threads, len(state.margin), 2), np.int64)
        objective.gradients_cpu(
            state.margin if margin is None else margin, rows.label, rows.weight, objective.parameters, state.grad, state.hess,
            maxima, state.n_threads,
        )  # fmt: skip
        return maxima.max(axis=0)

    def set_gradients(self, state: _State, grad, hess) -> Array:
        state.grad[...] = grad
        np.maximum(hess, 0, out=state.hess)
        bits = np.stack([np.abs(x).view(np.int32) for x in (state.grad, state.hess)], axis=-1)  # abs: a NaN may have a sign
        return bits.max(axis=1, initial=0).astype(np.int64)

    def start_round(self, state: _State, round_number: int, learning_rate: float) -> None:
        state.round_number, state.learning_rate = round_number, learning_rate
        if state.settings.colsample_bytree < 1:
            state.layout = draw_layout(state.settings, state.rows.binned.cuts, round_number)

    def count_magnitudes(self, state: _State) -> Array:
        counts = np.zeros((state.n_threads, sampling.MAGNITUDE_BINS, 2), np.int64)
        for part in state.pages:
            own = slice(part.first, part.first + part.page.n_rows)
            sampling.count_magnitudes_cpu(part.kept, state.grad[:, own], state.hess[:, own], counts, state.n_threads)
        return counts.sum(axis=0)

    def draw_rows(self, state: _State, counts) -> Array:
        n_rows = state.rows.global_rows
        n_drawn = count_drawn(state.settings.subsample, n_rows)
        threshold = sampling.UNIFORM if counts is None else sampling.choose_threshold_cpu(counts, n_drawn)
        keys = sampling_keys(state.settings.seed, state.round_number)
        maxima = np.zeros((state.n_threads, len(state.margin), 2), np.int64)
        for part in state.pages:
            own = slice(part.first, part.first + part.page.n_rows)
            first_place = np.zeros(-(-len(part.kept) // sampling.CHUNK) + 1, np.int64)
            places = np.empty((state.n_threads, sampling.CHUNK), np.uint64)
            sampling.draw_rows_cpu(
                part.kept, part.first_id, n_rows, n_drawn, keys, threshold, state.grad[:, own], state.hess[:, own], part.is_left,
                first_place[1:], maxima, places, state.n_threads,
            )  # fmt: skip
            np.cumsum(first_place, out=first_place)
            part.n_drawn = int(first_place[-1])
            sampling.list_drawn_cpu(part.kept, part.is_left, first_place, part.drawn, state.n_threads)
        return maxima.max(axis=0)

    def quantise(self, state: _State, maxima) -> Array:
        check_finite(maxima)
        state.maxima = maxima
        state.scales = scales_16(maxima)
        state.leaf_scales = leaf_scales(maxima, state.rows.global_rows)
        state.n_limbs = np.ones(len(maxima), np.int32)
        return self._quantise(state)

    def refine_fixed_point(self, state: _State, sums) -> Array | None:
        refined = needs_refinement(sums, count_drawn(state.settings.subsample, state.rows.global_rows))
        if not refined.any():
            return None
        state.n_limbs = np.where(refined, 2, 1).astype(np.int32)
        state.scales = state.scales * np.where(refined, 65536.0, 1.0)[:, None]
        for part in state.pages:
            if part.gpair.shape[1] == 1:
                part.gpair = np.empty((part.gpair.shape[0], 2, part.gpair.shape[2]), np.int32)
        return self._quantise(state)

    def _quantise(self, state: _State) -> Array:
        keys = plane_keys(state.settings.seed, state.round_number, len(state.scales))
        sums = np.zeros((state.n_threads, len(state.scales), 3), np.int64)
        for part in state.pages:
            own = slice(part.first, part.first + part.page.n_rows)
            quantise_cpu(
                state.grad[:, own], state.hess[:, own], keys, state.scales, state.n_limbs, part.gpair, sums, state.n_threads
            )
        return sums.sum(axis=0)

    # -- Trees ------------------------------------------------------------------------------------------------------

    def start_trees(self, state: _State, sums) -> None:
        n_trees = len(state.tree_outputs)
        state.n_nodes = 0
        self._reserve_nodes(state, n_trees)
        nodes.start_trees(n_trees, sums, state.tree_outputs, state.nodes, state.sums)
        state.counts[:n_trees] = sum(part.n_drawn for part in state.pages)  # of this worker: nothing is compared with a root's
        for p, part in enumerate(state.pages):
            for tree in range(n_trees):
                first = tree * len(part.kept)
                part.rows[0, first : first + part.n_drawn] = part.drawn[: part.n_drawn]
                state.segments[p, tree] = first, first + part.n_drawn, 0
            self._select_features(state, part)
        state.n_nodes = n_trees
        state.n_leaves = np.ones(n_trees, np.int64)
        state.frontier = np.arange(n_trees, dtype=np.int32)
        state.n_held = 0

    def _select_features(self, state: _State, part: _PageRows) -> None:
        """Copy what histograms read of the features drawn, where they would otherwise read all of the page."""
        page, layout, cuts, rows = part.page, state.layout, state.rows.binned.cuts, part.drawn[: part.n_drawn]
        if part.records is not page.records:
            select_codes_cpu(page.records, layout.features, rows, part.records, state.n_threads)
        elif state.rows.binned.is_sparse and part.cells is not page.cells:
            new_cells = layout.renumber_cells(cuts)
            select_cells_cpu(page.row_begin, page.cells, new_cells, rows, part.cells, part.row_end, state.n_threads)
            part.zero_bins = new_cells[page.zero_bins[new_cells >= 0]] if page.absent_is_zero else page.zero_bins
        if state.rows.binned.has_no_histograms and state.settings.sampling is not None:
            blocks, is_drawn = state.rows.binned.blocks, np.zeros(page.n_rows, np.uint8)
            is_drawn[rows] = 1
            if state.blocks is blocks:
                copies = {name: np.empty_like(getattr(blocks, name)) for name in ("bounds", "rows", "codes")}
                state.blocks = replace(blocks, **copies)
            new = state.blocks
            select_entries_cpu(
                blocks.bounds, blocks.rows, blocks.codes, layout.features, is_drawn, new.bounds, new.rows, new.codes,
                state.n_threads,
            )  # fmt: skip

    def _reserve_nodes(self, state: _State, n_nodes: int) -> None:
        """Make room for n_nodes nodes. Trees to come use the same arrays, and each node is written before it is read; the arrays
        double, so the copies cost no more than the nodes."""
        if n_nodes <= len(state.nodes):
            return
        for name in ("nodes", "sums", "left_sums", "cats", "counts"):
            array = getattr(state, name)
            grown = np.zeros((2 * n_nodes, *array.shape[1:]), array.dtype)
            grown[: state.n_nodes] = array[: state.n_nodes]
            setattr(state, name, grown)
        segments = np.zeros((len(state.pages), 2 * n_nodes, 3), np.int64)
        segments[:, : state.n_nodes] = state.segments[:, : state.n_nodes]
        state.segments = segments

    def histogram_capacity(self, state: _State) -> int:
        return state.capacity

    def frontier_size(self, state: _State) -> int:
        return len(state.frontier)

    def held_histograms(self, state: _State) -> int:
        return state.n_held

    def build_histograms(self, state: _State, begin: int, end: int, subtract: bool, hold: bool) -> Array:
        batch = state.frontier[begin:end]
        first_slot = state.n_held if hold else 0
        build, parents = np.empty(len(batch), np.int32), np.empty(len(batch), np.int32)
        n = nodes.choose_built(batch, state.nodes, state.counts, first_slot, subtract, build, parents)
        state.built, state.parents = build[:n], parents[:n]
        if hold:
            state.n_held += n
        if len(state.hist) < first_slot + n:
            size = min(state.capacity, max(2 * (first_slot + n), 64))
            grown = np.zeros((size, *state.hist.shape[1:]), np.int64)  # workers exchange what lies beyond the bins, too
            grown[:first_slot] = state.hist[:first_slot]
            state.hist = grown
        built = state.hist[first_slot : first_slot + n]
        binned, features, offsets = state.rows.binned, state.layout.features, state.layout.offsets
        target = built
        if binned.packing is not None:
            if len(state.packed) < n:
                state.packed = np.empty((len(state.hist), *state.packed.shape[1:]), np.int64)
            target = state.packed[:n]
        for p, part in enumerate(state.pages):
            segments = state.segments[p]
            items = histogram.list_build_items(
                state.built, state.nodes, segments, state.tree_outputs, p == 0, state.n_threads, histogram.MIN_SLICE_ROWS,
                first_slot, target,
            )  # fmt: skip
            # Row lists hold numbers within the page; a tree's list begins at tree · n_rows.
            if binned.is_sparse and binned.packing is None:
                sparse.build_sparse_histograms_cpu(
                    part.page.row_begin, part.row_end, part.cells, int(offsets[-1]), part.zero_bins, part.rows, part.gpair,
                    state.n_limbs, items, target, state.n_threads,
                )  # fmt: skip
            else:
                histogram.build_histograms_cpu(
                    part.records.view(np.uint64), self._codes_per_word, part.rows, part.gpair, state.n_limbs,
                    offsets if binned.packing is None else binned.record_offsets, self._stride, items,
                    self._group_words(state, len(items)), target, self._private, self._planes, self._pairs, state.n_threads,
                )  # fmt: skip
        if binned.packing is not None:
            unpack_histograms_cpu(
                target, int(binned.record_offsets[1]), features, offsets, binned.cuts.offsets, *binned.packing.undo, built,
                state.n_threads,
            )  # fmt: skip
        return built

    def _group_words(self, state: _State, n_items: int) -> int:
        """Words of a work item: all that fit, or so few that each thread finds two items."""
        n_words = self._planes.shape[1]
        return max(1, min(n_words, n_words * n_items // (2 * state.n_threads)))

    def subtract_histograms(self, state: _State) -> None:
        first_built = state.n_held - len(state.parents)
        histogram.subtract_histograms_cpu(state.parents, first_built, state.hist, state.n_threads)

    def propose_candidates(self, state: _State, begin: int, end: int) -> None:
        batch, cuts, s = state.frontier[begin:end], state.rows.binned.cuts, state.settings
        n_rows = len(state.tree_outputs) if s.proposals == "global" else len(state.hist)
        if len(state.proposed) < n_rows:  # a node's row is read before the next call only
            state.proposed = np.empty((n_rows, state.hist.shape[2]), np.uint8)
        weight = np.empty((state.n_threads, int(cuts.n_bins.max())), np.int64)
        propose_candidates_cpu(
            batch, state.nodes, s.proposals == "global", state.hist, state.layout.offsets, s.max_bin, state.proposed, weight,
            state.n_threads,
        )  # fmt: skip

    def evaluate_splits(self, state: _State, begin: int, end: int) -> None:
        batch = state.frontier[begin:end]
        layout, s = state.layout, state.settings
        candidates = np.empty((len(batch), count_blocks(len(batch), len(layout.features), state.n_threads)), CANDIDATE)
        evaluate_splits_cpu(
            batch, state.nodes, state.sums, state.left_sums, state.hist, layout.offsets, layout.features, state.monotone,
            self._feature_mask(state, batch), state.proposed, s.proposals == "global", 1.0 / state.scales, state.tree_outputs,
            s.reg_lambda, s.reg_alpha, s.max_delta_step, s.min_child_weight, candidates, *self._prefix, self._gains, self._bins,
            state.n_threads,
        )  # fmt: skip

    def _feature_mask(self, state: _State, batch: Array) -> Array:
        """uint8 (n, k): the features that these nodes may split on; without rows all of them."""
        s, features = state.settings, state.layout.features
        if not s.masks_features:
            return np.empty((0, len(features)), np.uint8)
        mask = np.empty((len(batch), len(features)), np.uint8)
        mask_features_cpu(
            batch, state.nodes, features, state.feature_weights, state.member, round_key(s.seed, state.round_number),
            *node_counts(len(features), s.colsample_bylevel, s.colsample_bynode), mask,
        )  # fmt: skip
        return mask

    def walks_columns(self, state: _State, n_workers: int) -> bool:
        binned = state.rows.binned
        if binned.blocks is None or state.n_outputs > 1 or n_workers > 1 or state.settings.proposals is not None:
            return False
        # Histograms visit half of the entries, and every bin of every node some five times; a walk visits every entry twice.
        # Packed ones hardly notice the entries, but are undone bin by bin: measured, the two break even where plain ones do.
        n_entries = binned.blocks.n_entries * len(state.layout.features) // binned.cuts.n_features
        return binned.has_no_histograms or len(state.frontier) * int(state.layout.offsets[-1]) * BIN_VISITS > n_entries

    def scan_columns(self, state: _State) -> None:
        (part,), binned, s = state.pages, state.rows.binned, state.settings
        blocks, cuts = state.blocks, binned.cuts
        n_complete = part.page.n_rows if blocks is binned.blocks else part.n_drawn  # entries of a column without absent cells
        penalty = np.array([s.reg_lambda, s.reg_alpha, s.max_delta_step, s.min_child_weight])
        gathered = np.empty((state.n_threads, scan.GATHER), np.int64), np.empty((state.n_threads, scan.GATHER), np.int32)
        places = np.empty(part.page.n_rows, np.int64)
        tree_of = state.nodes["tree"][state.frontier]
        state.nodes["gain"][state.frontier] = NO_GAIN
        for tree in np.unique(tree_of):
            frontier, plane = state.frontier[tree_of == tree], state.tree_outputs[tree]
            hess = state.sums[frontier, 0, 1] / state.scales[plane, 1]
            frontier = frontier[hess >= 2 * s.min_child_weight]  # else neither child could be heavy enough
            if len(frontier) == 0:
                continue
            scan.place_rows_cpu(frontier, state.segments[0], part.rows, part.gpair[plane, 0], places)
            searched = np.empty(len(frontier), scan.SEARCHED)
            searched["grad"], searched["hess"] = state.sums[frontier, 0].T
            searched["n_rows"] = state.counts[frontier]
            searched["lower"], searched["upper"] = state.nodes["lower"][frontier], state.nodes["upper"][frontier]
            low_pairs = part.gpair[plane, 1] if state.n_limbs[plane] == 2 else _NO_LOW_PAIRS
            shape = state.n_threads, len(frontier)
            walks, touched, bests = np.empty(shape, scan.WALK), np.empty(shape, np.int32), np.empty(shape, scan.BEST)
            scan.scan_columns_cpu(
                blocks.bounds, blocks.rows, blocks.codes, blocks.absent, cuts.n_bins, n_complete, state.layout.features,
                state.monotone, self._feature_mask(state, frontier), places, low_pairs, searched, 1.0 / state.scales[plane],
                penalty, walks, touched, bests, *gathered, state.n_threads,
            )  # fmt: skip
            scan.choose_scanned_cpu(
                frontier, state.nodes, state.left_sums, bests, cuts.thresholds, cuts.offsets, cuts.has_every_value
            )

    def select_splits(self, state: _State) -> None:
        s = state.settings
        if s.grow_policy == "depthwise":
            chosen = np.empty(len(state.frontier), np.int32)
            n = nodes.select_depthwise(state.frontier, state.nodes, s.max_depth, s.max_leaves, state.n_leaves, chosen)
        else:
            chosen = np.empty(len(state.tree_outputs), np.int32)
            n = nodes.select_lossguide(state.n_nodes, state.nodes, s.max_depth, s.max_leaves, state.n_leaves, chosen)
        state.selected = chosen[:n]

    def apply_splits(self, state: _State) -> None:
        n, s = len(state.selected), state.settings
        self._reserve_nodes(state, state.n_nodes + 2 * n)
        nodes.apply_splits(
            state.selected, state.n_nodes, state.nodes, state.sums, state.left_sums, state.monotone, state.scales,
            state.tree_outputs, s.reg_lambda, s.reg_alpha, s.max_delta_step,
        )  # fmt: skip
        children = np.arange(state.n_nodes, state.n_nodes + 2 * n, dtype=np.int32)
        state.n_nodes += 2 * n
        # Leaf by leaf, older leaves stay open where the new ones are too deep: an empty frontier would end the tree.
        unlimited = s.max_depth == 0 or s.grow_policy == "lossguide"
        is_last = not unlimited and n > 0 and state.nodes[state.selected[0]]["depth"] + 1 >= s.max_depth  # as the whole level
        state.frontier = children[:0] if is_last else children

    def partition_rows(self, state: _State) -> Array:
        n = len(state.selected)
        children = slice(state.n_nodes - 2 * n, state.n_nodes)
        state.counts[children] = 0
        binned = state.rows.binned
        cuts, packing = binned.cuts, binned.packing
        for p, part in enumerate(state.pages):
            segments = state.segments[p]
            chunks = partition.list_chunks(state.selected, segments)
            if binned.is_sparse and packing is not None:
                mark_packed_rows_cpu(
                    state.selected, state.nodes, chunks, part.page.records, packing.groups, packing.offsets, cuts.offsets,
                    *packing.undo, part.rows, segments, part.is_left, state.n_threads,
                )  # fmt: skip
            elif binned.is_sparse:
                sparse.mark_sparse_rows_cpu(
                    state.selected, state.nodes, chunks, part.page.row_begin, part.page.cells, cuts.offsets, part.page.absent,
                    part.rows, segments, part.is_left, state.n_threads,
                )  # fmt: skip
            else:
                partition.mark_rows_cpu(
                    state.selected, state.nodes, state.cats, chunks, part.page.columns, cuts.n_bins, part.rows, segments,
                    part.is_left, state.n_threads,
                )  # fmt: skip
            partition.place_children(state.selected, state.nodes, chunks, segments, state.counts)
            partition.move_rows_cpu(state.selected, state.nodes, chunks, part.rows, segments, part.is_left, state.n_threads)
        return state.counts[children]

    def sum_leaves(self, state: _State) -> Array:
        state.leaf_sums = np.zeros((state.n_nodes, state.n_outputs, 2), np.int64)
        state.leaf_chunks = []
        for p, part in enumerate(state.pages):
            own = slice(part.first, part.first + part.page.n_rows)
            chunks = list_leaf_chunks(state.n_nodes, state.nodes, state.segments[p])
            state.leaf_chunks.append(chunks)
            sum_leaves_cpu(
                chunks, state.nodes, state.segments[p], part.rows, state.grad[:, own], state.hess[:, own],
                state.leaf_scales, state.tree_outputs, state.leaf_sums,
                np.empty((len(chunks), state.n_outputs, 2), np.int64), state.n_threads,
            )  # fmt: skip
        return state.leaf_sums

    def prune(self, state: _State) -> None:
        nodes.sum_upwards(state.n_nodes, state.nodes, state.leaf_sums)
        nodes.prune(state.n_nodes, state.nodes, state.settings.gamma)

    def weigh_leaves(self, state: _State) -> None:
        s, n = state.settings, state.n_nodes
        state.weights = np.empty((n, state.n_outputs), np.float32)
        state.leaves = np.empty((n, state.n_outputs), np.float32)
        state.covers = np.empty(n, np.float64)
        leaf_weights(
            n, state.nodes, state.leaf_sums, state.leaf_scales, state.tree_outputs, s.reg_lambda, s.reg_alpha, s.max_delta_step,
            state.learning_rate, state.weights, state.leaves, state.covers,
        )  # fmt: skip

    def leaf_of_rows(self, state: _State) -> Array:
        leaf = np.full((len(state.tree_outputs), state.margin.shape[1]), -1, np.int32)
        for p, part in enumerate(state.pages):
            for node, begin, end in state.leaf_chunks[p]:
                rows = part.rows[state.segments[p, node, 2], begin:end]
                leaf[state.nodes["tree"][node], part.first + rows] = state.nodes["leaf"][node]
        return leaf

    def set_leaves(self, state: _State, nodes, values) -> None:
        state.leaves[nodes] = values

    def update_margin(self, state: _State) -> None:
        draws = state.settings.sampling is not None
        flat = self.grown_trees(state) if draws or any(len(part.idle) for part in state.pages) else None
        for p, part in enumerate(state.pages):
            own = slice(part.first, part.first + part.page.n_rows)
            update_margin_cpu(
                state.leaf_chunks[p], state.nodes, state.segments[p], part.rows, state.leaves, state.tree_outputs,
                state.margin[:, own], state.n_threads,
            )  # fmt: skip
            for others in (part.idle, part.drawn[part.n_drawn :]):
                if len(others):
                    self._predict_codes(state.rows.binned, part.page, flat, others, state.margin[:, own])

    def finish_trees(self, state: _State) -> list[Any]:
        n = state.n_nodes
        return collect_trees(
            state.nodes[:n], state.leaves, state.weights, state.covers, state.rows.binned.cuts, len(state.tree_outputs)
        )

    def fetch_trees(self, state: _State, finished: list[Any]) -> list[Any]:
        return finished

    def grown_trees(self, state: _State) -> Any:
        n_trees = len(state.tree_outputs)
        flat = flatten_grown(state.nodes[: state.n_nodes], state.leaves, state.rows.binned.cuts)
        return flat, np.arange(n_trees), state.tree_outputs

    # -- Margins, predictions, sums ----------------------------------------------------------------------------------

    def training_margin(self, state: _State) -> Array:
        return state.margin

    def flatten_trees(self, trees, groups, cuts=None):
        return flatten_trees(trees, groups, cuts)

    def predict_values(self, block, missing, flat, first_row, margin, leaves) -> bool:
        own = slice(first_row, first_row + len(block))
        leaves = _NO_LEAVES if leaves is None else leaves[own]
        block = host_block(block)
        return predict_values_cpu(block, np.float32(missing), *flat, margin[:, own], leaves, self.n_threads)

    def predict_codes(self, binned, flat, margin, leaves) -> None:
        first = 0
        for page in binned.pages:
            own = slice(first, first + page.n_rows)
            own_leaves = _NO_LEAVES if leaves is None else leaves[own]
            if binned.is_sparse:
                self.predict_sparse(page.stored, flat, margin, leaves)
                return
            rows = np.arange(page.n_rows, dtype=np.int32)
            predict_codes_cpu(page.columns, binned.cuts.n_bins, rows, *flat, margin[:, own], own_leaves, self.n_threads)
            first += page.n_rows

    def _predict_codes(self, binned, page, flat, rows, margin) -> None:
        """Add the trees' outputs to the margins of some rows of a page."""
        if binned.is_sparse:
            sparse.predict_cells_cpu(
                page.row_begin, page.cells, binned.cuts.offsets, page.absent, rows, *flat, margin, self.n_threads
            )
        else:
            predict_codes_cpu(page.columns, binned.cuts.n_bins, rows, *flat, margin, _NO_LEAVES, self.n_threads)

    def predict_sparse(self, stored: StoredRows, flat, margin, leaves) -> None:
        leaves = _NO_LEAVES if leaves is None else leaves
        sparse.predict_sparse_cpu(
            stored.row_begin, stored.columns, stored.values, np.float32(stored.missing), np.float32(stored.absent),
            stored.n_features, *flat, margin, leaves, self.n_threads,
        )  # fmt: skip

    def map_rows(self, margin, row_map) -> Array:
        out = np.empty_like(margin)
        map_rows(row_map)(margin, out, self.n_threads)
        return out

    def largest_term(self, prediction, label, weight, row_term, parameters) -> Array:
        return self._reduce(prediction, label, weight, row_term, parameters, 0.0).max(keepdims=True)

    def sum_terms(self, prediction, label, weight, row_term, parameters, scale) -> Array:
        return self._reduce(prediction, label, weight, row_term, parameters, scale).sum(keepdims=True)

    def _reduce(self, prediction, label, weight, row_term, parameters, scale) -> Array:
        out = np.zeros(self.n_threads, np.int64)
        reduce_rows(row_term)(prediction, label, weight, parameters, scale, out, self.n_threads)
        return out
