"""How much the gradients of a round vary beside their hessians: the default of cat_noise, anew for each round.

    s² = min(s²(objective), CHANCE · Σ g² / Σ h)        over all rows drawn and outputs, weights in g and h
    cat_spread = CHANCE · Σ g² / Σ h                    by which, all the same, categories of small hessian are judged,
    cat_step = 2^e > |g| of any row                     and by this

Sets of categories are braked by what chance gains where the variance of a gradient is s² / CHANCE times its hessian
(category_splits.py), CHANCE = 2, as the best of many sets gains more by chance than any one of them. For classes and Poisson's
counts that variance is known, if the model is right. Σ g² / Σ h, Pearson's estimate of a dispersion (McCullagh & Nelder 1989,
§4.5.2), tells whether labels vary less: where rows are all but settled, since a class is a function of a category; where counts
vary less than their mean; where weights are below 1, which shrink a variance by their square and hessians by themselves. More is
left alone: a weight of 10 may stand for ten rows.

Log loss on other rows after 100 rounds, s² of the objective alone -> so (s² = 0; XGBoost 3.4), once each: 1,000 categories of 15
rows which decide the class 0.331 -> 0.0014 (0.0014; 0.0016), 22 columns like the mushrooms' 0.0042 -> 0.0011 (0.0010; 0.0009),
100 categories and a fifth of the labels wrong 0.499 -> 0.499 (0.729; 0.719). Poisson deviance of gapminder's years of life 0.25
-> 0.12 (0.07; 0.09), of binomial counts 0.646 -> 0.612 (0.625; 0.623). Of 18 tables of benchmarks/categories.py the loss changed
by -1.0 to +0.2 %.
"""

import math

from numba import float64, int64

from gpuboost.kernels.cuda_common import ONE_BLOCK, cuda, cuda_kernel
from gpuboost.kernels.jit import kernel, scalar
from gpuboost.kernels.quantise import count_bits, power_of_two
from gpuboost.kernels.scalar import smaller

__all__ = ["choose_noise_cpu", "choose_noise_kernel"]


@scalar
def least_scale(leaf_scales, squares):
    """Of the largest gradients; infinite without any."""
    least = float64(math.inf)
    for output in range(squares.shape[0]):
        if squares[output] > int64(0):  # the scale of no gradients is another one
            least = smaller(least, leaf_scales[output, 0])
    return least


@scalar
def largest_step(global_rows, leaf_scales, squares):
    """float64: 2^e, as leaf_scale is 2^(62 − b − e) of an output; b of the rows. 0 without gradients."""
    return power_of_two(int64(62) - count_bits(global_rows)) / least_scale(leaf_scales, squares)


@scalar
def dispersion(global_rows, leaf_scales, squares, sums, scales):
    """float64: Σ g² / Σ h, each of an output on average; infinite without hessians. Where splits are searched by a sketch, sums
    are of that."""
    n_squares, n_sums, least = squares.shape[0], sums.shape[0], least_scale(leaf_scales, squares)
    # square_scale is 2^(62 − b − 2e) of the largest e
    scale = least * least / power_of_two(int64(62) - count_bits(global_rows))
    grad, hess = float64(0.0), float64(0.0)
    for output in range(n_squares):
        grad += float64(squares[output]) / scale
    for output in range(n_sums):
        hess += float64(sums[output, 1]) / scales[output, 1]
    return grad * float64(n_sums) / (hess * float64(n_squares)) if hess > float64(0.0) else float64(math.inf)


@kernel
def choose_noise_cpu(most, times, global_rows, leaf_scales, squares, sums, scales, rules):
    """Write cat_noise, cat_spread and cat_step of a round into the rules of its trees.

    most, times : float64, s²(objective) and CHANCE, or what they are beside statistics (params/fields.py). global_rows : over all
    workers. leaf_scales : float64 (n_outputs, 2), IN, of choose_scales_cpu. squares : int64 (n_outputs,), IN, of sum_squares_cpu.
    sums : int64 (n_searched, ≥ 2), IN, Σ h behind Σ g of what is in fixed point by scales : float64 (n_searched, 2).
    rules : CATEGORY_RULES (1,), INOUT.
    """
    found = times * dispersion(global_rows, leaf_scales, squares, sums, scales)
    rules[0].cat_noise, rules[0].cat_spread = smaller(found, most), found
    rules[0].cat_step = largest_step(global_rows, leaf_scales, squares)


# ---------------------------------------------------------------------------------------------------------------------
# CUDA. One thread: some ten numbers.


@cuda_kernel(
    "most: float64, times: float64, global_rows: int64, leaf_scales: float64[:, :], squares: int64[:], sums: int64[:, :], "
    "scales: float64[:, :], rules: CATEGORY_RULES[:]",
    uses_double=True, **ONE_BLOCK,
)  # fmt: skip
def choose_noise_kernel(most, times, global_rows, leaf_scales, squares, sums, scales, rules):
    """choose_noise_cpu; arguments as there."""
    if cuda.threadIdx.x == 0:
        found = times * dispersion(global_rows, leaf_scales, squares, sums, scales)
        rules[0].cat_noise, rules[0].cat_spread = smaller(found, most), found
        rules[0].cat_step = largest_step(global_rows, leaf_scales, squares)
