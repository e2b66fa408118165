"""backend/cuda/device.py: how arguments reach a kernel, how large a grid is, and what is said when there is no GPU."""

import ctypes
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import simulator
from simulator import SimulatedDevice

from gpuboost.backend.cuda import device as device_module
from gpuboost.backend.cuda.device import CupyDevice, find_device, out_of_memory, pack_arguments
from gpuboost.kernels.cuda_common import cuda, cuda_kernel, n_threads, thread_number
from gpuboost.kernels.structs import FLAT_NODE


def on_device(array, pointer):
    """What pack_arguments sees of a CuPy array at this address."""
    return SimpleNamespace(
        size=array.size, itemsize=array.itemsize, shape=array.shape, strides=array.strides, data=SimpleNamespace(ptr=pointer)
    )


# ---------------------------------------------------------------------------------------------------------------------
# Arguments


def test_an_array_is_seven_words_and_more():
    kernel = cuda_kernel("a: float32[:, :]")(lambda a: None)
    packed = pack_arguments(kernel, (on_device(np.zeros((3, 5), np.float32), 0x7F0012345600),))
    #                         owner, parent, elements, bytes of one, pointer, shape, strides
    assert packed.tolist() == [0, 0, 15, 4, 0x7F0012345600, 3, 5, 20, 4]
    assert packed.dtype == np.uint64 and packed.flags.c_contiguous


def test_arrays_of_one_and_three_dimensions_and_of_records():
    kernel = cuda_kernel("a: int64[:], b: uint8[:, :, :], c: FLAT_NODE[:]")(lambda a, b, c: None)
    arrays = np.zeros(7, np.int64), np.zeros((2, 3, 4), np.uint8), np.zeros(5, FLAT_NODE)
    packed = pack_arguments(kernel, tuple(on_device(a, p) for a, p in zip(arrays, (16, 32, 48))))
    assert packed.tolist() == [0, 0, 7, 8, 16, 7, 8, 0, 0, 24, 1, 32, 2, 3, 4, 12, 4, 1, 0, 0, 5, 24, 48, 5, 24]


def test_an_array_without_elements():
    kernel = cuda_kernel("a: float32[:]")(lambda a: None)
    packed = pack_arguments(kernel, (on_device(np.zeros(0, np.float32), 0),))
    assert packed[:6].tolist() == [0, 0, 0, 4, 0, 0]  # the stride is never used


@pytest.mark.parametrize("dtype, value", [
    ("int32", -1), ("int32", -(2**31)), ("int64", -(2**63)), ("int64", 2**63 - 1), ("uint32", 2**32 - 1), ("uint64", 2**64 - 1),
    ("uint8", 255), ("int64", np.int64(-7)), ("int32", np.int32(5)), ("float32", 1.5), ("float32", -0.0), ("float32", 0.1),
    ("float32", np.float32(np.inf)), ("float64", 0.1), ("float64", -1e300), ("float64", np.float64(-0.0)),
])  # fmt: skip
def test_a_scalar_lies_at_the_start_of_its_slot(dtype, value):
    kernel = cuda_kernel(f"a: {dtype}")(lambda a: None)
    packed = pack_arguments(kernel, (value,))
    assert packed.nbytes == 8  # a parameter is copied from where its slot starts, in the bytes of its type
    assert packed.tobytes()[: np.dtype(dtype).itemsize] == np.array(value, dtype).tobytes()


def test_arguments_stand_in_the_order_of_the_signature():
    kernel = cuda_kernel("n: int64, a: int32[:], x: float64")(lambda n, a, x: None)
    packed = pack_arguments(kernel, (-2, on_device(np.zeros(4, np.int32), 64), 1.0))
    assert packed.view(np.int64).tolist() == [-2, 0, 0, 4, 4, 64, 4, 4, 0x3FF0000000000000]


# ---------------------------------------------------------------------------------------------------------------------
# Launches


@cuda_kernel("geometry: int64[:]", block=128)
def geometry_kernel(geometry):
    if thread_number() == 0:
        geometry[0], geometry[1], geometry[2] = cuda.gridDim.x, cuda.blockDim.x, n_threads()


def geometry(n_multiprocessors=2, block=1024, **work):
    """(grid, block) of a launch for this work."""
    out = np.zeros(3, np.int64)
    SimulatedDevice(block=block, n_multiprocessors=n_multiprocessors).launch(geometry_kernel, out, **work)
    assert out[2] == out[0] * out[1]
    return int(out[0]), int(out[1])


@pytest.mark.parametrize("work, grid", [
    ({}, 1), ({"threads": 0}, 1), ({"threads": 1}, 1), ({"threads": 128}, 1), ({"threads": 129}, 2), ({"threads": 10**12}, 32),
    ({"warps": 4}, 1), ({"warps": 5}, 2), ({"warps": 128}, 32), ({"warps": 129}, 32),
    ({"blocks": 3}, 3), ({"blocks": 32}, 32), ({"blocks": 33}, 32),
])  # fmt: skip
def test_the_grid_covers_the_work_but_never_exceeds_what_runs_at_once(work, grid):
    assert geometry(**work) == (grid, 128)  # 2 multiprocessors × 2048 threads could run at once


@pytest.mark.parametrize("threads, block", [(1, 32), (32, 32), (33, 64), (65, 128), (128, 128), (5000, 128)])
def test_one_block_is_as_large_as_its_work(threads, block):
    assert geometry(blocks=1, threads=threads) == (1, block)


def test_smaller_blocks_make_larger_grids():
    assert geometry(threads=129, block=32, n_multiprocessors=100) == (5, 32)
    assert geometry(warps=3, block=32, n_multiprocessors=100) == (3, 32)


@cuda_kernel("rows: int32[:], codes: code[:, :], more: code[:], n: int64", code=(np.uint8, np.uint16))
def typed_kernel(rows, codes, more, n):
    """Does nothing; its signature is what counts."""


def launch(**changes):
    arguments = {
        "rows": np.zeros(4, np.int32), "codes": np.zeros((4, 6), np.uint8), "more": np.zeros(3, np.uint8), "n": 1,
    } | changes  # fmt: skip
    SimulatedDevice().launch(typed_kernel, *arguments.values())


def test_arguments_of_the_right_kind_pass():
    launch()
    launch(codes=np.zeros((4, 6), np.uint16), more=np.zeros(3, np.uint16))
    launch(rows=np.zeros(0, np.int32))


@pytest.mark.parametrize("name, value", [
    ("rows", np.zeros(4, np.int64)), ("rows", np.zeros(4, np.uint32)), ("rows", np.zeros((4, 1), np.int32)),
    ("rows", np.zeros(8, np.int32)[::2]), ("codes", np.zeros(4, np.uint8)), ("codes", np.zeros((4, 12), np.uint8)[:, ::2]),
    ("codes", np.zeros((6, 4), np.uint8).T), ("more", np.zeros(3, np.uint16)),  # another choice than that of codes
])  # fmt: skip
def test_an_array_of_another_kind_raises_and_is_named(name, value):
    with pytest.raises(TypeError, match=rf"typed_kernel: {name} must be a C-contiguous"):
        launch(**{name: value})


def test_an_array_of_a_type_that_is_no_choice_raises():
    with pytest.raises(TypeError, match="codes must be a C-contiguous uint8 or uint16 array"):
        launch(codes=np.zeros((4, 6), np.int64), more=np.zeros(3, np.int64))


@pytest.mark.parametrize("arguments", [(), (np.zeros(4, np.int32),)])
def test_missing_arguments_raise(arguments):
    with pytest.raises(TypeError, match=f"takes 4 arguments, got {len(arguments)}"):
        SimulatedDevice().launch(typed_kernel, *arguments)


def test_the_choice_reaches_the_compiler(monkeypatch):
    seen = []
    monkeypatch.setattr(SimulatedDevice, "_launch", lambda self, kernel, choice, *rest: seen.append(choice))
    launch()
    launch(codes=np.zeros((4, 6), np.uint16), more=np.zeros(3, np.uint16))
    assert seen == [{"code": np.dtype(np.uint8)}, {"code": np.dtype(np.uint16)}]


def test_launches_are_counted_and_fetches_wait():
    device = SimulatedDevice()
    out = device.zeros(3, np.int64)
    device.launch(geometry_kernel, out)
    assert device.launches == [geometry_kernel.name] and device.waits == 0
    device.fetch(out)
    assert device.waits == 1


def test_more_shared_memory_than_the_device_has_raises():
    with pytest.raises(AssertionError):
        SimulatedDevice(shared_limit=1024).launch(geometry_kernel, np.zeros(3, np.int64), shared=1025)


def test_the_simulator_is_a_device():
    assert isinstance(SimulatedDevice(), device_module.Device) and simulator.SimulatedDevice.xp is np


# ---------------------------------------------------------------------------------------------------------------------
# Finding a GPU


@pytest.fixture
def fresh_search():
    find_device.cache_clear()
    yield
    find_device.cache_clear()


def pretend_cupy(monkeypatch, count):
    """A CuPy that sees ``count()`` devices."""

    class CUDARuntimeError(RuntimeError):
        pass

    def get_count():
        return count(CUDARuntimeError)

    runtime = SimpleNamespace(getDeviceCount=get_count, CUDARuntimeError=CUDARuntimeError)
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(cuda=SimpleNamespace(runtime=runtime)))


def test_without_cupy_the_error_says_what_to_install(monkeypatch, fresh_search):
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(RuntimeError, match=r"pip install 'gpuboost-trees\[cuda13\]'.*device='cpu'"):
        find_device(0)


def test_without_a_driver_the_error_hands_on_the_reason(monkeypatch, fresh_search):
    def no_driver(error):
        raise error("cudaErrorInsufficientDriver")

    pretend_cupy(monkeypatch, no_driver)
    with pytest.raises(RuntimeError, match=r"no CUDA device was found \(cudaErrorInsufficientDriver\).*device='cpu'.*nvidia-smi"):
        find_device(0)


def test_a_machine_without_a_gpu(monkeypatch, fresh_search):
    pretend_cupy(monkeypatch, lambda error: 0)
    with pytest.raises(RuntimeError, match="no CUDA device was found. Use device='cpu'"):
        find_device(0)


def test_a_number_beyond_the_last_gpu(monkeypatch, fresh_search):
    pretend_cupy(monkeypatch, lambda error: 2)
    with pytest.raises(RuntimeError, match="'cuda:2' was requested.* cuda:0 to cuda:1"):
        find_device(2)


def test_the_installed_cupy_on_a_machine_without_a_gpu(fresh_search):
    cupy = pytest.importorskip("cupy", reason="needs CuPy")
    if cupy.cuda.is_available():
        pytest.skip("this machine has a GPU")
    with pytest.raises(RuntimeError, match="no CUDA device was found.*Use device='cpu'"):
        find_device(0)


def test_a_failed_search_is_repeated(monkeypatch, fresh_search):
    """A GPU that was not there may be there later: errors are not remembered."""
    pretend_cupy(monkeypatch, lambda error: 0)
    with pytest.raises(RuntimeError, match="no CUDA device"):
        find_device(1)
    pretend_cupy(monkeypatch, lambda error: 1)
    with pytest.raises(RuntimeError, match="cuda:0 to cuda:0"):
        find_device(1)


def test_out_of_memory_says_how_much_and_what_helps():
    error = str(out_of_memory(3 * 2**30, 512 * 2**20))
    assert "512 MiB free" in error and "3072 MiB are needed" in error and "max_bin" in error and "device='cpu'" in error


# ---------------------------------------------------------------------------------------------------------------------
# CuPy, as far as it goes without a GPU: the names that CupyDevice uses exist, and a launch gives the driver what it must


@pytest.fixture
def launches(monkeypatch):
    """(device, calls): a CupyDevice whose driver only writes down what it is told."""
    cupy = pytest.importorskip("cupy")
    calls = []
    driver = SimpleNamespace(
        CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES=cupy.cuda.driver.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
        CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT=cupy.cuda.driver.CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT,
        funcSetAttribute=lambda *facts: calls.append(("attribute", *facts)),
        launchKernel=lambda *facts: calls.append(("launch", *facts)),
        occupancyMaxActiveBlocksPerMultiprocessor=lambda function, block, shared: 1024 // block if shared < 100_000 else 0,
    )
    stream = SimpleNamespace(ptr=5)
    device = CupyDevice.__new__(CupyDevice)
    device.xp = SimpleNamespace(cuda=SimpleNamespace(driver=driver, get_current_stream=lambda: stream))
    device.n_multiprocessors, device.capability, device._shared_allowed, device._shared_of_all = 132, (9, 0), {}, 228 * 1024
    monkeypatch.setattr(CupyDevice, "_load", lambda self, key, kernel, choice: SimpleNamespace(ptr=77))
    return device, calls


def numbers_at(address, n):
    """n numbers of 8 bytes by the pointers to them that lie at this address."""
    return [ctypes.c_uint64.from_address(ctypes.c_uint64.from_address(address + 8 * i).value).value for i in range(n)]


def device_array(array, pointer):
    """What Device.launch and pack_arguments see of a CuPy array."""
    there = on_device(array, pointer)
    there.dtype, there.ndim, there.flags = array.dtype, array.ndim, SimpleNamespace(c_contiguous=True)
    return there


@cuda_kernel("n: int64")
def empty_kernel(n):
    """Does nothing."""


@cuda_kernel("n: int64", block=512, blocks_per_sm=2)
def two_blocks_kernel(n):
    """Does nothing."""


def test_a_launch_hands_the_driver_pointers_to_the_packed_arguments(launches):
    device, calls = launches
    arrays = [
        device_array(np.zeros(4, np.int32), 1000), device_array(np.zeros((4, 6), np.uint8), 2000),
        device_array(np.zeros(3, np.uint8), 3000),
    ]  # fmt: skip
    prepared = {}  # keeps what the driver was pointed to
    device.launch(typed_kernel, *arrays, -1, blocks=3, prepared=prepared)
    (name, function, *grid_and_block, shared, stream, parameters, extra), = calls
    assert (name, function, grid_and_block, shared, stream, extra) == ("launch", 77, [3, 1, 1, 256, 1, 1], 0, 5, 0)
    expected = pack_arguments(typed_kernel, (*arrays, -1))
    assert numbers_at(parameters, len(expected)) == expected.tolist() and expected[-1] == 2**64 - 1


@pytest.mark.parametrize("kernel, shared, grid", [(empty_kernel, 0, 4 * 132), (two_blocks_kernel, 0, 2 * 132),
                                                  (empty_kernel, 200_000, 132)])  # fmt: skip
def test_a_grid_has_as_many_blocks_as_the_driver_says_run_at_once(launches, kernel, shared, grid):
    """Of a kernel whose registers or shared memory leave no room for 2048 threads; of one that the driver would refuse, one."""
    device, calls = launches
    device.launch(kernel, 1, threads=10**9, shared=shared)
    assert [c[2] for c in calls if c[0] == "launch"] == [grid]


def test_dynamic_shared_memory_is_allowed_once_for_each_size_that_grows(launches):
    device, calls = launches
    for shared in (0, 1000, 57568, 57568, 1000, 200_000):
        device.launch(empty_kernel, 1, shared=shared)
    allowed = device.xp.cuda.driver.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
    assert [c[3] for c in calls if c[:3] == ("attribute", 77, allowed)] == [1000, 57568, 200_000]
    assert [c[8] for c in calls if c[0] == "launch"] == [0, 1000, 57568, 57568, 1000, 200_000]


@pytest.mark.parametrize("shared, percent", [(57568, 51), (100_000, 87), (200_000, 100)])
def test_blocks_that_share_a_multiprocessor_find_room_for_their_shared_memory(launches, shared, percent):
    """Of 228 KB two blocks take so much with the 1 KB that CUDA keeps of each; left alone the driver may leave room for one."""
    device, calls = launches
    device.launch(two_blocks_kernel, 1, shared=shared)
    wanted = device.xp.cuda.driver.CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT
    assert [c[3] for c in calls if c[:3] == ("attribute", 77, wanted)] == [percent]
    assert percent == 100 or percent - 1 < 100 * 2 * (shared + 1024) / (228 * 1024) <= percent


def test_a_prepared_launch_is_made_again_without_packing(launches, monkeypatch):
    device, calls = launches
    prepared = {}
    device.launch(empty_kernel, 1, prepared=prepared)
    monkeypatch.setattr("gpuboost.backend.cuda.device.pack_arguments", None)
    device.launch(empty_kernel, 1, prepared=prepared)
    assert calls[0] == calls[1] and len(prepared) == 1
    with pytest.raises(TypeError):
        device.launch(empty_kernel, 2, prepared=prepared)  # another number is another launch


def test_cupy_has_the_names_that_are_used():
    cupy = pytest.importorskip("cupy")
    attributes = {"CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES", "CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT"}
    called = {"launchKernel", "funcSetAttribute", "occupancyMaxActiveBlocksPerMultiprocessor"}
    assert called | attributes <= set(dir(cupy.cuda.driver))
    assert {"load", "get_function"} <= set(dir(cupy.cuda.function.Module)) and "ptr" in dir(cupy.cuda.function.Function)
    assert {"copy_to_host_async", "copy_from_host_async", "memset_async", "ptr"} <= set(dir(cupy.cuda.MemoryPointer))
    assert {"get_limit", "total_bytes", "free_all_blocks"} <= set(dir(cupy.get_default_memory_pool()))
    assert {"record", "synchronize", "done"} <= set(dir(cupy.cuda.Event)) and callable(cupy.cuda.alloc_pinned_memory)
    assert bytes(memoryview(cupy.cuda.PinnedMemoryPointer(cupy.cuda.PinnedMemory(0), 0))) == b""
    assert {"RangePush", "RangePop", "available"} <= set(dir(cupy.cuda.nvtx))
    assert {"memGetInfo", "getDeviceCount", "getDeviceProperties"} <= set(dir(cupy.cuda.runtime))
    assert cupy.cuda.runtime.CUDARuntimeError(900).status == 900 and issubclass(cupy.cuda.driver.CUDADriverError, RuntimeError)
