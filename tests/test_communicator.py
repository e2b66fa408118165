"""Workers that are threads: sums, maxima, gathers, and what happens when one of them fails."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuboost.communicator import SingleProcess, current_communicator, run_threads, use_communicator

SIZES = pytest.mark.parametrize("size", [1, 2, 7])


def test_two_workers_by_hand():
    def work(rank):
        comm = current_communicator()
        total, largest = np.array([10, 20]) * (rank + 1), np.array([5 - rank, rank])
        comm.allreduce_sum(total)
        comm.allreduce_max(largest)
        return comm.rank, comm.size, total.tolist(), largest.tolist(), comm.allgather_int(rank + 40)

    assert run_threads(2, work) == [(rank, 2, [30, 60], [5, 1], [40, 41]) for rank in (0, 1)]


@SIZES
@given(data=st.data())
def test_every_worker_gets_the_sum_and_maximum_of_all(size, data):
    shape = tuple(data.draw(st.lists(st.integers(0, 4), min_size=1, max_size=3)))
    seed = data.draw(st.integers(0, 2**32))
    arrays = np.random.default_rng(seed).integers(-(2**59), 2**59, (size, *shape))

    def work(rank):
        comm, total, largest = current_communicator(), arrays[rank].copy(), arrays[rank].copy()
        comm.allreduce_sum(total)
        comm.allreduce_max(largest)
        return total, largest, comm.allgather(arrays[rank])

    for total, largest, gathered in run_threads(size, work):
        np.testing.assert_array_equal(total, arrays.sum(axis=0))
        np.testing.assert_array_equal(largest, arrays.max(axis=0))
        np.testing.assert_array_equal(gathered, arrays)
        assert total.dtype == largest.dtype == gathered.dtype == np.int64


@SIZES
def test_results_are_each_workers_own_memory(size):
    """What one worker does to its sum afterwards does not reach the others; a view is summed in place."""

    def work(rank):
        comm = current_communicator()
        whole = np.full((2, 3), rank)
        comm.allreduce_sum(whole[1])
        whole[1] += 100 * rank
        comm.allgather_int(0)  # all have written
        return whole.tolist()

    total = sum(range(size))
    assert run_threads(size, work) == [[[rank] * 3, [total + 100 * rank] * 3] for rank in range(size)]


@SIZES
def test_any_is_true_when_one_workers_flag_is(size):
    def work(rank):
        comm = current_communicator()
        return comm.any(rank == size - 1), comm.any(False)

    assert run_threads(size, work) == [(True, False)] * size


def test_single_process_changes_nothing():
    comm, array = SingleProcess(), np.array([3, -4])
    comm.allreduce_sum(array)
    comm.allreduce_max(array)
    assert array.tolist() == [3, -4]
    assert comm.allgather(array).tolist() == [[3, -4]]
    assert (comm.rank, comm.size, comm.allgather_int(9), comm.any(True), comm.any(False)) == (0, 1, [9], True, False)


@pytest.mark.parametrize("failing", [0, 1, 2])
def test_exception_in_one_worker_releases_the_others_and_is_raised(failing):
    reached = []

    def work(rank):
        comm = current_communicator()
        comm.allgather_int(rank)
        if rank == failing:
            raise KeyError("lost")
        comm.allgather_int(rank)
        reached.append(rank)

    with pytest.raises(KeyError, match="lost"):
        run_threads(3, work)
    assert reached == []


def test_worker_that_returns_early_does_not_leave_the_others_waiting():
    """Workers that make different numbers of calls are an error, not a deadlock."""

    def work(rank):
        if rank == 1:
            current_communicator().allgather_int(rank)

    with pytest.raises(RuntimeError, match="workers"):
        run_threads(2, work)


def test_mismatched_shapes_raise():
    def work(rank):
        current_communicator().allreduce_sum(np.zeros(2 + rank, np.int64))

    with pytest.raises(ValueError, match=r"different shapes: \[\(2,\), \(3,\)\]"):
        run_threads(2, work)


def test_use_communicator_holds_for_the_block_only():
    outer, inner = current_communicator(), SingleProcess()
    with use_communicator(inner) as given_inner:
        assert given_inner is inner is current_communicator()
    assert current_communicator() is outer
    with pytest.raises(ZeroDivisionError), use_communicator(inner):
        raise ZeroDivisionError
    assert current_communicator() is outer
