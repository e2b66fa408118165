"""How much memory a training takes on a GPU, and how much of it histograms get: numbers in, numbers out."""

import math
from dataclasses import dataclass

import numpy as np

from gpuboost.backend.cuda.device import out_of_memory
from gpuboost.backend.dropout import VALUES_AT_ONCE
from gpuboost.kernels.category_vectors import scratch_size
from gpuboost.kernels.leaf_quantiles import DIGITS
from gpuboost.kernels.structs import EMPTY_WORDS, FLAT_NODE, NODE, SLICE
from gpuboost.params import Params, most_leaves

__all__ = ["MemoryPlan", "QUANTILE_NODES", "SYNC_FREE_DEPTH", "TrainingSize", "arrays_by_node", "finished_arrays", "plan_memory"]

SYNC_FREE_DEPTH = 10  # a level of 2^10 nodes: launching by bounds costs little up to here
GAINS_BYTES = 2**26  # best splits by node and feature that are kept at once
SORT_BYTES, SORT_BLOCKS = 2**25, 1024  # of categories that are sorted at once, each feature of a node by a block
QUANTILE_NODES = 2048  # whose leaves' residuals are counted at once, 4 KB each
HISTOGRAM_SHARE = 4  # histograms get one part in so many of the memory that is free, where no parameter says otherwise
RESERVE_BYTES = 2**25  # left free: pinned copies, metrics, the allocator's rounding
ROW_LIMIT = 2**31  # of the lists of a page, whose entries have numbers of four bytes


@dataclass(frozen=True)
class TrainingSize:
    """What a training is asked to hold.

    searched_size : of the leaf_size outputs of a tree, or combinations of them, as many as splits are searched by.
    n_bins, n_packed : sums of a histogram for each output of a tree, of the bins of the features drawn and of packed codes.
    largest_page : rows. copied_bytes : of codes that are copied for the features that a round draws.
    has_quantiles : whether leaves become quantiles of residuals.
    staged_bytes : of buffers for pages of the host.
    n_categories : most of a feature that is split by sets, 0 where none is. n_words : of a node's set (kernels/structs.py).
    """

    n_rows: int
    n_outputs: int
    n_targets: int
    n_trees: int
    leaf_size: int
    searched_size: int
    n_features: int
    n_bins: int
    n_packed: int
    n_pages: int
    largest_page: int
    copied_bytes: int
    has_quantiles: bool = False
    staged_bytes: int = 0
    n_categories: int = 0
    n_words: int = EMPTY_WORDS


@dataclass(frozen=True)
class MemoryPlan:
    """n_nodes : for which arrays are allocated at once. capacity : histograms. nodes_at_once : whose best splits by feature are
    kept at once. bytes : of all of it, beside the table. sorted_at_once : features of categories; of sorted_size each."""

    n_nodes: int
    capacity: int
    nodes_at_once: int
    bytes: int
    sorted_at_once: int = 0
    sorted_size: int = 0


def plan_memory(size: TrainingSize, params: Params, free_bytes: int) -> MemoryPlan:
    """The plan of a training on a device with so many bytes free.

    Raises MemoryError, naming the bytes needed and free, where two histograms do not fit beside the rows; ValueError for a page
    of too many rows.
    """
    if size.n_trees * size.largest_page >= ROW_LIMIT:
        raise ValueError(
            f"{size.n_trees} trees a round on pages of {size.largest_page} rows: a page must hold fewer than 2^31 rows of all "
            "trees together. Use QuantileDMatrix(..., page_rows=) with fewer."
        )
    deepest = min(params.max_depth or SYNC_FREE_DEPTH, SYNC_FREE_DEPTH)
    n_nodes = 2 * size.n_trees * most_leaves(deepest, params.max_leaves)
    at_once = max(1, min(GAINS_BYTES // (12 * size.n_features), 2**SYNC_FREE_DEPTH * size.n_trees))
    # with the candidates of its node, where each node has its own
    histogram_bytes = size.searched_size * (size.n_bins + size.n_packed) * 16 + size.n_bins * (params.proposals == "local")
    rest = _row_bytes(size, params) + _node_bytes(size, params, n_nodes) + GAINS_BYTES + RESERVE_BYTES
    rest += at_once * size.n_features * params.masks_features + size.staged_bytes
    rest += size.n_trees * size.n_bins * (params.proposals == "global")
    if params.is_sketched(size.leaf_size) and params.sketch_method == "random_projection":
        rest += size.searched_size * size.leaf_size * (4 + 8)  # outputs and factors of the combinations
    sorted_size = 2 ** (size.n_categories - 1).bit_length() if size.n_categories else 0  # for a bitonic sort
    sorted_bytes = 12 * sorted_size + 8 * scratch_size(sorted_size, size.searched_size) * (size.searched_size > 1)
    sorted_at_once = max(1, min(SORT_BYTES // sorted_bytes, SORT_BLOCKS)) if sorted_size else 0
    rest += sorted_at_once * sorted_bytes
    memory = params.histogram_memory or free_bytes // HISTOGRAM_SHARE
    wanted = min(memory // histogram_bytes, _most_histograms(params, size))
    capacity = min(max(wanted, 2), (free_bytes - rest) // histogram_bytes)
    if capacity < 2:
        raise out_of_memory(rest + 2 * histogram_bytes, free_bytes)
    return MemoryPlan(n_nodes, capacity, at_once, rest + capacity * histogram_bytes, sorted_at_once, sorted_size)


def _row_bytes(size: TrainingSize, params: Params) -> int:
    """Margins, gradients and fixed point of every output, or of combinations of them and these, row lists and, where pages stay,
    leaves for every tree, labels, weights, rows kept. With several trees an output the margins they are added to; with dropout
    sums, margins without trees, leaves (training/dart.py).
    """
    n_searched, is_sketched = size.n_outputs // size.leaf_size * size.searched_size, params.is_sketched(size.leaf_size)
    each = size.n_outputs * (4 + 4) + n_searched * (8 + 8 * is_sketched)
    each += size.n_trees * (8 + 2 * (size.staged_bytes == 0)) + 4 * size.n_targets + 4 + 4
    each += 4 * (params.sampling is not None) + 8 * size.n_outputs * size.has_quantiles
    each += 4 * size.n_outputs * (params.num_parallel_tree > 1) + (8 + 4) * size.n_outputs * params.drops_trees
    leaves = max(VALUES_AT_ONCE, size.n_rows * size.leaf_size) * params.drops_trees
    return int(size.n_rows * each) + size.copied_bytes + 4 * leaves


def _node_bytes(size: TrainingSize, params: Params, n_nodes: int) -> int:
    """Arrays by node, and by node and page: segments, moved, first_leaf_chunk, slices, first_slice."""
    bounds = params.bounds_outputs(size.leaf_size)
    growing = arrays_by_node(n_nodes, size.leaf_size, size.searched_size, size.n_words, bounds)
    shapes = [*growing.values(), *finished_arrays(n_nodes, size.leaf_size, size.n_words).values()]
    by_page = n_nodes * (24 + 8 + 8 + SLICE.itemsize + 4)
    by_slot = size.leaf_size * (4 * n_nodes * 8 + QUANTILE_NODES * 2 * (DIGITS + 2) * 8) if size.has_quantiles else 0
    return sum(math.prod(shape) * np.dtype(dtype).itemsize for shape, dtype in shapes) + size.n_pages * by_page + by_slot


def arrays_by_node(
    n: int, leaf_size: int, searched_size: int, n_words: int, bounds: bool = False
) -> dict[str, tuple[tuple[int, ...], np.dtype | type]]:
    """Shape and dtype of what is kept for each of n nodes while they grow (kernels/structs.py), ``bounds`` of each output or not.
    Sets are finished."""
    return _sets(n, n_words, n_words == EMPTY_WORDS) | {
        "sums": ((n, searched_size, 4 if bounds else 2), np.int64), "left_sums": ((n, searched_size, 2), np.int64),
        "counts": ((n,), np.int64),
        "selected": ((n,), np.int32), "rank": ((n,), np.int64), "build": ((n,), np.int32), "parents": ((n,), np.int32),
        "first_item": ((n + 1,), np.int64), "leaf_sums": ((n, leaf_size, 2), np.int64), "flat": ((n,), FLAT_NODE),
    }  # fmt: skip


def finished_arrays(n: int, leaf_size: int, n_words: int) -> dict[str, tuple[tuple[int, ...], np.dtype | type]]:
    """The same of what goes to the host when trees are finished; state : n_nodes and non_finite (kernels/structs.py)."""
    return _sets(n, n_words, n_words > EMPTY_WORDS) | {
        "state": ((2,), np.int64), "nodes": ((n,), NODE), "covers": ((n,), np.float64), "weights": ((n, leaf_size), np.float32),
        "leaf_values": ((n, leaf_size), np.float32),
    }  # fmt: skip


def _sets(n: int, n_words: int, are_here: bool) -> dict[str, tuple[tuple[int, ...], np.dtype | type]]:
    return {"cats": ((n, n_words), np.uint32)} if are_here else {}


def _most_histograms(params: Params, size: TrainingSize) -> int:
    """Histograms with which the grower can always keep those of all open leaves (growing/pool.py: held + frontier), if each leaf
    has a row here."""
    leaves = min(2.0 ** (params.max_depth - 1) if params.max_depth else math.inf, max(size.n_rows, 1))
    if params.max_leaves:
        leaves = min(leaves, params.max_leaves)
    return int(2 * size.n_trees * leaves)
