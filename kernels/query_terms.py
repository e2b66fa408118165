"""Documents query by query: their order by some value, and what a query adds to a metric of rankings.

    DCG@k        Σ gain(label)/log2(place + 2) over the places below k
    MAP@k        Σ precision at place over relevant places below k, divided by min(relevant documents, k)
    precision@k  relevant documents at places below k, divided by min(documents, k)

Sums of floats are in lanes: place modulo 32, then the lanes in halves, as in lambdarank.py, so that both devices agree.
"""

import numpy as np
from numba import float64, int64, uint64

from gpuboost.kernels.allocation import empty, zeros
from gpuboost.kernels.cuda_common import FULL_WARP, cuda, cuda_kernel, lane_number, n_warps, warp_number, warp_prefix, warp_sum
from gpuboost.kernels.jit import claim, launch, parallel_kernel, scalar
from gpuboost.kernels.ranked_documents import LANES, gain_of
from gpuboost.kernels.scalar import float_key

DCG, AVERAGE_PRECISION, PRECISION = 0, 1, 2
RUN = 32  # documents that are sorted by counting


@parallel_kernel
def order_documents_cpu(first, values, order, n_threads):
    """order : int32 (n_rows,), OUT. The rows of each query by falling value, equal ones in row order.

    first : int64 (n_queries + 1,). values : float32 (n_rows,), no NaN."""
    counter, largest = zeros(1, np.int64), 0
    for query in range(first.size - 1):
        largest = max(largest, first[query + 1] - first[query])
    launch(n_threads, _order_queries, (counter, largest, first, values, order))


@parallel_kernel.part
def _order_queries(counter, largest, first, values, order):
    room = (largest + RUN - 1) // RUN * RUN
    keys, spare, counts = empty(room, np.uint64), empty(room, np.uint64), empty(RUN, np.int64)
    while True:
        query = claim(counter)
        if query >= first.size - 1:
            return
        begin, n = first[query], first[query + 1] - first[query]
        for i in range(n):
            keys[i] = uint64(~float_key(values[begin + i])) << uint64(32) | uint64(i)
        for i in range(n, (n + RUN - 1) // RUN * RUN):
            keys[i] = ~uint64(0)
        for start in range(0, n, RUN):
            _count_smaller(keys[start : start + RUN], (min(n - start, RUN) + 3) // 4 * 4, counts)
            for i in range(min(n - start, RUN)):
                spare[start + counts[i]] = keys[start + i]
        keys[:n] = spare[:n]
        _merge_runs(keys[:n], spare[:n])
        for i in range(n):
            order[begin + i] = begin + int64(keys[i] & uint64(0xFFFFFFFF))


# Counting and merging ask the processor to guess nothing: 120 documents in no order take 10 ns each, by insertion and merging
# with branches 29 (AMD EPYC, one thread).


@parallel_kernel.part
def _count_smaller(run, n, counts):
    """counts : int64 (RUN,), OUT. How many of the first n keys of a run, n a multiple of 4, are smaller than each of it."""
    counts[:] = 0
    for j in range(0, n, 4):
        a, b, c, d = run[j], run[j + 1], run[j + 2], run[j + 3]  # four at a time: counts lie in memory
        for i in range(RUN):
            counts[i] += (int64(run[i] > a) + int64(run[i] > b)) + (int64(run[i] > c) + int64(run[i] > d))


@parallel_kernel.part
def _merge_runs(keys, spare):
    """Sort keys of which runs of RUN are sorted. spare : SCRATCH."""
    n, width = keys.size, RUN
    while width < n:
        for begin in range(0, n, 2 * width):
            _merge(keys[begin : min(begin + 2 * width, n)], width, spare[begin:])
        keys[:] = spare
        width *= 2


@parallel_kernel.part
def _merge(keys, width, merged):
    """merged : uint64, OUT, of keys[:width] and keys[width:], which are sorted."""
    n, left, right, at = keys.size, 0, width, 0
    while left < width and right < n:
        is_left = keys[left] < keys[right]
        merged[at] = keys[left] if is_left else keys[right]
        left += int64(is_left)
        right += int64(not is_left)
        at += 1
    for i in range(left, min(width, n)):
        merged[at] = keys[i]
        at += 1
    for i in range(right, n):
        merged[at] = keys[i]
        at += 1


@scalar
def finished_term(kind, total, relevant, n, top):
    """The term of a query. total : Σ of DCG or of precisions. relevant : documents, of precision@k those above k. −1 for average
    precision without any."""
    if kind == DCG:
        return total
    if kind == PRECISION:
        return float64(relevant) / float64(min(n, top))
    return total / float64(min(relevant, top)) if relevant > 0 else float64(-1.0)


@parallel_kernel
def query_terms_cpu(kind, first, order, label, discounts, top, is_exponential, terms, n_threads):
    """terms : float64 (n_queries,), OUT, of finished_term.

    order : int32 (n_rows,), of order_documents_cpu. label : float32 (n_rows,). discounts : float64 (≥ largest query,).
    top : int64, k. is_exponential : whether gains are 2^label − 1."""
    counter = zeros(1, np.int64)
    launch(n_threads, _terms_of_queries, (counter, kind, first, order, label, discounts, top, is_exponential, terms))


@parallel_kernel.part
def _terms_of_queries(counter, kind, first, order, label, discounts, top, is_exponential, terms):
    lanes = empty(LANES, np.float64)
    while True:
        query = claim(counter)
        if query >= terms.size:
            return
        begin, n = first[query], first[query + 1] - first[query]
        lanes[:], relevant = 0.0, int64(0)
        for place in range(n if kind == AVERAGE_PRECISION else min(n, top)):
            own = label[order[begin + place]]
            if kind == DCG:
                lanes[place & (LANES - 1)] += gain_of(own, is_exponential) * discounts[place]
            elif own > 0:
                relevant += 1
                lanes[place & (LANES - 1)] += float64(relevant) / float64(place + 1) if place < top else 0.0
        step = LANES // 2
        while step > 0:
            for lane in range(step):
                lanes[lane] += lanes[lane + step]
            step //= 2
        terms[query] = finished_term(kind, lanes[0], relevant, n, top)


# ---------------------------------------------------------------------------------------------------------------------
# CUDA. A warp per query. (Documents are put in order by CuPy's stable sort: backend/cuda/ranker.py.)


@cuda_kernel(
    "kind: int64, first: int64[:], order: int32[:], label: float32[:], discounts: float64[:], top: int64, is_exponential: int64, "
    "terms: float64[:]",
    registers=64, uses_double=True,
)  # fmt: skip
def query_terms_kernel(kind, first, order, label, discounts, top, is_exponential, terms):
    """query_terms_cpu."""
    query = warp_number()
    while query < terms.size:
        begin, n = first[query], first[query + 1] - first[query]
        end = n if kind == AVERAGE_PRECISION else min(n, top)
        total, relevant, start = float64(0.0), int64(0), int64(0)
        while start < end:  # the same for the warp
            place = start + int64(lane_number())
            own = label[order[begin + place]] if place < end else label[order[begin]]
            is_relevant = int64(1) if place < end and own > 0 else int64(0)
            if kind == DCG:
                if place < end:
                    total += gain_of(own, is_exponential) * discounts[place]
            else:
                up_to = warp_prefix(is_relevant)
                if is_relevant != 0 and place < top:
                    total += float64(relevant + up_to) / float64(place + 1)
                relevant += cuda.shfl_sync(FULL_WARP, up_to, 31)
            start += int64(LANES)
        total = warp_sum(total)
        if lane_number() == 0:
            terms[query] = finished_term(kind, total, relevant, n, top)
        query += n_warps()
