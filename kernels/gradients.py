"""First and second derivatives of the loss for every row, from one scalar formula per objective (Chen & Guestrin 2016, Eq. 2).

    (g, h) = gradient(margin, label, weight, output, parameters);   grad = cut(g)·weight;   hess = cut(max(h, 0))·weight

Both are 0 where the label is missing, NaN, in formulas of one label.
cut keeps 20 of a float's 24 significant bits: the product with a whole weight of up to 16 is then exact, and a row that weighs 3
counts as much as the row given three times, to the last bit where the table is small (kernels/quantise.py).

The objective writes the scalar function once; ``elementwise_gradients`` makes the loop around it, ``rowwise_gradients`` where the
outputs of a row depend on each other. Floor: 4 bytes each of margin, label (and weight) read, 8 bytes written per row.

The largest |grad| and hess are found in the same pass, as float bits: non-negative floats order like their bits, and NaN or
infinity show up as bits ≥ 0x7F800000.
"""

from functools import cache

import numpy as np
from numba import float32, int32, int64, uint32

from gpuboost.kernels.addresses import load_at, store_at
from gpuboost.kernels.allocation import empty
from gpuboost.kernels.cuda_common import block_max, cuda, cuda_kernel, device_function, n_threads, thread_number
from gpuboost.kernels.jit import launch, parallel_kernel, scalar
from gpuboost.kernels.scalar import bits_float, exp_float, float_bits, larger
from gpuboost.kernels.shares import claim_rows, new_counters

CHUNK = 4096
CLASS_CHUNK = 1024  # rows of a softmax: a few planes of 4 KB for each class
NON_FINITE_BITS = 0x7F800000
KEPT_BITS = 0xFFFFFFF0  # of a gradient: 20 significant ones


@scalar
def magnitude_bits(x):
    """Bits of |x| as int64: they order like |x|, and NaN and infinity come last."""
    return int64(float_bits(float32(x)) & uint32(0x7FFFFFFF))


@scalar
def cut(x):
    """x without the last 4 of its 24 significant bits; NaN and infinity stay what is not finite."""
    return bits_float(uint32(float_bits(float32(x)) & uint32(KEPT_BITS)))


@scalar
def not_negative(h):
    """max(h, 0), but NaN stays, to be found."""
    return float32(0.0) if h <= float32(0.0) else h


@scalar
def put_gradient(grad, hess, output, i, g, h, weight):
    """How a rowwise formula hands over the derivatives of one output: cut and weighed, as all gradients are."""
    grad[output, i] = float32(cut(g) * weight)
    hess[output, i] = float32(cut(not_negative(h)) * weight)


@scalar
def one_label(label, first, i):
    return label[first, i]


@scalar
def two_labels(label, first, i):
    return label[first, i], label[first + 1, i]


_LABEL_OF = {1: one_label, 2: two_labels}


@scalar
def is_labelled(label):
    return label == label


@scalar
def is_pair(label):
    return True


_IS_LABELLED = {1: is_labelled, 2: is_pair}


@scalar
def one_of(label, above, i):
    return label[i]


@scalar
def both_of(label, above, i):
    return label[i], above[i]


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
def elementwise_gradients(gradient, label_rows=1):
    """The kernel of an objective whose outputs do not depend on each other.

    gradient : scalar function (margin, label, weight, output, parameters) -> (g, h), float32. weight is the row's, 1 without, for
        formulas that need to know it; the kernel itself multiplies. output : int64. parameters is a tuple of float32
        (an array in memory would keep LLVM from vectorising the loop: it might overlap the outputs).
    label_rows : 2 where the label of a row is a pair, the bounds of an interval; the formula gets it as a tuple. A formula takes
        one or the other, so its name alone tells the kernels apart.
    Returned kernel (margin, label, weight, parameters, grad, hess, maxima, n_threads):
        margin, grad, hess : float32 (n_outputs, n_rows). label : float32 (n_outputs·label_rows or label_rows, n_rows).
        weight : float32 (n_rows,) or (0,), which means 1.
        maxima : int64 (n_threads, n_outputs, 2), OUT. Largest bits of |grad| and hess seen by each thread; zeroed by the caller.
    """

    label_of, is_there = {1: one_of, 2: both_of}[label_rows], _IS_LABELLED[label_rows]

    @parallel_kernel.part(formula=gradient)
    def chunks(thread, counters, margin, label, weight, parameters, grad, hess, maxima):
        n_outputs, n_rows = margin.shape
        while True:
            output, begin, end = claim_rows(counters, thread, n_outputs, n_rows, int64(CHUNK))
            if output >= n_outputs:
                return
            first = min(output * label_rows, label.shape[0] - label_rows)
            own_weight = weight[begin:end] if weight.size else weight
            largest = gradients_of_rows(
                margin[output, begin:end], label[first, begin:end], label[first + label_rows - 1, begin:end], own_weight, output,
                parameters, grad[output, begin:end], hess[output, begin:end],
            )  # fmt: skip
            for k in range(2):
                maxima[thread, output, k] = max(maxima[thread, output, k], largest[k])

    @parallel_kernel.part(formula=gradient)
    def gradients_of_rows(margin, label, above, weight, output, parameters, grad, hess):
        for i in range(margin.size):
            own_weight = weight[i] if weight.size else float32(1.0)
            own_label = label_of(label, above, i)
            g, h = gradient(margin[i], own_label, own_weight, output, parameters)
            grad[i] = cut(g) if is_there(own_label) else float32(0.0)
            hess[i] = cut(not_negative(h)) if is_there(own_label) else float32(0.0)
        return _weigh(grad, hess, weight)

    def gradients_cpu(margin, label, weight, parameters, grad, hess, maxima, n_threads):
        launch(n_threads, chunks, (new_counters(n_threads), margin, label, weight, parameters, grad, hess, maxima))

    return parallel_kernel(gradients_cpu, gradient)


@cache
def rowwise_gradients(row_gradient):
    """The kernel of an objective whose outputs depend on each other.

    row_gradient : scalar function (margin, label, weight, i, parameters, grad, hess) that hands over the derivatives of every
        output of row i by put_gradient. It sees the whole arrays, and may use grad[:, i] and hess[:, i] for its own until then.
    Returned kernel: as elementwise_gradients; label : float32 (n_label_rows, n_rows), as the formula has it.
    """

    @parallel_kernel.part(formula=row_gradient)
    def chunks(thread, counters, margin, label, weight, parameters, grad, hess, maxima):
        n_outputs, n_rows = margin.shape
        while True:
            _, begin, end = claim_rows(counters, thread, 1, n_rows, int64(CLASS_CHUNK))
            if begin == end:
                return
            for i in range(begin, end):
                own_weight = weight[i] if weight.size else float32(1.0)
                row_gradient(margin, label, own_weight, i, parameters, grad, hess)
            for output in range(n_outputs):
                largest = _weigh(grad[output, begin:end], hess[output, begin:end], weight[:0])  # the formula has weighed
                for k in range(2):
                    maxima[thread, output, k] = max(maxima[thread, output, k], largest[k])

    def gradients_cpu(margin, label, weight, parameters, grad, hess, maxima, n_threads):
        launch(n_threads, chunks, (new_counters(n_threads), margin, label, weight, parameters, grad, hess, maxima))

    return parallel_kernel(gradients_cpu, row_gradient)


@parallel_kernel
def softmax_gradients_cpu(margin, label, weight, parameters, grad, hess, maxima, n_threads):
    """What rowwise_gradients makes of softmax_gradient (objectives/multiclass.py), to the bit, but in loops over the rows of one
    class after another: p = softmax(margins of the row); g_k = p_k − [label = k]; h_k = 2·p_k·(1 − p_k).
    """
    launch(n_threads, _softmax_chunks, (new_counters(n_threads), margin, label, weight, grad, hess, maxima))


@parallel_kernel.part
def _softmax_chunks(thread, counters, margin, label, weight, grad, hess, maxima):
    n_classes, n_rows = margin.shape
    scratch = empty((2, CLASS_CHUNK), np.float32)
    while True:
        _, begin, end = claim_rows(counters, thread, 1, n_rows, int64(CLASS_CHUNK))
        if begin == end:
            return
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
def elementwise_gradients_kernel(gradient, label_rows=1, uses_double=False):
    """elementwise_gradients on the GPU; arguments as there. uses_double : whether the formula computes in float64.

    parameters : float32 (n,), IN. maxima : int64 (n_outputs, 2), INOUT, zeroed by the caller.
    """

    label_of, is_there = {1: one_label_at, 2: two_labels_at}[label_rows], _IS_LABELLED[label_rows]

    @cuda_kernel(_SIGNATURE, registers=128 if uses_double else 64, uses_double=uses_double, formula=gradient)
    def gradients_kernel(margin, label, weight, parameters, grad, hess, maxima):
        partial = cuda.shared.array(32, int64)
        n_rows = uint32(margin.shape[1])
        for output in range(margin.shape[0]):
            first = int64(min(output * label_rows, label.shape[0] - label_rows))
            largest_grad, largest_hess, first_value = uint32(0), uint32(0), int64(output) * int64(n_rows)
            row, last = thread_number(), uint32(max(n_rows, uint32(1)) - uint32(1))
            if row < n_rows:
                next_margin, next_label = load_at(margin, first_value, row), label_of(label, first, row)
            while row < n_rows:
                own_margin, own_label, following = next_margin, next_label, min(uint32(row + n_threads()), last)
                next_margin, next_label = load_at(margin, first_value, following), label_of(label, first, following)  # meanwhile
                own_weight = load_at(weight, int64(0), row) if weight.size > 0 else float32(1.0)
                g, h = gradient(own_margin, own_label, own_weight, output, parameters)
                if not is_there(own_label):
                    g, h = float32(0.0), float32(0.0)
                g, h = float32(cut(g) * own_weight), float32(cut(not_negative(h)) * own_weight)
                store_at(grad, first_value, row, g)
                store_at(hess, first_value, row, h)
                largest_grad = max(largest_grad, uint32(magnitude_bits(g)))
                largest_hess = max(largest_hess, uint32(magnitude_bits(h)))
                row = uint32(row + n_threads())
            keep_maxima(maxima, output, largest_grad, largest_hess, partial)

    return gradients_kernel


@cache
def rowwise_gradients_kernel(row_gradient):
    """rowwise_gradients on the GPU; arguments as elementwise_gradients_kernel. A thread reads no row but its own."""

    @cuda_kernel(_SIGNATURE, registers=64, formula=row_gradient)
    def gradients_kernel(margin, label, weight, parameters, grad, hess, maxima):
        partial = cuda.shared.array(32, int64)
        n_rows = uint32(margin.shape[1])
        row = thread_number()
        while row < n_rows:
            own_weight = weight[row] if weight.size > 0 else float32(1.0)
            row_gradient(margin, label, own_weight, row, parameters, grad, hess)
            row = uint32(row + n_threads())
        for output in range(margin.shape[0]):  # each thread over its own rows again
            largest_grad, largest_hess = uint32(0), uint32(0)
            row = thread_number()
            while row < n_rows:
                largest_grad = max(largest_grad, uint32(magnitude_bits(grad[output, row])))
                largest_hess = max(largest_hess, uint32(magnitude_bits(hess[output, row])))
                row = uint32(row + n_threads())
            keep_maxima(maxima, output, largest_grad, largest_hess, partial)

    return gradients_kernel


@device_function
def one_label_at(label, first, row):
    return load_at(label, first * int64(label.shape[1]), row)


@device_function
def two_labels_at(label, first, row):
    begin = first * int64(label.shape[1])
    return load_at(label, begin, row), load_at(label, begin + int64(label.shape[1]), row)


@device_function
def keep_maxima(maxima, output, largest_grad, largest_hess, partial):
    """Raise the maxima of an output to the largest of the block, uint32 below 2^31. All threads call it."""
    largest_grad, largest_hess = block_max(int32(largest_grad), partial), block_max(int32(largest_hess), partial)
    if cuda.threadIdx.x == 0:
        cuda.atomic.max(maxima, (output, 0), largest_grad)
        cuda.atomic.max(maxima, (output, 1), largest_hess)
