"""Fewer outputs to search splits by: k combinations of the gradients of all K (SketchBoost, Iosipoi & Vakhrushev 2022, §3).

    g'_j = Σ_i a_ji·g_i          h' = Σ_i h_i / K, the same for every j

    top_outputs           the k outputs of largest Σ g² over the rows, a = 1
    random_sampling       k draws of an output i by its share p_i of all Σ g², a = 1/√(k·p_i)
    random_projection     a_ji = ±1/√k for all i, by a hash (Achlioptas 2003; the paper draws from N(0, 1/k))

With either random one, Σ_j G'_j²/(H' + λ) is Σ_i G_i²/(H' + λ) on average: what all outputs score where they share the hessian
H'. (The paper counts rows instead.) Leaves, and what is pruned, go by all outputs. Sums over rows are of integers, those over
outputs run in their order, so that no rows' order and no number of workers matters. On the CPU the host chooses outputs and
factors (backend/output_sketch.py).

Floor: 4 bytes read per row and output for Σ g², 4 for h', and 4 for each a_ji that is not 0.
"""

import math

import numpy as np
from numba import float32, float64, int32, int64, uint32, uint64

from gpuboost.kernels.allocation import empty, zeros
from gpuboost.kernels.cuda_common import ONE_BLOCK, block_sum, cuda, cuda_kernel, device_function, n_threads, thread_number
from gpuboost.kernels.gradients import NON_FINITE_BITS, keep_maxima, magnitude_bits
from gpuboost.kernels.jit import claim, launch, parallel_kernel, scalar
from gpuboost.kernels.quantise import binary_exponent, count_bits, power_of_two
from gpuboost.kernels.scalar import bits_float, hash_word, round_key

CHUNK = 4096
METHODS = "top_outputs", "random_sampling", "random_projection"
RANDOM_SAMPLING, RANDOM_PROJECTION = 1, 2  # by number
SKETCH_DRAW = 0xFEA70004  # a word beside those of column_sampling.py


@scalar
def square_scale(largest, row_bits):
    """The power of two with which 2^row_bits squares of up to largest² sum to at most 2^62, or 2^1000 if that is less."""
    return power_of_two(min(int64(62) - row_bits - int64(2) * binary_exponent(largest), int64(1000)))


@scalar
def square_units(g, scale):
    """int64: ⌊g²·scale + ½⌋."""
    return int64(math.floor(float64(g) * float64(g) * scale + float64(0.5)))


@parallel_kernel
def sum_squares_cpu(grad, largest, global_rows, sums, n_threads):
    """Σ ⌊g²·square_scale + ½⌋ of every output.

    grad : float32 (n_outputs, n_rows), IN. largest : float64, the largest |g| of all outputs, over all workers, as global_rows.
    sums : int64 (n_threads, n_outputs), INOUT.
    """
    counter = zeros(1, np.int64)
    launch(n_threads, _sum_chunks, (counter, grad, square_scale(largest, count_bits(global_rows)), sums))


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
        total += square_units(grad[i], scale)
    return total


@parallel_kernel
def combine_outputs_cpu(grad, hess, outputs, factors, few_grad, few_hess, n_threads):
    """The combinations: j is of outputs[j], each times its factor.

    grad, hess : float32 (n_outputs, n_rows), IN. outputs : int32 (k, m), IN, m of them. factors : float64 (k, m), IN.
    few_grad, few_hess : float32 (k, n_rows), OUT.
    """
    counter = zeros(1, np.int64)
    launch(n_threads, _combine_chunks, (counter, grad, hess, outputs, factors, few_grad, few_hess))


@parallel_kernel.part
def _combine_chunks(counter, grad, hess, outputs, factors, few_grad, few_hess):
    n_outputs, n_rows = grad.shape
    total = empty(CHUNK, np.float64)
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
            for at in range(outputs.shape[1]):
                _add_times(grad[outputs[j, at], begin:end], factors[j, at], total)
            _put(total, 1.0, few_grad[j, begin:end])


@parallel_kernel.part
def _add_times(values, factor, total):
    for i in range(values.size):
        total[i] += float64(values[i]) * factor


@parallel_kernel.part
def _put(total, divisor, out):
    for i in range(out.size):
        out[i] = float32(total[i] / divisor)


# ---------------------------------------------------------------------------------------------------------------------
# CUDA. One thread per row in turn. Outputs and factors are chosen on the device, so that the host need not wait for the squares.


@device_function
def largest_bits(maxima):
    """int64: float32 bits of the largest |g| of all outputs."""
    largest = int64(0)
    for output in range(maxima.shape[0]):
        largest = max(largest, maxima[output, 0])
    return largest


@cuda_kernel(
    "grad: float32[:, :], maxima: int64[:, :], global_rows: int64, sums: int64[:]", registers=40, uses_double=True
)
def sum_squares_kernel(grad, maxima, global_rows, sums):
    """sum_squares_cpu. maxima : int64 (n_outputs, 2), IN, float32 bits of max |g| and max h over all workers; where one is not
    finite nothing is summed. sums : int64 (n_outputs,), INOUT, zeroed by the caller; one atomic add per block and output."""
    partial = cuda.shared.array(32, int64)
    largest, n_rows = largest_bits(maxima), uint32(grad.shape[1])
    if largest < int64(NON_FINITE_BITS):
        scale = square_scale(float64(bits_float(uint32(largest))), count_bits(global_rows))
        for output in range(grad.shape[0]):
            total, row = int64(0), thread_number()
            while row < n_rows:
                total += square_units(grad[output, row], scale)
                row = uint32(row + n_threads())
            total = block_sum(total, partial)
            if cuda.threadIdx.x == 0:
                cuda.atomic.add(sums, output, total)


@device_function
def hash_of(key, j, word):
    """uint64: backend/fixed_point.hash_words(key, j, word)."""
    return uint64(hash_word(hash_word(hash_word(uint32(0x9E3779B9), key), j), word))


@cuda_kernel(
    "method: int32, progress: PROGRESS[:], squares: int64[:], unsorted: int32[:], outputs: int32[:, :], factors: float64[:, :]",
    uses_double=True, **ONE_BLOCK,
)  # fmt: skip
def choose_outputs_kernel(method, progress, squares, unsorted, outputs, factors):
    """backend/output_sketch.choose_outputs. One block.

    method : of METHODS by number. progress : IN seed and round. squares : int64 (n_outputs,), IN. unsorted : int32 (k,), OUT.
    outputs : int32 (k, m), factors : float64 (k, m), OUT.
    """
    n, k = int64(squares.size), int64(outputs.shape[0])
    key, at = hash_word(round_key(progress[0].seed, progress[0].round), SKETCH_DRAW), int64(cuda.threadIdx.x)
    if method == RANDOM_PROJECTION:
        while at < k * n:
            j, output = at // n, at % n
            is_negative = hash_of(key, j, output) & uint64(1)
            outputs[j, output] = int32(output)
            factors[j, output] = float64(1 - 2 * int64(is_negative)) / math.sqrt(float64(k))
            at += int64(cuda.blockDim.x)
    else:
        total = float64(0.0)
        for output in range(n):
            total += float64(squares[output])
        draws = method == RANDOM_SAMPLING and total > 0
        while at < (k if draws else n):
            if draws:
                unsorted[at] = drawn_output(key, at, squares, total)
            else:
                rank = rank_of(squares, at)
                if rank < k:
                    unsorted[rank] = int32(at)
            at += int64(cuda.blockDim.x)
        cuda.syncthreads()  # all that are chosen are listed
        at = int64(cuda.threadIdx.x)
        while at < k:
            output, place = unsorted[at], int64(0)
            for other in range(k):
                if unsorted[other] < output or (unsorted[other] == output and other < at):
                    place += 1
            outputs[place, 0] = output
            factors[place, 0] = math.sqrt(total / (float64(k) * float64(squares[output]))) if draws else float64(1.0)
            at += int64(cuda.blockDim.x)


@device_function
def drawn_output(key, j, squares, total):
    """int32: the output that draw j falls on, each by its share of the total."""
    bits = hash_of(key, j, 0) << uint64(32) | hash_of(key, j, 1)
    place = float64(bits >> uint64(11)) * float64(2.0**-53) * total
    output = int64(0)
    up_to = float64(squares[0])
    while up_to <= place:  # ends: place is less than all squares
        output += 1
        up_to += float64(squares[output])
    return int32(output)


@device_function
def rank_of(squares, output):
    """int64: how many outputs have more squares, or as many and a lower number."""
    rank, own = int64(0), squares[output]
    for other in range(squares.size):
        if squares[other] > own or (squares[other] == own and other < output):
            rank += 1
    return rank


@cuda_kernel(
    "grad: float32[:, :], hess: float32[:, :], outputs: int32[:, :], factors: float64[:, :], few_grad: float32[:, :], "
    "few_hess: float32[:, :], maxima: int64[:, :]",
    registers=48, uses_double=True,
)  # fmt: skip
def combine_outputs_kernel(grad, hess, outputs, factors, few_grad, few_hess, maxima):
    """combine_outputs_cpu. maxima : int64 (k, 2), INOUT, zeroed by the caller. Bits of the combinations' max |g| and max h."""
    partial = cuda.shared.array(32, int64)
    n_outputs, n_rows, largest_hess = grad.shape[0], uint32(grad.shape[1]), int64(0)
    row = thread_number()
    while row < n_rows:
        total = float64(0.0)
        for output in range(n_outputs):
            total += float64(hess[output, row])
        h = float32(total / float64(n_outputs))
        largest_hess = max(largest_hess, magnitude_bits(h))
        for j in range(few_hess.shape[0]):
            few_hess[j, row] = h
        row = uint32(row + n_threads())
    for j in range(few_grad.shape[0]):
        largest_grad, row = int64(0), thread_number()
        while row < n_rows:
            total = float64(0.0)
            for at in range(outputs.shape[1]):
                total += float64(grad[outputs[j, at], row]) * factors[j, at]
            g = float32(total)
            few_grad[j, row] = g
            largest_grad = max(largest_grad, magnitude_bits(g))
            row = uint32(row + n_threads())
        keep_maxima(maxima, j, largest_grad, largest_hess, partial)
