"""kernels/shares.py: every item is claimed once, whoever helps whom, and the same thread begins where it did before."""

import numba
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numba import njit

from gpuboost.kernels.jit import launch, parallel_kernel
from gpuboost.kernels.shares import LEAST_ROWS, LINE_ROWS, claim_near, claim_rows, new_counters


@njit
def claims_of(n_threads, n_items, turns):
    """(thread, item) as they come where threads claim in these turns, and then each to the end."""
    counters, found, n = new_counters(n_threads), np.empty((n_items + len(turns) + n_threads, 2), np.int64), 0
    for i in range(len(turns) + n_threads * (n_items + 1)):
        thread = turns[i] if i < len(turns) else (i - len(turns)) // (n_items + 1)
        item = claim_near(counters, thread, n_items)
        if item < n_items:
            found[n, 0], found[n, 1] = thread, item
            n += 1
    return found[:n]


@given(st.integers(1, 9), st.integers(0, 40), st.data())
def test_every_item_is_claimed_once_and_ones_own_first(n_threads, n_items, data):
    turns = np.array(data.draw(st.lists(st.integers(0, n_threads - 1), max_size=60)), np.int64)
    claims = claims_of(n_threads, n_items, turns)
    assert sorted(claims[:, 1]) == list(range(n_items))
    owner = np.array([max(t for t in range(n_threads) if -(-n_items * t // n_threads) <= item) for item in range(n_items)])
    left = {thread: set(np.flatnonzero(owner == thread).tolist()) for thread in range(n_threads)}
    for thread, item in claims.tolist():
        assert owner[item] == thread or not left[thread], "somebody helped others before its own share was done"
        assert item == min(left[owner[item]])
        left[owner[item]].remove(item)


def test_one_item_is_the_first_threads():
    assert claims_of(3, 1, np.array([0])).tolist() == [[0, 0]]


def test_who_is_done_helps_the_next_first():
    """Thread 1 of three alone: its own items, the third's, and the first's."""
    assert claims_of(3, 7, np.full(7, 1)).tolist() == [[1, item] for item in (3, 4, 5, 6, 0, 1, 2)]


@parallel_kernel.part
def _count(thread, counters, counts):
    while True:
        item = claim_near(counters, thread, counts.size - 1)
        counts[item] += 1  # the last one: of what is none
        if item == counts.size - 1:
            return


@parallel_kernel
def count_cpu(counts, n_times, n_threads):
    for _ in range(n_times):
        launch(n_threads, _count, (new_counters(n_threads), counts))


@pytest.mark.parametrize("n_items, n_times", [(1, 2000), (2, 2000), (7, 2000), (100, 2000), (200_000, 50)])
def test_threads_that_claim_at_the_same_time_claim_different_items(n_items, n_times):
    counts = np.zeros(n_items + 1, np.int64)
    count_cpu(counts, n_times, numba.config.NUMBA_NUM_THREADS)
    assert (counts[:-1] == n_times).all()


@parallel_kernel.part
def _mark(thread, counters, marks, most):
    n_outputs, n_rows = marks.shape
    while True:
        output, begin, end = claim_rows(counters, thread, n_outputs, n_rows, most)
        if output >= n_outputs:
            return
        for row in range(begin, end):
            marks[output, row] += 1 + 10 * (end - begin)


@parallel_kernel
def mark_cpu(marks, most, n_threads):
    launch(n_threads, _mark, (new_counters(n_threads), marks, most))


@pytest.mark.parametrize("n_threads", [1, 2, 3])
@pytest.mark.parametrize("most", [512, 4096])
@pytest.mark.parametrize("n_rows", [0, 1, 15, LEAST_ROWS, LEAST_ROWS + 1, 20_000, 4096 * 6, 4096 * 6 + 1])
def test_rows_are_claimed_once_in_items_of_whole_lines(n_rows, most, n_threads):
    marks = np.zeros((3, n_rows), np.int64)
    mark_cpu(marks, np.int64(most), n_threads)
    assert (marks % 10 == 1).all()
    sizes = np.unique(marks // 10)
    assert (sizes <= most).all()
    assert len(sizes) <= 2  # the last one may be shorter
    assert (sizes[1:] % LINE_ROWS == 0).all()


@pytest.mark.parametrize(
    "n_rows, n_threads, size",
    [
        (20_000, 1, 4000), (20_000, 2, 3344), (20_000, 3, 3344),  # five items, six, six
        (4096 * 6 + 1, 1, 3520), (4096 * 6 + 1, 2, 3088), (4096 * 6 + 1, 3, 2736),  # seven, eight, nine
        (LEAST_ROWS + 1, 1, LEAST_ROWS + 1), (LEAST_ROWS + 1, 3, LEAST_ROWS),
    ],
)  # fmt: skip
def test_each_thread_has_as_many_items(n_rows, n_threads, size):
    marks = np.zeros((2, n_rows), np.int64)
    mark_cpu(marks, np.int64(4096), n_threads)
    n = -(-n_rows // size)
    expected = np.repeat([size] * (n - 1) + [n_rows - (n - 1) * size], [size] * (n - 1) + [n_rows - (n - 1) * size])
    np.testing.assert_array_equal(marks // 10, [expected, expected])
