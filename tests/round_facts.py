"""The facts of a round as NumPy and plain Python compute them: what kernels/quantise.py chooses."""

import math

import numpy as np

from gpuboost.backend.fixed_point import magnitudes, round_key
from gpuboost.backend.plans import Penalty
from gpuboost.kernels.quantise import needs_two_limbs

BITS_16 = np.array([15, 16], np.int32)  # of a gradient without its sign, and of a hessian


def bits_of(*pairs: tuple[float, float]) -> np.ndarray:
    """int64 (n_outputs, 2): float32 bits, as the kernels report maxima."""
    return np.array(pairs, np.float32).view(np.int32).astype(np.int64).reshape(len(pairs), 2)


def is_power_of_two(x: float) -> bool:
    return math.frexp(x)[0] == 0.5


def scales_16(maxima: np.ndarray) -> np.ndarray:
    """float64 (n_outputs, 2): the powers of two that bring max |g| below 2^15 and max h below 2^16."""
    sizes = magnitudes(maxima)
    return np.where(sizes > 0.0, np.ldexp(1.0, BITS_16 - np.frexp(sizes)[1]), 1.0)


def leaf_scales(maxima: np.ndarray, global_rows: int) -> np.ndarray:
    """float64 (n_outputs, 2): powers of two with global_rows · max · scale ≤ 2^62."""
    return np.ldexp(1.0, np.minimum(62 - (max(global_rows, 1) - 1).bit_length() - np.frexp(magnitudes(maxima))[1], 1000))


def needs_refinement(sums: np.ndarray, n_rows: int, scales: np.ndarray, penalty: Penalty) -> np.ndarray:
    """bool (n_outputs,): whether two limbs are needed (kernels/quantise.py).

    sums : int64 (n_outputs, N_SUMS), over all workers, of rounding to 16 bits. n_rows : that take part. scales : scales_16.
    """
    floor = penalty.reg_lambda, penalty.min_child_weight
    pairs = zip(sums[:, 2].tolist(), sums[:, 3].tolist(), scales[:, 1].tolist())
    return np.array([bool(needs_two_limbs.py_func(quiet, light, n_rows, scale, *floor)) for quiet, light, scale in pairs])


def output_keys(seed: int, round_number: int, n_outputs: int) -> np.ndarray:
    """uint32 (n_outputs,): the hash key of stochastic rounding for each output of a round."""
    return np.array([round_key(seed, round_number, output) for output in range(n_outputs)], np.uint32)
