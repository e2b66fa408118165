"""First and second derivatives of the loss for every row, from one scalar formula per objective (Chen & Guestrin 2016, Eq. 2).

    (g, h) = gradient(margin, label, parameters);   grad = cut(g)·weight;   hess = cut(max(h, 0))·weight

cut keeps 20 of a float's 24 significant bits: the product with a whole weight of up to 16 is then exact, and a row that weighs 3
counts as much as the row given three times, to the last bit where the table is small (kernels/quantise.py).

The objective writes the scalar function once; ``elementwise_gradients`` makes the loop around it. Floor: 4 bytes each of
margin, label (and weight) read, 8 bytes written per row.

The largest |grad| and hess are found in the same pass, as float bits: non-negative floats order like their bits, and NaN or
infinity show up as bits ≥ 0x7F800000.
"""

from functools import cache

import numpy as np
from numba import float32, int64, prange, uint32

from gpuboost.kernels.device import block_max, cuda, cuda_kernel, device_function, n_threads, thread_number
from gpuboost.kernels.jit import claim, parallel_kernel, scalar
from gpuboost.kernels.scalar import bits_float, exp_float, float_bits, larger

CHUNK = 4096
CLASS_CHUNK = 1024  # rows of a softmax: a few planes of 4 KB for each class
NON_FINITE_BITS = 0x7F800000
KEPT_BITS = 0xFFFFFFF0  # of a gradient: 20 significant ones


@scalar
def magnitude_bits(x):
    """Bits of |x| as int64: they order like |x|, and NaN and infinity come last."""
    return int64(float_bits(float32(abs(x))))


@scalar
def cut(x):
    """x without the last 4 of its 24 significant bits; NaN and infinity stay what is not finite."""
    return bits_float(uint32(float_bits(float32(x)) & uint32(KEPT_BITS)))


@scalar
def not_negative(h):
    """max(h, 0), but NaN stays, to be found."""
    return float32(0.0) if h <= float32(0.0) else h


# Short loops over rows, each over a few arrays of one dimension, because LLVM vectorises no others: logistic loss 0.6 ns per row,
# in one loop 12; softmax 9 ns per row and class in one loop over the classes of a row (AMD EPYC, AVX-512).


@parallel_kernel.part
def _weigh(grad, hess, weight):
    """Multiply by the weights, if any; returns the largest bits of |grad| and hess."""
    for i in range(weight.size):
        grad[i] = float32(grad[i] * weight[i])
        hess[i] = float32(hess[i] * weight[i])
    largest_grad, largest_hess = int64(0), int64(0)
    for i in range(grad.size):
        largest_grad = max(largest_grad, magnitude_bits(grad[i]))
        largest_hess = max(largest_hess, magnitude_bits(hess[i]))
    return largest_grad, largest_hess


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
        for i in range(margin.size):
            g, h = gradient(margin[i], label[i], parameters)
            grad[i] = cut(g)
            hess[i] = cut(not_negative(h))
        return _weigh(grad, hess, weight)

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
    scratch = np.empty((2, CLASS_CHUNK), np.float32)
    while True:
        begin = claim(counter) * CLASS_CHUNK
        if begin >= n_rows:
            return
        end = min(begin + CLASS_CHUNK, n_rows)
        largest, total = scratch[0, : end - begin], scratch[1, : end - begin]
        own_weight = weight[begin:end] if weight.size else weight
        largest[:] = margin[0, begin:end]
        for k in range(1, n_classes):
            _raise(largest, margin[k, begin:end])
        total[:] = float32(0.0)
        for k in range(n_classes):
            _add_exponentials(margin[k, begin:end], largest, grad[k, begin:end], total)
        for k in range(n_classes):
            _class_gradients(total, label[0, begin:end], float32(k), grad[k, begin:end], hess[k, begin:end])
            bits = _weigh(grad[k, begin:end], hess[k, begin:end], own_weight)
            for j in range(2):
                maxima[thread, k, j] = max(maxima[thread, k, j], bits[j])


@parallel_kernel.part
def _raise(largest, margin):
    for i in range(margin.size):
        largest[i] = larger(largest[i], margin[i])


@parallel_kernel.part
def _add_exponentials(margin, largest, exponential, total):
    for i in range(margin.size):
        exponential[i] = exp_float(float32(margin[i] - largest[i]))
    for i in range(margin.size):
        total[i] = float32(total[i] + exponential[i])


@parallel_kernel.part
def _class_gradients(total, label, k, grad, hess):
    """grad : e^margin, IN; the gradient, OUT."""
    for i in range(grad.size):
        p = float32(grad[i] / total[i])
        h = float32(float32(float32(2.0) * p) * float32(float32(1.0) - p))
        hess[i] = cut(larger(h, float32(1e-16)))
        grad[i] = p
    for i in range(grad.size):
        grad[i] = cut(float32(grad[i] - float32(1.0)) if label[i] == k else grad[i])


# ---------------------------------------------------------------------------------------------------------------------
# CUDA. One thread per row in turn, all outputs; one atomic maximum per block and output. 16 bytes per row and output (20 with
# weights) and some 30 float operations for a logistic loss: 11M rows are 0.18 GB, 0.04 ms at 4.8 TB/s.

_SIGNATURE = (
    "margin: float32[:, :], label: float32[:, :], weight: float32[:], parameters: float32[:], grad: float32[:, :], "
    "hess: float32[:, :], maxima: int64[:, :]"
)


@cache
def elementwise_gradients_kernel(gradient):
    """The CUDA kernel of an objective whose outputs do not depend on each other; arguments as the CPU kernel's.

    parameters : float32 (n,), IN. maxima : int64 (n_outputs, 2), INOUT, zeroed by the caller.
    """

    @cuda_kernel(_SIGNATURE, registers=40, formula=gradient)
    def gradients_kernel(margin, label, weight, parameters, grad, hess, maxima):
        partial = cuda.shared.array(32, int64)
        n_rows = uint32(margin.shape[1])
        for output in range(margin.shape[0]):
            label_row = min(output, label.shape[0] - 1)
            largest_grad, largest_hess = int64(0), int64(0)
            row = thread_number()
            while row < n_rows:
                g, h = gradient(margin[output, row], label[label_row, row], parameters)
                g, h = cut(g), cut(not_negative(h))
                if weight.size > 0:
                    g = float32(g * weight[row])
                    h = float32(h * weight[row])
                grad[output, row] = g
                hess[output, row] = h
                largest_grad = max(largest_grad, magnitude_bits(g))
                largest_hess = max(largest_hess, magnitude_bits(h))
                row = uint32(row + n_threads())
            keep_maxima(maxima, output, largest_grad, largest_hess, partial)

    return gradients_kernel


@cuda_kernel(_SIGNATURE, registers=64)
def softmax_gradients_kernel(margin, label, weight, parameters, grad, hess, maxima):
    """softmax_gradients_cpu on the GPU. A thread keeps e^margin in grad until the row's sum is known."""
    partial = cuda.shared.array(32, int64)
    n_classes, n_rows = margin.shape[0], uint32(margin.shape[1])
    row = thread_number()
    while row < n_rows:
        largest = margin[0, row]
        for k in range(1, n_classes):
            largest = larger(largest, margin[k, row])
        total = float32(0.0)
        for k in range(n_classes):
            e = exp_float(float32(margin[k, row] - largest))
            grad[k, row] = e
            total = float32(total + e)
        w = weight[row] if weight.size > 0 else float32(1.0)
        for k in range(n_classes):
            p = float32(grad[k, row] / total)
            h = float32(float32(float32(2.0) * p) * float32(float32(1.0) - p))
            g = float32(p - float32(1.0)) if int64(label[0, row]) == k else p
            grad[k, row] = float32(cut(g) * w)
            hess[k, row] = float32(cut(larger(h, float32(1e-16))) * w)
        row = uint32(row + n_threads())
    for k in range(n_classes):  # each thread over its own rows again
        largest_grad, largest_hess = int64(0), int64(0)
        row = thread_number()
        while row < n_rows:
            largest_grad = max(largest_grad, magnitude_bits(grad[k, row]))
            largest_hess = max(largest_hess, magnitude_bits(hess[k, row]))
            row = uint32(row + n_threads())
        keep_maxima(maxima, k, largest_grad, largest_hess, partial)


@device_function
def keep_maxima(maxima, output, largest_grad, largest_hess, partial):
    """Raise the maxima of an output to the largest of the block. All threads call it."""
    largest_grad, largest_hess = block_max(largest_grad, partial), block_max(largest_hess, partial)
    if cuda.threadIdx.x == 0:
        cuda.atomic.max(maxima, (output, 0), largest_grad)
        cuda.atomic.max(maxima, (output, 1), largest_hess)
