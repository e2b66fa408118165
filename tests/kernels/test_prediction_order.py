"""kernels/prediction_order.py: weights by falling prediction, on any number of threads, beside NumPy's functions for the same."""

from collections import defaultdict

import numpy as np
import pytest

from gpuboost.backend import by_prediction
from gpuboost.backend.cpu.reducer import CpuReducer
from gpuboost.kernels.prediction_order import sum_by_prediction_cpu

F = np.float32
NO_WEIGHT = np.zeros(0, np.int64)


def summed(prediction, label, weight=NO_WEIGHT, n_threads=1):
    """Adapter: int64 (3, n)."""
    n = len(prediction)
    sums = np.full((3, n), -7, np.int64)
    rest = np.empty(n, np.uint64), np.empty(n, np.uint64), sums, n_threads
    m = sum_by_prediction_cpu(np.asarray(prediction, F), np.asarray(label, F), np.asarray(weight, np.int64), *rest)
    assert (sums[:, m:] == -7).all()
    return sums[:, :m]


def by_hand(prediction, label, weight):
    """One row after another, with Python's integers: positive and other weight by falling prediction."""
    sums = defaultdict(lambda: [0, 0])
    for x, y, w in zip(prediction.tolist(), label.tolist(), weight.tolist() or [1] * len(label)):
        sums[x][y == 0] += w
    return [tuple(sums[x]) for x in sorted(sums, reverse=True)]


def test_a_hand_sized_table():
    # 2: row 1. 0.5: rows 0 and 2. 0 and -0: rows 4 and 5. -1: row 3
    found = summed([0.5, 2, 0.5, -1, 0, -0.0], [1, 0, 0, 1, 1, 1], [10, 20, 30, 40, 50, 60])
    assert found[1:].T.tolist() == [[0, 20], [10, 30], [110, 0], [40, 0]]


def test_what_stands_first_rises_as_predictions_fall_and_is_their_own():
    values = np.array([-np.inf, -3e38, -1, -1e-45, 0, 1e-45, 1, 3e38, np.inf], F)
    order = summed(values, np.zeros(9))[0]
    assert (np.diff(order) > 0).all() and order[4] == 0  # of the largest first; that of 0 is 0
    for value, own in zip(values[::-1], order):
        assert summed([value], [0])[0].tolist() == [own]  # whatever else is in the table


DISTRIBUTIONS = {
    "few values": lambda rng, n: np.floor(rng.random(n) * 7) - 3,
    "one value": lambda rng, n: np.full(n, 0.7),
    "probabilities": lambda rng, n: rng.random(n),
    "all of float32": lambda rng, n: rng.integers(0, 2**32, n, dtype=np.uint64).astype(np.uint32).view(F),
    "neighbours": lambda rng, n: np.full(n, 1, F).view(np.int32) + rng.integers(0, 3, n, dtype=np.int32),
    "descending": lambda rng, n: -np.arange(n),
}  # fmt: skip


@pytest.mark.parametrize("name", DISTRIBUTIONS)
@pytest.mark.parametrize("n", [1, 2, 5, 64, 1000, 70000])
def test_sums_equal_those_by_hand_on_any_number_of_threads(name, n):
    rng = np.random.default_rng(n)
    drawn = DISTRIBUTIONS[name](rng, n)
    prediction = np.nan_to_num(drawn.view(F) if name == "neighbours" else drawn.astype(F))
    for weight in (NO_WEIGHT, rng.integers(0, 2**45, n)):
        label = rng.integers(0, 2, n).astype(F)
        expected = by_hand(prediction, label, weight)
        with_numpy = by_prediction.sum_by_prediction(prediction, label, weight)
        assert list(zip(*with_numpy[1:].tolist())) == expected
        for n_threads in (1, 2, 3, 7):
            assert np.array_equal(summed(prediction, label, weight, n_threads), with_numpy), n_threads


def test_the_cpu_sums_tables_of_any_size():
    assert CpuReducer(3).sum_by_prediction(np.zeros(0, F), np.zeros(0, F), NO_WEIGHT).shape == (3, 0)
    rng = np.random.default_rng(0)
    prediction, label = rng.normal(size=140_000).astype(F), rng.integers(0, 2, 140_000).astype(F)
    expected = by_prediction.sum_by_prediction(prediction, label, NO_WEIGHT)
    for n_threads in (1, 2, 5):
        assert np.array_equal(CpuReducer(n_threads).sum_by_prediction(prediction, label, NO_WEIGHT), expected)
