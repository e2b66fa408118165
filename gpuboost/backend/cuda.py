"""The contract on a CUDA GPU: arrays and kernel launches, nothing that waits.

The host runs ahead of the device. It knows upper bounds (nodes of a level, rows of a page) and launches by them; how many nodes
there really are lies in ``progress`` on the device, where every kernel reads it (kernels/records.py). Only these make the host
wait: finished trees when they are asked for, metrics, and trees deeper than SYNC_FREE_DEPTH or grown leaf by leaf, where the
bounds grow beyond use (one number per level, or per LEAVES_BETWEEN_READS splits).

Everything a training needs is allocated when it starts; arrays by node grow only where a tree is deeper than that.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import wraps
from typing import Any

import numpy as np

from gpuboost.backend.base import Array, Backend, GrowthSettings, StoredRows, TrainingRows
from gpuboost.backend.device import Device, PendingCopy, out_of_memory
from gpuboost.backend.fixed_point import check_finite
from gpuboost.backend.layout import draw_layout, most_bins
from gpuboost.backend.trees import collect_trees, flatten_trees
from gpuboost.kernels import (
    binning,
    features,
    histogram,
    leaves,
    nodes,
    partition,
    predict,
    proposals,
    quantise,
    reduce,
    sampling,
    selection,
    sketch,
    sparse,
    splits,
)
from gpuboost.kernels.gradients import NON_FINITE_BITS
from gpuboost.kernels.jit import available_threads
from gpuboost.kernels.packing import pack_records_kernel, unpack_histograms_kernel
from gpuboost.kernels.records import EMPTY_WORDS, FLAT_NODE, NODE, PENALTY, PROGRESS

__all__ = ["CudaBackend"]

SYNC_FREE_DEPTH = 10  # a level of 2^10 nodes: launching by bounds costs little up to here
LEAVES_BETWEEN_READS = 16
GAINS_BYTES = 2**26  # best splits by node and feature that are kept at once
RESERVE_BYTES = 2**25  # left free by the plan of a training: pinned copies, metrics, the allocator's rounding


@dataclass
class _PageRows:
    """What growth keeps per page."""

    page: Any
    first: int  # within the worker's rows
    words: Array  # uint32 (n_rows, words): the records, four bytes at a time; None of a sparse page
    read_words: Array  # what histograms read: the same, or those of the features drawn
    cells: Array  # of a sparse page, likewise
    row_end: Array
    zero_bins: Array
    first_id: int  # global number of its first row that takes part
    kept: Array  # int32 (k,): rows that take part
    idle: Array  # int32: the zero-weight rows, which do not
    n_idle: Array  # int64 (2,): 0, and how many
    drawn: Array  # int32 (k,): from the front those drawn for this round, from the back the others
    n_listed: Array  # int64 (2,): how many of either
    rows: Array  # int32 (2, n_trees · k)
    gpair: Array  # int32 (n_planes, 2, n_rows)
    marks: Array  # uint32 (chunks, words): decisions of the partition
    n_left: Array  # int64 (chunks + 1,)
    first_leaf_chunk: Array  # int64 (nodes + 1,)


@dataclass
class _State:
    rows: TrainingRows
    settings: GrowthSettings
    n_outputs: int
    pages: list[_PageRows]
    label: Array
    weight: Array
    margin: Array
    grad: Array
    hess: Array
    tree_outputs: Array
    tree_numbers: Array  # int64 (n_trees,): 0, 1, …
    thresholds: Array
    offsets: Array
    n_bins: Array
    features: Array  # int32 (k,): those that histograms hold
    own_offsets: Array  # int32 (k + 1,): where they begin in a histogram
    feature_weights: Array  # float32 (n_features,) or (0,)
    member: Array  # uint32 (n_features or 0, n_words): the sets that features lie in
    feature_mask: Array  # uint8 (0 or as ``gains``, k): 0 leaves a feature out; without rows none is left out
    monotone: Array  # int8 (n_features,): signs of the constraints; (0,) without
    proposed: Array  # uint8 (n_trees or capacity, total_bins): split candidates; without rows every bin is one
    penalty: Array
    progress: Array
    # drawing rows
    counts: Array
    threshold: Array
    # fixed point, per plane
    maxima: Array
    keys: Array
    scales: Array
    leaf_scales: Array
    n_limbs: Array
    local_sums: Array  # int64 (n_planes, 3)
    sums: dict[int, Array]  # by limbs: the same, to be summed over workers
    # histograms
    capacity: int
    hist: Array
    packed: Array  # int64 (capacity, n_outputs, packed codes, 2): histograms of packed records; hist itself where they are not
    record_offsets: Array  # of either
    undo: tuple[Array, ...]  # of the packing, empty without
    stride: int
    words_per_tile: int  # 0: histograms are built in global memory
    tile_bytes: int
    gains: Array  # best split of every feature, for as many nodes as fit in GAINS_BYTES
    choices: Array
    # by tree
    n_leaves: Array
    first_rank: Array
    parameters: dict[Any, Array] = field(default_factory=dict)
    new_cells: Array = None  # int32 (total_bins + n_features,): of a sparse table, HistogramLayout.renumber_cells
    no_leaves: Array = None  # int32 (0, 0)
    flat_hist: Array = None  # hist with all values of a histogram in a row
    prepared: dict[Any, Callable[[], None]] = field(default_factory=dict)  # launches, which repeat from tree to tree
    # by node; see kernels/records.py. They have room for node_capacity nodes, and node_bound is how many there may be.
    by_node: dict[str, Array] = field(default_factory=dict)
    leaf: Array = None  # int32 (n_trees, n_rows), once asked for
    segments: list[Array] = field(default_factory=list)
    node_capacity: int = 0
    node_bound: int = 0
    frontier_bound: int = 0
    selected_bound: int = 0
    level: int = 0
    n_held: int = 0


def _on_device(cls: type) -> type:
    """Class decorator: every operation of the contract runs with the backend's device current."""

    def wrap(method: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(method)
        def wrapped(self: "CudaBackend", *args: Any, **kwargs: Any) -> Any:
            with self.device.current():
                return method(self, *args, **kwargs)

        return wrapped

    for name in vars(Backend):
        if not name.startswith("_") and callable(method := cls.__dict__.get(name)):
            setattr(cls, name, wrap(method))
    return cls


@_on_device
class CudaBackend(Backend):
    """Numba kernels on CuPy arrays."""

    name = "cuda"
    takes_sparse = True

    def __init__(self, device: Device) -> None:
        self.device = device
        self.memory = device.memory_name

    @property
    def n_threads(self) -> int:  # type: ignore[override]
        return available_threads()  # for what is done on the host: sparse tables are sorted there

    def describe(self) -> str:
        return f"{self.memory}, {self.device.name}"

    # -- Memory -----------------------------------------------------------------------------------------------------

    def zeros(self, shape: tuple[int, ...], dtype: Any) -> Array:
        return self.device.zeros(shape, dtype)

    def put(self, array: Array) -> Array:
        return self.device.put(array)

    def fetch(self, array: Array) -> np.ndarray:
        return self.device.fetch(array)

    # -- Table to codes ---------------------------------------------------------------------------------------------

    def count_digits(self, block, missing, weights, features, level, slots0, slots1, counts) -> None:
        device = self.device
        values = self._columns(block, features)
        none = np.zeros((0, 1), np.int32)
        device.launch(
            sketch.count_digits_kernel, values, missing, device.put(weights), level,
            device.put(none if slots0 is None else slots0), device.put(none if slots1 is None else slots1), counts,
            blocks=len(features) * -(-values.shape[1] // sketch.ROWS_PER_BLOCK),
        )  # fmt: skip

    def bin_rows(self, block, missing, cuts, first_row, page) -> int:
        device = self.device
        values, n_lost = self._columns(block, None), device.zeros(1, np.int64)
        device.launch(
            binning.bin_rows_kernel, values, missing, device.put(cuts.thresholds), device.put(cuts.offsets), first_row,
            page.columns, page.records, n_lost,
            threads=values.shape[1] * -(-len(values) // binning.TILE_FEATURES),
        )  # fmt: skip
        return int(device.fetch(n_lost)[0])

    def write_records(self, packing, page) -> None:
        if packing is None:
            page.records[:, : len(page.columns)] = page.columns.T
            return
        put = self.device.put
        self.device.launch(
            pack_records_kernel, page.columns, put(packing.luts), put(packing.members), put(packing.first_member),
            page.records.view(np.uint32), threads=page.n_rows,
        )  # fmt: skip

    def _columns(self, block: Array, features: Array | None) -> Array:
        """Columns of a batch as float32 (n, n_rows), contiguous, on the device."""
        columns = self.device.put(block).T
        if features is not None and len(features) != len(columns):
            columns = columns[self.device.put(features)]
        return self.device.put(columns, np.float32)

    # -- A training -------------------------------------------------------------------------------------------------

    def start_training(self, rows: TrainingRows, settings: GrowthSettings, tree_outputs: list[int], n_outputs: int) -> _State:
        device, cuts = self.device, rows.binned.cuts
        n_trees, (n_planes, n_rows) = len(tree_outputs), rows.margin.shape
        record_offsets, packing = rows.binned.record_offsets, rows.binned.packing
        n_packed = 0 if packing is None else int(record_offsets[-1])
        # with the candidates of its node, where each node has its own
        n_bins = most_bins(settings, cuts)
        histogram_bytes = n_outputs * (n_bins + n_packed) * 16 + n_bins * (settings.proposals == "local")
        wanted = min(settings.histogram_memory // histogram_bytes, _most_histograms(settings, n_trees))
        largest_page = max(page.n_rows for page in rows.binned.pages)
        if n_trees * largest_page >= 2**31:
            raise ValueError(
                f"{n_trees} trees a round on pages of {largest_page} rows: a page must hold fewer than 2^31 rows of all trees "
                "together. Use QuantileDMatrix(..., page_rows=) with fewer."
            )
        deepest = min(settings.max_depth or SYNC_FREE_DEPTH, SYNC_FREE_DEPTH)
        n_nodes = 2 * n_trees * min(2**deepest, settings.max_leaves or 2**deepest)
        row_bytes = n_planes * (4 + 4 + 8) + n_trees * 8 + 4 * len(rows.label) + 4 + 4 + n_trees / 8
        row_bytes += 4 * (settings.sampling is not None)
        layout = draw_layout(settings, cuts, 0)
        selects = settings.colsample_bytree < 1 and packing is None  # whether histograms read copies
        n_codes = len(layout.features) if packing is None else len(record_offsets) - 1
        code_bytes = rows.binned.dtype.itemsize
        record_size = histogram.record_bytes(n_codes * code_bytes)
        copied = sum(page.cells.nbytes if rows.binned.is_sparse else page.n_rows * record_size for page in rows.binned.pages)
        shapes = _arrays_by_node(n_nodes, n_outputs).values()
        by_node = sum(math.prod(shape) * np.dtype(dtype).itemsize for shape, dtype in shapes)
        by_page = n_nodes * (24 + 4 * partition.CHUNK_WORDS + 8 + 8)  # segments, marks, n_left, first_leaf_chunk
        by_tree = n_trees * n_bins if settings.proposals == "global" else 0
        at_once = max(1, min(GAINS_BYTES // (12 * cuts.n_features), 2**SYNC_FREE_DEPTH * n_trees))
        rest = int(n_rows * row_bytes) + by_node + len(rows.binned.pages) * by_page + by_tree + GAINS_BYTES + RESERVE_BYTES
        rest += at_once * cuts.n_features * settings.masks_features + copied * selects
        free = device.free_bytes()
        capacity = min(max(wanted, 2), (free - rest) // histogram_bytes)
        if capacity < 2:
            raise out_of_memory(rest + 2 * histogram_bytes, free)

        empty, zeros, put = device.empty, device.zeros, device.put
        max_bins = int(np.diff(record_offsets).max())
        words_per_tile = histogram.tile_words(n_codes, code_bytes, max_bins, device.shared_limit)
        n_proposed = {None: 0, "global": n_trees, "local": capacity}[settings.proposals]
        hist = empty((capacity, n_outputs, n_bins, 2), np.int64)
        state = _State(
            rows=rows, settings=settings, n_outputs=n_outputs, pages=[],
            label=put(rows.label), weight=put(rows.weight), margin=put(rows.margin),
            grad=empty((n_planes, n_rows), np.float32), hess=empty((n_planes, n_rows), np.float32),
            tree_outputs=put(np.array(tree_outputs, np.int32)), tree_numbers=put(np.arange(n_trees)),
            thresholds=put(cuts.thresholds), offsets=put(cuts.offsets), n_bins=put(cuts.n_bins),
            features=put(layout.features), own_offsets=put(layout.offsets),
            monotone=put(np.array(settings.monotone_constraints, np.int8)),
            feature_weights=put(np.array(settings.feature_weights, np.float32)),
            member=put(features.member_words(settings.interaction_constraints, cuts.n_features)),
            feature_mask=empty((0, len(layout.features)), np.uint8), proposed=empty((n_proposed, n_bins), np.uint8),
            penalty=put(_penalty(settings)),
            progress=zeros(1, PROGRESS), counts=empty((sampling.MAGNITUDE_BINS, 2), np.int64),
            threshold=put(np.array([sampling.UNIFORM])), maxima=empty((n_planes, 2), np.int64), keys=empty(n_planes, np.uint32),
            scales=empty((n_planes, 2), np.float64), leaf_scales=empty((n_planes, 2), np.float64),
            n_limbs=empty(n_planes, np.int32), local_sums=empty((n_planes, 3), np.int64),
            sums={limbs: empty((n_planes, 3), np.int64) for limbs in (1, 2)}, capacity=capacity,
            hist=hist, packed=hist if packing is None else empty((capacity, n_outputs, n_packed, 2), np.int64),
            record_offsets=put(record_offsets), undo=() if packing is None else tuple(map(put, packing.undo)),
            stride=histogram.tile_stride(max_bins),
            words_per_tile=words_per_tile, tile_bytes=histogram.tile_bytes(words_per_tile, code_bytes, max_bins),
            gains=empty((at_once, len(layout.features)), np.float64),
            choices=empty((at_once, len(layout.features)), np.int32), n_leaves=empty(n_trees, np.int64),
            first_rank=empty(n_trees, np.int64),
        )  # fmt: skip
        state.no_leaves = self._or_none(None)
        state.flat_hist = state.hist.reshape(capacity, -1)
        if packing is None:
            state.record_offsets = state.own_offsets
        if selects and rows.binned.is_sparse:
            state.new_cells = empty(cuts.total_bins + cuts.n_features, np.int32)
        if settings.masks_features:
            state.feature_mask = empty(state.gains.shape, np.uint8)
        first, first_id = 0, rows.first_row
        for page in rows.binned.pages:
            weight = rows.weight[first : first + page.n_rows]
            kept = put(np.flatnonzero(weight).astype(np.int32)) if len(weight) else device.xp.arange(page.n_rows, dtype=np.int32)
            idle = np.flatnonzero(weight == 0).astype(np.int32)
            drawn = kept if settings.sampling is None else empty(len(kept), np.int32)
            state.pages.append(_PageRows(
                page, first, *self._arrays_read(page, record_size, selects), first_id, kept, put(idle),
                put(np.array([0, len(idle)])), drawn,
                put(np.array([len(kept), 0])),
                empty((2, n_trees * len(kept)), np.int32), empty((n_planes, 2, page.n_rows), np.int32),
                *(empty(0, np.int64),) * 3,
            ))  # fmt: skip
            first += page.n_rows
            first_id += len(kept)
        self._reserve_nodes(state, n_nodes)
        return state

    def _arrays_read(self, page: Any, record_size: int, selects: bool) -> tuple[Array, Array, Array, Array, Array]:
        """words, read_words, cells, row_end and zero_bins of _PageRows. record_size : bytes of a record of the codes drawn.
        selects : whether histograms read copies of what a round draws."""
        empty, nothing = self.device.empty, self.device.empty(0, np.int32)
        if not hasattr(page, "cells"):
            words = page.records.view(np.uint32)
            shape = page.n_rows, record_size // 4
            return words, self.device.zeros(shape, np.uint32) if selects else words, nothing, nothing, nothing
        if not selects:
            return None, None, page.cells, page.row_begin[1:], page.zero_bins
        return None, None, empty(len(page.cells), np.int32), empty(page.n_rows, np.int64), empty(len(page.zero_bins), np.int32)

    def _reserve_nodes(self, state: _State, n_nodes: int) -> None:
        """Make room for n_nodes nodes, keeping what is there."""
        if n_nodes <= state.node_capacity:
            return
        n = max(n_nodes, 2 * state.node_capacity)
        shapes = _arrays_by_node(n, state.n_outputs)
        state.by_node = {name: self._grown(state.by_node.get(name), *shape) for name, shape in shapes.items()}
        state.segments = [
            self._grown(state.segments[p] if state.segments else None, (n, 3), np.int64) for p in range(len(state.pages))
        ]
        for part in state.pages:
            n_chunks = part.rows.shape[1] // partition.CHUNK_ROWS + n + 1
            part.marks = self.device.empty((n_chunks, partition.CHUNK_WORDS), np.uint32)
            part.n_left = self.device.empty(n_chunks + 1, np.int64)
            part.first_leaf_chunk = self.device.empty(n + 1, np.int64)
        state.node_capacity = n
        state.prepared.clear()  # they hold the old arrays

    def _launch(self, state: _State, kernel: Any, *arguments: Any, **work: int) -> None:
        """Launch a kernel of the training; its arguments are arrays that live as long, and scalars that repeat."""
        self.device.launch(kernel, *arguments, prepared=state.prepared, **work)

    def _grown(self, old: Array | None, shape: Any, dtype: Any) -> Array:
        new = self.device.empty(shape, dtype)
        if old is not None:
            new[: len(old)] = old
        return new

    def compute_gradients(self, state: _State, objective, margin=None) -> Array:
        if objective.parameters not in state.parameters:
            state.parameters[objective.parameters] = self.device.put(np.array(objective.parameters, np.float32))
        self.device.clear(state.maxima)
        self.device.launch(
            objective.gradients_kernel, state.margin if margin is None else margin, state.label, state.weight,
            state.parameters[objective.parameters], state.grad, state.hess, state.maxima, threads=state.margin.shape[1],
        )  # fmt: skip
        return state.maxima

    def set_gradients(self, state: _State, grad, hess) -> Array:
        xp = self.device.xp
        state.grad[...] = self.device.put(grad, np.float32)
        hess = self.device.put(hess, np.float32)
        state.hess[...] = xp.where(hess <= 0, np.float32(0), hess)  # a NaN stays
        for k, values in enumerate((state.grad, state.hess)):
            state.maxima[:, k] = xp.abs(values).view(np.int32).max(axis=1) if values.shape[1] else 0
        return state.maxima

    def start_round(self, state: _State, round_number: int, learning_rate: float) -> None:
        self.device.launch(
            nodes.start_round_kernel, round_number, state.settings.seed & (2**64 - 1), learning_rate, state.progress, threads=1
        )
        if state.settings.colsample_bytree < 1:
            self._draw_features(state, round_number)

    def _draw_features(self, state: _State, round_number: int) -> None:
        """The features of the trees of a round, chosen by the host, which knows all that it takes."""
        put, cuts = self.device.put, state.rows.binned.cuts
        layout = draw_layout(state.settings, cuts, round_number)
        state.features[...], state.own_offsets[...] = put(layout.features), put(layout.offsets)
        if state.new_cells is not None:
            new_cells = layout.renumber_cells(cuts)
            state.new_cells[...] = put(new_cells)
            for part in state.pages:
                if part.page.absent_is_zero:
                    zero_bins = new_cells[part.page.host.zero_bins[new_cells >= 0]]
                    part.zero_bins[: len(zero_bins)] = put(zero_bins)

    def _select_features(self, state: _State, part: _PageRows) -> None:
        """Copy what histograms read of the features drawn, where they would otherwise read all of the page."""
        rows, page = (part.drawn, part.n_listed), part.page
        if part.read_words is not part.words:
            code_bits = 8 * state.rows.binned.dtype.itemsize
            self._launch(
                state, selection.select_codes_kernel, part.words, code_bits, state.features, *rows, part.read_words,
                threads=len(part.kept) * -(-len(state.features) * code_bits // 32),
            )  # fmt: skip
        elif state.rows.binned.is_sparse and part.cells is not page.cells:
            self._launch(
                state, selection.select_cells_kernel, page.row_begin, page.cells, state.new_cells, *rows, part.cells,
                part.row_end, threads=len(part.kept),
            )  # fmt: skip

    def count_magnitudes(self, state: _State) -> Array:
        self.device.clear(state.counts)
        for part in state.pages:
            self._launch(
                state, sampling.count_magnitudes_kernel, part.kept, part.first, state.grad, state.hess, state.counts,
                blocks=-(-len(part.kept) // sampling.COUNTED_ROWS),
            )  # fmt: skip
        return state.counts

    def draw_rows(self, state: _State, counts) -> Array:
        n_rows = state.rows.global_rows
        n_drawn = features.count_drawn(state.settings.subsample, n_rows)
        if counts is not None:
            self._launch(state, sampling.choose_threshold_kernel, counts, n_drawn, state.threshold, blocks=1)
        self.device.clear(state.maxima)
        for part in state.pages:
            self.device.clear(part.n_listed)
            self._launch(
                state, sampling.draw_rows_kernel, part.kept, part.first_id, n_rows, n_drawn, state.progress, state.threshold,
                part.first, state.grad, state.hess, part.drawn, part.n_listed, state.maxima,
                threads=-(-len(part.kept) // sampling.ROWS_PER_THREAD),
            )  # fmt: skip
        return state.maxima

    def quantise(self, state: _State, maxima) -> Array:
        self._launch(
            state, quantise.choose_scales_kernel, maxima, state.rows.global_rows, state.progress, state.keys, state.scales,
            state.leaf_scales, state.n_limbs, threads=len(state.keys),
        )  # fmt: skip
        self.device.clear(state.local_sums)
        return self._quantise(state, 1)

    def refine_fixed_point(self, state: _State, sums) -> Array | None:
        self._launch(
            state, quantise.choose_limbs_kernel, sums, features.count_drawn(state.settings.subsample, state.rows.global_rows),
            state.scales, state.n_limbs, state.local_sums, threads=len(state.keys),
        )  # fmt: skip
        return self._quantise(state, 2)

    def _quantise(self, state: _State, limbs: int) -> Array:
        for part in state.pages:
            self._launch(
                state, quantise.quantise_kernel, state.grad, state.hess, part.first, state.keys, state.scales, state.n_limbs,
                limbs, part.gpair, state.local_sums, threads=part.page.n_rows,
            )  # fmt: skip
        state.sums[limbs][...] = state.local_sums
        return state.sums[limbs]

    # -- Trees ------------------------------------------------------------------------------------------------------

    def start_trees(self, state: _State, sums) -> None:
        n_trees, own = len(state.tree_outputs), state.by_node
        self._launch(
            state, nodes.start_trees_kernel, sums, state.tree_outputs, state.progress, own["nodes"],
            own["sums"], state.n_leaves, blocks=1,
        )  # fmt: skip
        for part, segments in zip(state.pages, state.segments):
            self._launch(
                state, partition.start_rows_kernel, part.drawn, part.n_listed, n_trees, state.progress, part.rows, segments,
                threads=max(len(part.kept), n_trees),
            )  # fmt: skip
            self._select_features(state, part)
        state.level, state.n_held = 0, 0
        state.node_bound = state.frontier_bound = n_trees

    def histogram_capacity(self, state: _State) -> int:
        return state.capacity

    def frontier_size(self, state: _State) -> int:
        return state.frontier_bound

    def held_histograms(self, state: _State) -> int:
        return state.n_held

    def build_histograms(self, state: _State, begin: int, end: int, subtract: bool, hold: bool) -> Array:
        own, s, device = state.by_node, state.settings, self.device
        n = (end - begin) // 2 if subtract else end - begin
        first_slot = state.n_held if hold else 0
        if hold:
            state.n_held += n
        self._launch(
            state, nodes.choose_built_kernel, begin, end - begin, s.max_depth, first_slot, int(subtract), state.progress,
            own["nodes"], own["counts"], own["build"], own["parents"], blocks=1,
        )  # fmt: skip
        built = state.hist[first_slot : first_slot + n]
        device.clear(state.packed[first_slot : first_slot + n])
        code_bytes = state.rows.binned.dtype.itemsize
        is_sparse, in_shared = state.rows.binned.is_sparse, state.words_per_tile > 0
        if is_sparse:
            kernel, n_tiles = sparse.build_sparse_histograms_kernel, 1
        else:
            kernel = (histogram.build_histograms_kernel if in_shared else histogram.build_histograms_global_kernel)(code_bytes)
            n_words = -(-(len(state.record_offsets) - 1) * code_bytes // 4)
            n_tiles = -(-n_words // state.words_per_tile) if in_shared else n_words
        n_blocks = device.n_multiprocessors * kernel.blocks_per_sm
        own_blocks = -(-n_blocks // (n_tiles * state.n_outputs))
        for part, segments in zip(state.pages, state.segments):
            self._launch(
                state, histogram.list_build_items_kernel, own["build"], segments, own_blocks, state.progress,
                own["first_item"], blocks=1
            )
            work = state.progress, own["build"], own["first_item"], own["nodes"], state.tree_outputs, segments, state.packed
            if is_sparse:
                self._launch(
                    state, kernel, part.page.row_begin, part.row_end, part.cells, part.zero_bins, part.rows, part.gpair,
                    state.n_limbs, state.own_offsets, *work, blocks=n_blocks,
                )  # fmt: skip
            else:
                self._launch(
                    state, kernel, part.read_words, part.rows, part.gpair, state.n_limbs, state.record_offsets, state.stride,
                    state.words_per_tile, *work, blocks=n_blocks, shared=state.tile_bytes,
                )  # fmt: skip
        if state.undo:
            if s.colsample_bytree < 1:
                device.clear(built)  # the last bins may belong to no feature of this round, but are subtracted, too
            self._launch(
                state, unpack_histograms_kernel, first_slot, n, state.packed, int(state.rows.binned.record_offsets[1]),
                state.features, state.own_offsets, state.offsets, *state.undo, state.hist,
                warps=n * state.n_outputs * len(state.features),
            )  # fmt: skip
        return built

    def subtract_histograms(self, state: _State) -> None:
        own = state.by_node
        self._launch(
            state, histogram.subtract_histograms_kernel, own["parents"], own["build"], own["nodes"], state.progress,
            state.flat_hist, blocks=state.frontier_bound // 2 * -(-state.flat_hist.shape[1] // histogram.SUBTRACT_CHUNK),
        )  # fmt: skip

    def propose_candidates(self, state: _State, begin: int, end: int) -> None:
        s, n = state.settings, end - begin
        self._launch(
            state, proposals.propose_candidates_kernel, begin, n, s.max_depth, int(s.proposals == "global"), s.max_bin,
            state.progress, state.by_node["nodes"], state.hist, state.own_offsets, state.proposed, warps=n * state.gains.shape[1],
        )  # fmt: skip

    def evaluate_splits(self, state: _State, begin: int, end: int) -> None:
        own, s, device = state.by_node, state.settings, self.device
        kernel = splits.evaluate_splits_kernel(s.max_delta_step > 0 or len(s.monotone_constraints) > 0)
        for first in range(begin, end, len(state.gains)):
            n = min(len(state.gains), end - first)
            if s.masks_features:
                self._launch(
                    state, features.mask_features_kernel, first, n, s.max_depth,
                    *features.node_counts(len(state.features), s.colsample_bylevel, s.colsample_bynode), state.progress,
                    own["nodes"], state.features, state.feature_weights, state.member, state.feature_mask, blocks=n,
                )  # fmt: skip
            self._launch(
                state, kernel, first, n, s.max_depth, int(s.proposals == "global"), state.progress, own["nodes"], own["sums"],
                state.hist, state.own_offsets, state.features, state.monotone, state.feature_mask, state.proposed, state.scales,
                state.tree_outputs, state.penalty, state.gains, state.choices, warps=n * len(state.features),
                shared=device.block(kernel) // 32 * state.n_outputs * splits.CARRY_BYTES,
            )  # fmt: skip
            self._launch(
                state, splits.choose_splits_kernel, first, n, state.progress, own["nodes"], own["sums"], own["left_sums"],
                state.hist, state.own_offsets, state.features, state.gains, state.choices, warps=n,
            )  # fmt: skip

    def select_splits(self, state: _State) -> None:
        s, own = state.settings, state.by_node
        if s.grow_policy == "depthwise":
            self._launch(
                state, nodes.select_depthwise_kernel, s.max_depth, s.max_leaves, state.progress, own["nodes"], state.n_leaves,
                own["rank"], state.first_rank, own["selected"], blocks=1,
            )  # fmt: skip
            state.selected_bound = state.frontier_bound
        else:
            self._launch(
                state, nodes.select_lossguide_kernel, s.max_depth, s.max_leaves, state.progress, own["nodes"], state.n_leaves,
                own["selected"], blocks=1,
            )  # fmt: skip
            state.selected_bound = len(state.tree_outputs)

    def apply_splits(self, state: _State) -> None:
        self._reserve_nodes(state, state.node_bound + 2 * state.selected_bound)
        own = state.by_node
        self._launch(
            state, nodes.apply_splits_kernel, own["selected"], state.progress, own["nodes"], own["sums"], own["left_sums"],
            state.monotone, state.scales, state.tree_outputs, state.penalty, blocks=1,
        )
        state.level += 1

    def partition_rows(self, state: _State) -> Array:
        own = state.by_node
        for p, (part, segments) in enumerate(zip(state.pages, state.segments)):
            n_chunks = part.rows.shape[1] // partition.CHUNK_ROWS + state.selected_bound
            self._launch(
                state, partition.list_chunks_kernel, own["selected"], segments, state.progress, own["first_item"], blocks=1
            )
            marks = part.rows, segments, state.progress, own["first_item"], part.marks, part.n_left
            if state.rows.binned.is_sparse:
                page = part.page
                self._launch(
                    state, sparse.mark_sparse_rows_kernel, own["selected"], own["nodes"], page.row_begin, page.cells,
                    state.offsets, page.absent, *marks, blocks=n_chunks,
                )  # fmt: skip
            else:
                self._launch(
                    state, partition.mark_rows_kernel, own["selected"], own["nodes"], own["cats"], part.page.columns,
                    state.n_bins, *marks, blocks=n_chunks,
                )  # fmt: skip
            self._launch(
                state, partition.place_children_kernel, int(p == 0), own["selected"], own["nodes"], state.progress,
                own["first_item"], part.n_left, segments, own["counts"], blocks=1,
            )  # fmt: skip
            self._launch(
                state, partition.move_rows_kernel, own["selected"], part.rows, segments, state.progress, own["first_item"],
                part.marks, part.n_left, own["nodes"], blocks=n_chunks,
            )  # fmt: skip
        return self._advance(state)

    def _advance(self, state: _State) -> Array:
        """Bound the next frontier, or read its size; returns the row counts of its nodes."""
        s, n_trees = state.settings, len(state.tree_outputs)
        state.node_bound += 2 * state.selected_bound
        if s.grow_policy == "depthwise":
            state.frontier_bound = 2 * state.selected_bound
            read = state.level > SYNC_FREE_DEPTH
            done = state.level == s.max_depth
        else:
            state.frontier_bound = 2 * n_trees
            read = state.level % LEAVES_BETWEEN_READS == 0
            done = 0 < s.max_leaves <= state.level + 1
        if done:
            state.frontier_bound = 0
        elif read:
            progress = self.device.fetch(state.progress)[0]
            state.node_bound = int(progress["n_nodes"])
            state.frontier_bound = state.node_bound - int(progress["frontier"])
        return state.by_node["counts"][: state.frontier_bound]

    def sum_leaves(self, state: _State) -> Array:
        own = state.by_node
        leaf_sums = own["leaf_sums"][: state.node_bound]
        self.device.clear(leaf_sums)
        for part, segments in zip(state.pages, state.segments):
            self._launch(
                state, leaves.list_leaf_chunks_kernel, segments, own["nodes"], state.progress, part.first_leaf_chunk, blocks=1
            )
            self._over_leaves(
                state, part, segments, leaves.sum_leaves_kernel, state.grad, state.hess, state.leaf_scales, state.tree_outputs,
                own["leaf_sums"],
            )  # fmt: skip
        return leaf_sums

    def _over_leaves(self, state: _State, part: _PageRows, segments: Array, kernel: Any, *arguments: Any) -> None:
        """Launch a kernel whose blocks take chunks of the leaves' rows."""
        self._launch(
            state, kernel, segments, state.by_node["nodes"], state.progress, part.first_leaf_chunk, part.rows, part.first,
            *arguments,
            blocks=part.rows.shape[1] // leaves.CHUNK_ROWS + state.node_bound,
        )  # fmt: skip

    def prune(self, state: _State) -> None:
        own = state.by_node
        self._launch(state, nodes.sum_upwards_kernel, state.progress, own["nodes"], own["leaf_sums"], blocks=1)
        self._launch(state, nodes.prune_kernel, state.settings.gamma, state.progress, own["nodes"], blocks=1)

    def weigh_leaves(self, state: _State) -> None:
        own = state.by_node
        self._launch(
            state, leaves.leaf_weights_kernel, state.progress, own["nodes"], own["leaf_sums"], state.leaf_scales,
            state.tree_outputs,
            state.penalty, own["weights"], own["leaves"], own["covers"], threads=state.node_bound,
        )  # fmt: skip

    def leaf_of_rows(self, state: _State) -> Array:
        if state.leaf is None:
            state.leaf = self.device.empty((len(state.tree_outputs), state.margin.shape[1]), np.int32)
        state.leaf[...] = -1
        for part, segments in zip(state.pages, state.segments):
            self._over_leaves(state, part, segments, leaves.mark_leaves_kernel, state.leaf)
        return state.leaf

    def set_leaves(self, state: _State, nodes, values) -> None:
        state.by_node["leaves"][self.device.put(nodes)] = self.device.put(values)

    def update_margin(self, state: _State) -> None:
        draws, binned = state.settings.sampling is not None, state.rows.binned
        flat = self.grown_trees(state) if draws or any(len(part.idle) for part in state.pages) else ()
        for part, segments in zip(state.pages, state.segments):
            self._over_leaves(
                state, part, segments, leaves.update_margin_kernel, state.by_node["leaves"], state.tree_outputs, state.margin
            )
            page, idle = part.page, [(part.idle, part.n_idle)] if len(part.idle) else []
            for rows in [*idle, (part.drawn, part.n_listed)] if draws else idle:
                if binned.is_sparse:
                    self._launch(
                        state, sparse.predict_cells_kernel, page.row_begin, page.cells, state.offsets, page.absent, *rows, *flat,
                        part.first, state.margin, threads=len(rows[0]),
                    )  # fmt: skip
                else:
                    self._launch(
                        state, predict.predict_codes_kernel, page.columns, state.n_bins, *rows, *flat, part.first, state.margin,
                        state.no_leaves, threads=len(rows[0]),
                    )  # fmt: skip

    def finish_trees(self, state: _State) -> PendingCopy:
        own = [state.by_node[name][: state.node_bound] for name in ("nodes", "leaves", "weights", "covers")]
        return self.device.start_copy([state.progress, *own])

    def fetch_trees(self, state: _State, finished: PendingCopy) -> list[Any]:
        progress, own_nodes, own_leaves, weights, covers = finished.wait()
        check_finite(progress["non_finite"] * NON_FINITE_BITS)
        n = int(progress["n_nodes"][0])
        return collect_trees(
            own_nodes[:n], own_leaves[:n], weights[:n], covers[:n], state.rows.binned.cuts, len(state.tree_outputs)
        )

    def grown_trees(self, state: _State) -> Any:
        own = state.by_node
        self._launch(
            state, leaves.flatten_trees_kernel, state.progress, own["nodes"], own["leaves"], state.thresholds, state.offsets,
            own["flat"], threads=state.node_bound,
        )  # fmt: skip
        return own["flat"], state.tree_numbers, state.tree_outputs

    # -- Margins, predictions, sums ----------------------------------------------------------------------------------

    def training_margin(self, state: _State) -> Array:
        return state.margin

    def flatten_trees(self, trees, groups, cuts=None):
        return tuple(self.device.put(part) for part in flatten_trees(trees, groups, cuts))

    def predict_values(self, block, missing, flat, first_row, margin, leaves) -> None:
        values, leaves = self._columns(block, None), self._or_none(leaves)
        self.device.launch(
            predict.predict_values_kernel, values, missing, *flat, first_row, margin, leaves, threads=values.shape[1]
        )

    def predict_sparse(self, stored: StoredRows, flat, margin, leaves) -> None:
        put, leaves = self.device.put, self._or_none(leaves)
        self.device.launch(
            sparse.predict_sparse_kernel, put(stored.row_begin), put(stored.columns), put(stored.values), stored.missing,
            stored.absent, *flat, margin, leaves, threads=len(stored.row_begin) - 1,
        )  # fmt: skip

    def predict_codes(self, binned, flat, margin, leaves) -> None:
        if binned.is_sparse:
            self.predict_sparse(binned.pages[0].stored, flat, margin, leaves)
            return
        put = self.device.put
        n_bins, leaves, first = put(binned.cuts.n_bins), self._or_none(leaves), 0
        for page in binned.pages:
            all_rows = self.device.empty(0, np.int32), put(np.array([0, page.n_rows]))
            self.device.launch(
                predict.predict_codes_kernel, page.columns, n_bins, *all_rows, *flat, first, margin, leaves, threads=page.n_rows
            )
            first += page.n_rows

    def _or_none(self, leaves: Array | None) -> Array:
        return self.device.empty((0, 0), np.int32) if leaves is None else leaves

    def map_rows(self, margin, row_map) -> Array:
        out = self.device.empty(margin.shape, np.float32)
        self.device.launch(reduce.map_rows_kernel(row_map), margin, out, threads=margin.shape[1])
        return out

    def largest_term(self, prediction, label, weight, row_term, parameters) -> Array:
        return self._reduce(prediction, label, weight, row_term, parameters, 0.0)

    def sum_terms(self, prediction, label, weight, row_term, parameters, scale) -> Array:
        return self._reduce(prediction, label, weight, row_term, parameters, scale)

    def _reduce(self, prediction, label, weight, row_term, parameters, scale) -> Array:
        put, out = self.device.put, self.device.zeros(1, np.int64)
        self.device.launch(
            reduce.reduce_rows_kernel(row_term), put(prediction), put(label), put(weight), put(np.array(parameters, np.float32)),
            scale, out, threads=prediction.shape[1],
        )  # fmt: skip
        return out


def _arrays_by_node(n: int, n_outputs: int) -> dict[str, tuple[tuple[int, ...], Any]]:
    """Shape and dtype of what is kept for each of n nodes (kernels/records.py)."""
    return {
        "nodes": ((n,), NODE), "sums": ((n, n_outputs, 2), np.int64), "left_sums": ((n, n_outputs, 2), np.int64),
        "cats": ((n, EMPTY_WORDS), np.uint32), "counts": ((n,), np.int64), "selected": ((n,), np.int32), "rank": ((n,), np.int64),
        "build": ((n,), np.int32), "parents": ((n,), np.int32), "first_item": ((n + 1,), np.int64),
        "leaf_sums": ((n, n_outputs, 2), np.int64), "weights": ((n, n_outputs), np.float32),
        "leaves": ((n, n_outputs), np.float32), "covers": ((n,), np.float64), "flat": ((n,), FLAT_NODE),
    }  # fmt: skip


def _penalty(settings: GrowthSettings) -> np.ndarray:
    """The settings that kernels read as a record (kernels/records.PENALTY)."""
    assert PENALTY.names is not None
    return np.array([tuple(getattr(settings, name) for name in PENALTY.names)], PENALTY)


def _most_histograms(settings: GrowthSettings, n_trees: int) -> int:
    """Histograms with which the grower can always keep those of all open leaves (grower.grow_trees: held + frontier)."""
    leaves = 2.0 ** (settings.max_depth - 1) if settings.max_depth else math.inf
    if settings.max_leaves:
        leaves = min(leaves, settings.max_leaves)
    return int(min(2 * n_trees * leaves, 2**40))
