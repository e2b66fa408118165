"""Decide after which values of a column its bins end, from the weights of the values (rule and bound: data/sketch.py).

    rank target j·W/B lies in value i   ->   a bin ends after i          W, B: weight and bins of the light values

A value that alone holds 2W/B or more is heavy: a bin of its own, and the targets are spread over what remains. Integers, so
that any worker and device that has the weights finds the same bins.
"""

import numpy as np
from numba import int64, prange

from gpuboost.kernels.jit import claim, kernel, parallel_kernel


@kernel
def set_heavy_apart(weights, may_be_heavy, is_heavy, n_bins, bins_left):
    """Mark the values that are heavy now; returns how many bins remain for the targets then, or 0 where there is no new one.

    weights : int64 (n,), IN. Of values in ascending order, or of lumps of them, which are never heavy.
    may_be_heavy : bool (n,), IN. is_heavy : bool (n,), INOUT.
    n_bins : of the column. bins_left : over which the targets are spread so far.
    """
    total, found = int64(0), False
    for i in range(weights.size):
        if not is_heavy[i]:
            total += weights[i]
    for i in range(weights.size):
        if may_be_heavy[i] and not is_heavy[i] and weights[i] * bins_left >= 2 * total:
            is_heavy[i] = found = True
    if not found:
        return int64(0)
    bins_left = int64(n_bins + 1)  # the last gap between heavy values ends with the last target
    for i in range(weights.size):
        bins_left -= is_heavy[i] or i == weights.size - 1 or is_heavy[i + 1]
    return bins_left


@kernel
def end_bins(weights, is_heavy, bins_left, ends):
    """ends[i] : bool, OUT. Whether a bin ends after value i; the end after the last one is implied."""
    total = int64(0)
    for i in range(weights.size):
        if not is_heavy[i]:
            total += weights[i]
    reached, before = int64(0), int64(0)
    for i in range(weights.size):
        hits = int64(0)  # targets in this value
        if not is_heavy[i]:
            reached += weights[i]
            hits = reached * bins_left // total - before
            before += hits
        ends[i] = hits > 0 or is_heavy[i] or (i + 1 < weights.size and is_heavy[i + 1])
        if hits > 1 and i > 0:  # it stands alone, as it spends two bins
            ends[i - 1] = True
    if weights.size:
        ends[weights.size - 1] = False


@parallel_kernel
def end_bins_cpu(begin, weights, n_bins, ends, n_threads):
    """end_bins of every column, all values at hand: one bin each where there are few enough.

    begin : int64 (n_columns + 1,), IN. Column c has the values begin[c] to begin[c + 1] − 1. weights : int64 (n,), IN, positive.
    n_bins : int64 (n_columns,), IN. ends : bool (n,), OUT.
    """
    counter = np.zeros(1, np.int64)
    for _ in prange(n_threads):
        _end_columns(counter, begin, weights, n_bins, ends)


@parallel_kernel.part
def _end_columns(counter, begin, weights, n_bins, ends):
    while True:
        c = claim(counter)
        if c >= n_bins.size:
            return
        own, own_ends = weights[begin[c] : begin[c + 1]], ends[begin[c] : begin[c + 1]]
        if own.size <= n_bins[c]:
            for i in range(own.size):
                own_ends[i] = i < own.size - 1
            continue
        is_heavy, all_values = np.zeros(own.size, np.bool_), np.ones(own.size, np.bool_)
        bins_left = int64(n_bins[c])
        while True:
            fewer = set_heavy_apart(own, all_values, is_heavy, n_bins[c], bins_left)
            if fewer == 0:
                break
            bins_left = fewer
        end_bins(own, is_heavy, bins_left, own_ends)
