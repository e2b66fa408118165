"""Every CUDA kernel as machine code: registers, memory, and instructions that the CPU twin would not agree with.

No GPU is needed. Each kernel is compiled once for each architecture and choice of types; later runs find it in the cache.
"""

import re
import subprocess
import sys
import sysconfig
from functools import cache
from itertools import groupby, zip_longest
from pathlib import Path
from types import FunctionType

import numpy as np
import pytest
from numba.extending import is_jitted

import gpuboost.kernels
from gpuboost.backend.cuda import compiler
from gpuboost.backend.cuda.compiler import compile_kernel, to_ptx
from gpuboost.cuda_kernels import FACTORIES, choices_of, modules_of, package_kernels
from gpuboost.kernels import binning, scalar
from gpuboost.kernels.cuda_common import DeviceFunction, cuda_kernel

pytestmark = pytest.mark.long

INSTALL = "pip install 'gpuboost-trees[cuda13]' cuda-core nvidia-nvjitlink"
pytest.importorskip("numba.cuda.np.numpy_support", reason=f"needs numba-cuda: {INSTALL}", exc_type=ImportError)
pytest.importorskip("cuda.core", reason=f"needs an assembler: {INSTALL}", exc_type=ImportError)

CAPABILITIES = ((7, 5), (8, 0), (9, 0), (10, 0))
HOPPER = (9, 0)
REGISTERS_OF_A_MULTIPROCESSOR = 65536
THREADS_OF_A_MULTIPROCESSOR = {(7, 5): 1024, (8, 0): 2048, (9, 0): 2048, (10, 0): 2048}
STATIC_SHARED_BYTES = 48 * 1024


# ---------------------------------------------------------------------------------------------------------------------
# Which kernels there are


def one_of_each_file_first(kernels):
    """Then another of each, so that those that a sweep keeps are of all files."""
    by_file = [list(group) for _, group in groupby(kernels, lambda k: k.name.partition(".")[0])]
    return [k for group in zip_longest(*by_file) for k in group if k is not None]


def with_choices(kernels):
    """Parameters, pairs (kernel, choice) for all combinations of types, called kernel-uint8."""
    cases = []
    for kernel in kernels:
        for choice in choices_of(kernel):
            cases.append(pytest.param((kernel, choice), id="-".join([kernel.name, *map(str, choice.values())])))
    return cases


KERNELS = one_of_each_file_first(package_kernels())
each_kernel = pytest.mark.parametrize("compiled", with_choices(KERNELS), indirect=True)
a_few = pytest.mark.sweep(4)  # the same ones for several tests


@pytest.fixture(scope="module")
def compiled(request):
    """A kernel and a choice of types. Of the module's scope, so that pytest runs all tests of one before those of the next, which
    share its PTX."""
    return request.param


@pytest.fixture
def kernel(compiled):
    return compiled[0]


@pytest.fixture
def choice(compiled):
    return compiled[1]


def test_every_factory_makes_kernels():
    for factory, arguments in FACTORIES:
        assert arguments, factory.__name__
        assert all(factory(argument) in KERNELS for argument in arguments)


def test_every_function_that_declares_a_kernel_is_among_the_factories():
    known = {factory.__name__ for factory, _ in FACTORIES}
    for module in modules_of(gpuboost.kernels):
        for name, value in vars(module).items():
            function = getattr(value, "__wrapped__", value) if callable(value) else None  # what @cache holds
            if isinstance(function, FunctionType) and function is not cuda_kernel:
                assert "cuda_kernel" not in function.__code__.co_names or name in known


# ---------------------------------------------------------------------------------------------------------------------
# Machine code


@cache
def _ptx(kernel, dtypes, capability):
    return to_ptx(kernel, dict(zip(kernel.choices, dtypes)), capability)


@pytest.fixture(autouse=True, scope="module")
def make_ptx_once():
    """The text whose instructions are looked at is the one that is assembled, where that is not in the cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiler, "to_ptx", lambda kernel, choice, capability: _ptx(kernel, tuple(choice.values()), capability))
        yield


@a_few
@pytest.mark.parametrize("capability", CAPABILITIES, ids=lambda c: f"sm_{c[0]}{c[1]}")
@each_kernel
def test_registers_and_memory_of_the_machine_code(kernel, choice, capability):
    compiled = compile_kernel(kernel, choice, capability)
    registers, spill_bytes, shared_bytes = compiled.registers, compiled.spill_bytes, compiled.shared_bytes
    assert not compiled.is_ptx
    assert spill_bytes == 0
    declared, possible = kernel.block * kernel.blocks_per_sm, THREADS_OF_A_MULTIPROCESSOR[capability]
    assert 0 < registers * min(declared, possible) <= REGISTERS_OF_A_MULTIPROCESSOR
    if declared <= possible:  # where fewer threads fit, each may have more registers
        assert registers <= kernel.registers
    assert shared_bytes <= STATIC_SHARED_BYTES


@pytest.mark.slow
@pytest.mark.parametrize("compiled", with_choices(KERNELS)[:3])
def test_ptx_is_the_same_whatever_capability_came_before(kernel, choice):
    """numba's part of the work is done once for all of them (compiler.to_ptx). Names hold counters, by which NVVM may order what
    else has no order."""

    def sorted_opcodes(capability):
        ptx = to_ptx(kernel, choice, capability)
        assert f".target sm_{capability[0]}{capability[1]}" in ptx
        return sorted(opcodes(ptx))

    compiler._latest.clear()
    alone = sorted_opcodes(HOPPER)
    compiler._latest.clear()
    assert sorted_opcodes((7, 5)) and sorted_opcodes(HOPPER) == alone != []


@pytest.mark.slow  # ten more kernels are compiled
def test_static_shared_memory_is_known():
    """A tile of histograms may take all that a block can have (histogram_tiles.py, histogram.py)."""
    by_name = {k.name: k for k in KERNELS}
    in_shared = [k for name, k in by_name.items() if builds_in_shared_memory(k)]
    assert len(in_shared) == 4 and all(compile_kernel(kernel, {}, HOPPER).shared_bytes == 0 for kernel in in_shared)
    tile = compile_kernel(by_name["binning.bin_rows_kernel"], {"code": np.dtype(np.uint8)}, HOPPER).shared_bytes
    assert tile == 2 * binning.TILE_ROWS * binning.TILE_WIDTH


# ---------------------------------------------------------------------------------------------------------------------
# PTX


def instructions(kernel, choice):
    """["ld.global.u32", "add.s32", …]: the instructions of a kernel's PTX without their operands."""
    return opcodes(_ptx(kernel, tuple(choice.values()), HOPPER))


def opcodes(ptx):
    body = re.sub(r"//.*", "", ptx[ptx.index("{", ptx.index(".entry")) :])
    return re.findall(r"^\s*(?:@!?%p\d+\s+)?([a-z][a-z0-9]*(?:(?:\.|::)\w+)*)(?:\s[^:\n]*)?;", body, re.MULTILINE)


def reaches_fma(function, seen=None):
    """Whether a function, or one that it calls, names the explicit fma of kernels/scalar.py."""
    seen = set() if seen is None else seen
    if function in seen:
        return False
    seen.add(function)
    values = [function.__globals__.get(name) for name in function.__code__.co_names]
    values += [cell.cell_contents for cell in function.__closure__ or ()]
    if any(value is scalar.fma for value in values):
        return True
    callees = [v.py_func for v in values if isinstance(v, DeviceFunction) or is_jitted(v)]
    return any(reaches_fma(callee, seen) for callee in callees)


def test_fma_is_found_behind_calls_and_closures():
    assert reaches_fma(scalar.exp_float.py_func) and reaches_fma(scalar.sigmoid_float.py_func)
    assert not reaches_fma(scalar.mix32.py_func) and not reaches_fma(scalar.node_score.py_func)
    formula = scalar.sigmoid_float
    assert reaches_fma(lambda x: formula(x))


@cuda_kernel("a: float64[:], n: int32")
def sample_kernel(a, n):
    """Shows that the patterns below see what they look for."""
    if n > 0:
        a[0] = scalar.fma(a[0], a[1], a[2]) / a[3]


def test_the_instructions_of_a_kernel_are_found():
    found = instructions(sample_kernel, {})
    assert found.count("ld.global.f64") == 4 and found.count("st.global.f64") == 1 and found.count("ret") == 1
    assert fused(found) == ["fma.rn.f64"] and double(found) == ["fma.rn.f64", "div.rn.f64"]


def fused(found):
    return [i for i in found if re.match(r"(fma|mad)\b.*\.f(16|32|64)", i)]


def double(found):
    """Arithmetic on float64; moves and loads of 64 bits may be of any type."""
    return [i for i in found if ".f64" in i and i.split(".")[0] not in ("ld", "st", "mov", "ldu", "selp")]


@a_few
@each_kernel
def test_floats_are_rounded_after_every_operation(kernel, choice):
    """No a·b + c in one, but where the text says fma; correctly rounded quotients and roots; denormals stay."""
    found = instructions(kernel, choice)
    floats = [i for i in found if re.search(r"\.f(32|64)$", i)]
    if not reaches_fma(kernel.function):
        assert fused(found) == []
    assert all(i.startswith("fma.rn.") for i in fused(found))
    assert all(".rn." in i for i in floats if i.split(".")[0] in ("add", "sub", "mul", "div", "sqrt", "rcp"))
    assert not [i for i in floats if ".approx" in i or ".ftz" in i or ".full" in i]


@a_few
@each_kernel
def test_no_nan_is_dropped_by_a_maximum(kernel, choice):
    """max.f32 and its kin return the other operand: formulas say larger and smaller (kernels/scalar.py).

    Where one operand is a constant, and a NaN in the other is to give it, the compiler may choose them.
    """
    found = re.findall(r"^\s*(?:max|min)\.f\w+\s.*;", _ptx(kernel, tuple(choice.values()), HOPPER), re.MULTILINE)
    assert all(re.search(r", 0[df][0-9A-F]+;$", line) for line in found)


@a_few
@each_kernel
def test_float64_instructions_appear_only_where_they_are_meant(kernel, choice):
    """Consumer GPUs do 1/64 as many float64 operations as float32 ones."""
    found = double(instructions(kernel, choice))
    assert kernel.uses_double or found == []


@a_few
@each_kernel
def test_no_thread_has_a_stack(kernel, choice):
    """Local memory is global memory: tuples and arrays of a thread belong in registers."""
    assert not re.search(r"\.local\b|__local_depot", _ptx(kernel, tuple(choice.values()), HOPPER))


@a_few
@each_kernel
def test_no_kernel_calls_a_function(kernel, choice):
    """All that a kernel calls is inlined; what is left would be a call into the C library or numba's runtime."""
    assert not [i for i in instructions(kernel, choice) if i.split(".")[0] == "call"]


@a_few
@each_kernel
def test_no_gpu_answers_what_nobody_reads(kernel, choice):
    """Of atomic operations on global memory without a result that is read the fast ones are meant, reductions."""
    ptx = _ptx(kernel, tuple(choice.values()), HOPPER)
    for register in re.findall(r"\batom(?!\.shared)[\w.]*\.(?:add|max|min)\.\w+\s+(%\w+),", ptx):
        assert len(re.findall(rf"{register}\b", ptx)) > 1
    if builds_in_shared_memory(kernel):
        assert re.search(r"\bred\.global\.add\.u64 ", ptx)


# ---------------------------------------------------------------------------------------------------------------------
# Atomic operations of histograms. Only 32-bit integers have a native add in shared memory; the rest would be loops.

HISTOGRAM_KERNELS = [k for k in KERNELS if k.function.__module__.startswith("gpuboost.kernels.histogram")]
SHARED_ADD = r"(?:atom|red)(?:\.relaxed|\.\wta|\.gpu)*\.shared(?:::cta)?(?:\.relaxed|\.cta|\.gpu)*\.add\.(\w+)"


def builds_in_shared_memory(kernel):
    return re.search("build_(strided_)?histograms_kernel", kernel.name) is not None


def test_there_is_a_kernel_that_builds_in_shared_memory():
    assert any(builds_in_shared_memory(kernel) for kernel in HISTOGRAM_KERNELS)


@pytest.mark.sweep(6)
@pytest.mark.parametrize("compiled", with_choices(HISTOGRAM_KERNELS))
def test_histograms_add_to_shared_memory_in_32_bits(kernel, choice):
    found = instructions(kernel, choice)
    atomics = [i for i in found if i.split(".")[0] in ("atom", "red")]
    assert not [i for i in atomics if ".cas" in i]
    widths = [match.group(1) for i in atomics if (match := re.fullmatch(SHARED_ADD, i))]
    assert set(widths) <= {"u32", "s32"} and (bool(widths) or not builds_in_shared_memory(kernel))


def disassembler():
    """cuobjdump of the wheel nvidia-cuda-cuobjdump, which needs nvdisasm beside it; None where either is missing."""
    name = ".exe" if sys.platform == "win32" else ""
    for folder in sorted(Path(sysconfig.get_paths()["purelib"]).glob("nvidia/*/bin")):
        if all((folder / (tool + name)).exists() for tool in ("cuobjdump", "nvdisasm")):
            return folder / ("cuobjdump" + name)
    return None


@pytest.mark.sweep(4)
@pytest.mark.parametrize("capability", CAPABILITIES, ids=lambda c: f"sm_{c[0]}{c[1]}")
@pytest.mark.parametrize("compiled", with_choices(HISTOGRAM_KERNELS))
def test_histograms_have_no_compare_and_swap_loops(kernel, choice, capability, tmp_path):
    tool = disassembler()
    if tool is None:
        pytest.skip("needs a disassembler: pip install nvidia-cuda-cuobjdump nvidia-cuda-nvdisasm")
    (tmp_path / "kernel.cubin").write_bytes(compile_kernel(kernel, choice, capability).image)
    done = subprocess.run([tool, "-sass", tmp_path / "kernel.cubin"], capture_output=True, text=True, check=True)
    assert "EXIT" in done.stdout
    assert not re.search(r"\bATOMS?G?\.\S*CAS", done.stdout)
    assert "ATOMS" not in done.stdout or re.search(r"\bATOMS\.(ADD|POPC)", done.stdout)
    assert not builds_in_shared_memory(kernel) or "ATOMS.ADD" in done.stdout
