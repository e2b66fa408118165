"""Per-row maps, and sums of per-row terms that come out the same in any order: predictions, metrics, base_score.

    Σ term(row)  =  2^−k · Σ ⌊term(row)·2^k + ½⌋       k from the largest |term|, so that n·max·2^k stays below 2^62

Two passes over the rows: the largest term (a maximum is order-free), then the integer sum. Floor: the bytes of a row, twice.
Log loss of 360,000 rows, one thread of an AMD EPYC (2026-11-23), ns a row: row by row 31, by outputs of a chunk, vectorised, 5.
"""

import math
from functools import cache

import numpy as np
from numba import float64, int64, uint32

from gpuboost.kernels.allocation import empty, zeros
from gpuboost.kernels.cuda_common import block_max, block_sum, cuda, cuda_kernel, n_threads, thread_number
from gpuboost.kernels.jit import claim, launch, parallel_kernel, scalar
from gpuboost.kernels.scalar import double_magnitude

CHUNK = 2048  # rows, whose terms, 16 KB, stay in the first-level cache
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

    return _of_rows(row_term, term, "row")


def elementwise_map(formula):
    """The row map of a formula on single values, float32 -> float32: out = formula(margin) for each output."""

    def row_map(margin, i, out):
        for output in range(margin.shape[0]):
            out[output, i] = formula(margin[output, i])

    return _of_rows(row_map, formula, "row_map")


def _of_rows(function, formula, name):
    """The row function as a scalar, under whose name the kernel around it is cached. of_values : the formula it is made of, which
    the CPU applies to a chunk of each output in turn: a loop that LLVM vectorises."""
    function.__module__, function.__qualname__ = formula.py_func.__module__, f"{formula.py_func.__qualname__}.{name}"
    row_function = scalar(function)
    row_function.of_values = formula
    return row_function


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

    fill_terms = _fill_terms(row_term)

    @parallel_kernel.part(formula=row_term)
    def chunks(thread, counter, prediction, label, weight, parameters, scale, out):
        n_rows = prediction.shape[1]
        room, result = empty(min(CHUNK, n_rows), np.float64), int64(0)
        while True:
            begin = claim(counter) * CHUNK
            if begin >= n_rows:
                out[thread] = result
                return
            terms = room[: n_rows - begin]
            fill_terms(prediction, label, begin, parameters, terms)
            if weight.size:
                for i in range(terms.size):
                    terms[i] *= float64(weight[begin + i])
            if scale == 0.0:
                for i in range(terms.size):
                    result = max(result, double_magnitude(terms[i]))
            else:
                for i in range(terms.size):
                    result += int64(math.floor(terms[i] * scale + 0.5))

    def reduce_rows_cpu(prediction, label, weight, parameters, scale, out, n_threads):
        counter = zeros(1, np.int64)
        launch(n_threads, chunks, (counter, prediction, label, weight, parameters, scale, out))

    return parallel_kernel(reduce_rows_cpu, row_term)


def _fill_terms(row_term):
    """The part (prediction, label, begin, parameters, terms) that computes the terms of n rows from begin on, float64 (n,)."""
    term = getattr(row_term, "of_values", None)
    if term is None:

        @parallel_kernel.part(formula=row_term)
        def fill_terms(prediction, label, begin, parameters, terms):
            for i in range(terms.size):
                terms[i] = row_term(prediction, label, begin + i, parameters)

    else:

        @parallel_kernel.part(formula=row_term)
        def fill_terms(prediction, label, begin, parameters, terms):
            terms[:] = 0.0
            for output in range(prediction.shape[0]):
                values, labels = prediction[output, begin:], label[min(output, label.shape[0] - 1), begin:]
                for i in range(terms.size):
                    if labels[i] == labels[i]:
                        terms[i] += term(values[i], labels[i], parameters)

    return fill_terms


@cache
def map_rows(row_map):
    """The kernel that turns margins into predictions: row_map(margin, i, out) writes out[:, i]; float32 (n_outputs, n_rows)."""

    formula = getattr(row_map, "of_values", None)

    @parallel_kernel.part(formula=row_map)
    def chunks(counter, margin, out):
        n_rows = margin.shape[1]
        while True:
            begin = claim(counter) * CHUNK
            if begin >= n_rows:
                return
            end = min(begin + CHUNK, n_rows)
            if formula is None:
                for i in range(begin, end):
                    row_map(margin, i, out)
            else:
                for output in range(margin.shape[0]):
                    for i in range(begin, end):
                        out[output, i] = formula(margin[output, i])

    def map_rows_cpu(margin, out, n_threads):
        counter = zeros(1, np.int64)
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
                largest = max(largest, double_magnitude(t))
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
