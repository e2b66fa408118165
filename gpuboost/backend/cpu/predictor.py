"""Prediction on the CPU."""

from collections.abc import Sequence

import numpy as np

from gpuboost.backend.contract import Array, FlatTrees, Predictor, RowTerm
from gpuboost.backend.cpu.memory import host_batch
from gpuboost.backend.trees import flatten_trees
from gpuboost.binned.cuts import Cuts
from gpuboost.binned.matrix import BinnedMatrix
from gpuboost.binned.pages import DensePage, SparsePage, StoredRows
from gpuboost.kernels.predict import predict_values_cpu
from gpuboost.kernels.predict_codes import predict_codes_cpu
from gpuboost.kernels.reduce import map_rows
from gpuboost.kernels.reweigh import reweigh_trees_cpu, write_margins_cpu
from gpuboost.kernels.sparse import predict_sparse_cpu
from gpuboost.model.tree import Tree

__all__ = ["ALL_ROWS", "NO_LEAVES", "CpuPredictor"]

NO_LEAVES = np.zeros((0, 0), np.int32)
ALL_ROWS = np.zeros(0, np.int32)  # to kernels that predict listed ones


class CpuPredictor(Predictor):
    """Blocks of rows, shared among threads."""

    finds_large_values = True
    takes_sparse = True

    def __init__(self, n_threads: int) -> None:
        self._n_threads = n_threads

    def flatten(self, trees: list[Tree], outputs: list[int], cuts: Cuts | None = None) -> FlatTrees:
        return flatten_trees(trees, outputs, cuts)

    def predict_values(
        self, batch: Array, missing: float, flat: FlatTrees, first_row: int, margin: Array, leaves: Array | None
    ) -> bool:
        leaves = NO_LEAVES if leaves is None else leaves
        return predict_values_cpu(host_batch(batch), np.float32(missing), *flat, first_row, margin, leaves, self._n_threads)

    def predict_sparse(self, stored: StoredRows, flat: FlatTrees, margin: Array, leaves: Array | None) -> bool:
        leaves = NO_LEAVES if leaves is None else leaves
        return predict_sparse_cpu(
            stored.row_begin, stored.columns, stored.values, np.float32(stored.missing), np.float32(stored.absent),
            stored.n_features, *flat, margin, leaves, self._n_threads,
        )  # fmt: skip

    def predict_codes(self, binned: BinnedMatrix, flat: FlatTrees, margin: Array, leaves: Array | None) -> None:
        first = 0
        for _, page in binned.pages.walk(flat.features):
            own = slice(first, first + page.n_rows)
            own_leaves = None if leaves is None else leaves[own]
            if isinstance(page, SparsePage):
                self.predict_sparse(page.stored, flat, margin[:, own], own_leaves)
            else:
                self._predict_dense(page, binned.cuts, flat, margin[:, own], own_leaves)
            first += page.n_rows

    def _predict_dense(self, page: DensePage, cuts: Cuts, flat: FlatTrees, margin: Array, leaves: Array | None) -> None:
        leaves = NO_LEAVES if leaves is None else leaves
        predict_codes_cpu(page.columns, cuts.n_bins, ALL_ROWS, *flat, margin, leaves, self._n_threads)

    def reweigh(
        self, leaves: Array, outputs: Sequence[int], before: Sequence[float], after: Sequence[float], sums: Array
    ) -> None:
        of_trees = np.array(outputs, np.int32), np.array(before, np.float64), np.array(after, np.float64)
        reweigh_trees_cpu(leaves, *of_trees, sums, self._n_threads)

    def write_margins(self, base: Array, sums: Array, unit: float, margin: Array) -> None:
        write_margins_cpu(base, sums, unit, margin, self._n_threads)

    def map_rows(self, margin: Array, row_map: RowTerm) -> Array:
        out = np.empty_like(margin)
        map_rows(row_map)(margin, out, self._n_threads)
        return out
