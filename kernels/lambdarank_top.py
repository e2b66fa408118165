"""Gradients of ranking losses by the n_top documents of highest score of each query, each with all below it. What a pair brings
is lambdarank.py's.

In rank order a document d sums, in float64 and so that the order never depends on who adds:

    what those above it bring, one after another; then, if it is among the top, of the places below it those ≡ 0, 1, … 31 modulo
    32 in a lane each, and the lanes in halves: 0 + 16, 1 + 17, … then 0 + 8, … (the butterfly of a warp).
"""

import numpy as np
from numba import float64, int64, uint64

from gpuboost.kernels.allocation import empty, zeros
from gpuboost.kernels.cuda_common import cuda, cuda_kernel, device_function, lane_number, warp_sum
from gpuboost.kernels.jit import claim, launch, parallel_kernel
from gpuboost.kernels.lambdarank import (
    change,
    change_of,
    gradient_of,
    hessian_of,
    norm_of,
    plain_pair,
    quotient,
    score_offset,
    unbiased_pair,
    unbiased_terms,
)
from gpuboost.kernels.ranked_documents import (
    EXPONENTIAL,
    FIRST,
    GRAD,
    HESS,
    LABEL,
    LANES,
    MAP,
    MINUS,
    MINUS_LOSS,
    N_FIELDS,
    NDCG,
    PAIRWISE,
    PLUS,
    PLUS_LOSS,
    SCORE,
    SECOND,
    THIRD,
    TOTAL,
    list_documents,
    list_query,
    put_gradients,
    put_query,
)

# On the CPU the fields of LANES documents lie side by side. One loop over the lanes then reads and writes all of them at
# distances that are known when it is compiled, so that LLVM vectorises it without asking which arrays overlap; indices are
# unsigned, so that numba looks for no negative ones. Queries of 120 documents, 32 of them at the top: 120 -> 52 ns a document, of
# loops over one field after another (AMD EPYC, one thread); their order takes 10 more.
BLOCK = N_FIELDS * LANES
_SCORE, _EXPONENTIAL, _LABEL, _FIRST, _SECOND, _THIRD, _GRAD, _HESS, _PLUS, _MINUS, _PLUS_LOSS, _MINUS_LOSS = (
    np.uint64(field * LANES)
    for field in (SCORE, EXPONENTIAL, LABEL, FIRST, SECOND, THIRD, GRAD, HESS, PLUS, MINUS, PLUS_LOSS, MINUS_LOSS)
)
_LANES = np.uint64(LANES)
N_SUMS = 5  # of a top document, in lanes: g, H, |g|, losses by t⁺ and t⁻
N_PLAIN_SUMS = 3  # without bias


@parallel_kernel
def top_lambdas_cpu(
    first, order, margin, label, factor, unit, discounts, bias, kind, n_top, is_exponential, divides, is_normalised, grad, hess,
    losses, n_threads,
):  # fmt: skip
    """Gradients by the pairs of the n_top documents of each query.

    first : int64 (n_queries + 1,). Where each query begins in the rows.
    order : int32 (n_rows,). The rows of each query by falling margin, equal ones in row order.
    margin, label : float32 (n_rows,). factor : float64 (n_queries,). What the query weighs. unit : float64 (n_queries,), see
    change. discounts : float64 (largest query,).
    bias : float64 (2, n_positions). 1/t⁺ and 1/t⁻, 0 where there is none; (2, 0): all are 1.
    divides, is_normalised : lambdarank_score_normalization and _normalization.
    grad, hess : float32 (n_rows,), OUT.
    losses : float64 (2, n_rows), OUT, by t⁺ and t⁻, of no meaning beyond the positions; (2, 0) without bias.
    """
    counter, largest = zeros(1, np.int64), 0
    for query in range(factor.size):
        largest = max(largest, first[query + 1] - first[query])
    launch(n_threads, _top_queries, (
        counter, largest, first, order, margin, label, factor, unit, discounts, bias, kind, n_top, is_exponential, divides,
        is_normalised, grad, hess, losses,
    ))  # fmt: skip


@parallel_kernel.part
def _top_queries(
    counter, largest, first, order, margin, label, factor, unit, discounts, bias, kind, n_top, is_exponential, divides,
    is_normalised, grad, hess, losses,
):  # fmt: skip
    facts, blocks = zeros((N_FIELDS, largest), np.float64), empty((largest + LANES - 1) // LANES * BLOCK, np.float64)
    lanes, is_unbiased = empty(N_SUMS * LANES, np.float64), bias.shape[1] > 0
    while True:
        query = claim(counter)
        if query >= factor.size:
            return
        begin, n = first[query], first[query + 1] - first[query]
        own, norm, total = order[begin : begin + n], 1.0, 0.0
        list_documents(begin, own, margin, label, kind, is_exponential, discounts, bias, facts)
        offset, slope = score_offset(divides, facts[SCORE, 0] == facts[SCORE, n - 1])
        _fill_blocks(facts, n, blocks)
        for place in range(min(n_top, n)):
            lanes[:] = 0.0
            if is_unbiased:
                _add_unbiased_pairs(facts, place, n, kind, unit[query], offset, slope, blocks, lanes)
            elif kind == NDCG:
                _add_pairs(facts, place, n, NDCG, unit[query], offset, slope, blocks, lanes)
            elif kind == MAP:
                _add_pairs(facts, place, n, MAP, unit[query], offset, slope, blocks, lanes)
            else:
                _add_pairs(facts, place, n, PAIRWISE, unit[query], offset, slope, blocks, lanes)
            _fold(lanes, N_SUMS if is_unbiased else N_PLAIN_SUMS)
            total += lanes[2 * LANES]
            at = place // LANES * BLOCK + place % LANES
            for field, k in ((GRAD, 0), (HESS, 1), (PLUS_LOSS, 3), (MINUS_LOSS, 4)):
                blocks[at + field * LANES] += lanes[k * LANES]
        for place in range(n):
            at = place // LANES * BLOCK + place % LANES
            for field in (GRAD, HESS, PLUS_LOSS, MINUS_LOSS):
                facts[field, place] = blocks[at + field * LANES]
        if is_normalised:
            norm = norm_of(total)
        put_gradients(own, facts, norm * factor[query], grad, hess, losses)


@parallel_kernel.part
def _fill_blocks(facts, n, blocks):
    """blocks : float64 (≥ ⌈n/LANES⌉·BLOCK,), OUT. Behind the last of the n documents of the query it is repeated."""
    for first in range(0, n, LANES):
        block = blocks[first * N_FIELDS : first * N_FIELDS + BLOCK]
        for field in range(N_FIELDS):
            last = min(first + LANES, n)
            block[field * LANES : field * LANES + last - first] = facts[field, first:last]
            block[field * LANES + last - first : (field + 1) * LANES] = facts[field, n - 1]


@parallel_kernel.part
def _add_pairs(facts, place, n, kind, unit, offset, slope, blocks, lanes):
    """The pairs of the document at a place with all below it.

    blocks : INOUT, sums of those below. lanes : float64 (N_SUMS·LANES,), INOUT, sums of the document at the place."""
    score, exponential, label = facts[SCORE, place], facts[EXPONENTIAL, place], facts[LABEL, place]
    first, second, own, end = facts[FIRST, place], facts[SECOND, place], uint64(place), uint64(n)
    for block in range((place + 1) // LANES, (n + LANES - 1) // LANES):
        start = uint64(block * BLOCK)
        for lane in range(_LANES):
            at, below = start + lane, uint64(block * LANES) + lane
            e, y = blocks[at + _EXPONENTIAL], blocks[at + _LABEL]
            c = change(
                kind, place, label, first, second, y, blocks[at + _FIRST], blocks[at + _SECOND], blocks[at + _THIRD], unit
            )
            c = c if below > own and below < end else 0.0
            q = quotient(score, exponential, blocks[at + _SCORE], e, c, offset, slope)
            g, h = gradient_of(label, exponential, y, e, q), hessian_of(exponential, e, q)
            blocks[at + _GRAD] -= g
            blocks[at + _HESS] += h
            lanes[lane] += g
            lanes[lane + _LANES] += h
            lanes[lane + np.uint64(2) * _LANES] += abs(g)


@parallel_kernel.part
def _add_unbiased_pairs(facts, place, n, kind, unit, offset, slope, blocks, lanes):
    """_add_pairs, with bias."""
    score, exponential, label = facts[SCORE, place], facts[EXPONENTIAL, place], facts[LABEL, place]
    first, second, plus, minus = facts[FIRST, place], facts[SECOND, place], facts[PLUS, place], facts[MINUS, place]
    own, end = uint64(place), uint64(n)
    for block in range((place + 1) // LANES, (n + LANES - 1) // LANES):
        start = uint64(block * BLOCK)
        for lane in range(_LANES):
            at, below = start + lane, uint64(block * LANES) + lane
            s, e, y = blocks[at + _SCORE], blocks[at + _EXPONENTIAL], blocks[at + _LABEL]
            c = change(
                kind, place, label, first, second, y, blocks[at + _FIRST], blocks[at + _SECOND], blocks[at + _THIRD], unit
            )
            c = c if below > own and below < end else 0.0
            g, h, to_plus, to_minus, to_plus_below, to_minus_below = unbiased_terms(
                score, exponential, label, plus, minus, s, e, y, blocks[at + _PLUS], blocks[at + _MINUS], c, offset, slope
            )
            blocks[at + _GRAD] -= g
            blocks[at + _HESS] += h
            blocks[at + _PLUS_LOSS] += to_plus_below
            blocks[at + _MINUS_LOSS] += to_minus_below
            lanes[lane] += g
            lanes[lane + _LANES] += h
            lanes[lane + np.uint64(2) * _LANES] += abs(g)
            lanes[lane + np.uint64(3) * _LANES] += to_plus
            lanes[lane + np.uint64(4) * _LANES] += to_minus


@parallel_kernel.part
def _fold(lanes, n_sums):
    """The sum of all lanes into the first."""
    for first in range(0, n_sums * LANES, LANES):  # the length of each loop is known, so that LLVM vectorises it
        for lane in range(16):
            lanes[first + lane] += lanes[first + 16 + lane]
        for lane in range(8):
            lanes[first + lane] += lanes[first + 8 + lane]
        for lane in range(4):
            lanes[first + lane] += lanes[first + 4 + lane]
        lanes[first] = (lanes[first] + lanes[first + 2]) + (lanes[first + 1] + lanes[first + 3])


# ---------------------------------------------------------------------------------------------------------------------
# CUDA. A block per query: a thread for each document sums what those above it bring, then a warp for each top document what those
# below it do; every pair is computed twice, so that nothing is added atomically. Facts lie in global memory, 64 or 104 bytes a
# row. 10,000 queries of 120 documents: 66M pairs of some 30 float64 operations, 0.06 ms at 34 TFLOP/s; 0.1 GB of facts written
# and read.


@cuda_kernel(
    "first: int64[:], order: int32[:], margin: float32[:], label: float32[:], factor: float64[:], unit: float64[:], "
    "discounts: float64[:], bias: float64[:, :], kind: int64, n_top: int64, is_exponential: int64, divides: int64, "
    "is_normalised: int64, facts: float64[:, :], grad: float32[:], hess: float32[:], losses: float64[:, :]",
    registers=128, uses_double=True,
)  # fmt: skip
def top_lambdas_kernel(
    first, order, margin, label, factor, unit, discounts, bias, kind, n_top, is_exponential, divides, is_normalised, facts, grad,
    hess, losses,
):  # fmt: skip
    """top_lambdas_cpu. facts : float64 (N_PLAIN, or N_FIELDS for MAP and with bias; n_rows), SCRATCH, by place."""
    query = int64(cuda.blockIdx.x)
    while query < factor.size:
        begin, n = first[query], first[query + 1] - first[query]
        list_query(begin, n, order, margin, label, kind, is_exponential, discounts, bias, facts)
        offset, slope = score_offset(divides, facts[SCORE, begin] == facts[SCORE, begin + n - 1])
        place = int64(cuda.threadIdx.x)
        while place < n:
            add_from_above(begin, place, min(n_top, place), kind, unit[query], offset, slope, bias.shape[1] > 0, facts)
            place += int64(cuda.blockDim.x)
        cuda.syncthreads()  # sums of what is above
        place = int64(cuda.threadIdx.x >> 5)
        while place < min(n_top, n):
            add_from_below(begin, place, n, kind, unit[query], offset, slope, bias.shape[1] > 0, facts)
            place += int64(cuda.blockDim.x >> 5)
        cuda.syncthreads()  # all sums are there
        norm = float64(1.0)
        if is_normalised != 0:
            total, top = float64(0.0), int64(0)
            while top < min(n_top, n):
                total += facts[TOTAL, begin + top]
                top += int64(1)
            norm = norm_of(total)
        put_query(begin, n, order, norm * factor[query], facts, grad, hess, losses)
        query += int64(cuda.gridDim.x)


@device_function
def add_from_above(begin, place, n_above, kind, unit, offset, slope, is_unbiased, facts):
    """Sums of the document at a place, of its pairs with the first n_above."""
    g, h, to_plus, to_minus = float64(0.0), float64(0.0), float64(0.0), float64(0.0)
    for above in range(n_above):
        c = change_of(facts, begin + above, begin + place, kind, unit, begin)
        if is_unbiased:
            own_g, own_h, plus, minus, plus_below, minus_below = unbiased_pair(
                facts, begin + above, begin + place, c, offset, slope
            )
            to_plus += plus_below
            to_minus += minus_below
        else:
            own_g, own_h = plain_pair(facts, begin + above, begin + place, c, offset, slope)
        g -= own_g
        h += own_h
    facts[GRAD, begin + place], facts[HESS, begin + place] = g, h
    if is_unbiased:
        facts[PLUS_LOSS, begin + place], facts[MINUS_LOSS, begin + place] = to_plus, to_minus


@device_function
def add_from_below(begin, place, n, kind, unit, offset, slope, is_unbiased, facts):
    """Add to the sums of a top document those of its pairs with all below it. A warp calls it."""
    g, h, total, to_plus, to_minus = float64(0.0), float64(0.0), float64(0.0), float64(0.0), float64(0.0)
    below = (place + int64(1)) // LANES * LANES + int64(lane_number())
    while below < n:
        if below > place:
            c = change_of(facts, begin + place, begin + below, kind, unit, begin)
            if is_unbiased:
                own_g, own_h, plus, minus, plus_below, minus_below = unbiased_pair(
                    facts, begin + place, begin + below, c, offset, slope
                )
                to_plus += plus
                to_minus += minus
            else:
                own_g, own_h = plain_pair(facts, begin + place, begin + below, c, offset, slope)
            g += own_g
            h += own_h
            total += abs(own_g)
        below += int64(LANES)
    g, h, total = warp_sum(g), warp_sum(h), warp_sum(total)
    if is_unbiased:
        to_plus, to_minus = warp_sum(to_plus), warp_sum(to_minus)
    if lane_number() == 0:
        facts[GRAD, begin + place] += g
        facts[HESS, begin + place] += h
        facts[TOTAL, begin + place] = total
        if is_unbiased:
            facts[PLUS_LOSS, begin + place] += to_plus
            facts[MINUS_LOSS, begin + place] += to_minus
