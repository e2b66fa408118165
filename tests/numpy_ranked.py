"""Columns by rank (backend/contract.py, RankedColumns) in a few lines of NumPy."""

import numpy as np

from gpuboost.backend.contract import RankedColumns
from gpuboost.kernels.scalar import float_key

__all__ = ["NumpyRanked"]

LIMIT = 3.4028234663852886e38  # the largest float32 counts as infinite


class NumpyRanked(RankedColumns):
    """values : float (n_rows, columns). weights : int64 (n_rows,) or None."""

    def __init__(self, values, missing, weights, features):
        values = np.asarray(values, np.float32)
        weights = np.ones(len(values), np.int64) if weights is None else weights
        exists = weights > 0
        is_missing = np.isnan(values) | (values == np.float32(missing))
        self.columns = []
        for f in features:
            own = values[exists & ~is_missing[:, f], f] + np.float32(0)  # no -0
            distinct, inverse = np.unique(own, return_inverse=True)
            heights = np.zeros(len(distinct), np.int64)
            np.add.at(heights, inverse, weights[exists & ~is_missing[:, f]])
            self.columns.append((distinct, np.cumsum(heights) - heights, np.cumsum(heights), own))
        self.totals = np.array([ends[-1] if len(ends) else 0 for _, _, ends, _ in self.columns], np.int64)
        self.n_distinct = np.array([len(distinct) for distinct, *_ in self.columns], np.int64)
        self.n_infinite = np.array([(abs(own) >= LIMIT).sum() for *_, own in self.columns], np.int64)
        self.has_missing = np.array([is_missing[exists, f].any() for f in features])

    def ranks_of_values(self, columns, most):
        ranks = np.zeros((len(columns), most), np.int64)
        for k, c in enumerate(columns):
            ends = self.columns[c][2]
            ranks[k, most - len(ends) :] = ends
        return ranks

    def at(self, columns, ranks):
        found = np.zeros(ranks.shape, np.uint32), np.zeros(ranks.shape, np.int64), np.zeros(ranks.shape, np.int64)
        for k, i in zip(*np.nonzero(ranks)):
            distinct, begins, ends, _ = self.columns[columns[k]]
            value = np.searchsorted(ends, ranks[k, i])
            for array, own in zip(found, (float_key(distinct[value]), begins[value], ends[value])):
                array[k, i] = own
        return list(found)
