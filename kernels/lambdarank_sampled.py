"""Gradients of ranking losses by sampled pairs: each document against some of other labels of its query (lambdarank_pair_method
"mean"). What a pair brings is lambdarank.py's.

The k-th partner of a document is drawn evenly from all documents of other labels, by a hash of (seed, round, the document's
global row number, k). Partners are drawn any number of times, so that sums over pairs are integers, whatever their order:

    Σ x  =  2^−s · Σ ⌊x·2^s + ½⌋       s from the largest |x| of the query, so that the sum stays below 2^62

Two passes over the pairs: the largest terms, then the sums.
"""

import math

import numpy as np
from numba import float32, float64, int64, uint32, uint64

from gpuboost.kernels.allocation import empty, zeros
from gpuboost.kernels.cuda_common import block_max, cuda, cuda_kernel
from gpuboost.kernels.jit import claim, launch, parallel_kernel, scalar
from gpuboost.kernels.lambdarank import change_of, plain_pair, score_offset, unbiased_pair
from gpuboost.kernels.ranked_documents import N_FIELDS, SCORE, list_documents, list_query
from gpuboost.kernels.scalar import bits_double, double_bits, double_magnitude, hash_word

N_SUMS = 4  # gradient, hessian, losses by t⁺ and t⁻


@scalar
def partner_of(begin, n, place, sample, key, id, by_label, bucket):
    """The row of the partner that a sample of the document at a place of by_label has; −1 where all labels are equal.

    id : global number of the document's row. bucket : int32 (2, n_rows): from which place to which one labels are its own."""
    low, high = int64(bucket[0, begin + place]), int64(bucket[1, begin + place])
    others = n - (high - low)
    if others == 0:
        return int64(-1)
    random = hash_word(hash_word(hash_word(uint32(key), uint64(id) & uint64(0xFFFFFFFF)), uint64(id) >> uint64(32)), sample)
    drawn = int64((uint64(random) * uint64(others)) >> uint64(32))
    return int64(by_label[begin + (drawn if drawn < low else drawn + high - low)])


@scalar
def sampled_pair(facts, begin, one, other, kind, unit, offset, slope, is_unbiased):
    """(place above, place below, g, H, four losses as unbiased_pair) of the documents at two places."""
    above, below = min(one, other), max(one, other)
    c = change_of(facts, begin + above, begin + below, kind, unit, begin)
    if is_unbiased:
        g, h, plus, minus, plus_below, minus_below = unbiased_pair(facts, begin + above, begin + below, c, offset, slope)
        return above, below, g, h, plus, minus, plus_below, minus_below
    g, h = plain_pair(facts, begin + above, begin + below, c, offset, slope)
    zero = float64(0.0)
    return above, below, g, h, zero, zero, zero, zero


@scalar
def sums_scale(largest, n_terms):
    """backend/fixed_point.sum_scale, of the bits of the largest."""
    exponent, terms = int64(62), int64(n_terms - 1)
    while terms > 0:
        terms, exponent = terms >> int64(1), exponent - int64(1)
    if largest > 0:
        exponent -= (int64(largest) >> int64(52)) - int64(1022)
    return bits_double(uint64((min(exponent, int64(1000)) + int64(1023)) << int64(52)))


@scalar
def as_units(x, scale):
    return int64(math.floor(x * scale + float64(0.5)))


@parallel_kernel
def sampled_lambdas_cpu(
    first, order, margin, label, factor, unit, discounts, bias, kind, n_samples, is_exponential, divides, ids, key, by_label,
    bucket, place_of, grad, hess, losses, n_threads,
):  # fmt: skip
    """Gradients by n_samples pairs of each document.

    ids : int64 (n_queries,). Global number of each query's first row. key : uint32. Of the round.
    by_label : int32 (n_rows,). The rows of each query by falling label. bucket : int32 (2, n_rows), by place there (partner_of).
    place_of : int32 (n_rows,). Of each row in the ranking of its query. Others as lambdarank.top_lambdas_cpu.
    """
    counter, largest = zeros(1, np.int64), 0
    for query in range(factor.size):
        largest = max(largest, first[query + 1] - first[query])
    launch(n_threads, _sampled_queries, (
        counter, largest, first, order, margin, label, factor, unit, discounts, bias, kind, n_samples, is_exponential,
        divides, ids, key, by_label, bucket, place_of, grad, hess, losses,
    ))  # fmt: skip


@parallel_kernel.part
def _sampled_queries(
    counter, largest, first, order, margin, label, factor, unit, discounts, bias, kind, n_samples, is_exponential, divides, ids,
    key, by_label, bucket, place_of, grad, hess, losses,
):  # fmt: skip
    facts, sums = zeros((N_FIELDS, largest), np.float64), empty((N_SUMS, largest), np.int64)
    maxima, scales = empty(N_SUMS, np.float64), empty(N_SUMS, np.float64)
    is_unbiased = bias.shape[1] > 0
    while True:
        query = claim(counter)
        if query >= factor.size:
            return
        begin, n = first[query], first[query + 1] - first[query]
        own = order[begin : begin + n]
        list_documents(begin, own, margin, label, kind, is_exponential, discounts, bias, facts)
        offset, slope = score_offset(divides, facts[SCORE, 0] == facts[SCORE, n - 1])
        maxima[:] = 0.0
        sums[:, :n] = 0
        for is_sum in range(2):
            for place in range(n):
                row = int64(by_label[begin + place])
                for sample in range(n_samples):
                    other = partner_of(begin, n, place, sample, key, ids[query] + row - begin, by_label, bucket)
                    if other < 0:
                        continue
                    above, below, g, h, plus, minus, plus_below, minus_below = sampled_pair(
                        facts, 0, int64(place_of[row]), int64(place_of[other]), kind, unit[query], offset, slope, is_unbiased
                    )
                    if is_sum:
                        sums[0, above] += as_units(g, scales[0])
                        sums[0, below] += as_units(-g, scales[0])
                        sums[1, above] += as_units(h, scales[1])
                        sums[1, below] += as_units(h, scales[1])
                        if is_unbiased:
                            sums[2, above] += as_units(plus, scales[2])
                            sums[3, above] += as_units(minus, scales[3])
                            sums[2, below] += as_units(plus_below, scales[2])
                            sums[3, below] += as_units(minus_below, scales[3])
                    else:
                        maxima[0] = max(maxima[0], abs(g))
                        maxima[1] = max(maxima[1], h)
                        maxima[2] = max(maxima[2], plus, plus_below)
                        maxima[3] = max(maxima[3], minus, minus_below)
            for k in range(N_SUMS):
                scales[k] = sums_scale(int64(double_bits(maxima[k])), n_samples * n)
        for place in range(n):
            row = own[place]
            grad[row] = float32(float64(sums[0, place]) / scales[0] * factor[query])
            hess[row] = float32(float64(sums[1, place]) / scales[1] * factor[query])
            if is_unbiased:
                losses[0, row] = float64(sums[2, place]) / scales[2]
                losses[1, row] = float64(sums[3, place]) / scales[3]


# ---------------------------------------------------------------------------------------------------------------------
# CUDA. A block per query, a thread for each document and its samples; sums by atomic adds of integers in global memory.


@cuda_kernel(
    "first: int64[:], order: int32[:], margin: float32[:], label: float32[:], factor: float64[:], unit: float64[:], "
    "discounts: float64[:], bias: float64[:, :], kind: int64, n_samples: int64, is_exponential: int64, divides: int64, "
    "ids: int64[:], key: uint32, by_label: int32[:], bucket: int32[:, :], place_of: int32[:], facts: float64[:, :], "
    "sums: int64[:, :], grad: float32[:], hess: float32[:], losses: float64[:, :]",
    registers=168, uses_double=True,
)  # fmt: skip
def sampled_lambdas_kernel(
    first, order, margin, label, factor, unit, discounts, bias, kind, n_samples, is_exponential, divides, ids, key, by_label,
    bucket, place_of, facts, sums, grad, hess, losses,
):  # fmt: skip
    """sampled_lambdas_cpu. facts : as lambdarank.top_lambdas_kernel. sums : int64 (4 or, without bias, 2; n_rows), SCRATCH,
    zeroed by the caller, by place."""
    partial = cuda.shared.array(32, int64)
    is_unbiased, query = bias.shape[1] > 0, int64(cuda.blockIdx.x)
    while query < factor.size:
        begin, n = first[query], first[query + 1] - first[query]
        list_query(begin, n, order, margin, label, kind, is_exponential, discounts, bias, facts)
        offset, slope = score_offset(divides, facts[SCORE, begin] == facts[SCORE, begin + n - 1])
        largest_g, largest_h, largest_plus, largest_minus = int64(0), int64(0), int64(0), int64(0)
        scale_g, scale_h, scale_plus, scale_minus = float64(1.0), float64(1.0), float64(1.0), float64(1.0)
        for is_sum in range(2):
            place = int64(cuda.threadIdx.x)
            while place < n:
                row = int64(by_label[begin + place])
                for sample in range(n_samples):
                    other = partner_of(begin, n, place, sample, key, ids[query] + row - begin, by_label, bucket)
                    if other >= 0:
                        above, below, g, h, plus, minus, plus_below, minus_below = sampled_pair(
                            facts, begin, int64(place_of[row]), int64(place_of[other]), kind, unit[query], offset, slope,
                            is_unbiased,
                        )  # fmt: skip
                        if is_sum == 0:
                            largest_g = max(largest_g, double_magnitude(g))
                            largest_h = max(largest_h, int64(double_bits(h)))
                            largest_plus = max(largest_plus, int64(double_bits(plus + plus_below)))
                            largest_minus = max(largest_minus, int64(double_bits(minus + minus_below)))
                        else:
                            cuda.atomic.add(sums, (0, begin + above), as_units(g, scale_g))
                            cuda.atomic.add(sums, (0, begin + below), as_units(-g, scale_g))
                            cuda.atomic.add(sums, (1, begin + above), as_units(h, scale_h))
                            cuda.atomic.add(sums, (1, begin + below), as_units(h, scale_h))
                            if is_unbiased:
                                cuda.atomic.add(sums, (2, begin + above), as_units(plus, scale_plus))
                                cuda.atomic.add(sums, (3, begin + above), as_units(minus, scale_minus))
                                cuda.atomic.add(sums, (2, begin + below), as_units(plus_below, scale_plus))
                                cuda.atomic.add(sums, (3, begin + below), as_units(minus_below, scale_minus))
                place += int64(cuda.blockDim.x)
            if is_sum == 0:
                scale_g = sums_scale(block_max(largest_g, partial), n_samples * n)
                scale_h = sums_scale(block_max(largest_h, partial), n_samples * n)
                if is_unbiased:
                    scale_plus = sums_scale(block_max(largest_plus, partial), n_samples * n)
                    scale_minus = sums_scale(block_max(largest_minus, partial), n_samples * n)
        cuda.syncthreads()  # all sums are there
        place = int64(cuda.threadIdx.x)
        while place < n:
            row = int64(order[begin + place])
            grad[row] = float32(float64(sums[0, begin + place]) / scale_g * factor[query])
            hess[row] = float32(float64(sums[1, begin + place]) / scale_h * factor[query])
            if is_unbiased:
                losses[0, row] = float64(sums[2, begin + place]) / scale_plus
                losses[1, row] = float64(sums[3, begin + place]) / scale_minus
            place += int64(cuda.blockDim.x)
        query += int64(cuda.gridDim.x)
