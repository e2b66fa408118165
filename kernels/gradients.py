"""First and second derivatives of the loss for every row, from one scalar formula per objective (Chen & Guestrin 2016, Eq. 2).

    (g, h) = gradient(margin, label, parameters);   grad = g·weight;   hess = max(h, 0)·weight

The objective writes the scalar function once; ``elementwise_gradients`` makes the loop around it. Floor: 4 bytes each of
margin, label (and weight) read, 8 bytes written per row.

The largest |grad| and hess are found in the same pass, as float bits: non-negative floats order like their bits, and NaN or
infinity show up as bits ≥ 0x7F800000.
"""

from functools import cache

import numpy as np
from numba import float32, int64, prange

from gpuboost.kernels.jit import claim, parallel_kernel
from gpuboost.kernels.scalar import exp_float, float_bits

CHUNK = 4096
NON_FINITE_BITS = 0x7F800000


@cache
def elementwise_gradients(gradient):
    """The kernel of an objective whose outputs do not depend on each other.

    gradient : scalar function (margin, label, parameters) -> (g, h), all float32; parameters is a tuple of float32
        (an array in memory would keep LLVM from vectorising the loop: it might overlap the outputs).
    Returned kernel (margin, label, weight, parameters, grad, hess, maxima, n_threads):
        margin, grad, hess : float32 (n_outputs, n_rows). label : float32 (n_outputs or 1, n_rows).
        weight : float32 (n_rows,) or (0,), which means 1.
        maxima : int64 (n_threads, n_outputs, 2), OUT. Largest bits of |grad| and hess seen by each thread; zeroed by the caller.
    """

    @parallel_kernel.part(formula=gradient)
    def chunks(thread, counter, margin, label, weight, parameters, grad, hess, maxima):
        n_outputs, n_rows = margin.shape
        per_output = (n_rows + CHUNK - 1) // CHUNK
        while True:
            item = claim(counter)
            if item >= per_output * n_outputs:
                return
            output = item // per_output
            begin = (item - output * per_output) * CHUNK
            label_row = min(output, label.shape[0] - 1)
            end = min(begin + CHUNK, n_rows)
            own_weight = weight[begin:end] if weight.size else weight
            largest = gradients_of_rows(
                margin[output, begin:end], label[label_row, begin:end], own_weight, parameters,
                grad[output, begin:end], hess[output, begin:end],
            )  # fmt: skip
            for k in range(2):
                maxima[thread, output, k] = max(maxima[thread, output, k], largest[k])

    @parallel_kernel.part(formula=gradient)
    def gradients_of_rows(margin, label, weight, parameters, grad, hess):
        # Three short loops, because LLVM vectorises none that touches more than a few arrays: logistic loss 0.6 ns per row, in
        # one loop 12 (AMD EPYC, AVX-512).
        for i in range(margin.size):
            g, h = gradient(margin[i], label[i], parameters)
            grad[i] = g
            hess[i] = max(h, float32(0.0))
        for i in range(weight.size):
            grad[i] = float32(grad[i] * weight[i])
            hess[i] = float32(hess[i] * weight[i])
        largest_grad, largest_hess = int64(0), int64(0)
        for i in range(margin.size):
            largest_grad = max(largest_grad, int64(float_bits(float32(abs(grad[i])))))
            largest_hess = max(largest_hess, int64(float_bits(float32(abs(hess[i])))))
        return largest_grad, largest_hess

    def gradients_cpu(margin, label, weight, parameters, grad, hess, maxima, n_threads):
        counter = np.zeros(1, np.int64)
        for thread in prange(n_threads):
            chunks(int64(thread), counter, margin, label, weight, parameters, grad, hess, maxima)

    return parallel_kernel(gradients_cpu, gradient)


@parallel_kernel
def softmax_gradients_cpu(margin, label, weight, parameters, grad, hess, maxima, n_threads):
    """Multi-class cross-entropy: p = softmax(margins of the row); g_k = p_k − [label = k]; h_k = 2·p_k·(1 − p_k).

    Arguments as elementwise_gradients; label : float32 (1, n_rows) holds class numbers. The factor 2 of the hessian is
    XGBoost's (it bounds the full Hessian's diagonal dominance), so that leaf sizes and min_child_weight agree with it.
    """
    counter = np.zeros(1, np.int64)
    for thread in prange(n_threads):
        _softmax_chunks(int64(thread), counter, margin, label, weight, grad, hess, maxima)


@parallel_kernel.part
def _softmax_chunks(thread, counter, margin, label, weight, grad, hess, maxima):
    n_classes, n_rows = margin.shape
    while True:
        begin = claim(counter) * CHUNK
        if begin >= n_rows:
            return
        for i in range(begin, min(begin + CHUNK, n_rows)):
            largest = margin[0, i]
            for k in range(1, n_classes):
                largest = max(largest, margin[k, i])
            total = float32(0.0)
            for k in range(n_classes):
                e = exp_float(float32(margin[k, i] - largest))
                grad[k, i] = e
                total = float32(total + e)
            w = weight[i] if weight.size else float32(1.0)
            for k in range(n_classes):
                p = float32(grad[k, i] / total)
                h = float32(float32(float32(2.0) * p) * float32(float32(1.0) - p))
                g = float32(p - float32(1.0)) if int64(label[0, i]) == k else p
                g = float32(g * w)
                h = float32(max(h, float32(1e-16)) * w)
                grad[k, i] = g
                hess[k, i] = h
                maxima[thread, k, 0] = max(maxima[thread, k, 0], int64(float_bits(float32(abs(g)))))
                maxima[thread, k, 1] = max(maxima[thread, k, 1], int64(float_bits(h)))
