"""The documents of a query in the order of their scores: what a kernel keeps of each, by place."""

from numba import float32, float64, int64

from gpuboost.kernels.cuda_common import cuda, device_function
from gpuboost.kernels.jit import kernel, parallel_kernel, scalar
from gpuboost.kernels.scalar import exp_double, larger, log_double

PAIRWISE, NDCG, MAP = 0, 1, 2  # kinds of losses
LANES = 32  # of sums of floats: of places modulo 32
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


# ---------------------------------------------------------------------------------------------------------------------
# CUDA.


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
