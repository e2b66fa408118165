"""kernels/row_sampling.py: which rows are drawn, against its rules in Python's integers, and how often."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuboost.backend.fixed_point import round_key, sampling_keys
from gpuboost.kernels import row_sampling
from gpuboost.kernels.gradients import NON_FINITE_BITS

HESS_SHARE = 0.1


def counted(kept, grad, hess, n_threads=1):
    """int64 (bins, 2) by the CPU kernel."""
    counts = np.zeros((n_threads, row_sampling.MAGNITUDE_BINS, 2), np.int64)
    row_sampling.count_magnitudes_cpu(kept, grad, hess, counts, n_threads)
    return counts.sum(axis=0)


def draw(
    grad, hess, n_drawn, *, threshold=row_sampling.UNIFORM, seed=3, round_number=0, kept=None, first_id=0, n_rows=None,
    n_threads=1,
):  # fmt: skip
    """(rows drawn, rows not drawn, gradients, hessians, maxima) of one page, all copies."""
    grad, hess = grad.copy(), hess.copy()
    kept = np.arange(grad.shape[1], dtype=np.int32) if kept is None else kept
    n_rows = len(kept) if n_rows is None else n_rows
    marks, listed, n_listed = np.full(len(kept), 77, np.uint8), np.full(len(kept), -1, np.int32), np.full(1, -1)
    maxima, keys = np.zeros((n_threads, len(grad), 2), np.int64), sampling_keys(seed, round_number)
    row_sampling.draw_rows_cpu(
        kept, first_id, n_rows, n_drawn, keys, threshold, grad, hess, marks, listed, n_listed, maxima, n_threads
    )
    drawn, others = np.split(listed, n_listed)
    return drawn, others, grad, hess, maxima.max(axis=0)


def drawn_uniformly(n, n_drawn, round_number=0, seed=3):
    nothing = np.zeros((0, n), np.float32)
    return draw(nothing, nothing, n_drawn, round_number=round_number, seed=seed)[0]


def place_of(i, n, seed=3, round_number=0):
    """π(i): four rounds of add, multiply, xor with the upper half, until the number lies below n."""
    words = [round_key(seed, round_number, 2**31 + word) for word in range(16)]
    keys, bits = [(high << 32) + low for high, low in zip(words[::2], words[1::2])], max(8, (n - 1).bit_length())
    half = bits - bits // 2
    while True:
        for add, factor in zip(keys[::2], keys[1::2]):
            i = (i + add) * (factor + 1 - factor % 2) % 2**bits
            i ^= i >> half
        if i < n:
            return i


def pairs(rng, n, n_outputs=1, kind="heavy"):
    """Gradients and hessians float32 (n_outputs, n)."""
    scale = {
        "heavy": lambda: 10.0 ** rng.uniform(-6, 6, n), "equal": lambda: np.ones(n), "zero": lambda: np.zeros(n),
        "few": lambda: (rng.random(n) < 0.05) * rng.uniform(1, 2, n), "normal": lambda: np.abs(rng.normal(size=n)),
        "tiny": lambda: np.full(n, 2e-38), "huge": lambda: 10.0 ** rng.uniform(30, 37, n),
    }[kind]()  # fmt: skip
    sign, h = rng.choice([-1.0, 1.0], (n_outputs, n)), rng.uniform(0.5, 1, (n_outputs, n))
    h = np.ones_like(h) if kind == "equal" else h
    return (sign * scale).astype(np.float32), (h * scale).astype(np.float32)


KINDS = ["heavy", "equal", "zero", "few", "normal", "tiny", "huge"]


def magnitudes(grad, hess):
    """ĝ in float64, rounded to float32 as the kernels' is."""
    squares = (grad.astype(float) ** 2 + HESS_SHARE * hess.astype(float) ** 2).sum(axis=0)
    return np.sqrt(squares).astype(np.float32).astype(float)


def threshold_of(grad, hess, n_drawn):
    return row_sampling.choose_threshold_cpu(counted(np.arange(grad.shape[1], dtype=np.int32), grad, hess), n_drawn)


def shares(magnitude, mu):
    """p of every row; 0 for those without gradient."""
    return np.where(magnitude >= mu, magnitude > 0, magnitude / mu) if mu > 0 else (magnitude > 0).astype(float)


# ---- uniform draws


@pytest.mark.parametrize("n", [1, 2, 3, 100, 257])
def test_every_share_draws_so_many_rows_and_the_rows_of_smaller_ones(n):
    """So π is a permutation, and it is the one of the rule."""
    previous = set()
    places = [place_of(i, n) for i in range(n)]
    assert sorted(places) == list(range(n))
    for n_drawn in range(1, n + 1):
        drawn = drawn_uniformly(n, n_drawn)
        assert len(drawn) == n_drawn and previous < set(drawn.tolist())
        assert drawn.tolist() == [i for i in range(n) if places[i] < n_drawn]
        previous = set(drawn.tolist())


@settings(max_examples=30)
@given(st.integers(1, 6000), st.integers(-(2**63), 2**64 - 1), st.integers(0, 2**31 - 1), st.floats(0, 1))
def test_rows_drawn_are_those_of_the_rule(n, seed, round_number, share):
    n_drawn = max(1, int(share * n))
    places = [place_of(i, n, seed, round_number) for i in range(n)]
    assert sorted(places) == list(range(n))
    drawn = drawn_uniformly(n, n_drawn, round_number, seed)
    assert drawn.tolist() == [i for i in range(n) if places[i] < n_drawn]


@pytest.mark.parametrize("n_rows", [257, 100_000, 2**31 - 1, 2**32, 2**32 + 1, 2**33, 2**40])
def test_places_of_rows_of_a_large_table(n_rows):
    """One page of ten rows: about half of all places are drawn, as the rule says."""
    nothing = np.zeros((0, 10), np.float32)
    for first_id in (0, n_rows // 2, n_rows - 10):
        expected = [i for i in range(10) if place_of(first_id + i, n_rows) < n_rows // 2]
        assert draw(nothing, nothing, n_rows // 2, first_id=first_id, n_rows=n_rows)[0].tolist() == expected
        assert draw(nothing, nothing, n_rows, first_id=first_id, n_rows=n_rows)[0].tolist() == list(range(10))


ROUNDS = 4000


@pytest.mark.parametrize("n, n_drawn", [(2, 1), (3, 1), (40, 12), (60, 57)])
def test_rows_pairs_of_rows_and_rounds_are_drawn_equally_often(n, n_drawn):
    """Within 5 standard deviations of a binomial distribution: of some 10,000 counts here, one in 200 test suites with other
    seeds would have one beyond."""
    was_drawn = np.zeros((ROUNDS, n))
    for round_number in range(ROUNDS):
        was_drawn[round_number, drawn_uniformly(n, n_drawn, round_number)] = 1

    def check(counts, p, n_trials):
        assert np.abs(counts - p * n_trials).max() <= 5 * np.sqrt(p * (1 - p) * n_trials)

    p = n_drawn / n
    check(was_drawn.sum(axis=0), p, ROUNDS)
    both = was_drawn.T @ was_drawn
    if n > 2:
        check(both[~np.eye(n, dtype=bool)], p * (n_drawn - 1) / (n - 1), ROUNDS)
    check(was_drawn[:-1].T @ was_drawn[1:], p * p, ROUNDS - 1)  # any row, and any other one in the round after


def test_seeds_draw_as_differently_as_rounds():
    draws = {drawn_uniformly(100, 50, round_number, seed).tobytes() for round_number in range(10) for seed in range(-5, 5)}
    assert len(draws) == 100


# ---- what a draw does not depend on


@pytest.mark.parametrize("by_gradient", [False, True])
def test_pages_and_threads_change_nothing(by_gradient):
    n = 2 * row_sampling.CHUNK + 900
    grad, hess = pairs(np.random.default_rng(0), n, 2, "normal")
    mu = threshold_of(grad, hess, n // 3) if by_gradient else row_sampling.UNIFORM
    expected = draw(grad, hess, n // 3, threshold=mu)
    for ends, n_threads in (([n], 4), ([1, row_sampling.CHUNK, 5000, 5000, n], 2)):
        parts = [
            (begin, draw(
                grad[:, begin:end], hess[:, begin:end], n // 3, threshold=mu, first_id=begin, n_rows=n, n_threads=n_threads
            ))
            for begin, end in zip([0, *ends], ends)
        ]  # fmt: skip
        for which in (0, 1):
            np.testing.assert_array_equal(np.concatenate([begin + part[which] for begin, part in parts]), expected[which])
        for which in (2, 3):
            assert np.concatenate([part[which] for _, part in parts], axis=1).tobytes() == expected[which].tobytes()
        np.testing.assert_array_equal(np.max([part[4] for _, part in parts], axis=0), expected[4])


@pytest.mark.parametrize("by_gradient", [False, True])
def test_rows_that_take_no_part_have_no_number(by_gradient):
    rng, n = np.random.default_rng(1), 300
    grad, hess = pairs(rng, n, 2, "heavy")
    kept = np.flatnonzero(rng.random(n) < 0.7).astype(np.int32)
    others = np.setdiff1d(np.arange(n), kept)
    grad[:, others], hess[:, others] = 0, 0
    alone = grad[:, kept], hess[:, kept]
    mu = threshold_of(*alone, 60) if by_gradient else row_sampling.UNIFORM
    assert not by_gradient or mu == row_sampling.choose_threshold_cpu(counted(kept, grad, hess), 60)
    expected, result = draw(*alone, 60, threshold=mu), draw(grad, hess, 60, threshold=mu, kept=kept)
    for which in (0, 1):
        np.testing.assert_array_equal(result[which], kept[expected[which]])
    for which in (2, 3):
        np.testing.assert_array_equal(result[which][:, kept], expected[which])
        assert not result[which][:, others].any()


# ---- gradients and their maxima


def bits(values):
    return np.abs(values).view(np.uint32).astype(np.int64)


@pytest.mark.parametrize("by_gradient", [False, True])
def test_what_is_not_drawn_becomes_zero_and_shows_in_no_maximum(by_gradient):
    grad, hess = pairs(np.random.default_rng(2), 500, 3, "heavy")
    mu = threshold_of(grad, hess, 100) if by_gradient else row_sampling.UNIFORM
    drawn, others, new_grad, new_hess, maxima = draw(grad, hess, 100, threshold=mu)
    assert len(others) == 500 - len(drawn) > 0
    p = shares(magnitudes(grad, hess), mu)[drawn] if by_gradient else np.ones(100)
    for new, old in ((new_grad, grad), (new_hess, hess)):
        assert new[:, others].tobytes() == bytes(new[:, others].nbytes)  # +0
        np.testing.assert_array_equal(new[:, drawn], (old[:, drawn].astype(float) / p).astype(np.float32))
    np.testing.assert_array_equal(maxima, np.stack([bits(new_grad).max(axis=1), bits(new_hess).max(axis=1)], axis=1))


@pytest.mark.parametrize("bad", [np.nan, -np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("by_gradient", [False, True])
@pytest.mark.parametrize("which", [0, 1])
def test_what_is_not_finite_shows_wherever_it_stands(bad, by_gradient, which):
    """A NaN with its sign bit set as well, which x86 makes of ∞ − ∞."""
    drawn, others = draw(*pairs(np.random.default_rng(3), 200, 2, "equal"), 50)[:2]
    for row in (drawn[0], others[0]):
        values = pairs(np.random.default_rng(3), 200, 2, "equal")
        values[which][1, row] = bad
        mu = threshold_of(*values, 50) if by_gradient else row_sampling.UNIFORM
        maxima = draw(*values, 50, threshold=mu)[4]
        assert maxima[1, which] >= NON_FINITE_BITS
        assert np.isfinite(maxima[0].astype(np.uint32).view(np.float32)).all()


# ---- by gradient


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n_outputs", [1, 3])
def test_rows_are_counted_by_the_upper_bits_of_their_magnitude(kind, n_outputs):
    n = row_sampling.CHUNK + 100
    grad, hess = pairs(np.random.default_rng(4), n, n_outputs, kind)
    expected = np.zeros((row_sampling.MAGNITUDE_BINS, 2), np.int64)
    for value in magnitudes(grad, hess).astype(np.float32).view(np.uint32).tolist():
        expected[value >> 20] += 1, (value >> 8) % 4096
    for n_threads in (1, 3):
        np.testing.assert_array_equal(counted(np.arange(n, dtype=np.int32), grad, hess, n_threads), expected)


def direct_threshold(magnitude, n_drawn):
    """μ with Σ min(1, ĝ/μ) = n_drawn, by trying how many rows are larger."""
    magnitude = np.sort(magnitude)[::-1]
    for n_above in range(n_drawn):
        mu = magnitude[n_above:].sum() / (n_drawn - n_above)
        if magnitude[n_above] <= mu:
            return mu
    return 0.0


@settings(max_examples=150)
@given(st.integers(0, 2**32), st.sampled_from(KINDS), st.integers(1, 400), st.floats(0.001, 0.999), st.integers(1, 3))
def test_the_threshold_draws_so_many_rows_on_average(seed, kind, n, share, n_outputs):
    """Of a row as large as μ at most an eighth too few, and 2^−15 of a row too many, as the digits of ĝ are cut."""
    grad, hess = pairs(np.random.default_rng(seed), n, n_outputs, kind)
    magnitude, n_drawn = magnitudes(grad, hess), max(1, int(share * n))
    mu = threshold_of(grad, hess, n_drawn)
    if np.count_nonzero(magnitude) < n_drawn:  # of just as many, the smallest may share an eighth with the next
        assert shares(magnitude, mu).tolist() == (magnitude > 0).tolist()
        return
    direct = direct_threshold(magnitude, n_drawn)
    assert mu * 8 / 9 <= direct * (1 + 2.0**-14) and direct <= mu * (1 + 2.0**-14)
    is_close = (magnitude >= mu) & (magnitude < mu * 9 / 8)
    expected = shares(magnitude, mu).sum()
    assert n_drawn - is_close.sum() / 8 - 2.0**-10 * n_drawn <= expected <= n_drawn * (1 + 2.0**-14)


@pytest.mark.parametrize("n, n_drawn", [(1, 1), (100, 1), (100, 50), (100, 99)])
def test_equal_gradients_are_drawn_equally(n, n_drawn):
    grad, hess = np.full((1, n), -3.0, np.float32), np.zeros((1, n), np.float32)  # 3 = 1.5 · 2: no digit is cut
    assert threshold_of(grad, hess, n_drawn) == 3 * n / n_drawn
    drawn, _, new_grad, *_ = draw(grad, hess, n_drawn, threshold=threshold_of(grad, hess, n_drawn))
    assert len(drawn) == n_drawn
    np.testing.assert_allclose(new_grad[0, drawn], -3.0 * n / n_drawn, rtol=1e-6)


@settings(max_examples=60)
@given(st.integers(0, 2**32), st.sampled_from(KINDS), st.integers(1, 400), st.floats(0.001, 0.999), st.integers(1, 3))
def test_rows_are_drawn_by_place_and_share(seed, kind, n, share, n_outputs):
    grad, hess = pairs(np.random.default_rng(seed), n, n_outputs, kind)
    mu = threshold_of(grad, hess, max(1, int(share * n)))
    p = shares(magnitudes(grad, hess), mu).tolist()
    expected = [i for i in range(n) if p[i] == 1 or place_of(i, n) + 0.5 < n * p[i]]
    assert draw(grad, hess, 1, threshold=mu)[0].tolist() == expected


def test_rows_are_drawn_as_often_as_their_share_says():
    """Within 1/(2n), for places are whole numbers, and 5 standard deviations."""
    n, n_rounds = 60, 4000
    grad, hess = pairs(np.random.default_rng(5), n, 1, "normal")
    mu, counts = threshold_of(grad, hess, 20), np.zeros(n)
    for round_number in range(n_rounds):
        counts[draw(grad, hess, 20, threshold=mu, round_number=round_number)[0]] += 1
    p = shares(magnitudes(grad, hess), mu)
    assert 0 < np.count_nonzero(p == 1) < 20
    assert (np.abs(counts / n_rounds - p) <= 0.5 / n + 5 * np.sqrt(p * (1 - p) / n_rounds)).all()


@pytest.mark.parametrize("kind", ["normal", "heavy", "equal"])
def test_weighted_sums_are_those_of_all_rows_on_average(kind):
    """Σ g/p and Σ h/p over the rows drawn, mean of 500 rounds, within 4 standard errors, and 2^−15 as the digits of ĝ are cut."""
    grad, hess = pairs(np.random.default_rng(6), 2000, 2, kind)
    mu = threshold_of(grad, hess, 400)
    sums = np.array([
        [values.astype(float).sum(axis=1) for values in draw(grad, hess, 400, threshold=mu, round_number=r)[2:4]]
        for r in range(500)
    ])  # fmt: skip
    values = np.stack([grad, hess]).astype(float)
    errors = np.abs(sums.mean(axis=0) - values.sum(axis=2))
    assert (errors <= 4 * sums.std(axis=0) / np.sqrt(500) + 2.0**-15 * np.abs(values).sum(axis=2)).all()
