"""What tests of CUDA kernels run them with: the simulator in several launch geometries, the other rungs that need no GPU
(rungs.py), and a GPU where there is one.

A test file writes each check once, for any runner, and one line runs it with all of them:

    @each_runner
    def test_a_hand_sized_case(run):
        out = np.zeros(3, np.int64)
        run(some_kernel, rows, 7, out, threads=len(rows))
        assert out.tolist() == [1, 2, 3]

run(kernel, *arguments, threads=0, warps=0, blocks=0, shared=0) launches a CudaKernel as Device.launch (backend/cuda/device.py)
does: NumPy arrays (structured ones for records) and scalars in, and the arrays hold the results when it returns. An array that
lacks the type, dimensions or layout of the kernel's signature raises TypeError.

The mark is a parametrisation, not a fixture: hypothesis may then call a test many times with one runner.
"""


import numpy as np
import pytest
from rungs import RUNGS
from simulator import POISON, SimulatedDevice, simulate

from gpuboost.backend.cuda.device import find_device
from gpuboost.kernels.structs import PROGRESS

__all__ = ["GpuRunner", "SimulatorRunner", "assert_same", "each_runner", "gpu_runner", "progress_of", "simulator_runners"]

OTHER_POISON = 0x00

# (blocks of the grid, threads of a block, order of both, byte that shared memory is full of when a block starts). The grid is
# smaller where a launch asks for fewer blocks, so that a kernel that wants one block gets one.
GEOMETRIES = ((1, 32, "forward", POISON), (3, 64, "reverse", POISON), (3, 96, "shuffled", OTHER_POISON))


class SimulatorRunner(SimulatedDevice):
    """Runs kernels in the simulator, or on another rung, with this in shared memory, which must not show in the results: those
    with either poison are compared with the CPU's."""

    def __init__(self, grid, block, order, poison, rung=simulate):
        super().__init__(block=block, n_multiprocessors=grid, order=order, rung=rung)
        self.poison = poison

    def __call__(self, kernel, *arguments, **work):
        self.launch(kernel, *arguments, **work)

    def _launch(self, kernel, choice, grid, block, shared, arguments):
        grid = min(grid, self.n_multiprocessors)
        self.rung(kernel, *arguments, grid=grid, block=block, shared=shared, order=self.order, poison=self.poison)


class GpuRunner:
    """Runs kernels on the first GPU. Its tests are marked gpu, so they are skipped where there is none (conftest.py)."""

    def __call__(self, kernel, *arguments, **work):
        device = find_device(0)
        with device.current():
            there = [device.put(a) if isinstance(a, np.ndarray) else a for a in arguments]
            device.launch(kernel, *there, **work)
            for here, result in zip(arguments, there):
                if isinstance(here, np.ndarray):
                    found = device.fetch(result).reshape(here.shape)
                    if here.flags.writeable:
                        here[...] = found
                    else:
                        assert found.tobytes() == here.tobytes()


def simulator_runners():
    """One parameter for each of GEOMETRIES."""
    return [pytest.param(SimulatorRunner(*g), id=f"simulator-{g[0]}x{g[1]}-{g[2]}") for g in GEOMETRIES]


def rung_runners():
    """One parameter for each of RUNGS, of several blocks and warps; slow, but for the first test of a file (conftest.py)."""
    runners = {name: SimulatorRunner(*GEOMETRIES[1], rung) for name, rung in RUNGS.items()}
    return [pytest.param(runner, id=name, marks=pytest.mark.rung(name)) for name, runner in runners.items()]


def gpu_runner():
    """The parameter that runs on real hardware; marked gpu."""
    return pytest.param(GpuRunner(), marks=pytest.mark.gpu, id="gpu")


each_runner = pytest.mark.parametrize("run", [*simulator_runners(), *rung_runners(), gpu_runner()])


def assert_same(actual, expected):
    """Equal to the bit: type, shape, and every value with its sign of zero. A NaN equals any NaN: their bits differ by device."""
    assert actual.dtype == expected.dtype and actual.shape == expected.shape
    if actual.dtype.kind == "f":
        np.testing.assert_array_equal(np.isnan(actual), np.isnan(expected))
        bits = f"u{actual.dtype.itemsize}"
        actual, expected = (np.where(np.isnan(a), 0, np.ascontiguousarray(a).view(bits)) for a in (actual, expected))
    np.testing.assert_array_equal(actual, expected)


def progress_of(**fields):
    """PROGRESS (1,), zeros but for these."""
    progress = np.zeros(1, PROGRESS)
    for name, value in fields.items():
        progress[name] = value
    return progress
