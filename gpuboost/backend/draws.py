"""Which rows and features a round draws: chosen on the host, the same on every worker and device."""

import numpy as np

from gpuboost.backend.fixed_point import round_key, sampling_keys
from gpuboost.backend.plans import ColumnDraw, RowDraw
from gpuboost.binned.cuts import Cuts
from gpuboost.kernels.column_sampling import TREE_DRAW, count_drawn, draw_columns_cpu
from gpuboost.params import Params

__all__ = ["all_columns", "draw_columns", "draw_rows", "most_bins"]


def all_columns(cuts: Cuts) -> ColumnDraw:
    """Every feature of a table, where its cuts have it."""
    return ColumnDraw(np.arange(cuts.n_features, dtype=np.int32), cuts.offsets)


def draw_columns(params: Params, cuts: Cuts, round_number: int) -> ColumnDraw:
    """The features of the trees of a round, colsample_bytree of all."""
    n_drawn = count_drawn(params.colsample_bytree, cuts.n_features)
    draw = ColumnDraw(np.empty(n_drawn, np.int32), np.empty(n_drawn + 1, np.int32))
    key = round_key(params.seed, round_number, TREE_DRAW)
    draw_columns_cpu(np.array(params.feature_weights, np.float32), cuts.n_bins, key, draw.features, draw.offsets)
    return draw


def draw_rows(params: Params, global_rows: int, round_number: int) -> RowDraw:
    """subsample of all rows, for the trees of a round."""
    n_drawn = count_drawn(params.subsample, global_rows)
    return RowDraw(n_drawn, params.sampling == "gradient_based", tuple(sampling_keys(params.seed, round_number).tolist()))


def most_bins(params: Params, cuts: Cuts) -> int:
    """Bins of a histogram, with room for whatever features a round draws."""
    n_drawn = count_drawn(params.colsample_bytree, cuts.n_features)
    return int(np.sort(cuts.n_bins)[-n_drawn:].sum())
