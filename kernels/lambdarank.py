"""Gradients of ranking losses: what each pair of documents of a query would gain by changing places (Burges 2010, LambdaMART).

Of two documents of different labels, h the one with the larger, l the other, at scores s and places of the ranking by s:

    σ = e^s_h/(e^s_h + e^s_l);   λ = (1 − σ)·c,   H = 2·max(σ·(1 − σ), 1e-16)·c;   g_h −= λ, g_l += λ, both h += H

    c = 1 for rank:pairwise; for rank:ndcg and rank:map how much the metric changes if both change places, and either divided by
    0.01 + |s_h − s_l| on demand, as in XGBoost.

Compared are the n_top documents of highest score with all below them (others: lambdarank_sampled.py). In rank order a document d
sums, in float64 and so that the order never depends on who adds:

    what those above it bring, one after another; then, if it is among the top, of the places below it those ≡ 0, 1, … 31 modulo
    32 in a lane each, and the lanes in halves: 0 + 16, 1 + 17, … then 0 + 8, … (the butterfly of a warp).

On demand (unbiased; Hu et al. 2019, Unbiased LambdaMART, Eqs. 30 and 31) λ and H are divided by t⁺(h)·t⁻(l), the biases of the
positions at which the query lists both, and the losses ln(1/(1 − σ))·c by which these are estimated are summed likewise.

e^s is taken once a document, of s less the largest of the query, and never below e^−300, where σ has long been 0 or 1.
"""

import numpy as np
from numba import float32, float64, int64

from gpuboost.kernels.cuda_common import cuda, cuda_kernel, device_function, lane_number, warp_sum
from gpuboost.kernels.jit import claim, kernel, launch, parallel_kernel, scalar
from gpuboost.kernels.scalar import exp_double, larger, log_double

PAIRWISE, NDCG, MAP = 0, 1, 2  # kinds of c
LANES = 32
TILE = 1024  # places of a pass on the CPU: some ten arrays of 8 KB
SMALLEST = 1e-16  # of σ·(1 − σ)
LOWEST = -300.0

# What a kernel keeps of the documents of a query, by place. FIRST, SECOND, THIRD: of NDCG gain and discount; of MAP the precision
# at the place, the sum of precisions at relevant places up to it, and before it. PLUS, MINUS: 1/t⁺ and 1/t⁻, 0 where there is
# none.
# Sums follow their documents: of gradients, of hessians, of |g| of a top document's pairs with those below it, and of losses.
SCORE, EXPONENTIAL, LABEL, FIRST, SECOND, GRAD, HESS, TOTAL = range(8)
N_PLAIN = 8  # fields without MAP and bias
THIRD, PLUS, MINUS, PLUS_LOSS, MINUS_LOSS = range(N_PLAIN, N_PLAIN + 5)
N_FIELDS = N_PLAIN + 5


@kernel
def fill_discounts(discounts):
    """discounts : float64 (n,), OUT: 1/log2(place + 2)."""
    for place in range(discounts.size):
        discounts[place] = 0.6931471805599453 / log_double(place + 2.0)


@scalar
def gain_of(label, is_exponential):
    """2^label − 1, or the label; float64."""
    if is_exponential:
        return float64(int64(1) << int64(label)) - float64(1.0)
    return float64(label)


@scalar
def score_offset(divides, is_flat):
    """(a, b): c is divided by a + b·|s_h − s_l|. is_flat : whether all scores of the query are equal."""
    if divides and not is_flat:
        return float64(0.01), float64(1.0)
    return float64(1.0), float64(0.0)


@scalar
def change(kind, place, label, first, second, label_below, first_below, second_below, third_below, unit):
    """|c| of the document at a place and one below it; 0 where their labels are equal. unit : 1/IDCG, or 1/relevant documents."""
    if label == label_below:
        return float64(0.0)
    if kind == NDCG:
        return abs((first - first_below) * (second - second_below)) * unit
    if kind == MAP:
        between = third_below - second
        risen = first_below - (first + float64(1.0) / float64(place + 1))
        return abs(risen - between if label < label_below else first - first_below + between) * unit
    return float64(1.0)


@scalar
def quotient(score, exponential, score_below, exponential_below, c, offset, slope):
    """What is common to λ and H of two documents: c/(e^s + e^s')², and divided by the scores' difference on demand."""
    total = exponential + exponential_below
    return c / (total * total * (offset + slope * abs(score - score_below)))


@scalar
def gradient_of(label, exponential, label_below, exponential_below, q):
    """g: what a pair brings the document at some place, and −g the one below it. q : quotient."""
    total = exponential + exponential_below
    return -exponential_below * total * q if label > label_below else exponential * total * q


@scalar
def hessian_of(exponential, exponential_below, q):
    """H of a pair."""
    total = exponential + exponential_below
    return larger(exponential * exponential_below, SMALLEST * total * total) * q * float64(2.0)


@scalar
def plain_pair(facts, place, below, c, offset, slope):
    """(g, H) of two documents. facts : float64 (≥ N_PLAIN, n), IN."""
    e, e_below = facts[EXPONENTIAL, place], facts[EXPONENTIAL, below]
    q = quotient(facts[SCORE, place], e, facts[SCORE, below], e_below, c, offset, slope)
    return gradient_of(facts[LABEL, place], e, facts[LABEL, below], e_below, q), hessian_of(e, e_below, q)


@scalar
def unbiased_pair(facts, place, below, c, offset, slope):
    """(g, H, four losses): to be added for the document at place by t⁺ and by t⁻, and for the one below it by t⁺ and by t⁻.

    facts : float64 (N_FIELDS, n), IN."""
    e, e_below = facts[EXPONENTIAL, place], facts[EXPONENTIAL, below]
    g, h = plain_pair(facts, place, below, c, offset, slope)
    is_above = facts[LABEL, place] > facts[LABEL, below]
    low = e_below if is_above else e
    loss = log_double((e + e_below) / low) * c / (offset + slope * abs(facts[SCORE, place] - facts[SCORE, below]))
    plus = facts[PLUS, place] if is_above else facts[PLUS, below]
    minus = facts[MINUS, below] if is_above else facts[MINUS, place]
    weight = plus * minus if plus * minus > float64(0.0) else float64(1.0)
    to_plus, to_minus, zero = loss * minus, loss * plus, float64(0.0)
    if is_above:
        return g * weight, h * weight, to_plus, zero, zero, to_minus
    return g * weight, h * weight, zero, to_minus, to_plus, zero


@scalar
def change_of(facts, place, below, kind, unit, begin):
    """change of two documents. begin : where their query begins in facts, to which place and below add."""
    third = facts[THIRD, below] if kind == MAP else float64(0.0)
    if kind == PAIRWISE:
        return float64(0.0) if facts[LABEL, place] == facts[LABEL, below] else float64(1.0)
    return change(
        kind, place - begin, facts[LABEL, place], facts[FIRST, place], facts[SECOND, place], facts[LABEL, below],
        facts[FIRST, below], facts[SECOND, below], third, unit,
    )  # fmt: skip


@scalar
def norm_of(total):
    """What the gradients of a query are multiplied by: log2(1 + S)/S of S = 2·Σ |λ|."""
    s = float64(2.0) * total
    if not s > float64(0.0):
        return float64(1.0)
    return log_double(float64(1.0) + s) * float64(1.4426950408889634) / s


@scalar
def put_facts(facts, at, place, score, label, kind, is_exponential, discounts, bias, position):
    """What is known of a document by itself, but for its exponential. at : its place in facts. position : where the query lists
    it."""
    facts[SCORE, at] = score
    facts[LABEL, at] = label
    if kind == NDCG:
        facts[FIRST, at] = gain_of(label, is_exponential)
        facts[SECOND, at] = discounts[place]
    if bias.shape[1] > 0:
        is_known = position < bias.shape[1]
        facts[PLUS, at] = bias[0, position] if is_known else float64(0.0)
        facts[MINUS, at] = bias[1, position] if is_known else float64(0.0)


@scalar
def exponential_of(score, highest):
    """e^(score − highest), but not below e^LOWEST. highest : score of the query."""
    return exp_double(larger(score - highest, LOWEST))


@scalar
def put_precisions(facts, at, n):
    """FIRST, SECOND and THIRD for MAP, one place after another."""
    relevant, summed = float64(0.0), float64(0.0)
    for place in range(n):
        facts[THIRD, at + place] = summed
        relevant += facts[LABEL, at + place]
        facts[FIRST, at + place] = relevant / float64(place + 1)
        summed += facts[LABEL, at + place] / float64(place + 1)
        facts[SECOND, at + place] = summed


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
    counter, largest = np.zeros(1, np.int64), 0
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
    room = (largest + LANES - 1) // LANES * LANES  # whole lanes: behind the documents lie numbers of no meaning
    facts, scratch, lanes = np.zeros((N_FIELDS, room)), np.empty((3, TILE)), np.empty((5, LANES))
    while True:
        query = claim(counter)
        if query >= factor.size:
            return
        begin, n = first[query], first[query + 1] - first[query]
        own, norm = order[begin : begin + n], 1.0
        list_documents(begin, own, margin, label, kind, is_exponential, discounts, bias, facts)
        offset, slope = score_offset(divides, facts[SCORE, 0] == facts[SCORE, n - 1])
        total = 0.0
        for place in range(min(n_top, n)):
            lanes[:] = 0.0
            if bias.shape[1] > 0:
                _add_unbiased_pairs(facts, place, n, kind, unit[query], offset, slope, lanes)
            else:
                _add_pairs(facts, place, n, kind, unit[query], offset, slope, scratch, lanes)
            _fold(lanes)
            facts[GRAD, place] += lanes[0, 0]
            facts[HESS, place] += lanes[1, 0]
            facts[PLUS_LOSS, place] += lanes[3, 0]
            facts[MINUS_LOSS, place] += lanes[4, 0]
            total += lanes[2, 0]
        if is_normalised:
            norm = norm_of(total)
        put_gradients(own, facts, norm * factor[query], grad, hess, losses)


@parallel_kernel.part
def list_documents(begin, own, margin, label, kind, is_exponential, discounts, bias, facts):
    """Facts of a query's documents, and sums of 0. own : int32 (n,), its rows, by place."""
    for place in range(own.size):
        row = own[place]
        put_facts(
            facts, place, place, float64(margin[row]), float64(label[row]), kind, is_exponential, discounts, bias,
            int64(row) - begin,
        )  # fmt: skip
    _exponentials(facts[SCORE, : own.size], facts[EXPONENTIAL, : own.size])
    if kind == MAP:
        put_precisions(facts, 0, own.size)
    for field in (GRAD, HESS, PLUS_LOSS, MINUS_LOSS):
        facts[field, : own.size] = 0.0


@parallel_kernel.part
def _exponentials(score, exponential):
    for place in range(score.size):
        exponential[place] = exponential_of(score[place], score[0])


@parallel_kernel.part
def put_gradients(own, facts, factor, grad, hess, losses):
    for place in range(own.size):
        row = own[place]
        grad[row] = float32(facts[GRAD, place] * factor)
        hess[row] = float32(facts[HESS, place] * factor)
        if losses.shape[1] > 0:
            losses[0, row], losses[1, row] = facts[PLUS_LOSS, place], facts[MINUS_LOSS, place]


@parallel_kernel.part
def _add_pairs(facts, place, n, kind, unit, offset, slope, scratch, lanes):
    """The pairs of the document at a place with all below it, TILE by TILE, in loops over so few arrays that LLVM vectorises
    them."""
    label, exponential = facts[LABEL, place], facts[EXPONENTIAL, place]
    room = (n + LANES - 1) // LANES * LANES
    for begin in range((place + 1) // LANES * LANES, n, TILE):
        end = min(begin + TILE, room)
        labels, exponentials = facts[LABEL, begin:end], facts[EXPONENTIAL, begin:end]
        q, g, h = scratch[0, : end - begin], scratch[1, : end - begin], scratch[2, : end - begin]
        _quotients(
            kind, place, label, facts[FIRST, place], facts[SECOND, place], facts[SCORE, place], exponential, unit, offset, slope,
            labels, facts[FIRST, begin:end], facts[SECOND, begin:end], facts[THIRD, begin:end], facts[SCORE, begin:end],
            exponentials, q,
        )  # fmt: skip
        q[: max(place + 1 - begin, 0)] = 0.0
        q[n - begin :] = 0.0
        _add_gradients(label, exponential, labels, exponentials, q, g, facts[GRAD, begin:end])
        _add_hessians(exponential, exponentials, q, h, facts[HESS, begin:end])
        _add_to_lanes(g, lanes[0])
        _add_to_lanes(h, lanes[1])
        _add_magnitudes_to_lanes(g, lanes[2])


@parallel_kernel.part
def _quotients(
    kind, place, label, first, second, score, exponential, unit, offset, slope, labels, firsts, seconds, thirds, scores,
    exponentials, q,
):  # fmt: skip
    for j in range(q.size):
        c = change(kind, place, label, first, second, labels[j], firsts[j], seconds[j], thirds[j], unit)
        q[j] = quotient(score, exponential, scores[j], exponentials[j], c, offset, slope)


@parallel_kernel.part
def _add_gradients(label, exponential, labels, exponentials, q, g, grad):
    for j in range(q.size):
        g[j] = gradient_of(label, exponential, labels[j], exponentials[j], q[j])
        grad[j] -= g[j]


@parallel_kernel.part
def _add_hessians(exponential, exponentials, q, h, hess):
    for j in range(q.size):
        h[j] = hessian_of(exponential, exponentials[j], q[j])
        hess[j] += h[j]


@parallel_kernel.part
def _add_to_lanes(values, lanes):
    for j in range(0, values.size, LANES):
        for lane in range(LANES):
            lanes[lane] += values[j + lane]


@parallel_kernel.part
def _add_magnitudes_to_lanes(values, lanes):
    for j in range(0, values.size, LANES):
        for lane in range(LANES):
            lanes[lane] += abs(values[j + lane])


@parallel_kernel.part
def _add_unbiased_pairs(facts, place, n, kind, unit, offset, slope, lanes):
    for below in range(place + 1, n):
        c = change_of(facts, place, below, kind, unit, 0)
        g, h, plus, minus, plus_below, minus_below = unbiased_pair(facts, place, below, c, offset, slope)
        facts[GRAD, below] -= g
        facts[HESS, below] += h
        facts[PLUS_LOSS, below] += plus_below
        facts[MINUS_LOSS, below] += minus_below
        lane = below & (LANES - 1)
        lanes[0, lane] += g
        lanes[1, lane] += h
        lanes[2, lane] += abs(g)
        lanes[3, lane] += plus
        lanes[4, lane] += minus


@parallel_kernel.part
def _fold(lanes):
    """The sum of all lanes into the first."""
    step = LANES // 2
    while step > 0:
        for k in range(lanes.shape[0]):
            for lane in range(step):
                lanes[k, lane] += lanes[k, lane + step]
        step //= 2


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
def list_query(begin, n, order, margin, label, kind, is_exponential, discounts, bias, facts):
    """list_documents, at ``begin``. All threads of the block call it, and may read the facts after it."""
    highest = float64(margin[order[begin]])
    place = int64(cuda.threadIdx.x)
    while place < n:
        row = int64(order[begin + place])
        put_facts(
            facts, begin + place, place, float64(margin[row]), float64(label[row]), kind, is_exponential, discounts, bias,
            row - begin,
        )  # fmt: skip
        facts[EXPONENTIAL, begin + place] = exponential_of(float64(margin[row]), highest)
        place += int64(cuda.blockDim.x)
    cuda.syncthreads()  # the labels by place are there
    if kind == MAP and cuda.threadIdx.x == 0:
        put_precisions(facts, begin, n)
    cuda.syncthreads()  # all facts are there


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


@device_function
def put_query(begin, n, order, factor, facts, grad, hess, losses):
    """put_gradients, by the threads of a block."""
    place = int64(cuda.threadIdx.x)
    while place < n:
        row = int64(order[begin + place])
        grad[row] = float32(facts[GRAD, begin + place] * factor)
        hess[row] = float32(facts[HESS, begin + place] * factor)
        if losses.shape[1] > 0:
            losses[0, row] = facts[PLUS_LOSS, begin + place]
            losses[1, row] = facts[MINUS_LOSS, begin + place]
        place += int64(cuda.blockDim.x)
