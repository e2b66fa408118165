"""The scales of fixed point and the keys of random choices: a few numbers per round, computed on the host the same way for every
backend."""

import math
from collections.abc import Iterable
from fractions import Fraction
from typing import overload

import numpy as np

from gpuboost.communicator import Communicator
from gpuboost.kernels.gradients import NON_FINITE_BITS
from gpuboost.kernels.leaf_quantiles import WEIGHT_BITS
from gpuboost.kernels.row_sampling import FIRST_WORD, N_KEYS

__all__ = [
    "as_ratios", "check_finite", "exact_scale", "exact_sum", "hash_words", "largest_of", "magnitudes", "not_negative",
    "round_key", "sampling_keys", "sum_scale", "sum_scales", "weight_factor",
]  # fmt: skip


def not_negative(hess: np.ndarray) -> np.ndarray:
    """Hessians of a user's objective, negative ones as 0, but for −inf, which is as little finite as inf."""
    return np.where((hess < 0) & np.isfinite(hess), np.float32(0), hess)


def check_finite(maxima: np.ndarray) -> None:
    """FloatingPointError when a gradient or hessian was NaN or infinite. maxima : int64 (n_outputs, 2) float32 bits."""
    if max(maxima.ravel().tolist(), default=0) >= NON_FINITE_BITS:  # of a few numbers, in a third of the time of a reduction
        raise FloatingPointError(
            "a gradient or hessian is not finite: the margins or labels have grown beyond float32, or a custom objective "
            "returned NaN or infinity. Use a smaller learning_rate, set max_delta_step, or scale the labels or weights down."
        )


def magnitudes(maxima: np.ndarray) -> np.ndarray:
    """float64 of the bits of float32, int64, of any shape."""
    return maxima.astype(np.uint32).view(np.float32).astype(np.float64)


def sum_scale(largest: float, n_terms: int) -> float:
    """The power of two with which n_terms integers of |value| ≤ largest sum to at most 2^62, or 2^1000 if that is less."""
    return math.ldexp(1.0, min(_sum_bits(n_terms) - math.frexp(largest)[1], 1000))


def exact_scale(largest: float, n_terms: int) -> float:
    """sum_scale with ten bits less: such sums are exact in float64."""
    return math.ldexp(sum_scale(largest, n_terms), -10)


def sum_scales(largest: np.ndarray, n_terms: np.ndarray) -> np.ndarray:
    """sum_scale of each; float64 (n,)."""
    sum_bits = 62 - np.frexp(np.maximum(n_terms, 1) - 1.0)[1]
    return np.ldexp(1.0, np.minimum(sum_bits - np.frexp(largest)[1], 1000))


def _sum_bits(n_terms: int) -> int:
    """Bits of each of so many terms that sum to at most 2^62."""
    return 62 - (max(n_terms, 1) - 1).bit_length()


def largest_of(values: np.ndarray, comm: Communicator) -> float:
    """The largest of all workers' float64 values, none of them negative; 0 without any."""
    bits = np.array([values.max(initial=0.0)]).view(np.int64)
    comm.allreduce_max(bits)
    return float(bits.view(np.float64)[0])


def exact_sum(values: np.ndarray, scale: float, comm: Communicator) -> int:
    """Σ ⌊value·scale + ½⌋ over all workers, scale by sum_scale. values : float64 (n,)."""
    total = np.array([np.floor(values * scale + 0.5).astype(np.int64).sum()], np.int64)
    comm.allreduce_sum(total)
    return int(total[0])


def weight_factor(global_rows: int) -> float:
    """What makes the scale of a leaf's hessians one that takes each below 2^WEIGHT_BITS (kernels/leaf_quantiles.py)."""
    return 2.0 ** (WEIGHT_BITS - 62 + (max(global_rows, 1) - 1).bit_length())


def sampling_keys(seed: int, round_number: int) -> np.ndarray:
    """uint64 (N_KEYS,): the keys of the permutation that draws rows (kernels/row_sampling.py)."""
    words = [round_key(seed, round_number, FIRST_WORD + i) for i in range(2 * N_KEYS)]
    return np.array([high << 32 | low for high, low in zip(words[::2], words[1::2])], np.uint64)


@overload
def round_key(seed: int, round_number: int, *words: int) -> int: ...  # type: ignore[overload-overlap]
@overload
def round_key(seed: int, round_number: int, *words: int | np.ndarray) -> np.ndarray: ...
def round_key(seed: int, round_number: int, *words: int | np.ndarray) -> int | np.ndarray:
    """The hash from which the random choices of a round go on, or of the one that the words name. words : as hash_words."""
    return hash_words(seed & 0xFFFFFFFF, seed >> 32 & 0xFFFFFFFF, round_number, *words)


@overload
def hash_words(*words: int) -> int: ...  # type: ignore[overload-overlap]
@overload
def hash_words(*words: int | np.ndarray) -> np.ndarray: ...
def hash_words(*words: int | np.ndarray) -> int | np.ndarray:
    """One 32-bit hash of several words: MurmurHash3's finaliser (scalar.mix32) after each of them, in exact integers.

    A word may be a uint64 array: then it is those of all its values.
    """
    state: int | np.ndarray = 0x9E3779B9
    for word in words:
        x = (state ^ word) & 0xFFFFFFFF
        x = ((x ^ x >> 16) * 0x85EBCA6B) & 0xFFFFFFFF
        x = ((x ^ x >> 13) * 0xC2B2AE35) & 0xFFFFFFFF
        state = (x ^ x >> 16) + 0x9E3779B9
    return state & 0xFFFFFFFF


def as_ratios(alphas: Iterable[float]) -> np.ndarray:
    """int64 (n, 2): α as it is written, numerator and denominator below 2^31, or the nearest such; a tenth is 1/10."""
    ratios = [Fraction(str(alpha)).limit_denominator(2**31 - 1).as_integer_ratio() for alpha in alphas]
    return np.array(ratios, np.int64).reshape(-1, 2)
