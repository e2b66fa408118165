"""Explanations on a GPU: a thread a row."""

from collections.abc import Iterable

import numpy as np

from gpuboost.backend.contract import Array, Explainer
from gpuboost.backend.cuda.coder import columns_of
from gpuboost.backend.cuda.device import THREADS_PER_SM, Device
from gpuboost.backend.cuda.memory import on_device
from gpuboost.backend.explained import ExplainedTrees, LeafTables, Part, Walks, n_sums
from gpuboost.kernels.approximate_contributions import add_changes_kernel
from gpuboost.kernels.background import add_tables_kernel
from gpuboost.kernels.contributions import add_contributions_kernel, write_contributions_kernel
from gpuboost.kernels.predict import ROW_BLOCK

__all__ = ["CudaExplainer"]

SCRATCH_BYTES = 1 << 30  # of what threads keep for levels and points of their paths; an estimate, not measured


@on_device(Explainer)
class CudaExplainer(Explainer[ExplainedTrees, Part]):
    """Kernels on one device."""

    def __init__(self, device: Device) -> None:
        self.device = device

    def explain(
        self, batch: Array, missing: float, trees: ExplainedTrees, parts: Iterable[Part], margins: np.ndarray, with_pairs: bool
    ) -> Array:
        device, put = self.device, self.device.put
        if device not in trees.kept:
            flat = trees.flat
            arrays = flat.nodes, trees.sets, flat.first_node, flat.first_output, trees.features, trees.columns, trees.means
            trees.kept[device] = [put(array) for array in arrays]
        nodes, sets, first_node, first_output, features, columns, means = trees.kept[device]
        values = columns_of(device, batch)
        n_rows, width = values.shape[1], trees.n_features + 1
        sums = device.zeros((-(-n_rows // ROW_BLOCK), n_sums(trees, with_pairs), ROW_BLOCK), np.float64)
        for part in parts:
            if isinstance(part, Walks):
                self._add_walks(part, values, missing, nodes, sets, sums)
            elif isinstance(part, LeafTables):
                tables = map(put, (part.leaves, part.conditions, part.columns, part.outputs, part.values, part.tables))
                by_output = sums.reshape(len(sums), trees.n_outputs, -1, ROW_BLOCK)
                device.launch(add_tables_kernel, values, missing, nodes, sets, *tables, by_output, threads=n_rows)
            else:
                device.launch(
                    add_changes_kernel, values, missing, nodes, sets, means, first_node, first_output, columns, len(features),
                    sums, threads=n_rows,
                )  # fmt: skip
        out = device.zeros((n_rows, trees.n_outputs, width if with_pairs else 1, width), np.float32)
        device.launch(
            write_contributions_kernel, sums, features, put(trees.biases), put(margins), int(with_pairs), out,
            threads=n_rows * trees.n_outputs,
        )  # fmt: skip
        return out

    def _add_walks(self, walks: Walks, values: Array, missing: float, nodes: Array, sets: Array, sums: Array) -> None:
        empty, put, n_rows = self.device.empty, self.device.put, values.shape[1]
        path = walks.n_levels + 1, int(walks.n_points.max())
        n_slots = min(SCRATCH_BYTES // (24 * path[0] * path[1]), n_rows, self.device.n_multiprocessors * THREADS_PER_SM)
        scratch = (*path, max(n_slots // 32 * 32, 32))
        laid_out = walks.first_step, walks.n_points, walks.steps, walks.coefficients, walks.partners
        weights, below = empty(scratch, np.float64), empty(scratch, np.float64)
        alphas = empty(scratch if walks.with_pairs else (1, 1, 1), np.float64)
        self.device.launch(
            add_contributions_kernel, values, missing, nodes, sets, *map(put, laid_out), int(walks.with_pairs), weights, below,
            alphas, empty((walks.n_levels, scratch[2]), np.int32), sums, threads=scratch[2],
        )  # fmt: skip
