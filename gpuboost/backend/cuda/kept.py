"""Compiled CUDA kernels in files: those that a user's machine keeps, and those that have come with the package.

    the package        compiled/cuda/9.0/ and so on, in wheels (tools/kernel_wheel.py): machine code for a compute capability,
                       which every one of the same major number runs from that minor number on
    the user's cache   compiled here, for this very capability and by these very tools
    the package        compiled/cuda/10.0.ptx/: where nothing compiles here, text for the driver of a later GPU to translate

A file's name is a hash of all that its content depends on, and its first line says what the rest must be: a file of other
sources, or one that is damaged, is as good as none.
"""

import inspect
import json
import os
import re
import sys
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cache
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from gpuboost.config import log
from gpuboost.kernels.compile_cache import SHIPPED, source_stamp
from gpuboost.kernels.cuda_common import CudaKernel
from gpuboost.paths import write_file

__all__ = [
    "CompiledKernel", "cache_folder", "keep_kernel", "kept_kernel", "ship_kernel", "shipped_kernel", "shipped_ptx",
]  # fmt: skip

_TOOLS = (
    "numba", "numba-cuda", "llvmlite", "numpy", "cuda-core", "nvidia-nvvm", "nvidia-nvjitlink", "nvidia-nvjitlink-cu12",
    "nvidia-cuda-nvcc", "nvidia-cuda-nvcc-cu12",
)  # fmt: skip
SHIPPED_CUDA = SHIPPED / "cuda"
Choice = dict[str, np.dtype[Any]]


@dataclass(frozen=True)
class CompiledKernel:
    """Machine code of one kernel for one architecture.

    image : a cubin, or PTX text where is_ptx. symbol : the kernel's name in it.
    registers, spill_bytes : of a thread, as the assembler reports; −1 for PTX. shared_bytes : static shared memory of a block.
    """

    image: bytes
    symbol: str
    is_ptx: bool
    registers: int
    spill_bytes: int
    shared_bytes: int


# ---- With the package


def shipped_kernel(kernel: CudaKernel, choice: Choice, capability: tuple[int, int]) -> CompiledKernel | None:
    """Machine code that this capability runs. GPUBOOST_KERNELS=native: there is none."""
    if os.environ.get("GPUBOOST_KERNELS") == "native" or not _is_ours(kernel) or not SHIPPED_CUDA.is_dir():
        return None
    major, name = capability[0], _file_name(kernel, choice)
    found = (_read(SHIPPED_CUDA / f"{major}.{minor}" / name) for minor in range(capability[1], -1, -1))
    return next((compiled for compiled in found if compiled is not None), None)


def shipped_ptx(kernel: CudaKernel, choice: Choice, capability: tuple[int, int]) -> CompiledKernel | None:
    """Text of the latest capability that is not later than this one."""
    known = (tuple(map(int, path.stem.split("."))) for path in SHIPPED_CUDA.glob("*.ptx"))
    for major, minor in sorted((own for own in known if own <= capability and _is_ours(kernel)), reverse=True):
        if (found := _read(SHIPPED_CUDA / f"{major}.{minor}.ptx" / _file_name(kernel, choice))) is not None:
            return found
    return None


def ship_kernel(kernel: CudaKernel, choice: Choice, compiled: CompiledKernel, folder: Path) -> None:
    """Into the folder of a capability."""
    _write(folder / _file_name(kernel, choice), compiled)


# ---- The user's cache


def kept_kernel(kernel: CudaKernel, choice: Choice, capability: tuple[int, int]) -> CompiledKernel | None:
    path = _kept_path(kernel, choice, capability)
    return None if path is None else _read(path)


def keep_kernel(kernel: CudaKernel, choice: Choice, capability: tuple[int, int], compiled: CompiledKernel) -> None:
    """Where it may not write it says so, once."""
    if (path := _kept_path(kernel, choice, capability)) is not None:
        try:
            _write(path, compiled)
        except OSError as error:
            _say_not_kept(str(error))


def _kept_path(kernel: CudaKernel, choice: Choice, capability: tuple[int, int]) -> Path | None:
    """None, and a word about it, for a user without a home folder and a kernel without a file."""
    try:
        return cache_folder() / _file_name(kernel, choice, capability, _tool_versions())
    except (RuntimeError, OSError) as error:
        _say_not_kept(str(error))
        return None


@cache
def _say_not_kept(reason: str) -> None:
    log(
        1,
        f"compiled CUDA kernels cannot be kept, so every process compiles them anew ({reason}). Set the environment variable "
        "GPUBOOST_CACHE_DIR to a folder that can be written.",
    )


def cache_folder() -> Path:
    """Where compiled CUDA kernels lie: GPUBOOST_CACHE_DIR, else gpuboost/cuda under the user's cache folder."""
    if chosen := os.environ.get("GPUBOOST_CACHE_DIR"):
        return Path(chosen)
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or str(Path.home() / "AppData" / "Local")
    else:
        base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "gpuboost" / "cuda"


# ---- Files


def _file_name(kernel: CudaKernel, choice: Choice, *more: Any) -> str:
    """more : what else the content depends on."""
    types = sorted((name, np.dtype(dtype).str) for name, dtype in choice.items())
    text = "" if _is_ours(kernel) else inspect.getsource(kernel.function)
    facts = [source_stamp(), text, _compiler_text(), kernel.name, types, *more]
    name = re.sub(r"\W+", "_", kernel.name.partition("[")[0])
    return f"{name}-{sha256(repr(facts).encode()).hexdigest()[:32]}"


def _is_ours(kernel: CudaKernel) -> bool:
    """Whether the stamp covers it."""
    return kernel.function.__module__.startswith("gpuboost.")


@cache
def _compiler_text() -> str:
    """The module that decides how kernels are compiled is part of what they depend on."""
    return sha256(Path(__file__).with_name("compiler.py").read_bytes()).hexdigest()


@cache
def _tool_versions() -> str:
    found = {}
    for package in _TOOLS:
        with suppress(PackageNotFoundError):
            found[package] = version(package)
    return json.dumps([found, sys.version_info[:2]])


def _read(path: Path) -> CompiledKernel | None:
    """What was written; None when there is none, or something else."""
    with suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
        header, _, image = path.read_bytes().partition(b"\n")
        facts = json.loads(header)
        if facts.pop("sha256") == sha256(image).hexdigest():
            return CompiledKernel(image=image, **facts)
    return None


def _write(path: Path, compiled: CompiledKernel) -> None:
    """Several processes may at once."""
    facts = {k: v for k, v in asdict(compiled).items() if k != "image"} | {"sha256": sha256(compiled.image).hexdigest()}
    path.parent.mkdir(parents=True, exist_ok=True)
    write_file(str(path), json.dumps(facts).encode() + b"\n" + compiled.image)
