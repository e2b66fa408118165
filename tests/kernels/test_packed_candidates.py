"""kernels/packed_candidates.py: no candidate that reaches the bar is missed, and hardly one that does not is let through."""

from fractions import Fraction
from functools import cache

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuboost.kernels import packed_candidates
from gpuboost.kernels.packed_candidates import CHUNK, count_ones, lowest_one, sum_up_packed

TOTALS = st.tuples(st.integers(-(2**31) + 1, 2**31 - 1), st.integers(1, 2**32 - 1))


@cache
def compiled(lanes):
    """reaching_packed as for a processor of so many lanes; others than this one's are made of several instructions."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packed_candidates, "_lanes", lambda context: lanes)
        types = "uint64(int64[:, ::1], int64, int64[::1], int64, int64, float64, float64, float64, float64, float64)"
        return numba.njit(types)(packed_candidates.reaching_packed.py_func)


def reaching(*args):
    of_eight, of_sixteen = compiled(8)(*args), compiled(16)(*args)
    assert of_eight == of_sixteen
    return of_eight


@numba.njit
def sum_up(hist, column, n, sums):
    sum_up_packed(hist, column, n, sums)


@numba.njit
def bits_of(word):
    found = []
    while word != 0:
        found.append((count_ones(word), lowest_one(word)))
        word &= word - numba.uint64(1)
    return found


def pack(grad, hess):
    return (np.asarray(grad, np.int64) << 32) + np.asarray(hess, np.int64)


def score(grad, hess, total_grad, total_hess, reg_lambda):
    """Of both children, exactly; grad and hess : ints of the left one."""
    reg_lambda = Fraction(reg_lambda)
    return grad**2 / (hess + reg_lambda) + (total_grad - grad) ** 2 / (total_hess - hess + reg_lambda)


def is_clearly_below(grad, hess, total_grad, total_hess, reg_lambda, bar):
    d, total, bar = hess + Fraction(reg_lambda), total_hess + 2 * Fraction(reg_lambda), Fraction(bar)
    largest = total * grad**2 + d * (total_grad**2 + bar * total)
    return total * grad**2 + d * (total_grad**2 - 2 * total_grad * grad - bar * total + bar * d) < -largest / 100_000


@settings(max_examples=300)
@given(
    st.integers(0, 2**32), TOTALS, st.sampled_from([0.0, 1.0, 1e3, 1e9]) | st.floats(0, 1e6),
    st.sampled_from([1.0, 2.0, 1e4, 1e9]), st.integers(0, CHUNK - 1), st.sampled_from([0, 5]), st.booleans(),
)  # fmt: skip
def test_what_reaches_the_bar_is_found(seed, totals, reg_lambda, smallest, which, begin, has_missing):
    rng, (total_grad, total_hess) = np.random.default_rng(seed), totals
    hess = np.sort(rng.integers(0, total_hess + 1, CHUNK))
    spread = int(min(2.0**31 - 1 - abs(total_grad), 2.0 ** rng.integers(0, 31)))
    grad = (hess / total_hess * total_grad).astype(np.int64) + rng.integers(-spread, spread + 1, CHUNK)
    grad = np.clip(grad, -(2**31) + 1, 2**31 - 1)
    missing = pack(rng.integers(-9, 10), 3) if has_missing else pack(0, 0)
    sums = np.concatenate([np.full(begin, 77), pack(grad, hess) - missing]).astype(np.int64)
    hist = np.stack([np.zeros_like(sums), np.diff(sums, prepend=0)])
    is_full = hist[1, begin:] != 0
    scores = [score(int(g), int(h), total_grad, total_hess, reg_lambda) if 0 < h < total_hess else 0 for g, h in zip(grad, hess)]
    bar = float(scores[which]) * (1 - 2.0**-50)  # one of the candidates just reaches it
    found = reaching(hist, 1, sums, begin, missing, float(total_grad), float(total_hess), reg_lambda, smallest, bar)
    is_found = np.array([bool(found >> b & 1) for b in range(CHUNK)])
    is_heavy = (hess >= smallest) & (total_hess - hess >= smallest)
    reaches = is_heavy & np.array([s >= bar for s in scores])
    assert not (reaches & is_full & ~is_found).any()
    assert not (is_found & ~is_full).any()
    # Let through only where the five terms come to nearly nothing beside the largest two, or the weight is next to the least.
    is_far = np.array([is_clearly_below(int(g), int(h), total_grad, total_hess, reg_lambda, bar) for g, h in zip(grad, hess)])
    is_light = (hess < smallest - 1e-5 * total_hess) | (total_hess - hess < smallest - 1e-5 * total_hess)
    assert not (is_found & (is_far & is_heavy | is_light)).any()


@pytest.mark.parametrize("bar", [np.inf, 3e38, 1e300])
def test_what_is_beyond_float32_counts_as_reaching(bar):
    """Never is a candidate lost to an overflow: then the exact gain tells."""
    sums = pack(np.full(CHUNK, 2**31 - 1), np.full(CHUNK, 2**31))
    hist = np.ones((1, CHUNK), np.int64)
    assert reaching(hist, 0, sums, 0, 0, 2.0**31 - 1, 2.0**32 - 1, 0.0, 1.0, bar) in (0, 2**64 - 1)
    assert reaching(hist, 0, sums, 0, 0, 2.0**31 - 1, 2.0**32 - 1, np.inf, 1.0, 1.0) == 2**64 - 1


@pytest.mark.parametrize("n", [1, 7, 8, 63, 64, 65, 255, 256])
@pytest.mark.parametrize("column", [0, 2])
def test_sums_up_to_each_bin(n, column):
    hist = np.random.default_rng(n).integers(-(2**62), 2**62, (3, 264))
    sums = np.full(300, 77)
    sum_up(hist, column, n, sums)
    whole = -(-n // CHUNK) * CHUNK
    np.testing.assert_array_equal(sums[:whole], np.cumsum(hist[column, :whole]))  # beyond 64 bits both begin anew
    assert (sums[whole:] == 77).all()


@given(st.integers(0, 2**64 - 1))
def test_bits_are_counted_and_found(word):
    expected = [b for b in range(64) if word >> b & 1]
    assert bits_of(np.uint64(word)) == [(len(expected) - i, b) for i, b in enumerate(expected)]
