"""Build a wheel whose kernels are compiled, for this Python: nothing is compiled where it is installed, not even read-only.

    python tools/kernel_wheel.py                        dist/gpuboost_trees-…-cp311-cp311-manylinux_2_17_x86_64.whl
    python tools/kernel_wheel.py --usual --out folder   without the kernels of rarer uses (gpuboost/warmup.py)
    python tools/kernel_wheel.py --cuda                 without any for GPUs

``python -m build`` goes on making the pure wheel, which serves every other platform; this takes that one, unpacks it, lets it
compile by ``gpuboost warmup`` under the name of each level of x86-64 (kernels/compile_cache.py) and packs what that leaves in
numba's cache. CUDA kernels (gpuboost/cuda_kernels.py) are compiled for a capability of each major number, which the later ones of
that number run, and as text for GPUs to come; this needs no GPU, but the extra [cuda13].

Machine code names the files of its sources, so the place is always the same, and of one commit, one Python and one set of
packages the wheel is the same byte for byte. Needs the packages build and wheel, gpuboost's dependencies, and a processor that
runs every level: the kernels are run as well. Without AVX-512 only those for AVX2 are built, which all later ones run.
Elsewhere than on Linux x86-64 there is nothing to build: the pure wheel compiles.
"""

import argparse
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
PLACE = Path("/tmp/gpuboost-kernel-wheel")  # fixed; one build at a time
LEVELS = "x86-64-v3", "x86-64-v4"
CAPABILITIES = "7.5", "8.0", "9.0", "10.0"
PLATFORM = "manylinux_2_17_x86_64"  # machine code calls nothing of the C library but what is older
N_AT_ONCE = 2  # processes that compile for GPUs
FIXED = {"PYTHONHASHSEED": "0", "SOURCE_DATE_EPOCH": "1577836800"}


def main() -> None:
    parser = argparse.ArgumentParser(description="Build a wheel with compiled kernels.")
    parser.add_argument("--levels", nargs="+", choices=LEVELS, help="those that this processor runs")
    parser.add_argument("--usual", action="store_true", help="only the kernels of the usual uses")
    parser.add_argument("--cuda", nargs="*", choices=CAPABILITIES, default=CAPABILITIES, help="compute capabilities")
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="folder of the wheel (dist)")
    options = parser.parse_args()
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        sys.exit("kernels are compiled for Linux on x86-64 only: build the pure wheel with python -m build.")
    try:
        PLACE.mkdir()
    except FileExistsError:
        sys.exit(f"{PLACE} is there: another build runs, or has died. Wait for it, or remove the folder.")
    warmup = ["-m", "gpuboost", "warmup"] + ["--all"] * (not options.usual)
    try:
        print(build(options.levels or own_levels(), warmup, options.cuda, options.out.resolve()))
    finally:
        shutil.rmtree(PLACE)


def own_levels() -> list[str]:
    """The levels that this processor runs; tells of those that it does not."""
    sys.path.insert(0, str(ROOT))
    from gpuboost.kernels.compile_cache import levels_of, own_features

    run_here = levels_of(own_features())
    for level in LEVELS:
        if level not in run_here:
            print(f"{level} is left out, which this processor does not run.", file=sys.stderr)
    return [level for level in LEVELS if level in run_here]


def build(levels: Sequence[str], arguments: Sequence[str], capabilities: Sequence[str], out: Path) -> Path:
    """The wheel in the folder out. arguments : of Python, to bring the kernels about."""
    run("build", "--wheel", "--outdir", PLACE, ROOT)
    run("wheel", "unpack", "--dest", PLACE, *PLACE.glob("*.whl"))
    (package,) = (path for path in PLACE.iterdir() if path.is_dir())
    compiled = package / "gpuboost" / "kernels" / "compiled"
    compiling = {level: start_compiling(package, level, arguments) for level in levels}
    check(compiling, "A level can be compiled on a processor that runs it.")
    for level in levels:
        collect(PLACE / level, compiled / level)
    for first in range(0, len(capabilities), N_AT_ONCE):
        some = capabilities[first : first + N_AT_ONCE]
        compiling = {name: start_compiling_cuda(package, name, compiled / "cuda") for name in some}
        check(compiling, "The extra [cuda13] has what compiles them.")
    for cache in package.rglob("__pycache__"):
        shutil.rmtree(cache)
    for path in PLACE.glob("*.whl"):
        path.unlink()
    run("wheel", "pack", "--dest-dir", PLACE, package)
    tag = f"cp{sys.version_info.major}{sys.version_info.minor}"
    abi = tag + getattr(sys, "abiflags", "")
    run("wheel", "tags", "--remove", "--python-tag", tag, "--abi-tag", abi, "--platform-tag", PLATFORM, *PLACE.glob("*.whl"))
    (wheel,) = PLACE.glob("*.whl")
    out.mkdir(parents=True, exist_ok=True)
    return Path(shutil.copy(wheel, out))


def start_compiling(package: Path, level: str, arguments: Sequence[str]) -> "subprocess.Popen[bytes]":
    """For any processor of the level: without the features of this one, without a vector library that others may not have."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("NUMBA_", "PYTHON", "GPUBOOST_"))} | FIXED
    env |= {"NUMBA_CPU_NAME": level, "NUMBA_CPU_FEATURES": "", "NUMBA_DISABLE_INTEL_SVML": "1", "GPUBOOST_KERNELS": "native"}
    env |= {"NUMBA_CACHE_DIR": str(PLACE / level), "GPUBOOST_COMPILERS": "1", "PYTHONPATH": str(package)}
    return subprocess.Popen([sys.executable, *arguments], env=env, cwd=PLACE)


def start_compiling_cuda(package: Path, capability: str, folder: Path) -> "subprocess.Popen[bytes]":
    """The text, too, of the latest one."""
    major, minor = map(int, capability.split("."))
    code = "from pathlib import Path; from gpuboost.cuda_kernels import write_kernels; "
    code += f"write_kernels(Path({str(folder)!r}), ({major}, {minor}), {capability == CAPABILITIES[-1]})"
    return subprocess.Popen([sys.executable, "-c", code], env=os.environ | FIXED | {"PYTHONPATH": str(package)}, cwd=PLACE)


def check(compiling: "dict[str, subprocess.Popen[bytes]]", hint: str) -> None:
    if failed := [name for name, process in compiling.items() if process.wait() != 0]:
        sys.exit(f"no kernels for {', '.join(failed)}: see above. {hint}")


def collect(cache: Path, folder: Path) -> None:
    """Bring together what lies in a folder for each folder of sources."""
    folder.mkdir(parents=True)
    paths = [path for path in sorted(cache.rglob("*")) if path.suffix in (".nbi", ".nbc")]
    assert len({path.name for path in paths}) == len(paths) > 0
    for path in paths:
        shutil.copyfile(path, folder / path.name)
    print(f"{folder.name}: {len(paths)} files, {sum(path.stat().st_size for path in paths) / 2**20:.1f} MiB")


def run(module: str, *arguments: str | Path) -> None:
    command = [sys.executable, "-m", module, *map(str, arguments)]
    done = subprocess.run(command, env=os.environ | FIXED, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\n{done.stdout}")


if __name__ == "__main__":
    main()
