"""Fewer outputs to search splits by: k combinations of the gradients of all K (SketchBoost, Iosipoi & Vakhrushev 2022, §3).

    g'_j = Σ_i a_ji·g_i          h' = Σ_i h_i / K, the same for every j

    top_outputs           the k outputs of largest Σ g² over the rows, a = 1
    random_sampling       k draws of an output i by its share p_i of all Σ g², a = 1/√(k·p_i)
    random_projection     a_ji = ±1/√k for all i, by a hash (Achlioptas 2003; the paper draws from N(0, 1/k))

With either random one, Σ_j G'_j²/(H' + λ) is Σ_i G_i²/(H' + λ) on average: what all outputs score where they share the hessian
H'. (The paper counts rows instead.) Leaves, and what is pruned, go by all outputs. Sums over rows are of integers, those over
outputs run in their order, so that no rows' order and no number of workers matters.

Floor: 4 bytes read per row and output for Σ g², 4 for h', and 4 for each a_ji that is not 0.
"""

import math

import numpy as np
from numba import float32, float64, int64

from gpuboost.kernels.jit import claim, launch, parallel_kernel

CHUNK = 4096


@parallel_kernel
def sum_squares_cpu(grad, scale, sums, n_threads):
    """Σ ⌊g²·scale + ½⌋ of every output.

    grad : float32 (n_outputs, n_rows), IN. scale : float64, a power of two. sums : int64 (n_threads, n_outputs), INOUT.
    """
    counter = np.zeros(1, np.int64)
    launch(n_threads, _sum_chunks, (counter, grad, scale, sums))


@parallel_kernel.part
def _sum_chunks(thread, counter, grad, scale, sums):
    sums = sums[thread]
    n_outputs, n_rows = grad.shape
    while True:
        begin = claim(counter) * CHUNK
        if begin >= n_rows:
            return
        for output in range(n_outputs):
            sums[output] += _sum_of(grad[output, begin : min(begin + CHUNK, n_rows)], scale)


@parallel_kernel.part
def _sum_of(grad, scale):
    total = int64(0)
    for i in range(grad.size):
        total += int64(math.floor(float64(grad[i]) * float64(grad[i]) * scale + 0.5))
    return total


@parallel_kernel
def combine_outputs_cpu(grad, hess, first, outputs, factors, few_grad, few_hess, n_threads):
    """The combinations: j is of ``outputs`` from first[j] to first[j + 1], each times its factor.

    grad, hess : float32 (n_outputs, n_rows), IN. first : int64 (k + 1,), IN. outputs : int32 (n,), IN. factors : float64 (n,),
    IN. few_grad, few_hess : float32 (k, n_rows), OUT.
    """
    counter = np.zeros(1, np.int64)
    launch(n_threads, _combine_chunks, (counter, grad, hess, first, outputs, factors, few_grad, few_hess))


@parallel_kernel.part
def _combine_chunks(counter, grad, hess, first, outputs, factors, few_grad, few_hess):
    n_outputs, n_rows = grad.shape
    total = np.empty(CHUNK, np.float64)
    while True:
        begin = claim(counter) * CHUNK
        if begin >= n_rows:
            return
        end = min(begin + CHUNK, n_rows)
        total[:] = 0.0
        for output in range(n_outputs):
            _add_times(hess[output, begin:end], 1.0, total)
        for j in range(few_hess.shape[0]):
            _put(total, float64(n_outputs), few_hess[j, begin:end])
        for j in range(few_grad.shape[0]):
            total[:] = 0.0
            for at in range(first[j], first[j + 1]):
                _add_times(grad[outputs[at], begin:end], factors[at], total)
            _put(total, 1.0, few_grad[j, begin:end])


@parallel_kernel.part
def _add_times(values, factor, total):
    for i in range(values.size):
        total[i] += float64(values[i]) * factor


@parallel_kernel.part
def _put(total, divisor, out):
    for i in range(out.size):
        out[i] = float32(total[i] / divisor)
