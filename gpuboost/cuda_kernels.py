"""Every CUDA kernel of the package, for what looks at all of them: tests, and the wheel that ships them compiled.

A kernel that is made by a function is here for everything that the package itself gives that function.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib import import_module
from inspect import signature
from itertools import product
from pathlib import Path
from pkgutil import iter_modules
from types import ModuleType
from typing import Any

import numpy as np
from numba.extending import is_jitted

import gpuboost.kernels
import gpuboost.metrics
import gpuboost.objectives
from gpuboost.backend.cuda.compiler import assemble, to_ptx
from gpuboost.backend.cuda.kept import ship_kernel
from gpuboost.kernels import category_splits, gradients, histogram, histogram_tiles, predict_words, reduce, splits
from gpuboost.kernels.cuda_common import CudaKernel, all_kernels

__all__ = ["FACTORIES", "choices_of", "modules_of", "package_kernels", "write_kernels"]


def modules_of(package: ModuleType) -> list[ModuleType]:
    return [import_module(f"{package.__name__}.{module.name}") for module in iter_modules(package.__path__)]


def _formulas(*parameters: str) -> list[Any]:
    """The scalar functions with these parameters in the files of objectives and metrics, and in kernels/reduce.py."""
    modules = [*modules_of(gpuboost.objectives), *modules_of(gpuboost.metrics), reduce]
    found = {id(f): f for module in modules for f in vars(module).values() if is_jitted(f)}
    return [f for f in found.values() if tuple(signature(f.py_func).parameters) == parameters]


def interval_gradients_kernel(gradient: Any) -> CudaKernel:
    return gradients.elementwise_gradients_kernel(gradient, label_rows=2, uses_double=True)


def evaluate_splits_kernel(arguments: tuple[bool, bool]) -> CudaKernel:
    bounded, orders_outputs = arguments
    return splits.evaluate_splits_kernel(bounded, None, orders_outputs)


def evaluate_category_splits_kernel(bounded: bool) -> CudaKernel:
    return category_splits.evaluate_category_splits_kernel(bounded, None)


def build_histograms_kernel(arguments: tuple[int, int]) -> CudaKernel:
    return histogram_tiles.build_histograms_kernel(*arguments)


def predict_by_words_kernel(arguments: tuple[bool, bool]) -> CudaKernel:
    return predict_words.predict_by_words_kernel(*arguments)


# (factory, its arguments in turn). A kernel that is made by a function belongs here.
FACTORIES: list[tuple[Callable[[Any], CudaKernel], list[Any]]] = [
    (gradients.elementwise_gradients_kernel, _formulas("margin", "label", "weight", "output", "parameters")),
    (interval_gradients_kernel, _formulas("margin", "bounds", "weight", "output", "parameters")),
    (gradients.rowwise_gradients_kernel, _formulas("margin", "label", "weight", "i", "parameters", "grad", "hess")),
    (reduce.reduce_rows_kernel, _formulas("prediction", "label", "i", "parameters")),
    (reduce.map_rows_kernel, _formulas("margin", "i", "out")),
    (build_histograms_kernel, [(1, 1), (1, 2), (2, 1)]),
    (histogram.build_histograms_global_kernel, [1, 2]),
    (evaluate_splits_kernel, [(False, False), (True, False), (True, True)]),
    (evaluate_category_splits_kernel, [False, True]),
    (predict_by_words_kernel, [(False, False), (False, True), (True, False), (True, True)]),
]


def package_kernels() -> list[CudaKernel]:
    """By file and name."""
    modules_of(gpuboost.kernels)
    for factory, arguments in FACTORIES:
        for argument in arguments:
            factory(argument)
    is_ours = lambda function: function.__module__.startswith("gpuboost.")
    own = [k for k in all_kernels() if is_ours(k.function) and (k.formula is None or is_ours(k.formula.py_func))]
    return sorted(own, key=lambda k: k.name)


def choices_of(kernel: CudaKernel) -> Iterator[dict[str, np.dtype[Any]]]:
    """All combinations of types that it can be compiled for."""
    return (dict(zip(kernel.choices, dtypes)) for dtypes in product(*kernel.choices.values()))


def write_kernels(folder: Path, capability: tuple[int, int], with_ptx: bool) -> None:
    """Compile all of them for the package (backend/cuda/kept.py), two minutes; with their text for later GPUs.

    Raises RuntimeError without an assembler."""
    name = "{}.{}".format(*capability)
    for kernel in package_kernels():
        for choice in choices_of(kernel):
            ptx = to_ptx(kernel, choice, capability)
            compiled = assemble(ptx, capability)
            if compiled.is_ptx:
                raise RuntimeError(f"{kernel.name} could not be assembled. Install cuda-core and nvidia-nvjitlink.")
            ship_kernel(kernel, choice, compiled, folder / name)
            if with_ptx:
                text = replace(compiled, image=ptx.encode(), is_ptx=True, registers=-1, spill_bytes=-1)
                ship_kernel(kernel, choice, text, folder / f"{name}.ptx")
