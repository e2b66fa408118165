"""Which outputs, and how much of each, a sketch of the gradients combines: chosen on the host, the same on every worker."""

import math
from itertools import accumulate

import numpy as np

from gpuboost.backend.fixed_point import hash_words
from gpuboost.backend.plans import OutputSketch

__all__ = ["choose_outputs", "square_scale"]

Combinations = tuple[np.ndarray, np.ndarray, np.ndarray]  # first, outputs, factors of kernels/output_sketch.py


def square_scale(maxima: np.ndarray, global_rows: int) -> float:
    """The power of two with which global_rows squares of gradients sum to at most 2^62. maxima : int64 (n_outputs, 2) float32
    bits, of all workers."""
    largest = float(maxima[:, 0].astype(np.uint32).view(np.float32).max(initial=0))
    exponent = 62 - (max(global_rows, 1) - 1).bit_length() - 2 * (math.frexp(largest)[1] if largest > 0 else 0)
    return math.ldexp(1.0, min(exponent, 1000))


def choose_outputs(sketch: OutputSketch, squares: list[int]) -> Combinations:
    """The combinations of a round. squares : Σ g² of every output over all workers, in any unit."""
    k, n = sketch.size, len(squares)
    if sketch.method == "random_projection":
        signs = hash_words(sketch.key, np.arange(k, dtype=np.uint64)[:, None], np.arange(n, dtype=np.uint64)).ravel() & 1
        return np.arange(k + 1) * n, np.tile(np.arange(n, dtype=np.int32), k), (1 - 2 * signs.astype(np.int64)) / math.sqrt(k)
    total = sum(squares)
    if sketch.method == "top_outputs" or total == 0:
        chosen = sorted(sorted(range(n), key=lambda i: (-squares[i], i))[:k])
        factors = np.ones(k)
    else:
        up_to = list(accumulate(squares))
        draws = (hash_words(sketch.key, j, 0) << 32 | hash_words(sketch.key, j, 1) for j in range(k))
        places = [draw * total >> 64 for draw in draws]  # exact, of Python's integers
        chosen = sorted(next(i for i in range(n) if place < up_to[i]) for place in places)
        factors = np.array([math.sqrt(total / (k * squares[i])) for i in chosen])
    return np.arange(k + 1), np.array(chosen, np.int32), factors
