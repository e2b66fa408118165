"""backend/cuda/compiler.py: PTX without contraction, machine code from it, and a cache that never hands out anything else."""

import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from gpuboost.backend.cuda import compiler, kept
from gpuboost.backend.cuda.compiler import _as_reductions, _say_why_not, compile_kernel, to_ptx
from gpuboost.backend.cuda.kept import CompiledKernel, cache_folder
from gpuboost.kernels.cuda_common import cuda_kernel
from gpuboost.kernels.jit import scalar
from gpuboost.kernels.nodes import start_round_kernel
from gpuboost.kernels.scalar import fma, mix32

HOPPER = (9, 0)
CHOICE = {"number": np.dtype(np.float32)}


@cuda_kernel("a: number[:], out: number[:]", number=(np.float32, np.float64))
def product_and_sum_kernel(a, out):
    out[0] = a[0] * a[1] + a[2]


@cuda_kernel("a: number[:], out: number[:]", number=(np.float32, np.float64))
def fused_kernel(a, out):
    out[0] = fma(a[0], a[1], a[2])


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """The folder of the cache, for this test alone."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("GPUBOOST_CACHE_DIR", str(folder))
    return folder


class Toolchain:
    """Stands for the compiler: counts what it is asked for, and makes machine code that tells requests apart."""

    def __init__(self, monkeypatch):
        self.compiled = []
        monkeypatch.setattr(compiler, "to_ptx", self.to_ptx)
        monkeypatch.setattr(compiler, "assemble", self.assemble)

    def to_ptx(self, kernel, choice, capability):
        self.compiled.append((kernel.name, {k: str(v) for k, v in choice.items()}, capability))
        return repr(self.compiled[-1])

    def assemble(self, ptx, capability):
        # Machine code is any bytes: also line ends, and what is no UTF-8.
        return CompiledKernel(b"\x7fELF\n\xff" + ptx.encode(), "symbol", False, 20, 0, 256)


@pytest.fixture
def toolchain(monkeypatch):
    return Toolchain(monkeypatch)


def entries(folder) -> list[Path]:
    return sorted(folder.iterdir())


# ---------------------------------------------------------------------------------------------------------------------
# The cache


def test_the_second_call_compiles_nothing(cache, toolchain):
    first = compile_kernel(fused_kernel, CHOICE, HOPPER)
    second = compile_kernel(fused_kernel, CHOICE, HOPPER)
    assert first == second and len(toolchain.compiled) == 1 and len(entries(cache)) == 1


def test_atomic_operations_whose_result_nobody_reads_become_reductions():
    kept = ["atom.global.add.u64 \t%rd1, [%rd2], %rd3;", "add.s64 %rd4, %rd1, 1;", "atom.shared.add.u32 %r1, [%rd2], %r2;",
            "atom.global.cas.b64 %rd5, [%rd2], %rd3, %rd4;"]  # fmt: skip
    ptx = "\n".join([*kept, "atom.global.add.u64 \t%rd12, [%rd2], %rd3;", "atom.global.max.s64 %rd6, [%rd2+8], %rd3;"])
    assert _as_reductions(ptx).splitlines() == [*kept, "red.global.add.u64 [%rd2], %rd3;", "red.global.max.s64 [%rd2+8], %rd3;"]


def test_every_field_of_an_entry_comes_back(cache):
    whole = CompiledKernel(bytes(range(256)) * 3, "symbol", True, -1, -2, -3)
    kept._write(cache / "entry", whole)
    assert kept._read(cache / "entry") == whole


def test_without_the_cache_every_call_compiles(cache, toolchain):
    for _ in range(2):
        compile_kernel(fused_kernel, CHOICE, HOPPER, use_cache=False)
    assert len(toolchain.compiled) == 2 and not cache.exists()


def test_architectures_and_types_have_their_own_entries(cache, toolchain):
    requests = [(HOPPER, np.float32), ((8, 0), np.float32), (HOPPER, np.float64)]
    for _ in range(2):
        images = [compile_kernel(fused_kernel, {"number": np.dtype(t)}, capability).image for capability, t in requests]
        assert len(set(images)) == 3
    assert len(toolchain.compiled) == 3 and len(entries(cache)) == 3


def test_kernels_have_their_own_entries(cache, toolchain):
    images = {compile_kernel(kernel, CHOICE, HOPPER).image for kernel in (fused_kernel, product_and_sum_kernel)}
    assert len(images) == 2 and len(entries(cache)) == 2


def test_formulas_of_one_factory_have_their_own_entries(cache, toolchain):
    for formula in (mix32, formula_of("gpuboost.objectives.one"), formula_of("gpuboost.objectives.two")):
        compile_kernel(replace(fused_kernel, formula=formula), CHOICE, HOPPER)
    assert len(entries(cache)) == 3


def formula_of(module):
    """A formula that might come from this module."""

    def formula(margin):
        return margin

    formula.__module__ = module
    return scalar(formula)


def test_an_edited_kernel_is_compiled_again(cache, toolchain, monkeypatch):
    compile_kernel(fused_kernel, CHOICE, HOPPER)
    monkeypatch.setattr(kept, "source_stamp", lambda: "another text")
    compile_kernel(fused_kernel, CHOICE, HOPPER)
    assert len(toolchain.compiled) == 2


def test_an_edited_kernel_from_outside_the_package_is_compiled_again(cache, toolchain, monkeypatch):
    """The stamp of the sources does not cover it; that of a benchmark, say."""
    compile_kernel(fused_kernel, CHOICE, HOPPER)
    monkeypatch.setattr(kept.inspect, "getsource", lambda function: "another text")
    compile_kernel(fused_kernel, CHOICE, HOPPER)
    assert len(toolchain.compiled) == 2


@pytest.mark.parametrize("package", ["numba-cuda", "nvidia-nvvm", "nvidia-nvjitlink", "cuda-core"])
def test_another_version_of_a_tool_compiles_again(package, cache, toolchain, monkeypatch):
    found = kept.version
    compile_kernel(fused_kernel, CHOICE, HOPPER)
    monkeypatch.setattr(kept, "version", lambda name: "0.0.1" if name == package else found(name))
    kept._tool_versions.cache_clear()
    try:
        compile_kernel(fused_kernel, CHOICE, HOPPER)
    finally:
        kept._tool_versions.cache_clear()
    assert len(toolchain.compiled) == 2


def test_a_kernel_around_a_formula_from_outside_the_package_is_not_cached(cache, toolchain):
    @scalar
    def own(margin):
        return margin

    for _ in range(2):
        compile_kernel(replace(fused_kernel, formula=own), CHOICE, HOPPER)
    assert len(toolchain.compiled) == 2 and not cache.exists()


DAMAGE = {
    "empty": lambda data: b"",
    "half": lambda data: data[: len(data) // 2],
    "without its last byte": lambda data: data[:-1],
    "without its header": lambda data: data.partition(b"\n")[2],
    "header alone": lambda data: data.partition(b"\n")[0],
    "one bit flipped": lambda data: data[:-3] + bytes([data[-3] ^ 1]) + data[-2:],
    "other JSON: number": lambda data: b"1\n" + data.partition(b"\n")[2],
    "other JSON: list": lambda data: b"[]\n" + data.partition(b"\n")[2],
    "other JSON: null": lambda data: b"null\n" + data.partition(b"\n")[2],
    "other fields": lambda data: data.replace(b'"symbol"', b'"name"', 1),
    "not UTF-8": lambda data: b"\xff\xfe" + data,
    "longer": lambda data: data + b"\0",
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_entry_is_made_anew(damage, cache, toolchain):
    whole = compile_kernel(fused_kernel, CHOICE, HOPPER)
    (entry,) = entries(cache)
    good = entry.read_bytes()
    assert damage(good) != good
    entry.write_bytes(damage(good))
    assert compile_kernel(fused_kernel, CHOICE, HOPPER) == whole and len(toolchain.compiled) == 2
    assert entries(cache) == [entry] and entry.read_bytes() == good


def test_a_folder_that_cannot_be_made_means_no_cache_and_is_told_once(tmp_path, toolchain, monkeypatch, capsys):
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("GPUBOOST_CACHE_DIR", str(tmp_path / "file" / "cache"))
    kept._say_not_kept.cache_clear()
    for _ in range(2):
        assert compile_kernel(fused_kernel, CHOICE, HOPPER).symbol == "symbol"
    assert len(toolchain.compiled) == 2 and (tmp_path / "file").read_text() == "no folder"
    assert capsys.readouterr().err.count("Set the environment variable GPUBOOST_CACHE_DIR to a folder that can be written") == 1


def test_a_folder_that_may_not_be_written_means_no_cache(cache, toolchain, monkeypatch):
    def refuse(*args, **kwargs):
        raise PermissionError(13, "Permission denied")

    cache.mkdir()
    monkeypatch.setattr(kept, "write_file", refuse)
    for _ in range(2):
        assert compile_kernel(fused_kernel, CHOICE, HOPPER).symbol == "symbol"
    assert len(toolchain.compiled) == 2 and entries(cache) == []


def test_a_folder_in_place_of_an_entry_is_left_alone(cache, toolchain):
    compile_kernel(fused_kernel, CHOICE, HOPPER)
    (entry,) = entries(cache)
    entry.unlink()
    (entry / "full").mkdir(parents=True)
    assert compile_kernel(fused_kernel, CHOICE, HOPPER).symbol == "symbol"
    assert entries(cache) == [entry] and entries(entry) == [entry / "full"]


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()], ids=["disk full", "interrupted"])
def test_a_write_that_fails_leaves_nothing_behind(error, cache, toolchain, monkeypatch):
    def fail(*args):
        raise error

    monkeypatch.setattr(kept.os, "replace", fail)
    try:
        compile_kernel(fused_kernel, CHOICE, HOPPER)
    except KeyboardInterrupt:
        assert isinstance(error, KeyboardInterrupt)
    assert entries(cache) == []


def _write_often(folder, number):
    """What a process of the next test does: one of two valid contents, over and over, read in between."""
    compiled = CompiledKernel(bytes([number]) * 50_000, f"symbol_{number}", False, number, 0, 0)
    for _ in range(50):
        kept._write(Path(folder) / "entry", compiled)
        read = kept._read(Path(folder) / "entry")
        assert read is not None and read.image == bytes([read.registers]) * 50_000


def test_processes_that_write_one_entry_leave_a_whole_one(tmp_path):
    processes = [get_context("spawn").Process(target=_write_often, args=(str(tmp_path), n)) for n in (1, 2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [p.exitcode for p in processes] == [0, 0]
    assert entries(tmp_path) == [tmp_path / "entry"] and kept._read(tmp_path / "entry") is not None


# ---------------------------------------------------------------------------------------------------------------------
# With the package


@pytest.fixture
def shipped(tmp_path, monkeypatch):
    """Ships start_round_kernel as if for these folders, each with an image that says whose it is."""
    monkeypatch.setattr(kept, "SHIPPED_CUDA", tmp_path / "shipped")

    def ship(*names):
        for name in names:
            compiled = CompiledKernel(name.encode(), "symbol", name.endswith("ptx"), 1, 0, 0)
            kept.ship_kernel(start_round_kernel, {}, compiled, tmp_path / "shipped" / name)

    return ship


def image(capability):
    return compile_kernel(start_round_kernel, {}, capability).image


def test_machine_code_of_the_package_serves_later_minor_numbers(shipped, cache, toolchain, monkeypatch):
    shipped("7.5", "8.0", "8.6", "9.0", "9.0.ptx")
    served = {(7, 5): b"7.5", (8, 0): b"8.0", (8, 3): b"8.0", (8, 6): b"8.6", (8, 9): b"8.6", (9, 0): b"9.0"}
    assert {capability: image(capability) for capability in served} == served
    assert toolchain.compiled == [] and not cache.exists()
    assert [image(own).startswith(b"\x7fELF") for own in ((7, 0), (7, 2), (10, 0))] == [True] * 3
    monkeypatch.setenv("GPUBOOST_KERNELS", "native")
    assert image((9, 0)).startswith(b"\x7fELF")


def test_text_of_the_package_serves_later_gpus_where_nothing_compiles(shipped, cache, monkeypatch):
    def nothing_compiles(*_):
        raise ImportError("numba-cuda is not installed")

    monkeypatch.setattr(compiler, "to_ptx", nothing_compiles)
    shipped("9.0", "9.0.ptx", "10.0.ptx")
    assert [image(own) for own in ((9, 0), (10, 0), (12, 1))] == [b"9.0", b"10.0.ptx", b"10.0.ptx"]
    with pytest.raises(ImportError, match="not installed"):
        image((8, 9))
    assert not cache.exists()


def test_machine_code_of_other_sources_or_damaged_does_not_serve(shipped, cache, toolchain, tmp_path, monkeypatch):
    shipped("9.0")
    (path,) = (tmp_path / "shipped" / "9.0").iterdir()
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    assert image(HOPPER).startswith(b"\x7fELF")
    path.write_bytes(whole)
    assert image(HOPPER) == b"9.0"
    monkeypatch.setattr(kept, "source_stamp", lambda: "another text")
    assert image(HOPPER).startswith(b"\x7fELF")


def test_threads_that_compile_one_kernel_get_the_same(cache, toolchain):
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda _: compile_kernel(fused_kernel, CHOICE, HOPPER), range(32)))
    assert len(set(results)) == 1 and len(entries(cache)) == 1


def test_the_folder_of_the_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("GPUBOOST_CACHE_DIR", str(tmp_path))
    assert cache_folder() == tmp_path
    monkeypatch.delenv("GPUBOOST_CACHE_DIR")
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder() == tmp_path / "xdg" / "gpuboost" / "cuda"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert cache_folder() == tmp_path / "home" / ".cache" / "gpuboost" / "cuda"


# ---------------------------------------------------------------------------------------------------------------------
# The toolchain


def block_imports(monkeypatch, package):
    """Let the package and all below it be missing."""
    for name in list(sys.modules):
        if name == package or name.startswith(package + "."):
            monkeypatch.delitem(sys.modules, name)

    class Missing:
        def find_spec(self, name, path=None, target=None):
            if name == package or name.startswith(package + "."):
                raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr(sys, "meta_path", [Missing(), *sys.meta_path])


def test_a_missing_compiler_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setenv("GPUBOOST_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delattr("numba.cuda", raising=False)  # else the import finds the submodule as an attribute
    block_imports(monkeypatch, "numba.cuda")
    with pytest.raises(ImportError, match=re.escape("pip install 'gpuboost-trees[cuda13]'")):
        compile_kernel(fused_kernel, CHOICE, HOPPER)
    assert not (tmp_path / "cache").exists()


def test_numba_without_numba_cuda_says_what_to_install(monkeypatch):
    """numba has a numba.cuda of its own, deprecated, which cannot do what is needed here."""
    block_imports(monkeypatch, "numba.cuda.np")
    with pytest.raises(ImportError, match="numba-cuda"):
        to_ptx(fused_kernel, CHOICE, HOPPER)


@pytest.fixture
def numba_cuda():
    fix = "needs numba-cuda: pip install 'gpuboost-trees[cuda13]'"
    pytest.importorskip("numba.cuda.np.numpy_support", reason=fix, exc_type=ImportError)


def test_numpy_without_row_stack(numba_cuda):
    """NumPy 2.5 has it no longer. A new process: numba-cuda asks for it once."""
    program = (
        "import numpy as np; np.__dict__.pop('row_stack', None)\n"
        "from gpuboost.backend.cuda.compiler import to_ptx; from gpuboost.kernels.nodes import start_round_kernel\n"
        "print(to_ptx(start_round_kernel, {}, (9, 0)).count('.entry'), hasattr(np, 'row_stack'))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["1", "False"]


@pytest.mark.parametrize("is_found, loaded", [(True, []), (False, ["/usr/local/cuda/nvvm/lib64/libnvvm.so"])])
def test_nvvm_of_a_toolkit_of_the_system(is_found, loaded, monkeypatch):
    def find(name):
        if not is_found:
            raise RuntimeError(f"no {name}")

    opened = []
    monkeypatch.setitem(sys.modules, "cuda.pathfinder", SimpleNamespace(load_nvidia_dynamic_lib=find))
    monkeypatch.setattr(compiler.ctypes, "CDLL", lambda path, mode: opened.append(path))
    compiler._find_nvvm.__wrapped__()
    assert opened == loaded


def float_instructions(ptx):
    """Arithmetic on floats: ["mul.rn.f32", "add.rn.f32"]."""
    return re.findall(r"^\s*((?:add|sub|mul|mad|fma|div)(?:\.\w+)*\.f(?:32|64))\s", ptx, re.MULTILINE)


@pytest.mark.parametrize("dtype, suffix", [(np.float32, "f32"), (np.float64, "f64")])
def test_a_product_and_a_sum_are_rounded_twice(dtype, suffix, numba_cuda):
    ptx = to_ptx(product_and_sum_kernel, {"number": np.dtype(dtype)}, HOPPER)
    assert float_instructions(ptx) == [f"mul.rn.{suffix}", f"add.rn.{suffix}"]


@pytest.mark.parametrize("dtype, suffix", [(np.float32, "f32"), (np.float64, "f64")])
def test_an_explicit_fma_is_rounded_once(dtype, suffix, numba_cuda):
    assert float_instructions(to_ptx(fused_kernel, {"number": np.dtype(dtype)}, HOPPER)) == [f"fma.rn.{suffix}"]


def test_numbas_compiler_is_left_as_it_was(numba_cuda):
    import numba.cuda.compiler as numba_compiler

    before = numba_compiler.compile_cuda
    to_ptx(fused_kernel, CHOICE, HOPPER)
    with pytest.raises(RuntimeError), compiler._no_contraction(HOPPER):
        assert numba_compiler.compile_cuda is not before
        raise RuntimeError
    assert numba_compiler.compile_cuda is before


@pytest.mark.parametrize("capability", [(7, 5), (9, 0)])
def test_ptx_is_for_the_architecture_asked_for(capability, numba_cuda):
    assert f".target sm_{capability[0]}{capability[1]}" in to_ptx(fused_kernel, CHOICE, capability)


@cuda_kernel("a: float32[:]", block=512, blocks_per_sm=4)
def bounded_kernel(a):
    a[0] = a[0]


def test_ptx_states_the_block_and_how_many_share_a_multiprocessor(numba_cuda):
    ptx = to_ptx(bounded_kernel, {}, HOPPER)
    assert re.search(r"\.maxntid\s+512\b", ptx) and re.search(r"\.minnctapersm\s+4\b", ptx)


@pytest.mark.parametrize("capability, blocks", [((7, 5), 2), ((8, 0), 4), ((8, 6), 3), ((8, 9), 3), ((10, 0), 4), ((12, 0), 3)])
def test_no_more_blocks_share_a_multiprocessor_than_fit(capability, blocks, numba_cuda):
    """1024, 2048 or 1536 threads, by the architecture."""
    assert re.search(rf"\.minnctapersm\s+{blocks}\b", to_ptx(bounded_kernel, {}, capability))


def test_the_machine_code_holds_the_kernel(cache, numba_cuda):
    pytest.importorskip("cuda.core", reason="needs an assembler: pip install cuda-core nvidia-nvjitlink")
    compiled = compile_kernel(fused_kernel, CHOICE, HOPPER)
    assert not compiled.is_ptx and compiled.image.startswith(b"\x7fELF") and compiled.symbol.encode() in compiled.image
    assert 0 < compiled.registers <= 32 and compiled.spill_bytes == 0 and compiled.shared_bytes == 0


def test_without_an_assembler_there_is_ptx(cache, monkeypatch, numba_cuda):
    block_imports(monkeypatch, "cuda.core")
    compiled = compile_kernel(fused_kernel, CHOICE, HOPPER)
    ptx = compiled.image.decode()
    assert compiled.is_ptx and f".entry {compiled.symbol}(" in ptx and float_instructions(ptx) == ["fma.rn.f32"]
    assert (compiled.registers, compiled.spill_bytes, compiled.shared_bytes) == (-1, -1, 0)
    assert not cache.exists(), "an assembler may be found next time"


@pytest.mark.parametrize("error", [ValueError, type("nvJitLinkError", (Exception,), {})])
def test_with_an_assembler_that_fails_there_is_ptx(error, cache, monkeypatch, numba_cuda, capsys):
    """What cuda.core raises where the driver's linker lacks an option, or nvJitLink does not know the architecture."""

    def fail(*_, **__):
        raise error("does not work")

    monkeypatch.setattr("cuda.core.Linker", fail)
    _say_why_not.cache_clear()
    assert compile_kernel(fused_kernel, CHOICE, HOPPER).is_ptx
    assert f"({error.__name__}: does not work)" in capsys.readouterr().err
