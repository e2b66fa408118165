"""Which outputs, and how much of each, a sketch of the gradients combines: chosen on the host, the same on every worker."""

import math
from itertools import accumulate

import numpy as np

from gpuboost.backend.fixed_point import hash_words
from gpuboost.backend.plans import OutputSketch

__all__ = ["choose_outputs"]


def choose_outputs(sketch: OutputSketch, squares: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """The combinations of a round: int32 (k, m) and float64 (k, m), outputs and factors of kernels/output_sketch.py.

    squares : Σ g² of every output over all workers, in any unit. Sums of them are float64, one after another.
    """
    k, n = sketch.size, len(squares)
    if sketch.method == "random_projection":
        signs = hash_words(sketch.key, np.arange(k, dtype=np.uint64)[:, None], np.arange(n, dtype=np.uint64)) & 1
        return np.tile(np.arange(n, dtype=np.int32), (k, 1)), (1 - 2 * signs.astype(np.int64)) / math.sqrt(k)
    up_to = list(accumulate(map(float, squares)))
    total = up_to[-1]
    if sketch.method == "top_outputs" or total == 0:
        chosen = sorted(sorted(range(n), key=lambda i: (-squares[i], i))[:k])
        factors = np.ones(k)
    else:
        draws = (hash_words(sketch.key, j, 0) << 32 | hash_words(sketch.key, j, 1) for j in range(k))
        places = [(draw >> 11) * 2.0**-53 * total for draw in draws]
        chosen = sorted(next(i for i in range(n) if place < up_to[i]) for place in places)
        factors = np.array([math.sqrt(total / (k * float(squares[i]))) for i in chosen])
    return np.array(chosen, np.int32)[:, None], factors[:, None]
