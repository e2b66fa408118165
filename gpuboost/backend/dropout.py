"""Which trees a round of dart leaves out, and what all of them weigh after it (training/dart.py): chosen on the host, the same on
every worker and device."""

from collections.abc import Sequence
from itertools import accumulate

import numpy as np

from gpuboost.backend.fixed_point import round_key
from gpuboost.params import Params

__all__ = ["VALUES_AT_ONCE", "draw_dropped", "weights_after"]

VALUES_AT_ONCE = 2**24  # leaves of rows that are read together, 64 MB

DROP, SKIP, ONE = 0xDA270001, 0xDA270002, 0xDA270003  # words that are no number of an output
UNIT = 2.0**-32  # of a hash: from 0 up to, but not, 1


def draw_dropped(params: Params, weights: Sequence[float], round_number: int) -> list[int]:
    """The numbers of the trees that a round leaves out, ascending. weights : of all trees so far."""
    seed, n, total = params.seed, len(weights), sum(weights)

    if n == 0 or round_key(seed, round_number, SKIP) * UNIT < params.skip_drop:
        return []
    is_weighted = params.sample_type == "weighted" and total > 0
    share = [params.rate_drop * n * weight / total for weight in weights] if is_weighted else [params.rate_drop] * n
    dropped = np.flatnonzero(round_key(seed, round_number, DROP, np.arange(n, dtype=np.uint64)) * UNIT < share).tolist()
    if params.one_drop and not dropped:
        ends = list(accumulate(weights if is_weighted else [1.0] * n))
        drawn = round_key(seed, round_number, ONE) * UNIT * ends[-1]
        dropped = [next(i for i, end in enumerate(ends) if drawn < end or i == n - 1)]
    return dropped


def weights_after(weights: Sequence[float], dropped: Sequence[int], n_new: int, params: Params) -> list[float]:
    """What all trees weigh after a round that dropped some and grew n_new: in float32, as XGBoost computes, and files hold it."""
    f32, k = np.float32, len(dropped)
    rate = f32(params.learning_rate)
    if k == 0:
        factor = new = f32(1)
    elif params.normalize_type == "forest":
        factor = new = f32(1 / float(f32(1) + rate))
    else:
        factor, new = f32(k / float(f32(k) + rate)), f32(1 / float(f32(k) + rate))
    after = [*weights, *[float(new)] * n_new]
    for i in dropped:
        after[i] = float(f32(after[i]) * factor)
    return after
