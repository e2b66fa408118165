"""Explanations against a background table: what is not known of a row is taken from its rows (kernels/background.py)."""

from collections.abc import Iterator

import numpy as np

from gpuboost.backend.cpu.memory import host_batch
from gpuboost.backend.cpu.predictor import CpuPredictor
from gpuboost.backend.explained import ExplainedTrees, LeafTables
from gpuboost.data.tables.source import ColumnSource
from gpuboost.explaining.walks import PART_BYTES, cut_into_parts, points_up_to
from gpuboost.kernels.background import FIRST_ENTRY, LEAF, N_BITS, N_FIELDS, build_tables_cpu, list_leaves
from gpuboost.kernels.contributions import write_keys_cpu
from gpuboost.kernels.predict import ROW_BLOCK

__all__ = ["BackgroundTables"]

MOST_BITS = 16  # features of a path: tables of 8 MB a leaf


class BackgroundTables:
    """The leaves of a model's trees, and what each contributes to a row of any pattern. Few tables are kept; many are made anew
    whenever they are asked for.

    biases : float64 (n_outputs,). Mean of the trees' sums over the background.
    """

    def __init__(self, trees: ExplainedTrees, source: ColumnSource, n_threads: int) -> None:
        self._trees, self._n_threads, self._n_rows = trees, n_threads, source.n_rows
        flat = trees.flat
        known = flat.nodes, flat.first_node, trees.columns
        room = np.zeros((0, N_FIELDS), np.int64), np.zeros((0, 3), np.int32), np.zeros(0, np.int32)
        n_leaves, n_conditions, n_columns = list_leaves(*known, *room)
        self._leaves = np.zeros((n_leaves, N_FIELDS), np.int64)
        self._conditions, self._columns = np.zeros((n_conditions, 3), np.int32), np.zeros(n_columns, np.int32)
        list_leaves(*known, self._leaves, self._conditions, self._columns)
        bits = self._leaves[:, N_BITS]
        if bits.max(initial=0) > MOST_BITS:
            raise NotImplementedError(
                f"the model has a path of {bits.max()} different features; against a background table at most {MOST_BITS} can be "
                "explained. Train with max_depth=16 or less, or leave out the background."
            )
        self._points = points_up_to(max(1, (int(bits.max(initial=1)) + 1) // 2))
        self._n_entries = (1 << bits) * bits
        self._leaves[:, FIRST_ENTRY] = np.cumsum(self._n_entries) - self._n_entries
        n_nodes = np.diff(np.append(flat.first_node, len(flat.nodes)))
        self._outputs = np.repeat(flat.first_output, n_nodes)[self._leaves[:, LEAF]].astype(np.int64)
        self._values = np.ascontiguousarray(flat.leaf_values[self._leaves[:, LEAF]])
        self._parts = cut_into_parts(8 * self._n_entries)
        self._kept: list[LeafTables] = []
        self._keys = np.zeros((-(-self._n_rows // ROW_BLOCK), len(trees.features) + 1, ROW_BLOCK), np.uint32)
        ends, predictor = np.zeros(len(flat.nodes), np.int64), CpuPredictor(n_threads)
        step = max(ROW_BLOCK, PART_BYTES // (4 * (source.n_features + len(flat.first_node) + 1)) // ROW_BLOCK * ROW_BLOCK)
        for first in range(0, self._n_rows, step):
            batch = host_batch(source.read(slice(first, min(first + step, self._n_rows))))
            own = self._keys[first // ROW_BLOCK : (first + step) // ROW_BLOCK]
            write_keys_cpu(batch, np.float32(source.missing), trees.features, own, n_threads)
            reached = np.zeros((len(batch), len(flat.first_node)), np.int32)
            predictor.predict_values(batch, source.missing, flat, 0, np.zeros((trees.n_outputs, len(batch)), np.float32), reached)
            ends += np.bincount((reached + flat.first_node).reshape(-1), minlength=len(ends))
        self.biases = np.zeros(trees.n_outputs)
        shares = ends[self._leaves[:, LEAF]] / max(self._n_rows, 1)
        for k in range(self._values.shape[1]):
            np.add.at(self.biases, self._outputs + k, shares * self._values[:, k])

    def __iter__(self) -> Iterator[LeafTables]:
        built = map(self._build, self._parts)
        if len(self._parts) == 1:
            self._kept = self._kept or list(built)
        return iter(self._kept or built)

    def _build(self, part: slice) -> LeafTables:
        leaves = self._leaves[part].copy()
        leaves[:, FIRST_ENTRY] -= leaves[0, FIRST_ENTRY] if len(leaves) else 0
        tables = np.empty(int(self._n_entries[part].sum()))
        build_tables_cpu(
            self._keys, self._n_rows, self._trees.nodes, self._trees.sets, leaves, self._conditions, self._points, tables,
            self._n_threads,
        )  # fmt: skip
        return LeafTables(leaves, self._conditions, self._columns, self._outputs[part], self._values[part], tables)
