"""kernels/proposals.py: which fine bins become split candidates, against the rule in Python's integers and its bound."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from naive_backend import proposed_bins

from gpuboost.kernels.proposals import WEIGHT_BITS, propose_candidates_cpu
from gpuboost.kernels.structs import NODE


def propose(features, n_candidates, n_threads=1):
    """Adapter: for each node, the candidates of its features as lists of bins.

    features : per node a list of features, each a list of hessians, or of one tuple per bin with those of the outputs.
    """
    n_bins = [len(hess) for hess in features[0]]
    offsets = np.cumsum([0, *n_bins]).astype(np.int32)
    bins = np.array([np.concatenate([np.reshape(hess, (len(hess), -1)) for hess in node]) for node in features], np.int64)
    hist = np.zeros((len(features) + 1, bins.shape[2], offsets[-1], 2), np.int64)
    hist[..., 0] = -999  # gradients do not matter
    nodes = np.zeros(len(features), NODE)
    nodes["slot"], nodes["tree"] = np.arange(len(features), 0, -1), np.arange(len(features))
    hist[nodes["slot"], :, :, 1] = bins.transpose(0, 2, 1)
    proposed = np.full((len(features), offsets[-1]), 7, np.uint8)
    weight = np.full((n_threads, max(n_bins)), -1, np.int64)
    frontier = np.arange(len(nodes), dtype=np.int32)
    propose_candidates_cpu(frontier, nodes, True, hist, offsets, n_candidates, proposed, weight, n_threads)
    assert set(np.unique(proposed)) <= {0, 1}
    return [[np.flatnonzero(row[a:b]).tolist() for a, b in zip(offsets, offsets[1:])] for row in proposed]


def propose_one(hess, n_candidates):
    return propose([[hess]], n_candidates)[0][0]


# ---- by hand


@pytest.mark.parametrize("hess, n_candidates, expected", [
    ([5, 5, 5, 5, 5, 5, 5, 5], 4, [1, 3, 5, 7]),  # every second bin reaches a quarter
    ([1, 2, 3, 4, 5, 6], 2, [4, 5]),  # of 21: 1, 3, 6, 10, then 15 ≥ 10.5, 21
    ([0, 3, 0, 0, 1, 2], 3, [0, 1, 2, 3, 4, 5]),  # three non-empty bins: all, as with hist
    ([0, 3, 0, 1, 1, 2], 3, [1, 4, 5]),  # of 7: 3 ≥ 7/3, 5 ≥ 14/3, 7. The gap of bins 3 and 4 weighs 2 < 2·7/3
    # 90 of 100 in one bin is heavy (≥ 2·100/4): it, and the bin before. Two candidates are left for 10, every 5.
    ([1, 1, 90, 2, 3, 3], 4, [1, 2, 4, 5]),
    ([90, 2, 2, 2, 2, 2], 4, [0, 3, 5]),  # nothing before it; 2, 4, 6 ≥ 5, 8, 10
    # 60 of 100 is heavy among 5 (≥ 2·100/5); then 15 of 40 among 3 is not (≥ 2·40/3), but 30 is
    ([60, 10, 15, 5, 5, 5], 5, [0, 2, 3, 5]),  # light 40: 10, 25 ≥ 13.3, 30 ≥ 26.7, 35, 40
    ([60, 4, 30, 2, 2, 2], 5, [0, 1, 2, 5]),  # light 10, one candidate
    # of 60 among 6 none is heavy (≥ 20), but 19 passes two multiples of 10, so the bin before it is a candidate, too
    ([8, 2, 5, 19, 3, 3, 10, 10], 6, [1, 2, 3, 5, 6, 7]),  # 8, 10 ≥ 10, 15, 34 ≥ 30, 37, 40 ≥ 40, 50, 60
])  # fmt: skip
def test_by_hand(hess, n_candidates, expected):
    assert propose_one(hess, n_candidates) == expected


def test_the_units_of_all_outputs_add_up():
    assert propose_one([(5, 0), (1, 4), (2, 3), (0, 5)], 2) == propose_one([5, 5, 5, 5], 2) == [1, 3]


def test_sums_beyond_46_bits_lose_low_bits_only():
    """2^58 + 6 in sum: 13 bits go, so a bin of 2^56 has half the light weight. One of 5 is still the one before the heavy bin."""
    unit = 2**56
    assert propose_one([unit, 1, unit, 5, 2 * unit, 0], 4) == [0, 2, 3, 4]
    assert propose_one([100, 1, 100, 5, 200, 0], 4) == [2, 3, 4]  # 100 of 206


# ---- against the rule, and the bound


def check(hess, n_candidates):
    found = propose_one(hess, n_candidates)
    assert found == np.flatnonzero(proposed_bins(hess, n_candidates)).tolist()
    filled = [b for b, h in enumerate(hess) if h > 0]
    if len(filled) <= n_candidates:
        assert found == list(range(len(hess)))
        return
    assert len(found) <= n_candidates and set(found) <= set(filled)
    total = sum(hess)
    bound = Fraction(2 * total, n_candidates) + (Fraction(total, 2**29) if total >= 2**WEIGHT_BITS else 0)
    for first, last in zip([-1, *found], [*found, len(hess) - 1]):
        gap = [hess[b] for b in range(first + 1, last + 1) if hess[b] > 0]
        assert len(gap) <= 1 or sum(gap) < bound
    if total < 2**WEIGHT_BITS:
        assert found[-1] == filled[-1], "nothing is left behind the last candidate"


SIZES = st.one_of(
    st.integers(0, 3), st.integers(0, 65535 * 1000), st.integers(0, 2**55), st.sampled_from([0, 0, 1, 2**32, 2**46, 2**55]),
    st.integers(0, 55).map(lambda bits: 2**bits),
)  # fmt: skip


@settings(max_examples=400)
@given(st.lists(SIZES, min_size=1, max_size=60), st.integers(2, 70), st.booleans())
@example([2**b for b in range(55)], 8, False)  # each round finds heavy bins anew
@example([0] * 9, 2, False)
@example([2**55], 2, False)
@example([2**46 - 1, 1, 1], 2, False)
@example([2**46, 1, 1, 1], 2, False)  # three bins vanish when shifted
def test_random_hessians_follow_the_rule_and_the_bound(hess, n_candidates, is_sorted):
    check(sorted(hess) if is_sorted else hess, n_candidates)


@pytest.mark.parametrize("n_candidates", [2, 3, 5, 16, 255, 1000, 65535])
@pytest.mark.parametrize("name", ["equal", "one huge", "sorted", "few heavy", "mostly empty", "two limbs"])
def test_many_bins(name, n_candidates):
    rng = np.random.default_rng(8)
    n = 4096
    hess = {
        "equal": np.full(n, 77),
        "one huge": np.where(np.arange(n) == 1234, 2**50, rng.integers(0, 9, n)),
        "sorted": np.sort(rng.integers(0, 2**24, n)),
        "few heavy": np.where(rng.random(n) < 0.01, 10**6, 10) * rng.integers(1, 9, n),
        "mostly empty": np.where(rng.random(n) < 0.9, 0, rng.integers(0, 2**16, n)),
        "two limbs": rng.integers(0, 2**50, n),
    }[name]
    check(hess.tolist(), n_candidates)


def test_nodes_features_and_threads_do_not_mix():
    rng = np.random.default_rng(9)
    nodes = [[rng.integers(0, 5, n).tolist() for n in (40, 1, 7, 300)] for _ in range(5)]
    expected = [[propose_one(hess, 6) for hess in node] for node in nodes]
    for n_threads in (1, 3):
        assert propose(nodes, 6, n_threads) == expected
