"""Gradients of ranking losses: what a pair of documents of a query would gain by changing places (Burges 2010, LambdaMART).

Of two documents of different labels, h the one with the larger, l the other, at scores s and places of the ranking by s:

    σ = e^s_h/(e^s_h + e^s_l);   λ = (1 − σ)·c,   H = 2·max(σ·(1 − σ), 1e-16)·c;   g_h −= λ, g_l += λ, both h += H

    c = 1 for rank:pairwise; for rank:ndcg and rank:map how much the metric changes if both change places, and either divided by
    0.01 + |s_h − s_l| on demand, as in XGBoost.

Which documents are compared, and in what order sums are made: lambdarank_top.py, lambdarank_sampled.py.

On demand (unbiased; Hu et al. 2019, Unbiased LambdaMART, Eqs. 30 and 31) λ and H are divided by t⁺(h)·t⁻(l), the biases of the
positions at which the query lists both, and the losses ln(1/(1 − σ))·c by which these are estimated are summed likewise.

e^s is taken once a document, of s less the largest of the query, and never below e^−300, where σ has long been 0 or 1
(ranked_documents.py).
"""

from numba import float64

from gpuboost.kernels.jit import scalar
from gpuboost.kernels.ranked_documents import (
    EXPONENTIAL,
    FIRST,
    LABEL,
    MAP,
    MINUS,
    NDCG,
    PAIRWISE,
    PLUS,
    SCORE,
    SECOND,
    THIRD,
)
from gpuboost.kernels.scalar import larger, log_double

SMALLEST = 1e-16  # of σ·(1 − σ)


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
def unbiased_terms(
    score, exponential, label, plus, minus, score_below, exponential_below, label_below, plus_below, minus_below, c, offset, slope
):
    """(g, H, four losses) of two documents: to be added for the one above by t⁺ and by t⁻, and for the one below by both.

    plus, minus : 1/t⁺ and 1/t⁻ of their positions, 0 where there is none."""
    q = quotient(score, exponential, score_below, exponential_below, c, offset, slope)
    g = gradient_of(label, exponential, label_below, exponential_below, q)
    h = hessian_of(exponential, exponential_below, q)
    is_above = label > label_below
    low = exponential_below if is_above else exponential
    loss = log_double((exponential + exponential_below) / low) * c / (offset + slope * abs(score - score_below))
    better = plus if is_above else plus_below
    worse = minus_below if is_above else minus
    weight = better * worse if better * worse > float64(0.0) else float64(1.0)
    to_plus, to_minus, zero = loss * worse, loss * better, float64(0.0)
    return (
        g * weight, h * weight, to_plus if is_above else zero, zero if is_above else to_minus, zero if is_above else to_plus,
        to_minus if is_above else zero,
    )  # fmt: skip


@scalar
def plain_pair(facts, place, below, c, offset, slope):
    """(g, H) of two documents. facts : float64 (≥ N_PLAIN, n), IN."""
    e, e_below = facts[EXPONENTIAL, place], facts[EXPONENTIAL, below]
    q = quotient(facts[SCORE, place], e, facts[SCORE, below], e_below, c, offset, slope)
    return gradient_of(facts[LABEL, place], e, facts[LABEL, below], e_below, q), hessian_of(e, e_below, q)


@scalar
def unbiased_pair(facts, place, below, c, offset, slope):
    """unbiased_terms. facts : float64 (N_FIELDS, n), IN."""
    return unbiased_terms(
        facts[SCORE, place], facts[EXPONENTIAL, place], facts[LABEL, place], facts[PLUS, place], facts[MINUS, place],
        facts[SCORE, below], facts[EXPONENTIAL, below], facts[LABEL, below], facts[PLUS, below], facts[MINUS, below], c, offset,
        slope,
    )  # fmt: skip


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
