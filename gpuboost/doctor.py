"""What this machine can train on, and what to do where something is in the way: gpuboost doctor.

A line per check, in the order in which one builds on another:

    ok        works                      missing   is not there, and need not be: the CPU trains
    wrong     a GPU is there, but cannot be used, or the CPU cannot train; the line says what to do

Where there is no GPU, what only a GPU needs and is not there either has no line.

Also ``python -m gpuboost.doctor``, for where the command itself cannot be imported. Whatever fails becomes a line.
"""

import argparse
import ctypes
import json
import os
import platform
import re
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from gpuboost import __version__
from gpuboost.errors import DISTRIBUTION, install
from gpuboost.output import write_output

__all__ = ["Finding", "build_info", "examine", "main", "report"]

NO_GPU = "no GPU: training runs on the CPU"


@dataclass(frozen=True)
class Finding:
    """state : "ok", "missing" or "wrong". found : what there is. fix : what to do, where there is something to do."""

    check: str
    state: str
    found: str
    fix: str = ""

    def __str__(self) -> str:
        return f"{self.state:8} {self.check:9} {self.found}" + (f"\n{'':19}fix: {self.fix}" if self.fix else "")


class Absent(Exception):
    """Something is not there that training can do without: what, and perhaps how to get it."""


@dataclass
class Machine:
    """What later checks must know of earlier ones. driver : of CUDA, 13020 for 13.2; 0 for none. problem : of the driver.
    is_ready : whether nothing has been found yet that keeps a GPU from being used."""

    driver: int = 0
    n_gpus: int = 0
    problem: str = ""
    is_ready: bool = False

    @property
    def may_have_gpu(self) -> bool:
        """Whether there is a GPU, or a driver that could not be asked."""
        return self.n_gpus > 0 or bool(self.problem)

    @property
    def extra(self) -> int:
        """Of gpuboost's extras, the one for this driver."""
        return 12 if 0 < self.driver < 13000 else 13

    @property
    def install(self) -> str:
        return install(f"cuda{self.extra}")


def examine() -> list[Finding]:
    """All checks that say something."""
    machine = Machine()
    with suppress(Exception):
        machine.driver, machine.n_gpus, machine.problem = ask_driver()
    machine.is_ready = machine.n_gpus > 0
    findings = []
    for name, (check, needs_gpu, fix) in CHECKS.items():
        if needs_gpu and not machine.is_ready:
            findings += [Finding(name, "missing", "not tried: see above")] * machine.may_have_gpu
            continue
        try:
            findings.append(Finding(name, "ok", check(machine)))
        except Absent as absent:
            if machine.may_have_gpu or name in ALWAYS_SAID:
                findings.append(Finding(name, "missing", *absent.args))
        except Exception as error:  # noqa: BLE001 - whatever it is, it is told
            is_needed = name in ON_CPU or machine.may_have_gpu
            machine.is_ready = machine.is_ready and name in ON_CPU
            found = " ".join(f"{type(error).__name__}: {error}".split())[:500]
            findings.append(Finding(name, "wrong" if is_needed else "missing", found, fix(machine) if is_needed else ""))
    return findings


def report(as_json: bool) -> int:
    """Print the findings; the exit code, 1 where something is wrong."""
    findings = examine()
    is_ok = all(finding.state != "wrong" for finding in findings)
    if as_json:
        text = json.dumps({"ok": is_ok, "checks": [asdict(finding) for finding in findings]}, indent=1)
    else:
        text = "\n".join(map(str, findings))
    write_output(f"{text}\n")
    return 0 if is_ok else 1


def build_info() -> dict[str, Any]:
    """What is installed, under XGBoost's names, and the versions of what computes. USE_CUDA : whether the software for training
    on a GPU is there; whether there is a GPU says examine()."""
    found = {name: installed_version(name) for name in ("numpy", "numba", "llvmlite", "numba-cuda")}
    found["cupy"] = installed_version("cupy-cuda13x") or installed_version("cupy-cuda12x")
    has_cuda = found["cupy"] is not None and found["numba-cuda"] is not None
    absent = dict.fromkeys(("DEBUG", "USE_FEDERATED", "USE_OPENMP", "USE_RMM"), False)
    return {"version": __version__, **absent, **dict.fromkeys(("USE_CUDA", "USE_NCCL", "USE_DLOPEN_NCCL"), has_cuda), **found}


# -- Checks: each returns what it found, raises Absent, or whatever is wrong ------------------------------------------


def check_versions(machine: Machine) -> str:
    import numba
    import numpy

    return f"Python {platform.python_version()}, NumPy {numpy.__version__}, Numba {numba.__version__}"


def check_package(machine: Machine) -> str:
    if (version := installed_version("gpuboost")) is not None:
        raise RuntimeError(f"gpuboost {version} is installed, another project whose files may lie in place of ours")
    return f"{DISTRIBUTION} {__version__} in {Path(__file__).parent}"


def check_cpu(machine: Machine) -> str:
    digest = train_on("cpu")
    import numba

    from gpuboost.backend import choose_backend

    return f"{choose_backend('cpu', None).describe()} by {numba.threading_layer()}, a small model is {digest[:12]}"


def check_cupy(machine: Machine) -> str:
    try:
        import cupy
    except ModuleNotFoundError as error:
        if error.name != "cupy" or machine.n_gpus:
            raise
        raise Absent("CuPy is not installed") from None
    runtime = cupy.cuda.runtime.runtimeGetVersion()
    found = f"CuPy {cupy.__version__} for CUDA {_dotted(runtime)}"
    if 0 < machine.driver // 1000 < runtime // 1000:
        raise RuntimeError(f"{found}, but the driver knows CUDA {_dotted(machine.driver)} at most")
    return found


def check_driver(machine: Machine) -> str:
    if machine.problem:
        raise RuntimeError(machine.problem)
    if not machine.driver:
        raise Absent("no NVIDIA driver")
    return f"{driver_name() or 'NVIDIA driver'}, for CUDA {_dotted(machine.driver)}"


def check_gpu(machine: Machine) -> str:
    if not machine.n_gpus:
        hidden = os.environ.get("CUDA_VISIBLE_DEVICES")
        why = ["no NVIDIA driver"] * (not machine.driver) + [f"CUDA_VISIBLE_DEVICES is {hidden!r}"] * (hidden is not None)
        raise Absent(NO_GPU + f" ({', '.join(why)})" * bool(why))
    from gpuboost.backend.cuda.device import find_device

    device = find_device(0)
    with device.current():
        free, total = device.xp.cuda.runtime.memGetInfo()
    more = f", and {machine.n_gpus - 1} more" if machine.n_gpus > 1 else ""
    major, minor = device.capability
    return f"{device.name}, compute capability {major}.{minor}, {free / 2**30:.1f} of {total / 2**30:.1f} GiB free{more}"


def check_compiler(machine: Machine) -> str:
    from gpuboost.backend.cuda.compiler import assemble, to_ptx
    from gpuboost.kernels.nodes import start_round_kernel

    if (numba_cuda := installed_version("numba-cuda")) is None and not machine.n_gpus:
        raise Absent("numba-cuda is not installed")
    capability = (9, 0)
    if machine.is_ready:
        from gpuboost.backend.cuda.device import find_device

        capability = find_device(0).capability
    compiled = assemble(to_ptx(start_round_kernel, {}, capability), capability)
    found = f"numba-cuda {numba_cuda} with NVVM, cuda-core {installed_version('cuda-core')}"
    if compiled.is_ptx:
        raise Absent(f"{found}: no assembler, so that the driver translates", "pip install cuda-core nvidia-nvjitlink")
    return f"{found}: machine code for sm_{capability[0]}{capability[1]}"


def check_launch(machine: Machine) -> str:
    from gpuboost.backend.cuda.device import usable_device

    if (problem := usable_device()) is not None:
        raise RuntimeError(problem)
    return "a kernel was loaded and launched, and did its work"


def check_arrays(machine: Machine) -> str:
    """CuPy compiles kernels of its own, with NVRTC and CUDA's headers; the backend copies and compares with them."""
    from gpuboost.backend.cuda.device import find_device

    device = find_device(0)
    with device.current():
        values = device.xp.arange(100, dtype="int32").reshape(4, 25)
        total = int(device.fetch((values.T + 1).sum()))
    if total != 5050:
        raise RuntimeError(f"CuPy added 1 to 100 up to {total}")
    return "CuPy compiles and runs its own kernels"


def check_cache(machine: Machine) -> str:
    from gpuboost.kernels.compile_cache import shipped_levels
    from gpuboost.kernels.leaves import update_margin_cpu

    folders = {"CPU": ("NUMBA_CACHE_DIR", getattr(update_margin_cpu.dispatcher._cache, "cache_path", None))}
    if machine.n_gpus:
        folders["GPU"] = "GPUBOOST_CACHE_DIR", writable_cache()
    came = f"; kernels for {shipped_levels()[0]} came with the package" if shipped_levels() else ""
    for processor, (variable, folder) in folders.items():
        if folder is None:
            raise Absent(
                f"no folder can be written for kernels of the {processor}: every process compiles them anew{came}",
                f"set {variable} to one that can",
            )
    return ", ".join(f"{folder} of the {processor}" for processor, (_, folder) in folders.items()) + came


def check_training(machine: Machine) -> str:
    on_gpu, on_cpu = train_on("cuda"), train_on("cpu")
    if on_gpu != on_cpu:
        raise RuntimeError(f"the GPU's model {on_gpu[:12]} is not the CPU's, {on_cpu[:12]}")
    return f"trains on the GPU: the CPU's model, {on_gpu[:12]}"


ON_CPU = ("versions", "package", "cpu")  # what training needs anyway
ALWAYS_SAID = (*ON_CPU, "gpu", "cache")  # also of what is missing where there is no GPU
# The check, whether it needs a GPU that works so far, and what to do where it raises.
CHECKS: dict[str, tuple[Callable[[Machine], str], bool, Callable[[Machine], str]]] = {
    "versions": (check_versions, False, lambda _: "pip install --upgrade numba numpy"),
    "package": (check_package, False, lambda _: f"pip uninstall -y gpuboost && pip install --force-reinstall {DISTRIBUTION}"),
    "cpu": (check_cpu, False, lambda _: f"pip install --force-reinstall {DISTRIBUTION}; report the error if it stays"),
    "cupy": (check_cupy, False, lambda machine: f"pip uninstall -y cupy-cuda12x cupy-cuda13x && {machine.install}"),
    "driver": (check_driver, False, lambda _: "install NVIDIA's driver and start anew until nvidia-smi lists the GPU; start "
               "containers with --gpus all"),
    "gpu": (check_gpu, False, lambda machine: machine.install),
    "compiler": (check_compiler, False, lambda machine: f"{machine.install} --upgrade --force-reinstall"),
    "arrays": (check_arrays, True, lambda machine: f"pip install 'cupy-cuda{machine.extra}x[ctk]'"),
    "launch": (check_launch, True, lambda machine: f"update NVIDIA's driver, or {machine.install}"),
    "cache": (check_cache, False, lambda _: "set NUMBA_CACHE_DIR and GPUBOOST_CACHE_DIR to folders that can be written"),
    "training": (check_training, True, lambda _: "train with device='cpu', and report this"),
}  # fmt: skip


# -- What they ask ----------------------------------------------------------------------------------------------------


def ask_driver() -> tuple[int, int, str]:
    """CUDA version of the NVIDIA driver, number of GPUs, and what is wrong with it. Asks the driver itself, as CuPy may be what
    is missing. Nothing is wrong without a driver, unless its kernel module is loaded."""
    try:
        driver = ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
    except OSError:
        return 0, 0, "the driver's module is loaded, but there is no libcuda.so.1" if driver_name() else ""
    cuda_version, n_gpus = ctypes.c_int(), ctypes.c_int()
    driver.cuDriverGetVersion(ctypes.byref(cuda_version))
    status = driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(n_gpus))
    no_device = 100, 34  # CUDA_ERROR_NO_DEVICE, and CUDA_ERROR_STUB_LIBRARY, of a toolkit without a driver
    return cuda_version.value, n_gpus.value, f"the driver answers with error {status}" if status not in (0, *no_device) else ""


def writable_cache() -> Path | None:
    """Where compiled CUDA kernels are kept, if they can be: there may be no home folder, or none that can be written."""
    from gpuboost.backend.cuda.kept import cache_folder

    with suppress(OSError, RuntimeError):
        folder = cache_folder()
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return folder
    return None


def train_on(device: str) -> str:
    """Digest of a small model."""
    import numpy as np

    import gpuboost
    from gpuboost.model_io import digest

    random = np.random.default_rng(0)
    X = random.normal(size=(100, 3)).astype(np.float32)
    X[random.random(X.shape) < 0.1] = np.nan
    y = (np.nan_to_num(X[:, 0]) > np.nan_to_num(X[:, 1])).astype(np.float32)
    params: dict[str, Any] = {"objective": "binary:logistic", "max_depth": 3, "max_bin": 16, "device": device}
    return digest(gpuboost.train(params, gpuboost.DMatrix(X, y), 2, verbose_eval=False).model)


def driver_name() -> str:
    """ "NVIDIA driver 580.159.04", where Linux has loaded it."""
    with suppress(OSError):
        found = re.search(r"\d+\.\d+(\.\d+)?", Path("/proc/driver/nvidia/version").read_text())
        return f"NVIDIA driver {found.group()}" if found else "NVIDIA driver"
    return ""


def installed_version(package: str) -> str | None:
    with suppress(PackageNotFoundError):
        return version(package)
    return None


def _dotted(cuda_version: int) -> str:
    return f"{cuda_version // 1000}.{cuda_version % 1000 // 10}"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="gpuboost doctor", description="What this machine can train on.")
    parser.add_argument("--json", action="store_true", help="for programs")
    return report(parser.parse_args(arguments).json)


if __name__ == "__main__":
    sys.exit(main())
