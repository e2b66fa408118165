"""What the processor that kernels are compiled for can do.

LLVM takes half of a register of AVX-512 for every processor of Intel's, since the first ones with it, to 2020, slowed down where
it was used whole. Later ones do not, and are given all of it. One thread of an Intel Xeon (2026-11-27), 20,000 × 7 of depth 6,
µs a round: gradients 37 -> 24, fixed point 79 -> 47, trees 427 -> 359, sums of leaves 71 -> 59.
"""

from llvmlite import binding
from numba import config

__all__ = ["converts_vectors", "is_level_4", "shuffles_bytes", "uses_whole_registers"]

SLOWED_DOWN = ("knl", "knm", "skylake-avx512", "cannonlake", "cascadelake", "cooperlake")


def is_level_4(codegen) -> bool:
    """Whether it has AVX-512."""
    return "+avx512dq" in getattr(codegen, "_tm_features", "") or config.CPU_NAME == "x86-64-v4"


def uses_whole_registers(codegen) -> bool:
    """Whether loops are to be made of vectors of 64 bytes."""
    return is_level_4(codegen) and (config.CPU_NAME or binding.get_host_cpu_name()) not in SLOWED_DOWN


def shuffles_bytes(codegen) -> bool:
    """Whether it has SSSE3."""
    return "+ssse3" in getattr(codegen, "_tm_features", "") or (config.CPU_NAME or "").startswith("x86-64-v")


def converts_vectors(codegen) -> bool:
    """Whether it has an instruction between a vector of int64 and one of float64."""
    return is_level_4(codegen) or not binding.get_process_triple().startswith("x86_64")
