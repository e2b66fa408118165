"""Per-row maps, and sums of per-row terms that come out the same in any order: predictions, metrics, base_score.

    Σ term(row)  =  2^−k · Σ ⌊term(row)·2^k + ½⌋       k from the largest |term|, so that n·max·2^k stays below 2^62

Two passes over the rows: the largest term (a maximum is order-free), then the integer sum. Floor: the bytes of a row, twice.
"""

import math
from functools import cache

import numpy as np
from numba import float64, int64, prange

from gpuboost.kernels.jit import claim, parallel_kernel, scalar
from gpuboost.kernels.scalar import double_bits

CHUNK = 8192
NON_FINITE_BITS = 0x7FF0000000000000


def elementwise_terms(term):
    """The row term of a formula on single values: Σ over the outputs of term(prediction, label, parameters)."""

    def row_term(prediction, label, i, parameters):
        total = float64(0.0)
        for output in range(prediction.shape[0]):
            total += term(prediction[output, i], label[min(output, label.shape[0] - 1), i], parameters)
        return total

    # The kernel around it is cached under the formula's name.
    row_term.__module__, row_term.__qualname__ = term.py_func.__module__, f"{term.py_func.__qualname__}.row"
    return scalar(row_term)


@scalar
def unit_term(prediction, label, i, parameters):
    """1 for every row: its sum is the total weight."""
    return float64(1.0)


@cache
def reduce_rows(row_term):
    """The kernel that sums a term over the rows of a page.

    row_term : scalar function (prediction, label, i, parameters) -> float64, of row i; it is multiplied by the row's weight.

    Returned kernel (prediction, label, weight, parameters, scale, out, n_threads):
        prediction : float32 (n_outputs, n_rows), IN. label : float32 (n_outputs or 1, n_rows), IN.
        weight : float32 (n_rows,) or (0,), which means 1, IN. parameters : tuple of float32.
        scale : float64 power of two; out[thread] = Σ ⌊term·weight·scale + ½⌋. With 0: the largest bits of |term·weight|.
        out : int64 (n_threads,), OUT.
    """

    @parallel_kernel.part(formula=row_term)
    def chunks(counter, prediction, label, weight, parameters, scale):
        n_rows = prediction.shape[1]
        result = int64(0)
        while True:
            begin = claim(counter) * CHUNK
            if begin >= n_rows:
                return result
            for i in range(begin, min(begin + CHUNK, n_rows)):
                t = row_term(prediction, label, i, parameters)
                if weight.size:
                    t = t * float64(weight[i])
                if scale == 0.0:
                    result = max(result, int64(double_bits(abs(t))))
                else:
                    result += int64(math.floor(t * scale + 0.5))

    def reduce_rows_cpu(prediction, label, weight, parameters, scale, out, n_threads):
        counter = np.zeros(1, np.int64)
        for thread in prange(n_threads):
            out[thread] = chunks(counter, prediction, label, weight, parameters, scale)

    return parallel_kernel(reduce_rows_cpu, row_term)


@cache
def map_rows(row_map):
    """The kernel that turns margins into predictions: row_map(margin, i, out) writes out[:, i]; float32 (n_outputs, n_rows)."""

    @parallel_kernel.part(formula=row_map)
    def chunks(counter, margin, out):
        n_rows = margin.shape[1]
        while True:
            begin = claim(counter) * CHUNK
            if begin >= n_rows:
                return
            for i in range(begin, min(begin + CHUNK, n_rows)):
                row_map(margin, i, out)

    def map_rows_cpu(margin, out, n_threads):
        counter = np.zeros(1, np.int64)
        for _ in prange(n_threads):
            chunks(counter, margin, out)

    return parallel_kernel(map_rows_cpu, row_map)
