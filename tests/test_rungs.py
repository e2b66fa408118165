"""The rungs beside the simulator: what is right passes, and each kind of error is caught on a kernel made for it."""

import numpy as np
import pytest
from numba import int32, int64, types, uint8
from numba.extending import intrinsic
from races import check_races
from rungs import RUNGS, execute
from simulator import ORDERS, SimulatedDevice, SimulationError, simulate
from test_simulator import (
    add_kernel,
    ballot_kernel,
    beyond_dynamic_kernel,
    block_sums_kernel,
    cast_kernel,
    difference_kernel,
    different_operations_kernel,
    early_return_kernel,
    ended_lane_kernel,
    lanes_apart_kernel,
    lower_half_kernel,
    neighbour_kernel,
    outside_mask_kernel,
    owners_kernel,
    record_kernel,
    reverse_kernel,
    reverse_without_barrier_kernel,
    shift_twice_kernel,
    shift_twice_with_one_barrier_kernel,
    shuffles_kernel,
    two_arrays_kernel,
    two_barriers_kernel,
    uneven_loop_kernel,
    values_of,
    warp_sums_kernel,
)

from gpuboost.backend.cuda.compiler import to_ptx
from gpuboost.kernels.cuda_common import FULL_WARP, cuda, cuda_kernel, thread_number
from gpuboost.kernels.jit import scalar
from gpuboost.kernels.structs import FLAT_NODE

each_rung = pytest.mark.parametrize("rung", RUNGS.values(), ids=RUNGS)
VALUES = values_of(128)


def zeros(*shape, dtype=np.int64):
    return np.zeros(shape, dtype)


# ---------------------------------------------------------------------------------------------------------------------
# What is right passes, with the simulator's results

RIGHT = {
    "barriers": (reverse_kernel, VALUES, zeros(128)),
    "a tile used twice": (shift_twice_kernel, VALUES[:64], zeros(64)),
    "a barrier of the warp": (neighbour_kernel, VALUES, zeros(128)),
    "several shared arrays": (two_arrays_kernel, zeros(96)),
    "shuffles": (shuffles_kernel, VALUES, zeros(4, 128), 5),
    "ballots": (ballot_kernel, VALUES, zeros(128, dtype=np.uint32), zeros(128)),
    "half a warp": (lower_half_kernel, VALUES, zeros(32)),
    "sums of warps": (warp_sums_kernel, VALUES, zeros(3, 128)),
    "sums of blocks": (block_sums_kernel, VALUES, zeros(4, 128)),
    "atomic adds that wrap around": (add_kernel, np.full(128, 2**25 + 1), zeros(1, dtype=np.int32)),
    "records": (record_kernel, zeros(3, dtype=FLAT_NODE), 2**30),
    "a search": (owners_kernel, np.array([0, 2, 2, 5]), 3, zeros(5)),
}
GEOMETRIES = {  # blocks and threads where two blocks of 64 would write the same
    "a tile used twice": (1, 64), "a barrier of the warp": (1, 128), "several shared arrays": (1, 32), "half a warp": (1, 32),
}  # fmt: skip


def copies(arguments):
    return [a.copy() if isinstance(a, np.ndarray) else a for a in arguments]


@each_rung
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", RIGHT)
def test_a_right_kernel_passes_with_the_simulators_results(name, rung, order):
    kernel, *arguments = RIGHT[name]
    grid, block = GEOMETRIES.get(name, (2, 64))
    expected, actual = copies(arguments), copies(arguments)
    simulate(kernel, *expected, grid=grid, block=block)
    rung(kernel, *actual, grid=grid, block=block, order=order)
    for one, other in zip(actual, expected):
        np.testing.assert_array_equal(one, other)


@each_rung
@pytest.mark.parametrize("kernel, message", [
    (two_barriers_kernel, "divergent barrier"), (early_return_kernel, "divergent barrier"),
    (uneven_loop_kernel, "divergent barrier"), (ended_lane_kernel, "lanes that have ended"),
    (outside_mask_kernel, "outside its own mask"), (lanes_apart_kernel, "deadlock"), (different_operations_kernel, "deadlock"),
])  # fmt: skip
def test_threads_that_wait_for_each_other_in_vain_raise(kernel, message, rung):
    with pytest.raises(SimulationError, match=message):
        rung(kernel, np.zeros(40, np.int64), block=64)


@each_rung
def test_a_device_computes_on_the_rung_that_it_is_given(rung):
    launched = []

    def watched(*arguments, **geometry):
        launched.append(arguments[0])
        rung(*arguments, **geometry)

    out = np.zeros(128, np.int64)
    SimulatedDevice(block=64, n_multiprocessors=2, rung=watched).launch(reverse_kernel, VALUES, out, threads=128)
    assert launched == [reverse_kernel]
    assert np.array_equal(out, VALUES.reshape(2, 64)[:, ::-1].ravel())


# ---------------------------------------------------------------------------------------------------------------------
# IR: what a GPU would do silently


@cuda_kernel("out: T[:], i: int64", T=(np.uint8, np.int64))
def store_at_kernel(out, i):
    if cuda.threadIdx.x == 7:
        out[i] = 1


@cuda_kernel("out: int64[:], i: int64")
def beyond_static_kernel(out, i):
    tile = cuda.shared.array(8, int64)
    tile[i] = out[0]


@cuda_kernel("values: int64[:], out: int64[:]")
def shift_kernel(values, out):
    out[0], out[1] = values[0] << values[1], values[0] >> values[1]


@cuda_kernel("values: int64[:], out: int64[:]")
def quotient_kernel(values, out):
    out[0] = values[0] // values[1]


@intrinsic
def plain_quotient(typing_context, a, b):
    """a / b by one instruction; numba's own division looks for zeros first."""
    return types.int64(types.int64, types.int64), lambda context, builder, signature, args: builder.sdiv(*args)


@cuda_kernel("values: int64[:], out: int64[:]")
def plain_quotient_kernel(values, out):
    out[0] = plain_quotient(values[0], values[1])


def misaligned(dtype):
    """An array of 4 elements whose first is at an odd address."""
    return np.zeros(4 * np.dtype(dtype).itemsize + 1, np.uint8)[1:].view(dtype)


LEAST = np.iinfo(np.int64).min


@pytest.mark.parametrize("kernel, arguments, message", [
    (store_at_kernel, (zeros(4), 4), "out of bounds"), (store_at_kernel, (zeros(4, dtype=np.uint8), 2**40), "out of bounds"),
    (difference_kernel, (VALUES, zeros(128)), "out of bounds"), (beyond_dynamic_kernel, (zeros(1),), "out of bounds"),
    (beyond_static_kernel, (zeros(1), 8), "out of bounds"), (store_at_kernel, (misaligned(np.int64), 2), "misaligned"),
    (shift_kernel, (np.array([5, 64]), zeros(2)), "shift by 64 or more bits"),
    (shift_kernel, (np.array([5, -1]), zeros(2)), "shift by 64 or more bits"),
    (cast_kernel, (2.0**31, zeros(3)), "does not fit in 32"), (cast_kernel, (-(2.0**31) - 1, zeros(3)), "does not fit in 32"),
    (cast_kernel, (np.nan, zeros(3)), "does not fit in"), (cast_kernel, (np.inf, zeros(3)), "does not fit in"),
    (plain_quotient_kernel, (np.array([5, 0]), zeros(1)), "division of 64-bit integers by zero"),
    (plain_quotient_kernel, (np.array([LEAST, -1]), zeros(1)), "quotient that does not fit"),
])  # fmt: skip
def test_what_is_undefined_raises_on_ir(kernel, arguments, message):
    with pytest.raises(SimulationError, match=message) as caught:
        execute(kernel, *copies_where_they_are(arguments), grid=2, block=64, shared=100)
    assert "in thread" in caught.value.__notes__[0]


def copies_where_they_are(arguments):
    """Copies, but of what is misaligned."""
    return [a.copy() if isinstance(a, np.ndarray) and a.flags.aligned else a for a in arguments]


@pytest.mark.parametrize("kernel, arguments, expected", [
    (store_at_kernel, (zeros(4), 3), [0, 0, 0, 1]), (shift_kernel, (np.array([5, 61]), zeros(2)), [-(2**63) + 2**61, 0]),
    (shift_kernel, (np.array([-8, 1]), zeros(2)), [-16, -4]), (cast_kernel, (200.75, zeros(3)), [200, 200, 200]),
    (plain_quotient_kernel, (np.array([-7, 2]), zeros(1)), [-3]), (quotient_kernel, (np.array([-7, 2]), zeros(1)), [-4]),
    (plain_quotient_kernel, (np.array([LEAST, 1]), zeros(1)), [LEAST]), (quotient_kernel, (np.array([5, 0]), zeros(1)), [0]),
])  # fmt: skip
def test_what_is_defined_has_its_result_on_ir(kernel, arguments, expected):
    values = copies(arguments)
    execute(kernel, *values)
    assert next(a for a in reversed(values) if isinstance(a, np.ndarray)).tolist() == expected


@cuda_kernel("x: float32[:], out: int64[:]")
def finite_kernel(x, out):
    """The constant is the largest float32, or as a float64 a little more."""
    out[0] = 1 if abs(x[0]) < 3.4028235e38 else 0


def test_ir_has_the_types_of_numba_where_the_simulator_has_numpys():
    x, of_numpy, of_numba = np.array([np.finfo(np.float32).max]), np.zeros(1, np.int64), np.zeros(1, np.int64)
    simulate(finite_kernel, x, of_numpy)
    execute(finite_kernel, x, of_numba)
    assert (of_numpy[0], of_numba[0]) == (0, 1)


def test_ir_of_a_kernel_that_was_just_compiled_is_found():
    """numba's part of it, which compiler.to_ptx keeps, has its PTX already."""
    ir_compiler = pytest.importorskip("ir_compiler", reason="needs numba-cuda", exc_type=ImportError)
    to_ptx(finite_kernel, {}, ir_compiler.CAPABILITY)
    assert ir_compiler._nvvm_ir(finite_kernel, {})


@cuda_kernel("out: uint8[:]")
def poison_kernel(out):
    static, dynamic = cuda.shared.array(32, uint8), cuda.shared.array(0, uint8)
    out[cuda.threadIdx.x], out[32 + cuda.threadIdx.x] = static[cuda.threadIdx.x], dynamic[cuda.threadIdx.x]


@pytest.mark.parametrize("poison", [0x00, 0xA5])
def test_shared_memory_holds_poison_on_ir(poison):
    out = np.full(64, 7, np.uint8)
    execute(poison_kernel, out, shared=32, poison=poison)
    assert np.all(out == poison)


def test_ir_runs_on_after_an_error():
    out = np.zeros(2, np.int64)
    for _ in range(3):
        with pytest.raises(SimulationError):
            execute(shift_kernel, np.array([1, 64]), out, block=64)
        execute(shift_kernel, np.array([1, 3]), out, block=64)
        assert out.tolist() == [8, 0]


# ---------------------------------------------------------------------------------------------------------------------
# Races


@cuda_kernel("values: int64[:], out: int64[:]")
def neighbour_by_shuffle_kernel(values, out):
    """A shuffle brings all lanes together, but orders no memory."""
    tile = cuda.shared.array(256, int64)
    i = cuda.threadIdx.x
    tile[i] = values[i]
    cuda.shfl_xor_sync(FULL_WARP, values[i], 1)
    out[i] = tile[i ^ 1]


@cuda_kernel("values: int64[:], out: int64[:]")
def other_warp_kernel(values, out):
    tile = cuda.shared.array(256, int64)
    i = cuda.threadIdx.x
    tile[i] = values[i]
    cuda.syncwarp()  # of this warp; the other one's part need not be there
    out[i] = tile[i ^ 32]


@cuda_kernel("values: int64[:], out: int64[:]")
def plain_sum_kernel(values, out):
    out[0] += values[thread_number()]


@cuda_kernel("values: int64[:], out: int64[:]")
def read_beside_atomics_kernel(values, out):
    cuda.atomic.add(out, 0, values[thread_number()])
    out[1 + thread_number()] = out[0]


@cuda_kernel("values: int64[:], out: int64[:]")
def blocks_kernel(values, out):
    """A barrier of the block orders nothing between blocks."""
    if cuda.blockIdx.x == 0 and cuda.threadIdx.x == 0:
        out[0] = values[0]
    cuda.syncthreads()
    if cuda.blockIdx.x == 1 and cuda.threadIdx.x == 0:
        out[1] = out[0]


@cuda_kernel("values: int64[:], out: int64[:]")
def two_views_kernel(values, out):
    """Thread 1's word of four bytes is half of thread 0's of eight."""
    wide, narrow = cuda.shared.array(0, int64), cuda.shared.array(0, int32)
    i = cuda.threadIdx.x
    if i == 0:
        wide[0] = values[0]
    elif i == 1:
        narrow[1] = int32(7)


@scalar
def keep_largest(values, i, out):
    """No atomic operation."""
    if values[i] > out[0]:
        out[0] = values[i]


@cuda_kernel("values: int64[:], out: int64[:]")
def scalar_function_kernel(values, out):
    keep_largest(values, thread_number(), out)


@cuda_kernel("nodes: FLAT_NODE[:]")
def same_field_kernel(nodes):
    nodes[0].left = int32(cuda.threadIdx.x)


RACES = {
    "no barrier": (reverse_without_barrier_kernel, VALUES, zeros(128)),
    "no barrier before a tile is used again": (shift_twice_with_one_barrier_kernel, VALUES[:64], zeros(64)),
    "a shuffle for a barrier": (neighbour_by_shuffle_kernel, VALUES, zeros(128)),
    "a warp's barrier for a block's": (other_warp_kernel, VALUES, zeros(128)),
    "no atomic operation": (plain_sum_kernel, VALUES, zeros(1)),
    "read beside atomic operations": (read_beside_atomics_kernel, VALUES, zeros(129)),
    "between blocks": (blocks_kernel, VALUES, zeros(2)),
    "views of one memory": (two_views_kernel, VALUES, zeros(1)),
    "in a scalar function": (scalar_function_kernel, VALUES, zeros(1)),
    "one field": (same_field_kernel, zeros(2, dtype=FLAT_NODE)),
}


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", RACES)
def test_a_race_is_found_in_every_order_with_both_places(name, order):
    kernel, *arguments = RACES[name]
    grid = 2 if name == "between blocks" else 1
    with pytest.raises(SimulationError, match=r"race: nothing orders .* at test_\w+\.py:\d+ and .* at test_\w+\.py:\d+"):
        check_races(kernel, *copies(arguments), grid=grid, block=64, shared=64, order=order)


@cuda_kernel("bytes: uint8[:], nodes: FLAT_NODE[:], wide: int64[:]")
def neighbours_kernel(bytes, nodes, wide):
    """Different bytes of a word, different fields of a record, a word that is only read, and one that is first read by all."""
    tile = cuda.shared.array(0, int32)
    i = cuda.threadIdx.x
    bytes[i] = uint8(i)
    if i == 0:
        nodes[0].left = int32(wide[0])
    elif i == 1:
        nodes[0].feature = int32(wide[0])
    tile[i] = int32(wide[0])
    cuda.syncthreads()
    wide[1 + i] = nodes[0].left + nodes[0].feature + bytes[63 - i] + tile[63 - i]
    cuda.syncthreads()
    if i == 0:
        wide[0] = 1


def test_what_touches_different_bytes_is_no_race():
    check_races(neighbours_kernel, np.zeros(64, np.uint8), np.zeros(1, FLAT_NODE), np.zeros(65, np.int64), block=64, shared=256)


def test_launches_are_ordered():
    values, out = VALUES, np.zeros(128, np.int64)
    for _ in range(2):
        check_races(reverse_kernel, values, out, grid=2, block=64)
        values = out


@scalar
def note_larger(values, i, out):
    if values[i] > 2**39:
        out[i] = values[i]


@cuda_kernel("values: int64[:], out: int64[:]")
def note_larger_kernel(values, out):
    note_larger(values, thread_number(), out)


def test_a_scalar_functions_accesses_happen_once():
    out = np.zeros(128, np.int64)
    check_races(note_larger_kernel, VALUES, out, grid=2, block=64)
    assert np.array_equal(out, np.where(VALUES > 2**39, VALUES, 0))
