"""Contributions of the features to the margins of a table's rows, stream by stream."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Literal

import numpy as np

from gpuboost.backend import Backend
from gpuboost.backend.contract import Array
from gpuboost.backend.explained import Changes, ExplainedTrees, Part, n_sums
from gpuboost.backend.trees import flatten_trees
from gpuboost.data.dmatrix import DMatrix
from gpuboost.data.quantile_dmatrix import QuantileDMatrix
from gpuboost.data.tables.device import cupy_module, current_device, host_array, put_on
from gpuboost.data.tables.source import ColumnSource
from gpuboost.explaining.background import BackgroundTables
from gpuboost.explaining.walks import TreeWalks, explained_trees, model_covers, with_means
from gpuboost.kernels.predict import ROW_BLOCK
from gpuboost.margins import PREDICTED_ROWS, model_source, start_margin
from gpuboost.model.model import Model

__all__ = ["Contributions", "Kind", "mean_sizes"]

Kind = Literal["values", "interactions"]
Progress = Callable[[int, int], None]  # called with the rows that are done, and all

STREAM_BYTES = 256 << 20  # of the sums of rows that are worked on together


class Contributions:
    """Explanations of a model as it is now, its trees laid out for all that is to come.

    model : the rounds that count. base : float32 (n_outputs,), the margins of base_score.
    """

    def __init__(self, model: Model, base: np.ndarray) -> None:
        self._model, self._base = model, base
        self.trees = explained_trees(model)
        self._covers: np.ndarray | None = None
        self._walks: dict[bool, TreeWalks] = {}
        self._background: tuple[DMatrix, BackgroundTables] | None = None

    def explain(
        self, data: DMatrix, backend: Backend, kind: Kind = "values", *, is_approximate: bool = False, by_name: bool = True,
        progress: Progress | None = None,
    ) -> Array:  # fmt: skip
        """float32 (n_rows, n_outputs, n_features + 1), or of interactions (n_rows, n_outputs, n_features + 1, n_features + 1), on
        the device of the table. is_approximate : by what the splits of a row's own path change."""
        if self._covers is None:
            covers = model_covers(self._model)
            self.trees = with_means(self.trees, covers)
            self._covers = covers  # last: another thread that sees it takes the trees for finished
        with_pairs = kind == "interactions"
        parts: Iterable[Part] = (Changes(),)
        if not is_approximate:
            if with_pairs not in self._walks:
                self._walks[with_pairs] = TreeWalks(self._model, self.trees, self._covers, with_pairs, backend.n_threads)
            parts = self._walks[with_pairs]
        out = explain_rows(self._model, self._base, data, backend, self.trees, parts, with_pairs, by_name, progress)
        return out if with_pairs else out[:, :, 0]

    def explain_against(
        self, background: DMatrix, data: DMatrix, backend: Backend, *, by_name: bool = True, progress: Progress | None = None
    ) -> Array:
        """Values as above, with n_outputs always, where what is not known of a row is taken from the rows of a background table.
        The tables of the last background are kept."""
        if self._background is None or self._background[0] is not background:
            source = table_of(self._model, background, by_name)
            if source.n_rows == 0:
                raise ValueError("background has no rows. Give a sample of the rows that were trained on, for example.")
            self._background = background, BackgroundTables(self.trees, source, backend.n_threads)
        tables = self._background[1]
        trees = replace(self.trees, biases=tables.biases)
        return explain_rows(self._model, self._base, data, backend, trees, tables, False, by_name, progress)[:, :, 0]


def table_of(model: Model, data: DMatrix, by_name: bool) -> ColumnSource:
    """A matrix as the model reads it; in the place of values that it does not keep others of the same codes. Raises ValueError
    naming columns that do not match the model's, or where codes do not tell which way a row goes."""
    source = model_source(model, data, by_name)
    if source is None:
        assert isinstance(data, QuantileDMatrix)
        codes = data.any_binned()
        flatten_trees(model.weighed_trees, model.tree_groups, None if codes is None else codes.cuts)  # which raises
        source = data.lowest_values()
    return source


def explain_rows(
    model: Model, base: np.ndarray, data: DMatrix, backend: Backend, trees: ExplainedTrees, parts: Iterable[Part],
    with_pairs: bool, by_name: bool, progress: Progress | None,
) -> Array:  # fmt: skip
    """float32 (n_rows, n_outputs, 1 or n_features + 1, n_features + 1), as many rows at a time as STREAM_BYTES have room for."""
    source = table_of(model, data, by_name)
    width, n_rows, explainer = trees.n_features + 1, data.num_row(), backend.explainer()
    shape = n_rows, trees.n_outputs, width if with_pairs else 1, width
    margins = start_margin(data, n_rows, base, None, trees.n_outputs)
    row_bytes = 8 * n_sums(trees, with_pairs) + 4 * shape[1] * shape[2] * width
    stream = max(ROW_BLOCK, STREAM_BYTES // row_bytes // ROW_BLOCK * ROW_BLOCK)
    out = np.empty(shape, np.float32) if data.device is None else None
    parts_there = []
    for batch in source.batch_slices(least=PREDICTED_ROWS):
        for first in range(batch.start, batch.stop, stream):
            rows = slice(first, min(first + stream, batch.stop))
            part = explainer.explain(
                source.read(rows), source.missing, trees, parts, np.ascontiguousarray(margins[:, rows]), with_pairs
            )
            if out is None:
                parts_there.append(put_on(data.device, part))
            else:
                out[rows] = backend.memory.fetch(part)
            if progress is not None:
                progress(rows.stop, n_rows)
    if out is not None:
        return out
    with current_device(data.device):
        xp = cupy_module()
        return xp.concatenate(parts_there) if parts_there else xp.empty(shape, np.float32)


def mean_sizes(contributions: Array) -> np.ndarray:
    """float64 (n_features,): of each feature the mean size of its values over rows and outputs. contributions : float32
    (n_rows, n_outputs, n_features + 1)."""
    values = host_array(contributions)[..., :-1]
    return np.abs(values, dtype=np.float64).mean(axis=(0, 1)) if len(values) else np.zeros(values.shape[-1])
