"""The cuts of columns whose values can be asked for by rank: which ranks, and bins from the answers (kernels/ranks.py)."""

import numpy as np

from gpuboost.backend.contract import RankedColumns
from gpuboost.binned.cuts import SENTINEL
from gpuboost.kernels.quantiles import ZERO_KEY
from gpuboost.kernels.ranks import cut_columns_cpu, list_ranks

__all__ = ["cut_ranked", "RANK_BYTES"]

RANK_BYTES = 140  # of a column and bin: ranks, what is heard of three values for each, a heavy value


def cut_ranked(ranked: RankedColumns, n_bins: np.ndarray, n_threads: int) -> tuple[list[np.ndarray], np.ndarray]:
    """(thresholds of each column, float32; uint32 (n, 2): keys of its extreme values, of those of an empty one ZERO_KEY).

    n_bins : int64 (n,), most bins of each column.
    """
    n, most = len(n_bins), int(n_bins.max(initial=1))
    extremes, thresholds = np.full((n, 2), ZERO_KEY, np.uint32), np.empty((n, most), np.float32)
    n_cuts, bins_left = np.zeros(n, np.int64), n_bins.copy()
    heavy, n_heavy = np.zeros((n, most + 1, 2), np.int64), np.zeros(n, np.int64)  # as many as bins

    def cut(columns: np.ndarray, found: list[np.ndarray], is_resolved: bool) -> None:
        cut_columns_cpu(columns, *found, is_resolved, n_bins, bins_left, heavy, n_heavy, thresholds, n_cuts, n_threads)

    has_few, has_any = ranked.n_distinct <= n_bins, ranked.totals > 0
    if len(few := np.flatnonzero(has_few & has_any)):
        cut(few, ranked.at(few, ranked.ranks_of_values(few, int(ranked.n_distinct[few].max()))), True)
    if len(every := np.flatnonzero(has_any)):
        extremes[every] = ranked.at(every, np.stack([np.ones(len(every), np.int64), ranked.totals[every]], axis=1))[0]
    left = np.flatnonzero(~has_few)
    while len(left):
        ranks = np.empty((len(left), int((bins_left + n_heavy)[left].max())), np.int64)
        list_ranks(left, ranked.totals, bins_left, heavy, n_heavy, ranks)
        own = ranked.at(left, ranks)
        last = ranked.totals[left][:, None]
        behind = np.where(own[2] < last, own[2] + 1, 0)
        sides = ranked.at(left, np.concatenate([own[1], behind, np.ones_like(last), last], axis=1))
        cut(left, [_side_by_side(of_own, of_sides) for of_own, of_sides in zip(own, sides)], False)
        left = left[n_cuts[left] < 0]
    return [np.append(own[:m], SENTINEL) for own, m in zip(thresholds, n_cuts.tolist())], extremes


def _side_by_side(own: np.ndarray, sides: np.ndarray) -> np.ndarray:
    """First, then before, at and behind each rank, then last. own : (k, m). sides : (k, 2m + 2) before, behind, first, last."""
    m = own.shape[1]
    triples = np.stack([sides[:, :m], own, sides[:, m : 2 * m]], axis=2).reshape(len(own), 3 * m)
    return np.concatenate([sides[:, -2:-1], triples, sides[:, -1:]], axis=1)
