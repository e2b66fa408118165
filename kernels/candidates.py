"""What every search for splits says of a candidate, whether its bins are scanned, its values walked or its categories sorted
(splits.py, exact.py, category_splits.py): what its children score, whether it is one, and which of two is the better."""

import numpy as np
from numba import float64

from gpuboost.kernels.cuda_common import FULL_WARP, cuda, device_function, lane_number
from gpuboost.kernels.jit import inlined_scalar, scalar
from gpuboost.kernels.scalar import (
    fma,
    gain_rank,
    keeps_order,
    larger,
    node_score,
    node_score_at,
    optimal_weight,
    shared_weight,
)
from gpuboost.kernels.structs import NO_GAIN

MIN_GAIN = 1e-6  # XGBoost's kRtEps
RELATIVE_GAIN = 2.0**-44


@inlined_scalar
def node_term(grad, hess, reg_lambda, alpha, max_delta_step, lower, upper):
    """What the best weight within the bounds takes off a node; 0 for a node without hessian."""
    if hess <= float64(0.0):
        return float64(0.0)
    if max_delta_step > float64(0.0) or lower > -np.inf or upper < np.inf:
        weight = optimal_weight(grad, hess, reg_lambda, alpha, max_delta_step, lower, upper)
        return node_score_at(grad, hess, weight, reg_lambda, alpha)
    return node_score(grad, hess, reg_lambda, alpha)


@inlined_scalar
def ordered_terms(sign, gl, hl, gr, hr, grad, hess, reg_lambda, alpha, max_delta_step, lower, upper):
    """node_term of both children at the best weights that a monotone constraint leaves them, as one of several outputs: their
    own, or where these do not go its way one for both (XGBoost 3.4's way, too). Other outputs may gain so much that the split
    is worth it. With one output alone that never gains: so there such a split is none (scalar.keeps_order). grad, hess : of both.
    """
    if keeps_order(sign, gl, hl, gr, hr, reg_lambda, alpha, max_delta_step, lower, upper):
        left = node_term(gl, hl, reg_lambda, alpha, max_delta_step, lower, upper)
        return left + node_term(gr, hr, reg_lambda, alpha, max_delta_step, lower, upper)
    weight = shared_weight(grad, hess, reg_lambda, alpha, max_delta_step, lower, upper)
    return node_score_at(gl, hl, weight, reg_lambda, alpha) + node_score_at(gr, hr, weight, reg_lambda, alpha)


@scalar
def is_candidate(weight, present, total, min_child_weight):
    """Whether a split leaves hessian enough on either side: ``weight`` on the left, ``present`` of it of rows that are not
    missing."""
    rest = total - weight
    return (present > 0.0) & (rest > 0.0) & (weight >= min_child_weight) & (rest >= min_child_weight)


@scalar
def score_reaches(gl, hl, total_grad, total_hess, reg_lambda, bar):
    """Whether G_L²/(H_L + λ) + G_R²/(H_R + λ) may be as large as a bar ≥ 0: necessary, hardly more than sufficient.

    Times both denominators, with d = H_L + λ, D = H + 2·λ and G_R = G − G_L, that is
    D·G_L² + d·(G² − 2·G·G_L − bar·D + bar·d) ≥ 0: no divisions, and all but G_L and d the same for a whole node. 1e-9 of each
    term is more than its rounding. α, which only lowers the scores, is left out.
    """
    d, total = hl + reg_lambda, total_hess + reg_lambda + reg_lambda
    constant = total_grad * total_grad * (1.0 + 1e-9) - bar * total * (1.0 - 1e-9)
    rest = fma(bar, d, fma(-2.0 * total_grad, gl, constant))
    return fma(d, rest, total * (1.0 + 1e-9) * gl * gl) > 0.0


def add_gain_of(gain_of, orders_outputs=False):
    """gain + the scores of both children of one output, or a user's gain, −inf where that is no split: one candidate of
    splits._add_gains. orders_outputs : of several outputs, each with an order to keep."""
    is_own = gain_of is not None

    @inlined_scalar
    def score(gl, hl, gr, hr, node_grad, node_hess, reg_lambda, alpha, max_delta_step, lower, upper, feature, parameters):
        left = node_term(gl, hl, reg_lambda, alpha, max_delta_step, lower, upper)
        return left + node_term(gr, hr, reg_lambda, alpha, max_delta_step, lower, upper)

    gain_of = score if gain_of is None else gain_of

    @inlined_scalar
    def add_gain(
        gain, left_grad, left_hess, grad, hess, grad_unit, hess_unit,
        reg_lambda, alpha, max_delta_step, min_child_weight, lower, upper, sign, feature, parameters,
    ):  # fmt: skip
        node_grad, node_hess = grad * grad_unit, hess * hess_unit
        gl, hl = left_grad * grad_unit, left_hess * hess_unit
        gr, hr = node_grad - gl, node_hess - hl
        smallest = larger(min_child_weight, hess_unit)
        if is_own and not (hl >= smallest and hr >= smallest):
            return gain
        if orders_outputs:
            return gain + ordered_terms(
                sign, gl, hl, gr, hr, node_grad, node_hess, reg_lambda, alpha, max_delta_step, lower, upper
            )
        if not keeps_order(sign, gl, hl, gr, hr, reg_lambda, alpha, max_delta_step, lower, upper):
            return float64(NO_GAIN)
        return gain + gain_of(
            gl, hl, gr, hr, node_grad, node_hess, reg_lambda, alpha, max_delta_step, lower, upper, feature, parameters
        )

    return add_gain


# ---------------------------------------------------------------------------------------------------------------------
# CUDA


@device_function
def better(gain, choice, other_gain, other):
    """The (gain, choice) of the larger gain_rank, the lower choice of equals."""
    rank, other_rank = gain_rank(gain), gain_rank(other_gain)
    if other_rank > rank or (other_rank == rank and other < choice):
        gain, choice = other_gain, other
    return gain, choice


@device_function
def warp_best(gain, choice):
    """The best of all lanes, in every lane. All lanes call it."""
    step = 16
    while step > 0:
        other_gain, other = cuda.shfl_xor_sync(FULL_WARP, gain, step), cuda.shfl_xor_sync(FULL_WARP, choice, step)
        gain, choice = better(gain, choice, other_gain, other)
        step >>= 1
    return gain, choice


@device_function
def block_best(gain, choice, gains, choices):
    """The best of all threads of the block, in every thread. All threads call it. gains : float64 (32,), choices : int32 (32,) of
    shared memory."""
    gain, choice = warp_best(gain, choice)
    cuda.syncthreads()  # an earlier call's values have been read
    if lane_number() == 0:
        gains[cuda.threadIdx.x >> 5], choices[cuda.threadIdx.x >> 5] = gain, choice
    cuda.syncthreads()  # all warps' values are there
    for warp in range(cuda.blockDim.x >> 5):
        gain, choice = better(gain, choice, gains[warp], choices[warp])
    return gain, choice
