"""A second process that compiles kernels of a first model while the first process comes to them.

numba compiles in one thread of a process. Where no kernel has been kept yet, the second process takes what takes long, then what
the first reaches last, by their types; where both want one, whoever is later waits (kernels/compile_cache.py). There is one for a
folder of kernels, whoever needs them: none where they cannot be kept, on one core, or where processes cannot lock. It ends with
the process that started it, at the latest, whatever ends that: a kernel is kept as a whole or not at all. With
GPUBOOST_COMPILERS=1 in the environment there is none. Compiling for README's first model and its prediction took 32 s without
it, 17 s with it (2 cores, 2026-11-23); since kernels are called late (kernels/late.py) two thirds of that.
"""

import os
import select
import subprocess
import sys
import threading
from contextlib import suppress
from functools import cache
from typing import Any

import numba
from numba import types

from gpuboost.kernels.compile_cache import lock_first_use, set_compile_hook

__all__ = ["compile_first_kernels", "first_kernels", "start_second_compiler"]

# numba's types by short names: i8 a number, i8:2 an array of two axes, in C's order.
NUMBERS = {
    "u1": types.uint8, "u4": types.uint32, "u8": types.uint64, "i1": types.int8, "i4": types.int32, "i8": types.int64,
    "f4": types.float32, "f8": types.float64, "bool": types.boolean, "none": types.none,
}  # fmt: skip


@cache
def start_second_compiler() -> None:
    """Once a process, where there is any use for it."""
    n_threads: int = numba.config.NUMBA_NUM_THREADS  # type: ignore[attr-defined]
    is_alone = n_threads < 2 or os.environ.get("GPUBOOST_COMPILERS") in ("0", "1")
    is_other_program = not sys.executable or getattr(sys, "frozen", False)
    if is_alone or is_other_program or (lock := lock_first_use()) is None:
        return
    code = f"import sys; sys.path[:] = {sys.path!r}; from {__name__} import *; compile_first_kernels()"
    try:
        with suppress(OSError, RuntimeError):  # no more processes, or threads
            process = subprocess.Popen(
                [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                pass_fds=[lock],
            )  # fmt: skip
            threading.Thread(target=_await_end, args=(process,), daemon=True).start()
    finally:
        os.close(lock)  # which the second process now holds


def _await_end(process: subprocess.Popen[bytes]) -> None:
    process.wait()
    assert process.stdin is not None
    with suppress(OSError):
        process.stdin.close()


def compile_first_kernels() -> None:
    """What the second process does."""
    set_compile_hook(None)
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    for kernel, signature in first_kernels():
        kernel.compile(signature)


def _end_with(parent: int) -> None:
    """End when the first process has ended, also where children of its own hold its end of the pipe."""
    while os.getppid() == parent and not select.select([sys.stdin], [], [], 1.0)[0]:
        pass
    os._exit(0)


def first_kernels() -> list[tuple[Any, tuple[types.Type, ...]]]:
    """Kernels of which most first models on the CPU need the code for these types of arguments, in the order of the second
    process: what takes long, prediction at the latest; then what is needed last first, so that it meets the first process, which
    goes the other way. (Prediction behind what a tree needs was not finished when the first process was, and the next one began
    anew.)"""
    from gpuboost.kernels import histogram, leaves, nodes, partition, predict, predict_codes, splits
    from gpuboost.kernels.quantise import quantise_cpu
    from gpuboost.kernels.structs import FLAT_NODE, NODE

    known: dict[str, Any] = NUMBERS | {
        "node": numba.from_dtype(NODE), "flat": numba.from_dtype(FLAT_NODE), "candidate": numba.from_dtype(splits.CANDIDATE)
    }  # fmt: skip
    penalty = "f8 f8 f8"
    kernels = {
        quantise_cpu: "f4:2 f4:2 u4:1 f8:2 i4:1 i4:3 i8:3 i8",
        splits.evaluate_splits(None): "i4:1 node:1 i8:3 i8:3 i8:3 i4:1 i4:1 i1:1 u1:2 u1:2 bool f8:2 i4:1 "
        f"{penalty} f8 f8:1 candidate:2 i8:2 i8:2 f8:3 i4:2 i8",
        histogram.build_packed_cpu: "i4:1 i4:1 node:1 i8:2 i4:1 i8 u8:2 i4:2 i4:3 i8:3 i8",
        predict.predict_values_cpu: "f4:2 f4 flat:1 f4:2 i8:1 i4:1 none i8 f4:2 i4:2 i8",
        predict_codes.predict_codes_cpu: "u1:2 i4:1 i4:1 flat:1 f4:2 i8:1 i4:1 none f4:2 i4:2 i8",
        nodes.collect_nodes: (
            "i8:1 i8:1 node:1 i4:1 i8:1 f4:2 f4:2 f8:1 f4:1 i4:1 i4:1 i4:1 i4:1 f4:1 u1:1 f4:2 f4:1 f4:1 f4:2"
        ),
        nodes.number_kept: "i8:1 i8:1 node:1 i4:1 i4:1",
        leaves.update_margin_cpu: "i8:2 node:1 i8:2 i4:2 f4:2 i4:1 f4:2 i8",
        leaves.weigh_trees: f"i8 i8 node:1 i8:3 i8:3 f8:2 i4:1 f8 f8 {penalty} f8 f4:2 f4:2 f8:1",
        leaves.sum_leaves_cpu: "i8:2 node:1 i8:2 i4:2 f4:2 f4:2 f8:2 i4:1 i8:3 i8",
        leaves.list_leaf_chunks: "i8 node:1 i8:2",
        partition.move_rows_cpu: "i4:1 node:1 i8:2 i4:2 i8:2 u1:1 i8",
        partition.place_children: "i4:1 node:1 i8:2 i8:2 i8:1",
        partition.mark_rows_cpu: "i4:1 node:1 u4:2 i8:2 u1:2 i4:1 i4:2 i8:2 u1:1 i8",
        nodes.apply_splits: f"i4:1 i8 node:1 i8:3 i8:3 i1:1 f8:2 i4:1 {penalty}",
    }
    found = []
    for kernel, text in kernels.items():
        parts = [name.partition(":") for name in text.split()]
        signature = tuple(types.Array(known[name], int(n_axes), "C") if n_axes else known[name] for name, _, n_axes in parts)
        found.append((getattr(kernel, "dispatcher", kernel), signature))
    return found
