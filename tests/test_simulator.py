"""The simulator of CUDA kernels: what works on a GPU works in it, and kernels broken on purpose do not get through."""

import numpy as np
import pytest
from numba import float32, int32, int64, uint8, uint32
from simulator import ORDERS, SimulatedDevice, SimulationError, simulate

from gpuboost.kernels.cuda_common import (
    FULL_WARP,
    block_max,
    block_prefix,
    block_sum,
    cuda,
    cuda_kernel,
    lane_number,
    n_threads,
    n_warps,
    owner_of,
    thread_number,
    warp_max,
    warp_number,
    warp_prefix,
    warp_sum,
)
from gpuboost.kernels.jit import scalar
from gpuboost.kernels.structs import FLAT_NODE

BLOCKS = (32, 64, 96, 256)

orders = pytest.mark.parametrize("order", ORDERS)
blocks = pytest.mark.parametrize("block", BLOCKS)


def values_of(n, seed=0):
    """int64 (n,) of both signs, beyond 32 bits."""
    return np.random.default_rng(seed).integers(-(2**40), 2**40, n)


# ---------------------------------------------------------------------------------------------------------------------
# Threads and where they are


@cuda_kernel("threads: int64[:], lanes: int64[:], warps: int64[:], totals: int64[:]")
def numbers_kernel(threads, lanes, warps, totals):
    i = thread_number()
    threads[i] = int64(cuda.blockIdx.x) * int64(1000) + int64(cuda.threadIdx.x)
    lanes[i] = lane_number()
    warps[i] = warp_number()
    totals[0], totals[1] = n_threads(), n_warps()


@orders
def test_every_thread_of_every_block_runs_once(order):
    threads, lanes, warps, totals = (np.full(192, -1, np.int64) for _ in range(4))
    simulate(numbers_kernel, threads, lanes, warps, totals, grid=3, block=64, order=order)
    number = np.arange(192)
    assert np.array_equal(threads, number // 64 * 1000 + number % 64)
    assert np.array_equal(lanes, number % 32) and np.array_equal(warps, number // 32)
    assert totals[:2].tolist() == [192, 6]


@cuda_kernel("log: int64[:], count: int64[:]")
def log_blocks_kernel(log, count):
    if cuda.threadIdx.x == 0:
        log[cuda.atomic.add(count, 0, 1)] = cuda.blockIdx.x


@cuda_kernel("log: int64[:], count: int64[:]")
def log_threads_kernel(log, count):
    log[cuda.atomic.add(count, 0, 1)] = cuda.threadIdx.x


@pytest.mark.parametrize("kernel, grid", [(log_blocks_kernel, 32), (log_threads_kernel, 1)])
def test_blocks_and_threads_take_their_turns_in_the_order_asked_for(kernel, grid):
    logs = {}
    for order in ORDERS:
        logs[order] = np.full(32, -1, np.int64)
        simulate(kernel, logs[order], np.zeros(1, np.int64), grid=grid, order=order)
    assert logs["forward"].tolist() == list(range(32))
    assert logs["reverse"].tolist() == list(range(31, -1, -1))
    assert sorted(logs["shuffled"]) == list(range(32))
    assert logs["shuffled"].tolist() not in (logs["forward"].tolist(), logs["reverse"].tolist())


def test_a_run_can_be_repeated():
    runs = [np.zeros(64, np.int64) for _ in range(2)]
    for log in runs:
        simulate(log_threads_kernel, log, np.zeros(1, np.int64), block=64, order="shuffled")
    assert np.array_equal(*runs)


# ---------------------------------------------------------------------------------------------------------------------
# Shared memory and barriers


@cuda_kernel("values: int64[:], out: int64[:]")
def reverse_kernel(values, out):
    """Each block reverses its part of values through shared memory."""
    tile = cuda.shared.array(256, int64)
    tile[cuda.threadIdx.x] = values[thread_number()]
    cuda.syncthreads()  # the tile is full
    out[thread_number()] = tile[cuda.blockDim.x - 1 - cuda.threadIdx.x]


@orders
@blocks
def test_what_is_written_before_a_barrier_is_seen_behind_it(block, order):
    values, out = values_of(2 * block), np.zeros(2 * block, np.int64)
    simulate(reverse_kernel, values, out, grid=2, block=block, order=order)
    assert np.array_equal(out, values.reshape(2, block)[:, ::-1].ravel())


@cuda_kernel("values: int64[:], out: int64[:]")
def reverse_without_barrier_kernel(values, out):
    tile = cuda.shared.array(256, int64)
    tile[cuda.threadIdx.x] = values[thread_number()]
    out[thread_number()] = tile[cuda.blockDim.x - 1 - cuda.threadIdx.x]


def test_a_missing_barrier_shows_in_every_order():
    values = values_of(64)
    for order in ORDERS:
        out = np.zeros(64, np.int64)
        simulate(reverse_without_barrier_kernel, values, out, block=64, order=order)
        assert not np.array_equal(out, values[::-1])


@cuda_kernel("values: int64[:], out: int64[:]")
def shift_twice_kernel(values, out):
    """out[i] = values[i + 2]; the second write of the tile has to wait for the first read."""
    tile = cuda.shared.array(256, int64)
    i, n = cuda.threadIdx.x, cuda.blockDim.x
    value = values[i]
    for _ in range(2):
        cuda.syncthreads()  # the tile has been read
        tile[i] = value
        cuda.syncthreads()  # the tile is full
        value = tile[(i + 1) % n]
    out[i] = value


@cuda_kernel("values: int64[:], out: int64[:]")
def shift_twice_with_one_barrier_kernel(values, out):
    tile = cuda.shared.array(256, int64)
    i, n = cuda.threadIdx.x, cuda.blockDim.x
    value = values[i]
    for _ in range(2):
        tile[i] = value
        cuda.syncthreads()  # the tile is full; but a thread that is ahead overwrites what others have yet to read
        value = tile[(i + 1) % n]
    out[i] = value


@blocks
def test_a_missing_barrier_before_a_tile_is_reused_depends_on_the_order(block):
    values, results = values_of(block), []
    for order in ORDERS:
        out, broken = np.zeros(block, np.int64), np.zeros(block, np.int64)
        simulate(shift_twice_kernel, values, out, block=block, order=order)
        assert np.array_equal(out, np.roll(values, -2))
        simulate(shift_twice_with_one_barrier_kernel, values, broken, block=block, order=order)
        results.append(broken.tobytes())
    assert len(set(results)) > 1


@cuda_kernel("out: int64[:]")
def two_barriers_kernel(out):
    """All threads wait, but half of them elsewhere."""
    if cuda.threadIdx.x < 32:
        cuda.syncthreads()
    else:
        cuda.syncthreads()


@cuda_kernel("out: int64[:]")
def early_return_kernel(out):
    if cuda.threadIdx.x >= out.size:
        return
    cuda.syncthreads()


@cuda_kernel("out: int64[:]")
def uneven_loop_kernel(out):
    """Thread i meets i % 2 + 1 barriers."""
    for _ in range(cuda.threadIdx.x % 2 + 1):
        cuda.syncthreads()


@orders
@pytest.mark.parametrize("kernel", [two_barriers_kernel, early_return_kernel, uneven_loop_kernel], ids=lambda k: k.name)
def test_a_barrier_that_not_all_threads_reach_raises(kernel, order):
    with pytest.raises(SimulationError, match="divergent barrier"):
        simulate(kernel, np.zeros(40, np.int64), block=64, order=order)


@cuda_kernel("out: uint8[:]")
def read_shared_kernel(out):
    """Each block writes what it finds in its shared memory, then marks that memory."""
    static, dynamic = cuda.shared.array(64, uint8), cuda.shared.array(0, uint8)
    i = cuda.threadIdx.x
    first = 128 * cuda.blockIdx.x
    out[first + i], out[first + 64 + i] = static[i], dynamic[i]
    static[i], dynamic[i] = uint8(1), uint8(2)


@pytest.mark.parametrize("poison", [0x00, 0xA5, 0xFF])
def test_shared_memory_holds_poison_when_a_block_starts(poison):
    out = np.full(3 * 128, 7, np.uint8)
    simulate(read_shared_kernel, out, grid=3, block=64, shared=64, poison=poison)
    assert np.all(out == poison)


@cuda_kernel("values: int32[:], out: int64[:]")
def count_kernel(values, out):
    """A histogram whose counters nobody set to zero."""
    counters = cuda.shared.array(8, int32)
    cuda.atomic.add(counters, values[cuda.threadIdx.x], int32(1))
    cuda.syncthreads()  # all values are counted
    if cuda.threadIdx.x < 8:
        out[cuda.threadIdx.x] = counters[cuda.threadIdx.x]


def test_shared_memory_without_initial_values_depends_on_the_poison():
    results = []
    for poison in (0x5A, 0xA5):
        results.append(np.zeros(8, np.int64))
        simulate(count_kernel, np.arange(32, dtype=np.int32) % 8, results[-1], poison=poison)
    assert not np.array_equal(*results)


@cuda_kernel("out: int64[:]")
def dynamic_kernel(out):
    """Fills all of its dynamic shared memory, and reads it backwards."""
    words = cuda.shared.array(0, int32)
    i = cuda.threadIdx.x
    while i < words.size:
        words[i] = int32(i * i)
        i += cuda.blockDim.x
    cuda.syncthreads()  # all words are written
    i = cuda.threadIdx.x
    while i < words.size:
        out[i] = words[words.size - 1 - i]
        i += cuda.blockDim.x


def test_dynamic_shared_memory_has_the_bytes_of_the_launch():
    out = np.full(120, -1, np.int64)
    simulate(dynamic_kernel, out, block=32, shared=400)
    assert np.array_equal(out[:100], np.arange(99, -1, -1) ** 2) and np.all(out[100:] == -1)


@cuda_kernel("out: int64[:]")
def beyond_dynamic_kernel(out):
    words = cuda.shared.array(0, int32)
    words[25] = int32(0)


def test_an_index_beyond_dynamic_shared_memory_raises():
    with pytest.raises(SimulationError, match="outside the array of shape"):
        simulate(beyond_dynamic_kernel, np.zeros(1, np.int64), shared=100)


@cuda_kernel("out: int64[:]")
def two_arrays_kernel(out):
    """Two arrays of one type and size, and one of two dimensions: none overlaps another."""
    a, b, c = cuda.shared.array(32, int64), cuda.shared.array(32, int64), cuda.shared.array((4, 8), int64)
    i = cuda.threadIdx.x
    a[i], b[i], c[i >> 3, i & 7] = i, 100 + i, 200 + i
    cuda.syncthreads()  # all are written
    out[i], out[32 + i], out[64 + i] = a[31 - i], b[31 - i], c[3 - (i >> 3), 7 - (i & 7)]


def test_each_shared_array_is_its_own():
    out = np.zeros(96, np.int64)
    simulate(two_arrays_kernel, out)
    assert np.array_equal(out.reshape(3, 32), np.arange(31, -1, -1) + np.array([[0], [100], [200]]))


# ---------------------------------------------------------------------------------------------------------------------
# Warps


@cuda_kernel("values: int64[:], out: int64[:, :], delta: int64")
def shuffles_kernel(values, out, delta):
    i = thread_number()
    value = values[i]
    out[0, i] = cuda.shfl_sync(FULL_WARP, value, (lane_number() * 7 + delta) & 31)
    out[1, i] = cuda.shfl_up_sync(FULL_WARP, value, delta)
    out[2, i] = cuda.shfl_down_sync(FULL_WARP, value, delta)
    out[3, i] = cuda.shfl_xor_sync(FULL_WARP, value, delta)


@orders
@pytest.mark.parametrize("delta", [0, 1, 5, 16, 31])
def test_shuffles_stay_inside_their_warp(delta, order):
    values, out = values_of(128), np.zeros((4, 128), np.int64)
    simulate(shuffles_kernel, values, out, delta, grid=2, block=64, order=order)
    lane = np.arange(32)
    sources = [(lane * 7 + delta) % 32, np.where(lane < delta, lane, lane - delta),
               np.where(lane + delta > 31, lane, lane + delta), lane ^ delta]  # fmt: skip
    for result, source in zip(out, sources):
        assert np.array_equal(result.reshape(4, 32), values.reshape(4, 32)[:, source])


@cuda_kernel("values: int64[:], votes: uint32[:], counts: int64[:]")
def ballot_kernel(values, votes, counts):
    i = thread_number()
    votes[i] = cuda.ballot_sync(FULL_WARP, values[i] > 0)
    counts[i] = cuda.popc(votes[i])


@orders
def test_a_ballot_has_one_bit_for_each_lane(order):
    values, votes, counts = values_of(96), np.zeros(96, np.uint32), np.zeros(96, np.int64)
    simulate(ballot_kernel, values, votes, counts, block=96, order=order)
    flags = (values > 0).reshape(3, 32)
    assert np.array_equal(votes.reshape(3, 32), np.repeat(np.packbits(flags, axis=1, bitorder="little").view("<u4"), 32, axis=1))
    assert np.array_equal(counts.reshape(3, 32), np.repeat(flags.sum(axis=1, keepdims=True), 32, axis=1))


@cuda_kernel("values: int64[:], out: int64[:]")
def lower_half_kernel(values, out):
    """The lower half of the warp adds up, the upper half does something else meanwhile."""
    lane = lane_number()
    if lane < 16:
        value, step = values[lane], 8
        while step > 0:
            value += cuda.shfl_xor_sync(0x0000FFFF, value, step)
            step >>= 1
        out[lane] = value
    else:
        out[lane] = 0


@orders
def test_a_mask_leaves_the_other_lanes_alone(order):
    values, out = values_of(32), np.full(32, -1, np.int64)
    simulate(lower_half_kernel, values, out, order=order)
    assert np.all(out[:16] == values[:16].sum()) and np.all(out[16:] == 0)


@cuda_kernel("values: int64[:], out: int64[:]")
def neighbour_kernel(values, out):
    """A lane reads what its neighbour wrote, behind a barrier of the warp."""
    tile = cuda.shared.array(256, int64)
    i = cuda.threadIdx.x
    tile[i] = values[i]
    cuda.syncwarp()  # the warp's part of the tile is full
    out[i] = tile[i ^ 1]


@orders
def test_a_barrier_of_the_warp_orders_its_lanes(order):
    values, out = values_of(64), np.zeros(64, np.int64)
    simulate(neighbour_kernel, values, out, block=64, order=order)
    assert np.array_equal(out, values.reshape(32, 2)[:, ::-1].ravel())


@cuda_kernel("out: int64[:]")
def ended_lane_kernel(out):
    if lane_number() == 31:
        return
    out[lane_number()] = cuda.shfl_xor_sync(FULL_WARP, int64(1), 1)


@cuda_kernel("out: int64[:]")
def outside_mask_kernel(out):
    out[lane_number()] = cuda.shfl_xor_sync(0x0000FFFF, int64(1), 1)


@cuda_kernel("out: int64[:]")
def lanes_apart_kernel(out):
    """Half of the warp waits for the whole warp, which waits for the block."""
    if lane_number() < 16:
        out[lane_number()] = cuda.shfl_xor_sync(FULL_WARP, int64(1), 1)
    else:
        cuda.syncthreads()


@cuda_kernel("out: int64[:]")
def different_operations_kernel(out):
    if lane_number() < 16:
        cuda.ballot_sync(FULL_WARP, True)
    else:
        cuda.syncwarp()


@orders
@pytest.mark.parametrize("kernel, message", [
    (ended_lane_kernel, "lanes that have ended"), (outside_mask_kernel, "outside its own mask"),
    (lanes_apart_kernel, "deadlock"), (different_operations_kernel, "deadlock"),
])  # fmt: skip
def test_a_warp_operation_without_one_of_its_lanes_raises(kernel, message, order):
    with pytest.raises(SimulationError, match=message):
        simulate(kernel, np.zeros(32, np.int64), order=order)


# ---------------------------------------------------------------------------------------------------------------------
# What many kernels do (kernels/cuda_common.py)


@cuda_kernel("values: int64[:], out: int64[:, :]")
def warp_sums_kernel(values, out):
    i = thread_number()
    out[0, i], out[1, i], out[2, i] = warp_sum(values[i]), warp_max(values[i]), warp_prefix(values[i])


@orders
@blocks
def test_sum_maximum_and_prefix_of_a_warp(block, order):
    values, out = values_of(2 * block), np.zeros((3, 2 * block), np.int64)
    simulate(warp_sums_kernel, values, out, grid=2, block=block, order=order)
    warps = values.reshape(-1, 32)
    total, largest, prefix = out.reshape(3, -1, 32)
    assert np.all(total == warps.sum(axis=1, keepdims=True))
    assert np.all(largest == warps.max(axis=1, keepdims=True))
    assert np.array_equal(prefix, warps.cumsum(axis=1))


@cuda_kernel("values: int64[:], out: int64[:, :]")
def block_sums_kernel(values, out):
    """All with one array of partial sums, twice: the barriers inside have to keep the calls apart."""
    partial = cuda.shared.array(32, int64)
    i = thread_number()
    for _ in range(2):
        out[0, i] = block_sum(values[i], partial)
        out[1, i] = block_max(abs(values[i]), partial)
        out[2, i], out[3, i] = block_prefix(values[i], partial)


@orders
@pytest.mark.parametrize("block", [*BLOCKS, 1024])
def test_sum_maximum_and_prefix_of_a_block(block, order):
    values, out = values_of(2 * block), np.zeros((4, 2 * block), np.int64)
    simulate(block_sums_kernel, values, out, grid=2, block=block, order=order)
    parts = values.reshape(2, block)
    total, largest, before, total_again = out.reshape(4, 2, block)
    assert np.all(total == parts.sum(axis=1, keepdims=True)) and np.array_equal(total, total_again)
    assert np.all(largest == abs(parts).max(axis=1, keepdims=True))
    assert np.array_equal(before, parts.cumsum(axis=1) - parts)


@cuda_kernel("first: int64[:], n: int64, owners: int64[:]")
def owners_kernel(first, n, owners):
    item = thread_number()
    if item < owners.size:
        owners[item] = owner_of(first, n, item)


@pytest.mark.parametrize("sizes", [[1], [3], [2, 1, 3], [0, 2, 0, 0, 3, 0], [0, 0, 5], [4, 0, 0], [1] * 17])
def test_the_owner_of_an_item(sizes):
    first, owners = np.cumsum([0, *sizes, 99]), np.full(sum(sizes), -1, np.int64)
    simulate(owners_kernel, first, len(sizes), owners)
    assert np.array_equal(owners, np.repeat(np.arange(len(sizes)), sizes))


# ---------------------------------------------------------------------------------------------------------------------
# Atomic operations


@cuda_kernel("values: int64[:], sums: T[:]", T=(np.int32, np.int64, np.uint32))
def add_kernel(values, sums):
    cuda.atomic.add(sums, 0, values[thread_number()])


@orders
@pytest.mark.parametrize("dtype", [np.int32, np.uint32, np.int64])
def test_atomic_adds_wrap_around_at_the_width_of_the_array(dtype, order):
    values, sums = np.full(128, 2**25 + 1), np.zeros(1, dtype)
    simulate(add_kernel, values, sums, grid=2, block=64, order=order)
    exact = 128 * (2**25 + 1)
    bits = 8 * sums.itemsize
    assert (int(sums[0]) - exact) % 2**bits == 0
    assert int(sums[0]) == exact if bits == 64 else int(sums[0]) != exact


@cuda_kernel("values: int64[:], out: int64[:]")
def ticket_kernel(values, out):
    """Each thread takes a place, and writes its value there."""
    out[cuda.atomic.add(out, 0, 1)] = values[thread_number()]
    cuda.atomic.max(out, 1, values[thread_number()])


@orders
def test_atomics_hand_back_what_was_there(order):
    values, out = values_of(64), np.zeros(66, np.int64)
    out[0], out[1] = 2, np.iinfo(np.int64).min
    simulate(ticket_kernel, values, out, grid=2, block=32, order=order)
    assert out[0] == 66 and out[1] == values.max() and np.array_equal(np.sort(out[2:]), np.sort(values))


# ---------------------------------------------------------------------------------------------------------------------
# Values and indices


@cuda_kernel("value: int64, out: T[:]", T=(np.uint8, np.int32, np.uint32))
def store_kernel(value, out):
    out[0] = value


@pytest.mark.parametrize("dtype, value", [
    (np.uint8, 256), (np.uint8, -1), (np.int32, 2**31), (np.int32, -(2**31) - 1), (np.uint32, -1), (np.uint32, 2**32),
])  # fmt: skip
def test_a_value_that_does_not_fit_raises(dtype, value):
    with pytest.raises(SimulationError, match="does not fit"):
        simulate(store_kernel, value, np.zeros(1, dtype), block=32)


@pytest.mark.parametrize("dtype", [np.uint8, np.int32, np.uint32])
def test_values_that_fit_are_stored(dtype):
    for value in (np.iinfo(dtype).min, np.iinfo(dtype).max):
        out = np.full(1, 7, dtype)
        simulate(store_kernel, value, out)
        assert out[0] == value


@cuda_kernel("value: float64, out: int64[:]")
def store_float_kernel(value, out):
    out[0] = value


@cuda_kernel("value: float64, out: int64[:]")
def add_float_kernel(value, out):
    cuda.atomic.add(out, 0, value)


@cuda_kernel("value: float64, out: int64[:]")
def index_float_kernel(value, out):
    out[value] = 1


@pytest.mark.parametrize("kernel", [store_float_kernel, add_float_kernel, index_float_kernel], ids=lambda k: k.name)
def test_a_float_in_place_of_an_integer_raises(kernel):
    with pytest.raises(SimulationError, match="without a cast|not an integer"):
        simulate(kernel, 1.0, np.zeros(4, np.int64))


@cuda_kernel("value: float64, out: int64[:]")
def cast_kernel(value, out):
    out[0], out[1], out[2] = int32(value), uint8(value), int64(float32(value))


def test_a_cast_cuts_off_the_fraction():
    out = np.zeros(3, np.int64)
    simulate(cast_kernel, 200.75, out)
    assert out.tolist() == [200, 200, 200]


@pytest.mark.parametrize("value", [256.0, -1.0, 2.0**31, np.inf, np.nan])
def test_a_cast_of_a_float_beyond_the_integers_range_raises(value):
    with pytest.raises(SimulationError, match="undefined"):
        simulate(cast_kernel, value, np.zeros(3, np.int64))


@cuda_kernel("value: int64, out: int64[:]")
def wrap_kernel(value, out):
    out[0], out[1], out[2] = int32(value), uint32(value), uint8(value)


@pytest.mark.parametrize("value", [0, -1, 2**31, 2**32 + 5, -(2**31) - 1])
def test_a_cast_of_an_integer_wraps_around(value):
    out = np.zeros(3, np.int64)
    simulate(wrap_kernel, value, out)
    assert out.tolist() == [(value + 2**31) % 2**32 - 2**31, value % 2**32, value % 256]


@cuda_kernel("values: int32[:], out: int64[:]")
def overflow_kernel(values, out):
    """An int32 sum, which nobody widened."""
    out[0] = values[0] + values[1]


def test_arithmetic_that_overflows_raises():
    out = np.zeros(1, np.int64)
    simulate(overflow_kernel, np.array([2**31 - 2, 1], np.int32), out)
    assert out[0] == 2**31 - 1
    with pytest.raises(SimulationError, match="overflow"):
        simulate(overflow_kernel, np.array([2**31 - 1, 1], np.int32), out)


def test_a_scalar_argument_must_fit_its_type():
    with pytest.raises(SimulationError, match="without a cast"):
        simulate(store_kernel, 1.5, np.zeros(1, np.int32))
    with pytest.raises(SimulationError, match="does not fit"):
        simulate(store_kernel, 2**63, np.zeros(1, np.int32))


@cuda_kernel("values: int64[:], out: int64[:]")
def difference_kernel(values, out):
    """out[i] = values[i + 1] − values[i]: one too far."""
    i = thread_number()
    if i < values.size:
        out[i] = values[i + 1] - values[i]


@cuda_kernel("values: int64[:], out: int64[:]")
def before_kernel(values, out):
    """out[i] = values[i − 1]: −1 is the last element in Python, and anything on a GPU."""
    i = int64(thread_number())
    out[i] = values[i - 1]


@cuda_kernel("values: int64[:], out: int64[:]")
def too_few_indices_kernel(values, out):
    out[0] = values[0, 0]


@orders
@pytest.mark.parametrize("kernel, message", [
    (difference_kernel, "outside"), (before_kernel, "outside"), (too_few_indices_kernel, "2 indices"),
])  # fmt: skip
def test_an_index_out_of_bounds_raises(kernel, message, order):
    with pytest.raises(SimulationError, match=message):
        simulate(kernel, values_of(32), np.zeros(32, np.int64), order=order)


@cuda_kernel("nodes: FLAT_NODE[:], value: int64")
def record_kernel(nodes, value):
    i = thread_number()
    if i < nodes.size:
        nodes[i].feature = value
        nodes[i].left = nodes[i].feature - int32(1)
        nodes[i].threshold = float32(0.5)


def test_fields_of_records_are_read_and_written_in_place():
    nodes = np.zeros(3, FLAT_NODE)
    simulate(record_kernel, nodes, 2**30)
    assert nodes["feature"].tolist() == [2**30] * 3 and nodes["left"].tolist() == [2**30 - 1] * 3
    assert nodes["threshold"].tolist() == [0.5] * 3 and not nodes["bin"].any()
    with pytest.raises(SimulationError, match="does not fit"):
        simulate(record_kernel, nodes, 2**31)


@cuda_kernel("values: int64[:], out: int64[:]")
def forgetful_kernel(values, out):
    """Doubles the positive values, and forgets the others."""
    i = thread_number()
    if values[i] > 0:
        out[i] = 2 * values[i]


def test_unwritten_output_shows_between_two_poisons():
    values, results = values_of(32), []
    for poison in (0x5A, 0xA5):
        out = np.zeros(32, np.int64)
        out.view(np.uint8).fill(poison)
        simulate(forgetful_kernel, values, out)
        results.append(out)
    assert np.array_equal(results[0] != results[1], values <= 0)


@scalar
def ratio(a, b):
    """In the type of its arguments, as numba has it."""
    return a / b


@cuda_kernel("a: T[:], out: T[:]", T=(np.float32, np.float64))
def thirds_kernel(a, out):
    out[0] = ratio(a[0], a[1]) * a[1] - a[0]


def test_scalar_functions_keep_their_types_whatever_ran_before():
    for dtype in (np.float32, np.float64, np.float32):
        a, out = np.array([0.7, 49.0], dtype), np.zeros(1, dtype)
        simulate(thirds_kernel, a, out)
        assert out[0] == dtype(dtype(a[0] / a[1]) * a[1]) - a[0]


# ---------------------------------------------------------------------------------------------------------------------
# The device of the simulator


def test_an_error_names_its_thread_and_block():
    with pytest.raises(SimulationError) as caught:
        simulate(difference_kernel, values_of(40), np.zeros(40, np.int64), grid=2, block=32)
    assert caught.value.__notes__ == ["in thread 7 of block 1"]


def test_new_memory_of_the_device_holds_rubbish_until_it_is_cleared():
    device = SimulatedDevice()
    array = device.empty((3, 5), np.int64)
    assert np.all(array != 0)
    device.clear(array)
    assert not array.any() and not device.zeros(4, np.float32).any()


def test_a_copy_shows_the_state_when_it_began():
    device = SimulatedDevice()
    array = device.put([1, 2, 3], np.int64)
    pending = device.start_copy(array)
    array[:] = 0
    assert pending.wait().tolist() == [1, 2, 3] and device.waits == 1
