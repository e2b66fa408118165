"""Decide after which values of a column its bins end, from the weights of the values (rule and bound: data/sketch.py).

    rank target j·W/B lies in value i   ->   a bin ends after i          W, B: weight and bins of the light values

A value that alone holds 2W/B or more is heavy: a bin of its own, and the targets are spread over what remains. Integers, so
that any worker and device that has the weights finds the same bins.
"""

import numpy as np
from numba import float32, float64, int64, uint64

from gpuboost.kernels.allocation import empty, zeros
from gpuboost.kernels.jit import claim, kernel, launch, parallel_kernel, scalar
from gpuboost.kernels.scalar import key_float


@kernel
def set_heavy_apart(weights, may_be_heavy, is_heavy, n_bins, bins_left):
    """Mark the values that are heavy now; returns how many bins remain for the targets then, or 0 where there is no new one.

    weights : int64 or int32 (n,), IN. Of values in ascending order, or of lumps of them, which are never heavy.
    may_be_heavy : bool (n,), IN. is_heavy : bool (n,), INOUT.
    n_bins : of the column. bins_left : over which the targets are spread so far.
    """
    n, total, found = uint64(weights.size), int64(0), False
    for i in range(n):
        total += int64(0) if is_heavy[i] else int64(weights[i])
    least = (2 * total + bins_left - 1) // bins_left  # the smallest weight w with w·B ≥ 2W
    for i in range(n):
        if weights[i] >= least and may_be_heavy[i] and not is_heavy[i]:
            is_heavy[i] = found = True
    if not found:
        return int64(0)
    bins_left = int64(n_bins + 1)  # the last gap between heavy values ends with the last target
    for i in range(weights.size):
        bins_left -= is_heavy[i] or i == weights.size - 1 or is_heavy[i + 1]
    return bins_left


@kernel
def end_bins(weights, is_heavy, bins_left, ends):
    """ends[i] : bool, OUT. Whether a bin ends after value i; the end after the last one is implied. Others as set_heavy_apart.

    Only a value that holds a target divides: there are at most B.
    """
    n, total = uint64(weights.size), int64(0)
    for i in range(n):
        total += int64(0) if is_heavy[i] else int64(weights[i])
    reached, before = int64(0), int64(0)
    target = (total + bins_left - 1) // bins_left  # the smallest weight r with r·B ≥ (before + 1)·W
    for i in range(n):
        hits = int64(0)  # targets in this value
        if not is_heavy[i]:
            reached += int64(weights[i])
            if reached >= target:
                hits = reached * bins_left // total - before
                before += hits
                target = ((before + 1) * total + bins_left - 1) // bins_left
        ends[i] = hits > 0 or is_heavy[i]
        if i > uint64(0) and (hits > 1 or is_heavy[i]):  # it stands alone: it is heavy, or spends two bins
            ends[i - uint64(1)] = True
    if n > uint64(0):
        ends[n - uint64(1)] = False


@parallel_kernel
def end_bins_cpu(begin, weights, n_bins, ends, n_threads):
    """choose_ends of every column.

    begin : int64 (n_columns + 1,), IN. Column c has the values begin[c] to begin[c + 1] − 1. weights : int64 (n,), IN, positive.
    n_bins : int64 (n_columns,), IN. ends : bool (n,), OUT.
    """
    counter, is_heavy = zeros(1, np.int64), empty(weights.size, np.bool_)
    launch(n_threads, _end_columns, (counter, begin, weights, n_bins, is_heavy, ends))


@parallel_kernel.part
def _end_columns(counter, begin, weights, n_bins, is_heavy, ends):
    while True:
        c = claim(counter)
        if c >= n_bins.size:
            return
        choose_ends(
            weights[begin[c] : begin[c + 1]], n_bins[c], is_heavy[begin[c] : begin[c + 1]], ends[begin[c] : begin[c + 1]]
        )


@parallel_kernel.part
def choose_ends(weights, n_bins, is_heavy, ends):
    """end_bins of one column, all values at hand: one bin each where there are few enough. is_heavy : bool (n,), SCRATCH."""
    if weights.size <= n_bins:
        for i in range(weights.size):
            ends[i] = i < weights.size - 1
        return
    for i in range(uint64(weights.size)):
        is_heavy[i], ends[i] = False, True  # any value may be heavy
    bins_left = int64(n_bins)
    while True:
        fewer = set_heavy_apart(weights, ends, is_heavy, int64(n_bins), bins_left)
        if fewer == 0:
            break
        bins_left = fewer
    end_bins(weights, is_heavy, bins_left, ends)


# ---------------------------------------------------------------------------------------------------------------------
# Thresholds


@scalar
def middle_value(below, above):
    """The float32 midway between two values given by their keys; the upper value where that rounds down."""
    low, high = key_float(below), key_float(above)
    middle = float32((float64(low) + float64(high)) * float64(0.5))
    return high if middle <= low else middle


@kernel
def halve_gaps(below, above, thresholds):
    """thresholds[i] : float32, OUT. What lies midway between the values of keys below[i] and above[i], uint32, IN."""
    for i in range(thresholds.size):
        thresholds[i] = middle_value(below[i], above[i])
