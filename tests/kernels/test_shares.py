"""kernels/shares.py: every item is claimed once, whoever helps whom, and the same thread begins where it did before."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numba import njit

from gpuboost.kernels.jit import launch, parallel_kernel
from gpuboost.kernels.shares import LEAST_ROWS, LINE_ROWS, claim_near, claim_rows


@njit
def claims_of(n_threads, n_items, turns):
    """(thread, item) as they come where threads claim in these turns, and then each to the end."""
    counters, found, n = np.zeros(n_threads, np.int64), np.empty((n_items + len(turns) + n_threads, 2), np.int64), 0
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
    launch(n_threads, _mark, (np.zeros(n_threads, np.int64), marks, most))


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
    if n_rows == 20_000 and most == 4096 and n_threads == 2:
        assert sizes.tolist() == [20_000 - 5 * 3344, 3344]  # six, three of either thread
