"""Explanations on the CPU: blocks of rows, shared among threads."""

from collections.abc import Iterable

import numpy as np

from gpuboost.backend.contract import Array, Explainer
from gpuboost.backend.cpu.memory import host_batch
from gpuboost.backend.explained import ExplainedTrees, LeafTables, Part, Walks, n_sums
from gpuboost.kernels.approximate_contributions import add_changes_cpu
from gpuboost.kernels.background import add_tables_cpu
from gpuboost.kernels.contributions import add_contributions_cpu, write_contributions_cpu, write_keys_cpu
from gpuboost.kernels.predict import ROW_BLOCK

__all__ = ["CpuExplainer"]


class CpuExplainer(Explainer[ExplainedTrees, Part]):
    """numba on some threads."""

    def __init__(self, n_threads: int) -> None:
        self._n_threads = n_threads

    def explain(
        self, batch: Array, missing: float, trees: ExplainedTrees, parts: Iterable[Part], margins: np.ndarray, with_pairs: bool
    ) -> np.ndarray:
        n_blocks, width = -(-len(batch) // ROW_BLOCK), trees.n_features + 1
        keys = np.zeros((n_blocks, len(trees.features) + 1, ROW_BLOCK), np.uint32)
        write_keys_cpu(host_batch(batch), np.float32(missing), trees.features, keys, self._n_threads)
        sums = np.zeros((n_blocks, n_sums(trees, with_pairs), ROW_BLOCK))
        for part in parts:
            self._add(part, trees, keys, sums)
        out = np.zeros((len(batch), trees.n_outputs, width if with_pairs else 1, width), np.float32)
        write_contributions_cpu(sums, trees.features, trees.biases, margins, with_pairs, out, self._n_threads)
        return out

    def _add(self, part: Part, trees: ExplainedTrees, keys: np.ndarray, sums: np.ndarray) -> None:
        known = keys, trees.nodes, trees.sets
        if isinstance(part, Walks):
            add_contributions_cpu(
                *known, part.first_step, part.n_points, part.steps, part.coefficients, part.partners, part.with_pairs, sums,
                self._n_threads,
            )  # fmt: skip
        elif isinstance(part, LeafTables):
            by_output = sums.reshape(len(sums), trees.n_outputs, -1, ROW_BLOCK)
            add_tables_cpu(
                *known, part.leaves, part.conditions, part.columns, part.outputs, part.values, part.tables, by_output,
                self._n_threads,
            )  # fmt: skip
        else:
            flat = trees.flat
            add_changes_cpu(
                *known, flat.nodes, trees.means, flat.first_node, flat.first_output, trees.columns, len(trees.features), sums,
                self._n_threads,
            )  # fmt: skip
