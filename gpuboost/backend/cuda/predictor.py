"""Prediction on a GPU."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from gpuboost.backend.contract import Array, FlatTrees, Predictor, RowTerm
from gpuboost.backend.cuda.coder import columns_of
from gpuboost.backend.cuda.device import Device
from gpuboost.backend.cuda.memory import on_device
from gpuboost.backend.cuda.staging import split_features
from gpuboost.backend.trees import flatten_trees
from gpuboost.binned.cuts import Cuts
from gpuboost.binned.matrix import BinnedMatrix
from gpuboost.binned.pages import SparsePage, StoredRows
from gpuboost.kernels import predict, predict_codes, predict_words, reduce, reweigh, sparse
from gpuboost.kernels.predict_words import places_of, shared_bytes
from gpuboost.model.tree import Tree

__all__ = ["CudaPredictor"]

TREES_FOR_CELLS = 4  # at a time, on average: rows become cells again for the next ones, which takes as long as a tree or two


@dataclass(frozen=True)
class FewTrees:
    """Some of a forest's trees, as kernels/predict_words.py takes them: words, where those of each tree begin, its output, the
    features of cells, none without, and the first tree's number."""

    words: Array
    first_word: Array
    groups: Array
    features: Array
    first_tree: int


@dataclass(frozen=True)
class TreesInWords(FlatTrees):
    """parts : all of the trees, as many at a time as shared memory holds; () where they do not fit into words."""

    parts: tuple[FewTrees, ...]


def few_at_a_time(feature: np.ndarray, begin: np.ndarray, block: int, room: int) -> list[tuple[int, int, np.ndarray]]:
    """(first tree, last + 1, features that they split on, int32) of as many trees at a time as a block's shared memory has room
    for, with cells for its rows; none where one is too large. feature : of each node, negative at a leaf. begin : where each
    tree's nodes begin; the end. block : 0 for none of these cells."""
    n_trees, is_split = len(begin) - 1, feature >= 0
    features = np.flatnonzero(np.bincount(feature[is_split])).astype(np.int32)
    place = places_of(features)
    looked_at = np.zeros((n_trees, len(features)), bool)
    looked_at[np.repeat(np.arange(n_trees), np.diff(begin))[is_split], place[feature[is_split]]] = True
    parts, first, own = [], 0, np.zeros(len(features), bool)
    for tree in range(n_trees):
        together = own | looked_at[tree]
        if shared_bytes(begin[tree + 1] - begin[first], np.count_nonzero(together), block) <= room:
            own = together
            continue
        if shared_bytes(begin[tree + 1] - begin[tree], np.count_nonzero(looked_at[tree]), block) > room:
            return []
        parts.append((first, tree, features[own]))
        first, own = tree, looked_at[tree]
    return [*parts, (first, n_trees, features[own])] if n_trees else []


@on_device(Predictor)
class CudaPredictor(Predictor):
    """A thread a row, or two."""

    finds_large_values = True
    takes_sparse = True

    def __init__(self, device: Device) -> None:
        self.device = device

    def flatten(self, trees: list[Tree], outputs: list[int], cuts: Cuts | None = None) -> FlatTrees:
        flat, put = flatten_trees(trees, outputs, cuts), self.device.put
        parts = tuple(self._parts(flat, cuts))
        flat = flat if flat.sets is not None else replace(flat, sets=np.zeros(0, np.uint32))
        nodes, leaf_values, first_node, first_output, sets = map(put, flat)
        return TreesInWords(nodes, leaf_values, first_node, first_output, sets, parts)

    def _parts(self, flat: FlatTrees, cuts: Cuts | None) -> Iterator[FewTrees]:
        """Of trees in host memory, all or none. cuts : for codes."""
        begin, feature = np.append(flat.first_node, len(flat.nodes)), flat.nodes["feature"]
        if not predict_words.have_words(flat.nodes, flat.leaf_values.shape[1], np.diff(begin).max(initial=0)):
            return
        room, block = self.device.shared_limit, self.device.block(predict_words.predict_by_words_kernel(cuts is not None, True))
        bounds = few_at_a_time(feature, begin, block, room)
        if not 0 < len(bounds) <= -(-len(flat.first_node) // TREES_FOR_CELLS):
            bounds = [(first, end, features[:0]) for first, end, features in few_at_a_time(feature, begin, 0, room)]
        n_bins, put = None if cuts is None else cuts.n_bins, self.device.put
        for first, end, features in bounds:
            own = slice(begin[first], begin[end])
            words = predict_words.split_words(flat.nodes[own], flat.leaf_values[own], n_bins, features)
            first_word, groups = put(begin[first:end] - begin[first]), put(flat.first_output[first:end])
            yield FewTrees(put(words), first_word, groups, put(features), first)

    def _predict_by_words(
        self, table: Array, missing: float, is_coded: bool, flat: FlatTrees, first_row: int, margin: Array, leaves: Array
    ) -> bool:
        """Whether these trees have words, by which it is done then."""
        parts = flat.parts if isinstance(flat, TreesInWords) else ()
        for few in parts:
            kernel = predict_words.predict_by_words_kernel(is_coded, few.features.size > 0)
            self.device.launch(
                kernel, table, missing, few.words, few.first_word, few.groups, few.features, first_row, margin, few.first_tree,
                leaves, threads=-(-table.shape[1] // predict_words.ROWS_PER_THREAD),
                shared=shared_bytes(few.words.size, few.features.size, self.device.block(kernel)),
            )  # fmt: skip
        return len(parts) > 0

    def predict_values(
        self, batch: Array, missing: float, flat: FlatTrees, first_row: int, margin: Array, leaves: Array | None
    ) -> bool:
        n_large, leaves = self.device.zeros(1, np.int64), self._or_none(leaves)
        values = columns_of(self.device, batch, missing=missing, n_large=n_large)
        seen = self.device.start_copy(n_large)
        if not self._predict_by_words(values, missing, False, flat, first_row, margin, leaves):
            self.device.launch(
                predict.predict_values_kernel, values, missing, *flat, first_row, margin, leaves, threads=values.shape[1]
            )
        return int(seen.wait()[0]) == 0

    def predict_sparse(self, stored: StoredRows, flat: FlatTrees, margin: Array, leaves: Array | None) -> None:
        put, leaves = self.device.put, self._or_none(leaves)
        self.device.launch(
            sparse.predict_sparse_kernel, put(stored.row_begin), put(stored.columns), put(stored.values), stored.missing,
            stored.absent, *flat, margin, leaves, threads=len(stored.row_begin) - 1,
        )  # fmt: skip

    def predict_codes(self, binned: BinnedMatrix, flat: FlatTrees, margin: Array, leaves: Array | None) -> None:
        put, first = self.device.put, 0
        n_bins, own_leaves = put(binned.cuts.n_bins), self._or_none(leaves)
        for _, page in binned.pages.walk(split_features(self.device, flat, binned)):
            if isinstance(page, SparsePage):  # the only page
                self.predict_sparse(page.stored, flat, margin, leaves)
                continue
            if not self._predict_by_words(page.columns, np.nan, True, flat, first, margin, own_leaves):
                all_rows = self.device.empty(0, np.int32), put(np.array([0, page.n_rows]))
                self.device.launch(
                    predict_codes.predict_codes_kernel, page.columns, n_bins, *all_rows, *flat, first, margin, own_leaves,
                    threads=page.n_rows,
                )  # fmt: skip
            first += page.n_rows

    def _or_none(self, leaves: Array | None) -> Array:
        return self.device.empty((0, 0), np.int32) if leaves is None else leaves

    def reweigh(
        self, leaves: Array, outputs: Sequence[int], before: Sequence[float], after: Sequence[float], sums: Array
    ) -> None:
        of_trees = np.array(outputs, np.int32), np.array(before, np.float64), np.array(after, np.float64)
        arguments = leaves, *map(self.device.put, of_trees), sums
        self.device.launch(reweigh.reweigh_trees_kernel, *arguments, threads=leaves.shape[1])

    def write_margins(self, base: Array, sums: Array, unit: float, margin: Array) -> None:
        self.device.launch(reweigh.write_margins_kernel, base, sums, unit, margin, threads=base.shape[1])

    def map_rows(self, margin: Array, row_map: RowTerm) -> Array:
        out = self.device.empty(margin.shape, np.float32)
        self.device.launch(reduce.map_rows_kernel(row_map), margin, out, threads=margin.shape[1])
        return out
