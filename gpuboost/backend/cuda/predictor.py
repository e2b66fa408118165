"""Prediction on a GPU."""

from collections.abc import Sequence
from dataclasses import replace

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
from gpuboost.kernels import predict, reduce, reweigh, sparse
from gpuboost.model.tree import Tree

__all__ = ["CudaPredictor"]


@on_device(Predictor)
class CudaPredictor(Predictor):
    """A thread a row."""

    takes_sparse = True

    def __init__(self, device: Device) -> None:
        self.device = device

    def flatten(self, trees: list[Tree], outputs: list[int], cuts: Cuts | None = None) -> FlatTrees:
        flat = flatten_trees(trees, outputs, cuts)
        flat = flat if flat.sets is not None else replace(flat, sets=np.zeros(0, np.uint32))
        return FlatTrees(*map(self.device.put, flat))

    def predict_values(
        self, batch: Array, missing: float, flat: FlatTrees, first_row: int, margin: Array, leaves: Array | None
    ) -> None:
        values, leaves = columns_of(self.device, batch), self._or_none(leaves)
        self.device.launch(
            predict.predict_values_kernel, values, missing, *flat, first_row, margin, leaves, threads=values.shape[1]
        )

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
            all_rows = self.device.empty(0, np.int32), put(np.array([0, page.n_rows]))
            self.device.launch(
                predict.predict_codes_kernel, page.columns, n_bins, *all_rows, *flat, first, margin, own_leaves,
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
