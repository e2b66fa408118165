"""Per-row maps, and sums of per-row terms that come out the same in any order: predictions, metrics, base_score.

    Σ term(row)  =  2^−k · Σ ⌊term(row)·2^k + ½⌋       k from the largest |term|, so that n·max·2^k stays below 2^62

Two passes over the rows: the largest term (a maximum is order-free), then the integer sum. Floor: the bytes of a row, twice.
"""

import math
from functools import cache

import numpy as np
from numba import float64, int64, uint32

from gpuboost.kernels.cuda_common import block_max, block_sum, cuda, cuda_kernel, n_threads, thread_number
from gpuboost.kernels.jit import claim, launch, parallel_kernel, scalar
from gpuboost.kernels.scalar import double_bits

CHUNK = 8192
NON_FINITE_BITS = 0x7FF0000000000000


def elementwise_terms(term):
    """The row term of a formula on single values: Σ over the outputs of term(prediction, label, parameters). A label that is
    missing, NaN, adds nothing."""

    def row_term(prediction, label, i, parameters):
        total = float64(0.0)
        for output in range(prediction.shape[0]):
            own = label[min(output, label.shape[0] - 1), i]
            if own == own:
                total += term(prediction[output, i], own, parameters)
        return total

    # The kernel around it is cached under the formula's name.
    row_term.__module__, row_term.__qualname__ = term.py_func.__module__, f"{term.py_func.__qualname__}.row"
    return scalar(row_term)


def elementwise_map(formula):
    """The row map of a formula on single values, float32 -> float32: out = formula(margin) for each output."""

    def row_map(margin, i, out):
        for output in range(margin.shape[0]):
            out[output, i] = formula(margin[output, i])

    row_map.__module__, row_map.__qualname__ = formula.py_func.__module__, f"{formula.py_func.__qualname__}.row_map"
    return scalar(row_map)


@scalar
def unit_term(prediction, label, i, parameters):
    """1 for every row: its sum is the total weight."""
    return float64(1.0)


@scalar
def labelled_term(prediction, label, i, parameters):
    """How many labels a row has."""
    total = float64(0.0)
    for target in range(label.shape[0]):
        total += float64(1.0) if label[target, i] == label[target, i] else float64(0.0)
    return total


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
    def chunks(thread, counter, prediction, label, weight, parameters, scale, out):
        n_rows = prediction.shape[1]
        result = int64(0)
        while True:
            begin = claim(counter) * CHUNK
            if begin >= n_rows:
                out[thread] = result
                return
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
        launch(n_threads, chunks, (counter, prediction, label, weight, parameters, scale, out))

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
        launch(n_threads, chunks, (counter, margin, out))

    return parallel_kernel(map_rows_cpu, row_map)


# ---------------------------------------------------------------------------------------------------------------------
# CUDA. One thread per row in turn; one atomic operation per block.


@cache
def reduce_rows_kernel(row_term):
    """reduce_rows as a CUDA kernel. parameters : float32 (n,), IN. out : int64 (1,), INOUT, zeroed by the caller."""

    @cuda_kernel(
        "prediction: float32[:, :], label: float32[:, :], weight: float32[:], parameters: float32[:], scale: float64, "
        "out: int64[:]",
        formula=row_term, registers=96, uses_double=True,
    )  # fmt: skip
    def reduce_kernel(prediction, label, weight, parameters, scale, out):
        partial = cuda.shared.array(32, int64)
        n_rows = uint32(prediction.shape[1])
        largest, total = int64(0), int64(0)
        row = thread_number()
        while row < n_rows:
            t = row_term(prediction, label, row, parameters)
            if weight.size > 0:
                t = t * float64(weight[row])
            if scale == float64(0.0):
                largest = max(largest, int64(double_bits(abs(t))))
            else:
                total += int64(math.floor(t * scale + float64(0.5)))
            row = uint32(row + n_threads())
        largest, total = block_max(largest, partial), block_sum(total, partial)
        if cuda.threadIdx.x == 0:
            if scale == float64(0.0):
                cuda.atomic.max(out, 0, largest)
            else:
                cuda.atomic.add(out, 0, total)

    return reduce_kernel


@cache
def map_rows_kernel(row_map):
    """map_rows as a CUDA kernel: (margin, out)."""

    @cuda_kernel("margin: float32[:, :], out: float32[:, :]", registers=48, formula=row_map)
    def map_kernel(margin, out):
        row = thread_number()
        while row < uint32(margin.shape[1]):
            row_map(margin, row, out)
            row = uint32(row + n_threads())

    return map_kernel
